"""Memory: what maps over runs, times and cells is bounded, and what cannot fit is refused before it is allocated."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dimfree
from dimfree import OnlineSGD, State
from dimfree.analysis import exit_times
from dimfree.batches import NUMBERS

KEY = jax.random.key(0)
SGD = OnlineSGD(0.1)
BY_QUADRATURE = dimfree.MultiIndex(lambda teacher: jnp.tanh(teacher[0]) * teacher[1], 2, 2, "tanh")
MOST = 8 * 16 * NUMBERS  # bytes: sixteen arrays of the size of a batch


def _temporary_bytes(function, *arguments) -> int:
    """What the compiled program holds beside its inputs and outputs."""
    return jax.jit(function).lower(*arguments).compile().memory_analysis().temp_size_in_bytes


def _states(*axes: int) -> State:
    one = dimfree.random_state(BY_QUADRATURE, 50, key=KEY)
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((*axes, *leaf.shape), leaf.dtype), one)


def test_the_risk_of_many_runs_and_times_takes_the_memory_of_few():
    assert _temporary_bytes(lambda states: BY_QUADRATURE.risk(states), _states(16, 201)) < MOST


def _below(state):
    return 0.01 - BY_QUADRATURE.risk(state)


MAPS = {
    "events of runs": lambda starts: (
        dimfree.simulate(BY_QUADRATURE, SGD, starts, 50, np.array([0.0, 2.0]), runs=256, key=KEY, stop=_below).state.M
    ),
    "solutions until an event": lambda starts: exit_times._solve_to_exits(
        dimfree.ode(BY_QUADRATURE, SGD), starts, jnp.asarray(1.0), _below
    ),
    "paths of a diffusion": lambda starts: (
        dimfree.solve(
            dimfree.sde(BY_QUADRATURE, SGD, d=50), starts, np.array([0.0, 1.0]), runs=256, key=KEY, steps=10
        ).state.M
    ),
}


@pytest.mark.parametrize("name", MAPS)
def test_what_maps_over_starts_takes_the_memory_of_few(name):
    assert _temporary_bytes(MAPS[name], _states(256)) < MOST
