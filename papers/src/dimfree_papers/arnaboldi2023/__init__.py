"""Escaping mediocrity: how two-layer networks learn hard generalized linear models with SGD."""

from dimfree import Claim

from . import dynamics, escape, fluctuations, landscape
from .exit_figures import fig1, fig2, fig5
from .figures import fig3, fig4, fig6

__all__ = ["fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "statements"]


def statements() -> tuple[Claim, ...]:
    """The statements of the main text and the appendices, by subject."""
    return (*dynamics.claims(), *escape.claims(), *fluctuations.claims(), *landscape.claims())
