"""The cells of a study, and how they are grouped into tasks."""

import dataclasses
import inspect
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import algorithms, registry
from ..errors import InvalidInput, check_memory
from ..problems.base import check_classes, check_problem
from ..trajectory import bytes_of_state
from .description import Analysis, Description, Function, axis_values

_RUNS_IN_A_TASK = 4_096  # unless the study says: seconds of simulation
_CELLS_IN_A_TASK = 1_024
_MOST_TASKS = 10**7
_BYTES_OF_A_RUN = 64  # its key, and what is kept of it
_SPECTRUM = "spectrum."  # what axes of its settings begin with, after the problem
_NUMBERS = {"alpha", "threshold", "overlap"}  # settings of computations that may differ between the cells of a task


@dataclasses.dataclass(frozen=True, eq=False)
class Cells:
    """The cells of one task.

    - `task`: its number.
    - `index`: the number of each cell, which seeds it.
    - `values`: of each axis, at each cell.
    - `region`: where in the arrays of the store they are, and `shape`: of what is written there.
    """

    task: int
    index: np.ndarray
    values: dict[str, Any]
    region: tuple[slice, ...]
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.index)

    def at(self, position: int) -> dict[str, Any]:
        """The values of one cell, as Python numbers."""
        return {name: _python(values[position]) for name, values in self.values.items()}


class Layout:
    """The grid of a study cut into tiles, each a task and a chunk of the store.

    An axis whose values cannot be numbers of one compiled program (widths, names, d) has tiles of length one.
    """

    def __init__(self, description: Description):
        self.description = description
        self.names = tuple(description.axes)
        self.axes = {name: _typed(axis_values(axis)) for name, axis in description.axes.items()}
        self.shape = tuple(len(values) for values in self.axes.values())
        _check_first(description, {name: values[0] for name, values in self.axes.items()})
        self.numbers = {name for name in self.names if is_number(description, name)}
        free = [len(values) if name in self.numbers else 1 for name, values in self.axes.items()]
        self.tile = _tile(free, cells_per_task(description))
        self.tiles = tuple(math.ceil(n / side) for n, side in zip(self.shape, self.tile, strict=True))
        if self.number_of_tasks > _MOST_TASKS and description.refine is None:
            raise InvalidInput(
                f"The study has {self.number_of_tasks:,} tasks of {math.prod(self.tile):,} cells, each with files of "
                f"its own; at most {_MOST_TASKS:,} are possible. Take fewer points, or more cells_per_task."
            )
        self.task_bytes = _task_bytes(description, self.axes, math.prod(self.tile))
        check_memory(
            self.task_bytes,
            f"A task of {math.prod(self.tile):,} cells with {description.runs:,} runs each",
            "Take fewer runs, smaller networks, or fewer cells in a task (cells_per_task).",
        )

    @property
    def number_of_tasks(self) -> int:
        """How many tasks there are."""
        return math.prod(self.tiles)

    def task(self, number: int) -> Cells:
        """The cells of a task."""
        corner = np.unravel_index(number, self.tiles)
        region = tuple(
            slice(int(i) * side, min((int(i) + 1) * side, n))
            for i, side, n in zip(corner, self.tile, self.shape, strict=True)
        )
        indices = np.meshgrid(*(np.arange(part.start, part.stop) for part in region), indexing="ij")
        return Cells(
            task=number,
            index=np.ravel_multi_index([index.ravel() for index in indices], self.shape),
            values={name: self._values(name)[i.ravel()] for name, i in zip(self.names, indices, strict=True)},
            region=region,
            shape=tuple(part.stop - part.start for part in region),
        )

    def _values(self, name: str) -> np.ndarray:
        """The values along an axis: floats where a compiled program takes them, else objects of Python."""
        if is_vectorised(self.description) and name in self.numbers:
            return self.axes[name].astype(float)
        return np.array(self.axes[name].tolist(), dtype=object)

    def cells(self, at: dict[str, np.ndarray]) -> Cells:
        """Any cells, by their indices along each axis; they have no region in the store."""
        indices = [at[name] for name in self.names]
        values = {name: self._values(name)[at[name]] for name in self.names}
        index = np.ravel_multi_index(indices, self.shape)
        return Cells(-1, index, values, (), (len(index),))


def _check_first(description: Description, values: dict[str, Any]) -> None:
    """An error, before anything runs, if the first cell cannot be."""
    problem = make_problem(description, values)
    algorithm, name = make_algorithm(description, values), description.compute.name
    known = {"fixed_points": ("tokens",), "exit_time": ("spectrum", "tokens"), "dmft": ()}
    if _home(description) == "problem":
        check_problem(problem, *known.get(name, ("spectrum", "tokens", "change")))
    if getattr(description.compute, "observe", None) is not None:
        check_classes(problem, "compute: observe: accuracy")
    online = isinstance(algorithm, algorithms.OnlineAlgorithm)
    if name == "dmft" and online:
        raise InvalidInput(
            "compute: name: dmft is for reused data, such as GradientDescent; for fresh samples use solve."
        )
    if not online and not isinstance(description.compute, Function) and name != "dmft":
        raise InvalidInput(
            f"compute: name: {name} is for fresh samples (OnlineSGD, Momentum, ...); for reused data compute dmft, or "
            "a function."
        )


def _task_bytes(description: Description, axes: dict[str, np.ndarray], cells: int) -> int:
    """Bytes that the States of a task take, its network being the widest; zero where a function makes its own."""
    if not is_vectorised(description) or isinstance(description.compute, Function):
        return 0
    wide = ("problem.width", "problem.teacher_width")
    values = {name: max(axis) if name in wide else axis[0] for name, axis in axes.items()}
    return cells * description.runs * (bytes_of_state(make_problem(description, values)) + _BYTES_OF_A_RUN)


def cells_in_full_task(description: Description) -> int:
    """How many cells a task has that is not at the edge of the grid: fewer than it may have where the grid is small."""
    return cells_per_task(description) if description.refine is not None else math.prod(Layout(description).tile)


def cells_per_task(description: Description) -> int:
    """How many cells a task may have."""
    number = description.cells_per_task
    if number is None:
        number = max(1, min(_CELLS_IN_A_TASK, _RUNS_IN_A_TASK // description.runs)) if is_vectorised(description) else 1
    if description.refine is not None:
        # A round is a whole number of tasks, each with a chunk of its own.
        whole = description.refine.cells_per_round
        number = max(divisor for divisor in range(1, min(number, whole) + 1) if whole % divisor == 0)
    return number


def is_vectorised(description: Description) -> bool:
    """Whether the cells of a task are computed in one call, rather than one by one."""
    compute = description.compute
    return compute.vectorised if isinstance(compute, Function) else compute.name in ("exit_time", "simulate", "solve")


def is_number(description: Description, name: str) -> bool:
    """Whether the values of an axis may differ between the cells of a task."""
    if not is_vectorised(description):
        return True
    home, _, argument = name.rpartition(".")
    if home == "problem.spectrum":  # its blocks are arranged in Python
        return False
    if not home:
        return argument in _NUMBERS or isinstance(description.compute, Analysis | Function)
    first = {other: _typed(axis_values(axis))[0] for other, axis in description.axes.items()}
    built = make_problem(description, first) if home == "problem" else make_algorithm(description, first)
    if not hasattr(built, argument):  # a constructor that keeps something else: its signature says
        of: registry.Home = "problem" if home == "problem" else "algorithm"
        known = registry.parameters(of, registry.find(of, getattr(description, of)["name"]))
        return known[argument].annotation == float | jax.Array
    value = getattr(built, argument)
    return isinstance(value, jax.Array) and value.ndim == 0 and jnp.issubdtype(value.dtype, jnp.floating)


def make_problem(description: Description, values: dict[str, Any]) -> Any:
    """The problem of a cell, or the family of problems that a scaling law is of; numbers may be traced."""
    return _make(_home(description), description.problem, values)


def make_algorithm(description: Description, values: dict[str, Any]) -> Any:
    """The algorithm of a cell; numbers may be traced."""
    return _make("algorithm", description.algorithm, values)


def settings_of(description: Description, values: dict[str, Any]) -> dict[str, Any]:
    """The settings of the computation in a cell."""
    compute = description.compute
    given = compute.settings if isinstance(compute, Analysis | Function) else compute.model_dump(exclude={"name"})
    return given | {name: value for name, value in values.items() if "." not in name}


def _home(description: Description) -> registry.Home:
    """Where the problem of the study is found by its name."""
    compute = description.compute
    of_families = isinstance(compute, Analysis) and "family" in inspect.signature(compute.function).parameters
    return "family" if of_families else "problem"


def _make(home: registry.Home, settings: dict[str, Any], values: dict[str, Any]) -> Any:
    setting = "algorithm" if home == "algorithm" else "problem"  # which axes are of it
    arguments = {argument: value for argument, value in settings.items() if argument != "name"}
    own = {axis.removeprefix(f"{setting}."): value for axis, value in values.items() if axis.startswith(f"{setting}.")}
    of_spectrum = {name: value for name, value in own.items() if name.startswith(_SPECTRUM)}
    for name, value in of_spectrum.items():
        arguments["spectrum"] = arguments["spectrum"] | {name.removeprefix(_SPECTRUM): _python(value)}
    arguments |= {name: value for name, value in own.items() if name not in of_spectrum}
    return registry.make(home, settings["name"], {argument: _python(value) for argument, value in arguments.items()})


def _python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _typed(values: Any) -> np.ndarray:
    """Values as an array; whole numbers stay whole, and words words."""
    array = np.asarray(values)
    return array if array.dtype.kind in "bif" else np.asarray(values, dtype=object)


def _tile(lengths: list[int], cells: int) -> tuple[int, ...]:
    """The sides of a box of at most so many cells, as even as can be."""
    sides = [1] * len(lengths)
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    for done, i in enumerate(order):
        sides[i] = min(lengths[i], int(cells ** (1 / (len(order) - done)) + 1e-9))
        cells //= sides[i]
    return tuple(sides)
