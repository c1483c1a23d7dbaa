"""Problems and algorithms stated in plain data: a name and arguments, in a file or on the command line.

Nothing heavy is imported before it is needed, as for the command line.
"""

import inspect
import operator
import re
from collections.abc import Callable, Iterable
from typing import Any, Literal

Home = Literal["problem", "algorithm"]

# What plain data can state. MultiIndex and LocalFields are made of functions, which are code.
NAMES: dict[Home, tuple[str, ...]] = {
    "problem": (
        "PhaseRetrieval",
        "TwoLayer",
        "SingleIndex",
        "Mixture",
        "Mixture.binary",
        "Mixture.xor",
        "SpikedTensor",
    ),
    "algorithm": (
        "OnlineSGD",
        "Momentum",
        "HeavyBall",
        "GradientDescent",
        "MultiPassSGD",
        "PersistentSGD",
        "Langevin",
    ),
}
# What may stand beside an algorithm that uses each sample once, as further arguments of it: a class and its argument.
BESIDE = {"average": ("Averaged", "forgetting"), "weight_decay": ("WeightDecay", "decay")}


# Arguments that are lists of numbers.
_LISTS = {"means", "labels", "probabilities", "readout", "teacher_readout"}


def dashed(name: str) -> str:
    """A name as it is typed in a terminal: `PhaseRetrieval` is phase-retrieval, `Mixture.xor` is mixture-xor."""
    words = re.findall(r"[A-Z]*[a-z]+|[A-Z]+", name)
    return "-".join(words).lower()


def find(home: Home, name: Any) -> str:
    """The name in the library of what is called `name`, in either spelling."""
    known = {dashed(each): each for each in NAMES[home]}
    if name in known.values():
        return name
    if name in known:
        return known[name]
    from .errors import InvalidInput

    names = known.values() if any(letter.isupper() for letter in str(name)) else known
    raise InvalidInput(f"There is no {home} called {name}; there are {_listed(names)}.")


def parameters(home: Home, name: str) -> dict[str, inspect.Parameter]:
    """The arguments that the problem or algorithm of that name takes."""
    found = dict(inspect.signature(_constructor(home, name)).parameters)
    return found | _beside() if home == "algorithm" and is_online(name) else found


def is_online(name: str) -> bool:
    """Whether the algorithm of that name uses each sample once."""
    from .algorithms import OnlineAlgorithm

    return issubclass(_constructor("algorithm", name), OnlineAlgorithm)  # pyright: ignore[reportArgumentType]


def _beside() -> dict[str, inspect.Parameter]:
    return {name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in BESIDE}


def make(home: Home, name: str, arguments: dict[str, Any], *, spelled: Callable[[str], str] = str) -> Any:
    """The problem or algorithm of that name; numbers may be traced.

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
    for argument, value in arguments.items():
        _check_plain(name, spelled(argument), known[argument], value)
    beside = {each: arguments[each] for each in BESIDE if arguments.get(each) is not None}
    try:
        made = _constructor(home, name)(**{each: arguments[each] for each in arguments if each not in BESIDE})
        for each, value in beside.items():
            kind, argument = BESIDE[each]
            made = _constructor(home, kind)(made, **{argument: value})
        return made
    except TypeError as error:
        raise InvalidInput(f"The {home} {name} was given {_listed(arguments)}: {error}") from error


def _check_plain(name: str, spelled: str, parameter: inspect.Parameter, value: Any) -> None:
    """What plain data can get wrong, and a constructor does not expect."""
    from .errors import InvalidInput

    if isinstance(parameter.default, bool) and not isinstance(value, bool):
        raise InvalidInput(f"{spelled} = {value!r} was given; write true or false.")
    if isinstance(value, dict):
        raise InvalidInput(f"{spelled} = {value!r} was given; write a number, a word, or a list of numbers.")
    if isinstance(value, list):
        if not (parameter.name in _LISTS or (name, parameter.name) == ("Mixture", "snr")):
            raise InvalidInput(f"{spelled} = {value!r} was given; {name} takes no list here, but one number or word.")
        if not _are_numbers(value):
            raise InvalidInput(f"{spelled} = {value!r} was given; write a list of numbers, such as [1, 1, -1].")


def _are_numbers(values: list[Any]) -> bool:
    return all(_are_numbers(value) if isinstance(value, list) else isinstance(value, int | float) for value in values)


def _constructor(home: Home, name: str) -> Callable[..., Any]:
    from . import algorithms, problems

    return operator.attrgetter(name)(problems if home == "problem" else algorithms)


def _listed(words: Iterable[str], last: str = ", ") -> str:
    *first, final = words
    return last.join([", ".join(first), final]) if first else final
