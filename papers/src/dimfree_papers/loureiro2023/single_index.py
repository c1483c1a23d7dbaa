"""Statements on single-index models and phase retrieval."""

import jax.numpy as jnp
import numpy as np

from dimfree import Claim, OnlineSGD, SingleIndex, State, ode, solve

from ..arnaboldi2023.checks import sphere_limit
from ..arnaboldi2023.exits import annealed, exit_from, mu_and_tau, solved_exits
from ..arnaboldi2023.weights import risk_of, tangent_basis, tangent_hessian
from ..comparing import EXACT

LINKS = {1: "linear", 2: "he2", 3: "he3"}


def claims() -> tuple[Claim, ...]:
    """All of them, in the order of the slides."""
    return (*_information_exponents(), *_landscape(), *_exit_times())


def samples(exponent: int, d: float) -> float:
    r"""Samples until the ODE reaches an overlap of one half, from $M = d^{-1/2}$.

    The readout is small and so is the learning rate: fixed, but of the order $d^{-1/2}$ for an exponent of three.
    """
    problem = SingleIndex(LINKS[exponent], readout=[0.1])
    rate = 0.5 * d ** (-max(0, exponent - 2) / 2)
    start = State(Q=[[1.0]], M=[[d**-0.5]])
    longest = {1: 50.0, 2: 20 * np.log(d), 3: 20 * d}[exponent] * 4
    path = solve(
        ode(problem, OnlineSGD(rate, sphere=True)),
        start,
        np.array([0.0, longest]),
        stop=lambda state: jnp.abs(state.M[0, 0]) - 0.5,
        relative_tolerance=1e-9,
        absolute_tolerance=1e-14,
    )
    return d * float(path.stopped_at)


def _information_exponents() -> tuple[Claim, ...]:
    low, high = 1e4, 1e8
    growth = {kappa: np.log10(samples(kappa, high) / samples(kappa, low)) for kappa in LINKS}
    logarithm = np.log10(high * np.log(high) / (low * np.log(low)))
    note = "Decades by which the samples grow from d = 10^4 to 10^8, to an overlap of one half"
    return (
        Claim(
            '"Single-index models", exponent 1',
            f"n = O(1) for an information exponent of one. {note}.",
            0.0,
            growth[1],
            0.02,
            correction="n = O(d).",
            corrected=4.0,
            remark="The ODE from the typical start; dimfree.sample_complexity measures the same by simulation.",
        ),
        Claim(
            '"Single-index models", exponent 2',
            f"n = O(d log d) for an information exponent of two. {note}.",
            logarithm,
            growth[2],
            0.02,
        ),
        Claim(
            '"Single-index models", exponent 2 and more',
            f"n = O(d^(kappa - 1)) for kappa >= 2; here kappa = 2 and 3. {note}.",
            [4.0, 8.0],
            [growth[2], growth[3]],
            0.01,
            correction="For kappa >= 3; at kappa = 2 there is a logarithm. (Printed with k, the teacher's width.)",
            corrected=[logarithm, 8.0],
            remark="The learning rate is proportional to d^-1/2 at kappa = 3, as large as noise allows.",
        ),
    )


def _landscape() -> tuple[Claim, ...]:
    signal = jnp.zeros(6).at[0].set(1.0)
    w = jnp.zeros(6).at[1].set(1.0)
    hessian = tangent_hessian(lambda v: risk_of(v, signal), w)
    along = tangent_basis(w).T @ np.asarray(signal)
    return (
        Claim(
            '"Phase retrieval", Hessian',
            "On the sphere the Hessian where w is orthogonal to w_* is proportional to w_* w_*^T; here -4 of it.",
            -4 * np.outer(along, along),
            hessian,
            EXACT,
            remark="On the tangent space of the unit sphere, d = 6.",
        ),
    )


def _exit_times() -> tuple[Claim, ...]:
    """The closed forms, against the nonlinear ODE from starts and to thresholds so small that it is linear."""
    p, rate, noise, threshold, d = 2, 0.1, 0.3, 1e-4, 1e9
    overlaps = np.array([[1.0, 1.0, 1.0], [0.4, -1.3, 0.7]]) * d**-0.5  # of each student, and of both
    starts = [State(Q=[[1.0, q], [q, 1.0]], M=[[m], [n]]) for m, n, q in overlaps]
    printed = [annealed(p, d, rate, noise, threshold)]
    printed.append(float(exit_from(p, d, rate, noise, threshold, *mu_and_tau(starts[1], d))))
    return (
        Claim(
            '"Does width matter?", exit times',
            "Exit times, annealed and quenched before its mean, with mu_0 = d sum M_j^2, tau_0 = d sum Q_jl^2; p = 2.",
            printed,
            solved_exits(sphere_limit(p, rate, noise), starts, threshold),
            1e-3,
            remark="The nonlinear ODE at d = 10^9, T = 10^-4: the formulas are its limit of low thresholds. They leave "
            "out the noise of SGD, which shortens the mean by log(1 + v) / (2 omega) at every d: see fig6.",
        ),
    )
