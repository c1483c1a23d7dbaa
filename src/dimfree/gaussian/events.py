"""Probabilities of events that a few Gaussian fields decide, with boundaries found where they are."""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..batches import sum_over_blocks
from .factor import psd_factor
from .rules import Averaging

_REACH = 8.5  # standard deviations beyond which a normal density is rounding
_HALVINGS = 20


class _Search(NamedTuple):
    """Lines in each direction and how far they reach; cells of a line, and crossings in it that are found exactly."""

    lines: int
    reach: float
    cells: int
    crossings: int


_SEARCHES = {1: _Search(1, 0.0, 256, 8), 2: _Search(256, 8.5, 64, 4), 3: _Search(32, 6.0, 64, 4)}
MOST_IN_EVENT = max(_SEARCHES)
_BLOCK = 256  # lines at once


class Event(NamedTuple):
    """Whether an event happens, and a number that is zero at the boundary and moves away from it on a side at least."""

    happens: Bool[Array, ""]
    margin: Float[Array, ""]


@eqx.filter_jit
def probability(
    event: Callable[[Float[Array, " p"], Any], Event],
    mean: Float[Array, " p"],
    covariance: Float[Array, "p p"],
    parameters: Any,
    direction: Float[Array, " p"],
    averaging: Averaging,
) -> Float[Array, ""]:
    r"""The probability of an event of up to three fields $u \sim N(\text{mean}, \text{covariance})$.

    On a line, the event happens in intervals, whose ends are found by bisection and Newton's method, and whose
    probabilities are normal. What is left is an average over parallel lines by the trapezoidal rule. Where lines cross
    the boundary once that average is smooth, and the error falls exponentially; it is up to 1e-3 where they touch it.

    Derivatives are those of the ends. They are right where the covariance is regular.

    **Arguments:**

    - `event`: of the fields and the parameters; closing over traced values is an error.
    - `direction`: linear weights $a$ of the fields that the event rises with. Lines go along the covariance times $a$,
      the most probable way, or along $a$ where that would move a field against its weight.
    - `averaging`: how averages are taken; its replicas are lines half a spacing away.
    """
    p = mean.shape[0]
    search = _SEARCHES[p]
    factor, _ = psd_factor(covariance)
    axes = factor @ _turn(*jax.lax.stop_gradient((factor, covariance, direction)))
    spacing = 2 * search.reach / search.lines
    places = spacing * (np.arange(search.lines) - (search.lines - 1) / 2)
    nodes = np.array(list(itertools.product(places, repeat=p - 1))) + spacing * averaging.shift
    weights = jnp.exp(-0.5 * jnp.sum(nodes**2, axis=1))

    def over(nodes, weights):
        lines = jax.vmap(lambda node: _on_line(event, mean + axes[:, 1:] @ node, axes[:, 0], parameters, search))
        return weights @ lines(nodes)

    found = sum_over_blocks(over, (nodes, weights / jnp.sum(weights)), -(-len(nodes) // _BLOCK))
    # No comparison with NaN is true, so that nothing else would tell.
    is_known = jnp.all(jnp.isfinite(mean)) & jnp.all(jnp.isfinite(factor))
    return jnp.where(is_known, found, jnp.nan)


def _turn(factor, covariance, direction) -> Float[Array, "p p"]:
    """An orthogonal matrix whose first column is the direction of the lines, in standardised fields."""
    first = jnp.eye(direction.shape[0])[0]
    against = jnp.any(direction * (covariance @ direction) < 0)
    inverse = jnp.linalg.pinv(covariance, hermitian=True)
    along = factor.T @ jnp.where(against, inverse @ direction, direction)
    length = jnp.linalg.norm(along)
    unit = jnp.where(length > 0, along / jnp.where(length > 0, length, 1.0), first)
    # Householder's reflection of the first axis to it.
    normal = unit - first
    square = normal @ normal
    turned = square > 1e-30
    return jnp.eye(len(first)) - jnp.where(turned, 2 / jnp.where(turned, square, 1.0), 0.0) * jnp.outer(normal, normal)


def _on_line(event, center, step, parameters, search: _Search) -> Float[Array, ""]:
    """The probability on one line: what happens at its far end, and a normal probability for every crossing."""
    edges = jnp.linspace(-_REACH, _REACH, search.cells + 1)
    given = center, step, parameters
    fixed = jax.lax.stop_gradient(given)

    def at(z, of=fixed) -> Event:
        center, step, parameters = of
        return event(center + z * step, parameters)

    def margin_and_slope(z, of=fixed):
        return jax.jvp(lambda z: at(z, of).margin, (z,), (jnp.ones(()),))

    happens = jax.vmap(lambda z: at(z).happens)(edges)
    changed, middles = happens[1:] != happens[:-1], (edges[1:] + edges[:-1]) / 2
    # The most probable crossings are found exactly; others, of which there are hardly ever any, to a cell.
    density, cell = jax.lax.top_k(jnp.where(changed, jnp.exp(-0.5 * middles**2), -1.0), search.crossings)
    crosses, before = density > 0, happens[cell]

    def halve(_, ends):
        low, high = ends
        middle = (low + high) / 2
        same = jax.vmap(lambda z: at(z).happens)(middle) == before
        return jnp.where(same, middle, low), jnp.where(same, high, middle)

    def place(low, high):
        # Where the margin is flat on one side of the boundary (a ReLU that is off), it moves on the other.
        _, slope_low = margin_and_slope(low)
        _, slope_high = margin_and_slope(high)
        z, width = jnp.where(jnp.abs(slope_low) > jnp.abs(slope_high), low, high), high - low
        margin, slope = margin_and_slope(z)
        root = z - jnp.where(slope == 0, 0.0, margin / jnp.where(slope == 0, 1.0, slope))
        jumps = (root < low - width) | (root > high + width)  # not where it is NaN, which shall be seen
        root = jnp.where(jumps, (low + high) / 2, root)
        # The same root as a function of all that it depends on: each of Newton's steps doubles the order of the
        # derivatives that are right.
        level = margin_and_slope(root)[0]
        for _ in range(2):
            margin, slope = margin_and_slope(root, given)
            is_moving = ~jumps & (slope != 0)
            root = root - jnp.where(is_moving, (margin - level) / jnp.where(is_moving, slope, 1.0), 0.0)
        return root

    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, (edges[cell], edges[cell + 1]))
    below = jax.scipy.special.ndtr(jax.vmap(place)(low, high))
    rises = jnp.where(happens[1:], 1.0, -1.0) * changed
    rough = jax.scipy.special.ndtr(middles).at[cell].set(jnp.where(crosses, below, 0.0))
    return happens[-1] - rises @ rough
