"""The table of problems and algorithms that the shared checks run over."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp

import dimfree

# Learning rates for the normalisation 1/p: large enough that the second-order term matters, small enough to be stable.
RATES = {"square": 0.05, "erf": 1.0, "relu": 0.4, "tanh": 0.8, "he3": 0.003}
WIDTHS = ((1, 1), (2, 1), (3, 3), (4, 2))


@dataclasses.dataclass(frozen=True)
class Case:
    """One (problem, algorithm)."""

    activation: str
    p: int
    k: int
    sphere: bool
    trained: bool
    batch_size: int

    def __str__(self) -> str:
        words = (f"p{self.p}k{self.k}", "sphere" if self.sphere else "free", "trained" if self.trained else "fixed")
        return "-".join((self.activation, *words, f"batch{self.batch_size}"))

    @property
    def problem(self) -> dimfree.TwoLayer:
        return dimfree.TwoLayer(self.p, self.k, self.activation, noise=0.1)

    @property
    def algorithm(self) -> dimfree.OnlineSGD:
        rate = RATES[self.activation] * self.p * (2.0 if self.batch_size > 1 else 1.0)
        return dimfree.OnlineSGD(
            rate, batch_size=self.batch_size, sphere=self.sphere, readout_rate=0.5 * rate if self.trained else None
        )


# Half of all combinations: for each activation and width each two of the settings meet in all ways, and for each
# activation or width all three of them.
TABLE = tuple(
    Case(activation, p, k, bool(sphere), bool(trained), (1, 8)[batches])
    for (i, activation), (j, (p, k)) in itertools.product(enumerate(RATES), enumerate(WIDTHS))
    for sphere, trained, batches in itertools.product(range(2), repeat=3)
    if (i + j + sphere + trained + batches) % 2 == 0
)

# Every pair (activation, width), (activation, sphere), (width, sphere), ... occurs at least once.
COVERING = tuple(
    Case(
        activation,
        *WIDTHS[(i + j) % 4],
        sphere=bool((i + j // 2) % 2),
        trained=bool((i + j) % 2),
        batch_size=(1, 8)[j % 2],
    )
    for i, activation in enumerate(RATES)
    for j in range(2)
)


def generic_state(problem: dimfree.Problem, seed: int = 0) -> dimfree.State:
    """Overlaps of random weights in hardly more dimensions than they span: none is small."""
    return dimfree.random_state(problem, problem.width + problem.teacher_width + 2, key=jax.random.key(seed))


def three_classes(width: int, snr, **options) -> dimfree.Mixture:
    """Three clusters, each a class: a network with three outputs."""
    means = [[1.0, 0.0], [-0.5, 0.9], [-0.5, -0.9]]
    return dimfree.Mixture(means, [0, 1, 2], width, snr, activation=jnp.tanh, **options)


# Of two students, and what tells clusters and outputs apart.
UNEQUAL = {"snr": [1.0, 2.0, 4.0], "readout": [[1.0, 0.2], [-0.5, 0.6], [0.3, -0.8]]}
