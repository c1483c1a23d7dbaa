"""A function of many inputs in batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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
