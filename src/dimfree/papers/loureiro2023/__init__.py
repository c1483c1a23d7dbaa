"""Dimension-free limits of SGD for two-layers neural networks, slides of a talk."""

from ..paper import Paper, PublishedFigure
from .figures import fig1, fig2, fig3, fig4, fig5, fig6
from .statements import statements

__all__ = ["PAPER"]

PAPER = Paper(
    name="loureiro2023",
    title="Dimension-free limits of SGD for two-layers neural networks (and some applications)",
    figures=(
        PublishedFigure("fig1", "Classical regime: SGD and gradient flow, erf, k = 2, p = 10", fig1),
        PublishedFigure("fig2", "Classical regime: SGD and gradient flow, erf, k = 5, p = 10", fig2),
        PublishedFigure("fig3", "High-dimensional regime: plateau and specialisation, erf, k = 4, p = 8", fig3),
        PublishedFigure("fig4", "Wide networks: overlaps among students, and the reduced equation", fig4),
        PublishedFigure("fig5", "Does noise matter? SGD, SDE and ODE in phase retrieval", fig5),
        PublishedFigure("fig6", "Does width matter? Exit times in phase retrieval", fig6),
    ),
    statements=statements,
)
