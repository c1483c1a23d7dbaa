"""A quantity of a study over one or two of its axes, with its uncertainty."""

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.mathtext import MathTextParser

from ..errors import InvalidInput
from .drawing_style import in_style

if TYPE_CHECKING:
    import xarray

_LABELS = {"algorithm.learning_rate": "learning rate", "problem.noise": "noise (variance)", "d": "$d$"}
_LINES = ("-", "--", ":", "-.")
_LINE_COLOURS = ("#D55E00", "#E69F00", "#CC79A7", "#56B4E9")
_MISSING = "#DDDDDD"
_FAILED = "#222222"


def phase_diagram(
    data: "xarray.Dataset",
    quantity: str | None = None,
    *,
    level: float | None = None,
    lines: Mapping[str, tuple[Any, Any]] | None = None,
    axes: Axes | None = None,
) -> Axes:
    """A quantity of a study over its axes: as a curve with a band for one axis, as a map for two.

    Cells that are not there yet are grey, and those that failed black. Where the quantity has a standard error, the
    band of a curve is two of them; in a map, white dots mark cells that are within two of the `level`, so that the
    line through them is that uncertain.

    **Arguments:**

    - `data`: from [`open_study`]; of a study with more than two axes, a selection, `data.sel(...)` or `data.isel(...)`.
    - `quantity`: its name; the first of the study if left out.
    - `level`: draw the line on which the quantity has this value.
    - `lines`: named curves to draw over it, such as a predicted boundary: a pair of arrays each, first axis and second.
    - `axes`: matplotlib axes to draw in; new ones if left out.

    **Returns:** the axes.
    """
    data, quantity = _checked(data, quantity)
    values = data[quantity]
    scattered = values.dims == ("cell",)
    names = [str(name) for name in (data.coords if scattered else values.dims)]
    if not scattered:
        data = data.sortby([name for name in names if _is_numeric(data[name].values)])
    error = data.get(f"{quantity}_error")
    with in_style():
        if axes is None:
            _, axes = plt.subplots(figsize=(6.4, 4.6))
        if len(names) == 1:
            _curve(axes, data, names[0], quantity, error, level)
        elif scattered:
            _scatter(axes, data, names, quantity)
        else:
            _map(axes, data, names, quantity, error, level)
        handles = []
        looks = itertools.cycle(zip(_LINE_COLOURS, _LINES, strict=True))
        for (name, (x, y)), (colour, line) in zip((lines or {}).items(), looks, strict=False):
            x, y = np.asarray(x, float), np.asarray(y, float)
            axes.plot(x, y, color=colour, linestyle=line, linewidth=2.2, zorder=5, scalex=False, scaley=False)
            handles.append(Line2D([], [], color=colour, linestyle=line, linewidth=2.2, label=name))
        if level is not None and len(names) == 2 and not scattered:
            handles.append(
                Line2D([], [], color="white", linewidth=1.5, label=f"{quantity.replace('_', ' ')} = {level:g}")
            )
        axes.set_xlabel(_LABELS.get(names[0], names[0]))
        if handles:
            legend = axes.legend(handles=handles, frameon=True, framealpha=0.85, fontsize=9)
            legend.get_frame().set_facecolor("#BBBBBB")
        if title := data.attrs.get("title"):
            axes.set_title(title, parse_math=_is_math(title))
    return axes


def _checked(data: Any, quantity: str | None) -> "tuple[xarray.Dataset, str]":
    """The study without axes that have one value only, and the quantity to draw."""
    if "status" not in getattr(data, "data_vars", {}):
        raise InvalidInput(
            f"phase_diagram was given {data!r:.60}; pass the results of a study, dimfree.open_study(path)."
        )
    data = data.squeeze()
    known = [str(name) for name in data.data_vars if name != "status" and not str(name).endswith("_error")]
    if quantity is None:
        preferred = [name for name in ("left", "risk", "components") if name in known]
        quantity = (preferred or known)[0]
    if quantity not in known:
        raise InvalidInput(f"quantity = {quantity!r} was given; the study has {', '.join(known)}.")
    dims = data[quantity].dims
    if len(dims) > 2:
        raise InvalidInput(
            f"The study has {len(dims)} axes, {', '.join(map(str, dims))}; draw two of them: "
            f"data.isel({{{str(dims[-1])!r}: 0}})."
        )
    if not dims:
        raise InvalidInput("There is one cell only; nothing to draw.")
    return data, quantity


def _curve(axes: Axes, data: Any, name: str, quantity: str, error: Any, level: float | None) -> None:
    order = np.argsort(data[name].values)
    x, y = data[name].values[order], data[quantity].values[order]
    axes.plot(x, y, marker="o", markersize=3.5)
    if error is not None:
        spread = 2 * error.values[order]
        axes.fill_between(x, y - spread, y + spread, alpha=0.25, linewidth=0)
    if level is not None:
        axes.axhline(level, color="#444444", linewidth=0.9)
    axes.set_ylabel(quantity.replace("_", " "))


def _map(axes: Axes, data: Any, names: list[str], quantity: str, error: Any, level: float | None) -> None:
    x, y = (_positions(data, name) for name in names)
    values = np.array(data[quantity].values, float).T
    status = data.status.values.T
    axes.set_facecolor(_MISSING)
    axes.grid(False)
    mesh = axes.pcolormesh(x, y, np.ma.masked_invalid(values), cmap="viridis", shading="nearest")
    axes.figure.colorbar(mesh, ax=axes, label=quantity.replace("_", " "))
    failed = np.ma.masked_where(status < 2, np.ones_like(values))
    if not failed.mask.all():
        axes.pcolormesh(x, y, failed, cmap=_one_colour(_FAILED), shading="nearest")
    for axis, name in zip((axes.set_xscale, axes.set_yscale), names, strict=True):
        if _is_logarithmic(data[name].values):
            axis("log")
    for axis, name in zip((axes.xaxis, axes.yaxis), names, strict=True):
        if not _is_numeric(data[name].values):
            axis.set_ticks(_positions(data, name), [str(value) for value in data[name].values])
    known = values[np.isfinite(values)]
    if level is not None and known.size and known.min() < level < known.max():
        axes.contour(
            x, y, np.where(np.isnan(values), known.mean(), values), levels=[level], colors="white", linewidths=1.5
        )
        if error is not None:
            unsure = np.abs(values - level) < 2 * error.values.T
            rows, columns = np.nonzero(unsure)
            axes.plot(x[columns], y[rows], ".", color="white", markersize=2.0, alpha=0.7, linestyle="none")
    axes.set_ylabel(_LABELS.get(names[1], names[1]))


def _scatter(axes: Axes, data: Any, names: list[str], quantity: str) -> None:
    x, y, values = (np.asarray(data[name].values, float) for name in (*names[:2], quantity))
    axes.grid(False)
    good = np.isfinite(values)
    if good.sum() >= 3:
        axes.tripcolor(x[good], y[good], values[good], cmap="viridis", shading="gouraud", alpha=0.55)
    points = axes.scatter(x, y, c=values, cmap="viridis", s=9, edgecolors="white", linewidths=0.3, zorder=3)
    axes.figure.colorbar(points, ax=axes, label=quantity.replace("_", " "))
    axes.set_ylabel(_LABELS.get(names[1], names[1]))


def _positions(data: Any, name: str) -> np.ndarray:
    values = data[name].values
    return values.astype(float) if _is_numeric(values) else np.arange(len(values), dtype=float)


def _is_numeric(values: np.ndarray) -> bool:
    """Whether an axis has a scale; names and what is true or false are drawn side by side."""
    return values.dtype.kind in "if"


def _is_logarithmic(values: np.ndarray) -> bool:
    """Whether values are evenly spaced on a logarithmic scale, and not on a linear one."""
    if not _is_numeric(values) or len(values) < 3 or values.min() <= 0:
        return False
    steps = np.diff(np.log(values))
    return bool(np.ptp(steps) < 1e-6 * np.abs(steps).max() and values.max() > 3 * values.min())


def _is_math(text: str) -> bool:
    """Whether what is between dollar signs can be set as a formula; a title may have them as they are."""
    try:
        MathTextParser("agg").parse(text)
    except ValueError:
        return False
    return True


def _one_colour(colour: str) -> Any:
    from matplotlib.colors import ListedColormap

    return ListedColormap([colour])
