"""How the risk falls with samples, sizes and compute: exponents, and the best size for a given compute."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import scipy.interpolate
from jaxtyping import Float
from numpy.typing import ArrayLike

from ..algorithms.online import OnlineAlgorithm, check_online
from ..errors import InvalidInput, check_not_traced, positive_integer, real_array, returned_by, shown
from ..limits import ode
from ..problems import FieldProblem, Problem
from ..simulation.mean import mean_states, why_no_mean
from ..solving import solve
from ..state import STUDENTS, State
from ..trajectory import Outcome

_PER_DECADE = 16  # samples at which the risk is kept, in a decade
_RESOLUTION = 32  # of the leaps of a mean: errors of the risk below 1e-4
_FINE = 400  # sizes that a frontier is looked for at, between the given ones
_WINDOWS = 400  # that an interval is taken over
_WORDS = {
    "samples": "risk in samples, largest size",
    "compute": "least risk in compute",
    "size": "best size in compute",
}


@dataclasses.dataclass(frozen=True)
class Exponent:
    """A fitted exponent: `value`, the interval `low` to `high`, and the `window` that it was fitted in."""

    value: float
    low: float
    high: float
    window: tuple[float, float]

    def __repr__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


@dataclasses.dataclass(frozen=True, eq=False)
class ScalingLaw:
    """The risk over sizes and samples, from [`scaling_law`].

    - `sizes`, shape (n,); `parameters`: how many each has, shape (n,); `samples`, shape (t,).
    - `risk`: the excess over the irreducible risk, shape (n, t).
    - `method`: how the risk was computed: by the exact mean of SGD, or by the ODE.
    - `predicted`: exponents of theory, where they are known.
    - `frontier`: compute, with the smallest risk and its size, where the best size lies between the given sizes.
    - `exponents`: fitted, by name: `samples` (of the largest size), `compute` and `size` (of the frontier).
    """

    sizes: Float[np.ndarray, " n"]
    parameters: Float[np.ndarray, " n"]
    samples: Float[np.ndarray, " t"]
    risk: Float[np.ndarray, "n t"]
    method: str
    predicted: dict[str, float]

    @functools.cached_property
    def frontier(self) -> dict[str, Float[np.ndarray, " f"]]:
        empty = {name: np.empty(0) for name in ("compute", "risk", "size")}
        if len(self.sizes) < 4:
            return empty
        log_sizes, log_samples = np.log(self.sizes), np.log(self.samples)
        surface = scipy.interpolate.RectBivariateSpline(log_sizes, log_samples, np.log(self.risk))
        fine = np.linspace(log_sizes[0], log_sizes[-1], _FINE)
        parameters = np.interp(fine, log_sizes, np.log(self.parameters))
        found = []
        ends = np.log(self.parameters[[0, -1]]) + log_samples[[0, -1]]
        for compute in np.arange(ends[0], ends[1], np.log(10) / _PER_DECADE):
            seen = compute - parameters
            inside = (seen >= log_samples[0]) & (seen <= log_samples[-1])
            if inside.sum() < 3:
                continue
            values = surface.ev(fine[inside], seen[inside])
            best = int(np.argmin(values))
            if 0 < best < len(values) - 1:
                # The vertex of the parabola through the least value and its neighbours.
                left, middle, right = values[best - 1 : best + 2]
                shift = 0.5 * (left - right) / (left - 2 * middle + right)
                size = fine[inside][best] + shift * (fine[1] - fine[0])
                found.append((compute, middle - 0.25 * (left - right) * shift, size))
        if not found:
            return empty
        return dict(zip(empty, np.exp(np.array(found)).T, strict=True))

    @functools.cached_property
    def exponents(self) -> dict[str, Exponent]:
        found = {"samples": fitted(self.samples, self.risk[-1])}
        if len(self.frontier["compute"]) >= 8:
            found["compute"] = fitted(self.frontier["compute"], self.frontier["risk"])
            found["size"] = fitted(self.frontier["compute"], self.frontier["size"])
        return found

    def slopes(self) -> Float[np.ndarray, "n t"]:
        """Local exponents of the risk in the samples."""
        return np.gradient(np.log(self.risk), np.log(self.samples), axis=-1)

    def rows(self) -> list[dict[str, Any]]:
        """A row of a table for each fitted exponent."""
        return [
            {
                "exponent": _WORDS[name],
                "measured": exponent.value,
                "low": exponent.low,
                "high": exponent.high,
                "predicted": self.predicted.get(name),
                "window": exponent.window,
            }
            for name, exponent in self.exponents.items()
        ]

    @property
    def notes(self) -> list[str]:
        """What a reader of the exponents must know."""
        if "compute" in self.exponents or len(self.sizes) == 1:
            return []
        return ["The best size lies between the given ones for too little of the compute: take more sizes or samples."]

    def to_xarray(self) -> Any:
        """The risk over sizes and samples, and the frontier over compute."""
        import xarray

        frontier = {name: ("compute", values) for name, values in self.frontier.items()}
        return xarray.Dataset(
            {
                "risk": (("size", "samples"), self.risk),
                "parameters": ("size", self.parameters),
                "least_risk": frontier["risk"],
                "best_size": frontier["size"],
            },
            coords={"size": self.sizes, "samples": self.samples, "compute": frontier["compute"]},
            attrs={"method": self.method},
        )

    def __repr__(self) -> str:
        lines = [
            f"Scaling law of {len(self.sizes)} sizes, {self.sizes[0]:g} to {self.sizes[-1]:g}, and up to "
            f"{self.samples[-1]:.3g} samples ({self.method})",
            f"  {'exponent':<34}{'measured':>26}{'predicted':>11}  window",
        ]
        for name, exponent in self.exponents.items():
            known = f"{self.predicted[name]:.3f}" if name in self.predicted else "-"
            low, high = exponent.window
            lines.append(f"  {_WORDS[name]:<34}{exponent!r:>26}{known:>11}  {low:.2g} to {high:.2g}")
        return "\n".join([*lines, *(f"  {note}" for note in self.notes)])


def fitted(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"]) -> Exponent:
    """The exponent of y in x: a straight line through the last third of the logarithms.

    Its interval has 95% of the exponents fitted in windows of the last half, drawn at random, none shorter than a third
    of it; and the exponent itself.
    """
    x, y = np.log(x), np.log(y)
    length = x[-1] - x[0]
    begin = x[-1] - length / 3
    draws = np.random.default_rng(0).uniform(size=(_WINDOWS, 2))
    widths = length / 6 + draws[:, 0] * length / 3
    lows = x[-1] - length / 2 + draws[:, 1] * (length / 2 - widths)
    lows, highs = np.append(lows, begin), np.append(lows + widths, x[-1])
    inside = (x >= lows[:, None] - 1e-9) & (x <= highs[:, None] + 1e-9)
    number = np.maximum(inside.sum(axis=1), 1)
    centred = np.where(inside, x - (inside @ x / number)[:, None], 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        slopes = np.where(number >= 3, centred @ y / np.sum(centred**2, axis=1), np.nan)
    value = float(slopes[-1])
    low, high = np.nanquantile(slopes, [0.025, 0.975])
    return Exponent(
        value, min(float(low), value), max(float(high), value), (float(np.exp(begin)), float(np.exp(x[-1])))
    )


def scaling_law(
    family: Any,
    algorithm: OnlineAlgorithm | Callable[[int], OnlineAlgorithm],
    sizes: int | ArrayLike,
    samples: float | ArrayLike,
    *,
    d: int | None = None,
    weights: str = STUDENTS,
) -> ScalingLaw:
    r"""The risk over samples and sizes, its exponents, and the best size for a given compute.

    Compute is parameters x samples. The *frontier* is the smallest risk over sizes at given compute; splines of the
    logarithms interpolate between the given sizes. An exponent is fitted over the last third of the logarithms, and its
    interval comes from windows of the last half (see `fitted`). Local exponents are `slopes()`.

    For least squares the risk is the exact mean of SGD, at any number of samples; otherwise it is the risk of the ODE.

    **Arguments:**

    - `family`: a function of a size to a problem and its start, such as [`PowerLawFeatures`],
      [`RandomFeatures`] or [`PowerLawTeachers`].
    - `algorithm`: one for all sizes, or a function of the size to one.
    - `sizes`: one or several, increasing.
    - `samples`: the largest number of samples; the risk is kept at 16 numbers of samples per decade. Or an increasing
      array.
    - `d`: the dimension of the inputs; if left out, the dimension of the family, or the size itself, as for features.
    - `weights`: the weights whose risk is computed: `"students"`, or `"average"` for an algorithm with an average.

    **Returns:** a [`ScalingLaw`]; it prints as a table, and `plot.scaling_law` draws it.

    ??? example
        >>> import dimfree, numpy as np
        >>> features = dimfree.PowerLawFeatures(input_exponent=1.0, target_exponent=0.75)
        >>> law = dimfree.scaling_law(features, dimfree.OnlineSGD(0.5), np.geomspace(100, 3000, 6), 1e6)
        >>> bool(abs(law.exponents["compute"].value - features.predicted["compute"]) < 0.1)
        True

    Paquette, Paquette, Xiao & Pennington 2024.
    """
    made: Callable[[int], tuple[Problem, State]] = family
    if not callable(family):
        raise InvalidInput(
            f"family = {shown(family)} was given; pass a function of a size to a problem and its start, such as "
            "dimfree.PowerLawFeatures(...), or lambda size: (problem, start)."
        )
    check_not_traced("scaling_law", family=family, algorithm=algorithm, sizes=sizes, samples=samples, d=d)
    if not isinstance(algorithm, OnlineAlgorithm) and not callable(algorithm):
        check_online(algorithm)
    wanted = np.atleast_1d(np.asarray(real_array(sizes, "sizes")))
    if wanted.ndim != 1 or not wanted.size or not np.isfinite(wanted).all():
        raise InvalidInput(f"sizes = {shown(sizes)} was given; give numbers of features or students.")
    sizes = np.unique([positive_integer(round(float(size)), "sizes") for size in wanted])
    numbers = _samples(samples)
    risks, parameters, methods = [], [], set()
    for size in sizes.tolist():
        pair = returned_by(made, "family", size, "a problem and its start")
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], Problem)):
            raise InvalidInput(f"family returned {shown(pair)} at size {size}; it must be a problem and its start.")
        problem, start = pair
        chosen = algorithm
        if not isinstance(algorithm, OnlineAlgorithm):
            chosen = returned_by(algorithm, "algorithm", size, "an algorithm, or give the algorithm itself")
        check_online(chosen)
        given = getattr(family, "d", size) if d is None else d
        dimension = positive_integer(given, "d")
        risk, method = _risks(problem, chosen, start, dimension, numbers, weights)
        irreducible = getattr(family, "irreducible_risk", None)
        risk = risk - float(problem.irreducible_risk if irreducible is None else irreducible)
        if not np.all(np.isfinite(risk)) or np.any(risk <= 0):
            raise InvalidInput(
                f"The risk at size {size} is {'not finite' if not np.all(np.isfinite(risk)) else 'not above zero'} "
                f"with {chosen!r}; take a smaller learning rate."
            )
        risks.append(risk)
        parameters.append(problem.neurons * dimension)
        methods.add(method)
    return ScalingLaw(
        sizes=sizes.astype(float),
        parameters=np.array(parameters, float),
        samples=numbers,
        risk=np.array(risks),
        method=" and ".join(sorted(methods)),
        predicted=dict(getattr(family, "predicted", {})),
    )


def _samples(samples: Any) -> Float[np.ndarray, " t"]:
    given = np.atleast_1d(np.asarray(real_array(samples, "samples")))
    counted = given.ndim == 1 and given.size and np.all((given >= 1) & (given <= 2**53))
    if not counted or np.any(np.diff(given) <= 0):
        raise InvalidInput(f"samples = {shown(samples)} was given; give numbers of samples, at least 1, increasing.")
    if len(given) > 1:
        return np.unique(np.round(given))
    decades = np.log10(given[0])
    return np.unique(np.round(np.geomspace(1, given[0], max(4, round(_PER_DECADE * decades) + 1))))


def _risks(problem, algorithm, start, d: int, samples, weights: str) -> tuple[Float[np.ndarray, " t"], str]:
    """The risk after so many samples, and how it was found."""
    begun = algorithm.begin(problem.inputs.over_blocks(start))
    if isinstance(problem, FieldProblem) and not why_no_mean(problem, algorithm):
        steps = np.maximum(1, np.round(samples / algorithm.batch_size)).astype(np.int64)
        sizes = problem.inputs.fractions * d
        states = mean_states(problem, algorithm, begun, d, sizes, steps, _RESOLUTION)
        method = "exact mean of SGD"
    else:
        alphas = np.concatenate([[0.0], samples / d])
        path = solve(ode(problem, algorithm), start, alphas)
        if int(path.outcome) != Outcome.COMPLETED:
            diverged = int(path.outcome) == Outcome.DIVERGED
            raise InvalidInput(
                f"The ODE of {algorithm!r} {'diverged' if diverged else 'ran out of solver steps'} at alpha = "
                f"{float(path.stopped_at):.3g} of {samples[-1] / d:.3g}; take "
                f"{'a smaller learning rate' if diverged else 'fewer samples, or rates that differ less'}."
            )
        states, method = jax.tree.map(lambda leaf: leaf[1:], path.state), "ODE"
    return np.asarray(problem.risk(states if weights == STUDENTS else states.at(weights))), method
