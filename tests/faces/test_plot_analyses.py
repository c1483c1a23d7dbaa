"""Pictures of analyses hold the numbers of their results."""

import numpy as np
import pytest
from matplotlib import pyplot as plt

import dimfree
from dimfree.analysis.exit_times import ExitEstimate


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def estimate(times) -> ExitEstimate:
    return ExitEstimate(1.0, 0.1, (1.0, 1.0, 1.0), 0.0, 9.0, np.asarray(times, float), "always")


def test_exit_times_are_fractions_of_all_runs_also_of_those_that_stay():
    result = dimfree.ExitTime(
        problem=dimfree.PhaseRetrieval(),
        algorithm=dimfree.OnlineSGD(0.1),
        d=100,
        threshold=0.1,
        plateau_risk=2.0,
        level=1.8,
        closed_form=None,
        ode=estimate([3.0, 1.0, 2.0, 4.0]),
        dressed=None,
        sde=None,
        simulated=estimate([2.0, np.inf, 1.0, np.inf]),
    )
    axes = dimfree.plot.exit_times(result)
    ode, simulated = axes.get_lines()
    assert np.column_stack(ode.get_data()).tolist() == [[1, 0.25], [2, 0.5], [3, 0.75], [4, 1.0]]
    assert np.column_stack(simulated.get_data()).tolist() == [[1, 0.25], [2, 0.5]]


def test_distances_are_beside_a_line_of_slope_minus_one_half():
    result = dimfree.CheckResult(
        True, -0.5, {}, (100, 400), (0.2, 0.1), (0.0, 0.0), (("Q[0,0]", 1.0, 1.0, 1.0),), 0.5, "closed form", 0.0
    )
    axes = dimfree.plot.distances(result)
    line, dots = axes.get_lines()
    np.testing.assert_allclose(dots.get_ydata(), [0.2, 0.1])
    np.testing.assert_allclose(line.get_ydata(), [0.2, 0.1])  # these fall as they must
    assert "agree" in axes.get_title(loc="left")


def test_spectra_have_an_eigenvalue_for_each_dot_and_colours_by_sign():
    spectrum = dimfree.HessianSpectrum(
        eigenvalues=np.array([-1.0, 0.0, 2.0]),
        multiplicities=np.array([1, 98, 1]),
        bulk=np.array([0, 98, 0]),
        risk=0.5,
        gradient_norm=0.0,
        symmetric=98,
        tolerance=1e-6,
        d=100,
        sphere=False,
    )
    axes = dimfree.plot.spectra([spectrum, spectrum])
    first, second = axes.collections
    assert np.asarray(first.get_offsets()).tolist() == [[0, -1], [0, 0], [0, 2]]
    assert np.asarray(second.get_offsets())[:, 0].tolist() == [1, 1, 1]
    assert len({tuple(colour) for colour in first.get_edgecolors()}) == 3
    assert first.get_sizes()[1] > first.get_sizes()[0]
    with pytest.raises(dimfree.InvalidInput, match="no critical points"):
        dimfree.plot.spectra([])
