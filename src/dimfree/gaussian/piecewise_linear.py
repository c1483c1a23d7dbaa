"""Gaussian integrals of functions that are linear on either side of zero: leaky ReLUs, absolute values."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .integrals import ActivationIntegrals, OwnAverages, Smoothed
from .relu import Relu, own_averages_of_sides, smoothed_sides


class PiecewiseLinear(ActivationIntegrals):
    r"""Integrals of $g(x) = \text{right}\, x$ for $x > 0$ and $\text{left}\, x$ for $x < 0$.

    With $r$ the ReLU, $g(x) = \text{right}\, r(x) - \text{left}\, r(-x)$ and
    $g'(x) = \text{right}\, r'(x) + \text{left}\, r'(-x)$: all averages are those of ReLUs of the fields and of their
    negatives.
    """

    right: float = eqx.field(static=True)
    left: float = eqx.field(static=True)

    @property
    def sides(self) -> tuple[float, float]:
        return self.right, self.left

    @property
    def _outputs(self) -> Float[np.ndarray, "2"]:
        return np.array([self.right, -self.left])

    @property
    def _slopes(self) -> Float[np.ndarray, "2"]:
        return np.array(self.sides)

    def smoothed(self, mean: Float[Array, "nodes p"], variance: Float[Array, " p"]) -> Smoothed:
        return smoothed_sides(*self.sides, mean, variance)

    def own_averages(self, variance: Float[Array, " p"]) -> OwnAverages:
        return own_averages_of_sides(*self.sides, variance)

    def outputs(self, covariance: Float[Array, "fields fields"]) -> Float[Array, "fields fields"]:
        """A sum over signs of the fields."""
        found = Relu().outputs(_with_negatives(covariance, 0))
        return _over_signs(self._outputs, found, self._outputs)

    def slopes(self, covariance: Float[Array, "fields fields"], width: int) -> Float[Array, "width width"]:
        """A sum over signs of the fields."""
        found = Relu().slopes(_with_negatives(covariance, width), 2 * width)
        return _over_signs(self._slopes, found, self._slopes)

    def gradient(
        self, covariance: Float[Array, "fields fields"], weights: Float[Array, " fields"], width: int
    ) -> Float[Array, "width fields"]:
        """A sum over signs of the fields."""
        found = Relu().gradient(_with_negatives(covariance, width), self._weights(weights, width), 2 * width)
        rows = jnp.tensordot(self._slopes, found.reshape(2, width, -1), 1)
        return jnp.concatenate([rows[:, :width], rows[:, 2 * width : width + len(weights)]], axis=1)

    def gradient_square(
        self, covariance: Float[Array, "fields fields"], weights: Float[Array, " fields"], width: int
    ) -> Float[Array, "width width"]:
        """A sum over signs of the fields."""
        found = Relu().gradient_square(_with_negatives(covariance, width), self._weights(weights, width), 2 * width)
        return _over_signs(self._slopes, found, self._slopes)

    def _weights(self, weights, width: int):
        """Those of students, of their negatives, of teachers and of their negatives in the error."""
        right, left = self._outputs
        parts = [weights[:width], weights[width:]]
        return jnp.concatenate([sign * part for part in parts for sign in (right, left)])


def _with_negatives(covariance, width: int):
    """The covariance of students, their negatives, teachers and their negatives."""
    size = covariance.shape[0]
    students, teachers = np.arange(width), np.arange(width, size)
    index = np.concatenate([students, students, teachers, teachers])
    sign = np.concatenate([np.ones(width), -np.ones(width), np.ones(size - width), -np.ones(size - width)])
    return covariance[index][:, index] * sign[:, None] * sign


def _over_signs(rows, found, columns):
    """The sum over signs of both fields of a pair."""
    half = found.shape[0] // 2
    return jnp.einsum("a,aibj,b->ij", rows, found.reshape(2, half, 2, half), columns)


def piecewise_linear(function: Callable) -> PiecewiseLinear | Relu | None:
    """The integrals of a function that is linear on either side of zero; None if it is not, or has no kink."""
    points = np.concatenate([np.linspace(0.01, 9.0, 57), [1e2, 1e3]])
    with jax.ensure_compile_time_eval():
        right, left = (np.asarray(jax.vmap(function)(jnp.asarray(sign * points))) / (sign * points) for sign in (1, -1))
    if not (np.allclose(right, right[0], rtol=1e-13) and np.allclose(left, left[0], rtol=1e-13)):
        return None
    if right[0] == left[0]:
        return None
    return Relu() if (right[0], left[0]) == (1.0, 0.0) else PiecewiseLinear(float(right[0]), float(left[0]))
