"""How many samples a wide student saves on its way off the plateau."""

import dataclasses

from jaxtyping import PRNGKeyArray

from ..algorithms import OnlineSGD
from ..errors import InvalidInput
from ..problems import TwoLayer
from .learning_rates import BestLearningRate, best_learning_rate, first_guess, with_rate


@dataclasses.dataclass(frozen=True)
class WidthGain:
    """What width saves, from [`overparameterisation_gain`].

    - `wide`, `narrow`: the best learning rates of the student, and of one as wide as its teacher.
    """

    wide: BestLearningRate
    narrow: BestLearningRate

    @property
    def gain(self) -> float:
        """Samples to leave the plateau, narrow over wide, each at its best rate with a stable end state."""
        return self.narrow.exit_time / self.wide.exit_time

    @property
    def fastest_gain(self) -> float:
        """The same at the rates that leave soonest, whatever happens afterwards."""
        return self.narrow.fastest_exit_time / self.wide.fastest_exit_time

    def __repr__(self) -> str:
        return (
            f"A wide student needs {self.gain:.4g} times fewer samples to leave the plateau and learn\n"
            f"  narrow: alpha = {self.narrow.exit_time:.5g} at learning rate {self.narrow.learning_rate:.5g}\n"
            f"  wide:   alpha = {self.wide.exit_time:.5g} at learning rate {self.wide.learning_rate:.5g}\n"
            f"  {self.fastest_gain:.4g} times fewer to leave it at all"
        )


def overparameterisation_gain(
    problem: TwoLayer, algorithm: OnlineSGD, d: int, threshold: float = 0.1, *, key: PRNGKeyArray
) -> WidthGain:
    r"""How many times fewer samples a student needs to leave the plateau than one that is as wide as its teacher.

    Each has its own best learning rate, with a stable end state. For phase retrieval on the sphere the leading order in
    log d is, with $c_p = 1 + 1/p + 4/p^2 + \Delta/2$ and $g_p = \min(1 / (2 c_p), 2 / (12 + \Delta))$ the best rate
    over p,

    $$ \text{gain} = \frac{g_p (1 - g_p c_p)}{g_1 (1 - g_1 c_1)}, \qquad \text{fastest gain} = \frac{c_1}{c_p}. $$

    **Arguments:**

    - `problem`: the wide student; readouts that are not all equal have no narrow counterpart.
    - `algorithm`, `d`, `threshold`, `key`: as for [`best_learning_rate`]. The narrow student's search begins at the
      same rate per neuron.

    Arnaboldi et al. 2023, Appendix C.4, has the second: for wide students $(12 + \Delta)/(2 + \Delta)$. SGD does not
    learn at that rate; with a stable end the gain is at most $40/(12 + \Delta)$ for $\Delta < 8$.
    """
    if not isinstance(problem, TwoLayer) or bool((problem.readout != problem.readout[0]).any()):
        raise InvalidInput(f"problem = {problem!r} was given; take a TwoLayer whose readouts are equal.")
    k = problem.teacher_width
    narrow = problem.resized(k)
    slower = with_rate(algorithm, first_guess(algorithm) * k / problem.width)
    return WidthGain(
        wide=best_learning_rate(problem, algorithm, d, threshold, key=key),
        narrow=best_learning_rate(narrow, slower, d, threshold, key=key),
    )
