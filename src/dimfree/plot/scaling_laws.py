"""The picture of a scaling law: the risk of all sizes over compute, and the least of them."""

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from ..analysis import Exponent, ScalingLaw
from ..errors import InvalidInput
from ..printing import in_a_line
from .drawing_style import in_style


def scaling_law(result: ScalingLaw, *, axes: Axes | None = None) -> Axes:
    """The risk of each size over compute in grey, the frontier, and its exponent in the window that it is fitted in.

    With one size only, the risk over samples.

    **Arguments:**

    - `result`: from [`scaling_law`].
    - `axes`: matplotlib axes to draw in; new ones if left out.

    **Returns:** the axes.
    """
    if not isinstance(result, ScalingLaw):
        raise InvalidInput(f"plot.scaling_law was given {in_a_line(result)}; pass what dimfree.scaling_law(...) gives.")
    one = len(result.sizes) == 1
    with in_style():
        axes = plt.subplots()[1] if axes is None else axes
        shades = np.linspace(0.75, 0.35, len(result.sizes))
        for shade, parameters, risk in zip(shades, result.parameters, result.risk, strict=True):
            axes.loglog(result.samples * (1 if one else parameters), risk, color=str(shade), linewidth=1.0)
        if one:
            exponent, x, y, words = result.exponents["samples"], result.samples, result.risk[0], "samples"
        else:
            x, y, words = result.frontier["compute"], result.frontier["risk"], "compute"
            exponent = result.exponents.get("compute")
            axes.loglog(x, y, color="#D55E00", linewidth=2.0, label="least risk")
        if exponent is not None:
            _line(axes, exponent, x, y)
            axes.legend()
        axes.set(xlabel=words if one else "compute = parameters x samples", ylabel="risk")
        axes.set_title(f"sizes {result.sizes[0]:g} to {result.sizes[-1]:g}" if not one else "")
    return axes


def _line(axes: Axes, exponent: Exponent, x: np.ndarray, y: np.ndarray) -> None:
    ends = np.array(exponent.window)
    middle = np.sqrt(ends[0] * ends[1])
    height = np.exp(np.interp(np.log(middle), np.log(x), np.log(y)))
    label = f"exponent {exponent.value:.3f} ({exponent.low:.3f} to {exponent.high:.3f})"
    axes.loglog(ends, 0.5 * height * (ends / middle) ** exponent.value, "--", color="#0072B2", label=label)
