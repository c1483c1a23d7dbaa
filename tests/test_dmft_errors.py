"""The errors that a DMFT states: against exact answers, and for curves whose law is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dimfree
from dimfree.algorithms import GradientDescent, Langevin, MultiPassSGD, PersistentSGD
from dimfree.limits.dmft import solution
from dimfree.limits.dmft.populations import Populations
from test_dmft import KEY, LINEAR, QUARTIC, dmft, heated, linear_regression, start, training_loss

NAMES = ("M", "Q", "training_loss")
TIMES = np.linspace(0, 2, 21)


def curves(value, coarser: int = 1):
    """What a population would give whose M, Q and training loss are all this curve."""
    kernels = dict.fromkeys(solution._KERNELS, np.zeros((2, 2)))
    return {name: value[::coarser] for name in NAMES} | kernels


def said(rows, shifts=(), coarse=None):
    """What a theory says of populations with these curves."""
    found = [(curves(row),) if coarse is None else (curves(row), curves(coarse, 2)) for row in rows]
    outcomes = [dimfree.Outcome.COMPLETED] * len(rows)
    return solution.together(TIMES, found, outcomes, start(0.3), [curves(shift) for shift in shifts])


@pytest.mark.parametrize("number", [4, 8])
@pytest.mark.parametrize(
    ("average", "errors"), [(np.mean, solution.errors_of_means), (np.median, solution.errors_of_medians)]
)
def test_two_errors_hold_in_95_of_100(number, average, errors):
    """Curves that grow apart, as those of populations do.

    The spread of four or eight alone is 1.7 and 1.2 times too small for an error, and beyond two of it are 14 and 9 of
    100. Of 2,000 sets the fraction is known to 0.005, so that 0.06 is two of it above 0.05; the seed is fixed.
    """
    rng = np.random.default_rng(0)
    shapes = np.stack([TIMES, TIMES * np.cos(3 * TIMES), TIMES * np.sin(5 * TIMES)])
    sets = [list(rng.normal(size=(number, 3)) @ shapes) for _ in range(2_000)]
    size = np.abs([(average(rows, axis=0)[1:] / errors(TIMES, rows)[1:]) for rows in sets])
    assert 0.5 < np.sqrt(np.mean(size**2)) < 1.1
    assert np.mean(size > 2) < 0.06
    assert np.mean(size > 4.5) < 0.002


def test_errors_are_those_of_students_t_where_they_are_alike_at_all_times():
    rows = np.multiply.outer([1.0, -1.0, 1.0, -1.0], np.ones(21))
    # 3.1824 is the upper 2.5% of Student's t with 3 degrees of freedom, 1.95996 that of a normal number.
    np.testing.assert_allclose(said(rows)["standard_error"]["M"], (4 / 3) ** 0.5 / 2 * 3.182446 / 1.959964, rtol=1e-6)


def test_populations_that_meet_at_one_time_have_the_error_of_the_times_nearby():
    rows = np.multiply.outer([1.0, 2.0, -1.0, -2.0], TIMES - 1.0)
    error = said(rows)["standard_error"]["M"]
    assert np.abs(rows[:, 10]).max() < 1e-12
    assert error[10] > 0.2 * error[-1]
    assert said(rows * TIMES)["standard_error"]["M"][0] == 0  # where all populations start


def test_bias_and_steps_are_in_the_error():
    none = np.zeros(21)
    assert said([none] * 8)["standard_error"]["Q"].max() == 0
    np.testing.assert_allclose(
        said([none] * 8, [0.03 * TIMES, -0.04 * TIMES])["standard_error"]["Q"], 0.05 / 2**0.5 * TIMES
    )
    # The finer grid is 0.1 higher than the coarser: a third of it is added, and a quarter of that is the error.
    found = said([none + 0.1] * 8, coarse=none)
    for name in NAMES:
        np.testing.assert_allclose(found["step_correction"][name], 0.1 / 3)
        np.testing.assert_allclose(found["standard_error"][name], 0.1 / 12)


def test_the_median_of_the_training_loss_is_not_a_correction_for_steps():
    found = said([np.full(21, value) for value in (0.0, 0.0, 0.0, 1.0)])
    assert np.all(found["step_correction"]["training_loss"] == 0)
    assert np.all(found["training_loss"] == 0)


def test_a_population_is_the_mean_of_its_halves_to_first_order():
    """So their distance shows the bias, nearly without the noise."""
    begun, times = dimfree.State(Q=[[1.0]], M=[[0.3]]), 0.2 * np.arange(11)
    keys = jax.random.split(KEY, 8)
    all_of_them = Populations(LINEAR, MultiPassSGD(0.2, 2.0, 0.5), begun, False, keys, 256, 2**31, None)
    whole, first, second = (
        np.stack([all_of_them.on(times, number, half)["M"] for number in range(8)])[:, -1] for half in (None, 0, 1)
    )
    apart, left = np.std(first - second), np.std(whole - (first + second) / 2)
    assert apart > 4 * left
    np.testing.assert_allclose(np.std(first), 2**0.5 * np.std(whole), rtol=0.7)
    assert all_of_them.on(times, 0, 0)["training_loss"][0] != all_of_them.on(times, 0, 1)["training_loss"][0]


def test_a_solution_has_eight_populations_and_the_bias_of_two():
    def solve(**options):
        return dmft(LINEAR, GradientDescent(0.2, 2.0), start(0.3), 1.0, paths=256, flow=False, **options)

    found, fewer = solve(target_error=1.0), solve(most_populations=4)
    assert (found.populations.runs, fewer.populations.runs) == (8, 4)
    assert found.deviations["risk"][-1] > np.std(np.asarray(found.populations.risk)[:, -1], ddof=1) / 8**0.5
    M = np.asarray(found.populations.state.M)[:, :, 0, 0]
    spread = solution.errors_of_means(np.asarray(found.time), list(M))
    error = found.standard_error["M"]
    assert np.all(error[1:] > spread[1:])
    assert np.all(error <= 3 * spread)


SETTINGS = {
    "steps": (LINEAR, GradientDescent(0.1, 1.5, ridge=0.7), False),
    "flow": (LINEAR, GradientDescent(0.1, 2.0), True),
    "heated flow": (LINEAR, Langevin(0.1, 2.0, temperature=lambda t: 1 + jnp.cos(6 * t)), True),
    "batches": (LINEAR, MultiPassSGD(0.1, 2.0, 0.5), False),
    "on the sphere": (QUARTIC, GradientDescent(0.05, 2.0, sphere=True), False),
    "batches that stay": (QUARTIC, PersistentSGD(0.05, 2.0, 0.5, 1.0, ridge=0.5), True),
}


def reference(name):
    """M, Q and the training loss that are exact, or of far more paths, with their errors."""
    problem, algorithm, flow = SETTINGS[name]
    ratio, ridge, none = float(algorithm.samples_per_dimension), float(algorithm.ridge), np.zeros(21)
    begun = 0.3 if problem is LINEAR else 0.5
    times = TIMES if flow or algorithm.learning_rate == 0.1 else TIMES / 2
    exact = {}
    if isinstance(algorithm, GradientDescent | Langevin) and problem is LINEAR:
        rate = None if flow else float(algorithm.learning_rate)
        heat = heated if isinstance(algorithm, Langevin) else 0.0
        M, Q = linear_regression(times, ratio, begun, ridge=ridge, temperature=heat, rate=rate)
        exact = {"M": (M, none), "Q": (Q, none)}
        if isinstance(algorithm, GradientDescent):
            exact["training_loss"] = (training_loss(times, ratio, begun, ridge, rate), none)
    if len(exact) < 3:
        many = {"paths": 16_384, "target_error": 1e-9, "most_populations": 16, "key": jax.random.key(1_000)}
        found = dmft(problem, algorithm, start(begun), times, flow=flow, **many)
        exact = {each: (value(found, each), found.standard_error[each]) for each in NAMES} | exact
    return times, begun, exact


def value(found, name):
    return np.asarray(found.training_loss if name == "training_loss" else getattr(found.state, name)[:, 0, 0])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SETTINGS)
def test_results_are_as_far_off_as_their_errors_say(name):
    """Thirty-two keys, at all times but the first, in standard errors.

    From 400 sets of 8 out of 128 populations of 256 paths: beyond 4.5 at some time are at most 8 of 1,000 solves. Four
    populations and the spread between them had 77 to 280 of 1,000, a root mean square of 1.6 to 1.8, and up to 35.
    """
    problem, algorithm, flow = SETTINGS[name]
    times, begun, exact = reference(name)
    ratios = {each: [] for each in NAMES}
    for seed in range(32):
        key = jax.random.key(seed)
        found = dmft(problem, algorithm, start(begun), times, key=key, paths=256, flow=flow, target_error=1.0)
        for each in NAMES:
            expected, uncertain = exact[each]
            missed = (value(found, each) - expected)[1:]
            ratios[each].append(missed / np.hypot(found.standard_error[each], uncertain)[1:])
    for each in NAMES:
        if each == "Q" and algorithm.sphere:
            continue  # one, to rounding
        size = np.abs(ratios[each])
        print(f"{name}, {each}: root mean square {np.sqrt(np.mean(size**2)):.2f}, largest {size.max():.1f}")
        assert 0.3 < np.sqrt(np.mean(size**2)) < 1.2, each
        assert size.max() < 4.5, each
