"""What the engine of studies costs: a study on two workers against the same tasks in two bare processes.

    python benchmarks/study_overhead.py [seconds of a task] [tasks]            # tasks that sleep
    python benchmarks/study_overhead.py [seconds of a task] [tasks] --busy     # tasks that compute

Of tasks that sleep the figure is that of the engine and the store alone, whatever else the machine does. Tasks that
compute share the cores with the engine; that needs a machine with nothing else to do. Times are from the first task to
the last, without the start of the processes.
"""

import json
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import dimfree

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
            "function": "study_overhead:" + ("nap" if "seconds" in setting else "work"),
            "quantities": ["value"],
            "settings": setting,
        },
        cells_per_task=CELLS,
    )


def bare(setting: dict[str, float], tasks: int, half: int, spans) -> None:
    """Half of the tasks, one after the other, with nothing around them."""
    from dimfree.studies.cells import Layout
    from dimfree.studies.computations import compute

    description = study(setting, tasks)
    layout = Layout(description)
    compute(description, layout.task(0), size=CELLS)  # what is compiled, is
    began = time.time()
    for task in range(half, tasks, 2):
        compute(description, layout.task(task), size=CELLS)
    spans.put((began, time.time()))


def main(seconds: float, tasks: int, busy: bool) -> None:
    setting = {"rounds": rounds_in(seconds / CELLS)} if busy else {"seconds": seconds / CELLS}
    context = multiprocessing.get_context("spawn")
    spans = context.Queue()
    processes = [context.Process(target=bare, args=(setting, tasks, half, spans)) for half in (0, 1)]
    for process in processes:
        process.start()
    ends = [spans.get() for _ in processes]
    for process in processes:
        process.join()
    alone = sum(end - began for began, end in ends) / 2

    store = Path(tempfile.mkdtemp()) / "store"
    study(setting, tasks).run(store, workers=2, allow_code=True, progress=False)
    records = [json.loads(path.read_text()) for path in (store / "done").iterdir()]
    # The first task of each worker compiles; count from the third that finishes.
    records.sort(key=lambda record: record["finished"])
    wall = (records[-1]["finished"] - records[1]["finished"]) * tasks / (tasks - 2)
    kind = "computing" if busy else "sleeping"
    print(f"{tasks} {kind} tasks of {seconds:g} s on two workers: {wall:.2f} s, in bare processes {alone:.2f} s")
    print(f"ratio {wall / alone:.3f}, overhead of a task {2 * (wall - alone) / tasks * 1e3:.0f} ms")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    numbers = [float(text) for text in sys.argv[1:] if text != "--busy"]
    main(numbers[0] if numbers else 2.0, int(numbers[1]) if len(numbers) > 1 else 40, "--busy" in sys.argv)
