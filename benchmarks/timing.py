"""The one way in which everything here is timed: warm calls in turn, and ratios of the times of each turn."""

import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

Calls = dict[str, Callable[[], Any]]
PATIENCE = 1.0  # how much of the time that a benchmark asks for it gets


@dataclasses.dataclass(frozen=True)
class Row:
    """What was measured: times of the library over times of the alternative.

    **Attributes:**

    - `ratio`, `low`, `high`: median and quartiles over the turns.
    - `least`: the ratio of the shortest times, which other work on the machine disturbs least.
    - `goal`: the largest ratio that is wanted, if any.
    - `seconds`: median times.
    - `first`: how much longer the first calls took; compilation, for the most part.
    - `more`: other numbers.
    """

    ratio: float
    low: float
    high: float
    least: float
    goal: float | None = None
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    first: dict[str, float] = dataclasses.field(default_factory=dict)
    more: dict[str, float] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        goal = "" if self.goal is None else f"  (wanted: <= {self.goal:g})"
        parts = [f"{name} {si(value, 's')}" for name, value in self.seconds.items()]
        parts += [f"first call of {name} +{si(value, 's')}" for name, value in self.first.items() if value > 0.1]
        parts += [f"{name} {value:.4g}" for name, value in self.more.items()]
        return f"{self.ratio:9.3f} [{self.low:.3f}, {self.high:.3f}]{goal}  {', '.join(parts)}"


class Times(dict[str, np.ndarray]):
    """Seconds of each call in each turn; `first` has those of the calls before, which compile."""

    first: dict[str, float]


def in_turn(calls: Calls, *, budget: float = 3.0, fewest: int = 5, most: int = 31) -> Times:
    """Time calls in turn, after one of each that is not counted, for about `budget` seconds."""
    times = Times()
    times.first = {name: _seconds(call) for name, call in calls.items()}
    turns, began = [], time.perf_counter()
    while len(turns) < fewest or (len(turns) < most and time.perf_counter() - began < PATIENCE * budget):
        turns.append([_seconds(call) for call in calls.values()])
    times.update(zip(calls, np.array(turns).T, strict=True))
    return times


def _seconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - began


def compared(
    times: Times,
    ours: Callable[[dict[str, Any]], Any] | str,
    theirs: Callable[[dict[str, Any]], Any] | str,
    *,
    goal: float | None = None,
    **more: float,
) -> Row:
    """The ratio of two times; where they are functions of what was timed (a difference, a part), of each turn's."""
    of_ours, of_theirs = (_named(time) if isinstance(time, str) else time for time in (ours, theirs))
    ratios = of_ours(times) / of_theirs(times)
    shortest = {name: float(each.min()) for name, each in times.items()}
    low, ratio, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    return Row(
        *(float(number) for number in (ratio, low, high, of_ours(shortest) / of_theirs(shortest))),
        goal,
        {name: float(np.median(each)) for name, each in times.items()},
        {name: times.first[name] - float(np.median(each)) for name, each in times.items()},
        more,
    )


def _named(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda times: times[name]


def against(ours: Callable, theirs: Callable, *, goal: float | None = None, per: float = 1.0, **options: Any) -> Row:
    """A call of the library over another; `per` is how many times as much work the first does."""
    times = in_turn({"dimfree": ours, "alternative": theirs}, **options)
    return compared(times, lambda times: times["dimfree"] / per, "alternative", goal=goal)


def growth(call_of: Callable[[int], Callable[[], Any]], sizes: list[int], name: str, goal: float | None = None) -> Row:
    """What the largest size costs over what the smallest does; those between are said too."""
    times = in_turn({f"{name} = {size:,}": call_of(size) for size in sizes}, budget=4.0, fewest=4)
    return compared(times, f"{name} = {sizes[-1]:,}", f"{name} = {sizes[0]:,}", goal=goal)


def in_process(code: str) -> dict[str, float]:
    """Seconds and peak memory in MB of a fresh interpreter that runs this code."""
    # Linux counts in ru_maxrss what the parent had when it started the process, which may be more; not so in VmHWM.
    ending = "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
    began = time.perf_counter()
    # Without programs compiled earlier, so that all processes compile; modules stay compiled, as where pip installs.
    left_out = {"JAX_COMPILATION_CACHE_DIR", "PYTHONDONTWRITEBYTECODE"}
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    command = [sys.executable, "-c", f"{code}\n{ending}"]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=folder)
        seconds = time.perf_counter() - began
    return {"seconds": seconds, "MB": int(done.stdout.splitlines()[-1]) / 1024}


def si(value: float, unit: str) -> str:
    """A number with a prefix to its unit: 0.0012 s is 1.2 ms."""
    for scale, prefix in ((1.0, ""), (1e-3, "m"), (1e-6, "u")):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value:.2g} {unit}"
