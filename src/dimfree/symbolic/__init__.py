"""Limits as equations, in symbols; sympy is imported when they are asked for.

`dispatch` has `equations` and what it refuses, `problem_equations` puts the equations of each kind of problem together,
and `result` is what comes back. The way there: `notation` gives every number a symbol (`moves` those of an algorithm's
step); `polynomial_networks`, `quadratic_networks`, `erf_networks`, `hermite_networks` and `tensors` take the averages
of a loss, as the `moments` of a sample; `drifts` makes drift, corrector and covariance of them; and the result is
written as one equation for each coordinate (`coordinate_equations`) or, with the widths as symbols, in matrices
(`matrix_equations`, of `matrix_polynomials`). `writing` makes LaTeX and NumPy of expressions, `rest_points` finds where
an ODE is at rest.

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
    from .matrix_equations import writer
    from .matrix_polynomials import MatrixPolynomial
    from .notation import Alphabet
    from .polynomial_networks import GaussianFields
    from .quadratic_networks import QuadraticNetwork

__all__ = ["Alphabet", "GaussianFields", "MatrixPolynomial", "QuadraticNetwork", "SymbolicLimit", "equations", "writer"]

# Their modules import sympy, which is an extra.
_WITH_SYMPY = {
    "Alphabet": "notation",
    "GaussianFields": "polynomial_networks",
    "QuadraticNetwork": "quadratic_networks",
    "MatrixPolynomial": "matrix_polynomials",
    "writer": "matrix_equations",
}


def __getattr__(name: str) -> Any:
    if name not in _WITH_SYMPY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_WITH_SYMPY[name]}", __name__), name)
