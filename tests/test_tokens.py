"""Samples of several inputs: against loops on vectors, quadrature, runs, and the limit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dimfree
from dimfree import InvalidInput, LocalFields, OnlineSGD, Spectrum, State, registry
from dimfree.cli.problem_options import stated
from dimfree.gaussian.rules import Averaging, UnorderedHermite, unordered_hermite
from dimfree.problems import Draws
from dimfree.simulation.vectors import advance

THREE = Spectrum([4.0, 1.0, 0.5], [0.2, 0.3, 0.5])
R3 = np.array([[1.0, 0.6, -0.2], [0.6, 1.0, 0.3], [-0.2, 0.3, 1.0]])
R2 = np.array([[1.0, 0.5], [0.5, 1.0]])


# The losses again, each in NumPy with its derivative by the student fields, in formulas of their own.


def softmax(rows):
    weights = np.exp(rows - rows.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def softmax_slopes(student, teacher, noise):
    a, b = softmax(student.T).T, softmax(teacher.T).T
    means, outputs = np.sum(a * student, axis=0), np.sum(b * teacher, axis=0)
    error = means.mean() - outputs.mean() - np.sqrt(0.2) * noise
    return error * a * (1 + student - means) / student.shape[1]


def attention_slopes(student, teacher, noise, rank, tied):
    def parts(fields):
        queries, keys = (fields, fields) if tied else (fields[:, :rank], fields[:, rank:])
        return queries, keys, softmax(queries @ keys.T / np.sqrt(rank))

    queries, keys, found = parts(student)
    error = (found - parts(teacher)[2]) / len(student)
    scores = found * (error - np.sum(error * found, axis=1, keepdims=True)) / np.sqrt(rank)
    by_query, by_key = scores @ keys, scores.T @ queries
    return by_query + by_key if tied else np.concatenate([by_query, by_key], axis=1)


def pair_slopes(student, teacher, noise):
    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    p, k = student.shape[1], teacher.shape[1]
    similarity, agreement = student[0] @ student[1] / np.sqrt(p), teacher[0] @ teacher[1] / np.sqrt(k)
    return (sigmoid(similarity) - sigmoid(agreement)) * student[::-1] / np.sqrt(p)


def patch_slopes(student, teacher, noise):
    error = np.mean(student**2) - np.mean(teacher**2) - np.sqrt(0.1) * noise
    return error * 2 * student / student.size


PROBLEMS = {
    "softmax": (dimfree.SequenceIndex("softmax", R3, width=2, noise=0.2), R3, softmax_slopes),
    "tied": (dimfree.Attention(R3, rank=2), R3, lambda *given: attention_slopes(*given, 2, True)),
    "untied": (dimfree.Attention(R3, tied=False), R3, lambda *given: attention_slopes(*given, 1, False)),
    "pair": (dimfree.ContrastivePair(0.5, width=2), R2, pair_slopes),
    "patches": (dimfree.TwoLayer(2, 1, "square", noise=0.1, tokens=R3), R3, patch_slopes),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_steps_are_those_of_a_loop_in_numpy(name):
    """Two steps on batches of three samples, at a moved point and with momentum, on inputs with a spectrum."""
    problem, R, slopes_of = PROBLEMS[name]
    rng, d, batch, L, p = np.random.default_rng(3), 20, 3, len(R), problem.width
    algorithm = dimfree.MovedGradient(dimfree.Momentum(0.7, 1.5, 2.0, batch_size=batch, ridge=0.3), 0.4)
    scales = np.sqrt(np.repeat(np.asarray(THREE.eigenvalues), np.asarray(THREE.sizes(d)).astype(int)))
    weights, teacher = rng.normal(size=(p, d)), rng.normal(size=(problem.teacher_width, d))
    vectors = {"students": jnp.asarray(weights), "teachers": jnp.asarray(teacher), "momentum": jnp.zeros((p, d))}
    moving, memory = (vectors, None, {}), np.zeros((p, d))
    for step in range(2):
        normals, noise = rng.normal(size=(batch, L, d)), rng.normal(size=batch)
        draws = Draws(jnp.asarray(normals.reshape(-1, d)), jnp.asarray(noise), jnp.zeros(batch))
        moving, _ = advance(problem.with_inputs(THREE), algorithm, *moving, draws, jnp.asarray(step * batch / d))
        x = np.linalg.cholesky(R) @ (scales * normals)

        def gradient(at, x=x, noise=noise):
            total = np.zeros((p, d))
            for sample, number in zip(x, noise, strict=True):
                fields = sample @ at.T / np.sqrt(d), sample @ teacher.T / np.sqrt(d)
                total += slopes_of(*fields, number).T @ sample
            return total / (batch * np.sqrt(d))

        found = gradient(weights - 0.4 * gradient(weights)) + 0.3 / d * weights
        weights, memory = weights - 0.7 * found - 1.5 / d * memory, (1 - 2.0 / d) * memory + found
    np.testing.assert_allclose(moving[0]["students"], weights, rtol=0, atol=1e-12)


def links(fields):
    """The named links, in NumPy: averages over the directions, which are the columns."""
    return {
        "softmax": np.mean(np.sum(softmax(fields.T).T * fields, axis=0)),
        "logsumexp": np.mean(np.log(np.sum(np.exp(fields), axis=0))),
        "square": np.mean(np.sum(fields**2, axis=0) / len(fields)),
    }


@pytest.mark.parametrize("link", ["softmax", "logsumexp", "square"])
def test_a_named_link_is_its_formula(link):
    """Of three inputs, for two directions of the student and one of the teacher; the noise alone is left of both."""
    student, teacher = (np.random.default_rng(5).normal(size=(3, n)) for n in (2, 1))
    problem = dimfree.SequenceIndex(link, 3, width=2, noise=0.2)
    expected = 0.5 * (links(student)[link] - links(teacher)[link] - np.sqrt(0.2) * 0.7) ** 2
    np.testing.assert_allclose(
        problem.loss(jnp.asarray(student), jnp.asarray(teacher), 0.7, None), expected, rtol=1e-12
    )
    same = jnp.asarray(teacher)
    left = [float(dimfree.SequenceIndex(link, 3, noise=0.2).loss(same, same, z, None)) for z in (-1.0, 1.0)]
    np.testing.assert_allclose(problem.irreducible_risk, np.mean(left), rtol=1e-12)  # E[z^2] = 1


@pytest.mark.parametrize("tied", [True, False])
def test_attention_of_another_rank_than_the_teacher_s(tied):
    """Either has the square root of its own rank, and keys behind all of its own queries."""
    problem = dimfree.Attention(3, rank=1, teacher_rank=2, tied=tied)
    rng, given = np.random.default_rng(5), []
    for rank, width in ((1, problem.width), (2, problem.teacher_width)):
        assert width == (rank if tied else 2 * rank)
        fields = rng.normal(size=(3, width))
        given.append((fields, softmax(fields[:, :rank] @ fields[:, -rank:].T / np.sqrt(rank))))
    (student, found), (teacher, expected) = given
    loss = problem.loss(jnp.asarray(student), jnp.asarray(teacher), 0.0, None)
    np.testing.assert_allclose(loss, np.sum((found - expected) ** 2) / 6, rtol=1e-12)


STATE = State(Q=[[1.1]], M=[[0.4]])


@pytest.mark.parametrize(
    ("activation", "tokens", "rule", "error"),
    [
        ("erf", R2, dimfree.GaussHermite(28), 5e-6),  # each four nodes more make a fifth of the error
        ("square", 2, dimfree.GaussHermite(6), 1e-12),
        ("square", R2, dimfree.GaussHermite(6), 1e-12),
        pytest.param("relu", 2, dimfree.Sobol(2**15), 3e-3, marks=pytest.mark.slow),
        pytest.param("relu", R2, dimfree.Sobol(2**15), 3e-3, marks=pytest.mark.slow),
    ],
    ids=["erf, correlated", "square", "square, correlated", "relu", "relu, correlated"],
)
def test_patches_in_closed_form_are_quadrature(activation, tokens, rule, error):
    problem = dimfree.TwoLayer(1, 1, activation, noise=0.3, tokens=tokens)
    known, found = (problem.mean_moments(STATE, Averaging(rule=each)) for each in (None, rule))
    assert known.readout is not None
    for one, other in zip(jax.tree.leaves(known), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(one, other, rtol=error)
    risks = [float(problem.risk(STATE, rule=each)) for each in (None, rule)]
    np.testing.assert_allclose(*risks, rtol=error)


def test_the_gradient_of_correlated_inputs_is_as_long_as_on_vectors():
    """E[|g|^2] and E[s u] over 40,000 samples in d = 50; five standard errors, a false alarm in 10^6.

    The terms between different inputs are a third of the first.
    """
    L, d, number, rng = 3, 50, 40_000, np.random.default_rng(0)
    R = 0.4 * np.eye(L) + 0.6
    problem = dimfree.SequenceIndex("softmax", R)
    weights = np.zeros((2, d))
    weights[0, :2], weights[1, 0] = np.sqrt(d) * np.array([0.4, np.sqrt(1.1 - 0.16)]), np.sqrt(d)
    x = np.linalg.cholesky(R) @ rng.normal(size=(number, L, d))
    fields = x @ weights.T / np.sqrt(d)
    a, b = softmax(fields[..., 0]), softmax(fields[..., 1])
    error = np.sum(a * fields[..., 0], axis=1) - np.sum(b * fields[..., 1], axis=1)
    slopes = error[:, None] * a * (1 + fields[..., 0] - np.sum(a * fields[..., 0], axis=1, keepdims=True))
    squares = np.sum(np.einsum("nl,nld->nd", slopes, x) ** 2, axis=1) / d
    measured = {
        "square": squares,
        "student": np.sum(slopes * fields[..., 0], axis=1),
        "teacher": np.sum(slopes * fields[..., 1], axis=1),
    }
    moments = problem.mean_moments(STATE, Averaging())
    for name, values in measured.items():
        mean, deviation = values.mean(), values.std() / np.sqrt(number)
        # In dimension d the fields see L (p + k) of d coordinates: a bias of that size over d in the length alone.
        allowed = 5 * deviation + (0.1 * mean if name == "square" else 0.0)
        assert abs(float(getattr(moments, name)[0, 0]) - mean) < allowed, (name, mean, deviation)
    without = np.mean(np.sum(slopes**2, axis=1))
    assert without < 0.8 * float(moments.square[0, 0])  # what is left without the terms between inputs


def seen_or_not(student, teacher, noise, readout):
    return (student[0, 0] + 0.5 * student[1, 0] * student[0, 1] - 0.3 * student[1, 1]) ** 4 / 50


class Blind(LocalFields):
    """A loss that does not see the teacher, and says so."""

    @property
    def sees_teacher(self) -> bool:
        return False


def test_teacher_moments_by_parts_are_plain_averages():
    """Stein's lemma with correlated inputs, against quadrature over all fields."""
    state = State(Q=[[1.0, 0.2], [0.2, 0.8]], M=[[0.5], [-0.3]])
    by = Averaging(rule=dimfree.GaussHermite(8))
    blind = Blind(seen_or_not, 2, 1, tokens=R2).mean_moments(state, by)
    # The teacher fields given the student fields: the same for each input.
    regression = np.linalg.solve(np.asarray(state.Q), np.asarray(state.M))
    np.testing.assert_allclose(blind.teacher, np.asarray(blind.student) @ regression, rtol=1e-11)
    assert abs(float(blind.teacher[0, 0])) > 0.1


class InAnyOrder(dimfree.SequenceIndex):
    """Averages over few nodes, each set of them once."""

    def _chosen_rule(self, tolerance, dimension, power, smooth):
        return UnorderedHermite(7, 2)


def test_sets_of_nodes_are_better_than_they_say():
    """Gauss-Hermite nodes in any order of two inputs against grids, at ten States."""
    limits = [dimfree.ode(kind("logsumexp", 2), OnlineSGD(1.0)) for kind in (dimfree.SequenceIndex, InAnyOrder)]
    for seed in range(10):
        state = dimfree.random_state(limits[0].problem, 4, key=jax.random.key(seed), norm=0.6 + 0.1 * seed)
        exact, found = (np.asarray(limit.coordinates.pack(limit.drift(0.0, state))) for limit in limits)
        assert np.max(np.abs(found - exact)) < float(limits[1].expectation_error(state)) < 0.05, seed


def test_one_field_of_each_input_has_no_sets_of_nodes():
    assert unordered_hermite(3, 1, 1e-6) is None
    assert unordered_hermite(3, 2, 1e-6) is not None


REFUSED = {
    "mean field": lambda problem: dimfree.mean_field(problem, OnlineSGD(0.1)),
    "equations": lambda problem: dimfree.equations(problem, OnlineSGD(0.1)),
    "Hessian": lambda problem: dimfree.hessian(problem, STATE, d=100),
    "information exponent": lambda problem: dimfree.information_exponent(problem),
    "DMFT": lambda problem: dimfree.dmft(problem, dimfree.GradientDescent(0.1, 2.0)),
    "reused data": lambda problem: dimfree.simulate(
        problem, dimfree.GradientDescent(0.1, 2.0), STATE, 50, 1.0, runs=1, key=jax.random.key(0)
    ),
    "regimes": lambda problem: dimfree.regimes(problem, OnlineSGD(0.1), 100, 1.0, key=jax.random.key(0)),
    "gain of width": lambda problem: dimfree.overparameterisation_gain(
        problem, OnlineSGD(0.1), 100, key=jax.random.key(0)
    ),
    "mean": lambda problem: dimfree.exact_mean(problem, OnlineSGD(0.1), STATE, 100, 1.0),
    "coordinates": lambda problem: dimfree.ode(problem, dimfree.Adam(0.1, beta2=0.99)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_known_for_one_input_only_says_so(name):
    with pytest.raises(InvalidInput, match=r"3 inputs|several inputs"):
        REFUSED[name](dimfree.TwoLayer(1, 1, "square", tokens=3))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: dimfree.SequenceIndex("softmin", 3), "'softmax', 'logsumexp', 'square'"),
        (lambda: dimfree.SequenceIndex(None, 3), "choose one of"),
        (lambda: dimfree.SequenceIndex(lambda u: u, 3), "single number"),
        (lambda: dimfree.SequenceIndex("softmax", None), "how many inputs"),
        (lambda: dimfree.SequenceIndex("softmax", 0), "tokens = 0"),
        (lambda: dimfree.SequenceIndex("softmax", 3, noise=-1.0), "noise"),
        (lambda: dimfree.SequenceIndex("softmax", [[1.0, 2.0], [2.0, 1.0]]), "no inputs have these correlations"),
        (lambda: dimfree.SequenceIndex("softmax", [1.0, 0.2]), "shape"),
        (lambda: dimfree.Attention(3, rank=0), "rank = 0"),
        (lambda: dimfree.Attention(3, tied="no"), "True or False"),
        (lambda: dimfree.ContrastivePair(1.2), "from -1 to 1"),
        (lambda: dimfree.ContrastivePair([0.1, 0.2]), "give one number"),
        (lambda: dimfree.ContrastivePair(float("nan")), "correlation"),
        (lambda: dimfree.ContrastivePair(0.2, loss="square"), "similarity and agreement"),
        (lambda: dimfree.ContrastivePair(0.2, loss=lambda similarity: similarity), "these arguments"),
    ],
)
def test_what_cannot_be_is_refused_in_words(make, words):
    with pytest.raises(InvalidInput, match=words):
        make()


def test_a_link_of_ones_own_says_whether_inputs_have_an_order():
    assert dimfree.SequenceIndex(lambda u: jnp.sum(jnp.tanh(u)), 3).exchangeable
    assert not dimfree.SequenceIndex(lambda u: u[0, 0] + u[1, 0] ** 2, 3).exchangeable
    assert not dimfree.SequenceIndex("softmax", R3).exchangeable
    assert dimfree.Attention(3).exchangeable
    assert not dimfree.Attention(R3).exchangeable


NAMED = {
    "SequenceIndex": {"link": "softmax", "tokens": 3, "width": 2, "noise": 0.1},
    "Attention": {"tokens": 3, "rank": 2, "teacher_rank": 1, "tied": False},
    "ContrastivePair": {"correlation": 0.5, "width": 2},
    "TwoLayer": {"width": 2, "tokens": 3},
}


@pytest.mark.parametrize("name", NAMED)
def test_names_make_them_in_files_and_in_the_terminal(name):
    made = getattr(dimfree, name)(**NAMED[name])
    options = {"problem": registry.dashed(name)} | NAMED[name]
    for other in (registry.make("problem", name, NAMED[name]), stated(options)[0]):
        assert repr(other) == repr(made)
    with_spectrum = registry.make("problem", name, NAMED[name] | {"spectrum": [4.0, 1.0]})
    assert with_spectrum.inputs.blocks == 2


def test_a_file_may_give_correlations():
    made = registry.make("problem", "Attention", {"tokens": R2.tolist()})
    np.testing.assert_array_equal(made.correlations, R2)
    assert "1.0, 0.5" in repr(made)


def test_sources_are_cited():
    assert "arnaboldi2025" in dimfree.cite(dimfree.SequenceIndex("softmax", 2))
    assert "cui2024" in dimfree.cite(dimfree.Attention(2))


# Of each problem, one that is averaged in another way: sets of nodes, grids, Sobol points, closed forms.
LIMITS = {
    "softmax of three": (dimfree.SequenceIndex("softmax", 3, noise=0.1), OnlineSGD(1.0)),
    "own link, correlated": (dimfree.SequenceIndex(lambda u: jnp.tanh(u[0, 0]) * u[1, 0], R2), OnlineSGD(1.0)),
    "tied attention": (dimfree.Attention(2), OnlineSGD(4.0)),
    "untied attention": (dimfree.Attention(2, tied=False), OnlineSGD(4.0, batch_size=4)),
    "pairs": (dimfree.ContrastivePair(0.5), OnlineSGD(1.0)),
    "patches": (dimfree.TwoLayer(2, 1, "erf", noise=0.1, tokens=R3), OnlineSGD(3.0, batch_size=2)),
    "reused": (dimfree.SequenceIndex("softmax", R2), dimfree.MovedGradient(OnlineSGD(1.0), 0.3)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LIMITS)
def test_runs_approach_the_limit(name):
    result = dimfree.check(*LIMITS[name], dimensions=(100, 400, 1600), alpha=1.0)
    assert -0.7 <= result.slope <= -0.3, str(result)
    assert result.agrees, str(result)


@pytest.mark.slow
def test_means_of_runs_with_reuse_are_those_of_the_limit():
    """Softmax of three inputs at a moved point, 6,000 runs on vectors: what is left of the difference falls as 1/d."""
    problem, algorithm = dimfree.SequenceIndex("softmax", 3), dimfree.MovedGradient(OnlineSGD(1.0), 0.3)
    start = State(Q=[[1.0]], M=[[0.2]])
    end = dimfree.solve(dimfree.ode(problem, algorithm), start, [0.0, 1.0]).final
    distances = []
    for d in (100, 400):
        options = {"runs": 6000, "key": jax.random.key(d), "method": "vectors"}
        runs = dimfree.simulate(problem, algorithm, start, d, [0.0, 1.0], **options).final
        for found, expected in ((runs.Q, end.Q), (runs.M, end.M)):
            values = np.asarray(found)[:, 0, 0]
            distances.append((values.mean() - float(expected[0, 0]), values.std() / np.sqrt(len(values))))
    for (coarse, error), (fine, fine_error) in zip(distances[:2], distances[2:], strict=True):
        assert abs(fine - coarse / 4) < 4 * np.hypot(error / 4, fine_error)  # of four, a false alarm in 8,000
        assert fine_error < 0.002
