"""SGD in dimension d on the weight vectors themselves."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..algorithms import OnlineSGD
from ..errors import InvalidInput, is_concrete
from ..gaussian.factor import psd_factor
from ..problems import Draws, Problem
from ..state import State
from .clusters import clusters_of


def check_rank(states: State, d: int) -> None:
    """Refuse overlaps that no vectors of dimension d have (traced values pass)."""
    if d >= states.width + states.teacher_width or not is_concrete(states):
        return
    with jax.ensure_compile_time_eval():  # the start may be concrete inside of a program that is being traced
        values = np.linalg.eigvalsh(np.asarray(states.covariance))
    independent = int(np.sum(values > 1e-10 * values[..., -1:], axis=-1).max())
    if independent > d:
        raise InvalidInput(
            f"The overlaps have rank {independent}, but vectors of dimension d = {d} have overlaps of rank d at "
            "most; take a larger d, or a start from dimfree.random_state(problem, d=d, key=...)."
        )


def embed(state: State, d: int) -> tuple[Float[Array, "p d"], Float[Array, "k d"]]:
    """Student and teacher vectors in dimension d that have the overlaps of the State."""
    check_rank(state, d)
    factor, in_use = psd_factor(state.covariance)
    # Columns in use first, and of these no more than there are dimensions: a pivot beyond is rounding.
    columns = factor[:, jnp.argsort(~in_use, stable=True)][:, :d]
    weights = jnp.zeros((columns.shape[0], d)).at[:, : columns.shape[1]].set(d**0.5 * columns)
    return weights[: state.width], weights[state.width :]


def draw(key: PRNGKeyArray, problem: Problem, batch_size: int, d: int) -> Draws:
    """Inputs, noise and clusters of one step."""
    input_key, noise_key = jax.random.split(key)
    noise = jax.random.normal(noise_key, (2, 1, batch_size))
    return Draws(
        normals=jax.random.normal(input_key, (1, batch_size, d)),
        noise=noise[0],
        cluster=clusters_of(problem, noise[1]),
    )


def advance(
    problem: Problem,
    algorithm: OnlineSGD,
    weights: Float[Array, "p d"],
    readout: Float[Array, " n"] | None,
    teacher_weights: Float[Array, "k d"],
    draws: Draws,
    alpha: Float[Array, ""],
) -> tuple[tuple[Float[Array, "p d"], Float[Array, " n"] | None], Array]:
    """One step of SGD on the vectors."""
    gradient, readout_gradient, bounded = problem.vector_gradient(weights, teacher_weights, readout, draws)
    return algorithm.move(weights, readout, gradient, readout_gradient, alpha), bounded


def observe(weights: Float[Array, "p d"], teacher_weights: Float[Array, "k d"], readout) -> State:
    """The overlaps of the vectors."""
    d = weights.shape[-1]
    return State(
        Q=weights @ weights.T / d,
        M=weights @ teacher_weights.T / d,
        P=teacher_weights @ teacher_weights.T / d,
        readout=readout,
    )
