"""Limits as equations, in symbols; sympy is imported when they are asked for.

Papers that compare printed equations with derived ones, symbol by symbol, may build on:

- `Alphabet`: the symbols that the equations of a problem are written in; `writer(alphabet)`: how they are printed.
- `GaussianFields`: averages of polynomials of Gaussian fields, by Wick's theorem.
- `MatrixPolynomial`: polynomials in matrices of any size; `QuadraticNetwork`: the ODE of a quadratic network as such.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .dispatch import equations
from .result import SymbolicLimit

if TYPE_CHECKING:
    from .matrix_form import QuadraticNetwork
    from .matrix_polynomials import MatrixPolynomial
    from .matrix_result import writer
    from .notation import Alphabet
    from .wick import GaussianFields

__all__ = ["Alphabet", "GaussianFields", "MatrixPolynomial", "QuadraticNetwork", "SymbolicLimit", "equations", "writer"]

# Their modules import sympy, which is an extra.
_WITH_SYMPY = {
    "Alphabet": "notation",
    "GaussianFields": "wick",
    "QuadraticNetwork": "matrix_form",
    "MatrixPolynomial": "matrix_polynomials",
    "writer": "matrix_result",
}


def __getattr__(name: str) -> Any:
    if name not in _WITH_SYMPY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_WITH_SYMPY[name]}", __name__), name)
