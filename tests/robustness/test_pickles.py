"""Problems, algorithms, limits and results go through pickles: the same leaves, numbers and compiled programs."""

import copy
import functools
import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dimfree
import pickled
from dimfree import InvalidInput, OnlineSGD, PhaseRetrieval, State, TwoLayer
from dimfree.functions import as_function
from dimfree.gaussian.activations import named_activations
from processes import printed_by

SGD, START, KEY = OnlineSGD(0.1), State(Q=[[1.0]], M=[[0.1]]), jax.random.key(0)
LIMIT = dimfree.ode(PhaseRetrieval(), SGD)
MIXTURE = dimfree.Mixture.binary(1, 4.0)
MADE = {
    **{name: lambda name=name: TwoLayer(1, 1, name) for name in named_activations()},
    "tanh of JAX": lambda: TwoLayer(1, 1, jnp.tanh),
    "own activation": lambda: TwoLayer(1, 1, pickled.bent),
    "own activation with a number": lambda: TwoLayer(1, 1, functools.partial(pickled.scaled, 0.5)),
    "own loss": lambda: dimfree.LocalFields(pickled.logistic, width=1, teacher_width=1),
    "blocks": lambda: TwoLayer(1).with_inputs(dimfree.Spectrum([2.0, 0.5])),
    "one direction": lambda: dimfree.SingleIndex("he2"),
    "outputs": lambda: dimfree.MultiOutput([[1.0]], [[1.0]]),
    "clusters": lambda: MIXTURE,
    "tasks": lambda: dimfree.Tasks.switching(1, 0.5, 1.0),
    "tensor": lambda: dimfree.SpikedTensor(2, 2.0),
    "attention": lambda: dimfree.Attention(2),
    "pairs": lambda: dimfree.ContrastivePair(0.5),
    "features": lambda: dimfree.PowerLawFeatures(1.5, 1.0),
    "teachers": lambda: dimfree.PowerLawTeachers(1.0, 3, 100),
    "schedule": lambda: OnlineSGD(pickled.falling),
    "piecewise linear rate": lambda: OnlineSGD(dimfree.PiecewiseLinear([0.0, 1.0], [0.1, 0.2])),
    "momentum": lambda: dimfree.Averaged(dimfree.Momentum(0.1, 0.2, 1.0), 1.0),
    "Adam": lambda: dimfree.Adam(0.1, forgetting=1.0),
    "clipped": lambda: dimfree.Clipped(dimfree.HeavyBall(0.1, 0.5), 0.3),
    "reused data": lambda: dimfree.Langevin(0.1, 2.0, pickled.falling),
    "State": lambda: START,
    "rule": lambda: dimfree.ode(TwoLayer(1, 1, "tanh"), SGD, dimfree.Sobol(64)),
    "ODE": lambda: LIMIT,
    "ODE of Adam": lambda: dimfree.ode(TwoLayer(1), dimfree.Adam(0.1, forgetting=1.0)),
    "SDE": lambda: dimfree.sde(PhaseRetrieval(), SGD, 100),
    "linear noise": lambda: dimfree.linear_noise(TwoLayer(1), SGD, 100),
    "mean field": lambda: dimfree.mean_field(TwoLayer(1), SGD),
    "DMFT": lambda: dimfree.dmft(PhaseRetrieval(), dimfree.GradientDescent(0.1, 2.0)),
    "event": lambda: PhaseRetrieval().reaches("risk", 0.5),
    "observable": lambda: PhaseRetrieval().reaches(pickled.overlap, 0.5),
    "solution": lambda: dimfree.solve(LIMIT, START, 0.1),
    "runs": lambda: dimfree.simulate(PhaseRetrieval(), SGD, START, 10, 0.5, runs=2, key=KEY),
}


def assert_same(one, other) -> None:
    """The same numbers in the same structure: what has been compiled for the one serves the other."""
    (leaves, structure), (others, other_structure) = jax.tree.flatten(one), jax.tree.flatten(other)
    assert structure == other_structure
    assert hash(structure) == hash(other_structure)
    for leaf, another in zip(leaves, others, strict=True):
        np.testing.assert_array_equal(leaf, another)


SPAWNED = """
import concurrent.futures, multiprocessing, sys
sys.path.insert(0, {path!r})
import dimfree, pickled

def risk(limit, start):
    return float(dimfree.solve(limit, start, 0.5).risk[-1])

if __name__ == "__main__":
    limit = dimfree.ode(dimfree.TwoLayer(1, 1, pickled.bent), dimfree.OnlineSGD(pickled.falling))
    start = dimfree.State(Q=[[1.0]], M=[[0.1]])
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
        print(abs(pool.submit(risk, limit, start).result() - risk(limit, start)))
"""


@pytest.mark.slow  # two processes that compile
def test_a_pool_of_processes_that_are_spawned(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SPAWNED.format(path=pickled.__file__.rpartition("/")[0]))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1e-12


@pytest.mark.parametrize("name", MADE)
def test_round_trips(name):
    made = MADE[name]()
    assert_same(made, pickle.loads(pickle.dumps(made)))
    assert_same(made, copy.deepcopy(made))


def test_numbers_are_those_that_were_pickled():
    """Not those that the function by its name has."""
    problem = TwoLayer(1, 1, pickled.bent)
    (number,) = (leaf for leaf in jax.tree.leaves(problem) if np.all(leaf == pickled.FACTOR))
    other = jax.tree.map(lambda leaf: leaf + 0.2 if leaf is number else leaf, problem)
    assert_same(other, pickle.loads(pickle.dumps(other)))
    assert abs(problem.risk(START) - other.risk(START)) > 1e-3


def test_functions_that_are_frozen():
    function = as_function(functools.partial(pickled.scaled, 0.5), jnp.zeros(())).frozen()
    back = pickle.loads(pickle.dumps(function))
    assert_same(function, back)
    np.testing.assert_array_equal(back(2.0), np.tanh(1.0))


def test_solving_what_comes_from_a_pickle_compiles_nothing():
    limit, back = (dimfree.ode(TwoLayer(1, 1, pickled.bent), OnlineSGD(pickled.falling)) for _ in range(2))
    before = dimfree.solve(limit, START, 0.1)
    back = pickle.loads(pickle.dumps(back))
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if event.endswith("backend_compile_duration") else None
    )
    try:
        after = dimfree.solve(back, START, 0.1)
    finally:
        jax.monitoring.clear_event_listeners()
    assert not compiled
    assert_same(before.state, after.state)


UNPICKLE = """
import pickle, sys
sys.path.insert(0, {path!r})
limit, start = pickle.loads(bytes.fromhex({bytes!r}))
import dimfree
print(float(dimfree.solve(limit, start, 0.5).risk[-1]).hex())
"""


def test_another_process_finds_the_same():
    limit = dimfree.ode(TwoLayer(1, 1, pickled.bent), OnlineSGD(pickled.falling))
    path = pickled.__file__.rpartition("/")[0]
    code = UNPICKLE.format(path=path, bytes=pickle.dumps((limit, START)).hex())
    assert float.fromhex(printed_by(code)) == pytest.approx(float(dimfree.solve(limit, START, 0.5).risk[-1]), rel=1e-12)


def test_functions_without_a_place_say_so():
    def local(x):
        return jnp.tanh(x)

    for function in (local, lambda x: jnp.tanh(2 * x)):
        with pytest.raises(
            InvalidInput, match=r"cannot be pickled: .* def at the top of a module .* or use cloudpickle"
        ):
            pickle.dumps(TwoLayer(1, 1, function))
        assert_same(problem := TwoLayer(1, 1, function), copy.deepcopy(problem))


def test_cloudpickle_takes_code_along():
    cloudpickle = pytest.importorskip("cloudpickle")
    factor = 0.5
    problem = TwoLayer(1, 1, lambda x: jnp.tanh(factor * x))
    back = pickle.loads(cloudpickle.dumps(problem))
    assert_same(jax.tree.leaves(problem), jax.tree.leaves(back))
    np.testing.assert_array_equal(problem.risk(START), back.risk(START))
