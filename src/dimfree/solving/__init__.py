"""How a limit is integrated."""

from .populations import MeanFieldSolution, dmft
from .solve import solve

__all__ = ["MeanFieldSolution", "dmft", "solve"]
