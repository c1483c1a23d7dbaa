"""Moments of quadratic forms against sums over all pairings and against quadrature."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import roots_hermitenorm

from dimfree.gaussian.polynomial import Square, quartic_moments


def isserlis(covariance, indices):
    """The average of a product of Gaussian variables: the sum over all pairings."""
    if not indices:
        return 1.0
    first, rest = indices[0], indices[1:]
    return sum(covariance[first, rest[k]] * isserlis(covariance, rest[:k] + rest[k + 1 :]) for k in range(len(rest)))


def problem(seed, size, rank=None):
    generator = np.random.default_rng(seed)
    factor = generator.normal(size=(size, rank or size + 1)) / np.sqrt(size)
    form = generator.normal(size=(size, size))
    return form + form.T, factor @ factor.T


def by_quadrature(form, covariance, noise, power):
    """E[e^n u u u u] on a tensor grid; exact, for the degree is at most 12 in each direction."""
    points, rule = roots_hermitenorm(8)
    rule = rule / rule.sum()
    size = len(covariance)
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0))
    axes = (size + 1) * [points]
    grid = np.stack(np.meshgrid(*axes, indexing="ij")).reshape(size + 1, -1)
    mass = np.prod(np.stack(np.meshgrid(*((size + 1) * [rule]), indexing="ij")).reshape(size + 1, -1), axis=0)
    fields = root @ grid[:size]
    error = np.einsum("an,ab,bn->n", fields, form, fields) + np.sqrt(noise) * grid[size]
    products = np.einsum("an,bn->abn", fields, fields)
    return np.einsum("abn,cdn->abcd", products * (mass * error**power), products)


@pytest.mark.parametrize("noise", [0.0, 0.7])
def test_quartic_moments_are_sums_over_pairings(noise):
    form, covariance = problem(0, 3)
    found = np.asarray(quartic_moments(jnp.asarray(form), jnp.asarray(covariance), noise)[0])
    scale = np.abs(found).max()
    for quadruple in itertools.combinations_with_replacement(range(3), 4):
        expected = noise * isserlis(covariance, quadruple)
        for a, b, c, d in itertools.product(range(3), repeat=4):
            expected += form[a, b] * form[c, d] * isserlis(covariance, (a, b, c, d, *quadruple))
        for permuted in itertools.permutations(quadruple):
            np.testing.assert_allclose(found[permuted], expected, rtol=0, atol=1e-12 * scale)


@pytest.mark.parametrize("rank", [4, 2])
@pytest.mark.parametrize("noise", [0.0, 0.7])
def test_quartic_moments_are_those_of_quadrature(noise, rank):
    form, covariance = problem(1, 3, rank)
    found = quartic_moments(jnp.asarray(form), jnp.asarray(covariance), noise)
    for power, moment in zip((2, 3, 4), found, strict=True):
        expected = by_quadrature(form, covariance, noise, power)
        np.testing.assert_allclose(moment, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def test_moments_of_one_field_are_double_factorials():
    # E[u^(2n + 4)] = (2n + 3)!! q^(n + 2).
    q = 1.3
    for power, moment in zip((2, 3, 4), quartic_moments(jnp.array([[0.5]]), jnp.array([[q]]), 0.0), strict=True):
        expected = 0.5**power * math.prod(range(1, 2 * power + 4, 2)) * q ** (power + 2)
        np.testing.assert_allclose(moment[0, 0, 0, 0], expected, rtol=1e-13)


def test_averages_of_the_square_are_sums_over_pairings():
    _, covariance = problem(2, 4)
    weights = np.array([-0.5, 0.3, 1.0, 0.7])
    width = 2
    integrals = Square()
    matrix = jnp.asarray(covariance)
    gradient = integrals.gradient(matrix, jnp.asarray(weights), width)
    square = integrals.gradient_square(matrix, jnp.asarray(weights), width)
    outputs = integrals.outputs(matrix)
    for s, t in itertools.product(range(4), repeat=2):
        np.testing.assert_allclose(outputs[s, t], isserlis(covariance, (s, s, t, t)), rtol=1e-12)
    for i, b in itertools.product(range(width), range(4)):
        expected = sum(2 * weights[s] * isserlis(covariance, (i, b, s, s)) for s in range(4))
        np.testing.assert_allclose(gradient[i, b], expected, rtol=1e-12)
    for i, j in itertools.product(range(width), repeat=2):
        expected = sum(
            4 * weights[s] * weights[t] * isserlis(covariance, (i, j, s, s, t, t))
            for s, t in itertools.product(range(4), repeat=2)
        )
        np.testing.assert_allclose(square[i, j], expected, rtol=1e-12)
        np.testing.assert_allclose(integrals.slopes(matrix, width)[i, j], 4 * covariance[i, j], rtol=1e-14)


def test_derivatives_of_quartic_moments_are_those_of_differences():
    form, covariance = problem(3, 3)
    direction = np.diag([0.3, -0.1, 0.2]) + 0.1

    def along(step):
        return quartic_moments(jnp.asarray(form), jnp.asarray(covariance + step * direction), 0.2 + step)

    found = jax.jit(jax.jacfwd(along))(0.0)
    for slope, ahead, back in zip(found, along(1e-5), along(-1e-5), strict=True):
        np.testing.assert_allclose(slope, (ahead - back) / 2e-5, rtol=0, atol=1e-7 * np.abs(slope).max())
