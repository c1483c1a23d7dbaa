"""SGD in dimension d on the weight vectors themselves."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..algorithms import OnlineSGD
from ..errors import InvalidInput, is_concrete
from ..gaussian.factor import psd_factor
from ..problems import Problem
from ..state import State
from .loop import is_bounded


def embed(state: State, d: int) -> tuple[Float[Array, "p d"], Float[Array, "k d"]]:
    """Student and teacher vectors in dimension d that have the overlaps of the State."""
    if is_concrete(state):
        values = np.linalg.eigvalsh(np.asarray(state.covariance))
        independent = int(np.sum(values > 1e-10 * values[-1]))
        if independent > d:
            raise InvalidInput(
                f"The overlaps have rank {independent}, but vectors of dimension d = {d} have overlaps of rank d at "
                "most; take a larger d, or a start from dimfree.random_state(problem, d=d, key=...)."
            )
    factor, in_use = psd_factor(state.covariance)
    # Columns in use first, and of these no more than there are dimensions: a pivot beyond is rounding.
    columns = factor[:, jnp.argsort(~in_use, stable=True)][:, :d]
    weights = jnp.zeros((columns.shape[0], d)).at[:, : columns.shape[1]].set(d**0.5 * columns)
    return weights[: state.width], weights[state.width :]


def draw(key: PRNGKeyArray, batch_size: int, d: int) -> tuple[Float[Array, "1 B d"], Float[Array, "1 B"]]:
    """Inputs and noise of one step."""
    input_key, noise_key = jax.random.split(key)
    return jax.random.normal(input_key, (1, batch_size, d)), jax.random.normal(noise_key, (1, batch_size))


def advance(
    problem: Problem,
    algorithm: OnlineSGD,
    weights: Float[Array, "p d"],
    readout: Float[Array, " n"] | None,
    teacher_weights: Float[Array, "k d"],
    draws: tuple[Float[Array, "B d"], Float[Array, " B"]],
    alpha: Float[Array, ""],
) -> tuple[tuple[Float[Array, "p d"], Float[Array, " n"] | None], Array]:
    """One step of SGD on the vectors."""
    inputs, noise = draws
    root = inputs.shape[-1] ** 0.5
    student, teacher = inputs @ weights.T / root, inputs @ teacher_weights.T / root
    slopes, gradient = jax.vmap(problem.gradients, in_axes=(0, 0, 0, None))(
        student, teacher, noise, problem.readout if readout is None else readout
    )
    mean_gradient = None if gradient is None else jnp.mean(gradient, axis=0)
    return algorithm.move(weights, readout, inputs, slopes, mean_gradient, alpha), is_bounded(student, slopes)


def observe(weights: Float[Array, "p d"], teacher_weights: Float[Array, "k d"], readout) -> State:
    """The overlaps of the vectors."""
    d = weights.shape[-1]
    return State(
        Q=weights @ weights.T / d,
        M=weights @ teacher_weights.T / d,
        P=teacher_weights @ teacher_weights.T / d,
        readout=readout,
    )
