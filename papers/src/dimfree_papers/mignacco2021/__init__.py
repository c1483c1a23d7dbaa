"""Stochasticity helps to navigate rough landscapes.

Captions of figures 1, 5, 6 and 7 were not at hand: what the text does not state of them was chosen here, and is said
at each. Where the source has every run on a dataset of its own, some runs share one here, which makes them cheaper;
errors are from the means of datasets. Simulations are in single precision.
"""

from dimfree import Claim

from . import batches, equations, generalization
from .comparisons import fig2, fig3, figB3, figB4
from .mean_field import fig1, fig5, fig6
from .noise import fig4
from .random_starts import fig7
from .ridges import figB1, figB2

__all__ = [
    "fig1",
    "fig2",
    "fig3",
    "fig4",
    "fig5",
    "fig6",
    "fig7",
    "figB1",
    "figB2",
    "figB3",
    "figB4",
    "statements",
]


def statements() -> tuple[Claim, ...]:
    """Every statement that is checked, in the order of the source."""
    return (*batches.claims(), *equations.claims(), *generalization.claims())
