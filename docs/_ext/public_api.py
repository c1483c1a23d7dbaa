"""Writes the API reference from `dimfree.__all__` while the documentation is built.

Docstrings are Markdown. Lines of a page are replaced:

- `<!-- public names of limits, state -->` by a table of the public names whose home is one of these modules, in the
  order of `__all__`, and by the docstring of each name with the docstrings of its public methods and properties;
- `<!-- all public names -->` by the table of all of them;
- `<!-- shared methods -->` by the methods that public classes have from common bases: each is described once.

A public name without a docstring, and one that no page describes, are warnings, hence errors in a strict build.
"""

import ast
import enum
import functools
import importlib
import inspect
import pathlib
import re
import types
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

TABLE = "<!-- all public names -->"
SHARED = "<!-- shared methods -->"
CHAPTER = re.compile(r"<!-- public names of ([\w., ]+) -->")
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


def is_ours(cls: type, package: str) -> bool:
    return cls.__module__.split(".")[0] == package


def as_function(value: Any) -> types.FunctionType | None:
    """The function behind a method or a property, if it has a docstring."""
    if isinstance(value, functools.cached_property):
        value = value.func
    function = inspect.unwrap(getattr(value, "__func__", getattr(value, "fget", value)))
    function = getattr(function, "method", function)
    return function if isinstance(function, types.FunctionType) and function.__doc__ else None


def own_members(cls: type) -> dict[str, Any]:
    """The public methods and properties that a class itself defines, with a docstring."""
    return {name: value for name, value in vars(cls).items() if not name.startswith("_") and as_function(value)}


def members(cls: type, package: str) -> Iterator[str]:
    """Directives for the methods and properties that a class adds to its bases, and a line that names the bases."""
    bases = [base for base in cls.__mro__[1:] if is_ours(base, package)]
    for name, value in own_members(cls).items():
        if any(name in vars(base) for base in bases):
            continue
        body = docstring(as_function(value), f"{package}.{cls.__name__}.{name}")
        if isinstance(value, functools.cached_property | property):
            yield directive("property", name, body, depth=0)
            continue
        options = (":classmethod:",) if isinstance(value, classmethod) else ()
        options = (":staticmethod:",) if isinstance(value, staticmethod) else options
        yield directive("method", name + signature(getattr(cls, name)), body, depth=0, options=options)
    known = public_names(importlib.import_module(package))
    inherited = [
        f"[`{base.__name__}`](#{'api' if base.__name__ in known else 'base'}-{base.__name__})"
        for base in bases
        if own_members(base) and not base.__name__.startswith("_")
    ]
    if inherited:
        yield f"It also has the methods of {', '.join(inherited)}."


def bases(package: str) -> dict[str, type]:
    """The classes that are not public themselves, and on which public classes are built: the specific ones first."""
    library = importlib.import_module(package)
    values = [getattr(library, name) for name in public_names(library)]
    found = {
        base.__name__: base
        for value in values
        if inspect.isclass(value)
        for base in value.__mro__[1:]
        if is_ours(base, package) and base not in values and own_members(base) and not base.__name__.startswith("_")
    }
    return dict(sorted(found.items(), key=lambda item: -len(item[1].__mro__)))


def shared(package: str) -> str:
    """The Markdown of the methods that public classes have from their bases."""
    sections = [
        f"(base-{name})=\n## {name}\n\n" + entry(value, f"{value.__module__}.{name}", package)
        for name, value in bases(package).items()
    ]
    return "\n\n".join(sections)


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


def table(values: dict[str, Any], package: str) -> str:
    """One row for each name: the name, and the first paragraph of its docstring."""
    rows = ["| name | what it is |", "| --- | --- |"]
    for name, value in values.items():
        text = inspect.cleandoc(value.__doc__ or "") if described(value) else ""
        summary = linked(" ".join(text.split("\n\n")[0].split()), package).replace("|", "\\|")
        rows.append(f"| [`{name}`](#api-{name}) | {summary} |")
    return "\n".join(rows)


def members_of(modules: list[str], package: str) -> dict[str, Any]:
    """The public names whose home is in one of `modules`; a public module is its own home."""
    library = importlib.import_module(package)
    registry = importlib.import_module(f"{package}.registry").PUBLIC
    return {
        name: getattr(library, name)
        for name in public_names(library)
        if any(f"{registry[name].module or name}.".startswith(f"{module}.") for module in modules)
    }


def chapter(modules: list[str], package: str) -> str:
    """The Markdown of one page: a table of its names, then each of them."""
    values = members_of(modules, package)
    if not values:
        logger.warning("no public name has its home in %s", ", ".join(modules))
    sections = [
        f"(api-{name})=\n## {name}\n\n" + entry(value, f"{package}.{name}", package) for name, value in values.items()
    ]
    return "\n\n".join([table(values, package), *sections])


def modules_in(text: str) -> list[str]:
    """The modules whose public names a page describes."""
    return [name.strip() for names in CHAPTER.findall(text) for name in names.split(",")]


def overview(text: str, folder: pathlib.Path, package: str) -> str:
    """The tables of all public names, in the order of the pages that the table of contents in `text` lists."""
    written: list[str] = []
    parts: list[str] = []
    for page in re.findall(r"^api/\w+$", text, re.MULTILINE):
        content = (folder / f"{page}.md").read_text(encoding="utf-8")
        values = members_of(modules_in(content), package)
        if not values:
            continue
        written += values
        title = content.splitlines()[0].removeprefix("# ")
        parts.append(f"## [{title}]({page}.md)\n\n{table(values, package)}")
    for name in public_names(importlib.import_module(package)):
        if written.count(name) != 1:
            logger.warning("%s is described on %d pages of the API reference, not on one", name, written.count(name))
    return "\n\n".join(parts)


def fill(app: Sphinx, docname: str, source: list[str]) -> None:
    source[0] = CHAPTER.sub(lambda match: chapter(modules_in(match[0]), "dimfree"), source[0])
    if SHARED in source[0]:
        source[0] = source[0].replace(SHARED, shared("dimfree"))
    if TABLE in source[0]:
        source[0] = source[0].replace(TABLE, overview(source[0], pathlib.Path(app.srcdir), "dimfree"))


def outdated(app: Sphinx, env: Any, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
    """The pages of the reference depend on the package, which Sphinx cannot see: read them anew each time."""
    return [name for name in sorted(env.found_docs) if name == "api" or name.startswith("api/")]


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", fill)
    app.connect("env-get-outdated", outdated)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
