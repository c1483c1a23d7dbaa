"""One driver for one store."""

import os
import re
import socket
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from ..errors import InvalidInput
from .files import Files

_BEAT = 15.0  # seconds between two signs of life
_WATCH = 120.0  # seconds without one after which a driver elsewhere counts as dead: some file systems are late to show
_LOOK = 1.0  # seconds between two looks
_NAME = "lock.json"
_ID = re.compile(r"[0-9a-f]{32}")


class Lock:
    """Held while a driver writes to a store; a second one is refused.

    The lock of a process that has died is taken over: at once if the process would be seen from here, else after the
    file has been watched for two minutes without a change. Clocks are not compared: they differ between machines.
    """

    def __init__(self, files: Files):
        self.files = files
        self.own = {
            "id": uuid.uuid4().hex,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "machine": _machine(),
            "began": _began(os.getpid()),
        }
        self.beats = 0
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
        if not self.is_lost and self._is_held():
            self.files.remove(_NAME)

    def _alive(self) -> dict[str, Any]:
        self.beats += 1
        return self.own | {"beat": self.beats}

    @property
    def is_lost(self) -> bool:
        """Whether another driver has taken over, because this one slept for too long."""
        return self._lost.is_set()

    def _beat(self) -> None:
        while not self._end.wait(_BEAT):
            try:
                if not self._is_held():
                    self._lost.set()
                    return
                self.files.write(_NAME, self._alive())
            except (OSError, InvalidInput):
                continue  # a full disk, or one that is gone, is for those who write results to report

    def _is_held(self) -> bool:
        holder = self._holder()
        return holder is None or holder["id"] == self.own["id"]

    def _holder(self, name: str = _NAME) -> dict[str, Any] | None:
        """Who wrote a lock; None if there is none."""
        words = f"{self.files.path(name)} is not the lock of a driver. If no driver writes to this store, remove it."
        try:
            holder = self.files.read(name)
        except FileNotFoundError:
            return None
        except InvalidInput as error:
            raise InvalidInput(f"{words} ({error})") from error
        if not (
            isinstance(holder, dict)
            and isinstance(holder.get("id"), str)
            and _ID.fullmatch(holder["id"])
            and isinstance(holder.get("host"), str)
            and type(holder.get("pid")) is int
        ):
            raise InvalidInput(words)
        return holder

    def _take_over(self) -> None:
        holder = self._holder()
        if holder is None:
            raise InvalidInput("Another driver has just left this store; run again.")
        if not self._is_dead(holder):
            raise InvalidInput(
                f"Another driver is writing to this store: process {holder['pid']} on {holder['host']:.100}. "
                "Wait for it, or stop it; then run again."
            )
        # Of all who find the same dead holder, one only may go on.
        successor = f"lock.{holder['id']}.json"
        if not self.files.create(successor, self._alive()):
            other = self._holder(successor)  # nobody, if it has just gone on
            if other is not None and is_gone(other):
                self.files.remove(successor)
            raise InvalidInput(
                f"Another driver is taking over this store; run again. If none is, remove {self.files.path(successor)}."
            )
        try:
            if self._holder() != holder:
                raise InvalidInput("Another driver has taken over this store.")
            self.files.write(_NAME, self._alive())
        finally:
            self.files.remove(successor)

    def _is_dead(self, holder: dict[str, Any]) -> bool:
        gone = is_gone(holder)
        if gone is not None:
            return gone
        words = (
            f"A driver on {holder['host']:.100} holds this store; watching it for {_WATCH:.0f} s for a sign of life."
        )
        print(words, file=sys.stderr, flush=True)
        end = time.monotonic() + _WATCH
        while time.monotonic() < end:
            time.sleep(_LOOK)
            if self._holder() != holder:
                return False
        return True


def is_gone(holder: dict[str, Any]) -> bool | None:
    """Whether the process that wrote a lock has ended; None where its processes are not seen from here."""
    if _machine() is None or holder.get("machine") != _machine():
        return None
    # A process id is used again: it is the same process only if it began at the same time.
    began = _began(holder["pid"])
    return began is None or began != holder.get("began")


def _machine() -> str | None:
    """What all have in common who see the same processes: the boot of a kernel, and the name space of a container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def _began(process: int) -> int | None:
    """When a process began, in ticks since the boot, which no clock changes; None if it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
