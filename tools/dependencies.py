"""What the core install of dimfree weighs, from the files of the environment that runs this.

    python tools/dependencies.py

prints, for each direct core dependency, its own size and the size of all that it brings, and the total.
"""

import importlib.metadata
import re
from pathlib import Path

from packaging.requirements import Requirement


def normal(name: str) -> str:
    """The normalised name of a distribution."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(name: str) -> list[str]:
    """The distributions that `name` asks for here, without its extras."""
    found = []
    for text in importlib.metadata.requires(name) or []:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            found.append(normal(requirement.name))
    return found


def closure(name: str) -> list[str]:
    """`name` and everything that it needs, directly or not, sorted."""
    seen: set[str] = set()
    waiting = [normal(name)]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            waiting.extend(requirements(current))
    return sorted(seen)


def megabytes(name: str) -> float:
    """Size of the installed files of one distribution, compiled bytecode left out."""
    files = importlib.metadata.files(name) or []
    paths = [Path(str(file.locate())) for file in files if file.suffix != ".pyc"]
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def main() -> None:
    print("| dependency | version | own MB | with what it brings, MB |")
    print("| --- | --- | --- | --- |")
    for name in requirements("dimfree"):
        total = sum(megabytes(other) for other in closure(name))
        print(f"| {name} | {importlib.metadata.version(name)} | {megabytes(name):.1f} | {total:.0f} |")
    everything = [name for name in closure("dimfree") if name != "dimfree"]
    print(f"\n{len(everything)} distributions, {sum(megabytes(name) for name in everything):.0f} MB in all")


if __name__ == "__main__":
    main()
