"""Published figures and claims, each with a verdict."""

import importlib

from ..errors import InvalidInput
from .claims import Claim
from .paper import Paper, PublishedFigure, Reproduction, Size

__all__ = ["PAPERS", "Claim", "Paper", "PublishedFigure", "Reproduction", "Size", "claims", "find", "reproduce"]

# Each is a module or package of that name here, with a `PAPER`.
PAPERS: tuple[str, ...] = ("arnaboldi2023", "benarous2022", "bocchi2026", "loureiro2023", "mignacco2021")


def find(name: str) -> Paper:
    """The paper of that name."""
    if name not in PAPERS:
        raise InvalidInput(f"There is no paper {name!r}; there are {', '.join(PAPERS)}.")
    return importlib.import_module(f".{name}", __name__).PAPER


def reproduce(paper: str, figure: str, size: Size = "quick") -> Reproduction:
    """A published figure: its data, the picture, and what the publication claims of it with a verdict for each.

    **Arguments:**

    - `paper`: its name, such as `"arnaboldi2023"`.
    - `figure`: its name, such as `"fig1"`.
    - `size`: `"full"` for the publication's own dimensions and number of runs, `"quick"` for seconds.

    ??? example
        >>> import dimfree
        >>> dimfree.reproduce("bocchi2026", "fig6").claims[0].verdict
        'agrees'
    """
    published = find(paper).figure(figure)
    if size not in ("quick", "full"):
        raise InvalidInput(f"size = {size!r} was given; choose 'quick' or 'full'.")
    return published.make(size)


def claims(paper: str) -> tuple[Claim, ...]:
    """Every numbered statement of a publication that can be checked, with a verdict for each.

    **Arguments:**

    - `paper`: its name, such as `"arnaboldi2023"`.
    """
    return find(paper).statements()
