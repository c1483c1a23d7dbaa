"""Escaping mediocrity: how two-layer networks learn hard generalized linear models with SGD."""

from ..paper import Paper, PublishedFigure
from .exit_figures import fig1, fig2, fig5
from .figures import fig3, fig4, fig6
from .statements import statements

__all__ = ["PAPER"]

PAPER = Paper(
    name="arnaboldi2023",
    title="Escaping mediocrity: how two-layer networks learn hard generalized linear models with SGD",
    figures=(
        PublishedFigure("fig1", "SGD and SDE from one start, p = 1: risk and exit time", fig1),
        PublishedFigure("fig2", "Measured exit times over the closed forms, against d", fig2),
        PublishedFigure("fig3", "Growth of the largest overlap with the second layer fixed and trained", fig3),
        PublishedFigure("fig4", "The ODE and many runs of SGD, p = 5 and 20", fig4),
        PublishedFigure("fig5", "SGD and SDE from one start, p = 2: risk and exit time", fig5),
        PublishedFigure("fig6", "The risk on the sphere: a golf course", fig6),
    ),
    statements=statements,
)
