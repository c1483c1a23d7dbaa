"""Pictures of analyses hold the numbers of their results."""

import numpy as np
import pytest
import xarray

import dimfree


def test_distances_are_beside_a_line_of_slope_minus_one_half():
    result = dimfree.CheckResult(
        agrees=True,
        slope=-0.5,
        slopes={},
        dimensions=(100, 400),
        distances=(0.2, 0.1),
        distance_errors=(0.1, 0.2),
        diverged=(0.0, 0.0),
        drift=(("Q[0,0]", 1.0, 1.0, 1.0),),
        alpha=0.5,
        expectation="closed form",
        expectation_error=0.0,
        effective_dimensions=(100.0, 400.0),
    )
    assert result.slope_error == pytest.approx(np.hypot(0.1, 0.2) / np.log(4))  # of a line through two points
    assert "-0.50 +- 0.16" in str(result)
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


def test_refined_cells_are_drawn_over_their_axes_whatever_these_are_called():
    rates, thresholds = np.random.default_rng(0).uniform(size=(2, 12))
    cells = {"closed_form.dressed": ("cell", rates), "status": ("cell", np.ones(12, np.uint8))}
    axes_of_study = {"algorithm.learning_rate": ("cell", rates), "threshold": ("cell", thresholds)}
    axes = dimfree.plot.phase_diagram(xarray.Dataset(cells, coords=axes_of_study))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("learning rate", "threshold")
    np.testing.assert_allclose(np.asarray(axes.collections[-1].get_offsets()), np.stack([rates, thresholds], axis=1))


def test_all_lines_are_drawn_over_a_phase_diagram_also_where_colours_repeat():
    coordinates = {"problem.noise": [0.0, 1.0, 2.0], "d": [100, 200]}
    cells = {"risk": (tuple(coordinates), np.ones((3, 2))), "status": (tuple(coordinates), np.ones((3, 2), np.uint8))}
    lines = {f"bound {number}": ([0.0, 2.0], [100 + 10 * number, 150]) for number in range(6)}
    axes = dimfree.plot.phase_diagram(xarray.Dataset(cells, coords=coordinates), lines=lines)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(lines)
    assert len(axes.lines) == 6


def study_of(rates, activations) -> xarray.Dataset:
    """A study whose risk is the learning rate, ten times as large for each further activation."""
    risk = np.asarray(rates)[:, None] * 10.0 ** np.arange(len(activations))
    axes = ("algorithm.learning_rate", "problem.activation")
    cells = {"risk": (axes, risk), "status": (axes, np.ones(risk.shape, np.uint8))}
    return xarray.Dataset(cells, coords=dict(zip(axes, (rates, activations), strict=True)))


def test_cells_of_a_phase_diagram_are_where_their_values_are_in_whatever_order_these_are_given():
    axes = dimfree.plot.phase_diagram(study_of([0.3, 0.1, 0.2], ["erf", "relu"]), level=0.25)
    np.testing.assert_allclose(np.asarray(axes.collections[0].get_array()), [[0.1, 0.2, 0.3], [1, 2, 3]])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["erf", "relu"]


def test_an_axis_with_one_value_is_none():
    axes = dimfree.plot.phase_diagram(study_of([0.3, 0.1], ["erf"]), level=0.2)
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[0.1, 0.1], [0.3, 0.3]])
    with pytest.raises(dimfree.InvalidInput, match="one cell only"):
        dimfree.plot.phase_diagram(study_of([0.3], ["erf"]))
