"""How the weights move: one-pass SGD, each sample used once."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import InvalidInput, flag, positive_integer, shown
from ..printing import as_call
from ..problems.base import Moments, Problem
from ..state import STUDENTS, TEACHERS, Coordinates, Entries, State
from .moves import Move, normalised_overlaps, normalised_vectors, pairs_of, with_vectors
from .schedules import Schedule, as_rate, rate_at


class OnlineAlgorithm(eqx.Module):
    """What algorithms that use each sample once have in common: a `Move`, from which everything else follows.

    A new algorithm states its `move`, and the vectors of its own where it has any (`own`). What it does to the slopes
    of the loss before they are used, such as clipping, is `used_slopes`. Where it chooses steps by what it measures of
    the gradient, it says what that is (`measured`), how it changes (`remeasured`), and what follows (`at`).
    """

    batch_size: eqx.AbstractVar[int]
    sphere: eqx.AbstractVar[bool]
    learning_rate: eqx.AbstractVar[Float[Array, ""] | Schedule]
    ridge: eqx.AbstractVar[Float[Array, ""] | Schedule]
    readout_rate: eqx.AbstractVar[Float[Array, ""] | Schedule | None]

    @abc.abstractmethod
    def move(self, alpha: Float[Array, ""]) -> Move:
        """A step, as a statement on vectors."""

    @property
    def sources(self) -> tuple[str, ...]:
        """The publications that it comes from, for `dimfree.cite`."""
        return ()

    @property
    def own(self) -> dict[str, str | None]:
        """The algorithm's own vectors, one for each student: by name, the family that they start as, or None (zero)."""
        return {}

    def measured(self, blocks: int, width: int) -> dict[str, Float[Array, "..."]]:
        """What the algorithm measures to choose its steps by: numbers, by name, as they start.

        Of shape (), or (blocks, width) where there is one for each block of the inputs' spectrum and each student.
        """
        return {}

    def remeasured(
        self,
        numbers: dict[str, Float[Array, "..."]],
        square: Float[Array, "*blocks p p"],
        inverse_d: Float[Array, ""] | float,
        alpha: Float[Array, ""],
    ) -> dict[str, Float[Array, "..."]]:
        """What it measures, with a gradient that has these products with itself (in each block), before it steps."""
        return numbers

    def at(self, alpha: Float[Array, ""], numbers: dict[str, Float[Array, "..."]]) -> "OnlineAlgorithm":
        """The algorithm at one moment: rates in the place of schedules, and of what depends on what it measures."""
        return jax.tree.map(lambda rate: rate_at(rate, alpha), self, is_leaf=lambda leaf: isinstance(leaf, Schedule))

    def used_slopes(
        self,
        slopes: Callable[[Float[Array, "B p"]], Float[Array, "B p"]],
        fields: Float[Array, "B p"],
        gram: Float[Array, "B B"],
    ) -> Float[Array, "B p"]:
        r"""The slopes that a step goes by: those of the loss at the student fields, unless an algorithm changes them.

        **Arguments:**

        - `slopes`: of each sample of the batch, as a function of the student fields.
        - `fields`: the student fields; `gram`: $x_b \cdot x_c / d$.
        """
        return slopes(fields)

    @property
    def transform(self) -> "OnlineAlgorithm | None":
        """The algorithm where it changes slopes, which then have no averages in closed form; else None."""
        return None if type(self).used_slopes is OnlineAlgorithm.used_slopes else self

    @property
    def joins_batch(self) -> bool:
        """Whether `used_slopes` of a sample depend on the others of its batch, however large d is."""
        return False

    @property
    def by_coordinate(self) -> Any:
        """The `CoordinateWise` that scales each coordinate of the gradient; None where no rotation changes a step."""
        return None

    @property
    def mover(self) -> "OnlineAlgorithm":
        """The algorithm that moves along what takes the place of the gradient: this one, where nothing does."""
        return self

    def _check_rotations(self) -> None:
        if self.by_coordinate is not None:
            raise InvalidInput(
                f"{self!r} scales each coordinate of the gradient by itself, so that the law of its steps is not a "
                'function of overlaps. dimfree.simulate(..., method="vectors"), dimfree.ode and gradient_flow take it.'
            )

    @property
    def slow(self) -> "OnlineAlgorithm":
        """The algorithm that has the same limit as d grows: this one, where its step is the identity at 1/d = 0."""
        self._check_rotations()
        if self.move(jnp.zeros(())).jump:
            raise InvalidInput(
                f"{self!r} does not move by order 1/d in a step (its step is not the identity at 1/d = 0), and it is "
                "not known which algorithm it becomes as d grows. Simulate it, or give it a `slow` algorithm."
            )
        return self

    @property
    def changes(self) -> bool:
        """Whether any of its rates is a schedule."""
        leaves = jax.tree.leaves(self, is_leaf=lambda leaf: isinstance(leaf, Schedule))
        return any(isinstance(leaf, Schedule) for leaf in leaves)

    def __repr__(self) -> str:
        return as_call(self)

    # What follows from it.

    def begin(self, state: State) -> State:
        """The State with the algorithm's own vectors and numbers, where it does not have them yet."""
        state = with_vectors(state, self.own)
        measured = self.measured(state.blocks, state.width).items()
        new = {name: jnp.broadcast_to(start, (*state.batch_shape, *start.shape)) for name, start in measured}
        return State.of(state.overlaps, state.readout, new | state.numbers)

    def seen(self, state: State, alpha: Float[Array, ""] | float) -> tuple[State, "OnlineAlgorithm | None"]:
        """What a loss sees: the State at the point where the gradient is taken, and what changes the slopes there."""
        alpha = jnp.asarray(alpha, float)
        now = self.at(alpha, state.numbers)
        return now.move(alpha).seen(state), now.transform

    def step(
        self, state: State, moments: Moments, inverse_d: Float[Array, ""] | float, alpha: Float[Array, ""]
    ) -> State:
        """The State after one step in dimension d, exactly.

        **Arguments:**

        - `state`: the State before.
        - `moments`: of the batch at the point where the gradient is taken (`seen`), with `square` summed over the pairs
          of its samples.
        - `inverse_d`: 1/d.
        - `alpha`: the clock, for schedules.
        """
        moved = self.unscaled_step(state, moments, inverse_d, alpha)
        if not self.sphere:
            return moved
        return State.of(normalised_overlaps(moved.overlaps, STUDENTS), moved.readout, moved.numbers)

    def unscaled_step(
        self, state: State, moments: Moments, inverse_d: Float[Array, ""] | float, alpha: Float[Array, ""]
    ) -> State:
        """`step` before students are brought back to the sphere."""
        self._check_rotations()
        numbers = self.remeasured(state.numbers, moments.square, inverse_d, alpha)
        move = self.at(alpha, numbers).move(alpha)
        overlaps = move.overlaps(state, move.along_students(moments), inverse_d)
        return State.of(overlaps, self._move_readout(state.readout, moments.readout, inverse_d, alpha), numbers)

    def step_vectors(
        self,
        vectors: dict[str, Float[Array, "_ d"]],
        readout: Float[Array, " n"] | None,
        gradient: Float[Array, "p d"],
        readout_gradient: Float[Array, " n"] | None,
        alpha: Float[Array, ""],
    ) -> tuple[dict[str, Float[Array, "_ d"]], Float[Array, " n"] | None]:
        """The same step on the vectors themselves, with the gradient of the batch."""
        self._check_rotations()
        inverse_d = 1 / gradient.shape[-1]
        vectors = self.move(alpha).vectors(vectors, gradient, inverse_d)
        if self.sphere:
            vectors = vectors | {STUDENTS: normalised_vectors(vectors[STUDENTS])}
        return vectors, self._move_readout(readout, readout_gradient, inverse_d, alpha)

    def _move_readout(self, readout, gradient, inverse_d, alpha):
        if self.readout_rate is None or readout is None:
            return readout
        rate, ridge = rate_at(self.readout_rate, alpha), rate_at(self.ridge, alpha)
        return readout - inverse_d * rate * (gradient + ridge * readout)

    def increment(self, state: State, moments: Moments, alpha: Float[Array, ""], *, unscaled: bool = False) -> State:
        """What one step adds to the State, times d, as d grows: the derivative of `step` at 1/d = 0.

        It is linear in the moments, so its mean is that of the mean moments.

        **Arguments:**

        - `unscaled`: of `unscaled_step` instead.
        """
        step = self.unscaled_step if unscaled else self.step
        _, tangent = jax.jvp(
            lambda inverse_d: step(state, moments, inverse_d, alpha), (jnp.zeros(()),), (jnp.ones(()),)
        )
        return tangent

    def limit_moments(self, moments: Moments) -> Moments:
        """Moments of a batch whose samples are uncorrelated: only a sample with itself contributes to `square`."""
        return eqx.tree_at(lambda m: m.square, moments, moments.square / self.batch_size)

    def number_of_vectors(self, problem: Problem) -> int:
        """How many vectors take part: students, teachers, and the algorithm's own, one for each student."""
        return problem.width * (1 + len(self.own)) + problem.teacher_width

    def coordinates(self, problem: Problem) -> Coordinates:
        """Which numbers of the State move."""
        trained = None if self.readout_rate is None else problem.readout
        size = 0 if trained is None else trained.shape[-1]
        rows, blocks = {TEACHERS: problem.teacher_width}, problem.inputs.blocks
        entries = tuple(
            Entries(
                pair,
                rows.get(pair[0], problem.width),
                rows.get(pair[1], problem.width),
                self.sphere and pair == (STUDENTS, STUDENTS) and blocks == 1,  # in a block even these move
            )
            for pair in pairs_of([STUDENTS, TEACHERS, *sorted(self.own)])
            if pair != (TEACHERS, TEACHERS)
        )
        numbers = tuple((name, start.shape) for name, start in self.measured(blocks, problem.width).items())
        return Coordinates(entries, blocks, size, numbers)


class OnlineSGD(OnlineAlgorithm):
    r"""One-pass stochastic gradient descent.

    $$ w_j \leftarrow \Big(1 - \frac{\text{learning\_rate} \cdot \text{ridge}}{d}\Big) w_j
       - \frac{\text{learning\_rate}}{B} \sum_{b=1}^{B}
         \frac{\partial \text{loss}_b}{\partial \lambda_j} \frac{x_b}{\sqrt d},
       \qquad x_b \sim N(0, I_d), $$

    and the readout, if it is trained, moves by $-(\text{readout\_rate}/d)$ times its own (ridged) gradient.

    **Arguments:**

    - `learning_rate`: a number, or a function of alpha (any JAX function, or a [`PiecewiseLinear`]).
    - `batch_size`: fresh samples in a step, B; a step advances the clock by B/d.
    - `sphere`: whether each student is rescaled to norm $\sqrt d$ after each step.
    - `ridge`: strength of the penalty $\tfrac{\text{ridge}}{2d}\|w\|^2$; a number or a function of alpha.
    - `readout_rate`: a number or a function of alpha; None leaves the readout fixed.
    """

    learning_rate: Float[Array, ""] | Schedule
    ridge: Float[Array, ""] | Schedule
    readout_rate: Float[Array, ""] | Schedule | None
    batch_size: int = eqx.field(static=True)
    sphere: bool = eqx.field(static=True)

    def __init__(
        self,
        learning_rate: float | Array | Callable,
        batch_size: int = 1,
        sphere: bool = False,
        ridge: float | Array | Callable = 0.0,
        readout_rate: float | Array | Callable | None = None,
    ):
        self.learning_rate = as_rate(learning_rate, "learning_rate")
        self.batch_size = positive_integer(batch_size, "batch_size")
        self.sphere = flag(sphere, "sphere")
        self.ridge = as_rate(ridge, "ridge")
        self.readout_rate = None if readout_rate is None else as_rate(readout_rate, "readout_rate")

    def move(self, alpha: Float[Array, ""]) -> Move:
        rate = rate_at(self.learning_rate, alpha)
        return Move(drag={(STUDENTS, STUDENTS): -rate * rate_at(self.ridge, alpha)}, pull={STUDENTS: -rate})


def check_online(algorithm: object) -> None:
    """An error if this is no algorithm that uses each sample once."""
    if not isinstance(algorithm, OnlineAlgorithm):
        raise InvalidInput(
            f"algorithm = {shown(algorithm)} was given; pass dimfree.OnlineSGD(learning_rate=...). For algorithms that "
            "reuse their data there are dimfree.dmft and dimfree.simulate."
        )


def check_online_sgd(algorithm: object) -> None:
    """An error if this is not plain one-pass SGD."""
    check_online(algorithm)
    if type(algorithm) is not OnlineSGD:
        raise InvalidInput(
            f"{algorithm!r} was given; this is known for plain one-pass SGD only: pass dimfree.OnlineSGD(...). "
            "dimfree.ode, sde, linear_noise, simulate and check take any algorithm that uses each sample once."
        )
