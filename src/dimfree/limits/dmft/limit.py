"""Dynamical mean-field theory as a limit: populations are added until the error of their mean is small."""

import time as clock
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from ...algorithms.reused import MultiPassSGD, ReusedData
from ...errors import (
    InvalidInput,
    check_key,
    check_not_traced,
    flag,
    is_concrete,
    positive_integer,
    positive_number,
    shown,
)
from ...integration import Found, Settings
from ...problems import FieldProblem, Problem
from ...problems.base import check_problem
from ...state import STUDENTS, TEACHERS, Coordinates, Entries, State, check_state
from ...trajectory import Outcome, Trajectory, check_start
from ..limit import Limit
from .populations import Curves, Populations, errors_of_steps, make_directory
from .solution import DMFTSolution, ended, errors_of_means, extrapolated, shift, systematic_errors, together
from .time_grid import given_times

_LEAST_BESIDE = 1e-10  # of the squared norm that must not be along the teacher
_UNSTABLE = ", and they are too long to be stable: give dimfree.dmft more memory"
_FEWEST = 8  # populations, so that their spread is known; four are not enough
_LEAST = 4  # of them that a caller can do with
_HALVED = 4  # of so many populations the halves of one are solved as well


class DMFTLimit(Limit[DMFTSolution]):
    """The limit of an algorithm that reuses its data; its clock is time. Use [`dmft`] to make one."""

    problem: FieldProblem
    algorithm: ReusedData
    flow: bool = eqx.field(static=True)
    target_error: float = eqx.field(static=True)
    paths: int | None = eqx.field(static=True)
    most_populations: int = eqx.field(static=True)
    store: Path | None = eqx.field(static=True)
    memory: int = eqx.field(static=True)

    @property
    def name(self) -> str:
        return f"dynamical mean-field theory, {'flow' if self.flow else 'at the learning rate'}"

    @property
    def own_sources(self) -> tuple[str, ...]:
        return ("mignacco2021",)

    @property
    def clock(self) -> str:
        return "time"

    @property
    def coordinates(self) -> Coordinates:
        """The numbers that move."""
        among = Entries((STUDENTS, STUDENTS), 1, 1, self.algorithm.sphere)
        return Coordinates((among, Entries((STUDENTS, TEACHERS), 1, 1, False)), 1, 0)

    @property
    def refuses(self) -> dict[str, str]:
        error = "its error is set by dimfree.dmft(..., target_error=...)"
        return {
            "stop": "it is solved to its end, so look at the result instead",
            "runs": "it has populations, as many as its error needs (dimfree.dmft(..., most_populations=...))",
            "relative_tolerance": error,
            "absolute_tolerance": error,
        }

    def prepare(self, start: State, settings: Settings) -> State:
        if settings.key is None:
            raise InvalidInput("The populations of a DMFT are random: give solve a key, key=jax.random.key(0).")
        check_key(settings.key)
        if not is_concrete((self, start, settings.key)):
            raise InvalidInput("The limit, the start or the key is traced; dmft is solved outside jit, vmap and grad.")
        start = check_start(self.problem, start, trained=False)
        check_state(start, sphere=self.algorithm.sphere)
        beside = start.Q[0, 0] - start.M[0, 0] ** 2 / start.P[0, 0]
        if float(beside) <= _LEAST_BESIDE * float(start.Q[0, 0]):
            raise InvalidInput(
                f"The start lies along the teacher (Q = {float(start.Q[0, 0]):g}, M = {float(start.M[0, 0]):g}): dmft "
                "follows the part of the weights beside it, and there is none. Take an overlap a little smaller."
            )
        if self.store is not None:
            make_directory(self.store)
        return start

    def times(self, given: Any, settings: Settings) -> Float[np.ndarray, "*times"]:
        """The times of the grid; the end alone where the steps of a flow are yet to be chosen."""
        if not is_concrete(given):
            raise InvalidInput("time is traced; dmft is solved outside jit, vmap and grad.")
        return given_times(self.algorithm, given, self.flow)

    def integrate(self, start: State, times: Any, settings: Settings) -> Found:
        assert settings.key is not None
        populations = Populations(
            _with_readout(self.problem, start),
            self.algorithm,
            start,
            self.flow,
            jax.random.split(settings.key, self.most_populations),
            self.paths,
            self.memory,
            self.store,
        )
        stable = True
        if not times.ndim:
            times, stable = populations.grid(float(times), self.target_error, settings.progress)
        cost = populations.cost(len(times) - 1)
        if settings.progress:
            print(cost, flush=True)
        found, shifts = self._enough(populations, times, settings.progress)
        outcomes = [ended(grids, self.algorithm, self.flow) for grids in found]
        arrays = together(times, found, outcomes, start, shifts)
        completed = [fine for (fine, *_), end in zip(found, outcomes, strict=True) if end == Outcome.COMPLETED]
        missed = np.mean([errors_of_steps(times, fine).sum() for fine in completed])
        diverged = len(found) - len(completed)
        left_out = f" ({diverged} diverged and are left out)" if diverged else ""
        return Found(
            arrays,
            {
                "populations": f"{len(found)}{left_out}, {cost}",
                "steps": (f"their errors add up to {missed:.2g}, before extrapolation" + _UNSTABLE * (not stable))
                if self.flow
                else "those of the algorithm",
                "key": settings.key,
            },
        )

    def _enough(
        self, populations: Populations, times: Float[np.ndarray, " times"], progress: bool
    ) -> tuple[list[tuple[Curves, ...]], list[Curves]]:
        """The curves of populations, on each grid, until the error of their mean is small or there are too many.

        And how far some are from their halves, which more populations do not change.
        """
        grids = (times, times[::2]) if self.flow else (times,)
        fewest = min(_FEWEST, self.most_populations)
        found: list[tuple[Curves, ...]] = []
        believed: list[int] = []
        shifts: list[Curves] = []
        for number in range(self.most_populations):
            began = clock.perf_counter()
            found.append(tuple(populations.on(grid, number) for grid in grids))
            if ended(found[-1], self.algorithm, self.flow) == Outcome.COMPLETED:
                believed.append(number)
                if len(believed) <= fewest // _HALVED:
                    shifts += self._shifts(populations, times, grids[-1], number)
            error, enough = self._error(times, [found[each] for each in believed], shifts)
            if progress:
                needed = (number + 1) * (error / self.target_error) ** 2
                expected = int(np.ceil(np.clip(needed, fewest, self.most_populations)))
                print(
                    f"population {number + 1} of about {expected}: {clock.perf_counter() - began:.1f} s, "
                    f"standard error {error:.2g} (target {self.target_error:g})",
                    flush=True,
                )
            if len(believed) >= fewest and enough:
                break
        return found, shifts

    def _shifts(self, populations: Populations, times, grid: Float[np.ndarray, " some"], number: int) -> list[Curves]:
        """How far the population is from the mean of its halves, where those can be believed; on a coarse grid."""
        halves = [populations.on(grid, number, half) for half in (0, 1)]
        if any(ended((half,), self.algorithm, self.flow) != Outcome.COMPLETED for half in halves):
            return []
        return [shift(times, grid, populations.on(grid, number), halves)]

    def _error(
        self, times: Float[np.ndarray, " times"], found: list[tuple[Curves, ...]], shifts: list[Curves]
    ) -> tuple[float, bool]:
        """The largest error of the overlap, and whether it is small or more populations would not help."""
        if len(found) < 2:
            return np.inf, False
        rows = [extrapolated(times, *grids)["M"] for grids in found]
        correction = np.mean([row - fine["M"] for row, (fine, *_) in zip(rows, found, strict=True)], axis=0)
        spread = errors_of_means(times, rows)
        systematic = systematic_errors(correction, [shift["M"] for shift in shifts])
        allowed = np.maximum(self.target_error**2 - systematic**2, (self.target_error / 2) ** 2)
        return float(np.hypot(spread, systematic).max()), bool(np.all(spread**2 <= allowed))

    def result(self, arrays: dict[str, Any], **made: Any) -> DMFTSolution:
        populations = Trajectory(alpha=arrays["alpha"], **arrays["populations"], **made)
        return DMFTSolution(**(arrays | {"populations": populations}), **made)


def _with_readout(problem: FieldProblem, start: State) -> FieldProblem:
    """The problem with the readout of the start."""
    return eqx.tree_at(lambda each: each.readout, problem, start.readout, is_leaf=lambda leaf: leaf is None)


def dmft(
    problem: Problem,
    algorithm: ReusedData,
    *,
    flow: bool = True,
    target_error: float = 0.01,
    paths: int | None = None,
    most_populations: int = 32,
    store: str | Path | None = None,
    memory: int = 2**31,
) -> DMFTLimit:
    r"""Reused data in the limit $d \to \infty$ at a fixed number of samples per dimension, by DMFT.

    With `flow` the learning rate vanishes as well, and
    $\dot w = -\text{ridge} \, w - \text{gradient} + \text{thermal noise}$ (on the sphere, with a multiplier in place of
    the ridge). Otherwise it is the limit of the algorithm at its learning rate, step by step; [`MultiPassSGD`] has that
    limit only, because its flow is that of [`GradientDescent`].

    The theory is causal: a population of paths of single samples is carried forward once, with the kernels of the
    weights from averages over it. A finite population has an error that the dynamics amplify; there are at least eight
    populations, and more until the standard error of their mean overlap is below the target. For a flow, as many are
    solved with half as many steps, which cost little, and the result is extrapolated. Two populations are solved in
    halves as well, which shows their bias; a bias, or an error of steps, beyond the target is stated and stays: take
    more paths, or shorter steps.

    [`solve`] takes a random key for it, and gives a [`DMFTSolution`]. Its clock is time = learning_rate x steps: give
    `solve` the end, or the increasing times of the grid, from 0 (for a flow, an even number of steps). Without a grid,
    the steps of a flow are chosen by the errors of those of a first population, which says nothing of what they add up
    to later.

    Holds for one student and one teacher, losses that are twice differentiable, standard Gaussian inputs.

    **Arguments:**

    - `problem`, `algorithm`: what is learned, and how.
    - `flow`: whether the learning rate vanishes.
    - `target_error`: of the overlap M at any time.
    - `paths`: of a population, a power of two; chosen automatically, up to 4,096, within `memory`, if left out.
    - `most_populations`: after which it stops, whatever the error; at least four, which leave the error less certain.
    - `store`: a directory for finished populations; what is there from an earlier solve like this one is not done
      again. Files are named by all that a population depends on: exact numbers, the code and values of functions, the
      versions of dimfree and JAX, the precision.
    - `memory`: bytes to use; a population takes 24 for each path and step, and 64 for each pair of steps.

    **Returns:** a limit, for [`solve`].

    Mignacco, Urbani & Zdeborová, Mach. Learn.: Sci. Technol. 2 (2021) 035029, eqs. (14)-(19), with the misprints of
    (A.21), which has a factor 1/batch_fraction too many, and of (A.23), whose multiplier is that of (14). There the
    kernels are iterated to self-consistency over all times.

    ??? example
        >>> import dimfree, jax
        >>> descent = dimfree.GradientDescent(0.01, samples_per_dimension=2.0, sphere=True)
        >>> start = dimfree.State(Q=[[1.0]], M=[[0.8]])
        >>> limit = dimfree.dmft(dimfree.PhaseRetrieval(), descent, paths=1024)
        >>> found = dimfree.solve(limit, start, 0.2, key=jax.random.key(0))
        >>> bool(found.state.M[-1, 0, 0] > 0.8)
        True
    """
    if not isinstance(algorithm, ReusedData):
        raise InvalidInput(
            f"algorithm = {shown(algorithm)} was given; dmft is for reused data (dimfree.GradientDescent, "
            "PersistentSGD, ...). For fresh samples use dimfree.ode."
        )
    check_problem(problem, "spectrum")
    if not isinstance(problem, FieldProblem) or not problem.inputs.is_standard:
        raise InvalidInput(
            f"problem = {shown(problem)} was given; dmft needs a loss of local fields of standard inputs."
        )
    if (problem.width, problem.teacher_width) != (1, 1):
        raise InvalidInput(
            f"The problem has {problem.width} students and {problem.teacher_width} teachers; dmft is for one of each. "
            "dimfree.simulate takes any."
        )
    if not problem.smooth:
        raise InvalidInput("The loss has a kink; dmft needs one that is twice differentiable, such as a smoothed one.")
    flow = flag(flow, "flow")
    if flow and isinstance(algorithm, MultiPassSGD):
        raise InvalidInput(
            "As the learning rate vanishes, multi-pass SGD becomes gradient descent. Give flow=False for its limit at "
            "the learning rate, or take dimfree.GradientDescent or dimfree.PersistentSGD."
        )
    if paths is not None:
        paths = positive_integer(paths, "paths", minimum=2)
        if paths & (paths - 1):
            raise InvalidInput(f"paths = {paths} was given; take a power of two (the points are those of a Sobol net).")
    check_not_traced("dmft", target_error=target_error)
    positive_number(target_error, "target_error")
    most = positive_integer(most_populations, "most_populations", minimum=_LEAST)
    memory = positive_integer(memory, "memory")
    if store is not None and not isinstance(store, str | Path):
        raise InvalidInput(f"store = {shown(store)} was given; it is the path of a directory.")
    store = None if store is None else Path(store)
    return DMFTLimit(problem, algorithm, flow, float(target_error), paths, most, store, memory)
