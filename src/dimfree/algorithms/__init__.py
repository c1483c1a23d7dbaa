"""How the weights move."""

from .memory import Averaged, HeavyBall, Momentum, WeightDecay
from .online import OnlineAlgorithm, OnlineSGD
from .reused import GradientDescent, Langevin, MultiPassSGD, PersistentSGD, ReusedData
from .schedules import PiecewiseLinear

__all__ = [
    "Averaged",
    "GradientDescent",
    "HeavyBall",
    "Langevin",
    "Momentum",
    "MultiPassSGD",
    "OnlineAlgorithm",
    "OnlineSGD",
    "PersistentSGD",
    "PiecewiseLinear",
    "ReusedData",
    "WeightDecay",
]
