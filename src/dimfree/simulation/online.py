"""Algorithms that use each sample once, in dimension d."""

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy.typing import ArrayLike

from ..algorithms.coordinate_wise import check_coordinates
from ..algorithms.online import OnlineAlgorithm, check_online
from ..errors import InvalidInput, check_key, check_memory, choice, in_bytes, is_concrete, positive_integer
from ..last_axis import map_last_axis
from ..linear_maps import only_forwards
from ..problems import Problem
from ..problems.base import check_problem
from ..state import State, check_state
from ..trajectory import (
    Outcome,
    Trajectory,
    bytes_of_state,
    check_event,
    check_starts,
    first_of,
    provenance,
    save_alphas,
    steps_at,
)
from . import exact, vectors
from .devices import Progress, at_once, devices_for, in_parts, in_segments, joined, on_each, parts_for, spread
from .loop import LANES, Lanes, Loop, Results, block_length, blocks_done

_START = np.iinfo(np.uint32).max  # the number of the draw that makes a start, far from those of steps
_SHARED = 64  # runs that are worth a core of their own
_MEMORY = 2**30  # bytes that the runs under way may take, unless told otherwise


def simulate_online(
    problem: Problem,
    algorithm: OnlineAlgorithm,
    start: State,
    d: int,
    alpha: float | ArrayLike | Array,
    *,
    runs: int,
    key: PRNGKeyArray,
    method: Literal["exact", "vectors"] | None,
    stop: Callable[[State], Array] | None,
    memory: int | None,
    progress: bool,
    look_every: int = 1,
) -> Trajectory:
    """[`simulate`] where each sample is used once; whether a run ends is looked at every so many steps."""
    check_problem(problem, "spectrum", "tokens", "change")
    check_online(algorithm)
    method, memory = "exact" if method is None else method, _MEMORY if memory is None else memory
    choice(method, "method", ("exact", "vectors"))
    d = positive_integer(d, "d")
    if algorithm.by_coordinate is not None:
        check_coordinates(problem, algorithm, d)
        if method == "exact":
            raise InvalidInput(
                f"{algorithm!r} scales each coordinate of the gradient by itself: the law of a step is not a function "
                'of the overlaps, so that there is no exact simulation without vectors. Use method="vectors".'
            )
    runs = positive_integer(runs, "runs")
    memory = positive_integer(memory, "memory")
    check_key(key)
    alphas = save_alphas(alpha, bytes_of_state(problem), runs=runs)
    if not isinstance(alphas, np.ndarray):
        raise InvalidInput("alpha is traced; the number of steps of a simulation must be known when it is called.")
    save_steps = steps_at(alphas, algorithm.batch_size / d, "batch_size / d")
    devices = devices_for(runs, key)
    bytes_per_run = _bytes_per_run(problem, algorithm, d, method)
    parts = parts_for(runs, devices, _SHARED) if method == "exact" else 1
    groups = len(devices) * parts
    lanes = int(np.clip(memory // (bytes_per_run * groups), 1, min(LANES, runs // groups)))
    block = block_length(lanes, exact.numbers_of_step(problem, algorithm)) if method == "exact" else 1
    results = runs * len(alphas) * bytes_of_state(problem)
    under_way = lanes * groups * bytes_per_run
    cost = (
        f"{runs} runs of {save_steps[-1]} steps, {lanes * groups} at a time, "
        f"{in_bytes(under_way)}, and {in_bytes(results)} of results"
    )
    check_memory(under_way + results, cost, "Take fewer runs, fewer times (alpha), or method='exact'.")
    states = check_starts(problem, start, runs, trained=algorithm.readout_rate is not None)
    check_state(states if start.batch_shape else first_of(states), sphere=algorithm.sphere)
    vectors.check_rank(states, problem.inputs, d)
    states = algorithm.begin(states)
    if stop is not None:
        check_event(stop, first_of(states))
    dimension = jnp.asarray(d, float) if method == "exact" else d
    keys = jax.random.split(key, runs)
    different, place = np.unique(save_steps, return_inverse=True)
    # The start stands in the place of what is there twice, so that one program serves every number of steps.
    twice = len(save_steps) - len(different)
    different, place = np.pad(different, (twice, 0)), place + twice
    roomy = exact.is_roomy(problem, algorithm, d)
    looks = None if look_every == 1 else jnp.asarray(look_every)
    switching, problem = jumping_between_steps(problem, algorithm.batch_size, d)
    job = _Job(switching, algorithm, stop, looks, jnp.asarray(different), dimension, block, roomy)
    states, keys = spread((states, keys), devices)
    results = _run_all(job, in_parts(states, parts), in_parts(keys, parts), devices, lanes, cost, progress)
    states, outcome, ended = results.saved, results.outcome, results.ended
    if not is_concrete((states, ended)):
        states, ended = only_forwards((states, ended), words=_NOT_BACKWARDS)
    if twice:
        states = jax.tree.map(lambda leaf: leaf[:, place], states)
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
            key=key,
        ),
    )


_NOT_BACKWARDS = (
    "Simulated runs cannot be differentiated backwards, as jax.grad does: their steps are not kept. Take jax.jvp or "
    "jax.jacfwd, or the gradient of a limit (dimfree.solve) or of the mean (dimfree.exact_mean)."
)


def jumping_between_steps(problem: Problem, batch_size: int, d: int | Float[Array, ""]) -> tuple[Problem, Problem]:
    """The problem with jumps after a whole number of steps, the nearest: as steps see it, and as it is stated.

    Steps see a jump half a step earlier, where it does not matter how the clock of a step is rounded.
    """
    if problem.jumps is None:
        return problem, problem
    steps = jnp.round(problem.jumps * d / batch_size)
    return problem.jumping_at((steps - 0.5) * batch_size / d), problem.jumping_at(steps * batch_size / d)


class _Job(eqx.Module):
    """What every run does."""

    problem: Problem
    algorithm: OnlineAlgorithm
    stop: Callable[[State], Array] | None
    look_every: Int[Array, ""] | None
    save_steps: Int[Array, " times"]
    d: Float[Array, ""] | int  # a number to compute with, or the length of vectors
    block: int = eqx.field(static=True)  # steps whose random numbers are drawn together
    roomy: bool = eqx.field(static=True)

    def loop(self, states: State, keys) -> Loop:
        """The loop over runs with these starts and keys."""
        method = self._exact if isinstance(self.d, Array) else self._vectors
        common = {"stop": self.stop, "look_every": self.look_every, "block": self.block}
        return Loop(keys=keys, save_steps=self.save_steps, **common, **method(states, keys))

    def _exact(self, states: State, keys) -> dict[str, Any]:
        problem, algorithm, d, roomy = self.problem, self.algorithm, jnp.asarray(self.d), self.roomy
        batch = algorithm.batch_size

        def step(run):
            state, numbers, made = run
            return exact.advance(problem, algorithm, state, numbers, d, made * batch / d, roomy)

        def advance(states, numbers, place, made):
            return map_last_axis(step, (states, numbers.at(place), made), place >= 0)

        return {
            "load": lambda run: jax.tree.map(lambda leaf: leaf[run], states),
            "draw": lambda source: exact.draw(source, problem, algorithm, d),
            "advance": advance,
            "observe": lambda state: state,
        }

    def _vectors(self, states: State, keys) -> dict[str, Any]:
        problem, algorithm, d = self.problem, self.algorithm, int(self.d)
        batch, by_coordinate = algorithm.batch_size, algorithm.by_coordinate

        def load(run):
            state = jax.tree.map(lambda leaf: leaf[run], states)
            if by_coordinate is None:
                return vectors.embed(state, problem.inputs, d), state.readout, state.numbers
            embedded = vectors.embed(state, problem.inputs, d, jax.random.fold_in(keys[run], _START))
            return embedded, state.readout, by_coordinate.loaded(state.numbers, problem.width, problem.inputs, d)

        def advance(moving, draws, step):
            now, readout, numbers = moving
            return vectors.advance(problem, algorithm, now, readout, numbers, draws, step * batch / d)

        def observe(moving):
            now, readout, numbers = moving
            numbers = numbers if by_coordinate is None else by_coordinate.observed(numbers, problem.inputs)
            return vectors.observe(now, readout, problem.inputs, numbers)

        return {
            "load": load,
            "draw": lambda source: vectors.draw(source.at(jnp.zeros((), int)), problem, batch, d),
            "advance": lambda moving, draws, place, made: jax.vmap(advance)(moving, draws, made),
            "observe": observe,
            "axis": 0,
        }


def _bytes_per_run(problem: Problem, algorithm: OnlineAlgorithm, d: int, method: str) -> int:
    fields, batch = algorithm.number_of_vectors(problem), algorithm.batch_size * problem.inputs_per_sample
    blocks = problem.inputs.blocks
    state = blocks * fields**2 + 2 * problem.width
    if method == "vectors":
        fields += 0 if algorithm.by_coordinate is None else 2 * problem.width
        return 8 * (2 * batch * d + 3 * fields * d + 3 * state)
    return 8 * (64 * exact.numbers_of_step(problem, algorithm) + 4 * state + 8 * batch * blocks * (fields + batch))


def _run_all(job: _Job, states: list[State], keys: list, devices: list, lanes: int, cost: str, shown: bool) -> Results:
    """All runs to their end, in parts that the cores of a CPU compute at the same time."""

    def segment(states, keys, under_way, blocks):
        return _segment(job, states, keys, under_way, blocks, devices)

    under_way = [_begin(job, *part, devices, lanes) for part in zip(states, keys, strict=True)]
    if not is_concrete((job, states, keys)):
        to_the_end = jnp.asarray(np.iinfo(np.int64).max)
        return joined([segment(*part, to_the_end)[1] for part in zip(states, keys, under_way, strict=True)])
    if len(under_way) > 1:
        # No steps, but one program: threads that all find it not compiled would each compile it.
        segment(states[0], keys[0], under_way[0], jnp.asarray(0))

    def advance(under_way, blocks):
        return at_once(lambda states, keys, part: segment(states, keys, part, blocks), states, keys, under_way)

    runs, each = keys[0].shape[0], -(-int(job.save_steps[-1]) // job.block)
    with Progress(cost, len(keys) * runs * each, shown=shown) as progress:
        under_way = in_segments(
            advance,
            under_way,
            lambda under_way: sum(blocks_done(part[0], runs // len(devices), each) for part in under_way),
            progress,
        )
    return joined([part[1] for part in under_way])


@eqx.filter_jit
def _begin(job: _Job, states: State, keys, devices, lanes: int) -> tuple[Lanes, Results]:
    """Every device with its first runs in their lanes. Apart from `_segment`, which would be compiled twice."""

    def on_device(states, keys, arrays):
        return eqx.combine(arrays, rest).loop(states, keys).start(lanes, states)

    arrays, rest = eqx.partition(job, eqx.is_array)
    return on_each(on_device, devices, runs=2, shared=1)(states, keys, arrays)


@eqx.filter_jit
def _segment(job: _Job, states: State, keys, under_way: tuple[Lanes, Results], blocks, devices):
    """Up to `blocks` blocks of steps, on each device for its own runs."""

    def on_device(states, keys, under_way, blocks, arrays):
        return eqx.combine(arrays, rest).loop(states, keys).iterate(*under_way, blocks)

    arrays, rest = eqx.partition(job, eqx.is_array)
    return on_each(on_device, devices, runs=3, shared=2)(states, keys, under_way, blocks, arrays)
