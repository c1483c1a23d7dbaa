"""Sums over the points of a quadrature rule, some at a time."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree


def sum_over_blocks(function: Callable[..., PyTree], points: tuple[Any, ...], blocks: int) -> PyTree:
    """The sum of `function` of so many parts of the points, one after the other, so that memory stays bounded.

    **Arguments:**

    - `function`: of arrays of points, the last of which are their weights; its value sums over them.
    - `points`: arrays with the same first axis; where it does not divide, points of weight zero are added.
    - `blocks`: the number of parts.
    """
    if blocks == 1:
        return function(*(jnp.asarray(array) for array in points))
    padding = -len(points[0]) % blocks

    def split(array: Any) -> Any:
        library = np if isinstance(array, np.ndarray) else jnp
        padded = library.concatenate([array, np.zeros((padding, *array.shape[1:]))])
        return jnp.asarray(padded.reshape(blocks, -1, *array.shape[1:]))

    parts = tuple(split(array) for array in points)
    nothing = jax.tree.map(
        lambda made: jnp.zeros(made.shape, made.dtype), jax.eval_shape(function, *(part[0] for part in parts))
    )
    total, _ = jax.lax.scan(lambda carry, part: (jax.tree.map(jnp.add, carry, function(*part)), None), nothing, parts)
    return total
