"""How the weights move where the same samples are used again and again."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..errors import InvalidInput, flag, is_concrete, nonnegative_number, positive_number, require
from ..printing import as_call
from ..state import STUDENTS
from .moves import Move, normalised_vectors
from .schedules import Schedule, as_rate, rate_at


class ReusedData(eqx.Module):
    r"""What algorithms on a fixed set of samples have in common: the step, and which samples are in the batch.

    $$ w_j \leftarrow w_j - \text{learning\_rate} \Big[ \sum_{\mu=1}^{M} \frac{s_\mu}{\text{batch\_fraction}}
       \frac{\partial \text{loss}_\mu}{\partial \lambda_j} \frac{x_\mu}{\sqrt d} + \text{ridge} \, w_j \Big]
       + \sqrt{2 \, \text{temperature} \cdot \text{learning\_rate}} \; N(0, I_d), $$

    with $M = \text{samples\_per\_dimension} \cdot d$ samples and $s_\mu \in \{0, 1\}$; then, on the sphere, each
    student is brought back to norm $\sqrt d$. The gradient is that of the sum over samples, and the clock is
    time = learning_rate x steps: at small learning rates it is the time of a flow.

    The finite-size simulation and the mean-field limit see an algorithm through what is defined here.
    """

    learning_rate: Float[Array, ""]
    samples_per_dimension: Float[Array, ""]
    ridge: Float[Array, ""]
    sphere: bool = eqx.field(static=True)
    batch_fraction: eqx.AbstractVar[Float[Array, ""]]

    def __init__(
        self,
        learning_rate: float | Array,
        samples_per_dimension: float | Array,
        sphere: bool = False,
        ridge: float | Array = 0.0,
    ):
        self.learning_rate = _positive(learning_rate, "learning_rate")
        self.samples_per_dimension = _positive(samples_per_dimension, "samples_per_dimension")
        nonnegative_number(ridge, "ridge")
        self.ridge = jnp.asarray(ridge, float)
        self.sphere = flag(sphere, "sphere")

    @property
    def sources(self) -> tuple[str, ...]:
        """The publications that it comes from, for `dimfree.cite`."""
        return ()

    def __repr__(self) -> str:
        return as_call(self)

    def temperature_at(self, time: Float[Array, ""] | float) -> Float[Array, ""]:
        """The temperature of the noise on the weights."""
        return jnp.zeros(())

    def first_selection(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Bool[Array, "*samples"]:
        """Which samples are in the batch of the first step."""
        return jax.random.bernoulli(key, self.batch_fraction, shape)

    def next_selection(
        self, key: PRNGKeyArray, selection: Bool[Array, "*samples"], step: Float[Array, ""] | float
    ) -> Bool[Array, "*samples"]:
        """Which samples are in the batch a time `step` later."""
        return selection

    def move(
        self,
        weights: Float[Array, "p d"],
        gradient: Float[Array, "p d"],
        time: Float[Array, ""] | float,
        key: PRNGKeyArray,
    ) -> Float[Array, "p d"]:
        r"""The weights after one step.

        **Arguments:**

        - `gradient`: the sum over samples, with their $s_\mu$ over the batch fraction.
        - `time`: that before the step, for schedules; `key`: for the noise on the weights.
        """
        moved = self.statement.vectors({STUDENTS: weights}, gradient, self.learning_rate)[STUDENTS]
        moved = moved + self._kick(weights, time, key)
        moved = normalised_vectors(moved) if self.sphere else moved
        return moved.astype(weights.dtype)

    @property
    def statement(self) -> Move:
        """A step, with the learning rate, which is the step of the clock, in the place of 1/d."""
        return Move(drag={(STUDENTS, STUDENTS): -self.ridge}, pull={STUDENTS: -self.learning_rate})

    def _kick(self, weights, time, key) -> Array | float:
        return 0.0


class GradientDescent(ReusedData):
    r"""Gradient descent on the loss of all samples at once.

    $$ w_j \leftarrow w_j - \text{learning\_rate} \Big[ \sum_{\mu=1}^{M}
       \frac{\partial \text{loss}_\mu}{\partial \lambda_j} \frac{x_\mu}{\sqrt d} + \text{ridge} \, w_j \Big]. $$

    **Arguments:**

    - `learning_rate`: the step of the clock, time.
    - `samples_per_dimension`: M/d.
    - `sphere`: whether each student is rescaled to norm $\sqrt d$ after each step.
    - `ridge`: strength of the penalty $\tfrac{\text{ridge}}{2}\|w\|^2$.
    """

    def __init__(
        self,
        learning_rate: float | Array,
        samples_per_dimension: float | Array,
        sphere: bool = False,
        ridge: float | Array = 0.0,
    ):
        super().__init__(learning_rate, samples_per_dimension, sphere, ridge)

    @property
    def batch_fraction(self) -> Float[Array, ""]:
        return jnp.ones(())


class MultiPassSGD(ReusedData):
    r"""Gradient descent on a random part of the samples, drawn again at each step.

    Each sample is in the batch with probability `batch_fraction`, independently of the others and of the steps before,
    and the gradient is divided by it. Drawing batches of a given size with replacement is another algorithm, with more
    noise (a variance of $1/\text{batch\_fraction}$ for each sample's weight, where here it is
    $1/\text{batch\_fraction} - 1$), and their runs differ visibly. As the learning rate vanishes, both become gradient
    descent; [`PersistentSGD`] does not.

    **Arguments:**

    - `learning_rate`, `samples_per_dimension`, `sphere`, `ridge`: as for [`GradientDescent`].
    - `batch_fraction`: the mean fraction of the samples in a batch, above 0 and up to 1.
    """

    batch_fraction: Float[Array, ""]

    def __init__(
        self,
        learning_rate: float | Array,
        samples_per_dimension: float | Array,
        batch_fraction: float | Array,
        sphere: bool = False,
        ridge: float | Array = 0.0,
    ):
        super().__init__(learning_rate, samples_per_dimension, sphere, ridge)
        self.batch_fraction = _fraction(batch_fraction)

    def next_selection(
        self, key: PRNGKeyArray, selection: Bool[Array, "*samples"], step: Float[Array, ""] | float
    ) -> Bool[Array, "*samples"]:
        return jax.random.bernoulli(key, self.batch_fraction, selection.shape)


class PersistentSGD(ReusedData):
    r"""Gradient descent on a random part of the samples, where each sample stays for a while.

    Each sample enters the batch at rate $1/\tau$ and leaves it at rate $(1 - \ell)/(\ell \tau)$, with
    $\ell$ = `batch_fraction` and $\tau$ = `persistence`, independently of the others. Over a step $\epsilon$ of time
    the probabilities of that telegraph process are

    $$ P(0 \to 1) = \ell x, \qquad P(1 \to 0) = (1 - \ell) x, \qquad x = 1 - e^{-\epsilon / (\ell \tau)}, $$

    so it is the same process at any learning rate: it is stationary with a fraction $\ell$ of the samples in the batch,
    and correlated over times of order $\ell \tau$.

    **Arguments:**

    - `learning_rate`, `samples_per_dimension`, `sphere`, `ridge`: as for [`GradientDescent`].
    - `batch_fraction`: the mean fraction of the samples in the batch, above 0 and up to 1.
    - `persistence`: the mean time that a sample stays out of the batch.

    Mignacco, Urbani & Zdeborová, Mach. Learn.: Sci. Technol. 2 (2021) 035029, eq. (7), whose probabilities are these to
    first order in the step (there b is $\ell$, and t + 1 is a step later).
    """

    batch_fraction: Float[Array, ""]
    persistence: Float[Array, ""]

    def __init__(
        self,
        learning_rate: float | Array,
        samples_per_dimension: float | Array,
        batch_fraction: float | Array,
        persistence: float | Array,
        sphere: bool = False,
        ridge: float | Array = 0.0,
    ):
        super().__init__(learning_rate, samples_per_dimension, sphere, ridge)
        self.batch_fraction = _fraction(batch_fraction)
        self.persistence = _positive(persistence, "persistence")

    @property
    def sources(self) -> tuple[str, ...]:
        return ("mignacco2021",)

    def next_selection(
        self, key: PRNGKeyArray, selection: Bool[Array, "*samples"], step: Float[Array, ""] | float
    ) -> Bool[Array, "*samples"]:
        forgotten = -jnp.expm1(-step / (self.batch_fraction * self.persistence))
        entering, leaving = self.batch_fraction * forgotten, (1 - self.batch_fraction) * forgotten
        return selection ^ jax.random.bernoulli(key, jnp.where(selection, leaving, entering))


class Langevin(ReusedData):
    r"""Gradient descent on all samples, with white noise on the weights.

    $$ w_j \leftarrow w_j - \text{learning\_rate} \Big[ \sum_{\mu=1}^{M}
       \frac{\partial \text{loss}_\mu}{\partial \lambda_j} \frac{x_\mu}{\sqrt d} + \text{ridge} \, w_j \Big]
       + \sqrt{2 \, \text{temperature} \cdot \text{learning\_rate}} \; N(0, I_d). $$

    **Arguments:**

    - `learning_rate`, `samples_per_dimension`, `sphere`, `ridge`: as for [`GradientDescent`].
    - `temperature`: a number, or a function of time (any JAX function, or a [`PiecewiseLinear`]).
    """

    temperature: Float[Array, ""] | Schedule

    def __init__(
        self,
        learning_rate: float | Array,
        samples_per_dimension: float | Array,
        temperature: float | Array | Callable,
        sphere: bool = False,
        ridge: float | Array = 0.0,
    ):
        super().__init__(learning_rate, samples_per_dimension, sphere, ridge)
        self.temperature = as_rate(temperature, "temperature", clock="time")

    @property
    def batch_fraction(self) -> Float[Array, ""]:
        return jnp.ones(())

    def temperature_at(self, time: Float[Array, ""] | float) -> Float[Array, ""]:
        return rate_at(self.temperature, jnp.asarray(time))

    def _kick(self, weights, time, key) -> Array:
        scale = jnp.sqrt(2 * self.temperature_at(time) * self.learning_rate)
        return scale.astype(weights.dtype) * jax.random.normal(key, weights.shape, weights.dtype)


def _positive(value: float | Array | Callable, name: str) -> Float[Array, ""]:
    if isinstance(value, Schedule) or callable(value):
        raise InvalidInput(f"{name} was given as a function; where data are reused it must be one number.")
    positive_number(value, name)
    return jnp.asarray(value, float)


def _fraction(value: float | Array) -> Float[Array, ""]:
    array = _positive(value, "batch_fraction")
    if is_concrete(value):
        require(
            np.asarray(value) <= 1,
            f"batch_fraction = {value} was given; it is the fraction of the samples in a batch, at most 1.",
        )
    return array
