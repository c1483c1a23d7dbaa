"""The Hessian from the State alone is that of the risk in all p d weights."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.linalg

import dimfree
from dimfree.analysis.critical_points import critical_points
from dimfree.analysis.landscape import hessian
from dimfree.analysis.symmetries import find_symmetries
from dimfree.analysis.weight_derivatives import relu_derivatives
from dimfree.simulation.vectors import embed

EXACT = 1e-8  # closed forms: what is left is rounding of the overlaps (1e-16 in Q is 1e-8 in the weights)


def spectrum(result) -> np.ndarray:
    return np.repeat(result.eigenvalues, result.multiplicities)


def state_of(students, teachers) -> dimfree.State:
    students, teachers = np.asarray(students, float), np.asarray(teachers, float)
    return dimfree.State(Q=students @ students.T, M=students @ teachers.T, P=teachers @ teachers.T)


def random_point(p, k, d, seed, norm=None):
    rng = np.random.default_rng(seed)
    students, teachers = rng.normal(size=(p, d)) / np.sqrt(d), rng.normal(size=(k, d)) / np.sqrt(d)
    return (students if norm is None else norm * students / np.linalg.norm(students, axis=1, keepdims=True)), teachers


# One program for all points of a problem: it is compiled far longer than it runs.
@eqx.filter_jit
def derivatives(risk, flat, *arguments):
    """The Hessian and the gradient of a risk in all weights."""
    return jax.hessian(risk)(flat, *arguments), jax.grad(risk)(flat, *arguments)


def risk_of_weights(flat, problem, teachers, sphere):
    X = flat.reshape(-1, teachers.shape[1])
    if sphere:
        # Constant along rays: on the tangent space its Hessian is the Riemannian one.
        X = X / jnp.linalg.norm(X, axis=1, keepdims=True)
    return problem.risk(dimfree.State(Q=X @ X.T, M=X @ teachers.T, P=teachers @ teachers.T))


def dense(problem, students, teachers, sphere=False):
    """All eigenvalues, and the norm of the gradient, by autodiff of the risk in all weights; W / sqrt(d) is X."""
    students, teachers = jnp.asarray(students, float), jnp.asarray(teachers, float)
    found = derivatives(risk_of_weights, students.reshape(-1), problem, teachers, sphere)
    matrix, gradient = (np.asarray(each) for each in found)
    if sphere:
        normals = np.asarray(jax.scipy.linalg.block_diag(*students))
        tangent = scipy.linalg.null_space(normals)
        matrix = tangent.T @ matrix @ tangent
    return np.linalg.eigvalsh(matrix), np.linalg.norm(gradient)


def assert_dense(problem, students, teachers, sphere=False, tolerance=EXACT):
    d = np.shape(students)[1]
    result = hessian(problem, state_of(students, teachers), d, sphere=sphere)
    eigenvalues, gradient = dense(problem, students, teachers, sphere)
    np.testing.assert_allclose(spectrum(result), eigenvalues, rtol=0, atol=tolerance)
    np.testing.assert_allclose(result.gradient_norm, gradient, rtol=0, atol=tolerance)
    return result


# Against the dense matrix.


@pytest.mark.parametrize(
    ("p", "k", "d"),
    [(3, 2, 6), pytest.param(4, 2, 4, marks=pytest.mark.slow), pytest.param(2, 3, 6, marks=pytest.mark.slow)],
)
def test_quadratic_critical_points_have_no_gradient_and_the_dense_hessian(p, k, d):
    problem = dimfree.TwoLayer(p, k, "square")
    for (s, r), state in dimfree.quadratic.critical_points(p, k).items():
        if r > d - k:
            continue
        teachers = np.eye(k, d)
        directions = np.concatenate([teachers[:s], np.eye(d)[k : k + r], np.zeros((p - s - r, d))])
        students = np.sqrt(np.diag(state.Q))[:, None] * directions
        np.testing.assert_allclose(state.covariance, state_of(students, teachers).covariance, atol=1e-15)
        result = assert_dense(problem, students, teachers)
        assert result.gradient_norm < 1e-12
        assert result.multiplicities.sum() == p * d
        expected = (k - s) / k**2 + (1 - s / k) ** 2 / (s + r + 2)
        np.testing.assert_allclose(result.risk, expected, atol=1e-13)
        # A direction leads down wherever one more student could learn a teacher.
        assert (result.negative > 0) == (s < min(p, k))
        # Rotations explain all flat directions but those of solutions.
        assert result.accidental == (0 if s < k else (d - k) * (p - k))


@pytest.mark.parametrize(
    ("activation", "sphere"), [("erf", False), ("relu", False), ("square", True), ("he3", True), ("relu", True)]
)
def test_random_points_have_the_dense_hessian(activation, sphere):
    # No critical point, no orthonormal teachers, unequal readouts, noise: nothing cancels.
    students, teachers = random_point(2, 1, 5, seed=1, norm=1.0 if sphere else None)
    problem = dimfree.TwoLayer(2, 1, activation, noise=0.3, readout=[1.3, -0.6], teacher_readout=[0.8])
    result = assert_dense(problem, students, teachers, sphere)
    assert not result.is_critical
    assert result.kind.startswith("not a critical point: the gradient has norm ")
    assert result.multiplicities.sum() == 2 * (4 if sphere else 5)


@pytest.mark.parametrize(
    ("activation", "students", "sphere", "kind"),
    [
        ("square", [[1, 0, 0, 0, 0], [0, 0, 1, 0, 0]], True, None),
        ("square", [[0, 0, 1, 0, 0], [0, 0, 0, 1, 0]], True, "saddle of index 2"),
        ("square", [[1, 0, 0, 0, 0], [-1, 0, 0, 0, 0]], True, "minimum"),
        ("erf", [[1, 0, 0, 0, 0], [0, 0, 1, 0, 0]], False, None),
        ("erf", [[1, 0, 0, 0, 0], [1, 0, 0, 0, 0]], False, None),
        ("erf", [[0, 0, 0, 0, 0], [0, 0, 0, 0, 0]], False, None),
        ("erf", [[-1, 0, 0, 0, 0], [-1, 0, 0, 0, 0]], True, "maximum"),
        ("he3", [[0, 1, 0, 0, 0], [0, 0, 1, 0, 0]], True, "flat to second order in all 8 directions"),
        ("he3", [[1, 0, 0, 0, 0], [0, 1, 0, 0, 0]], True, None),
        ("he3", [[0, 0, 0, 0, 0], [0, 0, 0, 0, 0]], False, None),
    ],
)
def test_singular_points_have_the_dense_hessian(activation, students, sphere, kind):
    # Duplicate, collapsed and learned students, one teacher.
    result = assert_dense(dimfree.TwoLayer(2, 1, activation), students, np.eye(1, 5), sphere)
    assert kind is None or result.kind.startswith(kind)


def test_more_fields_than_dimensions_have_the_dense_hessian():
    students, teachers = random_point(3, 2, 4, seed=5)
    result = assert_dense(dimfree.TwoLayer(3, 2, "erf"), students, teachers)
    assert not result.bulk.any()


# Phase retrieval and quadratic networks: known spectra. Loss e^2 / 2 and derivatives in W / sqrt(d), as here.


@pytest.mark.parametrize(
    ("Q", "M", "sphere", "eigenvalues", "multiplicities", "kind"),
    [
        (0.0, 0.0, False, [-6, -2], [1, 99], "maximum"),  # eq. (77), corrected
        (1 / 3, 0.0, False, [-4, 0, 4], [1, 98, 1], "saddle of index 1"),  # eq. (79), corrected
        (1.0, 1.0, False, [4, 12], [99, 1], "minimum"),  # eq. (81), corrected
        (1.0, 0.0, True, [-4, 0], [1, 98], "maximum, with flat directions: 98, all of symmetry"),  # eq. (93), corrected
        (1.0, -1.0, True, [4], [99], "minimum"),  # eq. (94), on the tangent space
        (1.0, 0.6, True, [4 * (2 * 0.36 - 1), 4 * 0.36], [1, 98], None),  # eq. (92), no critical point
    ],
)
def test_spectra_of_phase_retrieval(Q, M, sphere, eigenvalues, multiplicities, kind):
    result = hessian(dimfree.PhaseRetrieval(), dimfree.State(Q=[[Q]], M=[[M]]), d=100, sphere=sphere)
    np.testing.assert_allclose(result.eigenvalues, eigenvalues, atol=1e-12)
    np.testing.assert_array_equal(result.multiplicities, multiplicities)
    assert kind is None or result.kind == kind
    # The gradient on the sphere is -4 m (w* - m w).
    np.testing.assert_allclose(result.gradient_norm, 4 * abs(M) * np.sqrt(1 - M**2) if sphere else 0, atol=1e-8)


def combined(pairs):
    """Eigenvalues and multiplicities, with equal ones together and those that never occur left out."""
    table: dict[float, int] = {}
    for value, multiplicity in pairs:
        if multiplicity:
            table[round(value, 12)] = table.get(round(value, 12), 0) + multiplicity
    return sorted(table.items())


@pytest.mark.parametrize(("d", "p", "k"), [(12, 4, 2), (15, 5, 3), (12, 3, 1), (10**6, 4, 2)])
def test_spectra_of_quadratic_networks(d, p, k):
    # Bocchi et al. 2026, Section 7.2.2, whose loss is e^2: half of its eigenvalues.
    points = dimfree.quadratic.critical_points(p, k)
    expected = {
        (0, 0): [(-4 / p * (1 + 2 / k), p * k), (-4 / p, p * (d - k))],
        (0, p): [
            (-8 / (p * k), p * k),
            (8 / p, 1),
            (16 / (p * (p + 2)), p * (p - 1) // 2 + p - 1),
            (0, p * (d - k - p) + p * (p - 1) // 2),
        ],
        (k, 0): [
            (8 / (p * k), k * (d - k)),
            (16 / (p * k), k * (k + 1) // 2 - 1),
            (8 * (2 + k) / (p * k), 1),
            (0, (d - k) * (p - k) + k * (p - k) + k * (k - 1) // 2),
        ],
    }
    if k > 1:
        expected[1, 0] = [
            (-8 * (k - 1) / (3 * p * k), (d - k) * (p - 1)),
            (-8 * (k + 2) / (3 * p * k), (k - 1) * (p - 1)),
            (8 / (p * k), d - k),
            (8 * (2 + k) / (p * k), 1),
            (0, p + k - 2),
        ]
    for point, pairs in expected.items():
        result = hessian(dimfree.TwoLayer(p, k, "square"), points[point], d)
        table = combined((value / 2, multiplicity) for value, multiplicity in pairs)
        np.testing.assert_allclose(result.eigenvalues, [value for value, _ in table], atol=1e-11)
        np.testing.assert_array_equal(result.multiplicities, [multiplicity for _, multiplicity in table])
        assert result.multiplicities.sum() == p * d


@pytest.mark.parametrize(("d", "p", "k"), [(7, 4, 2), (9, 5, 1), (10**9, 6, 3), (8, 3, 3)])
def test_flat_directions_of_solutions(d, p, k):
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(p, p)))[0][:, :k]
    learned = dimfree.State(Q=p / k * rotation @ rotation.T, M=np.sqrt(p / k) * rotation)
    result = hessian(dimfree.TwoLayer(p, k, "square"), learned, d)
    assert result.symmetric == p * k - k * (k + 1) // 2
    assert result.accidental == (d - k) * (p - k)
    assert result.negative == 0
    assert result.kind.startswith("minimum to second order" if p > k else "minimum, with flat directions: 3, all of")


def test_risk_along_flat_directions_that_are_no_symmetry():
    # R = (3/2) epsilon^4 / p^2: what makes over-parametrised networks learn as a power of time.
    p, k, d = 4, 2, 9
    rng = np.random.default_rng(3)
    rotation = np.linalg.qr(rng.normal(size=(p, p)))[0]
    teachers = np.eye(k, d)
    learned = np.sqrt(p / k) * rotation[:, :k] @ teachers
    move = np.outer(rotation[:, k:] @ [0.6, 0.8], np.eye(d)[5])
    problem = dimfree.TwoLayer(p, k, "square")
    for epsilon in (0.1, 0.3, 1.0):
        risk = problem.risk(state_of(learned + epsilon * move, teachers))
        np.testing.assert_allclose(risk, 1.5 * epsilon**4 / p**2, rtol=1e-10)


# ReLU: finite second derivatives where students and teachers coincide.


def relu_risk(vectors, weights):
    """The risk of a ReLU network in the arithmetic of mpmath."""
    total = mpmath.mpf(0)
    for (v, a), (w, b) in itertools.product(zip(vectors, weights, strict=True), repeat=2):
        product, lengths = mpmath.fdot(v, w), mpmath.sqrt(mpmath.fdot(v, v) * mpmath.fdot(w, w))
        cosine = max(min(product / lengths, mpmath.mpf(1)), mpmath.mpf(-1))
        sine = mpmath.sqrt(1 - cosine**2)
        total += a * b * (lengths * sine + product * (mpmath.pi - mpmath.acos(cosine))) / (2 * mpmath.pi)
    return total / 2


def relu_dense(students, teachers, weights):
    """The Hessian by second differences in 60 digits; step 1e-15 because the risk has cubic kinks there."""
    with mpmath.workdps(60):
        step, size = mpmath.mpf(10) ** -15, students.size

        def risk(*moves):
            moved = [mpmath.mpf(x) for x in students.reshape(-1)]
            for index, sign in moves:
                moved[index] += sign * step
            d = students.shape[1]
            rows = [moved[i : i + d] for i in range(0, size, d)]
            return relu_risk([*rows, *([mpmath.mpf(x) for x in row] for row in teachers)], list(weights))

        matrix = np.zeros((size, size))
        for a, b in itertools.combinations_with_replacement(range(size), 2):
            signs = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
            total = sum(s * t * risk((a, s), (b, t)) for s, t in signs)
            matrix[a, b] = matrix[b, a] = float(total / (4 * step**2))
        return matrix


@pytest.mark.parametrize(
    ("students", "kind"),
    [
        ([[1, 0, 0], [0, 1, 0]], "minimum"),
        ([[0.6, 0.8, 0], [0.6, 0.8, 0]], "not"),
        ([[-0.5, 0, 0], [0.25, 0, 0]], "not"),
        ([[0.4, -0.3, 0.2], [0.1, 0.9, 0.5]], "not"),
    ],
    ids=["global minimum", "parallel", "opposite", "generic"],
)
def test_relu_hessian_is_that_of_differences_also_where_students_coincide(students, kind):
    students, teachers = np.asarray(students, float), np.eye(2, 3)
    problem = dimfree.TwoLayer(2, 2, "relu")
    matrix = relu_dense(students, teachers, np.array([0.5, 0.5, -0.5, -0.5]))
    result = hessian(problem, state_of(students, teachers), 3)
    np.testing.assert_allclose(spectrum(result), np.linalg.eigvalsh(matrix), rtol=0, atol=EXACT)
    assert result.kind.startswith(kind)
    # The same matrix entry by entry, not only its spectrum.
    _, full, _ = relu_derivatives(
        jnp.asarray(np.concatenate([students, teachers])), jnp.array([0.5, 0.5, -0.5, -0.5]), width=2
    )
    np.testing.assert_allclose(full.reshape(6, 6), matrix, rtol=0, atol=1e-12)


def test_relu_gradient_is_that_of_autodiff_and_the_bulk_is_a_block():
    students, teachers = random_point(3, 2, 7, seed=8)
    vectors = jnp.asarray(np.concatenate([students, teachers]))
    problem = dimfree.TwoLayer(3, 2, "relu")
    gradient, full, bulk = relu_derivatives(vectors, jnp.array([1 / 3] * 3 + [-1 / 2] * 2), width=3)

    def risk(X):
        return problem.risk(dimfree.State(X @ X.T, X @ teachers.T, teachers @ teachers.T))

    np.testing.assert_allclose(gradient, jax.grad(risk)(jnp.asarray(students)), atol=1e-12)
    # In a direction orthogonal to all vectors the full Hessian is the bulk block.
    direction = scipy.linalg.null_space(np.asarray(vectors))[:, 0]
    np.testing.assert_allclose(np.einsum("iajb,a,b->ij", full, direction, direction), bulk, atol=1e-13)


def test_relu_spectrum_does_not_depend_on_the_dimension():
    # At the global minimum with as many students as teachers no direction is flat, whatever d is.
    problem, learned = dimfree.TwoLayer(3, 3, "relu"), dimfree.State(Q=np.eye(3), M=np.eye(3))
    small, large = hessian(problem, learned, 5), hessian(problem, learned, 10**6)
    np.testing.assert_allclose(small.eigenvalues, large.eigenvalues, atol=1e-12)
    assert large.multiplicities.sum() == 3 * 10**6
    assert large.kind == "minimum"
    # In the bulk: I/4 + J/4 over k^2 = 9, from E[1(u > 0) 1(v > 0)] = 1/2 and 1/4; and the kinks sum to zero.
    np.testing.assert_allclose(large.eigenvalues[large.bulk > 0], [1 / 36, 1 / 9], atol=1e-12)


# Activations and losses without closed forms.


def grid(d):
    """Points and weights of the trapezoidal rule for a standard normal x in d dimensions."""
    line = np.arange(-7.5, 7.51, 0.3)
    density = np.exp(-(line**2) / 2) / np.sqrt(2 * np.pi) * 0.3
    points = np.stack(np.meshgrid(*[line] * d, indexing="ij"), axis=-1).reshape(-1, d)
    weights = np.prod(np.stack(np.meshgrid(*[density] * d, indexing="ij"), axis=-1).reshape(-1, d), axis=1)
    return jnp.asarray(points), jnp.asarray(weights)


def risk_on_grid(flat, problem, teachers, points, weights):
    X = flat.reshape(-1, teachers.shape[1])
    losses = jax.vmap(problem.loss, in_axes=(0, 0, None, None))(
        points @ X.T, points @ teachers.T, jnp.zeros(()), problem.readout
    )
    return weights @ losses


def dense_on_grid(problem, students, teachers):
    """The Hessian of a loss without noise, as the mean of second derivatives in the weights, over inputs x."""
    flat, teachers = jnp.asarray(students, float).reshape(-1), jnp.asarray(teachers)
    matrix, _ = derivatives(risk_on_grid, flat, problem, teachers, *grid(students.shape[1]))
    return np.linalg.eigvalsh(matrix)


@pytest.mark.parametrize(
    "students",
    [
        [[0.9, 0.1, -0.2], [0.3, -0.5, 0.4]],
        [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]],
        [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]],
        [[0.8, 0.0, 0.0], [-0.5, 0.0, 0.0]],
    ],
    ids=["generic", "learned", "collapsed", "opposite"],
)
def test_tanh_hessian_is_that_of_a_grid_over_inputs(students):
    students, teachers = np.asarray(students), np.eye(1, 3)
    problem = dimfree.TwoLayer(2, 1, "tanh")
    result = hessian(problem, state_of(students, teachers), 3)
    np.testing.assert_allclose(spectrum(result), dense_on_grid(problem, students, teachers), rtol=0, atol=EXACT)


def own_loss(student, teacher, noise, readout):
    return 0.5 * (jnp.sin(student[0]) + 0.3 * student[1] ** 2 - jnp.cos(teacher[0])) ** 2


@pytest.mark.parametrize(
    ("students", "critical"),
    [([[0.4, 0.3, 0.0], [0.2, -0.3, 0.5]], False), ([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]], True)],
)
def test_hessian_of_a_users_loss_is_that_of_a_grid_over_inputs(students, critical):
    students, teachers = np.asarray(students), np.eye(1, 3)
    problem = dimfree.LocalFields(own_loss, width=2, teacher_width=1)
    result = hessian(problem, state_of(students, teachers), 3)
    # The rule has 32 nodes (16 with the noise as fourth direction): enough for entire functions of moderate growth.
    np.testing.assert_allclose(spectrum(result), dense_on_grid(problem, students, teachers), rtol=0, atol=EXACT)
    assert result.is_critical == critical


@pytest.mark.slow
def test_multi_index_agrees_with_two_layer():
    students, teachers = random_point(2, 1, 5, seed=2, norm=1.0)
    link = dimfree.MultiIndex(lambda fields: fields[0] ** 3 - 3 * fields[0], 2, 1, "he3")
    known = dimfree.TwoLayer(2, 1, "he3")
    for sphere in (False, True):
        one, two = (hessian(problem, state_of(students, teachers), 5, sphere=sphere) for problem in (link, known))
        np.testing.assert_allclose(spectrum(one), spectrum(two), rtol=0, atol=1e-8)


@pytest.mark.slow
def test_many_fields_by_quasi_monte_carlo():
    # Five directions with the noise: Sobol points, few digits, and a tolerance that says so.
    def loss(student, teacher, noise, readout):
        return 0.5 * (jnp.mean(student**2) - jnp.mean(teacher**2)) ** 2

    sampled, known = dimfree.LocalFields(loss, 2, 2), dimfree.TwoLayer(2, 2, "square")
    for point in ((0, 2), (2, 0)):
        state = dimfree.quadratic.critical_points(2, 2)[point]
        one, two = hessian(sampled, state, 7), hessian(known, state, 7)
        assert np.abs(spectrum(one) - spectrum(two)).max() < one.tolerance < 0.2
        assert (one.negative, one.symmetric, one.positive) == (two.negative, two.symmetric, two.positive)


def test_hessian_of_a_relu_student_of_another_teacher():
    """E[relu(u) tanh(v)] is M E[tanh'(v)] / 2: linear in the weights, so that the student's own 1/2 is all there is."""
    result = hessian(dimfree.TwoLayer(1, 1, "relu", teacher_activation="tanh"), state_of([[0.8, 0.3]], np.eye(1, 2)), 2)
    np.testing.assert_allclose(spectrum(result), 0.5, atol=result.tolerance)
    assert result.tolerance < 0.1


def test_hessian_of_a_loss_with_kinks_is_right_within_its_tolerance():
    # In closed form for a network; by Sobol points for the same loss as a user's own, whose tolerance covers the error.
    students, teachers = np.array([[0.9, 0.5, 0.0]]), np.eye(1, 3)
    own = dimfree.LocalFields(lambda u, v, z, a: 0.5 * (jnp.abs(u[0]) - jnp.abs(v[0])) ** 2, 1, 1)
    closed, result = (hessian(each, state_of(students, teachers), 3) for each in (dimfree.TwoLayer(1, 1, "abs"), own))

    def risk(x):
        # E|u||v| = (2/pi) (root + C arcsin(rho)).
        q, m = x @ x, x[0]
        return 0.5 * (q + 1) - 2 / np.pi * (jnp.sqrt(q - m**2) + m * jnp.arctan2(m, jnp.sqrt(q - m**2)))

    exact = np.linalg.eigvalsh(jax.hessian(risk)(jnp.asarray(students[0])))
    np.testing.assert_allclose(spectrum(closed), exact, atol=EXACT)
    assert np.abs(spectrum(result) - exact).max() < result.tolerance < 0.25
    with pytest.raises(dimfree.InvalidInput, match="kink"):
        hessian(dimfree.TwoLayer(1, 1, "abs"), dimfree.State(Q=[[1.0]], M=[[1.0]]), 3)


# Symmetries.


@pytest.mark.parametrize(
    ("activation", "readout", "teacher_readout", "left", "inner", "relevant"),
    [
        # The sum of readout x field^2 is kept by the orthogonal group, or by O(2, 1).
        ("square", [1, 1, 1], [1, 1], 3, 1, 2),
        ("square", [1, 2, 0.5], [1, 2], 3, 0, 2),
        ("square", [1, -1, 1], [1, 0], 3, 0, 1),
        # The mean of the students alone matters: all B whose columns sum to zero. And the mean of the teachers.
        ("linear", [1, 1, 1], [1, 1], 6, 0, 1),
        ("erf", [1, 1, 1], [1, 1], 0, 0, 2),
        ("he3", [1, 1, 1], [1, 1], 0, 0, 2),
        ("relu", [1, 1, 1], [1, 0], 0, 0, 1),
    ],
)
def test_symmetries_are_found(activation, readout, teacher_readout, left, inner, relevant):
    problem = dimfree.TwoLayer(3, 2, activation, readout=readout, teacher_readout=teacher_readout)
    teachers = jnp.eye(2, 5)

    def gradients(points):
        def risk(X):
            return problem.risk(dimfree.State(X @ X.T, X @ teachers.T))

        return np.asarray(jax.jit(lambda many: jax.lax.map(jax.grad(risk), many))(points))

    found = find_symmetries(gradients, width=3, teacher_rank=2)
    assert (len(found.left), len(found.inner), found.relevant.shape[1]) == (left, inner, relevant)
    if activation == "square":
        form = np.diag(readout)
        for generator in found.left:
            np.testing.assert_allclose(form @ generator + generator.T @ form, 0, atol=1e-9)


@pytest.mark.slow
def test_flat_directions_of_unequal_readouts_are_symmetric_too():
    problem = dimfree.TwoLayer(2, 1, "square", readout=[1.0, 2.0])
    points = critical_points(problem, 8, key=jax.random.key(1), starts=24)
    plateaus = [result for state, result in points if np.linalg.eigvalsh(state.Q)[0] > 0.1 and result.risk > 0.1]
    assert len(plateaus) == 1
    assert plateaus[0].symmetric == plateaus[0].flat == 2 * (8 - 1 - 2) + 1


# Finding critical points.


@pytest.mark.parametrize(
    ("p", "k"), [(2, 1), pytest.param(2, 2, marks=pytest.mark.slow), pytest.param(3, 2, marks=pytest.mark.slow)]
)
def test_search_finds_members_of_the_list_only(p, k):
    known = dimfree.quadratic.critical_points(p, k)
    problem = dimfree.TwoLayer(p, k, "square")
    table = {
        (s, r): np.array([problem.risk(state), *np.linalg.eigvalsh(state.Q), *np.linalg.svd(state.M)[1]])
        for (s, r), state in known.items()
    }
    found = critical_points(problem, 20, key=jax.random.key(0), starts=64)
    hits = set()
    for state, result in found:
        mine = np.array([result.risk, *np.linalg.eigvalsh(state.Q), *np.linalg.svd(state.M)[1]])
        distances = {point: np.abs(mine - theirs).max() for point, theirs in table.items()}
        best = min(distances, key=distances.__getitem__)
        assert distances[best] < 1e-6
        assert best not in hits  # listed once
        hits.add(best)
        reference = hessian(problem, known[best], 20)
        np.testing.assert_array_equal(result.multiplicities, reference.multiplicities)
        np.testing.assert_allclose(result.eigenvalues, reference.eigenvalues, atol=1e-7)
        assert (result.symmetric, result.kind) == (reference.symmetric, reference.kind)
    # The solution and the tabula rasa are always among them.
    assert {(k, 0), (0, 0)} <= hits
    assert [result.risk for _, result in found] == sorted(result.risk for _, result in found)


@pytest.mark.parametrize("activation", ["relu", pytest.param("erf", marks=pytest.mark.slow)])
def test_search_on_the_sphere_finds_minimum_and_saddle(activation):
    problem = dimfree.TwoLayer(2, 2, activation)
    found = critical_points(problem, 6, key=jax.random.key(2), starts=48, sphere=True)
    assert found[0][1].kind == "minimum"
    assert abs(found[0][1].risk) < 1e-12
    # Between the two ways to match students and teachers lies the saddle where each student sees both alike.
    assert any(result.kind == "saddle of index 1" and np.ptp(state.M) < 1e-6 for state, result in found)
    for state, result in found:
        assert result.gradient_norm < 1e-8
        np.testing.assert_allclose(np.diag(state.Q), 1, atol=1e-12)
        if activation == "erf":
            vectors = embed(state, problem.inputs, 6)
            students, teachers = (np.asarray(vectors[name]) / np.sqrt(6) for name in ("students", "teachers"))
            assert_dense(problem, students, teachers, sphere=True, tolerance=1e-7)


@pytest.mark.parametrize(("p", "k"), [(5, 3), (2, 5)])
def test_listed_quadratic_critical_points_are_all_and_critical(p, k):
    points = dimfree.quadratic.critical_points(p, k)
    assert len(points) == sum(p - s + 1 if s < k else 1 for s in range(min(p, k) + 1))
    problem = dimfree.TwoLayer(p, k, "square", noise=0.2)

    @jax.jit
    def gradient(Q, M):
        # In weights: 2 dR/dQ X + dR/dM T, whose overlaps with students and teachers are these.
        slope_Q, slope_M = jax.grad(lambda Q, M: problem.risk(dimfree.State(Q, M)), argnums=(0, 1))(Q, M)
        return 2 * slope_Q @ Q + slope_M @ M.T, 2 * slope_Q @ M + slope_M

    for state in points.values():
        for part in gradient(state.Q, state.M):
            np.testing.assert_allclose(part, 0, atol=1e-12)


# What is refused, and how it prints.


def test_the_spectrum_prints_as_a_table():
    text = str(hessian(dimfree.TwoLayer(4, 2, "square"), dimfree.quadratic.critical_points(4, 2)[2, 0], d=3_000))
    assert text.splitlines()[0] == "Minimum to second order, with flat directions: 5 of symmetry, 5996 not."
    assert "negative 0, flat 6001 (5 of symmetry), positive 5999" in text
    rows = [line.split() for line in text.splitlines()[5:]]
    assert [row[1:] for row in rows] == [
        ["6001", "5996", "5"],
        ["5996", "5996", "0"],
        ["2", "0", "2"],
        ["1", "0", "1"],
    ]
    np.testing.assert_allclose([float(row[0]) for row in rows], [0, 0.5, 1, 2], atol=1e-12)


def test_what_has_no_hessian_is_refused_in_words():
    problem = dimfree.TwoLayer(2, 3, "erf")
    state = dimfree.State(Q=np.eye(2), M=np.zeros((2, 3)))
    with pytest.raises(dimfree.InvalidInput, match="3 independent directions, which do not fit in d = 2"):
        hessian(problem, state, 2)
    with pytest.raises(dimfree.InvalidInput, match="rank 5"):
        hessian(problem, state, 4)
    with pytest.raises(dimfree.InvalidInput, match="No weights have these overlaps"):
        hessian(dimfree.PhaseRetrieval(), dimfree.State(Q=[[1.0]], M=[[1.2]]), 10)
    with pytest.raises(dimfree.InvalidInput, match="p = 2 students"):
        hessian(dimfree.TwoLayer(3, 3), state, 10)
    with pytest.raises(dimfree.InvalidInput, match="sphere=True"):
        hessian(dimfree.PhaseRetrieval(), dimfree.State(Q=[[0.5]], M=[[0.1]]), 10, sphere=True)
    with pytest.raises(dimfree.InvalidInput, match="norm zero"):
        hessian(dimfree.TwoLayer(1, 1, "relu"), dimfree.State(Q=[[0.0]], M=[[0.0]]), 10)
    with pytest.raises(dimfree.InvalidInput, match="outside of jit"):
        jax.jit(lambda Q: hessian(dimfree.PhaseRetrieval(), dimfree.State(Q=Q, M=[[0.0]]), 10).risk)(jnp.eye(1))
    with pytest.raises(dimfree.InvalidInput, match="whole number, at least 2"):
        hessian(dimfree.PhaseRetrieval(), dimfree.State(Q=[[1.0]], M=[[1.0]]), 1, sphere=True)
    with pytest.raises(dimfree.InvalidInput, match="kinks"):
        critical_points(dimfree.TwoLayer(2, 1, "abs"), 10, key=jax.random.key(0))
    with pytest.raises(dimfree.InvalidInput, match="do not fit in d = 2"):
        critical_points(problem, 2, key=jax.random.key(0))
