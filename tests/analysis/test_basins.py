"""Basins: where random starts end, against the rule of signs that decides it at infinite snr."""

import math

import jax
import numpy as np
import pytest

import dimfree
from dimfree.analysis.basins import basins
from dimfree.analysis.exit_times import random_starts
from dimfree.limits import ode


def stirling(n, k):
    """The number of ways to put n neurons in k groups, none empty."""
    return sum((-1) ** (k - j) * math.comb(k, j) * j**n for j in range(k + 1)) // math.factorial(k)


def xor_probabilities(width):
    """Each neuron joins one of four groups by two fair signs: P(4, 3, 2, 1 groups occupied).

    For four neurons 24, 144, 84 and 4 of 256.
    """
    return [math.perm(4, groups) * stirling(width, groups) / 4**width for groups in (4, 3, 2, 1)]


def xor(width, ridge=0.05):
    return ode(dimfree.Mixture.xor(width, np.inf), dimfree.OnlineSGD(1.0, readout_rate=1.0, ridge=ridge))


def assert_xor(found, width):
    """Four standard errors for each; risk by the number of groups that have found their cluster."""
    expected = np.array(xor_probabilities(width))
    solved, unsolved = -math.log(1 - 4 * 0.05), math.log(2)
    risks = [(groups * solved + (4 - groups) * unsolved) / 4 for groups in (4, 3, 2, 1)]
    at = [int(np.argmin(np.abs(found.risk - risk))) for risk in risks]
    present = expected * found.starts > 20  # the rarest may not occur
    np.testing.assert_allclose(found.risk[at][present], np.array(risks)[present], atol=1e-4)
    error = np.sqrt(expected * (1 - expected) / found.starts)
    assert np.all(np.abs(found.probability[at] - expected)[present] < 4 * error[present]), found
    assert found.counts.sum() >= 0.999 * found.starts  # a neuron that starts from almost nothing may be late


@pytest.mark.slow  # as the paper's statement of one half; four clusters, below, are checked always
def test_two_clusters_are_learned_with_probability_one_half():
    """By the ODE and by simulation; 768 starts, standard error 0.018, and 128 runs, 0.044."""
    limit = ode(dimfree.Mixture.binary(2, np.inf), dimfree.OnlineSGD(1.0, readout_rate=1.0, ridge=0.1))
    found = basins(limit, d=100, alpha=150.0, key=jax.random.key(0), starts=768, runs=128)
    optimum, ring = math.log(1 / 0.8), (math.log(1 / 0.8) + math.log(2)) / 2
    np.testing.assert_allclose(found.risk, [optimum, ring], atol=1e-4)
    assert found.counts.sum() == 768
    assert found.simulated_counts.sum() == 128
    assert abs(found.probability[0] - 0.5) < 4 * 0.5 / math.sqrt(768)
    assert abs(found.simulated_probability[0] - 0.5) < 4 * 0.5 / math.sqrt(128)
    assert "768 starts" in str(found)


def test_xor_ends_by_the_number_of_groups_in_short():
    assert_xor(basins(xor(4), d=10_000, alpha=150.0, key=jax.random.key(0), starts=512), 4)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "starts"), [(4, 8_000), (6, 3_000), (8, 3_000)])
def test_xor_is_learned_with_the_probability_of_the_rule_of_signs(width, starts):
    """3/32 for four neurons; 4! S(K, 4) / 4^K for K."""
    assert_xor(basins(xor(width), d=10_000, alpha=150.0, key=jax.random.key(1), starts=starts), width)


def test_random_starts_have_random_readouts_and_small_overlaps():
    starts = random_starts(xor(4).problem, 400, 500, key=jax.random.key(0), readout_scale=1.0)
    assert starts.readout.shape == (500, 4)
    assert float(starts.readout.var()) == pytest.approx(1, abs=0.13)  # standard error 0.032
    assert float(starts.M.var()) == pytest.approx(1 / 400, rel=0.1)  # standard error 2%
    fixed = random_starts(dimfree.PhaseRetrieval(2), 50, 3, key=jax.random.key(0))
    np.testing.assert_array_equal(fixed.readout, np.ones((3, 2)))


def test_what_is_not_at_rest_is_left_out_and_said():
    limit = ode(dimfree.SpikedTensor(2, 2.0), dimfree.OnlineSGD(1.0))
    start = dimfree.State(Q=np.ones((2, 1, 1)), M=[[[0.5]], [[1e-6]]])
    found = basins(limit, d=100, alpha=2.0, key=jax.random.key(0), starts=start)
    assert found.counts.tolist() == [1]
    assert "not at rest or diverged: 1 starts" in str(found)
    with pytest.raises(dimfree.InvalidInput, match="each run needs one"):
        basins(limit, d=100, alpha=2.0, key=jax.random.key(0), starts=start, runs=3)
