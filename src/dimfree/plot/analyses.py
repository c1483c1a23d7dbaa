"""Pictures of analyses: the distance of simulation from theory, SGD on data, spectra of Hessians."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from ..checking import CheckResult
from ..data import DataComparison
from ..errors import InvalidInput
from ..printing import in_a_line
from .drawing_style import in_style

if TYPE_CHECKING:
    from ..analysis import HessianSpectrum


def distances(result: CheckResult, *, axes: Axes | None = None) -> Axes:
    """The distance of simulated SGD from its ODE for each d, beside the rate at which it must fall at least.

    **Arguments:**

    - `result`: from [`check`].
    - `axes`: matplotlib axes to draw on; a new figure if left out.

    **Returns:** the axes.
    """
    if not isinstance(result, CheckResult):
        raise InvalidInput(f"plot.distances was given {in_a_line(result)}; pass what dimfree.check(...) gives.")
    d, values = np.asarray(result.dimensions, float), np.asarray(result.distances)
    with in_style():
        axes = plt.subplots()[1] if axes is None else axes
        middle = np.exp(np.mean(np.log(values * np.sqrt(d))))
        axes.loglog(d, middle / np.sqrt(d), "-", label=r"$d^{-1/2}$")
        axes.loglog(d, values, "o", color="#222222", label=f"simulated, slope {result.slope:.2f}")
        axes.set(xlabel="d", ylabel=f"largest distance up to alpha = {result.alpha:g}")
        axes.set_title("Theory and simulation agree" if result.agrees else "Theory and simulation do NOT agree")
        axes.legend()
    return axes


_DESCRIPTIONS = {
    "theory": ("theory", "#0072B2", "-"),
    "gaussian": ("Gaussian inputs", "#56B4E9", "--"),
    "gaussian_set": ("Gaussian set", "#009E73", "-."),
    "data": ("data", "#D55E00", "o"),
}


def data(result: DataComparison, *, axes: Axes | None = None) -> Axes:
    """The risk of SGD on data, with one standard deviation between runs, beside that on Gaussian inputs and theory.

    Alpha is logarithmic where the saved times are spread over more than a decade; the start is then at the left edge.

    **Arguments:**

    - `result`: from [`from_data`].
    - `axes`: matplotlib axes to draw on; a new figure if left out.

    **Returns:** the axes.
    """
    if not isinstance(result, DataComparison):
        raise InvalidInput(f"plot.data was given {in_a_line(result)}; pass what dimfree.from_data(...) gives.")
    alpha = result.alpha.copy()
    steps = np.diff(alpha)
    logarithmic = steps.max() > 10 * steps.min()
    if logarithmic and alpha[0] == 0:
        alpha[0] = alpha[1] ** 2 / alpha[2] if len(alpha) > 2 else alpha[1] / 10
    with in_style():
        axes = plt.subplots()[1] if axes is None else axes
        for name, values in result.risks.items():
            words, colour, line = _DESCRIPTIONS[name]
            mean = result.means[name][0]
            if name == "data":
                spread = np.nanstd(values, axis=0, ddof=1)
                axes.fill_between(alpha, mean - spread, mean + spread, color=colour, alpha=0.2, linewidth=0)
                axes.plot(alpha, mean, line + "-", color=colour, linewidth=1.2, markersize=4, label=words, zorder=3)
            else:
                axes.plot(alpha, mean, line, color=colour, label=words)
        axes.set(xlabel=r"$\alpha$ = samples / $d$", ylabel="risk", yscale="log")
        if logarithmic:
            axes.set_xscale("log")
        words = {
            "agrees": "Theory describes SGD on these data",
            "differs": f"Theory does NOT describe SGD on these data: {', '.join(result.causes)}",
            "undecided": "Theory and SGD on these data are not told apart",
        }
        axes.set_title(words[result.verdict])
        axes.legend()
    return axes


def spectra(points: "Sequence[HessianSpectrum]", *, axes: Axes | None = None) -> Axes:
    """The eigenvalues of Hessians, one column for each critical point, in increasing order of risk.

    The area of a dot grows with the logarithm of the multiplicity; filled dots are directions that lead down.

    **Arguments:**

    - `points`: from [`hessian`], or the second entries of [`critical_points`].
    - `axes`: matplotlib axes to draw on; a new figure if left out.

    **Returns:** the axes.
    """
    if not points:
        raise InvalidInput("spectra was given no critical points; there is nothing to draw.")
    with in_style():
        axes = plt.subplots(figsize=(max(5.0, 1.5 + 0.8 * len(points)), 4.2))[1] if axes is None else axes
        for column, spectrum in enumerate(points):
            area = 25 * (1 + np.log10(spectrum.multiplicities))
            down = spectrum.eigenvalues < -spectrum.tolerance
            flat = np.abs(spectrum.eigenvalues) <= spectrum.tolerance
            colours = np.where(down, "#D55E00", np.where(flat, "#888888", "#0072B2"))
            faces = np.where(down, colours, "white")
            at = np.full(len(area), column)
            axes.scatter(at, spectrum.eigenvalues, s=area, facecolors=faces.tolist(), edgecolors=colours.tolist())
        axes.axhline(0.0, color="#888888", linewidth=0.8, zorder=0)
        axes.set_xticks(range(len(points)), [f"{max(spectrum.risk, 0.0):.3g}" for spectrum in points])
        axes.set(xlabel="risk of the critical point", ylabel="eigenvalues of the Hessian")
        axes.set_xlim(-0.6, len(points) - 0.4)
        axes.margins(y=0.12)
        axes.set_title(f"d = {points[0].d:,}" + (", on the sphere" if points[0].sphere else ""))
    return axes
