"""The loop that every simulation runs: blocks of steps, saves, early stop."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from ..state import State
from ..trajectory import Outcome


def is_bounded(fields: Float[Array, "B p"], slopes: Float[Array, "B p"]) -> Bool[Array, ""]:
    """Whether a step can be taken: fields and gradients of order one, not on their way to infinity.

    It looks at what exact and vector simulation share, so that both call the same runs diverged.
    """
    return jnp.all(jnp.abs(fields) < 1e4) & jnp.all(jnp.abs(slopes) < 1e8)


def iterate(
    *,
    draw: Callable[[PRNGKeyArray], PyTree[Array]],
    advance: Callable[[Any, PyTree[Array], Int[Array, ""]], tuple[Any, Array]],
    observe: Callable[[Any], State],
    initial: Any,
    keys: Shaped[Array, "runs ..."],
    save_steps: Int[Array, " times"],
    block: int,
    stop: Callable[[State], Array] | None,
) -> tuple[State, Array, Array]:
    """States at the saved steps, step of the event and outcome, for each run.

    Random numbers are drawn for a block of steps at once, because one large draw is several times cheaper than many
    small ones. They depend on the run's key and the block only, so a run does not depend on which others it is
    computed with. The loop ends with the last save, or when no run is left.

    **Arguments:**

    - `draw`: random numbers for `block` steps of one run, with that leading axis.
    - `advance`: one step of one run: (carry, draws, steps made before) to (carry, whether the step could be taken).
    - `observe`: the State of a carry.
    - `initial`, `keys`: carry and random key of each run, along a leading axis.
    - `save_steps`: increasing numbers of steps to save after.
    - `stop`: a run ends when this function of the State reaches zero.
    """
    runs = keys.shape[0]
    total = save_steps[-1]
    states = jax.vmap(observe)(initial)
    saved = jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], save_steps.shape[0], axis=1), states)

    def has_reached(carry):
        return jnp.zeros(runs, bool) if stop is None else jax.vmap(stop)(jax.vmap(observe)(carry)) >= 0

    def one_step(loop, item):
        carry, outcome, ended = loop
        step, draws = item
        new, finite = jax.vmap(advance, in_axes=(0, 0, None))(carry, draws, step)
        running = (outcome == Outcome.COMPLETED) & (step < total)
        carry = jax.tree.map(
            lambda a, b: jnp.where((running & finite).reshape(-1, *[1] * (a.ndim - 1)), a, b), new, carry
        )
        reached = has_reached(carry) & running
        outcome = jnp.where(running & ~finite, Outcome.DIVERGED, jnp.where(reached, Outcome.STOPPED, outcome))
        ended = jnp.where(running & (~finite | reached), step + 1, ended)
        return (carry, outcome, ended), carry

    def one_block(loop):
        number, carry, outcome, ended, saved = loop
        draws = jax.vmap(lambda key: draw(jax.random.fold_in(key, number)))(keys)
        draws = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), draws)
        steps = number * block + jnp.arange(block)
        (carry, outcome, ended), history = jax.lax.scan(one_step, (carry, outcome, ended), (steps, draws))
        position = save_steps - number * block - 1

        def write(saved):
            inside = (position >= 0) & (position < block)
            states = jax.vmap(jax.vmap(observe))(history)
            here = jax.tree.map(lambda leaf: jnp.swapaxes(leaf[jnp.clip(position, 0, block - 1)], 0, 1), states)
            return jax.tree.map(lambda a, b: jnp.where(inside.reshape(1, -1, *[1] * (a.ndim - 2)), a, b), here, saved)

        saved = jax.lax.cond(jnp.any((position >= 0) & (position < block)), write, lambda s: s, saved)
        return number + 1, carry, outcome, ended, saved

    def unfinished(loop):
        number, _, outcome, _, _ = loop
        return (number * block < total) & jnp.any(outcome == Outcome.COMPLETED)

    outcome = jnp.where(has_reached(initial), Outcome.STOPPED, Outcome.COMPLETED)
    loop = (0, initial, outcome, jnp.zeros(runs, int), saved)
    number, carry, outcome, ended, saved = jax.lax.while_loop(unfinished, one_block, loop)
    # Saves that were not reached because every run had ended repeat the last State, as within a block.
    last = jax.vmap(observe)(carry)
    missing = save_steps > number * block
    saved = jax.tree.map(
        lambda a, b: jnp.where(missing.reshape(1, -1, *[1] * (a.ndim - 2)), b[:, None], a), saved, last
    )
    return saved, ended, outcome
