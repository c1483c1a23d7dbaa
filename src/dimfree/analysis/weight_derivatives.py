"""Gradient and Hessian of the population risk in the weights, in a frame of few directions."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..batches import map_in_batches
from ..errors import InvalidInput
from ..gaussian.expectation import expectation
from ..gaussian.relu import Relu
from ..gaussian.relu_curvature import relu_derivatives
from ..problems import FieldProblem, Problem, TwoLayer
from ..problems.field_problem import split_fields
from ..state import State


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
    companion: bool = False,
) -> Derivatives:
    """The derivatives by the best route that the problem has.

    **Arguments:**

    - `problem`, `readout`: what is learned, and the second layer.
    - `students`, `teachers`: in a frame that holds them all.
    - `companion`: by another quadrature of the kind, to estimate the error with.
    """
    if isinstance(problem, TwoLayer):
        weights = problem.output_weights(_state(students, teachers, readout))
        if is_relu(problem):
            return Derivatives(*relu_derivatives(jnp.concatenate([students, teachers]), weights, problem.width))
        if problem.knows_moments:
            return _through_overlaps(problem, readout, students, teachers)
        if problem.smooth:
            return _pair_derivatives(problem, weights, students, teachers, companion)
    if not isinstance(problem, FieldProblem) or problem.clusters is not None:
        if not (problem.smooth or problem.knows_moments):
            raise InvalidInput(
                "The Hessian of a loss with kinks is known for standard normal inputs only, and those of this problem "
                "come from clusters. Use a smooth activation."
            )
        return _through_overlaps(problem, readout, students, teachers)
    return _field_derivatives(problem, readout, students, teachers, companion)


_jitted_derivatives = eqx.filter_jit(weight_derivatives)


def is_relu(problem: Problem) -> bool:
    """Whether the second derivatives at coinciding students and teachers are those of ReLUs, which are known."""
    return isinstance(problem, TwoLayer) and isinstance(problem.activation.integrals, Relu)


def uses_quadrature(problem: Problem) -> bool:
    """Whether the derivatives are not in closed form."""
    return not (isinstance(problem, TwoLayer) and problem.knows_moments)


def _state(students, teachers, readout) -> State:
    return State(Q=students @ students.T, M=students @ teachers.T, P=teachers @ teachers.T, readout=readout)


def numerical_derivatives(problem, readout, students, teachers, companion=False) -> Derivatives:
    """The derivatives as numbers."""
    n, spare = students.shape[1], 0
    if isinstance(problem, TwoLayer):
        # Averages over two fields at a time do not care for empty directions: one compilation for all ranks.
        spare = max(len(students) + len(teachers) - n, 0)
    students, teachers = (np.pad(vectors, ((0, 0), (0, spare))) for vectors in (students, teachers))
    found = _jitted_derivatives(problem, readout, students, teachers, companion)
    gradient, full, bulk = (np.asarray(part) for part in found)
    return Derivatives(gradient[:, :n], full[:, :n, :, :n], bulk)


@eqx.filter_jit
def gradients(problem, readout, points, teachers):
    """The gradient at many weights."""
    return jax.lax.map(lambda point: weight_derivatives(problem, readout, point, teachers).gradient, points)


def _through_overlaps(problem, readout, students, teachers) -> Derivatives:
    """By autodiff of the risk as a function of the overlaps."""
    P = teachers @ teachers.T

    def gradient(X):
        def risk(Q, M):
            return problem.risk(State(Q, M, P, readout))

        slope_Q, slope_M = jax.grad(risk, argnums=(0, 1))(X @ X.T, X @ teachers.T)
        bulk = slope_Q + slope_Q.T
        value = bulk @ X + slope_M @ teachers
        return value, (value, bulk)

    full, (value, bulk) = jax.jacfwd(gradient, has_aux=True)(students)
    return Derivatives(value, full, bulk)


def _pair_derivatives(problem: TwoLayer, weights, students, teachers, companion) -> Derivatives:
    r"""For two-layer networks: averages over two fields at a time, in the plane of their two vectors.

    $H_{ij} = c_i c_j\, \mathbb{E}[g'(u_i) g'(u_j) x x^\top]
    + \delta_{ij} c_i \sum_s c_s\, \mathbb{E}[g''(u_i) g(u_s) x x^\top]$. The trapezoidal rule on the line converges
    geometrically for analytic activations, where Gauss-Hermite rules are slow.
    """
    width, vectors, own = problem.width, jnp.concatenate([students, teachers]), weights[: problem.width]
    step = 1 / 8
    line = step * (np.arange(-72, 72) + (0.5 if companion else 0.0))
    density = np.exp(-(line**2) / 2) / np.sqrt(2 * np.pi) * step
    moments = jnp.asarray(np.stack([density, density * line, density * line**2]))
    value = problem.activation.function
    slope = jax.grad(value)
    functions = [jax.vmap(jax.vmap(f)) for f in (value, slope, jax.grad(slope))]

    def pair(index):
        one, two = students[index // len(weights)], vectors[index % len(weights)]
        first = _direction(one)
        second = _direction(two - (two @ first) * first, 1e-12 * jnp.linalg.norm(two))
        along, across = two @ first, two @ second
        grid = jnp.broadcast_to(jnp.linalg.norm(one) * line[:, None], (len(line), len(line)))
        other = along * line[:, None] + across * line[None, :]
        output, other_slope = functions[0](other), functions[1](other)
        own_slope, own_curvature = functions[1](grid), functions[2](grid)
        plane = jnp.stack([first, second])
        rest = jnp.eye(vectors.shape[1]) - plane.T @ plane

        def square(average):
            # Average of h x x^T from those of h eta eta^T in the plane.
            inside = jnp.array([[average[2, 0], average[1, 1]], [average[1, 1], average[0, 2]]])
            return average[0, 0] * rest + plane.T @ inside @ plane, average[0, 0]

        def average(h):
            return moments @ h @ moments.T

        force = average(own_slope * output)
        gradient = jnp.array([force[1, 0], force[0, 1]]) @ plane
        return gradient, *square(average(own_slope * other_slope)), *square(average(own_curvature * output))

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


def _field_derivatives(problem: FieldProblem, readout, students, teachers, companion) -> Derivatives:
    """For any loss: averages over all directions of the frame."""
    n = students.shape[1]
    rule = problem.rule(fields=n)
    rule = rule.companion() if companion else rule
    vectors = jnp.concatenate([students, teachers])
    parameters = (problem, readout, vectors)
    if problem.smooth:
        return Derivatives(*expectation(_smooth_sample, jnp.eye(n), parameters, rule))
    gradient, cubic = expectation(_kinked_sample, jnp.eye(n), parameters, rule)
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
