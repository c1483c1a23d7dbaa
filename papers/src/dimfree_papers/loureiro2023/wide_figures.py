"""Figure 4: wide networks, whose overlaps among students are those of what each knows of the teachers."""

import jax
import numpy as np
from jaxtyping import Float

from dimfree import Claim, OnlineSGD, Reproduction, State, TwoLayer, gradient_flow, mean_field, simulate, solve
from dimfree.papers import Size

from ..comparing import sobol_normals
from ..drawing_style import BLUE, DARK, RED, in_style, panels
from .conventions import CLOCK, committee

K, END, RATE = 2, 2.0, 0.2
_VANISHING = 1e-6


@in_style
def fig4(size: Size) -> Reproduction:
    r"""The reduction $Q = M P^{-1} M^\top + \mathrm{diag}(q_\perp)$ in wide networks: how fast it becomes exact.

    (a) The largest overlap of different students outside the teachers' span at t = 2, gradient flow from a start where
    there is none, against p. (b) What runs of SGD in dimension d have more of it than gradient flow, root mean square,
    against d at fixed p; their starts have it too. (c) The risk of gradient flow at two widths, and of the reduced
    equation at the larger. Erf, k = 2, overlaps M at the start normal numbers of deviation 0.6.

    Full size: p up to 128, d up to 3200 with p = 32, which takes minutes; quick: p up to 32, d up to 1600 with p = 8.
    """
    import xarray

    if size == "full":
        widths, dimensions, narrow, runs = (8, 16, 32, 64, 128), (200, 800, 3_200), 32, 4
    else:
        widths, dimensions, narrow, runs = (8, 16, 32), (100, 400, 1_600), 8, 8
    times = np.linspace(0.0, END, 41)
    paths = {p: solve(gradient_flow(*_setting(p)), even_start(p), times * p / RATE) for p in widths}
    left = [np.abs(outside(path.final)).max() for path in paths.values()]
    problem, sgd = _setting(narrow)
    spread, without = [], outside(paths[narrow].final)
    for d, key in zip(dimensions, jax.random.split(jax.random.key(14), len(dimensions)), strict=True):
        starts = _random_starts(narrow, d, runs)
        final = simulate(problem, sgd, starts, d, times[[0, -1]] * narrow / RATE, runs=runs, key=key).final
        spread.append(np.sqrt(np.mean((outside(final) - without) ** 2) * narrow / (narrow - 1)))
    reduced = reduced_risk(widths[-1], times)
    shown = (widths[0], widths[-1])
    data = xarray.Dataset(
        {
            "largest": ("width", np.array(left)),
            "spread": ("d", np.array(spread)),
            "risk": (("shown", "time"), np.array([np.asarray(paths[p].risk) for p in shown])),
            "risk_reduced": ("time", reduced),
        },
        coords={"width": list(widths), "d": list(dimensions), "shown": list(shown), "time": times},
        attrs={"k": K, "learning_rate": RATE, "width_of_runs": narrow, "runs": runs},
    )
    return Reproduction(data, _draw(data), _claims(data))


def _setting(p: int) -> tuple[TwoLayer, OnlineSGD]:
    return committee(p, K), OnlineSGD(RATE)


def even_start(p: int) -> State:
    """Students whose knowledge of the teachers is spread evenly over a normal law, and whose rest is orthogonal."""
    M = 0.6 * sobol_normals(p, K, np.random.default_rng(0))
    return State(Q=M @ M.T + 0.5 * np.eye(p), M=M)


def _random_starts(p: int, d: int, runs: int) -> State:
    """The same in dimension d: the rest of each student has a random direction orthogonal to the teachers."""
    M = np.asarray(even_start(p).M)
    rest = np.random.default_rng(d).normal(size=(runs, p, d - K))
    rest /= np.linalg.norm(rest, axis=-1, keepdims=True)
    Q = M @ M.T + 0.5 * rest @ np.swapaxes(rest, 1, 2)
    return State(Q=Q, M=np.broadcast_to(M, (runs, p, K)))


def outside(state: State) -> Float[np.ndarray, "*batch p p"]:
    """Overlaps of different students outside the teachers' span (orthonormal teachers)."""
    Q, M = np.asarray(state.Q), np.asarray(state.M)
    left = Q - M @ np.swapaxes(M, -1, -2)
    return left * (1 - np.eye(Q.shape[-1]))


def reduced_risk(p: int, times: Float[np.ndarray, " times"]) -> Float[np.ndarray, " times"]:
    """The risk over time if Q is M M^T + diag(q) at all times, q moving with the norms."""
    problem, _ = _setting(p)
    # Of steps so small nothing of second order is left, as in gradient flow.
    slow = OnlineSGD(RATE * _VANISHING)
    path = solve(mean_field(problem, slow), even_start(p), times * p / slow.learning_rate)
    return np.asarray(path.risk)


def _draw(data):
    figure, (first, second, third) = panels(1, 3, width=4.6)
    figure.set_layout_engine("constrained", w_pad=0.15)  # inches: the labels on the left are as long as the panels
    first.loglog(data.width, data.largest, "o-", color=BLUE, label="gradient flow")
    scale = float(data.largest[0] * data.width[0])
    first.loglog(data.width, scale / data.width, color=DARK, linestyle=":", label=r"$1/p$")
    root = float(data.largest[0] * data.width[0] ** 0.5)
    first.loglog(data.width, root / data.width**0.5, color=RED, linestyle="--", label=r"$p^{-1/2}$, the bound")
    first.set(xlabel="width, $p$", ylabel=r"largest $|Q - M P^{-1} M^\top|_{jl}$, $j \neq l$")
    first.set_title(f"(a) width, t = {END:g}")
    first.set_xticks(data.width.values, [str(p) for p in data.width.values])
    second.loglog(data.d, data.spread, "o", color=BLUE, label=f"SGD, p = {data.width_of_runs}, {data.runs} runs")
    middle = float((data.spread * data.d**0.5).mean())
    second.loglog(data.d, middle / data.d**0.5, color=DARK, linestyle=":", label=r"$d^{-1/2}$")
    second.set(xlabel="dimension, $d$", ylabel="its excess over gradient flow, rms")
    second.set_title(f"(b) dimension, t = {END:g}")
    second.set_xticks(data.d.values, [f"{d:,}" for d in data.d.values])
    for p, colour in zip(data.shown.values, (BLUE, DARK), strict=True):
        third.plot(data.time, data.risk.sel(shown=p), color=colour, label=f"gradient flow, p = {p}")
    third.plot(data.time, data.risk_reduced, color=RED, linestyle="--", label=f"reduced, p = {data.shown.values[-1]}")
    third.set(yscale="log", xlabel=CLOCK, ylabel="risk")
    third.set_title("(c) risk")
    for axes in (first, second):
        axes.xaxis.minorticks_off()
    for axes in (first, second, third):
        axes.legend()
    return figure


def _claims(data) -> tuple[Claim, ...]:
    in_p = float(np.polyfit(np.log(data.width), np.log(data.largest), 1)[0])
    in_d = float(np.polyfit(np.log(data.d), np.log(data.spread), 1)[0])
    wide = data.risk.isel(shown=-1)
    return (
        Claim(
            '"Mean-field + high-d", rate in p',
            "The distance of Q from its reduction falls at least as p^-1/2: whether it does.",
            1.0,
            float(in_p <= -0.5),
            0.0,
            remark=f"Measured power {in_p:.2f}: without noise and finite d it falls as 1/p, faster than the bound.",
        ),
        Claim(
            '"Mean-field + high-d", rate in d',
            "What a finite d adds to it falls as d^-1/2: the measured power.",
            -0.5,
            in_d,
            0.15,
            remark=f"Runs of SGD with p = {data.width_of_runs}, less gradient flow at the same p.",
        ),
        Claim(
            '"Mean-field + high-d", reduced equation',
            "The reduced equation describes the network: its risk over that of gradient flow at the largest p, t = 2.",
            1.0,
            float(data.risk_reduced[-1] / wide[-1]),
            0.15,
        ),
    )
