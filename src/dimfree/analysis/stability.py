"""Whether fixed points attract: by the Jacobian of the drift, or, at a kink, by what perturbed points do."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Complex, Float

from ..algorithms.schedules import rate_at
from ..state import State
from .components import FixedSet

_ZERO = 1e-6  # eigenvalues below this fraction of the largest are zero
_PROBES = 24  # random perturbations of a point where the drift has a kink
_PERTURBATION = 1e-5
_LEFT = 30  # times its first distance, at which a perturbed point has left
_TIMES = 20  # at which a perturbed point is looked at, up to ten times the slowest time there is


@dataclasses.dataclass(frozen=True)
class Stability:
    """Of one point across the family that it is in, as in a `FixedPoint`; `eigenvalues` in the same order."""

    dimension: int
    eigenvalues: Complex[np.ndarray, " n"]
    growth: float
    unstable: bool
    decided: bool


def stability(
    fixed: FixedSet, points: Float[np.ndarray, "r n"], kinked: Bool[np.ndarray, " r"], rng: np.random.Generator
) -> list[Stability]:
    """The stability of each point across the family that it is in."""
    jacobians = fixed.jacobian(points)
    dimensions = fixed.family_dimension(points, kinked)
    results = []
    for dimension, values in zip(dimensions, np.linalg.eigvals(jacobians).astype(complex), strict=True):
        zero = float(_ZERO * np.abs(values).max())
        growth = float(values[np.argsort(np.abs(values), kind="stable")][dimension:].real.max(initial=-np.inf))
        ordered = values[np.argsort(-values.real, kind="stable")]
        results.append(Stability(int(dimension), ordered, growth, growth > zero, not abs(growth) <= zero))
    at = np.flatnonzero(kinked)
    if len(at):
        horizons = 10 / slowest(fixed, jacobians[at])
        for r, (growth, unstable) in zip(at, _probe(fixed, points[at], horizons, rng), strict=True):
            results[r] = dataclasses.replace(results[r], growth=growth, unstable=unstable, decided=True)
    return results


def slowest(fixed: FixedSet, jacobians: Float[np.ndarray, "r n n"]) -> Float[np.ndarray, " r"]:
    """The smallest rate of the drift at each point, apart from zero; the learning rate where there is none."""
    rates = np.abs(np.linalg.eigvals(jacobians))
    smallest = np.min(np.where(rates > _ZERO * rates.max(axis=1, keepdims=True), rates, np.inf), axis=1)
    return np.where(np.isfinite(smallest), smallest, rate_at(fixed.limit.algorithm.learning_rate, jnp.zeros(())))


def _perturbed(fixed: FixedSet, points, size: float, number: int, rng: np.random.Generator):
    """Points that belong to weights and readouts a little beside those of the given ones, shape (r, number, n)."""
    p, state = fixed.like.width, fixed.unpack(points)
    values, vectors = np.linalg.eigh(np.asarray(state.covariance))
    weights = (vectors * np.sqrt(np.maximum(values, 0))[:, None])[:, None]
    students = weights[:, :, :p] + size * rng.normal(size=(len(points), number, p, weights.shape[-1]))
    if fixed.limit.algorithm.sphere:
        students /= np.linalg.norm(students, axis=-1, keepdims=True)
    readout = None if state.readout is None else np.asarray(state.readout)[:, None]
    if readout is not None:
        readout = readout + size * rng.normal(size=(len(points), number, readout.shape[-1]))
    moved = State(
        Q=students @ students.swapaxes(-1, -2), M=students @ weights[:, :, p:].swapaxes(-1, -2), readout=readout
    )
    return fixed.pack(moved)


def has_kink(fixed: FixedSet, points, rng: np.random.Generator) -> Bool[np.ndarray, " r"]:
    """Whether the drift near a point is not that of its linearisation."""
    if fixed.limit.problem.smooth:
        return np.zeros(len(points), bool)
    jacobians = fixed.jacobian(points)
    near = _perturbed(fixed, points, 1e-6, 4, rng)
    step = near - points[:, None]
    drift = fixed.drift(near.reshape(-1, points.shape[1])).reshape(near.shape)
    rest = np.linalg.norm(drift - np.einsum("rij,rmj->rmi", jacobians, step), axis=2)
    rates = np.linalg.norm(jacobians, axis=(1, 2))
    rates = np.maximum(rates, 0.01 * rates.max())  # it may be flat to first order, without a kink
    return np.any(rest > 0.01 * rates[:, None] * np.linalg.norm(step, axis=2), axis=1)


def _probe(fixed: FixedSet, points, horizons, rng: np.random.Generator) -> list[tuple[float, bool]]:
    """The rate at which perturbed points move away at last, and whether some of them do."""
    starts = _perturbed(fixed, points, _PERTURBATION, _PROBES, rng)
    alphas = np.repeat(horizons, _PROBES)[:, None] * np.linspace(0.0, 1.0, _TIMES + 1)
    paths = fixed.flow(starts.reshape(-1, points.shape[1]), alphas)
    paths = paths.reshape(len(points), _PROBES, _TIMES + 1, -1)
    away = np.linalg.norm(paths - points[:, None, None], axis=-1)
    # A solver that is put back on a sliding surface has been moved by that: what counts begins after its first steps.
    near = away[..., :2].max(axis=-1)
    left = np.any(away > _LEFT * near[..., None], axis=(1, 2))
    return [
        (
            max(map(_rate, paths[r], away[r] / near[r, :, None])) * _TIMES / horizons[r],
            bool(left[r] or _accelerates(paths[r])),
        )
        for r in range(len(points))
    ]


def _accelerates(paths) -> bool:
    """Whether a perturbed point moves in the second half as much as in the first."""
    half = _TIMES // 2
    first = np.linalg.norm(paths[:, half] - paths[:, 1], axis=-1)
    second = np.linalg.norm(paths[:, -1] - paths[:, half], axis=-1)
    return bool(np.any((second > 0.5 * first) & (second > 0.1 * _PERTURBATION)))


def _rate(path, away) -> float:
    """The logarithm of the ratio of two successive moves, the last before the point has left or come to rest.

    `away` is its distance from the fixed point in units of the first.
    """
    moves = np.linalg.norm(np.diff(path, axis=0), axis=1)[1:]
    moves = moves[np.cumprod((away[2:] < _LEFT) & (moves > 1e-4 * _PERTURBATION)).astype(bool)]
    return float(np.log(moves[-1] / moves[-2])) if len(moves) > 1 else -np.inf
