"""The flow of an ODE in a plane of overlaps: solutions from a grid of starts, and the points where it rests."""

import dataclasses
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..batches import map_in_batches
from ..errors import InvalidInput, positive_number, require
from ..limits import MeanLimit
from ..limits.drift import check_mean_limit
from ..solving import solve
from ..state import State, check_state
from ..trajectory import Outcome, check_start
from .plateau import centre, fixed_point

_GRID = 10  # starts along each axis; even, so that none is on an axis of symmetry
_TIMES = 101
_SAME = 1e-3  # points at rest that are closer than this are one
_AT_REST = 1e-8  # largest drift, in units of the largest on the grid, of a point at rest
_GROWS = 1e-5  # growth, in the same units, above which a point at rest is left


@dataclasses.dataclass(frozen=True, eq=False)
class Portrait:
    """What is seen in a plane of two coordinates (or on the line of one).

    **Attributes:**

    - `plane`: the names of the coordinates.
    - `paths`: solutions in the plane, shape (starts, times, 2 or 1).
    - `rest`: points at rest in the plane, shape (points, 2 or 1).
    - `growth`: the fastest growth rate at each of them, per unit of alpha, shape (points,).
    - `stable`: whether nothing grows there, shape (points,); along a family of such points nothing decays either.
    - `drift`: the first entry of the drift at the starts, shape (starts,).
    """

    plane: tuple[str, ...]
    paths: Float[np.ndarray, "starts times n"]
    rest: Float[np.ndarray, "points n"]
    growth: Float[np.ndarray, " points"]
    stable: Bool[np.ndarray, " points"]
    drift: Float[np.ndarray, " starts"]


def usual_plane(limit: MeanLimit) -> tuple[str, ...]:
    """The plane that tells most: overlaps of two students with a teacher, of one with two, or overlap and norm."""
    problem, sphere = limit.problem, limit.algorithm.sphere
    if problem.teacher_width > 1:
        return "M[0,0]", "M[0,1]"
    if problem.width > 1:
        return "M[0,0]", "M[1,0]"
    return ("M[0,0]",) if sphere else ("M[0,0]", "Q[0,0]")


def portrait(
    limit: MeanLimit,
    plane: tuple[str, ...] | None = None,
    *,
    alpha: float,
    at: State | None = None,
    extent: float | None = None,
) -> Portrait:
    r"""Solutions of an ODE from a grid of starts in a plane of overlaps, and the points at rest that they lead to.

    A start has the given entries of the plane; the other overlaps with teachers are those of `at`, and so is what the
    students have outside the span of the teachers (rescaled where a norm is given, or kept by the sphere). The lines
    are solutions of the whole ODE, projected: where there are more coordinates than two they may cross.

    Points at rest are those that Levenberg-Marquardt finds from the starts and from the ends of the lines; a search is
    no proof. [`fixed_points`] searches farther, and groups them into families.

    **Arguments:**

    - `limit`: from [`ode`] or [`gradient_flow`].
    - `plane`: two entries of M, such as `("M[0,0]", "M[1,0]")`; an entry of M and the norm of a student,
      `("M[0,0]", "Q[0,0]")`; or one entry of M. The usual one if left out.
    - `alpha`: how far the solutions go.
    - `at`: the State whose other overlaps are kept; orthogonal students without any if left out.
    - `extent`: how far the grid goes; a little beyond $\sqrt p$, or 1 on the sphere, if left out.
    """
    check_mean_limit(limit)
    plane = usual_plane(limit) if plane is None else tuple(plane)
    labels = limit.coordinates.labels
    _check_plane(plane, labels)
    positive_number(alpha, "alpha")
    sphere = limit.algorithm.sphere
    at = centre(limit.problem) if at is None else check_start(limit.problem, at, trained=False)
    check_state(at, sphere=sphere)
    if extent is None:
        extent = 0.999 if sphere else 1.2 * float(np.sqrt(limit.problem.width))
    positive_number(extent, "extent")
    entries = [tuple(int(number) for number in re.findall(r"\d+", name)) for name in plane]
    vary = np.linspace(-extent, extent, 4 * _GRID if len(plane) == 1 else _GRID)
    vertical = np.linspace(0.0, extent**2, _GRID + 1)[1:] if plane[-1].startswith("Q") else vary
    grid = vary[:, None] if len(plane) == 1 else np.stack(np.meshgrid(vary, vertical), axis=-1).reshape(-1, 2)
    starts, inside = _lifted(at, grid, plane, entries, sphere=sphere)
    # States that cannot be are replaced, not dropped: the shapes stay, and with them the compiled program.
    starts = jax.tree.map(lambda leaf: leaf[np.where(inside, np.arange(len(grid)), np.argmax(inside))], starts)
    alphas = jnp.linspace(0.0, float(alpha), _TIMES)
    paths, outcome, drift = _paths(limit, starts, alphas)
    shown = np.array([labels.index(name) for name in plane])
    packed = np.asarray(limit.coordinates.pack(paths))
    good = inside & (np.asarray(outcome) == Outcome.COMPLETED)
    if not good.any():
        raise InvalidInput(
            f"All solutions from the plane of {' and '.join(plane)} diverge before alpha = {alpha:g}. Take a smaller "
            "learning rate, or sphere=True."
        )
    near = jax.tree.map(lambda a, b: jnp.concatenate([a, b[:, -1]]), starts, paths)
    rest, growth, left = (np.asarray(array) for array in _rests(limit, near))
    scale = float(np.abs(np.asarray(drift)).max())
    kept = np.isfinite(rest).all(axis=1) & (left < _AT_REST * scale) & np.concatenate([inside, good])
    kept &= _possible(limit, rest, at)
    rest, growth = _distinct(rest[kept], growth[kept])
    return Portrait(
        plane=plane,
        paths=packed[good][:, :, shown],
        rest=rest[:, shown],
        growth=growth,
        stable=growth < _GROWS * scale,
        drift=np.asarray(drift)[inside, shown[0]],
    )


def _check_plane(plane: tuple[str, ...], labels: tuple[str, ...]) -> None:
    known = all(name in labels for name in plane)
    of_overlaps = 1 <= len(set(plane)) == len(plane) <= 2 and all(name.startswith("M") for name in plane)
    student = plane[0][2:].partition(",")[0] if plane else ""
    with_norm = len(plane) == 2 and plane[0].startswith("M") and plane[1] == f"Q[{student},{student}]"
    if not (known and (of_overlaps or with_norm)):
        raise InvalidInput(
            f"plane = {plane} was given; give one or two entries of M, or an entry of M and the norm of its student, "
            f"such as ('M[0,0]', 'Q[0,0]'). The coordinates are {', '.join(labels)}."
        )


def _check_outside(unseen) -> None:
    """Refuse students of which nothing is outside the span of the teachers: no factor of that gives them a norm."""
    require(
        unseen > 1e-12,
        "at has a student inside the span of the teachers, whose norm then follows from its overlaps; give a State "
        "with Q above M P^-1 M^T on the diagonal, or leave at out.",
    )


def _lifted(at: State, grid, plane, entries, *, sphere: bool) -> tuple[State, Bool[np.ndarray, " starts"]]:
    """States with the entries of the grid, and which of them can be."""
    P = np.asarray(at.P)
    M = np.repeat(np.asarray(at.M)[None], len(grid), axis=0)
    old = np.asarray(at.Q) - np.asarray(at.M) @ np.linalg.solve(P, np.asarray(at.M).T)
    for axis, (name, entry) in enumerate(zip(plane, entries, strict=True)):
        if name.startswith("M"):
            M[:, entry[0], entry[1]] = grid[:, axis]
    seen = M @ np.linalg.solve(P, np.swapaxes(M, 1, 2))
    own = np.diagonal(seen, axis1=1, axis2=2)
    unseen = np.maximum(np.diagonal(old), 0.0)
    # The squared factor by which each student's part outside the span of the teachers is multiplied.
    target = np.ones((len(grid), len(old)))
    if sphere:
        _check_outside(unseen)
        target = (1.0 - own) / unseen
    elif plane[-1].startswith("Q"):
        student = entries[-1][0]
        _check_outside(unseen[student])
        target[:, student] = (grid[:, -1] - own[:, student]) / unseen[student]
    inside = np.asarray((target > 1e-9).all(axis=1))
    factor = np.sqrt(np.maximum(target, 1e-9))
    Q = seen + factor[:, :, None] * factor[:, None, :] * old
    if sphere:
        Q[:, np.arange(len(old)), np.arange(len(old))] = 1.0
    readout = None if at.readout is None else np.repeat(np.asarray(at.readout)[None], len(grid), axis=0)
    return State(Q=Q, M=M, P=np.repeat(P[None], len(grid), axis=0), readout=readout), inside


@eqx.filter_jit
def _paths(limit: MeanLimit, starts: State, alphas: Float[Array, " times"]):
    def one(start):
        trajectory = solve(limit, start, alphas, relative_tolerance=1e-5, absolute_tolerance=1e-7)
        return trajectory.state, trajectory.outcome, limit.coordinates.pack(limit.drift(0.0, start))

    return map_in_batches(one, starts)


@eqx.filter_jit
def _rests(limit: MeanLimit, near: State):
    """Points at rest near States, the growth there, and how much they still move."""

    def one(state):
        found, growth = fixed_point(limit, state)
        return limit.coordinates.pack(found), growth, jnp.max(jnp.abs(limit.coordinates.pack(limit.drift(0.0, found))))

    return map_in_batches(one, near)


def _possible(limit: MeanLimit, points, at: State) -> Bool[np.ndarray, " points"]:
    """Whether the overlaps are those of vectors."""
    state = limit.coordinates.unpack(jnp.asarray(np.nan_to_num(points)), at)
    return np.linalg.eigvalsh(np.asarray(state.covariance))[:, 0] > -1e-6


def _distinct(points, growth):
    """One of each group of points that are closer than `_SAME`."""
    _, first = np.unique(np.round(points / _SAME), axis=0, return_index=True)
    kept: list[int] = []
    for index in first:
        if all(np.abs(points[index] - points[other]).max() > _SAME for other in kept):
            kept.append(int(index))
    return points[kept], growth[kept]
