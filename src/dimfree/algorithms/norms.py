"""Algorithms that go by the norm of the gradient: clipped at one, brought to one, divided by what it was so far."""

import abc
from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import is_concrete, positive_number, require
from .online import OnlineAlgorithm, OnlineSGD, check_online
from .schedules import Schedule, as_rate, number, positive_rate, rate_at
from .slopes import OfSlopes

GRADIENT_SQUARE = "gradient_square"


class _OfNorm(OfSlopes):
    """An algorithm whose gradient is scaled by a function of its norm: that of the whole batch."""

    norm: Float[Array, ""] | Schedule

    def __init__(self, algorithm: OnlineAlgorithm, norm: float | Array | Callable):
        check_online(algorithm)
        self.algorithm, self.norm = algorithm, positive_rate(norm, "norm")

    @property
    def joins_batch(self) -> bool:
        return True

    def used_slopes(self, slopes, fields, gram):
        found = self._inner(slopes, fields, gram)
        return found * self._factor(self._squared_norm(found, gram))

    @abc.abstractmethod
    def _factor(self, square: Float[Array, ""]) -> Float[Array, ""]:
        """By which a gradient of this squared norm is multiplied."""


class Clipped(_OfNorm):
    r"""An algorithm whose gradient is clipped at a norm.

    $$ g \leftarrow g \, \min\Big(1, \frac{\text{norm}}{\|g\|}\Big), \qquad
       \|g\| = \frac{1}{B} \Big( \sum_{bc} s_b \cdot s_c \, \frac{x_b \cdot x_c}{d} \Big)^{1/2}, $$

    over all students, of the mean gradient of the batch, before any momentum. As d grows, the samples of a batch become
    orthogonal, each of norm $\|s\| \sqrt{\text{tr}\,\Sigma / d}$; if there are several, averages are over the fields of
    all of them together.

    **Arguments:**

    - `algorithm`: an [`OnlineSGD`], [`Momentum`], ...
    - `norm`: positive; gradients are of order one, of the size of the slopes. A number or a function of alpha.

    ??? example
        >>> import dimfree
        >>> clipped = dimfree.Clipped(dimfree.OnlineSGD(0.5), norm=0.3)
        >>> limit = dimfree.ode(dimfree.TwoLayer(1, 1, "erf"), clipped)
    """

    def __init__(self, algorithm: OnlineAlgorithm, norm: float | Array | Callable):
        super().__init__(algorithm, norm)

    def _factor(self, square):
        # Slopes of zero are clipped to zero, with derivatives of zero.
        norm = number(self.norm)
        long = square > norm**2
        return jnp.where(long, norm / jnp.sqrt(jnp.where(long, square, 1.0)), 1.0)


class NormalisedGradient(_OfNorm):
    r"""An algorithm whose gradient is rescaled to a given norm.

    $$ g \leftarrow \text{norm} \, \frac{g}{\|g\|} $$

    with the norm of the mean gradient of the batch, over all students. For one student and one sample in a batch only
    the sign of the slope remains as d grows.

    **Arguments:**

    - `algorithm`: an [`OnlineSGD`], [`Momentum`], ...
    - `norm`: positive; a number or a function of alpha.
    """

    def __init__(self, algorithm: OnlineAlgorithm, norm: float | Array | Callable = 1.0):
        super().__init__(algorithm, norm)

    def _factor(self, square):
        return jnp.where(square > 0, number(self.norm) / jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


class AdaptiveClip(OfSlopes):
    r"""An algorithm whose gradient is clipped at a multiple of its recent norm.

    $$ g \leftarrow g \, \min\Big(1, \frac{\text{factor} \sqrt n}{\|g\|}\Big), \qquad
       n \leftarrow n + \frac{\text{forgetting}}{d} \big(\|g\|^2 - n\big) $$

    with the clipped gradient in n, so that a few very large gradients do not raise n. `numbers["gradient_square"]` of a
    State is n.

    **Arguments:**

    - `algorithm`: an [`OnlineSGD`], [`Momentum`], ...
    - `factor`: more than 1, or n would shrink by itself.
    - `forgetting`: how much of n is lost in a step, times d; `start`: $\sqrt n$ at the start.

    ??? example
        >>> import dimfree
        >>> clipped = dimfree.AdaptiveClip(dimfree.OnlineSGD(0.5), factor=1.5)
        >>> start = dimfree.State(Q=[[1.0]], M=[[0.1]])
        >>> end = dimfree.solve(dimfree.ode(dimfree.TwoLayer(1, 1, "erf"), clipped), start, 10.0).final
        >>> end.numbers["gradient_square"].shape
        ()
    """

    factor: Float[Array, ""] | Schedule
    forgetting: Float[Array, ""] | Schedule
    start: Float[Array, ""]

    def __init__(
        self,
        algorithm: OnlineAlgorithm,
        factor: float | Array | Callable,
        forgetting: float | Array | Callable = 1.0,
        start: float | Array = 1.0,
    ):
        check_online(algorithm)
        positive_number(start, "start")
        self.algorithm, self.factor = algorithm, positive_rate(factor, "factor")
        if not isinstance(self.factor, Schedule) and is_concrete(self.factor):
            require(self.factor > 1, f"factor = {factor} was given; it must be more than 1, or all steps die out.")
        self.forgetting, self.start = as_rate(forgetting, "forgetting"), jnp.asarray(start, float)

    @property
    def joins_batch(self) -> bool:
        return True

    def measured(self, blocks: int, width: int):
        return self.algorithm.measured(blocks, width) | {GRADIENT_SQUARE: self.start**2}

    def remeasured(self, numbers, square, inverse_d, alpha):
        numbers = self.algorithm.remeasured(numbers, square, inverse_d, alpha)
        return numbers | _running(numbers, square, inverse_d * rate_at(self.forgetting, alpha))

    def at(self, alpha, numbers) -> OnlineAlgorithm:
        largest = rate_at(self.factor, alpha) * jnp.sqrt(numbers[GRADIENT_SQUARE])
        return Clipped(self.algorithm.at(alpha, numbers), largest)


class AdaGradNorm(OnlineSGD):
    r"""One-pass SGD whose rate falls as it sees more gradients.

    $$ n \leftarrow n + \frac{\|g\|^2}{d}, \qquad w \leftarrow w - \frac{\text{learning\_rate}}{\sqrt n} \, g $$

    The 1/d is there because d steps add up gradients of order one. `numbers["gradient_square"]` of a State is n.

    **Arguments:**

    - `learning_rate`: a number or a function of alpha; `start`: $\sqrt n$ at the start.
    - `batch_size`, `sphere`, `ridge`, `readout_rate`: as for [`OnlineSGD`]; n does not change the rate of the readout.

    Ward, Wu & Bottou, ICML 2019; as d grows, Collins-Woodfin, Seroussi, Garcia Malaxechebarria, Mackenzie, Paquette &
    Paquette, NeurIPS 2024.

    ??? example
        >>> import dimfree
        >>> limit = dimfree.ode(dimfree.TwoLayer(1, 1, "erf"), dimfree.AdaGradNorm(0.5))
        >>> end = dimfree.solve(limit, dimfree.State(Q=[[1.0]], M=[[0.1]]), 10.0).final
        >>> bool(end.numbers["gradient_square"] > 1)
        True
    """

    start: Float[Array, ""]

    def __init__(
        self,
        learning_rate: float | Array | Callable,
        start: float | Array = 1.0,
        batch_size: int = 1,
        sphere: bool = False,
        ridge: float | Array | Callable = 0.0,
        readout_rate: float | Array | Callable | None = None,
    ):
        super().__init__(learning_rate, batch_size, sphere, ridge, readout_rate)
        positive_number(start, "start")
        self.start = jnp.asarray(start, float)

    @property
    def sources(self) -> tuple[str, ...]:
        return ("ward2019", "collinswoodfin2024")

    def measured(self, blocks: int, width: int):
        return {GRADIENT_SQUARE: self.start**2}

    def remeasured(self, numbers, square, inverse_d, alpha):
        return {GRADIENT_SQUARE: numbers[GRADIENT_SQUARE] + inverse_d * _total(square)}

    def at(self, alpha, numbers) -> OnlineAlgorithm:
        rate = rate_at(self.learning_rate, alpha) / jnp.sqrt(numbers[GRADIENT_SQUARE])
        return OnlineSGD(rate, self.batch_size, self.sphere, rate_at(self.ridge, alpha), self.readout_rate)


class RMSNorm(AdaGradNorm):
    r"""One-pass SGD whose gradient is divided by its recent norm.

    $$ n \leftarrow n + \frac{\text{forgetting}}{d} \big(\|g\|^2 - n\big), \qquad
       w \leftarrow w - \frac{\text{learning\_rate}}{\sqrt n} \, g $$

    `numbers["gradient_square"]` of a State is n.

    **Arguments:**

    - `learning_rate`: a number or a function of alpha.
    - `forgetting`: how much of n is lost in a step, times d, likewise; `start`: $\sqrt n$ at the start.
    - `batch_size`, `sphere`, `ridge`, `readout_rate`: as for [`AdaGradNorm`].
    """

    forgetting: Float[Array, ""] | Schedule

    def __init__(
        self,
        learning_rate: float | Array | Callable,
        forgetting: float | Array | Callable,
        start: float | Array = 1.0,
        batch_size: int = 1,
        sphere: bool = False,
        ridge: float | Array | Callable = 0.0,
        readout_rate: float | Array | Callable | None = None,
    ):
        super().__init__(learning_rate, start, batch_size, sphere, ridge, readout_rate)
        self.forgetting = as_rate(forgetting, "forgetting")

    @property
    def sources(self) -> tuple[str, ...]:
        return ()

    def remeasured(self, numbers, square, inverse_d, alpha):
        return _running(numbers, square, inverse_d * rate_at(self.forgetting, alpha))


def _total(square: Float[Array, "*blocks p p"]) -> Float[Array, ""]:
    """The squared norm of the gradient: over all students and blocks."""
    return jnp.sum(jnp.trace(square, axis1=-2, axis2=-1))


def _running(numbers, square, lost) -> dict[str, Float[Array, ""]]:
    """The running mean of squared norms after one more."""
    return {GRADIENT_SQUARE: numbers[GRADIENT_SQUARE] + lost * (_total(square) - numbers[GRADIENT_SQUARE])}
