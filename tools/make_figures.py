"""Make the figures of the README and of the documentation.

python tools/make_figures.py              # all of them, a few minutes on two cores
python tools/make_figures.py width        # one
"""

import sys
import time
from pathlib import Path

import jax
import matplotlib
import numpy as np
import run_readme

import dimfree

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"


def phase_retrieval() -> Figure:
    """What the first snippet of the README draws, by running it."""
    _, code = run_readme.blocks((ROOT / "README.md").read_text(encoding="utf-8"))[0]
    call, _, _ = code.rpartition(".figure.savefig")
    exec(compile(call, "README.md", "exec"), {})
    return plt.gcf()


def width() -> Figure:
    """Wider students in phase retrieval, at step sizes in proportion to the width."""
    d, alpha = 5_000, 50.0
    trajectories, labels = [], []
    for number, p in enumerate((5, 20)):
        problem = dimfree.PhaseRetrieval(width=p, noise=1e-3)
        sgd = dimfree.OnlineSGD(learning_rate=0.06 * p)
        start = dimfree.random_state(problem, d, key=jax.random.key(number))
        trajectories.append(dimfree.solve(dimfree.ode(problem, sgd), start, alpha))
        trajectories.append(dimfree.simulate(problem, sgd, start, d, alpha, runs=6, key=jax.random.key(10 + number)))
        labels += [f"ODE, $p = {p}$", f"SGD, $p = {p}$, $d = 5000$, 6 runs"]
    axes = dimfree.plot.compare(*trajectories, labels=labels, log=True)
    axes.set_title("Phase retrieval with $p$ students", loc="left")
    return plt.gcf()


def erf_committee() -> Figure:
    """Eight students and four teachers: a plateau where all are alike, then specialisation.

    The start has the overlaps of a random one in d = 1000. With those of d = 20,000 the noise of the plateau decides
    which student takes to which teacher, and one run need not choose as the ODE does.
    """
    d, k, p = 20_000, 4, 8
    alpha = np.concatenate([[0.0], np.geomspace(0.1, 500.0, 120)])
    problem = dimfree.TwoLayer(width=p, teacher_width=k, activation="erf", noise=1e-4)
    sgd = dimfree.OnlineSGD(learning_rate=20.0)
    start = dimfree.random_state(problem, 1_000, key=jax.random.key(0), norm=0.5)
    theory = dimfree.solve(dimfree.ode(problem, sgd), start, alpha)
    run = dimfree.simulate(problem, sgd, start, d, alpha, runs=1, key=jax.random.key(1))
    with plt.style.context(dimfree.plot.style):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.0))
        dimfree.plot.compare(theory, run, labels=["ODE", "SGD, one run, $d = 20{,}000$"], log=True, axes=left)
        colours = [step["color"] for step in matplotlib.rcParams["axes.prop_cycle"]]
        closest, simulated = np.asarray(theory.state.M).max(axis=1), np.asarray(run.state.M)[0].max(axis=1)
        dots = {"markevery": 4, "markersize": 6, "markeredgecolor": "white", "markeredgewidth": 0.6}
        for r in range(k):
            right.plot(theory.alpha, closest[:, r], color=colours[r], zorder=3)
            right.plot(run.alpha, simulated[:, r], "o", color=colours[r], **dots)
        right.legend(
            [Line2D([], [], color=colours[r]) for r in range(k)],
            [f"teacher {r + 1}" for r in range(k)],
            loc="upper left",
        )
        right.set(xlabel=r"$\alpha$ = samples / $d$", ylabel="largest overlap $M$ with a student")
        left.set_title("Plateau, then specialisation", loc="left")
        right.set_title("Each teacher finds its student", loc="left")
        for axes in (left, right):
            axes.set_xscale("log")
            axes.set_xlim(0.9 * alpha[1], 1.15 * alpha[-1])
    return figure


FIGURES = {"phase_retrieval": phase_retrieval, "width": width, "erf_committee": erf_committee}


def main(*names: str) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name in names or FIGURES:
        began = time.perf_counter()
        figure = FIGURES[name]()
        target = IMAGES / f"{name}.png"
        figure.savefig(target, dpi=140, metadata={"Software": None}, pil_kwargs={"optimize": True})
        plt.close(figure)
        print(f"{target.name}: {target.stat().st_size / 1024:.0f} kB in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main(*sys.argv[1:])
