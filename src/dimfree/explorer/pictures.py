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
from ..trajectory import Outcome
from .computations import Curves

if TYPE_CHECKING:
    import xarray

_MARK = "#444444"
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_EXIT_NAMES = {
    "formula, quenched": "formula, without SGD's noise",
    "formula, dressed": "formula",
    "ODE": "ODE, without SGD's noise",
    "ODE, dressed starts": "ODE with SGD's noise",
    "simulated": "simulated SGD",
}


def draw_curves(result: Curves) -> Any:
    """Risk and overlaps, theory as lines and simulations as dots; dashed, when each leaves the plateau."""
    margins = {"left": 0.055, "right": 0.995, "bottom": 0.12, "top": 0.93, "wspace": 0.14}
    left, right = plot.panels(2, size=(12.4, 4.7), margins=margins)
    runs = (result.theory, result.simulated)
    plot.compare(*runs, axes=left, log=result.settings.log)
    plot.compare(*runs, axes=right, quantity="M")
    if result.level is not None:
        for time, line in ((result.predicted, "--"), (np.median(result.measured), ":")):
            if np.isfinite(time):
                left.axvline(time, color=_MARK, linewidth=1.1, linestyle=line)
        left.axhline(result.level, color=_MARK, linewidth=0.7, alpha=0.5)
    left.set_title("Risk", loc="left")
    right.set_title("Overlaps of students with teachers", loc="left")
    return left.figure


def draw_exits(result: ExitTime) -> Any:
    """The fraction of runs that have left the plateau."""
    (axes,) = plot.panels(size=(9.0, 4.9))
    return plot.exit_times(result, axes=axes).figure


def draw_flow(result: Portrait, curves: Curves) -> Any:
    """The plane of overlaps, with the solution and the runs of the curves."""
    plane = len(result.plane) > 1
    (axes,) = plot.panels(size=(7.6, 6.0))
    shown = (curves.theory, curves.simulated) if plane else ()
    labels = ("ODE", f"SGD, {curves.simulated.runs} runs") if plane else ()
    return plot.flow(result, trajectories=shown, labels=labels, axes=axes).figure


def draw_regimes(result: RegimeMap) -> Any:
    """The plane of widths and learning rates."""
    (axes,) = plot.panels(size=(8.6, 5.8))
    return plot.regimes(result, axes=axes).figure


def draw_study(data: "xarray.Dataset", quantity: str | None, level: float | None) -> Any:
    """The phase diagram of a study."""
    (axes,) = plot.panels(size=(8.6, 5.8))
    return plot.phase_diagram(data, quantity, level=level, axes=axes).figure


def as_bytes(figure: Any, kind: str = "png") -> bytes:
    """A figure as a file."""
    file = io.BytesIO()
    figure.savefig(file, format=kind, dpi=110)
    return file.getvalue()


def as_html(figure: Any, description: str) -> str:
    """A figure inside the page, as wide as there is room for."""
    code = base64.b64encode(as_bytes(figure)).decode()
    return (
        f'<img class="dimfree-picture" alt="{html.escape(description)}" src="data:image/png;base64,{code}" '
        'style="max-width:100%;max-height:70vh;display:block;margin:0 auto"/>'
    )


def data_of(result: Curves) -> "xarray.Dataset":
    """Theory and simulation over the same alpha, as one Dataset."""
    theory, simulated = result.theory.to_xarray(), result.simulated.to_xarray()
    names = ["risk", "Q", "M"]
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
    if places <= 0:
        return f"{value:,.0f} ± {error:,.0f}"
    return f"{value:.{places}f} ± {error:.{places}f}"


def cards_of(result: Curves) -> list[tuple[str, str, str, str]]:
    """What is said above the curves: key, title, value, caption."""
    settings = result.settings
    left, runs = result.left, len(result.measured)
    never = f"not by α = {settings.alpha:g}"
    if result.level is None:
        exits = [("predicted", "Exit, theory", "–", "no plateau"), ("measured", "Exit, simulated", "–", "no plateau")]
    else:
        error = left.std(ddof=1) / len(left) ** 0.5 if len(left) > 1 else None
        some = f"{len(left)} of {runs} runs have left" if len(left) < runs else f"mean of {runs} runs"
        exits = [
            (
                "predicted",
                "Exit, theory",
                f"α = {number(result.predicted)}" if np.isfinite(result.predicted) else never,
                f"{number(result.predicted * settings.d)} samples" if np.isfinite(result.predicted) else "ODE",
            ),
            ("measured", "Exit, simulated", f"α = {with_error(left.mean(), error)}" if len(left) else never, some),
        ]
    completed = np.asarray(result.simulated.outcome) == Outcome.COMPLETED
    final = np.asarray(result.simulated.risk)[completed, -1]
    diverges = int(result.theory.outcome) == Outcome.DIVERGED
    return [
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
