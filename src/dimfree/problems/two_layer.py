"""Two-layer networks learning from a two-layer teacher or from any function of a few directions."""

import abc
import functools
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from ..errors import InvalidInput, check_finite, is_concrete, neurons, nonnegative_number, real_array
from ..functions import Function, Recipe, as_function
from ..gaussian.activations import Activation, as_activation
from ..gaussian.integrals import ActivationIntegrals
from ..gaussian.one_field import exact_nodes
from ..gaussian.polynomial import quartic_moments
from ..gaussian.probing import probe
from ..gaussian.products import ProductIntegrals
from ..gaussian.resolution import Features, Resolution, finest, highest_degree, known_degree, loss_resolution
from ..gaussian.rules import AnyRule, Averaging
from ..printing import as_call
from ..state import State, WideState
from .base import Moments
from .field_problem import FieldProblem
from .tokens import as_tokens
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
    array = jnp.ones(width) if readout is None else jnp.asarray(real_array(readout, name))
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
    activation: Activation
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
    def target(self, teacher: Float[Array, "*tokens k"]) -> Float[Array, ""]:
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
        output = self.scale * jnp.sum(readout * self.activation.function(student)) / self.inputs_per_sample
        return 0.5 * (output - self.target(teacher) - jnp.sqrt(self.noise) * noise) ** 2

    @property
    def degree(self) -> int | None:
        degree = highest_degree([self.activation.degree, self.target_degree])
        return None if degree is None else highest_degree([2 * degree])

    @property
    @abc.abstractmethod
    def target_degree(self) -> int | None:
        """The degree of the target; None if it is no polynomial."""

    def resolution(self, tolerance: float, power: int) -> Resolution:
        # What is averaged is made of products of functions of few fields: no need to look at all fields together.
        return finest(self.activation.resolution(tolerance, power), self.target_resolution(tolerance, power))

    @abc.abstractmethod
    def target_resolution(self, tolerance: float, power: int) -> Resolution:
        """What resolves powers of the target."""

    def wide_risk(self, state: WideState, averaging: Averaging) -> Float[Array, ""]:
        return wide_risk(self, state, averaging)


class Taught(FieldProblem):
    r"""A student that learns a teacher of its own kind, whose averages are sums over few fields for the squared error.

    With the error of output o, $e_o = \sum_s c_{os} g(u_s)$ over all fields, the slopes are
    $s_i = \sum_o c_{oi}\, g'(u_i)\, e_o$, and the averages are those of single errors and of sums of two.
    """

    activation: eqx.AbstractVar[Activation]
    other_activation: eqx.AbstractVar[Activation | None]  # of the teachers, where it is another
    noise: eqx.AbstractVar[Float[Array, ""]]
    scale: eqx.AbstractVar[float]

    @abc.abstractmethod
    def error_weights(self, state: State) -> Float[Array, "outputs r"]:
        """Weights $c$ with which students and teachers enter the error of each output."""

    @property
    def one_activation(self) -> bool:
        """Whether students and teachers have the same activation."""
        return self.other_activation is None

    @property
    def teacher_activation(self) -> Activation:
        """That of the teachers."""
        return self.activation if self.other_activation is None else self.other_activation

    @property
    def closed_integrals(self) -> ActivationIntegrals | None:
        """The Gaussian averages in closed form, where there are any."""
        return self.activation.integrals if self.one_activation else None

    @property
    def knows_moments(self) -> bool:
        return self.closed_integrals is not None

    def product_integrals(self, averaging: Averaging) -> ProductIntegrals | None:
        """The averages over few fields at a time; None where there are closed forms, kinks, or a rule was asked for."""
        if self.closed_integrals is not None or not self.smooth or averaging.rule is not None:
            return None
        width = self.inputs_per_sample * self.width
        return ProductIntegrals(self.activation, self.other_activation, width, averaging)

    def mean_rule(self, averaging: Averaging, transform: Any = None) -> AnyRule | None:
        integrals = self.product_integrals(averaging) if transform is None else None
        return super().mean_rule(averaging, transform) if integrals is None else integrals.rule(self.seen_fields)

    def mean_moments(self, state: State, averaging: Averaging, transform: Any = None) -> Moments:
        integrals = self.product_integrals(averaging) if transform is None else None
        if integrals is None:
            return super().mean_moments(state, averaging, transform)
        return self._moments(state, integrals)

    def known_moments(self, state: State) -> Moments | None:
        return None if self.closed_integrals is None else self._moments(state, self.closed_integrals)

    def sensitivity(self, state: State, moments: Moments, transform: Any = None) -> Float[Array, "p r"]:
        r"""In closed form where averages are: $\mathbb{E}[s_i f]$ is linear in the covariances of f with the fields.

        So that of fields f of which the a-th has covariance one with $u_a$ alone is A itself.
        """
        integrals = self.closed_integrals
        if integrals is None or transform is not None or self.tokens is not None:
            return super().sensitivity(state, moments, transform)
        covariance, weights = state.covariance, self.error_weights(state)
        size = covariance.shape[-1]
        identity = jnp.eye(size)
        enlarged = jnp.block([[covariance, identity], [identity, 2 * identity]])
        unseen = jnp.concatenate([weights, jnp.zeros_like(weights)], axis=1)
        gradient = _over_rows(lambda row: integrals.gradient(enlarged, row, self.width), unseen)
        return jnp.sum(weights[:, : self.width, None] * gradient[:, :, size:], axis=0)

    def _moments(self, state: State, integrals: ActivationIntegrals) -> Moments:
        r"""$\mathbb{E}[s u^\top]$ and $\mathbb{E}[s s^\top]$ from the Saad-Solla integrals $I_2, I_3, I_4$."""
        (covariance, weights), p = self._of_all_inputs(state), self.width * self.inputs_per_sample
        own, found = weights[:, :p], _over_rows(lambda row: integrals.averages(covariance, row, p), weights)
        gradient = jnp.sum(own[:, :, None] * found.gradient, axis=0)
        square = jnp.sum(
            own[:, :, None] * own[:, None, :] * (found.gradient_square + self.noise * found.slopes), axis=0
        )
        first, second = np.triu_indices(weights.shape[0], 1)
        if len(first):
            # The mean product of two errors, from that of the square of their sum.
            together = _over_rows(
                lambda row: integrals.gradient_square(covariance, row, p), weights[first] + weights[second]
            )
            mixed = (together - found.gradient_square[first] - found.gradient_square[second]) / 2
            pairs = own[first][:, :, None] * own[second][:, None, :]
            square = square + jnp.sum((pairs + jnp.swapaxes(pairs, 1, 2)) * mixed, axis=0)
        readout = self.scale * (weights @ found.outputs[0][:, :p])
        if self.tokens is None:
            return Moments(student=gradient[:, :p], teacher=gradient[:, p:], square=square, readout=readout.reshape(-1))
        return Moments(
            student=self._over_inputs(gradient[:, :p], jnp.eye(self.tokens)),
            teacher=self._over_inputs(gradient[:, p:], jnp.eye(self.tokens)),
            square=self._over_inputs(square, self.over_batch(1)),
            readout=jnp.mean(readout.reshape(-1, self.tokens, self.width), axis=1).reshape(-1),
        )

    def _over_inputs(self, matrix: Float[Array, "n m"], weights: Float[Array, "L L"]) -> Float[Array, "p _"]:
        """The sum over pairs of inputs, with these weights, of what there is of each pair."""
        each = matrix.reshape(weights.shape[0], self.width, weights.shape[0], -1)
        return jnp.einsum("limj,lm->ij", each, weights)

    def _of_all_inputs(self, state: State) -> tuple[Float[Array, "r r"], Float[Array, "outputs r"]]:
        """Covariance and weights of the fields of all inputs: a network of as many neurons for each of them."""
        covariance, weights, tokens = state.covariance, self.error_weights(state), self.tokens
        if tokens is None:
            return covariance, weights
        # Those of all students first, as everywhere.
        by_input = jnp.arange(tokens * weights.shape[1]).reshape(tokens, -1)
        order = jnp.concatenate([by_input[:, : self.width].reshape(-1), by_input[:, self.width :].reshape(-1)])
        return self.over_tokens(covariance)[order][:, order], jnp.tile(weights / tokens, (1, tokens))[:, order]

    def single_risk(self, state: State, averaging: Averaging) -> Float[Array, ""]:
        integrals = self.product_integrals(averaging)
        return super().single_risk(state, averaging) if integrals is None else self._risk(state, integrals)

    def known_risk(self, state: State) -> Float[Array, ""] | None:
        return None if self.closed_integrals is None else self._risk(state, self.closed_integrals)

    def _risk(self, state: State, integrals: ActivationIntegrals) -> Float[Array, ""]:
        """Half the noise plus a quadratic form in E[g g], which needs at most two fields at a time."""
        covariance, weights = self._of_all_inputs(state)
        return 0.5 * (jnp.sum((weights @ integrals.outputs(covariance)) * weights) + self.noise)


def _over_rows(function: Callable[[Float[Array, " r"]], Any], rows: Float[Array, "n r"]) -> Any:
    """A function of each row; one row is not a batch of one, which would be another program."""
    if rows.shape[0] == 1:
        return jax.tree.map(lambda leaf: leaf[None], function(rows[0]))
    return jax.vmap(function)(rows)


class TwoLayer(Network, Taught):
    r"""A two-layer student learning a two-layer teacher, with the half squared error.

    $$ \tfrac12 \Big( \tfrac1p \sum_j a_j g(\lambda_j) - \tfrac1k \sum_r a^*_r g^*(\lambda^*_r)
       - \sqrt{\text{noise}} \, z \Big)^2 $$

    The averages of its limits are exact for the activations `square`, `erf`, `relu`, `linear` and the Hermite
    polynomials by name, and for functions that are linear on either side of zero. For any other JAX function they are
    computed to a tolerance, each over the two to four fields in it.

    **Arguments:**

    - `width`, `teacher_width`: number of neurons, p and k.
    - `activation`: the activation of the students, $g$: a name, or any JAX function of a number.
    - `noise`: variance of the label noise.
    - `readout`, `teacher_readout`: second-layer weights $a$ (their start, if they are trained) and $a^*$; ones if left
      out.
    - `normalisation`: the factor in front of the sums: `"mean"` 1/p, `"sqrt"` p^-1/2, `"sum"` 1 (and the same with k).
    - `teacher_activation`: the activation of the teachers, $g^*$; the students' if left out.
    - `tokens`: if a sample is L patches of an image that the same neurons see, their number L, or their correlations,
      shape `(L, L)`. Both networks are then averaged over patches (a convolution with global pooling). Averages stay
      exact, over the L (p + k) fields of all patches.

    Saad & Solla, Phys. Rev. E 52 (1995) 4225; Arnaboldi et al. 2023, eqs. (1)-(4).
    """

    other_activation: Activation | None  # of the teachers, where it is another
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
        teacher_activation: str | Callable | Activation | None = None,
        tokens: int | ArrayLike | Array | None = None,
    ):
        super().__init__(width, teacher_width, activation, noise, readout, normalisation)
        self.tokens, self.correlations = as_tokens(tokens)
        self.other_activation = other_activation(teacher_activation, self.activation)
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
            self.teacher_activation,
            self.given_tokens,
        )

    def __repr__(self) -> str:
        """As it would be written; the teachers' activation only where it is another."""
        own: dict[str, Any] = {} if self.one_activation else {"teacher_activation": self.teacher_activation}
        if self.tokens is not None:
            own["tokens"] = self.given_tokens
        names = ("width", "teacher_width", "activation", "normalisation", "noise", "readout", "teacher_readout")
        return as_call(self, **{name: getattr(self, name) for name in names}, **own)

    @property
    def exchangeable(self) -> bool:
        return self.tokens is not None and self.correlations is None

    @property
    def smooth(self) -> bool:
        return self.activation.smooth and self.teacher_activation.smooth

    @property
    def sources(self) -> tuple[str, ...]:
        quadratic = self.one_activation and self.activation.name in ("square", "he2")
        return ("saad1995", "arnaboldi2023", "bocchi2026") if quadratic else ("saad1995", "loureiro2023")

    @property
    def exact_nodes(self) -> int | None:
        own, others = exact_nodes(self.activation), exact_nodes(self.teacher_activation)
        return None if own is None or others is None else max(own, others)

    def target(self, teacher: Float[Array, "*tokens k"]) -> Float[Array, ""]:
        outputs = jnp.sum(self.teacher_readout * self.teacher_activation.function(teacher)) / self.inputs_per_sample
        return scale_of(self.normalisation, self.teacher_width) * outputs

    def target_resolution(self, tolerance: float, power: int) -> Resolution:
        return self.teacher_activation.resolution(tolerance, power)

    @property
    def target_degree(self) -> int | None:
        return self.teacher_activation.degree

    def output_weights(self, state: State) -> Float[Array, " r"]:
        """Weights with which the outputs of students and teachers enter the error."""
        teacher = scale_of(self.normalisation, self.teacher_width) * self.teacher_readout
        return jnp.concatenate([self.scale * self.readout_of(state), -teacher])

    def error_weights(self, state: State) -> Float[Array, "outputs r"]:
        return self.output_weights(state)[None]

    @property
    def knows_second_moments(self) -> bool:
        integrals = self.closed_integrals
        return self.tokens is None and integrals is not None and integrals.polynomial == (0.0, 0.0, 1.0)

    def known_second_moments(self, state: State) -> Float[Array, "m m"] | None:
        r"""For quadratic networks: all products are $\mathbb{E}[e^n u_a u_b u_c u_d]$ with n = 2, 3, 4."""
        if not self.knows_second_moments:
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

    link: Function
    link_is_smooth: bool = eqx.field(static=True, repr=False)
    link_features: Features | None = eqx.field(repr=False)

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
        self.link = as_function(link, jnp.zeros(self.teacher_width))
        self.link_is_smooth = probe(
            self.link, self.teacher_width, name="link", arguments=f"teacher fields of shape ({self.teacher_width},)"
        )
        features = Features(self.link, self.teacher_width, _Target) if self.link.numbers else None
        self.link_features = features

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

    def target(self, teacher: Float[Array, "*tokens k"]) -> Float[Array, ""]:
        return self.link(teacher)

    @property
    def target_degree(self) -> int | None:
        if self.link_features is None:
            return known_degree(self.link.recipe, self.teacher_width)
        return self.link_features.degree

    def target_resolution(self, tolerance: float, power: int) -> Resolution:
        if self.link_features is None:
            return _link_resolution(self.link.recipe, self.teacher_width, tolerance, power)
        return self.link_features.resolution(tolerance, power)


class _Target(eqx.Module):
    """What a link contributes to the loss."""

    link: Callable

    def __call__(self, teacher: Float[Array, " k"]) -> Float[Array, ""]:
        return 0.5 * self.link(teacher) ** 2


@functools.lru_cache(maxsize=256)
def _link_resolution(recipe: Recipe, fields: int, tolerance: float, power: int) -> Resolution:
    return loss_resolution(_Target(recipe.function), fields, tolerance, power)


def other_activation(teacher: str | Callable | Activation | None, student: Activation) -> Activation | None:
    """The teachers' activation as given; None where it is that of the students, with the same numbers."""
    if teacher is None:
        return None
    given = as_activation(teacher, "teacher_activation")
    same = given.function.recipe == student.function.recipe and is_concrete(given, student)
    return None if same and all(map(np.array_equal, given.function.numbers, student.function.numbers)) else given
