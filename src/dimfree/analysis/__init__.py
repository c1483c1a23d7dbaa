"""What it means: exit times, information exponents, learning rates, fixed points, landscapes, solutions."""

from .basins import basins
from .critical_points import critical_points, quadratic_critical_points
from .exit_times import ExitTime, exit_time
from .fixed_points import FixedPoint, FixedPoints, fixed_points
from .information_exponent import InformationExponent, information_exponent
from .landscape import HessianSpectrum, hessian
from .learning_rates import BestLearningRate, best_learning_rate, best_schedule
from .overparameterisation import WidthGain, overparameterisation_gain
from .particle_error import particle_error
from .quadratic_networks import norm_learning, plateau
from .regimes import ErrorScales, RegimeMap, regimes
from .sample_complexity import SampleComplexity, sample_complexity
from .solution_manifold import (
    closest_solution,
    conserved_frame,
    degrees_of_freedom,
    late_risk,
    solution_manifold_dimension,
)

__all__ = [
    "BestLearningRate",
    "ErrorScales",
    "ExitTime",
    "FixedPoint",
    "FixedPoints",
    "HessianSpectrum",
    "InformationExponent",
    "RegimeMap",
    "SampleComplexity",
    "WidthGain",
    "basins",
    "best_learning_rate",
    "best_schedule",
    "closest_solution",
    "conserved_frame",
    "critical_points",
    "degrees_of_freedom",
    "exit_time",
    "fixed_points",
    "hessian",
    "information_exponent",
    "late_risk",
    "norm_learning",
    "overparameterisation_gain",
    "particle_error",
    "plateau",
    "quadratic_critical_points",
    "regimes",
    "sample_complexity",
    "solution_manifold_dimension",
]
