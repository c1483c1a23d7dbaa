"""Statements on the limit of large d and on its regimes: slides "Main theoretical result", "The different regimes"."""

import jax
import numpy as np

from dimfree import Claim, OnlineSGD, State, gradient_flow, ode, simulate, solve

from .conventions import NOISE, committee

P, K = 2, 1
START = State(Q=[[1.0, 0.2], [0.2, 0.8]], M=[[0.3], [-0.1]])


def claims() -> tuple[Claim, ...]:
    """All of them, in the order of the slides."""
    return (*_theorem(), *_classical())


def deviations(d: int, rate: float, time: float, runs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """M and the upper triangle of Q at a time, for each run, less those of the ODE; and those of the ODE."""
    problem, sgd = committee(P, K), OnlineSGD(rate)
    alpha = np.array([0.0, time * P / rate])
    exact = solve(ode(problem, sgd), START, alpha)
    paths = simulate(problem, sgd, START, d, alpha, runs=runs, key=jax.random.key(seed))
    coordinates = sgd.coordinates(problem)
    there = np.asarray(coordinates.pack(exact.final))
    return np.asarray(coordinates.pack(paths.final)) - there, there


def _theorem() -> tuple[Claim, ...]:
    runs, time = 256, 1.0
    # How much smaller the deviation is at sixteen times the dimension, and at a quarter of the learning rate.
    sizes = {
        cell: np.abs(deviations(*cell, time, runs, seed=6)[0]).max(axis=1).mean()
        for cell in ((100, 0.4), (1_600, 0.4), (400, 0.4), (400, 0.1))
    }
    falls = [sizes[100, 0.4] / sizes[1_600, 0.4], sizes[400, 0.4] / sizes[400, 0.1]]
    # The mean of many runs at a small d and a large step, where the nonlinearity of the drift tells.
    many, d, rate = 16_384, 4, 2.0
    away, there = deviations(d, rate, 2.0, many, seed=7)
    error = float((away.std(axis=0) / many**0.5).max())
    return (
        Claim(
            '"Main theoretical result", theorem',
            "The mean deviation of SGD from the ODE is at most exp(C t) sqrt(gamma/(d p)): how much it falls at 16 d, "
            "and at gamma/4.",
            [4.0, 2.0],
            falls,
            0.1,
            remark="Largest entry of M and Q at t = 1, mean of 256 runs, p = 2, k = 1. The constants are not checked.",
        ),
        Claim(
            '"Main theoretical result", mean',
            "The solution of the ODE is the mean of Omega over runs; M and Q at t = 2, d = 4, gamma = 2.",
            there,
            there + away.mean(axis=0),
            4 * error,
            remark="Four standard errors of 16384 runs. The two agree as gamma/(d p) vanishes; at finite d the mean "
            "obeys no equation of its own, since the drift is not linear.",
        ),
    )


def _classical() -> tuple[Claim, ...]:
    problem, times = committee(P, K, noise=NOISE), np.array([0.0, 2.0, 4.0])
    distances = []
    for rate in (0.2, 0.1):
        ends = [solve(make(problem, OnlineSGD(rate)), START, times * P / rate).state.Q for make in (ode, gradient_flow)]
        distances.append(np.asarray(ends[0] - ends[1])[1:])
    ratio = np.linalg.norm(distances[0]) / np.linalg.norm(distances[1])
    return (
        Claim(
            '"Classical regime"',
            "As gamma vanishes the ODE becomes gradient flow, at a distance in proportion to gamma/p: how much it "
            "falls at gamma/2.",
            2.0,
            float(ratio),
            0.05,
        ),
    )
