"""Theory as lines, simulations as dots, over alpha."""

import dataclasses
import itertools
import re
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ..errors import InvalidInput, flag
from ..printing import in_a_line
from ..trajectory import Outcome, Trajectory
from .drawing_style import in_style

_ENTRIES = ("M", "Q", "readout")
QUANTITIES = ("risk", "accuracy", *_ENTRIES)
_DOTS = 26  # markers along a simulated curve
FEW = 5  # with fewer runs than this a band means little, and the runs are drawn one by one
_NAMED = 8  # with more entries than this the legend names the first and the last
_CLOCKS = {"alpha": r"$\alpha$ = samples / $d$", "time": r"time = learning rate $\times$ steps"}
_LINES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v")
_ENDED = {
    Outcome.STOPPED: "stopped",
    Outcome.DIVERGED: "diverged",
    Outcome.STEP_LIMIT: "ran out of solver steps",
}


def compare(
    *trajectories: Trajectory,
    quantity: Any = "risk",
    labels: Sequence[str] | None = None,
    log: bool = False,
    axes: Axes | None = None,
) -> Axes:
    """Theory and simulation in one picture: the solutions of limits as lines, simulations as dots, over alpha.

    Of many runs the mean is drawn, with a band from the 10% to the 90% quantile; fewer than five are drawn one by one.
    Runs that stopped or diverged are left out of the mean; each is drawn thin, up to a cross where it ended, and the
    legend counts them. A solution of [`linear_noise`] has a band of two standard deviations around its overlaps, one of
    [`dmft`] a band of two standard errors.

    **Arguments:**

    - `trajectories`: any number of them, from [`solve`] and [`simulate`], over one clock. Those of one problem and
      algorithm share a colour where there are several.
    - `quantity`: `"risk"`; `"M"`, `"Q"`, `"readout"`, with one colour for each entry; or what `Trajectory.observe`
      takes and is a number: `"accuracy"`, a function of one sample or of a State.
    - `labels`: a name for each trajectory, for the legend; made from how it was computed if left out.
    - `log`: whether the risk, or what is observed, has a logarithmic axis.
    - `axes`: matplotlib axes to draw in; new ones if left out.

    **Returns:** the axes.
    """
    log = flag(log, "log")
    _check(trajectories, quantity, labels, log)
    names = list(labels) if labels is not None else [_describe(trajectory) for trajectory in trajectories]
    curves = [_curves(trajectory, quantity) for trajectory in trajectories]
    entries = sorted({name: None for curve in curves for name in curve}, key=_indices)
    with in_style():
        cycle = _cycle()
        if axes is None:
            _, axes = plt.subplots()
        if log:
            axes.set_yscale("log")
        colours = _entry_colours(entries, cycle) if _of_entries(quantity) else {}
        looks = _looks(trajectories, cycle, by_entry=bool(colours))
        handles: list[Any] = []
        for trajectory, look, curve in zip(trajectories, looks, curves, strict=True):
            for entry, (values, deviation) in curve.items():
                _draw(
                    axes,
                    trajectory,
                    values,
                    deviation,
                    dataclasses.replace(look, colour=colours.get(entry, look.colour)),
                )
            handles.append(_handle(look, trajectory, deviation=any(sd is not None for _, sd in curve.values())))
        named = _named(entries, colours)
        handles += [Line2D([], [], color=colour, linewidth=5, solid_capstyle="butt") for _, colour in named]
        axes.set_xlabel(_CLOCKS[trajectories[0].clock])
        axes.set_ylabel(f"overlaps ${quantity}$" if quantity in ("M", "Q") else _name(quantity))
        _bound(axes, trajectories, curves, log=log)
        axes.legend(handles, [*names, *(name for name, _ in named)], ncols=2 if len(handles) > 6 else 1)
    return axes


def _check(trajectories: Sequence[Trajectory], quantity: Any, labels: Sequence[str] | None, log: bool) -> None:
    if not trajectories:
        raise InvalidInput(
            "compare was given nothing to draw; pass Trajectories, from dimfree.solve or dimfree.simulate."
        )
    for trajectory in trajectories:
        if not isinstance(trajectory, Trajectory):
            raise InvalidInput(
                f"compare was given {in_a_line(trajectory)}; pass Trajectories, from dimfree.solve or dimfree.simulate."
            )
        if trajectory.alpha.ndim != 1:
            raise InvalidInput("This trajectory was made under vmap; take one cell of it (jax.tree.map) and draw that.")
    if len({trajectory.clock for trajectory in trajectories}) > 1:
        raise InvalidInput(
            "compare was given trajectories over alpha and over time; they have no common axis, so draw them apart."
        )
    if quantity not in QUANTITIES and not callable(quantity):
        raise InvalidInput(
            f"quantity = {quantity!r} was given; choose one of {', '.join(QUANTITIES)}, or give a function of a State "
            "or of one sample."
        )
    if quantity == "readout" and any(trajectory.state.readout is None for trajectory in trajectories):
        raise InvalidInput("quantity = 'readout' was given, but the problem has no readout; choose risk, M or Q.")
    if log and _of_entries(quantity):
        raise InvalidInput(
            f"log=True was given with quantity = {quantity!r}, whose entries change sign; it is for the risk."
        )
    if labels is not None and (isinstance(labels, str) or len(labels) != len(trajectories)):
        number = "one string was" if isinstance(labels, str) else f"{len(labels)} labels were"
        raise InvalidInput(
            f"{number} given for {len(trajectories)} trajectories; labels is a list with a name for each."
        )


# What is drawn.


def _of_entries(quantity: Any) -> bool:
    """Whether it has several entries, which may change their sign."""
    return isinstance(quantity, str) and quantity in _ENTRIES


def _name(quantity: Any) -> str:
    name = quantity if isinstance(quantity, str) else getattr(quantity, "__name__", "<")
    return "observed" if name.startswith("<") else name


def _curves(trajectory: Trajectory, quantity: Any) -> dict[str, tuple[np.ndarray, np.ndarray | None]]:
    """Each entry by name: values of shape (times,) or (runs, times), and their standard deviation or None."""
    deviations = trajectory.deviations
    if not _of_entries(quantity):
        values = np.asarray(trajectory.risk if quantity == "risk" else trajectory.observe(quantity))
        if values.ndim != trajectory.state.M.ndim - 2:
            shape = values.shape[trajectory.state.M.ndim - 2 :]
            raise InvalidInput(f"quantity is an array of shape {shape} at each State; only a number is drawn.")
        return {_name(quantity): (values, deviations.get("risk") if quantity == "risk" else None)}
    array = np.asarray(getattr(trajectory.state, quantity))
    if quantity == "readout":
        indices = [(i,) for i in range(array.shape[-1])]
    else:
        rows, columns = array.shape[-2:]
        indices = [(i, j) for i in range(rows) for j in range(columns) if quantity == "M" or i <= j]
    named = {f"{quantity}[{','.join(map(str, index))}]": index for index in indices}
    return {name: (array[(..., *index)], deviations.get(name)) for name, index in named.items()}


def _simulated(trajectory: Trajectory) -> bool:
    made_by = dict(trajectory.provenance)
    return "simulation" in made_by or ("limit" not in made_by and trajectory.runs is not None)


def _describe(trajectory: Trajectory) -> str:
    """How a trajectory was made, and how its runs ended, for the legend."""
    made_by = dict(trajectory.provenance)
    if _simulated(trajectory):
        words = "simulation" + (f", d = {int(made_by['d']):,}" if "d" in made_by else "")
        unit = "runs"
    else:
        words, unit = made_by.get("limit", "theory"), "paths"
    outcomes = np.atleast_1d(np.asarray(trajectory.outcome))
    if trajectory.runs is not None:
        words += f", {trajectory.runs} {unit if trajectory.runs > 1 else unit[:-1]}"
    for outcome, word in _ENDED.items():
        count = int(np.sum(outcomes == outcome))
        if not count:
            continue
        if trajectory.runs is None:
            clock = r"$\alpha$" if trajectory.clock == "alpha" else trajectory.clock
            words += f" ({word} at {clock} = {float(trajectory.stopped_at):.3g})"
        else:
            words += f" ({count} {word})"
    if trajectory.runs is not None and np.sum(outcomes == Outcome.COMPLETED) >= FEW:
        words += ": mean, 10-90%"
    return words


# How it looks.


@dataclasses.dataclass(frozen=True)
class _Look:
    colour: Any
    line: Any
    marker: str
    dots: bool
    above: float  # drawing order: theory over simulations


def _cycle() -> list[str]:
    return [step["color"] for step in matplotlib.rcParams["axes.prop_cycle"]]


def _looks(trajectories: Sequence[Trajectory], cycle: list[str], *, by_entry: bool) -> list[_Look]:
    """A colour for each trajectory, or for each problem and algorithm where there are several."""
    made_by = [dict(trajectory.provenance) for trajectory in trajectories]
    groups = [(made.get("problem"), made.get("algorithm")) for made in made_by]
    distinct = list(dict.fromkeys(groups))
    lines = {group: itertools.cycle(_LINES) for group in [*distinct, None]}
    markers = {group: itertools.cycle(_MARKERS) for group in [*distinct, None]}
    looks = []
    for index, (trajectory, group) in enumerate(zip(trajectories, groups, strict=True)):
        dots = _simulated(trajectory)
        colour = "#444444" if by_entry else cycle[(distinct.index(group) if len(distinct) > 1 else index) % len(cycle)]
        within = None if by_entry else group
        looks.append(
            _Look(
                colour=colour,
                line="none" if dots else next(lines[within]),
                marker=next(markers[within]) if dots else "none",
                dots=dots,
                above=2.0 if dots else 3.0,
            )
        )
    return looks


def _indices(name: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", name))


def _entry_colours(entries: list[str], cycle: list[str]) -> dict[str, Any]:
    if len(entries) <= len(cycle):
        return dict(zip(entries, cycle, strict=False))
    shades = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.9, len(entries)))
    return {entry: tuple(shade) for entry, shade in zip(entries, shades, strict=True)}


def _named(entries: list[str], colours: dict[str, Any]) -> list[tuple[str, Any]]:
    """The entries that the legend names, with their colours."""
    if not colours:
        return []
    if len(entries) <= _NAMED:
        return [(entry, colours[entry]) for entry in entries]
    return [(f"{entries[0]} ...", colours[entries[0]]), (f"... {entries[-1]}", colours[entries[-1]])]


# Drawing.


def _draw(axes: Axes, trajectory: Trajectory, values: np.ndarray, deviation: np.ndarray | None, look: _Look) -> None:
    alpha = np.asarray(trajectory.alpha)
    every = max(1, (len(alpha) - 1) // (_DOTS - 1))
    dots = {"marker": look.marker, "markevery": every, "markeredgecolor": "white", "markeredgewidth": 0.6}
    line = {"color": look.colour, "linestyle": look.line, **(dots if look.dots else {})}
    if trajectory.runs is None:
        reached, end = _until(trajectory, alpha, values)
        axes.plot(*reached, zorder=look.above, **line)
        _cross(axes, end, look)
        if deviation is not None:
            low, high = values - 2 * deviation, values + 2 * deviation
            axes.fill_between(alpha, low, high, color=look.colour, alpha=0.2, linewidth=0, zorder=1)
        return
    completed = np.asarray(trajectory.outcome) == Outcome.COMPLETED
    for run in np.flatnonzero(~completed):
        reached, end = _until(trajectory, alpha, values[run], run)
        axes.plot(*reached, color=look.colour, linewidth=0.8, alpha=0.5, zorder=1.5)
        _cross(axes, end, look)
    if not completed.any():
        return
    kept = values[completed]
    axes.plot(alpha, kept.mean(axis=0), zorder=look.above, **line)
    if len(kept) >= FEW:
        low, high = np.quantile(kept, [0.1, 0.9], axis=0)
        axes.fill_between(alpha, low, high, color=look.colour, alpha=0.2, linewidth=0, zorder=1)
    elif len(kept) > 1:
        axes.plot(alpha, kept.T, color=look.colour, linewidth=0.8, alpha=0.5, zorder=1)


def _until(trajectory: Trajectory, alpha: np.ndarray, values: np.ndarray, run: int | np.integer | tuple = ()):
    """The part of a run before it ended, and the point where it did (None if it completed)."""
    if np.asarray(trajectory.outcome)[run] == Outcome.COMPLETED:
        return (alpha, values), None
    end = float(np.asarray(trajectory.stopped_at)[run])
    before = alpha < end
    # After its end a run repeats its last State, so the last value is the one that it ended with.
    alpha, values = np.append(alpha[before], end), np.append(values[before], values[-1])
    return (alpha, values), (end, values[-1])


def _cross(axes: Axes, point: tuple[float, float] | None, look: _Look) -> None:
    if point is not None:
        axes.plot(*point, marker="x", markersize=7, markeredgewidth=1.8, color=look.colour, linestyle="none", zorder=4)


def _handle(look: _Look, trajectory: Trajectory, *, deviation: bool) -> Any:
    marker = {"marker": look.marker, "markeredgecolor": "white", "markeredgewidth": 0.6} if look.dots else {}
    line = Line2D([], [], color=look.colour, linestyle=look.line, **marker)
    completed = int(np.sum(np.asarray(trajectory.outcome) == Outcome.COMPLETED))
    band = deviation or (trajectory.runs is not None and completed >= FEW)
    return (Patch(facecolor=look.colour, alpha=0.2, linewidth=0), line) if band else line


def _bound(axes: Axes, trajectories: Sequence[Trajectory], curves: Sequence[dict], *, log: bool) -> None:
    """Keep runs that diverged from setting the scale for all."""
    outcomes = [np.atleast_1d(np.asarray(trajectory.outcome)) for trajectory in trajectories]
    if not any((outcome == Outcome.DIVERGED).any() for outcome in outcomes):
        return
    highest, lowest = -np.inf, np.inf
    for outcome, curve in zip(outcomes, curves, strict=True):
        for values, _ in curve.values():
            many = values.reshape(len(outcome), -1)
            tame = np.concatenate([many[outcome != Outcome.DIVERGED].ravel(), many[:, 0]])
            highest, lowest = max(highest, tame.max()), min(lowest, tame.min())
    room = max(highest - lowest, abs(highest), 1e-12)
    bottom, top = axes.get_ylim()
    if log:
        axes.set_ylim(top=min(top, 10 * highest))
    else:
        axes.set_ylim(max(bottom, lowest - 0.5 * room), min(top, highest + 0.5 * room))
