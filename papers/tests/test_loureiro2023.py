"""Loureiro 2023: every statement and every figure has the verdict that was found when it was first checked."""

import matplotlib
import numpy as np
import pytest

matplotlib.use("Agg")
import dimfree
from dimfree.papers import find
from dimfree_papers.loureiro2023 import setting
from dimfree_papers.loureiro2023.wide_figures import even_start, outside, reduced_risk
from verdicts import assert_figure, assert_verdicts

SETTING = {
    '"Algorithm: SGD", one-pass, small steps': "agrees",
    '"Another look at SGD", effective noise': "agrees",
    '"Setting", loss of the step': "misprint",
    '"Setting", fields': "misprint",
    '"Sufficient statistics", risk': "agrees",
    '"Sufficient statistics", Omega': "misprint",
    '"Taking a closer look"': "agrees",
    '"The different regimes", ODE': "agrees",
}
LIMITS = {
    '"Main theoretical result", theorem': "agrees",
    '"Main theoretical result", mean': "differs",
    '"Classical regime"': "agrees",
}
WIDE = {
    '"Mean-field limit", risk': "misprint",
    '"Mean-field limit", linear in the density': "misprint",
    '"Mean-field limit", transport': "agrees",
    '"Mean-field regime", W': "agrees",
    '"Mean-field regime", Q': "misprint",
    '"Mean-field regime", angles': "agrees",
    '"Mean-field + high-d", theorem': "misprint",
    '"Mean-field + high-d", closed equation': "agrees",
}
SINGLE_INDEX = {
    '"Single-index models", exponent 1': "misprint",
    '"Single-index models", exponent 2': "agrees",
    '"Single-index models", exponent 2 and more': "misprint",
    '"Phase retrieval", Hessian': "agrees",
    '"Does width matter?", exit times': "agrees",
}
FIGURES = {
    "fig1": {'"Classical regime", k = 2, gradient flow': "agrees", '"Classical regime", k = 2, end': "agrees"},
    "fig2": {'"Classical regime", k = 5, gradient flow': "agrees", '"Classical regime", k = 5, end': "agrees"},
    "fig3": {
        '"High-dimensional regime", the ODE': "agrees",
        '"High-dimensional regime", plateau': "agrees",
        '"High-dimensional regime", specialisation': "agrees",
    },
    "fig4": {
        '"Mean-field + high-d", rate in p': "agrees",
        '"Mean-field + high-d", rate in d': "agrees",
        '"Mean-field + high-d", reduced equation': "agrees",
    },
    "fig6": {
        '"Does width matter?", p = 1': "differs",
        '"Does width matter?", p = 5': "agrees",
        '"Take aways", width': "agrees",
    },
}
PANELS = {"fig1": 2, "fig2": 2, "fig3": 2, "fig4": 3, "fig6": 2}


def test_the_paper_is_found_with_its_figures():
    assert list(find("loureiro2023").figures) == ["fig1", "fig2", "fig3", "fig4", "fig5", "fig6"]


def test_statements_on_the_setting_have_their_verdicts():
    assert_verdicts(setting.claims(), SETTING)


@pytest.mark.slow
def test_every_statement_has_its_verdict():
    assert_verdicts(dimfree.claims("loureiro2023"), {**SETTING, **LIMITS, **WIDE, **SINGLE_INDEX})


@pytest.mark.slow
@pytest.mark.parametrize("name", list(FIGURES))
def test_every_figure_is_drawn_with_its_verdicts(name):
    assert_figure(dimfree.reproduce("loureiro2023", name), FIGURES[name], panels=PANELS[name])


@pytest.mark.slow
def test_the_figure_on_noise_is_that_of_its_reference():
    made = dimfree.reproduce("loureiro2023", "fig5")
    assert [claim.where for claim in made.claims] == [
        '"Does noise matter?", exit time',
        '"Does noise matter?", variance',
    ]
    assert np.isfinite(made.data.exit_sgd.values).all()


# Corrections by a way that the claims do not take.


def test_the_risk_is_quadratic_in_the_density():
    """Along a mixture of two networks the third difference of the risk vanishes, the second does not."""
    draws = np.random.default_rng(0)
    weights = draws.normal(size=(5, 7))
    gram = weights @ weights.T / 7
    shares = np.linspace(0.0, 1.0, 4)
    risks = []
    for share in shares:
        problem = dimfree.TwoLayer(4, 1, "erf", readout=4 * np.r_[np.full(2, share / 2), np.full(2, (1 - share) / 2)])
        risks.append(float(problem.risk(dimfree.State(Q=gram[:4, :4], M=gram[:4, 4:], P=gram[4:, 4:]))))
    assert abs(np.diff(risks, 3)[0]) < 1e-14
    assert np.diff(risks, 2)[0] > 1e-4  # convex


def test_overlaps_outside_the_teachers_are_those_of_the_orthogonal_parts():
    weights = np.random.default_rng(1).normal(size=(3, 6))
    state = dimfree.State(Q=weights @ weights.T / 6, M=weights[:, :2] / 6**0.5)
    rest = weights[:, 2:] @ weights[:, 2:].T / 6
    np.testing.assert_allclose(outside(state), rest - np.diag(np.diag(rest)), atol=1e-14)


@pytest.mark.slow
def test_the_reduced_equation_approaches_the_network():
    """Its risk at t = 2 over that of gradient flow, whose distance from one falls as 1/p."""
    times = np.linspace(0.0, 2.0, 11)
    away = []
    for p in (8, 32):
        problem, sgd = dimfree.TwoLayer(p, 2, "erf", noise=1e-3), dimfree.OnlineSGD(0.2)
        path = dimfree.solve(dimfree.gradient_flow(problem, sgd), even_start(p), times * p / 0.2)
        away.append(float(reduced_risk(p, times)[-1] / path.risk[-1] - 1))
    assert 2.5 < away[0] / away[1] < 6
