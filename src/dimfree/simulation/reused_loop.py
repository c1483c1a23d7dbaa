"""The steps of all runs on reused data, on every device for its own datasets."""

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from ..algorithms import ReusedData
from ..problems.field_problem import FieldProblem
from ..state import STUDENTS, TEACHERS, State
from ..trajectory import Outcome
from . import vectors
from .devices import PATIENCE, Progress, at_once, joined, on_each
from .frozen_data import FrozenData
from .spectral import leading_direction


class Job(eqx.Module):
    """What every run does: `problem` with the precision of the inputs, `teacher_weights` exactly."""

    problem: FieldProblem
    algorithm: ReusedData
    teacher_weights: Float[Array, "k d"]


class Runs(eqx.Module):
    """The runs under way, by dataset.

    **Attributes:**

    - `selection`: which samples are in the batch.
    - `ended`: after how many steps, where a run diverged.
    - `keys`: of the steps of each run.
    """

    weights: Float[Array, "datasets runs p d"]
    selection: Bool[Array, "datasets runs samples"]
    outcome: Int[Array, "datasets runs"]
    ended: Int[Array, "datasets runs"]
    readout: Float[Array, "datasets runs n"] | None
    keys: Shaped[Array, "datasets runs ..."]

    @property
    def precise_readout(self) -> Float[Array, "datasets runs n"] | None:
        """The readout with the precision of the weights."""
        return None if self.readout is None else self.readout.astype(self.weights.dtype)

    def advanced(self, job: Job, data: FrozenData, number: Int[Array, ""]) -> "Runs":
        """The runs after step `number`."""
        algorithm, dtype = job.algorithm, self.weights.dtype
        keys = _of_runs(lambda key: jax.random.split(jax.random.fold_in(key, number)))(self.keys)
        importance = self.selection.astype(dtype) / algorithm.batch_fraction.astype(dtype)
        gradient, bounded = data.gradient(job.problem, self.weights, self.precise_readout, importance)
        now, step = number * algorithm.learning_rate, algorithm.learning_rate
        move = _of_runs(lambda weights, gradient, key: algorithm.move(weights, gradient, now, key))
        select = _of_runs(lambda key, selection: algorithm.next_selection(key, selection, step))
        running = self.outcome == Outcome.COMPLETED
        moved = move(self.weights, gradient, keys[:, :, 0])
        return Runs(
            weights=jnp.where((running & bounded)[..., None, None], moved, self.weights),
            selection=select(keys[:, :, 1], self.selection),
            outcome=jnp.where(running & ~bounded, Outcome.DIVERGED, self.outcome),
            ended=jnp.where(running & ~bounded, number + 1, self.ended),
            readout=self.readout,
            keys=self.keys,
        )

    def state(self, job: Job) -> State:
        """The overlaps of every run."""

        def of_run(weights, readout):
            weights = weights.astype(job.teacher_weights.dtype)
            return vectors.observe({STUDENTS: weights, TEACHERS: job.teacher_weights}, readout, job.problem.inputs)

        return _of_runs(of_run)(self.weights, self.readout)


def _of_runs(function):
    return jax.vmap(jax.vmap(function))


def run_all(job: Job, data: list[FrozenData], runs: list[Runs], save_steps, devices: list, cost: str, shown: bool):
    """All runs to their end, in segments of about a second, so that progress is seen and Ctrl-C heard.

    `data` and `runs` come in parts, which cores compute at the same time. Returns the States and training losses at the
    saved steps, with a leading axis of runs, and the runs.
    """

    def observe(data, runs):
        return _observe(job, data, runs, devices)

    done, steps, saved = 0, 8, []
    with Progress(cost, int(save_steps[-1]), shown=shown) as progress:
        for save in save_steps:
            while done < save:
                began, now = time.perf_counter(), min(steps, int(save) - done)
                first, more = jnp.asarray(done), jnp.asarray(now)

                def advance(data, runs, first=first, more=more):
                    return _segment(job, data, runs, first, more, devices)

                runs = at_once(advance, data, runs, together=done > 0)
                jax.block_until_ready([part.outcome for part in runs])
                done += now
                progress.show(done)
                if now == steps:
                    steps = max(8, int(steps * min(8.0, PATIENCE / (time.perf_counter() - began))))
            saved.append(at_once(observe, data, runs, together=bool(saved)))
    states, losses = joined([_stacked(of) for of in zip(*saved, strict=True)])
    return states, losses, joined(runs)


@jax.jit
def _stacked(saved: tuple) -> Any:
    """What was saved at each time, with an axis of times after that of runs."""
    return jax.tree.map(lambda *each: jnp.stack(each, axis=1), *saved)


@eqx.filter_jit
def draw(job: Job, keys, samples: int, stored: bool, precision, devices) -> FrozenData:
    """The datasets of these keys."""

    def on_device(keys, teacher_weights):
        return FrozenData.draw(keys, teacher_weights, samples, store=stored)

    teacher_weights = job.teacher_weights.astype(precision)
    return on_each(on_device, devices, runs=1, shared=1)(keys, teacher_weights)


@eqx.filter_jit
def begin(job: Job, weights, keys, readout, datasets: int, rows: int) -> Runs:
    """The runs before their first step, with a key for the first batch and one for the steps."""
    selection = jax.vmap(lambda key: job.algorithm.first_selection(key, (rows,)))(keys[:, 0])
    nothing = jnp.zeros(weights.shape[0], int)
    runs = (weights, selection, nothing, nothing, readout, keys[:, 1])
    return Runs(*jax.tree.map(lambda leaf: leaf.reshape(datasets, -1, *leaf.shape[1:]), runs))


@eqx.filter_jit
def _segment(job: Job, data: FrozenData, runs: Runs, first, steps, devices) -> Runs:
    """`steps` steps, from number `first` on."""

    def on_device(data, runs, first, steps, arrays):
        job = eqx.combine(arrays, rest)

        def of_group(data, runs):
            return jax.lax.fori_loop(first, first + steps, lambda number, runs: runs.advanced(job, data, number), runs)

        return _by_group(of_group, data.in_one_block(_vectors(runs)), runs)

    arrays, rest = eqx.partition(job, eqx.is_array)
    return on_each(on_device, devices, runs=2, shared=3)(data, runs, first, steps, arrays)


@eqx.filter_jit
def _observe(job: Job, data: FrozenData, runs: Runs, devices) -> tuple[State, Array]:
    """The State of every run, and its training loss."""

    def on_device(data, runs, arrays):
        job = eqx.combine(arrays, rest)

        def of_group(data, runs):
            return runs.state(job), data.loss(job.problem, runs.weights, runs.precise_readout)

        seen = _by_group(of_group, data.in_one_block(_vectors(runs)), runs)
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), seen)

    arrays, rest = eqx.partition(job, eqx.is_array)
    return on_each(on_device, devices, runs=2, shared=1)(data, runs, arrays)


@eqx.filter_jit
def spectral_weights(
    job: Job, data: FrozenData, devices
) -> tuple[Float[Array, "datasets 1 d"], Bool[Array, " datasets"]]:
    """The spectral start on every dataset, with the sign of the first teacher; and whether it was found."""

    def on_device(data, arrays):
        job = eqx.combine(arrays, rest)
        directions, found = _by_group(lambda data: leading_direction(job.problem, data), data)
        return jnp.where(directions @ job.teacher_weights[0] < 0, -1, 1)[:, None, None] * directions[:, None], found

    arrays, rest = eqx.partition(job, eqx.is_array)
    return on_each(on_device, devices, runs=1, shared=1)(data, arrays)


def _by_group(function, data: FrozenData, *others):
    """A function of some datasets and of arrays that belong to them, over all groups of datasets in turn."""
    size, datasets = data.group, data.noise.shape[0]
    if size == datasets:
        return function(data, *others)
    groups = (data, *others)
    if size > 1:
        groups = jax.tree.map(lambda leaf: leaf.reshape(-1, size, *leaf.shape[1:]), groups)

    def of_group(group):
        # Large datasets get their axis of length one here: for the compiler, reshaping all of them is a copy.
        return function(*(group if size > 1 else jax.tree.map(lambda leaf: leaf[None], group)))

    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), jax.lax.map(of_group, groups))


def _vectors(runs: Runs) -> int:
    return runs.weights.shape[1] * runs.weights.shape[2]
