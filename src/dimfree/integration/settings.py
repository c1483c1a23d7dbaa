"""What a user asks of a solver, and what a solver finds."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Array, PRNGKeyArray

from ..errors import InvalidInput, check_key, flag, nonnegative_number, positive_integer, shown

DIVERGED_ABOVE = 1e8  # overlaps are of order one: beyond this a run has no way back


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of [`solve`], each for those limits that it means something for."""

    stop: Callable[[Any], Array] | None
    relative_tolerance: Any
    absolute_tolerance: Any
    max_steps: int
    runs: int | None
    steps: int
    key: PRNGKeyArray | None
    progress: bool

    def __post_init__(self) -> None:
        positive_integer(self.steps, "steps")
        positive_integer(self.max_steps, "max_steps")
        if self.runs is not None:
            positive_integer(self.runs, "runs")
        flag(self.progress, "progress")

    def check_uses(self, limit: str, refuses: dict[str, str]) -> None:
        """An error for what was given that a limit has no use for."""
        for name, instead in refuses.items():
            if (given := getattr(self, name)) is not None:
                raise InvalidInput(f"{name} = {shown(given)} was given; this limit ({limit}) takes none: {instead}.")

    def tolerances(self, *, rough: bool) -> tuple[Any, Any]:
        """Relative and absolute: those given, or 1e-8 and 1e-10; 1e-5 and 1e-7 where the equation is rough."""
        relative, absolute = self.relative_tolerance, self.absolute_tolerance
        relative = (1e-5 if rough else 1e-8) if relative is None else relative
        absolute = (1e-7 if rough else 1e-10) if absolute is None else absolute
        for name, value in (("relative_tolerance", relative), ("absolute_tolerance", absolute)):
            nonnegative_number(value, name)
        return relative, absolute

    @property
    def random(self) -> tuple[int, PRNGKeyArray]:
        """The number of paths and their key, or an error."""
        if self.key is None or self.runs is None:
            raise InvalidInput(
                "A diffusion is random: give solve the number of paths and a key, runs=64, key=jax.random.key(0)."
            )
        check_key(self.key)
        return self.runs, self.key


class Found(NamedTuple):
    """What a solver found, as the fields of a Trajectory, and how, in words."""

    arrays: dict[str, Any]
    made_by: dict[str, Any]
