"""Integrating a smooth equation."""

from typing import Any, cast

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import optimistix

from ..linear_maps import linear_map
from ..trajectory import Outcome
from .frozen import FrozenAverages
from .settings import DIVERGED_ABOVE


@eqx.filter_jit
def solve_adaptively(
    limit: Any, start: Any, alphas, tolerances, max_steps: int, stop, *, frozen: bool = False, backwards: bool = False
) -> dict[str, Any]:
    """A limit's `vector_field` from its `initial` values by Tsit5 or `FrozenAverages`, to tolerances, with events.

    Of a limit this uses besides `coordinates_of` (those among the values that are coordinates of the State) and
    `observed` (the fields of a Trajectory that the values make). Derivatives go either way; with `backwards` they go
    backwards only, and cost one solution less.
    """
    if backwards:
        adjoint = diffrax.RecursiveCheckpointAdjoint()
        return _integrated(limit, start, alphas, tolerances, stop, max_steps=max_steps, frozen=frozen, adjoint=adjoint)
    if stop is not None:  # what it closes over is differentiated too
        state = jax.eval_shape(lambda: limit.observed(limit.initial(start), start)["state"])
        stop = eqx.filter_closure_convert(stop, state)
    return _solved(limit, start, alphas, tolerances, stop, max_steps=max_steps, frozen=frozen)


_ONCE = (
    "The solution of a limit is differentiated more than once, and not forwards each time. Take jax.jacfwd each time: "
    "jax.jacfwd(jax.jacfwd(f)) in the place of jax.hessian(f) or jax.grad(jax.grad(f))."
)


@eqx.filter_custom_jvp
def _solved(limit, start, alphas, tolerances, stop, *, max_steps: int, frozen: bool) -> dict[str, Any]:
    adjoint = diffrax.RecursiveCheckpointAdjoint()
    return _integrated(limit, start, alphas, tolerances, stop, max_steps=max_steps, frozen=frozen, adjoint=adjoint)


@_solved.def_jvp
def _solved_jvp(primals, tangents, *, max_steps: int, frozen: bool):
    """Forwards through a loop that can be differentiated so, and backwards through one that keeps checkpoints."""
    found = _solved(*primals, max_steps=max_steps, frozen=frozen)
    arrays, rest = eqx.partition(primals, eqx.is_array)
    fixed, structure = jax.tree.flatten(arrays, is_leaf=_is_none)
    directions = jax.tree.leaves(tangents, is_leaf=_is_none)
    known = [place for place, each in enumerate(fixed) if each is not None]
    moved = [place for place, each in enumerate(directions) if each is not None]
    out, out_structure = jax.tree.flatten(eqx.filter(found, eqx.is_inexact_array))

    def values(given, adjoint):
        """What can be differentiated of the solution, as a function of those arrays that are."""

        def of_moved(*chosen):
            every = [None] * len(fixed)
            for place, value in zip((*known, *moved), (*given, *chosen), strict=True):
                every[place] = value
            all_primals = eqx.combine(jax.tree.unflatten(structure, every), rest)
            solved = _integrated(*all_primals, max_steps=max_steps, frozen=frozen, adjoint=adjoint)
            return jax.tree.leaves(eqx.filter(solved, eqx.is_inexact_array))

        return of_moved, [given[known.index(place)] for place in moved]

    def forward(*numbers):
        function, at = values(numbers[: len(known)], diffrax.ForwardMode())
        return jax.jvp(function, tuple(at), tuple(numbers[len(known) :]))[1]

    def backward(*numbers):
        function, at = values(numbers[: len(known)], diffrax.RecursiveCheckpointAdjoint())
        return list(jax.vjp(function, *at)[1](list(numbers[len(known) :])))

    changes = linear_map(
        forward, backward, [fixed[place] for place in known], [directions[place] for place in moved], out, _ONCE
    )
    return found, jax.tree.unflatten(out_structure, changes)


def _is_none(leaf: Any) -> bool:
    return leaf is None


def _integrated(limit, start, alphas, tolerances, stop, *, max_steps, frozen, adjoint) -> dict[str, Any]:
    initial, jumps = limit.initial(start), limit.problem.jumps
    # A shorter step would be lost in the clock at the end. At the beginning a spectrum over many scales may need it.
    shortest = 1e-16 * alphas[-1]
    controller = diffrax.PIDController(rtol=tolerances[0], atol=tolerances[1], dtmin=shortest, force_dtmin=False)

    def exploded(t, y, args, **kwargs):
        return jnp.any(jnp.abs(limit.coordinates_of(y)) > DIVERGED_ABOVE)

    def reached(t, y, args, **kwargs):
        return stop(limit.observed(y, start)["state"])

    conditions = [exploded] if stop is None else [exploded, reached]
    root_finder = None if stop is None else optimistix.Newton(1e-10, 1e-10)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(limit.vector_field),
        FrozenAverages(limit) if frozen else diffrax.Tsit5(),
        t0=0.0,
        t1=alphas[-1],
        dt0=None,
        y0=initial,
        args=start,
        saveat=diffrax.SaveAt(subs=[diffrax.SubSaveAt(ts=alphas), diffrax.SubSaveAt(t1=True)]),
        stepsize_controller=(
            controller if jumps is None else diffrax.ClipStepSizeController(controller, jump_ts=jumps)
        ),
        event=diffrax.Event(conditions, root_finder),
        max_steps=max_steps,
        adjoint=adjoint,
        throw=False,
    )
    (saved_at, end_at), (saved, end) = cast(Any, solution.ts), cast(Any, solution.ys)
    by_event = solution.result == diffrax.RESULTS.event_occurred
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(end)]))
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
        at_start = stop(limit.observed(initial, start)["state"]) >= 0
        outcome = jnp.where(at_start, Outcome.STOPPED, outcome)
        stopped_at = jnp.where(at_start, 0.0, stopped_at)
        end = jax.tree.map(lambda y, y0: jnp.where(at_start, y0, y), end, jax.tree.map(lambda a: a[None], initial))
        saved_at = jnp.where(at_start, jnp.inf, saved_at)
    reached_time = jnp.isfinite(saved_at)

    def filled(values, last):
        mask = reached_time.reshape(-1, *[1] * (values.ndim - 1))
        return jnp.where(mask, values, last)

    found = limit.observed(jax.tree.map(filled, saved, end), start)
    return {"outcome": outcome, "stopped_at": stopped_at, **found}
