"""Limits as equations, in symbols; sympy is imported when they are asked for."""

from .front import equations
from .result import SymbolicLimit

__all__ = ["SymbolicLimit", "equations"]
