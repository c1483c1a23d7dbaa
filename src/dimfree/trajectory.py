"""Trajectory: the one result type, of a solver and of a simulator."""

import enum
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .batches import map_in_batches
from .errors import InvalidInput, check_memory, check_not_traced, is_concrete, real_array, shown
from .gaussian.rules import TOLERANCE, Rule
from .identity import installed_version
from .problems.base import Problem
from .problems.observed import Observable, as_observable
from .state import LETTERS, STUDENTS, TEACHERS, State, WideState

if TYPE_CHECKING:
    import xarray

    # Whoever solves for a wide network knows that its State is a WideState; all others should not have to ask.
    AnyState = State
else:
    AnyState = State | WideState


class Outcome(enum.IntEnum):
    """How a run ended."""

    COMPLETED = 0
    STOPPED = 1
    DIVERGED = 2
    STEP_LIMIT = 3


_UNITS = {"alpha": "samples per dimension", "time": "learning_rate x steps"}
_OUTCOME_WORDS = {
    Outcome.COMPLETED: "completed",
    Outcome.STOPPED: "stopped at the event",
    Outcome.DIVERGED: "diverged",
    Outcome.STEP_LIMIT: "ran out of solver steps",
}


class Trajectory(eqx.Module):
    """The State over alpha (over time if data are reused), for one run or many.

    After a run stops (event, divergence) its last State is repeated; `outcome` and `stopped_at` say so.

    **Attributes:**

    - `alpha`: the clock, samples per dimension, shape `(times,)`; if data are reused, it is time, learning_rate x
      steps, and is called `time` too.
    - `state`: State with axes `(times, ...)`, or `(runs, times, ...)` if there are runs; a [`WideState`] for the limit
      of wide networks.
    - `risk`: the mean loss of a fresh sample at each State.
    - `outcome`: an `Outcome` for each run; `stopped_at`: the alpha of its event or divergence (NaN if it completed).
    - `training_loss`: if data are reused, the mean loss of the training samples at each State.
    - `covariance`: of the coordinates named in `labels`, shape `(times, n, n)`, from [`linear_noise`].
    - `provenance`: how it was made: version, settings, seed, device.
    - `limit_sources`: the publications behind the limit, for `dimfree.cite`; none for a simulation.
    """

    alpha: Float[Array, "*batch times"]
    state: AnyState
    outcome: Int[Array, "*runs"]
    stopped_at: Float[Array, "*runs"]
    problem: Problem
    covariance: Float[Array, "*axes n n"] | None = None
    training_loss: Float[Array, "*axes"] | None = None
    clock: str = eqx.field(static=True, default="alpha")
    labels: tuple[str, ...] = eqx.field(static=True, default=())
    provenance: tuple[tuple[str, str], ...] = eqx.field(static=True, default=())
    limit_sources: tuple[str, ...] = eqx.field(static=True, default=())

    @property
    def sources(self) -> tuple[str, ...]:
        """The publications that it rests on, for `dimfree.cite`."""
        return (*self.problem.sources, *self.limit_sources)

    @property
    def time(self) -> Float[Array, "*batch times"]:
        """The clock where data are reused: learning_rate x steps."""
        if self.clock != "time":
            raise InvalidInput("This trajectory is over samples per dimension, not over time; its clock is .alpha.")
        return self.alpha

    @property
    def runs(self) -> int | None:
        """Number of runs, or None for a single trajectory."""
        has_runs = self.state.M.ndim - 2 == self.alpha.ndim + 1
        return self.state.M.shape[self.alpha.ndim - 1] if has_runs else None

    @functools.cached_property
    def risk(self) -> Float[Array, "*axes"]:
        """The mean loss of a fresh sample at each State."""
        return self.observe("risk")

    def observe(self, what: Any, rule: Rule | None = None, *, tolerance: float = TOLERANCE) -> Any:
        """Anything that can be observed of the network, at each State: of theory and of runs alike.

        Memory is bounded: States are taken in batches. A run that has ended repeats what it ended with.

        **Arguments:**

        - `what`: `"risk"`, `"accuracy"`, a function of one sample or a function of a State, as for `problem.mean`.
        - `rule`, `tolerance`: how averages are taken, as for [`ode`].

        **Returns:** an array over `(times,)`, or `(runs, times)`; axes of what a function of the State returns follow.
        Its numerical error is `problem.mean_error(what, trajectory.state)`.

        ??? example
            >>> import dimfree, jax
            >>> problem = dimfree.Mixture.binary(width=1, snr=4.0)
            >>> start = dimfree.State(Q=[[1.0]], M=[[0.5]])
            >>> solution = dimfree.solve(dimfree.ode(problem, dimfree.OnlineSGD(0.5)), start, alpha=10.0)
            >>> solution.observe("accuracy").shape, solution.observe(lambda state: state.M).shape
            ((201,), (201, 1, 1))
        """
        first, added = self.problem, self.alpha.ndim - 1
        for _ in range(added):
            first = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, first)
        return _observed(self.problem, as_observable(first, what), self.state, self.alpha, rule, tolerance, added)

    @property
    def final(self) -> AnyState:
        """The State at the last alpha."""
        last = self.alpha.ndim - 1 + (self.runs is not None)
        return _last(self.state, last)

    @property
    def standard_deviation(self) -> Float[Array, "*axes n"]:
        """Standard deviation of each coordinate in `labels` (linear noise)."""
        if self.covariance is None:
            raise InvalidInput("This trajectory has no covariance; solve dimfree.linear_noise(...) to get one.")
        return jnp.sqrt(jnp.maximum(jnp.diagonal(self.covariance, axis1=-2, axis2=-1), 0.0))

    @property
    def deviations(self) -> dict[str, Any]:
        """Standard deviations of entries by their names, such as `M[0,0]`, where linear noise tells them; else none.

        Where inputs have a spectrum, an entry is the sum over its blocks, and so is what deviates.
        """
        if self.covariance is None:
            return {}
        entries = [label.partition(" of block ")[0] for label in self.labels]
        names = list(dict.fromkeys(entries))
        sums = np.array([[entry == name for entry in entries] for name in names], float)
        variances = np.einsum("ni,...ij,nj->n...", sums, np.asarray(self.covariance), sums)
        return dict(zip(names, np.sqrt(np.maximum(variances, 0.0)), strict=True))

    def to_xarray(self, observe: Sequence[str] = ()) -> "xarray.Dataset":
        """A labelled Dataset: Q, M, P, readout and risk over the clock (and run), with the provenance as attributes.

        If inputs have a spectrum, `Q_of_block`, `M_of_block` and `P_of_block` are the overlaps in each block.

        **Arguments:**

        - `observe`: names of other observables to keep, such as `["accuracy"]`. The values of a function are added to a
          Dataset by `dataset["margin"] = (dataset["risk"].dims, trajectory.observe(margin))`.

        **Returns:** an `xarray.Dataset`.
        """
        import xarray

        check_not_traced("to_xarray", trajectory=self)
        if self.alpha.ndim > 1:
            raise InvalidInput(
                "This trajectory was made under vmap; take one cell of it (jax.tree.map) and convert that."
            )
        axes = (self.clock,) if self.runs is None else ("run", self.clock)
        state: Any = self.state
        if isinstance(state, WideState):  # whose Q, of p^2 numbers, is not formed
            among = {"q_perp": ((*axes, "student"), state.q_perp)}
        else:
            among = {"Q": ((*axes, "student", "student_"), state.Q)} | _of_own_vectors(state, axes)
        names: dict[str, tuple[tuple[str, ...], Any]] = {
            **among,
            "M": ((*axes, "student", "teacher"), self.state.M),
            "P": (("teacher", "teacher_"), self.state.P.reshape(-1, *self.state.P.shape[-2:])[0]),
            "risk": (axes, self.risk),
            **{name: (axes, self.observe(name)) for name in observe},
            "outcome": (axes[:-1], self.outcome),
            "stopped_at": (axes[:-1], self.stopped_at),
        }
        if self.state.readout is not None:
            names["readout"] = ((*axes, "readout_index"), self.state.readout)
        if isinstance(state, State):
            ranks = {0: (), 2: ("block", "student")}
            names |= {
                name: ((*axes, *ranks[numbers.ndim - len(axes)]), numbers) for name, numbers in state.numbers.items()
            }
        if self.training_loss is not None:
            names["training_loss"] = (axes, self.training_loss)
        coordinates: dict[str, Any] = {self.clock: np.asarray(self.alpha)}
        if isinstance(state, State) and state.blocks > 1:
            rows = {STUDENTS: "student", TEACHERS: "teacher"}
            for pair, name in LETTERS.items():
                one, other = (rows[family] for family in pair)
                dimensions = (*axes, "block", one, other + "_" * (one == other))
                names[f"{name}_of_block"] = (dimensions, state.blocks_of(*pair))
            inputs = self.problem.inputs
            coordinates |= {
                "eigenvalue": ("block", np.asarray(inputs.eigenvalues)),
                "fraction": ("block", np.asarray(inputs.fractions)),
            }
        if self.covariance is not None:
            names["covariance"] = ((*axes, "coordinate", "coordinate_"), self.covariance)
            coordinates |= {"coordinate": list(self.labels), "coordinate_": list(self.labels)}
        return xarray.Dataset(
            {name: (dimensions, np.asarray(array)) for name, (dimensions, array) in names.items()},
            coords=coordinates,
            attrs=dict(self.provenance),
        )

    def __repr__(self) -> str:
        if not is_concrete(self):
            return f"Trajectory(traced, {self.alpha.shape[-1]} times)"
        p, k = self.state.M.shape[-2:]
        what = "one trajectory" if self.runs is None else f"{self.runs} runs"
        lines = [
            f"Trajectory: {what}, p = {p}, k = {k}, {self.alpha.shape[-1]} times, "
            f"{self.clock} {float(self.alpha.min()):g} to {float(self.alpha.max()):g}"
        ]
        codes, counts = np.unique(np.asarray(self.outcome), return_counts=True)
        for code, count in zip(codes, counts, strict=True):
            where = ""
            if code != Outcome.COMPLETED:
                ends = np.asarray(self.stopped_at)[np.asarray(self.outcome) == code]
                where = f", {self.clock} {np.min(ends):.4g}" + (f" to {np.max(ends):.4g}" if count > 1 else "")
            lines.append(f"  outcome: {count} {_OUTCOME_WORDS[Outcome(code)]}{where}")
        if self.alpha.ndim == 1:
            for name, losses in (("risk", self.risk), ("training loss", self.training_loss)):
                if losses is None:
                    continue
                loss = np.asarray(losses).reshape(-1, self.alpha.shape[-1])
                spread = f" (mean over runs, +- {_spread(loss[:, -1]):.2g} between runs)" if self.runs else ""
                lines.append(f"  {name}: {loss[:, 0].mean():.6g} -> {loss[:, -1].mean():.6g}{spread}")
        lines += [f"  {name}: {value}" for name, value in self.provenance]
        return "\n".join(lines)


def _of_own_vectors(state: State, axes: tuple[str, ...]) -> dict[str, tuple[tuple[str, ...], Any]]:
    """The overlaps of an algorithm's own vectors, each one for a student."""
    students, teachers, *own = state.families
    names = {students: "student", teachers: "teacher"}
    return {
        f"{one}_{other}" if one != other else one: (
            (*axes, "student", names.get(other, "student") + ("" if other == teachers else "_")),
            state.overlap(one, other),
        )
        for one, other in state.overlaps
        if one in own
    }


@eqx.filter_jit
def _observed(
    problem: Problem,
    what: Observable,
    state: State | WideState,
    alpha: Float[Array, "*batch times"],
    rule: Any,
    tolerance: Any,
    added: int,
):
    """The mean at every State, where a vmap around the whole computation has added axes to problem and State."""
    if added:
        return map_in_batches(
            lambda of: _observed(of[0], what, of[1], of[2], rule, tolerance, added - 1), (problem, state, alpha)
        )
    if not problem.changes:
        return problem.mean(what, state, rule, tolerance=tolerance)
    axis = state.M.ndim - 3  # of times
    by_time = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, axis, 0), state)
    found = jax.lax.map(lambda of: problem.at(of[0]).mean(what, of[1], rule, tolerance=tolerance), (alpha, by_time))
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, axis), found)


def provenance(*, key: Any = None, **settings: Any) -> tuple[tuple[str, str], ...]:
    """What a result records of how it was made; traced settings are left out."""
    if isinstance(key, jax.Array) and is_concrete(key):
        with jax.ensure_compile_time_eval():  # the key may be known inside of a program that is being traced
            key = np.asarray(jax.random.key_data(key))
    settings["key"] = key
    recorded = {name: str(value) for name, value in settings.items() if value is not None and is_concrete(value)}
    return tuple(
        {
            **recorded,
            "dimfree": installed_version("dimfree"),
            "jax": jax.__version__,
            "device": str(jax.devices()[0]),
        }.items()
    )


def save_alphas(
    alpha: Any, state_bytes: int = 8, *, runs: int = 1, clock: str = "alpha"
) -> Float[Array | np.ndarray, " times"]:
    """The times to save at: those given, or 201 even ones up to a given end; refused if their States do not fit.

    **Arguments:**

    - `alpha`: what the user gave; `clock` names it in errors.
    - `state_bytes`, `runs`: what is saved at each time by each run, and how many runs there are.
    """
    times = alpha.shape[0] if getattr(alpha, "shape", ()) else 201
    # Before the times themselves are looked at: there may be too many of them already.
    check_memory(
        times * runs * state_bytes,
        f"{runs:,} {'runs' if runs > 1 else 'run'} at {times:,} times, {state_bytes:,} bytes each,",
        f"Take fewer runs, or fewer times ({clock}).",
    )
    if isinstance(alpha, jax.Array) and is_concrete(alpha) and not jnp.issubdtype(alpha.dtype, jax.dtypes.prng_key):
        alpha = np.asarray(alpha)  # so that inside jit it stays numbers that can be looked at
    alphas = real_array(alpha, clock, f"an end, or increasing times, in real numbers of {_UNITS[clock]}")
    concrete = isinstance(alphas, np.ndarray)
    library = np if concrete else jnp
    if alphas.ndim == 0:
        if concrete and not (np.isfinite(float(alphas)) and float(alphas) > 0):
            raise InvalidInput(f"{clock} = {shown(alpha)} was given; the end must be positive ({_UNITS[clock]}).")
        if not concrete:
            words = f"{clock} was given as a traced number that is not finite and positive; it is the end of the run."
            alphas = eqx.error_if(alphas, ~(jnp.isfinite(alphas) & (alphas > 0)), words)
        return library.linspace(0.0, alphas, 201)
    if alphas.ndim != 1 or alphas.shape[0] < 2:
        raise InvalidInput(f"{clock} has shape {alphas.shape}; give an end, or at least two increasing times.")
    if concrete and not (np.isfinite(alphas).all() and alphas[0] >= 0 and (np.diff(alphas) > 0).all()):
        raise InvalidInput(
            f"{clock} = {shown(alpha)} was given; it must be finite, increasing times, the first at least 0."
        )
    if not concrete:
        ordered = jnp.isfinite(alphas).all() & (alphas[0] >= 0) & (jnp.diff(alphas) >= 0).all()
        words = f"{clock} was given as traced times that are not finite and increasing, the first at least 0."
        alphas = eqx.error_if(alphas, ~ordered, words)
    return alphas


def steps_at(alphas: Float[np.ndarray, " times"], each: float, words: str) -> Int[np.ndarray, " times"]:
    """How many steps are made by these times, rounded, where a step takes `each`; none, or too many, are refused.

    **Arguments:**

    - `words`: what a step takes, for errors, such as "batch_size / d".
    """
    steps = np.round(alphas / each)
    if steps[-1] < 1:
        raise InvalidInput(f"The end, alpha = {float(alphas[-1]):g}, is less than one step, {words} = {each:g}.")
    if not steps[-1] <= 2**53:
        raise InvalidInput(
            f"The end, alpha = {float(alphas[-1]):g}, is {steps[-1]:.3g} steps of {words} = {each:g}: centuries of "
            "computing. Take an earlier end."
        )
    return steps.astype(int)


def check_event(stop: Any, state: Any) -> None:
    """An error in words if this is neither a function of such a State to a number, nor left out."""
    if stop is None:
        return
    if not callable(stop):
        raise InvalidInput(
            f"stop = {shown(stop)} was given; give a function of the State that reaches zero from below, such as "
            'problem.reaches("risk", 0.1).'
        )
    try:
        found = jax.eval_shape(stop, state)
    except InvalidInput:
        raise
    except Exception as error:
        raise InvalidInput(
            f"stop could not be evaluated by JAX at a State: {type(error).__name__}: {error}\n"
            "Write it with jax.numpy, such as lambda state: state.M[0, 0] - 0.5."
        ) from error
    if getattr(found, "shape", None) != () or not (jnp.issubdtype(found.dtype, jnp.floating)):
        raise InvalidInput(
            f"stop returned {shown(found)} at a State; it must return one real number, such as state.M[0, 0] - 0.5."
        )


def bytes_of_state(problem: Problem, *, wide: bool = False) -> int:
    """Bytes of a State of a problem, or of a WideState, which has no overlaps among students."""
    p, k = problem.width, problem.teacher_width
    readout = 0 if problem.readout is None else problem.readout.size
    return 8 * (problem.inputs.blocks * ((p if wide else p * p) + p * k + k * k) + readout)


def check_fits(problem: Problem, start: State | WideState) -> None:
    """An error if a start is not one, or not of this problem: leading axes, widths, readout."""
    if start.M.ndim != 2:
        raise InvalidInput(f"The start has leading axes {start.M.shape[:-2]}; use jax.vmap to go over many starts.")
    if (start.width, start.teacher_width) != (problem.width, problem.teacher_width):
        raise InvalidInput(
            f"The start has p = {start.width} students and k = {start.teacher_width} teachers, the problem "
            f"p = {problem.width} and k = {problem.teacher_width}."
        )
    readout = problem.readout_of(start)
    if readout is not None and problem.readout is not None and readout.shape != problem.readout.shape:
        raise InvalidInput(f"The start has a readout of shape {readout.shape}, the problem {problem.readout.shape}.")


def check_start(problem: Problem, start: State, *, trained: bool) -> State:
    """The start with the readout filled in, or an error if it does not fit the problem."""
    if not isinstance(start, State):
        raise InvalidInput(
            f"start = {shown(start)} was given; pass dimfree.State(Q=..., M=...) or dimfree.random_state(...)."
        )
    check_fits(problem, start)
    if trained and problem.readout_of(start) is None:
        raise InvalidInput(
            "readout_rate was given, but the problem has no readout to train; give it one (readout=...)."
        )
    if start.blocks not in (1, problem.inputs.blocks):
        raise InvalidInput(
            f"The start has overlaps in {start.blocks} blocks, the inputs of the problem in {problem.inputs.blocks}."
        )
    return problem.inputs.over_blocks(problem.completed(start))


def check_starts(problem: Problem, start: State, runs: int, *, trained: bool) -> State:
    """The start of many runs: one State for all, or one for each along a leading axis; returned with that axis."""
    if not isinstance(start, State) or not start.batch_shape:
        single = check_start(problem, start, trained=trained)
        return _repeated(single, runs)
    if start.batch_shape != (runs,):
        raise InvalidInput(
            f"The start has leading axes {start.batch_shape}, but there are {runs} runs; give one State, or one for "
            "each run along a leading axis."
        )
    first = check_start(problem, first_of(start), trained=trained)
    start = problem.inputs.over_blocks(start)
    if start.readout is not None or first.readout is None:
        return start
    return start.with_readout(_repeated(first.readout, runs))


# One program for all arrays of a State, where each would have one or two for itself.


@jax.jit
def first_of(states: Any) -> Any:
    """The first entry along the leading axis."""
    return jax.tree.map(lambda leaf: leaf[0], states)


@functools.partial(jax.jit, static_argnames="axis")
def _last(states: Any, axis: int) -> Any:
    return jax.tree.map(lambda leaf: jnp.take(leaf, -1, axis=axis), states)


@functools.partial(jax.jit, static_argnames="times")
def _repeated(state: Any, times: int) -> Any:
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (times, *leaf.shape)), state)


def _spread(values: Float[np.ndarray, " runs"]) -> float:
    """The standard deviation over runs; NaN, without a warning, where one of them has diverged beyond numbers."""
    with np.errstate(invalid="ignore"):
        return float(np.std(values))
