"""The figures, in the order of the source.

Captions of figures 1, 5, 6 and 7 were not at hand: what the text does not state of them was chosen here, and is said
at each. Where the source has every run on a dataset of its own, some runs share one here, which makes them cheaper;
errors are from the means of datasets. Simulations are in single precision.
"""

from .comparisons import fig2, fig3, figb3, figb4
from .mean_field import fig1, fig5, fig6
from .noise import fig4
from .random_starts import fig7
from .ridges import figb1, figb2

__all__ = ["fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "figb1", "figb2", "figb3", "figb4"]
