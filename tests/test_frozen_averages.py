"""The solver for spectra over many scales: its averages are frozen over a step, and blocks move exactly."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

import dimfree
from dimfree import Spectrum, State
from dimfree.integration.adaptive import solve_adaptively
from dimfree.integration.frozen import FrozenAverages, phi

STEEP = Spectrum([100.0, 10.0, 1.0, 0.1, 0.01], [0.005, 0.02, 0.175, 0.3, 0.5])


@pytest.mark.parametrize("k", range(1, 6))
def test_phi_are_the_integrals_that_define_them(k):
    z = np.array([-30.0, -3.0, -1.01, -0.99, -0.3, -1e-3, 0.0, 1e-4, 0.5, 0.999, 1.001, 5.0])

    def integral(x):
        return scipy.integrate.quad(
            lambda t: np.exp((1 - t) * x) * t ** (k - 1) / np.prod(np.arange(1, k)), 0, 1, epsabs=1e-15, epsrel=1e-13
        )[0]

    np.testing.assert_allclose(phi(jnp.asarray(z), 5)[k], [integral(x) for x in z], rtol=2e-12)


def least_squares(blocks=512, noise=0.01, rate=0.5):
    """A linear student, 512 eigenvalues over a power law; the exact risk by eigenvectors, as a function of times."""
    eigenvalues = np.arange(1.0, blocks + 1) ** -1.4
    eigenvalues /= eigenvalues.mean()
    masses = np.arange(1.0, blocks + 1) ** -0.9
    masses /= masses.sum()
    nothing = jnp.zeros((blocks, 1, 1))
    pairs = {("students", "students"): nothing, ("students", "teachers"): nothing}
    start = State.of(pairs | {("teachers", "teachers"): jnp.asarray(masses)[:, None, None]}, None)
    jacobian = np.diag(-2 * rate * eigenvalues) + rate**2 * np.outer(eigenvalues / blocks, eigenvalues)
    values, vectors = np.linalg.eig(jacobian)
    inverse = np.linalg.inv(vectors)

    def risk(t):
        forced = np.expm1(values * t) / values * (inverse @ (rate**2 * eigenvalues / blocks * noise))
        return 0.5 * (eigenvalues @ (vectors @ (np.exp(values * t) * (inverse @ masses) + forced)).real + noise)

    problem = dimfree.TwoLayer(1, 1, activation="linear", noise=noise).with_inputs(Spectrum(eigenvalues))
    return dimfree.ode(problem, dimfree.OnlineSGD(rate)), start, risk


@pytest.mark.parametrize("end", [1e5, 1e9])
def test_least_squares_over_many_decades_of_time(end):
    limit, start, risk = least_squares()
    alphas = np.concatenate([[0.0], np.geomspace(1e-4, end, 60)])
    solved = dimfree.solve(limit, start, alphas)
    assert "frozen averages" in dict(solved.provenance)["solver"]
    assert int(solved.outcome) == dimfree.Outcome.COMPLETED
    np.testing.assert_allclose(np.asarray(solved.risk), [risk(t) for t in alphas], rtol=1e-5)


@eqx.filter_jit
def steps_taken(limit, solver, start, end, tolerance):
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(limit.vector_field),
        solver,
        0.0,
        end,
        None,
        limit.initial(start),
        args=start,
        stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance * 1e-2),
        max_steps=10**6,
    )
    return solution.stats["num_steps"], limit.observed(solution.ys, start)["state"]


@pytest.mark.slow
def test_far_fewer_evaluations_than_an_explicit_solver_at_equal_error():
    limit, start, risk = least_squares()
    expected, end = risk(1000.0), jnp.asarray(1000.0)
    found = {}
    for solver, tolerance in ((FrozenAverages(limit), 1e-8), (diffrax.Tsit5(), 1e-8)):
        steps, state = steps_taken(limit, solver, start, end, jnp.asarray(tolerance))
        state = State.of({pair: blocks[-1] for pair, blocks in state.overlaps.items()}, None)
        error = abs(float(limit.problem.risk(state)) / expected - 1)
        found[type(solver).__name__] = int(steps), error
    # A step of ours: two evaluations, and derivatives by the two covariances of fields that move.
    ours, theirs = found["FrozenAverages"], found["Tsit5"]
    assert ours[1] < 1e-5
    assert ours[1] < max(theirs[1], 1e-6)
    assert 6 * theirs[0] > 50 * 4 * ours[0], found


CASES = {
    "plain": ("erf", {}, dimfree.OnlineSGD(0.4)),
    "ridge, batch": ("erf", {}, dimfree.OnlineSGD(0.4, batch_size=3, ridge=0.3)),
    "schedule": ("erf", {}, dimfree.OnlineSGD(lambda alpha: 0.5 / (1 + alpha))),
    "sphere": ("erf", {}, dimfree.OnlineSGD(0.4, sphere=True)),
    "readout": ("tanh", {"readout": [0.5, 1.0]}, dimfree.OnlineSGD(0.4, readout_rate=0.3)),
    "momentum": ("erf", {}, dimfree.Momentum(0.4, 0.3, 2.0)),
    "average": ("erf", {}, dimfree.Averaged(dimfree.OnlineSGD(0.4), 1.0)),
}


@pytest.mark.parametrize(
    "name",
    [name if name == "plain" else pytest.param(name, marks=pytest.mark.slow) for name in CASES],
)
def test_solution_is_that_of_an_explicit_solver(name):
    activation, options, algorithm = CASES[name]
    problem = dimfree.TwoLayer(2, 1, activation=activation, noise=0.1, **options).with_inputs(STEEP)
    limit = dimfree.ode(problem, algorithm)
    start = limit.begun(dimfree.random_state(problem, 400, key=jax.random.key(1)))
    alphas, tolerances = jnp.array([0.0, 0.05, 0.3, 2.0, 5.0]), (jnp.asarray(1e-8), jnp.asarray(1e-10))
    ours, theirs = (
        solve_adaptively(limit, start, alphas, tolerances, 10**5, None, frozen=frozen)["state"]
        for frozen in (True, False)
    )
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-8)


def test_it_stops_where_it_is_told_to():
    limit, start, risk = least_squares(64)
    level = risk(30.0)
    stopped = dimfree.solve(limit, start, 1e4, stop=lambda state: level - limit.problem.risk(state))
    np.testing.assert_allclose(stopped.stopped_at, 30.0, rtol=1e-4)


def test_mild_spectra_are_left_to_an_explicit_solver():
    problem = dimfree.TwoLayer(2, 1, activation="erf").with_inputs(Spectrum([2.0, 0.5]))
    start = dimfree.random_state(problem, 400, key=jax.random.key(1))
    solved = dimfree.solve(dimfree.ode(problem, dimfree.OnlineSGD(0.4)), start, 1.0)
    assert "Tsit5" in dict(solved.provenance)["solver"]


@pytest.mark.parametrize("activation", [pytest.param("linear", marks=pytest.mark.slow), "erf"])
def test_units_of_the_inputs_do_not_matter(activation):
    """Inputs a thousand times as long, weights and rate as much smaller: the same risk, to its tolerance."""
    risks = []
    for scale in (1.0, 1e6):
        spectrum = dimfree.Spectrum(scale * np.array([4.0, 1.0, 0.01]), [0.1, 0.3, 0.6])
        problem = dimfree.TwoLayer(1, 1, activation).with_inputs(spectrum)
        start = dimfree.State(Q=[[1 / scale]], M=[[0.1 / scale]], P=[[1 / scale]])
        path = dimfree.solve(dimfree.ode(problem, dimfree.OnlineSGD(0.5 / scale)), start, [0.0, 3.0, 30.0, 300.0])
        risks.append(np.asarray(path.risk))
    np.testing.assert_allclose(risks[1], risks[0], rtol=1e-6)
