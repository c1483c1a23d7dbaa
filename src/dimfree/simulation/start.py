"""Where SGD starts."""

import functools
from typing import Literal, overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import ArrayLike

from ..errors import (
    InvalidInput,
    check_key,
    check_memory,
    flag,
    is_concrete,
    nonnegative_number,
    positive_integer,
    real_array,
)
from ..gaussian.chi_square import chi_square
from ..gaussian.factor import psd_factor
from ..problems import Problem
from ..problems.base import check_problem, frame
from ..state import STUDENTS, TEACHERS, State, WideState


@overload
def random_state(
    problem: Problem,
    d: int,
    *,
    key: PRNGKeyArray,
    norm: float | Array = 1.0,
    P: ArrayLike | Array | None = None,
    readout_scale: float | Array | None = None,
    wide: Literal[False] = False,
) -> State: ...
@overload
def random_state(
    problem: Problem,
    d: int,
    *,
    key: PRNGKeyArray,
    norm: float | Array = 1.0,
    P: ArrayLike | Array | None = None,
    readout_scale: float | Array | None = None,
    wide: Literal[True],
) -> WideState: ...
def random_state(
    problem: Problem,
    d: int,
    *,
    key: PRNGKeyArray,
    norm: float | Array = 1.0,
    P: ArrayLike | Array | None = None,
    readout_scale: float | Array | None = None,
    wide: bool = False,
) -> State | WideState:
    r"""The State of random students in dimension d: independent directions, each of norm `norm` times $\sqrt d$.

    Overlaps of different vectors are of order $d^{-1/2}$; their law is exact for any d, and no vector is drawn.

    **Arguments:**

    - `problem`: gives the widths and the readout.
    - `d`: the dimension.
    - `key`: random key.
    - `norm`: so that the diagonal of Q is `norm ** 2`.
    - `P`: overlaps of the teachers, shape `(k, k)`, the identity if left out: spread evenly over all dimensions, or, of
      shape `(blocks, k, k)`, those in each block of the inputs' spectrum.
    - `readout_scale`: standard deviation of a random Gaussian readout; the problem's own readout if left out.
    - `wide`: whether to give a [`WideState`], which does not hold the p^2 overlaps among students; for [`mean_field`].

    **Returns:** a [`State`], or a [`WideState`].
    """
    wide = flag(wide, "wide")
    if wide:
        check_problem(problem)
    check_problem(problem, "spectrum", "tokens", "change")
    check_key(key)
    d = positive_integer(d, "d")
    nonnegative_number(norm, "norm")
    p, k = problem.width, problem.teacher_width
    if not wide:
        # Q, the weights that it is made of, and the random numbers that they are made of.
        check_memory(3 * 8 * p * p, f"The overlaps among {p:,} students", "Use wide=True, for dimfree.mean_field.")
    P = jnp.asarray(np.eye(k)) if P is None else jnp.asarray(real_array(P, "P"))
    inputs = problem.inputs
    if P.shape != (k, k) and P.shape != (inputs.blocks, k, k):
        blocks = f" or, in each block of the inputs, {(inputs.blocks, k, k)}" if inputs.blocks > 1 else ""
        raise InvalidInput(f"P has shape {P.shape}; the problem has {k} teachers, so it must be {(k, k)}{blocks}.")
    masses, sizes = P if P.ndim == 3 else inputs.masses(P), inputs.sizes(d)
    in_use = jax.vmap(psd_factor)(masses)[1]
    if is_concrete(in_use, sizes) and bool(jnp.any(jnp.sum(in_use, axis=-1) > sizes)):
        where, least = f"d = {d} dimensions", f"d >= {k}"
        if inputs.blocks > 1:
            block = int(jnp.argmax(jnp.sum(in_use, axis=-1) - sizes))
            where = f"block {block} of the spectrum, which has {sizes[block]:.0f} of d = {d} dimensions"
            least = f"a larger d (about {k / float(jnp.min(inputs.fractions)):.0f}), or a spectrum of fewer blocks"
        raise InvalidInput(f"{k} teachers with independent directions do not fit in {where}; take {least}.")
    readout = problem.readout
    if readout_scale is not None:
        if readout is None:
            raise InvalidInput("readout_scale was given, but the problem has no readout; leave it out.")
        nonnegative_number(readout_scale, "readout_scale")
        scale = jnp.asarray(real_array(readout_scale, "readout_scale"))
        readout = scale * jax.random.normal(jax.random.fold_in(key, 1), readout.shape)
    if inputs.blocks > 1:
        return _random_blocks(key, sizes, jnp.asarray(norm, float), masses, readout, p)
    teacher = psd_factor(P)[0]
    if wide:
        return _wide_overlaps(key, jnp.asarray(d, float), jnp.asarray(norm, float), P, teacher, readout, p)
    return _random_overlaps(key, jnp.asarray(d, float), jnp.asarray(norm, float), P, teacher, readout, p)


@functools.partial(jax.jit, static_argnames="p")
def _random_overlaps(key, d, norm, P, teacher, readout, p: int) -> State:
    k = P.shape[0]
    teacher_key, diagonal_key, lower_key = jax.random.split(key, 3)
    seen = jax.random.normal(teacher_key, (p, k))
    # Bartlett: the part of the students orthogonal to the teachers, in d - k dimensions.
    left = jnp.maximum(d - k - jnp.arange(p), 0.0)
    lower = jnp.where(left > 0, jnp.tril(jax.random.normal(lower_key, (p, p)), -1), 0.0)
    students = jnp.concatenate([seen, lower + jnp.diag(jnp.sqrt(chi_square(diagonal_key, left)))], axis=1)
    students = norm * students / jnp.linalg.norm(students, axis=1, keepdims=True)
    return State(Q=students @ students.T, M=students[:, :k] @ teacher.T, P=P, readout=readout)


@functools.partial(jax.jit, static_argnames="p")
def _random_blocks(key, sizes, norm, P, readout, p: int) -> State:
    """As in one block, with directions that are random in all of them together."""
    k = P.shape[-1]

    def raw(key, P, size):
        teacher_key, diagonal_key, lower_key = jax.random.split(key, 3)
        teacher, seen = frame(P, jax.random.normal(teacher_key, (p, k)), size)
        left = jnp.maximum(size - k - jnp.arange(p), 0.0)
        lower = jnp.where(left > 0, jnp.tril(jax.random.normal(lower_key, (p, p)), -1), 0.0)
        return teacher, jnp.concatenate([seen, lower + jnp.diag(jnp.sqrt(chi_square(diagonal_key, left)))], axis=1)

    teacher, students = jax.vmap(raw)(jax.random.split(key, sizes.shape[0]), P, sizes)
    students = norm * students / jnp.sqrt(jnp.sum(students**2, axis=(0, 2)))[:, None]
    M = students[:, :, :k] @ jnp.swapaxes(teacher, 1, 2)
    pairs = {(STUDENTS, STUDENTS): students @ jnp.swapaxes(students, 1, 2), (STUDENTS, TEACHERS): M}
    return State.of(pairs | {(TEACHERS, TEACHERS): P}, readout)


@functools.partial(jax.jit, static_argnames="p")
def _wide_overlaps(key, d, norm, P, teacher, readout, p: int) -> WideState:
    k = P.shape[0]
    seen_key, unseen_key = jax.random.split(key)
    seen = jax.random.normal(seen_key, (p, k))
    left = jnp.maximum(d - k, 0.0)
    squares = jnp.sum(seen**2, axis=1), chi_square(unseen_key, jnp.full(p, left))
    scale = norm / jnp.sqrt(squares[0] + squares[1])
    return WideState(M=(scale[:, None] * seen) @ teacher.T, q_perp=scale**2 * squares[1], P=P, readout=readout)
