"""A triangular factor of a covariance that may be singular."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

# Pivots below this fraction of the diagonal are rounding: duplicate or collapsed students, more fields than dimensions.
PIVOT_TOLERANCE = 1e-13
_SCALARS = 6  # up to this size every entry is written out
_UNROLLED = 32  # up to this size every column is


@functools.partial(jax.jit, inline=True)
def psd_factor(covariance: Float[Array, "r r"]) -> tuple[Float[Array, "r r"], Bool[Array, " r"]]:
    r"""Lower-triangular $L$ with $L L^\top = C$ for positive semi-definite $C$ of any rank.

    Pivots at rounding level are set to zero with their column, so that duplicate students get identical fields.
    Returns the factor and, for each column, whether it is in use (their number is the rank).
    """
    size = covariance.shape[-1]
    floor = PIVOT_TOLERANCE * jnp.maximum(diagonal(covariance), jnp.finfo(covariance.dtype).tiny)
    # A batch of LAPACK's factors would be faster still at twenty fields, but on several CPU devices it can hang, and it
    # stops at a singular matrix.
    method = _scalars if size <= _SCALARS else _columns if size <= _UNROLLED else _looped
    factor = method(covariance, floor)
    return factor, diagonal(factor) > 0


def diagonal(matrix: Float[Array, "r r"]) -> Float[Array, " r"]:
    """The diagonal of a small matrix, entry by entry: `jnp.diagonal` looks entries up, which does not vectorise."""
    size = matrix.shape[-1]
    return jnp.stack([matrix[i, i] for i in range(size)]) if size <= _UNROLLED else jnp.diagonal(matrix)


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


def _columns(covariance, floor):
    # With sizes known at compile time the remainder shrinks, and there is nothing to mask.
    size, columns = covariance.shape[-1], []
    for j in range(size):
        column = covariance[:, 0] * _inverse_root(covariance[0, 0], floor[j])
        columns.append(jnp.concatenate([jnp.zeros(j), column]))
        covariance = covariance[1:, 1:] - jnp.outer(column[1:], column[1:])
    return jnp.stack(columns, axis=1)


def _scalars(covariance, floor):
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
