"""`dimfree reproduce`, as a user calls it."""

import json
import re
import sys
import types

import matplotlib.figure
import numpy as np
import pytest
import xarray

import dimfree.papers.report
from commands import call
from dimfree.papers import Claim, Paper, PublishedFigure, Reproduction


def reproduce(*arguments: str):
    return call("reproduce", *arguments)


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


def figures(monkeypatch, first, second):
    """Make the figures of the small publication so."""
    module = types.ModuleType("dimfree.papers.small2020")
    published = (PublishedFigure("fig1", "A line, $x^2$", first), PublishedFigure("fig2", "The same", second))
    module.PAPER = Paper("small2020", "Small", published, lambda: CLAIMS)
    monkeypatch.setitem(sys.modules, "dimfree.papers.small2020", module)


@pytest.fixture(autouse=True)
def small_paper(monkeypatch):
    """A publication that costs nothing, beside the real ones."""
    figures(monkeypatch, make, make)
    monkeypatch.setattr(dimfree.papers, "PAPERS", ("small2020", "arnaboldi2023"))


def test_a_figure_is_drawn_and_written_to_a_directory_that_may_be_new(tmp_path):
    output = tmp_path / "figures" / "small"
    result = reproduce("small2020", "fig1", "--output", str(output))
    assert result.exit_code == 0, result.output
    assert (output / "small2020_fig1.png").stat().st_size > 2_000
    with xarray.open_dataset(output / "small2020_fig1.nc", engine="scipy") as data:
        assert data["values"].values.tolist() == [0, 1, 2]
    assert "eq. (1)" in result.stdout
    assert "eq. (2)" not in result.stdout
    assert "small2020_fig1.png" in result.stdout


def test_the_directory_is_the_current_one_if_left_out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert reproduce("small2020", "fig2").exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small2020_fig2.nc", "small2020_fig2.png"]


def test_full_size_says_first_what_it_is(tmp_path):
    result = reproduce("small2020", "fig1", "--size", "full", "--output", str(tmp_path), "--json")
    assert result.exit_code == 0, result.output
    assert "full size" in result.stderr
    assert "a longer one" in result.stderr
    report = json.loads(result.stdout)
    assert report["size"] == "full"
    with xarray.open_dataset(report["data"], engine="scipy") as data:
        assert data.sizes["x"] == 30


def test_without_a_figure_the_statements_are_a_table():
    result = reproduce("small2020")
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
    report = json.loads(reproduce("small2020", "--json").stdout)
    assert set(report) == {"schema", "dimfree", "paper", "figure", "claims"}
    assert report["schema"] == "dimfree.reproduce/1"
    assert report["figure"] is None
    assert [claim["verdict"] for claim in report["claims"]] == ["agrees", "misprint", "differs"]
    assert set(report["claims"][0]) == {
        "where", "statement", "printed", "ours", "corrected", "tolerance", "error", "verdict", "correction", "remark",
    }  # fmt: skip
    assert report["claims"][1]["corrected"] == [3.0, 4.0]


def test_the_list_has_every_figure_of_every_paper():
    result = reproduce("--list")
    assert result.exit_code == 0
    assert "small2020 fig2   The same" in result.stdout
    assert "arnaboldi2023 fig1" in result.stdout
    report = json.loads(reproduce("--list", "--json").stdout)
    assert report["schema"] == "dimfree.reproduce.list/1"
    rows = report["figures"]
    assert rows[0] == {"paper": "small2020", "figure": "fig1", "title": "A line, $x^2$"}
    assert [row["figure"] for row in rows if row["paper"] == "arnaboldi2023"] == [f"fig{n}" for n in range(1, 7)]
    assert json.loads(reproduce("small2020", "--list", "--json").stdout)["figures"] == rows[:2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "small2020"),
        (["--all"], "--report"),
        (["small2020", "--all", "--report", "out"], "--all is for a report"),
        (["nobody1999"], "'nobody1999'"),
        (["nobody1999", "--list"], "'nobody1999'"),
        (["small2020", "fig9"], "'fig9'"),
        (["small2020", "fig1", "--size", "huge"], "huge"),
        (["small2020", "fig1", "--output", __file__], "that is a file"),
    ],
)
def test_mistakes_are_one_message_with_exit_code_2(arguments, words):
    result = reproduce(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_real_figure_is_drawn_and_names_its_misprint(tmp_path):
    result = reproduce("arnaboldi2023", "fig6", "--output", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "misprint" in result.stdout
    assert (tmp_path / "arnaboldi2023_fig6.png").stat().st_size > 20_000
    with xarray.open_dataset(tmp_path / "arnaboldi2023_fig6.nc", engine="scipy") as data:
        assert data.risk.values.max() == pytest.approx(2.0)


# The report.


def test_a_report_has_every_figure_and_claim_and_goes_on_where_it_stopped(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(dimfree.papers.report, "PAPERS", ("small2020",))

    def counted(size):
        drawn.append(size)
        return make(size)

    def stopped(size):
        raise KeyboardInterrupt

    home = tmp_path / "out"
    figures(monkeypatch, counted, stopped)
    result = reproduce("small2020", "--report", str(home))
    assert result.exit_code == 130
    assert "run the same command again" in result.stderr
    assert "Still to come" in (home / "index.html").read_text()

    figures(monkeypatch, counted, counted)
    result = reproduce("small2020", "--report", str(home), "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert set(report) == {"schema", "dimfree", "page", "size", "made", "kept", "failed", "verdicts"}
    assert report["schema"] == "dimfree.reproduce.report/1"
    assert report["kept"] == ["small2020_fig1"]
    assert report["made"] == ["small2020_fig2", "small2020_statements"]
    assert report["verdicts"] == {
        "agrees": 3,
        "misprint": 1,
        "differs": 1,
    }  # two figures with one claim each, and three
    assert drawn == ["quick", "quick"]
    page = (home / "index.html").read_text()
    assert "Still to come" not in page
    assert page.count('src="figures/small2020_fig') == 2
    for link in re.findall(r'(?:src|href)="([^"#]+)"', page):
        assert link.startswith("data:image/svg") or (home / link).is_file(), link
    assert dimfree.__version__ in page
    assert "Four, not five." in page
    assert "It is not." in page

    assert reproduce("small2020", "--report", str(home), "--size", "full").exit_code == 0
    assert drawn == ["quick", "quick", "full", "full"]  # another size is another figure; the statements stay


def test_a_figure_that_fails_is_reported_and_the_others_go_on(tmp_path, monkeypatch):
    monkeypatch.setattr(dimfree.papers.report, "PAPERS", ("small2020",))

    def failing(size):
        raise RuntimeError("no <b>ink</b> left")

    figures(monkeypatch, failing, make)
    result = reproduce("small2020", "--report", str(tmp_path))
    assert result.exit_code == 1
    assert "2 made, 0 there already, 1 failed" in result.stdout
    assert "small2020 fig1 FAILED" in result.stderr
    page = (tmp_path / "index.html").read_text()
    assert "no &lt;b&gt;ink&lt;/b&gt; left" in page
    assert "<b>ink" not in page
    assert "figures/small2020_fig2.png" in page
    figures(monkeypatch, make, make)
    assert "1 made, 2 there already, 0 failed" in reproduce("small2020", "--report", str(tmp_path)).stdout
    assert "ink&lt;" not in (tmp_path / "index.html").read_text()


def test_a_report_of_one_figure_keeps_what_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(dimfree.papers.report, "PAPERS", ("small2020",))
    for figure in ("fig1", "fig2"):
        assert reproduce("small2020", figure, "--report", str(tmp_path)).exit_code == 0
    page = (tmp_path / "index.html").read_text()
    assert "2 of 2 parts done" in page
    assert page.count('src="figures/small2020_fig') == 2


def test_all_names_every_part_of_every_publication():
    parts = dimfree.papers.report.parts(dimfree.papers.PAPERS)
    assert [part.stem for part in parts[:3]] == ["small2020_fig1", "small2020_fig2", "small2020_statements"]
    assert [part.name for part in parts[3:]] == [*(f"fig{n}" for n in range(1, 7)), "statements"]
