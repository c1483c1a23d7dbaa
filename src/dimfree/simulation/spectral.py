"""A start that the training set suggests."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..errors import InvalidInput
from ..problems.field_problem import FieldProblem
from .frozen_data import FrozenData, of_samples, pull

_ITERATIONS = 5000  # of the power method, at most
_CONVERGED = 1e-5  # change of the direction in one iteration (an angle) at which it ends
_NO_BLOCK = 2**31 - 1  # a number that no block of inputs has


def leading_direction(
    problem: FieldProblem, data: FrozenData
) -> tuple[Float[Array, "datasets d"], Bool[Array, " datasets"]]:
    r"""The leading eigenvector of $\sum_\mu T(y_\mu) x_\mu x_\mu^\top$ of each dataset, of norm $\sqrt d$.

    And whether it was found: where the next eigenvalue is too close, the power method does not tell the two apart.

    Here $y_\mu = -\partial^2 \text{loss}_\mu / \partial \lambda^2$ at $\lambda = 0$, so that with $T(y) = y$ it is
    the direction in which the training loss falls most from zero weights; for phase retrieval $y$ is the label, up to
    a factor. $T(y) = (y - \text{mean} |y|) / (|y| + \text{mean} |y|)$ keeps few large labels from deciding alone, and
    lets small ones count against a direction.
    """
    scores = _scores(problem, data)
    # Shifted, so that no negative eigenvalue is larger in size than the leading one.
    shift = jnp.maximum(0, -scores.min(axis=(0, 2)))[:, None, None] * (1 + (data.samples / data.d) ** 0.5) ** 2

    def add(total, inputs, fields, sample, scores):
        return total + pull(inputs, scores[..., None] * fields)

    def improve(loop):
        number, vectors, change = loop
        new = data.sum(add, jnp.zeros_like(vectors), vectors, scores) / data.d**0.5 + shift * vectors
        new = new / jnp.linalg.norm(new, axis=-1, keepdims=True)
        # A dataset is done when it has converged itself, so that it does not depend on the others.
        done = change <= _CONVERGED
        return number + 1, jnp.where(done, vectors, new), jnp.linalg.norm(new - vectors, axis=-1, keepdims=True)

    def unfinished(loop):
        number, _, change = loop
        return (number < _ITERATIONS) & jnp.any(change > _CONVERGED)

    def random(key):
        return jax.random.normal(jax.random.fold_in(key, _NO_BLOCK), (1, data.d), scores.dtype)

    first = jax.vmap(random)(data.keys)
    first = first / jnp.linalg.norm(first, axis=-1, keepdims=True)
    loop = (jnp.zeros((), int), first, jnp.ones_like(first[..., :1]))
    _, vectors, change = jax.lax.while_loop(unfinished, improve, loop)
    return data.d**0.5 * vectors[:, 0], change[:, 0, 0] <= _CONVERGED


def _scores(problem: FieldProblem, data: FrozenData) -> Float[Array, "blocks datasets rows"]:
    """T(y) of each sample, zero where there is none."""
    datasets, blocks, rows = data.noise.shape
    readout = problem.readout
    readout = None if readout is None else jnp.broadcast_to(readout, (datasets, 1, *readout.shape))
    fields = jnp.zeros((datasets, blocks * rows, 1, 1), data.noise.dtype)
    sample = (data.teacher.reshape(datasets, blocks * rows, -1), data.noise.reshape(datasets, blocks * rows))
    labels = -of_samples(_curvature, problem, fields, sample, readout)[..., 0].reshape(datasets, blocks, rows)
    labels = jnp.swapaxes(labels, 0, 1)
    inside = data.inside[..., 0]
    scale = jnp.sum(jnp.where(inside, jnp.abs(labels), 0), axis=(0, 2), keepdims=True) / data.samples
    return jnp.where(inside, (labels - scale) / (jnp.abs(labels) + scale), 0).astype(data.noise.dtype)


def _curvature(problem: FieldProblem, student, teacher, noise, readout):
    return jax.hessian(problem.loss)(student, teacher, noise, readout)[0, 0]


def check_spectral(problem: FieldProblem) -> None:
    """An error if no direction can be found in this way."""
    if problem.width != 1:
        raise InvalidInput(f"start = 'spectral' finds one direction, but the problem has {problem.width} students.")
    numbers = jnp.asarray(np.random.default_rng(0).normal(size=(64, problem.teacher_width + 1)))

    def of_sample(numbers: Array) -> Array:
        return _curvature(problem, jnp.zeros(1), numbers[1:], numbers[0], problem.readout)

    curvatures = np.asarray(jax.jit(jax.vmap(of_sample))(numbers))
    if not (np.isfinite(curvatures).all() and np.std(curvatures) > 1e-8 * np.abs(curvatures).mean()):
        raise InvalidInput(
            "start = 'spectral' needs a loss whose curvature at zero student field depends on the teacher's, as that "
            "of phase retrieval does; this one's does not. Give a State."
        )
