"""The examples of the contributor's guide: what a new problem and a new limit must pass."""

import importlib.util
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import dimfree

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# A new problem.


def absolute_regression(noise: float = 0.5):
    return example("adding_a_problem").AbsoluteRegression(noise)


@pytest.mark.slow
def test_a_new_problem_has_the_square():
    result = dimfree.check(absolute_regression(), dimfree.OnlineSGD(0.5), dimensions=(100, 400, 1600), runs=32)
    assert result.agrees, str(result)


def test_its_closed_forms_are_those_of_quadrature():
    problem, sgd = absolute_regression(), dimfree.OnlineSGD(learning_rate=0.5)
    state = dimfree.State(Q=[[0.8]], M=[[0.3]])
    sobol = dimfree.ode(problem, sgd, rule=dimfree.Sobol(2**16))
    known, numerical = dimfree.ode(problem, sgd).drift(0.0, state), sobol.drift(0.0, state)
    # Points see a kink with an error of about one over their number.
    np.testing.assert_allclose(known.Q, numerical.Q, atol=2e-4)
    np.testing.assert_allclose(known.M, numerical.M, atol=2e-4)
    np.testing.assert_allclose(problem.risk(state), problem.risk(state, dimfree.Sobol(2**16)), atol=2e-4)


def test_it_refuses_a_negative_variance():
    with pytest.raises(dimfree.InvalidInput, match="variance of the label noise"):
        absolute_regression(-1.0)


# A new limit.


def test_a_new_limit_has_the_mean_of_a_step():
    d, rate, noise, m = 20, 0.05, 0.5, 0.3
    limits = example("adding_a_limit")
    problem, sgd = dimfree.PhaseRetrieval(noise=noise), dimfree.OnlineSGD(rate)
    start = dimfree.State(Q=[[1.0]], M=[[m]])
    drift = limits.finite_dimension_ode(problem, sgd, d).drift(0.0, start)
    # In closed form: E[|x|^2 h] = (d + n) E[h] for h of degree n in the fields, here 6 and, with the noise, 2.
    square = 48 * (1 - m**2) * (1 + 6 / d) + 4 * noise * (1 + 2 / d)
    np.testing.assert_allclose(drift.Q[0, 0], -8 * rate * (1 - m**2) + rate**2 * square, rtol=1e-10)
    # And by single steps of SGD: six standard errors, a false alarm once in 10^8.
    runs = dimfree.simulate(problem, sgd, start, d, [0.0, 1 / d], runs=50_000, key=jax.random.key(0))
    change = d * (np.asarray(runs.state.Q)[:, -1, 0, 0] - 1)
    error = change.std() / len(change) ** 0.5
    assert abs(change.mean() - float(drift.Q[0, 0])) < 6 * error
    assert abs(change.mean() - float(dimfree.ode(problem, sgd).drift(0.0, start).Q[0, 0])) > 6 * error


def test_it_can_be_solved_and_refuses_what_it_does_not_hold_for():
    limits = example("adding_a_limit")
    problem, start = dimfree.PhaseRetrieval(), dimfree.State(Q=[[1.0]], M=[[0.3]])
    limit = limits.finite_dimension_ode(problem, dimfree.OnlineSGD(0.05), 50)
    end = dimfree.solve(limit, start, 5.0)
    assert int(end.outcome) == dimfree.Outcome.COMPLETED
    # Noise of SGD is stronger in low dimension.
    assert end.risk[-1] > 1.01 * dimfree.solve(dimfree.ode(problem, limit.algorithm), start, 5.0).risk[-1]
    with pytest.raises(dimfree.InvalidInput, match="without sphere, ridge"):
        limits.finite_dimension_ode(problem, dimfree.OnlineSGD(0.05, sphere=True), 50)


# A new algorithm.


def test_a_new_algorithm_is_that_of_a_loop_in_numpy():
    d, rate, spring, following, runs = 300, 1.0, 2.0, 0.5, 300
    elastic = example("adding_an_algorithm").ElasticSGD(rate, spring, following)
    rng = np.random.default_rng(0)
    w = np.zeros((runs, d))
    w[:, 0], w[:, 1] = 0.3 * d**0.5, d**0.5
    z = w.copy()
    for _ in range(d):
        x = rng.normal(size=(runs, d))
        gradient = (np.sum(w * x, axis=1) / d**0.5 - x[:, 0])[:, None] * x / d**0.5
        w, z = w - rate * gradient + spring / d * (z - w), z + following / d * (w - z)
    start = dimfree.State(Q=[[1.09]], M=[[0.3]])
    end = dimfree.solve(dimfree.ode(dimfree.TwoLayer(1, 1, "linear"), elastic), start, 1.0).final
    for found, limit in ((w[:, 0], end.M), (z[:, 0], end.overlap("anchor", "teachers"))):
        found = found / d**0.5
        assert abs(found.mean() - float(limit[0, 0])) < 5 * found.std() / runs**0.5 + 1 / d


def test_a_new_algorithm_has_a_limit():
    algorithm = example("adding_an_algorithm").ElasticSGD(1.0, 2.0, 0.5)
    assert dimfree.check(dimfree.TwoLayer(1, 1, "erf"), algorithm, dimensions=(100, 1600)).agrees
