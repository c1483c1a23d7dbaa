"""A function of many inputs, some at a time, so that memory stays bounded: mapped over them, or summed."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jaxtyping import PyTree

# Numbers in the largest array of a batch: 2 MB in double precision. A compiled batch holds a few of them; what stays
# near the processor is several times faster than larger batches.
NUMBERS = 2**18


def map_in_batches(function: Callable[[Any], Any], inputs: Any, at_most: int | None = None) -> Any:
    """The results of a function for each entry along the leading axis of its inputs, in batches of one size.

    A batch is as large as `NUMBERS` allows: the largest array that the function makes of one entry, times the entries
    of the batch. A single entry may need more.

    **Arguments:**

    - `function`: of one entry; it is traced once, also where a batch is left over.
    - `inputs`: pytree of arrays with the same leading axis; leaves that are not arrays are passed on as they are.
    - `at_most`: entries in a batch, where fewer are faster than memory would allow.

    **Returns:** what the function returns, with the leading axis of the inputs.
    """
    arrays, rest = eqx.partition(inputs, eqx.is_array)
    number = jax.tree.leaves(arrays)[0].shape[0]
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), arrays)
    program, made = jax.make_jaxpr(lambda entry: function(eqx.combine(entry, rest)), return_shape=True)(one)
    fitting = max(1, NUMBERS // max(1, largest_array(program.jaxpr)))
    batches = -(-number // min(fitting, at_most or fitting))

    def many(entries: Any) -> Any:
        found = jax.vmap(core.jaxpr_as_fun(program))(*jax.tree.leaves(entries))
        return jax.tree.unflatten(jax.tree.structure(made), found)

    if batches <= 1:
        return many(arrays)
    size = -(-number // batches)
    # The last entry fills the last batch up. `jax.lax.map` with a batch size would compile what is left over again.
    entries = jnp.minimum(jnp.arange(batches * size), number - 1).reshape(batches, size)
    found = jax.lax.map(lambda these: many(jax.tree.map(lambda leaf: leaf[these], arrays)), entries)
    return jax.tree.map(lambda leaf: leaf.reshape(batches * size, *leaf.shape[2:])[:number], found)


def largest_array(program: core.Jaxpr) -> int:
    """Numbers in the largest array that a program makes of its inputs, inside loops and branches too."""
    depending, largest = set(program.invars), 0
    for step in program.eqns:
        # What does not depend on the inputs is there once, however many entries there are.
        if depending.isdisjoint(each for each in step.invars if isinstance(each, core.Var)):
            continue
        depending.update(step.outvars)
        inner = core.jaxprs_in_params(step.params)
        largest = max([largest, *map(size, step.outvars), *map(largest_array, inner)])
    return largest


def size(variable: core.Var) -> int:
    """How many numbers a variable of a program is."""
    return math.prod(getattr(variable.aval, "shape", ()))


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
