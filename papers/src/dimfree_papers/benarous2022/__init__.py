"""High-dimensional limit theorems for SGD: effective dynamics and critical scaling."""

from dimfree import Claim

from . import binary, binary_rings, tensors, theorem, xor, xor_rings
from .figures import fig1
from .mixture_figures import fig2, fig3

__all__ = ["fig1", "fig2", "fig3", "statements"]


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
