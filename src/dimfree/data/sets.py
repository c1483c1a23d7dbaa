"""Sets of labelled rows: a user's, and Gaussian ones with the same covariance; SGD on them, and its risk."""

import abc
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.sparse.linalg
import scipy.special
from jaxtyping import Float, Int, PRNGKeyArray

from ..algorithms import OnlineAlgorithm
from ..components import Components
from ..printing import Progress
from ..problems import Draws
from ..problems.field_problem import FieldProblem
from ..simulation import vectors
from ..state import STUDENTS, TEACHERS

LARGEST_COPY = 2**31  # bytes of a Gaussian set that is kept in memory
_CHUNK = 2**22  # numbers in the rows of the steps that are handed to the compiled loop together
_LOSSES = 2**22  # losses that are computed at a time


class LabelledSet(abc.ABC):
    """Rows that SGD draws from, centred and of mean variance one, and the noise in the label of each.

    - `noise`: in units of its standard deviation, shape `(n,)`.
    """

    noise: Float[np.ndarray, " n"]

    @abc.abstractmethod
    def take(self, index: Int[np.ndarray, " m"]) -> Float[np.ndarray, "m d"]:
        """These rows."""


class GivenRows(LabelledSet):
    """The user's rows, read when they are needed: they may be in a file."""

    def __init__(self, features: Any, mean: np.ndarray, scale: float, noise: np.ndarray):
        self.features, self.mean, self.scale, self.noise = features, mean, scale, noise

    def take(self, index):
        # In increasing order and each once, as files are read best.
        found, back = np.unique(index, return_inverse=True)
        return (np.asarray(self.features[found], float)[back] - self.mean) / self.scale


class GaussianRows(LabelledSet):
    """A Gaussian set whose mean and covariance are exactly those of the data, not only on average.

    So it differs from the data in nothing but the law: the left singular vectors of the rows are random ones. With the
    residuals of least squares it is the same: `fitted` ones have no correlation at all with the rows.
    """

    def __init__(self, components: Components, scale: float, fitted: bool, generator: np.random.Generator):
        used = int(np.sum(components.eigenvalues > 0))
        normals = generator.normal(size=(components.rows, used + fitted))
        normals -= normals.mean(axis=0)
        root = scipy.linalg.cholesky(normals.T @ normals / len(normals), lower=True)
        whitening = scipy.linalg.solve_triangular(root.T, np.eye(len(root)))
        coloured = np.sqrt(components.eigenvalues[:used]) / scale * components.directions[:, :used]
        self.array = normals @ (whitening[:, :used] @ coloured.T)
        self.noise = normals @ whitening[:, -1] if fitted else generator.normal(size=len(normals))

    def take(self, index):
        return self.array[index]


class MadeRows(LabelledSet):
    """The same where that is too large: each row is made of its own seed, with the covariance on average."""

    def __init__(self, components: Components, scale: float, generator: np.random.Generator):
        self.components, self.scale, self.seed = components, scale, int(generator.integers(2**62))
        self.noise = generator.normal(size=components.rows)

    def take(self, index):
        found, rest = self.components, np.sqrt(self.components.rest)
        normals = np.stack([np.random.default_rng([self.seed, each]).normal(size=len(found.mean)) for each in index])
        along = (normals @ found.directions) * (np.sqrt(found.eigenvalues) - rest)
        return (rest * normals + along @ found.directions.T) / self.scale


def gaussian_set(
    components: Components, scale: float, fitted: bool, generator: np.random.Generator
) -> GaussianRows | MadeRows:
    """As many Gaussian rows with the covariance of the data, of mean variance one."""
    if components.complete and 8 * components.rows * len(components.mean) <= LARGEST_COPY:
        return GaussianRows(components, scale, fitted, generator)
    return MadeRows(components, scale, generator)


def generator_of(key: PRNGKeyArray, *more: int) -> np.random.Generator:
    """NumPy's random numbers, from a key of JAX: rows are taken where NumPy is."""
    return np.random.default_rng([*np.asarray(jax.random.key_data(key)).ravel().tolist(), *more])


def run(
    problem: FieldProblem,
    algorithm: OnlineAlgorithm,
    students: Float[np.ndarray, "p d"],
    teachers: Float[np.ndarray, "k d"],
    labelled: LabelledSet,
    save_steps: Int[np.ndarray, " times"],
    generators: list[np.random.Generator],
    progress: Progress,
    done: int = 0,
) -> tuple[Float[np.ndarray, "runs times p d"], Float[np.ndarray, "runs times n"] | None, np.ndarray]:
    """SGD on rows drawn with replacement, one run for each generator of random numbers.

    **Returns:** the students' weights and the readout at the saved steps, and whether each run stayed finite.
    """
    runs, batch, (p, d) = len(generators), algorithm.batch_size, students.shape
    saved = np.empty((runs, len(save_steps), p, d))
    start = {STUDENTS: jnp.asarray(students), TEACHERS: jnp.asarray(teachers)}
    start |= {
        name: jnp.zeros_like(start[STUDENTS]) if family is None else start[family]
        for name, family in algorithm.own.items()
    }
    begin = ((start, problem.readout, algorithm.measured(1, p)), jnp.ones((), bool))
    moving = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], runs, axis=0), begin)
    readouts = None if problem.readout is None else np.empty((runs, len(save_steps), problem.readout.shape[0]))
    length = int(np.clip(_CHUNK // (runs * batch * d), 1, max(1, save_steps[-1])))
    step = 0
    for place, end in enumerate(save_steps):
        while step < end:
            count = min(length, int(end) - step)
            # Drawn run by run, so that a run does not depend on how its steps are grouped.
            index = np.stack([each.integers(len(labelled.noise), size=(count, batch)) for each in generators], axis=1)
            rows = np.zeros((length, runs, batch, d))
            rows[:count] = labelled.take(index.ravel()).reshape(count, runs, batch, d)
            noise = np.zeros((length, runs, batch))
            noise[:count] = labelled.noise[index]
            moving = _steps(problem, algorithm, moving, rows, noise, jnp.asarray(step), jnp.asarray(count))
            step += count
            progress.show(done + runs * step)
        weights, readout, _ = moving[0]
        saved[:, place] = weights[STUDENTS]
        if readouts is not None:
            readouts[:, place] = readout
    return saved, readouts, np.asarray(moving[1])


@eqx.filter_jit
def _steps(problem: FieldProblem, algorithm: OnlineAlgorithm, moving, rows, noise, first, count):
    """So many steps of all runs, on the first of the rows; a run that diverges stays where it was."""
    batch, d = rows.shape[-2:]

    def advance(step, moving):
        alpha = (first + step) * batch / d

        def one(moving, rows, noise):
            (now, readout, numbers), finite = moving
            # Inputs of this problem are standard, that is, what it is given as normal numbers.
            draws = Draws(normals=rows, noise=noise, choice=jnp.zeros(noise.shape))
            moved, bounded = vectors.advance(problem, algorithm, now, readout, numbers, draws, alpha)
            finite = finite & bounded
            return jax.tree.map(functools.partial(jnp.where, finite), moved, moving[0]), finite

        return jax.vmap(one)(moving, rows[step], noise[step])

    return jax.lax.fori_loop(0, count, advance, moving)


def risk(
    problem: FieldProblem,
    labelled: LabelledSet,
    index: Int[np.ndarray, " m"],
    teachers: Float[np.ndarray, "k d"],
    weights: Float[np.ndarray, "runs times p d"],
    readouts: Float[np.ndarray, "runs times n"] | None,
) -> Float[np.ndarray, "runs times"]:
    """The mean loss of these rows, at each of the weights."""
    runs, times, p, d = weights.shape
    size = int(np.clip(_LOSSES // (runs * times * p), 1, min(len(index), _CHUNK // d + 1)))
    total, flat = np.zeros((runs, times)), jnp.asarray(weights.reshape(-1, d))
    for begin in range(0, len(index), size):
        chosen = index[begin : begin + size]
        # Rows fill the last chunk up and do not count: one compilation for all.
        counted = np.arange(size) < len(chosen)
        padded = np.resize(chosen, size)
        rows, noise = labelled.take(padded), labelled.noise[padded]
        total += np.asarray(_losses(problem, rows, noise, counted, teachers, flat, readouts, (runs, times, p)))
    return total / len(index)


@eqx.filter_jit
def _losses(problem: FieldProblem, rows, noise, counted, teachers, weights, readouts, shape: tuple[int, int, int]):
    d = rows.shape[-1]
    student = (weights @ rows.T / d**0.5).reshape(*shape, -1)
    teacher = rows @ teachers.T / d**0.5

    def of_weights(student, readout):
        losses = jax.vmap(lambda of, teacher, noise: problem.loss(of, teacher, noise, readout))
        return jnp.sum(jnp.where(counted, losses(student.T, teacher, noise), 0.0))

    by_time = jax.vmap(of_weights, in_axes=(0, None if readouts is None else 0))
    return jax.vmap(by_time, in_axes=(0, None if readouts is None else 0))(student, readouts)


def field_shapes(
    labelled: LabelledSet, index: Int[np.ndarray, " m"], weights: Float[np.ndarray, "v d"]
) -> tuple[Float[np.ndarray, " v"], Float[np.ndarray, " v"]]:
    """How far the fields of these vectors are from Gaussian: kurtosis, and Wasserstein-1 distance once standardised.

    The distance is between the empirical law of the fields and that of as many quantiles of a normal number.
    """
    size = max(1, _CHUNK // weights.shape[1])
    fields = np.concatenate(
        [labelled.take(index[begin : begin + size]) @ weights.T for begin in range(0, len(index), size)]
    )
    fields -= fields.mean(axis=0)
    spread = fields.std(axis=0)
    fields /= np.where(spread > 0, spread, 1.0)
    normal = scipy.special.ndtri((np.arange(len(fields)) + 0.5) / len(fields))
    distance = np.mean(np.abs(np.sort(fields, axis=0) - normal[:, None]), axis=0)
    return np.mean(fields**4, axis=0), distance
