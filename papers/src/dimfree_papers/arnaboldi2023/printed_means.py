"""The averages of appendix A as printed: moments of the fields, put together index by index."""

from typing import Any

import sympy

from dimfree.symbolic import GaussianFields

from ..printed import PrintedEquation, indices
from .printed_system import P, derived, gamma_and_noise


class _Averages:
    """Moments of the fields of two students (0, 1), the teacher (2) and the noise (3), and the derived system."""

    def __init__(self) -> None:
        self.result = derived(P, trained=True)
        self.gamma, self.noise = gamma_and_noise(self.result)
        self.a = [self.result.symbols[f"readout[{j}]"] for j in range(P)]
        covariance = sympy.eye(P + 2)
        covariance[P + 1, P + 1] = self.noise
        for key, symbol in self.result.symbols.items():
            if key.startswith("readout"):
                continue
            i, j = indices(key)
            j = P if key.startswith("M") else j
            covariance[i, j] = covariance[j, i] = symbol
        self.fields = GaussianFields(covariance.tolist(), [*self.a, self.gamma])
        *self.students, self.star, self.zeta = self.fields.fields

    def mean(self, polynomial: Any) -> Any:
        """The average of a polynomial of the fields, as an expression."""
        return self.fields.average(polynomial).as_expr()

    def error(self, *, star: Any, sign: int) -> Any:
        """The network minus `star` plus noise, or the negative of it."""
        total = self.zeta - star
        for a, field in zip(self.a, self.students, strict=True):
            total = total + self.fields.number(a / P) * field**2
        return sign * total

    def increments(self, error: Any) -> list[Any]:
        """Means of the increments (7)-(9) over gamma / (p d), in the order of the derived drift, with |x| = 1."""
        found = []
        for key in self.result.drift:
            field, _, index = key.partition("[")
            indices = [int(i) for i in index.rstrip("]").split(",")]
            u = [self.students[i] for i in indices[: 1 + (field == "Q")]]
            a = [self.fields.number(self.a[i]) for i in indices[: 1 + (field == "Q")]]
            if field == "readout":
                found.append(self.mean(error * u[0] ** 2))
            elif field == "M":
                found.append(self.mean(2 * a[0] * error * u[0] * self.star))
            else:
                gradient = self.mean(2 * (a[0] + a[1]) * error * u[0] * u[1])
                square = self.mean(4 * a[0] * a[1] * error**2 * u[0] * u[1])
                found.append(gradient + self.gamma / P * square)
        return found


def means() -> tuple[PrintedEquation, ...]:
    """Eqs. (10), (11) and the display of appendix A.2."""
    averages = _Averages()
    result, gamma, noise, a = averages.result, averages.gamma, averages.noise, averages.a
    drift = list(result.drift.values())
    star, students = averages.star, averages.students
    mean = averages.mean
    d = sympy.Symbol("d", positive=True)
    right, opposite = averages.error(star=star**2, sign=-1), averages.error(star=star**2, sign=1)
    in_11 = averages.increments(right)
    overlaps = len(in_11) - P  # the equation of the readout has no such factor

    # Appendix A.2: the error is f - y, so that its right-hand sides are those of minus the drift to first order.
    p = sympy.Integer(P)
    square_error = mean(star**4) + sum(
        a[j] * a[l] * mean(students[j] ** 2 * students[l] ** 2) / p**2 for j in range(P) for l in range(P)
    ) - 2 / p * sum(a[j] * mean(students[j] ** 2 * star**2) for j in range(P))  # fmt: skip
    of_a = [
        sum(a[l] * mean(students[l] ** 2 * students[j] ** 2) for l in range(P)) / p - mean(star**2 * students[j] ** 2)
        for j in range(P)
    ]

    def of_m(last: Any) -> list[Any]:
        return [
            2 / p * sum(a[j] * a[l] * mean(students[l] ** 2 * students[j] * star) for l in range(P))
            - 2 * last[j] * mean(star**2 * students[j] * star)
            for j in range(P)
        ]

    pairs = [(j, l) for j in range(P) for l in range(j, P)]
    first = [
        2 * (a[j] + a[l])
        * (
            sum(a[s] * mean(students[s] ** 2 * students[j] * students[l]) for s in range(P)) / p
            - mean(star**2 * students[j] * students[l])
        )
        for j, l in pairs
    ]  # fmt: skip
    bracket = [
        a[j] * a[l] * (
            mean(students[j] * students[l] * star**4)
            - 2 / p * sum(a[s] * mean(students[j] * students[l] * star**2 * students[s] ** 2) for s in range(P))
            + sum(
                a[s] * a[t] * mean(students[j] * students[l] * students[s] ** 2 * students[t] ** 2)
                + noise * mean(students[j] * students[l])
                for s in range(P) for t in range(P)
            ) / p**2
        )
        for j, l in pairs
    ]  # fmt: skip
    keys = [f"Q[{j},{l}]" for j, l in pairs]
    flow = {key: result.drift[key] - result.corrector[key] for key in result.drift}
    second = [result.corrector[key] for key in keys]
    return (
        PrintedEquation(
            "eq. (10)",
            "The displacement, through its mean square, twice the risk.",
            mean(averages.error(star=star, sign=1) ** 2),
            2 * result.risk,
            correction=r"$\lambda_*^2$ in place of $\lambda_*$.",
            corrected=mean(opposite**2),
            remark=f"p = {P}.",
        ),
        PrintedEquation(
            "eqs. (10), (11), sign",
            "The drift as the mean of the increments (7)-(9), with the displacement f - y of eqs. (10), (29).",
            averages.increments(opposite),
            drift,
            correction="The displacement y - f in eqs. (7)-(9).",
            corrected=in_11,
            remark=f"p = {P}; the increments without their factor gamma / (p d).",
        ),
        PrintedEquation(
            "eq. (11)",
            "The drifts of m and Q as the means of the increments (8), (9) with their factor gamma / (p d).",
            [gamma / (P * d) * side for side in in_11[:overlaps]],
            drift[:overlaps],
            correction="The increments without it: it is the step of the clock.",
            corrected=in_11[:overlaps],
            remark=f"p = {P}; with the displacement y - f.",
        ),
        PrintedEquation(
            "App. A.2, moments",
            "The list of Gaussian moments of order two, four and six.",
            *_listed_moments(),
        ),
        PrintedEquation(
            "App. A.2, E[E^2]",
            "The mean square of the error.",
            square_error,
            2 * result.risk,
            correction=r"$+ \Delta$ (and $\mathbb{E}[\lambda_*^4]$ for $\lambda_*^4$).",
            corrected=square_error + noise,
            remark=f"p = {P}.",
        ),
        PrintedEquation(
            "App. A.2, readout",
            "The mean of E lambda_j^2, with E = f - y.",
            of_a,
            [-flow[f"readout[{j}]"] for j in range(P)],
            remark=f"p = {P}.",
        ),
        PrintedEquation(
            "App. A.2, M",
            "The mean of 2 a_j E lambda_j lambda_*, with E = f - y.",
            of_m([1] * P),
            [-flow[f"M[{j},0]"] for j in range(P)],
            correction=r"$- 2 a_j \mathbb{E}[\lambda_*^2 \lambda_j \lambda_*]$: the last term lacks its $a_j$.",
            corrected=of_m(a),
            remark=f"p = {P}.",
        ),
        PrintedEquation(
            "App. A.2, Q to first order",
            "The mean of 2 (a_j + a_l) E lambda_j lambda_l, with E = f - y.",
            first,
            [-flow[key] for key in keys],
            remark=f"p = {P}. The left-hand side is printed with lambda_* for lambda_l.",
        ),
        PrintedEquation(
            "App. A.2, Q to second order",
            "The mean of 4 (gamma/p) E^2 a_j a_l lambda_j lambda_l.",
            [16 * gamma / p * each for each in bracket],
            second,
            correction=r"$4 \gamma/p$ in place of $16 \gamma/p$.",
            corrected=[4 * gamma / p * each for each in bracket],
            remark=f"p = {P}.",
        ),
        _projected_step(averages),
    )


def _listed_moments() -> tuple[list[Any], list[Any]]:
    w: Any = sympy.Matrix(4, 4, lambda i, j: sympy.Symbol(rf"\omega_{{{min(i, j) + 1}{max(i, j) + 1}}}"))
    fields = GaussianFields(w.tolist())
    a, b, c, d = fields.fields
    printed = [
        w[0, 1],
        w[0, 0] * w[1, 1] + 2 * w[0, 1] ** 2,
        w[0, 1] * w[2, 2] + 2 * w[0, 2] * w[1, 2],
        w[0, 1] * w[2, 2] * w[3, 3] + 2 * w[0, 1] * w[2, 3] ** 2 + 2 * w[0, 2] * w[1, 2] * w[3, 3]
        + 4 * w[0, 2] * w[1, 3] * w[2, 3] + 4 * w[0, 3] * w[1, 2] * w[2, 3] + 2 * w[0, 3] * w[1, 3] * w[2, 2],
    ]  # fmt: skip
    true = [fields.average(each).as_expr() for each in (a * b, a**2 * b**2, a * b * c**2, a * b * c**2 * d**2)]
    return printed, true


def _projected_step(averages: _Averages) -> PrintedEquation:
    """Eq. (36): the mean of what it says one step adds to m_j, times d."""
    sphere = derived(P, sphere=True)
    ones = {**{each: 1 for each in averages.a}, **{averages.result.symbols[f"Q[{j},{j}]"]: 1 for j in range(P)}}
    error = averages.error(star=averages.star**2, sign=-1)
    rate = averages.gamma / P
    printed, corrected, right = [], [], []
    for j, field in enumerate(averages.students):
        m = averages.result.symbols[f"M[{j},0]"]
        cross, own = averages.mean(error * field * averages.star), averages.mean(error * field**2)
        square = averages.mean(error**2 * field**2)
        printed.append((rate * cross - m / 2 * (2 * rate * own + rate**2 * own)).subs(ones))
        corrected.append((2 * rate * cross - m / 2 * (4 * rate * own + 4 * rate**2 * square)).subs(ones))
        right.append(rate * sphere.drift[f"M[{j},0]"])
    return PrintedEquation(
        "eq. (36)",
        "The mean of what one step adds to m_j on the sphere, times d.",
        printed,
        right,
        correction=r"$2 \tfrac{\gamma}{p} \mathcal{E} \lambda_j \lambda_* - \tfrac{m_j}2 (4 \tfrac{\gamma}{p} "
        r"\mathcal{E} \lambda_j^2 + 4 \tfrac{\gamma^2}{p^2} \mathcal{E}^2 \lambda_j^2)$, as in the "
        "display that follows it.",
        corrected=corrected,
        remark=f"p = {P}.",
    )
