"""The command line, as a user calls it: help, what states a problem, what is said of mistakes, the installation."""

import json
import subprocess
import sys

import jax
import numpy as np
import pytest
import scipy.optimize
import xarray

import dimfree
from commands import call
from dimfree import extras
from dimfree.cli.problem_options import _ONLINE, stated
from dimfree.registry import dashed, find, is_online, parameters
from dimfree.registry import stated as stated_names

COMMANDS = [
    "solve", "simulate", "exit-time", "fixed-points", "landscape", "scaling-law", "best-protocol", "check",
    "equations", "study", "reproduce", "doctor", "cite",
]  # fmt: skip


# Help.


def test_help_names_the_commands_and_imports_nothing_heavy():
    script = (
        "import sys\nfrom typer.testing import CliRunner\nfrom dimfree.cli import app\n"
        "result = CliRunner().invoke(app, ['--help'])\nassert result.exit_code == 0, result.output\n"
        "print(result.output)\n"
        "heavy = {'jax', 'diffrax', 'xarray', 'matplotlib', 'numpy', 'sympy', 'pydantic', 'yaml', 'rich'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    for command in COMMANDS:
        assert f"  {command} " in done.stdout
    assert "--install-completion" in done.stdout
    assert "Exit codes" in done.stdout


@pytest.mark.parametrize("command", [*COMMANDS, "study plan", "study run", "study show"])
def test_every_command_has_help_with_exit_codes_and_an_example(command):
    result = call(*command.split(), "--help")
    assert result.exit_code == 0
    if command != "study":
        assert "Exit codes: 0 " in result.output
        assert f"dimfree {command}" in " ".join(result.output.split("Example")[1].split())
        assert "--json" in result.output


def test_a_command_has_the_options_of_problem_and_algorithm_once():
    text = call("fixed-points", "--help").output.split("Options:")[1]
    for option in ("--file", "--problem", "--snr", "--learning-rate", "--sphere", "--starts"):
        assert text.count(f"\n  {option} ") == 1, option


def test_the_version_is_that_of_the_package():
    result = call("--version")
    assert result.exit_code == 0
    assert result.stdout.strip() == f"dimfree {dimfree.__version__}"


# What states a problem.


def test_algorithms_that_use_a_sample_once_are_those_of_the_help():
    assert _ONLINE.split(", ") == [dashed(name) for name in stated_names("algorithm") if is_online(name)]


def test_names_have_two_spellings():
    assert [dashed(name) for name in stated_names("problem")] == [
        "two-layer", "phase-retrieval", "single-index", "multi-output", "mixture", "mixture-binary", "mixture-xor",
        "tasks-switching", "tasks-drifting", "tasks-curriculum", "sequence-index", "attention", "contrastive-pair",
        "spiked-tensor",
    ]  # fmt: skip
    assert [dashed(name) for name in stated_names("algorithm")][:3] == ["online-sgd", "momentum", "heavy-ball"]
    for home in ("problem", "algorithm"):
        for name in stated_names(home):
            assert find(home, dashed(name)) == find(home, name) == name
            assert parameters(home, name)


ENOUGH = {
    "single-index": {"link": "relu"},
    "mixture-binary": {"snr": 4.0},
    "mixture-xor": {"snr": 4.0, "width": 4, "readout": "1,1,-1,-1"},
    "tasks-switching": {"similarity": 0.6, "switch": 40.0, "heads": True},
    "tasks-drifting": {"drift": 0.1},
    "tasks-curriculum": {"switch": 40.0, "variances": "1,4"},
    "sequence-index": {"link": "softmax", "tokens": 3},
    "attention": {"tokens": 2, "rank": 2, "tied": False},
    "spiked-tensor": {"order": 3, "snr": 2.0},
}
IN_A_FILE = ("mixture", "multi-output")


@pytest.mark.parametrize("name", [name for name in map(dashed, stated_names("problem")) if name not in IN_A_FILE])
def test_every_problem_can_be_stated_by_options(name):
    problem, sgd = stated({"problem": name, **ENOUGH.get(name, {})})
    assert isinstance(problem, dimfree.Problem)
    assert sgd.learning_rate == 0.1
    if name == "mixture-xor":
        assert problem.readout.tolist() == [1, 1, -1, -1]
    if name == "tasks-curriculum":
        assert problem.variances.tolist() == [1, 4]


COMMON = "learning_rate=0.1, ridge=0, readout_rate=None, batch_size=1, sphere=False"
# The options of each, and the algorithm that they state.
OPTIMISERS = {
    "momentum": (
        {"momentum_rate": 0.3, "forgetting": 1.0, "lookahead": 0.2},
        f"Momentum({COMMON}, momentum_rate=0.3, forgetting=1, lookahead=0.2)",
    ),
    "heavy-ball": ({"momentum": 0.6, "nesterov": True}, f"HeavyBall({COMMON}, momentum=0.6, nesterov=True)"),
    "ada-grad-norm": ({"start": 0.5}, f"AdaGradNorm({COMMON}, start=0.5)"),
    "rmsnorm": ({"forgetting": 1.0}, f"RMSNorm({COMMON}, start=1, forgetting=1)"),
    "online-sgd": ({}, f"OnlineSGD({COMMON})"),
}
BESIDE = {
    "clip": (0.3, "Clipped", "norm=0.3"),
    "adaptive_clip": (1.5, "AdaptiveClip", "factor=1.5, forgetting=1, start=1"),
    "clip_slopes": (0.3, "ClippedSlopes", "largest=0.3"),
    "normalise": (0.5, "NormalisedGradient", "norm=0.5"),
    "moved": (0.2, "MovedGradient", "distance=0.2"),
    "sharpness": (0.2, "SharpnessAware", "radius=0.2"),
    "repeated": (0.2, "Repeated", "first_rate=0.2"),
    "schedule_free": (0.9, "ScheduleFree", "forgetting=_since_the_start, interpolation=0.9"),
    "average": (1.0, "Averaged", "forgetting=1"),
    "weight_decay": (0.1, "WeightDecay", "decay=0.1"),
}
# Of these the first drift, too, is not that of SGD.
MOVING = ("adaptive_clip", "normalise", "moved", "sharpness", "repeated")


def test_every_optimiser_can_be_stated_by_options():
    start, plain = dimfree.State(Q=[[1.0]], M=[[0.2]]), f"OnlineSGD({COMMON})"
    for name, (settings, expected) in OPTIMISERS.items():
        _, algorithm = stated({"problem": "two-layer", "width": 1, "algorithm": name, **settings})
        assert repr(algorithm) == expected
    drifts = {}
    for name, (value, home, settings) in BESIDE.items():
        problem, algorithm = stated({"problem": "two-layer", "width": 1, name: value})
        assert repr(algorithm) == f"{home}(algorithm={plain}, {settings})"
        if name in MOVING:
            drifts[name] = float(dimfree.ode(problem, algorithm).drift(0.0, start).M[0, 0])
    sgd = float(dimfree.ode(*stated({"problem": "two-layer", "width": 1})).drift(0.0, start).M[0, 0])
    assert all(abs(drift - sgd) > 1e-9 * abs(sgd) for drift in drifts.values()), drifts


def test_a_file_states_the_same_and_options_override_it(tmp_path):
    path = tmp_path / "problem.yaml"
    path.write_text(
        "problem: {name: TwoLayer, width: 3, teacher_width: 2, activation: relu, noise: 1e-2}\n"
        "algorithm: {name: online-sgd, learning_rate: 0.3, sphere: true}\n"
    )
    problem, sgd = stated({"file": path})
    assert (problem.width, problem.teacher_width, problem.activation.name) == (3, 2, "relu")
    assert problem.noise == pytest.approx(0.01)
    assert sgd.sphere
    assert sgd.learning_rate == pytest.approx(0.3)
    problem, sgd = stated({"file": path, "width": 4, "sphere": False})
    assert (problem.width, problem.teacher_width, sgd.sphere) == (4, 2, False)


def test_a_file_states_what_options_cannot(tmp_path):
    path = tmp_path / "clusters.yaml"
    path.write_text(
        "problem: {name: mixture, means: [[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], labels: [0, 1, 0], width: 2, snr: 4}\n"
    )
    problem, _ = stated({"file": path})
    assert problem.inputs.means.shape == (3, 2)


FILES = {
    "code": ("problem: !!python/object/apply:os.system ['touch hacked']\n", "no YAML"),
    "an import": ("problem: {name: os.system}\n", "no problem called os.system"),
    "nothing": ("", "does not state a problem"),
    "no name": ("problem: {width: 2}\n", "has no name"),
    "a study": ("problem: {name: PhaseRetrieval}\naxes: {problem.noise: [1]}\n", "dimfree study run"),
    "reused data": (
        "problem: {name: PhaseRetrieval}\nalgorithm: {name: GradientDescent, samples_per_dimension: 2}\n",
        "dimfree.dmft",
    ),
    "a list of noises": ("problem: {name: PhaseRetrieval, noise: [0.1, 0.2]}\n", "takes no list here"),
    "words for numbers": ("problem: {name: PhaseRetrieval, readout: [a]}\n", "write a list of numbers"),
    "a word for a truth": (
        "problem: {name: PhaseRetrieval}\nalgorithm: {name: OnlineSGD, sphere: 'no'}\n",
        "write true or false",
    ),
    "a slip": ("problem: {name: PhaseRetrieval, widht: 2}\n", "widht was given, but PhaseRetrieval has no such"),
}


@pytest.mark.parametrize("what", FILES)
def test_a_file_that_states_no_problem_is_refused(tmp_path, monkeypatch, what):
    monkeypatch.chdir(tmp_path)
    text, words = FILES[what]
    (tmp_path / "problem.yaml").write_text(text)
    result = call("solve", "--file", "problem.yaml")
    assert result.exit_code == 2
    assert words in result.stderr
    assert not (tmp_path / "hacked").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["solve", "--width", "0"], "width = 0"),
        (["solve", "--learning-rate", "-1"], "learning_rate = -1.0"),
        (["solve", "--problem", "two-layer", "--activation", "erff"], "'erff'"),
        (["solve", "--activation", "erf"], "--activation was given, but PhaseRetrieval has no such argument"),
        (["solve", "--teacher-width", "3"], "it has --width, --noise, --readout"),
        (["solve", "--problem", "spiked-tensor"], "SpikedTensor needs --order and --snr"),
        (["solve", "--problem", "mixture", "--snr", "1"], "needs means (in a --file) and labels (in a --file)"),
        (["solve", "--readout", "1,a"], "--readout 1,a"),
        (["solve", "--alpha", "-2"], "-2"),
        (["solve", "--overlap", "2"], "--overlap 2"),
        (["solve", "--file", "nowhere.yaml"], "nowhere.yaml cannot be read"),
        (["solve", "--file", "nowhere.yaml", "--problem", "two-layer"], "nowhere.yaml"),
        (["solve", "--plot", "no_such_directory/a.png"], "no_such_directory"),
        (["solve", "--plot", "a.gif"], ".png, .pdf or .svg"),
        (["solve", "--output", "a.csv"], ".nc (NetCDF) or .zarr"),
        (["solve", "--limit", "odes"], "odes"),
        (["solve", "--problem", "tensors"], "no problem called tensors; there are two-layer"),
        (["solve", "--seed", "99999999999999999999"], "--seed 99999999999999999999"),
        (["solve", "--paths", "0"], "--paths = 0"),
        (["simulate", "--runs", "0"], "runs = 0"),
        (["simulate", "--dimension", "0"], "d = 0"),
        (["exit-time", "--threshold", "2"], "threshold = 2"),
        (["exit-time", "--methods", "guess"], "guess"),
        (["exit-time", "--methods", "closed_form", "--sphere", "--learning-rate", "1"], "No closed form: The plateau"),
        (["fixed-points", "--starts", "0"], "starts = 0"),
        (["landscape", "--problem", "mixture-xor", "--snr", "1"], "kinks"),
        (["solve", "--quantity", "accuracy"], "--quantity accuracy was given, but TwoLayer("),
        (["simulate", "--problem", "two-layer", "--quantity", "accuracy"], "has no classes. Take a mixture"),
        (["simulate", "--quantity", "precision"], "'precision' is not one of 'risk', 'accuracy'"),
        (["check", "--dimensions", "100"], "--dimensions 100"),
        (["check", "--dimensions", "100,100"], "100,100"),
        (["check", "--dimensions", "a,b"], "a,b"),
        (["equations", "--latex", "--python"], "choose one"),
        (["equations", "--problem", "single-index", "--link", "tanh"], "hermite_order"),
        (["study", "plan", "nowhere.yaml"], "nowhere.yaml cannot be read"),
    ],
)
def test_bad_input_is_one_message_with_exit_code_2(arguments, words):
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert words in result.stderr


def test_ctrl_c_has_its_exit_code(monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(dimfree, "check", interrupted)
    result = call("check")
    assert result.exit_code == 130
    assert "Interrupted" in result.stderr


# The installation.


def test_doctor_reports_the_installation_as_json():
    done = subprocess.run(
        [sys.executable, "-m", "dimfree", "doctor", "--json"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert set(report) == {
        "schema", "dimfree", "ok", "python", "platform", "cores", "versions", "devices", "float64", "cache", "extras",
        "problems",
    }  # fmt: skip
    assert report["schema"] == "dimfree.doctor/1"
    assert report["ok"] is True
    assert report["float64"] is True
    assert report["devices"]
    assert report["versions"]["dimfree"] == dimfree.__version__
    assert {"dimfree", "jax", "jaxlib", "diffrax", "equinox", "numpy", "xarray"} <= set(report["versions"])
    assert set(report["extras"]["netcdf"]) == {"use", "present", "remedy"}


def test_doctor_says_what_to_do(monkeypatch, tmp_path):
    def fail():
        raise RuntimeError("Unknown backend 'abacus'")

    monkeypatch.setattr(jax, "devices", fail)
    (tmp_path / "file").touch()
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(extras, "packages", lambda extra: {"no_such": "no_such>1"} if extra == "exact" else {"jax": ""})
    result = call("doctor")
    assert result.exit_code == 1
    text = " ".join(result.stdout.split())
    assert "abacus" in text
    assert "pip install --upgrade jax" in text
    assert "was given, but nothing can be written there. Make the directory writable" in text
    assert 'absent: equations in symbols (dimfree equations); pip install "no_such>1"' in text
    assert "present: the explorer" in text


def test_doctor_reads_the_extras_of_the_package(monkeypatch):
    lines = [
        'h5py>=3; extra == "netcdf"',
        "dask[distributed]>=2; extra == 'cluster'",
        'dimfree[exact]; extra == "docs"',
    ]
    monkeypatch.setattr("importlib.metadata.requires", lambda name: lines)
    assert extras.packages("netcdf") == {"h5py": "h5py>=3"}
    assert list(extras.packages("cluster")) == ["dask"]
    assert extras.packages("docs") == {}


def test_citations_follow_the_problem():
    result = call("cite", "--problem", "spiked-tensor", "--order", "3", "--snr", "2")
    assert result.exit_code == 0, result.output
    assert "@misc{dimfree," in result.stdout
    assert "benarous2022" in result.stdout
    assert "bocchi2026" not in result.stdout
    report = json.loads(call("cite", "--limit", "sde", "--json").stdout)
    assert report["schema"] == "dimfree.cite/1"
    assert "arnaboldi2023" in report["bibtex"]


# Scaling laws.


def test_a_scaling_law_in_numbers(tmp_path):
    told = ["--largest", "1000", "--sizes", "5", "--samples", "100000", "--learning-rate", "0.25"]
    result = call("scaling-law", *told, "--json", "--output", str(tmp_path / "law.zarr"))
    found = {row["exponent"]: row for row in json.loads(result.stdout)["exponents"]}
    law = dimfree.scaling_law(
        dimfree.PowerLawFeatures(1.0, 0.75), dimfree.OnlineSGD(0.25), np.geomspace(100, 1000, 5), 1e5
    )
    row = found["least risk in compute"]
    np.testing.assert_allclose(row["measured"], law.exponents["compute"].value, rtol=1e-9)
    np.testing.assert_allclose(row["predicted"], -5 / 7, rtol=1e-12)
    kept = xarray.open_zarr(tmp_path / "law.zarr", consolidated=False)
    np.testing.assert_allclose(kept["risk"], law.risk, rtol=1e-9)


# The best protocol.


def test_the_best_protocol_of_least_squares(tmp_path):
    """Over all schedules, from no overlap: alpha = log(2 / e) + noise (1 / e - 1 / 2) for twice the excess risk e."""
    stated = ["--problem", "two-layer", "--width", "1", "--activation", "linear", "--noise", "0.5", "--overlap", "0"]
    asked = ["--over", "learning-rate=0:1:24", "--alpha", "10", "--searches", "1", "--simulate", "16", "-d", "500"]
    kept = tmp_path / "best.nc"
    told = json.loads(call("best-protocol", *stated, *asked, "--json", "--output", str(kept)).stdout)
    twice = scipy.optimize.root_scalar(lambda e: np.log(2 / e) + 0.5 * (1 / e - 1 / 2) - 10.0, bracket=(1e-6, 2.0)).root
    np.testing.assert_allclose(told["objective"], twice / 2, rtol=1e-3)
    assert told["optimal"]
    assert told["constants"]["objective"] > 1.1 * told["objective"]
    simulated = told["simulation"]
    assert abs(simulated["gain"] - simulated["predicted_gain"]) < 5 * simulated["gain_error"]
    schedule = told["controls"]["algorithm.learning_rate"]
    found = xarray.open_dataset(kept, group="protocol", engine="h5netcdf")
    np.testing.assert_allclose(found["algorithm.learning_rate"], schedule["value"], rtol=1e-12)
    np.testing.assert_allclose(found["alpha of algorithm.learning_rate"], np.linspace(0, 10, 24), rtol=1e-12)
    final = xarray.open_dataset(kept, group="best", engine="h5netcdf").risk[-1]
    np.testing.assert_allclose(final - 0.25, told["objective"], rtol=1e-6)  # the noise has half its variance


@pytest.mark.parametrize(
    "words", ["learning-rate", "learning-rate=1", "learning-rate=a:b", "=0:1", "learning-rate=0:1:2:3"]
)
def test_a_control_that_cannot_be_read(words):
    result = call("best-protocol", "--over", words)
    assert result.exit_code == 2
    assert f"--over {words} was given; give NAME=LOW:HIGH" in result.stderr


def test_a_scaling_law_of_many_teachers():
    told = ["--teachers", "8", "--target-exponent", "1.5", "--smallest", "4", "--largest", "4", "--sizes", "1"]
    found = json.loads(call("scaling-law", *told, "--dimension", "1000", "--json").stdout)
    family = dimfree.PowerLawTeachers(1.5, 8, 1000)
    assert found["family"] == repr(family)
    assert found["method"] == "ODE"
    learned = family.samples_to_learn(0.001)
    law = dimfree.scaling_law(family, dimfree.OnlineSGD(0.001), 4, np.geomspace(learned[0], learned[3], 60))
    np.testing.assert_allclose(found["exponents"][0]["measured"], law.exponents["samples"].value, rtol=1e-9)
