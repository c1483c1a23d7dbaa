r"""The risk as a function of weight vectors, in few dimensions, for automatic differentiation.

Here, as in the source's appendix on the landscape, $x \sim N(0, I_d)$ and the fields are $w \cdot x$, without
$1/\sqrt d$.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from dimfree import PhaseRetrieval, State


def risk_of(
    w: Float[Array, " d"], signal: Float[Array, " d"], noise: Float[Array, ""] | float = 0.0
) -> Float[Array, ""]:
    """The library's risk of phase retrieval with one student."""
    state = State(Q=(w @ w)[None, None], M=(w @ signal)[None, None], P=(signal @ signal)[None, None])
    return PhaseRetrieval(noise=noise).risk(state)


def loss_of(w: Float[Array, " d"], signal: Float[Array, " d"], x: Float[Array, " d"], noise, z) -> Float[Array, ""]:
    """The library's loss of one sample."""
    problem = PhaseRetrieval(noise=noise)
    return problem.loss((w @ x)[None], (signal @ x)[None], jnp.asarray(z), problem.readout)


def on_sphere(function):
    """The function, constant along rays: on the unit sphere its derivatives along it are those of the sphere."""
    return lambda w: function(w / jnp.linalg.norm(w))


def tangent_basis(w: Float[Array, " d"]) -> Float[np.ndarray, "d n"]:
    """Orthonormal directions along the sphere at w, as columns."""
    unit = np.asarray(w) / np.linalg.norm(w)
    return np.linalg.svd(np.eye(len(unit)) - np.outer(unit, unit))[0][:, :-1]


def tangent_hessian(function, w: Float[Array, " d"]) -> Float[np.ndarray, "n n"]:
    """Hessian of a function on the unit sphere at w, in `tangent_basis`."""
    basis = tangent_basis(w)
    return basis.T @ np.asarray(jax.hessian(on_sphere(function))(w)) @ basis
