"""Gradient and Hessian of the population risk in the weights, in a frame of few directions."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..batches import map_in_batches
from ..errors import InvalidInput
from ..gaussian.grids import Grid, average_over_grid
from ..gaussian.means import FieldRule, gaussian_mean
from ..gaussian.rules import AnyRule, Averaging, Trapezoid, bound_on_error, shifts_of
from ..problems import FieldProblem, Problem, TwoLayer
from ..problems.field_problem import split_fields
from ..state import State

_TOLERANCE = 1e-9  # of averages: eigenvalues are counted that should be zero


class Derivatives(NamedTuple):
    r"""Derivatives of the risk with respect to $X = W / \sqrt d$ in a frame of n directions.

    `gradient`, shape (p, n); `hessian`, shape (p, n, p, n); `bulk`, shape (p, p), the Hessian for directions orthogonal
    to the frame, the same for each.
    """

    gradient: Any
    hessian: Any
    bulk: Any


def weight_derivatives(
    problem: Problem,
    readout: Float[Array, " m"] | None,
    students: Float[Array | np.ndarray, "p n"],
    teachers: Float[Array | np.ndarray, "k n"],
    averaging: Averaging | None = None,
) -> Derivatives:
    """The derivatives by the best route that the problem has.

    **Arguments:**

    - `problem`, `readout`: what is learned, and the second layer.
    - `students`, `teachers`: in a frame that holds them all.
    - `averaging`: how averages are taken that are no closed forms.
    """
    averaging = Averaging(_TOLERANCE) if averaging is None else averaging
    if isinstance(problem, TwoLayer):
        weights = problem.output_weights(_state(students, teachers, readout))
        if is_relu(problem):
            return Derivatives(*relu_derivatives(jnp.concatenate([students, teachers]), weights, problem.width))
        if problem.knows_moments:
            return _through_overlaps(problem, readout, students, teachers, averaging)
        if problem.smooth:
            return _pair_derivatives(problem, weights, students, teachers, averaging)
    if not isinstance(problem, FieldProblem) or not problem.inputs.is_standard:
        if not (problem.smooth or problem.knows_moments):
            raise InvalidInput(
                "The Hessian of a loss with kinks is known for standard normal inputs only; the inputs of this problem "
                "come from clusters. Use a smooth activation."
            )
        return _through_overlaps(problem, readout, students, teachers, averaging)
    return _field_derivatives(problem, readout, students, teachers, averaging)


_jitted_derivatives = eqx.filter_jit(weight_derivatives)


def is_relu(problem: Problem) -> bool:
    """Whether the second derivatives at coinciding students and teachers are those of ReLUs, which are known."""
    integrals = problem.closed_integrals if isinstance(problem, TwoLayer) else None
    return integrals is not None and integrals.is_relu


def derivative_rule(problem: Problem) -> AnyRule | None:
    """The quadrature that the derivatives go by; None where they are closed forms."""
    if not isinstance(problem, FieldProblem) or problem.knows_moments:
        return None
    averaging = Averaging(_TOLERANCE)
    if isinstance(problem, TwoLayer) and problem.smooth:
        return Trapezoid(problem.resolution(averaging.tolerance, 2), averaging.tolerance)
    return problem.rule(averaging).fields


def derivative_error(problem, readout, students, teachers, found: Derivatives) -> float:
    """A bound on the error of derivatives, as the norm of a matrix: no eigenvalue moves by more."""
    rule = derivative_rule(problem)
    if rule is None:
        return 0.0
    others = [
        numerical_derivatives(problem, readout, students, teachers, by) for by in Averaging(_TOLERANCE).replicas(rule)
    ]

    def norm(array) -> float:
        rows = array.shape[0] if array.ndim == 2 else array.shape[0] * array.shape[1]
        return float(np.linalg.norm(array.reshape(rows, -1), ord=2))

    distances = [jnp.asarray(max(map(norm, jax.tree.map(np.subtract, found, other)))) for other in others]
    return float(bound_on_error(distances, rule, jnp.asarray(max(map(norm, found)))))


def _state(students, teachers, readout) -> State:
    return State(Q=students @ students.T, M=students @ teachers.T, P=teachers @ teachers.T, readout=readout)


def numerical_derivatives(problem, readout, students, teachers, averaging: Averaging | None = None) -> Derivatives:
    """The derivatives as numbers."""
    n, spare = students.shape[1], 0
    if isinstance(problem, TwoLayer):
        # Averages over two fields at a time do not care for empty directions: one compilation for all ranks.
        spare = max(len(students) + len(teachers) - n, 0)
    students, teachers = (np.pad(vectors, ((0, 0), (0, spare))) for vectors in (students, teachers))
    found = _jitted_derivatives(problem, readout, students, teachers, averaging or Averaging(_TOLERANCE))
    gradient, full, bulk = (np.asarray(part) for part in found)
    return Derivatives(gradient[:, :n], full[:, :n, :, :n], bulk)


@eqx.filter_jit
def gradients(problem, readout, points, teachers):
    """The gradient at many weights."""
    return jax.lax.map(lambda point: weight_derivatives(problem, readout, point, teachers).gradient, points)


def _through_overlaps(problem, readout, students, teachers, averaging: Averaging) -> Derivatives:
    """By autodiff of the risk as a function of the overlaps."""
    P = teachers @ teachers.T

    def gradient(X):
        def risk(Q, M):
            return problem.single_risk(State(Q, M, P, readout), averaging)

        slope_Q, slope_M = jax.grad(risk, argnums=(0, 1))(X @ X.T, X @ teachers.T)
        bulk = slope_Q + slope_Q.T
        value = bulk @ X + slope_M @ teachers
        return value, (value, bulk)

    full, (value, bulk) = jax.jacfwd(gradient, has_aux=True)(students)
    return Derivatives(value, full, bulk)


def _pair_derivatives(problem: TwoLayer, weights, students, teachers, averaging: Averaging) -> Derivatives:
    r"""For two-layer networks: averages over two fields at a time, in the plane of their two vectors.

    $H_{ij} = c_i c_j\, \mathbb{E}[g'(u_i) g'(u_j) x x^\top]
    + \delta_{ij} c_i \sum_s c_s\, \mathbb{E}[g''(u_i) g(u_s) x x^\top]$, on a grid that follows the vectors.
    """
    width, vectors, own = problem.width, jnp.concatenate([students, teachers]), weights[: problem.width]
    resolution = problem.resolution(averaging.tolerance, 2)

    def derivatives(function: Callable):
        slope = jax.grad(function)
        return [jax.vmap(each) for each in (function, slope, jax.grad(slope))]

    student, teacher = derivatives(problem.activation.function), derivatives(problem.teacher_activation.function)

    def pair(index):
        one, two = students[index // len(weights)], vectors[index % len(weights)]
        is_teacher = index % len(weights) >= width
        first = _direction(one)
        second = _direction(two - (two @ first) * first, 1e-12 * jnp.linalg.norm(two))
        length, along, across = jnp.linalg.norm(one), two @ first, two @ second
        # What is averaged are moments of the plane too: a direction counts also where no field moves along it.
        spread = jnp.stack([jnp.hypot(length, along), jnp.abs(across)])
        grid = Grid(jnp.maximum(spread, 1e-100), resolution, shifts_of(averaging.replica, 2))

        def over(points, weights):
            mine, other = length * points[:, 0], points @ jnp.stack([along, across])
            output, slope = student[0](other), student[1](other)
            if not problem.one_activation:
                output, slope = (
                    jnp.where(is_teacher, theirs(other), ours)
                    for theirs, ours in ((teacher[0], output), (teacher[1], slope))
                )
            own_slope, own_curvature = student[1](mine), student[2](mine)
            moments = jnp.stack([own_slope * output, own_slope * slope, own_curvature * output]) * weights
            x, y = points.T
            return moments @ jnp.stack([jnp.ones_like(x), x, y, x**2, x * y, y**2], axis=1)

        force, slopes, curvature = average_over_grid(over, grid, 1024)
        plane = jnp.stack([first, second])
        rest = jnp.eye(vectors.shape[1]) - plane.T @ plane

        def square(average):
            # Average of h x x^T from those of h eta eta^T in the plane.
            inside = jnp.array([[average[3], average[4]], [average[4], average[5]]])
            return average[0] * rest + plane.T @ inside @ plane, average[0]

        return force[1:3] @ plane, *square(slopes), *square(curvature)

    shape = (width, len(weights))
    found = map_in_batches(pair, jnp.arange(width * len(weights)), 16)
    gradient, slopes, bulk_slopes, curvature, bulk_curvature = (a.reshape(*shape, *a.shape[1:]) for a in found)
    gradient = own[:, None] * jnp.einsum("s,isa->ia", weights, gradient)
    full = jnp.einsum("i,j,ijab->iajb", own, own, slopes[:, :width])
    full = full + jnp.einsum("ij,i,s,isab->iajb", jnp.eye(width), own, weights, curvature)
    bulk = own[:, None] * own * bulk_slopes[:, :width] + jnp.diag(own * (bulk_curvature @ weights))
    return Derivatives(gradient, full, bulk)


def _direction(vector, floor=0.0):
    length = jnp.linalg.norm(vector)
    return jnp.where(length > floor, vector / jnp.where(length > floor, length, 1), 0)


def _field_derivatives(problem: FieldProblem, readout, students, teachers, averaging: Averaging) -> Derivatives:
    """For any loss: averages over all directions of the frame."""
    n = students.shape[1]
    vectors = jnp.concatenate([students, teachers])
    parameters = (problem, readout, vectors)
    chosen = problem.rule(averaging, fields=n)
    rule = FieldRule(chosen.fields, chosen.noise_nodes, chosen.smooth, chosen.replica, jnp.linalg.norm(vectors, axis=0))
    if problem.smooth:
        return Derivatives(*gaussian_mean(_smooth_sample, jnp.eye(n), parameters, rule))
    gradient, cubic = gaussian_mean(_kinked_sample, jnp.eye(n), parameters, rule)
    # Where the slope jumps its derivative is had by parts, over the independent fields u = V x.
    delta = jnp.eye(n)
    parts = cubic - jnp.einsum("ac,ib->iabc", delta, gradient) - jnp.einsum("bc,ia->iabc", delta, gradient)
    inverse = jnp.linalg.inv(vectors)[:, : problem.width]
    full = jnp.einsum("cj,iabc->iajb", inverse, parts)
    bulk = gradient @ inverse
    return Derivatives(gradient, (full + full.transpose(2, 3, 0, 1)) / 2, (bulk + bulk.T) / 2)


def _smooth_sample(direction, noise, parameters):
    problem, readout, vectors = parameters
    student, teacher = split_fields(problem, vectors @ direction)
    slopes = jax.grad(problem.loss)(student, teacher, noise, readout)
    curvature = jax.hessian(problem.loss)(student, teacher, noise, readout)
    return (
        jnp.outer(slopes, direction),
        jnp.einsum("ij,a,b->iajb", curvature, direction, direction),
        curvature,
    )


def _kinked_sample(direction, noise, parameters):
    problem, readout, vectors = parameters
    student, teacher = split_fields(problem, vectors @ direction)
    slopes = jax.grad(problem.loss)(student, teacher, noise, readout)
    return jnp.outer(slopes, direction), jnp.einsum("i,a,b,c->iabc", slopes, direction, direction, direction)


def relu_derivatives(
    vectors: Float[Array, "fields n"], weights: Float[Array, " fields"], width: int
) -> tuple[Float[Array, "width n"], Float[Array, "width n width n"], Float[Array, "width width"]]:
    r"""Gradient, Hessian and bulk block of $\tfrac12 \mathbb{E}[e^2]$, $e = \sum_s c_s \max(v_s \cdot x, 0)$, in the
    first `width` vectors.

    With $\theta$ the angle of $v_i$ and $v_s$, $\hat b$ and $\hat m$ the directions of $\hat v_i \pm \hat v_s$, and
    $\hat n$ that of the part of $v_s$ orthogonal to $v_i$,
    $$\mathbb{E}[1(u_i > 0)\, 1(u_s > 0)\, x x^\top] = \tfrac{\pi - \theta}{2\pi} I
    + \tfrac{\sin\theta}{2\pi} (\hat b \hat b^\top - \hat m \hat m^\top), \qquad
    \mathbb{E}[\delta(u_i) \max(u_s, 0)\, x x^\top] = \tfrac{|v_s| \sin\theta}{2\pi |v_i|}
    (I - \hat v_i \hat v_i^\top + \hat n \hat n^\top) .$$
    Both are continuous where two vectors are parallel or opposite: the risk is twice differentiable there, although
    as a function of the overlaps it is not. No student may be zero. The bulk block is the Hessian for directions
    orthogonal to all vectors, the same for each of them.

    **Arguments:**

    - `vectors`: students first, then teachers, in any frame that holds them all, shape (fields, n).
    - `weights`: the weights $c$ with which their outputs enter the error, shape (fields,).
    - `width`: the number of students.

    Cho & Saul, NeurIPS 2009 (the gradient); Safran & Shamir, ICML 2018, Section 4.1.1 (the Hessian).
    """
    students, own = vectors[:width], weights[:width]
    lengths = jnp.linalg.norm(vectors, axis=1)
    unit = vectors / jnp.where(lengths > 0, lengths, 1)[:, None]
    unit_students = unit[:width]
    cosine = unit_students @ unit.T
    # From the residual: 1 - cosine^2 would lose half of the digits where vectors almost coincide.
    residual = unit[None, :, :] - cosine[:, :, None] * unit_students[:, None, :]
    residual = jnp.where(np.eye(width, len(weights), dtype=bool)[:, :, None], 0, residual)
    sine = jnp.linalg.norm(residual, axis=2)
    both = (np.pi - jnp.arctan2(sine, cosine)) / (2 * np.pi)
    normal = _directions(residual)

    gradient = own[:, None] * (
        (both * weights) @ vectors + (sine * weights * lengths).sum(axis=1)[:, None] * unit_students / (2 * np.pi)
    )

    identity = jnp.eye(vectors.shape[1])
    bisector = _directions(unit_students[:, None, :] + unit_students[None, :, :])
    across = _directions(unit_students[:, None, :] - unit_students[None, :, :])
    spread = jnp.einsum("ija,ijb->ijab", bisector, bisector) - jnp.einsum("ija,ijb->ijab", across, across)
    slopes = both[:, :width, None, None] * identity + sine[:, :width, None, None] * spread / (2 * np.pi)
    hessian = jnp.einsum("i,j,ijab->iajb", own, own, slopes)
    kink = own[:, None] * weights * sine * lengths / (2 * np.pi * jnp.linalg.norm(students, axis=1)[:, None])
    tangent = identity - jnp.einsum("ia,ib->iab", unit_students, unit_students)
    curvature = kink.sum(axis=1)[:, None, None] * tangent + jnp.einsum("is,isa,isb->iab", kink, normal, normal)
    hessian = hessian + jnp.einsum("ij,iab->iajb", jnp.eye(width), curvature)

    bulk = own[:, None] * own * both[:, :width] + jnp.diag(kink.sum(axis=1))
    return gradient, hessian, bulk


def _directions(vectors: Float[Array, "... n"]) -> Float[Array, "... n"]:
    """Vectors of length one; zero where there is no direction, which then has no weight either."""
    lengths = jnp.linalg.norm(vectors, axis=-1, keepdims=True)
    return jnp.where(lengths > 0, vectors / jnp.where(lengths > 0, lengths, 1), 0)
