"""How many samples a wide student saves on its way off the plateau."""

import dataclasses

import numpy as np
from jaxtyping import PRNGKeyArray

from ..algorithms import OnlineSGD
from ..errors import InvalidInput, check_key, check_not_traced, positive_integer, shown
from ..problems import TwoLayer
from ..problems.base import check_problem
from ..state import State
from .exit_times import ExitEstimate, check_threshold
from .learning_rates import BestLearningRate, best_rate_from, first_guess, many_starts, with_rate
from .uncertainty import ratio_error


@dataclasses.dataclass(frozen=True, eq=False)
class WidthGain:
    """What width saves, from [`overparameterisation_gain`].

    - `wide`, `narrow`: the best learning rates of the wide student, and of a student as wide as its teacher. Both have
      the same random starts: the narrow student's neurons are the first neurons of the wide student.
    - `gain`, `fastest_gain`: samples to leave the plateau, narrow over wide; `gain_error`, `fastest_gain_error`: their
      standard errors, from the starts that leave in both.
    """

    wide: BestLearningRate
    narrow: BestLearningRate

    @property
    def gain(self) -> float:
        """Samples to leave the plateau, narrow over wide, each at its best rate with a stable end state."""
        return _gain(self.narrow.exits, self.wide.exits)[0]

    @property
    def gain_error(self) -> float:
        return _gain(self.narrow.exits, self.wide.exits)[1]

    @property
    def fastest_gain(self) -> float:
        """The same at the rates that leave soonest, whatever happens afterwards."""
        return _gain(self.narrow.fastest_exits, self.wide.fastest_exits)[0]

    @property
    def fastest_gain_error(self) -> float:
        return _gain(self.narrow.fastest_exits, self.wide.fastest_exits)[1]

    def __repr__(self) -> str:
        gain, fastest = f"{self.gain:.4g} +- {self.gain_error:.2g}", f"{self.fastest_gain:.4g}"
        return (
            f"A wide student needs {gain} times fewer samples to leave the plateau and learn\n"
            f"  narrow: alpha = {self.narrow.exits!r} at learning rate {self.narrow.learning_rate:.5g}\n"
            f"  wide:   alpha = {self.wide.exits!r} at learning rate {self.wide.learning_rate:.5g}\n"
            f"  {fastest} +- {self.fastest_gain_error:.2g} times fewer to leave it at all"
        )


def _gain(narrow: ExitEstimate, wide: ExitEstimate) -> tuple[float, float]:
    left = np.isfinite(narrow.times) & np.isfinite(wide.times)
    if not left.any():
        return np.nan, np.nan
    above, below = narrow.times[left], wide.times[left]
    return float(above.mean() / below.mean()), ratio_error(above, below)


def overparameterisation_gain(
    problem: TwoLayer, algorithm: OnlineSGD, d: int, threshold: float = 0.1, *, key: PRNGKeyArray
) -> WidthGain:
    r"""How many times fewer samples a wide student needs to leave the plateau than a student as wide as its teacher.

    Each has its own best learning rate, with a stable end state. For phase retrieval on the sphere the leading order in
    log d is, with $c_p = 1 + 1/p + 4/p^2 + \Delta/2$ and $g_p = \min(1 / (2 c_p), 2 / (12 + \Delta))$ the best rate
    over p,

    $$ \text{gain} = \frac{g_p (1 - g_p c_p)}{g_1 (1 - g_1 c_1)}, \qquad \text{fastest gain} = \frac{c_1}{c_p}. $$

    **Arguments:**

    - `problem`: the wide student; its readouts must be equal, otherwise there is no narrow counterpart.
    - `algorithm`, `d`, `threshold`, `key`: as for [`best_learning_rate`]. The narrow student's search begins at the
      same rate per neuron.

    **Returns:** a [`WidthGain`].

    Arnaboldi et al. 2023, Appendix C.4, has the second: for wide students $(12 + \Delta)/(2 + \Delta)$. SGD does not
    learn at that rate; with a stable end the gain is at most $40/(12 + \Delta)$ for $\Delta < 8$.
    """
    check_not_traced(
        "overparameterisation_gain", problem=problem, algorithm=algorithm, d=d, threshold=threshold, key=key
    )
    if not isinstance(problem, TwoLayer) or bool((problem.readout != problem.readout[0]).any()):
        raise InvalidInput(f"problem = {shown(problem)} was given; take a TwoLayer whose readouts are equal.")
    check_problem(problem)
    k = problem.teacher_width
    narrow = problem.resized(k)
    slower = with_rate(algorithm, first_guess(algorithm) * k / problem.width)
    d = positive_integer(d, "d", minimum=2)
    check_threshold(threshold)
    check_key(key)
    starts = many_starts(problem, algorithm, d, key)
    # The first of many random students are as many random students.
    fewer = State(Q=starts.Q[:, :k, :k], M=starts.M[:, :k], P=starts.P)
    return WidthGain(
        wide=best_rate_from(problem, algorithm, starts, threshold),
        narrow=best_rate_from(narrow, slower, fewer, threshold),
    )
