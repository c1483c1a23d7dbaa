"""The equations of section 3 as printed, against those derived in symbols."""

import sympy

from dimfree import OnlineSGD, SpikedTensor, SymbolicLimit
from dimfree import equations as derive

from ..printed import PrintedEquation
from .tensors import effective, rescaled


def equations() -> tuple[PrintedEquation, ...]:
    """Those that are polynomial in the summary statistics, for any order of the tensor."""
    result = _derived("symbolic")
    u1, u2 = result.symbols["m"], result.symbols["r2"]
    c, snr, k = result.values
    return (
        PrintedEquation(
            "section 3, population loss",
            "The population loss, up to a constant.",
            -2 * snr * u1**k + (u1**2 + u2) ** k,
            result.risk - snr**2,
            remark="The constant is taken to be that of the signal; the noise is left out.",
        ),
        PrintedEquation(
            "Proposition 3.1, eq. (3.1)",
            "The ODE for m and r_perp^2, for every order.",
            effective(u1, u2, k, snr, c),
            tuple(result.drift.values()),
        ),
        *(_rescaled(order) for order in (2, 3, 4)),
        *(_scaled_signal(order) for order in (3, 4)),
        _matrix_fixed_points(),
    )


def _derived(sizes, order: int = 3) -> SymbolicLimit:
    return derive(SpikedTensor(order, 1.5), OnlineSGD(0.5), "sde", notation="benarous2022", sizes=sizes)


def _rescaled(order: int) -> PrintedEquation:
    """Eq. (3.2): m = u / sqrt(n), terms that survive."""
    result = _derived("given", order)
    u1, u2 = result.symbols["m"], result.symbols["r2"]
    c, snr = result.values
    n = sympy.Symbol("n", positive=True)
    root = sympy.Symbol("sqrt_n", positive=True)
    near = {u1: u1 / root, c: 1}
    drift = sympy.limit(sympy.expand(root * result.drift["m"].subs(near)), root, sympy.oo)
    other = sympy.limit(sympy.expand(result.drift["r2"].subs(near)), root, sympy.oo)
    noise = sympy.limit(sympy.expand((n * result.covariance[0, 0]).subs(near)), root, sympy.oo)
    growth, printed_noise, printed_other = rescaled(order, snr, u2)
    return PrintedEquation(
        f"Proposition 3.3, eq. (3.2), order {order}",
        "Drift and diffusion of (sqrt(n) m, r_perp^2) near m = 0.",
        (growth * u1, printed_other, printed_noise),
        (drift, other, noise),
        remark="Terms of the derived equations that survive at m of order 1/sqrt(n); c = 1.",
    )


def _scaled_signal(order: int) -> PrintedEquation:
    """The display after (3.2), where the signal grows with n."""
    result = _derived("given", order)
    u1, u2 = result.symbols["m"], result.symbols["r2"]
    c, snr = result.values
    strength, root = sympy.symbols("Lambda sqrt_n", positive=True)
    near = {u1: u1 / root, c: 1, snr: strength * root ** (order - 2)}
    drift = sympy.limit(sympy.expand(root * result.drift["m"].subs(near)), root, sympy.oo)
    return PrintedEquation(
        f"section 3, lambda_n = Lambda n^((k-2)/2), order {order}",
        "The drift of sqrt(n) m where the signal grows with n.",
        2 * u1 * (order * strength - order * u2 ** (order - 1)),
        drift,
        correction=rf"$2 u_1 (k \Lambda u_1^{{k-2}} - k u_2^{{k-1}})$, here with k = {order}: not linear in $u_1$.",
        corrected=2 * u1 * (order * strength * u1 ** (order - 2) - order * u2 ** (order - 1)),
    )


def _matrix_fixed_points() -> PrintedEquation:
    result = derive(SpikedTensor(2, 1.5), OnlineSGD(0.5))
    rate, snr = result.values
    found = [point["M[0,0]"].subs(rate, 1) for point in result.fixed_points if point["M[0,0]"] != 0]
    return PrintedEquation(
        "Proposition 3.2, order 2",
        "Fixed points at m = +-(lambda - 1)^1/2 for c = 1.",
        (-sympy.sqrt(snr - 1), sympy.sqrt(snr - 1)),
        tuple(sorted(found, key=str)),
    )
