"""A function of many inputs in batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dimfree import batches
from dimfree.batches import map_in_batches


@pytest.mark.parametrize("number", [1, 4, 5, 8, 11])
def test_every_entry_is_mapped_once_and_in_order(number):
    keys = jax.random.split(jax.random.key(0), number)
    inputs = (jnp.arange(number), keys)

    def function(entry):
        place, key = entry
        return {"place": place, "drawn": jax.random.normal(key, (2,))}

    found = map_in_batches(function, inputs, 4)
    np.testing.assert_array_equal(found["place"], np.arange(number))
    np.testing.assert_array_equal(found["drawn"], jax.vmap(lambda key: jax.random.normal(key, (2,)))(keys))


def test_the_function_is_traced_once_also_where_a_batch_is_left_over():
    traced = []

    def function(x):
        traced.append(x)
        return x**2

    jax.jit(lambda x: map_in_batches(function, x, 4))(jnp.arange(11.0))
    assert len(traced) == 1


def test_gradients_do_not_see_what_fills_the_last_batch():
    x = jnp.arange(11.0)
    slope = jax.grad(lambda x: jnp.sum(map_in_batches(jnp.square, x, 4)))(x)
    np.testing.assert_allclose(slope, 2 * x)


def _largest(function, *arguments) -> int:
    """Numbers in the largest array inside the program of a function."""
    return batches.largest_array(jax.make_jaxpr(function)(*arguments).jaxpr)


@pytest.mark.parametrize(("allowed", "expected"), [(10_000, 3_700), (1_000, 1_000), (250, 200), (10, 100)])
def test_a_batch_is_as_large_as_the_largest_array_allows(allowed, expected, monkeypatch):
    """An entry makes 100 numbers inside a loop, of 37 entries; a single one may need more than is allowed."""
    monkeypatch.setattr(batches, "NUMBERS", allowed)

    def function(x):
        return jax.lax.fori_loop(0, 3, lambda _, total: total + jnp.sum(jnp.sin(x * jnp.arange(100.0))), 0.0)

    x = jnp.linspace(0.0, 1.0, 37)
    assert _largest(lambda x: map_in_batches(function, x), x) == expected
    np.testing.assert_allclose(map_in_batches(function, x), jax.vmap(function)(x), rtol=1e-14)


def test_what_all_entries_share_does_not_make_batches_smaller(monkeypatch):
    monkeypatch.setattr(batches, "NUMBERS", 100)
    found = []

    def function(x):
        return x * jnp.sum(jnp.arange(1e4) ** 2)

    monkeypatch.setattr(jax.lax, "map", lambda *_: found.append("in batches"))
    map_in_batches(function, jnp.arange(50.0))
    assert not found


def test_leaves_that_are_no_arrays_are_passed_on():
    found = map_in_batches(lambda item: item["function"](item["x"]), {"x": jnp.arange(5.0), "function": jnp.square}, 2)
    np.testing.assert_array_equal(found, np.arange(5.0) ** 2)
