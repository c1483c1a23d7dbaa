"""A solution can be differentiated forwards, backwards, and forwards twice."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dimfree
from dimfree import InvalidInput, OnlineSGD, PhaseRetrieval, State
from dimfree.linear_maps import linear_map, only_backwards

START = State(Q=[[1.0]], M=[[0.1]])


def risk(rate, scale=1.0):
    start = State(Q=START.Q, M=scale * START.M)
    return dimfree.solve(dimfree.ode(PhaseRetrieval(), OnlineSGD(rate)), start, 0.1, absolute_tolerance=1e-9).risk[-1]


def test_forwards_as_backwards():
    """Also by a start, through jit, and mapped; against differences of the solution itself."""
    backwards = jax.grad(risk, argnums=(0, 1))(0.1, 1.0)
    forwards = jax.jacfwd(jax.jit(risk), argnums=(0, 1))(0.1, 1.0)
    np.testing.assert_allclose(forwards, backwards, rtol=1e-9)
    h = 1e-3
    differences = (risk(0.1 + h) - risk(0.1 - h)) / (2 * h), (risk(0.1, 1 + h) - risk(0.1, 1 - h)) / (2 * h)
    np.testing.assert_allclose(forwards, differences, rtol=1e-4)


@pytest.mark.slow
def test_mapped_derivatives():
    rates = jnp.array([0.05, 0.1])
    each = [jax.jacfwd(risk)(rate) for rate in rates]
    np.testing.assert_allclose(jax.vmap(jax.jacfwd(risk))(rates), each, rtol=1e-9)
    np.testing.assert_allclose(jax.vmap(jax.grad(risk))(rates), each, rtol=1e-9)


@pytest.mark.slow
def test_forwards_twice():
    second, h = jax.jacfwd(jax.jacfwd(risk))(0.1), 1e-3
    np.testing.assert_allclose(second, (risk(0.1 + h) - 2 * risk(0.1) + risk(0.1 - h)) / h**2, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("twice", [jax.hessian, lambda f: jax.grad(jax.grad(f)), lambda f: jax.grad(jax.jacfwd(f))])
def test_other_second_derivatives_say_what_to_do(twice):
    with pytest.raises(InvalidInput, match=r"jax.jacfwd\(jax.jacfwd\(f\)\) in the place of jax.hessian"):
        twice(risk)(0.1)


@pytest.mark.slow
def test_an_event_that_closes_over_what_is_differentiated():
    """The alpha where M reaches a level falls with the rate; by its definition."""

    def reached(level):
        limit = dimfree.ode(PhaseRetrieval(), OnlineSGD(0.1))
        return dimfree.solve(limit, START, 5.0, stop=lambda state: state.M[0, 0] - level).stopped_at

    limit = dimfree.ode(PhaseRetrieval(), OnlineSGD(0.1))
    stopped = dimfree.solve(limit, START, 5.0, stop=lambda state: state.M[0, 0] - 0.15)
    expected = 1 / limit.drift(0.0, stopped.final).M[0, 0]
    for derivative in (jax.grad, jax.jacfwd):
        np.testing.assert_allclose(derivative(reached)(0.15), expected, rtol=1e-5)


def product(fixed, moving):
    """A linear map that says of itself what its derivatives are; backwards three times as large, to see which it is."""
    return linear_map(lambda a, x: [a * x], lambda a, y: [3 * a * y], [fixed], [moving], [moving], "Not twice.")[0]


def test_a_linear_map_has_the_transpose_that_it_is_given():
    a, x = jnp.array(2.0), jnp.array([1.0, 2.0])
    np.testing.assert_array_equal(product(a, x), [2.0, 4.0])
    np.testing.assert_array_equal(jax.jvp(lambda x: product(a, x), (x,), (x,))[1], [2.0, 4.0])
    np.testing.assert_array_equal(jax.vjp(lambda x: product(a, x), x)[1](x)[0], [6.0, 12.0])
    np.testing.assert_array_equal(jax.jvp(lambda a: product(a, x), (a,), (a,))[1], [2.0, 4.0])
    mapped = jax.vmap(lambda a, x: jax.vjp(lambda x: product(a, x), x)[1](x)[0], in_axes=(0, None))
    np.testing.assert_array_equal(mapped(jnp.array([1.0, 2.0]), x), [[3.0, 6.0], [6.0, 12.0]])
    with pytest.raises(InvalidInput, match="Not twice"):
        jax.grad(lambda a: product(a, x).sum())(a)
    with pytest.raises(InvalidInput, match="Not twice"):
        jax.jvp(lambda a: jax.vjp(lambda x: product(a, x), x)[1](x)[0], (a,), (a,))


def test_runs_are_differentiated_forwards_only():
    def mean_risk(rate):
        key = jax.random.key(0)
        return dimfree.simulate(PhaseRetrieval(), OnlineSGD(rate), START, 10, 0.5, runs=2, key=key).risk[:, -1].mean()

    with pytest.raises(InvalidInput, match=r"cannot be differentiated backwards, .* jax.jacfwd, or the gradient of a"):
        jax.grad(mean_risk)(0.05)
    h = 1e-5
    difference = (mean_risk(0.05 + h) - mean_risk(0.05 - h)) / (2 * h)
    np.testing.assert_allclose(jax.jacfwd(mean_risk)(0.05), difference, rtol=1e-5)


def test_what_goes_backwards_once_is_known_where_it_can_be_seen():
    seen = []

    def watched(x):
        seen.append(only_backwards(x))
        return x**2

    expected = [True, True, True, False, False, False, False]
    jax.grad(watched)(1.0)
    jax.jit(jax.grad(watched))(1.0)
    jax.vmap(jax.grad(watched))(jnp.ones(2))
    jax.jacfwd(watched)(1.0)
    jax.hessian(watched)(1.0)
    jax.grad(jax.jit(watched))(1.0)
    watched(1.0)
    assert seen == expected
