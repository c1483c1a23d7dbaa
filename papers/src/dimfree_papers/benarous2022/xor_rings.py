"""Proposition 5.1: diffusion about fixed points where pairs of neurons share a cluster, at infinite snr."""

import jax.numpy as jnp
import numpy as np

from dimfree import Claim

from ..comparing import EXACT
from .conventions import covariance, jacobian, printed_ring_drift, ring_level, unpacked, xor_limit
from .xor import RIDGE

# Where the statistics of Proposition 5.1 are among (v, m^mu and m^nu by neuron, R): v_i, and the overlap that moves.
_MOVING = np.array([0, 1, 2, 3, 4, 6, 9, 11])
_AWAY = np.array([5, 7, 8, 10])  # m^nu of neurons 1 and 2, m^mu of 3 and 4


def claims() -> tuple[Claim, ...]:
    return (*_drift(), *_noise())


def ring_point(first: float, second: float, ridge: float = RIDGE) -> np.ndarray:
    """(a_1, a_2) > 0 at one angle of its ring and (a_3, a_4) < 0 at another."""
    radius = ring_level(ridge, 4) ** 0.5
    return radius * np.array([np.cos(first), np.sin(first), -np.cos(second), -np.sin(second)])


def statistics_at(a: np.ndarray) -> np.ndarray:
    """v = a, m^mu = a for the first two neurons, m^nu = a for the others, R = 0."""
    m = np.zeros((4, 2))
    m[:2, 0], m[2:, 1] = a[:2], a[2:]
    return np.concatenate([a, m.ravel(), np.zeros(10)])


def printed_noise(a: np.ndarray, ridge: float, *, complete: bool) -> np.ndarray:
    """Proposition 5.1: the diffusion matrix of (v, m), with or without the block that the list omits."""
    pairs = np.kron(np.array([[3.0, -1.0], [-1.0, 3.0]]), np.ones((2, 2)))
    block = ridge**2 * np.outer(a, a) * pairs
    mixed = block.copy()  # rows v, columns m
    if not complete:
        mixed[2:, :2] = 0.0  # v of neurons 3, 4 with m^mu of neurons 1, 2
    return np.block([[block, mixed], [mixed.T, block]])


def _drift() -> tuple[Claim, ...]:
    limit, a = xor_limit(np.inf, RIDGE), ring_point(0.4, 1.0)
    matrix = jacobian(limit, statistics_at(a))
    return (
        Claim(
            "Proposition 5.1, drift",
            r"$\tilde h_{\tilde v_i} = \alpha(\tilde v_i - \tilde m_i) - a_i(\alpha - 4\alpha^2) \sum_k a_k(\tilde v_k "
            r"+ \tilde m_k)$, with $d\tilde u = -\tilde h\, dt$ and noise.",
            printed_ring_drift(a, RIDGE, 4),
            matrix[np.ix_(_MOVING, _MOVING)],
            EXACT,
            correction=r"Plus $a_i(\alpha - 4\alpha^2) \sum_k \dots$ in $\tilde h$: the rings attract.",
            corrected=printed_ring_drift(a, RIDGE, 4, sign=-1.0),
            remark="The derivative of the library's drift at infinite snr.",
        ),
        Claim(
            "Proposition 5.1, R",
            r"$\tilde h_R = 2 \alpha R$.",
            2 * RIDGE * np.eye(10),
            -matrix[12:, 12:],
            EXACT,
        ),
    )


def _noise() -> tuple[Claim, ...]:
    limit, a = xor_limit(np.inf, RIDGE), ring_point(0.4, 1.0)
    whole = covariance(limit, unpacked(jnp.asarray(statistics_at(a)), limit))
    ours = whole[np.ix_(_MOVING, _MOVING)]
    listed = printed_noise(a, RIDGE, complete=False)
    given = listed != 0
    first, third, other = 4, 9, 8  # m_1^mu, m_3^nu, m_3^mu

    def rank(*indices: int) -> float:
        return float(np.linalg.matrix_rank(whole[np.ix_(indices, indices)], tol=1e-12))

    return (
        Claim(
            "Proposition 5.1, diffusion",
            r"The listed entries of $\tilde\Sigma$: 3 within a pair of neurons, -1 between, times $\alpha^2 a a$.",
            listed[given],
            ours[given],
            EXACT,
        ),
        Claim(
            "Proposition 5.1, other entries",
            "All other entries are zero.",
            listed,
            ours,
            EXACT,
            correction=r"Also $\tilde\Sigma_{\tilde v_j \tilde m_i^\mu} = -\alpha^2 a_{i,\mu} a_{j,\nu}$ for i in "
            "{1, 2}, j in {3, 4}: without it the matrix is not positive.",
            corrected=printed_noise(a, RIDGE, complete=True),
            remark=f"The smallest eigenvalue of the listed matrix is {np.linalg.eigvalsh(listed)[0]:.1e}.",
        ),
        Claim(
            "Proposition 5.1, rank",
            "The diffusion matrix has rank 2.",
            2.0,
            rank(*range(22)),
            0.0,
            remark="It does with the omitted block; the matrix as listed has rank "
            f"{np.linalg.matrix_rank(listed, tol=1e-12)}.",
        ),
        Claim(
            "Figure 3, caption",
            r"Panel (d) shows the rank-2 diffusion in the coordinates $(m_1^\mu, m_3^\mu)$: its rank there.",
            rank(first, other),
            2.0,
            0.0,
            correction=r"$(m_1^\mu, m_3^\nu)$: in Proposition 5.1 $m_3^\mu$ does not move.",
            corrected=rank(first, third),
            remark=f"Largest covariance of the overlaps that are left out: {np.abs(whole[_AWAY]).max():.0e}.",
        ),
    )
