"""How far apart risks are, and what chance makes of it."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int

TOLERANCE = 0.05  # relative distance of risks that a verdict overlooks
ERRORS = 4.0  # standard errors that a distance must exceed; by chance once in 10^3 at each time, with sixteen runs
MARGIN = 2.0  # standard errors by which a distance must exceed the tolerance, and that a precision includes
CLOSE = 0.10  # precision of an agreement after which no more runs are made
WIDEST = 0.25  # precision beyond which an agreement is not called one
_FLOOR = 0.01  # of the risk at the start: smaller risks are compared with this


@dataclasses.dataclass(frozen=True, eq=False)
class Distance:
    """How far one curve of the risk is from the one before, over alpha.

    - `values`, `errors`: the distance, relative to the risk, and its standard error, shape `(times,)`.
    - `begin`: the first time that is judged: at the start nothing has been learned, and risks may be equal but for
      rounding.
    """

    values: Float[np.ndarray, " times"]
    errors: Float[np.ndarray, " times"]
    begin: int

    @property
    def told(self) -> Bool[np.ndarray, " times"]:
        """At which times it is larger than the tolerance, and than chance explains."""
        size = np.abs(self.values)
        # The second alone would have a distance just within the tolerance that chance takes just beyond it.
        found = (size > ERRORS * self.errors) & (size > TOLERANCE + MARGIN * self.errors)
        return found & (np.arange(len(size)) >= self.begin)

    @property
    def matters(self) -> bool:
        return bool(self.told.any())

    @property
    def telling(self) -> int:
        """The most telling time: the largest distance that matters, or else that which is nearest to mattering."""
        size = np.abs(self.values)
        if self.matters:
            return int(np.argmax(np.where(self.told, size, -1.0)))
        return self.begin + int(np.argmax((size / np.maximum(self.errors, TOLERANCE / ERRORS))[self.begin :]))

    @property
    def reach(self) -> Float[np.ndarray, " times"]:
        """The largest distance that chance leaves room for, two standard errors; zero where nothing is judged."""
        reach = np.abs(self.values) + MARGIN * self.errors
        return np.where(np.arange(len(reach)) >= self.begin, reach, 0.0)

    @property
    def precision(self) -> float:
        """The distance that is nowhere exceeded, but for chance."""
        return float(self.reach.max())

    def at(self, time: int) -> str:
        return f"{_part(self.values[time], '+')} +- {_part(self.errors[time])}"


def size_of(theory: Float[np.ndarray, " times"]) -> Float[np.ndarray, " times"]:
    """What distances are relative to: the risk of theory, or a hundredth of the first where that is more."""
    return np.maximum(theory, _FLOOR * theory[0])


def kept(values: Float[np.ndarray, "runs times"]) -> Bool[np.ndarray, " runs"]:
    """The runs that did not diverge."""
    return np.asarray(np.isfinite(values).all(axis=1))


def mean(values: Float[np.ndarray, "runs times"]) -> tuple[np.ndarray, np.ndarray]:
    """The mean over runs that did not diverge, and its standard error: zero of a single curve, which is no sample."""
    if len(values) == 1:
        return values[0], np.zeros(values.shape[1])
    left = values[kept(values)]
    return left.mean(axis=0), left.std(axis=0, ddof=1) / len(left) ** 0.5


def between_sets(
    values: Float[np.ndarray, "runs times"], sets: Int[np.ndarray, " runs"]
) -> Float[np.ndarray, " times"]:
    """The variance of the risk between training sets, from several runs on each: an analysis of variance."""
    left = kept(values)
    values, sets = values[left], sets[left]
    places = [sets == each for each in np.unique(sets)]
    counts = np.array([place.sum() for place in places], float)
    means = np.stack([values[place].mean(axis=0) for place in places])
    inside = sum(np.sum((values[place] - one) ** 2, axis=0) for place, one in zip(places, means, strict=True))
    number, groups = len(values), len(counts)
    if groups < 2:
        return np.zeros(values.shape[1])
    inside = inside / max(number - groups, 1)
    outside = counts @ (means - values.mean(axis=0)) ** 2 / (groups - 1)
    each = (number - counts @ counts / number) / (groups - 1)
    return np.maximum(outside - inside, 0.0) / each


def set_mean(values: Float[np.ndarray, "runs times"], sets: Int[np.ndarray, " runs"]) -> tuple[np.ndarray, np.ndarray]:
    """The mean over runs on several training sets, and its standard error: runs on one set share what it has."""
    found, error = mean(values)
    counts = np.bincount(sets[kept(values)]).astype(float)
    return found, np.sqrt(error**2 + between_sets(values, sets) * np.sum(counts**2) / counts.sum() ** 2)


def theory_to_data(theory, gaussian_set, sets, data, begin: int) -> Distance:
    """From theory to the mean over runs on the data, which are one set; sets differ as Gaussian ones do."""
    found, error = mean(data)
    size = size_of(theory)
    return Distance((found - theory) / size, np.sqrt(error**2 + between_sets(gaussian_set, sets)) / size, begin)


def typical(theory, gaussian_set, sets, data, begin: int) -> Distance:
    """The logarithm of how many times the risk of a run on a Gaussian set a typical run on the data has.

    Means over few runs say little where rare runs have most of the risk. Mean logarithms do not have such tails; a run
    that diverged has the largest of them. Theory of the mean has no typical run, so these are runs of both kinds.
    """
    low, high = _FLOOR * theory[0], theory[0] / _FLOOR
    logs = [np.log(np.clip(np.nan_to_num(each, nan=high), low, high)) for each in (gaussian_set, data)]
    (before, first), (after, second) = set_mean(logs[0], sets), mean(logs[1])
    errors = np.sqrt(first**2 + second**2 + between_sets(logs[0], sets))
    return Distance(after - before, errors, begin)


def runs_needed(whole: Distance, run_like: Distance, own: Float[np.ndarray, " times"], runs: int) -> float:
    """How many runs would tell theory and data apart or show that they agree, if distances are what they seem.

    **Arguments:**

    - `whole`, `run_like`: from theory to data, and for a typical run.
    - `own`: the part of the squared error of `whole` that falls with more runs.
    - `runs`: how many there are.
    """
    judged = slice(whole.begin, None)
    size, own, errors = np.abs(whole.values[judged]), own[judged], whole.errors[judged]
    between = errors**2 - own

    def until(wanted: Float[np.ndarray, " times"]) -> Float[np.ndarray, " times"]:
        """Runs until the errors are as small as this."""
        left = np.where(wanted > 0, wanted**2 - between, 0.0)
        return np.where(left > 0, runs * own / np.where(left > 0, left, 1.0), np.inf)

    apart = until(_error_to_tell(size)).min()
    close = until((CLOSE - size) / MARGIN).max()
    wanted = _error_to_tell(np.abs(run_like.values[judged]))
    like = np.where(wanted > 0, runs * (run_like.errors[judged] / np.where(wanted > 0, wanted, 1.0)) ** 2, np.inf).min()
    return float(min(apart, close, like))


def _error_to_tell(size: Float[np.ndarray, " times"]) -> Float[np.ndarray, " times"]:
    """The standard error with which a distance of this size just matters; not positive where none does."""
    return np.minimum(size / ERRORS, (size - TOLERANCE) / MARGIN)


def _part(value: float, sign: str = "") -> str:
    """A part of the risk: a percentage, or a multiple where that is shorter."""
    return f"{value:{sign}.1%}" if abs(value) < 10 else f"{value:{sign}.2g} times"
