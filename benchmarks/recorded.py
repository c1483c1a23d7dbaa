"""Whether the library has become slower: ratios against those recorded, so that machines compare."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

RECORD = Path(__file__).with_name("recorded.json")
ALLOWED = 1.5  # times the recorded ratio


@dataclasses.dataclass(frozen=True)
class Worse:
    """A ratio that has become larger, and prints as a sentence."""

    name: str
    ratio: float
    recorded: float

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.ratio:.3g} times the alternative, where {self.recorded:.3g} is recorded; "
            f"{self.ratio / self.recorded:.2f} times worse, and {ALLOWED} is allowed."
        )


def steady(row: Mapping[str, Any]) -> float:
    """The smaller of the median ratio and that of the shortest times: other work seldom makes both larger."""
    return float(np.minimum(row["ratio"], row["least"]))  # no number if one is none


def worse(table: Mapping[str, Mapping[str, Any]], recorded: Mapping[str, float]) -> list[Worse]:
    """The rows of a table that are worse than recorded by more than is allowed; a ratio of no number is worse."""
    rows: Iterable[Worse] = (
        Worse(name, steady(table[name]), ratio) for name, ratio in recorded.items() if name in table
    )
    return [row for row in rows if not row.ratio <= ALLOWED * row.recorded]
