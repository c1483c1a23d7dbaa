"""Pictures that tests have drawn are put away."""

import pytest
from matplotlib import pyplot as plt


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")
