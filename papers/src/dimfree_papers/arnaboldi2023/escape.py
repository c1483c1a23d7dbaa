"""Statements on the plateau and the escape from it: eqs. (19)-(23), (28), (42)-(59), rates, bounds and gains."""

from typing import Any, cast

import equinox as eqx
import jax
import numpy as np
from scipy.integrate import solve_bvp
from scipy.optimize import brentq, minimize_scalar
from scipy.special import gammaln

from dimfree import Claim, PhaseRetrieval, State, TwoLayer, random_state, sde, solve

from ..comparing import EXACT
from .checks import free_limit, plateau_rates, random_overlaps, rates, sphere_limit
from .exits import (
    annealed,
    exit_from,
    exit_level,
    linear_rates,
    mu_and_tau,
    plateau_level,
    quenched,
    simulated_exits,
    solved_exits,
    typical_start,
)

SOLVED = 1e-6  # of an adaptive solver or a root finder


def claims() -> tuple[Claim, ...]:
    return (
        *_one_student(),
        *_plateau(),
        *_exit_times(),
        *_learning_rates(),
        *_critical_points(),
        *_diffusion(),
        *_noise(),
    )


def _one_student() -> tuple[Claim, ...]:
    rate, noise = 0.05, 0.6
    limit = sphere_limit(1, rate, noise)
    overlaps = np.array([0.1, -0.4, 0.7])
    printed = overlaps * (4 * (1 - 6 * rate) * (1 - overlaps**2) - 2 * rate * noise)
    drifts = [float(rates(limit, State(Q=[[1.0]], M=[[m]])).M[0, 0]) for m in overlaps]
    final = solve(limit, State(Q=[[1.0]], M=[[0.3]]), 12.0 / rate).risk[-1] - noise / 2
    # The largest learning rate for which a start near the signal does not lose it: where the plateau turns stable.
    noises = np.array([0.0, 0.5, 2.0])
    bounds = [_vanishing_growth(1, each) for each in noises]
    return (
        Claim("eqs. (19), (97)", "The ODE of p = 1 on the sphere.", printed, drifts, EXACT),
        Claim(
            "eq. (20)",
            "The excess risk tends to gamma noise / (1 - 6 gamma).",
            rate * noise / (1 - 6 * rate),
            float(final),
            SOLVED,
        ),
        Claim(
            "Sec. 3.2, gamma < 1/6",
            "The upper bound on the learning rate for learning to occur, at noise 0, 0.5 and 2.",
            np.full(3, 1 / 6),
            bounds,
            EXACT,
            remark="Necessary, but sufficient without noise only: learning needs gamma < 2 / (12 + noise), beyond "
            "which the plateau is stable.",
        ),
    )


def _vanishing_growth(p: int, noise: float) -> float:
    """The learning rate at which the plateau turns stable; the growth rate is linear in it."""
    low, high = (plateau_rates(p, rate, noise)[0] for rate in (0.05, 0.1))
    return 0.05 + 0.05 * low / (low - high)


def _plateau() -> tuple[Claim, ...]:
    p, rate, noise = 3, 0.4, 0.3
    step = 1e-6
    Q = np.eye(p) + step * (1 - np.eye(p))
    free = free_limit(p, rate, noise)
    at = rates(free, State(Q=np.eye(p), M=np.zeros((p, 1))))
    near = rates(free, State(Q=Q, M=np.full((p, 1), step)))
    unconstrained = np.array([near.M[0, 0] / step, (near.Q[0, 1] - at.Q[0, 1]) / step, at.Q[0, 0]])
    inside = 2 + 2 / p + noise
    psi = 4 * (1 - 1 / p)
    phi_off = -16 / p + 4 * rate / p * (inside + 24 / p**2)
    phi_own = -8 / p + 4 * rate / p * (inside + 8 / p**2)
    cases = [(1, 0.1, 0.2), (2, 0.3, 0.0), (5, 0.7, 0.3)]
    printed, ours = [], []
    for case in cases:
        of_m, of_Q = linear_rates(*case)
        found_m, found_Q = plateau_rates(*case)
        printed += [of_m] if case[0] == 1 else [of_m, -of_Q]
        ours += [found_m] if case[0] == 1 else [found_m, found_Q]

    # For which widths does growth of M imply decay of Q? Both rates are linear in the learning rate.
    widths = (5, 7)
    implied = []
    for width in widths:
        slow, fast = plateau_rates(width, 1e-3, 0.0), plateau_rates(width, 1.0, 0.0)
        zero_m, zero_Q = (1e-3 + (1 - 1e-3) * a / (a - b) for a, b in zip(slow, fast, strict=True))
        implied.append(float(zero_m <= zero_Q))

    state = random_overlaps(p, seed=11, sphere=True)
    Q, m = np.asarray(state.Q), np.asarray(state.M)[:, 0]
    excess = 1 + 1 / p + np.sum(Q**2 - np.diag(np.diag(Q**2))) / p**2 - 2 / p * np.sum(m**2)
    d, time = 400.0, 0.3
    start = random_state(PhaseRetrieval(width=p), int(d), key=jax.random.key(12))
    mu, tau = mu_and_tau(start, d)
    of_m, of_Q = linear_rates(p, rate, noise)
    decay, growth = np.exp(-2 * of_Q * time), np.exp(2 * of_m * time)
    later = State(
        Q=np.eye(p) + np.exp(-of_Q * time) * (np.asarray(start.Q) - np.eye(p)), M=np.exp(of_m * time) * start.M
    )
    problem = PhaseRetrieval(width=p, noise=noise)
    return (
        Claim(
            "eqs. (42)-(44)",
            "On the plateau: Psi_j / M_j, Phi_jl / Q_jl and Phi_jj to leading order.",
            [psi, phi_off, phi_own],
            unconstrained,
            1e-5,
            remark="Differences of the library's drift over 1e-6.",
        ),
        Claim(
            "eqs. (45)-(48)",
            "Growth of M at omega_M = 4 (1 - (gamma/p)(1 + 1/p + 4/p^2 + noise/2)), decay of Q_jl at omega_Q = (8/p)"
            "(1 - 8 gamma/p^2); p = 1, 2, 5.",
            printed,
            ours,
            EXACT,
            remark="Derivatives of the library's drift at Q = I, M = 0.",
        ),
        Claim(
            "App. C.2, p > 6",
            "For p > 6, growth of M implies decay of Q: here whether it does, p = 5 and 7, without noise.",
            [0.0, 1.0],
            implied,
            EXACT,
        ),
        Claim(
            "eq. (49)",
            "The excess risk on the sphere.",
            excess,
            float(problem.risk(state)) - noise / 2,
            EXACT,
        ),
        Claim(
            "eq. (51)",
            "The excess risk on the plateau over time: 1 + 1/p + d tau_0 exp(..)/p^2 - 2 d mu_0 exp(..)/p.",
            1 + 1 / p + d * tau / p**2 * decay - 2 * d * mu / p * growth,
            float(problem.risk(later)) - noise / 2,
            EXACT,
            correction="tau_0 / (d p^2) and 2 mu_0 / (d p): d divides, as in (50) and (52).",
            corrected=1 + 1 / p + tau / (d * p**2) * decay - 2 * mu / (d * p) * growth,
        ),
    )


def _exit_times() -> tuple[Claim, ...]:
    # p = 1: the nonlinear ODE, from starts so small and to a threshold so low that it is linear up to the exit.
    rate, noise, threshold, d = 0.05, 0.6, 1e-4, 1e9
    limit = sphere_limit(1, rate, noise)
    mu = np.array([1.0, 0.2, 3.0])
    found = solved_exits(limit, [State(Q=[[1.0]], M=[[(each / d) ** 0.5]]) for each in mu], threshold)
    printed = [annealed(1, d, rate, noise, threshold)]
    printed += list(exit_from(1, d, rate, noise, threshold, mu[1:], 0.0))

    # Any p: what (52) solves, with the library's risk, at a d where every term counts.
    p, rate, noise, threshold, d = 3, 0.4, 0.3, 0.1, 100.0
    problem = PhaseRetrieval(width=p, noise=noise)
    starts = [random_state(problem, int(d), key=key) for key in jax.random.split(jax.random.key(13), 3)]
    growth = plateau_rates(p, rate, noise)[0]
    roots = [_linear_exit(problem, start, growth, threshold) for start in starts]
    formula = [exit_from(p, d, rate, noise, threshold, *mu_and_tau(start, d)) for start in starts]
    single = PhaseRetrieval(noise=noise)
    return (
        Claim(
            "eqs. (21)-(23)",
            "Exit times of the ODE for p = 1: annealed, and the quenched one before its mean.",
            printed,
            found,
            1e-4,
            remark="The nonlinear ODE at d = 1e9, T = 1e-4: the formulas are its limit of low thresholds.",
        ),
        Claim(
            "Sec. 3.2, quenched and annealed",
            "The quenched exit time is not below the annealed one: whether it is so.",
            1.0,
            float(quenched(1, 3_000, 0.05, 0.0, 0.1) >= annealed(1, 3_000, 0.05, 0.0, 0.1)),
            EXACT,
        ),
        Claim(
            "eqs. (28), (52), (53)",
            "The exit time from a start with mu_0, tau_0, whose mean is the quenched one.",
            formula,
            roots,
            EXACT,
            remark="Root of (21) with the library's risk and growth rate, Q_jl taken as decayed; p = 3, d = 100.",
        ),
        Claim(
            "eqs. (28), (54), (55)",
            "The annealed exit time, with mu_0 = p and tau_0 = p (p - 1); p = 3 and p = 1.",
            [annealed(p, d, rate, noise, threshold), exit_from(1, d, 0.1, noise, threshold, 1.0, 0.0)],
            [
                _linear_exit(problem, typical_start(p, d), growth, threshold),
                _linear_exit(single, typical_start(1, d), plateau_rates(1, 0.1, noise)[0], threshold),
            ],
            EXACT,
        ),
    )


def _linear_exit(problem: TwoLayer, start: State, growth: float, threshold: float) -> float:
    """When eq. (21) is met with M growing at a constant rate and the students orthogonal."""
    level = exit_level(problem, start, threshold)
    orthogonal, M = np.eye(problem.width), np.asarray(start.M)
    risk = eqx.filter_jit(problem.risk)

    def above(time):
        return float(risk(State(Q=orthogonal, M=np.exp(growth * time) * M))) - level

    return cast(float, brentq(above, 0.0, 5.0, xtol=1e-14))


def _learning_rates() -> tuple[Claim, ...]:
    """The learning rate that escapes with fewest samples, and what width gains."""
    d, threshold, noise = 3_000.0, 0.1, 0.5
    widths = np.array([1, 2, 5, 7])
    printed_rate = widths**3 / (8 + 2 * widths + (2 + noise) * widths**2)
    logs = np.array([np.log((threshold * (p + 1) * d + (p + 1) * (1 - threshold)) / (2 * p)) for p in widths])
    printed_steps = d * (8 + 2 * widths + (2 + noise) * widths**2) * logs / (4 * widths**2)
    best, steps, prefactors = [], [], []
    for p, log in zip(widths, logs, strict=True):
        slow, fast = (plateau_rates(int(p), rate, noise)[0] for rate in (1e-3, 0.1))
        slope = (fast - slow) / (0.1 - 1e-3)

        def needed(rate, p=p, slow=slow, slope=slope, log=log):
            return p * d / rate * log / (2 * (slow + slope * (rate - 1e-3)))

        bound = 1e-3 - slow / slope
        found: Any = minimize_scalar(needed, bounds=(1e-3, 0.999 * bound), method="bounded", options={"xatol": 1e-10})
        best.append(found.x)
        steps.append(found.fun)
        prefactors.append(found.fun * found.x / (p * d * log))
    # Samples over d log d are a polynomial of degree two in 1/p: its value at 1/p = 0 from three widths.
    leading = np.array(steps) / (d * logs)
    infinite = np.polyfit(1 / widths[1:], leading[1:], 2)[-1]

    ends = []
    for p in (1, 5):
        rate = p**3 / (8 + 2 * p + 2 * p**2)
        limit = sphere_limit(p, rate, 0.0)
        start = random_state(PhaseRetrieval(width=p), 1_000, key=jax.random.key(15))
        ends.append(float(solve(limit, start, 40.0 * p / rate, relative_tolerance=1e-6).risk[-1]))
    return (
        Claim(
            "App. C.4, gamma_opt; Sec. 3.2",
            "The rate that needs fewest samples to escape: p^3 / (8 + 2 p + (2 + noise) p^2); p = 1, 2, 5, 7.",
            printed_rate,
            best,
            SOLVED,
            remark="Minimised numerically, with the library's growth rates; at p = 1 it is 1 / (12 + noise).",
        ),
        Claim(
            "Sec. 4, prefactor", "At gamma_opt the prefactor is 1/4 at any width.", np.full(4, 0.25), prefactors, SOLVED
        ),
        Claim("eq. (56), s_min", "The fewest samples to escape.", printed_steps, steps, SOLVED),
        Claim(
            "App. C.4, gain",
            "Infinite width gains a factor (12 + noise) / (2 + noise) over p = 1.",
            (12 + noise) / (2 + noise),
            leading[0] / infinite,
            SOLVED,
        ),
        Claim(
            "Sec. 4, use of gamma_opt",
            "At gamma_opt SGD escapes and learns: excess risk of the ODE in the end, without noise, p = 1 and 5.",
            np.zeros(2),
            ends,
            1e-3,
            remark="The source minimises the samples to escape. For p > 1 the learned state is unstable there: it "
            "needs gamma/p < 2 / (12 + noise). With it, width gains 10/3 at most without noise, not 6.",
        ),
    )


def _critical_points() -> tuple[Claim, ...]:
    p = 3
    problem = PhaseRetrieval(width=p)
    plateau = float(problem.risk(State(Q=np.eye(p), M=np.zeros((p, 1)))))
    aligned = float(problem.risk(State(Q=np.ones((p, p)), M=np.zeros((p, 1)))))
    # Two students at w_* and - w_*, as vectors.
    weights = np.array([[1.0, 0.0], [-1.0, 0.0]])
    overlap = float(weights[0] @ weights[1])
    solution = State(Q=weights @ weights.T, M=weights[:, :1])
    assert abs(float(PhaseRetrieval(width=2).risk(solution))) < EXACT
    return (
        Claim(
            "after eq. (11), global maximum",
            "M = 0 with orthogonal students is the global maximum of the risk; here on the sphere, p = 3.",
            plateau,
            max(plateau, aligned),
            EXACT,
            remark="It is for p = 1. For p > 1 students that agree with each other and not with the teacher have the "
            "excess risk 2, above 1 + 1/p: the plateau is a saddle.",
        ),
        Claim(
            "after eq. (11), global minima",
            "At the minima M_j = +- 1 and Q_jl = 1; here M = (1, -1).",
            1.0,
            overlap,
            EXACT,
            correction="Q_jl = M_j M_l.",
            corrected=float(weights[0, 0] * weights[1, 0]),
        ),
    )


def _diffusion() -> tuple[Claim, ...]:
    """Appendix D: the exit of the linear diffusion."""
    rate, noise, threshold, d = 0.05, 0.3, 0.01, 300
    limit = sphere_limit(1, rate, noise)
    growth = plateau_rates(1, rate, noise)[0]
    at_zero = State(Q=[[1.0]], M=[[0.0]])
    variance = float(sde(limit.problem, limit.algorithm, d=d).covariance(0.0, at_zero)[0, 0]) / rate
    mu, sigma2 = 4 * (1 - 6 * rate) - 2 * rate * noise, rate / d * (48 + 4 * noise)
    edge = threshold**0.5
    # Mean exit time u(m): sigma^2/2 u'' + mu m u' = -1, zero at the edges.
    grid = np.linspace(-edge, edge, 201)
    solution = solve_bvp(
        lambda m, u: np.stack([u[1], -2 / variance * (1 + growth * m * u[1])]),
        lambda left, right: np.array([left[0], right[0]]),
        grid,
        np.zeros((2, len(grid))),
        tol=1e-9,
        max_nodes=100_000,
    )
    from_zero = float(solution.sol(0.0)[0])
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    starts = nodes / d**0.5
    inside = np.abs(starts) < edge
    over_starts = float(np.sum((weights / weights.sum())[inside] * solution.sol(starts[inside])[0]))
    printed = threshold / sigma2 * _hypergeometric(-mu * threshold / sigma2)
    return (
        Claim(
            "eqs. (57), (58)",
            "Near M = 0: drift mu M and variance sigma^2 = (gamma/d) (48 + 4 noise) per unit of time.",
            [mu, sigma2 * d],
            [growth, variance * d],
            EXACT,
        ),
        Claim(
            "eq. (59)",
            "The mean exit time from M = 0 is (T/sigma^2) 2F2(1, 1; 3/2, 2; - mu T / sigma^2).",
            printed,
            from_zero,
            SOLVED,
            remark="Against the boundary-value problem of the diffusion, solved numerically.",
        ),
        Claim(
            "after eq. (59)",
            "It coincides with the annealed average over random starts.",
            printed,
            over_starts,
            1e-3,
            remark="It is the time from M = 0. Averaged over random starts, variance 1/d, the exit is earlier.",
        ),
    )


def _noise() -> tuple[Claim, ...]:
    """SGD itself, from random starts."""
    d, threshold, rate, runs = 300, 0.1, 1 / 12, 600
    limit, level = sphere_limit(1, rate, 0.0), plateau_level(PhaseRetrieval(), threshold)
    exits = simulated_exits(limit, d, level, until=12.0, runs=runs, key=jax.random.key(17))
    formula, mean = quenched(1, d, rate, 0.0, threshold), float(np.mean(exits))
    error = float(np.std(exits, ddof=1)) / formula / runs**0.5
    return (
        Claim(
            "Sec. 3.3, stochasticity does not matter",
            "The noise of SGD can be neglected in the exit time: measured mean over the quenched formula, p = 1.",
            1.0,
            mean / formula,
            3 * error,
            remark=f"Measured {mean / formula:.3f} +- {error:.3f} (tolerance: three standard errors) at gamma_opt = "
            f"1/12, d = {d}, T = {threshold}. On the plateau the noise is as large as the start, at every d; "
            "Fig. 2 has the prediction with it.",
        ),
    )


def _hypergeometric(argument: float) -> float:
    """2F2(1, 1; 3/2, 2; argument) by 200 terms of its series, for moderate arguments."""
    n = np.arange(200)
    # (1)_n (1)_n / ((3/2)_n (2)_n n!) = Gamma(3/2) / (Gamma(n + 3/2) (n + 1))
    logs = gammaln(1.5) - gammaln(n + 1.5) - np.log(n + 1.0) + n * np.log(abs(argument))
    return float(np.sum(np.sign(argument) ** n * np.exp(logs)))
