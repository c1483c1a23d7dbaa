"""What is found out about a function before it is averaged: from its operations, its slopes and its derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dimfree
from dimfree.errors import InvalidInput
from dimfree.gaussian.analytic import is_analytic

STOP = jax.lax.stop_gradient
SGD = dimfree.OnlineSGD(0.3)
STATE = dimfree.State(Q=[[1.0]], M=[[0.4]])


def analytic(function, *moves):
    program = jax.make_jaxpr(function)(*(jnp.ones(3) for _ in moves)).jaxpr
    return is_analytic(program, moves)


@pytest.mark.parametrize(
    "function",
    [jnp.tanh, jax.nn.gelu, jax.nn.softplus, jax.nn.log_softmax, lambda x: x[0] * x[1:] @ x[1:] / (1 + x @ x)],
)
def test_analytic_operations_make_an_analytic_function(function):
    assert analytic(function, True)


@pytest.mark.parametrize(
    "function",
    [
        jax.nn.relu,
        jnp.abs,
        jnp.argmax,
        lambda x: jnp.sqrt(x**2),
        lambda x: jnp.where(x > 9, x, 0.0),
        lambda x: x * (STOP(x) > 9),
        lambda x: x.astype(int) + 0.5,
        lambda x: x[jnp.floor(x[0]).astype(int)],
        lambda x: jax.lax.cond(x[0] > 9, jnp.sin, jnp.cos, x),
        lambda x: jax.lax.fori_loop(0, 3, lambda _, y: jnp.round(y), x),
    ],
)
def test_an_operation_that_may_jump_is_seen_wherever_it_jumps(function):
    assert not analytic(function, True)


def test_only_what_moves_can_jump():
    def gate(x, y):
        return jnp.where(x > 9, y, 0.0)

    assert analytic(gate, False, True)
    assert not analytic(gate, True, False)


def slope(student, teacher):
    return (np.tanh(2 * student) - np.tanh(teacher)) * (1 - np.tanh(2 * student) ** 2)


def stands_in(student, teacher, noise, readout):
    """Zero, with a slope that is none of any simple loss."""
    s = student[0]
    return STOP((jnp.tanh(2 * s) - jnp.tanh(teacher[0])) * (1 - jnp.tanh(2 * s) ** 2)) * (s - STOP(s))


def test_a_loss_of_value_zero_is_averaged_by_its_slopes():
    """Four nodes, enough for a constant, were 14% off. The reference is a sum over a fine and even grid."""
    nodes = np.linspace(-9, 9, 600)
    weights = np.exp(-(nodes**2) / 2) / np.sum(np.exp(-(nodes**2) / 2))
    student, rest = np.meshgrid(nodes, nodes, indexing="ij")
    weight, teacher = np.multiply.outer(weights, weights), 0.4 * student + np.sqrt(1 - 0.16) * rest
    s = slope(student, teacher)
    limit = dimfree.ode(dimfree.LocalFields(stands_in, 1, 1), SGD)
    drift, error = limit.drift(0.0, STATE), float(limit.expectation_error(STATE))
    assert error < 1e-3
    np.testing.assert_allclose(drift.M[0, 0], -0.3 * np.sum(weight * s * teacher), atol=error)
    np.testing.assert_allclose(drift.Q[0, 0], np.sum(weight * (-0.6 * s * student + 0.09 * s**2)), atol=error)


def test_a_loss_of_value_zero_without_a_stop_has_the_nodes_of_its_slopes():
    """A custom derivative whose own derivative is right: nothing but the value is unlike a loss."""

    @jax.custom_jvp
    def nothing(x):
        return 0.0 * x

    @nothing.defjvp
    def _(primals, tangents):
        return nothing(primals[0]), jnp.tanh(2 * primals[0]) * tangents[0]

    problem = dimfree.LocalFields(lambda student, teacher, noise, readout: nothing(student[0] - teacher[0]), 1, 1)
    assert problem.smooth
    assert problem.degree is None
    u = np.linspace(-9, 9, 4000)  # the difference of the fields has variance 2 - 0.8
    mean = np.sum(np.exp(-(u**2) / 2) * np.tanh(2 * np.sqrt(1.2) * u) * u) / np.sum(np.exp(-(u**2) / 2))
    drift = dimfree.ode(problem, SGD).drift(0.0, STATE)
    # The student's covariance with the difference is 0.6, the teacher's -0.6.
    np.testing.assert_allclose(drift.M[0, 0], 0.3 * 0.6 / np.sqrt(1.2) * mean, rtol=1e-5)


def test_drifts_of_stopped_gradients_have_the_derivatives_of_differences():
    """The curvature of such a loss is not the derivative of its slope, and must not be averaged in its place."""
    limit = dimfree.ode(dimfree.LocalFields(stands_in, 1, 1), SGD)

    def drift(overlap):
        return limit.drift(0.0, dimfree.State(Q=[[1.0]], M=overlap)).M[0, 0]

    found = jax.grad(drift)(jnp.array([[0.4]]))[0, 0]
    difference = (drift(jnp.array([[0.44]])) - drift(jnp.array([[0.36]]))) / 0.08
    np.testing.assert_allclose(found, difference, rtol=0.02)


def test_inputs_of_a_sample_are_exchangeable_only_if_their_slopes_are():
    def ordered(student, teacher, noise, readout):
        return STOP(jnp.tanh(student[0, 0])) * (student[0, 0] - STOP(student[0, 0]))

    def summed(student, teacher, noise, readout):
        return jnp.sum(jnp.tanh(student) ** 2) * jnp.sum(teacher**2)

    assert not dimfree.LocalFields(ordered, 1, 1, tokens=3).exchangeable
    assert dimfree.LocalFields(summed, 1, 1, tokens=3).exchangeable


@pytest.mark.parametrize("power", [1.2, 1.5, 2.5, 3.5])
def test_powers_with_infinite_derivatives_give_no_nan(power):
    """|x|^a for a linear student: E[g'(u) u] = a E|u|^a, and the errors that are stated hold."""
    from scipy.special import gamma

    problem = dimfree.TwoLayer(1, 1, lambda x: jnp.abs(x) ** power, noise=0.1)
    limit = dimfree.ode(problem, SGD)
    drift, error = limit.drift(0.0, STATE), float(limit.expectation_error(STATE))

    def moment(order):  # E|u|^order of a standard normal
        return 2 ** (order / 2) * gamma((order + 1) / 2) / np.sqrt(np.pi)

    def moments(a, b, rho):  # E|u|^a |v|^b at correlation rho, by a Hermite sum that converges fast enough at 0.4
        from scipy.special import hyp2f1

        return moment(a) * moment(b) * hyp2f1(-a / 2, -b / 2, 0.5, rho**2)

    expected = -2 * 0.3 * power * (moment(2 * power) - moments(power, power, 0.4))
    square = moment(4 * power - 2) - 2 * moments(3 * power - 2, power, 0.4) + moments(2 * power - 2, 2 * power, 0.4)
    expected += 0.09 * power**2 * (square + 0.1 * moment(2 * power - 2))
    assert error < 2e-3 * abs(expected)
    assert abs(float(drift.Q[0, 0]) - expected) <= error
    assert np.isfinite(jax.grad(lambda m: limit.drift(0.0, dimfree.State(Q=[[1.0]], M=m)).M[0, 0])(jnp.array([[0.4]])))


def test_slopes_without_a_mean_square_are_refused():
    def root(student, teacher, noise, readout):
        return jnp.sqrt(jnp.abs(student[0] - teacher[0]))

    with pytest.raises(InvalidInput, match="derivative of loss grows without bound near fields"):
        dimfree.LocalFields(root, 1, 1)
    with pytest.raises(InvalidInput, match="derivative of the activation 'cbrt' is NaN or infinite"):
        dimfree.TwoLayer(1, 1, jnp.cbrt)


def test_a_readout_of_equal_entries_hides_no_jump():
    def of_the_largest(student, teacher, noise, readout):
        return 0.5 * (jnp.argmax(readout.reshape(3, 2) @ student) - teacher[0]) ** 2 * student[0]

    assert not dimfree.LocalFields(of_the_largest, 2, 1, readout=np.ones(6)).smooth


def test_an_error_on_a_grid_sees_waves_along_diagonals():
    """Half a spacing away in both directions a wave along the diagonal comes out the same."""
    from dimfree.gaussian.means import FieldRule, gaussian_mean
    from dimfree.gaussian.resolution import even_resolution
    from dimfree.gaussian.rules import Averaging, Trapezoid

    rule = Trapezoid(even_resolution(8.0, 1e-6), 1e-6)

    def average(by):
        field_rule = FieldRule(rule, 1, True, by.replica)
        found = gaussian_mean(lambda u, z, _: jnp.cos(3.4 * (u[0] + u[1])), jnp.eye(2), None, field_rule)
        return found, jnp.ones(())

    value, _ = average(Averaging())
    error = abs(float(value) - np.exp(-(3.4**2)))
    assert error > 1e-4
    assert error <= float(Averaging().accuracy(rule, average).error)
