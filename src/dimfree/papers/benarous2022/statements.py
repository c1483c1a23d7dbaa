"""The source's numbered statements, each with a verdict."""

from ..claims import Claim
from . import binary, binary_rings, tensors, theorem, xor, xor_rings


def statements() -> tuple[Claim, ...]:
    """Every statement that is checked, in the order of the source."""
    return (
        *theorem.claims(),
        *tensors.claims(),
        *binary.claims(),
        *binary_rings.claims(),
        *xor.claims(),
        *xor_rings.claims(),
    )
