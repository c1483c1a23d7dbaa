"""Formulas derived by hand, in their own notation, against the library's automatic ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cases
import dimfree
from dimfree.limits import increment_covariance

# (learning rate, noise, overlap)
POINTS = [(0.07, 0.3, 0.45), (0.02, 0.0, -0.8), (0.15, 1.2, 0.05)]


def phase_retrieval_state(m, q=1.0):
    return dimfree.State(Q=[[q]], M=[[m]])


@pytest.mark.parametrize(("rate", "noise", "m"), POINTS)
@pytest.mark.parametrize("expectation", [None, dimfree.GaussHermite(8)])
def test_spherical_phase_retrieval_drift(rate, noise, m, expectation):
    """With u = m^2 and t = rate * alpha: du/dt = 2 u [4 (1 - 6 rate)(1 - u) - 2 rate noise]."""
    problem, algorithm = dimfree.PhaseRetrieval(1, noise), dimfree.OnlineSGD(rate, sphere=True)
    drift = dimfree.ode(problem, algorithm, expectation).drift(0.0, phase_retrieval_state(m))
    u = m**2
    expected = rate * 2 * u * (4 * (1 - 6 * rate) * (1 - u) - 2 * rate * noise)
    np.testing.assert_allclose(2 * m * drift.M[0, 0], expected, atol=1e-12)
    np.testing.assert_allclose(drift.Q, 0.0, atol=1e-12)


@pytest.mark.parametrize(("rate", "noise", "m"), POINTS)
@pytest.mark.parametrize("expectation", [None, dimfree.GaussHermite(8)])
def test_covariance_of_the_free_increment(rate, noise, m, expectation):
    """12th moments, by computer algebra; the published Cov(M, Q) and Var(Q) need 2 * rate in place of rate."""
    var_m = 48 + 4 * noise + (144 + 8 * noise) * m**2 - 192 * m**4
    cov_mq = (
        (480 + 24 * noise) * m
        - 480 * m**3
        + rate * ((-2880 - 144 * noise) * m + (5760 + 144 * noise) * m**3 - 2880 * m**5)
    )
    var_q = (
        1280
        + 48 * noise
        - 1600 * m**2
        + 320 * m**4
        + rate * (-22272 - 1088 * noise + (44544 + 1088 * noise) * m**2 - 22272 * m**4)
        + rate**2
        * (
            124416
            + 7680 * noise
            + 128 * noise**2
            - (294912 + 9984 * noise) * m**2
            + (216576 + 2304 * noise) * m**4
            - 46080 * m**6
        )
    )
    limit = dimfree.ode(dimfree.PhaseRetrieval(1, noise), dimfree.OnlineSGD(rate), expectation)
    covariance = increment_covariance(limit, 0.0, phase_retrieval_state(m)) / rate**2
    np.testing.assert_allclose(covariance, [[var_q, cov_mq], [cov_mq, var_m]], rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize(("rate", "noise", "m"), POINTS)
def test_covariance_of_the_spherical_increment(rate, noise, m):
    expected = (
        48
        + 4 * noise
        - (16 + 4 * noise) * m**2
        - 112 * m**4
        + 80 * m**6
        + rate * (-(2688 + 128 * noise) * m**2 + (5376 + 128 * noise) * m**4 - 2688 * m**6)
        + rate**2
        * (
            (31104 + 1920 * noise + 32 * noise**2) * m**2
            - (73728 + 2496 * noise) * m**4
            + (54144 + 576 * noise) * m**6
            - 11520 * m**8
        )
    )
    limit = dimfree.ode(dimfree.PhaseRetrieval(1, noise), dimfree.OnlineSGD(rate, sphere=True))
    covariance = increment_covariance(limit, 0.0, phase_retrieval_state(m)) / rate**2
    np.testing.assert_allclose(covariance, [[expected]], rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("trained", [False, True])
def test_quadratic_network_in_matrix_form(trained):
    """G = s1 C + 2 C S C and K = (s1^2 + 2 s2 + noise) C + 4 s1 C S C + 8 C S C S C, with a general P and readout."""
    p, k, rate, noise = 3, 2, 0.3, 0.4
    readout, teacher = jnp.array([0.7, -1.1, 0.4]), jnp.array([1.0, 0.6])
    problem = dimfree.TwoLayer(p, k, "square", noise=noise, readout=readout, teacher_readout=teacher)
    start = dimfree.random_state(problem, d=8, key=jax.random.key(1), P=[[1.0, 0.3], [0.3, 0.8]])
    C = np.asarray(start.covariance)
    S = np.diag(np.concatenate([-np.asarray(readout) / p, np.asarray(teacher) / k]))
    s1, s2 = np.trace(S @ C), np.trace(S @ C @ S @ C)
    G = s1 * C + 2 * C @ S @ C
    K = (s1**2 + 2 * s2 + noise) * C + 4 * s1 * C @ S @ C + 8 * C @ S @ C @ S @ C
    A = np.diag(readout)
    algorithm = dimfree.OnlineSGD(rate, readout_rate=rate if trained else None)
    drift = dimfree.ode(problem, algorithm).drift(0.0, start)
    per_alpha = rate / p  # the source's clock is t = rate * alpha / p
    np.testing.assert_allclose(drift.M, per_alpha * 2 * A @ G[:p, p:], atol=1e-12)
    expected = 2 * (A @ G[:p, :p] + G[:p, :p] @ A) + 4 * rate / p * A @ K[:p, :p] @ A
    np.testing.assert_allclose(drift.Q, per_alpha * expected, atol=1e-12)
    np.testing.assert_allclose(drift.readout, per_alpha * np.diag(G)[:p] if trained else np.zeros(p), atol=1e-12)
    np.testing.assert_allclose(problem.risk(start), 0.5 * (s1**2 + 2 * s2 + noise), atol=1e-12)


# Without the sphere: it enters after the average.
def test_closed_form_and_automatic_drift_agree():
    problem = dimfree.TwoLayer(2, 1, "erf", noise=0.3, readout=[1.2, -0.4])
    algorithm = dimfree.OnlineSGD(0.2, readout_rate=0.1, ridge=0.05)
    start = cases.generic_state(problem)
    closed = dimfree.ode(problem, algorithm).drift(0.0, start)
    automatic = dimfree.ode(problem, algorithm, dimfree.GaussHermite(64)).drift(0.0, start)
    for name in ("Q", "M", "readout"):
        np.testing.assert_allclose(getattr(closed, name), getattr(automatic, name), atol=1e-10)
    np.testing.assert_allclose(problem.risk(start), problem.risk(start, dimfree.GaussHermite(64)), atol=1e-10)


def test_closed_form_and_automatic_covariance_agree():
    problem = dimfree.TwoLayer(3, 2, "square", noise=0.3, readout=[1.2, 0.4, -0.4])
    algorithm = dimfree.OnlineSGD(0.2, sphere=True, readout_rate=0.1, ridge=0.05)
    start = cases.generic_state(problem)
    closed = increment_covariance(dimfree.ode(problem, algorithm), 0.0, start)
    # e^4 times four fields has degree 12 in each: seven nodes are exact.
    automatic = increment_covariance(dimfree.ode(problem, algorithm, dimfree.GaussHermite(7)), 0.0, start)
    np.testing.assert_allclose(closed, automatic, atol=1e-10 * float(jnp.abs(closed).max()))
