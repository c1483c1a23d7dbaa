"""The cheap arcsine is the arcsine."""

import jax
import jax.numpy as jnp
import numpy as np

from dimfree.gaussian.erf import arcsine


def test_it_is_right_to_rounding_on_the_whole_interval():
    x = np.concatenate([np.linspace(-1.0, 1.0, 200_001), [0.5, -0.5, np.nextafter(0.5, 0), 1e-300, 1 - 1e-16]])
    np.testing.assert_allclose(arcsine(jnp.asarray(x)), np.arcsin(x), rtol=4e-16, atol=4e-16)


def test_its_derivatives_are_right():
    x = jnp.linspace(-0.95, 0.95, 39)
    first, second = jax.vmap(jax.grad(arcsine))(x), jax.vmap(jax.grad(jax.grad(arcsine)))(x)
    np.testing.assert_allclose(first, (1 - x**2) ** -0.5, rtol=1e-13)
    np.testing.assert_allclose(second, x * (1 - x**2) ** -1.5, rtol=1e-12, atol=1e-14)
