"""Algorithms that change the gradient before they use it, against loops in NumPy and against their limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf

import dimfree
from dimfree import AdaptiveClip, Averaged, InvalidInput, Momentum, OnlineSGD, Spectrum
from dimfree.problems import Draws
from dimfree.simulation.vectors import advance

THREE = Spectrum([4.0, 1.0, 0.5], [0.2, 0.3, 0.5])
POWER_LAW = Spectrum.power_law(0.8, 100, 8).normalised()


def ln_cosh(student, teacher, noise, readout):
    return jnp.log(jnp.cosh(student[0] - teacher[0] - 0.5 * noise))


PROBLEMS = {
    "erf": dimfree.TwoLayer(2, 1, "erf", noise=0.1),
    "own loss": dimfree.LocalFields(ln_cosh, 1, 1),
}


def gradient_of(x, noise, teacher):
    """The mean gradient of a batch of the erf network as a function of the weights, its slopes beside, in NumPy."""
    d = x.shape[1]

    def slopes(weights):
        fields, target = x @ weights.T / np.sqrt(d), x @ teacher / np.sqrt(d)
        error = erf(fields / np.sqrt(2)).mean(axis=1) - erf(target / np.sqrt(2)) - np.sqrt(0.1) * noise
        return error[:, None] * np.sqrt(2 / np.pi) * np.exp(-(fields**2) / 2) / len(weights)

    def gradient(weights, largest=np.inf):
        return np.clip(slopes(weights), -largest, largest).T @ x / (len(x) * np.sqrt(d))

    return gradient


RATE, RIDGE = 1.0, 0.3


# Each with the weights, what it remembers and measures, the gradient and the step's number over d.


def decayed(weights):
    return (1 - RATE * RIDGE / weights.shape[1]) * weights


def clipped(weights, memory, gradient, alpha):
    g = gradient(weights)
    return decayed(weights) - RATE * g * min(1, 0.25 / (1 + alpha) / np.linalg.norm(g)), memory


def clipped_slopes(weights, memory, gradient, alpha):
    return decayed(weights) - RATE * gradient(weights, largest=0.2), memory


def normalised(weights, memory, gradient, alpha):
    g = gradient(weights)
    return decayed(weights) - 0.3 * RATE * g / np.linalg.norm(g), memory


def adaptively_clipped(weights, memory, gradient, alpha):
    n, g = memory.get("n", 0.09), gradient(weights)
    g = g * min(1, 1.2 * np.sqrt(n) / np.linalg.norm(g))
    return decayed(weights) - RATE * g, {"n": n + 3 / weights.shape[1] * (np.sum(g**2) - n)}


def moved(weights, memory, gradient, alpha):
    return decayed(weights) - RATE * gradient(weights - 0.8 * gradient(weights)), memory


def sharpness_aware(weights, memory, gradient, alpha):
    g = gradient(weights)
    return decayed(weights) - RATE * gradient(weights + 0.7 * g / np.linalg.norm(g)), memory


def repeated(weights, memory, gradient, alpha):
    between = weights - 0.6 * gradient(weights)
    return between - RATE * gradient(between) - (0.6 + RATE) * RIDGE / weights.shape[1] * weights, memory


def adagrad(weights, memory, gradient, alpha):
    n, g = memory.get("n", 0.25), gradient(weights)
    n = n + np.sum(g**2) / weights.shape[1]
    return weights - RATE / np.sqrt(n) * (g + RIDGE * weights / weights.shape[1]), {"n": n}


def rms(weights, memory, gradient, alpha):
    n, g = memory.get("n", 0.25), gradient(weights)
    n = n + 3 / weights.shape[1] * (np.sum(g**2) - n)
    return weights - RATE / np.sqrt(n) * (g + RIDGE * weights / weights.shape[1]), {"n": n}


def looking_ahead(weights, memory, gradient, alpha):
    v, d = memory.get("v", np.zeros_like(weights)), weights.shape[1]
    g = gradient(weights - 0.7 * v)
    w = weights - RATE * (g + RIDGE * weights / d) - 0.8 / d * v
    return w, {"v": (1 - 2 / (1 + alpha) / d) * v + g + RIDGE * weights / d}


def two_momenta(weights, memory, gradient, alpha):
    d = weights.shape[1]
    v, u = (memory.get(name, np.zeros_like(weights)) for name in "vu")
    g = gradient(weights) + RIDGE * weights / d
    return weights - RATE * g - (0.8 * v + 0.3 * u) / d, {"v": (1 - 2 / d) * v + g, "u": (1 - 0.5 / d) * u + g}


def heavy_ball(weights, memory, gradient, alpha):
    v = memory.get("v", np.zeros_like(weights))
    v = 0.6 * v + gradient(weights) + RIDGE * weights / weights.shape[1]
    return weights - 0.5 * v, {"v": v}


def nesterov(weights, memory, gradient, alpha):
    v = memory.get("v", np.zeros_like(weights))
    g = gradient(weights) + RIDGE * weights / weights.shape[1]
    v = 0.6 * v + g
    return weights - 0.5 * (g + 0.6 * v), {"v": v}


def schedule_free(weights, memory, gradient, alpha):
    a, d = memory.get("a", weights), weights.shape[1]
    after = decayed(weights) - RATE * gradient(0.2 * weights + 0.8 * a)
    return after, {"a": a + (weights - a) / (1 + alpha) / d}


def beside(kind, *arguments, **named):
    return lambda batch: getattr(dimfree, kind)(OnlineSGD(RATE, batch_size=batch, ridge=RIDGE), *arguments, **named)


def itself(kind, *arguments, **named):
    return lambda batch: getattr(dimfree, kind)(*arguments, batch_size=batch, ridge=RIDGE, **named)


CASES = {
    "clipped": (clipped, beside("Clipped", lambda alpha: 0.25 / (1 + alpha))),
    "clipped slopes": (clipped_slopes, beside("ClippedSlopes", 0.2)),
    "normalised": (normalised, beside("NormalisedGradient", 0.3)),
    "adaptive clip": (adaptively_clipped, beside("AdaptiveClip", 1.2, 3.0, start=0.3)),
    "moved": (moved, beside("MovedGradient", 0.8)),
    "sharpness aware": (sharpness_aware, beside("SharpnessAware", 0.7)),
    "repeated": (repeated, beside("Repeated", 0.6)),
    "AdaGrad of the norm": (adagrad, itself("AdaGradNorm", RATE, 0.5)),
    "running norm": (rms, itself("RMSNorm", RATE, 3.0, 0.5)),
    "lookahead": (looking_ahead, itself("Momentum", RATE, 0.8, lambda alpha: 2 / (1 + alpha), lookahead=0.7)),
    "two momenta": (two_momenta, itself("Momentum", RATE, [0.8, 0.3], [2.0, 0.5])),
    "heavy ball": (heavy_ball, itself("HeavyBall", 0.5, 0.6)),
    "Nesterov": (nesterov, itself("HeavyBall", 0.5, 0.6, nesterov=True)),
    "schedule free": (schedule_free, beside("ScheduleFree", 0.8)),
}


@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_a_loop_in_numpy(name):
    """Five steps on the same batches of three inputs with a spectrum: the same numbers."""
    loop, make = CASES[name]
    rng, d, batch, algorithm = np.random.default_rng(4), 30, 3, make(3)
    problem = PROBLEMS["erf"].with_inputs(THREE)
    scales = np.sqrt(np.repeat(np.asarray(THREE.eigenvalues), np.asarray(THREE.sizes(d)).astype(int)))
    weights, teacher = rng.normal(size=(2, d)), rng.normal(size=(1, d))
    families = {"students": jnp.asarray(weights), "teachers": jnp.asarray(teacher)}
    families |= {
        each: jnp.zeros((2, d)) if like is None else jnp.asarray(weights) for each, like in algorithm.own.items()
    }
    moving, memory = (families, None, algorithm.measured(3, 2)), {}
    for step in range(5):
        normals, noise = rng.normal(size=(batch, d)), rng.normal(size=batch)
        draws = Draws(jnp.asarray(normals), jnp.asarray(noise), jnp.zeros(batch))
        moving, _ = advance(problem, algorithm, *moving, draws, jnp.asarray(step * batch / d))
        gradient = gradient_of(scales * normals, noise, teacher[0])
        weights, memory = loop(weights, memory, gradient, step * batch / d)
    np.testing.assert_allclose(moving[0]["students"], weights, rtol=0, atol=1e-12)
    found = {"n": moving[2].get("gradient_square"), "a": moving[0].get("average"), "v": moving[0].get("momentum")}
    for each, numbers in memory.items():
        np.testing.assert_allclose((found | {"u": moving[0].get("momentum_2")})[each], numbers, rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_runs_are_those_of_a_loop_in_numpy(name, batch):
    """200 runs in d = 60 from one start, on inputs with a spectrum: all entries in all blocks."""
    loop, make = CASES[name]
    rng, d, steps, runs = np.random.default_rng(4), 60, 60, 200
    sizes = np.asarray(THREE.sizes(d)).astype(int)
    scales, edges = np.sqrt(np.repeat(np.asarray(THREE.eigenvalues), sizes)), np.cumsum(sizes)[:-1]
    start, teacher = rng.normal(size=(2, d)), rng.normal(size=(1, d))
    start[0] += teacher[0]

    def blocks(a, b):
        return np.stack([x @ y.T for x, y in zip(np.split(a, edges, 1), np.split(b, edges, 1), strict=True)]) / d

    found = []
    for _ in range(runs):
        weights, memory = start, {}
        for step in range(steps):
            x, noise = scales * rng.normal(size=(batch, d)), rng.normal(size=batch)
            weights, memory = loop(weights, memory, gradient_of(x, noise, teacher[0]), step * batch / d)
        measured = [memory["n"]] if "n" in memory else []
        average = blocks(memory["a"], teacher).ravel() if "a" in memory else []
        found.append([*blocks(weights, weights).ravel(), *blocks(weights, teacher).ravel(), *average, *measured])
    pairs = {("students", "students"): blocks(start, start), ("students", "teachers"): blocks(start, teacher)}
    pairs[("teachers", "teachers")] = blocks(teacher, teacher)
    begin = dimfree.State.of(jax.tree.map(jnp.asarray, pairs), None)
    problem = PROBLEMS["erf"].with_inputs(THREE)
    times = [0.0, steps * batch / d]
    end = dimfree.simulate(problem, make(batch), begin, d, times, runs=1000, key=jax.random.key(0)).final
    pairs = [("students", "students"), ("students", "teachers")] + [("average", "teachers")] * (
        "average" in end.families
    )
    ours = [np.asarray(end.blocks_of(*pair)).reshape(1000, -1) for pair in pairs]
    ours = np.concatenate([*ours, *(np.asarray(each)[:, None] for each in end.numbers.values())], axis=1)
    error = np.hypot(np.std(found, axis=0) / np.sqrt(runs), ours.std(axis=0) / np.sqrt(1000))
    # 18 entries or more, four standard errors each: a false alarm in 900.
    assert np.all(np.abs(np.mean(found, axis=0) - ours.mean(axis=0)) < 4 * error + 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("problem", "spectrum", "batch"),
    # Each two of the three settings meet in all ways.
    [("erf", None, 1), ("erf", POWER_LAW, 8), ("own loss", None, 8), ("own loss", POWER_LAW, 1)],
    ids=["erf, isotropic, 1", "erf, power law, 8", "own loss, isotropic, 8", "own loss, power law, 1"],
)
@pytest.mark.parametrize("name", CASES)
def test_runs_approach_the_limit(name, problem, spectrum, batch):
    stated = PROBLEMS[problem] if spectrum is None else PROBLEMS[problem].with_inputs(spectrum)
    result = dimfree.check(stated, CASES[name][1](batch), dimensions=(400, 1600, 6400), runs=48, alpha=0.5 * batch**0.5)
    assert result.agrees, str(result)


@pytest.mark.parametrize(
    ("problem", "algorithm"),
    [
        ("own loss", dimfree.Clipped(Averaged(Momentum(0.5, 0.3, 1.0, batch_size=8), 1.0), 0.2)),
        pytest.param(
            "own loss",
            dimfree.ScheduleFree(AdaptiveClip(OnlineSGD(1.0), 1.2, start=0.3), 0.8),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["clipped batches, momentum, average", "schedule free, adaptive clip"],
)
def test_limits_of_algorithms_put_together(problem, algorithm):
    result = dimfree.check(PROBLEMS[problem].with_inputs(THREE), algorithm, dimensions=(400, 6400), runs=32, alpha=1.0)
    assert result.agrees, str(result)


def test_vectors_have_the_law_of_overlaps():
    """Point, measured norm and schedules, where vectors move: means of 400 runs within four standard errors."""
    algorithm = dimfree.ScheduleFree(AdaptiveClip(OnlineSGD(lambda alpha: 1 / (1 + alpha)), 1.2, start=0.3), 0.8)
    problem, start = PROBLEMS["erf"].with_inputs(THREE), dimfree.State(Q=[[1.0, 0.2], [0.2, 1.0]], M=[[0.5], [0.1]])
    exact, vectors = (
        dimfree.simulate(problem, algorithm, start, 40, [0.0, 1.5], runs=400, key=jax.random.key(3), method=method)
        for method in ("exact", "vectors")
    )
    for one, other in zip(jax.tree.leaves(exact.final), jax.tree.leaves(vectors.final), strict=True):
        one, other = (np.asarray(each).reshape(400, -1) for each in (one, other))
        error = np.hypot(one.std(axis=0), other.std(axis=0)) / 20
        assert np.all(np.abs(one.mean(axis=0) - other.mean(axis=0)) < 4 * error + 1e-12)


def test_the_stiff_solver_takes_a_gradient_at_any_point():
    """Frozen averages against the explicit solver, with eigenvalues over three decades."""
    problem = dimfree.TwoLayer(1, 1, "linear").with_inputs(Spectrum([30.0, 1.0, 0.03], [0.02, 0.3, 0.68]))
    start, limit = dimfree.State(Q=[[1.0]], M=[[0.3]]), dimfree.ode(problem, dimfree.ScheduleFree(OnlineSGD(0.2), 0.8))
    # Beyond a length the solver is the one for stiff limits.
    stiff, explicit = (dimfree.solve(limit, start, [0.0, 5.0, until]) for until in (1e4, 10.0))
    assert "frozen averages" in dict(stiff.provenance)["solver"]
    assert "frozen averages" not in dict(explicit.provenance)["solver"]
    for one, other in zip(jax.tree.leaves(stiff.state), jax.tree.leaves(explicit.state), strict=True):
        np.testing.assert_allclose(one[1], other[1], rtol=1e-5, atol=1e-7)


def test_the_risk_of_an_average_on_a_spectrum():
    """Overlaps of the average in each block: at an eigenvalue of zero nothing moves, and the risk there is none."""
    problem = dimfree.TwoLayer(1, 1, "linear").with_inputs(Spectrum([4.0, 0.01], [0.2, 0.8]))
    path = dimfree.solve(
        dimfree.ode(problem, Averaged(OnlineSGD(0.2), 5.0)), dimfree.State(Q=[[1.0]], M=[[0.0]]), [0.0, 20.0]
    )
    average = path.final.at("average")
    distance = (
        average.blocks_of("students", "students")
        - 2 * average.blocks_of("students", "teachers")
        + average.blocks_of("teachers", "teachers")
    )[:, 0, 0]
    np.testing.assert_allclose(problem.risk(average), jnp.asarray([4.0, 0.01]) @ distance / 2, rtol=1e-12)
    assert float(problem.risk(average)) < 0.05


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: dimfree.linear_noise(PROBLEMS["erf"], dimfree.Clipped(OnlineSGD(0.1, 2), 1.0), 100), "batch_size=1"),
        (lambda: dimfree.ode(dimfree.Mixture.xor(4, 1.0), dimfree.Clipped(OnlineSGD(0.1, 2), 1.0)), "batch_size=1"),
        (lambda: dimfree.ode(PROBLEMS["erf"], dimfree.Clipped(OnlineSGD(0.1, 2), 1.0), dimfree.GaussHermite(5)).drift(
            0.0, dimfree.State(Q=np.eye(2), M=[[0.1], [0.2]])), "Sobol"),
        (lambda: dimfree.Clipped(OnlineSGD(0.1), -1.0), "norm"),
        (lambda: dimfree.Clipped(OnlineSGD(0.1), lambda alpha: 0.0 * alpha), "norm"),
        (lambda: AdaptiveClip(OnlineSGD(0.1), 0.9), "factor"),
        (lambda: dimfree.ScheduleFree(OnlineSGD(0.1), 1.0), "interpolation"),
        (lambda: Momentum(0.1, [0.1, 0.2], [1.0]), "as many"),
        (lambda: Momentum(0.1, [0.1, 0.2], [1.0, 2.0], lookahead=0.1), "one momentum"),
        (lambda: dimfree.HeavyBall(0.1, lambda alpha: 1.0 + alpha), "less than 1"),
        (lambda: dimfree.Repeated(Momentum(0.1, 0.1, 1.0)), "plain one-pass SGD"),
        (lambda: dimfree.equations(PROBLEMS["erf"], dimfree.ScheduleFree(OnlineSGD(0.1))), "gradients at the weights"),
        (lambda: dimfree.equations(PROBLEMS["erf"], dimfree.AdaGradNorm(0.1)), "measures"),
        (lambda: dimfree.exact_mean(dimfree.TwoLayer(1, 1, "linear"), dimfree.AdaGradNorm(0.1),
                                    dimfree.State(Q=[[1.0]], M=[[0.1]]), 10, 1.0), "linearly"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused_in_words(make, words):
    with pytest.raises(InvalidInput, match=words):
        make()
