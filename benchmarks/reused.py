"""Reused data at finite d: `simulate` against the machine's matrix products and its memory, and by hand."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

import dimfree
from dimfree.algorithms import GradientDescent, PersistentSGD

from .timing import Row, compared, growth, in_turn

PHASE = dimfree.LocalFields(
    lambda student, teacher, noise, readout: (student[0] ** 2 - teacher[0] ** 2) ** 2 / 4, width=1, teacher_width=1
)
START = dimfree.State(Q=[[1.0]], M=[[0.2]])
RATE, ALPHA, D, STEPS = 0.001, 3.0, 1000, 100
SHORT, LONG = 16, 16 + STEPS  # a step is the difference of two lengths, so that data and starts are not counted


def lengths(algorithm, *, d: int = D, **options):
    """Calls of two lengths."""

    def run(steps):
        times = np.array([0.0, steps * RATE])
        return lambda: dimfree.simulate(PHASE, algorithm, START, d, times, key=jax.random.key(0), **options).state.M

    return {"long": run(LONG), "short": run(SHORT)}


def step(times):
    """Seconds of a step of all runs; no less than a fiftieth of its share, where the machine was disturbed."""
    return np.maximum(times["long"] - times["short"], times["long"] / 50) / STEPS


def of_products(dtype: str) -> Row:
    runs, samples = 64, round(ALPHA * D)
    A = jax.random.normal(jax.random.key(0), (samples, D), dtype)
    square = jax.random.normal(jax.random.key(0), (1536, 1536), dtype)
    product = jax.jit(lambda A: A @ A)
    sgd = PersistentSGD(RATE, ALPHA, 0.5, 1.0, sphere=True)
    times = in_turn(lengths(sgd, runs=runs, datasets=1, dtype=dtype) | {"product": lambda: product(square)})
    share = 4 * runs * A.size / (2 * 1536**3)
    speed = 4e-9 * runs * A.size / float(step({name: each.min() for name, each in times.items()}))
    return compared(times, step, lambda times: share * times["product"], goal=1.43, **{"Gflop/s": speed})


def shared_data_against_products() -> Row:
    """64 runs on one dataset, float32: a step over a large square product, flop for flop; 1.43 is 0.7 of its speed."""
    return of_products("float32")


def shared_data_against_products_float64() -> Row:
    """The same in float64."""
    return of_products("float64")


def shared_data_against_bare_products() -> Row:
    """64 runs on one dataset, float32: a step over its two matrix products alone, in a jitted scan."""
    runs, samples = 64, round(ALPHA * D)
    A = jax.random.normal(jax.random.key(0), (samples, D), "float32") / D**0.5
    weights = jax.random.normal(jax.random.key(1), (D, runs), "float32")
    bare = jax.jit(lambda A, W: jax.lax.scan(lambda W, _: (W - RATE * A.T @ (A @ W), None), W, length=STEPS)[0])
    descent = lengths(GradientDescent(RATE, ALPHA, sphere=True), runs=runs, datasets=1, dtype="float32")
    times = in_turn(descent | {"products": lambda: bare(A, weights)})
    return compared(times, step, lambda times: times["products"] / STEPS)


def of_memory(dtype: str) -> Row:
    runs, samples = 4, round(ALPHA * D)
    inputs = jax.random.normal(jax.random.key(0), (runs * samples, D), dtype)
    vector, total = jnp.ones(D, dtype), jax.jit(jnp.sum)
    multiply = jax.jit(lambda inputs, vector: inputs @ vector)
    readings = {"sum": lambda: total(inputs), "product": lambda: multiply(inputs, vector)}
    times = in_turn(lengths(GradientDescent(RATE, ALPHA, sphere=True), runs=runs, dtype=dtype) | readings)
    shortest = {name: each.min() for name, each in times.items()}
    return compared(
        times,
        step,
        lambda times: np.minimum(times["sum"], times["product"]),
        goal=1.43,
        **{
            "GB/s": inputs.nbytes / 1e9 / float(step(shortest)),
            "reading GB/s": inputs.nbytes / 1e9 / min(shortest["sum"], shortest["product"]),
        },
    )


def separate_data_against_reading() -> Row:
    """4 runs with a dataset each, float32: a step over reading all data once by all cores; 1.43 is 0.7 of its speed."""
    return of_memory("float32")


def separate_data_against_reading_float64() -> Row:
    """The same in float64."""
    return of_memory("float64")


def separate_data_against_numpy() -> Row:
    """4 runs with a dataset each, float64: a step over one of the same descent in NumPy, run by run."""
    runs, samples = 4, round(ALPHA * D)
    generator = np.random.default_rng(0)
    data = [generator.normal(size=(samples, D)) for _ in range(runs)]
    weights = [generator.normal(size=D) for _ in range(runs)]
    targets = [X[:, 0] ** 2 for X in data]

    def by_hand():
        new = []
        for X, w, target in zip(data, weights, targets, strict=True):
            fields = X @ w / D**0.5
            moved = w - RATE * ((fields**2 - target) * fields) @ X / D**0.5
            new.append(moved * (D / (moved @ moved)) ** 0.5)
        return new

    descent = GradientDescent(RATE, ALPHA, sphere=True)
    times = in_turn(lengths(descent, runs=runs, dtype="float64") | {"NumPy": by_hand})
    return compared(times, step, "NumPy", goal=1.0)


def made_again_against_stored() -> Row:
    """64 runs on one dataset that is made again in each step, over the same with it in memory; float32."""
    descent = functools.partial(lengths, GradientDescent(RATE, ALPHA, sphere=True), runs=64, datasets=1)
    made = {f"{name}, made": call for name, call in descent(dtype="float32", store_data=False).items()}
    times = in_turn(descent(dtype="float32") | made)
    return compared(times, lambda times: step({name[:-6]: each for name, each in times.items() if "," in name}), step)


def cost_of_reused_dimension() -> Row:
    """Descent of 4 runs with data of their own at d = 1,000 over d = 500: in proportion to d^2 it would be 4."""
    descent = GradientDescent(RATE, ALPHA, sphere=True)
    return growth(lambda d: lengths(descent, d=d, runs=4)["long"], [500, 1000], "d", goal=6)


ALL = [
    shared_data_against_products,
    shared_data_against_products_float64,
    shared_data_against_bare_products,
    separate_data_against_reading,
    separate_data_against_reading_float64,
    separate_data_against_numpy,
    made_again_against_stored,
    cost_of_reused_dimension,
]
# What a large square product gains over those of a step differs between machines by a factor of two, so the check of
# every change has the ratio to the same products.
QUICK = [shared_data_against_bare_products]
