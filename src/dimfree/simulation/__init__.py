"""The same process at finite d: exact in law, and with the vectors themselves."""

from .finite_sample import simulate_reused
from .simulate import simulate
from .start import random_state

__all__ = ["random_state", "simulate", "simulate_reused"]
