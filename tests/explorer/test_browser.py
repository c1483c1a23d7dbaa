"""The explorer in a real browser: it loads, moves, says what is wrong, and gives away what it shows."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
import xarray
from browser import PICTURE, card, download, move, server, visitor

LEARNING_RATE, NOISE = 1, 2  # the sliders, from above


def exit_of(words: str) -> float:
    return float(re.match(r"α = ([\d.]+)", words).group(1))


def test_a_lecturer_moves_a_slider_and_takes_the_picture_home(tmp_path):
    with server() as (address, _), visitor() as (page, wrong):
        assert address.startswith("http://127.0.0.1:")
        page.goto(address)
        page.wait_for_selector(PICTURE)
        assert page.title() == "dimfree explorer"
        assert page.inner_text("h1") == "dimfree explorer"

        # Overlaps grow at the rate 4 g (1 - g (1 + 1/p + 4/p^2)), g = rate / p, so that the plateau shrinks with it.
        before = exit_of(card(page, "predicted"))
        move(page, LEARNING_RATE, "ArrowRight")
        growth = [4 * g * (1 - 2.5 * g) for g in (0.1 / 2, 0.11 / 2)]
        assert exit_of(card(page, "predicted")) == pytest.approx(before * growth[0] / growth[1], rel=0.01)
        assert abs(exit_of(card(page, "measured")) / exit_of(card(page, "predicted")) - 1) < 0.3

        data = xarray.load_dataset(download(page, "Data (NetCDF)", tmp_path), engine="scipy")
        script = download(page, "Code that makes it (Python)", tmp_path)
        assert download(page, "Picture (PNG)", tmp_path).read_bytes().startswith(b"\x89PNG")
        assert f"{float(data.risk[-1]):.3g}" == card(page, "final")

        page.get_by_role("tab", name="Study").click()
        page.wait_for_selector("text=Give the path of a study's store")
        page.get_by_label("Store").fill("no/such/store")
        page.get_by_label("Store").press("Enter")
        page.wait_for_selector(".dimfree-message:has-text('no/such/store')")
        assert "Traceback" not in page.content()
        assert wrong == []

    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=300, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "curves.png").stat().st_size > 20_000
    again = xarray.load_dataset(tmp_path / "curves.nc", engine="scipy")
    np.testing.assert_array_equal(again.risk, data.risk)
    np.testing.assert_array_equal(again.simulated_risk, data.simulated_risk)
