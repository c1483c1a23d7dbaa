"""Activations by name, or as any JAX function."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..errors import InvalidInput, shown
from ..functions import Function, as_function
from .erf import Erf
from .integrals import ActivationIntegrals
from .piecewise_linear import PiecewiseLinear, piecewise_linear
from .polynomial import Polynomial, Square
from .probing import probe
from .relu import Relu
from .resolution import Features, Resolution, activation_resolution, known_degree


class Activation(eqx.Module):
    """An activation: a scalar JAX function, and its exact Gaussian integrals where they are known.

    **Arguments:**

    - `name`: what to call it.
    - `function`: maps a scalar to a scalar, differentiable by JAX.
    - `integrals`: the exact Gaussian averages, or `None` where quadrature has to do.
    - `smooth`: whether the function, its slope and its curvature are continuous. A quadrature rule for smooth
        integrands loses its accuracy at a kink.
    - `features`: what averages have to know of a function that has numbers in it.
    """

    name: str = eqx.field(static=True)
    function: Function = eqx.field(converter=as_function)
    integrals: ActivationIntegrals | None = None
    smooth: bool = eqx.field(static=True, default=True)
    features: Features | None = None

    @property
    def degree(self) -> int | None:
        """The degree of a polynomial; None if it is none."""
        return known_degree(self.function.recipe, None) if self.features is None else self.features.degree

    def resolution(self, tolerance: float, power: int = 2) -> Resolution:
        """What resolves all that a network averages of it, to a relative tolerance."""
        if self.features is None:
            return activation_resolution(self.function.recipe, tolerance, power)
        return self.features.resolution(tolerance, power)


# Functions with names, so that they can be pickled.


def _linear(x):
    return x


def _he2(x):
    return x**2 - 1


def _he3(x):
    return x**3 - 3 * x


def _he4(x):
    return x**4 - 6 * x**2 + 3


def _erf(x):
    return jax.scipy.special.erf(x / np.sqrt(2.0))


@functools.cache
def named_activations() -> dict[str, Activation]:
    """The activations that can be called by name; those with `integrals` need no quadrature."""
    activations = [
        Activation("linear", _linear, Polynomial([0, 1])),
        Activation("square", jnp.square, Square()),
        Activation("he2", _he2, Polynomial([-1, 0, 1])),
        Activation("he3", _he3, Polynomial([0, -3, 0, 1])),
        Activation("he4", _he4, Polynomial([3, 0, -6, 0, 1])),
        Activation("erf", _erf, Erf()),
        Activation("relu", jax.nn.relu, Relu(), smooth=False),
        Activation("leaky_relu", jax.nn.leaky_relu, PiecewiseLinear(1.0, 0.01), smooth=False),
        Activation("abs", jnp.abs, PiecewiseLinear(1.0, -1.0), smooth=False),
        Activation("tanh", jnp.tanh),
        Activation("sigmoid", jax.nn.sigmoid),
        Activation("softplus", jax.nn.softplus),
        Activation("gelu", jax.nn.gelu),
        Activation("silu", jax.nn.silu),
        Activation("sin", jnp.sin),
        Activation("cos", jnp.cos),
    ]
    return {activation.name: activation for activation in activations}


def as_activation(activation: Any, argument: str = "activation") -> Activation:
    """The activation of a name, or of any JAX function of one number.

    **Arguments:**

    - `activation`: one of the names in `named_activations()`, in any case, an `Activation`, or a function that maps a
        scalar to a scalar and that JAX can differentiate. Its kinks are found numerically, on [-8, 8].
    - `argument`: what the user calls it, for errors.
    """
    if isinstance(activation, Activation):
        return activation
    given = "" if argument == "activation" else f", which was given as {argument}"
    if isinstance(activation, str):
        named = named_activations()
        if activation.lower() not in named:
            raise InvalidInput(
                f"There is no activation called {shown(activation)}{given}. The names are {', '.join(sorted(named))}; "
                "any JAX function of one number also works, for example jax.numpy.tanh."
            )
        return named[activation.lower()]
    if not callable(activation):
        raise InvalidInput(
            f"The {argument} {shown(activation)} is neither a name nor a function. Give a name such as 'erf' or a JAX "
            "function of one number, for example jax.numpy.tanh."
        )
    function = as_function(activation, jnp.zeros(()))
    smooth = probe(function, None, name=f"The {argument} {function.__name__!r}", arguments="a number")
    integrals = None if smooth else piecewise_linear(function)
    features = Features(function, None) if function.numbers and smooth else None
    return Activation(function.__name__, function, integrals, smooth, features)
