"""Figures 1, 5 and 6: simulations against dynamical mean-field theory."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np

from dimfree import Claim, DMFTSolution, GradientDescent, Langevin, PersistentSGD, Reproduction, dmft, solve
from dimfree.algorithms import ReusedData
from dimfree.papers import Size

from ..drawing_style import DARK, GREY, RED, in_style, panels
from .conventions import (
    AT_SIGNAL,
    BATCH_FRACTION,
    PERSISTENCE,
    PHASE,
    SAMPLES,
    SETTING,
    START,
    Measured,
    Plan,
    measure,
    standard_error,
    warm,
)
from .drawing import LOSS, OVERLAP, above_floor, caption, over_time

if TYPE_CHECKING:
    import matplotlib.axes

_STARTS = (0.5, 0.65, 0.8)
_TIMES = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # where theory and simulation are compared, as far as both go


@dataclasses.dataclass(frozen=True)
class _Theory:
    """How far the theory is followed: end of time, paths in a population, most populations, error that is enough."""

    end: float
    paths: int
    populations: int
    error: float


_PLAN = {"quick": Plan(150, 64, 64, 0.01, 10.0), "full": Plan(1_000, 128, 128, 0.01, 10.0)}
_THEORY = {"quick": _Theory(0.6, 1_024, 4, 1.0), "full": _Theory(10.0, 8_192, 16, 0.004)}
_LONGER = {"quick": Plan(300, 64, 64, 0.01, 1.0), "full": Plan(1_000, 128, 128, 0.01, 5.0)}
_LONGER_THEORY = {"quick": _Theory(0.6, 4_096, 4, 1.0), "full": _Theory(5.0, 8_192, 32, 0.005)}
_ONE_LANDSCAPE = {"quick": 24, "full": 100}  # runs on one dataset, lower panels of figure 1


def _solved(algorithm: ReusedData, overlap: float, theory: _Theory, seed: int) -> DMFTSolution:
    limit = dmft(PHASE, algorithm, target_error=theory.error, paths=theory.paths, most_populations=theory.populations)
    return solve(limit, warm(overlap), theory.end, key=jax.random.key(seed))


def on_one_grid(grids: Sequence[np.ndarray], curves: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Curves, each over its own times, over those of the finest grid: the solver takes the steps each needs."""
    times = max(grids, key=len)
    return times, np.stack([np.interp(times, grid, curve) for grid, curve in zip(grids, curves, strict=True)])


def _both(runs: Measured, solution: DMFTSolution, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Overlap ("M") or training loss ("training_loss"): of each run, and of the theory, over their times."""
    if name == "M":
        return runs.m, np.asarray(solution.state.M)[:, 0, 0]
    return runs.loss, np.asarray(solution.training_loss)


def _draw(axes: "matplotlib.axes.Axes", runs: Measured, solution: DMFTSolution, rate: float, name: str) -> None:
    """Simulation as points, theory as a line in a band of two standard errors."""
    simulated, mean = _both(runs, solution, name)
    error = 2 * solution.standard_error[name]
    axes.plot(runs.time + rate, above_floor(simulated.mean(axis=0)), "o", color=GREY, markersize=4, label="simulation")
    axes.plot(solution.time + rate, mean, color=RED, linewidth=1.8, label="DMFT")
    axes.fill_between(solution.time + rate, mean - error, mean + error, color=RED, alpha=0.25, linewidth=0)


def _compared(
    runs: Measured, solution: DMFTSolution, plan: Plan, name: str
) -> tuple[str, np.ndarray, np.ndarray, float]:
    """At some times: which they are, the averages of simulation and of theory, and four standard errors of both."""
    times = np.array([time for time in _TIMES if time <= solution.time[-1] + 1e-9])
    simulated, mean = _both(runs, solution, name)
    error = np.hypot(
        np.interp(times, runs.time, standard_error(simulated, plan.datasets)),
        np.interp(times, solution.time, solution.standard_error[name]),
    )
    return (
        ", ".join(f"{time:g}" for time in times),
        np.interp(times, runs.time, simulated.mean(axis=0)),
        np.interp(times, solution.time, mean),
        float(4 * error.max()),
    )


def _overlaps(where: str, runs: Measured, solution: DMFTSolution, plan: Plan) -> Claim:
    times, simulated, theory, error = _compared(runs, solution, plan, "M")
    return Claim(
        where,
        f"Simulations follow the theory: average overlap at t = {times}.",
        simulated,
        theory,
        error + 2 / plan.d + 0.5 * plan.rate,
        remark=f"{plan.described()}. Tolerance: four standard errors of both, 2 / d, and half a step.",
    )


def _losses(where: str, runs: Measured, solution: DMFTSolution, plan: Plan) -> Claim:
    times, simulated, theory, error = _compared(runs, solution, plan, "training_loss")
    return Claim(
        where,
        f"The same for the training loss, eq. (20), at t = {times}.",
        simulated,
        theory,
        error + 4 / plan.d + 2 * plan.rate,
        remark="Tolerance: four standard errors of both, 4 / d, and two steps.",
    )


@in_style
def fig1(size: Size) -> Reproduction:
    """Gradient descent on 2 d samples from m = 0.5, 0.65 and 0.8: averages with the theory, and runs on one dataset.

    Full size: d = 1000, learning rate 0.01 until t = 10 with 128 datasets (1 GB), 100 runs on one dataset, and the
    theory until t = 10 by up to 16 populations of 8192 paths for each start. Quick: d = 150, 64 datasets, 24 runs on
    one, and the theory until t = 0.6 by 4 populations of 1024 paths. What the text does not state of the source's own
    sizes was chosen here.
    """
    import xarray

    plan, theory = _PLAN[size], _THEORY[size]
    descent = GradientDescent(plan.rate, 2.0, sphere=True)
    one = dataclasses.replace(plan, runs=_ONE_LANDSCAPE[size], datasets=1)
    averaged = [measure(plan, descent, warm(m0), seed=1) for m0 in _STARTS]
    alike = [measure(one, descent, warm(m0), seed=11) for m0 in _STARTS]
    solutions = [_solved(descent, m0, theory, 21) for m0 in _STARTS]
    grids = [np.asarray(each.time) for each in solutions]
    theory_time, m_theory = on_one_grid(grids, [np.asarray(each.state.M)[:, 0, 0] for each in solutions])
    _, m_theory_error = on_one_grid(grids, [each.standard_error["M"] for each in solutions])
    data = xarray.Dataset(
        {
            "m": (("start", "run", "time"), np.stack([each.m for each in averaged])),
            "m_one_dataset": (("start", "run_on_it", "time"), np.stack([each.m for each in alike])),
            "m_theory": (("start", "theory_time"), m_theory),
            "m_theory_error": (("start", "theory_time"), m_theory_error),
        },
        coords={"start": list(_STARTS), "time": averaged[0].time, "theory_time": theory_time},
        attrs={"d": plan.d, "learning_rate": plan.rate},
    )
    figure, axes = panels(2, 3, width=4.4, height=3.3)
    for number, m0 in enumerate(_STARTS):
        upper, lower = axes[number], axes[3 + number]
        _draw(upper, averaged[number], solutions[number], plan.rate, "M")
        over_time(upper, f"average {OVERLAP}", f"({'abc'[number]})  $m_0$ = {m0}, {plan.datasets} datasets")
        lower.plot(alike[number].time + plan.rate, alike[number].m.T, color=RED, linewidth=0.7, alpha=0.5)
        lower.plot([], [], color=RED, linewidth=0.7, label=f"{one.runs} starts")
        over_time(lower, OVERLAP, f"({'def'[number]})  $m_0$ = {m0}, one dataset")
        for panel in (upper, lower):
            panel.axhline(1.0, color=DARK, linewidth=0.7, linestyle=":")
            panel.legend(loc="upper left" if m0 == 0.5 or panel is upper else "lower right")
    caption(figure, f"Gradient descent, M/d = 2, d = {plan.d:,}, learning rate {plan.rate:g}")
    return Reproduction(data, figure, _fig1_claims(averaged, alike, solutions, plan, size))


def _fig1_claims(averaged, alike, solutions, plan: Plan, size: Size) -> tuple[Claim, ...]:
    ended = np.array([np.mean(each.m[:, -1] > AT_SIGNAL) for each in averaged])
    claims = [
        _overlaps(f"Fig. 1, DMFT from m = {m0}", runs, solution, plan)
        for m0, runs, solution in zip(_STARTS, averaged, solutions, strict=True)
    ]
    claims.append(
        Claim(
            "Fig. 1, trapped close to the signal",
            "Some runs from m = 0.5 have recovered at t = 10 while some from 0.65 have not: 1 for each.",
            np.ones(2),
            [float(ended[0] > 0), float(ended[1] < 1)],
            0.0,
            remark="Recovered from each start: " + ", ".join(f"{value:.2f}" for value in ended),
        )
    )
    later = [_recovered_from_08(each) for each in averaged[:2]]
    claims.append(
        Claim(
            "Fig. 1, overlap is not all",
            "Runs that come to 0.8 from farther away can be stuck, while of those that start there more recover: 1 if "
            "the fraction is lower by 0.1.",
            np.ones(2),
            [float(fraction < ended[2] - 0.1) for fraction in later],
            0.0,
            remark="Recovered, among those that passed 0.8: "
            + ", ".join(f"{value:.2f}" for value in later)
            + f"; from 0.8 {ended[2]:.2f}.",
        )
    )
    if size == "full":
        claims.append(
            Claim(
                "Fig. 1, all runs from 0.8",
                "All runs from m = 0.8 have recovered at t = 10: their fraction, on one dataset.",
                1.0,
                float(np.mean(alike[2].m[:, -1] > AT_SIGNAL)),
                0.05,
                remark=f"Over datasets: {ended[2]:.3f}.",
            )
        )
    return tuple(claims)


def _recovered_from_08(runs: Measured) -> float:
    """Of the runs that reach the overlap 0.8, the fraction that recovers."""
    reached = runs.m.max(axis=1) > 0.8
    return float(np.mean(runs.m[reached, -1] > AT_SIGNAL))


def _both_panels(size: Size, algorithm: ReusedData, name: str, words: str, seed: int) -> Reproduction:
    """Overlap and training loss of an algorithm, with the samples and the start of most figures."""
    import xarray

    plan = _LONGER[size]
    runs = measure(plan, algorithm, warm(START), seed=seed)
    solution = _solved(algorithm, START, _LONGER_THEORY[size], seed)
    data = xarray.Dataset(
        {
            "m": (("run", "time"), runs.m),
            "training_loss": (("run", "time"), runs.loss),
            "m_theory": ("theory_time", np.asarray(solution.state.M)[:, 0, 0]),
            "m_theory_error": ("theory_time", solution.standard_error["M"]),
            "training_loss_theory": ("theory_time", solution.training_loss),
        },
        coords={"time": runs.time, "theory_time": solution.time},
        attrs={"d": plan.d, "learning_rate": plan.rate},
    )
    figure, (left, right) = panels(1, 2)
    _draw(left, runs, solution, plan.rate, "M")
    _draw(right, runs, solution, plan.rate, "training_loss")
    over_time(left, f"average {OVERLAP}", "(a)")
    over_time(right, f"average {LOSS}", "(b)")
    for axes in (left, right):
        axes.legend()
    caption(figure, f"{words}, {SETTING}; {plan.described()}")
    claims = (
        _overlaps(f"Fig. {name}, DMFT", runs, solution, plan),
        _losses(f"Fig. {name}, training loss", runs, solution, plan),
    )
    return Reproduction(data, figure, claims)


@in_style
def fig5(size: Size) -> Reproduction:
    """Persistent SGD against the theory: batches of half of the 3 d samples, persistence 1, from m = 0.2.

    Full size: d = 1000, learning rate 0.01 until t = 5 with 128 datasets (1.5 GB), and up to 32 populations of 8192
    paths. Quick: d = 300, 64 datasets until t = 1, the theory until t = 0.6 by 4 populations of 4096 paths. The text
    does not state the source's parameters; these are those of figure 2.
    """
    rate = _LONGER[size].rate
    algorithm = PersistentSGD(rate, SAMPLES, BATCH_FRACTION, PERSISTENCE, sphere=True)
    return _both_panels(size, algorithm, "5", r"Persistent SGD, $\ell$ = 0.5, $\tau$ = 1", 5)


@in_style
def fig6(size: Size) -> Reproduction:
    """Langevin dynamics against the theory: temperature 0.5, 3 d samples, from m = 0.2.

    Sizes as for figure 5. The text does not state the source's parameters; the temperature is one of figure 4.
    """
    return _both_panels(
        size, Langevin(_LONGER[size].rate, SAMPLES, temperature=0.5, sphere=True), "6", "Langevin, T = 0.5", 6
    )
