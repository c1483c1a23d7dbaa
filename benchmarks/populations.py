"""Dynamical mean-field theory: one causal pass, against the same compiled by hand and against iterating its kernels.

The iteration is what Mignacco, Urbani & Zdeborová (2021) do: kernels are guessed, all paths are made with them from
start to end, new kernels are the averages over these paths, and the next guess is a mixture of both. Here both have the
same paths, so that they must agree to the tolerance of the iteration.
"""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import dimfree
from dimfree.gaussian.rules import sobol_normals
from dimfree.limits.dmft import Population, Process
from dimfree.limits.dmft.factors import invertible, next_column
from dimfree.limits.dmft.process import Kernels

from .reused import PHASE
from .timing import Row, against, growth

TOLERANCE = 1e-4  # of the overlap, from one iteration to the next
MOST = 400  # iterations
TIME, STEPS, DAMPING = 2.0, 40, 0.5
START = dimfree.State(Q=[[1.0]], M=[[0.5]])
DESCENT = dimfree.GradientDescent(TIME / STEPS, 2.0, sphere=True)
TIMES = jnp.linspace(0.0, TIME, STEPS + 1)


@eqx.filter_jit
def iterated(process: Process, kernels: Kernels, start: Population, damping) -> Kernels:
    """The kernels of paths that were made with these kernels, mixed with them; no step but that of gradient descent."""
    durations = jnp.diff(process.times)
    steps = durations.shape[0]

    def make(k, carry):
        paths, memory = carry
        force, curvature = process.force(paths.field, paths, kernels.overlap[k])
        slope, response, none = durations[k] * curvature, kernels.response[k + 1], jnp.zeros_like(curvature)
        ending = process._tangent(response, kernels.memory, paths, k, slope, none)
        all_of_it = jnp.ones(steps + 1)
        impulse, row, tangent = process._pushed(paths, k, all_of_it, slope, none, ending, durations[k] * force)
        impulses = paths.impulse.at[k].set(impulse)
        paths = dataclasses.replace(
            paths,
            field=kernels.factor[:, k + 1] @ paths.normals - response @ impulses,
            tangent=ending,
            impulse=impulses,
            impulse_tangent=paths.impulse_tangent.at[k].set(tangent.astype(jnp.float32)),
        )
        return paths, memory.at[k].set(row)

    paths, memory = jax.lax.fori_loop(0, steps, make, (start.paths, jnp.zeros_like(kernels.memory)))

    def average(k, new):
        so_far = dataclasses.replace(paths, impulse=jnp.where(jnp.arange(steps)[:, None] < k, paths.impulse, 0.0))
        triangle = invertible(new.factor, k + 1)
        row = process.move_weights(new, triangle, so_far, k, paths.impulse[k], memory[k], new.correlation[k])
        return row.written(new, k)

    new = jax.lax.fori_loop(0, steps, average, start.kernels)
    mixed = jax.tree.map(lambda old, new: damping * old + (1 - damping) * new, kernels, new)
    return dataclasses.replace(mixed, factor=factor_of(mixed.correlation))


def factor_of(correlation):
    """The triangular factor, column by column."""
    rows = correlation.shape[0]

    def write(k, factor):
        return factor.at[:, k].set(next_column(invertible(factor, k), correlation[k], k))

    return jax.lax.fori_loop(0, rows, write, jnp.zeros((rows, rows)))


def guess(start: Population) -> Kernels:
    """Weights that stay where they are."""
    kernels, rows = start.kernels, start.kernels.overlap.shape[0]
    correlation = jnp.full((rows, rows), kernels.correlation[0, 0])
    return dataclasses.replace(
        kernels,
        overlap=jnp.full(rows, kernels.overlap[0]),
        correlation=correlation,
        factor=factor_of(correlation),
        response=jnp.tril(jnp.ones((rows, rows - 1)), -1),
        start_response=jnp.ones(rows),
    )


def one_pass(paths: int):
    """The process, its start, and a call that carries one population forward."""
    process = Process(PHASE, DESCENT, jnp.ones(()), TIMES, flow=False)
    normals = jnp.asarray(sobol_normals(paths, STEPS + 3, np.random.default_rng(0)).T)
    start = functools.partial(process.start, jnp.ones(()), jnp.asarray(0.5), normals, jax.random.key(0))

    def forward() -> Kernels:  # all but the process is given away, so it starts anew
        return process.advance(start(), jnp.asarray(0), jnp.asarray(STEPS), jax.random.key(0)).kernels

    return process, start, forward


def population_against_one_pass() -> Row:
    """`dmft` with four populations of 4,096 paths and the halves of one, over six bare passes of such a population."""
    _, _, forward = one_pass(4096)

    def ours():
        limit = dimfree.dmft(PHASE, DESCENT, paths=4096, most_populations=4, flow=False, target_error=1e-9)
        return dimfree.solve(limit, START, np.asarray(TIMES), key=jax.random.key(0)).state.M

    return against(ours, lambda: [forward() for _ in range(6)], goal=1.2)


def one_pass_against_iteration() -> Row:
    """A causal pass, 4,096 paths of 40 steps, over iterating the kernels of the same paths to self-consistency."""
    process, start, forward = one_pass(4096)

    def by_iteration() -> Kernels:
        kernels = guess(start())
        for _ in range(MOST):
            following = iterated(process, kernels, start(), DAMPING)
            # The overlap alone can stand still for an iteration while the kernels still move.
            change, moved = (
                float(jnp.abs(getattr(following, name) - getattr(kernels, name)).max())
                for name in ("overlap", "response")
            )
            kernels = following
            if max(change, moved / 10) < TOLERANCE * (1 - DAMPING):
                break
        return kernels

    np.testing.assert_allclose(forward().overlap, by_iteration().overlap, atol=5e-4)
    return against(forward, by_iteration, goal=0.1, budget=2.0, fewest=3)


def cost_of_paths() -> Row:
    """A pass of 8,192 paths over 1,024: in proportion it would be 8."""
    return growth(lambda paths: one_pass(paths)[2], [1024, 2048, 4096, 8192], "paths", goal=10)


ALL = [population_against_one_pass, one_pass_against_iteration, cost_of_paths]
QUICK = []
