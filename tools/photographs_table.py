"""The learning curves of docs/tutorials/scaling_laws.md on photographs, written to docs/data/photographs.csv.

Patches of two photographs, the pixel beside them as the label, and linear SGD on random features of the patches: the
risk that the covariance and the least-squares fit predict, and that on the rows. A few minutes on two cores:

    python tools/photographs_table.py
"""

import jax
import numpy as np
from sklearn.datasets import load_sample_images
from table import Table

import dimfree

SIZES, SAMPLES = (16, 64, 200), np.array([30, 100, 300, 1_000, 3_000, 10_000, 30_000])
RATE, RUNS = 0.05, 8
TABLE = Table("photographs", ("size", "samples", "predicted", "measured", "error"), keys=("size", "samples"))


def patches(side: int = 16, stride: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Grey square patches, centred and of variance one in all, and the pixel to the right of each."""
    rows, labels = [], []
    for picture in load_sample_images().images:
        windows = np.lib.stride_tricks.sliding_window_view(picture.mean(axis=2), (side, side + 1))
        windows = windows[::stride, ::stride].reshape(-1, side, side + 1)
        rows.append(windows[..., :side].reshape(-1, side * side))
        labels.append(windows[:, side // 2, side])
    found, beside = np.concatenate(rows), np.concatenate(labels)
    return (found - found.mean(axis=0)) / np.sqrt(found.var(axis=0).sum()), beside / beside.std()


def main() -> None:
    rows, labels = patches()
    family = dimfree.RandomFeatures.from_data(rows, labels)
    law = dimfree.scaling_law(family, dimfree.OnlineSGD(RATE), SIZES, SAMPLES)
    linear = dimfree.TwoLayer(1, activation="linear", teacher_activation="linear")
    print(family)
    for size, risk in zip(SIZES, law.risk + family.irreducible_risk, strict=True):
        features = rows @ np.random.default_rng(size).normal(size=(len(rows[0]), size)) / size**0.5
        # `from_data` divides the rows by a number, which the rate follows.
        sgd = dimfree.OnlineSGD(RATE * features.var(axis=0).sum())
        alphas = np.append(0, SAMPLES) / size
        found = dimfree.from_data(
            features, labels, linear, sgd, alpha=alphas, runs=RUNS, key=jax.random.key(1), start=np.zeros((1, size))
        )
        mean, error = (each[1:] for each in found.means["data"])
        for values in zip(SAMPLES.tolist(), risk, mean, error, strict=True):
            row = dict(zip(("samples", "predicted", "measured", "error"), map(float, values), strict=True))
            TABLE.add({"size": size} | row | {"samples": int(values[0])}, digits=4)
            print(size, *(f"{value:.4g}" for value in values), flush=True)


if __name__ == "__main__":
    main()
