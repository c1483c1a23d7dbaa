"""Hermite coefficients against closed forms, across kinks and jumps, in one variable and several."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import factorial2
from scipy.stats import norm

import dimfree
from dimfree.gaussian.hermite import expand, hermite_polynomials

ORDER = 8
N = np.arange(ORDER + 1)
ROOTS = np.sqrt([float(math.factorial(n)) for n in N])


def he(n, x):
    return np.polynomial.hermite_e.hermeval(x, [0] * n + [1])


def relu_coefficients():
    """By parts: relu'' is a delta at zero, so c_n = He_{n-2}(0) phi(0) / sqrt(n!) from n = 2 on."""
    values = [norm.pdf(0), 0.5]
    for n in range(2, ORDER + 1):
        at_zero = 0.0 if n % 2 else (-1) ** (n // 2 - 1) * (factorial2(n - 3) if n > 2 else 1.0)
        values.append(at_zero * norm.pdf(0) / ROOTS[n])
    return np.array(values)


def shifted_abs_coefficients(b):
    values = [b * (2 * norm.cdf(b) - 1) + 2 * norm.pdf(b), 1 - 2 * norm.cdf(b)]
    return np.array(values + [2 * he(n - 2, b) * norm.pdf(b) / ROOTS[n] for n in range(2, ORDER + 1)])


def step_coefficients(b):
    values = [1 - 2 * norm.cdf(b)]
    return np.array(values + [2 * he(n - 1, b) * norm.pdf(b) / ROOTS[n] for n in range(1, ORDER + 1)])


CASES = {
    "relu": ("relu", relu_coefficients()),
    "abs, kink off zero": (lambda x: jnp.abs(x - 0.3), shifted_abs_coefficients(0.3)),
    "step": (lambda x: jnp.where(x > 0.123, 1.0, -1.0), step_coefficients(0.123)),
    "exponential": (lambda x: jnp.exp(0.7 * x), 0.7**N * np.exp(0.7**2 / 2) / ROOTS),
    "sine": ("sin", np.where(N % 2, (-1.0) ** (N // 2), 0.0) * np.exp(-0.5) / ROOTS),
    "he4": ("he4", np.where(N == 4, np.sqrt(24.0), 0.0)),
    "constant": (lambda x: 0.0 * x + 3.0, np.where(N == 0, 3.0, 0.0)),
    "zero": (lambda x: 0.0 * x, np.zeros(ORDER + 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_coefficients_of_one_variable_are_right_within_their_error(name):
    function, expected = CASES[name]
    found = expand(function, ORDER, 1)
    np.testing.assert_allclose(found.coefficients, expected, atol=2e-12)
    assert np.abs(found.coefficients - expected).max() <= max(found.error, 1e-300)


def test_the_norm_is_the_sum_of_squares():
    found = expand("tanh", 60, 1)
    assert np.sum(found.coefficients**2) == pytest.approx(found.norm**2, rel=1e-6)
    assert np.sum(found.coefficients[:20] ** 2) < found.norm**2


def test_polynomials_are_orthonormal():
    points, weights = np.polynomial.hermite_e.hermegauss(20)
    rows = hermite_polynomials(points, 12)
    np.testing.assert_allclose((rows * weights / weights.sum()) @ rows.T, np.eye(13), atol=1e-12)
    assert hermite_polynomials(points, 0).shape == (1, 20)


@pytest.mark.parametrize(("variables", "order"), [(2, 48), (3, 24), (4, 12), (5, 8), (6, 8)])
def test_the_highest_order_of_several_variables_is_found_and_the_next_refused(variables, order):
    """A polynomial of the order of the nodes would be zero on all of them."""
    from dimfree.gaussian.hermite import _of_several

    def function(z):
        return he(order, z[-1]) / np.sqrt(float(math.factorial(order)))

    assert _of_several(function, order, variables, True).coefficients[(0,) * (variables - 1) + (order,)] == (
        pytest.approx(1.0, abs=1e-6)
    )
    with pytest.raises(dimfree.InvalidInput, match=f"order = {order + 1} was given"):
        dimfree.hermite_coefficients(lambda z: z[0] * z[1], order + 1, variables=variables)


@pytest.mark.parametrize("variables", [2, 3])
def test_coefficients_of_several_variables_are_products_for_a_product(variables):
    """The exponential of a linear form has products of powers."""
    slope = np.array([0.5, -0.3, 0.8])[:variables]
    values = dimfree.hermite_coefficients(lambda z: jnp.exp(jnp.dot(slope, z)), 4, variables=variables)
    expected = np.ones(())
    for each in slope:
        expected = np.multiply.outer(expected, each ** N[:5] / ROOTS[:5])
    np.testing.assert_allclose(values, np.exp(slope @ slope / 2) * expected, atol=1e-12)


def test_coefficients_are_right_with_kinks_on_the_axes():
    values = dimfree.hermite_coefficients(lambda z: jnp.abs(z[0]) * z[1], 4, variables=2)
    expected = np.multiply.outer(shifted_abs_coefficients(0.0)[:5], np.arange(5) == 1)
    np.testing.assert_allclose(values, expected, atol=1e-9)


def test_kinks_elsewhere_have_an_error_that_is_told():
    """relu(z1 + z2) is relu of one variable, turned by 45 degrees and stretched."""
    found = expand(lambda z: jnp.maximum(z[0] + z[1], 0.0), 4, 2)
    one = np.sqrt(2) * relu_coefficients()
    n, m = np.indices((5, 5))
    binomial = np.vectorize(math.comb)(n + m, n)
    expected = one[np.minimum(n + m, ORDER)] * np.sqrt(binomial) / np.sqrt(2.0) ** (n + m)
    error = np.abs(found.coefficients - expected).max()
    assert error < 3e-4
    assert error < 5 * found.error


@pytest.mark.parametrize(
    ("function", "variables", "message"),
    [
        (lambda x: jnp.exp(x**2 / 3), 1, "grow more slowly"),
        ("no_such_link", 1, "no activation"),
        ("relu", 2, "JAX function of an array"),
        (lambda z: jnp.sum(jnp.abs(z)), 4, "at most 3"),
        (lambda z: jnp.sum(z), 7, "at most 6"),
    ],
)
def test_what_has_no_coefficients_is_refused_in_words(function, variables, message):
    with pytest.raises(dimfree.InvalidInput, match=message):
        dimfree.hermite_coefficients(function, 4, variables=variables)


def test_an_order_beyond_rounding_is_refused_and_not_endless():
    with pytest.raises(dimfree.InvalidInput, match="order = 80 was given; it must be at most 64"):
        dimfree.hermite_coefficients("relu", 80)
