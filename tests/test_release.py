"""What a release consists of fits together: versions, bounds, the paper, the versions of the documentation."""

import json
import re
import tomllib
from pathlib import Path

import docs_versions
import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def pinned(requirement: str) -> tuple[str, str]:
    """A requirement of either index as a name and a bound, with the name that PyPI has."""
    name, bound = re.fullmatch(r"([\w-]+?) ?((?:>=|<)[\w.]+)?", requirement).groups(default="")
    return {"matplotlib-base": "matplotlib"}.get(name, name), bound


def test_the_recipe_asks_for_what_the_package_asks_for():
    recipe = yaml.safe_load((ROOT / "conda/recipe.yaml").read_text())
    python, *rest = recipe["requirements"]["run"]
    assert python == "python >=${{ python_min }}"
    assert PROJECT["requires-python"] == f">={recipe['context']['python_min']}"
    assert sorted(map(pinned, rest)) == sorted(map(pinned, PROJECT["dependencies"]))
    assert recipe["build"]["python"]["entry_points"] == [f"dimfree = {PROJECT['scripts']['dimfree']}"]


def test_the_versions_of_library_papers_recipe_citation_and_changelog_are_one():
    papers = tomllib.loads((ROOT / "papers/pyproject.toml").read_text())["project"]
    recipe = yaml.safe_load((ROOT / "conda/recipe.yaml").read_text())
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    newest = re.search(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert papers["version"] == PROJECT["version"] == recipe["context"]["version"]
    assert (citation["version"], str(citation["date-released"])) == newest.groups()
    assert citation["version"] == PROJECT["version"]
    assert f"dimfree[exact]>={PROJECT['version']}" in papers["dependencies"]


def test_workflows_find_the_oldest_jax_and_every_python_in_the_project():
    workflow = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())
    oldest = [found for line in PROJECT["dependencies"] if (found := re.fullmatch(r"jax>=[\d.]+", line))]
    assert len(oldest) == 1  # the workflow reads this line of pyproject.toml
    pythons = workflow["jobs"]["tests"]["strategy"]["matrix"]["python"]
    assert f">={pythons[0]}" == PROJECT["requires-python"]


def test_the_paper_cites_what_its_bibliography_has():
    text = (ROOT / "paper/paper.md").read_text()
    entries = re.findall(r"^@\w+\{(\w+),", (ROOT / "paper/paper.bib").read_text(), re.MULTILINE)
    body = text.split("---", 2)[2]
    assert sorted(set(re.findall(r"@(\w+)", body))) == sorted(entries)
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", body, re.DOTALL):
        assert (ROOT / "paper" / picture).exists(), picture


def test_versions_of_the_documentation_stand_side_by_side(tmp_path):
    build, site = tmp_path / "build", tmp_path / "site"
    build.mkdir()
    site.mkdir()
    for version in ("dev", "v0.9.0", "v0.10.0", "dev"):
        (build / "index.html").write_text(version)
        docs_versions.main(str(build), str(site), version, "https://example.org/dimfree/")
    listed = json.loads((site / "switcher.json").read_text())
    assert [each["version"] for each in listed] == ["dev", "v0.10.0", "v0.9.0"]
    assert [each["version"] for each in listed if each.get("preferred")] == ["v0.10.0"]
    assert listed[2]["url"] == "https://example.org/dimfree/v0.9.0/"
    assert (site / "v0.9.0/index.html").read_text() == "v0.9.0"
    assert "url=v0.10.0/" in (site / "index.html").read_text()
    with pytest.raises(SystemExit, match="must be dev, or a tag"):
        docs_versions.main(str(build), str(site), "../elsewhere", "https://example.org")
