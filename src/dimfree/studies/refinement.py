"""Cells where a phase boundary is, chosen as results come in."""

import itertools
from typing import Any, cast

import adaptive
import numpy as np

from ..errors import InvalidInput
from .cells import Cells, Layout, cells_per_task
from .description import Description, Grid, Refinement
from .engine import Driver, Report
from .progress import Progress
from .quantities import quantities
from .store import Status

_EXPLORE = 0.1  # how much a simplex counts in which nothing changes; so that a second boundary is found


def refine(driver: Driver, *, progress: bool) -> Report:
    """Rounds of cells until the change of a quantity is located.

    A round is chosen from the results of all earlier ones, so that it is the same whenever and by whomever it is
    computed; a run that is interrupted goes through the rounds in its store first.
    """
    description, done = driver.description, driver.done
    search = Search(description)
    report = Report(driver.store.url, tasks=0)
    with Progress(search.goal.most_cells, 0, shown=progress) as bar, driver.connected() as compute:
        first = 0
        while first < search.goal.most_cells and not search.is_resolved:
            cells = search.choose(min(search.goal.cells_per_round, search.goal.most_cells - first))
            tasks = list(_tasks(description, cells, first))
            missing = [task for task in tasks if task.task not in done]
            report.tasks += len(tasks)
            report.done += len(tasks) - len(missing)
            bar.add(sum(len(task) for task in tasks if task.task in done))
            compute(missing, report, bar)
            if report.failures:
                break
            search.hear(*_results(driver, search.goal.quantity, tasks, slice(first, first + len(cells))))
            first += len(cells)
        bar.total = bar.done
    return report


class Search:
    """Points on the unit cube, from the package `adaptive`, that crowd where the quantity changes."""

    def __init__(self, description: Description):
        assert description.refine is not None
        self.goal: Refinement = description.refine
        self.axes = {name: axis for name, axis in description.axes.items() if isinstance(axis, Grid)}
        if fixed := [name for name in description.axes if name not in Layout(description).numbers]:
            raise InvalidInput(f"refine: {', '.join(fixed)} takes whole numbers or names, and cannot be refined.")
        if self.goal.quantity not in {quantity.name for quantity in quantities(description)}:
            raise InvalidInput(f"refine: quantity: {self.goal.quantity} is not computed by {description.compute.name}.")
        self.points: list[Any] = []
        self.lowest, self.highest = np.inf, -np.inf
        bounds = [(0.0, 1.0)] * len(self.axes)
        if len(bounds) == 1:
            self.learner: Any = adaptive.Learner1D(cast(Any, None), bounds[0], loss_per_interval=_interval_loss)
        else:
            self.learner = adaptive.LearnerND(cast(Any, None), bounds, loss_per_simplex=_simplex_loss)

    def choose(self, number: int) -> np.ndarray:
        """The next points, shape (cells, axes)."""
        self.points, _ = self.learner.ask(number)
        return np.array(self.points, float).reshape(len(self.points), len(self.axes))

    def hear(self, values: np.ndarray, status: np.ndarray) -> None:
        """What was found at the points; a cell that failed counts as the mean of all, so that it draws no others."""
        good = values[(status == Status.COMPUTED) & np.isfinite(values)]
        filler = float(good.mean()) if len(good) else 0.0
        if len(good):
            self.lowest, self.highest = min(self.lowest, good.min()), max(self.highest, good.max())
        for point, value, state in zip(self.points, values, status, strict=True):
            self.learner.tell(point, float(value) if state == Status.COMPUTED and np.isfinite(value) else filler)

    @property
    def is_resolved(self) -> bool:
        """Whether the quantity changes by half of its range nowhere but within the resolution."""
        if len(self.learner.data) < 2 ** len(self.axes) + 2 or not self.lowest < self.highest:
            return False
        half = 0.5 * (self.highest - self.lowest)
        return all(
            _length(points) <= self.goal.resolution
            for points, values in self._simplices()
            if max(values) - min(values) > half
        )

    def _simplices(self):
        data = {np.atleast_1d(point).astype(float).tobytes(): value for point, value in self.learner.data.items()}
        if len(self.axes) == 1:
            ordered = sorted(self.learner.data.items())
            for (left, low), (right, high) in itertools.pairwise(ordered):
                yield np.array([[left], [right]]), [low, high]
            return
        if self.learner.tri is None:  # fewer points than a simplex has
            return
        for simplex in self.learner.tri.simplices:
            points = np.array([self.learner.tri.vertices[i] for i in simplex], float)
            yield points, [data[point.tobytes()] for point in points]


def _tasks(description: Description, points: np.ndarray, first: int):
    """The tasks of a round; a round begins at a task of its own."""
    size = cells_per_task(description)
    axes = {name: axis for name, axis in description.axes.items() if isinstance(axis, Grid)}
    for begin in range(0, len(points), size):
        part = points[begin : begin + size]
        index = first + begin + np.arange(len(part))
        yield Cells(
            task=(first + begin) // size,
            index=index,
            values={name: axis.at(part[:, i]) for i, (name, axis) in enumerate(axes.items())},
            region=(slice(int(index[0]), int(index[-1]) + 1),),
            shape=(len(part),),
        )


def _results(driver: Driver, quantity: str, tasks: list[Cells], region: slice) -> tuple[np.ndarray, np.ndarray]:
    store, arrays = driver.store, driver.arrays
    records = {cells.task: record for cells in tasks if (record := store.record(cells.task, arrays)) is not None}
    fetch = store.fetcher(arrays, records)
    return arrays.read(quantity, fetch, region), arrays.read("status", fetch, region)


def _length(points: np.ndarray) -> float:
    """The longest edge, along any axis."""
    return float((points.max(axis=0) - points.min(axis=0)).max())


def _interval_loss(xs: Any, ys: Any) -> float:
    return (xs[1] - xs[0]) * (abs(ys[1] - ys[0]) + _EXPLORE * (xs[1] - xs[0]))


def _simplex_loss(points: Any, values: Any, scale: float) -> float:
    """The change of the quantity times the length over which it changes."""
    points, values = np.asarray(points, float), np.asarray(values, float)
    length = _length(points)
    return length * (np.ptp(values) + _EXPLORE * length)
