"""The engine of studies: two workers, against the same tasks in two bare processes and on bare Dask.

Of tasks that sleep the ratio is that of the engine and the store alone, whatever else the machine does. Tasks that
compute share the cores with the engine; that needs a machine with nothing else to do. Times are from the first task to
the last, without the start of the processes.
"""

import json
import multiprocessing
import tempfile
import time
from pathlib import Path

import numpy as np

import dimfree

from .timing import Row, Times, compared

CELLS = 4


def nap(problem, algorithm, *, key, seconds):
    """A cell that takes a known time."""
    time.sleep(seconds)
    return {"value": float(problem.noise)}


def work(problem, algorithm, *, key, rounds):
    """A cell that computes a known amount."""
    numbers = np.random.default_rng(0).normal(size=2**14)
    for _ in range(int(rounds)):
        np.sort(numbers)
    return {"value": float(problem.noise)}


def rounds_in(seconds: float) -> int:
    """How many rounds of `work` take so long."""
    began = time.perf_counter()
    work(dimfree.PhaseRetrieval(), None, key=None, rounds=2_000)
    return round(2_000 * seconds / (time.perf_counter() - began))


def study(setting: dict[str, float], tasks: int) -> dimfree.Study:
    return dimfree.Study(
        problem={"name": "PhaseRetrieval"},
        algorithm={"name": "OnlineSGD", "learning_rate": 0.1},
        axes={"problem.noise": {"from": 0.0, "to": 1.0, "points": CELLS * tasks}},
        compute={
            "name": "function",
            "function": "benchmarks.studying:" + ("nap" if "seconds" in setting else "work"),
            "quantities": ["value"],
            "settings": setting,
        },
        cells_per_task=CELLS,
    )


def one_task(setting: dict[str, float], tasks: int, task: int) -> float:
    """A task with nothing around it; returns when it was done."""
    from dimfree.studies.cells import Layout
    from dimfree.studies.computations import compute

    description = study(setting, tasks)
    compute(description, Layout(description).task(task), size=CELLS)
    return time.time()


def half(setting: dict[str, float], tasks: int, first: int, ends) -> None:
    """Every other task, one after the other."""
    ends.put([one_task(setting, tasks, task) for task in range(first, tasks, 2)])


def by_processes(setting: dict[str, float], tasks: int) -> float:
    """Seconds of a task, in two processes."""
    context = multiprocessing.get_context("spawn")
    ends = context.Queue()
    processes = [context.Process(target=half, args=(setting, tasks, first, ends)) for first in (0, 1)]
    for process in processes:
        process.start()
    done = [ends.get() for _ in processes]
    for process in processes:
        process.join()
    return float(np.mean([(each[-1] - each[0]) / (len(each) - 1) for each in done]))


def by_dask(setting: dict[str, float], tasks: int) -> float:
    """Seconds of a task, on two workers of bare Dask."""
    import distributed

    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        distributed.Client(cluster) as client,
    ):
        futures = [client.submit(one_task, setting, tasks, task, pure=False) for task in range(tasks)]
        return span([future.result() for future in futures])


def by_study(setting: dict[str, float], tasks: int) -> float:
    """Seconds of a task, as a study on two workers."""
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "store"
        study(setting, tasks).run(store, workers=2, allow_code=True, progress=False)
        return span([json.loads(path.read_text())["finished"] for path in (store / "done").iterdir()])


def span(ends: list[float]) -> float:
    """Seconds of a task on two workers that end tasks at these times, without the first of each, which compile."""
    ends = sorted(ends)
    return 2 * (ends[-1] - ends[1]) / (len(ends) - 2)


def spans(setting: dict[str, float], tasks: int, turns: int, ways) -> Times:
    times, whole = Times(), {}
    for _ in range(turns):
        for way in ways:
            began = time.perf_counter()
            found = way(setting, tasks)
            name = way.__name__.removeprefix("by_")
            times[name] = np.append(times.get(name, np.array([])), found)
            whole[name] = time.perf_counter() - began - found * tasks / 2
    times.first = whole  # here: what is not tasks, which is starting and ending processes
    return times


def sleeping_tasks_against_processes() -> Row:
    """Tasks that sleep for 0.5 s, over the same in bare processes; the difference is the engine and the store."""
    times = spans({"seconds": 0.5 / CELLS}, 24, 1, (by_study, by_processes, by_dask))
    overhead = float(np.median(times["study"] - times["processes"]))
    return compared(times, "study", "processes", goal=1.1, **{"overhead of a task [ms]": 1e3 * overhead})


def computing_tasks_against_processes() -> Row:
    """Tasks that compute for 0.6 s, over the same in bare processes."""
    times = spans({"rounds": rounds_in(0.6 / CELLS)}, 24, 2, (by_study, by_processes))
    overhead = float(np.median(times["study"] - times["processes"]))
    return compared(times, "study", "processes", goal=1.1, **{"overhead of a task [ms]": 1e3 * overhead})


ALL = [sleeping_tasks_against_processes, computing_tasks_against_processes]
QUICK = []
