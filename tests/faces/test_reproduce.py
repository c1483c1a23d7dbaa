"""`dimfree reproduce`, as a user calls it."""

import json
import sys
import types

import matplotlib.figure
import numpy as np
import pytest
import xarray
from typer.testing import CliRunner

import dimfree.papers
from dimfree.cli import app
from dimfree.papers import Claim, Paper, PublishedFigure, Reproduction


def call(*arguments: str):
    return CliRunner().invoke(app, ["reproduce", *arguments])


CLAIMS = (
    Claim("eq. (1)", "One is one.", 1.0, 1.0, 1e-9),
    Claim("eq. (2)", "Two.", [3.0, 5.0], [3.0, 4.0], 1e-9, correction="Four, not five.", corrected=[3.0, 4.0]),
    Claim("eq. (3)", "All is well.", 0.0, 1.0, 1e-9, remark="It is not."),
)


def make(size):
    """A line. Full size: a longer one."""
    figure = matplotlib.figure.Figure()
    values = np.arange(3 if size == "quick" else 30)
    figure.subplots().plot(values)
    return Reproduction(xarray.Dataset({"values": ("x", values)}), figure, CLAIMS[:1])


@pytest.fixture(autouse=True)
def small_paper(monkeypatch):
    """A publication that costs nothing, beside the real ones."""
    figures = (PublishedFigure("fig1", "A line", make), PublishedFigure("fig2", "The same", make))
    module = types.ModuleType("dimfree.papers.small2020")
    module.PAPER = Paper("small2020", "Small", figures, lambda: CLAIMS)
    monkeypatch.setitem(sys.modules, "dimfree.papers.small2020", module)
    monkeypatch.setattr(dimfree.papers, "PAPERS", ("small2020", "arnaboldi2023"))


def test_a_figure_is_drawn_and_written(tmp_path):
    result = call("small2020", "fig1", "--output", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert (tmp_path / "small2020_fig1.png").stat().st_size > 2_000
    with xarray.open_dataset(tmp_path / "small2020_fig1.nc", engine="scipy") as data:
        assert data["values"].values.tolist() == [0, 1, 2]
    assert "eq. (1)" in result.stdout
    assert "eq. (2)" not in result.stdout
    assert "small2020_fig1.png" in result.stdout


def test_the_directory_is_the_current_one_if_left_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call("small2020", "fig2").exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small2020_fig2.nc", "small2020_fig2.png"]


def test_full_size_says_first_what_it_is(tmp_path):
    result = call("small2020", "fig1", "--size", "full", "--output", str(tmp_path), "--json")
    assert result.exit_code == 0, result.output
    assert "full size" in result.stderr
    assert "a longer one" in result.stderr
    report = json.loads(result.stdout)
    assert report["size"] == "full"
    with xarray.open_dataset(report["data"], engine="scipy") as data:
        assert data.sizes["x"] == 30


def test_without_a_figure_the_statements_are_a_table():
    result = call("small2020")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["where", "verdict", "printed", "ours"]
    assert lines[1].split() == ["eq.", "(1)", "agrees", "1", "1"]
    assert lines[2].split() == ["eq.", "(2)", "misprint", "5", "4"]  # the entry that is off
    assert lines[3].strip() == "Four, not five."
    assert lines[4].split() == ["eq.", "(3)", "differs", "0", "1"]
    assert [line.strip() for line in lines[5:7]] == ["All is well.", "It is not."]
    assert lines[7] == "1 agrees, 1 misprint, 1 differs"


def test_the_claims_as_json():
    report = json.loads(call("small2020", "--json").stdout)
    assert set(report) == {"schema", "dimfree", "paper", "figure", "claims"}
    assert report["schema"] == "dimfree.reproduce/1"
    assert report["figure"] is None
    assert [claim["verdict"] for claim in report["claims"]] == ["agrees", "misprint", "differs"]
    assert set(report["claims"][0]) == {
        "where", "statement", "printed", "ours", "corrected", "tolerance", "error", "verdict", "correction", "remark",
    }  # fmt: skip
    assert report["claims"][1]["corrected"] == [3.0, 4.0]


def test_the_list():
    result = call("--list")
    assert result.exit_code == 0
    assert "small2020 fig2   The same" in result.stdout
    assert "arnaboldi2023 fig1" in result.stdout
    rows = json.loads(call("--list", "--json").stdout)
    assert rows[0] == {"paper": "small2020", "figure": "fig1", "title": "A line"}
    assert [row["figure"] for row in rows if row["paper"] == "arnaboldi2023"] == [f"fig{n}" for n in range(1, 7)]
    assert json.loads(call("small2020", "--list", "--json").stdout) == rows[:2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "small2020"),
        (["nobody1999"], "'nobody1999'"),
        (["nobody1999", "--list"], "'nobody1999'"),
        (["small2020", "fig9"], "'fig9'"),
        (["small2020", "fig1", "--size", "huge"], "huge"),
        (["small2020", "fig1", "--output", "no_such_directory"], "no_such_directory"),
    ],
)
def test_mistakes_are_one_message_with_exit_code_2(arguments, words):
    result = call(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.output


def test_a_real_figure(tmp_path):
    result = call("arnaboldi2023", "fig6", "--output", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "misprint" in result.stdout
    assert (tmp_path / "arnaboldi2023_fig6.png").stat().st_size > 20_000
    with xarray.open_dataset(tmp_path / "arnaboldi2023_fig6.nc", engine="scipy") as data:
        assert data.risk.values.max() == pytest.approx(2.0)
