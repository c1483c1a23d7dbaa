"""Averages of products of few outputs, for activations without closed forms."""

import functools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from ..batches import map_in_batches
from ..functions import Function
from .activations import Activation
from .factor import psd_factor
from .grids import Grid, average_over_grid
from .integrals import ActivationIntegrals, NetworkAverages
from .means import FieldRule, gaussian_mean
from .resolution import Resolution, finest
from .rules import AnyRule, Averaging, Trapezoid, choose_rule, shifts_of

_TABLE = 2048  # entries of a table of smoothed outputs
_STENCIL = 8  # of them that an interpolation takes
_MANY = 4  # fields, beyond which squares are averaged over points


class ProductIntegrals(ActivationIntegrals):
    r"""Averages of any activations, those of students and teachers apart, over the few fields that each term sees.

    By Stein's lemma $\mathbb{E}[g'(u_i) u_b e_0] = C_{ib} \sum_s c_s \mathbb{E}[g''(u_i) g(u_s)]
    + \sum_s c_s \mathbb{E}[g'(u_i) g'(u_s)] C_{sb}$: averages over two fields, at any width. The square of the error
    sees all fields. For up to four, what the last of them (a teacher's) has of its own is averaged beforehand, into
    tables over its mean; beyond, all are averaged over Sobol points.

    Holds for activations whose curvature does not jump.

    **Attributes:**

    - `student`: the students' activation; `teacher`: the teachers', where it is another.
    - `students`: how many fields, the first, are those of students.
    - `averaging`: how exactly.
    """

    student: Activation
    teacher: Activation | None
    students: int = eqx.field(static=True)
    averaging: Averaging

    @property
    def resolution(self) -> Resolution:
        """What resolves all that is averaged."""
        return finest(*(each.resolution(self.averaging.tolerance) for each in self.activations))

    @property
    def activations(self) -> tuple[Activation, ...]:
        """One for all, or that of the students and that of the teachers."""
        return (self.student,) if self.teacher is None else (self.student, self.teacher)

    @property
    def _functions(self) -> tuple[Function, ...]:
        return tuple(activation.function for activation in self.activations)

    def rule(self, fields: int) -> AnyRule:
        """The rule for terms that see so many fields."""
        return choose_rule(fields, None if fields > _MANY else self.resolution, self.averaging.tolerance)

    def outputs(self, covariance: Float[Array, "fields fields"]) -> Float[Array, "fields fields"]:
        r"""$\mathbb{E}[g(u_s) g(u_t)]$, over two fields at a time."""
        upper = self._pairs(_outputs, covariance)
        return _completed(upper, upper)

    def slopes(self, covariance, width):
        return self._stein(covariance, width)[1][:, :width]

    def gradient(self, covariance, weights, width):
        return _gradient(*self._stein(covariance, width)[1:], covariance, weights)

    def averages(self, covariance, weights, width) -> NetworkAverages:
        outputs, slopes, curvatures = self._stein(covariance, width)
        return NetworkAverages(
            outputs=outputs,
            slopes=slopes[:, :width],
            gradient=_gradient(slopes, curvatures, covariance, weights),
            gradient_square=self.gradient_square(covariance, weights, width),
        )

    def gradient_square(self, covariance, weights, width):
        fields = covariance.shape[0]
        rule = self.rule(fields)
        functions = self._functions
        if fields <= 2 or not isinstance(rule, Trapezoid):
            field_rule = FieldRule(rule, 1, True, self.averaging.replica)
            return gaussian_mean(functools.partial(_square, width), covariance, (functions, weights), field_rule)
        factor, _ = psd_factor(jax.lax.stop_gradient(covariance))
        table = jax.lax.stop_gradient(_Table.of(functions[-1], factor[-1], rule, self.averaging.replica))
        field_rule = FieldRule(rule, 1, True, self.averaging.replica, last_is_mean=True)
        function = functools.partial(_square_by_table, width)
        found = gaussian_mean(function, covariance, (functions, weights, table), field_rule)
        if not functions[-1].numbers:
            return found
        return found + _through_table(functions[-1].numbers, covariance, functions, weights, width, field_rule)

    def _stein(self, covariance, width):
        r"""$\mathbb{E}[g(u_s) g(u_t)]$, $\mathbb{E}[g'(u_i) g'(u_s)]$ and $\mathbb{E}[g''(u_i) g(u_s)]$."""
        outputs, slopes, one, two = self._pairs(_all_products, covariance)
        return _completed(outputs, outputs), _completed(slopes, slopes)[:width], _completed(one, two)[:width]

    def _pairs(self, products: Callable, covariance):
        """Averages of products of two fields, for all pairs, in the upper triangle of matrices."""
        size = covariance.shape[0]
        rows, columns = np.triu_indices(size)
        is_teacher = jnp.arange(size) >= self.students
        rule = FieldRule(self.rule(2), 1, True, self.averaging.replica)

        def pair(entry):
            block, which = entry
            return gaussian_mean(products, block, (self._functions, which), rule)

        index = np.stack([rows, columns], axis=1)
        blocks = covariance[index[:, :, None], index[:, None, :]]
        found = map_in_batches(pair, (blocks, is_teacher[index].astype(float)))
        empty = jnp.zeros((size, size))
        return jax.tree.map(lambda values: empty.at[rows, columns].set(values), found)


def _completed(upper, transposed):
    """A matrix from its upper triangle, and from that of its transpose."""
    return upper + jnp.where(np.eye(upper.shape[0], dtype=bool), 0.0, transposed.T)


def _gradient(slopes, curvatures, covariance, weights):
    width = slopes.shape[0]
    return (curvatures @ weights)[:, None] * covariance[:width] + (slopes * weights) @ covariance


def _derivative(functions: tuple[Function, ...], order: int, x, is_teacher):
    """A derivative of the activation that a field has."""
    derivatives = tuple(function.__wrapped__ for function in functions)
    for _ in range(order):
        derivatives = tuple(jax.grad(function) for function in derivatives)
    values = [function(x) for function in derivatives]
    return values[0] if len(values) == 1 else jnp.where(is_teacher > 0, values[1], values[0])


def _outputs(fields, noise, parameters):
    functions, is_teacher = parameters
    return _derivative(functions, 0, fields[0], is_teacher[0]) * _derivative(functions, 0, fields[1], is_teacher[1])


def _all_products(fields, noise, parameters):
    functions, is_teacher = parameters
    (g, slope, curvature), (h, other_slope, other_curvature) = (
        tuple(_derivative(functions, order, fields[i], is_teacher[i]) for order in range(3)) for i in range(2)
    )
    return g * h, slope * other_slope, curvature * h, g * other_curvature


def _square(width, fields, noise, parameters):
    functions, weights = parameters
    student, teacher = functions[0].__wrapped__, functions[-1].__wrapped__
    outputs = jnp.concatenate([jax.vmap(student)(fields[:width]), jax.vmap(teacher)(fields[width:])])
    slopes = jax.vmap(jax.grad(student))(fields[:width])
    return jnp.outer(slopes, slopes) * (weights @ outputs) ** 2


def _square_by_table(width, fields, noise, parameters):
    functions, weights, table = parameters
    student, teacher = functions[0].__wrapped__, functions[-1].__wrapped__
    outputs = jnp.concatenate([jax.vmap(student)(fields[:width]), jax.vmap(teacher)(fields[width:-1])])
    slopes = jax.vmap(jax.grad(student))(fields[:width])
    others, last = weights[:-1] @ outputs, weights[-1]
    mean, mean_square = table(fields[-1])
    return jnp.outer(slopes, slopes) * (others**2 + 2 * others * last * mean + last**2 * mean_square)


def _change_by_table(width, fields, noise, parameters):
    """The part that is linear in a table, for its change."""
    functions, weights, table = parameters
    unchanged = eqx.tree_at(lambda each: each.entries, table, jnp.zeros_like(table.entries))
    return _square_by_table(width, fields, noise, parameters) - _square_by_table(
        width, fields, noise, (functions, weights, unchanged)
    )


@eqx.filter_custom_jvp
def _through_table(numbers, covariance, functions, weights, width, rule):
    """Zero, with the derivative that an average has by the numbers of a function through the table made of it."""
    return jnp.zeros((width, width))


@_through_table.def_jvp
def _through_table_jvp(primals, tangents):
    numbers, covariance, functions, weights, width, rule = primals
    value = jnp.zeros((width, width))
    if not jax.tree.leaves(tangents[0]):
        return value, value
    factor, _ = psd_factor(jax.lax.stop_gradient(covariance))
    flat, unravel = ravel_pytree(numbers)

    def table(flat):
        function = Function(unravel(flat), functions[-1].recipe)
        return _Table.of(function, factor[-1], rule.fields, rule.replica)

    here, changes = table(flat), jax.jacfwd(lambda flat: table(flat).entries)(flat)

    def average(entries):
        changed = eqx.tree_at(lambda each: each.entries, here, entries)
        return gaussian_mean(
            functools.partial(_change_by_table, width), covariance, (functions, weights, changed), rule
        )

    moved = [
        jnp.zeros_like(number) if move is None else move for number, move in zip(numbers, tangents[0], strict=True)
    ]
    derivatives = jnp.stack([average(changes[..., place]) for place in range(flat.size)])
    return value, jnp.tensordot(ravel_pytree(moved)[0], derivatives, 1)


class _Table(eqx.Module):
    r"""$\mathbb{E}[g]$ and $\mathbb{E}[g^2]$ of a field of given mean, at even means, to be interpolated."""

    entries: Float[Array, "n 2"]
    spacing: Float[Array, ""]

    @classmethod
    def of(cls, function: Callable, row: Float[Array, " r"], rule: Trapezoid, replica: Int[Array, ""]) -> "_Table":
        """Over all means that a field with such a row of the factor has; the last entry is what is its own."""
        reach = np.sqrt(2 * np.log(1 / rule.tolerance)) + 3
        spacing = 2 * reach * jnp.maximum(jnp.linalg.norm(row), 1e-100) / _TABLE
        means = spacing * (jnp.arange(_TABLE) - _TABLE // 2)
        grid = Grid(row[-1:], rule.resolution, shifts_of(replica, 1))

        def over(points, weights):
            values = jax.vmap(jax.vmap(lambda x: function(x)))(means + row[-1] * points)
            return jnp.stack([weights @ values, weights @ values**2], axis=1)

        return cls(average_over_grid(over, grid, 16), spacing)

    def __call__(self, mean: Float[Array, ""]) -> Float[Array, "2"]:
        # Beyond the table there is no weight left.
        at = jnp.clip(mean / self.spacing + _TABLE // 2, 0.0, _TABLE - 1.0)
        first = jnp.clip(jnp.floor(at).astype(int) - _STENCIL // 2 + 1, 0, _TABLE - _STENCIL)
        place = at - first
        # Lagrange's polynomials through as many neighbours.
        factors = [
            functools.reduce(
                lambda product, j: product * (place - j[1]) / (j[0] - j[1]),
                [(i, j) for j in range(_STENCIL) if j != i],
                jnp.ones_like(place),
            )
            for i in range(_STENCIL)
        ]
        near = jax.lax.dynamic_slice(self.entries, (first, 0), (_STENCIL, 2))
        return jnp.stack(factors) @ near
