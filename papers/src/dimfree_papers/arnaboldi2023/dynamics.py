"""Statements on the process and its ODE: eqs. (6)-(15), (29)-(38)."""

import jax
import jax.numpy as jnp
import numpy as np

from dimfree import Claim, GaussHermite, OnlineSGD, PhaseRetrieval, State, random_state

from ..comparing import EXACT, average, flat
from .checks import first_order_rates, free_limit, random_overlaps, rates, sphere_limit

P, RATE, NOISE, RHO = 2, 0.3, 0.4, 1.3
READOUT = np.array([1.2, 0.7])


def claims() -> tuple[Claim, ...]:
    return (*_one_step(), *_averages(), *_closed_forms(), *_sphere(), *_starts())


def _one_step() -> tuple[Claim, ...]:
    """One step of SGD on vectors of dimension 12, against what is printed of it."""
    d = 12
    draws = np.random.default_rng(0)
    W, signal, x, z = draws.normal(size=(P, d)), draws.normal(size=d), draws.normal(size=d), 0.7
    signal *= d**0.5 / np.linalg.norm(signal)
    a = READOUT
    problem = PhaseRetrieval(width=P, noise=NOISE, readout=a)
    sgd = OnlineSGD(RATE, readout_rate=RATE)
    student, teacher = W @ x / d**0.5, signal[None] @ x / d**0.5
    slopes, readout_gradient = problem.gradients(*map(jnp.asarray, (student, teacher, z, a)))
    gradient = jnp.outer(slopes, jnp.asarray(x)) / d**0.5
    weights = {"students": jnp.asarray(W)}
    moved, a_after = sgd.step_vectors(weights, jnp.asarray(a), gradient, readout_gradient, jnp.zeros(()))
    W_after, a_after = np.asarray(moved["students"]), np.asarray(a_after)

    f = np.mean(a * student**2)
    error = teacher[0] ** 2 + NOISE**0.5 * z - f  # y - f
    unit = RATE / (P * d)
    printed_a = unit * error * student**2
    printed_m = 2 * unit * error * a * student * teacher[0]
    products = np.outer(student, student)
    printed_Q = 2 * unit * error * np.add.outer(a, a) * products
    printed_Q = printed_Q + 4 * RATE / P * unit * error**2 * (x @ x / d) * np.outer(a, a) * products
    ours = flat(a_after - a, (W_after - W) @ signal / d, (W_after @ W_after.T - W @ W.T) / d)

    # (29)-(32): with the other sign of the error, f - y, and its noise.
    minus = -error
    gradient_a, gradient_W = minus * student**2 / P, 2 * minus * (a * student)[:, None] * (x / d**0.5) / P
    printed_after = flat(a - RATE / d * gradient_a, W - RATE * gradient_W)

    def loss(weights, readout):
        fields = weights @ jnp.asarray(x) / d**0.5
        return problem.loss(fields, jnp.asarray(teacher), jnp.asarray(z), readout)

    value, (true_W, true_a) = jax.value_and_grad(loss, argnums=(0, 1))(jnp.asarray(W), jnp.asarray(a))
    norm = np.sum(np.asarray(true_W) ** 2, axis=1)
    length = x @ x / d
    return (
        Claim(
            "eqs. (7)-(9)",
            "What one step adds to readout, M and Q, exactly, with the error y - f.",
            flat(printed_a, printed_m, printed_Q),
            ours,
            EXACT,
            remark="Against one step on vectors, d = 12. They need the error y - f; eq. (10) has the other sign.",
        ),
        Claim(
            "eq. (10)",
            "The displacement is f - lambda_* + sqrt(noise) z.",
            f - teacher[0] + NOISE**0.5 * z,
            -float(true_a[0]) * P / student[0] ** 2,
            EXACT,
            correction="lambda_*^2 + sqrt(noise) z - f: the square is missing, and (7)-(9) need y - f.",
            corrected=error,
        ),
        Claim(
            "eqs. (29)-(32)",
            "Loss, its gradients and the update, with the error f - y.",
            flat(0.5 * minus**2, gradient_a, gradient_W, printed_after),
            flat(value, true_a, true_W, a_after, W_after),
            EXACT,
            remark="The sign of the noise is that of f - y here; it does not matter in law.",
        ),
        Claim(
            "App. A.1, rate of the second layer",
            "The second layer has the learning rate gamma / p.",
            a - RATE / P * gradient_a,
            a_after,
            EXACT,
            correction="gamma / d, as in eq. (32).",
            corrected=a - RATE / d * gradient_a,
        ),
        Claim(
            "App. B.1, norm of the gradient",
            "|grad_j|^2 = 2 E^2 lambda_j |x|^2 / p^2 for a readout of ones.",
            2 * error**2 * student / P**2 * length * a**2,
            norm,
            EXACT,
            correction="4 E^2 lambda_j^2 |x|^2 / p^2.",
            corrected=4 * error**2 * student**2 / P**2 * length * a**2,
        ),
    )


def _averages() -> tuple[Claim, ...]:
    """Expectations over the fields, against quadrature and the library's drift."""
    limit = free_limit(P, RATE, NOISE, trained=True)
    overlaps = random_overlaps(P, seed=1)
    a = READOUT
    state = State(Q=overlaps.Q, M=overlaps.M, P=overlaps.P, readout=a)
    Omega = np.asarray(state.covariance)
    drift = rates(limit, state)
    ours = flat(drift.readout, drift.M, drift.Q)
    d = 1_000

    def process(fields, z):
        """Eqs. (7)-(9) without the factor gamma / (p d), at |x| = 1."""
        student, teacher = fields[:P], fields[P]
        error = teacher**2 + NOISE**0.5 * z - np.mean(a[:, None] * student**2, axis=0)
        products = student[:, None] * student[None, :]
        of_a = error * student**2
        of_m = 2 * error * a[:, None] * student * teacher
        of_Q = 2 * error * np.add.outer(a, a)[..., None] * products
        of_Q = of_Q + 4 * RATE / P * error**2 * np.outer(a, a)[..., None] * products
        return np.concatenate([of_a, of_m, of_Q.reshape(P * P, -1)])

    mean = average(process, Omega)
    factor = np.ones_like(mean)
    factor[P:] = RATE / (P * d)

    # Appendix A.2, where the error is f - y.
    students, star = range(P), P

    def E4(i, j, k):
        return Omega[i, j] * Omega[k, k] + 2 * Omega[i, k] * Omega[j, k]

    def E6(i, j, k, l):
        O = Omega
        return (
            O[i, j] * O[k, k] * O[l, l] + 2 * O[i, j] * O[k, l] ** 2 + 2 * O[i, k] * O[j, k] * O[l, l]
            + 4 * O[i, k] * O[j, l] * O[k, l] + 4 * O[i, l] * O[j, k] * O[k, l] + 2 * O[i, l] * O[j, l] * O[k, k]
        )  # fmt: skip

    def network(i, j):
        return sum(a[s] * E4(i, j, s) for s in students) / P

    of_a = np.array([network(j, j) - E4(j, j, star) for j in students])
    of_m = np.array([2 * a[j] * network(j, star) - 2 * E4(j, star, star) for j in students])
    of_m_right = np.array([2 * a[j] * (network(j, star) - E4(j, star, star)) for j in students])
    gradient = np.array([[2 * (a[j] + a[l]) * (network(j, l) - E4(j, l, star)) for l in students] for j in students])
    square = np.array(
        [
            [
                a[j] * a[l] * (
                    E6(j, l, star, star)
                    - 2 / P * sum(a[s] * E6(j, l, star, s) for s in students)
                    + sum(a[s] * a[t] * E6(j, l, s, t) + NOISE * Omega[j, l] for s in students for t in students) / P**2
                )
                for l in students
            ]
            for j in students
        ]
    )  # fmt: skip
    first = first_order_rates(limit, state)
    squared_error = E4(star, star, star) + sum(
        a[j] * a[l] * E4(j, j, l) / P**2 for j in students for l in students
    ) - 2 / P * sum(a[j] * E4(j, j, star) for j in students)  # fmt: skip
    moments = [E4(0, 1, 2), E4(0, 0, 1), E6(0, 1, 2, 2), E6(0, 2, 1, 2), E6(0, 0, 1, 2), E6(0, 1, 0, 2)]
    quadrature = average(
        lambda u, z: u[0] * u[1] * np.stack([
            u[2] ** 2, u[0] * u[1], u[2] ** 4, u[1] * u[2] ** 3, u[0] * u[1] * u[2] ** 2, u[0] ** 2 * u[2] ** 2,
        ]),
        Omega,
    )  # fmt: skip
    return (
        Claim(
            "eq. (11)",
            "The drifts of M and Q are the means of the increments (8) and (9), that of the readout E[E lambda_j^2].",
            mean * factor,
            ours,
            EXACT,
            correction="The increments without their factor gamma / (p d), which is the step of the clock.",
            corrected=mean,
            remark="Quadrature of the printed increments with the error y - f; the factor at d = 1000.",
        ),
        Claim("App. A.2, moments", "The list of Gaussian moments of order four and six.", moments, quadrature, EXACT),
        Claim(
            "App. A.2, E[E^2]",
            "The mean square of the error, without the noise.",
            squared_error,
            2 * float(limit.problem.risk(state)),
            EXACT,
            correction="+ noise (and the mean of lambda_*^4).",
            corrected=squared_error + NOISE,
        ),
        Claim("App. A.2, readout", "E[E lambda_j^2] with the error f - y.", -of_a, ours[:P], EXACT),
        Claim(
            "App. A.2, M",
            "2 a_j E[E lambda_j lambda_*] = (2/p) sum_l a_j a_l E[..] - 2 E[lambda_*^2 lambda_j lambda_*].",
            -of_m,
            np.asarray(drift.M)[:, 0],
            EXACT,
            correction="- 2 a_j E[lambda_*^2 lambda_j lambda_*].",
            corrected=-of_m_right,
        ),
        Claim(
            "App. A.2, Q to first order",
            "2 (a_j + a_l) E[E lambda_j lambda_l]; the left-hand side is printed with lambda_* for lambda_l.",
            -gradient,
            first.Q,
            EXACT,
        ),
        Claim(
            "App. A.2, Q to second order",
            "The mean of 4 (gamma/p) E^2 a_j a_l lambda_j lambda_l is 16 (gamma/p) a_j a_l [...].",
            16 * RATE / P * square,
            np.asarray(drift.Q - first.Q),
            EXACT,
            correction="4 (gamma/p) a_j a_l [...].",
            corrected=4 * RATE / P * square,
        ),
    )


def _closed_forms() -> tuple[Claim, ...]:
    """Risk and ODE in closed form."""
    overlaps = random_overlaps(P, seed=1)
    a = READOUT
    state = State(Q=overlaps.Q, M=overlaps.M, P=overlaps.P, readout=a)
    Q, m = np.asarray(state.Q), np.asarray(state.M)[:, 0]
    norms = np.diagonal(Q)
    risk = (NOISE + 3) / 2 - np.mean(a * (norms + 2 * m**2))
    risk += np.sum(np.outer(a, a) * (np.outer(norms, norms) + 2 * Q**2)) / (2 * P**2)
    problem = PhaseRetrieval(width=P, noise=NOISE)

    # A readout of ones, and a teacher of any norm.
    limit = free_limit(P, RATE, NOISE)
    stretched = random_overlaps(P, seed=2, rho=RHO)
    Q, m = np.asarray(stretched.Q), np.asarray(stretched.M)[:, 0]
    mm, trace, trace2 = np.outer(m, m), np.trace(Q), np.trace(Q @ Q)
    of_m = 2 * (RHO - trace / P) * m + 4 * (RHO * m - Q @ m / P)
    of_Q = 4 * (RHO - trace / P) * Q + 8 * (mm - Q @ Q / P)
    of_Q = of_Q + 4 * RATE / P * (
        3 * RHO**2 * Q + 12 * RHO * mm
        + ((trace**2 + 2 * trace2) * Q + 4 * trace * Q @ Q + 8 * Q @ Q @ Q) / P**2
        - 2 / P * ((RHO * trace + 2 * m @ m) * Q + 2 * trace * mm + 2 * RHO * Q @ Q + 4 * (mm @ Q + Q @ mm))
        + NOISE * Q
    )  # fmt: skip
    drift = rates(limit, stretched)
    rest = NOISE / 2 - (RHO * trace + 2 * m @ m) / P + (trace**2 + 2 * trace2) / (2 * P**2)
    return (
        Claim(
            "eq. (6)",
            "The population risk, any readout.",
            risk,
            float(problem.risk(state, GaussHermite(5))),
            EXACT,
            remark="Quadrature of the loss.",
        ),
        Claim(
            "eqs. (33a), (33b)",
            "The ODE for a readout of ones and a teacher of any norm.",
            flat(of_m, of_Q),
            flat(drift.M, drift.Q),
            EXACT,
            remark="With k = 1 where (33b) divides by k: for more teachers it is more than a division.",
        ),
        Claim(
            "eq. (34)",
            "The risk for a readout of ones begins with (3 + noise) / 2.",
            1.5 + rest,
            float(problem.risk(stretched, GaussHermite(5))),
            EXACT,
            correction="(3 rho^2 + noise) / 2.",
            corrected=1.5 * RHO**2 + rest,
            remark="At rho = 1.3; at rho = 1 it is right.",
        ),
    )


def _sphere() -> tuple[Claim, ...]:
    """The constraint of unit norms."""
    p = 3
    state = random_overlaps(p, seed=3, sphere=True)
    free = rates(free_limit(p, RATE, NOISE), state)
    limit = sphere_limit(p, RATE, NOISE)
    constrained = rates(limit, state)
    Psi, Phi = np.asarray(free.M)[:, 0], np.asarray(free.Q)
    Q, m, own = np.asarray(state.Q), np.asarray(state.M)[:, 0], np.diagonal(Phi)
    printed = flat(Psi - m / 2 * own, Phi - Q / 2 * np.add.outer(own, own))

    # One sample, to leading order in 1/d.
    u = np.linalg.cholesky(np.asarray(state.covariance)) @ np.random.default_rng(4).normal(size=p + 1)
    z, student, teacher = 0.3, u[:p], u[p]
    error = teacher**2 + NOISE**0.5 * z - np.mean(student**2)
    problem, sgd = PhaseRetrieval(width=p, noise=NOISE), limit.algorithm
    moments = problem.sample_moments(jnp.asarray(student), jnp.asarray([teacher]), jnp.asarray(z), jnp.ones(p))
    increment = sgd.increment(problem.completed(state), moments, jnp.zeros(()))
    g = RATE / p
    return (
        Claim(
            "eqs. (15), (37), (38)",
            "On the sphere the drift of M_j loses M_j Phi_jj / 2, that of Q_jl loses Q_jl (Phi_jj + Phi_ll) / 2.",
            printed,
            flat(constrained.M, constrained.Q),
            EXACT,
            remark="The library differentiates the projected step; Psi and Phi are its drifts without the constraint.",
        ),
        Claim(
            "eq. (36)",
            "What one step adds to M_j on the sphere, to leading order.",
            g * error * student * teacher - m / 2 * (2 * g * error * student**2 + g**2 * error * student**2),
            np.asarray(increment.M)[:, 0],
            EXACT,
            correction="2 (gamma/p) E lambda_j lambda_* - M_j/2 (4 (gamma/p) E lambda_j^2 + 4 (gamma/p)^2 E^2 "
            "lambda_j^2), times 1/d, as in the display that follows.",
            corrected=2 * g * error * student * teacher
            - m / 2 * (4 * g * error * student**2 + 4 * g**2 * error**2 * student**2),
        ),
    )


def _starts() -> tuple[Claim, ...]:
    """Random initial conditions."""
    d, p, number = 400, 3, 4_000
    problem = PhaseRetrieval(width=p)
    states = jax.vmap(lambda key: random_state(problem, d, key=key))(jax.random.split(jax.random.key(5), number))
    m, Q = np.asarray(states.M)[..., 0], np.asarray(states.Q)
    pairs = Q[:, *np.triu_indices(p, 1)]
    ours = np.array([d * np.mean(m**2), d * np.mean(pairs**2), np.mean(np.diagonal(Q, axis1=1, axis2=2))])
    return (
        Claim(
            "eqs. (13), (24), (50), (95), (96)",
            "At a random start M_j and Q_jl have variance 1/d, and Q_jj is one: E mu_0 = p, E tau_0 = p (p - 1).",
            [1.0, 1.0, 1.0],
            ours,
            4 * (2 / (p * number)) ** 0.5,
            remark="Four standard errors of 4000 random states at d = 400.",
        ),
        Claim(
            "App. D, law of the start",
            "A random start has M ~ N(0, 1/sqrt(d)).",
            d**-0.5 * d,
            ours[0],
            4 * (2 / (p * number)) ** 0.5,
            correction="The variance is 1/d; 1/sqrt(d) is the standard deviation.",
            corrected=1.0,
            remark="Variances in units of 1/d.",
        ),
    )
