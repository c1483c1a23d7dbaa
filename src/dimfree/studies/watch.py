"""Which worker is at which task, and what is done about a task that takes too long."""

import contextlib
import enum
import threading
import time
from collections.abc import Callable
from typing import Any

from distributed import Client

_LOOK_EVERY = 0.5  # seconds
_SLEPT = 5.0  # seconds between two looks after which this process itself must have been stopped
_TO_RESTART = 30.0  # seconds that a worker's nanny has to replace it, before the next late task is looked at


class Loss(enum.Enum):
    """How a task was lost with its worker."""

    DIED = "the process ended"
    SILENT = "the process gave no sign of life"
    LATE = "the task took too long"
    BESIDE = "the worker was stopped for another task's sake"


class Watch:
    """Hears from workers when they begin a task, and has the worker of a task that takes too long replaced.

    A computation cannot be ended from outside without its process. Each process has a supervisor, Dask's *nanny*, that
    ends it and starts another. The scheduler does so where a process gives no sign of life.

    **Arguments:**

    - `topic`: on which workers say what they begin.
    - `allowed`: the seconds that a task may take, by its key; None if it is not under way.
    """

    def __init__(self, client: Client, topic: str, allowed: Callable[[str], float | None]):
        self.client, self.topic, self.allowed = client, topic, allowed
        self.began: dict[str, tuple[str, float]] = {}
        self.late: dict[str, float] = {}
        self.stopped: set[str] = set()
        self.silent: set[str] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Watch":
        self.client.subscribe_topic(self.topic, self._hear_worker)
        self.client.subscribe_topic("scheduler", self._hear_scheduler)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._end.set()
        for topic in (self.topic, "scheduler"):
            with contextlib.suppress(Exception):  # there may be no scheduler any more
                self.client.unsubscribe_topic(topic)

    def loss(self, key: str, worker: str) -> Loss:
        """Why a task was lost with this worker."""
        if key in self.late:
            return Loss.LATE
        if worker in self.silent:
            return Loss.SILENT
        return Loss.BESIDE if worker in self.stopped else Loss.DIED

    def forget(self, key: str) -> None:
        """A task is not under way any more."""
        self.began.pop(key, None)
        self.late.pop(key, None)

    def _hear_worker(self, event: tuple[float, Any]) -> None:
        self.began[event[1]["key"]] = (event[1]["worker"], time.monotonic())

    def _hear_scheduler(self, event: tuple[float, Any]) -> None:
        if event[1].get("action") == "worker-ttl-timed-out":
            self.silent.update(event[1]["workers"])

    def _look(self) -> None:
        last = time.monotonic()
        while not self._end.wait(_LOOK_EVERY):
            now = time.monotonic()
            if (slept := now - last) > _SLEPT:  # as after Ctrl-Z: the workers slept, too
                for key, (worker, since) in list(self.began.items()):
                    self.began[key] = (worker, since + slept)
            for key, (worker, since) in list(self.began.items()):
                allowed = self.allowed(key)
                if allowed is not None and now - since > allowed and worker not in self.stopped:
                    self.late[key] = allowed
                    self.stopped.add(worker)
                    with contextlib.suppress(Exception):  # whatever it is, the next look finds out
                        self.client.restart_workers([worker], timeout=_TO_RESTART, raise_for_error=False)
            last = time.monotonic()
