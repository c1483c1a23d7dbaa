"""The picture of a best protocol: what was searched, over alpha, beside the best constants."""

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from ..analysis import BestProtocol
from ..errors import InvalidInput
from ..printing import in_a_line
from .drawing_style import in_style


def protocol(result: BestProtocol, *, axes: Axes | None = None) -> Axes:
    """Schedules over alpha as lines, the best constants dashed, in the colour of the same control.

    **Arguments:**

    - `result`: from [`best_protocol`].
    - `axes`: matplotlib axes to draw in; new ones if left out.

    **Returns:** the axes.
    """
    if not isinstance(result, BestProtocol):
        raise InvalidInput(f"plot.protocol was given {in_a_line(result)}; pass what dimfree.best_protocol(...) gives.")
    end = float(result.trajectory.alpha[-1])
    with in_style():
        axes = plt.subplots()[1] if axes is None else axes
        colour = 0
        for name, values in result.values.items():
            times = result.times[name]
            constants = None if result.constant is None else np.atleast_1d(result.constant.values[name])
            rows = np.atleast_2d(values) if times is not None else np.atleast_1d(values).reshape(-1, 1)
            for number, row in enumerate(rows):
                label = name.partition(".")[2] if len(rows) == 1 else f"{name.partition('.')[2]} {number + 1}"
                x = [0.0, end] if times is None else [*times, max(end, times[-1])]
                axes.plot(x, np.append(row, row[-1:]), color=f"C{colour}", label=label)
                if constants is not None:
                    level, words = constants.reshape(-1)[number], f"{label}, best constant"
                    axes.axhline(level, color=f"C{colour}", linestyle="--", linewidth=1.2, label=words)
                colour += 1
        axes.set(xlabel=r"$\alpha$ = samples / $d$", xlim=(0.0, end), ylim=(0.0, None))
        axes.legend()
    return axes
