"""What survives as d grows."""

from .diffusion import DiffusionLimit, LinearNoiseLimit, increment_covariance, linear_noise, sde
from .dmft import DMFTLimit, DMFTSolution, dmft
from .drift import MeanLimit, gradient_flow, ode
from .limit import Limit
from .mean_field import MeanFieldLimit, mean_field
from .rescaled import RescaledLimit, rescaled, rescaled_overlaps

__all__ = [
    "DMFTLimit",
    "DMFTSolution",
    "DiffusionLimit",
    "Limit",
    "LinearNoiseLimit",
    "MeanFieldLimit",
    "MeanLimit",
    "RescaledLimit",
    "dmft",
    "gradient_flow",
    "increment_covariance",
    "linear_noise",
    "mean_field",
    "ode",
    "rescaled",
    "rescaled_overlaps",
    "sde",
]
