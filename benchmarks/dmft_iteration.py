"""One causal pass of a dynamical mean-field theory, against iterating its kernels over all times to self-consistency.

python benchmarks/dmft_iteration.py [--time 2.0] [--steps 40] [--paths 4096] [--damping 0.5]

The second is what Mignacco, Urbani & Zdeborová (2021) do: kernels are guessed, all paths are made with them from start
to end, new kernels are the averages over these paths, and the next guess is a mixture of both. Here both have the same
paths, so that they must agree to the tolerance of the iteration.
"""

import argparse
import dataclasses
import functools
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import dimfree
from dimfree.gaussian.rules import sobol_normals
from dimfree.limits.dmft import Kernels, Population, Process, _next_row

TOLERANCE = 1e-4  # of the overlap, from one iteration to the next
MOST = 400  # iterations
LOSS = dimfree.LocalFields(
    lambda student, teacher, noise, readout: (student[0] ** 2 - teacher[0] ** 2) ** 2 / 4, width=1, teacher_width=1
)


@eqx.filter_jit
def iterated(process: Process, kernels: Kernels, start: Population, damping) -> Kernels:
    """The kernels of paths that were made with these kernels, mixed with them; no step but that of gradient descent."""
    durations = jnp.diff(process.times)
    steps = durations.shape[0]

    def make(k, paths):
        force, curvature = process._force(paths.field, paths, kernels.overlap[k])
        impulse = paths.impulse.at[k].set(durations[k] * force)
        impulse_tangent = (durations[k] * curvature).astype(jnp.float32) * paths.tangent
        response = kernels.response[k + 1]
        # The new tangent apart from the earlier ones, which can then be written to in place.
        fading = jnp.tensordot(response.astype(jnp.float32), paths.impulse_tangent, axes=1)
        fading = fading + response[k].astype(jnp.float32) * impulse_tangent
        return dataclasses.replace(
            paths,
            field=kernels.factor[k + 1] @ paths.normals - response @ impulse,
            tangent=(-fading).at[k + 1].add(1.0),
            impulse=impulse,
            impulse_tangent=paths.impulse_tangent.at[k].set(impulse_tangent),
        )

    paths = jax.lax.fori_loop(0, steps, make, start.paths)

    def average(k, new):
        return process._move_weights(
            new, paths, k, paths.impulse[k], process._response(paths.impulse_tangent[k], paths)
        )

    new = jax.lax.fori_loop(0, steps, average, start.kernels)
    mixed = jax.tree.map(
        lambda old, new: new if new.dtype == bool else damping * old + (1 - damping) * new, kernels, new
    )
    return dataclasses.replace(mixed, factor=factor_of(mixed.correlation))


def factor_of(correlation):
    """The triangular factor, row by row."""
    rows = correlation.shape[0]
    return jax.lax.fori_loop(0, rows, lambda k, factor: _next_row(factor, correlation[k], k), jnp.zeros((rows, rows)))


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


def timed(call):
    """The result of a warm call and its seconds."""
    jax.block_until_ready(call())
    began = time.perf_counter()
    result = jax.block_until_ready(call())
    return result, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time", type=float, default=2.0)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--paths", type=int, default=4096)
    parser.add_argument("--damping", type=float, default=0.5)
    given = parser.parse_args()
    descent = dimfree.GradientDescent(given.time / given.steps, 2.0, sphere=True)
    times = jnp.linspace(0.0, given.time, given.steps + 1)
    process = Process(LOSS, descent, jnp.ones(()), times, flow=False)
    normals = jnp.asarray(sobol_normals(given.paths, given.steps + 3, np.random.default_rng(0)).T)
    start = functools.partial(process.start, jnp.ones(()), jnp.asarray(0.5), normals, jax.random.key(0))

    def forward() -> Kernels:  # all but the process is given away
        ends = jnp.asarray(0), jnp.asarray(given.steps)
        return process.advance(start(), *ends, jax.random.key(0)).kernels

    causal, once = timed(forward)
    kernels = guess(start())
    _, sweep = timed(lambda: iterated(process, kernels, start(), given.damping))
    began = time.perf_counter()
    for iterations in range(1, MOST + 1):  # noqa: B007 (the number is wanted after the loop)
        following = iterated(process, kernels, start(), given.damping)
        change = float(jnp.abs(following.overlap - kernels.overlap).max())
        kernels = following
        if change < TOLERANCE * (1 - given.damping):
            break
    seconds = time.perf_counter() - began
    print(f"{given.steps} steps to time {given.time:g}, {given.paths} paths, damping {given.damping:g}")
    print(f"causal pass: {once:.2f} s, M at the end {float(causal.overlap[-1]):.5f}")
    print(f"iteration: {seconds:.2f} s in {iterations} iterations of {sweep:.2f} s, M {float(kernels.overlap[-1]):.5f}")
    print(f"largest difference of M {float(jnp.abs(kernels.overlap - causal.overlap).max()):.1e}")
    print(f"largest difference of C {float(jnp.abs(kernels.correlation - causal.correlation).max()):.1e}")
    print(f"cost ratio {seconds / once:.1f}")


if __name__ == "__main__":
    main()
