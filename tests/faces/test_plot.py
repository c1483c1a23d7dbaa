"""Pictures: what is drawn is what was computed."""

import dataclasses
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.collections import Collection
from matplotlib.lines import Line2D

import dimfree
from processes import printed_by

ALPHA = 1.0  # with 8 runs, the shapes of the command line's test, so that both are compiled once


@pytest.fixture(scope="module")
def problem():
    return dimfree.PhaseRetrieval(width=1)


@pytest.fixture(scope="module")
def sgd():
    return dimfree.OnlineSGD(learning_rate=0.1)


@pytest.fixture(scope="module")
def start():
    return dimfree.State(Q=[[1.0]], M=[[0.3]])


@pytest.fixture(scope="module")
def theory(problem, sgd, start):
    return dimfree.solve(dimfree.ode(problem, sgd), start, ALPHA)


@pytest.fixture(scope="module")
def runs(problem, sgd, start):
    return dimfree.simulate(problem, sgd, start, d=100, alpha=ALPHA, runs=8, key=jax.random.key(0))


def subset(trajectory: dimfree.Trajectory, runs: int, **changes) -> dimfree.Trajectory:
    """The first runs of a trajectory, with some fields changed."""
    first = {name: getattr(trajectory, name)[:runs] for name in ("outcome", "stopped_at")}
    state = jax.tree.map(lambda array: array[:runs], trajectory.state)
    fields = {"alpha": trajectory.alpha, "problem": trajectory.problem, "provenance": trajectory.provenance}
    return dimfree.Trajectory(state=state, **(first | fields | changes))


def x_of(line: Line2D) -> np.ndarray:
    return np.asarray(line.get_xdata())


def y_of(line: Line2D) -> np.ndarray:
    return np.asarray(line.get_ydata())


def heights(band: Collection) -> np.ndarray:
    return np.asarray(band.get_paths()[0].vertices)[:, 1]


def legend(axes) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_the_line_is_the_theory_and_the_dots_are_the_mean(theory, runs):
    axes = dimfree.plot.compare(theory, runs)
    line, dots = axes.get_lines()
    np.testing.assert_array_equal(x_of(line), theory.alpha)
    np.testing.assert_array_equal(y_of(line), theory.risk)
    assert line.get_linestyle() == "-"
    np.testing.assert_array_equal(x_of(dots), runs.alpha)
    np.testing.assert_allclose(y_of(dots), np.asarray(runs.risk).mean(axis=0))
    assert dots.get_linestyle() == "None"
    assert dots.get_marker() == "o"
    assert line.get_color() != dots.get_color()
    assert len(axes.collections) == 1  # the band
    band = heights(axes.collections[0])
    low, high = np.quantile(np.asarray(runs.risk), [0.1, 0.9], axis=0)
    assert band.min() == pytest.approx(low.min())
    assert band.max() == pytest.approx(high.max())
    assert legend(axes) == ["ODE", "simulation, d = 100, 8 runs: mean, 10-90%"]
    assert axes.get_ylabel() == "risk"
    assert "samples" in axes.get_xlabel()


def test_a_mean_field_solution_is_a_line_with_its_errors_beside_runs(problem):
    time, populations = np.linspace(0.0, 1.0, 5), 4
    M = np.linspace(0.2, 0.6, 5) + 0.02 * np.arange(populations)[:, None]
    Q = np.ones((populations, 5))
    state = dimfree.State(Q=Q[..., None, None], M=M[..., None, None])
    made = {"clock": "time", "problem": problem, "alpha": jnp.asarray(time)}
    ended = {"outcome": jnp.zeros(populations, int), "stopped_at": jnp.full(populations, jnp.nan)}
    runs = dimfree.Trajectory(**made, **ended, state=state, provenance=(("simulation", "vectors"),))
    by_theory = made | {"provenance": (("limit", "dynamical mean-field theory"),)}
    error = np.linspace(0.0, 0.04, 5)
    solution = dimfree.DMFTSolution(
        **by_theory,
        populations=dimfree.Trajectory(**by_theory, **ended, state=state),
        state=dimfree.State(Q=Q[0, :, None, None], M=M[0, :, None, None] + 0.1),  # extrapolated, not their mean
        outcome=jnp.zeros((), int),
        stopped_at=jnp.asarray(jnp.nan),
        training_loss=jnp.zeros(5),
        standard_error={"M": error, "Q": 0 * error, "training_loss": error},
        step_correction={},
        correlation=np.zeros((5, 5)),
        response=np.zeros((5, 4)),
        force_correlation=np.zeros((4, 4)),
        memory=np.zeros((4, 5)),
    )
    axes = dimfree.plot.compare(solution, runs, quantity="M")
    line = next(line for line in axes.lines if line.get_linestyle() == "-" and len(line.get_xdata()) == 5)
    np.testing.assert_allclose(line.get_ydata(), M[0] + 0.1)
    band = np.asarray(axes.collections[0].get_paths()[0].vertices)
    assert band[:, 1].max() == pytest.approx(M[0, -1] + 0.1 + 2 * 0.04)
    assert axes.get_xlabel().startswith("time")
    assert "dynamical mean-field theory" in axes.get_legend().get_texts()[0].get_text()
    risk = dimfree.plot.compare(solution)
    expected = np.asarray(problem.risk(solution.state)) + 2 * solution.deviations["risk"]
    spread = np.std(np.asarray(runs.risk), axis=0, ddof=1) / np.sqrt(populations)
    assert np.all(solution.deviations["risk"] >= 1.6 * spread)  # by Student's t of four
    band = np.asarray(risk.collections[0].get_paths()[0].vertices)
    np.testing.assert_allclose(band[:, 1].max(), expected.max())


def test_it_draws_in_given_axes_and_saves(theory, runs, tmp_path):
    figure, given = plt.subplots()
    axes = dimfree.plot.compare(theory, runs, labels=["limit", "SGD"], log=True, axes=given)
    assert axes is given
    assert axes.get_yscale() == "log"
    assert legend(axes) == ["limit", "SGD"]
    figure.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 5_000


def test_a_backend_that_is_loaded_with_the_first_figure_stays_interactive(tmp_path):
    """As a notebook's is: without it, no figure after the first would be shown there."""
    (tmp_path / "late_backend.py").write_text(
        "import matplotlib\nfrom matplotlib.backends.backend_agg import FigureCanvasAgg as FigureCanvas\n"
        "matplotlib.interactive(True)\n"
    )
    code = """
import dimfree, jax.numpy as jnp, matplotlib
state = dimfree.State(Q=jnp.ones((2, 1, 1)), M=jnp.ones((2, 1, 1)))
path = dimfree.Trajectory(jnp.arange(2.0), state, jnp.asarray(0), jnp.asarray(jnp.nan), dimfree.PhaseRetrieval())
assert not matplotlib.is_interactive()
dimfree.plot.compare(path, quantity="M")
assert matplotlib.is_interactive()
"""
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "MPLBACKEND": "module://late_backend", "PYTHONPATH": path}
    printed_by(code, env=environment)


def test_few_runs_are_drawn_one_by_one(runs):
    few = subset(runs, 3)
    axes = dimfree.plot.compare(few)
    assert len(axes.get_lines()) == 1 + 3
    assert not axes.collections


def test_each_entry_of_the_overlaps_has_its_colour():
    wide = dimfree.PhaseRetrieval(width=2)
    start = dimfree.State(Q=[[1.0, 0.2], [0.2, 1.0]], M=[[0.3], [-0.1]])
    trajectory = dimfree.Trajectory(
        alpha=jax.numpy.asarray([0.0, 1.0]),
        state=jax.tree.map(lambda array: jax.numpy.stack([array, array]), start),
        outcome=jax.numpy.asarray(0),
        stopped_at=jax.numpy.asarray(np.nan),
        problem=wide,
    )
    axes = dimfree.plot.compare(trajectory, quantity="Q")
    assert [y_of(line)[0] for line in axes.get_lines()] == [1.0, 0.2, 1.0]
    assert len({line.get_color() for line in axes.get_lines()}) == 3
    assert legend(axes)[1:] == ["Q[0,0]", "Q[0,1]", "Q[1,1]"]
    axes = dimfree.plot.compare(trajectory, quantity="M")
    assert legend(axes)[1:] == ["M[0,0]", "M[1,0]"]


def test_linear_noise_has_a_band_of_two_standard_deviations(theory):
    variances = np.linspace(0.0, 0.01, len(theory.alpha))[:, None] * np.array([4.0, 1.0])
    theory = dataclasses.replace(theory, covariance=jax.numpy.asarray(variances[:, :, None] * np.eye(2)))
    assert theory.labels == ("Q[0,0]", "M[0,0]")
    axes = dimfree.plot.compare(theory, quantity="M")
    M = np.asarray(theory.state.M)[:, 0, 0]
    deviation = np.asarray(theory.standard_deviation)[:, theory.labels.index("M[0,0]")]
    np.testing.assert_array_equal(y_of(axes.get_lines()[0]), M)
    edge = heights(axes.collections[0])
    assert edge.max() == pytest.approx((M + 2 * deviation).max())
    assert edge.min() == pytest.approx((M - 2 * deviation).min())


def test_runs_that_ended_early_are_drawn_to_their_end_and_counted(theory, runs):
    outcome = np.zeros(8, int)
    outcome[0] = dimfree.Outcome.DIVERGED
    stopped_at = np.full(8, np.nan)
    stopped_at[0] = 0.55
    ended = subset(runs, 8, outcome=jax.numpy.asarray(outcome), stopped_at=jax.numpy.asarray(stopped_at))
    axes = dimfree.plot.compare(theory, ended)
    assert legend(axes)[1] == "simulation, d = 100, 8 runs (1 diverged): mean, 10-90%"
    _, thin, cross, dots = axes.get_lines()
    assert x_of(thin)[-1] == 0.55
    assert cross.get_marker() == "x"
    np.testing.assert_allclose(y_of(dots), np.asarray(ended.risk)[1:].mean(axis=0))


def test_an_event_is_named_in_the_legend(theory):
    late = jax.numpy.arange(201)[:, None, None, None]
    stopped = dataclasses.replace(
        theory,
        outcome=jax.numpy.asarray(int(dimfree.Outcome.STOPPED)),
        stopped_at=jax.numpy.asarray(0.502),
        state=jax.tree.map(
            lambda a: jax.numpy.where(late[: len(a)] > 100, a[101], a) if a.ndim == 4 else a,
            theory.state,
        ),
    )
    axes = dimfree.plot.compare(stopped, quantity="M")
    assert "stopped at" in legend(axes)[0]
    line = axes.get_lines()[0]
    assert x_of(line)[-1] == float(stopped.stopped_at)
    assert y_of(line)[-1] == stopped.state.M[101, 0, 0]


def test_a_curve_that_diverged_does_not_set_the_scale(theory):
    wild = dimfree.Trajectory(
        alpha=theory.alpha,
        state=dimfree.State(Q=theory.state.Q * np.logspace(0, 6, 201)[:, None, None], M=theory.state.M),
        outcome=jax.numpy.asarray(int(dimfree.Outcome.DIVERGED)),
        stopped_at=jax.numpy.asarray(1.0),
        problem=theory.problem,
    )
    assert dimfree.plot.compare(theory, wild).get_ylim()[1] < 10


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        ((), {}, "nothing to draw"),
        (("theory",), {"quantity": "loss"}, "'loss'"),
        (("theory",), {"quantity": "M", "log": True}, "log=True"),
        (("theory",), {"labels": ["one", "two"]}, "2 labels"),
        (("theory",), {"labels": "ODE"}, "one string"),
    ],
)
def test_mistakes_are_said_in_the_users_words(theory, arguments, options, words):
    arguments = [theory if argument == "theory" else argument for argument in arguments]
    with pytest.raises(dimfree.InvalidInput, match=words):
        dimfree.plot.compare(*arguments, **options)
