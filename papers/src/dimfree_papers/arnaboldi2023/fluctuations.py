"""Statements on the stochastic correction: eqs. (25)-(27), (39)-(41), (60)-(64) and appendix F."""

import jax
import jax.numpy as jnp
import numpy as np

from dimfree import Claim, State, sde

from ..comparing import EXACT, average
from .checks import covariances, first_order_rates, free_limit, random_overlaps, rates, sphere_limit
from .printed_polynomials import diffusion, gradient_covariance, increment_covariances
from .weights import loss_of, risk_of

RATE, NOISE, D = 0.07, 0.3, 1_000
M = 0.45  # an overlap far from any special point


def claims() -> tuple[Claim, ...]:
    return (*_one_student(), *_two_students(), *_gradient_noise(), *_zoom())


def _process(p: int):
    """The printed increments (8), (9) over their step gamma / (p d), for a readout of ones and |x| = 1."""

    def increments(fields, z):
        student, teacher = fields[:p], fields[p]
        error = teacher**2 + NOISE**0.5 * z - np.mean(student**2, axis=0)
        of_m = 2 * error * student * teacher
        pairs = [student[j] * student[l] for j in range(p) for l in range(j, p)]
        return np.stack([*(4 * (error + RATE / p * error**2) * pair for pair in pairs), *of_m])

    return increments


def _covariance(function, covariance: np.ndarray) -> np.ndarray:
    """Of the values of a function of fields and noise, by quadrature."""

    def first_and_second(fields, z):
        values = function(fields, z)
        return np.concatenate([values, (values[:, None] * values).reshape(-1, values.shape[-1])])

    size = len(function(np.zeros((len(covariance), 1)), np.zeros(1)))
    moments = average(first_and_second, covariance)
    return moments[size:].reshape(size, size) - np.outer(moments[:size], moments[:size])


def _one_student() -> tuple[Claim, ...]:
    state = State(Q=[[1.0]], M=[[M]])
    free = free_limit(1, RATE, NOISE)
    sphere = sphere_limit(1, RATE, NOISE)
    quadrature = _covariance(_process(1), np.asarray(state.covariance))  # Q first, then M
    ours = covariances(free, state)
    # The library's diffusion per unit of alpha, as one per unit of the source's time.
    diffusion = np.asarray(sde(free.problem, free.algorithm, d=D).covariance(0.0, state)) / RATE
    on_sphere = np.asarray(sde(sphere.problem, sphere.algorithm, d=D).covariance(0.0, state)) / RATE
    projection = np.array([-M / 2, 1.0])
    free_drift, sphere_drift = rates(free, state), rates(sphere, state)
    drift = float(free_drift.M[0, 0] - M / 2 * free_drift.Q[0, 0])

    # One step on vectors, for (40).
    d = 12
    draws = np.random.default_rng(7)
    w, signal, x, z = *draws.normal(size=(3, d)), 0.4
    gradient = np.asarray(jax.grad(loss_of)(*(jnp.asarray(v) for v in (w, signal, x / d**0.5)), NOISE, z))
    after = w - RATE * gradient
    step = [(-2 * RATE * w @ gradient + RATE**2 * gradient @ gradient) / d, -RATE * signal @ gradient / d]

    gained = RATE * quadrature  # in a unit of time, times d
    printed62, true62 = (np.array(increment_covariances(M, NOISE, rate)) for rate in (RATE, 2 * RATE))
    return (
        Claim(
            "eqs. (25), (26), (39)",
            "The covariance of (Q, M) gained in unit time is gamma / d times that of their increments.",
            gained,
            diffusion * D,
            EXACT,
            remark="Quadrature of the printed increments against the library's diffusion, both times d.",
        ),
        Claim(
            "eqs. (27), (41)",
            "On the sphere: drift Psi - m Phi / 2, noise sigma_m - m sigma_Q / 2.",
            [drift, float(projection @ gained @ projection)],
            [float(sphere_drift.M[0, 0]), on_sphere[0, 0] * D],
            EXACT,
            remark="The left-hand side of (27) is dm, as in (41), not dm/dt.",
        ),
        Claim(
            "eq. (40)",
            "What one step without constraint adds to q and m.",
            step,
            [(after @ after - w @ w) / d, (after - w) @ signal / d],
            EXACT,
        ),
        Claim(
            "App. B.2, after eq. (40)",
            "dq^2 = (gamma/d) sigma_m^2 dt.",
            quadrature[1, 1],
            ours[0, 0],
            EXACT,
            correction="(gamma/d) sigma_Q^2 dt.",
            corrected=quadrature[0, 0],
        ),
        Claim(
            "eq. (62)",
            "Variances of Q and M and their covariance in closed form, p = 1.",
            printed62,
            ours[[0, 0, 1], [0, 1, 1]],
            EXACT,
            correction="2 gamma for gamma in Var Q and in the covariance: the increment of Q has 4 gamma E^2 lambda^2.",
            corrected=true62,
        ),
        Claim(
            "eq. (62), Var M",
            "The variance of the increment of M alone.",
            printed62[2],
            ours[1, 1],
            EXACT,
        ),
    )


def _two_students() -> tuple[Claim, ...]:
    state = random_overlaps(2, seed=8)
    limit = free_limit(2, RATE, NOISE)
    diffusion = np.asarray(sde(limit.problem, limit.algorithm, d=D).covariance(0.0, state)) * 2 / RATE
    return (
        Claim(
            "eqs. (60), (61)",
            "The same for any width, with gamma / (p d); here p = 2.",
            RATE / 2 * _covariance(_process(2), np.asarray(state.covariance)),
            diffusion * D,
            EXACT,
            remark="Both times d.",
        ),
    )


# Appendix F, where x ~ N(0, I), q = |w|^2, m = w.w_*, rho = |w_*|^2.


def _gradient_noise() -> tuple[Claim, ...]:
    d = 4
    draws = np.random.default_rng(9)
    w, signal = jnp.asarray(0.6 * draws.normal(size=(2, d)))
    wv, sv = np.asarray(w), np.asarray(signal)
    q, m, rho = float(wv @ wv), float(wv @ sv), float(sv @ sv)
    x, z = jnp.asarray(draws.normal(size=d)), 0.9
    field, star, root = float(w @ x), float(signal @ x), NOISE**0.5 * z
    xv = np.asarray(x)
    gradient_of_risk = np.asarray(jax.grad(risk_of)(w, signal, NOISE))
    gradient = jax.jit(jax.vmap(jax.grad(loss_of), in_axes=(None, None, 1, None, 0), out_axes=1))
    V = _covariance(lambda u, z: np.asarray(gradient(w, signal, u, NOISE, z)), np.eye(d))
    ww, ss, both = np.outer(wv, wv), np.outer(sv, sv), np.outer(wv, sv) + np.outer(sv, wv)
    identity, of_ww, of_ss, of_both = gradient_covariance(q, m, rho, NOISE)
    printed_V = 4 * (identity * np.eye(d) + of_ww * ww + of_ss * ss + of_both * both)

    limit = free_limit(1, RATE, NOISE)
    state = State(Q=[[q]], M=[[m]], P=[[rho]])
    drift, first = rates(limit, state), first_order_rates(limit, state)
    second = float(drift.Q[0, 0] - first.Q[0, 0])
    rest = 1.5 * q**2 - rho * q - 2 * m**2
    loss = float(loss_of(w, signal, x, NOISE, z))
    without_x = 2 * field**3 * xv - 2 * field * root - 2 * star**2 * field * xv
    radius = rho**0.5
    return (
        Claim(
            "App. F, L",
            "The loss of a sample, with noise sqrt(noise) d xi.",
            0.5 * (star**2 - field**2 + root * d) ** 2,
            loss,
            EXACT,
            correction="sqrt(noise) xi, as in the line below it.",
            corrected=0.5 * (star**2 - field**2 + root) ** 2,
        ),
        Claim(
            "App. F, Phi(w)",
            "Its mean contains (3/2) noise.",
            1.5 * rho**2 + 1.5 * NOISE + rest,
            float(risk_of(w, signal, NOISE)),
            EXACT,
            correction="noise / 2, as in the next display.",
            corrected=1.5 * rho**2 + NOISE / 2 + rest,
        ),
        Claim(
            "App. F, rho",
            "Phi(m, q) = (3 rho^2 + noise)/2 + (3/2) q^2 - rho q - 2 m^2 with rho = |w_*|.",
            (3 * radius**2 + NOISE) / 2 + 1.5 * q**2 - radius * q - 2 * m**2,
            float(risk_of(w, signal, NOISE)),
            EXACT,
            correction="rho = |w_*|^2.",
            corrected=(3 * rho**2 + NOISE) / 2 + rest,
        ),
        Claim(
            "App. F, grad L",
            "2 (w.x)^3 x - 2 (w.x) sqrt(noise) xi - 2 (w_*.x)^2 (w.x) x.",
            without_x,
            jax.grad(loss_of)(w, signal, x, NOISE, z),
            EXACT,
            correction="The term with the noise lacks its x.",
            corrected=2 * field**3 * xv - 2 * field * root * xv - 2 * star**2 * field * xv,
        ),
        Claim(
            "App. F, grad Phi",
            "6 q w - 2 rho w - 4 m w_*.",
            (6 * q - 2 * rho) * wv - 4 * m * sv,
            gradient_of_risk,
            EXACT,
        ),
        Claim(
            "eq. (63)",
            "The covariance V of the gradient of a sample.",
            printed_V,
            V,
            EXACT,
            remark="Quadrature over x in four dimensions, gradients by automatic differentiation.",
        ),
        Claim(
            "App. F, f and g",
            "f_m = 6 m (q - rho), f_q = 12 q^2 - 4 rho q - 8 m^2, g_m = 0, g_q = 4 gamma (...).",
            [6 * m * (q - rho), 12 * q**2 - 4 * rho * q - 8 * m**2, 0.0, 4 * RATE * identity],
            [-float(first.M[0, 0]), -float(first.Q[0, 0]), float(drift.M[0, 0] - first.M[0, 0]), second],
            EXACT,
        ),
        Claim(
            "eq. (64)",
            "The ODE for p = 1 without constraint.",
            [6 * m * (rho - q), 4 * (2 * m**2 + rho * q - 3 * q**2 + RATE * identity)],
            [float(drift.M[0, 0]), float(drift.Q[0, 0])],
            EXACT,
        ),
    )


def _zoom() -> tuple[Claim, ...]:
    """Appendix F.1: the diffusion of overlaps, from the gradient noise alone."""
    q, m, rho, noise = 0.8, M, 1.3, NOISE
    state = State(Q=[[q]], M=[[m]], P=[[rho]])
    printed = np.array(diffusion(q, m, rho, noise))
    # The covariance of the increments is a polynomial of degree two in the learning rate: its value at zero.
    values = [covariances(free_limit(1, rate, noise), state) for rate in (0.1, 0.2, 0.3)]
    at_zero = (3 * values[0] - 3 * values[1] + values[2])[[0, 0, 1], [0, 1, 1]]
    unit = covariances(free_limit(1, 1e-9, noise), State(Q=[[1.0]], M=[[m]]))
    return (
        Claim(
            "App. F.1, Sigma",
            "Sigma_qq, Sigma_mq and Sigma_mm in closed form.",
            printed,
            at_zero,
            EXACT,
            remark="The library's covariance of the increments over their step, at learning rate zero.",
        ),
        Claim(
            "App. F.1, factor of Sigma",
            "They are the limits of delta_d grad^T V grad with delta_d = gamma / d.",
            printed,
            RATE * at_zero,
            EXACT,
            correction="gamma times that.",
            corrected=RATE * printed,
        ),
        Claim(
            "App. F.1, (62) at gamma = 0",
            "At q = rho = 1 they are the covariance of the increments for vanishing learning rate.",
            np.array(diffusion(1.0, m, 1.0, noise)),
            unit[[0, 0, 1], [0, 1, 1]],
            1e-6,
            remark="At learning rate 1e-9.",
        ),
    )
