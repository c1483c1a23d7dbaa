"""What the notebook shows: the controls, and for each view its picture, its words and what can be downloaded."""

import dataclasses
import functools
import html
import os
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import InvalidInput
from . import background, computations, links, pictures, scripts
from .background import Pending
from .serve import PROBLEM_VARIABLE, STORE_VARIABLE
from .settings import OPTIMISERS, PROBLEMS, RUNS, SCHEDULES, SEEDS, Settings

CURVES, EXITS, FLOW, SCHEDULE, REGIMES, STUDY = (
    "Learning curves",
    "Leaving the plateau",
    "Plane of overlaps",
    "Best schedule",
    "Which limit applies",
    "Study",
)
VIEWS = {
    "curves": CURVES,
    "exit-times": EXITS,
    "overlaps": FLOW,
    "best-schedule": SCHEDULE,
    "limits": REGIMES,
    "study": STUDY,
}

_WORDS = {
    EXITS: "How long SGD stays on the plateau, over **random starts**. Where there is a formula, the ODE is also shown "
    "with SGD's noise: what it collects on the plateau is as large as a random start, whatever d is, and helps it to "
    "leave.",
    SCHEDULE: "The learning rate over alpha that makes the risk **at the end** smallest, from the start of the "
    "learning curves, and what it does to the risk.",
    REGIMES: "Which description to use for each width and learning rate at this dimension: the cheapest one whose "
    "error is about the smallest. The dot is where the sliders are.",
}
_STUDY_WORDS = """
A study computes thousands of settings on every core of a laptop or a cluster, and keeps the results in a *store*. Write
what varies into a file `study.yaml`:

```yaml
{example}```

and run it:

```bash
dimfree study run study.yaml
```

Then type `study.store` above, complete or under way, to see its phase diagram. Left empty, the quantity is the first of
the study, and no line is drawn. The **picture is an example** that a formula gives at once: how much one student has
learned, its squared overlap. It learns at learning rates below 2 / (12 + noise).
"""
EXAMPLE_STUDY = """title: The ODE at alpha = 20
problem: {name: PhaseRetrieval, width: 1}
algorithm: {name: OnlineSGD, sphere: true}
axes:
  algorithm.learning_rate: {from: 0.01, to: 0.16, points: 32}
  problem.noise: {from: 0.0, to: 12.0, points: 32}
compute: {name: solve, alpha: 20.0, overlap: 0.07}
"""

HEADER = """
<div class="dimfree-header">
  <h1>dimfree explorer</h1>
  <p>Stochastic gradient descent in high dimension: what theory says, and what it does. Move a slider.</p>
</div>
"""

# What is computed, as it is said while it is, and the seconds that it takes the first time.
_COMPUTED = {
    "curves": ("the learning curves", 15),
    "formula": ("the plateau", 5),
    "exits": ("the exit times", 60),
    "flow": ("the plane of overlaps", 15),
    "schedule": ("the best schedule", 60),
    "scales": ("the sizes of the errors", 45),
}

# matplotlib's style is one for the process: whoever draws has it for a moment. Nobody computes meanwhile.
_DRAWING = threading.Lock()


@dataclasses.dataclass(frozen=True)
class _View:
    """Words above a picture, the picture (if there is one), a table and words below it, and what is downloaded.

    - `note`: why there is no such view at these settings; what is drawn then is another.
    - `pending`: what is still being computed.
    """

    name: str
    figure: Any = None
    description: str = ""
    words: str = ""
    cards: str = ""
    table: str = ""
    remark: str = ""
    note: str = ""
    data: Callable[[], bytes] | None = None
    script: str = ""
    pending: Pending | None = None


# The controls.


def titles() -> dict[str, str]:
    """The problems by title."""
    return {choice.title: name for name, choice in PROBLEMS.items()}


def opened(query: Mapping[str, Any]) -> tuple[str, str, list[str]]:
    """The title of the problem, and the view, that a link opens; and what is said of names that there are not."""
    usual = os.environ.get(PROBLEM_VARIABLE) or "phase-retrieval"
    problem, no_problem = links.chosen(query, "problem", PROBLEMS, usual)
    view, no_view = links.chosen(query, "view", VIEWS, "curves")
    return PROBLEMS[problem].title, VIEWS[view], [words for words in (no_problem, no_view) if words]


_LABELS = {
    "quantity": "Quantity",
    "width": "Students, p",
    "learning_rate": "Learning rate",
    "schedule": "Learning rate over α",
    "optimiser": "Optimiser",
    "exponent": "Exponent of the inputs' power law (0: isotropic)",
    "d": "Dimension, d",
    "alpha": "Samples per dimension, α",
    "sphere": "Students on the sphere",
    "log": "Logarithmic risk",
    "seed": "Random start",
}
_TITLES = {"optimiser": OPTIMISERS, "schedule": SCHEDULES}


def controls(mo: Any, problem: str, query: Mapping[str, Any]) -> tuple[Any, list[str]]:
    """The controls of a problem, as a link sets them if it is of this problem; and what is said of wrong settings."""
    choice = PROBLEMS[problem]
    is_of_it = links.chosen(query, "problem", PROBLEMS, problem)[0] == problem
    given, refused = links.settings_of(query, choice) if is_of_it else ({}, [])
    start = dataclasses.replace(choice.default, **given)

    def control(name: str, steps: tuple) -> Any:
        value, label = getattr(start, name), choice.noise_title if name == "noise" else _LABELS[name]
        if name == "quantity":
            return mo.ui.radio(list(steps), value, label=label, inline=True)
        if name in _TITLES:
            titles = {_TITLES[name][step].title: step for step in steps}
            return mo.ui.dropdown(titles, _TITLES[name][value].title, label=label, full_width=True)
        if steps is SEEDS:
            return mo.ui.number(steps[0], steps[-1], 1, value=value, label=label)
        if isinstance(value, bool):
            return mo.ui.switch(value, label=label)
        return mo.ui.slider(steps=list(steps), value=value, label=label, show_value=True, full_width=True)

    return mo.ui.dictionary({name: control(name, steps) for name, steps in choice.steps.items()}), refused


def side(mo: Any, problem: Any, chosen: Any) -> Any:
    """The controls as they stand at the side."""
    words = PROBLEMS[problem.value].words
    return mo.vstack(
        [
            problem,
            mo.Html(f'<p class="dimfree-words">{html.escape(words)}</p>'),
            *chosen.elements.values(),
            mo.Html(
                '<p class="dimfree-words">The first picture of a width, an optimiser or a kind of schedule compiles '
                "its program, which takes some seconds; then every slider answers at once.</p>"
            ),
        ],
        gap=0.8,
    )


def extra_controls(mo: Any, view: str) -> Any:
    """What a view asks beside the sliders."""
    if view == EXITS:
        return mo.ui.run_button(label="Compute the exit times")
    if view == SCHEDULE:
        return mo.ui.run_button(label="Find the best schedule")
    if view == REGIMES:
        return mo.ui.run_button(label="Compute the map")
    if view == STUDY:
        return mo.ui.dictionary(
            {
                "store": mo.ui.text(os.environ.get(STORE_VARIABLE, ""), label="Store"),
                "quantity": mo.ui.text("", label="Quantity"),
                "level": mo.ui.text("", label="Line at"),
            }
        )
    return None


def laid_out(mo: Any, extra: Any) -> Any:
    """What a view asks, as it stands above the picture."""
    if isinstance(extra, mo.ui.dictionary):
        return mo.hstack(list(extra.elements.values()), justify="start", align="end", gap=1, wrap=True)
    return extra


# The views.


def show(
    mo: Any,
    view: str,
    problem: str,
    values: dict[str, Any],
    extra: Any,
    ticker: Any = None,
    refused: list[str] | None = None,
) -> Any:
    """The chosen view at the chosen settings; what is wrong with them is said in words.

    Nothing here takes long: what does is computed in the background, and while it is, `ticker` asks again.
    """
    view = view or CURVES
    settings = Settings(problem=problem, **values)
    words, picture, made = _WORDS.get(view, ""), "", _View(name="none")
    try:
        made = made_of(view, settings, extra)
        if made.figure is not None:
            with _DRAWING:
                picture = pictures.as_html(made.figure, made.description)
    except Pending as pending:
        made = dataclasses.replace(made, pending=pending)
    except InvalidInput as objection:
        made = dataclasses.replace(made, remark=str(objection))
    parts = [message(mo, " ".join(refused))] if refused else []
    parts += [mo.Html(made.cards)] if made.cards else []
    parts += [message(mo, made.remark)] if made.remark else []
    parts += [message(mo, made.note, kind="note")] if made.note else []
    if made.pending is not None:
        parts += [message(mo, _waiting(made.pending), kind="note")]
        parts += [mo.Html(f'<div class="dimfree-ticker">{ticker}</div>')]
    parts += [mo.Html(picture)] if picture else []
    parts += [mo.Html(made.table), _caption(mo, " ".join(filter(None, (words, made.words))))]
    parts += [_downloads(mo, made)] if made.script else []
    (name,) = (name for name, title in VIEWS.items() if title == view)
    link = html.escape(links.query_of(settings, name))
    parts += [mo.Html(f'<p class="dimfree-words"><a class="dimfree-link" href="{link}">Link to these settings</a></p>')]
    return mo.vstack(parts, gap=0.5)


def made_of(view: str, settings: Settings, extra: Any) -> _View:
    """A view; where there is none of this problem, why, and the learning curves instead."""
    try:
        return _MAKERS[view](settings, extra)
    except InvalidInput as objection:
        if view in (CURVES, STUDY):
            raise
        instead = _curves(settings, None)
        return dataclasses.replace(instead, note=f"{objection} Below are the learning curves.", cards="")


def prepare() -> None:
    """Begin with what the first visitor will see."""
    settings = PROBLEMS[os.environ.get(PROBLEM_VARIABLE) or "phase-retrieval"].default
    result = _curves_of(settings, patience=600.0)  # seconds, after which nobody waits any more
    with _DRAWING:
        pictures.as_html(pictures.draw_curves(result), "")
        pictures.as_html(pictures.draw_study(computations.example_study()), "")


def _waiting(pending: Pending) -> str:
    what, seconds = _COMPUTED[pending.kind]
    return (
        f"Computing {what}: {pending.seconds:.0f} s so far. The first time takes about {seconds} s, because a program "
        "is compiled; the next time it is kept. Everything else on the page can be used meanwhile."
    )


def _curves_of(settings: Settings, **patience: float) -> computations.Curves:
    """The learning curves, computed once for what is drawn of them in several ways."""
    settings = settings.checked()
    computed = dataclasses.replace(settings, log=False, quantity="risk")
    found = background.result("curves", computed, lambda: computations.curves(computed), **patience)
    return dataclasses.replace(found, settings=settings)


def _computed(kind: str, settings: Settings, compute: Callable[[Settings], Any], **fixed: Any) -> tuple[Any, Any]:
    """The name of a result that does not depend on `fixed`, and how to ask for it."""
    name = dataclasses.replace(settings, log=False, quantity="risk", **fixed)
    return name, lambda: background.result(kind, name, lambda: compute(name))


def _caption(mo: Any, words: str) -> Any:
    return mo.Html(f'<div class="dimfree-words">{mo.md(words).text}</div>')


def message(mo: Any, words: str, *, kind: str = "message") -> Any:
    """What is wrong, or a note that nothing is, in a box; what is between backticks is code."""
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(words))
    role = "alert" if kind == "message" else "status"
    return mo.Html(f'<div class="dimfree-{kind}" role="{role}">{text}</div>')


def _downloads(mo: Any, made: _View) -> Any:
    figure = made.figure

    def in_turn(make: Callable[[], bytes]) -> Callable[[], bytes]:
        def made_in_turn() -> bytes:
            with _DRAWING:
                return make()

        return made_in_turn

    buttons = []
    if figure is not None:
        buttons += [
            mo.download(
                in_turn(functools.partial(pictures.as_bytes, figure, kind)),
                f"{made.name}.{kind}",
                label=f"Picture ({words})",
            )
            for kind, words in (("png", "PNG"), ("pdf", "PDF"))
        ]
    if made.data is not None:
        buttons.append(mo.download(made.data, f"{made.name}.nc", label="Data (NetCDF)"))
    buttons.append(mo.download(made.script.encode(), f"{made.name}.py", label="Code that makes it (Python)"))
    return mo.hstack(buttons, justify="center", gap=0.6, wrap=True)


def _curves(settings: Settings, _: Any) -> _View:
    result = _curves_of(settings)
    cards = "".join(
        f'<div class="dimfree-card" data-card="{key}"><div class="title">{title}</div><div class="value">{value}</div>'
        f'<div class="caption">{caption}</div></div>'
        for key, title, value, caption in pictures.cards_of(result)
    )
    return _View(
        name="curves",
        figure=_drawn(pictures.draw_curves, result),
        description=f"{settings.choice.title}: {settings.quantity} and overlaps over alpha, theory and simulation",
        words=pictures.caption_of(result),
        cards=f'<div class="dimfree-cards">{cards}</div>',
        remark=result.remark,
        data=lambda: pictures.as_netcdf(pictures.data_of(result)),
        script=scripts.curves_script(settings, plateau=result.level is not None),
    )


def _if_asked(asked: Any, kind: str, name: Any, ask: Callable[[], Any]) -> tuple[Any, Pending | None]:
    """What a button asks for, once it has been pressed at these settings; and what is being computed."""
    if not (asked or background.is_asked(kind, name)):
        return None, None
    try:
        return ask(), None
    except Pending as pending:
        return None, pending


def _drawn(draw: Callable[..., Any], *arguments: Any) -> Any:
    with _DRAWING:
        return draw(*arguments)


def _exits(settings: Settings, asked: Any) -> _View:
    settings, usual = settings.checked(), settings.choice.default.alpha  # nothing here depends on the last alpha
    name, ask = _computed("exits", settings, computations.exits, alpha=usual)
    result, pending = _if_asked(asked, "exits", name, ask)
    figure, remark, words = None, "" if result is None else " ".join(result.notes), ""
    if result is None:
        result = _computed("formula", settings, computations.exit_formula, alpha=usual)[1]()
        words = (
            f"The picture shows the {RUNS} runs of the learning curves, which all have one start. The button adds the "
            f"ODE and {computations.EXIT_RUNS} runs from random starts; that takes a minute or two the first time, and "
            "seconds later."
        )
        try:
            result = computations.first_exits(result, _curves_of(settings))
        except Pending as found:
            pending = pending or found
    if result.simulated is not None:
        figure = _drawn(pictures.draw_exits, result)
    data = result.to_xarray
    return _View(
        name="exit_times",
        figure=figure,
        description="The fraction of runs that have left the plateau over alpha",
        table=_table(pictures.exit_rows(result)),
        words=words,
        remark=remark,
        data=lambda: pictures.as_netcdf(data()),
        script=scripts.exits_script(settings),
        pending=pending,
    )


def _flow(settings: Settings, _: Any) -> _View:
    result = _computed("flow", settings.checked(), computations.flow)[1]()
    curves = _curves_of(settings)
    return _View(
        name="flow",
        figure=_drawn(pictures.draw_flow, result, curves),
        description="Solutions of the ODE in a plane of overlaps, and the points where they rest",
        words=pictures.flow_caption(result, settings),
        data=lambda: pictures.as_netcdf(pictures.flow_data(result)),
        script=scripts.flow_script(settings),
    )


def _schedule(settings: Settings, asked: Any) -> _View:
    computations.check_sgd(settings)
    curves, usual = _curves_of(settings), settings.choice.default
    name, ask = _computed(
        "schedule", settings, computations.best_schedule, learning_rate=usual.learning_rate, schedule="constant"
    )
    found, pending = _if_asked(asked, "schedule", name, ask)
    words = (
        "The picture shows the learning rate and the schedule that are chosen at the side. The button searches the "
        "best schedule, and the best constant to compare it with; that takes up to a minute or two."
        if found is None
        else pictures.schedule_caption(found)
    )
    return _View(
        name="best_schedule",
        figure=_drawn(pictures.draw_schedules, curves, found),
        description="The learning rate and the risk over alpha",
        table=_table(pictures.schedule_rows(curves, found)),
        words=words,
        data=None if found is None else lambda: pictures.as_netcdf(found.protocol.to_xarray()),
        script=scripts.protocol_script(settings),
        pending=pending,
    )


def _regimes(settings: Settings, asked: Any) -> _View:
    usual = settings.choice.default  # the sizes of the errors are found at a rate and a dimension of their own
    fixed = {"width": settings.width, "learning_rate": usual.learning_rate, "d": usual.d, "alpha": usual.alpha}
    name, ask = _computed("scales", settings.checked(), computations.regime_scales, **fixed)
    scales, pending = _if_asked(asked, "scales", name, ask)
    words = ""
    result = computations.regime_map(settings, scales)
    if scales is None:
        words = (
            "This first map takes the **constants of the theorems to be one**, for whatever problem. The button finds "
            "them for this problem, from a small network; that takes up to a minute the first time."
        )
    return _View(
        name="regimes",
        figure=_drawn(pictures.draw_regimes, result),
        description="The limit that applies to each width and learning rate",
        table=_table(pictures.regime_rows(result)) if scales is not None else "",
        words=f"{pictures.regimes_caption(result)} {words}",
        data=lambda: pictures.as_netcdf(pictures.regimes_data(result)),
        script=scripts.regimes_script(settings),
        pending=pending,
    )


def _study(settings: Settings, asked: Any) -> _View:
    store, quantity, level = asked["store"].strip(), asked["quantity"].strip() or None, _level(asked["level"])
    if not store:
        return _View(
            name="phase_diagram",
            figure=_drawn(pictures.draw_study, computations.example_study()),
            description="An example of a phase diagram: the squared overlap over learning rate and noise",
            words=_STUDY_WORDS.format(example=EXAMPLE_STUDY),
        )
    data, chosen = pictures.two_axes_of(computations.study(store))
    from ..studies.opening import loaded

    data = loaded(data, store)
    return _View(
        name="phase_diagram",
        figure=_drawn(pictures.draw_study, data, quantity, level),
        description="The phase diagram of a study",
        remark=pictures.what_was_chosen(chosen),
        data=lambda: pictures.as_netcdf(data),
        script=scripts.study_script(store, quantity, level, {name: 0 for name in chosen}),
    )


_MAKERS: dict[str, Callable[[Settings, Any], _View]] = {
    CURVES: _curves,
    EXITS: _exits,
    FLOW: _flow,
    SCHEDULE: _schedule,
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
