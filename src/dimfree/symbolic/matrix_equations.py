"""Equations with the widths left as symbols, for quadratic networks: in matrices; their noise has four indices."""

from collections.abc import Mapping
from typing import Any

import sympy

from ..state import STUDENTS, TEACHERS
from .coordinate_equations import arguments, conditions, described
from .matrix_polynomials import MatrixPolynomial, MatrixPrinter, transposed
from .notation import Alphabet
from .quadratic_networks import QuadraticNetwork
from .result import Lines, SymbolicLimit
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
        return _source(alphabet, write, total, readout, risk)

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


def _source(alphabet, write, total, readout, risk) -> str:
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


_BODY = """
Omega = np.block([[{Q}, {M}], [{M}.T, {P}]])
own, others = {scale} * {a}, {teacher_scale} * {teacher}
S = np.diag(np.concatenate([own, -others]))
chain, traces = [Omega], []
for _ in range(4):
    traces.append(np.trace(S @ chain[-1]))
    chain.append(chain[-1] @ S @ Omega)
Z = [1.0]
for n in range(1, 5):
    Z.append(sum(2 ** (j - 1) * traces[j - 1] * Z[n - j] for j in range(1, n + 1)) / n)
factorial = [1, 1, 2, 6, 24]
pairs = [factorial[n] * sum(2**j * Z[n - j] * chain[j] for j in range(n + 1)) for n in range(3)]
fours = []
for n in range(5):
    orders = [(i, j) for i in range(n + 1) for j in range(n + 1 - i)]
    products = sum(2 ** (i + j) * Z[n - i - j] * np.multiply.outer(chain[i], chain[j]) for i, j in orders)
    fours.append(factorial[n] * (products + products.transpose(0, 2, 1, 3) + products.transpose(0, 2, 3, 1)))
G, K = pairs[1], pairs[2] + {noise} * Omega
T2, T3 = fours[2] + {noise} * fours[0], fours[3] + 3 * {noise} * fours[1]
T4 = fours[4] + 6 * {noise} * fours[2] + 3 * {noise}**2 * fours[0]
rows, columns = np.triu_indices({p})
first, second = [*rows], [*columns]
x, y = [*(-2 * {rate} * (own[rows] + own[columns]))], [*(4 * {rate}**2 * own[rows] * own[columns] / {batch})]
for j in range({p}):
    for r in range({k}):
        first, second, x, y = [*first, j], [*second, {p} + r], [*x, -2 * {rate} * own[j]], [*y, 0.0]
{readout}a, b, x, y = (np.array(each) for each in (first, second, x, y))
index = (a[:, None], b[:, None], a, b)
g, h = G[a, b], K[a, b]
matrix = np.outer(x, x) * (T2[index] - np.outer(g, g)) + np.outer(y, y) * (T4[index] - np.outer(h, h))
mixed = np.outer(x, y) * (T3[index] - np.outer(g, h))
matrix = matrix + mixed + mixed.T
{sphere}"""

_READOUT = """for j in range({p}):
    first, second, x, y = [*first, j], [*second, j], [*x, -{readout_rate} * {scale}], [*y, 0.0]
"""

_SPHERE = """keep = np.eye(len(a))
norm = {{j: n for n, (i, j) in enumerate(zip(rows, columns)) if i == j}}
for n in range(len(rows) + {p} * {k}):
    for j in (a[n], b[n]) if b[n] < {p} else (a[n],):
        keep[n, norm[j]] -= Omega[a[n], b[n]] / 2
keep = keep[[n for n in range(len(a)) if n >= len(rows) or rows[n] != columns[n]]]
matrix = keep @ matrix @ keep.T
"""


def covariance_source(alphabet: Alphabet) -> str:
    """The text of a function for the covariance gained per unit of the clock, for every width."""
    code = alphabet.code_name
    p, k = alphabet.code[alphabet.p], alphabet.code[alphabet.k]
    power = {"mean": "1 / {}", "sqrt": "{} ** -0.5", "sum": "1.0"}[alphabet.network.normalisation]

    def number(value, name: str) -> str:
        return name if value.free_symbols else repr(float(value))

    factor = alphabet.notation.learning_rate_factor
    rate = f"({factor} * {alphabet.code[alphabet.rate]})" if factor != 1 else alphabet.code[alphabet.rate]
    names = {
        "p": p,
        "k": k,
        "Q": code("Q"),
        "M": code("M"),
        "P": f"np.eye({k})" if alphabet.orthonormal_teachers else code("P"),
        "scale": f"({power.format(p)})",
        "teacher_scale": f"({power.format(k)})",
        "a": f"np.ones({p})" if alphabet.unit_readout else f"np.asarray({code('readout')})",
        "teacher": f"np.ones({k})" if alphabet.unit_teacher_readout else f"np.asarray({code('teacher_readout')})",
        "noise": number(alphabet.noise, code("noise")),
        "rate": rate,
        "batch": number(alphabet.batch_size, code("batch_size")),
    }
    own = alphabet.readout_rate
    readout_rate = rate if own == alphabet.learning_rate else f"{factor} * {code('readout_rate')}"
    names["readout"] = _READOUT.format(**names, readout_rate=readout_rate) if alphabet.trained else ""
    names["sphere"] = _SPHERE.format(p=p, k=k) if alphabet.sphere else ""
    clock = {"alpha": "1.0", "rate": f"1 / {rate}", "rate / p": f"{p} / {rate}"}[alphabet.notation.clock_is]
    text = _BODY.format(**names)
    lines = [preamble(alphabet)[0], *text.strip().splitlines()]
    result = f"({clock}) * matrix / ({names['batch']} ** 2 * {code('d')})"
    words = "Covariance gained per unit of the clock: the upper triangle of the first array by rows, then the others."
    return function("covariance", arguments(alphabet, dimension=True), words, lines, result)


def covariance_lines(alphabet: Alphabet) -> Lines:
    """LaTeX of the same: of increments X of the overlaps with x e + y e^2 in front of two fields."""
    latex, notation = sympy.latex, alphabet.notation
    Q, M = alphabet.name("Q"), alphabet.name("M")
    P = "I" if alphabet.orthonormal_teachers else alphabet.name("P")
    own, others = alphabet.scales
    unit = alphabet.unit_readout
    A, teacher = "I" if unit else "A", "I" if alphabet.unit_teacher_readout else "A^*"
    rate, noise = alphabet.learning_rate, alphabet.noise
    first, second = latex(2 * rate * own), latex(4 * rate**2 * own**2 / alphabet.batch_size)
    front = latex(alphabet.alpha_per_clock / (alphabet.batch_size**2 * alphabet.d))
    lines: list[tuple[str, tuple[str, ...]]] = [
        (
            rf"\frac{{d \langle X_{{ab}}, X_{{cd}} \rangle}}{{d {notation.clock}}}",
            (
                rf"{front} \Bigl[ x_{{ab}} x_{{cd}} \bigl( T^{{(2)}}_{{abcd}} - G_{{ab}} G_{{cd}} \bigr)",
                r"+ x_{ab} y_{cd} \bigl( T^{(3)}_{abcd} - G_{ab} K_{cd} \bigr)",
                r"+ y_{ab} x_{cd} \bigl( T^{(3)}_{abcd} - K_{ab} G_{cd} \bigr)",
                r"+ y_{ab} y_{cd} \bigl( T^{(4)}_{abcd} - K_{ab} K_{cd} \bigr) \Bigr]",
            ),
        ),
        (
            rf"{Q}_{{jl}} : \quad x_{{jl}}",
            (rf"-{first} \, {'2' if unit else '(a_j + a_l)'}, \quad y_{{jl}} = {second} {'' if unit else 'a_j a_l'}",),
        ),
        (rf"{M}_{{jr}} : \quad x_{{jr}}", (rf"-{first} \, {'' if unit else 'a_j'} , \quad y_{{jr}} = 0",)),
    ]  # fmt: skip
    if alphabet.trained:
        lines.append((r"a_j : \quad x_{jj}", (rf"-{latex(alphabet.readout_rate * own)} , \quad y_{{jj}} = 0",)))
    if alphabet.sphere:
        lines.append(
            (
                r"\text{sphere:} \quad \hat X_{jr}",
                (
                    rf"X_{{jr}} - \tfrac12 {M}_{{jr}} X_{{jj}} , \quad "
                    rf"\hat X_{{jl}} = X_{{jl}} - \tfrac12 {Q}_{{jl}} (X_{{jj}} + X_{{ll}})",
                ),
            )
        )
    plus = ("", "", "", "")
    if noise != 0:
        z = latex(noise)
        plus = (
            rf" + {z} t^{{(0)}}",
            rf" + 3 {z} t^{{(1)}}",
            rf" + 6 {z} t^{{(2)}} + 3 {z}^2 t^{{(0)}}",
            rf" + {z} \Omega",
        )
    lines += [
        (
            "T^{(2)}",
            (rf"t^{{(2)}}{plus[0]} , \quad T^{{(3)}} = t^{{(3)}}{plus[1]} , \quad T^{{(4)}} = t^{{(4)}}{plus[2]}",),
        ),
        (
            r"t^{(n)}_{abcd}",
            (
                r"n! \sum_{i+j \le n} 2^{i+j} Z_{n-i-j} \bigl( \Omega^{(i)}_{ab} \Omega^{(j)}_{cd} "
                r"+ \Omega^{(i)}_{ac} \Omega^{(j)}_{bd} + \Omega^{(i)}_{ad} \Omega^{(j)}_{bc} \bigr)",
            ),
        ),
        ("G", (r"Z_1 \Omega + 2 \Omega^{(1)}",)),
        ("K", (rf"2 Z_2 \Omega + 4 Z_1 \Omega^{{(1)}} + 8 \Omega^{{(2)}}{plus[3]}",)),
        (r"\Omega^{(j)}", (r"\Omega (S \Omega)^j , \quad \Omega^{(0)} = \Omega",)),
        ("n Z_n", (r"\sum_{j=1}^n 2^{j-1} \operatorname{tr}(S \Omega)^j Z_{n-j} , \quad Z_0 = 1",)),
        (
            r"\Omega",
            (
                rf"\begin{{pmatrix}} {Q} & {M} \\ {M}^\top & {P} \end{{pmatrix}} , \quad "
                rf"S = \begin{{pmatrix}} {latex(own)} {A} & 0 \\ 0 & -{latex(others)} {teacher} \end{{pmatrix}}",
            ),
        ),
    ]  # fmt: skip
    return tuple(lines)
