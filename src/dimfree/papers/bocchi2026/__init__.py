"""Escape dynamics and implicit bias of one-pass SGD in overparameterized quadratic networks."""

from ..paper import Paper, PublishedFigure
from .figures import fig1, fig2, fig3, fig4, fig5, fig6
from .statements import statements

__all__ = ["PAPER"]

PAPER = Paper(
    name="bocchi2026",
    title="Escape dynamics and implicit bias of one-pass SGD in overparameterized quadratic networks",
    figures=(
        PublishedFigure("fig1", "The ODE and runs of SGD: overlaps, norms and error", fig1),
        PublishedFigure("fig2", "The learning rate that escapes the plateau fastest", fig2),
        PublishedFigure("fig3", "Distance to the closest solution, and error", fig3),
        PublishedFigure("fig4", "The conserved frame of the overlaps", fig4),
        PublishedFigure("fig5", "Degrees of freedom of the student", fig5),
        PublishedFigure("fig6", "Dimension of the set of solutions", fig6),
    ),
    statements=statements,
)
