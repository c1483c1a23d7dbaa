"""Speed as ratios measured in one run, on warm code: against the bare engine, and against what one would write by hand.

python benchmarks/ratios.py [--json ratios.json]
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import scipy.integrate

import dimfree
from dimfree.simulation.vectors import embed


def seconds(call, repeats: int = 7) -> list[float]:
    """Times of repeated warm calls."""
    jax.block_until_ready(call())
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(call())
        times.append(time.perf_counter() - began)
    return times


def interleaved(first, second, repeats: int = 9) -> tuple[float, float, float]:
    """Median ratio of two calls timed in turn, and the two median times."""
    jax.block_until_ready(first())
    jax.block_until_ready(second())
    pairs = [(seconds(first, 1)[0], seconds(second, 1)[0]) for _ in range(repeats)]
    return statistics.median(a / b for a, b in pairs), *(statistics.median(times) for times in zip(*pairs, strict=True))


def committee():
    problem = dimfree.TwoLayer(8, 4, "erf", noise=0.01)
    algorithm = dimfree.OnlineSGD(4.0)
    return problem, algorithm, dimfree.random_state(problem, d=1000, key=jax.random.key(0))


def solve_against_diffrax() -> dict:
    """`solve` over the same right-hand side handed to Diffrax directly."""
    problem, algorithm, start = committee()
    limit, times = dimfree.ode(problem, algorithm), jnp.linspace(0.0, 500.0, 201)
    like = dimfree.State(start.Q, start.M, start.P, problem.readout)

    @jax.jit
    def bare(vector):
        return diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, args: limit.vector_field(t, y, like)),
            diffrax.Tsit5(),
            0.0,
            times[-1],
            None,
            vector,
            saveat=diffrax.SaveAt(ts=times),
            stepsize_controller=diffrax.PIDController(rtol=1e-8, atol=1e-10),
            max_steps=100_000,
            throw=False,
        ).ys

    vector = limit.coordinates.pack(like)
    ratio, ours, theirs = interleaved(lambda: dimfree.solve(limit, start, times).state.Q, lambda: bare(vector))
    return {"ratio": ratio, "goal": "<= 1.05", "solve [s]": ours, "Diffrax [s]": theirs}


def erf_right_hand_side(p: int, k: int, rate: float, noise: float):
    """The committee's equations in vectorised NumPy, as one would write them from the formulas."""
    r = p + k
    weights = np.concatenate([np.full(p, 1 / p), np.full(k, -1 / k)])

    def field(alpha, vector):
        Q, M = vector[: p * p].reshape(p, p), vector[p * p :].reshape(p, k)
        C = np.block([[Q, M], [M.T, np.eye(k)]])
        plus = 1 + np.diag(C)
        pair = np.sqrt(plus[:p, None] * plus[None, :] - C[:p] ** 2)
        I3 = C[None, :, :] * plus[:p, None, None] - C[:p, :, None] * C[:p, None, :]
        I3 = 2 / np.pi * I3 / (plus[:p, None, None] * pair[:, None, :])
        L4 = plus[:p, None] * plus[:p] - Q**2
        Cc = C[:p]
        i, j, s, t = np.ix_(range(p), range(p), range(r), range(r))
        L0 = (
            L4[i, j] * C[s, t]
            - Cc[j, s] * Cc[j, t] * plus[i]
            - Cc[i, s] * Cc[i, t] * plus[j]
            + Q[i, j] * (Cc[i, s] * Cc[j, t] + Cc[i, t] * Cc[j, s])
        )
        one = (
            L4[:, :, None] * plus
            - Cc[None, :, :] ** 2 * plus[:p, None, None]
            - Cc[:, None, :] ** 2 * plus[None, :p, None]
            + 2 * Q[:, :, None] * Cc[:, None, :] * Cc[None, :, :]
        )
        I4 = np.arcsin(np.clip(L0 / np.sqrt(one[:, :, :, None] * one[:, :, None, :]), -1, 1))
        I4 = 4 / np.pi**2 * I4 / np.sqrt(L4)[:, :, None, None]
        gradient = weights[:p, None] * (I3 @ weights)
        square = np.outer(weights[:p], weights[:p]) * (I4 @ weights @ weights + noise * 2 / np.pi / np.sqrt(L4))
        drag = gradient[:, :p]
        dQ = -rate * (drag + drag.T) + rate**2 * square
        return np.concatenate([dQ.ravel(), (-rate * gradient[:, p:]).ravel()])

    return field


def solve_against_scipy() -> dict:
    """`solve` over `scipy.integrate.solve_ivp` on the same equations in NumPy, at equal tolerances."""
    problem, algorithm, start = committee()
    limit, times = dimfree.ode(problem, algorithm), np.linspace(0.0, 500.0, 201)
    field = erf_right_hand_side(8, 4, 4.0, 0.01)
    vector = np.concatenate([np.asarray(start.Q).ravel(), np.asarray(start.M).ravel()])
    drift = limit.drift(0.0, start)
    np.testing.assert_allclose(field(0.0, vector)[:64], np.asarray(drift.Q).ravel(), atol=1e-10)
    ours = statistics.median(seconds(lambda: dimfree.solve(limit, start, times).state.Q))
    began = time.perf_counter()
    solution = scipy.integrate.solve_ivp(field, (0, 500.0), vector, "RK45", times, rtol=1e-8, atol=1e-10)
    theirs = time.perf_counter() - began
    difference = np.abs(solution.y[:64, -1] - np.asarray(dimfree.solve(limit, start, times).final.Q).ravel()).max()
    return {"ratio": theirs / ours, "goal": ">= 10", "scipy [s]": theirs, "solve [s]": ours, "difference": difference}


def exact_cost_against_dimension() -> dict:
    """A step of exact simulation at d = 10^9 over one at d = 10^3."""
    problem, algorithm = dimfree.PhaseRetrieval(2), dimfree.OnlineSGD(0.05, sphere=True)
    start = dimfree.State(Q=jnp.eye(2), M=jnp.full((2, 1), 0.2))
    steps = 20_000

    def run(d):
        times = np.array([0.0, steps / d])
        return lambda: dimfree.simulate(problem, algorithm, start, d, times, runs=64, key=jax.random.key(0)).state.Q

    ratio, large, small = interleaved(run(10**9), run(10**3))
    return {
        "ratio": ratio,
        "goal": "<= 1.05",
        "d=1e9 [us/step]": large / steps * 1e6,
        "d=1e3 [us/step]": small / steps * 1e6,
    }


def exact_against_vectors() -> dict:
    """A step of vector simulation over one of exact simulation, d = 10^4, p = 2, 64 runs."""
    problem, algorithm, d = dimfree.PhaseRetrieval(2), dimfree.OnlineSGD(0.05, sphere=True), 10_000
    start = dimfree.State(Q=jnp.eye(2), M=jnp.full((2, 1), 0.2))

    def run(steps, method):
        times = np.array([0.0, steps / d])
        return lambda: (
            dimfree.simulate(problem, algorithm, start, d, times, runs=64, key=jax.random.key(0), method=method).state.Q
        )

    exact = statistics.median(seconds(run(20_000, "exact"))) / 20_000
    vectors = statistics.median(seconds(run(200, "vectors"), 3)) / 200
    return {
        "ratio": vectors / exact,
        "goal": ">= 100",
        "vectors [us/step]": vectors * 1e6,
        "exact [us/step]": exact * 1e6,
    }


def vectors_against_scan() -> dict:
    """Vector simulation over a jitted scan written by hand for this one problem."""
    problem, algorithm, d, steps, runs = dimfree.PhaseRetrieval(2), dimfree.OnlineSGD(0.05), 10_000, 200, 16
    start = dimfree.State(Q=jnp.eye(2), M=jnp.full((2, 1), 0.2))

    weights, teacher = embed(start, d)

    @jax.jit
    def by_hand(keys):
        def one_run(key):
            def step(W, number):
                x = jax.random.normal(jax.random.fold_in(key, number), (d,))
                fields, target = W @ x / d**0.5, teacher[0] @ x / d**0.5
                error = jnp.mean(fields**2) - target**2
                return W - 0.05 * jnp.outer(error * fields, x) / d**0.5, None

            return jax.lax.scan(step, weights, jnp.arange(steps))[0]

        W = jax.vmap(one_run)(keys)
        return W @ jnp.swapaxes(W, 1, 2) / d

    keys = jax.random.split(jax.random.key(0), runs)
    times = np.array([0.0, steps / d])

    def ours():
        runs_of = dimfree.simulate(
            problem, algorithm, start, d, times, runs=runs, key=jax.random.key(0), method="vectors"
        )
        return runs_of.state.Q

    ratio, library, hand = interleaved(ours, lambda: by_hand(keys), 5)
    return {
        "ratio": ratio,
        "goal": "<= 1.05",
        "library [us/step]": library / steps * 1e6,
        "scan [us/step]": hand / steps * 1e6,
    }


def many_cells() -> dict:
    """10^4 cells (learning rate x noise) of an ODE in one vmapped call."""
    start = dimfree.State(Q=jnp.eye(2), M=[[0.1], [0.05]])

    @jax.jit
    @jax.vmap
    def final_risk(rate, noise):
        limit = dimfree.ode(dimfree.PhaseRetrieval(2, noise), dimfree.OnlineSGD(rate, sphere=True))
        return dimfree.solve(limit, start, np.array([0.0, 20.0])).risk[-1]

    rates, noises = (a.ravel() for a in jnp.meshgrid(jnp.linspace(0.01, 0.3, 100), jnp.linspace(0.0, 2.0, 100)))
    began = time.perf_counter()
    jax.block_until_ready(final_risk(rates, noises))
    first = time.perf_counter() - began
    warm = statistics.median(seconds(lambda: final_risk(rates, noises), 3))
    return {"ratio": warm, "goal": "seconds, warm", "first call [s]": first, "per cell [us]": warm / 1e4 * 1e6}


def import_time() -> dict:
    """`import dimfree` and the first use of its names, over `import jax, diffrax, xarray`."""

    def of(code):
        times = []
        for _ in range(3):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times.append(time.perf_counter() - began)
        return min(times)

    theirs = of("import jax, diffrax, xarray")
    ours = of("import dimfree; dimfree.solve, dimfree.simulate, dimfree.PhaseRetrieval")
    return {
        "ratio": ours / theirs,
        "goal": "<= 1.3",
        "with names [s]": ours,
        "jax, diffrax, xarray [s]": theirs,
        "import alone [s]": of("import dimfree"),
    }


BENCHMARKS = [
    solve_against_diffrax,
    solve_against_scipy,
    exact_cost_against_dimension,
    exact_against_vectors,
    vectors_against_scan,
    many_cells,
    import_time,
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="also write the table to this file")
    parser.add_argument("--only", nargs="*", help="names of benchmarks")
    arguments = parser.parse_args()
    table = {}
    for benchmark in BENCHMARKS:
        if arguments.only and benchmark.__name__ not in arguments.only:
            continue
        result = table[benchmark.__name__] = benchmark()
        rest = ", ".join(f"{name} {value:.4g}" for name, value in result.items() if name not in ("ratio", "goal"))
        print(f"{benchmark.__name__:32s} {result['ratio']:9.3f}  ({result['goal']})  {rest}", flush=True)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(table, file, indent=1)


if __name__ == "__main__":
    main()
