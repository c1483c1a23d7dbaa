"""The errors of what is averaged over starts or runs."""

from typing import Any

import numpy as np
from jaxtyping import Float


def standard_error(values: Float[np.ndarray, " runs"]) -> float:
    """The standard error of a mean of independent values; NaN of a single one, whose spread is unknown."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.nan


def fraction_error(count: Any, number: int) -> Any:
    """The standard error of the fraction `count / number` of independent events, not zero for all or none of them.

    It is the deviation of the probability given the count (Laplace): an error of zero would be a lie.
    """
    return np.sqrt((count + 1.0) * (number - count + 1.0) / (number + 3.0)) / (number + 2.0)


def ratio_error(above: Float[np.ndarray, " runs"], below: Float[np.ndarray, " runs"]) -> float:
    """The standard error of the ratio of two means over the same starts: what they have in common cancels."""
    ratio = above.mean() / below.mean()
    return standard_error(above - ratio * below) / abs(float(below.mean()))


def log_median(samples: Float[np.ndarray, " runs"], enough: float = 0.75) -> tuple[float, float]:
    """The logarithm of the median, and its standard error by the order statistics around it.

    Infinite where it is not known: a smaller fraction than `enough` is finite.
    """
    ordered, number = np.sort(samples), len(samples)
    if np.mean(np.isfinite(samples)) < enough:
        return np.inf, np.inf
    # The rank of the median among independent runs is binomial, with standard deviation sqrt(runs) / 2.
    beside = max(1, round(np.sqrt(number) / 2))
    low, high = ordered[max(0, (number - 1) // 2 - beside)], ordered[min(number - 1, number // 2 + beside)]
    return float(np.log(np.median(ordered))), float((np.log(high) - np.log(low)) / 2)
