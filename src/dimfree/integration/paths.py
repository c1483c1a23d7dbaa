"""Integrating a diffusion."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..batches import map_in_batches
from ..state import State
from ..trajectory import Outcome
from .settings import DIVERGED_ABOVE


@eqx.filter_jit
def solve_paths(limit: Any, starts: State, alphas, keys, steps: int, stop) -> dict[str, Any]:
    """Euler-Maruyama with even steps; saved by rounding to the nearest step.

    Of a limit this uses `coordinates`, `drift` and `covariance`.
    """
    coordinates = limit.coordinates
    dt = alphas[-1] / steps

    def advance(start, carry, step_and_normals):
        vector, stopped_at, outcome = carry
        step, normals = step_and_normals
        t = step * dt
        state = coordinates.unpack(vector, start)
        values, directions = jnp.linalg.eigh(limit.covariance(t, state))
        noise = directions @ (jnp.sqrt(jnp.maximum(values, 0.0) * dt) * normals)
        new = vector + dt * coordinates.pack(limit.drift(t, state)) + noise
        running = outcome == Outcome.COMPLETED
        diverged = ~jnp.all(jnp.abs(new) < DIVERGED_ABOVE)
        ended = diverged if stop is None else diverged | (stop(coordinates.unpack(new, start)) >= 0)
        ended_as = jnp.where(diverged, Outcome.DIVERGED, Outcome.STOPPED)
        outcome = jnp.where(running & ended, ended_as, outcome)
        stopped_at = jnp.where(running & ended, t + dt, stopped_at)
        vector = jnp.where(running & ~diverged, new, vector)
        return (vector, stopped_at, outcome), vector

    def path(start_and_key):
        start, key = start_and_key
        initial = coordinates.pack(start)
        normals = jax.random.normal(key, (steps, initial.size))
        at_start = jnp.asarray(False if stop is None else stop(start) >= 0)
        outcome = jnp.where(at_start, Outcome.STOPPED, Outcome.COMPLETED)
        carry = (initial, jnp.where(at_start, 0.0, jnp.nan), outcome)
        (_, stopped_at, outcome), vectors = jax.lax.scan(
            functools.partial(advance, start), carry, (jnp.arange(steps), normals)
        )
        vectors = jnp.concatenate([initial[None], vectors])
        index = jnp.round(alphas / dt).astype(int)
        return coordinates.unpack(vectors[index], start), stopped_at, outcome

    states, stopped_at, outcome = map_in_batches(path, (starts, keys), 256)
    return {"state": states, "outcome": outcome, "stopped_at": stopped_at}
