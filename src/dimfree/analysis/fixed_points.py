"""Where the ODE comes to rest: all its fixed points, the families they form, and which of them attract."""

import dataclasses
import itertools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float, PRNGKeyArray

from ..errors import InvalidInput, check_key, check_not_traced, positive_integer, require
from ..limits import MeanLimit
from ..limits.drift import check_mean_limit
from ..state import State, check_state
from ..trajectory import check_starts
from .components import FixedSet, connected, distinct
from .equivariance import SymmetryGroup, find_symmetry_group
from .plateau import check_moves
from .stability import Stability, has_kink, slowest, stability

_MEMBERS = 12  # points of a family at which its stability is looked at
_ALIKE = 3  # points of a family that are kept of those whose coordinates have the same signs
_FLOWING = 64  # random States that the ODE is followed from
_MOST_COORDINATES = 1_000  # a search takes minutes there


@dataclasses.dataclass(frozen=True)
class FixedPoint:
    """A fixed point of the ODE, or a connected family of them; it represents all its images under symmetries.

    **Attributes:**

    - `state`: one of its points.
    - `components`: number of connected sets among its images under symmetries, itself included.
    - `dimension`: of the family; 0 for a point.
    - `risk`: the population risk at `state`.
    - `members`: points of the family at which the following are known, `state` first, along a leading axis.
    - `eigenvalues`: of the Jacobian of the drift at each member, per unit of alpha, in decreasing order of the real
      part, shape (m, n).
    - `growth`: the largest growth rate across the family at each member, shape (m,). It is the largest eigenvalue,
      without as many zeros as the family has directions; where the drift has a kink, it comes from perturbed points.
    - `unstable`: whether each member is, shape (m,).
    - `decided`: False if the fastest directions are flat to first order.
    """

    state: State
    components: int
    dimension: int
    risk: float
    members: State
    eigenvalues: Complex[np.ndarray, "m n"]
    growth: Float[np.ndarray, " m"]
    unstable: Bool[np.ndarray, " m"]
    decided: bool

    @property
    def stable(self) -> bool:
        """Whether it attracts as a set: no point of it, of those looked at, is unstable."""
        return self.decided and not np.any(self.unstable)

    @property
    def unstable_fraction(self) -> float:
        """The fraction of unstable points among the members."""
        return float(np.mean(self.unstable))

    @property
    def stability(self) -> str:
        """Whether it attracts, in words."""
        if np.all(self.unstable):
            return "unstable"
        if np.any(self.unstable):
            return f"unstable, at {np.sum(self.unstable)} of {len(self.unstable)} points of the family"
        if not self.decided:
            return "undecided: flat to first order"
        return "stable" if self.dimension == 0 else "stable, neutral along the family"

    def __str__(self) -> str:
        return f"{self.stability}; risk {self.risk:.6g}, growth {self.growth.max():.4g}, {_in_short(self.state)}"

    __repr__ = __str__


@dataclasses.dataclass(frozen=True)
class FixedPoints:
    """The fixed points of an ODE, in increasing order of risk; they print as a table.

    **Attributes:**

    - `kinds`: one for each set of components that symmetries map to each other.
    - `symmetries`: how many there are.
    """

    kinds: list[FixedPoint]
    symmetries: int

    def __len__(self) -> int:
        return len(self.kinds)

    def __getitem__(self, number: int) -> FixedPoint:
        return self.kinds[number]

    def __iter__(self) -> Iterator[FixedPoint]:
        return iter(self.kinds)

    @property
    def components(self) -> int:
        """The number of connected components."""
        return sum(kind.components for kind in self.kinds)

    @property
    def stable_components(self) -> int:
        """The number of connected components that attract as a set."""
        return sum(kind.components for kind in self.kinds if kind.stable)

    def __str__(self) -> str:
        rows = [
            f"  {kind.components:10d} {kind.dimension:10d} {kind.risk:11.6g} {kind.growth.max():11.4g}   "
            f"{kind.stability}\n      {_in_short(kind.state)}"
            for kind in self.kinds
        ]
        return "\n".join(
            [
                f"Connected sets of fixed points: {self.components}, of which {self.stable_components} stable; "
                f"{len(self)} up to {self.symmetries} symmetries.",
                "  components  dimension        risk      growth   stability",
                *rows,
            ]
        )

    __repr__ = __str__


def fixed_points(limit: MeanLimit, *, key: PRNGKeyArray, starts: int | State = 256) -> FixedPoints:
    r"""The fixed points of an ODE, grouped into connected families, with the stability of each.

    Levenberg-Marquardt solves $f = 0$ from many starts: random States, the States to which the ODE takes them, and
    points already found, changed by setting a neuron to zero, by replacing a dead neuron by half of another neuron, or
    by a move along the fastest growing direction. It finds States without drift. Points that a symmetry of the drift
    (permutations of neurons, changes of sign, found by trying them) maps to each other count as one. Two points are in
    one family if short steps inside the set of fixed points lead from one to the other.

    Where the drift is smooth, its Jacobian across the family decides about stability. Where the drift has a kink, as
    for clusters that are points at $M_i \cdot \text{means}_c = 0$, points nearby decide: a point is unstable if some
    small perturbation of it moves away, and does not slow down. A coordinate that is zero at a start stays zero in the
    search, because such kinks are where coordinates vanish, and dead neurons are fixed points.

    A search does not prove that the list is complete: with more `starts` there may be more points.

    **Arguments:**

    - `limit`: from [`ode`] or [`gradient_flow`], with constant rates.
    - `key`: random key of the starts and perturbations.
    - `starts`: the number of random starts, a third of them with sparse neurons, a third with neurons along one teacher
      or dead; or States to start from, along a leading axis.

    **Returns:** [`FixedPoints`], a sequence of [`FixedPoint`]; it prints as a table.

    ??? example
        >>> import dimfree, jax
        >>> matrix = dimfree.ode(dimfree.SpikedTensor(order=2, snr=2.0), dimfree.OnlineSGD(1.0))
        >>> for point in dimfree.fixed_points(matrix, key=jax.random.key(0)):
        ...     print(f"{point.risk:z.3f} {point.components} {point.stability}")
        4.000 2 stable
        4.000 1 unstable
        5.000 1 unstable
    """
    check_not_traced("fixed_points", limit=limit, key=key, starts=starts)
    check_mean_limit(limit)
    algorithm = limit.algorithm
    if algorithm.changes:
        raise InvalidInput("A rate that changes with alpha has no fixed points; give a number.")
    check_key(key)
    size = limit.coordinates.size
    require(
        size <= _MOST_COORDINATES,
        f"The State has {size:,} coordinates; fixed points are looked for with a matrix of that many rows and columns "
        f"for each start, which is out of reach beyond {_MOST_COORDINATES:,}. Take a smaller width.",
    )
    check_moves(algorithm)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    if not isinstance(starts, State):
        starts = random_points(limit, positive_integer(starts, "starts"), rng, sparse=True)
    if starts.Q.ndim != 3:
        raise InvalidInput(
            f"starts has leading axes {starts.Q.shape[:-2]}; give a State for each start along one axis."
        )
    starts = check_starts(limit.problem, starts, starts.Q.shape[0], trained=limit.coordinates.readout_size > 0)
    check_state(starts, sphere=algorithm.sphere)
    require(starts.P[:1] == starts.P, "The starts have different teachers; P must be the same for all of them.")
    fixed = FixedSet(limit, jax.tree.map(lambda leaf: leaf[0], starts))
    trials = fixed.pack(random_points(limit, 3, rng, P=fixed.like.P))
    group = find_symmetry_group(limit, fixed.like, fixed.drift, trials)
    points = _search(fixed, fixed.pack(starts), group, rng)
    if not len(points):
        return FixedPoints([], len(group))
    kinds: dict[frozenset[int], list[int]] = {}
    kinked = has_kink(fixed, points, rng)
    for r, row in enumerate(connected(fixed, points, group, kinked)):
        kinds.setdefault(frozenset(row.tolist()), []).append(r)
    members = [_spread(rs, points) for rs in kinds.values()]
    chosen = np.concatenate(members)
    looked_at = iter(
        zip(
            points[chosen],
            fixed.risk(points[chosen]),
            stability(fixed, points[chosen], kinked[chosen], rng),
            strict=True,
        )
    )
    found = [_kind(fixed, len(orbit), [next(looked_at) for _ in rs]) for orbit, rs in zip(kinds, members, strict=True)]
    return FixedPoints(
        sorted(found, key=lambda kind: (round(kind.risk, 9), not kind.stable, kind.dimension)), len(group)
    )


def random_points(
    limit: MeanLimit, number: int, rng: np.random.Generator, *, P: Array | None = None, sparse: bool = False
) -> State:
    """Random States of many norms, along a leading axis.

    **Arguments:**

    - `P`: overlaps of the teachers, the identity if left out.
    - `sparse`: whether two thirds of them are to have neurons that see some of the teachers, or one, or are dead.
    """
    p, k = limit.problem.width, limit.problem.teacher_width
    weights = rng.normal(size=(number, p, k + p)) / np.sqrt(k + p) * np.exp(rng.uniform(-1, 1, size=(number, 1, 1)))
    readout = limit.problem.readout
    if readout is not None:
        readout = np.broadcast_to(readout, (number, readout.shape[-1]))
        readout = rng.normal(size=readout.shape) if limit.coordinates.readout_size else readout
    if sparse:
        style = np.arange(number)[:, None, None] % 3
        some = rng.random((number, p, k)) < 0.5
        one = rng.integers(k, size=(number, p, 1)) == np.arange(k)
        weights[:, :, :k] *= np.choose(style, [np.ones_like(some), some, one])
        alive = (style == 0) | (rng.random((number, p, 1)) < 0.8) | limit.algorithm.sphere
        weights *= alive
        if limit.coordinates.readout_size % p == 0 and limit.coordinates.readout_size:
            readout = readout * np.tile(alive[:, :, 0], (1, limit.coordinates.readout_size // p))
    if limit.algorithm.sphere:
        weights /= np.linalg.norm(weights, axis=2, keepdims=True)
    M = weights[:, :, :k]
    if P is not None:
        values, vectors = np.linalg.eigh(np.asarray(P))
        M = M @ (vectors * np.sqrt(np.maximum(values, 0))).T
        P = jnp.broadcast_to(P, (number, k, k))
    return State(Q=weights @ weights.swapaxes(1, 2), M=M, P=P, readout=readout)


def _search(fixed: FixedSet, starts, group: SymmetryGroup, rng: np.random.Generator) -> Float[np.ndarray, "s n"]:
    """Fixed points near the starts, where the ODE takes random States, and where neurons of those are dead."""

    def add(points, more, alike=_ALIKE):
        return distinct(fixed, np.concatenate([points, fixed.search(more)]), group, alike=alike)

    limit = fixed.limit
    points = add(starts[:0], starts)
    horizon = 10 / np.median(slowest(fixed, fixed.jacobian(points if len(points) else starts[:1])))
    flowing = fixed.pack(random_points(limit, _FLOWING, rng, P=fixed.like.P))
    points = add(points, fixed.flow(flowing, np.array([0.0, horizon]) * np.ones((_FLOWING, 1)))[:, -1])
    new = points
    for _ in range(limit.problem.width):
        more = add(points, np.concatenate([_neighbours(fixed, new), _beside(fixed, new)]))
        points, new = more, more[len(points) :]
        if not len(new):
            break
    return add(points, fixed.wander(points, has_kink(fixed, points, rng), rng), alike=2 * _ALIKE)


def _spread(numbers: list[int], points: Float[np.ndarray, "r n"]) -> list[int]:
    """Some of the points of a family, from its interior to its boundary, where more coordinates are zero."""
    ordered = sorted(numbers, key=lambda r: -np.count_nonzero(points[r]))
    return [ordered[i] for i in np.linspace(0, len(ordered) - 1, min(len(ordered), _MEMBERS)).round().astype(int)]


def _neighbours(fixed: FixedSet, points: Float[np.ndarray, "r n"]) -> Float[np.ndarray, "s n"]:
    """Starts of a search: the points with a neuron dead, and with a dead neuron made half of another."""
    p, state = fixed.like.width, fixed.unpack(points)
    alive = np.diagonal(np.asarray(state.Q), axis1=1, axis2=2) > 0
    first_dead = np.where(alive.all(axis=1), -1, np.argmin(alive, axis=1))
    chosen, mixing = [], []
    for i, j in itertools.product(range(p), repeat=2):
        at = np.flatnonzero(alive[:, j] & ((i == j) | (first_dead == i)) & (not fixed.limit.algorithm.sphere))
        mix = np.eye(p)
        mix[i, j] += -1.0 if i == j else 0.5
        chosen.append(at)
        mixing.append(np.repeat(mix[None], len(at), axis=0))
    mix = np.concatenate(mixing)
    if not len(mix):
        return points[:0]
    old = jax.tree.map(lambda leaf: leaf[np.concatenate(chosen)], state)
    readout = old.readout
    if readout is not None and readout.shape[-1] % p == 0:
        readout = (readout.reshape(len(mix), readout.shape[-1] // p, p) @ mix.swapaxes(1, 2)).reshape(readout.shape)
    return fixed.pack(State(Q=mix @ old.Q @ mix.swapaxes(1, 2), M=mix @ old.M, P=old.P, readout=readout))


def _beside(fixed: FixedSet, points: Float[np.ndarray, "r n"]) -> Float[np.ndarray, "s n"]:
    """Starts of a search: the points, moved either way along their fastest growing direction, by little and by much."""
    values, vectors = np.linalg.eig(fixed.jacobian(points))
    growth = np.real(values)
    fastest = np.argmax(growth, axis=1)[:, None]
    direction = np.real(np.take_along_axis(vectors, fastest[:, None], axis=2)[:, :, 0])
    unstable = np.max(growth, axis=1) > 0
    size = np.linalg.norm(points, axis=1, keepdims=True)
    moves = [points + step * size * direction for step in (-0.1, -0.01, -0.001, 0.001, 0.01, 0.1)]
    return np.concatenate([moved[unstable] for moved in moves])


def _kind(fixed: FixedSet, components: int, members: list[tuple[np.ndarray, float, Stability]]) -> FixedPoint:
    """One row of the result, from coordinates, risk and stability of its members."""
    members = sorted(members, key=lambda member: -member[2].dimension)
    points, risks, found = zip(*members, strict=True)
    states = fixed.unpack(np.array(points))
    return FixedPoint(
        state=jax.tree.map(lambda leaf: leaf[0], states),
        components=components,
        dimension=found[0].dimension,
        risk=float(risks[0]),
        members=states,
        eigenvalues=np.array([member.eigenvalues for member in found]),
        growth=np.array([member.growth for member in found]),
        unstable=np.array([member.unstable for member in found]),
        decided=all(member.decided for member in found),
    )


def _in_short(state: State) -> str:
    """The numbers of a State on a line."""
    parts = {"Q": state.Q, "M": state.M, "readout": state.readout}
    return ", ".join(
        f"{name} = {np.round(np.asarray(value) + 0.0, 3).tolist()}"
        for name, value in parts.items()
        if value is not None
    )
