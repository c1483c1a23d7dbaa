"""The plane of overlaps, against fixed points that are known; and how exit times are drawn."""

import jax.numpy as jnp
import numpy as np
import pytest

import dimfree
from dimfree.analysis.exit_times import ExitEstimate, ExitTime
from dimfree.analysis.portrait import Portrait, portrait, usual_plane

RATE, NOISE = 0.1, 0.2
PROBLEM = dimfree.PhaseRetrieval(1, NOISE)


@pytest.mark.slow
def test_one_student_on_the_sphere_rests_where_its_scalar_ode_does():
    limit = dimfree.ode(PROBLEM, dimfree.OnlineSGD(RATE, sphere=True))
    assert usual_plane(limit) == ("M[0,0]",)
    seen = portrait(limit, alpha=20.0)
    # dm/dalpha = rate m (4 (1 - 6 rate) (1 - m^2) - 2 rate noise)
    end = np.sqrt(1 - 2 * RATE * NOISE / (4 * (1 - 6 * RATE)))
    order = np.argsort(seen.rest[:, 0])
    np.testing.assert_allclose(seen.rest[order, 0], [-end, 0.0, end], atol=1e-7)
    growth = RATE * (4 * (1 - 6 * RATE) - 2 * RATE * NOISE)
    np.testing.assert_allclose(seen.growth[order], [-2 * growth, growth, -2 * growth], rtol=1e-5)
    assert seen.stable[order].tolist() == [True, False, True]
    starts = seen.paths[:, 0, 0]
    np.testing.assert_allclose(
        seen.drift, RATE * starts * (4 * (1 - 6 * RATE) * (1 - starts**2) - 2 * RATE * NOISE), rtol=1e-8
    )
    axes = dimfree.plot.flow(seen, axes=dimfree.plot.panels()[0])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["at rest, stable", "at rest, unstable"]
    unstable, stable = axes.lines[-2:]
    np.testing.assert_allclose(unstable.get_xdata(), [0.0], atol=1e-7)
    np.testing.assert_allclose(np.sort(stable.get_xdata()), [-end, end], atol=1e-7)
    assert stable.get_zorder() > unstable.get_zorder()


@pytest.mark.slow
def test_overlap_and_norm_of_a_free_student():
    limit = dimfree.ode(PROBLEM, dimfree.OnlineSGD(RATE))
    seen = portrait(limit, alpha=30.0)
    assert seen.plane == ("M[0,0]", "Q[0,0]")
    starts = seen.paths[:, 0]
    assert (starts[:, 1] > starts[:, 0] ** 2).all()  # only vectors that there are
    stuck = dimfree.quadratic.plateau(limit).state.Q[0, 0]
    found = seen.rest[np.argmin(np.abs(seen.rest - [0.0, stuck]).sum(axis=1))]
    np.testing.assert_allclose(found, [0.0, stuck], atol=1e-6)
    for point in seen.rest[seen.stable]:  # what attracts is an end of the solutions
        assert np.abs(seen.paths[:, -1] - point).max(axis=1).min() < 0.02
    assert seen.stable.sum() == 2


@pytest.mark.slow
def test_the_committee_specialises():
    problem, sgd = dimfree.TwoLayer(2, 2, "erf"), dimfree.OnlineSGD(2.0)
    seen = portrait(dimfree.ode(problem, sgd), alpha=100.0)
    assert seen.plane == ("M[0,0]", "M[0,1]")
    ends = seen.rest[seen.stable]
    np.testing.assert_allclose(ends[np.argsort(ends[:, 0])], [[0, 1], [1, 0]], atol=1e-5)
    assert any(abs(x - y) < 1e-5 and x > 0.3 for x, y in seen.rest[~seen.stable])  # alike: the symmetric plateau
    start = dimfree.State(Q=np.eye(2), M=0.1 * np.eye(2))
    theory = dimfree.solve(dimfree.ode(problem, sgd), start, 50.0)
    axes = dimfree.plot.flow(seen, trajectories=[theory], labels=["ODE"], axes=dimfree.plot.panels()[0])
    np.testing.assert_allclose(axes.lines[0].get_xdata(), theory.state.M[:, 0, 0])


def test_a_plane_is_drawn_with_its_lines_and_points():
    x = np.linspace(0.0, 1.0, 11)
    seen = Portrait(
        plane=("M[0,0]", "M[1,0]"),
        paths=np.stack([np.stack([x, x**2], axis=1), np.stack([x - 1, 1 - x], axis=1)]),
        rest=np.array([[0.0, 0.0], [1.0, 1.0], [-1.0, 1.0]]),
        growth=np.array([0.2, -0.1, -0.1]),
        stable=np.array([False, True, True]),
        drift=np.array([0.1, 0.1]),
    )
    axes = dimfree.plot.flow(seen, axes=dimfree.plot.panels()[0])
    unstable, stable = axes.lines
    np.testing.assert_allclose(unstable.get_xydata(), [[0.0, 0.0]])
    np.testing.assert_allclose(stable.get_xydata(), [[1.0, 1.0], [-1.0, 1.0]])
    assert (unstable.get_color(), stable.get_color()) == ("white", "#222222")
    assert stable.get_zorder() > unstable.get_zorder()
    np.testing.assert_allclose(axes.collections[0].get_segments()[1], seen.paths[1])
    tips = np.asarray(axes.collections[1].get_offsets())
    np.testing.assert_allclose(tips[1], [-0.6, 0.6])  # the first time after a third of the way
    assert (axes.get_xlabel(), axes.get_ylabel()) == seen.plane
    state = dimfree.State(Q=np.stack([np.eye(2)] * 2), M=np.zeros((2, 2, 1)))
    path = dimfree.Trajectory(jnp.arange(2.0), state, jnp.asarray(0), jnp.asarray(np.nan), PROBLEM)
    axes = dimfree.plot.flow(seen, trajectories=[path] * 5, axes=dimfree.plot.panels()[0])
    assert len(axes.lines) == 2 * 5 + 2  # each with its start, also where colours repeat
    assert [text.get_text() for text in axes.get_legend().get_texts()][4] == "trajectory 5"
    with pytest.raises(dimfree.InvalidInput, match="1 labels were given for 0 trajectories"):
        dimfree.plot.flow(seen, labels=["ODE"], axes=axes)


@pytest.mark.parametrize(
    "plane", [("M[0,1]",), ("Q[0,0]",), ("M[0,0]", "M[0,0]"), ("M[0,0]", "Q[1,1]"), ("M[0,0]", "M[1,0]", "M[2,0]"), ()]
)
def test_a_plane_that_cannot_be_drawn_is_refused(plane):
    limit = dimfree.ode(dimfree.PhaseRetrieval(3), dimfree.OnlineSGD(0.1))
    with pytest.raises(dimfree.InvalidInput, match="give one or two entries of M"):
        portrait(limit, plane, alpha=1.0)


@pytest.mark.parametrize(
    ("sphere", "options", "words"),
    [
        (True, {"at": dimfree.State(Q=[[1.0]], M=[[1.0]])}, "inside the span of the teachers"),
        (False, {"at": dimfree.State(Q=[[1.0]], M=[[1.0]])}, "inside the span of the teachers"),
        (False, {"at": dimfree.State(Q=[[1.0]], M=[[2.0]])}, "No weights have these overlaps"),
        (False, {"alpha": -1.0}, "alpha = -1.0 was given"),
        (False, {"alpha": np.nan}, "alpha = nan was given"),
        (False, {"extent": 0.0}, "extent = 0.0 was given"),
    ],
)
def test_a_plane_without_solutions_in_it_is_refused_and_not_called_diverging(sphere, options, words):
    limit = dimfree.ode(PROBLEM, dimfree.OnlineSGD(RATE, sphere=sphere))
    plane = ("M[0,0]",) if sphere else ("M[0,0]", "Q[0,0]")
    with pytest.raises(dimfree.InvalidInput, match=words):
        portrait(limit, plane, **{"alpha": 1.0, **options})


def estimate(times) -> ExitEstimate:
    times = np.asarray(times, float)
    left = times[np.isfinite(times)]
    return ExitEstimate(float(left.mean()), 0.1, (1.0, 2.0, 3.0), float(np.mean(~np.isfinite(times))), 9.0, times, "")


def test_exit_times_are_drawn_as_the_fraction_that_has_left():
    result = ExitTime(
        PROBLEM, dimfree.OnlineSGD(RATE), 100, 0.1, 2.0, 1.8, None, None, estimate([1.0, 2.0, 3.0, 4.0]), None,
        estimate([2.0, np.inf, 1.0, np.inf]),
    )  # fmt: skip
    axes = dimfree.plot.exit_times(result, axes=dimfree.plot.panels()[0])
    curves = {line.get_label(): line.get_xydata() for line in axes.lines}
    np.testing.assert_allclose(curves["ODE, with SGD's noise"], [[0, 0], [1, 0.25], [2, 0.5], [3, 0.75], [4, 1.0]])
    np.testing.assert_allclose(curves["simulated, 4 runs"], [[0, 0], [1, 0.25], [2, 0.5]])
