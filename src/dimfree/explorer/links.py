"""Settings as the query of an address, and back: a link that shows what somebody else saw."""

import urllib.parse
from collections.abc import Mapping
from typing import Any

from .settings import SEEDS, Choice, Settings

_LISTED = 8  # choices that a refusal names


def query_of(settings: Settings, view: str) -> str:
    """The query of an address that shows this view at these settings, such as `?problem=committee&view=curves&...`."""
    values = {name: _text(getattr(settings, name)) for name in settings.choice.steps}
    return "?" + urllib.parse.urlencode({"problem": settings.problem, "view": view, **values})


def chosen(query: Mapping[str, Any], name: str, known: Mapping[str, Any], usual: str) -> tuple[str, str]:
    """The problem or view that a query names, and what is said where there is no such thing."""
    given = query.get(name, usual)
    if isinstance(given, str) and given in known:  # a name that is given twice is a list
        return given, ""
    return usual, f"The link asks for {name} = {given!r}; there are {', '.join(known)}. {usual} is shown."


def settings_of(query: Mapping[str, Any], choice: Choice) -> tuple[dict[str, Any], list[str]]:
    """The settings of a problem that a query states, and a sentence for each that cannot be.

    Names that are not settings are left to whoever put them there.
    """
    values, refused = {}, []
    for name, steps in choice.steps.items():
        if name not in query:
            continue
        found = [step for step in steps if _is(query[name], step)]
        if found:
            values[name] = found[0]
        else:
            listed = f"0 to {steps[-1]}" if steps is SEEDS else _listed([_text(step) for step in steps])
            usual = _text(getattr(choice.default, name))
            refused.append(f"The link asks for {name} = {query[name]!r}; there are {listed}. {usual} is shown.")
    return values, refused


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return value if isinstance(value, str) else f"{value:.10g}"


def _is(given: Any, step: Any) -> bool:
    """Whether a text states a step; numbers may be written in any way."""
    if isinstance(step, bool | str):
        return given == _text(step)
    try:
        return float(given) == step
    except (TypeError, ValueError):  # a name that is given twice is a list
        return False


def _listed(steps: list[str]) -> str:
    if len(steps) <= _LISTED:
        return ", ".join(steps)
    half = _LISTED // 2
    return ", ".join([*steps[:half], "...", *steps[-half:]])
