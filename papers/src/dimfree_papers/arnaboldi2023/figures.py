"""Figures 3, 4 and 6: the second layer, the width, and the landscape."""

import jax
import jax.numpy as jnp
import numpy as np

from dimfree import Claim, OnlineSGD, PhaseRetrieval, Reproduction, State, ode, random_state, simulate, solve
from dimfree.papers import Size

from ..comparing import would_see
from ..drawing_style import BLUE, DARK, GREEN, RED, SKY, in_style, panels
from . import drawing
from .drawing import CLOCK, CONSIDERABLE, RATE_PER_WIDTH
from .weights import risk_of, tangent_hessian

_SECOND_LAYER = 0.05  # a relative change of the exit time that training the second layer may make


@in_style
def fig3(size: Size) -> Reproduction:
    r"""Growth of the largest overlap $\max_j |M_j|$, the second layer fixed at one and trained from one.

    Full size: d = 1000 with p = 20 and 50, as in the source, 16 runs; quick: d = 200 with p = 10 and 20, 8 runs. Both
    see the same samples. The second layer is trained with the learning rate of the first, divided by d. Full size takes
    minutes.
    """
    import xarray

    d, widths, runs = (1_000, (20, 50), 16) if size == "full" else (200, (10, 20), 8)
    level = 0.5
    times = np.linspace(0.0, 2.0, 401)
    largest, exits, claims = [], [], []
    figure, axes = panels(1, 2)
    for panel, p, key in zip(axes, widths, jax.random.split(jax.random.key(3)), strict=True):
        start_key, run_key = jax.random.split(key)
        problem = PhaseRetrieval(width=p)
        start = random_state(problem, d, key=start_key)
        growth = []
        # A rate of zero leaves the readout where it is, and needs no compilation of its own.
        for rate, look, words in ((0.0, (BLUE, "-"), "fixed"), (RATE_PER_WIDTH * p, (GREEN, "--"), "trained")):
            sgd = OnlineSGD(RATE_PER_WIDTH * p, sphere=True, readout_rate=rate)
            paths = simulate(problem, sgd, start, d=d, alpha=times / RATE_PER_WIDTH, runs=runs, key=run_key)
            growth.append(np.abs(np.asarray(paths.state.M)[..., 0]).max(axis=-1))
            panel.plot(times, growth[-1].T, color=look[0], linewidth=0.6, alpha=0.4)
            label = f"second layer {words}"
            panel.plot(times, growth[-1].mean(axis=0), color=look[0], linestyle=look[1], linewidth=2.4, label=label)
        fixed, trained = (drawing.first_crossing(times, curve, level) for curve in growth)
        panel.axhline(level, color="#444444", linewidth=1.0, linestyle=":")
        panel.set(xlabel=CLOCK, title=f"p = {p}, d = {d:,}, {runs} runs", ylim=(0, 1.02))
        largest.append(growth)
        exits.append((fixed, trained))
        ratio = float(np.mean(trained) / np.mean(fixed))
        apart = float(np.max(np.abs(growth[1].mean(axis=0) - growth[0].mean(axis=0))))
        # The runs are paired: both see the same samples.
        _, error = drawing.ratio_of_means(trained - ratio * fixed, float(np.mean(fixed)))
        claims.append(
            Claim(
                where=f"Fig. 3, p = {p}",
                statement="Training the second layer does not change the exit: ratio of the mean times.",
                printed=1.0,
                ours=ratio,
                tolerance=_SECOND_LAYER,
                remark=f"Exit where the largest overlap reaches {level}. Measured {ratio:.3f} +- {error:.3f}, from "
                f"runs that see the same samples. {would_see(_SECOND_LAYER, error)} The source sees the curves differ "
                f"far from the start; here the means are at most {apart:.3f} apart at any time.",
            )
        )
    axes[0].set_ylabel(r"largest overlap, $\max_j |M_j|$")
    axes[0].legend(loc="lower right")
    data = xarray.Dataset(
        {
            "largest_overlap": (("width", "second_layer", "run", "time"), np.asarray(largest)),
            "exit_time": (("width", "second_layer", "run"), np.asarray(exits)),
        },
        coords={"width": list(widths), "second_layer": ["fixed", "trained"], "time": times},
        attrs=drawing.settings(d=d, noise=0.0, level=level),
    )
    return Reproduction(data, figure, tuple(claims))


@in_style
def fig4(size: Size) -> Reproduction:
    """The ODE against many runs of SGD from one random start, p = 5 and p = 20.

    Full size: d = 5000, as in the source, which takes minutes; quick: d = 300. Both have 32 runs.
    """
    import xarray

    d, runs = 5_000 if size == "full" else 300, 32
    widths = (5, 20)
    times = np.linspace(0.0, 2.5, 251)
    alpha = times / RATE_PER_WIDTH
    measured, predicted, claims = [], [], []
    figure, axes = panels(1, 2)
    for panel, p, key in zip(axes, widths, jax.random.split(jax.random.key(4)), strict=True):
        start_key, run_key = jax.random.split(key)
        problem, sgd = drawing.stated(p)
        start = random_state(problem, d, key=start_key)
        theory = drawing.excess_risk(solve(ode(problem, sgd), start, alpha))
        curves = drawing.excess_risk(simulate(problem, sgd, start, d=d, alpha=alpha, runs=runs, key=run_key))
        mean = curves.mean(axis=0)
        panel.plot(times, curves.T, color=SKY, linewidth=0.7, alpha=0.6)
        panel.plot([], [], color=SKY, linewidth=1.2, label=f"SGD, {runs} runs")
        panel.plot(times[::10], mean[::10], "o", color=BLUE, markeredgecolor="white", label="SGD, their mean", zorder=5)
        panel.plot(times, theory, color=DARK, label="ODE", zorder=4)
        panel.set(xlabel=CLOCK, title=f"p = {p}, d = {d:,}")
        measured.append(curves)
        predicted.append(theory)
        ratio, error = drawing.ratio_of_means(drawing.exit_of(times, curves), float(drawing.exit_of(times, theory)))
        claims.append(
            Claim(
                where=f"Fig. 4, p = {p}",
                statement="The ODE describes SGD on average: mean exit time of the runs over that of the ODE.",
                printed=1.0,
                ours=ratio,
                tolerance=CONSIDERABLE,
                remark=f"Measured {ratio:.3f} +- {error:.3f}; the mean risk of the runs is at most "
                f"{np.max(np.abs(mean - theory)):.3f} from the ODE's. {would_see(CONSIDERABLE, error)}",
            )
        )
    axes[0].set_ylabel("excess risk")
    axes[1].legend()
    data = xarray.Dataset(
        {
            "risk_sgd": (("width", "run", "time"), np.asarray(measured)),
            "risk_ode": (("width", "time"), np.asarray(predicted)),
        },
        coords={"width": list(widths), "time": times},
        attrs=drawing.settings(d=d),
    )
    return Reproduction(data, figure, tuple(claims))


@in_style
def fig6(size: Size) -> Reproduction:
    r"""The risk on the sphere, p = 1, in three dimensions; and where random students start as d grows.

    Left: the excess risk $2 (1 - M^2)$ on the sphere. Right: the same against M, with the density of M that a random
    student has, proportional to $(1 - M^2)^{(d-3)/2}$: in high dimension all starts are on the plateau. Both sizes are
    the same.
    """
    import xarray
    from matplotlib.figure import Figure
    from scipy.special import gammaln

    problem = PhaseRetrieval()
    M = np.linspace(-1.0, 1.0, 401)
    states = State(Q=np.ones((401, 1, 1)), M=M[:, None, None], P=np.ones((401, 1, 1)))
    risk = np.asarray(problem.risk(states))
    dimensions = np.array([3, 30, 300, 3_000])
    power = (dimensions[:, None] - 3) / 2
    norm = gammaln(dimensions / 2) - gammaln((dimensions - 1) / 2) - 0.5 * np.log(np.pi)
    with np.errstate(divide="ignore", invalid="ignore"):
        shape = np.where(power > 0, power * np.log1p(-(M**2)), 0.0)
    density = np.exp(norm[:, None] + shape)

    figure = Figure(figsize=(10.4, 4.4))
    _draw_sphere(figure)
    axes = figure.add_subplot(1, 2, 2)
    axes.plot(M, risk, color=DARK, zorder=4, label="excess risk")
    for d, curve, colour in zip(dimensions, density, ("#EAF4FB", "#B9DCF2", SKY, BLUE), strict=True):
        axes.fill_between(M, 2 * curve / curve.max(), color=colour, linewidth=0, label=f"starts, d = {d:,}")
    axes.set(xlabel=r"overlap with the signal, $M$", ylabel="excess risk", ylim=(0, 3.1), yticks=[0, 0.5, 1, 1.5, 2])
    axes.legend(
        ncols=2, loc="upper center", fontsize=9, title="shaded: density of random starts, scaled", title_fontsize=9
    )
    data = xarray.Dataset({"risk": ("M", risk), "density": (("d", "M"), density)}, coords={"M": M, "d": dimensions})
    d, (w, signal) = 6, jnp.eye(6)[:2]
    eigenvalues = np.linalg.eigvalsh(tangent_hessian(lambda v: risk_of(v, signal), w))
    flat = float(np.sum(np.abs(eigenvalues) < 1e-8))
    return Reproduction(
        data,
        figure,
        (
            Claim(
                where="Fig. 6, flat directions",
                statement="At a start without overlap the Hessian on the sphere has d - 1 flat directions.",
                printed=d - 1.0,
                ours=flat,
                tolerance=1e-8,
                correction="d - 2 flat directions: the sphere has d - 1 directions, and one of them descends.",
                corrected=d - 2.0,
                remark="Counted by automatic differentiation on the tangent space, d = 6.",
            ),
            Claim(
                where="Fig. 6, negative direction",
                statement="and a single negative one, towards the signal.",
                printed=1.0,
                ours=float(np.sum(eigenvalues < -1e-8)),
                tolerance=1e-8,
            ),
        ),
    )


def _draw_sphere(figure) -> None:
    """The sphere in three dimensions, coloured by the risk, with the way down from the plateau."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    axes = figure.add_subplot(1, 2, 1, projection="3d", computed_zorder=False)
    azimuth, height = np.meshgrid(np.linspace(0, 2 * np.pi, 81), np.sin(np.linspace(-np.pi / 2, np.pi / 2, 61)))
    ring = np.sqrt(1 - height**2)
    shades = LinearSegmentedColormap.from_list("golf", ["#0B2E33", "#1F7A5C", "#CDE8B5"])
    axes.plot_surface(
        ring * np.cos(azimuth), ring * np.sin(azimuth), height, facecolors=shades(1 - height**2), rstride=1, cstride=1,
        linewidth=0, antialiased=False, shade=False, zorder=1,
    )  # fmt: skip
    elevation, view = 28.0, -60.0
    axes.view_init(elevation, view)
    around = np.radians(np.linspace(view - 88, view + 88, 100))
    axes.plot(np.cos(around), np.sin(around), 0 * around, color=RED, linewidth=1.6, zorder=3)
    for turn in (-50.0, 0.0, 50.0):
        climb = np.linspace(0.1, 1.2, 40)
        way = np.radians(view + turn)
        path = np.cos(climb) * np.cos(way), np.cos(climb) * np.sin(way), np.sin(climb)
        axes.plot(*path, color="white", linewidth=1.3, zorder=3)
        axes.plot(*(part[-1:] for part in path), marker="^", color="white", markersize=5, zorder=3)
    axes.plot([0], [0], [1.0], "o", color="white", markeredgecolor=DARK, markersize=8, zorder=4)
    axes.text(0, 0, 1.22, r"$w_*$", ha="center", va="center", zorder=4)
    axes.text(1.25 * np.cos(around[50]), 1.25 * np.sin(around[50]), -0.22, "plateau, $M = 0$", color=RED, ha="center")
    axes.set_box_aspect((1, 1, 1), zoom=1.35)
    axes.set_axis_off()
    scale = ScalarMappable(Normalize(0, 2), shades)
    figure.colorbar(scale, ax=axes, label="excess risk", shrink=0.6, pad=0.0, location="left", ticks=[0, 1, 2])
