"""What the populations of a theory say together, and with which errors."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Float

from ...algorithms.reused import GradientDescent, ReusedData
from ...errors import InvalidInput, is_concrete
from ...state import State
from ...trajectory import Outcome, Trajectory
from .populations import Curves

if TYPE_CHECKING:
    import xarray

_CLIMB = 0.02  # how far up gradient descent may seem to go, in the noise of a population: of its descent and first loss
_CURVES = ("M", "Q", "training_loss")  # those with errors
_MEDIAN = (np.pi / 2) ** 0.5  # error of a median in units of that of a mean; and a deviation, of the mean distance
_FAR = 4.0  # distance of what has run away from the median, in units of the median distance; 2.7 standard deviations
_LEFT = 0.25  # of the correction for steps: what is assumed to be still missing, where steps are nearly too long
_KERNELS = ("correlation", "response", "force_correlation", "memory")


class DMFTSolution(Trajectory):
    """What a dynamical mean-field theory predicts, with its errors: a [`Trajectory`] over time; it prints as a table.

    **Attributes:**

    - `state`: the State over time, extrapolated to vanishing steps where a flow was solved; `training_loss` likewise.
    - `populations`: State and training loss over time as they were solved, a run for each population.
    - `standard_error`: of M, Q and the training loss, by their names: the exact value is within two of them in 95 of
      100 solves, or more. It is made of the spread between populations (by Student's t for as many, and not less than
      at the times nearby), of how much some populations differ from their own halves (the bias of a finite
      population), and of a quarter of the `step_correction`. In some populations the noise of their own averages grows,
      which their training loss shows first: the training loss is the median over populations.
    - `step_correction`: what the extrapolation added to M, Q and the training loss, by their names.
    - `correlation`: C(t, t') of the weights, shape `(times, times)`; this and what follows is at the steps that were
      taken, without extrapolation.
    - `response`: R(t, t') of the weights at t to a force in the step that begins at t', shape `(times, steps)`.
    - `force_correlation`: of the forces of the samples on the weights, averaged over steps, shape `(steps, steps)`.
    - `memory`: the force of a step by the weights at t, averaged over the step, shape `(steps, times)`.
    """

    _: dataclasses.KW_ONLY
    populations: Trajectory
    standard_error: dict[str, Float[np.ndarray, " times"]]
    step_correction: dict[str, Float[np.ndarray, " times"]]
    correlation: Float[np.ndarray, "times times"]
    response: Float[np.ndarray, "times steps"]
    force_correlation: Float[np.ndarray, "steps steps"]
    memory: Float[np.ndarray, "steps times"]

    @property
    def deviations(self) -> dict[str, Any]:
        completed = np.asarray(self.populations.outcome) == Outcome.COMPLETED
        risks = list(np.asarray(self.populations.risk)[completed])
        errors = {f"{name}[0,0]": self.standard_error[name] for name in ("M", "Q")}
        return errors | {"risk": errors_of_means(np.asarray(self.time), risks)}

    def to_xarray(self, observe: Sequence[str] = ()) -> "xarray.Dataset":
        """The Dataset of a [`Trajectory`], with the standard errors as `M_error`, `Q_error`, `training_loss_error`."""
        errors = {f"{name}_error": ("time", error) for name, error in self.standard_error.items()}
        return super().to_xarray(observe).assign(errors)

    def __repr__(self) -> str:
        if not is_concrete(self):
            return super().__repr__()
        times, overlap, loss = (np.asarray(each) for each in (self.time, self.state.M[:, 0, 0], self.training_loss))
        shown = np.unique(np.searchsorted(times, np.linspace(0, times[-1], 6)).clip(max=len(times) - 1))
        rows = [
            f"  {times[i]:8.3f} {overlap[i]:9.4f} {self.standard_error['M'][i]:9.4f} "
            f"{self.step_correction['M'][i]:10.4f} {loss[i]:14.5g}"
            for i in shown
        ]
        settings = [f"  {name}: {value}" for name, value in self.provenance]
        return "\n".join(["      time         M    +- error  from steps  training loss", *rows, *settings])


def together(
    times: Float[np.ndarray, " times"],
    found: list[tuple[Curves, ...]],
    outcomes: list[Outcome],
    start: State,
    shifts: Sequence[Curves] = (),
) -> dict[str, Any]:
    """The fields of a [`DMFTSolution`] that populations make, each solved on one grid or on two.

    **Arguments:**

    - `found`: the curves of each population, on `times` and, for a flow, on every second of them.
    - `outcomes`: how each ended.
    - `shifts`: how far some populations are from their halves.
    """
    completed = [grids for grids, outcome in zip(found, outcomes, strict=True) if outcome == Outcome.COMPLETED]
    if not completed:
        raise InvalidInput(
            "Every population diverged; take more paths, shorter steps where you gave the times or, without flow, a "
            "smaller learning rate."
        )
    vanishing = [extrapolated(times, *grids) for grids in completed]
    mean, errors, corrections = {}, {}, {}
    for name in _CURVES:
        average, errors_of = (np.median, errors_of_medians) if name == "training_loss" else (np.mean, errors_of_means)
        rows = [curves[name] for curves in vanishing]
        mean[name] = average(rows, axis=0)
        corrections[name] = mean[name] - average([fine[name] for fine, *_ in completed], axis=0)
        systematic = systematic_errors(corrections[name], [shift[name] for shift in shifts])
        errors[name] = np.hypot(errors_of(times, rows), systematic)
    solved = {name: np.stack([fine[name] for fine, *_ in found]) for name in _CURVES}
    return {
        "alpha": jnp.asarray(times),
        "state": _states(mean, start),
        "training_loss": jnp.asarray(mean["training_loss"]),
        "outcome": jnp.asarray(Outcome.COMPLETED),
        "stopped_at": jnp.asarray(jnp.nan),
        "populations": {
            "state": _states(solved, start),
            "training_loss": jnp.asarray(solved["training_loss"]),
            "outcome": jnp.asarray(np.array(outcomes)),
            "stopped_at": jnp.full(len(found), jnp.nan),
        },
        "standard_error": errors,
        "step_correction": corrections,
        **{name: np.mean([fine[name] for fine, *_ in completed], axis=0) for name in _KERNELS},
    }


def extrapolated(
    times: Float[np.ndarray, " times"], fine: Curves, coarse: Curves | None = None
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


def shift(
    times: Float[np.ndarray, " times"], grid: Float[np.ndarray, " some"], whole: Curves, halves: Sequence[Curves]
) -> Curves:
    """How far M, Q and the training loss of a population on a grid are from the means of its halves, at these times.

    What is linear in the averages over a population cancels, and with it nearly all of the noise.
    """
    return {
        name: np.interp(times, grid, whole[name] - np.mean([half[name] for half in halves], axis=0)) for name in _CURVES
    }


def ended(grids: tuple[Curves, ...], algorithm: ReusedData, flow: bool) -> Outcome:
    """Whether a population can be believed: finite, and under gradient-descent flow not higher than it has been."""
    for curves in grids:
        if not all(np.isfinite(curves[name]).all() for name in _CURVES):
            return Outcome.DIVERGED
        if flow and isinstance(algorithm, GradientDescent):
            height = float(algorithm.samples_per_dimension) * curves["training_loss"]
            height = height + 0.5 * float(algorithm.ridge) * curves["Q"]
            lowest = np.minimum.accumulate(height)
            if np.any(height - lowest > _CLIMB * (height[0] - lowest + abs(height[0]))):
                return Outcome.DIVERGED
    return Outcome.COMPLETED


def _states(curves: Curves, start: State) -> State:
    Q, M = (curves[name][..., None, None] for name in ("Q", "M"))
    readout = None if start.readout is None else jnp.broadcast_to(start.readout, (*Q.shape[:-2], start.readout.size))
    return State(Q=Q, M=M, P=jnp.broadcast_to(start.P, Q.shape), readout=readout)


def errors_of_means(times: Float[np.ndarray, " times"], rows: Sequence[np.ndarray]) -> np.ndarray:
    """Those of the mean of some curves, from their spread; infinite for fewer than two.

    Two of them are half the width of an interval that has the exact mean in 95 of 100 cases, by Student's t.
    """
    if len(rows) < 2:
        return np.full(times.shape, np.inf)
    return _errors(times, np.var(rows, axis=0, ddof=1), len(rows))


def errors_of_medians(times: Float[np.ndarray, " times"], rows: Sequence[np.ndarray]) -> np.ndarray:
    """Those of the median of some curves, where a few may have run away: from the mean distance to it.

    How far away those few are does not matter for the median.
    """
    number = len(rows)
    if number < 2:
        return np.full(times.shape, np.inf)
    distances = np.abs(rows - np.median(rows, axis=0))
    distance = np.minimum(distances, _FAR * np.median(distances, axis=0)).mean(axis=0)
    return _errors(times, (_MEDIAN * _MEDIAN * distance) ** 2, number)


def systematic_errors(correction: np.ndarray, shifts: Sequence[np.ndarray]) -> np.ndarray:
    """What more populations do not take away: the bias of a finite one, and what extrapolation in the step leaves.

    The bias is inversely proportional to the paths: a population misses as much as it differs from its halves.
    """
    biases = np.mean(np.square(shifts), axis=0) if len(shifts) else 0.0
    return np.sqrt(biases + (_LEFT * correction) ** 2)


def _errors(times: np.ndarray, variance: np.ndarray, number: int) -> np.ndarray:
    """Of an average over so many curves with this variance, which is itself from them."""
    # A few curves come together by chance at one time, hardly from half that time to twice it.
    first, last = np.searchsorted(times, times / 2), np.searchsorted(times, 2 * times, side="right")
    sums = np.concatenate([[0.0], np.cumsum(variance)])
    nearby = (sums[last] - sums[first]) / (last - first)
    half_width = scipy.special.stdtrit(number - 1, 0.975) / scipy.special.ndtri(0.975)
    return half_width * np.sqrt(np.maximum(variance, nearby) / number)
