"""How far a study is: a bar in a terminal, a line now and then elsewhere."""

import sys
import time
from typing import Any

from ..printing import duration

_EVERY = 10.0  # seconds between two lines


class Progress:
    """Cells done, the rate, and the time left; all of it on the error stream."""

    def __init__(self, cells: int, done: int, *, shown: bool = True):
        self.total, self.done = cells, done
        self.troubles = 0
        self.last = time.monotonic()
        self.since: tuple[float, int] | None = None  # when the first result came, and how many cells were done
        self.shown = shown
        self.bar: Any = None

    def __enter__(self) -> "Progress":
        if self.shown and sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            self.bar = progress.Progress(
                progress.BarColumn(),
                progress.TaskProgressColumn(),
                progress.MofNCompleteColumn(),
                progress.TextColumn("cells, {task.fields[rate]}"),
                progress.TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self.task = self.bar.add_task("", total=self.total, completed=self.done, rate="")
            self.bar.start()
        elif self.shown and self.done < self.total:  # workers take a while to start and to compile
            print(f"{self.done:,} of {self.total:,} cells are done; computing the others.", file=sys.stderr, flush=True)
        return self

    def __exit__(self, *exception: object) -> None:
        if self.bar is not None:
            self.bar.stop()
        elif self.shown:
            print(self.line(), file=sys.stderr, flush=True)

    def add(self, cells: int, troubles: int = 0) -> None:
        """Some more cells are done; `troubles` of them failed or took too long."""
        self.done += cells
        self.troubles += troubles
        if self.since is None:  # until then workers have started and compiled
            self.since = time.monotonic(), self.done
        if self.bar is not None:
            self.bar.update(self.task, completed=self.done, rate=self._rate_words())
        elif self.shown and time.monotonic() - self.last > _EVERY:
            self.last = time.monotonic()
            print(self.line(), file=sys.stderr, flush=True)

    def line(self) -> str:
        """Where it is, in words."""
        words = [f"{self.done:,} of {self.total:,} cells ({self.done / max(self.total, 1):.1%})", self._rate_words()]
        if self.rate > 0 and self.done < self.total:
            words.append(f"{duration((self.total - self.done) / self.rate)} left")
        return ", ".join(word for word in words if word)

    @property
    def rate(self) -> float:
        """Cells in a second, since the first result came; zero before the second."""
        if self.since is None:
            return 0.0
        began, before = self.since
        return (self.done - before) / max(time.monotonic() - began, 1e-9)

    def _rate_words(self) -> str:
        words = [f"{self.rate:.3g} cells/s"] if self.rate > 0 else []
        return ", ".join(words + [f"{self.troubles} failed"] * (self.troubles > 0))
