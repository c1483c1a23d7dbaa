"""Even grids for averages over standard normals, as fine as the numbers at hand ask for."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from .resolution import Resolution

_POINTS = 2**22  # points of a grid at most: a second of computing


class Grid(eqx.Module):
    r"""Even nodes in each direction, with weights of the normal density: the trapezoidal rule.

    By Poisson's summation the error of a spacing h is what the integrand times the density has at angular frequencies
    of $2 \pi / h$ and beyond. For analytic integrands it falls exponentially with the number of nodes, at any deviation
    of the fields, where that of Gauss-Hermite rules does not.

    The spacing is an array: it follows the State, under `jit`, `vmap` and `grad` too, and what is averaged is
    continuous in it.

    **Attributes:**

    - `steps`: spacing in each direction, shape `(r,)`.
    - `counts`: nodes on either side of zero in each direction, shape `(r,)`.
    - `shift`: what is added to the nodes of each direction, in units of the spacing, shape `(r,)`.

    Trefethen & Weideman, SIAM Review 56 (2014) 385.
    """

    steps: Float[Array, " r"]
    counts: Int[Array, " r"]
    shift: Float[Array, " r"]

    def __init__(
        self,
        deviations: Float[Array, " r"],
        resolution: Resolution,
        shift: Float[Array, "*r"] | float = 0.0,
        most: int = _POINTS,
    ):
        """The grid for fields that vary so much along each direction.

        **Arguments:**

        - `deviations`: how far the fields move along each direction; one node is enough where they do not.
        - `resolution`: what the integrand needs.
        - `shift`: by how much of the spacing to move all nodes, or those of each direction: with 1/2 the error of what
          varies along one direction changes its sign.
        - `most`: points at most; where more are needed, all spacings grow.
        """
        moves = deviations > 0
        frequency, reach = resolution.at(deviations)
        steps = 2 * np.pi / frequency
        sizes = jnp.where(moves, 2 * reach / steps + 1, 1.0)
        excess = jnp.prod(sizes) / most
        steps = steps * jnp.where(excess > 1, excess ** (1 / jnp.maximum(jnp.sum(moves), 1)), 1.0)
        self.steps = jax.lax.stop_gradient(steps)
        self.shift = jnp.where(moves, shift, 0.0)
        self.counts = jnp.where(moves, jnp.floor(reach / self.steps), 0).astype(jnp.int32)

    @property
    def size(self) -> Int[Array, ""]:
        """The number of points."""
        return jnp.prod(2 * self.counts + 1)

    def points(self, index: Int[Array, " n"]) -> tuple[Float[Array, "n r"], Float[Array, " n"]]:
        """Points by their number, and their weights; zero beyond the last."""
        rest, nodes = index, []
        for step, count, shift in zip(self.steps, self.counts, self.shift, strict=True):
            nodes.append(step * (rest % (2 * count + 1) - count + shift))
            rest = rest // (2 * count + 1)
        points = jnp.stack(nodes, axis=-1)
        return points, jnp.where(index < self.size, jnp.exp(-0.5 * jnp.sum(points**2, axis=-1)), 0.0)


def average_over_grid(
    function: Callable[[Float[Array, "n r"], Float[Array, " n"]], PyTree[Array]],
    grid: Grid,
    block: int,
    blocks: int | None = None,
) -> PyTree[Array]:
    """The average of a function over a grid, a block of points at a time.

    **Arguments:**

    - `function`: of points and weights, to the weighted sum.
    - `grid`: the points.
    - `block`: how many of them at once.
    - `blocks`: how many blocks there are at most. If it is given, the average can be differentiated in reverse mode,
      and under `vmap` all of these blocks are computed; if not, as many as are needed, and there is no reverse mode.
    """
    size = grid.size

    def add(number, total):
        points, weights = grid.points(number * block + jnp.arange(block))
        return jax.tree.map(jnp.add, total, (function(points, weights), jnp.sum(weights)))

    shapes = jax.eval_shape(lambda: add(0, (function(*grid.points(jnp.arange(block))), jnp.zeros(()))))
    total = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    needed = -(-size // block)
    if blocks is None:
        total, weight = jax.lax.fori_loop(0, needed, add, total)
    else:

        def step(carry, number):
            return jax.lax.cond(number < needed, lambda: add(number, carry), lambda: carry), None

        total, weight = jax.lax.scan(step, total, jnp.arange(blocks))[0]
    return jax.tree.map(lambda leaf: leaf / weight, total)
