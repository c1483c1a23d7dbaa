"""Samples against dimension: the measured powers, and the constant of the law that is left when d is scaled out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dimfree
from dimfree.analysis.sample_complexity import Recovered, fitted_power, log_median


def test_the_median_has_its_error():
    draws = np.random.default_rng(0)
    found = np.array([log_median(np.exp(draws.normal(size=101))) for _ in range(400)])
    # The median of 101 normals scatters by sqrt(pi / 2 / 101) = 0.125; the bands are four standard errors of 400.
    assert abs(found[:, 0].mean()) < 0.025
    assert found[:, 0].std() == pytest.approx(0.125, abs=0.018)
    assert found[:, 1].mean() == pytest.approx(0.125, rel=0.1)
    assert log_median(np.r_[np.ones(70), np.full(30, np.inf)]) == (np.inf, np.inf)


def test_the_fitted_power_has_its_error():
    x = np.log([100.0, 1_000.0, 10_000.0])
    slope, error = fitted_power(x, 3 + 2 * x, np.array([0.1, 0.1, 0.1]))
    assert slope == pytest.approx(2.0)
    assert error == pytest.approx(0.1 / np.sqrt(2) / np.log(10))
    # A point without a median is left out, and points off the line enlarge the error.
    assert fitted_power(x, np.array([1.0, 2.0, np.inf]), np.full(3, 0.1))[0] == pytest.approx(1 / np.log(10))
    _, large = fitted_power(x, 2 * x + [0, 1, 0], np.full(3, 0.1))
    assert large == pytest.approx(np.sqrt(2 / 3) / 0.1 * error)
    assert fitted_power(x, np.full(3, np.inf), np.full(3, np.inf)) == (np.inf, np.inf)


def test_every_teacher_must_be_found():
    found = Recovered(0.5)
    overlaps = np.array([[0.9, 0.0], [0.0, 0.4]])
    state = dimfree.State(Q=np.diag([1.0, 0.25]), M=overlaps)
    assert float(found(state)) == pytest.approx(0.8 - 0.5)  # the second student is half as long
    assert float(found(dimfree.State(Q=np.eye(2), M=overlaps))) == pytest.approx(-0.1)


def test_a_linear_target_needs_samples_in_proportion_to_d():
    """m' = rate (1 - m^2) - rate^2 noise of the plateau: at small rates the time is atanh(level) / rate."""
    sgd = dimfree.OnlineSGD(0.05, sphere=True)
    law = dimfree.sample_complexity(dimfree.SingleIndex("linear"), sgd, [200, 4_000], runs=32, key=jax.random.key(0))
    assert law.exponent.exponent == 1
    assert not law.has_logarithm
    assert law.power == pytest.approx(1.0, abs=0.03)
    assert law.found.tolist() == [1.0, 1.0]
    assert law.samples[1] / 4_000 == pytest.approx(np.arctanh(0.5) / 0.05, rel=0.06)
    assert "n ~ d^(" in repr(law)
    assert "predicted: d, from linear" in repr(law)


def test_what_has_no_power_is_refused_in_words():
    sgd, key = dimfree.OnlineSGD(0.1, sphere=True), jax.random.key(0)
    problem = dimfree.SingleIndex("linear")
    for arguments, message in (
        ({"dimensions": [100]}, "at least two"),
        ({"dimensions": [100, 50]}, "increasing"),
        ({"dimensions": [100, 200], "level": 1.5}, "between 0 and 1"),
        ({"dimensions": [100, 200], "runs": 3}, "at least 8"),
        ({"dimensions": [2, 4], "runs": 8, "level": 0.01}, "in d = 2 have an overlap of 0.01 with the target already"),
    ):
        with pytest.raises(dimfree.InvalidInput, match=message):
            dimfree.sample_complexity(problem, sgd, **{"key": key, **arguments})


@pytest.mark.slow
def test_an_exponent_of_two_needs_a_logarithm_more():
    """The median alpha is linear in log d, with the slope 1 / (2 growth rate)."""
    readout, rate = 0.3, 0.3
    problem, sgd = dimfree.SingleIndex("he2", readout=[readout]), dimfree.OnlineSGD(rate, sphere=True)
    cells = [300, 3_000, 30_000]
    law = dimfree.sample_complexity(problem, sgd, cells, runs=384, key=jax.random.key(1))
    assert law.has_logarithm
    assert law.power == pytest.approx(1.0, abs=0.1)
    # By hand: growth 4 rate readout from the signal, less half of the noise, rate^2 E[(g' e)^2] / 2.
    noise = 4 * readout**2 * (readout**2 * 10 + 2)  # E[x^2 He2^2] = 10, E[He2^2] = 2, E[x^2] = 1
    growth = 4 * rate * readout - rate**2 * noise / 2
    slope, error = np.polyfit(np.log(cells), law.samples / cells, 1), law.errors.max() * law.samples[-1] / cells[-1]
    assert abs(slope[0] * 2 * growth - 1) < 4 * error * 2 * growth / np.log(10)


def two_sines(x):
    """Exponent three, and bounded: the cubic polynomial reaches the law below at much larger d only."""
    return 2 * np.exp(1 / 8) * jnp.sin(x / 2) - np.exp(1 / 2) * jnp.sin(x)


def scaled_law(readout, h, number, seed):
    r"""With m = u d^-1/2, rate = h d^-1/2, alpha = d tau nothing depends on d:
    du = (3 a c^2 h u^2 - h^2 V u / 2) dtau + h N^1/2 dB with V = E[s^2] and N = E[s^2 teacher^2], s the gradient.
    Times at which the paths are at u = infinity, by Euler steps.
    """
    x, weights = np.polynomial.hermite_e.hermegauss(120)

    def mean(values):
        return float(np.sum(weights * values) / weights.sum())

    g = np.asarray(two_sines(x))
    slope = np.exp(1 / 8) * np.cos(x / 2) - np.exp(1 / 2) * np.cos(x)
    cubic = mean(g * (x**3 - 3 * x)) / 6**0.5
    assert abs(mean(g * x)) < 1e-14
    own = readout**2 * mean(slope**2 * g**2)
    shrink, noise = (readout**2 * (mean(slope**2) * mean(g**2 * power) + own) for power in (np.ones_like(x), x**2))
    draws, step = np.random.default_rng(seed), 2.5e-4
    u, passed = draws.normal(size=number), np.full(number, np.inf)
    for turn in range(9_600):
        free = ~np.isfinite(passed)
        here = u[free]
        drift = 3 * readout * cubic**2 * h * here**2 - h**2 * shrink * here / 2
        u[free] = here + drift * step + h * np.sqrt(noise * step) * draws.normal(size=here.size)
        passed[free & (u >= 40.0)] = (turn + 1) * step
    return passed


@pytest.mark.slow
def test_an_exponent_of_three_needs_the_square_of_d():
    """The power, within four standard errors; and the factor in front of it, from the law that is left without d."""
    readout, h = 0.1, 100.0
    problem = dimfree.SingleIndex(two_sines, readout=[readout])

    def sgd(d):
        return dimfree.OnlineSGD(h * d**-0.5, sphere=True)

    law = dimfree.sample_complexity(problem, sgd, [100, 250, 600], runs=256, key=jax.random.key(2))
    assert law.exponent.exponent == 3
    assert law.power_error < 0.08
    assert abs(law.power - 2.0) < 4 * law.power_error
    expected, other = log_median(scaled_law(readout, h, 4_000, seed=3))
    measured = np.log(law.samples[-1] / 600**2)
    # Ten per cent for what is left of d: the way ends at u = d^1/2 / 2, and the last of it is bent.
    assert abs(measured - expected) < 0.1 + 4 * np.hypot(law.errors[-1], other)
