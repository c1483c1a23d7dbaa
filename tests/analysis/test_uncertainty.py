"""Errors of averages: against the scatter of many repetitions."""

import numpy as np
import pytest

from dimfree.analysis.uncertainty import fraction_error, ratio_error, standard_error


def test_a_mean_and_a_ratio_of_means_scatter_as_their_errors_say():
    """4,000 repetitions: the deviation is known to 1.1%, and the errors agree with it to 5%."""
    draws = np.random.default_rng(0)
    common = draws.gamma(9.0, size=(4000, 64))
    above, below = 2 * common + draws.gamma(2.0, size=common.shape), common + draws.gamma(2.0, size=common.shape)
    means = above.mean(axis=1)
    assert np.mean([standard_error(row) for row in above]) == pytest.approx(means.std(), rel=0.05)
    ratios = means / below.mean(axis=1)
    errors = np.array([ratio_error(*rows) for rows in zip(above, below, strict=True)])
    assert errors.mean() == pytest.approx(ratios.std(), rel=0.05)
    # Had they not the same starts, it would be much larger.
    apart = np.hypot(above.std() / above.mean(), below.std() / below.mean()) / 8 * ratios.mean()
    assert errors.mean() < 0.6 * apart
    assert np.isnan(standard_error(np.ones(1)))


@pytest.mark.parametrize("probability", [0.0, 0.003, 0.3, 0.97])
def test_the_error_of_a_fraction_is_honest_also_where_all_or_none_happen(probability):
    """The root of the mean square deviation is the error, within a factor that counts of a few events cannot beat."""
    number, counts = 200, np.random.default_rng(1).binomial(200, probability, size=20_000)
    errors = fraction_error(counts, number)
    assert (errors > 0).all()
    deviation = np.sqrt(np.mean((counts / number - probability) ** 2))
    assert deviation < 1.05 * np.sqrt(np.mean(errors**2))
    if 0.1 < probability < 0.9:
        assert deviation == pytest.approx(errors.mean(), rel=0.03)
    assert fraction_error(0, number) == pytest.approx(1 / number, rel=0.03)
