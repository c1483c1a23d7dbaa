"""Adam with fixed betas: its drift by sums over lags, against sampling the past of many coordinates.

Sampling is what public code does: gradients of many coordinates over as many steps as an average remembers.
"""

import jax
import jax.numpy as jnp
import numpy as np

import dimfree

from .timing import Row, against

PROBLEM = dimfree.TwoLayer(1, 1, "erf")
START = dimfree.State(Q=[[1.0]], M=[[0.3]])
BETA1, BETA2 = 0.9, 0.99
ADAM = dimfree.Adam(1.0, BETA1, beta2=BETA2)
SAMPLES, LAGS = 10**4, 700  # of beta2, what is left after them is 1e-3


@jax.jit
def sampled(key):
    """The drift of M by samples of a coordinate and of the fields: by Stein's lemma E[u dr/dx] = E[u x r]."""
    window = 90

    def step(carry, key):
        m, v, past, at = carry
        x, student, other = jax.random.normal(key, (3, SAMPLES))
        teacher = 0.3 * student + 0.91**0.5 * other
        error = jax.scipy.special.erf(student / 2**0.5) - jax.scipy.special.erf(teacher / 2**0.5)
        z = error * (2 / jnp.pi) ** 0.5 * jnp.exp(-(student**2) / 2) * x
        m, v = BETA1 * m + (1 - BETA1) * z, BETA2 * v + (1 - BETA2) * z**2
        along = jnp.where(at >= LAGS - window, 1.0, 0.0) * jnp.stack([student, teacher]) * x
        return (m, v, past + along, at + 1), None

    none = jnp.zeros(SAMPLES)
    (m, v, past, _), _ = jax.lax.scan(step, (none, none, jnp.zeros((2, SAMPLES)), 0), jax.random.split(key, LAGS))
    response = jnp.mean(past * m / jnp.sqrt(v), axis=1)
    sensitivity = jnp.linalg.solve(START.covariance, response)
    return -(sensitivity @ jnp.concatenate([START.M[0], START.P[0]]))


def adam_against_sampling() -> Row:
    """The drift of Adam with fixed betas over 10^4 samples of 700 steps of a coordinate's past."""
    limit = dimfree.ode(PROBLEM, ADAM)
    converged = dimfree.ode(PROBLEM, ADAM, dimfree.GaussHermite(200)).drift(0.0, START).M[0, 0]
    error = abs(float(limit.drift(0.0, START).M[0, 0] - converged))
    sampling = np.array([float(sampled(jax.random.key(seed)) - converged) for seed in range(4)])
    assert error < np.sqrt(np.mean(sampling**2)), (error, sampling)
    return against(
        lambda: limit.drift(0.0, START).M, lambda: sampled(jax.random.key(0)), goal=0.05, budget=2.0, fewest=3
    )


ALL = (adam_against_sampling,)
QUICK = ()
