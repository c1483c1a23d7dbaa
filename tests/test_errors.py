"""Bad input: what was given, what is wrong, what to do; and divergence as data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dimfree
from dimfree import InvalidInput
from refusals import assert_refused

PROBLEM = dimfree.PhaseRetrieval(2)
SGD = dimfree.OnlineSGD(0.1)
START = dimfree.State(Q=jnp.eye(2), M=jnp.full((2, 1), 0.1))
KEY = jax.random.key(0)


def own_loss(loss, **options):
    return dimfree.LocalFields(loss, width=2, teacher_width=1, **options)


BAD = {
    "Q not square": (lambda: dimfree.State(Q=[[1.0, 0.0]], M=[[0.1]]), r"Q has shape \(1, 2\)"),
    "M with the wrong number of rows": (
        lambda: dimfree.State(Q=jnp.eye(2), M=[[0.1]]),
        "one row for each of 2 students",
    ),
    "P of the wrong size": (lambda: dimfree.State(Q=jnp.eye(2), M=jnp.zeros((2, 1)), P=jnp.eye(2)), "P has shape"),
    "start of another width": (
        lambda: dimfree.solve(dimfree.ode(PROBLEM, SGD), dimfree.State(Q=[[1.0]], M=[[0.1]]), 1.0),
        "The start has p = 1 students .* the problem p = 2",
    ),
    "State of another problem": (
        lambda: PROBLEM.risk(dimfree.State(Q=jnp.eye(2), M=jnp.zeros((2, 3)))),
        "The State has p = 2 students and k = 3 teachers, the problem p = 2 and k = 1",
    ),
    "overlaps that no weights have": (
        lambda: dimfree.solve(dimfree.ode(PROBLEM, SGD), dimfree.State(Q=jnp.eye(2), M=[[1.5], [0.0]]), 1.0),
        "No weights have these overlaps.*negative eigenvalue",
    ),
    "Q not symmetric": (
        lambda: dimfree.solve(dimfree.ode(PROBLEM, SGD), dimfree.State(Q=[[1.0, 0.2], [0.0, 1.0]], M=START.M), 1.0),
        "must be symmetric",
    ),
    "NaN in the start": (
        lambda: dimfree.simulate(
            PROBLEM, SGD, dimfree.State(Q=jnp.nan * jnp.eye(2), M=START.M), 10, 1.0, runs=1, key=KEY
        ),
        "NaN or infinite",
    ),
    "NaN in the readout of the start": (
        lambda: dimfree.solve(dimfree.ode(PROBLEM, SGD), dimfree.State(START.Q, START.M, readout=[jnp.nan, 1.0]), 1.0),
        "readout = .*must be finite numbers",
    ),
    "start off the sphere": (
        lambda: dimfree.solve(
            dimfree.ode(PROBLEM, dimfree.OnlineSGD(0.1, sphere=True)), dimfree.State(Q=2 * jnp.eye(2), M=START.M), 1.0
        ),
        r"sphere=True.*diag\(Q\) = \[2",
    ),
    "negative learning rate": (lambda: dimfree.OnlineSGD(-0.1), "learning_rate = -0.1 was given"),
    "infinite learning rate": (lambda: dimfree.OnlineSGD(jnp.inf), "learning_rate = inf was given; it must be finite"),
    "schedule that is infinite at the start": (
        lambda: dimfree.OnlineSGD(lambda alpha: 1 / alpha),
        r"is inf at alpha = 0, where every run starts.* becomes 1 / \(1 \+ alpha\)",
    ),
    "temperature that is infinite at the start": (
        lambda: dimfree.Langevin(0.1, 2.0, lambda time: 1 / jnp.log(1 + time)),
        "The schedule given as temperature is inf at time = 0",
    ),
    "schedule of the wrong shape": (lambda: dimfree.OnlineSGD(lambda alpha: jnp.ones(3)), r"returned shape \(3,\)"),
    "negative noise": (lambda: dimfree.PhaseRetrieval(noise=-1.0), "noise = -1.0 was given"),
    "width zero": (lambda: dimfree.TwoLayer(0), "width = 0 was given; it must be a whole number, at least 1"),
    "dimension zero": (lambda: dimfree.simulate(PROBLEM, SGD, START, 0, 1.0, runs=1, key=KEY), "d = 0 was given"),
    "dimension below one": (lambda: dimfree.sde(PROBLEM, SGD, d=0.5), "d = 0.5 was given"),
    "negative end": (lambda: dimfree.solve(dimfree.ode(PROBLEM, SGD), START, -1.0), "alpha = -1.0 was given"),
    "times that go back": (
        lambda: dimfree.solve(dimfree.ode(PROBLEM, SGD), START, [0.0, 2.0, 1.0]),
        "increasing times",
    ),
    "less than a step": (
        lambda: dimfree.simulate(PROBLEM, SGD, START, 10, 0.01, runs=1, key=KEY),
        "less than one step, batch_size / d = 0.1",
    ),
    "fixed points of a very wide network": (
        lambda: dimfree.fixed_points(dimfree.ode(dimfree.TwoLayer(200, 1), SGD), key=KEY),
        "The State has 20,300 coordinates.*smaller width",
    ),
    "check of too few runs": (lambda: dimfree.check(PROBLEM, SGD, runs=1), "runs = 1 was given.*at least 16"),
    "check of what diverges": (
        lambda: dimfree.check(PROBLEM, dimfree.OnlineSGD(100.0)),
        "The limit diverges at alpha.*smaller learning rate",
    ),
    "check of what does not move": (
        lambda: dimfree.check(PROBLEM, dimfree.OnlineSGD(0.0)),
        "does not move from its start.*learning rate that is not zero",
    ),
    "loss of a field that is not there": (
        lambda: own_loss(lambda student, teacher, noise, readout: student[0] * teacher[3]),
        "loss reads a field that is not there: index 3",
    ),
    "loss that does not take all arguments": (
        lambda: own_loss(lambda student, teacher: student[0] * teacher[0]),
        "(?s)2 positional arguments but 4 were given.*take all of them",
    ),
    "unknown activation": (lambda: dimfree.TwoLayer(2, 1, "tnah"), "tnah.*tanh"),
    "activation with NaN": (lambda: dimfree.TwoLayer(2, 1, lambda x: jnp.log(x)), "(?i)nan"),
    "activation that returns a vector": (lambda: dimfree.TwoLayer(2, 1, lambda x: jnp.stack([x, x])), "shape"),
    "loss that returns a vector": (
        lambda: own_loss(lambda student, teacher, noise, readout: (student - teacher) ** 2),
        r"loss returned an array of shape \(2,\).*jnp.sum",
    ),
    "loss with NaN": (
        lambda: own_loss(lambda student, teacher, noise, readout: jnp.sqrt(student[0]) + teacher[0]),
        "of loss is NaN or infinite at fields",
    ),
    "loss that branches": (
        lambda: own_loss(lambda student, teacher, noise, readout: student[0] if teacher[0] > 0 else 0.0),
        "could not be evaluated by JAX",
    ),
    "readout of a loss with NaN": (
        lambda: own_loss(lambda student, teacher, noise, readout: readout[0] * student[0], readout=[jnp.nan]),
        "readout = .*must be finite numbers",
    ),
    "training a readout that is not there": (
        lambda: dimfree.ode(
            own_loss(lambda student, teacher, noise, readout: jnp.sum(student) ** 2),
            dimfree.OnlineSGD(0.1, readout_rate=0.1),
        ),
        "has no readout to train",
    ),
    "readout of the wrong size": (lambda: dimfree.TwoLayer(2, readout=[1.0]), r"readout has shape \(1,\)"),
    "too large a grid": (
        lambda: dimfree.ode(dimfree.TwoLayer(8, 4, "tanh"), SGD, dimfree.GaussHermite(10)).drift(
            0.0, dimfree.random_state(dimfree.TwoLayer(8, 4), 20, key=KEY)
        ),
        "GaussHermite.*Sobol",
    ),
    "check at one dimension": (
        lambda: dimfree.check(PROBLEM, SGD, dimensions=(100, 100)),
        r"dimensions = \(100, 100\) was given; a rate needs two",
    ),
    "check up to a negative end": (lambda: dimfree.check(PROBLEM, SGD, alpha=-1.0), "alpha = -1.0 was given; it must"),
    "norm that is no number": (lambda: dimfree.random_state(PROBLEM, 10, key=KEY, norm=np.nan), "norm = nan was given"),
    "flow of a schedule up to nowhere": (
        lambda: dimfree.plot.flow(dimfree.ode(PROBLEM, dimfree.OnlineSGD(lambda alpha: 0.1 / (1 + alpha)))),
        "say with alpha how far",
    ),
    "Sobol points not a power of two": (lambda: dimfree.Sobol(1000), "power of two"),
    "diffusion without a key": (lambda: dimfree.solve(dimfree.sde(PROBLEM, SGD, 100), START, 1.0), "runs=64, key="),
    "covariance that was not asked for": (
        lambda: dimfree.solve(dimfree.ode(PROBLEM, SGD), START, 1.0).standard_deviation,
        "linear_noise",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_in_words(name):
    call, message = BAD[name]
    with pytest.raises(InvalidInput, match=f"(?s){message}"):
        call()


WRONG_TYPES = {
    "dimfree.random_state(problem, 10, key=0)": "key = 0 was given",
    "dimfree.simulate(problem, sgd, start, 10, 1.0, runs=1, key=None)": "key = None was given",
    "dimfree.OnlineSGD('small')": "learning_rate = 'small' was given",
    "dimfree.OnlineSGD([0.1, 0.2])": "learning_rate = [0.1, 0.2] was given; it must be one number",
    "dimfree.OnlineSGD(0.1, ridge=jax.numpy.ones(2))": "ridge = [1. 1.] was given; it must be one number",
    "dimfree.TwoLayer(2, 2, noise=[0.1, 0.2])": "noise = [0.1, 0.2] was given; it must be one number",
    "dimfree.SpikedTensor(2, [1.0, 2.0])": "snr = [1.0, 2.0] was given; it must be one number",
    "dimfree.PersistentSGD(0.1, 2.0, [0.5, 0.6], 1.0)": "batch_fraction = [0.5, 0.6] was given",
    "dimfree.PiecewiseLinear([], [])": "at least one",
    "dimfree.PiecewiseLinear([0.0, 1.0], [0.1, -0.2])": "rates = [0.1, -0.2] was given",
    "dimfree.OnlineSGD(0.1, batch_size=0.5)": "batch_size = 0.5 was given",
    "dimfree.simulate(problem, sgd, start, 10, 1.0, runs=1, key=key, method='euler')": "method = 'euler'",
    "dimfree.simulate(problem, sgd, 0.3, 10, 1.0, runs=1, key=key)": "start = 0.3 was given",
    "dimfree.simulate(sgd, problem, start, 10, 1.0, runs=1, key=key)": "pass a problem",
    "dimfree.simulate(problem, 0.1, start, 10, 1.0, runs=1, key=key)": "algorithm = 0.1 was given",
    "dimfree.ode(problem, dimfree.GradientDescent(0.1, 2.0))": "reuse their data there are dimfree.dmft and",
    "dimfree.random_state(sgd, 10, key=key)": "pass a problem",
    "dimfree.plot.flow(problem)": "pass a limit",
    # What prints on several lines is said on one.
    "dimfree.plot.compare(dimfree.information_exponent('erf'))": "given Information exponent of erf: 1 order 0 1 2 3",
    "dimfree.plot.compare(problem)": "pass Trajectories, from dimfree.solve or dimfree.simulate",
    "dimfree.plot.distances(problem)": "what dimfree.check(...) gives",
    "dimfree.TwoLayer(2, normalisation='max')": "choose one of mean, sqrt, sum",
    "dimfree.TwoLayer(2, activation=3.0)": "3.0",
    "dimfree.solve(problem, start, 1.0)": "dimfree.ode(problem, algorithm)",
    "dimfree.ode(sgd, problem)": "pass a problem",
    "dimfree.ode(problem, sgd, rule='fine')": "rule = 'fine' was given",
    "dimfree.quadratic.plateau(problem)": "pass dimfree.ode(problem, algorithm)",
    "dimfree.sde(problem, sgd, d=None)": "d = None was given",
    "dimfree.mean_field(problem, sgd, d='many')": "d = 'many' was given",
    "dimfree.linear_noise(problem, sgd, d=[100, 200])": "d = [100, 200] was given; the dimension must be one number",
    "dimfree.rescaled(dimfree.ode(problem, sgd), dimfree.State(Q=[[1.0]], M=[[0.0]]))": "p = 1 students",
    "dimfree.rescaled_overlaps(dimfree.ode(problem, sgd), 0.0)": "start = 0.0 was given",
    "dimfree.quadratic.norm_learning(dimfree.gradient_flow(problem, sgd), 0.0, 1.0)": "start = 0.0 was given",
    "dimfree.basins(dimfree.ode(problem, sgd), d=10, alpha=-1.0, key=key)": "alpha = -1.0 was given",
    "dimfree.best_learning_rate(problem, sgd, 100, key=0)": "key = 0 was given",
    "dimfree.best_learning_rate(problem, 0.1, 100, key=key)": "algorithm = 0.1 was given",
    "dimfree.overparameterisation_gain(problem, 0.1, 100, key=key)": "algorithm = 0.1 was given",
    "dimfree.sample_complexity(problem, dimfree.GradientDescent(1, 2), [9, 10], key=key)": "pass dimfree.OnlineSGD",
    "dimfree.sample_complexity(problem, lambda d: 1 / d, [10, 20], key=key)": "algorithm = 0.1 was given",
}


def test_messages_for_values_of_the_wrong_type():
    names = {"jax": jax, "dimfree": dimfree, "problem": PROBLEM, "sgd": SGD, "start": START, "key": KEY}
    assert_refused(names, WRONG_TYPES)


def test_a_misspelt_name_is_answered_with_one_that_exists():
    with pytest.raises(AttributeError, match="simulate"):
        dimfree.simulat  # noqa: B018


@pytest.mark.parametrize("kind", ["solve", "simulate", "vectors"])
def test_divergence_is_an_outcome_not_a_nan(kind):
    problem, algorithm = dimfree.PhaseRetrieval(1), dimfree.OnlineSGD(2.0)
    start = dimfree.State(Q=[[1.0]], M=[[0.3]])
    if kind == "solve":
        trajectory = dimfree.solve(dimfree.ode(problem, algorithm), start, 50.0)
    else:
        method = "exact" if kind == "simulate" else "vectors"
        trajectory = dimfree.simulate(problem, algorithm, start, 30, 50.0, runs=5, key=KEY, method=method)
    assert np.all(np.asarray(trajectory.outcome) == dimfree.Outcome.DIVERGED)
    assert np.all(np.asarray(trajectory.stopped_at) < 50.0)
    assert np.isfinite(np.asarray(trajectory.state.Q)).all()
    assert "diverged" in repr(trajectory)


def test_one_diverging_cell_leaves_the_others():
    start = dimfree.State(Q=[[1.0]], M=[[0.3]])

    def final_risk(rate):
        trajectory = dimfree.solve(dimfree.ode(dimfree.PhaseRetrieval(1), dimfree.OnlineSGD(rate)), start, 20.0)
        return trajectory.risk[-1], trajectory.outcome

    risk, outcome = jax.vmap(final_risk)(jnp.array([0.02, 2.0, 0.05]))
    assert outcome.tolist() == [0, dimfree.Outcome.DIVERGED, 0]
    assert np.isfinite(np.asarray(risk)).all()
    assert risk[2] < 0.1
