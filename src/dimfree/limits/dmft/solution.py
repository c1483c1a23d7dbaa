"""What the populations of a theory say together, and with which errors."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
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
_LOSS_ERRORS = 2.0  # of the training loss, in units of the standard error of those populations that agree
_KERNELS = ("correlation", "response", "force_correlation", "memory")


class DMFTSolution(Trajectory):
    """What a dynamical mean-field theory predicts, with its errors: a [`Trajectory`] over time; it prints as a table.

    **Attributes:**

    - `state`: the State over time, extrapolated to vanishing steps where a flow was solved; `training_loss` likewise.
    - `populations`: State and training loss over time as they were solved, a run for each population.
    - `standard_error`: of M, Q and the training loss, by their names, from the spread between populations: from four of
      them it is itself uncertain by 40%, from twelve by 20%. In some populations the noise of their own averages grows,
      which their training loss shows first, and all of them are a little high for being finite: the training loss is
      the median over populations, and its error twice that of the spread of those in the middle.
    - `step_correction`: what the extrapolation added to M, Q and the training loss, by their names.
    - `correlation`: C(t, t') of the weights, shape `(times, times)`.
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
        spread = np.std(np.asarray(self.populations.risk)[completed], axis=0, ddof=1)
        errors = {f"{name}[0,0]": self.standard_error[name] for name in ("M", "Q")}
        return errors | {"risk": spread / np.sqrt(completed.sum())}

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
    times: Float[np.ndarray, " times"], found: list[tuple[Curves, ...]], outcomes: list[Outcome], start: State
) -> dict[str, Any]:
    """The fields of a [`DMFTSolution`] that populations make, each solved on one grid or on two.

    **Arguments:**

    - `found`: the curves of each population, on `times` and, for a flow, on every second of them.
    - `outcomes`: how each ended.
    """
    completed = [grids for grids, outcome in zip(found, outcomes, strict=True) if outcome == Outcome.COMPLETED]
    if not completed:
        raise InvalidInput(
            "Every population diverged; take more paths, shorter steps where you gave the times or, without flow, a "
            "smaller learning rate."
        )
    vanishing = [extrapolated(times, *grids) for grids in completed]
    mean = {name: np.mean([curves[name] for curves in vanishing], axis=0) for name in ("M", "Q")}
    errors = {name: standard_errors([curves[name] for curves in vanishing]) for name in ("M", "Q")}
    losses = [curves["training_loss"] for curves in vanishing]
    mean["training_loss"], errors["training_loss"] = np.median(losses, axis=0), _errors_of_losses(losses)
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
        "step_correction": {
            name: mean[name] - np.mean([fine[name] for fine, *_ in completed], axis=0) for name in _CURVES
        },
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


def ended(grids: tuple[Curves, ...], algorithm: ReusedData, flow: bool) -> Outcome:
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


def _states(curves: Curves, start: State) -> State:
    Q, M = (curves[name][..., None, None] for name in ("Q", "M"))
    readout = None if start.readout is None else jnp.broadcast_to(start.readout, (*Q.shape[:-2], start.readout.size))
    return State(Q=Q, M=M, P=jnp.broadcast_to(start.P, Q.shape), readout=readout)


def standard_errors(rows: list[np.ndarray]) -> np.ndarray:
    """Those of the mean of some curves, from their spread; infinite for fewer than two."""
    if len(rows) < 2:
        return np.full(rows[0].shape if rows else (1,), np.inf)
    return np.std(rows, axis=0, ddof=1) / np.sqrt(len(rows))


def _errors_of_losses(rows: list[np.ndarray]) -> np.ndarray:
    """Those of the median training loss; the factor covers the bias of finite populations: in 24 ridge regressions the
    errors are as large as is stated (rms 0.96).
    """
    if len(rows) < 2:
        return standard_errors(rows)
    middle = np.subtract(*np.quantile(rows, [0.75, 0.25], axis=0)) / 1.349  # as a standard deviation
    return _LOSS_ERRORS * middle / np.sqrt(len(rows))
