"""Averages of an activation over what one neuron sees of the input outside the teacher's span."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..batches import sum_over_blocks
from .activations import Activation
from .grids import Grid, average_over_grid
from .integrals import OwnAverages, Smoothed
from .resolution import even_resolution
from .rules import Averaging, GaussHermite

_LINE_POINTS, _LINE_BLOCK = 2**10, 8  # of a grid over a line, at most, and those taken at once
_KINK_POINTS = 512.0


def smoothed(
    activation: Activation, mean: Float[Array, "nodes p"], variance: Float[Array, " p"], averaging: Averaging
) -> Smoothed:
    """The averages of each of `p` neurons at each of many means, in closed form for erf, polynomials, and functions
    that are linear on either side of zero.
    """
    known = None if activation.integrals is None else activation.integrals.smoothed(mean, variance)
    return _smoothed_by_nodes(activation, mean, variance, averaging) if known is None else known


def own_averages(activation: Activation, variance: Float[Array, " p"], averaging: Averaging) -> OwnAverages:
    """The averages over a neuron's own field, of variance Q."""
    known = None if activation.integrals is None else activation.integrals.own_averages(variance)
    if known is not None:
        return known
    root = jnp.sqrt(variance)
    bounded = jnp.where(root > 0, root, 1.0)

    def over(points, weights):
        output, slope = _output_and_slope(activation, points * root)
        return OwnAverages(
            output_square=weights @ output**2,
            growth=jnp.where(root > 0, (weights * points[:, 0]) @ (output * slope) / bounded, 0.0),
            slope_square_output_square=weights @ (output * slope) ** 2,
        )

    return _over_line(over, activation, root, averaging)


def exact_nodes(activation: Activation) -> int | None:
    """Gauss-Hermite nodes that are exact for products of two outputs and two slopes; None if it is no polynomial."""
    coefficients = None if activation.integrals is None else activation.integrals.polynomial
    return None if coefficients is None else max(2, 2 * (len(coefficients) - 1))


def _smoothed_by_nodes(activation: Activation, mean, variance, averaging: Averaging) -> Smoothed:
    root = jnp.sqrt(variance)
    inverse = jnp.where(root > 0, 1 / jnp.where(root > 0, root, 1.0), 0.0)

    def terms(x, weight) -> Smoothed:
        output, slope = _output_and_slope(activation, mean + root * x)
        second, third, fourth = x**2 - 1, x**3 - 3 * x, x**4 - 6 * x**2 + 3
        # Stein: the n-th derivative of A is E[g He_n] / q^(n/2), or E[g' He_(n-1)] / q^((n-1)/2). Where g' jumps the
        # first is better: a grid sees a jump far less well than a kink.
        if activation.smooth:
            slopes = (slope, root * x * slope, second * slope, root * third * slope)
        else:
            spread = jnp.where(root > 0, inverse * x * output, slope)
            slopes = (spread, second * output, inverse * third * output, fourth * output)
        parts = Smoothed(output, *slopes, output**2, slope**2, slope**2 * output)
        return jax.tree.map(lambda part: weight * part, parts)

    def over(points, weights):
        parts = [terms(x, weight) for x, weight in zip(points[:, 0], weights, strict=True)]
        return jax.tree.map(lambda *each: functools.reduce(jnp.add, each), *parts)

    return _over_line(over, activation, root, averaging)


def _over_line(over, activation: Activation, deviations: Float[Array, " p"], averaging: Averaging):
    """The average over a line: nodes that are exact, or a grid that follows the largest of the deviations."""
    exact = exact_nodes(activation)
    if exact is not None:
        nodes, weights = GaussHermite(exact).points(1)
        return sum_over_blocks(over, (nodes, weights), 1)
    largest = jax.lax.stop_gradient(jnp.max(deviations, keepdims=True))
    if activation.smooth:
        resolution = activation.resolution(averaging.tolerance)
    else:
        # The error at a kink falls as the spacing squared, in units of the field's deviation.
        resolution, largest = even_resolution(_KINK_POINTS, averaging.tolerance), jnp.where(largest > 0, 1.0, 0.0)
    grid = Grid(largest, resolution, averaging.shift, _LINE_POINTS)
    return average_over_grid(over, grid, _LINE_BLOCK, blocks=_LINE_POINTS // _LINE_BLOCK)


def _output_and_slope(activation: Activation, fields):
    return jax.jvp(lambda x: activation.function(x), (fields,), (jnp.ones_like(fields),))
