"""How many samples SGD needs as the dimension grows, measured by exact simulation."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..algorithms import OnlineSGD
from ..algorithms.online import check_online_sgd
from ..algorithms.schedules import rate_at
from ..errors import (
    InvalidInput,
    check_key,
    check_not_traced,
    flag,
    positive_integer,
    positive_number,
    returned_by,
    shown,
)
from ..problems import MultiIndex, Problem, TwoLayer
from ..problems.base import check_problem
from ..simulation import simulate
from ..state import State
from .exit_times import exits_of, random_starts
from .information_exponent import InformationExponent, information_exponent
from .plateau import check_moves
from .uncertainty import fraction_error, log_median

_ENOUGH = 0.75  # of the runs must have found the target, for the median to be known well
_LONGER = 4.0  # times as long, if they have not
_ROUNDS = 7
_PATIENCE = 4.0  # times the median expected from the dimension before


@dataclasses.dataclass(frozen=True, eq=False)
class SampleComplexity:
    r"""Samples until SGD has found the target, against the dimension, from [`sample_complexity`]; it prints as a table.

    - `dimensions`: the measured dimensions; `samples`: the median number of samples over runs, infinite where too few
      runs found the target; `errors`: its standard error, relative.
    - `found`, `found_errors`: the fraction of runs that found the target within the samples allowed, and its standard
      error.
    - `power`, `power_error`: of the fit $n = C d^{\text{power}}$, times $\log d$ if the exponent requires it; the error
      comes from the errors of the medians, and is larger if they do not lie on such a line.
    - `exponent`: the result of [`information_exponent`] for the problem; None if it does not know the target.
    """

    problem: Problem
    algorithm: OnlineSGD | Callable[[int], OnlineSGD]
    level: float
    runs: int
    dimensions: Int[np.ndarray, " cells"]
    samples: Float[np.ndarray, " cells"]
    errors: Float[np.ndarray, " cells"]
    found: Float[np.ndarray, " cells"]
    power: float
    power_error: float
    exponent: InformationExponent | None

    @property
    def found_errors(self) -> Float[np.ndarray, " cells"]:
        return fraction_error(np.round(self.found * self.runs), self.runs)

    @property
    def has_logarithm(self) -> bool:
        """Whether a factor log d was divided out before the fit."""
        return _has_logarithm(self.exponent)

    def __repr__(self) -> str:
        law = f"d^({self.power:.3f} +- {self.power_error:.3f})" + " log d" * self.has_logarithm
        lines = [f"Samples until SGD has an overlap of {self.level:g} with the target: n ~ {law}"]
        if self.exponent is not None:
            lines.append(f"  predicted: {self.exponent.sample_complexity}, from {self.exponent.target}")
        lines.append(f"  {self.problem!r}, {self.runs} runs for each d")
        lines.append(f"  {'d':>10}{'samples':>13}{'+-':>8}{'samples/d':>12}{'found':>8}{'+-':>7}")
        columns = (self.dimensions, self.samples, self.errors, self.found, self.found_errors)
        for d, n, error, found, uncertain in zip(*columns, strict=True):
            lines.append(f"  {d:>10}{n:>13.4g}{error:>8.1%}{n / d:>12.4g}{found:>8.1%}{uncertain:>7.1%}")
        if not np.isfinite(self.samples).all():
            lines.append("  Where fewer than three quarters of the runs found it, the median is unknown and left out.")
        return "\n".join(lines)


def sample_complexity(
    problem: Problem,
    algorithm: OnlineSGD | Callable[[int], OnlineSGD],
    dimensions: Sequence[int],
    *,
    runs: int = 128,
    key: PRNGKeyArray,
    level: float = 0.5,
    progress: bool = False,
) -> SampleComplexity:
    r"""How the number of samples until SGD finds the target grows with the dimension.

    Every run starts from random students, and has found the target when for each teacher some student has an overlap
    $|M_{jr}| / \sqrt{Q_{jj} P_{rr}}$ of at least `level`. A power of d is fitted to the median over runs. Runs are
    exact in law, at a cost for each sample that does not depend on d. So you can measure an exponent of two up to d =
    10^5 and more, and an exponent of three, which needs order d^2 samples, up to some thousands.

    For an information exponent above two the learning rate must fall with d, see [`information_exponent`]: with a fixed
    rate the noise of SGD keeps the overlap at its start. Then give a function of d.

    **Arguments:**

    - `problem`: what is learned.
    - `algorithm`: the same at every d, or a function of d that returns it.
    - `dimensions`: at least two, increasing.
    - `runs`, `key`: runs at each d, and the random key.
    - `level`: the overlap that counts as found.
    - `progress`: whether to show how far the simulations are.

    **Returns:** a [`SampleComplexity`]; it prints as a table.

    ??? example
        >>> import dimfree, jax
        >>> sgd = dimfree.OnlineSGD(learning_rate=0.5, sphere=True)
        >>> law = dimfree.sample_complexity(
        ...     dimfree.SingleIndex("linear"), sgd, [100, 1_000], runs=32, key=jax.random.key(0)
        ... )
        >>> abs(law.power - 1) < 0.05
        True
    """
    check_not_traced("sample_complexity", problem=problem, algorithm=algorithm, level=level, key=key)
    progress = flag(progress, "progress")
    check_problem(problem)
    if not isinstance(dimensions, Sequence | np.ndarray) or isinstance(dimensions, str | bytes):
        raise InvalidInput(f"dimensions = {shown(dimensions)} was given; give at least two, such as [100, 1_000].")
    cells = [positive_integer(d, "dimensions", minimum=2) for d in dimensions]
    if len(cells) < 2 or any(later <= earlier for earlier, later in itertools.pairwise(cells)):
        raise InvalidInput(f"dimensions = {shown(dimensions)} was given; a slope needs at least two, increasing.")
    positive_number(level, "level")
    if not level < 1:
        raise InvalidInput(f"level = {shown(level)} was given; it is an overlap, between 0 and 1.")
    runs = positive_integer(runs, "runs", minimum=8)
    known = isinstance(problem, TwoLayer | MultiIndex)
    exponent = information_exponent(problem) if known else None
    # Samples per dimension, from which the next dimension guesses how long to wait; a logarithm is within its patience.
    growth = 0.0 if exponent is None or exponent.leap is None else exponent.sample_power - 1
    medians, expected = [], None
    check_key(key)
    for d, cell_key in zip(cells, jax.random.split(key, len(cells)), strict=True):
        given: object = algorithm
        if callable(algorithm):
            given = returned_by(algorithm, "algorithm", d, "an algorithm, or give the algorithm itself")
        check_online_sgd(given)
        sgd = cast(OnlineSGD, given)
        check_moves(sgd)
        if expected is None:
            first = 4.0 / max(float(rate_at(sgd.learning_rate, jnp.zeros(()))), 1e-12)
        else:
            first = _PATIENCE * expected[1] * (d / expected[0]) ** growth
        times = recovery_times(problem, sgd, d, level, first, runs=runs, key=cell_key, progress=progress)
        if np.median(times) == 0:
            raise InvalidInput(
                f"At least half of the random starts in d = {d} have an overlap of {level:g} with the target already; "
                "take a larger d or level."
            )
        medians.append((*log_median(times * d, _ENOUGH), np.mean(np.isfinite(times))))
        if np.isfinite(medians[-1][0]):
            expected = (d, np.exp(medians[-1][0]) / d)
    logs, errors, found = (np.asarray(column) for column in zip(*medians, strict=True))
    log_d = np.log(cells)
    logarithm = np.log(log_d) if _has_logarithm(exponent) else 0.0
    power, power_error = fitted_power(log_d, logs - logarithm, errors)
    return SampleComplexity(
        problem=problem,
        algorithm=algorithm,
        level=level,
        runs=runs,
        dimensions=np.asarray(cells),
        samples=np.exp(logs),
        errors=errors,
        found=found,
        power=power,
        power_error=power_error,
        exponent=exponent,
    )


def _has_logarithm(exponent: InformationExponent | None) -> bool:
    return exponent is not None and exponent.leap == 2


class Recovered(eqx.Module):
    """The event that every teacher has a student with an overlap of `level`."""

    level: float | Array

    def __call__(self, state: State) -> Float[Array, ""]:
        norms = jnp.diagonal(state.Q)[:, None] * jnp.diagonal(state.P)
        return jnp.min(jnp.max(jnp.abs(state.M) / jnp.sqrt(norms), axis=0)) - self.level


def recovery_times(
    problem: Problem,
    algorithm: OnlineSGD,
    d: int,
    level: float,
    first: float,
    *,
    runs: int,
    key: PRNGKeyArray,
    progress: bool = False,
) -> Float[np.ndarray, " runs"]:
    """The alpha at which each run finds the target; infinite for those that do not.

    Runs are given the alpha `first`, and four times as long as long as fewer than three quarters find it.
    """
    start_key, run_key = jax.random.split(key)
    starts = random_starts(problem, d, runs, key=start_key)
    stop, end = Recovered(jnp.asarray(level)), first
    times = np.full(runs, np.inf)
    for _ in range(_ROUNDS):
        save = np.array([0.0, max(end, algorithm.batch_size / d)])
        paths = simulate(problem, algorithm, starts, d, save, runs=runs, key=run_key, stop=stop, progress=progress)
        times = np.asarray(exits_of(paths))
        if np.mean(np.isfinite(times)) >= _ENOUGH:
            break
        end *= _LONGER
    return times


def fitted_power(
    log_d: Float[np.ndarray, " cells"], logs: Float[np.ndarray, " cells"], errors: Float[np.ndarray, " cells"]
) -> tuple[float, float]:
    """The slope of a straight line by weighted least squares, and its error; infinite with fewer than two points.

    Where the points lie further from the line than their errors, these are enlarged until they do not.
    """
    known = np.isfinite(logs)
    if known.sum() < 2:
        return np.inf, np.inf
    x, y, weight = log_d[known], logs[known], 1 / np.maximum(errors[known], 1e-6) ** 2
    centred = x - np.average(x, weights=weight)
    slope = np.sum(weight * centred * y) / np.sum(weight * centred**2)
    left = y - np.average(y, weights=weight) - slope * centred
    misfit = np.sum(weight * left**2) / max(1, len(x) - 2)
    return float(slope), float(np.sqrt(max(1.0, misfit) / np.sum(weight * centred**2)))
