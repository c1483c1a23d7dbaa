"""Two-layer networks with a polynomial activation: all averages are finite Wick sums."""

from collections.abc import Sequence
from typing import Any

import sympy

from .committees import Committee
from .drifts import Label, labels, on_sphere
from .moments import SymbolicMoments
from .notation import Alphabet
from .wick import GaussianFields


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
        p, k = self.p, self.k
        covariance = [[self.overlap(s, t) for t in range(p + k)] + [sympy.Integer(0)] for s in range(p + k)]
        covariance.append([sympy.Integer(0)] * (p + k) + [alphabet.noise])
        inverse = sympy.Symbol("B_inverse")
        self._inverse_batch = inverse if alphabet.batch_size != 1 else sympy.Integer(1)
        parameters = [*self.weights, *coefficients, alphabet.learning_rate, alphabet.readout_rate, inverse, self.scale]
        fields = self.fields = GaussianFields(covariance, parameters)
        u = fields.fields[: p + k]
        activation = [fields.number(c) for c in coefficients]
        slope = [n * c for n, c in enumerate(activation)][1:]
        self.weight = [fields.number(w) for w in self.weights]
        self.outputs = [_value(activation, each) for each in u]
        error = -fields.fields[-1]
        for weight, output in zip(self.weight, self.outputs, strict=True):
            error = error + weight * output
        self.error = error
        self.slopes = [weight * _value(slope, each) for weight, each in zip(self.weight[:p], u, strict=False)]
        self.front = fields.number(self.scale)
        self.u = u

    def expression(self, element: Any) -> Any:
        """An element of the ring of coefficients, as a sympy expression."""
        expression = element.as_expr()
        return expression.subs({**self._roots, self._inverse_batch: 1 / self.alphabet.batch_size})

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
            student=[row[: self.p] for row in mean],
            teacher=[row[self.p :] for row in mean],
            square=square,
            readout=readout,
            risk=self.expression(average(error * error)) / 2,
        )

    def covariance(self) -> sympy.Matrix:
        """The covariance of the increment that one sample makes, times d, of all coordinates that move."""
        alphabet, number, gradient = self.alphabet, self.fields.number, [self.error * slope for slope in self.slopes]
        rate = number(alphabet.learning_rate)
        second = number(alphabet.learning_rate**2) * number(self._inverse_batch)

        def free(label: Label) -> Any:
            kind, i, *j = label
            if kind == "readout":
                return -number(alphabet.readout_rate) * self.front * (self.error * self.outputs[i])
            if kind == "M":
                return -rate * (gradient[i] * self.u[self.p + j[0]])
            both = gradient[i] * self.u[j[0]] + gradient[j[0]] * self.u[i]
            return -rate * both + second * (gradient[i] * gradient[j[0]])

        def increment(label: Label) -> Any:
            return on_sphere(alphabet, free, label, number=number)

        increments = [increment(label) for label in labels(alphabet)]
        size = len(increments)
        matrix = sympy.zeros(size, size)
        for a in range(size):
            for b in range(a, size):
                matrix[a, b] = matrix[b, a] = self.expression(self.fields.covariance_of(increments[a], increments[b]))
        return matrix


def _value(coefficients: Sequence[Any], field: Any) -> Any:
    """A polynomial at a field."""
    total = 0 * field
    for n, coefficient in enumerate(coefficients):
        total = total + coefficient * field**n
    return total
