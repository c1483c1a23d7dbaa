"""What is computed in a task: the quantities of its cells."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..analysis.exit_times import exit_level, random_starts
from ..analysis.plateau import centre, rest, stillness
from ..batches import map_in_batches
from ..errors import InvalidInput
from ..limits import gradient_flow, ode
from ..solving import solve
from ..state import State
from ..trajectory import Outcome
from .cells import Cells, is_vectorised, make_algorithm, make_problem, settings_of
from .description import Description, Function, is_random
from .functions import many_cells, one_cell
from .quantities import averages, fraction, quantities
from .simulations import Job, has_left, simulate_cells

_SOLVES_AT_ONCE = 256  # more do not fit in the cache, and all wait for the slowest
Results = tuple[dict[str, np.ndarray], dict[int, str]]


class Sample(NamedTuple):
    """A round of runs: values of each run, shape (cells, runs), by quantity, and what went wrong, by position."""

    values: dict[str, np.ndarray]
    errors: dict[int, str]


def compute(
    description: Description,
    cells: Cells,
    *,
    size: int,
    skip: frozenset[int] = frozenset(),
    watch: Callable[[int], None] = lambda position: None,
) -> Results:
    """The quantities of the cells, and an error in words for each position that failed.

    **Arguments:**

    - `size`: number of cells to compute at once; fewer are filled up, so that one compilation serves all tasks.
    - `skip`: positions to leave out.
    - `watch`: told the position of each cell before it is computed, where cells are computed one by one.
    """
    keys = cell_keys(description, cells)
    if is_vectorised(description):
        filled = np.minimum(np.arange(max(size, len(cells))), len(cells) - 1)
        values = {name: array[filled] for name, array in cells.values.items()}
        rounds = _Rounds(description, values, keys[filled])
        found, errors = rounds.all()
        return {name: array[: len(cells)] for name, array in found.items()}, {
            position: words for position, words in errors.items() if position < len(cells)
        }
    wanted = [quantity for quantity in quantities(description) if quantity.name != "status"]
    rows, errors = [], {}
    for position in range(len(cells)):
        row = {}
        if position not in skip:
            watch(position)
            try:
                row = _one_by_one(description, cells.at(position), keys[position])
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # whatever a cell does, such as sys.exit, the others are computed
                errors[position] = in_words(error)
        rows.append([row.get(quantity.name, quantity.fill) for quantity in wanted])
    columns = np.array(rows, dtype=float).T
    return {quantity.name: column for quantity, column in zip(wanted, columns, strict=True)}, errors


def in_words(error: BaseException) -> str:
    """What a cell raised."""
    if isinstance(error, SystemExit):
        return f"SystemExit: it called sys.exit({error.code!r})"
    return f"{type(error).__name__}: {error}"


def cell_keys(description: Description, cells: Cells) -> Any:
    """A random key for each cell, from its number alone."""
    return _fold(jax.random.key(description.seed), jnp.asarray(cells.index))


@jax.jit
def _fold(key, numbers):
    return jax.vmap(lambda number: jax.random.fold_in(key, number))(numbers)


def _one_by_one(description: Description, values: dict[str, Any], key: Any) -> dict[str, Any]:
    if not is_random(description):
        return one_cell(description, values, key)
    runs, target, most = description.runs, description.target_error, description.most_runs
    calls: list[dict[str, float]] = []
    while True:
        numbers = range(len(calls), len(calls) + runs)
        calls += [one_cell(description, values, jax.random.fold_in(key, number)) for number in numbers]
        found = averages({name: np.array([call[name] for call in calls]) for name in calls[0]})
        first_error = found[f"{next(iter(calls[0]))}_error"]
        if target is None or most is None or first_error <= target or len(calls) + runs > most:
            return found | {"runs": len(calls)}


class _Rounds:
    """Rounds of runs of many cells, until each has its target error."""

    def __init__(self, description: Description, values: dict[str, Any], keys: Any):
        self.description, self.values, self.keys = description, values, keys
        self.cells = keys.shape[0]
        self.samplers = {"exit_time": self._exit_times, "simulate": self._simulations, "solve": self._solutions}

    def all(self) -> Results:
        """The quantities of all cells, and what went wrong."""
        sample = self._sample(0, np.ones(self.cells, bool))
        found = self._summary(sample.values)
        target, most = self.description.target_error, self.description.most_runs
        if target is None or most is None:
            return found, sample.errors
        found["runs"] = np.full(self.cells, self.description.runs)
        first = next(iter(found))
        values = [[array[cell] for array in sample.values.values()] for cell in range(self.cells)]
        number = 1
        while True:
            open_ = ~(found[f"{first}_error"] <= target) & (found["runs"] + self.description.runs <= most)
            open_[list(sample.errors)] = False
            if not open_.any():
                return found, sample.errors
            more = self._sample(number, open_)
            number += 1
            for cell in np.flatnonzero(open_):
                values[cell] = [
                    np.concatenate([old, array[cell]])
                    for old, array in zip(values[cell], more.values.values(), strict=True)
                ]
                summary = self._summary(
                    {name: array[None] for name, array in zip(more.values, values[cell], strict=True)}
                )
                for name, value in summary.items():
                    found[name][cell] = value[0]
                found["runs"][cell] += self.description.runs

    def _sample(self, number: int, wanted: np.ndarray) -> Sample:
        if isinstance(self.description.compute, Function):
            runs = [_fold_each(self.keys, number * self.description.runs + run) for run in range(self.description.runs)]
            found = [many_cells(self.description, self.values, keys) for keys in runs]
            return Sample({name: np.stack([np.asarray(run[name]) for run in found], -1) for name in found[0]}, {})
        return self.samplers[self.description.compute.name](_fold_each(self.keys, number), wanted)

    def _summary(self, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The quantities of each cell, from the values of its runs."""
        if self.description.compute.name == "exit_time":
            left, left_error = fraction(np.isfinite(values["exit_time"]))
            times = values["exit_time"]
            return {
                "left": left,
                "left_error": left_error,
                **averages({"exit_time": times}),
                "exit_time_median": np.quantile(times, 0.5, axis=-1, method="inverted_cdf"),
                "diverged": values["diverged"].mean(axis=-1),
            }
        found = averages({name: array for name, array in values.items() if name != "diverged"})
        if not is_random(self.description):
            found = {name: array for name, array in found.items() if not name.endswith("_error")}
        if "diverged" in values:
            found["diverged"] = values["diverged"].mean(axis=-1)
        return found

    # The three samplers.

    def _exit_times(self, keys: Any, wanted: np.ndarray) -> Sample:
        parts, d = self._parts(), self._setting("d")
        levels, errors = self._levels(*parts)
        steps = np.where(wanted & np.isfinite(levels), self._steps(parts[1], d), 0)
        if not steps.any():
            none = np.zeros((self.cells, self.description.runs))
            return Sample({"exit_time": none + np.inf, "diverged": none}, errors)
        outcome, ended, below, _, _ = self._simulated(keys, *parts, np.nan_to_num(levels, nan=-1.0), steps, d)
        # A cell that is left out has made no step.
        left = has_left(outcome, below) & (steps > 0)[:, None]
        values = {"exit_time": np.where(left, ended, np.inf), "diverged": outcome == Outcome.DIVERGED}
        return Sample(values, errors)

    def _simulations(self, keys: Any, wanted: np.ndarray) -> Sample:
        parts, d = self._parts(), self._setting("d")
        level = -1.0  # which no risk reaches
        steps = np.where(wanted, self._steps(parts[1], d), 0)
        outcome, _, below, overlap, states = self._simulated(keys, *parts, np.full(self.cells, level), steps, d)
        diverged = outcome == Outcome.DIVERGED
        values = {
            "risk": np.where(diverged, np.nan, level - below),
            "squared_overlap": np.where(diverged, np.nan, overlap),
            "diverged": diverged,
            **self._observed(parts[0], states, diverged),
        }
        return Sample(values, {})

    def _solutions(self, keys: Any, wanted: np.ndarray) -> Sample:
        problems, algorithms = self._parts()
        runs = self.description.runs
        starts = self._starts(problems, keys, runs)
        settings = settings_of(self.description, self.values)
        alphas = np.broadcast_to(np.asarray(settings["alpha"], float), (self.cells,))
        limit_of = {"ode": ode, "gradient_flow": gradient_flow}[self._setting("limit")]
        found = _solve_all(
            problems, algorithms, starts, jnp.asarray(alphas), limit_of, self._setting("tolerance"), runs
        )
        *found, states = found
        risk, overlap, outcome = (np.asarray(array).reshape(self.cells, runs) for array in found)
        bad = outcome != Outcome.COMPLETED
        values = {
            "risk": np.where(bad, np.nan, risk),
            "squared_overlap": np.where(bad, np.nan, overlap),
            "diverged": outcome == Outcome.DIVERGED,
            **self._observed(problems, states, bad),
        }
        errors = {
            int(cell): "the solver ran out of steps"
            for cell in np.flatnonzero((outcome == Outcome.STEP_LIMIT).all(axis=-1))
        }
        return Sample(values, errors)

    # What they share.

    def _observed(self, problems: Any, states: State, bad: np.ndarray) -> dict[str, np.ndarray]:
        """What the study observes of the last State of each run, one cell after the other; NaN where it is bad."""
        name = self._setting("observe")
        if name is None:
            return {}
        found = np.asarray(_observe_all(problems, states, name, self.description.runs)).reshape(bad.shape)
        return {name: np.where(bad, np.nan, found)}

    def _parts(self) -> tuple[Any, Any]:
        """Problems and algorithms of all cells, as arrays with a leading axis."""
        return _built(self.description, self.values)

    def _setting(self, name: str) -> Any:
        """A setting that all cells of the task share."""
        value = settings_of(self.description, self.values)[name]
        return value[0] if isinstance(value, np.ndarray) else value

    def _steps(self, algorithms: Any, d: int) -> np.ndarray:
        batch = algorithms.batch_size
        alphas = np.broadcast_to(settings_of(self.description, self.values)["alpha"], (self.cells,))
        return np.round(np.asarray(alphas, float) * d / batch).astype(int)

    def _starts(self, problems: Any, keys: Any, runs: int) -> State:
        """A start for each run; the same for all where the study gives the overlap."""
        settings = settings_of(self.description, self.values)
        first = _first(problems)
        p, k = first.width, first.teacher_width
        if settings.get("overlap") is None:
            return _random_starts(problems, keys, self._setting("d"), runs)
        overlaps = np.repeat(np.broadcast_to(np.asarray(settings["overlap"], float), (self.cells,)), runs)
        M = overlaps[:, None, None] * np.eye(p, k)
        readouts = eqx.filter_vmap(lambda problem: problem.readout)(problems)
        readout = None if readouts is None else jnp.repeat(readouts, runs, axis=0)
        return State(Q=np.broadcast_to(np.eye(p), (len(M), p, p)), M=M, readout=readout)

    def _simulated(self, keys, problems, algorithms, levels, steps, d: int):
        runs = self.description.runs
        start_keys, run_keys = _split_each(keys, runs)
        starts = _random_starts(problems, start_keys, d, runs)
        job = Job(problems, algorithms, jnp.asarray(levels), jnp.asarray(steps), starts, run_keys)
        return simulate_cells(job, d)

    def _levels(self, problems: Any, algorithms: Any) -> tuple[np.ndarray, dict[int, str]]:
        """The risk at which each cell has left its plateau; NaN, and why, where it has none."""
        threshold = settings_of(self.description, self.values)["threshold"]
        thresholds = np.broadcast_to(np.asarray(threshold, float), (self.cells,))
        risks, resting = (np.array(array) for array in _central_risks(problems, algorithms))
        errors = {}
        # Where the ODE rests from students without overlap there is no search, which is one by one.
        for cell in np.flatnonzero(~resting):
            problem, algorithm = jax.tree.map(lambda leaf, cell=cell: leaf[cell], (problems, algorithms))
            try:
                risks[cell] = problem.risk(rest(ode(problem, algorithm)))
            except InvalidInput as error:
                risks[cell], errors[int(cell)] = np.nan, str(error)
        return np.asarray(eqx.filter_vmap(exit_level)(problems, jnp.asarray(risks), jnp.asarray(thresholds))), errors


def _built(description: Description, values: dict[str, Any]) -> tuple[Any, Any]:
    numbers = {name: jnp.asarray(array, float) for name, array in values.items() if array.dtype.kind == "f"}
    fixed = {name: array[0] for name, array in values.items() if name not in numbers}
    cells = len(next(iter(values.values())))

    def one(numbers, _):
        return make_problem(description, numbers | fixed), make_algorithm(description, numbers | fixed)

    return eqx.filter_vmap(one, in_axes=(0, 0), out_axes=eqx.if_array(0))(numbers, jnp.zeros(cells))


def _first(batched: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[0], batched)


@eqx.filter_jit
def _central_risks(problems, algorithms):
    """The risk of students without overlap, and whether the ODE is at rest there."""

    def one(cell):
        problem, algorithm = cell
        state = centre(problem)
        return problem.risk(state), stillness(ode(problem, algorithm), state) >= 0

    return map_in_batches(one, (problems, algorithms))


@eqx.filter_jit
def _fold_each(keys, number):
    return jax.vmap(lambda key: jax.random.fold_in(key, number))(keys)


@eqx.filter_jit
def _split_each(keys, runs: int):
    pairs = jax.vmap(jax.random.split)(keys)
    return pairs[:, 0], jax.vmap(lambda key: jax.random.split(key, runs))(pairs[:, 1]).reshape(-1)


def _random_starts(problems, keys, d: int, runs: int) -> State:
    """Random starts for the runs of each cell, one after the other."""

    starts = eqx.filter_vmap(lambda problem, key: random_starts(problem, d, runs, key=key))(problems, keys)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), starts)


@eqx.filter_jit
def _solve_all(problems, algorithms, starts: State, alphas, limit_of: Callable, tolerance: float, runs: int):
    def one(item):
        run, start = item
        problem, algorithm, alpha = jax.tree.map(lambda leaf: leaf[run // runs], (problems, algorithms, alphas))
        trajectory = solve(
            limit_of(problem, algorithm),
            start,
            jnp.stack([jnp.zeros(()), alpha]),
            relative_tolerance=tolerance,
            absolute_tolerance=tolerance / 100,
        )
        final = trajectory.final
        return problem.at(alpha).risk(final), jnp.sum(final.M**2), trajectory.outcome, final

    return map_in_batches(one, (jnp.arange(starts.Q.shape[0]), starts), _SOLVES_AT_ONCE)


@eqx.filter_jit
def _observe_all(problems, states: State, name: str, runs: int):
    def one(item):
        run, state = item
        return jax.tree.map(lambda leaf: leaf[run // runs], problems).mean(name, state)

    return map_in_batches(one, (jnp.arange(states.Q.shape[0]), states))
