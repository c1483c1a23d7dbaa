"""SGD in dimension d on the weight vectors themselves."""

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..algorithms.moves import pairs_of
from ..algorithms.online import OnlineAlgorithm
from ..errors import InvalidInput, is_concrete
from ..gaussian.factor import psd_factor
from ..gaussian.random_numbers import Source, normals
from ..last_axis import kept
from ..problems import Draws, Problem
from ..problems.inputs import Inputs, block_of_coordinate
from ..state import STUDENTS, TEACHERS, State


def check_rank(states: State, inputs: Inputs, d: int) -> None:
    """Refuse overlaps that no vectors of dimension d have (traced values pass)."""
    vectors = states.width * (len(states.families) - 1) + states.teacher_width
    if not is_concrete(states, inputs):
        return
    with jax.ensure_compile_time_eval():  # the start may be concrete inside of a program that is being traced
        sizes = np.asarray(inputs.sizes(d))
        if sizes.min() >= vectors:
            return
        values = np.linalg.eigvalsh(np.asarray(states.grams(*states.families)))
    independent = np.sum(values > 1e-10 * np.maximum(values[..., -1:], 1e-300), axis=-1)
    independent = independent.reshape(-1, len(sizes)).max(axis=0)
    if (independent > sizes).any():
        block = int(np.argmax(independent > sizes))
        where = "" if len(sizes) == 1 else f" in block {block}, which has {sizes[block]:.0f} of the dimensions"
        raise InvalidInput(
            f"The overlaps have rank {independent[block]}{where}, but vectors of dimension d = {d} have overlaps of "
            "rank d at most; take a larger d, or a start from dimfree.random_state(problem, d=d, key=...)."
        )


def embed(state: State, inputs: Inputs, d: int, key: PRNGKeyArray | None = None) -> dict[str, Float[Array, "_ d"]]:
    """Vectors in dimension d that have the overlaps of the State, by family.

    **Arguments:**

    - `key`: a random key, for vectors in random directions within each block; in the first coordinates of each if
      left out.
    """
    check_rank(state, inputs, d)
    families = state.families
    if key is not None:
        return _by_family(_in_random_directions(state.grams(*families), inputs, d, key), state)
    # Columns in use first, and of these no more than there are dimensions: a pivot beyond is rounding.
    if inputs.blocks == 1:
        columns = _columns(state.gram(*families))[:, :d]
        weights = jnp.zeros((columns.shape[0], d)).at[:, : columns.shape[1]].set(d**0.5 * columns)
    else:
        columns, block = jax.vmap(_columns)(state.grams(*families)), block_of_coordinate(inputs, d)
        place = jnp.arange(d) - (jnp.cumsum(inputs.sizes(d)) - inputs.sizes(d)).astype(int)[block]
        number = columns.shape[-1]
        found = columns[block, :, jnp.minimum(place, number - 1)]
        weights = d**0.5 * jnp.where(place[:, None] < number, found, 0.0).T
    return _by_family(weights, state)


def _by_family(weights: Float[Array, "n d"], state: State) -> dict[str, Float[Array, "_ d"]]:
    rows = [state.blocks_of(family, family).shape[-1] for family in state.families]
    return dict(zip(state.families, jnp.split(weights, np.cumsum(rows)[:-1]), strict=True))


def _in_random_directions(
    grams: Float[Array, "blocks n n"], inputs: Inputs, d: int, key: PRNGKeyArray
) -> Float[Array, "n d"]:
    """Normals of which each block is made orthonormal, in the combinations that have these overlaps.

    A block of few dimensions has no more directions than that; overlaps of its rank do not need more.
    """
    number, sizes = grams.shape[-1], inputs.sizes(d)
    block, normals = block_of_coordinate(inputs, d), jax.random.normal(key, (number, d))
    products = jax.ops.segment_sum(
        normals.T[:, :, None] * normals.T[:, None], block, inputs.blocks, indices_are_sorted=True
    )
    needed = jnp.arange(number) < sizes[:, None]
    found = jnp.linalg.cholesky(jnp.where(needed[:, :, None] & needed[:, None], products, jnp.eye(number)))
    factors = jax.vmap(_columns)(grams)
    combined = jax.vmap(lambda triangle, factor: jax.scipy.linalg.solve_triangular(triangle.T, factor.T).T)(
        found, factors
    )
    return d**0.5 * jnp.einsum("dij,jd->id", combined[block], normals)


def _columns(gram: Float[Array, "n n"]) -> Float[Array, "n n"]:
    factor, in_use = psd_factor(gram)
    return factor[:, jnp.argsort(~in_use, stable=True)]


def draw(source: Source, problem: Problem, batch_size: int, d: int) -> Draws:
    """Inputs and noise of one step of each run."""
    (runs,), inputs = source.step.shape, batch_size * problem.inputs_per_sample
    source = Source((source.key[0][:, None], source.key[1][:, None]), source.step[:, None])
    pairs = -(-(inputs * d + 2 * batch_size) // 2)
    always = source.step[0, 0] >= 0
    words = kept(lambda: source.words(jnp.arange(2 * pairs)), always)
    found = normals(words, always, axis=1)
    noise, choice = found[:, inputs * d :][:, :batch_size], found[:, inputs * d + batch_size :][:, :batch_size]
    return Draws(normals=found[:, : inputs * d].reshape(runs, inputs, d), noise=noise, choice=choice)


def advance(
    problem: Problem,
    algorithm: OnlineAlgorithm,
    vectors: dict[str, Float[Array, "_ d"]],
    readout: Float[Array, " n"] | None,
    numbers: dict[str, Float[Array, "..."]],
    draws: Draws,
    alpha: Float[Array, ""],
) -> tuple[tuple, Array]:
    """One step of SGD on the vectors, the readout, and what the algorithm measures."""
    now = algorithm.at(alpha, numbers)
    gradient, readout_gradient, bounded = problem.at(alpha).vector_gradient(
        now.move(alpha).point_of(vectors), vectors[TEACHERS], readout, draws, now.transform
    )
    numbers = algorithm.remeasured(numbers, gradient @ gradient.T, 1 / gradient.shape[-1], alpha)
    if algorithm.by_coordinate is not None:
        gradient, numbers = algorithm.by_coordinate.scaled(gradient, numbers)
    now = algorithm.mover.at(alpha, numbers)
    return (*now.step_vectors(vectors, readout, gradient, readout_gradient, alpha), numbers), bounded


def observe(
    vectors: dict[str, Float[Array, "_ d"]],
    readout: Float[Array, " n"] | None,
    inputs: Inputs,
    numbers: dict[str, Float[Array, "..."]] | None = None,
) -> State:
    """The overlaps of the vectors, in each block of the inputs' spectrum."""
    families = [STUDENTS, TEACHERS, *sorted(set(vectors) - {STUDENTS, TEACHERS})]
    d = vectors[STUDENTS].shape[-1]

    def blocks(one: str, other: str) -> Float[Array, "blocks _ _"]:
        if inputs.blocks == 1:
            return (vectors[one] @ vectors[other].T / d)[None]
        products = vectors[one].T[:, :, None] * vectors[other].T[:, None] / d
        return jax.ops.segment_sum(products, block_of_coordinate(inputs, d), inputs.blocks, indices_are_sorted=True)

    return State.of({pair: blocks(*pair) for pair in pairs_of(families)}, readout, numbers)
