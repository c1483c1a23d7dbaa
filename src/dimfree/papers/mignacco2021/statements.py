"""The source's numbered statements, each with a verdict."""

from ..claims import Claim
from . import batches, equations, generalization


def statements() -> tuple[Claim, ...]:
    """Every statement that is checked, in the order of the source."""
    return (*batches.claims(), *equations.claims(), *generalization.claims())
