"""Stated errors of averages hold: for jumps, kinks, rare events and fast waves, whose means are known otherwise.

The means are integrals over one standard normal, by Gauss-Legendre rules between the places where the function jumps; a
second factor is averaged in closed form, given the first. Nothing of the library is used for them.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr

import dimfree

LINE, WEIGHTS = np.polynomial.legendre.leggauss(200)
CLOSE = np.concatenate([[0.0], 10.0 ** np.arange(-6, 0), -(10.0 ** np.arange(-6, 0))])
PROBLEM = dimfree.TwoLayer(2, 1, "erf")


def integral(function, breaks):
    """The mean of a function of a standard normal."""
    ends = np.unique(np.clip(np.concatenate([np.linspace(-10, 10, 41), np.ravel(breaks)]), -10, 10))
    middle, half = (ends[1:] + ends[:-1])[:, None] / 2, np.diff(ends)[:, None] / 2
    z = middle + half * LINE
    return np.sum(half * WEIGHTS * function(z) * np.exp(-(z**2) / 2)) / np.sqrt(2 * np.pi)


# Functions of a standard normal and of two numbers, in NumPy or JAX, with the places that an integral must know.
KINDS = {
    "above": (lambda z, n, xp: xp.where(z > n[0], 1.0, 0.0), lambda n: [n[0]]),
    "outside": (lambda z, n, xp: xp.where(xp.abs(z) > xp.abs(n[0]), 1.0, 0.0), lambda n: [n[0], -n[0]]),
    "interval": (lambda z, n, xp: xp.where((z > n[0]) & (z < n[0] + n[1]), 1.0, 0.0), lambda n: [n[0], n[0] + n[1]]),
    "wave": (lambda z, n, xp: xp.cos(6 * n[1] * z + n[0]), lambda n: []),
    "hinge": (lambda z, n, xp: xp.maximum(z - n[0], 0.0), lambda n: [n[0]]),
    "root": (lambda z, n, xp: xp.sqrt(xp.abs(z - n[0])), lambda n: n[0] + CLOSE),
    "three halves": (lambda z, n, xp: xp.abs(z - n[0]) ** 1.5, lambda n: n[0] + CLOSE),
    "logarithm": (lambda z, n, xp: xp.log(xp.abs(z - n[0]) + 1e-3), lambda n: n[0] + CLOSE),
    "square above": (lambda z, n, xp: xp.where(z > n[0], z * z, 0.0), lambda n: [n[0]]),
    "exponential above": (lambda z, n, xp: xp.where(z > n[0], xp.exp(z), 0.0), lambda n: [n[0]]),
    "bump": (lambda z, n, xp: xp.exp(-0.5 * ((z - n[0]) / n[1]) ** 2), lambda n: n[0] + n[1] * np.arange(-8, 9)),
    "steep": (lambda z, n, xp: xp.tanh((z - n[0]) / n[1]), lambda n: n[0] + n[1] * np.arange(-8, 9)),
    "floor": (lambda z, n, xp: xp.floor(3 * z + n[0]), lambda n: (np.arange(-40, 41) - n[0]) / 3),
    "sign": (lambda z, n, xp: xp.sign(z - n[0]), lambda n: [n[0]]),
    "clip": (lambda z, n, xp: xp.clip(z, -n[1], n[1] + 1), lambda n: [-n[1], n[1] + 1]),
    "cubic": (lambda z, n, xp: z**3 - 2 * z**2 + n[0], lambda n: []),
}
# What it is multiplied with: a function of a second field, and its mean given the first, at correlation rho.
SECOND = {
    "alone": (lambda y, z, c: 1.0, lambda z, c, rho: 1.0),
    "and": (lambda y, z, c: jnp.where(y > c, 1.0, 0.0), lambda z, c, rho: ndtr((rho * z - c) / np.sqrt(1 - rho**2))),
    "larger": (lambda y, z, c: 1.0 * (y > z), lambda z, c, rho: ndtr((rho * z - z) / np.sqrt(1 - rho**2))),
}


def settings(number, seed):
    """Random functions with a State each, and their means."""
    rng = np.random.default_rng(seed)
    for index in range(number):
        kind, second = list(KINDS)[index % len(KINDS)], list(SECOND)[index // len(KINDS) % len(SECOND)]
        function, breaks = KINDS[kind]
        factor, given = SECOND[second]
        roots = rng.normal(size=(3, 5)) * rng.uniform(0.2, 0.7, size=(3, 1))
        covariance = roots @ roots.T
        state = dimfree.State(Q=covariance[:2, :2], M=covariance[:2, 2:], P=covariance[2:, 2:])
        a, b = rng.normal(size=(2, 3)) * rng.choice([0.0, 1.0], size=(2, 3), p=[0.4, 0.6])
        a[rng.integers(3)] += 1.0
        b[rng.integers(3)] += 1.0
        a, b = a / np.sqrt(a @ covariance @ a), b / np.sqrt(b @ covariance @ b)
        rho = a @ covariance @ b
        if abs(rho) > 0.999:
            b = rng.normal(size=3)
            b /= np.sqrt(b @ covariance @ b)
            rho = a @ covariance @ b
        # Half of the places are where few samples come.
        numbers = np.array([rng.uniform(0, 4.5) if rng.random() < 0.5 else rng.normal(), 10 ** rng.uniform(-1.5, 0)])
        level = rng.uniform(-1, 3)

        def observed(student, teacher, noise, readout, function=function, factor=factor, n=numbers, c=level, a=a, b=b):
            fields = jnp.concatenate([student, teacher])
            z, y = a @ fields, b @ fields
            return function(z, n, jnp) * factor(y, z, c)

        width = np.sqrt(1 - rho**2)
        further = [level / rho + step * width / abs(rho) for step in range(-6, 7)] if second == "and" and rho else []
        steep = [step * width / (1 - rho) for step in range(-6, 7)] if second == "larger" else []
        mean = integral(
            lambda z, f=function, n=numbers, g=given, c=level, r=rho: f(z, n, np) * g(z, c, r),
            np.concatenate([np.ravel(breaks(numbers)), further, steep]),
        )
        yield f"{kind}, {second}", observed, state, mean


def off_and_stated(number, seed):
    for name, observed, state, mean in settings(number, seed):
        value, stated = PROBLEM.mean(observed, state), PROBLEM.mean_error(observed, state)
        yield name, float(abs(value - mean)), float(stated), float(abs(mean))


@pytest.mark.slow
def test_of_400_random_functions_99_in_100_are_within_their_stated_errors():
    """If each error held with probability .99, more than eleven of 400 would fail once in a thousand tables."""
    found = list(off_and_stated(432, seed=0))
    wrong = [row for row in found if not row[1] <= row[2]]
    print(*wrong, sep="\n")
    assert len(wrong) <= 11
    # An error that is never exceeded because it is huge says nothing.
    stated = np.array([row[2] for row in found])
    assert np.median(stated) < 2e-3
    assert np.quantile(stated, 0.95) < 0.03


def test_rare_events_and_jumps_have_honest_errors():
    """One of each kind of the table, with a tenth of its false alarms; the slow test has them all."""
    wrong = [row for row in off_and_stated(6, seed=3) if not row[1] <= row[2]]
    assert not wrong


def test_an_event_that_few_samples_meet_is_counted():
    """A field above five deviations, once in 3.5 million samples: seen, and known to a fifth."""
    state = dimfree.State(Q=0.09 * np.eye(2), M=np.zeros((2, 1)))
    for level, exact in ((1.5, 2.866515718e-7), (0.9, 1.349898032e-3)):

        def above(student, teacher, noise, readout, level=level):
            return jnp.where(student[0] > level, 1.0, 0.0)

        value, stated = float(PROBLEM.mean(above, state)), float(PROBLEM.mean_error(above, state))
        assert abs(value - exact) <= stated
        assert abs(value - exact) < 0.2 * exact
