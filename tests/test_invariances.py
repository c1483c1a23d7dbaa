"""What must not change: names of neurons, bases, duplicates, and how runs are grouped."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cases
import dimfree
from dimfree.gaussian.factor import psd_factor

SETTINGS = settings(max_examples=15, deadline=None)
ALGORITHM = dimfree.OnlineSGD(0.3, readout_rate=0.2, ridge=0.1)
SEEDS = st.integers(0, 10_000)


@pytest.mark.parametrize("activation", ["erf", "relu", jnp.tanh])
@SETTINGS
@given(seed=SEEDS, order=st.permutations(range(3)))
def test_renaming_neurons_renames_the_drift(activation, seed, order):
    problem = dimfree.TwoLayer(3, 1, activation, noise=0.1)
    order = np.asarray(order)
    limit = dimfree.ode(problem, ALGORITHM)
    state = cases.generic_state(problem, seed)
    renamed = dimfree.State(state.Q[order][:, order], state.M[order], state.P, jnp.asarray([0.5, -1.0, 2.0])[order])
    state = dimfree.State(state.Q, state.M, state.P, jnp.asarray([0.5, -1.0, 2.0]))
    drift, renamed_drift = limit.drift(0.0, state), limit.drift(0.0, renamed)
    # The Gauss-Hermite grid of tanh is not symmetric under permutations: its errors at both states are the tolerance.
    tolerance = 1e-10
    if limit.expectation != "closed form":
        tolerance = 10 * float(limit.expectation_error(state) + limit.expectation_error(renamed)) + 1e-8
    np.testing.assert_allclose(renamed_drift.Q, drift.Q[order][:, order], atol=tolerance)
    np.testing.assert_allclose(renamed_drift.M, drift.M[order], atol=tolerance)
    np.testing.assert_allclose(renamed_drift.readout, drift.readout[order], atol=tolerance)


@SETTINGS
@given(seed=SEEDS)
def test_quadratic_students_may_be_rotated(seed):
    """With equal readouts the square network sees only W^T W, so rotating the students rotates the drift."""
    problem = dimfree.TwoLayer(3, 2, "square", noise=0.1)
    limit = dimfree.ode(problem, dimfree.OnlineSGD(0.3))
    state = cases.generic_state(problem, seed)
    rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))[0]
    drift = limit.drift(0.0, state)
    rotated = limit.drift(0.0, dimfree.State(rotation @ state.Q @ rotation.T, rotation @ state.M, state.P))
    np.testing.assert_allclose(rotated.Q, rotation @ drift.Q @ rotation.T, atol=1e-11)
    np.testing.assert_allclose(rotated.M, rotation @ drift.M, atol=1e-11)


@SETTINGS
@given(seed=SEEDS, rank=st.integers(1, 40))
def test_the_factor_reproduces_covariances_of_any_rank(seed, rank):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(40, rank))
    # The first rows span the space evenly: with rows that nearly depend on each other, rounding decides on the rank.
    rows[:rank] = np.linalg.qr(rows[:rank])[0] * rng.uniform(0.5, 2.0, size=(rank, 1))
    covariance = rows @ rows.T
    for size in (5, 9, 40):  # written out by entries, by columns, and as a loop
        part = covariance[:size, :size]
        factor, in_use = psd_factor(jnp.asarray(part))
        np.testing.assert_allclose(factor @ factor.T, part, atol=1e-9 * np.abs(part).max())
        assert int(in_use.sum()) == min(rank, size)


@pytest.mark.parametrize("activation", ["relu", jnp.tanh])
def test_duplicate_students_stay_duplicates(activation):
    problem = dimfree.TwoLayer(2, 1, activation, noise=0.1)
    start = dimfree.State(Q=jnp.ones((2, 2)), M=[[0.4], [0.4]])
    algorithm = dimfree.OnlineSGD(0.1, readout_rate=0.1)
    limit = dimfree.ode(problem, algorithm)
    states = [limit.drift(0.0, start)]
    if activation == "relu":  # any activation is solved and simulated from the same singular covariance
        runs = dimfree.simulate(problem, algorithm, start, d=50, alpha=2.0, runs=4, key=jax.random.key(0))
        states += [dimfree.solve(limit, start, 2.0).state, runs.state]
    for state in states:
        Q, M = np.asarray(state.Q), np.asarray(state.M)
        assert np.isfinite(Q).all()
        np.testing.assert_allclose(Q[..., 0, 0], Q[..., 1, 1], atol=1e-9)
        np.testing.assert_allclose(Q[..., 0, 0], Q[..., 0, 1], atol=1e-9)
        np.testing.assert_allclose(M[..., 0, 0], M[..., 1, 0], atol=1e-9)


@pytest.mark.parametrize("activation", ["erf", "relu"])
def test_a_solved_problem_without_noise_stays_solved(activation):
    """Students equal to the teachers: singular covariance, zero drift, and no run moves."""
    problem = dimfree.TwoLayer(2, 2, activation)
    start = dimfree.State(Q=jnp.eye(2), M=jnp.eye(2))
    without_ridge = dimfree.OnlineSGD(0.3, readout_rate=0.2)
    drift = dimfree.ode(problem, without_ridge).drift(0.0, start)
    for part in (drift.Q, drift.M, drift.readout):
        np.testing.assert_allclose(part, 0.0, atol=1e-8)
    if activation != "relu":  # a simulation has the same singular covariance with any activation
        return
    runs = dimfree.simulate(problem, without_ridge, start, d=30, alpha=3.0, runs=2, key=jax.random.key(0))
    np.testing.assert_allclose(runs.final.Q, np.broadcast_to(np.eye(2), (2, 2, 2)), atol=1e-9)


@pytest.mark.parametrize(("method", "batch_size"), [("exact", 3), ("vectors", 1)])
def test_a_run_does_not_depend_on_which_others_it_is_computed_with(method, batch_size):
    problem = dimfree.TwoLayer(2, 1, "erf", noise=0.1)
    algorithm = dimfree.OnlineSGD(2.0, batch_size=batch_size)
    starts = jax.vmap(lambda key: dimfree.random_state(problem, 40, key=key))(jax.random.split(jax.random.key(1), 7))

    def learned(state):
        return 0.08 - problem.risk(state)

    def run(memory):
        arguments = (problem, algorithm, starts, 40, np.array([0.0, 0.1, 12.0, 20.0]))
        options = {"runs": 7, "key": jax.random.key(3), "method": method, "stop": learned}
        return dimfree.simulate(*arguments, memory=memory, **options)

    whole, apart = run(2**30), run(1)
    assert "1 at a time" in dict(apart.provenance)["simulation"]
    np.testing.assert_allclose(apart.state.Q, whole.state.Q, atol=1e-12)
    np.testing.assert_allclose(apart.state.M, whole.state.M, atol=1e-12)
    np.testing.assert_array_equal(apart.stopped_at, whole.stopped_at)
    np.testing.assert_array_equal(apart.outcome, whole.outcome)
    # Runs start where they were told to, end at different times, and a run that has ended repeats its last State.
    np.testing.assert_allclose(whole.state.M[:, 0], starts.M, atol=1e-12)
    ended = np.asarray(whole.stopped_at)
    assert len(np.unique(ended[np.isfinite(ended)])) > 2
    early = int(np.nanargmin(ended))
    assert float(ended[early]) < 12.0
    np.testing.assert_array_equal(whole.state.M[early, 2], whole.state.M[early, 3])


def test_more_fields_than_dimensions_keep_their_rank():
    problem = dimfree.TwoLayer(6, 3, "erf", noise=0.1)
    start = dimfree.random_state(problem, d=5, key=jax.random.key(0))
    runs = dimfree.simulate(problem, dimfree.OnlineSGD(3.0), start, d=5, alpha=20.0, runs=8, key=jax.random.key(1))
    eigenvalues = np.linalg.eigvalsh(np.asarray(runs.final.covariance))
    assert np.all(eigenvalues[:, :4] < 1e-9)
    assert np.all(eigenvalues[:, 4] > 1e-6)
