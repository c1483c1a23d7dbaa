"""Bocchi et al. 2026: every statement and every figure has the verdict that was found when it was first checked."""

import re

import matplotlib
import numpy as np
import pytest
import xarray

matplotlib.use("Agg")
import dimfree
from dimfree_papers.bocchi2026.figures import _fig1_claims, _fig2_claims
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
    "fig1": {
        **{f"Fig. 1({letter}), ODE and SGD": "agrees" for letter in "abcd"},
        "Fig. 1, norm learning": "agrees",
        "Fig. 1, zero error": "agrees",
    },
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
    claims = dimfree.claims("bocchi2026")
    assert_verdicts(claims, STATEMENTS)
    numbers = {int(number) for claim in claims for number in re.findall(r"\((\d+)\)", claim.where)}
    assert numbers >= EQUATIONS


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in FIGURES])
def test_every_figure_is_drawn_with_its_verdicts(name):
    made = dimfree.reproduce("bocchi2026", name)
    assert {claim.where: claim.verdict for claim in made.claims} == FIGURES[name]
    panels = made.picture.axes
    assert len(panels) == PANELS[name]
    for axes in panels:
        assert axes.get_xlabel()
        assert axes.get_ylabel()
        assert axes.lines
    if name in ("fig1", "fig3", "fig4"):
        assert all(r"\eta\,\alpha" in axes.get_xlabel() for axes in panels)
    if name == "fig3":  # the same starts in both panels
        data = made.data
        assert dict(data.sizes) == {"start": 9, "time": 121}
        # Eq. (23) at Q = I with overlaps of order 0.01: (k + 2)/k - 2 + (p + 2)/p, less 4 sum(M^2) / (p k).
        np.testing.assert_allclose(data.risk[:, 0], 5 / 3 - 2 + 8 / 6, atol=2e-3)
        # From far away all solutions are alike: the distance to one is the norm of it, (p/k)^1/2 k^1/2.
        np.testing.assert_allclose(data.distance[:, 0], np.sqrt(6), rtol=0.05)
    made.picture.canvas.draw()


@pytest.mark.parametrize(("power", "verdict"), [(1.0, "agrees"), (0.5, "differs"), (2.0, "differs")])
def test_a_best_rate_that_does_not_grow_linearly_is_seen(power, verdict):
    width, fraction, largest = np.array([3, 5, 8]), np.linspace(0.15, 0.95, 13), 1.0
    best = 0.7 * (width / 8) ** power
    starts = 1 + 0.01 * np.random.default_rng(0).normal(size=20)
    samples = 10 + 50 * (fraction[None, :, None] - best[:, None, None] * starts) ** 2
    data = xarray.Dataset(
        {
            "samples_to_half": (("width", "fraction", "start"), samples),
            "best_rate": ("width", best),
            "largest_rate": ("width", np.full(3, largest)),
        },
        coords={"width": width, "fraction": fraction},
    )
    assert _fig2_claims(data)[0].verdict == verdict


@pytest.mark.parametrize("panel", [None, "teacher_overlap", "student_overlap", "norm", "risk"])
@pytest.mark.parametrize("runs", [4, 64])
def test_a_panel_where_runs_leave_the_ode_is_seen_however_noisy_another_is(panel, runs):
    times = np.linspace(0.0, 20.0, 41)
    curve = 1.0 + 0.5 * np.sin(times)[:, None]
    noise = np.linspace(-1.0, 1.0, runs)[:, None, None] * np.ones((1, 41, 1))
    names = ("teacher_overlap", "student_overlap", "norm", "risk")
    data = xarray.Dataset(
        {name: (("time", f"{name}_index"), curve) for name in names}
        | {
            f"{name}_sgd": (
                ("run", "time", f"{name}_index"),
                curve + (2.0 if name == "student_overlap" else 0.1) * noise + (0.6 if name == panel else 0.0),
            )
            for name in names
        },
        coords={"time": times},
    )
    verdicts = {name: claim.verdict for name, claim in zip(names, _fig1_claims(data, 0.75)[:4], strict=True)}
    assert verdicts == {name: "differs" if name == panel else "agrees" for name in names}
