"""The parts of a search for the best protocol, each against what it is by hand: nothing here is searched by theory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dimfree
from dimfree.analysis import protocol_search
from dimfree.analysis.controls import Pair, _shares_of, present, probabilities_of
from dimfree.analysis.protocol_plans import Plan
from dimfree.analysis.protocol_search import Search, _basins, _interpolation, _shaped
from dimfree.analysis.protocols import BestProtocol, Verification, planned

RATE, NOISE, BATCH = "algorithm.learning_rate", "problem.noise", "algorithm.batch_size"
LINEAR = dimfree.TwoLayer(1, 1, activation="linear", noise=0.5)
NOWHERE = dimfree.State(Q=[[0.0]], M=[[0.0]])
SGD = dimfree.OnlineSGD(0.1)
CHANCES = "problem.probabilities"
TASKS = dimfree.Tasks(
    [dimfree.TwoLayer(1, 1, noise=noise) for noise in (0.0, 0.2, 0.5)], [[0], [0], [0]], probabilities=[0.5, 0.2, 0.3]
)


def plan_of(over, *, problem=LINEAR, alpha=10.0, **options):
    return planned(problem, SGD, alpha, over, **{"start": NOWHERE, **options})


# Controls.


def test_coordinates_and_values_are_inverse_to_each_other():
    (even,) = plan_of({RATE: (0.0, 4.0)}).controls
    (logarithmic,) = plan_of({RATE: (0.01, 4.0)}).controls
    np.testing.assert_allclose(even.values(jnp.array([0.25])), [[1.0]])
    np.testing.assert_allclose(logarithmic.values(jnp.array([0.25])), [[0.01 * 400**0.25]])
    for control in (even, logarithmic):
        np.testing.assert_allclose(control.values(jnp.asarray(control.coordinates(0.3))), [[0.3]])
        np.testing.assert_allclose(control.coordinates(9.0), [1.0])  # beyond the bounds: the nearest


def test_a_schedule_of_a_rate_begins_at_zero_or_above():
    with pytest.raises(dimfree.InvalidInput, match="a rate is zero or positive"):
        plan_of({RATE: (-1.0, 1.0, 4)})
    assert plan_of({RATE: (0.0, 1.0, 4)}).size == 4


def test_the_mean_of_a_schedule_is_over_the_time_of_its_knots():
    times = np.array([2.0, 3.0, 7.0])
    (control,) = plan_of({RATE: (0.0, 4.0, times)}).controls
    # Trapezoids: 1 x (1 + 2)/2 + 4 x (2 + 4)/2, over 5.
    np.testing.assert_allclose(control.mean(jnp.array([0.25, 0.5, 1.0])), 13.5 / 5)
    (number,) = plan_of({RATE: (0.0, 4.0)}).controls
    np.testing.assert_allclose(number.mean(jnp.array([0.5])), 2.0)


def test_probabilities_are_parts_of_what_later_tasks_leave():
    # The third takes half, the second a fifth of what is left, the first the rest.
    np.testing.assert_allclose(probabilities_of(jnp.array([0.2, 0.5])), [0.4, 0.1, 0.5])
    np.testing.assert_allclose(_shares_of(np.array([0.4, 0.1, 0.5])), [0.2, 0.5])
    (control,) = plan_of({CHANCES: (0.1, 0.9)}, problem=TASKS, start=dimfree.State(Q=[[0.5]], M=[[0.3]])).controls
    assert not control.logarithmic
    found = present(Pair(TASKS, SGD), control)
    put = control.put(Pair(TASKS, SGD), jnp.asarray(found))
    np.testing.assert_allclose(put.problem.chances, [0.5, 0.2, 0.3])


def test_a_batch_is_put_around_the_algorithm_with_its_other_rates():
    for names in ((BATCH, RATE), (RATE, BATCH)):
        bounds = {BATCH: (1.0, 16.0), RATE: (0.0, 4.0)}
        plan = plan_of({name: bounds[name] for name in names})
        x = jnp.array([{BATCH: 0.5, RATE: 0.25}[name] for name in names])
        algorithm = plan.put(x).algorithm
        np.testing.assert_allclose(algorithm.batch_size, 4.0)
        np.testing.assert_allclose(algorithm.learning_rate, 1.0)


# The objective.


def test_what_does_not_come_down_in_time_counts_as_later():
    """Least squares has the excess risk exp(-(2 r - r^2) alpha)/2 + ... in closed form, at the rate r."""
    rate, end, noise = 0.1, 4.0, 0.5

    def excess(alpha):
        decay = np.exp(-(2 * rate - rate**2) * alpha)
        return (decay + rate * noise / (2 - rate) * (1 - decay)) / 2

    until = noise / 2 + excess(3.0)
    plans = [plan_of({RATE: (0.0, 1.0)}, alpha=end, until=level) for level in (until, noise / 2 + excess(5.0))]
    pair = Pair(LINEAR, SGD)
    np.testing.assert_allclose(plans[0].objectives(pair), 3.0, rtol=1e-3)
    late = plans[1].objectives(pair)
    np.testing.assert_allclose(late, end * (1 + np.log(excess(end) / excess(5.0))), rtol=1e-5)
    assert plans[1].late(late) == 1
    assert plans[1].late(np.array([end, 1.0])) == 0
    whole = plan_of({RATE: (0.0, 1.0)}, alpha=end)
    np.testing.assert_allclose(whole.objectives(pair), excess(end), rtol=1e-6)


# The search, of a function that is known.


def search_of(over, centre, *, constraints=None):
    """A search whose objective is the squared distance of the coordinates from `centre`, plus one."""
    search = Search(plan_of(over, constraints=constraints))

    def at(x):
        (control,) = search.plan.controls
        mean, slope = jax.value_and_grad(lambda x: control.mean(x))(jnp.asarray(x))
        bounded = np.array([float(mean)] if constraints else [])
        slopes = np.asarray(slope)[None] if constraints else np.zeros((0, len(x)))
        return float(np.sum((x - centre) ** 2)) + 1.0, 2 * (x - centre), bounded, slopes

    search.at = at
    return search


@pytest.mark.parametrize("bounds", [(None, 0.5), (3.0, None), (None, 3.9)])
def test_bounds_of_a_mean_are_kept_from_both_sides(bounds):
    """The rate is four times the coordinates, whose mean is best at 1/2; the third bound is met anyway."""
    centre, low, high = np.full(3, 0.5), bounds[0] or -np.inf, bounds[1] or np.inf
    search = search_of({RATE: (0.0, 4.0, 3)}, centre, constraints={RATE: bounds})
    _, y = search._minimised(np.array([0.4, 0.5, 0.6]), np.eye(3), 100, 1e-12)
    # The nearest point of the half space, along its normal: trapezoids weigh the ends half.
    weights = np.array([0.25, 0.5, 0.25])
    moved = np.clip(0.5, low / 4, high / 4) - 0.5
    np.testing.assert_allclose(y, centre + weights * moved / (weights @ weights), atol=1e-5)
    assert search._residual(np.eye(3), y) < 1e-3


def test_what_is_beyond_a_bound_is_penalised_on_both_sides():
    for bounds, edge, inside, outside in (((None, 0.5), 0.5, 0.1, 0.9), ((3.0, None), 3.0, 0.9, 0.1)):
        search = search_of({RATE: (0.0, 4.0, 3)}, np.full(3, 0.5), constraints={RATE: bounds})
        mean = 4 * outside
        beyond = abs(mean - edge) / (1 + mean)
        assert search._beyond(np.full(3, inside)) == 0.0
        assert search._beyond(np.full(3, outside)) == pytest.approx(beyond)
        assert search._penalised(np.full(3, inside)) == pytest.approx(1 + 3 * 0.4**2)
        assert search._penalised(np.full(3, outside)) > 1e5


def test_the_residual_is_the_gain_of_moving_what_no_bound_blocks():
    centre = np.array([-0.5, 0.5, 1.5])
    search = search_of({RATE: (0.0, 4.0, 3)}, centre)
    # At the optimum in the cube the first and the last are blocked: nothing is left.
    assert search._residual(np.eye(3), np.array([0.0, 0.5, 1.0])) == pytest.approx(0.0, abs=1e-12)
    # Elsewhere: the slopes 2 (x - c) = 1, -0.4, -1 all count, relative to the value.
    y = np.array([0.0, 0.3, 1.0])
    assert search._residual(np.eye(3), y) == pytest.approx(0.4 / (0.25 + 0.04 + 0.25 + 1))
    y = np.array([1.0, 0.5, 0.0])
    assert search._residual(np.eye(3), y) == pytest.approx(6.0 / (1.5**2 + 1.5**2 + 1))


def test_knots_between_others_are_on_straight_lines():
    plan = plan_of({RATE: (0.0, 4.0, 25), NOISE: (0.0, 1.0)})
    basis = _interpolation(plan, 8)
    assert basis.shape == (26, 9)
    coarse = np.append(np.linspace(0.2, 0.9, 8), 0.4)
    np.testing.assert_allclose(basis @ coarse, np.append(np.linspace(0.2, 0.9, 25), 0.4))
    np.testing.assert_allclose(_interpolation(plan, 25), np.eye(26))


def test_the_second_search_begins_with_rates_that_fall():
    plan = plan_of({RATE: (0.0, 4.0, 20), NOISE: (0.0, 1.0)})
    shaped = _shaped(plan, np.full(9, 0.6), 1, np.random.default_rng(0))
    np.testing.assert_allclose(shaped, np.append(0.6 * np.sqrt(1 - np.arange(8) / 7), 0.6))


def test_basins_are_the_lowest_places_lowest_first():
    points = np.linspace(0.0, 1.0, 9)[:, None]
    values = np.array([3.0, 1.0, 2.0, 5.0, 0.5, 4.0, 6.0, 7.0, 2.0])
    assert _basins(points, values).tolist() == [4, 1, 8]


def test_a_batch_is_rounded_to_the_better_side(monkeypatch):
    plan = plan_of({RATE: (0.0, 4.0, 3), BATCH: (1.0, 16.0)})
    for best, expected in ((5.0, 5), (6.0, 6)):
        search = Search(plan)

        def penalised(x, best=best):
            return float(abs(plan.controls[1].values(jnp.asarray(x[3:]))[0, 0] - best))

        monkeypatch.setattr(search, "_penalised", penalised)
        x = np.append([0.1, 0.2, 0.3], plan.controls[1].coordinates(5.4))
        rounded, pair = search._whole_batch(x)
        assert pair.algorithm.batch_size == expected
        np.testing.assert_allclose(rounded[:3], [0.1, 0.2, 0.3])
        np.testing.assert_allclose(plan.controls[1].values(jnp.asarray(rounded[3:])), [[expected]])


def test_bounds_of_means_stand_before_those_of_functions(monkeypatch):
    """The objective first, then what is bounded, in the order of the limits."""

    def last(run):
        return run.risk[-1]

    plan = plan_of({RATE: (0.0, 4.0)}, constraints={last: (None, 0.7), RATE: (0.5, None)})
    assert [name for name, *_ in plan.limits] == [RATE, "last"]
    search = Search(plan)
    slopes = lambda plan, x: (np.array([2.0, 0.6]), np.array([[1.0], [3.0]]))  # noqa: E731
    monkeypatch.setattr(protocol_search, "with_slopes", slopes)
    monkeypatch.setattr(protocol_search, "means_of", lambda plan, x: (np.array([0.4]), np.array([[4.0]])))
    value, slope, bounded, of_bounded = search.at(np.array([0.1]))
    assert (value, slope.tolist(), bounded.tolist(), of_bounded.tolist()) == (2.0, [1.0], [0.4, 0.6], [[4.0], [3.0]])
    assert search._beyond(np.array([0.1])) == pytest.approx(0.1 / 1.4)
    assert (search.lows.tolist(), search.highs.tolist()) == ([0.5, -np.inf], [np.inf, 0.7])


# The simulated gain.


def test_gains_are_those_of_pairs_of_runs(monkeypatch):
    plan = plan_of({RATE: (0.0, 4.0)})
    best = BestProtocol(LINEAR, SGD, 0.3, 0.0, 0, None, 0.0, (0.3,), 1, {}, None, plan, np.array([0.2]))
    slower = dimfree.OnlineSGD(0.05)
    constant = BestProtocol(LINEAR, slower, 0.5, 0.0, 0, None, 0.0, (0.5,), 1, {}, None, plan, np.array([0.1]))
    best = BestProtocol(LINEAR, SGD, 0.3, 0.0, 0, constant, 0.0, (0.3,), 1, {}, None, plan, np.array([0.2]))
    assert best.gain == pytest.approx(0.2)
    start = np.array([1.0, 2.0, 3.0, 4.0])  # what both runs of a pair share
    runs = {0.05: start + 0.5, 0.1: start + np.array([0.1, 0.2, 0.3, 0.4])}
    rate = lambda pair: round(float(pair.algorithm.learning_rate), 6)  # noqa: E731
    monkeypatch.setattr(Plan, "simulated", lambda self, pair, *_: runs[rate(pair)])
    monkeypatch.setattr(Plan, "objectives", lambda self, pair: np.array([{0.05: 0.9, 0.1: 0.7}[rate(pair)]]))
    found = best.verify(100, 4, key=jax.random.key(0)).verification
    assert found.gain == pytest.approx(0.25)
    assert found.gain_error == pytest.approx(np.std([0.1, 0.2, 0.3, 0.4], ddof=1) / 2)
    assert found.predicted_gain == pytest.approx(0.2)
    assert found.deviation == pytest.approx(0.05 / found.gain_error)
    assert found.holds


def test_a_gain_holds_from_three_standard_errors_on():
    def of(gain):
        return Verification(100, 4, 1.0, 0.1, 0.8, 0.1, gain, 0.1, 0.2)

    assert of(0.31).holds
    assert not of(0.29).holds
    assert of(0.3).deviation == pytest.approx(1.0)
