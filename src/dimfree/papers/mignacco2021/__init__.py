"""Stochasticity helps to navigate rough landscapes."""

from ..paper import Paper, PublishedFigure
from .figures import fig1, fig2, fig3, fig4, fig5, fig6, fig7, figb1, figb2, figb3, figb4
from .statements import statements

__all__ = ["PAPER"]

PAPER = Paper(
    name="mignacco2021",
    title="Stochasticity helps to navigate rough landscapes: comparing gradient-descent-based algorithms in the phase "
    "retrieval problem",
    figures=(
        PublishedFigure("fig1", "Gradient descent from three starts: mean-field theory, and runs on one dataset", fig1),
        PublishedFigure("fig2", "Gradient descent, SGD and persistent SGD: average overlap and loss", fig2),
        PublishedFigure("fig3", "Single runs of gradient descent, SGD and persistent SGD", fig3),
        PublishedFigure("fig4", "Batch fraction, persistence and temperature: median overlap and loss", fig4),
        PublishedFigure("fig5", "Persistent SGD against mean-field theory", fig5),
        PublishedFigure("fig6", "Langevin dynamics against mean-field theory", fig6),
        PublishedFigure("fig7", "Random starts at increasing dimension", fig7),
        PublishedFigure("figB1", "Mean squared error with three ridges in place of the sphere", figb1),
        PublishedFigure("figB2", "Mean squared error with gradients rescaled by the batch, or not", figb2),
        PublishedFigure("figB3", "Decreasing learning rates: SGD becomes gradient descent", figb3),
        PublishedFigure("figB4", "Single runs of persistent SGD at four persistence times", figb4),
    ),
    statements=statements,
)
