"""The figures of the source, in the order of its slides."""

from .phase_figures import fig5, fig6
from .regime_figures import fig1, fig2, fig3
from .wide_figures import fig4

__all__ = ["fig1", "fig2", "fig3", "fig4", "fig5", "fig6"]
