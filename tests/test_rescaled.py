"""Rescaled limits: variances of tensors, rank and drift at the rings of mixtures, against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dimfree
from dimfree.limits import ode
from dimfree.limits.rescaled import RescaledLimit, rescaled, rescaled_overlaps


@pytest.mark.parametrize(("order", "snr", "rate"), [(2, 0.5, 1.0), (2, 0.3, 0.5), (3, 0.7, 1.3), (4, 2.0, 0.8)])
def test_stationary_variances_of_a_tensor_without_overlap(order, snr, rate):
    """At r^2 = c: c^2 / (c - snr) for matrices, c for tensors; 2 k c^2 for r^2 (Q at M = 0)."""
    limit = ode(dimfree.SpikedTensor(order, snr), dimfree.OnlineSGD(rate))
    found = rescaled(limit, dimfree.State(Q=[[rate]], M=[[0.0]]))
    overlap = rate**2 / (rate - snr) if order == 2 else rate
    assert found.labels == ("Q[0,0]", "M[0,0]")
    np.testing.assert_allclose(found.stationary_covariance, np.diag([2 * order * rate**2, overlap]), rtol=1e-10)
    assert found.rank == 2
    assert found.of("M[0,0]").stationary_covariance == pytest.approx(overlap, rel=1e-10)


@pytest.mark.parametrize(("order", "norm"), [(2, 1.7), (3, 0.6)])
def test_overlaps_of_a_tensor_follow_their_own_diffusion(order, norm):
    """d m = 2 m (2 snr 1{k=2} - k r^(2k-2)) dt + 2 (c k r^(2k-2))^1/2 dB, t = c alpha, wherever the norm is."""
    snr, rate = 0.9, 1.4
    limit = ode(dimfree.SpikedTensor(order, snr), dimfree.OnlineSGD(rate))
    found = rescaled_overlaps(limit, dimfree.State(Q=[[norm]], M=[[0.0]]))
    power = order * norm ** (order - 1)
    assert found.drift[0, 0] / rate == pytest.approx(2 * ((2 * snr if order == 2 else 0.0) - power), rel=1e-12)
    assert found.diffusion[0, 0] / rate == pytest.approx(4 * rate * power, rel=1e-12)
    # A start of variance one, after a time.
    decay = np.exp(2 * found.drift[0, 0] * 0.1)
    expected = decay + found.diffusion[0, 0] * (decay - 1) / (2 * found.drift[0, 0])
    assert found.covariance(0.1, np.eye(1))[0, 0] == pytest.approx(expected, rel=1e-10)


def test_rings_of_two_clusters_have_noise_of_rank_one():
    """Drift a(m - v) - a_i (a - 2 a^2) sum_k a_k (v_k + m_k), a the ridge: the printed sign of the last is wrong.

    Noise a^2 a_i a_j. On the clock t = c alpha, with sqrt(d) units, the noise is c times that.
    """
    ridge, rate = 0.1, 1.6
    ring = np.sqrt(np.log((1 - 2 * ridge) / (2 * ridge))) * np.array([np.cos(0.5), np.sin(0.5)])
    limit = ode(dimfree.Mixture.binary(2, np.inf), dimfree.OnlineSGD(rate, readout_rate=rate, ridge=ridge))
    at = dimfree.State(Q=np.outer(ring, ring), M=ring[:, None], readout=ring)
    found = rescaled(limit, at)
    some = found.of("readout[0]", "readout[1]", "M[0,0]", "M[1,0]")
    both = np.concatenate([ring, ring])
    exchange = np.kron([[-1, 1], [1, -1]], np.eye(2))
    drift = ridge * exchange - (ridge - 2 * ridge**2) * np.outer(both, both)
    np.testing.assert_allclose(some.drift / rate, drift, atol=1e-12)
    np.testing.assert_allclose(some.diffusion / rate, rate * ridge**2 * np.outer(both, both), atol=1e-12)
    assert found.rank == some.rank == 1
    assert found.noiseless.shape == (6, 7)
    np.testing.assert_allclose(found.noiseless @ found.diffusion, 0, atol=1e-12)
    # The noise does not reach along the ring, so there is a stationary law: that of one number, sum_k a_k (v_k + m_k).
    length = both @ both
    variance = rate * ridge**2 * length / (2 * (ridge - 2 * ridge**2) * length)
    np.testing.assert_allclose(some.stationary_covariance, variance * np.outer(both, both) / length, atol=1e-12)
    assert "rank 1 of 7: degenerate" in str(found)


def test_quarter_rings_of_the_xor_mixture_have_noise_of_rank_two():
    """Variances 3 a^2 a_i a_j within a class and -a^2 a_i a_j between: for all pairs, those of v and m included."""
    ridge = 0.05
    radius = np.sqrt(np.log((1 - 4 * ridge) / (4 * ridge)))
    ring = radius * np.array([np.cos(0.4), np.sin(0.4), -np.cos(1.0), -np.sin(1.0)])
    overlaps = np.zeros((4, 2))
    overlaps[:2, 0], overlaps[2:, 1] = ring[:2], ring[2:]
    limit = ode(dimfree.Mixture.xor(4, np.inf), dimfree.OnlineSGD(1.0, readout_rate=1.0, ridge=ridge))
    found = rescaled(limit, dimfree.State(Q=overlaps @ overlaps.T, M=overlaps, readout=ring))
    names = [f"readout[{i}]" for i in range(4)] + ["M[0,0]", "M[1,0]", "M[2,1]", "M[3,1]"]
    some = found.of(*names)
    same_class = np.kron(np.eye(2), np.ones((2, 2)))
    within = np.where(same_class > 0, 3.0, -1.0) * ridge**2 * np.outer(ring, ring)
    np.testing.assert_allclose(some.diffusion, np.kron(np.ones((2, 2)), within), atol=1e-12)
    assert some.rank == found.rank == 2
    coupling = -(ridge - 4 * ridge**2) * same_class * np.outer(ring, ring)
    drift = ridge * np.kron([[-1, 1], [1, -1]], np.eye(4)) + np.kron(np.ones((2, 2)), coupling)
    np.testing.assert_allclose(some.drift, drift, atol=1e-12)


def test_covariance_over_time_is_that_of_linear_noise():
    """By a matrix exponential here, by solving an ODE along the trajectory there; a network, with a batch."""
    problem, sgd, d = dimfree.PhaseRetrieval(1, noise=0.2), dimfree.OnlineSGD(0.1, batch_size=3), 50.0
    from dimfree.analysis.plateau import fixed_point

    at, _ = fixed_point(ode(problem, sgd), dimfree.State(Q=[[1.0]], M=[[0.97]]))
    found = rescaled(ode(problem, sgd), at)
    noise = dimfree.solve(dimfree.linear_noise(problem, sgd, d), at, np.array([0.0, 4.0]))
    np.testing.assert_allclose(found.covariance(4.0) / d, noise.covariance[-1], rtol=1e-5)
    balance = found.drift @ found.stationary_covariance
    np.testing.assert_allclose(balance + balance.T, -found.diffusion, atol=1e-12)


@pytest.mark.parametrize("rates", [(-1.0, -2.0), (-1e-3, -200.0), (0.3, -1.0), (0.0, 0.0)])
@pytest.mark.parametrize("alpha", [0.0, 0.3, 20.0, 400.0])
def test_the_covariance_at_any_time_is_the_integral_of_exponentials(rates, alpha):
    """In the eigenbasis of J, noise_ij (e^{(a_i + a_j) t} - 1) / (a_i + a_j); also long after it has settled."""
    basis, rates = np.array([[1.0, 0.4], [0.2, 1.0]]), np.array(rates)
    noise, start = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([[1.0, -0.2], [-0.2, 3.0]])
    found = RescaledLimit(basis @ np.diag(rates) @ np.linalg.inv(basis), basis @ noise @ basis.T, ("a", "b"))
    sums = rates[:, None] + rates
    divisor = np.where(sums == 0, 1.0, sums)
    gained = noise * np.where(sums == 0, alpha, np.expm1(sums * alpha) / divisor)
    begun = np.linalg.inv(basis) @ start @ np.linalg.inv(basis).T
    expected = basis @ (gained + np.exp(sums * alpha) * begun) @ basis.T
    np.testing.assert_allclose(found.covariance(alpha, start), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_stationary_variances_are_those_of_simulated_runs():
    """At d = 1500, 1000 runs: standard error 4.5%; four of them, and the bias of order 1/d."""
    rate, snr, d = 1.0, 0.5, 1500
    problem, sgd = dimfree.SpikedTensor(2, snr), dimfree.OnlineSGD(rate)
    at = dimfree.State(Q=[[rate]], M=[[0.0]])
    runs = dimfree.simulate(problem, sgd, at, d, np.array([0.0, 2.0]), runs=1000, key=jax.random.key(0))
    found = rescaled(ode(problem, sgd), at).covariance(2.0) / d
    variance = [float(jnp.var(runs.final.Q)), float(jnp.var(runs.final.M))]
    np.testing.assert_allclose(variance, np.diag(found), rtol=0.2)


def test_what_is_no_fixed_point_is_refused():
    tensor = ode(dimfree.SpikedTensor(2, 2.0), dimfree.OnlineSGD(1.0))
    with pytest.raises(dimfree.InvalidInput, match="no fixed point"):
        rescaled(tensor, dimfree.State(Q=[[1.3]], M=[[0.0]]))
    with pytest.raises(dimfree.InvalidInput, match="no stationary law"):
        _ = rescaled(tensor, dimfree.State(Q=[[1.0]], M=[[0.0]])).stationary_covariance
    with pytest.raises(dimfree.InvalidInput, match="not zero"):
        rescaled_overlaps(tensor, dimfree.State(Q=[[1.0]], M=[[0.1]]))
    erf = ode(dimfree.TwoLayer(1, 1, "erf"), dimfree.OnlineSGD(1.0))
    with pytest.raises(dimfree.InvalidInput, match="not invariant"):
        rescaled_overlaps(erf, dimfree.State(Q=[[1.0]], M=[[0.0]]))
    stable = rescaled(ode(dimfree.SpikedTensor(2, 0.5), dimfree.OnlineSGD(1.0)), dimfree.State(Q=[[1.0]], M=[[0.0]]))
    with pytest.raises(dimfree.InvalidInput, match="no coordinate"):
        stable.of("M[1,0]")
