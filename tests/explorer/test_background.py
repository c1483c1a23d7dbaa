"""What takes long is computed in the background, and nothing that is shown meanwhile waits for it."""

import threading
import time

import pytest

import dimfree
from dimfree.explorer import background, computations, views
from dimfree.explorer.settings import Settings

ONE = Settings(width=1, noise=0.2, learning_rate=0.1, d=200, alpha=30.0)


@pytest.fixture(autouse=True)
def _forget():
    background.forget()
    yield
    background.forget()


def test_a_result_is_computed_once_whoever_asks_and_however_long_it_takes():
    asked, go = [], threading.Event()

    def compute():
        asked.append(1)
        go.wait(60)
        return "result"

    for _ in range(2):
        with pytest.raises(background.Pending, match="curves: 0 s so far"):
            background.result("curves", 1, compute, patience=0.01)
    assert background.is_asked("curves", 1)
    assert not background.is_asked("curves", 2)
    assert not background.is_asked("flow", 1)
    assert (
        background.result("curves", 2, lambda: "another", patience=60) == "another"
    )  # which the first did not hold up
    go.set()
    assert background.result("curves", 1, compute, patience=60) == "result"
    assert asked == [1]


def test_who_asks_again_does_not_wait_again():
    go = threading.Event()
    with pytest.raises(background.Pending):
        background.result("curves", 1, lambda: go.wait(60), patience=0.3)
    began = time.monotonic()
    with pytest.raises(background.Pending):
        background.result("curves", 1, lambda: go.wait(60), patience=0.3)
    assert time.monotonic() - began < 0.2
    go.set()


def test_a_refusal_is_said_to_all_who_ask_and_only_the_last_results_are_kept():
    def refuse():
        raise dimfree.InvalidInput("d = 0 was given.")

    for _ in range(2):
        with pytest.raises(dimfree.InvalidInput, match="d = 0"):
            background.result("curves", "wrong", refuse, patience=60)
    for number in range(background._KEPT + 1):
        background.result("curves", number, lambda: None, patience=60)
    assert not background.is_asked("curves", "wrong")
    assert not background.is_asked("curves", 0)
    assert background.is_asked("curves", 1)


def test_views_that_are_known_are_shown_while_another_is_computed(monkeypatch):
    go = threading.Event()
    monkeypatch.setattr(computations, "curves", lambda settings: go.wait(60))
    try:
        with pytest.raises(background.Pending):
            views.made_of(views.CURVES, ONE, None)
        assert views.made_of(views.REGIMES, ONE, False).figure is not None
        study = views.made_of(views.STUDY, ONE, {"store": "", "quantity": "", "level": ""})
        assert study.figure is not None
        assert "dimfree study run study.yaml" in study.words
    finally:
        go.set()
