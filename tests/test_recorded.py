"""Nothing moved by accident: some three hundred results beside those that were recorded."""

import numpy as np
import pytest

from recorded import FILE, results

# Relative to the largest entry of a result. In few dimensions a run of SGD multiplies rounding: by 10^3 in 160 steps.
TOLERANCE, IN_THREE_DIMENSIONS = 1e-12, 1e-11


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_results_are_those_recorded():
    recorded, found = np.load(FILE), results()
    assert set(found) == set(recorded.files)
    assert len(found) > 200
    moved = {name: _distance(found[name], recorded[name]) for name in found}
    allowed = {name: IN_THREE_DIMENSIONS if "d = 3" in name else TOLERANCE for name in found}
    assert {name: distance for name, distance in moved.items() if not distance <= allowed[name]} == {}


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    if one.shape != other.shape or (np.isnan(one) != np.isnan(other)).any():
        return np.inf
    scale = np.nanmax(np.abs(other), initial=1e-300)
    return float(np.nanmax(np.abs(one - other), initial=0.0) / scale)
