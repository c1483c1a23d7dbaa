"""What is learned: a per-sample loss of finitely many local fields."""

from .base import Moments, Problem
from .local_fields import LocalFields
from .named import PhaseRetrieval, SingleIndex
from .two_layer import MultiIndex, TwoLayer

__all__ = ["LocalFields", "Moments", "MultiIndex", "PhaseRetrieval", "Problem", "SingleIndex", "TwoLayer"]
