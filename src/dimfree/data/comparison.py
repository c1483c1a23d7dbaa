"""What of SGD on a user's data the covariance explains, and what it does not."""

import dataclasses
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from numpy.typing import ArrayLike

from ..algorithms.online import OnlineAlgorithm, check_online
from ..components import (
    Components,
    check_rows,
    check_taking,
    components_of,
    is_array,
    least_squares,
    without_frame,
)
from ..errors import (
    InvalidInput,
    check_key,
    check_memory,
    check_not_traced,
    flag,
    in_bytes,
    positive_integer,
    real_array,
    shown,
)
from ..limits import ode
from ..printing import Progress, duration
from ..problems import Spectrum, TwoLayer
from ..problems.base import check_problem
from ..problems.field_problem import FieldProblem
from ..problems.inputs import block_of_coordinate
from ..simulation import simulate
from ..solving import solve
from ..state import STUDENTS, TEACHERS, State, check_state
from ..trajectory import Outcome, Trajectory, provenance, save_alphas, steps_at
from . import distances, sets
from .distances import Distance

if TYPE_CHECKING:
    import xarray

_FEWEST_RUNS = 8  # with fewer, a standard error is itself too uncertain for a verdict
_TIMES_MORE = 8  # as many runs as asked for, at most, where they do not decide
_SETS = 8  # Gaussian sets, with several runs on each
_RISK_ROWS = 200_000  # rows at most on which the risk is measured
_LINES = 9  # of the printed table
_SHAPES = 5  # times at which the law of the fields is looked at

FINITE_DIMENSION, FINITE_SAMPLE, NOT_GAUSSIAN = "finite dimension", "finite sample", "not Gaussian"
_STEPS = {
    FINITE_DIMENSION: "theory -> Gaussian inputs",
    FINITE_SAMPLE: "-> Gaussian set",
    NOT_GAUSSIAN: "-> data",
}


@dataclasses.dataclass(frozen=True, eq=False)
class Fields:
    """How far fields are from Gaussian: kurtosis (3 if Gaussian), and the Wasserstein-1 distance once standardised.

    - `alpha`: when, shape `(times,)`.
    - `student_kurtosis`, `student_distance`: of the students of the first run, shape `(times, p)`.
    - `teacher_kurtosis`, `teacher_distance`: shape `(k,)`.
    """

    alpha: Float[np.ndarray, " times"]
    student_kurtosis: Float[np.ndarray, "times p"]
    student_distance: Float[np.ndarray, "times p"]
    teacher_kurtosis: Float[np.ndarray, " k"]
    teacher_distance: Float[np.ndarray, " k"]


@dataclasses.dataclass(frozen=True, eq=False)
class DataComparison:
    """SGD on data beside SGD on Gaussian inputs and its theory, from [`from_data`]; it prints as a report.

    **Attributes:**

    - `alpha`: samples per dimension, shape `(times,)`.
    - `theory`, `gaussian`: [`Trajectory`] of the ODE, and of SGD on fresh Gaussian inputs at the same d.
    - `gaussian_set`, `data`: the risk of SGD on Gaussian sets of the same size and on the data, shape `(runs, times)`;
      NaN for runs that diverged.
    - `set_of_run`: which Gaussian set each run of `gaussian_set` is on, shape `(runs,)`.
    - `verdict`: `differs` if theory and data are further apart than 5% of the risk (or of 1% of that at the start), by
      two standard errors, and than chance explains, four standard errors, at any time after the start. This holds for
      the mean over runs, or for a typical run on the data beside one on Gaussian sets (`typical`). Else `agrees` if
      they are nowhere further apart than 25%, two standard errors included (`precision`), and `undecided` if that is
      not known.
    - `agrees`: whether that is the verdict.
    - `causes`: where they differ, which steps from theory to data do; where none does by itself and the sum does, the
      largest.
    - `runs_needed`: about how many runs would decide; infinite where no number does.
    - `seconds_per_run`: of one run on the data and one on a Gaussian set.
    - `problem`: with the spectrum of the data and, for labels, the variance of the residuals as its noise.
    - `start`: the State at alpha = 0; `start_weights`, `teacher_weights`: the vectors, in the coordinates of the data.
    - `mean`, `scale`: inputs are (row - mean) / scale; `label_mean`: what was taken off labels, zero if there are none.
    - `rows`, `risk_rows`: of the data, and how many of them the risk is measured on; `passes`: over the data.
    - `effective_dimension`: $(\\text{tr}\\,\\Sigma)^2 / \\text{tr}\\,\\Sigma^2$.
    - `block_error`: the largest relative error that the blocks of the spectrum make in the variance of a field.
    - `fields`, `gaussian_fields`: how far fields are from Gaussian, on the data and on a Gaussian set.
    """

    alpha: Float[np.ndarray, " times"]
    theory: Trajectory
    gaussian: Trajectory
    gaussian_set: Float[np.ndarray, "runs times"]
    data: Float[np.ndarray, "runs times"]
    set_of_run: Int[np.ndarray, " runs"]
    seconds_per_run: float
    problem: FieldProblem
    algorithm: OnlineAlgorithm
    start: State
    start_weights: Float[np.ndarray, "p d"]
    teacher_weights: Float[np.ndarray, "k d"]
    mean: Float[np.ndarray, " d"]
    scale: float
    label_mean: float
    fitted: bool
    rows: int
    risk_rows: int
    passes: float
    effective_dimension: float
    block_error: float
    fields: Fields
    gaussian_fields: Fields
    provenance: tuple[tuple[str, str], ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """The publications that it rests on, for `dimfree.cite`."""
        return self.theory.sources

    @property
    def risks(self) -> dict[str, Float[np.ndarray, "runs times"]]:
        """The risk by each description, from theory (one run) to data; NaN for runs that diverged."""
        diverged = np.asarray(self.gaussian.outcome) != Outcome.COMPLETED
        gaussian = np.where(diverged[:, None], np.nan, np.asarray(self.gaussian.risk))
        return {
            "theory": np.asarray(self.theory.risk)[None],
            "gaussian": gaussian,
            "gaussian_set": self.gaussian_set,
            "data": self.data,
        }

    @property
    def means(self) -> dict[str, tuple[Float[np.ndarray, " times"], Float[np.ndarray, " times"]]]:
        """The mean over runs that did not diverge, by description, and its standard error."""
        found = {name: distances.mean(values) for name, values in self.risks.items()}
        return found | {"gaussian_set": distances.set_mean(self.gaussian_set, self.set_of_run)}

    @property
    def distances(self) -> dict[str, Distance]:
        """The steps from theory to data by their cause, and `all` of them together.

        Errors are those of the means over runs and, for the data, by how much one set of rows differs from another.
        """
        means, size = list(self.means.values()), distances.size_of(self.means["theory"][0])
        set_error = np.sqrt(distances.between_sets(self.gaussian_set, self.set_of_run))
        found = {}
        for cause, (one, before), (other, after) in zip(_STEPS, means[:-1], means[1:], strict=True):
            errors = np.sqrt(before**2 + after**2 + (set_error**2 if cause == NOT_GAUSSIAN else 0.0))
            found[cause] = Distance((other - one) / size, errors / size, self._begin)
        return found | {"all": distances.theory_to_data(*self._curves)}

    @property
    def typical(self) -> Distance:
        """The logarithm of how many times the risk of a typical run on a Gaussian set one on the data has."""
        return distances.typical(*self._curves)

    @property
    def _begin(self) -> int:
        return int(self.alpha[0] == 0)

    @property
    def _curves(self) -> tuple:
        return self.means["theory"][0], self.gaussian_set, self.set_of_run, self.data, self._begin

    @property
    def precision(self) -> float:
        """The part of the risk that theory and data are nowhere further apart than, two standard errors included."""
        return self.distances["all"].precision

    @property
    def verdict(self) -> Literal["agrees", "differs", "undecided"]:
        if self.distances["all"].matters or self.typical.matters:
            return "differs"
        return "agrees" if self.precision <= distances.WIDEST else "undecided"

    @property
    def agrees(self) -> bool:
        return self.verdict == "agrees"

    @property
    def causes(self) -> tuple[str, ...]:
        if self.verdict != "differs":
            return ()
        steps = {cause: self.distances[cause] for cause in _STEPS}
        found = tuple(
            cause for cause, step in steps.items() if step.matters or (cause == NOT_GAUSSIAN and self.typical.matters)
        )
        where = self.distances["all"].telling
        return found or (max(steps, key=lambda cause: abs(steps[cause].values[where])),)

    @property
    def runs_needed(self) -> float:
        own = (self.means["data"][1] / distances.size_of(self.means["theory"][0])) ** 2
        return distances.runs_needed(self.distances["all"], self.typical, own, len(self.data))

    def to_xarray(self) -> "xarray.Dataset":
        """A labelled Dataset: the risk by each description over alpha (and run), with the provenance as attributes."""
        import xarray

        theory, *runs = self.risks.items()
        return xarray.Dataset(
            {"theory": ("alpha", theory[1][0])} | {name: (("run", "alpha"), values) for name, values in runs},
            coords={"alpha": self.alpha},
            attrs=dict(self.provenance)
            | {
                "agrees": str(self.agrees),
                "verdict": self.verdict,
                "causes": ", ".join(self.causes),
                "rows": self.rows,
                "passes": self.passes,
                "scale": self.scale,
                "effective_dimension": self.effective_dimension,
            },
        )

    def __repr__(self) -> str:
        d, (runs, times) = len(self.mean), self.data.shape
        inputs = f"{self.rows:,} rows of {d:,} numbers"
        lines = [
            self._verdict(),
            f"  {inputs}, {runs} runs, {self.passes:.3g} passes over the rows",
            f"  {self.problem!r}",
            f"  {self.algorithm!r}",
            f"  {'alpha':>10}{'theory':>11}{'Gaussian':>11}{'+-':>9}{'set':>11}{'+-':>9}{'data':>11}{'+-':>9}",
        ]
        means = self.means
        for time in _spread(times, _LINES):
            cells = [f"{mean[time]:11.4g}{error[time]:9.2g}" for mean, error in list(means.values())[1:]]
            lines.append(f"  {self.alpha[time]:10.4g}{means['theory'][0][time]:11.4g}{''.join(cells)}")
        lines.append(
            f"  {'step, relative to the risk':<28}{'cause':<18}{'most telling':>22}{'at alpha':>10}{'at the end':>22}"
        )
        for cause, distance in self.distances.items():
            where, words = distance.telling, _STEPS.get(cause, "theory -> data")
            name = "" if cause == "all" else cause
            lines.append(
                f"  {words:<28}{name:<18}{distance.at(where):>22}{self.alpha[where]:>10.4g}{distance.at(-1):>22}"
            )
        lines += [f"  {line}" for line in (*self._beside(), *self._remedies())]
        return "\n".join(lines)

    __str__ = __repr__

    def _verdict(self) -> str:
        whole, typical = self.distances["all"], self.typical
        kurtosis = max(self.fields.student_kurtosis.max(), self.fields.teacher_kurtosis.max())
        figures = (
            f"kurtosis of the fields up to {kurtosis:.3g} (Gaussian: 3), effective dimension "
            f"{self.effective_dimension:.3g} of {len(self.mean):,}"
        )
        where = whole.telling
        seen = f"{whole.at(where)} of the risk at alpha = {self.alpha[where]:.3g}"
        if self.agrees:
            return (
                f"Theory describes SGD on these data to {self.precision:.0%} of the risk, two standard errors "
                f"included: it differs by {seen}, by {whole.at(-1)} at the end ({figures})."
            )
        if self.verdict == "undecided":
            widest = int(np.argmax(whole.reach))
            return (
                f"Theory and SGD on these data are not told apart: they differ by {seen}, and at alpha = "
                f"{self.alpha[widest]:.3g} chance leaves room for {whole.reach[widest]:.0%} after {len(self.data)} "
                f"runs ({figures}). {self._what_would_decide()}"
            )
        if whole.matters:
            what = f"{seen}, {whole.at(-1)} at the end"
        else:
            mean, where = f"the means over runs differ by {seen}", typical.telling
            times, factor = np.exp(typical.values[where]), np.exp(distances.MARGIN * typical.errors[where])
            what = (
                f"a typical run has {times:.3g} times the risk of one on Gaussian rows at alpha = "
                f"{self.alpha[where]:.3g} ({times / factor:.2g} to {times * factor:.2g}, two standard errors); {mean}"
            )
        return f"Theory does NOT describe SGD on these data: {what}. Cause: {', '.join(self.causes)} ({figures})."

    def _what_would_decide(self) -> str:
        needed = self.runs_needed
        if np.isfinite(needed):
            number = int(np.ceil(max(needed, len(self.data) + 1)))
            time = duration(number * self.seconds_per_run)
            return f"About {number:,} runs would decide (most_runs={number}), {time} at the speed of these."
        return (
            f"More runs alone would not decide, as Gaussian sets of {self.rows:,} rows differ from each other. "
            "Take more rows, or an earlier end."
        )

    def _beside(self) -> list[str]:
        fields, others, d = self.fields, self.gaussian_fields, len(self.mean)
        kurtosis = ", ".join(
            f"{values.max():.3g} at alpha {alpha:.3g}"
            for alpha, values in zip(fields.alpha, fields.student_kurtosis, strict=True)
        )
        scatter = np.nanstd(self.data, axis=0, ddof=1) / self.means["data"][0]
        floor = max(others.student_distance.max(), others.teacher_distance.max())
        lines = [
            f"effective dimension {self.effective_dimension:.3g} of {d:,}; one run on the data scatters by up to "
            f"{scatter.max():.0%} of the risk",
            f"kurtosis (Gaussian: 3) of teacher fields {fields.teacher_kurtosis.max():.3g}, student fields {kurtosis}",
            "distance of standardised fields from Gaussian (Wasserstein-1): teachers "
            f"{fields.teacher_distance.max():.2g}, students {fields.student_distance.max():.2g} at most; on a Gaussian "
            f"set {floor:.2g}",
            f"{self.problem.inputs.blocks} blocks of the spectrum give variances of fields to {self.block_error:.1%}",
        ]
        if self.risk_rows < self.rows:
            lines.append(f"the risk is measured on {self.risk_rows:,} of the rows")
        for name, values in self.risks.items():
            if lost := int(np.isnan(values).any(axis=1).sum()):
                lines.append(f"{lost} of {len(values)} runs ({name}) diverged and are left out of the means")
        return lines

    def _remedies(self) -> list[str]:
        remedies = {
            FINITE_DIMENSION: f"Finite dimension: the ODE is the limit of a large effective dimension, here "
            f"{self.effective_dimension:.3g}. Use dimfree.simulate, which is exact in law at this d, or project out "
            "or whiten the directions of the largest eigenvalues.",
            FINITE_SAMPLE: f"Finite sample: SGD meets each row about {self.passes:.3g} times. Stop before alpha = n/d "
            f"= {self.rows / len(self.mean):.3g}, take more rows, or use algorithms for reused data "
            "(dimfree.MultiPassSGD).",
            NOT_GAUSSIAN: "Not Gaussian: the covariance of these rows is not enough. "
            + "Rows that differ in size are a usual reason; dividing each by its norm removes that."
            + (
                " Or the residuals depend on the rows: give teacher_weights as target, and the problem noise, to see."
                if self.fitted
                else ""
            ),
        }
        lines = [remedies[cause] for cause in self.causes]
        if self.block_error > distances.TOLERANCE / 2:
            lines.append(f"The blocks of the spectrum are too coarse: take more than {self.problem.inputs.blocks}.")
        return lines


def from_data(
    X: Any,
    target: Any,
    problem: FieldProblem,
    algorithm: OnlineAlgorithm,
    *,
    alpha: float | ArrayLike | Array,
    runs: int,
    key: PRNGKeyArray,
    most_runs: int | None = None,
    blocks: int = 64,
    start: ArrayLike | Array | None = None,
    progress: bool = False,
) -> DataComparison:
    r"""SGD on your data, step by step from what theory says of inputs with the same covariance.

    Inputs are the rows, centred and scaled to mean variance one. Four curves of the risk start from the same weights:

    1. theory: the [`ode`] with the [`Spectrum`] of the data;
    2. SGD on fresh Gaussian inputs at the d of the data, exact in law ([`simulate`]);
    3. SGD on a Gaussian set of as many rows with the covariance of the data, drawn with replacement, and the risk on
       that set; there are up to eight such sets, with several runs on each;
    4. SGD on the data, drawn with replacement, and the risk on the data.

    From 1 to 2 the dimension becomes finite, from 2 to 3 the sample, and from 3 to 4 the fields are no longer Gaussian
    (nor, with labels, the residuals independent of the rows). Each distance has its standard error, and those that
    matter are the causes of the verdict. More runs are made until theory and data are told apart or agree to 10% of the
    risk; if `most_runs` of each kind do not decide, the result says what would.

    **Arguments:**

    - `X`: rows are samples, shape `(n, d)`: an array in memory or in a file (NumPy's memory map, h5py, Zarr), or a
      data frame of numbers (pandas, polars).
    - `target`: teacher vectors, shape `(k, d)`, with fields $w^* \cdot x / \sqrt d$ of inputs x (so of norm about
      $\sqrt d$); or labels, shape `(n,)`, in the order of the rows. The teacher of labels is their least-squares fit,
      their mean is taken off, and the variance of the residuals becomes the noise of the problem, which is then a
      [`TwoLayer`] with one teacher, `teacher_activation="linear"` and no noise of its own.
    - `problem`: what is learned, a loss of local fields with standard inputs.
    - `algorithm`: one that uses each sample once, such as [`OnlineSGD`].
    - `alpha`: where to end (201 even times are saved), or the times to save at, in samples per dimension.
    - `runs`, `key`: runs of each simulation to begin with, at least 8, and the random key.
    - `most_runs`: up to which they are doubled; 8 times `runs` if left out.
    - `blocks`: of the spectrum (see `Spectrum.from_data`).
    - `start`: weights of the students in the coordinates of the data, shape `(p, d)`; independent random directions of
      norm $\sqrt d$ if left out.
    - `progress`: whether to say what it will cost and show how far it is.

    **Returns:** a [`DataComparison`]; print it, or draw it with `dimfree.plot.data`.

    ??? example
        >>> import dimfree, jax, numpy as np
        >>> rows = np.random.default_rng(0).normal(size=(2_000, 50)) * np.linspace(0.5, 2, 50)
        >>> teacher = np.random.default_rng(1).normal(size=(1, 50))
        >>> found = dimfree.from_data(
        ...     rows, teacher, dimfree.TwoLayer(1), dimfree.OnlineSGD(0.1), alpha=2.0, runs=8, key=jax.random.key(0)
        ... )
        >>> found.verdict, round(found.effective_dimension)
        ('agrees', 35)
    """
    check_not_traced(
        "from_data", X=X, target=target, problem=problem, algorithm=algorithm, alpha=alpha, key=key, start=start
    )
    progress = flag(progress, "progress")
    check_problem(problem, "spectrum")
    if not isinstance(problem, FieldProblem) or not problem.inputs.is_standard:
        raise InvalidInput(
            f"problem = {shown(problem)} was given; the data state the inputs, so pass a loss of local fields without "
            "inputs of its own, such as dimfree.TwoLayer(...) or dimfree.LocalFields(...)."
        )
    check_online(algorithm)
    check_key(key)
    runs = positive_integer(runs, "runs", minimum=_FEWEST_RUNS)
    most = _TIMES_MORE * runs if most_runs is None else positive_integer(most_runs, "most_runs", minimum=runs)
    blocks = positive_integer(blocks, "blocks", minimum=2)
    X = without_frame(X, "X")
    if not is_array(X):
        raise InvalidInput(
            f"X = {shown(X)} was given; rows are drawn at random, so pass an array of shape (n, d), in "
            "memory or in a file (np.load(..., mmap_mode='r')). dimfree.Spectrum.from_data takes batches."
        )
    n, d = check_rows(X, "X")
    check_taking(X, "X")
    target = _check_target(target, n, d, problem)
    fitted = target.ndim == 1
    alphas = save_alphas(alpha)
    # Fewer steps than times, if the end is early: each once.
    save_steps = np.unique(steps_at(np.asarray(alphas), algorithm.batch_size / d, "batch_size / d"))
    p, steps = problem.width, int(save_steps[-1])
    # The weights that are saved, and a Gaussian set with the normal numbers that it is made of, where it is kept.
    copy = 8 * n * d
    memory = 16 * runs * len(save_steps) * p * d + (2 * copy if copy <= sets.LARGEST_COPY else 0)
    cost = (
        f"{2 * runs} to {2 * most} runs of {steps:,} steps on rows of {d:,} numbers, and {min(_SETS, runs // 2)} "
        f"Gaussian sets of {n:,} rows, one at a time, {in_bytes(memory)}"
    )
    check_memory(memory, cost, "Take fewer times (alpha), fewer runs or fewer rows.")
    start_key, noise_key, gaussian_key, set_key, data_key = jax.random.split(key, 5)
    students = _start(start, problem, d, start_key)

    components = components_of(X, "X", blocks - 1, progress=progress)
    scale = float(np.sqrt(components.mean_variance))
    label_mean, noise = 0.0, sets.generator_of(noise_key).normal(size=n)
    teachers = target
    if fitted:
        assert isinstance(problem, TwoLayer)
        label_mean = float(target.mean())
        weights, residuals = least_squares(X, target, components)
        teachers = (weights * scale * d**0.5 / float(problem.teacher_readout[0]))[None]
        variance = float(np.mean(residuals**2))
        exact = variance <= 1e-16 * float(np.var(target))
        variance, noise = (0.0, np.zeros(n)) if exact else (variance, residuals / variance**0.5)
        problem = eqx.tree_at(lambda each: each.noise, problem, jnp.asarray(variance))
    eigenvalues, fractions = components.spectrum
    whole = Spectrum(eigenvalues / scale**2, fractions)
    spectrum = whole.merged(blocks)
    stated = problem.with_inputs(spectrum)
    state = stated.completed(_overlaps(components, spectrum, students, teachers))
    check_state(state, sphere=algorithm.sphere)

    clock = save_steps * algorithm.batch_size / d
    theory = solve(ode(stated, algorithm), state, clock)
    if int(theory.outcome) != Outcome.COMPLETED:
        raise InvalidInput(
            f"The theory does not reach alpha = {clock[-1]:.3g} (it ends at {float(theory.stopped_at):.3g}); there is "
            f"nothing to compare. The largest eigenvalue is {float(spectrum.eigenvalues.max()):.3g} times the mean "
            "variance: take a smaller learning rate, or an earlier end."
        )
    chosen = np.arange(n)
    if n > _RISK_ROWS:
        chosen = np.sort(sets.generator_of(data_key).choice(n, _RISK_ROWS, replace=False))
    given = sets.GivenRows(X, components.mean, scale, noise)
    number = min(_SETS, runs // 2)
    shapes: list[Fields] = []

    def risks_on(labelled: sets.LabelledSet, generators: list[np.random.Generator]) -> np.ndarray:
        """The risks of these runs, NaN for those that diverge; of the first on each kind of set, the law of fields."""
        nonlocal done
        found = sets.run(problem, algorithm, students, teachers, labelled, save_steps, generators, bar, done)
        done += len(generators) * steps
        if len(shapes) < 2:
            shapes.append(_shapes(labelled, chosen, clock, found[0][0], teachers))
        risks = sets.risk(problem, labelled, chosen, teachers, *found[:2])
        return np.where(found[2][:, None], risks, np.nan)

    def made(each: int) -> sets.LabelledSet:
        labelled = sets.gaussian_set(components, scale, fitted, sets.generator_of(set_key, each))
        if not noise.any():
            labelled.noise = np.zeros(n)
        return labelled

    data, gaussian_set = np.empty((0, len(clock))), np.empty((0, len(clock)))
    done, seconds = 0, 0.0
    with Progress(cost, 2 * most * steps, shown=progress) as bar:
        while True:
            # Twice as many as there are, in parts as large as the first: one compilation, and no more memory.
            end = min(max(2 * len(data), runs), most)
            while len(data) < end:
                began = perf_counter()
                more = np.arange(len(data), min(len(data) + runs, end))
                on_data = risks_on(given, [sets.generator_of(data_key, each) for each in more.tolist()])
                on_sets = np.empty((len(more), len(clock)))
                for each in range(number):
                    its = more[more % number == each].tolist()
                    if its:
                        generators = [sets.generator_of(set_key, each, run) for run in its]
                        on_sets[more % number == each] = risks_on(made(each), generators)
                data, gaussian_set = np.concatenate([data, on_data]), np.concatenate([gaussian_set, on_sets])
                seconds = (perf_counter() - began) / len(more)
            _check_left(data, "the data")
            _check_left(gaussian_set, "Gaussian sets")
            set_of_run = np.arange(len(data)) % number
            curves = np.asarray(theory.risk), gaussian_set, set_of_run, data, int(clock[0] == 0)
            distance = distances.theory_to_data(*curves)
            told = distance.matters or distances.typical(*curves).matters
            if told or distance.precision <= distances.CLOSE or len(data) == most:
                break
    gaussian = simulate(stated, algorithm, state, d, clock, runs=len(data), key=gaussian_key, progress=progress)
    _check_left(np.where(np.asarray(gaussian.outcome) == Outcome.COMPLETED, 1.0, np.nan)[:, None], "Gaussian inputs")
    fields, others = shapes
    return DataComparison(
        alpha=clock,
        theory=theory,
        gaussian=gaussian,
        gaussian_set=gaussian_set,
        data=data,
        set_of_run=set_of_run,
        seconds_per_run=seconds,
        problem=stated,
        algorithm=algorithm,
        start=state,
        start_weights=students,
        teacher_weights=teachers,
        mean=components.mean,
        scale=scale,
        label_mean=label_mean,
        fitted=fitted,
        rows=n,
        risk_rows=len(chosen),
        passes=steps * algorithm.batch_size / n,
        effective_dimension=float(whole.effective_dimension(d)),
        block_error=_block_error(components, scale, spectrum, state, students, teachers),
        fields=fields,
        gaussian_fields=others,
        provenance=provenance(rows=n, d=d, problem=stated, algorithm=algorithm, key=key),
    )


def _check_target(target: Any, n: int, d: int, problem: FieldProblem) -> Float[np.ndarray, "..."]:
    """Labels or teacher vectors, as they were given, or an error in words."""
    if np.ma.is_masked(target):
        raise InvalidInput("target has masked entries; fill them, or leave these rows out.")
    found = np.asarray(real_array(without_frame(target, "target"), "target"))
    if not np.isfinite(found).all():
        raise InvalidInput("target contains NaN or infinite numbers; leave those rows out, or replace them.")
    k = problem.teacher_width
    if found.ndim != 1:
        if found.shape != (k, d):
            raise InvalidInput(
                f"target has shape {found.shape}; give labels, shape ({n},), or a vector for each teacher of the "
                f"problem, shape ({k}, {d})."
            )
        return found
    if found.shape != (n,):
        raise InvalidInput(f"target has {len(found)} labels for {n} rows; give one for each row.")
    if not isinstance(problem, TwoLayer) or k != 1 or problem.teacher_activation.name != "linear":
        raise InvalidInput(
            f"Labels were given, and {problem!r}; the teacher of labels is their linear fit. Pass dimfree.TwoLayer("
            'width, teacher_width=1, activation=..., teacher_activation="linear"), or teacher vectors as target.'
        )
    if float(problem.noise) or not float(problem.teacher_readout[0]):
        raise InvalidInput(
            f"Labels were given, and {problem!r}; their residuals are the noise. Leave out noise and teacher_readout."
        )
    if n <= d + 1:
        raise InvalidInput(
            f"{n} labels were given for rows of {d} numbers: least squares fits any labels then, and says nothing of "
            "their noise. Take more rows, fewer dimensions, or teacher vectors as target."
        )
    if np.ptp(found) == 0:
        raise InvalidInput("All labels are the same; there is nothing to learn.")
    return found


def _start(start: Any, problem: FieldProblem, d: int, key: PRNGKeyArray) -> Float[np.ndarray, "p d"]:
    p = problem.width
    if start is None:
        drawn = sets.generator_of(key).normal(size=(p, d))
        return d**0.5 * drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    found = np.asarray(real_array(start, "start"))
    if found.shape != (p, d) or not np.isfinite(found).all():
        raise InvalidInput(
            f"start has shape {found.shape}; give finite weights of the students, one row for each, shape ({p}, {d})."
        )
    return found


def _overlaps(components: Components, spectrum: Spectrum, students: np.ndarray, teachers: np.ndarray) -> State:
    """The overlaps of vectors in each block of the spectrum, exactly."""
    d = len(components.mean)
    families = {STUDENTS: students, TEACHERS: teachers}
    along = {name: rows @ components.directions for name, rows in families.items()}
    block = np.asarray(block_of_coordinate(spectrum, d))[: components.directions.shape[1]]

    def pair(one: str, other: str) -> Array:
        products = along[one].T[:, :, None] * along[other].T[:, None]
        found = np.zeros((spectrum.blocks, *products.shape[1:]))
        np.add.at(found, block, products)
        if not components.complete:
            found[-1] += families[one] @ families[other].T - products.sum(axis=0)
        return jnp.asarray(found / d)

    pairs = ((STUDENTS, STUDENTS), (STUDENTS, TEACHERS), (TEACHERS, TEACHERS))
    return State.of({each: pair(*each) for each in pairs}, None)


def _block_error(components: Components, scale: float, spectrum: Spectrum, state: State, *weights) -> float:
    """The largest relative error of the variances of fields that blocks make, at the start."""
    d = len(components.mean)
    merged = np.diagonal(np.asarray(spectrum.fields(state).covariance))
    rows = np.concatenate(weights)
    along = rows @ components.directions
    exact = along**2 @ components.eigenvalues + components.rest * (np.sum(rows**2, axis=1) - np.sum(along**2, axis=1))
    exact /= d * scale**2
    return float(np.max(np.abs(merged - exact) / np.maximum(exact, 1e-300)))


def _shapes(
    labelled: sets.LabelledSet, chosen: np.ndarray, clock: np.ndarray, weights: np.ndarray, teachers: np.ndarray
) -> Fields:
    times = _spread(len(clock), _SHAPES)
    p, d = weights.shape[1:]
    kurtosis, distance = sets.field_shapes(labelled, chosen, np.concatenate([weights[times].reshape(-1, d), teachers]))
    split = len(times) * p
    return Fields(
        alpha=clock[times],
        student_kurtosis=kurtosis[:split].reshape(-1, p),
        student_distance=distance[:split].reshape(-1, p),
        teacher_kurtosis=kurtosis[split:],
        teacher_distance=distance[split:],
    )


def _spread(number: int, most: int) -> list[int]:
    """Indices from the first to the last of so many, not more than `most`."""
    return sorted(set(np.linspace(0, number - 1, min(number, most)).round().astype(int).tolist()))


def _check_left(risks: Float[np.ndarray, "runs times"], where: str) -> None:
    """Refuse to compare where fewer runs are left than a standard error needs."""
    left = distances.kept(risks)
    if left.sum() < _FEWEST_RUNS // 2:
        raise InvalidInput(
            f"{int((~left).sum())} of {len(left)} runs on {where} diverged; there is nothing to compare. "
            "Take a smaller learning rate, or rows without outliers."
        )
