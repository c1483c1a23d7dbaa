"""What the library's numbers are compared with: tolerances, and averages by rules apart from the library's."""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special
import scipy.stats
from jaxtyping import Float

EXACT = 1e-10  # a tolerance: both sides in closed form, or by a rule that is exact for them


def would_see(tolerance: float, error: float) -> str:
    """The power of a comparison, in words: its tolerance and the standard error of what is measured, both relative.

    A true deviation of the tolerance and three standard errors is outside the tolerance in 739 of 740 repetitions.
    """
    return (
        f"Tolerance: {100 * tolerance:.2g} %, whatever the number of runs. The standard error is {100 * error:.2g} %: "
        f"a true deviation of {100 * (tolerance + 3 * error):.2g} % would have been seen."
    )


def flat(*parts: Any) -> np.ndarray:
    """Several arrays as one vector, to be compared as one claim."""
    return np.concatenate([np.ravel(np.asarray(part, float)) for part in parts])


def sobol_normals(points: int, dimension: int, rng: np.random.Generator) -> Float[np.ndarray, "points dimension"]:
    """Scrambled Sobol points, a power of two of them, as standard normals."""
    uniform = scipy.stats.qmc.Sobol(dimension, rng=rng).random(points)
    return scipy.special.ndtri(np.clip(uniform, 2.0**-53, 1 - 2.0**-53))


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
