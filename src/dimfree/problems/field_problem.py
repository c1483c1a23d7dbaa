"""Problems whose loss sees an input through finitely many local fields."""

import abc
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..gaussian.expectation import FieldRule, expectation
from ..gaussian.factor import psd_factor
from ..gaussian.rules import GaussHermite, Rule, choose_rule
from ..state import State
from .base import Draws, Moments, Problem, covariance_of_linear, is_bounded
from .clusters import Clusters


class Sample(eqx.Module):
    """One sample as a loss sees it; `variance` is that of a coordinate of its input."""

    student: Float[Array, " p"]
    teacher: Float[Array, " k"]
    noise: Float[Array, ""]
    readout: Float[Array, " n"] | None
    label: Float[Array, "*label"] | None
    variance: Float[Array, ""]


class FieldProblem(Problem):
    """A loss of local fields, of inputs that are standard normal or come from Gaussian clusters.

    Such a problem is its `loss` of one sample. Where the averages that a limit needs are known exactly, the problem may
    offer them (`known_moments`, `known_second_moments`, `known_risk`); everything works without.
    """

    @abc.abstractmethod
    def loss(
        self,
        student: Float[Array, " p"],
        teacher: Float[Array, " k"],
        noise: Float[Array, ""],
        readout: Float[Array, " n"] | None,
        label: Float[Array, "*label"] | None = None,
    ) -> Float[Array, ""]:
        r"""The loss of one sample.

        **Arguments:**

        - `student`, `teacher`: the fields $\lambda$ and $\lambda^*$.
        - `noise`: a standard normal number.
        - `readout`: the finite-dimensional parameters.
        - `label`: that of the sample's cluster, where inputs come from clusters.
        """

    @property
    def clusters(self) -> Clusters | None:
        """The law of the inputs; None where they are standard normal."""
        return None

    @property
    def cluster_probabilities(self) -> Float[Array, " c"] | None:
        return None if self.clusters is None else self.clusters.probabilities

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

    # Derived from the loss.

    def gradients(
        self, student, teacher, noise, readout, label=None
    ) -> tuple[Float[Array, " p"], Float[Array, " n"] | None]:
        """Derivatives of the loss of one sample with respect to the student fields and to the readout."""
        if readout is None:
            return jax.grad(self.loss)(student, teacher, noise, None, label), None
        return jax.grad(self.loss, argnums=(0, 3))(student, teacher, noise, readout, label)

    def sample_moments(self, student, teacher, noise, readout, label=None, variance: Array | float = 1.0) -> Moments:
        r"""`Moments` of one sample in the limit, where $\|x\|^2 / d$ is the variance of an input's coordinates."""
        slopes, readout_gradient = self.gradients(student, teacher, noise, readout, label)
        return Moments(
            student=jnp.outer(slopes, student),
            teacher=jnp.outer(slopes, teacher),
            square=variance * jnp.outer(slopes, slopes),
            readout=readout_gradient,
        )

    def rule(self, rule: Rule | None = None, *, fields: int | None = None) -> FieldRule:
        """The quadrature over fields (all of them unless told) and noise: the one given, or the library's choice."""
        fields = self.width + self.teacher_width if fields is None else fields
        dimension = fields + (self.noise_nodes is None)
        chosen = choose_rule(dimension, smooth=self.smooth) if rule is None else rule
        return FieldRule(chosen, self.noise_nodes, self.smooth)

    def average(
        self,
        function: Callable[["FieldProblem", Sample, Any], PyTree[Array]],
        parameters: Any,
        state: State,
        rule: Rule | None,
        *,
        companion: bool = False,
        linear_in_teacher: bool = False,
    ) -> PyTree[Array]:
        """The mean of a function of a fresh sample over fields, noise and clusters.

        **Arguments:**

        - `function`: of the problem, a `Sample` and the parameters; closing over traced values is an error.
        - `companion`: whether to take another rule of the kind, to estimate the error with.
        - `linear_in_teacher`: whether the function depends on the teacher fields linearly, apart from the loss. If the
          loss does not see them, it is then enough to integrate over the student fields, with the teacher fields at
          their mean: that given the student fields, or, where the loss is smooth, that in the cluster (the rest follows
          by Stein's lemma, also where Q is singular and there is no regression).
        """
        points = self.clusters is not None and self.clusters.are_points
        reduced = linear_in_teacher and not self.sees_teacher and not points
        covariance = state.Q if reduced else state.covariance
        field_rule = self.rule(rule, fields=covariance.shape[-1])
        field_rule = field_rule.companion() if companion else field_rule
        of_fields = functools.partial(_of_reduced_fields if reduced else _of_fields, function)
        regression = jnp.linalg.pinv(state.Q, hermitian=True) @ state.M if reduced and not self.smooth else None
        readout, clusters = self.readout_of(state), self.clusters

        def in_cluster(mean, variance, label):
            numbers = (self, readout, label, variance, parameters)
            numbers = (numbers, mean, regression) if reduced else numbers
            center = mean[: self.width] if reduced and mean is not None else mean
            if points:
                # A sum, to be differentiated as one: there is no density whose derivative could be taken instead.
                return _mean_over_noise(of_fields, center, numbers, field_rule)
            return expectation(of_fields, variance * covariance, numbers, field_rule, mean=center)

        if clusters is None:
            return in_cluster(None, jnp.ones(()), None)
        values = jax.vmap(in_cluster)(clusters.field_means(state), clusters.spread, clusters.labels)
        return jax.tree.map(lambda value: jnp.tensordot(clusters.probabilities, value, axes=1), values)

    def mean_moments(self, state: State, rule: Rule | None, *, companion: bool = False) -> Moments:
        known = None if rule is not None or companion else self.known_moments(state)
        if known is not None:
            return known
        by_parts = self.smooth and not self.sees_teacher
        of_sample = _moments_and_curvature if by_parts else _sample_moments
        averages = self.average(of_sample, None, state, rule, companion=companion, linear_in_teacher=True)
        if not by_parts:
            return averages
        moments, curvature = averages
        return eqx.tree_at(lambda m: m.teacher, moments, moments.teacher + curvature @ state.M)

    def increment_covariance(self, increment, parameters, state: State, rule: Rule | None) -> Float[Array, "n n"]:
        known = self.known_second_moments(state) if rule is None else None
        if known is not None:
            return covariance_of_linear(increment, parameters, self.mean_moments(state, None), known)
        of_sample = functools.partial(_increment_and_square, increment)
        first, second = self.average(of_sample, parameters, state, rule)
        return second - jnp.outer(first, first)

    def expectation_words(self, rule: Rule | None) -> str:
        if rule is None and self.knows_moments:
            return "closed form"
        fields = self.width + (self.teacher_width if self.sees_teacher else 0)
        chosen = self.rule(rule, fields=fields).fields
        if isinstance(chosen, GaussHermite):
            return f"Gauss-Hermite, {chosen.nodes} nodes for each of {fields} fields"
        return f"scrambled Sobol, {chosen.number} points and their mirror images over {fields} fields"

    def single_risk(self, state: State) -> Float[Array, ""]:
        exact = self.known_risk(state)
        return self.numerical_risk(state) if exact is None else exact

    def numerical_risk(self, state: State, rule: Rule | None = None) -> Float[Array, ""]:
        """The mean of the loss by quadrature."""
        return self.average(_loss, None, state, rule, linear_in_teacher=True)

    def exact_moments(self, state: State, draws: Draws, d: Float[Array, ""]) -> tuple[Moments, Bool[Array, ""]]:
        r"""`Moments` of a batch in dimension d.

        Of the inputs, a step needs the fields $u_b = L y_b$ with $L L^\top$ the overlaps of all weights and $y_b$ the
        coordinates of an input in the frame that they span, and the Gram matrix
        $x_b \cdot x_c / d = (y_b \cdot y_c + (T T^\top)_{bc}) / d$. With more fields than dimensions the overlaps
        have rank d at most, and only as many columns of L count as the input has coordinates.

        Holds for Gaussian inputs and clusters, any d >= 1 and any rank of the overlaps.
        """
        p, k, B = self.width, self.teacher_width, draws.noise.shape[-1]
        # Teachers first: with more fields than dimensions, the columns left without a pivot are then those of students.
        order = jnp.asarray([*range(p, p + k), *range(p)])
        factor, in_use = psd_factor(state.covariance[order][:, order])
        in_use = in_use & (jnp.cumsum(in_use) <= d)  # a pivot beyond the d-th is rounding, whatever its size
        factor = jnp.where(in_use, factor, 0.0)
        # Every input has d coordinates: those that the fields see, then unseen ones. Columns without a pivot are
        # unseen coordinates too, as many as there is room for.
        room = d - jnp.sum(in_use)
        seen = jnp.where(in_use | (jnp.cumsum(~in_use) <= room), draws.normals, 0.0)
        unseen, label, clusters = draws.triangle, None, self.clusters
        assert unseen is not None
        if clusters is not None:
            scale = jnp.sqrt(clusters.spread)[draws.cluster][:, None]
            seen = scale * seen + clusters.means[draws.cluster] @ factor[:k]
            unseen, label = scale * unseen, clusters.labels[draws.cluster]
        fields = seen @ factor.T
        student, teacher = fields[:, k:], fields[:, :k]
        slopes, readout_gradient = jax.vmap(self.gradients, in_axes=(0, 0, 0, None, 0))(
            student, teacher, draws.noise, self.readout_of(state), label
        )
        gram = (seen @ seen.T + unseen @ unseen.T) / d
        moments = Moments(
            student=slopes.T @ student / B,
            teacher=slopes.T @ teacher / B,
            square=slopes.T @ gram @ slopes / B**2,
            readout=None if readout_gradient is None else jnp.mean(readout_gradient, axis=0),
        )
        return moments, is_bounded(student, slopes)

    def vector_gradient(self, weights, teacher_weights, readout, draws: Draws):
        inputs, label, clusters = draws.normals, None, self.clusters
        B, d = inputs.shape
        if clusters is not None:
            means = clusters.means[draws.cluster] @ teacher_weights / d**0.5
            inputs = jnp.sqrt(clusters.spread)[draws.cluster][:, None] * inputs + means
            label = clusters.labels[draws.cluster]
        student, teacher = inputs @ weights.T / d**0.5, inputs @ teacher_weights.T / d**0.5
        slopes, gradient = jax.vmap(self.gradients, in_axes=(0, 0, 0, None, 0))(
            student, teacher, draws.noise, self.readout if readout is None else readout, label
        )
        mean_gradient = None if gradient is None else jnp.mean(gradient, axis=0)
        return slopes.T @ inputs / (B * d**0.5), mean_gradient, is_bounded(student, slopes)


def split_fields(problem: Problem, fields: Float[Array, "... r"]):
    """Student and teacher fields."""
    return fields[..., : problem.width], fields[..., problem.width :]


def _mean_over_noise(of_fields, fields, parameters, rule: FieldRule):
    """The mean over the noise alone."""
    _, noise, weights = FieldRule(GaussHermite(1), rule.noise_nodes or 32, rule.smooth).points(1)
    values = jax.vmap(of_fields, in_axes=(None, 0, None))(fields, jnp.asarray(noise), parameters)
    return jax.tree.map(lambda value: jnp.tensordot(jnp.asarray(weights), value, axes=1), values)


def _of_fields(function, fields, noise, parameters):
    problem, readout, label, variance, others = parameters
    student, teacher = split_fields(problem, fields)
    return function(problem, Sample(student, teacher, noise, readout, label, variance), others)


def _of_reduced_fields(function, student, noise, parameters):
    inner, mean, regression = parameters
    problem = inner[0]
    mean = jnp.zeros(problem.width + problem.teacher_width) if mean is None else mean
    student_mean, teacher = split_fields(problem, mean)
    if regression is not None:
        teacher = teacher + (student - student_mean) @ regression
    return _of_fields(function, jnp.concatenate([student, teacher]), noise, inner)


def _loss(problem: FieldProblem, sample: Sample, parameters):
    return problem.loss(sample.student, sample.teacher, sample.noise, sample.readout, sample.label)


def _sample_moments(problem: FieldProblem, sample: Sample, parameters) -> Moments:
    return problem.sample_moments(
        sample.student, sample.teacher, sample.noise, sample.readout, sample.label, sample.variance
    )


def _moments_and_curvature(problem: FieldProblem, sample: Sample, parameters) -> tuple[Moments, Float[Array, "p p"]]:
    r"""`Moments` with the teacher fields at their mean, and what gives the rest of it by Stein's lemma.

    $\mathbb{E}[s_i (\lambda^*_r - \mathbb{E} \lambda^*_r)]
    = \sum_j \text{variance} \, \mathbb{E}[\partial_j s_i] M_{jr}$, whatever the rank of Q.
    """
    curvature = jax.hessian(problem.loss)(sample.student, sample.teacher, sample.noise, sample.readout, sample.label)
    return _sample_moments(problem, sample, None), sample.variance * curvature


def _increment_and_square(increment, problem: FieldProblem, sample: Sample, parameters):
    vector = increment(_sample_moments(problem, sample, None), parameters)
    return vector, jnp.outer(vector, vector)
