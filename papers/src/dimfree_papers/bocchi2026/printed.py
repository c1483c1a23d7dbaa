"""The equations of motion as printed, against those derived in symbols, for every p and p*."""

from typing import Any

import sympy

from dimfree import OnlineSGD, SymbolicLimit, TwoLayer
from dimfree import equations as derive
from dimfree.symbolic import Alphabet, GaussianFields, MatrixPolynomial, QuadraticNetwork, writer

from ..printed import PrintedEquation, indices

P, K = 3, 2  # widths of what is compared coordinate by coordinate


def equations() -> tuple[PrintedEquation, ...]:
    """Those that are polynomial in the overlaps."""
    problem, sgd = TwoLayer(P, K, "square"), OnlineSGD(0.2)
    alphabet = Alphabet(problem, sgd, "bocchi2026", symbolic_sizes=True)
    network = QuadraticNetwork(alphabet, (0, 0, 1))
    long = derive(problem, sgd, notation="bocchi2026", sizes="given")
    return (
        _averages(),
        *_matrices(alphabet, network),
        _norm_learning(long),
        *_plateau(),
        _risk(long),
        _plateau_risk(long),
    )


def _averages() -> PrintedEquation:
    """Eqs. (6), (31): the averages themselves, with the amplitude of (5), (32)."""
    p, k = 2, 1
    result = derive(TwoLayer(p, k, "square"), OnlineSGD(0.2), notation="bocchi2026", sizes="given")
    (eta,) = result.values
    symbols = result.symbols
    size = p + k
    covariance = sympy.eye(size)
    for key, symbol in symbols.items():
        i, j = indices(key)
        j = j + p if key.startswith("M") else j
        covariance[i, j] = covariance[j, i] = symbol
    fields = GaussianFields(covariance.tolist(), [eta])
    number, lam, u = fields.number, fields.fields[:p], fields.fields[p:]
    error = sum((number(sympy.Rational(1, k)) * each**2 for each in u), 0 * u[0])
    error = error - sum((number(sympy.Rational(1, p)) * each**2 for each in lam), 0 * u[0])
    F = [number(4 * eta / p) * error * each for each in lam]
    printed = []
    for key in result.drift:
        i, j = indices(key)
        side = F[i] * u[j] if key.startswith("M") else F[i] * lam[j] + F[j] * lam[i] + F[i] * F[j]
        printed.append(fields.average(side).as_expr())
    return PrintedEquation(
        "eqs. (6), (31)",
        "The drifts as averages of the learning amplitude of eqs. (5), (32).",
        printed,
        list(result.drift.values()),
        remark="p = 2, p* = 1, the averages by Wick's theorem; the derived side from the step of SGD.",
    )


def _matrices(alphabet: Alphabet, network: QuadraticNetwork) -> tuple[PrintedEquation, ...]:
    """Eqs. (33), (34), (38), (39) with p and p* as symbols: sums over indices are products and traces."""
    p, k, eta = alphabet.p, alphabet.k, alphabet.rate
    system = network.system()
    Q, rho = MatrixPolynomial.letter("Q"), MatrixPolynomial.letter("M")
    both, trace = rho * rho.T, Q.trace(p)
    # D is the diagonal of Q: Q_kk rho_kl is (D rho)_kl, and sums without r = k lack a term with it.
    D = MatrixPolynomial.letter("D")
    write = writer(alphabet)
    write.matrices, write.latex_of = {**write.matrices, "D": None}, {**write.latex_of, "D": "D"}

    def latex(words: Any) -> str:
        return " ".join(write.lines(words))

    of_rho = 4 * eta / p * ((1 + 2 / k) * rho - (trace * rho - D * rho + 3 * D * rho) / p)
    of_rho = of_rho - 8 * eta / p**2 * (Q * rho - D * rho)
    first = 8 * eta / p * (Q - (trace * Q + D * Q + Q * D) / p) + 16 * eta / (p * k) * both
    first = first - 8 * eta / p**2 * (Q * Q - D * Q) - 8 * eta / p**2 * (Q * Q - Q * D)

    def second(bracket: Any) -> MatrixPolynomial:
        terms = bracket * Q + 4 / k * both + 8 / k**2 * both
        terms = terms + 4 / p**2 * trace * Q * Q + 8 / p**2 * Q * Q * Q
        terms = terms - 4 / p * Q * Q - 4 / (p * k) * trace * both
        return 16 * eta**2 / p**2 * (terms - 8 / (p * k) * both * Q - 8 / (p * k) * Q * both)

    square, cross = (Q * Q).trace(p), both.trace(p)
    printed = 1 + 2 / k - (2 * p - 1) / p**2 * trace * trace - cross / (p * k)
    correct = 1 + 2 / k - 2 / p * trace + trace * trace / p**2 + 2 / p**2 * square - 4 / (p * k) * cross
    c, a = 4 / p * (1 + 2 / k - trace / p), 8 / p * (1 - trace / p)
    slow = (system.flow["M"] / eta, system.flow["Q"] / eta)
    return (
        PrintedEquation(
            "eq. (33)", "The drift of the overlaps with the teacher.", of_rho, system.flow["M"], latex=latex
        ),
        PrintedEquation(
            "eq. (34), first order",
            "The drift of the overlaps among students, to first order in the learning rate.",
            first,
            system.flow["Q"],
            latex=latex,
        ),
        PrintedEquation(
            "eq. (34)",
            "The drift of the overlaps among students.",
            first + second(printed),
            system.flow["Q"] + system.corrector["Q"],
            correction=r"The bracket in front of $Q_{kk'}$ in the second order is $1 + 2/p^* "
            r"- (2/p) \operatorname{tr} Q + (\operatorname{tr} Q)^2/p^2 + (2/p^2) \operatorname{tr} Q^2 "
            r"- (4/(p p^*)) \sum_{rl} \rho_{rl}^2$.",
            corrected=first + second(correct),
            latex=latex,
        ),
        PrintedEquation(
            "eqs. (38), (39)",
            "The drifts at vanishing learning rate, with scalars a and c.",
            (c * rho - 8 / p**2 * Q * rho, a * Q + 16 / (p * k) * both - 16 / p**2 * Q * Q),
            slow,
            latex=latex,
            remark="With the scalars that eqs. (33) and (34) give.",
        ),
    )


def _entry(result: SymbolicLimit, name: str, i: int, j: int) -> Any:
    if name == "Q":
        i, j = min(i, j), max(i, j)
    return result.symbols[f"{name}[{i},{j}]"]


def _norm_learning(result: SymbolicLimit) -> PrintedEquation:
    """Eq. (9): overlaps of order epsilon, norms of order one."""
    (eta,) = result.values
    p, k, size = sympy.Integer(P), sympy.Integer(K), sympy.Symbol("epsilon")
    norms = [_entry(result, "Q", i, i) for i in range(P)]
    total = sum(norms)
    small = {symbol: size * symbol for symbol in result.symbols.values() if symbol not in norms}
    printed, derived = [], []
    for key, side in result.drift.items():
        i, j = indices(key)
        slow = sympy.expand(side / eta).subs(eta, 0).subs(small)
        order = 0 if key.startswith("Q") and i == j else 1
        derived.append(sympy.expand(slow).coeff(size, order))
        if key.startswith("M"):
            printed.append(4 / p * _entry(result, "M", i, j) * (1 + 2 / k - (total + 2 * norms[i]) / p))
        elif i == j:
            printed.append(8 / p * norms[i] * (1 - (total + 2 * norms[i]) / p))
        else:
            own = _entry(result, "Q", i, j)
            both = norms[i] + norms[j]
            printed.append(8 / p * own * (1 - (total + both) / p) - 8 / p**2 * own * both)
    return PrintedEquation(
        "eq. (9)",
        "Drifts to lowest order in the overlaps, at vanishing learning rate.",
        printed,
        derived,
        remark=f"p = {P}, p* = {K}.",
    )


def _plateau() -> tuple[PrintedEquation, ...]:
    """Eqs. (10)-(12), (35), (36), p and p* as symbols."""
    result = derive(TwoLayer(P, K, "square"), OnlineSGD(0.2), "linearised", notation="bocchi2026")
    (eta,) = result.values
    p, k = (sympy.Symbol(name, positive=True) for name in ("p", "p^*"))
    q = sympy.Symbol("q", positive=True)
    slow = sympy.expand(result.plateau["norm"] / (eta * q)).subs(eta, 0)
    (norm,) = sympy.solve(slow, q)
    rates = [sympy.simplify((result.rates[name] / eta).subs(eta, 0).subs(q, norm)) for name in ("M", "Q")]
    growth, decay = 8 / (p * k), 16 / (p * (p + 2))
    sign = r"$dQ_{kk'}/dt = -\omega_Q Q_{kk'}$: overlaps among students decay."
    return (
        PrintedEquation("eq. (10)", "The norm on the plateau.", p / (p + 2), norm),
        *(
            PrintedEquation(
                where,
                "The rates of the overlaps M and Q on the plateau.",
                (growth, decay),
                tuple(rates),
                correction=sign,
                corrected=(growth, -decay),
            )
            for where in ("eq. (11)", "eq. (35)")
        ),
        PrintedEquation("eqs. (12), (36)", "The sizes of the rates.", (growth, decay), (rates[0], -rates[1])),
    )


def _risk(result: SymbolicLimit) -> PrintedEquation:
    p, k = sympy.Integer(P), sympy.Integer(K)

    def Q(i: int, j: int) -> Any:
        return _entry(result, "Q", i, j)

    students = range(P)
    pairs = sum(Q(i, i) * Q(j, j) + 2 * Q(i, j) ** 2 for i in students for j in range(i + 1, P))
    printed = (k + 2) / k - 2 / p * sum(Q(i, i) for i in students)
    printed -= 4 / (p * k) * sum(_entry(result, "M", i, r) ** 2 for i in students for r in range(K))
    printed += (3 * sum(Q(i, i) ** 2 for i in students) + 2 * pairs) / p**2
    return PrintedEquation(
        "eq. (23)", "The population risk.", printed, result.risk, remark=f"p = {P}, p* = {K}; twice our risk."
    )


def _plateau_risk(result: SymbolicLimit) -> PrintedEquation:
    p, k = sympy.Integer(P), sympy.Integer(K)
    norms = {_entry(result, "Q", i, i): p / (p + 2) for i in range(P)}
    off = sum(2 * _entry(result, "Q", i, j) ** 2 for i in range(P) for j in range(i + 1, P))
    cross = sum(_entry(result, "M", i, r) ** 2 for i in range(P) for r in range(K))
    return PrintedEquation(
        "section 7.3, after eq. (35)",
        "The population risk on the plateau, to second order in the overlaps.",
        1 + 2 / k - p / (p + 2) + 2 / p**2 * off - 4 / (p * k) * cross,
        result.risk.subs(norms),
        remark=f"p = {P}, p* = {K}.",
    )
