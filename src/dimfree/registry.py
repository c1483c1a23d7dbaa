"""All public names in one table, and how plain data state problems and algorithms by them.

The package, the command line, studies and the explorer read it; nothing heavy is imported before it is needed.
"""

import importlib
import inspect
import operator
import re
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

Home = Literal["problem", "family", "algorithm", "spectrum"]
Kind = Literal["problem", "family", "algorithm", "spectrum", "limit", "analysis"]


class Entry(NamedTuple):
    """A public name: where it is, and what may find it by its name.

    - `module`: that it is imported from.
    - `kind`: what it is, if it is one of these.
    - `forms`: of what plain data can state (a study file, the command line): the name itself, and constructors of the
      class; none if it is made of functions, which are code.
    - `title`: of a limit, in a table.
    - `beside`: of an algorithm that stands beside another: the setting by which it is asked for, and its argument.
    - `any_inputs`: of a problem: whether its inputs may have a spectrum, which the setting `spectrum` states.
    """

    module: str
    kind: Kind | None = None
    forms: tuple[str, ...] = ()
    title: str = ""
    beside: tuple[str, str] | None = None
    any_inputs: bool = False


def _problem(*forms: str, any_inputs: bool = False) -> Entry:
    return Entry("problems", "problem", forms, any_inputs=any_inputs)


def _algorithm(*forms: str, beside: tuple[str, str] | None = None) -> Entry:
    return Entry("algorithms", "algorithm", forms, beside=beside)


def _limit(form: str = "", title: str = "") -> Entry:
    return Entry("limits", "limit", (form,) if form else (), title)


def _analysis(*forms: str) -> Entry:
    return Entry("analysis", "analysis", forms)


# Every public name, in the order of the story and of the API reference.
PUBLIC: dict[str, Entry] = {
    "LocalFields": _problem(),
    "TwoLayer": _problem("TwoLayer", any_inputs=True),
    "PhaseRetrieval": _problem("PhaseRetrieval", any_inputs=True),
    "SingleIndex": _problem("SingleIndex", any_inputs=True),
    "MultiIndex": _problem(),
    "MultiOutput": _problem("MultiOutput", any_inputs=True),
    "Mixture": _problem("Mixture", "Mixture.binary", "Mixture.xor", any_inputs=True),
    "Tasks": _problem("Tasks.switching", "Tasks.drifting", "Tasks.curriculum", any_inputs=True),
    "SequenceIndex": _problem("SequenceIndex", any_inputs=True),
    "Attention": _problem("Attention", any_inputs=True),
    "ContrastivePair": _problem("ContrastivePair", any_inputs=True),
    "SpikedTensor": _problem("SpikedTensor"),
    "Spectrum": Entry("problems", "spectrum", ("Spectrum", "Spectrum.power_law", "Spectrum.marchenko_pastur")),
    "RandomFeatures": Entry("problems", "family", ("RandomFeatures",)),
    "PowerLawFeatures": Entry("problems", "family", ("PowerLawFeatures",)),
    "PowerLawTeachers": Entry("problems", "family", ("PowerLawTeachers",)),
    "Problem": Entry("problems"),
    "OnlineSGD": _algorithm("OnlineSGD"),
    "PiecewiseLinear": Entry("algorithms"),
    "Momentum": _algorithm("Momentum"),
    "HeavyBall": _algorithm("HeavyBall"),
    "AdaGradNorm": _algorithm("AdaGradNorm"),
    "RMSNorm": _algorithm("RMSNorm"),
    "Repeated": _algorithm(beside=("repeated", "first_rate")),
    "MovedGradient": _algorithm(beside=("moved", "distance")),
    "SharpnessAware": _algorithm(beside=("sharpness", "radius")),
    "ClippedSlopes": _algorithm(beside=("clip_slopes", "largest")),
    "Clipped": _algorithm(beside=("clip", "norm")),
    "AdaptiveClip": _algorithm(beside=("adaptive_clip", "factor")),
    "NormalisedGradient": _algorithm(beside=("normalise", "norm")),
    "ScheduleFree": _algorithm(beside=("schedule_free", "interpolation")),
    "SignDescent": _algorithm("SignDescent"),
    "RMSProp": _algorithm("RMSProp"),
    "Adam": _algorithm("Adam"),
    "Averaged": _algorithm(beside=("average", "forgetting")),
    "WeightDecay": _algorithm(beside=("weight_decay", "decay")),
    "from_optax": Entry("algorithms"),
    "GradientDescent": _algorithm("GradientDescent"),
    "MultiPassSGD": _algorithm("MultiPassSGD"),
    "PersistentSGD": _algorithm("PersistentSGD"),
    "Langevin": _algorithm("Langevin"),
    "State": Entry("state"),
    "WideState": Entry("state"),
    "random_state": Entry("simulation"),
    "ode": _limit("ode", "ODE"),
    "gradient_flow": _limit("gradient_flow", "Gradient flow"),
    "sde": _limit("sde", "Mean of the SDE"),
    "linear_noise": _limit("linear_noise", "Linear noise"),
    "mean_field": _limit(),
    "dmft": _limit(),
    "DMFTSolution": Entry("limits"),
    "rescaled": _limit(),
    "rescaled_overlaps": Entry("limits"),
    "RescaledLimit": Entry("limits"),
    "GaussHermite": Entry("gaussian.rules"),
    "Sobol": Entry("gaussian.rules"),
    "solve": Entry("solving"),
    "simulate": Entry("simulation"),
    "exact_mean": Entry("simulation"),
    "Trajectory": Entry("trajectory"),
    "Outcome": Entry("trajectory"),
    "check": Entry("checking", "analysis", ("check",)),
    "CheckResult": Entry("checking"),
    "from_data": Entry("data"),
    "DataComparison": Entry("data"),
    "regimes": _analysis(),
    "RegimeMap": Entry("analysis"),
    "particle_error": _analysis(),
    "exit_time": _analysis("exit_time"),
    "ExitTime": Entry("analysis"),
    "information_exponent": _analysis(),
    "InformationExponent": Entry("analysis"),
    "hermite_coefficients": Entry("gaussian.hermite"),
    "sample_complexity": _analysis(),
    "SampleComplexity": Entry("analysis"),
    "best_learning_rate": _analysis("best_learning_rate"),
    "BestLearningRate": Entry("analysis"),
    "best_protocol": _analysis("best_protocol"),
    "BestProtocol": Entry("analysis"),
    "scaling_law": _analysis("scaling_law"),
    "ScalingLaw": Entry("analysis"),
    "overparameterisation_gain": _analysis(),
    "WidthGain": Entry("analysis"),
    "fixed_points": _analysis(),
    "FixedPoints": Entry("analysis"),
    "FixedPoint": Entry("analysis"),
    "basins": _analysis(),
    "hessian": _analysis(),
    "HessianSpectrum": Entry("analysis"),
    "critical_points": _analysis(),
    "quadratic": Entry("", "analysis", ("quadratic.plateau",)),
    "Study": Entry("studies"),
    "open_study": Entry("studies"),
    "equations": Entry("symbolic"),
    "SymbolicLimit": Entry("symbolic"),
    "reproduce": Entry("papers.figures"),
    "Reproduction": Entry("papers.figures"),
    "claims": Entry("papers.figures"),
    "Claim": Entry("papers.claims"),
    "plot": Entry(""),
    "cite": Entry("citations"),
    "InvalidInput": Entry("errors"),
}


def load(name: str) -> Any:
    """What is public by that name, or an attribute of it; a module where its entry has none."""
    public, _, attribute = name.partition(".")
    home = PUBLIC[public].module
    found = importlib.import_module(f".{home or public}", __package__)
    found = getattr(found, public) if home else found
    return operator.attrgetter(attribute)(found) if attribute else found


def stated(kind: Kind) -> tuple[str, ...]:
    """All that plain data can state of a kind."""
    return tuple(form for entry in PUBLIC.values() if entry.kind == kind for form in entry.forms)


# What may stand beside an algorithm that uses each sample once, by the setting that asks for it.
BESIDE = {entry.beside[0]: (name, entry.beside[1]) for name, entry in PUBLIC.items() if entry.beside}


# Arguments that are lists of numbers, and those that may be one.
_LISTS = {
    *("means", "labels", "probabilities", "readout", "teacher_readout", "eigenvalues", "fractions", "variances"),
    "target",
}
_MAY_BE_LISTS = {
    ("TwoLayer", "tokens"),
    ("Mixture", "snr"),
    ("SequenceIndex", "tokens"),
    ("Attention", "tokens"),
    ("Tasks.curriculum", "noise"),
    ("Momentum", "momentum_rate"),
    ("Momentum", "forgetting"),
}


def dashed(name: str) -> str:
    """A name as it is typed in a terminal: `PhaseRetrieval` is phase-retrieval, `Mixture.xor` is mixture-xor.

    A spectrum is not called one again: `Spectrum.power_law` is power-law.
    """
    words = re.findall(r"[A-Z]*[a-z]+|[A-Z]+", name.removeprefix("Spectrum."))
    return "-".join(words).lower()


def find(home: Home, name: Any) -> str:
    """The name in the library of what is called `name`, in either spelling."""
    known = {dashed(each): each for each in stated(home)}
    if name in known.values():
        return name
    if (typed := str(name).replace("_", "-")) in known:
        return known[typed]
    from .errors import InvalidInput

    names = known.values() if any(letter.isupper() for letter in str(name)) else known
    raise InvalidInput(f"There is no {home} called {name}; there are {_listed(names)}.")


def parameters(home: Home, name: str) -> dict[str, inspect.Parameter]:
    """The arguments that the problem or algorithm of that name takes."""
    found = dict(inspect.signature(load(name)).parameters)
    if home == "problem" and PUBLIC[name.partition(".")[0]].any_inputs:
        return found | _optional("spectrum")
    return found | _optional(*BESIDE) if home == "algorithm" and is_online(name) else found


def is_online(name: str) -> bool:
    """Whether the algorithm of that name uses each sample once."""
    from .algorithms import OnlineAlgorithm

    return issubclass(load(name), OnlineAlgorithm)


def _optional(*names: str) -> dict[str, inspect.Parameter]:
    return {name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in names}


def make(home: Home, name: str, arguments: dict[str, Any], *, spelled: Callable[[str], str] = str) -> Any:
    """The problem, algorithm or spectrum of that name; numbers may be traced, apart from those of a spectrum.

    **Arguments:**

    - `spelled`: how an argument is called where it was given, for errors.
    """
    from .errors import InvalidInput

    name = find(home, name)
    known = parameters(home, name)
    if unknown := [argument for argument in arguments if argument not in known]:
        raise InvalidInput(
            f"{_listed(map(spelled, unknown))} was given, but {name} has no such argument; "
            f"it has {_listed(map(spelled, known))}."
        )
    needed = [argument for argument, each in known.items() if each.default is each.empty]
    if absent := [argument for argument in needed if argument not in arguments]:
        raise InvalidInput(f"The {home} {name} needs {_listed(map(spelled, absent), ' and ')}.")
    spectrum = None
    if home == "problem" and arguments.get("spectrum") is not None:
        spectrum = make_spectrum(arguments["spectrum"], spelled("spectrum"))
    arguments = {argument: value for argument, value in arguments.items() if argument != "spectrum"}
    for argument, value in arguments.items():
        _check_plain(name, spelled(argument), known[argument], value)
    beside = {each: arguments[each] for each in BESIDE if arguments.get(each) is not None}
    try:
        made = load(name)(**{each: arguments[each] for each in arguments if each not in BESIDE})
        for each, value in beside.items():
            kind, argument = BESIDE[each]
            made = load(kind)(made, **{argument: value})
    except TypeError as error:
        raise InvalidInput(f"The {home} {name} was given {_listed(arguments)}: {error}") from error
    return made if spectrum is None else made.with_inputs(spectrum)


def make_spectrum(stated: Any, spelled: str = "spectrum") -> Any:
    """The spectrum that plain data state, in one of three ways.

    - A list of eigenvalues, `[4, 1, 0.25]`, or with fractions, `{eigenvalues: [4, 1], fractions: [0.1, 0.9]}`.
    - A constructor by its name, with its arguments: `{name: power_law, exponent: 1.4, dimensions: 1000, blocks: 48}`.
    - Either in one word, as it is typed in a terminal: `4,1,0.25`, or `power-law:1.4,1000,48`.

    **Arguments:**

    - `spelled`: how the setting is called where it was given, for errors.
    """
    if isinstance(stated, list):
        stated = {"eigenvalues": stated}
    elif isinstance(stated, int | float) and not isinstance(stated, bool):  # the variance of all dimensions
        stated = {"eigenvalues": [stated]}
    elif isinstance(stated, str):
        stated = _spectrum_in_a_word(stated, spelled)
    if not isinstance(stated, dict) or not {"name", "eigenvalues"} & set(stated):
        raise _no_spectrum(stated, spelled)
    arguments = {str(argument): value for argument, value in stated.items() if argument != "name"}
    return make("spectrum", stated.get("name", "Spectrum"), arguments)


def _spectrum_in_a_word(text: str, spelled: str) -> dict[str, Any]:
    """`power-law:1.4,1000,48` as a name and the arguments of it in their order; `4,1,0.25` as eigenvalues."""
    name, colon, values = text.rpartition(":")
    try:
        numbers = [float(value) for value in values.split(",")]
    except ValueError:
        raise _no_spectrum(text, spelled) from None
    if not colon:
        return {"eigenvalues": numbers}
    named = {dashed(form): form for form in stated("spectrum") if "." in form}
    if (typed := name.strip().replace("_", "-")) not in named:
        raise _no_spectrum(text, spelled)
    known = parameters("spectrum", named[typed])
    if not sum(each.default is each.empty for each in known.values()) <= len(numbers) <= len(known):
        raise _no_spectrum(text, spelled)
    whole = [int(number) if number.is_integer() else number for number in numbers]
    return {"name": typed, **dict(zip(known, whole, strict=False))}


def _no_spectrum(given: Any, spelled: str) -> Exception:
    from .errors import InvalidInput

    return InvalidInput(
        f"{spelled} = {given!r} was given; write eigenvalues separated by commas, such as 4,1,0.25, or one of "
        "power-law:EXPONENT,DIMENSIONS[,BLOCKS] and marchenko-pastur:RATIO[,BLOCKS]."
    )


def _check_plain(name: str, spelled: str, parameter: inspect.Parameter, value: Any) -> None:
    """What plain data can get wrong, and a constructor does not expect."""
    from .errors import InvalidInput

    if isinstance(parameter.default, bool) and not isinstance(value, bool):
        raise InvalidInput(f"{spelled} = {value!r} was given; write true or false.")
    if isinstance(value, dict):
        raise InvalidInput(f"{spelled} = {value!r} was given; write a number, a word, or a list of numbers.")
    if isinstance(value, list):
        if not (parameter.name in _LISTS or (name, parameter.name) in _MAY_BE_LISTS):
            raise InvalidInput(f"{spelled} = {value!r} was given; {name} takes no list here, but one number or word.")
        if not _are_numbers(value):
            raise InvalidInput(f"{spelled} = {value!r} was given; write a list of numbers, such as [1, 1, -1].")


def _are_numbers(values: list[Any]) -> bool:
    return all(_are_numbers(value) if isinstance(value, list) else isinstance(value, int | float) for value in values)


def _listed(words: Iterable[str], last: str = ", ") -> str:
    *first, final = words
    return last.join([", ".join(first), final]) if first else final
