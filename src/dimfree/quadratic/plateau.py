"""The plateau of quadratic networks: where it is, how fast norms reach it and how fast overlaps leave it."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from ..algorithms.schedules import number
from ..errors import InvalidInput, is_concrete, require, shown
from ..limits import MeanLimit
from ..limits.drift import check_mean_limit
from ..problems import Problem, TwoLayer
from ..problems.base import check_problem
from ..state import State
from ..trajectory import check_start


class Plateau(eqx.Module):
    r"""The fixed point that a quadratic network without any knowledge of the teacher stays near; see [`plateau`].

    **Attributes:**

    - `state`: the fixed point, $Q = q I$ and $M = 0$.
    - `risk`: mean loss of a fresh sample there.
    - `growth_rate`: small overlaps with the teacher grow as $M \propto e^{\text{growth\_rate} \, \alpha}$; where it is
      negative they decay, and nothing is learned.
    - `decay_rate`: overlaps among students, and differences of their norms, decay at this rate in alpha.
    - `norm_decay_rate`: a deviation of the mean norm decays at this rate in alpha; None on the sphere.
    """

    state: State
    risk: Float[Array, ""]
    growth_rate: Float[Array, ""]
    decay_rate: Float[Array, ""]
    norm_decay_rate: Float[Array, ""] | None


def plateau(limit: MeanLimit) -> Plateau:
    r"""The plateau of a quadratic network, in closed form: orthogonal students that know nothing of the teacher.

    With $g = \text{learning\_rate} / (p B)$, per unit of alpha, on the sphere ($q = 1$)

    $$ \text{growth\_rate} = 4 g \Big[ \frac1k
       - g \Big( \frac1k + \frac1p + \frac4{p^2} + \frac{\text{noise}}2 \Big) \Big], \qquad
       \text{decay\_rate} = \frac{8 g}p \Big( 1 - \frac{8 g}p \Big), $$

    and with free norms $q = y \, p / (p + 2)$,

    $$ y = \frac{1 + 2g - \sqrt D}{2 g \kappa}, \qquad D = (1 + 2g)^2 - 4 g \kappa (1 + g b), \qquad
       \kappa = \frac{p + 4}{p + 2}, \qquad b = 1 + \frac2k + \text{noise}, $$

    $$ \text{growth\_rate} = 2 g \Big( 1 - y + \frac2k \Big), \qquad
       \text{decay\_rate} = \frac{8 g q}p \Big[ 1 + 2 g \Big( 1 - q - \frac{4q}p \Big) \Big], \qquad
       \text{norm\_decay\_rate} = 4 g y \sqrt D. $$

    For gradient flow the terms of second order in g are absent: $q = p / (p + 2)$, the rates are
    $4g/k$, $8gq/p$ and $4g$.

    It holds for orthonormal teachers, $P = I$. Where $D < 0$ the norms have no fixed point and diverge (elsewhere
    they do so from beyond the other root of y).

    **Arguments:**

    - `limit`: from [`ode`] or [`gradient_flow`], of a `TwoLayer` with the activation `"square"` and readouts of ones.

    **Returns:** the plateau: its State, its risk and the rates there.

    Arnaboldi et al. 2023, eqs. (42)-(48), for k = 1 on the sphere. Bocchi et al. 2026, eqs. (10)-(12), for free norms
    at vanishing learning rate; overlaps of students decay there, while eq. (11) has them grow.

    ??? example
        >>> import dimfree
        >>> problem = dimfree.TwoLayer(6, 3, "square")
        >>> flow = dimfree.gradient_flow(problem, dimfree.OnlineSGD(learning_rate=0.02))
        >>> float(dimfree.quadratic.plateau(flow).state.Q[0, 0])
        0.75
    """
    problem, g = network_and_rate(limit)
    p, k, noise = problem.width, problem.teacher_width, problem.noise
    second = 1.0 if limit.second_order else 0.0
    if limit.algorithm.sphere:
        q = jnp.ones(())
        growth = 4 * g * (1 / k - second * g * (1 / k + 1 / p + 4 / p**2 + noise / 2))
        norm_decay = None
    else:
        linear, kappa, b = 1 + 2 * second * g, (p + 4) / (p + 2), 1 + 2 / k + noise
        discriminant = linear**2 - 4 * second * g * kappa * (1 + second * g * b)
        if is_concrete(discriminant):
            require(
                discriminant >= 0,
                f"There is no plateau: at learning_rate / batch_size = {float(g) * p:g} the norms have no fixed point "
                "and diverge. Take a smaller learning rate, or sphere=True.",
            )
        root = jnp.sqrt(discriminant)
        # The root of the docstring, in the form that is also right at g = 0.
        y = 2 * (1 + second * g * b) / (linear + root)
        q = y * p / (p + 2)
        growth = 2 * g * (1 - y + 2 / k)
        norm_decay = 4 * g * y * root
    decay = 8 * g * q / p * (1 + 2 * second * g * (1 - q - 4 * q / p))
    state = problem.completed(State(Q=q * jnp.eye(p), M=jnp.zeros((p, k))))
    return Plateau(state, problem.risk(state), growth, decay, norm_decay)


def norm_learning(limit: MeanLimit, start: State, alpha: ArrayLike | Array) -> State:
    r"""The way to the plateau at vanishing learning rate, in closed form: norms learn, overlaps stay small.

    With $g = \text{learning\_rate} / (p B)$, $c = (p + 2)/p$ and $q(0)$ the mean of the diagonal of $Q(0)$,

    $$ \frac1{q(\alpha)} = c + \Big( \frac1{q(0)} - c \Big) e^{-4 g \alpha}, \qquad
       M(\alpha) = M(0) \, e^{4 g \alpha / k} \sqrt{\frac{q(\alpha)}{q(0)}}, $$

    $$ Q(\alpha) = q(\alpha) I + \big( Q(0) - q(0) I \big) \, \frac{q(\alpha)}{q(0)}
       \Big[ 1 + c \, q(0) \big( e^{4 g \alpha} - 1 \big) \Big]^{-2/(p+2)}. $$

    It holds for $P = I$ while $M$ and $Q - q I$ are small, to first order in them.

    **Arguments:**

    - `limit`: from [`gradient_flow`], without `sphere`; otherwise as for [`plateau`].
    - `start`: the State at alpha = 0.
    - `alpha`: a time or an array of them; its axes become the leading axes of the result.

    **Returns:** the State at these times.

    Bocchi et al. 2026, eqs. (9), (10), whose solution this is.
    """
    problem, g = network_and_rate(limit)
    if limit.second_order or limit.algorithm.sphere:
        given = "sphere=True" if limit.algorithm.sphere else "the ODE at finite learning rate"
        raise InvalidInput(
            f"norm_learning was given {given}; its closed form is that of free norms at vanishing learning rate. "
            "Pass dimfree.gradient_flow(problem, algorithm) with sphere=False, or solve the limit."
        )
    start = check_start(problem, start, trained=False)
    check_orthonormal_teachers(start)
    p, k = problem.width, problem.teacher_width
    clock = (g * jnp.asarray(alpha, float))[..., None, None]
    first, c = jnp.trace(start.Q) / p, (p + 2) / p
    q = 1 / (c + (1 / first - c) * jnp.exp(-4 * clock))
    decayed = (1 + c * first * jnp.expm1(4 * clock)) ** (-2 / (p + 2))
    deviation = start.Q - first * jnp.eye(p)
    times, readout = clock.shape[:-2], start.readout
    return State(
        Q=q * jnp.eye(p) + deviation * (q / first) * decayed,
        M=start.M * jnp.exp(4 * clock / k) * jnp.sqrt(q / first),
        P=jnp.broadcast_to(start.P, (*times, k, k)),
        readout=None if readout is None else jnp.broadcast_to(readout, (*times, readout.shape[-1])),
    )


def check_quadratic(problem: Problem) -> TwoLayer:
    """The problem, or an error if it is not a quadratic network with equal readouts."""
    check_problem(problem)
    if not isinstance(problem, TwoLayer) or not problem.knows_second_moments:
        raise InvalidInput(
            f"problem = {shown(problem)} was given; these closed forms are those of quadratic networks, "
            'dimfree.TwoLayer(p, k, "square") or dimfree.PhaseRetrieval(p).'
        )
    if problem.normalisation != "mean":
        raise InvalidInput(
            f'The problem has normalisation={problem.normalisation!r}; these closed forms are for "mean". '
            "Rescale the weights and the learning rate, or solve the limit."
        )
    if is_concrete((problem.readout, problem.teacher_readout)):
        require(
            np.append(problem.readout, problem.teacher_readout) == 1,
            "The problem has readouts other than one; these closed forms are for readouts of ones. Solve the limit.",
        )
    return problem


def check_orthonormal_teachers(state: State) -> None:
    """An error if the teachers of a State are not orthonormal (traced values pass)."""
    if is_concrete(state.P):
        require(
            np.abs(np.asarray(state.P) - np.eye(state.teacher_width)) < 1e-10,
            "The teachers overlap or have different norms (P is not the identity); this closed form needs P = I.",
        )


def network_and_rate(limit: MeanLimit) -> tuple[TwoLayer, Float[Array, ""]]:
    """The quadratic network of a limit and learning_rate / (p B), or an error if more than plain SGD moves it."""
    check_mean_limit(limit)
    problem, algorithm = check_quadratic(limit.problem), limit.algorithm
    if algorithm.changes:
        raise InvalidInput("A rate is a function of alpha; these closed forms need one number. Solve the limit.")
    if algorithm.readout_rate is not None:
        raise InvalidInput("readout_rate was given; these closed forms are for a fixed readout. Solve the limit.")
    if is_concrete(algorithm.ridge):
        require(algorithm.ridge == 0, "ridge was given; these closed forms are without it. Solve the limit.")
    return problem, number(algorithm.learning_rate) / (algorithm.batch_size * problem.width)
