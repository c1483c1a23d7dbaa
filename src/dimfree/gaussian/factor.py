"""A triangular factor of a covariance that may be singular."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

# Pivots below this fraction of the diagonal are rounding: duplicate or collapsed students, more fields than dimensions.
PIVOT_TOLERANCE = 1e-13
_UNROLLED = 6


def psd_factor(covariance: Float[Array, "r r"]) -> tuple[Float[Array, "r r"], Bool[Array, " r"]]:
    r"""Lower-triangular $L$ with $L L^\top = C$ for positive semi-definite $C$ of any rank.

    Pivots at rounding level are set to zero with their column, so that duplicate students get identical fields.
    Returns the factor and, for each column, whether it is in use (their number is the rank).
    """
    size, floor = covariance.shape[-1], _floor(covariance)
    factor = _unrolled(covariance, floor) if size <= _UNROLLED else _looped(covariance, floor)
    return factor, jnp.diagonal(factor) > 0


def sampling_factor(covariance: Float[Array, "r r"]) -> tuple[Float[Array, "r r"], Bool[Array, " r"]]:
    """The same as `psd_factor`, many times faster under `vmap` with many fields, but without derivatives."""
    if covariance.shape[-1] <= _UNROLLED:
        return psd_factor(covariance)
    factor = _large(covariance)
    return factor, jnp.diagonal(factor) > 0


@jax.custom_batching.custom_vmap
def _large(covariance):
    return _looped(covariance, _floor(covariance))


@_large.def_vmap
def _large_batch(axis_size, batched, covariance):
    # LAPACK's factor is right unless a matrix is singular, and then its pivots say so.
    floor = jax.vmap(_floor)(covariance)
    factor = jnp.linalg.cholesky(covariance, symmetrize_input=False)
    regular = jnp.all(jnp.diagonal(factor, axis1=-2, axis2=-1) ** 2 > floor)
    return jax.lax.cond(regular, lambda: factor, lambda: jax.vmap(_looped)(covariance, floor)), True


def _floor(covariance):
    return PIVOT_TOLERANCE * jnp.maximum(jnp.diagonal(covariance), jnp.finfo(covariance.dtype).tiny)


def _inverse_root(pivot, floor):
    in_use = pivot > floor
    return jnp.where(in_use, 1 / jnp.sqrt(jnp.where(in_use, pivot, 1.0)), 0.0)


def _looped(covariance, floor):
    size = covariance.shape[-1]

    def eliminate(j, carry):
        remainder, factor = carry
        column = remainder[:, j] * _inverse_root(remainder[j, j], floor[j])
        column = jnp.where(jnp.arange(size) < j, 0.0, column)
        return remainder - jnp.outer(column, column), factor.at[:, j].set(column)

    return jax.lax.fori_loop(0, size, eliminate, (covariance, jnp.zeros_like(covariance)))[1]


def _unrolled(covariance, floor):
    # Scalars written out: under vmap over runs this fuses into one loop, several times faster than array operations.
    size = covariance.shape[-1]
    factor = [[jnp.zeros(())] * size for _ in range(size)]
    for j in range(size):
        pivot = covariance[j, j] - sum(factor[j][m] ** 2 for m in range(j))
        inverse_root = _inverse_root(pivot, floor[j])
        factor[j][j] = pivot * inverse_root
        for i in range(j + 1, size):
            factor[i][j] = (covariance[i, j] - sum(factor[i][m] * factor[j][m] for m in range(j))) * inverse_root
    return jnp.stack([jnp.stack(row) for row in factor])
