"""What survives as d grows."""

from .diffusion import DiffusionLimit, Limit, LinearNoiseLimit, increment_covariance, linear_noise, sde
from .drift import MeanLimit, gradient_flow, ode
from .rescaled import RescaledLimit, rescaled, rescaled_overlaps

__all__ = [
    "DiffusionLimit",
    "Limit",
    "LinearNoiseLimit",
    "MeanLimit",
    "RescaledLimit",
    "gradient_flow",
    "increment_covariance",
    "linear_noise",
    "ode",
    "rescaled",
    "rescaled_overlaps",
    "sde",
]
