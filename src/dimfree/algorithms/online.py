"""How the weights move: one-pass SGD, each sample used once."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from ..errors import InvalidInput, is_concrete, nonnegative_number, positive_integer, require
from ..printing import as_call
from ..problems.base import Moments, Problem
from ..state import Coordinates, State


class Schedule(eqx.Module):
    """A rate that changes with the clock alpha (samples seen per dimension)."""

    @abc.abstractmethod
    def __call__(self, alpha: Float[Array, ""]) -> Float[Array, ""]:
        """The rate at alpha."""


class FunctionSchedule(Schedule):
    """A rate given as a function of alpha."""

    function: Callable = eqx.field(static=True)

    def __call__(self, alpha: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.asarray(self.function(alpha), float)

    def __repr__(self) -> str:
        return getattr(self.function, "__name__", "schedule")


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
        self.alphas, self.rates = jnp.asarray(alphas, float), jnp.asarray(rates, float)
        if self.alphas.ndim != 1 or self.alphas.shape != self.rates.shape:
            raise InvalidInput(
                f"alphas has shape {self.alphas.shape} and rates {self.rates.shape}; give as many rates as times."
            )
        if is_concrete(self.alphas):
            require(np.diff(self.alphas) > 0, f"alphas = {alphas} was given; the times must increase.")
        nonnegative_number(self.rates, "rates")

    def __call__(self, alpha: Float[Array, ""]) -> Float[Array, ""]:
        return jnp.interp(alpha, self.alphas, self.rates)

    def __repr__(self) -> str:
        return as_call(self)


def _as_rate(rate: float | Array | Callable | Schedule, name: str) -> Array | Schedule:
    if isinstance(rate, Schedule):
        return rate
    if callable(rate):
        try:
            shape = jax.eval_shape(lambda alpha: jnp.asarray(rate(alpha), float), jnp.zeros(())).shape
        except Exception as error:
            raise InvalidInput(
                f"The schedule given as {name} could not be evaluated by JAX at alpha = 0: {error}\n"
                "A schedule is a function of alpha written with jax.numpy, such as lambda alpha: 0.1 / (1 + alpha)."
            ) from error
        if shape != ():
            raise InvalidInput(f"The schedule given as {name} returned shape {shape}; it must return one number.")
        return FunctionSchedule(rate)
    nonnegative_number(rate, name)
    return jnp.asarray(rate, float)


def rate_at(rate: Array | Schedule, alpha: Float[Array, ""]) -> Float[Array, ""]:
    """A rate at alpha, whether it changes or not."""
    return rate(alpha) if isinstance(rate, Schedule) else rate


class OnlineSGD(eqx.Module):
    r"""One-pass stochastic gradient descent.

    $$ w_j \leftarrow \Big(1 - \frac{\text{learning\_rate} \cdot \text{ridge}}{d}\Big) w_j
       - \frac{\text{learning\_rate}}{B} \sum_{b=1}^{B}
         \frac{\partial \text{loss}_b}{\partial \lambda_j} \frac{x_b}{\sqrt d},
       \qquad x_b \sim N(0, I_d), $$

    and the readout, where it is trained, moves by $-(\text{readout\_rate}/d)$ times its own (ridged) gradient.

    **Arguments:**

    - `learning_rate`: a number, or a function of alpha (any JAX function, or a [`PiecewiseLinear`]).
    - `batch_size`: fresh samples in a step, B; a step advances the clock by B/d.
    - `sphere`: whether each student is brought back to norm $\sqrt d$ after each step.
    - `ridge`: strength of the penalty $\tfrac{\text{ridge}}{2d}\|w\|^2$.
    - `readout_rate`: a number or a function of alpha; None leaves the readout fixed.
    """

    learning_rate: Float[Array, ""] | Schedule
    ridge: Float[Array, ""]
    readout_rate: Float[Array, ""] | Schedule | None
    batch_size: int = eqx.field(static=True)
    sphere: bool = eqx.field(static=True)

    def __init__(
        self,
        learning_rate: float | Array | Callable,
        batch_size: int = 1,
        sphere: bool = False,
        ridge: float | Array = 0.0,
        readout_rate: float | Array | Callable | None = None,
    ):
        self.learning_rate = _as_rate(learning_rate, "learning_rate")
        self.batch_size = positive_integer(batch_size, "batch_size")
        self.sphere = bool(sphere)
        nonnegative_number(ridge, "ridge")
        self.ridge = jnp.asarray(ridge, float)
        self.readout_rate = None if readout_rate is None else _as_rate(readout_rate, "readout_rate")

    def __repr__(self) -> str:
        return as_call(self)

    def step(
        self, state: State, moments: Moments, inverse_d: Float[Array, ""] | float, alpha: Float[Array, ""]
    ) -> State:
        """The State after one step in dimension d, exactly; the only place where the algorithm is written on overlaps.

        **Arguments:**

        - `state`: the State before.
        - `moments`: of the batch, with `square` summed over the pairs of its samples.
        - `inverse_d`: 1/d.
        - `alpha`: the clock, for schedules.
        """
        rate = rate_at(self.learning_rate, alpha)
        keep = 1 - rate * self.ridge * inverse_d
        Q = (
            keep**2 * state.Q
            - inverse_d * rate * keep * (moments.student + moments.student.T)
            + inverse_d * rate**2 * moments.square
        )
        M = keep * state.M - inverse_d * rate * moments.teacher
        if self.sphere:
            norms = jnp.sqrt(jnp.diagonal(Q))
            Q = Q / (norms[:, None] * norms)
            M = M / norms[:, None]
        return State(Q=Q, M=M, P=state.P, readout=self._move_readout(state.readout, moments.readout, inverse_d, alpha))

    def move(
        self,
        weights: Float[Array, "p d"],
        readout: Float[Array, " n"] | None,
        gradient: Float[Array, "p d"],
        readout_gradient: Float[Array, " n"] | None,
        alpha: Float[Array, ""],
    ) -> tuple[Float[Array, "p d"], Float[Array, " n"] | None]:
        """The same step on the weight vectors themselves, with the gradient of the batch."""
        d = weights.shape[-1]
        rate = rate_at(self.learning_rate, alpha)
        weights = (1 - rate * self.ridge / d) * weights - rate * gradient
        if self.sphere:
            weights = weights * jnp.sqrt(d / jnp.sum(weights**2, axis=-1, keepdims=True))
        return weights, self._move_readout(readout, readout_gradient, 1 / d, alpha)

    def _move_readout(self, readout, gradient, inverse_d, alpha):
        if self.readout_rate is None or readout is None:
            return readout
        return readout - inverse_d * rate_at(self.readout_rate, alpha) * (gradient + self.ridge * readout)

    def increment(self, state: State, moments: Moments, alpha: Float[Array, ""]) -> State:
        """What one step adds to the State, times d, as d grows: the derivative of `step` at 1/d = 0.

        It is linear in the moments, so its mean is that of the mean moments.
        """
        _, tangent = jax.jvp(
            lambda inverse_d: self.step(state, moments, inverse_d, alpha), (jnp.zeros(()),), (jnp.ones(()),)
        )
        return tangent

    def limit_moments(self, moments: Moments) -> Moments:
        """Moments of a batch whose samples are uncorrelated: only a sample with itself contributes to `square`."""
        return eqx.tree_at(lambda m: m.square, moments, moments.square / self.batch_size)

    def coordinates(self, problem: Problem) -> Coordinates:
        """Which numbers of the State move."""
        trained = self.readout_rate is not None and problem.readout is not None
        size = problem.readout.shape[-1] if trained and problem.readout is not None else 0
        return Coordinates(problem.width, problem.teacher_width, size, self.sphere)
