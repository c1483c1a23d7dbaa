"""The moments of a sample, as expressions of the overlaps: what every limit is made of."""

import dataclasses
from typing import Any, Literal

import sympy


@dataclasses.dataclass(frozen=True)
class SymbolicMoments:
    r"""The means that drift and risk are made of, as in `dimfree.problems.Moments`, with sympy entries.

    - `along`: $\mathbb{E}[s_i f_j]$ for the fields f of each family of vectors, nested lists, with $s$ the derivative
      of the loss by the student fields.
    - `square`: $\mathbb{E}[s_i s_j]$.
    - `readout`: the mean derivative by the readout, or None.
    - `risk`: the mean loss.
    - `form`: `"polynomial"`, to be written as sums; `"powers"`, the same with symbols in exponents; `"closed"`, to be
      left as it is.
    """

    along: dict[str, list[list[Any]]]
    square: list[list[Any]]
    readout: list[Any] | None
    risk: Any
    form: Literal["polynomial", "powers", "closed"] = "polynomial"

    def simplified(self, expression: Any) -> Any:
        """An expression as a sum of products, where that is its natural form."""
        if self.form == "closed":
            return expression
        expanded = sympy.expand(expression)
        return sympy.powsimp(expanded) if self.form == "powers" else expanded
