"""Mignacco et al. 2021: every statement and every figure has the verdict that was found when it was first checked."""

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")
import dimfree
from dimfree import PersistentSGD
from dimfree.papers import find
from dimfree_papers.mignacco2021 import (
    batches,
    comparisons,
    conventions,
    equations,
    generalization,
    mean_field,
    noise,
    random_starts,
    ridges,
)
from verdicts import assert_figure, assert_verdicts

STATEMENTS = {
    "section 3.1, eq. (6)": "misprint",
    "eq. (7), t + 1": "misprint",
    "eq. (7), b": "agrees",
    "eq. (7), small steps": "agrees",
    "section 3.1, SGD from eq. (7)": "agrees",
    "after eq. (10)": "agrees",
    "eqs. (14), (15), at the start": "agrees",
    "eq. (A.23), at the start": "misprint",
    "eqs. (17), (20), at the start": "agrees",
    "eqs. (19), (A.20), (A.21), linear regression": "misprint",
    "eq. (A.21), phase retrieval": "misprint",
    "eq. (A.23)": "misprint",
    "eqs. (15), (A.19) and (A.29)": "agrees",
    "eqs. (B.5)-(B.8), m not negative": "agrees",
    "eq. (B.8), m negative": "agrees",
    "after eq. (B.8)": "agrees",
    "eq. (C.2)": "agrees",
    "appendix C.1, rescaling": "agrees",
}
FIGURES = {
    "fig1": {
        "Fig. 1, DMFT from m = 0.5": "agrees",
        "Fig. 1, DMFT from m = 0.65": "agrees",
        "Fig. 1, DMFT from m = 0.8": "agrees",
        "Fig. 1, trapped close to the signal": "agrees",
        "Fig. 1, overlap is not all": "agrees",
    },
    "fig2": {"Fig. 2, persistent SGD outperforms GD": "agrees"},
    "fig3": {"Fig. 3, plateaus": "agrees"},
    "fig4": {"Fig. 4, persistence, largest": "agrees", "Fig. 4, temperature, largest": "agrees"},
    "fig5": {"Fig. 5, DMFT": "agrees", "Fig. 5, training loss": "agrees"},
    "fig6": {"Fig. 6, DMFT": "agrees", "Fig. 6, training loss": "agrees"},
    "fig7": {"Fig. 7, plateau of GD": "agrees", "Fig. 7, time grows with d": "agrees"},
    "figB1": {"Fig. B.1, eq. (B.8)": "agrees"},
    "figB2": {"Fig. B.2, rescaling changes the ridge": "agrees"},
    "figB3": {"Fig. B.3, SGD": "agrees", "Fig. B.3, persistent SGD": "agrees"},
    "figB4": {"Fig. B.4, t below the persistence": "agrees"},
}
PANELS = {"fig1": 6, "fig2": 2, "fig3": 3, "fig4": 6, "fig5": 2, "fig6": 2, "fig7": 4, "figB1": 3, "figB2": 2}
PANELS |= {"figB3": 2, "figB4": 4}
LEGENDS = {"fig4": 3}  # one for each column; elsewhere one for each panel


def test_the_paper_is_found_with_its_figures():
    assert list(find("mignacco2021").figures) == list(FIGURES)


@pytest.mark.slow
def test_every_statement_has_its_verdict():
    assert_verdicts(dimfree.claims("mignacco2021"), STATEMENTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(FIGURES))
def test_every_figure_is_drawn_with_its_verdicts(name):
    assert_figure(
        dimfree.reproduce("mignacco2021", name), FIGURES[name], panels=PANELS[name], legends=LEGENDS.get(name)
    )


# Each erratum by a way that the claims do not take.


def test_the_slope_at_the_start_by_quadrature():
    """(A.23): Gaussian averages of the loss of the source, by autodiff; the printed multiplier would turn the sign."""
    m = 0.5
    nodes, weights = np.polynomial.hermite_e.hermegauss(12)
    first, second = np.meshgrid(nodes, nodes)
    mass = np.outer(weights, weights) / (2 * np.pi)
    teacher, student = jnp.asarray(first), jnp.asarray(m * first + (1 - m**2) ** 0.5 * second)

    def loss(h, h0):
        return conventions.PHASE.loss(h[None], h0[None], jnp.zeros(()), None)

    over_all = jnp.vectorize
    force = over_all(jax.grad(loss))(student, teacher)
    curvature = over_all(jax.grad(jax.grad(loss)))(student, teacher)

    def mean(values):
        return float(np.sum(mass * np.asarray(values)))

    nu, mu, extra = -2 * mean(student * force), 2 * mean(teacher * force), 2 * mean(curvature)
    np.testing.assert_allclose(-nu * m - mu, 4 * m * (1 - m**2), rtol=1e-12)
    np.testing.assert_allclose(-(nu + extra) * m - mu, -4 * m**3, rtol=1e-12)
    np.testing.assert_allclose(mean(over_all(loss)(student, teacher)), 1 - m**2, rtol=1e-12)


def test_the_overlap_by_the_spectrum_is_that_of_a_large_matrix():
    """The exact solution that (A.21) is held against: regression on a part of the samples, at d = 600."""
    d, samples, fraction, overlap = 600, 8, 0.25, 0.3
    draws = np.random.default_rng(0)
    x = draws.normal(size=(samples * d, d))[: round(fraction * samples * d)]
    signal = np.eye(d)[0] * d**0.5
    rest = draws.normal(size=d)
    rest[0] = 0
    weights = overlap * signal + (1 - overlap**2) ** 0.5 * rest * (d / (rest @ rest)) ** 0.5
    values, vectors = np.linalg.eigh(x.T @ x / d)
    times = np.array([0.1, 0.3])
    found = [
        signal @ (signal + vectors @ (np.exp(-values * t / fraction) * (vectors.T @ (weights - signal)))) / d
        for t in times
    ]
    # Fluctuations of order d^-1/2.
    np.testing.assert_allclose(equations.exact_overlap(times, samples, overlap, fraction), found, atol=0.05)
    np.testing.assert_allclose(equations.over_spectrum(lambda s: s, 2.0), 2.0, rtol=1e-8)
    np.testing.assert_allclose(equations.over_spectrum(lambda s: s**2, 2.0), 6.0, rtol=1e-8)


@pytest.mark.parametrize(("law", "verdict"), [(lambda d: 20 * np.log(d), "agrees"), (lambda d: d, "differs")])
def test_a_logarithm_is_told_from_a_power_where_some_runs_do_not_recover(law, verdict):
    """Times with a spread of 20%; a fifth of the runs does not recover. From d = 10 to 1000 the logarithm triples."""
    draws = np.random.default_rng(0)
    plans = tuple(conventions.Plan(d, 256, 64, 0.02, 1_000.0) for d in (10, 30, 100, 1_000))
    times = [law(plan.d) * draws.lognormal(0.0, 0.2, plan.runs) for plan in plans]
    for each in times:
        each[draws.random(each.size) < 0.2] = np.inf
    claim = random_starts._growth(plans, times, np.array([np.mean(np.isfinite(each)) for each in times]))
    assert claim.verdict == verdict
    quantile, error = random_starts._quantile(times[0], 64, 0.4)
    # The median of those that recover; the error of a quantile of 256 draws: 0.2 (0.4 0.6 / 256)^(1/2) / density.
    np.testing.assert_allclose(quantile, law(10), rtol=0.06)
    np.testing.assert_allclose(error, 0.2 * law(10) * (0.24 / 256) ** 0.5 / (0.8 * 0.399), rtol=0.4)


def test_draws_with_replacement_have_a_binomial_number():
    """Eq. (6): mean l and variance l (1 - 1/M) of how often a sample is drawn; four standard errors."""
    samples, trials = 50, 4_000
    counts = batches.with_replacement(25, samples, trials, seed=3)
    assert np.all(counts.sum(axis=1) == 25)
    np.testing.assert_allclose(counts.mean(), 0.5, atol=1e-12)
    np.testing.assert_allclose(counts.var(), 0.5 * (1 - 1 / samples), rtol=4 * (3 / (samples * trials)) ** 0.5)


@pytest.mark.parametrize(("q", "m", "q0"), [(1.0, 0.6, 1.0), (1.4, -0.5, 1.0), (0.7, 0.2, 1.5), (1.0, 1.0, 1.0)])
def test_the_mean_squared_error_by_monte_carlo(q, m, q0):
    z = np.random.default_rng(1).normal(size=(2, 400_000))
    x = q0**0.5 * z[0]
    student = m / q0**0.5 * z[0] + max(q - m**2 / q0, 0.0) ** 0.5 * z[1]
    errors = (np.abs(x) - np.abs(student)) ** 2
    four = 4 * errors.std() / 400_000**0.5 + 1e-12
    np.testing.assert_allclose(conventions.mean_squared_error(q, m, q0), errors.mean(), atol=four)
    if q * q0 > m**2:
        np.testing.assert_allclose(generalization.by_quadrature(q, m, q0), errors.mean(), atol=four)


def test_the_error_on_fresh_samples_is_that_of_the_overlaps():
    runs = conventions.Measured(
        np.array([0.0, 1.0]),
        np.array([[0.2, 0.9], [-0.3, 1.0]]),
        np.array([[1.0, 1.2], [0.5, 1.0]]),
        np.zeros((2, 2)),
        0,
    )
    np.testing.assert_allclose(ridges.fresh_error(runs), conventions.mean_squared_error(runs.q, runs.m), atol=0.01)


def test_batches_without_rescaling_change_as_often():
    """Figure B.2(b): in a step, the same probabilities as with rescaling, and the same pull of ridge and gradient."""
    rate, ridge, fraction = 0.01, 0.5, 0.5
    scaled = conventions.algorithms(rate, sphere=False, ridge=ridge)["persistent SGD"]
    plain = ridges.unscaled(rate, ridge)["persistent SGD"]
    assert isinstance(scaled, PersistentSGD)
    assert isinstance(plain, PersistentSGD)
    forgotten = [float(each.learning_rate / (each.batch_fraction * each.persistence)) for each in (scaled, plain)]
    np.testing.assert_allclose(forgotten[1], forgotten[0], rtol=1e-12)
    np.testing.assert_allclose(float(plain.learning_rate * plain.ridge), rate * ridge, rtol=1e-12)
    np.testing.assert_allclose(float(plain.learning_rate / plain.batch_fraction), rate, rtol=1e-12)
    assert float(plain.batch_fraction) == fraction


def test_times_are_whole_steps_and_errors_are_of_datasets():
    plan = conventions.Plan(10, 8, 2, 0.02, 1.0)
    steps = plan.times(12) / plan.rate
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-9)
    assert steps[0] == 0
    np.testing.assert_allclose(steps[-1], 50)
    assert np.all(np.diff(steps) > 0)
    # Runs that are the same on each dataset: two numbers, not eight.
    values = np.repeat([1.0, 3.0], 4)
    np.testing.assert_allclose(conventions.standard_error(values, 2), 1.0)


def test_the_largest_rise_is_of_the_average_and_its_error_of_the_runs():
    # Two datasets of two runs; levels differ by 10 between them, rises from the second time to the fourth are 2 and 4.
    level, rise = np.array([[0.0], [0.0], [10.0], [10.0]]), np.array([[2.0], [2.0], [4.0], [4.0]])
    values = level + np.array([1.0, 0.0, 0.0, 0.0, -5.0]) + rise * np.array([0.0, 0.0, 0.5, 1.0, 1.0])
    np.testing.assert_allclose(ridges.largest_rise(values, 2), (3.0, 1.0))
    assert ridges.largest_rise(-np.cumsum(np.ones((4, 5)), axis=1), 2) == (0.0, 0.0)


def test_low_ridges_are_compared_on_the_same_data_until_they_are_at_rest(monkeypatch):
    plan = conventions.Plan(40, 8, 4, 0.02, 0.2)
    monkeypatch.setattr(ridges, "_AT_REST", plan)
    start, errors = ridges.start_of_ridge(), {}
    for ridge in (0.0, 0.1):
        algorithm = conventions.algorithms(plan.rate, sphere=False, ridge=ridge)["persistent SGD"]
        errors[ridge] = ridges.fresh_error(conventions.measure(plan, algorithm, start, seed=15))[:, -1]
    # Worse by 1 on each dataset than without ridge, so that there is no error; far worse, but on one dataset alone.
    sure, unsure = errors[0.0] + 1.0, errors[0.1] + np.repeat([9.0, 0.0, 0.0, 0.0], 2)
    first, _ = ridges._low_ridges(sure)
    _, second = ridges._low_ridges(unsure)
    assert (first.verdict, second.verdict) == ("agrees", "differs")
    assert "lower by 1.000 +- 0.000" in first.remark
    assert "lower by 2.250 +- 2.250" in second.remark


def test_theories_of_several_starts_keep_their_times():
    coarse, fine = np.array([0.0, 1.0, 4.0]), np.array([0.0, 1.0, 2.0, 4.0])
    times, curves = mean_field.on_one_grid([coarse, fine], [3 * coarse, fine**2])
    np.testing.assert_array_equal(times, fine)
    np.testing.assert_allclose(curves, [[0.0, 3.0, 6.0, 12.0], [0.0, 1.0, 4.0, 16.0]])


def test_the_temperature_is_switched_off():
    schedule = noise.cooled(0.5, 700.0, 0.01)
    np.testing.assert_allclose(
        [float(schedule(jnp.asarray(t))) for t in (0.0, 699.9, 700.0, 700.02)], [0.5, 0.5, 0.5, 0.0]
    )


def test_a_run_recovers_when_the_size_of_its_overlap_first_exceeds_nine_tenths():
    runs = conventions.Measured(
        np.array([0.0, 1.0, 2.0]),
        np.array([[0.1, 0.95, 1.0], [0.1, -0.3, -0.92], [0.0, 0.2, 0.5]]),
        *([np.zeros(1)] * 2),
        0,
    )
    np.testing.assert_array_equal(random_starts.recovery_times(runs), [1.0, 2.0, np.inf])


def test_random_starts_have_variance_one_over_d():
    overlaps = np.asarray(random_starts.random_starts(20_000, 25, seed=0).M)[:, 0, 0]
    np.testing.assert_allclose(25 * overlaps.var(), 1.0, atol=0.04)  # four standard errors


def test_the_exponent_of_a_distance_is_read_off():
    """Figure B.3: runs at distances proportional to the root of the rate, and at a constant one."""
    rates, times = (0.04, 0.02, 0.01), np.linspace(0.0, 1.0, 11)
    descent = np.zeros((4, 11))
    m = np.stack([np.stack([descent, descent + rate**0.5, descent + 0.1]) for rate in rates])
    vanilla, persistent = comparisons._figb3_claims(times, m, rates)
    np.testing.assert_allclose([vanilla.ours, persistent.ours], [0.5, 0.0], atol=1e-9)
    assert vanilla.verdict == persistent.verdict == "agrees"
    # The same persistent runs in place of SGD would not pass.
    swapped, _ = comparisons._figb3_claims(times, m[:, [0, 2, 1]], rates)
    assert swapped.verdict == "differs"
