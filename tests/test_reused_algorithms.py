"""Algorithms on reused data: the step as it is defined, and the law of the batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import dimfree
from dimfree import InvalidInput
from dimfree.algorithms import GradientDescent, Langevin, MultiPassSGD, PersistentSGD

FALSE_ALARM = 1e-5  # of each statistical statement
KEY = jax.random.key(0)


@pytest.mark.parametrize("sphere", [False, True])
@pytest.mark.parametrize("ridge", [0.0, 0.7])
def test_a_step_is_the_gradient_the_ridge_and_the_sphere(sphere, ridge):
    generator = np.random.default_rng(1)
    weights, gradient = generator.normal(size=(2, 2, 30))
    algorithm = GradientDescent(0.1, 2.0, sphere, ridge)
    moved = algorithm.move(jnp.asarray(weights), jnp.asarray(gradient), 0.0, KEY)
    expected = weights - 0.1 * (gradient + ridge * weights)
    if sphere:
        expected *= (30 / (expected**2).sum(axis=1, keepdims=True)) ** 0.5
    np.testing.assert_allclose(moved, expected, rtol=1e-13)


def test_langevin_adds_white_noise_of_its_temperature():
    weights, gradient = np.random.default_rng(1).normal(size=(2, 3, 20_000))
    rate, temperature = 0.02, 0.3
    noisy = Langevin(rate, 2.0, temperature, ridge=0.5)
    plain = GradientDescent(rate, 2.0, ridge=0.5)
    arguments = (jnp.asarray(weights), jnp.asarray(gradient), 0.0, KEY)
    kicks = np.asarray(noisy.move(*arguments) - plain.move(*arguments)) / (2 * temperature * rate) ** 0.5
    for kick in kicks:
        assert scipy.stats.kstest(kick, "norm").pvalue > FALSE_ALARM / 3
    # Students are kicked independently: 20,000 products of mean zero and variance one.
    correlations = (kicks @ kicks.T)[np.triu_indices(3, 1)] / 20_000**0.5
    assert np.abs(correlations).max() < scipy.stats.norm.isf(FALSE_ALARM / 6)
    # On the sphere the direction is that of the free step.
    on_sphere = Langevin(rate, 2.0, temperature, True, ridge=0.5).move(*arguments)
    free = noisy.move(*arguments)
    norms = jnp.linalg.norm(free, axis=1, keepdims=True)
    np.testing.assert_allclose(on_sphere, free * 20_000**0.5 / norms, rtol=1e-12)


def test_temperature_follows_time():
    annealed = Langevin(0.1, 2.0, dimfree.PiecewiseLinear([0.0, 2.0], [1.0, 0.0]))
    np.testing.assert_allclose([annealed.temperature_at(t) for t in (0.0, 0.5, 2.0, 3.0)], [1.0, 0.75, 0.0, 0.0])
    function = Langevin(0.1, 2.0, lambda time: 1 / (1 + time))
    np.testing.assert_allclose(function.temperature_at(1.0), 0.5)
    weights, gradient = jnp.ones((1, 50)), jnp.ones((1, 50))
    cold = annealed.move(weights, gradient, 2.5, KEY)
    np.testing.assert_allclose(cold, 0.9, rtol=1e-14)


@pytest.mark.parametrize(("fraction", "persistence", "step"), [(0.5, 1.0, 0.01), (0.3, 0.2, 0.2), (0.8, 2.0, 1.0)])
def test_samples_enter_and_leave_the_batch_as_a_telegraph_process(fraction, persistence, step):
    """Stationary fraction, and correlation exp(-t / (fraction * persistence)), at steps small and large."""
    samples, steps = 200_000, 12
    algorithm = PersistentSGD(step, 2.0, fraction, persistence)
    selection = algorithm.first_selection(KEY, (samples,))
    history = [np.asarray(selection, float)]
    advance = jax.jit(lambda key, selection, step: algorithm.next_selection(key, selection, step))
    for number in range(steps):
        selection = advance(jax.random.fold_in(KEY, number + 1), selection, step)
        history.append(np.asarray(selection, float))
    limit = scipy.stats.norm.isf(FALSE_ALARM / (2 * 2 * (steps + 1)))  # Bonferroni over all numbers of this case
    variance = fraction * (1 - fraction)
    for number, batch in enumerate(history):
        assert abs(batch.mean() - fraction) < limit * (variance / samples) ** 0.5
        if number == 0:
            continue
        product = (history[0] - fraction) * (batch - fraction)
        expected = variance * np.exp(-number * step / (fraction * persistence))
        assert abs(product.mean() - expected) < limit * product.std() / samples**0.5
    # The rates of entering and leaving over one step, which the correlation alone does not separate.
    x = 1 - np.exp(-step / (fraction * persistence))
    before, after = history[0] == 1, history[1] == 1
    for changed, probability in ((after[~before], fraction * x), (~after[before], (1 - fraction) * x)):
        assert scipy.stats.binomtest(int(changed.sum()), changed.size, probability).pvalue > FALSE_ALARM


def test_batches_do_not_depend_on_how_time_is_cut():
    """Two steps of one half have the probabilities of one step: exact, not to first order in the step."""
    algorithm = PersistentSGD(0.1, 2.0, 0.3, 0.5)
    forgotten = -np.expm1(-0.4 / (0.3 * 0.5))
    out, inside = jnp.zeros(400_000, bool), jnp.ones(400_000, bool)
    for start, probability in ((out, 0.3 * forgotten), (inside, 1 - 0.7 * forgotten)):
        half = algorithm.next_selection(jax.random.key(1), start, 0.2)
        selected = int(jnp.sum(algorithm.next_selection(jax.random.key(2), half, 0.2)))
        assert scipy.stats.binomtest(selected, 400_000, probability).pvalue > FALSE_ALARM


def test_multi_pass_batches_are_independent():
    algorithm = MultiPassSGD(0.1, 2.0, 0.25)
    first = algorithm.first_selection(KEY, (100_000,))
    second = algorithm.next_selection(jax.random.key(1), first, 0.1)
    for batch in (first, second, second[first], second[~first]):
        assert scipy.stats.binomtest(int(batch.sum()), batch.size, 0.25).pvalue > FALSE_ALARM


@pytest.mark.parametrize(
    "algorithm",
    [GradientDescent(0.1, 2.0), Langevin(0.1, 2.0, 1.0), MultiPassSGD(0.1, 2, 1.0), PersistentSGD(0.1, 2, 1.0, 0.3)],
)
def test_the_whole_batch_stays_whole(algorithm):
    selection = algorithm.first_selection(KEY, (1000,))
    for number in range(3):
        selection = algorithm.next_selection(jax.random.key(number), selection, 0.1)
    assert selection.all()
    assert float(algorithm.batch_fraction) == 1.0


def test_prints_as_the_call_that_makes_it():
    words = repr(PersistentSGD(0.01, 3.0, 0.5, 1.0, sphere=True))
    assert words.startswith("PersistentSGD(learning_rate=0.01, samples_per_dimension=3")
    assert "batch_fraction=0.5, persistence=1" in words


BAD = {
    "learning rate zero": (lambda: GradientDescent(0.0, 2.0), "learning_rate = 0.0 was given; it must be positive"),
    "negative samples": (lambda: GradientDescent(0.1, -2.0), "samples_per_dimension = -2.0 was given"),
    "negative ridge": (lambda: GradientDescent(0.1, 2.0, ridge=-1.0), "ridge = -1.0 was given"),
    "fraction above one": (lambda: MultiPassSGD(0.1, 2.0, 1.5), "batch_fraction = 1.5 was given.*at most 1"),
    "empty batch": (lambda: PersistentSGD(0.1, 2.0, 0.0, 1.0), "batch_fraction = 0.0 was given"),
    "no persistence": (lambda: PersistentSGD(0.1, 2.0, 0.5, 0.0), "persistence = 0.0 was given"),
    "negative temperature": (lambda: Langevin(0.1, 2.0, -0.1), "temperature = -0.1 was given"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_in_words(name):
    call, words = BAD[name]
    with pytest.raises(InvalidInput, match=words):
        call()
