"""Drifts of two unlike students of a linear network on a spectrum, beside what is written out for vectors in NumPy.

And the covariance of what a sample adds, over samples drawn in NumPy.
"""

from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest

import dimfree
from dimfree.algorithms.moves import pairs_of

KAPPA, FRACTIONS = np.array([4.0, 1.0, 0.25]), np.array([0.1, 0.3, 0.6])
SPECTRUM = dimfree.Spectrum(KAPPA, FRACTIONS)
D, NOISE, ALPHA, BLOCK = 20, 0.3, 0.7, np.repeat(np.arange(3), [2, 6, 12])
# The slopes are these times the error, so that students have gradients of other sizes and signs.
SLOPES = np.array([0.5, -0.35])
PROBLEM = dimfree.TwoLayer(2, 1, "linear", noise=NOISE, readout=2 * SLOPES).with_inputs(SPECTRUM)


class Scene:
    """Vectors in D dimensions, and what a gradient at a point is on average: that of half the squared error.

    `gradient` is the mean gradient times d, of shape (2, D); `square` the mean square of the slopes.
    """

    def __init__(self, own, numbers, point=None):
        rng = np.random.default_rng(0)
        self.vectors = {"students": rng.normal(size=(2, D)) * [[1.0], [0.6]], "teachers": rng.normal(size=(1, D))}
        self.vectors |= {family: 0.8 * rng.normal(size=(2, D)) for family in sorted(own)}
        self.numbers = numbers
        at = self.vectors["students"] if point is None else point(self.vectors)
        self.error = SLOPES @ at - self.vectors["teachers"][0]
        self.variance = KAPPA[BLOCK] @ self.error**2 / D + NOISE
        self.gradient, self.square = self.of_errors(self.variance, self.variance)

    def of_errors(self, product, square):
        """What slopes make of it that are a function of the error, from its product with the error and its square."""
        gradient = product / self.variance * SLOPES[:, None] * KAPPA[BLOCK] * self.error
        return gradient, square * np.outer(SLOPES, SLOPES)

    def in_blocks(self, one, other):
        return np.stack([one[:, inside] @ other[:, inside].T / D for inside in np.arange(3)[:, None] == BLOCK])

    @property
    def state(self):
        pairs = pairs_of(["students", "teachers", *sorted(set(self.vectors) - {"students", "teachers"})])
        overlaps = {pair: jnp.asarray(self.in_blocks(*(self.vectors[each] for each in pair))) for pair in pairs}
        return dimfree.State.of(overlaps, None, {name: jnp.asarray(each) for name, each in self.numbers.items()})

    def check(self, algorithm, mean, along, measured=None, *, square=None, shares=None, atol=1e-12):
        """The drift is that of vectors which move by `mean` on average and along the gradient times `along`.

        - `mean`: of each family, times d; `along`: of each, a number, or one for each block and student.
        - `measured`: the drift of the numbers, for each step; `shares`: of blocks in the squared gradient.
        """
        batch, drift = algorithm.batch_size, dimfree.ode(PROBLEM, algorithm).drift(ALPHA, self.state)
        square = (self.square if square is None else square) / batch
        squares = (FRACTIONS * KAPPA if shares is None else shares)[:, None, None] * square
        along = {family: np.broadcast_to(each, (3, 2)) for family, each in along.items()}
        for (one, other), found in drift.overlaps.items():
            first, second = self.vectors[one], self.vectors[other]
            expected = self.in_blocks(mean.get(one, 0 * first), second) + self.in_blocks(
                first, mean.get(other, 0 * second)
            )
            if one in along and other in along:
                expected = expected + along[one][:, :, None] * along[other][:, None, :] * squares
            np.testing.assert_allclose(found, expected / batch, rtol=0, atol=atol, err_msg=f"{one}, {other}")
        assert set(drift.numbers) == set(measured or {})
        for name, expected in (measured or {}).items():
            np.testing.assert_allclose(drift.numbers[name], np.asarray(expected) / batch, rtol=0, atol=atol)


def test_momentum_and_an_average():
    rate, ridge, forgetting = 0.5 / (1 + ALPHA), 0.4, 2 / (1 + ALPHA)
    momentum = dimfree.Momentum(
        lambda alpha: 0.5 / (1 + alpha), 0.8, lambda alpha: 2 / (1 + alpha), batch_size=3, ridge=ridge
    )
    algorithm = dimfree.WeightDecay(dimfree.Averaged(momentum, 1.5), lambda alpha: 0.3 * alpha)
    scene = Scene({"momentum", "average"}, {})
    w, v, a = (scene.vectors[each] for each in ("students", "momentum", "average"))
    g = scene.gradient + ridge * w
    mean = {
        "students": -rate * g - 0.8 * v - 0.3 * ALPHA * w,
        "momentum": g - forgetting * v,
        "average": 1.5 * (w - a),
    }
    scene.check(algorithm, mean, {"students": -rate, "momentum": 1.0})


def test_two_momenta():
    algorithm = dimfree.Momentum(0.5, [0.8, 0.3], [2.0, 0.5], ridge=0.4)
    scene = Scene({"momentum", "momentum_2"}, {})
    w, v, u = (scene.vectors[each] for each in ("students", "momentum", "momentum_2"))
    g = scene.gradient + 0.4 * w
    mean = {"students": -0.5 * g - 0.8 * v - 0.3 * u, "momentum": g - 2 * v, "momentum_2": g - 0.5 * u}
    scene.check(algorithm, mean, {"students": -0.5, "momentum": 1.0, "momentum_2": 1.0})


def test_a_memory_of_a_few_steps():
    rate = 0.5 / (1 + ALPHA) / (1 - 0.4 * ALPHA)
    scene = Scene(set(), {})
    ball = dimfree.HeavyBall(lambda alpha: 0.5 / (1 + alpha), lambda alpha: 0.4 * alpha, batch_size=3, ridge=0.4)
    scene.check(ball, {"students": -rate * (scene.gradient + 0.4 * scene.vectors["students"])}, {"students": -rate})


def test_a_gradient_ahead():
    """Along the momentum, with a schedule; the ridge acts at the students."""
    ahead, ridge = 0.7 / (1 + ALPHA), 0.4
    algorithm = dimfree.Momentum(0.5, 0.8, 2.0, ridge=ridge, lookahead=lambda alpha: 0.7 / (1 + alpha))
    scene = Scene({"momentum"}, {}, lambda vectors: vectors["students"] - ahead * vectors["momentum"])
    w, v = scene.vectors["students"], scene.vectors["momentum"]
    g = scene.gradient + ridge * w
    scene.check(algorithm, {"students": -0.5 * g - 0.8 * v, "momentum": g - 2 * v}, {"students": -0.5, "momentum": 1.0})


def test_a_gradient_between_the_weights_and_their_average():
    scene = Scene({"average"}, {}, lambda vectors: 0.2 * vectors["students"] + 0.8 * vectors["average"])
    w, a = scene.vectors["students"], scene.vectors["average"]
    mean = {"students": -0.5 * (scene.gradient + 0.4 * w), "average": (w - a) / (1 + ALPHA)}
    scene.check(dimfree.ScheduleFree(dimfree.OnlineSGD(0.5, ridge=0.4), 0.8), mean, {"students": -0.5})


@pytest.mark.parametrize("kind", ["AdaGradNorm", "RMSNorm"])
def test_rates_over_a_norm(kind):
    """The norm is of the gradient of the batch, over both students and all blocks."""
    n, batch, ridge = 0.6, 3, 0.4
    scene = Scene(set(), {"gradient_square": n})
    w, norm = scene.vectors["students"], np.trace(scene.square) * FRACTIONS @ KAPPA / batch
    if kind == "RMSNorm":
        algorithm = dimfree.RMSNorm(0.5, lambda alpha: 3 * alpha, batch_size=batch, ridge=ridge)
        measured = 3 * ALPHA * (norm - n)
    else:
        algorithm, measured = dimfree.AdaGradNorm(lambda alpha: 0.5, batch_size=batch, ridge=ridge), norm
    rate = 0.5 / np.sqrt(n)
    scene.check(
        algorithm,
        {"students": -rate * (scene.gradient + ridge * w)},
        {"students": -rate},
        {"gradient_square": measured},
    )


def averaged_errors(variance, factor, batch):
    """Means of the error times what is used of it, and of the square of that, for a batch that is scaled together."""
    nodes = np.linspace(-9.0, 9.0, 1201)
    weights = np.exp(-(nodes**2) / 2) * (nodes[1] - nodes[0]) / np.sqrt(2 * np.pi)
    errors = np.meshgrid(*[np.sqrt(variance) * nodes] * batch, indexing="ij")
    weights = np.prod(np.meshgrid(*[weights] * batch, indexing="ij"), axis=0)
    norm = np.sqrt(SLOPES @ SLOPES * FRACTIONS @ KAPPA * np.sum(np.square(errors), axis=0)) / batch
    used = factor(np.maximum(norm, 1e-100))
    return np.sum(weights * used * errors[0] ** 2), np.sum(weights * used**2 * errors[0] ** 2)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", ["clipped", "normalised", "adaptive"])
def test_gradients_scaled_by_their_norm(name, batch):
    """Of the whole batch; the ridge does not count. Averages on a fine grid."""
    sgd = dimfree.OnlineSGD(0.5, batch_size=batch, ridge=0.4)
    numbers = {"gradient_square": 0.05} if name == "adaptive" else {}
    algorithm, largest = {
        "clipped": (dimfree.Clipped(sgd, lambda alpha: 0.4 / (1 + alpha)), 0.4 / (1 + ALPHA)),
        "normalised": (dimfree.NormalisedGradient(sgd, lambda alpha: 0.3 / (1 + alpha)), 0.3 / (1 + ALPHA)),
        "adaptive": (dimfree.AdaptiveClip(sgd, 1.4, lambda alpha: 3 * alpha), 1.4 * np.sqrt(0.05)),
    }[name]
    scene = Scene(set(), numbers)
    product, square = averaged_errors(
        scene.variance, lambda norm: largest / norm if name == "normalised" else np.minimum(1, largest / norm), batch
    )
    gradient, squares = scene.of_errors(product, square)
    norm = np.trace(squares) * FRACTIONS @ KAPPA / batch
    scene.check(
        algorithm,
        {"students": -0.5 * (gradient + 0.4 * scene.vectors["students"])},
        {"students": -0.5},
        {"gradient_square": 3 * ALPHA * (norm - 0.05)} if numbers else None,
        square=squares,
        atol=1e-3,
    )


@pytest.mark.parametrize("weight", [0.4, 0.0])
def test_adam_with_a_memory_of_order_d_and_an_average(weight):
    """Each student and block has a scale of its own, with which all products of the gradient are scaled.

    Before the first sample it is that of the first.
    """
    batch, forgetting, epsilon = 3, 2.0, 0.3
    second = np.array([[0.5, 0.2], [0.1, 0.4], [0.03, 0.3]]) * (weight > 0)
    adam = dimfree.Adam(lambda alpha: 0.5 / (1 + alpha), 0.8, forgetting=2.0, epsilon=epsilon, batch_size=batch)
    scene = Scene({"average"}, {"second_moment": second, "second_moment_weight": weight})
    first = KAPPA[:, None] * np.diag(scene.square) / batch
    rate, scale = 0.5 / (1 + ALPHA), 1 / (np.sqrt(second / weight if weight else first) + epsilon)
    w, a = scene.vectors["students"], scene.vectors["average"]
    measured = {
        "second_moment": forgetting * (first - second),
        "second_moment_weight": forgetting * (1 - weight),
    }
    mean = {"students": -rate * scale[BLOCK].T * scene.gradient, "average": 1.5 * (w - a)}
    scene.check(dimfree.Averaged(adam, 1.5), mean, {"students": -rate * scale}, measured)


def test_signs_with_an_average():
    """For a Gaussian error e, E[sign(e) u] = sqrt(2/pi) E[e u] / sd(e); once more for the input beside."""
    scene = Scene({"average"}, {})
    w, a = scene.vectors["students"], scene.vectors["average"]
    present = np.sqrt(KAPPA[BLOCK]) * scene.error * 2 / np.pi / np.sqrt(scene.variance)
    signs = np.sign(SLOPES)
    mean = {"students": -0.5 * signs[:, None] * present, "average": 1.5 * (w - a)}
    scene.check(
        dimfree.Averaged(dimfree.SignDescent(0.5), 1.5),
        mean,
        {"students": -0.5},
        square=np.outer(signs, signs),
        shares=FRACTIONS,
        atol=2e-3,
    )


def test_the_covariance_of_what_a_sample_adds():
    """Of all overlaps of weights and momentum in all blocks: within six of the errors of 40 groups of 2,500 samples.

    With 903 entries a false alarm once in 2,000 seeds.
    """
    rng, number, batch = np.random.default_rng(1), 100_000, 2
    algorithm = dimfree.Momentum(0.5, 0.8, 2.0, batch_size=batch, ridge=0.4)
    scene = Scene({"momentum"}, {})
    x = np.sqrt(KAPPA[BLOCK]) * rng.normal(size=(number, D))
    slopes = (x @ scene.error / np.sqrt(D) - np.sqrt(NOISE) * rng.normal(size=number))[:, None] * SLOPES
    inside = np.arange(3)[:, None] == BLOCK
    fields = {
        family: np.stack([x[:, each] @ rows[:, each].T / np.sqrt(D) for each in inside], axis=1)
        for family, rows in scene.vectors.items()
    }
    along = {"students": -0.5, "momentum": 1.0}
    square = (FRACTIONS * KAPPA)[:, None, None] * (slopes[:, :, None] * slopes[:, None, :])[:, None] / batch
    added = {}
    for one, other in scene.state.overlaps:
        added[one, other] = np.zeros((number, 3, len(scene.vectors[one]), len(scene.vectors[other])))
        if one in along:
            added[one, other] += along[one] * slopes[:, None, :, None] * fields[other][:, :, None, :]
        if other in along:
            added[one, other] += along[other] * fields[one][:, :, :, None] * slopes[:, None, None, :]
        if one in along and other in along:
            added[one, other] += along[one] * along[other] * square
    entries = np.asarray(
        algorithm.coordinates(PROBLEM).pack(
            dimfree.State.of({pair: jnp.asarray(each) for pair, each in added.items()}, None)
        )
    )
    groups = np.stack([np.cov(each.T) for each in np.split(entries, 40)])
    limit = dimfree.linear_noise(PROBLEM, algorithm, 50.0)
    found = limit.covariance(ALPHA, scene.state) * batch**2 * 50
    assert np.all(np.abs(groups.mean(axis=0) - found) < 6 * groups.std(axis=0) / np.sqrt(40) + 1e-12)


def test_the_size_of_what_is_averaged():
    """The root of E[s^2] times that of E[f^2] in the place of each product, and the term of second order beside."""
    batch, rate = 2, 0.5 / (1 + ALPHA)
    limit = dimfree.ode(PROBLEM, dimfree.Momentum(lambda alpha: 0.5 / (1 + alpha), 0.8, 2.0, batch, ridge=0.4))
    scene = Scene({"momentum"}, {})
    slopes = np.sqrt(np.diag(scene.square))
    deviations = {
        family: np.sqrt(KAPPA[:, None] * np.stack([np.diag(each) for each in scene.in_blocks(rows, rows)]))
        for family, rows in scene.vectors.items()
    }
    linear = [slopes[:, None] * each[:, None, :] for each in deviations.values()]
    students = slopes[:, None] * deviations["students"][:, None, :]
    momentum = slopes[:, None] * deviations["momentum"][:, None, :]
    both = [
        rate * (students + np.swapaxes(students, 1, 2)),
        momentum + np.swapaxes(momentum, 1, 2),
        rate * momentum + np.swapaxes(students, 1, 2),
    ]
    square = KAPPA * FRACTIONS * np.max(np.abs(scene.square)) / batch
    size = max(np.max(each) for each in [*linear, *both]) + np.max(square)
    np.testing.assert_allclose(limit.drift_size(scene.state, ALPHA), size / batch, rtol=1e-12)
    # Where coordinates are scaled, what takes the place of a slope has variance one.
    longest = max(
        np.sqrt(FRACTIONS[:, None] * [np.diag(each) for each in scene.in_blocks(rows, rows)]).max()
        for family, rows in scene.vectors.items()
        if family != "momentum"
    )
    adam = dimfree.ode(PROBLEM, dimfree.Adam(lambda alpha: 0.5 / (1 + alpha), forgetting=2.0, batch_size=batch))
    state = dimfree.State.of(
        {pair: each for pair, each in scene.state.overlaps.items() if "momentum" not in pair}, None
    )
    np.testing.assert_allclose(adam.drift_size(state, ALPHA), (rate * longest + rate**2) / batch, rtol=1e-12)


def test_where_averages_are_frozen():
    """Rates and point of rest of dW/dalpha = F W + E W*, F = drag + pull kappa A, of a momentum that looks ahead."""
    algorithm = dimfree.Momentum(0.5, 0.8, 2.0, batch_size=2, ridge=0.4, lookahead=0.7, readout_rate=0.5)
    limit, scene = dimfree.ode(PROBLEM, algorithm), Scene({"momentum"}, {})
    state = scene.state.with_readout(PROBLEM.readout)
    values = limit.coordinates.pack(state)
    drift, frozen = limit.evaluated(ALPHA, values, state)
    np.testing.assert_allclose(drift, limit.coordinates.pack(limit.drift(ALPHA, state)), atol=1e-12)
    curvature = np.outer(SLOPES, SLOPES)
    own = np.linalg.eigvalsh(curvature) * KAPPA[:, None]
    rates = {"students": -0.5 * 0.4 - 0.5 * own, "momentum": -2.0 - 0.7 * own, "teachers": np.zeros((3, 1))}
    both = {(a, b): jnp.asarray(rates[a][:, :, None] + rates[b][:, None, :]) for a, b in state.overlaps}
    expected = limit.coordinates.pack(dimfree.State.of(both, jnp.zeros(2))) / 2
    np.testing.assert_allclose(frozen.rates, expected, atol=1e-12)
    for block, kappa in enumerate(KAPPA):
        F, E = -0.5 * 0.4 * np.eye(2) - 0.5 * kappa * curvature, 0.5 * kappa * SLOPES[:, None]
        rest = np.asarray(frozen.turn) @ np.asarray(frozen.rest)[block]
        np.testing.assert_allclose(rest, -np.linalg.solve(F, E), rtol=1e-4, atol=1e-12)
    # Seen from there, students are W - rest in the basis of A: what belongs to them is turned along.
    w, v, teacher = (scene.vectors[family] for family in ("students", "momentum", "teachers"))
    seen = limit.coordinates.unpack(limit.seen_from(frozen, values, state), state)
    turn = np.asarray(frozen.turn)
    moved = turn.T @ w - np.einsum("bik,kd->ibd", frozen.rest, teacher)[:, BLOCK, np.arange(D)]
    np.testing.assert_allclose(seen.overlaps["students", "students"], scene.in_blocks(moved, moved), atol=1e-12)
    np.testing.assert_allclose(seen.overlaps["students", "teachers"], scene.in_blocks(moved, teacher), atol=1e-12)
    np.testing.assert_allclose(seen.overlaps["momentum", "students"], scene.in_blocks(turn.T @ v, moved), atol=1e-12)
    back = limit.back_from(frozen, limit.coordinates.pack(seen), state)
    np.testing.assert_allclose(back, values, atol=1e-12)


def test_in_which_units_a_solver_measures_its_error():
    """What a loss sees of an overlap is its eigenvalue times it; sums of gradients have that eigenvalue already."""
    limit, scene = dimfree.ode(PROBLEM, dimfree.Momentum(0.5, 0.8, 2.0)), Scene({"momentum"}, {})
    units = limit.coordinates.unpack(limit.units(scene.state), scene.state)
    np.testing.assert_allclose(units.overlaps["students", "teachers"][:, 0, 0], [0.25, 1.0, 1.0])
    np.testing.assert_allclose(units.overlaps["momentum", "students"], 1.0)


def test_fixed_betas_do_not_see_the_scale_of_the_gradient():
    """Inputs of a million times the variance, without label noise: each coordinate is divided by its own size."""
    start, adam = dimfree.State(Q=[[1.0]], M=[[0.3]]), dimfree.Adam(0.1, 0.5, beta2=0.9, batch_size=2)
    drifts = [
        dimfree.ode(dimfree.TwoLayer(1, 1, "linear").with_inputs(dimfree.Spectrum(scale * KAPPA)), adam).drift(
            0.0, start
        )
        for scale in (1.0, 1e6)
    ]
    np.testing.assert_allclose(drifts[1].Q, drifts[0].Q, rtol=1e-7)
    np.testing.assert_allclose(drifts[1].M, drifts[0].M, rtol=1e-7)


def test_one_block_is_two_of_one_eigenvalue():
    algorithm = dimfree.Averaged(dimfree.Momentum(0.5, 0.8, 2.0, ridge=0.4), 1.5)
    rng = np.random.default_rng(0)
    vectors = {family: rng.normal(size=(2, 12)) for family in ("students", "momentum", "average")}
    vectors["teachers"] = rng.normal(size=(1, 12))
    drifts = []
    for sizes in ([12], [4, 8]):
        edges = np.cumsum([0, *sizes])
        overlaps = {
            pair: jnp.stack([vectors[pair[0]][:, i:j] @ vectors[pair[1]][:, i:j].T / 12 for i, j in pairwise(edges)])
            for pair in pairs_of(["students", "teachers", "average", "momentum"])
        }
        problem = PROBLEM.with_inputs(dimfree.Spectrum([2.5] * len(sizes), np.array(sizes) / 12))
        drift = dimfree.ode(problem, algorithm).drift(0.0, dimfree.State.of(overlaps, None))
        drifts.append({pair: np.sum(blocks, axis=0) for pair, blocks in drift.overlaps.items()})
    for pair, blocks in drifts[0].items():
        np.testing.assert_allclose(blocks, drifts[1][pair], atol=1e-12, err_msg=str(pair))
