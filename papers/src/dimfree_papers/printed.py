"""Equations as a publication prints them, against the same derived in symbols."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

from dimfree import InvalidInput

# Publications with equations that are polynomial in the order parameters: each has a module `printed` here.
WITH_EQUATIONS: tuple[str, ...] = ("arnaboldi2023", "benarous2022", "bocchi2026")


@dataclasses.dataclass(frozen=True, eq=False)
class PrintedEquation:
    """One printed equation, entered as it stands, with the verdict that its difference from the derived one gives.

    The verdicts are those of `Claim`, without a tolerance: `agrees` if the difference vanishes identically; `misprint`
    if it does not, but that of the corrected equation does; `differs` otherwise.

    **Arguments:**

    - `where`: the place, such as `"eq. (33b)"`.
    - `statement`: what it says, in words.
    - `printed`, `derived`: right-hand sides, one expression (sympy or `MatrixPolynomial`) or several.
    - `correction`: the equation as it should be, in words or LaTeX, and `corrected` its right-hand sides.
    - `remark`: what a reader should know of how it was compared.
    - `latex`: how an expression is written.
    """

    where: str
    statement: str
    printed: Any
    derived: Any
    correction: str | None = None
    corrected: Any = None
    remark: str = ""
    latex: Callable[[Any], str] | None = None

    def __post_init__(self) -> None:
        if (self.correction is None) != (self.corrected is None):
            raise ValueError(f"{self.where}: a correction needs its expression, and an expression its correction.")

    def difference(self, side: Any) -> tuple[Any, ...]:
        """What the derived right-hand sides have more than these; those that are the same are left out."""
        import sympy

        from dimfree.symbolic import MatrixPolynomial

        sides, derived = _several(side), _several(self.derived)
        if len(sides) != len(derived):
            raise ValueError(f"{self.where}: {len(sides)} and {len(derived)} expressions cannot be compared.")
        found = []
        for one, other in zip(derived, sides, strict=True):
            if isinstance(one, MatrixPolynomial) or isinstance(other, MatrixPolynomial):
                rest = other * -1 + one
                found += [] if rest.is_zero else [rest]
            else:
                rest = sympy.expand(one - other)
                if rest.is_rational_function(*rest.free_symbols):
                    same = sympy.expand(sympy.numer(sympy.together(rest))) == 0
                else:
                    rest = sympy.simplify(rest)
                    same = rest == 0
                found += [] if same else [rest]
        return tuple(found)

    @property
    def factor(self) -> Any:
        """What to multiply the printed right-hand sides by, where a number or a parameter is all that is wrong."""
        import sympy

        from dimfree.symbolic import MatrixPolynomial

        sides, derived = _several(self.printed), _several(self.derived)
        if any(isinstance(side, MatrixPolynomial) or side == 0 for side in (*sides, *derived)):
            return None
        ratios = {sympy.cancel(one / other) for one, other in zip(derived, sides, strict=True)}
        if len(ratios) != 1:
            return None
        (ratio,) = ratios
        return ratio if not isinstance(ratio, sympy.Add) and ratio != 1 and sympy.denom(ratio).is_Atom else None

    @property
    def verdict(self) -> Literal["agrees", "misprint", "differs"]:
        """What the difference says."""
        if not self.difference(self.printed):
            return "agrees"
        if self.corrected is not None and not self.difference(self.corrected):
            return "misprint"
        return "differs"

    def to_latex(self, expression: Any) -> str:
        """An expression of this equation in LaTeX."""
        if self.latex is not None:
            return self.latex(expression)
        import sympy

        return sympy.latex(sympy.factor_terms(sympy.expand(expression)))


def printed_equations(paper: str) -> tuple[PrintedEquation, ...]:
    """Every printed equation of a publication that is polynomial in the order parameters, compared symbol by symbol.

    **Arguments:**

    - `paper`: its name, such as `"arnaboldi2023"`.
    """
    import importlib

    if paper not in WITH_EQUATIONS:
        raise InvalidInput(f"paper = {paper!r} was given; there are printed equations of {', '.join(WITH_EQUATIONS)}.")
    return importlib.import_module(f".{paper}.printed", __package__).equations()


def indices(coordinate: str) -> tuple[int, int]:
    """The two indices of a coordinate such as `M[0,1]`."""
    first, second = coordinate[2:-1].split(",")
    return int(first), int(second)


def _several(side: Any) -> Sequence[Any]:
    return side if isinstance(side, list | tuple) else (side,)
