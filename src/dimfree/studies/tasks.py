"""What a worker does with a task: compute its cells, write them, say that it is done."""

import functools
import json
import os
import socket
import threading
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
from distributed import get_worker

from ..errors import InvalidInput
from .arrays import Arrays
from .cells import Cells, cells_in_full_task, is_vectorised
from .computations import compute, in_words
from .description import Description, checked
from .quantities import quantities
from .store import Status, Store, made_with

HUNG = 17  # exit code of a worker that gave up on a cell
_TO_WRITE = 5.0  # seconds to write down which cell that was: the store may be what keeps the cell waiting


@functools.lru_cache(maxsize=8)
def _stated(text: str) -> tuple[Description, int, Arrays]:
    """The description, how many cells a full task has, and the arrays: once for all tasks of a study."""
    description = checked(json.loads(text))
    return description, cells_in_full_task(description), Arrays(description)


@functools.lru_cache(maxsize=8)
def _made_with(text: str) -> dict[str, str]:
    """What computes in this process, before it has computed anything of the study."""
    return made_with(checked(json.loads(text)))


def run_task(
    text: str, url: str, cells: Cells, wanted: dict[str, str], *, may_exit: bool, topic: str | None = None
) -> dict[str, Any]:
    """Compute a task and write it to the store; what it returns is small, because results are in the store.

    **Arguments:**

    - `text`: the description, as JSON: plain data, so that no code travels.
    - `url`: of the store.
    - `cells`: what to compute.
    - `wanted`: what computes where the driver is; a worker that has other versions or other code refuses.
    - `may_exit`: whether this is a worker and not the driver's own process. A worker may end itself when a cell takes
      too long: its supervisor starts another one, which leaves out that cell.
    - `topic`: of Dask's events, on which a worker says that it begins.
    """
    if topic is not None:
        worker = get_worker()
        worker.log_event(topic, {"key": worker.get_current_task(), "worker": worker.address})
    description, size, arrays = _stated(text)
    here = _made_with(text) if may_exit else wanted
    if different := [
        f"{name} is {here[name]} and not {wanted.get(name)}" for name in here if here[name] != wanted.get(name)
    ]:
        raise InvalidInput(
            f"The worker on {socket.gethostname()} would compute something else than the driver: "
            f"{'; '.join(different)}. Install the same versions and the same code for all workers, and set JAX up "
            "alike."
        )
    store = Store(url)
    if (record := store.record(cells.task, arrays)) is not None:  # the worker that wrote it died before it could say so
        return record
    late = store.timeouts(cells.task) if description.timeout is not None else set()
    skip = frozenset(position for position, index in enumerate(cells.index.tolist()) if index in late)
    began = time.perf_counter()
    found: dict[str, np.ndarray] = {}
    errors: dict[int, str] = {}
    if not (is_vectorised(description) and len(skip) == len(cells)):
        with _Timeout(description, store, cells, may_exit) as timeout:
            try:
                found, errors = compute(description, cells, size=size, skip=skip, watch=timeout.at)
            except (SystemExit, KeyboardInterrupt) as error:
                if not may_exit and isinstance(error, KeyboardInterrupt):
                    raise
                # What a cell raises must not end the worker: Dask would start another, and give it the same task.
                raise RuntimeError(in_words(error)) from error
    results = _arrays(description, cells, found, errors, skip)
    record = {
        "chunks": store.write(arrays, cells, results),
        "task": cells.task,
        "cells": len(cells),
        "seconds": round(time.perf_counter() - began, 3),
        "failed": {str(int(cells.index[position])): words for position, words in errors.items()},
        "timed_out": sorted(late),
        "host": socket.gethostname(),
        "finished": time.time(),
        "made_with": here,
    }
    store.mark_done(cells.task, record)
    if description.timeout is not None and len(cells) > 1:
        store.forget_begun(cells.task)
    return record


def _arrays(
    description: Description,
    cells: Cells,
    found: dict[str, np.ndarray],
    errors: dict[int, str],
    skip: frozenset[int],
) -> dict[str, np.ndarray]:
    """An array for each quantity of the store."""
    status = np.full(len(cells), Status.COMPUTED, np.uint8)
    status[list(errors)] = Status.FAILED
    status[list(skip)] = Status.TIMED_OUT
    results = {}
    for quantity in quantities(description):
        if quantity.name == "status":
            results["status"] = status
        elif description.refine is not None and quantity.name in cells.values:
            results[quantity.name] = np.asarray(cells.values[quantity.name], float)
        else:
            values = np.array(found.get(quantity.name, np.full(len(cells), quantity.fill)), quantity.dtype)
            values[status != Status.COMPUTED] = quantity.fill
            results[quantity.name] = values
    return results


class _Timeout:
    """Ends the process when a cell (or, computed together, all cells of a task) takes longer than `timeout`.

    A computation cannot be stopped from outside within its process. So the cell is written down as one that took too
    long, and the process ends. A computation that keeps Python's interpreter to itself also keeps this from running;
    then the process gives no sign of life, and the driver notices.
    """

    def __init__(self, description: Description, store: Store, cells: Cells, may_exit: bool):
        self.seconds = description.timeout if may_exit else None
        self.together = is_vectorised(description)
        self.store, self.cells = store, cells
        self.timer: threading.Timer | None = None

    def __enter__(self) -> "_Timeout":
        if self.together:
            self._begin(range(len(self.cells)))
        return self

    def __exit__(self, *exception: object) -> None:
        if self.timer is not None:
            self.timer.cancel()

    def at(self, position: int) -> None:
        """A cell begins."""
        if self.timer is not None:
            self.timer.cancel()
        if self.seconds is not None and len(self.cells) > 1:  # who looks later must know which of them it was
            self.store.mark_begun(self.cells.task, int(self.cells.index[position]))
        self._begin([position])

    def _begin(self, positions: Iterable[int]) -> None:
        if self.seconds is None:
            return
        self.timer = threading.Timer(self.seconds, self._give_up, args=(list(positions),))
        self.timer.daemon = True
        self.timer.start()

    def _give_up(self, positions: list[int]) -> None:
        writing = threading.Thread(target=self._write, args=(positions,), daemon=True)
        writing.start()
        writing.join(_TO_WRITE)
        _exit_process()

    def _write(self, positions: list[int]) -> None:
        assert self.seconds is not None
        for position in positions:
            self.store.mark_timeout(self.cells.task, int(self.cells.index[position]), self.seconds)


def _exit_process() -> None:
    os._exit(HUNG)
