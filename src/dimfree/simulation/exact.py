"""SGD in dimension d, exactly in law, without vectors of dimension d."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..algorithms import OnlineSGD
from ..gaussian.chi_square import chi_square
from ..gaussian.factor import psd_factor
from ..problems import Moments, Problem
from ..problems.base import split_fields
from ..state import State
from .loop import is_bounded


class Draws(eqx.Module):
    """The random numbers of one step: `B` samples, `r = p + k` fields."""

    fields: Float[Array, "*block B r"]
    noise: Float[Array, "*block B"]
    triangle: Float[Array, "*block B B"]


def draw(key: PRNGKeyArray, block: int, batch_size: int, fields: int, d: Float[Array, ""]) -> Draws:
    r"""Random numbers for `block` steps.

    `triangle` is Bartlett's lower-triangular T: for the part of the inputs orthogonal to all weights,
    $x_b \cdot x_c = (T T^\top)_{bc}$, with chi-square variables of $d - r - b$ degrees of freedom on its diagonal.
    """
    field_key, diagonal_key, lower_key = jax.random.split(key, 3)
    # Fields and noise in one draw: every further one costs a third of a second of compilation.
    normals = jax.random.normal(field_key, (block, batch_size, fields + 1))
    left = jnp.maximum(d - fields - jnp.arange(batch_size), 0.0)
    squares = chi_square(diagonal_key, jnp.tile(left, block)).reshape(block, batch_size)
    triangle = jnp.sqrt(squares)[..., None] * jnp.eye(batch_size)
    if batch_size > 1:
        rows, columns = np.tril_indices(batch_size, -1)
        lower = jax.random.normal(lower_key, (block, len(rows)))
        triangle = triangle.at[:, rows, columns].set(jnp.where(left[columns] > 0, lower, 0.0))
    return Draws(
        fields=normals[..., :fields],
        noise=normals[..., fields],
        triangle=triangle,
    )


def advance(
    problem: Problem, algorithm: OnlineSGD, state: State, draws: Draws, d: Float[Array, ""], alpha: Float[Array, ""]
) -> tuple[State, Array]:
    r"""One step of SGD in dimension d on the State; its law is exactly that of SGD on the vectors.

    Of the inputs, a step needs the fields $u_b = L \xi_b$ with $L L^\top$ their covariance, and the Gram matrix
    $x_b \cdot x_c / d = (\xi_b \cdot \xi_c + (T T^\top)_{bc}) / d$. With more fields than dimensions the covariance has
    rank d at most, and only as many columns of L count as the input has coordinates.

    Holds for Gaussian inputs, any d >= 1 and any rank of the overlaps.
    """
    p, k, B = problem.width, problem.teacher_width, algorithm.batch_size
    # Teachers first: with more fields than dimensions, the columns left without a pivot are then those of students.
    order = jnp.asarray([*range(p, p + k), *range(p)])
    factor, in_use = psd_factor(state.covariance[order][:, order])
    in_use = in_use & (jnp.cumsum(in_use) <= d)  # a pivot beyond the d-th is rounding, whatever its size
    teacher_first = draws.fields @ jnp.where(in_use, factor, 0.0).T
    fields = jnp.concatenate([teacher_first[:, k:], teacher_first[:, :k]], axis=1)
    student, teacher = split_fields(problem, fields)
    readout = problem.readout_of(state)
    slopes, readout_gradient = jax.vmap(problem.gradients, in_axes=(0, 0, 0, None))(
        student, teacher, draws.noise, readout
    )
    # Every input has d coordinates: those that the fields see, then unseen ones. Columns without a pivot are unseen
    # coordinates too, as many as there is room for.
    room = d - jnp.sum(in_use)
    directions = jnp.where(in_use | (jnp.cumsum(~in_use) <= room), draws.fields, 0.0)
    gram = (directions @ directions.T + draws.triangle @ draws.triangle.T) / d
    moments = Moments(
        student=slopes.T @ student / B,
        teacher=slopes.T @ teacher / B,
        square=slopes.T @ gram @ slopes / B**2,
        readout=None if readout_gradient is None else jnp.mean(readout_gradient, axis=0),
    )
    return algorithm.step(state, moments, 1 / d, alpha), is_bounded(student, slopes)
