"""Which limit applies to a width, a dimension and a step size, and how big its error is."""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from ..algorithms import OnlineSGD
from ..algorithms.online import check_online_sgd
from ..errors import InvalidInput, check_key, check_not_traced, flag, positive_integer, positive_number, shown
from ..limits import gradient_flow, mean_field, ode
from ..problems import MultiIndex, TwoLayer
from ..problems.base import check_problem
from ..simulation import random_state, simulate
from ..solving import solve
from ..state import State, WideState
from ..trajectory import Outcome
from .exit_times import random_starts

# From the cheapest to the dearest; the cost of one evaluation of the drift.
LIMITS = {"mean field": "p k", "dimension-free": "p k", "gradient flow": "p^3", "ODE": "p^4"}
# The network that sizes are found with: wider ones are as this one, narrower ones are taken as they are.
_REFERENCE_WIDTH, _REFERENCE_RATE, _REFERENCE_D = 8, 0.05, 2_000
_STARTS, _RUNS = 8, 8  # of it: random starts, and runs from each
_MOST_STEPS = 10**8  # of it
_VANISHING = 1e-6  # a rate over p at which the ODE is gradient flow
_TIMES = 21
_AS_GOOD = 1.15  # a cheaper limit is recommended if its expected error is within this factor of the smallest
_AFFORDABLE = 2e11  # steps x runs x fields^3 that are simulated unless asked for


@dataclasses.dataclass(frozen=True, eq=False)
class ErrorScales:
    r"""The sizes of what each limit leaves out, largest over time = learning_rate * alpha / p up to the end.

    With the noise $g$ = learning_rate / (p B), a run differs from the ODE by `fluctuation` $\times \sqrt{g/d}$;
    gradient flow from the ODE by `noise` $\times\, g$; the dimension-free limit from gradient flow by `width` / p +
    `angles` / d, and the mean field by `density` / p. Both leave out the angles between the neurons of the one start
    that the runs have, at random `start` / (p d^1/2).

    `fluctuation` and `noise` are means over random starts; `between_starts` is the standard deviation of `fluctuation`
    from one start to another, relative to it.
    """

    time: float
    risk: float
    fluctuation: float
    start: float
    noise: float
    width: float
    density: float
    angles: float
    between_starts: float

    def errors(self, p: Any, d: Any, noise: Any) -> dict[str, Any]:
        """The expected error of each limit, largest over time, for numbers or arrays of them.

        **Arguments:**

        - `p`, `d`: width and dimension.
        - `noise`: learning_rate / (p * batch_size).
        """
        p, d, noise = (np.asarray(number, float) for number in (p, d, noise))
        spread = self.fluctuation * np.sqrt(noise / d)
        with_angles = np.hypot(spread, self.start / (p * np.sqrt(d)))
        # Biases may cancel, but not reliably: they are added.
        return {
            "mean field": np.hypot(self.density / p + self.noise * noise, with_angles),
            "dimension-free": np.hypot(self.width / p + self.angles / d + self.noise * noise, with_angles),
            "gradient flow": np.hypot(self.noise * noise, spread),
            "ODE": spread,
        }

    def recommended(self, p: Any, d: Any, noise: Any) -> Any:
        """The index in `LIMITS` of the cheapest limit that is about as good as the best."""
        errors = np.stack(list(self.errors(p, d, noise).values()))
        return np.argmax(errors <= _AS_GOOD * errors.min(axis=0), axis=0)


@dataclasses.dataclass(frozen=True, eq=False)
class RegimeMap:
    """Which limit applies, and how big the error of each is, from [`regimes`]; it prints as a table.

    An error is the largest error over time of the risk of one run, averaged over runs.

    - `recommended`: the cheapest limit whose expected error is about the smallest.
    - `expected`: the error of each limit by the scaling laws, with sizes from a small network (`scales`).
    - `measured`, `standard_error`: the error of each limit against exact simulation; None where that was too long.
    - `rates`: what the theorem behind each limit bounds its error by, up to a constant exp(C time).
    - `time`: learning_rate * alpha / p.
    """

    p: int
    d: int
    learning_rate: float
    batch_size: int
    alpha: float
    scales: ErrorScales
    recommended: str
    expected: dict[str, float]
    measured: dict[str, float] | None
    standard_error: dict[str, float] | None

    @property
    def time(self) -> float:
        return self.learning_rate * self.alpha / self.p

    @property
    def rates(self) -> dict[str, float]:
        p, d, rate = self.p, self.d, self.learning_rate / self.batch_size
        return {
            "mean field": max((d / p) ** 0.5, (rate / p) ** 0.5),
            "dimension-free": p**-0.5 + d**-0.5,
            "gradient flow": rate / p + (rate / (p * d)) ** 0.5,
            "ODE": (rate / (p * d)) ** 0.5,
        }

    def __str__(self) -> str:
        lines = [
            f"Use the limit {self.recommended!r}: p = {self.p}, d = {self.d}, learning rate {self.learning_rate:g}, "
            f"{self.alpha * self.d:.4g} samples (time {self.time:.3g})",
            f"  errors of the risk (at the start {self.scales.risk:.3g}); fluctuations differ from start to start by "
            f"{self.scales.between_starts:.0%}",
            "  limit            cost   theorem's rate   expected   measured",
        ]
        for name, cost in LIMITS.items():
            measured = "  too long to simulate"
            if self.measured is not None and self.standard_error is not None:
                measured = f"   {self.measured[name]:8.2g} +- {self.standard_error[name]:.1g}"
            lines.append(
                f"  {name:15s}  {cost:4s}   {self.rates[name]:14.2g}   {self.expected[name]:8.2g}{measured}"
                + ("   <-" if name == self.recommended else "")
            )
        return "\n".join(lines)

    __repr__ = __str__


def regimes(
    problem: TwoLayer | MultiIndex,
    algorithm: OnlineSGD,
    d: int,
    alpha: float,
    *,
    key: PRNGKeyArray,
    runs: int = 16,
    measure: bool | None = None,
    scales: ErrorScales | None = None,
) -> RegimeMap:
    r"""Which limit applies to this width, dimension, learning rate and number of samples, and how big its error is.

    With $g = \text{learning\_rate} / (p B)$, at fixed time $\text{learning\_rate} \cdot \alpha / p$ and from random
    starts, the risk of a run differs from the risk of

    - the ODE (Saad-Solla) by its fluctuations, $O(\sqrt{g/d})$;
    - gradient flow also by the second-order term, $O(g)$;
    - the dimension-free limit also by what neurons have in common outside the teacher's span, $O(1/p + 1/d)$, and by
      the angles of the start, $O(1/(p \sqrt d))$;
    - the mean field (infinite width, this d) also by $O(1/p)$, with a larger constant but no $1/d$.

    dimfree finds the sizes of these terms once: it solves all limits for a network of this width, 8 neurons at most,
    and simulates it from 8 random starts. The laws then give the *expected* errors at any width and dimension. The
    recommended limit is the cheapest limit whose expected error is within a factor 1.15 of the smallest. If an exact
    simulation is affordable, the errors are *measured* too. Draw the plane of all widths and rates with
    [`plot.regimes`].

    This holds for starts from which the risk falls at once. If there is a plateau to leave (a target without linear
    part), runs leave it at different times: see [`exit_time`].

    **Arguments:**

    - `problem`, `algorithm`: a [`TwoLayer`] or [`MultiIndex`] network with the normalisation `"mean"`, and SGD with a
      constant learning rate.
    - `d`, `alpha`: the dimension, and the end, in samples per dimension.
    - `runs`, `key`: simulations to measure with, and the random key.
    - `measure`: whether to simulate; if left out, only if it does not take too long.
    - `scales`: the scales of another result for the same problem at another width, dimension or rate, up to the same
      time, so that they are not computed again.

    **Returns:** a [`RegimeMap`]; it prints as a table, and `plot.regimes` draws it.

    Loureiro 2023, "The different regimes"; Veiga et al., NeurIPS 2022, Theorem 1 (ODE); Arnaboldi, Stephan, Krzakala &
    Loureiro, COLT 2023 (dimension-free); Mei, Montanari & Nguyen, PNAS 115 (2018), Theorem 3 (mean field).
    """
    check_not_traced("regimes", problem=problem, algorithm=algorithm, d=d, alpha=alpha, key=key)
    measure = None if measure is None else flag(measure, "measure")
    if scales is not None and not isinstance(scales, ErrorScales):
        raise InvalidInput(f"scales = {shown(scales)} was given; give the scales of another result, result.scales.")
    _check(problem, algorithm)
    d, runs = positive_integer(d, "d", minimum=problem.teacher_width + 1), positive_integer(runs, "runs", minimum=2)
    positive_number(alpha, "alpha")
    rate = _number(algorithm.learning_rate)
    time = rate * alpha / problem.width
    if not time * _REFERENCE_D / _REFERENCE_RATE <= _MOST_STEPS:
        raise InvalidInput(
            f"alpha = {shown(alpha)} was given: a time learning_rate * alpha / p of {time:.3g}, too long to simulate "
            "the network that gives the errors. Take an earlier end."
        )
    check_key(key)
    reference_key, start_key, run_key = jax.random.split(key, 3)
    steps = alpha * d / algorithm.batch_size
    cost = steps * runs * (problem.width + problem.teacher_width) ** 3
    measured = errors = None
    if measure or (measure is None and cost < _AFFORDABLE):
        start = random_state(problem, d, key=start_key)
        samples = _distances(problem, algorithm, start, d, alpha, runs, run_key)
        measured = {name: float(sample.mean()) for name, sample in samples.items()}
        errors = {name: float(sample.std(ddof=1) / runs**0.5) for name, sample in samples.items()}
    if scales is None:  # after the runs: where those diverge, this would take long for nothing
        scales = _error_scales(problem, algorithm, time, reference_key)
    noise = rate / (problem.width * algorithm.batch_size)
    expected = {name: float(error) for name, error in scales.errors(problem.width, d, noise).items()}
    return RegimeMap(
        p=problem.width,
        d=d,
        learning_rate=rate,
        batch_size=algorithm.batch_size,
        alpha=float(alpha),
        scales=scales,
        recommended=list(LIMITS)[int(scales.recommended(problem.width, d, noise))],
        expected=expected,
        measured=measured,
        standard_error=errors,
    )


def _check(problem: object, algorithm: OnlineSGD) -> None:
    if not isinstance(problem, TwoLayer | MultiIndex):
        raise InvalidInput(f"{shown(problem)} was given; regimes takes two-layer networks, TwoLayer or MultiIndex.")
    check_problem(problem)
    if problem.normalisation != "mean":
        raise InvalidInput(
            f"normalisation = {problem.normalisation!r} was given; widths are compared at the normalisation 'mean'."
        )
    check_online_sgd(algorithm)
    if algorithm.changes:
        raise InvalidInput("A schedule was given; regimes takes constant rates.")
    if not _number(algorithm.learning_rate) > 0:
        raise InvalidInput("learning_rate = 0 was given; nothing moves.")


def _number(rate: Any) -> float:
    """A rate that has been checked to be constant."""
    return float(rate)


def _risk(limit, start: State, times) -> Float[np.ndarray, "*starts times"]:
    """The risk of a limit at times = learning_rate * alpha / p, from one start or from several along a leading axis."""
    alphas = times * limit.problem.width / _number(limit.algorithm.learning_rate)

    def risk(one: State):
        return solve(limit, one, alphas, relative_tolerance=1e-6, absolute_tolerance=1e-8).risk

    return np.asarray(jax.jit(jax.vmap(risk))(start) if start.M.ndim == 3 else risk(start))


def _distances(problem, algorithm, start, d, alpha, runs, key) -> dict[str, Float[np.ndarray, " runs"]]:
    """For each limit, how far each run is from it at most."""
    per_step = algorithm.batch_size / d
    alphas = per_step * np.unique(np.round(np.linspace(0.0, alpha / per_step, _TIMES)))  # there may be few steps
    simulated = simulate(problem, algorithm, start, d, alphas, runs=runs, key=key)
    if (np.asarray(simulated.outcome) != Outcome.COMPLETED).any():
        raise InvalidInput(
            f"Runs with learning_rate = {_number(algorithm.learning_rate):g} diverge: no limit describes "
            "them. Take a smaller rate, or measure=False."
        )
    times = np.asarray(simulated.alpha) * _number(algorithm.learning_rate) / problem.width
    # Gradient flow is the ODE at a vanishing rate: one program less to compile, but for many neurons p times slower.
    slow = _rescaled(algorithm, problem.width, problem.width, _VANISHING)
    limits = {
        "mean field": mean_field(problem, algorithm, d, infinite_width=True),
        "dimension-free": mean_field(problem, algorithm),
        "gradient flow": (ode if problem.width <= _REFERENCE_WIDTH else gradient_flow)(problem, slow),
        "ODE": ode(problem, algorithm),
    }
    paths = np.asarray(simulated.risk)
    return {name: np.abs(paths - _risk(limit, start, times)).max(axis=1) for name, limit in limits.items()}


def _error_scales(problem, algorithm, time: float, key) -> ErrorScales:
    """Each term on its own, from a network that is small enough for every limit and for simulation."""
    p, d, rate = min(problem.width, _REFERENCE_WIDTH), _REFERENCE_D, _REFERENCE_RATE
    small = problem.resized(p)
    at_rate = functools.partial(_rescaled, algorithm, problem.width, p)
    start_key, run_key = jax.random.split(key)
    starts = random_starts(small, d, 64, key=start_key)
    start = jax.tree.map(lambda leaf: leaf[0], starts)
    angles = np.asarray(small.risk(starts) - small.risk(WideState.of(starts)))
    sgd, slow = at_rate(rate), at_rate(_VANISHING)
    times = np.linspace(0.0, time, _TIMES)
    some = jax.tree.map(lambda leaf: leaf[:_STARTS], starts)
    flows, corrections = (_risk(ode(small, a), some, times) for a in (slow, sgd))
    flow = flows[0]
    wide = _risk(mean_field(small, slow), start, times)
    near = 10 * small.teacher_width + 40
    angled = _risk(mean_field(small, slow, near), start, times)
    density = _risk(mean_field(small, slow, d, infinite_width=True), start, times)
    each = jax.tree.map(lambda leaf: leaf.repeat(_RUNS, axis=0), some)
    simulated = simulate(small, sgd, each, d, times / rate, runs=_STARTS * _RUNS, key=run_key)
    distances = np.abs(np.asarray(simulated.risk) - corrections.repeat(_RUNS, axis=0)).max(axis=1)
    spreads = distances.reshape(_STARTS, _RUNS).mean(axis=1)
    noise = rate / sgd.batch_size

    def largest(difference) -> float:
        return float(np.abs(difference).max())

    return ErrorScales(
        time=time,
        risk=float(flow[0]),
        fluctuation=float(spreads.mean() / (noise / d) ** 0.5),
        start=float(np.sqrt(np.mean(angles**2)) * p * d**0.5),
        noise=float(np.abs(flows - corrections).max(axis=1).mean()) / noise,
        width=p * largest(wide - flow),
        density=p * largest(density - flow),
        angles=(near - small.teacher_width) * largest(wide - angled),
        between_starts=float(spreads.std(ddof=1) / spreads.mean()),
    )


def _rescaled(algorithm: OnlineSGD, p: int, reference: int, noise: float) -> OnlineSGD:
    """The same motion in time at another width, with learning_rate = noise * p: rates grow with the width."""
    rate = noise * reference
    readout_rate = algorithm.readout_rate
    if readout_rate is not None:
        readout_rate = rate * _number(readout_rate) / _number(algorithm.learning_rate)
    return OnlineSGD(
        rate,
        batch_size=algorithm.batch_size,
        sphere=algorithm.sphere,
        ridge=_number(algorithm.ridge) * p / reference,
        readout_rate=readout_rate,
    )
