"""What a publication states, against what the library finds."""

import dataclasses
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

Verdict = Literal["agrees", "misprint", "differs"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@dataclasses.dataclass(frozen=True, eq=False)
class Claim:
    """One statement of a publication, with the verdict that the numbers give.

    The verdict is computed, never stated: `agrees` if what is printed equals what the library finds, within the
    tolerance; `misprint` if it does not, but a corrected statement is given that does; `differs` otherwise.

    **Arguments:**

    - `where`: the place, such as `"eq. (22)"`.
    - `statement`: what is claimed, in words or LaTeX, in the notation of this library.
    - `printed`: the value of the printed statement, a number or an array.
    - `ours`: the same from the library, by a way that does not use the statement.
    - `tolerance`: largest difference that counts as none, relative to the largest entry of `ours` (to one if that is
      smaller); for measured numbers, a stated multiple of the standard error.
    - `correction`: the statement as it should be, and `corrected` its value.
    - `remark`: what a reader should know of how it was checked.
    """

    where: str
    statement: str
    printed: ArrayLike
    ours: ArrayLike
    tolerance: float
    correction: str | None = None
    corrected: ArrayLike | None = None
    remark: str = ""

    def __post_init__(self) -> None:
        if (self.correction is None) != (self.corrected is None):
            raise ValueError(f"{self.where}: a correction needs its value, and a value its correction.")
        # What is printed as 0 differs from any larger number by all of that number, and by no more.
        if not 0 <= self.tolerance < 1:
            raise ValueError(
                f"{self.where}: tolerance = {self.tolerance} was given, relative to what is found; give one from 0 to "
                "below 1, or the claim could not fail."
            )

    def error(self, value: ArrayLike) -> float:
        """Largest difference of a value from ours, relative."""
        ours = np.asarray(self.ours, float)
        value = np.asarray(value, float)
        if value.shape != ours.shape:
            raise ValueError(f"{self.where}: shapes {value.shape} and {ours.shape} cannot be compared.")
        return float(np.max(np.abs(value - ours)) / max(1.0, float(np.max(np.abs(ours)))))

    @property
    def farthest(self) -> tuple[float, float]:
        """Printed and ours, a number each; of arrays, the entry where they are farthest apart."""
        printed, ours = (np.ravel(np.asarray(value, float)) for value in (self.printed, self.ours))
        apart = np.abs(printed - ours)
        worst = max(range(len(ours)), key=lambda entry: (apart[entry], abs(ours[entry])))
        return float(printed[worst]), float(ours[worst])

    @property
    def verdict(self) -> Verdict:
        """What the numbers say."""
        if self.error(self.printed) <= self.tolerance:
            return "agrees"
        if self.corrected is not None and self.error(self.corrected) <= self.tolerance:
            return "misprint"
        return "differs"

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        plain = {
            name: None if value is None else np.asarray(value).tolist()
            for name, value in (("printed", self.printed), ("ours", self.ours), ("corrected", self.corrected))
        }
        return {
            "where": self.where,
            "statement": self.statement,
            **plain,
            "tolerance": self.tolerance,
            "error": self.error(self.printed),
            "verdict": self.verdict,
            "correction": self.correction,
            "remark": self.remark,
        }
