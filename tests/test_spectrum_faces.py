"""Inputs with a spectrum where a user meets them: command line, study files, results and citations."""

import dataclasses
import json
import re

import jax
import numpy as np
import pytest

import dimfree
from commands import call
from dimfree import InvalidInput, Spectrum, registry
from dimfree.analysis.exit_times import exit_level, random_starts
from dimfree.analysis.plateau import rest
from dimfree.cli.problem_options import stated
from dimfree.explorer.computations import curves, flow, regime_map
from dimfree.explorer.settings import PROBLEMS
from dimfree.studies.cells import Layout
from dimfree.studies.computations import cell_keys, compute
from dimfree.studies.description import checked

THREE = {"spectrum": "4,1,0.25", "fractions": "0.1,0.3,0.6"}
OPTIONS = ("--spectrum", "4,1,0.25", "--fractions", "0.1,0.3,0.6")
POWER_LAW = {"name": "power_law", "exponent": 1.4, "dimensions": 100, "blocks": 4}


def same(found: Spectrum, expected: Spectrum) -> bool:
    return found.eigenvalues.tolist() == expected.eigenvalues.tolist() and (
        found.fractions.tolist() == expected.fractions.tolist()
    )


# Plain data.


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([4, 1, 0.25], Spectrum([4.0, 1.0, 0.25])),
        ("4,1,0.25", Spectrum([4.0, 1.0, 0.25])),
        (2.0, Spectrum([2.0])),
        ({"eigenvalues": [4, 1], "fractions": [0.1, 0.9]}, Spectrum([4.0, 1.0], [0.1, 0.9])),
        (POWER_LAW, Spectrum.power_law(1.4, 100, 4)),
        ("power-law:1.4,100,12", Spectrum.power_law(1.4, 100, 12)),
        ("power_law:2,1e2", Spectrum.power_law(2.0, 100)),
        ({"name": "power-law", "exponent": 2, "dimensions": 100}, Spectrum.power_law(2.0, 100)),
        ("marchenko-pastur:0.5,8", Spectrum.marchenko_pastur(0.5, 8)),
        ({"name": "marchenko_pastur", "ratio": 2}, Spectrum.marchenko_pastur(2.0)),
    ],
)
def test_plain_data_state_a_spectrum(given, expected):
    made = registry.make("problem", "TwoLayer", {"width": 2, "spectrum": given})
    assert same(made.inputs, expected)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("power-law:1.4", r"power-law:EXPONENT,DIMENSIONS\[,BLOCKS\]"),
        ("power-law:1.4,100,16,3", "power-law:EXPONENT"),
        ("cauchy:3", "cauchy:3.* was given; write eigenvalues"),
        ("spectrum:1,2", "was given; write eigenvalues"),
        ("a,b", "separated by commas"),
        ("", "separated by commas"),
        (True, "separated by commas"),
        ({"fractions": [0.5, 0.5]}, "separated by commas"),
        ({"name": "cauchy"}, "no spectrum called cauchy"),
        ({"name": "power_law", "exponent": 1.4}, "power_law needs dimensions"),
        (
            {"name": "power_law", "exponent": 1.4, "dimensions": 10, "ratio": 1},
            "ratio was given, but Spectrum.power_law",
        ),
        ({"name": "power_law", "exponent": [1.4], "dimensions": 10}, "takes no list here"),
        ({"name": "power_law", "exponent": "steep", "dimensions": 10}, "steep"),
        ({"eigenvalues": ["a", 1]}, "list of numbers"),
        ([1, -2], "zero or positive"),
        ("power-law:1.4,100,2.5", r"blocks(.|\n)*2\.5"),
        ("power-law:-1,100", "exponent = -1"),
    ],
)
def test_what_is_no_spectrum_is_said_in_words(given, words):
    with pytest.raises(InvalidInput, match=words):
        registry.make("problem", "TwoLayer", {"width": 2, "spectrum": given})


def test_a_problem_without_fields_takes_no_spectrum():
    with pytest.raises(InvalidInput, match=r"spectrum was given, but .* has no such argument"):
        registry.make("problem", "SpikedTensor", {"order": 3, "snr": 2.0, "spectrum": [1.0, 2.0]})


def test_clusters_take_a_spectrum():
    made = registry.make("problem", "Mixture.xor", {"width": 4, "snr": 2.0, "spectrum": [1.0, 2.0]})
    assert made.inputs.blocks == 2


# The command line.


def test_options_and_a_file_state_the_same(tmp_path):
    expected = Spectrum([4.0, 1.0, 0.25], [0.1, 0.3, 0.6])
    assert same(stated(THREE)[0].inputs, expected)
    path = tmp_path / "problem.yaml"
    path.write_text("problem: {name: PhaseRetrieval, spectrum: {eigenvalues: [4, 1, 2.5e-1]}}\n")
    assert same(stated({"file": path, "fractions": THREE["fractions"]})[0].inputs, expected)
    assert same(
        stated({"file": path, **THREE, "spectrum": "1,2,3"})[0].inputs, Spectrum([1.0, 2.0, 3.0], [0.1, 0.3, 0.6])
    )
    assert same(stated({"file": path, "spectrum": "power-law:1,9,9"})[0].inputs, Spectrum.power_law(1.0, 9))


@pytest.mark.parametrize("spectrum", [{}, {"spectrum": "power-law:1.4,100"}])
def test_fractions_belong_to_eigenvalues(spectrum):
    with pytest.raises(InvalidInput, match=r"--fractions 0\.5,0\.5 was given; they belong to eigenvalues"):
        stated({"fractions": "0.5,0.5", **spectrum})


def test_solve_and_simulate_print_the_numbers_of_the_library():
    options = ("--problem", "two-layer", "--learning-rate", "0.5", "--alpha", "2", "--overlap", "0.3", "-d", "300")
    found = json.loads(call("solve", *OPTIONS, *options, "--limit", "linear-noise", "--simulate", "3", "--json").stdout)
    problem = dimfree.TwoLayer(1, 1, activation="erf").with_inputs(Spectrum([4.0, 1.0, 0.25], [0.1, 0.3, 0.6]))
    assert found["problem"] == repr(problem)
    start, sgd = dimfree.State(Q=[[1.0]], M=[[0.3]]), dimfree.OnlineSGD(0.5)
    theory = dimfree.solve(dimfree.linear_noise(problem, sgd, 300), start, 2.0)
    np.testing.assert_allclose(found["theory"]["risk"], theory.risk, rtol=1e-9)
    # M is the sum over blocks, and so is what deviates: the blocks are correlated.
    blocks = [theory.labels.index(f"M[0,0] of block {block}") for block in range(3)]
    covariance = np.asarray(theory.covariance)[-1][np.ix_(blocks, blocks)]
    deviation = found["theory"]["standard_deviation"]["M[0,0]"][-1]
    np.testing.assert_allclose(deviation, np.sqrt(covariance.sum()), rtol=1e-9)
    assert abs(deviation - np.sqrt(np.trace(covariance))) > 0.01 * deviation
    assert abs(found["simulation"]["risk"][-1] - found["theory"]["risk"][-1]) < 0.05


@pytest.mark.parametrize(
    "command", [("fixed-points",), ("landscape",), ("equations",), ("equations", "--latex")], ids="-".join
)
def test_a_command_for_isotropic_inputs_says_so(command):
    result = call(*command, *OPTIONS)
    assert result.exit_code == 2
    assert re.search("isotropic|standard", result.stderr)
    assert "dimfree.ode" in result.stderr


def test_a_dimension_that_is_too_small_for_the_blocks_is_refused_with_one_that_is_not():
    result = call("simulate", "--spectrum", "power-law:1.4,1000", "-d", "100", "--alpha", "1", "--runs", "2")
    assert result.exit_code == 2
    assert "which has 0 of d = 100 dimensions; take a larger d (about 1000)" in result.stderr


def test_citations_of_a_spectrum_come_with_anything_that_has_one():
    problem = dimfree.TwoLayer(1, 1, activation="erf")
    shaped = problem.with_inputs(Spectrum([4.0, 1.0]))
    sgd, start = dimfree.OnlineSGD(0.5), dimfree.State(Q=[[1.0]], M=[[0.3]])
    ours = {"yoshida2019", "goldt2020", "collinswoodfin2023", "worschech2024"}
    for each, expected in ((problem, set()), (shaped, ours)):
        limit = dimfree.ode(each, sgd)
        for item in (each, limit, dimfree.solve(limit, start, 0.1)):
            assert set(re.findall(r"^@\w+\{(\w+),", dimfree.cite(item), re.MULTILINE)) & ours == expected
    text = dimfree.cite(shaped)
    assert text.count("{") == text.count("}")
    assert "worschech2024" in call("cite", *OPTIONS).stdout


# Studies.


def study(**fields):
    base = {
        "problem": {"name": "TwoLayer", "width": 2, "activation": "erf", "spectrum": POWER_LAW},
        "algorithm": {"name": "OnlineSGD", "learning_rate": 0.5},
        "axes": {"problem.spectrum.exponent": [0.5, 1.5], "problem.noise": [0.0, 0.1]},
        "compute": {"name": "solve", "alpha": 2.0, "overlap": 0.3, "tolerance": 1e-8},
    }
    return base | fields


def cells_of(description):
    layout = Layout(description)
    for task in range(layout.number_of_tasks):
        cells = layout.task(task)
        found, errors = compute(description, cells, size=len(cells))
        assert not errors
        for position in range(len(cells)):
            yield cells.at(position), {name: values[position] for name, values in found.items()}, cells, position


def test_a_sweep_over_an_exponent_computes_what_the_library_does():
    description = checked(study())
    assert Layout(description).tile == (1, 2)  # the blocks of a spectrum are arranged before anything is compiled
    risks = set()
    for values, found, *_ in cells_of(description):
        spectrum = Spectrum.power_law(values["problem.spectrum.exponent"], 100, 4)
        problem = dimfree.TwoLayer(2, 1, activation="erf", noise=values["problem.noise"]).with_inputs(spectrum)
        start = dimfree.State(Q=np.eye(2), M=[[0.3], [0.0]])
        theory = dimfree.solve(dimfree.ode(problem, dimfree.OnlineSGD(0.5)), start, 2.0)
        np.testing.assert_allclose(found["risk"], theory.risk[-1], rtol=1e-6)
        risks.add(float(found["risk"]))
    assert len(risks) == 4


@pytest.mark.parametrize("name", ["simulate", pytest.param("exit_time", marks=pytest.mark.slow)])
def test_simulations_of_a_study_are_those_of_the_library(name):
    sgd, d, runs = dimfree.OnlineSGD(0.02, sphere=True), 40, 6
    description = checked(
        study(
            problem={"name": "PhaseRetrieval"},
            algorithm={"name": "OnlineSGD", "learning_rate": 0.02, "sphere": True},
            axes={"problem.spectrum": ["2,1,0.25", "marchenko-pastur:0.5,3"]},
            compute={"name": name, "d": d, "alpha": 20.0},
            runs=runs,
        )
    )
    for values, found, cells, position in cells_of(description):
        problem = registry.make("problem", "PhaseRetrieval", {"spectrum": values["problem.spectrum"]})
        start_key, run_key = jax.random.split(jax.random.fold_in(cell_keys(description, cells)[position], 0))
        starts = random_starts(problem, d, runs, key=start_key)
        level = -1.0
        if name == "exit_time":
            level = float(exit_level(problem, problem.risk(rest(dimfree.ode(problem, sgd))), 0.1))

        def below(state, problem=problem, level=level):
            return level - problem.risk(state)

        alone = dimfree.simulate(problem, sgd, starts, d, [0.0, 20.0], runs=runs, key=run_key, stop=below)
        assert not np.any(np.asarray(alone.outcome) == dimfree.Outcome.DIVERGED)
        if name == "simulate":
            np.testing.assert_allclose(found["risk"], np.asarray(alone.risk)[:, -1].mean(), rtol=1e-9)
        else:
            left = np.asarray(alone.outcome) == dimfree.Outcome.STOPPED
            assert found["left"] == left.mean() > 0
            np.testing.assert_allclose(found["exit_time"], np.asarray(alone.stopped_at)[left].mean(), rtol=1e-12)


def test_two_spectra_are_two_results_and_the_store_says_which(tmp_path):
    fields = study(axes={"problem.spectrum.exponent": [0.5, 1.5], "algorithm.learning_rate": [0.2]})
    dimfree.Study(**fields).run(tmp_path / "store", cluster="inline")
    data = dimfree.open_study(tmp_path / "store")
    # The axes are in the order of the study, which is not that of the alphabet.
    assert data.risk.dims == ("problem.spectrum.exponent", "algorithm.learning_rate")
    assert data.risk.shape == (2, 1)
    assert "dimensions: 100" in data.attrs["study"]
    for changed, words in (
        ({"problem": fields["problem"] | {"spectrum": POWER_LAW | {"dimensions": 200}}}, "spectrum.dimensions: 100"),
        ({"axes": dict(reversed(fields["axes"].items()))}, "axes: in the order"),
    ):
        with pytest.raises(InvalidInput, match=f"another study(.|\n)*{words}"):
            dimfree.Study(**fields | changed).run(tmp_path / "store", cluster="inline")


def test_a_study_from_its_file_is_the_same(tmp_path):
    path = tmp_path / "study.yaml"
    dimfree.Study(**study()).save(path)
    assert dimfree.Study.load(path).to_dict() == dimfree.Study(**study()).to_dict()
    path.write_text(path.read_text().replace("exponent: 1.4", "exponent: 14e-1"))  # which YAML takes for a word
    assert dimfree.Study.load(path).to_dict() == dimfree.Study(**study()).to_dict()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"problem": {"name": "PhaseRetrieval"}}, "problem.spectrum.exponent was given; the problem needs spectrum"),
        ({"problem": {"name": "PhaseRetrieval", "spectrum": "power-law:1,10"}}, "needs spectrum"),
        ({"axes": {"problem.spectrum.name": ["power_law"]}}, "name it problem"),
        ({"axes": {"problem.spectrum.steepness": [1.0]}}, "steepness was given, but Spectrum.power_law"),
        ({"axes": {"problem.spectrum.exponent": [-1.0]}}, "exponent = -1"),
        ({"compute": {"name": "fixed_points"}}, "isotropic"),
    ],
)
def test_what_is_wrong_with_a_study_is_said_before_it_runs(tmp_path, fields, words):
    with pytest.raises(InvalidInput, match=words):
        dimfree.Study(**study(**fields)).run(tmp_path / "store", cluster="inline")


def test_provenance_is_the_call_that_makes_the_problem():
    problem = dimfree.TwoLayer(1, 1, activation="erf", noise=0.25).with_inputs(Spectrum([4.0, 1 / 3], [0.1, 0.9]))
    solved = dimfree.solve(dimfree.ode(problem, dimfree.OnlineSGD(0.5)), dimfree.State(Q=[[1.0]], M=[[0.3]]), 0.1)
    words = dict(solved.provenance)["problem"]
    made = eval(words, {"TwoLayer": dimfree.TwoLayer, "Spectrum": Spectrum})
    assert same(made.inputs, problem.inputs)
    assert solved.to_xarray().attrs["problem"] == words


# The explorer.


@pytest.mark.slow
def test_the_explorer_has_the_curves_of_a_power_law():
    settings = dataclasses.replace(PROBLEMS["power-law"].default, d=100, alpha=10.0)
    result = curves(settings)
    spectrum = Spectrum.power_law(1.0, 100, 12)
    problem = dimfree.TwoLayer(1, 1, activation="erf").with_inputs(spectrum)
    assert same(settings.network.inputs, spectrum)
    start_key, _ = jax.random.split(jax.random.key(0))
    start = dimfree.random_state(problem, 100, key=start_key)
    theory = dimfree.solve(dimfree.ode(problem, dimfree.OnlineSGD(4.0)), start, settings.alphas)
    np.testing.assert_allclose(result.theory.risk, theory.risk, rtol=1e-12)
    assert "There is no plateau" in result.note
    assert result.remark == ""
    # From one start, so that the runs scatter around the limit by a little only.
    ratio = np.asarray(result.simulated.risk)[:, -1].mean() / float(theory.risk[-1])
    assert abs(ratio - 1) < 0.2
    for refused in (flow, regime_map):
        with pytest.raises(InvalidInput, match="isotropic"):
            refused(settings)
