"""SGD in dimension d on the weight vectors themselves."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..algorithms.moves import pairs_of
from ..algorithms.online import OnlineAlgorithm
from ..errors import InvalidInput, is_concrete
from ..gaussian.factor import psd_factor
from ..problems import Draws, Problem
from ..state import STUDENTS, TEACHERS, State


def check_rank(states: State, d: int) -> None:
    """Refuse overlaps that no vectors of dimension d have (traced values pass)."""
    if d >= states.width * (len(states.families) - 1) + states.teacher_width or not is_concrete(states):
        return
    with jax.ensure_compile_time_eval():  # the start may be concrete inside of a program that is being traced
        values = np.linalg.eigvalsh(np.asarray(states.gram(*states.families)))
    independent = int(np.sum(values > 1e-10 * values[..., -1:], axis=-1).max())
    if independent > d:
        raise InvalidInput(
            f"The overlaps have rank {independent}, but vectors of dimension d = {d} have overlaps of rank d at "
            "most; take a larger d, or a start from dimfree.random_state(problem, d=d, key=...)."
        )


def embed(state: State, d: int) -> dict[str, Float[Array, "_ d"]]:
    """Vectors in dimension d that have the overlaps of the State, by family."""
    check_rank(state, d)
    families = state.families
    factor, in_use = psd_factor(state.gram(*families))
    # Columns in use first, and of these no more than there are dimensions: a pivot beyond is rounding.
    columns = factor[:, jnp.argsort(~in_use, stable=True)][:, :d]
    weights = jnp.zeros((columns.shape[0], d)).at[:, : columns.shape[1]].set(d**0.5 * columns)
    rows = [state.blocks_of(family, family).shape[-1] for family in families]
    return dict(zip(families, jnp.split(weights, np.cumsum(rows)[:-1]), strict=True))


def draw(key: PRNGKeyArray, problem: Problem, batch_size: int, d: int) -> Draws:
    """Inputs and noise of one step."""
    input_key, noise_key = jax.random.split(key)
    noise = jax.random.normal(noise_key, (2, 1, batch_size))
    return Draws(
        normals=jax.random.normal(input_key, (1, batch_size, d)),
        noise=noise[0],
        component=problem.inputs.component(noise[1]),
    )


def advance(
    problem: Problem,
    algorithm: OnlineAlgorithm,
    vectors: dict[str, Float[Array, "_ d"]],
    readout: Float[Array, " n"] | None,
    draws: Draws,
    alpha: Float[Array, ""],
) -> tuple[tuple[dict[str, Float[Array, "_ d"]], Float[Array, " n"] | None], Array]:
    """One step of SGD on the vectors."""
    gradient, readout_gradient, bounded = problem.vector_gradient(
        vectors[STUDENTS], vectors[TEACHERS], readout, draws, algorithm.transform
    )
    return algorithm.step_vectors(vectors, readout, gradient, readout_gradient, alpha), bounded


def observe(vectors: dict[str, Float[Array, "_ d"]], readout: Float[Array, " n"] | None) -> State:
    """The overlaps of the vectors."""
    families = [STUDENTS, TEACHERS, *sorted(set(vectors) - {STUDENTS, TEACHERS})]
    overlaps = {
        (one, other): (vectors[one] @ vectors[other].T / vectors[one].shape[-1])[None]
        for one, other in pairs_of(families)
    }
    return State.of(overlaps, readout)
