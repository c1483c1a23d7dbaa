"""The size of the fluctuations: linear noise and diffusion against exact simulation."""

import jax
import numpy as np
import pytest

import cases
import dimfree

CASES = {
    "phase retrieval, free": (dimfree.PhaseRetrieval(2, 0.3), dimfree.OnlineSGD(0.12), 3.0),
    "erf, trained readout, batch": (
        dimfree.TwoLayer(2, 1, "erf", noise=0.2),
        dimfree.OnlineSGD(6.0, batch_size=4, readout_rate=3.0),
        3.0,
    ),
    "tanh on the sphere, ridge": (
        dimfree.TwoLayer(2, 1, "tanh", noise=0.2),
        dimfree.OnlineSGD(2.0, sphere=True, ridge=0.1),
        2.0,
    ),
    "binary mixture": (
        dimfree.Mixture.binary(2, 1.0, readout=[0.7, -0.4]),
        dimfree.OnlineSGD(4.0, ridge=0.1, readout_rate=4.0),
        0.5,
    ),
    "XOR mixture": (
        dimfree.Mixture.xor(4, 2.0, readout=[0.7, -0.4, 1.0, -0.9]),
        dimfree.OnlineSGD(2.0, ridge=0.1, readout_rate=2.0),
        0.5,
    ),
    "spiked matrix": (dimfree.SpikedTensor(2, 2.0), dimfree.OnlineSGD(0.5, ridge=0.1), 0.4),
    "spiked tensor of order 3, batch": (dimfree.SpikedTensor(3, 2.0), dimfree.OnlineSGD(0.2, batch_size=2), 0.5),
    "momentum": (dimfree.TwoLayer(1, 1, "erf", noise=0.2), dimfree.Momentum(1.0, 2.0, 2.0, ridge=0.1), 2.0),
    "momentum and average": (
        dimfree.PhaseRetrieval(1, 0.3),
        dimfree.Averaged(dimfree.Momentum(0.05, 0.1, 2.0, batch_size=2), 2.0),
        2.0,
    ),
    "momentum on the sphere": (
        dimfree.TwoLayer(2, 1, "tanh", noise=0.2),
        dimfree.Momentum(1.0, 2.0, 2.0, sphere=True),
        1.0,
    ),
    "momentum, binary mixture": (
        dimfree.Mixture.binary(1, 1.0),
        dimfree.Momentum(1.0, 2.0, 2.0, readout_rate=1.0),
        0.5,
    ),
    "momentum, spiked matrix": (dimfree.SpikedTensor(2, 2.0), dimfree.Momentum(0.3, 0.3, 1.0), 0.4),
    "spiked tensor of order 4": (dimfree.SpikedTensor(4, 1.0), dimfree.OnlineSGD(0.05), 0.5),
}


def variance_ratio(problem, algorithm, alpha, d, runs, seed=0):
    start = cases.generic_state(problem, seed=4)
    times = np.array([0.0, alpha])
    predicted = dimfree.solve(dimfree.linear_noise(problem, algorithm, d), start, times).covariance[-1]
    simulated = dimfree.simulate(problem, algorithm, start, d, times, runs=runs, key=jax.random.key(seed))
    entries = np.asarray(algorithm.coordinates(problem).pack(simulated.final))
    return entries.var(axis=0) / np.diagonal(predicted), np.cov(entries.T), np.asarray(predicted)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_empirical_variance_is_the_linear_noise_prediction(name):
    """At d = 1600, within 5% for every entry; the standard error of each ratio is 0.7%."""
    ratio, empirical, predicted = variance_ratio(*CASES[name], d=1600, runs=40_000)
    assert np.all((ratio > 0.95) & (ratio < 1.05)), ratio
    scale = np.sqrt(np.outer(np.diagonal(predicted), np.diagonal(predicted)))
    np.testing.assert_allclose(empirical / scale, predicted / scale, atol=0.05)


@pytest.mark.parametrize(
    "name",
    ["phase retrieval, free", pytest.param("spiked tensor of order 3, batch", marks=pytest.mark.slow), "momentum"],
)
def test_variances_are_predicted_within_a_twelfth(name):
    """The same at d = 400, with fewer runs: standard error 1.6%, bias of order 1/d; a false alarm once in 10^4."""
    ratio, _, _ = variance_ratio(*CASES[name], d=400, runs=8_000)
    assert np.all(np.abs(ratio - 1) < 0.08), ratio


def test_diffusion_has_the_mean_and_variance_of_the_simulation():
    problem, algorithm = dimfree.PhaseRetrieval(1, 0.3), dimfree.OnlineSGD(0.05, sphere=True)
    start, times = dimfree.State(Q=[[1.0]], M=[[0.3]]), np.linspace(0.0, 12.0, 5)
    d, runs = 400, 1500
    diffusion = dimfree.solve(
        dimfree.sde(problem, algorithm, d), start, times, runs=runs, key=jax.random.key(0), steps=250
    )
    simulated = dimfree.simulate(problem, algorithm, start, d, times, runs=runs, key=jax.random.key(1))
    for index in (2, 4):
        one, two = (np.asarray(t.state.M[:, index, 0, 0]) for t in (diffusion, simulated))
        error = np.sqrt((one.var() + two.var()) / runs)
        assert abs(one.mean() - two.mean()) < 4.5 * error + 2 / d
        assert abs(one.std() / two.std() - 1) < 0.11  # standard error 2.6%
