"""A link restores the settings, and a wrong value in one is refused in words."""

import dataclasses
import types
import urllib.parse

import pytest

from dimfree.explorer import links, views
from dimfree.explorer.settings import PROBLEMS


def parsed(query: str) -> dict[str, str]:
    return dict(urllib.parse.parse_qsl(query.removeprefix("?"), strict_parsing=True))


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_link_restores_every_setting(name):
    choice = PROBLEMS[name]
    others = {setting: steps[0] if getattr(choice.default, setting) != steps[0] else steps[-1]
              for setting, steps in choice.steps.items()}  # fmt: skip
    settings = dataclasses.replace(choice.default, **others)
    query = parsed(links.query_of(settings, "overlaps"))
    assert views.opened(query) == (choice.title, views.FLOW, [])
    given, refused = links.settings_of(query, choice)
    assert refused == []
    assert dataclasses.replace(choice.default, **given) == settings
    # All that there is can be chosen, and is therefore in the link.
    fields = {field.name for field in dataclasses.fields(settings)} - {"problem"}
    assert fields - set(choice.steps) <= {"quantity", "exponent"}


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (
            "learning_rate",
            "7",
            "learning_rate = '7'; there are 0.02, 0.03, 0.04, 0.05, ..., 0.37, 0.38, 0.39, 0.4. 0.1",
        ),
        ("learning_rate", "nan", "learning_rate = 'nan'"),
        ("width", "two", "width = 'two'; there are 1, 2, 3, 4. 2 is shown"),
        ("width", ["1", "2"], "width = ['1', '2']"),
        ("optimiser", "adam", "optimiser = 'adam'; there are sgd, momentum, averaged, clipped. sgd is shown"),
        ("sphere", "1", "sphere = '1'; there are off, on. on is shown"),
        ("seed", "-1", "seed = '-1'; there are 0 to 10000"),
        ("seed", "1e400", "seed = '1e400'"),
    ],
)
def test_a_wrong_value_is_refused_in_words_and_the_usual_one_shown(name, text, words):
    choice = PROBLEMS["phase-retrieval"]
    given, (refused,) = links.settings_of({name: text, "d": "1e3", "utm_source": "mail"}, choice)
    assert words in refused
    assert given == {"d": 1000}


def test_a_problem_or_a_view_that_there_is_not_is_said(monkeypatch):
    monkeypatch.setenv(views.PROBLEM_VARIABLE, "committee")
    title, view, refused = views.opened({"problem": "perceptron", "view": ["curves"]})
    assert (title, view) == ("Committee with erf", views.CURVES)
    assert refused[0].startswith("The link asks for problem = 'perceptron'; there are phase-retrieval, two-")
    assert refused[1].startswith("The link asks for view = ['curves']; there are curves, exit-times, overlaps,")


def test_settings_of_a_link_are_those_of_its_problem_only():
    made = types.SimpleNamespace(
        slider=lambda value, **_: value, dropdown=lambda titles, value, **_: titles[value],
        number=lambda *_, value, **__: value, switch=lambda value, **_: value, dictionary=dict,
    )  # fmt: skip
    mo = types.SimpleNamespace(ui=made)
    query = {"problem": "committee", "width": "3", "schedule": "linear", "seed": "12", "log": "off", "noise": "x"}
    chosen, refused = views.controls(mo, "committee", query)
    assert [chosen[name] for name in ("width", "schedule", "seed", "log", "noise")] == [3, "linear", 12, False, 0.0]
    assert len(refused) == 1
    chosen, refused = views.controls(mo, "one-direction", query)
    assert (chosen["width"], chosen["schedule"], refused) == (1, "constant", [])
