"""Averages of products of two outputs, for activations without closed forms."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .activations import Activation
from .expectation import FieldRule, expectation
from .integrals import map_pairs
from .rules import GaussHermite, Sobol

_NUMBERS = 2**15  # points of the larger of the two rules, mirror images included


def pairwise_outputs(activation: Activation, covariance: Float[Array, "r r"]) -> Float[Array, "r r"]:
    r"""$\mathbb{E}[g(u_s) g(u_t)]$ for all pairs of fields, each by quadrature over these two alone.

    The cost grows as $r^2$ whatever the number of fields, where a rule over all of them at once would not.
    """
    rule = FieldRule(GaussHermite(64) if activation.smooth else Sobol(2**14), noise_nodes=1, smooth=activation.smooth)

    def product(fields, noise, parameters):
        return activation.function(fields[0]) * activation.function(fields[1])

    def pair(s, t):
        block = covariance[jnp.stack([s, t])][:, jnp.stack([s, t])]
        return expectation(product, block, (), rule)

    return map_pairs(pair, covariance.shape[0], numbers=_NUMBERS)
