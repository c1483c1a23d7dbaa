r"""Momentum on a power law: a memory that grows with the clock changes the exponent of the risk, a fixed one does not.

Least squares with eigenvalues $\kappa_j \sim j^{-2a}$ and squared teacher entries $j^{-2b}$, b < a. SGD at rate $\eta$
learns the modes with $\kappa \eta \alpha > 1$. The others carry the risk $\alpha^{-\tau}$,
$\tau = (2a + 2b - 1) / (2a)$.

With momentum (rate $\eta_2$) and forgetting $c / (1 + \alpha)$ the error e of a mode obeys
$e'' + (c/\alpha) e' + \eta_2 \kappa e = 0$ as soon as $\eta_2 \alpha \gg \eta$. It is a function of
$\alpha \sqrt{\eta_2 \kappa}$ that decays with the power c/2: modes with $\kappa \eta_2 \alpha^2 > 1$ are learned, and
the risk is $\alpha^{-2 \tau}$ if $c > 2 \tau$. With a fixed forgetting c a mode relaxes at the rate
$\kappa (\eta + \eta_2 / c)$: another rate, the same exponent.

The noise of the samples multiplies the risk by $1 / (1 - \eta/2)$ here, where the mean eigenvalue is one: it comes from
large eigenvalues, which are learned, and those follow SGD. Ferbach et al. 2025 (arXiv 2505.16098).
"""

import functools

import jax
import numpy as np
import pytest
import scipy.integrate

import dimfree

RATE, MOMENTUM_RATE, CONSTANT = 0.5, 1.0, 4.0
PAIRS = [(1.25, 0.25), (1.25, 0.6)]

pytestmark = pytest.mark.slow  # compilation of the solver for wide spectra


def power_law(a, b, dimensions, blocks):
    """The problem, and a start at zero with a teacher of norm d^1/2 whose squared entries are j^-2b."""
    spectrum = dimfree.Spectrum.power_law(2 * a, dimensions, blocks=blocks).normalised()
    masses = spectrum.fractions * spectrum.eigenvalues ** (b / a)
    problem = dimfree.TwoLayer(1, 1, "linear").with_inputs(spectrum)
    start = dimfree.random_state(
        problem, dimensions, key=jax.random.key(0), norm=0.0, P=(masses / masses.sum())[:, None, None]
    )
    return problem, start


def momentum(momentum_rate, constant, growth):
    """One program for all three: without momentum it is SGD, without growth the memory is fixed."""
    return dimfree.Momentum(RATE, momentum_rate, lambda alpha: constant / (1 + growth * alpha))


@functools.cache
def solved(a, b):
    """The risks of SGD, of a fixed and of a growing memory, and what the last is without noise, mode by mode."""
    problem, start = power_law(a, b, 1_000_000, 96)
    alphas = np.concatenate([[0.0], np.geomspace(1.0, 1000.0, 25)])

    def risk(*numbers):
        limit = dimfree.ode(problem, momentum(*numbers))
        path = dimfree.solve(limit, start, alphas, relative_tolerance=1e-6, absolute_tolerance=1e-9)
        assert int(path.outcome) == dimfree.Outcome.COMPLETED
        assert "frozen averages" in dict(path.provenance)["solver"]
        return np.asarray(path.risk)[1:]

    def error(eigenvalue):
        def slope(alpha, values):
            e, v = values
            return (
                -RATE * eigenvalue * e - MOMENTUM_RATE * v,
                eigenvalue * e - CONSTANT / (1 + alpha) * v,
            )

        times = (0.0, alphas[-1])
        path = scipy.integrate.solve_ivp(
            slope, times, (1.0, 0.0), t_eval=alphas[1:], method="LSODA", rtol=1e-7, atol=1e-12
        )
        return path.y[0]

    eigenvalues = np.asarray(problem.inputs.eigenvalues)
    weights = eigenvalues * np.asarray(start.overlaps["teachers", "teachers"])[:, 0, 0]
    modes = 0.5 * weights @ np.array([error(eigenvalue) for eigenvalue in eigenvalues]) ** 2
    risks = risk(0.0, 1.0, 0.0), risk(MOMENTUM_RATE, CONSTANT, 0.0), risk(MOMENTUM_RATE, CONSTANT, 1.0)
    return alphas[1:], *risks, modes


def exponent(alphas, values, above):
    kept = alphas >= above
    return -np.polyfit(np.log(alphas[kept]), np.log(values[kept]), 1)[0]


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_exponents_of_the_risk(a, b):
    alphas, sgd, fixed, growing, _ = solved(a, b)
    tau = (2 * a + 2 * b - 1) / (2 * a)
    assert abs(exponent(alphas, sgd, 1.0) / tau - 1) < 0.003  # over three decades
    assert abs(exponent(alphas, fixed, 100.0) / tau - 1) < 0.003
    assert abs(exponent(alphas, growing, 100.0) / (2 * tau) - 1) < 0.02
    slopes = -np.diff(np.log(growing)) / np.diff(np.log(alphas)) / (2 * tau)
    assert slopes[0] < 0.65  # it begins as SGD
    assert np.all(np.diff(slopes[:16]) > 0)
    np.testing.assert_allclose(slopes[-4:], 1.0, atol=0.02)


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_what_a_memory_gains(a, b):
    """A fixed memory is SGD at another rate; a growing one is its modes without noise, times that of SGD."""
    _, sgd, fixed, growing, modes = solved(a, b)
    tau = (2 * a + 2 * b - 1) / (2 * a)
    gain = (1 + MOMENTUM_RATE / (RATE * CONSTANT)) ** -tau
    np.testing.assert_allclose(fixed[-1] / sgd[-1], gain, rtol=0.003)
    np.testing.assert_allclose(growing / modes, 1 / (1 - RATE / 2), rtol=0.01)


def test_runs_at_finite_d_approach_the_limit_of_a_growing_memory():
    """Means over exact runs, at three times. False alarms: less than one in a thousand."""
    problem, start = power_law(1.25, 0.25, 32, 12)
    alphas = np.array([0.0, 1.0, 4.0, 16.0])
    algorithm = momentum(MOMENTUM_RATE, CONSTANT, 1.0)
    limit = np.asarray(dimfree.solve(dimfree.ode(problem, algorithm), start, alphas).risk)[1:]
    found = []
    for d, runs in ((320, 512), (1280, 512)):
        risks = dimfree.simulate(problem, algorithm, start, d, alphas, runs=runs, key=jax.random.key(d)).risk
        risks = np.asarray(risks)[:, 1:] / limit
        found.append((risks.mean(axis=0) - 1, risks.std(axis=0) / runs**0.5))
    (coarse, _), (fine, error) = found
    assert np.all(np.abs(fine) < np.abs(coarse) / 2 + 4.5 * error)
    assert np.all(np.abs(fine) < 0.02)
