"""Widths that a grid over all fields could never reach."""

import jax
import numpy as np
import pytest

import dimfree


@pytest.mark.parametrize("activation", ["square", "erf", "he3"])
def test_64_students_in_16_copies_are_4(activation):
    """With the normalisation 1/p, copies of neurons at 16 times the learning rate move as the originals do."""
    rate = {"square": 0.1, "erf": 2.0, "he3": 0.02}[activation]
    narrow, wide = (dimfree.TwoLayer(p, 4, activation, noise=0.1) for p in (4, 64))
    start = dimfree.random_state(narrow, d=10, key=jax.random.key(0))
    copies = np.repeat(np.arange(4), 16)
    copied = dimfree.State(start.Q[copies][:, copies], start.M[copies], start.P)
    few = dimfree.ode(narrow, dimfree.OnlineSGD(rate, readout_rate=rate)).drift(0.0, start)
    many = dimfree.ode(wide, dimfree.OnlineSGD(16 * rate, readout_rate=16 * rate)).drift(0.0, copied)
    np.testing.assert_allclose(many.Q, few.Q[copies][:, copies], atol=1e-10)
    np.testing.assert_allclose(many.M, few.M[copies], atol=1e-10)
    np.testing.assert_allclose(many.readout, few.readout[copies], atol=1e-10)


@pytest.mark.slow
def test_64_students_drift_as_predicted_at_dimension_a_billion():
    problem, algorithm, d = dimfree.TwoLayer(64, 4, "erf", noise=0.1), dimfree.OnlineSGD(60.0), 10**9
    start = dimfree.random_state(problem, d, key=jax.random.key(0))
    runs = dimfree.simulate(problem, algorithm, start, d, np.array([0.0, 50.0]) / d, runs=64, key=jax.random.key(1))
    moved = np.trace(np.asarray(runs.final.Q - start.Q), axis1=1, axis2=2) * d / 50
    drift = np.trace(np.asarray(dimfree.ode(problem, algorithm).drift(0.0, start).Q))
    error = moved.std() / 8
    assert error < 0.3 * abs(drift)
    assert abs(moved.mean() - drift) < 4.5 * error  # false-alarm rate 1e-5
