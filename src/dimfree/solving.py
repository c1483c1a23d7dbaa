"""Integrating a limit."""

from collections.abc import Callable
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import ArrayLike

from .errors import InvalidInput, is_concrete, shown
from .integration import DIVERGED_ABOVE, Settings
from .limits import Limit
from .limits.limit import Solution
from .state import State, WideState
from .trajectory import check_event, first_of, provenance


def solve(
    limit: Limit[Solution],
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
    progress: bool = False,
) -> Solution:
    """The trajectory of a limit from a start.

    It works under `jit`, `vmap` and `grad`, but for [`dmft`]: a phase diagram is one `vmap` of it. A solve that fails
    says so in the `outcome` of the result; it does not raise.

    **Arguments:**

    - `limit`: from [`ode`], [`gradient_flow`], [`mean_field`], [`sde`], [`linear_noise`] or [`dmft`].
    - `start`: the State at alpha = 0; for [`sde`] also one for each path, along a leading axis; for
      [`mean_field`] a [`WideState`], or a State, of which the diagonal of Q is then kept.
    - `alpha`: where to end (201 even times are saved), or the increasing times to save at; for [`dmft`] the time,
      learning_rate x steps, where to end, or the times of its steps.
    - `stop`: a function of the State; the run ends where it first reaches zero from below.
    - `relative_tolerance`, `absolute_tolerance`, `max_steps`: of the adaptive solver (Tsit5). If left out, 1e-8 and
      1e-10; 1e-5 and 1e-7 where a loss with kinks is averaged over points, because the drift then jumps at that level.
    - `runs`: for [`sde`] only: number of paths.
    - `key`: random key, for [`sde`] and [`dmft`].
    - `steps`: number of steps of the solvers that are not adaptive, those of [`sde`] (Euler-Maruyama) and of a drift
      that jumps (clusters that are points, seen through a kink: Heun, with projection on the surfaces that the solution
      slides along).
    - `progress`: whether to say what it will cost and show how far it is. Of the limits here [`dmft`] does; the others
      are one compiled program, which has nothing to say before it ends.

    **Returns:** a [`Trajectory`]; for [`dmft`] a [`DMFTSolution`], which is one with errors and kernels.
    """
    if not isinstance(limit, Limit):
        raise InvalidInput(f"limit = {shown(limit)} was given; make one with dimfree.ode(problem, algorithm), sde, ...")
    settings = Settings(stop, relative_tolerance, absolute_tolerance, max_steps, runs, steps, key, progress)
    settings.check_uses(limit.name, limit.refuses)
    times = limit.times(alpha, settings)
    begin = limit.prepare(start, settings)
    check_event(stop, first_of(begin) if runs is not None and stop is not None else begin)
    _check_averages(limit, begin, times, max_steps)
    found = limit.integrate(begin, times, settings)
    # What is recorded is put into words while the solver computes.
    return limit.result(
        {"alpha": times, **found.arrays},
        problem=limit.problem,
        clock=limit.clock,
        labels=limit.coordinates.labels,
        limit_sources=(*limit.algorithm.sources, *limit.own_sources),
        provenance=provenance(
            limit=limit.name,
            problem=limit.problem,
            algorithm=limit.algorithm,
            **_averages(limit, begin, found.arrays["state"]),
            **found.made_by,
        ),
    )


_UNKNOWN = 0.25  # the error of an average, over its size, beyond which what is solved is another equation
_MOVED = 0.01  # how far such an error must carry the State to matter
_PER_STEP = 3.3  # how far an explicit step may go, in units of the time over which the State relaxes


def _check_averages(limit: Any, start: Any, times: Any, max_steps: int) -> None:
    """Refuse a limit whose averages are not known where it starts: it would be wrong, and may be too stiff to end."""
    if not is_concrete((limit, start, times)):
        return
    state = first_of(start) if start.M.ndim == 3 else start
    for name, (words, asked, accuracy) in limit.averages.items():
        if asked is None or accuracy is None:  # a closed form, or the user's own rule
            continue
        with jax.core.eval_context():
            error, size = (float(each) for each in accuracy(state))
        if error > _UNKNOWN * size and error * float(times[-1]) > _MOVED:
            raise InvalidInput(
                f"The averages of the {name} are not known where this starts: by {words}, their error is about "
                f"{error / max(size, 1e-300):.0%} of their size ({size:.2g}). The slopes that {limit.algorithm!r} uses "
                "are too large far out, where hardly any point lies. Take a smaller step to where the gradient is "
                "taken, where there is one, or bounded slopes (an activation such as erf, dimfree.ClippedSlopes); "
                "where all is a polynomial, rule=dimfree.GaussHermite(24) is exact. dimfree.simulate needs no averages."
            )
        largest = 1 + max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(state) if jnp.size(leaf))
        if name == "drift" and size * float(times[-1]) > _PER_STEP * max_steps * largest:
            raise InvalidInput(
                f"The drift is so large where this starts ({size:.2g}) that the solver would need more than max_steps "
                f"= {max_steps} steps, each with averages by {words}. Take a smaller learning rate, a smaller step to "
                "where the gradient is taken, or a smaller alpha."
            )


def _averages(limit: Limit, start: Any, states: Any) -> dict[str, str]:
    """How the averages of a limit are taken and, where that is not exact, how good they were."""
    words, averages = {}, limit.averages
    to_estimate = any(accuracy is not None for _, _, accuracy in averages.values())
    visited = _visited(limit, start, states) if to_estimate and is_concrete((limit, start, states)) else []
    for name, (how, asked, accuracy) in averages.items():
        words[name] = how
        if accuracy is not None and visited:
            # States may be known inside of a program that is being traced. `jax.ensure_compile_time_eval` would also
            # run each known operation inside of `accuracy` as a program of its own.
            with jax.core.eval_context():
                reached = [accuracy(state) for state in visited]
            largest = float(np.max([float(error) / max(float(size), 1e-300) for error, size in reached]))
            words[name] += f"; relative error at most {largest:.1e} in {len(visited)} States along the way"
            if asked is not None and not largest <= asked:
                words[name] += f", more than the tolerance {asked:g}"
    return words


def _visited(limit: Limit, start: Any, states: Any) -> list:
    """Some of the States that were passed: the start, the end, one between, and where overlaps are largest."""
    coordinates = limit.coordinates
    vectors = np.asarray(coordinates.pack(states))
    vectors = vectors.reshape(-1, vectors.shape[-1])
    like = first_of(start) if start.M.ndim == 3 else start
    size = np.abs(vectors).max(axis=1)
    finite = np.flatnonzero(size < DIVERGED_ABOVE)
    if not len(finite):
        return [like]
    chosen = np.unique([finite[0], finite[-1], finite[len(finite) // 2], finite[size[finite].argmax()]])
    return [coordinates.unpack(jnp.asarray(vectors[index]), like) for index in chosen]
