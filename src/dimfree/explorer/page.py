"""A page that moves without Python: curves for many settings, computed once, and sliders in plain JavaScript."""

import importlib.metadata
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..trajectory import Outcome
from . import pictures
from .computations import Curves, curves
from .serve import preset
from .settings import PROBLEMS, Choice, Settings

_WIDTHS, _DIMENSIONS = (1, 2, 4), (100, 500)
_RATES, _NOISES, _EXPONENTS = 8, 4, 4  # how many steps the sliders of the page have
_EVERY = 2  # of the times that are computed
_DIGITS = 4


def export_page(path: Path | str, problem: str = "phase-retrieval", *, say: Callable[[str], Any] = print) -> None:
    """Write a page that shows theory and simulation of a problem, with sliders, and needs nothing but a browser.

    **Arguments:**

    - `path`: the file, such as `page.html`.
    - `problem`: which of the explorer's problems.
    - `say`: what prints how far it is.
    """
    problem = preset(problem)
    Path(path).write_text(page(problem, axes_of(PROBLEMS[problem]), say=say), encoding="utf-8")


def axes_of(choice: Choice) -> dict[str, list]:
    """The steps of the page's sliders: some of those that the explorer has, the default among them."""
    default, exponent = choice.default, choice.default.exponent
    fewer = 2 if exponent else 1  # so that a page with one more slider is not larger
    exponents = {"exponent": _some(choice.exponents, _EXPONENTS, exponent)} if exponent else {}
    return {
        "width": [width for width in _WIDTHS if width in choice.widths],
        "learning_rate": _some(choice.rates, _RATES // fewer, default.learning_rate),
        "noise": _some(choice.noises, _NOISES // fewer, default.noise),
        **exponents,
        "d": list(_DIMENSIONS),
    }


def page(problem: str, axes: dict[str, list], *, say: Callable[[str], Any]) -> str:
    """The page as text."""
    choice = PROBLEMS[problem]
    cells = []
    combinations = list(itertools.product(*axes.values()))
    for number, values in enumerate(combinations):
        if number % 16 == 0:
            say(f"{number} of {len(combinations)} settings computed")
        settings = Settings(
            problem=problem,
            alpha=choice.default.alpha,
            sphere=choice.default.sphere,
            log=choice.default.log,
            **dict(zip(axes, values, strict=True)),
        )
        cells.append(cell(curves(settings)))
    nearest = {
        name: int(np.argmin(np.abs(np.asarray(steps, float) - getattr(choice.default, name))))
        for name, steps in axes.items()
    }
    content = {
        "title": choice.title,
        "words": choice.words,
        "log": choice.default.log,
        "sphere": choice.default.sphere,
        "version": importlib.metadata.version("dimfree"),
        "axes": axes,
        "noise": choice.noise_title,
        "start": nearest,
        "teachers": choice.teacher_width,
        "cells": cells,
    }
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    # A closing tag inside a string would end the script.
    text = json.dumps(content, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    return template.replace("__TITLE__", choice.title).replace("__DATA__", text)


def cell(result: Curves) -> dict[str, Any]:
    """What the page knows of one setting."""
    completed = np.asarray(result.simulated.outcome) == Outcome.COMPLETED
    overlaps = np.asarray(result.matched.state.M)[completed]
    some = bool(completed.any())

    def curves_of(quantity: str) -> dict[str, Any]:
        simulated = np.asarray(result.simulated.observe(quantity))[completed]
        low, high = np.quantile(simulated, [0.1, 0.9], axis=0) if some else (None, None)
        return {
            "theory": _short(np.asarray(result.theory.observe(quantity))),
            "mean": _short(simulated.mean(axis=0)) if some else [],
            "low": _short(low),
            "high": _short(high),
        }

    def entries(M) -> list[Any]:
        return [_short(M[:, i, j]) for i in range(M.shape[1]) for j in range(M.shape[2])]

    return {
        "alpha": _short(np.asarray(result.theory.alpha)),
        **curves_of("risk"),
        **({"accuracy": curves_of("accuracy")} if result.settings.choice.classifies else {}),
        "M": entries(np.asarray(result.theory.state.M)),
        "simulated_M": entries(overlaps.mean(axis=0)) if some else [],
        "low_M": entries(np.quantile(overlaps, 0.1, axis=0)) if some else [],
        "high_M": entries(np.quantile(overlaps, 0.9, axis=0)) if some else [],
        "level": _number(result.level),
        "predicted": _number(result.predicted),
        "median": _number(float(np.median(result.measured))),
        "cards": [list(card) for card in pictures.cards_of(result)],
        "remark": result.remark,
        "caption": pictures.caption_of(result, each=False),
    }


def _some(steps: tuple[float, ...], number: int, default: float) -> list[float]:
    """So many of the steps, evenly, with the default in place of the one that is nearest to it."""
    chosen = [steps[i] for i in np.linspace(0, len(steps) - 1, min(number, len(steps))).round().astype(int)]
    chosen[int(np.argmin(np.abs(np.array(chosen) - default)))] = default
    return sorted(set(chosen))


def _number(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(f"{value:.{_DIGITS}g}")


def _short(values: Any) -> list[float | None]:
    return [] if values is None else [_number(float(value)) for value in values[::_EVERY]]
