"""Workers that are there and do nothing: their tasks go to others, and what blocks everywhere is reported."""

import json
import os
import signal
import threading
import time

import numpy as np
import psutil
import pytest
from drivers import DRAW, HERE, TROUBLE, arrays, done, run, wait_for, write_study

import dimfree
from dimfree.studies import engine, patience
from dimfree.studies.cells import Layout
from dimfree.studies.description import checked
from dimfree.studies.patience import Patience

WAITS = {
    **TROUBLE,
    "axes": {"problem.noise": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]},
    "compute": {"name": "function", "function": "study_functions:waits", "quantities": ["value"]},
    "cells_per_task": 1,
}


@pytest.fixture(autouse=True)
def _functions(monkeypatch):
    monkeypatch.syspath_prepend(HERE)  # also of workers, which take it from this process


def waits(pipe, **settings) -> dict:
    """A study that waits for a pipe in some cells."""
    os.mkfifo(pipe)
    return WAITS | {"compute": WAITS["compute"] | {"settings": {"pipe": str(pipe), **settings}}}


def workers_here() -> list[psutil.Process]:
    children = psutil.Process().children(recursive=True)
    return [child for child in children if "spawn_main" in " ".join(child.cmdline())]


def go(study: dict, store, **options):
    return dimfree.Study(**study).run(store, workers=2, allow_code=True, progress=False, **options)


# Workers.


def test_the_tasks_of_a_worker_that_is_stopped_are_computed_by_another(tmp_path, monkeypatch, capfd):
    """SIGSTOP: the process is there, its connections are open, and nothing comes from it."""
    monkeypatch.setattr(engine, "SILENT", 8.0)
    study = {**DRAW, "compute": {**DRAW["compute"], "settings": {"pause": 0.1}}}
    stopped = []

    def stop_one():
        wait_for(lambda: done(tmp_path / "store") >= 2)
        stopped.append(workers_here()[-1])
        stopped[0].send_signal(signal.SIGSTOP)

    stopping = threading.Thread(target=stop_one)
    stopping.start()
    report = go(study, tmp_path / "store")
    stopping.join()
    assert report.complete
    assert not report.failures
    assert not stopped[0].is_running()
    said = capfd.readouterr().err
    assert "the worker gave no sign of life for 8 s and was stopped. Attempt 2 of 3 goes to another worker" in said
    dimfree.Study(**study).run(tmp_path / "inline", cluster="inline", allow_code=True, progress=False)
    assert arrays(tmp_path / "store") == arrays(tmp_path / "inline")


@pytest.mark.slow
def test_a_task_that_blocks_on_three_workers_is_given_up_and_the_others_complete(tmp_path, monkeypatch, capfd):
    """Its heart beats, as with a disk that does not answer: what a task may take is learned from the others."""
    monkeypatch.setattr(patience, "_FLOOR", 2.0)
    monkeypatch.setattr(patience, "_FACTOR", 1.0)
    store, study = tmp_path / "store", waits(tmp_path / "pipe", waiting=[2])
    report = go(study, store)
    assert not report.complete
    assert report.done == 5
    assert list(report.failures) == [2]
    assert "3 workers were stopped with it; in the end the task was not done after" in report.failures[2]
    assert "timeout: SECONDS" in str(report)
    said = capfd.readouterr().err
    assert "Task 2 (cell 2): the task was not done after" in said
    assert "Attempt 2 of 3 goes to another worker." in said
    assert "Attempt 3 of 3" in said
    recorded = json.loads((store / "failed/2.json").read_text())
    assert (recorded["cells"], recorded["reason"]) == ([2], report.failures[2])
    data = dimfree.open_study(store)
    np.testing.assert_array_equal(data.value, [0, 1, np.nan, 3, 4, 5])
    np.testing.assert_array_equal(data.status, [1, 1, 0, 1, 1, 1])
    assert data.attrs["failed_tasks"] == f"task 2: {report.failures[2]}"
    # With other patience the same store is completed: who waits long enough finds somebody at the pipe.
    writing = threading.Thread(target=lambda: open(tmp_path / "pipe", "w").close(), daemon=True)
    writing.start()
    assert go(study | {"timeout": 100.0}, store).complete
    assert not list((store / "failed").iterdir())
    assert "failed_tasks" not in dimfree.open_study(store).attrs


def test_a_cell_that_takes_too_long_is_left_out_of_its_task(tmp_path, capfd):
    study = waits(tmp_path / "pipe", waiting=[2]) | {"timeout": 1.5, "cells_per_task": 3}
    report = go(study, tmp_path / "store")
    assert report.complete
    assert report.timed_out_cells == [2]
    assert "Task 0: cell 2 took longer than 1.5 s (timeout) and gets status 3." in capfd.readouterr().err
    data = dimfree.open_study(tmp_path / "store")
    np.testing.assert_array_equal(data.status, [1, 1, 3, 1, 1, 1])
    np.testing.assert_array_equal(data.value, [0, 1, np.nan, 3, 4, 5])
    assert not list((tmp_path / "store/begun").iterdir())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_cell_that_keeps_the_interpreter_is_left_out_of_its_task(tmp_path, monkeypatch, capfd):
    """No thread of the worker can run: neither its heart nor its own watch."""
    monkeypatch.setattr(engine, "SILENT", 10.0)
    compute = {**TROUBLE["compute"], "function": "study_functions:keeps_the_interpreter"}
    report = go(WAITS | {"compute": compute, "timeout": 1.0, "cells_per_task": 3}, tmp_path / "store")
    assert report.complete
    assert report.timed_out_cells == [2]
    assert capfd.readouterr().err.count("was stopped. Attempt 2 of 3") == 1
    np.testing.assert_array_equal(dimfree.open_study(tmp_path / "store").value, [0, 1, np.nan, 3, 4, 5])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_idle_worker_that_is_stopped_does_not_keep_the_study_from_ending(tmp_path):
    """One long task on one worker; the other has nothing to do, and cannot be asked to leave."""
    study = waits(tmp_path / "pipe", pause=15.0) | {"axes": {"problem.noise": [0.0]}}

    def stop_all_but_the_busy():
        wait_for(lambda: (tmp_path / "store/lock.json").exists() and len(workers_here()) == 2)
        time.sleep(8)
        least = min(workers_here(), key=lambda process: sum(process.cpu_times()[:2]))
        least.send_signal(signal.SIGSTOP)

    stopping = threading.Thread(target=stop_all_but_the_busy)
    stopping.start()
    assert go(study, tmp_path / "store").complete
    stopping.join()
    wait_for(lambda: not workers_here(), 30)


def test_a_timeout_in_this_process_is_said_to_have_no_effect(tmp_path, capsys):
    study = WAITS | {"axes": {"problem.noise": [0.0]}, "timeout": 5.0, "compute": EXITS_COMPUTE}
    assert dimfree.Study(**study).run(tmp_path / "store", cluster="inline", allow_code=True, progress=False).complete
    assert "timeout has no effect" in capsys.readouterr().err


# Cells that end the process.

EXITS_COMPUTE = {"name": "function", "function": "study_functions:exits", "quantities": ["value"]}


@pytest.mark.parametrize("cluster", ["inline", pytest.param("local", marks=pytest.mark.slow)])
def test_sys_exit_is_an_error_of_its_cell(tmp_path, cluster):
    study = dimfree.Study(**WAITS | {"compute": EXITS_COMPUTE, "cells_per_task": 3})
    report = study.run(tmp_path / "store", cluster=cluster, allow_code=True, progress=False)
    assert report.complete
    assert report.failed_cells == {2: "SystemExit: it called sys.exit(3)"}
    data = dimfree.open_study(tmp_path / "store")
    np.testing.assert_array_equal(data.status, [1, 1, 2, 1, 1, 1])
    np.testing.assert_array_equal(data.value, [0, 1, np.nan, 3, 4, 5])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_task_that_kills_its_workers_is_given_up(tmp_path):
    study = WAITS | {"compute": EXITS_COMPUTE | {"function": "study_functions:crashes"}}
    output = run(write_study(tmp_path, study), tmp_path / "store", "--workers", "2", code=1)
    assert "5 of 6 tasks" in output
    assert "task 2 could not be computed: 7 workers died with it" in output


# What a task may take.


def described(**fields):
    return checked(WAITS | fields)


def test_patience_is_learned_from_the_slowest_task_of_a_kind():
    description = described(
        axes={"problem.noise": [0.0, 1.0], "d": [10, 20]},
        compute=WAITS["compute"] | {"settings": {"d": 10}},
    )
    cells = [Layout(description).task(number) for number in range(4)]  # d = 10, 20, 10, 20
    learned = Patience(description)
    assert learned.seconds(cells[0], 0) == 3_600  # nothing is known
    learned.learn(cells[0], 100.0)
    learned.learn(cells[2], 50.0)
    assert [learned.seconds(cells[2], attempt) for attempt in range(3)] == [2_000, 4_000, 8_000]
    assert learned.seconds(cells[1], 0) == 3_600  # another d may take any time
    learned.learn(cells[1], 0.1)
    assert learned.seconds(cells[3], 0) == 300  # the least
    again = Patience(description)
    again.learn_from({0: {"seconds": 100.0}, 1: {"seconds": 0.1}})
    assert [again.seconds(each, 0) for each in cells] == [2_000, 300, 2_000, 300]


def test_patience_grows_with_the_cells_how_long_they_are_followed_and_their_runs():
    simulated = {
        "compute": {"name": "simulate", "d": 30},
        "axes": {"problem.noise": [0.0, 1.0, 2.0, 3.0, 4.0], "alpha": [1.0, 2.0, 4.0, 8.0]},
        "cells_per_task": 4,
    }
    description = described(**simulated)
    tasks = [Layout(description).task(number) for number in range(Layout(description).number_of_tasks)]
    learned = Patience(description)
    learned.learn(tasks[0], 100.0)
    work = [float(np.sum(cells.values["alpha"])) for cells in tasks]
    expected = [20 * 100 * each / work[0] for each in work]
    np.testing.assert_allclose([learned.seconds(cells, 0) for cells in tasks], np.maximum(expected, 300))
    assert len(set(expected)) > 2
    more = Patience(described(**simulated, runs=10, target_error=0.1, most_runs=50))
    more.learn(tasks[0], 100.0)
    assert more.seconds(tasks[0], 0) == 5 * 20 * 100


def test_a_timeout_is_what_a_task_may_take():
    one_by_one = described(timeout=30.0, cells_per_task=3)
    assert Patience(one_by_one).seconds(Layout(one_by_one).task(0), 0) == 3 * 30 + 10
    assert [Patience(described(timeout=each)).silence(60.0) for each in (None, 5.0, 600.0)] == [60, 30, 610]
    together = described(timeout=30.0, cells_per_task=3, compute={"name": "simulate", "d": 30})
    assert Patience(together).seconds(Layout(together).task(0), 2) == 30 + 10
