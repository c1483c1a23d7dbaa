r"""What the figures share: settings, exit times of curves, the look.

Times are on the source's clock, $t = \text{learning\_rate} \cdot \alpha / p$. The source states d and p, but not the
learning rate, the noise or the threshold: here learning_rate / p = 0.05 (1/12 in figure 2), noise 0.1 (none in figures
2 and 3), and exit when the excess risk has fallen by the fraction 0.1.
"""

from typing import Any

import numpy as np

from dimfree import OnlineSGD, PhaseRetrieval, Trajectory, TwoLayer

RATE_PER_WIDTH = 0.05
NOISE = 0.1
THRESHOLD = 0.1
CONSIDERABLE = 0.2  # a relative change of an exit time that the source's words would not cover
CLOCK = r"$t$ = learning rate $\times$ samples / $(p\,d)$"


def stated(p: int) -> tuple[TwoLayer, OnlineSGD]:
    """The problem and the algorithm of most figures."""
    return PhaseRetrieval(width=p, noise=NOISE), OnlineSGD(RATE_PER_WIDTH * p, sphere=True)


def settings(**changes: Any) -> dict[str, Any]:
    """Attributes of a Dataset: what the figure was made with."""
    return {"rate_per_width": RATE_PER_WIDTH, "noise": NOISE, "threshold": THRESHOLD, **changes}


def excess_risk(trajectory: Trajectory) -> np.ndarray:
    """The risk without the half of the noise that nobody can learn."""
    return np.asarray(trajectory.risk) - float(trajectory.problem.irreducible_risk)


def exit_of(times: np.ndarray, excess: np.ndarray, threshold: float = THRESHOLD) -> np.ndarray:
    """When the excess risk has fallen by the fraction `threshold` of its start (eq. 21), for each curve."""
    return first_crossing(times, -excess, -(1 - threshold) * excess[..., :1])


def first_crossing(times: np.ndarray, curves: np.ndarray, level: float | np.ndarray) -> np.ndarray:
    """Where each curve first rises to the level, between the times by a straight line; infinity if it does not."""
    above = curves - level
    many = above.reshape(-1, len(times))
    found = np.full(len(many), np.inf)
    for row, values in enumerate(many):
        reached = np.flatnonzero(values >= 0)
        if len(reached):
            after = int(reached[0])
            before = max(after - 1, 0)  # a curve that begins above the level crosses it there
            found[row] = np.interp(0.0, values[[before, after]], times[[before, after]])
    return found.reshape(above.shape[:-1])


def ratio_of_means(sample: np.ndarray, to: float) -> tuple[float, float]:
    """The mean of a sample over a number, with its standard error."""
    return float(np.mean(sample) / to), float(np.std(sample, ddof=1) / abs(to) / len(sample) ** 0.5)


def error_of_deviation(sample: np.ndarray) -> float:
    """Standard error of a standard deviation, relative to it, for any law with four moments."""
    centred = np.asarray(sample) - np.mean(sample)
    variance = np.mean(centred**2)
    return float(np.sqrt((np.mean(centred**4) / variance**2 - 1) / len(centred)) / 2)
