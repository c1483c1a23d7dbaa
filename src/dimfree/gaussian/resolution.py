"""How fast functions of Gaussian fields vary, and how far they matter: what a grid has to resolve."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

# What is looked at: fields of these deviations, out to so many of them.
_DEVIATIONS = 2.0 ** np.arange(-4, 6)
_ONE = 4  # where among them the deviation is one
_REACH, _POINTS = 16.0, 2**14
_LARGEST = 0.5 * np.pi * _POINTS / (2 * _REACH)
# Of the tolerance, so that an estimate of the error can meet it too; of what is beyond its ends, no estimate knows.
_MARGIN, _ENDS = 0.1, 0.003
_LINES = 6  # in random directions, beside the axes
_DEGREES = 8  # of polynomials that are recognised


class Resolution(NamedTuple):
    """What a grid over a standardised field has to resolve, for each of some deviations of the field itself.

    **Attributes:**

    - `frequencies`: the highest angular frequency of the integrand times the density.
    - `reaches`: how far out the integrand times the density matters.
    """

    frequencies: tuple[float, ...]
    reaches: tuple[float, ...]

    def at(self, deviations: Float[Array, "*fields"]) -> tuple[Float[Array, "*fields"], Float[Array, "*fields"]]:
        """Frequency and reach at given deviations of the field."""
        place, known = jnp.log2(jnp.maximum(deviations, _DEVIATIONS[0])), np.log2(_DEVIATIONS)
        # Beyond the table frequencies grow with the deviation.
        beyond = jnp.maximum(place - known[-1], 0.0)
        frequency = jnp.exp2(jnp.interp(place, known, np.log2(self.frequencies)) + beyond)
        return frequency, jnp.interp(place, known, np.array(self.reaches))

    @property
    def points(self) -> float:
        """Points of a grid over a field of deviation one."""
        return self.reaches[_ONE] * self.frequencies[_ONE] / np.pi


def finest(*several: Resolution) -> Resolution:
    """What resolves all of several integrands."""
    return Resolution(*(tuple(map(max, zip(*parts, strict=True))) for parts in zip(*several, strict=True)))


def even_resolution(points: float, tolerance: float) -> Resolution:
    """So many points over a field of any deviation."""
    reach = float(np.sqrt(2 * np.log(1 / tolerance)))
    return Resolution((np.pi * points / reach,) * len(_DEVIATIONS), (reach,) * len(_DEVIATIONS))


@functools.lru_cache(maxsize=512)
def activation_resolution(function: Callable, tolerance: float, power: int = 2) -> Resolution:
    r"""What resolves all that a network averages of an activation, to a relative tolerance.

    That is $g$, its first two derivatives, products of two of these, and $(g g')^\text{power}$, the product of most
    factors of one and the same field, and with fields among the factors.
    """
    fields = _DEVIATIONS[:, None] * _line()
    with jax.ensure_compile_time_eval():
        slope = jax.grad(function)
        derivatives = jax.jit(jax.vmap(lambda x: (function(x), slope(x), jax.grad(slope)(x))))
        g, first, second = (np.asarray(part).reshape(fields.shape) for part in derivatives(fields.reshape(-1)))
    with_fields = (g * first * _line()) ** (power // 2)
    functions = [g, first, second, g**2, first**2, g * second, (g * first) ** power, with_fields]
    found = [_resolved([each[i] for each in functions], tolerance) for i in range(len(_DEVIATIONS))]
    return Resolution(*zip(*found, strict=True))


def loss_resolution(loss: Callable, dimension: int, tolerance: float, power: int) -> Resolution:
    """What resolves powers of the slope of a loss along lines, to a relative tolerance.

    **Arguments:**

    - `loss`: of one array of `dimension` numbers.
    - `power`: the highest power of the slope that is averaged: 2 in a drift, 4 in a covariance.
    """
    origins, directions = _lines(dimension)

    def along(deviation, origin, direction):
        of_line = jax.value_and_grad(lambda t: loss(deviation * (origin + t * direction)))
        return jax.vmap(of_line)(_line())

    with jax.ensure_compile_time_eval():
        lines = jax.vmap(along, in_axes=(None, 0, 0))
        found = jax.jit(lambda: jax.lax.map(lambda of: lines(of, origins, directions), jnp.asarray(_DEVIATIONS)))()
    values, slopes = (np.asarray(part) for part in found)
    scales = np.maximum(np.abs(_weighted(slopes)).max(axis=(1, 2), keepdims=True), np.finfo(float).tiny)
    slopes = slopes / scales  # powers of them shall not overflow
    fields = np.broadcast_to(_line(), slopes.shape)
    # Fields multiply slopes as often as slopes multiply each other.
    parts = [values, slopes, (slopes * fields) ** (power // 2), slopes**power]
    found = [
        np.max([_resolved([part[i, j] for part in parts], tolerance) for j in range(len(directions))], axis=0).tolist()
        for i in range(len(_DEVIATIONS))
    ]
    return Resolution(*zip(*found, strict=True))


def polynomial_degree(loss: Callable, dimension: int) -> int | None:
    """The degree of a loss that is a polynomial of its fields; None if it is none, or of too high a degree."""
    origins, directions = _lines(dimension)
    places = np.cos(np.pi * (np.arange(4 * _DEGREES) + 0.5) / (4 * _DEGREES))
    with jax.ensure_compile_time_eval():
        along = jax.vmap(jax.vmap(lambda o, v, t: loss(o + 4 * t * v), in_axes=(None, None, 0)), in_axes=(0, 0, None))
        values = np.asarray(jax.jit(along)(origins, directions, places))
    size = np.abs(values).max()
    if not np.isfinite(size):
        return None
    coefficients = np.polynomial.chebyshev.chebfit(places, values.T, 4 * _DEGREES - 1)
    used = np.flatnonzero(np.abs(coefficients).max(axis=1) > 1e-12 * size)
    degree = int(used[-1]) if len(used) else 0
    return degree if degree <= _DEGREES else None


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


@functools.cache
def _from_outside() -> Int[np.ndarray, " n"]:
    """The points of the line, the farthest first."""
    return np.argsort(-np.abs(_line()))


def _weighted(values: Float[np.ndarray, "*lines n"]) -> Float[np.ndarray, "*lines n"]:
    """Times the normal density, where the function is finite."""
    return np.where(np.isfinite(values), values, 0.0) * _density()


def _resolved(functions: list[Float[np.ndarray, " n"]], tolerance: float) -> tuple[float, float]:
    """The frequency, and the distance, beyond which the functions have less than the tolerance, of their mean size."""
    frequencies = 2 * np.pi * np.fft.rfftfreq(_POINTS, 2 * _REACH / _POINTS)
    order = _from_outside()
    highest = farthest = np.sqrt(2 * np.log(1 / tolerance))  # those of the density itself
    for values in functions:
        weighted = _weighted(values)
        if not weighted.any():
            continue
        least = _MARGIN * tolerance * np.abs(weighted).sum()
        within = np.flatnonzero(np.abs(np.fft.rfft(weighted)) > least)
        highest = max(highest, frequencies[within[-1]] if len(within) else 0.0)
        beyond = np.cumsum(np.abs(weighted)[order])
        farthest = max(farthest, abs(_line()[order[np.searchsorted(beyond, _ENDS / _MARGIN * least)]]))
    return float(min(highest, _LARGEST)), float(farthest)
