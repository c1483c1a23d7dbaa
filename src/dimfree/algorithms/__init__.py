"""How the weights move."""

from .coordinate_wise import Adam, CoordinateWise, RMSProp, SignDescent
from .memory import Averaged, HeavyBall, Momentum, ScheduleFree, WeightDecay
from .norms import AdaGradNorm, AdaptiveClip, Clipped, NormalisedGradient, RMSNorm
from .online import OnlineAlgorithm, OnlineSGD
from .optax_chains import from_optax
from .reused import GradientDescent, Langevin, MultiPassSGD, PersistentSGD, ReusedData
from .schedules import PiecewiseLinear
from .slopes import ClippedSlopes, MovedGradient, Repeated, SharpnessAware

__all__ = [
    "AdaGradNorm",
    "Adam",
    "AdaptiveClip",
    "Averaged",
    "Clipped",
    "ClippedSlopes",
    "CoordinateWise",
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
    "RMSProp",
    "Repeated",
    "ReusedData",
    "ScheduleFree",
    "SharpnessAware",
    "SignDescent",
    "WeightDecay",
    "from_optax",
]
