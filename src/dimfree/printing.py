"""How problems and algorithms print: as the call that makes them."""

import dataclasses
from typing import Any

import jax
import numpy as np

from .errors import is_concrete


def as_call(module: Any, **fields: Any) -> str:
    """`Name(field=value, ...)` on one line, with numbers in place of array descriptions."""
    shown = fields or {field.name: getattr(module, field.name) for field in dataclasses.fields(module) if field.repr}
    return f"{type(module).__name__}({', '.join(f'{name}={_short(value)}' for name, value in shown.items())})"


def _short(value: Any) -> str:
    if isinstance(value, jax.Array):
        if not is_concrete(value):
            return "traced"
        array = np.asarray(value)
        return (
            f"{float(array):g}"
            if array.ndim == 0
            else str(array.tolist())
            if array.size <= 8
            else f"array{array.shape}"
        )
    if isinstance(getattr(value, "name", None), str):
        return repr(value.name)
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__
    return repr(value)
