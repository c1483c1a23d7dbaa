"""Section 4: the binary mixture, eqs. (4.1)-(4.3), Propositions 4.1 and 4.2."""

import jax
import jax.numpy as jnp
import numpy as np

from dimfree import Claim, solve

from ..comparing import EXACT
from .conventions import (
    binary_limit,
    gaussian_starts,
    jacobian,
    rates_at,
    ring_level,
    top_eigenvalue,
)

RIDGE = 0.1
_POINT = np.array([0.8, -0.6, 0.5, 0.4, 0.6, 0.2, 0.5])  # v, m, and the upper triangle of R
_SIDES = ((0.8, 0.5, 0.6, 0.4), (0.7, -0.5, 0.6, -0.4), (-0.4, 0.9, -0.5, -0.7))  # v, m on both sides of m_1 m_2 = 0


def claims() -> tuple[Claim, ...]:
    return (*_finite_snr(), *_infinite_snr(), *_approach(), *_fixed_points(), *_basins())


def averages(vector: np.ndarray, snr: float, nodes: int = 48) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The averages (4.3), A^mu (2,), A^perp (2, 2) and B (2, 2), by a rule written here.

    In polar coordinates of the two fields the integrand is smooth in each quadrant: a product of Gauss-Legendre rules.
    Given the fields, X.mu and X.W^perp are at their means.
    """
    v, m, R = vector[:2], vector[2:4], vector[[4, 5, 5, 6]].reshape(2, 2)
    line, weight = np.polynomial.legendre.leggauss(nodes)
    total = np.outer(m, m) + R
    inverse = np.linalg.inv(total)
    reach = np.linalg.norm(m) + 9 * np.sqrt(np.linalg.eigvalsh(total)[-1] / snr)
    angle = (np.arange(4)[:, None] + (line + 1) / 2) * np.pi / 2
    radius = (line + 1) / 2 * reach
    h = np.stack([np.outer(np.cos(angle), radius), np.outer(np.sin(angle), radius)]).reshape(2, -1)
    area = np.outer(np.tile(weight, 4), weight * radius).ravel() * np.pi / 4 * reach / 2
    active = (h >= 0).astype(float)
    score = v @ (h * active)
    A_mu, A_perp, B = np.zeros(2), np.zeros((2, 2)), np.zeros((2, 2))
    for y in (0, 1):
        centred = h - (2 * y - 1) * m[:, None]
        density = snr * np.exp(-0.5 * snr * np.sum(centred * (inverse @ centred), axis=0))
        mass = 0.5 * area * density / (2 * np.pi * np.sqrt(np.linalg.det(total)))
        error = 1 / (1 + np.exp(-score)) - y
        along, rest = 2 * y - 1 + m @ inverse @ centred, R @ inverse @ centred
        A_mu += (active * error) @ (mass * along)
        A_perp += (active * error * mass) @ rest.T
        B += (active * error**2 * mass) @ active.T
    return A_mu, A_perp, B


def printed_rates(vector: np.ndarray, snr: float, ridge: float, c: float, nodes: int = 48) -> np.ndarray:
    """Proposition 4.1."""
    v, m, R = vector[:2], vector[2:4], vector[[4, 5, 5, 6]].reshape(2, 2)
    A_mu, A_perp, B = averages(vector, snr, nodes)
    f_v = m * A_mu + np.diag(A_perp) + ridge * v
    f_m = v * A_mu + ridge * m
    mixed = v[:, None] * A_perp
    f_R = mixed + mixed.T + 2 * ridge * R
    g_R = c * np.outer(v, v) / snr * B
    return np.concatenate([-f_v, -f_m, (g_R - f_R)[[0, 0, 1], [0, 1, 1]]])


def infinite_snr_rates(v: np.ndarray, m: np.ndarray, ridge: float) -> np.ndarray:
    """Proposition 4.2: the rates of v and m."""
    together = m[0] * m[1] > 0
    weight = 1 / (1 + np.exp(v @ m)) if together else 1 / (1 + np.exp(v * m))
    return np.concatenate([m / 2 * weight - ridge * v, v / 2 * weight - ridge * m])


def _finite_snr() -> tuple[Claim, ...]:
    cases = [(2.0, 2.0), (0.7, 0.5)]
    printed = np.stack([printed_rates(_POINT, snr, RIDGE, c) for snr, c in cases])
    ours = np.stack([np.asarray(rates_at(binary_limit(snr, RIDGE, c), jnp.asarray(_POINT))) for snr, c in cases])
    return (
        Claim(
            "Proposition 4.1, eqs. (4.2), (4.3)",
            "The ODE for the seven statistics: drifts f and correctors g, at snr 2 and 0.7.",
            printed,
            ours,
            1e-9,
            remark="The averages (4.3) by quadrature in each quadrant of the two fields.",
        ),
    )


def _infinite_snr() -> tuple[Claim, ...]:
    limit = binary_limit(np.inf, RIDGE)
    rest = np.array([0.5, 0.1, 0.4])
    printed, ours = [], []
    for v1, v2, m1, m2 in _SIDES:
        v, m = np.array([v1, v2]), np.array([m1, m2])
        printed.append(np.concatenate([infinite_snr_rates(v, m, RIDGE), -2 * RIDGE * rest]))
        ours.append(np.asarray(rates_at(limit, jnp.concatenate([v, m, rest]))))
    v, m = np.array([0.8, 0.5]), np.array([0.0, 0.9])
    sides = [infinite_snr_rates(v, np.array([side, 0.9]), RIDGE) for side in (1e-9, -1e-9)]
    between = rates_at(binary_limit(1e7, RIDGE), jnp.concatenate([v, m, rest]))[:4]
    return (
        Claim(
            "Proposition 4.2, ODE",
            "The limit of infinite snr, at points with m_1 m_2 of both signs.",
            np.stack(printed),
            np.stack(ours),
            EXACT,
        ),
        Claim(
            "Proposition 4.2, ODE where m_1 = 0",
            'The branch "else" holds at m_1 m_2 = 0 too.',
            infinite_snr_rates(v, m, RIDGE),
            np.asarray(between),
            1e-3,
            correction="There the limit is the mean of the two sides: a neuron orthogonal to the signal is active on "
            "half of each cluster.",
            corrected=(sides[0] + sides[1]) / 2,
            remark="The library's drift at snr 10^7. A set of measure zero.",
        ),
    )


def _approach() -> tuple[Claim, ...]:
    points = [np.array([v1, v2, m1, m2, 0.5, 0.1, 0.4]) for v1, v2, m1, m2 in _SIDES]
    at_infinity = np.stack([np.asarray(rates_at(binary_limit(np.inf, RIDGE), jnp.asarray(u))) for u in points])

    def distance(snr: float) -> float:
        finite = np.stack([np.asarray(rates_at(binary_limit(snr, RIDGE), jnp.asarray(u))) for u in points])
        return float(np.abs(finite - at_infinity).max())

    far = np.array([distance(snr) for snr in (1e3, 1e4, 1e5)])
    return (
        Claim(
            "footnote 5, binary mixture",
            r"f and g depend on 1/$\lambda$ in a locally Lipschitz way: the exponent of their distance to the limit.",
            1.0,
            float(-np.log10(far[2] / far[1])),
            0.05,
            remark="Away from m_1 m_2 = 0, where it is not uniform.",
        ),
        Claim(
            "section 1, SNR tends to zero",
            "Section 4 is the limit in which the SNR tends to zero: distance of the drift from Proposition 4.2.",
            distance(1e-3),
            0.0,
            1e-4,
            correction="The SNR tends to infinity.",
            corrected=float(far[2]),
            remark="At snr 0.001, and at 10^5.",
        ),
    )


def _fixed_points() -> tuple[Claim, ...]:
    limit, level = binary_limit(np.inf, RIDGE), ring_level(RIDGE, 2)
    angles = np.linspace(0.1, np.pi / 2 - 0.1, 7)
    rings = [s * level**0.5 * np.array([np.cos(a), np.sin(a)]) for a in angles for s in (1, -1)]
    optima = [level**0.5 * np.array([1.0, -1.0]), level**0.5 * np.array([-1.0, 1.0])]

    def at(v):
        return np.concatenate([v, v, np.zeros(3)])

    residuals = np.stack([np.asarray(rates_at(limit, jnp.asarray(at(v)))) for v in (*rings, *optima)])
    tops = [top_eigenvalue(jacobian(limit, at(v))) for v in optima]
    # A neuron close to zero in the direction of its growth: v = m = tiny, of either sign.
    tiny = 1e-6 * np.array([1.0, -1.0])
    growth = np.asarray(rates_at(limit, jnp.asarray(at(tiny))))[0] / tiny[0] + RIDGE
    return (
        Claim(
            "Proposition 4.2(1)",
            "(0, 0) is stable if and only if the ridge exceeds 1/4: the ridge at which it turns.",
            0.25,
            float(growth),
            1e-5,
        ),
        Claim(
            "Proposition 4.2(2), (3), location",
            r"Quarter-circles $v_1^2 + v_2^2 = C_\alpha$ with $v_1 v_2 > 0$, and $\pm(\sqrt{C_\alpha}, "
            r"-\sqrt{C_\alpha})$: the drift there.",
            np.zeros_like(residuals),
            residuals,
            EXACT,
        ),
        Claim(
            "Proposition 4.2(3), stability",
            "The two points with v_1 v_2 < 0 are stable: 1 where all eigenvalues are negative.",
            np.ones(2),
            [float(top < 0) for top in tops],
            0.0,
            remark=f"The largest is {max(tops):.3f} at ridge 0.1.",
        ),
    )


def _basins() -> tuple[Claim, ...]:
    limit, level = binary_limit(np.inf, RIDGE), ring_level(RIDGE, 2)
    some = gaussian_starts(25, 250, 2, 1, 0.01, seed=6)
    # Each start with all signs of its readouts, which a Gaussian has with equal probability.
    signs = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    starts = jax.tree.map(lambda leaf: jnp.repeat(leaf, 4, axis=0), some)
    starts = type(some)(Q=starts.Q, M=starts.M, readout=starts.readout * np.tile(signs, (25, 1)))
    end = jax.vmap(lambda start: solve(limit, start, jnp.array([0.0, 150.0]), steps=3_000).final)(starts)
    v, m = np.asarray(end.readout), np.asarray(end.M[..., 0])
    optimal = v[:, 0] * v[:, 1] < 0
    on_points = np.abs(np.abs(v[optimal]) - level**0.5).max()
    on_rings = np.abs(np.sum(v[~optimal] ** 2, axis=1) - level).max()
    return (
        Claim(
            "Proposition 4.2, all fixed points",
            "All have m = v and R = 0, v on the circles or at the points: largest distances at the ends of 100 runs.",
            np.zeros(4),
            [np.abs(m - v).max(), np.abs(np.asarray(end.Q) - m[:, :, None] * m[:, None]).max(), on_points, on_rings],
            1e-4,
            remark="The ODE at infinite snr and ridge 0.1 from Gaussian starts, until t = 150.",
        ),
        Claim(
            "Proposition 4.2, probability 1/2",
            "A Gaussian start is in the basin of the stable points with probability 1/2.",
            0.5,
            float(np.mean(optimal)),
            0.02,
            remark="100 starts, in which all signs of v occur equally often.",
        ),
    )
