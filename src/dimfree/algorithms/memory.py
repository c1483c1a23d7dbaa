"""Algorithms with vectors of their own: momentum, averages of the iterates; and weight decay apart from the rate."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import InvalidInput, flag, is_concrete, require, shown
from ..state import STUDENTS, Pair
from .moves import Move, Number
from .online import OnlineAlgorithm, OnlineSGD, check_online
from .schedules import Schedule, as_rate, at_start, rate_at

MOMENTUM, AVERAGE = "momentum", "average"


class Momentum(OnlineSGD):
    r"""One-pass SGD with a momentum whose memory is of order d samples.

    $$ v \leftarrow \Big(1 - \frac{\text{forgetting}}{d}\Big) v + g, \qquad
       w \leftarrow w - \text{learning\_rate} \; g - \frac{\text{momentum\_rate}}{d} \, v, $$

    with g the gradient of the batch and of the penalty, and v = 0 at the start. The step of w uses v from before the
    step. The other order changes the step by order 1/d and does not change the limit; Nesterov's point of evaluation
    does not either. As d grows, v is as large as w and has its own limit, with overlaps `"momentum"` in the State. A
    lookahead of order one, the gradient at $w - \text{lookahead} \cdot v$, is another algorithm. Several momenta, each
    with its own rate and forgetting, are `"momentum"`, `"momentum_2"`, ... in the State.

    **Arguments:**

    - `learning_rate`: of the gradient itself; `momentum_rate`: of the momentum; `forgetting`: how much of the momentum
      is lost in a step, times d. Numbers or functions of alpha: `lambda alpha: 4 / (1 + alpha)` is a memory that grows,
      and doubles the exponent of the risk where eigenvalues are a power law. For several momenta give lists, with one
      entry for each momentum.
    - `lookahead`: how far along the momentum the gradient is taken, for one momentum; a number or a function of alpha.
    - `batch_size`, `sphere`, `ridge`, `readout_rate`: as for [`OnlineSGD`]; the readout has no momentum.

    ??? example
        >>> import dimfree
        >>> sgd = dimfree.Momentum(learning_rate=0.1, momentum_rate=0.4, forgetting=2.0)
        >>> start = dimfree.State(Q=[[1.0]], M=[[0.1]])
        >>> end = dimfree.solve(dimfree.ode(dimfree.TwoLayer(1, 1, "erf"), sgd), start, 10.0).final
        >>> end.overlap("momentum", "teachers").shape
        (1, 1)

    Ferbach, Everett, Gidel, Paquette & Paquette 2025.
    """

    momentum_rate: Float[Array, ""] | Schedule | tuple[Float[Array, ""] | Schedule, ...]
    forgetting: Float[Array, ""] | Schedule | tuple[Float[Array, ""] | Schedule, ...]
    lookahead: Float[Array, ""] | Schedule | None

    def __init__(
        self,
        learning_rate: float | Array | Callable,
        momentum_rate: float | Array | Callable | Sequence,
        forgetting: float | Array | Callable | Sequence,
        batch_size: int = 1,
        sphere: bool = False,
        ridge: float | Array | Callable = 0.0,
        readout_rate: float | Array | Callable | None = None,
        lookahead: float | Array | Callable | None = None,
    ):
        super().__init__(learning_rate, batch_size, sphere, ridge, readout_rate)
        self.momentum_rate = _one_or_several(momentum_rate, "momentum_rate")
        self.forgetting = _one_or_several(forgetting, "forgetting")
        if len(_several(self.momentum_rate)) != len(_several(self.forgetting)):
            raise InvalidInput(
                f"momentum_rate = {shown(momentum_rate)} and forgetting = {shown(forgetting)} were given; give as many "
                "of the one as of the other, one for each momentum."
            )
        self.lookahead = None if lookahead is None else as_rate(lookahead, "lookahead", signed=True)
        if lookahead is not None and len(_several(self.forgetting)) > 1:
            raise InvalidInput("lookahead was given with several momenta; it needs exactly one: give one momentum.")

    @property
    def sources(self) -> tuple[str, ...]:
        return ("ferbach2025",)

    @property
    def own(self) -> dict[str, str | None]:
        return dict.fromkeys(self._families)

    @property
    def _families(self) -> list[str]:
        return [MOMENTUM if not n else f"{MOMENTUM}_{n + 1}" for n in range(len(_several(self.forgetting)))]

    def move(self, alpha: Float[Array, ""]) -> Move:
        rate, ridge = rate_at(self.learning_rate, alpha), rate_at(self.ridge, alpha)
        drag: dict[Pair, Number] = {(STUDENTS, STUDENTS): -rate * ridge}
        momenta = zip(self._families, _several(self.momentum_rate), _several(self.forgetting), strict=True)
        for family, momentum_rate, forgetting in momenta:
            drag |= {
                (STUDENTS, family): -rate_at(momentum_rate, alpha),
                (family, STUDENTS): ridge,
                (family, family): -rate_at(forgetting, alpha),
            }
        pull = {STUDENTS: -rate} | dict.fromkeys(self._families, jnp.ones(()))
        point = {} if self.lookahead is None else {STUDENTS: 1.0, MOMENTUM: -rate_at(self.lookahead, alpha)}
        return Move(drag, pull, point=point)


def _one_or_several(rate: Any, name: str) -> Any:
    if isinstance(rate, list | tuple):
        if not rate:
            raise InvalidInput(f"{name} = {rate!r} was given; give a number, or one for each momentum.")
        return tuple(as_rate(each, name) for each in rate)
    return as_rate(rate, name)


def _several(rates: Any) -> tuple:
    return rates if isinstance(rates, tuple) else (rates,)


class HeavyBall(OnlineSGD):
    r"""One-pass SGD with a momentum that remembers a fixed number of steps.

    $$ v \leftarrow \text{momentum} \cdot v + g, \qquad w \leftarrow w - \text{learning\_rate} \; v $$

    or $w \leftarrow w - \text{learning\_rate} \, (g + \text{momentum} \cdot v)$, along the new momentum: Nesterov's
    step, in terms of the point where it takes its gradient.

    As d grows, v forgets faster than anything moves. So the limit, including the second-order term and fluctuations, is
    the same as for [`OnlineSGD`] at the rate learning_rate / (1 - momentum), and [`ode`], [`sde`] and [`linear_noise`]
    use this algorithm. [`simulate`] runs the heavy ball itself.

    **Arguments:**

    - `learning_rate`: a number or a function of alpha; `momentum`: likewise, at least 0 and less than 1.
    - `batch_size`, `sphere`, `ridge`, `readout_rate`: as for [`OnlineSGD`]; the readout has no momentum.
    - `nesterov`: whether to make Nesterov's step.
    """

    momentum: Float[Array, ""] | Schedule
    nesterov: bool = eqx.field(static=True)

    def __init__(
        self,
        learning_rate: float | Array | Callable,
        momentum: float | Array | Callable,
        batch_size: int = 1,
        sphere: bool = False,
        ridge: float | Array | Callable = 0.0,
        readout_rate: float | Array | Callable | None = None,
        nesterov: bool = False,
    ):
        super().__init__(learning_rate, batch_size, sphere, ridge, readout_rate)
        self.momentum, self.nesterov = as_rate(momentum, "momentum"), flag(nesterov, "nesterov")
        first = at_start(self.momentum)
        require(not is_concrete(first) or first < 1, f"momentum = {shown(momentum)} was given; it must be less than 1.")

    @property
    def own(self) -> dict[str, str | None]:
        return {MOMENTUM: None}

    def move(self, alpha: Float[Array, ""]) -> Move:
        rate, ridge, momentum = (rate_at(each, alpha) for each in (self.learning_rate, self.ridge, self.momentum))
        along, kept = (rate * (1 + momentum), momentum**2) if self.nesterov else (rate, momentum)
        return Move(
            drag={(STUDENTS, STUDENTS): -along * ridge, (MOMENTUM, STUDENTS): ridge},
            pull={STUDENTS: -along, MOMENTUM: jnp.ones(())},
            jump={(STUDENTS, MOMENTUM): -rate * kept, (MOMENTUM, MOMENTUM): momentum - 1},
        )

    @property
    def slow(self) -> OnlineSGD:
        faster = WithMomentum(self.learning_rate, self.momentum)
        if not any(isinstance(each, Schedule) for each in (faster.rate, faster.momentum)):
            faster = faster(jnp.zeros(()))
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


class WithMomentum(Schedule):
    """The rate at which SGD moves as one with a momentum of a few steps does."""

    rate: Float[Array, ""] | Schedule
    momentum: Float[Array, ""] | Schedule

    def __call__(self, alpha: Float[Array, ""]) -> Float[Array, ""]:
        return rate_at(self.rate, alpha) / (1 - rate_at(self.momentum, alpha))


class Beside(OnlineAlgorithm):
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
    def ridge(self) -> Float[Array, ""] | Schedule:
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
    def joins_batch(self) -> bool:
        return self.algorithm.joins_batch

    def used_slopes(self, slopes, fields, gram):
        return self.algorithm.used_slopes(slopes, fields, gram)

    @property
    def sources(self) -> tuple[str, ...]:
        return self.algorithm.sources

    def measured(self, blocks: int, width: int):
        return self.algorithm.measured(blocks, width)

    def remeasured(self, numbers, square, inverse_d, alpha):
        return self.algorithm.remeasured(numbers, square, inverse_d, alpha)

    def at(self, alpha, numbers) -> OnlineAlgorithm:
        return eqx.tree_at(
            lambda beside: beside.algorithm, super().at(alpha, numbers), self.algorithm.at(alpha, numbers)
        )

    @property
    def by_coordinate(self) -> Any:
        return self.algorithm.by_coordinate

    @property
    def mover(self) -> "OnlineAlgorithm":
        return eqx.tree_at(lambda beside: beside.algorithm, self, self.algorithm.mover)

    @property
    def slow(self) -> "OnlineAlgorithm":
        return eqx.tree_at(lambda beside: beside.algorithm, self, self.algorithm.slow)


class Averaged(Beside):
    r"""An algorithm together with an average of its iterates.

    $$ a \leftarrow a + \frac{\text{forgetting}}{d} (w - a), \qquad a = w \text{ at the start} $$

    The average does not change the weights. The State has its overlaps as `"average"`, and `state.at("average")` is the
    State of a network with the averaged weights: `problem.risk(trajectory.state.at("average"))` is its risk.

    **Arguments:**

    - `algorithm`: an [`OnlineSGD`], [`Momentum`], ...
    - `forgetting`: a number, for an exponential average over 1/forgetting of alpha, or a function of alpha: with
      `lambda alpha: 1 / (alpha + 0.01)` it is the mean of all iterates, except for the first hundredth of alpha.
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
        drag = {**move.drag, (AVERAGE, AVERAGE): -forgetting, (AVERAGE, STUDENTS): forgetting}
        return dataclasses.replace(move, drag=drag)


class ScheduleFree(Averaged):
    r"""An algorithm that takes the gradient between its weights and their average; the average needs no decay of the
    rate.

    $$ g = g\big((1 - \text{interpolation}) \, w + \text{interpolation} \; a\big), \qquad
       a \leftarrow a + \frac{\text{forgetting}}{d} (w - a), \qquad a = w \text{ at the start} $$

    The average is the learned result: `problem.risk(trajectory.state.at("average"))`.

    **Arguments:**

    - `algorithm`: an [`OnlineSGD`], ...
    - `interpolation`: at least 0, less than 1.
    - `forgetting`: forgetting of the average, a number or a function of alpha; 1 / (1 + alpha) if left out, which is
      the mean of all iterates, in which the start counts as much as one unit of alpha.

    Defazio et al., NeurIPS 2024.

    ??? example
        >>> import dimfree
        >>> free, problem = dimfree.ScheduleFree(dimfree.OnlineSGD(0.5)), dimfree.TwoLayer(1, 1, "erf", noise=0.1)
        >>> path = dimfree.solve(dimfree.ode(problem, free), dimfree.State(Q=[[1.0]], M=[[0.3]]), 50.0)
        >>> bool(problem.risk(path.state.at("average"))[-1] < path.risk[-1])
        True
    """

    interpolation: Float[Array, ""] | Schedule

    def __init__(
        self,
        algorithm: OnlineAlgorithm,
        interpolation: float | Array | Callable = 0.9,
        forgetting: float | Array | Callable | None = None,
    ):
        super().__init__(algorithm, _since_the_start if forgetting is None else forgetting)
        self.interpolation = as_rate(interpolation, "interpolation")
        first = at_start(self.interpolation)
        words = f"interpolation = {shown(interpolation)} was given; it must be less than 1."
        require(not is_concrete(first) or first < 1, words)

    @property
    def sources(self) -> tuple[str, ...]:
        return (*self.algorithm.sources, "defazio2024")

    def move(self, alpha: Float[Array, ""]) -> Move:
        share = rate_at(self.interpolation, alpha)
        return dataclasses.replace(super().move(alpha), point={STUDENTS: 1 - share, AVERAGE: share})


def _since_the_start(alpha: Float[Array, ""]) -> Float[Array, ""]:
    return 1 / (1 + alpha)


class WeightDecay(Beside):
    r"""An algorithm together with a decay of the weights that no rate multiplies and no momentum contains.

    $$ w \leftarrow \text{step}(w) - \frac{\text{decay}}{d} \, w $$

    A `ridge` is part of the gradient instead: its decay is learning_rate x ridge, and a momentum contains it.

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
        drag = {**move.drag, itself: move.drag.get(itself, 0.0) - rate_at(self.decay, alpha)}
        return dataclasses.replace(move, drag=drag)
