"""How long until SGD escapes: the exit time from the plateau, by every description side by side."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..algorithms import OnlineSGD
from ..algorithms.online import OnlineAlgorithm
from ..algorithms.schedules import Schedule, rate_at
from ..batches import map_in_batches
from ..errors import (
    InvalidInput,
    check_key,
    check_memory,
    check_not_traced,
    flag,
    positive_integer,
    positive_number,
    shown,
)
from ..limits import DiffusionLimit, LinearNoiseLimit, MeanLimit, ode
from ..limits.diffusion import as_dimension
from ..problems import Problem
from ..problems.base import check_problem
from ..simulation import random_state
from ..simulation.online import simulate_online
from ..solving import solve
from ..state import State
from ..trajectory import Outcome, Trajectory, bytes_of_state
from .exit_formulas import ExitFormulas, exit_formulas
from .plateau import centre, rest
from .uncertainty import fraction_error, standard_error

if TYPE_CHECKING:
    import xarray

METHODS = ("closed_form", "ode", "dressed", "sde", "simulated")
_DRESSED_AT = 0.6  # of the median exit time: the noise has been collected, and the overlaps are still small
_STARTS = 1024  # random starts for the rows that cost no simulation, at least...
_START_NUMBERS = 2**15  # ... but not more numbers to move than this: wide networks scatter less
_PATIENCE = 8.0  # times the median exit time after which a run counts as one that does not leave
_SDE_COORDINATES = 30  # with more, a path of the diffusion costs more than a simulation
_SDE_STEPS = 4_000
_LOOKS = 100  # in the median exit time, at runs whose risk is no closed form and costs more than their steps
WITHOUT_NOISE = "no noise: too long, however large d is"


@dataclasses.dataclass(frozen=True, eq=False)
class ExitEstimate:
    """The exit time by one description, in alpha (samples per dimension).

    - `mean`, `error`: over the runs that leave, and its standard error.
    - `quantiles`: the 10%, 50% and 90% quantiles over all runs, infinite where runs that stay are among them.
    - `stay`, `stay_error`: the fraction of runs that do not leave by `limit`, and its standard error.
    - `times`: of each run; infinite for those that stay.
    - `validity`: when this description holds.
    """

    mean: float
    error: float
    quantiles: tuple[float, float, float]
    stay: float
    limit: float
    times: Float[np.ndarray, " runs"]
    validity: str

    @property
    def stay_error(self) -> float:
        return float(fraction_error(round(self.stay * len(self.times)), len(self.times)))

    def __repr__(self) -> str:
        return f"{self.mean:.5g} +- {self.error:.2g}"


@dataclasses.dataclass(frozen=True, eq=False)
class ExitTime:
    """The exit time from the plateau by every description, from [`exit_time`]; it prints as a table.

    - `closed_form`: `annealed`, `quenched`, `dressed` and `from_zero`, for quadratic networks; else None.
    - `ode`, `dressed`, `sde`, `simulated`: an `ExitEstimate` each; None if it was not asked for or left out.
    - `plateau_risk`: what the risk is on the plateau; `level`: what it must fall to.
    - `notes`: what was left out, and why.
    """

    problem: Problem
    algorithm: OnlineSGD
    d: int
    threshold: float
    plateau_risk: float
    level: float
    closed_form: ExitFormulas | None
    ode: ExitEstimate | None
    dressed: ExitEstimate | None
    sde: ExitEstimate | None
    simulated: ExitEstimate | None
    notes: tuple[str, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """One record for each description, for tables and JSON; times in alpha."""
        rows: list[dict[str, Any]] = []
        if self.closed_form is not None:
            formulas = self.closed_form
            for name, value, validity in (
                ("formula, annealed", formulas.annealed, "small threshold, no noise; the start averaged first"),
                ("formula, quenched", formulas.quenched, "small threshold, no noise"),
                ("formula, dressed", formulas.dressed, "small threshold"),
                ("formula, from zero", formulas.from_zero, "small threshold, start at exactly zero overlap"),
            ):
                rows.append({"description": name, "mean": value, "error": None, "median": None, "validity": validity})
        for name in METHODS[1:]:
            estimate: ExitEstimate | None = getattr(self, name)
            if estimate is not None:
                rows.append(
                    {
                        "description": _NAMES[name],
                        "mean": estimate.mean,
                        "error": estimate.error,
                        "median": estimate.quantiles[1],
                        "quantile_10": estimate.quantiles[0],
                        "quantile_90": estimate.quantiles[2],
                        "runs": len(estimate.times),
                        "stay": estimate.stay,
                        "stay_error": estimate.stay_error,
                        "validity": estimate.validity,
                    }
                )
        return rows

    def to_xarray(self) -> "xarray.Dataset":
        """A labelled Dataset: the exit time of each run by each description, the closed forms as attributes."""
        import xarray

        estimates = {name: getattr(self, name) for name in METHODS[1:]}
        stated = {"problem": repr(self.problem), "algorithm": repr(self.algorithm), "d": self.d}
        return xarray.Dataset(
            {name: (f"{name}_run", found.times) for name, found in estimates.items() if found is not None},
            attrs=stated
            | {"threshold": self.threshold}
            | {row["description"]: row["mean"] for row in self.rows() if row["error"] is None},
        )

    def __repr__(self) -> str:
        lines = [
            f"Exit from the plateau, d = {self.d}, threshold {self.threshold:g}: risk {self.plateau_risk:.5g} -> "
            f"{self.level:.5g}",
            f"  {self.problem!r}",
            f"  {self.algorithm!r}",
            f"  {'':<20}{'alpha':>10}{'+-':>9}{'10%':>9}{'50%':>9}{'90%':>9}{'stay':>14}  holds for",
        ]
        for row in self.rows():
            columns = (row["mean"], row["error"], row.get("quantile_10"), row["median"], row.get("quantile_90"))
            widths = (10, 9, 9, 9, 9)
            shown = "".join(
                f"{'' if value is None else format(value, '.4g'):>{width}}"
                for value, width in zip(columns, widths, strict=True)
            )
            stay = f"{row['stay']:.1%} +- {row['stay_error']:.1%}" if row.get("stay") is not None else ""
            lines.append(f"  {row['description']:<20}{shown}{stay:>14}  {row['validity']}")
        lines.append(f"  (alpha is samples / d: multiply by {self.d} for the number of samples)")
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines)


_NAMES = {"ode": "ODE", "dressed": "ODE, dressed starts", "sde": "SDE", "simulated": "simulated"}


def exit_time(
    problem: Problem,
    algorithm: OnlineSGD,
    d: int,
    threshold: float = 0.1,
    *,
    runs: int = 256,
    key: PRNGKeyArray,
    methods: Iterable[str] = METHODS,
    progress: bool = False,
) -> ExitTime:
    r"""How many samples SGD needs, from a random start in dimension d, to leave the plateau.

    The plateau is where the ODE comes to rest from students without any overlap; SGD has left it when the risk has lost
    the fraction `threshold` of its excess there (over the irreducible risk). The methods are:

    - `closed_form`: for quadratic networks, see `ExitFormulas`;
    - `ode`: the [`ode`] from random starts;
    - `dressed`: the ODE from random starts to which the noise that SGD collects on the plateau has been added. On the
      plateau overlaps are of order $d^{-1/2}$, and this noise ([`linear_noise`]) is as large as the start at every d.
      The remaining error is O(1/d);
    - `sde`: first passage of the [`sde`];
    - `simulated`: SGD itself, exactly in law, as by [`simulate`]. Where the risk is no closed form, runs are looked at
      100 times in the median exit time, not after each step. Runs that noise brings back before a look are seen later:
      for phase retrieval at a rate of 1/12 the mean is .5% too long at d = 200, .1% at d = 2000.

    Arnaboldi et al. 2023, Sections 3 and 4, finds that noise does not matter; it does, see `ExitFormulas`.

    **Arguments:**

    - `problem`, `algorithm`: what is learned, and how.
    - `d`: the dimension.
    - `threshold`: the fraction of the excess risk to lose, between 0 and 1.
    - `runs`, `key`: simulated runs (each from its own random start), and the random key.
    - `methods`: which descriptions; all if left out, but the SDE only where its averages are closed forms and it has at
      most 30 coordinates.
    - `progress`: whether to show how far the simulation is.

    **Returns:** an [`ExitTime`]; it prints as a table, and `plot.exit_times` draws it.

    ??? example
        >>> import dimfree, jax
        >>> problem, sgd = dimfree.PhaseRetrieval(), dimfree.OnlineSGD(1 / 12, sphere=True)
        >>> times = dimfree.exit_time(problem, sgd, d=3_000, key=jax.random.key(0), methods=("closed_form",))
        >>> round(times.closed_form.noise_dressing, 3)
        2.0
    """
    check_not_traced("exit_time", problem=problem, algorithm=algorithm, d=d, threshold=threshold, key=key)
    check_key(key)
    progress = flag(progress, "progress")
    d = positive_integer(d, "d", minimum=2)
    runs = positive_integer(runs, "runs")
    try:
        asked = tuple(methods)
    except TypeError:  # random keys are iterable too, but for one of them
        asked = ()
    if not asked or not all(isinstance(each, str) and each in METHODS for each in asked):
        raise InvalidInput(f"methods = {shown(methods)} was given; choose among {', '.join(METHODS)}.")
    check_threshold(threshold)
    check_problem(problem, "spectrum", "tokens")
    limit = ode(problem, algorithm)
    plateau_risk = float(problem.risk(rest(limit)))
    level = float(exit_level(problem, plateau_risk, threshold))
    stop = Fallen(problem, jnp.asarray(level))  # traced: another level is no other program
    notes: list[str] = []
    found: dict[str, Any] = dict.fromkeys(METHODS)

    if "closed_form" in asked:
        try:
            found["closed_form"] = exit_formulas(limit, d, threshold)
        except InvalidInput as objection:
            notes.append(f"No closed form: {objection}")
    if set(asked) == {"closed_form"}:
        return ExitTime(problem, algorithm, d, threshold, plateau_risk, level, notes=tuple(notes), **found)

    start_key, simulation_key, noise_key, path_key = jax.random.split(key, 4)
    starts = random_starts(problem, d, number_of_starts(limit, runs), key=start_key)
    first = jax.tree.map(lambda leaf: leaf[:runs], starts)
    horizon, deterministic = _first_exits(limit, starts, stop)
    typical = float(np.median(deterministic))
    if typical == 0:
        raise InvalidInput(
            f"At least half of the random starts in d = {d} have lost {threshold:g} of the excess risk already: they "
            "are on no plateau. Take a larger d or threshold."
        )
    if "ode" in asked:
        found["ode"] = estimated(deterministic, horizon, WITHOUT_NOISE)
    if not np.isfinite(typical):
        notes.append(
            f"The ODE of the median start has not left by alpha = {horizon:.4g}, so neither dressed starts nor paths "
            "of the SDE were tried: the plateau attracts at this learning rate, or the network cannot learn."
        )
        asked = tuple(method for method in asked if method == "simulated")
    if "dressed" in asked:
        noise_at = _DRESSED_AT * typical
        dressed = dressed_exits(limit, starts, d, noise_at, horizon, stop, key=noise_key)
        found["dressed"] = estimated(dressed, horizon, "any d, up to O(1/d)")
    if "sde" in asked:
        numbers = limit.coordinates.size
        costly = f"{numbers} coordinates" if numbers > _SDE_COORDINATES else "its averages are no closed forms"
        if asked == METHODS and (numbers > _SDE_COORDINATES or not limit.is_closed_form):
            notes.append(f"SDE left out: {costly}; ask for it with methods=('sde',).")
        else:
            found["sde"] = estimated(
                _diffusion_exits(limit, first, d, _PATIENCE / 2 * typical, stop, path_key),
                _PATIENCE / 2 * typical,
                "large d",
            )
    if "simulated" in asked:
        end = _PATIENCE * typical if np.isfinite(typical) else horizon
        per_step = algorithm.batch_size / d
        # Of the loss alone: what an algorithm makes of its slopes may be a quadrature where the risk is none.
        known = problem.mean_rule(limit.averaging) is None
        look_every = 1 if known else max(1, int(end / _PATIENCE / _LOOKS / per_step))
        trajectory = simulate_online(
            problem,
            algorithm,
            first,
            d,
            np.array([0.0, end]),
            runs=runs,
            key=simulation_key,
            method="exact",
            stop=stop,
            memory=None,
            progress=progress,
            look_every=look_every,
        )
        if look_every > 1:
            notes.append(
                f"The risk is no closed form, so simulated runs are looked at every {look_every} steps "
                f"({look_every * per_step:.2g} in alpha), and exits are taken to be in the middle between two looks."
            )
        exits = np.maximum(np.asarray(exits_of(trajectory)) - (look_every - 1) / 2 * per_step, 0.0)
        found["simulated"] = estimated(exits, end, "SGD itself, exactly in law")
    return ExitTime(problem, algorithm, d, threshold, plateau_risk, level, notes=tuple(notes), **found)


def check_threshold(threshold: float) -> None:
    """An error in words unless it is a fraction."""
    positive_number(threshold, "threshold")
    if not threshold < 1:
        raise InvalidInput(f"threshold = {shown(threshold)} was given; it is a fraction, between 0 and 1.")


def exit_level(problem: Problem, risk: float | Array, threshold: float | Array) -> float | Array:
    """The risk that has lost the fraction `threshold` of its excess over the irreducible one."""
    floor = problem.irreducible_risk
    return floor + (1 - threshold) * (risk - floor)


class Fallen(eqx.Module):
    """The event that the risk has fallen to `level`."""

    problem: Problem
    level: float | Array

    def __call__(self, state: State) -> Float[Array, ""]:
        return self.level - self.problem.risk(state)


def random_starts(
    problem: Problem, d: int, number: int, *, key: PRNGKeyArray, readout_scale: float | None = None
) -> State:
    """Random starts in dimension d, along a leading axis: see [`random_state`]."""
    check_memory(number * bytes_of_state(problem), f"{number:,} random starts", "Take fewer runs.")
    return jax.vmap(lambda each: random_state(problem, d, key=each, readout_scale=readout_scale))(
        jax.random.split(key, number)
    )


def number_of_starts(limit: MeanLimit, fewest: int) -> int:
    """From how many random starts the ODE is solved: many where its averages are closed forms, and cheap."""
    return max(fewest, min(_STARTS, _START_NUMBERS // limit.coordinates.size) if limit.is_closed_form else 0)


def deterministic_exits(limit: MeanLimit, starts: State, horizon: float | Array, stop: Callable) -> np.ndarray:
    """When the ODE from each start reaches the event; infinite where it does not by `horizon`."""
    return np.asarray(_ode_exits(limit, starts, horizon, stop)[0])


def dressed_exits(
    limit: MeanLimit, starts: State, d: int, noise_at: float, horizon: float, stop: Callable, *, key: PRNGKeyArray
) -> np.ndarray:
    """The same, with the noise that SGD has collected by `noise_at` added there.

    The noise is Gaussian with the covariance of [`linear_noise`] along the path without overlap, on which all random
    starts lie up to O(d^-1/2).
    """
    noisy = LinearNoiseLimit(mean=limit, d=as_dimension(d))
    covariance = solve(noisy, centre(limit.problem), np.array([0.0, noise_at])).covariance
    assert covariance is not None
    early, at_noise = _ode_exits(limit, starts, noise_at, stop)
    values, directions = jnp.linalg.eigh(covariance[-1])
    coordinates = limit.coordinates
    normals = jax.random.normal(key, (starts.Q.shape[0], values.shape[0]))
    vectors = coordinates.pack(at_noise) + (normals * jnp.sqrt(jnp.maximum(values, 0.0))) @ directions.T
    later = MeanLimit(limit.problem, _later(limit.algorithm, noise_at), limit.averaging, limit.second_order)
    late, _ = _ode_exits(later, coordinates.unpack(vectors, at_noise), horizon - noise_at, stop)
    return np.asarray(jnp.where(jnp.isfinite(early), early, noise_at + late))


def _ode_exits(limit: MeanLimit, starts: State, horizon: float | Array, stop):
    # An array of one type however it was computed: a number, or one of a weak type, would be compiled anew.
    return _solve_to_exits(limit, starts, jnp.asarray(horizon, float), stop)


@eqx.filter_jit
def _solve_to_exits(limit: MeanLimit, starts: State, horizon: Float[Array, ""], stop):
    def one(start):
        trajectory = solve(limit, start, jnp.stack([jnp.zeros(()), horizon]), stop=stop)
        return exits_of(trajectory), trajectory.final

    return map_in_batches(one, starts, 128)


def exits_of(trajectory: Trajectory) -> Float[Array, "*runs"]:
    """When each run reached its event; infinite where it did not."""
    return jnp.where(trajectory.outcome == Outcome.STOPPED, trajectory.stopped_at, jnp.inf)


def _diffusion_exits(limit: MeanLimit, starts: State, d: int, horizon: float, stop, key) -> np.ndarray:
    noisy = DiffusionLimit(mean=limit, d=as_dimension(d))
    times, runs = np.array([0.0, horizon]), starts.Q.shape[0]
    return np.asarray(exits_of(solve(noisy, starts, times, stop=stop, runs=runs, steps=_SDE_STEPS, key=key)))


def _later(algorithm: OnlineAlgorithm, alpha: float) -> OnlineAlgorithm:
    """The algorithm as it goes on after `alpha`."""

    def shifted(rate):
        if not isinstance(rate, Schedule):
            return rate
        return _Shifted(rate, jnp.asarray(alpha))

    rates = (shifted(algorithm.learning_rate), shifted(algorithm.readout_rate))
    return eqx.tree_at(lambda a: (a.learning_rate, a.readout_rate), algorithm, rates, is_leaf=lambda leaf: leaf is None)


class _Shifted(Schedule):
    """A schedule whose clock is zero at `alpha`."""

    rate: Schedule
    alpha: Float[Array, ""]

    def __call__(self, alpha: Float[Array, ""]) -> Float[Array, ""]:
        return self.rate(self.alpha + alpha)


def _first_exits(limit: MeanLimit, starts: State, stop) -> tuple[float, np.ndarray]:
    """When the ODE leaves from each start, and an alpha by which nearly all have left, or which is long in any case."""
    first = float(rate_at(limit.algorithm.learning_rate, jnp.zeros(())))
    horizon = 12.0 / max(first, 1e-12)
    times = deterministic_exits(limit, starts, horizon, stop)
    for _ in range(6):
        if np.mean(np.isfinite(times)) > 0.99:
            break
        horizon *= 3
        times = deterministic_exits(limit, starts, horizon, stop)
    return horizon, times


def estimated(times: np.ndarray, limit: float, validity: str) -> ExitEstimate:
    """The mean of exit times with its error; infinite times are those of runs that stay."""
    left = times[np.isfinite(times)]
    low, middle, high = (float(np.quantile(times, q, method="inverted_cdf")) for q in (0.1, 0.5, 0.9))
    return ExitEstimate(
        mean=float(left.mean()) if len(left) else np.inf,
        error=standard_error(left),
        quantiles=(low, middle, high),
        stay=float(1 - len(left) / len(times)),
        limit=float(limit),
        times=times,
        validity=validity,
    )
