"""How the weights move: one-pass SGD, each sample used once."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import InvalidInput, nonnegative_number, positive_integer, shown
from ..printing import as_call
from ..problems.base import Moments, Problem
from ..state import Coordinates, State
from .schedules import Schedule, as_rate, rate_at


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
        self.learning_rate = as_rate(learning_rate, "learning_rate")
        self.batch_size = positive_integer(batch_size, "batch_size")
        self.sphere = bool(sphere)
        nonnegative_number(ridge, "ridge")
        self.ridge = jnp.asarray(ridge, float)
        self.readout_rate = None if readout_rate is None else as_rate(readout_rate, "readout_rate")

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
        trained = None if self.readout_rate is None else problem.readout
        size = 0 if trained is None else trained.shape[-1]
        return Coordinates(problem.width, problem.teacher_width, size, self.sphere)


def check_online_sgd(algorithm: object) -> None:
    """An error if this is no one-pass SGD."""
    if not isinstance(algorithm, OnlineSGD):
        raise InvalidInput(
            f"algorithm = {shown(algorithm)} was given; pass dimfree.OnlineSGD(learning_rate=...). Algorithms that "
            "reuse their data are simulated by dimfree.simulate_reused."
        )
