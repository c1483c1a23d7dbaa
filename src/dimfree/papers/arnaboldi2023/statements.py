"""Every numbered statement that can be checked."""

from ..claims import Claim
from . import dynamics, escape, fluctuations, landscape


def statements() -> tuple[Claim, ...]:
    """The statements of the main text and the appendices, by subject."""
    return (*dynamics.claims(), *escape.claims(), *fluctuations.claims(), *landscape.claims())
