"""What the engine of studies costs: a study on two workers against the same tasks in two bare processes.

    python benchmarks/study_overhead.py [seconds of a task] [tasks]

Tasks sleep, so that the figure is that of the engine and the store and not of the machine's other load. Times are from
the first task to the last, without the start of the processes.
"""

import json
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

import dimfree

CELLS = 4


def nap(problem, algorithm, *, key, seconds):
    """A cell that takes a known time."""
    time.sleep(seconds)
    return {"value": float(problem.noise)}


def study(seconds: float, tasks: int) -> dimfree.Study:
    return dimfree.Study(
        problem={"name": "PhaseRetrieval"},
        algorithm={"name": "OnlineSGD", "learning_rate": 0.1},
        axes={"problem.noise": {"from": 0.0, "to": 1.0, "points": CELLS * tasks}},
        compute={
            "name": "function",
            "function": "study_overhead:nap",
            "quantities": ["value"],
            "settings": {"seconds": seconds / CELLS},
        },
        cells_per_task=CELLS,
    )


def bare(seconds: float, tasks: int, half: int, spans) -> None:
    """Half of the tasks, one after the other, with nothing around them."""
    from dimfree.studies.cells import Layout
    from dimfree.studies.computations import compute

    description = study(seconds, tasks)
    layout = Layout(description)
    compute(description, layout.task(0), size=CELLS)  # what is compiled, is
    began = time.time()
    for task in range(half, tasks, 2):
        compute(description, layout.task(task), size=CELLS)
    spans.put((began, time.time()))


def main(seconds: float, tasks: int) -> None:
    context = multiprocessing.get_context("spawn")
    spans = context.Queue()
    processes = [context.Process(target=bare, args=(seconds, tasks, half, spans)) for half in (0, 1)]
    for process in processes:
        process.start()
    ends = [spans.get() for _ in processes]
    for process in processes:
        process.join()
    alone = sum(end - began for began, end in ends) / 2

    store = Path(tempfile.mkdtemp()) / "store"
    study(seconds, tasks).run(store, workers=2, allow_code=True, progress=False)
    records = [json.loads(path.read_text()) for path in (store / "done").iterdir()]
    # The first task of each worker compiles; count from the third that finishes.
    records.sort(key=lambda record: record["finished"])
    wall = (records[-1]["finished"] - records[1]["finished"]) * tasks / (tasks - 2)
    print(f"{tasks} tasks of {seconds:g} s on two workers: {wall:.2f} s, in bare processes {alone:.2f} s")
    print(f"ratio {wall / alone:.3f}, overhead of a task {2 * (wall - alone) / tasks * 1e3:.0f} ms")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    arguments = [float(text) for text in sys.argv[1:]]
    main(arguments[0] if arguments else 2.0, int(arguments[1]) if len(arguments) > 1 else 40)
