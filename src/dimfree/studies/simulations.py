"""Simulation of many cells at once: all runs of all cells in the lanes of one compiled loop."""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..algorithms import OnlineAlgorithm
from ..batches import map_in_batches
from ..last_axis import map_last_axis
from ..problems import Problem
from ..simulation import exact
from ..simulation.devices import Progress, in_segments, on_each, spread
from ..simulation.loop import LANES, Lanes, Loop, Results, block_length, blocks_done
from ..simulation.online import jumping_between_steps
from ..state import State
from ..trajectory import Outcome


class Run(eqx.Module):
    """A run in its lane: unlike in `simulate`, it brings its own problem and algorithm."""

    state: State
    problem: Problem
    algorithm: OnlineAlgorithm
    level: Float[Array, ""]  # of the risk, at which it has left
    seen: "Seen"


class Seen(eqx.Module):
    """What is looked at and kept of a run: how far the risk is below the level, the overlap, steps left, the State."""

    below: Float[Array, "*runs"]
    squared_overlap: Float[Array, "*runs"]
    steps_left: Int[Array, "*runs"]
    state: State


class Job(eqx.Module):
    """Runs of cells, as arrays: problems, algorithms, levels and steps by cell, starts and keys by run."""

    problems: Problem
    algorithms: OnlineAlgorithm
    levels: Float[Array, " cells"]
    steps: Int[Array, " cells"]
    starts: State
    keys: Any


def simulate_cells(job: Job, d: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, State]:
    """All runs to their end: outcome, alpha of the end, risk below the level and squared overlap, (cells, runs) each.

    The last are the States of all runs, one cell after the other.

    A run ends when its risk has fallen to the level of its cell, diverges, or has made the steps of its cell.
    """
    cells = job.levels.shape[0]
    devices = jax.devices()
    devices = devices[: math.gcd(cells, len(devices))]
    job, dimension = spread(job, devices), jnp.asarray(d, float)
    runs = job.keys.shape[0]
    each = max(1, -(-int(np.max(job.steps)) // _block(job)))
    _, results = in_segments(
        lambda under_way, blocks: _segment(job, dimension, under_way, blocks, devices),
        _begin(job, dimension, devices),
        lambda under_way: blocks_done(under_way[0], runs // len(devices), each),
        Progress("", runs * each, shown=False, warns=False),
    )
    outcome, ended, seen = results.outcome, results.ended, jax.tree.map(lambda leaf: leaf[:, 0], results.saved)
    shape = (cells, -1)
    batch = job.algorithms.batch_size
    return (
        np.asarray(outcome).reshape(shape),
        np.asarray(ended).reshape(shape) * batch / d,
        np.asarray(seen.below).reshape(shape),
        np.asarray(seen.squared_overlap).reshape(shape),
        seen.state,
    )


@eqx.filter_jit
def _begin(job: Job, d: Float[Array, ""], devices: list) -> tuple[Lanes, Results]:
    """Every device with its first runs in their lanes."""

    def on_device(arrays, d):
        loop = _loop(eqx.combine(arrays, rest), d)
        begun = map_in_batches(lambda run: loop.load(run).seen, jnp.arange(loop.runs))
        return loop.start(min(LANES, loop.runs), begun)

    arrays, rest = eqx.partition(job, eqx.is_array)
    return on_each(on_device, devices, runs=1, shared=1)(arrays, d)


@eqx.filter_jit
def _segment(job: Job, d: Float[Array, ""], under_way: tuple[Lanes, Results], blocks, devices: list):
    """Up to `blocks` blocks of steps, on each device for its own runs."""

    def on_device(arrays, under_way, d, blocks):
        return _loop(eqx.combine(arrays, rest), d).iterate(under_way[0], under_way[1], blocks)

    arrays, rest = eqx.partition(job, eqx.is_array)
    return on_each(on_device, devices, runs=2, shared=2)(arrays, under_way, d, blocks)


def _block(job: Job) -> int:
    """Steps whose random numbers are drawn together."""
    return block_length(LANES, exact.numbers_of_step(*_first(job)))


def _first(job: Job) -> tuple[Problem, OnlineAlgorithm]:
    """Those of the first cell: what all have in common is known from them."""
    return jax.tree.map(lambda leaf: leaf[0], (job.problems, job.algorithms))


def _loop(job: Job, d: Float[Array, ""]) -> Loop:
    """The loop over the runs of these cells."""
    each = job.keys.shape[0] // job.levels.shape[0]
    first = _first(job)
    batch = job.algorithms.batch_size

    def see(problem, state, level, steps_left):
        return Seen(level - problem.risk(state), jnp.sum(state.M**2), steps_left, state)

    def load(run):
        problem, algorithm, level, steps = jax.tree.map(
            lambda leaf: leaf[run // each], (job.problems, job.algorithms, job.levels, job.steps)
        )
        problem, _ = jumping_between_steps(problem, batch, d)
        state = algorithm.begin(jax.tree.map(lambda leaf: leaf[run], job.starts))
        return Run(state, problem, algorithm, level, see(problem.at(0.0), state, level, steps))

    def advance(run_and_numbers):
        run, numbers, step = run_and_numbers
        state, bounded = exact.advance(run.problem, run.algorithm, run.state, numbers, d, step * batch / d)
        now = run.problem.at((step + 1) * batch / d)  # its risk is that of the moment
        seen = see(now, state, run.level, run.seen.steps_left - 1)
        return Run(state, run.problem, run.algorithm, run.level, seen), bounded

    return Loop(
        load=load,
        draw=lambda source: exact.draw(source, first[0], first[1], d),
        advance=lambda run, numbers, place, made: map_last_axis(advance, (run, numbers.at(place), made), place >= 0),
        observe=lambda run: run.seen,
        stop=lambda seen: jnp.where(seen.steps_left <= 0, 1.0, seen.below),
        keys=job.keys,
        # Every run ends by itself; this is where the last one does, at the latest.
        save_steps=jnp.max(job.steps)[None],
        block=_block(job),
    )


def has_left(outcome: np.ndarray, below: np.ndarray) -> np.ndarray:
    """Which runs ended because their risk fell to the level."""
    return (outcome != Outcome.DIVERGED) & (below >= 0)
