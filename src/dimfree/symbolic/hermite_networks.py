"""Networks of any activation with students and teachers of unit norm: averages as series in Hermite coefficients."""

import functools
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
import sympy

from ..gaussian.hermite import cells_rule
from .moments import Committee, SymbolicMoments
from .notation import Alphabet

Factors = tuple[int, int, int]  # powers of g', of g and of the field itself, all at one field
_VANISHES = 1e-11  # in units of the size of the polynomial, the root of n!


class HermiteNetwork(Committee):
    r"""The moments of a network of given widths, all factors at one field expanded together up to an order N.

    With $c_n[f] = \mathbb{E}[f(z) \mathrm{He}_n(z)]$ and a sum over multigraphs m,

    $$ \mathbb{E}\Big[\prod_a f_a(u_a)\Big] = \sum_m \prod_{a<b} \frac{C_{ab}^{m_{ab}}}{m_{ab}!}
       \prod_a c_{\sum_b m_{ab}}[f_a] . $$

    Only different fields are joined, so that for one student and one teacher the series converges for every activation
    with a finite fourth moment. (Expanding each g by itself does not: products of expansions converge in the mean
    square, not beyond, and the corrector is of fourth order.)

    **Arguments:**

    - `alphabet`: the symbols.
    - `order`: N.
    """

    def __init__(self, alphabet: Alphabet, order: int):
        super().__init__(alphabet)
        self.order = order

    @functools.cached_property
    def _samples(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Nodes, weights, g and its slope there."""
        x, weight = cells_rule(cells=48, nodes=24, reach=12.0)
        function = self.alphabet.network.activation.function
        value, slope = jax.vmap(jax.value_and_grad(lambda z: jnp.asarray(function(z), float)))(jnp.asarray(x))
        return x, weight, np.asarray(value), np.asarray(slope)

    def coefficient(self, factors: Factors, n: int) -> Any:
        """A Hermite coefficient of the factors at one field: a symbol with its value, or a sum of such."""
        slopes, values, fields = factors
        if n < 0:
            return sympy.Integer(0)
        if fields:
            rest = (slopes, values, fields - 1)
            return self.coefficient(rest, n + 1) + n * self.coefficient(rest, n - 1)
        if (slopes, values) == (0, 0):
            return sympy.Integer(n == 0)
        if (slopes, values) == (1, 0):
            return self.coefficient((0, 1, 0), n + 1)
        return self._symbol(slopes, values, n)

    def _symbol(self, slopes: int, values: int, n: int) -> Any:
        x, weight, g, slope = self._samples
        number = float(np.sum(weight * slope**slopes * g**values * scipy.special.eval_hermitenorm(n, x)))
        if abs(number) < _VANISHES * math.sqrt(math.factorial(n)):
            return sympy.Integer(0)
        above = "" if (slopes, values) == (0, 1) else f"^{{({slopes},{values})}}"
        symbol = sympy.Symbol(f"c_{{{n}}}{above}", real=True)
        code = f"c_{n}" if not above else f"c_{n}_{slopes}_{values}"
        self.alphabet.values[symbol], self.alphabet.code[symbol] = number, code
        return symbol

    def average(self, factors: Mapping[int, Factors]) -> Any:
        """The mean of factors at different fields."""
        fields = sorted(factors)
        pairs = list(itertools.combinations(range(len(fields)), 2))
        overlaps = [self.overlap(fields[a], fields[b]) for a, b in pairs]
        total = sympy.Integer(0)
        for edges in self._multigraphs(len(fields), pairs, overlaps):
            degrees = [0] * len(fields)
            term = sympy.Integer(1)
            for (a, b), overlap, number in zip(pairs, overlaps, edges, strict=True):
                degrees[a] += number
                degrees[b] += number
                term = term * overlap**number / math.factorial(number)
            for field, degree in zip(fields, degrees, strict=True):
                term = term * self.coefficient(factors[field], degree)
                if term == 0:
                    break
            total = total + term
        return total

    def _multigraphs(self, size: int, pairs: list, overlaps: list) -> Iterator[tuple[int, ...]]:
        """Numbers of edges on each pair, at most `order` at each field."""

        def extend(index: int, degrees: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
            if index == len(pairs):
                yield ()
                return
            a, b = pairs[index]
            most = 0 if overlaps[index] == 0 else self.order - max(degrees[a], degrees[b])
            for number in range(most + 1):
                more = tuple(degree + number * (each in (a, b)) for each, degree in enumerate(degrees))
                for rest in extend(index + 1, more):
                    yield (number, *rest)

        yield from extend(0, (0,) * size)

    def product(self, *at: tuple[int, Factors]) -> Any:
        """The mean of factors at fields that may coincide."""
        joined: dict[int, Factors] = {}
        for field, factors in at:
            joined[field] = tuple(x + y for x, y in zip(joined.get(field, (0, 0, 0)), factors, strict=True))  # pyright: ignore
        return self.average(joined)

    def moments(self) -> SymbolicMoments:
        """All means."""
        c, p = self.weights, self.alphabet.problem.width
        slope, value, field = (1, 0, 0), (0, 1, 0), (0, 0, 1)
        fields, students = range(len(c)), range(p)
        product = functools.cache(self.product)
        mean = [
            [
                c[i] * sum(c[s] * product((i, slope), (b, field), (s, value)) for s in fields)
                for b in range(len(self.vectors))
            ]
            for i in students
        ]
        square: list[list[Any]] = [[0] * p for _ in students]
        for i in students:
            for j in range(i, p):
                total = self.alphabet.noise * product((i, slope), (j, slope))
                for s, t in itertools.product(fields, fields):
                    total += c[s] * c[t] * product((i, slope), (j, slope), (min(s, t), value), (max(s, t), value))
                square[i][j] = square[j][i] = c[i] * c[j] * total
        outputs = {(s, t): product((s, value), (t, value)) for s in fields for t in fields}
        return SymbolicMoments(
            along=self.by_family(mean),
            square=square,
            readout=[self.scale * sum(c[s] * outputs[i, s] for s in fields) for i in students],
            risk=(sum(c[s] * c[t] * outputs[s, t] for s in fields for t in fields) + self.alphabet.noise) / 2,
        )

    def conditions(self) -> tuple[str, ...]:
        """What the coefficients are."""
        return (
            r"c_n^{(r,s)} = \mathbb{E}\bigl[ g'(z)^r g(z)^s \mathrm{He}_n(z) \bigr]",
            r"c_n = c_n^{(0,1)}",
            rf"n \le {self.order}",
        )
