"""The same process at finite d, run many times."""

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import ArrayLike

from ..algorithms import OnlineSGD
from ..errors import InvalidInput, is_concrete, positive_integer
from ..problems import Problem
from ..state import State, check_state
from ..trajectory import Outcome, Trajectory, check_start, provenance, save_alphas
from . import exact, vectors
from .loop import iterate

_BLOCK = 128  # steps whose random numbers are drawn together; fixed, so that results do not depend on the machine
_MEMORY = 2**30  # bytes that the arrays of one chunk of runs may take, unless told otherwise


def simulate(
    problem: Problem,
    algorithm: OnlineSGD,
    start: State,
    d: int,
    alpha: float | ArrayLike | Array,
    *,
    runs: int,
    key: PRNGKeyArray,
    method: Literal["exact", "vectors"] = "exact",
    stop: Callable[[State], Array] | None = None,
    memory: int = _MEMORY,
    progress: bool = False,
) -> Trajectory:
    """SGD in dimension d, many runs at once.

    `method="exact"` simulates the State itself: its law is exactly that of SGD in dimension d, and a step costs the
    same for d = 10^9 as for d = 10^3. `method="vectors"` moves the weight vectors, at a cost proportional to d.

    Runs depend on `key` and their number only, not on how they are grouped. Diverging runs are reported in
    `outcome`, and the others complete.

    **Arguments:**

    - `problem`, `algorithm`: what is learned, and how.
    - `start`: the State before the first step, the same for all runs.
    - `d`: the dimension.
    - `alpha`: where to end (201 even times are saved), or the increasing times to save at; times are rounded to steps.
    - `runs`, `key`: number of independent runs, and the random key.
    - `stop`: a function of the State; a run ends with the step after which it is zero or positive.
    - `memory`: bytes that may be used at a time; runs are taken in chunks of that size.
    - `progress`: whether to say what it will cost and show how far it is.
    """
    d = positive_integer(d, "d")
    runs = positive_integer(runs, "runs")
    start = check_start(problem, start, trained=algorithm.readout_rate is not None)
    check_state(start, sphere=algorithm.sphere)
    alphas = save_alphas(alpha)
    if not isinstance(alphas, np.ndarray):
        raise InvalidInput("alpha is traced; the number of steps of a simulation must be known when it is called.")
    save_steps = np.round(alphas * d / algorithm.batch_size).astype(int)
    if save_steps[-1] < 1:
        raise InvalidInput(
            f"alpha = {float(alphas[-1]):g} is less than one step, batch_size / d = {algorithm.batch_size / d:g}."
        )
    if method not in ("exact", "vectors"):
        raise InvalidInput(f"method = {method!r} was given; choose 'exact' (any d) or 'vectors'.")
    if method == "vectors":
        vectors.embed(start, d)  # says in words when it cannot be done
    bytes_per_run = _bytes_per_run(problem, algorithm, d, len(save_steps), method)
    chunk = int(np.clip(memory // bytes_per_run, 1, runs))
    keys = jax.random.split(key, runs)
    arguments = (problem, algorithm, start, jnp.asarray(save_steps))
    run_chunk = _exact_chunk if method == "exact" else _vector_chunk
    dimension = jnp.asarray(d, float) if method == "exact" else d
    cost = (
        f"{runs} runs of {save_steps[-1]} steps in {-(-runs // chunk)} chunks, "
        f"{chunk * bytes_per_run / 2**20:.0f} MiB each"
    )
    parts = []
    for first in _with_progress(range(0, runs, chunk), cost, enabled=progress):
        parts.append(run_chunk(*arguments, _sharded(keys[first : first + chunk]), dimension, stop))
    states, ended, outcome = (
        jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *parts) if len(parts) > 1 else parts[0]
    )
    return Trajectory(
        alpha=jnp.asarray(save_steps * algorithm.batch_size / d),
        state=states,
        outcome=outcome,
        stopped_at=jnp.where(outcome == Outcome.COMPLETED, jnp.nan, ended * algorithm.batch_size / d),
        problem=problem,
        provenance=provenance(
            simulation=f"{method}, {cost}",
            d=d,
            problem=problem,
            algorithm=algorithm,
            key=np.asarray(jax.random.key_data(key)) if is_concrete(key) else None,
        ),
    )


def _bytes_per_run(problem: Problem, algorithm: OnlineSGD, d: int, times: int, method: str) -> int:
    fields, batch = problem.width + problem.teacher_width, algorithm.batch_size
    state = fields**2 + 2 * problem.width
    if method == "vectors":
        return 8 * (2 * batch * d + 2 * fields * d + 3 * times * state)
    return 8 * (_BLOCK * (2 * batch * (fields + batch + 4) + 2 * state) + 3 * times * state)


def _with_progress(items, cost: str, *, enabled: bool):
    if not enabled:
        return items
    import rich
    import rich.progress

    rich.print(cost)
    return rich.progress.track(items, description="simulating")


def _sharded(keys):
    """The runs spread over all devices, where they divide evenly."""
    devices = jax.devices()
    if len(devices) == 1 or keys.shape[0] % len(devices) or not is_concrete(keys):
        return keys
    mesh = jax.sharding.Mesh(np.asarray(devices), ("runs",))
    return jax.device_put(keys, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("runs")))


@eqx.filter_jit
def _exact_chunk(problem, algorithm, start, save_steps, keys, d, stop):
    runs, batch = keys.shape[0], algorithm.batch_size

    def full(moving) -> State:
        return State(Q=moving[0], M=moving[1], P=start.P, readout=moving[2])

    def advance(moving, draws, step):
        state, finite = exact.advance(problem, algorithm, full(moving), draws, d, step * batch / d)
        return (state.Q, state.M, state.readout), finite

    moving = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], runs, axis=0), (start.Q, start.M, start.readout))
    return iterate(
        draw=lambda key: exact.draw(key, _BLOCK, batch, problem.width + problem.teacher_width, d),
        advance=advance,
        observe=full,
        initial=moving,
        keys=keys,
        save_steps=save_steps,
        block=_BLOCK,
        stop=stop,
    )


@eqx.filter_jit
def _vector_chunk(problem, algorithm, start, save_steps, keys, d, stop):
    runs, batch = keys.shape[0], algorithm.batch_size
    weights, teacher_weights = vectors.embed(start, d)

    def advance(moving, draws, step):
        weights, readout = moving
        return vectors.advance(problem, algorithm, weights, readout, teacher_weights, draws, step * batch / d)

    moving = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], runs, axis=0), (weights, start.readout))
    return iterate(
        draw=lambda key: vectors.draw(key, batch, d),
        advance=advance,
        observe=lambda m: vectors.observe(m[0], teacher_weights, m[1]),
        initial=moving,
        keys=keys,
        save_steps=save_steps,
        block=1,
        stop=stop,
    )
