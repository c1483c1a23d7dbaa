"""Section 3: matrix and tensor PCA, eqs. (3.1), (3.2), Propositions 3.1-3.3 and the scaling of the signal."""

import itertools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from dimfree import Claim, OnlineSGD, Outcome, SpikedTensor, simulate
from dimfree.limits import MeanLimit

from ..comparing import EXACT
from .conventions import (
    covariance,
    jacobian,
    rates,
    rates_at,
    tensor_limit,
    tensor_state,
    top_eigenvalue,
)

_ORDERS = (2, 3, 4)
_POINTS = ((0.4, 0.7), (-0.3, 1.4), (0.9, 0.2))  # (m, r^2)


def claims() -> tuple[Claim, ...]:
    return (*_equations(), *_fixed_points(), *_warm_starts(), *_diffusion(), *_scaled_signal())


def effective(m: Any, r2: Any, order: Any, snr: Any, c: Any) -> tuple[Any, Any]:
    """Eq. (3.1), of numbers or symbols."""
    R2 = m**2 + r2
    return (
        2 * m * (snr * order * m ** (order - 2) - order * R2 ** (order - 1)),
        -4 * order * R2 ** (order - 1) * (r2 - c),
    )


def critical_snr(order: int) -> float:
    """The snr from which there are fixed points with an overlap, for step size 1 / n: eq. (D.4), derived anew."""
    if order == 2:
        return 1.0
    ratio = 2 * (order - 1) / order
    return ratio ** (order - 1) * (order / (order - 2)) ** ((order - 2) / 2)


def _equations() -> tuple[Claim, ...]:
    snr, c = 1.7, 0.6
    cases = list(itertools.product(_ORDERS, _POINTS))
    printed = [effective(m, r2, k, snr, c) for k, (m, r2) in cases]
    ours = [rates(tensor_limit(k, snr, c), tensor_state(m, r2)) for k, (m, r2) in cases]
    population = [-2 * snr * m**k + (r2 + m**2) ** k for k, (m, r2) in cases]
    # The constant c of the source: the norm of the signal here, where that of the noise is left out.
    risk = [float(SpikedTensor(k, snr).risk(tensor_state(m, r2))) - snr**2 for k, (m, r2) in cases]
    return (
        Claim(
            "section 3, population loss",
            r"$\Phi = -2 \lambda m^k + (r_\perp^2 + m^2)^k$ and a constant.",
            population,
            risk,
            EXACT,
        ),
        Claim(
            "Proposition 3.1, eq. (3.1)",
            "The ODE for m and r_perp^2, of orders 2, 3 and 4.",
            np.stack(printed),
            np.stack([np.asarray(each) for each in ours]),
            EXACT,
            remark="W has independent entries N(0, 1), without symmetry.",
        ),
    )


def _zero(function: Callable[[float], float], low: float, high: float) -> float:
    return scipy.optimize.root_scalar(function, bracket=(low, high), xtol=1e-14).root


def _roots(order: int, snr: float, c: float = 1.0) -> np.ndarray:
    """Overlaps m other than zero at which the library's drift vanishes on the line r^2 = c, by its sign changes."""
    limit = tensor_limit(order, snr, c)

    def drift(m):
        return float(rates_at(limit, jnp.array([m, c]))[0])

    half = np.geomspace(1e-9, 3.0, 400)
    grid = np.concatenate([-half[::-1], half])
    values = np.asarray(_overlap_rates(limit, jnp.asarray(grid), jnp.asarray(c)))
    changes = [i for i in np.flatnonzero(values[:-1] * values[1:] < 0) if grid[i] * grid[i + 1] > 0]
    return np.array([_zero(drift, grid[i], grid[i + 1]) for i in changes])


@eqx.filter_jit
def _overlap_rates(limit: MeanLimit, overlaps, r2):
    """The drift of the overlap, for many overlaps."""
    return jax.vmap(lambda m: rates_at(limit, jnp.stack([m, r2]))[0])(overlaps)


def _is_stable(order: int, snr: float, m: float) -> float:
    return float(top_eigenvalue(jacobian(tensor_limit(order, snr), [m, 1.0])) < 0)


def _fixed_points() -> tuple[Claim, ...]:
    origin = [float(rates(tensor_limit(k, 0.9), tensor_state(0.0, 1e-3))[1] > 0) for k in _ORDERS]
    uninformed = [_is_stable(2, 0.8, 0.0), _is_stable(2, 1.2, 0.0), *(_is_stable(k, 50.0, 0.0) for k in (3, 4))]
    at_zero = [rates(tensor_limit(k, 1.7), tensor_state(0.0, 1.0)) for k in _ORDERS]
    matrix = _roots(2, 1.2)
    threshold = _zero(lambda snr: jacobian(tensor_limit(2, snr), [0.0, 1.0])[0, 0], 0.5, 2.0)
    roots = {k: _roots(k, 1.5 * critical_snr(k)) for k in (3, 4)}
    of_each_sign = {k: [int(np.sum(found < 0)), int(np.sum(found > 0))] for k, found in roots.items()}
    stable = [_is_stable(k, 1.5 * critical_snr(k), m) for k, found in roots.items() for m in found[-2:]]
    around = [len(_roots(k, factor * critical_snr(k))) for k in (3, 4) for factor in (0.99, 1.01)]
    return (
        Claim(
            "Proposition 3.2(1), (0, 0)",
            "(0, 0) is unstable, for every order: 1 where r^2 grows from small values.",
            np.ones(3),
            origin,
            0.0,
        ),
        Claim(
            "Proposition 3.2(1), (0, 1)",
            "(0, 1) is a fixed point: the drift there.",
            np.zeros((3, 2)),
            np.stack([np.asarray(each) for each in at_zero]),
            EXACT,
        ),
        Claim(
            "Proposition 3.2(1), stability of (0, 1)",
            "Stable for order 2 and snr 0.8, unstable at 1.2, stable for orders 3 and 4 at any snr (here 50).",
            [1.0, 0.0, 1.0, 1.0],
            uninformed,
            0.0,
            remark="From eigenvalues of the library's drift.",
        ),
        Claim(
            "Proposition 3.2, threshold for matrices",
            "lambda_c(2) = 1.",
            1.0,
            threshold,
            EXACT,
        ),
        Claim(
            "Proposition 3.2(2), matrices",
            "Above it fixed points at m = +-(lambda - 1)^1/2, both stable; here lambda = 1.2.",
            [-(0.2**0.5), 0.2**0.5, 1.0, 1.0],
            [*matrix, *(_is_stable(2, 1.2, m) for m in matrix)],
            EXACT,
        ),
        Claim(
            "Proposition 3.2(2), order 4",
            "Above lambda_c two fixed points with m < 0 and two with m > 0.",
            [2, 2],
            of_each_sign[4],
            0.0,
        ),
        Claim(
            "Proposition 3.2(2), order 3",
            "The same for odd order.",
            [2, 2],
            of_each_sign[3],
            0.0,
            correction="For odd order only those with m > 0: for m < 0 the signal term pushes towards zero.",
            corrected=[0, 2],
        ),
        Claim(
            "Proposition 3.2(2), stability",
            "Of the two with m > 0 the lower is unstable and the higher stable, orders 3 and 4.",
            [0.0, 1.0, 0.0, 1.0],
            stable,
            0.0,
        ),
        Claim(
            "Proposition 3.2, lambda_c of eq. (D.4)",
            "They appear at lambda_c(k): how many there are 1% below it and 1% above, for orders 3 and 4.",
            [0.0, 2.0, 0.0, 4.0],
            around,
            0.0,
            remark=r"The appendix is not at hand; derived anew, $\lambda_c = c^{k/2} (2(k-1)/k)^{k-1} "
            r"(k/(k-2))^{(k-2)/2}$: 3.0792 and 6.75 for c = 1.",
        ),
    )


def _warm_starts() -> tuple[Claim, ...]:
    order, snr = 3, 1.5 * critical_snr(3)
    low, high = _roots(order, snr)
    # The line r^2 = 1 is invariant, so that the sign of the drift on it says where a start goes.
    warm = np.array([0.1 * low, 0.97 * low, 1.03 * low, 0.5 * (low + high), 0.99 * high])
    drift = np.asarray(_overlap_rates(tensor_limit(order, snr), jnp.asarray(warm), jnp.ones(())))
    small = [float(_roots(order, snr, c).min()) for c in (1e-2, 1e-4)]
    # Above the threshold the overlap n^-1/2 of a random start grows by a constant factor in a constant time.
    reach = np.array([time_to_learn(1.4, n) for n in (1e4, 1e6, 1e8)])
    return (
        Claim(
            "Remark 1",
            "Warm starts below m_dagger fail and those above it reach m_star: signs of the drift between them.",
            [-1.0, -1.0, 1.0, 1.0, 1.0],
            np.sign(drift),
            0.0,
            remark=f"Order 3, lambda = 1.5 lambda_c: m_dagger = {low:.3f}, m_star = {high:.3f}.",
        ),
        Claim(
            "Remark 1, small steps",
            "The barrier m_dagger goes to zero with the step size: its value at c = 1e-4.",
            0.0,
            small[1],
            1e-6,
            remark=f"It is {small[0]:.1e} at c = 0.01: it falls as $(c^{{k-1}}/\\lambda)^{{1/(k-2)}}$.",
        ),
        Claim(
            "section 3, O(n log n) steps",
            "Matrices above the threshold: the time to half of m_star from an overlap n^-1/2 is linear in log n.",
            0.0,
            float(reach[2] - 2 * reach[1] + reach[0]),
            1e-3,
            remark="Second difference of the ODE's times at n = 10^4, 10^6 and 10^8, lambda = 1.4.",
        ),
    )


def time_to_learn(snr: float, n: float) -> float:
    """When the overlap of a matrix's student is half of m_star, from n^-1/2: the integral of dm over its drift."""
    overlaps = np.geomspace(n**-0.5, 0.5 * (snr - 1) ** 0.5, 2_000)
    drift = np.asarray(_overlap_rates(tensor_limit(2, snr), jnp.asarray(overlaps), jnp.ones(())))
    return float(np.trapezoid(overlaps / drift, np.log(overlaps)))


def rescaled(order: int, snr: Any, r2: Any) -> tuple[Any, Any, Any]:
    """Eq. (3.2), of numbers or symbols: the rate of u_1, its noise per time, the drift of u_2."""
    return (
        2 * (2 * snr * int(order == 2) - order * r2 ** (order - 1)),
        4 * order * r2 ** (order - 1),
        -4 * order * r2 ** (order - 1) * (r2 - 1),
    )


def _diffusion() -> tuple[Claim, ...]:
    printed, ours = [], []
    for order in _ORDERS:
        limit, r2 = tensor_limit(order, 0.8), 1.3
        printed.append(rescaled(order, 0.8, r2))
        drift = np.asarray(rates(limit, tensor_state(0.0, r2)))
        noise = covariance(limit, tensor_state(0.0, r2))[0, 0]
        ours.append([jacobian(limit, [0.0, r2])[0, 0], noise, drift[1]])
    late, found = [], []
    for snr in (0.8, 1.2):
        limit = tensor_limit(2, snr)
        late.append([4 * (snr - 1), 8.0])
        found.append([jacobian(limit, [0.0, 1.0])[0, 0], covariance(limit, tensor_state(0.0, 1.0))[0, 0]])
    stable = [float(jacobian(tensor_limit(order, 1.7), [0.0, 1.0])[0, 0] < 0) for order in (3, 4)]
    return (
        Claim(
            "Proposition 3.3, eq. (3.2)",
            "Drift and diffusion of (sqrt(n) m, r^2) near m = 0, of orders 2, 3 and 4.",
            np.stack(printed),
            np.asarray(ours),
            EXACT,
            remark="The derivative of the library's drift, and its covariance of the increments, at r^2 = 1.3.",
        ),
        Claim(
            "section 3, after eq. (3.2)",
            r"For matrices it becomes $4(\lambda - 1) \tilde u_1 dt + 2 \sqrt 2\, dB$: stable at 0.8, unstable at 1.2.",
            late,
            found,
            EXACT,
        ),
        Claim(
            "section 3, after eq. (3.2), order >= 3",
            "With lambda fixed the equation for u_1 is stable: 1 where it is.",
            np.ones(2),
            stable,
            0.0,
        ),
    )


def _scaled_signal() -> tuple[Claim, ...]:
    n, r2, points = 1e8, 1.2, np.array([-1.5, 0.7, 2.0])

    def grows(order, strength, printed):
        power = 0 if printed else order - 2
        return 2 * points * (order * strength * points**power - order * r2 ** (order - 1))

    def ours(order, strength):
        limit = tensor_limit(order, strength * n ** ((order - 2) / 2))
        return n**0.5 * np.asarray(_overlap_rates(limit, jnp.asarray(points / n**0.5), jnp.asarray(r2)))

    cases = ((3, 0.5), (4, 0.3))
    beyond = [
        (2 * k * (strength - 1), jacobian(tensor_limit(k, strength * n ** ((k - 2) / 2)), [0.0, 1.0])[0, 0])
        for k, strength in ((3, 2.0), (4, 2.0))
    ]
    ran_off, error = _runs_that_explode(3, 0.5, n=2000, runs=1000)
    return (
        Claim(
            "section 3, lambda_n = Lambda n^((k-2)/2), drift",
            r"The drift of $\tilde u_1$ is $2 \tilde u_1 (k \Lambda - k \tilde u_2^{k-1})$, orders 3 and 4.",
            np.stack([grows(*case, printed=True) for case in cases]),
            np.stack([ours(*case) for case in cases]),
            1e-6,
            correction=r"$2 \tilde u_1 (k \Lambda \tilde u_1^{k-2} - k \tilde u_2^{k-1})$: not linear, no "
            "Ornstein-Uhlenbeck process.",
            corrected=np.stack([grows(*case, printed=False) for case in cases]),
            remark="The library's drift at n = 10^8.",
        ),
        Claim(
            "section 3, Lambda_c(k) = 1",
            "Above Lambda = 1 the overlap of a random start is unstable: its rate at Lambda = 2, orders 3 and 4.",
            [rate for rate, _ in beyond],
            [rate for _, rate in beyond],
            1e-3,
            correction="There is no transition: zero is locally stable at every Lambda, with rate -2k, and runs escape "
            r"over the barrier $\tilde u_1 = \Lambda^{-1/(k-2)}$.",
            corrected=[-6.0, -8.0],
        ),
        Claim(
            "section 3, below Lambda_c",
            "Order 3, Lambda = 0.5: the process is stable; the probability that sqrt(n) |m| reaches 15 before t = 1.",
            escape_probability(lambda u: 2 * u * (3 * 0.5 - 3), 12.0),
            ran_off,
            4 * error,
            correction="The corrected equation explodes in finite time with positive probability for every Lambda > 0.",
            corrected=escape_probability(lambda u: 2 * u * (3 * 0.5 * u - 3), 12.0),
            remark="1000 runs of SGD with n = 2000 against Euler-Maruyama; tolerance four standard errors.",
        ),
    )


def _runs_that_explode(order: int, strength: float, n: int, runs: int) -> tuple[float, float]:
    """The fraction of runs whose rescaled overlap reaches 15 by t = 1, and its standard error."""
    m = np.random.default_rng(3).normal(size=runs) / n**0.5
    problem = SpikedTensor(order, strength * n ** ((order - 2) / 2))
    runs_of = simulate(
        problem,
        OnlineSGD(1.0),
        tensor_state(m, np.ones(runs)),
        n,
        np.array([0.0, 1.0]),
        runs=runs,
        key=jax.random.key(4),
        stop=lambda state: jnp.abs(state.M[0, 0]) * n**0.5 - 15.0,
    )
    fraction = float(np.mean(np.asarray(runs_of.outcome) != Outcome.COMPLETED))
    return fraction, (fraction * (1 - fraction) / runs) ** 0.5


def escape_probability(drift, variance: float) -> float:
    """The probability that a diffusion from N(0, 1) reaches 15 by time 1, by Euler-Maruyama."""
    level, paths, steps = 15.0, 8_000, 1_000
    draws = np.random.default_rng(5)
    u = draws.normal(size=paths)
    out = np.zeros(paths, bool)
    for _ in range(steps):
        u = u + drift(u) / steps + np.sqrt(variance / steps) * draws.normal(size=paths)
        out |= np.abs(u) >= level
        u = np.where(out, level, u)
    return float(out.mean())
