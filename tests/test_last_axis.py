"""A function of one entry, mapped along the last axis, is what `jax.vmap` makes of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dimfree
from dimfree.last_axis import map_last_axis
from dimfree.simulation import exact

WEIGHTS = jnp.arange(1.0, 4.0)


def of_small_arrays(entry):
    """Every kind of operation that has a rule, and some that have none (a sort, a gather, a branch)."""
    matrix, vector, number, place = entry
    products = matrix @ matrix.T, jnp.einsum("ij,j,j->i", matrix, vector, WEIGHTS), jnp.tensordot(matrix, vector, 1)
    batched = jnp.einsum("ijk,ikl->ijl", jnp.stack([matrix, 2 * matrix]), jnp.stack([matrix.T, matrix]))
    shaped = jnp.concatenate([matrix[:, ::2], matrix.T[:, :1]], axis=1), jnp.flip(matrix, 0).reshape(9), vector[None]
    parts = jnp.split(jnp.pad(vector, (1, 2)), [2, 4])
    reduced = matrix.sum(0), matrix.max(1), matrix.min(), matrix.prod(1), jnp.all(matrix > 0, 0), jnp.any(matrix > 0)
    running = jnp.cumsum(matrix, 1), jnp.cumsum(matrix, 0, dtype=int), jax.lax.cumsum(vector, reverse=True)
    chosen = jnp.where(number > 0, matrix, number), jnp.clip(vector, -0.1, number), jnp.where(WEIGHTS > 2, vector, 1.0)
    others = jnp.sort(vector), vector[place], jax.lax.cond(number > 0, lambda: number, lambda: 0.0), jax.nn.relu(vector)
    looped = jax.lax.fori_loop(0, 3, lambda _, x: jnp.sin(x) + number, vector)
    same = jnp.ones(2), jnp.tanh(WEIGHTS[:, None])
    in_memory = jax.lax.optimization_barrier((matrix @ matrix, jnp.sin(number), jnp.tanh(WEIGHTS)))
    used = in_memory[0] * in_memory[1], in_memory[2]
    nothing = vector[:0].astype(int)
    empty = nothing, jnp.sort(nothing) < 1, matrix[:0].sum(0), matrix[:0].max(1), matrix[:0] * number, nothing.prod()
    empty += matrix[:, :0] @ matrix[:0], vector[:0] @ matrix[:0], jnp.cumsum(matrix[:0], 0), jnp.cumsum(matrix[:, :0])
    return products, batched, shaped, parts, reduced, running, chosen, others, looped, same, used, empty, number**2


def entries(number: int):
    rng = np.random.default_rng(0)
    given = rng.normal(size=(3, 3, number)), rng.normal(size=(3, number)), rng.normal(size=number)
    return *map(jnp.asarray, given), jnp.asarray(rng.integers(0, 3, number))


@pytest.mark.parametrize(("single", "number"), [(40, 5), (40, 20), (0, 5), (0, 20)])
def test_what_vmap_makes(monkeypatch, single, number):
    """With each number a vector of its own, and with whole arrays; of many entries, some are kept in memory."""
    monkeypatch.setattr("dimfree.last_axis._SINGLE", single)
    given = entries(number)
    ours = jax.jit(lambda given, place: map_last_axis(of_small_arrays, given, place >= 0))(given, 3)
    known = jax.jit(jax.vmap(of_small_arrays, in_axes=-1, out_axes=-1))(given)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(known), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


def test_what_is_large_is_taken_in_batches():
    points = jnp.linspace(0.0, 1.0, 2**17)
    found = map_last_axis(lambda x: jnp.mean(jnp.cos(points * x)), jnp.asarray([0.5, 1.0, 2.0]))
    np.testing.assert_allclose(found, np.sin([0.5, 1.0, 2.0]) / [0.5, 1.0, 2.0], rtol=1e-5)


def test_more_dimensions_than_vectors_are_the_same_step():
    """What a step leaves out where there is room for all vectors is nothing: the same to rounding."""
    problem, algorithm, d = dimfree.TwoLayer(2, 1, "erf", noise=0.1), dimfree.OnlineSGD(1.0, 2), jnp.asarray(7.0)
    state = dimfree.State(Q=[[1.0, 0.2], [0.2, 1.0]], M=[[0.3], [0.1]])
    rng = np.random.default_rng(0)
    numbers = exact.Numbers(jnp.asarray(rng.normal(size=9)), jnp.asarray(rng.chisquare(4.0, size=2)))
    steps = [exact.advance(problem, algorithm, state, numbers, d, jnp.zeros(()), roomy)[0] for roomy in (False, True)]
    np.testing.assert_allclose(steps[0].Q, steps[1].Q, rtol=1e-14)
