"""Draw the phase diagram of docs/data/phase_retrieval_study.yaml over its predictions: docs/images/phase_diagram.png.

    dimfree study run docs/data/phase_retrieval_study.yaml --store STORE      # ten minutes on two cores
    python tools/phase_diagram.py STORE

It prints how far the measured boundary is from the predicted ones.
"""

import sys
from pathlib import Path

import jax
import numpy as np
import yaml
from scipy import optimize

import dimfree

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "phase_diagram.png"


def learning_boundary(noise: np.ndarray) -> np.ndarray:
    """The learning rate below which the plateau of one student is unstable, and SGD learns."""
    return 2 / (12 + noise)


def waiting_boundary(noise: float, settings: dict) -> float:
    """The small learning rate at which the mean exit time, by formula (noise included), is as long as the study waits.

    At the boundary of learning the formula, which is for large d, does not hold: noise alone takes runs out there.
    """

    def excess(rate: float) -> float:
        sgd = dimfree.OnlineSGD(float(rate), sphere=True)
        problem = dimfree.PhaseRetrieval(noise=float(noise))
        times = dimfree.exit_time(
            problem, sgd, settings["d"], settings["threshold"], key=jax.random.key(0), methods=("closed_form",)
        )
        return times.closed_form.dressed - settings["alpha"]

    end = 0.5 * learning_boundary(noise)  # the rate that leaves soonest
    return optimize.brentq(excess, 0.05 * end, end, xtol=1e-5) if excess(end) < 0 else np.nan


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
    noise = np.linspace(0.0, float(data["problem.noise"].max()), 25)
    lines = {
        r"learning ends: $2 / (12 + \mathrm{noise})$": (learning_boundary(noise), noise),
        rf"mean exit time = {settings['alpha']:g} (formula)": (
            [waiting_boundary(each, settings) for each in noise],
            noise,
        ),
    }
    axes = dimfree.plot.phase_diagram(data, "left", level=0.5, lines=lines)
    axes.set_title(
        loc="left",
        label=f"{data.attrs['title']}\nfraction of 64 runs that have left by $\\alpha$ = {settings['alpha']:g}",
    )
    axes.figure.savefig(picture, dpi=160)
    print(picture)
    print(f"{'noise':>7}{'slow side':>11}{'formula':>9}{'fast side':>11}{'boundary':>10}")
    rates = data["algorithm.learning_rate"].values
    for each in noise[::4]:
        row = data.left.sel({"problem.noise": each}, method="nearest")
        at = float(row["problem.noise"])
        low, high = crossings(rates, row.values)
        print(
            f"{at:>7.2f}{low:>11.4f}{waiting_boundary(at, settings):>9.4f}{high:>11.4f}{learning_boundary(at):>10.4f}"
        )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else PICTURE)
