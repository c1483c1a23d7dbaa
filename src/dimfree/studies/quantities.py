"""What a study keeps of each cell."""

import dataclasses
from typing import Any

import numpy as np

from ..analysis.uncertainty import fraction_error
from .description import Analysis, Description, Function, is_random

_FLOAT, _NAN = "float64", float("nan")


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A number for each cell: its name, what it means, its type, and what stands where it was not computed."""

    name: str
    meaning: str
    dtype: str = _FLOAT
    fill: Any = _NAN


def quantities(description: Description) -> list[Quantity]:
    """What is kept of each cell, the quantity that `target_error` is about first."""
    found = []
    meanings = _MEANINGS.get(description.compute.name, _own(description))
    if observed := getattr(description.compute, "observe", None):
        meanings = meanings | {observed: f"mean {observed} over fresh samples at alpha"}
    for name, meaning in meanings.items():
        found.append(Quantity(name, meaning))
        if is_random(description) and name not in _WITHOUT_ERROR:
            found.append(Quantity(f"{name}_error", f"standard error of {name}"))
    if description.target_error is not None:
        found.append(Quantity("runs", "runs that were made", "int32", 0))
    if description.refine is not None:
        found += [Quantity(name, "where the cell is") for name in description.axes]
    return [*found, Quantity("status", "0 missing, 1 computed, 2 failed, 3 timed out", "uint8", 0)]


def averages(values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Mean and standard error over the last axis, of what is finite there."""
    found = {}
    for name, runs in values.items():
        finite = np.isfinite(runs)
        number = finite.sum(axis=-1)
        mean = np.where(finite, runs, 0.0).sum(axis=-1) / np.maximum(number, 1)
        square = np.where(finite, runs - mean[..., None], 0.0) ** 2
        error = np.sqrt(square.sum(axis=-1) / np.maximum(number - 1, 1) / np.maximum(number, 1))
        found[name] = np.where(number > 0, mean, np.nan)
        found[f"{name}_error"] = np.where(number > 1, error, np.nan)
    return found


def fraction(events: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The fraction of true entries along the last axis, and its standard error, which is not zero for all or none."""
    number, count = events.shape[-1], events.sum(axis=-1)
    return count / number, fraction_error(count, number)


def _own(description: Description) -> dict[str, str]:
    compute = description.compute
    return {name: "" for name in compute.quantities} if isinstance(compute, Analysis | Function) else {}


_WITHOUT_ERROR = {"exit_time_median", "diverged"}
_MEANINGS = {
    "exit_time": {
        "left": "fraction of runs that left the plateau by alpha",
        "exit_time": "mean alpha at which those runs left",
        "exit_time_median": "median over all runs, infinite where half of them stay",
        "diverged": "fraction of runs that diverged",
    },
    "simulate": {
        "risk": "mean risk of the runs that completed",
        "squared_overlap": "mean sum of the squares of M",
        "diverged": "fraction of runs that diverged",
    },
    "solve": {
        "risk": "risk at alpha",
        "squared_overlap": "sum of the squares of M at alpha",
        "diverged": "fraction of starts from which it diverges",
    },
    "fixed_points": {
        "components": "connected sets of fixed points",
        "stable_components": "those that attract",
        "lowest_risk": "lowest risk of a fixed point",
        "lowest_stable_risk": "lowest risk of one that attracts",
    },
    "dmft": {
        "overlap": "M at the end",
        "overlap_uncertainty": "its standard error",
        "training_loss": "training loss at the end",
        "training_loss_uncertainty": "its standard error",
    },
}
