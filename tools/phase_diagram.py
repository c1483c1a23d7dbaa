"""Draw the phase diagram of docs/data/phase_retrieval_study.yaml over its predictions: docs/images/phase_diagram.png.

    dimfree study run docs/data/phase_retrieval_study.yaml --store STORE      # about 1000 s of one core
    python tools/phase_diagram.py STORE

It prints how far the measured boundary is from the predicted ones.
"""

import sys
from pathlib import Path

import numpy as np
import yaml
from matplotlib.lines import Line2D
from scipy import stats

import dimfree

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "phase_diagram.png"


def learning_boundary(noise: np.ndarray) -> np.ndarray:
    """The learning rate below which the plateau of one student is unstable, and SGD learns."""
    return 2 / (12 + noise)


def predicted_fraction(rate, noise, settings: dict):
    r"""The fraction of runs that leave within `alpha`, in closed form for one student on the sphere.

    On the plateau M is an Ornstein-Uhlenbeck process, from a start of variance 1/d, with growth rate
    $\omega = \gamma (4 - 24 \gamma - 2 \gamma \Delta)$ and noise $4 \gamma^2 (12 + \Delta) / d$. By the ODE
    $u = M^2$ goes as $u / (u_\infty - u) \propto e^{2 \omega \alpha}$, so that it reaches the threshold T when the
    linear process reaches $T u_\infty / (u_\infty - T)$. Runs that only noise takes there are left out.
    """
    growth = rate * (4 - 24 * rate - 2 * rate * noise)
    end = 1 - 2 * rate * noise / (4 * (1 - 6 * rate))
    level = settings["threshold"] * end / (end - settings["threshold"])
    gain = np.expm1(2 * growth * settings["alpha"])
    variance = (1 + gain + 4 * rate**2 * (12 + noise) * gain / (2 * growth)) / settings["d"]
    reached = stats.chi2.sf(level / variance, 1)
    return np.where((rate < learning_boundary(noise)) & (end > settings["threshold"]), reached, 0.0)


def crossings(rates: np.ndarray, left: np.ndarray, level: float = 0.5) -> tuple[float, float]:
    """The first and the last rate at which the fraction crosses the level, by interpolation."""
    above = np.flatnonzero(left >= level)
    if len(above) == 0:
        return np.nan, np.nan
    first, last = above[0], above[-1]
    low = np.nan if first == 0 else np.interp(level, left[first - 1 : first + 1], rates[first - 1 : first + 1])
    high = np.nan if last == len(rates) - 1 else np.interp(-level, -left[last : last + 2], rates[last : last + 2])
    return float(low), float(high)


def main(store: str, picture: Path) -> None:
    data = dimfree.open_study(store)
    settings = yaml.safe_load(data.attrs["study"])["compute"]
    rates, noise = data["algorithm.learning_rate"].values, data["problem.noise"].values
    predicted = predicted_fraction(rates[:, None], noise, settings)
    lines = {r"learning ends: $2 / (12 + \mathrm{noise})$": (learning_boundary(noise), noise)}
    axes = dimfree.plot.phase_diagram(data, "left", level=0.5, lines=lines)
    axes.contour(rates, noise, predicted.T, levels=[0.5], colors="#E69F00", linestyles="--", linewidths=2.2)
    extra = Line2D([], [], color="#E69F00", linestyle="--", linewidth=2.2, label="predicted: left = 0.5")
    handles = [*axes.get_legend().legend_handles, extra]
    axes.legend(handles=handles, loc="upper right", frameon=True, framealpha=0.85, fontsize=9, facecolor="#BBBBBB")
    axes.set_title(
        loc="left",
        label=f"{data.attrs['title']}\nfraction of 64 runs that have left by $\\alpha$ = {settings['alpha']:g}",
    )
    axes.figure.savefig(picture, dpi=160)
    print(picture)
    known = data.status.values == 1
    error = data.left_error.values
    inside = known & (predicted > 0)
    difference = (data.left.values - predicted)[inside]
    print(
        f"{known.sum()} cells; measured minus predicted fraction, where the prediction is not zero: "
        f"mean {difference.mean():+.4f}, root mean square {np.sqrt(np.mean(difference**2)):.4f}, the runs' own "
        f"error {np.sqrt(np.mean(error[inside] ** 2)):.4f}"
    )
    print(f"{'noise':>7}{'slow side':>11}{'predicted':>11}{'fast side':>11}{'predicted':>11}{'boundary':>10}")
    for column in range(0, len(noise), 12):
        row = [crossings(rates, values[:, column]) for values in (data.left.values, predicted)]
        print(
            f"{noise[column]:>7.2f}{row[0][0]:>11.4f}{row[1][0]:>11.4f}{row[0][1]:>11.4f}{row[1][1]:>11.4f}"
            f"{learning_boundary(noise[column]):>10.4f}"
        )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else PICTURE)
