"""Equations of quadratic networks with the widths left as symbols."""

from collections.abc import Mapping
from typing import Any

import sympy

from ..state import STUDENTS, TEACHERS
from .index_form import arguments, conditions, described
from .matrix_form import MatrixSystem, QuadraticNetwork
from .matrix_polynomials import MatrixPolynomial, transposed
from .matrix_printing import MatrixPrinter
from .notation import Alphabet
from .result import SymbolicLimit
from .writing import function, module


def writer(alphabet: Alphabet) -> MatrixPrinter:
    """How the matrices of an alphabet are written."""
    p, k = alphabet.p, alphabet.k
    matrices: dict[str, Any] = {
        "Q": sympy.MatrixSymbol(alphabet.name("Q"), p, p),
        "M": sympy.MatrixSymbol(alphabet.name("M"), p, k),
        "P": sympy.MatrixSymbol(alphabet.name("P"), k, k),
        "A": sympy.MatrixSymbol("A", p, p),
        "A*": sympy.MatrixSymbol("A^*", k, k),
    }
    matrices["Mt"] = matrices["M"].T
    latex = {name: alphabet.name(name) for name in ("Q", "M", "P")}
    latex |= {"Mt": f"{latex['M']}^\\top", "A": "A", "A*": "A^*"}
    code = {name: alphabet.code_name(name) for name in ("Q", "M", "P")}
    code |= {"Mt": f"{code['M']}.T", "A": "A", "A*": "A_star"}
    for entries in alphabet.coordinates.entries[2:]:
        name, back = entries.name, transposed(entries.name)
        latex[name], code[name] = alphabet.name(name), alphabet.code_name(name)
        matrices[name] = sympy.MatrixSymbol(latex[name], p, k if entries.pair[1] == TEACHERS else p)
        if back != name:
            latex[back], code[back], matrices[back] = f"{{{latex[name]}}}^\\top", f"{code[name]}.T", matrices[name].T
    return MatrixPrinter(matrices, latex, code, alphabet.rate, alphabet.code)


def in_matrices(
    alphabet: Alphabet, network: QuadraticNetwork, limit: str, extra: Mapping[str, Any] | None = None
) -> SymbolicLimit:
    """The result with symbolic widths."""
    system, write, per_clock = network.system(), writer(alphabet), alphabet.alpha_per_clock
    p, k = alphabet.p, alphabet.k
    overlaps = {entries.name: entries.pair for entries in alphabet.coordinates.entries}
    shapes = {name: (p, k if other == TEACHERS else p) for name, (_, other) in overlaps.items()}
    corrector = {name: network.constrained(per_clock * words) for name, words in system.corrector.items()}
    total = {name: network.constrained(per_clock * words) + corrector[name] for name, words in system.flow.items()}
    risk = network.constrained(alphabet.notation.risk_factor * system.risk)

    def projected(words: Mapping[str, MatrixPolynomial]) -> dict[str, Any]:
        free = {name: write.expression(words[name], shapes[name]) for name in overlaps}
        if not alphabet.sphere:
            return free
        own = sympy.HadamardProduct(sympy.Identity(p), free["Q"]) if not words["Q"].is_zero else sympy.ZeroMatrix(p, p)
        half = sympy.Rational(1, 2)
        for name, (one, other) in overlaps.items():
            overlap = write.matrices[name]
            left = [sympy.MatMul(-half, own, overlap)] if one == STUDENTS else []
            right = [sympy.MatMul(-half, overlap, own)] if other == STUDENTS else []
            free[name] = sympy.MatAdd(free[name], *left, *right) if left or right else free[name]
        return free

    drift, corrections = projected(total), projected(corrector)
    symbols: dict[str, Any] = {name: write.matrices[name] for name in overlaps}
    clock = sympy.latex(alphabet.clock)
    lines: list[tuple[str, tuple[str, ...]]]
    q, m = alphabet.name("Q"), alphabet.name("M")
    if alphabet.sphere:
        own = r"\operatorname{diag}(\Phi)"
        lines = [
            (rf"\frac{{d {m}}}{{d {clock}}}", (rf"\Psi - \tfrac12 {own} {m}",)),
            (rf"\frac{{d {q}}}{{d {clock}}}", (rf"\Phi - \tfrac12 \bigl( {own} {q} + {q} {own} \bigr)",)),
            (r"\Psi", write.lines(total["M"])),
            (r"\Phi", write.lines(total["Q"])),
        ]
    else:
        lines = [
            (rf"\frac{{d {m}}}{{d {clock}}}", write.lines(total["M"])),
            (rf"\frac{{d {q}}}{{d {clock}}}", write.lines(total["Q"])),
        ]
    for name, (_, other) in list(overlaps.items())[2:]:
        overlap, side = alphabet.name(name), write.lines(total[name])
        if alphabet.sphere and other == STUDENTS:
            side = (*side, rf"- \tfrac12 {overlap} \operatorname{{diag}}(\Phi)")
        lines.append((rf"\frac{{d {overlap}}}{{d {clock}}}", side))
    given = list(conditions(alphabet))
    readout = None
    if system.readout is not None:
        readout = network.constrained(per_clock * system.readout)
        a = alphabet.name("readout")
        symbols["readout"] = sympy.MatrixSymbol(a, p, 1)
        drift["readout"] = sympy.MatMul(
            sympy.HadamardProduct(sympy.Identity(p), write.expression(readout, (p, p))), sympy.OneMatrix(p, 1)
        )
        corrections["readout"] = sympy.ZeroMatrix(p, 1)
        inner = list(write.lines(readout))
        inner[0] = rf"\operatorname{{diag}} \Bigl( {inner[0]}"
        inner[-1] = rf"{inner[-1]} \Bigr)"
        lines.append((rf"\frac{{d {a}}}{{d {clock}}}", tuple(inner)))
    lines.append((alphabet.name("risk"), write.lines(risk)))
    if not alphabet.unit_readout:
        given.append(f"A = \\operatorname{{diag}}({alphabet.name('readout')})")
        for i in range(alphabet.problem.width):
            alphabet.readout(i)
    if not alphabet.unit_teacher_readout:
        given.append(f"A^* = \\operatorname{{diag}}({alphabet.name('teacher_readout')})")
        for r in range(alphabet.problem.teacher_width):
            alphabet.teacher_readout(r)

    def source() -> str:
        return _source(alphabet, write, system, total, readout, risk)

    return alphabet.result(
        limit,
        symbols=symbols,
        drift=drift,
        corrector=corrections,
        risk=write.expression(risk, None),
        **{
            "_lines": lambda: tuple(lines),
            "_conditions": tuple(given),
            "_source": source,
            "_symbolic": True,
            **(extra or {}),
        },
    )


def preamble(alphabet: Alphabet) -> list[str]:
    """The first lines of generated functions: widths, and readouts as diagonal matrices."""
    lines = [f"{alphabet.code[alphabet.p]}, {alphabet.code[alphabet.k]} = {alphabet.code_name('M')}.shape"]
    if not alphabet.unit_readout:
        lines.append(f"A = np.diag({alphabet.code_name('readout')})")
    if not alphabet.unit_teacher_readout:
        lines.append(f"A_star = np.diag({alphabet.code_name('teacher_readout')})")
    return lines


def _source(alphabet, write, system: MatrixSystem, total, readout, risk) -> str:
    Q, M = alphabet.code_name("Q"), alphabet.code_name("M")
    start = preamble(alphabet)
    lines = [*start, f"d_{Q} = {write.code(total['Q'])}", f"d_{M} = {write.code(total['M'])}"]
    if alphabet.sphere:
        lines += [
            f"own = np.diag(d_{Q}).copy()[:, None] / 2",
            f"d_{M} = d_{M} - own * {M}",
            f"d_{Q} = d_{Q} - own * {Q} - {Q} * own.T",
        ]
    for entries in alphabet.coordinates.entries[2:]:
        name = alphabet.code_name(entries.name)
        back = f" - {name} * own.T" if alphabet.sphere and entries.pair[1] == STUDENTS else ""
        lines.append(f"d_{name} = {write.code(total[entries.name])}{back}")
    if readout is not None:
        name = alphabet.code_name("readout")
        lines.append(f"d_{name} = np.diag({write.code(readout)} + np.zeros_like({Q}))")
    names = [alphabet.code_name(field) for field in alphabet.arrays]
    results = [f"d_{name}" for name in names]
    given, clock = arguments(alphabet), alphabet.notation.clock.lstrip("\\")
    return module(
        described(alphabet),
        [
            function("drift", given, f"Derivatives of {', '.join(names)} by {clock}.", lines, ", ".join(results)),
            function(
                "risk", given, "The mean loss of a fresh sample.", [*start, f"value = {write.code(risk)}"], "value"
            ),
        ],
    )
