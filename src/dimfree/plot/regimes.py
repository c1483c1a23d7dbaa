"""The plane of widths and learning rates, with the limit that applies to each."""

from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from scipy.ndimage import distance_transform_edt

from ..analysis.regimes import LIMITS, RegimeMap
from ..errors import InvalidInput
from ..printing import in_a_line
from .drawing_style import in_style

_COLOURS = {
    "mean field": "#E9C46A",
    "dimension-free": "#8FC7B0",
    "gradient flow": "#9DC3E6",
    "ODE": "#D9A5B3",
}
_NONE = "#E6E6E6"
_POINTS = 240


def regimes(result: RegimeMap, *, axes: Axes | None = None) -> Axes:
    r"""The limit to use for every width $p = d^\kappa$ and learning rate $d^{-\delta}$, at the dimension of a result.

    Colours are the recommended limits, the cheapest that are about as good as the best; contours are the expected
    error of the recommended one; the dot is the result's own width and rate. Grey is where the best of them is off by
    as much as the risk itself.

    **Arguments:**

    - `result`: from [`regimes`].
    - `axes`: matplotlib axes to draw in; new ones if left out.

    **Returns:** the axes.
    """
    if not isinstance(result, RegimeMap):
        raise InvalidInput(f"plot.regimes was given {in_a_line(result)}; pass what dimfree.regimes(...) gives.")
    log_d = np.log(result.d)
    own = np.log(result.p) / log_d, -np.log(result.learning_rate) / log_d
    kappa = np.linspace(0.0, max(2.0, 1.1 * own[0]), _POINTS)
    delta = np.linspace(min(-1.0, own[1] - 0.2), max(1.0, own[1] + 0.2), _POINTS)
    widths, rates = np.meshgrid(result.d**kappa, result.d**-delta)
    noise = rates / (widths * result.batch_size)
    chosen = result.scales.recommended(widths, result.d, noise)
    best = np.take_along_axis(
        np.stack(list(result.scales.errors(widths, result.d, noise).values())), chosen[None], axis=0
    )[0]
    with in_style():
        if axes is None:
            _, axes = plt.subplots(figsize=(6.6, 4.8))
        axes.grid(visible=False)
        painted = np.where(best < result.scales.risk, chosen, len(LIMITS))
        axes.pcolormesh(
            kappa,
            delta,
            painted,
            cmap=ListedColormap([*(_COLOURS[name] for name in LIMITS), _NONE]),
            vmin=-0.5,
            vmax=len(LIMITS) + 0.5,
            rasterized=True,
        )
        _name_regions(axes, kappa, delta, painted)
        levels = 10.0 ** np.arange(np.floor(np.log10(best.min())), np.log10(result.scales.risk))
        lines = axes.contour(kappa, delta, best, levels=levels, colors="#555555", linewidths=0.7, linestyles="dotted")
        axes.clabel(lines, fmt=lambda level: f"$10^{{{np.log10(level):.0f}}}$", fontsize=8)
        axes.plot(kappa, -kappa, color="#444444", linewidth=1.0, linestyle="--")
        axes.set_ylim(delta[0], delta[-1])
        axes.set_xlim(kappa[0], kappa[-1])
        axes.plot(*own, marker="o", markersize=9, color="#D55E00", markeredgecolor="white", linestyle="none", zorder=5)
        axes.annotate(
            f"p = {result.p}, rate {result.learning_rate:.3g}",
            own,
            xytext=(10, -18),
            textcoords="offset points",
            bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
            fontsize=10,
            color="#8A3C00",
            zorder=5,
        )
        axes.set_xlabel(r"width: $\kappa = \log p \,/ \log d$")
        axes.set_ylabel(r"learning rate: $\delta = -\log(\mathrm{rate}) \,/ \log d$")
        axes.set_title(f"d = {result.d:,}, time = {result.time:.2g}; dashed: rate = p; dotted: error of the risk")
    return axes


def _name_regions(axes: Axes, kappa: Any, delta: Any, painted: np.ndarray) -> None:
    """A name in the middle of each region that has room for one."""
    for index, name in enumerate([*LIMITS, "none"]):
        inside = painted == index
        if inside.mean() < 0.02:
            continue
        # The point of the region that is farthest from its edge.
        depth: Any = distance_transform_edt(np.pad(inside, 1))
        row, column = np.unravel_index(np.argmax(depth[1:-1, 1:-1]), inside.shape)
        axes.text(kappa[column], delta[row], name, ha="center", va="center", fontsize=11, color="#222222")
