"""The mean of anything at a State, and over a trajectory: closed forms, samples, derivatives, stops."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import dimfree
from dimfree.errors import InvalidInput


def state_of(p, k, seed):
    """Overlaps of random vectors, with teachers of length one."""
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((p + k, p + k + 3)) / np.sqrt(p + k + 3)
    vectors[p:] /= np.linalg.norm(vectors[p:], axis=1, keepdims=True)
    gram = vectors @ vectors.T
    return dimfree.State(Q=gram[:p, :p], M=gram[:p, p:], P=gram[p:, p:])


def linear(**settings):
    """Logistic regression on two clusters at plus and minus one direction."""
    return dimfree.Mixture([[1.0], [-1.0]], [1, 0], width=1, activation="linear", **{"snr": 4.0, **settings})


LINEAR_STATE = dimfree.State(Q=[[2.0]], M=[[0.7]])

PLANE, TRIANGLE = [[1.0, 0.3], [-1.0, 0.2]], [[1.0, 0.0], [-0.5, 0.9], [-0.5, -0.9]]
ROWS = np.random.default_rng(5).standard_normal((3, 3))
# The means, labels, width and other settings of a mixture, and how exact the accuracy is.
CASES = {
    "linear": (PLANE, [1, 0], 1, {"activation": "linear", "snr": [2.0, 1.0], "probabilities": [0.3, 0.7]}, 1e-7),
    "one_relu": (PLANE, [1, 0], 1, {"snr": 2.0}, 1e-7),
    "nearest_of_three": (TRIANGLE, [-1, 0, 2], 1, {"activation": "erf", "snr": 3.0, "loss": "square"}, 1e-7),
    "not_monotone": (PLANE, [1, 0], 1, {"activation": "square", "snr": 2.0, "loss": "square"}, 1e-7),
    "two_relus": (PLANE, [1, 0], 2, {"snr": 2.0, "readout": [1.0, -0.6]}, 1e-7),
    "two_relus_square": (PLANE, [1, -1], 2, {"snr": [3.0, 1.0], "loss": "square"}, 1e-7),
    "two_tanh": (PLANE, [1, 0], 2, {"activation": "tanh", "snr": 2.0, "readout": [1.0, -0.5]}, 1e-6),
    "three_outputs": (TRIANGLE, [0, 1, 2], 2, {"activation": "tanh", "snr": 3.0, "readout": ROWS[:, :2]}, 5e-3),
    "three_neurons": (PLANE, [1, 0], 3, {"activation": "tanh", "snr": 2.0, "probabilities": [0.4, 0.6]}, 5e-6),
    "four_neurons": (TRIANGLE, [1, 0, 0], 4, {"activation": "relu", "snr": 2.0}, 1e-2),
}


def by_samples(problem, state, samples, seed):
    """The accuracy of so many samples, by a loop over clusters in NumPy, and its standard error."""
    law, rng, p = problem.clusters, np.random.default_rng(seed), problem.width
    fields = problem.inputs.fields(problem.inputs.over_blocks(state))
    factor = np.linalg.cholesky(np.asarray(fields.Q))
    labels = np.asarray(law.labels)
    readout = np.asarray(problem.readout).reshape(-1, p)
    right, counts = 0, rng.multinomial(samples, np.asarray(law.probabilities))
    for c, count in enumerate(counts):
        center = np.asarray(law.means[c] @ (state.M.T if problem.spectrum is None else fields.with_seen("means")[:p].T))
        drawn = center + np.sqrt(float(law.spread[c])) * rng.standard_normal((count, p)) @ factor.T
        output = np.asarray(jax.vmap(jax.vmap(problem.activation.function))(jnp.asarray(drawn))) @ readout.T
        if problem._is_loss("cross-entropy"):
            predicted = output.argmax(axis=1) if labels.ndim == 2 else (output[:, 0] > 0).astype(int)
            right += np.sum(predicted == (labels[c].argmax() if labels.ndim == 2 else labels[c]))
        else:
            known = np.unique(labels)
            right += np.sum(known[np.abs(output - known).argmin(axis=1)] == labels[c])
    accuracy = right / samples
    return accuracy, np.sqrt(accuracy * (1 - accuracy) / samples)


def check_against_samples(name, spectrum=None):
    means, labels, width, settings, error = CASES[name]
    problem = dimfree.Mixture(means, labels, width, **settings)
    if spectrum is not None:
        problem = problem.with_inputs(spectrum)
    state = state_of(width, 2, width)
    found, stated = problem.mean("accuracy", state), problem.mean_error("accuracy", state)
    sampled, deviation = by_samples(problem, state, 10**6, 3)
    # Four standard errors: one false alarm in 16,000 for each case, and the seed is fixed.
    assert abs(found - sampled) < 4 * deviation + stated
    assert stated < error


@pytest.mark.parametrize("name", ["linear"])
def test_accuracy_is_that_of_samples(name):
    check_against_samples(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if name != "linear"])
def test_accuracy_is_that_of_samples_in_all_settings(name):
    check_against_samples(name)


@pytest.mark.slow
def test_accuracy_with_a_spectrum_is_that_of_samples():
    check_against_samples("linear", dimfree.Spectrum([3.0, 0.5], [0.2, 0.8]))


def closed_form(M, Q, snr=4.0):
    """The accuracy of a linear classifier without an offset."""
    return jax.scipy.stats.norm.cdf(M * jnp.sqrt(snr / Q))


def test_linear_classifier_has_the_closed_form_and_its_derivatives():
    problem = linear()

    def by_mean(M, Q):
        return problem.mean("accuracy", dimfree.State(Q=Q.reshape(1, 1), M=M.reshape(1, 1)))

    place = jnp.asarray(0.7), jnp.asarray(2.0)
    np.testing.assert_allclose(by_mean(*place), norm.cdf(0.7 * np.sqrt(2.0)), rtol=1e-12)
    np.testing.assert_allclose(jax.grad(by_mean, (0, 1))(*place), jax.grad(closed_form, (0, 1))(*place), rtol=1e-10)
    second = jax.hessian(by_mean, (0, 1))(*place), jax.hessian(closed_form, (0, 1))(*place)
    np.testing.assert_allclose(*map(np.asarray, second), rtol=1e-9)


@pytest.mark.slow
def test_jump_in_a_function_of_ones_own_has_the_derivative_of_the_closed_form():
    def right(student, teacher, noise, readout, label):
        return (student[0] > 0) == (label > 0.5)

    def by_mean(M):
        return linear().mean(right, dimfree.State(Q=[[2.0]], M=M.reshape(1, 1)))

    value, slope = jax.value_and_grad(by_mean)(jnp.asarray(0.7))
    expected = jax.value_and_grad(lambda M: closed_form(M, 2.0))(jnp.asarray(0.7))
    # Over Sobol points, to what they promise across a jump.
    np.testing.assert_allclose([value, slope], expected, atol=1e-3)
    assert linear().mean_error(right, LINEAR_STATE) < 2e-3


def test_two_relus_have_the_derivatives_of_finite_differences():
    problem = dimfree.Mixture.xor(width=2, snr=3.0, readout=[1.0, -0.7])
    state = state_of(2, 2, 2)
    at = jax.jit(lambda Q, M: problem.mean("accuracy", dimfree.State(Q=Q, M=M)))
    slopes = jax.grad(at, (0, 1))(state.Q, state.M)
    for which, (i, j) in ((0, (0, 0)), (0, (1, 1)), (1, (0, 1)), (1, (1, 0))):
        step = np.zeros((2, 2))
        step[i, j] = 1e-4
        moved = [at(state.Q + s * step * (1 - which), state.M + s * step * which) for s in (1, -1)]
        assert (moved[0] - moved[1]) / 2e-4 == pytest.approx(float(slopes[which][i, j]), abs=2e-7)


@pytest.mark.slow
def test_two_tanh_neurons_agree_with_two_linear_ones_where_the_boundary_is_the_same():
    # tanh(u) + tanh(v) > 0 where u + v > 0, which has a closed form.
    problem = dimfree.Mixture(PLANE, [1, 0], 2, snr=2.0, activation="tanh")
    state = state_of(2, 2, 2)
    deviation = np.sqrt(np.asarray(state.Q).sum() / 2.0)
    centers = np.asarray(PLANE) @ np.asarray(state.M).sum(axis=0) / deviation
    expected = 0.5 * norm.cdf(centers[0]) + 0.5 * norm.cdf(-centers[1])
    np.testing.assert_allclose(problem.mean("accuracy", state), expected, atol=1e-9)


@pytest.mark.slow
def test_margin_and_squared_margin_are_moments_of_normal_fields():
    def margin(student, teacher, noise, readout, label):
        return (2 * label - 1) * readout[0] * student[0]

    power = jnp.asarray(2.0)

    def powers(student, teacher, noise, readout, label):
        return jnp.abs(margin(student, teacher, noise, readout, label)) ** power

    problem, variance = linear(), 2.0 / 4
    np.testing.assert_allclose(problem.mean(margin, LINEAR_STATE), 0.7, rtol=1e-9)
    np.testing.assert_allclose(
        problem.mean(lambda s, t, n, r, y: margin(s, t, n, r, y) ** 2, LINEAR_STATE), 0.49 + variance, rtol=1e-9
    )
    np.testing.assert_allclose(problem.mean(powers, LINEAR_STATE), 0.49 + variance, rtol=2e-3)


def test_calibration_is_an_integral_over_a_line():
    def surprise(student, teacher, noise, readout, label):
        return (jax.nn.sigmoid(student[0]) - label) ** 2

    found = linear().mean(surprise, LINEAR_STATE)
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    fields = 0.7 + np.sqrt(0.5) * nodes
    expected = weights @ (1 / (1 + np.exp(fields))) ** 2 / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(found, expected, rtol=1e-7)
    assert abs(found - expected) < linear().mean_error(surprise, LINEAR_STATE) < 1e-6


@pytest.mark.slow
def test_teacher_fields_and_noise_are_averaged_over():
    problem = dimfree.PhaseRetrieval()
    state = dimfree.State(Q=[[1.0]], M=[[0.3]])
    found = problem.mean(lambda student, teacher, noise, readout: student[0] ** 2 * teacher[0] ** 2 + noise**2, state)
    np.testing.assert_allclose(found, 1 + 2 * 0.09 + 1, rtol=1e-9)
    agree = problem.mean(lambda student, teacher, noise, readout: student[0] * teacher[0] > 0, state)
    np.testing.assert_allclose(agree, 1 - np.arccos(0.3) / np.pi, atol=1e-3)


@pytest.mark.slow
def test_numbers_in_a_function_are_differentiated_by():
    def at(scale):
        return linear().mean(lambda s, t, n, r: jnp.cos(scale * s[0]), LINEAR_STATE)

    # E cos(scale u) = cos(0.7 scale) exp(-scale^2 / 4) in both clusters.
    expected = jax.grad(lambda scale: jnp.cos(0.7 * scale) * jnp.exp(-(scale**2) / 4))(1.3)
    np.testing.assert_allclose(jax.grad(at)(1.3), expected, rtol=1e-5)


def test_observe_keeps_runs_and_times():
    problem, sgd = linear(), dimfree.OnlineSGD(0.5)
    times = np.linspace(0.0, 2.0, 5)
    runs = dimfree.simulate(problem, sgd, LINEAR_STATE, d=200, alpha=times, runs=3, key=jax.random.key(0))
    M, Q = (np.asarray(part)[..., 0, 0] for part in (runs.state.M, runs.state.Q))
    np.testing.assert_allclose(runs.observe("accuracy"), norm.cdf(2 * M / np.sqrt(Q)), rtol=1e-9)
    np.testing.assert_array_equal(runs.observe("risk"), runs.risk)
    cosine = runs.observe(lambda state: state.M / jnp.sqrt(state.Q))
    assert cosine.shape == (3, 5, 1, 1)
    np.testing.assert_allclose(cosine[..., 0, 0], M / np.sqrt(Q))
    data = runs.to_xarray(observe=["accuracy"])
    np.testing.assert_array_equal(data["accuracy"], runs.observe("accuracy"))
    assert data["accuracy"].dims == ("run", "alpha")
    axes = dimfree.plot.compare(runs, quantity="accuracy")
    assert axes.get_ylabel() == "accuracy"


@pytest.mark.slow
def test_stop_at_an_accuracy():
    problem, sgd = linear(snr=9.0), dimfree.OnlineSGD(1.0)
    start, stop = dimfree.State(Q=[[1.0]], M=[[0.1]]), problem.reaches("accuracy", 0.95)
    solution = dimfree.solve(dimfree.ode(problem, sgd), start, 20.0, stop=stop)
    assert solution.outcome == dimfree.Outcome.STOPPED
    np.testing.assert_allclose(problem.mean("accuracy", solution.final), 0.95, rtol=1e-7)
    runs = dimfree.simulate(problem, sgd, start, d=500, alpha=20.0, runs=4, key=jax.random.key(1), stop=stop)
    assert np.all(np.asarray(runs.outcome) == dimfree.Outcome.STOPPED)
    reached = np.asarray(problem.mean("accuracy", runs.final))
    assert np.all((reached >= 0.95) & (reached < 0.96))


def test_what_cannot_be_observed_is_refused_in_words():
    problem = dimfree.PhaseRetrieval()
    state = dimfree.State(Q=[[1.0]], M=[[0.3]])
    with pytest.raises(InvalidInput, match="does not say which answer"):
        problem.mean("accuracy", state)
    with pytest.raises(InvalidInput, match="function of a State"):
        problem.mean("precision", state)
    with pytest.raises(InvalidInput, match="single number"):
        problem.mean(lambda student, teacher, noise, readout: student, state)
    with pytest.raises(InvalidInput, match="no local fields"):
        dimfree.SpikedTensor(order=3, snr=1.0).mean(lambda student, teacher, noise, readout: noise, state)
    own = dimfree.Mixture(PLANE, [1, 0], 1, snr=1.0, loss=lambda output, label: (output - label) ** 4)
    with pytest.raises(InvalidInput, match="does not say which answer"):
        own.mean("accuracy", state_of(1, 2, 1))
    with pytest.raises(InvalidInput, match="quantity"):
        dimfree.plot.compare(
            dimfree.solve(dimfree.ode(problem, dimfree.OnlineSGD(0.1)), state, 1.0), quantity=lambda state: state.M
        )


def test_overlaps_that_are_not_numbers_have_no_accuracy():
    broken = dimfree.State.of({pair: jnp.nan * part for pair, part in LINEAR_STATE.overlaps.items()}, None)
    assert np.isnan(linear().mean("accuracy", broken))


_MEMORY = """
import resource, jax, jax.numpy as jnp, dimfree
problem = dimfree.Mixture([[1.0], [-1.0]], [1, 0], width={p}, snr=4.0, activation="tanh")
state = dimfree.State(Q=jnp.tile(jnp.eye({p}), (64, 200, 1, 1)), M=jnp.full((64, 200, {p}, 1), 0.3))
none = dimfree.Trajectory(jnp.linspace(0, 1, 200), state, jnp.zeros(64, int), jnp.zeros(64), problem)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = none.observe({what}).block_until_ready()
print(found.shape, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("what", ['"accuracy"', "lambda s, t, n, r, y: jnp.abs(jax.nn.sigmoid(s.sum()) - y)"])
def test_many_runs_and_times_take_bounded_memory(what):
    # 12,800 States of two clusters, over 256 lines or 32,768 points each: 5 to 13 GB at once.
    program = _MEMORY.format(p=2 if "accuracy" in what else 1, what=what)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    shape, megabytes = done.stdout.rsplit(" ", 1)
    assert shape == "(64, 200)"
    assert float(megabytes) < 1_000
