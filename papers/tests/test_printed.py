"""Printed equations: the verdict on each, against what the numbers say of the same."""

import pytest
import sympy

from dimfree import InvalidInput
from dimfree_papers.printed import WITH_EQUATIONS, PrintedEquation, printed_equations

MISPRINTS = {
    "arnaboldi2023": {
        "eq. (10)", "eqs. (10), (11), sign", "eq. (11)", "App. A.2, E[E^2]", "App. A.2, M",
        "App. A.2, Q to second order", "eq. (36)", "eq. (33b)", "eq. (34)", "eq. (62)", "App. F, Phi(w)", "App. F, rho",
        "App. F.1, Sigma_mq, first line", "App. F.1, factor of Sigma", "eqs. (71), (72)", "eq. (73)", "eq. (75)",
        "eq. (76)", "eq. (77)", "eq. (78)", "eq. (79)", "eq. (80)", "eq. (81)",
    },
    "benarous2022": {f"section 3, lambda_n = Lambda n^((k-2)/2), order {k}" for k in (3, 4)},
    "bocchi2026": {"eq. (34)", "eq. (11)", "eq. (35)"},
}  # fmt: skip
NUMBER = {"arnaboldi2023": 51, "benarous2022": 8, "bocchi2026": 12}
# What the numbers call by another name, or see only part of: (33b) is compared in numbers with k = 1.
ONLY_HERE = {"eq. (33b)"}


@pytest.mark.parametrize("paper", WITH_EQUATIONS)
def test_every_printed_equation_has_its_verdict(paper):
    found = printed_equations(paper)
    assert {each.where for each in found if each.verdict == "misprint"} == MISPRINTS[paper]
    assert not [each.where for each in found if each.verdict == "differs"]
    assert len({each.where for each in found}) == len(found) == NUMBER[paper]
    for each in found:
        shown = [each.to_latex(rest) for rest in each.difference(each.printed)]
        assert bool(shown) == (each.where in MISPRINTS[paper]), each.where


@pytest.mark.slow
@pytest.mark.parametrize("paper", WITH_EQUATIONS)
def test_symbols_and_numbers_agree_on_the_verdicts(paper):
    from dimfree import claims

    numbers = {claim.where: claim.verdict for claim in claims(paper)}
    symbols = {each.where: each.verdict for each in printed_equations(paper) if each.where not in ONLY_HERE}
    shared = set(numbers) & set(symbols)
    assert len(shared) >= {"arnaboldi2023": 30, "benarous2022": 2, "bocchi2026": 7}[paper]
    assert {where: numbers[where] for where in shared} == {where: symbols[where] for where in shared}


def test_a_verdict_needs_its_difference_and_its_correction():
    x = sympy.Symbol("x")
    assert PrintedEquation("here", "", (x + 1) ** 2, x**2 + 2 * x + 1).verdict == "agrees"
    wrong = PrintedEquation("here", "", 2 * x, 3 * x, correction="3 x", corrected=3 * x)
    assert (wrong.verdict, wrong.difference(wrong.printed), wrong.factor) == ("misprint", (x,), sympy.Rational(3, 2))
    assert PrintedEquation("here", "", 2 * x, 3 * x, correction="x", corrected=x).verdict == "differs"
    with pytest.raises(ValueError, match="a correction needs its expression"):
        PrintedEquation("here", "", 2 * x, 3 * x, correction="3 x")
    with pytest.raises(ValueError, match="cannot be compared"):
        _ = PrintedEquation("here", "", (x, x), (x,)).verdict


def test_a_paper_without_such_equations_is_refused():
    with pytest.raises(InvalidInput, match="there are printed equations of arnaboldi2023"):
        printed_equations("mignacco2021")
