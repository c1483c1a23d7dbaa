"""Quadratic networks of any width: moments as products and traces of matrices of overlaps."""

import dataclasses
import math
from typing import Any

import sympy

from ..state import STUDENTS, TEACHERS
from .matrix_polynomials import MatrixPolynomial, transposed
from .notation import Alphabet

Blocks = list[list[MatrixPolynomial]]


@dataclasses.dataclass(frozen=True)
class MatrixSystem:
    r"""The ODE of a quadratic network with symbolic widths, per alpha and without a constraint on the norms.

    - `flow`, `corrector`: the parts of first and of second order in the slopes, for `"Q"` (p, p), `"M"` (p, k) and
      overlaps with the algorithm's own vectors.
    - `readout`: a matrix whose diagonal is the drift of the readout, or None where it is fixed.
    - `risk`: a scalar.
    """

    flow: dict[str, MatrixPolynomial]
    corrector: dict[str, MatrixPolynomial]
    readout: MatrixPolynomial | None
    risk: MatrixPolynomial


class QuadraticNetwork:
    r"""The error $e = u^\top S u - \sigma - \zeta$ of a quadratic network, its fields $u \sim N(0, \Omega)$ in blocks.

    All averages follow from the tilted Gaussian $e^{\theta u^\top S u}$: without constant and noise,

    $$ \mathbb{E}[(u^\top S u)^n u u^\top] = n!\, [\theta^n]\, Z_\theta \Omega_\theta , \qquad
       \Omega_\theta = \sum_j (2\theta)^j \Omega (S \Omega)^j , \qquad
       Z_\theta = \exp \sum_{j \ge 1} \frac{(2\theta)^j}{2j} \operatorname{tr} (S\Omega)^j . $$

    **Arguments:**

    - `alphabet`: the symbols, with symbolic sizes.
    - `coefficients`: $b, 0, c$ of the activation $g(x) = b + c x^2$.
    """

    def __init__(self, alphabet: Alphabet, coefficients: tuple[Any, ...]):
        constant, _, curvature = (sympy.sympify(c) for c in coefficients)
        self.alphabet, self.constant, self.curvature = alphabet, constant, curvature
        p, k = self.sizes = (alphabet.p, alphabet.k)
        one, letter = MatrixPolynomial.scalar(1), MatrixPolynomial.letter
        self.A = one if alphabet.unit_readout else letter("A")
        teacher = one if alphabet.unit_teacher_readout else letter("A*")
        self.P = one if alphabet.orthonormal_teachers else letter("P")
        self.scale, teacher_scale = alphabet.scales
        # With rows for the fields that the loss sees, and columns for those of all vectors.
        seen: Blocks = [[self.overlap(row, column) for column in alphabet.families] for row in (STUDENTS, TEACHERS)]
        self.Omega = [row[:2] for row in seen]
        self.S = [curvature * self.scale * self.A, -curvature * teacher_scale * teacher]
        # The constant of the error.
        self.offset = constant * (self.scale * self.A.trace(p) - teacher_scale * teacher.trace(k))
        chain = [seen]
        for _ in range(4):
            chain.append(_times(self.Omega, self._tilt(chain[-1])))
        self.chain = chain  # Omega (S Omega)^j; for unseen vectors with their overlaps in place of the last Omega
        self.traces = [self._trace(each) for each in chain]  # tr (S Omega)^(j + 1)
        self.partition = [one]
        for n in range(1, 5):
            terms = (2 ** (j - 1) * self.traces[j - 1] * self.partition[n - j] for j in range(1, n + 1))
            self.partition.append(sum(terms, MatrixPolynomial()) / n)

    def overlap(self, one: str, other: str) -> MatrixPolynomial:
        """The overlaps of two families of vectors."""
        if (one, other) == (TEACHERS, TEACHERS):
            return self.P
        names = {entries.pair: entries.name for entries in self.alphabet.coordinates.entries}
        name = names[one, other] if (one, other) in names else transposed(names[other, one])
        return MatrixPolynomial.letter(name)

    def _tilt(self, blocks: Blocks) -> Blocks:
        return [[self.S[row] * entry for entry in blocks[row]] for row in range(2)]

    def _trace(self, blocks: Blocks) -> MatrixPolynomial:
        """The trace of S times a matrix in blocks; on the sphere the trace of Q is p."""
        return sum(
            (self.constrained((self.S[i] * blocks[i][i]).trace(self.sizes[i])) for i in range(2)), MatrixPolynomial()
        )

    def constrained(self, words: MatrixPolynomial) -> MatrixPolynomial:
        """With what the sphere says of traces put in: tr Q = p, tr AQ = tr A."""
        if not self.alphabet.sphere:
            return words
        total = MatrixPolynomial()
        for (word, traces), value in words.terms.items():
            kept = []
            for trace in traces:
                if trace == ("Q",):
                    value = value * self.alphabet.p
                else:
                    kept.append(("A",) if trace == ("A", "Q") else trace)
            total = total + MatrixPolynomial({(word, tuple(sorted(kept))): value})
        return total

    def scalar_moment(self, power: int) -> MatrixPolynomial:
        r"""$\mathbb{E}[e^n]$ without noise, n at most 2."""
        bare = [math.factorial(n) * self.partition[n] for n in range(power + 1)]
        return sum(
            (math.comb(power, n) * self.offset ** (power - n) * bare[n] for n in range(power + 1)), MatrixPolynomial()
        )

    def moment(self, power: int, row: int, column: int) -> MatrixPolynomial:
        r"""A block of $\mathbb{E}[e^n u u^\top]$ without noise, n at most 2."""

        def bare(n: int) -> MatrixPolynomial:
            terms = (2**j * self.partition[n - j] * self.chain[j][row][column] for j in range(n + 1))
            return math.factorial(n) * sum(terms, MatrixPolynomial())

        return sum(
            (math.comb(power, n) * self.offset ** (power - n) * bare(n) for n in range(power + 1)), MatrixPolynomial()
        )

    def system(self) -> MatrixSystem:
        """Drift and risk."""
        alphabet, A = self.alphabet, self.A
        move, batch = alphabet.move, alphabet.batch_size
        own, nothing = 2 * self.curvature * self.scale, MatrixPolynomial()
        along = {family: own * A * self.moment(1, 0, n) for n, family in enumerate(alphabet.families)}
        square = own**2 * A * (self.moment(2, 0, 0) + alphabet.noise * self.Omega[0][0]) * A

        def moved(family: str, other: str) -> MatrixPolynomial:
            """How a family moves along another, per step."""
            dragged = (number * self.overlap(by, other) for (each, by), number in move.drag.items() if each == family)
            pulled = move.pull[family] * along[other] if family in move.pull else nothing
            return sum(dragged, pulled)

        flow, corrector = {}, {}
        for entries in alphabet.coordinates.entries:
            one, other = entries.pair
            flow[entries.name] = (moved(one, other) + moved(other, one).T) / batch
            both = one in move.pull and other in move.pull
            corrector[entries.name] = move.pull[one] * move.pull[other] / batch**2 * square if both else nothing
        readout = None
        if alphabet.trained:
            mean = self.curvature * self.moment(1, 0, 0) + self.constant * self.scalar_moment(1)
            readout = -1 * (alphabet.readout_rate / batch) * (self.scale * mean + alphabet.ridge * A)
        risk = (self.scalar_moment(2) + alphabet.noise) / 2
        return MatrixSystem(flow, corrector, readout, risk)


def _times(left: Blocks, right: Blocks) -> Blocks:
    return [
        [sum((left[i][m] * right[m][j] for m in range(2)), MatrixPolynomial()) for j in range(len(right[0]))]
        for i in range(2)
    ]
