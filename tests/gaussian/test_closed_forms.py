"""The exact integrals of every activation, against quadrature that knows nothing of them."""

import itertools
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr, roots_hermitenorm

from dimfree.gaussian.activations import Activation, as_activation, named_activations
from dimfree.gaussian.erf import Erf
from dimfree.gaussian.integrals import map_pairs
from dimfree.gaussian.polynomial import Polynomial, Square
from dimfree.gaussian.relu import Relu, truncated_moments

SMOOTH = {
    "erf": (as_activation("erf"), 44),
    "square": (as_activation("square"), 8),
    "linear": (as_activation("linear"), 4),
    "he2": (as_activation("he2"), 8),
    "he3": (as_activation("he3"), 10),
    "he4": (as_activation("he4"), 12),
    "sextic": (
        Activation("sextic", lambda x: 0.3 - x + x**3 / 3 + x**6 / 20, Polynomial([0.3, -1, 0, 1 / 3, 0, 0, 0.05])),
        16,
    ),
}
METHODS = ("outputs", "slopes", "gradient", "gradient_square")


# Compiled once per activation and number of fields, so most tests share the shape of two students and two teachers.
@eqx.filter_jit
def exact(integrals, covariance, weights, width):
    return {
        "outputs": integrals.outputs(covariance),
        "slopes": integrals.slopes(covariance, width),
        "gradient": integrals.gradient(covariance, weights, width),
        "gradient_square": integrals.gradient_square(covariance, weights, width),
    }


def closed_form(integrals, covariance, weights):
    return exact(integrals, covariance, weights, 2)


def quadrature(activation, covariance, weights, width, nodes):
    """All four averages on one tensor grid over the fields."""
    covariance = np.asarray(covariance)
    points, rule = roots_hermitenorm(nodes)
    rule = rule / rule.sum()
    # A symmetric root exists for singular covariances too.
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0))
    dimension = len(covariance)
    grid = np.stack(np.meshgrid(*(dimension * [points]), indexing="ij")).reshape(dimension, -1)
    mass = np.prod(np.stack(np.meshgrid(*(dimension * [rule]), indexing="ij")).reshape(dimension, -1), axis=0)
    fields = root @ grid
    flat = jnp.asarray(fields).ravel()
    outputs = np.asarray(activation.function(flat)).reshape(fields.shape)
    slopes = np.asarray(jax.vmap(jax.grad(activation.function))(flat)).reshape(fields.shape)[:width]
    error = np.asarray(weights) @ outputs
    return {
        "outputs": (outputs * mass) @ outputs.T,
        "slopes": (slopes * mass) @ slopes.T,
        "gradient": (slopes * mass * error) @ fields.T,
        "gradient_square": (slopes * mass * error**2) @ slopes.T,
    }


def random_problem(seed, width, teachers, scale=1.0):
    generator = np.random.default_rng(seed)
    fields = width + teachers
    factor = scale * generator.normal(size=(fields, fields + 1)) / np.sqrt(fields + 1)
    return jnp.asarray(factor @ factor.T), jnp.asarray(generator.normal(size=fields))


def assert_close(found, expected, tolerance):
    for method in METHODS:
        scale = 1 + np.abs(expected[method]).max()
        np.testing.assert_allclose(found[method], expected[method], rtol=0, atol=tolerance * scale, err_msg=method)


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("seed", [0])
def test_averages_over_three_fields_are_those_of_quadrature(name, seed):
    activation, nodes = SMOOTH[name]
    # Two students and one teacher: every pattern of coincident indices occurs.
    covariance, weights = random_problem(seed, 2, 1, scale=0.8)
    expected = quadrature(activation, covariance, weights, 2, nodes + 16)
    assert_close(exact(activation.integrals, covariance, weights, 2), expected, 1e-10)


@pytest.mark.parametrize("name", SMOOTH)
def test_averages_over_four_fields_are_those_of_quadrature(name):
    activation, nodes = SMOOTH[name]
    covariance, weights = random_problem(7, 2, 2, scale=0.8)
    expected = quadrature(activation, covariance, weights, 2, nodes)
    assert_close(exact(activation.integrals, covariance, weights, 2), expected, 1e-10)


@pytest.mark.parametrize("name", SMOOTH)
def test_averages_at_a_singular_covariance_are_those_of_quadrature(name):
    activation, nodes = SMOOTH[name]
    covariance, weights = random_problem(11, 2, 1, scale=0.8)
    # The second student is a teacher, and the other teacher is nothing.
    lift = jnp.array([[1.0, 0, 0], [0, 0, 1.0], [0, 0, 0], [0, 0, 1.0]])
    singular, weights = lift @ covariance @ lift.T, jnp.append(weights, 0.4)
    found = exact(activation.integrals, singular, weights, 2)
    assert_close(found, quadrature(activation, singular, weights, 2, nodes), 1e-10)
    assert_close(exact(activation.integrals, singular + 1e-9 * jnp.eye(4), weights, 2), found, 1e-6)


def directional(function, covariance, weights, direction, step):
    ahead, back = (function(covariance + sign * step * direction, weights) for sign in (1, -1))
    return {method: (np.asarray(ahead[method]) - np.asarray(back[method])) / (2 * step) for method in METHODS}


@eqx.filter_jit
def derivative(integrals, covariance, weights, width, direction):
    def along(step):
        return exact(integrals, covariance + step * direction, weights, width)

    return jax.jacfwd(along)(0.0)


@pytest.mark.parametrize("name", ["erf", pytest.param("he3", marks=pytest.mark.slow), "relu"])
def test_derivatives_are_those_of_differences(name):
    integrals = as_activation(name).integrals
    covariance, weights = random_problem(3, 2, 2)
    direction = jnp.asarray(np.random.default_rng(4).normal(size=(4, 4)))
    direction = direction + direction.T
    found = derivative(integrals, covariance, weights, 2, direction)
    closed = partial(closed_form, integrals)
    assert_close(found, directional(closed, covariance, weights, direction, 1e-5), 1e-7)
    # Reverse mode goes through the same rules.
    total, weight_change = jax.jit(
        jax.grad(
            lambda matrix, weights: sum(jnp.sum(jnp.sin(part)) for part in closed(matrix, weights).values()),
            argnums=(0, 1),
        )
    )(covariance, weights)
    values = closed(covariance, weights)
    expected = sum(np.sum(np.cos(values[method]) * np.asarray(found[method])) for method in METHODS)
    np.testing.assert_allclose(jnp.sum(total * direction), expected, rtol=1e-10)
    assert np.all(np.isfinite(weight_change))


@pytest.mark.parametrize("name", ["erf", "square", "sextic"])
def test_derivatives_are_those_of_quadrature(name):
    activation, nodes = SMOOTH[name]
    covariance, weights = random_problem(5, 2, 1, scale=0.8)
    direction = jnp.array([[0.3, -0.2, 0.5], [-0.2, 1.0, 0.1], [0.5, 0.1, -0.4]])
    found = derivative(activation.integrals, covariance, weights, 2, direction)
    reference = partial(quadrature, activation, width=2, nodes=nodes + 16)
    expected = directional(
        lambda matrix, c: reference(covariance=matrix, weights=c), covariance, weights, direction, 2e-5
    )
    assert_close(found, expected, 1e-6)


@pytest.mark.parametrize("integrals", [Erf(), Relu(), Polynomial([0, -3, 0, 1]), Square()])
def test_fields_that_carry_nothing_give_no_nan(integrals):
    covariance, weights = random_problem(6, 2, 2)
    at_rest = jnp.array([[0.0, 0, 0, 0], [0, 1, 0, 0], [0, -1, 0, 0], [0, 1, 0, 0]])
    opposite = jnp.array([[1.0, 0, 0, 0], [0, 1, 0, 0], [-1, 0, 0, 0], [0, -2, 0, 0]])
    closed = partial(closed_form, integrals)
    jacobian = jax.jit(jax.jacfwd(closed))
    for lift in (at_rest, opposite, 0 * opposite, jnp.ones((4, 4))):
        matrix = lift @ covariance @ lift.T
        values, slopes = closed(matrix, weights), jacobian(matrix, weights)
        for part in jax.tree.leaves((values, slopes)):
            assert np.all(np.isfinite(part))


def test_polynomial_of_degree_two_is_the_square():
    covariance, weights = random_problem(8, 4, 3)
    assert_close(exact(Polynomial([0, 0, 1]), covariance, weights, 4), exact(Square(), covariance, weights, 4), 1e-12)


@pytest.mark.parametrize("integrals", [Erf(), Relu(), Polynomial([1, -3, 0, 1]), Square()])
def test_one_student_has_the_first_row_of_two_also_in_a_batch(integrals):
    covariance, weights = random_problem(9, 2, 2)
    wide = exact(integrals, covariance, weights, 2)
    one = jax.vmap(lambda matrix: exact(integrals, matrix, weights, 1))(jnp.stack([covariance, 2 * covariance]))
    assert_close(
        {method: one[method][0] for method in METHODS},
        {
            "outputs": wide["outputs"],
            **{method: wide[method][:1, : 1 if method != "gradient" else 4] for method in METHODS[1:]},
        },
        1e-12,
    )


def test_pairs_in_batches_equal_pairs_at_once():
    covariance, weights = random_problem(10, 6, 1)

    def pair(i, j):
        return covariance[i, j] * weights[i] * weights[j]

    expected = covariance * weights[:, None] * weights
    for numbers in (1, 2**17):
        np.testing.assert_allclose(map_pairs(pair, 6, numbers), expected[:6, :6], rtol=1e-14)


# ReLU: quadrature over the positive orthant, where its integrands are smooth.


def panels(edges, nodes):
    points, weights = np.polynomial.legendre.leggauss(nodes)
    edges = np.asarray(edges)
    half = np.diff(edges) / 2
    return np.concatenate(half[:, None] * points + (edges[:-1] + half)[:, None]), np.concatenate(
        half[:, None] * weights
    )


def orthant_average(covariance, s, t, axes):
    """E[u_s u_t 1(u > 0)] of up to four fields; the last one is averaged in closed form, given the others."""
    covariance = np.asarray(covariance)
    size = len(covariance)
    if size == 1:
        return covariance[0, 0] / 2
    grid = np.stack(np.meshgrid(*(axis[0] for axis in axes), indexing="ij")).reshape(size - 1, -1)
    mass = np.prod(np.stack(np.meshgrid(*(axis[1] for axis in axes), indexing="ij")).reshape(size - 1, -1), axis=0)
    block, row = covariance[:-1, :-1], covariance[-1, :-1]
    solved = np.linalg.solve(block, grid)
    density = np.exp(-np.sum(grid * solved, axis=0) / 2) / np.sqrt(np.linalg.det(2 * np.pi * block))
    mean = row @ solved
    deviation = np.sqrt(covariance[-1, -1] - row @ np.linalg.solve(block, row))
    bell = deviation * np.exp(-((mean / deviation) ** 2) / 2) / np.sqrt(2 * np.pi)
    positive = ndtr(mean / deviation)
    powers = [positive, bell + mean * positive, (mean**2 + deviation**2) * positive + mean * bell]
    last = size - 1
    order = (s == last) + (t == last)
    factor = np.prod([grid[index] for index in (s, t) if index != last], axis=0)
    return np.sum(mass * density * factor * powers[order])


def relu_gradient_square(covariance, weights, width, axis):
    covariance, weights = np.asarray(covariance), np.asarray(weights)
    result = np.zeros((width, width))
    for i, j, s, t in itertools.product(range(width), range(width), range(len(weights)), range(len(weights))):
        members = sorted({i, j, s, t})
        place = members.index
        block = covariance[np.ix_(members, members)]
        result[i, j] += (
            weights[s] * weights[t] * orthant_average(block, place(s), place(t), (len(members) - 1) * [axis])
        )
    return result


@pytest.mark.parametrize("seed", range(2))
def test_relu_averages_are_those_of_quadrature_over_the_orthant(seed):
    covariance, weights = random_problem(seed, 2, 2)
    axis = panels([0, 2, 4, 8], 16)
    found = exact(Relu(), covariance, weights, 2)
    pair = {(a, b): np.asarray(covariance)[np.ix_([a, b], [a, b])] for a, b in itertools.permutations(range(4), 2)}
    for a in range(4):
        for b in range(4):
            expected = covariance[a, a] / 2 if a == b else orthant_average(pair[a, b], 0, 1, [axis])
            np.testing.assert_allclose(found["outputs"][a, b], expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found["gradient_square"], relu_gradient_square(covariance, weights, 2, axis), atol=1e-8)


def test_relu_slopes_and_gradient_are_those_of_polar_coordinates():
    covariance, weights = random_problem(2, 2, 2)
    found = exact(Relu(), covariance, weights, 2)
    # In polar coordinates of two fields everything but the angle is elementary.
    for i, s in itertools.product(range(2), range(4)):
        if i == s:
            continue
        q, r, c = (float(covariance[x]) for x in ((i, i), (s, s), (i, s)))
        shift = np.arctan2(c, np.sqrt(q * r - c**2))
        angles, mass = panels([-shift, np.pi / 2], 40)
        # u_i = sqrt(q) R cos(angle'), u_s = sqrt(r) R sin(angle + shift); both are positive for these angles.
        if s < 2:
            np.testing.assert_allclose(found["slopes"][i, s], mass.sum() / (2 * np.pi), atol=1e-12)
        only = jnp.zeros(4).at[s].set(1.0)
        gradient = Relu().gradient(covariance, only, 2)[i]
        first, second = np.sqrt(q) * np.cos(angles), np.sqrt(r) * np.sin(angles + shift)
        moments = np.array([np.sum(mass * x * second) / np.pi for x in (first, second)])
        block = np.array([[q, c], [c, r]])
        for b in range(4):
            # Given these two fields, any other has its linear regression as mean.
            regression = np.linalg.solve(block, np.array([covariance[b, i], covariance[b, s]]))
            np.testing.assert_allclose(gradient[b], regression @ moments, atol=1e-11)


NEAR = [(0, 3), (0, 1), (2, 3)]


@pytest.mark.parametrize("gap", [1e-3, 1e-6])
@pytest.mark.parametrize(("first", "second"), NEAR)
def test_relu_averages_of_near_duplicates_are_those_of_quadrature(gap, first, second):
    generator = np.random.default_rng(first + 5 * second)
    factor = generator.normal(size=(4, 5))
    factor /= np.linalg.norm(factor, axis=1, keepdims=True)
    other = generator.normal(size=5)
    factor[second] = factor[first] + np.sqrt(2 * gap) * (
        other - other @ factor[first] * factor[first]
    ) / np.linalg.norm(other)
    covariance = factor @ factor.T
    correlation = covariance / np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    found = np.asarray(truncated_moments(jnp.asarray(correlation)))
    # The duplicate comes last: given the other, its sign is settled within a layer of its own small scale.
    order = [index for index in range(4) if index != second] + [second]
    scale = np.sqrt(gap)
    layered = panels([0, scale, 4 * scale, 10 * scale, 30 * scale, 1, 3, 8], 14)
    axes = [layered if index == first else panels([0, 3, 8], 20) for index in order[:-1]]
    for s, t in itertools.combinations(range(4), 2):
        expected = orthant_average(correlation[np.ix_(order, order)], order.index(s), order.index(t), axes)
        np.testing.assert_allclose(found[s, t], expected, rtol=0, atol=1e-8)


def planar(angles):
    """E[u_x u_y 1(u > 0)] of four fields in a plane: an integral over a sector."""
    low, high = max(angles) - np.pi / 2, min(angles) + np.pi / 2
    total = angles[:, None] + angles
    difference = np.cos(angles[:, None] - angles)
    return (
        max(high - low, 0)
        and ((high - low) * difference / 2 + (np.sin(2 * high - total) - np.sin(2 * low - total)) / 4) / np.pi
    )


@pytest.mark.parametrize("spread", [1.0, 1e-2, 1e-3, 1e-5, 1e-8, 0.0])
def test_relu_averages_of_fields_in_a_plane_are_integrals_over_a_sector(spread):
    generator = np.random.default_rng(12)
    for _ in range(10):
        angles = generator.uniform(0, 2 * np.pi) + spread * generator.uniform(-1, 1, size=4)
        found = truncated_moments(jnp.cos(angles[:, None] - angles))
        np.testing.assert_allclose(found, planar(angles), rtol=0, atol=1e-8)


@pytest.mark.parametrize("integrals", [Erf(), Relu(), Polynomial([0, -3, 0, 1])])
def test_duplicated_fields_are_one_field(integrals):
    covariance, _ = random_problem(13, 2, 2)
    # Students 0 and 2 are one; teachers 4 and 5 are student 1 and a teacher once more.
    lift = np.eye(4)[[0, 1, 0, 2, 1, 3, 3]]
    many = jnp.asarray(np.random.default_rng(14).normal(size=7))
    found = exact(integrals, jnp.asarray(lift) @ covariance @ lift.T, many, 3)
    merged = exact(integrals, covariance, jnp.asarray(lift.T) @ many, 2)
    students = lift[:3, :2]
    expected = {
        "outputs": lift @ merged["outputs"] @ lift.T,
        "slopes": students @ merged["slopes"] @ students.T,
        "gradient": students @ merged["gradient"] @ lift.T,
        "gradient_square": students @ merged["gradient_square"] @ students.T,
    }
    assert_close(found, expected, 1e-8)


@pytest.mark.parametrize("integrals", [Erf(), Relu()])
def test_derivatives_where_students_are_teachers_are_those_of_differences(integrals):
    generator = np.random.default_rng(15)
    teachers = generator.normal(size=(2, 6))
    factor = jnp.asarray(np.concatenate([teachers, teachers]) / np.sqrt(6))
    motion = jnp.asarray(generator.normal(size=(4, 6)))
    weights = jnp.array([-0.5, -0.7, 0.5, 0.9])

    def along(step):
        moved = factor + step * motion
        return exact(integrals, moved @ moved.T, weights, 2)

    direction = factor @ motion.T + motion @ factor.T
    found = derivative(integrals, factor @ factor.T, weights, 2, direction)
    step = 1e-5
    ahead, back = along(step), along(-step)
    assert_close(found, {key: (ahead[key] - back[key]) / (2 * step) for key in METHODS}, 1e-4)


def test_relu_derivatives_near_duplicates_are_those_of_differences():
    factor = np.random.default_rng(16).normal(size=(4, 5))
    factor[3] = factor[0] + 1e-3 * factor[3]
    covariance, weights = jnp.asarray(factor @ factor.T) / 5, jnp.array([-0.5, -0.7, 0.5, 0.9])
    motion = jnp.asarray(np.random.default_rng(17).normal(size=(4, 5)) * 1e-3)
    direction = motion @ factor.T / 5
    direction = direction + direction.T
    found = derivative(Relu(), covariance, weights, 2, direction)
    expected = directional(partial(closed_form, Relu()), covariance, weights, direction, 1e-3)
    for method in METHODS:
        np.testing.assert_allclose(found[method], expected[method], atol=1e-8)


# Activations by name or function.


def test_names_give_their_activation_with_its_known_kinks():
    for name, activation in named_activations().items():
        assert as_activation(name) is activation
        assert as_activation(activation) is activation
        # The kinks found numerically are those that are known.
        assert as_activation(activation.function).smooth == activation.smooth, name
        # Closed forms are those of names, and of functions that are linear on either side of zero.
        assert (as_activation(activation.function).integrals is None) == activation.smooth
    kinked = {name for name, activation in named_activations().items() if not activation.smooth}
    assert kinked == {"relu", "leaky_relu", "abs"}
    with pytest.raises(ValueError, match=r"no activation called 'rleu'.*erf.*relu.*any JAX function"):
        as_activation("rleu")


@pytest.mark.parametrize(
    ("function", "smooth"),
    [
        (lambda x: jnp.tanh(40 * x), True),
        (lambda x: jnp.exp(x), True),
        (lambda x: 3.0 * x + 1, True),
        (lambda x: jnp.sin(30 * x), True),
        (lambda x: 0 * x + 2.0, True),
        (lambda x: jnp.where(x > 0, x, 0.01 * x), False),
        (lambda x: jnp.clip(x, -1.0, 1.0), False),
        (lambda x: jnp.tanh(10 * x) + 0.05 * jnp.abs(x - 0.123), False),
        (lambda x: jnp.sign(x), False),
        (lambda x: jnp.maximum(x, 0.0) ** 2, False),
        (lambda x: jnp.maximum(x, 0.0) ** 3, True),
    ],
)
def test_kinks_of_functions_are_found(function, smooth):
    assert as_activation(function).smooth is smooth
    assert jax.jit(lambda x: x * as_activation(function).smooth)(1.0) == smooth


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: jnp.stack([x, x]), r"shape \(2,\).*single number"),
        (lambda x: (x, x), "tuple.*single number"),
        (lambda x: jnp.log(x), "value.*NaN"),
        (lambda x: jnp.sqrt(jnp.abs(x)), "derivative.*NaN"),
        (lambda x: x if x > 0 else 0.0, "could not be evaluated.*without Python branches"),
        (lambda x: x.astype(int), "could not be differentiated"),
        (lambda x, y: x, "could not be evaluated"),
        (3, "neither a name nor a function"),
    ],
)
def test_unusable_functions_are_refused_in_words(function, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        as_activation(function)
