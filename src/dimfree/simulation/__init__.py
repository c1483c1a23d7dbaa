"""The same process at finite d: exact in law, and with the vectors themselves."""

from .mean import exact_mean
from .simulate import simulate
from .start import random_state

__all__ = ["exact_mean", "random_state", "simulate"]
