"""Many teachers whose strengths fall as a power law: a network of any width that learns them one after the other."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import InvalidInput, check_not_traced, nonnegative_number, positive_integer, positive_number, require
from ..gaussian.rules import Averaging
from ..printing import as_call
from ..state import STUDENTS, TEACHERS, State
from .base import Problem
from .inputs import Inputs, Moments
from .two_layer import TwoLayer


class Pairs(Inputs):
    """Standard normal inputs of students that see one teacher each: a State has a block for each pair."""

    number: int = eqx.field(static=True)

    def __init__(self, number: int):
        self.number = number

    @property
    def eigenvalues(self) -> Float[Array, " blocks"]:
        return jnp.ones(self.number)

    @property
    def fractions(self) -> Float[Array, " blocks"]:
        return jnp.ones(self.number)  # every student sees the whole input

    @property
    def isotropic(self) -> bool:
        return False  # what takes one block only refuses

    def in_blocks(self, moments: Moments, sensitivity, state: State) -> Moments:
        if not state.families[2:]:
            return moments
        matrix = sensitivity()
        own = {name: matrix @ state.blocks_with_seen(name) for name in state.families[2:]}
        return Moments(moments.student, moments.teacher, moments.square, moments.readout, own)

    def seen(self, normals, component, teachers):
        raise NotImplementedError

    def unseen(self, triangle, component):
        raise NotImplementedError


class PairedSquares(Problem):
    r"""A [`TwoLayer`] with the square activation where each student overlaps with one teacher, and with no student.

    $$ \tfrac12 \Big( \sum_j \lambda_j^2 - \sum_r a_r \lambda_r^{*2} - \sqrt{\text{noise}}\, z \Big)^2 $$

    The square is even: what a student has of another pair's teacher, or of another student, has no force, and stays
    zero in the limit. So the State is a block of Q, M and P for each pair, and its drift costs as much as there are
    pairs, not their cube. In dimension d the other overlaps are of order $d^{-1/2}$, and are lost here.

    With $\tau = \sum_j Q_j - \sum_r a_r P_r$ and $\sigma = \sum_j Q_j^2 - 2 a_j M_j^2 + \sum_r a_r^2 P_r^2$ the risk is
    $(\tau^2 + 2 \sigma + \text{noise}) / 2$.

    - `strengths`: $a$ of the teacher in each block, zero where it has none; `numbers`: how many students it has, one
      where there is a teacher.
    - `rest_mean`, `rest_square`: the sums of $a$ and $a^2$ over teachers without a student.
    - `students`: how many there are in all blocks.
    """

    strengths: Float[Array, " blocks"]
    numbers: Float[Array, " blocks"]
    rest_mean: Float[Array, ""]
    rest_square: Float[Array, ""]
    noise: Float[Array, ""]
    students: int = eqx.field(static=True)

    def __init__(self, width: int, strengths: Float[np.ndarray, " k"], noise: float):
        pairs, alone = min(width, len(strengths)), max(0, width - len(strengths))
        self.strengths = jnp.asarray(np.append(strengths[:pairs], [0.0] if alone else []))
        self.numbers = jnp.asarray(np.append(np.ones(pairs), [float(alone)] if alone else []))
        rest = strengths[pairs:]
        self.rest_mean, self.rest_square = jnp.asarray(rest.sum()), jnp.asarray(rest @ rest)
        self.noise = jnp.asarray(noise, float)
        self.students = width

    def __repr__(self) -> str:
        teachers = int(np.sum(np.asarray(self.strengths) > 0)) if self.students else 0
        return (
            f"PairedSquares({self.students} students, {teachers} of them with a teacher, noise={float(self.noise):g})"
        )

    @property
    def width(self) -> int:
        return 1  # in a block

    @property
    def neurons(self) -> int:
        return self.students

    @property
    def teacher_width(self) -> int:
        return 1

    @property
    def readout(self) -> None:
        return None

    @property
    def smooth(self) -> bool:
        return True

    @property
    def inputs(self) -> Inputs:
        return Pairs(self.strengths.shape[0])

    @property
    def knows_moments(self) -> bool:
        return True

    @property
    def irreducible_risk(self) -> Float[Array, ""]:
        return self.noise / 2

    @property
    def sources(self) -> tuple[str, ...]:
        return ("benarous2025", "ren2025", "arnaboldi2023")

    def _of_error(self, state: State):
        """Overlaps in each block, the mean of the error, and half its variance."""
        Q, M, P = (state.blocks_of(*pair)[:, 0, 0] for pair in _PAIRS)
        a, numbers = self.strengths, self.numbers
        mean = numbers @ Q - a @ P - self.rest_mean
        half = numbers @ (Q**2 - 2 * a * M**2 + a**2 * P**2) + self.rest_square
        return Q, M, P, mean, half

    def single_risk(self, state: State, averaging: Averaging) -> Float[Array, ""]:
        *_, mean, half = self._of_error(state)
        return 0.5 * (mean**2 + 2 * half + self.noise)

    def mean_moments(self, state: State, averaging: Averaging, transform: Any = None) -> Moments:
        r"""Those of `Square`, where $C S C$ and $C S C S C$ are products in a block."""
        if transform is not None:
            raise InvalidInput(f"{transform!r} changes the slopes of single samples. {_INSTEAD}")
        Q, M, P, mean, half = self._of_error(state)
        own, teacher = Q * Q - self.strengths * M * M, Q * M - self.strengths * M * P
        chain = 4 * mean * own + 8 * (Q * own - self.strengths * M * teacher)
        return Moments(
            student=_in_blocks(2 * (mean * Q + 2 * own)),
            teacher=_in_blocks(2 * (mean * M + 2 * teacher)),
            square=_in_blocks(4 * ((mean**2 + 2 * half + self.noise) * Q + chain)),
            readout=None,
        )

    def sensitivity(self, state: State, moments: Moments, transform: Any = None) -> Float[Array, "blocks 1 2"]:
        Q, M, _, mean, _ = self._of_error(state)
        return jnp.stack([2 * mean + 4 * Q, -4 * self.strengths * M], axis=-1)[:, None, :]

    def increment_covariance(self, increment, parameters, state, averaging, transform=None):
        raise InvalidInput(_INSTEAD)

    def exact_moments(self, state, draws, d, transform=None):
        raise InvalidInput(_INSTEAD)

    def vector_gradient(self, weights, teacher_weights, readout, draws, transform=None):
        raise InvalidInput(_INSTEAD)


_PAIRS = ((STUDENTS, STUDENTS), (STUDENTS, TEACHERS), (TEACHERS, TEACHERS))
_INSTEAD = (
    "Overlaps with other students and teachers are left out of this problem, so that its limit is known and its "
    "fluctuations are not: take the network with all of its overlaps, PowerLawTeachers(...)(size, key=...)."
)


def _in_blocks(numbers: Float[Array, " blocks"]) -> Float[Array, "blocks 1 1"]:
    return numbers[:, None, None]


class PowerLawTeachers(eqx.Module):
    r"""A two-layer network of any width and k orthogonal teachers of strengths $a_j = j^{-\beta}$.

    $$ \text{loss} = \tfrac12 \Big( \sum_{i \le p} c_i\, g(\lambda_i) - \sum_{j \le k} a_j\, g(\lambda^*_j)
       - \sqrt{\text{noise}}\, z \Big)^2 $$

    For the square activation, $c_i = 1$, student j aligns with its teacher as
    $\cos^2 = 1 / (1 + (d - 1) e^{-8 \eta a_j \alpha})$ in the flow, whatever the others do: a step at
    $\alpha_j = \ln d / (8 \eta a_j)$. At $\alpha$ the first $m \sim \alpha^{1/\beta}$ are learned. The strength of the
    others, $T_m = \sum_{j > m} a_j$, is spread over the other students, so that the mean output is right, and

    $$ \text{risk} \simeq \sum_{j > m} a_j^2 + \frac{T_m^2}{p - m} . $$

    So the risk falls as $\alpha^{-(2\beta - 1)/\beta}$. For $\beta > 1$ both terms are $m^{1 - 2\beta}$ at $m \sim p$,
    and compute f has the best width $f^{1/(1+\beta)}$ with the risk $f^{-(2\beta-1)/(1+\beta)}$. For $\beta < 1$ the
    mean of the teachers, $T \sim k^{1-\beta}$, wants more students than there are steps: $f^{(2\beta-1)/(3\beta-1)}$
    and $f^{-(2\beta-1)/(3\beta-1)}$, as long as p is far below k.

    **Arguments:**

    - `exponent`: $\beta$, above 1/2.
    - `teachers`: k.
    - `d`: the dimension of the inputs, at least that of all vectors together for a random start.
    - `activation`: `"square"`; `"erf"` or another name or function for a network with $c_i = a_i$, whose `predicted` is
      empty, and which has at most k students.
    - `noise`: variance of the label noise.

    **Returns** from a call with a width: the problem and its start. Each student has the overlap $M_{jj}^2 = Q_{jj} /
    d$ with one teacher, as a random student has, and no overlap with the others; its norm makes the mean output right
    for the square. For the square this stays so, and the cost is proportional to k (`PairedSquares`). With a `key` it
    returns a [`TwoLayer`] and random students of these norms, with all overlaps.

    ??? example
        >>> import dimfree
        >>> teachers = dimfree.PowerLawTeachers(1.5, teachers=300, d=10_000)
        >>> {name: round(exponent, 3) for name, exponent in teachers.predicted.items()}
        {'samples': -1.333, 'size': 0.4, 'compute': -0.8}
        >>> problem, start = teachers(300)
        >>> round(float(problem.risk(start)), 3)
        1.223

    Ben Arous, Erdogdu, Vural & Wu 2025, where the activation is the second Hermite polynomial; Ren, Nichani, Wu & Lee
    2025, where it is one of higher order.
    """

    exponent: float
    teachers: int = eqx.field(static=True)
    d: int = eqx.field(static=True)
    activation: Any
    noise: float

    def __init__(self, exponent: float, teachers: int, d: int, activation: Any = "square", noise: float = 0.0):
        check_not_traced("PowerLawTeachers", exponent=exponent, noise=noise)
        positive_number(exponent, "exponent")
        self.exponent = float(exponent)
        require(self.exponent > 0.5, f"exponent = {self.exponent:g} was given; the target is infinite up to 1/2.")
        self.teachers, self.d = positive_integer(teachers, "teachers"), positive_integer(d, "d")
        require(self.d >= self.teachers, f"{teachers} orthogonal teachers do not fit in d = {d} dimensions.")
        self.activation = activation
        nonnegative_number(noise, "noise", meaning=" (it is the variance of the label noise)")
        self.noise = float(noise)

    def __repr__(self) -> str:
        names = ("exponent", "teachers", "d", "activation", "noise")
        return as_call(self, **{name: getattr(self, name) for name in names})

    @property
    def sources(self) -> tuple[str, ...]:
        return ("benarous2025", "ren2025")

    @property
    def irreducible_risk(self) -> float:
        """Half the variance of the label noise."""
        return self.noise / 2

    @property
    def strengths(self) -> Float[np.ndarray, " k"]:
        """Those of the teachers, the strongest first."""
        return np.arange(1.0, self.teachers + 1) ** -self.exponent

    @property
    def predicted(self) -> dict[str, float]:
        """The exponents of the risk in the samples, and in the compute those of the best width and of its risk."""
        if self.activation != "square":
            return {}
        b = self.exponent
        size = 1 / (1 + b) if b >= 1 else (2 * b - 1) / (3 * b - 1)
        return {"samples": -(2 * b - 1) / b, "size": size, "compute": -(2 * b - 1) / (1 + b if b >= 1 else 3 * b - 1)}

    def samples_to_learn(self, learning_rate: float) -> Float[np.ndarray, " k"]:
        r"""The samples $d \ln d / (8 \eta a_j)$ at which a student of the square has half aligned with teacher j."""
        positive_number(learning_rate, "learning_rate")
        return self.d * np.log(self.d) / (8 * learning_rate * self.strengths)

    def __call__(self, size: int, *, key: Array | None = None) -> tuple[Problem, State]:
        width, strengths = positive_integer(size, "size"), self.strengths
        square = self.activation == "square"
        norm = strengths.sum() / width if square else 1.0  # squared
        if square and key is None:
            problem = PairedSquares(width, strengths, self.noise)
            seen = problem.strengths > 0
            overlaps = (norm * jnp.ones(len(seen)), jnp.where(seen, jnp.sqrt(norm / self.d), 0.0), 1.0 * seen)
            return problem, State.of(
                {pair: _in_blocks(values) for pair, values in zip(_PAIRS, overlaps, strict=True)}, None
            )
        if not square and width > self.teachers:
            raise InvalidInput(f"{width} students of {self.teachers} teachers were asked for; take at most as many.")
        problem = TwoLayer(
            width,
            self.teachers,
            self.activation,
            noise=self.noise,
            readout=None if square else strengths[:width],
            teacher_readout=strengths,
            normalisation="sum",
        )
        if key is None:
            return problem, State(Q=norm * np.eye(width), M=np.sqrt(norm / self.d) * np.eye(width, self.teachers))
        weights = norm**0.5 * jax.random.normal(key, (width, self.d))
        return problem, State(Q=weights @ weights.T / self.d, M=weights[:, : self.teachers] / self.d**0.5)
