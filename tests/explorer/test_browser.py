"""The explorer in a real browser: it loads, moves, says what is wrong, and gives away what it shows."""

import os
import re
from pathlib import Path
from typing import Any

import jax
import numpy as np
import psutil
import pytest
import xarray
from browser import PICTURE, card, download, move, server, visitor

import dimfree
from dimfree.explorer.page import page as page_text

LEARNING_RATE, NOISE, EXPONENT = 1, 2, 3  # the sliders, from above


def exit_of(words: str) -> float:
    return float(re.match(r"α = ([\d.]+)", words).group(1))


def test_a_lecturer_moves_a_slider_and_takes_the_picture_home(tmp_path):
    with server() as (address, _), visitor() as (page, wrong):
        assert address.startswith("http://127.0.0.1:")
        page.goto(address)
        page.wait_for_selector(PICTURE)
        assert page.title() == "dimfree explorer"
        # The next server finds the program of the solver: JAX keeps none that can raise errors by itself.
        assert list(Path(os.environ["JAX_COMPILATION_CACHE_DIR"]).glob("jit_solve_adaptively*"))
        assert page.inner_text("h1") == "dimfree explorer"

        # Overlaps grow at the rate 4 g (1 - g (1 + 1/p + 4/p^2)), g = rate / p, so that the plateau shrinks with it.
        before = exit_of(card(page, "predicted"))
        move(page, LEARNING_RATE, "ArrowRight")
        growth = [4 * g * (1 - 2.5 * g) for g in (0.1 / 2, 0.11 / 2)]
        assert exit_of(card(page, "predicted")) == pytest.approx(before * growth[0] / growth[1], rel=0.01)
        assert abs(exit_of(card(page, "measured")) / exit_of(card(page, "predicted")) - 1) < 0.3

        data = xarray.load_dataset(download(page, "Data (NetCDF)", tmp_path), engine="scipy")
        script = download(page, "Code that makes it (Python)", tmp_path).read_text()
        assert "sgd = dimfree.OnlineSGD(learning_rate=0.11, sphere=True)" in script
        assert download(page, "Picture (PNG)", tmp_path).read_bytes().startswith(b"\x89PNG")
        assert f"{float(data.risk[-1]):.3g}" == card(page, "final")

        page.get_by_role("tab", name="Study").click()
        page.wait_for_selector(f"{PICTURE}[alt*='An example of a phase diagram']")
        page.wait_for_selector("text=dimfree study run study.yaml")
        page.get_by_label("Store").fill("no/such/store")
        page.get_by_label("Store").press("Enter")
        page.wait_for_selector(".dimfree-message:has-text('no/such/store')")
        assert "Traceback" not in page.content()
        assert wrong == []


def test_a_link_opens_on_a_phone_as_it_was_and_whole(tmp_path):
    """Pictures below each other, whole tabs, a title free of the menu; and a wrong value in the link is said."""
    link = "?problem=phase-retrieval&view=curves&width=1&learning_rate=0.11&optimiser=momentum&schedule=linear&d=7"
    with server() as (address, _), visitor() as (page, wrong):
        page.set_viewport_size({"width": 390, "height": 844})
        page.goto(address + link)
        page.wait_for_selector(".dimfree-message:has-text(\"The link asks for d = '7'; there are 100, 200\")")
        page.wait_for_selector(PICTURE)

        def boxes(selector: str) -> list[Any]:
            return [each.bounding_box() for each in page.locator(selector).all()]

        upper, lower = boxes(PICTURE)
        assert lower["y"] >= upper["y"] + upper["height"]
        assert upper["width"] > 300
        menu, title = page.get_by_role("button").first.bounding_box(), boxes("h1")[0]
        assert title["y"] >= menu["y"] + menu["height"]
        tabs = [tab.bounding_box() for tab in page.get_by_role("tab").all()]
        assert len(tabs) == 6
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in tabs)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390

        script = download(page, "Code that makes it (Python)", tmp_path).read_text()
        assert "PhaseRetrieval(width=1, noise=0.0)" in script
        assert "learning_rate = dimfree.PiecewiseLinear([0.0, 40.0], [0.11, 0.0])" in script
        assert "dimfree.Momentum(learning_rate=learning_rate, momentum_rate=learning_rate" in script

        # The link on the page has what was opened, and the usual value in place of the wrong one.
        again = page.get_attribute(".dimfree-link", "href") or ""
        assert "learning_rate=0.11&schedule=linear&optimiser=momentum" in again
        assert "&d=500&" in again
        page.set_viewport_size({"width": 1440, "height": 900})
        page.goto(f"{address}/{again}")
        page.wait_for_selector(PICTURE)
        assert page.locator(".dimfree-message").count() == 0
        left, right = boxes(PICTURE)
        assert right["x"] >= left["x"] + left["width"]
        assert download(page, "Code that makes it (Python)", tmp_path).read_text() == script
        assert wrong == []


@pytest.mark.slow
def test_the_exponent_of_a_power_law_is_a_slider(tmp_path):
    with server("--problem", "power-law") as (address, _), visitor() as (page, wrong):
        page.goto(address)
        page.wait_for_selector(PICTURE)
        page.get_by_text("Exponent of the inputs' power law").first.wait_for()
        move(page, EXPONENT, "ArrowRight")
        data = xarray.load_dataset(download(page, "Data (NetCDF)", tmp_path), engine="scipy")
        assert "power_law(1.1, dimensions=100, blocks=12)" in download(page, "Code that", tmp_path).read_text()
        spectrum = dimfree.Spectrum.power_law(1.1, 100, 12)
        problem = dimfree.TwoLayer(1, 1, activation="erf").with_inputs(spectrum)
        start = dimfree.random_state(problem, 200, key=jax.random.split(jax.random.key(0))[0])
        expected = dimfree.solve(dimfree.ode(problem, dimfree.OnlineSGD(4.0)), start, data.alpha.values).risk
        np.testing.assert_allclose(data.risk, expected, rtol=1e-9)
        assert card(page, "predicted") == "–"

        page.get_by_role("tab", name="Plane of overlaps").click()
        page.wait_for_selector(".dimfree-note:has-text('isotropic inputs only')")
        page.wait_for_selector(f"{PICTURE}[alt*='risk and overlaps']")
        assert "Traceback" not in page.content()
        assert wrong == []


@pytest.mark.slow
def test_the_accuracy_is_a_choice_where_there_are_classes(tmp_path):
    with server("--problem", "two-clusters") as (address, _), visitor() as (page, wrong):
        page.goto(address)
        page.wait_for_selector(f"{PICTURE}[alt*='risk and overlaps']")
        of_risk = page.get_attribute(PICTURE, "src")
        page.get_by_role("radio", name="accuracy").click()
        page.wait_for_selector(f"{PICTURE}[alt*='accuracy and overlaps']")
        assert page.get_attribute(PICTURE, "src") != of_risk
        before = card(page, "accuracy")
        move(page, NOISE, "ArrowRight")  # wider clusters: from 0.25 to 0.3
        data = xarray.load_dataset(download(page, "Data (NetCDF)", tmp_path), engine="scipy")
        assert 'quantity="accuracy"' in download(page, "Code that", tmp_path).read_text()
        problem = dimfree.Mixture([[1.0], [-1.0]], [1, 0], width=1, snr=1 / 0.3, activation="erf")
        start = dimfree.random_state(problem, 500, key=jax.random.split(jax.random.key(0))[0])
        theory = dimfree.solve(dimfree.ode(problem, dimfree.OnlineSGD(1.0)), start, data.alpha.values)
        np.testing.assert_allclose(data.accuracy, theory.observe("accuracy"), rtol=1e-9)
        assert data.simulated_accuracy.sizes == {"run": 16, "alpha": 201}
        assert card(page, "accuracy") == f"{float(data.accuracy[-1]):.3g}"
        assert float(card(page, "accuracy")) < float(before) - 0.01

        # A problem without classes has no such choice.
        page.get_by_role("combobox").first.select_option("Phase retrieval")
        page.wait_for_selector(f"{PICTURE}[alt^='Phase retrieval: risk']")
        assert page.get_by_role("radio").count() == 0
        assert page.locator("[data-card=accuracy]").count() == 0
        assert wrong == []


@pytest.mark.slow
def test_the_page_without_python_has_the_accuracy(tmp_path):
    axes = {"width": [1], "learning_rate": [1.0], "noise": [0.25, 1.0], "d": [100]}
    path = tmp_path / "page.html"
    path.write_text(page_text("two-clusters", axes, say=lambda words: None))
    with visitor() as (page, wrong):
        page.goto(path.as_uri())
        titles, line = page.locator("#charts svg"), "#charts svg:first-child path.theory"
        before = page.get_attribute(line, "d")
        assert "Risk" in titles.first.inner_html()
        page.get_by_label("Quantity").select_option("accuracy")
        assert "Accuracy" in titles.first.inner_html()
        assert page.get_attribute(line, "d") != before
        narrow = float(page.inner_text("[data-card=accuracy] b"))
        page.locator("#noise").focus()
        page.keyboard.press("ArrowRight")
        # The best accuracy is the normal distribution function of the root of the snr: 0.977 and 0.841.
        assert 0.9 < narrow < 0.978
        assert 0.7 < float(page.inner_text("[data-card=accuracy] b")) < 0.842
        assert wrong == []


@pytest.mark.slow
def test_the_page_without_python_moves(tmp_path):
    axes = {"width": [1], "learning_rate": [0.05, 0.1], "noise": [0.0, 1.0], "d": [100]}
    path = tmp_path / "page.html"
    path.write_text(page_text("phase-retrieval", axes, say=lambda words: None))
    with visitor() as (page, wrong):
        page.goto(path.as_uri())
        line = "#charts svg:first-child path.theory"
        before, curve = exit_of(page.inner_text("[data-card=predicted] b")), page.get_attribute(line, "d")
        page.locator("#learning_rate").focus()
        page.keyboard.press("ArrowLeft")
        # One student: overlaps grow at the rate 4 rate (1 - 6 rate).
        expected = before * (0.1 * 0.4) / (0.05 * 0.7)
        assert exit_of(page.inner_text("[data-card=predicted] b")) == pytest.approx(expected, rel=0.02)
        assert page.get_attribute(line, "d") != curve
        assert page.locator("#charts svg text.entry").all_text_contents() == ["ODE", "SGD", "M[0,0]"]
        assert page.locator("#charts svg polygon.band").count() == 2
        assert "Dots are the mean of 16 runs" in page.inner_text("#caption")
        page.get_by_label("Logarithmic risk").check()
        assert page.locator("#charts svg").count() == 2
        assert wrong == []


@pytest.mark.slow
def test_a_day_of_sliders_takes_no_more_memory():
    """100 moves after the first 20: what stays must be less than a picture's worth each."""
    with server() as (address, process), visitor() as (page, wrong):
        page.goto(address)
        page.wait_for_selector(PICTURE)
        (worker,) = psutil.Process(process.pid).children()
        sizes, seconds = [], []
        for number in range(120):
            key = "ArrowRight" if number // 10 % 2 == 0 else "ArrowLeft"
            seconds.append(move(page, LEARNING_RATE if number % 2 else NOISE, key))
            sizes.append(worker.memory_info().rss / 2**20)
        growth = np.polyfit(np.arange(100), sizes[20:], 1)[0]
        print(
            f"memory {sizes[20]:.0f} -> {sizes[-1]:.0f} MiB, {growth:.3f} MiB a move; {np.median(seconds):.2f} s a move"
        )
        assert growth < 0.2
        assert wrong == []
