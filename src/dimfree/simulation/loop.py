"""The loop that every simulation runs: lanes of runs, blocks of steps, saves, early stop."""

import functools
import operator
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree, Shaped

from ..batches import map_in_batches
from ..gaussian.random_numbers import Source, run_keys
from ..last_axis import map_last_axis
from ..trajectory import Outcome

LANES = 128  # runs at a time on a device; more do not fit in its cache and are slower
_NUMBERS = 2**16  # random numbers drawn together, about: they fit in the cache of a core
_SHORTEST, _LONGEST = 16, 2048  # steps whose random numbers are drawn together
# Steps after which one looks whether a run has ended (if so, fewer are made again, down to one): of all runs, at least.
_STRETCH, _STEPS = 16, 2048


def block_length(lanes: int, numbers: int) -> int:
    """Of how many steps to draw the random numbers together, where each has so many; results do not depend on it."""
    return int(np.clip(2 ** int(np.log2(_NUMBERS / (lanes * numbers)) // 1), _SHORTEST, _LONGEST))


class Results(eqx.Module):
    """What is kept of each run: what was observed at the saved steps, how it ended, after how many steps if early."""

    saved: PyTree[Array]
    outcome: Int[Array, " runs"]
    ended: Int[Array, " runs"]


class Lanes(eqx.Module):
    """The runs under way, each in a lane; a lane whose run has ended takes the next one that waits."""

    run: Int[Array, " lanes"]
    block: Int[Array, " lanes"]
    saves: Int[Array, " lanes"]  # how many are behind it
    carry: Any
    outcome: Int[Array, " lanes"]
    ended: Int[Array, " lanes"]
    waiting: Int[Array, " one"]  # the first run that no lane has taken


class Loop(eqx.Module):
    """One step of SGD repeated, for many runs.

    Random numbers are drawn for a block of steps at once, because one large draw is several times cheaper than many
    small ones. Each depends on the run's key, the step and its number only, so a run does not depend on which others it
    is computed with, nor on the length of a block. Between two saves there is nothing but steps. Runs end at different
    times (events, divergence): lanes that are free take the runs that wait, so that no lane idles while there is work.

    **Attributes:**

    - `load`: the carry of a run, before its first step, by its number.
    - `draw`: the random numbers of all steps, shape `(steps, lanes)`, of a source.
    - `advance`: one step of the runs of all lanes: (carries, draws, place of the step in the block, steps made before)
      to (carries, whether the step could be taken).
    - `observe`: what is kept and looked at of a carry, such as its State.
    - `stop`: a run ends when this function of what is observed reaches zero.
    - `keys`: random key of each run.
    - `save_steps`: increasing numbers of steps to save after; only zero may be there more than once.
    - `block`: steps whose random numbers are drawn at once.
    - `look_every`: the number of steps after which one looks whether a run ends; each step if None.
    - `axis`: along which the lanes lie in a carry: the last for small arrays, the first for vectors.
    """

    load: Callable[[Int[Array, ""]], Any]
    draw: Callable[[Source], PyTree[Array]]
    advance: Callable[[Any, PyTree[Array], Int[Array, ""], Int[Array, " lanes"]], tuple[Any, Array]]
    observe: Callable[[Any], PyTree[Array]]
    stop: Callable[[Any], Array] | None
    keys: Shaped[Array, "runs ..."]
    save_steps: Int[Array, " times"]
    block: int = eqx.field(static=True)
    look_every: Int[Array, ""] | None = None
    axis: int = eqx.field(static=True, default=-1)

    @property
    def runs(self) -> int:
        return self.keys.shape[0]

    def start(self, lanes: int, observed: PyTree[Array]) -> tuple[Lanes, Results]:
        """The first runs in their lanes, and every save what is observed of the run before its first step."""
        times = self.save_steps.shape[0]
        saved = jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], times, axis=1), observed)
        none = jnp.zeros(self.runs, int)
        return self._loaded(jnp.arange(lanes), jnp.full(1, lanes)), Results(saved, none, none)

    def iterate(self, lanes: Lanes, results: Results, blocks: Int[Array, ""]) -> tuple[Lanes, Results]:
        """Up to `blocks` blocks of steps more; fewer if no run is left."""
        key = run_keys(self.keys)

        def unfinished(loop):
            made, lanes, _ = loop
            return (made < blocks) & self.is_unfinished(lanes)

        def one_block(loop):
            made, lanes, results = loop
            return made + 1, *self._block(key, lanes, results)

        return jax.lax.while_loop(unfinished, one_block, (jnp.zeros((), int), lanes, results))[1:]

    def is_unfinished(self, lanes: Lanes) -> Bool[Array, ""]:
        """Whether a run is under way."""
        return jnp.any(lanes.run < self.runs)

    def _is_running(self, lanes: Lanes) -> Bool[Array, " lanes"]:
        left = lanes.saves < self.save_steps.shape[0]
        return (lanes.run < self.runs) & (lanes.outcome == Outcome.COMPLETED) & left

    def _block(self, key, lanes: Lanes, results: Results) -> tuple[Lanes, Results]:
        run, begun = jnp.minimum(lanes.run, self.runs - 1), lanes.block * self.block
        steps = begun + jnp.arange(self.block)[:, None]
        draws = self.draw(Source((key[0][run], key[1][run]), steps))

        def unfinished(loop):
            made, _, _ = loop
            return made < self.block

        def to_next_save(loop):
            made, lanes, results = loop
            return self._to_next_save(made, begun, draws, lanes, results)

        loop = (jnp.zeros((), int), lanes, results)
        _, lanes, results = jax.lax.while_loop(unfinished, to_next_save, loop)
        over = ~self._is_running(lanes) & (lanes.run < self.runs)
        lanes = eqx.tree_at(lambda each: each.block, lanes, lanes.block + 1)

        def replaced():
            return self._refilled(lanes, over), self._ended(lanes, over, results)

        return jax.lax.cond(jnp.any(over), replaced, lambda: (lanes, results))

    def _to_next_save(self, made, begun, draws, lanes: Lanes, results: Results):
        """All steps until the first run has one to save, or the block is over."""
        running, last = self._is_running(lanes), self.save_steps.shape[0] - 1
        due = self.save_steps[jnp.minimum(lanes.saves, last)] - begun  # the place in the block of the next save
        until = jnp.min(jnp.where(running, jnp.minimum(due, self.block), self.block))
        longest = max(_STRETCH, _STEPS // running.shape[0])

        def stretch(moving):
            place, length, carry, end = moving
            length, under_way = jnp.minimum(length, until - place), end == 0
            if self.look_every is not None:
                length = jnp.minimum(length, jnp.min(self.look_every - (begun + place) % self.look_every))
            new, possible, reached = self._tried(carry, draws, begun, place, place + length)
            known = possible if self.look_every is not None else possible & ~reached  # one looks at the end alone
            taken = (length == 1) | jnp.all(~under_way | known)
            carry = self._where(taken & under_way & possible, new, carry)
            now = jnp.where(possible, jnp.where(reached, place + length, 0), -(place + 1))
            return (
                jnp.where(taken, place + length, place),
                jnp.where(taken, jnp.minimum(2 * length, longest), length // 2),
                carry,
                jnp.where(taken & under_way, now, end),
            )

        # The place after which a run ended, negative if it diverged: one number to carry, and zero for those under way.
        nowhere = self.block + 1
        moving = (made, jnp.full((), longest), lanes.carry, jnp.where(running, 0, nowhere))
        *_, carry, end = jax.lax.while_loop(lambda moving: moving[0] < until, stretch, moving)
        ends = running & (end != 0)
        outcome = jnp.where(ends, jnp.where(end > 0, Outcome.STOPPED, Outcome.DIVERGED), lanes.outcome)
        ended = jnp.where(ends, begun + jnp.abs(end), lanes.ended)
        # What is left to save of a run that has ended is written when its lane is free.
        saving = running & (due == until) & (outcome == Outcome.COMPLETED)
        lanes = Lanes(lanes.run, lanes.block, lanes.saves + saving, carry, outcome, ended, lanes.waiting)

        def saved():
            where, which = jnp.where(saving, lanes.run, self.runs), jnp.minimum(lanes.saves - 1, last)
            observed = self._observed(lanes)
            return jax.tree.map(
                lambda all_of_it, leaf: all_of_it.at[where, which].set(leaf, mode="drop"), results.saved, observed
            )

        saves = jax.lax.cond(jnp.any(saving), saved, lambda: results.saved)
        return until, lanes, Results(saves, results.outcome, results.ended)

    def _observed(self, lanes: Lanes) -> PyTree[Array]:
        return jax.vmap(self.observe, in_axes=self.axis)(lanes.carry)

    def _has_reached(self, carry) -> Bool[Array, "*lanes"]:
        if self.stop is None:
            return jnp.zeros((), bool)
        stop = self.stop

        def observed(carry):
            return stop(self.observe(carry))

        return (map_last_axis(observed, carry) if self.axis == -1 else map_in_batches(observed, carry)) >= 0

    def _is_seen_to_reach(self, carry, made: Int[Array, " lanes"]) -> Bool[Array, "*lanes"]:
        """`_has_reached` of the runs at which one looks after so many steps."""
        if self.look_every is None:
            return self._has_reached(carry)
        seen = made % self.look_every == 0
        return seen & jax.lax.cond(
            jnp.any(seen), lambda: jnp.broadcast_to(self._has_reached(carry), seen.shape), lambda: jnp.zeros_like(seen)
        )

    def _ended(self, lanes: Lanes, over, results: Results) -> Results:
        """How runs that are over ended; at what is left to save, they are as at their end."""
        run = jnp.where(over, lanes.run, self.runs)  # what others write is dropped
        left = jnp.arange(self.save_steps.shape[0]) >= lanes.saves[:, None]

        def write(saved, last):
            here = saved[jnp.minimum(run, self.runs - 1)]
            now = jnp.where(left.reshape(*left.shape, *[1] * (last.ndim - 1)), last[:, None], here)
            return saved.at[run].set(now, mode="drop")

        early = lanes.outcome != Outcome.COMPLETED
        saved = jax.lax.cond(
            jnp.any(over & early),
            lambda: jax.tree.map(write, results.saved, self._observed(lanes)),
            lambda: results.saved,
        )
        return Results(
            saved=saved,
            outcome=results.outcome.at[run].set(lanes.outcome, mode="drop"),
            ended=results.ended.at[run].set(lanes.ended, mode="drop"),
        )

    def _refilled(self, lanes: Lanes, free) -> Lanes:
        taken = lanes.waiting + jnp.cumsum(free) - 1
        new = self._loaded(taken, lanes.waiting + jnp.sum(free))
        return Lanes(
            run=jnp.where(free, jnp.minimum(taken, self.runs), lanes.run),
            block=jnp.where(free, 0, lanes.block),
            saves=jnp.where(free, new.saves, lanes.saves),
            carry=self._where(free, new.carry, lanes.carry),
            outcome=jnp.where(free, new.outcome, lanes.outcome),
            ended=jnp.where(free, 0, lanes.ended),
            waiting=new.waiting,
        )

    def _loaded(self, run: Int[Array, " lanes"], waiting: Int[Array, " one"]) -> Lanes:
        carry = map_in_batches(self.load, jnp.minimum(run, self.runs - 1))
        if self.axis == -1:
            carry = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), carry)
        lanes = run.shape[0]
        outcome = jnp.where(jnp.broadcast_to(self._has_reached(carry), lanes), Outcome.STOPPED, Outcome.COMPLETED)
        nothing = jnp.zeros(lanes, int)
        saves = jnp.full(lanes, jnp.sum(self.save_steps <= 0))
        return Lanes(run, nothing, saves, carry, outcome, nothing, waiting)

    def _tried(self, carry, draws, begun, place, until):
        """The steps from a place to another, whether all of them could be taken, and whether a run has reached its end.

        Nobody looks between the steps, which are several times faster so. What a step that cannot be taken would change
        is NaN from then on: a sign that costs less to carry than another number.
        """
        if self.block == 1:
            new, possible = self.advance(carry, draws, place, begun + place)
            return new, possible, self._is_seen_to_reach(new, begun + until)

        def step(place, trial):
            carry, reached = trial
            new, possible = self.advance(carry, draws, place, begun + place)
            new = self._marked(~possible, new, carry)
            return new, reached | self._has_reached(new) if self.look_every is None else reached

        never = jnp.zeros(() if self.stop is None else begun.shape, bool)
        new, reached = jax.lax.fori_loop(place, until, step, (carry, never))
        if self.look_every is not None:
            reached = self._is_seen_to_reach(new, begun + until)
        return new, ~self._is_marked(new), reached

    def _marked(self, condition: Bool[Array, " lanes"], new: Any, old: Any) -> Any:
        """NaN in the place of all numbers that a step changes; steps from there give NaN again."""

        def marked(new, old):
            if new is old or not eqx.is_inexact_array(new):
                return new
            return self._where(condition, jnp.full_like(new, jnp.nan), new)

        return jax.tree.map(marked, new, old)

    def _is_marked(self, carry: Any) -> Bool[Array, " lanes"]:
        def marked(leaf):
            lanes_first = jnp.moveaxis(leaf, self.axis, 0)
            return jnp.any(jnp.isnan(lanes_first), axis=tuple(range(1, leaf.ndim)))

        return functools.reduce(operator.or_, map(marked, jax.tree.leaves(eqx.filter(carry, eqx.is_inexact_array))))

    def _where(self, condition: Bool[Array, " lanes"], new: Any, old: Any) -> Any:
        def chosen(new, old):
            along = condition if self.axis == -1 else condition.reshape(-1, *[1] * (new.ndim - 1))
            return jnp.where(along, new, old)

        return jax.tree.map(chosen, new, old)


def blocks_done(lanes: Lanes, runs: int, each: int) -> int:
    """How many blocks of steps are done, of `each` for each of the `runs` of a device; a run that has ended made all.

    Lanes of several devices come one after the other.
    """
    idle = np.asarray(lanes.run) >= runs
    taken = np.minimum(np.asarray(lanes.waiting), runs).sum()
    ended = int(taken) - int(np.sum(~idle))
    return ended * each + int(np.sum(np.minimum(np.asarray(lanes.block), each)[~idle]))
