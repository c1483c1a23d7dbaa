"""Which cluster a sample is from."""

import jax.numpy as jnp
import jax.scipy.stats
from jaxtyping import Array, Float, Int

from ..problems import Problem


def clusters_of(problem: Problem, normals: Float[Array, "*samples"]) -> Int[Array, "*samples"]:
    """The cluster of each sample from a standard normal number; zero where there are no clusters."""
    probabilities = problem.cluster_probabilities
    if probabilities is None:
        return jnp.zeros(normals.shape, int)
    # Comparisons with the few boundaries, because searching a sorted array does not vectorise.
    boundaries = jax.scipy.stats.norm.ppf(jnp.cumsum(probabilities)[:-1])
    return jnp.sum(normals[..., None] > boundaries, axis=-1)
