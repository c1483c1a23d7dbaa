"""The name of what is kept on disk: all that it depends on, and nothing else."""

import functools
import importlib
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dimfree
from dimfree.identity import identity

SCALE = 2.0


def scaled(x):
    return SCALE * x


def fields(student, teacher, noise, readout):
    return (student[0] - scaled(teacher[0])) ** 2


CACHE = {}


def cached(x):
    return CACHE.setdefault(float(x), x)


def made(factor):
    return lambda t: factor * t


@jax.custom_jvp
def kinked(x):
    return jnp.abs(x)


@kinked.defjvp
def _(primals, tangents):
    return kinked(primals[0]), tangents[0]


@jax.custom_jvp
def smooth(x):
    return jnp.abs(x)


@smooth.defjvp
def _(primals, tangents):
    return kinked(primals[0]), 0.5 * tangents[0]


def langevin(temperature):
    return dimfree.Langevin(0.1, 2.0, temperature=temperature)


# Pairs of things that print alike, or nearly so, and are not the same.
PAIRS = {
    "a constant of a lambda": (lambda t: 0.5, lambda t: 2.0),
    "a schedule": (langevin(lambda t: 0.5), langevin(lambda t: 2.0)),
    "a seventh digit": (dimfree.GradientDescent(0.1, 2.0), dimfree.GradientDescent(0.10000001, 2.0)),
    "the last digit": (1.0, np.nextafter(1.0, 2.0)),
    "a large array": (np.zeros(1_000), np.r_[np.zeros(999), 1e-300]),
    "a type": (np.zeros(2), np.zeros(2, np.float32)),
    "a shape": (np.zeros((2, 3)), np.zeros((3, 2))),
    "zero and false": (0, False),
    "one and 1.0": (1, 1.0),
    "minus zero": (0.0, -0.0),
    "a list and a tuple": ([1, 2], (1, 2)),
    "where a list ends": ([[1], 2], [[1, 2]]),
    "a closure": (made(1.0), made(2.0)),
    "a default": (lambda t, a=1.0: a * t, lambda t, a=2.0: a * t),
    "a function that is called": (lambda t: jnp.sin(t), lambda t: jnp.cos(t)),
    "a partial": (functools.partial(scaled, 1.0), functools.partial(scaled, 2.0)),
    "a compiled function": (jax.jit(lambda t: t + 1), jax.jit(lambda t: t + 2)),
    "a derivative": (kinked, smooth),
    "a random key": (jax.random.key(0), jax.random.key(1)),
    "a loss": (
        dimfree.LocalFields(lambda s, t, n, r: (s[0] - t[0]) ** 2, 1, 1),
        dimfree.LocalFields(lambda s, t, n, r: (s[0] - t[0]) ** 4, 1, 1),
    ),
    "a class": (type("A", (), {"f": lambda self: 1})(), type("A", (), {"f": lambda self: 2})()),
    "a module": (np, jnp),
}


@pytest.mark.parametrize("name", PAIRS)
def test_what_differs_has_another_name(name):
    one, other = PAIRS[name]
    assert identity(one) != identity(other)
    assert identity(one) == identity(one)


def test_a_global_that_a_function_uses_is_part_of_it(monkeypatch):
    before = identity(dimfree.LocalFields(fields, 1, 1))
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 3.0)  # two calls away
    assert identity(dimfree.LocalFields(fields, 1, 1)) != before


def test_values_tell_what_code_does_not_show():
    """A global dict counts by the source of its module, because it may be a cache; the values of a schedule differ."""
    CACHE.clear()
    before = identity(langevin(lambda t: cached(1.0) * t))
    CACHE[1.0] = 5.0
    assert identity(langevin(lambda t: cached(1.0) * t)) != before


def test_a_cache_that_grows_changes_no_name():
    CACHE.clear()
    before = identity(functools.partial(cached))
    cached(3.0)
    assert CACHE
    assert identity(functools.partial(cached)) == before


def test_what_a_function_uses_is_not_called(tmp_path):
    called = []

    def helper(x):
        called.append(x)
        return x

    identity(lambda t, other: helper(t))
    assert not called


def test_versions_precision_and_random_numbers_are_part_of_every_name(monkeypatch):
    names = {identity(1.0)}
    monkeypatch.setattr("jax.__version__", "99.0")
    names.add(identity(1.0))
    monkeypatch.setattr("dimfree.identity.installed_version", lambda name: "99.0")
    names.add(identity(1.0))
    for setting in (jax.enable_x64(False), jax.default_prng_impl("rbg"), jax.threefry_partitionable(False)):
        with setting:
            names.add(identity(1.0))
    assert len(names) == 6


CODE = """
import jax, jax.numpy as jnp, numpy as np, dimfree
from dimfree.identity import identity
scale = 2.0
def helper(t):
    return scale * jnp.tanh(t)
print(identity(
    dimfree.Langevin(0.1, 2.0, temperature=lambda t: 0.5 * helper(t)),
    dimfree.TwoLayer(2, 1, activation=helper), {"b": {3, 1, 2}, "a": np.arange(3.0)}, jax.random.key(3),
))
"""


def test_the_same_in_another_process_has_the_same_name():
    def named(seed):
        found = subprocess.run(
            [sys.executable, "-c", CODE], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True
        )
        assert found.returncode == 0, found.stderr
        return found.stdout

    first = named("1")
    assert len(first) == 65
    assert named("2") == first


def test_an_edited_module_of_the_user_is_noticed_through_another(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "identity_third.py").write_text("OFFSET = 1.0\n")
    (tmp_path / "identity_second.py").write_text(
        "import identity_third\n\ndef g(x):\n    return x + identity_third.OFFSET\n"
    )
    (tmp_path / "identity_first.py").write_text(
        "def f(problem, algorithm, *, key):\n    from identity_second import g\n    return {'a': g(1.0)}\n"
    )

    def named():
        for name in ("first", "second", "third"):
            sys.modules.pop(f"identity_{name}", None)
        return identity(importlib.import_module("identity_first").f)

    before = named()
    assert named() == before
    path = tmp_path / "identity_third.py"
    path.write_text("OFFSET = 1000.0\n")
    os.utime(path, (0, 0))  # another time, so that Python compiles it again
    assert named() != before


UNKNOWN = {
    "a file": lambda: open(os.devnull),  # noqa: SIM115
    "a generator": lambda: (i for i in range(3)),
    "random numbers with a state": lambda: np.random.default_rng(0),
    "an object": object,
    "a list that contains itself": lambda: (own := [], own.append(own))[0],
    "a function of a file": lambda: functools.partial(scaled, open(os.devnull)),  # noqa: SIM115
}


@pytest.mark.filterwarnings("ignore:unclosed file", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", UNKNOWN)
def test_what_cannot_be_told_is_refused(name):
    with pytest.raises(dimfree.InvalidInput, match="results cannot be named by it"):
        identity(UNKNOWN[name]())


def test_what_is_traced_is_refused():
    with pytest.raises(dimfree.InvalidInput, match="traced by JAX"):
        jax.jit(lambda x: identity(x))(1.0)
