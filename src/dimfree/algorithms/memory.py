"""Algorithms with vectors of their own: momentum, averages of the iterates; and weight decay apart from the rate."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import is_concrete, nonnegative_number, require
from ..state import STUDENTS
from .moves import Move
from .online import OnlineAlgorithm, OnlineSGD, check_online
from .schedules import Schedule, as_rate, rate_at

MOMENTUM, AVERAGE = "momentum", "average"


class Momentum(OnlineSGD):
    r"""One-pass SGD with a momentum whose memory is of order d samples.

    $$ v \leftarrow \Big(1 - \frac{\text{forgetting}}{d}\Big) v + g, \qquad
       w \leftarrow w - \text{learning\_rate} \; g - \frac{\text{momentum\_rate}}{d} \, v, $$

    with g the gradient of the batch and of the penalty, and v = 0 at the start. In a step v is the one before it: the
    other order changes the step by order 1/d, and not the limit; Nesterov's point of evaluation neither. As d grows, v
    is of the order of w and has a limit of its own, with overlaps `"momentum"` in the State.

    **Arguments:**

    - `learning_rate`: of the gradient itself; `momentum_rate`: of the momentum; `forgetting`: how much of the momentum
      is lost in a step, times d. Numbers or functions of alpha.
    - `batch_size`, `sphere`, `ridge`, `readout_rate`: as for [`OnlineSGD`]; the readout has no momentum.

    ??? example
        >>> import dimfree
        >>> sgd = dimfree.Momentum(learning_rate=0.1, momentum_rate=0.4, forgetting=2.0)
        >>> start = dimfree.State(Q=[[1.0]], M=[[0.1]])
        >>> end = dimfree.solve(dimfree.ode(dimfree.TwoLayer(1, 1, "erf"), sgd), start, 10.0).final
        >>> end.overlap("momentum", "teachers").shape
        (1, 1)
    """

    momentum_rate: Float[Array, ""] | Schedule
    forgetting: Float[Array, ""] | Schedule

    def __init__(
        self,
        learning_rate: float | Array | Callable,
        momentum_rate: float | Array | Callable,
        forgetting: float | Array | Callable,
        batch_size: int = 1,
        sphere: bool = False,
        ridge: float | Array = 0.0,
        readout_rate: float | Array | Callable | None = None,
    ):
        super().__init__(learning_rate, batch_size, sphere, ridge, readout_rate)
        self.momentum_rate = as_rate(momentum_rate, "momentum_rate")
        self.forgetting = as_rate(forgetting, "forgetting")

    @property
    def own(self) -> dict[str, str | None]:
        return {MOMENTUM: None}

    def move(self, alpha: Float[Array, ""]) -> Move:
        rate = rate_at(self.learning_rate, alpha)
        drag = {
            (STUDENTS, STUDENTS): -rate * self.ridge,
            (STUDENTS, MOMENTUM): -rate_at(self.momentum_rate, alpha),
            (MOMENTUM, STUDENTS): self.ridge,
            (MOMENTUM, MOMENTUM): -rate_at(self.forgetting, alpha),
        }
        return Move(drag, pull={STUDENTS: -rate, MOMENTUM: jnp.ones(())})


class HeavyBall(OnlineSGD):
    r"""One-pass SGD with a momentum that remembers a fixed number of steps.

    $$ v \leftarrow \text{momentum} \cdot v + g, \qquad w \leftarrow w - \text{learning\_rate} \; v $$

    As d grows, v forgets faster than anything moves: the limit, second-order term and fluctuations included, is that
    of [`OnlineSGD`] at the rate learning_rate / (1 - momentum), and [`ode`], [`sde`] and [`linear_noise`] are those of
    it. [`simulate`] runs the algorithm itself.

    **Arguments:**

    - `learning_rate`: a number or a function of alpha; `momentum`: at least 0, less than 1.
    - `batch_size`, `sphere`, `ridge`, `readout_rate`: as for [`OnlineSGD`]; the readout has no momentum.
    """

    momentum: Float[Array, ""]

    def __init__(
        self,
        learning_rate: float | Array | Callable,
        momentum: float | Array,
        batch_size: int = 1,
        sphere: bool = False,
        ridge: float | Array = 0.0,
        readout_rate: float | Array | Callable | None = None,
    ):
        super().__init__(learning_rate, batch_size, sphere, ridge, readout_rate)
        nonnegative_number(momentum, "momentum")
        require(not is_concrete(momentum) or momentum < 1, f"momentum = {momentum} was given; it must be less than 1.")
        self.momentum = jnp.asarray(momentum, float)

    @property
    def own(self) -> dict[str, str | None]:
        return {MOMENTUM: None}

    def move(self, alpha: Float[Array, ""]) -> Move:
        rate = rate_at(self.learning_rate, alpha)
        return Move(
            drag={(STUDENTS, STUDENTS): -rate * self.ridge, (MOMENTUM, STUDENTS): self.ridge},
            pull={STUDENTS: -rate, MOMENTUM: jnp.ones(())},
            jump={(STUDENTS, MOMENTUM): -rate * self.momentum, (MOMENTUM, MOMENTUM): self.momentum - 1},
        )

    @property
    def slow(self) -> OnlineSGD:
        rate, kept = self.learning_rate, 1 - self.momentum
        faster = Scaled(rate, 1 / kept) if isinstance(rate, Schedule) else rate / kept
        return _AsGrows(self, OnlineSGD(faster, self.batch_size, self.sphere, self.ridge, self.readout_rate))


class _AsGrows(OnlineSGD):
    """SGD that another algorithm becomes as d grows; it prints both."""

    given: OnlineAlgorithm

    def __init__(self, given: OnlineAlgorithm, sgd: OnlineSGD):
        super().__init__(sgd.learning_rate, sgd.batch_size, sgd.sphere, sgd.ridge, sgd.readout_rate)
        self.given = given

    def __repr__(self) -> str:
        sgd = OnlineSGD(self.learning_rate, self.batch_size, self.sphere, self.ridge, self.readout_rate)
        return f"{self.given!r}, as d grows {sgd!r}"


class Scaled(Schedule):
    """A schedule times a number."""

    schedule: Schedule
    factor: Float[Array, ""]

    def __call__(self, alpha: Float[Array, ""]) -> Float[Array, ""]:
        return self.factor * self.schedule(alpha)


class _Beside(OnlineAlgorithm):
    """An algorithm with something beside it: all that is not said otherwise is that of the algorithm."""

    algorithm: OnlineAlgorithm

    @property
    def batch_size(self) -> int:
        return self.algorithm.batch_size

    @property
    def sphere(self) -> bool:
        return self.algorithm.sphere

    @property
    def learning_rate(self) -> Float[Array, ""] | Schedule:
        return self.algorithm.learning_rate

    @property
    def ridge(self) -> Float[Array, ""]:
        return self.algorithm.ridge

    @property
    def readout_rate(self) -> Float[Array, ""] | Schedule | None:
        return self.algorithm.readout_rate

    @property
    def own(self) -> dict[str, str | None]:
        return self.algorithm.own

    @property
    def transform(self) -> OnlineAlgorithm | None:
        return self.algorithm.transform

    @property
    def slow(self) -> "OnlineAlgorithm":
        return eqx.tree_at(lambda beside: beside.algorithm, self, self.algorithm.slow)


class Averaged(_Beside):
    r"""An algorithm, and beside it an average of its iterates.

    $$ a \leftarrow a + \frac{\text{forgetting}}{d} (w - a), \qquad a = w \text{ at the start} $$

    The weights do not see it. Its overlaps are those of `"average"` in the State, and `state.at("average")` is the
    State of a network with these weights: `problem.risk(trajectory.state.at("average"))` is its risk.

    **Arguments:**

    - `algorithm`: an [`OnlineSGD`], [`Momentum`], ...
    - `forgetting`: a number, for an exponential average over 1/forgetting of alpha, or a function of alpha: with
      `lambda alpha: 1 / (alpha + 0.01)` it is the mean of all iterates, but for the first hundredth of alpha.
    """

    algorithm: OnlineAlgorithm
    forgetting: Float[Array, ""] | Schedule

    def __init__(self, algorithm: OnlineAlgorithm, forgetting: float | Array | Callable):
        check_online(algorithm)
        self.algorithm = algorithm
        self.forgetting = as_rate(forgetting, "forgetting")

    @property
    def own(self) -> dict[str, str | None]:
        return self.algorithm.own | {AVERAGE: STUDENTS}

    def move(self, alpha: Float[Array, ""]) -> Move:
        move, forgetting = self.algorithm.move(alpha), rate_at(self.forgetting, alpha)
        return Move(
            {**move.drag, (AVERAGE, AVERAGE): -forgetting, (AVERAGE, STUDENTS): forgetting}, move.pull, move.jump
        )


class WeightDecay(_Beside):
    r"""An algorithm, and beside it a decay of the weights that no rate multiplies and no momentum sees.

    $$ w \leftarrow \text{step}(w) - \frac{\text{decay}}{d} \, w $$

    A `ridge` is part of the gradient instead: its decay is learning_rate x ridge, and a momentum remembers it.

    **Arguments:**

    - `algorithm`: an [`OnlineSGD`], [`Momentum`], ...
    - `decay`: a number or a function of alpha.
    """

    algorithm: OnlineAlgorithm
    decay: Float[Array, ""] | Schedule

    def __init__(self, algorithm: OnlineAlgorithm, decay: float | Array | Callable):
        check_online(algorithm)
        self.algorithm = algorithm
        self.decay = as_rate(decay, "decay")

    def move(self, alpha: Float[Array, ""]) -> Move:
        move, itself = self.algorithm.move(alpha), (STUDENTS, STUDENTS)
        return Move(
            {**move.drag, itself: move.drag.get(itself, 0.0) - rate_at(self.decay, alpha)}, move.pull, move.jump
        )
