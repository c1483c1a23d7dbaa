"""Populations of sample paths: how each is carried to its end, and on which times."""

import dataclasses
import os
import uuid
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

from ...algorithms.reused import ReusedData
from ...errors import InvalidInput
from ...gaussian.rules import sobol_normals
from ...identity import identity
from ...problems import FieldProblem
from ...state import State
from .process import Process
from .time_grid import first_grid, halved, longest_steps, refined, step_errors

Curves = dict[str, np.ndarray]  # of a population, by the names in _SAVED

_STEP_ERRORS = 8  # what the errors of all steps may add up to, in units of the target, if extrapolation takes them away
_RESOLVED = 2.0  # how much less they are with half as long steps, 4 in the limit, where extrapolation does so
_MOST_PATHS, _FEWEST_PATHS = 4_096, 256  # of a population: half as many, twice as often, say more about the error
_BYTES_OF_A_PATH = 24  # and step: normals and impulses, in single precision the direction and derivatives along it
_BYTES_OF_A_PAIR = 64  # of steps: the kernels, and what is made of them in a step
_ROOM = 256  # steps, below which another compilation would cost more than it saves
_SEGMENT = 16  # steps between two looks at how far it is, when it can also be interrupted
_MADE = 2  # another number whenever populations of the same arguments become other ones: those in a store are not taken
_SAVED = ("M", "Q", "training_loss", "bend", "rate", "correlation", "response", "force_correlation", "memory")


@dataclasses.dataclass(frozen=True)
class Populations:
    """The populations of a theory, each carried to its end when it is first asked for.

    **Attributes:**

    - `keys`: one for each population there may be.
    - `paths`: of a population; as many as fit in `memory` if None.
    - `store`: where finished populations are kept, or None.
    - `made`: those that were asked for, by the bytes of their times, their number and which half.
    """

    problem: FieldProblem
    algorithm: ReusedData
    start: State
    flow: bool
    keys: Shaped[PRNGKeyArray, " most"]
    paths: int | None
    memory: int
    store: Path | None
    made: dict[tuple[bytes, int, int | None], Curves] = dataclasses.field(default_factory=dict)

    def on(self, times: Float[np.ndarray, " times"], number: int, half: int | None = None) -> Curves:
        """The curves of a population on these times, or of a half of its paths by themselves."""
        name = times.tobytes(), number, half
        if name not in self.made:
            file, paths, key = None, self.paths_for(len(times) - 1), self.keys[number]
            if self.store is not None:
                known = (self.problem, _losses(self.problem), self.algorithm, self.start, times, self.flow, paths, key)
                file = self.store / f"{identity(_MADE, half, *known)[:32]}.npz"
            counted = jnp.ones(paths, bool) if half is None else jnp.arange(paths) * 2 // paths == half
            self.made[name] = _population(self._process(times), self.start, counted, key, file)
        return self.made[name]

    def grid(self, end: float, target_error: float, progress: bool) -> tuple[Float[np.ndarray, " times"], bool]:
        """Times to this end, with steps that are short enough for the first population; and whether they are stable.

        Half as long a step has an eighth of the error, and there are twice as many. Where the sum does not fall so,
        steps do not yet resolve what happens in them, and extrapolation would not help.
        """
        most = _steps_for(self.paths or _FEWEST_PATHS, self.memory)
        times = first_grid(self.algorithm, end, self._first_rate(end))
        while True:
            fine = halved(times)
            coarse, curves = self.on(times, 0), self.on(fine, 0)
            errors = errors_of_steps(fine, curves)
            stable = np.all(np.diff(times) <= 1.2 * longest_steps(self.algorithm, coarse["rate"]))
            if progress:
                found = f"{len(fine) - 1} steps: their errors add up to {errors.sum():.2g}"
                print(found if stable else f"{found}, and they are too long to be stable", flush=True)
            extrapolates = errors_of_steps(times, coarse).sum() > _RESOLVED * errors.sum()
            allowed = target_error * (_STEP_ERRORS if extrapolates else 2)
            if (stable and errors.sum() <= allowed) or len(fine) > most:
                return fine, bool(stable)
            if np.isfinite(errors).all():
                longest = longest_steps(self.algorithm, curves["rate"])
                times = refined(fine, errors, longest, allowed, (1.5 * (len(times) - 1), most / 2))
            else:
                times = fine

    def paths_for(self, steps: int) -> int:
        """How many paths a population of so many steps has."""
        if self.paths is not None:
            return self.paths
        fitting = max((self.memory - _bytes(steps, 0)) / (_BYTES_OF_A_PATH * steps), 1.0)
        return int(np.clip(2 ** int(np.log2(fitting)), _FEWEST_PATHS, _MOST_PATHS))

    def cost(self, steps: int) -> str:
        """What populations of so many steps take, in words."""
        paths = self.paths_for(steps)
        memory = _bytes(steps, paths) / 2**20
        return f"at most {len(self.keys)} populations of {paths} paths, {steps} steps, {memory:.0f} MiB at a time"

    def _first_rate(self, end: float) -> float:
        """How fast the weights would relax where they start."""
        process = self._process(np.array([0.0, end]))
        normals = jnp.asarray(sobol_normals(_FEWEST_PATHS, 4, np.random.default_rng(0)).T)
        begun = process.start(self.start.Q[0, 0], self.start.M[0, 0], normals, jax.random.key(0))
        return float(process.rate(begun))

    def _process(self, times: Float[np.ndarray, " times"]) -> Process:
        return Process(self.problem, self.algorithm, jnp.sqrt(self.start.P[0, 0]), jnp.asarray(times), self.flow)


def errors_of_steps(times: Float[np.ndarray, " times"], curves: Curves) -> Float[np.ndarray, " n"]:
    """About what each step of a population misses."""
    return step_errors(times, curves["M"], curves["bend"])


def _losses(problem: FieldProblem) -> list[str]:
    """The loss at many points, to the digits that every processor agrees on: its code may use what is not seen."""
    points = jnp.asarray(np.random.default_rng(0).normal(size=(64, 3)))
    found = jax.vmap(lambda each: problem.loss(each[:1], each[1:2], each[2], problem.readout))(points)
    return [f"{float(loss):.9e}" for loss in found]


def make_directory(store: Path) -> None:
    """The directory for populations, before hours of computing and not after."""
    try:
        store.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"store = {store} was given; it is not a directory that can be made: {error}.") from error
    if not os.access(store, os.W_OK):
        raise InvalidInput(f"store = {store} was given; files cannot be written there.")


def _saved(file: Path, steps: int) -> Curves | None:
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


def _population(
    solver: Process, start: State, counted: Bool[Array, " paths"], key: PRNGKeyArray, file: Path | None
) -> Curves:
    """One population to its end, from a file if it is there; averages are over the paths that are counted.

    The others are carried along: a half has the compiled program of the whole, and its random numbers.
    """
    steps = len(solver.times) - 1
    if file is not None and (saved := _saved(file, steps)) is not None:
        return saved
    seed, selection, moves = jax.random.split(key, 3)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(seed)))
    normals = jnp.asarray(sobol_normals(counted.size, steps + 3, rng).T)
    population, done = None, 0
    for size in _sizes(steps):
        part = dataclasses.replace(solver, times=solver.times[: size + 1])
        longer = part.start(start.Q[0, 0], start.M[0, 0], normals[: size + 3], selection, counted)
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
    thermal = np.asarray(jax.vmap(solver.thermal)(jnp.arange(steps)))
    curves = {
        "M": overlap * float(solver.teacher_norm),
        "Q": np.diagonal(kernels.correlation) + overlap**2,
        "training_loss": np.asarray(population.training_loss),
        "bend": np.asarray(population.bend),
        "rate": np.asarray(population.rate),
        "correlation": np.asarray(kernels.correlation) + np.multiply.outer(overlap, overlap),
        "response": np.asarray(kernels.response),
        "force_correlation": (np.asarray(kernels.forces) - np.diag(thermal)) / np.multiply.outer(durations, durations),
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


def _bytes(steps: int, paths: int) -> int:
    return _BYTES_OF_A_PATH * paths * steps + _BYTES_OF_A_PAIR * steps**2


def _steps_for(paths: int, memory: int) -> int:
    half = _BYTES_OF_A_PATH * paths / 2
    return int((np.sqrt(half**2 + _BYTES_OF_A_PAIR * memory) - half) / _BYTES_OF_A_PAIR)
