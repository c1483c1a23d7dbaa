"""Paths of a diffusion, solved many at a time."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import dimfree


def test_paths_are_those_of_a_loop_and_have_its_derivatives(monkeypatch):
    """Each path from its key alone, whichever are taken together; a path that ends stays where it ended."""
    monkeypatch.setattr("dimfree.integration.paths._AT_ONCE", 2)
    problem, key, steps, dt = dimfree.PhaseRetrieval(1, 0.3), jax.random.key(0), 40, 1 / 40
    start = dimfree.State(Q=[[0.5]], M=[[0.2]])
    # Saved at the steps nearest to the times asked for, which the result says.
    times, saved = dt * np.array([0.0, 0.6, 28.0, 40.0]), np.array([0, 1, 28, 40])

    def limit_of(learning_rate):
        return dimfree.sde(problem, dimfree.OnlineSGD(learning_rate), 60)

    def paths_of(learning_rate, stop=None):
        return dimfree.solve(limit_of(learning_rate), start, times, runs=3, key=key, steps=steps, stop=stop)

    limit = limit_of(0.1)
    coordinates = limit.coordinates
    covariance, drift = map(eqx.filter_jit, (limit.covariance, limit.drift))
    loop = []
    for own in jax.random.split(key, 3):
        vector = coordinates.pack(start)
        path = [vector]
        for number, normal in enumerate(jax.random.normal(own, (steps, coordinates.size))):
            state = coordinates.unpack(vector, start)
            values, directions = np.linalg.eigh(covariance(number * dt, state))
            noise = directions @ (np.sqrt(np.maximum(values, 0) * dt) * normal)
            vector = vector + dt * coordinates.pack(drift(number * dt, state)) + noise
            path.append(vector)
        loop.append(path)
    paths = paths_of(0.1)
    np.testing.assert_allclose(paths.alpha, dt * saved, rtol=1e-12)
    found = coordinates.pack(paths.state)
    np.testing.assert_allclose(found, np.asarray(loop)[:, saved], atol=1e-9)

    # Between the largest values, so that two are stopped and one is not.
    along = np.asarray([coordinates.unpack(each, start).M[0, 0] for path in loop for each in path]).reshape(3, -1)
    bound = np.sort(along.max(axis=1))[:2].mean()
    stopped = paths_of(0.1, lambda state: state.M[0, 0] - bound)
    for run, path in enumerate(along):
        above = np.flatnonzero(path >= bound)
        end, at = (above[0], above[0] * dt) if above.size else (-1, np.nan)
        np.testing.assert_allclose(stopped.stopped_at[run], at, rtol=1e-12)
        np.testing.assert_allclose(stopped.state.M[run, -1, 0, 0], path[end], atol=1e-9)
    assert np.isnan(stopped.stopped_at).sum() == 1

    def total(learning_rate):
        return jnp.sum(paths_of(learning_rate).state.M[:, -1])

    difference = (total(0.1 + 1e-5) - total(0.1 - 1e-5)) / 2e-5
    np.testing.assert_allclose(jax.grad(total)(0.1), difference, rtol=1e-6)
