"""How problems and algorithms print, as the call that makes them, how durations do, and how far a computation is."""

import dataclasses
import time
import warnings
from typing import Any

import jax
import numpy as np

from .errors import is_concrete

_MEASURED = 5.0  # seconds after which the time that is left can be told
_LONG = 3_600.0  # seconds that nobody waits for without being told
_MESSAGE = 80  # characters of what was given that a message repeats


def as_call(module: Any, **fields: Any) -> str:
    """`Name(field=value, ...)` on one line, with numbers in place of array descriptions."""
    shown = fields or {field.name: getattr(module, field.name) for field in dataclasses.fields(module) if field.repr}
    call = f"{type(module).__name__}({', '.join(f'{name}={_short(value)}' for name, value in shown.items())})"
    spectrum = getattr(module, "spectrum", None)
    return call if spectrum is None else f"{call}.with_inputs({spectrum!r})"


def duration(seconds: float) -> str:
    """A time in words, in the unit that is read best."""
    if seconds < 90:
        return f"{seconds:.3g} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"


def _short(value: Any) -> str:
    if isinstance(value, jax.Array):
        if not is_concrete(value):
            return "traced"
        array = np.asarray(value)
        if array.ndim == 0:
            return f"{float(array):g}"
        return str(array.tolist()) if array.size <= 8 else f"array{array.shape}"
    if isinstance(getattr(value, "name", None), str):
        return repr(value.name)
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__
    return repr(value)


def in_a_line(thing: Any) -> str:
    """What was given, for a message: as it prints, on one line and not longer than that."""
    words = " ".join(repr(thing).split())
    return words if len(words) <= _MESSAGE else f"{words[: _MESSAGE - 4]} ..."


class Progress:
    """How far a computation is: a bar for who asked for it; for all others a warning if it will take long.

    **Arguments:**

    - `cost`: what it takes, in words.
    - `total`: when it is done.
    - `shown`: whether there is a bar; `warns`: where there is none, whether to warn.
    - `doing`: what, in a word.
    """

    def __init__(self, cost: str, total: int, *, shown: bool, warns: bool = True, doing: str = "simulating"):
        self.cost, self.total, self.shown, self.doing = cost, total, shown, doing
        self.bar = None
        self.first: tuple[float, int] | None = None  # when something was done, and how much: after the compilation
        self.warned = shown or not warns

    def __enter__(self) -> "Progress":
        if self.shown:
            import rich.console
            import rich.progress

            # Not where results go: a program may be reading those.
            console = rich.console.Console(stderr=True)
            console.print(self.cost)
            self.bar = rich.progress.Progress(console=console, transient=True)
            self.task = self.bar.add_task(self.doing, total=self.total)
            self.bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def show(self, done: int) -> None:
        """How much of the total is done."""
        if self.bar is not None:
            self.bar.update(self.task, completed=done)
        if self.warned or not done:
            return
        self.first = self.first or (time.perf_counter(), done)
        seconds, more = time.perf_counter() - self.first[0], done - self.first[1]
        if seconds > _MEASURED and more:
            left = seconds * (self.total - done) / more
            self.warned = True
            if left > _LONG:
                warnings.warn(
                    f"{self.cost}: about {duration(left)} from now. Ctrl-C ends it; progress=True shows how far it is.",
                    stacklevel=2,
                )
