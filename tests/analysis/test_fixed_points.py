"""Fixed points of the ODE: closed forms of tensors, the components of mixtures, families of quadratic networks."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import cases
import dimfree
from dimfree.analysis.fixed_points import fixed_points
from dimfree.limits import ode


def tensor_points(order, snr, rate):
    """Positive roots m of (m^2 + c)^(k-1) = snr m^(k-2), with r^2 = c, and the eigenvalues per unit of alpha."""

    def excess(log_m):
        m = np.exp(log_m)
        return (order - 1) * np.log(m**2 + rate) - np.log(snr) - (order - 2) * log_m

    grid = np.linspace(-8, 4, 400)
    values = excess(grid)
    changes = np.flatnonzero(values[:-1] * values[1:] < 0)
    roots = [np.exp(scipy.optimize.brentq(excess, grid[i], grid[i + 1], xtol=1e-14)) for i in changes]
    points = {}
    for m in roots:
        power = (m**2 + rate) ** (order - 1)
        along = 2 * order * power * ((order - 2) - 2 * (order - 1) * m**2 / (m**2 + rate))
        points[m] = rate * np.array([along, -4 * order * power])
    power = rate ** (order - 1)
    points[0.0] = rate * np.array([4 * (snr - rate) if order == 2 else -2 * order * power, -4 * order * power])
    return points


@pytest.mark.parametrize(
    ("order", "snr", "rate", "signs"),
    [
        pytest.param(2, 2.0, 0.8, 2, marks=pytest.mark.slow),
        (2, 0.5, 0.8, 2),
        (3, 4.0, 1.1, 1),
        pytest.param(4, 8.0, 0.9, 2, marks=pytest.mark.slow),
    ],
)
def test_tensors_have_the_fixed_points_of_the_closed_form(order, snr, rate, signs):
    """Both signs of m for even order, the positive one for odd order; the origin, where Q = 0, comes on top."""
    found = fixed_points(
        ode(dimfree.SpikedTensor(order, snr), dimfree.OnlineSGD(rate)), key=jax.random.key(0), starts=64
    )
    expected = tensor_points(order, snr, rate)
    points = [point for point in found if float(point.state.Q[0, 0]) > 0]
    assert len(points) == len(expected) == len(found) - 1
    assert found.symmetries == signs
    for m, eigenvalues in expected.items():
        (point,) = (point for point in points if abs(abs(float(point.state.M[0, 0])) - m) < 1e-8)
        assert float(point.state.Q[0, 0]) == pytest.approx(rate + m**2, rel=1e-9)
        assert point.components == (signs if m > 0 else 1)
        assert point.dimension == 0
        if signs == 1:
            assert float(point.state.M[0, 0]) > -1e-8
        np.testing.assert_allclose(np.sort(point.eigenvalues[0].real), np.sort(eigenvalues), rtol=1e-8)
        assert point.stable == bool(np.all(eigenvalues < 0))


@pytest.mark.slow  # the paper's statements on its rings are checked always
def test_two_clusters_have_five_components_and_rings_with_unstable_ends():
    """Ridge 0.1 < 1/4: the origin, two rings and two optima; ends of rings grow at rate 1/4 - ridge.

    Across the ring the slowest rate is -2 ridge, the C of the ring log((1 - 2 ridge) / (2 ridge)).
    """
    ridge = 0.1
    sgd = dimfree.OnlineSGD(1.0, readout_rate=1.0, ridge=ridge)
    found = fixed_points(ode(dimfree.Mixture.binary(2, np.inf), sgd), key=jax.random.key(0), starts=96)
    assert [point.components for point in found] == [2, 2, 1]
    assert [point.dimension for point in found] == [0, 1, 0]
    assert found.components == 5
    assert found.stable_components == 2
    optimum, ring, origin = found
    radius = math.log((1 - 2 * ridge) / (2 * ridge))
    np.testing.assert_allclose(np.sum(np.asarray(ring.members.readout) ** 2, axis=1), radius, rtol=1e-8)
    np.testing.assert_allclose(ring.members.M[:, :, 0], ring.members.readout, atol=1e-8)
    np.testing.assert_allclose(np.asarray(optimum.state.readout) ** 2, radius, rtol=1e-8)
    assert float(jnp.abs(origin.state.M).max()) == 0
    at_end = np.any(np.asarray(ring.members.readout) == 0, axis=1)
    assert 0 < at_end.sum() < len(at_end)
    np.testing.assert_array_equal(ring.unstable, at_end)
    assert ring.unstable_fraction == at_end.mean()
    np.testing.assert_allclose(ring.growth[at_end], 0.25 - ridge, rtol=2e-3)
    np.testing.assert_allclose(ring.growth[~at_end], -2 * ridge, rtol=2e-2)
    assert "of which 2 stable" in str(found)


def xor_components(width):
    """Neurons fill some of four groups; as many neurons as groups cannot change places, more can."""
    counts = [math.comb(4, groups) for groups in range(min(width, 4) + 1)]
    if width <= 4:
        counts[width] *= math.factorial(width)
    return counts


@pytest.mark.parametrize(("width", "ridge"), [(2, 0.05), pytest.param(4, 0.05, marks=pytest.mark.slow)])
def test_components_of_the_xor_mixture(width, ridge):
    """Width 4: 39 components, of which the 24 permutations attract and 15 do not. Width 2: 17, of which 12 attract."""
    sgd = dimfree.OnlineSGD(1.0, readout_rate=1.0, ridge=ridge)
    limit = ode(dimfree.Mixture.xor(width, np.inf), sgd)
    found = fixed_points(limit, key=jax.random.key(0), starts=96)
    expected = xor_components(width)
    occupied = [_groups(point.state) for point in found]
    counts = np.bincount(occupied, weights=[point.components for point in found])
    np.testing.assert_array_equal(counts, expected)
    assert found.components == sum(expected)
    assert found.stable_components == expected[width]
    assert found.symmetries == 8 * math.factorial(width)
    for point, groups in zip(found, occupied, strict=True):
        assert point.stable == (groups == width)
        assert point.dimension == (width - groups if groups else 0)
        # Each group has found its cluster, the risk of the others is that of no network.
        solved, unsolved = -math.log(1 - 4 * ridge), math.log(2)
        assert point.risk == pytest.approx((groups * solved + (4 - groups) * unsolved) / 4, rel=1e-8)
        if not point.stable:
            np.testing.assert_allclose(point.growth[point.unstable], 1 / 8 - ridge, rtol=5e-3)
            dead = np.all(np.asarray(point.members.M) == 0, axis=2).any(axis=1)
            np.testing.assert_array_equal(point.unstable, dead)


def _groups(state):
    """How many of the four directions some neuron points to."""
    directions = {(r, np.sign(m)) for row in np.asarray(state.M) for r, m in enumerate(row) if m != 0}
    return len(directions)


@pytest.mark.slow
def test_a_quadratic_network_has_its_critical_points_as_families():
    """At a small learning rate the fixed points are the critical points, each family of rotations in one piece."""
    rate = 0.05
    limit = ode(dimfree.PhaseRetrieval(2, noise=0.1), dimfree.OnlineSGD(rate))
    found = fixed_points(limit, key=jax.random.key(0), starts=64)
    near = [point for point in found if point.risk < 2]
    expected = sorted(
        (float(limit.problem.risk(state)), s + r) for (s, r), state in dimfree.quadratic.critical_points(2, 1).items()
    )
    # Label noise splits the solution in two rings, 0.002 apart: one with the second direction empty, which repels.
    expected = [expected[0], *expected]
    assert len(near) == len(expected)
    for point, (risk, rank) in zip(near, expected, strict=True):
        assert point.risk == pytest.approx(risk, abs=0.1 * rate)
        assert point.components == 1
        assert point.dimension == (1 if rank == 1 else 0)
    assert sorted(point.stable for point in near[:2]) == [False, True]
    assert not any(point.stable for point in found if point not in near[:2])
    np.testing.assert_allclose(near[0].growth[0], -near[1].growth[0], rtol=0.01)


@pytest.mark.slow
def test_three_classes_by_quadrature_end_at_the_stable_point():
    problem = cases.three_classes(2, 5.0)
    sgd = dimfree.OnlineSGD(1.0, readout_rate=1.0, ridge=0.05)
    limit = ode(problem, sgd, dimfree.GaussHermite(8))
    found = fixed_points(limit, key=jax.random.key(0), starts=32)
    stable = [kind for kind in found if kind.stable]
    start = dimfree.random_state(problem, d=1000, key=jax.random.key(1), readout_scale=1.0)
    end = dimfree.solve(limit, start, np.array([0.0, 5_000.0]))
    assert {round(kind.risk, 6) for kind in stable} == {round(float(end.risk[-1]), 6)}
    # With a neuron dead it is a saddle: the other cluster still attracts a neuron.
    dead = [kind for kind in found if np.min(np.diagonal(kind.state.Q)) < 1e-9]
    assert len(dead) >= 4
    assert all(np.all(kind.growth > 0.3) for kind in dead)


def test_starts_can_be_given_and_are_checked():
    limit = ode(dimfree.SpikedTensor(2, 2.0), dimfree.OnlineSGD(0.8))
    starts = dimfree.State(Q=[[[2.0]]], M=[[[1.0]]])
    found = fixed_points(limit, key=jax.random.key(0), starts=starts)
    assert any(abs(float(point.state.M[0, 0])) == pytest.approx(math.sqrt(1.2), rel=1e-9) for point in found)
    with pytest.raises(dimfree.InvalidInput, match="a State for each start"):
        fixed_points(limit, key=jax.random.key(0), starts=dimfree.State(Q=[[1.0]], M=[[0.0]]))
    changing = ode(dimfree.SpikedTensor(2, 2.0), dimfree.OnlineSGD(lambda alpha: 1 / (1 + alpha)))
    with pytest.raises(dimfree.InvalidInput, match="changes with alpha"):
        fixed_points(changing, key=jax.random.key(0))
    wide = ode(dimfree.Mixture.xor(8, np.inf), dimfree.OnlineSGD(1.0, readout_rate=1.0, ridge=0.05))
    with pytest.raises(dimfree.InvalidInput, match="symmetries"):
        fixed_points(wide, key=jax.random.key(0), starts=2)
