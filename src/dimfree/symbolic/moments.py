"""What the averages of a loss are made of, in symbols: the moments of a sample, and the fields of a network."""

import dataclasses
from typing import Any, Literal

import sympy

from .notation import Alphabet


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


class Committee:
    r"""A network whose error is $\sum_s c_s g(u_s) - \zeta$, students first.

    **Arguments:**

    - `alphabet`: the symbols.
    - `scales`: what to write for the factors in front of the two sums, if not their values.
    """

    def __init__(self, alphabet: Alphabet, scales: tuple[Any, Any] | None = None):
        self.alphabet = alphabet
        self.p, self.k = alphabet.problem.width, alphabet.problem.teacher_width
        # All that take part, by family and number: those that the loss sees first, then the algorithm's own.
        self.vectors = [(family, n) for family in alphabet.families for n in range(alphabet.size(family))]
        self.scale, teacher_scale = alphabet.scales if scales is None else scales
        self.weights = [self.scale * alphabet.readout(i) for i in range(self.p)]
        self.weights += [-teacher_scale * alphabet.teacher_readout(r) for r in range(self.k)]

    def overlap(self, s: int, t: int) -> Any:
        """The covariance of two fields."""
        return self.alphabet.overlap(*self.vectors[s], *self.vectors[t])

    def by_family(self, rows: list[list[Any]]) -> dict[str, list[list[Any]]]:
        """Rows with an entry for each vector, in parts by family."""
        return {
            family: [[row[n] for n, (each, _) in enumerate(self.vectors) if each == family] for row in rows]
            for family in self.alphabet.families
        }
