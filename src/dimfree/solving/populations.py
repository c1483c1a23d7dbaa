"""Solving a dynamical mean-field theory: populations of sample paths, until the error of their mean is small."""

import dataclasses
import os
import time as clock
import uuid
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import ArrayLike

from ..algorithms.reused import GradientDescent, MultiPassSGD, ReusedData
from ..errors import InvalidInput, check_key, is_concrete, positive_integer, positive_number, shown
from ..gaussian.rules import sobol_normals
from ..identity import identity
from ..limits.dmft import Process
from ..problems.base import Problem
from ..problems.field_problem import FieldProblem
from ..state import State, check_state
from ..trajectory import Outcome, Trajectory, check_start, provenance
from .time_grid import first_grid, given_times, halved, longest_steps, refined, step_errors

_STEP_ERRORS = 8  # what the errors of all steps may add up to, in units of the target, if extrapolation takes them away
_RESOLVED = 2.0  # how much less they are with half as long steps, 4 in the limit, where extrapolation does so
_MOST_PATHS, _FEWEST_PATHS = 8_192, 256  # of a population
_BYTES_OF_A_PATH = 24  # and step: normals and impulses, in single precision the direction and derivatives along it
_BYTES_OF_A_PAIR = 64  # of steps: the kernels, and what is made of them in a step
_LEAST_BESIDE = 1e-10  # of the squared norm that must not be along the teacher
_CLIMB = 0.02  # how far up gradient descent may seem to go, in the noise of a population: of its descent and first loss
_FEWEST = 4  # populations, so that there is a spread
_CURVES = ("M", "Q", "training_loss")  # those with errors
_LOSS_ERRORS = 2.0  # of the training loss, in units of the standard error of those populations that agree
_SAVED = (*_CURVES, "bend", "rate", "correlation", "response", "force_correlation", "memory")  # of a population
_ROOM = 256  # steps, below which another compilation would cost more than it saves
_SEGMENT = 16  # steps between two looks at how far it is, when it can also be interrupted


@dataclasses.dataclass(frozen=True)
class DMFTSolution:
    """What a dynamical mean-field theory predicts, with its errors; it prints as a table.

    **Attributes:**

    - `trajectory`: State and training loss over time, a run for each population.
    - `mean`: the State over time, extrapolated to vanishing steps where a flow was solved; `training_loss` likewise.
    - `standard_error`: of M, Q and the training loss in `mean`, by their names, from the spread between populations:
      from four of them it is itself uncertain by 40%, from twelve by 20%. In some populations the noise of their own
      averages grows, which their training loss shows first, and all of them are a little high for being finite: the
      training loss is the median over populations, and its error twice that of the spread of those in the middle.
    - `step_correction`: what the extrapolation added to M, Q and the training loss, by their names.
    - `correlation`: C(t, t') of the weights, shape `(times, times)`.
    - `response`: R(t, t') of the weights at t to a force in the step that begins at t', shape `(times, steps)`.
    - `force_correlation`: of the forces of the samples on the weights, averaged over steps, shape `(steps, steps)`.
    - `memory`: the force of a step by the weights at t, averaged over the step, shape `(steps, times)`.
    """

    trajectory: Trajectory
    mean: State
    training_loss: Float[np.ndarray, " times"]
    standard_error: dict[str, Float[np.ndarray, " times"]]
    step_correction: dict[str, Float[np.ndarray, " times"]]
    correlation: Float[np.ndarray, "times times"]
    response: Float[np.ndarray, "times steps"]
    force_correlation: Float[np.ndarray, "steps steps"]
    memory: Float[np.ndarray, "steps times"]

    @property
    def time(self) -> Float[np.ndarray, " times"]:
        """The times of the grid."""
        return np.asarray(self.trajectory.time)

    def __str__(self) -> str:
        shown = np.unique(np.searchsorted(self.time, np.linspace(0, self.time[-1], 6)).clip(max=len(self.time) - 1))
        overlap = np.asarray(self.mean.M)[:, 0, 0]
        rows = [
            f"  {self.time[i]:8.3f} {overlap[i]:9.4f} {self.standard_error['M'][i]:9.4f} "
            f"{self.step_correction['M'][i]:10.4f} {self.training_loss[i]:14.5g}"
            for i in shown
        ]
        settings = [f"  {name}: {value}" for name, value in self.trajectory.provenance]
        return "\n".join(["      time         M    +- error  from steps  training loss", *rows, *settings])

    __repr__ = __str__


def dmft(
    problem: Problem,
    algorithm: ReusedData,
    start: State,
    time: float | ArrayLike | Array,
    *,
    key: PRNGKeyArray,
    target_error: float = 0.01,
    paths: int | None = None,
    most_populations: int = 32,
    flow: bool = True,
    store: str | Path | None = None,
    memory: int = 2**31,
    progress: bool = False,
) -> DMFTSolution:
    r"""Reused data in the limit $d \to \infty$ at a fixed number of samples per dimension, by DMFT.

    With `flow` the learning rate vanishes as well, and
    $\dot w = -\text{ridge} \, w - \text{gradient} + \text{thermal noise}$ (on the sphere, with a multiplier in place of
    the ridge). Otherwise it is the limit of the algorithm at its learning rate, step by step; [`MultiPassSGD`] has that
    limit only, because its flow is that of [`GradientDescent`].

    The theory is causal: a population of paths of single samples is carried forward once, with the kernels of the
    weights from averages over it. A finite population has an error that the dynamics amplify; populations are added
    until the standard error of their mean overlap is below the target. For a flow, as many are solved with half as many
    steps, which cost little, and the result is extrapolated.

    Holds for one student and one teacher, losses that are twice differentiable, standard Gaussian inputs.

    **Arguments:**

    - `problem`, `algorithm`: what is learned, and how.
    - `start`: the State at time 0.
    - `time`: where to end, or the increasing times of the grid, from 0 (for a flow, an even number of steps). Otherwise
      steps are chosen by the errors of those of a first population, which says nothing of what they add up to later.
    - `key`: random key.
    - `target_error`: of the overlap M at any time.
    - `paths`: of a population, a power of two; up to 8,192 by themselves, as far as the memory goes.
    - `most_populations`: after which it stops, whatever the error.
    - `flow`: whether the learning rate vanishes.
    - `store`: a directory for finished populations; what is there from an earlier call like this one is not done
      again. Files are named by all that a population depends on: exact numbers, the code and values of functions, the
      versions of dimfree and JAX, the precision.
    - `memory`: bytes to use; a population takes 24 for each path and step, and 64 for each pair of steps.
    - `progress`: whether to say what it will cost and show how far it is.

    Mignacco, Urbani & Zdeborová, Mach. Learn.: Sci. Technol. 2 (2021) 035029, eqs. (14)-(19), with the misprints of
    (A.21), which has a factor 1/batch_fraction too many, and of (A.23), whose multiplier is that of (14). There the
    kernels are iterated to self-consistency over all times.

    ??? example
        >>> import dimfree, jax
        >>> descent = dimfree.GradientDescent(0.01, samples_per_dimension=2.0, sphere=True)
        >>> start = dimfree.State(Q=[[1.0]], M=[[0.8]])
        >>> found = dimfree.dmft(dimfree.PhaseRetrieval(), descent, start, 0.2, key=jax.random.key(0), paths=1024)
        >>> bool(found.mean.M[-1, 0, 0] > 0.8)
        True
    """
    start = _check(problem, algorithm, start, flow)
    assert isinstance(problem, FieldProblem)
    if paths is not None:
        paths = positive_integer(paths, "paths", minimum=2)
        if paths & (paths - 1):
            raise InvalidInput(f"paths = {paths} was given; take a power of two (the points are those of a Sobol net).")
    positive_number(target_error, "target_error")
    most = positive_integer(most_populations, "most_populations", minimum=_FEWEST)
    check_key(key)
    keys = jax.random.split(key, most)
    if store is not None:
        _make_directory(Path(store))
    made: dict[tuple[bytes, int], _Curves] = {}  # the choice of the grid has made the first of each already

    def population(times: np.ndarray, number: int) -> _Curves:
        if (times.tobytes(), number) in made:
            return made[times.tobytes(), number]
        solver = Process(problem, algorithm, jnp.sqrt(start.P[0, 0]), jnp.asarray(times), flow)
        number_of_paths = paths or _paths_for(len(times) - 1, memory)
        file = None
        if store is not None:
            name = identity(problem, _losses(problem), algorithm, start, times, flow, number_of_paths, keys[number])
            file = Path(store) / f"{name[:32]}.npz"
        curves = made[times.tobytes(), number] = _population(solver, start, number_of_paths, keys[number], file)
        return curves

    if flow and np.ndim(time) == 0:
        end = float(given_times(algorithm, time, flow)[-1])
        coarse = first_grid(algorithm, end, _first_rate(problem, algorithm, start, end))
        most_steps = _steps_for(paths or _FEWEST_PATHS, memory)
        times = _fine_enough(population, algorithm, coarse, target_error, most_steps, progress)
    else:
        times = given_times(algorithm, time, flow)
    grids = (times, times[::2]) if flow else (times,)
    cost = _cost(len(times) - 1, paths or _paths_for(len(times) - 1, memory), most)
    if progress:
        print(cost, flush=True)
    found: list[tuple[_Curves, ...]] = []  # a population on each grid
    believed: list[_Curves] = []
    for number in range(most):
        began = clock.perf_counter()
        found.append(tuple(population(grid, number) for grid in grids))
        if _ended(found[-1], algorithm, flow) == Outcome.COMPLETED:
            believed.append(_extrapolated(times, *found[-1]))
        error = _standard_errors([curves["M"] for curves in believed]).max()
        if progress:
            expected = int(np.ceil(np.clip((number + 1) * (error / target_error) ** 2, _FEWEST, most)))
            print(
                f"population {number + 1} of about {expected}: {clock.perf_counter() - began:.1f} s, "
                f"standard error {error:.2g} (target {target_error:g})",
                flush=True,
            )
        if len(believed) >= _FEWEST and error <= target_error:
            break
    return _solution(problem, algorithm, start, times, found, cost, key, flow)


_Curves = dict[str, np.ndarray]


def _first_rate(problem: FieldProblem, algorithm: ReusedData, start: State, end: float) -> float:
    """How fast the weights would relax where they start."""
    solver = Process(problem, algorithm, jnp.sqrt(start.P[0, 0]), jnp.array([0.0, end]), flow=True)
    normals = jnp.asarray(sobol_normals(_FEWEST_PATHS, 4, np.random.default_rng(0)).T)
    return float(solver.rate(solver.start(start.Q[0, 0], start.M[0, 0], normals, jax.random.key(0))))


def _fine_enough(
    population: Callable[[np.ndarray, int], _Curves],
    algorithm: ReusedData,
    times: Float[np.ndarray, " times"],
    target_error: float,
    most: int,
    progress: bool,
) -> Float[np.ndarray, " more"]:
    """The grid with its steps halved, or one with shorter steps where that is not fine enough for a population.

    Half as long a step has an eighth of the error, and there are twice as many. Where the sum does not fall so, steps
    do not yet resolve what happens in them, and extrapolation would not help.
    """
    while True:
        fine = halved(times)
        coarse, curves = population(times, 0), population(fine, 0)
        errors = _step_errors(fine, curves)
        stable = np.all(np.diff(times) <= 1.2 * longest_steps(algorithm, coarse["rate"]))
        if progress:
            found = f"{len(fine) - 1} steps: their errors add up to {errors.sum():.2g}"
            print(found if stable else f"{found}, and they are too long to be stable", flush=True)
        extrapolates = _step_errors(times, coarse).sum() > _RESOLVED * errors.sum()
        allowed = target_error * (_STEP_ERRORS if extrapolates else 2)
        if (stable and errors.sum() <= allowed) or len(fine) > most:
            return fine
        if np.isfinite(errors).all():
            longest = longest_steps(algorithm, curves["rate"])
            times = refined(fine, errors, longest, allowed, (1.5 * (len(times) - 1), most / 2))
        else:
            times = fine


def _step_errors(times: Float[np.ndarray, " times"], curves: _Curves) -> Float[np.ndarray, " n"]:
    return step_errors(times, curves["M"], curves["bend"])


def _losses(problem: FieldProblem) -> list[str]:
    """The loss at many points, to the digits that every processor agrees on: its code may use what is not seen."""
    points = jnp.asarray(np.random.default_rng(0).normal(size=(64, 3)))
    found = jax.vmap(lambda each: problem.loss(each[:1], each[1:2], each[2], problem.readout))(points)
    return [f"{float(loss):.9e}" for loss in found]


def _make_directory(store: Path) -> None:
    """The directory for populations, before hours of computing and not after."""
    try:
        store.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"store = {store} was given; it is not a directory that can be made: {error}.") from error
    if not os.access(store, os.W_OK):
        raise InvalidInput(f"store = {store} was given; files cannot be written there.")


def _saved(file: Path, steps: int) -> _Curves | None:
    """A finished population; None if there is none, an error if it is not whole."""
    if not file.exists():
        return None
    try:
        if not file.is_file():
            raise ValueError("it is not a file")
        with file.open("rb") as content, np.load(content) as saved:
            curves = {name: saved[name] for name in _SAVED}
        if curves["M"].shape != (steps + 1,):
            raise ValueError("it holds another number of steps")
    except Exception as error:  # whatever NumPy and zip make of a damaged file
        raise InvalidInput(
            f"{file} is damaged ({error!s:.200}). Remove it, and the population is computed again."
        ) from error
    return curves


def _population(solver: Process, start: State, paths: int, key: PRNGKeyArray, file: Path | None) -> _Curves:
    """One population to its end, from a file if it is there."""
    steps = len(solver.times) - 1
    if file is not None and (saved := _saved(file, steps)) is not None:
        return saved
    seed, selection, moves = jax.random.split(key, 3)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(seed)))
    normals = jnp.asarray(sobol_normals(paths, steps + 3, rng).T)
    population, done = None, 0
    for size in _sizes(steps):
        part = dataclasses.replace(solver, times=solver.times[: size + 1])
        longer = part.start(start.Q[0, 0], start.M[0, 0], normals[: size + 3], selection)
        population = longer if population is None else jax.tree.map(_beginning_with, longer, population)
        for first in range(done, size, _SEGMENT):
            last = min(first + _SEGMENT, size)
            population = part.advance(population, jnp.asarray(first), jnp.asarray(last), moves)
            jax.block_until_ready(population.training_loss)
        done = size
    assert population is not None
    kernels = population.kernels
    durations = np.diff(np.asarray(solver.times))
    overlap = np.asarray(kernels.overlap)
    curves = {
        "M": overlap * float(solver.teacher_norm),
        "Q": np.diagonal(kernels.correlation) + overlap**2,
        "training_loss": np.asarray(population.training_loss),
        "bend": np.asarray(population.bend),
        "rate": np.asarray(population.rate),
        "correlation": np.asarray(kernels.correlation) + np.multiply.outer(overlap, overlap),
        "response": np.asarray(kernels.response),
        "force_correlation": np.asarray(kernels.forces) / np.multiply.outer(durations, durations),
        "memory": np.asarray(kernels.memory) / durations[:, None],
    }
    if file is not None:
        partial = file.with_suffix(f".{uuid.uuid4().hex}.partial")
        with partial.open("wb") as whole:
            np.savez(whole, **curves)
            whole.flush()
            os.fsync(whole.fileno())
        partial.replace(file)
    return curves


def _sizes(steps: int) -> list[int]:
    """How many steps there is room for, one after the other: a step costs what all of them do, future ones as well."""
    sizes = [steps]
    while sizes[0] > _ROOM:
        sizes.insert(0, _ROOM * 2 ** int(np.log2((sizes[0] - 1) / _ROOM)))
    return sizes


def _beginning_with(longer: Array, shorter: Array) -> Array:
    return longer.at[tuple(slice(each) for each in shorter.shape)].set(shorter)


def _extrapolated(
    times: Float[np.ndarray, " times"], fine: _Curves, coarse: _Curves | None = None
) -> dict[str, Float[np.ndarray, " times"]]:
    """M, Q and the training loss of a population, at vanishing steps where it was solved on a coarser grid as well.

    Steps are of second order: the finer of two grids has a third of their difference left.
    """
    curves = {name: fine[name] for name in _CURVES}
    if coarse is None:
        return curves
    return {
        name: curve + np.interp(times, times[::2], (curve[::2] - coarse[name]) / 3) for name, curve in curves.items()
    }


def _solution(
    problem, algorithm, start: State, times, found: list[tuple[_Curves, ...]], cost, key, flow: bool
) -> DMFTSolution:
    finest = [fine for fine, *_ in found]
    ended = np.array([_ended(grids, algorithm, flow) for grids in found])
    completed = [grids for grids, end in zip(found, ended, strict=True) if end == Outcome.COMPLETED]
    if not completed:
        raise InvalidInput(
            "Every population diverged; take more paths, shorter steps where you gave the times or, without flow, a "
            "smaller learning rate."
        )
    extrapolated = [_extrapolated(times, *grids) for grids in completed]
    mean = {name: np.mean([curves[name] for curves in extrapolated], axis=0) for name in ("M", "Q")}
    errors = {name: _standard_errors([curves[name] for curves in extrapolated]) for name in ("M", "Q")}
    losses = [curves["training_loss"] for curves in extrapolated]
    mean["training_loss"], errors["training_loss"] = np.median(losses, axis=0), _errors_of_losses(losses)
    corrections = {name: mean[name] - np.mean([fine[name] for fine, *_ in completed], axis=0) for name in _CURVES}
    runs = len(found)
    missed = np.mean([_step_errors(times, fine).sum() for fine, *_ in completed])
    left_out = f" ({runs - len(completed)} diverged and are left out)" if len(completed) < runs else ""
    trajectory = Trajectory(
        alpha=jnp.asarray(times),
        state=_states(np.stack([c["Q"] for c in finest]), np.stack([c["M"] for c in finest]), start),
        outcome=jnp.asarray(ended),
        stopped_at=jnp.full(runs, jnp.nan),
        problem=problem,
        training_loss=jnp.asarray(np.stack([curves["training_loss"] for curves in finest])),
        clock="time",
        limit_sources=("mignacco2021",),
        provenance=provenance(
            limit=f"dynamical mean-field theory, {'flow' if flow else 'at the learning rate'}",
            populations=f"{runs}{left_out}, {cost}",
            steps=f"their errors add up to {missed:.2g}, before extrapolation" if flow else "those of the algorithm",
            problem=problem,
            algorithm=algorithm,
            key=np.asarray(jax.random.key_data(key)) if is_concrete(key) else None,
        ),
    )
    kernels = ("correlation", "response", "force_correlation", "memory")
    return DMFTSolution(
        trajectory=trajectory,
        mean=_states(mean["Q"], mean["M"], start),
        training_loss=mean["training_loss"],
        standard_error=errors,
        step_correction=corrections,
        **{name: np.mean([fine[name] for fine, *_ in completed], axis=0) for name in kernels},
    )


def _ended(grids: tuple[_Curves, ...], algorithm: ReusedData, flow: bool) -> Outcome:
    """Whether a population can be believed: finite, and under gradient-descent flow not higher than it has been."""
    for curves in grids:
        if not np.isfinite(curves["M"]).all():
            return Outcome.DIVERGED
        if flow and isinstance(algorithm, GradientDescent):
            height = float(algorithm.samples_per_dimension) * curves["training_loss"]
            height = height + 0.5 * float(algorithm.ridge) * curves["Q"]
            lowest = np.minimum.accumulate(height)
            if np.any(height - lowest > _CLIMB * (height[0] - lowest + abs(height[0]))):
                return Outcome.DIVERGED
    return Outcome.COMPLETED


def _states(Q: Float[np.ndarray, "*axes"], M: Float[np.ndarray, "*axes"], start: State) -> State:
    P = jnp.broadcast_to(start.P, (*Q.shape, 1, 1))
    return State(Q=Q[..., None, None], M=M[..., None, None], P=P)


def _standard_errors(rows: list[np.ndarray]) -> np.ndarray:
    if len(rows) < 2:
        return np.full(rows[0].shape if rows else (1,), np.inf)
    return np.std(rows, axis=0, ddof=1) / np.sqrt(len(rows))


def _errors_of_losses(rows: list[np.ndarray]) -> np.ndarray:
    """Those of the median training loss; the factor covers the bias of finite populations: in 24 ridge regressions the
    errors are as large as is stated (rms 0.96).
    """
    if len(rows) < 2:
        return _standard_errors(rows)
    middle = np.subtract(*np.quantile(rows, [0.75, 0.25], axis=0)) / 1.349  # as a standard deviation
    return _LOSS_ERRORS * middle / np.sqrt(len(rows))


def _bytes(steps: int, paths: int) -> int:
    return _BYTES_OF_A_PATH * paths * steps + _BYTES_OF_A_PAIR * steps**2


def _paths_for(steps: int, memory: int) -> int:
    fitting = max((memory - _bytes(steps, 0)) / (_BYTES_OF_A_PATH * steps), 1.0)
    return int(np.clip(2 ** int(np.log2(fitting)), _FEWEST_PATHS, _MOST_PATHS))


def _steps_for(paths: int, memory: int) -> int:
    half = _BYTES_OF_A_PATH * paths / 2
    return int((np.sqrt(half**2 + _BYTES_OF_A_PAIR * memory) - half) / _BYTES_OF_A_PAIR)


def _cost(steps: int, paths: int, most: int) -> str:
    memory = _bytes(steps, paths) / 2**20
    return f"at most {most} populations of {paths} paths, {steps} steps, {memory:.0f} MiB at a time"


def _check(problem: Problem, algorithm: ReusedData, start: State, flow: bool) -> State:
    if not isinstance(algorithm, ReusedData):
        raise InvalidInput(
            f"algorithm = {shown(algorithm)} was given; dmft is for reused data (dimfree.GradientDescent, "
            "PersistentSGD, ...). For fresh samples use dimfree.ode."
        )
    if not isinstance(problem, FieldProblem) or not problem.inputs.is_standard:
        raise InvalidInput(
            f"problem = {shown(problem)} was given; dmft needs a loss of local fields of standard inputs."
        )
    if (problem.width, problem.teacher_width) != (1, 1):
        raise InvalidInput(
            f"The problem has {problem.width} students and {problem.teacher_width} teachers; dmft is for one of each. "
            "dimfree.simulate_reused takes any."
        )
    if not problem.smooth:
        raise InvalidInput("The loss has a kink; dmft needs one that is twice differentiable, such as a smoothed one.")
    if flow and isinstance(algorithm, MultiPassSGD):
        raise InvalidInput(
            "As the learning rate vanishes, multi-pass SGD becomes gradient descent. Give flow=False for its limit at "
            "the learning rate, or take dimfree.GradientDescent or dimfree.PersistentSGD."
        )
    start = check_start(problem, start, trained=False)
    check_state(start, sphere=algorithm.sphere)
    beside = start.Q[0, 0] - start.M[0, 0] ** 2 / start.P[0, 0]
    if is_concrete(beside) and float(beside) <= _LEAST_BESIDE * float(start.Q[0, 0]):
        raise InvalidInput(
            f"The start lies along the teacher (Q = {float(start.Q[0, 0]):g}, M = {float(start.M[0, 0]):g}): dmft "
            "follows the part of the weights beside it, and there is none. Take an overlap a little smaller."
        )
    return start
