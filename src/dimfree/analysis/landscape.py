"""The landscape of the population risk: gradient and Hessian in the weights, at any d, from the State alone."""

import dataclasses

import numpy as np
from jaxtyping import Float, Int

from ..errors import InvalidInput, flag, is_concrete, positive_integer, require
from ..problems import Problem
from ..problems.base import check_problem
from ..state import State, check_state
from ..trajectory import check_start
from .symmetries import find_symmetries, orbit_directions
from .weight_derivatives import derivative_error, gradients, is_relu, numerical_derivatives

_RELATIVE_TOLERANCE = 1e-6  # of the largest second derivative: below, an eigenvalue is zero and two eigenvalues are one
_NULL = 1e-13  # eigenvalues of the overlaps below this fraction of the largest are rounding
_ROWS = 24  # of the printed table


@dataclasses.dataclass(frozen=True)
class HessianSpectrum:
    r"""The spectrum of the Hessian of the risk with respect to $W / \sqrt d$; it prints as a table.

    **Attributes:**

    - `eigenvalues`: in increasing order, shape (m,); eigenvalues that agree to `tolerance` are one.
    - `multiplicities`: of each, shape (m,); their sum is p d, on the sphere p (d - 1).
    - `bulk`: how much of each multiplicity comes from directions orthogonal to all weights, shape (m,).
    - `risk`: the population risk.
    - `gradient_norm`: of the gradient with respect to $W / \sqrt d$ (on the sphere, of its tangent part).
    - `symmetric`: how many of the flat directions are tangent to the orbit of a continuous symmetry of the risk.
    - `tolerance`: eigenvalues smaller than this count as zero; it contains the error of quadrature.
    - `d`, `sphere`: as given.
    """

    eigenvalues: Float[np.ndarray, " m"]
    multiplicities: Int[np.ndarray, " m"]
    bulk: Int[np.ndarray, " m"]
    risk: float
    gradient_norm: float
    symmetric: int
    tolerance: float
    d: int
    sphere: bool

    @property
    def negative(self) -> int:
        """The index: how many directions lead down."""
        return int(self.multiplicities[self.eigenvalues < -self.tolerance].sum())

    @property
    def flat(self) -> int:
        """How many directions are flat to second order."""
        return int(self.multiplicities[np.abs(self.eigenvalues) <= self.tolerance].sum())

    @property
    def positive(self) -> int:
        """How many directions lead up."""
        return int(self.multiplicities[self.eigenvalues > self.tolerance].sum())

    @property
    def accidental(self) -> int:
        """How many flat directions no symmetry explains: there the risk changes at higher order, if at all."""
        return self.flat - self.symmetric

    @property
    def is_critical(self) -> bool:
        """Whether the gradient vanishes, to rounding and the error of quadrature."""
        return self.gradient_norm <= max(self.tolerance, _RELATIVE_TOLERANCE)

    @property
    def kind(self) -> str:
        """What kind of point this is, in words."""
        if not self.is_critical:
            return f"not a critical point: the gradient has norm {self.gradient_norm:.3g}"
        if self.negative and self.positive:
            return f"saddle of index {self.negative}"
        if not self.negative and not self.positive:
            return f"flat to second order in all {self.flat} directions"
        extremum = "maximum" if self.negative else "minimum"
        if not self.flat:
            return extremum
        if not self.accidental:
            return f"{extremum}, with flat directions: {self.flat}, all of symmetry"
        return f"{extremum} to second order, with flat directions: {self.symmetric} of symmetry, {self.accidental} not"

    def __str__(self) -> str:
        where = f"d = {self.d}" + (", on the sphere" if self.sphere else "")
        columns = (self.eigenvalues, self.multiplicities, self.bulk, self.multiplicities - self.bulk)
        rows = [
            f"  {value:14.8g}   {total:12d}   {bulk:12d}   {finite:8d}"
            for value, total, bulk, finite in zip(*columns, strict=True)
        ]
        if len(rows) > _ROWS:
            left_out = f"  ... {len(rows) - _ROWS} eigenvalues between ..."
            rows = [*rows[: _ROWS // 2], left_out, *rows[-_ROWS // 2 :]]
        return "\n".join(
            [
                f"{self.kind[0].upper()}{self.kind[1:]}.",
                f"  Hessian of the risk with respect to W / sqrt(d), {where}",
                f"  risk {self.risk:.8g}, gradient {self.gradient_norm:.3g}",
                f"  negative {self.negative}, flat {self.flat} ({self.symmetric} of symmetry), "
                f"positive {self.positive}",
                "      eigenvalue   multiplicity    in the bulk   in frame",
                *rows,
            ]
        )

    __repr__ = __str__


def hessian(problem: Problem, state: State, d: int, *, sphere: bool = False) -> HessianSpectrum:
    r"""All eigenvalues, with multiplicities, of the Hessian of the population risk in the first-layer weights.

    $$ H_{ij} = \frac{\partial^2 R}{\partial (w_i / \sqrt d)\, \partial (w_j / \sqrt d)}
       = \mathbb{E}[\partial_i \partial_j \text{loss}\; x x^\top], $$

    a matrix of size p d that is never built: on the span of all weights, of at most p + k dimensions, it is a block
    that the State determines, and for every direction orthogonal to it one and the same p x p block, $2\, \partial R /
    \partial Q$. Eigenvalues are of order one; with respect to $w$ itself divide them by d. On the sphere it is the
    Riemannian Hessian on the product of p spheres: on the tangent space only, minus the radial slope.

    It is exact for the activations with closed forms, including the ReLU where students and teachers coincide.
    Otherwise it is computed by quadrature, whose error is estimated and enters `tolerance`. A loss with kinks has a
    second derivative only where no local field depends on the others; elsewhere it is refused. The readout is held
    fixed.

    **Arguments:**

    - `problem`, `state`: what is learned, and where.
    - `d`: the dimension.
    - `sphere`: whether every student is kept at norm $\sqrt d$.

    **Returns:** a [`HessianSpectrum`].

    Arnaboldi et al. 2023, Appendix G, where eqs. (75)-(81) and (88) are misprinted; Bocchi et al. 2026, Section 7.2.

    ??? example
        >>> import dimfree
        >>> problem = dimfree.PhaseRetrieval()
        >>> dimfree.hessian(problem, dimfree.State(Q=[[1.0]], M=[[0.0]]), d=1_000, sphere=True).kind
        'maximum, with flat directions: 998, all of symmetry'
    """
    sphere = flag(sphere, "sphere")
    d = positive_integer(d, "d", minimum=2 if sphere else 1)
    check_problem(problem)
    if not is_concrete(problem, state):
        raise InvalidInput("hessian counts eigenvalues, so it needs numbers: call it outside of jit, vmap and grad.")
    state = check_start(problem, state, trained=False)
    check_state(state, sphere=sphere)
    students, teachers = frame(state, d)
    _check_differentiable(problem, students, teachers)
    risk = float(problem.risk(state))
    found = numerical_derivatives(problem, state.readout, students, teachers)
    gradient, full, bulk = found
    error = derivative_error(problem, state.readout, students, teachers, found)

    width, n = students.shape
    scale = max(np.abs(full).max(), np.abs(bulk).max(), np.abs(np.sum(gradient * students, axis=1)).max())
    block = full.reshape(width * n, width * n)
    basis = np.eye(width * n)
    if sphere:
        radial = np.sum(gradient * students, axis=1)
        gradient = gradient - radial[:, None] * students
        block = block - np.diag(np.repeat(radial, n))
        bulk = bulk - np.diag(radial)
        basis = _tangent_basis(students)
        block = basis.T @ block @ basis
    frame_values, frame_vectors = np.linalg.eigh((block + block.T) / 2)
    bulk_values, bulk_vectors = np.linalg.eigh((bulk + bulk.T) / 2)
    if n == d:
        bulk_values, bulk_vectors = bulk_values[:0], bulk_vectors[:, :0]
    tolerance = max(_RELATIVE_TOLERANCE * scale + error, 1e-12)

    teacher_factor = _factor(np.asarray(state.P))
    wide = np.pad(teacher_factor, ((0, 0), (0, width)))
    symmetries = find_symmetries(
        lambda points: np.asarray(gradients(problem, state.readout, points, wide)),
        width,
        teacher_factor.shape[1],
        error,
    )
    in_frame, in_bulk = orbit_directions(students, np.linalg.pinv(teacher_factor) @ teachers, symmetries, sphere=sphere)
    symmetric = _shared(basis.T @ in_frame, frame_vectors[:, np.abs(frame_values) <= tolerance])
    symmetric += (d - n) * _shared(in_bulk, bulk_vectors[:, np.abs(bulk_values) <= tolerance])
    eigenvalues, multiplicities, from_bulk = _grouped(frame_values, bulk_values, d - n, tolerance)
    return HessianSpectrum(
        eigenvalues=eigenvalues,
        multiplicities=multiplicities,
        bulk=from_bulk,
        risk=risk,
        gradient_norm=float(np.linalg.norm(gradient)),
        symmetric=symmetric,
        tolerance=float(tolerance),
        d=d,
        sphere=sphere,
    )


def frame(state: State, d: int) -> tuple[Float[np.ndarray, "p n"], Float[np.ndarray, "k n"]]:
    r"""Weights $W / \sqrt d$ of students and teachers in as few directions as hold them all."""
    covariance = np.asarray(state.covariance)
    teacher_rank = _factor(np.asarray(state.P)).shape[1]
    if teacher_rank > d:
        raise InvalidInput(
            f"The teachers have {teacher_rank} independent directions, which do not fit in d = {d} dimensions; "
            f"take d >= {teacher_rank}."
        )
    factor = _factor(covariance)
    lost = np.linalg.norm(factor[:, d:]) ** 2
    if lost > 1e-10 * np.trace(covariance):
        raise InvalidInput(
            f"The overlaps have rank {factor.shape[1]}, but weights in dimension d = {d} have overlaps of rank d at "
            "most; take a larger d, or a State from dimfree.random_state(problem, d=d, key=...)."
        )
    return factor[: state.width, :d], factor[state.width :, :d]


def _factor(covariance: Float[np.ndarray, "r r"]) -> Float[np.ndarray, "r n"]:
    """Vectors with these inner products, of as few components as they need."""
    values, vectors = np.linalg.eigh(covariance)
    used = max(1, int(np.sum(values > _NULL * values[-1])))
    return vectors[:, ::-1][:, :used] * np.sqrt(np.maximum(values[::-1][:used], 0))


def _check_differentiable(problem: Problem, students, teachers) -> None:
    """Refuse the points at which the risk has no second derivative, or none that is known."""
    if problem.smooth:
        return
    if is_relu(problem):
        require(
            np.linalg.norm(students, axis=1) > 1e-7,
            "A student has norm zero, where the risk of a ReLU network has a cone and no Hessian; move it away.",
        )
        return
    vectors = np.concatenate([students, teachers])
    values = np.linalg.svd(vectors, compute_uv=False)
    require(
        vectors.shape[1] == len(vectors) and values[-1] > 1e-3 * values[0],
        "This loss has a kink, and students and teachers are linearly dependent here (or almost); the second "
        "derivative of the risk then cannot be had from averages of the loss and may not exist. It is known for "
        "TwoLayer with activation='relu'; else use a smooth loss, or independent students and teachers.",
    )


def _tangent_basis(students: Float[np.ndarray, "p n"]) -> Float[np.ndarray, "pn m"]:
    """An orthonormal basis of the moves that keep every student's norm."""
    width, n = students.shape
    basis = np.zeros((width, n, width, n - 1))
    for i, student in enumerate(students):
        basis[i, :, i, :] = np.linalg.svd(student[None, :])[2][1:].T
    return basis.reshape(width * n, width * (n - 1))


def _shared(orbit: Float[np.ndarray, "n a"], flat: Float[np.ndarray, "n b"]) -> int:
    """How many directions of an orbit lie in a flat space."""
    if 0 in (*orbit.shape, *flat.shape):
        return 0
    # Cosines of the angles between the two spaces: one or zero at critical points.
    return int(np.sum(np.linalg.svd(orbit.T @ flat, compute_uv=False) > 0.99))


def _grouped(in_frame, in_bulk, copies: int, tolerance: float):
    """Eigenvalues that agree, their multiplicities, and how much of these is in the bulk."""
    values = np.concatenate([in_frame, in_bulk])
    bulk = np.concatenate([np.zeros(len(in_frame), int), np.full(len(in_bulk), copies)])
    counts = np.where(np.arange(len(values)) < len(in_frame), 1, bulk)
    order = np.argsort(values)
    values, bulk, counts = values[order], bulk[order], counts[order]
    starts = np.flatnonzero(np.diff(values, prepend=-np.inf) > tolerance)
    totals = np.add.reduceat(counts, starts)
    return np.add.reduceat(counts * values, starts) / totals, totals, np.add.reduceat(bulk, starts)
