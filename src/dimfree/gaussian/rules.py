"""Quadrature rules for expectations over standard normals."""

import functools
import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array, Float, Int, PyTree

from ..errors import InvalidInput, positive_integer, shown
from ..printing import as_call
from .resolution import Resolution

TOLERANCE = 1e-6  # relative error of averages unless told otherwise
MOST_EXACT = 1e-10
POINTS = 2**14  # of Sobol, where a grid does not do
MOST_FIELDS = 6  # of a grid: a dozen nodes for each of more fields are too many
_DIGITS = 30  # of Sobol points
_SHIFTS = 3  # ways to move a grid
SCRAMBLINGS, _DISTANCES = 4, 3.6  # points scrambled anew, and how many times their largest distance bounds an error


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

    def fewer(self) -> "GaussHermite":
        """A coarser rule, where there is one: the difference between the two estimates the error."""
        return GaussHermite(2 if self.nodes == 1 else self.nodes - max(1, self.nodes // 4))

    def words(self, fields: int) -> str:
        """What is done, for so many fields."""
        return f"Gauss-Hermite, {self.nodes} nodes for each of {fields} fields"


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
        self.seed = positive_integer(seed, "seed", minimum=0)

    def __repr__(self) -> str:
        return as_call(self, points=self.number, seed=self.seed)

    def points(self, dimension: int) -> tuple[Float[np.ndarray, "n dimension"], Float[np.ndarray, " n"]]:
        """Nodes and weights in `dimension` directions."""
        return _sobol(self.number, dimension, self.seed)

    def scrambled(self, dimension: int, replica: Int[Array, ""]) -> tuple[Float[Array, "n m"], Float[Array, " n"]]:
        """Nodes and weights of a replica: nodes with some binary digits flipped, which are as even as they were."""
        nodes, weights = self.points(dimension)
        return _flipped(nodes, replica), jnp.asarray(weights)

    def words(self, fields: int) -> str:
        """Describe the rule for so many fields."""
        return f"scrambled Sobol, {self.number} points and their mirror images over {fields} fields"


class WideSobol(eqx.Module):
    r"""Scrambled Sobol points for integrands that matter far out: half of them lie `spread` times as far from zero.

    $$ \mathbb{E}[F(x)] = \frac{\sum_i w(x_i) F(x_i)}{\sum_i w(x_i)}, \qquad
       w(x) = \frac{2}{1 + \text{spread}^{-r} \exp\left(\tfrac12 (1 - \text{spread}^{-2}) |x|^2\right)} $$

    over r fields: the points are those of an even mixture of N(0, I) and N(0, spread^2 I), and w is the ratio of the
    densities. It is 2 at most, so that little is lost near zero, and an event five deviations away is seen by hundreds
    of points where `Sobol` has none.

    **Arguments:**

    - `number`: of points, a power of two; each is used with its mirror image.
    """

    number: int = eqx.field(static=True)

    def scrambled(self, dimension: int, replica: Int[Array, ""]) -> tuple[Float[Array, "n m"], Float[Array, " n"]]:
        """Nodes and weights of a replica."""
        nodes, _ = _sobol(self.number, dimension, 0)
        spread = _spread(dimension)
        # Each half of a Sobol sequence is even by itself; behind the points come their mirror images.
        is_far = np.arange(2 * self.number) % self.number >= self.number // 2
        nodes = jnp.where(is_far, spread, 1.0)[:, None] * _flipped(nodes, replica)
        excess = 0.5 * (1 - spread**-2) * jnp.sum(nodes**2, axis=1) - dimension * np.log(spread)
        weights = jax.nn.sigmoid(-excess)
        return nodes, weights / jnp.sum(weights)

    def words(self, fields: int) -> str:
        """Describe the rule for so many fields."""
        return (
            f"scrambled Sobol, {self.number} points and their mirror images over {fields} fields, half of them "
            f"{_spread(fields):.2g} times as far out"
        )


def _spread(fields: int) -> float:
    """How much wider than the fields half of the points are: less for many fields, whose length varies little."""
    return float(np.sqrt(1 + 4 / fields**0.5))


Rule = GaussHermite | Sobol


class Trapezoid(eqx.Module):
    """An even grid that follows the State, for integrands without kinks and few fields; see `Grid`.

    **Arguments:**

    - `resolution`: what the integrand needs.
    - `tolerance`: relative error to reach.
    """

    resolution: Resolution
    tolerance: float = eqx.field(static=True)

    def words(self, fields: int) -> str:
        """What is done, for so many fields."""
        return f"trapezoidal rule over {fields} fields, as fine as the State needs"


class UnorderedHermite(eqx.Module):
    """Gauss-Hermite nodes for the fields of each of several inputs, each set of them once, whatever their order.

    For integrands that are the same in any order of independent inputs: of L! orders one is enough. The sets of least
    weight, a part 1e-7 of all, are left out.

    **Attributes:**

    - `nodes`: for each field; `inputs`: how many.
    """

    nodes: int = eqx.field(static=True)
    inputs: int = eqx.field(static=True)

    def points(self, dimension: int) -> tuple[Float[np.ndarray, "n dimension"], Float[np.ndarray, " n"]]:
        """Nodes and weights in `dimension` directions, those of one input after the other."""
        return _unordered(self.nodes, self.inputs, dimension // self.inputs)

    def scrambled(self, dimension: int, replica: Int[Array, ""]) -> tuple[Float[Array, "n m"], Float[Array, " n"]]:
        """Nodes and weights of a replica: nodes turned about zero, the same way for each input, which are as exact."""
        nodes, weights = self.points(dimension)
        fields = nodes.shape[1] // self.inputs

        def turned():
            from scipy.stats import special_ortho_group  # a fifth of the time of all imports

            turns = [special_ortho_group(fields, seed=seed).rvs() for seed in range(SCRAMBLINGS + 1)]
            turn = jnp.asarray(np.stack(turns))[replica]
            return (jnp.asarray(nodes).reshape(-1, self.inputs, fields) @ turn).reshape(nodes.shape)

        return jax.lax.cond(replica > 0, turned, lambda: jnp.asarray(nodes)), jnp.asarray(weights)

    def words(self, fields: int) -> str:
        """What is done, for so many fields."""
        number = len(self.points(fields)[1])
        return (
            f"Gauss-Hermite, {self.nodes} nodes for each of {fields} fields, in any order of {self.inputs} inputs: "
            f"{number} points"
        )


AnyRule = Rule | WideSobol | Trapezoid | UnorderedHermite


class Averaging(eqx.Module):
    """How averages over fields are taken: to a tolerance, or by a rule of the user's own.

    **Attributes:**

    - `tolerance`: relative error to reach where an average is no closed form; that of covariances is a hundred times
      as large.
    - `rule`: one to take instead.
    - `replica`: 0, or the number of another way to take the same averages (a shifted grid, other points): their
      differences estimate the error. It is an array, so that all ways share one program.
    """

    tolerance: float = eqx.field(static=True, default=TOLERANCE)
    rule: Rule | None = None
    replica: Int[Array, ""] = eqx.field(default_factory=lambda: jnp.zeros((), jnp.int32))

    @property
    def shift(self) -> Float[Array, ""]:
        """By how much of their spacing the nodes of grids on a line are moved."""
        return shifts_of(self.replica, 1)[0]

    def loosened(self) -> "Averaging":
        """With the tolerance of covariances."""
        return Averaging(min(0.01, 100 * self.tolerance), self.rule, self.replica)

    def replicas(self, rule: object) -> list["Averaging"]:
        """Other ways to take the same averages, where they are taken by such a rule."""
        if isinstance(self.rule, GaussHermite):
            return [Averaging(self.tolerance, self.rule.fewer())]
        return [Averaging(self.tolerance, self.rule, jnp.asarray(i, jnp.int32)) for i in range(1, 1 + _ways(rule))]

    def in_all_ways(self, rule: object, average: Callable[["Averaging"], PyTree[Array]]) -> PyTree[Array]:
        """The averages taken this way first, then by each replica, along a new first axis: in a single program.

        **Arguments:**

        - `average`: the averages, taken in a given way.
        """
        if isinstance(self.rule, GaussHermite):
            found = [average(way) for way in (self, *self.replicas(rule))]
            return jax.tree.map(lambda *each: jnp.stack(each), *found)
        ways = jnp.arange(1 + _ways(rule), dtype=jnp.int32)
        return jax.lax.map(lambda replica: average(Averaging(self.tolerance, self.rule, replica)), ways)

    def accuracy(self, rule: object, average: Callable[["Averaging"], tuple[Array, Array]]) -> "Accuracy":
        """How good averages are that go by such a rule.

        **Arguments:**

        - `average`: the averages, and the size of what is averaged, taken in a given way.
        """
        # One after the other: each is the program that computed the averages themselves.
        (values, size), *others = (average(by) for by in (self, *self.replicas(rule)))
        distances = [jnp.max(jnp.abs(other - values)) for other, _ in others]
        return Accuracy(bound_on_error(distances, rule, size), size)


def _ways(rule: object) -> int:
    """How many replicas tell how good a rule is."""
    if isinstance(rule, Sobol | WideSobol | UnorderedHermite):
        return SCRAMBLINGS
    return _SHIFTS if isinstance(rule, Trapezoid) else 1


class Accuracy(NamedTuple):
    """A bound on the error of averages, the largest of all entries, and the size of what is averaged."""

    error: Float[Array, ""]
    size: Float[Array, ""]


def shifts_of(replica: Int[Array, ""], directions: int) -> Float[Array, " r"]:
    """By how much of their spacing the nodes of the grids of a replica are moved in each of several directions.

    The first replica moves them by half of it. What varies along a diagonal may come out the same there, since it
    changes its sign once for each direction; so other replicas move each direction by another part of the spacing.
    """
    places = np.arange(directions)
    rows = np.stack([
        np.zeros(directions),
        np.full(directions, 0.5),
        np.array([0.0, 0.5, 0.25, 0.75, 0.125, 0.625, 0.375])[places % 7],
        (0.2 + (5**0.5 - 1) / 2 * places) % 1,
        (0.7 + 2**0.5 * places) % 1,
    ])  # fmt: skip
    return jnp.asarray(rows)[replica]


def averaging(rule: Rule | None, tolerance: float) -> Averaging:
    """What a user asked for, or an error."""
    check_rule(rule)
    if not (isinstance(tolerance, int | float | np.number) and MOST_EXACT <= tolerance <= 0.01):
        raise InvalidInput(
            f"tolerance = {shown(tolerance)} was given; it is the relative error of averages, a number from "
            f"{MOST_EXACT:g} to 0.01."
        )
    return Averaging(float(tolerance), rule)


def bound_on_error(distances: list[Float[Array, ""]], rule: object, size: Float[Array, ""]) -> Float[Array, ""]:
    """A bound on the error of averages, from how far they are from the same averages taken otherwise.

    Half a spacing away the error of a grid has the opposite sign, up to what is much smaller; other parts of
    the spacing away it has other phases. Points that are scrambled
    anew differ by their errors: of four distances the largest is about two standard deviations, and 3.6 times that
    covers all but one in a hundred. A product rule that is turned has errors of another sign or size.

    **Arguments:**

    - `distances`: from the averages taken by each of `Averaging.replicas`, the largest of all entries.
    - `rule`: what the averages go by.
    - `size`: that of what is averaged, which may be much larger than its mean.
    """
    if isinstance(rule, UnorderedHermite):
        # The sets left out are the same however nodes are turned; they lie far out, where slopes and fields are large.
        return 2 * jnp.max(jnp.stack(distances)) + 20 * _LEFT_OUT * size
    if isinstance(rule, Sobol | WideSobol):
        return _DISTANCES * jnp.max(jnp.stack(distances))
    if isinstance(rule, Trapezoid):
        # What the ends of a grid leave out is the same on all.
        return jnp.max(jnp.stack(distances)) + 0.03 * rule.tolerance * size
    return distances[0]


def sobol_normals(points: int, dimension: int, rng: np.random.Generator) -> Float[np.ndarray, "points dimension"]:
    """Scrambled Sobol points, a power of two of them, as standard normals."""
    from scipy.stats import qmc  # a fifth of the time of all imports

    uniform = qmc.Sobol(dimension, rng=rng).random(points)
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
def _unordered(nodes: int, inputs: int, fields: int):
    each, weights = _hermite(nodes, fields)
    sets = np.array(list(itertools.combinations_with_replacement(range(len(weights)), inputs)))
    # In how many orders a set comes: L! over those of the inputs that have the same nodes.
    orders, alike = np.full(len(sets), float(math.factorial(inputs))), np.ones(len(sets))
    for place in range(1, inputs):
        alike = np.where(sets[:, place] == sets[:, place - 1], alike + 1, 1.0)
        orders /= alike
    total = orders * np.prod(weights[sets], axis=1)
    order = np.argsort(total)
    kept = np.sort(order[np.cumsum(total[order]) > _LEFT_OUT])
    return each[sets[kept]].reshape(len(kept), -1), total[kept] / total[kept].sum()


@functools.lru_cache(maxsize=64)
def unordered_hermite(inputs: int, fields: int, tolerance: float) -> UnorderedHermite | None:
    """The finest such rule that costs about as much as Sobol points do, if it is fine enough to be better."""
    if fields < 2:  # there is no way to turn the nodes, and so no estimate of the error
        return None
    most, least = (4 * POINTS, 8) if tolerance < 1e-5 else (POINTS, 6)
    finest = None
    for nodes in range(least, _MOST_NODES + 1):  # upwards: sets of more nodes take much longer to list
        rule = UnorderedHermite(nodes, inputs)
        if math.comb(nodes**fields + inputs - 1, inputs) > _MOST_SETS or len(rule.points(inputs * fields)[1]) > most:
            break
        finest = rule
    return finest


_LEFT_OUT, _MOST_SETS, _MOST_NODES = 1e-7, 2**20, 24


def _flipped(nodes: Float[np.ndarray, "n dimension"], replica: Int[Array, ""]) -> Float[Array, "n dimension"]:
    """Flip some binary digits of points and of their mirror images, others for each replica; none for replica 0."""
    half = nodes[: len(nodes) // 2]

    def flipped():
        digits = np.floor(scipy.special.ndtr(half) * 2.0**_DIGITS).astype(np.int64)
        flips = np.random.default_rng(0).integers(2**_DIGITS, size=(SCRAMBLINGS + 1, nodes.shape[1]))
        moved = jnp.bitwise_xor(digits, jnp.asarray(flips)[replica])
        normal = jax.scipy.special.ndtri((moved + 0.5) * 2.0**-_DIGITS)
        return jnp.concatenate([normal, -normal])

    return jax.lax.cond(replica > 0, flipped, lambda: jnp.asarray(nodes))


@functools.lru_cache(maxsize=32)
def _sobol(points: int, dimension: int, seed: int):
    normal = sobol_normals(points, dimension, np.random.default_rng(seed))
    return np.concatenate([normal, -normal]), np.full(2 * points, 0.5 / points)


def check_rule(rule: object) -> None:
    """An error if this is neither a rule nor left out."""
    if rule is not None and not isinstance(rule, Rule):
        raise InvalidInput(f"rule = {rule!r} was given; pass dimfree.GaussHermite(...) or dimfree.Sobol(...).")


def choose_rule(dimension: int, resolution: Resolution | None, tolerance: float) -> Trapezoid | Sobol:
    """The rule used unless told otherwise: a grid where there are no kinks and few enough points, else Sobol.

    **Arguments:**

    - `dimension`: the number of fields.
    - `resolution`: what the integrand needs; None where it has kinks or too many fields.
    - `tolerance`: relative error to reach.
    """
    if resolution is None:
        return Sobol(POINTS)
    return Trapezoid(resolution, tolerance) if dimension <= resolution.most_fields else Sobol(POINTS)
