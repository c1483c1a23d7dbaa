"""The variances of appendices D, E and F as printed, for one student."""

from typing import Any

import sympy

from dimfree.symbolic import GaussianFields

from ..printed import PrintedEquation
from .printed_polynomials import diffusion, gradient_covariance, increment_covariances
from .printed_system import derived, gamma_and_noise


def fluctuations() -> tuple[PrintedEquation, ...]:
    """Eqs. (62)-(64), the variance of appendix D, and appendix F."""
    return (*_explicit(), *_gradient_noise(), *_zoom())


def _explicit() -> tuple[PrintedEquation, ...]:
    """Eq. (62), and the noise at m = 0."""
    result, sphere = derived(1, limit="sde"), derived(1, limit="sde", sphere=True)
    gamma, noise = gamma_and_noise(result)
    m, q = result.symbols["M[0,0]"], result.symbols["Q[0,0]"]
    d = sympy.Symbol("d", positive=True)
    ours = (d / gamma * result.covariance).subs(q, 1)  # of the increments over their step
    printed = increment_covariances(m, noise, gamma)
    true = (ours[0, 0], ours[0, 1], ours[1, 1])
    return (
        PrintedEquation(
            "eq. (62)",
            "Variances of the increments of Q and m and their covariance, p = 1.",
            printed,
            true,
            correction=r"$2\gamma$ for $\gamma$ in Var Q and in Cov: the increment of Q has "
            r"$4 \gamma \mathcal{E}^2 \lambda^2$.",
            corrected=increment_covariances(m, noise, 2 * gamma),
            remark="Moments of order twelve.",
        ),
        PrintedEquation("eq. (62), Var M", "The variance of the increment of m alone.", printed[2], true[2]),
        PrintedEquation(
            "App. D, variance at m = 0",
            "The noise of m on the sphere at m = 0, p = 1.",
            gamma / d * (48 + 4 * noise),
            sphere.covariance[0, 0].subs(sphere.symbols["M[0,0]"], 0),
        ),
    )


class OneStudent:
    """One student and a teacher of any norm: the derived system at rho, and averages of polynomials of the fields."""

    def __init__(self) -> None:
        self.result = derived(1, rho=True, limit="sde")
        self.gamma, self.noise = gamma_and_noise(self.result)
        self.m, self.q = self.result.symbols["M[0,0]"], self.result.symbols["Q[0,0]"]
        self.rho = sympy.Symbol(r"\rho", real=True)
        zero = sympy.Integer(0)
        covariance = [[self.q, self.m, zero], [self.m, self.rho, zero], [zero, zero, self.noise]]
        self.fields = GaussianFields(covariance)
        self.student, self.star, self.zeta = self.fields.fields

    def coefficients(self, polynomial: Any) -> tuple[Any, Any, Any, Any]:
        r"""Of I, $w w^\top$, $w_* w_*^\top$ and $w w_*^\top + w_* w^\top$ in $\mathbb{E}[F x x^\top]$, by Stein."""
        average, u, v = self.fields.average, self.student, self.star
        second = (polynomial, polynomial.diff(u).diff(u), polynomial.diff(v).diff(v), polynomial.diff(u).diff(v))
        return tuple(average(each).as_expr() for each in second)  # pyright: ignore[reportReturnType]

    def printed_V(self) -> tuple[Any, Any, Any, Any]:
        """Eq. (63), without its factor 4."""
        return gradient_covariance(self.q, self.m, self.rho, self.noise)


def _gradient_noise() -> tuple[PrintedEquation, ...]:
    one = OneStudent()
    q, m, rho, D, gamma, result = one.q, one.m, one.rho, one.noise, one.gamma, one.result
    rest = sympy.Rational(3, 2) * q**2 - rho * q - 2 * m**2
    half = sympy.Rational(1, 2)
    radius = sympy.Symbol(r"{\|w_{*}\|}", positive=True)
    error = one.star**2 - one.student**2 + one.zeta
    seen = one.coefficients(4 * error**2 * one.student**2)
    # The mean gradient is (6 q - 2 rho) w - 4 m w_*.
    along, across = 2 * sympy.diff(result.risk, q), sympy.diff(result.risk, m)
    V = (seen[0], seen[1] - along**2, seen[2] - across**2, seen[3] - along * across)
    flow = {key: result.drift[key] - result.corrector[key] for key in result.drift}
    identity = one.printed_V()[0]
    return (
        PrintedEquation(
            "App. F, Phi(w)",
            "The mean loss in terms of the weights.",
            3 * half * rho**2 + 3 * half * D + rest,
            result.risk,
            correction=r"$\Delta/2$ in place of $\tfrac32 \Delta$, as in the next display.",
            corrected=3 * half * rho**2 + D / 2 + rest,
        ),
        PrintedEquation(
            "App. F, rho",
            "The mean loss in terms of m and q, with rho = |w_*|.",
            ((3 * rho**2 + D) / 2 + rest).subs(rho, radius),
            result.risk.subs(rho, radius**2),
            correction=r"$\rho = \|w_*\|^2$.",
            corrected=((3 * rho**2 + D) / 2 + rest).subs(rho, radius**2),
        ),
        PrintedEquation(
            "App. F, grad Phi",
            "The coefficients of w and w_* in the gradient of the mean loss.",
            (6 * q - 2 * rho, -4 * m),
            (along, across),
        ),
        PrintedEquation(
            "App. F, grad Phi (x) grad Phi",
            "The coefficients of w w^T, of w w_*^T and its transpose, and of w_* w_*^T.",
            (4 * (3 * q - rho) ** 2, -4 * (6 * q * m - 2 * rho * m), 4 * 4 * m**2),
            (along**2, along * across, across**2),
        ),
        PrintedEquation(
            "App. F, E[grad L (x) grad L]",
            "The coefficients of I, w w^T, w_* w_*^T and of w w_*^T and its transpose.",
            (
                4 * identity,
                4 * (90 * q**2 + 2 * D + 6 * rho**2 - 24 * rho * q - 48 * m**2),
                4 * (12 * rho * q + 24 * m**2 - 12 * q**2),
                4 * (24 * rho * m - 48 * q * m),
            ),
            seen,
        ),
        PrintedEquation(
            "eq. (63)",
            "The same coefficients in the covariance V of the gradient of a sample.",
            tuple(4 * each for each in one.printed_V()),
            V,
        ),
        PrintedEquation(
            "App. F, f and g",
            "Drift and corrector of m and q.",
            (6 * m * (q - rho), 12 * q**2 - 4 * rho * q - 8 * m**2, sympy.Integer(0), 4 * gamma * identity),
            (-flow["M[0,0]"], -flow["Q[0,0]"], result.corrector["M[0,0]"], result.corrector["Q[0,0]"]),
        ),
        PrintedEquation(
            "eq. (64)",
            "The ODE for p = 1 without constraint.",
            (6 * m * (rho - q), 4 * (2 * m**2 + rho * q - 3 * q**2 + gamma * identity)),
            (result.drift["M[0,0]"], result.drift["Q[0,0]"]),
        ),
    )


def _zoom() -> tuple[PrintedEquation, ...]:
    """Appendix F.1: the lines of each of the three computations, and their results."""
    one = OneStudent()
    q, m, rho, D, gamma = one.q, one.m, one.rho, one.noise, one.gamma
    d = sympy.Symbol("d", positive=True)
    # Of the increments over their step, at vanishing learning rate.
    at_zero = sympy.expand(d / gamma * one.result.covariance).subs(gamma, 0)
    mm, mq, qq = at_zero[1, 1], at_zero[0, 1], at_zero[0, 0]
    of_I, of_ww, of_ss, of_both = one.printed_V()
    bracket = of_I * m + of_ww * q * m + of_ss * m * rho + of_both * (m**2 + rho * q)
    lines_mm = (
        60 * rho * q**3 + 4 * D * rho * q + 12 * rho**3 * q + 48 * rho**2 * m**2 - 24 * rho**2 * q**2
        - 96 * rho * q * m**2 + 324 * m**2 * q**2 + 8 * D * m**2 + 24 * rho**2 * m**2 - 96 * rho * q * m**2
        - 192 * m**4 + 24 * rho * q * m**2 - 4 * rho**2 * m**2 + 48 * rho**3 * q + 96 * rho**2 * m**2
        - 48 * rho**2 * q**2 - 16 * rho**2 * m**2 + 176 * rho**2 * m**2 - 336 * rho * q * m**2
    )  # fmt: skip
    lines_mq = (
        120 * m * q**3 + 8 * D * m * q + 24 * rho**2 * m * q + 96 * rho * m**3 - 48 * rho * m * q**2 - 192 * m**3 * q
        + 720 * m * q**3 + 16 * D * m * q + 48 * rho**2 * m * q - 192 * rho * m * q**2 - 384 * m**3 * q - 72 * m * q**3
        + 48 * rho * m * q**2 - 8 * rho**2 * m * q + 96 * rho**2 * m * q + 192 * rho * m**3 - 96 * rho * m * q**2
        - 32 * rho * m**3 + 192 * rho * m**3 - 384 * m**3 * q + 48 * m**3 * q - 16 * rho * m**3 + 192 * rho**2 * m * q
        - 384 * rho * m * q**2 + 48 * rho * m * q**2 - 16 * rho**2 * m * q
    )  # fmt: skip
    lines_qq = (
        240 * q**4 + 16 * D * q**2 + 48 * rho**2 * q**2 + 192 * rho * m**2 * q - 96 * rho * q**3 - 384 * q**2 * m**2
        + 1440 * q**4 + 32 * D * q**2 + 96 * rho**2 * q**2 - 384 * rho * q**3 - 768 * m**2 * q**2 - 144 * q**4
        + 96 * rho * q**3 - 16 * rho**2 * q**2 + 192 * rho * m**2 * q + 384 * m**4 - 192 * m**2 * q**2 - 64 * m**4
        + 768 * rho * m**2 * q - 1536 * m**2 * q**2 + 192 * m**2 * q**2 - 64 * rho * m**2 * q
    )  # fmt: skip
    final_qq, final_mq, final_mm = diffusion(q, m, rho, D)
    how = "The derived covariance of the increments over their step, at vanishing learning rate."
    return (
        PrintedEquation(
            "App. F.1, Sigma_mm",
            "The three lines of the computation.",
            (4 * of_I * rho + 4 * of_ww * m**2 + 4 * of_ss * rho**2 + 8 * of_both * rho * m, lines_mm, final_mm),
            (mm, mm, mm),
            remark=how,
        ),
        PrintedEquation(
            "App. F.1, Sigma_mq, first line",
            "The bracket with the coefficients of V.",
            bracket,
            mq,
            correction="8 times the bracket; the lines below have it.",
            corrected=8 * bracket,
            remark=how,
        ),
        PrintedEquation(
            "App. F.1, Sigma_mq", "The second and the third line.", (lines_mq, final_mq), (mq, mq), remark=how
        ),
        PrintedEquation(
            "App. F.1, Sigma_qq",
            "The three lines of the computation.",
            (16 * (of_I * q + of_ww * q**2 + of_ss * m**2 + 2 * of_both * q * m), lines_qq, final_qq),
            (qq, qq, qq),
            remark=how,
        ),
        PrintedEquation(
            "App. F.1, factor of Sigma",
            "They are limits of delta_d grad^T V grad with delta_d = gamma / d.",
            (final_mm, final_mq, final_qq),
            (gamma * mm, gamma * mq, gamma * qq),
            correction="gamma times that.",
            corrected=(gamma * final_mm, gamma * final_mq, gamma * final_qq),
        ),
    )
