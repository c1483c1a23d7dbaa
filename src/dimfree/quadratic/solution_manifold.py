"""The critical points of a quadratic network: all of them, and those of zero risk, which one is found and how fast."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from ..errors import InvalidInput, is_concrete, positive_integer, require, shown
from ..limits import MeanLimit
from ..problems import Problem
from ..state import State
from .plateau import check_quadratic, network_and_rate


def critical_points(width: int, teacher_width: int) -> dict[tuple[int, int], State]:
    r"""All critical points of a quadratic network with equal readouts and orthonormal teachers, up to rotations.

    Those are: of the students in s teacher directions with squared norm $\alpha_1$, and in r directions orthogonal to
    all teachers with squared norm $\alpha_2$; any rotation of the students among themselves, and of the inputs among
    teachers or among the rest, gives another of the family.
    $$ \alpha_2 = \frac{p (1 - s/k)}{s + r + 2}, \quad \alpha_1 = \alpha_2 + \frac pk, \quad
       R = \frac{k - s}{k^2} + \frac{(1 - s/k)^2}{s + r + 2} + \frac{\text{noise}}{2}, \qquad
       s \le k, \; s + r \le p . $$
    In dimension d those with $r \le d - k$ exist. Solutions are s = k; the plateau is s = 0, r = p.

    **Arguments:**

    - `width`, `teacher_width`: p and k, of `TwoLayer(p, k, "square")`.

    **Returns:** the States, by (s, r).

    Bocchi et al. 2026, eqs. (27)-(30), list those with s = 0 or r = 0; the condition for $\alpha$ below (30) lacks a
    factor $\alpha$.
    """
    p, k = positive_integer(width, "width"), positive_integer(teacher_width, "teacher_width")
    points = {}
    for s in range(min(p, k) + 1):
        for r in range(p - s + 1 if s < k else 1):
            orthogonal = p * (1 - s / k) / (s + r + 2)
            aligned = orthogonal + p / k
            norms = np.concatenate([np.full(s, aligned), np.full(r, orthogonal), np.zeros(p - s - r)])
            points[s, r] = State(Q=np.diag(norms), M=np.sqrt(aligned) * np.eye(p, s) @ np.eye(s, k))
    return points


def degrees_of_freedom(width: int, d: int) -> int:
    r"""Dimension of the set of functions that a quadratic network of width p in dimension d can be.

    The function is that of the d x d matrix $W^\top W$, so

    $$ p d - p(p - 1)/2 \ \text{ for } p \le d, \qquad d(d + 1)/2 \ \text{ beyond.} $$

    **Arguments:**

    - `width`: p.
    - `d`: the dimension.

    **Returns:** the dimension.

    Bocchi et al. 2026, section 7.5.1.
    """
    p, d = positive_integer(width, "width"), positive_integer(d, "d")
    rank = min(p, d)
    return rank * d - rank * (rank - 1) // 2


def solution_manifold_dimension(width: int, teacher_width: int, d: int) -> int:
    r"""Dimension of the set of weights of a student that equals a quadratic teacher everywhere.

    The solutions are the rotations $R W$ of one of them. With $r = \min(k, d)$ the rank of the teacher,

    $$ \frac{p(p-1)}2 - \frac{(p - r)(p - r - 1)}2 = p r - \frac{r (r + 1)}2 . $$

    **Arguments:**

    - `width`, `teacher_width`: p and k; the teachers are independent.
    - `d`: the dimension.

    **Returns:** the dimension.

    Bocchi et al. 2026, section 7.5.2.
    """
    p, k = positive_integer(width, "width"), positive_integer(teacher_width, "teacher_width")
    d = positive_integer(d, "d")
    rank = min(k, d)
    if p < rank:
        raise InvalidInput(f"A student of width p = {p} cannot equal a teacher of rank {rank}: there is no solution.")
    return p * rank - rank * (rank + 1) // 2


def conserved_frame(state: State) -> Float[Array, "*batch p k"]:
    r"""The frame of the students in the space of the teachers, $S = M (M^\top M)^{-1/2}$, with $S^\top S = I$.

    It is conserved along the ODE of a quadratic network with free norms, exactly and at every learning rate, if $P = I$
    and $Q(0)$ is a matrix function of $M(0) M(0)^\top$, such as $q I$: then a singular basis of $M(0)$ diagonalises
    both at all times, and only the singular values move. Otherwise it is conserved approximately: students of unequal
    norm, or with the overlaps $d^{-1/2}$ of random ones, move it.

    **Arguments:**

    - `state`: a State with `p >= k` and M of full column rank; leading axes are kept.

    **Returns:** S, shape `(..., p, k)`.

    Bocchi et al. 2026, eq. (22), where the closure of $Q$ is an assumption; it is a theorem.
    """
    if not isinstance(state, State):
        raise InvalidInput(f"state = {shown(state)} was given; pass dimfree.State(Q=..., M=...).")
    if state.width < state.teacher_width:
        raise InvalidInput(
            f"The State has p = {state.width} students and k = {state.teacher_width} teachers; a frame needs p >= k."
        )
    left, values, right = jnp.linalg.svd(state.M, full_matrices=False)
    if is_concrete(values):
        singular = np.asarray(values)
        require(
            singular[..., -1] > 1e-12 * singular[..., 0],
            "The State's M has not full column rank: some combination of the teachers is in no student, so no solution "
            "is closest.",
        )
    return left @ right


def closest_solution(problem: Problem, start: State) -> State:
    r"""The zero-risk State whose weights are closest to those of a start, in Euclidean distance.

    $$ M = \sqrt{p/k} \, S P, \qquad Q = \frac pk \, S P S^\top, \qquad S = M_0 (M_0^\top M_0)^{-1/2}. $$

    It is where the dynamics without noise ends if $S$ is conserved ([`conserved_frame`] says when), and near to it
    otherwise.

    **Arguments:**

    - `problem`: a `TwoLayer` with the activation `"square"`, readouts of ones, and `p >= k`.
    - `start`: a State with M of full column rank; leading axes are kept.

    **Returns:** that State, with the leading axes of the start.

    Bocchi et al. 2026, eqs. (19)-(21), for $P = I$.
    """
    problem = check_quadratic(problem)
    if not isinstance(start, State):
        raise InvalidInput(f"start = {shown(start)} was given; pass dimfree.State(Q=..., M=...).")
    if (start.width, start.teacher_width) != (problem.width, problem.teacher_width):
        raise InvalidInput(
            f"The start has p = {start.width} and k = {start.teacher_width}, the problem p = {problem.width} and "
            f"k = {problem.teacher_width}."
        )
    scaled = jnp.sqrt(problem.width / problem.teacher_width) * conserved_frame(start)
    M = scaled @ start.P
    return State(Q=M @ jnp.swapaxes(scaled, -1, -2), M=M, P=start.P, readout=start.readout)


def late_risk(limit: MeanLimit, alpha: ArrayLike | Array) -> Float[Array, "*times"]:
    r"""The risk at late times of a network wider than its teacher, which falls as a power of alpha.

    With $g = \text{learning\_rate} / (p B)$,

    $$ \text{risk} \simeq \frac{(p - k)(k + 2)}{64 \, (p + 2)} \, \frac{1}{(g \alpha)^2} \,
       \frac{1 - 4g/k}{1 - 2g - 4g/k}, $$

    the last factor being one for gradient flow. The $p - k$ directions that the teacher does not use shrink only as
    $q_\perp \simeq p (k + 2) / (8 (p + 2) g \alpha)$, since the risk is quartic in their weights; the last factor is
    the noise that SGD itself makes on the way. It holds for free norms, $P = I$, no noise, and any start with all
    directions in it, and needs $g < k / (2 (k + 2))$: beyond, no solution is stable. For $p = k$ the risk falls
    exponentially.

    **Arguments:**

    - `limit`: from [`ode`] or [`gradient_flow`], of a `TwoLayer` with the activation `"square"`, readouts of ones, no
      noise and `p > k`, without `sphere`.
    - `alpha`: a time, or an array of them.

    **Returns:** the risk at these times.

    Not in Bocchi et al. 2026, whose section 7.2.3 has the flat directions behind it.
    """
    problem, g = network_and_rate(limit)
    p, k = problem.width, problem.teacher_width
    if p <= k:
        raise InvalidInput(f"p = {p} and k = {k} were given; the power law is for students wider than the teacher.")
    if limit.algorithm.sphere:
        raise InvalidInput("sphere=True was given; the power law is that of free norms.")
    if is_concrete(problem.noise):
        require(problem.noise == 0, f"noise = {problem.noise} was given; with noise the risk ends at a floor above it.")
    factor = 1.0
    if limit.second_order:
        if is_concrete(g):
            require(
                2 * g * (1 + 2 / k) < 1,
                f"learning_rate / batch_size = {float(g) * p:g} was given; no solution is stable from "
                f"{p * k / (2 * (k + 2)):g} on. Take a smaller learning rate.",
            )
        factor = (1 - 4 * g / k) / (1 - 2 * g - 4 * g / k)
    return factor * (p - k) * (k + 2) / (64 * (p + 2)) / (g * jnp.asarray(alpha, float)) ** 2
