"""The table of docs/tutorials/own_data.md: theory and SGD on photographs and digits, written to docs/data/own_data.csv.

Takes about five minutes on two cores:

    python tools/data_table.py [case ...]

and what the spectrum of a large file costs, of so many rows of 10,000 numbers (a disk with room for 40 kB each):

    OPENBLAS_NUM_THREADS=1 python tools/data_table.py large 100000
"""

import csv
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from sklearn.datasets import load_digits, load_sample_images

import dimfree

FILE = Path(__file__).parents[1] / "docs/data/own_data.csv"
SAMPLES = np.array([0, 100, 1_000, 10_000, 40_000])
RUNS = 16


def patches(size: int = 16, stride: int = 3) -> np.ndarray:
    """Grey square patches of two photographs, as rows."""
    found = []
    for picture in load_sample_images().images:
        windows = np.lib.stride_tricks.sliding_window_view(picture.mean(axis=2), (size, size))
        found.append(windows[::stride, ::stride].reshape(-1, size * size))
    return np.concatenate(found)


def whitened(rows: np.ndarray) -> np.ndarray:
    """The same with the identity as covariance, but for directions without any variance."""
    centred = rows - rows.mean(axis=0)
    values, directions = np.linalg.eigh(centred.T @ centred / len(rows))
    kept = values > 1e-9 * values[-1]
    return centred @ directions[:, kept] / np.sqrt(values[kept])


def gaussianised(rows: np.ndarray) -> np.ndarray:
    """Gaussian rows with the same covariance."""
    covariance = np.cov(rows.T)
    return np.random.default_rng(5).multivariate_normal(rows.mean(axis=0), covariance, size=len(rows), method="eigh")


def of_equal_norm(rows: np.ndarray) -> np.ndarray:
    """The same, each without its mean and divided by its norm."""
    centred = rows - rows.mean(axis=1, keepdims=True)
    return centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-9)


def pixels() -> np.ndarray:
    """The digits' pixels that are not always the same."""
    rows, _ = load_digits(return_X_y=True)
    rows = np.asarray(rows)
    return rows[:, rows.std(axis=0) > 0]


def random_features(rows: np.ndarray, number: int = 256) -> np.ndarray:
    """tanh of random directions, of rows with unit variance."""
    scaled = (rows - rows.mean(axis=0)) / rows.std()
    directions = np.random.default_rng(6).normal(size=(rows.shape[1], number)) / rows.shape[1] ** 0.5
    return np.tanh(scaled @ directions)


def teacher(rows: np.ndarray) -> np.ndarray:
    """A random direction."""
    return np.random.default_rng(0).normal(size=(1, rows.shape[1]))


def parity() -> np.ndarray:
    """Whether a digit is odd, as -1 and 1."""
    _, digits = load_digits(return_X_y=True)
    return 2.0 * (np.asarray(digits) % 2) - 1


def shuffled() -> np.ndarray:
    """The linear fit of that, and its residuals each at another row."""
    rows = np.column_stack([pixels(), np.ones(len(parity()))])
    fit = rows @ np.linalg.lstsq(rows, parity())[0]
    return fit + np.random.default_rng(7).permutation(parity() - fit)


TANH = dimfree.TwoLayer(1, activation="tanh")
LABELS = dimfree.TwoLayer(1, activation="tanh", teacher_activation="linear")
# Rows, and the labels that they have; a random teacher where they have none.
CASES: dict[str, tuple[Callable[[], np.ndarray], Callable[[], np.ndarray] | None]] = {
    "patches": (patches, None),
    "patches, Gaussianised": (lambda: gaussianised(patches()), None),
    "patches, whitened": (lambda: whitened(patches()), None),
    "patches, of equal norm": (lambda: of_equal_norm(patches()), None),
    "digits": (pixels, None),
    "digits, Gaussianised": (lambda: gaussianised(pixels()), None),
    "digits, odd or even": (pixels, parity),
    "digits, residuals shuffled": (pixels, shuffled),
    "random features of digits": (lambda: random_features(pixels()), None),
}


def compared(case: str, **options: Any) -> dimfree.DataComparison:
    """Theory and SGD for one case."""
    make, labels = CASES[case]
    rows = make()
    target, problem = (teacher(rows), TANH) if labels is None else (labels(), LABELS)
    given = {"alpha": SAMPLES / rows.shape[1], "runs": RUNS, "key": jax.random.key(0)} | options
    return dimfree.from_data(rows, target, problem, dimfree.OnlineSGD(0.05), **given)


def own_memory() -> float:
    """MiB that this process holds beside pages of files (Linux)."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


def large(rows: int, d: int = 10_000) -> None:
    """The spectrum of a memory-mapped file: eigenvalues 1/j, time and memory."""
    generator, peak, done = np.random.default_rng(0), [0.0], threading.Event()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "rows.npy"
        file = np.lib.format.open_memmap(path, "w+", np.float32, (rows, d))
        for begin in range(0, rows, 1_000):
            size = min(1_000, rows - begin)
            file[begin : begin + size] = 1 + generator.normal(size=(size, d)) * np.arange(1, d + 1) ** -0.5
        file.flush()
        before = own_memory()

        def watch() -> None:
            while not done.wait(0.05):
                peak[0] = max(peak[0], own_memory())

        watching = threading.Thread(target=watch)
        watching.start()
        began = time.perf_counter()
        found = dimfree.Spectrum.from_data(np.load(path, mmap_mode="r"))
        seconds = time.perf_counter() - began
        done.set()
        watching.join()
    print(f"{rows:,} rows of {d:,} numbers: {seconds:.0f} s, {before:.0f} MiB before, {peak[0]:.0f} MiB at most")
    for j in (1, 2, 4, 8, 16, 32, 63):
        print(f"eigenvalue {j}: {float(found.eigenvalues[j - 1]):.5f}, exact {1 / j:.5f}")


def main(chosen: list[str]) -> None:
    rows = {}
    if FILE.exists():
        with FILE.open() as file:
            rows = {row["case"]: row for row in csv.DictReader(file)}
    for case in chosen or CASES:
        began = time.perf_counter()
        found = compared(case)
        print(f"{case}: {time.perf_counter() - began:.0f} s\n{found}\n", flush=True)
        row: dict[str, Any] = {
            "case": case,
            "rows": found.rows,
            "d": len(found.mean),
            "effective_dimension": f"{found.effective_dimension:.4g}",
            "teacher_kurtosis": f"{found.fields.teacher_kurtosis.max():.4g}",
            "agrees": found.agrees,
            "causes": " and ".join(found.causes),
        }
        for name, (mean, error) in found.means.items():
            row |= {f"{name}({n})": f"{value:.6g}" for n, value in zip(SAMPLES, mean, strict=True)}
            row |= {f"{name}_error({n})": f"{value:.2g}" for n, value in zip(SAMPLES, error, strict=True)}
        rows[case] = row
        with FILE.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(row), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows[each] for each in CASES if each in rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["large"]:
        large(int(sys.argv[2]))
    else:
        main(sys.argv[1:])
