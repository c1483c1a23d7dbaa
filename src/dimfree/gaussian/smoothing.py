"""Averages of an activation over what one neuron sees of the input outside the teacher's span."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf, ndtr
from jaxtyping import Array, Float

from .activations import Activation
from .erf import Erf
from .polynomial import Polynomial
from .quadratic import Square
from .relu import Relu
from .rules import GaussHermite

# Points of an even grid for activations without closed form. Where they are smooth it is right to rounding (tanh, whose
# poles spoil Gauss-Hermite); at a kink its error falls as the spacing squared.
_SMOOTH_POINTS, _KINK_POINTS = 97, 513
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


def smoothed(activation: Activation, mean: Float[Array, "nodes p"], variance: Float[Array, " p"]) -> Smoothed:
    """The averages of each of `p` neurons at each of many means; closed forms for erf, relu and polynomials."""
    if isinstance(activation.integrals, Erf):
        return _smoothed_erf(mean, variance)
    if isinstance(activation.integrals, Relu):
        return _smoothed_relu(mean, variance)
    return _smoothed_by_nodes(activation, mean, variance)


def own_averages(activation: Activation, variance: Float[Array, " p"]) -> OwnAverages:
    """The averages over a neuron's own field, of variance Q."""
    if isinstance(activation.integrals, Erf):
        tilted = variance / (1 + 2 * variance)
        return OwnAverages(
            output_square=_erf_square(variance),
            growth=2 / np.pi / ((1 + variance) * jnp.sqrt(1 + 2 * variance)),
            slope_square_output_square=2 / np.pi / jnp.sqrt(1 + 2 * variance) * _erf_square(tilted),
        )
    if isinstance(activation.integrals, Relu):
        return OwnAverages(variance / 2, jnp.full_like(variance, 0.5), variance / 2)
    nodes, weights = _nodes(activation)
    root = jnp.sqrt(variance)
    output, slope = _output_and_slope(activation, nodes[:, None] * root)
    bounded = jnp.where(root > 0, root, 1.0)
    return OwnAverages(
        output_square=weights @ output**2,
        growth=jnp.where(root > 0, (weights * nodes) @ (output * slope) / bounded, 0.0),
        slope_square_output_square=weights @ (output * slope) ** 2,
    )


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


def _smoothed_relu(mean, variance) -> Smoothed:
    root = jnp.sqrt(variance)
    # Beyond 38 standard deviations the density is zero in double precision, also where there is no spread at all.
    at = jnp.clip(mean / jnp.maximum(root, 1e-150), -38.0, 38.0)
    probability, density = ndtr(at), jnp.exp(-0.5 * at**2) / np.sqrt(2 * np.pi)
    output = mean * probability + root * density
    return Smoothed(
        output=output,
        slope=probability,
        curvature=root * density,
        slope_curvature=-at * density,
        second_curvature=root * (at**2 - 1) * density,
        output_square=(mean**2 + variance) * probability + mean * root * density,
        slope_square=probability,
        slope_square_output=output,
    )


def _smoothed_by_nodes(activation: Activation, mean, variance) -> Smoothed:
    root = jnp.sqrt(variance)
    inverse = jnp.where(root > 0, 1 / jnp.where(root > 0, root, 1.0), 0.0)

    def add(total, node_and_weight):
        x, weight = node_and_weight
        output, slope = _output_and_slope(activation, mean + root * x)
        second, third, fourth = x**2 - 1, x**3 - 3 * x, x**4 - 6 * x**2 + 3
        # Stein: the n-th derivative of A is E[g He_n] / q^(n/2), or E[g' He_(n-1)] / q^((n-1)/2). Where g' jumps the
        # first is better: a grid sees a jump far less well than a kink.
        if activation.smooth:
            slopes = (slope, root * x * slope, second * slope, root * third * slope)
        else:
            spread = jnp.where(root > 0, inverse * x * output, slope)
            slopes = (spread, second * output, inverse * third * output, fourth * output)
        terms = Smoothed(
            output=output,
            slope=slopes[0],
            curvature=slopes[1],
            slope_curvature=slopes[2],
            second_curvature=slopes[3],
            output_square=output**2,
            slope_square=slope**2,
            slope_square_output=slope**2 * output,
        )
        return jax.tree.map(lambda sum_, term: sum_ + weight * term, total, terms), None

    zeros = jnp.zeros(jnp.broadcast_shapes(mean.shape, root.shape))
    start = Smoothed(*[zeros] * 8)
    return jax.lax.scan(add, start, _nodes(activation))[0]


def _nodes(activation: Activation) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    exact = exact_nodes(activation)
    if exact is None:
        line = np.linspace(-8.5, 8.5, _SMOOTH_POINTS if activation.smooth else _KINK_POINTS)
        density = np.exp(-0.5 * line**2)
        return jnp.asarray(line), jnp.asarray(density / density.sum())
    nodes, weights = GaussHermite(exact).points(1)
    return jnp.asarray(nodes[:, 0]), jnp.asarray(weights)


def _output_and_slope(activation: Activation, fields):
    return jax.jvp(activation.function, (fields,), (jnp.ones_like(fields),))
