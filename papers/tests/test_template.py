"""The template of a paper: copied, renamed and installed, it is a paper."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import dimfree
from dimfree.papers import find

PAPERS = Path(__file__).resolve().parent.parent
NAME = "smith2028"


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    """The template under another name, as the page on publishing says."""
    copy = tmp_path / "paper"
    shutil.copytree(PAPERS / "template", copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "src/yourname2027").rename(copy / "src" / NAME)
    for file in copy.rglob("*"):
        if file.is_file():
            file.write_text(file.read_text().replace("yourname2027", NAME))
    return copy


def test_it_is_short(paper):
    files = {
        str(file.relative_to(paper)): len(file.read_text().splitlines())
        for file in paper.rglob("*.*")
        if file.is_file()
    }
    assert len(files) == 5
    assert sum(files.values()) < 80, files


def test_it_is_a_paper_with_one_figure_and_two_claims(paper, tmp_path, monkeypatch):
    command = ["uv", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path / "site"), str(paper)]
    subprocess.run(command, check=True)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert find(NAME).figures == {"fig1": "Phase retrieval: SGD and its limit"}
    made = dimfree.reproduce(NAME, "fig1")
    (claim,) = made.claims
    assert claim.verdict == "agrees"
    # It would have seen a risk that is off by a fifth.
    assert claim.tolerance < 0.2 * float(claim.printed)
    assert made.data.sgd.dims == ("run", "alpha")
    (statement,) = dimfree.claims(NAME)
    assert statement.verdict == "agrees"
    sys.modules.pop(NAME)


@pytest.mark.slow
def test_it_is_installed_in_a_fresh_environment_and_drawn_by_one_command(paper, tmp_path):
    environment, wheels = tmp_path / "environment", tmp_path / "wheels"
    outside = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=outside, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("uv", "build", "--quiet", "--wheel", "--out-dir", str(wheels), str(PAPERS.parent))
    run("uv", "venv", "--quiet", "--python", sys.executable, str(environment))
    python = str(environment / "bin/python")
    run("uv", "pip", "install", "--quiet", "--python", python, "--find-links", str(wheels), str(paper), "pytest")
    dimfree_command = str(environment / "bin/dimfree")
    assert run(dimfree_command, "reproduce", "--list").splitlines() == [
        f"{NAME} fig1   Phase retrieval: SGD and its limit"
    ]
    printed = run(dimfree_command, "reproduce", NAME, "fig1", "--output", str(tmp_path))
    assert "Fig. 1" in printed
    assert "1 agrees" in printed
    assert (tmp_path / f"{NAME}_fig1.png").stat().st_size > 10_000
    assert "1 passed" in run(python, "-m", "pytest", "-q", str(paper))
