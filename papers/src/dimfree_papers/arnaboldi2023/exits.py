"""Exit times from the plateau of the sphere, on the source's clock: its formulas, SGD and the ODE."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from dimfree import (
    OnlineSGD,
    Outcome,
    PhaseRetrieval,
    Problem,
    State,
    Trajectory,
    TwoLayer,
    exit_time,
    random_state,
    simulate,
    solve,
)
from dimfree.limits import MeanLimit

from .checks import source_rate

# What is printed.


def linear_rates(p: int, rate: float, noise: float) -> tuple[float, float]:
    """omega_M and omega_Q of eqs. (45)-(47)."""
    of_m = 4 * (1 - rate / p * (1 + 1 / p + 4 / p**2 + noise / 2))
    return of_m, 8 / p * (1 - 8 * rate / p**2)


def annealed(p: int, d: float, rate: float, noise: float, threshold: float) -> float:
    """The exit time of eqs. (22), (28), (54)."""
    inside = (threshold * (p + 1) * d + (p + 1) * (1 - threshold)) / (2 * p)
    return np.log(inside) / (2 * linear_rates(p, rate, noise)[0])


def exit_from(p: int, d: float, rate: float, noise: float, threshold: float, mu, tau):
    """The exit time from one start, whose mean is the quenched one of eqs. (23), (28), (53), (55)."""
    inside = (threshold * p * (p + 1) * d + (2 * mu * p - tau) * (1 - threshold)) / (2 * mu * p)
    return np.log(inside) / (2 * linear_rates(p, rate, noise)[0])


def mu_and_tau(start: State, d: float) -> tuple[np.ndarray, np.ndarray]:
    """mu_0 and tau_0 of eq. (50), for one start or many."""
    Q, M = np.asarray(start.Q), np.asarray(start.M)
    off_diagonal = Q * (1 - np.eye(Q.shape[-1]))
    mu, tau = (np.asarray(d * np.sum(part**2, axis=(-2, -1))) for part in (M, off_diagonal))
    return mu, tau


def quenched(p: int, d: int, rate: float, noise: float, threshold: float) -> float:
    """The quenched exit time of eqs. (23), (28): the mean over 20000 random starts."""
    starts = random_starts(PhaseRetrieval(width=p), d, 20_000, key=jax.random.key(16))
    return float(np.mean(exit_from(p, d, rate, noise, threshold, *mu_and_tau(starts, d))))


# What SGD and its ODE do.


class Fallen(eqx.Module):
    """The event that the risk has fallen to `level`."""

    problem: Problem
    level: Array

    def __call__(self, state: State) -> Float[Array, ""]:
        return self.level - self.problem.risk(state)


def exit_level(problem: Problem, start: State, threshold: float) -> float:
    """Eq. (21): the risk that has lost the fraction `threshold` of its excess at the start."""
    floor = problem.irreducible_risk
    return float(floor + (1 - threshold) * (problem.risk(start) - floor))


def random_starts(problem: Problem, d: int, number: int, *, key: PRNGKeyArray) -> State:
    """Random starts in dimension d, along a leading axis."""
    return jax.vmap(lambda each: random_state(problem, d, key=each))(jax.random.split(key, number))


def _exits_of(trajectory: Trajectory) -> Float[Array, "*runs"]:
    """When each run reached its event; infinite where it did not."""
    return jnp.where(trajectory.outcome == Outcome.STOPPED, trajectory.stopped_at, jnp.inf)


@eqx.filter_jit
def _solve(limit: MeanLimit, starts: State, horizon: Float[Array, ""], stop: Fallen) -> Float[Array, " runs"]:
    def one(start: State) -> Float[Array, ""]:
        return _exits_of(solve(limit, start, jnp.stack([jnp.zeros(()), horizon]), stop=stop))

    return jax.vmap(one)(starts)


def typical_start(p: int, d: float) -> State:
    """All overlaps at the standard deviation of those of a random start."""
    return State(Q=np.eye(p) + d**-0.5 * (1 - np.eye(p)), M=np.full((p, 1), d**-0.5))


def mean_exits(p: int, d: int, rate_per_width: float, threshold: float, runs: int, *, key) -> dict[str, float]:
    """Mean exit times from random starts without label noise: measured, printed, and by the ODE with SGD's noise."""
    rate = rate_per_width * p
    problem, sgd = PhaseRetrieval(width=p), OnlineSGD(rate, sphere=True)
    found = exit_time(problem, sgd, d, threshold, runs=runs, key=key, methods=("dressed", "simulated"))
    assert found.simulated is not None
    assert found.dressed is not None
    return {
        "measured": rate_per_width * found.simulated.mean,
        "measured_error": rate_per_width * found.simulated.error,
        "stay": found.simulated.stay,
        "annealed": annealed(p, d, rate, 0.0, threshold),
        "quenched": quenched(p, d, rate, 0.0, threshold),
        "dressed": rate_per_width * found.dressed.mean,
    }


def plateau_level(problem: TwoLayer, threshold: float) -> float:
    """The risk of the plateau, its excess lowered by the fraction `threshold`."""
    p, k = problem.width, problem.teacher_width
    return exit_level(problem, State(Q=np.eye(p), M=np.zeros((p, k))), threshold)


def simulated_exits(limit: MeanLimit, d: int, level: float, until: float, runs: int, *, key) -> np.ndarray:
    """When runs of SGD from random starts first reach the level; infinite for those that do not `until` then."""
    problem, scale = limit.problem, source_rate(limit)
    start_key, run_key = jax.random.split(key)
    starts = random_starts(problem, d, runs, key=start_key)
    times = np.array([0.0, until / scale])
    stop = Fallen(problem, jnp.asarray(level))
    paths = simulate(problem, limit.algorithm, starts, d, times, runs=runs, key=run_key, stop=stop)
    return scale * np.asarray(_exits_of(paths))


def ode_exits(limit: MeanLimit, starts: State, level: float, until: float) -> np.ndarray:
    """The same for the ODE, from each of the starts."""
    scale = source_rate(limit)
    stop = Fallen(limit.problem, jnp.asarray(level))
    return scale * np.asarray(_solve(limit, starts, jnp.asarray(until / scale), stop))


def solved_exits(limit: MeanLimit, starts: list[State], threshold: float) -> list[float]:
    """When the ODE from each of these starts meets eq. (21)."""
    problem = limit.problem
    found = []
    for start in starts:
        level = exit_level(problem, start, threshold)
        found.append(float(ode_exits(limit, jax.tree.map(lambda leaf: leaf[None], start), level, until=40.0)[0]))
    return found
