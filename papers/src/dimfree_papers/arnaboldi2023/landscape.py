r"""Statements on the landscape: eqs. (16)-(18), (65)-(97).

Here, as in the source's appendix G, $x \sim N(0, I_d)$ and $q = |w|^2$, $m = w \cdot w_*$, $\rho = |w_*|^2$. What the
library finds is automatic differentiation of its risk and loss at weight vectors of dimension 6.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dimfree import Claim, State

from ..comparing import EXACT, average
from .checks import free_limit, rates
from .weights import loss_of, on_sphere, risk_of, tangent_basis, tangent_hessian

D, NOISE = 6, 0.4


def claims() -> tuple[Claim, ...]:
    return (*_samples(), *_averages(), *_critical_points(), *_unconstrained_flow(), *_sphere())


def _vectors(seed: int, norm: float | None = None) -> tuple[jax.Array, jax.Array, jax.Array, float]:
    """Student, signal, input and noise; student and signal of the same given norm, or of any."""
    draws = np.random.default_rng(seed)
    w, signal, x = draws.normal(size=(3, D)) * np.array([[0.5], [0.45], [1.0]])
    if norm is not None:
        w, signal = (norm * vector / np.linalg.norm(vector) for vector in (w, signal))
    return jnp.asarray(w), jnp.asarray(signal), jnp.asarray(x), 0.8


def _samples() -> tuple[Claim, ...]:
    w, signal, x, z = _vectors(0)
    xx, field, star = np.outer(x, x), float(w @ x), float(signal @ x)
    root = NOISE**0.5 * z
    error = star**2 + root - field**2
    gradient = jax.grad(loss_of)(w, signal, x, NOISE, z)
    hessian = jax.hessian(loss_of)(w, signal, x, NOISE, z)
    return (
        Claim(
            "eqs. (65)-(69)",
            "The loss of a sample and its gradient - 2 E lambda x.",
            np.append(-2 * error * field * np.asarray(x), 0.5 * error**2),
            np.append(gradient, loss_of(w, signal, x, NOISE, z)),
            EXACT,
        ),
        Claim(
            "eq. (70)",
            "The Hessian of a sample's loss: 2 (3 lambda^2 - lambda_*^2 + sqrt(noise) z) x x^T.",
            2 * (3 * field**2 - star**2 + root) * xx,
            hessian,
            EXACT,
            correction="- sqrt(noise) z; in law it is the same.",
            corrected=2 * (3 * field**2 - star**2 - root) * xx,
        ),
    )


def _averages() -> tuple[Claim, ...]:
    w, signal, _, _ = _vectors(1)
    q, m, rho = float(w @ w), float(w @ signal), float(signal @ signal)
    wv, sv = np.asarray(w), np.asarray(signal)
    ww, ss, one = np.outer(wv, wv), np.outer(sv, sv), np.eye(D)
    # Averages over x need its three components along w, w_* and one direction e orthogonal to both.
    e = np.linalg.svd(np.stack([wv, sv]))[2][-1]
    basis = np.stack([wv, sv, e])
    gram = basis @ basis.T

    def moments(u, z):
        return np.stack([factor * u[i] for factor in (u[1] ** 2 * u[0], u[1] ** 3) for i in range(3)])

    def forms(u, z):
        return np.stack([u[k] ** 2 * u[i] * u[j] for k in (1, 0) for i in range(3) for j in range(i, 3)])

    def in_basis(*matrices):
        return np.array([basis[i] @ matrix @ basis[j] for matrix in matrices for i in range(3) for j in range(i, 3)])

    gradient, hessian = jax.grad(risk_of)(w, signal, NOISE), jax.hessian(risk_of)(w, signal, NOISE)
    return (
        Claim(
            "eqs. (71), (72)",
            "The risk is noise/2 + 3 rho^2 + 3 q^2 - 4 m^2 - 2 rho q.",
            NOISE / 2 + 3 * rho**2 + 3 * q**2 - 4 * m**2 - 2 * rho * q,
            float(risk_of(w, signal, NOISE)),
            EXACT,
            correction="noise/2 + (3/2) rho^2 + (3/2) q^2 - 2 m^2 - rho q, as (34) has it.",
            corrected=NOISE / 2 + 1.5 * rho**2 + 1.5 * q**2 - 2 * m**2 - rho * q,
        ),
        Claim(
            "eq. (73)",
            "E[lambda_*^2 lambda x] = rho w + 2 m w_* and E[lambda_*^3 x] = 3 q w.",
            basis @ np.stack([rho * wv + 2 * m * sv, 3 * q * wv]).T,
            average(moments, gram, nodes=5).reshape(2, 3).T,
            EXACT,
            correction="E[lambda_*^3 x] = 3 rho w_*; what (74) needs is E[lambda^3 x] = 3 q w. And theta is w.",
            corrected=basis @ np.stack([rho * wv + 2 * m * sv, 3 * rho * sv]).T,
        ),
        Claim(
            "eq. (74)",
            "The gradient of the risk is - 2 ((rho - 3 q) w + 2 m w_*).",
            -2 * ((rho - 3 * q) * wv + 2 * m * sv),
            gradient,
            EXACT,
        ),
        Claim(
            "eq. (75)",
            "E[lambda_*^2 x x^T] = rho I + w_* w_*^T, E[lambda^2 x x^T] = q I + w w^T.",
            in_basis(rho * one + ss, q * one + ww),
            average(forms, gram, nodes=5),
            EXACT,
            correction="rho I + 2 w_* w_*^T, q I + 2 w w^T.",
            corrected=in_basis(rho * one + 2 * ss, q * one + 2 * ww),
        ),
        Claim(
            "eq. (76)",
            "The Hessian of the risk is 2 ((3 q - rho) I + 3 w w^T - w_* w_*^T).",
            2 * ((3 * q - rho) * one + 3 * ww - ss),
            hessian,
            EXACT,
            correction="2 ((3 q - rho) I + 6 w w^T - 2 w_* w_*^T).",
            corrected=2 * ((3 * q - rho) * one + 6 * ww - 2 * ss),
        ),
    )


def _critical_points() -> tuple[Claim, ...]:
    """Of the risk without constraint: zero, the orthogonal sphere, the signal."""
    _, signal, _, _ = _vectors(2)
    sv = np.asarray(signal)
    rho, ss, one = float(sv @ sv), np.outer(sv, sv), np.eye(D)
    hessian = jax.hessian(risk_of)
    across = np.linalg.svd(sv[None])[2][-1]
    saddle = across * (rho / 3) ** 0.5
    zero = jnp.zeros(D)
    gradients = [jax.grad(risk_of)(jnp.asarray(point), signal, NOISE) for point in (zero, saddle, sv, -sv)]
    at_zero = hessian(zero, signal, NOISE)
    return (
        Claim(
            "after eq. (76)",
            "w = 0, w orthogonal to w_* with q = rho/3, and w = +- w_* are critical points.",
            np.zeros((4, D)),
            gradients,
            EXACT,
        ),
        Claim(
            "eq. (77)",
            "The Hessian at w = 0 is - 2 (rho I + w_* w_*^T).",
            -2 * (rho * one + ss),
            at_zero,
            EXACT,
            correction="- 2 (rho I + 2 w_* w_*^T).",
            corrected=-2 * (rho * one + 2 * ss),
        ),
        Claim(
            "after eq. (77)",
            "Its eigenvalues are - 2 rho, d - 1 times, and - 2 (rho + 1).",
            np.sort(np.append(np.full(D - 1, -2 * rho), -2 * (rho + 1))),
            np.linalg.eigvalsh(at_zero),
            EXACT,
            correction="- 6 rho in place of - 2 (rho + 1).",
            corrected=np.sort(np.append(np.full(D - 1, -2 * rho), -6 * rho)),
        ),
        Claim(
            "eq. (78)",
            "The risk at w = 0 is noise/2 + 3 rho^2.",
            NOISE / 2 + 3 * rho**2,
            float(risk_of(zero, signal, NOISE)),
            EXACT,
            correction="noise/2 + (3/2) rho^2.",
            corrected=NOISE / 2 + 1.5 * rho**2,
        ),
        Claim(
            "eq. (79)",
            "The Hessian at the saddle is 2 (3 w w^T - w_* w_*^T).",
            2 * (3 * np.outer(saddle, saddle) - ss),
            hessian(jnp.asarray(saddle), signal, NOISE),
            EXACT,
            correction="Twice that: eigenvalues 4 rho, - 4 rho and 0, d - 2 times.",
            corrected=4 * (3 * np.outer(saddle, saddle) - ss),
        ),
        Claim(
            "eq. (80)",
            "The risk at the saddle is noise/2 + (10/3) rho^2.",
            NOISE / 2 + 10 / 3 * rho**2,
            float(risk_of(jnp.asarray(saddle), signal, NOISE)),
            EXACT,
            correction="noise/2 + (4/3) rho^2.",
            corrected=NOISE / 2 + 4 / 3 * rho**2,
        ),
        Claim(
            "eq. (81)",
            "The Hessian at the signal is 4 (rho I + w_* w_*^T).",
            4 * (rho * one + ss),
            hessian(signal, signal, NOISE),
            EXACT,
            correction="4 (rho I + 2 w_* w_*^T).",
            corrected=4 * (rho * one + 2 * ss),
        ),
        Claim(
            "eq. (82)",
            "The risk at the signal is noise/2.",
            [NOISE / 2, NOISE / 2],
            [float(risk_of(sign * signal, signal, NOISE)) for sign in (1, -1)],
            EXACT,
        ),
    )


def _unconstrained_flow() -> tuple[Claim, ...]:
    rate, rho, q, m = 0.07, 1.3, 0.8, 0.45
    drift = rates(free_limit(1, rate, 0.0), State(Q=[[q]], M=[[m]], P=[[rho]]))
    of_q = 4 * (q * (rho - 3 * q) + 2 * m**2)
    of_q += 12 * rate * (q * (rho**2 + 5 * q**2 - 2 * rho * q) + 4 * m**2 * (rho - 2 * q))
    w, signal = jnp.eye(D)[:2]
    return (
        Claim(
            "after eq. (83)",
            "At a random start, (m, q) = (0, 1), the gradient of the risk is 4 w.",
            4 * np.asarray(w),
            jax.grad(risk_of)(w, signal),
            EXACT,
        ),
        Claim(
            "eqs. (84), (85)",
            "The ODE for p = 1 without noise and without constraint.",
            [6 * m * (rho - q), of_q],
            [float(drift.M[0, 0]), float(drift.Q[0, 0])],
            EXACT,
        ),
    )


def _sphere() -> tuple[Claim, ...]:
    """On the sphere; derivatives along it are those of the risk made constant along rays."""
    w, signal, x, z = _vectors(3, norm=1.0)
    wv, sv, xv = np.asarray(w), np.asarray(signal), np.asarray(x)
    m, field, star = float(w @ signal), float(w @ x), float(signal @ x)
    error = star**2 + NOISE**0.5 * z - field**2
    P, one = np.eye(D) - np.outer(wv, wv), np.eye(D)
    basis = tangent_basis(w)

    def risk(v):
        return risk_of(v, signal, NOISE)

    def loss(v):
        return loss_of(v, signal, x, NOISE, z)

    def along(matrix):
        return basis.T @ matrix @ basis

    moments = average(lambda u, z: np.stack([u[1] ** 2 * u[0] ** 2, u[0] ** 4]), np.array([[1.0, m], [m, 1.0]]))
    gradient = jax.grad(on_sphere(risk))(w)
    hessian = tangent_hessian(risk, w)
    printed = 4 * (m**2 * one + m * np.outer(wv, sv) - np.outer(sv, sv))
    plateau = jnp.asarray(np.linalg.svd(sv[None])[2][-1])
    at_plateau, at_signal = tangent_hessian(risk, plateau), tangent_hessian(risk, signal)
    flat = float(np.sum(np.abs(np.linalg.eigvalsh(at_plateau)) < 1e-8))
    direct = 2 * (3 * field**2 - star**2 - NOISE**0.5 * z)
    random_directions = np.random.default_rng(6).normal(size=(2_000, D))
    random_directions /= np.linalg.norm(random_directions, axis=1, keepdims=True)
    highest = float(np.max(jax.vmap(risk)(jnp.asarray(np.vstack([random_directions, np.asarray(plateau)])))))
    return (
        Claim(
            "eqs. (86), (87)",
            "The gradient of a sample's loss on the sphere is - 2 E lambda (x - lambda w).",
            -2 * error * field * (xv - field * wv),
            jax.grad(on_sphere(loss))(w),
            EXACT,
        ),
        Claim(
            "eq. (88)",
            "The Hessian of a sample's loss on the sphere: (3 lambda^2 - lambda_*^2) (x x^T - lambda w x^T) + E "
            "lambda^2 I.",
            along((3 * field**2 - star**2) * (np.outer(xv, xv) - field * np.outer(wv, xv)) + error * field**2 * one),
            tangent_hessian(loss, w),
            EXACT,
            correction="2 (3 lambda^2 - lambda_*^2 - sqrt(noise) z) (P x)(P x)^T + 2 E lambda^2 P, P = I - w w^T.",
            corrected=along(direct * np.outer(P @ xv, P @ xv) + 2 * error * field**2 * P),
            remark="As a form on the tangent space, theta read as w.",
        ),
        Claim(
            "eqs. (16), (89)",
            "The risk on the sphere is 2 (1 - m^2) + noise/2.",
            2 * (1 - m**2) + NOISE / 2,
            float(risk(w)),
            EXACT,
        ),
        Claim("eq. (90)", "E[lambda_*^2 lambda^2] = 1 + 2 m^2, E[lambda^4] = 3.", [1 + 2 * m**2, 3], moments, EXACT),
        Claim(
            "eqs. (17), (91)",
            "The gradient on the sphere is 4 m (m w - w_*).",
            4 * m * (m * wv - sv),
            gradient,
            EXACT,
        ),
        Claim(
            "eqs. (18), (92)",
            "The Hessian on the sphere is 4 (m^2 I + m w w_*^T - w_* w_*^T).",
            along(printed),
            hessian,
            EXACT,
            remark="As a form on the tangent space. As a matrix it is not symmetric: 4 m^2 P - 4 (w_* - m w)"
            "(w_* - m w)^T is.",
        ),
        Claim(
            "eq. (93), after eq. (18)",
            "At m = 0 the Hessian has d - 1 eigenvalues 0 and one - 4.",
            [D - 1.0, -4.0],
            [flat, float(np.linalg.eigvalsh(at_plateau)[0])],
            EXACT,
            correction="0 with multiplicity d - 2: the tangent space has d - 1 directions.",
            corrected=[D - 2.0, -4.0],
        ),
        Claim(
            "after eq. (93)",
            "For p = 1, m = 0 is the global maximum of the risk on the sphere.",
            float(risk(plateau)),
            highest,
            EXACT,
            remark="The largest of 2000 random directions and one of the plateau.",
        ),
        Claim(
            "eq. (94)",
            "The Hessian at the signal is 4 I.",
            along(4 * one),
            at_signal,
            EXACT,
            remark="On the tangent space; the normal direction has no Hessian.",
        ),
    )
