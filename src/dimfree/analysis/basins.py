"""Where random starts end: the probability of each rest, by the ODE and by simulation."""

import dataclasses

import jax
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from ..errors import check_key, check_not_traced, positive_integer, positive_number, require
from ..limits import MeanLimit
from ..limits.drift import check_mean_limit
from ..simulation import simulate
from ..state import State, check_state
from ..trajectory import Outcome, check_starts
from .components import FixedSet
from .exit_times import random_starts
from .plateau import check_moves
from .uncertainty import fraction_error

_AT_REST = 1e-3  # rate at which a State may still move
_SAME = 1e-3  # risks that differ by less than this fraction are one


@dataclasses.dataclass(frozen=True)
class Basins:
    """The probability of coming to rest at each risk from a random start; it prints as a table.

    **Attributes:**

    - `risk`: of each rest, in increasing order, shape (m,). Fixed points that symmetries carry into each other, and all
      points of a family, have the same.
    - `states`: one State at each rest, along a leading axis.
    - `counts`: how many starts the ODE takes to each, shape (m,); `starts`: of how many.
    - `simulated_counts`: how many simulated runs end in the basin of each, shape (m,); `runs`: of how many.
    - `d`, `alpha`: the dimension of starts and simulation, and the time.

    What is missing from the counts was not at rest, or had diverged.
    """

    risk: Float[np.ndarray, " m"]
    states: State
    counts: Int[np.ndarray, " m"]
    starts: int
    simulated_counts: Int[np.ndarray, " m"]
    runs: int
    d: int
    alpha: float

    @property
    def probability(self) -> Float[np.ndarray, " m"]:
        """The fraction of starts that the ODE takes to each."""
        return self.counts / self.starts

    @property
    def error(self) -> Float[np.ndarray, " m"]:
        """The standard error of `probability`."""
        return fraction_error(self.counts, self.starts)

    @property
    def simulated_probability(self) -> Float[np.ndarray, " m"]:
        """The fraction of simulated runs that end in the basin of each; NaN without runs."""
        return self.simulated_counts / self.runs if self.runs else np.full(len(self.risk), np.nan)

    @property
    def simulated_error(self) -> Float[np.ndarray, " m"]:
        """The standard error of `simulated_probability`."""
        return fraction_error(self.simulated_counts, self.runs) if self.runs else np.full(len(self.risk), np.nan)

    def __str__(self) -> str:
        columns = (self.risk, self.probability, self.error, self.simulated_probability, self.simulated_error)
        simulated = f"   {self.runs} simulated runs" if self.runs else ""
        lines = [
            f"From random starts in d = {self.d}, by alpha = {self.alpha:g}:",
            f"          risk   {f'ODE, {self.starts} starts':18s}{simulated}",
        ]
        for risk, one, one_error, two, two_error in zip(*columns, strict=True):
            row = f"  {risk:12.6g}   {one:.4f} +- {one_error:.4f}"
            lines.append(row + (f"     {two:.4f} +- {two_error:.4f}" if self.runs else ""))
        elsewhere = self.starts - int(self.counts.sum()), self.runs - int(self.simulated_counts.sum())
        if any(elsewhere):
            lines.append(f"  not at rest or diverged: {elsewhere[0]} starts, {elsewhere[1]} runs")
        return "\n".join(lines)

    __repr__ = __str__


def basins(
    limit: MeanLimit,
    *,
    d: int,
    alpha: float,
    key: PRNGKeyArray,
    starts: int | State = 1_000,
    runs: int = 0,
    steps: int = 400,
) -> Basins:
    """The probability of each end of SGD from a random start, by the ODE and by exact simulation.

    The ODE is solved from every start. Simulated runs fluctuate, so the end of a run is where the ODE takes its last
    State. Ends are distinguished by their risk.

    **Arguments:**

    - `limit`: from [`ode`].
    - `d`: the dimension of the random starts and of the simulation.
    - `alpha`: the end time; long enough to come to rest.
    - `key`: random key.
    - `starts`: the number of random starts ([`random_state`], with a standard normal readout if it is trained), or
      States, along a leading axis.
    - `runs`: number of starts from which to simulate too.
    - `steps`: of the solver, for a drift that jumps.

    **Returns:** the ends and their probabilities; it prints as a table.

    Ben Arous et al. 2022, sections 4 and 5, where the probability is that of infinite snr taken after d, with overlaps
    of order $d^{-1/2}$ at the start: from M = 0 exactly, the ODE learns nothing.
    """
    check_not_traced("basins", limit=limit, alpha=alpha, key=key, starts=starts)
    check_mean_limit(limit)
    check_moves(limit.algorithm)
    d, runs = positive_integer(d, "d"), positive_integer(runs, "runs", minimum=0)
    positive_number(alpha, "alpha")
    check_key(key)
    start_key, run_key = jax.random.split(key)
    if not isinstance(starts, State):
        # A readout that is trained has a random start too.
        scale = 1.0 if limit.coordinates.readout_size else None
        number = positive_integer(starts, "starts")
        starts = random_starts(limit.problem, d, number, key=start_key, readout_scale=scale)
    number = starts.Q.shape[0]
    starts = check_starts(limit.problem, starts, number, trained=limit.coordinates.readout_size > 0)
    check_state(starts, sphere=limit.algorithm.sphere)
    require(runs <= number, f"runs = {runs} was given, but there are {number} starts; each run needs one.")
    fixed = FixedSet(limit, jax.tree.map(lambda leaf: leaf[0], starts), positive_integer(steps, "steps"))
    times = np.array([0.0, float(alpha)])
    ends = _rest(fixed, fixed.pack(starts), times)
    simulated = ends[:0]
    if runs:
        chosen = jax.tree.map(lambda leaf: leaf[:runs], starts)
        ran = simulate(limit.problem, limit.algorithm, chosen, d, times, runs=runs, key=run_key)
        completed = np.asarray(ran.outcome) == Outcome.COMPLETED
        simulated = _rest(fixed, fixed.pack(ran.final)[completed], times)
    points = np.concatenate([ends, simulated])
    risk = fixed.risk(points)
    order = np.argsort(risk, kind="stable")
    jumps = np.diff(risk[order]) > _SAME * (1 + np.abs(risk[order][1:]))
    rest = np.empty(len(risk), int)
    rest[order] = np.concatenate([[0], np.cumsum(jumps)])[: len(risk)]
    kinds = int(rest.max(initial=-1)) + 1
    first = [int(np.flatnonzero(rest == kind)[0]) for kind in range(kinds)]
    return Basins(
        risk=np.array([np.median(risk[rest == kind]) for kind in range(kinds)]),
        states=fixed.unpack(points[first]),
        counts=np.bincount(rest[: len(ends)], minlength=kinds),
        starts=number,
        simulated_counts=np.bincount(rest[len(ends) :], minlength=kinds),
        runs=runs,
        d=d,
        alpha=float(alpha),
    )


def _rest(fixed: FixedSet, points, times) -> Float[np.ndarray, "r n"]:
    """Where the ODE comes to rest; without the points from which it does not."""
    ends = fixed.flow(points, np.repeat(times[None], len(points), axis=0))[:, -1]
    still = np.linalg.norm(fixed.drift(ends), axis=1) < _AT_REST * (1 + np.linalg.norm(ends, axis=1))
    return ends[still]
