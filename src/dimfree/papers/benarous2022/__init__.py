"""High-dimensional limit theorems for SGD: effective dynamics and critical scaling."""

from ..paper import Paper, PublishedFigure
from .figures import fig1, fig2, fig3
from .statements import statements

__all__ = ["PAPER"]

PAPER = Paper(
    name="benarous2022",
    title="High-dimensional limit theorems for SGD: effective dynamics and critical scaling",
    figures=(
        PublishedFigure(
            "fig1", "Matrix PCA below and above the threshold: diffusion of the overlap, trajectories", fig1
        ),
        PublishedFigure("fig2", "Binary mixture: which classifier runs end at, and the diffusion on the rings", fig2),
        PublishedFigure("fig3", "XOR mixture: which classifier runs end at, and the diffusion on the rings", fig3),
    ),
    statements=statements,
)
