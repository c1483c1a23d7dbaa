"""The times at which a dynamical mean-field theory is solved."""

import numpy as np
from jaxtyping import Float

from ...algorithms.reused import PersistentSGD, ReusedData
from ...errors import InvalidInput, real_array, shown

_MOST_STEPS = 10**6
_FIRST_STEP = 0.02
_GROWTH = 0.08  # of a step, from one to the next
_IN_BATCH = 0.8  # longest step, in units of the time over which a batch is correlated
_STABLE = 3.0  # and in units of the time over which weights relax: as far as corrections of a step were seen to follow
_FEWEST = 0.02  # of the largest error of a step: what is assumed of one that has less, so that steps stay comparable


def given_times(algorithm: ReusedData, time, flow: bool) -> Float[np.ndarray, "*times"]:
    """The times that were given, or the end; of an algorithm that is no flow, those of its steps up to the end."""
    wanted = "an end, or increasing times, in real numbers of learning_rate x steps"
    times, rate = np.asarray(real_array(time, "time", wanted)), float(algorithm.learning_rate)
    if not np.isfinite(times).all() or (times.ndim == 0 and times <= 0):
        raise InvalidInput(f"time = {shown(time)} was given; the end must be positive.")
    if times.ndim == 0 and flow:
        return times
    if times.ndim == 0:
        if not float(times) / rate <= _MOST_STEPS:
            raise InvalidInput(
                f"time = {shown(time)} was given; that is {float(times) / rate:.3g} steps of the algorithm, whose "
                f"memory a DMFT keeps: at most {_MOST_STEPS:,}. Take an earlier end."
            )
        return rate * np.arange(max(1, round(float(times) / rate)) + 1)
    if len(times) < 3 or times[0] != 0 or not (np.diff(times) > 0).all() or (flow and len(times) % 2 == 0):
        raise InvalidInput("time must increase from 0, in an even number of steps.")
    if not flow and not np.isclose(np.diff(times), rate).all():
        raise InvalidInput("Without flow the steps are those of the algorithm; give the end of time as a number.")
    return times


def first_grid(algorithm: ReusedData, end: float, rate: float) -> Float[np.ndarray, " times"]:
    """Steps that grow, up to the longest of weights that relax at this rate; of the loss they know nothing else."""
    (longest,) = longest_steps(algorithm, np.array([rate]))
    times = [0.0]
    while times[-1] < end:
        times.append(times[-1] + min(_FIRST_STEP + _GROWTH * times[-1], longest))
    return np.array(times) * (end / times[-1])


def halved(times: Float[np.ndarray, " times"]) -> Float[np.ndarray, " more"]:
    """The grid with a time more in the middle of each step."""
    return np.sort(np.concatenate([times, (times[1:] + times[:-1]) / 2]))


def step_errors(
    times: Float[np.ndarray, " times"], overlap: Float[np.ndarray, " times"], bends: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """About what each trapezoidal step misses, by how forces bend along it and by how the slope of the overlap does.

    The first is the distance to the midpoint rule, the second the trapezoid's own error where forces are linear. Both
    are of third order in a step.
    """
    durations = np.diff(times)
    if len(durations) < 3:
        return bends
    middles = (times[1:] + times[:-1]) / 2
    turning = np.gradient(np.gradient(np.diff(overlap) / durations, middles), middles)
    return bends + durations**3 * np.abs(turning) / 12


def longest_steps(algorithm: ReusedData, rates: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """How long steps may be: within the correlation of a batch, and stable, for weights that relax at these rates."""
    return np.minimum(_STABLE / rates, _within_batch(algorithm))


def refined(
    times: Float[np.ndarray, " times"],
    errors: Float[np.ndarray, " n"],
    longest: Float[np.ndarray, " n"],
    allowed: float,
    between: tuple[float, float],
) -> Float[np.ndarray, " more"]:
    """Steps of equal errors, as many as half of them would bring the sum to what is allowed, between two numbers."""
    needed = np.cbrt(np.maximum(errors, _FEWEST * errors.max()))
    number = np.clip(np.sqrt(needed.sum() ** 3 / allowed) / 2, *between)
    count = np.maximum(needed * number / needed.sum(), np.diff(times) / longest)
    along = np.concatenate([[0.0], np.cumsum(count)])
    return np.interp(np.linspace(0, along[-1], int(np.ceil(along[-1])) + 1), along, times)


def _within_batch(algorithm: ReusedData) -> float:
    """How long a step may be for the batch to be correlated over it."""
    if isinstance(algorithm, PersistentSGD):
        return _IN_BATCH * float(algorithm.persistence * algorithm.batch_fraction)
    return np.inf
