"""How a limit is integrated."""

from .populations import DMFTSolution, dmft
from .solve import solve

__all__ = ["DMFTSolution", "dmft", "solve"]
