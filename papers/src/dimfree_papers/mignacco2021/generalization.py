"""Appendices B and C: the generalization error, and starts without the sphere."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.integrate

from dimfree import Claim

from .conventions import BATCH_FRACTION, mean_squared_error
from .ridges import start_of_ridge, unscaled

_POINTS = ((1.0, 0.3), (1.7, 0.9), (0.4, 0.0))  # q and m, at q0 = 1 and at q0 = 1.3


def claims() -> tuple[Claim, ...]:
    return (*_mean_squared_error(), *_ridge())


def by_quadrature(q: float, m: float, q0: float) -> float:
    """The mean of (|x| - |z|)^2, by the angle of two Gaussians, which has kinks where one of them vanishes."""
    lower = np.linalg.cholesky(np.array([[q0, m], [m, q]]))

    def integrand(angle):
        x, z = lower @ np.array([np.cos(angle), np.sin(angle)])
        return 2 * (abs(x) - abs(z)) ** 2 / np.pi  # the squared radius has the mean 2; half of the circle

    kink = np.arctan2(-lower[1, 0], lower[1, 1]) % np.pi
    return float(scipy.integrate.quad(integrand, 0, np.pi, points=[kink, np.pi / 2], epsabs=1e-13)[0])


def _mean_squared_error() -> tuple[Claim, ...]:
    cases = [(q, m, q0) for q, m in _POINTS for q0 in (1.0, 1.3)]
    printed = [mean_squared_error(q, m, q0) for q, m, q0 in cases]
    negative = [(q, -m, q0) for q, m, q0 in cases if m > 0]
    overlaps = np.linspace(0.05, 0.95, 10)
    slopes = [(by_quadrature(1, m + 1e-3, 1) - by_quadrature(1, m - 1e-3, 1)) / 2e-3 for m in overlaps]
    return (
        Claim(
            "eqs. (B.5)-(B.8), m not negative",
            "The mean squared error in terms of q, q_0 and m.",
            printed,
            [by_quadrature(*case) for case in cases],
            1e-8,
            remark="In (B.5) the mean of x is m z / q; printed with y for z.",
        ),
        Claim(
            "eq. (B.8), m negative",
            "The same with the signal at the other sign: both terms are even in m.",
            [mean_squared_error(*case) for case in negative],
            [by_quadrature(*case) for case in negative],
            1e-8,
        ),
        Claim(
            "after eq. (B.8)",
            "On the sphere the error decreases with m: 1 where its derivative is negative, m from 0.05 to 0.95.",
            np.ones(len(overlaps)),
            [float(slope < 0) for slope in slopes],
            0.0,
            remark="A function of |m|: for negative m it increases.",
        ),
    )


def _ridge() -> tuple[Claim, ...]:
    start = start_of_ridge()
    return (
        Claim(
            "eq. (C.2)",
            "A standard normal vector beside 0.2 of the signal: the gap orthogonal to it has variance 1.",
            1.0,
            float(start.Q[0, 0] - start.M[0, 0] ** 2),
            1e-12,
        ),
        *_rescaling(),
    )


def _rescaling() -> tuple[Claim, ...]:
    """One step on weights, by hand and by the library, with the factor of the gradients and without."""
    draws = np.random.default_rng(0)
    d, rate, ridge, fraction = 40, 0.01, 0.5, BATCH_FRACTION
    x, signal, weights = draws.normal(size=(3 * d, d)), draws.normal(size=d), draws.normal(size=d)
    selected = draws.random(3 * d) < fraction
    fields, teacher = x @ weights / d**0.5, x @ signal / d**0.5
    gradient = (selected * fields * (fields**2 - teacher**2)) @ x / d**0.5
    by_hand = weights - rate * (gradient + ridge * weights)
    algorithm = unscaled(rate, ridge)["SGD"]
    moved = algorithm.move(jnp.asarray(weights)[None], jnp.asarray(gradient)[None] / fraction, 0.0, jax.random.key(0))
    other = weights - fraction * rate * (gradient / fraction + ridge * weights)
    return (
        Claim(
            "appendix C.1, rescaling",
            "With a ridge, gradients that are not rescaled are not another learning rate alone, but another ridge "
            "too: a step at rate l eta and ridge lambda / l, against the step by hand.",
            by_hand,
            np.asarray(moved)[0],
            1e-12,
            remark=f"With the rate alone it is off by {np.abs(other - by_hand).max():.1e}.",
        ),
    )
