"""From settings to results: the numbers behind every picture of the explorer.

Noise, learning rate, dimension and horizon are traced, so that a slider of them meets a compiled program; only another
problem, width or constraint compiles, once.
"""

import dataclasses
import itertools
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..algorithms.online import OnlineAlgorithm
from ..analysis.exit_times import ExitTime, estimated, exit_level, exit_time
from ..analysis.plateau import rest
from ..analysis.portrait import Portrait, portrait
from ..analysis.protocols import BestProtocol, best_protocol
from ..analysis.regimes import ErrorScales, RegimeMap, regimes
from ..errors import InvalidInput
from ..limits import MeanLimit, ode
from ..quadratic import plateau
from ..simulation import random_state, simulate
from ..solving import solve
from ..state import State
from ..trajectory import Outcome, Trajectory
from .settings import RUNS, THRESHOLD, Settings

EXIT_RUNS = 64
KNOTS = 8  # of the best schedule
PAIRS = 64  # of runs that verify it
REGIME_TIME = 2.0  # learning_rate * alpha / p up to which the errors of the limits are compared
_CLEARLY_OTHER = 0.5  # distance of overlaps at the end from which on a run has broken a symmetry in its own way


@dataclasses.dataclass(frozen=True, eq=False)
class Curves:
    """Theory and simulation from one random start, and when each leaves the plateau.

    - `theory`, `simulated`: the ODE, and runs of SGD in dimension d.
    - `plateau_risk`, `level`: the risk on the plateau, and what it has fallen to where a run has left; None where there
      is no plateau, and `note` says why.
    - `predicted`: when the ODE leaves, infinite if not by the end; `measured`: when each run does.
    - `matched`: the runs with their students named as those of the ODE; `renamed`: how many had to be.
    - `remark`: what diverges, and what to do.
    """

    settings: Settings
    theory: Trajectory
    simulated: Trajectory
    plateau_risk: float | None
    level: float | None
    predicted: float
    measured: Float[np.ndarray, " runs"]
    matched: Trajectory
    renamed: int
    remark: str
    note: str

    @property
    def left(self) -> Float[np.ndarray, " some"]:
        """The exit times of the runs that leave."""
        return self.measured[np.isfinite(self.measured)]


def curves(settings: Settings, runs: int = RUNS) -> Curves:
    """The ODE and SGD from the same random start."""
    settings = settings.checked()
    problem, algorithm = settings.network, settings.algorithm
    start, run_key = _start(settings)
    limit, alphas = ode(problem, algorithm), settings.alphas
    theory = solve(limit, start, alphas)
    simulated = simulate(problem, algorithm, start, settings.d, alphas, runs=runs, key=run_key)
    if settings.averages:
        theory, simulated = (
            eqx.tree_at(lambda path: path.state, path, path.state.at("average")) for path in (theory, simulated)
        )
    risk, level, note = None, None, ""
    try:
        check_plain(settings, "The plateau is")
        risk = _plateau_risk(limit)
        level = float(exit_level(problem, risk, THRESHOLD))
    except InvalidInput as objection:
        note = str(objection)
    predicted, measured = np.inf, np.full(runs, np.inf)
    if level is not None:
        predicted = crossing(alphas, theory.risk, level)
        measured = np.array([crossing(alphas, path, level) for path in np.asarray(simulated.risk)])
    named, renamed = matched(theory, simulated, even=settings.even, rotated=settings.rotated)
    remark = _divergence(theory, simulated)
    note = "" if remark else note  # norms that diverge leave no plateau, which need not be said twice
    return Curves(settings, theory, simulated, risk, level, predicted, measured, named, renamed, remark, note)


def matched(theory: Trajectory, simulated: Trajectory, *, even: bool, rotated: bool) -> tuple[Trajectory, int]:
    """The runs with their students named as those of the ODE, and how many runs had other names.

    A network is the same whatever its students are called; with an even activation, whatever their signs; and with
    squares and free norms, however they are rotated among themselves. What SGD's noise makes of such a symmetry differs
    from run to run, and the mean over different choices would lie between them.
    """
    end, ends = np.asarray(theory.state.M)[-1], np.asarray(simulated.state.M)[:, -1]
    p, apart = len(end), np.linalg.norm(ends - end, axis=(1, 2))
    change = np.repeat(np.eye(p)[None], len(ends), axis=0)
    completed = np.asarray(simulated.outcome) == Outcome.COMPLETED
    if int(theory.outcome) != Outcome.COMPLETED:
        return simulated, 0
    signs = list(itertools.product((1.0, -1.0), repeat=p)) if even else [(1.0,) * p]
    orders = list(itertools.permutations(range(p)))
    ways = np.array([np.diag(sign) @ np.eye(p)[list(order)] for order in orders for sign in signs])
    for run in np.flatnonzero(completed & (apart > _CLEARLY_OTHER)):
        if rotated:
            left, _, right = np.linalg.svd(end @ ends[run].T)
            best = left @ right
        else:
            best = ways[np.argmin(np.linalg.norm(ways @ ends[run] - end, axis=(1, 2)))]
        if np.linalg.norm(best @ ends[run] - end) < apart[run] / 2:
            change[run] = best
    renamed = int(np.sum(np.any(change != np.eye(p), axis=(1, 2))))
    if not renamed:
        return simulated, 0
    change, old = change[:, None], simulated.state
    state = State(Q=change @ old.Q @ np.swapaxes(change, -1, -2), M=change @ old.M, P=old.P, readout=old.readout)
    return eqx.tree_at(lambda run: run.state, simulated, state), renamed


def crossing(alphas: Any, risk: Any, level: float) -> float:
    """When a curve first is at the level or below, between the times that are known; infinite if it never is."""
    alphas, risk = np.asarray(alphas), np.asarray(risk)
    below = np.flatnonzero(risk <= level)
    if not len(below):
        return np.inf
    after = below[0]
    if after == 0:
        return float(alphas[0])
    high, low = risk[after - 1], risk[after]
    return float(alphas[after - 1] + (alphas[after] - alphas[after - 1]) * (high - level) / (high - low))


def check_plain(settings: Settings, what: str) -> None:
    """Refuse optimisers and schedules where theory is about plain SGD."""
    if not settings.is_plain:
        raise InvalidInput(f"{what} found for plain SGD at a constant learning rate; choose those at the side.")


def exits(settings: Settings) -> ExitTime:
    """How long SGD stays on the plateau, over random starts: formula, ODE and simulation.

    It takes long, above all to compile.
    """
    return _exit_time(settings.checked(), EXIT_RUNS, exit_methods(settings))


def exit_methods(settings: Settings) -> tuple[str, ...]:
    """The descriptions of exit times that are shown: the formula and the noise of the plateau for squares only."""
    return ("closed_form", "ode", "dressed", "simulated") if settings.even else ("ode", "simulated")


def exit_formula(settings: Settings) -> ExitTime:
    """What is there soon: the plateau, and the formula where there is one."""
    return _exit_time(settings.checked(), 1, ("closed_form",))


def first_exits(formula: ExitTime, result: Curves) -> ExitTime:
    """The same with the runs of the learning curves, which all have one start."""
    settings = result.settings
    return dataclasses.replace(formula, simulated=estimated(result.measured, settings.alpha, "one start"))


def _exit_time(settings: Settings, runs: int, methods: tuple[str, ...]) -> ExitTime:
    check_plain(settings, "Exit times are")
    key = jax.random.key(settings.seed)
    return exit_time(settings.network, settings.algorithm, settings.d, THRESHOLD, runs=runs, key=key, methods=methods)


@dataclasses.dataclass(frozen=True, eq=False)
class Schedules:
    """The best schedule of the learning rate, with its gain simulated; `paths`: the algorithm and the ODE, by name."""

    protocol: BestProtocol
    paths: dict[str, tuple[OnlineAlgorithm, Trajectory]]


def check_sgd(settings: Settings) -> None:
    """Refuse other optimisers, whose rates belong together."""
    if settings.optimiser != "sgd":
        raise InvalidInput("The best schedule is found for plain SGD; choose it at the side.")


def learning_rates(algorithm: OnlineAlgorithm, alphas: Any) -> Float[np.ndarray, " times"]:
    """The learning rate at each alpha."""
    return np.asarray(jax.vmap(lambda alpha: algorithm.at(alpha, {}).learning_rate)(alphas))


def best_schedule(settings: Settings) -> Schedules:
    """The schedule with the lowest risk at the end, from the start of the learning curves.

    Neither the learning rate nor the schedule that is chosen makes a difference to it.
    """
    settings = settings.checked()
    check_sgd(settings)
    start, run_key = _start(settings)
    over = {"algorithm.learning_rate": (*settings.choice.searched_rates, KNOTS)}
    best = best_protocol(settings.network, settings.algorithm, settings.alphas, over, start=start, searches=1)
    best = best.verify(settings.d, PAIRS, key=run_key)
    named = {"best constant": best.constant, "best schedule": best}
    return Schedules(best, {name: (each.algorithm, each.trajectory) for name, each in named.items() if each})


def flow(settings: Settings) -> Portrait:
    """The plane of overlaps: solutions, and points at rest."""
    settings = settings.checked()
    check_plain(settings, "The plane of overlaps is")
    start, _ = _start(settings)
    return portrait(ode(settings.network, settings.algorithm), alpha=settings.alpha, at=start)


def _start(settings: Settings) -> tuple[State, PRNGKeyArray]:
    """The random start that every view of these settings has, and the key of its runs."""
    start_key, run_key = jax.random.split(jax.random.key(settings.seed))
    return random_state(settings.network, settings.d, key=start_key), run_key


def regime_map(settings: Settings, scales: ErrorScales | None = None) -> RegimeMap:
    """Which limit applies at this width, dimension and learning rate, up to a fixed time = learning_rate alpha / p.

    The sizes of the errors, `scales`, take long; they depend on the problem and the noise only. Without them, all are
    taken to be one: what theorems say of any problem.
    """
    settings = settings.checked()
    if scales is None:
        start, _ = _start(settings)
        ones = dict.fromkeys(("fluctuation", "start", "noise", "width", "density", "angles"), 1.0)
        scales = ErrorScales(REGIME_TIME, float(settings.network.risk(start)), **ones, between_starts=0.0)
    return _regimes(settings, scales)


def regime_scales(settings: Settings) -> ErrorScales:
    """The sizes of the errors of each limit, from a small network."""
    return _regimes(settings.checked(), None).scales


def _regimes(settings: Settings, scales: ErrorScales | None) -> RegimeMap:
    check_plain(settings, "Regimes are")
    network: Any = settings.network  # regimes says in words which problems it is not for
    return regimes(
        network,
        settings.algorithm,
        settings.d,
        REGIME_TIME * settings.width / settings.learning_rate,
        key=jax.random.key(settings.seed),
        measure=False,
        scales=scales,
    )


def example_study() -> Any:
    """What a study looks like, from a formula: one student of phase retrieval on the sphere, d = 200, at alpha = 20.

    The square u of its overlap solves du/dalpha = 2 rate u (4 (1 - 6 rate) (1 - u) - 2 rate noise).
    """
    import xarray

    rates, noises = np.linspace(0.01, 0.16, 61), np.linspace(0.0, 12.0, 61)
    rate, noise = np.meshgrid(rates, noises, indexing="ij")
    limits = 8 * rate * (1 - 6 * rate)
    growth = limits - 4 * rate**2 * noise
    time, start = 20.0, 1 / 200
    grown = np.where(growth == 0, time, np.expm1(growth * time) / np.where(growth == 0, 1.0, growth))
    squared = start * np.exp(growth * time) / (1 + start * limits * grown)
    axes = ("algorithm.learning_rate", "problem.noise")
    return xarray.Dataset(
        {"squared_overlap": (axes, squared), "status": (axes, np.ones(squared.shape, np.int8))},
        coords=dict(zip(axes, (rates, noises), strict=True)),
    )


def study(store: str) -> Any:
    """The results of a study, as a Dataset; an error says why there are none."""
    try:
        from ..studies import open_study
    except ImportError as missing:
        raise InvalidInput(str(missing)) from None
    return open_study(store.strip())


def _plateau_risk(limit: MeanLimit) -> float:
    try:
        return float(plateau(limit).risk)
    except InvalidInput:
        return float(limit.problem.risk(rest(limit)))


def _divergence(theory: Trajectory, simulated: Trajectory) -> str:
    """What is said where something diverges."""
    words = []
    if int(theory.outcome) == Outcome.DIVERGED:
        words.append(f"The ODE diverges at alpha = {float(theory.stopped_at):.3g}.")
    diverged = int(np.sum(np.asarray(simulated.outcome) == Outcome.DIVERGED))
    if diverged:
        words.append(f"{diverged} of {simulated.runs} runs diverge.")
    return " ".join([*words, "Take a smaller learning rate, or keep the students on the sphere."]) if words else ""
