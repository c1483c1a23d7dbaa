"""Expectations of functions of Gaussian fields, with derivatives that are right at kinks and singular covariances."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from .blocks import sum_over_blocks
from .factor import psd_factor
from .rules import GaussHermite, Rule

# Points are taken in blocks of this many numbers of output, so that memory stays near 100 MB at any width.
_BLOCK_NUMBERS = 2**22
# Up to here all derivatives by the fields are averaged once for all tangents; beyond, those along each tangent.
_FEW_FIELDS = 4


class FieldRule(eqx.Module):
    """How an expectation over the fields and the label noise is taken.

    **Arguments:**

    - `fields`: the rule for the fields.
    - `noise_nodes`: Gauss-Hermite nodes for the noise (few where the integrand is polynomial in it); `None` if the
      noise is one more direction of the rule for the fields.
    - `smooth`: whether the integrand has no kink; this decides how the derivative is taken.
    """

    fields: Rule
    noise_nodes: int | None = eqx.field(static=True)
    smooth: bool = eqx.field(static=True)

    def points(self, dimension: int):
        """Standard normal nodes for fields and noise, and weights."""
        if self.noise_nodes is None:
            nodes, weights = self.fields.points(dimension + 1)
            return nodes[:, :dimension], nodes[:, dimension], weights
        nodes, weights = self.fields.points(dimension)
        noise, noise_weights = GaussHermite(self.noise_nodes).points(1)
        repeated = np.repeat(nodes, len(noise), axis=0)
        return repeated, np.tile(noise[:, 0], len(nodes)), np.multiply.outer(weights, noise_weights).reshape(-1)

    def companion(self) -> "FieldRule":
        """Another rule of the kind, to estimate the error with."""
        return FieldRule(self.fields.companion(), self.noise_nodes, self.smooth)


def expectation(
    function: Callable[[Float[Array, " r"], Float[Array, ""], Any], PyTree[Array]],
    covariance: Float[Array, "r r"],
    parameters: Any,
    rule: FieldRule,
    mean: Float[Array, " r"] | None = None,
) -> PyTree[Array]:
    r"""$\mathbb{E}[F(u, z; \theta)]$ over fields $u \sim N(\mu, C)$ and noise $z \sim N(0, 1)$.

    Its derivative with respect to $\mu$ and $C$ is not that of the sum over nodes. For smooth integrands it is
    $\mathbb{E}[\partial_a F]$ and $\tfrac12 \mathbb{E}[\partial_a \partial_b F]$ (Price's theorem), which holds for
    singular $C$; for integrands with kinks it is $\mathbb{E}[F \, \partial \log \text{density}]$, because
    differentiating through the nodes would miss the contribution of the kink itself. The latter needs a regular $C$; on
    its null space the derivative is dropped.

    **Arguments:**

    - `function`: $F$ of the fields `(r,)`, the noise (a number) and the parameters; closing over traced values is an
      error.
    - `covariance`: $C$, shape `(r, r)`.
    - `parameters`: pytree of arrays that $F$ also depends on, differentiably.
    - `rule`: how to integrate.
    - `mean`: $\mu$, shape `(r,)`; zero if left out.
    """
    return _expectation(mean, covariance, parameters, function=function, rule=rule)


@eqx.filter_custom_jvp
def _expectation(mean, covariance, parameters, *, function, rule):
    nodes, noise, weights = rule.points(covariance.shape[-1])
    factor, _ = psd_factor(covariance)

    def weighted(nodes, noise, weights):
        fields = nodes @ factor.T if mean is None else mean + nodes @ factor.T
        values = jax.vmap(function, in_axes=(0, 0, None))(fields, noise, parameters)
        return jax.tree.map(lambda value: jnp.tensordot(weights, value, axes=1), values)

    numbers = sum(
        leaf.size for leaf in jax.tree.leaves(jax.eval_shape(function, covariance[0], covariance[0, 0], parameters))
    )
    blocks = -(-len(weights) * (numbers + nodes.shape[1]) // _BLOCK_NUMBERS)
    return sum_over_blocks(weighted, (nodes, noise, weights), blocks)


@_expectation.def_jvp
def _expectation_jvp(primals, tangents, *, function, rule):
    mean, covariance, parameters = primals
    d_mean, d_covariance, d_parameters = tangents

    def average(derivative, *numbers):
        return _expectation(mean, covariance, numbers, function=functools.partial(derivative, function), rule=rule)

    value = _expectation(mean, covariance, parameters, function=function, rule=rule)
    few = covariance.shape[-1] <= _FEW_FIELDS
    tangents = []
    if d_mean is not None:
        if rule.smooth and few:
            tangents.append(jax.tree.map(lambda term: term @ d_mean, average(_first_derivatives, parameters)))
        elif rule.smooth:
            tangents.append(average(_shift, parameters, d_mean))
        else:
            tangents.append(average(_shift_score, parameters, mean, covariance, d_mean, value))
    if d_covariance is not None:
        if rule.smooth and few:
            second = average(_second_derivatives, parameters)
            tangents.append(jax.tree.map(lambda term: 0.5 * jnp.sum(term * d_covariance, axis=(-2, -1)), second))
        elif rule.smooth:
            tangents.append(average(_price, parameters, d_covariance))
        else:
            center = jnp.zeros(covariance.shape[-1]) if mean is None else mean
            tangents.append(average(_score, parameters, center, covariance, d_covariance, value))
    if jax.tree.leaves(d_parameters):
        tangents.append(average(_along_parameters, parameters, d_parameters))
    total = functools.reduce(lambda a, b: jax.tree.map(jnp.add, a, b), tangents, jax.tree.map(jnp.zeros_like, value))
    return value, total


def _shift(function, fields, noise, parameters):
    original, d_mean = parameters
    return jax.jvp(lambda u: function(u, noise, original), (fields,), (d_mean,))[1]


def _first_derivatives(function, fields, noise, parameters):
    (original,) = parameters
    return jax.jacfwd(lambda u: function(u, noise, original))(fields)


def _second_derivatives(function, fields, noise, parameters):
    (original,) = parameters
    return jax.jacfwd(jax.jacfwd(lambda u: function(u, noise, original)))(fields)


def _price(function, fields, noise, parameters):
    original, d_covariance = parameters

    def directional(first, second):
        def inner(u):
            return jax.jvp(lambda v: function(v, noise, original), (u,), (first,))[1]

        return jax.jvp(inner, (fields,), (second,))[1]

    terms = jax.vmap(directional)(jnp.eye(fields.shape[0]), d_covariance.T)
    return jax.tree.map(lambda term: 0.5 * term.sum(axis=0), terms)


def _shift_score(function, fields, noise, parameters):
    original, mean, covariance, d_mean, value = parameters
    score = (fields - mean) @ jnp.linalg.pinv(covariance, hermitian=True) @ d_mean
    return _weighted(function(fields, noise, original), value, score)


def _score(function, fields, noise, parameters):
    original, mean, covariance, d_covariance, value = parameters
    inverse = jnp.linalg.pinv(covariance, hermitian=True)
    standardised = inverse @ (fields - mean)
    score = 0.5 * (standardised @ d_covariance @ standardised - jnp.sum(inverse * d_covariance))
    return _weighted(function(fields, noise, original), value, score)


def _weighted(sample, mean, score):
    # The score has mean zero: subtracting the mean changes nothing in the limit and removes most of the error.
    return jax.tree.map(lambda one, m: score * (one - m), sample, mean)


def _along_parameters(function, fields, noise, parameters):
    original, direction = parameters
    value, tangent = eqx.filter_jvp(lambda theta: function(fields, noise, theta), (original,), (direction,))
    # An output that does not depend on what moves has no tangent at all.
    return jax.tree.map(lambda v, t: jnp.zeros_like(v) if t is None else t, value, tangent)
