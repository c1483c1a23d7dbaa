"""Section 4 and appendix A: the equations of the mean-field theory, and what its misprints would do."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import scipy.integrate

from dimfree import Claim, GradientDescent, LocalFields, PersistentSGD, simulate
from dimfree.algorithms import ReusedData
from dimfree.limits.dmft import Population, Process

from ..comparing import sobol_normals
from .conventions import PHASE, warm

_PATHS, _POPULATIONS = 1_024, 4
_OVERLAP = 0.3


def _squares(student, teacher, noise, readout):
    return (student[0] - teacher[0]) ** 2 / 2


LINEAR = LocalFields(_squares, width=1, teacher_width=1)  # a loss whose dynamics are known from a spectrum


def claims() -> tuple[Claim, ...]:
    return (*_start(), _against_spectrum(), _against_simulation(), _multiplier(), _two_multipliers())


def over_spectrum(function, ratio: float) -> np.ndarray:
    """The mean of a function over the eigenvalues of X^T X / d, with ratio * d > d rows (Marchenko and Pastur)."""
    low, high = (1 - ratio**0.5) ** 2, (1 + ratio**0.5) ** 2

    def integrand(angle):
        value = (low + high) / 2 + (high - low) / 2 * np.cos(angle)
        return function(value) * ((high - low) / 2 * np.sin(angle)) ** 2 / (2 * np.pi * value)

    return np.asarray(scipy.integrate.quad_vec(integrand, 0, np.pi, epsrel=1e-10)[0])


def exact_overlap(times: np.ndarray, samples: float, overlap: float, batch_fraction: float = 1.0) -> np.ndarray:
    """Linear regression on a batch that never changes, with gradients over its fraction: m(t) by its spectrum."""

    def along(eigenvalue):
        return 1 - (1 - overlap) * np.exp(-eigenvalue * times / batch_fraction)

    return over_spectrum(along, batch_fraction * samples)


class ByTangents(Process):
    """The theory with its response from tangents, eqs. (A.21) and (A.22), and from nothing else."""

    def with_flips(self, memory, kernels, paths, k, impulse, correlation):
        return memory


class PrintedResponse(ByTangents):
    """Eq. (A.21) as printed: M_R with another factor 1 / batch_fraction, and delta nu as it is."""

    def move_weights(self, kernels, triangle, paths, k, impulse, memory, correlation):
        # What is remembered of earlier times is -M_R; delta nu is at both ends of the step itself.
        earlier = jnp.arange(memory.size) < k
        printed = jnp.where(earlier, memory / self.algorithm.batch_fraction, memory)
        return super().move_weights(kernels, triangle, paths, k, impulse, printed, correlation)


class PrintedMultiplier(ByTangents):
    """Eq. (A.23) as printed, for gradient descent without the sphere: its multiplier has the mean curvature as well."""

    def move_weights(self, kernels, triangle, paths, k, impulse, memory, correlation):
        row = super().move_weights(kernels, triangle, paths, k, impulse, memory, correlation)
        curvature = self.force(paths.field, paths, kernels.overlap[k])[1]
        half = 0.5 * self.samples * jnp.mean(paths.weight * curvature) * (self.times[k + 1] - self.times[k])
        lost = kernels.overlap[k] * ((1 - half) / (1 + half) - 1)
        return dataclasses.replace(row, overlap=row.overlap + lost)


def populations(
    kind: type[Process],
    problem: LocalFields,
    algorithm: ReusedData,
    overlap: float,
    times: np.ndarray,
    *,
    flow: bool = True,
    paths: int = _PATHS,
) -> list[Population]:
    """Populations of a theory at the end of a grid of times."""
    process = kind(problem, algorithm, jnp.ones(()), jnp.asarray(times), flow)
    found = []
    for seed in range(_POPULATIONS):
        normals = jnp.asarray(sobol_normals(paths, len(times) + 2, np.random.default_rng(seed)).T)
        first, moves = jax.random.split(jax.random.key(seed))
        population = process.start(jnp.ones(()), jnp.asarray(overlap), normals, first)
        found.append(process.advance(population, jnp.asarray(0), jnp.asarray(len(times) - 1), moves))
    return found


def _overlaps(*arguments, **options) -> np.ndarray:
    """The overlap over time, on average over populations."""
    return np.mean([np.asarray(each.kernels.overlap) for each in populations(*arguments, **options)], axis=0)


def _start() -> tuple[Claim, ...]:
    """Gaussian averages at time 0, where m = m_0 and the norm is one: <h0 f> = 0 and <h f> = 2 - 2 m^2."""
    samples, m0, rate, d, datasets = 2.0, 0.5, 1e-3, 200, 256
    descent = GradientDescent(rate, samples, sphere=True)
    steps = np.array([0.0, rate])
    found = simulate(PHASE, descent, warm(m0), d, steps, runs=1_024, datasets=datasets, key=jax.random.key(0))
    slopes = np.diff(np.asarray(found.state.M)[..., 0, 0], axis=1)[:, 0] / rate
    measured = slopes.reshape(datasets, -1).mean(axis=1)
    losses = np.asarray(found.training_loss)[:, 0].reshape(datasets, -1).mean(axis=1)
    tolerance = float(4 * measured.std() / datasets**0.5 + 2 / d + 10 * rate)
    right = 2 * samples * m0 * (1 - m0**2)
    return (
        Claim(
            "eqs. (14), (15), at the start",
            "The overlap begins to grow at the rate 2 alpha m (1 - m^2) of these equations, with Gaussian averages.",
            right,
            float(measured.mean()),
            tolerance,
            remark="Gradient descent on 2 d samples from m = 0.5; a step of 0.001 on 256 datasets, d = 200.",
        ),
        Claim(
            "eq. (A.23), at the start",
            "m' = -(nu + delta nu) m - mu, with the multiplier of the gaps: -2 alpha m^3 at the start.",
            -2 * samples * m0**3,
            float(measured.mean()),
            tolerance,
            correction="m' = -nu m - mu, as in (14); and (A.28) follows from this.",
            corrected=right,
            remark="The same runs: they move toward the signal, not away from it.",
        ),
        Claim(
            "eqs. (17), (20), at the start",
            "The mean training loss is 1 - m^2 at the start.",
            1 - m0**2,
            float(losses.mean()),
            float(4 * losses.std() / datasets**0.5),
        ),
    )


_RESPONSE = "M_R = (alpha / l^2) <s v'' T> with T of (A.22)"
_RIGHT_RESPONSE = "M_R = (alpha / l) <s v'' T>: T carries the other 1 / l, by the source term of (A.22)."


def _against_spectrum() -> Claim:
    samples, fraction = 8.0, 0.25
    times = np.linspace(0.0, 0.4, 25)
    at = [8, 16, 24]
    frozen = PersistentSGD(0.01, samples, batch_fraction=fraction, persistence=1e6)
    printed, right = (
        _overlaps(kind, LINEAR, frozen, _OVERLAP, times, paths=8_192)[at] for kind in (PrintedResponse, ByTangents)
    )
    return Claim(
        "eqs. (19), (A.20), (A.21), linear regression",
        f"{_RESPONSE}: overlap at t = {times[8]:.2g}, {times[16]:.2g}, {times[24]:.2g}.",
        printed,
        exact_overlap(times[at], samples, _OVERLAP, fraction),
        0.03,
        correction=_RIGHT_RESPONSE,
        corrected=right,
        remark="8 d samples, a batch of a quarter of them that does not change: exact by the spectrum. "
        f"{_POPULATIONS} populations of 8192 paths.",
    )


def _against_simulation() -> Claim:
    d, runs = 200, 192
    times = np.linspace(0.0, 0.5, 25)
    at = [12, 24]
    persistent = PersistentSGD(0.01, 2.0, batch_fraction=0.5, persistence=1.0, sphere=True)
    printed, right = (
        _overlaps(kind, PHASE, persistent, 0.5, times, paths=2_048)[at] for kind in (PrintedResponse, ByTangents)
    )
    found = simulate(
        PHASE, persistent, warm(0.5), d, np.array([0.0, 0.25, 0.5]), runs=runs, datasets=64, key=jax.random.key(1)
    )
    overlaps = np.asarray(found.state.M)[:, 1:, 0, 0]
    return Claim(
        "eq. (A.21), phase retrieval",
        f"{_RESPONSE}: overlap of persistent SGD at t = 0.25 and 0.5.",
        printed,
        overlaps.mean(axis=0),
        0.05,
        correction=_RIGHT_RESPONSE,
        corrected=right,
        remark=f"2 d samples, l = 1/2, tau = 1, from m = 0.5. {runs} runs at d = {d}, standard error "
        f"{float(overlaps.std(axis=0).max()) / runs**0.5:.3f}; {_POPULATIONS} populations of 2048 paths.",
    )


def _multiplier() -> Claim:
    samples = 2.0
    times = np.linspace(0.0, 0.6, 25)
    descent = GradientDescent(0.01, samples)
    printed, right = (
        _overlaps(kind, LINEAR, descent, _OVERLAP, times)[[8, 16, 24]] for kind in (PrintedMultiplier, ByTangents)
    )
    return Claim(
        "eq. (A.23)",
        "m' = -(nu + delta nu) m - mu: overlap at t = 0.2, 0.4, 0.6.",
        printed,
        exact_overlap(times[[8, 16, 24]], samples, _OVERLAP),
        0.03,
        correction="m' = -nu m - mu, as in (14): delta nu belongs to the part of the gap orthogonal to the signal.",
        corrected=right,
        remark="Linear regression on 2 d samples without sphere or ridge, where nu = 0: exact by the spectrum.",
    )


def multipliers(population: Population, rate: float, samples: float) -> tuple[float, float]:
    """The multiplier nu of the last step by (15), and by (A.29), from a theory at the learning rate, T = 0."""
    kernels, paths = population.kernels, population.paths
    k = paths.impulse.shape[0] - 1
    weight = np.asarray(paths.weight) / paths.weight.size
    impulse, overlap = np.asarray(paths.impulse[k]), float(kernels.overlap[k])
    gap = np.asarray(kernels.factor[:, k] @ paths.normals - kernels.response[k] @ paths.impulse)
    teacher = np.asarray(paths.teacher)
    by_force = -samples * np.sum(weight * (gap + overlap * teacher) * impulse) / rate
    mu = samples * np.sum(weight * teacher * impulse) / rate
    # delta nu and M_R together are the memory; C there is that of the weights orthogonal to the signal.
    remembered = np.asarray(kernels.memory[k] @ kernels.correlation[:, k]) / rate
    noise = np.asarray(kernels.forces[k] @ kernels.response[k]) / rate
    return float(by_force), float(-remembered + noise - overlap * mu)


def _two_multipliers() -> Claim:
    rate, samples = 0.02, 2.0
    descent = GradientDescent(rate, samples, sphere=True)
    found = [
        np.array(
            [
                multipliers(each, rate, samples)
                for each in populations(
                    ByTangents, PHASE, descent, 0.5, rate * np.arange(steps + 1), flow=False, paths=4_096
                )
            ]
        )
        for steps in (6, 16)
    ]
    by_force, by_kernels = (np.array([each[:, column].mean() for each in found]) for column in (0, 1))
    error = max(float((each[:, 0] - each[:, 1]).std(ddof=1)) / _POPULATIONS**0.5 for each in found)
    return Claim(
        "eqs. (15), (A.19) and (A.29)",
        "Both expressions for the multiplier agree: gradient descent at t = 0.1 and 0.3, on 2 d samples from 0.5.",
        by_force,
        by_kernels,
        0.1,
        remark=f"{_POPULATIONS} populations of 4096 paths, standard error of the difference {error:.3f}. "
        "In a finite population (15) lets the norm drift.",
    )
