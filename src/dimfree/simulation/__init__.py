"""The same process at finite d: exact in law, and with the vectors themselves."""

from .simulate import simulate
from .start import random_state

__all__ = ["random_state", "simulate"]
