"""The command line, as a user calls it."""

import importlib.util
import json
import subprocess
import sys

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import dimfree
from dimfree.cli import app

SMALL = ["--alpha", "1", "--dimension", "100"]


def call(*arguments: str):
    return CliRunner().invoke(app, arguments)


def test_help_names_the_commands_and_imports_nothing_heavy():
    script = (
        "import sys\nfrom typer.testing import CliRunner\nfrom dimfree.cli import app\n"
        "result = CliRunner().invoke(app, ['--help'])\nassert result.exit_code == 0, result.output\n"
        "print(result.output)\n"
        "assert not {'jax', 'diffrax', 'xarray', 'matplotlib', 'numpy', 'sympy'} & set(sys.modules), 'heavy'\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for command in ("solve", "check", "equations", "reproduce", "doctor"):
        assert command in done.stdout


def test_version():
    result = call("--version")
    assert result.exit_code == 0
    assert result.stdout.strip() == f"dimfree {dimfree.__version__}"


def test_python_m_dimfree_doctor():
    done = subprocess.run(
        [sys.executable, "-m", "dimfree", "doctor", "--json"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert set(report) == {
        "schema", "ok", "python", "platform", "versions", "devices", "float64", "extras", "problems",
    }  # fmt: skip
    assert report["schema"] == "dimfree.doctor/1"
    assert report["ok"] is True
    assert report["float64"] is True
    assert report["devices"]
    assert report["versions"]["dimfree"] == dimfree.__version__
    assert set(report["versions"]) == {"dimfree", "jax", "jaxlib", "diffrax", "equinox", "numpy", "scipy", "xarray"}
    assert "netcdf" in report["extras"]


def test_doctor_says_what_to_do(monkeypatch):
    def fail():
        raise RuntimeError("Unknown backend 'abacus'")

    monkeypatch.setattr(jax, "devices", fail)
    result = call("doctor")
    assert result.exit_code == 1
    assert "abacus" in result.stdout
    assert "pip install" in result.stdout


def test_solve_prints_a_table():
    result = call("solve", *SMALL)
    assert result.exit_code == 0, result.output
    assert "M[0,0]" in result.stdout
    assert "risk" in result.stdout
    assert result.stdout.count("\n") < 25


def test_solve_json_and_picture(tmp_path):
    picture = tmp_path / "picture.png"
    result = call("solve", *SMALL, "--simulate", "8", "--json", "--plot", str(picture))
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert set(report) == {
        "schema", "dimfree", "problem", "algorithm", "limit", "dimension", "seed", "theory", "simulation",
    }  # fmt: skip
    assert report["schema"] == "dimfree.solve/1"
    record = {
        "runs", "outcomes", "stopped_at", "alpha", "risk", "risk_quantile_10", "risk_quantile_90", "M", "Q", "readout",
        "standard_deviation", "provenance",
    }  # fmt: skip
    theory, simulation = report["theory"], report["simulation"]
    assert set(theory) == set(simulation) == record
    assert theory["runs"] is None
    assert simulation["runs"] == 8
    assert simulation["outcomes"] == {"completed": 8, "stopped": 0, "diverged": 0, "step_limit": 0}
    assert theory["alpha"][-1] == 1.0
    assert len(theory["risk"]) == len(theory["alpha"]) == len(theory["M"]) == 201
    assert theory["M"][0][0] == pytest.approx(simulation["M"][0][0], rel=1e-12)  # one start; a mean over runs rounds
    assert theory["stopped_at"] is None
    assert picture.stat().st_size > 5_000


@pytest.mark.slow
def test_solve_gradient_flow_and_sde():
    flow = json.loads(call("solve", *SMALL, "--limit", "gradient-flow", "--json").stdout)
    ode = json.loads(call("solve", *SMALL, "--json").stdout)
    paths = json.loads(call("solve", *SMALL, "--limit", "sde", "--paths", "8", "--json").stdout)
    assert flow["theory"]["risk"][-1] != ode["theory"]["risk"][-1]
    assert paths["theory"]["runs"] == 8


def test_solve_linear_noise():
    ode = json.loads(call("solve", *SMALL, "--json").stdout)
    noisy = json.loads(call("solve", *SMALL, "--limit", "linear-noise", "--json").stdout)
    assert noisy["theory"]["risk"] == pytest.approx(ode["theory"]["risk"], rel=1e-6)
    assert noisy["theory"]["standard_deviation"]["M[0,0]"][-1] > 0


def test_solve_writes_netcdf(tmp_path):
    pytest.importorskip("h5netcdf")
    xarray = pytest.importorskip("xarray")
    target = tmp_path / "run.nc"
    result = call("solve", *SMALL, "--output", str(target))
    assert result.exit_code == 0, result.output
    with xarray.open_dataset(target, group="theory", engine="h5netcdf") as data:
        assert data.risk.sizes == {"alpha": 201}


def test_netcdf_without_its_extra_says_what_to_install(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "h5netcdf" else found(name))
    result = call("solve", *SMALL, "--output", "run.nc")
    assert result.exit_code == 2
    assert "run.nc" in result.stderr
    assert "pip install h5netcdf" in result.stderr


@pytest.mark.slow
def test_check_of_a_real_problem_agrees():
    result = call("check", "--sphere", "--json", "--alpha", "0.5", "--runs", "32", "--dimensions", "100,400,1600")
    report = json.loads(result.stdout)
    assert result.exit_code == 0, result.output
    assert report["agrees"] is True
    assert set(report) == {
        "schema", "dimfree", "problem", "algorithm", "agrees", "slope", "slopes", "alpha", "dimensions", "distances",
        "diverged", "drift", "expectation", "expectation_error",
    }  # fmt: skip
    assert report["dimensions"] == [100, 400, 1600]


@pytest.mark.parametrize(("agrees", "code", "words"), [(True, 0, "agree: "), (False, 1, "do NOT agree")])
def test_the_exit_code_of_check_is_its_verdict(monkeypatch, agrees, code, words):
    found = dimfree.CheckResult(
        agrees=agrees,
        slope=-0.01,
        slopes={"Q": -0.01, "M": -0.4},
        dimensions=(100, 400),
        distances=(0.3, 0.29),
        diverged=(0.0, 0.0),
        drift=(("Q[0,0]", 1.0, 2.0, 0.001),),
        alpha=0.5,
        expectation="closed form",
        expectation_error=0.0,
    )
    monkeypatch.setattr(dimfree, "check", lambda *arguments, **options: found)
    result = call("check")
    assert result.exit_code == code
    assert words in result.stdout
    report = json.loads(call("check", "--json").stdout)
    assert report["agrees"] is agrees
    assert report["drift"][0]["coordinate"] == "Q[0,0]"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["solve", "--width", "0"], "width = 0"),
        (["solve", "--learning-rate", "-1"], "learning_rate = -1.0"),
        (["solve", "--problem", "two-layer", "--activation", "erff"], "'erff'"),
        (["solve", "--activation", "erf"], "--activation erf"),
        (["solve", "--teacher-width", "3"], "--teacher-width 3"),
        (["solve", "--alpha", "-2"], "-2"),
        (["solve", "--plot", "no_such_directory/a.png"], "no_such_directory"),
        (["solve", "--limit", "odes"], "odes"),
        (["solve", "--problem", "tensors"], "tensors"),
        (["check", "--dimensions", "100"], "--dimensions 100"),
        (["check", "--dimensions", "a,b"], "a,b"),
    ],
)
def test_bad_input_is_one_message_with_exit_code_2(arguments, words):
    result = call(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.output


def test_equations_print_text_latex_python_and_json():
    sphere = ["equations", "--sphere", "--noise", "0.2", "--notation", "arnaboldi2023"]
    assert "d m / d t = " in call(*sphere).stdout
    assert call(*sphere, "--latex").stdout.startswith("\\begin{aligned}")
    names = {}
    exec(call(*sphere, "--python").stdout, names)
    drift = names["drift"]([[1.0]], np.array([[0.5]]))[1][0, 0]
    assert abs(drift - 0.5 * (4 * (1 - 0.6) * (1 - 0.25) - 2 * 0.1 * 0.2)) < 1e-15
    report = json.loads(call(*sphere, "--json").stdout)
    assert report["schema"] == "dimfree.equations/1"
    assert report["values"] == {"\\gamma": 0.1, "\\Delta": 0.2}


def test_equations_that_cannot_be_given_say_why():
    result = call("equations", "--problem", "single-index", "--activation", "tanh")
    assert result.exit_code == 2
    assert "hermite_order" in result.stderr
    assert call("equations", "--latex", "--python").exit_code == 2
