"""The risk, the ODE and its rates as printed, against those derived in symbols."""

from typing import Any

import sympy

from dimfree import OnlineSGD, PhaseRetrieval
from dimfree import equations as derive
from dimfree.symbolic import Alphabet, MatrixPolynomial, QuadraticNetwork, writer

from ..printed import PrintedEquation, indices
from .printed_fluctuations import fluctuations
from .printed_landscape import landscape
from .printed_means import means
from .printed_system import P, derived, gamma_and_noise


def equations() -> tuple[PrintedEquation, ...]:
    """Those that are polynomial in the overlaps."""
    return (
        _risk(),
        *means(),
        *_matrices(),
        *_sphere(),
        *_one_student(),
        *_rates(),
        *fluctuations(),
        *landscape(),
    )


def _risk() -> PrintedEquation:
    result = derived(P, trained=True)
    _, noise = gamma_and_noise(result)
    m = [result.symbols[f"M[{j},0]"] for j in range(P)]
    a = [result.symbols[f"readout[{j}]"] for j in range(P)]

    def Q(j: int, l: int) -> Any:
        return result.symbols[f"Q[{min(j, l)},{max(j, l)}]"]

    p, students = sympy.Integer(P), range(P)
    printed = (noise + 3) / 2 - sum(a[j] * (Q(j, j) + 2 * m[j] ** 2) for j in students) / p
    printed += sum(a[j] * a[l] * (Q(j, j) * Q(l, l) + 2 * Q(j, l) ** 2) for j in students for l in students) / (
        2 * p**2
    )
    return PrintedEquation("eq. (6)", "The population risk, any readout.", printed, result.risk, remark=f"p = {P}.")


def _matrices() -> tuple[PrintedEquation, ...]:
    """Eqs. (33a), (33b), (34) for every p."""
    alphabet = Alphabet(
        PhaseRetrieval(2, noise=0.1), OnlineSGD(0.1), "arnaboldi2023", symbolic_sizes=True, orthonormal_teachers=False
    )
    p, gamma, noise = alphabet.p, alphabet.rate, alphabet.noise
    rho, k = sympy.Symbol(r"\rho", real=True), sympy.Symbol("k", positive=True)
    system = QuadraticNetwork(alphabet, (0, 0, 1)).system()
    write = writer(alphabet)

    def ours(words: MatrixPolynomial) -> MatrixPolynomial:
        # One teacher: P is a number.
        single = words.replace({"P": MatrixPolynomial.scalar(rho)}, 1).subs({alphabet.k: 1})
        return alphabet.alpha_per_clock * single

    def latex(words: Any) -> str:
        return " ".join(write.lines(words))

    Q, m = MatrixPolynomial.letter("Q"), MatrixPolynomial.letter("M")
    trace, square = Q.trace(p), (Q * Q).trace(p)
    mm = m * m.T

    def of_Q(teachers: Any) -> MatrixPolynomial:
        first = 4 * (rho - trace / p) * Q + 8 * (mm / teachers - Q * Q / p)
        noise_terms = (
            3 * rho**2 * Q + 12 * rho * mm
            + ((trace * trace + 2 * square) * Q + 4 * trace * Q * Q + 8 * Q * Q * Q) / p**2
            - 2 / p * (
                (rho * trace + 2 * mm.trace(p)) * Q + 2 * trace * mm + 2 * rho * Q * Q + 4 * (mm * Q + Q * mm)
            )
            + noise * Q
        )  # fmt: skip
        return first + 4 * gamma / p * noise_terms

    def of_risk(first: Any) -> MatrixPolynomial:
        return (first + noise) / 2 - (rho * trace + 2 * mm.trace(p)) / p + (trace * trace + 2 * square) / (2 * p**2)

    drift_Q = ours(system.flow["Q"] + system.corrector["Q"])
    return (
        PrintedEquation(
            "eq. (33a)",
            "The drift of m for a readout of ones and a teacher of any norm.",
            2 * (rho - trace / p) * m + 4 * (rho * m - Q * m / p),
            ours(system.flow["M"]),
            latex=latex,
            remark="For every p.",
        ),
        PrintedEquation(
            "eq. (33b)",
            "The drift of Q for a readout of ones and a teacher of any norm.",
            of_Q(k),
            drift_Q,
            correction=r"The $k$ under $m m^\top$ is stray: the source has one teacher, and no $k$.",
            corrected=of_Q(1),
            latex=latex,
            remark="For every p. Read with k = 1, the number of teachers, it agrees.",
        ),
        PrintedEquation(
            "eq. (34)",
            "The risk for a readout of ones and a teacher of any norm.",
            of_risk(3),
            ours(system.risk) / alphabet.alpha_per_clock,
            correction=r"$(3 \rho^2 + \Delta)/2$ in place of $(3 + \Delta)/2$.",
            corrected=of_risk(3 * rho**2),
            latex=latex,
            remark="For every p.",
        ),
    )


def _sphere() -> tuple[PrintedEquation, ...]:
    """Eqs. (15), (37), (38), by differentiating the projected step, and eq. (49)."""
    free, result = derived(P), derived(P, sphere=True)
    _, noise = gamma_and_noise(free)
    h = sympy.Symbol("h")
    on = {free.symbols[f"Q[{j},{j}]"]: 1 for j in range(P)}
    moved = {key: free.symbols[key] + h * side for key, side in free.drift.items()}
    printed, projected = [], []
    for key in result.drift:
        i, j = indices(key)
        norms = [moved[f"Q[{i},{i}]"]] + ([moved[f"Q[{j},{j}]"]] if key.startswith("Q") else [])
        step = moved[key] / sympy.sqrt(sympy.Mul(*norms))
        projected.append(sympy.expand(sympy.diff(step, h).subs(h, 0).subs(on)))
        own = [free.drift[f"Q[{i},{i}]"]] + ([free.drift[f"Q[{j},{j}]"]] if key.startswith("Q") else [])
        printed.append((free.drift[key] - free.symbols[key] / 2 * sum(own)).subs(on))
    m = [result.symbols[f"M[{j},0]"] for j in range(P)]
    p = sympy.Integer(P)
    off = sum(2 * result.symbols[f"Q[{j},{l}]"] ** 2 for j in range(P) for l in range(j + 1, P))
    return (
        PrintedEquation(
            "eqs. (15), (37), (38)",
            "On the sphere the drift of m_j loses m_j Phi_jj / 2, that of Q_jl loses Q_jl (Phi_jj + Phi_ll) / 2.",
            printed,
            projected,
            remark=f"p = {P}; the derived side differentiates the projected step.",
        ),
        PrintedEquation(
            "eq. (49)",
            "The excess risk on the sphere.",
            1 + 1 / p + off / p**2 - 2 / p * sum(each**2 for each in m),
            result.risk - noise / 2,
            remark=f"p = {P}.",
        ),
    )


def _one_student() -> tuple[PrintedEquation, ...]:
    result = derived(1, sphere=True)
    gamma, noise = gamma_and_noise(result)
    m = result.symbols["M[0,0]"]
    learned = result.risk.subs(m, result.fixed_points[-1]["M[0,0]"]) - noise / 2
    slope = sympy.diff(result.drift["M[0,0]"], m).subs(m, 0)
    return (
        PrintedEquation("eqs. (16), (89)", "The excess risk, p = 1.", 2 * (1 - m**2), result.risk - noise / 2),
        PrintedEquation(
            "eqs. (19), (97)",
            "The ODE of p = 1 on the sphere.",
            m * (4 * (1 - 6 * gamma) * (1 - m**2) - 2 * gamma * noise),
            result.drift["M[0,0]"],
        ),
        PrintedEquation(
            "eq. (20)",
            "The excess risk that is left at large times.",
            gamma * noise / (1 - 6 * gamma),
            learned,
            remark="At the derived fixed point.",
        ),
        PrintedEquation(
            "eq. (57)",
            "The growth rate of m at m = 0.",
            4 * (1 - 6 * gamma) - 2 * gamma * noise,
            slope,
        ),
    )


def _rates() -> tuple[PrintedEquation, ...]:
    """Eqs. (42)-(47) for every p."""
    problem = PhaseRetrieval(2, noise=0.1)
    free = derive(problem, OnlineSGD(0.1), "linearised", notation="arnaboldi2023")
    result = derive(problem, OnlineSGD(0.1, sphere=True), "linearised", notation="arnaboldi2023")
    gamma, noise = gamma_and_noise(free)
    p, k, q = (sympy.Symbol(name, positive=True) for name in "pkq")
    at = {q: 1, k: 1}
    growth = 4 * (1 - gamma / p * (1 + 1 / p + 4 / p**2 + noise / 2))
    decay = -8 / p * (1 - 8 * gamma / p**2)
    return (
        PrintedEquation(
            "eqs. (42)-(44)",
            "Psi_j, Phi_jl and Phi_jj to first order at Q = I.",
            (
                4 * (1 - 1 / p),
                -16 / p + 4 * gamma / p * (2 + 2 / p + 24 / p**2 + noise),
                -8 / p + 4 * gamma / p * (2 + 2 / p + 8 / p**2 + noise),
            ),
            (free.rates["M"].subs(at), free.rates["Q"].subs(at), free.plateau["norm"].subs(at)),
            remark="For every p.",
        ),
        PrintedEquation(
            "eqs. (45)-(48)",
            "The rates on the plateau of the sphere.",
            (growth, decay),
            (result.rates["M"].subs(k, 1), result.rates["Q"]),
            remark="For every p.",
        ),
    )
