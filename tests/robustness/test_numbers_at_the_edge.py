"""At the edge of what is valid: a finite number that an independent calculation confirms, or a refusal in words."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fuzzing import fuzz
from hypothesis import given
from hypothesis import strategies as st

import dimfree
from dimfree import InvalidInput, OnlineSGD, Outcome, PhaseRetrieval, State, TwoLayer
from processes import printed_by

KEY = jax.random.key(0)
SPHERE, FREE = OnlineSGD(0.1, sphere=True), OnlineSGD(0.1)
TIMES = np.array([0.0, 1.0])
EDGES = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1 - 1e-16, 1 - 1e-9, 1e-300, 1e-12]) | st.floats(-1, 1)


def one(m: float, q: float = 1.0) -> State:
    return State(Q=[[q]], M=[[m]])


def assert_finite(trajectory: dimfree.Trajectory) -> None:
    """All overlaps are numbers, and so is the risk, but that of runs which are said to have diverged."""
    assert np.isfinite(np.asarray(trajectory.state.covariance)).all()
    assert "alpha" in repr(trajectory)  # without a warning
    completed = np.asarray(trajectory.outcome) == Outcome.COMPLETED
    assert np.isfinite(np.asarray(trajectory.risk)[completed]).all()


KINDS = {
    "ode": lambda problem, sgd, m: dimfree.solve(dimfree.ode(problem, sgd), one(m), TIMES),
    "exact": lambda problem, sgd, m: dimfree.simulate(problem, sgd, one(m), 30, TIMES, runs=4, key=KEY),
    "vectors": lambda problem, sgd, m: dimfree.simulate(
        problem, sgd, one(m), 30, TIMES, runs=4, key=KEY, method="vectors"
    ),
    "sde": lambda problem, sgd, m: dimfree.solve(
        dimfree.sde(problem, sgd, d=30), one(m), TIMES, runs=4, key=KEY, steps=50
    ),
    "linear": lambda problem, sgd, m: dimfree.solve(dimfree.linear_noise(problem, sgd, d=30), one(m), TIMES),
}


def _overlaps(m, rate, noise, sphere, kinds=tuple(KINDS)):
    problem, sgd = PhaseRetrieval(noise=noise), OnlineSGD(rate, sphere=sphere)
    found = {name: KINDS[name](problem, sgd, m) for name in kinds}
    for name, trajectory in found.items():
        assert_finite(trajectory)
        risk, M, Q = (np.asarray(part)[..., -1, 0, 0] for part in (trajectory.risk[..., None, None],
                                                                  trajectory.state.M, trajectory.state.Q))  # fmt: skip
        # The risk of one quadratic student, from the fourth moments of two Gaussians.
        expected = 0.5 * (3 * Q**2 - 2 * (Q + 2 * M**2) + 3) + noise / 2
        np.testing.assert_allclose(risk, expected, rtol=1e-9, atol=1e-9 * np.max(1 + Q**2), err_msg=name)
        if name in ("exact", "vectors", "ode"):  # Cauchy-Schwarz, which paths of a diffusion may leave
            assert np.all(M**2 <= Q * (1 + 1e-9) + 1e-12), name
        if sphere and name != "sde":
            np.testing.assert_allclose(Q, 1, atol=1e-9)
    if noise == 0 and abs(m) == 1:  # the teacher itself, or its mirror image: no gradient, for any sample
        for name, trajectory in found.items():
            np.testing.assert_allclose(trajectory.risk, 0, atol=1e-9, err_msg=name)
            np.testing.assert_allclose(trajectory.state.M[..., -1, 0, 0], m, atol=1e-9, err_msg=name)


@fuzz(6)
@given(EDGES, st.sampled_from([0.0, 1e-300, 0.05, 0.2]), st.sampled_from([0.0, 1.0]))
def test_one_student_of_any_overlap(m, rate, noise):
    _overlaps(m, rate, noise, sphere=True, kinds=("ode", "exact"))


@pytest.mark.slow
@pytest.mark.parametrize("sphere", [True, False])
def test_one_student_of_very_many_overlaps(sphere):
    @fuzz(500)
    @given(EDGES, st.floats(0, 0.3), st.floats(0, 10))
    def all_hold(m, rate, noise):
        _overlaps(m, rate, noise, sphere)

    all_hold()


@pytest.mark.slow
@pytest.mark.parametrize("rate", [3.0, 1e3, 1e150])
def test_beyond_the_stability_limit_no_run_is_said_to_complete(rate):
    for trajectory in (
        dimfree.solve(dimfree.ode(PhaseRetrieval(), OnlineSGD(rate)), one(0.1), 20.0),
        dimfree.solve(dimfree.sde(PhaseRetrieval(), OnlineSGD(rate), d=30), one(0.1), 20.0, runs=4, key=KEY, steps=50),
        dimfree.simulate(PhaseRetrieval(), OnlineSGD(rate), one(0.1), 30, 20.0, runs=4, key=KEY),
        dimfree.simulate(PhaseRetrieval(), OnlineSGD(rate), one(0.1), 30, 20.0, runs=4, key=KEY, method="vectors"),
    ):
        # Where the ODE explodes at once, its solver may run out of steps before it sees that.
        assert np.isin(np.asarray(trajectory.outcome), (Outcome.DIVERGED, Outcome.STEP_LIMIT)).all()
        assert_finite(trajectory)


@pytest.mark.slow
def test_repeated_students_move_as_one():
    """Two equal students (Q singular) of the network (1/2) sum_j are one student of half the learning rate."""
    twins = State(Q=jnp.ones((2, 2)), M=jnp.full((2, 1), 0.3))
    times = np.array([0.0, 2.0, 6.0])
    pair = dimfree.solve(dimfree.ode(PhaseRetrieval(2), OnlineSGD(0.1)), twins, times)
    single = dimfree.solve(dimfree.ode(PhaseRetrieval(1), OnlineSGD(0.05)), one(0.3), times)
    np.testing.assert_allclose(pair.state.M[:, :, 0], np.repeat(single.state.M[:, :, 0], 2, axis=1), atol=1e-7)
    np.testing.assert_allclose(pair.state.Q, np.ones((2, 2)) * single.state.Q, atol=1e-7)
    for method in ("exact", "vectors"):
        runs = dimfree.simulate(PhaseRetrieval(2), OnlineSGD(0.1), twins, 30, 2.0, runs=4, key=KEY, method=method)
        assert_finite(runs)
        Q = np.asarray(runs.state.Q)
        np.testing.assert_allclose(Q, Q[..., :1, :1] * np.ones((2, 2)), rtol=1e-6)


@pytest.mark.parametrize(("p", "activation"), [(1, "erf"), (64, "square"), (64, "erf")])
def test_the_teacher_in_every_neuron_has_no_gradient_at_any_width(p, activation):
    """From the teacher itself, in every neuron, with no noise: no gradient, whatever the width."""
    problem, sgd = TwoLayer(p, 1, activation), OnlineSGD(0.1)
    start = State(Q=jnp.ones((p, p)), M=jnp.ones((p, 1)))
    drift = dimfree.ode(problem, sgd).drift(0.0, start)
    assert float(jnp.abs(drift.M).max()) < 1e-12
    assert float(jnp.abs(drift.Q).max()) < 1e-12
    assert abs(float(problem.risk(start))) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("method", ["exact", "vectors"])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_dimensions_that_hold_hardly_more_than_the_fields(d, method):
    """Two students and a teacher span three dimensions: in d = 3 they fit, below only where their Gram matrix does."""
    independent = State(Q=jnp.eye(2), M=[[0.1], [0.2]])
    line = State(Q=jnp.ones((2, 2)), M=[[-1.0], [-1.0]])
    for start, rank in ((independent, 3), (line, 1)):
        with contextlib.nullcontext() if rank <= d else pytest.raises(InvalidInput, match=f"rank {rank}.*d = {d}"):
            found = dimfree.simulate(PhaseRetrieval(2), SPHERE, start, d, 4.0, runs=4, key=KEY, method=method)
            assert_finite(found)
            assert np.linalg.eigvalsh(np.asarray(found.state.covariance)).min() > -1e-9


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_refused(bad):
    limit = dimfree.ode(PhaseRetrieval(), FREE)
    calls = {
        "learning_rate": lambda: OnlineSGD(bad),
        "ridge": lambda: OnlineSGD(0.1, ridge=bad),
        "readout_rate": lambda: OnlineSGD(0.1, readout_rate=bad),
        "noise": lambda: PhaseRetrieval(noise=bad),
        "readout": lambda: PhaseRetrieval(2, readout=[1.0, bad]),
        "Q": lambda: dimfree.solve(limit, one(0.1, bad), 1.0),
        "M": lambda: dimfree.solve(limit, one(bad), 1.0),
        "P": lambda: dimfree.solve(limit, State(Q=[[1.0]], M=[[0.1]], P=[[bad]]), 1.0),
        "alpha": lambda: dimfree.solve(limit, one(0.1), bad),
        "times": lambda: dimfree.solve(limit, one(0.1), [0.0, bad]),
        "simulated alpha": lambda: dimfree.simulate(PhaseRetrieval(), FREE, one(0.1), 30, bad, runs=1, key=KEY),
        "threshold": lambda: dimfree.exit_time(PhaseRetrieval(), SPHERE, 100, bad, key=KEY),
        "threshold of a rate": lambda: dimfree.best_learning_rate(PhaseRetrieval(), SPHERE, 100, bad, key=KEY),
        "alpha of regimes": lambda: dimfree.regimes(TwoLayer(2), FREE, 100, bad, key=KEY),
        "snr": lambda: dimfree.SpikedTensor(order=3, snr=bad),
        "relative_tolerance": lambda: dimfree.solve(limit, one(0.1), 1.0, relative_tolerance=bad),
        "state of the risk": lambda: dimfree.hessian(PhaseRetrieval(), one(bad), d=10),
        "fixed points": lambda: dimfree.fixed_points(limit, key=KEY, starts=State(Q=[[[1.0]]], M=[[[bad]]])),
        "mean field": lambda: dimfree.solve(
            dimfree.mean_field(TwoLayer(2), FREE), dimfree.WideState(M=[[0.1], [bad]], q_perp=[1.0, 1.0]), 1.0
        ),
        "reused": lambda: dimfree.GradientDescent(bad, samples_per_dimension=2.0),
        "samples": lambda: dimfree.GradientDescent(0.1, samples_per_dimension=bad),
    }
    accepted = []
    for name, call in calls.items():
        try:
            call()
        except InvalidInput:
            continue
        except Exception as error:
            accepted.append(f"{name}: {type(error).__name__}: {error!s:.100}")
        else:
            accepted.append(f"{name}: accepted")
    assert not accepted


def test_nothing_moves_without_a_learning_rate():
    still = OnlineSGD(0.0)
    solved = dimfree.solve(dimfree.ode(PhaseRetrieval(), still), one(0.3), 10.0)
    np.testing.assert_array_equal(solved.state.M[:, 0, 0], 0.3)
    for call in (
        lambda: dimfree.fixed_points(dimfree.ode(PhaseRetrieval(), still), key=KEY),
        lambda: dimfree.exit_time(PhaseRetrieval(), still, 100, key=KEY),
        lambda: dimfree.sample_complexity(PhaseRetrieval(), still, [50, 100], key=KEY),
        lambda: dimfree.basins(dimfree.ode(PhaseRetrieval(), still), d=50, alpha=5.0, key=KEY),
    ):
        with pytest.raises(InvalidInput, match="learning_rate = 0 was given; nothing moves"):
            call()


@pytest.mark.parametrize("method", ["exact", "vectors"])
def test_overlaps_that_no_vectors_of_this_dimension_have_are_refused(method):
    start = State(Q=jnp.eye(2), M=[[0.1], [0.2]])
    with pytest.raises(InvalidInput, match="rank 3, but vectors of dimension d = 2"):
        dimfree.simulate(PhaseRetrieval(2), SPHERE, start, 2, 4.0, runs=4, key=KEY, method=method)


# Data that are used again.

DESCENT = dimfree.GradientDescent(0.05, samples_per_dimension=2.0, sphere=True)
REUSED = {
    "persistent SGD": dimfree.PersistentSGD(0.05, 2.0, 0.5, 1.0, sphere=True),
    "ridge": dimfree.GradientDescent(0.05, samples_per_dimension=2.0),
}


@pytest.mark.parametrize("name", ["gradient descent", *(pytest.param(each, marks=pytest.mark.slow) for each in REUSED)])
@pytest.mark.parametrize("m", [1.0, -1.0])
def test_the_teacher_stays_what_it_is_when_its_data_are_used_again(name, m):
    """Without noise every sample's gradient vanishes at the teacher and at its mirror image."""
    problem, algorithm = PhaseRetrieval(), REUSED.get(name, DESCENT)
    ran = dimfree.simulate(problem, algorithm, one(m), 40, TIMES, runs=4, key=KEY)
    np.testing.assert_allclose(ran.state.M[..., 0, 0], m, atol=1e-9)
    np.testing.assert_allclose(ran.training_loss, 0, atol=1e-9)
    with pytest.raises(InvalidInput, match="The start lies along the teacher"):  # which divided by zero
        dimfree.solve(dimfree.dmft(problem, algorithm), one(m), 0.5, key=KEY)


# Gradients, against finite differences.


def _start(m):
    return State(Q=jnp.eye(2), M=jnp.stack([m, 0.5 * m])[:, None])


def _solved(rate, m):
    return dimfree.solve(dimfree.ode(PhaseRetrieval(2), OnlineSGD(rate)), _start(m), jnp.array([0.0, 3.0])).risk[-1]


def _drifted(rate, m):
    return jnp.sum(dimfree.ode(PhaseRetrieval(2), OnlineSGD(rate)).drift(0.0, _start(m)).Q)


def _risk(rate, m):
    return PhaseRetrieval(2, noise=rate).risk(_start(m))


def _linear_noise(rate, m):
    limit = dimfree.linear_noise(PhaseRetrieval(2), OnlineSGD(rate), d=100.0)
    return 100 * jnp.trace(dimfree.solve(limit, _start(m), jnp.array([0.0, 1.0])).covariance[-1])


def _mean_field(rate, m):
    limit = dimfree.mean_field(TwoLayer(2, 1, "erf"), OnlineSGD(rate))
    start = dimfree.WideState(M=jnp.stack([m, 0.5 * m])[:, None], q_perp=jnp.ones(2))
    return dimfree.solve(limit, start, jnp.array([0.0, 3.0])).risk[-1]


def _diffused(rate, m):
    limit = dimfree.sde(PhaseRetrieval(2), OnlineSGD(rate), d=100.0)
    found = dimfree.solve(limit, _start(m), jnp.array([0.0, 1.0]), runs=2, key=KEY, steps=20)
    return jnp.sum(found.state.Q[:, -1])


SLOW = {"solve": _solved, "linear_noise": _linear_noise, "mean_field": _mean_field, "sde": _diffused}
DIFFERENTIABLE = {"drift": _drifted, "risk": _risk} | SLOW


@pytest.mark.parametrize("name", ["drift", "risk", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_gradients_are_those_of_finite_differences(name):
    function, at, step = DIFFERENTIABLE[name], (jnp.asarray(0.1), jnp.asarray(0.3)), 1e-4
    found = jax.grad(function, argnums=(0, 1))(*at)
    for i, gradient in enumerate(found):
        ahead, behind = ([x + sign * step * (j == i) for j, x in enumerate(at)] for sign in (1, -1))
        difference = (function(*ahead) - function(*behind)) / (2 * step)
        # Central differences err by step^2 times a third derivative, and by the solver's 1e-8 / step.
        np.testing.assert_allclose(gradient, difference, rtol=2e-4, atol=2e-4)


# Other precisions and devices, each in a process of its own: JAX decides both once.

_ELSEWHERE = """
import os, sys
os.environ["JAX_ENABLE_X64"], os.environ["XLA_FLAGS"] = sys.argv[1], sys.argv[2]
import jax, numpy as np, dimfree
problem, sgd = dimfree.TwoLayer(2, 1, "erf", noise=0.1), dimfree.OnlineSGD(0.5)
start = dimfree.State(Q=[[1.0, 0.0], [0.0, 1.0]], M=[[0.2], [-0.1]])
solved = dimfree.solve(dimfree.ode(problem, sgd), start, np.array([0.0, 5.0, 10.0]))
ran = dimfree.simulate(problem, sgd, start, 50, np.array([0.0, 2.0]), runs=8, key=jax.random.key(0))
numbers = [*np.ravel(solved.risk), *np.ravel(solved.state.Q), *np.ravel(ran.risk)]
print(solved.risk.dtype, jax.device_count(), *(repr(float(number)) for number in numbers))
"""


def _elsewhere(x64: str, flags: str = "") -> tuple[str, int, np.ndarray]:
    kind, devices, *numbers = printed_by(_ELSEWHERE, x64, flags).split()
    return kind, int(devices), np.array([float(number) for number in numbers])


@pytest.mark.slow
def test_devices_agree():
    kind, devices, double = _elsewhere("1")
    assert (kind, devices) == ("float64", 1)
    kind, devices, spread = _elsewhere("1", "--xla_force_host_platform_device_count=4")
    assert (kind, devices) == ("float64", 4)
    # Runs are the same on any number of devices; sums may be in another order.
    np.testing.assert_allclose(spread, double, rtol=1e-12)
