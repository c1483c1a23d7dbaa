"""Where an ODE is at rest, and how it leaves: in closed form, where there is one."""

import itertools
from collections.abc import Mapping
from typing import Any

import sympy


def fixed_points(drift: Mapping[str, Any], symbols: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """The zeros of one or two polynomials, those that factors of degree one or two give.

    **Arguments:**

    - `drift`: the polynomials by coordinate.
    - `symbols`: the coordinates.
    """
    keys = list(drift)
    unknowns = [symbols[key] for key in keys]
    if not all(side.is_polynomial(*unknowns) for side in drift.values()):
        return ()
    tops = [sympy.numer(sympy.together(drift[key])) for key in keys]
    factors = [[f for f, _ in sympy.factor_list(top)[1] if f.free_symbols & set(unknowns)] for top in tops]
    points: list[dict[Any, Any]] = []
    if len(keys) == 1:
        points = [{unknowns[0]: root} for factor in factors[0] for root in _roots(factor, unknowns[0])]
    elif len(keys) == 2:
        for pair in itertools.product(*factors):
            points.extend(_pair(pair, unknowns))
    found: list[dict[str, Any]] = []
    for point in points:
        named = {key: point[symbol] for key, symbol in zip(keys, unknowns, strict=True)}
        if named not in found and all(sympy.simplify(side.subs(point)) == 0 for side in drift.values()):
            found.append(named)
    return tuple(found)


def _pair(pair: tuple[Any, ...], unknowns: list[Any]) -> list[dict[Any, Any]]:
    """Common zeros of two polynomials of which one is linear in an unknown."""
    for (one, other), (x, y) in itertools.product((pair, pair[::-1]), (unknowns, unknowns[::-1])):
        if sympy.degree(one, x) == 1 and not sympy.Poly(one, x).LC().free_symbols & {y}:
            value = sympy.solve(one, x)[0]
            rest = sympy.numer(sympy.together(other.subs(x, value)))
            if not rest.free_symbols & {y}:
                return []
            inner = [f for f, _ in sympy.factor_list(rest)[1] if y in f.free_symbols]
            return [{x: value.subs(y, root), y: root} for factor in inner for root in _roots(factor, y)]
    return []


def _roots(factor: Any, x: Any) -> list[Any]:
    """The real-looking roots of a polynomial of degree at most two in x, or in its square."""
    polynomial = sympy.Poly(factor, x)
    if polynomial.degree() == 2 and not polynomial.coeff_monomial(x):
        leading, _, constant = polynomial.all_coeffs()
        root = sympy.sqrt(sympy.factor(sympy.cancel(-constant / leading)))
        return [-root, root]
    if polynomial.degree() <= 2:
        return _short_roots(polynomial)
    if polynomial.degree() == 4 and not any(polynomial.coeff_monomial(x**n) for n in (1, 3)):
        square = sympy.Dummy()
        roots = sympy.solve(factor.subs(x, sympy.sqrt(square)), square)
        return [sign * sympy.sqrt(root) for root in roots for sign in (1, -1)]
    return []


def linearised(
    drift: Mapping[str, Any], symbols: Mapping[str, Any], rate: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The plateau of polynomials for given widths, Q a multiple of the identity and M = 0, and the rates there.

    Returns the rates (of `M`, of `Q` off its diagonal, of a `norm` common to all) and the plateau (`Q`, `M`, and as
    `norm` the drift of q, whose zero it is).
    Raises `ValueError` where M = 0 is no fixed point, or entries of M move each other.

    **Arguments:**

    - `drift`, `symbols`: by coordinate.
    - `rate`: the learning rate; of several plateaus the one that exists at a small one is meant.
    """
    q = sympy.Symbol("q", positive=True)
    cross = [key for key in drift if key.startswith("M")]
    norms = [key for key in drift if key.startswith("Q") and _is_diagonal(key)]
    others = [key for key in drift if key.startswith("Q") and not _is_diagonal(key)]
    point = {symbols[key]: q if key in norms else sympy.Integer(0) for key in drift}

    def slope(key: str, by: str) -> Any:
        return sympy.expand(sympy.diff(drift[key], symbols[by]).subs(point))

    still = [sympy.expand(drift[key].subs(point)) for key in (*cross, *others)]
    if any(side != 0 for side in still):
        raise ValueError("M = 0 is no fixed point")
    rates = {"M": slope(cross[0], cross[0])}
    for key, by in itertools.product(cross, cross):
        if sympy.expand(slope(key, by) - (rates["M"] if key == by else 0)) != 0:
            raise ValueError("entries of M move each other")
    plateau: dict[str, Any] = {"M": sympy.Integer(0), "Q": sympy.Integer(1), "norm": sympy.Integer(0)}
    if others:
        rates["Q"] = slope(others[0], others[0])
    if norms:
        rates["norm"] = sum((slope(norms[0], by) for by in norms), sympy.Integer(0))
        norm = sympy.expand(drift[norms[0]].subs(point))
        plateau |= {"Q": plateau_norm(norm, q, rate), "norm": norm}
    return {name: sympy.factor(value) for name, value in rates.items()}, plateau


def plateau_norm(side: Any, q: Any, rate: Any) -> Any:
    """The zero of the drift of a norm that stays finite as the learning rate vanishes, or the equation for it."""
    reduced = sympy.numer(sympy.together(side))
    factors = [f for f, _ in sympy.factor_list(reduced)[1] if f.has(q) and f != q]
    for factor in factors:
        polynomial = sympy.Poly(factor, q)
        for root in _short_roots(polynomial) if polynomial.degree() <= 2 else []:
            symbols = sorted(root.free_symbols - {rate}, key=str)
            others = {symbol: sympy.Rational(7, 5) + i for i, symbol in enumerate(symbols)}
            small = sympy.N(root.subs(others).subs(rate, sympy.Rational(1, 10**9)), 30)
            if small.is_real and abs(small) < 10**3:
                return root
    return sympy.Eq(side, 0)


def _short_roots(polynomial: Any) -> list[Any]:
    """The roots of a polynomial of degree one or two, each part factored."""
    parts: list[Any] = [sympy.factor(each) for each in polynomial.all_coeffs()]
    *leading, linear, constant = parts
    if not leading:
        return [sympy.factor(-constant / linear)]
    root = sympy.sqrt(sympy.factor(sympy.expand(linear**2 - 4 * leading[0] * constant)))
    return [(-linear + sign * root) / (2 * leading[0]) for sign in (1, -1)]


def _is_diagonal(key: str) -> bool:
    first, second = key[2:-1].split(",")
    return first == second
