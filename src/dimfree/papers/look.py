"""How the figures look."""

import functools
from collections.abc import Callable

from .paper import Reproduction, Size


def in_style(make: Callable[[Size], Reproduction]) -> Callable[[Size], Reproduction]:
    """Make a figure in the style of the library."""

    @functools.wraps(make)
    def styled(size: Size) -> Reproduction:
        import matplotlib.style

        from ..plot import style

        with matplotlib.style.context(style):
            return make(size)

    return styled
