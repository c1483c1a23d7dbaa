"""How problems and algorithms print, as the call that makes them, and how durations do."""

import dataclasses
from typing import Any

import jax
import numpy as np

from .errors import is_concrete

_MESSAGE = 80  # characters of what was given that a message repeats


def as_call(module: Any, **fields: Any) -> str:
    """`Name(field=value, ...)` on one line, with numbers in place of array descriptions."""
    shown = fields or {field.name: getattr(module, field.name) for field in dataclasses.fields(module) if field.repr}
    call = f"{type(module).__name__}({', '.join(f'{name}={_short(value)}' for name, value in shown.items())})"
    spectrum = getattr(module, "spectrum", None)
    return call if spectrum is None else f"{call}.with_inputs({spectrum!r})"


def duration(seconds: float) -> str:
    """A time in words, in the unit that is read best."""
    if seconds < 90:
        return f"{seconds:.3g} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def _short(value: Any) -> str:
    if isinstance(value, jax.Array):
        if not is_concrete(value):
            return "traced"
        array = np.asarray(value)
        if array.ndim == 0:
            return f"{float(array):g}"
        return str(array.tolist()) if array.size <= 8 else f"array{array.shape}"
    if isinstance(getattr(value, "name", None), str):
        return repr(value.name)
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__
    return repr(value)


def in_a_line(thing: Any) -> str:
    """What was given, for a message: as it prints, on one line and not longer than that."""
    words = " ".join(repr(thing).split())
    return words if len(words) <= _MESSAGE else f"{words[: _MESSAGE - 4]} ..."
