"""Dynamical mean-field theory: reused data as d grows.

For variants of the theory there are `Process`, a step of a population, and `Population`, what it moves.
"""

from .limit import DMFTLimit, dmft
from .process import Population, Process
from .solution import DMFTSolution

__all__ = ["DMFTLimit", "DMFTSolution", "Population", "Process", "dmft"]
