"""Trying a user's function before it is used: shape, finiteness, kinks."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import InvalidInput
from ..functions import trials

_REFINE, _CELLS, _REACH = 4, 4096, 8.0
_LINE = np.linspace(-_REACH, _REACH, _REFINE * _CELLS + 1)


def probe(function: Any, dimension: int | None, *, name: str, arguments: str) -> bool:
    """Whether a function of `dimension` fields is smooth enough; refuses one that cannot be used at all.

    It must give one finite number with a finite derivative. Smooth means that its value, slope and curvature do not
    jump: averages of products of slopes can then be differentiated under the average. Jumps are looked for along
    lines, out to 8 standard deviations.

    **Arguments:**

    - `function`: a pytree that takes one array of `dimension` numbers, or a single number if that is None. Numbers in
      it that are traced are tried with values of order one.
    - `name`, `arguments`: what the user calls it and what it is given, for the message.
    """
    return all([_is_smooth(each, dimension, name, arguments) for each in trials(function)])


def _is_smooth(function: Any, dimension: int | None, name: str, arguments: str) -> bool:
    remedy = "Write it with jax.numpy functions of these arguments, without Python branches on their values."
    # A problem may be made inside jit or vmap; its functions are still tried at once.
    with jax.core.eval_context():
        try:
            result = jax.eval_shape(lambda fields: function(fields), jnp.zeros(() if dimension is None else dimension))
        except Exception as error:
            words = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            if isinstance(error, TypeError) and "positional argument" in words:
                remedy = (
                    "It is called with these arguments, in this order; take all of them, also those it has no use for."
                )
            raise InvalidInput(f"{name} could not be evaluated by JAX for {arguments}: {words}\n{remedy}") from error
        _check_indices(function, dimension, name, arguments)
        if getattr(result, "shape", None) != ():
            found = f"an array of shape {result.shape}" if hasattr(result, "shape") else f"a {type(result).__name__}"
            raise InvalidInput(
                f"{name} returned {found} for {arguments}; it must return a single number: sum or average over it "
                "(jnp.sum, jnp.mean)."
            )
        try:
            values, slopes, curvatures, points = _along_lines(function, dimension)
        except TypeError as error:
            raise InvalidInput(
                f"{name} could not be differentiated by JAX for {arguments}: {error}\n{remedy}"
            ) from error
    for part, what in ((values, "value"), (slopes, "derivative")):
        if not np.isfinite(part).all():
            where = np.round(points[~np.isfinite(part)][0], 3)
            raise InvalidInput(
                f"The {what} of {name} is NaN or infinite at fields {where}. Gaussian fields take every real value: "
                "guard divisions, logarithms and square roots in it, and their derivatives."
            )
    return not any(_has_jump(samples) for samples in (*values, *slopes, *curvatures))


def is_unordered(function: Any, inputs: int, fields: int, *, others: int = 0) -> bool:
    """Whether a function of the fields of several inputs is the same in any order of them.

    It is tried with two orders that make all others, at random fields.

    **Arguments:**

    - `function`: a pytree that takes one array: `fields` numbers of each of the `inputs`, and so many `others`.
    """
    first, *rest = range(inputs)
    orders = [[*rest, first], [*rest[:1], first, *rest[1:]]]
    with jax.core.eval_context():
        rows, last = (
            jax.random.normal(jax.random.key(n), (64, size)) for n, size in enumerate((inputs * fields, others))
        )

        def values(each: Any, order: list[int]) -> Array:
            ordered = rows.reshape(64, inputs, fields)[:, order].reshape(rows.shape)
            return jax.vmap(lambda numbers: each(numbers))(jnp.concatenate([ordered, last], axis=1))

        return all(
            np.allclose(values(each, order), values(each, [first, *rest]), rtol=1e-9, atol=1e-12)
            for each in trials(function)
            for order in orders
        )


def _check_indices(function: Callable, dimension: int | None, name: str, arguments: str) -> None:
    """Refuse a function that reads fields that are not there: JAX would give it the last one instead."""
    try:
        jax.eval_shape(lambda: function(np.zeros(() if dimension is None else dimension)))
    except IndexError as error:
        raise InvalidInput(
            f"{name} reads a field that is not there: {error}. It is given {arguments}: change the widths or the index."
        ) from error
    except Exception:  # what NumPy's arrays cannot do and JAX's can is no fault of the function
        return


def _along_lines(function: Callable, dimension: int | None):
    """Values, slopes and curvatures of the function along lines, and the points there."""
    starts, ways = _some_lines(dimension or 1)
    found = map(np.asarray, _compiled_lines(function, dimension, starts, ways))
    return *found, starts[:, None] + _LINE[:, None] * ways[:, None]


@functools.cache
def _some_lines(dimension: int) -> tuple[Float[np.ndarray, "m n"], Float[np.ndarray, "m n"]]:
    """Where lines start, and their directions."""
    if dimension == 1:
        return np.zeros((1, 1)), np.ones((1, 1))
    starts, ways = np.asarray(jax.random.normal(jax.random.key(1), (2, 4, dimension)))
    return starts, ways / np.linalg.norm(ways, axis=1, keepdims=True)


@eqx.filter_jit
def _compiled_lines(function: Callable, dimension: int | None, starts, ways):
    of_fields = (lambda fields: function(fields[0])) if dimension is None else function

    def along(start: Float[Array, " n"], way: Float[Array, " n"]):
        slope = jax.value_and_grad(lambda t: of_fields(start + t * way))
        curvature = jax.grad(lambda t: slope(t)[1])
        return jax.vmap(lambda t: (*slope(t), curvature(t)))(jnp.asarray(_LINE))

    return jax.vmap(along)(starts, ways)


def _has_jump(samples: np.ndarray) -> bool:
    """Whether samples on a uniform grid show a discontinuity.

    Second differences shrink with the spacing where the sampled function is continuous, and do not across a jump: there
    those of the fine grid are as large as those of the coarse grid around them.
    """
    fine = np.abs(np.diff(samples, 2))
    coarse = np.pad(np.abs(np.diff(samples[::_REFINE], 2)), 2)
    # A coarse difference may vanish by its sign change alone, but then not its neighbours.
    around = np.lib.stride_tricks.sliding_window_view(coarse, 4).max(axis=1)
    # Two derivatives of a tail such as that of gelu leave rounding errors far above those of the values.
    rounding = 1e7 * np.finfo(samples.dtype).eps * (1 + np.abs(samples).max())
    cells = np.arange(1, len(samples) - 1) // _REFINE
    return bool(np.any((fine > 0.6 * around[cells]) & (fine > rounding)))
