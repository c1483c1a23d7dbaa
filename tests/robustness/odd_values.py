"""Every public callable with a call that works, and what else may be given for any argument."""

import inspect
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import dimfree
from dimfree import quadratic

KEY = jax.random.key(0)
SGD, SPHERE = dimfree.OnlineSGD(0.1), dimfree.OnlineSGD(0.1, sphere=True)
PHASE, ERF = dimfree.PhaseRetrieval(), dimfree.TwoLayer(1)
ONE = dimfree.State(Q=[[1.0]], M=[[0.1]])
BINARY = dimfree.Mixture.binary(1, 4.0)
ROWS = np.random.default_rng(0).normal(size=(40, 5))


def square(x):
    return x**2


def loss(student, teacher, noise, readout):
    return (student[0] - teacher[0]) ** 2


# Of each a call that works, and does little: argument by argument.
CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "LocalFields": (dimfree.LocalFields, {"loss": loss, "width": 1, "teacher_width": 1}),
    "TwoLayer": (dimfree.TwoLayer, {"width": 1}),
    "PhaseRetrieval": (dimfree.PhaseRetrieval, {}),
    "SingleIndex": (dimfree.SingleIndex, {"link": "he2"}),
    "MultiIndex": (dimfree.MultiIndex, {"link": jnp.sum, "width": 1, "teacher_width": 1}),
    "MultiOutput": (dimfree.MultiOutput, {"readout": [[1.0]], "teacher_readout": [[1.0]]}),
    "Mixture": (dimfree.Mixture, {"means": [[1.0], [-1.0]], "labels": [1, 0], "width": 1, "snr": 4.0}),
    "Mixture.binary": (dimfree.Mixture.binary, {"width": 1, "snr": 4.0}),
    "Mixture.xor": (dimfree.Mixture.xor, {"width": 1, "snr": 4.0}),
    "Tasks": (dimfree.Tasks, {"tasks": [ERF, ERF], "switches": [1.0]}),
    "Tasks.switching": (dimfree.Tasks.switching, {"width": 1, "similarity": 0.5, "switch": 1.0}),
    "Tasks.drifting": (dimfree.Tasks.drifting, {"width": 1, "drift": 0.1}),
    "Tasks.curriculum": (dimfree.Tasks.curriculum, {"width": 1, "switch": 1.0}),
    "SequenceIndex": (dimfree.SequenceIndex, {"link": jnp.sum, "tokens": 2}),
    "Attention": (dimfree.Attention, {"tokens": 2}),
    "ContrastivePair": (dimfree.ContrastivePair, {"correlation": 0.5}),
    "SpikedTensor": (dimfree.SpikedTensor, {"order": 2, "snr": 2.0}),
    "Spectrum": (dimfree.Spectrum, {"eigenvalues": [2.0, 0.5]}),
    "Spectrum.power_law": (dimfree.Spectrum.power_law, {"exponent": 1.5, "dimensions": 9}),
    "Spectrum.marchenko_pastur": (dimfree.Spectrum.marchenko_pastur, {"ratio": 0.5}),
    "Spectrum.from_data": (dimfree.Spectrum.from_data, {"X": ROWS}),
    "Spectrum.merged": (dimfree.Spectrum([2.0, 1.0, 0.5]).merged, {"blocks": 2}),
    "RandomFeatures": (dimfree.RandomFeatures, {"variances": [1.0, 0.5], "target": [1.0, 0.5]}),
    "RandomFeatures.from_data": (dimfree.RandomFeatures.from_data, {"X": ROWS, "labels": ROWS[:, 0]}),
    "PowerLawFeatures": (dimfree.PowerLawFeatures, {"input_exponent": 1.5, "target_exponent": 1.0}),
    "PowerLawFeatures.drawn": (dimfree.PowerLawFeatures(1.5, 1.0).drawn, {"size": 2}),
    "PowerLawTeachers": (dimfree.PowerLawTeachers, {"exponent": 1.0, "teachers": 3, "d": 100}),
    "Problem.at": (PHASE.at, {"alpha": 0.5}),
    "Problem.risk": (PHASE.risk, {"state": ONE}),
    "Problem.mean": (PHASE.mean, {"what": "risk", "state": ONE}),
    "Problem.mean_error": (PHASE.mean_error, {"what": "risk", "state": ONE}),
    "Problem.reaches": (PHASE.reaches, {"what": "risk", "level": 0.5}),
    "OnlineSGD": (dimfree.OnlineSGD, {"learning_rate": 0.1}),
    "PiecewiseLinear": (dimfree.PiecewiseLinear, {"alphas": [0.0, 1.0], "rates": [0.1, 0.2]}),
    "Momentum": (dimfree.Momentum, {"learning_rate": 0.1, "momentum_rate": 0.2, "forgetting": 1.0}),
    "HeavyBall": (dimfree.HeavyBall, {"learning_rate": 0.1, "momentum": 0.5}),
    "AdaGradNorm": (dimfree.AdaGradNorm, {"learning_rate": 0.1}),
    "RMSNorm": (dimfree.RMSNorm, {"learning_rate": 0.1, "forgetting": 1.0}),
    "Repeated": (dimfree.Repeated, {"algorithm": SGD}),
    "MovedGradient": (dimfree.MovedGradient, {"algorithm": SGD, "distance": 0.1}),
    "SharpnessAware": (dimfree.SharpnessAware, {"algorithm": SGD, "radius": 0.1}),
    "ClippedSlopes": (dimfree.ClippedSlopes, {"algorithm": SGD, "largest": 1.0}),
    "Clipped": (dimfree.Clipped, {"algorithm": SGD, "norm": 1.0}),
    "AdaptiveClip": (dimfree.AdaptiveClip, {"algorithm": SGD, "factor": 2.0}),
    "NormalisedGradient": (dimfree.NormalisedGradient, {"algorithm": SGD}),
    "ScheduleFree": (dimfree.ScheduleFree, {"algorithm": SGD, "interpolation": 0.9, "forgetting": 1.0}),
    "SignDescent": (dimfree.SignDescent, {"learning_rate": 0.1}),
    "RMSProp": (dimfree.RMSProp, {"learning_rate": 0.1, "beta2": 0.9}),
    "Adam": (dimfree.Adam, {"learning_rate": 0.1, "beta2": 0.9}),
    "Averaged": (dimfree.Averaged, {"algorithm": SGD, "forgetting": 1.0}),
    "WeightDecay": (dimfree.WeightDecay, {"algorithm": SGD, "decay": 0.1}),
    "GradientDescent": (dimfree.GradientDescent, {"learning_rate": 0.1, "samples_per_dimension": 2.0}),
    "MultiPassSGD": (
        dimfree.MultiPassSGD,
        {"learning_rate": 0.1, "samples_per_dimension": 2.0, "batch_fraction": 0.5},
    ),
    "PersistentSGD": (
        dimfree.PersistentSGD,
        {"learning_rate": 0.1, "samples_per_dimension": 2.0, "batch_fraction": 0.5, "persistence": 1.0},
    ),
    "Langevin": (dimfree.Langevin, {"learning_rate": 0.1, "samples_per_dimension": 2.0, "temperature": 0.1}),
    "State": (dimfree.State, {"Q": [[1.0]], "M": [[0.1]]}),
    "State.overlap": (ONE.overlap, {"one": "students", "other": "teachers"}),
    "State.at": (ONE.at, {"family": "students"}),
    "WideState": (dimfree.WideState, {"M": [[0.1]], "q_perp": [1.0]}),
    "random_state": (dimfree.random_state, {"problem": ERF, "d": 9, "key": KEY}),
    "ode": (dimfree.ode, {"problem": PHASE, "algorithm": SGD}),
    "gradient_flow": (dimfree.gradient_flow, {"problem": PHASE, "algorithm": SGD}),
    "sde": (dimfree.sde, {"problem": PHASE, "algorithm": SGD, "d": 9}),
    "linear_noise": (dimfree.linear_noise, {"problem": PHASE, "algorithm": SGD, "d": 9}),
    "mean_field": (dimfree.mean_field, {"problem": ERF, "algorithm": SGD}),
    "dmft": (dimfree.dmft, {"problem": PHASE, "algorithm": dimfree.GradientDescent(0.1, 2.0)}),
    "rescaled_overlaps": (
        dimfree.rescaled_overlaps,
        {"limit": dimfree.ode(PHASE, SGD), "at": dimfree.State(Q=[[1.0]], M=[[0.0]])},
    ),
    "GaussHermite": (dimfree.GaussHermite, {"nodes": 3}),
    "Sobol": (dimfree.Sobol, {"points": 8}),
    "solve": (dimfree.solve, {"limit": dimfree.ode(PHASE, SGD), "start": ONE, "alpha": 0.01}),
    "simulate": (
        dimfree.simulate,
        {"problem": PHASE, "algorithm": SGD, "start": ONE, "d": 5, "alpha": 0.2, "runs": 1, "key": KEY},
    ),
    "exact_mean": (
        dimfree.exact_mean,
        {"problem": dimfree.TwoLayer(1, 1, "linear"), "algorithm": SGD, "start": ONE, "d": 5, "alpha": 0.2},
    ),
    "information_exponent": (dimfree.information_exponent, {"target": "he2"}),
    "hermite_coefficients": (dimfree.hermite_coefficients, {"function": square, "order": 2}),
    "quadratic.critical_points": (quadratic.critical_points, {"width": 1, "teacher_width": 1}),
    "quadratic.solution_manifold_dimension": (
        quadratic.solution_manifold_dimension,
        {"width": 1, "teacher_width": 1, "d": 9},
    ),
    "quadratic.degrees_of_freedom": (quadratic.degrees_of_freedom, {"width": 1, "d": 9}),
    "quadratic.closest_solution": (quadratic.closest_solution, {"problem": PHASE, "start": ONE}),
    "quadratic.conserved_frame": (quadratic.conserved_frame, {"state": ONE}),
    "hessian": (dimfree.hessian, {"problem": PHASE, "state": ONE, "d": 9}),
    "critical_points": (dimfree.critical_points, {"problem": PHASE, "d": 9, "key": KEY, "starts": 2}),
    "fixed_points": (dimfree.fixed_points, {"limit": dimfree.ode(PHASE, SGD), "key": KEY, "starts": 2}),
    "basins": (
        dimfree.basins,
        {"limit": dimfree.ode(PHASE, SPHERE), "d": 9, "alpha": 0.1, "key": KEY, "starts": 2, "steps": 2},
    ),
    "exit_time": (
        dimfree.exit_time,
        {"problem": PHASE, "algorithm": SPHERE, "d": 99, "runs": 2, "key": KEY, "methods": ("closed_form",)},
    ),
    "sample_complexity": (
        dimfree.sample_complexity,
        {
            "problem": dimfree.SingleIndex("linear"),
            "algorithm": SPHERE,
            "dimensions": [5, 10],
            "runs": 8,
            "key": KEY,
        },
    ),
    "scaling_law": (
        dimfree.scaling_law,
        {"family": dimfree.PowerLawFeatures(1.5, 1.0), "algorithm": SGD, "sizes": [2, 4], "samples": [10.0, 20.0]},
    ),
    "equations": (dimfree.equations, {"problem": PHASE, "algorithm": SGD}),
    "open_study": (dimfree.open_study, {"path": "no such place"}),
    "reproduce": (dimfree.reproduce, {"paper": "none"}),
    "claims": (dimfree.claims, {"paper": "none"}),
}
CHEAP = tuple(CALLS)[: tuple(CALLS).index("solve")]  # what computes next to nothing


PATIENCE = 2.0  # seconds of computing before a refusal, with the compilation of what is looked at


class Traced:
    """Stands for a number that is being traced by `jax.jit`."""


ODD: dict[str, Any] = {
    "None": None,
    "a word": "x",
    "no word": "",
    "'false'": "false",
    "True": True,
    "-1": -1,
    "0": 0,
    "-0.0": -0.0,
    "0.5": 0.5,
    "nan": float("nan"),
    "inf": float("inf"),
    "1e300": 1e300,
    "10**59": 10**59,
    "10**400": 10**400,
    "1j": 1j,
    "bytes": b"x",
    "an object": object(),
    "a class": dict,
    "a lambda": lambda *_: None,
    "a dict": {"x": 1},
    "no list": [],
    "words": ["x", "y"],
    "a ragged list": [[1.0], [1.0, 2.0]],
    "a cube": np.zeros((2, 3, 4)),
    "an array of nan": np.full((1, 1), np.nan),
    "an array of JAX": jnp.array([True, False]),
    "an empty array": np.zeros((0, 0)),
    "a key": KEY,
    "a State": dimfree.State(Q=np.eye(3), M=np.zeros((3, 2))),
    "traced": Traced(),
}


def arguments() -> Iterator[tuple[str, str]]:
    """Each callable with each argument that it takes."""
    for name, (function, _) in CALLS.items():
        for argument, how in inspect.signature(function).parameters.items():
            if how.kind not in (how.VAR_POSITIONAL, how.VAR_KEYWORD):
                yield name, argument


def call(name: str, argument: str, value: Any) -> Any:
    """What the callable makes of this value."""
    function, given = CALLS[name]
    if not isinstance(value, Traced):
        return function(**(given | {argument: value}))

    def traced(number):
        function(**(given | {argument: number}))
        return number

    return jax.jit(traced)(0.5)


def fault(name: str, argument: str, label: str) -> str:
    """What is wrong with how the callable takes this odd value; nothing if it is right, or refused in words, in time.

    An error of two arguments that do not fit may name the other.
    """
    began = time.process_time()
    try:
        call(name, argument, ODD[label])
    except dimfree.InvalidInput as refusal:
        words, took = str(refusal).lower(), time.process_time() - began
        if not any(each.lower() in words for each in inspect.signature(CALLS[name][0]).parameters):
            return f"does not say which argument: {refusal}"
        return f"took {took:.1f} s to refuse" if took > PATIENCE else ""
    except Exception as raw:
        return f"{type(raw).__name__}: {raw}"
    return ""
