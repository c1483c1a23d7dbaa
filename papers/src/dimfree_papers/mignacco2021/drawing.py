"""What the figures share."""

from typing import TYPE_CHECKING

import numpy as np

from .conventions import CLOCK, COLOURS, LINES

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

LOSS = "training loss per sample"
OVERLAP = r"overlap $m$"
_FLOOR = 1e-9  # where losses end that are zero up to the precision of the inputs


def over_time(axes: "matplotlib.axes.Axes", ylabel: str, title: str) -> None:
    """A panel over logarithmic time."""
    axes.set(xscale="log", xlabel=CLOCK, ylabel=ylabel)
    axes.set_title(title)


def curve(axes: "matplotlib.axes.Axes", time, values, rate: float, name: str, label: str | None = None) -> None:
    """One of the algorithms."""
    axes.plot(time + rate, values, color=COLOURS[name], linestyle=LINES[name], linewidth=1.8, label=label or name)


def loss_inset(axes: "matplotlib.axes.Axes", place: tuple[float, float, float, float]) -> "matplotlib.axes.Axes":
    """A small panel for training losses."""
    inset = axes.inset_axes(place)
    inset.set(xscale="log", yscale="log")
    inset.set_title("training loss", fontsize=7, pad=2)
    inset.tick_params(labelsize=6)
    inset.yaxis.set_minor_formatter("")  # within a decade there would be labels between the powers of ten, too wide
    return inset


def above_floor(loss: np.ndarray) -> np.ndarray:
    """Losses for logarithmic axes."""
    return np.maximum(loss, _FLOOR)


def caption(figure: "matplotlib.figure.Figure", words: str) -> None:
    """Over the panels, what was run."""
    figure.suptitle(words, x=0.01, ha="left", fontsize=11)
