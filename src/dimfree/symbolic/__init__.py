"""Limits as equations, in symbols; sympy is imported when they are asked for."""

from .front import equations
from .result import Equations

__all__ = ["Equations", "equations"]
