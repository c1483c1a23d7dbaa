"""Integrating a limit."""

import functools
from collections.abc import Callable
from typing import Any, cast

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import ArrayLike

from ..batches import map_in_batches
from ..errors import (
    InvalidInput,
    check_key,
    check_memory,
    is_concrete,
    nonnegative_number,
    positive_integer,
    real_array,
    shown,
)
from ..limits import DiffusionLimit, Limit, LinearNoiseLimit, MeanFieldLimit, MeanLimit
from ..state import State, WideState, check_state
from ..trajectory import Outcome, Trajectory, bytes_of_state, check_start, check_starts, provenance, save_alphas
from .sliding import slides, solve_sliding

_DIVERGED_ABOVE = 1e8  # overlaps are of order one: beyond this a run has no way back


def solve(
    limit: Limit | MeanFieldLimit,
    start: State | WideState,
    alpha: float | ArrayLike | Array,
    *,
    stop: Callable[[Any], Array] | None = None,
    relative_tolerance: float | None = None,
    absolute_tolerance: float | None = None,
    max_steps: int = 100_000,
    runs: int | None = None,
    steps: int = 2_000,
    key: PRNGKeyArray | None = None,
) -> Trajectory:
    """The trajectory of a limit from a start.

    It works under `jit`, `vmap` and `grad`: a phase diagram is one `vmap` of it. A solve that fails says so in the
    `outcome` of the result; it does not raise.

    **Arguments:**

    - `limit`: from [`ode`], [`gradient_flow`], [`mean_field`], [`sde`] or [`linear_noise`].
    - `start`: the State at alpha = 0; for [`sde`] also one for each path, along a leading axis; for
      [`mean_field`] a [`WideState`], or a State, of which the diagonal of Q is then kept.
    - `alpha`: where to end (201 even times are saved), or the increasing times to save at.
    - `stop`: a function of the State; the run ends where it first reaches zero from below.
    - `relative_tolerance`, `absolute_tolerance`, `max_steps`: of the adaptive solver (Tsit5). If left out, 1e-8 and
      1e-10; 1e-5 and 1e-7 where a loss with kinks is averaged over points, because the drift then jumps at that level.
    - `runs`, `key`: for [`sde`] only: number of paths, random key.
    - `steps`: number of steps of the solvers that are not adaptive, those of [`sde`] (Euler-Maruyama) and of a drift
      that jumps (clusters that are points, seen through a kink: Heun, with projection on the surfaces that the solution
      slides along).
    """
    if not isinstance(limit, Limit | MeanFieldLimit):
        raise InvalidInput(f"limit = {shown(limit)} was given; make one with dimfree.ode(problem, algorithm), sde, ...")
    trained = limit.algorithm.readout_rate is not None
    steps, max_steps = positive_integer(steps, "steps"), positive_integer(max_steps, "max_steps")
    begin: Any = start
    alphas = _save_alphas(limit, alpha, runs, steps)
    if isinstance(limit, DiffusionLimit):
        if key is None or runs is None:
            raise InvalidInput(
                "A diffusion is random: give solve the number of paths and a key, runs=64, key=jax.random.key(0)."
            )
        check_key(key)
        begin = check_starts(limit.problem, begin, runs, trained=trained)
        check_state(begin, sphere=limit.algorithm.sphere)
        begin = limit.algorithm.begin(begin)
    elif isinstance(limit, MeanFieldLimit):
        begin = limit.start(begin)
    else:
        begin = check_start(limit.problem, begin, trained=trained)
        check_state(begin, sphere=limit.algorithm.sphere)
        begin = limit.algorithm.begin(begin)
    if isinstance(limit, DiffusionLimit):
        assert key is not None
        assert runs is not None
        keys = jax.random.split(key, runs)
        arrays = _solve_diffusion(limit, begin, alphas, keys, steps, stop)
        made_by = {"d": limit.d, "solver": f"Euler-Maruyama, {steps} steps", "key": key}
    elif isinstance(limit, MeanLimit) and slides(limit):
        if limit.algorithm.sphere:
            raise InvalidInput("A drift that jumps is integrated without the sphere only: use sphere=False.")
        arrays = solve_sliding(limit, begin, alphas, steps, _DIVERGED_ABOVE, stop)
        made_by = {"solver": f"Heun with projection on sliding surfaces, {steps} steps"}
    else:
        # The averages over a wide network's fields are smooth in the State, whatever the activation.
        smooth = isinstance(limit, MeanFieldLimit) or limit.problem.smooth or _mean_of(limit).is_closed_form
        rough = not smooth
        relative_tolerance = (1e-5 if rough else 1e-8) if relative_tolerance is None else relative_tolerance
        absolute_tolerance = (1e-7 if rough else 1e-10) if absolute_tolerance is None else absolute_tolerance
        for name, value in (("relative_tolerance", relative_tolerance), ("absolute_tolerance", absolute_tolerance)):
            nonnegative_number(value, name)
        tolerances = tuple(real_array(each, "tolerance") for each in (relative_tolerance, absolute_tolerance))
        arrays = _solve_mean(limit, begin, alphas, tolerances, max_steps, stop)
        made_by = {"solver": f"Tsit5, relative tolerance {relative_tolerance}, absolute {absolute_tolerance}"}
    # What is recorded is put into words while the solver computes.
    return Trajectory(
        alpha=alphas,
        problem=limit.problem,
        labels=limit.coordinates.labels,
        provenance=provenance(
            limit=_name(limit),
            problem=limit.problem,
            algorithm=limit.algorithm,
            **_averages(limit, begin, arrays["state"]),
            **made_by,
        ),
        **arrays,
    )


def _save_alphas(limit: Limit | MeanFieldLimit, alpha: Any, runs: Any, steps: int) -> Float[Array, " times"]:
    """The times to save at, where what is saved at them fits in memory."""
    state_bytes = bytes_of_state(limit.problem, wide=isinstance(limit, MeanFieldLimit))
    if isinstance(limit, LinearNoiseLimit):
        state_bytes += 8 * limit.coordinates.size**2
    if isinstance(limit, DiffusionLimit):
        # A path holds its coordinates at every step, and the noise that moved them.
        path = 2 * 8 * steps * limit.coordinates.size
        check_memory(path, f"A path of {steps:,} steps", "Take fewer steps, or a smaller network.")
    paths = 1 if runs is None else positive_integer(runs, "runs")
    return jnp.asarray(save_alphas(alpha, state_bytes, runs=paths))


@eqx.filter_jit
def _solve_mean(
    limit: MeanLimit | LinearNoiseLimit | MeanFieldLimit, start: Any, alphas, tolerances, max_steps: int, stop
):
    coordinates = limit.coordinates
    linear_noise = isinstance(limit, LinearNoiseLimit)
    vector = coordinates.pack(start)
    initial = (vector, jnp.zeros((vector.size, vector.size))) if linear_noise else vector

    def state_of(y) -> Any:
        return coordinates.unpack(y[0] if linear_noise else y, start)

    def exploded(t, y, args, **kwargs):
        return jnp.any(jnp.abs(y[0] if linear_noise else y) > _DIVERGED_ABOVE)

    def reached(t, y, args, **kwargs):
        return stop(state_of(y))

    conditions = [exploded] if stop is None else [exploded, reached]
    root_finder = None if stop is None else optimistix.Newton(1e-10, 1e-10)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(limit.vector_field),
        diffrax.Tsit5(),
        t0=0.0,
        t1=alphas[-1],
        dt0=None,
        y0=initial,
        args=start,
        saveat=diffrax.SaveAt(subs=[diffrax.SubSaveAt(ts=alphas), diffrax.SubSaveAt(t1=True)]),
        stepsize_controller=diffrax.PIDController(
            rtol=tolerances[0], atol=tolerances[1], dtmin=1e-13 * alphas[-1], force_dtmin=False
        ),
        event=diffrax.Event(conditions, root_finder),
        max_steps=max_steps,
        throw=False,
    )
    (saved_at, end_at), (saved, end) = cast(Any, solution.ts), cast(Any, solution.ys)
    by_event = solution.result == diffrax.RESULTS.event_occurred
    finite = jnp.all(jnp.isfinite(jax.tree.leaves(end)[0]))
    diverged = (
        ~finite
        | (by_event & jnp.asarray(cast(Any, solution.event_mask)[0]))
        | (solution.result == diffrax.RESULTS.dt_min_reached)
    )
    outcome = jnp.where(
        diverged,
        Outcome.DIVERGED,
        jnp.where(
            by_event,
            Outcome.STOPPED,
            jnp.where(solution.result == diffrax.RESULTS.successful, Outcome.COMPLETED, Outcome.STEP_LIMIT),
        ),
    )
    stopped_at = jnp.where(outcome == Outcome.COMPLETED, jnp.nan, end_at[-1])
    if stop is not None:
        at_start = stop(start) >= 0
        outcome = jnp.where(at_start, Outcome.STOPPED, outcome)
        stopped_at = jnp.where(at_start, 0.0, stopped_at)
        end = jax.tree.map(lambda y, y0: jnp.where(at_start, y0, y), end, jax.tree.map(lambda a: a[None], initial))
        saved_at = jnp.where(at_start, jnp.inf, saved_at)
    reached_time = jnp.isfinite(saved_at)

    def filled(values, last):
        mask = reached_time.reshape(-1, *[1] * (values.ndim - 1))
        return jnp.where(mask, values, last)

    filled_all = jax.tree.map(filled, saved, end)
    result: dict[str, Any] = {"outcome": outcome, "stopped_at": stopped_at}
    result["state"] = coordinates.unpack(filled_all[0] if linear_noise else filled_all, start)
    result["covariance"] = filled_all[1] if linear_noise else None
    return result


@eqx.filter_jit
def _solve_diffusion(limit: DiffusionLimit, starts: State, alphas, keys, steps: int, stop):
    """Euler-Maruyama with even steps; saved by rounding to the nearest step."""
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
        diverged = ~jnp.all(jnp.abs(new) < _DIVERGED_ABOVE)
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


def _name(limit: Limit | MeanFieldLimit) -> str:
    if isinstance(limit, MeanFieldLimit):
        return "mean field"
    if isinstance(limit, MeanLimit):
        return "ODE" if limit.second_order else "gradient flow"
    return "SDE" if isinstance(limit, DiffusionLimit) else "linear noise"


def _mean_of(limit: Limit) -> MeanLimit:
    return limit if isinstance(limit, MeanLimit) else limit.mean


def _averages(limit: Limit | MeanFieldLimit, start: Any, states: Any) -> dict[str, str]:
    """How the averages of drift and covariance are taken and, where that is not exact, how good they were."""
    mean: Any = limit if isinstance(limit, MeanFieldLimit) else _mean_of(limit)
    found = {"drift": (mean.expectation, mean.rule, mean.accuracy, mean.averaging)}
    if isinstance(limit, DiffusionLimit | LinearNoiseLimit):
        loosened = mean.averaging.loosened()
        found["covariance"] = (
            limit.covariance_expectation,
            limit.covariance_rule,
            limit.covariance_accuracy,
            loosened,
        )
    words = {}
    visited = _visited(limit, start, states) if is_concrete((limit, start, states)) else []
    for name, (how, rule, accuracy, averaging) in found.items():
        words[name], asked = how, averaging.tolerance
        if rule is not None and visited:
            with jax.ensure_compile_time_eval():
                reached = [accuracy(state) for state in visited]
            largest = max(float(error) / max(float(size), 1e-300) for error, size in reached)
            words[name] += f"; relative error at most {largest:.1e} in {len(visited)} States along the way"
            if largest > asked and mean.averaging.rule is None:
                words[name] += f", more than the tolerance {asked:g}"
    return words


def _visited(limit: Limit | MeanFieldLimit, start: Any, states: Any) -> list:
    """Some of the States that were passed: the start, the end, one between, and where overlaps are largest."""
    coordinates = limit.coordinates
    vectors = np.asarray(coordinates.pack(states))
    vectors = vectors.reshape(-1, vectors.shape[-1])
    like = jax.tree.map(lambda leaf: leaf[0], start) if start.M.ndim == 3 else start
    size = np.abs(vectors).max(axis=1)
    finite = np.flatnonzero(size < _DIVERGED_ABOVE)
    if not len(finite):
        return [like]
    chosen = np.unique([finite[0], finite[-1], finite[len(finite) // 2], finite[size[finite].argmax()]])
    return [coordinates.unpack(jnp.asarray(vectors[index]), like) for index in chosen]
