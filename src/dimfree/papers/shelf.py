"""The shelf: which papers are installed, and what each is about.

Nothing here imports a paper's code before one of its figures is asked for, nor NumPy or JAX, so that a list costs as
much as `dimfree --help`, and a paper that fails or is slow cannot keep the others from being listed.
"""

import dataclasses
import importlib
import importlib.metadata
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import dimfree

GROUP = "dimfree.papers"  # of entry points
DATA = "paper.toml"
Size = Literal["quick", "full"]


@dataclasses.dataclass(frozen=True)
class Paper:
    """A publication: what its `paper.toml` says, and the package that holds its code.

    - `name`: that of its entry point, such as `arnaboldi2023`.
    - `title`: its own; `reference`: authors, year and where it is, in one line.
    - `figures`: the title of each, by name, in the order of the publication.
    - `module`: the package, with a function for each figure and one that checks the `statements`.
    - `distribution`: what was installed, with its version.
    """

    name: str
    title: str
    reference: str
    figures: Mapping[str, str]
    module: str
    distribution: str

    def figure(self, name: str) -> "Callable[[Size], dimfree.Reproduction]":
        """The function that makes a figure at a size."""
        self.check_figure(name)
        return self.function(name)

    def check_figure(self, name: str) -> None:
        """An error in words unless there is a figure of that name; imports no code."""
        if name not in self.figures:
            raise _invalid(f"{self.name} has no {name!r} here; it has {', '.join(self.figures)}.")

    def statements(self) -> "tuple[dimfree.Claim, ...]":
        """A claim for each numbered statement."""
        return tuple(self.function("statements")())

    def function(self, name: str) -> Callable:
        """A function of the package: of a figure, or `statements`."""
        function = getattr(self._imported(), name, None)
        if not callable(function):
            raise _invalid(f"{self._described()} lacks the function {name} in its package {self.module}.")
        return function

    def _imported(self) -> ModuleType:
        try:
            return importlib.import_module(self.module)
        except (Exception, SystemExit) as error:  # whatever another author's package raises
            raise _invalid(
                f"{self._described()} cannot be imported: {type(error).__name__}: {error}. Other papers are not "
                "affected; report it to the authors of that package."
            ) from error

    def _described(self) -> str:
        return f"The paper {self.name} (of {self.distribution})"


def shelf() -> tuple[dict[str, Paper], dict[str, str]]:
    """The installed papers by name, and what is wrong with those that cannot be listed."""
    papers: dict[str, Paper] = {}
    problems: dict[str, str] = {}
    for entry in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda entry: entry.name):
        distribution = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "no distribution"
        try:
            if entry.name in papers:
                other = papers.pop(entry.name).distribution
                raise ValueError(f"{other} has a paper of the same name; uninstall one of them")
            papers[entry.name] = _read(entry.name, entry.module, distribution)
        except (OSError, ValueError) as error:
            problems[entry.name] = f"The paper {entry.name!r} (of {distribution}) is left out: {error}."
    return papers, problems


def find(name: str) -> Paper:
    """The paper of that name."""
    papers, problems = shelf()
    if name in papers:
        return papers[name]
    if name in problems:
        raise _invalid(problems[name])
    there = f"there are {', '.join(papers)}" if papers else "none is installed"
    raise _invalid(f'There is no paper {name!r}; {there}. pip install "dimfree[papers]" brings the five of dimfree.')


def _read(name: str, module: str, distribution: str) -> Paper:
    """What the data file of a paper says, or a ValueError that says what is wrong with it."""
    _check_name(name)
    directory = _directory(module)
    try:
        data = tomllib.loads((directory / DATA).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"there is no {DATA} in {directory}") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"its {DATA} is not TOML: {error}") from None
    title, reference, figures = data.get("title"), data.get("reference", ""), data.get("figures")
    texts = [title, reference, *(figures.values() if isinstance(figures, dict) else [None])]
    if not isinstance(figures, dict) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f'its {DATA} needs title = "..." and a table [figures] with a title for each figure')
    for figure in figures:
        _check_name(figure)
    return Paper(name, str(title), reference, figures, module, distribution)


def _check_name(name: str) -> None:
    """Names become those of functions and of files."""
    if not name.isidentifier() or not name.isascii():
        raise ValueError(f"{name!r} is not a name; take letters and digits, such as arnaboldi2023 or fig1")


def _directory(module: str) -> Path:
    """Where a package is. `importlib.util.find_spec` would import the packages that it is in."""
    path: Any = None
    parts = module.split(".")
    for number in range(1, len(parts) + 1):
        name = ".".join(parts[:number])
        specs = (finder.find_spec(name, path) for finder in sys.meta_path)
        spec = next((spec for spec in specs if spec is not None), None)
        path = spec.submodule_search_locations if spec else None
        if not path:
            raise ValueError(f"there is no package {module}")
    return Path(next(iter(path)))


def _invalid(message: str) -> Exception:
    from ..errors import InvalidInput  # imports JAX

    return InvalidInput(message)
