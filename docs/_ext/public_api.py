"""Writes the API reference from `dimfree.__all__` while the documentation is built.

Docstrings are Markdown. The page that holds the line `<!-- public names -->` gets, in its place, a table of the public
names in the order of `__all__` and the docstring of each, with those of its public methods and properties.
A public name without a docstring is a warning, hence an error in a strict build.
"""

import ast
import enum
import functools
import importlib
import inspect
import re
import types
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

PLACE = "<!-- public names -->"
logger = logging.getLogger(__name__)


def public_names(module: types.ModuleType) -> list[str]:
    """What a module offers: its `__all__`, or else the functions and classes that are defined in it."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not name.startswith("_")]
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def described(value: Any) -> bool:
    """Whether the docstring of `value` is its own, and not that of its type."""
    return isinstance(value, types.ModuleType) or inspect.isclass(value) or callable(value)


def linked(text: str, package: str) -> str:
    """Link [`Name`] where `Name` is public; elsewhere leave the name alone."""
    known = public_names(importlib.import_module(package))

    def link(match: re.Match[str]) -> str:
        name = match[1]
        return f"[`{name}`](#api-{name})" if name in known else f"`{name}`"

    return re.sub(r"\[`(?:\w+\.)?(\w+)`\](?![\[(])", link, text)


def docstring(value: Any, name: str) -> str:
    """The docstring of `value`, as Markdown."""
    text = inspect.cleandoc(value.__doc__ or "")
    if not text:
        logger.warning("%s is public and has no docstring", name)
    return fence_examples(linked(text, name.split(".")[0]))


def fence_examples(text: str) -> str:
    """Put interpreter sessions in code blocks; drop the `??? example` lines that introduce them."""
    written: list[str] = []
    inside = False
    fenced = False
    for line in text.splitlines():
        if re.match(r"\s*```", line):
            fenced = not fenced
        if not fenced and re.match(r"\?\?\?\+? ", line):
            written.append("**Example**")
            written.append("")
            continue
        if not fenced and not inside and line.lstrip().startswith(">>>"):
            written.append("```pycon")
            inside = True
        elif inside and not line.strip():
            written.append("```")
            inside = False
        written.append(line.strip() if inside else line)
    if inside:
        written.append("```")
    return "\n".join(written)


def signature(value: Any) -> str:
    """The parameters with their defaults, without annotations (shapes are said in the docstring)."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "()"
    parameters = [
        parameter.replace(annotation=parameter.empty, default=_readable(parameter.default))
        for parameter in found.parameters.values()
        if parameter.name not in ("self", "cls")
    ]
    return str(found.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


class _Ellipsis:
    def __repr__(self) -> str:
        return "..."


def _readable(default: Any) -> Any:
    if default is inspect.Parameter.empty:
        return default
    try:
        ast.parse(repr(default), mode="eval")
    except SyntaxError:
        return _Ellipsis()
    return default


def directive(kind: str, heading: str, body: str, *, depth: int, options: tuple[str, ...] = ()) -> str:
    fence = ":" * (3 + depth)
    lines = [f"{fence}{{py:{kind}}} {heading}", *options, "", body, fence]
    return "\n".join(lines)


def members(cls: type, package: str) -> Iterator[str]:
    """Directives for the public methods and properties of a class, without those of dependencies or of public bases."""
    module = importlib.import_module(package)
    listed = [getattr(module, name) for name in public_names(module)]
    seen: set[str] = set()
    for owner in cls.__mro__:
        if owner.__module__.split(".")[0] != package or (owner is not cls and owner in listed):
            continue
        for name, value in vars(owner).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            cached = isinstance(value, functools.cached_property)
            function = value.func if cached else getattr(value, "__func__", getattr(value, "fget", value))
            function = inspect.unwrap(function)
            function = getattr(function, "method", function)
            if not isinstance(function, types.FunctionType) or not function.__doc__:
                continue
            body = docstring(function, f"{package}.{cls.__name__}.{name}")
            if cached or isinstance(value, property):
                yield directive("property", name, body, depth=0)
                continue
            options = (":classmethod:",) if isinstance(value, classmethod) else ()
            options = (":staticmethod:",) if isinstance(value, staticmethod) else options
            yield directive("method", name + signature(getattr(cls, name)), body, depth=0, options=options)


def entry(value: Any, name: str, package: str) -> str:
    """The whole entry of one public name."""
    if isinstance(value, types.ModuleType):
        inner = [entry(getattr(value, other), f"{name}.{other}", package) for other in public_names(value)]
        return "\n\n".join([docstring(value, name), *inner])
    if inspect.isclass(value):
        values = []
        if issubclass(value, enum.Enum):
            values.append("One of " + ", ".join(f"`{member.name}`" for member in value) + ".")
        body = "\n\n".join([docstring(value, name), *values, *members(value, package)])
        kind = "exception" if issubclass(value, BaseException) else "class"
        # How an exception or an enumeration is called says nothing about it.
        plain = issubclass(value, BaseException | enum.Enum)
        heading = name if plain else name + signature(value)
        return directive(kind, heading, body, depth=2)
    if callable(value):
        return directive("function", name + signature(value), docstring(value, name), depth=2)
    if isinstance(value, types.UnionType):
        options = [f"[`{part.__name__}`]" for part in value.__args__]
        return directive("data", name, "Any of " + linked(", ".join(options), package) + ".", depth=2)
    return directive("data", name, "", depth=2)


def reference(package: str) -> str:
    """The Markdown of the whole reference."""
    module = importlib.import_module(package)
    values = {name: getattr(module, name) for name in public_names(module)}
    if not values:
        logger.warning("%s.__all__ is missing or empty", package)
    rows = ["| name | what it is |", "| --- | --- |"]
    for name, value in values.items():
        text = inspect.cleandoc(value.__doc__ or "") if described(value) else ""
        summary = linked(" ".join(text.split("\n\n")[0].split()), package).replace("|", "\\|")
        rows.append(f"| [`{name}`](#api-{name}) | {summary} |")
    sections = [
        f"(api-{name})=\n## {name}\n\n" + entry(value, f"{package}.{name}", package) for name, value in values.items()
    ]
    return "\n\n".join(["\n".join(rows), *sections])


def fill(app: Sphinx, docname: str, source: list[str]) -> None:
    if PLACE in source[0]:
        source[0] = source[0].replace(PLACE, reference("dimfree"))


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", fill)
    # The page depends on the package, which Sphinx cannot see: read it anew each time.
    app.connect(
        "env-get-outdated", lambda app, env, added, changed, removed: ["api"] if "api" in env.found_docs else []
    )
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
