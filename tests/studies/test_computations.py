"""What a study computes in a cell is what the library computes for that problem alone."""

import json
import os

import jax
import numpy as np
import pytest
import scipy.optimize

import dimfree
from dimfree.studies.cells import Layout, cells_in_full_task
from dimfree.studies.computations import cell_keys, compute
from dimfree.studies.description import Description, checked
from dimfree.studies.quantities import averages, fraction
from processes import printed_by

AXES = {"algorithm.learning_rate": [0.05, 0.12], "problem.noise": [0, 1.5]}


def study(**fields) -> Description:
    base = {
        "problem": {"name": "PhaseRetrieval"},
        "algorithm": {"name": "OnlineSGD", "sphere": True},
        "axes": AXES,
        "compute": {"name": "exit_time", "d": 40, "alpha": 12.0, "threshold": 0.2},
        "runs": 6,
    }
    return checked(base | fields)


def test_exit_times_of_all_cells_are_those_of_simulate_one_by_one():
    description = study()
    cells = Layout(description).task(0)
    found, errors = compute(description, cells, size=len(cells))
    assert not errors
    keys = cell_keys(description, cells)
    for position in range(len(cells)):
        values = cells.at(position)
        problem = dimfree.PhaseRetrieval(noise=values["problem.noise"])
        sgd = dimfree.OnlineSGD(values["algorithm.learning_rate"], sphere=True)
        start_key, run_key = jax.random.split(jax.random.fold_in(keys[position], 0))
        starts = jax.vmap(lambda key, problem=problem: dimfree.random_state(problem, 40, key=key))(
            jax.random.split(start_key, 6)
        )
        # On the sphere the plateau of one student has no overlap: risk 2 above that of the noise.
        level = problem.noise / 2 + 0.8 * 2.0
        runs = dimfree.simulate(
            problem,
            sgd,
            starts,
            40,
            np.array([0.0, 12.0]),
            runs=6,
            key=run_key,
            stop=lambda state, problem=problem, level=level: level - problem.risk(state),
        )
        left = np.asarray(runs.outcome) == dimfree.Outcome.STOPPED
        assert found["left"][position] == left.mean()
        np.testing.assert_allclose(found["exit_time"][position], np.asarray(runs.stopped_at)[left].mean(), rtol=1e-12)
    assert found["left"].min() > 0
    assert found["left"].min() < 1  # both kinds of runs were compared


@pytest.mark.slow
def test_simulate_and_solve_agree_with_the_library():
    solved = study(
        compute={"name": "solve", "alpha": 8.0, "overlap": 0.3, "tolerance": 1e-8},
        axes=AXES | {"problem.width": [1, 2]},
        runs=1,
    )
    layout = Layout(solved)
    assert layout.tile == (2, 2, 1)  # widths are compiled apart
    for task in range(layout.number_of_tasks):
        cells = layout.task(task)
        found, errors = compute(solved, cells, size=len(cells))
        assert not errors
        assert set(found) == {"risk", "squared_overlap", "diverged"}
        for position in (0, 3):
            values = cells.at(position)
            width = values["problem.width"]
            problem = dimfree.PhaseRetrieval(width, values["problem.noise"])
            sgd = dimfree.OnlineSGD(values["algorithm.learning_rate"], sphere=True)
            start = dimfree.State(Q=np.eye(width), M=0.3 * np.eye(width, 1))
            theory = dimfree.solve(dimfree.ode(problem, sgd), start, 8.0)
            np.testing.assert_allclose(found["risk"][position], theory.risk[-1], rtol=1e-6)
            np.testing.assert_allclose(found["squared_overlap"][position], (theory.final.M**2).sum(), rtol=1e-6)


CLUSTERS = {
    "problem": {
        "name": "mixture", "means": [[1.0], [-1.0]], "labels": [1, 0], "width": 1, "snr": 4.0, "activation": "linear",
    },
    "algorithm": {"name": "OnlineSGD"},
    "axes": {"algorithm.learning_rate": [0.2, 1.0], "alpha": [0.5, 3.0]},
}  # fmt: skip


def classifier(values) -> tuple[dimfree.Mixture, dimfree.OnlineSGD]:
    problem = dimfree.Mixture([[1.0], [-1.0]], [1, 0], width=1, snr=4.0, activation="linear")
    return problem, dimfree.OnlineSGD(values["algorithm.learning_rate"])


def test_the_accuracy_of_theory_is_that_of_the_library():
    description = study(**CLUSTERS, compute={"name": "solve", "overlap": 0.3, "observe": "accuracy"}, runs=1)
    cells = Layout(description).task(0)
    found, errors = compute(description, cells, size=len(cells))
    assert not errors
    assert set(found) == {"risk", "squared_overlap", "accuracy", "diverged"}
    for position in range(4):
        values = cells.at(position)
        start = dimfree.State(Q=[[1.0]], M=[[0.3]])
        theory = dimfree.solve(dimfree.ode(*classifier(values)), start, values["alpha"])
        np.testing.assert_allclose(found["accuracy"][position], theory.observe("accuracy")[-1], rtol=1e-6)
    assert np.ptp(found["accuracy"]) > 0.1


@pytest.mark.slow
def test_the_accuracy_of_runs_is_that_of_the_library():
    description = study(**CLUSTERS, compute={"name": "simulate", "d": 40, "observe": "accuracy"}, runs=6)
    cells = Layout(description).task(0)
    found, errors = compute(description, cells, size=len(cells))
    assert not errors
    for position, key in enumerate(cell_keys(description, cells)):
        values = cells.at(position)
        problem, sgd = classifier(values)
        start_key, run_key = jax.random.split(jax.random.fold_in(key, 0))
        starts = jax.vmap(lambda key, problem=problem: dimfree.random_state(problem, 40, key=key))(
            jax.random.split(start_key, 6)
        )
        runs = dimfree.simulate(problem, sgd, starts, 40, [0.0, values["alpha"]], runs=6, key=run_key)
        expected = np.asarray(runs.observe("accuracy"))[:, -1]
        np.testing.assert_allclose(found["accuracy"][position], expected.mean(), rtol=1e-12)
        np.testing.assert_allclose(found["accuracy_error"][position], expected.std(ddof=1) / 6**0.5, rtol=1e-9)
    assert np.ptp(found["accuracy"]) > 0.1


@pytest.mark.slow
def test_runs_that_diverge_have_no_accuracy():
    description = study(
        **CLUSTERS | {"axes": {"algorithm.learning_rate": [0.5, 1e5]}},
        compute={"name": "simulate", "d": 40, "alpha": 1.0, "observe": "accuracy"},
        runs=3,
    )
    found, _ = compute(description, Layout(description).task(0), size=2)
    assert found["diverged"].tolist() == [0, 1]
    assert np.isfinite(found["accuracy"]).tolist() == [True, False]


def test_further_runs_are_made_until_the_error_is_small_and_only_where_it_is_not():
    axes = {"algorithm.learning_rate": [0.001, 0.03, 0.1, 0.12]}
    description = study(target_error=0.1, most_runs=60, axes=axes)
    cells = Layout(description).task(0)
    found, _ = compute(description, cells, size=4)
    assert found["runs"].min() < found["runs"].max()
    enough = found["left_error"] <= 0.1
    assert (enough | (found["runs"] == 60)).all()
    # The first round is the one that a study without target makes.
    first, _ = compute(study(axes=axes), cells, size=4)
    same = found["runs"] == 6
    np.testing.assert_array_equal(found["left"][same], first["left"][same])


@pytest.mark.parametrize("vectorised", [True, False])
def test_the_target_is_for_the_error_of_the_first_quantity_of_a_function(monkeypatch, vectorised):
    monkeypatch.syspath_prepend(os.path.dirname(__file__))
    compute_ = {"name": "function", "function": "study_functions:scattered", "quantities": ["wide", "narrow"]}
    axes = {"algorithm.learning_rate": [0.1, 0.2]}
    settings = {"runs": 10, "target_error": 0.2, "most_runs": 500, "axes": axes, "cells_per_task": 2}
    description = study(compute=compute_ | {"vectorised": vectorised}, **settings)
    found, errors = compute(description, Layout(description).task(0), size=2)
    assert not errors
    assert (found["wide_error"] <= 0.2).all()
    assert (found["runs"] >= 20).all()  # ten runs have an error of about 0.3
    assert (found["runs"] <= 60).all()


def test_a_quantity_that_a_vectorised_function_does_not_return_is_an_error(monkeypatch):
    monkeypatch.syspath_prepend(os.path.dirname(__file__))
    function = {"name": "function", "function": "study_functions:step", "quantities": ["phase", "fase"]}
    description = study(compute=function | {"vectorised": True}, runs=1)
    with pytest.raises(dimfree.InvalidInput, match="fase is not in what the function returns: phase"):
        compute(description, Layout(description).task(0), size=4)


def test_a_small_grid_is_not_filled_up_to_the_largest_task():
    axes = {"algorithm.learning_rate": [0.05, 0.1, 0.15], "problem.width": [1, 2]}
    assert cells_in_full_task(study(axes=axes, runs=1)) == 3  # widths are compiled apart


def test_a_cell_does_not_depend_on_the_cells_beside_it():
    description = study()
    layout = Layout(description)
    whole = layout.task(0)
    together, _ = compute(description, whole, size=len(whole))
    corner = layout.cells({name: np.array([1]) for name in layout.names})
    alone, _ = compute(description, corner, size=4)
    for name, values in alone.items():
        np.testing.assert_allclose(values[0], together[name][-1], rtol=1e-12)


@pytest.mark.slow
def test_a_cell_without_a_plateau_fails_in_words_and_the_other_does_not():
    description = study(
        problem={"name": "TwoLayer", "width": 1},
        algorithm={"name": "OnlineSGD", "learning_rate": 0.1, "sphere": True},
        axes={"problem.activation": ["erf", "he2"]},
    )
    layout = Layout(description)
    _, errors = compute(description, layout.task(0), size=1)
    assert "There is no plateau" in errors[0]
    found, errors = compute(description, layout.task(1), size=1)
    assert not errors
    assert np.isfinite(found["left"]).all()


def test_a_scaling_law_in_each_cell():
    """Its problem is a family; the phases of the plane are where its exponents change."""
    law = study(
        problem={"name": "PowerLawFeatures", "target_exponent": 0.75},
        algorithm={"name": "OnlineSGD", "learning_rate": 0.2},
        axes={"problem.input_exponent": [0.9, 1.2]},
        compute={
            "name": "analysis",
            "of": "scaling_law",
            "quantities": ["exponents.compute.value", "exponents.size.high"],
            "settings": {"sizes": [100, 200, 400, 800], "samples": 1e5},
        },
        runs=1,
        cells_per_task=2,
    )
    found, errors = compute(law, Layout(law).task(0), size=2)
    assert not errors
    for position, a in enumerate((0.9, 1.2)):
        family, sgd = dimfree.PowerLawFeatures(a, 0.75), dimfree.OnlineSGD(0.2)
        exponents = dimfree.scaling_law(family, sgd, [100, 200, 400, 800], 1e5).exponents
        assert found["exponents.compute.value"][position] == exponents["compute"].value
        assert found["exponents.size.high"][position] == exponents["size"].high
    with pytest.raises(dimfree.InvalidInput, match="TwoLayer"):
        Layout(law.model_copy(update={"problem": {"name": "TwoLayer"}}))


@pytest.mark.slow
def test_analyses_cell_by_cell():
    points = study(compute={"name": "fixed_points", "starts": 16}, axes={"algorithm.learning_rate": [0.1, 0.2]}, runs=1)
    found, errors = compute(points, Layout(points).task(0), size=1)
    assert not errors
    assert found["stable_components"][0] == 2  # the two signs of the teacher, below 1/6
    best = study(
        compute={
            "name": "analysis",
            "of": "best_learning_rate",
            "quantities": ["learning_rate", "stable_below"],
            "settings": {"d": 1_000},
        },
        algorithm={"name": "OnlineSGD", "sphere": True, "learning_rate": 0.05},
        axes={"problem.noise": [0.0, 4.0]},
        runs=1,
        cells_per_task=2,
    )
    found, errors = compute(best, Layout(best).task(0), size=2)
    assert not errors
    # Where the end of the ODE, of squared overlap 1 - rate noise / (2 - 12 rate), has lost a tenth of the excess.
    np.testing.assert_allclose(found["stable_below"], [3.6 / 21.6, 3.6 / (8 + 21.6)], rtol=2e-3)
    mean_field = study(
        compute={"name": "dmft", "time": 0.2, "overlap": 0.8, "paths": 1024, "error": 0.05},
        algorithm={"name": "GradientDescent", "learning_rate": 0.01, "sphere": True},
        axes={"algorithm.samples_per_dimension": [2.0]},
        runs=1,
    )
    found, errors = compute(mean_field, Layout(mean_field).task(0), size=1)
    assert not errors
    assert found["overlap"][0] > 0.8


@pytest.mark.slow
def test_the_best_protocol_of_each_cell():
    """Of least squares: the excess e falls at best as -e^2 / (e + noise), from random students of length one."""
    best = study(
        problem={"name": "TwoLayer", "width": 1, "teacher_width": 1, "activation": "linear"},
        algorithm={"name": "OnlineSGD", "learning_rate": 0.1},
        compute={
            "name": "analysis",
            "of": "best_protocol",
            "quantities": ["objective", "constant.objective", "residual"],
            "settings": {"alpha": 5.0, "d": 10**8, "over": {"algorithm.learning_rate": [0.0, 1.0, 8]}, "searches": 1},
        },
        axes={"problem.noise": [0.5, 1.0]},
        runs=1,
        cells_per_task=2,
    )
    found, errors = compute(best, Layout(best).task(0), size=2)
    assert not errors
    for noise, objective in zip((0.5, 1.0), found["objective"], strict=True):

        def needed(excess, noise=noise):
            return np.log(2 / excess) + noise / excess - noise / 2

        least = scipy.optimize.root_scalar(lambda excess, needed=needed: needed(excess) - 5.0, bracket=(1e-6, 2.0))
        np.testing.assert_allclose(objective, least.root / 2, rtol=1e-3)
    assert (found["constant.objective"] > 1.05 * found["objective"]).all()


def test_averages_leave_out_what_is_not_finite():
    found = averages({"a": np.array([[1.0, 3.0, np.inf], [np.nan, np.nan, np.nan]])})
    np.testing.assert_allclose(found["a"], [2.0, np.nan])
    np.testing.assert_allclose(found["a_error"], [1.0, np.nan])
    mean, error = fraction(np.array([[True] * 14, [True] * 7 + [False] * 7]))
    np.testing.assert_allclose(mean, [1.0, 0.5])
    np.testing.assert_allclose(error, [np.sqrt(15 / 17) / 16, 8 / np.sqrt(17) / 16])


@pytest.mark.slow
def test_many_devices_share_a_task():
    code = """
import os, json
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count={devices}"
import jax
from dimfree.studies.cells import Layout
from dimfree.studies.computations import compute
from dimfree.studies.description import checked
assert len(jax.devices()) == {devices}
description = checked(json.loads({text!r}))
found, _ = compute(description, Layout(description).task(0), size=4)
print(json.dumps({{name: values.tolist() for name, values in found.items()}}))
"""
    text = json.dumps(study().to_dict())
    one, four = (json.loads(printed_by(code.format(devices=devices, text=text))) for devices in (1, 4))
    for name in one:
        np.testing.assert_allclose(one[name], four[name], rtol=1e-12)
