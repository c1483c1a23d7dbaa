"""The erf committee: its set-up, and its equations in NumPy as one would write them from the formulas."""

import jax
import numpy as np

import dimfree

P, K, RATE, NOISE = 8, 4, 4.0, 0.01


def committee():
    """Problem, algorithm and start."""
    problem = dimfree.TwoLayer(P, K, "erf", noise=NOISE)
    return problem, dimfree.OnlineSGD(RATE), dimfree.random_state(problem, d=1000, key=jax.random.key(0))


def right_hand_side(p: int, k: int, rate: float, noise: float):
    """The drift of (Q, M), vectorised over neurons."""
    r = p + k
    weights = np.concatenate([np.full(p, 1 / p), np.full(k, -1 / k)])

    def field(alpha, vector):
        Q, M = vector[: p * p].reshape(p, p), vector[p * p :].reshape(p, k)
        C = np.block([[Q, M], [M.T, np.eye(k)]])
        plus = 1 + np.diag(C)
        pair = np.sqrt(plus[:p, None] * plus[None, :] - C[:p] ** 2)
        I3 = C[None, :, :] * plus[:p, None, None] - C[:p, :, None] * C[:p, None, :]
        I3 = 2 / np.pi * I3 / (plus[:p, None, None] * pair[:, None, :])
        L4 = plus[:p, None] * plus[:p] - Q**2
        Cc = C[:p]
        i, j, s, t = np.ix_(range(p), range(p), range(r), range(r))
        L0 = (
            L4[i, j] * C[s, t]
            - Cc[j, s] * Cc[j, t] * plus[i]
            - Cc[i, s] * Cc[i, t] * plus[j]
            + Q[i, j] * (Cc[i, s] * Cc[j, t] + Cc[i, t] * Cc[j, s])
        )
        one = (
            L4[:, :, None] * plus
            - Cc[None, :, :] ** 2 * plus[:p, None, None]
            - Cc[:, None, :] ** 2 * plus[None, :p, None]
            + 2 * Q[:, :, None] * Cc[:, None, :] * Cc[None, :, :]
        )
        I4 = np.arcsin(np.clip(L0 / np.sqrt(one[:, :, :, None] * one[:, :, None, :]), -1, 1))
        I4 = 4 / np.pi**2 * I4 / np.sqrt(L4)[:, :, None, None]
        gradient = weights[:p, None] * (I3 @ weights)
        square = np.outer(weights[:p], weights[:p]) * (I4 @ weights @ weights + noise * 2 / np.pi / np.sqrt(L4))
        drag = gradient[:, :p]
        dQ = -rate * (drag + drag.T) + rate**2 * square
        return np.concatenate([dQ.ravel(), (-rate * gradient[:, p:]).ravel()])

    return field
