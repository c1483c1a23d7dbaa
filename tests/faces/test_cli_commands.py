"""What the commands compute, and how they write it."""

import json

import numpy as np
import pytest
import xarray
from scipy.stats import norm

import dimfree
from commands import call

SMALL = ["--alpha", "1", "--dimension", "100"]
RECORD = {
    "runs", "outcomes", "stopped_at", "alpha", "risk", "risk_quantile_10", "risk_quantile_50", "risk_quantile_90", "M",
    "Q", "readout", "standard_deviation", "provenance",
}  # fmt: skip


def report(*arguments: str) -> dict:
    return json.loads(call(*arguments, "--json").stdout)


# Solve and simulate.


def test_solve_prints_a_table():
    result = call("solve", *SMALL)
    assert result.exit_code == 0, result.output
    assert "M[0,0]" in result.stdout
    assert "risk" in result.stdout
    assert result.stdout.count("\n") < 25


def test_solve_json_picture_and_zarr(tmp_path):
    picture, store = tmp_path / "picture.png", tmp_path / "run.zarr"
    found = report("solve", *SMALL, "--simulate", "8", "--plot", str(picture), "--output", str(store))
    assert set(found) == {
        "schema", "dimfree", "problem", "algorithm", "limit", "dimension", "seed", "theory", "simulation",
    }  # fmt: skip
    assert found["schema"] == "dimfree.solve/1"
    theory, simulation = found["theory"], found["simulation"]
    assert set(theory) == set(simulation) == RECORD
    assert theory["runs"] is None
    assert simulation["runs"] == 8
    assert simulation["outcomes"] == {"completed": 8, "stopped": 0, "diverged": 0, "step_limit": 0}
    assert theory["alpha"][-1] == 1.0
    assert len(theory["risk"]) == len(theory["alpha"]) == len(theory["M"]) == 201
    assert theory["M"][0][0] == pytest.approx(simulation["M"][0][0], rel=1e-12)  # one start; a mean over runs rounds
    assert theory["stopped_at"] is None
    assert picture.stat().st_size > 5_000
    with xarray.open_zarr(store, group="simulation", consolidated=False) as data:
        assert data.risk.sizes == {"run": 8, "alpha": 201}
        np.testing.assert_allclose(data.risk.mean("run"), simulation["risk"], rtol=1e-12)


def test_solve_from_an_overlap_is_the_library_s_own_solution():
    found = report("solve", "--alpha", "1", "--overlap", "0.3", "--noise", "0.5")
    problem, sgd = dimfree.PhaseRetrieval(noise=0.5), dimfree.OnlineSGD(0.1)
    expected = dimfree.solve(dimfree.ode(problem, sgd), dimfree.State(Q=[[1.0]], M=[[0.3]]), 1.0)
    np.testing.assert_allclose(found["theory"]["risk"], expected.risk, rtol=1e-12)


@pytest.mark.slow
def test_solve_gradient_flow_and_sde():
    flow = report("solve", *SMALL, "--limit", "gradient-flow")
    ode = report("solve", *SMALL)
    paths = report("solve", *SMALL, "--limit", "sde", "--paths", "8")
    assert flow["theory"]["risk"][-1] != ode["theory"]["risk"][-1]
    assert paths["theory"]["runs"] == 8


@pytest.mark.slow
def test_solve_linear_noise():
    ode = report("solve", *SMALL)
    noisy = report("solve", *SMALL, "--limit", "linear-noise")
    assert noisy["theory"]["risk"] == pytest.approx(ode["theory"]["risk"], rel=1e-6)
    assert noisy["theory"]["standard_deviation"]["M[0,0]"][-1] > 0


def test_solve_writes_netcdf(tmp_path):
    pytest.importorskip("h5netcdf")
    target = tmp_path / "run.nc"
    result = call("solve", *SMALL, "--output", str(target))
    assert result.exit_code == 0, result.output
    with xarray.open_dataset(target, group="theory", engine="h5netcdf") as data:
        assert data.risk.sizes == {"alpha": 201}


def test_a_file_without_its_extra_says_what_to_install(monkeypatch):
    monkeypatch.setattr("dimfree.extras.version", lambda name: None if name == "h5netcdf" else "1")
    result = call("solve", *SMALL, "--output", "run.nc")
    assert result.exit_code == 2
    assert "run.nc" in result.stderr
    assert 'pip install "h5netcdf' in result.stderr


def test_simulate_prints_quantiles_over_runs_with_starts_of_their_own(tmp_path):
    options = ["simulate", *SMALL, "--runs", "8"]
    found = report(*options)
    assert set(found) == {
        "schema", "dimfree", "problem", "algorithm", "dimension", "method", "seed", "simulation", "M_quantiles",
    }  # fmt: skip
    assert found["schema"] == "dimfree.simulate/1"
    low, middle, high = (np.asarray(found["M_quantiles"][q])[:, 0, 0] for q in ("0.1", "0.5", "0.9"))
    assert (low <= middle).all()
    assert (middle <= high).all()
    assert high[0] - low[0] > 0.05  # random starts: standard deviation 0.1 in d = 100
    text = call(*options).stdout
    first = next(line for line in text.splitlines() if line.startswith("│     0 "))
    assert [float(number) for number in first.strip("│ ").split("│")][2] == pytest.approx(
        found["simulation"]["risk_quantile_50"][0], rel=1e-3
    )


def test_runs_that_diverge_are_counted():
    options = ["simulate", *SMALL, "--runs", "8", "--learning-rate", "50"]
    result = call(*options)
    assert result.exit_code == 0
    assert "8 of 8 ended early (diverged)" in result.stdout
    assert report(*options)["simulation"]["risk"][-1] is None


CLUSTERS = ["--problem", "mixture-binary", "--width", "1", "--snr", "4", "--learning-rate", "0.5", *SMALL]


def accuracy(state):
    """Of one ReLU neuron, which calls all inputs of a negative field a zero, and the others a one."""
    return norm.cdf(2.0 * np.asarray(state["M"])[..., 0, 0] / np.sqrt(np.asarray(state["Q"])[..., 0, 0]))


def test_solve_prints_draws_and_saves_the_accuracy(tmp_path):
    picture, store = tmp_path / "picture.svg", tmp_path / "run.zarr"
    options = ["solve", *CLUSTERS, "--overlap", "0.3", "--simulate", "4", "--quantity", "accuracy"]
    found = report(*options, "--plot", str(picture), "--output", str(store))
    theory, simulation = found["theory"], found["simulation"]
    assert set(theory) == set(simulation) == RECORD | {"accuracy"}
    assert theory["accuracy"][0] == pytest.approx(norm.cdf(0.6), abs=1e-9)
    np.testing.assert_allclose(theory["accuracy"], accuracy(theory), atol=1e-9)
    assert theory["accuracy"][-1] > theory["accuracy"][0] + 0.01
    with xarray.open_zarr(store, group="theory", consolidated=False) as data:
        np.testing.assert_array_equal(data.accuracy, theory["accuracy"])
    with xarray.open_zarr(store, group="simulation", consolidated=False) as data:
        assert data.accuracy.dims == ("run", "alpha")
        np.testing.assert_allclose(data.accuracy, accuracy(data), atol=1e-9)
        np.testing.assert_allclose(data.accuracy.mean("run"), simulation["accuracy"], rtol=1e-12)
        assert len(np.unique(data.accuracy[:, -1])) == 4
    assert "<!-- accuracy -->" in picture.read_text()  # text is paths, which are named in comments
    table = [line.strip("│").split("│") for line in call(*options).stdout.splitlines() if line.startswith("│")]
    first, last = ([float(number) for number in row] for row in (table[0], table[-1]))
    for row, time in ((first, 0), (last, -1)):
        assert row[2] == pytest.approx(theory["accuracy"][time], rel=1e-3)
        assert row[-1] == pytest.approx(simulation["accuracy"][time], rel=1e-3)


def test_simulate_prints_and_saves_quantiles_of_the_accuracy(tmp_path):
    store = tmp_path / "run.zarr"
    options = ["simulate", *CLUSTERS, "--runs", "8", "--quantity", "accuracy"]
    found = report(*options, "--output", str(store))["simulation"]
    assert set(found) == RECORD | {"accuracy"}
    with xarray.open_zarr(store, consolidated=False) as data:
        np.testing.assert_allclose(data.accuracy, accuracy(data), atol=1e-9)
        quantiles = np.quantile(data.accuracy, (0.1, 0.5, 0.9), axis=0)
        np.testing.assert_allclose(data.accuracy.mean("run"), found["accuracy"], rtol=1e-12)
    text = call(*options).stdout
    rows = [line.strip("│").split("│") for line in text.splitlines() if line.startswith("│")]
    assert len(rows) == 9  # a row for each time: in 80 columns no number is broken
    for row, time in ((rows[0], 0), (rows[-1], -1)):
        assert [float(number) for number in row[4:]] == pytest.approx(quantiles[:, time], rel=1e-3)


# Check.


@pytest.mark.slow
def test_check_of_a_real_problem_agrees(tmp_path):
    options = ["--sphere", "--alpha", "0.5", "--runs", "32", "--dimensions", "100,400,1600"]
    result = call("check", "--json", *options, "--plot", str(tmp_path / "a.png"), "--output", str(tmp_path / "a.zarr"))
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["agrees"] is True
    assert set(found) == {
        "schema", "dimfree", "problem", "algorithm", "agrees", "slope", "slope_error", "slopes", "alpha",
        "dimensions", "distances", "distance_errors", "diverged", "drift", "expectation", "expectation_error",
        "slope_errors", "remainders",
    }  # fmt: skip
    assert found["dimensions"] == [100, 400, 1600]
    with xarray.open_zarr(tmp_path / "a.zarr", consolidated=False) as data:
        assert data.distance.values.tolist() == found["distances"]


@pytest.mark.parametrize(("agrees", "code", "words"), [(True, 0, "agree: "), (False, 1, "do NOT agree")])
def test_the_exit_code_of_check_is_its_verdict(monkeypatch, tmp_path, agrees, code, words):
    found = dimfree.CheckResult(
        agrees=agrees,
        slope=-0.01,
        slopes={"Q": -0.01, "M": -0.4},
        dimensions=(100, 400),
        distances=(0.3, 0.29),
        distance_errors=(0.1, 0.1),
        diverged=(0.0, 0.0),
        drift=(("Q[0,0]", 1.0, 2.0, 0.001),),
        alpha=0.5,
        expectation="closed form",
        expectation_error=0.0,
        effective_dimensions=(100.0, 400.0),
    )
    monkeypatch.setattr(dimfree, "check", lambda *arguments, **options: found)
    result = call("check", "--plot", str(tmp_path / "check.png"))
    assert result.exit_code == code
    assert words in result.stdout
    assert (tmp_path / "check.png").stat().st_size > 5_000
    result = call("check", "--json")
    assert result.exit_code == code
    assert json.loads(result.stdout)["drift"][0]["coordinate"] == "Q[0,0]"


# Analyses.


def once(monkeypatch, name: str) -> None:
    """Compute an analysis once, for all the ways to write it."""
    real, found = getattr(dimfree, name), []

    def remembered(*arguments, **options):
        if not found:
            found.append(real(*arguments, **options))
        return found[0]

    monkeypatch.setattr(dimfree, name, remembered)


def test_exit_times_by_formula_and_ode(tmp_path):
    options = ["--sphere", "--learning-rate", "0.08", "--dimension", "300", "--methods", "closed-form,ode"]
    options += ["--runs", "16", "--threshold", "0.01"]
    picture, store = tmp_path / "a.png", tmp_path / "a.zarr"
    found = report("exit-time", *options, "--plot", str(picture), "--output", str(store))
    assert set(found) == {
        "schema", "dimfree", "problem", "algorithm", "dimension", "threshold", "seed", "plateau_risk", "level",
        "descriptions", "notes",
    }  # fmt: skip
    assert found["schema"] == "dimfree.exit-time/1"
    assert (found["plateau_risk"], found["level"]) == pytest.approx((2.0, 1.98))
    rows = {row["description"]: row for row in found["descriptions"]}
    # log(d T) / (2 rate), with the growth rate 4 (1 - 6 learning_rate) learning_rate of M: Arnaboldi et al., eq. (23).
    annealed = np.log(300 * 0.01) / (2 * 4 * (1 - 6 * 0.08) * 0.08)
    assert rows["formula, annealed"]["mean"] == pytest.approx(annealed, rel=1e-9)
    assert rows["ODE"]["quantile_10"] < rows["ODE"]["median"] < rows["ODE"]["quantile_90"]
    with xarray.open_zarr(store, consolidated=False) as data:
        times = data.ode.values
        assert times[np.isfinite(times)].mean() == pytest.approx(rows["ODE"]["mean"])
    assert picture.stat().st_size > 5_000
    text = call("exit-time", *options, "--methods", "closed_form").stdout
    assert f"{annealed:.4g}" in text
    assert "multiply by 300" in text


def test_fixed_points_of_a_spiked_matrix(tmp_path, monkeypatch):
    """Order 2, snr 2, learning rate 1: M = +-1 with Q = 2 attract, M = 0 with Q = 0 and Q = 1 do not."""
    once(monkeypatch, "fixed_points")
    options = ["fixed-points", "--problem", "spiked-tensor", "--order", "2", "--snr", "2", "--learning-rate", "1"]
    options += ["--starts", "16"]
    found = report(*options, "--output", str(tmp_path / "a.zarr"))
    assert set(found) == {
        "schema", "dimfree", "problem", "algorithm", "limit", "seed", "components", "stable_components", "symmetries",
        "points",
    }  # fmt: skip
    assert found["schema"] == "dimfree.fixed-points/1"
    assert (found["components"], found["stable_components"]) == (4, 2)
    points = {(round(abs(point["M"][0][0]), 6), round(point["Q"][0][0], 6)): point for point in found["points"]}
    assert {key: point["stable"] for key, point in points.items()} == {(1, 2): True, (0, 0): False, (0, 1): False}
    with xarray.open_zarr(tmp_path / "a.zarr", consolidated=False) as data:
        assert sorted(data.components.values.tolist()) == [1, 1, 2]
        kept = zip(data.stability.values.tolist(), data.stable.values.tolist(), strict=True)
        assert set(kept) == {(point["stability"], int(point["stable"])) for point in found["points"]}
    text = call(*options).stdout
    assert "Connected sets of fixed points: 4, of which stable: 2" in text


def test_the_landscape_of_phase_retrieval(tmp_path, monkeypatch):
    """Three critical points, of risk 0, 4/3 and 3/2, and all directions of each counted."""
    once(monkeypatch, "critical_points")
    options = ["landscape", "--dimension", "100", "--starts", "16"]
    found = report(*options, "--plot", str(tmp_path / "a.svg"), "--output", str(tmp_path / "a.zarr"))
    assert set(found) == {"schema", "dimfree", "problem", "dimension", "sphere", "seed", "critical_points"}
    assert found["schema"] == "dimfree.landscape/1"
    points = found["critical_points"]
    assert [point["risk"] for point in points] == pytest.approx([0, 4 / 3, 3 / 2], abs=1e-9)
    assert [point["kind"] for point in points] == ["minimum", "saddle of index 1", "maximum"]
    for point in points:
        assert sum(point["multiplicities"]) == 100
        assert point["negative"] + point["flat"] + point["positive"] == 100
    with xarray.open_zarr(tmp_path / "a.zarr", consolidated=False) as data:
        assert np.bincount(data.of_point.values, data.multiplicity.values).tolist() == [100, 100, 100]
        assert data.kind.values.tolist() == [point["kind"] for point in points]
        assert data.flat_of_symmetry.values.tolist() == [point["flat_of_symmetry"] for point in points]
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")
    assert "saddle of index 1" in call(*options).stdout


# Equations.


def test_equations_print_text_latex_python_and_json():
    sphere = ["equations", "--sphere", "--noise", "0.2", "--notation", "arnaboldi2023"]
    assert "d m / d t = " in call(*sphere).stdout
    assert call(*sphere, "--latex").stdout.startswith("\\begin{aligned}")
    names = {}
    exec(call(*sphere, "--python").stdout, names)
    drift = names["drift"]([[1.0]], np.array([[0.5]]))[1][0, 0]
    assert abs(drift - 0.5 * (4 * (1 - 0.6) * (1 - 0.25) - 2 * 0.1 * 0.2)) < 1e-15
    found = report(*sphere)
    assert found["schema"] == "dimfree.equations/1"
    assert found["values"] == {"\\gamma": 0.1, "\\Delta": 0.2}
