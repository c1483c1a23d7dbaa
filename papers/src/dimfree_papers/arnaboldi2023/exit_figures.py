"""Figures 1, 2 and 5: exit times, and what noise does to them."""

from typing import Any

import jax
import numpy as np

from dimfree import Claim, Reproduction, ode, sde, simulate, solve
from dimfree.papers import Size

from ..comparing import would_see
from ..drawing_style import BLUE, DARK, GREEN, PINK, RED, SKY, in_style, panels
from . import drawing
from .drawing import CLOCK, CONSIDERABLE, RATE_PER_WIDTH, THRESHOLD
from .exits import mean_exits, typical_start

_DRAWN = 20  # runs that are drawn one by one
_SPREAD = 0.2  # a relative difference of deviations that counts


@in_style
def fig1(size: Size) -> Reproduction:
    r"""Runs of SGD and paths of the SDE from one start, p = 1, with the ODE: the risk, and the exit times.

    The start is the typical one, $M = d^{-1/2}$. Full size: d = 3000, as in the source; quick: d = 500. Both have 512
    runs and paths, for which the mean exit time is known to 2 % and deviations to 5 %; full size takes minutes.
    """
    return _sgd_and_sde(1, "Fig. 1", size)


@in_style
def fig5(size: Size) -> Reproduction:
    r"""Runs of SGD and paths of the SDE from one start, p = 2, with the ODE: the risk, and the exit times.

    The start is the typical one, all overlaps $d^{-1/2}$. Sizes as for figure 1.
    """
    return _sgd_and_sde(2, "Fig. 5", size)


def _sgd_and_sde(p: int, where: str, size: Size) -> Reproduction:
    import xarray

    d, runs = 3_000 if size == "full" else 500, 512
    problem, sgd = drawing.stated(p)
    start = typical_start(p, d)
    times = np.linspace(0.0, 6.0, 601)  # one run in 2,000 needs more than 4
    alpha = times / RATE_PER_WIDTH
    sgd_key, sde_key = jax.random.split(jax.random.key(0))
    curves = {
        "sgd": drawing.excess_risk(simulate(problem, sgd, start, d=d, alpha=alpha, runs=runs, key=sgd_key)),
        "sde": drawing.excess_risk(solve(sde(problem, sgd, d=d), start, alpha, runs=runs, steps=2_400, key=sde_key)),
        "ode": drawing.excess_risk(solve(ode(problem, sgd), start, alpha)),
    }
    exits = {name: drawing.exit_of(times, curve) for name, curve in curves.items()}
    data = xarray.Dataset(
        {
            "risk_sgd": (("run", "time"), curves["sgd"]),
            "risk_sde": (("path", "time"), curves["sde"]),
            "risk_ode": ("time", curves["ode"]),
            "exit_sgd": ("run", exits["sgd"]),
            "exit_sde": ("path", exits["sde"]),
            "exit_ode": ((), exits["ode"]),
        },
        coords={"time": times},
        attrs=drawing.settings(p=p, d=d),
    )
    return Reproduction(data, _draw_exits(data), _exit_claims(where, data))


def _draw_exits(data):
    """Left the risk; right the neighbourhood of the exit, and under it the exit times of all runs."""
    from matplotlib.figure import Figure

    looks = {"sgd": (SKY, "SGD"), "sde": (RED, "SDE"), "ode": (DARK, "ODE")}
    times, begin, end = data.time.values, float(data.risk_ode[0]), float(data.exit_ode)
    figure = Figure(figsize=(10.4, 4.2))
    axes = figure.subplot_mosaic([["risk", "near"], ["risk", "exits"]], height_ratios=(3, 1))
    for name, (colour, words) in looks.items():
        curve = data[f"risk_{name}"].values
        many = curve.ndim == 2
        label = f"{words}, {_DRAWN} of {len(curve)}" if many else words
        for panel in ("risk", "near"):
            look: dict[str, Any] = {"linewidth": 0.7, "alpha": 0.6} if many else {"zorder": 4}
            axes[panel].plot(times, curve[:_DRAWN].T if many else curve, color=colour, **look)
        axes["risk"].plot([], [], color=colour, label=label)
        found = np.atleast_1d(data[f"exit_{name}"].values)
        row = np.full(len(found), list(looks).index(name))
        if many:
            axes["exits"].plot(found, row, "|", color=colour, markersize=9, alpha=min(1.0, 40 / len(found)))
        axes["exits"].plot(found.mean(), row[0], "o", color=colour, markeredgecolor=DARK, markersize=7, zorder=5)
    axes["risk"].set(xlabel=CLOCK, ylabel="excess risk", xlim=(0, 3), title=f"p = {data.p}, d = {data.d:,}")
    axes["risk"].legend()
    level = (1 - THRESHOLD) * begin
    axes["near"].axhline(level, color="#444444", linewidth=1.0, linestyle="--", zorder=3)
    axes["near"].set(ylim=(level - 0.11 * begin, 1.01 * begin), title=f"exit: {THRESHOLD:.0%} below the start")
    axes["near"].sharex(axes["exits"])
    axes["near"].tick_params(labelbottom=False)
    for panel in ("near", "exits"):
        axes[panel].axvline(end, color=DARK, linewidth=1.0, linestyle=":", zorder=3)
    axes["exits"].set(xlabel=CLOCK, xlim=(0, 2.4 * end), ylim=(2.6, -0.6), yticks=range(3))
    axes["exits"].set_yticklabels([words for _, words in looks.values()])
    axes["exits"].grid(False)
    return figure


def _exit_claims(where: str, data) -> tuple[Claim, ...]:
    end = float(data.exit_ode)
    ratio, error = drawing.ratio_of_means(data.exit_sgd.values, end)
    at_exit = {name: data[f"risk_{name}"].interp(time=end).values for name in ("sgd", "sde")}
    errors = [drawing.error_of_deviation(sample) for sample in at_exit.values()]
    return (
        Claim(
            where=f"{where}, exit time",
            statement="The exit time does not change considerably with the noise: mean exit time of SGD over that of "
            "the ODE.",
            printed=1.0,
            ours=ratio,
            tolerance=CONSIDERABLE,
            remark=f"Measured {ratio:.3f} +- {error:.3f} from this start; runs spread by "
            f"{100 * error * data.sizes['run'] ** 0.5:.0f} %. {would_see(CONSIDERABLE, error)} Over random starts see "
            "Fig. 2.",
        ),
        Claim(
            where=f"{where}, variance",
            statement="The SDE captures the variance: standard deviation of its risk over that of SGD, at the exit of "
            "the ODE.",
            printed=1.0,
            ours=float(np.std(at_exit["sde"]) / np.std(at_exit["sgd"])),
            tolerance=_SPREAD,
            remark=would_see(_SPREAD, float(np.linalg.norm(errors))),
        ),
    )


@in_style
def fig2(size: Size) -> Reproduction:
    r"""Measured exit time over the formulas (28), annealed and quenched, against d, for several p.

    Random starts, learning_rate / p = 1/12, no noise. On the right, which the source does not have: the same over the
    ODE from random starts to which the noise of SGD on the plateau is added, as [`exit_time`] does. The exit is counted
    from the risk of the plateau, not of each start, a difference of order 1/d. Full size: p = 1, 2, 5, 10 and d up to
    3000, 1000 runs each, which takes some ten minutes; quick: p = 1, 3, d up to 400, 200 runs.
    """
    import xarray

    if size == "full":
        widths, dimensions, runs = (1, 2, 5, 10), (100, 300, 1_000, 3_000), 1_000
    else:
        widths, dimensions, runs = (1, 3), (100, 400), 200
    rate = 1 / 12
    keys = jax.random.split(jax.random.key(2), (len(widths), len(dimensions)))
    found = [
        [mean_exits(p, d, rate, THRESHOLD, runs, key=keys[i, j]) for j, d in enumerate(dimensions)]
        for i, p in enumerate(widths)
    ]
    data = xarray.Dataset(
        {name: (("width", "d"), [[cell[name] for cell in row] for row in found]) for name in found[0][0]},
        coords={"width": list(widths), "d": list(dimensions)},
        attrs=drawing.settings(rate_per_width=rate, noise=0.0, runs=runs),
    )
    return Reproduction(data, _draw_ratios(data), _ratio_claims(data))


def _draw_ratios(data):
    figure, axes = panels(1, 2)
    colours = (BLUE, RED, GREEN, PINK)
    for p, colour in zip(data.width.values, colours, strict=False):
        row = data.sel(width=p)
        for panel, name, marker, style in (
            (axes[0], "annealed", "s", "--"),
            (axes[0], "quenched", "o", "-"),
            (axes[1], "dressed", "D", "-"),
        ):
            ratio, error = row.measured / row[name], row.measured_error / row[name]
            label = f"p = {p}" if name != "annealed" else None
            panel.errorbar(
                row.d, ratio, error, color=colour, marker=marker, linestyle=style, linewidth=1.2, capsize=2,
                markeredgecolor="white", label=label,
            )  # fmt: skip
    for panel in axes:
        panel.axhline(1.0, color=DARK, linewidth=1.0, linestyle=":")
        panel.set(xscale="log", xlabel="dimension, $d$", ylim=(0.8, 1.5))
        panel.set_xticks(data.d.values, [f"{d:,}" for d in data.d.values])
        panel.minorticks_off()
    axes[0].plot([], [], "s--", color="#6B6B6B", label="annealed", linewidth=1.2)
    axes[0].plot([], [], "o-", color="#6B6B6B", label="quenched", linewidth=1.2)
    axes[0].set(ylabel="measured / predicted exit time", title="eq. (28), without the noise of SGD")
    axes[1].set(title="ODE from starts with that noise")
    for panel in axes:
        panel.legend(ncols=2)
    return figure


def _ratio_claims(data) -> tuple[Claim, ...]:
    """The stochasticity can be neglected: measured over quenched, at the largest d."""
    claims = []
    for p in data.width.values:
        row = data.sel(width=p).isel(d=-1)
        ratios = {name: float(row.measured / row[name]) for name in ("quenched", "dressed")}
        errors = {name: float(row.measured_error / row[name]) for name in ratios}
        claims.append(
            Claim(
                where=f"Fig. 2, p = {p}",
                statement="The stochasticity can be neglected: measured exit time over the quenched formula.",
                printed=1.0,
                ours=ratios["quenched"],
                tolerance=3 * errors["quenched"],
                remark=f"Three standard errors; measured {ratios['quenched']:.3f} +- {errors['quenched']:.3f} at "
                f"d = {int(row.d)}: a true deviation of {600 * errors['quenched']:.2g} % would have been seen. "
                f"Over the ODE from starts with the noise of the plateau it is "
                f"{ratios['dressed']:.3f} +- {errors['dressed']:.3f}. Where the quenched formula agrees, two errors "
                "cancel: without noise it is too long, and its linearisation at this threshold makes it too short.",
            )
        )
    return tuple(claims)
