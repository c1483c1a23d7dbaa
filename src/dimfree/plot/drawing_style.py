"""How pictures look."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import matplotlib
from matplotlib import pyplot as plt

style = str(Path(__file__).with_name("dimfree.mplstyle"))


@contextlib.contextmanager
def in_style() -> Iterator[None]:
    """Figures made here have the library's style."""
    with plt.style.context(style):
        yield
        interactive = matplotlib.is_interactive()
    # A notebook's backend is loaded with the first figure and turns interaction on, which the end of the context has
    # undone; without it no later figure would be shown.
    matplotlib.interactive(interactive)
