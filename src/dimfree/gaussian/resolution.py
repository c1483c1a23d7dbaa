"""How fast functions of Gaussian fields vary, and how far they matter: what a grid has to resolve."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import is_concrete
from ..functions import Recipe, trials

# What is looked at: fields of these deviations, out to so many of them.
_DEVIATIONS = 2.0 ** np.arange(-4, 6)
_ONE = 4  # where among them the deviation is one
_REACH, _POINTS = 16.0, 2**14
_LARGEST = 0.5 * np.pi * _POINTS / (2 * _REACH)
# Of the tolerance, so that an estimate of the error can meet it too; of what is beyond its ends, no estimate knows.
_MARGIN, _ENDS = 0.1, 0.003
_LINES = 6  # in random directions, beside the axes
_DEGREES = 8  # of polynomials that are recognised
_TOLERANCES = 10.0 ** -np.arange(2, 11, 2)  # for which a table is made
_POWERS = (2, 4)
_FEW_FIELDS = 4
FEW_POINTS = 2**19  # of a grid over more fields than that


class Resolution(NamedTuple):
    """What a grid over a standardised field has to resolve, for each of some deviations of the field itself.

    **Attributes:**

    - `frequencies`: the highest angular frequency of the integrand times the density: known numbers, or an array where
      they follow from numbers in a user's function.
    - `reaches`: how far out the integrand times the density matters, likewise.
    - `most_fields`: over which a grid has few enough points.
    """

    frequencies: tuple[float, ...] | Float[Array, " n"]
    reaches: tuple[float, ...] | Float[Array, " n"]
    most_fields: int

    def at(self, deviations: Float[Array, "*fields"]) -> tuple[Float[Array, "*fields"], Float[Array, "*fields"]]:
        """Frequency and reach at given deviations of the field."""
        place, known = jnp.log2(jnp.maximum(deviations, _DEVIATIONS[0])), np.log2(_DEVIATIONS)
        # Beyond the table frequencies grow with the deviation.
        beyond = jnp.maximum(place - known[-1], 0.0)
        frequency = jnp.exp2(jnp.interp(place, known, jnp.log2(jnp.asarray(self.frequencies))) + beyond)
        return frequency, jnp.interp(place, known, jnp.asarray(self.reaches))


def finest(*several: Resolution) -> Resolution:
    """What resolves all of several integrands."""
    frequencies, reaches, most_fields = zip(*several, strict=True)
    known = all(isinstance(each, tuple) for each in frequencies)

    def largest(parts):
        return tuple(map(max, *parts)) if known else functools.reduce(jnp.maximum, map(jnp.asarray, parts))

    if len(several) == 1:
        return several[0]
    return Resolution(largest(frequencies), largest(reaches), min(most_fields))


def _most_fields(frequencies, reaches) -> int:
    """Four, or more where the integrand is so smooth that a dozen nodes for each are enough."""
    points = frequencies[_ONE] * reaches[_ONE] / np.pi
    return max(_FEW_FIELDS, int(np.log(FEW_POINTS) / np.log(points)))


def _known(frequencies: Iterable[float], reaches: Iterable[float]) -> Resolution:
    frequencies, reaches = tuple(frequencies), tuple(reaches)
    return Resolution(frequencies, reaches, _most_fields(frequencies, reaches))


def even_resolution(points: float, tolerance: float) -> Resolution:
    """So many points over a field of any deviation."""
    reach = float(np.sqrt(2 * np.log(1 / tolerance)))
    return _known((np.pi * points / reach,) * len(_DEVIATIONS), (reach,) * len(_DEVIATIONS))


class Features(eqx.Module):
    """What averages have to know of a function with numbers in it, found out when it is given.

    **Attributes:**

    - `degree`: of a polynomial; None if it is none.
    - `most_fields`: that of `Resolution`, for each power and tolerance.
    - `table`: frequencies and reaches, shape `(2, powers, tolerances, deviations)`.
    """

    degree: int | None = eqx.field(static=True)
    most_fields: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    table: Float[Array, "2 powers tolerances deviations"]

    def __init__(
        self, function: Any, dimension: int | None, resolved: Callable[[Any], Any] = lambda function: function
    ):
        """Of a pytree that can be called.

        **Arguments:**

        - `dimension`: how many numbers it takes, as an array; None if it is an activation, of one number.
        - `resolved`: what of it is to be resolved.
        """
        if dimension is None:
            self.degree = highest_degree(polynomial_degree(each, None) for each in trials(function))
        else:
            self.degree = highest_degree(loss_degree(each, dimension) for each in trials(function))
        table = _activation_table(function) if dimension is None else _loss_table(resolved(function), dimension)
        self.table = jax.lax.stop_gradient(table)
        known = is_concrete(table)
        places = np.ndindex(len(_POWERS), len(_TOLERANCES))
        found = [_most_fields(*np.asarray(table)[:, *place]) if known else _FEW_FIELDS for place in places]
        self.most_fields = tuple(map(tuple, np.reshape(found, (len(_POWERS), -1)).tolist()))

    def resolution(self, tolerance: float, power: int) -> Resolution:
        """What resolves the function to a tolerance, or to the next smaller one of the table."""
        row, column = _POWERS.index(power), int(np.searchsorted(-_TOLERANCES, -1.001 * tolerance))
        frequencies, reaches = self.table[:, row, column]
        return Resolution(frequencies, reaches, self.most_fields[row][column])


@functools.lru_cache(maxsize=512)
def activation_resolution(recipe: Recipe, tolerance: float, power: int = 2) -> Resolution:
    r"""What resolves all that a network averages of an activation, to a relative tolerance.

    That is $g$, its first two derivatives, products of two of these, and $(g g')^\text{power}$, the product of most
    factors of one and the same field, and with fields among the factors.
    """
    with jax.core.eval_context():
        derivatives = jax.jit(_three_derivatives, static_argnums=0)(recipe.function, _DEVIATIONS[:, None] * _line())
    g, first, second = map(np.asarray, derivatives)
    parts = np.stack(_of_activation(g, first, second, power))
    found = [_resolved(parts[:, i], np.array([tolerance])) for i in range(len(_DEVIATIONS))]
    frequencies, reaches = np.array(found)[:, :, 0].T.tolist()
    return _known(frequencies, reaches)


def _three_derivatives(function: Callable, fields: Float[Array, "*shape"]) -> tuple[Float[Array, "*shape"], ...]:
    slope = jax.grad(function)
    of_all = jax.vmap(lambda x: (function(x), slope(x), jax.grad(slope)(x)))
    return tuple(part.reshape(fields.shape) for part in of_all(fields.reshape(-1)))


def _of_activation(g, first, second, power: int) -> list:
    with_fields = (g * first * _line()) ** (power // 2)
    return [g, first, second, g**2, first**2, g * second, (g * first) ** power, with_fields]


@eqx.filter_jit
def _activation_table(function: Callable) -> Float[Array, "2 powers tolerances deviations"]:
    def at(deviation):
        g, first, second = _three_derivatives(function, deviation * _line())
        parts = [jnp.stack(_of_activation(g, first, second, power)) for power in _POWERS]
        return jnp.stack([jnp.stack(_resolved(each, _TOLERANCES, jnp)) for each in parts], axis=1)

    return jnp.moveaxis(jax.lax.map(at, jnp.asarray(_DEVIATIONS)), 0, -1)


def loss_resolution(loss: Callable, dimension: int, tolerance: float, power: int) -> Resolution:
    """What resolves powers of the slope of a loss along lines, to a relative tolerance.

    **Arguments:**

    - `loss`: of one array of `dimension` numbers.
    - `power`: the highest power of the slope that is averaged: 2 in a drift, 4 in a covariance.
    """
    origins, directions = _lines(dimension)
    with jax.core.eval_context():
        lines = jax.vmap(lambda deviation, o, v: _along(loss, deviation, o, v), in_axes=(None, 0, 0))
        found = jax.jit(lambda: jax.lax.map(lambda of: lines(of, origins, directions), jnp.asarray(_DEVIATIONS)))()
    values, slopes = (np.asarray(part) for part in found)
    scales = np.abs(_weighted(slopes)).max(axis=(1, 2), keepdims=True)
    parts = np.stack(_of_loss(values, slopes, scales, power))
    found = [
        np.max([_resolved(parts[:, i, j], np.array([tolerance])) for j in range(len(directions))], axis=0)[:, 0]
        for i in range(len(_DEVIATIONS))
    ]
    frequencies, reaches = np.array(found).T.tolist()
    return _known(frequencies, reaches)


def slope_growth(loss: Callable, dimension: int) -> float:
    """The power of the distance by which the slopes of a loss grow, between four and eight deviations, on any line."""
    origins, directions = _lines(dimension)
    with jax.core.eval_context():
        lines = jax.vmap(lambda o, v: _along(loss, 1.0, o, v))
        slopes = np.abs(np.asarray(jax.jit(lines)(origins, directions)[1]))
    distances = np.abs(_line())
    near, far = (np.mean(slopes[:, (distances > low) & (distances < 1.1 * low)], axis=1) for low in (4.0, 8.0))
    matters = far > 1e-3 * far.max()  # along the others hardly anything changes
    return float(np.max(np.log2(far[matters] / np.maximum(near[matters], np.finfo(float).tiny)), initial=0.0))


def _along(loss: Callable, deviation, origin, direction) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Values and slopes of a loss along a line."""
    return jax.vmap(jax.value_and_grad(lambda t: loss(deviation * (origin + t * direction))))(_line())


def _of_loss(values, slopes, scales, power: int) -> list:
    slopes = slopes / (scales + np.finfo(float).tiny)  # powers of them shall not overflow
    # Fields multiply slopes as often as slopes multiply each other.
    return [values, slopes, (slopes * _line()) ** (power // 2), slopes**power]


@eqx.filter_jit
def _loss_table(loss: Callable, dimension: int) -> Float[Array, "2 powers tolerances deviations"]:
    lines = tuple(map(jnp.asarray, _lines(dimension)))

    def at(deviation):
        def size(line):
            return jnp.max(jnp.abs(_weighted(_along(loss, deviation, *line)[1], jnp)))

        scale = jnp.max(jax.lax.map(size, lines))

        def on(line):
            found = _along(loss, deviation, *line)
            parts = [jnp.stack(_of_loss(*found, scale, power)) for power in _POWERS]
            return jnp.stack([jnp.stack(_resolved(each, _TOLERANCES, jnp)) for each in parts], axis=1)

        return jnp.max(jax.lax.map(on, lines), axis=0)

    return jnp.moveaxis(jax.lax.map(at, jnp.asarray(_DEVIATIONS)), 0, -1)


def polynomial_degree(function: Callable, dimension: int | None) -> int | None:
    """The degree of a polynomial of so many numbers (None: of a single one); None if it is none, or a high one."""
    places = np.cos(np.pi * (np.arange(4 * _DEGREES) + 0.5) / (4 * _DEGREES))
    with jax.core.eval_context():
        values = np.asarray(_at_places(function, dimension, jnp.asarray(places)))
    size = np.abs(values).max()
    if not np.isfinite(size):
        return None
    coefficients = np.polynomial.chebyshev.chebfit(places, values.T, 4 * _DEGREES - 1)
    used = np.flatnonzero(np.abs(coefficients).max(axis=1) > 1e-12 * size)
    degree = int(used[-1]) if len(used) else 0
    return degree if degree <= _DEGREES else None


def loss_degree(loss: Callable, dimension: int) -> int | None:
    """The degree of a loss as a polynomial of its fields, one more than that of its slopes; None if it is none.

    Slopes need not be those of the value: a loss may stop gradients on purpose.
    """
    slopes = polynomial_degree(_Slope(loss, np.random.default_rng(2).standard_normal(dimension)), dimension)
    return None if slopes is None else highest_degree([polynomial_degree(loss, dimension), slopes + 1])


class _Slope(eqx.Module):
    """The slope of a function of fields along a direction, as a function of the fields."""

    function: Callable
    direction: Float[np.ndarray, " n"]

    def __call__(self, fields: Float[Array, " n"]) -> Float[Array, ""]:
        return jax.grad(self.function)(fields) @ self.direction


def highest_degree(degrees: Iterable[int | None]) -> int | None:
    """The degree of a sum; None if a part is no polynomial, or of a high degree."""
    found = [_DEGREES + 1 if degree is None else degree for degree in degrees]
    return max(found) if max(found) <= _DEGREES else None


@functools.lru_cache(maxsize=512)
def known_degree(recipe: Recipe, dimension: int | None) -> int | None:
    """The degree of a function without numbers in it."""
    return polynomial_degree(recipe.function, dimension)


@eqx.filter_jit
def _at_places(function: Callable, dimension: int | None, places: Float[Array, " n"]):
    origins, directions = _lines(dimension or 1)
    of_fields = function if dimension else lambda fields: function(fields[0])
    along = jax.vmap(lambda o, v, t: of_fields(o + 4 * t * v), in_axes=(None, None, 0))
    return jax.vmap(along, in_axes=(0, 0, None))(origins, directions, places)


def _lines(dimension: int) -> tuple[Float[np.ndarray, "lines dimension"], Float[np.ndarray, "lines dimension"]]:
    """Points and directions of lines: along the axes, and some at random."""
    rng = np.random.default_rng(0)
    directions = np.concatenate([np.eye(dimension), rng.standard_normal((_LINES, dimension))])
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return rng.standard_normal(directions.shape), directions


@functools.cache
def _line() -> Float[np.ndarray, " n"]:
    return np.linspace(-_REACH, _REACH, _POINTS, endpoint=False)


@functools.cache
def _density() -> Float[np.ndarray, " n"]:
    return np.exp(-0.5 * _line() ** 2)


def _weighted(values: Any, xp: Any = np) -> Any:
    """Times the normal density, where the function is finite."""
    return xp.where(xp.isfinite(values), values, 0.0) * _density()


def _resolved(functions: Any, tolerances: Float[np.ndarray, " t"], xp: Any = np) -> tuple[Any, Any]:
    """The frequency, and the distance, beyond which the functions have less than a tolerance, of their mean size.

    **Arguments:**

    - `functions`: their values on the line, shape `(functions, n)`; `xp`: NumPy, or its like in JAX.
    """
    frequencies = 2 * np.pi * np.fft.rfftfreq(_POINTS, 2 * _REACH / _POINTS)
    weighted = _weighted(functions, xp)
    sizes, nothing = xp.abs(weighted), xp.zeros((len(functions), 1))
    least = _MARGIN * tolerances[:, None, None] * xp.sum(sizes, axis=1)[:, None]
    spectra, half = xp.abs(xp.fft.rfft(weighted)), _POINTS // 2
    highest = xp.max(xp.where(spectra > least, frequencies, 0.0), axis=(1, 2))
    # Both sides together, from the outside: the line is -n h, ..., 0, ..., (n - 1) h.
    right = xp.concatenate([nothing, sizes[:, :half:-1], nothing], axis=1)
    beyond = xp.cumsum(sizes[:, : half + 1] + right, axis=1)
    matters = (beyond >= _ENDS / _MARGIN * least) & (least > 0)
    farthest = xp.max(xp.where(matters, -_line()[: half + 1], 0.0), axis=(1, 2))
    own = np.sqrt(2 * np.log(1 / tolerances))  # of the density itself
    return xp.clip(highest, own, _LARGEST), xp.maximum(farthest, own)
