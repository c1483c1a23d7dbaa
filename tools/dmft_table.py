"""Compare the mean-field theory of reused data with simulations: docs/data/reused_data.csv.

python tools/dmft_table.py                    # every row that is not in the file yet; says how long each took
python tools/dmft_table.py "gradient descent, 0.5" ...      # these cases only
python tools/dmft_table.py --show             # the comparison, from what is in the file

Phase retrieval with the loss (h^2 - h0^2)^2 / 4. Simulations are at several d and two learning rates, in single
precision; the comparison extrapolates them linearly in 1/d and in the learning rate, by weighted least squares. A row
that is in the file is not measured again, so that the work can be stopped and taken up.
"""

import sys
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from table import Table

import dimfree

TIMES = np.array([0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0])
SIMULATIONS = [(1_000, 0.01, 128), (1_000, 0.02, 128), (2_000, 0.01, 64), (4_000, 0.01, 32)]  # d, learning rate, runs
MORE_RUNS = {"persistent SGD, 3 samples": 3, "Langevin, 3 samples": 5}  # times; from a small overlap they spread more
LOSS = dimfree.LocalFields(
    lambda student, teacher, noise, readout: (student[0] ** 2 - teacher[0] ** 2) ** 2 / 4, width=1, teacher_width=1
)
CASES: dict[str, tuple[float, Callable]] = {
    "gradient descent, 0.5": (0.5, lambda rate: dimfree.GradientDescent(rate, 2.0, sphere=True)),
    "persistent SGD, 2 samples": (0.5, lambda rate: dimfree.PersistentSGD(rate, 2.0, 0.5, 1.0, sphere=True)),
    "Langevin, 2 samples": (0.5, lambda rate: dimfree.Langevin(rate, 2.0, 1.0, sphere=True)),
    "persistent SGD, ridge": (0.5, lambda rate: dimfree.PersistentSGD(rate, 2.0, 0.5, 1.0, ridge=0.5)),
    "gradient descent, 0.65": (0.65, lambda rate: dimfree.GradientDescent(rate, 2.0, sphere=True)),
    "gradient descent, 0.8": (0.8, lambda rate: dimfree.GradientDescent(rate, 2.0, sphere=True)),
    "persistent SGD, 3 samples": (0.2, lambda rate: dimfree.PersistentSGD(rate, 3.0, 0.5, 1.0, sphere=True)),
    "Langevin, 3 samples": (0.2, lambda rate: dimfree.Langevin(rate, 3.0, 1.0, sphere=True)),
    "gradient descent, ridge": (0.5, lambda rate: dimfree.GradientDescent(rate, 2.0, ridge=0.5)),
}
COLUMNS = ("case", "d", "learning_rate", "runs", *(f"M({t:g})" for t in TIMES), *(f"error({t:g})" for t in TIMES))
COLUMNS = (*COLUMNS, "seconds")
TABLE = Table("reused_data", COLUMNS, keys=("case", "d", "learning_rate"))  # d is 0 for the theory


def theory(case: str) -> tuple[np.ndarray, np.ndarray, int]:
    """Overlaps of the flow, their errors, the number of populations."""
    overlap, make = CASES[case]
    start = dimfree.State(Q=[[1.0]], M=[[overlap]])
    limit = dimfree.dmft(LOSS, make(0.01), target_error=0.005, most_populations=12)
    found = dimfree.solve(limit, start, TIMES[-1], key=jax.random.key(0))
    at = [np.interp(TIMES, found.time, each) for each in (found.state.M[:, 0, 0], found.standard_error["M"])]
    return at[0], at[1], found.populations.runs or 0


def simulation(case: str, d: int, rate: float, runs: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Mean overlaps of runs, each on its own data, and their standard errors."""
    overlap, make = CASES[case]
    start = dimfree.State(Q=[[1.0]], M=[[overlap]])
    overlaps = []
    for batch in range(runs // 16):
        found = dimfree.simulate(
            LOSS, make(rate), start, d, TIMES, runs=16, key=jax.random.key(d + batch), dtype=jnp.float32
        )
        overlaps.append(np.asarray(found.state.M)[:, :, 0, 0])
    all_runs = np.concatenate(overlaps)
    return all_runs.mean(axis=0), all_runs.std(axis=0, ddof=1) / runs**0.5, runs


def measure(cases: list[str]) -> None:
    """The rows of these cases that are missing."""
    for case in cases:
        for d, rate, runs in [(0, 0.0, 0), *SIMULATIONS]:
            if (case, d, rate) in TABLE:
                continue
            began = time.perf_counter()
            M, error, number = simulation(case, d, rate, runs * MORE_RUNS.get(case, 1)) if d else theory(case)
            seconds = time.perf_counter() - began
            numbers = [f"{x:.5f}" for x in (*M, *error)]
            TABLE.add(dict(zip(COLUMNS, (case, d, rate, number, *numbers, f"{seconds:.0f}"), strict=True)))
            print(f"{case}, d = {d}, learning rate {rate}: M = {np.round(M, 4)}, {seconds:.0f} s", flush=True)


def show() -> None:
    """Theory against simulation, extrapolated, in standard errors."""
    table = {(case, int(d), float(rate)): row for (case, d, rate), row in TABLE.rows().items()}

    def numbers(key: tuple[str, int, float], name: str) -> np.ndarray:
        return np.array([float(table[key][f"{name}({t:g})"]) for t in TIMES])

    print("case                        " + " ".join(f"{f't = {t:g}':>16s}" for t in TIMES[2:]))
    for case in CASES:
        keys = [(case, d, rate) for d, rate, _ in SIMULATIONS if (case, d, rate) in table]
        if len(keys) < 3 or (case, 0, 0.0) not in table:
            continue
        limit, error = extrapolated(keys, *(np.stack([numbers(key, name) for key in keys]) for name in ("M", "error")))
        expected, own = numbers((case, 0, 0.0), "M"), numbers((case, 0, 0.0), "error")
        rows = [("theory", expected, own)]
        rows += [(f"d = {key[1]}, rate {key[2]:g}", numbers(key, "M"), numbers(key, "error")) for key in keys]
        rows += [("extrapolated", limit, error)]
        rows += [("difference / error", (limit - expected) / np.maximum(np.hypot(error, own), 1e-12), None)]
        for name, M, e in rows:
            cells = [f"{m:8.4f}" + ("" if e is None else f" +- {e[i + 2]:.4f}") for i, m in enumerate(M[2:])]
            print(f"{case if name == 'theory' else '':28s}" + " ".join(f"{cell:>16s}" for cell in cells) + f"  {name}")


def extrapolated(keys: list[tuple[str, int, float]], M: np.ndarray, error: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """M(d, rate) = limit + a / d + b rate by weighted least squares: the limit and its error at each time.

    Two learning rates share their data, and so do not err independently; the error is too large for that.
    """
    design = np.array([[1.0, 1_000 / d, 100 * rate] for _, d, rate in keys])
    limit, spread = M[0].copy(), np.zeros(M.shape[1])
    for at in np.flatnonzero(error.min(axis=0) > 0):
        weighted = design / error[:, at, None]
        covariance = np.linalg.inv(weighted.T @ weighted)
        limit[at] = (covariance @ weighted.T @ (M[:, at] / error[:, at]))[0]
        spread[at] = covariance[0, 0] ** 0.5
    return limit, spread


if __name__ == "__main__":
    if "--show" not in sys.argv:
        measure([case for case in CASES if case in sys.argv[1:]] or list(CASES))
    show()
