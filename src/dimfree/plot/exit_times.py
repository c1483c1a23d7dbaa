"""How long runs stay on the plateau: predicted and simulated."""

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from ..analysis.exit_times import METHODS, ExitTime
from ..errors import InvalidInput
from ..printing import in_a_line
from .drawing_style import in_style

_LOOKS = {
    "ode": ("ODE, random starts", "#56B4E9", "--"),
    "dressed": ("ODE, with SGD's noise", "#0072B2", "-"),
    "sde": ("SDE", "#009E73", "-."),
    "simulated": ("simulated", "#D55E00", "-"),
}


def exit_times(result: ExitTime, *, axes: Axes | None = None) -> Axes:
    """The fraction of runs that have left the plateau, over alpha, by every description of a result.

    Runs that stay keep a curve below one. The vertical line is the closed form of the mean, where there is one; the dot
    on each curve is its mean over the runs that leave.

    **Arguments:**

    - `result`: from [`exit_time`].
    - `axes`: matplotlib axes to draw in; new ones if left out.

    **Returns:** the axes.
    """
    if not isinstance(result, ExitTime):
        raise InvalidInput(f"plot.exit_times was given {in_a_line(result)}; pass what dimfree.exit_time(...) gives.")
    estimates = {name: getattr(result, name) for name in METHODS[1:] if getattr(result, name) is not None}
    with in_style():
        if axes is None:
            _, axes = plt.subplots()
        for name, estimate in estimates.items():
            words, colour, line = _LOOKS[name]
            times = np.sort(estimate.times[np.isfinite(estimate.times)])
            left = np.arange(1, len(times) + 1) / len(estimate.times)
            simulated = name == "simulated"
            label = f"{words}, {len(estimate.times)} runs" if simulated else words
            axes.step(
                np.concatenate([[0.0], times]),
                np.concatenate([[0.0], left]),
                where="post",
                color=colour,
                linestyle=line,
                linewidth=1.6 if simulated else 2.2,
                label=label,
                zorder=3 if simulated else 2,
            )
            if len(times):
                share = np.searchsorted(times, estimate.mean) / len(estimate.times)
                axes.plot(estimate.mean, share, marker="o", color=colour, markeredgecolor="white", zorder=4)
        if result.closed_form is not None and np.isfinite(result.closed_form.dressed):
            axes.axvline(
                result.closed_form.dressed, color="#444444", linewidth=1.2, linestyle=":", label="mean, formula"
            )
        # Without the last few runs, which take very long.
        ends = [np.quantile(estimate.times, 0.98, method="inverted_cdf") for estimate in estimates.values()]
        ends = [end for end in ends if np.isfinite(end)]
        axes.set_xlim(0.0, 1.15 * max(ends) if ends else None)
        axes.set_ylim(0.0, 1.04)
        axes.set_xlabel(r"$\alpha$ = samples / $d$")
        axes.set_ylabel("fraction of runs that have left")
        if estimates:
            axes.legend(loc="lower right")
    return axes
