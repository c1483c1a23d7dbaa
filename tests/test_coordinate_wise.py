"""Sign descent, RMSProp and Adam: their steps, their averages, their limits beside runs on vectors, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dimfree
from dimfree.limits.lags import Lags, Tables
from dimfree.problems.base import Draws
from dimfree.problems.inputs import StandardInputs
from dimfree.simulation.vectors import advance, embed, observe

ERF = dimfree.TwoLayer(1, 1, "erf", noise=0.1)
TWO = dimfree.TwoLayer(2, 1, "erf")
LOGISTIC = dimfree.LocalFields(
    lambda student, teacher, noise, readout: jnp.log1p(jnp.exp(-student[0] * jnp.tanh(3 * teacher[0]))), 1, 1
)
SPECTRUM = dimfree.Spectrum([4.0, 1.0, 0.25], [0.1, 0.3, 0.6])
START = dimfree.State(Q=[[1.0]], M=[[0.3]])
STARTS = dimfree.State(Q=[[1.0, 0.2], [0.2, 0.8]], M=[[0.3], [-0.2]])


def slopes_of(w, teacher, x, noise):
    """Of half the squared error of erf networks of one neuron, in NumPy."""
    from scipy.special import erf

    field, target = x @ w, x @ teacher
    error = erf(field / 2**0.5) - erf(target / 2**0.5) - 0.1**0.5 * noise
    return error * np.sqrt(2 / np.pi) * np.exp(-(field**2) / 2)


@pytest.mark.parametrize(
    "algorithm",
    [
        dimfree.SignDescent(0.4, batch_size=2),
        dimfree.RMSProp(0.4, beta2=0.7, epsilon=0.2),
        dimfree.Adam(lambda alpha: 0.4 / (1 + alpha), 0.8, forgetting=3.0, epsilon=0.1, batch_size=3),
        dimfree.Adam(0.4, 0.8, beta2=0.9, bias_correction=False),
        dimfree.WeightDecay(dimfree.Adam(0.4, 0.5, beta2=0.9), 0.7),
    ],
    ids=["sign", "rmsprop", "adam, forgetting", "adam, bias", "adamw"],
)
def test_steps_are_those_of_a_loop_in_numpy(algorithm):
    """The same inputs, six steps: as Kingma and Ba write them, with sqrt(d) times the gradient."""
    rng, d, steps = np.random.default_rng(0), 20, 6
    rule, batch = algorithm.by_coordinate, algorithm.batch_size
    w, teacher = rng.normal(size=(2, d))
    vectors = {"students": jnp.asarray(w[None]), "teachers": jnp.asarray(teacher[None])}
    memory = rule.loaded(rule.measured(1, 1), 1, StandardInputs(), d)
    beta2 = rule.beta2 if rule.forgetting is None else 1 - float(rule.forgetting) / d
    decay = float(getattr(algorithm, "decay", 0.0))
    m, v = np.zeros(d), np.zeros(d)
    for t in range(1, steps + 1):
        x, noise, alpha = rng.normal(size=(batch, d)), rng.normal(size=batch), (t - 1) * batch / d
        draws = Draws(jnp.asarray(x), jnp.asarray(noise), jnp.zeros(batch))
        (vectors, _, memory), _ = advance(ERF, algorithm, vectors, None, memory, draws, jnp.asarray(alpha))
        z = slopes_of(w / d**0.5, teacher / d**0.5, x, noise) @ x / batch
        m, v = rule.beta1 * m + (1 - rule.beta1) * z, beta2 * v + (1 - beta2) * z**2
        corrected = rule.bias_correction
        m_hat, v_hat = (m / (1 - rule.beta1**t), v / (1 - beta2**t)) if corrected else (m, v)
        rate = 0.4 / (1 + alpha) if callable(rule.learning_rate) else 0.4
        w = w - rate / d**0.5 * m_hat / (np.sqrt(v_hat) + float(rule.epsilon)) - decay / d * w
    np.testing.assert_allclose(vectors["students"][0], w, atol=1e-12)
    if rule.forgetting is not None:
        np.testing.assert_allclose(rule.observed(memory, StandardInputs())["second_moment"], [[v.mean()]], atol=1e-13)


def test_averages_of_coordinates_are_what_a_state_has_measured():
    """Those of a State are those of each coordinate of a block, of each student; and back, after a step too."""
    rule, d = dimfree.Adam(0.1, 0.5, forgetting=2.0), 20
    numbers = {"second_moment": jnp.arange(1.0, 7.0).reshape(3, 2), "second_moment_weight": jnp.asarray(0.4)}
    memory = rule.loaded(numbers, 2, SPECTRUM, d)
    np.testing.assert_array_equal(memory["second"][1], np.repeat([2.0, 4.0, 6.0], [2, 6, 12]))
    for name, found in rule.observed(memory, SPECTRUM).items():
        np.testing.assert_allclose(found, numbers[name], rtol=1e-14)
    gradient = np.random.default_rng(0).normal(size=(2, d))
    after = rule.observed(rule.scaled(jnp.asarray(gradient), memory)[1], SPECTRUM)
    squares = np.stack([np.mean(d * each**2, axis=1) for each in np.split(gradient, [2, 8], axis=1)])
    np.testing.assert_allclose(after["second_moment"], 0.9 * numbers["second_moment"] + 0.1 * squares, rtol=1e-12)
    np.testing.assert_allclose(after["second_moment_weight"], 0.9 * 0.4 + 0.1, rtol=1e-12)


def test_vectors_are_spread_over_their_block():
    """They have the overlaps of the State in each block, and no coordinate has more than a few deviations."""
    problem, d = TWO.with_inputs(SPECTRUM), 400
    state = problem.inputs.over_blocks(problem.completed(STARTS))
    vectors = embed(state, problem.inputs, d, jax.random.key(0))
    for pair, blocks in observe(vectors, state.readout, problem.inputs).overlaps.items():
        np.testing.assert_allclose(blocks, state.overlaps[pair], atol=1e-12)
    assert all(float(jnp.abs(rows).max()) < 6 for rows in vectors.values())
    # Two students that are one, and a block of d = 20 that has two dimensions.
    equal = problem.inputs.over_blocks(dimfree.State(Q=[[1.0, 1.0], [1.0, 1.0]], M=[[0.3], [0.3]]))
    for pair, blocks in observe(
        embed(equal, problem.inputs, 20, jax.random.key(0)), None, problem.inputs
    ).overlaps.items():
        np.testing.assert_allclose(blocks, equal.overlaps[pair], atol=1e-12)
    with pytest.raises(dimfree.InvalidInput, match="overlaps have rank 3 in block"):
        embed(state, problem.inputs, 20, jax.random.key(0))


@pytest.mark.parametrize("algorithm", [dimfree.Adam(0.1, 0.5, 0.9), dimfree.SignDescent(0.1)])
def test_every_eigenvalue_may_be_a_block_of_its_own(algorithm):
    w, teacher = np.random.default_rng(0).normal(size=(2, 8, 1, 1))
    overlaps = {
        ("students", "students"): w * w,
        ("students", "teachers"): w * teacher,
        ("teachers", "teachers"): teacher**2,
    }
    start = dimfree.State.of(jax.tree.map(jnp.asarray, overlaps), None)
    problem = dimfree.TwoLayer(1, 1, "linear").with_inputs(dimfree.Spectrum(np.arange(1.0, 9.0)))
    found = dimfree.simulate(problem, algorithm, start, 8, [0.0, 0.5], runs=3, key=jax.random.key(0), method="vectors")
    assert (np.asarray(found.outcome) == 0).all()
    np.testing.assert_allclose(found.risk[:, 0], problem.risk(start), rtol=1e-9)
    for pair in overlaps:
        np.testing.assert_allclose(found.state.overlaps[pair][:, 0], np.repeat(overlaps[pair][None], 3, 0), rtol=1e-9)


def brute_force(beta1: float, beta2: float, batch: int) -> tuple[float, float]:
    """Response and variance of m / sqrt(v) where all slopes and fields are one, with every lag and a fine grid of t.

    The variance is that without memory of the mean, beta1 = 0, where it is E[z^2 / v].
    """
    tau = (1 - beta2) * beta2 ** np.arange(int(45 / -np.log(beta2)))
    weights = (1 - beta1) * beta1 ** np.arange(len(tau))
    t, step = np.exp(np.arange(-45.0, 30.0, 0.1)), 0.1
    inner = 1 + 2 * batch * t[:, None] * tau
    product = np.exp(-0.5 * np.log(inner).sum(axis=1))
    response = step * np.sum(np.sqrt(t / np.pi) * product * (batch / inner @ weights))
    return float(response), float(step * np.sum(t * product * batch / inner[:, 0]))


def tables_of_ones(lags: Lags) -> Tables:
    decay = jnp.asarray(np.exp(-np.exp(lags.nodes)))[None]
    return Tables(jnp.expm1(-jnp.exp(jnp.asarray(lags.nodes)))[None], decay[..., None], decay)


@pytest.mark.parametrize(("beta1", "beta2", "batch"), [(0.0, 0.5, 1), (0.9, 0.99, 4), (0.0, 0.95, 3), (0.0, 0.02, 3)])
def test_sums_over_lags_are_those_of_every_lag(beta1, beta2, batch):
    lags = Lags(beta1, beta2, batch)
    response, variance = brute_force(beta1, beta2, batch)
    np.testing.assert_allclose(lags.drift(tables_of_ones(lags))[0, 0], response, rtol=1e-6)
    if not beta1:
        np.testing.assert_allclose(lags.spread(tables_of_ones(lags))[0], variance, rtol=1e-6)


@pytest.mark.parametrize(("beta1", "beta2", "batch"), [(0.6, 0.7, 1), (0.5, 0.1, 2)])
def test_the_long_run_variance_is_that_of_all_pairs_of_steps(beta1, beta2, batch):
    """Where z is normal, with a grid of t for each of the two steps: of products of z only squares are not zero.

    E[r_0 r_n] has 1/sqrt(v) of both steps, in which a z counts t tau of its lag in each.
    """
    lags, number = Lags(beta1, beta2, batch), int(40 / -np.log(beta2)) + 1
    tau, weights = (1 - beta2) * beta2 ** np.arange(number), (1 - beta1) * beta1 ** np.arange(number)
    t = np.exp(np.arange(-40.0, 40.0))  # analytic within pi of the real line: an error of e^(-2 pi^2)
    variance = 0.0
    for apart in range(int(18 / -np.log(beta1))):
        earlier = np.concatenate([np.zeros(apart), tau])[:, None, None] * t[:, None]
        later = np.append(tau, tau[-1] * beta2 ** np.arange(1, apart + 1))[:, None, None] * t
        inner = 1 + 2 * batch * (earlier + later)
        both = np.einsum("l,lij->ij", weights**2 * beta1**apart, batch / inner[apart:])
        product = np.exp(-0.5 * np.log(inner).sum(axis=0))
        variance += (2 if apart else 1) * np.sum(np.sqrt(np.outer(t, t)) / np.pi * product * both)
    np.testing.assert_allclose(lags.spread(tables_of_ones(lags))[0], variance, rtol=1e-6)


def simulated_ratio(algorithm: dimfree.Adam, coordinates: int, steps: int, rng) -> np.ndarray:
    """Response to both fields and long-run variance of m / sqrt(v), by sampling; a row for each group of coordinates.

    Fields are those of START, and by Stein's lemma E[u dr/dx] = E[u x r]. The sums over lags are cut where what is
    left is e^-9.
    """
    from scipy.special import erf

    beta2 = algorithm.kept(1)
    window = 1 if algorithm.beta1 == 0 else int(9 / (1 - algorithm.beta1))
    m, v, rows = np.zeros(coordinates), np.zeros(coordinates), []
    inputs, ratios = [], []
    warm = int(14 / (1 - beta2))
    for step in range(warm + steps):
        u = rng.normal(size=(2, algorithm.batch_size, coordinates))
        field, target, noise = u[0], 0.3 * u[0] + 0.91**0.5 * u[1], rng.normal(size=u.shape[1:])
        error = erf(field / 2**0.5) - erf(target / 2**0.5) - 0.1**0.5 * noise
        x, slopes = rng.normal(size=u.shape[1:]), error * np.sqrt(2 / np.pi) * np.exp(-(field**2) / 2)
        z = np.sum(slopes * x, axis=0)
        m, v = algorithm.beta1 * m + (1 - algorithm.beta1) * z, beta2 * v + (1 - beta2) * z**2
        if step >= warm - window:
            ratios.append(m / np.sqrt(v))
            inputs.append(np.stack([np.sum(field * x, axis=0), np.sum(target * x, axis=0)]))
        if len(ratios) > window:
            past = np.sum(inputs[-window:], axis=0) * ratios[-1]
            spread = ratios[-1] * (2 * np.sum(ratios[-1 - window : -1], axis=0) + ratios[-1])
            rows.append(np.concatenate([past, [spread if window > 1 else ratios[-1] ** 2]]))
    return np.mean(rows, axis=0).reshape(3, 64, -1).mean(axis=2).T


@pytest.mark.parametrize(
    "algorithm",
    [dimfree.Adam(1.0, 0.6, beta2=0.85, batch_size=2), dimfree.RMSProp(1.0, beta2=0.9), dimfree.SignDescent(1.0, 3)],
    ids=["adam", "rmsprop", "sign"],
)
def test_averages_with_fixed_betas_are_those_of_samples(algorithm):
    """Within 4.5 standard errors of 64 groups of coordinates: a false alarm once in 10^4 runs."""
    limit = dimfree.ode(ERF, algorithm)
    fields = ERF.completed(START)
    variance = jnp.diagonal(ERF.mean_moments(fields, limit.averaging).square)
    response, spread = limit._response(fields, variance)
    samples = simulated_ratio(algorithm, 64 * 100, 60, np.random.default_rng(0))
    errors = samples.std(axis=0) / 8
    deviations = (samples.mean(axis=0) - np.append(response[0], spread[0, 0])) / np.maximum(errors, 1e-3)
    assert np.abs(deviations).max() < 4.5, (samples.mean(axis=0), errors, response, spread)


def test_sign_descent_of_a_linear_student():
    """In closed form: E[sign(s) u] = sqrt(2/pi) Cov(s, u) / sd(s), once more sqrt(2/pi), and sqrt(kappa) by block."""
    problem = dimfree.TwoLayer(1, 1, "linear").with_inputs(SPECTRUM)
    limit = dimfree.ode(problem, dimfree.SignDescent(0.3))
    drift = limit.drift(0.0, START)
    kappa, fractions = (np.asarray(each) for each in (SPECTRUM.eigenvalues, SPECTRUM.fractions))
    deviation = np.sqrt(np.sum(kappa * fractions) * (1 - 0.6 + 1))
    student, teacher = (np.sqrt(kappa) * fractions * 2 / np.pi * each / deviation for each in (0.7, -0.7))
    found = {pair: np.asarray(blocks)[:, 0, 0] for pair, blocks in drift.overlaps.items()}
    np.testing.assert_allclose(found["students", "teachers"], -0.3 * teacher, atol=3e-5)
    np.testing.assert_allclose(found["students", "students"], -0.6 * student + 0.09 * fractions, atol=6e-5)


def test_the_signs_of_two_students():
    """The products of their signs, with an activation that is not monotone: not one."""
    problem = dimfree.TwoLayer(2, 1, lambda field: jnp.log(jnp.cosh(field)))
    limit = dimfree.ode(problem, dimfree.SignDescent(0.5))
    _, square = limit._response(problem.completed(STARTS), jnp.ones(2))
    rng = np.random.default_rng(0)
    u = rng.multivariate_normal(np.zeros(3), np.asarray(STARTS.covariance), size=400_000)
    error = np.log(np.cosh(u[:, :2])).mean(axis=1) - np.log(np.cosh(u[:, 2]))
    product = np.prod(np.sign(error[:, None] * np.tanh(u[:, :2])), axis=1)
    assert abs(float(square[0, 1]) - product.mean()) < 4.5 * 400_000**-0.5
    assert abs(product.mean()) < 0.5


def slope(problem, start, algorithm, dimensions, runs, end) -> tuple[float, float]:
    """Of the log of the median distance of a run from the limit, and the last distance."""
    times = np.linspace(0.0, end, 6)
    limit = dimfree.ode(problem, algorithm)
    theory, distances = limit.coordinates.pack(dimfree.solve(limit, start, times).state), []
    for d in dimensions:
        runs_at = dimfree.simulate(
            problem, algorithm, start, d, times, runs=runs, key=jax.random.key(d), method="vectors"
        )
        distances.append(float(jnp.median(jnp.abs(limit.coordinates.pack(runs_at.state) - theory).max(axis=(1, 2)))))
    return float(np.polyfit(np.log(dimensions), np.log(distances), 1)[0]), distances[-1]


def test_adam_approaches_its_limit():
    found, last = slope(
        TWO.with_inputs(SPECTRUM), STARTS, dimfree.Adam(0.8, forgetting=2.0, batch_size=8), (100, 800), 24, 1.0
    )
    assert abs(found + 0.5) < 0.2, found
    assert last < 0.03


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "start", "algorithm"),
    [
        (ERF, START, dimfree.Adam(0.4, forgetting=2.0)),
        (TWO.with_inputs(SPECTRUM), STARTS, dimfree.Adam(0.4, 0.5, forgetting=2.0, epsilon=0.1)),
        (LOGISTIC.with_inputs(SPECTRUM), START, dimfree.Adam(0.4, forgetting=3.0, batch_size=8)),
        (LOGISTIC, START, dimfree.RMSProp(0.4, forgetting=3.0, epsilon=0.3)),
        (ERF.with_inputs(SPECTRUM), START, dimfree.RMSProp(0.4, beta2=0.9)),
        (ERF, START, dimfree.Adam(0.4, 0.7, beta2=0.95, batch_size=8)),
        (ERF.with_inputs(SPECTRUM), START, dimfree.SignDescent(0.4)),
        (TWO, STARTS, dimfree.SignDescent(0.4)),
        (ERF, START, dimfree.WeightDecay(dimfree.Adam(0.4, forgetting=2.0), 0.5)),
        (ERF.with_inputs(SPECTRUM), START, dimfree.Clipped(dimfree.Adam(0.4, forgetting=2.0), 0.2)),
        (ERF, START, dimfree.ScheduleFree(dimfree.Adam(0.4, forgetting=2.0), 0.8)),
    ],
)
def test_runs_approach_the_limit(problem, start, algorithm):
    """As d^-1/2, within 0.2: the slope of 16 runs at each of three dimensions has an error of about 0.08."""
    found, _ = slope(problem, start, algorithm, (300, 1200, 4800), 16, 0.5)
    assert abs(found + 0.5) < 0.2, found


@pytest.mark.slow
def test_a_long_fixed_memory_is_a_memory_of_order_d():
    """beta2 = 1 - c/d and forgetting = c are the same runs; as beta2 -> 1 both limits meet once v has settled."""
    d, c = 200, 4.0
    pair = (dimfree.Adam(0.3, 0.5, beta2=1 - c / d), dimfree.Adam(0.3, 0.5, forgetting=c))
    runs = [
        dimfree.simulate(ERF, each, START, d, 0.5, runs=2, key=jax.random.key(0), method="vectors").final.Q
        for each in pair
    ]
    np.testing.assert_allclose(runs[0], runs[1], rtol=1e-12)
    fixed = dimfree.ode(ERF, dimfree.Adam(0.3, 0.5, beta2=0.9999)).drift(0.0, START)
    moving = dimfree.ode(ERF, dimfree.Adam(0.3, 0.5, forgetting=c)).drift(0.0, START)
    for each in ("Q", "M"):
        np.testing.assert_allclose(getattr(fixed, each), getattr(moving, each), rtol=2e-3)


def test_the_second_moment_of_a_start_at_rest():
    """With rate zero v relaxes to kappa E[s^2] / B as 1 - exp(-c alpha / B), and so does its weight to one."""
    batch, c = 4, 3.0
    problem = dimfree.TwoLayer(1, 1, "linear").with_inputs(SPECTRUM)
    limit = dimfree.ode(problem, dimfree.Adam(0.0, forgetting=c, batch_size=batch))
    path = dimfree.solve(limit, START, np.array([0.0, 0.01, 1.0])).state.numbers
    settled = np.asarray(SPECTRUM.eigenvalues) * float(SPECTRUM.trace) * 1.4 / batch
    weight = -np.expm1(-c * np.array([0.0, 0.01, 1.0]) / batch)
    np.testing.assert_allclose(path["second_moment"][..., 0], weight[:, None] * settled, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(path["second_moment_weight"], weight, rtol=1e-6)


def test_a_run_goes_on_where_it_ended():
    limit = dimfree.ode(ERF, dimfree.Adam(0.3, forgetting=2.0))
    whole = dimfree.solve(limit, START, 1.0).final
    half = dimfree.solve(limit, dimfree.solve(limit, START, 0.4).final, 0.6).final
    np.testing.assert_allclose(half.Q, whole.Q, atol=1e-7)
    np.testing.assert_allclose(half.numbers["second_moment"], whole.numbers["second_moment"], atol=1e-7)


SIGN = dimfree.SignDescent(0.1)
ADAM = dimfree.Adam(0.1, forgetting=2.0)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: dimfree.Adam(0.1), "give one of them"),
        (lambda: dimfree.Adam(0.1, beta2=0.9, forgetting=1.0), "give one of them"),
        (lambda: dimfree.Adam(0.1, beta2=1.0), "forgetting = d"),
        (lambda: dimfree.Adam(0.1, 0.5, beta2=0.0), "no finite mean"),
        (lambda: dimfree.RMSProp(0.1, beta2=-0.1), "beta2 = -0.1"),
        (lambda: dimfree.ode(ERF, dimfree.RMSProp(0.1, forgetting=1.0)), "Give epsilon > 0"),
        (lambda: dimfree.ode(ERF, dimfree.Adam(0.1, beta2=0.9, epsilon=0.1)), "the same algorithm"),
        (lambda: dimfree.ode(TWO, dimfree.Adam(0.1, beta2=0.9)), "gradient_flow has the limit without it"),
        (lambda: dimfree.ode(TWO, dimfree.SignDescent(0.1, batch_size=2)), "gradient_flow has the limit without it"),
        (lambda: dimfree.ode(dimfree.SpikedTensor(3, 1.0), ADAM), "independent coordinates"),
        (lambda: dimfree.ode(dimfree.Mixture.binary(2, snr=1.0), ADAM), "independent coordinates"),
        (lambda: dimfree.simulate(ERF, ADAM, START, 99, 1.0, runs=1, key=jax.random.key(0)), 'method="vectors"'),
        (
            lambda: dimfree.simulate(ERF, ADAM, START, 1, 1.0, runs=1, key=jax.random.key(0), method="vectors"),
            "it is d at most",
        ),
        (lambda: dimfree.ode(ERF, dimfree.Clipped(dimfree.Adam(0.1, beta2=0.9), 1.0)), "forgetting = d"),
        (lambda: dimfree.ode(ERF, dimfree.ScheduleFree(dimfree.SignDescent(0.1))), "at another point"),
        (lambda: dimfree.ode(ERF, dimfree.AdaptiveClip(ADAM, 2.0)), "fixed norm"),
        (lambda: dimfree.sde(ERF, ADAM, d=100), "fluctuations are not known"),
        (lambda: dimfree.linear_noise(ERF, ADAM, d=100), "fluctuations are not known"),
        (lambda: dimfree.equations(ERF, ADAM), "not a function of overlaps"),
        (lambda: dimfree.fixed_points(dimfree.ode(ERF, ADAM), key=jax.random.key(0)), "plain one-pass SGD only"),
        (lambda: dimfree.exact_mean(dimfree.TwoLayer(1, 1, "linear"), SIGN, START, 100, 1.0), "scales each coordinate"),
    ],
)
def test_what_is_not_known_is_refused_in_words(call, words):
    with pytest.raises(dimfree.InvalidInput, match=words):
        call()


@pytest.mark.usefixtures("optimised")
def test_gradient_flow_of_two_students():
    """The drift alone is known for any number of students: for equal ones it is that of each."""
    limit = dimfree.gradient_flow(TWO, dimfree.Adam(0.1, beta2=0.9), tolerance=1e-2)
    drift = limit.drift(0.0, dimfree.State(Q=[[1.0, 0.999], [0.999, 1.0]], M=[[0.3], [0.3]])).M
    np.testing.assert_allclose(drift[0], drift[1], rtol=1e-6)
    assert float(drift[0, 0]) > 0.01
