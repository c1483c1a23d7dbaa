"""Section 4 on the rings of fixed points: their stability in Proposition 4.2(2), and Proposition 4.3."""

import jax.numpy as jnp
import numpy as np
import scipy.optimize

from dimfree import Claim

from ..comparing import EXACT
from .binary import RIDGE, printed_rates
from .conventions import (
    binary_limit,
    covariance,
    jacobian,
    printed_ring_drift,
    rates_at,
    ring_level,
    state_of,
    top_eigenvalue,
)


def claims() -> tuple[Claim, ...]:
    return (*_stability(), *_diffusion())


def ring_point(angle: float, ridge: float = RIDGE) -> np.ndarray:
    """The amplitudes (a_1, a_2) of a point of the ring."""
    return ring_level(ridge, 2) ** 0.5 * np.array([np.cos(angle), np.sin(angle)])


def _stability() -> tuple[Claim, ...]:
    limit, level = binary_limit(np.inf, RIDGE), ring_level(RIDGE, 2)
    tops = []
    for angle in (0.3, np.pi / 4, 1.2):
        a = ring_point(angle)
        tops.append(top_eigenvalue(jacobian(limit, np.concatenate([a, a, np.zeros(3)]))))
    # At the end of the ring the second neuron is at zero, and grows with the sign that it lacks.
    end, tiny = np.array([level**0.5, 0.0]), 1e-6
    at_end = np.concatenate([end, end, np.zeros(3)]) + np.array([0, -tiny, 0, -tiny, 0, 0, 0])
    growth = _growth(limit, at_end, tiny)
    point, slowest = symmetric_point(snr=0.5, ridge=RIDGE, c=1.0)
    residual = np.abs(printed_rates(point, 0.5, RIDGE, 1.0)).max()
    return (
        Claim(
            "Proposition 4.2(2), unstable",
            "The points of the rings are unstable: whether an eigenvalue is positive, at three of the interior.",
            np.ones(3),
            [float(top > 1e-9) for top in tops],
            0.0,
            correction=r"Interiors attract: eigenvalues $-2\alpha$ (twice), $-2(\alpha - 2\alpha^2) C_\alpha$ across, "
            "and 0 along the ring. Only its end points, where a neuron is zero, are unstable; and so the set is.",
            corrected=np.zeros(3),
        ),
        Claim(
            "Proposition 4.2(2), end points",
            "The rings are unstable at their ends, where a neuron is zero: 1 if that neuron grows.",
            1.0,
            float(growth > 0),
            0.0,
            remark=f"Its rate is 1/4 - ridge: {growth:.4f}.",
        ),
        Claim(
            "Proposition 4.2(2), finite snr",
            "What is left of the rings at finite snr is unstable too: whether an eigenvalue at the fixed point with "
            "v_1 = v_2 is positive; and the drift there.",
            [1.0, 0.0],
            [float(slowest > 0), residual],
            1e-9,
            correction="A symmetric fixed point that is stable: the ring becomes a slow manifold that leads to it.",
            corrected=[0.0, 0.0],
            remark=f"snr 0.5, c = 1: v = {point[0]:.3f}, largest eigenvalue {slowest:.1e}.",
        ),
    )


def _growth(limit, vector: np.ndarray, tiny: float) -> float:
    """The rate at which the second neuron leaves zero, its readout and overlap both at minus tiny."""
    drift = np.asarray(rates_at(limit, jnp.asarray(vector)))
    return float(-(drift[1] + drift[3]) / (2 * tiny))


def symmetric_point(snr: float, ridge: float, c: float) -> tuple[np.ndarray, float]:
    """The fixed point of Proposition 4.1 with equal neurons, and its largest eigenvalue by finite differences."""

    def drift(vector):
        return printed_rates(vector, snr, ridge, c)

    def reduced(u):  # v, m, R_11, R_12 of both neurons
        return drift(np.array([u[0], u[0], u[1], u[1], u[2], u[3], u[2]]))[[0, 2, 4, 5]]

    found = scipy.optimize.root(reduced, [0.4, 0.5, 0.1, 0.08], tol=1e-12)
    point = found.x[[0, 0, 1, 1, 2, 3, 2]]
    step = 1e-4
    columns = [(drift(point + step * e) - drift(point - step * e)) / (2 * step) for e in np.eye(7)]
    return point, top_eigenvalue(np.stack(columns, axis=1))


def _diffusion() -> tuple[Claim, ...]:
    limit = binary_limit(np.inf, RIDGE)
    points = [ring_point(angle) for angle in (0.3, 1.0)]
    matrices = np.stack([jacobian(limit, np.concatenate([a, a, np.zeros(3)])) for a in points])
    sigma, ours = [], []
    for a in points:
        both = np.concatenate([a, a])
        sigma.append(RIDGE**2 * np.outer(both, both))
        ours.append(covariance(limit, state_of(a, a[:, None], np.zeros((2, 2))))[:4, :4])
    end = np.array([ring_level(RIDGE, 2) ** 0.5, 0.0])
    at_end = covariance(limit, state_of(end, end[:, None], np.zeros((2, 2))))
    ranks = [np.linalg.matrix_rank(each, tol=1e-12) for each in ours]
    return (
        Claim(
            "Proposition 4.3, drift",
            r"$d\tilde v_i = \alpha(\tilde m_i - \tilde v_i) + a_i(\alpha - 2\alpha^2) \sum_k a_k (\tilde v_k + \tilde "
            r"m_k)$ and the same with v and m swapped.",
            np.stack([printed_ring_drift(a, RIDGE, 2) for a in points]),
            matrices[:, :4, :4],
            EXACT,
            correction=r"Minus $a_i(\alpha - 2\alpha^2) \sum_k \dots$; and both lines lack their dt.",
            corrected=np.stack([printed_ring_drift(a, RIDGE, 2, sign=-1.0) for a in points]),
            remark="The derivative of the library's drift at infinite snr, at two points of the ring.",
        ),
        Claim(
            "Proposition 4.3, R",
            r"$R_{12}$ and the squares of $R_{i\perp}$ fall at rate $2\alpha$: derivative of the drift.",
            np.tile(-2 * RIDGE * np.eye(3), (2, 1, 1)),
            matrices[:, 4:, 4:],
            EXACT,
        ),
        Claim(
            "Proposition 4.3, diffusion",
            r"$\tilde\Sigma = \alpha^2 a_i a_j$ for v and m alike.",
            np.stack(sigma),
            np.stack(ours),
            EXACT,
        ),
        Claim(
            "Proposition 4.3, rank",
            "The diffusion has rank 1, and vanishes for a neuron at zero.",
            [1.0, 1.0, 0.0],
            [*map(float, ranks), float(np.abs(at_end[[1, 3]]).max())],
            EXACT,
        ),
    )
