"""Exact, dimension-free descriptions of stochastic gradient descent in high dimension.

The public surface, in the order of the story: problem, algorithm, start, limit, solve or simulate, check, show.
Importing the package is cheap: a name is imported from its module when it is first used. `registry.py` lists them, and
`__init__.pyi` for type checkers.
"""

import importlib
import os
import sys
import warnings
from typing import Any

from . import compiled
from .registry import PUBLIC, load

_unsaid: list[str] = []  # what a user must hear once, as soon as the process is seen to be theirs


def _say(stacklevel: int) -> None:
    while _unsaid:
        warnings.warn(_unsaid.pop(), stacklevel=stacklevel)  # so that it points at the user's line


def _switch_to_double_precision() -> None:
    """Limits are solved to tolerances that single precision cannot hold, and JAX has one precision for a process.

    A choice made in the environment is left alone: in single precision everything that computes refuses.
    """
    jax = sys.modules.get("jax")
    if "JAX_ENABLE_X64" in os.environ or (jax is not None and jax.config.jax_enable_x64):
        return
    _unsaid.append(
        "dimfree computes in double precision and has switched JAX to it, for the whole process: arrays that your own "
        "JAX code makes from now on are float64 unless it asks for another type. If that is what you want, say so "
        'before you import dimfree, with jax.config.update("jax_enable_x64", True) or JAX_ENABLE_X64=1 in the '
        "environment, and this is not said again."
    )
    if jax is None:
        os.environ["JAX_ENABLE_X64"] = "1"  # importing JAX here would take a second; who uses a name is told then
    else:
        jax.config.update("jax_enable_x64", True)
        _say(stacklevel=4)


_switch_to_double_precision()
if os.environ.get(compiled.SWITCH, "0") not in ("", "0"):
    compiled.keep()

__all__ = list(PUBLIC)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("dimfree")
    if name not in PUBLIC:
        raise AttributeError(f"dimfree has no public name {name!r}; it has {', '.join(__all__)}.")
    _say(stacklevel=3)
    value = globals()[name] = load(name)
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
