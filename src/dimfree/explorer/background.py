"""Computations in threads of their own: a view asks for a result, shows what there is meanwhile, and asks again.

To compile a program takes many seconds, and nothing that is shown meanwhile may wait for it: another view, another
visitor.
"""

import collections
import os
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

PATIENCE = 0.7  # seconds that an asker waits: most results are there by then, and nothing flickers
_KEPT = 8  # results of a kind
_at_once = threading.Semaphore(max(4, os.cpu_count() or 1))
_lock = threading.Lock()
_tasks: dict[str, collections.OrderedDict[Hashable, "_Task"]] = collections.defaultdict(collections.OrderedDict)


class Pending(Exception):
    """A result is not there yet; `kind` says what is computed, `seconds` for how long."""

    def __init__(self, kind: str, seconds: float):
        super().__init__(f"{kind}: {seconds:.0f} s so far")
        self.kind, self.seconds = kind, seconds


class _Task:
    def __init__(self, compute: Callable[[], Any]):
        self.began, self.done = time.monotonic(), threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None
        # A daemon: whoever ends the server does not wait for it.
        threading.Thread(target=self._run, args=(compute,), daemon=True).start()

    def _run(self, compute: Callable[[], Any]) -> None:
        try:
            with _at_once:
                self.result = compute()
        except BaseException as error:
            self.error = error.with_traceback(None)  # which would hold everything that the computation held
        finally:
            self.done.set()


def result(kind: str, name: Hashable, compute: Callable[[], Any], *, patience: float = PATIENCE) -> Any:
    """The result of that name, or its error; `Pending` where it is not there so many seconds after it was first asked.

    It is computed once, whoever asks, and the last few of each kind are kept.
    """
    with _lock:
        tasks = _tasks[kind]
        task = tasks.get(name)
        if task is None:
            task = tasks[name] = _Task(compute)
        tasks.move_to_end(name)
        for old in [old for old, other in tasks.items() if other.done.is_set()][: max(0, len(tasks) - _KEPT)]:
            del tasks[old]
    if not task.done.wait(max(0.0, task.began + patience - time.monotonic())):
        raise Pending(kind, time.monotonic() - task.began)
    if task.error is not None:
        raise task.error.with_traceback(None)
    return task.result


def is_asked(kind: str, name: Hashable) -> bool:
    """Whether a result is there, or under way."""
    with _lock:
        return name in _tasks[kind]


def forget() -> None:
    """Keep no result, for tests; what is under way goes on."""
    with _lock:
        _tasks.clear()
