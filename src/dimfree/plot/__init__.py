"""Pictures of trajectories and studies.

- `compare(theory, runs)`: theory as lines, simulations as dots, over alpha.
- `regimes(result)`: the plane of widths and learning rates, with the limit that applies to each.
- `phase_diagram(results)`: a quantity of a study over its axes, with its uncertainty.
- `exit_times(result)`: how many runs have left the plateau by when, by every description.
- `distances(result)`: the distance of simulation from theory as d grows, of a check.
- `spectra(points)`: eigenvalues of the Hessian at critical points.
- `style`: the path of its matplotlib style, for figures of your own: `pyplot.style.use(dimfree.plot.style)`.
"""

from .analyses import distances, exit_times, spectra
from .compare import compare
from .look import style
from .phase_diagram import phase_diagram
from .regimes import regimes

__all__ = ["compare", "distances", "exit_times", "phase_diagram", "regimes", "spectra", "style"]
