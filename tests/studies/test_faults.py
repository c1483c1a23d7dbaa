"""Whatever is killed, and whenever: the study completes, and its arrays have the bytes of the undisturbed one."""

import random
import shutil
import signal
import subprocess
import sys
import time

import pytest
from drivers import (
    DIVERGING,
    DRAW,
    EXITS,
    TROUBLE,
    arrays,
    done,
    environment,
    finish,
    free_address,
    kill,
    run,
    start,
    start_cluster,
    wait_for,
    workers,
    write_study,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    directory = tmp_path_factory.mktemp("undisturbed")
    run(write_study(directory, DRAW), directory / "store", "--cluster", "inline")
    return arrays(directory / "store")


def test_number_of_workers_and_interruption_leave_no_trace(tmp_path):
    study = write_study(tmp_path, EXITS)
    run(study, tmp_path / "one", "--workers", "1")
    driver = start(study, tmp_path / "two", "--workers", "2")
    wait_for(lambda: done(tmp_path / "two") >= 3)
    driver.send_signal(signal.SIGTERM)  # what a batch system sends; Ctrl-C is handled alike
    assert "run the same command again" in finish(driver, code=130)
    assert 3 <= done(tmp_path / "two") < 16
    run(study, tmp_path / "two", "--workers", "2")
    assert arrays(tmp_path / "one") == arrays(tmp_path / "two")


def test_workers_killed_at_random_moments(tmp_path, undisturbed):
    rng, store = random.Random(0), tmp_path / "store"
    driver = start(write_study(tmp_path, DRAW), store, "--workers", "2")
    wait_for(lambda: done(store) >= 1)
    killed = 0
    while driver.poll() is None and killed < 20:
        time.sleep(rng.uniform(0.0, 0.3))
        if alive := workers(driver):
            before = done(store)
            kill(rng.choice(alive))
            killed += 1
            if killed % 5 == 0:  # let it get on, or no worker lives long enough to do anything
                wait_for(lambda before=before: done(store) > before or driver.poll() is not None)
    finish(driver)
    assert killed == 20
    assert arrays(store) == undisturbed


def test_workers_that_are_slow_to_come_back_are_replaced(tmp_path, undisturbed, monkeypatch):
    monkeypatch.setenv("DASK_DISTRIBUTED__DEPLOY__LOST_WORKER_TIMEOUT", "100ms")  # as it seems on a busy machine
    store = tmp_path / "store"
    driver = start(write_study(tmp_path, DRAW), store, "--workers", "2")
    wait_for(lambda: done(store) >= 1)
    for worker in workers(driver):
        kill(worker)
    finish(driver)
    assert arrays(store) == undisturbed


def test_driver_killed_and_resumed(tmp_path, undisturbed):
    study, store = write_study(tmp_path, DRAW), tmp_path / "store"
    for least in (2, 7):
        driver = start(study, store, "--workers", "2")
        wait_for(lambda least=least: done(store) >= least)
        orphans = workers(driver)
        driver.kill()
        driver.communicate()
        wait_for(lambda orphans=orphans: not any(orphan.is_running() for orphan in orphans), 60)
        assert (store / "lock.json").exists()
    output = run(study, store, "--workers", "2")
    assert "16 of 16 tasks" in output
    assert "16 computed now" not in output
    assert arrays(store) == undisturbed
    assert not (store / "lock.json").exists()
    assert not list(store.rglob("*.partial"))


def test_scheduler_killed_and_resumed(tmp_path, undisturbed):
    study, store = write_study(tmp_path, DRAW), tmp_path / "store"
    address = free_address()
    processes = start_cluster(address, 20)
    try:
        driver = start(study, store, "--cluster", "address", "--address", address)
        wait_for(lambda: done(store) >= 2)
        processes[0].kill()
        assert "connection to the scheduler was lost" in finish(driver, code=3)
        for process in processes:
            process.terminate()
            process.wait()
        assert 2 <= done(store) < 16
        processes = start_cluster(address, 20)
        run(study, store, "--cluster", "address", "--address", address)
    finally:
        for process in processes:
            process.terminate()
            process.wait()
    assert arrays(store) == undisturbed


def test_killed_while_writing(tmp_path, undisturbed):
    study, store = write_study(tmp_path, DRAW), tmp_path / "store"
    run(study, store, "--cluster", "inline")
    whole = shutil.copytree(store, tmp_path / "whole")
    code = f"""
import numpy as np
from dimfree.studies.arrays import Arrays
from dimfree.studies.cells import Layout
from dimfree.studies.store import Store
store, whole = Store({str(store)!r}), Store({str(whole)!r})
arrays = Arrays(store.description())
layout = Layout(store.description())
tasks = [layout.task(number) for number in range(layout.number_of_tasks)]
fetch = whole.fetcher(arrays, whole.records(arrays)[0])
results = [{{name: arrays.read(name, fetch, cells.region) for name in arrays.quantities}} for cells in tasks]
print("ready", flush=True)
while True:
    for cells, result in zip(tasks, results):
        store.files.remove(f"done/{{cells.task}}.json")
        store.mark_done(cells.task, {{"chunks": store.write(arrays, cells, result)}})
"""
    rng, partial = random.Random(1), 0
    for _ in range(8):
        with subprocess.Popen(
            [sys.executable, "-c", code], env=environment(), stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout.readline().strip() == "ready"
            time.sleep(rng.uniform(0.0, 0.2))
            writer.kill()
        found = list(store.rglob("*.partial"))
        partial += len(found)
        for path in found:
            path.unlink()
        assert arrays(store) == undisturbed  # every chunk is whole
    assert partial > 0  # it was hit in the middle of a write
    run(study, store, "--cluster", "inline")
    assert done(store) == 16
    assert arrays(store) == undisturbed


def test_full_disk(tmp_path, undisturbed):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=160k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        study = write_study(tmp_path, DRAW)
        output = run(study, disk / "store", "--workers", "2", code=3)
        assert "full" in output
        assert done(disk / "store") < 16
        subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
        run(study, disk / "store", "--workers", "2")
        assert arrays(disk / "store") == undisturbed
        assert not list(disk.rglob("*.partial"))
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_cells_that_fail_or_hang_are_reported_and_the_others_complete(tmp_path):
    import numpy as np

    import dimfree

    study = write_study(tmp_path, {**TROUBLE, "timeout": 20.0})
    output = run(study, tmp_path / "store", "--workers", "2")
    assert "cell 2 failed: ArithmeticError: no such number" in output
    assert "1 cell took too long: 5; its status is 3" in output
    data = dimfree.open_study(tmp_path / "store")
    np.testing.assert_array_equal(data.status, [1, 1, 2, 1, 1, 3, 1, 1, 1])
    np.testing.assert_array_equal(data.value, [0, 1, np.nan, 3, 4, np.nan, 6, np.nan, 8])


def test_a_task_that_takes_all_memory_is_reported_and_the_others_complete(tmp_path):
    study = {**TROUBLE, "compute": {**TROUBLE["compute"], "function": "study_functions:hungry"}}
    store = tmp_path / "store"
    output = run(write_study(tmp_path, study), store, "--workers", "2", "--memory", "900MB", code=1)
    assert "2 of 3 tasks" in output
    assert "task 1 could not be computed" in output
    assert "--memory" in output
    assert sorted(path.name for path in (store / "done").glob("*.json")) == ["0.json", "2.json"]


REFINED = {
    **DRAW,
    "compute": {**DRAW["compute"], "function": "study_functions:slow_step", "quantities": ["phase"]},
    "refine": {"quantity": "phase", "resolution": 0.1, "most_cells": 256, "cells_per_round": 16},
}
AS_PRECISE_AS_ASKED = {
    **EXITS,
    "axes": {"algorithm.learning_rate": {"from": 0.02, "to": 0.15, "points": 6}, "problem.noise": [0.0, 2.0, 4.0]},
    "cells_per_task": 2,
    "target_error": 0.5,
    "most_runs": 128,
}


@pytest.mark.parametrize("study", [REFINED, AS_PRECISE_AS_ASKED], ids=["cells", "runs"])
def test_what_is_chosen_as_results_come_in_survives_a_killed_driver(tmp_path, study):
    file = write_study(tmp_path, study)
    run(file, tmp_path / "inline", "--cluster", "inline")
    driver = start(file, tmp_path / "store", "--workers", "2")
    wait_for(lambda: done(tmp_path / "store") >= 5)
    kill(workers(driver)[0])
    wait_for(lambda: done(tmp_path / "store") >= 6)
    driver.kill()
    driver.communicate()
    assert done(tmp_path / "store") < done(tmp_path / "inline")
    run(file, tmp_path / "store", "--workers", "2")
    assert done(tmp_path / "store") == done(tmp_path / "inline")
    assert arrays(tmp_path / "store") == arrays(tmp_path / "inline")


def test_a_run_that_diverges_is_counted(tmp_path):
    import dimfree

    run(write_study(tmp_path, DIVERGING), tmp_path / "store", "--cluster", "inline")
    data = dimfree.open_study(tmp_path / "store")
    assert data.status.values.tolist() == [1, 1]
    assert data.diverged.values.tolist() == [0.0, 1.0]
    assert data.risk.notnull().values.tolist() == [True, False]
