"""The arguments of all public callables side by side, as one Markdown table: an idea should have one name, one default.

python tools/signatures.py          # a row for each argument, and the callables that take it in the same way
python tools/signatures.py --odd    # what to look at: bare tuples returned, docstrings that do not say what is returned
"""

import inspect
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import dimfree
from dimfree import registry


def public_callables() -> Iterator[tuple[str, Callable]]:
    """Every public function, constructor and method by its name; of a public module those in its `__all__`."""
    for name in registry.PUBLIC:
        value = getattr(dimfree, name)
        if isinstance(value, types.ModuleType):
            yield from ((f"{name}.{each}", found) for each in value.__all__ if callable(found := getattr(value, each)))
            continue
        if not inspect.isclass(value):
            yield name, value
            continue
        # That of a result is generated, of its fields.
        if "__init__" in vars(value) and value.__init__.__code__.co_filename == inspect.getfile(value):
            yield name, value
        for each in vars(value):
            if callable(found := getattr(value, each)) and not (inspect.isclass(found) or each.startswith("_")):
                yield f"{name}.{each}", found


def arguments(function: Callable) -> dict[str, str]:
    """How each argument is taken: `2nd`, `keyword`, with its default."""
    found, place = {}, 0
    for name, each in inspect.signature(function).parameters.items():
        if name == "self":
            continue
        place += 1
        way = "keyword" if each.kind is each.KEYWORD_ONLY else str(place)
        found[name] = way if each.default is each.empty else f"{way}, = {each.default!r}"
    return found


def returned(function: Callable) -> str:
    """The annotation of what is returned, in short; nothing for a constructor."""
    annotation: Any = inspect.Signature.empty if inspect.isclass(function) else function.__annotations__.get("return")
    if annotation in (None, inspect.Signature.empty):
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return text.rpartition(".")[2] if "[" not in text else text


def table() -> str:
    """One row for each argument and way in which it is taken, in the order of the alphabet."""
    rows: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, function in public_callables():
        for argument, way in arguments(function).items():
            rows[argument][way].append(name)
    lines = ["| argument | place, default | callables |", "| --- | --- | --- |"]
    for argument in sorted(rows):
        for way, names in sorted(rows[argument].items()):
            lines.append(f"| `{argument}` | {way} | {', '.join(names)} |")
    return "\n".join(lines)


def odd() -> Iterator[str]:
    """What returns a bare tuple, and what does not say in its docstring what it returns.

    A method without arguments to explain says so in its first sentence.
    """
    for name, function in public_callables():
        text = returned(function)
        if text.lower().startswith("tuple["):
            yield f"a bare tuple: {name} -> {text}"
        described = "." not in name or "**Arguments:**" in (function.__doc__ or "")
        if not inspect.isclass(function) and text and described and "**Returns" not in (function.__doc__ or ""):
            yield f"no Returns: {name} -> {text}"


if __name__ == "__main__":
    print("\n".join(odd()) if "--odd" in sys.argv else table())
