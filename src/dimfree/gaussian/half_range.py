"""A quadrature rule for functions with a kink where a field changes sign."""

import functools

import equinox as eqx
import numpy as np
import scipy.linalg
from jaxtyping import Float

from ..errors import positive_integer
from .rules import product_rule


class HalfRange(eqx.Module):
    """Gauss rules on both half-lines, in each direction: spectral accuracy also across a kink at zero.

    **Arguments:**

    - `nodes`: nodes on each half-line; `(2 nodes) ** fields` points in all.
    """

    nodes: int = eqx.field(static=True)

    def __init__(self, nodes: int):
        self.nodes = positive_integer(nodes, "nodes")

    def points(self, dimension: int) -> tuple[Float[np.ndarray, "n dimension"], Float[np.ndarray, " n"]]:
        """Nodes and weights in `dimension` directions."""
        return _half_range(self.nodes, dimension)

    def words(self, fields: int) -> str:
        """What is done, for so many fields."""
        return f"Gauss rules on both half-lines, {self.nodes} nodes for each of {fields} fields"

    def fewer(self) -> "HalfRange":
        """A coarser rule: the difference between the two estimates the error."""
        return HalfRange(max(1, self.nodes - max(1, self.nodes // 4)))


@functools.lru_cache(maxsize=32)
def _half_range(nodes: int, dimension: int):
    line, weights = _half_line(nodes)
    line, weights = np.concatenate([-line[::-1], line]), np.concatenate([weights[::-1], weights]) / 2
    return product_rule(line, weights, dimension)


def _half_line(nodes: int):
    """Gauss rule for the density of |N(0, 1)|: three-term recurrence by Stieltjes' procedure on a fine grid."""
    fine, measure = np.polynomial.legendre.leggauss(400)
    fine = 7.0 * (fine + 1)
    measure = measure * np.exp(-0.5 * fine**2)
    measure /= measure.sum()
    before, now, last = np.zeros_like(fine), np.ones_like(fine), 1.0
    diagonal, beside = np.zeros(nodes), np.zeros(nodes)
    for n in range(nodes):
        norm = measure @ now**2
        diagonal[n], beside[n] = measure @ (fine * now**2) / norm, norm / last
        before, now, last = now, (fine - diagonal[n]) * now - (beside[n] if n else 0.0) * before, norm
    values, vectors = scipy.linalg.eigh_tridiagonal(diagonal, np.sqrt(beside[1:]))
    return values, vectors[0] ** 2
