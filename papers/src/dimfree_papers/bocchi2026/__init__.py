"""Escape dynamics and implicit bias of one-pass SGD in overparameterized quadratic networks."""

from dimfree import Claim

from . import dynamics, landscape, solutions
from .figures import fig1, fig2, fig3, fig4, fig5, fig6

__all__ = ["fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "statements"]


def statements() -> tuple[Claim, ...]:
    """Every statement that is checked, in the order of the derivation: dynamics, solutions, landscape."""
    return (*dynamics.claims(), *solutions.claims(), *landscape.claims())
