"""What it means: exit times, information exponents, learning rates, fixed points, landscapes."""

from .basins import basins
from .critical_points import critical_points
from .exit_times import ExitTime, exit_time
from .fixed_points import FixedPoint, FixedPoints, fixed_points
from .information_exponent import InformationExponent, information_exponent
from .landscape import HessianSpectrum, hessian
from .learning_rates import BestLearningRate, best_learning_rate
from .overparameterisation import WidthGain, overparameterisation_gain
from .particle_error import particle_error
from .protocols import BestProtocol, Verification, best_protocol
from .regimes import ErrorScales, RegimeMap, regimes
from .sample_complexity import SampleComplexity, sample_complexity
from .scaling_laws import Exponent, ScalingLaw, scaling_law

__all__ = [
    "BestLearningRate",
    "BestProtocol",
    "ErrorScales",
    "ExitTime",
    "Exponent",
    "FixedPoint",
    "FixedPoints",
    "HessianSpectrum",
    "InformationExponent",
    "RegimeMap",
    "SampleComplexity",
    "ScalingLaw",
    "Verification",
    "WidthGain",
    "basins",
    "best_learning_rate",
    "best_protocol",
    "critical_points",
    "exit_time",
    "fixed_points",
    "hessian",
    "information_exponent",
    "overparameterisation_gain",
    "particle_error",
    "regimes",
    "sample_complexity",
    "scaling_law",
]
