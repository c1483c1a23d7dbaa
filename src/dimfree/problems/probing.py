"""Trying a user's function before it is used: shape, finiteness, kinks."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import InvalidInput


def check_function(function: Callable, name: str, dimension: int, arguments: str) -> None:
    """Refuse a function that does not give one finite, differentiable number for `dimension` ordinary fields.

    **Arguments:**

    - `function`: takes one array of `dimension` numbers.
    - `name`, `arguments`: what the user calls it and what it is given, for the message.
    """
    try:
        shape = jax.eval_shape(function, jnp.zeros(dimension)).shape
    except InvalidInput:
        raise
    except Exception as error:
        raise InvalidInput(
            f"{name} could not be evaluated by JAX for {arguments}: {type(error).__name__}: {error}\n"
            f"Write it with jax.numpy functions of these arguments, without Python branches on their values."
        ) from error
    if shape != ():
        raise InvalidInput(
            f"{name} returned an array of shape {shape} for {arguments}; it must return a single number: "
            "sum or average over it (jnp.sum, jnp.mean)."
        )
    with jax.ensure_compile_time_eval():  # a problem may be made inside jit or vmap
        fields = jax.random.normal(jax.random.key(0), (256, dimension))
        values, slopes = (np.asarray(part) for part in jax.vmap(jax.value_and_grad(function))(fields))
    if not np.isfinite(values).all() or not np.isfinite(slopes).all():
        what = "value" if not np.isfinite(values).all() else "derivative"
        raise InvalidInput(
            f"The {what} of {name} is NaN or infinite for some ordinary fields (standard normal draws); check "
            "divisions, logarithms and square roots in it, and guard their derivatives too."
        )


def has_kinks(function: Callable, dimension: int) -> bool:
    """Whether the gradient of a function of `dimension` fields jumps somewhere near the origin.

    Along random lines, neighbouring values of the derivative come together in proportion to their spacing, unless
    a jump lies between them.
    """

    def largest_jump(points: int) -> np.ndarray:
        line = jnp.linspace(-6.0, 6.0, points)

        def along(origin, way):
            return jax.vmap(jax.grad(lambda t: function(origin + t * way)))(line)

        slopes = jax.vmap(along)(start, direction)
        return np.asarray(
            jnp.max(jnp.abs(jnp.diff(slopes, axis=1)), axis=1) / (1e-12 + jnp.max(jnp.abs(slopes), axis=1))
        )

    with jax.ensure_compile_time_eval():
        start, direction = jax.random.normal(jax.random.key(1), (2, 4, dimension))
        coarse, fine = largest_jump(2001), largest_jump(16001)
    return bool(np.any((fine > 0.4 * coarse) & (fine > 1e-7)))
