"""How much of the machine simulations on reused data use: of its matrix products, of its memory, in one run.

python benchmarks/finite_sample.py [--d 1000] [--json finite_sample.json]
"""

import argparse
import json

import jax
import jax.numpy as jnp
import numpy as np
from ratios import seconds

import dimfree
from dimfree.algorithms import GradientDescent, PersistentSGD
from dimfree.simulation import simulate_reused

PHASE = dimfree.LocalFields(
    lambda student, teacher, noise, readout: (student[0] ** 2 - teacher[0] ** 2) ** 2 / 4, width=1, teacher_width=1
)
START = dimfree.State(Q=[[1.0]], M=[[0.2]])
RATE, ALPHA = 0.001, 3.0


def shortest(call) -> float:
    """The shortest of repeated warm calls, in seconds: other work on the machine only adds to it."""
    return min(seconds(call, 5))


def step(d: int, steps: int, algorithm, **options) -> float:
    """Seconds for one step of all runs: the difference of two lengths, so that data and starts are not counted."""

    def run(length):
        times = np.array([0.0, length * RATE])
        return lambda: simulate_reused(PHASE, algorithm, START, d, times, key=jax.random.key(0), **options).state.M

    short, long = shortest(run(8)), shortest(run(8 + steps))
    return (long - short) / steps


def product_peak(dtype) -> float:
    """Flop a second of a large square product."""
    A = jax.random.normal(jax.random.key(0), (1536, 1536), dtype)
    product = jax.jit(lambda A: A @ A)
    return 2 * 1536**3 / shortest(lambda: product(A))


def reading_peak(megabytes: float) -> float:
    """Bytes a second of reading an array of this size once, by the fastest of three ways."""
    A = jax.random.normal(jax.random.key(0), (max(1, round(megabytes * 2**20 / 4000)), 1000), jnp.float32)
    v, array = jnp.ones(1000, jnp.float32), np.asarray(A)
    multiply, add = jax.jit(lambda A, v: A @ v), jax.jit(jnp.sum)
    ways = (lambda: multiply(A, v), lambda: add(A), lambda: array.max())
    return array.nbytes / min(shortest(way) for way in ways)


def shared_data(d: int, dtype: str) -> dict:
    """Runs that share a dataset, persistent SGD: flop of its two products over those of a large product."""
    runs, samples = 64, round(ALPHA * d)
    sgd = PersistentSGD(RATE, ALPHA, 0.5, 1.0, sphere=True)
    seconds = step(d, 20, sgd, runs=runs, datasets=1, dtype=dtype)
    speed, peak = 4 * runs * samples * d / seconds, product_peak(dtype)
    return {"ratio": speed / peak, "Gflop/s": speed / 1e9, "peak Gflop/s": peak / 1e9, "step [ms]": seconds * 1e3}


def separate_data(d: int, dtype: str) -> dict:
    """A dataset for each run, gradient descent: bytes of data in a step over those of reading them once."""
    runs, samples = 4, round(ALPHA * d)
    seconds = step(d, 20, GradientDescent(RATE, ALPHA, sphere=True), runs=runs, dtype=dtype)
    size = runs * samples * d * np.dtype(dtype).itemsize
    speed, peak = size / seconds, reading_peak(size / 2**20)
    return {"ratio": speed / peak, "GB/s": speed / 1e9, "peak GB/s": peak / 1e9, "step [ms]": seconds * 1e3}


def made_again(d: int, dtype: str) -> dict:
    """Runs that share a dataset which is made again in each step, over the same with it in memory: time of a step."""
    sgd = GradientDescent(RATE, ALPHA, sphere=True)
    stored, made = (step(d, 8, sgd, runs=64, datasets=1, dtype=dtype, store_data=store) for store in (True, False))
    return {"ratio": made / stored, "made [ms]": made * 1e3, "stored [ms]": stored * 1e3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--d", type=int, default=1000)
    parser.add_argument("--json", help="also write the table to this file")
    arguments = parser.parse_args()
    table = {}
    for benchmark in (shared_data, separate_data, made_again):
        for dtype in ("float32", "float64"):
            name = f"{benchmark.__name__}, {dtype}"
            result = table[name] = benchmark(arguments.d, dtype)
            rest = ", ".join(f"{key} {value:.4g}" for key, value in result.items() if key != "ratio")
            print(f"{name:24s} {result['ratio']:7.3f}  {rest}", flush=True)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(table, file, indent=1)


if __name__ == "__main__":
    main()
