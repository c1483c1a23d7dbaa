"""Two-layer networks with several outputs that learn a teacher, as regression or as classification."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from ..errors import InvalidInput, check_finite, neurons, real_array, shown
from ..functions import Function, as_function
from ..gaussian.activations import Activation, as_activation
from ..gaussian.integrals import ActivationIntegrals
from ..gaussian.probing import probe
from ..gaussian.products import ProductIntegrals
from ..gaussian.resolution import Resolution, finest, highest_degree, loss_degree, loss_resolution
from ..gaussian.rules import Averaging
from ..printing import as_call
from ..state import State
from .field_problem import LossOfFields, features_of
from .two_layer import Normalisation, Taught, other_activation, scale_of


def _cross_entropy(output, target):
    if output.shape == (1,):
        return jnp.sum(jax.nn.softplus(output) - target * output)
    return jax.nn.logsumexp(output) - jnp.sum(target * output)


def _half_square(output, target):
    return 0.5 * jnp.sum((output - target) ** 2)


# What each loss learns from if nothing is said.
_LOSSES = {"square": (_half_square, "outputs"), "cross-entropy": (_cross_entropy, "soft")}


class MultiOutput(Taught):
    r"""A two-layer student with several outputs that learns a two-layer teacher.

    $$ \text{output}_o = \sum_j a_{oj}\, g(\lambda_j), \qquad
       \text{target}_o = \sum_r a^*_{or}\, g^*(\lambda^*_r), \qquad
       \text{loss} = \tfrac12 \sum_o (\text{output}_o - \text{target}_o)^2 $$

    or the cross-entropy of classes, $\log \sum_o e^{\text{output}_o} - \sum_o \text{label}_o\, \text{output}_o$, where
    the labels are the probabilities that the teacher gives to the classes, or the class of its largest output. With one
    output there are two classes, and the network is a logistic regression on its neurons.

    For the squared error on the teacher's outputs, averages are as exact as for [`TwoLayer`]. Otherwise they are taken
    over all fields together: on a grid for few fields; over Sobol points for many fields, for activations with a kink
    and for hard labels, which jump (`limit.expectation_error` estimates their error). There is no label noise.

    **Arguments:**

    - `readout`: second-layer weights $a$, one row for each output, shape `(outputs, p)`; their start, if they are
      trained (`readout_rate` of the algorithm). A State holds them row by row, as `outputs * p` numbers.
    - `teacher_readout`: $a^*$, shape `(outputs, k)`.
    - `activation`: the activation of the students, $g$: a name, or any JAX function of a number.
    - `loss`: `"square"`, `"cross-entropy"`, or any JAX function of output and label, both of shape `(outputs,)`, to a
      number.
    - `labels`: `"outputs"`, the target itself; `"soft"`, its softmax (with one output, the logistic function of it);
      `"hard"`, a one for its largest entry and zeros (with one output, a one where it is positive). If left out,
      `"soft"` for the cross-entropy and `"outputs"` for any other loss.
    - `normalisation`: the factor in front of the sums: `"sum"` 1, `"sqrt"` p^-1/2, `"mean"` 1/p (and the same with k).
    - `teacher_activation`: the activation of the teachers, $g^*$; the students' if left out.

    Yoshida, Karakida, Okada & Amari, J. Phys. A 52 (2019) 184002 (the squared error with erf).

    ??? example
        >>> import dimfree, jax, jax.numpy as jnp
        >>> softmax = dimfree.MultiOutput(jnp.eye(3), jnp.eye(3), "linear", loss="cross-entropy", labels="hard")
        >>> start = dimfree.random_state(softmax, d=1000, key=jax.random.key(0))
        >>> learned = dimfree.solve(dimfree.ode(softmax, dimfree.OnlineSGD(1.0)), start, alpha=5.0)
        >>> bool(learned.risk[-1] < learned.risk[0])
        True
    """

    width: int = eqx.field(static=True)
    teacher_width: int = eqx.field(static=True)
    activation: Activation
    other_activation: Activation | None
    output_loss: Function
    labels: str = eqx.field(static=True)
    normalisation: Normalisation = eqx.field(static=True)
    loss_is_smooth: bool = eqx.field(static=True)
    readout: Float[Array, " n"]
    teacher_readout: Float[Array, "outputs k"]

    def __init__(
        self,
        readout: ArrayLike | Array,
        teacher_readout: ArrayLike | Array,
        activation: str | Callable | Activation = "erf",
        loss: str | Callable = "square",
        labels: str | None = None,
        normalisation: Normalisation = "sum",
        teacher_activation: str | Callable | Activation | None = None,
    ):
        student, self.teacher_readout = (
            _as_matrix(matrix, name) for matrix, name in ((readout, "readout"), (teacher_readout, "teacher_readout"))
        )
        if student.shape[0] != self.outputs:
            raise InvalidInput(
                f"readout has shape {student.shape} and teacher_readout {self.teacher_readout.shape}; both need one "
                "row for each output."
            )
        self.width = neurons(student.shape[1], "The number of columns of readout")
        self.teacher_width = neurons(self.teacher_readout.shape[1], "The number of columns of teacher_readout")
        self.readout = student.reshape(-1)
        self.activation = as_activation(activation)
        self.other_activation = other_activation(teacher_activation, self.activation)
        scale_of(normalisation, 1)
        self.normalisation = normalisation
        function, self.labels = _as_loss(loss, labels)
        example = np.ones(self.outputs)
        self.output_loss = as_function(function, example, example)
        self.loss_is_smooth = not callable(loss) or self._is_smooth(self.output_loss)
        self.features = None
        functions = (self.output_loss, self.activation.function, self.teacher_activation.function)
        if self.smooth and not self.is_squared and any(function.numbers for function in functions):
            with jax.ensure_compile_time_eval():
                readout = jnp.asarray(_stand_in(self.outputs, self.width).reshape(-1))
            self.features = features_of(self, readout)

    def __repr__(self) -> str:
        names = {as_function(function).recipe: name for name, (function, _) in _LOSSES.items()}
        own = {} if self.one_activation else {"teacher_activation": self.teacher_activation}
        return as_call(
            self,
            readout=self.readout.reshape(self.outputs, self.width),
            teacher_readout=self.teacher_readout,
            activation=self.activation,
            loss=names.get(self.output_loss.recipe, self.output_loss),
            labels=self.labels,
            normalisation=self.normalisation,
            **own,
        )

    @property
    def outputs(self) -> int:
        """How many outputs the network has."""
        return self.teacher_readout.shape[0]

    @property
    def is_squared(self) -> bool:
        """Whether the loss is the squared error on the teacher's outputs, whose averages see few fields each."""
        return self.labels == "outputs" and self.output_loss.recipe == as_function(_half_square).recipe

    @property
    def scale(self) -> float:
        """The factor in front of the student's sum over neurons."""
        return scale_of(self.normalisation, self.width)

    @property
    def noise(self) -> Float[Array, ""]:
        """There is no label noise: a sample has one random number for it, and several outputs would need their own."""
        return jnp.zeros(())

    @property
    def noise_nodes(self) -> int:
        return 1

    @property
    def smooth(self) -> bool:
        smooth = self.activation.smooth and self.teacher_activation.smooth
        return smooth and self.loss_is_smooth and self.labels != "hard"

    @property
    def sources(self) -> tuple[str, ...]:
        return ("yoshida2019outputs", "saad1995")

    def output(self, student: Float[Array, " p"], readout: Float[Array, " n"]) -> Float[Array, " outputs"]:
        """What the student says of an input with these fields."""
        return self.scale * (readout.reshape(self.outputs, self.width) @ self.activation.function(student))

    def target(self, teacher: Float[Array, " k"]) -> Float[Array, " outputs"]:
        """What the teacher says of it."""
        scale = scale_of(self.normalisation, self.teacher_width)
        return scale * (self.teacher_readout @ self.teacher_activation.function(teacher))

    def loss(self, student, teacher, noise, readout, label=None):
        assert readout is not None
        return self.output_loss(self.output(student, readout), self._label(self.target(teacher)))

    def _label(self, target: Float[Array, " outputs"]) -> Float[Array, " outputs"]:
        if self.labels == "outputs":
            return target
        if self.labels == "soft":
            return jax.nn.sigmoid(target) if self.outputs == 1 else jax.nn.softmax(target)
        return (
            jnp.where(target > 0, 1.0, 0.0) if self.outputs == 1 else jax.nn.one_hot(jnp.argmax(target), self.outputs)
        )

    @property
    def classifies(self) -> bool:
        return self.labels != "outputs"

    def correct(self, student, teacher, noise, readout, label=None) -> Float[Array, ""]:
        """One where the largest output is that of the largest target (with one output: of the same sign), else zero."""
        output, target = self.output(student, readout), self.target(teacher)
        if self.outputs == 1:
            return jnp.where((output[0] > 0) == (target[0] > 0), 1.0, 0.0)
        return jnp.where(jnp.argmax(output) == jnp.argmax(target), 1.0, 0.0)

    def error_weights(self, state: State) -> Float[Array, "outputs r"]:
        readout = self.readout_of(state)
        assert readout is not None
        teacher = scale_of(self.normalisation, self.teacher_width) * self.teacher_readout
        return jnp.concatenate([self.scale * readout.reshape(self.outputs, self.width), -teacher], axis=1)

    @property
    def closed_integrals(self) -> ActivationIntegrals | None:
        return super().closed_integrals if self.is_squared else None

    def product_integrals(self, averaging: Averaging) -> ProductIntegrals | None:
        return super().product_integrals(averaging) if self.is_squared else None

    @property
    def degree(self) -> int | None:
        if self.features is not None:
            return self.features.degree
        if not self.is_squared:
            return _degree(eqx.filter(self, eqx.is_array, inverse=True), self.outputs)
        degree = highest_degree([self.activation.degree, self.teacher_activation.degree])
        return None if degree is None else highest_degree([2 * degree])

    def resolution(self, tolerance: float, power: int) -> Resolution:
        if self.features is not None:
            return self.features.resolution(tolerance, power)
        if not self.is_squared:
            return _resolution(eqx.filter(self, eqx.is_array, inverse=True), self.outputs, tolerance, power)
        return finest(*(each.resolution(tolerance, power) for each in (self.activation, self.teacher_activation)))

    def _is_smooth(self, loss: Function) -> bool:
        words = f"an output and a label, both of shape ({self.outputs},)"
        return probe(_OfBoth(loss), 2 * self.outputs, name="loss", arguments=words)


def _stand_in(outputs: int, width: int) -> Float[np.ndarray, "outputs width"]:
    """A readout of order one, as it stays, whose outputs differ: the softmax of equal outputs is constant."""
    return 2.0 - 4.0 * (np.add.outer(np.arange(outputs), np.arange(width)) % 2)


def _loss_of_all(static: MultiOutput, outputs: int) -> tuple[LossOfFields, int]:
    """The loss of all fields and how many there are, of a problem without its arrays."""
    readouts = _stand_in(outputs, static.width).reshape(-1), _stand_in(outputs, static.teacher_width)
    with jax.ensure_compile_time_eval():
        problem = eqx.tree_at(
            lambda each: (each.readout, each.teacher_readout),
            static,
            tuple(map(jnp.asarray, readouts)),
            is_leaf=lambda leaf: leaf is None,
        )
    loss = LossOfFields(problem)
    return loss, loss.dimension


@functools.lru_cache(maxsize=256)
def _resolution(static: MultiOutput, outputs: int, tolerance: float, power: int) -> Resolution:
    return loss_resolution(*_loss_of_all(static, outputs), tolerance, power)


@functools.lru_cache(maxsize=256)
def _degree(static: MultiOutput, outputs: int) -> int | None:
    return loss_degree(*_loss_of_all(static, outputs))


class _OfBoth(eqx.Module):
    """A loss as a function of output and label in one array."""

    loss: Function

    def __call__(self, both: Any) -> Any:
        half = both.shape[0] // 2
        return self.loss(both[:half], both[half:])


def _as_matrix(matrix: Any, name: str) -> Float[Array, "outputs n"]:
    array = jnp.asarray(real_array(matrix, name))
    if array.ndim != 2 or 0 in array.shape:
        raise InvalidInput(
            f"{name} has shape {array.shape}; give one row of weights for each output, such as [[1, 0], [0, 1]]."
        )
    check_finite(array, name)
    return array


def _as_loss(loss: Any, labels: Any) -> tuple[Callable, str]:
    if not callable(loss) and not (isinstance(loss, str) and loss in _LOSSES):
        raise InvalidInput(
            f"loss = {shown(loss)} was given; choose one of {', '.join(map(repr, _LOSSES))}, or give a JAX function of "
            "output and label."
        )
    function, usual = (loss, "outputs") if callable(loss) else _LOSSES[loss]
    labels = usual if labels is None else labels
    if not (isinstance(labels, str) and labels in ("outputs", "soft", "hard")):
        raise InvalidInput(f"labels = {shown(labels)} was given; choose 'outputs', 'soft' or 'hard'.")
    if loss == "cross-entropy" and labels == "outputs":
        raise InvalidInput(
            "labels = 'outputs' was given; the cross-entropy needs probabilities of the classes: 'soft' or 'hard'."
        )
    return function, labels
