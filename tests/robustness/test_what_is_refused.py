"""What no answer can be given to is refused in words, and soon: flags, traced values, dimensions, seeds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dimfree
from dimfree import InvalidInput
from refusals import as_users_call, assert_refused

PROBLEM, SGD = dimfree.PhaseRetrieval(), dimfree.OnlineSGD(0.1)
START = dimfree.State(Q=[[1.0]], M=[[0.1]])
KEY = jax.random.key(0)
NAMES = {
    "dimfree": dimfree,
    "problem": PROBLEM,
    "sgd": SGD,
    "descent": dimfree.GradientDescent(0.1, 2.0),
    "start": START,
    "key": KEY,
    "two": jnp.array([True, False]),
    "nan": float("nan"),
}


def test_flags_are_true_or_false():
    """Words are not true because they are not empty, and arrays have no one truth."""
    calls = {
        "dimfree.OnlineSGD(0.1, sphere={})": "sphere",
        "dimfree.HeavyBall(0.1, 0.5, sphere={})": "sphere",
        "dimfree.HeavyBall(0.1, 0.5, nesterov={})": "nesterov",
        "dimfree.Momentum(0.1, 0.2, 1.0, sphere={})": "sphere",
        "dimfree.AdaGradNorm(0.1, sphere={})": "sphere",
        "dimfree.Adam(0.1, forgetting=1.0, bias_correction={})": "bias_correction",
        "dimfree.GradientDescent(0.1, 2.0, sphere={})": "sphere",
        "dimfree.Tasks([problem], heads={})": "heads",
        "dimfree.Tasks.switching(1, 0.5, 1.0, heads={})": "heads",
        "dimfree.WideState([[0.1]], [1.0], density={})": "density",
        "dimfree.random_state(problem, 100, key=key, wide={})": "wide",
        "dimfree.mean_field(dimfree.TwoLayer(1), sgd, infinite_width={})": "infinite_width",
        "dimfree.dmft(problem, descent, flow={})": "flow",
        "dimfree.solve(dimfree.ode(problem, sgd), start, 1.0, progress={})": "progress",
        "dimfree.simulate(problem, sgd, start, 9, 1.0, runs=1, key=key, progress={})": "progress",
        "dimfree.simulate(problem, descent, start, 9, 1.0, runs=1, key=key, store_data={})": "store_data",
        "dimfree.hessian(problem, start, 9, sphere={})": "sphere",
        "dimfree.critical_points(problem, 9, key=key, sphere={})": "sphere",
        "dimfree.regimes(dimfree.TwoLayer(2), sgd, 100, 1.0, key=key, measure={})": "measure",
        "dimfree.exit_time(problem, sgd, 100, key=key, progress={})": "progress",
        "dimfree.sample_complexity(problem, sgd, [9, 99], key=key, progress={})": "progress",
        "dimfree.Spectrum.from_data([[0.0, 1.0], [1.0, 0.0]], progress={})": "progress",
        "dimfree.equations(problem, sgd, orthonormal_teachers={})": "orthonormal_teachers",
        "dimfree.plot.compare(log={})": "log",
    }
    given = {"'false'": "'false'", "two": "[ True False]", "1": "1"}
    assert_refused(
        NAMES,
        {
            call.format(value): f"{name} = {shown} was given; it must be True or False."
            for call, name in calls.items()
            for value, shown in given.items()
        },
    )


def test_a_traced_flag_is_refused():
    with as_users_call(), pytest.raises(InvalidInput, match=r"sphere is traced; .* close over it"):
        jax.jit(lambda sphere: dimfree.OnlineSGD(0.1, sphere=sphere).learning_rate)(True)


def test_flags_of_numpy_are_flags():
    with as_users_call():
        assert dimfree.OnlineSGD(0.1, sphere=np.bool_(True)).sphere is True


def test_seeds_of_points_are_whole_numbers():
    """What NumPy takes as no seed it replaces by a fresh one, each time: averages that never agree."""
    refused = {"'x'": "'x'", "nan": "nan", "-1": "-1", "1.5": "1.5", "True": "True", "None": "None"}
    assert_refused(
        NAMES,
        {f"dimfree.Sobol(1024, seed={given})": f"seed = {shown} was given" for given, shown in refused.items()},
    )
    with as_users_call():
        assert dimfree.Sobol(1024, seed=np.int64(3)).seed == 3


@pytest.mark.parametrize("limit", ["dimfree.sde(problem, sgd, d={})", "dimfree.mean_field(problem, sgd, d={})"])
def test_dimensions_that_are_none(limit):
    given = {"10**59": "", "10**400": "about 10^400", "two": "", "nan": "nan", "'x'": "'x'", "None": "None", "1j": "1j"}
    if "mean_field" in limit:
        del given["None"]
    assert_refused(NAMES, {limit.format(each): f"d = {shown}" for each, shown in given.items()})


TRACED = {
    "check": lambda sgd: dimfree.check(PROBLEM, sgd),
    "fixed_points": lambda sgd: dimfree.fixed_points(dimfree.ode(PROBLEM, sgd), key=KEY),
    "basins": lambda sgd: dimfree.basins(dimfree.ode(PROBLEM, sgd), d=100, alpha=1.0, key=KEY),
    "exit_time": lambda sgd: dimfree.exit_time(PROBLEM, sgd, 100, key=KEY),
    "best_learning_rate": lambda sgd: dimfree.best_learning_rate(PROBLEM, sgd, 100, key=KEY),
    "best_protocol": lambda sgd: dimfree.best_protocol(PROBLEM, sgd, 1.0, over={}, key=KEY),
    "sample_complexity": lambda sgd: dimfree.sample_complexity(PROBLEM, sgd, [10, 20], key=KEY),
    "overparameterisation_gain": lambda sgd: dimfree.overparameterisation_gain(PROBLEM, sgd, 100, key=KEY),
    "regimes": lambda sgd: dimfree.regimes(dimfree.TwoLayer(2), sgd, 100, 1.0, key=KEY),
    "from_data": lambda sgd: dimfree.from_data(np.eye(3), np.eye(3), PROBLEM, sgd, alpha=1.0, runs=8, key=KEY),
    "to_xarray": lambda sgd: dimfree.solve(dimfree.ode(PROBLEM, sgd), START, 0.1).to_xarray(),
}


@pytest.mark.parametrize("name", TRACED)
@pytest.mark.parametrize("transform", [jax.jit, jax.vmap])
def test_what_computes_in_python_says_so_under_transformations(transform, name):
    with pytest.raises(InvalidInput, match=f"{name} needs numbers, .* outside of jit, vmap and grad"):
        transform(lambda rate: TRACED[name](dimfree.OnlineSGD(rate)))(jnp.ones(2) if transform is jax.vmap else 0.1)


@pytest.mark.parametrize("times", [[0.0, 0.2, 0.1], [-1.0, 1.0], [0.0, np.nan]])
def test_traced_times_that_do_not_increase(times):
    solved = jax.jit(lambda times: dimfree.solve(dimfree.ode(PROBLEM, SGD), START, times).risk)
    with pytest.raises(Exception, match="alpha was given as traced times that are not finite and increasing"):
        solved(jnp.array(times)).block_until_ready()


@pytest.mark.parametrize("end", [-1.0, 0.0, np.inf])
def test_a_traced_end_that_is_none(end):
    solved = jax.jit(lambda end: dimfree.solve(dimfree.ode(PROBLEM, SGD), START, end).risk)
    with pytest.raises(Exception, match="alpha was given as a traced number that is not finite and positive"):
        solved(end).block_until_ready()


def test_averages_that_are_not_known():
    """Slopes whose mean square is infinite: no two sets of points agree."""

    def explodes(student, teacher, noise, readout):
        return jnp.where(student[0] > 0, jnp.exp(student[0] ** 2 / 4.02), teacher[0] ** 2)

    limit = dimfree.ode(dimfree.LocalFields(explodes, 1, 1), dimfree.OnlineSGD(0.05))
    with pytest.raises(InvalidInput, match=r"averages of the drift are not known where this starts: .* about \d\d+%"):
        dimfree.solve(limit, START, 1.0)


def test_a_drift_that_no_solver_would_follow_to_the_end():
    """Extragradient steps on phase retrieval have slopes of degree nine, and relax within 1e-6."""
    limit = dimfree.ode(PROBLEM, dimfree.MovedGradient(dimfree.OnlineSGD(0.05, sphere=True), -1.0))
    with pytest.raises(InvalidInput, match=r"drift is so large where this starts \(1\.9e\+07\) that the solver would"):
        dimfree.solve(limit, START, 1.0)
    small = dimfree.MovedGradient(dimfree.OnlineSGD(0.05, sphere=True), -0.01)
    assert dimfree.solve(dimfree.ode(PROBLEM, small), START, 0.1).outcome == dimfree.Outcome.COMPLETED
