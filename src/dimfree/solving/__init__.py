"""How a limit is integrated."""

from .solve import solve

__all__ = ["solve"]
