"""The best protocol: any numbers and schedules of a problem and an algorithm, for any objective."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import ArrayLike
from scipy import optimize

from ..algorithms.online import OnlineAlgorithm, check_online
from ..batches import map_in_batches
from ..errors import InvalidInput, check_key, positive_integer, real_array, shown
from ..functions import Function, as_function
from ..limits import ode
from ..problems import Problem
from ..problems.base import check_problem
from ..simulation import exact_mean, simulate
from ..simulation.mean import why_no_mean
from ..solving import solve
from ..state import State
from ..trajectory import Outcome, Trajectory, check_start, first_of, save_alphas
from .controls import BATCH, Control, Pair, controls_of, present, with_batch
from .exit_times import Fallen, random_starts
from .uncertainty import standard_error

_STARTS = 8  # random starts that a search averages over
_FEWEST_STARTS = 128  # ... and that what it found is averaged over
_SCANNED = 24  # constants that are tried before the best are refined
_COARSE = 8  # knots that several searches begin with, before the best goes on with all
_SMALL = 1e-2  # first-order gain of moving by the whole range, relative, that counts as none
_FAR = 1e6  # the objective, over that of the best constants, where a run does not end


@dataclasses.dataclass(frozen=True, eq=False)
class Verification:
    """SGD with the best protocol beside SGD with the best constants, simulated exactly in law.

    - `d`, `runs`: of the simulation; every run of the one has a run of the other from the same start.
    - `constant`, `constant_error`, `best`, `best_error`: mean objectives, and their standard errors.
    - `gain`, `gain_error`: by how much the objective falls, on average over pairs.
    - `predicted_gain`: the same by theory, from the same starts.
    """

    d: int
    runs: int
    constant: float
    constant_error: float
    best: float
    best_error: float
    gain: float
    gain_error: float
    predicted_gain: float

    @property
    def deviation(self) -> float:
        """How far the gain is from the predicted one, in standard errors."""
        return (self.gain - self.predicted_gain) / self.gain_error

    @property
    def holds(self) -> bool:
        """Whether the gain is above zero by three standard errors."""
        return self.gain > 3 * self.gain_error

    def __repr__(self) -> str:
        verdict = "a gain" if self.holds else "not a gain by three standard errors"
        return (
            f"simulated at d = {self.d}, {self.runs} runs: {self.constant:.4g} +- {self.constant_error:.1g} -> "
            f"{self.best:.4g} +- {self.best_error:.1g}, {verdict}: {self.gain:.4g} +- {self.gain_error:.1g} "
            f"(predicted {self.predicted_gain:.4g}, {self.deviation:+.1f} standard errors)"
        )


@dataclasses.dataclass(frozen=True, eq=False)
class BestProtocol:
    """The best protocol, from [`best_protocol`].

    - `problem`, `algorithm`: with what was found put in; every other function takes them.
    - `objective`, `objective_error`: what was minimised, and its standard error where it is a mean over random starts.
    - `constant`: the best that has the same numbers and no schedules; as given, where numbers only were searched.
    - `controls`: what was searched, by name; `times` and `values` of each: `result.values["algorithm.learning_rate"]`.
    - `residual`: the first-order gain, relative to the objective, of moving everything that no bound blocks by its
      whole range. It is the integral of $|\\partial H / \\partial u|$ in Pontryagin's condition, and zero at an optimum.
    - `searches`: the objective at the end of each search from another begin, the lowest first.
    - `solves`: how many solves, with a gradient each, it took.
    - `verification`: of the gain, by simulation, after `verify`; else None.
    """

    problem: Problem
    algorithm: OnlineAlgorithm
    objective: float
    objective_error: float
    constant: "BestProtocol | None"
    residual: float
    searches: tuple[float, ...]
    solves: int
    constraints: Mapping[str, float]
    verification: Verification | None
    _plan: "_Plan"
    _x: Float[np.ndarray, " n"]

    @property
    def controls(self) -> tuple[str, ...]:
        return tuple(control.name for control in self._plan.controls)

    @property
    def times(self) -> dict[str, Float[np.ndarray, " knots"] | None]:
        return {each.name: None if each.times is None else np.asarray(each.times) for each in self._plan.controls}

    @property
    def values(self) -> dict[str, Any]:
        found = {}
        for control, part in zip(self._plan.controls, self._plan.split(self._x), strict=True):
            values = np.asarray(control.values(jnp.asarray(part)))
            found[control.name] = values.squeeze() if values.size > 1 else float(values.squeeze())
        return found

    @property
    def gain(self) -> float:
        """By how much the objective is lower than with the best constants."""
        assert self.constant is not None
        return self.constant.objective - self.objective

    @property
    def optimal(self) -> bool:
        """Whether the optimality condition holds: the residual is below 0.01."""
        return self.residual < _SMALL

    @property
    def sources(self) -> tuple[str, ...]:
        """The publications that it rests on, for `dimfree.cite`."""
        own = "bordelon2026" if self._plan.is_mean else "saad1997"
        return (*self.problem.sources, *self.algorithm.sources, own)

    @property
    def trajectory(self) -> Trajectory:
        """The theory with the best protocol, from the start given or the first of the random ones."""
        return self._plan.trajectory(Pair(self.problem, self.algorithm), first_of(self._plan.starts))

    @functools.cached_property
    def memory(self) -> int:
        """Bytes that a solve with its gradient takes, as the compiler says; the program is compiled for it again."""
        program = eqx.filter_jit(_slopes).lower(self._plan, jnp.asarray(self._x)).compile()
        return int(program.compiled.memory_analysis().temp_size_in_bytes)

    def verify(self, d: int | None = None, runs: int = 64, *, key: PRNGKeyArray) -> "BestProtocol":
        """The same, with its gain over the best constants simulated: SGD in dimension d, exactly in law.

        **Arguments:**

        - `d`: the dimension; if left out, that of the search.
        - `runs`, `key`: of pairs of runs, one with each protocol, from one start; and the random key.

        **Returns:** a [`BestProtocol`] with a `verification`.
        """
        check_key(key)
        d = positive_integer(self._plan.d if d is None else d, "d", minimum=2)
        runs = positive_integer(runs, "runs", minimum=2)
        assert self.constant is not None
        start_key, run_key = jax.random.split(key)
        plan = self._plan.from_starts(d, runs, start_key)
        both = [Pair(each.problem, each.algorithm) for each in (self.constant, self)]
        simulated = [plan.simulated(pair, d, runs, run_key) for pair in both]
        predicted = [plan.objectives(pair) for pair in both]
        gains = simulated[0] - simulated[1]
        found = Verification(
            d=d,
            runs=runs,
            constant=float(simulated[0].mean()),
            constant_error=standard_error(simulated[0]),
            best=float(simulated[1].mean()),
            best_error=standard_error(simulated[1]),
            gain=float(gains.mean()),
            gain_error=standard_error(gains),
            predicted_gain=float(predicted[0].mean() - predicted[1].mean()),
        )
        return dataclasses.replace(self, verification=found)

    def held(self, y: Float[np.ndarray, " numbers"]) -> "BestProtocol":
        """The same with a number in the place of each schedule that does not change."""
        controls = tuple(dataclasses.replace(control, times=None) for control in self._plan.controls)
        plan = dataclasses.replace(self._plan, controls=controls)
        batch = [control for control in controls if control.kind != "batch"]
        pair = plan.put(jnp.asarray(y))
        if len(batch) < len(controls):
            pair = Pair(pair.problem, self.algorithm)
        return dataclasses.replace(self, problem=pair.problem, algorithm=pair.algorithm, _plan=plan, _x=y)

    def __repr__(self) -> str:
        plan = self._plan
        error = f" +- {self.objective_error:.1g}" if np.isfinite(self.objective_error) else ""
        lines = [f"Best protocol up to alpha = {float(plan.times[-1]):g}: {plan.words} {self.objective:.5g}{error}"]
        for control in plan.controls:
            lines.append(f"  {control.name}: {_in_words(control, self.values[control.name])}")
        if self.constant is not None:
            kind = "with the best constants" if any(each.times is not None for each in plan.controls) else "as given"
            factor = f", {self.constant.objective / self.objective:.4g} times as much" if self.objective > 0 else ""
            lines.append(f"  {kind}: {self.constant.objective:.5g}{factor}")
            if kind.endswith("constants"):
                shown_constants = (f"{name} = {_short(value)}" for name, value in self.constant.values.items())
                lines.append(f"    {', '.join(shown_constants)}")
        for name, value in self.constraints.items():
            lines.append(f"  {name}: {value:.5g}")
        close = sum(each <= self.searches[0] + 0.01 * abs(self.searches[0]) for each in self.searches)
        holds = "holds" if self.optimal else "does not hold: let it search longer, or loosen the bounds"
        lines += [
            f"  optimality: residual {self.residual:.1e}, which {holds}; {close} of {len(self.searches)} searches came "
            "within 1% of the lowest",
            f"  {plan.theory}, gradients backwards through it; {self.solves} solves, {plan.number} "
            f"{'start' if plan.number == 1 else 'starts'} each",
        ]
        verified = "predicted by theory only; verify(d=..., runs=..., key=...) simulates it"
        lines.append(f"  {self.verification!r}" if self.verification else f"  {verified}")
        return "\n".join(lines)


def best_protocol(
    problem: Problem,
    algorithm: OnlineAlgorithm,
    alpha: float | ArrayLike | Array,
    over: Mapping[str, Any],
    objective: Callable[[Trajectory], Array] | None = None,
    *,
    start: State | None = None,
    d: int | None = None,
    until: float | None = None,
    constraints: Mapping[Any, tuple[float | None, float | None]] | None = None,
    searches: int = 3,
    key: PRNGKeyArray | None = None,
) -> BestProtocol:
    r"""The numbers and schedules of a problem and an algorithm that make an objective smallest.

    $$ \min_{u} \; \mathbb{E}_{\text{start}} \, \text{objective}(\text{State over } \alpha; u), \qquad
       \text{low} \le u(\alpha) \le \text{high} $$

    Theory is solved, and differentiated backwards through the solver, with as many checkpoints as the square root of
    its steps, so that memory does not grow with alpha or the number of controls. Schedules are linear between knots.
    A search (L-BFGS-B; SLSQP with constraints) begins with the best constants, with constants that fall at the end, and
    with random schedules, on eight knots; the best goes on with all.

    Theory is the [`ode`]; for least squares with `d`, the [`exact_mean`] in dimension d. On a plateau of vanishing
    overlap an optimum of the ODE from one start means little: leave out `start`, and the objective is averaged over
    eight random starts in dimension d, and reported over 128. A start at rest there is refused.

    A batch of B at learning rate $\eta$ is, as d grows, plain SGD at $\eta / B$ (`readout_rate` likewise): a schedule
    of batches $B(\alpha)$ is the learning rate $\eta / B(\alpha)$, and is found as one.

    **Arguments:**

    - `problem`, `algorithm`: what is learned, and how; what is searched is put into them.
    - `alpha`: where to end (201 even times are in the trajectory), or the increasing times.
    - `over`: what is searched, by names as those of axes in a study: `(low, high)` for a number, `(low, high, knots)`
      for a schedule with so many even knots, or knots at given times. `algorithm.` followed by a rate, `problem.` by
      any number of it; `algorithm.batch_size` is searched among real numbers and then rounded;
      `problem.probabilities` of [`Tasks`] are those of all but the first, each as a part of what later ones leave.
      Above a positive lower bound, logarithms are searched.
    - `objective`: a function of the [`Trajectory`] to a number; the final excess risk of `problem` as given if left
      out, whatever is searched in it.
    - `start`: one State; random ones if left out.
    - `d`: the dimension, for random starts and exact means.
    - `until`: a risk; the objective is then the alpha at which the risk falls to it.
    - `constraints`: by a name in `over`, bounds of its mean over its knots' times; by a function of the trajectory,
      bounds of that. `(low, high)`, None where there is none.
    - `searches`: from how many begins.
    - `key`: for random starts.

    **Returns:** a [`BestProtocol`]; it prints what was gained over the best constants, `plot.protocol` draws it, and
    `verify` simulates the gain.

    ??? example
        >>> import dimfree
        >>> problem = dimfree.TwoLayer(1, 1, activation="linear", noise=0.5)
        >>> start = dimfree.State(Q=[[0.0]], M=[[0.0]])
        >>> over = {"algorithm.learning_rate": (0.0, 1.0, 24)}
        >>> best = dimfree.best_protocol(problem, dimfree.OnlineSGD(0.1), 10.0, over, start=start)
        >>> round(best.constant.objective, 4), round(best.objective, 4)
        (0.0351, 0.0228)

    Saad & Rattray 1997, for the learning rate of committees; Bordelon & Mori 2026, for power laws.
    """
    check_problem(problem, "spectrum", "tokens", "change")
    check_online(algorithm)
    searches = positive_integer(searches, "searches")
    times = save_alphas(alpha)
    if not isinstance(times, np.ndarray):
        raise InvalidInput("alpha is traced; a search is not one program: call it outside of jit and vmap.")
    controls = controls_of(problem, algorithm, over, float(times[-1]))
    limits, bounded = _limits(constraints, controls)
    d = None if d is None else positive_integer(d, "d", minimum=2)
    is_mean = d is not None and until is None and not why_no_mean(problem, algorithm)
    if is_mean and any(control.kind == "batch" for control in controls):
        raise InvalidInput(f"over has {BATCH}, on which the clock of an exact mean depends; leave out d, for the ODE.")
    plan = _Plan(
        problem=problem,
        algorithm=algorithm,
        starts=_starts(problem, algorithm, start, d, key),
        times=jnp.asarray(times),
        controls=controls,
        objective=None if objective is None else as_function(objective),
        until=None if until is None else _level(problem, until),
        bounded=bounded,
        limits=limits,
        d=d,
        random=start is None,
        steps=tuple(times.tolist()) if is_mean else None,
    )
    return _Search(plan, key).best(searches)


def _limits(constraints: Any, controls: tuple[Control, ...]) -> tuple[tuple, tuple[Function, ...]]:
    """Bounds by name, those of means of controls first, and the functions that the others are of."""
    means, of_functions, functions = [], [], []
    for what, bounds in ({} if constraints is None else dict(constraints)).items():
        words = f"constraints: {shown(what)}: {shown(bounds)} was given; "
        if not isinstance(bounds, list | tuple) or len(bounds) != 2 or all(each is None for each in bounds):
            raise InvalidInput(f"{words}give (low, high), with None where there is no bound.")
        low, high = (
            side if each is None else float(real_array(each, "constraints"))
            for each, side in zip(bounds, (-np.inf, np.inf), strict=True)
        )
        if callable(what):
            functions.append(as_function(what))
            of_functions.append((functions[-1].__name__, low, high))
        elif what in [control.name for control in controls]:
            means.append((what, low, high))
        else:
            raise InvalidInput(f"{words}name one of {', '.join(each.name for each in controls)}, or pass a function.")
    return (*means, *of_functions), tuple(functions)


def _level(problem: Problem, until: Any) -> Float[Array, ""]:
    level = float(real_array(until, "until", "a risk"))
    floor = float(problem.at(0.0).irreducible_risk)
    if not level > floor:
        raise InvalidInput(
            f"until = {shown(until)} was given; the risk stays above {floor:.4g}, which no student avoids."
        )
    return jnp.asarray(level)


def _starts(problem: Problem, algorithm: OnlineAlgorithm, start: Any, d: int | None, key: Any) -> State:
    """The starts of a search, along a leading axis."""
    if start is None:
        if d is None or key is None:
            raise InvalidInput(
                "Neither a start nor d and key were given; pass start=dimfree.State(...), or d=1_000, "
                "key=jax.random.key(0) for random starts."
            )
        check_key(key)
        return random_starts(problem, d, _STARTS, key=key)
    begin = check_start(problem, start, trained=algorithm.readout_rate is not None)
    if not np.any(np.asarray(begin.M)):
        drift = ode(problem, algorithm).drift(0.0, begin)
        if not np.any(np.abs(np.asarray(drift.M)) > 1e-12):
            raise InvalidInput(
                "The start has no overlap with the teachers, and the ODE does not find any from there: its optimum "
                "means nothing. Leave out start and pass d and key, for an average over random starts in dimension d."
            )
    return jax.tree.map(lambda leaf: leaf[None], begin)


class _Plan(eqx.Module):
    """All that a search needs to know; arrays in it are traced, so that one program serves all of the same shapes."""

    problem: Problem
    algorithm: OnlineAlgorithm
    starts: State
    times: Float[Array, " times"]
    controls: tuple[Control, ...]
    objective: Function | None
    until: Float[Array, ""] | None
    bounded: tuple[Function, ...]
    limits: tuple[tuple[str, float, float], ...] = eqx.field(static=True)
    d: int | None = eqx.field(static=True)
    random: bool = eqx.field(static=True)
    steps: tuple[float, ...] | None = eqx.field(static=True)

    @property
    def is_mean(self) -> bool:
        """Whether theory is the exact mean, whose times must be known when it is compiled."""
        return self.steps is not None

    @property
    def words(self) -> str:
        if self.until is not None:
            return f"alpha at risk {float(self.until):.4g}"
        return (
            "final excess risk" if self.objective is None else self.objective.__name__.replace("<lambda>", "objective")
        )

    @property
    def theory(self) -> str:
        return f"exact mean at d = {self.d}" if self.is_mean else "ODE"

    @property
    def number(self) -> int:
        return self.starts.batch_shape[0]

    @property
    def size(self) -> int:
        return sum(control.size for control in self.controls)

    def split(self, x: Any) -> list[Any]:
        library = jnp if isinstance(x, jax.Array) else np
        return library.split(x, np.cumsum([control.size for control in self.controls])[:-1])

    def put(self, x: Float[Array, " n"]) -> Pair:
        whole = Pair(self.problem, self.algorithm)
        # Batches last: they are put around the algorithm.
        parts = sorted(zip(self.controls, self.split(x), strict=True), key=lambda each: each[0].kind == "batch")
        for control, part in parts:
            whole = control.put(whole, part)
        return whole

    @property
    def stop(self) -> Fallen | None:
        return None if self.until is None else Fallen(self.problem.at(self.times[-1]), self.until)

    def trajectory(self, pair: Pair, start: State) -> Trajectory:
        if self.steps is not None:
            assert self.d is not None
            return exact_mean(pair.problem, pair.algorithm, start, self.d, np.array(self.steps))
        return solve(ode(pair.problem, pair.algorithm), start, self.times, stop=self.stop)

    def of(self, run: Trajectory) -> Float[Array, ""]:
        """The objective of one trajectory."""
        if self.objective is not None:
            return jnp.asarray(self.objective(run), float)
        target = self.problem.at(self.times[-1])
        excess = target.risk(run.final) - target.irreducible_risk
        if self.until is None:
            return excess
        # Where the risk does not come down in time, the more is left the longer it is.
        late = self.times[-1] * (1 + jnp.log(jnp.maximum(excess / (self.until - target.irreducible_risk), 1.0)))
        return jnp.where(run.outcome == Outcome.STOPPED, jnp.nan_to_num(run.stopped_at), late)

    def measured(self, pair: Pair, start: State) -> Float[Array, " 1+bounded"]:
        run = self.trajectory(pair, start)
        found = jnp.stack([self.of(run), *(jnp.asarray(each(run), float) for each in self.bounded)])
        ended = (run.outcome == Outcome.COMPLETED) | (run.outcome == Outcome.STOPPED)
        return jnp.where(ended, found, jnp.nan)

    def objectives(self, pair: Pair) -> Float[np.ndarray, " starts"]:
        """The objective from each start."""
        return np.asarray(_objectives(self, pair))

    def from_starts(self, d: int, number: int, key: PRNGKeyArray) -> "_Plan":
        """The same from other random starts; from the same start, if it was given."""
        starts = random_starts(self.problem, d, number, key=key) if self.random else self.starts
        return dataclasses.replace(self, starts=starts, d=d)

    def simulated(self, pair: Pair, d: int, runs: int, key: PRNGKeyArray) -> Float[np.ndarray, " runs"]:
        """The objective of each of so many runs of SGD."""
        start = self.starts if self.random else first_of(self.starts)
        found = simulate(
            pair.problem, pair.algorithm, start, d, np.asarray(self.times), runs=runs, key=key, stop=self.stop
        )

        def one(state, outcome, stopped_at):
            changed = (state, outcome, stopped_at)
            return self.of(eqx.tree_at(lambda t: (t.state, t.outcome, t.stopped_at), found, changed))

        return np.asarray(jax.lax.map(lambda each: one(*each), (found.state, found.outcome, found.stopped_at)))


@eqx.filter_jit
def _objectives(plan: _Plan, pair: Pair) -> Float[Array, " starts"]:
    return map_in_batches(lambda start: plan.measured(pair, start)[0], plan.starts)


def _slopes(plan: _Plan, x: Float[Array, " n"]):
    """Objective and bounded functions, averaged over starts, with their derivatives."""

    def means(x):
        pair = plan.put(x)
        return jnp.mean(map_in_batches(lambda start: plan.measured(pair, start), plan.starts), axis=0)

    found, backwards = jax.vjp(means, x)
    if len(found) == 1:
        return found, backwards(jnp.ones(1))[0][None]
    return found, jax.lax.map(lambda each: backwards(each)[0], jnp.eye(len(found)))


_with_slopes = eqx.filter_jit(_slopes)


@eqx.filter_jit
def _means_of(plan: _Plan, x: Float[Array, " n"]):
    """Means of those controls that are bounded, with their derivatives."""

    def means(x):
        parts = dict(zip((control.name for control in plan.controls), plan.split(x), strict=True))
        controls = {control.name: control for control in plan.controls}
        return jnp.stack([controls[name].mean(parts[name]) for name, *_ in plan.limits if name in controls])

    return means(x), jax.jacrev(means)(x)


class _Search:
    """Searches of a plan, which count their solves."""

    def __init__(self, plan: _Plan, key: Any):
        self.plan, self.key, self.solves, self.scale = plan, key, 0, 1.0
        self.memory: dict[bytes, tuple] = {}

    def at(self, x: Float[np.ndarray, " n"]) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """The objective over `scale` and its slope, and what is bounded with theirs; far up where a run fails."""
        name = x.tobytes()
        if name not in self.memory:
            self.solves += 1
            found, slopes = (np.asarray(each) for each in _with_slopes(self.plan, jnp.asarray(x)))
            means, of_means = np.zeros(0), np.zeros((0, len(x)))
            if len(self.plan.limits) > len(self.plan.bounded):
                means, of_means = (np.asarray(each) for each in _means_of(self.plan, jnp.asarray(x)))
            if not (np.isfinite(found).all() and np.isfinite(slopes).all()):
                found, slopes = np.full_like(found, np.inf), np.zeros_like(slopes)
            self.memory = dict(list(self.memory.items())[-8:]) | {
                name: (found[0], slopes[0], np.append(means, found[1:]), np.concatenate([of_means, slopes[1:]]))
            }
        value, slope, bounded, of_bounded = self.memory[name]
        if not np.isfinite(value):
            return _FAR, slope, np.nan_to_num(bounded, posinf=_FAR), of_bounded
        return value / self.scale, slope / self.scale, bounded, of_bounded

    def minimised(self, begin: np.ndarray, basis: np.ndarray, most: int, least: float) -> tuple[float, np.ndarray]:
        """The lowest objective found, among x = basis @ y with y between 0 and 1, from y = begin.

        **Arguments:**

        - `most`: steps; `least`: relative gain of a step after which another is worth while.
        """
        bounds = [(0.0, 1.0)] * len(begin)
        lows, highs = (np.array([limit[side] for limit in self.plan.limits]) for side in (1, 2))

        def value(y):
            found, slope, _, _ = self.at(basis @ y)
            return found, basis.T @ slope

        if not len(lows):
            options = {"maxiter": most, "maxfun": 2 * most, "ftol": least, "gtol": 1e-9, "maxcor": 30}
            found = optimize.minimize(value, begin, jac=True, bounds=bounds, method="L-BFGS-B", options=options)
        else:
            sides = [
                {"type": "ineq", "fun": self._side(basis, sign, edge), "jac": self._side_slope(basis, sign, edge)}
                for sign, edge in ((1.0, lows), (-1.0, highs))
                if np.isfinite(edge).any()
            ]
            options = {"maxiter": most, "ftol": least}
            found = optimize.minimize(
                value, begin, jac=True, bounds=bounds, constraints=sides, method="SLSQP", options=options
            )
        return float(found.fun) * self.scale, np.clip(found.x, 0.0, 1.0)

    def _side(self, basis, sign, edge):
        kept = np.isfinite(edge)
        return lambda y: sign * (self.at(basis @ y)[2] - edge)[kept]

    def _side_slope(self, basis, sign, edge):
        kept = np.isfinite(edge)
        return lambda y: sign * (self.at(basis @ y)[3] @ basis)[kept]

    def best(self, searches: int) -> BestProtocol:
        plan, random = self.plan, np.random.default_rng(0)
        constants = _constants(plan)
        lowest, y = self._constants(constants)
        self.scale = abs(lowest) or 1.0
        x = constants @ y
        if not any(control.times is not None for control in plan.controls):
            return self._result(x, (lowest,), constants, self._as_given())
        constant = self._result(x, (lowest,), constants, None).held(y)
        coarse = _interpolation(plan, _COARSE)
        flat = np.linalg.lstsq(coarse, x, rcond=None)[0]
        found = []
        for number in range(searches):
            begin = flat if number == 0 else _shaped(plan, flat, number, random)
            found.append(self.minimised(np.clip(begin, 0.0, 1.0), coarse, 100, 1e-6))
        found.sort(key=lambda each: each[0])
        values = [value for value, _ in found]
        x = coarse @ found[0][1]
        for knots, steps, least in ((4 * _COARSE, 100, 1e-7), (plan.size, 400, 1e-9)):
            basis = _interpolation(plan, knots)
            begin = np.clip(np.linalg.lstsq(basis, x, rcond=None)[0], 0.0, 1.0)
            values[0], y = self.minimised(begin, basis, steps, least)
            x = basis @ y
        return self._result(x, tuple(values), basis, constant)

    def _constants(self, basis: np.ndarray) -> tuple[float, np.ndarray]:
        """The best constants: the best of a scan, made better."""
        number = basis.shape[1]
        if number == 1:
            tried = (np.arange(_SCANNED) + 0.5)[:, None] / _SCANNED
        else:
            tried = _scattered(number, _SCANNED + 8 * number)
        given = self._given()
        if given is not None:
            tried = np.concatenate([given[None], tried])
        values = np.array([self._penalised(basis @ y) for y in tried])
        if not (values < _FAR).any():
            raise InvalidInput(
                "With none of the constants tried does a run reach the end: the bounds allow too large a learning "
                "rate, or too small an alpha; take narrower bounds."
            )
        order = np.argsort(values)
        self.scale = abs(values[order[0]]) or 1.0
        found = [self.minimised(tried[index], basis, 60, 1e-13) for index in order[:2]]
        return min(found, key=lambda each: each[0])

    def _penalised(self, x: np.ndarray) -> float:
        value, _, bounded, _ = self.at(x)
        lows, highs = (np.array([limit[side] for limit in self.plan.limits]) for side in (1, 2))
        beyond = np.sum(np.maximum(lows - bounded, 0.0) + np.maximum(bounded - highs, 0.0)) if len(lows) else 0.0
        return value + (0.0 if beyond <= 1e-9 else _FAR / 2 * (1 + beyond))

    def _given(self) -> np.ndarray | None:
        """The coordinates of what is in the problem and the algorithm, one for each number."""
        parts = [present(Pair(self.plan.problem, self.plan.algorithm), control) for control in self.plan.controls]
        if any(part is None for part in parts):
            return None
        rows = zip(self.plan.controls, parts, strict=True)
        return np.concatenate([np.reshape(part, (control.rows, control.knots))[:, 0] for control, part in rows])

    def _as_given(self) -> BestProtocol | None:
        """The problem and the algorithm as they were given, where numbers only are searched."""
        given = self._given()
        if given is None:
            return None
        return self._reported(Pair(self.plan.problem, self.plan.algorithm), self.plan, given, None, np.nan, (), {})

    def _result(self, x, values, basis, constant) -> BestProtocol:
        """What a search ended with, as `basis @ y`."""
        plan = self.plan
        x, pair = self._whole_batch(x)
        bounded = self.at(x)[2].tolist()
        return self._reported(
            pair, plan, x, constant, self._residual(x, basis), values, dict(zip(self._names, bounded, strict=True))
        )

    def _reported(self, pair, plan, x, constant, residual, searches, constraints) -> BestProtocol:
        if plan.random:
            objectives = plan.from_starts(plan.d, _FEWEST_STARTS, jax.random.fold_in(self.key, 1)).objectives(pair)
        elif searches:
            objectives = np.array([self.at(x)[0] * self.scale])
        else:
            objectives = plan.objectives(pair)
        return BestProtocol(
            problem=pair.problem,
            algorithm=pair.algorithm,
            objective=float(objectives.mean()),
            objective_error=standard_error(objectives),
            constant=constant,
            residual=residual,
            searches=searches,
            solves=self.solves,
            constraints=constraints,
            verification=None,
            _plan=plan,
            _x=x,
        )

    def _whole_batch(self, x: np.ndarray) -> tuple[np.ndarray, Pair]:
        """The better of the whole numbers beside a real batch."""
        names = [control.name for control in self.plan.controls]
        if BATCH not in names:
            return x, self.plan.put(jnp.asarray(x))
        place = names.index(BATCH)
        offset = sum(control.size for control in self.plan.controls[:place])
        control = self.plan.controls[place]
        real = float(control.values(jnp.asarray(x[offset : offset + 1]))[0, 0])
        tried = []
        for batch in {max(int(np.floor(real)), 1), int(np.ceil(real))}:
            rounded = x.copy()
            rounded[offset] = control.coordinates(float(batch))[0]
            tried.append((self._penalised(rounded), batch, rounded))
        _, batch, rounded = min(tried)
        pair = self.plan.put(jnp.asarray(rounded))
        inner: Any = pair.algorithm
        return rounded, Pair(pair.problem, with_batch(inner.algorithm, batch))

    @property
    def _names(self) -> list[str]:
        return [name for name, *_ in self.plan.limits]

    def _residual(self, x: np.ndarray, basis: np.ndarray) -> float:
        """The first-order gain of moving by the whole range wherever no bound blocks, relative to the objective."""
        value, slope, bounded, of_bounded = self.at(x)
        slope, y = basis.T @ slope, np.linalg.lstsq(basis, x, rcond=None)[0]
        lows, highs = (np.array([limit[side] for limit in self.plan.limits]) for side in (1, 2))
        inside = (y > 1e-6) & (y < 1 - 1e-6)
        if len(lows):
            scale = 1e-5 * (1 + np.abs(bounded))
            active = (bounded < lows + scale) | (bounded > highs - scale)
            normals = (of_bounded @ basis)[active]
            multipliers = np.linalg.lstsq(normals[:, inside].T, slope[inside], rcond=None)[0]
            slope = slope - multipliers @ normals
        free = np.where(y <= 1e-6, slope < 0, np.where(y >= 1 - 1e-6, slope > 0, True))
        return float(np.abs(slope[free]).sum() / (abs(value) or 1.0))


def _constants(plan: _Plan) -> Float[np.ndarray, "n rows"]:
    """Coordinates of all knots from one for each number."""
    return _blocks([np.ones((control.knots, 1)) for control in plan.controls for _ in range(control.rows)])


def _interpolation(plan: _Plan, most: int) -> Float[np.ndarray, "n fewer"]:
    """Coordinates of all knots from those of at most so many of each schedule, linear between them."""
    blocks = []
    for control in plan.controls:
        fewer = min(control.knots, most)
        places = np.linspace(0.0, fewer - 1, control.knots)
        block = np.stack([np.interp(places, np.arange(fewer), row) for row in np.eye(fewer)], axis=1)
        blocks += [block] * control.rows
    return _blocks(blocks)


def _blocks(blocks: list[np.ndarray]) -> np.ndarray:
    whole = np.zeros(np.sum([block.shape for block in blocks], axis=0))
    row = column = 0
    for block in blocks:
        whole[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    return whole


def _shaped(plan: _Plan, flat: np.ndarray, number: int, random: np.random.Generator) -> np.ndarray:
    """Where a further search begins: the second with constants that fall at the end, others anywhere."""
    parts, place = [], 0
    for control in plan.controls:
        knots = min(control.knots, _COARSE)
        for _ in range(control.rows):
            part = flat[place : place + knots]
            if number == 1 and knots > 1:
                part = part * np.linspace(1.0, 0.0, knots) ** 0.5
            elif number > 1:
                part = part + random.normal(0.0, 0.25, knots)
            parts.append(part)
            place += knots
    return np.concatenate(parts)


def _scattered(dimensions: int, number: int) -> Float[np.ndarray, "number dimensions"]:
    """Points spread evenly over the cube, by their values in each dimension."""
    random = np.random.default_rng(1)
    return np.stack([random.permutation(number) + 0.5 for _ in range(dimensions)], axis=1) / number


def _short(value: Any) -> str:
    values = np.asarray(value)
    return f"{values:.4g}" if values.ndim == 0 else np.array2string(values, precision=3, threshold=6)


def _in_words(control: Control, value: Any) -> str:
    bounds = f"{float(control.low):g} to {float(control.high):g}"
    if control.times is None:
        return f"{_short(value)} (in {bounds})"
    values = np.atleast_2d(value)
    path = "; ".join(" -> ".join(f"{row[int(i)]:.3g}" for i in np.linspace(0, len(row) - 1, 5)) for row in values)
    return f"{path} ({control.knots} knots, in {bounds})"
