"""Averages of polynomials of Gaussian fields, as polynomials of their covariances."""

from collections.abc import Sequence
from typing import Any

import sympy
from sympy.polys.rings import ring


class GaussianFields:
    r"""Centred Gaussian fields with a covariance of symbols, and polynomials of them.

    Averages are taken by Wick's theorem in the form of a recursion with memory,

    $$ \mathbb{E}[u_i \, u^n] = \sum_j n_j \, C_{ij} \, \mathbb{E}[u^n / u_j], $$

    so that a moment of order 12 costs as many products as there are lower moments, not 10395 pairings.

    **Arguments:**

    - `covariance`: square, entries are sympy numbers or symbols.
    - `parameters`: further symbols that polynomials may contain.
    """

    def __init__(self, covariance: Sequence[Sequence[Any]], parameters: Sequence[Any] = ()):
        self.size = len(covariance)
        symbols = {symbol for row in covariance for entry in row for symbol in entry.free_symbols}
        names = sorted(symbols | {s for each in parameters for s in sympy.sympify(each).free_symbols}, key=str)
        # At least one generator: sympy has no ring without any.
        self.numbers = ring(names or [sympy.Dummy()], sympy.QQ)[0]
        self.covariance = [[self.number(entry) for entry in row] for row in covariance]
        self.ring, *self.fields = ring([sympy.Dummy(f"u{i}") for i in range(self.size)], self.numbers.to_domain())
        self._known: dict[tuple[int, ...], Any] = {(0,) * self.size: self.numbers.one}

    def number(self, value: Any) -> Any:
        """A number or a polynomial of the symbols, as an element of the ring of coefficients."""
        value = sympy.sympify(value)
        return (
            self.numbers.ground_new(sympy.QQ.from_sympy(value)) if value.is_Rational else self.numbers.from_expr(value)
        )

    def moment(self, powers: tuple[int, ...]) -> Any:
        """The average of a product of powers of the fields."""
        if powers in self._known:
            return self._known[powers]
        total = self.numbers.zero
        if sum(powers) % 2 == 0:
            i = next(index for index, power in enumerate(powers) if power)
            rest = _lowered(powers, i)
            for j, power in enumerate(rest):
                if power and self.covariance[i][j] != 0:
                    total = total + power * self.covariance[i][j] * self.moment(_lowered(rest, j))
        self._known[powers] = total
        return total

    def average(self, polynomial: Any) -> Any:
        """The average of a polynomial of the fields, an element of the ring of coefficients."""
        total = self.numbers.zero
        for powers, coefficient in self.ring(polynomial).terms():
            moment = self.moment(powers)
            if moment != 0:
                total = total + moment * coefficient
        return total

    def covariance_of(self, one: Any, other: Any) -> Any:
        """The covariance of two polynomials of the fields."""
        return self.average(one * other) - self.average(one) * self.average(other)


def _lowered(powers: tuple[int, ...], index: int) -> tuple[int, ...]:
    return (*powers[:index], powers[index] - 1, *powers[index + 1 :])
