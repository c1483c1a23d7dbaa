"""The driver: hands tasks to workers until all are done, and loses nothing when it is interrupted."""

import contextlib
import dataclasses
import json
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from distributed import Client, Future, KilledWorker, as_completed

from ..errors import InvalidInput
from ..printing import duration
from .arrays import Arrays
from .cells import Cells, Layout
from .description import Description
from .files import FULL
from .lock import Lock
from .progress import Progress
from .store import Record, Store, made_with
from .tasks import run_task
from .workers import Cluster

_RETRIES = 2  # of a task that raised
_RESUBMITS = 2  # of a task whose workers died; it is given up when twenty-one have: each takes seconds to start
_COUNT_EVERY = 10.0  # seconds between two counts of the workers


class Interrupted(Exception):
    """The study stopped before it was complete; what is done is in the store."""


@dataclasses.dataclass
class Report:
    """How a run of a study went; it prints as a summary.

    - `tasks`, `done`: of the study, and how many of them are in the store.
    - `computed`: tasks computed by this run.
    - `repaired`: of those, tasks whose results were there, but damaged.
    - `failures`: tasks that could not be computed, with the reason; they are tried again by the next run.
    - `failed_cells`, `timed_out_cells`: of the tasks of this run, by their number.
    """

    store: str
    tasks: int
    done: int = 0
    computed: int = 0
    seconds: float = 0.0
    repaired: list[int] = dataclasses.field(default_factory=list)
    failures: dict[int, str] = dataclasses.field(default_factory=dict)
    failed_cells: dict[int, str] = dataclasses.field(default_factory=dict)
    timed_out_cells: list[int] = dataclasses.field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return self.done == self.tasks

    def add(self, record: dict[str, Any]) -> None:
        """A task is done."""
        self.done += 1
        self.computed += 1
        self.failed_cells |= {int(cell): words for cell, words in record["failed"].items()}
        self.timed_out_cells += record["timed_out"]

    def __str__(self) -> str:
        lines = [
            f"{self.done} of {self.tasks} tasks are in {self.store}; {self.computed} computed now, "
            f"in {duration(self.seconds)}."
        ]
        if self.repaired:
            shown = ", ".join(map(str, self.repaired[:8])) + ", ..." * (len(self.repaired) > 8)
            lines.append(f"  {len(self.repaired)} of them were there, but damaged or without some chunk: {shown}")
        for cell, words in list(self.failed_cells.items())[:5]:
            lines.append(f"  cell {cell} failed: {words}")
        if len(self.failed_cells) > 5:
            lines.append(f"  ... and {len(self.failed_cells) - 5} more; their status is 2")
        if self.timed_out_cells:
            shown = ", ".join(map(str, self.timed_out_cells[:8]))
            lines.append(f"  {len(self.timed_out_cells)} cells took too long: {shown}; their status is 3")
        for task, words in list(self.failures.items())[:5]:
            lines.append(f"  task {task} could not be computed: {words}")
        if not self.complete:
            lines.append("  Run the same command again to compute what is missing.")
        return "\n".join(lines)

    __repr__ = __str__


def run(
    description: Description,
    url: str,
    cluster: Cluster,
    *,
    accept_changes: bool = False,
    repair: bool = False,
    progress: bool = True,
) -> Report:
    """Compute what is missing of a study."""
    store = Store(url)
    if store.files.is_of_this_process and cluster.kind != "inline":
        raise InvalidInput(
            f"{url} was given as a store: the memory of this process, which workers do not see. Give a directory, or "
            "cluster='inline'."
        )
    arrays = Arrays(description)
    store.begin(description)
    with Lock(store.files) as lock:
        store.files.tidy()
        done, damaged = store.take_up(description, arrays, accept_changes=accept_changes, repair=repair)
        began = time.perf_counter()
        driver = Driver(description, store, arrays, done, cluster, lock)
        if description.refine is not None:
            from .refinement import refine

            report = refine(driver, progress=progress)
        else:
            layout = Layout(description)
            report = Report(url, layout.number_of_tasks, len(done))
            missing = [task for task in range(layout.number_of_tasks) if task not in done]
            cells = description.number_of_cells
            left = sum(len(layout.task(task)) for task in missing) if len(missing) < report.tasks else cells
            with Progress(cells, cells - left, shown=progress) as bar:
                if missing:
                    with driver.connected() as compute:
                        compute((layout.task(task) for task in missing), report, bar)
        report.repaired = damaged
        if report.complete:
            store.refuse_if_damaged(arrays, digests=True)
        report.seconds = time.perf_counter() - began
    return report


class Driver:
    """Hands out tasks and hears of them."""

    def __init__(
        self,
        description: Description,
        store: Store,
        arrays: Arrays,
        done: dict[int, Record],
        cluster: Cluster,
        lock: Lock,
    ):
        self.description, self.store, self.arrays, self.done = description, store, arrays, done
        self.cluster, self.lock = cluster, lock
        self.text, self.made_with = json.dumps(description.to_dict()), made_with(description)

    @contextlib.contextmanager
    def connected(self) -> Iterator[Callable[[Iterable[Cells], Report, Progress], None]]:
        """A function that computes tasks, while the cluster is up."""
        if self.cluster.kind == "inline":
            yield self._inline
            return
        with self.cluster.connect(self.store.files.root) as client:
            yield lambda tasks, report, bar: _Rush(self, client, tasks, report, bar).all()

    def _inline(self, tasks: Iterable[Cells], report: Report, bar: Progress) -> None:
        for cells in tasks:
            try:
                record = run_task(self.text, self.store.url, cells, self.made_with, may_exit=False)
            except OSError as error:
                raise (self.full_disk() if error.errno in FULL else error) from error
            report.add(record)
            bar.add(len(cells), len(record["failed"]))

    def full_disk(self) -> Interrupted:
        """What ends a study when there is no space left."""
        return Interrupted(f"The disk of {self.store.url} is full. Make space and run the same command again to go on.")


class _Rush:
    """Some tasks on their way through a cluster."""

    def __init__(self, driver: Driver, client: Client, tasks: Iterable[Cells], report: Report, bar: Progress):
        self.driver, self.client, self.tasks, self.report, self.bar = driver, client, iter(tasks), report, bar
        self.name = uuid.uuid4().hex
        self.under_way: dict[str, Cells] = {}
        self.submits: dict[int, int] = {}
        self.late: dict[int, int] = {}
        self.most, self.counted = 16, -_COUNT_EVERY
        self.results = as_completed(loop=client.loop, with_results=False, raise_errors=False)

    def all(self) -> None:
        """Until all are done, or have failed."""
        self._fill()
        for future in self.results:
            cells = self.under_way.pop(future.key)
            self._heard(future, cells)
            if self.driver.lock.is_lost:
                raise Interrupted("Another driver has taken over this store while this one slept.")
            self._fill()

    def _fill(self) -> None:
        """Keep workers busy, and no more: a study has more tasks than a scheduler should hold."""
        if time.monotonic() - self.counted > _COUNT_EVERY:
            self.most = max(16, 4 * len(cast(dict, self.client.ncores())))
            self.counted = time.monotonic()
        while len(self.under_way) < self.most and (cells := next(self.tasks, None)) is not None:
            self._submit(cells)

    def _submit(self, cells: Cells) -> None:
        number = self.submits.get(cells.task, 0)
        self.submits[cells.task] = number + 1
        key = f"study-{self.name}-{cells.task}-{number}"
        self.under_way[key] = cells
        arguments = (self.driver.text, self.driver.store.url, cells, self.driver.made_with)
        future = self.client.submit(run_task, *arguments, may_exit=True, key=key, retries=_RETRIES, pure=False)
        self.results.add(future)

    def _heard(self, future: Future, cells: Cells) -> None:
        # What counts is the store: a worker may die between writing a task and handing over what it returns.
        if (record := self.driver.store.record(cells.task, self.driver.arrays)) is not None:
            self.report.add(record)
            self.bar.add(len(cells), len(record["failed"]) + len(record["timed_out"]))
        elif future.status == "error":
            self._failed(cast(BaseException, future.exception()), cells)
        elif future.status in ("pending", "lost"):
            self._submit(cells)
        else:
            raise Interrupted("The connection to the scheduler was lost. Run the same command again to go on.")

    def _failed(self, error: BaseException, cells: Cells) -> None:
        if isinstance(error, OSError) and error.errno in FULL:
            raise self.driver.full_disk()
        if isinstance(error, KilledWorker):
            late = len(self.driver.store.timeouts(cells.task))
            # Workers end themselves when a cell takes too long: that one is known now, and the next attempt gets on.
            if late > self.late.get(cells.task, 0) or self.submits[cells.task] <= _RESUBMITS:
                self.late[cells.task] = late
                self._submit(cells)
                return
            error = InvalidInput(
                "every worker that took it died, perhaps for want of memory. Give workers more (--memory), or make "
                "tasks smaller (cells_per_task)."
            )
        self.report.failures[cells.task] = f"{type(error).__name__}: {error}"
        print(f"task {cells.task} failed: {error!r:.300}", file=sys.stderr, flush=True)
