"""Arnaboldi et al. 2023: the verdict on each statement, and figures at quick size."""

import re

import numpy as np
import pytest
import xarray

import dimfree
from dimfree_papers.arnaboldi2023 import dynamics, fluctuations, landscape
from dimfree_papers.arnaboldi2023.drawing import exit_of, first_crossing
from dimfree_papers.arnaboldi2023.exit_figures import _exit_claims
from dimfree_papers.comparing import would_see

VERDICTS = {
    "eqs. (7)-(9)": "agrees",
    "eq. (10)": "misprint",
    "eqs. (29)-(32)": "agrees",
    "App. A.1, rate of the second layer": "misprint",
    "App. B.1, norm of the gradient": "misprint",
    "eq. (11)": "misprint",
    "App. A.2, moments": "agrees",
    "App. A.2, E[E^2]": "misprint",
    "App. A.2, readout": "agrees",
    "App. A.2, M": "misprint",
    "App. A.2, Q to first order": "agrees",
    "App. A.2, Q to second order": "misprint",
    "eq. (6)": "agrees",
    "eqs. (33a), (33b)": "agrees",
    "eq. (34)": "misprint",
    "eqs. (15), (37), (38)": "agrees",
    "eq. (36)": "misprint",
    "eqs. (13), (24), (50), (95), (96)": "agrees",
    "App. D, law of the start": "misprint",
    "eqs. (19), (97)": "agrees",
    "eq. (20)": "agrees",
    "Sec. 3.2, gamma < 1/6": "differs",
    "eqs. (42)-(44)": "agrees",
    "eqs. (45)-(48)": "agrees",
    "App. C.2, p > 6": "agrees",
    "eq. (49)": "agrees",
    "eq. (51)": "misprint",
    "eqs. (21)-(23)": "agrees",
    "Sec. 3.2, quenched and annealed": "agrees",
    "eqs. (28), (52), (53)": "agrees",
    "eqs. (28), (54), (55)": "agrees",
    "App. C.4, gamma_opt; Sec. 3.2": "agrees",
    "Sec. 4, prefactor": "agrees",
    "eq. (56), s_min": "agrees",
    "App. C.4, gain": "agrees",
    "Sec. 4, use of gamma_opt": "differs",
    "after eq. (11), global maximum": "differs",
    "after eq. (11), global minima": "misprint",
    "eqs. (57), (58)": "agrees",
    "eq. (59)": "agrees",
    "after eq. (59)": "differs",
    "Sec. 3.3, stochasticity does not matter": "differs",
    "eqs. (25), (26), (39)": "agrees",
    "eqs. (27), (41)": "agrees",
    "eq. (40)": "agrees",
    "App. B.2, after eq. (40)": "misprint",
    "eq. (62)": "misprint",
    "eq. (62), Var M": "agrees",
    "eqs. (60), (61)": "agrees",
    "App. F, L": "misprint",
    "App. F, Phi(w)": "misprint",
    "App. F, rho": "misprint",
    "App. F, grad L": "misprint",
    "App. F, grad Phi": "agrees",
    "eq. (63)": "agrees",
    "App. F, f and g": "agrees",
    "eq. (64)": "agrees",
    "App. F.1, Sigma": "agrees",
    "App. F.1, factor of Sigma": "misprint",
    "App. F.1, (62) at gamma = 0": "agrees",
    "eqs. (65)-(69)": "agrees",
    "eq. (70)": "misprint",
    "eqs. (71), (72)": "misprint",
    "eq. (73)": "misprint",
    "eq. (74)": "agrees",
    "eq. (75)": "misprint",
    "eq. (76)": "misprint",
    "after eq. (76)": "agrees",
    "eq. (77)": "misprint",
    "after eq. (77)": "misprint",
    "eq. (78)": "misprint",
    "eq. (79)": "misprint",
    "eq. (80)": "misprint",
    "eq. (81)": "misprint",
    "eq. (82)": "agrees",
    "after eq. (83)": "agrees",
    "eqs. (84), (85)": "agrees",
    "eqs. (86), (87)": "agrees",
    "eq. (88)": "misprint",
    "eqs. (16), (89)": "agrees",
    "eq. (90)": "agrees",
    "eqs. (17), (91)": "agrees",
    "eqs. (18), (92)": "agrees",
    "eq. (93), after eq. (18)": "misprint",
    "after eq. (93)": "agrees",
    "eq. (94)": "agrees",
}
# (1)-(5) state the problem, (12), (14), (35) and (83) the start and the algorithm: there is nothing to check in them.
DEFINITIONS = {1, 2, 3, 4, 5, 12, 14, 35, 83}


@pytest.mark.parametrize("part", [dynamics, fluctuations, landscape], ids=lambda part: part.__name__.split(".")[-1])
def test_statements_that_need_no_runs_have_their_verdicts(part):
    statements = {claim.where: claim for claim in part.claims()}
    assert statements
    assert {where: claim.verdict for where, claim in statements.items()} == {
        where: VERDICTS.get(where, "not listed") for where in statements
    }
    _misprints_are_clearly_off(statements)


@pytest.mark.slow
def test_statements_have_their_verdicts_and_numbers():
    """All in one test: the statements take a minute, which processes would each spend."""
    statements = {claim.where: claim for claim in dimfree.claims("arnaboldi2023")}
    assert {where: claim.verdict for where, claim in statements.items()} == VERDICTS
    _every_number_occurs(statements)
    _misprints_are_clearly_off(statements)
    _numbers_known_from_elsewhere(statements)


def _every_number_occurs(statements):
    numbers = set(DEFINITIONS)
    for where in statements:
        for first, last in re.findall(r"\((\d+)[ab]?\)(?:-\((\d+)\))?", where):
            numbers |= set(range(int(first), int(last or first) + 1))
    assert numbers == set(range(1, 98))


def _misprints_are_clearly_off(statements):
    for claim in statements.values():
        if claim.verdict == "misprint":
            assert claim.error(claim.printed) > 1e-3, claim.where
        assert np.all(np.isfinite(np.asarray(claim.ours, float))), claim.where


def _numbers_known_from_elsewhere(statements):
    ends = np.asarray(statements["Sec. 4, use of gamma_opt"].ours)
    np.testing.assert_allclose(ends, [0.0, 2.0], atol=0.01)  # the plateau of p = 5 has 1.2: the students collapse
    bounds = statements["Sec. 3.2, gamma < 1/6"].ours
    np.testing.assert_allclose(bounds, [2 / 12, 2 / 12.5, 2 / 14], rtol=1e-10)
    assert 0.8 < float(statements["Sec. 3.3, stochasticity does not matter"].ours) < 0.95


def test_exits_are_interpolated_where_curves_fall_to_the_threshold():
    times = np.array([0.0, 1.0, 2.0, 3.0])
    curves = np.array([[2.0, 1.9, 1.7, 1.0], [2.0, 2.1, 2.0, 1.9]])
    np.testing.assert_allclose(exit_of(times, curves, 0.1), [1.5, np.inf])
    assert first_crossing(times, -curves[0], -1.0) == 3.0
    # A curve that begins above the level, or on it, is there at once.
    np.testing.assert_array_equal(first_crossing(times, np.array([[0.5, 0.7, 0.9, 1.0], [0.4, 0.4, 0, 1]]), 0.4), 0.0)


@pytest.mark.parametrize("runs", [8, 512])
@pytest.mark.parametrize(("delay", "spread", "verdicts"), [(1.05, 1.1, "agrees"), (1.33, 1.5, "differs")])
def test_what_noise_does_to_exits_is_seen_with_any_number_of_runs(runs, delay, spread, verdicts):
    along = np.linspace(-1.0, 1.0, runs)
    risk = 1.0 + 0.1 * along[:, None] * np.ones(3)
    data = xarray.Dataset(
        {
            "risk_sgd": (("run", "time"), risk),
            "risk_sde": (("path", "time"), 1.0 + spread * (risk - 1.0)),
            "exit_sgd": ("run", delay * (1 + 0.5 * along)),
            "exit_ode": ((), 1.0),
        },
        coords={"time": [0.0, 1.0, 2.0]},
    )
    assert [claim.verdict for claim in _exit_claims("Fig. 1", data)] == [verdicts, verdicts]


def test_the_power_of_a_comparison_is_said():
    assert "a true deviation of 26 % would have been seen" in would_see(0.2, 0.02)


@pytest.mark.parametrize(
    "name", [pytest.param(f"fig{number}", marks=pytest.mark.slow if number < 6 else ()) for number in range(1, 7)]
)
def test_a_quick_figure_is_finite_and_drawn(name, tmp_path):
    made = dimfree.reproduce("arnaboldi2023", name)
    for variable in made.data.data_vars.values():
        assert np.all(np.isfinite(variable.values)), variable.name
    assert made.claims
    if name == "fig6":
        assert "misprint" in {claim.verdict for claim in made.claims}
        assert made.data.risk.values.max() == pytest.approx(2.0)
    made.data.to_netcdf(tmp_path / "data.nc", engine="scipy")  # as the command does
    made.picture.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 20_000


@pytest.mark.slow
def test_measured_exits_agree_with_the_noise_dressed_prediction():
    data = dimfree.reproduce("arnaboldi2023", "fig2").data
    ratio = (data.measured / data.dressed).values
    error = (data.measured_error / data.dressed).values
    # 1/d corrections reach 4 % at d = 300, more at d = 100: only the larger d is asked for.
    assert np.all(np.abs(ratio[:, -1] - 1) < 0.05 + 3 * error[:, -1])
    assert np.all(np.abs((data.measured / data.annealed).values[0] - 1) > 3 * error[0])
