"""The verdict of `check`: right settings agree, whatever they are, and wrong ones do not."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

import dimfree
from dimfree import ClippedSlopes, Mixture, Momentum, MultiOutput, OnlineSGD, SpikedTensor, Tasks, TwoLayer
from dimfree.algorithms.moves import Move
from dimfree.gaussian.rules import Averaging
from test_examples import example
from test_square import Mutant, scaled

SLOW = pytest.mark.slow
ElasticSGD = example("adding_an_algorithm").ElasticSGD
THREE = dimfree.Spectrum([4.0, 1.0, 0.5], [0.2, 0.3, 0.5])


class FromZero(ElasticSGD):
    """The other end of the spring is at zero at the start, so that it hardly fluctuates at first."""

    @property
    def own(self):
        return {"anchor": None}


def test_an_entry_with_little_noise_is_no_disagreement():
    """A right algorithm, by a loop in NumPy too, whose anchor is closer to its limit than d^-1/2."""
    result = dimfree.check(TwoLayer(2, 1, "erf"), FromZero(1.0, spring=1.0, following=0.5))
    assert result.agrees, str(result)
    assert result.slopes["anchor"] < -0.6, str(result)


FOUND = dimfree.CheckResult(
    agrees=True,
    slope=-0.5,
    slopes={"Q": -0.5, "M": -0.5},
    dimensions=(100, 400),
    distances=(0.2, 0.1),
    distance_errors=(0.02, 0.02),
    diverged=(0.0, 0.0),
    drift=(("Q[0,0]", 1.0, 1.0, 0.01),),
    alpha=0.5,
    expectation="closed form",
    expectation_error=0.0,
    effective_dimensions=(100.0, 400.0),
    slope_errors={"Q": 0.02, "M": 0.02},
    remainders=(("Q[0,0]", 0.5, 0.0, 0.001),),
)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"slopes": {"Q": -0.5, "M": -0.2}}, "Too slow: the distance in M falls as d^-0.20 only"),
        ({"remainders": (("M[0,0]", 0.4, -0.02, 0.001),)}, "M[0,0] at alpha = 0.4: .* the limit -0.02 +- 0.001 (20"),
        ({"drift": (("Q[0,0]", 1.0, 1.5, 0.01),)}, "off most in Q[0,0]"),
    ],
)
def test_what_is_certain_is_said_and_nothing_else(change, words):
    result = dataclasses.replace(FOUND, agrees=False, **change)
    assert [bool(result.slower), result.something_remains, result.drift_is_off].count(True) == 1
    for part in words.split(".*"):
        assert part in str(result)
    nothing = ("Too slow", "What remains", "off most")
    assert sum(each in str(result) for each in nothing) == 1
    assert not any(each in str(FOUND) for each in nothing)


def test_an_entry_that_falls_faster_is_named():
    """Beyond chance and terms of higher order: 0.1 and 3.6 standard errors of 0.02 for two entries."""
    named = dataclasses.replace(FOUND, slopes={"Q": -0.5, "anchor": -0.68}, slope_errors={"Q": 0.02, "anchor": 0.02})
    assert named.faster == ("anchor",)
    assert "Theory and simulation agree: their distance falls as d^-1/2, that of anchor faster." in str(named)
    assert not named.slower
    certainly_not = dataclasses.replace(named, slopes={"Q": -0.5, "anchor": -0.66})
    assert not certainly_not.faster
    uncertain = dataclasses.replace(named, slope_errors={"Q": 0.02, "anchor": 0.03})
    assert not uncertain.faster


# Twenty right settings, drawn at random.

PROBLEMS = {
    "erf": (TwoLayer(2, 1, "erf", noise=0.1), 2.0),
    "erf, two teachers": (TwoLayer(3, 2, "erf"), 2.0),
    "square": (TwoLayer(2, 2, "square", noise=0.3), 0.08),
    "relu": (TwoLayer(2, 1, "relu", noise=0.1), 0.5),
    "linear": (TwoLayer(1, 1, "linear", noise=0.2), 0.4),
    "spectrum": (TwoLayer(2, 1, "erf", noise=0.1).with_inputs(THREE), 1.0),
    "mixture": (Mixture.binary(2, 2.0, readout=[0.7, -0.4]), 0.8),
    "tensor": (SpikedTensor(3, 3.0), 0.15),
    "in turn": (Tasks.switching(2, 0.6, 0.3), 1.0),
    "moving": (Tasks.drifting(2, 0.8), 1.0),
    "outputs": (MultiOutput([[1.0, 0.2], [-0.5, 0.6]], [[1.0], [-0.5]], "erf"), 1.0),
}
PLAIN: dict[str, Callable] = {
    "SGD": OnlineSGD,
    "sphere": lambda rate, ridge, **others: OnlineSGD(rate, sphere=True, **others),
    "schedule": lambda rate, **others: OnlineSGD(lambda alpha: rate / (1 + alpha), **others),
    "momentum": lambda rate, **others: Momentum(0.5 * rate, 0.5, 2.0, **others),
    "average": lambda rate, **others: dimfree.Averaged(OnlineSGD(rate, **others), 1.5),
    "decay": lambda rate, **others: dimfree.WeightDecay(OnlineSGD(rate, **others), 0.3),
    "spring": lambda rate, **others: ElasticSGD(rate, 1.5, 0.5, **others),
    "spring from zero": lambda rate, **others: FromZero(rate, 1.5, 0.5, **others),
}
ALGORITHMS = PLAIN | {
    "clipped": lambda rate, **others: dimfree.Clipped(OnlineSGD(rate, **others), 0.3),
    "clipped slopes": lambda rate, **others: ClippedSlopes(OnlineSGD(rate, **others), 0.3),
    "adaptive clip": lambda rate, **others: dimfree.AdaptiveClip(OnlineSGD(rate, **others), 1.2, 3.0, start=0.3),
    "normalised": lambda rate, **others: dimfree.NormalisedGradient(OnlineSGD(rate, **others), 0.3),
    "AdaGrad of the norm": lambda rate, **others: dimfree.AdaGradNorm(rate, 0.5, **others),
    "schedule free": lambda rate, **others: dimfree.ScheduleFree(OnlineSGD(rate, **others), 0.8),
}
RNG = np.random.default_rng(20)


def drawn():
    problem = str(RNG.choice(list(PROBLEMS)))
    algorithm = str(RNG.choice(list(PLAIN if problem == "tensor" else ALGORITHMS)))
    rate = round(PROBLEMS[problem][1] * RNG.uniform(0.5, 1.2), 3)
    batch_size, ridge = int(RNG.choice([1, 1, 4])), float(RNG.choice([0.0, 0.2]))
    return problem, algorithm, rate, 1 if problem == "mixture" else batch_size, ridge


@SLOW
@pytest.mark.parametrize("setting", [drawn() for _ in range(20)], ids=str)
def test_right_settings_agree(setting):
    """A false alarm in 2% of all runs of these twenty, if each of them had its share of 1/1000."""
    problem, algorithm, rate, batch_size, ridge = setting
    result = dimfree.check(PROBLEMS[problem][0], ALGORITHMS[algorithm](rate, batch_size=batch_size, ridge=ridge))
    assert result.agrees, str(result)
    # Not by chance: terms of higher order turn the slopes by less than is allowed for.
    assert all(slope < -0.4 for slope in result.slopes.values()), str(result)


# Wrong ones: what is simulated, and the problem and the algorithm whose limit it is not.


class Forgets(ElasticSGD):
    """Its anchor shrinks, and does not follow."""

    def move(self, alpha):
        right = super().move(alpha)
        return Move({pair: rate for pair, rate in right.drag.items() if pair != ("anchor", "students")}, right.pull)


ERF, SQUARE = PROBLEMS["erf"][0], PROBLEMS["square"][0]
WRONG = {
    "a learning rate 3% too large": (ERF, OnlineSGD(2.0), ERF, OnlineSGD(2.06)),
    "the same on the sphere": (ERF, OnlineSGD(1.5, sphere=True), ERF, OnlineSGD(1.545, sphere=True)),
    "a ridge 10% too large": (ERF, OnlineSGD(2.0, ridge=0.3), ERF, OnlineSGD(2.0, ridge=0.33)),
    "a readout's rate 10% too large": (ERF, OnlineSGD(1.0, readout_rate=0.5), ERF, OnlineSGD(1.0, readout_rate=0.55)),
    "a batch of 5 for one of 4": (ERF, OnlineSGD(2.0, batch_size=4), ERF, OnlineSGD(2.0, batch_size=5)),
    "a smaller noise": (ERF, OnlineSGD(2.0), TwoLayer(2, 1, "erf", noise=0.07), OnlineSGD(2.0)),
    "an own algorithm that forgets a term": (ERF, ElasticSGD(1.0, 2.0, 0.5), ERF, Forgets(1.0, 2.0, 0.5)),
    "another forgetting of momentum": (ERF, Momentum(0.5, 0.8, 2.0), ERF, Momentum(0.5, 0.8, 1.8)),
    "an eigenvalue 5% too large": (
        PROBLEMS["spectrum"][0],
        OnlineSGD(1.0),
        TwoLayer(2, 1, "erf", noise=0.1).with_inputs(dimfree.Spectrum([4.2, 1.0, 0.5], [0.2, 0.3, 0.5])),
        OnlineSGD(1.0),
    ),
    "clusters less spread by 20%": (
        PROBLEMS["mixture"][0],
        OnlineSGD(0.8),
        Mixture.binary(2, 2.5, readout=[0.7, -0.4]),
        OnlineSGD(0.8),
    ),
    "a later switch": (Tasks.switching(2, 0.6, 0.3), OnlineSGD(1.0), Tasks.switching(2, 0.6, 0.35), OnlineSGD(1.0)),
    "a clip 10% wider": (ERF, ClippedSlopes(OnlineSGD(2.0), 0.2), ERF, ClippedSlopes(OnlineSGD(2.0), 0.22)),
}


@SLOW
@pytest.mark.parametrize("name", WRONG)
def test_wrong_settings_do_not_agree(name):
    problem, algorithm, another, others = WRONG[name]
    result = dimfree.check(problem, algorithm, limit=dimfree.ode(another, others))
    assert not result.agrees, str(result)


TERMS = {"no term of second order": {"square": 0.0}, "3% of it too much": {"square": 1.03}, "M": {"teacher": 1.05}}


@SLOW
@pytest.mark.parametrize("name", TERMS)
def test_a_term_lost_or_scaled_does_not_agree(name):
    algorithm = OnlineSGD(0.2, readout_rate=0.2)
    limit = Mutant(SQUARE, algorithm, Averaging(), True, scaled(**TERMS[name]))
    assert not dimfree.check(SQUARE, algorithm, limit=limit, alpha=3.0).agrees


def test_a_schedule_that_is_right_at_the_start_only_is_found():
    """By what remains as d grows, of a rate that is 8% too large in the end; the drift at the start is right."""
    problem = TwoLayer(2, 2, "erf")
    limit = dimfree.ode(problem, OnlineSGD(lambda alpha: 1.5 * (1 + 0.04 * alpha), sphere=True))
    result = dimfree.check(problem, OnlineSGD(lambda alpha: 1.5 + 0 * alpha, sphere=True), limit=limit)
    assert not result.agrees, str(result)
    assert result.something_remains, str(result)
    assert not result.drift_is_off, str(result)
    assert "What remains as d grows is most certain in" in str(result)
