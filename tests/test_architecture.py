"""The page that leads newcomers through the code names files and functions that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "contributing" / "architecture.md").read_text()


def _source(path: str) -> str:
    homes = (ROOT / path, ROOT / "src" / "dimfree" / path)
    return next(home for home in homes if home.is_file()).read_text()


def _defines(source: str, name: str) -> bool:
    """Whether a file has a function, a class or a field of that name, or of an attribute of a class in it."""
    parts = name.split(".")
    return all(re.search(rf"(?m)^\s*(?:(?:def|class) {part}\b|{part}\s*[:=])", source) for part in parts)


def test_every_name_is_in_the_file_that_is_said_of_it():
    pairs = re.findall(r"`([\w.]+)` \(`([\w/]+\.py)`", TEXT)
    assert len(pairs) > 30
    missing = [(name, path) for name, path in pairs if not _defines(_source(path), name)]
    assert not missing


def test_every_function_and_file_exists():
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "papers").rglob("*.py"), *(ROOT / "docs/_ext").glob("*.py")]
    everything = "\n".join(file.read_text() for file in [*files, *(ROOT / "tests").glob("*.py")])
    prose = re.sub(r"(?s)```.*?```", "", TEXT)
    names = {name for name in re.findall(r"`(_?\w*[a-z]\w*(?:\.\w+)*)`", prose) if "_" in name or "." in name}
    absent = {
        name
        for name in names
        if not name.endswith((".py", ".md", ".toml", ".yaml")) and not name.startswith(("jax.", "dimfree."))
        if not all(re.search(rf"(?:def|class) {part}\b|\b{part}\s*[:=]", everything) for part in name.split("."))
    }
    assert not absent
    paths = {path for path in re.findall(r"`([\w/]+\.py)`", prose) if "/" in path}
    for path in paths:
        assert _source(path)
