"""What a search may change: numbers and schedules of a problem and an algorithm, by their names."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..algorithms import OnlineAlgorithm, PiecewiseLinear
from ..algorithms.memory import Beside
from ..algorithms.moves import Move
from ..algorithms.schedules import Schedule
from ..errors import InvalidInput, positive_integer, real_array, shown
from ..functions import Function, Recipe
from ..problems import Problem, Tasks

BATCH = "algorithm.batch_size"
PROBABILITIES = "problem.probabilities"
Kind = Literal["number", "batch", "probabilities"]


class Control(eqx.Module):
    """A number or a schedule that is searched, in coordinates between 0 and 1.

    **Attributes:**

    - `name`: such as `algorithm.learning_rate`.
    - `low`, `high`: its bounds.
    - `times`: the knots of a schedule; None for numbers that do not change.
    - `shape`: of the array in the place of which it is put; of probabilities, one fewer than there are tasks.
    """

    low: Float[Array, ""]
    high: Float[Array, ""]
    times: Float[Array, " knots"] | None
    name: str = eqx.field(static=True)
    kind: Kind = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    logarithmic: bool = eqx.field(static=True)

    @property
    def rows(self) -> int:
        """How many numbers it is at one moment."""
        return int(np.prod(self.shape))

    @property
    def knots(self) -> int:
        return 1 if self.times is None else len(self.times)

    @property
    def size(self) -> int:
        return self.rows * self.knots

    def values(self, x: Float[Array, " size"]) -> Float[Array, "rows knots"]:
        """Its values at these coordinates."""
        x = x.reshape(self.rows, self.knots)
        if self.logarithmic:
            return self.low * (self.high / self.low) ** x
        return self.low + (self.high - self.low) * x

    def coordinates(self, values: Any) -> Float[np.ndarray, " size"]:
        """The coordinates of the values that are nearest to these."""
        low, high = float(self.low), float(self.high)
        values = np.clip(np.asarray(values, float), low, high)
        x = np.log(values / low) / np.log(high / low) if self.logarithmic else (values - low) / (high - low)
        return np.broadcast_to(x.reshape(-1, x.shape[-1] if x.ndim else 1), (self.rows, self.knots)).reshape(-1)

    def mean(self, x: Float[Array, " size"]) -> Float[Array, ""]:
        """Its mean from the first knot to the last, and over its numbers."""
        values = self.values(x)
        if self.times is None:
            return jnp.mean(values)
        return jnp.mean(jnp.trapezoid(values, self.times, axis=1)) / (self.times[-1] - self.times[0])

    def put(self, whole: "Pair", x: Float[Array, " size"]) -> "Pair":
        """The problem and the algorithm with it at these coordinates."""
        values = self.values(x)
        if self.kind == "batch":
            return Pair(whole.problem, RealBatch(whole.algorithm, values[0, 0]))
        if self.kind == "probabilities":
            return eqx.tree_at(lambda pair: pair.problem.chances, whole, self._chances(values), is_leaf=_is_none)
        found: Any = values.reshape(self.shape) if self.times is None else PiecewiseLinear(self.times, values[0])
        return eqx.tree_at(lambda pair: entry(pair, self.name), whole, found, is_leaf=_is_none)

    def _chances(self, values: Float[Array, "rows knots"]) -> Any:
        if self.times is None:
            return probabilities_of(values[:, 0])
        return Function((self.times, values), _chances_recipe())


def _chances_recipe() -> Recipe:
    return Recipe(_piecewise_linear, _piecewise_linear, _from_numbers, lambda: (_chances_recipe, ()))


def _from_numbers(numbers: Sequence[Array]) -> Callable[[Any], Any]:
    return lambda alpha: _piecewise_linear(alpha, *numbers)


def _piecewise_linear(alpha, times: Float[Array, " knots"], shares: Float[Array, "less knots"]):
    return probabilities_of(jax.vmap(lambda row: jnp.interp(alpha, times, row))(shares))


class Pair(eqx.Module):
    """A problem and an algorithm, for controls to be put into."""

    problem: Problem
    algorithm: OnlineAlgorithm


class RealBatch(Beside):
    """An algorithm with a batch of any size above zero: its limit depends on 1/B only."""

    number: Float[Array, ""]

    def __init__(self, algorithm: OnlineAlgorithm, number: Float[Array, ""]):
        self.algorithm, self.number = algorithm, number

    @property
    def batch_size(self) -> Any:
        return self.number

    def move(self, alpha: Float[Array, ""]) -> Move:
        return self.algorithm.move(alpha)


def with_batch(algorithm: OnlineAlgorithm, batch_size: int) -> OnlineAlgorithm:
    """The algorithm with another batch."""
    if isinstance(algorithm, Beside):
        inner = with_batch(algorithm.algorithm, batch_size)
        return eqx.tree_at(lambda beside: beside.algorithm, algorithm, inner)
    return dataclasses.replace(algorithm, batch_size=batch_size)


def probabilities_of(shares: Float[Array, " less"]) -> Float[Array, " tasks"]:
    """Probabilities from what each task takes of what those after it have left; the first takes the rest."""
    left = jnp.cumprod(jnp.concatenate([jnp.ones(1), 1 - shares[::-1]]))
    return jnp.concatenate([left[:-1] * shares[::-1], left[-1:]])[::-1]


def _shares_of(probabilities: Float[np.ndarray, " tasks"]) -> Float[np.ndarray, " less"]:
    left = np.cumsum(probabilities)[1:]
    return probabilities[1:] / np.where(left > 0, left, 1.0)


def entry(whole: Any, name: str) -> Any:
    """What is at a dotted name; a part that is a number counts entries. Rates may be those of an inner algorithm."""
    found: Any = whole
    for part in name.split("."):
        found = found[int(part)] if part.isdigit() else getattr(_owner(found, part), part)
    return found


def _owner(found: Any, name: str) -> Any:
    """Which of an algorithm and those inside of it has a rate of this name."""
    while isinstance(found, Beside) and name not in [field.name for field in dataclasses.fields(found)]:
        found = found.algorithm
    return found


def controls_of(problem: Problem, algorithm: OnlineAlgorithm, over: Any, end: float) -> tuple[Control, ...]:
    """The controls that a user asks for, or an error in the user's words."""
    if not isinstance(over, Mapping) or not over:
        raise InvalidInput(
            f"over = {shown(over)} was given; name what is searched and its bounds, such as "
            '{"algorithm.learning_rate": (0.0, 2.0, 20)} for a schedule with 20 knots.'
        )
    return tuple(_control(Pair(problem, algorithm), name, asked, end) for name, asked in over.items())


def _control(whole: Pair, name: Any, asked: Any, end: float) -> Control:
    words = f"over: {name}: {shown(asked)} was given; "
    if not isinstance(asked, list | tuple) or len(asked) not in (2, 3):
        raise InvalidInput(f"{words}give (low, high), or (low, high, knots) for a schedule.")
    low, high = (float(real_array(each, f"over: {name}")) for each in asked[:2])
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise InvalidInput(f"{words}the bounds must be finite, the lower one first.")
    times = _knots(asked[2], end, words) if len(asked) == 3 else None
    kind, shape, changes = _place(whole, name, words)
    if times is not None and not changes:
        raise InvalidInput(
            f"{words}it does not change with alpha: leave out the knots. Rates of algorithms do, and the probabilities "
            "of Tasks; a loss of your own takes alpha as its fifth argument, and its numbers are searched one by one."
        )
    if kind == "probabilities" and not 0 <= low < high <= 1:
        raise InvalidInput(f"{words}probabilities are between 0 and 1.")
    if kind == "batch" and low < 1:
        raise InvalidInput(f"{words}a batch has at least one sample.")
    if times is not None and low < 0:
        raise InvalidInput(f"{words}a rate is zero or positive.")
    bounds = jnp.asarray(low), jnp.asarray(high)
    return Control(*bounds, times, name, kind, shape, low > 0 and kind != "probabilities")


def _knots(asked: Any, end: float, words: str) -> Float[Array, " knots"]:
    if isinstance(asked, int):
        return jnp.linspace(0.0, end, positive_integer(asked, "knots", minimum=2))
    times = real_array(asked, "knots")
    if times.ndim != 1 or len(times) < 2 or np.any(np.diff(times) <= 0) or times[0] < 0:
        raise InvalidInput(f"{words}the third entry is a number of knots, at least 2, or their increasing times.")
    return jnp.asarray(times)


def _place(whole: Pair, name: Any, words: str) -> tuple[Kind, tuple[int, ...], bool]:
    """What kind of a control is at this name, how many numbers it is, and whether it may be a schedule."""
    if not isinstance(name, str) or name.partition(".")[0] not in ("problem", "algorithm"):
        raise InvalidInput(
            f"over has the name {shown(name)}; a name begins with problem or algorithm, such as "
            "algorithm.learning_rate or problem.noise."
        )
    if name == BATCH:
        if whole.algorithm.transform is not None or whole.algorithm.measured(1, 1):
            raise InvalidInput(f"{words}the limit of {whole.algorithm!r} depends on the batch by more than its size.")
        return "batch", (1,), False
    if name == PROBABILITIES and isinstance(whole.problem, Tasks):
        if whole.problem.switches is not None:
            raise InvalidInput(f"{words}the tasks are switched; make Tasks with probabilities instead.")
        if len(whole.problem.tasks) < 2:
            raise InvalidInput(f"{words}there is one task only.")
        return "probabilities", (len(whole.problem.tasks) - 1,), True
    if name == "problem.switches":
        raise InvalidInput(f"{words}the times of switches have no derivative here; search the probabilities instead.")
    try:
        found = entry(whole, name)
    except (AttributeError, IndexError, TypeError, ValueError):
        raise InvalidInput(
            f"over has the name {name}, but there is no such thing in {whole.problem!r} and {whole.algorithm!r}."
        ) from None
    if isinstance(found, Schedule):
        return "number", (), True
    if not isinstance(found, jax.Array) or not jnp.issubdtype(found.dtype, jnp.floating) or not found.size:
        raise InvalidInput(f"{words}it is {shown(found)}, not a number that can be searched.")
    return "number", found.shape, name.startswith("algorithm.") and not found.shape


def present(whole: Pair, control: Control) -> Float[np.ndarray, " size"] | None:
    """The coordinates of what is there already; None where it is a schedule of the user's."""
    if control.kind == "batch":
        return control.coordinates(float(whole.algorithm.batch_size))
    if control.kind == "probabilities":
        chances = whole.problem.chances  # pyright: ignore[reportAttributeAccessIssue]
        return None if callable(chances) else control.coordinates(_shares_of(np.asarray(chances))[:, None])
    found = entry(whole, control.name)
    return None if isinstance(found, Schedule) else control.coordinates(np.asarray(found).reshape(-1, 1))


def _is_none(leaf: Any) -> bool:
    return leaf is None
