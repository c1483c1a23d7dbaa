"""Averages over one or two ReLU neurons of a mixture, against quadrature in the plane of the fields."""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

import dimfree
from dimfree.gaussian.rules import Averaging
from dimfree.gaussian.two_relus import relu_averages
from dimfree.problems.mixture import _cross_entropy


def _log_cosh(output, label):
    return jnp.logaddexp(output - label, label - output)


def _half_square(output, label):
    return 0.5 * (output - label) ** 2


# The loss, and its value and slope written out.
LOSSES = {
    "cross-entropy": (
        _cross_entropy,
        lambda o, y: np.logaddexp(0, o) - y * o,
        lambda o, y: 1 / (1 + np.exp(-o)) - y,
    ),
    "log-cosh": (_log_cosh, lambda o, y: np.logaddexp(o - y, y - o), lambda o, y: np.tanh(o - y)),
    "square": (_half_square, lambda o, y: (o - y) ** 2 / 2, lambda o, y: o - y),
}


def _covariance(first, second, correlation):
    shared = correlation * np.sqrt(first * second)
    return np.array([[first, shared], [shared, second]])


# Weights, mean, covariance.
PLACES = {
    "same sign": ([1.3, 0.8], [0.4, -0.2], _covariance(1, 0.7, 0.3)),
    "opposite signs": ([1.3, -0.8], [0.4, -0.2], _covariance(1, 0.7, -0.6)),
    "both negative": ([-0.5, -0.8], [-0.4, 0.9], _covariance(2, 0.7, 0.9)),
    "no output": ([0.0, 0.0], [0.4, -0.2], _covariance(1, 0.7, 0.3)),
    "one output": ([0.0, 1.0], [0.4, -0.2], _covariance(1, 0.7, 0.3)),
    "large weights": ([10.0, -7.0], [0.4, -0.2], _covariance(1, 0.7, 0.3)),
    "large weights, same sign": ([10.0, 7.0], [0.4, -0.2], _covariance(3, 0.7, 0.3)),
    "small clusters": ([1.0, -1.0], [0.02, -0.01], _covariance(1e-4, 2e-4, 0.99)),
    "small clusters, far": ([1.0, 1.0], [0.7, -0.01], _covariance(1e-4, 2e-4, 0.3)),
    "large means": ([1.0, -2.0], [15.0, -0.6], _covariance(1, 2, 0.5)),
    "almost equal": ([1.0, -2.0], [0.3, 0.3], _covariance(1, 1, 1 - 1e-6)),
    "almost proportional": ([1.0, 2.0], [0.3, 0.2], _covariance(1, 2, 1 - 1e-9)),
    "almost opposite": ([1.0, 2.0], [0.3, -0.2], _covariance(1, 2, -1 + 1e-9)),
    "almost no output": ([1.0, -1.0], [0.3, 0.3], _covariance(1, 1, 1 - 1e-12)),
    "equal": ([1.0, 2.0], [0.3, 0.3], _covariance(0.7, 0.7, 1)),
    "equal, no output": ([1.0, -1.0], [0.3, 0.3], _covariance(0.7, 0.7, 1)),
    "opposite": ([1.0, 1.0], [0.3, -0.3], _covariance(0.7, 0.7, -1)),
    "equal, other means": ([1.0, -0.5], [0.3, -0.1], _covariance(0.7, 0.7, 1)),
}


def _rule(edges, reach=9.5, order=20):
    """Composite Gauss-Legendre nodes between edges (their last axis), and weights times the normal density."""
    x, w = np.polynomial.legendre.leggauss(order)
    edges = np.sort(np.clip(edges, -reach, reach), axis=-1)
    width = np.diff(edges, axis=-1)[..., None]
    nodes = edges[..., :-1, None] + width * (x + 1) / 2
    weights = width * w / 2 * np.exp(-(nodes**2) / 2) / np.sqrt(2 * np.pi)
    return nodes.reshape(*nodes.shape[:-2], -1), weights.reshape(*nodes.shape[:-2], -1)


def _in_the_plane(weights, mean, covariance, step=0.5, order=20):
    """Fields (2, n) and quadrature weights (n,): one field, then the other given the first, with edges at the kinks."""
    (c11, c12), (_, c22) = np.asarray(covariance, np.longdouble)
    first = np.sqrt(c11)
    slope = c12 / first
    left = c22 - slope**2
    first, slope, rest = float(first), float(slope), float(np.sqrt(left)) if left > 1e-17 * c22 else 0.0
    grid = np.arange(-9.5, 9.5 + step / 2, step)
    # The second field changes sign, given the first, about here.
    turn = -mean[1] / slope + abs(rest / slope) * np.arange(-10, 11) if slope else np.zeros(0)
    outer, outer_weights = _rule(np.concatenate([grid, [-mean[0] / first], turn]), order=order)
    center = mean[1] + slope * outer
    if rest:
        kink = -center[:, None] / rest
        inner, inner_weights = _rule(np.hstack([np.tile(grid, (len(outer), 1)), kink]), order=order)
    else:
        inner, inner_weights = np.zeros((len(outer), 1)), np.ones((len(outer), 1))
    one = np.broadcast_to(mean[0] + first * outer[:, None], inner.shape)
    two = center[:, None] + rest * inner
    return np.stack([one.ravel(), two.ravel()]), (outer_weights[:, None] * inner_weights).ravel()


def _reference(name, label, weights, mean, covariance):
    """loss, E[1_i slope], E[1_i 1_j slope^2] and E[1_i slope h_j] as one vector."""
    _, loss, slope = LOSSES[name]
    fields, rule = _in_the_plane(weights, mean, covariance, step=0.5 if max(np.abs(weights)) < 5 else 0.2)
    outputs = np.asarray(weights) @ np.maximum(fields, 0)
    slopes = (fields > 0) * slope(outputs, label)
    return np.concatenate(
        [
            [rule @ loss(outputs, label)],
            slopes @ rule,
            (slopes * rule @ slopes.T).ravel(),
            (slopes * rule @ fields.T).ravel(),
        ]
    )


@functools.partial(jax.jit, static_argnums=0)
def _averages(name, label, weights, mean, covariance):
    found = relu_averages(LOSSES[name][0], label, weights, mean, covariance)
    return jnp.concatenate(
        [found.loss[None], found.slope, found.square.ravel(), found.with_fields(mean, covariance).ravel()]
    )


def _arrays(place):
    return tuple(jnp.asarray(part) for part in PLACES[place])


@pytest.mark.parametrize("place", PLACES)
def test_averages_are_those_of_quadrature_in_the_plane(place):
    found = _averages("cross-entropy", jnp.asarray(1.0), *_arrays(place))
    np.testing.assert_allclose(found, _reference("cross-entropy", 1.0, *PLACES[place]), atol=1e-13, rtol=1e-13)


@pytest.mark.parametrize(
    ("name", "label"), [("cross-entropy", 0.0), ("log-cosh", 10.0), ("log-cosh", -1.0), ("square", 3.0)]
)
@pytest.mark.parametrize("place", ["opposite signs", "large weights", "almost equal"])
def test_other_losses_and_labels(name, label, place):
    found = _averages(name, jnp.asarray(label), *_arrays(place))
    np.testing.assert_allclose(found, _reference(name, label, *PLACES[place]), atol=1e-12, rtol=1e-13)


def test_the_plane_itself_is_integrated_right():
    """The reference against adaptive quadrature of another library, in other coordinates (polar, by quadrant)."""
    weights, mean, covariance = (np.asarray(part) for part in PLACES["opposite signs"])
    precision = np.linalg.inv(covariance)
    density = 1 / (2 * np.pi * np.sqrt(np.linalg.det(covariance)))

    def integrand(radius, angle):
        h = radius * np.array([np.cos(angle), np.sin(angle)])
        slope = 1 / (1 + np.exp(-weights @ np.maximum(h, 0))) - 1
        return radius * density * np.exp(-0.5 * (h - mean) @ precision @ (h - mean)) * slope * h[1]

    quadrants = [(0, np.pi / 2), (-np.pi / 2, 0)]
    total = sum(scipy.integrate.dblquad(integrand, *q, 0, 12, epsabs=1e-11, epsrel=1e-11)[0] for q in quadrants)
    assert abs(total - _reference("cross-entropy", 1.0, *PLACES["opposite signs"])[8]) < 1e-10


@pytest.mark.parametrize(
    ("weight", "mean", "variance"), [(1.2, 0.3, 0.8), (-10.0, 0.1, 2.0), (1.0, -0.02, 1e-4), (0.0, 1.0, 1.0)]
)
def test_one_neuron_against_adaptive_quadrature(weight, mean, variance):
    place = (jnp.asarray(part) for part in ([weight], [mean], [[variance]]))
    found = jax.jit(functools.partial(relu_averages, _cross_entropy))(jnp.asarray(0.0), *place)
    deviation = variance**0.5

    def average(function):
        def integrand(z):
            h = mean + deviation * z
            return np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi) * function(h, weight * max(h, 0))

        kink = float(np.clip(-mean / deviation, -10, 10))
        cuts = np.unique([-10, kink, np.clip(kink + 0.3, -10, 10), 10])
        return sum(
            scipy.integrate.quad(integrand, a, b, epsabs=1e-14, limit=200)[0] for a, b in itertools.pairwise(cuts)
        )

    def slope(h, o):
        return (h > 0) / (1 + np.exp(-o))

    np.testing.assert_allclose(found.loss, average(lambda h, o: np.logaddexp(0, o)), atol=1e-13)
    np.testing.assert_allclose(found.slope[0], average(slope), atol=1e-13)
    np.testing.assert_allclose(found.square[0, 0], average(lambda h, o: slope(h, o) ** 2), atol=1e-13)
    with_field = found.with_fields(jnp.array([mean]), jnp.array([[variance]]))
    np.testing.assert_allclose(with_field[0, 0], average(lambda h, o: slope(h, o) * h), atol=1e-13)


def _of_vector(vector):
    """The averages as a function of weights, means, C11, C12, C22 and the label."""
    covariance = vector[jnp.array([[4, 5], [5, 6]])]
    return _averages("cross-entropy", vector[7], vector[:2], vector[2:4], covariance)


_values = jax.jit(jax.vmap(_of_vector))
_jacobian = jax.jit(jax.jacfwd(_of_vector))
_jacobians = jax.jit(jax.vmap(jax.jacfwd(_of_vector)))
_backwards = jax.jit(jax.jacrev(_of_vector))
_second = jax.jit(jax.jacfwd(jax.jacrev(_of_vector)))


def _vector(place, label=1.0):
    weights, mean, covariance = PLACES[place]
    return np.array([*weights, *mean, covariance[0][0], covariance[0][1], covariance[1][1], label])


def _differences(function, vector, steps):
    """Central differences of fourth order; derivatives last."""
    shifts = np.diag(steps)
    plus, minus, plus2, minus2 = (np.asarray(function(vector + s * shifts)) for s in (1, -1, 2, -2))
    slope = (8 * (plus - minus) - (plus2 - minus2)) / (12 * np.reshape(steps, (-1,) + (1,) * (plus.ndim - 1)))
    return np.moveaxis(slope, 0, -1)


@pytest.mark.parametrize(
    "place", ["same sign", "opposite signs", "both negative", "no output", "one output", "large weights"]
)
def test_derivatives_are_those_of_differences(place):
    vector, steps = _vector(place), np.full(8, 1e-3)
    jacobian = _jacobian(vector)
    np.testing.assert_allclose(jacobian, _differences(_values, vector, steps), atol=1e-10)
    np.testing.assert_allclose(_backwards(vector), jacobian, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["same sign", "opposite signs", "no output", "large weights"])
def test_second_derivatives_are_those_of_differences(place):
    vector, steps = _vector(place), np.full(8, 1e-3)
    np.testing.assert_allclose(_second(vector), _differences(_jacobians, vector, steps), atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["equal", "equal, no output", "opposite"])
def test_second_derivatives_at_singular_covariances_are_finite(place):
    assert np.isfinite(np.asarray(_second(_vector(place)))).all()


def test_derivatives_of_small_clusters():
    vector = _vector("small clusters, far")
    steps = np.array([1e-3, 1e-3, 1e-5, 1e-5, 1e-7, 1e-8, 1e-7, 1e-3])
    scaled = np.asarray(_jacobian(vector)) * steps
    np.testing.assert_allclose(scaled, _differences(_values, vector, steps) * steps, atol=1e-14)


@pytest.mark.parametrize("place", ["equal", "equal, no output", "opposite", "equal, other means"])
def test_derivatives_at_singular_covariances(place):
    """Along covariances that stay positive: what is not `square` has a derivative there, on one side."""
    vector = _vector(place)
    way = np.array([0.0, 0.0, 0.0, 0.0, 0.7, -0.2, 0.4, 0.0])
    smooth = [0, 7, 8, 9, 10]  # the loss, and moments with fields
    # A series in the root of the distance, whose first term is missing.
    roots = np.arange(8)
    points = np.asarray(_values(vector + (0.01 * roots[:, None]) ** 2 * way))[:, smooth]
    series = np.linalg.solve(np.vander(roots, increasing=True), points)
    np.testing.assert_allclose(series[1] / 0.01, 0, atol=1e-8)
    np.testing.assert_allclose((np.asarray(_jacobian(vector)) @ way)[smooth], series[2] / 0.01**2, atol=1e-7)
    assert np.abs(series[2] / 0.01**2).max() > 0.01


# The mixture that these averages serve.

SGD = dimfree.OnlineSGD(learning_rate=1.5, ridge=0.1, readout_rate=0.7)
STATE = dimfree.State(Q=[[1.0, 0.3], [0.3, 0.8]], M=[[0.4], [-0.2]], readout=[0.9, -0.6])


def _general_mixture(**changes):
    options = {
        "means": [[1.0, 0.2], [-0.5, 0.9], [0.3, -1.0]],
        "labels": [1.0, 0.0, 1.0],
        "width": 2,
        "snr": [0.7, 2.0, 5.0],
        "probabilities": [0.5, 0.3, 0.2],
        "readout": [1.4, -0.8],
        "normalisation": "sqrt",
    }
    return dimfree.Mixture(**{**options, **changes})


GENERAL_STATE = dimfree.State(Q=[[1.0, 0.3], [0.3, 0.8]], M=[[0.4, 0.1], [-0.2, 0.3]], P=[[1.3, 0.2], [0.2, 0.8]])


@eqx.filter_jit
def _known_and_sampled(mixture, state):
    rule = dimfree.Sobol(2**16)
    sampled = mixture.mean_moments(state, Averaging(rule=rule)), mixture.risk(state, rule)
    return (mixture.known_moments(state), mixture.risk(state)), sampled


@pytest.mark.parametrize("loss", ["cross-entropy", "square", _log_cosh])
def test_mixture_against_its_own_quadrature(loss):
    mixture = _general_mixture(loss=loss)
    exact, sampled = _known_and_sampled(mixture, GENERAL_STATE)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), exact, sampled)


def test_one_neuron_mixture_against_its_own_quadrature():
    mixture = _general_mixture(width=1, readout=[-1.4])
    state = dimfree.State(Q=GENERAL_STATE.Q[:1, :1], M=GENERAL_STATE.M[:1], P=GENERAL_STATE.P)
    exact, sampled = _known_and_sampled(mixture, state)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), exact, sampled)


def test_it_is_known_when_it_applies():
    assert dimfree.Mixture.binary(2, snr=3.0).knows_moments
    assert dimfree.Mixture.xor(1, snr=3.0).knows_moments
    assert _general_mixture(activation=jax.nn.relu).knows_moments
    others = [
        dimfree.Mixture.binary(3, snr=3.0),
        dimfree.Mixture.binary(2, snr=np.inf),
        _general_mixture(activation="tanh"),
        _general_mixture(labels=[0, 1, 2], readout=np.ones((3, 2))),
        _general_mixture(loss=lambda output, label: jnp.abs(output - label)),
        _general_mixture(loss=lambda output, label: jnp.abs(output - label) ** 3),  # its curvature has a kink
    ]
    for mixture in others:
        assert not mixture.knows_moments
        assert mixture.known_moments(GENERAL_STATE) is None
        assert mixture.known_risk(GENERAL_STATE) is None


def test_the_binary_mixture_follows_the_equations_of_its_source():
    r"""Ben Arous et al. 2022, Prop. 4.1, from its integrals A and B, the coordinate along the means drawn first."""
    snr, step, ridge = 2.0, 1.5, 0.1
    m, v = np.array([0.4, -0.2]), np.array([0.9, -0.6])
    R = np.array([[0.84, 0.38], [0.38, 0.76]])
    A_mean, A_rest, B = np.zeros(2), np.zeros((2, 2)), np.zeros((2, 2))
    zeta, zeta_weights = np.polynomial.hermite_e.hermegauss(48)
    for label in (0, 1):
        for z, weight in zip((2 * label - 1) + zeta / np.sqrt(snr), zeta_weights / np.sqrt(2 * np.pi) / 2, strict=True):
            fields, rule = _in_the_plane(v, m * z, R / snr, step=1.0, order=12)
            slopes = (fields > 0) * (1 / (1 + np.exp(-v @ np.maximum(fields, 0))) - label)
            A_mean += weight * z * (slopes @ rule)
            A_rest += weight * (slopes * rule @ (fields - (m * z)[:, None]).T)
            B += weight * (slopes * rule @ slopes.T)
    v_dot = -(m * A_mean + np.diag(A_rest)) - ridge * v
    m_dot = -v * A_mean - ridge * m
    R_dot = -(v[:, None] * A_rest + (v[:, None] * A_rest).T) - 2 * ridge * R + step / snr * np.outer(v, v) * B

    sgd = dimfree.OnlineSGD(learning_rate=step, ridge=ridge, readout_rate=step)
    state = dimfree.State(Q=R + np.outer(m, m), M=m[:, None], readout=v)
    drift = dimfree.ode(dimfree.Mixture.binary(2, snr=snr), sgd).drift(0.0, state)
    found_m = np.asarray(drift.M)[:, 0] / step
    found_R = np.asarray(drift.Q) / step - np.outer(found_m, m) - np.outer(m, found_m)
    np.testing.assert_allclose(np.asarray(drift.readout) / step, v_dot, atol=1e-10)
    np.testing.assert_allclose(found_m, m_dot, atol=1e-10)
    np.testing.assert_allclose(found_R, R_dot, atol=1e-10)


def test_the_jacobian_of_the_drift_is_that_of_differences():
    limit = dimfree.ode(dimfree.Mixture.binary(2, snr=2.0), SGD)
    start = limit.coordinates.pack(STATE)
    field = functools.partial(limit.vector_field, 0.0, like=STATE)
    differences = _differences(jax.jit(jax.vmap(field)), np.asarray(start), np.full(7, 1e-3))
    np.testing.assert_allclose(jax.jit(jax.jacfwd(field))(start), differences, atol=1e-10)


def test_equal_students_have_a_drift_and_stay_equal():
    """The covariance of the fields is singular there; the drift is the limit of that of almost equal students."""
    limit = dimfree.ode(dimfree.Mixture.binary(2, snr=2.0), SGD)

    def drift(difference):
        state = dimfree.State(Q=[[1.0, 1 - difference], [1 - difference, 1.0]], M=[[0.4], [0.4]], readout=[0.5, 0.5])
        return limit.coordinates.pack(limit.drift(0.0, state))

    at_equal = np.asarray(drift(0.0))
    np.testing.assert_allclose(at_equal[[0, 1, 3, 5]], at_equal[[2, 2, 4, 6]], atol=1e-14)
    np.testing.assert_allclose(drift(1e-12), at_equal, atol=1e-6)  # the square changes like the angle between students
