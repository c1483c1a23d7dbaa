"""Classifying Gaussian clusters with a two-layer network."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from ..errors import InvalidInput, check_finite, is_concrete, neurons, real_array, require, shown
from ..functions import Function, as_function
from ..gaussian.activations import Activation, as_activation
from ..gaussian.events import MOST_IN_EVENT, Event, probability
from ..gaussian.probing import probe
from ..gaussian.rules import Averaging
from ..gaussian.two_relus import ReluAverages, relu_averages, relu_exceeds
from ..printing import as_call
from ..state import State
from .base import Moments
from .field_problem import FieldProblem, features_of, of_order_one
from .inputs import Clusters, as_probabilities
from .two_layer import Normalisation, scale_of


def _cross_entropy(output, label):
    if label.ndim == 0:
        return jax.nn.softplus(output) - label * output
    return jax.nn.logsumexp(output) - jnp.sum(label * output)


def _half_square(output, label):
    return 0.5 * jnp.sum((output - label) ** 2)


_LOSSES = {"cross-entropy": _cross_entropy, "square": _half_square}
_FAR = 1e150  # beyond all outputs; an infinite one would make derivatives NaN


class Mixture(FieldProblem):
    r"""A two-layer network that learns the labels of Gaussian clusters.

    $$ x = \sum_r \text{means}_{cr} \frac{w^*_r}{\sqrt d} + \frac{g}{\sqrt{\text{snr}}}, \quad g \sim N(0, I_d),
       \qquad \text{output}_o = \sum_j a_{oj} \, g(\lambda_j), $$

    with cluster c drawn by its probability. The directions $w^*_r$ that span the means take the place of teachers: M is
    the overlap of students with them, and P = 1 makes them orthonormal. The algorithm sets a penalty on the weights
    (`ridge`) and the training of the readout (`readout_rate`).

    Averages need only the student fields. They are accurate to 1e-12 for one or two ReLU neurons with a single output;
    otherwise they are computed by quadrature.

    **Arguments:**

    - `means`: coordinates of the cluster means, shape `(c, k)`.
    - `labels`: one for each cluster. Numbers (0 or 1 for the cross-entropy) for a network with one output; class
      numbers 0, 1, 2, ... for the cross-entropy of three or more classes; or one row for each cluster, shape
      `(c, outputs)`.
    - `width`: number of neurons, p.
    - `snr`: one over the variance of a coordinate of an input, a number or one for each cluster; `numpy.inf` makes the
      clusters points.
    - `probabilities`: of the clusters; equal if left out.
    - `activation`: a name, or any JAX function of a number.
    - `loss`: `"cross-entropy"`, `"square"` (halved), or any JAX function of output and label to a number.
    - `readout`: second-layer weights $a$, shape `(p,)` or `(outputs, p)`; ones if left out.
    - `normalisation`: the factor in front of the sum over neurons, `"sum"`, `"sqrt"` or `"mean"`.

    Ben Arous, Gheissari & Jagannath 2022, sections 4 and 5 (`Mixture.binary`, `Mixture.xor`): their step size is
    learning_rate / d, their time learning_rate * alpha, their R is $Q - M M^\top$.

    ??? example
        >>> import dimfree, jax.numpy as jnp
        >>> three = dimfree.Mixture(
        ...     means=[[1.0, 0.0], [-0.5, 0.9], [-0.5, -0.9]], labels=[0, 1, 2], width=3, snr=4.0,
        ...     activation=jnp.tanh, readout=jnp.eye(3),
        ... )
    """

    width: int = eqx.field(static=True)
    activation: Activation
    output_loss: Function
    normalisation: Normalisation = eqx.field(static=True)
    loss_is_smooth: bool = eqx.field(static=True)
    loss_is_very_smooth: bool = eqx.field(static=True)
    clusters: Clusters
    readout: Float[Array, " n"]

    def __init__(
        self,
        means: ArrayLike | Array,
        labels: ArrayLike | Array,
        width: int,
        snr: float | ArrayLike | Array,
        probabilities: ArrayLike | Array | None = None,
        activation: str | Callable = "relu",
        loss: str | Callable = "cross-entropy",
        readout: ArrayLike | Array | None = None,
        normalisation: Normalisation = "sum",
    ):
        self.width = neurons(width, "width")
        self.activation = as_activation(activation)
        scale_of(normalisation, 1)
        self.normalisation = normalisation
        means = jnp.asarray(real_array(means, "means"))
        if means.ndim != 2 or not means.size:
            raise InvalidInput(
                f"means has shape {means.shape}; give one row of k coordinates for each cluster, (c, k)."
            )
        check_finite(means, "means")
        number = means.shape[0]
        labels = _as_labels(labels, number, loss)
        self.clusters = Clusters(
            as_probabilities(probabilities, number, "clusters"), means, _as_variances(snr, number), labels
        )
        label = np.ones(self.outputs)
        self.output_loss = as_function(_as_loss(loss), label, label)
        if self._is_small_relu:
            self.output_loss = self.output_loss.frozen()  # averages are closed forms, to its value
        self.loss_is_smooth = not callable(loss) or self._probe(self.output_loss)
        self.readout = self._as_readout(readout)
        very_smooth = self._is_small_relu and self.loss_is_smooth and _is_very_smooth(self.output_loss)
        self.loss_is_very_smooth = not callable(loss) or very_smooth
        self.features = None
        if (self.output_loss.numbers or self.activation.function.numbers) and self.smooth:
            with jax.ensure_compile_time_eval():
                readout = of_order_one(self.readout.shape)
            self.features = features_of(self, readout)

    @classmethod
    def binary(cls, width: int, snr: float | Array, readout: ArrayLike | Array | None = None) -> "Mixture":
        """Two clusters at plus and minus one direction, labels 1 and 0: ReLU network, cross-entropy."""
        return cls([[1.0], [-1.0]], [1, 0], width, snr, readout=readout)

    @classmethod
    def xor(cls, width: int, snr: float | Array, readout: ArrayLike | Array | None = None) -> "Mixture":
        """Four clusters at plus and minus two directions, label 1 for the first direction and 0 for the second."""
        means = [[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]
        return cls(means, [1, 1, 0, 0], width, snr, readout=readout)

    def __repr__(self) -> str:
        names = {as_function(function).recipe: name for name, function in _LOSSES.items()}
        return as_call(
            self,
            means=self.clusters.means,
            labels=self.clusters.labels,
            width=self.width,
            snr=np.inf if self.clusters.variances is None else 1 / self.clusters.variances,
            probabilities=self.clusters.probabilities,
            activation=self.activation,
            loss=names.get(self.output_loss.recipe, self.output_loss),
            readout=self.readout,
            normalisation=self.normalisation,
        )

    @property
    def inputs(self) -> Clusters:
        law = self.clusters
        if self.spectrum is None:
            return law
        return Clusters(law.probabilities, law.means, law.variances, law.labels, self.spectrum)

    @property
    def teacher_width(self) -> int:
        return self.clusters.means.shape[-1]

    @property
    def outputs(self) -> tuple[int, ...]:
        """The shape of the network's output: none of a number, or how many numbers."""
        return self.clusters.labels.shape[1:]

    @property
    def scale(self) -> float:
        """The factor in front of the sum over neurons."""
        return scale_of(self.normalisation, self.width)

    @property
    def smooth(self) -> bool:
        return self.activation.smooth and self.loss_is_smooth

    @property
    def sees_teacher(self) -> bool:
        return False

    @property
    def noise_nodes(self) -> int:
        return 1  # there is no label noise

    @property
    def sources(self) -> tuple[str, ...]:
        return ("benarous2022",)

    def output(self, student: Float[Array, " p"], readout: Float[Array, " n"]) -> Float[Array, "*outputs"]:
        """What the network says of an input with these fields."""
        return self.scale * (readout.reshape(*self.outputs, self.width) @ self.activation.function(student))

    def loss(self, student, teacher, noise, readout, label=None):
        assert readout is not None
        return self.output_loss(self.output(student, readout), label)

    @property
    def classifies(self) -> bool:
        """With a loss of the user's own only where labels say what a right answer is: -1 and 1, or one-hot rows."""
        if self._is_loss("cross-entropy") or self._is_loss("square"):
            return True
        if not is_concrete(self.clusters.labels):
            return False
        labels = np.asarray(self.clusters.labels)
        if labels.ndim == 1:
            return bool(np.all(np.abs(labels) == 1))
        return bool(np.all((labels == 0) | (labels == 1)) and np.all(labels.sum(axis=1) == 1))

    def correct(self, student, teacher, noise, readout, label=None):
        """Whether the network's class is that of the sample.

        For the cross-entropy its class is the largest output, or 1 for a single output above zero; for other losses
        it is the label that is nearest to the output. Of equally good classes it is the first.
        """
        assert label is not None
        return self._classified(self.output(student, readout), label).happens

    def known_accuracy(self, state: State, averaging: Averaging) -> Float[Array, ""] | None:
        """For up to three neurons, along lines through the student fields (see `probability`).

        The error is below 1e-9 for one neuron and for two ReLU neurons with a single output, 1e-6 for two or three
        neurons with a smooth increasing activation and a single output, and up to 1e-3 else: see `mean_error`.
        """
        if averaging.rule is not None or self.width > MOST_IN_EVENT:
            return None
        readout = self.readout_of(state)
        assert readout is not None

        def in_cluster(label, mean, variance):
            if self._is_small_relu:
                low, high = self._interval(label)
                above = [relu_exceeds(end, self.scale * readout, mean, variance * state.Q) for end in (low, high)]
                return jnp.where(low > -_FAR, above[0], 1.0) - jnp.where(high < _FAR, above[1], 0.0)
            vectors, _, own = self._classes(label)
            centre = jnp.mean(vectors, axis=0)
            rising = (own @ vectors / jnp.sum(own) - centre) @ readout.reshape(-1, self.width)
            return probability(_answer, mean, variance * state.Q, (self, readout, label), rising, averaging)

        means = self.clusters.field_means(state)[:, : self.width]
        return self.clusters.probabilities @ jax.vmap(in_cluster)(self.clusters.labels, means, self.clusters.spread)

    def _is_loss(self, name: str) -> bool:
        return self.output_loss.recipe == as_function(_LOSSES[name]).recipe

    def _classes(self, label):
        """A vector and an offset for each class, whose score is vector @ output - offset, and which is the sample's."""
        labels = self.clusters.labels
        if not self._is_loss("cross-entropy"):
            labels = jnp.sort(labels)[:, None] if labels.ndim == 1 else labels
            return labels, 0.5 * jnp.sum(labels**2, axis=1), jnp.all(labels == label, axis=1).astype(float)
        if labels.ndim == 1:
            return jnp.array([[0.0], [1.0]]), jnp.zeros(2), jnp.stack([label <= 0.5, label > 0.5]).astype(float)
        number = labels.shape[1]
        return jnp.eye(number), jnp.zeros(number), jax.nn.one_hot(jnp.argmax(label), number)

    def _classified(self, output, label) -> Event:
        vectors, offsets, own = self._classes(label)
        scores = vectors @ jnp.atleast_1d(output) - offsets
        # By their places: the derivative of a maximum looks for entries that equal it, and finds none where a compiler
        # rounds them otherwise the second time.
        best, other = jnp.argmax(jnp.where(own > 0, scores, -_FAR)), jnp.argmax(jnp.where(own > 0, -_FAR, scores))
        return Event(own[jnp.argmax(scores)] > 0, scores[best] - scores[other])

    def _interval(self, label):
        """The interval of a single output in which it is classified as this label."""
        vectors, offsets, own = self._classes(label)
        own_vector, own_offset = own @ vectors[:, 0] / jnp.sum(own), own @ offsets / jnp.sum(own)
        gaps = own_vector - vectors[:, 0]
        ends = (own_offset - offsets) / jnp.where(gaps == 0, 1.0, gaps)
        low, high = jnp.where(gaps > 0, ends, -_FAR), jnp.where(gaps < 0, ends, _FAR)
        return jnp.max(low), jnp.min(high)

    @property
    def knows_moments(self) -> bool:
        is_code = not self.output_loss.numbers
        return self._is_small_relu and is_code and not self.clusters.are_points and self.loss_is_very_smooth

    @property
    def _is_small_relu(self) -> bool:
        integrals = self.activation.integrals
        return integrals is not None and integrals.is_relu and self.width <= 2 and self.outputs == ()

    def known_moments(self, state: State) -> Moments | None:
        """For one or two ReLU neurons, averages over the student fields; teacher fields follow by Stein's lemma."""
        if not self.knows_moments:
            return None
        averages, readout = self._relu_averages(state), self.readout_of(state)
        assert readout is not None
        weights, spread = self.scale * readout, self.clusters.spread
        covariance = jnp.concatenate([state.Q, state.M], axis=1)
        with_fields = jax.vmap(lambda average, mean, variance: average.with_fields(mean, variance * covariance))(
            averages, self.clusters.field_means(state), spread
        )
        gradient = jnp.tensordot(self.clusters.probabilities, with_fields, 1)
        square = jnp.tensordot(self.clusters.probabilities * spread, averages.square, 1)
        return Moments(
            student=weights[:, None] * gradient[:, : self.width],
            teacher=weights[:, None] * gradient[:, self.width :],
            square=weights[:, None] * weights * square,
            readout=self.scale * jnp.diagonal(gradient),
        )

    def known_risk(self, state: State) -> Float[Array, ""] | None:
        return self.clusters.probabilities @ self._relu_averages(state).loss if self.knows_moments else None

    def _relu_averages(self, state: State) -> ReluAverages:
        """The averages in each cluster."""
        readout = self.readout_of(state)
        assert readout is not None

        def in_cluster(label, mean, variance):
            return relu_averages(self.output_loss, label, self.scale * readout, mean, variance * state.Q)

        means = self.clusters.field_means(state)[:, : self.width]
        return jax.vmap(in_cluster)(self.clusters.labels, means, self.clusters.spread)

    def _as_readout(self, readout) -> Float[Array, " n"]:
        shape = (*self.outputs, self.width)
        array = jnp.ones(shape) if readout is None else jnp.asarray(real_array(readout, "readout"))
        if array.shape not in (shape, (np.prod(shape),)):
            raise InvalidInput(
                f"readout has shape {array.shape}; {self.width} neurons with {shape[0] if self.outputs else 1} "
                f"output(s) need {shape}."
            )
        check_finite(array, "readout")
        return array.reshape(-1)

    def _probe(self, loss: Function) -> bool:
        outputs = self.outputs[0] if self.outputs else 1
        words = f"an output and a label, both of shape {self.outputs}"
        return probe(_OfOutput(loss, self.outputs), outputs, name="loss", arguments=words)


def _answer(fields, parameters) -> Event:
    problem, readout, label = parameters
    return problem._classified(problem.output(fields, readout), label)


class _OfOutput(eqx.Module):
    """A loss as a function of the output alone."""

    loss: Callable
    shape: tuple[int, ...] = eqx.field(static=True)
    derivatives: int = eqx.field(static=True, default=0)

    def __call__(self, output: Any) -> Any:
        function = self.loss
        for _ in range(self.derivatives):
            function = jax.grad(function)
        return function(output.reshape(self.shape), jnp.ones(self.shape))


def _is_very_smooth(loss: Function) -> bool:
    """Whether a loss has four derivatives, which the averages over ReLU neurons and their slopes are made of."""
    try:
        return probe(_OfOutput(loss, (), derivatives=2), 1, name="loss", arguments="an output and a label")
    except InvalidInput:  # the fourth derivative is not finite
        return False


def _as_loss(loss) -> Callable:
    if callable(loss):
        return loss
    if not (isinstance(loss, str) and loss in _LOSSES):
        raise InvalidInput(
            f"loss = {shown(loss)} was given; choose one of {', '.join(map(repr, _LOSSES))}, or give a JAX function of "
            "output and label."
        )
    return _LOSSES[loss]


def _as_labels(labels, number: int, loss) -> Float[Array, "c *outputs"]:
    labels = jnp.asarray(real_array(labels, "labels"))
    check_finite(labels, "labels")
    if labels.ndim not in (1, 2) or labels.shape[0] != number:
        raise InvalidInput(
            f"labels has shape {labels.shape}; give one label, or one row, for each of {number} clusters."
        )
    if isinstance(loss, str) and loss == "cross-entropy" and labels.ndim == 1 and is_concrete(labels):
        values = np.asarray(labels)
        require(
            (values >= 0) & (values == np.round(values)),
            f"labels = {values} was given; for the cross-entropy they are class numbers 0, 1, 2, ...",
        )
        if values.max() > 1:
            return jax.nn.one_hot(values.astype(int), int(values.max()) + 1)
    return labels


def _as_variances(snr, number: int) -> Float[Array, " c"] | None:
    snr = real_array(snr, "snr")
    if is_concrete(snr):  # looked at before it is an array of JAX, which inside jit cannot be
        require(np.asarray(snr) > 0, f"snr = {snr} was given; it is one over a variance and must be positive.")
        if np.isinf(np.asarray(snr)).all():
            return None
    array = jnp.asarray(snr)
    if array.shape not in ((), (number,)):
        raise InvalidInput(f"snr has shape {array.shape}; give one number, or one for each of {number} clusters.")
    return jnp.broadcast_to(1 / array, (number,))
