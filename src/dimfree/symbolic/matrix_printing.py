"""How polynomials in matrices are written: as sympy expressions, LaTeX and NumPy."""

import itertools
import math
from collections.abc import Mapping
from typing import Any

import sympy

from .matrix_polynomials import Letters, MatrixPolynomial
from .writing import broken, numpy_code


class MatrixPrinter:
    """Writes `MatrixPolynomial`.

    **Arguments:**

    - `matrices`: a sympy matrix for each letter.
    - `latex`, `code`: how each is called in LaTeX and in Python.
    - `rate`: the learning rate, by whose powers terms are ordered.
    - `names`: how symbols are called in Python.
    """

    def __init__(
        self, matrices: Mapping[str, Any], latex: Mapping[str, str], code: Mapping[str, str], rate: Any, names: Mapping
    ):
        self.matrices, self.latex_of, self.code_of, self.rate, self.names = matrices, latex, code, rate, names

    # sympy

    def expression(self, words: MatrixPolynomial, shape: tuple[Any, Any] | None) -> Any:
        """As a matrix expression of this shape, or as a scalar."""
        factors = words.coefficients(lambda trace: sympy.Trace(self._product(trace)))
        if shape is None:
            return sympy.expand(factors.get((), sympy.Integer(0)))
        terms = [
            sympy.MatMul(value, self._product(word) if word else sympy.Identity(shape[0]))
            for word, value in factors.items()
        ]
        return sympy.MatAdd(*terms) if terms else sympy.ZeroMatrix(*shape)

    def _product(self, word: Letters) -> Any:
        return sympy.MatMul(*(self.matrices[name] for name in word)).doit()

    # LaTeX

    def lines(self, words: MatrixPolynomial) -> tuple[str, ...]:
        """LaTeX by powers of the learning rate, a common factor in front of each."""
        by_power: dict[int, dict] = {}
        for key, value in words.terms.items():
            for term in sympy.Add.make_args(value):
                part = by_power.setdefault(int(term.as_coeff_exponent(self.rate)[1]), {})
                part[key] = part.get(key, 0) + term
        groups = [self._factored(by_power[power]) for power in sorted(by_power)]
        return broken(groups) if groups else ("0",)

    def _factored(self, part: dict) -> list[str]:
        common = common_factor([term for value in part.values() for term in sympy.Add.make_args(value)])
        factors: dict[Letters, list[str]] = {}
        for (word, traces), value in sorted(part.items(), key=lambda item: (len(item[0][1]), item[0][1])):
            for term in sympy.Add.make_args(sympy.expand(value / common)):
                text = " ".join(self._trace(trace, count) for trace, count in _counted(traces))
                factors.setdefault(word, []).append(_signed(term, text))
        inner: list[str] = []
        words = len(factors)
        for word in sorted(factors, key=lambda each: (len(each), each)):
            terms = factors[word]
            body = self._word(word)
            if len(terms) == 1 or not word:
                inner.extend(
                    f"{term} {body}".rstrip() if term not in ("+ 1", "- 1") or not body else f"{term[0]} {body}"
                    for term in terms
                )
            else:
                first, *middle, last = terms
                inner.extend([rf"+ \bigl( {first.removeprefix('+ ')}", *middle, rf"{last} \bigr) {body}"])
        sign, front = ("-", -common) if common.could_extract_minus_sign() else ("+", common)
        if front == 1 and sign == "+":
            return inner
        head = "" if front == 1 else sympy.latex(front)
        if words == 1 and () not in factors:
            text, *inner = inner
            sign = "+" if (sign == text[0]) else "-"
            return [f"{sign} {head} {text[2:]}", *inner]
        return [rf"{sign} {head} \Bigl[ {inner[0].removeprefix('+ ')}", *inner[1:-1], rf"{inner[-1]} \Bigr]"]

    def _word(self, word: Letters) -> str:
        return " ".join(
            self.latex_of[name] if count == 1 else f"{self.latex_of[name]}^{{{count}}}"
            for name, count in _counted(word)
        )

    def _trace(self, word: Letters, count: int) -> str:
        power = "" if count == 1 else f"^{{{count}}}"
        body = self._word(word)
        return rf"\operatorname{{tr}}({body}){power}"

    # NumPy

    def code(self, words: MatrixPolynomial) -> str:
        """As a Python expression."""
        factors = words.coefficients(lambda trace: sympy.Symbol(f"np.trace({self._code(trace)})"))
        terms = []
        for word in sorted(factors, key=lambda each: (len(each), each)):
            number = numpy_code(sympy.factor(factors[word]), self.names)
            terms.append(f"({number}) * ({self._code(word)})" if word else f"({number})")
        return " + ".join(terms) or "0.0"

    def _code(self, word: Letters) -> str:
        return " @ ".join(self.code_of[name] for name in word)


def common_factor(terms: list[Any]) -> Any:
    """What a sum of products has in common: the number, and of each symbol the power that is nearest to zero.

    With powers 1/p and 1/p^2 it takes out 1/p, so that what is left is a number and a part that falls with p.
    """
    powers = [term.as_powers_dict() for term in terms]
    numbers: list[Any] = [term.as_coeff_Mul()[0] for term in terms]
    numerator = math.gcd(*(abs(int(number.numerator)) for number in numbers))
    denominator = math.lcm(*(int(number.denominator) for number in numbers))
    common = sympy.Rational(numerator, denominator)
    if all(number < 0 for number in numbers):
        common = -common
    for symbol in set(itertools.chain.from_iterable(term.free_symbols for term in terms)):
        found = [each.get(symbol, sympy.Integer(0)) for each in powers]
        if all(power > 0 for power in found):
            common = common * symbol ** min(found)
        elif all(power < 0 for power in found):
            common = common * symbol ** max(found)
    return common


def _counted(items: tuple) -> list[tuple[Any, int]]:
    return [(name, len(list(group))) for name, group in itertools.groupby(items)]


def _signed(term: Any, text: str) -> str:
    """A coefficient in front of a text, with its sign."""
    sign, size = ("-", -term) if term.could_extract_minus_sign() else ("+", term)
    number = "" if size == 1 and text else sympy.latex(size)
    return f"{sign} {' '.join(filter(None, (number, text)))}"
