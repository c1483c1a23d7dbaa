"""Mixtures: their limits against the equations of the source, at finite and at infinite signal to noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

import cases
import dimfree

RIDGE = 0.05
TRAINED = dimfree.OnlineSGD(1.0, ridge=RIDGE, readout_rate=1.0)


def xor_state(seed: int, rest: float = 0.3) -> dimfree.State:
    rng = np.random.default_rng(seed)
    M, v = rng.normal(size=(4, 2)), rng.normal(size=4)
    return dimfree.State(Q=M @ M.T + rest * np.eye(4), M=M, readout=v)


def test_points_have_the_drift_derived_for_infinite_signal_to_noise():
    """XOR: every neuron is pulled by the clusters on its side, with the probability of the wrong label."""
    limit = dimfree.ode(dimfree.Mixture.xor(4, np.inf), TRAINED)
    for seed in range(5):
        state = xor_state(seed)
        M, v = np.asarray(state.M), np.asarray(state.readout)
        mu, nu = M[:, 0], M[:, 1]
        wrong = {
            "+mu": expit(-v @ np.maximum(mu, 0)),
            "-mu": expit(-v @ np.maximum(-mu, 0)),
            "+nu": expit(v @ np.maximum(nu, 0)),
            "-nu": expit(v @ np.maximum(-nu, 0)),
        }
        mu_dot = v / 4 * (wrong["+mu"] * (mu > 0) - wrong["-mu"] * (mu < 0)) - RIDGE * mu
        nu_dot = -v / 4 * (wrong["+nu"] * (nu > 0) - wrong["-nu"] * (nu < 0)) - RIDGE * nu
        pull = np.abs(mu) * np.where(mu > 0, wrong["+mu"], wrong["-mu"])
        push = np.abs(nu) * np.where(nu > 0, wrong["+nu"], wrong["-nu"])
        drift = limit.drift(0.0, state)
        np.testing.assert_allclose(drift.M, np.stack([mu_dot, nu_dot], axis=1), atol=1e-12)
        np.testing.assert_allclose(drift.readout, (pull - push) / 4 - RIDGE * v, atol=1e-12)
        rest = np.asarray(drift.Q) - np.asarray(drift.M) @ M.T - M @ np.asarray(drift.M).T
        np.testing.assert_allclose(rest, -2 * RIDGE * 0.3 * np.eye(4), atol=1e-12)


def test_xor_has_the_drift_of_its_22_statistics():
    """At finite snr, by Monte Carlo over inputs in the four relevant directions and the rest: 5 standard errors."""
    snr, rate, number = 5.0, 1.0, 400_000
    state = xor_state(1)
    M, v = np.asarray(state.M), np.asarray(state.readout)
    R = np.asarray(state.Q) - M @ M.T
    rng = np.random.default_rng(0)
    cluster = rng.integers(4, size=number)
    means, label = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])[cluster], (cluster < 2).astype(float)
    z = means + rng.normal(size=(number, 2)) / snr**0.5
    across = rng.normal(size=(number, 4)) @ np.linalg.cholesky(R).T / snr**0.5
    h = z @ M.T + across
    active = h > 0
    error = expit(np.maximum(h, 0) @ v) - label
    slopes = error[:, None] * v * active
    M_samples = -slopes[:, :, None] * z[:, None, :]
    v_samples = -error[:, None] * np.maximum(h, 0)
    R_samples = -slopes[:, :, None] * across[:, None, :]
    R_samples = R_samples + R_samples.swapaxes(1, 2) + rate / snr * slopes[:, :, None] * slopes[:, None, :]
    limit = dimfree.ode(dimfree.Mixture.xor(4, snr), TRAINED)
    drift = limit.drift(0.0, state)
    drift_M = np.asarray(drift.M)
    drift_R = np.asarray(drift.Q) - drift_M @ M.T - M @ drift_M.T
    stated = float(limit.expectation_error(state))
    assert stated < 1e-3
    for ours, samples, decay in (
        (drift_M, M_samples, RIDGE * M),
        (np.asarray(drift.readout), v_samples, RIDGE * v),
        (drift_R, R_samples, 2 * RIDGE * R),
    ):
        error_bar = samples.std(axis=0) / number**0.5
        assert np.all(np.abs(ours - (samples.mean(axis=0) - decay)) < 5 * error_bar + 3 * stated)


def test_the_jacobian_of_a_kinked_drift_is_that_of_differences():
    """Autodiff through the points would miss the jumps of the slopes: it is off by 0.03 here, and this is not."""
    limit = dimfree.ode(dimfree.Mixture.xor(4, 5.0), TRAINED)
    state = xor_state(1)
    vector = limit.coordinates.pack(state)

    def field(vector):
        return limit.vector_field(jnp.zeros(()), vector, state)

    for index in (2, 16):  # an entry of Q, one of M
        way = jnp.eye(len(vector))[index]
        slope = jax.jvp(field, (vector,), (way,))[1]
        np.testing.assert_allclose(slope, (field(vector + 0.03 * way) - field(vector - 0.03 * way)) / 0.06, atol=5e-3)


def test_sliding_reaches_the_same_end_at_any_step_and_the_end_is_the_known_one():
    """At infinite snr neurons end on the axes of the clusters, with |v| = |m| and squares that sum to C by group."""
    problem = dimfree.Mixture.xor(4, np.inf)
    limit = dimfree.ode(problem, TRAINED)
    start = dimfree.random_state(problem, 1000, key=jax.random.key(3))
    start = dimfree.State(start.Q, start.M, start.P, readout=[1.0, 0.8, -0.9, -1.1])
    ends = [dimfree.solve(limit, start, np.array([0.0, 300.0]), steps=steps).final for steps in (1500, 3000, 6000)]
    coarse, middle, fine = (np.asarray(end.M) for end in ends)
    assert np.abs(coarse - fine).max() < 0.02
    assert np.abs(middle - fine).max() < 0.75 * np.abs(coarse - fine).max() + 1e-6
    v = np.asarray(ends[-1].readout)
    assert np.all((fine == 0).sum(axis=1) == 1)  # every neuron is exactly on an axis
    np.testing.assert_allclose(np.abs(fine).max(axis=1), np.abs(v), atol=1e-4)
    level = np.log((1 - 4 * RIDGE) / (4 * RIDGE))
    for axis in range(2):
        for sign in (1, -1):
            group = sign * fine[:, axis] > 0
            if group.any():
                assert np.sum(v[group] ** 2) == pytest.approx(level, rel=1e-3)


def test_sliding_is_as_accurate_at_uneven_times():
    """Steps are even whatever is saved: most of these times are early, and most of the way is late."""
    problem = dimfree.Mixture.xor(4, np.inf, readout=[1.0, 0.8, -0.9, -1.1])
    limit, start = dimfree.ode(problem, TRAINED), dimfree.random_state(problem, 1000, key=jax.random.key(3))
    times = np.concatenate([[0.0], np.geomspace(0.01, 30.0, 40)])
    fine = dimfree.solve(limit, start, times, steps=8000).state
    uneven = dimfree.solve(limit, start, times, steps=1000).state
    even = dimfree.solve(limit, start, [0.0, 30.0], steps=1000).state
    error = float(jnp.abs(even.M[-1] - fine.M[-1]).max())
    assert 0 < error < 1e-5
    assert float(jnp.abs(uneven.M[-1] - fine.M[-1]).max()) < 2 * error
    np.testing.assert_allclose(uneven.Q[0], start.Q, rtol=1e-14)


def test_large_signal_to_noise_approaches_the_points():
    """Binary, from a start away from the surfaces: the distance falls with 1/snr."""
    start = dimfree.State(Q=[[1.14, -0.46], [-0.46, 0.99]], M=[[0.8], [-0.7]], readout=[0.9, -0.6])
    times = np.array([0.0, 4.0])
    points = dimfree.solve(dimfree.ode(dimfree.Mixture.binary(2, np.inf), TRAINED), start, times, steps=4000).final
    distances = []
    for snr in (100.0, 400.0):
        final = dimfree.solve(dimfree.ode(dimfree.Mixture.binary(2, snr), TRAINED), start, times).final
        distances.append(float(jnp.abs(final.M - points.M).max()))
    assert distances[0] < 0.02
    assert 2.5 < distances[0] / distances[1] < 6


@pytest.mark.slow
def test_three_classes_learn_and_are_told_apart():
    problem = cases.three_classes(3, 50.0, readout=np.eye(3) + 0.1)
    start = dimfree.random_state(problem, 100, key=jax.random.key(0))
    learned = dimfree.solve(dimfree.ode(problem, dimfree.OnlineSGD(2.0, readout_rate=2.0)), start, 20.0)
    assert float(learned.risk[0]) == pytest.approx(np.log(3), abs=0.2)
    assert float(learned.risk[-1]) < 0.05
    M = np.asarray(learned.final.M)
    outputs = np.asarray(learned.final.readout).reshape(3, 3) @ np.tanh(M @ np.asarray(problem.inputs.means).T)
    assert np.array_equal(outputs.argmax(axis=0), [0, 1, 2])


def test_infinite_signal_to_noise_is_known_inside_jit():
    @jax.jit
    def drift(M):
        limit = dimfree.ode(dimfree.Mixture.binary(2, np.inf), TRAINED)
        return limit.drift(0.0, dimfree.State(Q=M @ M.T, M=M, readout=[1.0, -1.0])).M

    M = jnp.asarray([[0.5], [-0.5]])
    np.testing.assert_allclose(drift(M), [[0.5 * expit(-0.5) - RIDGE * 0.5], [-0.5 * expit(-0.5) + RIDGE * 0.5]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"means": [1.0, -1.0]}, "row of k coordinates"),
        ({"labels": [0, 1, 1]}, "for each of 2 clusters"),
        ({"labels": [0.5, 1.0]}, "class numbers 0, 1, 2"),
        ({"snr": 0.0}, "must be positive"),
        ({"snr": [1.0, 2.0, 3.0]}, "one for each of 2 clusters"),
        ({"probabilities": [0.5, 0.6]}, "must sum to 1"),
        ({"loss": "hinge"}, "choose one of 'cross-entropy', 'square'"),
        ({"readout": [1.0, 2.0, 3.0]}, "readout has shape"),
        ({"readout": [1.0, np.nan]}, "readout = .*must be finite numbers"),
        ({"means": [[1.0], [np.inf]]}, "means = .*must be finite numbers"),
        ({"labels": [1.0, np.nan], "loss": "square"}, "labels = .*must be finite numbers"),
        ({"loss": lambda output, label: jnp.stack([output, label])}, "single number"),
    ],
)
def test_what_cannot_be_a_mixture_is_refused_in_words(change, message):
    given = {"means": [[1.0], [-1.0]], "labels": [0, 1], "width": 2, "snr": 1.0} | change
    with pytest.raises(dimfree.InvalidInput, match=f"(?s){message}"):
        dimfree.Mixture(**given)
