"""The constant learning rate that leaves the plateau with the fewest samples, and stays out."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..algorithms import OnlineSGD
from ..algorithms.online import check_online_sgd
from ..algorithms.schedules import Schedule
from ..batches import map_in_batches
from ..errors import InvalidInput, check_key, check_not_traced, positive_integer
from ..limits import ode
from ..problems import Problem
from ..solving import solve
from ..state import State
from .exit_times import (
    WITHOUT_NOISE,
    ExitEstimate,
    Fallen,
    check_threshold,
    deterministic_exits,
    estimated,
    exit_level,
    exits_of,
    number_of_starts,
    random_starts,
)
from .plateau import fixed_point, rest
from .uncertainty import standard_error

_SEARCH_STARTS = 8  # random starts that the best rate is searched with: it hardly depends on them...
_FEWEST_STARTS = 128  # ... but the exit time does, and is averaged over more
_GRID = 2.0 ** np.arange(-6.0, 6.01, 0.5)  # multiples of the guess that are tried before the search
_STAYS = 30.0  # times the exit time after which SGD with the smallest rate has come to its end state
_BESIDE = 0.02  # how far from the fastest rate, in its logarithm, the last scan reaches
_MARGINAL = 1e-5  # growth rates up to this, in units of the learning rate, are rounding along a family of end states


@dataclasses.dataclass(frozen=True, eq=False)
class BestLearningRate:
    """The best learning rate, from [`best_learning_rate`].

    - `learning_rate`: the rate with the fewest samples among rates whose end state is stable.
    - `exits`: its exit times from random starts by the ODE, an `ExitEstimate`; `exit_time`, `exit_time_error`: their
      mean in alpha, and its standard error.
    - `fastest`, `fastest_exits`, `fastest_exit_time`, `fastest_exit_time_error`: the same for the fewest samples to
      leave the plateau, whatever happens afterwards; the starts are the same.
    - `fastest_error`: the standard error of `fastest`, by how much the eight starts of the search differ.
    - `stable_below`: the largest rate found at which the learned state is stable; one 0.1% above is not.
    - `is_limited_by_stability`: whether the fastest rate is above `stable_below`, so that SGD leaves but does not
      learn.
    """

    learning_rate: float
    exits: ExitEstimate
    fastest: float
    fastest_error: float
    fastest_exits: ExitEstimate
    stable_below: float

    @property
    def exit_time(self) -> float:
        return self.exits.mean

    @property
    def exit_time_error(self) -> float:
        return self.exits.error

    @property
    def fastest_exit_time(self) -> float:
        return self.fastest_exits.mean

    @property
    def fastest_exit_time_error(self) -> float:
        return self.fastest_exits.error

    @property
    def is_limited_by_stability(self) -> bool:
        return self.fastest > self.stable_below

    def __repr__(self) -> str:
        fastest = f"{self.fastest:.5g} +- {self.fastest_error:.1g}"
        best = f"{self.learning_rate:.5g}" if self.is_limited_by_stability else fastest
        lines = [f"Best learning rate {best}: leaves the plateau at alpha = {self.exits!r}"]
        if self.exits.stay:
            lines.append(f"  {self.exits.stay:.1%} +- {self.exits.stay_error:.1%} of the starts do not leave it")
        if self.is_limited_by_stability:
            lines.append(
                f"  {fastest} would leave sooner (alpha = {self.fastest_exits!r}), but SGD does not learn with it: the "
                f"end state is stable below {self.stable_below:.5g} only"
            )
        else:
            lines.append(f"  its end state is stable (up to {self.stable_below:.5g})")
        return "\n".join(lines)


def best_learning_rate(
    problem: Problem, algorithm: OnlineSGD, d: int, threshold: float = 0.1, *, key: PRNGKeyArray
) -> BestLearningRate:
    r"""The constant learning rate with which the ODE leaves the plateau after the fewest samples, and stays out.

    The minimum of the exit time of the ODE (see [`exit_time`]), averaged over random starts in dimension d, is found
    by scans that narrow: many rates at a time are one program. A rate counts only if the learned state is stable: the
    end state of a small rate is followed as the rate grows, until a perturbation of it grows. For quadratic networks of
    width two and more the fastest rate leaves the plateau and then does not learn.
    Starts that do not leave at any rate do not count; with an odd link such as He3 these are the starts on the wrong
    side.

    The search uses eight starts: the best rate hardly depends on them. The exit time depends on them, and is averaged
    over 128 starts, or up to 1,024 if all averages are closed forms.

    Quadratic networks on the sphere have their fastest rate near $p / (2 k c)$, $c = 1/k + 1/p + 4/p^2 + \Delta/2$, and
    for k = 1 a stable end below $2 p / (12 + \Delta)$. Arnaboldi et al. 2023, Appendix C.4, has only the first, and a
    gain of overparameterisation of $(12 + \Delta)/(2 + \Delta)$; with a stable end it is at most $40 / (12 + \Delta)$.

    For schedules, and for other numbers than the rate, use [`best_protocol`].

    **Arguments:**

    - `problem`: what is learned.
    - `algorithm`: how; the search begins at its learning rate (and goes a factor of 64 both ways), the rest is kept.
    - `d`, `threshold`: as for [`exit_time`].
    - `key`: for the random starts.

    **Returns:** a [`BestLearningRate`].
    """
    check_not_traced("best_learning_rate", problem=problem, algorithm=algorithm, d=d, threshold=threshold, key=key)
    first_guess(algorithm)
    d = positive_integer(d, "d", minimum=2)
    check_threshold(threshold)
    check_key(key)
    return best_rate_from(problem, algorithm, many_starts(problem, algorithm, d, key), threshold)


def best_rate_from(problem: Problem, algorithm: OnlineSGD, every: State, threshold: float) -> BestLearningRate:
    """The best learning rate for these starts, along a leading axis; the search takes the first eight."""
    rates = first_guess(algorithm) * _GRID
    starts = _chosen(every, np.arange(_SEARCH_STARTS))
    level = _exit_level(problem, with_rate(algorithm, rates[0]), threshold)
    search = _search(problem, algorithm, starts, level, rates)
    exits = search.exits(rates)
    lowest = int(np.argmin(exits))
    if lowest in (0, len(rates) - 1):
        raise InvalidInput(
            f"The best learning rate lies outside {rates[0]:.3g} to {rates[-1]:.3g}; begin the search elsewhere."
        )
    fastest, fastest_error = search.minimum_near(rates[lowest])
    stable = search.stability_limit(rates, exits)
    best = min(fastest, stable)

    def exits_at(rate: float) -> ExitEstimate:
        limit, horizon = ode(problem, with_rate(algorithm, rate)), search.patience / rate
        times = deterministic_exits(limit, every, horizon, Fallen(problem, level))
        return estimated(times, float(horizon), WITHOUT_NOISE)

    at_fastest = exits_at(fastest)
    return BestLearningRate(
        learning_rate=best,
        exits=at_fastest if best == fastest else exits_at(best),
        fastest=fastest,
        fastest_error=fastest_error,
        fastest_exits=at_fastest,
        stable_below=stable,
    )


def first_guess(algorithm: OnlineSGD) -> float:
    """The learning rate where a search begins, or an error if it cannot begin there."""
    check_online_sgd(algorithm)
    rate = algorithm.learning_rate
    if isinstance(rate, Schedule) or not float(rate) > 0:
        raise InvalidInput("The algorithm needs a constant, positive learning rate, where the search begins.")
    return float(rate)


def with_rate(algorithm: OnlineSGD, rate) -> OnlineSGD:
    """The algorithm with another learning rate."""
    rate = rate if isinstance(rate, Schedule) else jnp.asarray(rate, float)
    return eqx.tree_at(lambda a: a.learning_rate, algorithm, rate)


def many_starts(problem: Problem, algorithm: OnlineSGD, d: int, key: PRNGKeyArray) -> State:
    """Random starts to average over, the first of them to search with."""
    return random_starts(problem, d, number_of_starts(ode(problem, algorithm), _FEWEST_STARTS), key=key)


def _exit_level(problem: Problem, algorithm: OnlineSGD, threshold: float) -> Float[Array, ""]:
    """The risk to fall to, from the plateau of a small learning rate: one level for all rates."""
    return jnp.asarray(exit_level(problem, problem.risk(rest(ode(problem, algorithm))), threshold))


def _exit(problem, algorithm, start: State, level, horizon):
    limit = ode(problem, algorithm)
    times = jnp.stack([jnp.zeros(()), jnp.asarray(horizon, float)])
    return exits_of(solve(limit, start, times, stop=Fallen(problem, level)))


def _exits(problem, algorithm, starts: State, level, rate, horizon):
    algorithm = with_rate(algorithm, rate)
    return map_in_batches(lambda start: _exit(problem, algorithm, start, level, horizon), starts)


class _Search(eqx.Module):
    """The exit time as a function of the learning rate, always for as many rates at once: one compilation."""

    problem: Problem
    algorithm: OnlineSGD
    starts: State
    level: Float[Array, ""]
    patience: Float[Array, ""]  # the time to wait at rate 1; a small rate takes inversely longer

    def exits(self, rates: np.ndarray) -> np.ndarray:
        """Mean exit time at each rate; infinite where a start does not leave."""
        return self.exits_by_start(rates).mean(axis=1)

    def exits_by_start(self, rates: np.ndarray) -> np.ndarray:
        """The same for each start, shape `(rates, starts)`."""
        return np.asarray(_exit_times(self, jnp.asarray(rates)))

    def minimum_near(self, rate: float) -> tuple[float, float]:
        """The rate with the least mean exit time, beside one of the grid, and its standard error.

        Exit times are smooth in the rate to about the tolerance of the solver: a cubic through a scan of `_BESIDE`
        both ways has its minimum within 1e-5 of theirs. The error is by how much the slopes of the starts differ there.
        """
        middle, half = np.log(rate), np.log(_GRID[1] / _GRID[0])
        while True:
            beside = np.linspace(-half, half, len(_GRID))
            exits = self.exits_by_start(np.exp(middle + beside))
            lowest = int(np.argmin(exits.mean(axis=1)))
            if half == _BESIDE and 0 < lowest < len(beside) - 1:
                break
            middle, half = middle + beside[lowest], max(half / 6, _BESIDE)
        if not np.isfinite(exits).all():  # next to rates that do not leave, where a cubic means nothing
            return float(np.exp(middle + beside[lowest])), np.inf
        curves = np.polynomial.polynomial.polyfit(beside, exits, 3)
        slope = np.polynomial.Polynomial(curves.mean(axis=1)).deriv()
        turns = slope.roots()
        least = float(turns[np.argmin(np.abs(turns - beside[lowest]))].real)
        fastest = float(np.exp(middle + least))
        slopes = np.polynomial.polynomial.polyval(least, np.polynomial.polynomial.polyder(curves))
        error = standard_error(slopes) / float(slope.deriv()(least)) if len(slopes) > 1 else np.inf
        return fastest, fastest * error

    def stability_limit(self, rates: np.ndarray, exits: np.ndarray) -> float:
        """The largest rate at which the end state of a small one, followed as the rate grows, is stable."""
        start = jax.tree.map(lambda leaf: leaf[0], self.starts)
        times = np.array([0.0, _STAYS * exits[0]])
        end = solve(ode(self.problem, with_rate(self.algorithm, rates[0])), start, times).final
        if not float(self.problem.risk(end)) < float(self.level):
            raise InvalidInput(
                f"Even at learning rate {rates[0]:.3g} the ODE does not stay below the exit level; begin the search "
                "lower, or take a network that can learn this."
            )
        low = float(rates[0])
        for _ in range(3):
            for rate in rates:
                state, growth = fixed_point(ode(self.problem, with_rate(self.algorithm, rate)), end)
                learned = float(self.problem.risk(state)) < float(self.level)
                if not (learned and float(growth) <= _MARGINAL * rate):
                    break
                low, end = float(rate), state
            else:
                return low
            # Between the last stable rate and the first that is not, on a finer grid; the first is known already.
            rates = np.geomspace(low, float(rate), len(rates))[1:]
        return low


def _search(problem, algorithm, starts: State, level, rates: np.ndarray) -> _Search:
    """The search among the starts that leave at the smallest rate, at the latest sixteen times later than the first."""
    patience, waited = 4.0, 0
    for _ in range(10):
        exits = _Search(problem, algorithm, starts, level, jnp.asarray(patience, float)).exits_by_start(rates)[0]
        leaves = np.isfinite(exits)
        waited += leaves.any()
        if leaves.all() or waited == 3:
            # Near the end of stability it takes much longer than at a small rate.
            enough = jnp.asarray(100 * exits[leaves].mean() * rates[0])
            return _Search(problem, algorithm, _chosen(starts, leaves), level, enough)
        patience *= 4
    raise InvalidInput(
        f"Even at learning rate {rates[0]:.3g} the ODE does not leave the plateau by alpha = {patience / rates[0]:.3g}."
    )


def _chosen(starts: State, which: np.ndarray) -> State:
    return jax.tree.map(lambda leaf: leaf[which], starts)


@eqx.filter_jit
def _exit_times(search: _Search, rates):
    arguments = (search.problem, search.algorithm, search.starts, search.level)
    return map_in_batches(lambda rate: _exits(*arguments, rate, search.patience / rate), rates)
