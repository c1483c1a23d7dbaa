"""Inputs with a spectrum: limits, simulations and starts in each of its blocks."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import dimfree
from dimfree import InvalidInput, Spectrum
from dimfree.simulation.mean import mean_states

THREE = Spectrum([4.0, 1.0, 0.25], [0.1, 0.3, 0.6])
SGD = dimfree.OnlineSGD(0.4, batch_size=2, ridge=0.2)
START = dimfree.State(Q=np.eye(2), M=[[0.3], [0.0]])


def network(activation="erf", p=2, k=1, **options):
    return dimfree.TwoLayer(p, k, activation=activation, noise=0.1, **options)


def test_one_block_of_eigenvalue_one_is_the_isotropic_law_bit_for_bit():
    problem = network()
    one = problem.with_inputs(Spectrum([1.0]))
    start = dimfree.random_state(problem, 60, key=jax.random.key(0))
    algorithm = dimfree.Averaged(dimfree.Momentum(0.4, 0.3, 2.0, batch_size=2), 1.0)

    def results(problem):
        runs = [
            dimfree.simulate(problem, algorithm, start, 60, 1.0, runs=3, key=jax.random.key(1), method=method)
            for method in ("exact", "vectors")
        ]
        limit = dimfree.ode(problem, algorithm)
        begun = dimfree.random_state(problem, 60, key=jax.random.key(0))
        return [begun, dimfree.solve(limit, start, 1.0).state, *(run.state for run in runs)]

    for ours, expected in zip(results(one), results(problem), strict=True):
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(a, b)


def moved_by_hand(rng, vectors, eigenvalues, steps, rate, batch, noise, ridge):
    """SGD of a network of erf neurons on inputs with these variances, in NumPy: students and teacher as rows."""
    from scipy.special import erf

    students, teacher = vectors
    d = len(eigenvalues)
    for _ in range(steps):
        x = rng.normal(size=(batch, d)) * np.sqrt(eigenvalues)
        fields, target = x @ students.T / np.sqrt(d), x @ teacher / np.sqrt(d)
        error = (
            erf(fields / np.sqrt(2)).mean(axis=1) - erf(target / np.sqrt(2)) - np.sqrt(noise) * rng.normal(size=batch)
        )
        slopes = error[:, None] * np.sqrt(2 / np.pi) * np.exp(-(fields**2) / 2) / len(students)
        students = (1 - rate * ridge / d) * students - rate / batch * slopes.T @ x / np.sqrt(d)
    return students


def by_block(a, b, sizes):
    edges = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
    return np.stack([a[:, i:j] @ b[:, i:j].T for i, j in itertools.pairwise(edges)]) / a.shape[1]


def test_limit_and_simulation_are_those_of_a_loop_in_numpy():
    """24 runs of SGD on vectors in d = 400, from one start: overlaps of all blocks, and the risk by its own average."""
    rng, d, alpha, runs = np.random.default_rng(3), 400, 3.0, 24
    sizes = np.asarray(THREE.sizes(d))
    eigenvalues = np.repeat(np.asarray(THREE.eigenvalues), sizes.astype(int))
    students, teacher = rng.normal(size=(2, d)), rng.normal(size=(1, d))
    students[0] += 0.7 * teacher[0]
    pairs = {
        ("students", "students"): by_block(students, students, sizes),
        ("students", "teachers"): by_block(students, teacher, sizes),
        ("teachers", "teachers"): by_block(teacher, teacher, sizes),
    }
    start = dimfree.State.of({pair: jnp.asarray(blocks) for pair, blocks in pairs.items()}, None)
    # A large rate and much noise, so that the term of second order is seen.
    problem = dimfree.TwoLayer(2, 1, activation="erf", noise=0.5).with_inputs(THREE)
    algorithm = dimfree.OnlineSGD(2.0, batch_size=2, ridge=0.1)
    final = [
        moved_by_hand(rng, (students, teacher[0]), eigenvalues, int(alpha * d / 2), 2.0, 2, 0.5, 0.1)
        for _ in range(runs)
    ]
    direct = {
        "students": np.stack([by_block(each, each, sizes) for each in final]),
        "teachers": np.stack([by_block(each, teacher, sizes) for each in final]),
    }
    solved = dimfree.solve(dimfree.ode(problem, algorithm), start, alpha).final
    exact = dimfree.simulate(problem, algorithm, start, d, [0.0, alpha], runs=256, key=jax.random.key(0)).final
    for family, found in direct.items():
        error = found.std(axis=0, ddof=1) / np.sqrt(runs)
        limit, ours = (np.asarray(each.overlaps["students", family]) for each in (solved, exact))
        # 15 entries, each within four of its standard errors and, for the limit, 1/d: false alarm 1e-3.
        assert np.all(np.abs(found.mean(axis=0) - limit) < 4 * error + 1 / d), (family, found.mean(axis=0) - limit)
        both = np.hypot(error, ours.std(axis=0) / 16)
        assert np.all(np.abs(found.mean(axis=0) - ours.mean(axis=0)) < 4 * both), family


@pytest.mark.parametrize(
    ("activation", "algorithm"),
    [
        pytest.param("erf", dimfree.OnlineSGD(0.4), marks=pytest.mark.slow),
        pytest.param("erf", dimfree.OnlineSGD(0.4, sphere=True), marks=pytest.mark.slow),
        pytest.param("erf", dimfree.Momentum(0.4, 0.3, 2.0, batch_size=2), marks=pytest.mark.slow),
        ("square", dimfree.OnlineSGD(0.05)),
    ],
)
def test_fluctuations_are_those_of_runs(activation, algorithm):
    """All covariances of the overlaps of all blocks, of many runs from one start."""
    problem, alpha = network(activation).with_inputs(THREE), [0.0, 1.5]
    d, runs = (400, 1500) if activation == "square" else (2000, 4000)
    start = dimfree.random_state(problem, d, key=jax.random.key(1))
    expected = np.asarray(dimfree.solve(dimfree.linear_noise(problem, algorithm, d), start, alpha).covariance[-1])
    final = dimfree.simulate(problem, algorithm, start, d, alpha, runs=runs, key=jax.random.key(2)).final
    found = np.cov(np.asarray(algorithm.coordinates(problem).pack(final)).T)
    error = np.sqrt((np.outer(np.diag(found), np.diag(found)) + found**2) / runs)
    deviations = ((found - expected) / error)[np.triu_indices(len(found))]
    # Entries share their runs, so that a seed may have 1.15; without the covariance across blocks it is above 3.
    assert np.sqrt(np.mean(deviations**2)) < 1.4, deviations
    assert np.abs(deviations).max() < 4.5


def test_paths_spread_as_linear_noise():
    problem, gentle, alpha = network("square").with_inputs(THREE), dimfree.OnlineSGD(0.05), [0.0, 1.0]
    start, key = dimfree.random_state(problem, 500, key=jax.random.key(1)), jax.random.key(3)
    linear = dimfree.solve(dimfree.linear_noise(problem, gentle, 500), start, alpha).covariance[-1]
    paths = dimfree.solve(dimfree.sde(problem, gentle, 500), start, alpha, runs=400, steps=100, key=key).final
    spread = np.asarray(gentle.coordinates(problem).pack(paths)).var(axis=0)
    # A variance of 400 paths is known to 7%; 15 of them within four of that.
    np.testing.assert_allclose(spread, np.diag(np.asarray(linear)), rtol=0.3)


@pytest.mark.parametrize("activation", ["tanh", pytest.param("relu", marks=pytest.mark.slow)])
def test_clusters_share_a_spectrum(activation):
    """The limit against exact runs, and these against vectors, in all blocks; means have no eigenvalue."""
    means = [[1.5, 0.0], [0.0, 1.5], [-1.0, -1.0]]
    problem = dimfree.Mixture(means, [1, 0, 1], 1, snr=[2.0, 1.0, 4.0], activation=activation).with_inputs(THREE)
    algorithm, d, alpha = dimfree.Averaged(dimfree.OnlineSGD(0.5, batch_size=2), 1.0), 300, [0.0, 2.0]
    start, pack = dimfree.random_state(problem, d, key=jax.random.key(1)), algorithm.coordinates(problem).pack
    limit = np.asarray(pack(dimfree.solve(dimfree.ode(problem, algorithm), start, alpha).final))
    exact, vectors = (
        np.asarray(pack(dimfree.simulate(problem, algorithm, start, d, alpha, runs=runs, key=key, method=method).final))
        for method, runs, key in (("exact", 400, jax.random.key(2)), ("vectors", 100, jax.random.key(3)))
    )
    errors = [runs.std(axis=0) / np.sqrt(len(runs)) for runs in (exact, vectors)]
    # 21 entries, four standard errors each: a false alarm in 750; the mean differs from the limit by 1/d beside.
    assert np.all(np.abs(exact.mean(axis=0) - vectors.mean(axis=0)) < 4.2 * np.hypot(*errors))
    assert np.all(np.abs(exact.mean(axis=0) - limit) < 4 * errors[0] + 1 / d)
    assert np.abs(limit - np.asarray(pack(algorithm.begin(problem.inputs.over_blocks(start))))).max() > 20 / d


def test_the_risk_is_that_of_the_fields():
    state = dimfree.random_state(network().with_inputs(THREE), 200, key=jax.random.key(2))
    weights = np.asarray(THREE.eigenvalues)[:, None, None]
    seen = dimfree.State(*(np.sum(weights * np.asarray(state.overlaps[pair]), axis=0) for pair in state.overlaps))
    np.testing.assert_allclose(network().with_inputs(THREE).risk(state), network().risk(seen), rtol=1e-13)


@pytest.mark.parametrize("batch", [1, 3])
def test_least_squares_has_its_exact_mean(batch):
    """The recursion of the mean squares in the eigenbasis is exact at any d; so is the simulation's mean."""
    eigenvalues, d, steps, rate, noise = np.arange(1.0, 13.0) ** -1.5, 12, 36, 0.3 * 12, 0.1
    problem = dimfree.TwoLayer(1, 1, activation="linear", noise=noise).with_inputs(Spectrum(eigenvalues))
    start = dimfree.random_state(problem, d, key=jax.random.key(4))
    G = {pair: np.asarray(blocks)[:, 0, 0] * d for pair, blocks in start.overlaps.items()}
    squares = G["students", "students"] - 2 * G["students", "teachers"] + G["teachers", "teachers"]
    gamma = rate / d
    for _ in range(steps):
        kept = 1 - 2 * gamma * eigenvalues + (batch + 1) / batch * gamma**2 * eigenvalues**2
        squares = kept * squares + gamma**2 * eigenvalues * (eigenvalues @ squares + noise * d) / batch
    expected = 0.5 * (eigenvalues @ squares / d + noise)
    algorithm, alpha = dimfree.OnlineSGD(rate, batch_size=batch), [0.0, steps * batch / d]
    mean = dimfree.exact_mean(problem, algorithm, start, d, alpha)
    np.testing.assert_allclose(mean.risk[-1], expected, rtol=1e-12)
    if batch == 1:
        runs = dimfree.simulate(problem, algorithm, start, d, alpha, runs=2_000, key=jax.random.key(5))
        risks = np.asarray(runs.risk)[:, -1]
        assert abs(risks.mean() - expected) < 4 * risks.std() / np.sqrt(len(risks))
    assert abs(float(dimfree.solve(dimfree.ode(problem, algorithm), start, alpha).risk[-1]) / expected - 1) > 0.01


@pytest.mark.parametrize(
    ("algorithm", "largest"),
    [
        (dimfree.OnlineSGD(0.4), 1e-9),
        (dimfree.OnlineSGD(lambda alpha: 0.4 / (1 + alpha)), 1e-6),
        (dimfree.Momentum(0.4, 0.1, lambda alpha: 4 / (1 + alpha)), 1e-7),
    ],
    ids=["SGD", "decaying", "momentum"],
)
def test_leaps_of_a_mean_are_its_single_steps(algorithm, largest):
    """Many steps at once against one by one, where the largest eigenvalue is 2,500 times the smallest."""
    d = 50
    eigenvalues, teacher = np.arange(1.0, d + 1) ** -2, np.arange(1.0, d + 1) ** -1.5
    problem = dimfree.TwoLayer(1, 1, activation="linear", noise=0.01).with_inputs(Spectrum(d * eigenvalues))
    P = (teacher / d)[:, None, None]
    start = dimfree.random_state(problem, d, key=jax.random.key(0), norm=0.0, P=P)
    steps = np.array([0, 4096])

    def last(resolution):
        sizes = problem.inputs.sizes(d)
        states = mean_states(problem, algorithm, algorithm.begin(start), d, sizes, steps, resolution)
        return float(problem.risk(states)[-1])

    single = last(10**9)
    leaping = float(dimfree.exact_mean(problem, algorithm, start, d, steps / d).risk[-1])
    assert leaping != single
    assert abs(leaping / single - 1) < largest
    if algorithm.changes:  # of second order: a sixteenth, or less
        assert abs(leaping / single - 1) < abs(last(256) / single - 1) / 8


@pytest.mark.slow
def test_exact_means_of_several_students_with_momentum():
    """Three students of which two learn, a momentum and blocks of several dimensions, in small d."""
    problem = dimfree.TwoLayer(2, 2, activation="linear", noise=0.1, readout=[1.0, -0.5]).with_inputs(
        Spectrum([4.0, 1.0, 0.25], [0.25, 0.25, 0.5])
    )
    algorithm, d = dimfree.Momentum(0.5, 0.3, 2.0, batch_size=2), 16
    start, alpha = dimfree.random_state(problem, d, key=jax.random.key(0)), [0.0, 2.0]
    pack = algorithm.coordinates(problem).pack
    mean = np.asarray(pack(dimfree.exact_mean(problem, algorithm, start, d, alpha).final))
    runs = np.asarray(
        pack(dimfree.simulate(problem, algorithm, start, d, alpha, runs=5_000, key=jax.random.key(1)).final)
    )
    errors = runs.std(axis=0) / np.sqrt(len(runs))
    # 63 entries within 4.2 standard errors, a false alarm in 600; the limit is far away somewhere.
    assert np.all(np.abs(runs.mean(axis=0) - mean) < 4.2 * errors + 1e-12)
    limit = np.asarray(pack(dimfree.solve(dimfree.ode(problem, algorithm), start, alpha).final))
    assert np.max(np.abs(limit - mean) / errors) > 10


@pytest.mark.parametrize(("p", "k", "sizes"), [(2, 1, (3, 9, 18)), (3, 2, (2, 4, 24))])
def test_random_state_has_the_law_of_random_vectors_in_each_block(p, k, sizes):
    d, number = sum(sizes), 3000
    problem = network(p=p, k=k).with_inputs(Spectrum([4.0, 1.0, 0.2], np.array(sizes) / d))
    keys = jax.random.split(jax.random.key(0), number)
    drawn = jax.vmap(lambda key: dimfree.random_state(problem, d, key=key))(keys)
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(number, p, d))
    weights *= np.sqrt(d) / np.linalg.norm(weights, axis=-1, keepdims=True)
    teachers = np.zeros((k, d))  # with the identity over d in each block, times its fraction
    edges = np.concatenate([[0], np.cumsum(sizes)])
    for first, size in zip(edges, sizes, strict=False):
        teachers[np.arange(k), first + np.arange(k)] = np.sqrt(size)
    for block, (i, j) in enumerate(itertools.pairwise(edges)):
        Q = np.einsum("rad,rbd->rab", weights[..., i:j], weights[..., i:j]) / d
        M = weights[..., i:j] @ teachers[:, i:j].T / d
        for ours, direct in ((drawn.overlaps["students", "students"], Q), (drawn.overlaps["students", "teachers"], M)):
            found = np.asarray(ours)[:, block]
            for entry in ((0, 0), (1, 0)):
                p_value = scipy.stats.ks_2samp(found[:, *entry], direct[:, *entry]).pvalue
                assert p_value > 1e-5, (block, entry)


def test_check_sees_the_rate_at_which_the_limit_is_reached():
    problem = network("square").with_inputs(THREE)
    result = dimfree.check(problem, dimfree.OnlineSGD(0.05), dimensions=(60, 240, 960), runs=48)
    assert -0.7 < result.slope < -0.3
    assert result.agrees
    np.testing.assert_allclose(result.effective_dimensions, np.array([60, 240, 960]) * 0.85**2 / 1.9375)
    assert "effective dimension" in str(result)
    assert "Few eigenvalues" in str(result)


def test_averages_by_quadrature_say_how_good_they_are():
    """For tanh there is no closed form: the error is estimated in all blocks, as for isotropic inputs."""
    problem = network("tanh").with_inputs(THREE)
    start = dimfree.random_state(problem, 400, key=jax.random.key(0))
    limit = dimfree.ode(problem, SGD)
    size, drift = float(limit.drift_size(start)), np.asarray(limit.coordinates.pack(limit.drift(0.0, start)))
    assert np.abs(drift).max() < size < 30 * np.abs(drift).max()
    assert float(limit.expectation_error(start)) < 1e-6 * size
    assert "relative error at most" in dict(dimfree.solve(limit, start, 0.5).provenance)["drift"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "algorithm"),
    [
        (network("erf").with_inputs(THREE), dimfree.OnlineSGD(0.8)),
        (network("erf").with_inputs(Spectrum.power_law(1.2, 60, 12).normalised()), dimfree.OnlineSGD(0.4)),
        (network("tanh", p=1).with_inputs(THREE), dimfree.OnlineSGD(0.4, batch_size=5)),
        (network("square").with_inputs(Spectrum.marchenko_pastur(0.5, 8)), dimfree.OnlineSGD(0.05, sphere=True)),
        (network("erf", p=3, k=2).with_inputs(THREE), dimfree.OnlineSGD(0.8, sphere=True)),
        (network("erf").with_inputs(THREE), dimfree.Momentum(0.4, 0.3, 2.0)),
        (network("relu", p=1).with_inputs(Spectrum([3.0, 0.5], [0.2, 0.8])), dimfree.OnlineSGD(0.3)),
        (dimfree.Mixture.binary(1, 2.0).with_inputs(THREE), dimfree.OnlineSGD(0.5, readout_rate=0.3)),
    ],
)
def test_runs_approach_the_limit_as_they_must(problem, algorithm):
    result = dimfree.check(problem, algorithm, dimensions=(240, 960, 3840), runs=48)
    assert -0.7 < result.slope < -0.3
    assert result.agrees, str(result)


@pytest.mark.slow
def test_exit_times_are_those_of_runs():
    """Dressed starts and the SDE against exact runs and these against vectors, from a plateau."""
    problem = dimfree.PhaseRetrieval(1).with_inputs(Spectrum([2.0, 0.5], [1 / 3, 2 / 3]))
    algorithm, d, key = dimfree.OnlineSGD(0.05, sphere=True), 600, jax.random.key(0)
    found = dimfree.exit_time(problem, algorithm, d, 0.3, runs=200, key=key, methods=("dressed", "sde", "simulated"))
    for name in ("dressed", "sde"):
        ours, runs = getattr(found, name), found.simulated
        assert abs(ours.mean - runs.mean) < 4 * np.hypot(ours.error, runs.error) + 0.05 * runs.mean, name


def test_a_dataset_has_the_overlaps_of_each_block():
    problem = network().with_inputs(THREE)
    runs = dimfree.simulate(problem, SGD, START, 100, [0.0, 0.1], runs=2, key=jax.random.key(0))
    found = runs.to_xarray()
    np.testing.assert_allclose(found.M_of_block.sum("block"), found.M)
    np.testing.assert_allclose((found.P_of_block / found.fraction).isel(teacher=0, teacher_=0), 1.0)
    assert found.Q_of_block.dims == ("run", "alpha", "block", "student", "student_")
    with pytest.raises(InvalidInput, match="GiB"):  # as many bytes as there are blocks
        dimfree.simulate(problem, SGD, START, 100, np.arange(100) / 50, runs=10**8, key=jax.random.key(0))


def test_a_start_without_blocks_lies_evenly_in_all_dimensions():
    problem = network().with_inputs(THREE)
    begun = dimfree.solve(dimfree.ode(problem, SGD), START, 0.1).state
    for block, fraction in enumerate(np.asarray(THREE.fractions)):
        np.testing.assert_allclose(begun.overlaps["students", "students"][0, block], fraction * np.eye(2), rtol=1e-14)
    np.testing.assert_allclose(begun.Q[0], np.eye(2), rtol=1e-14)


def test_spectra_by_name_and_merged():
    for ratio in (0.3, 2.0):
        spectrum = Spectrum.marchenko_pastur(ratio, 200)
        np.testing.assert_allclose(spectrum.trace, 1.0, rtol=1e-4)
        np.testing.assert_allclose(spectrum.fractions @ spectrum.eigenvalues**2, 1 + ratio, rtol=1e-4)
    eigenvalues = np.arange(1.0, 5001.0) ** -1.4
    merged = Spectrum.power_law(1.4, 5000, blocks=48)
    assert merged.blocks == 48
    np.testing.assert_allclose(merged.trace * 5000, eigenvalues.sum(), rtol=1e-12)
    np.testing.assert_allclose(merged.eigenvalues[:8], eigenvalues[:8], rtol=1e-12)  # large ones stay alone
    np.testing.assert_allclose(merged.fractions @ merged.eigenvalues**2 * 5000, (eigenvalues**2).sum(), rtol=1e-3)
    assert float(THREE.sizes(37.0).sum()) == 37
    np.testing.assert_allclose(Spectrum([1.0, 1.0]).effective_dimension(100), 100.0)


@pytest.mark.slow
def test_limits_are_differentiated_by_the_eigenvalues():
    start = START

    def end(eigenvalue):
        problem = network().with_inputs(Spectrum(jnp.stack([eigenvalue, jnp.ones(())]), [0.3, 0.7]))
        return dimfree.solve(dimfree.ode(problem, SGD), start, 1.0).state.M[-1, 0, 0]

    np.testing.assert_allclose(
        jax.grad(end)(jnp.asarray(2.0)), (end(jnp.asarray(2.001)) - end(jnp.asarray(1.999))) / 0.002, rtol=1e-5
    )


REFUSED = {
    "mean field": lambda problem: dimfree.mean_field(problem, SGD),
    "equations": lambda problem: dimfree.equations(problem, SGD),
    "fixed points": lambda problem: dimfree.fixed_points(dimfree.ode(problem, SGD), key=jax.random.key(0)),
    "Hessian": lambda problem: dimfree.hessian(problem, START, d=100),
    "regimes": lambda problem: dimfree.regimes(problem, dimfree.OnlineSGD(0.1), 100, 1.0, key=jax.random.key(0)),
    "information exponent": lambda problem: dimfree.information_exponent(problem),
    "gain of width": lambda problem: dimfree.overparameterisation_gain(
        problem, dimfree.OnlineSGD(0.1), 100, key=jax.random.key(0)
    ),
    "closed forms": lambda problem: dimfree.quadratic.plateau(dimfree.ode(problem, dimfree.OnlineSGD(0.1))),
    "DMFT": lambda problem: dimfree.dmft(problem, dimfree.GradientDescent(0.1, 2.0)),
    "reused data": lambda problem: dimfree.simulate(
        problem,
        dimfree.GradientDescent(0.1, 2.0),
        START,
        50,
        1.0,
        runs=1,
        key=jax.random.key(0),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_known_for_isotropic_inputs_only_says_so(name):
    with pytest.raises(InvalidInput, match=r"isotropic|standard"):
        REFUSED[name](network("square").with_inputs(THREE))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: dimfree.exact_mean(network(), SGD, START, 100, 1.0), "not linear"),
        (
            lambda: dimfree.exact_mean(network("linear"), dimfree.OnlineSGD(0.1, sphere=True), START, 100, 1.0),
            "leave out sphere",
        ),
        (lambda: dimfree.exact_mean(network("linear"), dimfree.OnlineSGD(1e9), START, 100, 100.0), "beyond all"),
        (lambda: Spectrum([1.0, -1.0]), "zero or positive"),
        (lambda: Spectrum([1.0, 2.0], [0.5, 0.6]), "sum to 1"),
        (lambda: Spectrum([1.0, 2.0], [1.0]), "one fraction for each"),
        (lambda: network().with_inputs([1.0, 2.0]), "dimfree.Spectrum"),
        (lambda: dimfree.Mixture.binary(1, np.inf).with_inputs(THREE), "are points"),
        (lambda: dimfree.sde(dimfree.Mixture.binary(1, 2.0).with_inputs(THREE), SGD, d=100), "isotropic clusters"),
        (lambda: dimfree.random_state(network(k=3).with_inputs(THREE), 20, key=jax.random.key(0)), "do not fit"),
    ],
)
def test_what_cannot_be_is_refused_in_words(make, words):
    with pytest.raises(InvalidInput, match=words):
        make()
