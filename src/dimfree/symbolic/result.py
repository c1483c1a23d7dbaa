"""A limit as an equation: in sympy, in LaTeX, and as source text."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from ..algorithms.online import OnlineAlgorithm
from ..problems import Problem

Lines = tuple[tuple[str, tuple[str, ...]], ...]


@dataclasses.dataclass(frozen=True, eq=False)
class SymbolicLimit:
    r"""A limit of SGD in symbols; see [`equations`].

    Every number of problem and algorithm is a symbol, unless it is zero or one; its value is in `values`. Where sizes
    are symbols, the keys of `drift` and `corrector` are `"Q"`, `"M"` and `"readout"` and the entries matrix
    expressions; otherwise the keys are coordinates such as `"Q[0,1]"`, in the order of the limit's own.

    **Attributes:**

    - `problem`, `algorithm`, `limit`, `notation`: what was asked for.
    - `clock`: the time that derivatives are taken by, a symbol.
    - `symbols`: the symbol of each key.
    - `drift`: the right-hand side of each.
    - `corrector`: the part of it that is of second order in the learning rate; the rest is gradient flow.
    - `risk`: the mean loss.
    - `covariance`: for `limit="sde"`, the covariance of the coordinates gained per unit of the clock, in their order;
      None where sizes are symbols: it has four indices then, and is in the LaTeX and in the source.
    - `rates`: for `limit="linearised"`, the growth rates at the plateau, where `plateau` holds.
    - `plateau`: the State that the rates are at: `Q` (a multiple of the identity; the equation for q where it has no
      closed form), `M`, and as `norm` the drift of q, whose zero it is.
    - `values`: the number behind each symbol.
    """

    problem: Problem
    algorithm: OnlineAlgorithm
    limit: str
    notation: str
    clock: Any
    symbols: dict[str, Any]
    drift: dict[str, Any]
    corrector: dict[str, Any]
    risk: Any
    covariance: Any = None
    rates: dict[str, Any] = dataclasses.field(default_factory=dict)
    plateau: dict[str, Any] = dataclasses.field(default_factory=dict)
    values: dict[Any, float] = dataclasses.field(default_factory=dict)
    # What writes the LaTeX (the left-hand side and the lines of the right-hand side of each equation) and the source.
    _lines: Callable[[], Lines] = dataclasses.field(default=tuple, repr=False)
    _conditions: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    _source: Callable[[], str] | None = dataclasses.field(default=None, repr=False)
    _symbolic: bool = dataclasses.field(default=False, repr=False)

    @functools.cached_property
    def fixed_points(self) -> tuple[dict[str, Any], ...]:
        """Where all coordinates are at rest, by coordinate: of one student and one teacher, those in closed form.

        That is, those that factors of degree one and two of the drift give.
        """
        if len(self.drift) > 2 or self.algorithm.readout_rate is not None or self._symbolic:
            return ()
        from .rest_points import fixed_points

        return fixed_points(self.drift, self.symbols)

    def to_sympy(self) -> tuple[Any, ...]:
        """The system as sympy equations: one for each key of `drift`, the derivative on the left."""
        import sympy

        def derivative(key: str) -> Any:
            symbol = self.symbols[key]
            name = rf"\frac{{d {sympy.latex(symbol)}}}{{d {sympy.latex(self.clock)}}}"
            return sympy.MatrixSymbol(name, *symbol.shape) if hasattr(symbol, "shape") else sympy.Symbol(name)

        return tuple(sympy.Eq(derivative(key), side, evaluate=False) for key, side in self.drift.items())

    def to_latex(self) -> str:
        r"""The system as LaTeX, for a display: a block `aligned`, without the dollar signs."""
        rows = []
        for left, right in self._lines():
            first, *others = right
            rows.append(rf"{left} &= {first}")
            rows.extend(rf"&\quad {other}" for other in others)
        if self._conditions:
            rows.append(r"\text{with}\quad & " + r",\quad ".join(self._conditions))
        return "\\begin{aligned}\n" + " \\\\\n".join(rows) + "\n\\end{aligned}"

    def _repr_latex_(self) -> str:
        return f"$$\n{self.to_latex()}\n$$"

    def to_python(self) -> str:
        """The right-hand side as source text that needs NumPy only: a module with `drift` and `risk`.

        With `limit="sde"` also `covariance`. Derivatives are by the clock of the notation; parameters are keywords
        whose defaults are the numbers of problem and algorithm.
        """
        assert self._source is not None
        return self._source()

    def to_dict(self) -> dict[str, object]:
        """For JSON: expressions as strings that sympy can read, symbols by their LaTeX."""

        def plain(mapping: dict[str, Any]) -> dict[str, str]:
            return {key: str(value) for key, value in mapping.items()}

        return {
            "problem": repr(self.problem),
            "algorithm": repr(self.algorithm),
            "limit": self.limit,
            "notation": self.notation,
            "clock": str(self.clock),
            "drift": plain(self.drift),
            "corrector": plain(self.corrector),
            "risk": str(self.risk),
            "covariance": None
            if self.covariance is None
            else [[str(entry) for entry in row] for row in self.covariance.tolist()],
            "rates": plain(self.rates),
            "plateau": plain(self.plateau),
            "fixed_points": [plain(point) for point in self.fixed_points],
            "values": {str(symbol): value for symbol, value in self.values.items()},
            "latex": self.to_latex(),
        }

    def __str__(self) -> str:
        lines = [f"{self.problem!r}", f"{self.algorithm!r}", f"limit {self.limit}, clock {self.clock}"]
        lines += [f"d {self.symbols[key]} / d {self.clock} = {side}" for key, side in self.drift.items()]
        lines.append(f"risk = {self.risk}")
        lines += [f"rate of {name}: {rate}" for name, rate in self.rates.items()]
        lines += [f"{symbol} = {value:g}" for symbol, value in self.values.items()]
        return "\n".join(lines)
