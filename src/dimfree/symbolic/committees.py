"""What two-layer networks of given widths share: the covariance of their fields, and the weights of their outputs."""

from typing import Any

from .notation import Alphabet


class Committee:
    r"""A network whose error is $\sum_s c_s g(u_s) - \zeta$, students first.

    **Arguments:**

    - `alphabet`: the symbols.
    - `scales`: what to write for the factors in front of the two sums, if not their values.
    """

    def __init__(self, alphabet: Alphabet, scales: tuple[Any, Any] | None = None):
        self.alphabet = alphabet
        self.p, self.k = alphabet.problem.width, alphabet.problem.teacher_width
        self.scale, teacher_scale = alphabet.scales if scales is None else scales
        self.weights = [self.scale * alphabet.readout(i) for i in range(self.p)]
        self.weights += [-teacher_scale * alphabet.teacher_readout(r) for r in range(self.k)]

    def overlap(self, s: int, t: int) -> Any:
        """The covariance of two fields."""
        alphabet, p = self.alphabet, self.p
        s, t = min(s, t), max(s, t)
        if t < p:
            return alphabet.Q(s, t)
        return alphabet.M(s, t - p) if s < p else alphabet.P(s - p, t - p)
