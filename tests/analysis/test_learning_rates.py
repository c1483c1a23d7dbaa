"""The best learning rate: known optima, stability, scans where nothing is known, schedules."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

import dimfree
from dimfree.analysis.exit_times import Fallen, _solve_to_exits, deterministic_exits, random_starts
from dimfree.analysis.learning_rates import best_learning_rate, many_starts
from dimfree.analysis.plateau import rest

KEY = jax.random.key(0)


def fastest_rate(p, noise):
    """Of phase retrieval on the sphere, to leading order in log d."""
    return p**3 / (8 + 2 * p + (2 + noise) * p**2)


def test_one_student_has_its_known_optimum_and_stability_limit():
    found = best_learning_rate(dimfree.PhaseRetrieval(), dimfree.OnlineSGD(0.1, sphere=True), 10**6, 0.02, key=KEY)
    assert found.fastest == pytest.approx(1 / 12, rel=1e-4)  # exactly so without noise: see the solved ODE
    assert found.stable_below == pytest.approx(1 / 6, rel=2e-3)
    assert not found.is_limited_by_stability
    assert found.learning_rate == found.fastest
    assert found.fastest_error < 1e-6  # the exit times of all starts have their minimum there
    # A small overlap grows at this rate from a Gaussian start; the logarithm of its square has variance pi^2 / 2.
    growth = 4 / 12 * (1 - 6 / 12)
    start = np.log(1e-6) + scipy.special.digamma(0.5) + np.log(2)
    assert len(found.exits.times) == 1024
    assert abs(found.exit_time - (np.log(0.02) - start) / (2 * growth)) < 4 * found.exit_time_error + 0.1
    assert found.exit_time_error == pytest.approx(np.pi / np.sqrt(2) / (2 * growth) / np.sqrt(1024), rel=0.1)
    assert f"alpha = {found.exit_time:.5g} +- {found.exit_time_error:.2g}" in repr(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("p", "noise", "d", "limited"),
    # The closed form is the leading order in log d: at p = 5 the fastest rate is below it by 1.8% at d = 10^6 and by
    # 0.8% at 10^12.
    [(1, 0.5, 10**6, False), (2, 0.0, 10**6, True), (2, 10.0, 10**6, False), (5, 0.0, 10**12, True)],
)
def test_the_fastest_rate_leaves_and_does_not_learn_where_theory_says(p, noise, d, limited):
    problem, algorithm = dimfree.PhaseRetrieval(p, noise), dimfree.OnlineSGD(0.1 * p, sphere=True)
    found = best_learning_rate(problem, algorithm, d, 0.02, key=KEY)
    assert found.fastest == pytest.approx(fastest_rate(p, noise), rel=0.01)
    if noise == 0:  # with noise the learned state comes closer to the plateau and is lost before it is unstable
        assert found.stable_below == pytest.approx(p / 6, rel=5e-3)
    assert found.is_limited_by_stability == limited
    # The verdict by the ODE itself, long after the exit. Labels with noise leave an excess risk at the learned state.
    learned = 0.01 if noise == 0 else 0.75
    start = jax.tree.map(lambda leaf: leaf[0], random_starts(problem, d, 1, key=KEY))
    for rate, learns in ((0.97 * found.learning_rate, True), (found.fastest, not limited)):
        limit = dimfree.ode(problem, dimfree.OnlineSGD(rate, sphere=True))
        final = dimfree.solve(limit, start, 20 * found.exit_time).final
        excess = float(problem.risk(final) - noise / 2) / (1 + 1 / p)
        assert (excess < learned) == learns


@pytest.mark.slow
def test_the_slope_of_the_exit_time_is_that_of_differences():
    problem = dimfree.TwoLayer(2, 1, "square", noise=0.1)
    starts = random_starts(problem, 10_000, 2, key=KEY)

    @eqx.filter_jit
    def exit_time(rate):
        limit = dimfree.ode(problem, dimfree.OnlineSGD(rate, sphere=True))
        return jnp.mean(_solve_to_exits(limit, starts, jnp.asarray(400.0), Fallen(problem, 1.2))[0])

    slope = float(jax.grad(exit_time)(0.1))
    difference = (float(exit_time(0.1001)) - float(exit_time(0.0999))) / 2e-4
    assert slope == pytest.approx(difference, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "rate", "sphere", "d"),
    [(dimfree.TwoLayer(2, 2, "erf"), 1.0, False, 1_000), (dimfree.SingleIndex("he3"), 0.005, True, 100)],
)
def test_where_no_closed_form_exists_a_scan_finds_the_same(problem, rate, sphere, d):
    algorithm = dimfree.OnlineSGD(rate, sphere=sphere)
    found = best_learning_rate(problem, algorithm, d, 0.1, key=KEY)
    starts = many_starts(problem, algorithm, d, KEY)
    starts = jax.tree.map(lambda leaf: leaf[:8], starts)  # those of the search
    floor = found.fastest * 2.0**-6
    level = 0.9 * float(problem.risk(rest(dimfree.ode(problem, dimfree.OnlineSGD(floor, sphere=sphere)))))

    def exits_at(rate):
        limit = dimfree.ode(problem, dimfree.OnlineSGD(rate, sphere=sphere))
        horizon = 50 * found.fastest_exit_time * found.fastest / min(rate, found.fastest)
        return deterministic_exits(limit, starts, horizon, Fallen(problem, level))

    leaves = np.isfinite(exits_at(floor))  # an odd target is not found from the wrong side
    assert leaves.any()
    scanned = found.fastest * np.linspace(0.9, 1.1, 9)
    exits = [exits_at(each)[leaves].mean() for each in scanned]
    curve = np.polynomial.Polynomial.fit(scanned, exits, 3)
    minimum = (
        scanned[0] + np.argmin(curve(np.linspace(scanned[0], scanned[-1], 2001))) * (scanned[-1] - scanned[0]) / 2000
    )
    assert found.fastest == pytest.approx(minimum, rel=0.01)
    mean = found.fastest_exits.times[:8][leaves].mean()
    assert mean == pytest.approx(curve(found.fastest), rel=2e-3)


@pytest.mark.slow
def test_the_gain_of_width_is_that_of_theory_and_smaller_where_the_end_state_must_be_stable():
    problem, algorithm, d, threshold = dimfree.PhaseRetrieval(2), dimfree.OnlineSGD(0.2, sphere=True), 10**12, 0.02
    found = dimfree.overparameterisation_gain(problem, algorithm, d, threshold, key=KEY)

    starts = many_starts(problem, algorithm, d, KEY)

    def exit_time(p, rate):  # of the linearised ODE from these starts, whose overlaps are all that is random in it
        growth = 4 * rate / p * (1 - rate / p * (1 + 1 / p + 4 / p**2))
        overlaps = np.sum(np.square(starts.M[:, :p]), axis=(1, 2))  # the narrow student is the first of the wide ones
        return np.mean(np.log(threshold * (p + 1) / 2 / overlaps)) / (2 * growth)

    narrow = exit_time(1, 1 / 12)
    assert found.fastest_gain == pytest.approx(narrow / exit_time(2, fastest_rate(2, 0.0)), rel=0.01)
    assert found.gain == pytest.approx(narrow / exit_time(2, 2 / 6), rel=0.01)
    assert found.gain < 0.98 * found.fastest_gain


@pytest.mark.slow
def test_exit_times_and_gains_of_many_keys_scatter_as_their_errors_say():
    """Twelve keys; chi square of twelve values with eleven degrees of freedom, false alarm 1e-4 on each side."""
    problem, algorithm, d = dimfree.PhaseRetrieval(2), dimfree.OnlineSGD(0.2, sphere=True), 3_000
    found = [dimfree.overparameterisation_gain(problem, algorithm, d, key=jax.random.key(s)) for s in range(12)]
    for value, error in (("gain", "gain_error"), ("fastest_gain", "fastest_gain_error")):
        values, errors = (np.array([getattr(each, name) for each in found]) for name in (value, error))
        low, high = scipy.stats.chi2.ppf([1e-4, 1 - 1e-4], 11)
        assert low < np.sum(((values - values.mean()) / errors) ** 2) < high, (values, errors)
    for width in ("wide", "narrow"):
        values, errors = (
            np.array([getattr(getattr(each, width), name) for each in found])
            for name in ("exit_time", "exit_time_error")
        )
        assert low < np.sum(((values - values.mean()) / errors) ** 2) < high, (values, errors)
    apart = [
        each.gain * np.hypot(*(each_.exit_time_error / each_.exit_time for each_ in (each.wide, each.narrow)))
        for each in found
    ]
    assert np.mean([each.gain_error for each in found]) < 0.9 * np.mean(apart)  # what common starts save


def test_a_search_that_cannot_succeed_says_why():
    problem = dimfree.PhaseRetrieval()
    with pytest.raises(dimfree.InvalidInput, match="constant, positive learning rate"):
        best_learning_rate(problem, dimfree.OnlineSGD(lambda alpha: 0.1), 1_000, key=KEY)
    unequal = dimfree.PhaseRetrieval(2, readout=[1.0, 2.0])
    with pytest.raises(dimfree.InvalidInput, match="whose readouts are equal"):
        dimfree.overparameterisation_gain(unequal, dimfree.OnlineSGD(0.1), 1_000, key=KEY)
