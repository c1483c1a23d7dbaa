"""Measure the error of the limit of wide networks, for the tutorial: docs/data/wide_networks.csv.

python tools/wide_table.py                     # every cell that is not in the file yet; an hour on one core
python tools/wide_table.py width erf 64 256    # these widths only, and `dimension square 100 400` these dimensions

Rows `width`: neurons with overlaps of order one with two teachers, against gradient flow on all p^2 overlaps. Rows
`dimension`: the same start, 128 neurons, as d grows. Time is learning_rate * alpha / p, up to 2; the rate itself is so
small that its second-order term is nothing. A cell that is in the file is not measured again.
"""

import csv
import sys
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import dimfree

TABLE = Path(__file__).resolve().parent.parent / "docs" / "data" / "wide_networks.csv"
ACTIVATIONS = ("erf", "relu", "square")
WIDTHS = (16, 32, 64, 128, 256, 512, 1024, 4096)
DIMENSIONS = (50, 100, 200, 400, 800, 1600, 3200)
FAR, NARROW, RATE, TIMES = 10**6, 128, 1e-6, np.linspace(0.0, 2.0, 5)
COLUMNS = (
    *("kind", "activation", "p", "d", "risk_start", "risk_end"),
    *("risk_error", "risk_error_d", "risk_error_density", "M_error", "norm_error", "off_diagonal_rms"),
    *("seconds", "seconds_full"),
)


def start_of(problem: dimfree.TwoLayer, d: int) -> dimfree.State:
    """Overlaps of order one with the teachers, random directions in dimension d outside their span."""
    random = dimfree.random_state(problem, d, key=jax.random.key(problem.width))
    M = 0.4 * jax.random.normal(jax.random.key(1), (problem.width, problem.teacher_width))
    return dimfree.State(random.Q - random.M @ random.M.T + M @ M.T, M)


@eqx.filter_jit
def solved(limit, start):
    """Under jit the overlaps are not checked, which would cost more than the solution."""
    path = dimfree.solve(limit, start, TIMES / RATE, relative_tolerance=1e-5, absolute_tolerance=1e-7)
    return path.state, path.problem.risk(path.state)


def timed(limit, start):
    began = time.perf_counter()
    result = jax.block_until_ready(solved(limit, start))
    return *result, time.perf_counter() - began


def measure(kind: str, activation: str, p: int, d: int) -> dict:
    problem, sgd = dimfree.TwoLayer(p, 2, activation), dimfree.OnlineSGD(RATE * p)
    start = start_of(problem, d)
    full, full_risk, seconds_full = timed(dimfree.gradient_flow(problem, sgd), start)
    wide, risk, seconds = timed(dimfree.mean_field(problem, sgd), start)
    _, risk_d, _ = timed(dimfree.mean_field(problem, sgd, d), start)
    _, risk_density, _ = timed(dimfree.mean_field(problem, sgd, d, infinite_width=True), start)
    last, exact = jax.tree.map(lambda a: a[-1], (wide, full))
    off_diagonal = (exact.Q - last.Q) * (1 - jnp.eye(p))

    def worst(a, b):
        return float(jnp.max(jnp.abs(a - b)))

    return {
        "kind": kind,
        "activation": activation,
        "p": p,
        "d": d,
        "risk_start": float(full_risk[0]),
        "risk_end": float(full_risk[-1]),
        "risk_error": worst(risk, full_risk),
        "risk_error_d": worst(risk_d, full_risk),
        "risk_error_density": worst(risk_density, full_risk),
        "M_error": worst(wide.M, full.M),
        "norm_error": worst(last.norms, jnp.diagonal(exact.Q)),
        "off_diagonal_rms": float(jnp.sqrt(jnp.sum(off_diagonal**2) / (p * (p - 1)))),
        "seconds": seconds,
        "seconds_full": seconds_full,
    }


def main() -> None:
    rows = list(csv.DictReader(TABLE.open())) if TABLE.exists() else []
    done = {(row["kind"], row["activation"], int(row["p"]), int(row["d"])) for row in rows}
    cells = [("width", activation, p, FAR) for p in WIDTHS for activation in ACTIVATIONS]
    cells += [("dimension", activation, NARROW, d) for d in DIMENSIONS for activation in ACTIVATIONS]
    if len(sys.argv) > 2:
        kind, activation, *numbers = sys.argv[1:]
        cells = [c for c in cells if c[:2] == (kind, activation) and str(c[2 if kind == "width" else 3]) in numbers]
    for cell in cells:
        if cell in done:
            continue
        row = measure(*cell)
        rows.append({name: f"{value:.6g}" if isinstance(value, float) else value for name, value in row.items()})
        print({name: rows[-1][name] for name in COLUMNS}, flush=True)
        rows.sort(key=lambda r: (r["kind"], r["activation"], int(r["p"]), int(r["d"])))
        with TABLE.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
