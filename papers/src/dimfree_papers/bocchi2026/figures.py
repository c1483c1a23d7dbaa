r"""The figures.

Times are on the source's clock, $t = \eta \alpha$ with $\eta$ half of our learning rate, and risks are the source's,
twice ours. Sizes that the source does not state are said in each docstring.
"""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from dimfree import Claim, OnlineSGD, Reproduction, State, simulate, solve
from dimfree.papers import Size
from dimfree.quadratic import (
    closest_solution,
    conserved_frame,
    degrees_of_freedom,
    late_risk,
    solution_manifold_dimension,
)

from ..comparing import would_see
from ..drawing_style import BLUE, DARK, GREEN, GREY, PINK, RED, in_style, panels, shades
from .conventions import CLOCK, gaussian_start, limit, network, orthonormal_start, random_start, source_risk
from .solutions import (
    fastest_growth,
    minimum,
    printed_degrees,
    printed_dimension,
    rank_of_functions,
    rank_of_rotations,
)

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure


def _whole_numbers(axes: "matplotlib.axes.Axes") -> None:
    """Ticks at whole widths only."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


@in_style
def fig1(size: Size) -> Reproduction:
    """The ODE and the mean of runs of SGD from one start, p = 6 and k = 3: overlaps, norms and error.

    Full size: d = 10^4, learning rate 0.02 (0.01 in the source's convention) and ten runs, as in the source; quick:
    d = 200, learning rate 0.06 and 32 runs, since the noise is larger.
    """
    import xarray

    p, k = 6, 3
    d, eta, runs = (10_000, 0.01, 10) if size == "full" else (200, 0.03, 32)
    times = np.linspace(0.0, 20.0, 201)
    problem, start = network(p, k), orthonormal_start(p, k, d, seed=1)
    theory = solve(limit(p, k, eta), start, times / eta)
    sgd = simulate(problem, OnlineSGD(2 * eta), start, d, times / eta, runs=runs, key=jax.random.key(2))
    upper = np.triu_indices(p, k=1)

    def entries(state: State) -> dict[str, np.ndarray]:
        Q, M = np.asarray(state.Q), np.asarray(state.M)
        return {
            "teacher_overlap": M.reshape(*M.shape[:-2], -1),
            "student_overlap": Q[..., upper[0], upper[1]],
            "norm": np.diagonal(Q, axis1=-2, axis2=-1),
            "risk": np.asarray(source_risk(problem, state))[..., None],
        }

    solved, simulated = entries(theory.state), entries(sgd.state)
    data = xarray.Dataset(
        {name: (("time", f"{name}_index"), value) for name, value in solved.items()}
        | {f"{name}_sgd": (("run", "time", f"{name}_index"), value) for name, value in simulated.items()},
        coords={"time": times},
        attrs={"p": p, "k": k, "d": d, "eta": eta},
    )
    labels = {
        "teacher_overlap": r"teacher-student overlaps $M_{jr}$",
        "student_overlap": r"student-student overlaps $Q_{jl}$, $j \neq l$",
        "norm": r"student norms $Q_{jj}$",
        "risk": r"generalisation error, 2 $\times$ risk",
    }
    figure, shown = panels(2, 2, height=3.8)
    for axes, (name, label) in zip(shown, labels.items(), strict=True):
        runs_of = data[f"{name}_sgd"].values
        mean, error = runs_of.mean(axis=0), runs_of.std(axis=0, ddof=1) / runs**0.5
        for index, colour in enumerate(shades(mean.shape[-1]) if name != "risk" else [BLUE]):
            axes.plot(times, data[name][:, index], color=colour, linewidth=1.5)
            axes.plot(times, mean[:, index], color=DARK, linestyle=(0, (3, 3)), linewidth=0.9)
            band = (mean[:, index] - error[:, index], mean[:, index] + error[:, index])
            axes.fill_between(times, *band, color=colour, alpha=0.25, linewidth=0)
        axes.set(xlabel=CLOCK, ylabel=label)
    levels = {"norm": p / (p + 2), "risk": 1 + 2 / k - p / (p + 2)}
    for axes, (name, level) in zip(shown[2:], levels.items(), strict=True):
        axes.axhline(level, color=RED, linewidth=1.0, linestyle=":", label=f"plateau, {level:.3g}")
        axes.legend(loc="upper left" if name == "norm" else "upper right")
    shown[0].plot([], [], color=shades(3)[1], label="ODE")
    shown[0].plot([], [], color=DARK, linestyle=(0, (3, 3)), linewidth=0.9, label=f"SGD, mean of {runs} and its error")
    figure.suptitle(rf"p = {p}, k = {k}, $\eta$ = {eta}, d = {d:,}", x=0.01, ha="left", fontsize=12)
    figure.legend(*shown[0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return Reproduction(data, figure, _fig1_claims(data, levels["norm"]))


# How far the mean of runs may be from the ODE, as a fraction of the largest value in a panel. Students find each other
# late, and at small d not all runs do at the same time; the risk does not see it.
_ALLOWED = {"teacher_overlap": 0.15, "student_overlap": 0.25, "norm": 0.1, "risk": 0.05}


def _size(values: np.ndarray) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(values**2)))


def _fig1_claims(data, plateau_norm: float) -> tuple[Claim, ...]:
    norms = data.norm_sgd.sel(time=slice(None, 10.0)).mean(("run", "norm_index"))
    return (
        *(_fig1_panel(data, name, letter) for name, letter in zip(_ALLOWED, "abcd", strict=True)),
        Claim(
            where="Fig. 1, norm learning",
            statement="Norms first settle near p / (p + 2): the lowest mean norm before the students learn.",
            printed=plateau_norm,
            ours=float(norms.min()),
            tolerance=0.1,
            remark="Overlaps with the teacher are not negligible by then at small d, and raise it.",
        ),
        Claim(
            where="Fig. 1, zero error",
            statement="The error vanishes at the end, as a fraction of its start.",
            printed=0.0,
            ours=float(data.risk_sgd[:, -1].mean() / data.risk[0, 0]),
            tolerance=0.02,
            remark="It falls as t^-2, not exponentially, since p > k.",
        ),
    )


def _fig1_panel(data, name: str, letter: str) -> Claim:
    """Each panel is compared with an error and a tolerance of its own."""
    runs, theory = data[f"{name}_sgd"].values, data[name].values
    largest = np.abs(theory).max()
    error = _size(runs.std(axis=0, ddof=1)) / len(runs) ** 0.5 / largest
    return Claim(
        where=f"Fig. 1({letter}), ODE and SGD",
        statement="The mean of the runs follows the ODE: distance of the two, root mean square over times and entries, "
        "over the largest value.",
        printed=0.0,
        ours=_size(runs.mean(axis=0) - theory) / largest,
        tolerance=_ALLOWED[name],
        remark=would_see(_ALLOWED[name], error),
    )


@in_style
def fig2(size: Size) -> Reproduction:
    r"""Left: samples until the error is half of its start against the learning rate, p = k = 3. Right: the best rate.

    Overlaps start at 0.01 times normal numbers, and 20 starts are averaged over, as in the source. Full size: widths 3
    to 10; quick: 3, 5 and 8, and fewer rates. In addition the closed forms: the rate of fastest growth on the plateau,
    and the largest rate at which solutions are stable, $p k / (4 (k + 2))$ in the source's convention.
    """
    import xarray

    k, starts = 3, 20
    widths = list(range(3, 11)) if size == "full" else [3, 5, 8]
    fractions = np.linspace(0.15, 0.95, 41 if size == "full" else 13)
    largest = {p: p * k / (4 * (k + 2)) for p in widths}
    samples = _samples_to_half(widths, k, [largest[p] * fractions for p in widths], starts)
    best = _best_rates(samples, fractions, np.asarray(list(largest.values())))
    closed = [fastest_growth(p, k) for p in widths]
    data = xarray.Dataset(
        {
            "samples_to_half": (("width", "fraction", "start"), np.asarray(samples)),
            "best_rate": ("width", best),
            "fastest_growth": ("width", np.asarray(closed)),
            "largest_rate": ("width", list(largest.values())),
        },
        coords={"width": widths, "fraction": fractions},
        attrs={"k": k, "overlap": 0.01},
    )
    figure, (left, right) = panels(1, 2, height=3.8)
    every_start = np.isfinite(samples[0]).all(axis=1)  # gets to half of its error
    learned, curves = largest[3] * fractions[every_start], samples[0][every_start]
    mean, error = curves.mean(axis=1), curves.std(axis=1, ddof=1) / starts**0.5
    left.errorbar(
        learned, mean, error, fmt="o-", color=BLUE, markersize=4, linewidth=1.2, label="ODE, mean of 20 starts"
    )
    left.plot(best[0], np.interp(best[0], learned, mean), "D", color=DARK, markersize=7, label="best")
    left.axvline(largest[3], color=RED, linewidth=1.2, linestyle=":", label="no stable solution beyond")
    left.set(
        xlabel=r"$\eta$ = learning rate / 2", ylabel=r"$\alpha_c$, samples / $d$ to half the error", ylim=(0, None)
    )
    left.set_title("p = k = 3")
    left.legend(loc="lower left")
    right.plot(data.width, data.best_rate, "o", color=BLUE, label="best, ODE")
    right.plot(data.width, data.fastest_growth, color=DARK, label="fastest growth on the plateau")
    right.plot(data.width, data.largest_rate, color=RED, linestyle=":", label="no stable solution beyond")
    right.set(xlabel="student width p", ylabel=r"best $\eta$", title=f"k = {k}", ylim=(0, None))
    _whole_numbers(right)
    right.legend(loc="lower right")
    return Reproduction(data, figure, _fig2_claims(data))


def _samples_to_half(widths: list[int], k: int, rates: list[np.ndarray], starts: int) -> np.ndarray:
    """The alpha at which the error is half of its start, by width, rate and start; infinite where it never is.

    A student of width p is one of width P with P - p students of weight zero, which stay zero, if the weights of the
    others are multiplied by (P/p)^1/2 and the learning rate by P/p. So one compilation does for all widths.
    """
    widest = max(widths)

    @jax.jit
    def one(p, eta, key):
        students = jnp.where(jnp.arange(widest) < p, jnp.sqrt(widest / p), 0.0)
        M = 0.01 * jax.random.normal(key, (widest, k)) * students[:, None]
        start = State(Q=jnp.diag(students**2), M=M)
        # On this clock every start gets there before 10, most before 4.
        path = solve(
            limit(widest, k, eta * widest / p),
            start,
            jnp.linspace(0.0, 12.0, 301) * p / eta,
            relative_tolerance=1e-6,
            absolute_tolerance=1e-8,
            max_steps=4_000,
        )
        ahead = path.risk - 0.5 * path.risk[0]
        after = jnp.argmax(ahead <= 0)
        crossing = path.alpha[after] - (path.alpha[1] - path.alpha[0]) * ahead[after] / (
            ahead[after] - ahead[after - 1]
        )
        return jnp.where(after > 0, crossing, jnp.inf)

    keys = jax.random.split(jax.random.key(3), starts)
    cells = [(float(p), eta, key) for p, row in zip(widths, rates, strict=True) for eta in row for key in keys]
    found = jax.vmap(one)(*(jnp.stack([jnp.asarray(value) for value in column]) for column in zip(*cells, strict=True)))
    return np.asarray(found).reshape(len(widths), -1, starts)


def _best_rates(samples: np.ndarray, fractions: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """The rate at which the mean over starts is least, by width; samples by width, rate and start."""
    means = np.mean(samples, axis=-1)
    return np.array([rate * minimum(fractions, mean) for rate, mean in zip(largest, means, strict=True)])


def _bend(width: np.ndarray, best: np.ndarray) -> float:
    """How steeply the best rate grows over the wider half of the widths, over the same for the narrower half."""
    middle = len(width) // 2
    low, high = (np.diff(best[part])[0] / np.diff(width[part])[0] for part in ([0, middle], [middle, -1]))
    return float(high / low)


def _fig2_claims(data) -> tuple[Claim, ...]:
    width, best = data.width.values, data.best_rate.values
    samples, starts = data.samples_to_half.values, data.sizes["start"]
    bend, tolerance = _bend(width, best), 0.15
    without = [
        _bend(width, _best_rates(np.delete(samples, start, axis=-1), data.fraction.values, data.largest_rate.values))
        for start in range(starts)
    ]
    error = float(np.std(without) * (starts - 1) ** 0.5)  # jackknife over the starts
    return (
        Claim(
            where="Fig. 2, linear trend",
            statement="The best learning rate grows linearly with the width: its growth per neuron in the wider half "
            "of the widths over that in the narrower half.",
            printed=1.0,
            ours=bend,
            tolerance=tolerance,
            remark=f"Measured {bend:.3f} +- {error:.3f}. {would_see(tolerance, error)} Growth like the square root of "
            f"p would give {_bend(width, np.sqrt(width)):.2f}.",
        ),
        Claim(
            where="Fig. 2, proportional to p",
            statement="The best learning rate over p does not depend on p: as a multiple of that at p = k = 3.",
            printed=np.ones_like(best),
            ours=best / width / (best[0] / width[0]),
            tolerance=0.1,
            remark=f"eta / p is {best[0] / width[0]:.3f} at p = {width[0]} and {best[-1] / width[-1]:.3f} at p = "
            f"{width[-1]}. For the growth on the plateau alone the best eta / p rises on, past the largest stable one.",
        ),
    )


@in_style
def fig3(size: Size) -> Reproduction:
    """Distance of M to the solution predicted from one start, for that start and for others; and their errors.

    p = 6, k = 3, learning rate 0.02 (0.01 in the source's convention), overlaps of 0.01 at the start, as in the source.
    Full size: 20 other starts; quick: 8.
    """
    import xarray

    p, k, eta, others = 6, 3, 0.01, 20 if size == "full" else 8
    times = np.concatenate([[0.0], np.geomspace(0.05, 300.0, 120)])
    problem, equation = network(p, k), limit(p, k, eta)
    starts = jax.vmap(lambda key: gaussian_start(p, k, 0.01, key))(jax.random.split(jax.random.key(4), 1 + others))
    paths = jax.vmap(lambda start: solve(equation, start, jnp.asarray(times / eta)).state)(starts)
    predicted = closest_solution(problem, State(Q=starts.Q[0], M=starts.M[0]))
    distance = np.linalg.norm(np.asarray(paths.M - predicted.M), axis=(-2, -1))
    data = xarray.Dataset(
        {
            "distance": (("start", "time"), distance),
            "risk": (("start", "time"), np.asarray(source_risk(problem, paths))),
        },
        coords={"time": times},
        attrs={"p": p, "k": k, "eta": eta, "overlap": 0.01},
    )
    figure, (left, right) = panels(1, 2, height=3.8)
    for axes, name in ((left, "distance"), (right, "risk")):
        axes.plot(times, data[name][1:].T, color=GREY, linewidth=1.1)
        axes.plot(times, data[name][0], color=DARK, linewidth=2.2)
        axes.set(xlabel=CLOCK, xscale="log", yscale="log")
    left.plot([], [], color=DARK, linewidth=2.2, label="from the start of the prediction")
    left.plot([], [], color=GREY, label="from other starts")
    late = times > 30
    law = 2 * late_risk(equation, times[late] / eta)
    right.plot(times[late], law, color=RED, linestyle="--", linewidth=1.6, label=r"$t^{-2}$, closed form")
    left.set_ylabel(r"distance of $M$ to the predicted solution")
    right.set_ylabel(r"generalisation error, 2 $\times$ risk")
    left.legend(loc="lower left")
    right.legend(loc="lower left")
    claims = (
        Claim(
            where="Fig. 3, predicted solution",
            statement="The start ends at the solution predicted from it: distance at the end, over that at the start.",
            printed=0.0,
            ours=float(distance[0, -1] / distance[0, 0]),
            tolerance=2e-3,
            remark="It shrinks as 1/t, since p > k.",
        ),
        Claim(
            where="Fig. 3, other starts",
            statement="Other starts end at a finite distance from it: 1 if all stay further than half the start's.",
            printed=1.0,
            ours=float(np.all(distance[1:, -1] > 0.5 * distance[0, 0])),
            tolerance=0.0,
        ),
        Claim(
            where="Fig. 3, zero error",
            statement="All starts end at zero error, as a fraction of the start's.",
            printed=np.zeros(1 + others),
            ours=np.asarray(data.risk[:, -1] / data.risk[:, 0]),
            tolerance=1e-5,
        ),
    )
    return Reproduction(data, figure, claims)


@in_style
def fig4(size: Size) -> Reproduction:
    """The entries of the frame S along the ODE from orthogonal students; and how far it moves from other starts.

    p = 6, k = 3, learning rate 0.02 (0.01 in the source's convention), overlaps of 0.01; quick and full are the same.
    The source has the left panel, without its sizes. The right one is ours: random students are not orthogonal, and S
    moves.
    """
    import xarray

    p, k, eta = 6, 3, 0.01
    times = np.linspace(0.0, 40.0, 121)
    starts = {"orthogonal students": gaussian_start(p, k, 0.01, jax.random.key(5))}
    for d in (10_000, 1_000, 100):
        starts[f"random students, d = {d:,}"] = random_start(p, k, d, seed=6)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts.values())
    equation = limit(p, k, eta)
    paths = jax.vmap(lambda start: solve(equation, start, jnp.asarray(times / eta), relative_tolerance=1e-10).state)(
        stacked
    )
    frames = np.asarray(conserved_frame(paths))
    moved = np.abs(frames - frames[:, :1]).max(axis=(-2, -1))
    data = xarray.Dataset(
        {"frame": (("start", "time", "student", "teacher"), frames), "moved": (("start", "time"), moved)},
        coords={"start": list(starts), "time": times},
        attrs={"p": p, "k": k, "eta": eta, "overlap": 0.01},
    )
    figure, (left, right) = panels(1, 2, height=3.8)
    for curve, colour in zip(frames[0].reshape(len(times), -1).T, shades(p * k), strict=True):
        left.plot(times, curve, color=colour, linewidth=1.4)
    left.set(xlabel=CLOCK, ylabel=r"entries of $S = M (M^T M)^{-1/2}$", title="orthogonal students")
    for curve, name, colour in zip(moved, starts, (BLUE, GREEN, RED, PINK), strict=True):
        right.plot(times, np.maximum(curve, 1e-17), color=colour, label=name)
    right.set(xlabel=CLOCK, ylabel=r"$\max\,|S(t) - S(0)|$", yscale="log", ylim=(1e-17, 10))
    right.set_yticks([1e-16, 1e-12, 1e-8, 1e-4, 1e0])
    right.legend(loc="center right")
    claims = (
        Claim(
            where="Fig. 4",
            statement="From orthogonal students the entries of S do not move: largest change.",
            printed=0.0,
            ours=float(moved[0].max()),
            tolerance=1e-8,
        ),
        Claim(
            where="Fig. 4, any start",
            statement="S is conserved from any start: largest change for random students, d = 10^4, 10^3 and 100.",
            printed=np.zeros(3),
            ours=moved[1:].max(axis=1),
            tolerance=1e-3,
            remark="The source shows orthogonal students, and says that small overlaps leave the behaviour unchanged.",
        ),
    )
    return Reproduction(data, figure, claims)


@in_style
def fig5(size: Size) -> Reproduction:
    """Degrees of freedom of the student against its width: the formula, and ranks of the map from weights to functions.

    The source does not state the dimension. Full size: d = 20; quick: d = 8.
    """
    import xarray

    d = 20 if size == "full" else 8
    widths = np.arange(1, 3 * d // 2 + 1)
    ranks = [rank_of_functions(int(p), d) for p in widths]
    data = xarray.Dataset(
        {
            "formula": ("width", [degrees_of_freedom(int(p), d) for p in widths]),
            "rank": ("width", ranks),
        },
        coords={"width": widths},
        attrs={"d": d},
    )
    figure, (axes,) = panels(1, 1, height=3.8)
    axes.axhline(d * (d + 1) / 2, color=GREY, linestyle="--", linewidth=1.2, label=r"$d(d+1)/2$")
    axes.plot(widths, data.formula, color=BLUE, label="formula")
    axes.plot(widths, data["rank"], "o", color=DARK, markersize=4.5, label="rank, numerically")
    axes.set(xlabel="student width p", ylabel="degrees of freedom", title=f"d = {d}", ylim=(0, None))
    _whole_numbers(axes)
    axes.legend(loc="lower right")
    claim = Claim(
        where="Fig. 5, section 7.5.1",
        statement="N p - p(p - 1)/2 degrees of freedom for p <= N, and N(N + 1)/2 beyond.",
        printed=[printed_degrees(int(p), d) for p in widths],
        ours=ranks,
        tolerance=0.0,
    )
    return Reproduction(data, figure, (claim,))


@in_style
def fig6(size: Size) -> Reproduction:
    """Dimension of the set of solutions against the student's width: the formula, and ranks of rotations of a solution.

    The source does not state the sizes. Full size: d = 20 and k = 1, 2, 5, 10; quick: d = 8 and k = 1, 2, 4.
    """
    import xarray

    d, teachers = (20, (1, 2, 5, 10)) if size == "full" else (8, (1, 2, 4))
    widths = np.arange(1, 2 * teachers[-1] + 1)
    formula = np.full((len(teachers), len(widths)), np.nan)
    ranks, printed = formula.copy(), formula.copy()
    for row, k in enumerate(teachers):
        for column, p in enumerate(widths):
            if p >= k:
                formula[row, column] = solution_manifold_dimension(int(p), k, d)
                ranks[row, column] = rank_of_rotations(int(p), k, d)
                printed[row, column] = printed_dimension(int(p), k)
    data = xarray.Dataset(
        {"formula": (("teacher_width", "width"), formula), "rank": (("teacher_width", "width"), ranks)},
        coords={"teacher_width": list(teachers), "width": widths},
        attrs={"d": d},
    )
    figure, (axes,) = panels(1, 1, height=3.8)
    for row, k in enumerate(teachers):
        (line,) = axes.plot(widths, formula[row], label=f"k = {k}")
        axes.plot(widths, ranks[row], "o", color=line.get_color(), markersize=4.5)
    axes.plot([], [], "o", color=DARK, markersize=4.5, label="rank, numerically")
    axes.set(xlabel="student width p", ylabel="dimension of the solutions", title=f"d = {d}")
    _whole_numbers(axes)
    axes.legend(loc="upper left")
    there = np.isfinite(formula)
    claim = Claim(
        where="Fig. 6, section 7.5.2",
        statement="The solutions have dimension p(p - 1)/2 - (p - k)(p - k - 1)/2.",
        printed=printed[there],
        ours=ranks[there],
        tolerance=0.0,
    )
    return Reproduction(data, figure, (claim,))
