"""Finite d on reused data: the definition, closed forms, equilibrium, and independence of how it is computed."""

import dataclasses
import functools
import importlib
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rich.progress
import scipy.stats

import dimfree
from dimfree import InvalidInput, Outcome, State
from dimfree.algorithms import GradientDescent, Langevin, MultiPassSGD, PersistentSGD
from dimfree.simulation import frozen_data, reused, simulate
from dimfree.simulation.devices import parts_for
from dimfree.simulation.frozen_data import FrozenData
from dimfree.simulation.reused_loop import Job, Runs, begin
from processes import printed_by
from refusals import assert_refused

FALSE_ALARM = 1e-5  # of each statistical statement
KEY = jax.random.key(3)
START = State(Q=[[1.0]], M=[[0.4]])


def phase_loss(student, teacher, noise, readout):
    return (student[0] ** 2 - teacher[0] ** 2) ** 2 / 4


def linear_loss(student, teacher, noise, readout):
    return (student[0] - teacher[0] - 0.3 * noise) ** 2 / 2


PHASE = dimfree.LocalFields(phase_loss, width=1, teacher_width=1)
LINEAR = dimfree.LocalFields(linear_loss, width=1, teacher_width=1)


def dataset(d: int, samples: int, key=KEY, number: int = 0, dtype=jnp.float64) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and noise of a dataset of a simulation with this key, as `simulate` documents them."""
    keys = jax.random.fold_in(jax.random.split(key)[0], number)[None]
    data = FrozenData.draw(keys, jnp.ones((1, d), dtype), samples, store=True)
    return np.asarray(data.stored).reshape(-1, d)[:samples], np.asarray(data.noise).reshape(-1)[:samples]


# The step, against a loop over samples.


def slopes_by_hand(problem, student, teacher, noise):
    """Derivatives of the loss, as one would write them."""
    if problem is PHASE:
        return (student**2 - teacher**2) * student
    p, k = student.shape[-1], teacher.shape[-1]
    erf, slope = scipy.special.erf(student / 2**0.5), (2 / np.pi) ** 0.5 * np.exp(-(student**2) / 2)
    target = scipy.special.erf(teacher / 2**0.5) @ np.asarray(problem.teacher_readout) / k
    error = erf @ np.asarray(problem.readout) / p - target - float(problem.noise) ** 0.5 * noise
    return error * np.asarray(problem.readout) * slope / p


NETWORK = dimfree.TwoLayer(2, 2, "erf", noise=0.3, readout=[1.0, -0.6], teacher_readout=[0.8, 1.2])
ALGORITHMS = {
    "gradient descent": lambda **options: GradientDescent(0.05, 3.0, **options),
    "multi-pass": lambda **options: MultiPassSGD(0.05, 3.0, 0.4, **options),
    "persistent": lambda **options: PersistentSGD(0.05, 3.0, 0.4, 0.2, **options),
    "Langevin": lambda **options: Langevin(0.05, 3.0, lambda time: 0.3 / (1 + time), **options),
}


@functools.cache
def samples_for(teacher_width: int) -> tuple[FrozenData, jax.Array]:
    """Two datasets of several blocks, and the teachers."""
    teacher_weights = jax.random.normal(KEY, (teacher_width, 300))
    data = FrozenData.draw(jax.random.split(KEY, 2), teacher_weights, 901, store=True)
    assert data.noise.shape == (2, 3, 301)  # the last two rows only fill the block
    return data, teacher_weights


@pytest.mark.parametrize(
    ("problem", "constraint", "name"),
    [
        *((PHASE, "sphere", name) for name in ALGORITHMS),
        *((NETWORK, "ridge", name) for name in ("persistent", "Langevin")),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_steps_are_those_of_the_definition(problem, constraint, name):
    """Three steps, three runs on each dataset."""
    algorithm = ALGORITHMS[name](**({"sphere": True} if constraint == "sphere" else {"ridge": 0.7}))
    d, samples, p = 300, 901, problem.width
    weights = np.random.default_rng(0).normal(size=(6, p, d))
    data, teacher_weights = samples_for(problem.teacher_width)
    job = Job(problem, algorithm, teacher_weights)
    readout = None if problem.readout is None else jnp.tile(problem.readout, (6, 1))
    keys = jax.vmap(lambda key: jax.random.split(key))(jax.random.split(jax.random.key(8), 6))
    runs = begin(job, jnp.asarray(weights), keys, readout, 2, 903)
    advance = jax.jit(lambda runs, number: Runs.advanced(runs, job, data, number))
    weights = weights.reshape(2, 3, p, d)
    rate, fraction = 0.05, float(algorithm.batch_fraction)
    for number in range(3):
        expected = np.empty_like(weights)
        for i in range(2):
            X = np.asarray(data.stored[i]).reshape(-1, d)[:samples]
            noise = np.asarray(data.noise[i]).reshape(-1)[:samples]
            target = X @ np.asarray(teacher_weights).T / d**0.5
            for run in range(3):
                w, chosen = weights[i, run], np.asarray(runs.selection[i, run])
                gradient = np.zeros((p, d))
                for mu in range(samples):
                    if chosen[mu]:
                        slope = slopes_by_hand(problem, X[mu] @ w.T / d**0.5, target[mu], noise[mu])
                        gradient += np.outer(slope, X[mu]) / (fraction * d**0.5)
                w = w - rate * (gradient + float(algorithm.ridge) * w)
                if name == "Langevin":
                    key = jax.random.split(jax.random.fold_in(runs.keys[i, run], number))[0]
                    w = w + (2 * 0.3 / (1 + number * rate) * rate) ** 0.5 * np.asarray(jax.random.normal(key, (p, d)))
                if constraint == "sphere":
                    w = w * (d / (w**2).sum(axis=1, keepdims=True)) ** 0.5
                expected[i, run] = w
        runs = advance(runs, number)
        np.testing.assert_allclose(runs.weights, expected, rtol=1e-9, atol=1e-10)
        weights = expected
    assert abs(np.mean(runs.selection) - fraction) < 0.05


def regression(d: int, samples: int, dtype=jnp.float64):
    """Curvature and optimum of linear regression: the training loss is quadratic."""
    X, noise = dataset(d, samples, dtype=dtype)
    X, noise = X.astype(float), noise.astype(float)
    teacher = np.zeros(d)
    teacher[0] = d**0.5
    labels = X @ teacher / d**0.5 + 0.3 * noise
    return X, labels, X.T @ X / d, X.T @ labels / d**0.5, teacher


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 2e-5)])
def test_gradient_descent_on_a_quadratic_loss_is_a_power_of_a_matrix(dtype, tolerance):
    d, samples, rate, ridge = 60, 150, 0.02, 0.4
    X, labels, H, b, teacher = regression(d, samples, dtype)
    H = H + ridge * np.eye(d)
    times = np.array([0.0, 0.02, 0.2, 1.0, 3.0])
    start = State(Q=[[0.64]], M=[[0.8]])  # along the teacher, so that the weights are known
    runs = simulate(
        LINEAR, GradientDescent(rate, samples / d, ridge=ridge), start, d, times, runs=1, key=KEY, dtype=dtype
    )
    values, vectors = np.linalg.eigh(H)
    best = np.linalg.solve(H, b)
    for index, steps in enumerate(np.round(times / rate).astype(int)):
        w = best + vectors @ ((1 - rate * values) ** steps * (vectors.T @ (0.8 * teacher - best)))
        np.testing.assert_allclose(runs.state.M[0, index, 0, 0], w @ teacher / d, atol=tolerance)
        np.testing.assert_allclose(runs.state.Q[0, index, 0, 0], w @ w / d, atol=tolerance)
        loss = np.mean((X @ w / d**0.5 - labels) ** 2) / 2
        np.testing.assert_allclose(runs.training_loss[0, index], loss, atol=tolerance)


def test_single_precision_decides_no_run_differently(monkeypatch):
    """On the same data and batches, in a rough landscape, where a third to two thirds of the runs recover.

    The inputs of both are drawn in single precision; a difference of rounding grows to 1e-5 at most by t = 1.
    """
    draw = frozen_data._inputs
    monkeypatch.setattr(
        frozen_data, "_inputs", lambda key, number, rows, d, dtype: draw(key, number, rows, d, "float32").astype(dtype)
    )
    start, sgd = State(Q=[[1.0]], M=[[0.2]]), PersistentSGD(0.02, 3.0, 0.5, 1.0, sphere=True)
    jax.clear_caches()  # of programs that draw otherwise
    single, double = (
        simulate(PHASE, sgd, start, 60, [0.0, 1.0, 60.0], runs=32, datasets=8, key=KEY, dtype=dtype)
        for dtype in ("float32", "float64")
    )
    jax.clear_caches()
    np.testing.assert_allclose(single.state.M[:, 1], double.state.M[:, 1], atol=1e-5)
    recovered = np.asarray(double.training_loss)[:, -1] < 1e-7
    assert 0.2 < recovered.mean() < 0.9
    np.testing.assert_array_equal(np.asarray(single.training_loss)[:, -1] < 1e-7, recovered)


def test_langevin_reaches_the_gaussian_equilibrium():
    r"""Each mode of curvature h has variance T / (h (1 - rate h / 2)): that of the discrete process, exactly."""
    d, samples, rate, temperature, number = 20, 60, 0.1, 0.4, 2000
    _, _, H, b, teacher = regression(d, samples)
    H = H + 0.5 * np.eye(d)
    values, vectors = np.linalg.eigh(H)
    assert rate * values.max() < 1  # it converges, and the step matters: the correction is up to a third
    variances = temperature / (values * (1 - rate * values / 2))
    best = np.linalg.solve(H, b)
    end = 20.0  # the slowest mode has decayed by exp(-20 * 1)
    assert np.exp(-2 * end * values.min()) < 1e-6
    algorithm = Langevin(rate, samples / d, temperature, ridge=0.5)
    start = State(Q=[[1.0]], M=[[0.5]])
    runs = simulate(LINEAR, algorithm, start, d, [0.0, end], runs=number, datasets=1, key=KEY)
    Q, M = (np.asarray(part[:, -1, 0, 0]) for part in (runs.state.Q, runs.state.M))
    modes = vectors.T @ best
    mean_Q = (modes @ modes + variances.sum()) / d
    variance_Q = (2 * variances**2 + 4 * modes**2 * variances).sum() / d**2
    limit = scipy.stats.norm.isf(FALSE_ALARM / 2)
    assert abs(Q.mean() - mean_Q) < limit * (variance_Q / number) ** 0.5
    # The power of it: the variance without the correction for the step would be refused.
    assert abs(Q.mean() - (modes @ modes + (temperature / values).sum()) / d) > limit * (variance_Q / number) ** 0.5
    variance_M = ((vectors.T @ teacher) ** 2 @ variances) / d**2
    standardised = (M - best @ teacher / d) / variance_M**0.5
    assert scipy.stats.kstest(standardised, "norm").pvalue > FALSE_ALARM


# Where runs start.


def test_starts_have_the_overlaps_asked_for_and_are_random_otherwise():
    problem = dimfree.TwoLayer(2, 2, "erf")
    start = State(Q=[[1.0, 0.3], [0.3, 1.4]], M=[[0.2, 0.5], [-0.4, 0.1]], P=[[1.0, 0.2], [0.2, 0.9]])
    algorithm = GradientDescent(0.1, 2.0)
    runs = simulate(problem, algorithm, start, 40, [0.0, 0.1], runs=3, datasets=1, key=KEY)
    first = runs.state
    for run in range(3):
        for given, found in ((start.Q, first.Q), (start.M, first.M), (start.P, first.P)):
            np.testing.assert_allclose(found[run, 0], given, atol=1e-12)
    losses = np.asarray(runs.training_loss[:, 0])
    assert np.unique(np.round(losses, 9)).size == 3  # different weights on the same samples
    np.testing.assert_allclose(losses.mean(), problem.risk(start), rtol=0.2)


def test_each_run_begins_at_its_own_start():
    keys = jax.random.split(KEY, 4)
    starts = jax.vmap(lambda key: dimfree.random_state(PHASE, 100, key=key))(keys)
    runs = simulate(
        PHASE, GradientDescent(0.01, 2.0, sphere=True), starts, 100, [0.0, 0.1], runs=4, datasets=2, key=KEY
    )
    np.testing.assert_allclose(runs.state.M[:, 0], starts.M, atol=1e-12)
    assert np.unique(np.asarray(starts.M)).size == 4


@pytest.mark.parametrize(("noise", "dtype"), [(0.0, "float64"), (0.05, "float32")])
def test_spectral_start_is_the_leading_eigenvector(noise, dtype):
    """Also with noise, where labels can be negative."""
    d, alpha = 150, 6.0
    algorithm, problem = GradientDescent(0.01, alpha, sphere=True), dimfree.PhaseRetrieval(noise=noise)
    runs = simulate(problem, algorithm, "spectral", d, [0.0, 0.01], runs=6, datasets=3, key=KEY, dtype=dtype)
    M, Q = np.asarray(runs.state.M[:, 0, 0, 0]), np.asarray(runs.state.Q[:, 0, 0, 0])
    np.testing.assert_allclose(Q, 1.0, rtol=1e-6)
    assert (M > 0.85).all()
    for number in range(3):
        X, normals = dataset(d, int(alpha * d), number=number, dtype=dtype)
        labels = X[:, 0].astype(float) ** 2 + noise**0.5 * normals
        scale = np.abs(labels).mean()
        matrix = (X * ((labels - scale) / (np.abs(labels) + scale))[:, None]).T @ X
        leading = np.linalg.eigh(matrix)[1][:, -1]
        np.testing.assert_allclose(M[2 * number : 2 * number + 2], abs(leading[0]), atol=1e-3)


def test_a_spectral_start_that_was_not_found_is_said(monkeypatch):
    def start_of(d):
        runs = simulate(PHASE, GradientDescent(0.01, 6.0), "spectral", d, 0.01, runs=3, datasets=3, key=KEY)
        return dict(runs.provenance)["start"]

    assert start_of(60) == "spectral"
    monkeypatch.setattr("dimfree.simulation.spectral._ITERATIONS", 3)
    assert start_of(61).startswith("spectral, not converged in 3 of 3 datasets")


# How it is computed does not matter.


def test_data_made_again_are_those_stored():
    """In several blocks; with eight runs on them, stored data are taken in one."""
    algorithm = PersistentSGD(0.02, 3.0, 0.5, 0.5, sphere=True)
    stored, made = (
        simulate(PHASE, algorithm, START, 300, [0.0, 0.2], runs=16, datasets=2, key=KEY, store_data=store)
        for store in (True, False)
    )
    assert np.ptp(stored.state.M[:, -1]) > 1e-3
    np.testing.assert_allclose(stored.state.M, made.state.M, atol=1e-11)
    np.testing.assert_allclose(stored.training_loss, made.training_loss, atol=1e-11)
    assert "in memory" in repr(stored)
    assert "made again" in repr(made)


def test_runs_that_share_data_are_those_computed_alone():
    overlaps = np.linspace(-0.9, 1.3, 9)
    starts = State(Q=overlaps[:, None, None] ** 2, M=overlaps[:, None, None])  # along the teacher: nothing random
    algorithm = GradientDescent(0.02, 3.0, ridge=0.2)
    together = simulate(PHASE, algorithm, starts, 300, [0.0, 0.1, 0.4], runs=9, datasets=1, key=KEY)
    for run in (0, 4, 8):
        start = State(Q=[[overlaps[run] ** 2]], M=[[overlaps[run]]])
        alone = simulate(PHASE, algorithm, start, 300, [0.0, 0.1, 0.4], runs=1, key=KEY)
        np.testing.assert_allclose(together.state.M[run], alone.state.M[0], atol=1e-11)
        np.testing.assert_allclose(together.state.Q[run], alone.state.Q[0], atol=1e-11)
        np.testing.assert_allclose(together.training_loss[run], alone.training_loss[0], atol=1e-11)


def test_a_run_does_not_depend_on_the_others_nor_on_the_times_saved():
    algorithm = PersistentSGD(0.02, 3.0, 0.5, 0.5, sphere=True)
    six = simulate(PHASE, algorithm, START, 40, [0.0, 1.0], runs=6, key=KEY)
    two = simulate(PHASE, algorithm, START, 40, 1.0, runs=2, key=KEY)
    np.testing.assert_allclose(six.state.M[:2, -1], two.state.M[:, -1], atol=1e-10)
    assert two.time.shape == (201,)
    other = simulate(PHASE, algorithm, START, 40, 1.0, runs=2, key=jax.random.key(77))
    assert np.abs(other.state.M[:, -1] - two.state.M[:, -1]).max() > 1e-3


@pytest.mark.slow
def test_many_devices_give_the_same_runs():
    code = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import jax, dimfree
from dimfree.algorithms import PersistentSGD
from dimfree.simulation import simulate
sgd = PersistentSGD(0.005, 3.0, 0.5, 0.5, sphere=True)
runs = simulate(
    dimfree.PhaseRetrieval(), sgd, "spectral", 60, [0.0, 0.3], runs=8, datasets=4, key=jax.random.key(0)
)
assert len(runs.state.M.sharding.device_set) == 4
print(*(runs.final.M[:, 0, 0] + runs.training_loss[:, -1]).tolist())
"""
    four = np.array(printed_by(code).split(), float)
    algorithm = PersistentSGD(0.005, 3.0, 0.5, 0.5, sphere=True)
    runs = simulate(
        dimfree.PhaseRetrieval(), algorithm, "spectral", 60, [0.0, 0.3], runs=8, datasets=4, key=jax.random.key(0)
    )
    one = np.asarray(runs.final.M[:, 0, 0] + runs.training_loss[:, -1])
    assert np.ptp(one) > 1e-3
    np.testing.assert_allclose(one, four, atol=1e-9)


def test_cores_that_share_the_datasets_give_the_same_runs(monkeypatch):
    descent = GradientDescent(0.005, 3.0, sphere=True)
    found = []
    for number in (1, 2):
        monkeypatch.setattr(reused, "parts_for", lambda datasets, devices, number=number: number)
        found.append(simulate(PHASE, descent, START, 60, [0.0, 0.05, 0.3], runs=4, key=KEY))
    one, many = found
    assert np.ptp(np.asarray(one.final.M)) > 1e-3
    np.testing.assert_allclose(one.state.M, many.state.M, atol=1e-12)
    np.testing.assert_allclose(one.training_loss, many.training_loss, atol=1e-12)


def test_datasets_are_shared_evenly_among_the_cores_unless_xla_is_told_to_use_one(monkeypatch):
    cpu = jax.devices()[:1]
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(4), raising=False)
    monkeypatch.setenv("XLA_FLAGS", "")
    assert [parts_for(datasets, cpu) for datasets in (1, 3, 6, 8)] == [1, 3, 3, 4]
    assert parts_for(8, cpu * 2) == 1  # several devices have a part each already
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    assert parts_for(8, cpu) == 1


# Results and refusals.


def test_divergence_is_an_outcome_and_the_others_complete():
    starts = State(Q=[[[1.0]], [[400.0]]], M=[[[1.0]], [[20.0]]])
    runs = simulate(PHASE, GradientDescent(0.05, 3.0), starts, 50, 2.0, runs=2, datasets=1, key=KEY)
    assert np.asarray(runs.outcome).tolist() == [Outcome.COMPLETED, Outcome.DIVERGED]
    assert np.isnan(runs.stopped_at[0])
    assert 0 < runs.stopped_at[1] < 1
    assert np.isfinite(np.asarray(runs.state.Q)).all()
    assert np.isfinite(np.asarray(runs.training_loss)).all()
    np.testing.assert_allclose(runs.state.M[0, -1], 1.0, atol=1e-12)
    assert "1 diverged, time 0" in repr(runs)


def test_the_bar_of_a_simulation_that_is_interrupted_is_taken_away(monkeypatch):
    steps = importlib.import_module("dimfree.simulation.online")
    stopped, stop = [], rich.progress.Progress.stop

    def interrupted(*arguments):
        raise KeyboardInterrupt

    def stopping(bar):
        stopped.append(bar)
        stop(bar)

    monkeypatch.setattr(steps, "_begin", lambda *arguments: None)
    monkeypatch.setattr(steps, "_segment", interrupted)
    monkeypatch.setattr(rich.progress.Progress, "stop", stopping)
    problem, sgd = dimfree.PhaseRetrieval(), dimfree.OnlineSGD(0.1)
    with pytest.raises(KeyboardInterrupt):
        dimfree.simulate(problem, sgd, START, 50, 1.0, runs=2, key=KEY, progress=True)
    assert stopped


def test_results_are_over_time():
    runs = simulate(PHASE, GradientDescent(0.01, 3.0, True), START, 50, 0.5, runs=6, key=KEY, progress=True)
    table = runs.to_xarray()
    assert table.M.dims[:2] == ("run", "time")
    np.testing.assert_array_equal(table.time, runs.time)
    np.testing.assert_array_equal(table.training_loss, runs.training_loss)
    np.testing.assert_allclose(runs.time[-1], 0.5, rtol=1e-14)
    np.testing.assert_allclose(table.risk[:, 0], (3 * 2 - 2 * (1 + 2 * 0.16)) / 4, rtol=1e-12)
    assert "time 0 to 0.5" in repr(runs)
    assert "training loss: " in repr(runs)
    axes = dimfree.plot.compare(runs, quantity="M")
    assert "time" in axes.get_xlabel()
    online = dataclasses.replace(runs, clock="alpha")
    with pytest.raises(InvalidInput, match=r"its clock is \.alpha"):
        online.time  # noqa: B018
    with pytest.raises(InvalidInput, match="no common axis"):
        dimfree.plot.compare(runs, online)


GD = GradientDescent(0.1, 2.0)


def call(problem=PHASE, algorithm=GD, start=START, d=20, time=1.0, runs=2, **options):
    return simulate(problem, algorithm, start, d, time, runs=runs, key=KEY, **options)


BAD = {
    "no sample": (
        lambda: call(algorithm=GradientDescent(0.1, 0.02)),
        "0.02 in d = 20 dimensions is less than one sample",
    ),
    "datasets": (lambda: call(runs=5, datasets=2), "5 runs cannot be spread evenly over 2 datasets"),
    "clusters": (lambda: call(problem=dimfree.Mixture.xor(2, 2.0)), "standard Gaussian inputs"),
    "off the sphere": (
        lambda: call(algorithm=GradientDescent(0.1, 2.0, sphere=True), start=State(Q=[[2.0]], M=[[0.1]])),
        "sphere=True",
    ),
    "width of the start": (lambda: call(start=State(Q=jnp.eye(2), M=jnp.zeros((2, 1)))), "The start has p = 2"),
    "teachers that differ": (
        lambda: call(start=State(Q=jnp.ones((2, 1, 1)), M=jnp.zeros((2, 1, 1)), P=[[[1.0]], [[2.0]]])),
        "different P",
    ),
    "number of starts": (lambda: call(start=State(Q=jnp.ones((3, 1, 1)), M=jnp.zeros((3, 1, 1)))), "there are 2 runs"),
    "too few dimensions": (lambda: call(d=1), "rank 2, but vectors of dimension d = 1"),
    "end": (lambda: call(time=-1.0), r"time = -1.0 was given.*learning_rate x steps"),
    "less than a step": (lambda: call(time=0.01), "less than one step, learning_rate = 0.1"),
    "half precision": (lambda: call(dtype="float16"), "choose float64 or float32"),
    "no precision": (lambda: call(dtype="single-ish"), "choose float64 or float32"),
    "spectral width": (lambda: call(problem=dimfree.PhaseRetrieval(2), start="spectral"), "problem has 2 students"),
    "spectral without information": (lambda: call(problem=LINEAR, start="spectral"), "curvature at zero"),
    "inside jit": (
        lambda: jax.jit(lambda rate: call(algorithm=GradientDescent(rate, 2.0)).state.M)(0.1),
        "algorithm is traced",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_in_words(name):
    attempt, words = BAD[name]
    with pytest.raises(InvalidInput, match=f"(?s){words}"):
        attempt()


WRONG_TYPES = {
    "dimfree.GradientDescent(lambda time: 0.1, 2.0)": "learning_rate was given as a function",
    "dimfree.GradientDescent(dimfree.PiecewiseLinear([0, 1], [1, 0]), 2.0)": "must be one number",
    "run(problem, gd, start, 10, 1.0, runs=1, key=key, method='exact')": "method = 'exact' was given, which is for",
    "run(problem, gd, start, 10, 1.0, runs=1, key=key, stop=abs)": "algorithms that use each sample once; leave it out",
    "run(problem, gd, start, 10, 1.0, runs=1, key=key, memory=10**9)": "memory = 1000000000 was given, which is for",
    "run(problem, dimfree.OnlineSGD(0.1), start, 10, 1.0, runs=1, key=key, datasets=1)": "datasets = 1 was given",
    "run(problem, dimfree.OnlineSGD(0.1), start, 10, 1.0, runs=1, key=key, dtype='float32')": "dtype = 'float32' was",
    "run(problem, dimfree.OnlineSGD(0.1), start, 10, 1.0, runs=1, key=key, store_data=False)": "reuse their data",
    "run(problem, dimfree.OnlineSGD(0.1), 'spectral', 10, 1.0, runs=1, key=key)": "start = 'spectral' was given, which",
    "run(problem, 0.1, start, 10, 1.0, runs=1, key=key)": "algorithm = 0.1 was given",
    "run(0.1, gd, start, 10, 1.0, runs=1, key=key)": "problem = 0.1 was given",
    "run(dimfree.SpikedTensor(3, 2.0), gd, start, 10, 1.0, runs=1, key=key)": "losses of local fields",
    "run(problem, gd, 'spectra', 10, 1.0, runs=1, key=key)": "start = 'spectra' was given",
    "run(problem, gd, 0.3, 10, 1.0, runs=1, key=key)": "start = 0.3 was given",
    "run(problem, gd, start, 10.5, 1.0, runs=1, key=key)": "d = 10.5 was given",
}


def test_messages_for_values_of_the_wrong_type():
    names = {"dimfree": dimfree, "run": simulate, "problem": PHASE, "gd": GD, "start": START, "key": KEY}
    assert_refused(names, WRONG_TYPES)
