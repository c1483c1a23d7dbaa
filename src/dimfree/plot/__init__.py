"""Pictures of trajectories and studies.

- `compare(theory, runs)`: theory as lines, simulations as dots, over alpha.
- `regimes(result)`: the plane of widths and learning rates, with the limit that applies to each.
- `phase_diagram(results)`: a quantity of a study over its axes, with its uncertainty.
- `style`: the path of its matplotlib style, for figures of your own: `pyplot.style.use(dimfree.plot.style)`.
"""

from .compare import compare
from .look import style
from .phase_diagram import phase_diagram
from .regimes import regimes

__all__ = ["compare", "phase_diagram", "regimes", "style"]
