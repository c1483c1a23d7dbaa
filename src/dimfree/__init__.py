"""Exact, dimension-free descriptions of stochastic gradient descent in high dimension.

The public surface, in the order of the story: problem, algorithm, start, limit, solve or simulate, check, show.
Importing the package is cheap: a name is imported from its module when it is first used.
"""

import importlib
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any

_unsaid: list[str] = []  # what a user must hear once, as soon as the process is seen to be theirs


def _say(stacklevel: int) -> None:
    while _unsaid:
        warnings.warn(_unsaid.pop(), stacklevel=stacklevel)  # so that it points at the user's line


def _switch_to_double_precision() -> None:
    """Limits are solved to tolerances that single precision cannot hold, and JAX has one precision for a process.

    A choice made in the environment is left alone: in single precision everything that computes refuses.
    """
    jax = sys.modules.get("jax")
    if "JAX_ENABLE_X64" in os.environ or (jax is not None and jax.config.jax_enable_x64):
        return
    _unsaid.append(
        "dimfree computes in double precision and has switched JAX to it, for the whole process: arrays that your own "
        "JAX code makes from now on are float64 unless it asks for another type. If that is what you want, say so "
        'before you import dimfree, with jax.config.update("jax_enable_x64", True) or JAX_ENABLE_X64=1 in the '
        "environment, and this is not said again."
    )
    if jax is None:
        os.environ["JAX_ENABLE_X64"] = "1"  # importing JAX here would take a second; who uses a name is told then
    else:
        jax.config.update("jax_enable_x64", True)
        _say(stacklevel=4)


_switch_to_double_precision()

if TYPE_CHECKING:
    from . import plot, quadratic
    from .algorithms import (
        Averaged,
        GradientDescent,
        HeavyBall,
        Langevin,
        Momentum,
        MultiPassSGD,
        OnlineSGD,
        PersistentSGD,
        PiecewiseLinear,
        WeightDecay,
    )
    from .analysis import (
        BestLearningRate,
        ExitTime,
        FixedPoint,
        FixedPoints,
        HessianSpectrum,
        InformationExponent,
        RegimeMap,
        SampleComplexity,
        WidthGain,
        basins,
        best_learning_rate,
        best_schedule,
        critical_points,
        exit_time,
        fixed_points,
        hessian,
        information_exponent,
        overparameterisation_gain,
        particle_error,
        regimes,
        sample_complexity,
    )
    from .checking import CheckResult, check
    from .citations import cite
    from .errors import InvalidInput
    from .gaussian.hermite import hermite_coefficients
    from .gaussian.rules import GaussHermite, Sobol
    from .limits import (
        DMFTSolution,
        RescaledLimit,
        dmft,
        gradient_flow,
        linear_noise,
        mean_field,
        ode,
        rescaled,
        rescaled_overlaps,
        sde,
    )
    from .papers.claims import Claim
    from .papers.figures import Reproduction, claims, reproduce
    from .problems import (
        LocalFields,
        Mixture,
        MultiIndex,
        PhaseRetrieval,
        Problem,
        SingleIndex,
        SpikedTensor,
        TwoLayer,
    )
    from .simulation import random_state, simulate
    from .solving import solve
    from .state import State, WideState
    from .studies import Study, open_study
    from .symbolic import SymbolicLimit, equations
    from .trajectory import Outcome, Trajectory

__all__ = [  # noqa: RUF022 (the order is that of the story, and of the API reference)
    "LocalFields",
    "TwoLayer",
    "PhaseRetrieval",
    "SingleIndex",
    "MultiIndex",
    "Mixture",
    "SpikedTensor",
    "Problem",
    "OnlineSGD",
    "PiecewiseLinear",
    "Momentum",
    "HeavyBall",
    "Averaged",
    "WeightDecay",
    "GradientDescent",
    "MultiPassSGD",
    "PersistentSGD",
    "Langevin",
    "State",
    "WideState",
    "random_state",
    "ode",
    "gradient_flow",
    "sde",
    "linear_noise",
    "mean_field",
    "dmft",
    "rescaled",
    "rescaled_overlaps",
    "RescaledLimit",
    "GaussHermite",
    "Sobol",
    "solve",
    "simulate",
    "Trajectory",
    "DMFTSolution",
    "Outcome",
    "check",
    "CheckResult",
    "regimes",
    "RegimeMap",
    "particle_error",
    "exit_time",
    "ExitTime",
    "information_exponent",
    "InformationExponent",
    "hermite_coefficients",
    "sample_complexity",
    "SampleComplexity",
    "best_learning_rate",
    "best_schedule",
    "BestLearningRate",
    "overparameterisation_gain",
    "WidthGain",
    "fixed_points",
    "FixedPoints",
    "FixedPoint",
    "basins",
    "hessian",
    "HessianSpectrum",
    "critical_points",
    "quadratic",
    "Study",
    "open_study",
    "equations",
    "SymbolicLimit",
    "reproduce",
    "Reproduction",
    "claims",
    "Claim",
    "plot",
    "cite",
    "InvalidInput",
]

_HOMES = {
    "problems": (
        "LocalFields",
        "Mixture",
        "MultiIndex",
        "PhaseRetrieval",
        "Problem",
        "SingleIndex",
        "SpikedTensor",
        "TwoLayer",
    ),
    "algorithms": (
        "Averaged",
        "GradientDescent",
        "HeavyBall",
        "Langevin",
        "Momentum",
        "MultiPassSGD",
        "OnlineSGD",
        "PersistentSGD",
        "PiecewiseLinear",
        "WeightDecay",
    ),
    "analysis": (
        "BestLearningRate",
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
        "critical_points",
        "exit_time",
        "fixed_points",
        "hessian",
        "information_exponent",
        "overparameterisation_gain",
        "particle_error",
        "regimes",
        "sample_complexity",
    ),
    "symbolic": ("SymbolicLimit", "equations"),
    "papers.claims": ("Claim",),
    "papers.figures": ("Reproduction", "claims", "reproduce"),
    "state": ("State", "WideState"),
    "studies": ("Study", "open_study"),
    "simulation": ("random_state", "simulate"),
    "limits": (
        "DMFTSolution",
        "RescaledLimit",
        "dmft",
        "gradient_flow",
        "linear_noise",
        "mean_field",
        "ode",
        "rescaled",
        "rescaled_overlaps",
        "sde",
    ),
    "gaussian.hermite": ("hermite_coefficients",),
    "gaussian.rules": ("GaussHermite", "Sobol"),
    "solving": ("solve",),
    "trajectory": ("Outcome", "Trajectory"),
    "checking": ("CheckResult", "check"),
    "citations": ("cite",),
    "errors": ("InvalidInput",),
}
_MODULES = ("plot", "quadratic")  # public as a whole
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("dimfree")
    if name not in _MODULE_OF and name not in _MODULES:
        raise AttributeError(f"dimfree has no public name {name!r}; it has {', '.join(__all__)}.")
    _say(stacklevel=3)
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    value = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
