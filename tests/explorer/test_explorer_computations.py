"""What the explorer computes, against formulas that it does not use."""

import ast
import contextlib
import dataclasses
import json
import os
import re
import subprocess
import sys
import threading
import time
import types

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.stats import norm

import dimfree
from dimfree.analysis.portrait import Portrait
from dimfree.explorer import background, computations, page, pictures, scripts, serve, views
from dimfree.explorer.settings import OPTIMISERS, PROBLEMS, SCHEDULES, THRESHOLD, Settings

ONE = Settings(width=1, noise=0.2, learning_rate=0.1, d=200, alpha=30.0)


@pytest.fixture(scope="module")
def one() -> computations.Curves:
    return computations.curves(ONE)


def test_the_exit_of_one_student_is_that_of_its_scalar_ode(one):
    # On the sphere the risk is 2 (1 - m^2) + noise / 2, and with t = rate alpha
    # dm/dt = m (4 (1 - 6 rate) (1 - m^2) - 2 rate noise).
    rate, noise = ONE.learning_rate, ONE.noise
    m0 = float(one.theory.state.M[0, 0, 0])
    solution = solve_ivp(
        lambda alpha, m: rate * m * (4 * (1 - 6 * rate) * (1 - m**2) - 2 * rate * noise),
        (0, ONE.alpha),
        [m0],
        t_eval=np.asarray(one.theory.alpha),
        rtol=1e-10,
        atol=1e-12,
        events=lambda alpha, m: m[0] ** 2 - THRESHOLD,
    )
    np.testing.assert_allclose(one.theory.state.M[:, 0, 0], solution.y[0], rtol=1e-6)
    np.testing.assert_allclose(one.theory.risk, 2 * (1 - solution.y[0] ** 2) + noise / 2, rtol=1e-6)
    assert one.plateau_risk == pytest.approx(2 + noise / 2)
    assert one.level == pytest.approx(2 * (1 - THRESHOLD) + noise / 2)
    # Between saved times, 0.15 apart, the curve is taken for straight.
    assert one.predicted == pytest.approx(solution.t_events[0][0], abs=0.01)


def test_the_runs_share_the_start_and_their_exits_are_their_own(one):
    assert one.simulated.runs == len(one.measured) == 16
    np.testing.assert_allclose(one.simulated.state.M[:, 0], np.broadcast_to(one.theory.state.M[0], (16, 1, 1)))
    np.testing.assert_array_equal(one.simulated.alpha, one.theory.alpha)
    risk = np.asarray(one.simulated.risk)
    alphas = np.asarray(one.simulated.alpha)
    for path, left in zip(risk, one.measured, strict=True):
        assert (path[alphas < left] > one.level).all()
        if np.isfinite(left):
            assert path[np.searchsorted(alphas, left)] <= one.level


def test_a_slider_of_a_number_compiles_nothing(one):
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, seconds, **_: compiled.append(name) if "backend_compile" in name else None
    )
    for change in ({"noise": 0.5}, {"learning_rate": 0.07}, {"d": 300}, {"alpha": 20.0}, {"seed": 4}):
        computations.curves(dataclasses.replace(ONE, **change))
    assert compiled == []
    jax.jit(lambda x: x + 3.21)(1.0)  # what is counted would have been seen
    assert compiled != []


@pytest.mark.parametrize(
    ("risk", "time"),
    [([4.0, 3.0, 1.0, 0.5], 1.5), ([4.0, 3.0, 2.5], np.inf), ([1.0, 4.0], 0.0), ([4.0, 2.0, 3.0, 1.0], 1.0)],
)
def test_a_curve_crosses_a_level_when_it_first_does(risk, time):
    assert computations.crossing(np.arange(len(risk)), risk, 2.0) == time


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"problem": "phase"}, "'phase'"),
        ({"width": 0}, "width = 0"),
        ({"noise": -0.1}, "noise = -0.1"),
        ({"exponent": -1.0}, "exponent = -1.0"),
        ({"problem": "two-clusters", "noise": 0.25, "exponent": 1.0}, "exponent = 1.0 was given; the inputs of two-cl"),
        ({"optimiser": "adam"}, "optimiser = 'adam' was given; choose one of sgd, momentum"),
        ({"schedule": "cosine"}, "schedule = 'cosine' was given; choose one of constant, linear"),
        ({"quantity": "accuracy"}, "quantity = 'accuracy' was given, but TwoLayer("),
        ({"quantity": "loss"}, "quantity = 'loss'"),
        ({"problem": "two-clusters", "noise": 0.0}, "noise = 0 was given; it is the variance of a cluster"),
        ({"learning_rate": 0.0}, "learning_rate = 0.0"),
        ({"alpha": float("inf")}, "alpha = inf"),
        ({"d": 1}, "d = 1"),
        ({"d": 10, "alpha": 5.0}, "50 samples"),
        ({"seed": -1}, "seed = -1"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_words(change, words):
    with pytest.raises(dimfree.InvalidInput) as refusal:
        computations.curves(dataclasses.replace(ONE, **change))
    assert words in str(refusal.value)


def test_what_diverges_is_said(one):
    diverged = dataclasses.replace(
        one.simulated, outcome=one.simulated.outcome.at[:3].set(int(dimfree.Outcome.DIVERGED))
    )
    assert computations._divergence(one.theory, one.simulated) == ""
    assert "3 of 16 runs diverge. Take a smaller" in computations._divergence(one.theory, diverged)


def with_overlaps(trajectory, M):
    """The same trajectory with other overlaps, and norms that such students could have."""
    M = np.asarray(M, float)
    state = dimfree.State(Q=M @ np.swapaxes(M, -1, -2) + np.diag(np.arange(M.shape[-2])), M=M)
    return eqx.tree_at(lambda old: old.state, trajectory, state)


def test_students_are_named_as_those_of_the_ode_where_a_symmetry_is_broken_otherwise(one):
    eye, times = np.eye(2), len(one.theory.alpha)
    turned = np.array([[np.cos(0.8), -np.sin(0.8)], [np.sin(0.8), np.cos(0.8)]])
    ways = np.stack([eye, eye[::-1], -eye, turned, *[0.9 * eye] * 12])
    theory = with_overlaps(one.theory, np.repeat(eye[None], times, axis=0))
    runs = with_overlaps(one.simulated, np.repeat(ways[:, None], times, axis=1))
    for even, rotated, renamed in ((False, False, [1]), (True, False, [1, 2]), (True, True, [1, 2, 3])):
        named, count = computations.matched(theory, runs, even=even, rotated=rotated)
        assert count == len(renamed)
        for run, way in enumerate(ways):
            np.testing.assert_allclose(named.state.M[run, -1], eye if run in renamed else way, atol=1e-12)
        # The norms go with their students, and what the risk depends on is what it was.
        np.testing.assert_allclose(np.diagonal(named.state.Q[1, -1]), np.diagonal(runs.state.Q[1, -1])[::-1])
        before, after = (np.linalg.eigvalsh(each.state.covariance) for each in (runs, named))
        np.testing.assert_allclose(after, before, atol=1e-12)


def test_a_run_that_learns_the_opposite_sign_does_not_pull_the_mean_from_the_line(one):
    end = np.asarray(one.simulated.state.M)[:, -1, 0, 0]
    theirs = int(np.argmin(np.abs(end - float(one.theory.state.M[-1, 0, 0]))))
    overlaps = one.simulated.state.overlaps["students", "teachers"].at[theirs].multiply(-1)
    flipped = eqx.tree_at(lambda run: run.state.overlaps["students", "teachers"], one.simulated, overlaps)
    named, renamed = computations.matched(one.theory, flipped, even=True, rotated=False)
    assert renamed == one.renamed + 1
    np.testing.assert_array_equal(named.state.M, one.matched.state.M)
    assert "the noise chose" not in pictures.caption_of(dataclasses.replace(one, renamed=0))
    assert "In 3 runs the noise chose" in pictures.caption_of(dataclasses.replace(one, renamed=3))


def texts(axes) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_legend_caption_and_axes_speak_of_what_is_drawn(one):
    left, right = pictures.draw_curves(one).axes
    marks = ["the ODE has left", "the median run has left", "escape threshold"]
    assert texts(left) == ["ODE", "SGD, 16 runs", *marks]
    assert texts(right) == ["ODE", "SGD, 16 runs", "M[0,0]"]
    words = pictures.caption_of(one)
    assert "Dots are the mean of 16 runs" in words
    assert "band" in words
    assert "Thin lines" not in words

    ended = eqx.tree_at(
        lambda run: (run.outcome, run.stopped_at, run.state.overlaps["students", "teachers"]),
        one.simulated,
        (one.simulated.outcome * 0 + int(dimfree.Outcome.DIVERGED), one.simulated.stopped_at * 0 + 3.0,
         one.simulated.state.overlaps["students", "teachers"].at[:, -1].set(1e9)),
    )  # fmt: skip
    diverged = dataclasses.replace(
        one, simulated=ended, matched=ended, remark="It diverges.", predicted=np.inf, measured=np.full(16, np.inf)
    )
    left, right = pictures.draw_curves(diverged).axes
    assert texts(left) == ["ODE", "SGD, 16 runs that diverge", "escape threshold"]
    assert right.get_ylim() == (-1.5, 1.5)
    words = pictures.caption_of(diverged)
    assert "Thin lines are single runs of SGD, the 16 that diverge" in words
    assert not any(word in words for word in ("Dots", "band", "dashed", "dotted"))
    assert "16 runs of SGD diverged and cannot be drawn" in pictures.caption_of(diverged, each=False)


@pytest.mark.parametrize("log", [False, True])
def test_nothing_of_the_picture_is_cut_off_or_runs_into_another(one, log):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    M = np.linspace(-1.0, 1.0, 8).reshape(4, 2)  # as many overlaps as there can be
    wide = dataclasses.replace(
        one,
        settings=dataclasses.replace(ONE, log=log),
        matched=with_overlaps(one.simulated, np.broadcast_to(M, (16, 201, 4, 2))),
    )
    figure = pictures.draw_curves(wide)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    left, right = figure.axes
    assert len(texts(right)) == 10
    for axes in (left, right):
        for part in (axes.yaxis.label, axes.xaxis.label, axes.get_legend(), axes.title):
            box = part.get_window_extent(canvas.get_renderer())
            # Each half is a picture by itself on a narrow page.
            assert box.x0 >= (figure.bbox.x1 / 2 if axes is right else 0)
            assert box.x1 <= (figure.bbox.x1 / 2 if axes is left else figure.bbox.x1)
            assert box.y0 >= 0
    legends = [axes.get_legend().get_window_extent(canvas.get_renderer()) for axes in (left, right)]
    assert not legends[0].overlaps(legends[1])


def test_many_points_at_rest_are_said_to_be_a_family(one):
    angle = np.linspace(0.0, 6.0, 100)
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    seen = Portrait(("M[0,0]", "Q[0,0]"), ring[:, None] * np.linspace(0.1, 1.0, 5)[:, None], ring, 0 * angle,
                    np.ones(100, bool), angle)  # fmt: skip
    (axes,) = pictures.draw_flow(seen, one).axes
    assert texts(axes) == ["ODE", "SGD, 16 runs", "start", "at rest, stable"]
    dots = [line for line in axes.lines if line.get_marker() == "o" and len(line.get_xdata()) == 100]
    assert [line.get_markersize() for line in dots] == [3.5]
    free = dataclasses.replace(ONE, sphere=False, width=2)
    assert "samples of continuous families" in pictures.flow_caption(seen, free)
    assert "rotated" in pictures.flow_caption(seen, free)
    few = dataclasses.replace(seen, rest=ring[:3], growth=angle[:3], stable=np.ones(3, bool))
    assert "families" not in pictures.flow_caption(few, free)


@pytest.fixture
def nothing_known():
    background.forget()
    yield
    background.forget()


def when_there(view, settings, asked):
    """A view when what it asks for has been computed."""
    for _ in range(600):
        made = None
        with contextlib.suppress(background.Pending):
            made = views.made_of(view, settings, asked)
        if made is not None and made.pending is None:
            return made
        time.sleep(0.1)
    raise AssertionError("It takes too long.")


def test_exit_times_open_with_the_runs_of_the_curves_and_wait_for_the_button(one, nothing_known, monkeypatch):
    asked, full = [], ("closed_form", "ode", "dressed", "simulated")

    def compute(*arguments, methods, **_):
        asked.append(methods)
        return dimfree.exit_time(*arguments, methods=("closed_form",), key=jax.random.key(0))

    monkeypatch.setattr(computations, "exit_time", compute)
    go = threading.Event()
    monkeypatch.setattr(computations, "curves", lambda settings: go.wait(60) and one)
    ask = background.result
    monkeypatch.setattr(background, "result", lambda *task: ask(*task, patience=60.0 if task[0] == "formula" else 0.7))
    at_once = views.made_of(views.EXITS, ONE, False)
    assert "formula" in at_once.table  # before there are curves
    assert (at_once.figure, at_once.pending.kind) == (None, "curves")
    go.set()
    before = when_there(views.EXITS, ONE, False)
    (axes,) = before.figure.axes
    curve = next(line for line in axes.lines if line.get_label() == "simulated, 16 runs")
    np.testing.assert_allclose(curve.get_xdata()[1:], np.sort(one.left))
    assert "formula" in before.table
    assert "16 runs of the learning curves" in before.words
    assert asked == [("closed_form",)]
    assert when_there(views.EXITS, ONE, True).words == ""
    assert asked == [("closed_form",), full]
    # What has been computed is there without the button, also if only the picture of the curves has changed.
    assert when_there(views.EXITS, dataclasses.replace(ONE, log=True, alpha=50.0), False).words == ""
    assert when_there(views.EXITS, dataclasses.replace(ONE, d=300), False).words != ""
    assert asked.count(full) == 1


def test_the_map_of_regimes_opens_with_constants_of_one(nothing_known, monkeypatch):
    settings = dataclasses.replace(ONE, width=4, learning_rate=0.2)
    seen = computations.regime_map(settings)
    noise = 0.2 / 4
    assert seen.expected["ODE"] == pytest.approx((noise / settings.d) ** 0.5)
    assert seen.expected["gradient flow"] == pytest.approx(np.hypot(noise, (noise / settings.d) ** 0.5))
    first = when_there(views.REGIMES, settings, False)
    assert (first.figure is not None, first.table) == (True, "")
    assert "constants of the theorems to be one" in first.words
    scales = dataclasses.replace(seen.scales, fluctuation=3.0)
    monkeypatch.setattr(computations, "regime_scales", lambda settings: scales)
    found = when_there(views.REGIMES, settings, True)
    assert pictures.number(3 * (noise / settings.d) ** 0.5) in found.table
    # They are found once, whatever the dimension and the rate.
    assert when_there(views.REGIMES, dataclasses.replace(settings, d=2_000, learning_rate=0.1), False).table


def test_a_view_that_a_problem_does_not_have_says_so_above_its_curves(one, nothing_known, monkeypatch):
    monkeypatch.setattr(computations, "curves", lambda settings: one)
    for settings in (dataclasses.replace(ONE, optimiser="momentum"), dataclasses.replace(ONE, schedule="linear")):
        for view in (views.EXITS, views.FLOW, views.REGIMES):
            made = when_there(view, settings, True)
            assert "for plain SGD at a constant learning rate; choose those at the side." in made.note
            assert made.name == "curves"
            assert made.figure is not None
    with pytest.raises(dimfree.InvalidInput, match="alpha = -1"):
        views.made_of(views.FLOW, dataclasses.replace(ONE, alpha=-1.0), None)


def test_the_best_schedule_opens_with_what_is_chosen_and_is_for_any_rate_and_schedule(one, nothing_known, monkeypatch):
    monkeypatch.setattr(computations, "curves", lambda settings: one)
    first = when_there(views.SCHEDULE, ONE, False)
    (rates, risk) = (axes.lines[0].get_ydata() for axes in first.figure.axes)
    np.testing.assert_array_equal(rates, np.full(201, ONE.learning_rate))
    np.testing.assert_array_equal(risk, one.theory.risk)
    assert "as chosen" in first.table
    assert first.data is None
    assert (
        "is found for plain SGD"
        in when_there(views.SCHEDULE, dataclasses.replace(ONE, optimiser="momentum"), True).note
    )
    asked = []

    def search(settings):
        asked.append(settings)
        raise dimfree.InvalidInput("Nothing is searched here.")

    monkeypatch.setattr(computations, "best_schedule", search)
    for change in ({}, {"learning_rate": 0.2}, {"schedule": "linear"}, {"log": True}):
        when_there(views.SCHEDULE, dataclasses.replace(ONE, **change), True)
    assert len(asked) == 1


@pytest.mark.slow
def test_the_best_schedule_is_better_than_what_is_chosen_and_its_script_finds_the_same(tmp_path):
    settings = dataclasses.replace(PROBLEMS["one-direction"].default, noise=0.1, alpha=20.0, schedule="linear")
    found = computations.best_schedule(settings)
    curves = computations.curves(settings)
    ends = [float(path.risk[-1]) for _, path in found.paths.values()]
    assert ends[1] < ends[0]
    assert ends[1] < float(curves.theory.risk[-1])
    assert found.protocol.optimal
    assert found.protocol.verification.holds
    assert abs(found.protocol.verification.deviation) < 4
    left, right = pictures.draw_schedules(curves, found).axes
    assert [line.get_label() for line in left.lines] == ["as chosen", "best constant", "best schedule"]
    assert len(set(left.lines[1].get_ydata())) == 1
    assert right.lines[2].get_ydata()[-1] == ends[1]
    assert "not a gain" not in pictures.schedule_caption(found)
    assert pictures.number(ends[1]) in pictures.schedule_rows(curves, found)[2].values()
    (tmp_path / "best.py").write_text(scripts.protocol_script(settings))
    done = subprocess.run(
        [sys.executable, "best.py"], cwd=tmp_path, capture_output=True, text=True, timeout=900, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "protocol.png").stat().st_size > 10_000
    # The last steps of a search may be others, by rounding of the last digit; what it finds is the same.
    told, expected = (re.sub(r"\d+ solves", "", text).splitlines() for text in (done.stdout, repr(found.protocol)))
    assert told == expected


def test_the_example_of_a_study_is_the_solution_of_the_scalar_ode():
    study = computations.example_study()
    for rate, noise in ((0.05, 0.0), (0.1, 4.0), (0.15, 10.0)):
        solved = solve_ivp(
            lambda alpha, u, rate=rate, noise=noise: 2 * rate * u * (4 * (1 - 6 * rate) * (1 - u) - 2 * rate * noise),
            (0, 20), [1 / 200], rtol=1e-10, atol=1e-12,
        ).y[0, -1]  # fmt: skip
        there = {"algorithm.learning_rate": rate, "problem.noise": noise}
        assert float(study.squared_overlap.sel(there, method="nearest")) == pytest.approx(solved, rel=1e-6)


def test_the_study_that_is_explained_can_be_loaded(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text(views.EXAMPLE_STUDY)
    study = dimfree.Study.load(path)
    assert (study.problem["name"], study.compute.alpha) == ("PhaseRetrieval", 20.0)


@pytest.mark.slow
def test_a_problem_without_a_plateau_is_no_fault():
    settings = PROBLEMS["one-direction"].default
    result = computations.curves(settings)
    assert result.remark == ""
    assert "There is no plateau" in pictures.caption_of(result)
    assert "grey line" not in pictures.caption_of(result)
    assert "There is no plateau" in when_there(views.EXITS, settings, False).note
    assert "exit_time" not in scripts.curves_script(settings, plateau=False)


def test_commands_in_a_message_are_set_as_code():
    shown = views.message(types.SimpleNamespace(Html=str), "No <store>; `dimfree study run` makes one.")
    assert "No &lt;store&gt;; <code>dimfree study run</code> makes one." in shown


@pytest.mark.slow
def test_a_learning_rate_that_is_too_large_is_drawn_and_said():
    result = computations.curves(dataclasses.replace(ONE, sphere=False, learning_rate=0.4, noise=5.0))
    assert "The ODE diverges at alpha = 0.0" in result.remark
    assert "16 of 16 runs diverge" in result.remark
    assert pictures.cards_of(result)[3][2:] == ("diverges", "theory; simulated too")
    assert pictures.as_bytes(pictures.draw_curves(result)).startswith(b"\x89PNG")
    json.dumps(page.cell(result), allow_nan=False)


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (10.83, 0.463, "10.8 ± 0.5"),
        (10.83, 0.146, "10.83 ± 0.15"),
        (1234.5, 23.4, "1,234 ± 23"),
        (0.012345, 0.0004, "0.0123 ± 0.0004"),
        (12.345, None, "12.3"),
        (2.44e-5, None, "2.44 · 10⁻⁵"),
        (5415.3, None, "5,415"),
        (6.0315e9, None, "6.03 · 10⁹"),
        (np.inf, np.nan, "–"),
    ],
)
def test_numbers_have_the_digits_that_mean_something(value, error, words):
    assert pictures.with_error(value, error) == words


def test_the_cards_say_what_was_computed(one):
    cards = {key: value for key, _, value, _ in pictures.cards_of(one)}
    assert cards["predicted"] == f"α = {one.predicted:.3g}"
    assert cards["measured"].startswith("α = ")
    never = dataclasses.replace(one, predicted=np.inf, measured=np.full(16, np.inf))
    assert {card[2] for card in pictures.cards_of(never)} >= {"not by α = 30"}
    no_plateau = dataclasses.replace(one, level=None, plateau_risk=None)
    assert [card[3] for card in pictures.cards_of(no_plateau)][:2] == ["no plateau"] * 2


def test_picture_and_data_can_be_taken_away(one, tmp_path):
    import xarray

    figure = pictures.draw_curves(one)
    assert pictures.as_bytes(figure, "png").startswith(b"\x89PNG")
    assert pictures.as_bytes(figure, "pdf").startswith(b"%PDF")
    (tmp_path / "curves.nc").write_bytes(pictures.as_netcdf(pictures.data_of(one)))
    with xarray.open_dataset(tmp_path / "curves.nc", engine="scipy") as data:
        np.testing.assert_array_equal(data.risk, one.theory.risk)
        np.testing.assert_array_equal(data.simulated_M, one.simulated.state.M)
        assert "limit" in data.attrs


def test_pyplot_keeps_no_figure(one):
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    pictures.draw_curves(one)
    assert pyplot.get_fignums() == before


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_script_is_python_that_states_the_settings(name):
    settings = dataclasses.replace(PROBLEMS[name].default, noise=0.3, d=700)
    for make in (scripts.curves_script, scripts.exits_script, scripts.flow_script, scripts.regimes_script):
        text = make(settings)
        ast.parse(text)
        assert ("snr=1 / 0.3" if settings.choice.has_clusters else "noise=0.3") in text
        assert "d, alpha = 700," in text
        assert f"learning_rate={settings.learning_rate}" in text
        assert all(len(line) <= 120 for line in text.splitlines())
    # What a script states is what the explorer computes with.
    stated = eval(settings.call, {"dimfree": dimfree})
    assert repr(stated) == repr(settings.network)


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_script_states_the_optimiser_and_the_schedule(optimiser, schedule):
    settings = dataclasses.replace(ONE, optimiser=optimiser, schedule=schedule)
    text = scripts.curves_script(settings, plateau=False)
    ast.parse(text)
    assert settings.algorithm_statement in text
    stated = {"dimfree": dimfree}
    exec(settings.algorithm_statement, stated)
    ours = settings.algorithm
    assert type(stated["sgd"]) is type(ours)
    assert stated["sgd"].sphere is ours.sphere is True
    for alpha in (0.0, 10.0, 30.0):
        theirs, expected = stated["sgd"].at(jnp.asarray(alpha), {}), ours.at(jnp.asarray(alpha), {})
        assert repr(theirs) == repr(expected)
        factor = {"constant": 1.0, "linear": 1 - alpha / ONE.alpha, "inverse": 1 / (1 + alpha / 10)}[schedule]
        assert float(theirs.learning_rate) == pytest.approx(ONE.learning_rate * factor)
        if optimiser == "momentum":
            assert float(theirs.momentum_rate) == pytest.approx(ONE.learning_rate * factor)


@pytest.mark.parametrize(
    "optimiser", [name if name == "momentum" else pytest.param(name, marks=pytest.mark.slow) for name in OPTIMISERS]
)
def test_each_optimiser_learns_and_theory_follows_it(optimiser):
    """At a learning rate that falls; one student of a target without a plateau, whose runs scatter little."""
    settings = dataclasses.replace(
        PROBLEMS["one-direction"].default, optimiser=optimiser, schedule="linear", d=500, noise=0.0
    )
    result = computations.curves(settings)
    risk, runs = np.asarray(result.theory.risk), np.asarray(result.simulated.risk)
    assert risk[-1] < risk[0] / 4
    np.testing.assert_allclose(runs.mean(axis=0), risk, atol=0.03 * risk[0])
    assert "plain SGD at a constant learning rate" in result.note
    assert [card[3] for card in pictures.cards_of(result)][:2] == ["known for plain SGD"] * 2
    start = np.asarray(result.simulated.state.M)[:, 0]
    np.testing.assert_allclose(start, np.broadcast_to(result.theory.state.M[0], start.shape))


@pytest.mark.slow
def test_the_script_of_an_averaged_run_with_a_schedule_gives_the_same_numbers(tmp_path):
    import xarray

    settings = dataclasses.replace(
        PROBLEMS["committee"].default, optimiser="averaged", schedule="inverse", exponent=0.5
    )
    result = computations.curves(settings)
    (tmp_path / "curves.py").write_text(scripts.curves_script(settings, plateau=False))
    done = subprocess.run(
        [sys.executable, "curves.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    data = xarray.load_dataset(tmp_path / "curves.nc", engine="scipy")
    np.testing.assert_allclose(data.risk, result.theory.risk, rtol=1e-7)
    np.testing.assert_allclose(data.simulated_risk, result.simulated.risk, rtol=1e-7)


def test_a_script_runs_by_itself_and_gives_the_same_numbers(one, tmp_path):
    import xarray

    (tmp_path / "curves.py").write_text(scripts.curves_script(ONE))
    done = subprocess.run(
        [sys.executable, "curves.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    assert f"theory {float(one.theory.risk[-1]):.6g}" in done.stdout
    assert (tmp_path / "curves.png").stat().st_size > 20_000
    data = xarray.load_dataset(tmp_path / "curves.nc", engine="scipy")
    np.testing.assert_array_equal(data.risk, one.theory.risk)
    np.testing.assert_array_equal(data.simulated_risk, one.simulated.risk)


@pytest.mark.slow
def test_the_script_of_the_accuracy_gives_the_accuracy_of_the_cards(tmp_path):
    import xarray

    settings = dataclasses.replace(PROBLEMS["two-clusters"].default, quantity="accuracy", d=100)
    result = computations.curves(settings)
    (tmp_path / "curves.py").write_text(scripts.curves_script(settings, plateau=result.level is not None))
    done = subprocess.run(
        [sys.executable, "curves.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    data = xarray.load_dataset(tmp_path / "curves.nc", engine="scipy")
    # One neuron of an odd, increasing activation: a linear classifier.
    expected = norm.cdf(data.M[-1, 0, 0] / np.sqrt(settings.noise * data.Q[-1, 0, 0]))
    np.testing.assert_allclose(data.accuracy[-1], expected, atol=1e-9)
    assert f"accuracy at the end: theory {expected:.6g}, " in done.stdout
    np.testing.assert_array_equal(data.simulated_accuracy, pictures.data_of(result).simulated_accuracy)
    (card,) = [card for card in pictures.cards_of(result) if card[0] == "accuracy"]
    assert card[2] == pictures.number(expected)
    assert card[3] == f"theory; simulated {pictures.number(float(data.simulated_accuracy[:, -1].mean()))}"
    left, right = pictures.draw_curves(result).axes
    assert (left.get_ylabel(), right.get_ylabel()) == ("accuracy", "overlaps $M$")
    assert not [card for card in pictures.cards_of(computations.curves(ONE)) if card[0] == "accuracy"]


@pytest.mark.slow
@pytest.mark.parametrize("make", [scripts.exits_script, scripts.flow_script, scripts.regimes_script])
def test_the_other_scripts_run_by_themselves(make, tmp_path):
    (tmp_path / "script.py").write_text(make(dataclasses.replace(ONE, alpha=10.0)))
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=500, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    (picture,) = tmp_path.glob("*.png")
    assert picture.stat().st_size > 10_000


def test_sliders_have_their_default_among_their_steps():
    assert tuple(PROBLEMS) == tuple(serve.PROBLEMS)
    for choice in PROBLEMS.values():
        default = choice.default.checked()
        assert default.learning_rate in choice.rates
        assert default.noise in choice.noises
        assert default.alpha in choice.alphas
        axes = page.axes_of(choice)
        assert default.learning_rate in axes["learning_rate"]
        assert default.noise in axes["noise"]
        assert default.exponent in axes.get("exponent", [0.0])
        for name, steps in choice.steps.items():
            assert getattr(default, name) in steps, name
        assert np.prod([len(steps) for steps in axes.values()]) <= 192
    assert np.prod([len(steps) for steps in page.axes_of(PROBLEMS["phase-retrieval"]).values()]) == 192  # as documented


def test_the_page_holds_what_was_computed(one):
    said = []
    axes = {"width": [1], "learning_rate": [0.07, 0.1], "noise": [0.0, 0.2], "d": [200]}
    text = page.page("phase-retrieval", axes, say=said.append)
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")  # nothing is fetched
    assert "https://" not in text
    content = json.loads(text.split("const DATA = ")[1].split(";\n")[0])
    assert len(content["cells"]) == 4
    same = computations.curves(Settings(width=1, noise=0.2, learning_rate=0.1, d=200))
    cell = content["cells"][3]
    np.testing.assert_allclose(cell["theory"], same.theory.risk[::2], rtol=1e-3)
    np.testing.assert_allclose(cell["mean"], same.simulated.risk.mean(axis=0)[::2], rtol=1e-3)
    np.testing.assert_allclose(cell["predicted"], same.predicted, rtol=1e-3)
    np.testing.assert_allclose(cell["median"], np.median(same.measured), rtol=1e-3)
    overlaps = np.asarray(same.matched.state.M)[:, ::2, 0, 0]
    np.testing.assert_allclose(cell["low_M"][0], np.quantile(overlaps, 0.1, axis=0), rtol=1e-3)
    np.testing.assert_allclose(cell["simulated_M"][0], overlaps.mean(axis=0), rtol=1e-3)
    assert cell["caption"] == pictures.caption_of(same, each=False)
    assert content["teachers"] == 1
    assert said == ["0 of 4 settings computed"]
