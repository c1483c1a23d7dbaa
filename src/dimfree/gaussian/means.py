"""Expectations of functions of Gaussian fields, with derivatives that are right at kinks and singular covariances."""

import functools
from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ..batches import NUMBERS, sum_over_blocks
from .factor import psd_factor
from .grids import Grid, average_over_grid
from .rules import AnyRule, GaussHermite, Trapezoid, shifts_of

_NOISE_NODES = 32  # where it is not known how many are exact
_NEAR = 2**13  # numbers of some points that stay near the processor: several times faster than all points at once
# Up to here all derivatives by the fields are averaged once for all tangents; beyond, those along each tangent.
_FEW_FIELDS = 4


class FieldRule(eqx.Module):
    """How an expectation over the fields and the label noise is taken.

    **Attributes:**

    - `fields`: the rule for the fields.
    - `noise_nodes`: Gauss-Hermite nodes for the noise (few where the integrand is polynomial in it); `None` if the
      noise is one more direction of the rule for the fields.
    - `smooth`: whether the integrand has no kink; this decides how the derivative is taken.
    - `replica`: 0, or the number of another way to take it (see `Averaging`).
    - `spread`: how far the integrand's own fields move along each field, where it is not what the covariance says.
    - `last_is_mean`: whether the integrand is averaged already over what the last field has of its own, and is given
      the mean of that field instead; for grids only.
    """

    fields: AnyRule
    noise_nodes: int | None = eqx.field(static=True)
    smooth: bool = eqx.field(static=True)
    replica: Int[Array, ""] = eqx.field(default_factory=lambda: jnp.zeros((), jnp.int32))
    spread: Float[Array, " r"] | None = None
    last_is_mean: bool = eqx.field(static=True, default=False)

    def points(self, dimension: int):
        """Standard normal nodes for the fields, and weights; not for grids, which depend on the fields.

        The noise is the last direction of the nodes if it has none of its own.
        """
        assert not isinstance(self.fields, Trapezoid)
        dimension = dimension + (self.noise_nodes is None)
        if isinstance(self.fields, GaussHermite):
            return self.fields.points(dimension)
        return self.fields.scrambled(dimension, self.replica)

    def noise_points(self):
        """Nodes and weights for the noise alone: Gauss-Hermite ones unless it is where something may jump."""
        if self.noise_nodes is not None or self.smooth:
            return GaussHermite(self.noise_nodes or _NOISE_NODES).points(1)
        return self.points(0)


def mean_over_noise(function, fields, parameters, nodes, weights) -> PyTree[Array]:
    """The mean of a function of fields, noise and parameters over the noise alone, by nodes and their weights."""
    # What does not depend on the noise is computed once for all of its nodes.
    values = jax.vmap(function, in_axes=(None, 0, None))(fields, jnp.asarray(nodes[:, 0]), parameters)
    return jax.tree.map(lambda value: jnp.tensordot(jnp.asarray(weights), value, axes=1), values)


def gaussian_mean(
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
    return _gaussian_mean(mean, covariance, parameters, function=function, rule=rule)


def largest_term(
    function: Callable[[Float[Array, " r"], Float[Array, ""], Any], Float[Array, ""]],
    covariance: Float[Array, "r r"],
    parameters: Any,
    rule: FieldRule,
    mean: Float[Array, " r"] | None = None,
) -> Float[Array, ""]:
    """The largest term, weight times absolute value, of the sum over points by which `gaussian_mean` takes a mean.

    Where a function jumps, the sum is off by a few such terms at least, and scrambling the points anew may not show it:
    points that are even put the same number of them on each side. It is zero for a grid.
    """
    if isinstance(rule.fields, Trapezoid):
        return jnp.zeros(())
    at = _at_node(function, covariance, parameters, rule, mean)
    terms = jax.lax.map(
        lambda point: point[1] * jnp.abs(at(point[0])), rule.points(covariance.shape[-1]), batch_size=_NEAR
    )
    return jnp.max(terms)


def _at_node(function, covariance, parameters, rule: FieldRule, mean) -> Callable[[Float[Array, " n"]], Any]:
    """The function of standard normal numbers that is averaged: fields, and the noise, follow from these."""
    size = covariance.shape[-1]
    factor, _ = psd_factor(covariance)

    def at(node):
        fields = factor @ node[:size] if mean is None else mean + factor @ node[:size]
        if rule.noise_nodes is None:
            return function(fields, node[size], parameters)
        return mean_over_noise(function, fields, parameters, *rule.noise_points())

    return at


@eqx.filter_custom_jvp
def _gaussian_mean(mean, covariance, parameters, *, function, rule):
    size = covariance.shape[-1]
    at = _at_node(function, covariance, parameters, rule, mean)

    def weighted(nodes, weights):
        return jax.tree.map(lambda value: jnp.tensordot(weights, value, axes=1), jax.vmap(at)(nodes))

    made = jax.eval_shape(function, covariance[0], covariance[0, 0], parameters)
    numbers = (size + sum(leaf.size for leaf in jax.tree.leaves(made))) * (rule.noise_nodes or 1)
    if isinstance(rule.fields, Trapezoid):
        return _over_grid(weighted, psd_factor(covariance)[0], rule, numbers)
    nodes, weights = rule.points(size)
    return sum_over_blocks(weighted, (nodes, weights), -(-len(weights) * numbers // _NEAR))


def _over_grid(weighted, factor: Float[Array, "r r"], rule: FieldRule, numbers: int):
    """The average over a grid whose spacing along each direction follows from how far the fields move along it."""
    deviations = jnp.linalg.norm(factor, axis=0) if rule.spread is None else rule.spread
    if rule.last_is_mean:
        deviations = deviations.at[-1].set(0.0)
    if rule.noise_nodes is None:
        deviations = jnp.append(deviations, 1.0)
    resolution = cast(Trapezoid, rule.fields).resolution
    grid = Grid(jax.lax.stop_gradient(deviations), resolution, shifts_of(rule.replica, deviations.shape[0]))
    block = min({1: 64, 2: 1024}.get(deviations.shape[0], 4096), max(64, NUMBERS // numbers))
    return average_over_grid(weighted, grid, block)


@_gaussian_mean.def_jvp
def _expectation_jvp(primals, tangents, *, function, rule):
    mean, covariance, parameters = primals
    d_mean, d_covariance, d_parameters = tangents

    def average(derivative, *numbers):
        return _gaussian_mean(mean, covariance, numbers, function=functools.partial(derivative, function), rule=rule)

    value = _gaussian_mean(mean, covariance, parameters, function=function, rule=rule)
    on_grid = isinstance(rule.fields, Trapezoid)
    few = on_grid or covariance.shape[-1] <= _FEW_FIELDS
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
    if jax.tree.leaves(d_parameters) and on_grid:
        # A loop over as many points as are needed has no reverse mode, so that tangents must stay outside of it.
        moving = jax.tree.map(lambda tangent: tangent is not None, d_parameters, is_leaf=lambda leaf: leaf is None)
        derivatives = average(_parameter_derivatives, *eqx.partition(parameters, moving))
        tangents.append(jax.tree.map(lambda v, of: _contracted(v, of, d_parameters), value, derivatives))
    elif jax.tree.leaves(d_parameters):
        tangents.append(average(_along_parameters, parameters, d_parameters))
    total = functools.reduce(lambda a, b: jax.tree.map(jnp.add, a, b), tangents, jax.tree.map(jnp.zeros_like, value))
    return value, total


def _parameter_derivatives(function, fields, noise, parameters):
    moving, rest = parameters
    return jax.jacfwd(lambda theta: function(fields, noise, eqx.combine(theta, rest)))(moving)


def _contracted(value, derivatives, tangents):
    """A derivative by all parameters along given tangents of them."""
    pairs = zip(jax.tree.leaves(derivatives), jax.tree.leaves(tangents), strict=True)
    return sum((jnp.tensordot(slope, tangent, jnp.ndim(tangent)) for slope, tangent in pairs), jnp.zeros_like(value))


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
