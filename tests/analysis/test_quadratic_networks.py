"""Plateaus and solutions of quadratic networks: closed forms against the Jacobian of the ODE and long solves."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dimfree
from dimfree.quadratic import (
    closest_solution,
    conserved_frame,
    degrees_of_freedom,
    late_risk,
    norm_learning,
    plateau,
    solution_manifold_dimension,
)

# kind of limit, p, k, noise, learning rate, batch size: wide and narrow, with and without noise.
SETTINGS = [
    ("ode", 1, 1, 0.0, 0.1, 1),
    ("ode", 3, 3, 0.0, 0.8, 1),
    ("ode", 4, 2, 0.3, 3.0, 4),
    ("ode", 2, 3, 1.0, 0.15, 1),
    ("ode-sphere", 1, 1, 0.4, 0.1, 1),
    ("ode-sphere", 4, 3, 0.3, 3.0, 4),
    ("flow", 3, 2, 0.3, 0.5, 2),
    ("flow-sphere", 3, 2, 0.3, 0.5, 2),
]


def quadratic(p, k, noise=0.0):
    return dimfree.TwoLayer(p, k, "square", noise=noise)


@pytest.mark.parametrize(("kind", "p", "k", "noise", "rate", "batch_size"), SETTINGS)
def test_the_plateau_is_a_fixed_point_with_the_jacobian_of_the_ode(kind, p, k, noise, rate, batch_size):
    sphere = kind.endswith("sphere")
    make = dimfree.gradient_flow if kind.startswith("flow") else dimfree.ode
    limit = make(quadratic(p, k, noise), dimfree.OnlineSGD(rate, batch_size, sphere=sphere))

    @eqx.filter_jit
    def found_and_slopes(limit):
        found = plateau(limit)
        coordinates, vector = limit.coordinates, limit.coordinates.pack(found.state)

        def drift(vector):
            return limit.vector_field(0.0, vector, found.state)

        def linear(vector):
            """What the rates say that the drift of a small deviation is."""
            deviation = coordinates.unpack(vector, jax.tree.map(jnp.zeros_like, found.state))
            mean = jnp.trace(deviation.Q) / p * jnp.eye(p)
            Q = -found.decay_rate * (deviation.Q - mean)
            if found.norm_decay_rate is not None:
                Q = Q - found.norm_decay_rate * mean
            return coordinates.pack(dimfree.State(Q=Q, M=found.growth_rate * deviation.M))

        return found, drift(vector), jax.jacfwd(drift)(vector), jax.jacfwd(linear)(vector)

    found, drift, jacobian, expected = found_and_slopes(limit)
    assert np.max(np.abs(drift)) < 1e-14
    assert (found.norm_decay_rate is None) == sphere
    np.testing.assert_allclose(jacobian, expected, rtol=0, atol=1e-12)
    q = found.state.Q[0, 0]  # the error is a sum of independent chi-squares: its mean and variance
    np.testing.assert_allclose(2 * found.risk, (1 - q) ** 2 + 2 * q**2 / p + 2 / k + noise, rtol=1e-13)


def test_the_plateau_of_gradient_flow_is_that_of_a_vanishing_learning_rate():
    problem = quadratic(6, 3, noise=0.2)
    flow = plateau(dimfree.gradient_flow(problem, dimfree.OnlineSGD(1.0)))
    slow = plateau(dimfree.ode(problem, dimfree.OnlineSGD(1e-7)))
    np.testing.assert_allclose(flow.state.Q, 0.75 * np.eye(6), atol=1e-15)
    np.testing.assert_allclose(flow.risk, 0.5 * (1 + 2 / 3 - 6 / 8) + 0.1, rtol=1e-14)
    np.testing.assert_allclose(slow.state.Q, flow.state.Q, atol=1e-7)
    for name in ("growth_rate", "decay_rate", "norm_decay_rate"):
        np.testing.assert_allclose(getattr(slow, name) / 1e-7, getattr(flow, name), rtol=1e-6)
    # In the clock of Bocchi et al., t = alpha learning_rate / 2: 8 / (p k) and 16 / (p (p + 2)).
    np.testing.assert_allclose(2 * flow.growth_rate, 8 / 18, rtol=1e-14)
    np.testing.assert_allclose(2 * flow.decay_rate, 16 / 48, rtol=1e-14)


def test_norms_diverge_where_there_is_no_plateau():
    problem = quadratic(3, 3)

    def end(rate):
        start = dimfree.State(Q=np.eye(3), M=np.zeros((3, 3)))
        return dimfree.solve(dimfree.ode(problem, dimfree.OnlineSGD(rate)), start, 300.0)

    # g = 0.4: (1 + 2g)^2 = 3.24 against 4 g kappa (1 + g b) = 3.73; at g = 0.3, 2.56 against 2.52.
    with pytest.raises(dimfree.InvalidInput, match="norms have no fixed point and diverge"):
        plateau(dimfree.ode(problem, dimfree.OnlineSGD(1.2)))
    assert int(end(1.2).outcome) == dimfree.Outcome.DIVERGED
    stays = end(0.9)
    assert int(stays.outcome) == dimfree.Outcome.COMPLETED
    np.testing.assert_allclose(stays.final.Q, plateau(dimfree.ode(problem, dimfree.OnlineSGD(0.9))).state.Q, atol=1e-6)


@pytest.mark.parametrize(("p", "k"), [(1, 1), (4, 2)])
def test_norm_learning_solves_gradient_flow(p, k):
    limit = dimfree.gradient_flow(quadratic(p, k, noise=0.4), dimfree.OnlineSGD(0.3, batch_size=2))
    generator = np.random.default_rng(0)
    deviation = generator.normal(size=(p, p))
    alphas = np.linspace(0.0, 10.0 * p, 13)

    def difference(size):
        Q = 1.7 * np.eye(p) + size * (deviation + deviation.T)
        start = dimfree.State(Q=Q, M=size * generator.normal(size=(p, k)))
        solved = dimfree.solve(limit, start, alphas, relative_tolerance=1e-12, absolute_tolerance=1e-18).state
        closed = norm_learning(limit, start, alphas)
        assert closed.P.shape == solved.P.shape
        norm = np.trace(solved.Q, axis1=1, axis2=2) / p
        traceless = solved.Q - norm[:, None, None] * np.eye(p)
        # M and Q - q I are followed through their decay and growth: relative to their own size at each time.
        errors = [np.max(np.abs(closed.M - solved.M), (1, 2)) / np.max(np.abs(solved.M), (1, 2))]
        errors.append(np.abs(np.trace(closed.Q, axis1=1, axis2=2) / p - norm))
        if p > 1:
            expected = closed.Q - (np.trace(closed.Q, axis1=1, axis2=2) / p)[:, None, None] * np.eye(p)
            errors.append(np.max(np.abs(expected - traceless), (1, 2)) / np.max(np.abs(traceless), (1, 2)))
        return np.max(errors)

    # What is left out of Q - q I is of second order, M M^T above all, so of first order relative to it.
    assert difference(1e-8) < 1e-4
    assert difference(1e-8) < 0.03 * difference(1e-6)


def weights(state, generator, extra=6):
    """Weight vectors with these overlaps, in the span of the teachers (first) and more directions; d = 1 units."""
    p, k = state.M.shape
    teachers = np.concatenate([np.linalg.cholesky(np.asarray(state.P)), np.zeros((k, extra))], axis=1)
    along = np.asarray(state.M) @ np.linalg.inv(np.asarray(state.P)) @ teachers
    rest = np.asarray(state.Q) - along @ along.T
    values, vectors = np.linalg.eigh(rest)
    frame = np.linalg.qr(generator.normal(size=(extra, extra)))[0][:p]
    across = (vectors * np.sqrt(np.maximum(values, 0))) @ frame
    return along + np.concatenate([np.zeros((p, k)), across], axis=1), teachers


@pytest.mark.parametrize("overlapping", [False, True])
def test_no_solution_is_closer_than_the_closest(overlapping):
    p, k = 4, 2
    generator = np.random.default_rng(3)
    start = dimfree.State(
        Q=np.eye(p), M=0.1 * generator.normal(size=(p, k)), P=[[1.0, 0.6], [0.6, 2.0]] if overlapping else None
    )
    problem = quadratic(p, k)
    solution = closest_solution(problem, start)
    assert abs(problem.risk(solution)) < 1e-14
    students, teachers = weights(start, generator)

    def distance(frame):
        return jnp.sum((jnp.sqrt(p / k) * frame @ teachers - students) ** 2)

    best = conserved_frame(start)
    np.testing.assert_allclose(best.T @ best, np.eye(k), atol=1e-14)
    found = np.sqrt(p / k) * best @ teachers
    np.testing.assert_allclose(found @ teachers.T, solution.M, atol=1e-13)
    np.testing.assert_allclose(found @ found.T, solution.Q, atol=1e-13)
    # Stationary along all rotations of the frame, and the least over random frames near and far.
    slope = np.asarray(jax.grad(distance)(best))
    for _ in range(5):
        turn = generator.normal(size=(p, p))
        assert abs(np.sum(slope * ((turn - turn.T) @ best))) < 1e-12
    for size in np.repeat([1e-3, 1e-1, 10.0], 200):
        frame = np.linalg.qr(best + size * generator.normal(size=(p, k)))
        other = frame[0] * np.sign(np.diag(frame[1]))
        assert distance(other) > distance(best)


NUMBER, TIMES = 100, 41  # the same for all, so that few functions are compiled


def random_starts(p, k, size=1e-2, seed=0):
    """Orthogonal students of norm one with small random overlaps, as in Bocchi et al. 2026, eq. (8)."""
    M = size * jax.random.normal(jax.random.key(seed), (NUMBER, p, k))
    return dimfree.State(Q=jnp.broadcast_to(jnp.eye(p), (NUMBER, p, p)), M=M)


@functools.partial(jax.jit, static_argnames=("second_order",))
def solved(starts, rate, end, *, second_order=True):
    """States and risks from many starts, until `end` in units of 1 / learning rate."""
    _, p, k = starts.M.shape
    make = dimfree.ode if second_order else dimfree.gradient_flow
    limit = make(quadratic(p, k), dimfree.OnlineSGD(rate))
    alphas = jnp.linspace(0.0, end / rate, TIMES)

    def one(start):
        path = dimfree.solve(limit, start, alphas, relative_tolerance=1e-10, absolute_tolerance=1e-13)
        return path.state, path.risk

    return jax.vmap(one)(starts)


@pytest.mark.parametrize("rate", [0.02, 0.5])
def test_every_start_ends_at_its_closest_solution(rate):
    starts = random_starts(3, 3)
    state, risk = solved(starts, rate, 200.0)
    assert np.max(risk[:, -1]) < 1e-13
    expected = closest_solution(quadratic(3, 3), starts)
    np.testing.assert_allclose(state.M[:, -1], expected.M, atol=1e-6)
    np.testing.assert_allclose(state.Q[:, -1], expected.Q, atol=1e-6)
    assert np.max(np.abs(conserved_frame(state) - conserved_frame(starts)[:, None])) < 1e-8


def test_every_start_of_a_wide_network_approaches_its_closest_solution_as_one_over_alpha():
    starts = random_starts(3, 2)
    state, _ = solved(starts, 0.1, 2000.0)
    expected = closest_solution(quadratic(3, 2), starts)
    halfway = TIMES // 2
    far, near = (np.abs(state.M[:, i] - expected.M).max((1, 2)) for i in (halfway, -1))
    np.testing.assert_allclose(far / near, 2.0, rtol=0.05)  # the way left is c / alpha, so two times give its end:
    np.testing.assert_allclose(2 * state.M[:, -1] - state.M[:, halfway], expected.M, atol=5e-6)
    np.testing.assert_allclose(2 * state.Q[:, -1] - state.Q[:, halfway], expected.Q, atol=2e-5)
    assert np.max(np.abs(conserved_frame(state) - conserved_frame(starts)[:, None])) < 1e-8


def drift_of_the_frame(starts, risk_at_end=1e-10):
    state, risk = solved(starts, 1.0, 150.0, second_order=False)
    assert np.max(risk[:, -1]) < risk_at_end  # the whole way: norm learning, plateau, escape
    frames = conserved_frame(state)
    return np.max(np.abs(frames - frames[:, :1]), axis=(1, 2, 3))


def test_the_frame_is_conserved_where_Q_is_a_function_of_M_and_only_there():
    p = 3
    starts = random_starts(p, p, seed=1)
    square = starts.M @ jnp.swapaxes(starts.M, 1, 2)
    assert np.max(drift_of_the_frame(starts)) < 1e-8
    assert np.max(drift_of_the_frame(dimfree.State(Q=0.8 * starts.Q + 300 * square, M=starts.M))) < 1e-8
    # Students of different norms.
    norms = jnp.exp(0.3 * jax.random.normal(jax.random.key(2), (NUMBER, p)))
    unequal = dimfree.State(Q=jax.vmap(jnp.diag)(norms), M=starts.M * jnp.sqrt(norms)[..., None])
    typical = np.median(drift_of_the_frame(unequal))
    assert 0.02 < typical < 0.1, typical
    # Random students, whose overlaps are of order d^-1/2.
    by_dimension = {}
    for d in (100, 1000):
        make = functools.partial(dimfree.random_state, quadratic(p, p), d)
        random = jax.vmap(lambda key, make=make: make(key=key))(jax.random.split(jax.random.key(3), NUMBER))
        by_dimension[d] = np.median(drift_of_the_frame(dimfree.State(Q=random.Q, M=random.M)))
    assert 0.003 < by_dimension[1000] < 0.012, by_dimension
    assert 2.0 < by_dimension[100] / by_dimension[1000] < 5.0, by_dimension  # 10^1/2


@pytest.mark.parametrize(
    ("p", "k", "rate", "batch_size", "second_order"), [(3, 1, 1.0, 1, False), (4, 2, 0.8, 2, True)]
)
def test_the_risk_of_a_wide_network_falls_as_a_power(p, k, rate, batch_size, second_order):
    make = dimfree.ode if second_order else dimfree.gradient_flow
    limit = make(quadratic(p, k), dimfree.OnlineSGD(rate, batch_size))
    start = dimfree.State(Q=np.eye(p), M=0.1 * np.random.default_rng(1).normal(size=(p, k)))
    alphas = np.asarray([0.0, 1500.0, 3000.0, 6000.0]) * batch_size / rate
    path = dimfree.solve(limit, start, alphas, absolute_tolerance=1e-12)
    ratio = path.risk[1:] / late_risk(limit, alphas[1:])
    np.testing.assert_allclose(ratio[-1], 1.0, atol=5e-3)
    np.testing.assert_allclose((ratio[:-1] - 1) / (ratio[1:] - 1), 2.0, atol=0.2)  # the next order, 1 / alpha
    # q_perp, the smallest eigenvalue of Q.
    smallest = np.linalg.eigvalsh(np.asarray(path.final.Q))[0]
    predicted = p**2 * (k + 2) * batch_size / (8 * (p + 2) * rate * alphas[-1])
    np.testing.assert_allclose(smallest, predicted, rtol=5e-3)


def test_solutions_are_stable_up_to_the_largest_learning_rate_of_the_power_law():
    problem, largest = quadratic(3, 2), 3 * 2 / (2 * 4)
    solution = closest_solution(problem, dimfree.State(Q=np.eye(3), M=np.eye(3)[:, :2]))

    @jax.jit
    def fastest(rate):
        limit = dimfree.ode(problem, dimfree.OnlineSGD(rate))
        coordinates = limit.coordinates
        slope = jax.jacfwd(lambda vector: limit.vector_field(0.0, vector, solution))(coordinates.pack(solution))
        return slope

    growth = [np.max(np.linalg.eigvals(np.asarray(fastest(rate))).real) for rate in (0.99 * largest, 1.01 * largest)]
    assert growth[0] < 1e-7  # marginal along the solutions
    assert growth[1] > 1e-2
    with pytest.raises(dimfree.InvalidInput, match=r"no solution is stable from 0.75 on"):
        late_risk(dimfree.ode(problem, dimfree.OnlineSGD(largest)), 100.0)


@pytest.mark.parametrize(("p", "d"), [(1, 1), (2, 4), (4, 4), (6, 4)])
def test_degrees_of_freedom_are_the_rank_of_the_map_from_weights_to_functions(p, d):
    W = jax.random.normal(jax.random.key(0), (p, d))
    jacobian = jax.jacfwd(lambda W: W.T @ W)(W).reshape(d * d, p * d)
    assert degrees_of_freedom(p, d) == np.linalg.matrix_rank(jacobian)


@pytest.mark.parametrize(("p", "k", "d"), [(1, 1, 5), (3, 1, 5), (3, 3, 5), (5, 2, 6), (6, 3, 4), (4, 6, 3), (3, 5, 3)])
def test_the_solution_manifold_is_the_orbit_of_a_solution(p, k, d):
    generator = np.random.default_rng(0)
    rank = min(k, d)
    solution = np.linalg.qr(generator.normal(size=(p, rank)))[0] @ generator.normal(size=(rank, d))
    turns = []
    for i in range(p):
        for j in range(i):
            turn = np.zeros((p, p))
            turn[i, j], turn[j, i] = 1.0, -1.0
            turns.append((turn @ solution).ravel())
    expected = np.linalg.matrix_rank(turns) if turns else 0
    assert solution_manifold_dimension(p, k, d) == expected


def test_what_has_no_closed_form_is_refused_in_words():
    sgd = dimfree.OnlineSGD(0.1)
    square = quadratic(2, 2)
    refused = {
        "quadratic networks": (dimfree.TwoLayer(2, 2, "erf"), sgd),
        'are for "mean"': (dimfree.TwoLayer(2, 2, "square", normalisation="sum"), sgd),
        "readouts other than one": (dimfree.TwoLayer(2, 2, "square", readout=[1.0, -1.0]), sgd),
        "function of alpha": (square, dimfree.OnlineSGD(lambda alpha: 0.1 / (1 + alpha))),
        "fixed readout": (square, dimfree.OnlineSGD(0.1, readout_rate=0.1)),
        "ridge": (square, dimfree.OnlineSGD(0.1, ridge=0.1)),
    }
    for words, (problem, algorithm) in refused.items():
        with pytest.raises(dimfree.InvalidInput, match=words):
            plateau(dimfree.ode(problem, algorithm))
    start = dimfree.State(Q=np.eye(2), M=0.1 * np.eye(2))
    with pytest.raises(dimfree.InvalidInput, match="gradient_flow"):
        norm_learning(dimfree.ode(square, sgd), start, 1.0)
    with pytest.raises(dimfree.InvalidInput, match="P is not the identity"):
        norm_learning(dimfree.gradient_flow(square, sgd), dimfree.State(start.Q, start.M, P=2 * np.eye(2)), 1.0)
    with pytest.raises(dimfree.InvalidInput, match="full column rank"):
        closest_solution(square, dimfree.State(Q=np.eye(2), M=np.zeros((2, 2)) + 0.1))
    with pytest.raises(dimfree.InvalidInput, match="p >= k"):
        conserved_frame(dimfree.State(Q=np.eye(2), M=np.zeros((2, 3)) + 0.1))
    with pytest.raises(dimfree.InvalidInput, match="wider than the teacher"):
        late_risk(dimfree.ode(square, sgd), 10.0)
    with pytest.raises(dimfree.InvalidInput, match="with noise"):
        late_risk(dimfree.ode(quadratic(3, 2, noise=0.1), sgd), 10.0)
    with pytest.raises(dimfree.InvalidInput, match="no solution"):
        solution_manifold_dimension(2, 3, 10)
