"""The loop that every simulation runs: lanes of runs, blocks of steps, saves, early stop."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree, Shaped

from ..batches import map_in_batches
from ..trajectory import Outcome

BLOCK = 128  # steps whose random numbers are drawn together; fixed, so that results do not depend on the machine
LANES = 128  # runs at a time on a device; more do not fit in its cache and are slower


class Results(eqx.Module):
    """What is kept of each run: what was observed at the saved steps, how it ended, after how many steps if early."""

    saved: PyTree[Array]
    outcome: Int[Array, " runs"]
    ended: Int[Array, " runs"]


class Lanes(eqx.Module):
    """The runs under way, each in a lane; a lane whose run has ended takes the next one that waits."""

    run: Int[Array, " lanes"]
    block: Int[Array, " lanes"]
    carry: Any
    outcome: Int[Array, " lanes"]
    ended: Int[Array, " lanes"]
    waiting: Int[Array, " one"]  # the first run that no lane has taken


class Loop(eqx.Module):
    """One step of SGD repeated, for many runs.

    Random numbers are drawn for a block of steps at once, because one large draw is several times cheaper than many
    small ones. They depend on the run's key and the block only, so a run does not depend on which others it is
    computed with. Runs end at different times (events, divergence): lanes that are free take the runs that wait, so
    that no lane idles while there is work.

    **Attributes:**

    - `load`: the carry of a run, before its first step, by its number.
    - `draw`: random numbers for `block` steps of one run, with that leading axis.
    - `advance`: one step of the runs of all lanes, along a leading axis: (carries, draws, steps made before) to
      (carries, whether the step could be taken).
    - `observe`: what is kept and looked at of a carry, such as its State.
    - `stop`: a run ends when this function of what is observed reaches zero.
    - `keys`: random key of each run.
    - `save_steps`: increasing numbers of steps to save after.
    """

    load: Callable[[Int[Array, ""]], Any]
    draw: Callable[[PRNGKeyArray], PyTree[Array]]
    advance: Callable[[Any, PyTree[Array], Int[Array, " lanes"]], tuple[Any, Array]]
    observe: Callable[[Any], PyTree[Array]]
    stop: Callable[[Any], Array] | None
    keys: Shaped[Array, "runs ..."]
    save_steps: Int[Array, " times"]
    block: int = eqx.field(static=True)

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

        def unfinished(loop):
            made, lanes, _ = loop
            return (made < blocks) & self.is_unfinished(lanes)

        def one_block(loop):
            made, lanes, results = loop
            return made + 1, *self._block(lanes, results)

        return jax.lax.while_loop(unfinished, one_block, (jnp.zeros((), int), lanes, results))[1:]

    def is_unfinished(self, lanes: Lanes) -> Bool[Array, ""]:
        """Whether a run is under way."""
        return jnp.any(lanes.run < self.runs)

    def _block(self, lanes: Lanes, results: Results) -> tuple[Lanes, Results]:
        keys = self.keys[jnp.minimum(lanes.run, self.runs - 1)]
        draws = jax.vmap(lambda key, number: self.draw(jax.random.fold_in(key, number)))(keys, lanes.block)
        draws = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), draws)
        begun = lanes.block * self.block
        moving = (lanes.carry, lanes.outcome, lanes.ended)
        inputs = (jnp.arange(self.block), draws)
        (carry, outcome, ended), history = jax.lax.scan(
            lambda moving, item: self._step(moving, begun + item[0], item[1]), moving, inputs
        )
        over = (outcome != Outcome.COMPLETED) | (begun + self.block >= self.save_steps[-1])
        lanes = Lanes(lanes.run, lanes.block + 1, carry, outcome, ended, lanes.waiting)
        position = self.save_steps - begun[:, None] - 1
        to_save = jnp.any((position >= 0) & (position < self.block)) | jnp.any(over)
        results = jax.lax.cond(to_save, lambda: self._saved(lanes, over, position, history, results), lambda: results)
        free = over & (lanes.run < self.runs)
        return jax.lax.cond(jnp.any(free), lambda: self._refilled(lanes, free), lambda: lanes), results

    def _step(self, moving, step, draws):
        carry, outcome, ended = moving
        new, finite = self.advance(carry, draws, step)
        running = (outcome == Outcome.COMPLETED) & (step < self.save_steps[-1])
        carry = _where(running & finite, new, carry)
        reached = self._has_reached(carry) & running
        outcome = jnp.where(running & ~finite, Outcome.DIVERGED, jnp.where(reached, Outcome.STOPPED, outcome))
        ended = jnp.where(running & (~finite | reached), step + 1, ended)
        return (carry, outcome, ended), carry

    def _has_reached(self, carry) -> Bool[Array, " lanes"]:
        if self.stop is None:
            return jnp.zeros(jax.tree.leaves(carry)[0].shape[0], bool)
        stop = self.stop
        return map_in_batches(lambda carry: stop(self.observe(carry)), carry) >= 0

    def _saved(self, lanes: Lanes, over, position, history, results: Results) -> Results:
        """What was observed in this block written where it belongs; a run that is over repeats its last."""
        run = lanes.run  # lanes without a run point outside, and what they write is dropped
        inside, beyond = (position >= 0) & (position < self.block), over[:, None] & (position >= self.block)
        states = jax.vmap(jax.vmap(self.observe))(history)
        last = jax.vmap(self.observe)(lanes.carry)

        def write(saved, states, last):
            here = jax.vmap(lambda each, at: each[at], in_axes=(1, 0))(states, jnp.clip(position, 0, self.block - 1))
            axes = [1] * (here.ndim - 2)
            now = jnp.where(inside.reshape(*inside.shape, *axes), here, saved[run])
            now = jnp.where(beyond.reshape(*beyond.shape, *axes), last[:, None], now)
            return saved.at[run].set(now, mode="drop")

        return Results(
            saved=jax.tree.map(write, results.saved, states, last),
            outcome=results.outcome.at[run].set(lanes.outcome, mode="drop"),
            ended=results.ended.at[run].set(lanes.ended, mode="drop"),
        )

    def _refilled(self, lanes: Lanes, free) -> Lanes:
        taken = lanes.waiting + jnp.cumsum(free) - 1
        new = self._loaded(taken, lanes.waiting + jnp.sum(free))
        return Lanes(
            run=jnp.where(free, jnp.minimum(taken, self.runs), lanes.run),
            block=jnp.where(free, 0, lanes.block),
            carry=_where(free, new.carry, lanes.carry),
            outcome=jnp.where(free, new.outcome, lanes.outcome),
            ended=jnp.where(free, 0, lanes.ended),
            waiting=new.waiting,
        )

    def _loaded(self, run: Int[Array, " lanes"], waiting: Int[Array, " one"]) -> Lanes:
        carry = map_in_batches(self.load, jnp.minimum(run, self.runs - 1))
        outcome = jnp.where(self._has_reached(carry), Outcome.STOPPED, Outcome.COMPLETED)
        nothing = jnp.zeros(run.shape[0], int)
        return Lanes(run, nothing, carry, outcome, nothing, waiting)


def blocks_done(lanes: Lanes, runs: int, each: int) -> int:
    """How many blocks of steps are done, of `each` for each of the `runs` of a device; a run that has ended made all.

    Lanes of several devices come one after the other.
    """
    idle = np.asarray(lanes.run) >= runs
    taken = np.minimum(np.asarray(lanes.waiting), runs).sum()
    ended = int(taken) - int(np.sum(~idle))
    return ended * each + int(np.sum(np.minimum(np.asarray(lanes.block), each)[~idle]))


def _where(condition, new, old):
    return jax.tree.map(lambda a, b: jnp.where(condition.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, old)
