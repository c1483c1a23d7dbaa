"""Hermite coefficients of functions of standard normals."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
import scipy.integrate
from jaxtyping import Array, Float

from ..batches import map_in_batches
from ..errors import InvalidInput, positive_integer, shown
from .activations import as_activation
from .probing import probe
from .rules import GaussHermite

_REACH = 14.0  # the density is 1e-43 there, so that nothing is cut off of a function that grows as a polynomial
_HIGHEST = 64  # order in one variable: beyond, rounding exceeds the tolerance, and bisection would not end
_HIGHEST_OF_SEVERAL = {2: 48, 3: 24, 4: 12, 5: 8, 6: 8}  # by the number of directions
_SMOOTH_NODES = {2: 96, 3: 48, 4: 24, 5: 16, 6: 10}  # along each direction, by the number of directions
_CELL_NODES = {2: 10, 3: 6}  # with kinks: nodes in each cell, along each direction
_CELLS = {2: (40, 30), 3: (20, 14)}  # with kinks: cells along each direction, and of the rule that tells the error
_CELLS_REACH = 10.0
_BATCH = 2**16  # points at which a function is evaluated together


class HermiteExpansion(NamedTuple):
    """Hermite coefficients, shape `(order + 1,) * variables`; an estimate of their error; and the norm of the function.

    The norm is the square root of the mean square; both it and the error are absolute.
    """

    coefficients: Float[np.ndarray, "..."]
    error: float
    norm: float


def hermite_coefficients(function: str | Callable, order: int = 8, *, variables: int = 1) -> Float[np.ndarray, "..."]:
    r"""The coefficients of a function in the orthonormal Hermite polynomials $\mathrm{He}_n / \sqrt{n!}$.

    $$ c_{n_1 \dots n_k} = \mathbb{E}\Big[ f(z) \prod_{r=1}^k \frac{\mathrm{He}_{n_r}(z_r)}{\sqrt{n_r!}} \Big],
       \qquad z \sim N(0, I_k), \qquad \sum c^2 = \mathbb{E}[f^2]. $$

    For one variable by adaptive quadrature that bisects where the function has a kink or a jump (error below 1e-12 of
    the norm); for several by a product rule, exact for polynomials, which with kinks away from the planes $z_r = 0$
    has an error of about 1e-4.

    **Arguments:**

    - `function`: a name such as `"relu"`, or a JAX function of a number; of an array `(k,)` where `variables` is k > 1.
    - `order`: the highest order of each polynomial; at most 64 in one variable, 48, 24 and 12 in two, three and
      four, 8 in more.
    - `variables`: the number of variables, k; at most 6, and at most 3 for a function with kinks.

    **Returns:** an array of shape `(order + 1,) * k`.

    ??? example
        >>> import dimfree
        >>> dimfree.hermite_coefficients("relu", 2).round(4).tolist()
        [0.3989, 0.5, 0.2821]
    """
    order = positive_integer(order, "order", minimum=0)
    return expand(function, order, positive_integer(variables, "variables"), "function").coefficients


def expand(function: str | Callable, order: int, variables: int, argument: str = "target") -> HermiteExpansion:
    """The Hermite coefficients of a function, which the user gave as `argument`, with an estimate of their error."""
    if variables == 1:
        order = positive_integer(order, "order", minimum=0, maximum=_HIGHEST)
        return _of_one(as_activation(function, argument).function, order)
    if not callable(function):
        raise InvalidInput(
            f"{argument} = {shown(function)} was given for {variables} variables; give a JAX function of an array."
        )
    name = getattr(function, "__name__", "function")
    smooth = probe(function, variables, name=name, arguments=f"an array of shape ({variables},)")
    most = max(_SMOOTH_NODES if smooth else _CELL_NODES)
    if variables > most:
        kinds = "a function without kinks" if smooth else "a function with kinks"
        raise InvalidInput(f"variables = {variables} was given; Hermite coefficients of {kinds} need at most {most}.")
    # A polynomial of the order of the nodes is zero on all of them.
    positive_integer(order, "order", minimum=0, maximum=_HIGHEST_OF_SEVERAL[variables])
    return _of_several(function, order, variables, smooth)


def hermite_polynomials(points: Float[np.ndarray, " n"], order: int) -> Float[np.ndarray, "orders n"]:
    r"""The orthonormal $\mathrm{He}_n / \sqrt{n!}$ for n up to `order`, by their recurrence."""
    rows = [np.ones_like(points), points]
    for n in range(1, order):
        rows.append((points * rows[n] - np.sqrt(n) * rows[n - 1]) / np.sqrt(n + 1))
    return np.stack(rows[: order + 1])


@eqx.filter_jit
def _evaluated(function: Callable, points: Float[Array, " n"]) -> Float[Array, " n"]:
    return jax.vmap(lambda point: function(point))(points)


def _of_one(function: Callable, order: int) -> HermiteExpansion:
    def integrand(points):
        line = points[:, 0]
        # The quadrature asks for any number of points, and each number would be a program.
        padded = np.zeros(2 ** (len(line) - 1).bit_length())
        padded[: len(line)] = line
        values = np.asarray(_evaluated(function, jax.numpy.asarray(padded)), float)[: len(line)]
        density = np.exp(-(line**2) / 2) / np.sqrt(2 * np.pi)
        return np.concatenate([hermite_polynomials(line, order) * values, values[None] ** 2]).T * density[:, None]

    # The size of the function first, roughly: the tolerance of the quadrature is relative to it.
    square = 2 * _REACH * float(integrand(np.linspace(-_REACH, _REACH, 2**12)[:, None])[:, -1].mean())
    ends = np.abs(integrand(np.array([[-_REACH], [_REACH]]))).max()
    if not np.isfinite(square) or ends > 1e-10 * (1 + square):
        raise InvalidInput(
            "The function has no Hermite coefficients: its square has no mean under a standard normal. It must grow "
            "more slowly than exp(z^2 / 4)."
        )
    found = scipy.integrate.cubature(
        integrand,
        [-_REACH],
        [_REACH],
        rule="gk21",
        rtol=0.0,
        atol=1e-12 * max(np.sqrt(square), square, 1e-300),
        points=[[float(point)] for point in np.arange(1 - _REACH, _REACH)],
    )
    norm = float(np.sqrt(found.estimate[-1]))
    return HermiteExpansion(found.estimate[:-1], float(found.error[:-1].max()) + 1e-14 * norm, norm)


def _of_several(function: Callable, order: int, variables: int, smooth: bool) -> HermiteExpansion:
    if smooth:
        rule = GaussHermite(_SMOOTH_NODES[variables])
        rules = [_hermite_line(rule), _hermite_line(rule.fewer())]
    else:
        rules = [cells_rule(cells, _CELL_NODES[variables], _CELLS_REACH) for cells in _CELLS[variables]]
    (fine, norm), (coarse, _) = (_product(function, order, variables, *rule) for rule in rules)
    if not np.isfinite(norm):
        raise InvalidInput("The function is NaN or infinite at some fields, or its square has no mean.")
    return HermiteExpansion(fine, float(np.abs(fine - coarse).max()) + 1e-14 * norm, norm)


def _product(function, order: int, variables: int, line, weights) -> tuple[np.ndarray, float]:
    """All coefficients by a product rule, contracted along one direction after the other."""
    grid = np.stack(np.meshgrid(*[line] * variables, indexing="ij"), axis=-1).reshape(-1, variables)
    values = np.asarray(jax.jit(lambda points: map_in_batches(function, points, _BATCH))(grid), float)
    tensor = values.reshape([len(line)] * variables)
    square = functools.reduce(lambda left, _: np.tensordot(left, weights, axes=(0, 0)), range(variables), tensor**2)
    project = hermite_polynomials(line, order) * weights
    for _ in range(variables):
        tensor = np.tensordot(tensor, project, axes=(0, 1))  # the new axis is the last, so that the order is kept
    return tensor, float(np.sqrt(square))


def _hermite_line(rule: GaussHermite) -> tuple[np.ndarray, np.ndarray]:
    points, weights = rule.points(1)
    return points[:, 0], weights


def cells_rule(cells: int, nodes: int, reach: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights for a standard normal number: Gauss-Legendre in equal cells, an even number of them, so that
    zero, where most kinks are, is an end.
    """
    points, weights = np.polynomial.legendre.leggauss(nodes)
    half = reach / cells
    centres = np.linspace(-reach + half, reach - half, cells)
    line = (centres[:, None] + half * points).ravel()
    return line, np.tile(half * weights, cells) * np.exp(-(line**2) / 2) / np.sqrt(2 * np.pi)
