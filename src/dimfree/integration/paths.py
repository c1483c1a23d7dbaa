"""Integrating a diffusion."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from ..last_axis import map_last_axis
from ..state import State
from ..trajectory import Outcome
from .settings import DIVERGED_ABOVE

_AT_ONCE, _NUMBERS = 256, 2**24  # paths, and numbers in all their coordinates at all steps: 128 MB


def paths_at_once(size: int, steps: int) -> int:
    """How many paths with so many coordinates are integrated at once."""
    return max(1, min(_AT_ONCE, _NUMBERS // (size * steps)))


@eqx.filter_jit
def solve_paths(limit: Any, starts: State, alphas, keys, steps: int, stop) -> dict[str, Any]:
    """Euler-Maruyama with even steps, saved at those nearest to the times asked for, which it returns.

    Of a limit this uses `coordinates`, `drift` and `covariance`.
    """
    coordinates = limit.coordinates
    dt = alphas[-1] / steps

    def initial(start):
        at_start = jnp.asarray(False if stop is None else stop(start) >= 0)
        outcome = jnp.where(at_start, Outcome.STOPPED, Outcome.COMPLETED)
        return coordinates.pack(start), jnp.where(at_start, 0.0, jnp.nan), outcome

    def ends(path):
        start, vector = path
        return stop(coordinates.unpack(vector, start)) >= 0

    def together(starts_and_keys):
        """Paths along the last axis."""
        starts, keys = starts_and_keys
        begin = jax.vmap(initial, out_axes=-1)(starts)
        normals = jax.vmap(lambda key: jax.random.normal(key, (steps, coordinates.size)), out_axes=-1)(keys)
        fixed = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), starts)

        def advance(carry, number_and_normals):
            number, normals = number_and_normals
            vectors, stopped_at, outcome = carry
            new = _moved(limit, number * dt, dt, (fixed, vectors, normals))
            running = outcome == Outcome.COMPLETED
            diverged = ~jnp.all(jnp.abs(new) < DIVERGED_ABOVE, axis=0)
            ended = diverged if stop is None else diverged | (jax.vmap(ends, in_axes=-1)((fixed, new)))
            ended_as = jnp.where(diverged, Outcome.DIVERGED, Outcome.STOPPED)
            outcome = jnp.where(running & ended, ended_as, outcome)
            stopped_at = jnp.where(running & ended, (number + 1) * dt, stopped_at)
            vectors = jnp.where(running & ~diverged, new, vectors)
            return (vectors, stopped_at, outcome), vectors

        (_, stopped_at, outcome), vectors = jax.lax.scan(advance, begin, (jnp.arange(steps), normals))
        vectors = jnp.concatenate([begin[0][None], vectors])[jnp.round(alphas / dt).astype(int)]
        states = jax.vmap(lambda vectors, start: coordinates.unpack(vectors, start), in_axes=(-1, 0))(vectors, starts)
        return states, stopped_at, outcome

    runs = keys.shape[0]
    batches = -(-runs // paths_at_once(coordinates.size, steps))
    lanes = -(-runs // batches)
    # The last path fills the last batch up.
    which = jnp.minimum(jnp.arange(batches * lanes), runs - 1).reshape(batches, lanes)
    found = jax.lax.map(lambda these: together(jax.tree.map(lambda leaf: leaf[these], (starts, keys))), which)
    states, stopped_at, outcome = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:runs], found)
    # Times that were asked for keep their last digit.
    nearest = jnp.round(alphas / dt) * dt
    alphas = jnp.where(jnp.abs(nearest - alphas) < 1e-6 * dt, alphas, nearest)
    return {"alpha": alphas, "state": states, "outcome": outcome, "stopped_at": stopped_at}


def _step(limit: Any, alpha, dt, path):
    """A path one step on."""
    start, vector, normals = path
    state = limit.coordinates.unpack(vector, start)
    values, directions = jnp.linalg.eigh(limit.covariance(alpha, state))
    noise = directions @ (jnp.sqrt(jnp.maximum(values, 0.0) * dt) * normals)
    return vector + dt * limit.coordinates.pack(limit.drift(alpha, state)) + noise


@eqx.filter_custom_jvp
def _moved(limit: Any, alpha, dt, paths):
    """Paths along the last axis one step on."""
    return map_last_axis(lambda path: _step(limit, alpha, dt, path), paths)


@_moved.def_jvp
def _with_derivative(primals, tangents):
    # The derivative of what is written out for each number compiles twenty times as long.
    def mapped(limit, alpha, dt, paths):
        return jax.vmap(lambda path: _step(limit, alpha, dt, path), in_axes=-1, out_axes=-1)(paths)

    return eqx.filter_jvp(mapped, primals, tangents)
