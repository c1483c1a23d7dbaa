"""Moments of quadratic forms against quadrature."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import roots_hermitenorm

from dimfree.gaussian.polynomial import quartic_moments


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


def test_derivatives_of_quartic_moments_are_those_of_differences():
    form, covariance = problem(3, 3)
    direction = np.diag([0.3, -0.1, 0.2]) + 0.1

    def along(step):
        return quartic_moments(jnp.asarray(form), jnp.asarray(covariance + step * direction), 0.2 + step)

    found = jax.jit(jax.jacfwd(along))(0.0)
    for slope, ahead, back in zip(found, along(1e-5), along(-1e-5), strict=True):
        np.testing.assert_allclose(slope, (ahead - back) / 2e-5, rtol=0, atol=1e-7 * np.abs(slope).max())
