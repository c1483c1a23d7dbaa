"""Any argument of any public callable, given what it is not: refused in words that name it, or right; never raw."""

import random
import zlib

import pytest
from odd_values import CALLS, CHEAP, ODD, arguments, call, fault
from signatures import public_callables

import dimfree
from refusals import as_users_call

NOT_CALLED = {
    "Problem": "an abstract class",
    "from_optax": "takes objects of optax, and has a test of its own",
    "rescaled": "as rescaled_overlaps, for other problems",
    **dict.fromkeys(
        (
            "best_learning_rate",
            "best_protocol",
            "check",
            "from_data",
            "overparameterisation_gain",
            "particle_error",
            "regimes",
        ),
        "a call that works computes for longer than a table can wait",
    ),
    "Study": "checked by pydantic",
    "cite": "takes anything",
}


def test_every_public_callable_is_in_the_table():
    """But for results, which the library makes."""
    public = {name for name, _ in public_callables() if "." not in name}
    assert {name for name in CALLS if "." not in name} | set(NOT_CALLED) >= public
    assert not set(CALLS) & set(NOT_CALLED)


@pytest.mark.parametrize("name", CHEAP)
def test_examples_work(name):
    function, given = CALLS[name]
    function(**given)


def test_some_odd_values():
    """Another part of the table for each version of it, the same each time."""
    draw = random.Random(zlib.crc32(" ".join([*CALLS, *ODD]).encode()))
    cheap = [each for each in arguments() if each[0] in CHEAP]
    with as_users_call():
        chosen = [(*each, draw.choice(list(ODD))) for each in draw.sample(cheap, 100)]
        assert not {one: found for one in chosen if (found := fault(*one))}


def test_a_fault_would_be_seen(monkeypatch):
    def raw(width):
        return [0][width]

    def silent(width):
        raise dimfree.InvalidInput("no")

    monkeypatch.setitem(CALLS, "raw", (raw, {"width": 0}))
    monkeypatch.setitem(CALLS, "silent", (silent, {"width": 0}))
    assert fault("raw", "width", "0.5").startswith("TypeError")
    assert fault("silent", "width", "0").startswith("does not say which")
    assert not fault("TwoLayer", "width", "0")
    assert call("raw", "width", 0) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("name", "argument"), [pytest.param(*each, id="-".join(each)) for each in arguments()])
def test_all_odd_values(name, argument):
    with as_users_call():
        assert not {label: found for label in ODD if (found := fault(name, argument, label))}
