"""One driver for one store."""

import os
import socket
import threading
import time
import uuid
from typing import Any

import psutil

from ..errors import InvalidInput
from .files import Files

_BEAT = 15.0  # seconds between two signs of life
_DEAD_AFTER = 120.0  # seconds without one after which a driver on another machine counts as dead
_NAME = "lock.json"


class Lock:
    """Held while a driver writes to a store; a second one is refused.

    The lock of a process that has died is taken over: at once if it ran on this machine, else after two minutes without
    a sign of life.
    """

    def __init__(self, files: Files):
        self.files = files
        self.own = {
            "id": uuid.uuid4().hex,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": psutil.Process().create_time(),
        }
        self._end, self._lost = threading.Event(), threading.Event()

    def __enter__(self) -> "Lock":
        if not self.files.create(_NAME, self._alive()):
            self._take_over()
        self._beating = threading.Thread(target=self._beat, daemon=True)
        self._beating.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._end.set()
        self._beating.join()
        if self._holder().get("id") == self.own["id"]:
            self.files.remove(_NAME)

    def _alive(self) -> dict[str, Any]:
        return self.own | {"alive": time.time()}

    @property
    def is_lost(self) -> bool:
        """Whether another driver has taken over, because this one slept for too long."""
        return self._lost.is_set()

    def _beat(self) -> None:
        while not self._end.wait(_BEAT):
            try:
                if self._holder().get("id", self.own["id"]) != self.own["id"]:
                    self._lost.set()
                    return
                self.files.write(_NAME, self._alive())
            except OSError:
                continue  # a full disk is for those who write results to report

    def _holder(self, name: str = _NAME) -> dict[str, Any]:
        try:
            return self.files.read(name)
        except (FileNotFoundError, ValueError):
            return {}

    def _take_over(self) -> None:
        holder = self._holder()
        if holder and not is_dead(holder):
            raise InvalidInput(
                f"Another driver is writing to this store: process {holder['pid']} on {holder['host']}. "
                "Wait for it, or stop it; then run again."
            )
        # Of all who find the same dead holder, one only may go on.
        successor = f"lock.{holder.get('id', 'none')}.json"
        if not self.files.create(successor, self._alive()):
            other = self._holder(successor)  # nobody, if it has just gone on
            if other and is_dead(other):
                self.files.remove(successor)
            raise InvalidInput("Another driver is taking over this store; run again if it does not.")
        try:
            if self._holder().get("id") != holder.get("id"):
                raise InvalidInput("Another driver has taken over this store.")
            self.files.write(_NAME, self._alive())
        finally:
            self.files.remove(successor)


def is_dead(holder: dict[str, Any]) -> bool:
    """Whether the process that wrote a lock is gone."""
    if holder["host"] != socket.gethostname():
        return time.time() - holder["alive"] > _DEAD_AFTER
    try:
        process = psutil.Process(holder["pid"])
        # A process id is used again: it is the same process only if it began at the same time.
        return process.status() == psutil.STATUS_ZOMBIE or abs(process.create_time() - holder["started"]) > 1
    except psutil.NoSuchProcess:
        return True
