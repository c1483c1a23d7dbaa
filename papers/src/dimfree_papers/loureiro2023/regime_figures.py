"""Figures 1 to 3: erf networks in the classical and in the high-dimensional regime."""

from typing import NamedTuple

import jax
import numpy as np

from dimfree import Claim, OnlineSGD, Reproduction, gradient_flow, ode, random_state, simulate, solve
from dimfree.papers import Size

from ..comparing import would_see
from ..drawing_style import DARK, RED, SKY, in_style, panels
from .conventions import CLOCK, NOISE, committee

_TIMING = 0.1  # a relative difference of the time to learn that counts


class Regime(NamedTuple):
    """Widths, dimension, learning rate, end on the source's clock, and runs."""

    p: int
    k: int
    d: int
    rate: float
    end: float
    runs: int


@in_style
def fig1(size: Size) -> Reproduction:
    r"""SGD in a fixed, small dimension against gradient flow, erf, k = 2, p = 10.

    Noise $10^{-3}$, learning rate 0.05, as in the source at full size; the source does not state d, here 20, since it
    is the learning rate that is small. Full size takes minutes, 8 runs; quick: learning rate 1, 4 runs.
    """
    regime = Regime(10, 2, 20, 0.05, 1_000.0, 8) if size == "full" else Regime(10, 2, 20, 1.0, 600.0, 4)
    return _classical(regime, '"Classical regime", k = 2', seed=1)


@in_style
def fig2(size: Size) -> Reproduction:
    r"""SGD in a fixed, small dimension against gradient flow, erf, k = 5, p = 10.

    As figure 1; with more teachers it takes longer until students specialise.
    """
    regime = Regime(10, 5, 20, 0.05, 2_500.0, 8) if size == "full" else Regime(10, 5, 20, 1.0, 1_500.0, 4)
    return _classical(regime, '"Classical regime", k = 5', seed=3)


@in_style
def fig3(size: Size) -> Reproduction:
    r"""SGD in high dimension against its ODE, erf, k = 4, p = 8: a plateau, then specialisation.

    Noise $10^{-3}$, learning rate 0.1, as in the source at full size; the source does not state d, here 500. Full size
    takes a quarter of an hour, 4 runs; quick: d = 200, learning rate 4, 4 runs. All start from the same weights, with
    the overlaps of a random start in d = 100: from smaller ones noise decides which student takes to which teacher.
    """
    regime = Regime(8, 4, 500, 0.1, 1_500.0, 4) if size == "full" else Regime(8, 4, 200, 4.0, 1_500.0, 4)
    where = '"High-dimensional regime"'
    data = _run(regime, start_d=100, seed=2)
    figure, (left, right) = panels(1, 2)
    later = data.isel(time=slice(1, None))
    _draw_risk(left, later, "(a) risk")
    _draw_overlaps(right, later, "ode", "(b) specialisation: ODE, and dots of one run")
    right.axhline(regime.k**-0.5, color=DARK, linestyle=":", linewidth=1.0)
    right.text(data.time[1], regime.k**-0.5 + 0.02, r"$k^{-1/2}$: all teachers alike", fontsize=9)
    plateau = data.sel(time=40.0, method="nearest")
    claims = (
        _timing(where, data, "ode"),
        Claim(
            f"{where}, plateau",
            "First all students learn the mean of the teachers: best overlap with each teacher, at t = 40.",
            np.full(regime.k, regime.k**-0.5),
            plateau.best_ode.values,
            0.2,
            remark="The mean of k orthonormal teachers has the overlap k^-1/2 with each. It is seen with the "
            "information exponent one; each single teacher then by a leap of two.",
        ),
        Claim(
            f"{where}, specialisation",
            "In the end each teacher has a student of its own: best overlap with each.",
            np.ones(regime.k),
            data.best_ode.values[-1],
            0.1,
        ),
    )
    return Reproduction(data, figure, claims)


def _run(regime: Regime, start_d: int, seed: int):
    """Risks and overlaps of runs, of the ODE and of gradient flow, all from one start."""
    import xarray

    p, k, d, rate, end, runs = regime
    problem, sgd = committee(p, k), OnlineSGD(rate)
    start_key, run_key = jax.random.split(jax.random.key(seed))
    start = random_state(problem, start_d, key=start_key)
    times = np.concatenate([[0.0], np.geomspace(0.3, end, 100)])
    alpha = times * p / rate
    paths = simulate(problem, sgd, start, d, alpha, runs=runs, key=run_key)
    solved = {
        name: solve(limit(problem, sgd), start, alpha, relative_tolerance=1e-7)
        for name, limit in (("ode", ode), ("flow", gradient_flow))
    }

    def best(state) -> np.ndarray:
        norms = np.sqrt(np.diagonal(np.asarray(state.Q), axis1=-2, axis2=-1))[..., None]
        return np.max(np.asarray(state.M) / norms, axis=-2)

    def excess(risk) -> np.ndarray:
        return np.asarray(risk) - NOISE / 2

    return xarray.Dataset(
        {
            "risk_sgd": (("run", "time"), excess(paths.risk)),
            "risk_ode": ("time", excess(solved["ode"].risk)),
            "risk_flow": ("time", excess(solved["flow"].risk)),
            "best_sgd": (("run", "time", "teacher"), best(paths.state)),
            "best_ode": (("time", "teacher"), best(solved["ode"].state)),
            "best_flow": (("time", "teacher"), best(solved["flow"].state)),
        },
        coords={"time": times},
        attrs={"p": p, "k": k, "d": d, "learning_rate": rate, "noise": NOISE, "start_d": start_d},
    )


def _classical(regime: Regime, where: str, seed: int) -> Reproduction:
    data = _run(regime, start_d=regime.d, seed=seed)
    figure, (left, right) = panels(1, 2)
    later = data.isel(time=slice(1, None))
    _draw_risk(left, later, "(a) risk")
    _draw_overlaps(right, later, "flow", "(b) overlaps: flow, and dots of one run")
    end = Claim(
        f"{where}, end",
        "Gradient flow learns the teacher: excess risk at the end, as a fraction of that at the start.",
        0.0,
        float(data.risk_flow[-1] / data.risk_flow[0]),
        0.01,
    )
    return Reproduction(data, figure, (_timing(where, data, "flow"), end))


def _draw_risk(axes, data, title: str) -> None:
    axes.plot(data.time, data.risk_sgd.T, color=SKY, linewidth=0.8, alpha=0.7)
    axes.plot([], [], color=SKY, label=f"SGD, {data.sizes['run']} runs, d = {data.d:,}")
    axes.plot(data.time, data.risk_ode, color=DARK, label="ODE")
    axes.plot(data.time, data.risk_flow, color=RED, linestyle="--", label="gradient flow")
    axes.set(xscale="log", yscale="log", xlabel=CLOCK, ylabel="excess risk")
    axes.set_title(f"{title}: p = {data.p}, k = {data.k}, rate {data.learning_rate:g}")
    axes.legend(loc="lower left")


def _draw_overlaps(axes, data, limit: str, title: str) -> None:
    for r in range(data.k):
        axes.plot(data.time, data[f"best_{limit}"][:, r], color=f"C{r}", label=f"teacher {r + 1}")
        axes.plot(data.time, data.best_sgd[0, :, r], "o", color=f"C{r}", markersize=3, markevery=4)
    axes.set(xscale="log", xlabel=CLOCK, ylabel=r"best overlap, $\max_j M_{jr} / \sqrt{Q_{jj}}$", ylim=(0, 1.05))
    axes.set_title(title)
    axes.legend(loc="lower right", ncols=2)


def _timing(where: str, data, limit: str) -> Claim:
    """When the excess risk is a hundredth of its start: runs over the limit."""
    times, level = data.time.values, float(data.risk_flow[0]) / 100
    predicted = _first_below(times, data[f"risk_{limit}"].values, level)
    found = np.array([_first_below(times, run, level) for run in data.risk_sgd.values])
    ratio, error = float(found.mean() / predicted), float(found.std(ddof=1) / predicted / len(found) ** 0.5)
    words = {"ode": "the ODE", "flow": "gradient flow"}[limit]
    return Claim(
        f"{where}, {words}",
        f"SGD follows {words}: the mean time at which the excess risk is a hundredth of its start, over its own.",
        1.0,
        ratio,
        _TIMING,
        remark=f"Measured {ratio:.3f} +- {error:.3f} with {len(found)} runs in d = {data.d}, learning rate "
        f"{data.learning_rate:g}. {would_see(_TIMING, error)}",
    )


def _first_below(times: np.ndarray, risk: np.ndarray, level: float) -> float:
    """Where a risk first falls to the level, between the times by a straight line in both logarithms."""
    after = int(np.argmax(risk <= level))
    if risk[after] > level:
        return np.inf
    low, high = np.log(risk[after]), np.log(risk[after - 1])
    share = (np.log(level) - low) / (high - low)
    return float(np.exp(np.log(times[after]) * (1 - share) + np.log(times[after - 1]) * share))
