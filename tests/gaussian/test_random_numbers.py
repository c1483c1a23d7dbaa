"""The functions that make random numbers, against NumPy's; their laws are tested with the simulations."""

import jax
import jax.numpy as jnp
import numpy as np

from dimfree.gaussian.random_numbers import _direction, _log1p, log, uniform

RNG = np.random.default_rng(0)
WORDS = RNG.integers(0, 2**64, 100_000, dtype=np.uint64)


def test_logarithms_are_exact_to_rounding_also_near_one():
    x = np.concatenate([10.0 ** RNG.uniform(-300, 300, 100_000), 1 + RNG.uniform(-0.1, 0.1, 100_000)])
    np.testing.assert_allclose(jax.jit(log)(jnp.asarray(x)), np.log(x), rtol=3e-15, atol=2e-16)
    tiny = 10.0 ** RNG.uniform(-18, -0.5, 100_000)
    for y in (tiny, -tiny, RNG.uniform(-0.9, 5.0, 100_000), np.zeros(1)):
        np.testing.assert_allclose(jax.jit(_log1p)(jnp.asarray(y)), np.log1p(y), rtol=3e-15)


def test_uniform_numbers_stay_inside_and_directions_have_length_one():
    words = np.concatenate([WORDS, np.array([0, 2**64 - 1], np.uint64)])
    numbers = np.asarray(uniform(jnp.asarray(words)))
    assert numbers.min() > 0
    np.testing.assert_allclose(numbers, words / 2.0**64, rtol=1e-15, atol=1.2e-16)
    cosine, sine = map(np.asarray, _direction(jnp.asarray(words)))
    np.testing.assert_allclose(cosine**2 + sine**2, 1.0, rtol=1e-14)
    assert abs(cosine.mean()) < 5 * (2 * len(words)) ** -0.5
    assert abs(sine.mean()) < 5 * (2 * len(words)) ** -0.5
    assert abs((cosine * sine).mean()) < 5 * (8 * len(words)) ** -0.5
