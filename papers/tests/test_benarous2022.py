"""Ben Arous et al. 2022: every statement and every figure has the verdict that was found when it was first checked."""

import itertools
import re

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")
import dimfree
from dimfree import Mixture, OnlineSGD, Sobol, SpikedTensor, State, linear_noise, ode, simulate, solve
from dimfree.analysis.basins import basins
from dimfree.analysis.fixed_points import fixed_points
from dimfree_papers.benarous2022 import binary, binary_rings, conventions, tensors, theorem, xor, xor_rings
from dimfree_papers.benarous2022.figures import rescaled_variance
from dimfree_papers.benarous2022.mixture_figures import ring_deviation
from verdicts import assert_figure, assert_verdicts

STATEMENTS = {
    "Theorem 2.2, eqs. (2.1), (2.6)": "agrees",
    "Theorem 2.2, eqs. (2.2), (2.3), (2.7)": "agrees",
    "section 2.1, eqs. (2.4), (2.5)": "agrees",
    "Definition 2.1(3)": "misprint",
    "Theorem 2.2, eq. (2.2), for overlaps R": "misprint",
    "section 3, population loss": "agrees",
    "Proposition 3.1, eq. (3.1)": "agrees",
    "Proposition 3.2(1), (0, 0)": "agrees",
    "Proposition 3.2(1), (0, 1)": "agrees",
    "Proposition 3.2(1), stability of (0, 1)": "agrees",
    "Proposition 3.2, threshold for matrices": "agrees",
    "Proposition 3.2(2), matrices": "agrees",
    "Proposition 3.2(2), order 4": "agrees",
    "Proposition 3.2(2), order 3": "misprint",
    "Proposition 3.2(2), stability": "agrees",
    "Proposition 3.2, lambda_c of eq. (D.4)": "agrees",
    "Remark 1": "agrees",
    "Remark 1, small steps": "agrees",
    "section 3, O(n log n) steps": "agrees",
    "Proposition 3.3, eq. (3.2)": "agrees",
    "section 3, after eq. (3.2)": "agrees",
    "section 3, after eq. (3.2), order >= 3": "agrees",
    "section 3, lambda_n = Lambda n^((k-2)/2), drift": "misprint",
    "section 3, Lambda_c(k) = 1": "misprint",
    "section 3, below Lambda_c": "misprint",
    "Proposition 4.1, eqs. (4.2), (4.3)": "agrees",
    "Proposition 4.2, ODE": "agrees",
    "Proposition 4.2, ODE where m_1 = 0": "misprint",
    "footnote 5, binary mixture": "agrees",
    "section 1, SNR tends to zero": "misprint",
    "Proposition 4.2(1)": "agrees",
    "Proposition 4.2(2), (3), location": "agrees",
    "Proposition 4.2(3), stability": "agrees",
    "Proposition 4.2, all fixed points": "agrees",
    "Proposition 4.2, probability 1/2": "agrees",
    "Proposition 4.2(2), unstable": "misprint",
    "Proposition 4.2(2), end points": "agrees",
    "Proposition 4.2(2), finite snr": "misprint",
    "Proposition 4.3, drift": "misprint",
    "Proposition 4.3, R": "agrees",
    "Proposition 4.3, diffusion": "agrees",
    "Proposition 4.3, rank": "agrees",
    "section 5, eq. (5.1)": "agrees",
    "section 5, ridge 1/8": "agrees",
    "section 5, ridge above 1/8": "agrees",
    "section 5, conditions 1-5": "agrees",
    "section 5, partitions": "misprint",
    "section 5, components": "agrees",
    "section 5, stable components": "agrees",
    "section 5, unstable components": "misprint",
    "section 5, probability 3/32": "agrees",
    "section 5, probability from the limit law": "misprint",
    "footnote 5, XOR mixture": "misprint",
    "Proposition 5.1, drift": "misprint",
    "Proposition 5.1, R": "agrees",
    "Proposition 5.1, diffusion": "agrees",
    "Proposition 5.1, other entries": "misprint",
    "Proposition 5.1, rank": "agrees",
    "Figure 3, caption": "misprint",
}
EQUATIONS = {"2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7", "3.1", "3.2", "4.2", "4.3", "5.1"}

FIGURES = {
    "fig1": {
        "Fig. 1(a), stable Ornstein-Uhlenbeck process": "agrees",
        "Fig. 1(c), unstable Ornstein-Uhlenbeck process": "agrees",
        "Fig. 1(c), (d), recovery": "agrees",
        "Fig. 1(b), (d), radius": "agrees",
        "Fig. 1(b), (d), ODE": "agrees",
    },
    "fig2": {"Fig. 2(a)": "agrees", "Fig. 2(b)": "agrees", "Fig. 2(c)": "agrees", "Fig. 2(d), rank 1": "agrees"},
    "fig3": {"Fig. 3(a)": "agrees", "Fig. 3(b)": "agrees", "Fig. 3(c)": "agrees", "Fig. 3(d)": "agrees"},
}


# The statements that are evaluated without runs, in seconds.
FORMULAS = {"theorem": theorem._theorem, "binary_rings": binary_rings.claims, "xor_rings": xor_rings.claims}


@pytest.mark.parametrize("part", FORMULAS)
def test_statements_that_need_no_runs_have_their_verdicts(part):
    claims = FORMULAS[part]()
    assert claims
    assert_verdicts(claims, {claim.where: STATEMENTS.get(claim.where, "not listed") for claim in claims})


@pytest.mark.slow
def test_every_statement_has_its_verdict():
    claims = dimfree.claims("benarous2022")
    assert_verdicts(claims, STATEMENTS)
    assert {number for claim in claims for number in re.findall(r"\((\d\.\d)\)", claim.where)} >= EQUATIONS


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in FIGURES])
def test_every_figure_is_drawn_with_its_verdicts(name):
    assert_figure(dimfree.reproduce("benarous2022", name), FIGURES[name], panels=4)


# Each erratum by a way that the claims do not take.


def test_the_second_order_noise_grows_with_the_dimension():
    """E1: closed forms of the mean square in Definition 2.1(3), from the moments of a chi-square variable."""
    field = theorem.field(2, 1.3, 60)
    R2, n = theorem._M**2 + theorem._R2, 60
    rest = (n - 2) + (1 + theorem._R2 / R2) ** 2  # V outside the signal: 8 R^2 times (1, ..., 1, 1 + r^2 / R^2)
    np.testing.assert_allclose(field.second_order_noise, 8 * (8 * R2) ** 2 * rest, rtol=1e-12)
    # Monte Carlo of the definition, 1% of standard error.
    draws = np.random.default_rng(0).multivariate_normal(np.zeros(n), np.asarray(field.V), size=20_000)
    square = 2 * np.sum(draws[:, 1:] ** 2, axis=1)
    np.testing.assert_allclose(np.var(square), field.second_order_noise, rtol=0.06)


@pytest.mark.slow
def test_fluctuations_of_the_overlaps_are_those_of_the_whole_increment():
    """W1: the variance of SGD at a later time is that of linear noise with the covariance of the whole increment."""
    problem, sgd, d = Mixture.binary(2, 1.0), OnlineSGD(4.0, readout_rate=4.0), 800
    start = conventions.state_of(theorem._V, theorem._OVERLAPS, theorem._REST)
    times = np.linspace(0.0, 0.5, 6)
    noise = solve(linear_noise(problem, sgd, d=d), start, times)
    runs = simulate(problem, sgd, start, d, times, runs=4_000, key=jax.random.key(0))
    measured = np.asarray(runs.final.Q[:, 0, 0]).var()
    predicted = float(noise.covariance[-1][0, 0])
    assert noise.labels[0] == "Q[0,0]"
    np.testing.assert_allclose(measured, predicted, rtol=0.12)  # four standard errors, and 1/d


@pytest.mark.parametrize("order", [2, 3, 4, 5])
def test_fixed_points_with_a_negative_overlap_exist_for_even_order_only(order):
    """E2: the positive roots of (m^2 + 1)^(k-1) = lambda m^(k-2); negative ones exist for even order only."""
    snr = 1.3 * tensors.critical_snr(order)
    roots = tensors._roots(order, snr)
    for m in roots:
        np.testing.assert_allclose((m**2 + 1) ** (order - 1), snr * m ** (order - 2), rtol=1e-9)
    positive = 1 if order == 2 else 2
    assert np.sum(roots > 0) == positive
    assert np.sum(roots < 0) == (positive if order % 2 == 0 else 0)


def test_the_scaled_signal_is_not_linear():
    """E3: the drift at twice the rescaled overlap is not twice the drift, and the barrier is where it vanishes."""
    n, strength = 1e10, 0.5
    limit = conventions.tensor_limit(3, strength * n**0.5)
    drift = np.array([float(conventions.rates_at(limit, jnp.array([u / n**0.5, 1.0]))[0]) for u in (1.0, 2.0, 4.0)])
    np.testing.assert_allclose(drift * n**0.5, [-3.0, 0.0, 24.0], atol=1e-4)


def test_rings_attract():
    """E4: a run from beside the ring comes back to it, and from beside its end a neuron leaves."""
    ridge, level = 0.1, conventions.ring_level(0.1, 2)
    limit = conventions.binary_limit(np.inf, ridge)
    a = binary_rings.ring_point(0.7)
    starts = [a + 0.05 * np.array(s) for s in itertools.product((1, -1), repeat=2)]
    starts.append(np.array([level**0.5, -1e-3]))
    states = State(
        Q=np.stack([np.outer(s, s) for s in starts]),
        M=np.stack(starts)[..., None],
        readout=np.stack(starts),
    )
    end = jax.vmap(lambda s: solve(limit, s, jnp.array([0.0, 120.0])).final.readout)(states)
    np.testing.assert_allclose(np.sum(np.asarray(end[:4]) ** 2, axis=1), level, rtol=1e-6)
    assert np.all(np.asarray(end[:4]) > 0.3)
    np.testing.assert_allclose(end[4], level**0.5 * np.array([1.0, -1.0]), rtol=1e-6)


def test_the_printed_equations_of_the_binary_mixture_are_those_of_the_limit():
    """Proposition 4.2 from Proposition 4.1 as the snr grows, both as printed."""
    vector = np.array([0.7, -0.5, 0.6, 0.4, 0.05, 0.01, 0.04])
    printed = binary.printed_rates(vector, 400.0, 0.1, 1.0, nodes=400)[:4]
    np.testing.assert_allclose(printed, binary.infinite_snr_rates(vector[:2], vector[2:4], 0.1), atol=2e-3)


@pytest.mark.slow
def test_fluctuations_on_a_ring_have_the_corrected_sign():
    """E5: the variance of runs at infinite snr, which with the printed sign would grow without bound."""
    d, ridge = 1_000, 0.1
    a = binary_rings.ring_point(0.5, ridge)
    start = conventions.state_of(a, a[:, None], np.zeros((2, 2)))
    times = np.array([0.0, 10.0])
    runs = simulate(
        Mixture.binary(2, np.inf), conventions.training(ridge), start, d, times, runs=1_000, key=jax.random.key(1)
    )
    measured = d**0.5 * np.asarray(runs.final.readout[:, 0]).std()
    corrected = ring_deviation(times, a[0], conventions.ring_level(ridge, 2), clusters=2)[-1]
    np.testing.assert_allclose(measured, corrected, rtol=0.1)  # four standard errors of 2.2%


def test_components_by_the_number_of_occupied_groups():
    """E6: 1 + 4 + 6 + 4 + 24 components, by counting; and a walk from one partition to another along fixed points."""
    occupied = np.array([len(set(groups) - {0}) for groups in xor.partitions()])
    found = [len(set(xor.components()[occupied == number])) for number in range(5)]
    assert found == [1, 4, 6, 4, 24]
    limit = conventions.xor_limit(np.inf, xor.RIDGE)
    level = conventions.ring_level(xor.RIDGE, 4)
    for angle in np.linspace(0.0, np.pi / 2, 5):  # two neurons in one group, from one of them at zero to the other
        v = level**0.5 * np.array([np.cos(angle), np.sin(angle), 0.0, 0.0])
        m = np.stack([v, np.zeros(4)], axis=1)
        vector = jnp.concatenate([v, m.ravel(), np.zeros(10)])
        np.testing.assert_allclose(conventions.rates_at(limit, vector), 0.0, atol=1e-15)


@pytest.mark.slow
def test_a_search_finds_the_same_components_and_probabilities():
    """The classification of section 5 without its conditions: a search for fixed points, and ends of random starts."""
    limit = conventions.xor_limit(np.inf, xor.RIDGE)
    found = fixed_points(limit, key=jax.random.key(0), starts=96)
    assert found.components == len(set(xor.components())) == 39
    assert found.stable_components == 24
    ends = basins(limit, d=10_000, alpha=150.0, key=jax.random.key(1), starts=512)
    # All four groups occupied, three, two, one: 24, 144, 84 and 4 of 256; four standard errors.
    np.testing.assert_allclose(ends.probability, np.array([24, 144, 84, 4]) / 256, atol=4 * 0.5 / 512**0.5)
    np.testing.assert_allclose(ends.probability[0], 3 / 32, atol=4 * (3 / 32 * 29 / 32 / 512) ** 0.5)


@pytest.mark.slow
def test_without_overlaps_the_mixture_is_not_learned():
    """E7: from m = 0 the ODE at finite snr goes to zero; from small overlaps it learns in a time linear in the log."""
    limit = ode(Mixture.xor(4, 100.0), conventions.training(0.05), Sobol(2**9))
    v = np.array([1.0, -0.8, 0.9, -1.1])
    direction = np.array([[1.0, 0.2], [0.3, 0.9], [-0.8, 0.4], [0.1, -1.0]])

    def path(size, times):
        m = size * direction
        return solve(limit, State(Q=np.eye(4) + m @ m.T, M=m, readout=v), times)

    end = path(0.0, np.array([0.0, 60.0])).final
    assert np.abs(np.asarray(end.M)).max() == 0
    assert np.abs(np.asarray(end.readout)).max() < 0.1
    times = np.linspace(0.0, 25.0, 251)
    reached = []
    for size in (1e-2, 1e-3, 1e-4):
        overlap = np.abs(np.asarray(path(size, times).state.M)).max(axis=(1, 2))
        reached.append(np.interp(0.3, overlap, times))
    steps = np.diff(reached)
    assert np.all(steps > 1.0)
    np.testing.assert_allclose(steps[1], steps[0], rtol=0.1)


def test_noise_on_two_rings_is_a_covariance():
    """E8: the complete matrix is that of the four clusters' increments, written out; the listed one is not positive."""
    ridge = xor.RIDGE
    a = xor_rings.ring_point(0.4, 1.0)
    # Clusters +mu and -nu meet a ring, at error -4 ridge and 4 ridge; the other two meet none.
    mu, nu = np.zeros(8), np.zeros(8)
    mu[[0, 1, 4, 5]], nu[[2, 3, 6, 7]] = 4 * ridge * np.tile(a[:2], 2), 4 * ridge * np.tile(a[2:], 2)
    increments = np.stack([mu, nu, 0 * mu, 0 * mu])
    covariance = np.cov(increments.T, bias=True)
    np.testing.assert_allclose(xor_rings.printed_noise(a, ridge, complete=True), covariance, atol=1e-15)
    assert np.linalg.eigvalsh(xor_rings.printed_noise(a, ridge, complete=False))[0] < -1e-3


@pytest.mark.slow
def test_fluctuations_on_two_rings_have_the_corrected_sign():
    """E9, E8: variances and correlations of runs at infinite snr."""
    d, ridge = 1_000, 0.1
    a = xor_rings.ring_point(np.pi / 6, np.pi / 4, ridge)
    m = xor_rings.statistics_at(a)[4:12].reshape(4, 2)
    times = np.array([0.0, 10.0])
    runs = simulate(
        Mixture.xor(4, np.inf),
        conventions.training(ridge),
        conventions.state_of(a, m, np.zeros((4, 4))),
        d,
        times,
        runs=1_000,
        key=jax.random.key(2),
    )
    v, overlap = np.asarray(runs.final.readout), np.asarray(runs.final.M[:, :, 0])
    deviation = ring_deviation(times, a[0], conventions.ring_level(ridge, 4), clusters=4)[-1]
    np.testing.assert_allclose(d**0.5 * v[:, 0].std(), deviation, rtol=0.1)
    np.testing.assert_allclose(np.corrcoef(v[:, 0], v[:, 2])[0, 1], 1 / 3, atol=0.12)
    # v_3 with m_1^mu: the block that the list omits.
    np.testing.assert_allclose(np.corrcoef(v[:, 2], overlap[:, 0])[0, 1], 1 / 3, atol=0.12)


def test_the_drift_at_an_optimum_falls_with_the_root_of_the_snr():
    """E10: its coefficient, from the two clusters whose field is a centred normal at each neuron."""
    for ridge in (0.02, 0.1):
        level = conventions.ring_level(ridge, 4)
        vector = jnp.asarray(xor.fixed_point((1, 2, 3, 4), ridge))
        snr = 1e8
        drift = np.asarray(conventions.rates_at(conventions.xor_limit(snr, ridge), vector))
        expected = ridge * level**0.5 * (2 / np.pi) ** 0.5 * ((1 - 4 * ridge) * level - 1)
        np.testing.assert_allclose(snr**0.5 * drift[0], expected, rtol=0.02)


def test_the_deviation_of_the_overlap_solves_its_equation():
    """Eq. (3.2) for matrices: dV/dt = 8 (lambda - 1) V + 8 from V = 1."""
    times = np.linspace(0.0, 2.0, 2001)
    for snr in (0.8, 1.2):
        variance = rescaled_variance(snr, times)
        slope = np.gradient(variance, times)
        np.testing.assert_allclose(slope[1:-1], (8 * (snr - 1) * variance + 8)[1:-1], rtol=1e-5)
        assert variance[0] == 1


def test_symmetric_noise_doubles_the_corrector():
    """The convention behind eq. (3.1): W without symmetry. A step with matrices, against the closed moments."""
    n, rate = 40, 0.7
    draws = np.random.default_rng(3)
    x = np.zeros(n)
    x[0], x[1:] = 0.4, 0.8 / (n - 1) ** 0.5
    W = draws.normal(size=(4_000, n, n))
    signal = 1.3 * np.outer(np.eye(n)[0], np.eye(n)[0])
    residual = signal + W - np.outer(x, x)
    gradient = -2 * (residual @ x + np.swapaxes(residual, 1, 2) @ x)
    after = x - rate / n * gradient
    gained = (np.sum(after[:, 1:] ** 2, axis=1) - np.sum(x[1:] ** 2)) * n / rate
    limit = ode(SpikedTensor(2, 1.3), OnlineSGD(rate))
    expected = float(conventions.rates(limit, conventions.tensor_state(0.4, 0.64))[1])
    np.testing.assert_allclose(gained.mean(), expected, atol=4 * gained.std() / 4_000**0.5 + 8 / n)
