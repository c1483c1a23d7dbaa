"""Algorithms that scale each coordinate of the gradient by its own past: sign descent, RMSProp, Adam."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import (
    InvalidInput,
    flag,
    is_concrete,
    nonnegative_number,
    positive_integer,
    positive_number,
    require,
    shown,
)
from ..printing import as_call
from ..problems import FieldProblem, Problem
from ..problems.inputs import Inputs, Spectrum, StandardInputs, block_of_coordinate
from ..state import STUDENTS
from .moves import Move
from .online import OnlineAlgorithm, OnlineSGD
from .schedules import Schedule, as_rate, rate_at

SECOND_MOMENT, WEIGHT = "second_moment", "second_moment_weight"
_LONGEST = 0.99999  # beta2 beyond which a memory is stated as one of order d


class CoordinateWise(OnlineAlgorithm):
    r"""What sign descent, RMSProp and Adam have in common: the step.

    With $z = \sqrt d$ times the gradient of the batch, whose coordinates are of order one, in each coordinate

    $$ m \leftarrow \beta_1 m + (1 - \beta_1) z, \qquad v \leftarrow \beta_2 v + (1 - \beta_2) z^2, \qquad
       w \leftarrow w - \frac{\text{learning\_rate}}{\sqrt d} \, \frac{\hat m}{\sqrt{\hat v} + \text{epsilon}}, $$

    with $\hat m$ and $\hat v$ over the sum of the weights that they have so far where the bias is corrected. A
    coordinate in which v = 0 stays where it is. The law of a step depends on the coordinates: it holds for inputs whose
    covariance is diagonal, and weights that are spread over many coordinates. The readout is trained by SGD.
    """

    learning_rate: Float[Array, ""] | Schedule
    forgetting: Float[Array, ""] | None
    epsilon: Float[Array, ""]
    readout_rate: Float[Array, ""] | Schedule | None
    beta1: float = eqx.field(static=True)
    beta2: float | None = eqx.field(static=True)
    bias_correction: bool = eqx.field(static=True)
    batch_size: int = eqx.field(static=True)

    def __init__(
        self,
        learning_rate: float | Array | Callable,
        beta1: Any,
        beta2: Any,
        forgetting: Any,
        epsilon: Any,
        bias_correction: bool,
        batch_size: Any,
        readout_rate: float | Array | Callable | None,
    ):
        self.learning_rate = as_rate(learning_rate, "learning_rate")
        if (beta2 is None) == (forgetting is None):
            raise InvalidInput(
                f"beta2 = {shown(beta2)} and forgetting = {shown(forgetting)} were given; give one of them: beta2, or "
                "forgetting = d (1 - beta2) for a memory of order d."
            )
        self.beta1 = _kept(beta1, "beta1")
        self.beta2 = None if beta2 is None else _kept(beta2, "beta2")
        if self.beta2 == 0 and self.beta1 > 0:
            raise InvalidInput(
                f"beta1 = {self.beta1:g} and beta2 = 0 were given; a mean of gradients divided by the "
                "size of the last one has no finite mean. Give beta2 > 0, or dimfree.SignDescent."
            )
        if forgetting is not None:
            positive_number(forgetting, "forgetting")
        self.forgetting = None if forgetting is None else jnp.asarray(forgetting, float)
        nonnegative_number(epsilon, "epsilon")
        self.epsilon = jnp.asarray(epsilon, float)
        self.bias_correction = flag(bias_correction, "bias_correction")
        self.batch_size = positive_integer(batch_size, "batch_size")
        self.readout_rate = None if readout_rate is None else as_rate(readout_rate, "readout_rate")

    @property
    def sphere(self) -> bool:
        return False

    @property
    def ridge(self) -> Float[Array, ""]:
        return jnp.zeros(())

    @property
    def sources(self) -> tuple[str, ...]:
        return ("kingma2015", "collinswoodfin2024")

    @property
    def by_coordinate(self) -> "CoordinateWise":
        return self

    @property
    def mover(self) -> OnlineSGD:
        return OnlineSGD(self.learning_rate, self.batch_size, readout_rate=self.readout_rate)

    def move(self, alpha: Float[Array, ""]) -> Move:
        """The step along the scaled gradient."""
        return Move(drag={}, pull={STUDENTS: -rate_at(self.learning_rate, alpha)})

    def measured(self, blocks: int, width: int) -> dict[str, Float[Array, "..."]]:
        """With a memory of order d: the mean of v over the coordinates of a block, and the sum of its weights."""
        if self.forgetting is None:
            return {}
        return {SECOND_MOMENT: jnp.zeros((blocks, width)), WEIGHT: self._first_weight}

    @property
    def _first_weight(self) -> Float[Array, ""]:
        return jnp.asarray(0.0 if self.bias_correction else 1.0, float)

    # On vectors.

    def loaded(self, numbers: dict[str, Array], width: int, inputs: Inputs, d: int) -> dict[str, Array]:
        """The averages of each coordinate before the first step, with what a State has measured before."""
        first, weight = jnp.zeros((width, d)), self._first_weight
        second = numbers[SECOND_MOMENT].T[:, block_of_coordinate(inputs, d)] if numbers else first
        return {"first": first, "second": second, "first_weight": weight, WEIGHT: numbers.get(WEIGHT, weight)}

    def scaled(
        self, gradient: Float[Array, "p d"], memory: dict[str, Array]
    ) -> tuple[Float[Array, "p d"], dict[str, Array]]:
        """What takes the place of the gradient, and the averages with it."""
        d = gradient.shape[-1]
        z = d**0.5 * gradient
        beta1, beta2 = self.beta1, self.kept(d)
        first, second = beta1 * memory["first"] + (1 - beta1) * z, beta2 * memory["second"] + (1 - beta2) * z**2
        first_weight, weight = beta1 * memory["first_weight"] + 1 - beta1, beta2 * memory[WEIGHT] + 1 - beta2
        moves = second > 0
        root = jnp.sqrt(jnp.where(moves, second / weight, 1.0))
        ratio = jnp.where(moves, first / first_weight / (root + self.epsilon), 0.0)
        return ratio / d**0.5, {"first": first, "second": second, "first_weight": first_weight, WEIGHT: weight}

    def kept(self, d: int) -> Float[Array, ""] | float:
        """beta2 in dimension d."""
        if self.beta2 is not None:
            return self.beta2
        assert self.forgetting is not None
        return 1 - self.forgetting / d

    def observed(self, memory: dict[str, Array], inputs: Inputs) -> dict[str, Array]:
        """What a State has measured where vectors have these averages."""
        if self.forgetting is None:
            return {}
        d = memory["second"].shape[-1]
        block = block_of_coordinate(inputs, d)
        sums = jax.ops.segment_sum(memory["second"].T, block, inputs.blocks, indices_are_sorted=True)
        return {SECOND_MOMENT: sums / inputs.sizes(d)[:, None], WEIGHT: memory[WEIGHT]}


class SignDescent(CoordinateWise):
    r"""One-pass descent along the sign of each coordinate of the gradient.

    $$ w \leftarrow w - \frac{\text{learning\_rate}}{\sqrt d} \, \text{sign}(g) $$

    **Arguments:**

    - `learning_rate`: a number or a function of alpha.
    - `batch_size`: fresh samples in a step.
    - `readout_rate`: as for [`OnlineSGD`].

    Simulate it with `method="vectors"`: its law depends on the coordinates.

    ??? example
        >>> import dimfree
        >>> limit = dimfree.ode(dimfree.TwoLayer(1, 1, "erf"), dimfree.SignDescent(0.2))
        >>> end = dimfree.solve(limit, dimfree.State(Q=[[1.0]], M=[[0.3]]), 2.0).final
        >>> bool(end.M[0, 0] > 0.3)
        True
    """

    def __init__(
        self,
        learning_rate: float | Array | Callable,
        batch_size: int = 1,
        readout_rate: float | Array | Callable | None = None,
    ):
        super().__init__(learning_rate, 0.0, 0.0, None, 0.0, False, batch_size, readout_rate)

    @property
    def sources(self) -> tuple[str, ...]:
        return ("bernstein2018", "xiao2024")

    def __repr__(self) -> str:
        fields = {name: getattr(self, name) for name in ("learning_rate", "batch_size", "readout_rate")}
        return as_call(self, **fields)


class RMSProp(CoordinateWise):
    r"""One-pass SGD that divides each coordinate of the gradient by the root of its running mean square.

    With $z = \sqrt d$ times the gradient, whose coordinates are of order one, in each coordinate

    $$ v \leftarrow \beta_2 v + (1 - \beta_2) z^2, \qquad
       w \leftarrow w - \frac{\text{learning\_rate}}{\sqrt d} \, \frac{z}{\sqrt v + \text{epsilon}}, $$

    and v = 0 at the start.

    **Arguments:**

    - `learning_rate`: a number or a function of alpha.
    - `beta2`: how much of v is kept in a step; or `forgetting`, for a memory of order d: beta2 = 1 - forgetting / d.
    - `epsilon`: $\sqrt d$ times the epsilon of code that does not scale the gradient. With `forgetting` the limit needs
      a positive epsilon: otherwise the first steps grow with d.
    - `batch_size`: fresh samples in a step; `readout_rate`: as for [`OnlineSGD`].

    Simulate it with `method="vectors"`: its law depends on the coordinates.
    """

    def __init__(
        self,
        learning_rate: float | Array | Callable,
        beta2: float | None = None,
        forgetting: float | Array | None = None,
        epsilon: float | Array = 0.0,
        batch_size: int = 1,
        readout_rate: float | Array | Callable | None = None,
    ):
        super().__init__(learning_rate, 0.0, beta2, forgetting, epsilon, False, batch_size, readout_rate)

    @property
    def sources(self) -> tuple[str, ...]:
        return ("tieleman2012", "collinswoodfin2024")


class Adam(CoordinateWise):
    r"""One-pass Adam.

    With $z = \sqrt d$ times the gradient, whose coordinates are of order one, in each coordinate

    $$ m \leftarrow \beta_1 m + (1 - \beta_1) z, \qquad v \leftarrow \beta_2 v + (1 - \beta_2) z^2, \qquad
       w \leftarrow w - \frac{\text{learning\_rate}}{\sqrt d} \, \frac{\hat m}{\sqrt{\hat v} + \text{epsilon}}, $$

    with $\hat m = m / (1 - \beta_1^t)$ and $\hat v = v / (1 - \beta_2^t)$ after t steps. AdamW is
    `dimfree.WeightDecay(adam, decay)`.

    With a fixed `beta2` the averages follow the gradient faster than weights move; with `forgetting`, v changes as
    slowly as the weights and has its own limit, `state.numbers["second_moment"]`: the mean over the coordinates of each
    block of the inputs' spectrum, for each student. At a given d both arguments name the same algorithm, forgetting = d
    (1 - beta2): 0.999 in 1,000 dimensions is forgetting = 1.

    **Arguments:**

    - `learning_rate`: a number or a function of alpha.
    - `beta1`: how much of m is kept in a step.
    - `beta2`: how much of v is kept in a step; or `forgetting`, for a memory of order d: beta2 = 1 - forgetting / d.
    - `epsilon`: $\sqrt d$ times the epsilon of code that does not scale the gradient.
    - `bias_correction`: whether m and v are divided by the sum of their weights so far.
    - `batch_size`: fresh samples in a step; `readout_rate`: as for [`OnlineSGD`].

    Simulate it with `method="vectors"`: its law depends on the coordinates.

    ??? example
        >>> import dimfree
        >>> adam = dimfree.Adam(0.2, forgetting=2.0)
        >>> limit = dimfree.ode(dimfree.TwoLayer(1, 1, "erf"), adam)
        >>> end = dimfree.solve(limit, dimfree.State(Q=[[1.0]], M=[[0.3]]), 2.0).final
        >>> end.numbers["second_moment"].shape
        (1, 1)
    """

    def __init__(
        self,
        learning_rate: float | Array | Callable,
        beta1: float = 0.9,
        beta2: float | None = None,
        forgetting: float | Array | None = None,
        epsilon: float | Array = 0.0,
        bias_correction: bool = True,
        batch_size: int = 1,
        readout_rate: float | Array | Callable | None = None,
    ):
        super().__init__(learning_rate, beta1, beta2, forgetting, epsilon, bias_correction, batch_size, readout_rate)


def check_coordinates(problem: Problem, algorithm: OnlineAlgorithm, d: int | None = None) -> None:
    """An error where the coordinates of inputs are not independent, or d is too small for the algorithm."""
    if not isinstance(problem, FieldProblem) or not isinstance(problem.inputs, StandardInputs | Spectrum):
        raise InvalidInput(
            f"{algorithm!r} scales each coordinate of the gradient by itself, which is known for inputs with "
            f"independent coordinates (isotropic, or dimfree.Spectrum) only; {problem!r} has others. Use "
            "dimfree.OnlineSGD or dimfree.Momentum."
        )
    if d is None and (problem.inputs_per_sample > 1 or problem.changes):
        raise InvalidInput(
            f"A sample of {problem!r} is several inputs, or its law changes with the clock; the limit of {algorithm!r} "
            'is known for one input and a law that stays. dimfree.simulate(..., method="vectors") takes any.'
        )
    rule = algorithm.by_coordinate
    if rule is not None and set(algorithm.measured(1, 1)) != set(rule.measured(1, 1)):
        raise InvalidInput(
            f"{algorithm!r} measures the norm of a gradient whose coordinates are scaled one by one; that is not "
            "known. Use dimfree.Clipped with a fixed norm."
        )
    if d is not None and rule is not None and rule.forgetting is not None and is_concrete(rule.forgetting):
        require(
            float(rule.forgetting) <= d,
            f"forgetting = {float(rule.forgetting):g} was given, which is d (1 - beta2); in d = {d} dimensions it is d "
            "at most.",
        )


def _kept(value: Any, name: str) -> float:
    """A fraction that is kept in a step."""
    if not is_concrete(value):
        raise InvalidInput(f"{name} is traced; how much is kept in a step must be a number that is known.")
    nonnegative_number(value, name)
    largest = _LONGEST if name == "beta2" else 1.0
    remedy = "" if name == "beta1" else f" For a longer memory than {_LONGEST:g} give forgetting = d (1 - beta2)."
    require(value < 1 and value <= largest, f"{name} = {shown(value)} was given; it must be less than 1.{remedy}")
    return float(value)
