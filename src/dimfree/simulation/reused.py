"""Algorithms that reuse their data, in dimension d, on the weight vectors themselves."""

import math
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, Shaped
from numpy.typing import ArrayLike

from ..algorithms import ReusedData
from ..errors import (
    InvalidInput,
    check_key,
    check_memory,
    flag,
    free_memory,
    in_bytes,
    is_concrete,
    positive_integer,
    shown,
)
from ..problems import Problem
from ..problems.base import check_problem
from ..problems.field_problem import FieldProblem
from ..problems.inputs import StandardInputs
from ..state import STUDENTS, TEACHERS, State, check_state
from ..trajectory import Outcome, Trajectory, bytes_of_state, check_starts, provenance, save_alphas, steps_at
from . import vectors
from .devices import devices_for, in_parts, joined, parts_for, spread
from .frozen_data import shape_of_blocks
from .reused_loop import Job, begin, draw, run_all, spectral_weights
from .spectral import check_spectral


def simulate_reused(
    problem: Problem,
    algorithm: ReusedData,
    start: State | Literal["spectral"],
    d: int,
    time: float | ArrayLike | Array,
    *,
    runs: int,
    key: PRNGKeyArray,
    datasets: int | None,
    dtype: Any,
    store_data: bool | None,
    progress: bool,
) -> Trajectory:
    """[`simulate`] on a fixed training set."""
    problem = _check(problem, algorithm)
    d, runs = positive_integer(d, "d"), positive_integer(runs, "runs")
    datasets = runs if datasets is None else positive_integer(datasets, "datasets")
    if runs % datasets:
        raise InvalidInput(f"{runs} runs cannot be spread evenly over {datasets} datasets; take a multiple.")
    store_data = None if store_data is None else flag(store_data, "store_data")
    samples = _number_of_samples(algorithm, d)
    precision = _precision(jnp.float64 if dtype is None else dtype)
    rate = float(algorithm.learning_rate)
    times = save_alphas(time, bytes_of_state(problem), runs=runs, clock="time")
    check_key(key)
    if not isinstance(times, np.ndarray) or not is_concrete(key):
        raise InvalidInput("time or key is traced; a simulation on reused data runs outside jit, vmap and grad.")
    save_steps = steps_at(times, rate, "learning_rate")
    rows = math.prod(shape_of_blocks(samples, d))
    numbers = datasets * rows * d
    stored = numbers * precision.itemsize <= free_memory() / 2 if store_data is None else store_data
    cost = (
        f"{runs} runs of {save_steps[-1]} steps, {datasets} datasets of {samples} samples, "
        f"{in_bytes(numbers * precision.itemsize)} of {precision.name} "
        f"{'in memory' if stored else 'made again in each step'}, "
        f"{4 * runs * problem.width * samples * d / 1e9:.3g} Gflop a step"
    )
    kept = precision.itemsize * (runs * problem.width * d + datasets * rows * (problem.teacher_width + 1))
    needed = kept + runs * rows + runs * len(times) * bytes_of_state(problem) + stored * numbers * precision.itemsize
    check_memory(needed, cost, "Take a smaller d, fewer runs or datasets, float32, or store_data=False.")
    states = _states(problem, algorithm, start, runs, d)
    devices = devices_for(datasets, key)
    parts = parts_for(datasets, devices)
    data_key, run_key = jax.random.split(key)
    keys = jax.vmap(lambda key: jax.random.split(key, 3))(_folded(run_key, runs))
    weights, teacher_weights = _vectors(states, keys[:, 0], d)
    job = Job(_cast(problem, precision), algorithm, teacher_weights)
    data = [
        draw(job, spread(keys, devices), samples, stored, precision, devices)
        for keys in in_parts(_folded(data_key, datasets), parts)
    ]
    begins = None
    if isinstance(start, str):
        directions, found = joined([spectral_weights(job, part, devices) for part in data])
        weights = jnp.repeat(directions, runs // datasets, axis=0)
        begins = start
        if missed := int(np.sum(~np.asarray(found))):
            begins += (
                f", not converged in {missed} of {datasets} datasets, whose two leading eigenvalues are too close: "
                "there the start is a mixture of eigenvectors"
            )
    begun = begin(job, weights.astype(precision), keys[:, 1:], states.readout, datasets, rows)
    saved, training_loss, ended = run_all(
        job,
        data,
        [spread(part, devices) for part in in_parts(begun, parts)],
        save_steps,
        devices,
        cost,
        progress,
    )
    outcome = ended.outcome.reshape(-1)
    return Trajectory(
        alpha=jnp.asarray(save_steps * rate),
        state=saved,
        outcome=outcome,
        stopped_at=jnp.where(outcome == Outcome.COMPLETED, jnp.nan, ended.ended.reshape(-1) * rate),
        problem=problem,
        training_loss=training_loss,
        clock="time",
        provenance=provenance(
            simulation=f"reused data, {cost}",
            d=d,
            problem=problem,
            algorithm=algorithm,
            start=begins,
            key=key,
        ),
    )


# Before the first step.


@eqx.filter_jit
def _vectors(states: State, keys, d: int) -> tuple[Float[Array, "runs p d"], Float[Array, "k d"]]:
    """Weights with these overlaps: teachers along the first axes, students in random directions around them."""
    p, k = states.width, states.teacher_width
    directions = min(p, max(d - k, 0))

    def of_run(state, key):
        turned = State(Q=state.P, M=state.M.T, P=state.Q)  # teachers first, so that they depend on P alone
        embedded = vectors.embed(turned, StandardInputs(), d)
        teacher, students = embedded[STUDENTS], embedded[TEACHERS]
        frame = jnp.linalg.qr(jax.random.normal(key, (d - k, directions)))[0] if directions else jnp.zeros((0, 0))
        outside = students[:, k : k + directions] @ frame.T
        return jnp.concatenate([students[:, :k], outside], axis=1) if directions else students, teacher

    weights, teachers = jax.vmap(of_run)(states, keys)
    return weights, teachers[0]


def _states(problem: FieldProblem, algorithm: ReusedData, start, runs: int, d: int) -> State:
    """The start of every run."""
    if isinstance(start, str):
        if start != "spectral":
            raise InvalidInput(f"start = {start!r} was given; pass a State, or 'spectral'.")
        check_spectral(problem)
        start = State(Q=jnp.eye(1), M=jnp.zeros((1, problem.teacher_width)))  # a place to hold what will be found
    if isinstance(start, State) and not is_concrete(start):
        raise InvalidInput("start is traced; a simulation on reused data runs outside jit, vmap and grad.")
    states = check_starts(problem, start, runs, trained=False)
    check_state(states, sphere=algorithm.sphere)
    P = np.asarray(states.P)
    if np.abs(P - P[0]).max() > 1e-12:
        raise InvalidInput("The starts have different P; the teachers of all runs must be the same.")
    vectors.check_rank(states, StandardInputs(), d)
    return states


# Checks.


def _check(problem: Problem, algorithm: ReusedData) -> FieldProblem:
    check_problem(problem)
    if not isinstance(problem, FieldProblem) or not problem.inputs.is_standard:
        raise InvalidInput(
            f"problem = {shown(problem)} was given; reused data are simulated for losses of local fields with standard "
            "Gaussian inputs, such as dimfree.PhaseRetrieval() or dimfree.LocalFields(...)."
        )
    if not is_concrete(problem, algorithm):
        raise InvalidInput("problem or algorithm is traced; a simulation on reused data runs outside jit and vmap.")
    return problem


def _number_of_samples(algorithm: ReusedData, d: int) -> int:
    samples = round(float(algorithm.samples_per_dimension) * d)
    if samples < 1:
        raise InvalidInput(
            f"samples_per_dimension = {float(algorithm.samples_per_dimension):g} in d = {d} dimensions is less than "
            "one sample; take more of either."
        )
    return samples


def _precision(dtype: Any) -> np.dtype:
    try:
        precision = jax.dtypes.canonicalize_dtype(jnp.dtype(dtype))
    except TypeError as error:
        raise InvalidInput(f"dtype = {dtype!r} was given; choose float64 or float32.") from error
    if precision not in (np.dtype("float64"), np.dtype("float32")):
        raise InvalidInput(f"dtype = {dtype!r} was given; choose float64 or float32.")
    return precision


def _cast(problem: FieldProblem, precision: np.dtype) -> FieldProblem:
    """The problem with numbers of this precision, so that those of many samples stay in it."""
    return jax.tree.map(lambda leaf: leaf.astype(precision) if eqx.is_inexact_array(leaf) else leaf, problem)


def _folded(key: PRNGKeyArray, number: int) -> Shaped[Array, "number ..."]:
    return jax.vmap(lambda index: jax.random.fold_in(key, index))(jnp.arange(number))
