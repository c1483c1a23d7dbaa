"""The source's statements on the dynamics, eqs. (6), (9)-(13), (23), (31)-(39), against the drift and solves."""

import jax
import numpy as np

from dimfree import Claim, State, solve

from ..comparing import average, flat
from .conventions import flow, limit, network, source_risk

_P, _K = 4, 2
_ETA = 0.07


def claims() -> tuple[Claim, ...]:
    """Equations of motion, linear rates, and the escape from the plateau."""
    return (*_equations_of_motion(), *_norm_learning(), *_plateau_rates(), *_escape())


def _random_state() -> State:
    """Overlaps of random weights, of order one, without symmetry."""
    weights = 0.4 * np.random.default_rng(0).normal(size=(_P, _P + _K + 2))
    return State(Q=weights @ weights.T, M=weights[:, :_K])


def _averages(state: State, eta: float) -> tuple[np.ndarray, np.ndarray]:
    """The averages of eq. (6), of polynomials of degree six, with the amplitude F of eq. (5)."""

    def products(fields, z):
        students, teachers = fields[:_P], fields[_P:]
        F = 4 * eta / _P * (np.mean(teachers**2, axis=0) - np.mean(students**2, axis=0)) * students
        return F[:, None] * np.concatenate([teachers, students, F])

    means = average(products, np.asarray(state.covariance), nodes=4)
    of_M, mixed, square = np.split(means, [_K, _K + _P], axis=1)
    return of_M, mixed + mixed.T + square


def _printed_overlap(Q: np.ndarray, rho: np.ndarray, eta: float) -> np.ndarray:
    """Eq. (33)."""
    p, k = rho.shape
    diagonal = np.diag(Q)
    bracket = 1 + 2 / k - (diagonal.sum() - diagonal + 3 * diagonal) / p
    off = Q - np.diag(diagonal)
    return 4 * eta / p * rho * bracket[:, None] - 8 * eta / p**2 * off @ rho


def _printed_first_order(Q: np.ndarray, rho: np.ndarray, eta: float) -> np.ndarray:
    """The part of eq. (34) that is linear in the learning rate."""
    p, k = rho.shape
    diagonal = np.diag(Q)
    bracket = 1 - (diagonal.sum() + diagonal[:, None] + diagonal[None, :]) / p
    # Sums over r of Q_rk Q_rk', without r = k and without r = k'.
    square = Q @ Q
    without_k, without_l = square - diagonal[:, None] * Q, square - Q * diagonal[None, :]
    return 8 * eta / p * Q * bracket + 16 * eta / (p * k) * rho @ rho.T - 8 * eta / p**2 * (without_k + without_l)


def _printed_second_order(Q: np.ndarray, rho: np.ndarray, eta: float, bracket: float) -> np.ndarray:
    """The part of eq. (34) that is quadratic in the learning rate, with the bracket in front of Q."""
    p, k = rho.shape
    trace, both = np.trace(Q), rho @ rho.T
    terms = Q * bracket + (4 / k + 8 / k**2) * both
    terms = terms + 4 / p**2 * trace * Q @ Q + 8 / p**2 * Q @ Q @ Q - 4 / p * Q @ Q
    terms = terms - 4 / (p * k) * trace * both - 8 / (p * k) * (both @ Q + Q @ both)
    return 16 * eta**2 / p**2 * terms


def _equations_of_motion() -> tuple[Claim, ...]:
    state = _random_state()
    Q, rho = np.asarray(state.Q), np.asarray(state.M)
    drift = limit(_P, _K, _ETA).drift(0.0, state)
    slow = flow(_P, _K).drift(0.0, state)
    averages = _averages(state, _ETA)
    trace, squares = np.trace(Q), np.sum(rho**2)
    printed = 1 + 2 / _K - (2 * _P - 1) / _P**2 * trace**2 - squares / (_P * _K)
    correct = 1 + 2 / _K - 2 / _P * trace + trace**2 / _P**2 + 2 / _P**2 * np.sum(Q**2) - 4 * squares / (_P * _K)
    first = _printed_first_order(Q, rho, _ETA)
    diagonal = np.diag(Q)
    risk = (_K + 2) / _K - 2 / _P * trace - 4 / (_P * _K) * squares
    risk += (3 * np.sum(diagonal**2) + _pairs(np.outer(diagonal, diagonal) + 2 * Q**2)) / _P**2
    c, a = 4 / _P * (1 + 2 / _K - trace / _P), 8 / _P * (1 - trace / _P)
    return (
        Claim(
            where="eqs. (6), (31)",
            statement="dM/dalpha = <F u>, dQ/dalpha = <F lambda> + <lambda F> + <F F> with F of eqs. (5), (32).",
            printed=flat(*averages),
            ours=flat(drift.M, drift.Q),
            tolerance=1e-12,
            remark="The averages by exact quadrature, at a random State with p = 4, k = 2 and eta = 0.07.",
        ),
        Claim(
            where="eq. (33)",
            statement="The drift of the overlaps with the teacher.",
            printed=_printed_overlap(Q, rho, _ETA),
            ours=np.asarray(drift.M),
            tolerance=1e-12,
        ),
        Claim(
            where="eq. (34), first order",
            statement="The drift of the overlaps among students, to first order in the learning rate.",
            printed=first / _ETA,
            ours=np.asarray(slow.Q),
            tolerance=1e-12,
        ),
        Claim(
            where="eq. (34)",
            statement="The drift of the overlaps among students, per unit of the clock.",
            printed=(first + _printed_second_order(Q, rho, _ETA, printed)) / _ETA,
            ours=np.asarray(drift.Q) / _ETA,
            tolerance=1e-12,
            correction=r"The bracket in front of $Q_{kk'}$ is $1 + 2/p^* - (2/p) \mathrm{tr} Q + (\mathrm{tr} Q)^2/p^2 "
            r"+ (2/p^2) \mathrm{tr} Q^2 - (4/(p p^*)) \sum \rho^2$.",
            corrected=(first + _printed_second_order(Q, rho, _ETA, correct)) / _ETA,
        ),
        Claim(
            where="eqs. (38), (39)",
            statement="At vanishing learning rate M moves by c M - (8/p^2) Q M, Q by a Q + (16/(p k)) M M^T "
            "- (16/p^2) Q^2, with scalars a and c.",
            printed=flat(
                c * rho - 8 / _P**2 * Q @ rho,
                a * Q + 16 / (_P * _K) * rho @ rho.T - 16 / _P**2 * Q @ Q,
            ),
            ours=flat(slow.M, slow.Q),
            tolerance=1e-12,
        ),
        Claim(
            where="eq. (23)",
            statement="The population risk.",
            printed=risk,
            ours=float(source_risk(network(_P, _K), state)),
            tolerance=1e-12,
        ),
    )


def _pairs(matrix: np.ndarray) -> float:
    """Twice the sum over k < k'."""
    return float(np.sum(matrix) - np.trace(matrix))


def _norm_learning() -> tuple[Claim, ...]:
    generator = np.random.default_rng(1)
    diagonal = generator.uniform(0.5, 1.5, size=_P)
    off = generator.normal(size=(_P, _P))
    off = off + off.T - np.diag(np.diag(off + off.T))
    rho = generator.normal(size=(_P, _K))
    total, each = diagonal.sum(), diagonal
    norms = 8 / _P * each * (1 - (total + 2 * each) / _P)
    both = each[:, None] + each[None, :]
    students = 8 / _P * off * (1 - (total + both) / _P) - 8 / _P**2 * off * both
    teachers = 4 / _P * rho * (1 + 2 / _K - (total + 2 * each) / _P)[:, None]
    equation = flow(_P, _K)
    base = State(Q=np.diag(diagonal), M=np.zeros((_P, _K)))
    # The terms of first order in the overlaps are a derivative, and nothing is small.
    value, slope = jax.jvp(lambda size: equation.drift(0.0, State(Q=base.Q + size * off, M=size * rho)), (0.0,), (1.0,))
    end = solve(equation, State(Q=np.diag(diagonal), M=np.zeros((_P, _K))), np.linspace(0.0, 40.0, 5)).final
    return (
        Claim(
            where="eq. (9)",
            statement="Norm learning: drifts of the overlaps to first order in them, and of the norms to zeroth.",
            printed=flat(teachers, students, norms),
            ours=flat(slope.M, slope.Q, np.diag(np.asarray(value.Q))),
            tolerance=1e-12,
        ),
        Claim(
            where="eq. (10)",
            statement="Norms converge to p / (p + 2).",
            printed=np.full(_P, _P / (_P + 2)),
            ours=np.diag(np.asarray(end.Q)),
            tolerance=1e-7,
            remark="Solved from unequal norms, without overlaps.",
        ),
    )


def _plateau_rates() -> tuple[Claim, ...]:
    growth, decay = 8 / (_P * _K), 16 / (_P * (_P + 2))
    equation = flow(_P, _K)
    start = State(Q=_P / (_P + 2) * np.eye(_P), M=np.zeros((_P, _K)))
    coordinates = equation.coordinates
    rates = jax.jacfwd(lambda vector: equation.vector_field(0.0, vector, start))(coordinates.pack(start))
    rates = dict(zip(coordinates.labels, np.diag(np.asarray(rates)), strict=True))
    ours = np.asarray([rates["M[0,0]"], rates["Q[0,1]"]])
    sign = "Overlaps among students decay, at the rate that is printed for their growth."
    printed = {
        "eq. (11)": "The rates of the overlaps M and Q on the plateau.",
        "eq. (35)": "The same, in the appendix.",
    }
    return (
        *(
            Claim(where, statement, [growth, decay], ours, 1e-12, correction=sign, corrected=[growth, -decay])
            for where, statement in printed.items()
        ),
        Claim(
            where="eqs. (12), (36)",
            statement="The sizes of the rates, 8 / (p k) and 16 / (p (p + 2)).",
            printed=[growth, decay],
            ours=np.abs(ours),
            tolerance=1e-12,
        ),
    )


def _escape() -> tuple[Claim, ...]:
    equation, problem, size = flow(_P, _K), network(_P, _K), 1e-5
    generator = np.random.default_rng(2)
    signs = generator.choice([-1.0, 1.0], size=(_P, _K))  # their squares have the mean of Gaussian ones, exactly
    off = generator.normal(size=(_P, _P))
    off = off + off.T - np.diag(np.diag(off + off.T))
    norm, level = _P / (_P + 2), 1 + 2 / _K - _P / (_P + 2)

    def risks(Q, M, times):
        times = np.concatenate([[0.0], times])
        path = solve(equation, State(Q=Q, M=M), times, relative_tolerance=1e-11, absolute_tolerance=1e-16)
        return np.asarray(source_risk(problem, path.state))

    def printed(times):
        return 4 * (np.exp(16 * times / _K) - 1) / level

    early = np.asarray([0.05, 0.1, 0.2, 0.3])  # t / p
    from_plateau = risks(norm * np.eye(_P), size * signs, _P * early)
    fall = (from_plateau[0] - from_plateau[1:]) / (from_plateau[0] * size**2)
    on_clock = np.asarray([0.1, 0.2, 0.4, 0.8])  # t
    on_plateau = risks(norm * np.eye(_P), size * signs, on_clock)
    late = np.asarray([1.1, 1.15, 1.2, 1.25])
    from_one = risks(np.eye(_P), size * signs, _P * late)
    unlearned = risks(np.eye(_P), 0 * signs, _P * late)
    learned = (unlearned - from_one)[1:] / (level * size**2)
    small = 1e-4
    with_students = risks(norm * np.eye(_P) + small * off, small * signs, _P * early)
    decay, growth = 16 / (_P * (_P + 2)), 8 / (_P * _K)
    times = _P * early
    expected = 2 / _P**2 * np.exp(-2 * decay * times) * np.sum(off**2)
    expected = expected - 4 / (_P * _K) * np.exp(2 * growth * times) * np.sum(signs**2)
    return (
        Claim(
            where="eq. (13)",
            statement="Mean relative fall of the risk from the plateau, over the variance of the overlaps there, with "
            "t = eta alpha / p.",
            printed=printed(early),
            ours=fall,
            tolerance=1e-3,
        ),
        Claim(
            where="eq. (13), clock",
            statement="The same with the clock of the main text, t = eta alpha.",
            printed=printed(on_clock),
            ours=(on_plateau[0] - on_plateau[1:]) / (on_plateau[0] * size**2),
            tolerance=1e-3,
            correction="t in eq. (13) is eta alpha / p, as section 7.3 has it.",
            corrected=printed(on_clock / _P),
        ),
        Claim(
            where="eq. (13), counted from the start",
            statement="The same with the overlaps and t = 0 of eq. (8), where the norms are one.",
            printed=printed(late),
            ours=learned,
            tolerance=5e-3,
            correction="Norm learning shrinks the overlaps too: there is a factor p / (p + 2).",
            corrected=_P / (_P + 2) * printed(late),
        ),
        Claim(
            where="section 7.3, risk after eq. (35)",
            statement="Change of the risk on the plateau by small overlaps, over their variance.",
            printed=expected,
            ours=(with_students[1:] - level) / small**2,
            tolerance=2e-3,
            remark="Here the overlaps among students decay, as they should.",
        ),
    )
