"""Statements on SGD, its setting and its sufficient statistics: slides "Algorithm: SGD" to "Taking a closer look"."""

import jax
import jax.numpy as jnp
import numpy as np

from dimfree import Claim, OnlineSGD, State, gradient_flow, ode

from ..arnaboldi2023.checks import rates
from ..comparing import EXACT, average, flat
from .conventions import NODES, QUADRATURE, committee, g, random_weights, slope, state_of

P, K, D, RATE, NOISE = 2, 1, 12, 0.4, 0.3


def claims() -> tuple[Claim, ...]:
    """All of them, in the order of the slides."""
    return (*_population_gradient(), *_one_step(), *_overlaps(), *_increments())


def _weights_gradient(W: np.ndarray, teachers: np.ndarray) -> np.ndarray:
    """The gradient of the library's risk with respect to the weights."""
    problem, d = committee(P, K, NOISE), W.shape[1]

    def risk(weights):
        return problem.risk(State(weights @ weights.T / d, weights @ teachers.T / d, teachers @ teachers.T / d))

    return np.asarray(jax.grad(risk)(jnp.asarray(W)))


def _population_gradient() -> tuple[Claim, ...]:
    W, teachers = random_weights(P, K, D, seed=0)
    gradient, state = _weights_gradient(W, teachers), state_of(W, teachers)
    flow = gradient_flow(committee(P, K, NOISE), OnlineSGD(RATE)).drift(0.0, state)
    moved = -RATE * gradient  # in a unit of alpha, divided by d
    covariance = np.asarray(state.covariance)

    def sample_gradient(fields, z):
        """Derivative of the half squared error by the student fields, times all fields."""
        error = _error(fields, z)
        return (error * slope(fields[:P]))[:, None] * fields[None] / P

    mean = average(sample_gradient, covariance, nodes=NODES)
    population = np.concatenate([gradient @ W.T, gradient @ teachers.T], axis=1)
    return (
        Claim(
            '"Algorithm: SGD", one-pass, small steps',
            "As the learning rate vanishes, one-pass SGD is gradient flow on the population risk: the drifts of M, Q.",
            flat(moved @ teachers.T, moved @ W.T + W @ moved.T),
            flat(flow.M, flow.Q),
            EXACT,
            remark="The gradient of the risk with respect to weights in d = 12, against the library's gradient flow. "
            "The same of a full batch and the empirical risk needs no check: there is nothing random in it.",
        ),
        Claim(
            '"Another look at SGD", effective noise',
            "A step is one of gradient descent on the population risk plus noise of mean zero: the mean sample "
            "gradient along all weights is that of the risk.",
            mean,
            population,
            QUADRATURE,
        ),
        Claim(
            '"Setting", loss of the step',
            "SGD moves by the gradient of (y - f)^2, and its mean step is - gamma times that of the risk, which has "
            "1/2.",
            2 * mean,
            population,
            QUADRATURE,
            correction="The gradient of (y - f)^2 / 2, as on the slides before; or gamma is half of that in the ODE.",
            corrected=mean,
        ),
    )


def _error(fields: np.ndarray, z: np.ndarray) -> np.ndarray:
    """f - y, for many samples: fields `(p + k, n)`."""
    return np.mean(g(fields[:P]), axis=0) - np.mean(g(fields[P:]), axis=0) - NOISE**0.5 * z


def _one_step() -> tuple[Claim, ...]:
    """One step on vectors, with the fields as printed and as they must be."""
    W, teachers = random_weights(P, K, D, seed=1)
    x, z = np.random.default_rng(2).normal(size=D), 0.7
    problem, sgd = committee(P, K, NOISE), OnlineSGD(RATE)
    student, teacher = W @ x / D**0.5, teachers @ x / D**0.5
    slopes, _ = problem.gradients(*map(jnp.asarray, (student, teacher, z, np.ones(P))))
    gradient = jnp.outer(slopes, jnp.asarray(x)) / D**0.5
    weights = {"students": jnp.asarray(W)}
    moved_by_one, _ = sgd.step_vectors(weights, jnp.ones(P), gradient, jnp.zeros(P), jnp.zeros(()))
    after = moved_by_one["students"]

    def moved(scale: float) -> np.ndarray:
        """The change of M and Q if the fields are w . x times `scale`."""
        fields = scale * np.concatenate([W, teachers]) @ x
        error = _error(fields[:, None], np.array([z]))[0]
        new = W - RATE / P * (error * slope(fields[:P]))[:, None] * scale * x
        return flat((new - W) @ teachers.T / D, (new @ new.T - W @ W.T) / D)

    return (
        Claim(
            '"Setting", fields',
            "f and y see w . x with x ~ N(0, I_d), and overlaps move by gamma/(d p) and gamma^2/(d p^2): one step.",
            moved(1.0),
            flat((np.asarray(after) - W) @ teachers.T / D, (np.asarray(after) @ np.asarray(after).T - W @ W.T) / D),
            EXACT,
            correction="They see w . x / sqrt(d), with weights of norm sqrt(d).",
            corrected=moved(D**-0.5),
            remark="The steps of the slides that follow, of the order 1/d, hold with the 1/sqrt(d) only.",
        ),
    )


def _overlaps() -> tuple[Claim, ...]:
    W, teachers = random_weights(P, K, D, seed=3)
    state = state_of(W, teachers)
    risk = average(lambda fields, z: _error(fields, z)[None] ** 2 / 2, np.asarray(state.covariance), nodes=NODES)[0]
    both, same = random_weights(3, 3, D, seed=4)  # as many students as teachers, so that the printed blocks fit
    M, Q, own = both @ same.T / D, both @ both.T / D, same @ same.T / D
    stacked = np.concatenate([same, both])
    return (
        Claim(
            '"Sufficient statistics", risk',
            "The risk is half the mean square over fields with covariance Omega, plus half of the noise.",
            risk,
            float(committee(P, K, NOISE).risk(state)),
            QUADRATURE,
            remark="Quadrature against the closed form; p = 2, k = 1.",
        ),
        Claim(
            '"Sufficient statistics", Omega',
            "The covariance of (teacher, student) fields is [[P, M], [M^T, Q]].",
            np.block([[own, M], [M.T, Q]]),
            stacked @ stacked.T / D,
            EXACT,
            correction="[[P, M^T], [M, Q]], with M of shape (p, k) as in W = M P^-1 W_* + W_perp.",
            corrected=np.block([[own, M.T], [M, Q]]),
            remark="Here p = k = 3, for otherwise the blocks do not fit.",
        ),
    )


def _increments() -> tuple[Claim, ...]:
    """The mean change of the overlaps by their printed parts, against the library's drift."""
    W, teachers = random_weights(P, K, D, seed=5)
    state = state_of(W, teachers)
    limit = ode(committee(P, K, NOISE), OnlineSGD(RATE))

    def parts(fields, z):
        error, slopes = _error(fields, z), slope(fields[:P])
        gradient = -(error * slopes)[:, None] * fields[None]
        square = (error * slopes)[:, None] * (error * slopes)[None]
        return np.concatenate([gradient.reshape(P * (P + K), -1), square.reshape(P * P, -1)])

    means = average(parts, np.asarray(state.covariance), nodes=NODES)
    gradient, noise = means[: P * (P + K)].reshape(P, P + K), means[P * (P + K) :].reshape(P, P)
    of_M, of_Q = gradient[:, P:], gradient[:, :P] + gradient[:, :P].T
    drift, timed = limit.drift(0.0, state), rates(limit, state)
    return (
        Claim(
            '"Taking a closer look"',
            "One step moves M by gamma/(d p) psi_GF and Q by gamma/(d p) psi_GF + gamma^2/(d p^2) psi_noise, in the "
            "mean and times d.",
            flat(RATE / P * of_M, RATE / P * of_Q + RATE**2 / P**2 * noise),
            flat(drift.M, drift.Q),
            QUADRATURE,
            remark="psi_GF of M is - E[(f - y) g'(lambda_j) lambda_*], psi_noise is E[(f - y)^2 g'(lambda_j) "
            "g'(lambda_l)]. The changes of one step also fluctuate.",
        ),
        Claim(
            '"The different regimes", ODE',
            "On the clock t = gamma alpha / p: dM/dt = psi_GF, dQ/dt = psi_GF + (gamma/p) psi_noise.",
            flat(of_M, of_Q + RATE / P * noise),
            flat(timed.M, timed.Q),
            QUADRATURE,
        ),
    )
