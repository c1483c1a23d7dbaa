"""The symbols that equations are written in: ours, or those of a source."""

import dataclasses
import functools
from typing import Any

import numpy as np
import sympy

from ..algorithms.memory import AVERAGE, MOMENTUM
from ..algorithms.moves import pairs_of
from ..algorithms.online import OnlineAlgorithm
from ..algorithms.schedules import Schedule
from ..errors import InvalidInput
from ..problems import Problem, SpikedTensor, TwoLayer
from ..state import STUDENTS, TEACHERS, Pair
from .moves import SymbolicMove, traced
from .result import SymbolicLimit


@dataclasses.dataclass(frozen=True)
class Notation:
    r"""How a source writes things. Each name is LaTeX and, after the bar, that of a variable in code.

    - `learning_rate_factor`: our learning rate in units of the source's.
    - `clock_is`: which of our quantities the source's clock is: `"alpha"`, `"rate"` for learning_rate * alpha,
      `"rate / p"` for learning_rate * alpha / p.
    - `risk_factor`: the source's risk in units of ours.
    """

    name: str
    Q: str = "Q|Q"
    M: str = "M|M"
    P: str = "P|P"
    readout: str = "a|readout"
    teacher_readout: str = "a^*|teacher_readout"
    learning_rate: str = r"\eta|learning_rate"
    readout_rate: str = r"\eta_a|readout_rate"
    noise: str = r"\Delta|noise"
    ridge: str = r"\rho|ridge"
    batch_size: str = "B|batch_size"
    snr: str = r"\lambda|snr"
    momentum_rate: str = r"\eta_2|momentum_rate"
    forgetting: str = r"\phi|forgetting"
    averaged_forgetting: str = r"\phi_{\bar{w}}|averaged_forgetting"
    decay: str = r"\delta|decay"
    d: str = "d|d"
    p: str = "p|p"
    k: str = "k|k"
    order: str = "k|order"
    risk: str = r"\mathcal{R}"
    clock: str = r"\alpha"
    learning_rate_factor: int = 1
    clock_is: str = "alpha"
    risk_factor: int = 1


NOTATIONS = {
    each.name: each
    for each in (
        Notation("dimfree"),
        Notation(
            "arnaboldi2023",
            M="m|m",
            P=r"\rho|rho",
            learning_rate=r"\gamma|gamma",
            readout_rate=r"\gamma_a|gamma_a",
            noise=r"\Delta|Delta",
            ridge="r|ridge",
            clock="t",
            clock_is="rate / p",
        ),
        Notation(
            "bocchi2026",
            M=r"\rho|rho",
            learning_rate=r"\eta|eta",
            noise=r"\Delta|Delta",
            ridge="r|ridge",
            d="N|N",
            k="p^*|p_star",
            learning_rate_factor=2,
            risk_factor=2,
        ),
        Notation(
            "benarous2022",
            Q="R^2|R2",
            M="m|m",
            P=r"\|v\|^2|v2",
            learning_rate=r"c_\delta|c_delta",
            ridge=r"\alpha|ridge",
            d="n|n",
            risk=r"\Phi",
            clock="t",
            clock_is="rate",
        ),
    )
}


# The letters of families of vectors; others are written as words.
_LETTERS = {STUDENTS: "w", MOMENTUM: "v", AVERAGE: r"\bar{w}"}


class Alphabet:
    """The symbols for one problem and algorithm, and the numbers behind them.

    What is zero or one in the problem is written so; every other number is a symbol, with its value in `values`. `move`
    is the algorithm's step in these symbols.

    **Arguments:**

    - `notation`: the name of a notation.
    - `symbolic_sizes`: whether the widths p and k are symbols too.
    - `orthonormal_teachers`: whether P is the identity.
    """

    def __init__(
        self,
        problem: Problem,
        algorithm: OnlineAlgorithm,
        notation: str = "dimfree",
        *,
        symbolic_sizes: bool = False,
        orthonormal_teachers: bool = True,
    ):
        if notation not in NOTATIONS:
            raise InvalidInput(f"notation = {notation!r} was given; choose one of {', '.join(NOTATIONS)}.")
        self.notation = NOTATIONS[notation]
        self.problem, self.algorithm = problem, algorithm
        self.symbolic_sizes, self.orthonormal_teachers = symbolic_sizes, orthonormal_teachers
        self.sphere = algorithm.sphere
        self.trained = algorithm.readout_rate is not None and problem.readout is not None
        self.families = (STUDENTS, TEACHERS, *sorted(algorithm.own))
        self.coordinates = algorithm.coordinates(problem)
        self._own: dict[str, Pair] = {
            entries.name: entries.pair for entries in self.coordinates.entries if set(entries.pair) & set(algorithm.own)
        }
        self.values: dict[Any, float] = {}
        self.code: dict[Any, str] = {}  # how a symbol is called in generated code
        self.parameters: list[Any] = []  # symbols of numbers of problem and algorithm

        rate = algorithm.learning_rate
        # A symbol also where it is zero: all equations are in powers of it, and clocks are divided by it.
        self.rate = self._parameter(
            "learning_rate", None if isinstance(rate, Schedule) else rate, as_is=(), scaled=True
        )
        factor = self.notation.learning_rate_factor
        self.learning_rate = factor * self.rate
        self.readout_rate: Any = sympy.Integer(0)
        if self.trained:
            own = algorithm.readout_rate
            own = None if isinstance(own, Schedule) else own
            if own is not None and not isinstance(rate, Schedule) and float(own) == float(rate):
                self.readout_rate = self.learning_rate
            else:
                self.readout_rate = factor * self._parameter("readout_rate", own, scaled=True)
        self.noise = self._parameter("noise", problem.noise) if isinstance(problem, TwoLayer) else sympy.Integer(0)
        self.ridge = self._parameter("ridge", None if isinstance(algorithm.ridge, Schedule) else algorithm.ridge)
        self.batch_size = self._parameter("batch_size", algorithm.batch_size, as_is=(1,))
        self.snr: Any = self._parameter("snr", problem.snr) if isinstance(problem, SpikedTensor) else None
        self.d = self._named("d")
        if symbolic_sizes:
            self.p, self.k = self._named("p"), self._named("k")
        else:
            self.p, self.k = sympy.Integer(problem.width), sympy.Integer(problem.teacher_width)
        self.clock = sympy.Symbol(self.notation.clock)
        # What one unit of the source's clock is in alpha.
        self.alpha_per_clock = {
            "alpha": sympy.Integer(1),
            "rate": 1 / self.learning_rate,
            "rate / p": self.p / self.learning_rate,
        }[self.notation.clock_is]
        if problem.readout is not None:
            self.unit_readout = not self.trained and bool(np.all(np.asarray(problem.readout) == 1))
        if isinstance(problem, TwoLayer):
            self.unit_teacher_readout = bool(np.all(np.asarray(problem.teacher_readout) == 1))
        self.move = self._move()

    def _move(self) -> SymbolicMove:
        """The algorithm's step in these symbols; the numbers that it goes by get a name."""
        found = traced(self.algorithm)
        entries = (*found.move.drag.values(), *found.move.pull.values())
        used = set().union(*(entry.free_symbols for entry in entries))
        known: dict[Any, Any] = {found.learning_rate: self.learning_rate, found.ridge: self.ridge}
        for symbol, (path, number) in found.numbers.items():
            if symbol in used and symbol not in known:
                known[symbol] = self._parameter(self._unused_name(path), number)
        if found.alpha in used:
            self.parameters.append(found.alpha)
            self.code[found.alpha] = "alpha"

        def named(part: dict[Any, Any]) -> dict[Any, Any]:
            return {key: value for key, entry in part.items() if (value := entry.xreplace(known)) != 0}

        return SymbolicMove(named(found.move.drag), named(found.move.pull))

    def _unused_name(self, path: tuple[str, ...]) -> str:
        """A number of the algorithm by its attribute; where that is taken, with the name of its class before it."""
        *owners, name = path
        owner = functools.reduce(getattr, owners, self.algorithm)
        while name in (*self.code.values(), *map(self.code_name, self._own)):
            name = f"{type(owner).__name__.lower()}_{name}"
        return name

    @property
    def arrays(self) -> list[str]:
        """The arrays that move, as `name` and `code_name` take them: Q, M, overlaps with own vectors, the readout."""
        return [*(entries.name for entries in self.coordinates.entries), *(["readout"] if self.trained else [])]

    @property
    def scales(self) -> tuple[Any, Any]:
        """The factors in front of the sums over students and over teachers."""
        power = {"mean": 1, "sqrt": sympy.Rational(1, 2), "sum": 0}[self.network.normalisation]
        return self.p**-power, self.k**-power

    @property
    def network(self) -> TwoLayer:
        """The problem, where it is a network: all but tensors are."""
        assert isinstance(self.problem, TwoLayer)
        return self.problem

    def result(self, limit: str, **parts: Any) -> SymbolicLimit:
        """The limit in these symbols: `parts` are the equations, and what writes them."""
        return SymbolicLimit(
            problem=self.problem,
            algorithm=self.algorithm,
            limit=limit,
            notation=self.notation.name,
            clock=self.clock,
            values=dict(self.values),
            **parts,
        )

    def _parameter(self, field: str, value: Any, *, as_is: tuple[int, ...] = (0,), scaled: bool = False) -> Any:
        """A symbol with its value, where it has one; the number itself if it is to be written `as_is`."""
        number = None if value is None else float(value)
        if number is not None and number in as_is:
            return sympy.Integer(int(number))
        symbol = self._named(field)
        self.parameters.append(symbol)
        if number is not None:
            self.values[symbol] = number / (self.notation.learning_rate_factor if scaled else 1)
        return symbol

    def _named(self, field: str) -> Any:
        latex, code = self._split(field)
        symbol = sympy.Symbol(latex, positive=True)
        self.code[symbol] = code
        return symbol

    def _entry(self, field: str, indices: tuple[int, ...], sizes: tuple[int, ...]) -> Any:
        """The symbol of an entry; an index that has only one value is not written."""
        latex, code = self._split(field)
        written = [str(i + 1) for i, size in zip(indices, sizes, strict=True) if size > 1]
        comma = "," if max(sizes) > 9 else ""
        if written:
            base, _, power = latex.partition("^")
            latex = f"{base}_{{{comma.join(written)}}}" + (f"^{power}" if power else "")
        symbol = sympy.Symbol(latex, real=True)
        self.code[symbol] = f"{code}[{', '.join(str(i) for i in indices)}]"
        return symbol

    def _split(self, field: str) -> tuple[str, str]:
        if field in self._own:
            return self._split_own(*self._own[field])
        latex, _, code = getattr(self.notation, field, rf"\text{{{field.replace('_', ' ')}}}|{field}").partition("|")
        return latex, code

    def _split_own(self, one: str, other: str) -> tuple[str, str]:
        """Overlaps with the algorithm's own vectors: Q and M with the letters of the families above."""
        letter = self.letter(one)
        above = letter if other in (one, TEACHERS) else letter + self.letter(other)
        base = self.name("M" if other == TEACHERS else "Q").partition("^")[0]
        return f"{base}^{{{above}}}", "_".join(dict.fromkeys((one, other)))

    def letter(self, family: str) -> str:
        """The LaTeX of a vector of a family."""
        return _LETTERS.get(family, rf"\text{{{family}}}")

    def size(self, family: str) -> int:
        """How many vectors a family has."""
        return self.problem.teacher_width if family == TEACHERS else self.problem.width

    def overlap(self, one: str, i: int, other: str, j: int) -> Any:
        """The overlap of two vectors, by family and number."""
        if (one, other) not in pairs_of(list(self.families)):
            one, i, other, j = other, j, one, i
        if one == other:
            i, j = min(i, j), max(i, j)
        of_seen = {(STUDENTS, STUDENTS): self.Q, (STUDENTS, TEACHERS): self.M, (TEACHERS, TEACHERS): self.P}
        if (one, other) in of_seen:
            return of_seen[one, other](i, j)
        field = next(name for name, pair in self._own.items() if pair == (one, other))
        return self._entry(field, (i, j), (self.size(one), self.size(other)))

    def Q(self, i: int, j: int) -> Any:
        if self.sphere and i == j:
            return sympy.Integer(1)
        p = self.problem.width
        return self._entry("Q", (min(i, j), max(i, j)), (p, p))

    def M(self, i: int, r: int) -> Any:
        return self._entry("M", (i, r), (self.problem.width, self.problem.teacher_width))

    def P(self, r: int, s: int) -> Any:
        if self.orthonormal_teachers:
            return sympy.Integer(int(r == s))
        k = self.problem.teacher_width
        return self._entry("P", (min(r, s), max(r, s)), (k, k))

    def readout(self, i: int) -> Any:
        if self.unit_readout:
            return sympy.Integer(1)
        symbol = self._entry("readout", (i,), (self.problem.width,))
        if not self.trained:
            self.values[symbol] = float(np.asarray(self.problem.readout)[i])
        return symbol

    def teacher_readout(self, r: int) -> Any:
        if self.unit_teacher_readout:
            return sympy.Integer(1)
        symbol = self._entry("teacher_readout", (r,), (self.problem.teacher_width,))
        self.values[symbol] = float(np.asarray(self.network.teacher_readout)[r])
        return symbol

    def name(self, field: str) -> str:
        """The LaTeX of an array as a whole, or of the risk."""
        return self._split(field)[0]

    def code_name(self, field: str) -> str:
        """Its name in generated code."""
        return self._split(field)[1]
