"""How the weights move."""

from .online import OnlineSGD

__all__ = ["OnlineSGD"]
