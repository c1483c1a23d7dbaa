"""The quick benchmarks for asv, which keeps their history: `asv run`, `asv publish`, `asv compare`."""

from . import reused, simulating, solving
from .timing import in_process

BENCHMARKS = {each.__name__: each for subject in (solving, simulating, reused) for each in subject.QUICK}


class Ratios:
    """The library over the alternative; ratios of the shortest times, so that machines compare."""

    params = tuple(BENCHMARKS)
    param_names = ("benchmark",)
    timeout = 300

    def track_ratio(self, name: str) -> float:
        """How many times as long as the alternative."""
        return BENCHMARKS[name]().least

    track_ratio.unit = "ratio"


class Starting:
    """What a script pays before it computes."""

    timeout = 120

    def track_import(self) -> float:
        """Seconds of a process that imports the library and uses its names."""
        return min(in_process("import dimfree; dimfree.solve, dimfree.simulate")["seconds"] for _ in range(2))

    track_import.unit = "s"

    def track_memory(self) -> float:
        """Peak memory of that process."""
        return in_process("import dimfree; dimfree.solve, dimfree.simulate")["MB"]

    track_memory.unit = "MB"
