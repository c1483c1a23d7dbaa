"""Checks at the edge of the library: what was given, what is wrong, what to do."""

import os
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

_MOST_NEURONS = 10**7
_LARGEST_INTEGER = 2**53  # whole numbers up to here are numbers in double precision too
_MEMORY_WHERE_NOBODY_KNOWS = 2**34


class InvalidInput(ValueError):
    """An argument that the library cannot work with; the message says what was given and what to do."""


def check_precision() -> None:
    """Refuse single precision, in which limits would be wrong without a word. Every door of the library looks here."""
    if jax.dtypes.canonicalize_dtype(np.float64) != np.float64:
        raise InvalidInput(
            "JAX computes in single precision here; dimfree needs double precision. Switch it on with "
            'jax.config.update("jax_enable_x64", True), and leave JAX_ENABLE_X64=0 out of the environment.'
        )


def is_concrete(*values: Any) -> bool:
    """Whether every array in `values` holds numbers that can be checked; inside jit, vmap or grad none does."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values))


def require(condition: Any, message: str) -> None:
    """Raise `InvalidInput(message)` unless the (concrete) condition holds."""
    if not bool(np.all(condition)):
        raise InvalidInput(message)


def positive_integer(value: Any, name: str, *, minimum: int = 1, maximum: int | None = None) -> int:
    """`value` as an int of at least `minimum`, or an error that names it."""
    check_precision()
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < minimum:
        raise InvalidInput(f"{name} = {shown(value)} was given; it must be a whole number, at least {minimum}.")
    maximum = _LARGEST_INTEGER if maximum is None else maximum
    if value > maximum:
        raise InvalidInput(f"{name} = {shown(value)} was given; it must be at most {maximum:,}.")
    return int(value)


def flag(value: Any, name: str) -> bool:
    """`value` as a bool, or an error that names it: words, numbers and arrays are none."""
    if isinstance(value, Tracer):
        raise InvalidInput(
            f"{name} is traced; which of True and False it is decides what is computed, so it must be known when a "
            "program is compiled: close over it, or make it a static argument (static_argnames of jax.jit)."
        )
    if not isinstance(value, bool | np.bool_):
        raise InvalidInput(f"{name} = {shown(value)} was given; it must be True or False.")
    return bool(value)


def check_not_traced(what: str, **values: Any) -> None:
    """Refuse arguments that are being traced, by their names, for what is computed step by step in Python."""
    traced = [name for name, value in values.items() if not is_concrete(value)]
    if traced:
        raise InvalidInput(
            f"{what} needs numbers, and {' and '.join(traced)} {'is' if len(traced) == 1 else 'are'} traced: call it "
            "outside of jit, vmap and grad."
        )


def neurons(value: Any, name: str) -> int:
    """A width as an int, of a network that memory can hold."""
    return positive_integer(value, name, maximum=_MOST_NEURONS)


def choice(value: Any, name: str, among: Iterable[str]) -> str:
    """`value` if it is one of these words, or an error that lists them."""
    if not (isinstance(value, str) and value in among):
        raise InvalidInput(f"{name} = {shown(value)} was given; choose {' or '.join(map(repr, among))}.")
    return value


def check_key(key: Any) -> None:
    """An error in words if what was given as a random key is a seed, or nothing of the kind."""
    new = isinstance(key, jax.Array) and jax.numpy.issubdtype(key.dtype, jax.dtypes.prng_key)
    if new and key.ndim:
        raise InvalidInput(f"key has shape {key.shape}; give one random key, such as jax.random.key(0).")
    old = isinstance(key, jax.Array) and key.dtype == np.uint32 and key.ndim == 1 and key.size
    require(new or old, f"key = {shown(key)} was given; give a random key, such as jax.random.key(0).")


def check_finite(array: Any, name: str) -> None:
    """Check that an array, where there is one, has finite entries; traced values pass."""
    if array is not None and is_concrete(array):
        require(
            np.isfinite(np.asarray(real_array(array, name))),
            f"{name} = {shown(array)} was given; it must be finite numbers.",
        )


def nonnegative_number(value: Any, name: str, *, meaning: str = "") -> None:
    """Check that this is one number, finite and not negative; of traced values the shape only."""
    _check_number(value, name, lambda number: number >= 0, f"finite, zero or positive{meaning}", meaning)


def finite_number(value: Any, name: str, *, meaning: str = "") -> None:
    """Check that this is one finite number; of traced values the shape only."""
    _check_number(value, name, lambda number: True, f"finite{meaning}", meaning)


def positive_number(value: Any, name: str, *, meaning: str = "") -> None:
    """Check that this is one number, finite and above zero; of traced values the shape only."""
    _check_number(value, name, lambda number: number > 0, f"positive and finite{meaning}", meaning)


def _check_number(value: Any, name: str, allowed: Callable[[Any], Any], wanted: str, meaning: str) -> None:
    check_precision()
    if real_array(value, name, f"a number{meaning}").ndim > 0:
        raise InvalidInput(
            f"{name} = {shown(value)} was given; it must be one number{meaning}. Use jax.vmap to go over many."
        )
    if is_concrete(value):
        number = np.asarray(value, dtype=float)
        require(np.isfinite(number) and allowed(number), f"{name} = {shown(value)} was given; it must be {wanted}.")


def real_array(value: Any, name: str, wanted: str = "real numbers") -> Any:
    """`value` as an array of floats, or an error that names it: words, complex numbers and ragged lists are none.

    **Returns:** an array of JAX where one was given, else of NumPy.
    """
    array: Any
    try:
        array = value if isinstance(value, jax.Array) else np.asarray(value)
        kind = getattr(array.dtype, "kind", "")  # random keys have none
        numbers = kind in ("b", "i", "u")
        # NumPy keeps whole numbers that are too large for it as objects.
        large = kind == "O" and all(isinstance(each, int) for each in array.flat)
        if numbers or large or jax.numpy.issubdtype(array.dtype, np.floating):
            return array.astype(float)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InvalidInput(f"{name} = {shown(value)} was given; it must be {wanted}.")


def shown(value: Any) -> str:
    """What was given, for an error: in full where it is short."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"about {'-' * (value < 0)}10^{value.bit_length() * 0.30103:.0f}"  # Python does not print the longest
    try:
        with np.printoptions(threshold=50):  # messages are made before it is known that they are needed
            words = repr(value) if isinstance(value, str | bytes | list | tuple | dict) else str(value)
    except Exception:  # whatever an object does when it is printed
        words = f"an object of type {type(value).__name__}"
    return words if len(words) <= 200 else f"{words[:100]} ... {words[-50:]}"


def returned_by(function: Callable[..., Any], name: str, size: int, wanted: str) -> Any:
    """What a user's function, given as `name`, makes of a size, or an error that says what it raised."""
    try:
        return function(size)
    except InvalidInput:
        raise
    except Exception as error:
        raise InvalidInput(
            f"{name} could not be called with {size}: {type(error).__name__}: {error}\nGive a function to {wanted}."
        ) from error


# Memory.


def check_memory(needed: float, what: str, remedy: str) -> None:
    """Refuse what surely needs more memory than is free, before anything is allocated.

    **Arguments:**

    - `needed`: bytes, from below: what works is never refused.
    - `what`: needs them, for the error, such as "64 runs"; `remedy`: what to do.
    """
    free = free_memory()
    if needed > free:
        raise InvalidInput(f"{what} would take {in_bytes(needed)} of memory; {in_bytes(free)} are free. {remedy}")


def free_memory() -> float:
    """Bytes that are free where arrays are kept: on the devices, or in this machine's memory and swap."""
    statistics = jax.devices()[0].memory_stats() or {}
    if "bytes_limit" in statistics:
        return float(statistics["bytes_limit"] - statistics.get("bytes_in_use", 0)) * len(jax.devices())
    try:
        with open("/proc/meminfo") as file:
            known = {
                name: 1024.0 * float(value.split()[0]) for name, _, value in (line.partition(":") for line in file)
            }
        free = known["MemAvailable"] + known.get("SwapFree", 0.0)
    except (OSError, KeyError, ValueError):
        known_pages = "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {})
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if known_pages else 0
        free = float(pages or _MEMORY_WHERE_NOBODY_KNOWS)
    try:
        with open("/sys/fs/cgroup/memory.max") as file:  # of a container
            return min(free, float(file.read()))
    except (OSError, ValueError):
        return free


def in_bytes(number: float) -> str:
    """A size of memory in words, in the unit that is read best."""
    unit = next((unit for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB") if (number := number / 1024) < 1), "EiB")
    return f"{number * 1024:.3g} {unit}"
