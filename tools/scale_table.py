"""Measure what studies cost, for docs/scale.md: the plan of a study against the clock, and plans of large ones.

python tools/scale_table.py small      # 100 and 400 cells of 16 runs: predicted and measured, one core; a minute or two
python tools/scale_table.py large      # the plan of 10^6 cells of 1,000 runs: minutes
python tools/scale_table.py ode        # 10^6 cells of an ODE, computed on all cores: minutes

Results are kept in docs/data/scale.json, with date, machine and load.
"""

import concurrent.futures
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import dimfree

DATA = Path(__file__).resolve().parent.parent / "docs" / "data" / "scale.json"


def exits(points: int, runs: int, cells_per_task: int) -> dict:
    """When SGD leaves the plateau of phase retrieval in d = 200, over learning rate and noise."""
    return {
        "problem": {"name": "PhaseRetrieval", "width": 1},
        "algorithm": {"name": "OnlineSGD", "sphere": True},
        "axes": {
            "algorithm.learning_rate": {"from": 0.01, "to": 0.2, "points": points},
            "problem.noise": {"from": 0.0, "to": 12.0, "points": points},
        },
        "compute": {"name": "exit_time", "d": 200, "alpha": 20.0, "threshold": 0.2},
        "runs": runs,
        "cells_per_task": cells_per_task,
    }


def solutions(points: int) -> dict:
    """The ODE of phase retrieval at alpha = 40, over learning rate and noise."""
    study = exits(points, runs=1, cells_per_task=10_000)
    return study | {"compute": {"name": "solve", "alpha": 40.0, "overlap": 0.1}}


def fresh(function, *arguments):
    """What a function returns in a process of its own, so that nothing is compiled yet."""
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *arguments).result()


def planned(settings: dict) -> dict:
    plan = dimfree.Study(**settings).plan()
    names = ("cells", "tasks", "cells_per_task", "runs", "bytes", "compile_seconds", "cell_seconds")
    return {name: getattr(plan, name) for name in names} | {"seconds": plan.seconds(1)}


def measured(settings: dict, cluster: str) -> dict:
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "study.store"
        began = time.perf_counter()
        dimfree.Study(**settings).run(store, cluster=cluster, progress=False)
        seconds = time.perf_counter() - began
        size = sum(file.stat().st_size for file in store.rglob("*") if file.is_file())
    return {"seconds": seconds, "bytes_on_disk": size}


def small() -> dict:
    rows = []
    for points in (10, 20):
        settings = exits(points, runs=16, cells_per_task=100)
        rows.append({"predicted": fresh(planned, settings), "measured": fresh(measured, settings, "inline")})
    return {"rows": rows}


def large() -> dict:
    return {"plan": fresh(planned, exits(1_000, runs=1_000, cells_per_task=16))}


def ode() -> dict:
    settings = solutions(1_000)
    return {"plan": fresh(planned, settings), "measured": measured(settings, "local"), "workers": os.cpu_count()}


def machine() -> dict:
    """Where and when this was measured."""
    model = next(
        (line.split(":")[1].strip() for line in _cpu_lines() if line.startswith("model name")), platform.machine()
    )
    return {
        "date": date.today().isoformat(),
        "processor": model,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }


def _cpu_lines() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def main(*names: str) -> None:
    known = json.loads(DATA.read_text()) if DATA.exists() else {}
    for name in names or ("small", "large", "ode"):
        before = machine()
        known[name] = {"small": small, "large": large, "ode": ode}[name]() | before
        DATA.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
        print(json.dumps(known[name], indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
