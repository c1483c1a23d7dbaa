"""The commuting square: SGD in dimension d approaches its limit as d^-1/2, and only the right limit does that."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import pytest

import cases
import dimfree
from dimfree.limits.drift import MeanLimit, mean_moments


def assert_square(case: cases.Case):
    result = dimfree.check(case.problem, case.algorithm)
    assert -0.7 <= result.slope <= -0.3, str(result)
    assert result.agrees, str(result)


@pytest.mark.parametrize("case", cases.COVERING, ids=str)
def test_distance_to_the_limit_falls_with_the_root_of_d(case):
    assert_square(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in cases.ALL if c not in cases.COVERING], ids=str)
def test_distance_to_the_limit_falls_with_the_root_of_d_everywhere(case):
    assert_square(case)


class Mutant(MeanLimit):
    """A limit with one thing wrong."""

    mutate: Callable = eqx.field(static=True)

    def drift(self, alpha, state):
        return self._drift(alpha, state, self.mutate(mean_moments(self.problem, state, self.rule)))


def scaled(**factors):
    def mutate(moments):
        for name, factor in factors.items():
            moments = eqx.tree_at(lambda m, name=name: getattr(m, name), moments, factor * getattr(moments, name))
        return moments

    return mutate


MUTANTS = {
    "second-order term dropped": scaled(square=0.0),
    "second-order term with the wrong sign": scaled(square=-1.0),
    "second-order term without the batch size": scaled(square=8.0),
    "half the drift of Q": scaled(student=0.5),
    "drift of Q with the wrong sign": scaled(student=-1.0),
    "half the drift of M": scaled(teacher=0.5),
    "drift of M with the wrong sign": scaled(teacher=-1.0),
    "half the drift of the readout": scaled(readout=0.5),
    "drift of the readout with the wrong sign": scaled(readout=-1.0),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_limit_fails_the_square(name):
    problem = dimfree.TwoLayer(2, 1, "square", noise=0.2)
    algorithm = (
        dimfree.OnlineSGD(0.4, batch_size=8, readout_rate=0.4)
        if "batch" in name
        else dimfree.OnlineSGD(0.2, readout_rate=0.2)
    )
    mutant = Mutant(problem, algorithm, None, True, MUTANTS[name])
    result = dimfree.check(problem, algorithm, limit=mutant, alpha=3.0)
    assert not result.agrees, str(result)
    assert "do NOT agree" in str(result)


def test_gradient_flow_fails_the_square_at_finite_learning_rate():
    problem, algorithm = dimfree.PhaseRetrieval(width=2, noise=0.2), dimfree.OnlineSGD(0.2, sphere=True)
    result = dimfree.check(problem, algorithm, limit=dimfree.gradient_flow(problem, algorithm), alpha=3.0)
    assert not result.agrees
    assert "off most in" in str(result)


def test_the_square_holds_with_ridge_and_a_schedule():
    problem = dimfree.TwoLayer(2, 2, "erf", noise=0.1)
    algorithm = dimfree.OnlineSGD(
        lambda alpha: 3.0 / (1 + alpha), ridge=0.3, readout_rate=lambda alpha: jnp.exp(-alpha)
    )
    result = dimfree.check(problem, algorithm)
    assert result.agrees, str(result)


def test_the_square_holds_for_a_users_own_loss():
    def logistic(student, teacher, noise, readout):
        return jnp.logaddexp(0.0, -jnp.sign(teacher[0]) * jnp.dot(readout, jnp.tanh(student)))

    problem = dimfree.LocalFields(logistic, width=2, teacher_width=1, readout=[1.0, -0.5])
    assert not problem.smooth  # the label jumps with the teacher's sign
    result = dimfree.check(problem, dimfree.OnlineSGD(1.0, readout_rate=0.5, ridge=0.1))
    assert result.agrees, str(result)


def test_the_square_holds_for_a_multi_index_target():
    problem = dimfree.MultiIndex(
        lambda u: u[0] * u[1], width=2, teacher_width=2, activation=lambda x: jnp.tanh(x) + 0.2 * x**2
    )
    result = dimfree.check(problem, dimfree.OnlineSGD(0.5))
    assert result.agrees, str(result)
