"""Averages by quadrature, and their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dimfree
from dimfree.batches import NUMBERS
from dimfree.gaussian.means import FieldRule, gaussian_mean

COVARIANCE = jnp.asarray([[1.0, 0.3], [0.3, 0.7]])


def smooth_function(fields, noise, scale):
    return jnp.exp(0.3 * scale * fields[0]) * jnp.sin(fields[1]) * (1 + noise**2) + fields[0] ** 2 * fields[1] ** 2


def finite_difference(function, matrix, direction, step=1e-5):
    return (function(matrix + step * direction) - function(matrix - step * direction)) / (2 * step)


DIRECTIONS = [np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])]


@pytest.mark.parametrize("noise_nodes", [None, 3])
def test_gauss_hermite_is_exact_for_polynomials(noise_nodes):
    rule = FieldRule(dimfree.GaussHermite(5), noise_nodes, smooth=True)
    value = gaussian_mean(lambda u, z, s: u[0] ** 4 * u[1] ** 2 * z**2, COVARIANCE, (), rule)
    np.testing.assert_allclose(value, 3 * 0.7 + 12 * 0.3**2, rtol=1e-13)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_derivative_in_the_covariance_by_prices_theorem(direction):
    rule = FieldRule(dimfree.GaussHermite(24), 3, smooth=True)

    def value(covariance):
        return gaussian_mean(smooth_function, covariance, jnp.asarray(1.0), rule)

    tangent = jax.jvp(value, (COVARIANCE,), (jnp.asarray(direction),))[1]
    np.testing.assert_allclose(tangent, finite_difference(value, COVARIANCE, direction), rtol=1e-8)
    gradient = jax.grad(value)(COVARIANCE)
    np.testing.assert_allclose(jnp.sum(gradient * direction), tangent, rtol=1e-10)
    second = jax.jvp(
        lambda c: jax.jvp(value, (c,), (jnp.asarray(direction),))[1], (COVARIANCE,), (jnp.asarray(direction),)
    )[1]
    steps = [value(COVARIANCE + h * direction) for h in (-1e-3, 0.0, 1e-3)]
    np.testing.assert_allclose(second, (steps[0] - 2 * steps[1] + steps[2]) / 1e-6, rtol=1e-4)


def test_derivatives_along_tangents_are_those_of_all_derivatives(monkeypatch):
    rule = FieldRule(dimfree.GaussHermite(24), 3, smooth=True)
    mean, moved = jnp.asarray([0.3, -0.2]), jnp.asarray([0.7, 0.4])

    def tangent():
        def value(mean, covariance):
            return gaussian_mean(smooth_function, covariance, jnp.asarray(1.0), rule, mean=mean)

        return jax.jvp(value, (mean, COVARIANCE), (moved, jnp.asarray(DIRECTIONS[0])))[1]

    at_once = tangent()
    monkeypatch.setattr("dimfree.gaussian.means._FEW_FIELDS", 0)
    np.testing.assert_allclose(tangent(), at_once, rtol=1e-12)


def test_derivative_in_the_parameters():
    rule = FieldRule(dimfree.GaussHermite(24), 3, smooth=True)

    def value(scale):
        return gaussian_mean(smooth_function, COVARIANCE, scale, rule)

    np.testing.assert_allclose(jax.grad(value)(1.0), (value(1 + 1e-5) - value(1 - 1e-5)) / 2e-5, rtol=1e-7)


def test_derivative_at_a_singular_covariance():
    """E[u0^2 u1^2] = C00 C11 + 2 C01^2, differentiated where both fields are the same."""
    rule = FieldRule(dimfree.GaussHermite(6), 1, smooth=True)

    def value(covariance):
        return gaussian_mean(lambda u, z, s: u[0] ** 2 * u[1] ** 2, covariance, (), rule)

    gradient = jax.jacfwd(value)(jnp.ones((2, 2)))
    np.testing.assert_allclose(gradient, [[1.0, 2.0], [2.0, 1.0]], atol=1e-11)


def test_derivative_across_a_kink():
    """E[1(u0 > 0) u1] needs the contribution of the jump: differentiating through the nodes would miss it."""

    def function(u, z, s):
        return jnp.where(u[0] > 0, u[1], 0.0)

    def value(covariance, smooth):
        return gaussian_mean(function, covariance, (), FieldRule(dimfree.Sobol(2**15), 1, smooth))

    def exact(c00, c01):
        return c01 / jnp.sqrt(2 * jnp.pi * c00)

    expected = jax.grad(exact, argnums=(0, 1))(1.0, 0.3)
    right = jax.jacfwd(value)(COVARIANCE, False)
    np.testing.assert_allclose([right[0, 0], right[0, 1] + right[1, 0]], expected, atol=3e-4)
    naive = jax.jacfwd(value)(COVARIANCE, True)
    assert abs(naive[0, 1] + naive[1, 0] - expected[1]) > 0.1


def relu_by_another_name(x):
    return jnp.maximum(x, 0.0)


def test_jacobian_of_the_relu_drift_by_the_score_is_that_of_closed_forms():
    """The library's own ReLU has closed forms; the same function unnamed goes through Sobol and the score."""
    algorithm = dimfree.OnlineSGD(0.5, readout_rate=0.3)
    named = dimfree.ode(dimfree.TwoLayer(1, 1, "relu", noise=0.2), algorithm)
    unnamed = dimfree.ode(dimfree.TwoLayer(1, 1, relu_by_another_name, noise=0.2), algorithm, dimfree.Sobol(2**16))
    assert not unnamed.problem.smooth
    start = dimfree.State(Q=[[0.8]], M=[[0.3]], readout=[1.1])
    vector = named.coordinates.pack(start)

    def jacobian(limit):
        return jax.jacfwd(lambda v: limit.vector_field(0.0, v, start))(vector)

    np.testing.assert_allclose(jacobian(unnamed), jacobian(named), atol=2e-3)


def test_jacobian_of_the_drift_against_differences():
    algorithm = dimfree.OnlineSGD(0.3, readout_rate=0.2)
    limit = dimfree.ode(dimfree.TwoLayer(1, 1, "tanh", noise=0.2), algorithm, dimfree.GaussHermite(100))
    start = dimfree.random_state(limit.problem, d=5, key=jax.random.key(0))
    vector = limit.coordinates.pack(start)
    field = jax.jit(lambda v: limit.vector_field(0.0, v, start))
    jacobian = jax.jit(jax.jacfwd(field))(vector)
    step = 1e-5
    steps = step * np.eye(vector.size)
    differences = np.stack([(field(vector + e) - field(vector - e)) / (2 * step) for e in steps], 1)
    np.testing.assert_allclose(jacobian, differences, atol=1e-7)


def test_long_sums_are_taken_in_blocks():
    covariance = jnp.eye(6) + 0.2
    rule = FieldRule(dimfree.Sobol(2**13), 3, smooth=True)

    def many(u, z, s):
        return jnp.outer(jnp.tile(u, 4), jnp.tile(u, 4))

    assert NUMBERS < 2 * 3 * 2**13 * (24**2 + 6)
    np.testing.assert_allclose(gaussian_mean(many, covariance, (), rule)[:6, :6], covariance, atol=5e-3)


def test_error_estimate_is_of_the_size_of_the_error():
    problem = dimfree.TwoLayer(2, 2, "erf", noise=0.2)
    algorithm, start = (
        dimfree.OnlineSGD(2.0),
        dimfree.random_state(dimfree.TwoLayer(2, 2, "erf"), d=6, key=jax.random.key(0)),
    )
    exact = dimfree.ode(problem, algorithm).drift(0.0, start)
    for rule in (dimfree.Sobol(2**10), dimfree.Sobol(2**14), dimfree.GaussHermite(8), dimfree.GaussHermite(1)):
        limit = dimfree.ode(problem, algorithm, rule)
        drift = limit.drift(0.0, start)
        error = max(float(jnp.abs(drift.Q - exact.Q).max()), float(jnp.abs(drift.M - exact.M).max()))
        assert error < float(limit.expectation_error(start)) < 40 * error
