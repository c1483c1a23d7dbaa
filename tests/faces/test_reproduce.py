"""`dimfree reproduce`, as a user calls it."""

import importlib
import json
import re
import subprocess
import sys
import textwrap
import time

import pytest
import xarray

import dimfree
from commands import call
from dimfree.papers import report, shelf


def reproduce(*arguments: str):
    return call("reproduce", *arguments)


PAPER = """
title = "Small"
reference = "Nobody 2020, <https://example.org>"

[figures]
fig1 = "A line, $x^2$"
fig2 = "The same"
"""
CODE = """
import matplotlib.figure
import numpy as np
import xarray
from dimfree import Claim, Reproduction

drawn = []
CLAIMS = (
    Claim("eq. (1)", "One is one.", 1.0, 1.0, 1e-9),
    Claim("eq. (2)", "Two.", [3.0, 5.0], [3.0, 4.0], 1e-9, correction="Four, not five.", corrected=[3.0, 4.0]),
    Claim("eq. (3)", "All is well.", 0.0, 1.0, 1e-9, remark="It is not."),
)

def fig1(size):
    "A line. Full size: a longer one."
    drawn.append(size)
    figure = matplotlib.figure.Figure()
    values = np.arange(3 if size == "quick" else 30)
    figure.subplots().plot(values)
    return Reproduction(xarray.Dataset({"values": ("x", values)}), figure, CLAIMS[:1])

fig2 = fig1

def statements():
    return CLAIMS
"""


@pytest.fixture
def install(tmp_path_factory, monkeypatch):
    """Installs a paper: a package, and what pip writes about it. Returns the directory of both."""
    names = []

    def installed(name: str, code: str = CODE, paper: str | None = PAPER, distribution: str | None = None):
        names.append(name)
        site = tmp_path_factory.mktemp("site")
        (site / name).mkdir()
        (site / name / "__init__.py").write_text(code)
        if paper is not None:
            (site / name / "paper.toml").write_text(paper)
        distribution = distribution or f"{name}_paper"
        about = site / f"{distribution}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[dimfree.papers]\n{name} = {name}\n")
        monkeypatch.syspath_prepend(str(site))
        return site

    yield installed
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture(autouse=True)
def small(install):
    """A publication that costs nothing, beside the real ones."""
    return install("small2020")


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
    own = [row for row in rows if row["paper"] == "small2020"]
    assert own[0] == {"paper": "small2020", "figure": "fig1", "title": "A line, $x^2$"}
    assert [row["figure"] for row in rows if row["paper"] == "arnaboldi2023"] == [f"fig{n}" for n in range(1, 7)]
    assert json.loads(reproduce("small2020", "--list", "--json").stdout)["figures"] == own


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


@pytest.mark.parametrize("tolerance", [-0.1, 1.0, float("nan"), float("inf")])
def test_a_claim_that_could_not_fail_is_refused(tolerance):
    with pytest.raises(ValueError, match="could not fail"):
        dimfree.Claim("eq. (1)", "Nothing.", 0.0, 1e6, tolerance)


# The report.


def test_a_report_has_every_figure_and_claim_and_goes_on_where_it_stopped(tmp_path, monkeypatch):
    def stopped(size):
        raise KeyboardInterrupt

    home, code = tmp_path / "out", importlib.import_module("small2020")
    drawn, fig2 = code.drawn, code.fig2
    monkeypatch.setattr(code, "fig2", stopped)
    result = reproduce("small2020", "--report", str(home))
    assert result.exit_code == 130
    assert "run the same command again" in result.stderr
    assert "Still to come" in (home / "index.html").read_text()

    monkeypatch.setattr(code, "fig2", fig2)
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
        assert link.startswith(("data:image/svg", "https://example.org")) or (home / link).is_file(), link
    assert 'Nobody 2020, <a href="https://example.org">' in page
    assert dimfree.__version__ in page
    assert "Four, not five." in page
    assert "It is not." in page

    assert reproduce("small2020", "--report", str(home), "--size", "full").exit_code == 0
    assert drawn == ["quick", "quick", "full", "full"]  # another size is another figure; the statements stay


def test_a_figure_that_fails_is_reported_and_the_others_go_on(tmp_path, monkeypatch):
    def failing(size):
        raise RuntimeError("no <b>ink</b> left")

    code = importlib.import_module("small2020")
    fig1 = code.fig1
    monkeypatch.setattr(code, "fig1", failing)
    result = reproduce("small2020", "--report", str(tmp_path))
    assert result.exit_code == 1
    assert "2 made, 0 there already, 1 failed" in result.stdout
    assert "small2020 fig1 FAILED" in result.stderr
    page = (tmp_path / "index.html").read_text()
    assert "no &lt;b&gt;ink&lt;/b&gt; left" in page
    assert "<b>ink" not in page
    assert "figures/small2020_fig2.png" in page
    monkeypatch.setattr(code, "fig1", fig1)
    assert "1 made, 2 there already, 0 failed" in reproduce("small2020", "--report", str(tmp_path)).stdout
    assert "ink&lt;" not in (tmp_path / "index.html").read_text()


def test_a_report_of_one_figure_keeps_what_is_there(tmp_path):
    for figure in ("fig1", "fig2"):
        assert reproduce("small2020", figure, "--report", str(tmp_path)).exit_code == 0
    page = (tmp_path / "index.html").read_text()
    assert "2 of 2 parts done" in page
    assert page.count('src="figures/small2020_fig') == 2


def test_all_names_every_part_of_every_publication():
    papers, problems = shelf()
    assert not problems
    parts = [part.stem for part in report.parts(papers.values())]
    assert [stem for stem in parts if "small" in stem] == [
        f"small2020_{name}" for name in ("fig1", "fig2", "statements")
    ]
    assert len(parts) == 32 + 5 + 3


# Papers of others.


def test_what_cannot_be_listed_is_named_and_the_others_are_listed(install):
    install("nofile2027", paper=None)
    install("nottoml2027", paper="title = ")
    install("notitle2027", paper="[figures]\nfig1 = 'A line'")
    install("notext2027", paper="title = 'T'\n[figures]\nfig1 = 3")
    install("path2027", paper="title = 'T'\n[figures]\n'../fig1' = 'A line'")
    install("twice2027")
    install("twice2027", distribution="other_paper")
    result = reproduce("--list")
    assert result.exit_code == 0
    assert "small2020 fig1" in result.stdout
    assert result.stdout.count("twice2027") == 0  # which of the two it is, nobody can know
    said = {line.split("'")[1]: line for line in result.stderr.splitlines()}
    assert set(said) == {"nofile2027", "nottoml2027", "notitle2027", "notext2027", "path2027", "twice2027"}
    assert "nofile2027_paper 1.0" in said["nofile2027"]
    assert "there is no paper.toml" in said["nofile2027"]
    assert "is not TOML" in said["nottoml2027"]
    assert "needs title" in said["notitle2027"]
    assert "needs title" in said["notext2027"]
    assert "'../fig1' is not a name" in said["path2027"]
    assert "has a paper of the same name" in said["twice2027"]
    with pytest.raises(dimfree.InvalidInput, match=r"nofile2027.*there is no paper\.toml"):
        dimfree.reproduce("nofile2027", "fig1")
    with pytest.raises(dimfree.InvalidInput, match=r"twice2027.*uninstall one of them"):
        dimfree.reproduce("twice2027", "fig1")


def test_a_paper_that_raises_or_is_slow_when_imported_harms_no_other(install, small, tmp_path):
    site = [small, install("raising2027", "raise RuntimeError('no ink')")]
    site.append(install("slow2027", "import time\ntime.sleep(10)\n" + CODE))
    program = f"import sys; sys.path[:0] = {[str(each) for each in site]}; from dimfree.cli import main; main()"
    began = time.monotonic()
    listed = subprocess.run(
        [sys.executable, "-c", program, "reproduce", "--list"], capture_output=True, text=True, check=True
    )
    assert time.monotonic() - began < 9  # it has not waited for the one that sleeps
    names = {line.split()[0] for line in listed.stdout.splitlines()}
    assert {"raising2027", "slow2027", "small2020", "arnaboldi2023"} <= names
    result = reproduce("raising2027", "fig1", "--output", str(tmp_path))
    assert result.exit_code == 2
    assert "raising2027 (of raising2027_paper 1.0) cannot be imported: RuntimeError: no ink" in result.stderr
    # In a report, each part of the one that raises has failed, and the small one is made.
    chosen = [paper for name, paper in shelf()[0].items() if name in ("raising2027", "small2020")]
    made = report.write_report(tmp_path, report.parts(chosen))
    assert made.failed == ["raising2027_fig1", "raising2027_fig2", "raising2027_statements"]
    assert made.made == ["small2020_fig1", "small2020_fig2", "small2020_statements"]
    assert "no ink" in (tmp_path / "index.html").read_text()


def test_only_links_to_the_web_are_links(install, tmp_path):
    install("link2027", paper=PAPER.replace("https://example.org", "javascript:alert(1)"))
    report.write_report(tmp_path, report.parts([shelf()[0]["link2027"]])[:1])
    page = (tmp_path / "index.html").read_text()
    assert "Nobody 2020, &lt;javascript:alert(1)&gt;" in page
    assert 'href="javascript' not in page


def test_a_function_that_is_missing_is_said(install):
    install("empty2027", "")
    with pytest.raises(dimfree.InvalidInput, match=r"empty2027_paper 1\.0.* lacks the function fig1"):
        dimfree.reproduce("empty2027", "fig1")


def test_without_any_paper_the_command_says_what_to_install():
    program = textwrap.dedent("""
        import importlib.metadata, sys
        found = importlib.metadata.entry_points
        importlib.metadata.entry_points = lambda **asked: () if asked == {"group": "dimfree.papers"} else found(**asked)
        from dimfree.cli import main
        main()
    """)
    for arguments, code in ((["--list"], 0), (["arnaboldi2023", "fig1"], 2)):
        command = [sys.executable, "-c", program, "reproduce", *arguments]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == code, result.stderr
        assert 'pip install "dimfree[papers]"' in result.stderr


def test_a_list_imports_neither_jax_nor_numpy_nor_a_paper():
    program = textwrap.dedent("""
        import sys
        from dimfree.cli import main
        sys.argv = ["dimfree", "reproduce", "--list"]
        main()
        heavy = {"jax", "numpy", "matplotlib", "pydantic", "dimfree_papers"} & set(sys.modules)
        assert not heavy, heavy
    """)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert len(result.stdout.splitlines()) == 32
