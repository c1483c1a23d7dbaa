"""Algorithms with a memory: momentum, averages of the iterates, weight decay, as limits and at finite d."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cases
import dimfree
from dimfree.algorithms import OnlineSGD
from dimfree.algorithms.moves import Move
from dimfree.gaussian.rules import averaging
from dimfree.problems.base import Problem, on_range
from dimfree.state import STUDENTS

ERF = dimfree.TwoLayer(2, 1, "erf", noise=0.1)
MOMENTUM = dimfree.Momentum(0.3, 0.8, 2.0, ridge=0.1)


@pytest.mark.parametrize(
    ("problem", "algorithm"),
    [
        (ERF, dimfree.Averaged(MOMENTUM, 1.5)),
        (dimfree.PhaseRetrieval(1, 0.1), dimfree.WeightDecay(dimfree.Momentum(0.05, 0.1, 2.0, batch_size=7), 0.3)),
        (dimfree.TwoLayer(1, 1, "erf"), dimfree.HeavyBall(lambda alpha: 0.3 / (1 + alpha), 0.7)),
    ],
    ids=["momentum and average", "momentum, decay and batch", "heavy ball, schedule"],
)
def test_simulation_approaches_the_limit(problem, algorithm):
    result = dimfree.check(problem, algorithm, dimensions=(100, 1600))
    assert result.agrees, result


def test_one_step_is_that_of_the_vectors():
    """The same numbers, not only the same law: every overlap after a step, from the vectors and from the overlaps."""
    rng = np.random.default_rng(0)
    d, p, k = 30, 2, 1
    vectors = {"students": (p, d), "teachers": (k, d), "average": (p, d), "momentum": (p, d)}
    vectors = {family: jnp.asarray(rng.normal(size=shape)) for family, shape in vectors.items()}
    gradient = jnp.asarray(rng.normal(size=(p, d))) / d**0.5
    algorithm = dimfree.WeightDecay(dimfree.Averaged(dimfree.HeavyBall(0.3, 0.7, sphere=True, ridge=0.2), 1.5), 0.4)
    from dimfree.problems.base import Moments
    from dimfree.problems.inputs import StandardInputs
    from dimfree.simulation.vectors import observe

    products = {family: gradient @ rows.T / d * d for family, rows in vectors.items()}
    moments = Moments(
        student=products["students"],
        teacher=products["teachers"],
        square=gradient @ gradient.T,
        readout=None,
        own={"average": products["average"], "momentum": products["momentum"]},
    )
    moved, _ = algorithm.step_vectors(vectors, None, gradient, None, jnp.zeros(()))
    after = algorithm.step(observe(vectors, None, StandardInputs()), moments, 1 / d, jnp.zeros(()))
    for pair, blocks in observe(moved, None, StandardInputs()).overlaps.items():
        np.testing.assert_allclose(after.overlaps[pair], blocks, atol=1e-13)


def test_momentum_against_a_loop_in_numpy():
    """Written out: v' = (1 - c/d) v + g + ridge w / d, w' = w - eta g - eta ridge w / d - eta2 v / d."""
    d, eta, eta2, c, ridge = 400, 1.0, 2.0, 2.0, 0.3
    problem, algorithm = dimfree.TwoLayer(1, 1, "linear"), dimfree.Momentum(eta, eta2, c, ridge=ridge)
    rng = np.random.default_rng(1)
    runs, steps = 400, 400
    teacher = np.zeros(d)
    teacher[0] = d**0.5
    w, v = np.zeros((runs, d)), np.zeros((runs, d))
    w[:, 0], w[:, 1] = 0.5 * d**0.5, 0.8 * d**0.5
    for _ in range(steps):
        x = rng.normal(size=(runs, d))
        error = np.sum((w - teacher) * x, axis=1, keepdims=True) / d**0.5
        g = error * x / d**0.5
        w, v = w - eta * (g + ridge / d * w) - eta2 / d * v, (1 - c / d) * v + g + ridge / d * w
    start = dimfree.State(Q=[[0.25 + 0.64]], M=[[0.5]])
    end = dimfree.solve(dimfree.ode(problem, algorithm), start, steps / d).final
    for found, exact in (
        (w @ teacher / d, end.M),
        (np.sum(w * w, axis=1) / d, end.Q),
        (v @ teacher / d, end.overlap("momentum", "teachers")),
        (np.sum(v * w, axis=1) / d, end.overlap("momentum", "students")),
        (np.sum(v * v, axis=1) / d, end.overlap("momentum", "momentum")),
    ):
        error = found.std() / runs**0.5
        assert abs(found.mean() - float(exact[0, 0])) < 4.5 * error + 2 / d


def test_heavy_ball_becomes_sgd_at_a_larger_rate():
    """It comes near the limit of SGD at learning_rate / (1 - momentum), and not near that at learning_rate."""
    problem, start = dimfree.TwoLayer(1, 1, "erf"), dimfree.State(Q=[[1.0]], M=[[0.3]])
    ball = dimfree.HeavyBall(0.3, 0.7)
    limit = dimfree.ode(problem, ball)
    assert repr(limit.algorithm) == f"{ball!r}, as d grows {OnlineSGD(0.3 / (1 - 0.7))!r}"
    same, slower = (dimfree.solve(dimfree.ode(problem, each), start, 3.0).final for each in (ball, OnlineSGD(0.3)))
    runs = dimfree.simulate(problem, ball, start, 1600, 3.0, runs=128, key=jax.random.key(0)).final.M
    # The mean of the runs has a standard error below 0.002.
    assert float(jnp.std(runs)) / 128**0.5 < 0.002
    mean = float(jnp.mean(runs))
    assert abs(mean - float(same.M[0, 0])) < 0.01 < abs(mean - float(slower.M[0, 0]))


def test_a_step_that_is_not_the_identity_is_refused():
    class Jumping(OnlineSGD):
        def move(self, alpha):
            return Move(super().move(alpha).drag, super().move(alpha).pull, jump={(STUDENTS, STUDENTS): -0.5})

    with pytest.raises(dimfree.InvalidInput, match="not the identity at 1/d = 0"):
        dimfree.ode(ERF, Jumping(0.1))


def test_a_slope_that_is_clipped():
    """An algorithm that changes slopes: its limit by quadrature beside its exact simulation."""

    class Clipped(OnlineSGD):
        def used_slopes(self, slopes, fields, gram):
            return jnp.clip(slopes(fields), -0.3, 0.3)

    problem = dimfree.TwoLayer(1, 1, "erf")
    result = dimfree.check(problem, Clipped(1.0), dimensions=(100, 1600))
    assert result.agrees, result
    clipped, plain = (dimfree.ode(problem, each) for each in (Clipped(1.0), OnlineSGD(1.0)))
    start = cases.generic_state(problem)
    assert float(jnp.abs(clipped.drift(0.0, start).M - plain.drift(0.0, start).M).max()) > 0.01


@pytest.mark.parametrize("activation", ["square", "erf", "relu", "he3", "linear"])
def test_the_mean_derivative_of_the_slopes(activation):
    """In closed form, by Stein's lemma from the moments, and as the mean of second derivatives."""
    problem = dimfree.TwoLayer(2, 1, activation, readout=[1.0, -0.5])
    state = problem.completed(cases.generic_state(problem))
    moments = problem.mean_moments(state, averaging(None, 1e-9))
    closed = problem.sensitivity(state, moments)
    np.testing.assert_allclose(closed, Problem.sensitivity(problem, state, moments), atol=1e-11)
    np.testing.assert_allclose(
        closed @ state.covariance, jnp.concatenate([moments.student, moments.teacher], axis=1), atol=1e-13
    )


def test_solving_on_the_range_of_a_singular_covariance():
    """Two students that are the same: what is related to the fields through their overlaps stays so."""
    rows = np.random.default_rng(0).normal(size=(3, 8))
    rows[1] = rows[0]
    other = np.random.default_rng(1).normal(size=(2, 8))
    covariance, columns = jnp.asarray(rows @ rows.T), jnp.asarray(rows @ other.T)
    found = on_range(covariance, columns)
    np.testing.assert_allclose(covariance @ found, columns, atol=1e-11)
    assert np.isfinite(jax.jacfwd(lambda c: covariance @ on_range(c, columns))(covariance)).all()


def test_the_average_is_read_where_it_is():
    averaged = dimfree.Averaged(OnlineSGD(1.0), lambda alpha: 1 / (alpha + 0.01))
    problem = dimfree.TwoLayer(1, 1, "linear", noise=0.5)
    start = dimfree.State(Q=[[1.0]], M=[[0.0]])
    path = dimfree.solve(dimfree.ode(problem, averaged), start, 20.0)
    mean = jnp.trapezoid(path.state.M[:, 0, 0], path.alpha) / (path.alpha[-1] + 0.01) + 0.0
    np.testing.assert_allclose(path.state.at("average").M[-1, 0, 0], mean, atol=2e-3)
    risks = problem.risk(path.state), problem.risk(path.state.at("average"))
    assert risks[1][-1] < 0.8 * risks[0][-1]  # averaging takes noise away
    assert "average_students" in path.to_xarray()


def test_what_asks_for_plain_sgd_says_so():
    with pytest.raises(dimfree.InvalidInput, match="has vectors of its own"):
        dimfree.fixed_points(dimfree.ode(ERF, MOMENTUM), key=jax.random.key(0))
    with pytest.raises(dimfree.InvalidInput, match="there are no such vectors in this State"):
        cases.generic_state(ERF).overlap("velocity", "students")
    with pytest.raises(dimfree.InvalidInput, match="less than 1"):
        dimfree.HeavyBall(0.1, 1.0)


def test_a_run_goes_on_where_it_ended():
    """The State of a result has the momentum, so that two solves in a row are one."""
    limit, start = dimfree.ode(ERF, MOMENTUM), cases.generic_state(ERF)
    whole = dimfree.solve(limit, start, 2.0).final
    half = dimfree.solve(limit, dimfree.solve(limit, start, 1.0).final, 1.0).final
    for pair, blocks in whole.overlaps.items():
        np.testing.assert_allclose(half.overlaps[pair], blocks, atol=1e-7)
