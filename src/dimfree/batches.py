"""A function of many inputs, some at a time."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def map_in_batches(function: Callable[[Any], Any], inputs: Any, at_most: int) -> Any:
    """The results of a function for each entry along the leading axis of its inputs, in batches of one size.

    `jax.lax.map` with a batch size compiles the function once for the batches and again for what is left over.
    """
    number = jax.tree.leaves(inputs)[0].shape[0]
    batches = -(-number // at_most)
    if batches <= 1:
        return jax.vmap(function)(inputs)
    size = -(-number // batches)
    # The last entry fills the last batch up.
    entries = jnp.minimum(jnp.arange(batches * size), number - 1).reshape(batches, size)
    found = jax.lax.map(lambda these: jax.vmap(function)(jax.tree.map(lambda leaf: leaf[these], inputs)), entries)
    return jax.tree.map(lambda leaf: leaf.reshape(batches * size, *leaf.shape[2:])[:number], found)
