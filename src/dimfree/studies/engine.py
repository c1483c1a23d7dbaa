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
from .patience import Patience
from .progress import Progress
from .store import Record, Store, made_with
from .tasks import run_task
from .watch import Loss, Watch
from .workers import SILENT, Cluster

_RETRIES = 2  # of a task that raised
_MOST_HUNG = 3  # workers that were stopped with a task, silent or too long at it, before it is given up
_SURE = 2  # of those, after which a cell is known to take longer than `timeout`
_MOST_LOST = 7  # workers that died with a task before it is given up: on a busy cluster any may be killed
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
            f"{self.done} of {self.tasks} tasks are in {self.store}; "
            + (f"{self.computed} computed now, in {duration(self.seconds)}." if self.computed else "none computed now.")
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
            one = len(self.timed_out_cells) == 1
            many = "cell took too long" if one else "cells took too long"
            lines.append(f"  {len(self.timed_out_cells)} {many}: {shown}; {'its' if one else 'their'} status is 3")
        for task, words in list(self.failures.items())[:5]:
            lines.append(f"  task {task} could not be computed: {words}")
        if self.failures:
            lines.append("  Run the same command again to try what is missing once more.")
        elif not self.complete:
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
        store.forget_failures()
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
        self.patience = Patience(description)
        self.patience.learn_from(done)
        self.silence = self.patience.silence(SILENT)

    @contextlib.contextmanager
    def connected(self) -> Iterator[Callable[[Iterable[Cells], Report, Progress], None]]:
        """A function that computes tasks, while the cluster is up."""
        if self.cluster.kind == "inline":
            if self.description.timeout is not None:
                print("With cluster inline no cell is stopped: timeout has no effect.", file=sys.stderr, flush=True)
            yield self._inline
            return
        with self.cluster.connect(self.store.files.root, self.silence) as client:
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
        self.losses: dict[int, list[Loss]] = {}  # of a task, since a cell of it was last left out
        self.late: dict[int, set[int]] = {}
        self.most, self.counted = 16, -_COUNT_EVERY
        self.results = as_completed(loop=client.loop, with_results=False, raise_errors=False)
        self.watch = Watch(client, f"study-{self.name}", self._allowed)

    def all(self) -> None:
        """Until all are done, or have failed."""
        with self.watch:
            self._fill()
            for future in self.results:
                cells = self.under_way.pop(future.key)
                self._heard(future, cells)
                self.watch.forget(cast(str, future.key))
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
        if number == 0 and self.driver.description.timeout is not None:
            self.late[cells.task] = self.driver.store.timeouts(cells.task)
        key = f"study-{self.name}-{cells.task}-{number}"
        self.under_way[key] = cells
        arguments = (self.driver.text, self.driver.store.url, cells, self.driver.made_with)
        options: dict[str, Any] = {"may_exit": True, "topic": self.watch.topic}
        future = self.client.submit(run_task, *arguments, **options, key=key, retries=_RETRIES, pure=False)
        self.results.add(future)

    def _allowed(self, key: str) -> float | None:
        """The seconds that a task may take; None if it is not under way."""
        cells = self.under_way.get(key)
        if cells is None:
            return None
        return self.driver.patience.seconds(cells, self.losses.get(cells.task, []).count(Loss.LATE))

    def _heard(self, future: Future, cells: Cells) -> None:
        # What counts is the store: a worker may die between writing a task and handing over what it returns.
        if (record := self.driver.store.record(cells.task, self.driver.arrays)) is not None:
            self.driver.patience.learn(cells, record["seconds"])
            self.report.add(record)
            self.bar.add(len(cells), len(record["failed"]) + len(record["timed_out"]))
        elif future.status == "error":
            error = cast(BaseException, future.exception())
            if isinstance(error, KilledWorker):
                key = cast(str, future.key)
                self._lost(self.watch.loss(key, error.last_worker.address), key, cells)
            elif isinstance(error, OSError) and error.errno in FULL:
                raise self.driver.full_disk()
            else:
                self._give_up(cells, f"{type(error).__name__}: {error}")
        elif future.status in ("pending", "lost"):
            self._submit(cells)
        else:
            raise Interrupted("The connection to the scheduler was lost. Run the same command again to go on.")

    def _lost(self, loss: Loss, key: str, cells: Cells) -> None:
        """A task was lost with its worker: another one computes it, without cells that are known to take too long."""
        task = cells.task
        losses = self.losses.setdefault(task, [])
        if loss is not Loss.BESIDE:
            losses.append(loss)
        if late := self._timed_out(cells):
            losses.clear()
            seconds = duration(cast(float, self.driver.description.timeout))
            gets = "gets" if len(late) == 1 else "get"
            self._say(f"Task {task}: {named(late)} took longer than {seconds} (timeout) and {gets} status 3.")
        elif (hung := losses.count(Loss.SILENT) + losses.count(Loss.LATE)) >= _MOST_HUNG:
            self._give_up(
                cells,
                f"{hung} workers were stopped with it; in the end {self._what(loss, key)}. If its cells may take so "
                "long, give them the time: timeout: SECONDS in the study file.",
            )
            return
        elif len(losses) >= _MOST_LOST:
            self._give_up(
                cells,
                f"{len(losses)} workers died with it, perhaps because they ran out of memory. Give workers more "
                "(--memory), or make tasks smaller (cells_per_task, in a new store).",
            )
            return
        elif loss is Loss.SILENT or (loss is not Loss.BESIDE and key in self.watch.began):
            # Of a worker that died, only the task that it was at is named. A silent one may not have said which.
            attempt, most = (len(losses), _MOST_LOST) if loss is Loss.DIED else (hung, _MOST_HUNG)
            next_ = f"Attempt {attempt + 1} of {most} goes to another worker."
            self._say(f"Task {task} ({named(cells.index.tolist())}): {self._what(loss, key)}. {next_}")
        self._submit(cells)

    def _what(self, loss: Loss, key: str) -> str:
        """What happened to a task."""
        if loss is Loss.SILENT:
            return f"the worker gave no sign of life for {duration(self.driver.silence)} and was stopped"
        if loss is Loss.LATE:
            return f"the task was not done after {duration(self.watch.late[key])} and the worker was stopped"
        return "the worker died"

    def _timed_out(self, cells: Cells) -> list[int]:
        """Cells of a task that have taken too long since it was last submitted."""
        store, task, timeout = self.driver.store, cells.task, self.driver.description.timeout
        if timeout is None:
            return []
        losses = self.losses[task]
        if losses.count(Loss.SILENT) + losses.count(Loss.LATE) >= _SURE:
            # Their workers could not say so, but were silent for longer than a cell may take.
            begun = store.begun(task) if len(cells) > 1 and not self.driver.patience.together else None
            suspects = cells.index.tolist() if begun is None else [begun]
            if self.driver.patience.together or len(suspects) == 1:
                for cell in suspects:
                    store.mark_timeout(task, cell, timeout)
        late = store.timeouts(task)
        new, self.late[task] = late - self.late[task], late
        return sorted(new)

    def _give_up(self, cells: Cells, words: str) -> None:
        self.report.failures[cells.task] = words
        with contextlib.suppress(OSError, InvalidInput):  # the report says it as well
            self.driver.store.mark_failed(cells.task, cells.index.tolist(), words)
        self._say(f"Task {cells.task} ({named(cells.index.tolist())}) is given up: {words:.300}")

    def _say(self, words: str) -> None:
        print(words, file=sys.stderr, flush=True)


def named(cells: Iterable[int]) -> str:
    """Cells in words."""
    numbers = sorted(map(int, cells))
    if len(numbers) == 1:
        return f"cell {numbers[0]}"
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"cells {numbers[0]} to {numbers[-1]}"
    return f"cells {', '.join(map(str, numbers[:4]))}" + (f" and {len(numbers) - 4} more" if len(numbers) > 4 else "")
