"""What a study will cost, before anything runs."""

import dataclasses
import enum
import math
import time
from typing import Any

import jax.monitoring
import numpy as np

from ..errors import in_bytes
from ..printing import duration
from .cells import Cells, Layout, cells_per_task, is_vectorised, make_algorithm, settings_of
from .computations import compute
from .description import Description, ExitTime, Simulate, Solve
from .quantities import quantities

_GROUPS = 3  # sets of cells that are timed; each is compiled for itself
_CELLS = 16  # of each, where cells are computed together...
_FEW = 3  # ... and where they are not
_BRIEF = 0.3  # seconds of a measurement that is too short to tell
_LONG = 60.0  # seconds of a task above which it is too large, for so much is lost with a worker; or is computed once
# Events of JAX.
_COMPILING = "/jax/core/compile/"
_PROGRAM = "/jax/core/compile/backend_compile_duration"  # also of a program that is loaded
_LOADED = "/jax/compilation_cache/cache_hits"
_STEPS = 1e6  # of a cell that is timed, in all its runs...
_RUNS = 8  # ... which are simulated together, and fill the lanes
_STEPS_OF_A_SOLUTION = 1e3  # ... as which a solution counts
_STEPS_OF_A_CALL = 1e5  # ... and a call of a function
_SHORT = 0.3  # seconds below which handing it out costs more than a few percent


class Programs(enum.StrEnum):
    """Where the compiled programs came from that were timed."""

    COMPILED = "compiled"
    LOADED = "loaded"
    IN_MEMORY = "in memory"


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a study will cost; it prints as a summary. Times are of one core of this machine.

    - `cells`, `tasks`, `cells_per_task`, `runs`: how much there is to do.
    - `bytes`: of the results, before compression.
    - `compile_seconds`: once on each worker for each kind of task; not known if `programs` is `in memory`.
    - `programs`: `compiled` for the plan, `loaded` from those that JAX keeps on disk (workers load them too), or
      `in memory` since this process used them before.
    - `cell_seconds`: measured on `probed` cells, evenly spread; where a cell takes long, on fewer runs and steps, by
      the factor `shortened`.
    - `task_bytes`: memory that the States of a task take, beside what JAX itself takes.
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
    task_bytes: int = 0
    shortened: float = 1.0
    programs: Programs = Programs.COMPILED

    @property
    def task_seconds(self) -> float:
        """A typical task."""
        return self.cell_seconds * self.cells_per_task

    def seconds(self, workers: int = 1) -> float:
        """All of it, on so many workers: a task takes as long as a full one, also at the edge of the grid."""
        return self.compile_seconds + -(-self.tasks // workers) * self.task_seconds

    def __str__(self) -> str:
        most = "at most " if self.upper else ""
        shorter = f" with {self.shortened:.3g} times fewer runs or steps" if self.shortened > 1 else ""
        lines = [
            f"{most}{self.cells:,} cells of {self.runs} runs, in {self.tasks:,} tasks of {self.cells_per_task} cells",
            f"{most}{in_bytes(self.bytes)} of results, before compression",
            f"{in_bytes(self.task_bytes)} of memory for the States of a task" if self.task_bytes else "",
            f"{duration(self.cell_seconds)} a cell, {duration(self.task_seconds)} a task, measured on {self.probed} "
            f"cells{shorter}",
            {
                Programs.COMPILED: f"{duration(self.compile_seconds)} to compile, once on each worker",
                Programs.LOADED: f"{duration(self.compile_seconds)} to load compiled programs, once on each worker",
                Programs.IN_MEMORY: "compiled before in this process; how long each worker takes for it is not known",
            }[self.programs],
            "estimated time: "
            + ", ".join(f"{duration(self.seconds(n))} on {n} worker{'s' * (n > 1)}" for n in (1, 2, 8, 64)),
        ]
        if self.task_seconds > _LONG and self.cells_per_task > 1:
            lines.append(f"Tasks are long; cells_per_task: {max(1, int(10 / self.cell_seconds))} would lose less.")
        if self.task_seconds < _SHORT and self.tasks > 64:
            lines.append(f"Tasks are short; cells_per_task: {int(2 / self.cell_seconds)} would cost less to hand out.")
        return "\n".join(line for line in lines if line)

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
    with _Compiler() as compiler:
        compiling, seconds, probed, shorter = _timed(layout, number, compiler)
        if is_vectorised(description) and seconds < _BRIEF and size > number:
            # Most of it was the cost of a call: time what a task is.
            compiling, seconds, probed, shorter = _timed(layout, size, compiler)
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
        task_bytes=layout.task_bytes,
        shortened=shorter,
        programs=compiler.programs,
    )


def _timed(layout: Layout, number: int, compiler: "_Compiler") -> tuple[float, float, int, float]:
    """Seconds to compile, seconds to compute, how many cells were computed, and how much shorter than they are."""
    compiling, seconds, probed, shortest = 0.0, 0.0, 0, 1.0
    for group in _probes(layout, number):
        description, cells, shorter = _shortened(layout.description, group)
        before = compiler.seconds
        first = _seconds(description, cells)
        # The first call compiles, which may take a hundred times as long as to compute. What JAX says of its compiler
        # leaves out a part of it, so the second call tells; but not where that would take too long.
        computing = max(0.0, first - (compiler.seconds - before))
        again = _seconds(description, cells) if computing < _LONG else computing
        compiling += max(0.0, first - again)
        seconds += again * shorter
        probed += len(cells)
        shortest = max(shortest, shorter)
    return compiling, seconds, probed, shortest


def _seconds(description: Description, cells: Cells) -> float:
    """How long these cells take, computed as one task."""
    began = time.perf_counter()
    compute(description, cells, size=len(cells))
    return time.perf_counter() - began


class _Compiler:
    """Hears what JAX says of its compiler: the seconds it took, and how many programs were asked for and loaded."""

    def __init__(self) -> None:
        self.seconds, self.programs_used, self.loaded = 0.0, 0, 0

    def __enter__(self) -> "_Compiler":
        jax.monitoring.register_event_duration_secs_listener(self._took)
        jax.monitoring.register_event_listener(self._happened)
        return self

    def __exit__(self, *exception: object) -> None:
        jax.monitoring.unregister_event_duration_listener(self._took)
        jax.monitoring.unregister_event_listener(self._happened)

    @property
    def programs(self) -> Programs:
        """Where programs came from; one that was compiled takes longer than all that were loaded."""
        if not self.programs_used:
            return Programs.IN_MEMORY
        return Programs.LOADED if self.loaded >= self.programs_used else Programs.COMPILED

    def _took(self, event: str, duration_secs: float, **_: Any) -> None:
        if event.startswith(_COMPILING):
            self.seconds += duration_secs
            self.programs_used += event == _PROGRAM

    def _happened(self, event: str, **_: Any) -> None:
        self.loaded += event == _LOADED


def _shortened(description: Description, cells: Cells) -> tuple[Description, Cells, float]:
    """A description and cells that take seconds, and how many times as long the given ones take."""
    settings = settings_of(description, cells.values)
    steps, samples, alphas = _STEPS_OF_A_CALL, 1.0, None
    if isinstance(description.compute, ExitTime | Simulate):
        alphas = np.broadcast_to(np.asarray(settings["alpha"], float), (len(cells),))
        batch = make_algorithm(description, cells.at(0)).batch_size
        samples = np.max(np.asarray(settings["d"], float)) / batch
        steps = samples * alphas.max()
    elif isinstance(description.compute, Solve):
        steps = _STEPS_OF_A_SOLUTION
    if description.runs * steps <= _STEPS:
        return description, cells, 1.0
    runs = min(description.runs, max(_RUNS if alphas is not None else 2, int(_STEPS // steps)))
    changed: dict[str, Any] = {"runs": runs, "target_error": None, "most_runs": None}
    shorter = description.runs / runs
    if alphas is not None:
        end = min(alphas.max(), _STEPS / (runs * samples))
        shorter *= alphas.sum() / np.minimum(alphas, end).sum()
        changed["compute"] = description.compute.model_copy(update={"alpha": end})
        if "alpha" in cells.values:
            cells = dataclasses.replace(cells, values=cells.values | {"alpha": np.minimum(alphas, end)})
    return description.model_copy(update=changed), cells, float(shorter)


def _probes(layout: Layout, number: int) -> list[Cells]:
    """A few sets of cells, evenly over the grid; those of a set can be computed together."""
    fixed = [name for name in layout.names if name not in layout.numbers]
    free = [name for name in layout.names if name in layout.numbers]
    lengths = tuple(len(layout.axes[name]) for name in fixed)
    choices = math.prod(lengths)
    chosen = sorted(set(np.linspace(0, choices - 1, min(_GROUPS, choices)).round().astype(int)))
    groups = []
    for choice in chosen:
        place = np.unravel_index(choice, lengths) if lengths else ()
        at = {name: np.full(number, index) for name, index in zip(fixed, place, strict=True)}
        # The golden ratio fills the second and further axes evenly, however long the first is.
        evenly = [(np.arange(number) + 0.5) / number, *(np.arange(number) * 0.618**i % 1 for i in range(1, len(free)))]
        at |= {name: (part * len(layout.axes[name])).astype(int) for name, part in zip(free, evenly, strict=False)}
        groups.append(layout.cells(at))
    return groups
