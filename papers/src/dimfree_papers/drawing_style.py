"""How the figures look."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from dimfree import Reproduction, plot
from dimfree.papers import Size

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

DARK, GREY = "#222222", "#B0B0B0"
BLUE, SKY, RED, GREEN, PINK = "#0072B2", "#56B4E9", "#D55E00", "#009E73", "#CC79A7"


def panels(
    rows: int, columns: int, *, width: float = 5.2, height: float = 4.0
) -> "tuple[matplotlib.figure.Figure, list[matplotlib.axes.Axes]]":
    """A figure with panels of this size. It does not belong to pyplot, so nobody needs to close it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows))
    return figure, list(np.atleast_1d(figure.subplots(rows, columns)).ravel())


def shades(number: int) -> Float[np.ndarray, "number 4"]:
    """Colours for increasing values of a parameter."""
    import matplotlib

    return matplotlib.colormaps["viridis"](np.linspace(0.0, 0.9, number))


def in_style(make: Callable[[Size], Reproduction]) -> Callable[[Size], Reproduction]:
    """Make a figure in the style of the library."""

    @functools.wraps(make)
    def styled(size: Size) -> Reproduction:
        from matplotlib import pyplot

        with pyplot.style.context(plot.style):
            return make(size)

    return styled
