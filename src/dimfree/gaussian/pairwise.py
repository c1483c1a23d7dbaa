"""Averages of products of two outputs, for activations without closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .activations import Activation
from .expectation import FieldRule, expectation
from .rules import GaussHermite, Sobol


def pairwise_outputs(activation: Activation, covariance: Float[Array, "r r"]) -> Float[Array, "r r"]:
    r"""$\mathbb{E}[g(u_s) g(u_t)]$ for all pairs of fields, each by quadrature over these two alone.

    The cost grows as $r^2$ whatever the number of fields, where a rule over all of them at once would not.
    """
    rule = FieldRule(GaussHermite(64) if activation.smooth else Sobol(2**14), noise_nodes=1, smooth=activation.smooth)
    rows, columns = np.triu_indices(covariance.shape[0])

    def product(fields, noise, parameters):
        return activation.function(fields[0]) * activation.function(fields[1])

    def pair(s, t):
        block = covariance[jnp.stack([s, t])][:, jnp.stack([s, t])]
        return expectation(product, block, (), rule)

    values = jax.lax.map(lambda index: pair(*index), (jnp.asarray(rows), jnp.asarray(columns)), batch_size=16)
    outputs = jnp.zeros_like(covariance).at[rows, columns].set(values)
    return outputs.at[columns, rows].set(values)
