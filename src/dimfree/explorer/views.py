"""What the notebook shows: the controls, and for each view its picture, its words and what can be downloaded."""

import dataclasses
import html
import os
import re
import threading
from collections.abc import Callable
from typing import Any

from ..errors import InvalidInput
from . import computations, pictures, scripts
from .serve import PROBLEM_VARIABLE, STORE_VARIABLE
from .settings import DIMENSIONS, PROBLEMS, QUANTITIES, Settings

CURVES, EXITS, FLOW, REGIMES, STUDY = (
    "Learning curves",
    "Leaving the plateau",
    "Plane of overlaps",
    "Which limit applies",
    "Study",
)
VIEWS = (CURVES, EXITS, FLOW, REGIMES, STUDY)

_WORDS = {
    EXITS: "How long SGD stays on the plateau, over **random starts**. Where there is a formula, the ODE is also shown "
    "with SGD's noise: what it collects on the plateau is as large as a random start, whatever d is, and helps it to "
    "leave.",
    REGIMES: "Which description to use for each width and learning rate at this dimension: the cheapest one whose "
    "error is about the smallest. The dot is where the sliders are.",
    STUDY: "The phase diagram of a study, from its store (`dimfree study run`), complete or under way. Left empty, the "
    "quantity is the first of the study, and no line is drawn.",
}

HEADER = """
<div class="dimfree-header">
  <h1>dimfree explorer</h1>
  <p>Stochastic gradient descent in high dimension: what theory says, and what it does. Move a slider.</p>
</div>
"""

# matplotlib's style is one for the process, and so are the cores: visitors take turns.
_TURN = threading.Lock()


@dataclasses.dataclass(frozen=True)
class _View:
    """Words above a picture, the picture (if there is one yet), a table and words below it, and what is downloaded."""

    name: str
    figure: Any = None
    description: str = ""
    words: str = ""
    cards: str = ""
    table: str = ""
    remark: str = ""
    data: Callable[[], bytes] | None = None
    script: str = ""


# The controls.


def titles() -> dict[str, str]:
    """The problems by title."""
    return {choice.title: name for name, choice in PROBLEMS.items()}


def first_title() -> str:
    """The title of the problem that is chosen at first."""
    return PROBLEMS[os.environ.get(PROBLEM_VARIABLE) or "phase-retrieval"].title


def controls(mo: Any, problem: str) -> Any:
    """The sliders of a problem."""
    choice, start = PROBLEMS[problem], PROBLEMS[problem].default
    looks = {"show_value": True, "full_width": True}

    def slider(steps: tuple, value: Any, label: str) -> Any:
        return mo.ui.slider(steps=list(steps), value=value, label=label, **looks)

    exponents = {}
    if choice.exponents:
        exponents["exponent"] = slider(choice.exponents, start.exponent, "Exponent of the power law")
    quantities = {}
    if choice.classifies:
        quantities["quantity"] = mo.ui.radio(list(QUANTITIES), start.quantity, label="Quantity", inline=True)
    return mo.ui.dictionary(
        {
            **quantities,
            "width": slider(choice.widths, start.width, "Students, p"),
            "learning_rate": slider(choice.rates, start.learning_rate, "Learning rate"),
            "noise": slider(choice.noises, start.noise, choice.noise_title),
            **exponents,
            "d": slider(DIMENSIONS, start.d, "Dimension, d"),
            "alpha": slider(choice.alphas, start.alpha, "Samples per dimension, α"),
            "sphere": mo.ui.switch(start.sphere, label="Students on the sphere"),
            "log": mo.ui.switch(start.log, label="Logarithmic risk"),
            "seed": mo.ui.number(0, 10_000, 1, value=0, label="Random start"),
        }
    )


def side(mo: Any, problem: Any, chosen: Any) -> Any:
    """The controls as they stand at the side."""
    words = PROBLEMS[problem.value].words
    return mo.vstack(
        [
            problem,
            mo.Html(f'<p class="dimfree-words">{html.escape(words)}</p>'),
            *chosen.elements.values(),
            mo.Html(
                '<p class="dimfree-words">The first picture of a width compiles its program, which takes some '
                "seconds; then every slider answers at once.</p>"
            ),
        ],
        gap=0.8,
    )


def extra_controls(mo: Any, view: str) -> Any:
    """What a view asks beside the sliders."""
    if view == EXITS:
        return mo.ui.run_button(label="Compute the exit times (a minute or two the first time, then seconds)")
    if view == REGIMES:
        return mo.ui.run_button(label="Compute the map (takes up to a minute the first time)")
    if view == STUDY:
        return mo.ui.dictionary(
            {
                "store": mo.ui.text(os.environ.get(STORE_VARIABLE, ""), label="Store", full_width=True),
                "quantity": mo.ui.text("", label="Quantity"),
                "level": mo.ui.text("", label="Line at"),
            }
        )
    return None


def laid_out(mo: Any, extra: Any) -> Any:
    """What a view asks, as it stands above the picture."""
    if isinstance(extra, mo.ui.dictionary):
        return mo.hstack(list(extra.elements.values()), widths=[3, 1.3, 1.3], align="end")
    return extra


# The views.


def show(mo: Any, view: str, problem: str, values: dict[str, Any], extra: Any) -> Any:
    """The chosen view at the chosen settings; what is wrong with them is said in words."""
    view = view or CURVES
    settings = Settings(problem=problem, **values)
    words = _WORDS.get(view, "")
    try:
        with mo.status.spinner("Computing", remove_on_exit=True), _TURN:
            made = _MAKERS[view](settings, extra)
            picture = None if made.figure is None else pictures.as_html(made.figure, made.description)
    except InvalidInput as objection:
        return mo.vstack([message(mo, str(objection)), _caption(mo, words)])
    parts = [mo.Html(made.cards)] if made.cards else []
    parts += [message(mo, made.remark)] if made.remark else []
    parts += [] if picture is None else [mo.Html(picture)]
    parts += [mo.Html(made.table), _caption(mo, " ".join(filter(None, (words, made.words))))]
    parts += [] if picture is None else [_downloads(mo, made)]
    return mo.vstack(parts, gap=0.5)


def _caption(mo: Any, words: str) -> Any:
    return mo.Html(f'<div class="dimfree-words">{mo.md(words).text}</div>')


def message(mo: Any, words: str) -> Any:
    """What is wrong, in a box; what is between backticks is code."""
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(words))
    return mo.Html(f'<div class="dimfree-message" role="alert">{text}</div>')


def _downloads(mo: Any, made: _View) -> Any:
    figure = made.figure

    def in_turn(make: Callable[[], bytes]) -> Callable[[], bytes]:
        def made_in_turn() -> bytes:
            with _TURN:
                return make()

        return made_in_turn

    buttons = [
        mo.download(in_turn(lambda: pictures.as_bytes(figure, "png")), f"{made.name}.png", label="Picture (PNG)"),
        mo.download(in_turn(lambda: pictures.as_bytes(figure, "pdf")), f"{made.name}.pdf", label="Picture (PDF)"),
    ]
    if made.data is not None:
        buttons.append(mo.download(in_turn(made.data), f"{made.name}.nc", label="Data (NetCDF)"))
    buttons.append(mo.download(made.script.encode(), f"{made.name}.py", label="Code that makes it (Python)"))
    return mo.hstack(buttons, justify="center", gap=0.6, wrap=True)


def _curves(settings: Settings, _: Any) -> _View:
    result = computations.curves(settings)
    cards = "".join(
        f'<div class="dimfree-card" data-card="{key}"><div class="title">{title}</div><div class="value">{value}</div>'
        f'<div class="caption">{caption}</div></div>'
        for key, title, value, caption in pictures.cards_of(result)
    )
    return _View(
        name="curves",
        figure=pictures.draw_curves(result),
        description=f"{settings.choice.title}: {settings.quantity} and overlaps over alpha, theory and simulation",
        words=pictures.caption_of(result),
        cards=f'<div class="dimfree-cards">{cards}</div>',
        remark=result.remark,
        data=lambda: pictures.as_netcdf(pictures.data_of(result)),
        script=scripts.curves_script(settings, plateau=result.level is not None),
    )


def _exits(settings: Settings, asked: Any) -> _View:
    try:
        formula = computations.exit_formula(settings)
    except InvalidInput as objection:  # there is no plateau: that is no fault
        return _View(name="exit_times", words=str(objection))
    if not asked and not computations.knows_exits(settings):
        words = "The formula is there at once; " if formula.closed_form is not None else ""
        words += f"the picture shows the ODE and {computations.EXIT_RUNS} simulated runs, once they are computed."
        return _View(name="exit_times", table=_table(pictures.exit_rows(formula)), words=words[0].upper() + words[1:])
    result = computations.exits(settings)
    return _View(
        name="exit_times",
        figure=pictures.draw_exits(result),
        description="The fraction of runs that have left the plateau over alpha",
        table=_table(pictures.exit_rows(result)),
        remark=" ".join(result.notes),
        data=lambda: pictures.as_netcdf(result.to_xarray()),
        script=scripts.exits_script(settings),
    )


def _flow(settings: Settings, _: Any) -> _View:
    result = computations.flow(settings)
    curves = computations.curves(settings)
    return _View(
        name="flow",
        figure=pictures.draw_flow(result, curves),
        description="Solutions of the ODE in a plane of overlaps, and the points where they rest",
        words=pictures.flow_caption(result, settings),
        data=lambda: pictures.as_netcdf(pictures.flow_data(result)),
        script=scripts.flow_script(settings),
    )


def _regimes(settings: Settings, asked: Any) -> _View:
    if not asked and not computations.knows_regimes(settings):
        return _View(name="regimes")
    result = computations.regime_map(settings)
    return _View(
        name="regimes",
        figure=pictures.draw_regimes(result),
        description="The limit that applies to each width and learning rate",
        table=_table(pictures.regime_rows(result)),
        data=lambda: pictures.as_netcdf(pictures.regimes_data(result)),
        script=scripts.regimes_script(settings),
    )


def _study(settings: Settings, asked: Any) -> _View:
    store, quantity, level = asked["store"].strip(), asked["quantity"].strip() or None, _level(asked["level"])
    data, chosen = pictures.two_axes_of(computations.study(store))
    from ..studies.opening import loaded

    data = loaded(data, store)
    return _View(
        name="phase_diagram",
        figure=pictures.draw_study(data, quantity, level),
        description="The phase diagram of a study",
        remark=pictures.what_was_chosen(chosen),
        data=lambda: pictures.as_netcdf(data),
        script=scripts.study_script(store, quantity, level, {name: 0 for name in chosen}),
    )


_MAKERS: dict[str, Callable[[Settings, Any], _View]] = {
    CURVES: _curves,
    EXITS: _exits,
    FLOW: _flow,
    REGIMES: _regimes,
    STUDY: _study,
}


def _level(text: str) -> float | None:
    if not text.strip():
        return None
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"level = {text!r} was given; it must be a number, such as 0.5.") from None


def _table(rows: list[dict[str, str]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(value)}</td>" for value in row.values()) + "</tr>" for row in rows
    )
    return f'<table class="dimfree-table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
