"""What the figures share: panels, bands, and the marks for fixed points."""

from typing import TYPE_CHECKING

import numpy as np

from ..drawing_style import BLUE, DARK, GREY, RED, panels

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure


def four_panels() -> "tuple[matplotlib.figure.Figure, list[matplotlib.axes.Axes]]":
    """A figure with panels (a) to (d)."""
    return panels(2, 2, width=5.4)


def cross(axes: "matplotlib.axes.Axes", x, y, label: str | None = None) -> None:
    """Fixed points of the limit."""
    axes.plot(x, y, "x", color=RED, markersize=9, markeredgewidth=2.2, label=label, zorder=5)


def arc(axes: "matplotlib.axes.Axes", radius: float, begin: float, label: str | None = None) -> None:
    """A quarter of a circle, from the angle given in right angles."""
    angle = (begin + np.linspace(0.0, 1.0, 50)) * np.pi / 2
    axes.plot(radius * np.cos(angle), radius * np.sin(angle), color=RED, linewidth=1.4, label=label, zorder=4)


def fractions(axes: "matplotlib.axes.Axes", found: float, predicted: float, runs: int) -> None:
    """The fractions of runs that end at an optimal classifier and elsewhere, with their standard error."""
    error = (predicted * (1 - predicted) / runs) ** 0.5
    axes.bar([0, 1], [found, 1 - found], width=0.55, color=[BLUE, GREY], yerr=error, ecolor=DARK, capsize=4)
    cross(axes, [0, 1], [predicted, 1 - predicted], label="predicted")
    axes.set_xticks([0, 1], ["optimal", "sub-optimal"])
    axes.set(xlabel="classifier at the end", ylabel=f"fraction of {runs} runs", ylim=(0, 1.05))
    axes.grid(axis="x", visible=False)
    axes.legend(loc="upper left")


def legend_above(axes: "matplotlib.axes.Axes") -> None:
    """A legend at the top, in room made for it: a quarter of the height."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.25 * (high - low))
    axes.legend(loc="upper center", fontsize=9, ncols=2)


def spread(axes: "matplotlib.axes.Axes", times, mean, deviation, colour: str, label: str) -> None:
    """A band of two standard deviations to each side of a mean."""
    axes.fill_between(times, mean - 2 * deviation, mean + 2 * deviation, color=colour, alpha=0.18, linewidth=0)
    for sign in (-2, 2):
        axes.plot(
            times,
            mean + sign * deviation,
            color=colour,
            linewidth=1.4,
            linestyle="--",
            label=label if sign > 0 else None,
        )
