"""Polynomials in matrices and in traces of their products, for matrices of any size."""

from collections.abc import Callable, Mapping
from typing import Any

import sympy

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
