"""What of SGD on a user's data the covariance explains, and what it does not."""

import dataclasses
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray
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
from ..errors import InvalidInput, check_key, check_memory, in_bytes, positive_integer, real_array, shown
from ..limits import ode
from ..printing import Progress
from ..problems import Spectrum, TwoLayer
from ..problems.base import check_problem
from ..problems.field_problem import FieldProblem
from ..problems.inputs import block_of_coordinate
from ..simulation import simulate
from ..solving import solve
from ..state import STUDENTS, TEACHERS, State, check_state
from ..trajectory import Outcome, Trajectory, provenance, save_alphas, steps_at
from . import sets

if TYPE_CHECKING:
    import xarray

TOLERANCE = 0.05  # relative distance of risks that a verdict overlooks
_ERRORS = 4.0  # standard errors that a distance must exceed; by chance once in 10^3 at each time, with sixteen runs
_ROUNDING = 1e-9  # at the start all risks are the same, and so all that chance does
_FEWEST_RUNS = 8  # with fewer, a standard error is itself too uncertain for a verdict
_FLOOR = 0.01  # of the risk at the start: smaller risks are compared with this
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
class Distance:
    """How far one curve of the risk is from the one before, relative to the risk, over alpha.

    - `values`, `errors`: the distance and its standard error, shape `(times,)`.
    """

    values: Float[np.ndarray, " times"]
    errors: Float[np.ndarray, " times"]

    @property
    def _beyond_chance(self) -> Bool[np.ndarray, " times"]:
        return np.abs(self.values) > np.maximum(_ERRORS * self.errors, _ROUNDING)

    @property
    def largest(self) -> int:
        """Where it is largest, among the times at which chance does not explain it, if there are any."""
        chance = self._beyond_chance.any() & ~self._beyond_chance
        return int(np.argmax(np.where(chance, -1.0, np.abs(self.values))))

    @property
    def matters(self) -> bool:
        """Whether it is larger than the tolerance at some time, and than chance explains."""
        return bool(np.any(self._beyond_chance & (np.abs(self.values) > TOLERANCE)))

    def at(self, time: int) -> str:
        return f"{self.values[time]:+8.1%} +-{self.errors[time]:5.1%}"


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
    - `agrees`: whether theory and data are nowhere further apart than 5% of the risk (or of 1% of that at the start)
      and than chance explains, four standard errors.
    - `causes`: which steps from theory to data are larger than that: `finite dimension`, `finite sample`,
      `not Gaussian`; where none is by itself and the sum is, the largest.
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
        return {name: _mean(values) for name, values in self.risks.items()}

    @property
    def distances(self) -> dict[str, Distance]:
        """The steps from theory to data by their cause, and `all` of them together.

        Errors are those of the means over runs and, for the data, by how much one set of rows differs from another.
        """
        *others, (data, error) = self.means.values()
        # The data are one set; by how much sets differ is what Gaussian ones scatter more than runs on the same set.
        between_sets = np.nanvar(self.gaussian_set, axis=0, ddof=1) - np.nanvar(self.data, axis=0, ddof=1)
        means = [*others, (data, np.hypot(error, np.sqrt(np.maximum(between_sets, 0.0))))]
        size = np.maximum(means[0][0], _FLOOR * means[0][0][0])

        def between(one, other) -> Distance:
            return Distance((other[0] - one[0]) / size, np.hypot(one[1], other[1]) / size)

        pairs = zip(_STEPS, means[:-1], means[1:], strict=True)
        return {cause: between(*pair) for cause, *pair in pairs} | {"all": between(means[0], means[-1])}

    @property
    def agrees(self) -> bool:
        return not self.distances["all"].matters

    @property
    def causes(self) -> tuple[str, ...]:
        steps = {cause: self.distances[cause] for cause in _STEPS}
        found = tuple(cause for cause, step in steps.items() if step.matters)
        if found or self.agrees:
            return found
        where = self.distances["all"].largest
        return (max(steps, key=lambda cause: abs(steps[cause].values[where])),)

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
            f"  {'step, relative to the risk':<28}{'cause':<18}{'largest':>18}{'at alpha':>10}{'at the end':>18}"
        )
        for cause, distance in self.distances.items():
            where, words = distance.largest, _STEPS.get(cause, "theory -> data")
            name = "" if cause == "all" else cause
            lines.append(
                f"  {words:<28}{name:<18}{distance.at(where):>18}{self.alpha[where]:>10.4g}{distance.at(-1):>18}"
            )
        lines += [f"  {line}" for line in (*self._beside(), *self._remedies())]
        return "\n".join(lines)

    __str__ = __repr__

    def _verdict(self) -> str:
        distance = self.distances["all"]
        where = distance.largest
        error = distance.errors.max()
        if self.agrees and _ERRORS * error > 0.5:  # half of the risk would go unseen
            return (
                f"Theory and SGD on these data are not told apart, for chance is large: {distance.at(where).strip()} "
                f"of the risk at alpha = {self.alpha[where]:.3g}; standard errors reach {error:.0%}. Take more runs."
            )
        if self.agrees:
            return (
                f"Theory describes SGD on these data to {TOLERANCE:.0%}: it differs by {distance.at(where).strip()} of "
                f"the risk at alpha = {self.alpha[where]:.3g}, by {distance.at(-1).strip()} at the end."
            )
        late = distance.values[-1]
        return (
            f"Theory does NOT describe SGD on these data: {distance.values[where]:+.0%} of the risk at alpha = "
            f"{self.alpha[where]:.3g}, {late:+.1%} at the end. Cause: {', '.join(self.causes)}."
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
        if (error := self.distances["all"].errors.max()) > TOLERANCE / 2:
            lines.append(f"standard errors reach {error:.1%} of the risk: smaller distances go unseen with so few runs")
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
        if self.block_error > TOLERANCE / 2:
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
    blocks: int = 64,
    start: ArrayLike | Array | None = None,
    progress: bool = False,
) -> DataComparison:
    r"""SGD on your data, step by step from what theory says of inputs with the same covariance.

    Inputs are the rows, centred and scaled to mean variance one. Four curves of the risk start from the same weights:

    1. theory: the [`ode`] with the [`Spectrum`] of the data;
    2. SGD on fresh Gaussian inputs at the d of the data, exact in law ([`simulate`]);
    3. SGD on a Gaussian set of as many rows with the covariance of the data, drawn with replacement, and the risk on
       that set; each run has a set of its own;
    4. SGD on the data, drawn with replacement, and the risk on the data.

    From 1 to 2 the dimension becomes finite, from 2 to 3 the sample, and from 3 to 4 the fields are no longer Gaussian
    (nor, with labels, the residuals independent of the rows). Each distance has its standard error, and those that
    matter are the causes of the verdict.

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
    - `runs`, `key`: runs of each simulation, at least 8, and the random key.
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
        >>> found.data.shape, round(found.effective_dimension)
        ((8, 101), 35)
    """
    check_problem(problem, "spectrum")
    if not isinstance(problem, FieldProblem) or not problem.inputs.is_standard:
        raise InvalidInput(
            f"problem = {shown(problem)} was given; the data state the inputs, so pass a loss of local fields without "
            "inputs of its own, such as dimfree.TwoLayer(...) or dimfree.LocalFields(...)."
        )
    check_online(algorithm)
    check_key(key)
    runs = positive_integer(runs, "runs", minimum=_FEWEST_RUNS)
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
        f"{2 * runs} runs of {steps:,} steps on rows of {d:,} numbers, and {runs} Gaussian sets of {n:,} rows, "
        f"one at a time, {in_bytes(memory)}"
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
    gaussian = simulate(stated, algorithm, state, d, clock, runs=runs, key=gaussian_key, progress=progress)

    chosen = np.arange(n)
    if n > _RISK_ROWS:
        chosen = np.sort(sets.generator_of(data_key).choice(n, _RISK_ROWS, replace=False))
    given = sets.GivenRows(X, components.mean, scale, noise)
    gaussian_set = np.empty((runs, len(clock)))
    with Progress(cost, 2 * runs * steps, shown=progress) as bar:
        generators = [sets.generator_of(data_key, each) for each in range(runs)]
        found = sets.run(problem, algorithm, students, teachers, given, save_steps, generators, bar)
        data = _finite(sets.risk(problem, given, chosen, teachers, *found[:2]), found[2], "the data")
        fields = _shapes(given, chosen, clock, found[0][0], teachers)
        others = fields
        for each in range(runs):
            generator = sets.generator_of(set_key, each)
            made = sets.gaussian_set(components, scale, fitted, generator)
            if not noise.any():
                made.noise = np.zeros(n)
            found = sets.run(
                problem, algorithm, students, teachers, made, save_steps, [generator], bar, (runs + each) * steps
            )
            gaussian_set[each] = np.where(
                found[2][:, None], sets.risk(problem, made, chosen, teachers, *found[:2]), np.nan
            )
            if each == 0:
                others = _shapes(made, chosen, clock, found[0][0], teachers)
    gaussian_set = _finite(gaussian_set, np.asarray(np.isfinite(gaussian_set).all(axis=1)), "Gaussian sets")
    _finite(np.asarray(gaussian.risk), np.asarray(gaussian.outcome) == Outcome.COMPLETED, "Gaussian inputs")
    return DataComparison(
        alpha=clock,
        theory=theory,
        gaussian=gaussian,
        gaussian_set=gaussian_set,
        data=data,
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


def _finite(
    risks: Float[np.ndarray, "runs times"], completed: Bool[np.ndarray, " runs"], where: str
) -> Float[np.ndarray, "runs times"]:
    """The risks, NaN for runs that diverged; an error if fewer are left than a standard error needs."""
    if completed.sum() < _FEWEST_RUNS // 2:
        raise InvalidInput(
            f"{int((~completed).sum())} of {len(completed)} runs on {where} diverged; there is nothing to compare. "
            "Take a smaller learning rate, or rows without outliers."
        )
    return np.where(completed[:, None], risks, np.nan)


def _mean(values: Float[np.ndarray, "runs times"]) -> tuple[np.ndarray, np.ndarray]:
    """The mean over runs, and its standard error: zero of a single curve, which is no sample."""
    if len(values) == 1:
        return values[0], np.zeros(values.shape[1])
    kept = values[np.isfinite(values).all(axis=1)]
    return kept.mean(axis=0), kept.std(axis=0, ddof=1) / len(kept) ** 0.5
