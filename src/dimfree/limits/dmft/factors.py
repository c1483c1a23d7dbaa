"""Triangular factors of a covariance that grow by a column at a time."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

_PIVOT = 1e-12  # of the variance: what of a field is not determined by its past, below which all of it is
_LANDMARK = 0.1  # of the variance: what of a field is not known from the landmarks before, where there is a new one


def invertible(factor: Float[Array, "r r"], column) -> Float[Array, "r r"]:
    """The factor up to a column, infinite where a variable has no column of its own: a division leaves it out."""
    independent = (jnp.diagonal(factor) > 0) & (jnp.arange(factor.shape[0]) < column)
    return factor + jnp.diag(jnp.where(independent, 0.0, jnp.inf))


def next_column(triangle: Float[Array, "r r"], covariances: Float[Array, " r"], column) -> Float[Array, " r"]:
    """The next column of a factor; a variable that the earlier ones determine gets none of its own."""
    # The solver wants its matrix by columns: that of the transpose are the rows of the triangle, where they lie.
    known = jax.scipy.linalg.solve_triangular(triangle.T, covariances, lower=True)
    left = covariances[column] - known @ known
    return known.at[column].set(jnp.sqrt(jnp.where(left > _PIVOT * covariances[column], left, 0.0)))


def next_landmark(inverse: Float[Array, "r r"], covariances: Float[Array, " r"], row) -> Float[Array, " r"]:
    """The next row of the inverse of the landmarks' factor: nothing for a variable that is none.

    They are far enough from each other for the inverse to be accurate, which that of all times would not be.
    """
    known = inverse @ covariances
    left = covariances[row] - known @ known
    pivot = jnp.sqrt(jnp.maximum(left, _LANDMARK * covariances[row]))
    is_landmark = left > _LANDMARK * covariances[row]
    return is_landmark * (-known @ inverse / pivot).at[row].set(1 / pivot)
