"""Checks at the edge of the library: what was given, what is wrong, what to do."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

_MOST_NEURONS = 10**7


class InvalidInput(ValueError):
    """An argument that the library cannot work with, said in the user's words."""


def is_concrete(*values: Any) -> bool:
    """Whether every array in `values` holds numbers that can be checked; inside jit, vmap or grad none does."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values))


def require(condition: Any, message: str) -> None:
    """Raise `InvalidInput(message)` unless the (concrete) condition holds."""
    if not bool(np.all(condition)):
        raise InvalidInput(message)


def positive_integer(value: Any, name: str, *, minimum: int = 1, maximum: int | None = None) -> int:
    """`value` as an int of at least `minimum`, or an error that names it."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < minimum:
        raise InvalidInput(f"{name} = {value!r} was given; it must be a whole number, at least {minimum}.")
    if maximum is not None and value > maximum:
        raise InvalidInput(f"{name} = {value!r} was given; it must be at most {maximum:,}.")
    return int(value)


def neurons(value: Any, name: str) -> int:
    """A width as an int, of a network that memory can hold."""
    return positive_integer(value, name, maximum=_MOST_NEURONS)


def check_key(key: Any) -> None:
    """An error in words if what was given as a random key is a seed, or nothing of the kind."""
    words = f"key = {key!r} was given; give a random key, such as jax.random.key(0)."
    require(isinstance(key, jax.Array) and (jax.numpy.issubdtype(key.dtype, jax.dtypes.prng_key) or key.ndim), words)


def check_finite(array: Any, name: str) -> None:
    """Check that an array, where there is one, has finite entries; traced values pass."""
    if array is not None and is_concrete(array):
        require(np.isfinite(np.asarray(array)), f"{name} = {array} was given; it must be finite numbers.")


def nonnegative_number(value: Any, name: str, *, meaning: str = "") -> None:
    """Check that this is one number, finite and not negative; of traced values the shape only."""
    _check_number(value, name, lambda number: number >= 0, f"finite, zero or positive{meaning}", meaning)


def positive_number(value: Any, name: str, *, meaning: str = "") -> None:
    """Check that this is one number, finite and above zero; of traced values the shape only."""
    _check_number(value, name, lambda number: number > 0, f"positive and finite{meaning}", meaning)


def _check_number(value: Any, name: str, allowed: Callable[[Any], Any], wanted: str, meaning: str) -> None:
    if np.ndim(value) > 0:
        raise InvalidInput(f"{name} = {value} was given; it must be one number{meaning}. Use jax.vmap to go over many.")
    if not is_concrete(value):
        return
    try:
        number = np.asarray(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} = {value!r} was given; it must be a number{meaning}.") from error
    require(np.isfinite(number) and allowed(number), f"{name} = {value} was given; it must be {wanted}.")
