"""The limit of algorithms that scale each coordinate of the gradient by its own past: sign descent, RMSProp, Adam."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms.coordinate_wise import SECOND_MOMENT, WEIGHT, CoordinateWise, check_coordinates
from ..algorithms.online import OnlineAlgorithm
from ..algorithms.schedules import rate_at
from ..errors import InvalidInput, is_concrete
from ..gaussian.means import FieldRule, gaussian_mean
from ..gaussian.rules import AnyRule, Averaging, Sobol
from ..problems import FieldProblem, Moments, Problem
from ..problems.base import on_range
from ..problems.field_problem import split_fields
from ..state import State
from .drift import MeanLimit
from .lags import Lags, Tables, lags

_NOISE_NODES = 48  # with 12, label noise of variance one cost 2e-3 of a drift; with 48, 1e-6
_SHORT = 0.8  # beta2 below which averages are almost those of a sign, with a kink where a slope is zero
_POINTS = 2**14  # where there is such a kink
_SIGNS = 2**17  # where there is little to do at each


class CoordinateWiseLimit(MeanLimit):
    r"""The limit where each coordinate of the gradient is over the root of its own running mean square.

    With $E_b = \kappa_b A G_b$ and $\mathbb{E}[s s^\top]$ of [`ode`], what takes the place of the gradient has

    - with a memory of order d ($\dot v_b = (c / B) (\kappa_b \mathbb{E}[s^2] / B - v_b)$): the products
      $D_b E_b$ and the square $\pi_b \kappa_b D_b \mathbb{E}[s s^\top] D_b / B$, $D_b = 1 / (\sqrt{\hat v_b} +
      \text{epsilon})$;
    - with fixed betas: $\sqrt{\kappa_b} \, R \, \Omega^+ G_b$ and $\pi_b N$, with the response R and the long-run
      variance N of m / sqrt(v) (see `Lags`): no eigenvalue scales a ratio.

    Use [`ode`] or [`gradient_flow`] to make one.
    """

    @property
    def coordinate_rule(self) -> CoordinateWise:
        """What scales the coordinates, whatever stands beside it."""
        return self.algorithm.by_coordinate

    def freezes(self, start: State, times: Float[Array, " times"]) -> bool:
        return False

    @property
    def rule(self) -> AnyRule | None:
        if self.coordinate_rule.forgetting is not None:
            return self.problem.mean_rule(self.averaging, self.algorithm.transform)
        return self._field_rule.fields

    @property
    def rough(self) -> bool:
        return self.coordinate_rule.beta2 is not None or super().rough

    @property
    def _field_rule(self) -> FieldRule:
        """How averages of functions of the slopes are taken that are not polynomials of them."""
        problem, by = self.problem, self.averaging
        assert isinstance(problem, FieldProblem)
        rule = self.coordinate_rule
        if rule.beta2 is not None and rule.beta2 < _SHORT and by.rule is None:
            return FieldRule(Sobol(_SIGNS if only_signs(rule) else _POINTS), None, False, by.replica)
        found = problem.rule(by, fields=problem.width + problem.teacher_width, power=4)
        nodes = found.noise_nodes if found.noise_nodes in (None, 1) else _NOISE_NODES
        return FieldRule(found.fields, nodes, found.smooth, by.replica)

    def _drift(self, alpha, state: State, moments: Moments) -> State:
        alpha, inputs = jnp.asarray(alpha, float), self.problem.inputs
        shape = (inputs.blocks, self.problem.width, self.problem.width)
        square = jnp.broadcast_to(moments.square, shape) / self.coordinate_rule.batch_size
        by_memory = self.coordinate_rule.forgetting is not None
        used = self._by_memory(state, moments, square) if by_memory else self._by_lags(state, moments, square)
        if not self.second_order:
            used = eqx.tree_at(lambda m: m.square, used, jnp.zeros_like(used.square))
        tangent = self.algorithm.mover.increment(state, used, alpha)
        tangent = State.of(tangent.overlaps, tangent.readout, self._remeasured(state, square))
        return jax.tree.map(lambda rate: rate / self.coordinate_rule.batch_size, tangent)

    # With a memory of order d.

    def _mean_squares(self, square: Float[Array, "blocks p p"]) -> Float[Array, "blocks p"]:
        return jnp.diagonal(square, axis1=1, axis2=2) / self.problem.inputs.fractions[:, None]

    def _remeasured(self, state: State, square: Float[Array, "blocks p p"]) -> dict[str, Array]:
        """How a step changes what is measured, times d."""
        forgetting = self.coordinate_rule.forgetting
        if forgetting is None:
            return {}
        second, weight = state.numbers[SECOND_MOMENT], state.numbers[WEIGHT]
        return {SECOND_MOMENT: forgetting * (self._mean_squares(square) - second), WEIGHT: forgetting * (1 - weight)}

    def _by_memory(self, state: State, moments: Moments, square: Float[Array, "blocks p p"]) -> Moments:
        weight, second = state.numbers[WEIGHT], state.numbers[SECOND_MOMENT]
        # Before the first sample the mean over the past is that of the first.
        begun = weight > 0
        mean = jnp.where(begun, second / jnp.where(begun, weight, 1.0), self._mean_squares(square))
        moves = mean > 0
        scale = jnp.where(moves, 1 / (jnp.sqrt(jnp.where(moves, mean, 1.0)) + self.coordinate_rule.epsilon), 0.0)
        return Moments(
            student=scale[..., None] * moments.student,
            teacher=scale[..., None] * moments.teacher,
            square=scale[..., None] * square * scale[:, None, :],
            readout=moments.readout,
            own={family: scale[..., None] * products for family, products in moments.own.items()},
        )

    # With fixed betas.

    def _by_lags(self, state: State, moments: Moments, square: Float[Array, "blocks p p"]) -> Moments:
        inputs = self.problem.inputs
        fields = inputs.fields(state)
        variance = jnp.diagonal(jnp.sum(square, axis=0)) / inputs.trace
        response, spread = self._response(fields, variance * self.coordinate_rule.batch_size)
        matrix = on_range(fields.covariance, response.T).T
        roots = jnp.sqrt(inputs.eigenvalues)[:, None, None]
        students, teachers, *own = state.families

        def along(family: str) -> Float[Array, "blocks p n"]:
            return roots * (matrix @ state.blocks_with_seen(family))

        present = inputs.fractions * (inputs.eigenvalues > 0)  # without inputs there is nothing to take the sign of
        return Moments(
            student=along(students),
            teacher=along(teachers),
            square=present[:, None, None] * spread,
            readout=moments.readout,
            own={family: along(family) for family in own},
        )

    def _response(self, fields: State, variance: Float[Array, " p"]) -> tuple[Float[Array, "p r"], Float[Array, "p p"]]:
        """How m / sqrt(v) responds to the fields, and its long-run variance (not known for p > 1, where it is zero)."""
        rule, problem = self.coordinate_rule, self.problem
        assert isinstance(problem, FieldProblem)
        assert rule.beta2 is not None
        if only_signs(rule):
            numbers = (problem, problem.readout_of(fields))
            response, square = gaussian_mean(_signs, fields.covariance, numbers, self._field_rule)
            return (2 / jnp.pi) ** 0.5 * response, square
        found = lags(rule.beta1, rule.beta2, rule.batch_size)
        numbers = (problem, problem.readout_of(fields), jnp.asarray(found.nodes), jnp.sqrt(_positive(variance)))
        tables = gaussian_mean(_tables, fields.covariance, numbers, self._field_rule)
        return found.drift(tables), self._spread(found, tables)

    def _spread(self, found: Lags, tables: Tables) -> Float[Array, "p p"]:
        if not self.second_order:
            return jnp.zeros((self.problem.width, self.problem.width))
        return jnp.ones((1, 1)) if self.coordinate_rule.beta2 == 0 else found.spread(tables)[:, None]

    @eqx.filter_jit
    def drift_and_size(self, alpha, state: State) -> tuple[Float[Array, " n"], Float[Array, ""]]:
        """The drift, and the size of what is averaged in it: what takes the place of the gradient has variance one."""
        begun, fractions = self.begun(state), self.problem.inputs.fractions[:, None]
        norms = [jnp.diagonal(begun.blocks_of(each, each), axis1=1, axis2=2) for each in begun.families]
        longest = jnp.max(jnp.concatenate([jnp.sqrt(fractions * norm) for norm in norms], axis=1))
        rate = rate_at(self.coordinate_rule.learning_rate, jnp.asarray(alpha, float))
        size = (rate * longest + rate**2) / self.coordinate_rule.batch_size
        return self.coordinates.pack(self.drift(alpha, state)), size


def only_signs(rule: CoordinateWise) -> bool:
    """Whether a step goes along the sign of one slope times an input: averages of that sign are all it needs."""
    return rule.beta2 == 0 and rule.batch_size == 1


def _signs(fields: Float[Array, " r"], noise: Float[Array, ""], parameters: Any) -> tuple[Array, Array]:
    """The products of the sign of the slopes with the fields, and with itself."""
    problem, readout = parameters
    signs = jnp.sign(problem.gradients(*split_fields(problem, fields), noise, readout)[0])
    return jnp.outer(signs, fields), jnp.outer(signs, signs)


def _positive(variance: Float[Array, " p"]) -> Float[Array, " p"]:
    return jnp.where(variance > 0, variance, 1.0)


def _tables(fields: Float[Array, " r"], noise: Float[Array, ""], parameters: Any) -> Tables:
    problem, readout, nodes, scale = parameters
    student, teacher = split_fields(problem, fields)
    slopes = (problem.gradients(student, teacher, noise, readout)[0] / scale)[:, None]
    decay = jnp.expm1(-jnp.exp(nodes) * slopes**2)
    kept = slopes * (1 + decay)
    return Tables(decay, kept[..., None] * fields, kept * slopes)


def coordinate_wise_limit(
    problem: Problem, algorithm: OnlineAlgorithm, by: Averaging, *, second_order: bool
) -> CoordinateWiseLimit:
    """The limit, or an error where it is not known."""
    check_coordinates(problem, algorithm)
    rule: CoordinateWise = algorithm.by_coordinate
    with_epsilon = not is_concrete(rule.epsilon) or float(rule.epsilon) > 0
    if rule.forgetting is not None and not rule.bias_correction and not with_epsilon:
        raise InvalidInput(
            f"{algorithm!r} starts with v = 0, epsilon = 0 and a memory of order d: its first steps are larger the "
            "larger d is, and have no limit. Give epsilon > 0, or dimfree.Adam(learning_rate, beta1=0.0, "
            "forgetting=...), which corrects the bias."
        )
    changed = algorithm.transform is not None or algorithm.move(jnp.zeros(())).point
    if rule.forgetting is None and changed:
        raise InvalidInput(
            f"{algorithm!r} changes the gradient, or takes it at another point, before a fixed beta2 scales it; this "
            "limit is known with a memory of order d: give forgetting = d (1 - beta2), which in dimension d is the "
            "same algorithm."
        )
    if rule.forgetting is None and with_epsilon:
        raise InvalidInput(
            f"{algorithm!r} has an epsilon and a fixed beta2; its limit is known with epsilon = 0, or with a memory of "
            "order d: give forgetting = d (1 - beta2), which in dimension d is the same algorithm."
        )
    if second_order and rule.forgetting is None and problem.width > 1 and not only_signs(rule):
        raise InvalidInput(
            f"The term of second order of {algorithm!r} is not known for {problem.width} students: it needs how the "
            "steps of two students are correlated. dimfree.gradient_flow has the limit without it, forgetting = "
            'd (1 - beta2) in the place of beta2 all of it, and dimfree.simulate(..., method="vectors") the runs.'
        )
    return CoordinateWiseLimit(problem, algorithm, by, second_order)
