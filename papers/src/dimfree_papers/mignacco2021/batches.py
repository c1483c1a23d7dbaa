"""Section 3: which samples are in the batch, eqs. (6) and (7), and what becomes of it as the step vanishes."""

import jax
import jax.numpy as jnp
import numpy as np

from dimfree import Claim, GradientDescent, Langevin, MultiPassSGD, PersistentSGD, simulate

from .conventions import PHASE, warm

_FRACTION, _PERSISTENCE, _RATE = 0.3, 1.5, 0.01


def claims() -> tuple[Claim, ...]:
    return (*_replacement(), *_telegraph(), *_special_cases())


def with_replacement(draws: int, samples: int, trials: int, seed: int) -> np.ndarray:
    """How often each sample is in batches drawn with replacement, shape `(trials, samples)`."""
    return np.random.default_rng(seed).multinomial(draws, np.full(samples, 1 / samples), size=trials)


def _replacement() -> tuple[Claim, ...]:
    samples, trials, fraction = 400, 4_000, 0.5
    counts = with_replacement(round(fraction * samples), samples, trials, seed=0)
    kept = MultiPassSGD(0.1, 3.0, fraction).first_selection(jax.random.key(0), (trials, samples))
    variances = [float(np.var(np.asarray(each, float) / fraction)) for each in (kept, counts)]
    return (
        Claim(
            "section 3.1, eq. (6)",
            "For large N, batches drawn with replacement are equivalent to taking each sample with probability l: "
            "variance of the weight s / l of a sample, in both.",
            [1 / fraction - 1] * 2,
            variances,
            0.02,
            correction="Not equivalent at a finite learning rate: a sample is drawn a Poisson number of times, of mean "
            "l, and its weight has the variance 1 / l in place of 1 / l - 1.",
            corrected=[1 / fraction - 1, 1 / fraction],
            remark="l = 1/2, 400 samples, 4000 batches: the noise of SGD is twice as large with replacement. Both have "
            "gradient descent as their limit of vanishing rate.",
        ),
    )


def _measured(algorithm: PersistentSGD, samples: int, steps: int) -> tuple[float, float, float]:
    """Mean fraction in the batch, and frequencies of 0 to 1 and of 1 to 0 in a step."""
    keys = jax.random.split(jax.random.key(1), steps)
    first = algorithm.first_selection(jax.random.key(2), (samples,))

    def step(selection, key):
        following = algorithm.next_selection(key, selection, algorithm.learning_rate)
        entering = jnp.sum(following & ~selection) / jnp.sum(~selection)
        leaving = jnp.sum(selection & ~following) / jnp.sum(selection)
        return following, (jnp.mean(selection), entering, leaving)

    fractions, entering, leaving = jax.jit(lambda first: jax.lax.scan(step, first, keys))(first)[1]
    return float(fractions.mean()), float(entering.mean()), float(leaving.mean())


def _telegraph() -> tuple[Claim, ...]:
    fraction, entering, leaving = _measured(PersistentSGD(_RATE, 3.0, _FRACTION, _PERSISTENCE), 20_000, 1_000)
    small = 1e-3
    forgotten = -np.expm1(-small / (_FRACTION * _PERSISTENCE))
    exact = np.array([_FRACTION * forgotten, (1 - _FRACTION) * forgotten])
    first_order = np.array([small / _PERSISTENCE, (1 - _FRACTION) * small / (_FRACTION * _PERSISTENCE)])
    # A step that takes the time 1, or the time of the learning rate.
    out = np.array([1.0, _RATE]) / (_RATE / _PERSISTENCE)
    measured_out = _RATE / entering
    vanilla = MultiPassSGD(_RATE, 3.0, _FRACTION)
    selection = vanilla.first_selection(jax.random.key(3), (400_000,))
    following = np.asarray(vanilla.next_selection(jax.random.key(4), selection, _RATE))
    before = np.asarray(selection)
    persistence = _RATE / _FRACTION
    return (
        Claim(
            "eq. (7), t + 1",
            "A sample enters the batch with probability eta / tau between t and t + 1: the mean time that it is out.",
            out[0],
            measured_out,
            0.05,
            correction="Between t and t + eta. That time is then tau, as the text has it.",
            corrected=out[1],
            remark="eta = 0.01, tau = 1.5, l = 0.3; 20,000 samples, 1000 steps. The library's process has this time to "
            "order eta.",
        ),
        Claim(
            "eq. (7), b",
            "b, which is not defined, is l: the fraction of the samples that is in the batch.",
            _FRACTION,
            fraction,
            0.004,
        ),
        Claim(
            "eq. (7), small steps",
            "Both probabilities of (7), over those of a process with these rates, at eta = 0.001.",
            first_order / exact,
            np.ones(2),
            3e-3,
            remark="Exactly l x and (1 - l) x with x = 1 - exp(-eta / (l tau)), for any step; measured at eta = 0.01: "
            f"{entering:.5f} and {leaving:.5f}.",
        ),
        Claim(
            "section 3.1, SGD from eq. (7)",
            "With tau = eta / l, (7) is vanilla SGD: probabilities of 0 to 1 and of 1 to 0.",
            [_RATE / persistence, (1 - _FRACTION) * _RATE / (_FRACTION * persistence)],
            [float(following[~before].mean()), float((~following[before]).mean())],
            0.008,
            remark="Against batches that take each sample with probability l, not those drawn with replacement.",
        ),
    )


def _special_cases() -> tuple[Claim, ...]:
    def path(algorithm):
        found = simulate(PHASE, algorithm, warm(0.4), 30, 2.0, runs=4, key=jax.random.key(5))
        return np.asarray(found.state.M)[..., 0, 0]

    descent = path(GradientDescent(0.02, 3.0, sphere=True))
    others = (
        PersistentSGD(0.02, 3.0, batch_fraction=1.0, persistence=1.0, sphere=True),
        Langevin(0.02, 3.0, temperature=0.0, sphere=True),
    )
    apart = [float(np.abs(path(each) - descent).max()) for each in others]
    return (
        Claim(
            "after eq. (10)",
            "l = 1 in (8), or T = 0 in (9), is gradient descent: largest distance of the overlaps of runs.",
            np.zeros(2),
            apart,
            1e-9,
        ),
    )
