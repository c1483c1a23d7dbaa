"""Gaussian integrals of functions that are linear on either side of zero: leaky ReLUs, absolute values."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..functions import Function, trials
from .integrals import ActivationIntegrals, OwnAverages, Smoothed
from .relu import Relu, own_averages_of_sides, smoothed_sides


class PiecewiseLinear(ActivationIntegrals):
    r"""Integrals of $g(x) = \text{right}\, x$ for $x > 0$ and $\text{left}\, x$ for $x < 0$.

    With $r$ the ReLU, $g(x) = \text{right}\, r(x) - \text{left}\, r(-x)$ and
    $g'(x) = \text{right}\, r'(x) + \text{left}\, r'(-x)$: all averages are those of ReLUs of the fields and of their
    negatives.
    """

    known: tuple[float, float] | None = eqx.field(static=True)
    moving: Float[Array, "2"] | None  # where they follow from numbers in a user's function

    def __init__(self, right: float | Array, left: float | Array):
        self.known, self.moving = None, None
        if isinstance(right, float) and isinstance(left, float):
            self.known = right, left
        else:
            self.moving = jnp.stack([jnp.asarray(right), jnp.asarray(left)])

    @property
    def _slopes(self) -> Any:
        return np.array(self.known) if self.moving is None else self.moving

    @property
    def _outputs(self) -> Any:
        return self._slopes * np.array([1.0, -1.0])

    def smoothed(self, mean: Float[Array, "nodes p"], variance: Float[Array, " p"]) -> Smoothed:
        right, left = self._slopes
        return smoothed_sides(right, left, mean, variance)

    def own_averages(self, variance: Float[Array, " p"]) -> OwnAverages:
        right, left = self._slopes
        return own_averages_of_sides(right, left, variance)

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


def piecewise_linear(function: Function) -> PiecewiseLinear | Relu | None:
    """The integrals of a function that is linear on either side of zero; None if it is not, or has no kink."""
    found = [_slopes_beside_zero(each) for each in trials(function)]
    sides = found[0]
    if sides is None or any(each is None or each[0] == each[1] for each in found):
        return None
    if function.numbers:
        return PiecewiseLinear(function(jnp.ones(())), -function(-jnp.ones(())))
    return Relu() if sides == (1.0, 0.0) else PiecewiseLinear(*sides)


def _slopes_beside_zero(function: Callable) -> tuple[float, float] | None:
    points = np.concatenate([np.linspace(0.01, 9.0, 57), [1e2, 1e3]])
    with jax.core.eval_context():
        right, left = (np.asarray(_at(function, jnp.asarray(sign * points))) / (sign * points) for sign in (1, -1))
    linear = np.allclose(right, right[0], rtol=1e-13) and np.allclose(left, left[0], rtol=1e-13)
    return (float(right[0]), float(left[0])) if linear else None


@eqx.filter_jit
def _at(function: Callable, points: Float[Array, " n"]) -> Float[Array, " n"]:
    return jax.vmap(lambda x: function(x))(points)
