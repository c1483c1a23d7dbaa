"""How expressions are written: LaTeX in lines of a bearable length, and NumPy."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sympy
from sympy.printing.numpy import NumPyPrinter

_LINE = 40  # characters that are seen
_SHORT = 6  # terms up to which a sum in brackets is not broken


def latex_sum(expression: Any, rate: Any, over: Any = 1) -> tuple[str, ...]:
    """An expression by powers of the learning rate, in lines.

    **Arguments:**

    - `expression`: polynomial in the rate and its inverse.
    - `rate`: the symbol to order by.
    - `over`: what to divide each power by.
    """
    expression = sympy.expand(expression)
    if expression == 0:
        return ("0",)
    powers = sympy.collect(expression, rate, evaluate=False)
    ordered = sorted(powers, key=lambda each: each.as_coeff_exponent(rate)[1])
    return broken([_factored(powers[power], power / over) for power in ordered])


def _factored(part: Any, front: Any) -> list[str]:
    """A sum with what its terms have in common in front, and the learning rate first of all."""
    number, rest = sympy.factor_terms(sympy.expand(part)).as_coeff_Mul()
    if front == 1 and rest.is_Add:
        return _signed(sympy.expand(part).as_ordered_terms())
    common = sympy.Mul(*(factor for factor in sympy.Mul.make_args(rest) if not factor.is_Add))
    sums = [factor for factor in sympy.Mul.make_args(rest) if factor.is_Add]
    sign = "-" if number < 0 else "+"
    above, below = sympy.fraction(common)
    head = " ".join(sympy.latex(each) for each in (abs(number) * front / below, above) if each != 1)
    if not sums:
        return [f"{sign} {head or '1'}"]
    *others, last = sums
    head = " ".join([head, *(rf"\left({sympy.latex(each)}\right)" for each in others)]).strip()
    inner = _signed(last.as_ordered_terms())
    first = inner[0].removeprefix("+ ")
    if len(inner) <= _SHORT:
        return [rf"{sign} {head} \left( {' '.join([first, *inner[1:]])} \right)"]
    return [rf"{sign} {head} \Bigl[ {first}", *inner[1:-1], rf"{inner[-1]} \Bigr]"]


def _signed(terms: Iterable[Any]) -> list[str]:
    """Terms with their signs in front."""
    written = []
    for term in terms:
        text = sympy.latex(term)
        written.append(f"- {text[1:].lstrip()}" if text.startswith("-") else f"+ {text}")
    return written


def broken(groups: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Groups of signed pieces in lines, each group on lines of its own if one is not enough for all."""
    pieces = [piece for group in groups for piece in group]
    lines: list[list[str]] = [[]]
    for group in groups if sum(map(_seen, pieces)) > _LINE else [pieces]:
        if lines[-1]:
            lines.append([])
        for piece in group:
            if lines[-1] and sum(map(_seen, lines[-1])) + _seen(piece) > _LINE:
                lines.append([])
            lines[-1].append(piece)
    first, *others = (" ".join(line) for line in lines)
    return (first.removeprefix("+ "), *others)


def _seen(text: str) -> int:
    """About how many characters of LaTeX are seen: commands are one, and of a fraction the longer half."""
    text = re.sub(r"\\(left|right|[Bb]igl|[Bb]igr|operatorname|tfrac|frac|quad|,)", "", text)
    return len(re.sub(r"[{}_^\s]", "", re.sub(r"\\[a-zA-Z]+", "x", text)))


def latex_terms(expression: Any) -> tuple[str, ...]:
    """A sum in lines, term by term."""
    return broken([_signed(expression.as_ordered_terms())])


class _Printer(NumPyPrinter):
    """NumPy, with names for symbols."""

    def __init__(self, names: Mapping[Any, str]):
        super().__init__({"fully_qualified_modules": True})
        self.names = names

    def _print_Symbol(self, expr: Any) -> str:
        return self.names.get(expr, expr.name)


def numpy_code(expression: Any, names: Mapping[Any, str]) -> str:
    """An expression as Python."""
    return str(_Printer(names).doprint(expression)).replace("numpy.", "np.")


def assignments(targets: Mapping[str, Any], names: Mapping[Any, str]) -> list[str]:
    """Lines of Python that evaluate expressions, common parts once.

    **Arguments:**

    - `targets`: what to assign to, and the expression.
    - `names`: how symbols are called.
    """
    shared, reduced = sympy.cse(list(targets.values()), symbols=sympy.numbered_symbols("x"), order="none")
    lines = [f"{symbol} = {numpy_code(value, names)}" for symbol, value in shared]
    return lines + [f"{target} = {numpy_code(value, names)}" for target, value in zip(targets, reduced, strict=True)]


def module(docstring: str, functions: Iterable[str]) -> str:
    """The text of a module."""
    return "\n\n\n".join([f'"""{docstring}"""\n\nimport numpy as np', *functions]) + "\n"


def function(name: str, arguments: str, docstring: str, lines: Iterable[str], result: str) -> str:
    """The text of a function."""
    body = "\n".join(f"    {line}" for line in lines)
    return f'def {name}({arguments}):\n    """{docstring}"""\n{body}\n    return {result}'
