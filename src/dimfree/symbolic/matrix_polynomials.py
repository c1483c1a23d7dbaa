"""Polynomials in matrices and in traces of their products, for matrices of any size, and how they are written."""

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import sympy

from .writing import broken, numpy_code

Letters = tuple[str, ...]
Key = tuple[Letters, tuple[Letters, ...]]

# The letters are symmetric matrices, but for these, overlaps of two families such as `momentum-students`, and their
# transposes.
_TRANSPOSED = {"M": "Mt", "Mt": "M"}


class MatrixPolynomial:
    r"""A sum of coefficients times traces times a product of matrices, such as $\tfrac2p \operatorname{tr}(Q)\, Q^2$.

    Two of them are equal for matrices of every size if and only if their terms are: products of matrices that are not
    the same up to the symmetries of the letters are independent once the matrices are large enough.

    **Arguments:**

    - `terms`: the coefficients (rational in the widths and the parameters), by product and traces.
    """

    def __init__(self, terms: Mapping[Key, Any] | None = None):
        expanded = {key: sympy.expand(value) for key, value in (terms or {}).items()}
        self.terms: dict[Key, Any] = {key: value for key, value in expanded.items() if value != 0}

    @classmethod
    def letter(cls, name: str) -> "MatrixPolynomial":
        """One matrix."""
        return cls({((name,), ()): sympy.Integer(1)})

    @classmethod
    def scalar(cls, value: Any) -> "MatrixPolynomial":
        """A number times the identity."""
        return cls({((), ()): sympy.sympify(value)})

    def __add__(self, other: Any) -> "MatrixPolynomial":
        other = _as_polynomial(other)
        terms = dict(self.terms)
        for key, value in other.terms.items():
            terms[key] = terms.get(key, 0) + value
        return MatrixPolynomial(terms)

    def __mul__(self, other: Any) -> "MatrixPolynomial":
        other = _as_polynomial(other)
        terms: dict[Key, Any] = {}
        for (word, traces), value in self.terms.items():
            for (more, others), factor in other.terms.items():
                key = (word + more, tuple(sorted(traces + others)))
                terms[key] = terms.get(key, 0) + value * factor
        return MatrixPolynomial(terms)

    def __neg__(self) -> "MatrixPolynomial":
        return self * -1

    def __sub__(self, other: Any) -> "MatrixPolynomial":
        return self + -_as_polynomial(other)

    def __rsub__(self, other: Any) -> "MatrixPolynomial":
        return -self + other

    def __rmul__(self, other: Any) -> "MatrixPolynomial":
        return _as_polynomial(other) * self

    def __radd__(self, other: Any) -> "MatrixPolynomial":
        return self + other

    def __truediv__(self, other: Any) -> "MatrixPolynomial":
        return self * (1 / sympy.sympify(other))

    def __pow__(self, power: int) -> "MatrixPolynomial":
        product = MatrixPolynomial.scalar(1)
        for _ in range(power):
            product = product * self
        return product

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MatrixPolynomial) and not (self - other).terms

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    @property
    def is_zero(self) -> bool:
        return not self.terms

    @property
    def T(self) -> "MatrixPolynomial":
        """The transpose."""
        return MatrixPolynomial({(_transposed(word), traces): value for (word, traces), value in self.terms.items()})

    def trace(self, size: Any) -> "MatrixPolynomial":
        """The trace; `size` is that of the identity."""
        total = MatrixPolynomial()
        for (word, traces), value in self.terms.items():
            if word:
                total = total + MatrixPolynomial({((), tuple(sorted((*traces, _canonical(word))))): value})
            else:
                total = total + MatrixPolynomial({((), traces): value * size})
        return total

    def replace(self, matrices: Mapping[str, "MatrixPolynomial"], size: Any) -> "MatrixPolynomial":
        """The same polynomial of other matrices; `size` is that of the identity in traces."""
        total = MatrixPolynomial()
        for (word, traces), value in self.terms.items():
            term = MatrixPolynomial.scalar(value)
            for trace in traces:
                term = term * _product(trace, matrices).trace(size)
            total = total + term * _product(word, matrices)
        return total

    def subs(self, values: Mapping[Any, Any]) -> "MatrixPolynomial":
        """With numbers or expressions in place of symbols in the coefficients."""
        return MatrixPolynomial({key: sympy.sympify(value).subs(values) for key, value in self.terms.items()})

    def coefficients(self, trace: Callable[[Letters], Any]) -> dict[Letters, Any]:
        """The factor in front of each product of matrices, with `trace` in place of each trace."""
        factors: dict[Letters, Any] = {}
        for (word, traces), value in self.terms.items():
            term = value
            for each in traces:
                term = term * trace(each)
            factors[word] = factors.get(word, 0) + term
        return factors


def _as_polynomial(value: Any) -> MatrixPolynomial:
    return value if isinstance(value, MatrixPolynomial) else MatrixPolynomial.scalar(value)


def _product(word: Letters, matrices: Mapping[str, MatrixPolynomial]) -> MatrixPolynomial:
    product = MatrixPolynomial.scalar(1)
    for name in word:
        product = product * matrices.get(name, MatrixPolynomial.letter(name))
    return product


def transposed(name: str) -> str:
    """The letter of the transpose."""
    if "-" in name:
        return name.removesuffix("^T") if name.endswith("^T") else f"{name}^T"
    return _TRANSPOSED.get(name, name)


def _transposed(word: Letters) -> Letters:
    return tuple(transposed(name) for name in reversed(word))


def _canonical(word: Letters) -> Letters:
    """The same word for all products with the same trace: up to rotations and the transpose."""
    both = (word, _transposed(word))
    return min(each[i:] + each[:i] for each in both for i in range(len(word)))


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
