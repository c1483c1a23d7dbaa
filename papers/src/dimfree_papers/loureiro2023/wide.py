"""Statements on wide networks: slides "Mean-field limit", "Mean-field regime", "Mean-field + high-d"."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from dimfree import Claim, OnlineSGD, State, TwoLayer, gradient_flow, random_state

from ..arnaboldi2023.checks import rates
from ..comparing import EXACT, average, flat
from .conventions import NODES, QUADRATURE, committee, g, random_weights, state_of

P, K, D, NOISE = 3, 2, 12, 0.3


def claims() -> tuple[Claim, ...]:
    """All of them, in the order of the slides."""
    return (*_density(), *_transport(), *_subspaces(), *_theorem(), *_closed())


def _density() -> tuple[Claim, ...]:
    """The risk of half one neuron and half another."""
    W, teachers = random_weights(2, 1, D, seed=8)
    a = np.array([1.4, -0.6])
    both = state_of(W, teachers)

    def risk(readout: np.ndarray, rows: list[int]) -> float:
        state = State(Q=np.asarray(both.Q)[np.ix_(rows, rows)], M=np.asarray(both.M)[rows], P=both.P, readout=readout)
        return float(TwoLayer(len(rows), 1, "erf", noise=NOISE).risk(state))

    alone, mixed = [risk(a[[i]], [i]) for i in range(2)], risk(a, [0, 1])

    def squares(fields, z):
        outputs, target = a[:, None] * g(fields[:2]), g(fields[2]) + NOISE**0.5 * z
        return np.stack([(target - outputs.mean(axis=0)) ** 2, (outputs[0] - outputs[1]) ** 2])

    square, apart = average(squares, np.asarray(both.covariance), nodes=NODES)
    return (
        Claim(
            '"Mean-field limit", risk',
            "The risk is E(y - f)^2, where it was defined with 1/2.",
            square,
            mixed,
            QUADRATURE,
            correction="Half of it.",
            corrected=square / 2,
        ),
        Claim(
            '"Mean-field limit", linear in the density',
            "The risk is linear in the density of neurons: that of half one neuron and half another is the mean of "
            "theirs.",
            np.mean(alone),
            mixed,
            QUADRATURE,
            correction="The output is linear in the density, the risk quadratic (and convex): E(f_1 - f_2)^2 / 8 less.",
            corrected=np.mean(alone) - apart / 8,
        ),
    )


def _transport() -> tuple[Claim, ...]:
    """Each neuron moves down the potential that all make together."""
    W, teachers = random_weights(P, K, D, seed=9)
    flow = rates(gradient_flow(committee(P, K, NOISE), OnlineSGD(0.3)), state_of(W, teachers))

    def product(v, w):
        """E[g(v . x / sqrt(d)) g(w . x / sqrt(d))], the arcsine law."""
        norms = (1 + v @ v / D) * (1 + w @ w / D)
        return 2 / jnp.pi * jnp.arcsin(v @ w / D / jnp.sqrt(norms))

    def potential(w):
        """E[(f - y) g(w . x / sqrt(d))], the first variation of the risk; the others do not move with w."""
        students, targets = (jnp.mean(jax.vmap(lambda v: product(w, v))(rows)) for rows in (W, teachers))
        return students - targets

    velocity = -D * np.asarray(jax.vmap(jax.grad(potential))(jnp.asarray(W)))
    return (
        Claim(
            '"Mean-field limit", transport',
            "The density moves by div(rho grad l): each neuron by - grad l, with l = E[(f - y) a g(w . x)].",
            flat(velocity @ teachers.T / D, (velocity @ W.T + W @ velocity.T) / D),
            flat(flow.M, flow.Q),
            EXACT,
            remark="Time in units of gamma/p, and gamma in front of the equation is in it. Printed without the dot of "
            "the divergence.",
        ),
    )


def _subspaces() -> tuple[Claim, ...]:
    W, teachers = random_weights(P, K, D, seed=10)
    state = state_of(W, teachers)
    Q, M, own = (np.asarray(part) for part in (state.Q, state.M, state.P))
    outside = W - M @ np.linalg.inv(own) @ teachers
    q = np.diag(outside @ outside.T / D)
    angles = outside @ outside.T / D / np.sqrt(np.outer(q, q))
    rest = np.sqrt(np.outer(q, q)) * angles
    # Random students: the angles of what is outside the teachers' span.
    problem, d, k, number = TwoLayer(2, 3, "erf"), 15, 3, 20_000
    starts = jax.vmap(lambda key: random_state(problem, d, key=key))(jax.random.split(jax.random.key(11), number))
    left = np.asarray(starts.Q) - np.asarray(starts.M) @ np.swapaxes(np.asarray(starts.M), 1, 2)
    squares = left[:, 0, 1] ** 2 / (left[:, 0, 0] * left[:, 1, 1])
    return (
        Claim(
            '"Mean-field regime", W',
            "W = M P^-1 W_* + W_perp, with W_perp orthogonal to the teachers: its overlaps with them.",
            np.zeros((P, K)),
            outside @ teachers.T / D,
            EXACT,
        ),
        Claim(
            '"Mean-field regime", Q',
            "Q is M P M^T plus the Gram matrix of W_perp.",
            M @ own @ M.T + rest,
            Q,
            EXACT,
            correction="M P^-1 M^T, as in the theorem that follows.",
            corrected=M @ np.linalg.inv(own) @ M.T + rest,
            remark="Teachers that are not orthonormal; for P = I there is no difference.",
        ),
        Claim(
            '"Mean-field regime", angles',
            "The directions of W_perp are on the sphere of dimension d - k - 1: at random starts the squared cosine of "
            "two of them has the mean 1/(d - k), here times d - k.",
            1.0,
            float((d - k) * squares.mean()),
            float(8 * (d - k) * squares.std() / number**0.5),
            remark="d = 15, k = 3; 20000 random starts, eight standard errors.",
        ),
    )


def _theorem() -> tuple[Claim, ...]:
    W, teachers = random_weights(P, K, D, seed=12)
    state = state_of(W, teachers)
    Q, M, own = (np.asarray(part) for part in (state.Q, state.M, state.P))
    seen = M @ np.linalg.inv(own) @ M.T
    outside = np.diag(np.diag(Q - seen))
    left = np.abs((Q - seen)[~np.eye(P, dtype=bool)]).max()
    return (
        Claim(
            '"Mean-field + high-d", theorem',
            "What vanishes is the norm of Q - M P^-1 M^T + diag(Q_perp): for random weights, the largest overlap of "
            "different students outside the teachers' span.",
            np.abs(Q - seen + outside).max(),
            left,
            EXACT,
            correction="Q - (M P^-1 M^T + diag(Q_perp)).",
            corrected=np.abs(Q - (seen + outside)).max(),
            remark="How fast it vanishes is measured in fig4.",
        ),
    )


def _closed() -> tuple[Claim, ...]:
    """Neurons that come in copies: what a neuron does depends on the law of all, up to itself."""
    draws = np.random.default_rng(13)
    number = 4
    M = 0.5 * draws.normal(size=(number, K))
    q = draws.uniform(0.4, 0.9, size=number)
    drifts = []
    for copies in (2, 4, 8):
        all_M = np.repeat(M, copies, axis=0)
        p = number * copies
        state = State(Q=all_M @ all_M.T + np.diag(np.repeat(q, copies)), M=all_M)
        problem = committee(p, K, NOISE)
        drift = rates(gradient_flow(problem, OnlineSGD(0.3)), problem.completed(state))
        of_M, own = np.asarray(drift.M)[::copies], np.diagonal(np.asarray(drift.Q))[::copies]
        drifts.append(flat(of_M, own - 2 * np.sum(of_M * M, axis=1)))
    changes = [np.linalg.norm(later - earlier) for earlier, later in itertools.pairwise(drifts)]
    return (
        Claim(
            '"Mean-field + high-d", closed equation',
            "The density of (m, q_perp) obeys an equation of its own: with every neuron doubled its drift changes by "
            "order 1/p, so half as much at the next doubling.",
            2.0,
            changes[0] / changes[1],
            0.1,
            remark="The transport is written with + div(mu phi), which makes phi minus the drift of (m, q_perp).",
        ),
    )
