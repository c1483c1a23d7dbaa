"""Problems whose loss sees an input through finitely many local fields."""

import abc
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..errors import InvalidInput, shown
from ..gaussian.factor import psd_factor
from ..gaussian.means import FieldRule, gaussian_mean, mean_over_noise
from ..gaussian.resolution import FEW_POINTS, Features, Resolution, loss_degree, loss_resolution, slope_growth
from ..gaussian.rules import (
    MOST_FIELDS,
    POINTS,
    AnyRule,
    Averaging,
    GaussHermite,
    Sobol,
    UnorderedHermite,
    WideSobol,
    choose_rule,
    unordered_hermite,
)
from ..state import State
from .base import Draws, Moments, Problem, covariance_of_linear, frames, is_bounded
from .inputs import MEANS, Clusters, Inputs, Spectrum, StandardInputs

_POINTS_OF_TOKENS = 2**16
_FAST = 1.5  # exponent of slopes as functions of the fields; that of a ReLU network's is one
_NOISE_NODES = 32  # where slopes are changed, and no polynomials of the noise


Stated = TypeVar("Stated", bound="FieldProblem")


class Sample(eqx.Module):
    """One sample as a loss sees it; `variance` is that of a coordinate of its input."""

    student: Float[Array, "*tokens p"]
    teacher: Float[Array, "*tokens k"]
    noise: Float[Array, ""]
    readout: Float[Array, " n"] | None
    label: Float[Array, "*label"] | None
    variance: Float[Array, ""]


class FieldProblem(Problem):
    """A loss of local fields, whatever the law of the inputs.

    Such a problem is its `loss` of one sample. Where the averages that a limit needs are known exactly, the problem may
    offer them (`known_moments`, `known_second_moments`, `known_risk`); everything works without.

    **Attributes:**

    - `features`: what averages have to know of a loss with numbers in its functions; None where it has none.
    - `spectrum`: of the inputs; None where they are the problem's own (see `with_inputs`).
    - `tokens`: how many inputs a sample is (tokens, patches, a pair): the loss sees a row of fields for each. None
      where it is one input, and there are no rows.
    - `correlations`: those of the inputs of a sample, R in Cov(x_l, x_m) = R_lm Sigma; None where they are independent.
    """

    features: Features | None = eqx.field(default=None, repr=False, kw_only=True)
    spectrum: Spectrum | None = eqx.field(default=None, repr=False, kw_only=True)
    tokens: int | None = eqx.field(default=None, repr=False, kw_only=True, static=True)
    correlations: Float[Array, "L L"] | None = eqx.field(default=None, repr=False, kw_only=True)

    @property
    def inputs(self) -> Inputs:
        return StandardInputs() if self.spectrum is None else self.spectrum

    def with_inputs(self: Stated, spectrum: Any) -> Stated:
        """The same problem for inputs with a spectrum.

        **Arguments:**

        - `spectrum`: a [`Spectrum`].
        """
        if not isinstance(spectrum, Spectrum):
            raise InvalidInput(
                f"spectrum = {shown(spectrum)} was given; pass dimfree.Spectrum(eigenvalues, fractions)."
            )
        if self.inputs.are_points:
            raise InvalidInput(f"The inputs of {self!r} are points, which have no spread and so no spectrum.")
        found = object.__new__(type(self))
        for field in dataclasses.fields(self):
            object.__setattr__(found, field.name, getattr(self, field.name))
        object.__setattr__(found, "spectrum", spectrum)
        return found

    @property
    def inputs_per_sample(self) -> int:
        return self.tokens or 1

    @property
    def given_tokens(self) -> Any:
        """What `as_tokens` was given: None, how many inputs a sample is, or their correlations."""
        return self.tokens if self.correlations is None else self.correlations

    @property
    def exchangeable(self) -> bool:
        """Whether the inputs of a sample are independent, and the loss is the same in any order of them."""
        return False

    @abc.abstractmethod
    def loss(
        self,
        student: Float[Array, "*tokens p"],
        teacher: Float[Array, "*tokens k"],
        noise: Float[Array, ""],
        readout: Float[Array, " n"] | None,
        label: Float[Array, "*label"] | None = None,
    ) -> Float[Array, ""]:
        r"""The loss of one sample.

        **Arguments:**

        - `student`, `teacher`: the fields $\lambda$ and $\lambda^*$, a row for each input where a sample is several.
        - `noise`: a standard normal number.
        - `readout`: the finite-dimensional parameters.
        - `label`: that of the sample's component, where the law of the inputs has any.
        """

    @property
    def sees_teacher(self) -> bool:
        """Whether the loss depends on the teacher fields; where not, averages need the student fields only."""
        return True

    @property
    def noise_nodes(self) -> int | None:
        """How many Gauss-Hermite nodes integrate the noise exactly; None if that is not known."""
        return None

    # Better than quadrature over all fields, where it is known; None where it is not.

    def known_moments(self, state: State) -> Moments | None:
        """The mean of `Moments` in closed form."""
        return None

    def known_second_moments(self, state: State) -> Float[Array, "m m"] | None:
        """The mean of the outer product of the flattened `Moments` in closed form."""
        return None

    def known_risk(self, state: State) -> Float[Array, ""] | None:
        """The mean of the loss in closed form."""
        return None

    def known_accuracy(self, state: State, averaging: Averaging) -> Float[Array, ""] | None:
        """The mean of `correct`, better than over points of Sobol."""
        return None

    def correct(self, student, teacher, noise, readout, label=None) -> Bool[Array, ""]:
        """Whether the answer to one sample is right, where the problem `classifies`; arguments as for `loss`."""
        raise NotImplementedError

    # Derived from the loss.

    def gradients(
        self, student, teacher, noise, readout, label=None
    ) -> tuple[Float[Array, "*tokens p"], Float[Array, " n"] | None]:
        """Derivatives of the loss of one sample with respect to the student fields and to the readout."""
        if readout is None:
            return jax.grad(self.loss)(student, teacher, noise, None, label), None
        return jax.grad(self.loss, argnums=(0, 3))(student, teacher, noise, readout, label)

    def sample_moments(
        self, student, teacher, noise, readout, label=None, variance: Array | float = 1.0, transform: Any = None
    ) -> Moments:
        r"""`Moments` of one sample in the limit, where $x_l \cdot x_m / d$ is $R_{lm}$ times an input's variance."""
        slopes, readout_gradient = self.gradients(student, teacher, noise, readout, label)
        if transform is not None:
            shape = slopes.shape

            def slopes_at(fields: Float[Array, "tokens p"]) -> Float[Array, "tokens p"]:
                found = self.gradients(fields.reshape(shape), teacher, noise, readout, label)[0]
                return jnp.atleast_2d(found)

            square = variance * self.inputs.trace  # of the length of an input, over d
            gram = square * self.over_batch(1)
            slopes = transform.used_slopes(slopes_at, jnp.atleast_2d(student), gram).reshape(shape)
        if self.tokens is None:
            products = jnp.outer(slopes, student), jnp.outer(slopes, teacher), jnp.outer(slopes, slopes)
        else:
            products = slopes.T @ student, slopes.T @ teacher, slopes.T @ self.over_batch(1) @ slopes
        return Moments(
            student=products[0], teacher=products[1], square=variance * products[2], readout=readout_gradient
        )

    @property
    def seen_fields(self) -> int:
        """How many fields averages of the loss and of its slopes run over."""
        return self.inputs_per_sample * (self.width + (self.teacher_width if self.sees_teacher else 0))

    def over_tokens(self, covariance: Float[Array, "r r"]) -> Float[Array, "n n"]:
        """The covariance of the fields of all inputs of a sample, from that of the fields of one."""
        return covariance if self.tokens is None else jnp.kron(self.over_batch(1), covariance)

    def over_batch(self, batch_size: int) -> Float[Array, "inputs inputs"]:
        """The products of all inputs of a batch in the limit, over d and their variance."""
        if self.correlations is None:
            return jnp.eye(batch_size * self.inputs_per_sample)
        return jnp.kron(jnp.eye(batch_size), self.correlations)

    def rule(
        self, averaging: Averaging, *, fields: int | None = None, power: int = 2, transform: Any = None
    ) -> FieldRule:
        """The quadrature over fields (all that are seen unless told) and noise: the one asked for, or the library's.

        **Arguments:**

        - `power`: the highest power of the slopes that is averaged.
        - `transform`: what changes the slopes, if anything does; it may have kinks.
        """
        dimension = (self.seen_fields if fields is None else fields) + (self.noise_nodes is None)
        smooth = self.smooth and transform is None
        chosen = averaging.rule or self._chosen_rule(averaging.tolerance, dimension, power, smooth)
        noise_nodes = self.noise_nodes
        if noise_nodes is None and isinstance(chosen, UnorderedHermite):
            noise_nodes = chosen.nodes  # the noise is no field of an input
        if transform is not None and noise_nodes not in (None, 1):
            noise_nodes = _NOISE_NODES  # what is changed is no polynomial of the noise
        return FieldRule(chosen, noise_nodes, smooth, averaging.replica)

    def _chosen_rule(self, tolerance: float, dimension: int, power: int, smooth: bool) -> AnyRule:
        if not smooth or dimension > MOST_FIELDS:
            # The fields of several inputs act together, and points miss more of that than of sums over neurons.
            points = POINTS if self.tokens is None else _POINTS_OF_TOKENS
            many = WideSobol(points) if _grows_fast(*_stand_in(self)) else Sobol(points)
            return self._unordered_rule(tolerance, dimension, smooth) or many
        degree = self.degree
        # Slopes have a degree less and enter to this power: half as many nodes as their degree are exact. The rest is
        # for fields that they are multiplied with.
        nodes = None if degree is None else (power // 2 + 1) * max(2, degree)
        if nodes is not None and nodes**dimension <= FEW_POINTS:
            return GaussHermite(nodes)
        chosen = choose_rule(dimension, self.resolution(tolerance, power), tolerance)
        if not isinstance(chosen, Sobol):
            return chosen
        return self._unordered_rule(tolerance, dimension, smooth) or chosen

    def _unordered_rule(self, tolerance: float, dimension: int, smooth: bool) -> UnorderedHermite | None:
        """The rule for a loss that does not see the order of the inputs of a sample, where it is one and has one."""
        if self.tokens is None or not (smooth and self.exchangeable):
            return None
        return unordered_hermite(self.tokens, dimension // self.tokens, tolerance)

    @property
    def degree(self) -> int | None:
        """The degree of the loss as a polynomial of its fields; None if it is none."""
        return _degree(*_stand_in(self)) if self.features is None else self.features.degree

    def resolution(self, tolerance: float, power: int) -> Resolution:
        """What resolves powers of the slopes of the loss."""
        if self.features is None:
            return _resolution(*_stand_in(self), tolerance, power)
        return self.features.resolution(tolerance, power)

    def average(
        self,
        function: Callable[["FieldProblem", Sample, Any], PyTree[Array]],
        parameters: Any,
        state: State,
        averaging: Averaging,
        *,
        power: int = 2,
        linear_in_teacher: bool = False,
        along_means: bool = False,
        transform: Any = None,
        mean: Callable[..., PyTree[Array]] = gaussian_mean,
    ) -> PyTree[Array]:
        """The mean of a function of a fresh sample over fields, noise and components of the inputs.

        **Arguments:**

        - `function`: of the problem, a `Sample` and the parameters; closing over traced values is an error.
        - `power`: the highest power of the slopes of the loss in it; `transform`: what changes them, if anything does.
        - `linear_in_teacher`: whether the function depends on the teacher fields linearly, apart from the loss. If the
          loss does not see them, it is then enough to integrate over the student fields, with the teacher fields at
          their mean: that given the student fields, or, where the loss is smooth, that in the component (the rest
          follows by Stein's lemma, also where Q is singular and there is no regression).
        - `along_means`: whether to take the mean of the product of a vector with the means of the clusters.
        - `mean`: what is taken over the fields in each component; `largest_term` tells how good their mean is.
        """
        points = self.inputs.are_points
        reduced = linear_in_teacher and not self.sees_teacher and not points
        covariance = self.over_tokens(state.Q if reduced else state.covariance)
        field_rule = self.rule(averaging, fields=covariance.shape[-1], power=power, transform=transform)
        of_fields = functools.partial(_of_reduced_fields if reduced else _of_fields, function)
        regression = jnp.linalg.pinv(state.Q, hermitian=True) @ state.M if reduced and not self.smooth else None
        readout = self.readout_of(state)

        def in_component(center, variance, label):
            numbers = (self, readout, label, variance, parameters)
            numbers = (numbers, center, regression) if reduced else numbers
            center = center[: self.width] if reduced and center is not None else center
            if points and mean is gaussian_mean:
                # A sum, to be differentiated as one: there is no density whose derivative could be taken instead.
                return mean_over_noise(of_fields, center, numbers, *field_rule.noise_points())
            return mean(of_fields, variance * covariance, numbers, field_rule, mean=center)

        if along_means:
            assert isinstance(self.inputs, Clusters)
            return self.inputs.with_means(in_component, state)
        return self.inputs.average(in_component, state)

    def mean_rule(self, averaging: Averaging, transform: Any = None) -> AnyRule | None:
        if averaging.rule is None and self.knows_moments and transform is None:
            return None
        return self.rule(averaging, transform=transform).fields

    def mean_moments(self, state: State, averaging: Averaging, transform: Any = None) -> Moments:
        moments = self._mean_moments(state, averaging, transform)
        if MEANS not in state.families:
            return moments
        slopes = self.average(_slopes, None, state, averaging, linear_in_teacher=True, along_means=True)
        return dataclasses.replace(moments, own={MEANS: slopes})

    def _mean_moments(self, state: State, averaging: Averaging, transform: Any) -> Moments:
        known = self.known_moments(state) if averaging.rule is None and transform is None else None
        if known is not None:
            return known
        if transform is not None and transform.joins_batch and transform.batch_size > 1:
            return self._mean_over_batches(state, averaging, transform)
        by_parts = self.smooth and not self.sees_teacher and transform is None
        of_sample = _moments_and_curvature if by_parts else _sample_moments
        averages = self.average(
            of_sample, transform, state, averaging, linear_in_teacher=transform is None, transform=transform
        )
        if not by_parts:
            return averages
        moments, curvature = averages
        return eqx.tree_at(lambda m: m.teacher, moments, moments.teacher + curvature @ state.M)

    def _mean_over_batches(self, state: State, averaging: Averaging, transform: Any) -> Moments:
        """Mean `Moments` where the slopes of a sample depend on its batch: over the fields of all samples together."""
        if isinstance(averaging.rule, GaussHermite):
            raise InvalidInput(
                f"{averaging.rule!r} was given; an average over all samples of a batch of {transform.batch_size} has "
                "too many fields for it: give dimfree.Sobol(points), or no rule."
            )
        seen = self.inputs_per_sample * state.covariance.shape[-1]
        # The noise is one more field.
        sample = jnp.eye(seen + 1).at[:seen, :seen].set(self.over_tokens(state.covariance))
        covariance = jnp.kron(jnp.eye(transform.batch_size), sample)
        rule = FieldRule(self.rule(averaging, transform=transform).fields, 1, False, averaging.replica)
        return gaussian_mean(_moments_of_batch, covariance, (self, self.readout_of(state), transform), rule)

    @property
    def knows_second_moments(self) -> bool:
        """Whether `known_second_moments` has an answer."""
        return False

    def covariance_rule(self, averaging: Averaging, transform: Any = None) -> AnyRule | None:
        if averaging.rule is None and self.knows_second_moments and transform is None:
            return None
        fields = self.inputs_per_sample * (self.width + self.teacher_width)
        return self.rule(averaging, fields=fields, power=4, transform=transform).fields

    def increment_covariance(
        self, increment, parameters, state: State, averaging: Averaging, transform: Any = None
    ) -> Float[Array, "n n"]:
        known = self.known_second_moments(state) if averaging.rule is None and transform is None else None
        if known is not None:
            return covariance_of_linear(increment, parameters, self.mean_moments(state, averaging), known)
        moments = jax.eval_shape(lambda: self.mean_moments(state, averaging, transform))
        few = jax.eval_shape(increment, moments, parameters).size
        # In many blocks, the increment has more entries than the moments that it is linear in.
        many = few > sum(leaf.size for leaf in jax.tree.leaves(moments))
        of_sample = functools.partial(_increment_and_square, _ravelled if many else increment)
        first, second = self.average(of_sample, (parameters, transform), state, averaging, power=4, transform=transform)
        if many:
            mean = ravel_pytree(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), moments))[1](first)
            return covariance_of_linear(increment, parameters, mean, second)
        return second - jnp.outer(first, first)

    def single_risk(self, state: State, averaging: Averaging) -> Float[Array, ""]:
        known = self.known_risk(state) if averaging.rule is None else None
        return self.average(sample_loss, None, state, averaging, linear_in_teacher=True) if known is None else known

    def exact_moments(
        self, state: State, draws: Draws, d: Float[Array, ""], transform: Any = None
    ) -> tuple[Moments, Bool[Array, ""]]:
        r"""`Moments` of a batch in dimension d.

        Of the inputs, a step needs the fields $u_b = L y_b$ with $L L^\top$ the overlaps of all vectors and $y_b$ the
        coordinates of an input in the frame that they span, and the Gram matrix
        $x_b \cdot x_c / d = (y_b \cdot y_c + (T T^\top)_{bc}) / d$; both in each block of the inputs' spectrum. With
        more fields than dimensions the overlaps have rank d at most, and only as many columns of L count as the input
        has coordinates.

        Where a sample is several inputs, they are a batch with one loss: independent inputs mixed by a root of their
        correlations.

        Holds for inputs that are Gaussian in each component, any d >= 1 and any rank of the overlaps.
        """
        p, k, B = self.width, self.teacher_width, draws.noise.shape[-1]
        students, teachers, *own = state.families
        # Teachers first: with more fields than dimensions, the columns left without a pivot are then those of students.
        factor, normals = frames(state.grams(teachers, students, *own), draws, self.inputs.sizes(d))
        assert draws.triangle is not None
        # Many entries are made of each of these, and XLA would make them again for every one.
        factor = jax.lax.optimization_barrier(factor)
        component = self._component_of_inputs(draws)
        seen = self._mixed(self.inputs.seen(normals, component, factor[:, :k]))
        unseen = self._mixed(self.inputs.unseen(draws.triangle, component))
        gram = (seen @ jnp.swapaxes(seen, 1, 2) + unseen @ jnp.swapaxes(unseen, 1, 2)) / d
        fields, gram = jax.lax.optimization_barrier((seen @ jnp.swapaxes(factor, 1, 2), gram))
        teacher, student, *others = jnp.split(fields, [k + p * number for number in range(1 + len(own))], axis=2)
        slopes, readout_gradient = self._batch_gradients(
            _sum(student), _sum(teacher), draws, self.readout_of(state), _sum(gram), transform
        )
        slopes = jax.lax.optimization_barrier(slopes)
        moments = Moments(
            student=slopes.T @ student / B,
            teacher=slopes.T @ teacher / B,
            square=slopes.T @ gram @ slopes / B**2,
            readout=None if readout_gradient is None else jnp.mean(readout_gradient, axis=0),
            own={family: slopes.T @ field / B for family, field in zip(own, others, strict=True)},
        )
        return moments, is_bounded(_sum(student), slopes)

    def vector_gradient(self, weights, teacher_weights, readout, draws: Draws, transform: Any = None):
        B, d = draws.noise.shape[-1], draws.normals.shape[-1]
        inputs = self._mixed(self.inputs.vectors(draws.normals, self._component_of_inputs(draws), teacher_weights))
        student, teacher = inputs @ weights.T / d**0.5, inputs @ teacher_weights.T / d**0.5
        readout = self.readout if readout is None else readout
        gram = None if transform is None else inputs @ inputs.T / d
        slopes, gradient = self._batch_gradients(student, teacher, draws, readout, gram, transform)
        mean_gradient = None if gradient is None else jnp.mean(gradient, axis=0)
        return slopes.T @ inputs / (B * d**0.5), mean_gradient, is_bounded(student, slopes)

    def _batch_gradients(self, student, teacher, draws: Draws, readout, gram, transform):
        """The slopes of each input that a step on a batch uses, and the derivatives of the losses by the readout."""
        label = self.inputs.label(self.inputs.component(draws.choice))
        of_samples = jax.vmap(self.gradients, in_axes=(0, 0, 0, None, 0))

        def of_batch(student):
            slopes, readout_gradient = of_samples(
                self._by_sample(student), self._by_sample(teacher), draws.noise, readout, label
            )
            return slopes.reshape(student.shape), readout_gradient

        slopes, readout_gradient = of_batch(student)
        if transform is not None:
            slopes = transform.used_slopes(lambda fields: of_batch(fields)[0], student, gram)
        return slopes, readout_gradient

    def _by_sample(self, rows: Float[Array, "inputs n"]) -> Float[Array, "B *tokens n"]:
        """What there is of each input of a batch, sample by sample."""
        return rows if self.tokens is None else rows.reshape(-1, self.tokens, rows.shape[-1])

    def _component_of_inputs(self, draws: Draws) -> Int[Array, " inputs"]:
        component = self.inputs.component(draws.choice)
        return component if self.tokens is None else jnp.repeat(component, self.tokens)

    def _mixed(self, rows: Float[Array, "*blocks inputs n"]) -> Float[Array, "*blocks inputs n"]:
        """Inputs with their correlations within a sample, made of independent ones."""
        if self.correlations is None:
            return rows
        independent = rows.reshape(*rows.shape[:-2], -1, self.inputs_per_sample, rows.shape[-1])
        return (psd_factor(self.correlations)[0] @ independent).reshape(rows.shape)


def _sum(blocks: Float[Array, "blocks *shape"]) -> Float[Array, "*shape"]:
    """The sum over blocks."""
    return blocks[0] if blocks.shape[0] == 1 else jnp.sum(blocks, axis=0)


class LossOfFields(eqx.Module):
    """The loss as a function of all its fields, and of the noise where it is one of them, in one array."""

    problem: FieldProblem

    @property
    def dimension(self) -> int:
        """How many numbers it takes."""
        problem = self.problem
        return problem.inputs_per_sample * (problem.width + problem.teacher_width) + (problem.noise_nodes is None)

    def __call__(self, fields: Any) -> Any:
        problem = self.problem
        seen = problem.inputs_per_sample * (problem.width + problem.teacher_width)
        noise = fields[seen] if problem.noise_nodes is None else jnp.zeros(())
        student, teacher = split_fields(problem, by_token(problem, fields[:seen]))
        return problem.loss(student, teacher, noise, problem.readout, problem.inputs.label(0))


def features_of(problem: FieldProblem, readout: Any) -> Features:
    """What averages have to know of a loss with numbers in its functions, with a readout that stands for any."""
    if readout is not None:
        problem = eqx.tree_at(lambda each: each.readout, problem, readout)
    loss = LossOfFields(problem)
    return Features(loss, loss.dimension)


def of_order_one(shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Numbers that stand for traced ones; no two of them alike, since a softmax of equal outputs is constant."""
    return jnp.asarray(2.0 + 0.5 * np.sin(2.0 * np.arange(np.prod(shape, dtype=int)))).reshape(shape)


def _stand_in(problem: FieldProblem) -> tuple:
    """What a problem is apart from its numbers, which may be traced: something to find out once about all like it."""
    arrays, static = eqx.partition(problem, eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)
    return static, structure, tuple(leaf.shape for leaf in leaves)


def _loss_of_all(static: FieldProblem, structure, shapes: tuple) -> tuple[LossOfFields, int]:
    """The loss of all fields and how many there are, with a readout, and all other numbers, of order one."""
    with jax.ensure_compile_time_eval():
        arrays = jax.tree.unflatten(structure, list(map(of_order_one, shapes)))
    loss = LossOfFields(eqx.combine(arrays, static))
    return loss, loss.dimension


@functools.lru_cache(maxsize=256)
def _resolution(static: FieldProblem, structure, shapes: tuple, tolerance: float, power: int) -> Resolution:
    return loss_resolution(*_loss_of_all(static, structure, shapes), tolerance, power)


@functools.lru_cache(maxsize=256)
def _degree(static: FieldProblem, structure, shapes: tuple) -> int | None:
    return loss_degree(*_loss_of_all(static, structure, shapes))


@functools.lru_cache(maxsize=256)
def _grows_fast(static: FieldProblem, structure, shapes: tuple) -> bool:
    """Whether squares of slopes matter most where few points of Sobol lie."""
    return slope_growth(*_loss_of_all(static, structure, shapes)) > _FAST


def by_token(problem: FieldProblem, fields: Float[Array, " n"]) -> Float[Array, "*tokens _"]:
    """Fields of one sample, a row for each of its inputs where it has several."""
    return fields if problem.tokens is None else fields.reshape(problem.tokens, -1)


def split_fields(problem: Problem, fields: Float[Array, "... r"]):
    """Student and teacher fields."""
    return fields[..., : problem.width], fields[..., problem.width :]


def _of_fields(function, fields, noise, parameters):
    problem, readout, label, variance, others = parameters
    student, teacher = split_fields(problem, by_token(problem, fields))
    return function(problem, Sample(student, teacher, noise, readout, label, variance), others)


def _of_reduced_fields(function, student, noise, parameters):
    inner, mean, regression = parameters
    problem = inner[0]
    mean = jnp.zeros(problem.width + problem.teacher_width) if mean is None else mean
    student_mean, teacher = split_fields(problem, mean)
    student = by_token(problem, student)
    teacher = jnp.broadcast_to(teacher, (*student.shape[:-1], problem.teacher_width))
    if regression is not None:
        teacher = teacher + (student - student_mean) @ regression
    return _of_fields(function, jnp.concatenate([student, teacher], axis=-1).reshape(-1), noise, inner)


def sample_loss(problem: FieldProblem, sample: Sample, parameters):
    return problem.loss(sample.student, sample.teacher, sample.noise, sample.readout, sample.label)


def _slopes(problem: FieldProblem, sample: Sample, parameters) -> Float[Array, " p"]:
    return problem.gradients(sample.student, sample.teacher, sample.noise, sample.readout, sample.label)[0]


def _sample_moments(problem: FieldProblem, sample: Sample, transform) -> Moments:
    return problem.sample_moments(
        sample.student, sample.teacher, sample.noise, sample.readout, sample.label, sample.variance, transform
    )


def _moments_of_batch(fields, noise, parameters) -> Moments:
    """`Moments` of a batch whose samples are orthogonal, with `square` the mean of theirs."""
    problem, readout, transform = parameters
    samples = fields.reshape(transform.batch_size, -1)
    inputs = samples[:, :-1].reshape(transform.batch_size * problem.inputs_per_sample, -1)
    student, teacher = split_fields(problem, inputs)
    draws = Draws(normals=inputs, noise=samples[:, -1], choice=jnp.zeros(len(samples)))
    products = problem.over_batch(len(samples))
    gram = problem.inputs.trace * products
    slopes, readout_gradient = problem._batch_gradients(student, teacher, draws, readout, gram, transform)
    return Moments(
        student=slopes.T @ student / len(samples),
        teacher=slopes.T @ teacher / len(samples),
        square=slopes.T @ products @ slopes / len(samples),
        readout=None if readout_gradient is None else jnp.mean(readout_gradient, axis=0),
    )


def _moments_and_curvature(problem: FieldProblem, sample: Sample, parameters) -> tuple[Moments, Float[Array, "p p"]]:
    r"""`Moments` with the teacher fields at their mean, and what gives the rest of it by Stein's lemma.

    $\mathbb{E}[s_i (\lambda^*_r - \mathbb{E} \lambda^*_r)]
    = \sum_j \text{variance} \, \mathbb{E}[\partial_j s_i] M_{jr}$, whatever the rank of Q.
    """
    curvature = jax.hessian(problem.loss)(sample.student, sample.teacher, sample.noise, sample.readout, sample.label)
    if problem.tokens is not None:
        curvature = jnp.einsum("lm,limj->ij", problem.over_batch(1), curvature)
    return _sample_moments(problem, sample, None), sample.variance * curvature


def _ravelled(moments: Moments, parameters) -> Float[Array, " m"]:
    return ravel_pytree(moments)[0]


def _increment_and_square(increment, problem: FieldProblem, sample: Sample, parameters):
    given, transform = parameters
    vector = increment(_sample_moments(problem, sample, transform), given)
    return vector, jnp.outer(vector, vector)
