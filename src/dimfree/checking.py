"""Do theory and simulation agree, at the right rate? The commuting square, for any problem."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
import scipy.special

from .algorithms.online import OnlineAlgorithm
from .algorithms.schedules import Schedule
from .analysis.uncertainty import log_median
from .errors import InvalidInput, check_not_traced, positive_integer, positive_number, shown
from .limits import MeanLimit, ode
from .problems import Problem
from .simulation import simulate
from .solving import solve
from .state import State
from .trajectory import Outcome, steps_at

_RATE = -0.5
# Of a check whose limit is right: a third of it is for the slopes, for what remains of the means, and for the drift.
_FALSE_ALARMS = 1e-3
_SUBLEADING = 0.1  # how far terms of higher order in 1/d may turn a slope; by less than 0.07 in 20 right settings
_FEW_DIMENSIONS = 30.0  # with so few, the squared length of an input varies by a quarter of its mean and more
_FEWEST_RUNS = 16  # with fewer, the standard error of a step is itself too uncertain for a verdict
_SMALL = 1e-6  # beside numbers of order one: errors of solvers, and of averages that are taken to be exact
_TINY = 1e-300  # in place of zero, which has no logarithm
_TIMES = 41  # the same for every simulation, so that all of them are one compilation


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """What [`check`] found; it prints as a report.

    **Attributes:**

    - `agrees`: whether the distance between simulation and limit falls as d^-1/2 or faster, for each of Q, M, the
      readout and the overlaps of an algorithm's own vectors, whether nothing remains of their mean difference as d
      grows, and whether the drift at the start agrees with single steps of SGD.
    - `slope`, `slope_error`: slope of log distance in log d, for all entries of the State together, and its standard
      error.
    - `slopes`, `slope_errors`: the same for each of these separately.
    - `dimensions`, `distances`: typical (median over runs) largest distance up to the last alpha, for each d;
      `distance_errors`: their standard errors, relative.
    - `diverged`: fraction of runs that diverged, for each d.
    - `drift`: (coordinate, drift of the limit, simulated drift, its standard error) at the start, worst first; empty if
      it was not compared.
    - `effective_dimensions`: over how many dimensions the trace of the inputs' covariance is spread, for each d.
    - `remainders`: (coordinate, alpha, difference, standard error): to what the mean of simulation minus limit tends as
      d grows, where this is most certain, worst first; empty if runs diverged.
    - `runs`: simulations for each d.
    """

    agrees: bool
    slope: float
    slopes: dict[str, float]
    dimensions: tuple[int, ...]
    distances: tuple[float, ...]
    distance_errors: tuple[float, ...]
    diverged: tuple[float, ...]
    drift: tuple[tuple[str, float, float, float], ...]
    alpha: float
    expectation: str
    expectation_error: float
    effective_dimensions: tuple[float, ...]
    slope_errors: dict[str, float] = dataclasses.field(default_factory=dict)
    remainders: tuple[tuple[str, float, float, float], ...] = ()
    runs: int = 64

    @property
    def slope_error(self) -> float:
        return _slope_error(self.dimensions, self.distance_errors)

    @property
    def slower(self) -> tuple[str, ...]:
        """Entries whose distance certainly falls more slowly than it must."""
        return tuple(name for name, slope in self.slopes.items() if slope > _RATE + self._allowed(name))

    @property
    def faster(self) -> tuple[str, ...]:
        """Entries whose distance certainly falls faster than d^-1/2: noise is small beside a bias of order 1/d."""
        return tuple(name for name, slope in self.slopes.items() if slope < _RATE - self._allowed(name))

    def _allowed(self, name: str) -> float:
        errors = float(-scipy.special.ndtri(_FALSE_ALARMS / 3 / len(self.slopes)))
        return _SUBLEADING + errors * self.slope_errors.get(name, self.slope_error)

    @property
    def drift_deviation(self) -> float:
        """How far the drift at the start is from single steps of SGD, in standard errors of the latter, at worst."""
        if not self.drift:
            return 0.0
        _, limit, simulated, error = self.drift[0]
        return abs(limit - simulated) / (error + self.expectation_error + _SMALL)

    @property
    def remainder_deviation(self) -> float:
        """The limit of the mean difference as d grows, over its standard error: the largest of all entries."""
        if not self.remainders:
            return 0.0
        _, _, remainder, error = self.remainders[0]
        return abs(remainder) / (error + self.alpha * self.expectation_error + _SMALL)

    @property
    def drift_is_off(self) -> bool:
        return self.drift_deviation > _student(self.runs, len(self.drift))

    @property
    def something_remains(self) -> bool:
        return self.remainder_deviation > _student(self.runs, (_TIMES - 1) * len(self.remainders))

    def __str__(self) -> str:
        verdict = "Theory and simulation do NOT agree."
        if self.agrees:
            others = f", that of {', '.join(self.faster)} faster" if self.faster else ""
            verdict = f"Theory and simulation agree: their distance falls as d^-1/2{others}."
        lines = [
            verdict,
            f"  slope of log(distance) in log(d): {self.slope:.2f} +- {self.slope_error:.2f} (expected {_RATE}, or "
            f"steeper), up to alpha = {self.alpha:g}",
            "  by entry: " + ", ".join(f"{name} {slope:.2f}" for name, slope in self.slopes.items()),
            "         d   distance      +-   diverged",
            *(
                f"  {d:8d}   {distance:8.5f}  {error:6.1%}   {fraction:8.1%}"
                for d, distance, error, fraction in zip(
                    self.dimensions, self.distances, self.distance_errors, self.diverged, strict=True
                )
            ),
            f"  averages by: {self.expectation}"
            + (f", estimated error of the drift {self.expectation_error:.1e}" if self.expectation_error else ""),
        ]
        if any(effective < 0.99 * d for effective, d in zip(self.effective_dimensions, self.dimensions, strict=True)):
            words = ", ".join(f"{effective:.3g}" for effective in self.effective_dimensions)
            lines.append(f"  effective dimension of the inputs: {words}; the limit holds if it is large")
        if min(self.effective_dimensions) < _FEW_DIMENSIONS:
            lines.append(
                "  Few eigenvalues carry the trace at the smallest d: runs differ by order one, and the limit is "
                "not their mean.\n  Take larger dimensions; for least squares dimfree.exact_mean has the mean."
            )
        for name in self.slower:
            lines.append(f"  Too slow: the distance in {name} falls as d^{self.slopes[name]:.2f} only.")
        if self.something_remains:
            name, alpha, remainder, error = self.remainders[0]
            lines.append(
                f"  What remains as d grows is most certain in {name} at alpha = {alpha:.3g}: the mean over runs tends "
                f"to the limit {remainder:+.2g} +- {error:.1g} ({self.remainder_deviation:.0f} standard errors)."
            )
        if self.drift_is_off:
            name, limit, simulated, error = self.drift[0]
            lines.append(
                f"  The drift at the start is off most in {name}: the limit has {limit:.5g}, one step of SGD gives "
                f"{simulated:.5g} +- {error:.2g} ({self.drift_deviation:.0f} standard errors)."
            )
        elif not self.agrees:
            at_start = "  The drift at the start agrees with one step of SGD, so the difference builds up later"
            lines.append(
                f"{at_start if self.drift else '  What may be wrong'}: a term that is small at the start, an unstable "
                "start, a learning rate near divergence, or d too small. Try a smaller alpha or larger dimensions."
            )
        if max(self.diverged) > 0:
            lines.append("  Some runs diverged; they are left out of the distances. A smaller learning rate avoids it.")
        return "\n".join(lines)

    __repr__ = __str__


def check(
    problem: Problem,
    algorithm: OnlineAlgorithm,
    *,
    limit: MeanLimit | None = None,
    start: State | None = None,
    alpha: float | None = None,
    dimensions: tuple[int, ...] | None = None,
    runs: int = 64,
) -> CheckResult:
    """Whether SGD in dimension d approaches its ODE limit as d^-1/2 or faster, by exact simulation at several d.

    If a term of the limit is wrong or missing, the distance does not fall with d. So `check` tests how it falls, and
    not the distance against a tolerance. They disagree if one of three things is certain:

    - the distance falls more slowly than d^-1/2: a slope above -0.4 by several of its standard errors;
    - the mean difference does not vanish: its extrapolation in 1/d is not zero;
    - the drift at the start is not the mean of single steps of SGD.

    An entry that falls faster is no disagreement, and is named. Several standard errors are as many as chance exceeds
    in one of 1,000 checks of a right limit, with all entries and times counted. The random keys are fixed: the same
    call gives the same result.

    **Arguments:**

    - `problem`, `algorithm`: what is learned, and how.
    - `limit`: the limit to check; `ode(problem, algorithm)` if left out.
    - `start`: a State; a generic one with overlaps of order one if left out.
    - `alpha`: how far; about one learning time if left out.
    - `dimensions`: the values of d, at least two; (100, 400, 1600, 6400) if left out. An algorithm that scales each
      coordinate ([`Adam`]) is simulated on vectors, up to d = 1600, and its drift at the start is not compared.
    - `runs`: simulations for each d, at least 16: their spread gives the standard errors.

    **Returns:** a [`CheckResult`]; it prints in words, and `plot.distances` draws it.
    """
    check_not_traced("check", problem=problem, algorithm=algorithm, limit=limit, start=start, alpha=alpha)
    runs = positive_integer(runs, "runs", minimum=_FEWEST_RUNS)
    on_vectors = isinstance(algorithm, OnlineAlgorithm) and algorithm.by_coordinate is not None
    if dimensions is None:
        dimensions = (100, 400, 1600) if on_vectors else (100, 400, 1600, 6400)
    if not isinstance(dimensions, Sequence | np.ndarray) or isinstance(dimensions, str):
        raise InvalidInput(f"dimensions = {shown(dimensions)} was given; give values of d, such as (100, 400, 1600).")
    dimensions = tuple(positive_integer(d, "dimensions") for d in dimensions)
    if len(set(dimensions)) < 2:
        raise InvalidInput(
            f"dimensions = {dimensions} was given; a rate needs two or more different values, such as (100, 400, 1600)."
        )
    limit = ode(problem, algorithm) if limit is None else limit
    if start is None:
        start = _generic_start(problem)
    if alpha is None:
        rate = algorithm.learning_rate
        alpha = 2.0 if isinstance(rate, Schedule) else float(0.5 / np.clip(np.asarray(rate), 0.1, 1.0))
    positive_number(alpha, "alpha", meaning=" (samples per dimension)")
    times, batch_size = np.linspace(0.0, float(alpha), _TIMES), algorithm.batch_size
    # Runs are saved after whole steps, and compared with the limit at those times: a part of a step is of order 1/d.
    saved = [steps_at(times, batch_size / d, "batch_size / d") * batch_size / d for d in dimensions]
    together = np.unique(np.concatenate(saved))
    theory = solve(limit, start, together)
    if int(theory.outcome) == Outcome.DIVERGED:
        raise InvalidInput(
            f"The limit diverges at alpha = {float(theory.stopped_at):.3g}: there is nothing to compare. Take a "
            "smaller learning rate, or a smaller alpha."
        )
    if all(np.all(path == path[0]) for path in map(np.asarray, jax.tree.leaves(theory.state))):
        raise InvalidInput(
            f"The limit does not move from its start up to alpha = {alpha:g}: there is nothing to compare. Give a "
            f"learning rate that is not zero (it is {algorithm.learning_rate}), or another start."
        )
    of_label = np.array([label.split("[")[0] for label in limit.coordinates.labels])
    names = list(dict.fromkeys(of_label.tolist()))
    path = np.asarray(limit.coordinates.pack(theory.state))
    distances: dict[str, list[float]] = {name: [] for name in ("all", *names)}
    distance_errors: dict[str, list[float]] = {name: [] for name in distances}
    diverged, differences, certain = [], {}, set(names)
    for index, d in enumerate(dimensions):
        key, method = jax.random.key(100 + index), "vectors" if on_vectors else "exact"
        simulated = simulate(problem, algorithm, start, d, times, runs=runs, key=key, method=method)
        completed = np.asarray(simulated.outcome) == Outcome.COMPLETED
        diverged.append(float(1 - completed.mean()))
        if not completed.any():
            raise InvalidInput(
                f"All {runs} runs diverged at d = {d}: there is nothing to compare. Take a smaller learning rate, a "
                "smaller alpha or larger dimensions."
            )
        difference = np.asarray(limit.coordinates.pack(simulated.state)) - path[np.searchsorted(together, saved[index])]
        difference = difference[completed]
        if completed.all():
            differences[d] = difference
        distance = np.abs(difference).max(axis=1)
        sup = {name: distance[:, of_label == name].max(axis=1) for name in names}
        certain -= {name for name in names if np.ptp(sup[name])}
        sup["all"] = np.max(list(sup.values()), axis=0)
        for name, largest in sup.items():
            logarithm, error = log_median(np.maximum(largest, _TINY))
            distances[name].append(float(np.exp(logarithm)))
            distance_errors[name].append(error)
    # What is the same in all runs, such as the sum of an average's weights, has another rate: 1/d.
    slopes = {name: _slope(dimensions, values) for name, values in distances.items() if name not in certain}
    slope_errors = {name: _slope_error(dimensions, distance_errors[name]) for name in slopes}
    slope, _ = slopes.pop("all"), slope_errors.pop("all")
    result = CheckResult(
        agrees=False,
        slope=slope,
        slopes=slopes,
        dimensions=dimensions,
        distances=tuple(distances["all"]),
        distance_errors=tuple(distance_errors["all"]),
        diverged=tuple(diverged),
        drift=() if on_vectors else _compare_drift(problem, algorithm, limit, start, runs),
        alpha=alpha,
        expectation=limit.expectation,
        expectation_error=float(limit.expectation_error(limit.begun(start))),
        effective_dimensions=tuple(float(problem.inputs.effective_dimension(d)) for d in dimensions),
        slope_errors=slope_errors,
        remainders=_remainders(limit.coordinates.labels, times, differences),
        runs=runs,
    )
    agrees = not (result.slower or result.something_remains or result.drift_is_off)
    return dataclasses.replace(result, agrees=agrees and int(theory.outcome) == Outcome.COMPLETED)


def _slope(dimensions, distances) -> float:
    return float(np.polyfit(np.log(dimensions), np.log(np.maximum(distances, _TINY)), 1)[0])


def _slope_error(dimensions, errors) -> float:
    x = np.log(dimensions) - np.mean(np.log(dimensions))
    return float(np.linalg.norm(x * np.asarray(errors)) / np.sum(x**2))


def _student(runs: int, comparisons: int) -> float:
    """Student's t: the deviation that chance exceeds in one of so many comparisons, at the rate of false alarms."""
    return float(-scipy.special.stdtrit(runs - 1, _FALSE_ALARMS / 3 / 2 / max(1, comparisons)))


def _remainders(labels, times, differences: dict[int, np.ndarray]) -> tuple[tuple[str, float, float, float], ...]:
    r"""The means of differences over runs as d grows, $c$ of $c + b / d$ by least squares, with variances as 1/d."""
    if len(differences) < 2:
        return ()
    dimensions = np.array(list(differences), float)
    means = np.stack([each[:, 1:].mean(axis=0) for each in differences.values()])
    errors = np.stack([each[:, 1:].std(axis=0, ddof=1) / len(each) ** 0.5 for each in differences.values()])
    weights = dimensions / dimensions.sum()
    away = 1 / dimensions - weights @ (1 / dimensions)
    coefficients = weights * (1 - (weights @ (1 / dimensions)) * away / (weights @ away**2))
    remainder = np.tensordot(coefficients, means, 1)
    error = np.sqrt(np.tensordot(coefficients**2, errors**2, 1))
    # Where noise is small, terms of order 1/d^2 are what is left: much less than the difference at the largest d.
    remainder = np.where(np.abs(remainder) > 0.5 * np.abs(means[np.argmax(dimensions)]), remainder, 0.0)
    deviation = np.abs(remainder) / (error + _SMALL)
    worst, order = deviation.argmax(axis=0), np.argsort(-deviation.max(axis=0))
    found = ((labels[i], float(times[1 + worst[i]]), remainder[worst[i], i], error[worst[i], i]) for i in order)
    return tuple((label, alpha, float(value), float(its_error)) for label, alpha, value, its_error in found)


def _generic_start(problem: Problem) -> State:
    """Overlaps of order one, without any symmetry."""
    p, k = problem.width, problem.teacher_width
    students = np.random.default_rng(2).normal(size=(p, p + k + 2))
    students /= np.linalg.norm(students, axis=1, keepdims=True)
    return State(Q=students @ students.T, M=students[:, :k])


def _compare_drift(problem: Problem, algorithm: OnlineAlgorithm, limit: MeanLimit, start: State, runs: int):
    """The drift of the limit beside the mean change that steps of SGD make where d is so large that nothing moves."""
    d, steps = 10**9, 25 * np.arange(_TIMES)
    batch_size, coordinates = algorithm.batch_size, limit.coordinates
    key = jax.random.key(3)
    moved = simulate(problem, algorithm, start, d, steps * batch_size / d, runs=runs, key=key).final
    start = limit.begun(start)
    changes = np.asarray(coordinates.pack(moved) - coordinates.pack(start)) * d / (batch_size * steps[-1])
    mean, error = changes.mean(axis=0), changes.std(axis=0) / runs**0.5
    # As the solver had it to say how good averages are: another way to ask would be another program.
    drift = np.asarray(limit.drift_and_size(0.0, start)[0])
    order = np.argsort(-np.abs(mean - drift) / np.maximum(error, 1e-12))
    return tuple((coordinates.labels[i], float(drift[i]), float(mean[i]), float(error[i])) for i in order)
