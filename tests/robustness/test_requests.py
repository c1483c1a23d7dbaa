"""Absurd and hostile requests: refused in words before anything is allocated, or they say what they cost."""

import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dimfree
from commands import call as call_command
from dimfree import InvalidInput, OnlineSGD, PhaseRetrieval, State, Study, TwoLayer
from dimfree.studies import plan
from processes import printed_by
from refusals import assert_refused

KEY = jax.random.key(0)
START = State(Q=[[1.0]], M=[[0.1]])
MANY_TIMES = np.broadcast_to(0.0, 10**9)  # of which none is in memory
GIVEN = {
    "dimfree": dimfree,
    "jax": jax,
    "np": np,
    "problem": PhaseRetrieval(),
    "sgd": OnlineSGD(0.1),
    "descent": dimfree.GradientDescent(0.05, samples_per_dimension=2.0),
    "limit": dimfree.ode(PhaseRetrieval(), OnlineSGD(0.1)),
    "noisy": dimfree.sde(PhaseRetrieval(), OnlineSGD(0.1), d=50),
    "start": START,
    "key": KEY,
    "many_times": MANY_TIMES,
    "long": 10**5000,
}
SIMULATE = "dimfree.simulate(problem, sgd, start, {d}, {alpha}, runs={runs}, key=key{more})"
REUSED = "dimfree.simulate(problem, descent, start, {d}, {alpha}, runs={runs}, key=key{more})"


def call(template: str, d="50", alpha="1.0", runs="2", more="") -> str:
    return template.format(d=d, alpha=alpha, runs=runs, more=more)


TOO_LARGE = {
    call(SIMULATE, runs="10**9"): "1,000,000,000 runs at 201 times",
    call(SIMULATE, alpha="many_times"): "2 runs at 1,000,000,000 times, 32 bytes each, would take 59.6 GiB of memory",
    call(SIMULATE, d="10**12", more=", method='vectors'"): "of memory",
    call(REUSED, runs="10**9"): "1,000,000,000 runs at 201 times",
    call(REUSED, alpha="many_times"): "would take 59.6 GiB",
    call(REUSED, d="10**10"): "of memory",
    "dimfree.solve(limit, start, many_times)": "1 run at 1,000,000,000 times",
    "dimfree.solve(noisy, start, 1.0, runs=10**9, key=key)": "1,000,000,000 runs at 201 times",
    "dimfree.solve(noisy, start, 1.0, runs=2, key=key, steps=10**11)": "A path of 100,000,000,000 steps would take",
    "dimfree.random_state(dimfree.TwoLayer(10**6), 10**7, key=key)": "The overlaps among 1,000,000 students would take",
}
TOO_LONG = {
    call(SIMULATE, alpha="1e300"): "5e+301 steps of batch_size / d = 0.02: centuries of computing",
    call(SIMULATE, alpha="[0.0, 1e17]"): "centuries",
    call(REUSED, alpha="1e300"): "steps of learning_rate = 0.05",
}
NOT_NUMBERS = {
    call(SIMULATE, runs="10**30"): "runs = 1000000000000000000000000000000 was given; it must be at most",
    call(SIMULATE, runs="long"): "runs = about 10^5000 was given",
    call(SIMULATE, d="10**30"): "d = 1000000000000000000000000000000 was given",
    call(SIMULATE, alpha="'x'"): "alpha = 'x' was given",
    call(SIMULATE, alpha="1j"): "alpha = 1j was given",
    call(SIMULATE, alpha="[0.0, [1.0, 2.0]]"): "alpha = [0.0, [1.0, 2.0]] was given",
    call(SIMULATE, alpha="{}"): "alpha = {} was given",
    call(SIMULATE, more=", memory='much'"): "memory = 'much' was given",
    call(REUSED, alpha="1j"): "time = 1j was given",
    call(REUSED, more=", dtype='x'"): "dtype = 'x' was given",
    "dimfree.solve(limit, start, 'x')": "alpha = 'x' was given",
    "dimfree.solve(limit, start, None)": "alpha = None was given",
    "dimfree.solve(limit, start, jax.numpy.array(1j))": "alpha = 1j was given",
    "dimfree.solve(limit, start, 1.0, max_steps='x')": "max_steps = 'x' was given",
    "dimfree.solve(limit, start, 1.0, relative_tolerance=1j)": "relative_tolerance = 1j was given",
    "dimfree.solve(noisy, start, 1.0, runs=10**30, key=key)": "runs = 1000000000000000000000000000000 was given",
    "dimfree.solve(limit, start, 1.0, runs=5, key=key)": "runs = 5 was given; this limit (ODE) takes none",
    "dimfree.solve(noisy, start, 1.0, runs=2, key=key, relative_tolerance=0.1)": "relative_tolerance = 0.1 was given",
    "dimfree.State(Q='x', M=[[0.1]])": "Q = 'x' was given",
    "dimfree.State(Q=[[1.0]], M=[[1j]])": "M = [[1j]] was given",
    "dimfree.State(Q=[[1.0]], M=[[0.1]], readout='x')": "readout = 'x' was given",
    "dimfree.WideState(M='x', q_perp=[1.0])": "M = 'x' was given",
    "dimfree.random_state(problem, 50, key=key, P='x')": "P = 'x' was given",
    "dimfree.random_state(problem, 50, key=key, norm=1j)": "norm = 1j was given",
}


@pytest.mark.parametrize("kind", ["too large", "too long", "not numbers"])
def test_what_cannot_be_is_refused_in_words_and_at_once(kind):
    began = time.perf_counter()
    assert_refused(GIVEN, {"too large": TOO_LARGE, "too long": TOO_LONG, "not numbers": NOT_NUMBERS}[kind])
    assert time.perf_counter() - began < 20


def test_a_long_simulation_says_how_long_and_can_be_interrupted():
    code = """
import signal, warnings, jax, dimfree
from dimfree import printing
printing._MEASURED = 1.0
start = dimfree.State(Q=[[1.0]], M=[[0.1]])
sgd = dimfree.OnlineSGD(0.1, sphere=True)
signal.signal(signal.SIGALRM, signal.default_int_handler)
with warnings.catch_warnings():
    warnings.simplefilter("error")  # the warning ends it
    try:
        dimfree.simulate(dimfree.PhaseRetrieval(), sgd, start, 50, 1e12, runs=2, key=jax.random.key(0))
    except UserWarning as warning:
        print(warning)
warnings.simplefilter("ignore")
signal.alarm(3)  # as Ctrl-C
try:
    dimfree.simulate(dimfree.PhaseRetrieval(), sgd, start, 50, 1e12, runs=2, key=jax.random.key(0))
except KeyboardInterrupt:
    print("interrupted")
"""
    printed = printed_by(code, timeout=120)
    assert "2 runs of 50000000000000 steps" in printed
    assert "days from now. Ctrl-C ends it" in printed
    assert printed.endswith("interrupted\n")


COMMANDS = {
    "simulate --runs 10000000000": "would take",
    "simulate --runs 1" + 40 * "0": "runs = 1000",
    "simulate --alpha 1e300": "centuries of computing",
    "simulate --dimension 10000000000000 --method vectors": "would take",
    "solve --width 1000000": "The overlaps among 1,000,000 students would take",
    "solve --limit sde --paths 10000000000": "would take",
    "solve --simulate 10000000000": "would take",
    "exit-time --runs 10000000000": "would take",
    "check --dimensions 10,20 --runs 10000000000": "would take",
    "simulate --seed 1" + 40 * "0": "--seed 1000",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_refuse_what_cannot_be(command):
    result = call_command(*command.split())
    assert result.exit_code == 2, result.output
    assert COMMANDS[command] in result.stderr


# Studies.

FIELDS = {
    "problem": {"name": "PhaseRetrieval"},
    "algorithm": {"name": "OnlineSGD", "learning_rate": 0.05, "sphere": True},
    "axes": {"problem.noise": {"from": 0.0, "to": 1.0, "points": 4}},
    "compute": {"name": "simulate", "d": 100, "alpha": 1.0},
    "runs": 4,
}
NOT_A_STUDY = {
    "runs": ({"runs": 10**9}, "runs: Input should be less than or equal to 1000000"),
    "a very long number": ({"seed": 10**5000}, "seed: .*given: about 10\\^5000"),
    "points": ({"axes": {"problem.noise": {"from": 0.0, "to": 1.0, "points": 10**9}}}, "points: .*less than or equal"),
    "values of many kinds": ({"axes": {"problem.noise": [1, True, "a"]}}, "all numbers, all words, or all true or"),
    "NaN": ({"axes": {"problem.noise": [0.0, np.nan]}}, "must be finite"),
    "from minus infinity": ({"axes": {"problem.noise": {"from": -np.inf, "to": 1.0}}}, "it must increase"),
    "steps": ({"runs": 10**6, "compute": {"name": "exit_time", "d": 10**9, "alpha": 1e9}}, "1e.18 samples in a run"),
    "steps along an axis": ({"axes": {"d": [10, 10**15]}, "compute": {"name": "simulate", "alpha": 1e3}}, "centuries"),
}
NOT_A_PLAN = {
    "width": ({"axes": {"problem.width": [1, 10**6]}}, "A task of 1 cells with 4 runs each would take .* of memory"),
    "cells of a task": ({"runs": 10**6, "cells_per_task": 10**7,
                         "axes": {"problem.noise": {"from": 0.0, "to": 1.0, "points": 10**6}}}, "TiB of memory"),
    "cells one by one": (
        {"compute": {"name": "fixed_points"},
         "axes": {name: {"from": 0.1, "to": 1.0, "points": 30_000}
                  for name in ("problem.noise", "algorithm.learning_rate")}},
        "900,000,000 tasks of 1 cells",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_A_STUDY)
def test_an_absurd_study_is_refused_when_it_is_stated(name):
    fields, words = NOT_A_STUDY[name]
    with pytest.raises(InvalidInput, match=words):
        Study(**FIELDS | fields)


@pytest.mark.parametrize("name", NOT_A_PLAN)
def test_an_absurd_study_is_refused_before_anything_is_computed(name, tmp_path):
    fields, words = NOT_A_PLAN[name]
    study = Study(**FIELDS | fields)
    for attempt in (study.plan, lambda: study.run(tmp_path / "store", cluster="inline", progress=False)):
        with pytest.raises(InvalidInput, match=words):
            attempt()
    assert not (tmp_path / "store").exists()


def test_a_plan_of_long_runs_measures_short_ones(monkeypatch):
    monkeypatch.setattr(plan, "_STEPS", 1e4)  # 8 runs of 1250 steps
    long, longer = (
        Study(**FIELDS | {"compute": {"name": "simulate", "d": 10**5, "alpha": alpha}, "runs": 1000}).plan()
        for alpha in (1e2, 1e5)
    )
    assert long.shortened == pytest.approx(1000 * 1e7 / 1e4, rel=1e-3)
    assert longer.shortened == pytest.approx(1000 * 1e10 / 1e4, rel=1e-3)
    # The same program is timed for both, and a busy machine may be ten times slower for one.
    assert 1e2 < longer.cell_seconds / long.cell_seconds < 1e4
    assert "times fewer runs or steps" in str(long)
    assert "of memory for the States of a task" in str(long)
    assert long.task_bytes == 4 * 1000 * (8 * 4 + 64)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1" + ":1" * 500_000, "a number has 1,000,001 characters"),
        ("0x" + "f" * 100_000, "a number has 100,002 characters"),
        ("1:30", "1:30 is a number to base 60"),
        ("1:30.5", "to base 60"),
        ("0x" + "f" * 100, "seed: Input should be less than .*about 10"),
    ],
)
def test_numbers_that_only_yaml_reads_are_refused_at_once(text, words, tmp_path: pathlib.Path):
    path = tmp_path / "study.yaml"
    path.write_text(f"seed: {text}\n" + "\n".join(f"{name}: {value}" for name, value in FIELDS.items()))
    began = time.perf_counter()
    with pytest.raises(InvalidInput, match=words):
        Study.load(path)
    assert time.perf_counter() - began < 10


def test_nothing_that_fits_is_refused():
    """Estimates are from below: what takes half of the memory that is free passes."""
    problem, free = TwoLayer(100, 1), dimfree.errors.free_memory()
    runs = int(free / 2 / 201 / (8 * (100 * 100 + 100 + 1 + 100)))
    alphas = dimfree.trajectory.save_alphas(1.0, dimfree.trajectory.bytes_of_state(problem), runs=runs)
    assert jnp.shape(alphas) == (201,)
    with pytest.raises(InvalidInput, match="of memory"):
        dimfree.trajectory.save_alphas(1.0, dimfree.trajectory.bytes_of_state(problem), runs=3 * runs)
