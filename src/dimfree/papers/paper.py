"""A publication: its figures, each one function, and its numbered statements."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from ..errors import InvalidInput
from .claims import Claim

if TYPE_CHECKING:
    import matplotlib.figure
    import xarray

Size = Literal["quick", "full"]


@dataclasses.dataclass(frozen=True, eq=False)
class Reproduction:
    """What a figure's function returns.

    - `data`: all that is drawn, as one labelled Dataset.
    - `picture`: the matplotlib Figure.
    - `claims`: what the publication says of it, with verdicts.
    """

    data: "xarray.Dataset"
    picture: "matplotlib.figure.Figure"
    claims: tuple[Claim, ...] = ()


@dataclasses.dataclass(frozen=True)
class PublishedFigure:
    """One figure: its name (`fig1`), what it shows, and the function that makes it at a size."""

    name: str
    title: str
    make: Callable[[Size], Reproduction]


@dataclasses.dataclass(frozen=True)
class Paper:
    """A publication.

    - `name`: as in `dimfree.cite`, such as `arnaboldi2023`.
    - `title`: its own.
    - `figures`: in the order of the publication.
    - `statements`: a function that checks the numbered statements, and returns a claim for each.
    """

    name: str
    title: str
    figures: tuple[PublishedFigure, ...]
    statements: Callable[[], tuple[Claim, ...]]

    def figure(self, name: str) -> PublishedFigure:
        """The figure of that name."""
        known = {figure.name: figure for figure in self.figures}
        if name not in known:
            raise InvalidInput(f"{self.name} has no {name!r} here; it has {', '.join(known)}.")
        return known[name]

    def listing(self) -> list[dict[str, Any]]:
        """One entry for each figure."""
        return [{"paper": self.name, "figure": figure.name, "title": figure.title} for figure in self.figures]
