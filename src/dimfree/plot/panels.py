"""Axes in a figure of their own."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .drawing_style import in_style


def panels(
    number: int = 1, *, size: tuple[float, float] | None = None, margins: Mapping[str, float] | None = None
) -> list[Axes]:
    """Axes side by side, in the library's style, in a figure that pyplot does not keep.

    For programs that draw for hours: a figure that nobody holds any more is gone.

    **Arguments:**

    - `number`: of axes.
    - `size`: of the figure in inches, width and height.
    - `margins`: where the axes are, as matplotlib's `subplots_adjust` takes it; if left out, matplotlib finds room for
      all labels, which takes half as long as to draw.

    **Returns:** a list of axes.
    """
    with in_style():
        layout: Any = "constrained" if margins is None else "none"
        figure = Figure(figsize=(6.4 * number, 4.4) if size is None else size, layout=layout)
        if margins is not None:
            figure.subplots_adjust(**margins)
        return list(figure.subplots(1, number, squeeze=False)[0])
