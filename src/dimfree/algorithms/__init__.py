"""How the weights move."""

from .online import OnlineSGD, PiecewiseLinear

__all__ = ["OnlineSGD", "PiecewiseLinear"]
