"""What survives as d grows."""

from .diffusion import DiffusionLimit, Limit, LinearNoiseLimit, increment_covariance, linear_noise, sde
from .drift import MeanLimit, gradient_flow, ode

__all__ = [
    "DiffusionLimit",
    "Limit",
    "LinearNoiseLimit",
    "MeanLimit",
    "gradient_flow",
    "increment_covariance",
    "linear_noise",
    "ode",
    "sde",
]
