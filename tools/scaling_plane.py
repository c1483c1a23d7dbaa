"""Draw the plane of docs/data/scaling_plane.yaml over its phases: docs/images/scaling_plane.png.

    dimfree study run docs/data/scaling_plane.yaml --store STORE
    python tools/scaling_plane.py STORE

A cell is in the phase whose exponents, of the best size and of the least risk, are nearest to those measured in it. It
prints how many cells are in the phase that theory says, and how far measured exponents are from predicted ones.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

import dimfree
from dimfree.plot.drawing_style import in_style

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "scaling_plane.png"
EXPONENTS = ("size", "compute")
PHASES = ("b < 1/2", "1/2 < b < a", "b > a")


def candidates(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Exponents of size and of risk by the formula of each phase, everywhere: shape (3, 2, ...)."""
    ones = np.ones_like(a + b)
    return np.array(
        [
            [ones / (2 * a + 1), -(2 * a + 2 * b - 1) / (2 * a + 1)],
            [b / (a + b), -(2 * a + 2 * b - 1) / (2 * (a + b))],
            [ones / 2, (-1 + 1 / (4 * a)) * ones],
        ]
    )


def main(store: str, picture: Path) -> None:
    data = dimfree.open_study(store)
    inputs, targets = data["problem.input_exponent"].values, data["problem.target_exponent"].values
    a, b = np.meshgrid(inputs, targets, indexing="ij")
    measured = np.array([data[f"exponents.{name}.value"].values for name in EXPONENTS])
    known = np.isfinite(measured).all(axis=0)
    predicted = candidates(a, b)
    phase = np.argmin(np.sum((measured - predicted) ** 2, axis=1), axis=0)
    true = np.where(b < 0.5, 0, np.where(b < a, 1, 2))
    # How far a cell is from the nearest line between phases.
    away = np.minimum(np.abs(b - 0.5), np.where(b > 0.5, np.abs(b - a) / 2**0.5, np.inf))
    away = np.where((b <= 0.5) & (a < b), np.minimum(away, np.hypot(a - 0.5, b - 0.5)), away)

    with in_style():
        figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), sharey=True, layout="constrained")
        for one, name, values in zip(axes, ("best size", "least risk"), measured, strict=True):
            mesh = one.pcolormesh(inputs, targets, np.where(known, values, np.nan).T, cmap="viridis", rasterized=True)
            figure.colorbar(mesh, ax=one, label=f"exponent of the {name} in compute")
            one.axhline(0.5, color="white", linewidth=1.5)
            one.plot([0.5, inputs[-1]], [0.5, inputs[-1]], color="white", linewidth=1.5)
            shown = np.where(known, phase, np.nan)
            one.contour(inputs, targets, shown.T, levels=[0.5, 1.5], colors="#D55E00", linewidths=1.2)
            one.set(xlabel="input exponent a", xlim=inputs[[0, -1]], ylim=targets[[0, -1]])
        axes[0].set_ylabel("target exponent b")
        axes[0].set_title("white: predicted, orange: measured lines between phases", loc="left", fontsize=10)
    figure.savefig(picture, dpi=160)
    print(picture)
    print(f"{known.sum()} of {known.size} cells")
    for least in (0.0, 0.05, 0.1, 0.2):
        kept = known & (away >= least)
        print(f"at least {least:g} from a line: {np.mean(phase[kept] == true[kept]):.1%} of {kept.sum()} cells right")
    theory = np.take_along_axis(predicted, true[None, None], axis=0)[0]
    print(f"{'phase':<14}{'cells':>7}{'size: median, largest error':>32}{'risk: median, largest error':>32}")
    for number, words in enumerate(PHASES):
        kept = known & (away >= 0.2) & (true == number)
        if not kept.any():
            continue
        errors = np.abs(measured - theory)[:, kept]
        cells = "".join(f"{np.median(error):>22.4f}{error.max():>10.4f}" for error in errors)
        print(f"{words:<14}{kept.sum():>7}{cells}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else PICTURE)
