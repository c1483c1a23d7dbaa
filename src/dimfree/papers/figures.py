"""What a paper's functions return, and how to ask for it."""

import dataclasses
from typing import TYPE_CHECKING

from ..errors import InvalidInput
from .claims import Claim
from .shelf import Size, find

if TYPE_CHECKING:
    import matplotlib.figure
    import xarray


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


def reproduce(paper: str, figure: str, size: Size = "quick") -> Reproduction:
    """A published figure: its data, the picture, and what the publication claims of it with a verdict for each.

    **Arguments:**

    - `paper`: its name, such as `"arnaboldi2023"`; `dimfree reproduce --list` has those that are installed.
    - `figure`: its name, such as `"fig1"`.
    - `size`: `"full"` for the publication's own dimensions and number of runs, `"quick"` for seconds.

    **Returns** a [`Reproduction`].

    ??? example
        >>> import dimfree
        >>> dimfree.reproduce("bocchi2026", "fig6").claims[0].verdict
        'agrees'
    """
    published = find(paper)
    published.check_figure(figure)
    if size not in ("quick", "full"):
        raise InvalidInput(f"size = {size!r} was given; choose 'quick' or 'full'.")
    return published.figure(figure)(size)


def claims(paper: str) -> tuple[Claim, ...]:
    """Every numbered statement of a publication that can be checked, with a verdict for each.

    **Arguments:**

    - `paper`: its name, such as `"arnaboldi2023"`.

    **Returns** a [`Claim`] for each, in the order of the publication.
    """
    return find(paper).statements()
