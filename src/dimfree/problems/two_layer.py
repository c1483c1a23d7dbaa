"""Two-layer networks learning from a two-layer teacher or from any function of a few directions."""

import abc
from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from ..errors import InvalidInput, check_finite, neurons, nonnegative_number, real_array
from ..gaussian.activations import Activation, as_activation
from ..gaussian.pairwise import pairwise_outputs
from ..gaussian.probing import probe
from ..gaussian.quadratic import Square, quartic_moments
from ..gaussian.smoothing import exact_nodes
from ..state import State, WideState
from .base import Moments
from .field_problem import FieldProblem
from .wide import wide_risk

Normalisation = Literal["mean", "sqrt", "sum"]


def scale_of(normalisation: Normalisation, width: int) -> float:
    """The factor in front of a sum over `width` neurons."""
    scales = {"mean": 1 / width, "sqrt": width**-0.5, "sum": 1.0}
    if not (isinstance(normalisation, str) and normalisation in scales):
        raise InvalidInput(f"normalisation={normalisation!r} was given; choose one of {', '.join(scales)}.")
    return scales[normalisation]


def as_readout(readout: ArrayLike | Array | None, width: int, name: str) -> Float[Array, " n"]:
    """Second-layer weights as an array, ones if left out."""
    array = jnp.ones(width) if readout is None else jnp.asarray(real_array(readout, "readout"))
    if array.shape != (width,):
        raise InvalidInput(f"{name} has shape {array.shape}; a network of width {width} needs {width} numbers.")
    check_finite(array, name)
    return array


def _spread_over(readout: Float[Array, " p"], width: int) -> Float[Array, " n"]:
    """As many readouts, from all over the given ones."""
    return readout[np.linspace(0, readout.size - 1, width).round().astype(int)]


class Network(FieldProblem):
    r"""A two-layer student with the half squared error, whatever it learns.

    $$ \tfrac12 \Big( \text{scale} \sum_j a_j g(\lambda_j) - \text{target}(\lambda^*)
       - \sqrt{\text{noise}} \, z \Big)^2 $$
    """

    width: int = eqx.field(static=True)
    teacher_width: int = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)
    normalisation: Normalisation = eqx.field(static=True)
    noise: Float[Array, ""]
    readout: Float[Array, " p"]

    def __init__(
        self,
        width: int,
        teacher_width: int,
        activation: str | Callable | Activation,
        noise: float | Array,
        readout: ArrayLike | Array | None,
        normalisation: Normalisation,
    ):
        self.width = neurons(width, "width")
        self.teacher_width = neurons(teacher_width, "teacher_width")
        self.activation = as_activation(activation)
        scale_of(normalisation, 1)
        self.normalisation = normalisation
        nonnegative_number(noise, "noise", meaning=" (it is the variance of the label noise)")
        self.noise = jnp.asarray(noise, float)
        self.readout = as_readout(readout, self.width, "readout")

    @abc.abstractmethod
    def target(self, teacher: Float[Array, " k"]) -> Float[Array, ""]:
        """The label without its noise."""

    @abc.abstractmethod
    def resized(self, width: int) -> "Network":
        """The problem for a student of another width, with readouts from all over the given ones."""

    @property
    @abc.abstractmethod
    def exact_nodes(self) -> int | None:
        """Gauss-Hermite nodes for each teacher field that are exact; None where some average is no polynomial."""

    @property
    def irreducible_risk(self) -> Float[Array, ""]:
        return self.noise / 2

    @property
    def noise_nodes(self) -> int:
        return 3  # gradients are linear in the noise and enter a covariance four times: degree 4, three nodes are exact

    @property
    def scale(self) -> float:
        """The factor in front of the student's sum over neurons."""
        return scale_of(self.normalisation, self.width)

    def readout_of(self, state: State | WideState) -> Float[Array, " p"]:
        """That of the State, or the problem's own: a network always has one."""
        return self.readout if state.readout is None else state.readout

    def loss(self, student, teacher, noise, readout, label=None):
        output = self.scale * jnp.sum(readout * self.activation.function(student))
        return 0.5 * (output - self.target(teacher) - jnp.sqrt(self.noise) * noise) ** 2

    def wide_risk(self, state: WideState) -> Float[Array, ""]:
        return wide_risk(self, state)


class TwoLayer(Network):
    r"""A two-layer student learning a two-layer teacher, with the half squared error.

    $$ \tfrac12 \Big( \tfrac1p \sum_j a_j g(\lambda_j) - \tfrac1k \sum_r a^*_r g(\lambda^*_r)
       - \sqrt{\text{noise}} \, z \Big)^2 $$

    The averages of its limits are exact for the activations `square`, `erf`, `relu`, `linear` and the Hermite
    polynomials by name, and by quadrature for any other JAX function.

    **Arguments:**

    - `width`, `teacher_width`: number of neurons, p and k.
    - `activation`: a name, or any JAX function of a number.
    - `noise`: variance of the label noise.
    - `readout`, `teacher_readout`: second-layer weights $a$ (its start, where it is trained) and $a^*$; ones if left
      out.
    - `normalisation`: the factor in front of the sums: `"mean"` 1/p, `"sqrt"` p^-1/2, `"sum"` 1 (and the same with k).

    Saad & Solla, Phys. Rev. E 52 (1995) 4225; Arnaboldi et al. 2023, eqs. (1)-(4).
    """

    teacher_readout: Float[Array, " k"]

    def __init__(
        self,
        width: int,
        teacher_width: int = 1,
        activation: str | Callable | Activation = "erf",
        noise: float | Array = 0.0,
        readout: ArrayLike | Array | None = None,
        teacher_readout: ArrayLike | Array | None = None,
        normalisation: Normalisation = "mean",
    ):
        super().__init__(width, teacher_width, activation, noise, readout, normalisation)
        self.teacher_readout = as_readout(teacher_readout, self.teacher_width, "teacher_readout")

    def resized(self, width: int) -> "TwoLayer":
        return TwoLayer(
            width,
            self.teacher_width,
            self.activation,
            self.noise,
            _spread_over(self.readout, width),
            self.teacher_readout,
            self.normalisation,
        )

    @property
    def smooth(self) -> bool:
        return self.activation.smooth

    @property
    def sources(self) -> tuple[str, ...]:
        quadratic = self.activation.name in ("square", "he2")
        return ("saad1995", "arnaboldi2023", "bocchi2026") if quadratic else ("saad1995", "loureiro2023")

    @property
    def exact_nodes(self) -> int | None:
        return exact_nodes(self.activation)

    def target(self, teacher: Float[Array, " k"]) -> Float[Array, ""]:
        outputs = jnp.sum(self.teacher_readout * self.activation.function(teacher))
        return scale_of(self.normalisation, self.teacher_width) * outputs

    def output_weights(self, state: State) -> Float[Array, " r"]:
        """Weights with which the outputs of students and teachers enter the error."""
        teacher = scale_of(self.normalisation, self.teacher_width) * self.teacher_readout
        return jnp.concatenate([self.scale * self.readout_of(state), -teacher])

    @property
    def knows_moments(self) -> bool:
        return self.activation.integrals is not None

    def known_moments(self, state: State) -> Moments | None:
        r"""$\mathbb{E}[s u^\top]$ and $\mathbb{E}[s s^\top]$ from the Saad-Solla integrals $I_2, I_3, I_4$."""
        integrals = self.activation.integrals
        if integrals is None:
            return None
        covariance, weights, p = state.covariance, self.output_weights(state), self.width
        own = weights[:p]
        gradient = own[:, None] * integrals.gradient(covariance, weights, p)
        square = integrals.gradient_square(covariance, weights, p) + self.noise * integrals.slopes(covariance, p)
        return Moments(
            student=gradient[:, :p],
            teacher=gradient[:, p:],
            square=own[:, None] * own * square,
            readout=self.scale * (integrals.outputs(covariance)[:p] @ weights),
        )

    def known_risk(self, state: State) -> Float[Array, ""]:
        """Half the noise plus a quadratic form in E[g g], which needs at most two fields at a time."""
        weights, integrals = self.output_weights(state), self.activation.integrals
        if integrals is None:
            outputs = pairwise_outputs(self.activation, state.covariance)
        else:
            outputs = integrals.outputs(state.covariance)
        return 0.5 * (weights @ outputs @ weights + self.noise)

    def known_second_moments(self, state: State) -> Float[Array, "m m"] | None:
        r"""For quadratic networks: all products are $\mathbb{E}[e^n u_a u_b u_c u_d]$ with n = 2, 3, 4."""
        if not isinstance(self.activation.integrals, Square):
            return None
        p, weights = self.width, self.output_weights(state)
        second, third, fourth = quartic_moments(jnp.diag(weights), state.covariance, self.noise)
        r = p + self.teacher_width
        # A sample's moments are e * (linear) or e^2 * (square) times a product of two fields, u_i u_b.
        rows, columns = jnp.divmod(jnp.arange(p * r), r)
        linear_rows = jnp.concatenate([rows, jnp.arange(p)])
        linear_columns = jnp.concatenate([columns, jnp.arange(p)])
        linear_factor = jnp.concatenate([2 * weights[rows], jnp.full(p, self.scale)])
        square_rows, square_columns = jnp.divmod(jnp.arange(p * p), p)
        square_factor = 4 * weights[square_rows] * weights[square_columns]

        def products(moment, a, b, c, d):
            return moment[a[:, None], b[:, None], c[None, :], d[None, :]]

        linear = products(second, linear_rows, linear_columns, linear_rows, linear_columns)
        mixed = products(third, linear_rows, linear_columns, square_rows, square_columns)
        square = products(fourth, square_rows, square_columns, square_rows, square_columns)
        matrix = jnp.block([[linear, mixed], [mixed.T, square]])
        factor = jnp.concatenate([linear_factor, square_factor])
        # Here the order is gradient by rows, readout, square; `Moments` flattens as student, teacher, square, readout.
        gradient_index = jnp.arange(p * r).reshape(p, r)
        order = jnp.concatenate(
            [
                gradient_index[:, :p].reshape(-1),
                gradient_index[:, p:].reshape(-1),
                p * r + p + jnp.arange(p * p),
                p * r + jnp.arange(p),
            ]
        )
        return (factor[:, None] * factor * matrix)[order][:, order]


class MultiIndex(Network):
    r"""A two-layer student learning any function of a few directions, with the half squared error.

    $$ \tfrac12 \Big( \tfrac1p \sum_j a_j g(\lambda_j) - \text{link}(\lambda^*) - \sqrt{\text{noise}} \, z \Big)^2 $$

    **Arguments:**

    - `link`: JAX function of the teacher fields, `(k,)` to a number.
    - `width`, `teacher_width`: number of students p and of directions k.
    - `activation`: a name, or any JAX function of a number.
    - `noise`, `readout`, `normalisation`: as for [`TwoLayer`].
    """

    link: Callable = eqx.field(static=True)
    link_is_smooth: bool = eqx.field(static=True, repr=False)

    def __init__(
        self,
        link: Callable,
        width: int,
        teacher_width: int,
        activation: str | Callable | Activation = "erf",
        noise: float | Array = 0.0,
        readout: ArrayLike | Array | None = None,
        normalisation: Normalisation = "mean",
    ):
        super().__init__(width, teacher_width, activation, noise, readout, normalisation)
        self.link = link
        self.link_is_smooth = probe(
            link, self.teacher_width, name="link", arguments=f"teacher fields of shape ({self.teacher_width},)"
        )

    def resized(self, width: int) -> "MultiIndex":
        readout = _spread_over(self.readout, width)
        return MultiIndex(
            self.link, width, self.teacher_width, self.activation, self.noise, readout, self.normalisation
        )

    @property
    def smooth(self) -> bool:
        return self.activation.smooth and self.link_is_smooth

    @property
    def sources(self) -> tuple[str, ...]:
        return ("saad1995", "benarous2022")

    @property
    def exact_nodes(self) -> None:
        return None  # a link is not known to be a polynomial

    def target(self, teacher: Float[Array, " k"]) -> Float[Array, ""]:
        return self.link(teacher)
