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

from ..algorithms.online import OnlineAlgorithm, check_online
from ..errors import InvalidInput, check_key, check_not_traced, positive_integer, real_array, shown
from ..functions import Function, as_function
from ..limits import ode
from ..problems import Problem
from ..problems.base import check_problem
from ..simulation.mean import why_no_mean
from ..state import State
from ..trajectory import Trajectory, check_start, first_of, save_alphas
from .controls import BATCH, Control, Pair, controls_of
from .exit_times import random_starts
from .protocol_plans import Plan, slopes
from .protocol_search import Found, Search, whole
from .uncertainty import standard_error

_STARTS = 8  # random starts that a search averages over
_FEWEST_STARTS = 128  # ... and that what it found is averaged over
_SMALL = 1e-2  # first-order gain of moving by the whole range, relative, that counts as none


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

    - `problem`, `algorithm`: with the best values; every other function takes them.
    - `objective`, `objective_error`: the minimum, and its standard error if it is a mean over random starts.
    - `constant`: the best protocol with the same numbers and without schedules; as given, if only numbers were
      searched. None if no constants satisfy the constraints.
    - `late`: with `until`, how many of the starts do not reach the risk by the last alpha; each counts as
      alpha (1 + log(excess risk / wanted excess risk)) there.
    - `controls`: what was searched, by name; `times` and `values` of each: `result.values["algorithm.learning_rate"]`.
    - `residual`: the first-order gain, relative to the objective, of moving everything that no bound blocks by its
      whole range: zero at an optimum. For schedules it is the integral of the derivative in Pontryagin's condition.
    - `searches`: the objective at the end of each search, the lowest first.
    - `solves`: the number of solves, each with a gradient.
    - `verification`: of the gain, by simulation, after `verify`; else None.
    """

    problem: Problem
    algorithm: OnlineAlgorithm
    objective: float
    objective_error: float
    late: int
    constant: "BestProtocol | None"
    residual: float
    searches: tuple[float, ...]
    solves: int
    constraints: Mapping[str, float]
    verification: Verification | None
    _plan: "Plan"
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
        return self._compared.objective - self.objective

    @property
    def _compared(self) -> "BestProtocol":
        if self.constant is None:
            raise InvalidInput(
                "There are no constants to compare with: none satisfy the constraints, or none were given."
            )
        return self.constant

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
        jitted: Any = eqx.filter_jit(slopes)
        program = jitted.lower(self._plan, jnp.asarray(self._x)).compile()
        return int(program.compiled.memory_analysis().temp_size_in_bytes)

    def verify(self, d: int | None = None, runs: int = 64, *, key: PRNGKeyArray) -> "BestProtocol":
        """The same, with its gain over the best constants simulated: SGD in dimension d, exactly in law.

        **Arguments:**

        - `d`: the dimension; if left out, the dimension of the search.
        - `runs`, `key`: of pairs of runs, one with each protocol, from one start; and the random key.

        **Returns:** a [`BestProtocol`] with a `verification`.
        """
        check_key(key)
        d = positive_integer(self._plan.d if d is None else d, "d", minimum=2)
        runs = positive_integer(runs, "runs", minimum=2)
        compared = self._compared
        start_key, run_key = jax.random.split(key)
        plan = self._plan.from_starts(d, runs, start_key)
        both = [Pair(each.problem, each.algorithm) for each in (compared, self)]
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

    def to_xarray(self) -> Any:
        """The result as a Dataset: each schedule over its own times, each number as a scalar, and the best constants
        beside them."""
        import xarray

        found: dict[str, Any] = {}
        for control, part in zip(self._plan.controls, self._plan.split(self._x), strict=True):
            name, rows = control.name, tuple(f"{control.name} {axis}" for axis, _ in enumerate(control.shape))
            values = np.asarray(control.values(jnp.asarray(part)))
            if control.times is None:
                found[name] = (rows, values.reshape(control.shape))
                continue
            over = f"alpha of {name}"
            found[over] = (over, np.asarray(control.times))
            found[name] = ((*rows, over), values.reshape(*control.shape, control.knots))
            if self.constant is not None:
                found[f"constant {name}"] = (rows, np.reshape(self.constant.values[name], control.shape))
        known = {"objective": self.objective, "objective_error": self.objective_error, "residual": self.residual}
        attrs = {"problem": repr(self.problem), "algorithm": repr(self.algorithm), **known}
        if self.constant is not None:
            attrs["constant_objective"] = self.constant.objective
        return xarray.Dataset(found, attrs=attrs)

    def __repr__(self) -> str:
        plan = self._plan
        error = f" +- {self.objective_error:.1g}" if np.isfinite(self.objective_error) else ""
        lines = [f"Best protocol up to alpha = {float(plan.times[-1]):g}: {plan.words} {self.objective:.5g}{error}"]
        if self.late:
            lines.append(
                f"  {_late_in_words(self)} not there by alpha = {float(plan.times[-1]):g} and count as later, the more "
                "the higher the risk is: give a larger alpha"
            )
        for control in plan.controls:
            lines.append(f"  {control.name}: {_in_words(control, self.values[control.name])}")
        if self.constant is not None:
            kind = "with the best constants" if any(each.times is not None for each in plan.controls) else "as given"
            factor = f", {self.constant.objective / self.objective:.4g} times as much" if self.objective > 0 else ""
            lines.append(f"  {kind}: {self.constant.objective:.5g}{factor}")
            if kind.endswith("constants"):
                shown_constants = (f"{name} = {_short(value)}" for name, value in self.constant.values.items())
                lines.append(f"    {', '.join(shown_constants)}")
        elif self.constraints:
            lines.append("  no constants keep the constraints")
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

    Theory is the [`ode`], differentiated backwards from a bounded number of checkpoints, so that memory does not grow
    with alpha; for least squares with `start` and `d` it is the [`exact_mean`] in dimension d, step by step, from as
    many checkpoints as the square root of the steps. Schedules are linear between knots. A search (L-BFGS-B; SLSQP with
    constraints) begins with the best constants, with constants that fall at the end, and with random schedules, on
    eight knots; the best of them continues with all knots.

    On a plateau of vanishing overlap an optimum of the ODE from one start means little: leave out `start`. Then the
    search averages the objective over eight random starts in dimension d, and the report over 128. A start at rest on
    the plateau is refused.

    A batch of B at learning rate $\eta$ is, as d grows, plain SGD at $\eta / B$ (`readout_rate` likewise): so a
    schedule of batches $B(\alpha)$ is a schedule $\eta / B(\alpha)$ of the learning rate, and is found as one.

    **Arguments:**

    - `problem`, `algorithm`: what is learned, and how; what is searched is put into them.
    - `alpha`: where to end (201 even times are in the trajectory), or the increasing times.
    - `over`: what is searched, by the same names as axes of a study: `(low, high)` for a number, `(low, high, knots)`
      for a schedule with that many even knots, or with knots at given times. `algorithm.` followed by a rate,
      `problem.` by any number of it; `algorithm.batch_size` is searched among real numbers and then rounded;
      `problem.probabilities` of [`Tasks`] are the probabilities of all tasks but the first, each as a part of what
      later tasks leave. With a positive lower bound the search is over logarithms.
    - `objective`: a function of the [`Trajectory`] to a number; if left out, the final excess risk of `problem` as
      given, whatever is searched in it.
    - `start`: one State; random ones if left out.
    - `d`: the dimension, of random starts, exact means, and simulations by `verify`.
    - `until`: a risk; the objective is then the alpha at which the risk falls to it. Starts that are `late` count as
      later than the last alpha.
    - `constraints`: by a name in `over`, bounds of its mean over its knots' times; by a function of the trajectory,
      bounds of that. `(low, high)`, None where there is none.
    - `searches`: how many searches, each from another beginning.
    - `key`: for random starts.

    **Returns:** a [`BestProtocol`]; it prints the gain over the best constants, `plot.protocol` draws it, and `verify`
    simulates the gain.

    ??? example
        >>> import dimfree
        >>> problem = dimfree.TwoLayer(1, 1, activation="linear", noise=0.5)
        >>> start = dimfree.State(Q=[[0.0]], M=[[0.0]])
        >>> over = {"algorithm.learning_rate": (0.0, 1.0, 24)}
        >>> best = dimfree.best_protocol(problem, dimfree.OnlineSGD(0.1), 10.0, over, start=start)
        >>> round(best.constant.objective, 4), round(best.objective, 4)
        (0.0402, 0.0322)

    Saad & Rattray 1997, for the learning rate of committees; Bordelon & Mori 2026, for power laws.
    """
    check_not_traced("best_protocol", problem=problem, algorithm=algorithm, alpha=alpha, start=start, key=key)
    searches = positive_integer(searches, "searches")
    plan = planned(problem, algorithm, alpha, over, objective, start, d, until, constraints, key)
    search = Search(plan)
    judge = (lambda pair: float(_reported(plan, pair, key).mean())) if plan.random else None
    y, constants = search.constants(judge)
    scheduled = any(control.times is not None for control in plan.controls)
    found = search.schedules(constants, searches) if scheduled else constants
    if not found.kept:
        raise InvalidInput(
            f"Nothing within the bounds of over satisfies the constraints, {shown(constraints)}; loosen them."
        )
    if not scheduled:
        return _result(search, found, key, _as_given(search, key))
    constant = _held(_result(search, constants, key, None), y) if constants.kept else None
    return _result(search, found, key, constant)


def planned(
    problem: Problem,
    algorithm: OnlineAlgorithm,
    alpha: Any,
    over: Any,
    objective: Any = None,
    start: Any = None,
    d: Any = None,
    until: Any = None,
    constraints: Any = None,
    key: Any = None,
) -> Plan:
    """What a search needs to know, from what a user asks for."""
    check_problem(problem, "spectrum", "tokens", "change")
    check_online(algorithm)
    times = save_alphas(alpha)
    if not isinstance(times, np.ndarray):
        raise InvalidInput("alpha is traced; a search is not one program: call it outside of jit and vmap.")
    controls = controls_of(problem, algorithm, over, float(times[-1]))
    limits, bounded = _limits(constraints, controls)
    d = None if d is None else positive_integer(d, "d", minimum=2)
    is_mean = start is not None and d is not None and until is None and not why_no_mean(problem, algorithm)
    if is_mean and any(control.kind == "batch" for control in controls):
        raise InvalidInput(f"over has {BATCH}, on which the clock of an exact mean depends; leave out d, for the ODE.")
    plan = Plan(
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
    if plan.objective is not None:
        _check_one_number(plan, "objective", plan.objective)
    for function in plan.bounded:
        _check_one_number(plan, f"constraints: {function.__name__}", function)
    return plan


def _check_one_number(plan: Plan, name: str, function: Callable) -> None:
    """An error unless a function of a trajectory gives one number."""
    pair = Pair(plan.problem, plan.algorithm)
    made = jax.eval_shape(lambda: jnp.asarray(function(plan.trajectory(pair, first_of(plan.starts)))))
    if made.shape:
        raise InvalidInput(
            f"{name}: the function gives numbers of shape {made.shape}; it must give one, such as "
            "lambda trajectory: trajectory.risk[-1]."
        )


def _result(search: Search, found: Found, key: Any, constant: BestProtocol | None) -> BestProtocol:
    plan = search.plan
    objectives = _reported(plan, found.pair, key) if plan.random else np.array([found.objective])
    return BestProtocol(
        problem=found.pair.problem,
        algorithm=found.pair.algorithm,
        objective=float(objectives.mean()),
        objective_error=standard_error(objectives),
        late=plan.late(objectives),
        constant=constant,
        residual=found.residual,
        searches=found.searches,
        solves=search.solves,
        constraints=dict(zip((name for name, *_ in plan.limits), found.bounded, strict=True)),
        verification=None,
        _plan=plan,
        _x=found.x,
    )


def _reported(plan: Plan, pair: Pair, key: Any) -> Float[np.ndarray, " starts"]:
    """The objective from each of more random starts than are searched with."""
    assert plan.d is not None
    return plan.from_starts(plan.d, _FEWEST_STARTS, jax.random.fold_in(key, 1)).objectives(pair)


def _held(result: BestProtocol, y: Float[np.ndarray, " numbers"]) -> BestProtocol:
    """The same with a number in the place of each schedule that does not change."""
    controls = tuple(dataclasses.replace(control, times=None) for control in result._plan.controls)
    plan = dataclasses.replace(result._plan, controls=controls)
    pair = plan.put(jnp.asarray(y))
    if any(control.kind == "batch" for control in controls):
        pair = whole(pair, result.algorithm.batch_size)
    return dataclasses.replace(result, problem=pair.problem, algorithm=pair.algorithm, _plan=plan, _x=y)


def _as_given(search: Search, key: Any) -> BestProtocol | None:
    """The problem and the algorithm as they were given, to compare numbers with."""
    plan, x = search.plan, search.given()
    if x is None:
        return None
    pair = Pair(plan.problem, plan.algorithm)
    objectives = _reported(plan, pair, key) if plan.random else plan.objectives(pair)
    value, error = float(objectives.mean()), standard_error(objectives)
    late = plan.late(objectives)
    return BestProtocol(pair.problem, pair.algorithm, value, error, late, None, np.nan, (), 0, {}, None, plan, x)


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
            f"until = {shown(until)} was given; the risk stays above {floor:.4g}, which no student can avoid."
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


def _late_in_words(result: BestProtocol) -> str:
    starts = _FEWEST_STARTS if result._plan.random else 1
    return f"{result.late} of {starts} starts {'is' if result.late == 1 else 'are'}"


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
