"""Pictures of analyses hold the numbers of their results."""

import numpy as np
import pytest
from matplotlib import pyplot as plt

import dimfree


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


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
