"""Quadrature rules for expectations over standard normals."""

import functools

import equinox as eqx
import numpy as np
import scipy.special
import scipy.stats
from jaxtyping import Float

from ..errors import InvalidInput, positive_integer
from ..printing import as_call


class GaussHermite(eqx.Module):
    """Tensor Gauss-Hermite rule: exact for polynomials of degree `2 nodes - 1` in each field, for few fields.

    It fails across a kink (ReLU: error 1e-3, not improving with more nodes); use `Sobol` there.

    **Arguments:**

    - `nodes`: nodes in each direction; `nodes ** fields` points in all.
    """

    nodes: int = eqx.field(static=True)

    def __init__(self, nodes: int):
        self.nodes = positive_integer(nodes, "nodes")

    def points(self, dimension: int) -> tuple[Float[np.ndarray, "n dimension"], Float[np.ndarray, " n"]]:
        """Nodes and weights in `dimension` directions."""
        if self.nodes**dimension > 2**24:
            raise InvalidInput(
                f"GaussHermite(nodes={self.nodes}) over {dimension} fields has {self.nodes**dimension:.1e} points; "
                "use fewer nodes, or Sobol(points=2**14)."
            )
        return _hermite(self.nodes, dimension)

    def companion(self) -> "GaussHermite":
        """A coarser rule, where there is one: the difference between the two estimates the error."""
        return GaussHermite(2 if self.nodes == 1 else self.nodes - max(1, self.nodes // 4))


class Sobol(eqx.Module):
    """Scrambled Sobol points with their mirror images: any number of fields, kinks allowed, error about 1/points.

    The points are fixed by `seed`, so that a limit is a deterministic function of the State.

    **Arguments:**

    - `points`: number of points, a power of two; each is used with its mirror image.
    - `seed`: which scrambling.
    """

    number: int = eqx.field(static=True)
    seed: int = eqx.field(static=True)

    def __init__(self, points: int, seed: int = 0):
        self.number = positive_integer(points, "points", minimum=2)
        if self.number & (self.number - 1):
            raise InvalidInput(f"Sobol(points={points}): the number of points must be a power of two, such as 2**14.")
        self.seed = seed

    def __repr__(self) -> str:
        return as_call(self, points=self.number, seed=self.seed)

    def points(self, dimension: int) -> tuple[Float[np.ndarray, "n dimension"], Float[np.ndarray, " n"]]:
        """Nodes and weights in `dimension` directions."""
        return _sobol(self.number, dimension, self.seed)

    def companion(self) -> "Sobol":
        """The same rule under another scrambling: the difference between the two estimates the error."""
        return Sobol(self.number, self.seed + 1)


Rule = GaussHermite | Sobol


def sobol_normals(points: int, dimension: int, rng: np.random.Generator) -> Float[np.ndarray, "points dimension"]:
    """Scrambled Sobol points, a power of two of them, as standard normals."""
    uniform = scipy.stats.qmc.Sobol(dimension, rng=rng).random(points)
    return scipy.special.ndtri(np.clip(uniform, 2.0**-53, 1 - 2.0**-53))


def product_rule(line: Float[np.ndarray, " m"], weights: Float[np.ndarray, " m"], dimension: int):
    """The nodes and weights of a rule on a line, in every direction."""
    grid = np.stack(np.meshgrid(*[line] * dimension, indexing="ij"), axis=-1).reshape(-1, dimension)
    return grid, functools.reduce(np.multiply.outer, [weights] * dimension, np.ones(())).reshape(-1)


@functools.lru_cache(maxsize=32)
def _hermite(nodes: int, dimension: int):
    line, weights = scipy.special.roots_hermitenorm(nodes)
    return product_rule(line, weights / weights.sum(), dimension)


@functools.lru_cache(maxsize=32)
def _sobol(points: int, dimension: int, seed: int):
    normal = sobol_normals(points, dimension, np.random.default_rng(seed))
    return np.concatenate([normal, -normal]), np.full(2 * points, 0.5 / points)


def check_rule(rule: object) -> None:
    """An error if this is neither a rule nor left out."""
    if rule is not None and not isinstance(rule, Rule):
        raise InvalidInput(f"expectation = {rule!r} was given; pass dimfree.GaussHermite(...) or dimfree.Sobol(...).")


def choose_rule(dimension: int, *, smooth: bool) -> Rule:
    """The rule used unless told otherwise: Gauss-Hermite for few fields without kinks, Sobol for the rest."""
    nodes = {1: 96, 2: 64, 3: 32, 4: 16}
    if smooth and dimension in nodes:
        return GaussHermite(nodes[dimension])
    return Sobol(2**14)
