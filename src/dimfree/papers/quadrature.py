"""Averages over Gaussian fields, by a rule of its own: what the library's averages are compared with."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float


def average(function: Callable, covariance: Float[np.ndarray, "r r"], nodes: int = 7) -> np.ndarray:
    """Mean of `function(fields, z)` over Gaussian fields of this covariance and standard normal z.

    A product of Gauss-Hermite rules: with n nodes it is exact for polynomials of degree 2 n - 1 in each variable. The
    function is given all nodes at once, fields `(r, nodes)` and z `(nodes,)`, and returns `(..., nodes)`.
    """
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    weights = weights / weights.sum()
    size = len(covariance) + 1
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*[points] * size, indexing="ij")])
    weight = np.prod(np.stack([axis.ravel() for axis in np.meshgrid(*[weights] * size, indexing="ij")]), axis=0)
    values, vectors = np.linalg.eigh(covariance)
    fields = (vectors * np.sqrt(np.maximum(values, 0.0))) @ grid[:-1]
    return np.asarray(function(fields, grid[-1])) @ weight
