"""Users' functions as pytrees: their numbers are mapped over and differentiated by, and one program serves all."""

import functools
import types

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dimfree
from dimfree.functions import as_function
from dimfree.gaussian.resolution import Features, activation_resolution, loss_resolution

SGD = dimfree.OnlineSGD(0.2)
START = dimfree.State(Q=[[1.0]], M=[[0.3]])
SCALE, SETTINGS = 0.7, {"scale": 0.7}


def factory(steepness):
    return lambda x: SCALE * jnp.tanh(steepness * x)


def through_a_helper(steepness):
    helper = factory(steepness)
    return lambda x, shift=0.5: helper(x) + shift


class Tanh(eqx.Module):
    steepness: float

    def __call__(self, x):
        return jnp.tanh(self.steepness * x)


def scaled_tanh(steepness, x):
    return jnp.tanh(steepness * x)


MAKERS = {
    "closure and global": (factory, 2),
    "through a helper, with a default": (through_a_helper, 3),
    "module": (Tanh, 1),
    "partial": (lambda steepness: functools.partial(scaled_tanh, steepness), 1),
    "array": (lambda steepness: factory(jnp.asarray(steepness)), 2),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_numbers_are_leaves_and_the_rest_is_compared_by_value(kind):
    make, number = MAKERS[kind]
    one, other = (as_function(make(steepness), jnp.zeros(())) for steepness in (1.5, 2.5))
    assert len(one.numbers) == number
    assert one.recipe == other.recipe
    assert hash(one.recipe) == hash(other.recipe)
    for function, steepness in ((one, 1.5), (other, 2.5)):
        np.testing.assert_allclose(function(0.4), make(steepness)(0.4), rtol=1e-15)
    slope = jax.grad(lambda steepness: as_function(make(steepness), jnp.zeros(()))(0.4))(1.5)
    assert slope == jax.grad(lambda steepness: make(steepness)(0.4))(1.5) != 0


def test_other_code_is_another_function():
    functions = [lambda x: 2 * x, lambda x: 3 * x, lambda x: 2 * x**2, lambda y: 2 * y, jnp.tanh, jnp.sin]
    recipes = [as_function(function).recipe for function in functions]
    assert len(set(recipes)) == len(functions)
    assert as_function(lambda x: 2 * x).recipe == recipes[0]
    integers = [as_function(functools.partial(lambda n, x: x**n, n)).recipe for n in (2, 3, True)]
    assert len(set(integers)) == 3  # whole numbers are shapes and powers, and part of the code


def test_what_may_change_unseen_makes_a_function_like_none_but_itself():
    module, settings = types.ModuleType("module_of_a_user"), types.SimpleNamespace(steepness=2.0)
    module.steepness = 2.0
    for make in (lambda: lambda x: module.steepness * x, lambda: lambda x: settings.steepness * x):
        function = make()
        assert as_function(function).recipe == as_function(function).recipe != as_function(make()).recipe


def test_a_global_that_has_changed_is_another_number(monkeypatch):
    before = as_function(factory(1.0), jnp.zeros(()))
    monkeypatch.setitem(globals(), "SCALE", 0.9)
    after = as_function(factory(1.0), jnp.zeros(()))
    assert before.recipe == after.recipe
    np.testing.assert_allclose([before(0.4), after(0.4)], np.array([0.7, 0.9]) * np.tanh(0.4), rtol=1e-14)
    monkeypatch.setitem(SETTINGS, "scale", 0.8)  # a dict is read when the function is given
    function = as_function(lambda x: SETTINGS["scale"] * x, jnp.zeros(()))
    assert len(function.numbers) == 1
    assert float(function(1.0)) == 0.8


def test_a_float_that_the_code_branches_on_is_part_of_it():
    def branching(steepness):
        return lambda x: jnp.tanh(x) if steepness > 1 else steepness * x

    assert as_function(branching(0.5), jnp.zeros(())).numbers == ()
    assert as_function(branching(0.5)).recipe != as_function(branching(0.6)).recipe


def logistic(steepness):
    return dimfree.LocalFields(
        lambda student, teacher, noise, readout: jax.nn.softplus(-steepness * jnp.tanh(teacher[0]) * student[0]), 1, 1
    )


def network(steepness):
    return dimfree.TwoLayer(2, 1, activation=lambda x: jnp.tanh(steepness * x))


def leaky(slope):
    return dimfree.TwoLayer(1, 1, activation=lambda x: jnp.where(x > 0, x, slope * x))


def linked(steepness):
    return dimfree.MultiIndex(lambda teacher: jnp.sin(steepness * teacher[0]), 1, 1, activation="erf")


def clusters(steepness):
    return dimfree.Mixture([[1.0], [-1.0]], [1, 0], 1, 2.0, activation=lambda x: jnp.tanh(steepness * x))


CASES = {"loss": logistic, "activation": network, "kink": leaky, "link": linked, "mixture": clusters}
QUICK = 1  # the first runs always, the others in the slow suite


def drift_of(problem):
    Q = np.eye(problem.width) + 0.2
    state = dimfree.State(Q=Q, M=np.linspace(0.4, 0.1, problem.width)[:, None])
    return dimfree.ode(problem, SGD).drift(0.0, state).M[0, 0]


@pytest.mark.parametrize(
    "name", [*list(CASES)[:QUICK], *(pytest.param(name, marks=pytest.mark.slow) for name in list(CASES)[QUICK:])]
)
def test_limits_are_differentiated_by_and_mapped_over_the_numbers_of_a_function(name):
    def drift(number):
        return drift_of(CASES[name](number))

    difference = (drift(0.8 + 1e-5) - drift(0.8 - 1e-5)) / 2e-5
    # Two rules to 1e-6 of the size each: their difference over the step is the first to be seen.
    np.testing.assert_allclose(jax.grad(drift)(0.8), difference, rtol=1e-4)
    numbers = jnp.asarray([0.3, 2.0])
    np.testing.assert_allclose(jax.vmap(drift)(numbers), [drift(float(n)) for n in numbers], rtol=1e-6)


def test_a_square_of_four_fields_is_differentiated_through_its_table():
    state = dimfree.State(Q=np.eye(2) + 0.2, M=[[0.4, 0.1], [0.0, 0.2]])

    def drift(steepness):
        problem = dimfree.TwoLayer(2, 2, activation=jnp.tanh, teacher_activation=lambda x: jnp.tanh(steepness * x))
        return dimfree.ode(problem, SGD).drift(0.0, state).Q[0, 0]

    difference = (drift(1.5 + 1e-4) - drift(1.5 - 1e-4)) / 2e-4
    np.testing.assert_allclose(jax.grad(drift)(1.5), difference, rtol=1e-4)


def test_a_rate_is_differentiated_by_its_numbers():
    limit = dimfree.ode(dimfree.PhaseRetrieval(), SGD)

    def end(rate):
        algorithm = dimfree.OnlineSGD(lambda alpha: rate / (1 + alpha))
        return dimfree.solve(eqx.tree_at(lambda each: each.algorithm, limit, algorithm), START, 1.0).state.M[-1, 0, 0]

    np.testing.assert_allclose(jax.grad(end)(0.1), (end(0.1 + 1e-4) - end(0.1 - 1e-4)) / 2e-4, rtol=1e-6)


@pytest.mark.parametrize("steepness", [1.0, 10.0])
def test_the_grid_follows_the_numbers_of_a_function(steepness):
    """What is found with numbers as arrays is what was found with numbers in the code, to the last digit."""
    function = as_function(factory(steepness), jnp.zeros(()))
    loss = as_function((lambda b: lambda u: jax.nn.softplus(-b * u[0] * u[1]))(steepness), jnp.zeros(2))
    for tolerance, power in ((1e-6, 2), (1e-4, 4)):
        expected = activation_resolution(function.frozen().recipe, tolerance, power)
        found = Features(function, None).resolution(tolerance, power)
        np.testing.assert_allclose(found.frequencies, expected.frequencies, rtol=1e-12)
        np.testing.assert_allclose(found.reaches, expected.reaches, rtol=1e-12)
        expected = loss_resolution(loss.frozen(), 2, tolerance, power)
        found = Features(loss, 2).resolution(tolerance, power)
        np.testing.assert_allclose(found.frequencies, expected.frequencies, rtol=1e-12)
        np.testing.assert_allclose(found.reaches, expected.reaches, rtol=1e-12)
        assert found.most_fields == expected.most_fields


def test_polynomials_are_recognised_with_any_coefficient():
    problem = dimfree.LocalFields((lambda a: lambda s, t, z, r: (a * s[0] ** 2 - t[0]) ** 2)(0.3), 1, 1)
    assert problem.degree == 4
    traced = jax.eval_shape(
        lambda a: jnp.zeros(dimfree.LocalFields(lambda s, t, z, r: (a * s[0] ** 2 - t[0]) ** 2, 1, 1).degree), 0.3
    )
    assert traced.shape == (4,)


def test_another_number_or_lambda_compiles_nothing_new():
    compiled = []

    def listen(event, duration, **_):
        compiled.append(event)

    def all_of(steepness):
        problem = logistic(steepness)
        algorithm = dimfree.OnlineSGD(lambda alpha: 0.1 * steepness / (1 + alpha))
        limit = dimfree.ode(problem, algorithm)
        end = dimfree.solve(limit, START, 0.5).state.M[-1, 0, 0]
        runs = dimfree.simulate(problem, algorithm, START, 50, 0.5, runs=2, key=jax.random.key(0))
        return float(end), float(limit.expectation_error(START)), float(runs.state.M[0, -1, 0, 0])

    first = all_of(1.0)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        second = all_of(1.4)
    finally:
        jax.monitoring.clear_event_listeners()
    assert not [event for event in compiled if "compile" in event and "trace" not in event], compiled
    assert first[0] != second[0]
    assert first[2] != second[2]
