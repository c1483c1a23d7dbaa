"""Spiked tensors: two numbers move, of any order."""

from typing import Any

import sympy

from ..state import STUDENTS, TEACHERS
from .coordinate_equations import described, in_indices
from .drifts import Number, increment_covariance
from .moments import SymbolicMoments
from .notation import Alphabet
from .result import SymbolicLimit
from .writing import assignments, function, latex_sum, module


class Tensor:
    r"""The gradient $-\text{signal}\, v + \text{shrink}\, x$ and its noise, of given or symbolic order."""

    def __init__(self, alphabet: Alphabet, order: int, *, symbolic: bool):
        self.alphabet, self.symbolic = alphabet, symbolic
        self.order: Any = sympy.Symbol("k", integer=True, positive=True) if symbolic else sympy.Integer(order)
        if symbolic:
            alphabet.values[self.order] = float(order)
            alphabet.code[self.order] = "order"
        self.Q, self.M, self.P = alphabet.Q(0, 0), alphabet.M(0, 0), alphabet.P(0, 0)
        k = self.order
        self.signal = 2 * alphabet.snr * k * self.M ** (k - 1)
        self.shrink = 2 * k * self.Q ** (k - 1)
        self.noise = 4 * k * self.Q ** (k - 1)

    def moments(self) -> SymbolicMoments:
        """All means; the risk is without the norm of the noise."""
        Q, M, P, k, snr, overlap = self.Q, self.M, self.P, self.order, self.alphabet.snr, self.alphabet.overlap
        return SymbolicMoments(
            along={
                family: [
                    [self.shrink * overlap(STUDENTS, 0, family, 0) - self.signal * overlap(TEACHERS, 0, family, 0)]
                ]
                for family in self.alphabet.families
            },
            square=[[self.noise]],
            readout=None,
            risk=snr**2 * P**k - 2 * snr * M**k + Q**k,
            form="powers" if self.symbolic else "polynomial",
        )

    def covariance(self) -> sympy.Matrix:
        """The covariance of the increment of a step, times d; the length of the noise does not fluctuate."""
        overlap = self.alphabet.overlap

        def covariance(one: Number, other: Number) -> Any:
            if "square" in (one[0], other[0]):
                return sympy.Integer(0)
            # Of the gradient along two vectors; the noise is k times stronger along x.
            along = overlap(one[0], 0, STUDENTS, 0) * overlap(other[0], 0, STUDENTS, 0) / self.Q
            return self.noise * (overlap(one[0], 0, other[0], 0) + (self.order - 1) * along)

        found = increment_covariance(self.alphabet, covariance)
        return found.applyfunc(lambda entry: sympy.powsimp(sympy.expand(entry)))


def in_statistics(alphabet: Alphabet, model: Tensor, limit: str) -> SymbolicLimit:
    r"""The result in the summary statistics $u_1 = m$ and $u_2 = r_\perp^2 = |x|^2 - m^2$ of Ben Arous et al. 2022."""
    covariance = model.covariance() if limit == "sde" else None
    base = in_indices(alphabet, model.moments(), limit, covariance)
    u1, u2 = sympy.symbols("u_1 u_2", real=True)
    simplified = model.moments().simplified
    back = {model.Q: u2 + u1**2, model.M: u1}

    def changed(side: dict[str, Any]) -> dict[str, Any]:
        of_Q, of_M = side["Q[0,0]"], side["M[0,0]"]
        # Without a ridge the second is a power of Q times something short.
        power = model.Q ** (model.order - 1)
        rest = simplified((of_Q - 2 * model.M * of_M) / power)
        return {"m": sympy.factor_terms(of_M).subs(back), "r2": power.subs(back) * sympy.factor(rest.subs(back))}

    drift, corrector = changed(base.drift), changed(base.corrector)
    risk = base.risk.subs(back)
    if covariance is not None:
        jacobian = sympy.Matrix([[0, 1], [1, -2 * model.M]])
        moved = jacobian * base.covariance * jacobian.T
        short = model.Q ** (model.order - 2)
        covariance = moved.applyfunc(
            lambda entry: short.subs(back) * sympy.factor(simplified(entry / short).subs(back))
        )
    symbols = {"m": u1, "r2": u2}
    clock = alphabet.notation.clock
    lines: list[tuple[str, tuple[str, ...]]] = [
        (rf"\dot u_{i}", (sympy.latex(side),)) for i, side in enumerate(drift.values(), 1)
    ]
    if covariance is not None:
        lines += [
            (
                rf"\frac{{d \langle u_{a + 1}, u_{b + 1} \rangle}}{{d {clock}}}",
                (sympy.latex(covariance[a, b]),),
            )
            for a, b in ((0, 0), (0, 1), (1, 1))
        ]
    lines.append((alphabet.name("risk"), latex_sum(risk, alphabet.rate)))
    names = {**alphabet.code, u1: "m", u2: "r2"}

    def source() -> str:
        numbers = ", ".join(f"{alphabet.code[symbol]}={value!r}" for symbol, value in alphabet.values.items())
        given = f"m, r2, *, {numbers}"
        targets = {"d_m": drift["m"], "d_r2": drift["r2"]}
        functions = [
            function("drift", given, f"Derivatives of m, r2 by {clock}.", assignments(targets, names), "d_m, d_r2"),
            function("risk", given, "The mean loss, without the noise.", assignments({"value": risk}, names), "value"),
        ]
        if covariance is not None:
            entries = {f"c{a}{b}": covariance[a, b] for a, b in ((0, 0), (0, 1), (1, 1))}
            given = f"m, r2, *, {alphabet.code_name('d')}, {numbers}"
            matrix = "np.array([[c00, c01], [c01, c11]])"
            body = assignments(entries, names)
            functions.append(function("covariance", given, f"Gained per unit of {clock}.", body, matrix))
        return module(described(alphabet), functions)

    return alphabet.result(
        limit,
        symbols=symbols,
        drift=drift,
        corrector=corrector,
        risk=risk,
        covariance=covariance,
        _lines=lambda: tuple(lines),
        _conditions=("u_1 = m", r"u_2 = r_\perp^2"),
        _source=source,
        _symbolic=model.symbolic,
    )
