"""Dimension-free limits of SGD for two-layers neural networks, slides of a talk; figures are in the order of slides."""

from dimfree import Claim

from . import limits, setting, single_index, wide
from .phase_figures import fig5, fig6
from .regime_figures import fig1, fig2, fig3
from .wide_figures import fig4

__all__ = ["fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "statements"]


def statements() -> tuple[Claim, ...]:
    """Every statement that is checked: the setting, the limit of large d, wide networks, single-index models."""
    return (*setting.claims(), *limits.claims(), *wide.claims(), *single_index.claims())
