"""Integrating a drift that jumps: clusters that are points, and neurons with a kink at zero."""

from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..problems.inputs import Clusters
from ..state import State
from ..trajectory import Outcome
from .settings import DIVERGED_ABOVE


@eqx.filter_jit
def solve_sliding(limit: Any, start: State, alphas, steps: int, stop) -> dict[str, Any]:
    r"""Heun's method with projection on the surfaces that the solution slides along (Filippov's solution).

    The drift jumps where $h_{ic} = M_i \cdot \text{means}_c$ changes sign. Where it points to the surface from both
    sides the solution stays on it. The cluster moves $M_i$ along $P \, \text{means}_c$ only, and its part in the
    gradient of the readout is proportional to $h_{ic}$, so that projecting along that direction is the sliding motion
    itself. A step that only crosses is left as it is, with an error of first order in the step.
    """
    inverse_P = jnp.linalg.inv(start.P)
    # Even steps, and further ones so that each time to save at is the end of one.
    times = jnp.sort(jnp.concatenate([jnp.linspace(0.0, alphas[-1], steps + 1), alphas]))
    slots = jnp.searchsorted(alphas, times[1:])  # the next time to save at: what is written last is the State there

    def advance(before: State, alpha, step) -> State:
        drift = limit.drift(alpha, before)
        guess = _moved(before, step, drift)
        there = limit.drift(alpha + step, guess)
        after = _moved(_moved(before, step / 2, drift), step / 2, there)
        return _project(limit, inverse_P, before, guess, there, after)

    def one_step(carry, inputs):
        state, outcome, stopped_at, saved = carry
        alpha, step, slot = inputs
        new = advance(state, alpha, step)
        running = outcome == Outcome.COMPLETED
        diverged = ~jnp.all(jnp.abs(limit.coordinates.pack(new)) < DIVERGED_ABOVE)
        reached = jnp.asarray(False if stop is None else stop(new) >= 0)
        ended = jnp.where(diverged, Outcome.DIVERGED, jnp.where(reached, Outcome.STOPPED, Outcome.COMPLETED))
        outcome = jnp.where(running, ended, outcome)
        stopped_at = jnp.where(running & (diverged | reached), alpha + step, stopped_at)
        state = jax.tree.map(lambda a, b: jnp.where(running & ~diverged, a, b), new, state)
        saved = jax.tree.map(lambda all_times, now: all_times.at[slot].set(now), saved, state)
        return (state, outcome, stopped_at, saved), None

    at_start = jnp.asarray(False if stop is None else stop(start) >= 0)
    outcome = jnp.where(at_start, Outcome.STOPPED, Outcome.COMPLETED)
    saved = jax.tree.map(lambda value: jnp.broadcast_to(value, (alphas.shape[0], *value.shape)), start)
    carry = (start, outcome, jnp.where(at_start, 0.0, jnp.nan), saved)
    carry, _ = jax.lax.scan(one_step, carry, (times[:-1], jnp.diff(times), slots))
    _, outcome, stopped_at, saved = carry
    return {"state": saved, "outcome": outcome, "stopped_at": stopped_at}


def _moved(state: State, step, drift: State) -> State:
    return jax.tree.map(lambda value, rate: value + step * rate, state, drift)


def _project(limit: Any, inverse_P, before: State, guess: State, there: State, after: State) -> State:
    """The State after a step, put back on every surface that it crossed and that would send it back."""
    points = cast(Clusters, limit.problem.inputs)
    crossed = _differ(before, guess, points) | _differ(before, after, points)
    sent_back = crossed & (_fields(guess, points) * _fields(there, points) < 0)
    M = after.M
    for c in range(points.components):
        normal = points.means[c] @ after.P
        length = normal @ points.means[c]
        excess = (M @ points.means[c]) / jnp.where(length > 0, length, 1.0)
        put_back = M - jnp.outer(excess, normal)
        # Rounding must not leave a neuron beside the surface it was put on.
        put_back = jnp.where(jnp.abs(put_back) < 1e-15, 0.0, put_back)
        M = jnp.where(sent_back[:, c, None], put_back, M)
    # What students have outside the span of the clusters does not change.
    Q = after.Q + M @ inverse_P @ M.T - after.M @ inverse_P @ after.M.T
    return State(Q=Q, M=M, P=after.P, readout=after.readout)


def _fields(state: State, points: Clusters) -> Float[Array, "p c"]:
    return state.M @ points.means.T


def _differ(one: State, other: State, points: Clusters) -> Bool[Array, "p c"]:
    return jnp.sign(_fields(one, points)) != jnp.sign(_fields(other, points))
