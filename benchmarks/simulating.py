"""One-pass SGD at finite d: exact in law and on vectors, against loops by hand; exit times."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import dimfree
from dimfree.analysis.exit_times import exit_level, random_starts
from dimfree.gaussian.random_numbers import Source, normals_and_chi_squares, run_keys
from dimfree.problems.inputs import StandardInputs
from dimfree.simulation.vectors import embed

from .timing import Row, Times, against, compared, growth

RATE = 0.05
START = dimfree.State(Q=jnp.eye(2), M=jnp.full((2, 1), 0.2))


def simulation(d: int, steps: int, runs: int, method="exact", p: int = 2, k: int = 1, activation="square", **options):
    """A call of `simulate` for phase retrieval, or for more teachers or another activation."""
    problem = dimfree.TwoLayer(p, k, activation)
    start = dimfree.State(Q=jnp.eye(p), M=jnp.full((p, k), 0.2 / k))
    algorithm, times = dimfree.OnlineSGD(RATE, **options), np.array([0.0, steps / d])
    key = jax.random.key(0)
    return lambda: dimfree.simulate(problem, algorithm, start, d, times, runs=runs, key=key, method=method).state.Q


def chain(matrices, rate, d, library, fields, rest):
    """One step of phase retrieval on its overlaps C of students and teacher, by hand; `rest` is a chi-square."""
    inside = (fields[..., None, :] @ library.linalg.inv(matrices) @ fields[..., :, None])[..., 0, 0]
    student, teacher = fields[..., :2], fields[..., 2:]
    slopes = ((student**2).mean(-1, keepdims=True) - teacher**2) * student
    slopes = library.concatenate([slopes, library.zeros_like(teacher)], -1)
    outer = slopes[..., :, None] * fields[..., None, :]
    square = slopes[..., :, None] * slopes[..., None, :] * (inside + rest)[..., None, None]
    return matrices - rate / d * (outer + library.swapaxes(outer, -1, -2)) + (rate / d) ** 2 * square


OVERLAPS = np.block([[np.eye(2), np.full((2, 1), 0.2)], [np.full((1, 2), 0.2), np.eye(1)]])


def exact_against_scan() -> Row:
    """Exact simulation, 64 runs, over a jitted scan of its Markov chain, written by hand for this one problem."""
    d, steps, runs = 1000, 5_000, 64

    @jax.jit
    def by_hand(key):
        def step(matrices, key):
            normals, rest = jax.random.split(key)
            factor = jnp.linalg.cholesky(matrices)
            fields = (factor @ jax.random.normal(normals, (runs, 3, 1)))[..., 0]
            return chain(matrices, RATE, d, jnp, fields, jax.random.chisquare(rest, d - 3.0, (runs,))), None

        starts = jnp.broadcast_to(jnp.asarray(OVERLAPS), (runs, 3, 3))
        return jax.lax.scan(step, starts, jax.random.split(key, steps))[0]

    key = jax.random.key(0)
    return against(simulation(d, steps, runs), lambda: by_hand(key), goal=1.05)


def narrow_chain(runs: int, steps: int, *, numbers_alone: bool = False):
    """A call that simulates p = k = 1 exactly, by hand in its best form, or draws the random numbers of it alone.

    Runs lie along the last axis, at most 128 at a time; the numbers are those of the library, which are several times
    cheaper than JAX's. It saves nothing, and asks no run whether it has diverged.
    """
    d, lanes, block = 1000.0, min(runs, 128), min(2048, 2**16 // (4 * min(runs, 128)))
    blocks = -(-steps // block)

    def step(overlaps, numbers):
        q, m = overlaps
        teacher, other, rest = numbers
        student = m * teacher + jnp.sqrt(jnp.maximum(q - m * m, 0.0)) * other
        slope = 2 * (student**2 - teacher**2) * student
        length = (teacher**2 + other**2 + rest) / d
        return (
            q - 2 * RATE / d * slope * student + RATE**2 / d * slope**2 * length,
            m - RATE / d * slope * teacher,
        ), None

    def of_group(key):
        def of_block(number, overlaps):
            source = Source(key, number * block + jnp.arange(block)[:, None])
            normals, squares = normals_and_chi_squares(source, 2, jnp.array([d - 2]))
            if numbers_alone:
                return overlaps[0] + normals[0, 0] + squares[0, 0], overlaps[1] + normals[1, 0]
            return jax.lax.scan(step, overlaps, (normals[0], normals[1], squares[0]))[0]

        return jax.lax.fori_loop(0, blocks, of_block, (jnp.ones(lanes), jnp.full(lanes, 0.2)))

    key = tuple(word.reshape(-1, lanes) for word in run_keys(jax.random.split(jax.random.key(0), runs)))
    compiled = jax.jit(lambda key: jax.lax.map(of_group, key))
    return lambda: compiled(key)


def narrow(runs: int, steps: int, **options) -> Row:
    """`simulate` of p = k = 1 over the chain by hand; as long as its fixed costs are not seen."""
    problem, algorithm, start = dimfree.PhaseRetrieval(1), dimfree.OnlineSGD(RATE), dimfree.State(Q=[[1.0]], M=[[0.2]])
    times, key = np.array([0.0, steps / 1000]), jax.random.key(0)
    return against(
        lambda: dimfree.simulate(problem, algorithm, start, 1000, times, runs=runs, key=key).state.Q,
        narrow_chain(runs, steps, **options),
        goal=2.0 if options else {1: 1.67}.get(runs, 1.25),
    )


def one_run_against_chain() -> Row:
    """Exact simulation of one run, p = k = 1, over the same chain by hand with the same numbers."""
    return narrow(1, 2**19)


def exact_against_chain() -> Row:
    """Exact simulation of 64 runs, p = k = 1, over the same chain by hand with the same numbers."""
    return narrow(64, 2**15)


def many_runs_against_chain() -> Row:
    """Exact simulation of 4,096 runs, p = k = 1, over the same chain by hand with the same numbers."""
    return narrow(4096, 2**10)


def exact_against_its_numbers() -> Row:
    """Exact simulation of 64 runs, p = k = 1, over drawing its random numbers alone."""
    return narrow(64, 2**15, numbers_alone=True)


def network_chain(p: int, k: int, value, slope, runs: int, steps: int):
    """The same for p students and k orthogonal teachers: overlaps as (p, p, runs) and (p, k, runs)."""
    d, n, block = 1000.0, p + k, 2**16 // ((p + k) * runs)

    def factor(matrix):
        """Cholesky, column by column, for all runs at once."""
        rows = jnp.arange(p)[:, None]
        columns = []
        for j in range(p):
            column = matrix[:, j] - sum((done * done[j] for done in columns), jnp.zeros_like(matrix[:, j]))
            columns.append(jnp.where(rows >= j, column / jnp.sqrt(jnp.maximum(column[j], 1e-300)), 0.0))
        return columns

    def step(overlaps, numbers):
        Q, M = overlaps
        normals, rest = numbers
        teacher, other = normals[:k], normals[k:]
        columns = factor(Q - (M[:, None] * M[None]).sum(2))
        student = (M * teacher).sum(1) + sum(column * other[j] for j, column in enumerate(columns))
        slopes = (value(student).mean(0) - value(teacher).mean(0)) * slope(student) / p
        length = ((normals**2).sum(0) + rest) / d
        outer = slopes[:, None] * student
        square = slopes[:, None] * slopes * length
        return (
            Q - RATE / d * (outer + outer.swapaxes(0, 1)) + RATE**2 / d * square,
            M - RATE / d * slopes[:, None] * teacher,
        ), None

    def simulated(key):
        def of_block(number, overlaps):
            source = Source(key, number * block + jnp.arange(block)[:, None])
            normals, squares = normals_and_chi_squares(source, n, jnp.array([d - n]))
            return jax.lax.scan(step, overlaps, (normals.swapaxes(0, 1), squares[0]))[0]

        starts = jnp.eye(p)[..., None], jnp.full((p, k, 1), 0.2 / k)
        starts = tuple(jnp.broadcast_to(each, (*each.shape[:2], runs)) for each in starts)
        return jax.lax.fori_loop(0, -(-steps // block), of_block, starts)

    key = run_keys(jax.random.split(jax.random.key(0), runs))
    compiled = jax.jit(simulated)
    return lambda: compiled(key)


def two_students_against_chain() -> Row:
    """Exact simulation of 64 runs, p = 2 and k = 1, over the same chain by hand with the same numbers."""
    by_hand = network_chain(2, 1, lambda x: x**2, lambda x: 2 * x, 64, 2**14)
    return against(simulation(1000, 2**14, 64), by_hand, goal=1.43)


def committee_against_chain() -> Row:
    """Exact simulation of 64 runs of an erf committee, p = 8 and k = 4, over that chain by hand."""

    def value(x):
        return jax.lax.erf(x / 2**0.5)

    def slope(x):
        return (2 / np.pi) ** 0.5 * jnp.exp(-(x**2) / 2)

    by_hand = network_chain(8, 4, value, slope, 64, 2**12)
    return against(simulation(1000, 2**12, 64, p=8, k=4, activation="erf"), by_hand, goal=1.43)


def exact_against_compiled_loop() -> Row:
    """A step of exact simulation, p = 2, 64 runs, over one on vectors, d = 1,000, in C++ with Eigen on one core."""
    steps = 20_000
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "vectors"
        source = Path(__file__).with_name("vectors.cpp")
        subprocess.run(["g++", "-O3", "-march=native", "-I", "/usr/include/eigen3", source, "-o", program], check=True)
        return against(
            simulation(1000, steps, 64),
            lambda: subprocess.run([program, "1000", str(steps)], check=True, capture_output=True),
            goal=0.01,
            per=64,
        )


def exact_against_numpy() -> Row:
    """Exact simulation, 64 runs, over the same chain in a NumPy loop, vectorised over runs."""
    d, steps, runs, generator = 1000, 20_000, 64, np.random.default_rng(0)

    def by_hand():
        matrices = np.broadcast_to(OVERLAPS, (runs, 3, 3))
        for _ in range(steps // 40):
            fields = (np.linalg.cholesky(matrices) @ generator.normal(size=(runs, 3, 1)))[..., 0]
            matrices = chain(matrices, RATE, d, np, fields, generator.chisquare(d - 3, runs))
        return matrices

    return against(simulation(d, steps, runs), by_hand, goal=0.5, per=40)


def vectors_against_scan() -> Row:
    """Vector simulation, d = 10^4, 16 runs, over a jitted scan written by hand for this one problem."""
    d, steps, runs = 10_000, 100, 16
    weights, teacher = embed(START, StandardInputs(), d).values()

    @jax.jit
    def by_hand(keys):
        def one_run(key):
            def step(W, number):
                x = jax.random.normal(jax.random.fold_in(key, number), (d,))
                fields, target = W @ x / d**0.5, teacher[0] @ x / d**0.5
                error = jnp.mean(fields**2) - target**2
                return W - RATE * jnp.outer(error * fields, x) / d**0.5, None

            return jax.lax.scan(step, weights, jnp.arange(steps))[0]

        W = jax.vmap(one_run)(keys)
        return W @ jnp.swapaxes(W, 1, 2) / d

    keys = jax.random.split(jax.random.key(0), runs)
    return against(simulation(d, steps, runs, "vectors"), lambda: by_hand(keys), goal=1.05)


def vectors_against_numpy() -> Row:
    """Vector simulation, d = 10^4, 16 runs, over a NumPy loop, vectorised over runs."""
    d, steps, runs, generator = 10_000, 100, 16, np.random.default_rng(0)
    start, teacher = (np.asarray(vectors) for vectors in embed(START, StandardInputs(), d).values())

    def by_hand():
        W = np.repeat(start[None], runs, 0)
        for _ in range(steps):
            x = generator.normal(size=(runs, d, 1))
            fields, target = (W @ x)[..., 0] / d**0.5, (x[..., 0] @ teacher[0])[:, None] / d**0.5
            error = (fields**2).mean(1, keepdims=True) - target**2
            W = W - RATE * (error * fields)[..., None] * x[:, None, :, 0] / d**0.5
        return W @ W.swapaxes(1, 2) / d

    return against(simulation(d, steps, runs, "vectors"), by_hand)


def vectors_against_torch() -> Row:
    """Vector simulation, d = 10^4, 16 runs, over a PyTorch loop with autograd, vectorised over runs."""
    torch = importlib.import_module("torch")
    d, steps, runs = 10_000, 100, 16
    start, teacher = (torch.tensor(np.asarray(vectors)) for vectors in embed(START, StandardInputs(), d).values())

    def by_hand():
        W = start[None].repeat(runs, 1, 1).requires_grad_()
        for _ in range(steps):
            x = torch.randn(runs, d, 1, dtype=torch.float64)
            fields, target = (W @ x)[..., 0] / d**0.5, (x[..., 0] @ teacher[0]) / d**0.5
            loss = (((fields**2).mean(1) - target**2) ** 2).sum() / 2
            (gradient,) = torch.autograd.grad(loss, W)
            W = (W - RATE * gradient).detach().requires_grad_()
        return None

    return against(simulation(d, steps, runs, "vectors"), by_hand)


def exact_against_vectors() -> Row:
    """A step of exact simulation over one on vectors, d = 10^4, p = 2, 64 runs."""
    d = 10_000
    return against(simulation(d, 20_000, 64), simulation(d, 50, 64, "vectors"), goal=0.01, per=400)


def cost_of_dimension() -> Row:
    """A step of exact simulation at d = 10^9 over d = 10^3."""
    return growth(lambda d: simulation(d, 20_000, 64, sphere=True), [10**3, 10**6, 10**9], "d", goal=1.05)


def cost_of_dimension_of_vectors() -> Row:
    """A step on vectors at d = 4 x 10^4 over d = 10^4: in proportion to d it would be 4."""
    return growth(lambda d: simulation(d, 50, 16, "vectors"), [10_000, 20_000, 40_000], "d", goal=5)


def cost_of_students() -> Row:
    """A step of exact simulation with p = 16 students over p = 2."""
    return growth(lambda p: simulation(1000, 2_000, 64, p=p), [2, 4, 8, 16], "p", goal=100)


def cost_of_teachers() -> Row:
    """A step of exact simulation with k = 8 teachers over k = 2."""
    return growth(lambda k: simulation(1000, 2_000, 64, k=k), [2, 4, 8], "k", goal=16)


def cost_of_runs() -> Row:
    """A step of exact simulation of 1,024 runs over 16: in proportion it would be 64."""
    return growth(lambda runs: simulation(1000, 2_000, runs), [16, 128, 1024], "runs", goal=64)


def exit_time_against_simulation() -> Row:
    """`exit_time` by simulation, with the ODE that says how long to wait, over that simulation with its end known."""
    problem, algorithm, d, runs = dimfree.PhaseRetrieval(2), dimfree.OnlineSGD(0.1, sphere=True), 1000, 64
    key = jax.random.key(0)
    starts = random_starts(problem, d, runs, key=key)
    level = exit_level(problem, problem.risk(dimfree.State(Q=jnp.eye(2), M=jnp.zeros((2, 1)))), 0.1)

    def stop(state):
        return level - problem.risk(state)

    found = dimfree.exit_time(problem, algorithm, d, runs=runs, key=key, methods=("simulated",))
    end = 2.0 * float(found.simulated.mean)
    return against(
        lambda: dimfree.exit_time(problem, algorithm, d, runs=runs, key=key, methods=("simulated",)).simulated.mean,
        lambda: dimfree.simulate(problem, algorithm, starts, d, end, runs=runs, key=key, stop=stop).stopped_at,
        goal=2.0,
    )


ON_DEVICES = """
import os, time
cores = sorted(os.sched_getaffinity(0))[:{devices}]
os.sched_setaffinity(0, cores)
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count={devices}"
from benchmarks.simulating import jax, simulation
call, seconds = simulation(1000, 10_000, {devices} * 128), []
for _ in range(6):
    began = time.perf_counter()
    jax.block_until_ready(call())
    seconds.append(time.perf_counter() - began)
print(min(seconds))
"""


def devices_against_one() -> Row:
    """Exact simulation, 128 runs on each of as many devices as there are cores, over 128 on one core; ideally 1."""
    devices, root = len(os.sched_getaffinity(0)), Path(__file__).parents[1]

    def timed(number: int) -> float:
        command = [sys.executable, "-c", ON_DEVICES.format(devices=number)]
        return float(subprocess.run(command, check=True, capture_output=True, text=True, cwd=root).stdout)

    several, one = f"{devices} devices", "one"
    turns = np.array([[timed(devices), timed(1)] for _ in range(3)])
    times = Times(zip((several, one), turns.T, strict=True))
    times.first = {several: turns[0, 0], one: turns[0, 1]}
    return compared(times, several, one, goal=1.1)


ALL = [
    exact_against_scan,
    exact_against_numpy,
    one_run_against_chain,
    exact_against_chain,
    many_runs_against_chain,
    two_students_against_chain,
    committee_against_chain,
    exact_against_its_numbers,
    *([exact_against_compiled_loop] if shutil.which("g++") and Path("/usr/include/eigen3").is_dir() else []),
    exact_against_vectors,
    vectors_against_scan,
    vectors_against_numpy,
    *([vectors_against_torch] if importlib.util.find_spec("torch") else []),
    cost_of_dimension,
    cost_of_dimension_of_vectors,
    cost_of_students,
    cost_of_teachers,
    cost_of_runs,
    devices_against_one,
    exit_time_against_simulation,
]
QUICK = [exact_against_numpy, vectors_against_scan]
