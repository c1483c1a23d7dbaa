"""From results to pictures, files and words."""

import base64
import html
import io
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import plot
from ..analysis.exit_times import ExitTime
from ..analysis.portrait import Portrait
from ..analysis.regimes import LIMITS, RegimeMap
from ..analysis.uncertainty import standard_error
from ..plot.compare import FEW
from ..trajectory import Outcome
from .computations import Curves, Schedules, learning_rates
from .settings import Settings

if TYPE_CHECKING:
    import xarray

_MARK, _THEORY, _RUNS = "#444444", "#0072B2", "#D55E00"
_SCHEDULES = {"as chosen": ("#777777", "-"), "best constant": (_THEORY, "--"), "best schedule": (_RUNS, "-")}
_OVERLAP = 1.5  # beyond what a student that learns has
_SCREEN = 200  # pixels to the inch of a file: sharp on a phone, and when zoomed
_SHOWN = 135  # of them on a wide page
# Inches: text of 10 points is legible on a page as narrow as a phone's.
_PANEL_WIDTH, _PANEL_HEIGHT = 4.2, 4.6
_MANY = 12  # with more points at rest than this they are drawn small
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_EXIT_NAMES = {
    "formula, quenched": "formula, without SGD's noise",
    "formula, dressed": "formula",
    "ODE": "ODE, without SGD's noise",
    "ODE, dressed starts": "ODE with SGD's noise",
    "simulated": "simulated SGD",
}


def draw_curves(result: Curves) -> Any:
    """Risk (or accuracy) and overlaps, theory as lines, simulations as dots; dashed, when each leaves the plateau."""
    left, right = _two_panels(bottom=0.3)
    quantity = result.settings.quantity
    of_risk = quantity == "risk"
    plot.compare(result.theory, result.simulated, axes=left, quantity=quantity, log=result.settings.log and of_risk)
    plot.compare(result.theory, result.matched, axes=right, quantity="M")
    named = right.get_legend()
    assert named is not None
    # The last of the legend are the entries of M, with their colours.
    entries = [(line, text.get_text()) for line, text in zip(named.legend_handles, named.get_texts(), strict=True)][2:]
    marks = []
    if result.level is not None and of_risk:
        for time, line, words in (
            (result.predicted, "--", "the ODE has left"),
            (np.median(result.measured), ":", "the median run has left"),
        ):
            if np.isfinite(time):
                marks.append((left.axvline(time, color=_MARK, linewidth=1.3, linestyle=line), words))
        marks.append((left.axhline(result.level, color=_MARK, linewidth=0.9, alpha=0.5), "escape threshold"))
    if result.remark:
        # What diverges sets no scale; a student that learns has overlaps of about one.
        low, high = right.get_ylim()
        right.set_ylim(min(low, -_OVERLAP), max(high, _OVERLAP))
    _legend(left, [*_kinds(left, result, _THEORY, _RUNS), *marks], columns=2)
    _legend(right, [*_kinds(right, result, _MARK, _MARK), *entries], columns=2 if len(entries) < 3 else 3)
    left.set_title(quantity.capitalize(), loc="left")
    right.set_title("Overlaps of students with teachers", loc="left")
    return left.figure


def _two_panels(bottom: float) -> list[Any]:
    """Two panels with room for legends below them; each half is a picture, which a narrow page puts below the other."""
    # Fixed, since to find room for labels takes as long as to draw; the widest are powers of ten.
    edge, room = 0.109, 0.008
    margins = {
        "left": edge,
        "right": 1 - room,
        "bottom": bottom,
        "top": 0.93,
        "wspace": 2 * (edge + room) / (1 - 2 * edge - 2 * room),
    }
    return plot.panels(2, size=(2 * _PANEL_WIDTH, _PANEL_HEIGHT), margins=margins)


def _kinds(axes: Any, result: Curves, theory: str, runs: str) -> list[tuple[Any, str]]:
    """What is drawn of the ODE and of the runs, with its name."""
    completed, diverged = _counts(result)
    (line,) = axes.plot([], [], color=theory, linewidth=1.9)
    found: list[tuple[Any, str]] = [(line, "ODE")]
    if completed:
        (dots,) = axes.plot([], [], color=runs, linestyle="none", marker="o", markersize=6.5, markeredgecolor="white")
        band = axes.fill_between([], [], [], color=runs, alpha=0.2, linewidth=0)
        found.append(((band, dots) if completed >= FEW else dots, f"SGD, {_runs(completed)}"))
    if diverged:
        (thin,) = axes.plot([], [], color=runs, linewidth=0.8, alpha=0.7, marker="x", markersize=7)
        found.append((thin, f"SGD, {_runs(diverged)} that diverge{'s' if diverged == 1 else ''}"))
    return found


def _legend(axes: Any, named: list[tuple[Any, str]], columns: int) -> None:
    """Below the axes, where it covers no curve."""
    handles, words = zip(*named, strict=True)
    axes.legend(
        handles, words, ncols=columns, loc="upper center", bbox_to_anchor=(0.365, -0.17), frameon=False, fontsize=10,
        columnspacing=1.2, handlelength=1.9, borderaxespad=0.0,
    )  # fmt: skip


def _counts(result: Curves) -> tuple[int, int]:
    """How many runs completed, and how many did not."""
    completed = int(np.sum(np.asarray(result.simulated.outcome) == Outcome.COMPLETED))
    return completed, len(result.measured) - completed


def _runs(number: int) -> str:
    return f"{number} run" if number == 1 else f"{number} runs"


def caption_of(result: Curves, *, each: bool = True) -> str:
    """What lines and dots are; `each`: whether runs that diverge are drawn."""
    completed, diverged = _counts(result)
    words = ["Lines are the ODE, the limit of SGD as the dimension grows."]
    if completed:
        band = ", with a band from the 10% to the 90% quantile" if completed >= FEW else ""
        words.append(f"Dots are the mean of {_runs(completed)} of SGD itself in dimension d, exact in law{band}.")
    if diverged and each:
        words.append(
            f"Thin lines are single runs of SGD, the {diverged} that diverge, each up to the cross where it ends; what "
            "grows without bound leaves the picture."
        )
    elif diverged:
        words.append(f"{_runs(diverged)} of SGD diverged and cannot be drawn.")
    words.append("All start from the same random students.")
    median = np.median(result.measured)
    times = {"the dashed line for the ODE": result.predicted, "the dotted one for the median run": median}
    drawn = [name for name, time in times.items() if np.isfinite(time)]
    if drawn and result.settings.quantity == "risk":
        words.append(
            "SGD has left the plateau when the risk has fallen below the thin grey line: in the picture of the risk "
            f"{' and '.join(drawn)}."
        )
    if result.renamed:
        other, done = "other roles", "named"
        if result.settings.even:
            other, done = ("another rotation", "rotated") if result.settings.rotated else ("other signs", "signed")
        words.append(
            f"In {_runs(result.renamed)} the noise chose {other} of the students than the ODE, which makes no "
            f"difference to the risk; in the picture of overlaps they are {done} as in the ODE."
        )
    return " ".join([*words, result.note]).strip()


def draw_exits(result: ExitTime) -> Any:
    """The fraction of runs that have left the plateau."""
    (axes,) = plot.panels(size=(4.8, 3.8))
    return plot.exit_times(result, axes=axes).figure


def draw_flow(result: Portrait, curves: Curves) -> Any:
    """The plane of overlaps, with the solution and the runs of the curves."""
    plane = len(result.plane) > 1
    (axes,) = plot.panels(size=(4.8, 4.4))
    shown = (curves.theory, curves.simulated) if plane else ()
    labels = ("ODE", f"SGD, {curves.simulated.runs} runs") if plane else ()
    plot.flow(result, trajectories=shown, labels=labels, axes=axes)
    if is_crowded(result):
        for line in axes.lines:
            if line.get_marker() == "o":
                line.set(markersize=3.5, markeredgewidth=1.0)
    old = axes.get_legend()
    if plane and old is not None:
        (start,) = axes.plot([], [], color=_RUNS, linestyle="none", marker="s", markersize=5)
        handles = [*old.legend_handles[:2], start, *old.legend_handles[2:]]
        words = [text.get_text() for text in old.get_texts()]
        axes.legend(
            handles, [*words[:2], "start", *words[2:]], loc="lower left", bbox_to_anchor=(-0.05, 1.0), ncols=3,
            borderaxespad=0.2, frameon=False, fontsize=9.5, columnspacing=1.0, handlelength=1.6,
        )  # fmt: skip
    return axes.figure


def draw_schedules(curves: Curves, found: Schedules | None) -> Any:
    """The learning rate and the risk over alpha: as chosen, and the best constant and schedule once they are found."""
    left, right = _two_panels(bottom=0.26)
    drawn = {"as chosen": (curves.settings.algorithm, curves.theory), **({} if found is None else found.paths)}
    for words, (algorithm, path) in drawn.items():
        colour, line = _SCHEDULES[words]
        rates = learning_rates(algorithm, path.alpha)
        for axes, values in ((left, rates), (right, path.risk)):
            axes.plot(path.alpha, np.asarray(values), color=colour, linestyle=line, linewidth=1.9, label=words)
    if curves.settings.log:
        right.set_yscale("log")
    left.set_ylim(bottom=0.0)
    for axes, title in ((left, "Learning rate"), (right, "Risk")):
        axes.set(xlabel=r"$\alpha$ = samples / $d$", ylabel=title.lower())
        axes.set_title(title, loc="left")
        lines, words = axes.get_legend_handles_labels()
        _legend(axes, list(zip(lines, words, strict=True)), columns=2)
    return left.figure


def schedule_caption(found: Schedules) -> str:
    """What the search found, and whether simulations agree."""
    best = found.protocol
    checked = best.verification
    assert checked is not None
    (knots,) = (len(times) for times in best.times.values() if times is not None)
    gain = with_error(checked.gain, checked.gain_error)
    words = [
        f"All lines are the ODE; the best schedule is linear between {knots} times. In {checked.runs} pairs of runs of "
        f"SGD itself at d = {checked.d:,} the risk at the end is lower by {gain} with the best schedule than with the "
        f"best constant; theory predicts {number(checked.predicted_gain)}."
    ]
    if not checked.holds:
        words.append("This is **not a gain** by three standard errors.")
    if not best.optimal:
        words.append(f"The search ended with a residual of {number(best.residual)}; at an optimum it is 0.")
    return " ".join(words)


def schedule_rows(curves: Curves, found: Schedules | None) -> list[dict[str, str]]:
    """The table of schedules: the risk at the end, by theory and in runs."""
    completed = np.asarray(curves.simulated.outcome) == Outcome.COMPLETED
    ends = np.asarray(curves.simulated.risk)[completed, -1]
    simulated = {"as chosen": with_error(float(ends.mean()), standard_error(ends)) if len(ends) else "diverges"}
    paths = {"as chosen": curves.theory}
    if found is not None and (checked := found.protocol.verification) is not None:
        floor = float(found.protocol.problem.irreducible_risk)
        simulated["best constant"] = with_error(checked.constant + floor, checked.constant_error)
        simulated["best schedule"] = with_error(checked.best + floor, checked.best_error)
        paths |= {name: path for name, (_, path) in found.paths.items()}
    return [
        {
            "schedule": name,
            "risk at the end, ODE": number(float(path.risk[-1])),
            f"simulated, d = {curves.settings.d:,}": simulated[name],
        }
        for name, path in paths.items()
    ]


def is_crowded(result: Portrait) -> bool:
    """Whether there are so many points at rest that they must belong together."""
    return len(result.rest) > _MANY


def flow_caption(result: Portrait, settings: Settings) -> str:
    """What lines and dots of the plane are."""
    words = [
        "Solutions of the ODE from a grid of starts, projected on a plane of two overlaps (for one overlap: the drift "
        "over it). Filled dots are stable fixed points; open dots are unstable. The square is the start of the "
        "coloured lines."
    ]
    if is_crowded(result):
        words.append("The many small dots are samples of continuous families of points at rest, not points apart.")
        if settings.rotated:
            words.append(
                "Through squares, students that are rotated among themselves are the same network: if one is at rest, "
                "so are all of them."
            )
    return " ".join(words)


def regimes_caption(result: RegimeMap) -> str:
    """What is drawn in the plane of widths and learning rates."""
    return (
        f"The map holds for d = {result.d:,} up to time = learning rate x alpha / p = {result.time:.2g}. Dotted lines "
        "are the expected error of the risk; on the dashed line the learning rate is p."
    )


def draw_regimes(result: RegimeMap) -> Any:
    """The plane of widths and learning rates; what the title would say stands below it."""
    (axes,) = plot.panels(size=(4.8, 4.2))
    plot.regimes(result, axes=axes).set_title("", loc="left")
    return axes.figure


def draw_study(data: "xarray.Dataset", quantity: str | None = None, level: float | None = None) -> Any:
    """The phase diagram of a study."""
    (axes,) = plot.panels(size=(4.8, 3.9))
    return plot.phase_diagram(data, quantity, level=level, axes=axes).figure


def as_bytes(figure: Any, kind: str = "png") -> bytes:
    """A figure as a file to take home, with all that is in it."""
    file = io.BytesIO()
    figure.savefig(file, format=kind, dpi=_SCREEN, bbox_inches="tight", pad_inches=0.1)
    return file.getvalue()


def as_html(figure: Any, description: str) -> str:
    """A figure inside the page, its panels side by side or, where there is no room, below each other.

    Every panel is the whole file, of which it shows its part: a figure is drawn once.
    """
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_SCREEN)
    code = base64.b64encode(file.getvalue()).decode()
    panels = sum(axes.get_label() != "<colorbar>" for axes in figure.axes)
    width, height = figure.get_size_inches() / (panels, 1)
    widest = f"min(100%,{width * _SHOWN:.0f}px,{70 * width / height:.0f}vh)"
    shown = "".join(
        f'<img class="dimfree-picture" alt="{html.escape(description)}{words}" src="data:image/png;base64,{code}" '
        f'style="aspect-ratio:{width:g}/{height:g};max-width:{widest};object-position:{place:.0%} 0"/>'
        for place, words in ([(0, "")] if panels == 1 else [(0, ": left panel"), (1, ": right panel")])
    )
    return f'<div class="dimfree-pictures">{shown}</div>'


def data_of(result: Curves) -> "xarray.Dataset":
    """Theory and simulation over the same alpha, as one Dataset."""
    observed = ["accuracy"] if result.settings.quantity == "accuracy" else []
    theory, simulated = result.theory.to_xarray(observed), result.simulated.to_xarray(observed)
    names = ["risk", *observed, "Q", "M"]
    renamed = simulated[names].rename({name: f"simulated_{name}" for name in names})
    return theory[names].merge(renamed, combine_attrs="override")


def as_netcdf(data: "xarray.Dataset") -> bytes:
    """A Dataset as a NetCDF file."""
    return bytes(data.to_netcdf(engine="scipy") or b"")


def flow_data(result: Portrait) -> "xarray.Dataset":
    """Solutions in the plane, and points at rest with the growth there."""
    import xarray

    return xarray.Dataset(
        {
            "path": (("start", "time", "coordinate"), result.paths),
            "rest": (("point", "coordinate"), result.rest),
            "growth": ("point", result.growth),
        },
        coords={"coordinate": list(result.plane)},
    )


def regimes_data(result: RegimeMap) -> "xarray.Dataset":
    """The expected error of each limit."""
    import xarray

    return xarray.Dataset(
        {"expected_error": ("limit", [result.expected[name] for name in LIMITS])},
        coords={"limit": list(LIMITS)},
        attrs={"recommended": result.recommended, "p": result.p, "d": result.d, "rate": result.learning_rate},
    )


# Words.


def number(value: float | None) -> str:
    """A number as it is read aloud: three digits."""
    if value is None or not np.isfinite(value):
        return "–"
    if 1000 <= abs(value) < 1e7:
        return f"{value:,.0f}"
    digits, _, power = f"{value:.3g}".partition("e")
    return f"{digits} · 10{str(int(power)).translate(_RAISED)}" if power else digits


def with_error(value: float, error: float | None) -> str:
    """A number and its standard error, which has one digit (two if the first is a one)."""
    if error is None or not np.isfinite(error) or error <= 0:
        return number(value)
    places = -int(np.floor(np.log10(error)))
    places += round(error * 10**places, 1) < 2
    if abs(value) < 1e-4:
        return f"{number(value)} ± {number(float(f'{error:.1g}'))}"
    if places <= 0:
        return f"{value:,.0f} ± {error:,.0f}"
    return f"{value:.{places}f} ± {error:.{places}f}"


def cards_of(result: Curves) -> list[tuple[str, str, str, str]]:
    """What is said above the curves: key, title, value, caption."""
    settings = result.settings
    left, runs = result.left, len(result.measured)
    never = f"not by α = {settings.alpha:g}"
    if result.level is None:
        why = "no plateau" if settings.is_plain else "known for plain SGD"
        exits = [("predicted", "Exit, theory", "–", why), ("measured", "Exit, simulated", "–", why)]
    else:
        some = f"{len(left)} of {runs} runs have left" if len(left) < runs else f"mean of {runs} runs"
        exits = [
            (
                "predicted",
                "Exit, theory",
                f"α = {number(result.predicted)}" if np.isfinite(result.predicted) else never,
                f"{number(result.predicted * settings.d)} samples" if np.isfinite(result.predicted) else "ODE",
            ),
            (
                "measured",
                "Exit, simulated",
                f"α = {with_error(left.mean(), standard_error(left))}" if len(left) else never,
                some,
            ),
        ]
    completed = np.asarray(result.simulated.outcome) == Outcome.COMPLETED
    final = np.asarray(result.simulated.risk)[completed, -1]
    diverges = int(result.theory.outcome) == Outcome.DIVERGED
    found = [
        *exits,
        (
            "plateau",
            "Risk on the plateau",
            number(result.plateau_risk),
            "" if result.level is None else f"has left below {number(result.level)}",
        ),
        (
            "final",
            "Risk at the end",
            "diverges" if diverges else number(float(result.theory.risk[-1])),
            f"theory; simulated {number(float(final.mean())) if len(final) else 'too'}",
        ),
    ]
    if settings.choice.classifies:
        network = result.theory.problem
        theory, runs = (network.mean("accuracy", each.final) for each in (result.theory, result.simulated))
        final = np.asarray(runs)[completed]
        words = f"theory; simulated {number(float(final.mean()))}" if len(final) else "theory"
        found.append(("accuracy", "Accuracy at the end", "diverges" if diverges else number(float(theory)), words))
    return found


def exit_rows(result: ExitTime) -> list[dict[str, str]]:
    """The table of exit times."""
    rows = []
    for row in result.rows():
        if row["description"] not in _EXIT_NAMES:
            continue  # for those who ask dimfree.exit_time itself
        low, high = row.get("quantile_10"), row.get("quantile_90")
        rows.append(
            {
                "description": _EXIT_NAMES[row["description"]],
                "mean exit, α": with_error(row["mean"], row["error"]),
                "10% – 90%": "" if low is None else f"{number(low)} – {number(high)}",
                "samples": number(row["mean"] * result.d),
                "stay": f"{row['stay']:.0%}" if row.get("stay") is not None else "",
            }
        )
    return rows


def regime_rows(result: RegimeMap) -> list[dict[str, str]]:
    """The table of the limits."""
    return [
        {
            "limit": name + ("  ← use this" if name == result.recommended else ""),
            "cost": cost,
            "expected error of the risk": number(result.expected[name]),
        }
        for name, cost in LIMITS.items()
    ]


def two_axes_of(data: "xarray.Dataset") -> tuple["xarray.Dataset", dict[str, Any]]:
    """The study at the first value of every axis after the second, and those values."""
    dims = [str(name) for name in data.status.dims]
    further = {name: data[name].values[0] for name in dims[2:]}
    return data.isel(dict.fromkeys(further, 0)), further


def what_was_chosen(chosen: dict[str, Any]) -> str:
    """What is said where a study has more axes than two."""
    if not chosen:
        return ""
    values = ", ".join(f"{name} = {value}" for name, value in chosen.items())
    return f"The study has more than two axes; it is drawn at {values}."
