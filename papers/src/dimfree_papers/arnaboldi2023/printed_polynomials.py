"""The longest formulas as printed, for numbers and for symbols alike; one student."""

from typing import Any


def increment_covariances(m: Any, noise: Any, rate: Any) -> tuple[Any, Any, Any]:
    """Eq. (62), q = rho = 1: Var Q, Cov and Var M of the increments over their step."""
    var_Q = (
        576 * rate**2 * noise * m**4 - 2496 * rate**2 * noise * m**2 - 11520 * rate**2 * m**6
        + 54144 * rate**2 * m**4 - 73728 * rate**2 * m**2 + 544 * rate * noise * m**2 - 11136 * rate * m**4
        + 22272 * rate * m**2 + 320 * m**4 - 1600 * m**2 + 32 * rate**2 * noise**2 + 1920 * rate**2 * noise
        + 31104 * rate**2 - 544 * rate * noise - 11136 * rate + 48 * noise + 1280
    )  # fmt: skip
    both = (
        72 * rate * noise * m**3 - 72 * rate * noise * m - 1440 * rate * m**5 + 2880 * rate * m**3 - 1440 * rate * m
        + 24 * noise * m - 480 * m**3 + 480 * m
    )  # fmt: skip
    return var_Q, both, 8 * noise * m**2 - 192 * m**4 + 144 * m**2 + 4 * noise + 48


def gradient_covariance(q: Any, m: Any, rho: Any, noise: Any) -> tuple[Any, Any, Any, Any]:
    r"""Eq. (63), without its factor 4: coefficients of I, $w w^\top$, $w_* w_*^\top$, $w w_*^\top + w_* w^\top$."""
    return (
        15 * q**3 + noise * q + 3 * rho**2 * q + 12 * rho * m**2 - 6 * q**2 * rho - 24 * q * m**2,
        90 * q**2 + 2 * noise + 6 * rho**2 - 24 * rho * q - 48 * m**2 - 9 * q**2 + 6 * rho * q - rho**2,
        12 * rho * q + 24 * m**2 - 12 * q**2 - 4 * m**2,
        24 * rho * m - 48 * q * m + 6 * q * m - 2 * rho * m,
    )


def diffusion(q: Any, m: Any, rho: Any, noise: Any) -> tuple[Any, Any, Any]:
    """The last lines of appendix F.1: Sigma_qq, Sigma_mq and Sigma_mm."""
    return (
        1536 * q**4 + 48 * noise * q**2 + 128 * rho**2 * q**2 + 1088 * rho * m**2 * q - 384 * rho * q**3
        - 2688 * q**2 * m**2 + 320 * m**4,
        768 * m * q**3 + 24 * noise * m * q + 336 * rho**2 * m * q + 432 * rho * m**3 - 624 * rho * m * q**2
        - 912 * m**3 * q,
        60 * rho * q**3 + 4 * noise * rho * q + 60 * rho**3 * q + 324 * rho**2 * m**2 - 72 * rho**2 * q**2
        - 504 * rho * q * m**2 + 8 * noise * m**2 - 192 * m**4 + 324 * m**2 * q**2,
    )  # fmt: skip
