"""The fixed points of an ODE as a set: finding its points, walking inside it, and its connected components."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
import scipy.sparse
import scipy.sparse.csgraph
import scipy.spatial.distance
from jaxtyping import Array, Bool, Float, Int

from ..batches import map_in_batches
from ..limits import MeanLimit
from ..solving import solve
from ..state import State
from .equivariance import SymmetryGroup

SAME = 1e-6  # points closer than this are one
_FIXED = 1e-9  # drift at a fixed point, in units of the size of the State
_FAR = 1e3  # overlaps beyond this are on their way to infinity
_BATCH = 32  # points that are worked on together, always as many: one compiled program
_DESCENT = 40  # iterations of the search; what has not arrived by then is close enough to be put on the set, or lost
_NEWTON = 6  # iterations that put a point back on the set from a short step beside it
_WALK = 12  # steps of a walk, at least
_LONGEST_WALK = 2_000
_STRIDE = 0.15  # of the size of a State, where it wanders along a family
_ROOM = 0.05  # of the distance at which, by the rates of the drift, another fixed point may be
_NEIGHBOURS = 4  # other components that a component tries to walk to in a round
_NEAREST = 1_000  # pairs among which it looks for those
_PATIENCE = 3  # rounds without success after which components are taken to be apart


@dataclasses.dataclass(frozen=True)
class FixedSet:
    """The zeros of a drift, as points in the space of coordinates.

    **Arguments:**

    - `limit`: the ODE.
    - `like`: a State to take what does not move from.
    - `steps`: of the solver, where it is not adaptive.
    """

    limit: MeanLimit
    like: State
    steps: int = 400

    def pack(self, states: State) -> Float[np.ndarray, "*batch n"]:
        """The points of States."""
        return np.asarray(self.limit.coordinates.pack(states))

    def unpack(self, points: Float[np.ndarray, "*batch n"]) -> State:
        """The States of points."""
        return self.limit.coordinates.unpack(jnp.asarray(points), self.like)

    def drift(self, points: Float[np.ndarray, "r n"]) -> Float[np.ndarray, "r n"]:
        """The drift at each point."""
        return self._batched(_drift, points)

    def jacobian(self, points: Float[np.ndarray, "r n"]) -> Float[np.ndarray, "r n n"]:
        """The derivative of the drift at each point."""
        return self._batched(_jacobian, points)

    def risk(self, points: Float[np.ndarray, "r n"]) -> Float[np.ndarray, " r"]:
        """The population risk at each point."""
        return self._batched(_risk_and_lowest, points)[:, 0]

    def flow(
        self, points: Float[np.ndarray, "r n"], alphas: Float[np.ndarray, "r times"]
    ) -> Float[np.ndarray, "r times n"]:
        """Where the ODE takes each point, at its own times."""
        return self._batched(functools.partial(_flow, self.steps), points, alphas)

    def search(self, points: Float[np.ndarray, "r n"]) -> Float[np.ndarray, "s n"]:
        """The fixed points that Levenberg-Marquardt finds from given points; what is exactly zero there stays so."""
        points = self._batched(_levenberg_marquardt, points, points != 0)
        # Damping is slow where the drift has a soft direction; Newton's method is not.
        points, _ = self.project(points, points != 0)
        points, found = self.project(points, points != 0)
        # What is close to zero is put there if it may: zero is where kinks are, and where a neuron is dead.
        for small in (SAME, 1e-4):
            at_zero, still = self.project(points, np.abs(points) > small)
            points, found = np.where(still[:, None], at_zero, points), found | still
        lowest = self._batched(_risk_and_lowest, points)[:, 1]
        return points[found & (lowest > -SAME)]

    def project(
        self, points: Float[np.ndarray, "r n"], free: Bool[np.ndarray, "r n"]
    ) -> tuple[Float[np.ndarray, "r n"], Bool[np.ndarray, " r"]]:
        """Fixed points next to given points, and whether there are any; coordinates that are not free are zero."""
        points = self._batched(_newton, points, free)
        # Where the drift vanishes to higher order it is small long before the point is reached; steps are not.
        return points[:, 0], self._is_fixed(points[:, 0]) & (np.linalg.norm(points[:, 1], axis=1) < SAME)

    def walk(
        self, starts: Float[np.ndarray, "r n"], ends: Float[np.ndarray, "r n"], kinked: Bool[np.ndarray, " r"]
    ) -> Bool[np.ndarray, " r"]:
        """Whether one can walk from start to end without leaving the set: short steps along it, each put back.

        A step goes along the null space of the Jacobian, as straight to the end as that allows. Putting back may move
        a point by a fraction of the step only, and less where the drift has a slow direction, along which another
        component may be near: there are no jumps. Where the drift has kinks, what is zero at both ends stays so.
        """
        points, free = starts.copy(), (starts != 0) | (ends != 0) | ~kinked[:, None]
        size = np.linalg.norm(starts, axis=1) + np.linalg.norm(ends, axis=1)
        room = _ROOM * np.minimum(_stiffness(self.jacobian(starts)), _stiffness(self.jacobian(ends))) * size
        length = np.minimum(np.linalg.norm(ends - starts, axis=1) / _WALK, 0.5 * np.sqrt(room * size))
        room = np.minimum(room, 0.5 * length)
        walking, arrived = np.ones(len(starts), bool), np.zeros(len(starts), bool)
        for _ in range(_LONGEST_WALK):
            at = np.flatnonzero(walking)
            if not len(at):
                break
            left = ends[at] - points[at]
            distance = np.linalg.norm(left, axis=1)
            along = _along_null_space(self.jacobian(points[at]), left)
            possible = np.linalg.norm(along, axis=1)
            stride = np.minimum(0.5 * possible, length[at])
            guess = points[at] + along * (stride / np.maximum(possible, 1e-300))[:, None]
            new, fixed = self.project(guess, free[at])
            nearer = (np.linalg.norm(ends[at] - new, axis=1) < distance - 0.01 * stride) & (possible > 0.01 * distance)
            inside = fixed & nearer & (np.linalg.norm(new - guess, axis=1) <= room[at])
            points[at] = new
            arrived[at] = inside & (np.linalg.norm(new - ends[at], axis=1) < 0.25 * room[at])
            walking[at] = inside & ~arrived[at]
        return arrived

    def wander(
        self, points: Float[np.ndarray, "r n"], kinked: Bool[np.ndarray, " r"], rng: np.random.Generator
    ) -> Float[np.ndarray, "s n"]:
        """Other points of the families that the points are in, where they are."""
        heading, met = rng.normal(size=points.shape), [points[:0]]
        for _ in range(_WALK):
            along = _along_null_space(self.jacobian(points), heading)
            able = np.linalg.norm(along, axis=1) > SAME
            points, kinked, along = points[able], kinked[able], along[able]
            length = _STRIDE * np.linalg.norm(points, axis=1)
            guess = points + along * (length / np.linalg.norm(along, axis=1))[:, None]
            new, fixed = self.project(guess, (points != 0) | ~kinked[:, None])
            able = fixed & (np.linalg.norm(new - guess, axis=1) < 0.5 * length)
            points, kinked, heading = new[able], kinked[able], (new - points)[able]
            met.append(points)
        return np.concatenate(met)

    def family_dimension(
        self, points: Float[np.ndarray, "r n"], kinked: Bool[np.ndarray, " r"]
    ) -> Int[np.ndarray, " r"]:
        """In how many independent directions the set extends from each point.

        Candidates are the null directions of the Jacobian; what counts is where a step along one, put back, ends.
        """
        size = 1e-4 * np.linalg.norm(points, axis=1)
        _, values, rows = np.linalg.svd(self.jacobian(points))
        owner, number = np.nonzero(values <= SAME * values[:, :1])
        steps = rows[owner, number]
        owner, steps = np.concatenate([owner, owner]), np.concatenate([steps, -steps])
        guess = points[owner] + size[owner, None] * steps
        new, fixed = self.project(guess, (np.abs(guess) > SAME * size[owner, None]) | ~kinked[owner, None])
        displaced = (new - points[owner]) / np.where(size > 0, size, 1.0)[owner, None]
        crossed = np.any(new * points[owner] < 0, axis=1) & kinked[owner]  # a kink: that is another family, or its end
        kept = fixed & (np.linalg.norm(displaced, axis=1) < 2) & ~crossed
        return np.array([_rank(displaced[kept & (owner == r)]) for r in range(len(points))], int)

    def _is_fixed(self, points) -> Bool[np.ndarray, " r"]:
        size = 1 + np.abs(points).max(axis=1, initial=0.0)
        return (np.linalg.norm(self.drift(points), axis=1) < _FIXED * size) & (size < _FAR)

    def _batched(self, function, *arrays) -> np.ndarray:
        """A compiled function of points, a fixed number of them at a time."""
        number = len(arrays[0])
        padded = -number % _BATCH if number else _BATCH
        arrays = [np.concatenate([array, np.ones((padded, *array.shape[1:]), array.dtype)]) for array in arrays]
        if not number:
            shape = eqx.filter_eval_shape(function, self.limit, self.like, *arrays).shape
            return np.zeros((0, *shape[1:]))
        pieces = zip(*(np.split(array, len(array) // _BATCH) for array in arrays), strict=True)
        return np.concatenate([np.asarray(function(self.limit, self.like, *piece)) for piece in pieces])[:number]


def _stiffness(jacobians: Float[np.ndarray, "r n n"]) -> Float[np.ndarray, " r"]:
    """The smallest rate of the drift at each point, apart from zero, as a fraction of the largest."""
    values = np.linalg.svd(jacobians, compute_uv=False)
    return np.min(np.where(values > SAME * values[:, :1], values, np.inf), axis=1) / np.maximum(values[:, 0], 1e-300)


def _along_null_space(jacobians: Float[np.ndarray, "r n n"], vectors: Float[np.ndarray, "r n"]):
    """The part of each vector that is in the null space."""
    _, values, rows = np.linalg.svd(jacobians)
    null = rows * (values <= 1e-5 * values[:, :1])[:, :, None]
    return np.einsum("rki,rkj,rj->ri", null, null, vectors)


def _rank(rows: Float[np.ndarray, "m n"]) -> int:
    return int(np.sum(np.linalg.svd(rows, compute_uv=False) > 0.1)) if len(rows) else 0


@eqx.filter_jit
def _drift(limit: MeanLimit, like: State, points: Float[Array, "r n"]):
    return map_in_batches(lambda point: limit.vector_field(0.0, point, like), points)


@eqx.filter_jit
def _jacobian(limit: MeanLimit, like: State, points: Float[Array, "r n"]):
    return map_in_batches(jax.jacfwd(lambda point: limit.vector_field(0.0, point, like)), points)


@eqx.filter_jit
def _risk_and_lowest(limit: MeanLimit, like: State, points: Float[Array, "r n"]):
    """The risk, and the lowest eigenvalue of the overlaps in units of the largest."""
    states = limit.coordinates.unpack(points, like)
    eigenvalues = jnp.linalg.eigvalsh(states.covariance)
    return jnp.stack([limit.problem.risk(states), eigenvalues[:, 0] / eigenvalues[:, -1]], axis=1)


@eqx.filter_jit
def _flow(steps: int, limit: MeanLimit, like: State, points: Float[Array, "r n"], alphas: Float[Array, "r times"]):
    def path(point_and_alphas):
        point, alphas = point_and_alphas
        start = limit.coordinates.unpack(point, like)
        return limit.coordinates.pack(solve(limit, start, alphas, steps=steps).state)

    return map_in_batches(path, (points, alphas))


@eqx.filter_jit
def _levenberg_marquardt(limit: MeanLimit, like: State, points: Float[Array, "r n"], free: Bool[Array, "r n"]):
    solver = optimistix.LevenbergMarquardt(rtol=1e-10, atol=1e-10)

    def descend(point_and_free):
        point, free = point_and_free

        def field(point, _):
            return limit.vector_field(0.0, jnp.where(free, point, 0.0), like)

        end = optimistix.least_squares(field, solver, point, max_steps=_DESCENT, throw=False).value
        return jnp.where(free, end, 0.0)

    return map_in_batches(descend, (points, free))


@eqx.filter_jit
def _newton(limit: MeanLimit, like: State, points: Float[Array, "r n"], free: Bool[Array, "r n"]):
    """Newton's method with the smallest step, hardly damped: it leaves the position along a family alone.

    It returns the point and the step that would be next.
    """

    def put_back(point_and_free):
        point, free = point_and_free

        def field(point):
            return limit.vector_field(0.0, jnp.where(free, point, 0.0), like)

        def step(point):
            jacobian = jax.jacfwd(field)(point)
            normal = jacobian.T @ jacobian
            damping = (1e-10 * jnp.trace(normal) + 1e-30) * jnp.eye(point.size)
            return jnp.where(free, jnp.linalg.solve(normal + damping, jacobian.T @ field(point)), 0.0)

        point = jnp.where(free, point, 0.0)
        point = jax.lax.fori_loop(0, _NEWTON, lambda _, point: point - step(point), point)
        return jnp.stack([point, step(point)])

    return map_in_batches(put_back, (points, free))


def distinct(
    fixed: FixedSet, points: Float[np.ndarray, "r n"], group: SymmetryGroup, *, alike: int
) -> Float[np.ndarray, "s n"]:
    """The points without those that a symmetry makes of an earlier one, and not too many of a family.

    **Arguments:**

    - `alike`: how many to keep of those with the same risk, as many growing directions and the same signs of
      coordinates, up to symmetries.
    """
    kept: list[np.ndarray] = []
    seen: dict[tuple[float, int, bytes], list[np.ndarray]] = {}
    rates = np.linalg.eigvals(fixed.jacobian(points)).real
    growing = np.sum(rates > SAME * np.abs(rates).max(axis=1, keepdims=True, initial=0.0), axis=1)
    for point, risk, index in zip(points, fixed.risk(points), growing, strict=True):
        images = group.images(point[None])[0]
        signs = np.sign(np.where(np.abs(images) < SAME, 0, images)).astype(np.int8)
        others = seen.setdefault((round(float(risk), 7), int(index), max(row.tobytes() for row in signs)), [])
        if len(others) < alike and not any(np.linalg.norm(o - point, axis=1).min() < SAME for o in others):
            kept.append(point)
            others.append(images)
    return np.array(kept).reshape(-1, points.shape[1])


def connected(
    fixed: FixedSet, points: Float[np.ndarray, "r n"], group: SymmetryGroup, kinked: Bool[np.ndarray, " r"]
) -> Int[np.ndarray, "r g"]:
    """The connected component of each image of each point, as a number.

    Walks are tried from the points themselves only: a walk from x to an image g y is one from h x to h g y, for every
    symmetry h. The closest pairs are tried first, until no walk succeeds.
    """
    number, size = len(points), len(group)
    images = group.images(points)
    nodes = images.reshape(-1, points.shape[1])
    unmoved = np.argwhere(np.linalg.norm(images - points[:, None], axis=2) < SAME)
    links = [(int(r), int(r * size + g)) for r, g in unmoved]
    labels = _labels(links, group, number)
    tried: set[tuple[int, int]] = set()
    risks, failures = fixed.risk(points).round(6), 0
    while failures < _PATIENCE:
        pairs = _closest_pairs(points, nodes, labels, risks, tried)
        if not pairs:
            break
        tried.update(pairs)
        starts, ends = np.array(pairs).T
        one, other = points[starts], nodes[ends]
        # Into the boundary of a family, where a neuron is dead, not out of it: there is no derivative there.
        outward = np.sum(one != 0, axis=1) < np.sum(other != 0, axis=1)
        walked = fixed.walk(
            np.where(outward[:, None], other, one),
            np.where(outward[:, None], one, other),
            kinked[starts] | kinked[ends // size],
        )
        links += [pair for pair, success in zip(pairs, walked, strict=True) if success]
        failures = 0 if np.any(walked) else failures + 1
        labels = _labels(links, group, number)
    return labels


def _closest_pairs(points, nodes, labels, risks, tried: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """For each component that has points in it, the closest pairs of its points and images in other components."""
    flat = labels.reshape(-1)
    pairs = []
    for label in np.unique(labels[:, 0]):
        own = np.flatnonzero(labels[:, 0] == label)
        distances = scipy.spatial.distance.cdist(points[own], nodes)
        # What symmetries make of the component itself, and points of the same risk, may be far and yet be reached.
        images = np.isin(flat, labels[own])
        same_risk = np.repeat(np.isin(risks, risks[own]), labels.shape[1])
        for kind in (images, ~images & same_risk, ~images & ~same_risk):
            outside = kind & (flat != label)
            best: dict[int, tuple[float, int, int]] = {}
            for at in np.argsort(np.where(outside, distances, np.inf), axis=None)[:_NEAREST]:
                r, end = int(own[at // len(flat)]), int(at % len(flat))
                if outside[end] and (r, end) not in tried and flat[end] not in best:
                    best[flat[end]] = (float(distances.reshape(-1)[at]), r, end)
            pairs += [(r, end) for _, r, end in sorted(best.values())[:_NEIGHBOURS]]
    return pairs


def _labels(links: list[tuple[int, int]], group: SymmetryGroup, number: int) -> Int[np.ndarray, "r g"]:
    """Components of the graph of all images, given the links of the points themselves."""
    size = len(group)
    one, other = [], []
    for r, end in links:
        q, g = divmod(end, size)
        one.append(r * size + np.arange(size))
        other.append(q * size + group.after(g))
    edges = (np.concatenate(one), np.concatenate(other))
    graph = scipy.sparse.coo_matrix((np.ones(len(edges[0])), edges), shape=(number * size, number * size))
    return scipy.sparse.csgraph.connected_components(graph, directed=False)[1].reshape(number, size)
