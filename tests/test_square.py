"""The commuting square: SGD in dimension d approaches its limit as d^-1/2, and only the right limit does that."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import pytest

import cases
import dimfree
from dimfree import checking
from dimfree.gaussian.rules import Averaging
from dimfree.limits.drift import MeanLimit

SLOW = pytest.mark.slow
DIMENSIONS = (100, 400, 1600)  # a fourth, 6400, costs three times as much as these together and changes no verdict


def assert_square(case: cases.Case):
    result = dimfree.check(case.problem, case.algorithm, dimensions=DIMENSIONS)
    assert -0.7 <= result.slope <= -0.3, str(result)
    assert result.agrees, str(result)
    assert all(0.02 < error < 0.3 for error in result.distance_errors), str(result)  # of a median of 64 runs


# Sphere and none, readout trained, batches and single samples; the slow suite has the table.
QUICK = [case for case in cases.COVERING if (case.activation, case.p) in {("square", 2), ("erf", 2)}]


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_distance_to_the_limit_falls_with_the_root_of_d(case):
    assert_square(case)


@SLOW
@pytest.mark.parametrize("case", [c for c in cases.TABLE if c not in QUICK], ids=str)
def test_distance_to_the_limit_falls_with_the_root_of_d_everywhere(case):
    assert_square(case)


class Mutant(MeanLimit):
    """A limit with one thing wrong."""

    mutate: Callable = eqx.field(static=True)

    def drift(self, alpha, state):
        return self._drift(alpha, state, self.mutate(self.problem.mean_moments(state, self.averaging)))


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


# The slow suite has the others.
QUICK_MUTANTS = ("second-order term dropped", "half the drift of M")


@pytest.fixture(scope="module")
def simulations():
    return {}


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK_MUTANTS else SLOW) for n in MUTANTS])
def test_a_wrong_limit_fails_the_square(name, simulations, monkeypatch):
    def simulate(*arguments, **options):  # the same for every limit
        called = repr((arguments, options))
        if called not in simulations:
            simulations[called] = dimfree.simulate(*arguments, **options)
        return simulations[called]

    monkeypatch.setattr(checking, "simulate", simulate)
    problem = dimfree.TwoLayer(2, 1, "square", noise=0.2)
    algorithm = (
        dimfree.OnlineSGD(0.4, batch_size=8, readout_rate=0.4)
        if "batch" in name
        else dimfree.OnlineSGD(0.2, readout_rate=0.2)
    )
    mutant = Mutant(problem, algorithm, Averaging(), True, MUTANTS[name])
    result = dimfree.check(problem, algorithm, limit=mutant, alpha=3.0, dimensions=DIMENSIONS)
    assert not result.agrees, str(result)
    assert "do NOT agree" in str(result)


@SLOW
def test_gradient_flow_fails_the_square_at_finite_learning_rate():
    problem, algorithm = dimfree.PhaseRetrieval(width=2, noise=0.2), dimfree.OnlineSGD(0.2, sphere=True)
    result = dimfree.check(
        problem, algorithm, limit=dimfree.gradient_flow(problem, algorithm), alpha=3.0, dimensions=DIMENSIONS
    )
    assert not result.agrees
    assert "off most in" in str(result)


def test_the_square_holds_with_ridge_and_a_schedule():
    problem = dimfree.TwoLayer(2, 2, "erf", noise=0.1)
    algorithm = dimfree.OnlineSGD(
        lambda alpha: 3.0 / (1 + alpha), ridge=0.3, readout_rate=lambda alpha: jnp.exp(-alpha)
    )
    result = dimfree.check(problem, algorithm, dimensions=DIMENSIONS)
    assert result.agrees, str(result)


def test_the_square_holds_for_a_users_own_loss():
    def logistic(student, teacher, noise, readout):
        return jnp.logaddexp(0.0, -jnp.sign(teacher[0]) * jnp.dot(readout, jnp.tanh(student)))

    problem = dimfree.LocalFields(logistic, width=2, teacher_width=1, readout=[1.0, -0.5])
    assert not problem.smooth  # the label jumps with the teacher's sign
    result = dimfree.check(problem, dimfree.OnlineSGD(1.0, readout_rate=0.5, ridge=0.1), dimensions=DIMENSIONS)
    assert result.agrees, str(result)


@SLOW
def test_the_square_holds_for_a_multi_index_target():
    problem = dimfree.MultiIndex(
        lambda u: u[0] * u[1], width=2, teacher_width=2, activation=lambda x: jnp.tanh(x) + 0.2 * x**2
    )
    result = dimfree.check(problem, dimfree.OnlineSGD(0.5), dimensions=DIMENSIONS)
    assert result.agrees, str(result)


TRAINED = dimfree.OnlineSGD(1.0, ridge=0.1, readout_rate=0.8)
LIMIT_THEOREMS = {
    "binary mixture": (dimfree.Mixture.binary(2, 2.0, readout=[0.7, -0.4]), TRAINED),
    "XOR mixture": (dimfree.Mixture.xor(4, 5.0, readout=[0.7, -0.4, 1.0, -0.9]), TRAINED),
    "three classes, batch": (
        cases.three_classes(2, **cases.UNEQUAL),
        dimfree.OnlineSGD(3.0, batch_size=4, readout_rate=1.0),
    ),
    "regression on clusters": (
        dimfree.Mixture([[1.0], [-1.0]], [0.8, -0.5], 2, 1.0, activation="tanh", loss="square"),
        dimfree.OnlineSGD(0.8, sphere=True),
    ),
    "spiked matrix": (dimfree.SpikedTensor(2, 2.0), dimfree.OnlineSGD(0.4, ridge=0.1)),
    "spiked tensor of order 3": (dimfree.SpikedTensor(3, 4.0), dimfree.OnlineSGD(0.1)),
    "spiked tensor of order 4": (dimfree.SpikedTensor(4, 4.0), dimfree.OnlineSGD(0.05, batch_size=2)),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in ("binary mixture", "spiked matrix") else SLOW) for name in LIMIT_THEOREMS],
)
def test_the_square_holds_for_mixtures_and_spiked_tensors(name):
    problem, algorithm = LIMIT_THEOREMS[name]
    result = dimfree.check(problem, algorithm, alpha=1.0, dimensions=DIMENSIONS)
    assert result.agrees, str(result)


@SLOW
def test_a_mixture_without_the_variance_of_its_inputs_fails_the_square():
    """The second-order term carries one over the snr; with that of standard inputs it is wrong."""
    problem = dimfree.Mixture([[1.0], [-1.0]], [0.8, -0.5], 2, 3.0, activation="tanh", loss="square")
    algorithm = dimfree.OnlineSGD(1.5)
    assert dimfree.check(problem, algorithm, alpha=1.0, dimensions=DIMENSIONS).agrees
    assert not dimfree.check(
        problem,
        algorithm,
        limit=Mutant(problem, algorithm, Averaging(), True, scaled(square=3.0)),
        alpha=1.0,
        dimensions=DIMENSIONS,
    ).agrees
