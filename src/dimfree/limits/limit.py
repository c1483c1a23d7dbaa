"""What a limit is: all that `solve` asks of one."""

import abc
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar, cast

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms import OnlineAlgorithm, ReusedData
from ..errors import real_array
from ..gaussian.rules import Accuracy, Averaging
from ..integration import Found, Settings, solve_adaptively
from ..linear_maps import only_backwards
from ..problems import Problem
from ..state import check_state
from ..trajectory import Trajectory, bytes_of_state, check_start, save_alphas

Solution = TypeVar("Solution", bound=Trajectory)


class Averages(NamedTuple):
    """How the averages in a part of a limit are taken: in words, and how good they are at a State.

    **Attributes:**

    - `words`: such as "closed form".
    - `tolerance`: what was asked for; None where the user gave the rule.
    - `accuracy`: a function of a State, or None where there is nothing to estimate.
    """

    words: str
    tolerance: float | None
    accuracy: Callable[[Any], Accuracy] | None

    @staticmethod
    def by(averaging: Averaging, words: str, rule: Any, accuracy: Callable[[Any], Accuracy]) -> "Averages":
        """Averages of which `rule` is the quadrature; None where they are closed forms."""
        asked = averaging.tolerance if averaging.rule is None else None
        return Averages(words, asked, None if rule is None else accuracy)


class Limit(eqx.Module, Generic[Solution]):
    """A closed equation for the State, as [`solve`] sees it.

    A new limit says its `name`, its `sources`, which numbers move (`coordinates`) and how (`vector_field`). What
    starts otherwise than from a State, or is integrated otherwise than by an adaptive solver, says so in `prepare` and
    `integrate`; what has more to tell than a [`Trajectory`] holds, in `result`.
    """

    problem: eqx.AbstractVar[Problem]
    algorithm: eqx.AbstractVar[OnlineAlgorithm | ReusedData]

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """What it is called in a result."""

    @property
    @abc.abstractmethod
    def own_sources(self) -> tuple[str, ...]:
        """The publications that it comes from."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Those, and those of the problem and the algorithm, for `dimfree.cite`."""
        return (*self.problem.sources, *self.algorithm.sources, *self.own_sources)

    @property
    def clock(self) -> str:
        """What time is: "alpha", or "time" where data are reused."""
        return "alpha"

    @property
    @abc.abstractmethod
    def coordinates(self) -> Any:
        """The numbers that move, and how they make a State."""

    @property
    def averages(self) -> dict[str, Averages]:
        """How averages over the fields are taken, by what they are averages for."""
        return {}

    @property
    def rough(self) -> bool:
        """Whether `vector_field` is smooth only down to the error of its averages."""
        return False

    # Before.

    @property
    def refuses(self) -> dict[str, str]:
        """What `solve` may be given that this limit has no use for, with what to do instead."""
        return {"runs": "it is not random; dimfree.sde has paths, and dimfree.simulate runs"}

    def prepare(self, start: Any, settings: Settings) -> Any:
        """The start as this limit sees it, or an error."""
        assert isinstance(self.algorithm, OnlineAlgorithm)
        begin = check_start(self.problem, start, trained=self.algorithm.readout_rate is not None)
        check_state(begin, sphere=self.algorithm.sphere)
        return self.algorithm.begin(begin)

    def saved_bytes(self, settings: Settings) -> int:
        """Bytes of what is saved at a time, or an error where even a path does not fit in memory."""
        return bytes_of_state(self.problem)

    def times(self, given: Any, settings: Settings) -> Any:
        """The times to save at: those given, or 201 even ones up to a given end; an error if they do not fit."""
        size = self.saved_bytes(settings)
        return jnp.asarray(save_alphas(given, size, runs=settings.runs or 1, clock=self.clock))

    # The equation.

    def initial(self, start: Any) -> Any:
        """The values that are integrated, at alpha = 0."""
        return self.coordinates.pack(start)

    def vector_field(self, alpha: Any, values: Any, like: Any) -> Any:
        """Their derivatives; `like` is the start, for what does not move."""
        raise NotImplementedError

    def units(self, start: Any) -> Any:
        """Of the values, the sizes that count: an absolute tolerance is of values over these."""
        return 1.0

    def coordinates_of(self, values: Any) -> Float[Array, " n"]:
        """Those among the values that are coordinates of the State."""
        return values

    def observed(self, values: Any, like: Any) -> dict[str, Any]:
        """The fields of a Trajectory that values make, with their leading axes."""
        return {"state": self.coordinates.unpack(values, like)}

    def integrate(self, start: Any, times: Float[Array, " times"], settings: Settings) -> Found:
        """The equation, integrated from a start that is prepared."""
        relative, absolute = settings.tolerances(rough=self.rough)
        # As arrays, so that one compiled program serves all of them.
        tolerances = tuple(real_array(each, "tolerance") for each in (relative, absolute))
        tolerances = tolerances[0], tolerances[1] * self.units(start)
        frozen = self.freezes(start, times)
        arrays = solve_adaptively(
            self,
            start,
            times,
            tolerances,
            settings.max_steps,
            settings.stop,
            frozen=frozen,
            backwards=only_backwards(self, start, times, settings.stop),
        )
        solver = "exponential Adams with frozen averages" if frozen else "Tsit5"
        return Found(arrays, {"solver": f"{solver}, relative tolerance {relative}, absolute {absolute}"})

    def freezes(self, start: Any, times: Float[Array, " times"]) -> bool:
        """Whether the equation is stiff enough for a solver that freezes its averages (`FrozenAverages`)."""
        return False

    # After.

    def result(self, arrays: dict[str, Any], **made: Any) -> Solution:
        """What solving gives, of the arrays that `integrate` found, the times among them, and how they were made."""
        return cast(Solution, Trajectory(**arrays, **made))
