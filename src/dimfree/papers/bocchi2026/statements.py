"""The source's numbered statements, each with a verdict."""

from ..claims import Claim
from . import dynamics, landscape, solutions


def statements() -> tuple[Claim, ...]:
    """Every statement that is checked, in the order of the derivation: dynamics, solutions, landscape."""
    return (*dynamics.claims(), *solutions.claims(), *landscape.claims())
