"""Where SGD gets stuck: the point at which the ODE comes to rest from students without overlap."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
from jaxtyping import Array, Float

from ..algorithms.online import OnlineAlgorithm
from ..algorithms.schedules import rate_at
from ..errors import InvalidInput, is_concrete
from ..limits import MeanLimit
from ..problems import Problem
from ..solving import solve
from ..state import State
from ..trajectory import Outcome

_AT_REST = 1e-4  # drift, in units of the learning rate, from which on the fixed point is found without waiting

_NOTHING_MOVES = 1e-30  # learning rate, whose square is lost beside itself and all that it is added to


def centre(problem: Problem) -> State:
    """The State that random starts scatter around: students of norm sqrt(d) without any overlap."""
    p, k = problem.width, problem.teacher_width
    return problem.inputs.over_blocks(problem.completed(State(Q=jnp.eye(p), M=jnp.zeros((p, k)))))


def check_moves(algorithm: OnlineAlgorithm) -> None:
    """Refuse a learning rate at which nothing moves: every State is at rest there, and a search finds any of them."""
    rate = rate_at(algorithm.learning_rate, jnp.zeros(()))
    if is_concrete(rate) and float(rate) < _NOTHING_MOVES:
        raise InvalidInput(
            f"learning_rate = {float(rate):g} was given; nothing moves, so every State is at rest. Take a larger one."
        )


def stillness(limit: MeanLimit, state: State) -> Float[Array, ""]:
    """Negative where the ODE still moves, zero or positive where it is about at rest: an event of the solver."""
    scale = rate_at(limit.algorithm.learning_rate, jnp.zeros(()))
    drift = limit.coordinates.pack(limit.drift(0.0, state))
    return jnp.log(_AT_REST * scale + 1e-300) - 0.5 * jnp.log(jnp.sum(drift**2) + 1e-300)


def rest(limit: MeanLimit) -> State:
    """The plateau: where the ODE comes to rest from `centre`.

    It may be a point without overlap (targets without a linear part), or one where all students are alike. An error
    says when there is none, because SGD learns at once or diverges.
    """
    check_moves(limit.algorithm)
    problem = limit.problem
    # A pytree, not a closure: another rate or noise is then no other program.
    at_rest = eqx.Partial(stillness, limit)
    scale = rate_at(limit.algorithm.learning_rate, jnp.zeros(()))
    start = centre(problem)
    if float(at_rest(start)) >= 0:
        return start
    horizon = 20.0 / max(float(scale), 1e-12)
    for _ in range(6):
        trajectory = solve(limit, start, np.array([0.0, horizon]), stop=at_rest)
        outcome, final = int(trajectory.outcome), trajectory.final
        if outcome == Outcome.DIVERGED:
            raise InvalidInput(
                f"There is no plateau: from students without overlap the norms diverge at alpha = "
                f"{float(trajectory.stopped_at):.4g}. Take a smaller learning rate, or sphere=True."
            )
        if outcome == Outcome.STOPPED:
            final, growth = fixed_point(limit, final)
            if float(jnp.max(jnp.abs(final.M))) > 1e-6 and float(growth) <= 1e-6 * float(scale):
                raise InvalidInput(
                    "There is no plateau: from students without overlap SGD goes straight to a stable end, with risk "
                    f"{float(problem.risk(final)):.4g}. Solving the ODE gives the time it takes."
                )
            return final
        horizon *= 3
    raise InvalidInput(
        f"From students without overlap the ODE does not come to rest by alpha = {horizon / 3:.4g}; "
        "an exit time needs a plateau to leave."
    )


@eqx.filter_jit
def fixed_point(limit: MeanLimit, near: State) -> tuple[State, Float[Array, ""]]:
    """The fixed point of the ODE near a State, and the fastest growth rate there (negative where it is stable).

    Levenberg-Marquardt, which a family of fixed points (rotations of the students) does not trouble.
    """
    coordinates = limit.coordinates

    def field(vector, _=None):
        return limit.vector_field(jnp.zeros(()), vector, near)

    solver = optimistix.LevenbergMarquardt(rtol=1e-12, atol=1e-12)
    found = optimistix.least_squares(field, solver, coordinates.pack(near), max_steps=200, throw=False).value
    growth = jnp.max(jnp.linalg.eigvals(jax.jacfwd(field)(found)).real)
    return coordinates.unpack(found, near), growth
