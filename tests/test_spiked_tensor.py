"""Spiked tensors: the reduction to three numbers against tensors themselves, and the limits that are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

import dimfree


def noise_pull(noise: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The noise contracted with x in all slots but one, summed over slots, for many runs."""
    letters = "abcd"[: noise.ndim - 1]
    pull = np.zeros_like(x)
    for slot, letter in enumerate(letters):
        others = ",".join(f"r{other}" for i, other in enumerate(letters) if i != slot)
        pull += np.einsum(f"r{letters},{others}->r{letter}", noise, *[x] * (len(letters) - 1), optimize=True)
    return pull


def tensor_sgd(order: int, snr: float, rate: float, x: np.ndarray, steps: int, rng) -> np.ndarray:
    """SGD on the squared distance to a fresh noisy tensor with all its entries, for many runs."""
    runs, d = x.shape
    signal = np.eye(d)[0]
    for _ in range(steps):
        pull = noise_pull(rng.normal(size=(runs, *[d] * order)), x)
        overlap, square = x @ signal, np.sum(x**2, axis=1)
        pull += order * snr * (overlap ** (order - 1))[:, None] * signal
        gradient = -2 * pull + 2 * order * (square ** (order - 1))[:, None] * x
        x = x - rate / d * gradient
    return x


@pytest.mark.parametrize(("order", "d", "rate"), [(2, 12, 0.5), (3, 8, 0.2), (4, 6, 0.05)])
def test_the_step_has_the_law_of_full_tensors(order, d, rate):
    """Kolmogorov-Smirnov for Q and M after one step and after several; false alarm 1e-4 for each order."""
    snr, runs = 1.5, 6000
    start = np.zeros((runs, d))
    start[:, :2] = 0.6, 0.8
    state = dimfree.State(Q=[[1.0]], M=[[0.6]])
    rng = np.random.default_rng(order)
    for steps, seed in ((1, 0), (6, 1)):
        x = tensor_sgd(order, snr, rate, start, steps, rng)
        simulated = dimfree.simulate(
            dimfree.SpikedTensor(order, snr),
            dimfree.OnlineSGD(rate),
            state,
            d,
            np.array([0.0, steps / d]),
            runs=runs,
            key=jax.random.key(seed),
        ).final
        for direct, ours in ((x[:, 0], simulated.M), (np.sum(x**2, axis=1), simulated.Q)):
            assert scipy.stats.ks_2samp(direct, np.asarray(ours)[:, 0, 0]).pvalue > 1e-4 / 4


@pytest.mark.parametrize(("order", "rate"), [(2, 0.03), (3, 0.01)])
def test_in_one_dimension_x_stays_along_v_and_has_the_law_of_numbers(order, rate):
    """Kolmogorov-Smirnov for M after eight steps; false alarm 1e-4 for each order."""
    snr, runs, steps = 1.5, 6000, 8
    x = tensor_sgd(order, snr, rate, np.full((runs, 1), 0.6), steps, np.random.default_rng(order))
    problem, start = dimfree.SpikedTensor(order, snr), dimfree.State(Q=[[0.36]], M=[[0.6]])
    times = np.array([0.0, steps])
    algorithm, key = dimfree.OnlineSGD(rate), jax.random.key(order)
    final = dimfree.simulate(problem, algorithm, start, 1, times, runs=runs, key=key).final
    Q, M = np.asarray(final.Q)[:, 0, 0], np.asarray(final.M)[:, 0, 0]
    np.testing.assert_allclose(Q, M**2, rtol=1e-9, atol=1e-12)
    assert scipy.stats.ks_2samp(x[:, 0], M).pvalue > 1e-4


@pytest.mark.parametrize("order", [2, 3, 4])
def test_the_covariance_of_an_increment_is_that_of_full_tensors(order):
    """The gradient is linear in the noise: its covariance is that map times its transpose, without any sampling."""
    d, rate, x, signal = 3, 0.3, np.array([0.6, 0.7, 0.2]), np.array([1.0, 0.0, 0.0])
    units = np.eye(d**order).reshape(-1, *[d] * order)
    gradients = -2 * noise_pull(units, np.tile(x, (len(units), 1)))
    increments = -rate * np.stack([2 * gradients @ x, gradients @ signal])
    limit = dimfree.sde(dimfree.SpikedTensor(order, snr=1.5), dimfree.OnlineSGD(rate), d=1)
    assert limit.coordinates.labels == ("Q[0,0]", "M[0,0]")
    state = dimfree.State(Q=[[x @ x]], M=[[x @ signal]])
    np.testing.assert_allclose(limit.covariance(0.0, state), increments @ increments.T, rtol=1e-12)


def test_the_matrix_has_its_solution_in_closed_form():
    """With X = m^2 and Y = r^2 the flow of order 2 is a ratio of exponentials."""
    snr, c, m0, Q0 = 2.0, 0.7, 0.3, 0.9
    times = np.linspace(0.0, 1.2, 7)  # of the source, learning_rate * alpha
    x0, y0 = m0**2, Q0 - m0**2

    def X(t):
        return x0 * np.exp(8 * snr * t)

    def Y(t):
        return y0 * np.exp(8 * c * t) + c * x0 * (np.exp(8 * snr * t) - np.exp(8 * c * t)) / (snr - c)

    S = np.array([1 + 8 * scipy.integrate.quad(lambda s: X(s) + Y(s), 0, t, epsabs=1e-12)[0] for t in times])
    limit = dimfree.ode(dimfree.SpikedTensor(2, snr), dimfree.OnlineSGD(c))
    solved = dimfree.solve(limit, dimfree.State(Q=[[Q0]], M=[[m0]]), times / c)
    m, Q = np.asarray(solved.state.M)[:, 0, 0], np.asarray(solved.state.Q)[:, 0, 0]
    np.testing.assert_allclose(m**2, X(times) / S, atol=1e-7)
    np.testing.assert_allclose(Q - m**2, Y(times) / S, atol=1e-7)


@pytest.mark.parametrize("order", [2, 3, 4])
def test_the_drift_is_that_of_the_source_with_ridge(order):
    snr, c, ridge, m, Q = 1.7, 0.3, 0.2, 0.4, 0.8
    limit = dimfree.ode(dimfree.SpikedTensor(order, snr), dimfree.OnlineSGD(c, ridge=ridge))
    drift = limit.drift(0.0, dimfree.State(Q=[[Q]], M=[[m]]))
    m_dot = 2 * m * (snr * order * m ** (order - 2) - order * Q ** (order - 1)) - ridge * m
    r_dot = -4 * order * Q ** (order - 1) * (Q - m**2 - c) - 2 * ridge * (Q - m**2)
    assert float(drift.M[0, 0]) / c == pytest.approx(m_dot, abs=1e-12)
    assert float(drift.Q[0, 0]) / c - 2 * m * m_dot == pytest.approx(r_dot, abs=1e-12)


def test_the_risk_has_the_gradient_of_the_drift():
    """Gradient flow decreases the risk at the rate of the squared gradient, for any order."""
    problem = dimfree.SpikedTensor(3, 2.0)
    limit = dimfree.gradient_flow(problem, dimfree.OnlineSGD(1.0))
    m, Q = 0.5, 0.9

    def risk(m, Q):
        return problem.risk(dimfree.State(Q=jnp.reshape(Q, (1, 1)), M=jnp.reshape(m, (1, 1))))

    by_m, by_Q = jax.grad(risk, argnums=(0, 1))(m, Q)
    drift = limit.drift(0.0, dimfree.State(Q=[[Q]], M=[[m]]))
    # x' = -(by_m v + 2 by_Q x), so m' = -(by_m + 2 by_Q m) and Q' = -2 (by_m m + 2 by_Q Q).
    assert float(drift.M[0, 0]) == pytest.approx(-float(by_m + 2 * by_Q * m), abs=1e-12)
    assert float(drift.Q[0, 0]) == pytest.approx(-2 * float(by_m * m + 2 * by_Q * Q), abs=1e-12)


def test_runs_that_diverge_are_reported():
    """From |x|^2 = 400 a step of order 3 goes beyond where it came from, and further with each."""
    problem, start = dimfree.SpikedTensor(3, 2.0), dimfree.State(Q=[[400.0]], M=[[0.0]])
    times = np.array([0.0, 1.0])
    runs = dimfree.simulate(problem, dimfree.OnlineSGD(1.0), start, 100, times, runs=4, key=jax.random.key(0))
    assert np.all(np.asarray(runs.outcome) == dimfree.Outcome.DIVERGED)


def test_it_refuses_what_it_cannot_do():
    problem = dimfree.SpikedTensor(2, 1.0)
    with pytest.raises(dimfree.InvalidInput, match="no fields to average over"):
        dimfree.ode(problem, dimfree.OnlineSGD(0.1), rule=dimfree.GaussHermite(8))
    with pytest.raises(dimfree.InvalidInput, match="order = 1"):
        dimfree.SpikedTensor(1, 1.0)
