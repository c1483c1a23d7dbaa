"""Studies: the file, the cells, the store, and a cluster of two workers of which one is killed."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
import xarray
import yaml
from drivers import DRAW, arrays, done, finish, kill, start, wait_for, workers, write_study
from jax.experimental.compilation_cache import compilation_cache

import dimfree
from commands import call
from dimfree.studies.arrays import Arrays
from dimfree.studies.cells import Layout
from dimfree.studies.description import checked
from dimfree.studies.files import Files
from dimfree.studies.lock import Lock
from dimfree.studies.plan import Plan
from dimfree.studies.store import Store

GRID = {"from": 1, "to": 2, "points": 10**7}
SOLVE = {
    "problem": {"name": "PhaseRetrieval"},
    "algorithm": {"name": "OnlineSGD", "sphere": True},
    "axes": {
        "algorithm.learning_rate": {"from": 0.02, "to": 0.2, "points": 4},
        "problem.noise": {"from": 0.01, "to": 1.0, "points": 5, "scale": "log"},
    },
    "compute": {"name": "solve", "alpha": 10.0, "overlap": 0.2},
    "cells_per_task": 4,
}


def changed(study: dict, **fields) -> dict:
    return study | fields


# The file.


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"axes": {}}, "axes"),
        ({"axes": {"learning_rate": [0.1]}}, "axis learning_rate is no setting of solve"),
        ({"axes": {"problem.noise": {"from": 1, "to": 0}}}, "it must increase"),
        ({"axes": {"problem.noise": {"from": 0, "to": 1, "scale": "log"}}}, "it must be positive"),
        (
            {"axes": {"problem.noise": {"from": 0, "to": 1, "steps": 3}}},
            "axes.problem.noise has from, to, points, scale",
        ),
        (
            {"compute": {"name": "solve", "overlap": 0.1, "alhpa": 1.0}},
            "alhpa: there is no such key; compute.solve has name",
        ),
        ({"compute": {"overlap": 0.1}}, "compute.name: is not given"),
        ({"axes": {"problem.__class__": [1], "os.system": [2]}}, "os.system"),
        ({"compute": {"name": "sole"}}, "compute.name: 'sole' was given; choose one of 'exit_time'"),
        ({"compute": {"name": "solve"}}, "give either d"),
        ({"compute": {"name": "solve", "overlap": 0.1, "observe": "loss"}}, "should be 'accuracy' (given: 'loss')"),
        ({"compute": {"name": "exit_time", "observe": "accuracy"}}, "observe: there is no such key"),
        ({"compute": {"name": "function", "function": "os.system('ls')", "quantities": ["a"]}}, "compute.function"),
        ({"compute": {"name": "analysis", "of": "__import__", "quantities": ["a"]}}, "compute.analysis.of"),
        ({"problem": {"width": 1}}, "give the name of it"),
        ({"runs": 0}, "runs"),
        ({"target_error": 0.1}, "most_runs"),
        ({"target_error": 0.1, "most_runs": 10}, "one run of a cell has no error"),
        ({"speed": 3}, "speed: there is no such key; a study has problem, algorithm"),
        ({"axes": {"problem.noise": {"from": 0, "to": 1, "points": 10**9}}}, "points"),
        ({"axes": {"problem.noise": GRID, "alpha": GRID}}, "cells"),
    ],
)
def test_what_is_wrong_with_a_study_is_said_in_words(fields, words):
    with pytest.raises(dimfree.InvalidInput) as refusal:
        dimfree.Study(**(SOLVE | fields))
    assert words in str(refusal.value)


def test_code_is_run_only_where_it_is_allowed(tmp_path):
    (tmp_path / "stranger.py").write_text("open('hacked', 'w')\n")
    study = changed(DRAW, compute=DRAW["compute"] | {"function": "stranger:run"})
    path = write_study(tmp_path, study)
    for command in (["plan", str(path)], ["run", str(path), "--store", str(tmp_path / "store")]):
        result = call("study", *command)
        assert result.exit_code == 2
        assert "--allow-code" in result.stderr
    assert not (tmp_path / "hacked").exists()
    assert not (tmp_path / "store").exists()


def test_the_file_and_the_object_are_the_same(tmp_path):
    study = dimfree.Study(**SOLVE)
    study.save(tmp_path / "study.yaml")
    assert dimfree.Study.load(tmp_path / "study.yaml") == study
    path = tmp_path / "words.yaml"
    path.write_text(yaml.safe_dump(SOLVE).replace("sphere: true", "sphere: true\n  ridge: 1e-3"))
    assert dimfree.Study.load(path).algorithm["ridge"] == 1e-3  # YAML takes it for a word


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"problem": {"name": "PhaseRetrival"}}, "PhaseRetrival"),
        ({"problem": {"name": "PhaseRetrieval", "widht": 1}}, "widht"),
        ({"algorithm": {"name": "GradientDescent", "samples_per_dimension": 2.0}}, "is for fresh samples"),
        ({"axes": {"problem.noise": [-1.0]}, "algorithm": {"name": "OnlineSGD", "learning_rate": 0.1}}, "noise = -1"),
        ({"axes": {"problem.noise": [1.0]}}, "learning_rate"),
        ({"compute": SOLVE["compute"] | {"observe": "accuracy"}}, "observe: accuracy was given, but TwoLayer("),
        (
            {"compute": {"name": "simulate", "observe": "accuracy"}},
            "has no classes. Take a mixture, or a multi-output with labels 'soft' or 'hard'.",
        ),
    ],
)
def test_a_cell_that_cannot_be_is_refused_before_anything_runs(tmp_path, fields, words):
    with pytest.raises(dimfree.InvalidInput) as refusal:
        dimfree.Study(**(SOLVE | fields)).run(tmp_path / "store", cluster="inline", progress=False)
    assert words in str(refusal.value)


# The cells.


def test_tasks_cover_the_grid_once_and_cells_that_cannot_be_compiled_together_are_apart():
    axes = SOLVE["axes"] | {"problem.width": [1, 2, 4]}
    layout = Layout(checked(SOLVE | {"axes": axes, "cells_per_task": 6}))
    assert layout.tile == (2, 3, 1)
    seen = np.concatenate([layout.task(number).index for number in range(layout.number_of_tasks)])
    assert sorted(seen) == list(range(4 * 5 * 3))
    for number in range(layout.number_of_tasks):
        cells = layout.task(number)
        assert len(set(cells.values["problem.width"])) == 1
        assert cells.values["algorithm.learning_rate"].dtype == float
        position = np.unravel_index(cells.index[0], layout.shape)
        assert cells.at(0)["problem.noise"] == layout.axes["problem.noise"][position[1]]


# The store.


def test_a_study_is_computed_once_and_what_is_missing_again(tmp_path):
    study, path = dimfree.Study(**SOLVE), tmp_path / "store"
    report = study.run(path, cluster="inline", progress=False)
    assert report.complete
    assert report.computed == 6
    data = dimfree.open_study(path)
    assert data.risk.dims == ("algorithm.learning_rate", "problem.noise")
    np.testing.assert_allclose(data["problem.noise"], np.geomspace(0.01, 1.0, 5))
    assert (data.status == 1).all()
    assert data.attrs["tasks_done"] == data.attrs["tasks"] == 6
    assert yaml.safe_load(data.attrs["study"])["compute"]["alpha"] == 10.0
    problem, sgd = dimfree.PhaseRetrieval(noise=0.1), dimfree.OnlineSGD(0.08, sphere=True)
    start = dimfree.State(Q=[[1.0]], M=[[0.2]])
    there = data.risk.sel({"algorithm.learning_rate": 0.08, "problem.noise": 0.1}, method="nearest")
    np.testing.assert_allclose(there, dimfree.solve(dimfree.ode(problem, sgd), start, 10.0).risk[-1], rtol=1e-5)

    before = arrays(path)
    assert study.run(path, cluster="inline", progress=False).computed == 0
    (path / "done" / "3.json").unlink()
    chunk = sorted((path / "results.zarr" / "risk" / "c").rglob("*"))[-1]
    (path / "done" / "5.json").unlink()
    chunk.unlink()
    (chunk.parent / f"9.{'0' * 32}.partial").write_bytes(b"half")
    assert study.run(path, cluster="inline", progress=False).computed == 2
    assert arrays(path) == before
    assert not [path for path in path.rglob("*") if path.suffix in (".pkl", ".pickle", ".partial")]


def test_a_partial_store_can_be_read_and_drawn(tmp_path):
    store, description = Store(tmp_path / "store"), checked(SOLVE)
    layout = Arrays(description)
    store.begin(description)
    store.take_up(description, layout, accept_changes=False, repair=False)
    empty = dimfree.open_study(tmp_path / "store")
    assert (empty.status == 0).all()
    assert empty.risk.isnull().all()
    cells = Layout(description).task(2)
    results = {name: np.full(len(cells), 0.5) for name in ("risk", "squared_overlap", "diverged")}
    status = np.array([1, 1, 2, 3], np.uint8)[: len(cells)]
    chunks = store.write(layout, cells, results | {"status": status})
    assert (dimfree.open_study(tmp_path / "store").status == 0).all()  # it does not count before it is said to be done
    store.mark_done(2, {"chunks": chunks})
    part = dimfree.open_study(tmp_path / "store")
    assert int(part.risk.notnull().sum()) == len(cells)
    files = ["--plot", str(tmp_path / "a.png"), "--output", str(tmp_path / "a.zarr")]
    result = call("study", "show", str(tmp_path / "store"), *files, "--level", "0.3", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["cells"]["missing"] == 20 - len(cells)
    with xarray.open_zarr(tmp_path / "a.zarr", consolidated=False) as data:
        assert int(data.risk.notnull().sum()) == len(cells)
    assert (tmp_path / "a.png").stat().st_size > 5_000


def test_a_changed_study_is_refused_and_what_changed_is_said(tmp_path):
    dimfree.Study(**SOLVE).run(tmp_path / "store", cluster="inline", progress=False)
    before = arrays(tmp_path / "store")
    with pytest.raises(dimfree.InvalidInput) as refusal:
        dimfree.Study(**changed(SOLVE, compute=SOLVE["compute"] | {"alpha": 11.0}, seed=3)).run(
            tmp_path / "store", cluster="inline", progress=False
        )
    assert "compute.alpha: 10.0 in the store, 11.0 now" in str(refusal.value)
    assert "seed: 0 in the store, 3 now" in str(refusal.value)
    assert arrays(tmp_path / "store") == before
    dimfree.Study(**changed(SOLVE, title="only a name")).run(tmp_path / "store", cluster="inline", progress=False)
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(dimfree.InvalidInput, match="holds other files"):
        dimfree.Study(**SOLVE).run(tmp_path, cluster="inline", progress=False)


def test_a_store_at_a_url(tmp_path):
    dimfree.Study(**SOLVE).run("memory://study", cluster="inline", progress=False)
    dimfree.Study(**SOLVE).run(tmp_path / "store", cluster="inline", progress=False)
    there, here = dimfree.open_study("memory://study"), dimfree.open_study(tmp_path / "store")
    np.testing.assert_array_equal(there.risk, here.risk)


# One driver.


def test_one_driver_at_a_time_and_the_lock_of_a_dead_one_is_taken_over(tmp_path, monkeypatch):
    files = Files(tmp_path)
    with Lock(files), pytest.raises(dimfree.InvalidInput, match=f"process {os.getpid()}"), Lock(files):
        pass
    assert not (tmp_path / "lock.json").exists()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead = Lock(files).own | {"pid": ended.pid}
    reused = Lock(files).own | {"began": 1}  # this process id, but an earlier process
    for holder in (dead, reused):
        files.write("lock.json", holder)
        with Lock(files):
            assert files.read("lock.json")["pid"] == os.getpid()
        assert not list(tmp_path.iterdir())
    # Another driver took over, and was done with it, between two looks of this one.
    files.write("lock.json", dead)
    monkeypatch.setattr(files, "create", lambda name, data: False)
    with pytest.raises(dimfree.InvalidInput, match="taking over"), Lock(files):
        pass


# The engine.


def test_two_workers_one_of_them_killed_and_a_second_driver_refused(tmp_path):
    study, store = write_study(tmp_path, DRAW), tmp_path / "store"
    reference = start(study, tmp_path / "reference", "--cluster", "inline")
    driver = start(study, store, "--workers", "2")
    wait_for(lambda: done(store) >= 2)
    kill(workers(driver)[0])
    second = call("study", "run", str(study), "--store", str(store), "--allow-code")
    assert second.exit_code == 2
    assert f"process {driver.pid}" in second.stderr
    assert "16 of 16 tasks" in finish(driver)
    finish(reference)
    assert arrays(store) == arrays(tmp_path / "reference")


def test_plan_counts_and_times(tmp_path):
    result = call("study", "plan", str(write_study(tmp_path, SOLVE)), "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["cells"], found["tasks"], found["cells_per_task"]) == (20, 6, 4)
    assert found["bytes"] == 20 * (3 * 8 + 1)
    assert 0 < found["cell_seconds"] < 60


def test_plan_of_time_counts_whole_tasks():
    """Tasks at the edge of the grid are filled up: 20 cells in 6 tasks of 4 are the work of 24."""
    plan = Plan(cells=20, tasks=6, cells_per_task=4, runs=1, bytes=0, probed=2, compile_seconds=3.0, cell_seconds=0.5)
    assert [plan.seconds(workers) for workers in (1, 4, 100)] == [3 + 12, 3 + 4, 3 + 2]


@pytest.fixture
def compiled_programs(tmp_path):
    """A directory of its own for compiled programs, none of which is in memory."""
    new = {
        "jax_compilation_cache_dir": str(tmp_path / "programs"),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
    }
    old = {name: jax.config.values[name] for name in new}
    for name, value in new.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    jax.clear_caches()
    yield
    for name, value in old.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.mark.usefixtures("compiled_programs")
def test_plan_tells_compiling_from_computing(monkeypatch):
    """Where compiling takes longer than a measurement may, where programs are loaded, and where they are in memory."""
    monkeypatch.syspath_prepend(os.path.dirname(__file__))
    monkeypatch.setattr("dimfree.studies.plan._LONG", 1.0)
    study = dimfree.Study(
        problem={"name": "PhaseRetrieval"},
        algorithm={"name": "OnlineSGD", "learning_rate": 0.1},
        axes={"problem.noise": [0.0, 1.0, 2.0]},
        compute={
            "name": "function",
            "function": "study_functions:compiled",
            "quantities": ["value"],
            "settings": {"pause": 0.05},
        },
    )
    plans = {"compiled": study.plan(allow_code=True), "in memory": study.plan(allow_code=True)}
    jax.clear_caches()
    plans["loaded"] = study.plan(allow_code=True)
    for programs, plan in plans.items():
        assert 0.05 <= plan.cell_seconds < 0.5
        assert plan.programs == programs
    assert plans["compiled"].compile_seconds > 1.0
    assert plans["in memory"].compile_seconds < 0.5
    words = {"compiled": "s to compile, once", "loaded": "to load compiled programs", "in memory": "compiled before in"}
    assert all(text in str(plans[programs]) for programs, text in words.items())


# Refinement.


def test_refined_cells_crowd_at_the_boundary_and_resuming_repeats_nothing(tmp_path, monkeypatch):
    study = dimfree.Study(
        **changed(
            SOLVE,
            axes={"algorithm.learning_rate": {"from": 0.05, "to": 0.2}, "problem.noise": {"from": 0.0, "to": 12.0}},
            compute={
                "name": "function",
                "function": "study_functions:step",
                "quantities": ["phase"],
                "vectorised": True,
            },
            refine={"quantity": "phase", "resolution": 0.06, "most_cells": 512, "cells_per_round": 16},
            cells_per_task=10,  # of a round of 16, tasks of 8
        )
    )
    monkeypatch.syspath_prepend(os.path.dirname(__file__))
    report = study.run(tmp_path / "store", cluster="inline", allow_code=True, progress=False)
    data = dimfree.open_study(tmp_path / "store")
    assert list(data.coords) == list(study.axes)
    cells = data.sizes["cell"]
    assert cells < 512  # it was resolved before it was given up
    rates, noise = data["algorithm.learning_rate"].values, data["problem.noise"].values
    distance = np.abs(rates - 2 / (12 + noise)) / 0.15
    assert np.mean(distance < 0.06) > 0.4  # of even points, about a tenth
    # Every point of the boundary has a cell within the resolution on both sides.
    for at in np.linspace(0.2, 11.8, 25):
        near = (np.abs(noise - at) / 12 < 0.07) & (np.abs(rates - 2 / (12 + at)) / 0.15 < 0.07)
        assert set(data.phase.values[near]) == {0.0, 1.0}
    before = arrays(tmp_path / "store")
    for task in range(3, report.tasks):
        (tmp_path / "store" / "done" / f"{task}.json").unlink()
    again = study.run(tmp_path / "store", cluster="inline", allow_code=True, progress=False)
    assert (again.tasks, again.computed) == (report.tasks, report.tasks - 3)
    assert arrays(tmp_path / "store") == before
