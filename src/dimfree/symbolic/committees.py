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
        # All that take part, by family and number: those that the loss sees first, then the algorithm's own.
        self.vectors = [(family, n) for family in alphabet.families for n in range(alphabet.size(family))]
        self.scale, teacher_scale = alphabet.scales if scales is None else scales
        self.weights = [self.scale * alphabet.readout(i) for i in range(self.p)]
        self.weights += [-teacher_scale * alphabet.teacher_readout(r) for r in range(self.k)]

    def overlap(self, s: int, t: int) -> Any:
        """The covariance of two fields."""
        return self.alphabet.overlap(*self.vectors[s], *self.vectors[t])

    def by_family(self, rows: list[list[Any]]) -> dict[str, list[list[Any]]]:
        """Rows with an entry for each vector, in parts by family."""
        return {
            family: [[row[n] for n, (each, _) in enumerate(self.vectors) if each == family] for row in rows]
            for family in self.alphabet.families
        }
