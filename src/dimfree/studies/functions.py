"""Functions that are called cell by cell: analyses of the library, and a user's own by import path."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .. import analysis, limits
from ..batches import map_in_batches
from ..errors import InvalidInput
from ..solving import solve
from ..state import State
from .cells import make_algorithm, make_problem, settings_of
from .description import DMFT, Analysis, Description, FixedPoints, Function


def imported(path: str) -> Callable[..., Any]:
    """The function at `package.module:name`; modules in the working directory are found."""
    module_name, _, name = path.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        return getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"compute: function: {path} was given, but it cannot be imported: {error}") from error


def one_cell(description: Description, values: dict[str, Any], key: Any) -> dict[str, float]:
    """The quantities of one cell, from one call."""
    compute = description.compute
    problem, algorithm = make_problem(description, values), make_algorithm(description, values)
    settings = settings_of(description, values)
    if isinstance(compute, FixedPoints):
        found = analysis.fixed_points(limits.ode(problem, algorithm), key=key, starts=settings["starts"])
        risks = [kind.risk for kind in found]
        stable = [kind.risk for kind in found if kind.stable]
        return {
            "components": found.components,
            "stable_components": found.stable_components,
            "lowest_risk": min(risks, default=np.nan),
            "lowest_stable_risk": min(stable, default=np.nan),
        }
    if isinstance(compute, DMFT):
        overlap = settings.pop("overlap")
        start = State(Q=[[1.0]], M=[[overlap]])
        time, error = settings.pop("time"), settings.pop("error")
        limit = limits.dmft(problem, algorithm, target_error=error, **settings)
        solution = solve(limit, start, time, key=key)
        return {
            "overlap": float(solution.state.M[-1, 0, 0]),
            "overlap_uncertainty": float(solution.standard_error["M"][-1]),
            "training_loss": float(np.asarray(solution.training_loss)[-1]),
            "training_loss_uncertainty": float(solution.standard_error["training_loss"][-1]),
        }
    if isinstance(compute, Analysis):
        return _numbers(_analysed(compute.function, problem, algorithm, settings, key), compute)
    assert isinstance(compute, Function)
    return _numbers(imported(compute.function)(problem, algorithm, key=key, **settings), compute)


def many_cells(description: Description, values: dict[str, Any], keys: Any) -> dict[str, Any]:
    """The quantities of many cells from one call under vmap, for a function that says it can."""
    compute = description.compute
    assert isinstance(compute, Function)
    function = imported(compute.function)

    def one(values_and_key):
        values, key = values_and_key
        settings = settings_of(description, values)
        problem, algorithm = make_problem(description, values), make_algorithm(description, values)
        return function(problem, algorithm, key=key, **settings)

    found = jax.jit(lambda *cells: map_in_batches(one, cells))(values, keys)
    if absent := [name for name in compute.quantities if name not in found]:
        there = ", ".join(found)
        raise InvalidInput(f"compute: quantities: {', '.join(absent)} is not in what the function returns: {there}.")
    return {name: found[name] for name in compute.quantities}  # in this order: JAX sorts by name


def _analysed(function: Callable[..., Any], problem: Any, algorithm: Any, settings: dict[str, Any], key: Any) -> Any:
    taken = inspect.signature(function).parameters
    if "key" in taken:
        settings = settings | {"key": key}
    if "limit" in taken and "problem" not in taken:
        return function(limits.ode(problem, algorithm), **settings)  # there are none, which it says
    return function(problem, algorithm, **settings)


def _numbers(result: Any, compute: Analysis | Function) -> dict[str, float]:
    """The quantities that the study asks for, by name; `a.b` is the attribute b of the attribute a."""
    numbers = {}
    for name in compute.quantities:
        value = result
        try:
            for part in name.split("."):
                value = value[part] if isinstance(value, dict) else getattr(value, part)
            numbers[name] = np.nan if value is None else float(value)
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise InvalidInput(f"compute: quantities: {name} is no number of the result: {result!r:.200}") from error
    return numbers
