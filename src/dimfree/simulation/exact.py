"""SGD in dimension d, exactly in law, without vectors of dimension d."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algorithms.online import OnlineAlgorithm
from ..errors import is_concrete
from ..gaussian.random_numbers import Source, normals_and_chi_squares
from ..problems import Draws, Problem
from ..state import State

_FEW = 40  # numbers of a step that are looked up one by one


class Numbers(eqx.Module):
    r"""The random numbers of a step: standard normals, and chi-square variables for the diagonals of triangles.

    A triangle T is Bartlett's: for the part of the inputs orthogonal to all vectors, $x_b \cdot x_c = (T T^\top)_{bc}$,
    with chi-square variables on its diagonal, of $d - n - b$ degrees of freedom for n vectors, and normals below; one
    for each block of the inputs' spectrum, with its dimensions in the place of d.
    """

    normals: Float[Array, "n *steps_and_runs"]
    squares: Float[Array, "m *steps_and_runs"]

    def at(self, step: Array) -> "Numbers":
        """Those of one of the steps."""

        def rows(each: Array) -> Array:
            number, _, runs = each.shape
            # One by one where they are few: rows that are looked up together are not read into vector registers.
            size = 1 if number <= _FEW else number
            parts = [
                jax.lax.dynamic_slice(each, (row, step, 0), (size, 1, runs), allow_negative_indices=False)[:, 0]
                for row in range(0, number, size)
            ]
            return jnp.concatenate(parts) if parts else each[:, 0]

        return jax.tree.map(rows, self)


def draw(source: Source, problem: Problem, algorithm: OnlineAlgorithm, d: Float[Array, ""]) -> Numbers:
    """The random numbers of all steps of all runs of a source."""
    return Numbers(
        *normals_and_chi_squares(source, sum(_normals(problem, algorithm)), _left(problem, algorithm, d).reshape(-1))
    )


def numbers_of_step(problem: Problem, algorithm: OnlineAlgorithm) -> int:
    """How many random numbers a step needs."""
    return sum(_normals(problem, algorithm)) + problem.inputs.blocks * algorithm.batch_size * problem.inputs_per_sample


def _normals(problem: Problem, algorithm: OnlineAlgorithm) -> tuple[int, int, int, int]:
    """How many normals are for coordinates, noise, components of the inputs' law, triangles."""
    batch_size, blocks = algorithm.batch_size, problem.inputs.blocks
    inputs = batch_size * problem.inputs_per_sample
    several = problem.inputs.components > 1
    coordinates = inputs * blocks * algorithm.number_of_vectors(problem)
    return coordinates, batch_size, batch_size * several, blocks * inputs * (inputs - 1) // 2


def _left(problem: Problem, algorithm: OnlineAlgorithm, d: Float[Array, ""]) -> Float[Array, "blocks inputs"]:
    """Degrees of freedom on the diagonals of the triangles."""
    fields, inputs = algorithm.number_of_vectors(problem), algorithm.batch_size * problem.inputs_per_sample
    return jnp.maximum(problem.inputs.sizes(d)[:, None] - fields - jnp.arange(inputs), 0.0)


def is_roomy(problem: Problem, algorithm: OnlineAlgorithm, d: int) -> bool:
    """Whether each block of the inputs' spectrum is known to have as many dimensions as there are vectors."""
    sizes = problem.inputs.sizes(d)
    return is_concrete(sizes) and float(np.min(sizes)) >= algorithm.number_of_vectors(problem)


def draws_of(
    problem: Problem, algorithm: OnlineAlgorithm, numbers: Numbers, d: Float[Array, ""], roomy: bool = False
) -> Draws:
    """The numbers of one step of one run, each where it belongs."""
    ends = np.cumsum(_normals(problem, algorithm))
    coordinates, noise, choice, lower = jnp.split(numbers.normals, ends[:-1])
    blocks, inputs = problem.inputs.blocks, algorithm.batch_size * problem.inputs_per_sample
    diagonal = jnp.sqrt(numbers.squares).reshape(blocks, inputs)
    if inputs == 1:
        triangle = diagonal[..., None]
    else:
        rows, columns = np.tril_indices(inputs, -1)
        left = _left(problem, algorithm, d)
        lower = jnp.where(left[:, columns] > 0, lower.reshape(blocks, len(rows)), 0.0)
        triangle = (diagonal[..., None] * jnp.eye(inputs)).at[:, rows, columns].set(lower)
    return Draws(
        normals=coordinates.reshape(blocks, inputs, algorithm.number_of_vectors(problem)),
        noise=noise,
        choice=choice if choice.size else noise,
        triangle=triangle,
        roomy=roomy,
    )


def advance(
    problem: Problem,
    algorithm: OnlineAlgorithm,
    state: State,
    numbers: Numbers,
    d: Float[Array, ""],
    alpha: Float[Array, ""],
    roomy: bool = False,
) -> tuple[State, Array]:
    """One step of SGD in dimension d on the State; its law is exactly that of SGD on the vectors.

    **Arguments:**

    - `roomy`: whether it is known that there are more dimensions than vectors; a step is then cheaper.
    """
    seen, transform = algorithm.seen(state, alpha)
    draws = draws_of(problem, algorithm, numbers, d, roomy)
    moments, bounded = problem.at(alpha).exact_moments(seen, draws, d, transform)
    return algorithm.step(state, moments, 1 / d, alpha), bounded
