"""The simulation without vectors has the law of SGD on the vectors, at every d."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats
from jax.extend.random import threefry_2x32

import cases
import dimfree
import dimfree.algorithms
from dimfree.gaussian.chi_square import chi_square
from dimfree.gaussian.random_numbers import Source, normals_and_chi_squares, run_keys

FALSE_ALARM = 1e-4  # for the whole table


def network(p: int, k: int, activation: str) -> dimfree.TwoLayer:
    return dimfree.TwoLayer(p, k, activation, noise=0.2)


def spread(p: int, k: int, activation: str, spectrum: dimfree.Spectrum) -> dimfree.TwoLayer:
    """A network on inputs with a spectrum."""
    return network(p, k, activation).with_inputs(spectrum)


STEEP = dimfree.Spectrum([4.0, 1.0, 0.1], [0.1, 0.3, 0.6])
POWER = dimfree.Spectrum(np.arange(1.0, 25.0) ** -1.2)
MANY = dimfree.Spectrum(np.geomspace(0.02, 5.0, 64))
TALL = dimfree.Spectrum([10.0, 0.1, 0.001])


@dataclasses.dataclass(frozen=True)
class LawCase:
    name: str
    d: int
    problem: dimfree.Problem
    sphere: bool = False
    trained: bool = False
    batch_size: int = 1
    rate: float = 0.3
    alpha: float = 2.0
    runs: int = 3000
    memory: Callable[..., dimfree.algorithms.OnlineAlgorithm] = dimfree.OnlineSGD


def momentum(rate, *options, **others) -> dimfree.Momentum:
    """Of order d, with about as much of it as of the gradient itself."""
    return dimfree.Momentum(rate, 2 * rate, 2.0, *options, **others)


def both(*options, **others) -> dimfree.Averaged:
    return dimfree.Averaged(momentum(*options, **others), 3.0)


def average(*options, **others) -> dimfree.WeightDecay:
    return dimfree.WeightDecay(dimfree.Averaged(dimfree.OnlineSGD(*options, **others), 3.0), 0.4)


def heavy_ball(rate, *options, **others) -> dimfree.HeavyBall:
    return dimfree.HeavyBall(rate / 2, 0.6, *options, **others)


def clipped(*options, **others) -> dimfree.Clipped:
    return dimfree.Clipped(momentum(*options, **others), 0.4)


def adaptive(*options, **others) -> dimfree.SharpnessAware:
    return dimfree.SharpnessAware(dimfree.AdaptiveClip(dimfree.OnlineSGD(*options, **others), 1.2, start=0.5), 0.5)


def twice(*options, **others) -> dimfree.Repeated:
    return dimfree.Repeated(dimfree.OnlineSGD(*options, **others), 0.5)


def moved(*options, **others) -> dimfree.NormalisedGradient:
    return dimfree.NormalisedGradient(dimfree.MovedGradient(dimfree.OnlineSGD(*options, **others), 0.7), 0.5)


def free(*options, **others) -> dimfree.ScheduleFree:
    return dimfree.ScheduleFree(dimfree.OnlineSGD(*options, **others), 0.8)


def ahead(rate, *options, **others) -> dimfree.Momentum:
    return dimfree.Momentum(rate, 2 * rate, 2.0, *options, lookahead=0.3, **others)


def adagrad(rate, *options, **others) -> dimfree.AdaGradNorm:
    return dimfree.AdaGradNorm(rate, 0.5, *options, **others)


XOR = dimfree.Mixture.xor(3, 2.0, readout=[1.0, -0.7, 0.4])
THREE = cases.three_classes(2, probabilities=[0.5, 0.3, 0.2], **cases.UNEQUAL)

READOUTS = [[1.0, 0.2], [-0.5, 0.6], [0.3, -0.8]], [[0.7], [-0.4], [0.5]]
OUTPUTS = dimfree.MultiOutput(*READOUTS, "erf")
CLASSES = dimfree.MultiOutput(*READOUTS, "tanh", "cross-entropy", "hard")
CORRELATED = [[1.0, 0.6, -0.2], [0.6, 1.0, 0.3], [-0.2, 0.3, 1.0]]
SWITCHED = dimfree.Tasks.switching(2, 0.6, 1.0, noise=0.2, heads=True)
TURNING = dimfree.Tasks.drifting(2, 1.5, noise=0.2)
HARDER = dimfree.Tasks.curriculum(2, 1.0, noise=[0.1, 0.5], variances=[0.5, 2.0])

TABLE = [
    LawCase("free", 20, network(2, 1, "square"), rate=0.35, alpha=3.0),
    LawCase("sphere", 20, network(2, 1, "square"), sphere=True, rate=0.3),
    LawCase("batch", 20, network(2, 2, "erf"), batch_size=8, rate=4.0, alpha=4.0),
    LawCase("more fields than dimensions", 9, network(7, 4, "erf"), rate=4.0, runs=1000),
    LawCase("momentum and average", 20, network(2, 1, "square"), rate=0.2, memory=both),
    LawCase("more vectors than dimensions", 9, network(3, 2, "erf"), rate=2.0, runs=1000, memory=both),
    LawCase("spectrum", 20, spread(2, 1, "square", STEEP), rate=0.2),
    LawCase("XOR mixture", 20, XOR, trained=True, rate=1.5),
    LawCase("spectrum, sphere", 20, spread(3, 1, "erf", STEEP), sphere=True, rate=4.0),
    LawCase("spectrum, batch", 40, spread(2, 2, "erf", STEEP), batch_size=5, rate=3.0, alpha=3.0, runs=2000),
    LawCase("spectrum, momentum", 40, spread(2, 1, "erf", STEEP), rate=2.0, runs=2000, memory=both),
    LawCase("power law of single dimensions", 24, spread(1, 1, "tanh", POWER), rate=1.0, runs=2000),
    LawCase("64 blocks", 128, spread(2, 1, "erf", MANY), batch_size=5, rate=2.0, runs=1000, alpha=1.0),
    LawCase("condition number 10^4", 30, spread(1, 1, "square", TALL), rate=0.02, runs=2000),
    LawCase("clusters with a spectrum", 40, XOR.with_inputs(STEEP), trained=True, batch_size=2, rate=1.5, runs=2000),
    LawCase(
        "momentum, batch", 100, network(2, 1, "erf"), batch_size=7, rate=4.0, alpha=3.0, runs=2000, memory=momentum
    ),
    LawCase("momentum on the sphere", 20, network(2, 1, "square"), sphere=True, rate=0.2, memory=momentum),
    LawCase("average, d = 300", 300, network(2, 2, "erf"), rate=3.0, runs=1500, alpha=1.0, memory=average),
    LawCase("both, batch, d = 300", 300, network(1, 1, "tanh"), batch_size=7, rate=2.0, runs=1500, memory=both),
    LawCase("momentum, XOR mixture", 20, XOR, trained=True, rate=1.0, memory=momentum),
    LawCase("both, few dimensions, batch", 6, network(2, 1, "erf"), batch_size=7, rate=2.0, alpha=7.0, memory=both),
    LawCase("both, spiked tensor", 20, dimfree.SpikedTensor(3, 2.0), rate=0.1, alpha=1.0, memory=both),
    LawCase("heavy ball", 20, network(2, 1, "square"), rate=0.3, memory=heavy_ball),
    LawCase("heavy ball, batch", 100, network(2, 1, "erf"), batch_size=7, rate=3.0, runs=2000, memory=heavy_ball),
    LawCase("clipped", 20, spread(2, 1, "erf", STEEP), batch_size=3, rate=2.0, runs=2000, memory=clipped),
    LawCase("adaptive clip, sharpness", 20, network(2, 1, "erf"), batch_size=2, rate=2.0, memory=adaptive),
    LawCase("two steps, sphere", 20, spread(2, 1, "erf", STEEP), sphere=True, rate=1.0, runs=2000, memory=twice),
    LawCase("moved, normalised", 20, network(2, 1, "erf"), batch_size=3, rate=1.0, runs=2000, memory=moved),
    LawCase("schedule free", 20, spread(2, 1, "square", STEEP), rate=0.2, runs=2000, memory=free),
    LawCase("lookahead", 20, network(2, 1, "erf"), sphere=True, rate=1.0, runs=2000, memory=ahead),
    LawCase("AdaGrad of the norm, XOR", 20, XOR, trained=True, rate=0.7, runs=2000, memory=adagrad),
    LawCase("spiked tensor of order 3", 20, dimfree.SpikedTensor(3, 2.0), rate=0.2, alpha=1.0),
    LawCase("trained readout", 20, network(3, 1, "erf"), trained=True, rate=3.0),
    LawCase("relu", 100, network(2, 2, "relu"), sphere=True, rate=1.0, runs=2000),
    LawCase("square, d = 300", 300, network(2, 1, "square"), sphere=True, rate=0.2, runs=1500, alpha=1.0),
    LawCase("more fields than dimensions, batch", 20, network(14, 8, "erf"), sphere=True, batch_size=8, rate=20.0),
    LawCase("batch larger than the dimensions left", 20, network(10, 5, "erf"), batch_size=8, rate=20.0, alpha=4.0),
    LawCase("tanh, trained, batch", 100, network(2, 1, "tanh"), trained=True, batch_size=8, rate=6.0, alpha=3.0),
    LawCase("he3", 100, network(1, 1, "he3"), sphere=True, rate=0.02),
    LawCase("erf, batch, d = 300", 300, network(3, 2, "erf"), batch_size=8, trained=True, rate=5.0, alpha=1.5),
    LawCase("three clusters, batch", 20, THREE, trained=True, batch_size=4, rate=3.0, alpha=4.0),
    LawCase("mixture in few dimensions", 4, XOR, trained=True, rate=0.5, alpha=5.0),
    LawCase("several outputs, sphere", 20, OUTPUTS, sphere=True, trained=True, rate=1.5, runs=2000),
    LawCase(
        "classes, spectrum, batch", 30, CLASSES.with_inputs(STEEP), trained=True, batch_size=3, rate=2.0, runs=2000
    ),
    LawCase("tasks in turn, heads", 20, SWITCHED, trained=True, rate=2.0, runs=2000),
    LawCase("tasks that drift", 20, TURNING, rate=2.0, runs=2000),
    LawCase("tasks that grow harder, batch", 20, HARDER, batch_size=2, rate=1.5, runs=2000),
    LawCase("spiked matrix, batch", 30, dimfree.SpikedTensor(2, 2.0), batch_size=4, rate=0.5, alpha=2.0),
    LawCase("sequences", 20, dimfree.SequenceIndex("softmax", CORRELATED, noise=0.2), batch_size=2, rate=1.5),
    LawCase("sequences, moved", 60, dimfree.SequenceIndex("softmax", 3), rate=1.5, runs=2000, memory=moved),
    LawCase("attention", 20, dimfree.Attention(4, rank=2), rate=6.0, runs=2000),
    LawCase("untied attention", 300, dimfree.Attention(CORRELATED, tied=False), sphere=True, rate=4.0, runs=1500),
    LawCase("pairs with a spectrum", 40, dimfree.ContrastivePair(0.5, 2).with_inputs(STEEP), rate=1.0, runs=2000),
    LawCase("patches", 20, dimfree.TwoLayer(2, 1, "erf", noise=0.2, tokens=CORRELATED), trained=True, rate=6.0),
    LawCase("more tokens than dimensions", 6, dimfree.Attention(5, rank=1), batch_size=2, rate=6.0, alpha=6.0),
    LawCase("spiked tensor of order 4, sphere", 30, dimfree.SpikedTensor(4, 1.0), sphere=True, rate=0.05, alpha=1.0),
]
QUICK = 7  # the first rows run always, the others in the slow suite


def two_samples(case: LawCase):
    """All entries of the State at three times, and exit times, by both methods."""
    problem = case.problem
    trained = 0.5 * case.rate if case.trained else None
    algorithm = case.memory(case.rate, batch_size=case.batch_size, sphere=case.sphere, ridge=0.1, readout_rate=trained)
    fields = problem.width + problem.teacher_width
    # In few dimensions overlaps are large; blocks need theirs.
    dimensions = min(case.d, fields + 2) if problem.inputs.blocks == 1 else case.d
    start = dimfree.random_state(problem, d=dimensions, key=jax.random.key(5))
    step = case.batch_size / case.d
    times = step * np.unique(np.linspace(1, round(case.alpha / step), 60).astype(int))
    coordinates = algorithm.coordinates(problem)
    shown = [len(times) // 4, len(times) // 2, len(times) - 1]
    columns = []
    for method, seed in (("exact", 1), ("vectors", 2)):
        runs = dimfree.simulate(
            problem, algorithm, start, case.d, times, runs=case.runs, key=jax.random.key(seed), method=method
        )
        entries = np.asarray(coordinates.pack(runs.state))[:, shown].reshape(case.runs, -1)
        out = np.abs(np.asarray(runs.state.M[:, :, 0, 0]) - float(start.M[0, 0])) > 0.05
        exits = np.where(out.any(axis=1), out.argmax(axis=1), len(times))
        columns.append(np.column_stack([entries, exits]))
    labels = [f"{label} at alpha {times[index]:g}" for index in shown for label in coordinates.labels]
    return [*labels, "exit of M[0,0] from its start by 0.05"], *columns


def smallest_p_value(case: LawCase) -> tuple[float, str, int]:
    labels, exact, vectors = two_samples(case)
    # Rounding: with more fields than dimensions entries agree to about 1e-12 only, and ties must stay ties.
    p_values = [
        scipy.stats.ks_2samp(np.round(exact[:, i], 9), np.round(vectors[:, i], 9), method="asymp").pvalue
        for i in range(len(labels))
    ]
    worst = int(np.argmin(p_values))
    return p_values[worst], labels[worst], len(labels)


@pytest.mark.parametrize(
    "case",
    [*TABLE[:QUICK], *(pytest.param(case, marks=pytest.mark.slow) for case in TABLE[QUICK:])],
    ids=lambda case: case.name,
)
def test_same_law_as_with_vectors(case):
    p_value, label, number = smallest_p_value(case)
    # Bonferroni over the entries of this case and over the cases of the table.
    assert p_value > FALSE_ALARM / (number * len(TABLE)), (label, p_value)


SMALL = LawCase("small d", 6, network(1, 1, "square"), rate=0.3, alpha=3.0, runs=8001)


def test_an_input_norm_that_does_not_fluctuate_is_told_apart(monkeypatch):
    """The test has the power to see what it is for."""
    from dimfree.simulation import exact

    def constant(source, number, degrees):
        normals, squares = normals_and_chi_squares(source, number, degrees)
        return normals, jnp.broadcast_to(degrees[:, None, None], squares.shape)

    monkeypatch.setattr(exact, "normals_and_chi_squares", constant)
    # Another number of runs, so that nothing compiled with the true law is used.
    p_value, _, number = smallest_p_value(dataclasses.replace(SMALL, runs=SMALL.runs + 1))
    assert p_value < FALSE_ALARM / (number * len(TABLE))


def test_small_dimension_has_the_true_law():
    p_value, label, number = smallest_p_value(SMALL)
    assert p_value > FALSE_ALARM / number, (label, p_value)


@pytest.mark.parametrize("method", ["exact", "vectors"])
def test_a_steep_schedule_is_that_of_a_loop_by_hand(method):
    """SGD in d = 10, whose rate halves at each step, written apart; Kolmogorov-Smirnov, false alarm 1e-4.

    A rate that is a step late is half as large.
    """
    d, batch, runs, steps = 10, 2, 4000, 6
    rng = np.random.default_rng(0)
    teacher = np.sqrt(d) * np.eye(d)[0]
    weights = np.tile(np.sqrt(d) * (0.6 * np.eye(d)[0] + 0.8 * np.eye(d)[1]), (runs, 1))
    for step in range(steps):
        inputs = rng.normal(size=(runs, batch, d))
        student, target = np.einsum("rbd,rd->rb", inputs, weights) / np.sqrt(d), inputs @ teacher / np.sqrt(d)
        slopes = 2 * student * (student**2 - target**2 - np.sqrt(0.2) * rng.normal(size=(runs, batch)))
        weights = weights - 0.08 * 0.5**step * np.einsum("rb,rbd->rd", slopes, inputs) / (batch * np.sqrt(d))
    problem, start = network(1, 1, "square"), dimfree.State(Q=[[1.0]], M=[[0.6]])
    algorithm = dimfree.OnlineSGD(lambda alpha: 0.08 * 0.5 ** (alpha * d / batch), batch)
    end = np.array([0.0, steps * batch / d])
    final = dimfree.simulate(problem, algorithm, start, d, end, runs=runs, key=jax.random.key(0), method=method).final
    for direct, ours in ((weights @ teacher / d, final.M), (np.sum(weights**2, axis=1) / d, final.Q)):
        assert scipy.stats.ks_2samp(direct, np.asarray(ours)[:, 0, 0]).pvalue > 1e-4 / 2


def source_of(steps: int, runs: int) -> Source:
    keys = run_keys(jax.random.split(jax.random.key(3), runs))
    return Source(keys, jnp.arange(steps)[:, None] + jnp.zeros(runs, int))


@functools.cache
def numbers_drawn():
    """Three normals of each of 512 steps of 128 runs, and chi-square variables of DEGREES."""
    drawn = jax.jit(normals_and_chi_squares, static_argnums=1)(source_of(512, 128), 3, jnp.asarray(DEGREES))
    return tuple(map(np.asarray, drawn))


DEGREES = (0.0, 1.0, 2.0, 3.0, 7.0, 20.0, 999.0, 1e9)


def test_fast_normals_have_their_law():
    """Kolmogorov-Smirnov for each of three, moments up to the fourth and correlations: 15 tests, false alarm 1e-4."""
    rows = numbers_drawn()[0].reshape(3, -1)
    number = rows.shape[1]
    p_values = [scipy.stats.kstest(row, "norm").pvalue for row in rows]
    for power, variance in ((1, 1.0), (2, 2.0), (3, 15.0), (4, 96.0)):
        mean = 0.0 if power % 2 else scipy.special.factorial2(power - 1)
        z = (np.mean(rows**power, axis=1) - mean) / np.sqrt(variance / number)
        p_values += list(2 * scipy.stats.norm.sf(np.abs(z)))
    assert min(p_values) > 1e-4 / len(p_values), p_values
    # Between numbers of a step, steps, and runs: no correlation of the numbers or of their squares.
    cube = numbers_drawn()[0]
    pairs = [(cube[0], cube[1]), (cube[0], cube[2]), (cube[0, 1:], cube[0, :-1]), (cube[0, :, 1:], cube[0, :, :-1])]
    for one, other in pairs:
        for f in (lambda x: x, lambda x: (x**2 - 1) / 2**0.5):
            z = np.mean(f(one) * f(other)) * one.size**0.5
            assert 2 * scipy.stats.norm.sf(abs(z)) > 1e-4 / 8


@pytest.mark.parametrize("place", range(len(DEGREES)))
def test_fast_chi_squares_have_their_law(place):
    """Kolmogorov-Smirnov, false alarm 1e-5 each: an acceptance that is always certain fails at 2 and 3 degrees."""
    sample = numbers_drawn()[1][place].ravel()
    if DEGREES[place] == 0:
        assert np.all(sample == 0)
    else:
        assert scipy.stats.kstest(sample, "chi2", args=(DEGREES[place],)).pvalue > 1e-5


def test_fast_numbers_depend_on_run_and_step_only():
    """The same numbers to rounding (of another width of registers), however many runs and steps are drawn together."""
    all_of_it = jax.jit(normals_and_chi_squares, static_argnums=1)(source_of(64, 12), 3, jnp.asarray(DEGREES))
    keys = run_keys(jax.random.split(jax.random.key(3), 12))
    part = Source(tuple(word[5:6] for word in keys), jnp.arange(37, 50)[:, None])
    alone = jax.jit(normals_and_chi_squares, static_argnums=1)(part, 3, jnp.asarray(DEGREES))
    for whole, one in zip(all_of_it, alone, strict=True):
        np.testing.assert_allclose(whole[:, 37:50, 5:6], one, rtol=1e-13)


def test_words_are_those_of_threefry():
    """JAX's own generator, at the same counters under the same key."""
    key = jnp.asarray([7, 11], jnp.uint32)
    source = Source((key[0], key[1]), jnp.asarray(5))
    first, second = threefry_2x32(key, jnp.asarray([5, 9], jnp.uint32))
    assert int(source.words(jnp.asarray(9))) == (int(first) << 32) + int(second)


@pytest.mark.parametrize("degrees", [1.0, 2.0, 3.0, 7.0, 999.0, 1e9])
def test_chi_square_law(degrees):
    sample = np.asarray(jax.jit(chi_square)(jax.random.key(0), jnp.full(40_000, degrees)))
    assert scipy.stats.kstest(sample, "chi2", args=(degrees,)).pvalue > 1e-5


def test_chi_square_without_degrees_is_zero():
    sample = chi_square(jax.random.key(0), jnp.array([0.0, 3.0, 0.0]))
    assert sample[0] == sample[2] == 0.0
    assert sample[1] > 0


@pytest.mark.parametrize("d", [4, 6, 30])
def test_inputs_of_a_batch_overlap_as_random_vectors_outside_the_weights_do(d):
    """Six overlaps of three inputs, Kolmogorov-Smirnov; false alarm 1e-4. One dimension is left at d = 4."""
    from dimfree.simulation import exact

    fields, batch, number = 3, 3, 20_000
    problem, algorithm, dimension = network(2, 1, "erf"), dimfree.OnlineSGD(0.1, batch), jnp.asarray(1.0 * d)
    numbers = exact.draw(source_of(number, 1), problem, algorithm, dimension)

    def of_step(step):
        return exact.draws_of(problem, algorithm, jax.tree.map(lambda leaf: leaf[..., 0], step), dimension).triangle

    triangle = np.asarray(jax.vmap(of_step, in_axes=1)(numbers))
    drawn = triangle[:, 0] @ triangle[:, 0].transpose(0, 2, 1)
    inputs = np.random.default_rng(0).normal(size=(number, batch, d - fields))
    direct = inputs @ inputs.transpose(0, 2, 1)
    for b, c in zip(*np.triu_indices(batch), strict=True):
        assert scipy.stats.ks_2samp(drawn[:, b, c], direct[:, b, c]).pvalue > 1e-4 / 6, (b, c)


def test_random_state_has_the_law_of_random_vectors():
    problem, d = dimfree.TwoLayer(3, 2, "erf"), 6
    keys = jax.random.split(jax.random.key(0), 4000)
    drawn = jax.vmap(lambda key: dimfree.random_state(problem, d, key=key).covariance)(keys)
    weights = np.random.default_rng(0).normal(size=(4000, 5, d))
    weights[:, 3], weights[:, 4] = np.eye(d)[0], np.eye(d)[1]
    weights /= np.linalg.norm(weights, axis=-1, keepdims=True)
    direct = weights @ weights.transpose(0, 2, 1)
    for i, j in ((0, 1), (0, 2), (1, 2), (0, 3), (2, 4)):
        assert scipy.stats.ks_2samp(np.asarray(drawn[:, i, j]), direct[:, i, j]).pvalue > 1e-5
    product = np.asarray(drawn[:, 0, 1] * drawn[:, 1, 2] * drawn[:, 0, 2])
    assert scipy.stats.ks_2samp(product, direct[:, 0, 1] * direct[:, 1, 2] * direct[:, 0, 2]).pvalue > 1e-5
