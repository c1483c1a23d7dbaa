"""The options that state a problem and an algorithm, the same for every command, and the file that may hold both."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import registry
from .output import invalid, plainly

if TYPE_CHECKING:
    from ..algorithms import OnlineAlgorithm
    from ..problems import Problem

_PROBLEM, _ALGORITHM = "PhaseRetrieval", "OnlineSGD"
# Of arguments that the library does not choose for its users, what the command line does.
_CHOSEN = {"width": 1, "learning_rate": 0.1}


def _complete(incomplete: str) -> list[str]:
    return [name for name in map(registry.dashed, registry.stated("problem")) if name.startswith(incomplete)]


# Of the algorithms that a name states, those that use a sample once.
_ONLINE = "online-sgd, momentum, heavy-ball, ada-grad-norm, rmsnorm, sign-descent, rmsprop, adam"
_IN_A_FILE = ("MultiOutput", "Mixture")  # they need lists of lists
_LISTED = ", ".join(
    registry.dashed(name) + " (in a --file)" * (name in _IN_A_FILE) for name in registry.stated("problem")
)


def _file(
    file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="YAML file with problem: and algorithm:, as in a study; options override it."
        ),
    ] = None,
) -> None: ...


def _problem(
    problem: Annotated[
        str | None,
        typer.Option(metavar="NAME", autocompletion=_complete, help=f"One of {_LISTED} [default: phase-retrieval]."),
    ] = None,
    width: Annotated[int | None, typer.Option(help="Student neurons, p [default: 1].")] = None,
    teacher_width: Annotated[int | None, typer.Option(help="Teacher neurons, k (two-layer) [default: 1].")] = None,
    activation: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Activation, such as erf, relu or tanh (two-layer, single-index) [default: erf; the link].",
        ),
    ] = None,
    teacher_activation: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Activation of the teachers (two-layer) [default: the students']."),
    ] = None,
    link: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Labels are this function of the teacher's field, such as relu (single-index), or of all "
            "fields of a sample: softmax, logsumexp, square (sequence-index).",
        ),
    ] = None,
    noise: Annotated[float | None, typer.Option(help="Variance of the label noise [default: 0].")] = None,
    readout: Annotated[
        str | None, typer.Option(metavar="NUMBERS", help="Second layer, such as 1,1,-1,-1 [default: ones].")
    ] = None,
    normalisation: Annotated[
        str | None, typer.Option(metavar="mean|sqrt|sum", help="Factor of the sum over neurons: 1/p, p^-1/2, 1.")
    ] = None,
    snr: Annotated[float | None, typer.Option(help="Signal-to-noise ratio (mixtures, spiked-tensor).")] = None,
    tokens: Annotated[
        int | None, typer.Option(help="Inputs in a sample, L (two-layer, sequence-index, attention) [default: one].")
    ] = None,
    rank: Annotated[int | None, typer.Option(help="Rank of queries and keys (attention) [default: 1].")] = None,
    teacher_rank: Annotated[
        int | None, typer.Option(help="Rank of the teacher (attention) [default: the student's].")
    ] = None,
    tied: Annotated[
        bool | None,
        typer.Option("--tied/--untied", help="Whether queries and keys are the same (attention) [default: tied]."),
    ] = None,
    correlation: Annotated[
        float | None, typer.Option(help="Correlation of the two inputs of a sample (contrastive-pair) [default: 0].")
    ] = None,
    similarity: Annotated[
        float | None, typer.Option(help="Cosine of the angle between the teachers of two tasks (tasks-switching).")
    ] = None,
    switch: Annotated[
        float | None, typer.Option(help="Alpha at which the second task begins (tasks-switching, tasks-curriculum).")
    ] = None,
    drift: Annotated[
        float | None, typer.Option(help="Angle by which teachers turn while d samples are seen (tasks-drifting).")
    ] = None,
    heads: Annotated[
        bool | None, typer.Option("--heads", help="Give each task its own readout (tasks-switching).")
    ] = None,
    variances: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBERS", help="Variances of the inputs of easy and hard samples, such as 1,4 (tasks-curriculum)."
        ),
    ] = None,
    order: Annotated[int | None, typer.Option(help="Order of the tensor, at least 2 (spiked-tensor).")] = None,
    spectrum: Annotated[
        str | None,
        typer.Option(
            metavar="SPECTRUM",
            help="Eigenvalues of the inputs' covariance: such as 4,1,0.25, power-law:EXPONENT,DIMENSIONS[,BLOCKS] or "
            "marchenko-pastur:RATIO[,BLOCKS] [default: all are 1].",
        ),
    ] = None,
    fractions: Annotated[
        str | None,
        typer.Option(metavar="NUMBERS", help="Fraction of the dimensions with each eigenvalue [default: equal]."),
    ] = None,
) -> None: ...


def _algorithm(
    algorithm: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"One of {_ONLINE} [default: online-sgd]."),
    ] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Step size [default: 0.1].")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Fresh samples in a step [default: 1].")] = None,
    sphere: Annotated[
        bool | None, typer.Option("--sphere/--free", help="Keep each student at norm sqrt(d), or not [default: free].")
    ] = None,
    ridge: Annotated[float | None, typer.Option(help="Strength of the penalty on the weights [default: 0].")] = None,
    readout_rate: Annotated[
        float | None, typer.Option(help="Step size of the readout [default: the readout is fixed].")
    ] = None,
    momentum_rate: Annotated[float | None, typer.Option(help="Step size of the momentum (momentum).")] = None,
    forgetting: Annotated[
        float | None,
        typer.Option(help="How much of the memory is lost in a step, times d (momentum, rmsnorm, rmsprop, adam)."),
    ] = None,
    lookahead: Annotated[
        float | None, typer.Option(help="How far along the momentum to take the gradient (momentum) [default: 0].")
    ] = None,
    beta1: Annotated[
        float | None, typer.Option(help="How much of the averaged gradient a step keeps (adam) [default: 0.9].")
    ] = None,
    beta2: Annotated[
        float | None, typer.Option(help="How much of the averaged squares a step keeps (rmsprop, adam).")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Added to the root of the squares (rmsprop, adam).")] = None,
    momentum: Annotated[float | None, typer.Option(help="How much of the momentum a step keeps (heavy-ball).")] = None,
    nesterov: Annotated[bool | None, typer.Option("--nesterov", help="Use Nesterov's step (heavy-ball).")] = None,
    start: Annotated[
        float | None, typer.Option(help="Gradient norm with which a run starts (ada-grad-norm, rmsnorm).")
    ] = None,
    clip: Annotated[
        float | None, typer.Option(metavar="NORM", help="Clip the gradient at this norm (of order one).")
    ] = None,
    adaptive_clip: Annotated[
        float | None, typer.Option(metavar="FACTOR", help="Clip the gradient at FACTOR times its recent norm.")
    ] = None,
    clip_slopes: Annotated[
        float | None, typer.Option(metavar="LARGEST", help="Clip the slopes of the loss of each sample.")
    ] = None,
    normalise: Annotated[float | None, typer.Option(metavar="NORM", help="Rescale the gradient to this norm.")] = None,
    moved: Annotated[
        float | None, typer.Option(metavar="DISTANCE", help="Take the gradient at w - DISTANCE * gradient.")
    ] = None,
    sharpness: Annotated[
        float | None,
        typer.Option(metavar="RADIUS", help="Take the gradient at the worst point within this distance (SAM)."),
    ] = None,
    repeated: Annotated[
        float | None, typer.Option(metavar="RATE", help="Before each step, make a step at this rate on the same batch.")
    ] = None,
    schedule_free: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Take the gradient between weights and their average; SHARE is how far toward the average.",
        ),
    ] = None,
    average: Annotated[
        float | None,
        typer.Option(
            metavar="FORGETTING", help="Also follow the average of the weights over a time 1/FORGETTING in alpha."
        ),
    ] = None,
    weight_decay: Annotated[
        float | None, typer.Option(metavar="DECAY", help="Decay of the weights per step, times d [default: 0].")
    ] = None,
) -> None: ...


def _parameters(options: Callable[..., None]) -> dict[str, inspect.Parameter]:
    found = inspect.signature(options).parameters
    return {name: each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, each in found.items()}


_OPTIONS: dict[registry.Home, dict[str, inspect.Parameter]] = {
    "problem": _parameters(_problem),
    "algorithm": _parameters(_algorithm),
}
_SHARED = _parameters(_file) | _OPTIONS["problem"] | _OPTIONS["algorithm"]


def states(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that state a problem and an algorithm, before its own.

    The command is called with the two, then with its own options by name. What is wrong is said plainly.
    """
    own = list(_parameters(command).values())[2:]

    @functools.wraps(command)
    def called(**options: Any) -> None:
        with plainly():
            given = {name: value for name in _SHARED if (value := options.pop(name)) is not None}
            command(*stated(given), **options)

    # What Typer reads; the annotations of the command name types that are not imported yet.
    called.__dict__["__signature__"] = inspect.Signature([*_SHARED.values(), *own])
    called.__annotations__ = {}
    return called


def stated(given: dict[str, Any]) -> "tuple[Problem, OnlineAlgorithm]":
    """The problem and the algorithm that options state, and a file where they say nothing."""
    held = {} if "file" not in given else _read(given["file"])
    if "file" in given and "problem" in given:
        raise invalid(f"--problem {given['problem']} and --file {given['file']} were given; choose one.")
    problem = {"name": given.get("problem", _PROBLEM)} | held.get("problem", {})
    algorithm = {"name": _ALGORITHM} | held.get("algorithm", {})
    if "algorithm" in given:
        algorithm["name"] = given["algorithm"]
    if not registry.is_online(registry.find("algorithm", algorithm["name"])):
        raise invalid(
            f"The algorithm {algorithm['name']} uses the same samples again; this command is for {_ONLINE}. "
            "In Python there are dimfree.dmft and dimfree.simulate, in a study compute: {name: dmft}."
        )
    return _make("problem", problem, given), _make("algorithm", algorithm, given)


def _make(home: registry.Home, settings: dict[str, Any], given: dict[str, Any]) -> Any:
    name = registry.find(home, settings["name"])
    arguments = {argument: value for argument, value in settings.items() if argument != "name"}
    arguments |= {
        option: given[option] for option in _OPTIONS[home] if option in given and option not in ("problem", "algorithm")
    }
    for option in ("readout", "variances"):
        if isinstance(arguments.get(option), str):
            arguments[option] = numbers(f"--{option}", arguments[option])
    if "fractions" in given and home == "problem":
        arguments["spectrum"] = _with_fractions(arguments.get("spectrum"), arguments.pop("fractions"))
    known = registry.parameters(home, name)
    chosen = {argument: value for argument, value in _CHOSEN.items() if argument in known}
    return registry.make(home, name, chosen | arguments, spelled=_spelled(given))


def _with_fractions(eigenvalues: Any, fractions: str) -> dict[str, Any]:
    """Both halves of a spectrum that is given by its eigenvalues."""
    if isinstance(eigenvalues, dict) and "eigenvalues" in eigenvalues:  # of a file
        return eigenvalues | {"fractions": numbers("--fractions", fractions)}
    if eigenvalues is None or isinstance(eigenvalues, dict) or ":" in str(eigenvalues):
        raise invalid(
            f"--fractions {fractions} was given; they belong to eigenvalues, such as --spectrum 4,1,0.25. A spectrum "
            "with a name has its own."
        )
    if isinstance(eigenvalues, str):
        eigenvalues = numbers("--spectrum", eigenvalues)
    return {"eigenvalues": eigenvalues, "fractions": numbers("--fractions", fractions)}


def numbers(option: str, text: str) -> list[float]:
    """Numbers separated by commas."""
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise invalid(f"{option} {text} was given; give numbers separated by commas, such as 1,1,-1.") from None


def _spelled(given: dict[str, Any]) -> Callable[[str], str]:
    """An argument as the user would write it: as an option where there is one, and no file."""

    def spelled(argument: str) -> str:
        if argument not in _SHARED:
            return argument if "file" in given else f"{argument} (in a --file)"
        return argument if "file" in given and argument not in given else f"--{argument.replace('_', '-')}"

    return spelled


def _read(path: Path) -> dict[str, dict[str, Any]]:
    from ..yaml_files import read, with_numbers

    data = read(path, what="a problem")
    if not isinstance(data, dict) or not isinstance(data.get("problem"), dict):
        example = "problem: {name: PhaseRetrieval, width: 2}"
        raise invalid(f"{path} does not state a problem; write a line such as {example}")
    if others := [str(name) for name in data if name not in ("problem", "algorithm")]:
        raise invalid(
            f"{path} has {', '.join(others)} beside problem and algorithm: options say the rest. "
            "A study is run with dimfree study run."
        )
    for home, settings in data.items():
        if not isinstance(settings, dict) or not isinstance(settings.get("name"), str):
            example = {"problem": "PhaseRetrieval, width: 2", "algorithm": "OnlineSGD, learning_rate: 0.1"}[home]
            raise invalid(f"{path}: the {home} has no name; write a line such as {home}: {{name: {example}}}")
    return {
        home: {str(argument): with_numbers(value) for argument, value in settings.items()}
        for home, settings in data.items()
    }
