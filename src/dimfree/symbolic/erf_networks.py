"""Committees of error functions: averages in closed form, with the Saad-Solla integrals."""

import functools
from collections.abc import Callable
from typing import Any

import sympy

from .committees import Committee
from .moments import SymbolicMoments
from .writing import latex_terms

Covariance = Callable[[Any, Any], Any]


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
        mean = [[c[i] * sum(c[s] * gradient_average(C, i, b, s) for s in fields) for b in fields] for i in students]
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
            student=[row[:p] for row in mean],
            teacher=[row[p:] for row in mean],
            square=square,
            readout=[self.scale * sum(c[s] * outputs[i, s] for s in fields) for i in students],
            risk=(risk + self.alphabet.noise) / 2,
            form="closed",
        )

    def lines(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """LaTeX of the system for any widths, as sums of the integrals, and of the integrals."""
        alphabet, notation = self.alphabet, self.alphabet.notation
        latex = functools.partial(sympy.latex, inv_trig_style="full")
        clock = notation.clock
        speed = latex(alphabet.alpha_per_clock * alphabet.learning_rate / alphabet.batch_size)
        second = latex(alphabet.alpha_per_clock * alphabet.learning_rate**2 / alphabet.batch_size**2)
        Q, M = alphabet.name("Q"), alphabet.name("M")
        noise = "" if alphabet.noise == 0 else rf" + {latex(alphabet.noise)} J_2(i, l)"
        ridge = latex(alphabet.ridge)
        on_M = "" if alphabet.ridge == 0 else rf" - {speed} {ridge} {M}_{{ir}}"
        on_Q = "" if alphabet.ridge == 0 else rf" - 2 \, {speed} {ridge} {Q}_{{il}}"
        psi, phi = (
            (r"\Psi_{ir}", r"\Phi_{il}")
            if alphabet.sphere
            else (_rate(f"{M}_{{ir}}", clock), _rate(f"{Q}_{{il}}", clock))
        )
        lines: list[tuple[str, tuple[str, ...]]] = []
        if alphabet.sphere:
            lines += [
                (_rate(f"{M}_{{ir}}", clock), (rf"\Psi_{{ir}} - \tfrac12 {M}_{{ir}} \Phi_{{ii}}",)),
                (
                    _rate(f"{Q}_{{il}}", clock),
                    (rf"\Phi_{{il}} - \tfrac12 {Q}_{{il}} \bigl( \Phi_{{ii}} + \Phi_{{ll}} \bigr)",),
                ),
            ]
        lines += [
            (psi, (rf"-{speed} \, c_i \sum_s c_s \, I_3(i, r^*, s){on_M}",)),
            (
                phi,
                (
                    rf"-{speed} \sum_s c_s \bigl[ c_i \, I_3(i, l, s) + c_l \, I_3(l, i, s) \bigr]{on_Q}",
                    rf"+ {second} \, c_i c_l \Bigl[ \sum_{{s, t}} c_s c_t \, I_4(i, l, s, t){noise} \Bigr]",
                ),
            ),
        ]
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

    def conditions(self) -> tuple[str, ...]:
        """What the symbols of the general form mean."""
        alphabet = self.alphabet
        mean = {
            "mean": (r"\tfrac{a}{p}", r"-\tfrac{a^*}{k}"),
            "sqrt": (r"\tfrac{a}{\sqrt p}", r"-\tfrac{a^*}{\sqrt k}"),
        }
        own, teacher = mean.get(alphabet.network.normalisation, ("a", "-a^*"))
        Q, M, P = (alphabet.name(field) for field in ("Q", "M", "P"))
        return (
            rf"C = \begin{{pmatrix}} {Q} & {M} \\ {M}^\top & {P} \end{{pmatrix}}",
            rf"c = \bigl( {own}, {teacher} \bigr)",
            *(("a = 1",) if alphabet.unit_readout else ()),
            *(("a^* = 1",) if alphabet.unit_teacher_readout else ()),
        )


def _rate(name: str, clock: str) -> str:
    return rf"\frac{{d {name}}}{{d {clock}}}"
