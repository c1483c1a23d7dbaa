"""Continuous symmetries of a risk, and the directions in which they move the weights."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

_RANK = 1e-6  # singular values below this fraction of the largest are rounding
# A symmetry that moves the weights by less than this fraction of their size is taken to leave them where they are: a
# gradient that vanishes to third order is zero to rounding within 1e-5 of the critical point.
_MOVES = 1e-4


class Symmetries(NamedTuple):
    """The continuous symmetries of a risk.

    - `left`: a basis of the matrices that mix the students, shape (m, p, p).
    - `inner`: a basis of the rotations among the teacher directions, shape (m, r, r).
    - `relevant`: an orthonormal basis of the teacher directions that the risk depends on, shape (r, s). Every
      rotation of the inputs that leaves these where they are is a symmetry too.
    """

    left: Float[np.ndarray, "m p p"]
    inner: Float[np.ndarray, "l r r"]
    relevant: Float[np.ndarray, "r s"]


def find_symmetries(
    gradients: Callable[[Float[np.ndarray, "samples p n"]], Float[np.ndarray, "samples p n"]],
    width: int,
    teacher_rank: int,
    error: float = 0.0,
) -> Symmetries:
    r"""The symmetries of a risk, found from its gradient at random weights.

    Mixing students, $X \to (1 + \epsilon B) X$, or rotating inputs, $X \to X (1 + \epsilon A)$, leaves the risk alone
    where $\langle B, \nabla R\, X^\top \rangle = 0$ or $\langle A, X^\top \nabla R \rangle = 0$ for all $X$: as many
    linear conditions on $B$ and $A$ as there are random $X$. A quadratic network with equal readouts has all rotations
    of its students, and one with equal teachers all rotations among them; most networks have neither.

    **Arguments:**

    - `gradients`: the gradient at many weights at once, in a frame whose first `teacher_rank` directions hold the
      teachers, and which has p directions more.
    - `width`, `teacher_rank`: number of students, and of independent teachers.
    - `error`: of the gradient; zero if exact.
    """
    n = teacher_rank + width
    samples = max(width**2, teacher_rank**2) + 8
    points = np.random.default_rng(0).normal(size=(samples, width, n)) / np.sqrt(n)
    slopes = gradients(points)
    mixing = np.einsum("sia,sja->sij", slopes, points).reshape(samples, -1)
    turning = np.einsum("sia,sib->sab", points, slopes)
    turning = turning - turning.transpose(0, 2, 1)
    scale = max(np.abs(mixing).max(), np.abs(turning).max())
    floor = float(_RANK * scale + 3 * error)

    a, b = np.triu_indices(teacher_rank, k=1)
    angles = _null_space(turning[:, a, b], floor)
    inner = np.zeros((len(angles), teacher_rank, teacher_rank))
    inner[:, a, b], inner[:, b, a] = angles, -angles
    # A teacher direction that may be rotated out of the teachers' span is one that does not matter.
    out = turning[:, :teacher_rank, teacher_rank:].transpose(0, 2, 1).reshape(-1, teacher_rank)
    return Symmetries(_null_space(mixing, floor).reshape(-1, width, width), inner, complement(_null_space(out, floor)))


def orbit_directions(
    students: Float[np.ndarray, "p n"], teacher_frame: Float[np.ndarray, "r n"], symmetries: Symmetries, *, sphere: bool
) -> tuple[Float[np.ndarray, "pn a"], Float[np.ndarray, "p b"]]:
    """Orthonormal bases of the directions in which the symmetries move the weights.

    The first is of the directions within the frame; the second of those along one direction orthogonal to it, the same
    for each of them.

    **Arguments:**

    - `students`: in a frame of n directions.
    - `teacher_frame`: the directions of the teachers in it that `symmetries` speaks of, orthonormal.
    - `sphere`: whether norms are fixed, so that students cannot be mixed.
    """
    free = complement(symmetries.relevant.T @ teacher_frame)
    seen = students @ free
    a, b = np.triu_indices(free.shape[1], k=1)
    turned = np.einsum("im,nm->min", seen[:, a], free[:, b]) - np.einsum("im,nm->min", seen[:, b], free[:, a])
    among_teachers = students @ teacher_frame.T @ symmetries.inner @ teacher_frame
    mixed = (symmetries.left[:0] if sphere else symmetries.left) @ students
    moves = np.concatenate([turned, among_teachers, mixed]).reshape(-1, students.size)
    floor = float(_MOVES * np.linalg.norm(students))
    return _span(moves.T, floor), _span(seen, floor)


def complement(rows: Float[np.ndarray, "k n"]) -> Float[np.ndarray, "n f"]:
    """An orthonormal basis of what is orthogonal to orthonormal rows."""
    return np.linalg.svd(rows)[2][len(rows) :].T if len(rows) else np.eye(rows.shape[1])


def _null_space(conditions: Float[np.ndarray, "samples m"], floor: float) -> Float[np.ndarray, "l m"]:
    """Orthonormal rows on which no condition exceeds the floor, in the mean over samples."""
    if conditions.shape[1] == 0:
        return np.zeros((0, 0))
    _, values, rows = np.linalg.svd(np.linalg.qr(conditions, mode="r"))  # there are more samples than unknowns
    return rows[values <= floor * np.sqrt(len(conditions))]


def _span(columns: Float[np.ndarray, "n m"], floor: float) -> Float[np.ndarray, "n r"]:
    """An orthonormal basis of the span of the columns."""
    basis, values, _ = np.linalg.svd(columns, full_matrices=False)
    return basis[:, values > floor]
