"""Pictures of trajectories and studies.

- `compare(theory, runs)`: theory as lines, simulations as dots, over alpha.
- `flow(limit)`: solutions in a plane of two overlaps, and the points where they rest.
- `exit_times(result)`: how long runs stay on the plateau, predicted and simulated.
- `regimes(result)`: the plane of widths and learning rates, with the limit that applies to each.
- `phase_diagram(results)`: a quantity of a study over its axes, with its uncertainty.
- `data(result)`: the risk of SGD on your data, beside theory.
- `protocol(result)`: schedules of a best protocol, beside the best constants.
- `scaling_law(result)`: the risk of all sizes over compute, and the least of them.
- `distances(result)`: the distance of simulation from theory as d grows, of a check.
- `spectra(points)`: eigenvalues of the Hessian at critical points.
- `panels(number)`: axes to draw in, in a figure that pyplot does not keep.
- `style`: the path of its matplotlib style, for figures of your own: `pyplot.style.use(dimfree.plot.style)`.
"""

from .analyses import data, distances, spectra
from .compare import compare
from .drawing_style import style
from .exit_times import exit_times
from .flow import flow
from .panels import panels
from .phase_diagram import phase_diagram
from .protocols import protocol
from .regimes import regimes
from .scaling_laws import scaling_law

__all__ = [
    "compare",
    "data",
    "distances",
    "exit_times",
    "flow",
    "panels",
    "phase_diagram",
    "protocol",
    "regimes",
    "scaling_law",
    "spectra",
    "style",
]
