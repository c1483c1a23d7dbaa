"""Bocchi et al. 2026: every statement and every figure has the verdict that was found when it was first checked."""

import re

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")
from dimfree.papers.bocchi2026 import PAPER
from verdicts import assert_verdicts

STATEMENTS = {
    "eqs. (6), (31)": "agrees",
    "eq. (33)": "agrees",
    "eq. (34), first order": "agrees",
    "eq. (34)": "misprint",
    "eqs. (38), (39)": "agrees",
    "eq. (23)": "agrees",
    "eq. (9)": "agrees",
    "eq. (10)": "agrees",
    "eq. (11)": "misprint",
    "eq. (35)": "misprint",
    "eqs. (12), (36)": "agrees",
    "eq. (13)": "agrees",
    "eq. (13), clock": "misprint",
    "eq. (13), counted from the start": "misprint",
    "section 7.3, risk after eq. (35)": "agrees",
    "eq. (16)": "agrees",
    "eq. (17)": "agrees",
    "eq. (18)": "agrees",
    "eq. (19)": "agrees",
    "eqs. (20), (21)": "agrees",
    "section 4.1, closest solution": "agrees",
    "section 4.1, closest solution from any start": "differs",
    "eqs. (22), (37)": "agrees",
    "eq. (22), any start": "differs",
    "section 4.1, rapid decay for p = k": "agrees",
    "section 4.1, rapid decay for p > k": "misprint",
    "section 7.5.1": "agrees",
    "section 7.5.2": "agrees",
    "section 4.1, best learning rate": "differs",
    "eq. (24)": "agrees",
    "eq. (25)": "agrees",
    "eq. (28)": "agrees",
    "eq. (28), the matrix M": "misprint",
    "eq. (30)": "agrees",
    "eq. (30), the teachers": "misprint",
    "section 7.2.1, scale of the students": "misprint",
    "section 4.2, classes of critical points": "misprint",
    "section 7.2.2, Hessian of tabula rasa": "agrees",
    "section 7.2.2, Hessian of the plateau": "misprint",
    "section 7.2.2, Hessian of a solution": "agrees",
    "section 7.2.2, Hessian of aligned students": "agrees",
    "section 7.2.2, spectrum of tabula rasa": "agrees",
    "section 7.2.2, spectrum of the plateau": "agrees",
    "section 7.2.2, spectrum of a solution": "agrees",
    "section 7.2.2, spectrum of aligned students": "agrees",
    "eq. (29)": "agrees",
    "section 7.2.2, widest plateau": "misprint",
    "section 7.2.3": "agrees",
}
EQUATIONS = {6, *range(9, 14), *range(16, 26), 28, 29, 30, 33, 34, 35}

FIGURES = {
    "fig1": {"Fig. 1, ODE and SGD": "agrees", "Fig. 1, norm learning": "agrees", "Fig. 1, zero error": "agrees"},
    "fig2": {"Fig. 2, linear trend": "agrees", "Fig. 2, proportional to p": "differs"},
    "fig3": {
        "Fig. 3, predicted solution": "agrees",
        "Fig. 3, other starts": "agrees",
        "Fig. 3, zero error": "agrees",
    },
    "fig4": {"Fig. 4": "agrees", "Fig. 4, any start": "differs"},
    "fig5": {"Fig. 5, section 7.5.1": "agrees"},
    "fig6": {"Fig. 6, section 7.5.2": "agrees"},
}
PANELS = {"fig1": 4, "fig2": 2, "fig3": 2, "fig4": 2, "fig5": 1, "fig6": 1}
SLOW = {"fig1", "fig2"}  # the compilation of a simulation, and of a thousand solves


def test_every_statement_has_its_verdict():
    assert_verdicts(PAPER.statements(), STATEMENTS)


def test_every_equation_that_is_listed_occurs():
    numbers = {int(number) for where in STATEMENTS for number in re.findall(r"\((\d+)\)", where)}
    assert numbers >= EQUATIONS


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in FIGURES])
def test_every_figure_is_drawn_with_its_verdicts(name):
    made = PAPER.figure(name).make("quick")
    assert {claim.where: claim.verdict for claim in made.claims} == FIGURES[name]
    panels = made.picture.axes
    assert len(panels) == PANELS[name]
    for axes in panels:
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        assert axes.lines
    if name in ("fig1", "fig3", "fig4"):
        assert all(r"\eta\,\alpha" in axes.get_xlabel() for axes in panels)
    made.picture.canvas.draw()


def test_figure_3_shows_the_same_starts_in_both_panels():
    data = PAPER.figure("fig3").make("quick").data
    assert dict(data.sizes) == {"start": 9, "time": 121}
    # Eq. (23) at Q = I with overlaps of order 0.01: (k + 2)/k - 2 + (p + 2)/p, less 4 sum(M^2) / (p k).
    np.testing.assert_allclose(data.risk[:, 0], 5 / 3 - 2 + 8 / 6, atol=2e-3)
    # From far away all solutions are alike: the distance to one is the norm of it, (p/k)^1/2 k^1/2.
    np.testing.assert_allclose(data.distance[:, 0], np.sqrt(6), rtol=0.05)
