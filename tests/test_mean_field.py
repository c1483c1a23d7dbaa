"""The limit of wide networks: its averages, its closure, its error as p and d grow."""

import csv
import pathlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gamma

import dimfree
from dimfree.gaussian.activations import as_activation
from dimfree.gaussian.half_range import HalfRange
from dimfree.gaussian.one_field import own_averages, smoothed
from dimfree.gaussian.rules import Averaging
from dimfree.problems.wide import neuron_moments
from refusals import assert_refused

ACTIVATIONS = ("erf", "relu", "square", "he3", "tanh")
RATES = {"erf": 1.0, "relu": 0.5, "square": 0.1, "he3": 0.01}


def wide_and_full(p, k, P=None, sphere=False):
    """A generic WideState, and the State with the same overlaps."""
    rng = np.random.default_rng(0)
    P = np.eye(k) if P is None else np.asarray(P)
    M = (0.3 if sphere else 0.5) * rng.normal(size=(p, k)) @ np.linalg.cholesky(P).T
    q_perp = 1 - np.sum(M * np.linalg.solve(P, M.T).T, axis=1) if sphere else rng.uniform(0.3, 1.2, size=p)
    wide = dimfree.WideState(M, q_perp, P, rng.normal(size=p))
    return wide, dimfree.State(wide.Q, wide.M, wide.P, wide.readout)


# Averages.


@pytest.mark.parametrize("name", [*ACTIVATIONS, "abs"])
def test_averages_of_one_neuron(name):
    """Every closed form against a fine grid over the field."""
    activation = as_activation(name)
    mean, q = np.array([[0.3, -1.1, 0.0], [2.0, 0.7, -0.4]]), np.array([0.5, 1.7, 0.2])
    x, root = np.linspace(-9.0, 9.0, 20_001), np.sqrt(q)
    weights = np.exp(-0.5 * x**2) / np.sum(np.exp(-0.5 * x**2))
    both = jax.jit(lambda fields: jax.jvp(activation.function, (fields,), (jnp.ones_like(fields),)))
    g, slope = map(np.asarray, both(mean[..., None] + root[:, None] * x))
    expected = {
        "output": g @ weights,
        "slope": (g * x) @ weights / root,
        "curvature": (g * (x**2 - 1)) @ weights,
        "slope_curvature": (g * (x**3 - 3 * x)) @ weights / root,
        "second_curvature": (g * (x**4 - 6 * x**2 + 3)) @ weights,
        "output_square": g**2 @ weights,
        "slope_square": slope**2 @ weights,
        "slope_square_output": (slope**2 * g) @ weights,
    }
    found = jax.jit(lambda m, v: smoothed(activation, m, v, Averaging(1e-9)))(mean, q)
    # The fine grid meets a kink with an error of its spacing squared, a jump with one of its spacing.
    tolerance = 1e-9 if activation.smooth else 2e-3
    for part, value in expected.items():
        np.testing.assert_allclose(getattr(found, part), value, atol=tolerance, err_msg=part)
    alone = jax.jit(lambda v: own_averages(activation, v, Averaging(1e-9)))(q)
    g, slope = map(np.asarray, both(root[:, None] * x))
    np.testing.assert_allclose(alone.output_square, g**2 @ weights, atol=tolerance)
    np.testing.assert_allclose(alone.growth, 0.5 * (g**2 * (x**2 - 1)) @ weights / q, atol=tolerance)
    np.testing.assert_allclose(alone.slope_square_output_square, (g * slope) ** 2 @ weights, atol=tolerance)


def test_a_neuron_inside_the_span_of_the_teacher_has_no_spread():
    mean = jnp.asarray([[0.8], [-0.5]])
    for name in ("erf", "relu", "square"):
        activation = as_activation(name)
        found = smoothed(activation, mean, jnp.zeros(1), Averaging())
        np.testing.assert_allclose(found.output, activation.function(mean), atol=1e-12)
        np.testing.assert_allclose(found.output_square, activation.function(mean) ** 2, atol=1e-12)
        np.testing.assert_allclose(found.curvature, 0.0, atol=1e-12)
        np.testing.assert_allclose(found.second_curvature, 0.0, atol=1e-12)


def test_gauss_rules_on_half_lines_are_exact_across_a_kink():
    nodes, weights = HalfRange(16).points(1)
    x = np.abs(nodes[:, 0])
    for n in range(32):  # E|x|^n for the normal law
        np.testing.assert_allclose(weights @ x**n, 2 ** (n / 2) * gamma((n + 1) / 2) / np.pi**0.5, rtol=1e-10)
    assert abs(weights @ nodes[:, 0] ** 3) < 1e-12


# The equations of motion.


@pytest.mark.parametrize(
    ("activation", "p", "k", "sphere"),
    [("erf", 3, 1, False), ("relu", 2, 1, False), ("square", 3, 2, True)],
)
def test_the_drift_is_that_of_the_ode_where_the_closure_is_exact(activation, p, k, sphere):
    """With Q_perp diagonal, M, the norms and the readout move exactly as in the ODE, second-order term included."""
    problem = dimfree.TwoLayer(p, k, activation, noise=0.2, teacher_readout=np.linspace(1.0, 0.6, k))
    rate = RATES[activation] * p
    sgd = dimfree.OnlineSGD(rate, batch_size=2, ridge=0.1, readout_rate=0.7 * rate, sphere=sphere)
    wide, full = wide_and_full(p, k, P=[[1.0, 0.3], [0.3, 0.8]] if k == 2 else None, sphere=sphere)
    drift = dimfree.mean_field(problem, sgd, tolerance=1e-9).drift(0.0, wide)
    exact = dimfree.ode(problem, sgd).drift(0.0, full)
    d_norms = drift.q_perp + 2 * jnp.sum(drift.M * jnp.linalg.solve(wide.P, wide.M.T).T, axis=1)
    np.testing.assert_allclose(drift.M, exact.M, atol=2e-9)
    np.testing.assert_allclose(d_norms, jnp.diagonal(exact.Q), atol=2e-9)
    np.testing.assert_allclose(drift.readout, exact.readout, atol=2e-9)
    np.testing.assert_allclose(problem.risk(wide, tolerance=1e-9), problem.risk(full), atol=1e-9)


def test_finite_dimension_is_the_mean_over_random_angles():
    """Two neurons at a cosine of either sign: the mean of what they do has the second order in it."""
    problem, n = dimfree.TwoLayer(2, 1, "erf"), 10_000
    sgd = dimfree.OnlineSGD(1.0, readout_rate=1.0)
    wide, full = wide_and_full(2, 1)
    angle = np.sqrt(np.prod(np.asarray(wide.q_perp)) / n) * np.array([[0.0, 1.0], [1.0, 0.0]])
    both = [dimfree.State(full.Q + sign * angle, full.M, full.P, full.readout) for sign in (1, 0, -1)]
    states = jax.tree.map(lambda *leaves: jnp.stack(leaves), *both)
    flow = dimfree.gradient_flow(problem, sgd)
    drifts = jax.vmap(lambda state: flow.drift(0.0, state))(states)

    def second_order(parts):
        return n * (0.5 * (parts[0] + parts[2]) - parts[1])

    def moments(d):
        limit = dimfree.mean_field(problem, sgd, d)
        return neuron_moments(problem, limit.start(wide), limit.averaging)

    near, far = moments(n + 1), moments(None)
    teacher, orthogonal, readout = (
        n * (getattr(near, name) - getattr(far, name)) for name in ("teacher", "orthogonal", "readout")
    )
    d_norms = -2 * (teacher[:, 0] * wide.M[:, 0] + orthogonal)
    np.testing.assert_allclose(second_order(drifts.M), -teacher, rtol=1e-3)
    np.testing.assert_allclose(jnp.diagonal(second_order(drifts.Q)), d_norms, rtol=1e-3)
    np.testing.assert_allclose(second_order(drifts.readout), -readout, rtol=1e-3)
    risks = [problem.risk(dimfree.mean_field(problem, sgd, d).start(wide)) for d in (n + 1, None)]
    np.testing.assert_allclose(n * (risks[0] - risks[1]), second_order(problem.risk(states)), rtol=1e-3)


def test_what_the_limit_leaves_out_grows_as_one_over_p():
    """Overlaps of different neurons outside the span, which gradient flow makes from none at all."""
    widths, growth = np.array([8, 32]), []
    for p in map(int, widths):
        M = np.linspace(-0.3, 0.9, p)[:, None]
        full = dimfree.State(M @ M.T + np.eye(p), M)
        drift = dimfree.gradient_flow(dimfree.TwoLayer(p, 1, "erf"), dimfree.OnlineSGD(float(p))).drift(0.0, full)
        along = drift.M @ full.M.T
        outside = np.asarray(drift.Q - along - along.T)
        growth.append(np.sqrt(np.mean(outside[~np.eye(p, dtype=bool)] ** 2)))
    assert abs(np.polyfit(np.log(widths), np.log(growth), 1)[0] + 1) < 0.1


def test_a_density_does_not_know_how_many_particles_it_is_made_of():
    few, _ = wide_and_full(4, 1)
    copies = np.repeat(np.arange(4), 16)
    many = dimfree.WideState(few.M[copies], few.q_perp[copies], few.P, few.readout[copies])
    drifts = []
    for start in (few, many):
        problem, rate = dimfree.TwoLayer(start.width, 1, "relu", noise=0.1), 0.5 * start.width
        limit = dimfree.mean_field(problem, dimfree.OnlineSGD(rate, readout_rate=rate), d=20, infinite_width=True)
        drifts.append(limit.drift(0.0, limit.start(start)))
    np.testing.assert_allclose(drifts[1].M, drifts[0].M[copies], atol=1e-12)
    np.testing.assert_allclose(drifts[1].q_perp, drifts[0].q_perp[copies], atol=1e-12)
    np.testing.assert_allclose(drifts[1].readout, drifts[0].readout[copies], atol=1e-12)


@pytest.mark.slow
def test_two_layers_on_two_clocks_and_a_schedule():
    """For ReLU, a_i^2 / readout_rate - Q_ii / learning_rate is conserved; a schedule of both rates is a new clock."""
    p, ratio = 16, 0.2
    problem = dimfree.TwoLayer(p, 1, "relu")
    start = dimfree.random_state(problem, 20, key=jax.random.key(0), readout_scale=1.0, wide=True)

    def path(rate_of, alphas):
        sgd = dimfree.OnlineSGD(lambda alpha: p * rate_of(alpha), readout_rate=lambda alpha: p * ratio * rate_of(alpha))
        return dimfree.solve(dimfree.mean_field(problem, sgd, infinite_width=True), start, alphas)

    times = np.linspace(0.0, 4.0, 9)
    constant = path(lambda alpha: 1.0 + 0.0 * alpha, times)
    conserved = np.asarray(constant.state.readout) ** 2 / ratio - np.asarray(constant.state.norms)
    np.testing.assert_allclose(conserved, np.broadcast_to(conserved[0], conserved.shape), atol=1e-6)
    assert constant.risk[-1] < 0.3 * constant.risk[0]
    # A rate 1/(1 + alpha) reaches the time log(1 + alpha).
    scheduled = path(lambda alpha: 1 / (1 + alpha), np.exp(times) - 1)
    np.testing.assert_allclose(scheduled.risk, constant.risk, atol=1e-6)
    np.testing.assert_allclose(scheduled.state.readout, constant.state.readout, atol=1e-6)


# What it is for: thousands of neurons.


def test_the_cost_is_linear_in_the_width():
    """By the operations that the compiler counts, not by a clock."""
    flops = []
    for p in (512, 2048):
        problem, sgd = dimfree.TwoLayer(p, 1, "erf"), dimfree.OnlineSGD(1.0)
        limit = dimfree.mean_field(problem, sgd, rule=dimfree.GaussHermite(16))
        start = limit.start(dimfree.random_state(problem, 100, key=jax.random.key(0), wide=True))
        arrays, rest = eqx.partition((limit, start), eqx.is_array)
        drift = jax.jit(lambda a, rest=rest: (lambda pair: pair[0].drift(0.0, pair[1]).M)(eqx.combine(a, rest)))
        flops.append(drift.lower(arrays).compile().cost_analysis()["flops"])
    assert 3.5 < flops[1] / flops[0] < 4.5


@pytest.mark.slow
def test_4096_neurons_are_followed_without_their_overlaps(tmp_path):
    problem, sgd = dimfree.TwoLayer(4096, 1, "erf", noise=0.1), dimfree.OnlineSGD(400.0)
    start = dimfree.random_state(problem, 300, key=jax.random.key(0), wide=True)
    path = dimfree.solve(dimfree.mean_field(problem, sgd), start, np.array([0.0, 5.0, 10.0]))
    assert path.risk[-1] < 0.8 * path.risk[0]
    data = path.to_xarray()
    assert data.q_perp.dims == ("alpha", "student")
    assert "Q" not in data
    assert "mean field" in repr(path)
    assert path.runs is None
    assert max(leaf.size for leaf in jax.tree.leaves(path)) < 10**5  # where Q would have 5 * 10^7


def test_random_wide_states_have_the_law_of_random_states():
    problem, d, P = dimfree.TwoLayer(2_000, 2, "erf"), 12, np.array([[1.0, 0.3], [0.3, 0.8]])
    wide = dimfree.random_state(problem, d, key=jax.random.key(0), P=P, norm=1.5, wide=True)
    np.testing.assert_allclose(wide.norms, 1.5**2, rtol=1e-12)
    # M_i = 1.5 (first coordinates of a unit vector in 12 dimensions) against teachers with overlaps P.
    covariance = np.asarray(wide.M).T @ np.asarray(wide.M) / problem.width
    np.testing.assert_allclose(covariance, 1.5**2 * P / d, atol=5 * 1.5**2 / d / problem.width**0.5)
    # Squared norm outside the span: Beta((d - k)/2, k/2) with mean 5/6 and variance (5/6)(1/6)/7.
    share = np.asarray(wide.q_perp) / 1.5**2
    assert abs(share.mean() - 5 / 6) < 5 * share.std() / problem.width**0.5
    assert abs(share.var() / (5 / 36 / 7) - 1) < 0.2


@pytest.mark.slow
def test_the_particle_error_is_that_of_another_sample():
    p, times = 64, np.array([0.0, 1.0, 3.0])
    problem, sgd = dimfree.TwoLayer(p, 1, "erf"), dimfree.OnlineSGD(float(p))
    limit = dimfree.mean_field(problem, sgd, infinite_width=True)

    @jax.jit
    @jax.vmap
    def risk(key):
        start = dimfree.random_state(problem, 20, key=key, readout_scale=1.0, wide=True)
        return dimfree.solve(limit, start, times, relative_tolerance=1e-6, absolute_tolerance=1e-8).risk

    actual = np.asarray(risk(jax.random.split(jax.random.key(0), 100))).std(axis=0)
    start = dimfree.random_state(problem, 20, key=jax.random.key(1), readout_scale=1.0, wide=True)
    found = dimfree.particle_error(limit, start, times, resamples=48, key=jax.random.key(2))
    assert (np.abs(np.log(found / actual)) < np.log(2.0)).all(), (found, actual)


# Refusals.


def test_what_has_no_wide_limit_is_refused_in_words():
    problem, sgd = dimfree.TwoLayer(2, 1, "erf"), dimfree.OnlineSGD(1.0)
    names = {
        "np": np, "dimfree": dimfree, "problem": problem, "sgd": sgd, "limit": dimfree.mean_field(problem, sgd),
        "sphere": dimfree.OnlineSGD(1.0, sphere=True), "two": dimfree.mean_field(dimfree.TwoLayer(2, 2, "erf"), sgd),
    }  # fmt: skip
    assert_refused(
        names,
        {
            "dimfree.mean_field(dimfree.Mixture.binary(2, 1.0), sgd)": "TwoLayer or MultiIndex",
            "dimfree.mean_field(problem, sgd, d=1)": "must exceed the 1 directions",
            "dimfree.mean_field(problem, 3.0)": "dimfree.OnlineSGD(learning_rate=...)",
            "dimfree.solve(limit, dimfree.WideState([[0.1], [0.1]], [1.0, -0.1]), 1.0)": "cannot be negative",
            "dimfree.solve(limit, dimfree.WideState(np.ones((3, 1)), np.ones(3)), 1.0)": "p = 3 students",
            "dimfree.solve(two, dimfree.WideState(np.zeros((2, 2)), np.ones(2), np.ones((2, 2))), 1.0)": "singular",
            "dimfree.solve(dimfree.mean_field(problem, sphere), dimfree.WideState([[0.1], [0.1]], [1.0, 1.0]), 1.0)": (
                "sphere=True"
            ),
            "dimfree.solve(two, dimfree.State(np.eye(2), np.zeros((2, 2)), np.ones((2, 2))), 1.0)": "singular",
            "dimfree.WideState([[0.1], [0.1]], [1.0])": "one number for each student",
            "dimfree.particle_error(dimfree.ode(problem, sgd), None, 1.0, key=None)": "pass dimfree.mean_field",
        },
    )


# Against the limits and runs that keep everything.


@pytest.mark.slow
@pytest.mark.parametrize("activation", ["erf", "relu", "square"])
def test_the_error_of_the_risk_falls_as_one_over_p(activation):
    widths, errors = np.array([8, 16, 32, 64]), []
    for p in map(int, widths):
        problem, sgd = dimfree.TwoLayer(p, 1, activation), dimfree.OnlineSGD(1e-6 * p)
        random = dimfree.random_state(problem, 10**6, key=jax.random.key(p))
        M = 0.4 * jax.random.normal(jax.random.key(1), (p, 1))
        start = dimfree.State(random.Q - random.M @ random.M.T + M @ M.T, M)
        times = np.linspace(0.0, 2e6, 6)
        full = dimfree.solve(dimfree.gradient_flow(problem, sgd), start, times)
        wide = dimfree.solve(dimfree.mean_field(problem, sgd), start, times)
        errors.append(float(jnp.max(jnp.abs(wide.risk - full.risk))))
    assert abs(np.polyfit(np.log(widths), np.log(errors), 1)[0] + 1) < 0.35, errors


@pytest.mark.slow
def test_neurons_of_exact_runs_have_angles_that_fall_as_the_root_of_d():
    """The closure against runs: off-diagonal entries of Q that the limit leaves out, at learning_rate of order one."""
    p, dimensions, rms = 32, np.array([100, 400, 1600]), []
    problem, sgd = dimfree.TwoLayer(p, 1, "erf"), dimfree.OnlineSGD(1.0)
    for d in map(int, dimensions):
        start = dimfree.random_state(problem, d, key=jax.random.key(d))
        end = np.array([0.0, 4.0])
        runs = dimfree.simulate(problem, sgd, start, d, end, runs=2, key=jax.random.key(0))
        wide = dimfree.solve(dimfree.mean_field(problem, sgd), start, end)
        off = np.asarray(runs.final.Q - wide.final.Q)[:, ~np.eye(p, dtype=bool)]
        rms.append(np.sqrt(np.mean(off**2)))
    assert abs(np.polyfit(np.log(dimensions), np.log(rms), 1)[0] + 0.5) < 0.15, rms


def test_the_table_of_the_tutorial_has_the_slopes_that_it_states():
    table = pathlib.Path(__file__).parent.parent / "docs" / "data" / "wide_networks.csv"
    rows = [row for row in csv.DictReader(table.read_text().splitlines()) if row["kind"] == "width"]
    for activation in ("erf", "relu", "square"):
        cells = [(float(r["p"]), float(r["risk_error"])) for r in rows if r["activation"] == activation]
        widths, errors = np.log(np.array(cells)).T
        assert abs(np.polyfit(widths, errors, 1)[0] + 1) < 0.2, activation
