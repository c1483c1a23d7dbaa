"""Exit times: closed forms against the limits they come from, dressed starts against simulation, refusals."""

import re

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.special

import dimfree
from dimfree.analysis.exit_formulas import exit_formulas, first_passage, overlap_noise
from dimfree.analysis.exit_times import METHODS, Fallen, deterministic_exits, dressed_exits, exit_time
from dimfree.analysis.plateau import centre, rest
from dimfree.limits import increment_covariance

CASES = [
    (1, 1, 0.0, True),
    pytest.param(3, 2, 0.3, True, marks=pytest.mark.slow),
    pytest.param(1, 1, 0.2, False, marks=pytest.mark.slow),
    (4, 2, 0.0, False),
]


def network(p, k, noise, sphere, rate=0.05):
    return dimfree.TwoLayer(p, k, "square", noise=noise), dimfree.OnlineSGD(rate * p, sphere=sphere)


@pytest.mark.parametrize(("p", "k", "noise", "norm"), [(1, 1, 0.0, 1.0), (3, 2, 0.3, 1.0), (2, 3, 0.1, 0.6)])
def test_the_noise_of_an_overlap_is_that_of_the_increment(p, k, noise, norm):
    problem, algorithm = network(p, k, noise, sphere=False)
    state = dimfree.State(Q=norm * jnp.eye(p), M=jnp.zeros((p, k)))
    limit = dimfree.ode(problem, algorithm)
    variance = np.diag(increment_covariance(limit, 0.0, state))[limit.coordinates.labels.index("M[0,0]")]
    assert variance == pytest.approx(0.05**2 * overlap_noise(p, k, noise, norm), rel=1e-12)


@pytest.mark.parametrize(
    ("p", "k", "noise", "sphere"), [*CASES[:3], pytest.param(4, 2, 0.0, False, marks=pytest.mark.slow)]
)
def test_growth_and_dressing_are_those_of_the_limits(p, k, noise, sphere):
    """The growth rate by the Jacobian at the plateau, the dressing by the linear noise along the way to it."""
    problem, algorithm = network(p, k, noise, sphere)
    formulas = exit_formulas(dimfree.ode(problem, algorithm), 1e6, 0.1)
    limit, start = dimfree.ode(problem, algorithm), centre(problem)
    index = limit.coordinates.labels.index("M[0,0]")

    def field(vector, like):
        return limit.vector_field(jnp.zeros(()), vector, like)

    plateau = rest(limit)
    vector = limit.coordinates.pack(plateau)
    rate = jax.jacfwd(field)(vector, plateau)[index, index]
    assert formulas.growth_rate == pytest.approx(float(rate), rel=1e-6)

    end = 10 / formulas.growth_rate
    noisy = dimfree.solve(dimfree.linear_noise(problem, algorithm, 1.0), start, np.array([0.0, end]))
    collected = float(noisy.covariance[-1, index, index]) * np.exp(-2 * formulas.growth_rate * end)
    small = dimfree.State(Q=start.Q, M=1e-8 * jnp.ones((p, k)))
    moved = dimfree.solve(limit, small, np.array([0.0, end]), absolute_tolerance=1e-18).final.M[0, 0] / 1e-8
    spread = (float(moved) * np.exp(-formulas.growth_rate * end)) ** 2
    assert formulas.noise_dressing == pytest.approx(1 + collected / spread, rel=2e-4)
    # What M gains while the norms relax is in the undressed formulas too.
    excess = float(problem.risk(plateau) - problem.irreducible_risk)
    expected = np.log(0.1 * excess / 2 * 1e6 / spread) / (2 * formulas.growth_rate)
    assert formulas.annealed == pytest.approx(expected, rel=1e-5)


def test_the_gain_while_norms_relax_is_the_closed_form():
    """Without the sphere M gains a factor that is rational in the norms: integrated here by hand."""
    p, k, noise, rate = 4, 2, 0.1, 0.05
    problem, algorithm = network(p, k, noise, sphere=False, rate=rate)
    formulas = exit_formulas(dimfree.ode(problem, algorithm), 1e6, 0.1)
    kappa, b = (p + 4) / (p + 2), 1 + 2 / k + noise
    high = max(np.roots([rate * kappa, -(1 + 2 * rate), 1 + rate * b]))
    low, start = min(np.roots([rate * kappa, -(1 + 2 * rate), 1 + rate * b])), (p + 2) / p
    log_gain = -np.log((high - low) * start / (low * (high - start))) / (2 * rate * kappa * high)
    excess = float(problem.risk(rest(dimfree.ode(problem, algorithm))) - noise / 2)
    expected = (np.log(0.1 * excess / 2 * 1e6) - 2 * log_gain) / (2 * formulas.growth_rate)
    assert formulas.annealed == pytest.approx(expected, rel=1e-6)


def test_the_level_of_the_formulas_is_where_the_risk_has_lost_the_threshold():
    p, k, d = 3, 2, 1e6
    problem, algorithm = network(p, k, 0.3, sphere=True)
    formulas = exit_formulas(dimfree.ode(problem, algorithm), d, 0.1)
    level = p * k / d * np.exp(2 * formulas.growth_rate * formulas.annealed)  # of the sum of M^2
    overlap = np.random.default_rng(0).normal(size=(p, k))
    overlap *= np.sqrt(level / np.sum(overlap**2))
    excess = [float(problem.risk(dimfree.State(Q=jnp.eye(p), M=M)) - 0.15) for M in (np.zeros((p, k)), overlap)]
    assert excess[1] == pytest.approx(0.9 * excess[0], rel=1e-12)


def test_the_quenched_mean_is_the_mean_over_starts():
    problem, algorithm = network(3, 2, 0.3, sphere=True)
    formulas, d = exit_formulas(dimfree.ode(problem, algorithm), 1e6, 0.1), 1e6
    squares = np.random.default_rng(1).chisquare(6, size=400_000) / d
    level = 0.1 * (1 / 3 + 1 / 2) * 3
    times = np.log(level / squares) / (2 * formulas.growth_rate)
    assert abs(formulas.quenched - times.mean()) < 4 * times.std() / np.sqrt(len(times))
    shift = np.log(formulas.noise_dressing) / (2 * formulas.growth_rate)
    assert formulas.dressed == pytest.approx(formulas.quenched - shift, rel=1e-12)


@pytest.mark.parametrize(
    ("entries", "growth", "diffusion"), [(1, 2.0, 1e-2), (1, 0.4, 1e-4), (6, 3.0, 1e-3), (40, 3.5, 1e-5)]
)
def test_first_passage_is_the_hypergeometric_function(entries, growth, diffusion):
    level = 0.05
    z = mpmath.mpf(growth * level / diffusion)
    with mpmath.workdps(60):
        expected = level / (entries * diffusion) * mpmath.hyp2f2(1, 1, 1 + mpmath.mpf(entries) / 2, 2, -z)
    assert first_passage(growth, diffusion, level, entries) == pytest.approx(float(expected), rel=1e-8)


@pytest.mark.parametrize("entries", [1, 6, 40])
def test_first_passage_far_from_the_start_grows_as_the_logarithm(entries):
    """Each decade more of growth x level / diffusion adds log(10) / (2 growth), also where scipy's 1F1 is NaN."""
    growth, level = 2.0, 0.05
    times = [first_passage(growth, growth * level / end, level, entries) for end in (1e8, 1e10, 1e12)]
    np.testing.assert_allclose(np.diff(times), np.log(100) / (2 * growth), rtol=1e-6)


def test_the_ode_leaves_when_the_exact_solution_does():
    """One student on the sphere: u = M^2 follows du/dt = 2 u (a (1 - u) - b), which is solved by hand."""
    rate, noise = 0.06, 0.4
    problem, algorithm = network(1, 1, noise, sphere=True, rate=rate)
    limit = dimfree.ode(problem, algorithm)
    a, b = 4 * (1 - 6 * rate), 2 * rate * noise
    end, start, left = 1 - b / a, np.array([1e-5, 3e-3, 0.2]), 0.1
    with np.errstate(invalid="ignore"):
        expected = np.log(left * (end - start) / (start * (end - left))) / (2 * (a - b)) / rate
    starts = dimfree.State(Q=jnp.ones((3, 1, 1)), M=jnp.sqrt(start).reshape(3, 1, 1))
    plateau = float(problem.risk(rest(limit)))
    times = deterministic_exits(limit, starts, 500.0, Fallen(problem, 0.2 + 0.9 * (plateau - 0.2)))
    np.testing.assert_allclose(times[:2], expected[:2], rtol=1e-7)
    assert times[2] == 0.0  # it starts below the level


@pytest.mark.parametrize("sde", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_dressed_starts_give_the_simulated_exit_time_and_bare_ones_do_not(sde):
    """False alarm 1e-4: 4 standard errors; a deviation of order 1/d of 1% is allowed on top.

    Noise doubles the variance of the start, which makes the exit earlier by log(2) / (2 growth rate): six of the
    standard errors.
    """
    problem, algorithm = network(1, 1, 0.0, sphere=True, rate=1 / 12)
    methods = METHODS if sde else [name for name in METHODS if name != "sde"]
    times = exit_time(problem, algorithm, d=1_000, runs=800, key=jax.random.key(5), methods=methods)
    simulated = times.simulated
    for name in ("dressed", "sde")[: 1 + sde]:
        estimate = getattr(times, name)
        error = np.hypot(simulated.error, estimate.error)
        assert abs(simulated.mean - estimate.mean) < 4 * error + 0.01 * simulated.mean, name
    assert times.ode.mean - simulated.mean > 4 * np.hypot(simulated.error, times.ode.error)
    assert simulated.stay == 0
    assert np.quantile(simulated.times, 0.5) == pytest.approx(simulated.quantiles[1], rel=0.01)
    text = repr(times)
    for word in ("annealed", "quenched", "dressed", "simulated", "samples"):
        assert word in text


@pytest.mark.slow
@pytest.mark.parametrize(("p", "k", "noise", "sphere"), [(4, 2, 0.0, True), (2, 1, 0.5, False), (3, 2, 0.0, False)])
def test_dressed_starts_for_other_widths_and_without_the_sphere(p, k, noise, sphere):
    problem, algorithm = network(p, k, noise, sphere, rate=0.05)
    options = {"runs": 800, "key": jax.random.key(6), "methods": ("closed_form", "ode", "dressed", "simulated")}
    times = exit_time(problem, algorithm, d=4_000, threshold=0.02, **options)
    error = np.hypot(times.simulated.error, times.dressed.error)
    assert abs(times.simulated.mean - times.dressed.mean) < 4 * error + 0.01 * times.simulated.mean
    # At a small threshold the linear formula is close too; the undressed one is longer by the dressing.
    assert times.simulated.mean == pytest.approx(times.closed_form.dressed, rel=0.04)
    assert times.closed_form.quenched > times.closed_form.dressed


@pytest.mark.slow
def test_an_activation_of_the_users_own_and_a_plateau_with_overlap():
    own = dimfree.TwoLayer(2, 1, lambda x: x * jnp.tanh(x))
    committee = dimfree.TwoLayer(2, 2, "erf")
    for problem, rate, sphere in ((own, 0.2, True), (committee, 1.0, False)):
        algorithm = dimfree.OnlineSGD(rate, sphere=sphere)
        options = {"runs": 300, "key": jax.random.key(7), "methods": ("ode", "dressed", "simulated")}
        times = exit_time(problem, algorithm, d=2_000, threshold=0.2, **options)
        error = np.hypot(times.simulated.error, times.dressed.error)
        assert abs(times.simulated.mean - times.dressed.mean) < 4 * error + 0.03 * times.simulated.mean


@pytest.mark.slow
def test_where_the_risk_is_a_quadrature_exits_are_in_the_middle_between_two_looks():
    """The same runs with a square that is known, and looked at after each step, and with one that is not.

    None is seen earlier than half an interval before it leaves; later are those that noise brings back before a look.
    """
    known, own = (
        exit_time(
            dimfree.TwoLayer(1, 1, activation),
            dimfree.OnlineSGD(1 / 12, sphere=True),
            d=2_000,
            runs=64,
            key=jax.random.key(0),
            methods=("simulated",),
        )
        for activation in ("square", lambda x: x**2)
    )
    assert known.notes == ()
    (steps,) = re.findall(r"looked at every (\d+) steps", " ".join(own.notes))
    interval = int(steps) / 2_000
    assert int(steps) > 1
    later = own.simulated.times - known.simulated.times
    assert later.min() >= -interval / 2
    assert np.mean(later <= interval / 2) > 0.8
    assert abs(np.median(later)) < 0.2 * interval
    assert later.mean() < 0.005 * known.simulated.mean


def test_dressed_starts_have_the_spread_of_the_noise_that_was_collected():
    """From no overlap at all, the overlap at the time of dressing is the noise: Gaussian, of known variance.

    The mean exit time then follows, up to the threshold; half the variance is 9 standard errors longer.
    """
    d, threshold, noise_at, number = 10**8, 0.01, 30.0, 1024
    problem, algorithm = network(1, 1, 0.0, sphere=True)
    limit = dimfree.ode(problem, algorithm)
    growth = exit_formulas(limit, d, threshold).growth_rate
    starts = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], number, axis=0), centre(problem))
    stop = Fallen(problem, jnp.asarray((1 - threshold) * float(problem.risk(centre(problem)))))
    times = dressed_exits(limit, starts, d, noise_at, 400.0, stop, key=jax.random.key(0))
    variance = 0.05**2 * overlap_noise(1, 1, 0.0, 1.0) / d * np.expm1(2 * growth * noise_at) / (2 * growth)
    mean_log_square = np.log(2 * variance) + scipy.special.digamma(0.5)
    expected = noise_at + (np.log(threshold) - mean_log_square) / (2 * growth)
    assert abs(times.mean() - expected) < 4 * times.std() / np.sqrt(number) + 0.01 / growth
    assert times.std() == pytest.approx(np.pi / np.sqrt(2) / (2 * growth), rel=0.1)


@pytest.mark.slow
def test_a_start_at_exactly_zero_overlap_leaves_by_noise():
    problem, algorithm = network(1, 1, 0.0, sphere=True, rate=1 / 12)
    d, threshold = 5_000, 0.02
    formulas = exit_formulas(dimfree.ode(problem, algorithm), d, threshold)
    runs = dimfree.simulate(
        problem,
        algorithm,
        centre(problem),
        d,
        np.array([0.0, 200.0]),
        runs=1_500,
        key=jax.random.key(8),
        stop=Fallen(problem, (1 - threshold) * 2.0),
    )
    times = np.asarray(runs.stopped_at)
    assert np.isfinite(times).all()
    assert abs(times.mean() - formulas.from_zero) < 4 * times.std() / np.sqrt(len(times)) + 0.01 * times.mean()


@pytest.mark.parametrize(
    ("problem", "algorithm", "options", "words"),
    [
        (dimfree.TwoLayer(1, 1, "linear"), dimfree.OnlineSGD(0.5), {}, "no plateau"),
        (dimfree.PhaseRetrieval(), dimfree.OnlineSGD(2.0), {}, "diverge"),
        (dimfree.PhaseRetrieval(), dimfree.OnlineSGD(0.1), {"threshold": 1.5}, "threshold = 1.5"),
        (dimfree.PhaseRetrieval(), dimfree.OnlineSGD(0.1), {"methods": ("odes",)}, "choose among"),
        (dimfree.PhaseRetrieval(), dimfree.OnlineSGD(0.1), {"d": 1}, "d = 1"),
        (dimfree.PhaseRetrieval(), dimfree.OnlineSGD(0.1, sphere=True), {"d": 4, "threshold": 0.01}, "on no plateau"),
    ],
)
def test_what_has_no_exit_time_is_refused_in_words(problem, algorithm, options, words):
    arguments = {"d": 100, "key": jax.random.key(0), **options}
    with pytest.raises(dimfree.InvalidInput, match=words):
        exit_time(problem, algorithm, **arguments)


def test_a_plateau_that_attracts_is_reported_and_not_a_number_made_up():
    problem, algorithm = network(1, 1, 0.0, sphere=True, rate=0.2)
    times = exit_time(problem, algorithm, d=1_000, key=jax.random.key(0), methods=("closed_form", "ode", "dressed"))
    assert times.closed_form is None
    assert times.dressed is None
    assert times.ode.stay == 1
    assert "plateau attracts" in repr(times)
