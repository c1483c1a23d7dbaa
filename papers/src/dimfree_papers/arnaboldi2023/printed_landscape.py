"""Appendix G as printed: the risk of one student, its gradient and its Hessian."""

from typing import Any

import sympy

from ..printed import PrintedEquation
from .printed_fluctuations import OneStudent


def landscape() -> tuple[PrintedEquation, ...]:
    """Eqs. (72)-(85), (90), in the convention x ~ N(0, I) of the appendix."""
    one = OneStudent()
    q, m, rho, D, risk = one.q, one.m, one.rho, one.noise, one.result.risk
    half, third = sympy.Rational(1, 2), sympy.Rational(1, 3)
    average, u, v = one.fields.average, one.student, one.star

    def along(polynomial: Any) -> tuple[Any, Any]:
        """Coefficients of w and w_* in the mean of a polynomial times x."""
        return average(polynomial.diff(u)).as_expr(), average(polynomial.diff(v)).as_expr()

    gradient = (2 * sympy.diff(risk, q), sympy.diff(risk, m))
    # Of I, w w^T and w_* w_*^T; mixed derivatives of the risk vanish.
    hessian = (2 * sympy.diff(risk, q), 4 * sympy.diff(risk, q, 2), sympy.diff(risk, m, 2))

    def at(point: dict[Any, Any], sides: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(sympy.expand(side.subs(point)) for side in sides)

    saddle, solution, origin = {m: 0, q: rho * third}, {m: rho, q: rho}, {m: 0, q: 0}
    at_solution = at(solution, hessian)
    drift = {key: side.subs(D, 0) for key, side in one.result.drift.items()}
    second = q * (rho**2 + 5 * q**2 - 2 * rho * q) + 4 * m**2 * (rho - 2 * q)
    return (
        PrintedEquation(
            "eqs. (71), (72)",
            "The population risk of one student.",
            D / 2 + 3 * rho**2 + 3 * q**2 - 4 * m**2 - 2 * rho * q,
            risk,
            correction=r"$\Delta/2 + \tfrac32 \rho^2 + \tfrac32 q^2 - 2 m^2 - \rho q$.",
            corrected=D / 2 + (3 * rho**2 + 3 * q**2 - 4 * m**2 - 2 * rho * q) / 2,
        ),
        PrintedEquation(
            "eq. (73)",
            "Coefficients of w and w_* in E[lambda_*^2 lambda x] and E[lambda_*^3 x].",
            (rho, 2 * m, 3 * q, sympy.Integer(0)),
            (*along(v**2 * u), *along(v**3)),
            correction=r"$\mathbb{E}[\lambda_*^3 x] = 3 \rho w_*$; what is meant is $\mathbb{E}[\lambda^3 x] = 3 q w$.",
            corrected=(rho, 2 * m, sympy.Integer(0), 3 * rho),
        ),
        PrintedEquation(
            "eq. (74)", "Coefficients of w and w_* in the gradient.", (-2 * (rho - 3 * q), -2 * 2 * m), gradient
        ),
        PrintedEquation(
            "eq. (75)",
            "Coefficients of I and w_* w_*^T in E[lambda_*^2 x x^T], of I and w w^T in E[lambda^2 x x^T].",
            (rho, sympy.Integer(1), q, sympy.Integer(1)),
            (*one.coefficients(v**2)[::2], *one.coefficients(u**2)[:2]),
            correction=r"$\rho I + 2 w_* w_*^\top$ and $q I + 2 w w^\top$.",
            corrected=(rho, sympy.Integer(2), q, sympy.Integer(2)),
        ),
        PrintedEquation(
            "eq. (76)",
            "Coefficients of I, w w^T and w_* w_*^T in the Hessian.",
            (-2 * (rho - 3 * q), sympy.Integer(6), sympy.Integer(-2)),
            hessian,
            correction=r"$2 ((3q - \rho) I + 6 w w^\top - 2 w_* w_*^\top)$.",
            corrected=(-2 * (rho - 3 * q), sympy.Integer(12), sympy.Integer(-4)),
        ),
        PrintedEquation(
            "eq. (77)",
            "Coefficients of I and w_* w_*^T in the Hessian at w = 0.",
            (-2 * rho, sympy.Integer(-2)),
            at(origin, (hessian[0], hessian[2])),
            correction=r"$-2 (\rho I + 2 w_* w_*^\top)$.",
            corrected=(-2 * rho, sympy.Integer(-4)),
        ),
        PrintedEquation(
            "eq. (78)",
            "The risk at w = 0.",
            D / 2 + 3 * rho**2,
            risk.subs(origin),
            correction=r"$\Delta/2 + \tfrac32 \rho^2$.",
            corrected=D / 2 + 3 * half * rho**2,
        ),
        PrintedEquation(
            "eq. (79)",
            "Coefficients of I, w w^T and w_* w_*^T in the Hessian at the saddle m = 0, q = rho / 3.",
            (sympy.Integer(0), sympy.Integer(6), sympy.Integer(-2)),
            at(saddle, hessian),
            correction=r"$4 (3 w w^\top - w_* w_*^\top)$.",
            corrected=(sympy.Integer(0), sympy.Integer(12), sympy.Integer(-4)),
        ),
        PrintedEquation(
            "eq. (80)",
            "The risk at the saddle.",
            D / 2 + sympy.Rational(10, 3) * rho**2,
            risk.subs(saddle),
            correction=r"$\Delta/2 + \tfrac43 \rho^2$.",
            corrected=D / 2 + sympy.Rational(4, 3) * rho**2,
        ),
        PrintedEquation(
            "eq. (81)",
            "Coefficients of I and w_* w_*^T in the Hessian at w = w_*.",
            (4 * rho, sympy.Integer(4)),
            (at_solution[0], at_solution[1] + at_solution[2]),
            correction=r"$4 (\rho I + 2 w_* w_*^\top)$.",
            corrected=(4 * rho, sympy.Integer(8)),
        ),
        PrintedEquation("eq. (82)", "The risk at w = w_*.", D / 2, risk.subs(solution)),
        PrintedEquation(
            "eqs. (84), (85)",
            "The ODE of one student without noise.",
            (6 * m * (rho - q), 4 * (q * (rho - 3 * q) + 2 * m**2) + 12 * one.gamma * second),
            (drift["M[0,0]"], drift["Q[0,0]"]),
        ),
        PrintedEquation(
            "eq. (90)",
            "Moments of order four at q = rho = 1.",
            (1 + 2 * m**2, sympy.Integer(3)),
            tuple(average(each).as_expr().subs({q: 1, rho: 1}) for each in (v**2 * u**2, u**4)),
        ),
    )
