"""What a study will cost, before anything runs."""

import dataclasses
import itertools
import time

import numpy as np

from ..printing import duration
from .cells import Cells, Layout, cells_per_task, is_vectorised
from .computations import compute
from .description import Description
from .quantities import quantities

_GROUPS = 3  # sets of cells that are timed; each is compiled for itself
_CELLS = 16  # of each, where cells are computed together...
_FEW = 3  # ... and where they are not
_BRIEF = 0.3  # seconds of a measurement that is too short to tell
_LONG = 60.0  # seconds of a task above which it is too large: so much is lost with a worker
_SHORT = 0.3  # seconds below which handing it out costs more than a few percent


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a study will cost; it prints as a summary. Times are of one core of this machine.

    - `cells`, `tasks`, `cells_per_task`, `runs`: how much there is to do.
    - `bytes`: of the results, before compression.
    - `compile_seconds`: once on each worker for each kind of task.
    - `cell_seconds`: measured on `probed` cells, evenly spread.
    """

    cells: int
    tasks: int
    cells_per_task: int
    runs: int
    bytes: int
    probed: int
    compile_seconds: float
    cell_seconds: float
    upper: bool = False

    @property
    def task_seconds(self) -> float:
        """A typical task."""
        return self.cell_seconds * self.cells_per_task

    def seconds(self, workers: int = 1) -> float:
        """All of it, on so many workers: a task takes as long as a full one, also at the edge of the grid."""
        return self.compile_seconds + -(-self.tasks // workers) * self.task_seconds

    def __str__(self) -> str:
        most = "at most " if self.upper else ""
        lines = [
            f"{most}{self.cells:,} cells of {self.runs} runs, in {self.tasks:,} tasks of {self.cells_per_task} cells",
            f"{most}{self.bytes / 2**20:.3g} MiB of results, before compression",
            f"{self.cell_seconds:.3g} s a cell, {duration(self.task_seconds)} a task, measured on {self.probed} cells; "
            f"{self.compile_seconds:.2g} s to compile",
            "estimated time: "
            + ", ".join(f"{duration(self.seconds(n))} on {n} worker{'s' * (n > 1)}" for n in (1, 2, 8, 64)),
        ]
        if self.task_seconds > _LONG and self.cells_per_task > 1:
            lines.append(f"Tasks are long; cells_per_task: {max(1, int(10 / self.cell_seconds))} would lose less.")
        if self.task_seconds < _SHORT and self.tasks > 64:
            lines.append(f"Tasks are short; cells_per_task: {int(2 / self.cell_seconds)} would cost less to hand out.")
        return "\n".join(lines)

    __repr__ = __str__


def plan(description: Description) -> Plan:
    """Count the cells, and time some of them."""
    layout = Layout(description)
    refine = description.refine
    size = cells_per_task(description)
    if refine is None:
        cells, tasks, size = description.number_of_cells, layout.number_of_tasks, int(np.prod(layout.tile))
    else:
        cells = refine.most_cells
        tasks = -(-cells // size)
    width = sum(np.dtype(quantity.dtype).itemsize for quantity in quantities(description))
    number = _CELLS if is_vectorised(description) else _FEW
    compiling, seconds, probed = _timed(layout, number)
    if is_vectorised(description) and seconds < _BRIEF and size > number:
        # Most of it was the cost of a call: time what a task is.
        compiling, seconds, probed = _timed(layout, size)
    return Plan(
        cells=cells,
        tasks=tasks,
        cells_per_task=size,
        runs=description.runs,
        bytes=cells * width,
        probed=probed,
        compile_seconds=compiling,
        cell_seconds=seconds / probed,
        upper=refine is not None,
    )


def _timed(layout: Layout, number: int) -> tuple[float, float, int]:
    """Seconds to compile, seconds to compute, and how many cells were computed."""
    compiling, seconds, probed = 0.0, 0.0, 0
    for group in _probes(layout, number):
        times = []
        for _ in range(2 if is_vectorised(layout.description) else 1):
            began = time.perf_counter()
            compute(layout.description, group, size=len(group))
            times.append(time.perf_counter() - began)
        compiling += times[0] - times[-1]
        seconds += times[-1]
        probed += len(group)
    return compiling, seconds, probed


def _probes(layout: Layout, number: int) -> list[Cells]:
    """A few sets of cells, evenly over the grid; those of a set can be computed together."""
    fixed = [name for name in layout.names if name not in layout.numbers]
    free = [name for name in layout.names if name in layout.numbers]
    choices = list(itertools.product(*(range(len(layout.axes[name])) for name in fixed)))
    chosen = {choices[i] for i in np.linspace(0, len(choices) - 1, min(_GROUPS, len(choices))).round().astype(int)}
    groups = []
    for choice in sorted(chosen):
        at = {name: np.full(number, index) for name, index in zip(fixed, choice, strict=True)}
        # The golden ratio fills the second and further axes evenly, however long the first is.
        evenly = [(np.arange(number) + 0.5) / number, *(np.arange(number) * 0.618**i % 1 for i in range(1, len(free)))]
        at |= {name: (part * len(layout.axes[name])).astype(int) for name, part in zip(free, evenly, strict=False)}
        groups.append(layout.cells(at))
    return groups
