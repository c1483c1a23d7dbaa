"""Exit times of quadratic networks in closed form: annealed, quenched, dressed by the noise, and from zero overlap."""

import dataclasses

import numpy as np
from scipy import integrate, special

from ..errors import InvalidInput
from ..limits import MeanLimit
from ..quadratic.plateau import Plateau, network_and_rate, plateau

_FAR = 1e9  # beyond, two terms of the expansion of 1F1 at infinity; scipy has NaN there for some parameters


@dataclasses.dataclass(frozen=True)
class ExitFormulas:
    r"""Mean exit times of a quadratic network from its plateau, in alpha (samples per dimension).

    While it is on the plateau every entry of M grows as $e^{\omega \alpha}$ from a random start, and the risk has lost
    the fraction `threshold` of its excess when $\sum M^2$ reaches $\mu$. With s^2/d the variance of the start, n = p k:

    $$ \text{annealed} = \frac{1}{2\omega} \log \frac{\mu d}{n s^2}, \qquad
       \text{quenched} = \frac{1}{2\omega} \Big( \log \frac{\mu d}{2 s^2} - \psi(n/2) \Big), $$

    where the first averages the start before the logarithm and the second after it. SGD's noise is as large as the
    start: it multiplies s^2 by 1 + v, which `dressed` has and the others leave out. `from_zero` is the mean first
    passage of the expansive Ornstein-Uhlenbeck process that starts at zero overlap exactly,
    $\frac{\mu d}{n D} {}_2F_2(1, 1; 1 + \tfrac n2, 2; -\frac{\omega \mu d}{D})$, D the noise of an entry of M.

    They hold to leading order in 1/d and in the threshold; the deviation at a threshold of 0.1 is a few percent, which
    the ODE from dressed starts does not have. Where they are negative the start, or what noise adds to it, is past the
    level already: d is too small, or the growth rate too close to zero, for there to be a plateau.

    Arnaboldi et al. 2023, eqs. (22), (23), (28), (59), with any k and without the sphere; there the noise is left out.
    """

    annealed: float
    quenched: float
    dressed: float
    from_zero: float
    growth_rate: float
    """Of an entry of M, omega, per unit of alpha."""
    noise_dressing: float
    """The factor 1 + v by which noise multiplies the variance of the start."""


def exit_formulas(limit: MeanLimit, d: float, threshold: float) -> ExitFormulas:
    """The closed forms, from students of norm sqrt(d); an error says where there are none.

    **Arguments:**

    - `limit`: from [`ode`], of a quadratic network as for `quadratic.plateau`.
    - `d`: the dimension.
    - `threshold`: the fraction of the plateau's excess risk to lose.
    """
    problem, rate = network_and_rate(limit)
    stuck = plateau(limit)
    growth = float(stuck.growth_rate)
    if growth <= 0:
        raise InvalidInput(
            f"The plateau is stable: overlaps decay at the rate {-growth:.3g}. Take a smaller learning rate."
        )
    p, k, noise, rate = problem.width, problem.teacher_width, float(problem.noise), float(rate)
    entries = p * k
    diffusion = rate**2 * overlap_noise(p, k, noise, float(stuck.state.Q[0, 0]))
    if limit.algorithm.sphere:
        spread, collected = 1.0, diffusion / (2 * growth)
    else:
        spread, collected = _while_norms_relax(p, k, noise, rate, stuck)
    # The risk falls by 2/(p k) times the sum of M^2.
    level = threshold * float(stuck.risk - problem.irreducible_risk) * entries / 2
    psi = float(special.digamma(entries / 2))

    def quenched(variance: float) -> float:
        return float((np.log(level * d / (2 * variance)) - psi) / (2 * growth))

    return ExitFormulas(
        annealed=float(np.log(level * d / (entries * spread)) / (2 * growth)),
        quenched=quenched(spread),
        dressed=quenched(spread + collected),
        from_zero=first_passage(growth, diffusion / d, level, entries),
        growth_rate=growth,
        noise_dressing=1 + collected / spread,
    )


def overlap_noise(p: int, k: int, noise: float, norm: float) -> float:
    r"""Variance of what a sample adds to an entry of M, times $(p / \text{learning rate})^2$, at Q = norm I, M = 0.

    $4 \mathbb{E}[e^2 \lambda_j^2 (\lambda^*_r)^2]$ with $e$ the difference of the outputs plus noise.
    """
    teacher = (k + 2) * (k + 4) / k**2 * norm
    cross = 2 * (k + 2) * (p + 2) / (k * p) * norm**2
    student = (p + 2) * (p + 4) / p**2 * norm**3
    return 4 * (teacher - cross + student + noise * norm)


def first_passage(growth: float, diffusion: float, level: float, entries: int) -> float:
    r"""Mean time at which $\sum_i m_i^2$ first reaches `level`, for $dm_i = \text{growth} \, m_i dt +
    \sqrt{\text{diffusion}} \, dB_i$ from zero.

    $$ \frac{\text{level}}{n \, \text{diffusion}} \,
       {}_2F_2\big(1, 1; 1 + \tfrac n2, 2; -\text{growth} \cdot \text{level} / \text{diffusion}\big) $$

    as the integral of ${}_1F_1(1; 1 + n/2; -x)$, which is stable where the series is not. For n = 1 it is Arnaboldi et
    al. 2023, eq. (59); other n are the radial process.
    """
    end = np.log(growth * level / diffusion)

    def integrand(log_x: float) -> float:
        x = np.exp(log_x)
        if x < _FAR:
            return x * special.hyp1f1(1.0, 1 + entries / 2, -x)
        return entries / 2 * (1 + (1 - entries / 2) / x)

    # In log x, where the integrand goes from x to a constant.
    value, _ = integrate.quad(integrand, min(end, 0.0) - 40, end, limit=500)
    return float(value / (entries * growth))


def _while_norms_relax(p: int, k: int, noise: float, rate: float, stuck: Plateau) -> tuple[float, float]:
    """Without the sphere: what the variance of M gains on the way to the plateau, and the noise that it collects.

    Both are counted as if M had grown at the plateau's own rate from the start, so that they come to rest.
    """
    assert stuck.norm_decay_rate is not None
    growth, kappa, b = float(stuck.growth_rate), (p + 4) / (p + 2), 1 + 2 / k + noise
    final = float(stuck.state.Q[0, 0]) * (p + 2) / p

    def derivative(alpha, z):
        y, _, variance = z
        surplus = 2 * rate * (final - y)
        pace = 4 * rate * y * (1 - y + rate * (kappa * y**2 - 2 * y + b))
        source = rate**2 * overlap_noise(p, k, noise, y * p / (p + 2)) * np.exp(-2 * growth * alpha)
        return pace, surplus, 2 * surplus * variance + source

    end = 40 / min(growth, float(stuck.norm_decay_rate))
    start = (p + 2) / p
    solution = integrate.solve_ivp(derivative, (0, end), (start, 0.0, 0.0), rtol=1e-10, atol=1e-12, method="LSODA")
    if not solution.success or abs(solution.y[0, -1] - final) > 1e-6:
        raise InvalidInput("From students of norm sqrt(d) the norms diverge at this learning rate; take a smaller one.")
    _, gain, variance = solution.y[:, -1]
    return float(np.exp(2 * gain)), float(variance)
