"""Rates that change with the clock."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from ..errors import (
    InvalidInput,
    finite_number,
    is_concrete,
    nonnegative_number,
    real_array,
    require,
    shown,
)
from ..functions import Function, as_function
from ..printing import as_call


class Schedule(eqx.Module):
    """A rate that changes with the clock alpha (samples seen per dimension)."""

    @abc.abstractmethod
    def __call__(self, alpha: Float[Array, ""]) -> Float[Array, ""]:
        """The rate at alpha."""


class FunctionSchedule(Schedule):
    """A rate given as a function of alpha."""

    function: Function

    def __call__(self, alpha: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.asarray(self.function(alpha), float)

    def __repr__(self) -> str:
        return self.function.__name__


class PiecewiseLinear(Schedule):
    """A rate that is linear in alpha between given values, and constant outside; it can be differentiated by them.

    **Arguments:**

    - `alphas`: increasing times, shape `(n,)`.
    - `rates`: the rate at each, shape `(n,)`.

    ??? example
        >>> import dimfree
        >>> sgd = dimfree.OnlineSGD(dimfree.PiecewiseLinear([0.0, 10.0], [0.1, 0.02]))
    """

    alphas: Float[Array, " n"]
    rates: Float[Array, " n"]

    def __init__(self, alphas: ArrayLike | Array, rates: ArrayLike | Array):
        self.alphas, self.rates = jnp.asarray(real_array(alphas, "alphas")), jnp.asarray(real_array(rates, "rates"))
        if self.alphas.ndim != 1 or self.alphas.shape != self.rates.shape or not self.alphas.size:
            raise InvalidInput(
                f"alphas has shape {self.alphas.shape} and rates {self.rates.shape}; give as many rates as times, at "
                "least one."
            )
        if is_concrete(self.alphas):
            require(np.diff(self.alphas) > 0, f"alphas = {alphas} was given; the times must increase.")
        if is_concrete(self.rates):
            values = np.asarray(self.rates)
            require(
                np.isfinite(values) & (values >= 0),
                f"rates = {rates} was given; they must be finite, zero or positive.",
            )

    def __call__(self, alpha: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.interp(alpha, self.alphas, self.rates)

    def __repr__(self) -> str:
        return as_call(self)


def as_rate(
    rate: float | Array | Callable | Schedule, name: str, clock: str = "alpha", *, signed: bool = False
) -> Array | Schedule:
    """What a user gave as a rate: a number, a function of the clock, or a Schedule; `signed` if it may be negative."""
    if isinstance(rate, Schedule):
        return rate
    if callable(rate):
        try:
            shape = jax.eval_shape(lambda alpha: jnp.asarray(rate(alpha), float), jnp.zeros(())).shape
        except Exception as error:
            raise InvalidInput(
                f"The schedule given as {name} could not be evaluated by JAX at {clock} = 0: {error}\n"
                f"A schedule is a function of {clock} written with jax.numpy, such as "
                f"lambda {clock}: 0.1 / (1 + {clock})."
            ) from error
        if shape != ():
            raise InvalidInput(f"The schedule given as {name} returned shape {shape}; it must return one number.")
        with jax.ensure_compile_time_eval():
            first = jnp.asarray(rate(jnp.zeros(())), float)
        if is_concrete(first):
            require(
                np.isfinite(first) and (signed or first >= 0),
                f"The schedule given as {name} is {float(first):g} at {clock} = 0, where every run starts; it must be "
                f"finite{'' if signed else ', zero or positive'} there. 1 / {clock}, for example, becomes "
                f"1 / (1 + {clock}).",
            )
        return FunctionSchedule(as_function(rate, np.zeros(())))
    if signed:
        finite_number(rate, name)
    else:
        nonnegative_number(rate, name)
    return jnp.asarray(real_array(rate, name), float)


def positive_rate(rate: float | Array | Callable | Schedule, name: str) -> Array | Schedule:
    """What a user gave as a rate that must not be zero (at the start, where it changes)."""
    found = as_rate(rate, name)
    first = at_start(found)
    if is_concrete(first):
        require(first > 0, f"{name} = {shown(rate)} was given; it must be positive.")
    return found


def at_start(rate: Array | Schedule) -> Float[Array, ""]:
    """A rate where every run starts, also where a program is being traced."""
    with jax.ensure_compile_time_eval():
        return rate_at(rate, jnp.zeros(()))


def number(rate: Array | Schedule) -> Float[Array, ""]:
    """A rate of an algorithm at one moment, where no schedule is left."""
    assert not isinstance(rate, Schedule)
    return rate


def rate_at(rate: Array | Schedule, alpha: Float[Array, ""]) -> Float[Array, ""]:
    """A rate at alpha, whether it changes or not."""
    return rate(alpha) if isinstance(rate, Schedule) else rate
