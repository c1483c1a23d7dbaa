"""Finding a direction hidden in a noisy tensor."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.scipy.linalg
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from ..errors import InvalidInput, nonnegative_number, positive_integer
from ..gaussian.rules import Averaging
from ..state import State
from .base import Draws, Moments, Problem, covariance_of_linear, frame, is_bounded


class SpikedTensor(Problem):
    r"""Tensor principal component analysis: a rank-one tensor seen under Gaussian noise, afresh at each step.

    $$ \text{loss} = \Big\| \text{snr} \, v^{\otimes k} + W - x^{\otimes k} \Big\|^2 - \|W\|^2, \qquad
       W_{i_1 \dots i_k} \sim N(0, 1), \quad x = w / \sqrt d, \quad v = w^* / \sqrt d, $$

    with k the `order` (2 is a matrix), and all entries of W independent, without symmetry: any W with
    $\mathbb{E} \langle W, x^{\otimes k} \rangle \langle W, y^{\otimes k} \rangle = (x \cdot y)^k$ is the same, while a
    symmetric Gaussian matrix with off-diagonal variance 1 doubles the noise. The State has one student and one teacher:
    Q is $|x|^2$, M is $x \cdot v$.

    It is not a loss of local fields of an input. But a step of SGD sees only three numbers of the noise: its components
    along x and along v, and the length of the rest. So the moments of a step, all limits and the exact simulation are
    closed forms.

    **Arguments:**

    - `order`: number of indices of the tensor, at least 2.
    - `snr`: strength of the signal.

    Ben Arous, Gheissari & Jagannath 2022, section 3: their step size is learning_rate / d, their time
    learning_rate * alpha, their $r^2$ is $Q - M^2$. For odd order the fixed points of negative M in Proposition 3.2 do
    not exist.

    ??? example
        >>> import dimfree
        >>> matrix = dimfree.SpikedTensor(order=2, snr=2.0)
    """

    order: int = eqx.field(static=True)
    snr: Float[Array, ""]

    def __init__(self, order: int, snr: float | Array):
        self.order = positive_integer(order, "order", minimum=2)
        nonnegative_number(snr, "snr")
        self.snr = jnp.asarray(snr, float)

    @property
    def width(self) -> int:
        return 1

    @property
    def teacher_width(self) -> int:
        return 1

    @property
    def readout(self) -> None:
        return None

    @property
    def smooth(self) -> bool:
        return True

    @property
    def knows_moments(self) -> bool:
        return True

    @property
    def sources(self) -> tuple[str, ...]:
        return ("benarous2022",)

    def single_risk(self, state: State, averaging: Averaging) -> Float[Array, ""]:
        Q, M, P = state.Q[0, 0], state.M[0, 0], state.P[0, 0]
        return self.snr**2 * P**self.order - 2 * self.snr * M**self.order + Q**self.order

    def mean_moments(self, state: State, averaging: Averaging, transform: Any = None) -> Moments:
        _refuse(transform)
        signal, shrink, noise = self._gradient(state)
        Q, M, P = state.Q, state.M, state.P
        return Moments(
            student=shrink * Q - signal * M,
            teacher=shrink * M - signal * P,
            square=noise[None, None],
            readout=None,
        )

    def increment_covariance(
        self, increment, parameters, state: State, averaging: Averaging, transform: Any = None
    ) -> Float[Array, "n n"]:
        _refuse(transform)
        mean = self.mean_moments(state, averaging)
        _, _, noise = self._gradient(state)
        k, Q, M, P = self.order, state.Q[0, 0], state.M[0, 0], state.P[0, 0]
        cosine = M**2 / jnp.where(Q > 0, Q, 1.0)
        seen = noise * jnp.array([[k * Q, k * M], [k * M, P + (k - 1) * cosine]])
        flat, _ = ravel_pytree(mean)
        # The length of the noise has relative fluctuations of order d^-1/2 only: none in the limit.
        covariance = jax.scipy.linalg.block_diag(seen, jnp.zeros((1, 1)))
        return covariance_of_linear(increment, parameters, mean, covariance + jnp.outer(flat, flat))

    def exact_moments(
        self, state: State, draws: Draws, d: Float[Array, ""], transform: Any = None
    ) -> tuple[Moments, Bool[Array, ""]]:
        r"""`Moments` of a batch in dimension d, in the frame of all vectors, and the length of the noise outside.

        The first axis of the frame is along x, the second in the plane of x and v.
        """
        _refuse(transform)
        signal, shrink, noise = self._gradient(state)
        factor, normals = frame(state.gram(*state.families), jnp.mean(draws.normals[0], axis=0), d)
        along = jnp.ones(normals.shape).at[0].set(self.order**0.5)
        assert draws.triangle is not None
        rest = jnp.sum(jnp.mean(draws.triangle[0], axis=0) ** 2)
        gradient = shrink * factor[0] - signal * factor[1] - jnp.sqrt(noise) * along * normals
        products = factor @ gradient
        own = state.families[2:]
        moments = Moments(
            student=products[0][None, None],
            teacher=products[1][None, None],
            square=((gradient @ gradient + noise * rest) / d)[None, None],
            readout=None,
            own={family: products[2 + number][None, None] for number, family in enumerate(own)},
        )
        return moments, is_bounded(jnp.sqrt(state.Q[0, 0]), gradient[0])

    def vector_gradient(self, weights, teacher_weights, readout, draws: Draws, transform: Any = None):
        _refuse(transform)
        d = weights.shape[-1]
        state = State(Q=weights @ weights.T / d, M=weights @ teacher_weights.T / d)
        signal, shrink, noise = self._gradient(state)
        length = jnp.sqrt(state.Q[0, 0])
        direction = weights[0] / jnp.where(length > 0, length * d**0.5, 1.0)
        normals = jnp.mean(draws.normals, axis=0)
        component = direction @ normals
        normals = normals + (self.order**0.5 - 1) * component * direction
        gradient = (shrink * weights - signal * teacher_weights) / d**0.5 - jnp.sqrt(noise) * normals
        bounded = is_bounded(length, gradient[0] @ direction)
        return gradient / d**0.5, None, bounded

    def _gradient(self, state: State):
        """The gradient is -signal v + shrink x + noise^1/2 times a normal vector (k times the variance along x)."""
        k, Q, M = self.order, state.Q[0, 0], state.M[0, 0]
        return 2 * self.snr * k * M ** (k - 1), 2 * k * Q ** (k - 1), 4 * k * Q ** (k - 1)


def _refuse(transform: Any) -> None:
    if transform is not None:
        raise InvalidInput(
            f"{transform!r} changes the slopes of the loss by the fields of a sample, and a spiked tensor has none. "
            "Use another algorithm, such as dimfree.OnlineSGD."
        )
