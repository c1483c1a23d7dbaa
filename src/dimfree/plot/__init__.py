"""Pictures of trajectories.

- `compare(theory, runs)`: theory as lines, simulations as dots, over alpha.
- `style`: the path of its matplotlib style, for figures of your own: `pyplot.style.use(dimfree.plot.style)`.
"""

from .compare import compare, style

__all__ = ["compare", "style"]
