"""The limit of wide networks: its averages, its closure, its error as p and d grow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dimfree
from dimfree.gaussian.activations import as_activation
from dimfree.gaussian.half_range import HalfRange
from dimfree.gaussian.smoothing import own_averages, smoothed

ACTIVATIONS = ("erf", "relu", "square", "he3", "tanh")
RATES = {"erf": 1.0, "relu": 0.5, "square": 0.1, "he3": 0.01, "tanh": 1.0}


def diagonal_state(p, k, key=0, P=None):
    """A generic WideState, and the State with the same overlaps."""
    rng = np.random.default_rng(key)
    P = np.eye(k) if P is None else np.asarray(P)
    M = 0.5 * rng.normal(size=(p, k)) @ np.linalg.cholesky(P).T
    wide = dimfree.WideState(M, rng.uniform(0.3, 1.2, size=p), P, rng.normal(size=p))
    return wide, dimfree.State(wide.Q, wide.M, wide.P, wide.readout)


@pytest.mark.parametrize("activation", [*ACTIVATIONS, "abs"])
def test_one_neuron_averages(activation):
    """Every closed form against a fine grid over the field."""
    activation = as_activation(activation)
    mean, variance = jnp.asarray([[0.3, -1.1, 0.0], [2.0, 0.7, -0.4]]), jnp.asarray([0.5, 1.7, 0.2])
    x = jnp.linspace(-9.0, 9.0, 20_001)
    weights = jnp.exp(-0.5 * x**2) / jnp.sum(jnp.exp(-0.5 * x**2))
    fields = mean[..., None] + jnp.sqrt(variance)[:, None] * x
    g, slope = jax.jvp(activation.function, (fields,), (jnp.ones_like(fields),))
    q, root = variance, jnp.sqrt(variance)
    expected = {
        "output": g @ weights,
        "slope": (g * x) @ weights / root,
        "curvature": (g * (x**2 - 1)) @ weights,
        "slope_curvature": (g * (x**3 - 3 * x)) @ weights / root,
        "second_curvature": (g * (x**4 - 6 * x**2 + 3)) @ weights,
        "output_square": g**2 @ weights,
        "slope_square": slope**2 @ weights,
        "slope_square_output": (slope**2 * g) @ weights,
    }
    found = smoothed(activation, mean, q)
    # The fine grid meets a kink with an error of its spacing squared, a jump with one of its spacing; abs is on a grid.
    coarse = 1e-9 if activation.smooth else 4e-3 if activation.name == "abs" else 3e-4
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(found, name), value, atol=coarse, err_msg=name)
    alone = own_averages(activation, q)
    fields = jnp.sqrt(q)[:, None] * x
    g, slope = jax.jvp(activation.function, (fields,), (jnp.ones_like(fields),))
    np.testing.assert_allclose(alone.output_square, g**2 @ weights, atol=coarse)
    np.testing.assert_allclose(alone.growth, 0.5 * (g**2 * (x**2 - 1)) @ weights / q, atol=coarse)
    np.testing.assert_allclose(alone.slope_square_output_square, (g * slope) ** 2 @ weights, atol=coarse)


def test_averages_without_spread_are_those_of_the_activation():
    """A neuron inside the teacher's span: q_perp = 0."""
    mean = jnp.asarray([[0.8], [-0.5]])
    for name in ACTIVATIONS:
        activation = as_activation(name)
        found = smoothed(activation, mean, jnp.zeros(1))
        np.testing.assert_allclose(found.output, activation.function(mean), atol=1e-12)
        np.testing.assert_allclose(found.output_square, activation.function(mean) ** 2, atol=1e-12)
        for part in (found.curvature, found.second_curvature):
            np.testing.assert_allclose(part, 0.0, atol=1e-12)


def test_half_range_rule_is_exact_across_a_kink():
    nodes, weights = HalfRange(16).points(1)
    x = nodes[:, 0]
    # E|x|^n for the normal law: 2^(n/2) Gamma((n + 1)/2) / sqrt(pi).
    from scipy.special import gamma

    for n in range(30):
        np.testing.assert_allclose(weights @ np.abs(x) ** n, 2 ** (n / 2) * gamma((n + 1) / 2) / np.pi**0.5, rtol=1e-10)
    assert abs(weights @ x**3) < 1e-12


@pytest.mark.parametrize("activation", ACTIVATIONS[:4])
@pytest.mark.parametrize(("p", "k", "sphere"), [(2, 1, False)])
def test_the_drift_is_that_of_the_ode_where_the_closure_is_exact(activation, p, k, sphere):
    """With Q_perp diagonal, M, the norms and the readout move exactly as in the ODE, second-order term included."""
    problem = dimfree.TwoLayer(p, k, activation, noise=0.2, teacher_readout=np.linspace(1.0, 0.6, k))
    rate = RATES[activation] * p
    sgd = dimfree.OnlineSGD(rate, batch_size=2, ridge=0.1, readout_rate=0.7 * rate, sphere=sphere)
    wide, full = diagonal_state(p, k)
    if sphere:
        wide = dimfree.WideState(0.4 * wide.M, 1 - 0.16 * jnp.sum(wide.M**2, axis=1), wide.P, wide.readout)
        full = dimfree.State(wide.Q, wide.M, wide.P, wide.readout)
    drift, exact = dimfree.mean_field(problem, sgd).drift(0.0, wide), dimfree.ode(problem, sgd).drift(0.0, full)
    d_norms = drift.q_perp + 2 * jnp.sum(drift.M * jnp.linalg.solve(wide.P, wide.M.T).T, axis=1)
    np.testing.assert_allclose(drift.M, exact.M, atol=2e-9)
    np.testing.assert_allclose(d_norms, jnp.diagonal(exact.Q), atol=2e-9)
    np.testing.assert_allclose(drift.readout, exact.readout, atol=2e-9)
    np.testing.assert_allclose(problem.risk(wide), problem.risk(full), atol=1e-9)
