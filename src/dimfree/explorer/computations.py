"""From settings to results: the numbers behind every picture of the explorer.

Noise, learning rate, dimension and horizon are traced, so that a slider of them meets a compiled program; only another
problem, width or constraint compiles, once.
"""

import collections
import dataclasses
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..analysis.exit_times import ExitTime, exit_level, exit_time
from ..analysis.plateau import rest
from ..analysis.portrait import Portrait, portrait
from ..analysis.quadratic_networks import plateau
from ..analysis.regimes import ErrorScales, RegimeMap, regimes
from ..errors import InvalidInput
from ..limits import MeanLimit, ode
from ..simulation import random_state, simulate
from ..solving import solve
from ..state import State
from ..trajectory import Outcome, Trajectory
from .settings import RUNS, THRESHOLD, Settings

EXIT_RUNS = 64
REGIME_TIME = 2.0  # learning_rate * alpha / p up to which the errors of the limits are compared
_KEPT_SCALES = 8
_scales: collections.OrderedDict[tuple, ErrorScales] = collections.OrderedDict()


@dataclasses.dataclass(frozen=True, eq=False)
class Curves:
    """Theory and simulation from one random start, and when each leaves the plateau.

    - `theory`, `simulated`: the ODE, and runs of SGD in dimension d.
    - `plateau_risk`, `level`: the risk on the plateau, and what it has fallen to where a run has left; None where there
      is no plateau, and `remark` says why.
    - `predicted`: when the ODE leaves, infinite if not by the end; `measured`: when each run does.
    """

    settings: Settings
    theory: Trajectory
    simulated: Trajectory
    plateau_risk: float | None
    level: float | None
    predicted: float
    measured: Float[np.ndarray, " runs"]
    remark: str

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
    risk, level, remark = None, None, _divergence(theory, simulated)
    try:
        risk = _plateau_risk(limit)
        level = float(exit_level(problem, risk, THRESHOLD))
    except InvalidInput as objection:
        # The library's advice for programs is of no use here.
        remark = remark or str(objection).split(" Use dimfree.")[0]
    predicted, measured = np.inf, np.full(runs, np.inf)
    if level is not None:
        predicted = crossing(alphas, theory.risk, level)
        measured = np.array([crossing(alphas, path, level) for path in np.asarray(simulated.risk)])
    return Curves(settings, theory, simulated, risk, level, predicted, measured, remark)


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


def exits(settings: Settings, runs: int = EXIT_RUNS) -> ExitTime:
    """How long SGD stays on the plateau, over random starts: formula, ODE and simulation."""
    settings = settings.checked()
    quadratic = settings.network.activation.name == "square"
    methods = ("closed_form", "ode", "dressed", "simulated") if quadratic else ("ode", "simulated")
    key = jax.random.key(settings.seed)
    return exit_time(settings.network, settings.algorithm, settings.d, THRESHOLD, runs=runs, key=key, methods=methods)


def flow(settings: Settings) -> Portrait:
    """The plane of overlaps: solutions, and points at rest."""
    settings = settings.checked()
    start, _ = _start(settings)
    return portrait(ode(settings.network, settings.algorithm), alpha=settings.alpha, at=start)


def _start(settings: Settings) -> tuple[State, PRNGKeyArray]:
    """The random start that every view of these settings has, and the key of its runs."""
    start_key, run_key = jax.random.split(jax.random.key(settings.seed))
    return random_state(settings.network, settings.d, key=start_key), run_key


def regime_map(settings: Settings) -> RegimeMap:
    """Which limit applies at this width, dimension and learning rate, up to a fixed time = learning_rate alpha / p.

    The sizes of the errors, which take long, depend on the problem and the noise only, and are kept.
    """
    settings = settings.checked()
    alpha = REGIME_TIME * settings.width / settings.learning_rate
    known = _regime_key(settings)
    result = regimes(
        settings.network,
        settings.algorithm,
        settings.d,
        alpha,
        key=jax.random.key(settings.seed),
        measure=False,
        scales=_scales.get(known),
    )
    _scales[known] = result.scales
    while len(_scales) > _KEPT_SCALES:
        _scales.popitem(last=False)
    return result


def knows_regimes(settings: Settings) -> bool:
    """Whether the map of regimes is there at once."""
    return _regime_key(settings) in _scales


def _regime_key(settings: Settings) -> tuple:
    return settings.problem, settings.noise, settings.sphere, settings.seed


def study(store: str) -> Any:
    """The results of a study, as a Dataset; an error says why there are none."""
    if not store.strip():
        raise InvalidInput("Give the path of a study's store, such as phase_retrieval_study.store.")
    try:
        from ..studies import open_study
    except ImportError as missing:
        raise InvalidInput(str(missing)) from None
    return open_study(store.strip())


def loaded(data: Any, store: str) -> Any:
    """The same with its numbers in memory; an error says why they cannot be read."""
    from ..studies.opening import loaded

    return loaded(data, store)


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
