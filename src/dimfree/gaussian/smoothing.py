"""Averages of an activation over what one neuron sees of the input outside the teacher's span."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf, ndtr
from jaxtyping import Array, Float

from .activations import Activation
from .blocks import sum_over_blocks
from .erf import Erf
from .grids import Grid, average_over_grid
from .piecewise_linear import PiecewiseLinear
from .polynomial import Polynomial
from .quadratic import Square
from .relu import Relu
from .resolution import even_resolution
from .rules import Averaging, GaussHermite

_LINE_POINTS, _LINE_BLOCK = 2**10, 8  # of a grid over a line, at most, and those taken at once
_KINK_POINTS = 512.0
_OWEN = np.polynomial.legendre.leggauss(12)


class Smoothed(eqx.Module):
    r"""Averages over a field $\lambda \sim N(\mu, q)$, with $A(\mu) = \mathbb{E}[g(\lambda)]$.

    - `output`: $A$, and `slope`: $A' = \mathbb{E}[g']$;
    - `curvature`: $q A'' = \mathbb{E}[g' (\lambda - \mu)]$, `slope_curvature`: $q A'''$, `second_curvature`:
      $q^2 A''''$. With these powers of $q$ they exist for activations with kinks, and for $q = 0$;
    - `output_square`: $\mathbb{E}[g^2]$, `slope_square`: $\mathbb{E}[g'^2]$, `slope_square_output`:
      $\mathbb{E}[g'^2 g]$.
    """

    output: Float[Array, "*shape"]
    slope: Float[Array, "*shape"]
    curvature: Float[Array, "*shape"]
    slope_curvature: Float[Array, "*shape"]
    second_curvature: Float[Array, "*shape"]
    output_square: Float[Array, "*shape"]
    slope_square: Float[Array, "*shape"]
    slope_square_output: Float[Array, "*shape"]


class OwnAverages(eqx.Module):
    r"""Averages over a neuron's whole field $\lambda \sim N(0, Q)$, for what it does to itself.

    - `output_square`: $v(Q) = \mathbb{E}[g^2]$, and `growth`: $v'(Q) = \mathbb{E}[(g g')']$;
    - `slope_square_output_square`: $\mathbb{E}[g'^2 g^2]$.
    """

    output_square: Float[Array, " p"]
    growth: Float[Array, " p"]
    slope_square_output_square: Float[Array, " p"]


def smoothed(
    activation: Activation, mean: Float[Array, "nodes p"], variance: Float[Array, " p"], averaging: Averaging
) -> Smoothed:
    """The averages of each of `p` neurons at each of many means, in closed form for erf, polynomials, and functions
    that are linear on either side of zero.
    """
    if isinstance(activation.integrals, Erf):
        return _smoothed_erf(mean, variance)
    slopes = _piecewise_slopes(activation)
    if slopes is not None:
        return _smoothed_piecewise(*slopes, mean, variance)
    return _smoothed_by_nodes(activation, mean, variance, averaging)


def own_averages(activation: Activation, variance: Float[Array, " p"], averaging: Averaging) -> OwnAverages:
    """The averages over a neuron's own field, of variance Q."""
    if isinstance(activation.integrals, Erf):
        tilted = variance / (1 + 2 * variance)
        return OwnAverages(
            output_square=_erf_square(variance),
            growth=2 / np.pi / ((1 + variance) * jnp.sqrt(1 + 2 * variance)),
            slope_square_output_square=2 / np.pi / jnp.sqrt(1 + 2 * variance) * _erf_square(tilted),
        )
    slopes = _piecewise_slopes(activation)
    if slopes is not None:
        squares, fourths = (sum(slope**n for slope in slopes) for n in (2, 4))
        return OwnAverages(squares * variance / 2, jnp.full_like(variance, squares / 2), fourths * variance / 2)
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
    if isinstance(activation.integrals, Square):
        return 4
    return max(2, 2 * activation.integrals.degree) if isinstance(activation.integrals, Polynomial) else None


def _erf_square(variance):
    return 2 / np.pi * jnp.arcsin(variance / (1 + variance))


def _smoothed_erf(mean, variance) -> Smoothed:
    widened = 1 + variance
    at = mean / jnp.sqrt(widened)
    slope = jnp.sqrt(2 / (np.pi * widened)) * jnp.exp(-0.5 * at**2)
    ratio = variance / widened
    # Under the weight g'^2 the field stays Gaussian, with mean and variance divided by 1 + 2 q.
    tilt = 1 + 2 * variance
    slope_square = 2 / np.pi / jnp.sqrt(tilt) * jnp.exp(-(mean**2) / tilt)
    # E[g^2] = 1 - 8 T(h, b) with Owen's function T(h, b) = int_0^b exp(-h^2 (1 + x^2) / 2) / (1 + x^2) dx / (2 pi).
    end = 1 / jnp.sqrt(tilt)
    owen = jnp.zeros_like(mean)
    for node, weight in zip(*_OWEN, strict=True):
        x = end * (1 + node) / 2
        owen += weight / 2 * end * jnp.exp(-0.5 * at**2 * (1 + x**2)) / (1 + x**2)
    return Smoothed(
        output=erf(at / np.sqrt(2.0)),
        slope=slope,
        curvature=-ratio * mean * slope,
        slope_curvature=ratio * (at**2 - 1) * slope,
        second_curvature=-(ratio**2) * mean * (at**2 - 3) * slope,
        output_square=1 - 4 / np.pi * owen,
        slope_square=slope_square,
        slope_square_output=slope_square * erf(mean / jnp.sqrt(2 * tilt * (tilt + variance))),
    )


def _piecewise_slopes(activation: Activation) -> tuple[float, float] | None:
    """The slopes right and left of zero, where an activation has no others."""
    if isinstance(activation.integrals, Relu):
        return 1.0, 0.0
    return activation.integrals.sides if isinstance(activation.integrals, PiecewiseLinear) else None


def _smoothed_piecewise(right: float, left: float, mean, variance) -> Smoothed:
    root = jnp.sqrt(variance)
    # Beyond 38 standard deviations the density is zero in double precision, also where there is no spread at all.
    at = jnp.clip(mean / jnp.maximum(root, 1e-150), -38.0, 38.0)
    above, below = ndtr(at), ndtr(-at)
    density = jnp.exp(-0.5 * at**2) / np.sqrt(2 * np.pi)
    # The ReLU of the field and of its negative, of which all is a sum.
    positive, negative = mean * above + root * density, -mean * below + root * density
    second = mean**2 + variance
    kink = right - left
    return Smoothed(
        output=right * positive - left * negative,
        slope=right * above + left * below,
        curvature=kink * root * density,
        slope_curvature=-kink * at * density,
        second_curvature=kink * root * (at**2 - 1) * density,
        output_square=right**2 * (second * above + mean * root * density)
        + left**2 * (second * below - mean * root * density),
        slope_square=right**2 * above + left**2 * below,
        slope_square_output=right**3 * positive - left**3 * negative,
    )


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
