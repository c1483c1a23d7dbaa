"""Follow gradient descent on reused data until t = 1000, in the limit and simulated: docs/data/long_times.csv.

python tools/long_times_table.py              # every row that is not in the file yet; says how long each took
python tools/long_times_table.py --store DIR  # keep finished populations of the limit there, to be taken up

Phase retrieval with the loss (h^2 - h0^2)^2 / 4, 2 samples per dimension, from an overlap of 0.5 on the sphere.
"""

import argparse
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from dmft_table import LOSS
from table import Table

import dimfree
from dimfree.limits.dmft.time_grid import first_grid, halved

TIMES = np.array([0.0, 1.0, 5.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0])
RELAXATION = 2.5  # rate by which the coarse grid goes: steps of 1.2 at most, where that of the weights asks for 0.8
SIMULATIONS = [(500, 32)]  # d, runs
RATE = 0.02
DESCENT = dimfree.GradientDescent(RATE, 2.0, sphere=True)
START = dimfree.State(Q=[[1.0]], M=[[0.5]])
NUMBERS = tuple(f"{name}({t:g})" for name in ("M", "error", "loss", "loss_error") for t in TIMES)
TABLE = Table("long_times", ("d", "runs", "steps", *NUMBERS, "seconds"), keys=("d",))  # d is 0 for the theory


def theory(store: Path | None) -> tuple[list[np.ndarray], int, int]:
    """Overlap and training loss of four populations, extrapolated in the step, with errors; populations and steps."""
    times = halved(first_grid(DESCENT, TIMES[-1], RELAXATION))
    limit = dimfree.dmft(LOSS, DESCENT, paths=2_048, most_populations=4, store=store)
    found = dimfree.solve(limit, START, times, key=jax.random.key(0), progress=True)
    curves = [found.state.M[:, 0, 0], found.standard_error["M"], found.training_loss]
    curves.append(found.standard_error["training_loss"])
    return [np.interp(TIMES, found.time, each) for each in curves], found.populations.runs or 0, len(times) - 1


def simulation(d: int, runs: int) -> tuple[list[np.ndarray], int, int]:
    """The same of runs, each on its own data."""
    key = jax.random.key(d)
    found = dimfree.simulate(LOSS, DESCENT, START, d, TIMES, runs=runs, key=key, dtype=jnp.float32)
    curves = []
    for each in (np.asarray(found.state.M)[:, :, 0, 0], np.asarray(found.training_loss)):
        curves += [each.mean(axis=0), each.std(axis=0, ddof=1) / runs**0.5]
    return curves, runs, round(TIMES[-1] / RATE)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Follow gradient descent on reused data until t = 1000.")
    parser.add_argument("--store", type=Path)
    store = parser.parse_args().store
    for d, runs in [(0, 0), *SIMULATIONS]:
        if (d,) in TABLE:
            continue
        began = time.perf_counter()
        curves, runs, steps = simulation(d, runs) if d else theory(store)
        seconds = time.perf_counter() - began
        numbers = dict(zip(NUMBERS, (float(x) for x in np.concatenate(curves)), strict=True))
        TABLE.add({"d": d, "runs": runs, "steps": steps, **numbers, "seconds": f"{seconds:.0f}"})
        print(f"d = {d}: M = {np.round(curves[0], 4)} +- {np.round(curves[1], 4)}, {seconds:.0f} s", flush=True)
