"""Two-layer networks with a polynomial activation: all averages are finite Wick sums."""

from collections.abc import Sequence
from typing import Any

import sympy
from sympy.polys.rings import ring

from .drifts import Number, increment_covariance
from .moments import Committee, SymbolicMoments
from .notation import Alphabet


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


class PolynomialNetwork(Committee):
    r"""The error $e = \sum_s c_s g(u_s) - \zeta$ of a network of given widths, as a polynomial of its fields.

    **Arguments:**

    - `alphabet`: the symbols.
    - `coefficients`: those of the activation, from the constant upwards: numbers or symbols.
    """

    def __init__(self, alphabet: Alphabet, coefficients: Sequence[Any]):
        # p^-1/2 is not rational: a symbol that gets its value at the end.
        self._roots = {}
        if alphabet.network.normalisation == "sqrt":
            roots = sympy.symbols("scale_p scale_k", cls=sympy.Dummy)
            super().__init__(alphabet, roots)
            self._roots = dict(zip(roots, alphabet.scales, strict=True))
        else:
            super().__init__(alphabet)
        size = len(self.vectors)
        covariance = [[self.overlap(s, t) for t in range(size)] + [sympy.Integer(0)] for s in range(size)]
        covariance.append([sympy.Integer(0)] * size + [alphabet.noise])
        fields = self.fields = GaussianFields(covariance, [*self.weights, *coefficients, self.scale])
        u = fields.fields[:size]
        activation = [fields.number(c) for c in coefficients]
        slope = [n * c for n, c in enumerate(activation)][1:]
        self.weight = [fields.number(w) for w in self.weights]
        self.outputs = [_value(activation, each) for each in u[: len(self.weight)]]
        error = -fields.fields[-1]
        for weight, output in zip(self.weight, self.outputs, strict=True):
            error = error + weight * output
        self.error = error
        self.slopes = [weight * _value(slope, each) for weight, each in zip(self.weight[: self.p], u, strict=False)]
        self.front = fields.number(self.scale)
        self.u = u

    def expression(self, element: Any) -> Any:
        """An element of the ring of coefficients, as a sympy expression."""
        return element.as_expr().xreplace(self._roots)

    def moments(self) -> SymbolicMoments:
        """All means."""
        average, error, slopes = self.fields.average, self.error, self.slopes
        gradient = [error * slope for slope in slopes]
        mean = [[self.expression(average(each * field)) for field in self.u] for each in gradient]
        square = [[sympy.Integer(0)] * self.p for _ in range(self.p)]
        for i in range(self.p):
            for j in range(i, self.p):
                square[i][j] = square[j][i] = self.expression(average(gradient[i] * gradient[j]))
        readout = [self.expression(average(error * output) * self.front) for output in self.outputs[: self.p]]
        return SymbolicMoments(
            along=self.by_family(mean),
            square=square,
            readout=readout,
            risk=self.expression(average(error * error)) / 2,
        )

    def covariance(self) -> sympy.Matrix:
        """The covariance of the increment that one sample makes, times d, of all coordinates that move."""
        gradient = [self.error * slope for slope in self.slopes]

        def polynomial(number: Number) -> Any:
            kind, i, *j = number
            if kind == "readout":
                return self.front * (self.error * self.outputs[i])
            other = gradient[j[0]] if kind == "square" else self.u[self.vectors.index((kind, j[0]))]
            return gradient[i] * other

        def covariance(one: Number, other: Number) -> Any:
            return self.expression(self.fields.covariance_of(polynomial(one), polynomial(other)))

        return increment_covariance(self.alphabet, covariance)


def _value(coefficients: Sequence[Any], field: Any) -> Any:
    """A polynomial at a field."""
    total = 0 * field
    for n, coefficient in enumerate(coefficients):
        total = total + coefficient * field**n
    return total
