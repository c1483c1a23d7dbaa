"""Committees of error functions: averages in closed form, with the Saad-Solla integrals."""

import collections
import functools
from collections.abc import Callable
from typing import Any

import sympy

from ..state import STUDENTS, TEACHERS
from .moments import Committee, SymbolicMoments
from .notation import Alphabet
from .writing import latex_terms

Covariance = Callable[[Any, Any], Any]
latex = functools.partial(sympy.latex, inv_trig_style="full")


def output_average(C: Covariance, a: Any, b: Any) -> Any:
    r"""$I_2 = \mathbb{E}[g(u_a) g(u_b)]$ for $g(x) = \operatorname{erf}(x/\sqrt2)$."""
    return 2 / sympy.pi * sympy.asin(C(a, b) / sympy.sqrt((1 + C(a, a)) * (1 + C(b, b))))


def _determinant(C: Covariance, a: Any, b: Any) -> Any:
    return (1 + C(a, a)) * (1 + C(b, b)) - C(a, b) ** 2


def slope_average(C: Covariance, a: Any, b: Any) -> Any:
    r"""$J_2 = \mathbb{E}[g'(u_a) g'(u_b)]$."""
    return 2 / (sympy.pi * sympy.sqrt(_determinant(C, a, b)))


def gradient_average(C: Covariance, a: Any, b: Any, c: Any) -> Any:
    r"""$I_3 = \mathbb{E}[g'(u_a)\, u_b\, g(u_c)]$."""
    top = C(b, c) * (1 + C(a, a)) - C(a, b) * C(a, c)
    return 2 / sympy.pi * top / ((1 + C(a, a)) * sympy.sqrt(_determinant(C, a, c)))


def square_average(C: Covariance, a: Any, b: Any, c: Any, d: Any) -> Any:
    r"""$I_4 = \mathbb{E}[g'(u_a) g'(u_b) g(u_c) g(u_d)]$.

    The two slopes are a Gaussian weight, under which the covariance of the others is reduced.
    """
    determinant = _determinant(C, a, b)
    sizes = [determinant + _reduced(C, determinant, a, b, each, each) for each in (c, d)]
    return _square(determinant, _reduced(C, determinant, a, b, c, d), *sizes)


def _reduced(C: Covariance, determinant: Any, a: Any, b: Any, s: Any, t: Any) -> Any:
    """The covariance of two fields under the weight of two slopes, times the determinant."""
    one, two = C(a, s) * C(a, t) * (1 + C(b, b)), C(b, s) * C(b, t) * (1 + C(a, a))
    return determinant * C(s, t) - one - two + C(a, b) * (C(a, s) * C(b, t) + C(a, t) * C(b, s))


def _square(determinant: Any, mixed: Any, first: Any, second: Any) -> Any:
    return 4 / (sympy.pi**2 * sympy.sqrt(determinant)) * sympy.asin(mixed / sympy.sqrt(first * second))


class ErfNetwork(Committee):
    """The moments of a committee of given widths."""

    def moments(self) -> SymbolicMoments:
        """All means."""
        C, c, p = self.overlap, self.weights, self.alphabet.problem.width
        fields, students = range(len(c)), range(p)
        vectors = range(len(self.vectors))
        mean = [[c[i] * sum(c[s] * gradient_average(C, i, b, s) for s in fields) for b in vectors] for i in students]
        square: list[list[Any]] = [[0] * p for _ in students]
        for i in students:
            for j in range(i, p):
                total = self.alphabet.noise * slope_average(C, i, j)
                for s in fields:
                    total += sum((1 + (s < t)) * c[s] * c[t] * square_average(C, i, j, s, t) for t in range(s, len(c)))
                square[i][j] = square[j][i] = c[i] * c[j] * total
        outputs = {(s, t): output_average(C, s, t) for s in fields for t in fields}
        risk = sum(c[s] * c[t] * outputs[s, t] for s in fields for t in fields)
        return SymbolicMoments(
            along=self.by_family(mean),
            square=square,
            readout=[self.scale * sum(c[s] * outputs[i, s] for s in fields) for i in students],
            risk=(risk + self.alphabet.noise) / 2,
            form="closed",
        )

    def lines(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """LaTeX of the system for any widths, as sums of the integrals, and of the integrals."""
        alphabet, notation = self.alphabet, self.alphabet.notation
        clock = notation.clock
        Q, M = alphabet.name("Q"), alphabet.name("M")
        lines: list[tuple[str, tuple[str, ...]]] = []
        names = {"M": _rate(f"{M}_{{ir}}", clock), "Q": _rate(f"{Q}_{{il}}", clock)}
        if alphabet.sphere:
            lines += [
                (names["M"], (rf"\Psi_{{ir}} - \tfrac12 {M}_{{ir}} \Phi_{{ii}}",)),
                (names["Q"], (rf"\Phi_{{il}} - \tfrac12 {Q}_{{il}} \bigl( \Phi_{{ii}} + \Phi_{{ll}} \bigr)",)),
            ]
            names = {"M": r"\Psi_{ir}", "Q": r"\Phi_{il}"}
        pairs = {entries.name: entries.pair for entries in alphabet.coordinates.entries}
        lines += [(names[field], self._sides(*pairs[field])) for field in ("M", "Q")]
        for one, other in list(pairs.values())[2:]:
            second = "r" if other == TEACHERS else "l"
            overlap, side = self._indexed(one, "i", other, second), self._sides(one, other)
            if alphabet.sphere and other == STUDENTS:
                side = (*side, rf"- \tfrac12 {overlap} \Phi_{{ll}}")
            lines.append((_rate(overlap, clock), side))
        ridge = latex(alphabet.ridge)
        if alphabet.trained:
            factor = latex(alphabet.alpha_per_clock * alphabet.readout_rate / alphabet.batch_size)
            inner = r"\tfrac{c_i}{a_i} \sum_s c_s \, I_2(i, s)"
            if alphabet.ridge != 0:
                inner = rf"\Bigl( {inner} + {ridge} a_i \Bigr)"
            lines.append((_rate("a_i", clock), (rf"-{factor} {inner}",)))
        half = sympy.Rational(notation.risk_factor, 2)
        front = "" if half == 1 else latex(half)
        floor = "" if alphabet.noise == 0 else rf" + {latex(half * alphabet.noise)}"
        lines.append((alphabet.name("risk"), (rf"{front} \sum_{{s, t}} c_s c_t \, I_2(s, t){floor}",)))

        def C(s: str, t: str) -> Any:
            return sympy.Symbol(rf"C_{{{min(s, t)}{max(s, t)}}}")

        lines += [
            (r"I_2(a, b)", (latex(output_average(C, "a", "b")),)),
            (r"J_2(a, b)", (latex(slope_average(C, "a", "b")),)),
            (r"I_3(a, b, c)", (latex(gradient_average(C, "a", "b", "c")),)),
        ]
        determinant = sympy.Symbol(r"\Lambda_4")
        mixed, *sizes = (sympy.Symbol(rf"\Lambda_{i}") for i in range(3))
        lines += [
            (r"I_4(a, b, c, d)", (latex(_square(determinant, mixed, *sizes)),)),
            (r"\Lambda_4", (latex(_determinant(C, "a", "b")),)),
            (r"\Lambda_0", latex_terms(_reduced(C, determinant, "a", "b", "c", "d"))),
        ]
        for size, name in zip(sizes, "cd", strict=True):
            lines.append((latex(size), latex_terms(determinant + _reduced(C, determinant, "a", "b", name, name))))
        return tuple(lines)

    def _indexed(self, one: str, i: str, other: str, j: str) -> str:
        """The overlap of two vectors, of any numbers i and j."""
        pairs = {entries.pair: entries.name for entries in self.alphabet.coordinates.entries}
        if (one, other) not in pairs:
            one, i, other, j = other, j, one, i
        if one == other:
            i, j = min(i, j), max(i, j)
        base, _, above = self.alphabet.name(pairs[one, other]).partition("^")
        return f"{base}_{{{i}{j}}}" + (f"^{above}" if above else "")

    def _sides(self, one: str, other: str) -> tuple[str, ...]:
        """LaTeX of the drift of overlaps of two families, without the sphere: what pulls, what drags, the corrector."""
        alphabet, (i, j) = self.alphabet, ("i", "r" if other == TEACHERS else "l")
        move, per_step = alphabet.move, alphabet.alpha_per_clock / alphabet.batch_size
        both = ((one, i, other, j), (other, j, one, i))
        pulls: list[str] = []
        if one == other and one in move.pull:
            sign, front = _front(per_step * move.pull[one])
            terms = (rf"c_{row} \, I_3({row}, {_field(alphabet, one, column)}, s)" for _, row, _, column in both)
            pulls.append(rf"{sign}{front} \sum_s c_s \bigl[ {' + '.join(terms)} \bigr]")
        for moved, row, still, column in both:
            if moved in move.pull and one != other:
                sign, front = _front(per_step * move.pull[moved], r" \, ")
                pulls.append(rf"{sign}{front}c_{row} \sum_s c_s \, I_3({row}, {_field(alphabet, still, column)}, s)")
        dragged = collections.Counter(
            (self._indexed(along, row, still, column), number, move.pull.get(moved))
            for moved, row, still, column in both
            for (family, along), number in move.drag.items()
            if family == moved
        )
        drags: list[str] = []
        for (overlap, number, pull), times in dragged.items():
            sign, front = _front(per_step * number)
            is_ridge = pull is not None and pull.free_symbols and sympy.denom(sympy.cancel(number / pull)) == 1
            if is_ridge:
                front = f"{_front(per_step * pull)[1]} {_front(sympy.cancel(number / pull))[1]}".strip()
            text = sign + " ".join(filter(None, (r"2 \," if times == 2 else "", front, overlap)))
            (pulls if is_ridge else drags).append(text)
        lines = [pulls, drags]
        if one in move.pull and other in move.pull:
            second = per_step * move.pull[one] * move.pull[other] / alphabet.batch_size
            sign, front = _front(second, r" \, ")
            noise = "" if alphabet.noise == 0 else rf" + {latex(alphabet.noise)} J_2(i, l)"
            squares = rf"\Bigl[ \sum_{{s, t}} c_s c_t \, I_4(i, l, s, t){noise} \Bigr]"
            lines.append([f"{sign}{front}c_i c_l {squares}"])
        first, *others = [line for line in lines if line] or [["0"]]
        return (first[0] + _signed(first[1:]), *(_signed(line).lstrip() for line in others))

    def conditions(self) -> tuple[str, ...]:
        """What the symbols of the general form mean."""
        alphabet = self.alphabet
        mean = {
            "mean": (r"\tfrac{a}{p}", r"-\tfrac{a^*}{k}"),
            "sqrt": (r"\tfrac{a}{\sqrt p}", r"-\tfrac{a^*}{\sqrt k}"),
        }
        own, teacher = mean.get(alphabet.network.normalisation, ("a", "-a^*"))
        Q, M, P = (alphabet.name(field) for field in ("Q", "M", "P"))
        unseen = (
            rf"C_{{s\, {_field(alphabet, family, 'l')}}} = \bigl( {self._indexed(family, 'l', STUDENTS, 'i')}, "
            rf"{self._indexed(family, 'l', TEACHERS, 'r')} \bigr)"
            for family in alphabet.families[2:]
        )
        return (
            rf"C = \begin{{pmatrix}} {Q} & {M} \\ {M}^\top & {P} \end{{pmatrix}}",
            *unseen,
            rf"c = \bigl( {own}, {teacher} \bigr)",
            *(("a = 1",) if alphabet.unit_readout else ()),
            *(("a^* = 1",) if alphabet.unit_teacher_readout else ()),
        )


def _rate(name: str, clock: str) -> str:
    return rf"\frac{{d {name}}}{{d {clock}}}"


def _front(number: Any, gap: str = "") -> tuple[str, str]:
    """A factor as its sign and its LaTeX with a gap behind it; nothing for one."""
    terms = sympy.Add.make_args(sympy.expand(number))
    negative = all(term.could_extract_minus_sign() for term in terms)
    size = sympy.together(-sympy.Add(*terms)) if negative else number
    text = rf"\left({latex(size)}\right)" if size.is_Add else latex(size)
    return "-" if negative else "", "" if size == 1 else text + gap


def _field(alphabet: Alphabet, family: str, index: str) -> str:
    """The field of a vector, of any number."""
    above = {STUDENTS: "", TEACHERS: "^*"}.get(family, f"^{{{alphabet.letter(family)}}}")
    return f"{index}{above}"


def _signed(pieces: list[str]) -> str:
    """Pieces of a sum, each with its sign in front."""
    return "".join(f" - {each[1:]}" if each.startswith("-") else f" + {each}" for each in pieces)
