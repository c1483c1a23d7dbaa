"""Trying a user's function before it is used: shape, finiteness, kinks."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import InvalidInput
from ..functions import trials
from .analytic import is_analytic

_REFINE, _CELLS, _REACH = 4, 4096, 8.0
_LINE = np.linspace(-_REACH, _REACH, _REFINE * _CELLS + 1)
_LOW, _HIGH = (0, 1, 2), (3, 4)  # orders of derivatives that shall not jump, and that shall be bounded
_ZOOM, _ZOOMS = 64.0, 4  # how much closer a place is looked at, and how often
_BOUNDED, _SQUARE_INTEGRABLE = 0.05, 0.45
_REMEDY = "Write it with jax.numpy functions of these arguments, without Python branches on their values."


def probe(function: Any, dimension: int | None, *, name: str, arguments: str) -> bool:
    """Whether a function of `dimension` fields is smooth enough; refuses one that cannot be used at all.

    It must give one finite number, with a finite derivative whose square has a mean. Smooth means that its value, slope
    and curvature do not jump, that the next two derivatives stay bounded, and that no gradient is stopped that matters:
    averages of products of slopes can then be differentiated under the average. This is looked for along lines, out to
    8 standard deviations.

    **Arguments:**

    - `function`: a pytree that takes one array of `dimension` numbers, or a single number if that is None. Numbers in
      it that are traced are tried with values of order one.
    - `name`, `arguments`: what the user calls it and what it is given, for the message.
    """
    return all([_is_smooth(each, dimension, name, arguments) for each in trials(function)])


def check_values(function: Any, dimension: int, *, name: str, arguments: str) -> None:
    """Refuse a function of fields that does not give one finite number; arguments as for `probe`."""
    for each in trials(function):
        with jax.core.eval_context():
            _check_result(each, dimension, name, arguments)
            (values,), points = _along_lines(each, dimension, (0,))
            _check_finite(values, points, f"The value of {_inside_a_sentence(name)}")


def _is_smooth(function: Any, dimension: int | None, name: str, arguments: str) -> bool:
    # A problem may be made inside jit or vmap; its functions are still tried at once.
    with jax.core.eval_context():
        _check_result(function, dimension, name, arguments)
        try:
            parts, points = _along_lines(function, dimension, _LOW)
        except TypeError as error:
            raise InvalidInput(
                f"{name} could not be differentiated by JAX for {arguments}: {error}\n{_REMEDY}"
            ) from error
        words = _inside_a_sentence(name)
        for part, what in zip(parts, ("value", "derivative"), strict=False):
            _check_finite(part, points, f"The {what} of {words}")
        example = np.zeros(() if dimension is None else dimension)
        if not _are_consistent(*parts[1:]):
            return False
        if is_analytic(jax.make_jaxpr(lambda fields: function(fields))(example).jaxpr, [True]):
            return not _any_jumps(parts)
        exponent, where = _growth(function, dimension, 1)
        if exponent > _SQUARE_INTEGRABLE:
            raise InvalidInput(
                f"The derivative of {words} grows without bound near fields {np.round(where, 3)}, like distance to the "
                f"power {-exponent:.2f}: its square has no mean, and steps of SGD no variance. Take a function whose "
                "derivative is bounded there."
            )
        return not _any_jumps(parts) and all(_growth(function, dimension, order)[0] < _BOUNDED for order in _HIGH)


def _are_consistent(slopes: np.ndarray, curvatures: np.ndarray) -> bool:
    """Whether curvatures are the derivatives of slopes, which a loss that stops gradients need not care for.

    Averages of slopes are differentiated by their curvature only where it is. Where either jumps or is not finite,
    something else says so.
    """
    with np.errstate(invalid="ignore"):
        gained = 0.5 * (curvatures[:, 1:] + curvatures[:, :-1]) * (_LINE[1] - _LINE[0])
        off = np.abs(np.diff(slopes) - gained)
        return not np.median(off) > 0.01 * np.median(np.abs(np.diff(slopes)) + np.abs(gained))


def _any_jumps(parts: Iterable[np.ndarray]) -> bool:
    return not all(np.isfinite(part).all() for part in parts) or any(_has_jump(line) for part in parts for line in part)


def _check_finite(values: np.ndarray, points: np.ndarray, what: str) -> None:
    if not np.isfinite(values).all():
        where = np.round(points[~np.isfinite(values)][0], 3)
        raise InvalidInput(
            f"{what} is NaN or infinite at fields {where}. Gaussian fields take every real value: guard divisions, "
            "logarithms and square roots in it, and their derivatives."
        )


def _inside_a_sentence(name: str) -> str:
    """A name that may stand at the beginning of a sentence, for its middle."""
    return name[0].lower() + name[1:]


def _check_result(function: Any, dimension: int | None, name: str, arguments: str) -> None:
    """Refuse a function that JAX cannot evaluate, or that returns something else than a number."""
    remedy = _REMEDY
    try:
        result = jax.eval_shape(lambda fields: function(fields), jnp.zeros(() if dimension is None else dimension))
    except Exception as error:
        words = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        if isinstance(error, TypeError) and "positional argument" in words:
            remedy = "It is called with these arguments, in this order; take all of them, also those it has no use for."
        raise InvalidInput(f"{name} could not be evaluated by JAX for {arguments}: {words}\n{remedy}") from error
    _check_indices(function, dimension, name, arguments)
    if getattr(result, "shape", None) != ():
        found = f"an array of shape {result.shape}" if hasattr(result, "shape") else f"a {type(result).__name__}"
        raise InvalidInput(
            f"{name} returned {found} for {arguments}; it must return a single number: sum or average over it "
            "(jnp.sum, jnp.mean)."
        )


def stand_in_readout(size: int) -> Float[np.ndarray, " n"]:
    """Values of order one that stand for those of any readout, no two of them alike."""
    return np.where(np.arange(size) % 2, -1.0, 1.0) * (1 + 0.5 * np.cos(2.0 * np.arange(size)))


def is_unordered(function: Any, inputs: int, fields: int, *, others: int = 0) -> bool:
    """Whether a function of the fields of several inputs, and its slopes, are the same in any order of them.

    It is tried with two orders that make all others, at random fields. Slopes are looked at too, since they need not be
    those of the value.

    **Arguments:**

    - `function`: a pytree that takes one array: `fields` numbers of each of the `inputs`, and so many `others`.
    """
    first, *rest = range(inputs)
    numbers = np.arange(inputs * fields).reshape(inputs, fields)
    own = np.arange(inputs * fields, inputs * fields + others)
    orders = [np.append(numbers[order], own) for order in ([*rest, first], [*rest[:1], first, *rest[1:]])]
    with jax.core.eval_context():
        rows = jax.random.normal(jax.random.key(0), (64, inputs * fields + others))

        def is_same(each: Any, order: np.ndarray) -> bool:
            of_row = jax.vmap(jax.value_and_grad(lambda row: each(row)))
            (values, slopes), (others, other_slopes) = of_row(rows), of_row(rows[:, order])
            return all(
                np.allclose(one, other, rtol=1e-9, atol=1e-12)
                for one, other in ((values, others), (slopes[:, order], other_slopes))
            )

        return all(is_same(each, order) for each in trials(function) for order in orders)


def _check_indices(function: Callable, dimension: int | None, name: str, arguments: str) -> None:
    """Refuse a function that reads fields that are not there: JAX would give it the last one instead."""
    try:
        jax.eval_shape(lambda: function(np.zeros(() if dimension is None else dimension)))
    except IndexError as error:
        raise InvalidInput(
            f"{name} reads a field that is not there: {error}. It is given {arguments}: change the widths or the index."
        ) from error
    except Exception:  # what NumPy's arrays cannot do and JAX's can is no fault of the function
        return


def _along_lines(function: Callable, dimension: int | None, orders: tuple[int, ...]):
    """Derivatives of the function along lines, of each of these orders, and the points there."""
    starts, ways = _some_lines(dimension or 1)
    places = np.broadcast_to(_LINE, (len(starts), len(_LINE)))
    found = [np.asarray(part) for part in _compiled_lines(function, dimension, orders, starts, ways, places)]
    return found, starts[:, None] + _LINE[:, None] * ways[:, None]


def _growth(function: Callable, dimension: int | None, order: int) -> tuple[float, Float[np.ndarray, " n"]]:
    """How fast a derivative grows where it is largest on a line: the largest exponent, and where.

    Each line is looked at again around that place, so closely in the end that a bounded derivative has stopped growing.
    An infinite derivative has an infinite exponent.
    """
    starts, ways = _some_lines(dimension or 1)
    middle, width = np.zeros(len(starts)), np.full(len(starts), _REACH)
    largest = []
    for _ in range(_ZOOMS + 1):
        places = middle[:, None] + width[:, None] * np.linspace(-1, 1, len(_LINE))
        sizes = np.abs(np.asarray(_compiled_lines(function, dimension, (order,), starts, ways, places)[0]))
        sizes = np.where(np.isfinite(sizes), sizes, np.inf)
        at = sizes.argmax(axis=1)
        largest.append(np.maximum(sizes.max(axis=1), np.finfo(float).tiny))
        # The ends, where a function may grow like any other, are not where it has a singularity.
        middle, width = (
            np.clip(places[range(len(at)), at], -_REACH + width / _ZOOM, _REACH - width / _ZOOM),
            width / _ZOOM,
        )
    with np.errstate(invalid="ignore"):
        exponents = np.log(largest[-1] / largest[0]) / (_ZOOMS * np.log(_ZOOM))
    exponents = np.where(np.isinf(largest[-1]), np.inf, exponents)
    line = int(exponents.argmax())
    return float(exponents[line]), starts[line] + middle[line] * ways[line]


@functools.cache
def _some_lines(dimension: int) -> tuple[Float[np.ndarray, "m n"], Float[np.ndarray, "m n"]]:
    """Where lines start, and their directions."""
    if dimension == 1:
        return np.zeros((1, 1)), np.ones((1, 1))
    starts, ways = np.asarray(jax.random.normal(jax.random.key(1), (2, 4, dimension)))
    return starts, ways / np.linalg.norm(ways, axis=1, keepdims=True)


@eqx.filter_jit
def _compiled_lines(function: Callable, dimension: int | None, orders: tuple[int, ...], starts, ways, places):
    of_fields = (lambda fields: function(fields[0])) if dimension is None else function

    def along(start: Float[Array, " n"], way: Float[Array, " n"], places: Float[Array, " m"]):
        derivatives = [lambda t: of_fields(start + t * way)]
        for _ in range(max(orders)):
            derivatives.append(jax.grad(derivatives[-1]))
        return jax.vmap(lambda t: [derivatives[order](t) for order in orders])(places)

    return jax.vmap(along)(starts, ways, places)


def _has_jump(samples: np.ndarray) -> bool:
    """Whether samples on a uniform grid show a discontinuity.

    Second differences shrink with the spacing where the sampled function is continuous, and do not across a jump: there
    those of the fine grid are as large as those of the coarse grid around them.
    """
    fine = np.abs(np.diff(samples, 2))
    coarse = np.pad(np.abs(np.diff(samples[::_REFINE], 2)), 2)
    # A coarse difference may vanish by its sign change alone, but then not its neighbours.
    around = np.lib.stride_tricks.sliding_window_view(coarse, 4).max(axis=1)
    # Two derivatives of a tail such as that of gelu leave rounding errors far above those of the values.
    rounding = 1e7 * np.finfo(samples.dtype).eps * (1 + np.abs(samples).max())
    cells = np.arange(1, len(samples) - 1) // _REFINE
    return bool(np.any((fine > 0.6 * around[cells]) & (fine > rounding)))
