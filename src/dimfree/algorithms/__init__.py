"""How the weights move."""

from .memory import Averaged, HeavyBall, Momentum, ScheduleFree, WeightDecay
from .norms import AdaGradNorm, AdaptiveClip, Clipped, NormalisedGradient, RMSNorm
from .online import OnlineAlgorithm, OnlineSGD
from .optax_chains import from_optax
from .reused import GradientDescent, Langevin, MultiPassSGD, PersistentSGD, ReusedData
from .schedules import PiecewiseLinear
from .slopes import ClippedSlopes, MovedGradient, Repeated, SharpnessAware

__all__ = [
    "AdaGradNorm",
    "AdaptiveClip",
    "Averaged",
    "Clipped",
    "ClippedSlopes",
    "GradientDescent",
    "HeavyBall",
    "Langevin",
    "Momentum",
    "MovedGradient",
    "MultiPassSGD",
    "NormalisedGradient",
    "OnlineAlgorithm",
    "OnlineSGD",
    "PersistentSGD",
    "PiecewiseLinear",
    "RMSNorm",
    "Repeated",
    "ReusedData",
    "ScheduleFree",
    "SharpnessAware",
    "WeightDecay",
    "from_optax",
]
