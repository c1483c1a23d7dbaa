"""Figures 5 and 6: phase retrieval, whether noise and width matter."""

import dataclasses

import jax
import numpy as np

from dimfree import Claim, OnlineSGD, PhaseRetrieval, Reproduction, ode, solve
from dimfree.papers import Size

from .. import arnaboldi2023
from ..arnaboldi2023.exits import mean_exits, typical_start
from ..comparing import would_see
from ..drawing_style import BLUE, DARK, GREEN, RED, in_style, panels
from .conventions import CLOCK

THRESHOLD, RATE_PER_WIDTH = 0.1, 1 / 12
_GAIN = 0.15  # a relative difference of what width gains that counts


def fig5(size: Size) -> Reproduction:
    """Runs of SGD and paths of the SDE from one start, p = 1, with the ODE: the risk, and the exit times.

    The source shows figure 1 of its reference, and so does this: see that of `arnaboldi2023`. Full size: d = 3000, as
    in the source, which takes minutes; quick: d = 500. Both have 512 runs and paths.
    """
    made = arnaboldi2023.fig1(size)
    renamed = (
        dataclasses.replace(
            claim,
            where=claim.where.replace("Fig. 1", '"Does noise matter?"'),
            remark=claim.remark.replace("see Fig. 2", "see Fig. 6"),
        )
        for claim in made.claims
    )
    return Reproduction(made.data, made.picture, tuple(renamed))


@in_style
def fig6(size: Size) -> Reproduction:
    """Exit times against the width: measured, by the printed formulas, and with the noise of SGD; and the risk.

    Random starts, learning rate p/12, threshold 0.1, no label noise. 400 runs each. Full size: d = 3000 and
    widths 1 to 20, which takes some ten minutes; quick: d = 300 and widths 1 and 5.
    """
    import xarray

    d, widths, runs = (3_000, (1, 2, 5, 10, 20), 400) if size == "full" else (300, (1, 5), 400)
    times = np.linspace(0.0, 5.0, 201)
    exits, risks = [], []
    for p, key in zip(widths, jax.random.split(jax.random.key(15), len(widths)), strict=True):
        exits.append(mean_exits(p, d, RATE_PER_WIDTH, THRESHOLD, runs, key=key))
        equation = ode(PhaseRetrieval(width=p), OnlineSGD(RATE_PER_WIDTH * p, sphere=True))
        risks.append(np.asarray(solve(equation, typical_start(p, d), times / RATE_PER_WIDTH).risk))
    data = xarray.Dataset(
        {name: ("width", [each[name] for each in exits]) for name in exits[0]}
        | {"risk": (("width", "time"), np.array(risks))},
        coords={"width": list(widths), "time": times},
        attrs={"d": d, "runs": runs, "threshold": THRESHOLD, "rate_per_width": RATE_PER_WIDTH},
    )
    return Reproduction(data, _draw(data), _claims(data))


def _draw(data):
    figure, (left, right) = panels(1, 2)
    for name, colour, line, words in (
        ("annealed", GREEN, "--", "annealed formula"),
        ("quenched", RED, "-", "quenched formula"),
        ("dressed", DARK, "-", "ODE from starts with the noise of SGD"),
    ):
        left.plot(data.width, data[name], color=colour, linestyle=line, label=words)
    left.errorbar(
        data.width, data.measured, 2 * data.measured_error, fmt="o", color=BLUE, capsize=3, zorder=5,
        markeredgecolor="white", label=f"SGD, {data.runs} runs",
    )  # fmt: skip
    left.set(xscale="log", xlabel="width, $p$", ylabel="mean exit time", ylim=(0, None))
    left.set_xticks(data.width.values, [str(p) for p in data.width.values])
    left.minorticks_off()
    left.set_title(f"(a) exit, d = {data.d:,}, learning rate $p$/12")
    left.legend(loc="lower left")
    for number, p in enumerate(data.width.values):
        right.plot(data.time, data.risk.sel(width=p), color=f"C{number}", label=f"p = {p}")
    right.set(xlabel=CLOCK, ylabel="excess risk", ylim=(0, None))
    right.set_title("(b) the ODE from the typical start")
    right.legend()
    return figure


def _claims(data) -> tuple[Claim, ...]:
    claims = []
    for p in data.width.values:
        row = data.sel(width=p)
        ratio, error = float(row.measured / row.quenched), float(row.measured_error / row.quenched)
        dressed = float(row.measured / row.dressed)
        claims.append(
            Claim(
                f'"Does width matter?", p = {p}',
                "The mean exit time is the quenched formula: measured over it.",
                1.0,
                ratio,
                3 * error,
                remark=f"Three standard errors; measured {ratio:.3f} +- {error:.3f} at d = {data.d}: a true deviation "
                f"of {600 * error:.2g} % would have been seen. Over the ODE from starts with the noise of the plateau: "
                f"{dressed:.3f}. Where the formula agrees two errors cancel, the noise that it lacks and its "
                "linearisation up to the threshold.",
            )
        )
    gain = float(data.measured[0] / data.measured[-1])
    predicted = float(data.dressed[0] / data.dressed[-1])
    error = float(np.linalg.norm((data.measured_error / data.measured)[[0, -1]]))
    claims.append(
        Claim(
            '"Take aways", width',
            "Overparametrisation changes the time to escape by a constant factor only, here at learning rate p/12: "
            "exit time of the narrowest over that of the widest, by the ODE with the noise of SGD.",
            predicted,
            gain,
            _GAIN,
            remark="Width helps by the growth rate on the plateau and by averaging over starts. "
            + would_see(_GAIN, error),
        )
    )
    return tuple(claims)
