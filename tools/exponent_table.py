"""Measure how many samples each information exponent needs, for the tutorial: docs/data/exponents.csv.

python tools/exponent_table.py             # every cell that is not in the file yet; hours on two cores, say how long
python tools/exponent_table.py 1 2         # these exponents only

One student on the sphere learns its own link: erf (exponent 1), the Hermite polynomial of order 2, and two sines
without a linear part (exponent 3); the last two with a small readout, so that the student's own output is small. The
Hermite polynomial of order 3 has the same law, but from larger d on: rare, huge gradients count below d = 1000. The
learning rate is fixed up to exponent 2, and proportional to d^-1/2 for 3. A cell that is in the file is not measured
again, so that the work can be stopped and taken up.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from table import Table

import dimfree
from dimfree.analysis.sample_complexity import log_median, recovery_times

LEVEL = 0.5


def two_sines(x):
    """Odd, bounded, and without a linear part: 2 e^(1/8) sin(x/2) - e^(1/2) sin(x)."""
    return 2 * np.exp(1 / 8) * jnp.sin(x / 2) - np.exp(1 / 2) * jnp.sin(x)


LINKS = {1: ("erf", 1.0, 0.5, 0.0), 2: ("he2", 0.3, 0.3, 0.0), 3: (two_sines, 0.1, 100.0, -0.5)}  # readout, rate, power
RUNS = {
    1: {100: 2_048, 1_000: 1_024, 10_000: 256, 100_000: 128},
    2: {100: 2_048, 1_000: 2_048, 10_000: 1_024, 100_000: 256},
    3: {100: 1_024, 300: 1_024, 1_000: 192, 3_000: 48, 10_000: 16},
}
COLUMNS = ("exponent", "link", "d", "runs", "samples", "error", "found", "seconds")
TABLE = Table("exponents", COLUMNS, keys=("exponent", "d"))


def setting(exponent: int, d: int) -> tuple[dimfree.TwoLayer, dimfree.OnlineSGD]:
    """The problem and the algorithm of a cell."""
    link, readout, rate, power = LINKS[exponent]
    problem = dimfree.SingleIndex(link, readout=[readout])
    assert isinstance(problem, dimfree.TwoLayer)
    return problem, dimfree.OnlineSGD(rate * d**power, sphere=True)


def measure(exponent: int, d: int) -> dict[str, float | str]:
    """One cell of the table."""
    problem, sgd = setting(exponent, d)
    runs, began = RUNS[exponent][d], time.perf_counter()
    first = {1: 8.0, 2: 4 * np.log(d), 3: 2.4 * d}[exponent]  # about four medians
    times = recovery_times(problem, sgd, d, LEVEL, first, runs=runs, key=jax.random.key(d + exponent))
    log, error = log_median(times * d)
    return {
        "exponent": exponent,
        "link": problem.activation.name,
        "d": d,
        "runs": runs,
        "samples": float(np.exp(log)),
        "error": error,
        "found": float(np.mean(np.isfinite(times))),
        "seconds": time.perf_counter() - began,
    }


def main(exponents: list[int]) -> None:
    for exponent in exponents or LINKS:
        for d in RUNS[exponent]:
            if (exponent, d) in TABLE:
                continue
            cell = measure(exponent, d)
            TABLE.add(cell)
            print(", ".join(f"{name} {value}" for name, value in cell.items()), flush=True)


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]])
