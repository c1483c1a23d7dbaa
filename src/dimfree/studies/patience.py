"""How long a task may take before its worker is stopped, and another worker computes it."""

from typing import Any

import numpy as np

from .cells import Cells, Layout, is_number, is_vectorised, settings_of
from .description import Description, ExitTime, Grid, Simulate, Solve
from .store import Record

_FLOOR = 300.0  # seconds that every task may take: the first ones compile, on a busy machine
_FACTOR = 20.0  # times as long as the slowest task of its kind so far
_UNKNOWN = 3_600.0  # seconds, as long as no task of its kind is done
_GRACE = 10.0  # seconds in which a worker may end by itself the cell that took longer than `timeout`
_SAMPLE = 256  # tasks in the store from which times are learned: enough to know the slowest


class Patience:
    """Learns from the tasks that are done how long others may take.

    With `timeout` in the study, that holds. Otherwise a task may take twenty times as long as the slowest task of its
    kind so far, and at least five minutes; twice as long on each further attempt. Tasks are of the same kind if they
    differ in numbers of the problem and the algorithm only: a width or a dimension may change everything.
    """

    def __init__(self, description: Description):
        self.description, self.together = description, is_vectorised(description)
        self.apart = [name for name in description.axes if not self._is_number(name)]
        most, runs = description.most_runs, description.runs
        self.more = max(1.0, most / runs) if most is not None else 1.0  # a cell may take so many times as many runs
        self.rates: dict[Any, float] = {}  # seconds by unit of work, of the slowest task of each kind

    def _is_number(self, name: str) -> bool:
        if self.together:
            return is_number(self.description, name)
        axis = self.description.axes[name]
        return "." in name and (isinstance(axis, Grid) or isinstance(axis[0], float))

    def learn(self, cells: Cells, seconds: float) -> None:
        """A task is done, and took so long."""
        kind = self._kind(cells)
        self.rates[kind] = max(self.rates.get(kind, 0.0), seconds / self._work(cells))

    def learn_from(self, done: dict[int, Record]) -> None:
        """Tasks of earlier runs."""
        if self.description.refine is not None:  # where their cells were is known later
            return
        layout, tasks = Layout(self.description), list(done)
        for task in tasks[:: max(1, len(tasks) // _SAMPLE)]:
            seconds = done[task].get("seconds")
            if isinstance(seconds, int | float):
                self.learn(layout.task(task), float(seconds))

    def expected(self, cells: Cells) -> float | None:
        """Seconds that the task takes at most, if it is as slow as the slowest of its kind; None if there was none."""
        rate = self.rates.get(self._kind(cells))
        return None if rate is None else rate * self._work(cells)

    def seconds(self, cells: Cells, attempt: int) -> float:
        """How long the task may take; attempts are counted from zero."""
        timeout = self.description.timeout
        if timeout is not None:
            return timeout * (1 if self.together else len(cells)) + _GRACE
        expected = self.expected(cells)
        return 2.0**attempt * (_UNKNOWN if expected is None else max(_FLOOR, _FACTOR * self.more * expected))

    def silence(self, usual: float) -> float:
        """Seconds without a sign of life after which a worker is stopped: while it is silent, a cell may compute."""
        timeout = self.description.timeout
        return usual if timeout is None else max(0.5 * usual, timeout + _GRACE)

    def _kind(self, cells: Cells) -> Any:
        return tuple(tuple(sorted(set(map(str, cells.values[name].tolist())))) for name in self.apart)

    def _work(self, cells: Cells) -> float:
        """What time is proportional to, within a kind: how long the cells are followed, or their number."""
        if not isinstance(self.description.compute, ExitTime | Simulate | Solve):
            return float(len(cells))
        alpha = settings_of(self.description, cells.values)["alpha"]
        return float(np.mean(np.asarray(alpha, float))) * len(cells)
