"""Activations by name or as any JAX function, and what an activation with exact Gaussian integrals offers."""

import abc
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import InvalidInput


class ActivationIntegrals(eqx.Module):
    r"""The Gaussian averages of an activation $g$ that the dynamics of a two-layer network needs.

    The fields $u \sim \mathcal{N}(0, C)$ are the `width` student fields followed by the teacher's;
    $e_0 = \sum_t c_t g(u_t)$ is the error without label noise. $C$ may be singular. Every method may be jitted,
    batched and differentiated with respect to the covariance and the weights.
    """

    @abc.abstractmethod
    def outputs(self, covariance: Float[Array, "fields fields"]) -> Float[Array, "fields fields"]:
        r"""$\mathbb{E}[g(u_s) g(u_t)]$ for all pairs of fields."""

    @abc.abstractmethod
    def slopes(self, covariance: Float[Array, "fields fields"], width: int) -> Float[Array, "width width"]:
        r"""$\mathbb{E}[g'(u_i) g'(u_j)]$ for all pairs of students."""

    @abc.abstractmethod
    def gradient(
        self, covariance: Float[Array, "fields fields"], weights: Float[Array, " fields"], width: int
    ) -> Float[Array, "width fields"]:
        r"""$\mathbb{E}[g'(u_i)\, u_b\, e_0]$ for every student $i$ and every field $b$."""

    @abc.abstractmethod
    def gradient_square(
        self, covariance: Float[Array, "fields fields"], weights: Float[Array, " fields"], width: int
    ) -> Float[Array, "width width"]:
        r"""$\mathbb{E}[g'(u_i)\, g'(u_j)\, e_0^2]$ for all pairs of students."""


class Activation(eqx.Module):
    """An activation: a scalar JAX function, and its exact Gaussian integrals where they are known.

    **Arguments:**

    - `name`: what to call it.
    - `function`: maps a scalar to a scalar, differentiable by JAX.
    - `integrals`: the exact Gaussian averages, or `None` where quadrature has to do.
    - `smooth`: whether the function and its slope are continuous. A quadrature rule for smooth integrands loses its
        accuracy at a kink.
    """

    name: str = eqx.field(static=True)
    function: Callable[[Any], Any] = eqx.field(static=True)
    integrals: ActivationIntegrals | None = None
    smooth: bool = eqx.field(static=True, default=True)


def map_pairs(
    function: Callable[[Array, Array], Array], covariance: Float[Array, "fields fields"], width: int, numbers: int
) -> Float[Array, "width width"]:
    """The symmetric matrix of `function(i, j)`, evaluated at i <= j only.

    **Arguments:**

    - `function`: maps two student indices to a scalar.
    - `covariance`: only its dtype is used.
    - `width`: the number of students.
    - `numbers`: how many numbers one evaluation holds at once; decides how many pairs are evaluated together.
    """
    rows, columns = (jnp.asarray(index) for index in np.triu_indices(width))
    batch = max(1, 2**19 // numbers)
    if len(rows) <= batch:
        values = jax.vmap(function)(rows, columns)
    else:
        # Recomputing in reverse mode keeps the memory bounded there too.
        values = jax.lax.map(lambda pair: jax.checkpoint(function)(*pair), (rows, columns), batch_size=batch)
    position = np.zeros((width, width), dtype=np.int32)
    position[np.triu_indices(width)] = np.arange(len(rows))
    return values[np.maximum(position, position.T)].astype(covariance.dtype)


@functools.cache
def named_activations() -> dict[str, Activation]:
    """The activations that can be called by name; those with `integrals` need no quadrature."""
    # Imported here because the integrals derive from ActivationIntegrals above.
    from .erf import Erf
    from .polynomial import Polynomial
    from .quadratic import Square
    from .relu import Relu

    activations = [
        Activation("linear", lambda x: x, Polynomial([0, 1])),
        Activation("square", jnp.square, Square()),
        Activation("he2", lambda x: x**2 - 1, Polynomial([-1, 0, 1])),
        Activation("he3", lambda x: x**3 - 3 * x, Polynomial([0, -3, 0, 1])),
        Activation("he4", lambda x: x**4 - 6 * x**2 + 3, Polynomial([3, 0, -6, 0, 1])),
        Activation("erf", lambda x: jax.scipy.special.erf(x / np.sqrt(2.0)), Erf()),
        Activation("relu", jax.nn.relu, Relu(), smooth=False),
        Activation("abs", jnp.abs, smooth=False),
        Activation("tanh", jnp.tanh),
        Activation("sigmoid", jax.nn.sigmoid),
        Activation("softplus", jax.nn.softplus),
        Activation("gelu", jax.nn.gelu),
        Activation("silu", jax.nn.silu),
        Activation("sin", jnp.sin),
        Activation("cos", jnp.cos),
    ]
    return {activation.name: activation for activation in activations}


def as_activation(activation: Any) -> Activation:
    """The activation of a name, or of any JAX function of one number.

    **Arguments:**

    - `activation`: one of the names in `named_activations()`, an `Activation`, or a function that maps a
        scalar to a scalar and that JAX can differentiate. Its kinks are found numerically, on [-8, 8].
    """
    if isinstance(activation, Activation):
        return activation
    if isinstance(activation, str):
        named = named_activations()
        if activation not in named:
            raise InvalidInput(
                f"There is no activation called {activation!r}. The names are {', '.join(sorted(named))}; "
                "any JAX function of one number also works, for example jax.numpy.tanh."
            )
        return named[activation]
    if not callable(activation):
        raise InvalidInput(
            f"The activation {activation!r} is neither a name nor a function. Give a name such as 'erf' or a JAX "
            "function of one number, for example jax.numpy.tanh."
        )
    name = getattr(activation, "__name__", type(activation).__name__)
    return Activation(name, activation, None, _is_smooth(name, activation))


def _is_smooth(name: str, function: Callable[[Any], Any]) -> bool:
    """Check that `function` is a differentiable scalar function, and say whether it is free of jumps and kinks."""
    refine, cells = 4, 4096
    grid = np.linspace(-8.0, 8.0, refine * cells + 1)
    # The activation may be given inside a jitted function; its own check still runs at once.
    with jax.ensure_compile_time_eval():
        _check_differentiable(name, function)
        values, slopes = (np.asarray(part) for part in jax.vmap(jax.value_and_grad(function))(jnp.asarray(grid)))
    for part, what in ((values, "value"), (slopes, "slope")):
        if not np.all(np.isfinite(part)):
            where = grid[~np.isfinite(part)][0]
            raise InvalidInput(
                f"The activation {name!r} has a {what} of {part[~np.isfinite(part)][0]} at x = {where:g}. Gaussian "
                "fields take every real value: give a function that is finite, with a finite slope, everywhere on "
                "[-8, 8]."
            )
    return not (_has_jump(values, refine) or _has_jump(slopes, refine))


def _check_differentiable(name: str, function: Callable[[Any], Any]) -> None:
    scalar = jnp.asarray(0.5)
    remedy = "Give a function of one number written with jax.numpy, for example lambda x: jnp.tanh(2 * x)."
    try:
        shape = jax.eval_shape(function, scalar)
    except Exception as error:
        raise InvalidInput(
            f"The activation {name!r} cannot be traced by JAX ({type(error).__name__}). {remedy}"
        ) from error
    if getattr(shape, "shape", None) != ():
        found = f"an array of shape {shape.shape}" if hasattr(shape, "shape") else repr(type(shape).__name__)
        raise InvalidInput(f"The activation {name!r} maps a number to {found}, not to a number. {remedy}")
    try:
        jax.eval_shape(jax.grad(function), scalar)
    except Exception as error:
        raise InvalidInput(
            f"The activation {name!r} cannot be differentiated by JAX ({type(error).__name__}). {remedy}"
        ) from error


def _has_jump(samples: np.ndarray, refine: int) -> bool:
    """Whether samples on a uniform grid show a discontinuity.

    Second differences shrink with the spacing where the sampled function is continuous, and do not across a jump: there
    those of the fine grid are as large as those of the coarse grid around them.
    """
    fine = np.abs(np.diff(samples, 2))
    coarse = np.pad(np.abs(np.diff(samples[::refine], 2)), 2)
    # A coarse difference may vanish by its sign change alone, but then not its neighbours.
    around = np.lib.stride_tricks.sliding_window_view(coarse, 4).max(axis=1)
    rounding = 1e3 * np.finfo(samples.dtype).eps * (1 + np.abs(samples).max())
    cells = np.arange(1, len(samples) - 1) // refine
    return bool(np.any((fine > 0.6 * around[cells]) & (fine > rounding)))
