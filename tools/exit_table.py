"""Measure exit times against predictions, for the tutorial: docs/data/exit_times.csv.

python tools/exit_table.py                 # every cell that is not in the file yet; hours on two cores, say how long
python tools/exit_table.py 1000 10000      # these dimensions only

Phase retrieval on the sphere with learning_rate / p = 1/12, threshold 0.1, no label noise. A cell that is in the file
is not measured again, so that the work can be stopped and taken up.
"""

import os
import sys
import time

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")

import jax
from table import Table

import dimfree

WIDTHS = (1, 2, 5, 20)
RUNS = {1_000: 4_000, 10_000: 2_000, 100_000: 1_000, 1_000_000: 128}
# With more students a step costs up to thirty times more, and the exit time scatters less: at d = 10^6 by 20% for one,
# 11% for two, 5% for five and 2% for twenty.
FEWER = {
    1: {1_000_000: 64},
    5: {100_000: 256, 1_000_000: 24},
    20: {1_000: 1_000, 10_000: 256, 100_000: 24, 1_000_000: 4},
}
PREDICTED = {1: 4_096, 2: 4_096, 5: 2_048, 20: 256}  # random starts of the predictions
COLUMNS = (
    *("p", "d", "runs", "mean", "error", "stay"),
    *("annealed", "quenched", "ode", "ode_error", "dressed", "dressed_error", "seconds"),
)
TABLE = Table("exit_times", COLUMNS, keys=("p", "d"))


def measure(p: int, d: int) -> dict[str, float]:
    """One cell of the table; times in alpha."""
    runs = FEWER.get(p, {}).get(d, RUNS[d])
    problem, sgd = dimfree.PhaseRetrieval(width=p), dimfree.OnlineSGD(p / 12, sphere=True)
    began = time.perf_counter()
    predicted = dimfree.exit_time(
        problem, sgd, d, runs=PREDICTED[p], key=jax.random.key(d + p), methods=("closed_form", "ode", "dressed")
    )
    simulating = time.perf_counter()
    measured = dimfree.exit_time(problem, sgd, d, runs=runs, key=jax.random.key(d - p), methods=("simulated",))
    print(f"p = {p}, d = {d}: {simulating - began:.0f} s for the predictions", flush=True)
    return {
        "p": p,
        "d": d,
        "runs": runs,
        "mean": measured.simulated.mean,
        "error": measured.simulated.error,
        "stay": measured.simulated.stay,
        "annealed": predicted.closed_form.annealed,
        "quenched": predicted.closed_form.quenched,
        "ode": predicted.ode.mean,
        "ode_error": predicted.ode.error,
        "dressed": predicted.dressed.mean,
        "dressed_error": predicted.dressed.error,
        "seconds": time.perf_counter() - simulating,
    }


def main(dimensions: list[int]) -> None:
    for d in dimensions or RUNS:
        for p in WIDTHS:
            if (p, d) in TABLE:
                continue
            cell = measure(p, d)
            TABLE.add(cell)
            ratio, error = cell["mean"] / cell["dressed"], cell["error"] / cell["dressed"]
            print(
                f"p = {p}, d = {d}: measured / dressed {ratio:.4f} +- {error:.4f}, {cell['seconds']:.0f} s", flush=True
            )


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]])
