"""Algorithms that take the gradient of a batch at another point, or twice, or with bounded slopes."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..state import STUDENTS
from .memory import Beside
from .moves import Move
from .online import OnlineAlgorithm, check_online, check_online_sgd
from .schedules import Schedule, as_rate, number, positive_rate, rate_at

Slopes = Callable[[Float[Array, "B p"]], Float[Array, "B p"]]


class OfSlopes(Beside):
    """An algorithm that is handed other slopes than those of the loss at its weights."""

    @property
    def transform(self) -> OnlineAlgorithm:
        return self

    def move(self, alpha: Float[Array, ""]) -> Move:
        return self.algorithm.move(alpha)

    def _inner(self, slopes: Slopes, fields: Float[Array, "B p"], gram: Float[Array, "B B"]) -> Float[Array, "B p"]:
        return self.algorithm.used_slopes(slopes, fields, gram)

    def _moved(self, fields, gram, slopes, rate) -> Float[Array, "B p"]:
        """The student fields after a step of plain SGD at this rate: weights move along the inputs of the batch."""
        return fields - rate / self.batch_size * gram @ slopes

    def _squared_norm(self, slopes: Float[Array, "B p"], gram: Float[Array, "B B"]) -> Float[Array, ""]:
        """The squared norm of the mean gradient of a batch with these slopes, over all students."""
        return jnp.sum((slopes @ slopes.T) * gram) / self.batch_size**2


class ClippedSlopes(OfSlopes):
    r"""An algorithm that clips the slopes of each sample, as for a loss that grows at most linearly.

    $$ s_{bi} \leftarrow \max(-\text{largest}, \min(\text{largest}, s_{bi})), \qquad
       s_{bi} = \frac{\partial \text{loss}_b}{\partial \lambda_i} $$

    **Arguments:**

    - `algorithm`: an [`OnlineSGD`], [`Momentum`], ...
    - `largest`: positive; a number or a function of alpha.
    """

    largest: Float[Array, ""] | Schedule

    def __init__(self, algorithm: OnlineAlgorithm, largest: float | Array | Callable):
        check_online(algorithm)
        self.algorithm, self.largest = algorithm, positive_rate(largest, "largest")

    def used_slopes(self, slopes, fields, gram):
        largest = number(self.largest)
        return jnp.clip(self._inner(slopes, fields, gram), -largest, largest)


class MovedGradient(OfSlopes):
    r"""An algorithm that takes the gradient of the same batch at a moved point: extragradient steps.

    $$ g(w) \leftarrow g\big(w - \text{distance} \cdot g(w)\big) $$

    A step along the gradient moves the fields of its own samples by order one:
    $\lambda_b \leftarrow \lambda_b - \tfrac{\text{distance}}{B} \sum_c s_c \, x_b \cdot x_c / d$. A negative distance
    goes uphill first: sharpness-aware steps without normalisation.

    **Arguments:**

    - `algorithm`: an [`OnlineSGD`], [`Momentum`], ...
    - `distance`: a number or a function of alpha.
    """

    distance: Float[Array, ""] | Schedule

    def __init__(self, algorithm: OnlineAlgorithm, distance: float | Array | Callable):
        check_online(algorithm)
        self.algorithm, self.distance = algorithm, as_rate(distance, "distance", signed=True)

    def used_slopes(self, slopes, fields, gram):
        return self._inner(slopes, self._moved(fields, gram, slopes(fields), number(self.distance)), gram)


class SharpnessAware(OfSlopes):
    r"""An algorithm that takes the gradient of the same batch at the worst point nearby (SAM).

    $$ g(w) \leftarrow g\Big(w + \text{radius} \, \frac{g(w)}{\|g(w)\|}\Big) $$

    As d grows the fields of a sample move by $\text{radius} \sqrt{\text{tr}\,\Sigma / d} \; s / \|s\|$, with one sample
    in a batch.

    **Arguments:**

    - `algorithm`: an [`OnlineSGD`], [`Momentum`], ...
    - `radius`: radius of the ball, in units where weights have norm $\sqrt d$ and gradients norm one; a number or a
      function of alpha.

    Foret, Kleiner, Mobahi & Neyshabur, ICLR 2021.
    """

    radius: Float[Array, ""] | Schedule

    def __init__(self, algorithm: OnlineAlgorithm, radius: float | Array | Callable):
        check_online(algorithm)
        self.algorithm, self.radius = algorithm, positive_rate(radius, "radius")

    @property
    def sources(self) -> tuple[str, ...]:
        return (*self.algorithm.sources, "foret2021")

    @property
    def joins_batch(self) -> bool:
        return True

    def used_slopes(self, slopes, fields, gram):
        first = slopes(fields)
        square = self._squared_norm(first, gram)
        norm = jnp.sqrt(jnp.where(square > 0, square, 1.0))
        return self._inner(slopes, self._moved(fields, gram, first, -number(self.radius) / norm), gram)


class Repeated(OfSlopes):
    r"""Plain SGD that takes two steps on each batch.

    $$ w \leftarrow w - \text{first\_rate} \; g(w), \qquad w \leftarrow w - \text{learning\_rate} \; g(w) $$

    The second step sees fields that the first step has moved by order one. So it learns directions that a single step
    does not see: it uses the slopes of both steps, $\text{first\_rate} \, s + \text{learning\_rate} \, \tilde s$. A
    ridge, which is of order 1/d, acts at both rates on the weights before the first step.

    **Arguments:**

    - `algorithm`: an [`OnlineSGD`].
    - `first_rate`: rate of the first step; the rate of the second step if left out. A number or a function of alpha.

    Arnaboldi, Dandi, Krzakala, Pesce & Stephan 2024.
    """

    first_rate: Float[Array, ""] | Schedule

    def __init__(self, algorithm: OnlineAlgorithm, first_rate: float | Array | Callable | None = None):
        check_online_sgd(algorithm)
        self.algorithm = algorithm
        self.first_rate = algorithm.learning_rate if first_rate is None else as_rate(first_rate, "first_rate")

    @property
    def sources(self) -> tuple[str, ...]:
        return (*self.algorithm.sources, "arnaboldi2024")

    def used_slopes(self, slopes, fields, gram):
        first, rate = slopes(fields), number(self.first_rate)
        return rate / number(self.learning_rate) * first + slopes(self._moved(fields, gram, first, rate))

    def move(self, alpha: Float[Array, ""]) -> Move:
        first, rate, ridge = (rate_at(each, alpha) for each in (self.first_rate, self.learning_rate, self.ridge))
        return Move({(STUDENTS, STUDENTS): -(first + rate) * ridge}, {STUDENTS: -rate})
