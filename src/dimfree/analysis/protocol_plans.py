"""What a search for the best protocol computes: an objective along theory, averaged over starts, and its slopes."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..algorithms.online import OnlineAlgorithm
from ..batches import map_in_batches
from ..functions import Function
from ..limits import ode
from ..problems import Problem
from ..simulation import exact_mean, simulate
from ..solving import solve
from ..state import State
from ..trajectory import Outcome, Trajectory, first_of
from .controls import Control, Pair
from .exit_times import Fallen, random_starts


class Plan(eqx.Module):
    """All that a search needs to know; arrays in it are traced, so that one program serves all of the same shapes."""

    problem: Problem
    algorithm: OnlineAlgorithm
    starts: State
    times: Float[Array, " times"]
    controls: tuple[Control, ...]
    objective: Function | None
    until: Float[Array, ""] | None
    bounded: tuple[Function, ...]
    limits: tuple[tuple[str, float, float], ...] = eqx.field(static=True)
    d: int | None = eqx.field(static=True)
    random: bool = eqx.field(static=True)
    steps: tuple[float, ...] | None = eqx.field(static=True)

    @property
    def is_mean(self) -> bool:
        """Whether theory is the exact mean, whose times must be known when it is compiled."""
        return self.steps is not None

    @property
    def words(self) -> str:
        if self.until is not None:
            return f"alpha at risk {float(self.until):.4g}"
        return (
            "final excess risk" if self.objective is None else self.objective.__name__.replace("<lambda>", "objective")
        )

    @property
    def theory(self) -> str:
        return f"exact mean at d = {self.d}" if self.is_mean else "ODE"

    @property
    def number(self) -> int:
        return self.starts.batch_shape[0]

    @property
    def size(self) -> int:
        return sum(control.size for control in self.controls)

    def split(self, x: Any) -> list[Any]:
        library = jnp if isinstance(x, jax.Array) else np
        return library.split(x, np.cumsum([control.size for control in self.controls])[:-1])

    def put(self, x: Float[Array, " n"]) -> Pair:
        whole = Pair(self.problem, self.algorithm)
        # Batches last: they are put around the algorithm.
        parts = sorted(zip(self.controls, self.split(x), strict=True), key=lambda each: each[0].kind == "batch")
        for control, part in parts:
            whole = control.put(whole, part)
        return whole

    @property
    def stop(self) -> Fallen | None:
        return None if self.until is None else Fallen(self.problem.at(self.times[-1]), self.until)

    def trajectory(self, pair: Pair, start: State) -> Trajectory:
        if self.steps is not None:
            assert self.d is not None
            return exact_mean(pair.problem, pair.algorithm, start, self.d, np.array(self.steps))
        return solve(ode(pair.problem, pair.algorithm), start, self.times, stop=self.stop)

    def of(self, run: Trajectory) -> Float[Array, ""]:
        """The objective of one trajectory."""
        if self.objective is not None:
            return jnp.asarray(self.objective(run), float)
        target = self.problem.at(self.times[-1])
        excess = target.risk(run.final) - target.irreducible_risk
        if self.until is None:
            return excess
        # Where the risk does not come down in time, the more is left the longer it is.
        late = self.times[-1] * (1 + jnp.log(jnp.maximum(excess / (self.until - target.irreducible_risk), 1.0)))
        return jnp.where(run.outcome == Outcome.STOPPED, jnp.nan_to_num(run.stopped_at), late)

    def measured(self, pair: Pair, start: State) -> Float[Array, " n"]:
        run = self.trajectory(pair, start)
        found = jnp.stack([self.of(run), *(jnp.asarray(each(run), float) for each in self.bounded)])
        ended = (run.outcome == Outcome.COMPLETED) | (run.outcome == Outcome.STOPPED)
        return jnp.where(ended, found, jnp.nan)

    def objectives(self, pair: Pair) -> Float[np.ndarray, " starts"]:
        """The objective from each start."""
        return np.asarray(_objectives(self, pair))

    def late(self, objectives: Float[np.ndarray, " starts"]) -> int:
        """How many starts do not reach the risk of `until` in time."""
        return 0 if self.until is None else int(np.sum(objectives > float(self.times[-1])))

    def from_starts(self, d: int, number: int, key: PRNGKeyArray) -> "Plan":
        """The same from other random starts; from the same start, if it was given."""
        starts = random_starts(self.problem, d, number, key=key) if self.random else self.starts
        return dataclasses.replace(self, starts=starts, d=d)

    def simulated(self, pair: Pair, d: int, runs: int, key: PRNGKeyArray) -> Float[np.ndarray, " runs"]:
        """The objective of each of so many runs of SGD."""
        start = self.starts if self.random else first_of(self.starts)
        found = simulate(
            pair.problem, pair.algorithm, start, d, np.asarray(self.times), runs=runs, key=key, stop=self.stop
        )

        def one(state, outcome, stopped_at):
            changed = (state, outcome, stopped_at)
            return self.of(eqx.tree_at(lambda t: (t.state, t.outcome, t.stopped_at), found, changed))

        return np.asarray(jax.lax.map(lambda each: one(*each), (found.state, found.outcome, found.stopped_at)))


@eqx.filter_jit
def _objectives(plan: Plan, pair: Pair) -> Float[Array, " starts"]:
    return map_in_batches(lambda start: plan.measured(pair, start)[0], plan.starts)


def slopes(plan: Plan, x: Float[Array, " n"]):
    """Objective and bounded functions, averaged over starts, with their derivatives."""

    def means(x):
        pair = plan.put(x)
        return jnp.mean(map_in_batches(lambda start: plan.measured(pair, start), plan.starts), axis=0)

    found, backwards = jax.vjp(means, x)
    if len(found) == 1:
        return found, backwards(jnp.ones(1))[0][None]
    return found, jax.lax.map(lambda each: backwards(each)[0], jnp.eye(len(found)))


with_slopes = eqx.filter_jit(slopes)


@eqx.filter_jit
def means_of(plan: Plan, x: Float[Array, " n"]):
    """Means of those controls that are bounded, with their derivatives."""

    def means(x):
        parts = dict(zip((control.name for control in plan.controls), plan.split(x), strict=True))
        controls = {control.name: control for control in plan.controls}
        return jnp.stack([controls[name].mean(parts[name]) for name, *_ in plan.limits if name in controls])

    return means(x), jax.jacrev(means)(x)
