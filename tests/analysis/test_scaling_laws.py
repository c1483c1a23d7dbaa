"""Random features and scaling laws: spectra against drawn features, risks against SGD, exponents against theory."""

import jax
import numpy as np
import pytest
import scipy.special

import dimfree
from dimfree import InvalidInput
from dimfree.analysis.scaling_laws import ScalingLaw, fitted
from dimfree.problems.random_features import deterministic_equivalent

RANKS = np.arange(1.0, 2001.0)


def spectrum_of(problem, start):
    """Eigenvalues of the features, how many there are in each block, and what they have of the target."""
    inputs = problem.inputs
    size = 100.0
    eigenvalues = np.asarray(inputs.eigenvalues) / size
    teacher = np.asarray(start.overlaps["teachers", "teachers"])[:, 0, 0]
    return eigenvalues, np.asarray(inputs.fractions) * size, size * eigenvalues * teacher


@pytest.mark.parametrize(("a", "b"), [(1.0, 0.75), (0.65, 0.8), (1.2, 2.0)])
def test_the_equivalent_is_the_mean_of_drawn_features(a, b):
    """Traces of functions of the covariance, and of the target, within five standard errors of 24 draws."""
    features = dimfree.RandomFeatures(RANKS ** (-2 * a), RANKS**-b)
    times = np.array([0.3, 3.0, 30.0, 300.0, 3000.0])

    def functions(eigenvalues, numbers, energies, missed):
        decay = np.exp(-times[:, None] * eigenvalues)
        return np.concatenate([decay @ (numbers * eigenvalues), decay @ energies, [missed]])

    problem, start = features(100)
    found = functions(*spectrum_of(problem, start), float(problem.noise))
    drawn = []
    for n in range(24):
        problem, start = features(100, key=jax.random.key(n))
        drawn.append(functions(*spectrum_of(problem, start), float(problem.noise)))
    mean, error = np.mean(drawn, axis=0), np.std(drawn, axis=0) / np.sqrt(len(drawn))
    # The equivalent leaves out terms of order 1/d, and blocks are a few percent wide.
    assert np.all(np.abs(found - mean) < 5 * error + 0.01 * mean)
    assert np.abs(found[5:9] / mean[5:9] - 1).min() < 0.02


@pytest.mark.parametrize("size", [100, 10_000, 1_000_000])
def test_nothing_is_lost_in_the_blocks_of_the_equivalent(size):
    """All eigenvalues are counted, their sum is the trace, and target in blocks and miss are the target."""
    coordinates = dimfree.PowerLawFeatures(1.0, 0.75).coordinates()
    eigenvalues, numbers, energies, missed = deterministic_equivalent(coordinates, size)
    assert abs(numbers.sum() / size - 1) < 1e-5
    assert abs(numbers @ eigenvalues / (np.pi**2 / 6) - 1) < 1e-5  # zeta(2)
    assert abs(energies.sum() + missed - scipy.special.zeta(3.5)) < 1e-5
    assert len(eigenvalues) == 240
    assert eigenvalues.max() < (1 + (np.pi**2 / 6 / size) ** 0.5) ** 2  # also in blocks that have none


def test_the_published_exponents_of_each_phase():
    """Table 1 of Paquette et al., in fractions."""
    known = {(1.0, 0.25): (1 / 3, -1.5 / 3), (1.0, 0.75): (3 / 7, -2.5 / 3.5), (0.75, 1.5): (1 / 2, -2 / 3)}
    for (a, b), (size, compute) in known.items():
        found = dimfree.PowerLawFeatures(a, b).predicted
        assert (found["size"], found["compute"]) == pytest.approx((size, compute))


def test_coordinates_in_groups_have_the_sums_of_all():
    features = dimfree.RandomFeatures(RANKS**-1.6, 3 * RANKS**-0.4, noise=0.3)
    found = features.coordinates()
    assert len(found.variances) < 2000
    assert found.numbers.sum() == 2000
    np.testing.assert_allclose(found.numbers @ found.variances, np.sum(RANKS**-1.6), rtol=1e-12)
    np.testing.assert_allclose(found.energies.sum(), 9 * np.sum(RANKS**-2.4), rtol=1e-12)
    np.testing.assert_allclose(found.variances[:256], RANKS[:256] ** -1.6)
    assert features.irreducible_risk == 0.15
    # A power law of infinitely many: sums of j^-2a and j^-2(a+b), with those beyond the last group.
    a, b = 0.6, 0.2
    found = dimfree.PowerLawFeatures(a, b).coordinates()
    np.testing.assert_allclose(found.numbers @ found.variances + found.trace, scipy.special.zeta(2 * a), rtol=1e-6)
    np.testing.assert_allclose(found.energies.sum() + found.energy, scipy.special.zeta(2 * a + 2 * b), rtol=1e-6)
    variances, target = dimfree.PowerLawFeatures(a, b, coordinates_drawn=3).drawn(2)
    np.testing.assert_allclose(variances, np.arange(1.0, 7) ** -1.2)
    np.testing.assert_allclose(target, np.arange(1.0, 7) ** -0.2)


def test_the_frontier_of_a_known_surface():
    """Risk n^-a + s^-b with n^2 parameters: at compute C the best size has n^(a+2b) = a/(2b) C^b."""
    a, b, sizes, samples = 0.6, 0.4, np.geomspace(10.0, 1e4, 13), np.geomspace(1.0, 1e8, 129)
    surface = sizes[:, None] ** -a + samples**-b
    law = ScalingLaw(sizes, sizes**2, samples, surface, "formula", {})
    compute = law.frontier["compute"]
    best = (a / (2 * b) * compute**b) ** (1 / (a + 2 * b))
    inside = (best > 20) & (best < 5e3)
    assert inside.sum() > 50
    np.testing.assert_allclose(law.frontier["size"][inside], best[inside], rtol=2e-3)
    least = best**-a + (compute / best**2) ** -b
    np.testing.assert_allclose(law.frontier["risk"][inside], least[inside], rtol=1e-4)
    np.testing.assert_allclose(law.exponents["size"].value, b / (a + 2 * b), atol=1e-3)
    np.testing.assert_allclose(law.exponents["compute"].value, -a * b / (a + 2 * b), atol=1e-3)
    # Of the largest size, before its own risk is reached; local exponents by hand.
    slopes = -b * samples**-b / surface
    np.testing.assert_allclose(law.slopes()[:, 1:-1], slopes[:, 1:-1], atol=2e-3)
    late = samples >= samples[-1] ** (2 / 3) * (1 - 1e-9)
    line = np.polyfit(np.log(samples[late]), np.log(surface[-1, late]), 1)[0]
    assert law.exponents["samples"].value == pytest.approx(line)


def test_the_vertex_between_sizes_is_that_of_a_parabola():
    """Logarithms that are parabolas in the size: the vertex is exact, between the sizes that are looked at."""
    sizes, samples, vertex = np.geomspace(10.0, 1e4, 9), np.geomspace(1.0, 1e6, 33), np.log(321.0)
    surface = np.exp((np.log(sizes)[:, None] - vertex) ** 2 - 0.5 * (np.log(samples) + np.log(sizes)[:, None]))
    found = ScalingLaw(sizes, sizes, samples, surface, "formula", {}).frontier
    np.testing.assert_allclose(found["size"], 321.0, rtol=1e-6)
    np.testing.assert_allclose(found["risk"], found["compute"] ** -0.5, rtol=1e-6)


def test_the_interval_of_an_exponent_is_that_of_windows_of_the_last_half():
    """A curve that bends: windows by hand, each with NumPy's straight line."""
    x = np.geomspace(1.0, 1e6, 200)
    y = np.exp(-0.02 * np.log(x) ** 2) * (1 + 0.1 * np.cos(3 * np.log(x)))
    found, log = fitted(x, y), np.log(x)

    def slope(low, high):
        inside = (log >= low - 1e-9) & (log <= high + 1e-9)
        return np.polyfit(log[inside], np.log(y[inside]), 1)[0]

    end = log[-1]
    assert found.value == pytest.approx(slope(2 / 3 * end, end))
    assert found.window == pytest.approx((1e4, 1e6))
    random, slopes = np.random.default_rng(5), []
    for _ in range(2000):
        width = random.uniform(end / 6, end / 2)
        low = random.uniform(end / 2, end - width)
        slopes.append(slope(low, low + width))
    # 400 windows in `fitted`: quantiles of 2.5% have an error of a tenth of the range at most.
    known = np.quantile(slopes, [0.025, 0.975])
    assert abs(found.low - known[0]) < 0.1 * np.ptp(known)
    assert abs(found.high - known[1]) < 0.1 * np.ptp(known)


class Drawn:
    """A family of one size, whose problem has twenty features of a power law."""

    d, predicted = 20, {"size": 0.5}

    def __init__(self, features):
        self.made, self.irreducible_risk = features(20, key=jax.random.key(3)), features.irreducible_risk

    def __call__(self, size):
        return self.made


def test_a_law_is_the_exact_mean_of_sgd_less_what_is_irreducible():
    """In batches, with the mean of the weights too; the part of the target that features miss is not irreducible."""
    family = Drawn(dimfree.PowerLawFeatures(1.0, 0.75, noise=0.2))
    (problem, start), samples = family.made, np.array([4, 40, 400])
    alphas, sgd = np.array([0.0, *samples]) / 20, dimfree.OnlineSGD(0.3, batch_size=4)
    averaged, expected = dimfree.Averaged(sgd, 2.0), {}
    for algorithm, weights in ((sgd, "students"), (averaged, "average")):
        law = dimfree.scaling_law(family, algorithm, 1, samples, weights=weights)
        state = dimfree.exact_mean(problem, algorithm, start, 20, alphas).state
        risk = problem.risk(state if weights == "students" else state.at("average"))
        expected[weights] = np.asarray(risk)[1:] - 0.1
        np.testing.assert_allclose(law.risk[0], expected[weights], rtol=1e-5)
    assert np.abs(expected["average"] / expected["students"] - 1).max() > 0.1
    assert float(problem.irreducible_risk) > 0.101
    assert law.parameters.tolist() == [20]
    assert law.predicted == {"size": 0.5}


def test_a_tail_that_no_feature_tells_apart_is_not_lost():
    """A spectrum that nearly has no sum: what is beyond the last group is 8e-5 of the trace, 1% of the target."""
    a, b, size = 0.6, -0.05, 1000
    coordinates = dimfree.PowerLawFeatures(a, b).coordinates()
    assert coordinates.trace > 5e-5 * scipy.special.zeta(2 * a)
    eigenvalues, numbers, energies, missed = deterministic_equivalent(coordinates, size)
    np.testing.assert_allclose(numbers @ eigenvalues, scipy.special.zeta(2 * a), rtol=5e-6)
    np.testing.assert_allclose(energies.sum() + missed, scipy.special.zeta(2 * a + 2 * b), rtol=5e-6)


def test_what_drawn_features_miss_is_the_residual_of_the_best_of_them():
    features, key = dimfree.RandomFeatures(RANKS[:40] ** -1.5, RANKS[:40] ** -0.3, noise=0.2), jax.random.key(8)
    problem, start = features(12, key=key)
    scaled = RANKS[:40, None] ** -0.75 * np.asarray(jax.random.normal(key, (40, 12)))
    target = RANKS[:40] ** -1.05
    residual = target - scaled @ np.linalg.lstsq(scaled, target)[0]
    np.testing.assert_allclose(problem.noise, residual @ residual + 0.2, rtol=1e-9)
    eigenvalues = np.linalg.svd(scaled)[1] ** 2
    np.testing.assert_allclose(problem.inputs.eigenvalues, eigenvalues, rtol=1e-9)
    explained = np.sum(
        np.asarray(problem.inputs.eigenvalues) * np.asarray(start.overlaps["teachers", "teachers"]).ravel()
    )
    np.testing.assert_allclose(explained, target @ target - residual @ residual, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("a", "b"), [(1.0, 0.75), (0.8, 0.3), (1.5, 0.75), (0.8, 1.2), (1.2, 2.0)])
def test_exponents_of_the_frontier(a, b):
    """In the middle of phases; at (0.65, 0.8), near b = a, the size still has 0.520 for 0.5 at this compute."""
    features = dimfree.PowerLawFeatures(a, b)
    rate = 0.5 * (2 * a - 1) / (2 * a)
    law = dimfree.scaling_law(features, dimfree.OnlineSGD(rate), np.geomspace(300, 1e6, 15), 1e9)
    for name in ("compute", "size"):
        found = law.exponents[name]
        assert abs(found.value - features.predicted[name]) < 0.02
        assert found.low <= found.value <= found.high
        assert np.log10(found.window[1] / found.window[0]) > 2
    assert law.method == "exact mean of SGD"
    assert "least risk in compute" in repr(law)
    slopes = law.slopes()
    assert slopes.shape == law.risk.shape
    assert np.all(slopes[-1, -20:] < 0)


def test_the_risk_is_that_of_sgd_on_drawn_features():
    """SGD on vectors, in the basis of the coordinates: nothing is diagonalised. 200 runs, 4 standard errors."""
    size, ranks, rate, runs = 30, np.arange(1.0, 121.0), 0.3, 200
    features, key = dimfree.RandomFeatures(ranks**-2, ranks**-0.75, noise=0.01), jax.random.key(5)
    law = dimfree.scaling_law(lambda d: features(d, key=key), dimfree.OnlineSGD(rate), size, [1, 10, 100, 400])
    W = np.asarray(jax.random.normal(key, (120, size))) / size**0.5
    rng, theta = np.random.default_rng(0), np.zeros((runs, size))
    target, risks = ranks**-0.75, []
    for n in range(1, 401):
        z = rng.normal(size=(runs, 120)) / ranks
        x = z @ W
        slopes = np.sum(x * theta, axis=1) - z @ target - 0.1 * rng.normal(size=runs)
        theta = theta - rate * slopes[:, None] * x
        if n in (1, 10, 100, 400):
            missed = theta @ W.T - target
            risks.append(0.5 * (missed**2 @ ranks**-2))
    risks = np.array(risks)
    problem = features(size, key=key)[0]
    expected = law.risk[0] + float(problem.irreducible_risk) - 0.005  # without the noise of the labels
    assert np.all(np.abs(risks.mean(axis=1) - expected) < 4 * risks.std(axis=1) / np.sqrt(runs))


@pytest.mark.slow
@pytest.mark.parametrize(("a", "b"), [(0.8, 0.3), (1.0, 0.75), (1.5, 0.75), (0.8, 1.2), (1.2, 2.0), (0.65, 0.8)])
def test_the_mean_is_that_of_sgd_over_the_plane(a, b):
    """500 drawn features of 1500 coordinates, 128 runs on vectors in the basis of the coordinates.

    False alarm below 1e-3 a point: four numbers of samples, 4.5 standard errors, with the risk far from Gaussian where
    few eigenvalues carry the trace.
    """
    size, coordinates, runs, marks = 500, 1500, 128, [3, 30, 300, 1000]
    ranks = np.arange(1.0, coordinates + 1)
    variances, target, key = ranks ** (-2 * a), ranks**-b, jax.random.key(7)
    features, rate = dimfree.RandomFeatures(variances, target), 0.3 / variances.sum()
    law = dimfree.scaling_law(lambda d: features(d, key=key), dimfree.OnlineSGD(rate), size, marks)
    W = np.asarray(jax.random.normal(key, (coordinates, size))) / size**0.5
    rng, theta, risks = np.random.default_rng(1), np.zeros((runs, size)), []
    for n in range(1, marks[-1] + 1):
        z = rng.normal(size=(runs, coordinates)) * np.sqrt(variances)
        x = z @ W
        theta -= rate * (np.sum(x * theta, axis=1) - z @ target)[:, None] * x
        if n in marks:
            risks.append(0.5 * (theta @ W.T - target) ** 2 @ variances)
    risks = np.array(risks)
    expected = law.risk[0] + float(features(size, key=key)[0].irreducible_risk)
    assert np.all(np.abs(risks.mean(axis=1) - expected) < 4.5 * risks.std(axis=1, ddof=1) / np.sqrt(runs))


def test_features_of_data_are_those_of_their_covariance():
    """Principal components, the least-squares fit and its residuals, found here by other means."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(4_000, 6)) @ rng.normal(size=(6, 6)) + 5.0
    labels = rows @ rng.normal(size=6) + 0.3 * rng.normal(size=4_000) - 2.0
    found = dimfree.RandomFeatures.from_data(rows, labels)
    design = np.column_stack([rows, np.ones(4_000)])
    fit, squares = np.linalg.lstsq(design, labels)[:2]
    np.testing.assert_allclose(found.noise, squares[0] / 4_000, rtol=1e-9)
    np.testing.assert_allclose(found.variances, np.linalg.svd(np.cov(rows.T, bias=True))[1], rtol=1e-9)
    np.testing.assert_allclose(np.sum(found.target**2), np.sum(fit[:6] ** 2), rtol=1e-9)
    explained = np.var(labels) - found.noise
    np.testing.assert_allclose(found.variances @ found.target**2, explained, rtol=1e-9)
    for call, words in [
        (lambda: dimfree.RandomFeatures.from_data(rows, labels[1:]), "one finite number for each row"),
        (lambda: dimfree.RandomFeatures.from_data(rows[:5], labels[:5]), "Take more rows"),
        (lambda: dimfree.RandomFeatures.from_data(np.ones((5, 6)), labels[:5]), "Take more rows"),
        (lambda: dimfree.RandomFeatures.from_data(np.ones((9, 6)), labels[:9]), "are the same"),
        (lambda: dimfree.RandomFeatures.from_data(rows.tolist(), labels), "read several times"),
    ]:
        with pytest.raises(InvalidInput, match=words):
            call()


def test_a_network_by_its_ode():
    def family(width):
        problem = dimfree.TwoLayer(width, 1, "erf", noise=0.01)
        return problem, dimfree.State(Q=0.5 * np.eye(width), M=np.full((width, 1), 0.1))

    law = dimfree.scaling_law(family, lambda width: dimfree.OnlineSGD(0.5), [1, 2], [100, 1000, 5000], d=500)
    assert law.method == "ODE"
    assert law.parameters.tolist() == [500, 1000]
    problem, start = family(2)
    path = dimfree.solve(dimfree.ode(problem, dimfree.OnlineSGD(0.5)), start, [0.0, 10.0])
    np.testing.assert_allclose(law.risk[1, -1], path.risk[-1] - 0.005, rtol=1e-6)


def test_what_is_refused():
    features = dimfree.PowerLawFeatures(1.0, 0.75)
    sgd = dimfree.OnlineSGD(0.5)
    for call, words in [
        (lambda: dimfree.PowerLawFeatures(0.4, 1.0), "no sum"),
        (lambda: dimfree.PowerLawFeatures(1.0, -0.6), "infinite"),
        (lambda: dimfree.RandomFeatures([1.0, 0.0], [1.0, 1.0]), "positive"),
        (lambda: dimfree.RandomFeatures([1.0, 0.5], [1.0]), "as many"),
        (lambda: dimfree.RandomFeatures([1.0, 0.5], [1.0, 1.0])(2), "2 features of 2 coordinates"),
        (lambda: dimfree.RandomFeatures([1.0, 0.5], [1.0, 1.0])(2, key=jax.random.key(0)), "2 features of 2 coord"),
        (lambda: dimfree.scaling_law(3, sgd, 10, 100), "function of a size"),
        (lambda: dimfree.scaling_law(features, sgd, 100, 0.5), "at least 1"),
        (lambda: dimfree.scaling_law(features, dimfree.OnlineSGD(3.0), 100, 1e4), "smaller learning rate"),
    ]:
        with pytest.raises(InvalidInput, match=words):
            call()


def test_its_picture():
    features = dimfree.PowerLawFeatures(1.0, 0.75)
    law = dimfree.scaling_law(features, dimfree.OnlineSGD(0.25), np.geomspace(100, 3000, 5), 1e6)
    assert abs(law.exponents["compute"].value - features.predicted["compute"]) < 0.05  # three decades, small sizes
    assert np.all(np.diff(law.frontier["size"]) > 0)
    axes = dimfree.plot.scaling_law(law)
    assert len(axes.lines) == 7  # five sizes, the frontier, and its exponent
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), law.samples * law.parameters[0])
    assert "paquette2024" in dimfree.cite(features)


@pytest.mark.slow
def test_a_memory_that_grows_gains_an_exponent_in_the_samples():
    """SGD has -3/4 for a = 1, b = 1/4; a growing memory tends to twice that, and is at -1.31 by 10^8 samples."""
    family, samples = dimfree.PowerLawFeatures(1.0, 0.25), np.geomspace(1e6, 1e8, 41)
    plain = dimfree.scaling_law(family, dimfree.OnlineSGD(0.25), 1e6, samples).exponents["samples"]
    momentum = dimfree.Momentum(0.25, 0.25, lambda alpha: 4.0 / (1 + alpha))
    gained = dimfree.scaling_law(family, momentum, 1e6, samples).exponents["samples"]
    assert abs(plain.value + 0.75) < 0.02
    assert -1.5 < gained.value < -1.25
    assert gained.high < plain.low - 0.3
