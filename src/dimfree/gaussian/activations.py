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
from .probing import probe


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
    smooth = probe(lambda fields: activation(fields[0]), 1, name=f"The activation {name!r}", arguments="a number")
    return Activation(name, activation, None, smooth)
