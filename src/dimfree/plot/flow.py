"""The flow of an ODE in a plane of overlaps, with the points where it rests."""

import itertools
from collections.abc import Sequence

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D

from ..algorithms.schedules import Schedule
from ..analysis.portrait import Portrait, portrait
from ..errors import InvalidInput
from ..limits import MeanLimit
from ..printing import in_a_line
from ..state import State
from ..trajectory import Trajectory
from .drawing_style import in_style

_LINE, _HEAD, _REST = "#A9BCC9", "#7F9BAE", "#222222"
_TRAJECTORIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


def flow(
    limit: MeanLimit | Portrait,
    plane: tuple[str, ...] | None = None,
    *,
    alpha: float | None = None,
    at: State | None = None,
    trajectories: Sequence[Trajectory] = (),
    labels: Sequence[str] | None = None,
    axes: Axes | None = None,
) -> Axes:
    """Solutions of an ODE in a plane of two overlaps, and the points at rest: full where nothing grows, else open.

    The lines are solutions of the whole ODE from a grid of starts, projected on the plane. For one overlap it is the
    drift over it, with its zeros. Points that lie close together belong to a family.

    **Arguments:**

    - `limit`: from [`ode`] or [`gradient_flow`].
    - `plane`: two entries of M, such as `("M[0,0]", "M[1,0]")`; an entry of M and the norm of its student,
      `("M[0,0]", "Q[0,0]")`; or one entry of M. If left out, what tells most.
    - `alpha`: how far the lines go; 5 / learning rate if left out.
    - `at`: the State whose other overlaps the starts have; orthogonal students without any if left out.
    - `trajectories`, `labels`: solutions and simulations to draw over it, and their names.
    - `axes`: matplotlib axes to draw in; new ones if left out.

    **Returns:** the axes.
    """
    if isinstance(limit, Portrait):
        seen = limit
    elif isinstance(limit, MeanLimit):
        seen = portrait(limit, plane, alpha=_horizon(limit) if alpha is None else alpha, at=at)
    else:
        raise InvalidInput(f"plot.flow was given {in_a_line(limit)}; pass a limit, such as dimfree.ode(problem, sgd).")
    names = [f"trajectory {number + 1}" for number in range(len(trajectories))] if labels is None else list(labels)
    if len(names) != len(trajectories):
        raise InvalidInput(f"{len(names)} labels were given for {len(trajectories)} trajectories; give one for each.")
    with in_style():
        if axes is None:
            _, axes = plt.subplots(figsize=(6.0, 5.2))
        if len(seen.plane) == 1:
            _draw_line(axes, seen)
        else:
            _draw_plane(axes, seen, trajectories)
        axes.set_xlabel(seen.plane[0])
        handles = [
            Line2D([], [], color=colour, linewidth=1.9, label=name)
            for name, colour in zip(names, itertools.cycle(_TRAJECTORIES), strict=False)
            if len(seen.plane) > 1
        ]
        for stable, words in ((True, "at rest, stable"), (False, "at rest, unstable")):
            if (seen.stable == stable).any():
                handles.append(Line2D([], [], linestyle="none", label=words, **_marker(stable)))
        if handles:
            axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=4, borderaxespad=0.2)
    return axes


def _horizon(limit: MeanLimit) -> float:
    rate = limit.algorithm.learning_rate
    if isinstance(rate, Schedule):
        raise InvalidInput("The learning rate changes with time; say with alpha how far the lines go.")
    return 5 / max(float(rate), 1e-6)


def _marker(stable: bool) -> dict:
    face = _REST if stable else "white"
    return {"marker": "o", "markersize": 7.5, "color": face, "markeredgecolor": _REST, "markeredgewidth": 2.0}


def _draw_line(axes: Axes, seen: Portrait) -> None:
    x = seen.paths[:, 0, 0]
    order = np.argsort(x)
    x, drift = x[order], seen.drift[order]
    axes.axhline(0.0, color="#444444", linewidth=0.9)
    axes.plot(x, drift, color="#0072B2")
    # Arrows on the axis: which way it moves.
    at = slice(1, None, 3)
    axes.quiver(
        x[at], 0 * x[at], np.sign(drift[at]), 0 * x[at], color=_LINE, pivot="mid", scale=32, width=0.006, zorder=2
    )
    for stable in (False, True):  # where they are close, what attracts is seen
        there = seen.rest[seen.stable == stable, 0]
        axes.plot(there, 0 * there, zorder=5 + stable, linestyle="none", **_marker(stable))
    axes.set_ylabel(f"drift of {seen.plane[0]}, per unit of alpha")


def _draw_plane(axes: Axes, seen: Portrait, trajectories: Sequence[Trajectory]) -> None:
    paths = seen.paths
    first = paths[:, 0]
    edge = [(float(first[:, i].min()), float(first[:, i].max())) for i in range(2)]
    room = [0.06 * (high - low) for low, high in edge]
    axes.add_collection(LineCollection(list(paths), colors=_LINE, linewidths=0.9, zorder=1), autolim=False)
    _arrows(axes, paths)
    for trajectory, colour in zip(trajectories, itertools.cycle(_TRAJECTORIES), strict=False):
        x, y = (_entry(trajectory, name) for name in seen.plane)
        many = trajectory.runs is not None
        axes.plot(
            np.atleast_2d(x).T,
            np.atleast_2d(y).T,
            color=colour,
            linewidth=0.8 if many else 2.2,
            alpha=0.5 if many else 1.0,
            zorder=2 if many else 3,
        )
        axes.plot(np.atleast_2d(x)[0, 0], np.atleast_2d(y)[0, 0], marker="s", markersize=5, color=colour, zorder=4)
    for stable in (False, True):  # where they are close, what attracts is seen
        there = seen.rest[seen.stable == stable]
        axes.plot(there[:, 0], there[:, 1], zorder=5 + stable, linestyle="none", **_marker(stable))
    axes.set_xlim(edge[0][0] - room[0], edge[0][1] + room[0])
    axes.set_ylim(edge[1][0] - room[1], edge[1][1] + room[1])
    axes.set_ylabel(seen.plane[1])


def _arrows(axes: Axes, paths: np.ndarray) -> None:
    """A head on each line, after a third of its length."""
    lengths = np.concatenate(
        [np.zeros((len(paths), 1)), np.cumsum(np.linalg.norm(np.diff(paths, axis=1), axis=2), axis=1)], axis=1
    )
    long = lengths[:, -1] > 1e-3
    at = np.argmax(lengths >= lengths[:, -1:] / 3, axis=1)[long]
    tip = paths[long][np.arange(len(at)), at]
    back = paths[long][np.arange(len(at)), np.maximum(at - 1, 0)]
    way = tip - back
    size = np.linalg.norm(way, axis=1, keepdims=True)
    moving = size[:, 0] > 0
    way, tip = (way / np.where(size > 0, size, 1.0))[moving], tip[moving]
    axes.quiver(
        tip[:, 0], tip[:, 1], way[:, 0], way[:, 1], angles="xy", color=_HEAD, pivot="tip", scale=60, width=0.0035,
        headwidth=5, zorder=1.5,
    )  # fmt: skip


def _entry(trajectory: Trajectory, name: str) -> np.ndarray:
    indices = tuple(int(index) for index in name[2:-1].split(","))
    return np.asarray(getattr(trajectory.state, name[0]))[(..., *indices)]
