"""The loop that all simulations run, against one that looks after every step of every run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dimfree
from dimfree.gaussian.random_numbers import Source, normals_and_chi_squares, run_keys
from dimfree.simulation import online
from dimfree.simulation.devices import parts_for
from dimfree.simulation.loop import Loop
from dimfree.trajectory import Outcome

SAVES = np.array([0, 7, 40, 41, 150, 300])
LOW, HIGH = -12.0, 9.0  # where a walk cannot go, and where it stops


def loop(runs: int, block: int, looks: int) -> Loop:
    """Walks by normal numbers; a constant is carried beside each. With no looks none is stopped."""

    def advance(carry, draws, place, made):
        walk, constant = carry
        new = walk + draws[0, place]
        return (new, constant), new > LOW

    return Loop(
        load=lambda run: (jnp.zeros(()), run + 0.5),
        draw=lambda source: normals_and_chi_squares(source, 2, jnp.zeros(0))[0],
        advance=advance,
        observe=lambda carry: carry,
        stop=(lambda carry: carry[0] - HIGH) if looks else None,
        look_every=jnp.asarray(looks) if looks > 1 else None,
        keys=jax.random.split(jax.random.key(0), runs),
        save_steps=jnp.asarray(SAVES),
        block=block,
    )


def simulated(runs: int, lanes: int, block: int, looks: int):
    walks = loop(runs, block, looks)

    @jax.jit
    def run():
        starts = (jnp.zeros(runs), jnp.arange(runs) + 0.5)
        return walks.iterate(*walks.start(lanes, starts), jnp.asarray(10**6))[1]

    return run()


def by_hand(runs: int, looks: int):
    """Every step of every run, with the numbers of the longest block."""
    key = run_keys(jax.random.split(jax.random.key(0), runs))
    numbers = jnp.broadcast_to(jnp.arange(SAVES[-1])[:, None], (SAVES[-1], runs))
    steps = np.asarray(normals_and_chi_squares(Source(key, numbers), 2, jnp.zeros(0))[0][0])
    saved, outcome, ended = np.zeros((runs, len(SAVES))), np.zeros(runs, int), np.zeros(runs, int)
    for run in range(runs):
        walk = 0.0
        path = [walk]
        for number in range(SAVES[-1]):
            new = walk + steps[number, run]
            if new > LOW:
                walk = new
            path.append(walk)
            if new <= LOW or (looks and (number + 1) % looks == 0 and walk >= HIGH):
                outcome[run] = Outcome.STOPPED if new > LOW else Outcome.DIVERGED
                ended[run] = number + 1
                break
        saved[run] = [path[min(step, len(path) - 1)] for step in SAVES]
    return saved, outcome, ended


@pytest.mark.parametrize(
    ("runs", "lanes", "block", "looks"),
    [(37, 5, 256, 1), (37, 37, 64, 1), (3, 1, 2048, 1), (9, 4, 1, 1), (37, 5, 256, 0), (37, 5, 64, 7), (9, 4, 1, 30)],
)
def test_runs_end_where_they_do_in_a_loop_by_hand(runs, lanes, block, looks):
    saved, outcome, ended = by_hand(runs, looks)
    found = simulated(runs, lanes, block, looks)
    np.testing.assert_array_equal(found.outcome, outcome)
    np.testing.assert_array_equal(found.ended, ended)
    np.testing.assert_allclose(found.saved[0], saved, atol=1e-11)
    np.testing.assert_array_equal(found.saved[1], np.repeat(np.arange(runs)[:, None] + 0.5, len(SAVES), 1))


def test_the_walks_above_end_in_every_way():
    _, outcome, ended = by_hand(37, looks=1)
    assert set(outcome) == {Outcome.STOPPED, Outcome.DIVERGED, Outcome.COMPLETED}
    assert len(set(ended)) > 20


def test_runs_in_parts_on_several_cores_are_those_of_one(monkeypatch):
    """To the bit; with saves, runs that stop, and inside of jit."""
    problem, sgd = dimfree.PhaseRetrieval(), dimfree.OnlineSGD(0.1, sphere=True)

    def runs(overlap, stop=None):
        start = dimfree.State(Q=[[1.0]], M=jnp.reshape(overlap, (1, 1)))
        return dimfree.simulate(problem, sgd, start, 50, [0.0, 5.0, 20.0], runs=6, key=jax.random.key(1), stop=stop)

    def leaving(state):
        return jnp.abs(state.M[0, 0]) - 0.6

    found = []
    for parts in (1, 3):
        monkeypatch.setattr(online, "parts_for", lambda *_, parts=parts: parts)
        found.append([runs(0.3), runs(0.3, leaving)])
    for one, several in zip(*found, strict=True):
        np.testing.assert_array_equal(one.state.M, several.state.M)
        np.testing.assert_array_equal(one.outcome, several.outcome)
        np.testing.assert_array_equal(one.stopped_at, several.stopped_at)
    assert len(set(np.asarray(found[0][1].stopped_at))) > 3
    inside = jax.jit(lambda overlap: runs(overlap).state.M)(0.3)
    np.testing.assert_allclose(inside, found[0][0].state.M, rtol=1e-9)


def test_no_part_is_smaller_than_it_is_worth(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(8), raising=False)
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    cpu = jax.devices("cpu")[:1]
    assert [parts_for(runs, cpu, 64) for runs in (1, 64, 127, 128, 192, 130, 4096)] == [1, 1, 1, 2, 3, 2, 8]
    assert parts_for(4096, cpu * 2, 64) == 1
