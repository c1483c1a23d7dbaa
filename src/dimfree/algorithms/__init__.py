"""How the weights move."""

from .online import OnlineSGD
from .reused import GradientDescent, Langevin, MultiPassSGD, PersistentSGD, ReusedData
from .schedules import PiecewiseLinear

__all__ = [
    "GradientDescent",
    "Langevin",
    "MultiPassSGD",
    "OnlineSGD",
    "PersistentSGD",
    "PiecewiseLinear",
    "ReusedData",
]
