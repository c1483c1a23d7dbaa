"""SGD in dimension d, exactly in law, without vectors of dimension d."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..algorithms.online import OnlineAlgorithm
from ..gaussian.chi_square import chi_square
from ..problems import Draws, Problem
from ..state import State


def draw(key: PRNGKeyArray, problem: Problem, algorithm: OnlineAlgorithm, block: int, d: Float[Array, ""]) -> Draws:
    r"""Random numbers for `block` steps.

    The triangle T is Bartlett's: for the part of the inputs orthogonal to all vectors,
    $x_b \cdot x_c = (T T^\top)_{bc}$, with chi-square variables on its diagonal, of $d - n - b$ degrees of freedom
    for n vectors; one for each block of the inputs' spectrum, with its dimensions in the place of d.
    """
    field_key, diagonal_key, lower_key = jax.random.split(key, 3)
    batch_size, tokens = algorithm.batch_size, problem.inputs_per_sample
    inputs = batch_size * tokens
    fields = algorithm.number_of_vectors(problem)
    blocks = problem.inputs.blocks
    # All normals in one draw: every further one costs a third of a second of compilation.
    several = problem.inputs.components > 1
    seen = tokens * blocks * fields
    normals = jax.random.normal(field_key, (block, batch_size, seen + 1 + several))
    left = jnp.maximum(problem.inputs.sizes(d)[:, None] - fields - jnp.arange(inputs), 0.0)
    squares = chi_square(diagonal_key, jnp.tile(left.reshape(-1), block)).reshape(block, blocks, inputs)
    triangle = jnp.sqrt(squares)[..., None] * jnp.eye(inputs)
    if inputs > 1:
        rows, columns = np.tril_indices(inputs, -1)
        lower = jax.random.normal(lower_key, (block, blocks * len(rows))).reshape(block, blocks, len(rows))
        triangle = triangle.at[..., rows, columns].set(jnp.where(left[:, columns] > 0, lower, 0.0))
    coordinates = normals[..., :seen].reshape(block, inputs, blocks, fields)
    return Draws(
        normals=jnp.swapaxes(coordinates, 1, 2),
        noise=normals[..., seen],
        choice=normals[..., -1],
        triangle=triangle,
    )


def advance(
    problem: Problem,
    algorithm: OnlineAlgorithm,
    state: State,
    draws: Draws,
    d: Float[Array, ""],
    alpha: Float[Array, ""],
) -> tuple[State, Array]:
    """One step of SGD in dimension d on the State; its law is exactly that of SGD on the vectors."""
    seen, transform = algorithm.seen(state, alpha)
    moments, bounded = problem.at(alpha).exact_moments(seen, draws, d, transform)
    return algorithm.step(state, moments, 1 / d, alpha), bounded
