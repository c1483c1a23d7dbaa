"""Critical points of the population risk of any problem, found numerically."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
from jaxtyping import PRNGKeyArray

from ..batches import map_in_batches
from ..errors import InvalidInput, check_key, check_not_traced, flag, positive_integer
from ..problems import Problem
from ..problems.base import check_problem
from ..state import State
from .landscape import HessianSpectrum, hessian
from .weight_derivatives import derivative_rule, is_relu, numerical_derivatives, weight_derivatives

_CONVERGED = 1e-9  # norm of the gradient, relative to the size of the Hessian
_SAME = 1e-5  # invariants that agree to this are those of one critical point
_MAX_STEPS = 300
_FAR = 1e3  # norms beyond this are those of a run to infinity, where a bounded activation has no gradient


def critical_points(
    problem: Problem, d: int, *, key: PRNGKeyArray, starts: int = 64, sphere: bool = False
) -> list[tuple[State, HessianSpectrum]]:
    r"""Critical points of the population risk, each with the spectrum of its Hessian, in increasing order of risk.

    Levenberg-Marquardt on $\nabla R = 0$ in the min(p + k, d) directions that matter, from random weights of many
    norms, with orthonormal teachers. It finds saddles as easily as minima. Points that symmetries carry into each other
    (the same risk, the same eigenvalues of the overlaps and of the Hessian) are listed once; of a family that no
    symmetry explains, such as parallel ReLUs that share their sum, every point that was found. A search is no proof:
    with more `starts` there may be more.

    **Arguments:**

    - `problem`: what is learned; its loss must be smooth, or the network one of ReLUs.
    - `d`: the dimension, for the multiplicities (and as a bound on the rank of the weights).
    - `key`: random key of the starts.
    - `starts`: how many.
    - `sphere`: whether every student is kept at norm $\sqrt d$.

    **Returns:** a list of pairs, a [`State`] and its [`HessianSpectrum`].

    ??? example
        >>> import dimfree, jax
        >>> for state, spectrum in dimfree.critical_points(dimfree.PhaseRetrieval(), d=100, key=jax.random.key(0)):
        ...     print(f"{spectrum.risk:z.4f}", spectrum.kind)
        0.0000 minimum
        1.3333 saddle of index 1
        1.5000 maximum
    """
    check_not_traced("critical_points", problem=problem, key=key)
    d, starts, sphere = positive_integer(d, "d"), positive_integer(starts, "starts"), flag(sphere, "sphere")
    check_problem(problem)
    if not (problem.smooth or is_relu(problem)):
        raise InvalidInput(
            "This loss has kinks, and averages over sampled fields are then not a smooth function of the weights that "
            "could be searched for critical points. Use a smooth loss, or TwoLayer with activation='relu'."
        )
    width, k = problem.width, problem.teacher_width
    if d < k:
        raise InvalidInput(f"{k} orthogonal teachers do not fit in d = {d} dimensions; take d >= {k}.")
    n = min(width + k, d)
    teachers = jnp.eye(k, n)
    check_key(key)
    direction_key, norm_key = jax.random.split(key)
    weights = jax.random.normal(direction_key, (starts, width, n))
    weights = weights / jnp.linalg.norm(weights, axis=-1, keepdims=True)
    if not sphere:
        # From much smaller to somewhat larger than the teachers, all students of a start alike.
        weights = weights * jnp.exp(jax.random.uniform(norm_key, (starts, 1, 1), minval=-3.0, maxval=1.0))
    ends = np.asarray(_search(problem, weights, teachers, sphere, starts if derivative_rule(problem) is None else 1))
    candidates = [_candidate(problem, end, np.asarray(teachers), sphere) for end in ends]
    points: list[tuple[State, HessianSpectrum]] = []
    seen: list[np.ndarray] = []
    # Of several ends at one point the best converged is kept.
    for _, state, invariant in sorted((c for c in candidates if c is not None), key=lambda c: c[0]):
        if not any(np.all(np.abs(invariant - other) < _SAME * (1 + np.abs(other))) for other in seen):
            seen.append(invariant)
            points.append((state, hessian(problem, state, d, sphere=sphere)))
    return sorted(points, key=lambda point: point[1].risk)


@eqx.filter_jit
def _search(problem, weights, teachers, sphere: bool, batch_size: int):
    """Where Levenberg-Marquardt ends from each start."""

    def residual(moving, _):
        if not sphere:
            return _gradient(moving, problem=problem, teachers=teachers)
        norms = jnp.linalg.norm(moving, axis=1, keepdims=True)
        gradient = _gradient(moving / norms, problem=problem, teachers=teachers)
        # The norm that the sphere leaves open is held at one.
        return _tangent(gradient, moving / norms), norms - 1

    solver = optimistix.LevenbergMarquardt(rtol=1e-10, atol=1e-10)
    # Where the gradient vanishes to third order a full step leaves 30 % of it: success enough to damp less.
    search = optimistix.ClassicalTrustRegion(high_cutoff=0.3, high_constant=5.0, low_constant=0.5)
    solver = eqx.tree_at(lambda s: s.search, solver, search)

    def descend(start):
        end = optimistix.least_squares(residual, solver, start, max_steps=_MAX_STEPS, throw=False).value
        return end / jnp.linalg.norm(end, axis=1, keepdims=True) if sphere else end

    return map_in_batches(descend, weights, batch_size)


def _tangent(gradient, students):
    return gradient - (gradient * students).sum(axis=1, keepdims=True) * students


def _candidate(problem: Problem, end, teachers, sphere: bool) -> tuple[float, State, np.ndarray] | None:
    """Gradient, State, and numbers that rotations and permutations do not change; None if this is no critical point."""
    if not np.abs(end).max() < _FAR:
        return None
    if is_relu(problem) and np.linalg.norm(end, axis=1).min() < 1e-6:
        return None  # there is no Hessian where a student vanishes
    found = numerical_derivatives(problem, problem.readout, end, teachers)
    curvature = np.linalg.eigvalsh(found.hessian.reshape(end.size, end.size))
    gradient = np.linalg.norm(_tangent(found.gradient, end) if sphere else found.gradient)
    if not gradient < _CONVERGED * max(1, np.abs(curvature).max()):
        return None
    state = State(Q=end @ end.T, M=end @ teachers.T, readout=problem.readout)
    invariants = (
        [problem.risk(state)],
        np.linalg.eigvalsh(state.Q),
        np.linalg.svd(state.M, compute_uv=False),
        np.linalg.eigvalsh(state.covariance),
        curvature,
    )
    return float(gradient), state, np.concatenate(invariants)


@eqx.filter_custom_jvp
def _gradient(weights, *, problem, teachers):
    return weight_derivatives(problem, problem.readout, weights, teachers).gradient


@_gradient.def_jvp
def _gradient_jvp(primals, tangents, *, problem, teachers):
    # The Hessian that is known, right where autodiff through the gradient is not (ReLUs that coincide).
    (weights,), (change,) = primals, tangents
    found = weight_derivatives(problem, problem.readout, weights, teachers)
    return found.gradient, jnp.einsum("iajb,jb->ia", found.hessian, change)
