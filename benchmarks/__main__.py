"""python -m benchmarks [--quick] [--only NAME ...] [--json FILE] [--check] [--record]"""

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from . import coordinates, populations, protocols, reused, simulating, solving, starting, studying, timing
from .recorded import RECORD, Worse, steady, worse
from .timing import Row

SUBJECTS = (solving, simulating, coordinates, reused, populations, protocols, studying, starting)


def measured(benchmarks: list[Callable[[], Row]], file: Path | None = None) -> dict[str, dict]:
    """The table, printed and written row by row as it is measured."""
    table = {}
    for benchmark in benchmarks:
        began = time.perf_counter()
        row = benchmark()
        table[benchmark.__name__] = dataclasses.asdict(row) | {"took": round(time.perf_counter() - began, 1)}
        print(f"{benchmark.__name__:40s}{row}", flush=True)
        if file is not None:
            file.write_text(json.dumps(table, indent=1) + "\n")
    return table


def confirmed(found: list[Worse], benchmarks: list[Callable[[], Row]], recorded: dict[str, float]) -> list[Worse]:
    """What is worse when it is measured again as well: other work on the machine passes, a slower library stays."""
    for _ in range(2):
        again = [benchmark for benchmark in benchmarks if any(benchmark.__name__ == each.name for each in found)]
        if not again:
            break
        print("once more:", flush=True)
        found = worse(measured(again), recorded)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=sys.modules["benchmarks"].__doc__)
    parser.add_argument("--quick", action="store_true", help="those that take less than a minute together")
    parser.add_argument("--only", nargs="*", help="names of benchmarks")
    parser.add_argument("--json", type=Path, help="also write the table to this file")
    parser.add_argument("--check", action="store_true", help="fail where a ratio is 1.5 times the recorded one")
    parser.add_argument("--record", action="store_true", help="record the ratios that --check compares with")
    given = parser.parse_args()
    timing.PATIENCE = 0.4 if given.quick else 1.0
    benchmarks = [each for subject in SUBJECTS for each in (subject.QUICK if given.quick else subject.ALL)]
    if given.only:
        benchmarks = [each for each in benchmarks if each.__name__ in given.only]
    table = measured(benchmarks, given.json)
    if given.record:
        RECORD.write_text(json.dumps({name: round(steady(row), 4) for name, row in table.items()}, indent=1) + "\n")
    if given.check:
        recorded = json.loads(RECORD.read_text())
        found = confirmed(worse(table, recorded), benchmarks, recorded)
        if found:
            raise SystemExit("\n".join(map(str, found)))
        print(f"no ratio is worse than recorded ({len(set(recorded) & set(table))} compared)")


if __name__ == "__main__":
    main()
