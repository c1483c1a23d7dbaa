"""The exact mean of SGD in dimension d where the slopes are linear in the fields: least squares."""

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike

from ..algorithms.online import OnlineAlgorithm, check_online
from ..errors import InvalidInput, is_concrete, positive_integer
from ..gaussian.rules import TOLERANCE, averaging
from ..problems import FieldProblem, Moments, Problem
from ..problems.base import check_problem
from ..state import STUDENTS, TEACHERS, State, check_state
from ..trajectory import Outcome, Trajectory, bytes_of_state, check_start, provenance, save_alphas, steps_at
from .vectors import check_rank


def exact_mean(
    problem: Problem,
    algorithm: OnlineAlgorithm,
    start: State,
    d: int,
    alpha: float | ArrayLike | Array,
) -> Trajectory:
    r"""The mean of all runs of SGD in dimension d from one start, exactly, for least squares.

    Where the slopes are linear in the fields, $s = A u + \text{noise}$, the mean overlaps follow from those before:

    $$ \mathbb{E}\big[s s^\top \|P_b x\|^2 / d\big]
       = \pi_b \kappa_b \, \mathbb{E}[s s^\top] + \tfrac2d \kappa_b^2 \, A G_b A^\top, $$

    and a batch of B has $(B + 1)/B$ in the place of 2. The second term is of order 1/d where the trace is spread over
    many dimensions, and of order one where few eigenvalues carry it: there runs differ from each other, and the
    [`ode`] is not their mean. The risk of a mean State is the mean risk.

    The first 2,047 steps are made one by one. Later ones are made many at once, over which $\mathbb{E}[s s^\top]$
    hardly changes; the relative error that this makes is below 1e-6. A billion steps take as long as thirty thousand.
    Under `jit`, `vmap` and `grad` all are made one by one; a derivative by a schedule keeps States in the memory of
    about two square roots of their number.

    Holds for Gaussian inputs with any spectrum, any d, and algorithms without `sphere`.

    **Arguments:**

    - `problem`: with a loss that is quadratic in the fields, such as a linear [`TwoLayer`].
    - `algorithm`, `start`, `d`, `alpha`: as for [`simulate`].

    **Returns:** a [`Trajectory`] without runs.

    ??? example
        >>> import dimfree, numpy as np
        >>> spectrum = dimfree.Spectrum(np.arange(1.0, 61.0) ** -2)
        >>> problem = dimfree.TwoLayer(1, 1, activation="linear").with_inputs(spectrum)
        >>> mean = dimfree.exact_mean(problem, dimfree.OnlineSGD(30.0), dimfree.State(Q=[[0.0]], M=[[0.0]]), 60, 0.5)
        >>> round(float(mean.risk[-1] / mean.risk[0]), 3)
        0.285
    """
    check_problem(problem, "spectrum")
    check_online(algorithm)
    d = positive_integer(d, "d")
    missing = why_no_mean(problem, algorithm)
    if missing or not isinstance(problem, FieldProblem):
        raise InvalidInput(missing)
    alphas = save_alphas(alpha, bytes_of_state(problem))
    if not isinstance(alphas, np.ndarray):
        raise InvalidInput("alpha is traced; the number of steps must be known when it is called.")
    save_steps = steps_at(alphas, algorithm.batch_size / d, "batch_size / d")
    begin = check_start(problem, start, trained=False)
    check_state(begin, sphere=False)
    check_rank(begin, problem.inputs, d)
    sizes = problem.inputs.sizes(d)
    begun = algorithm.begin(begin)
    if is_concrete((problem, algorithm, start)):
        states = mean_states(problem, algorithm, begun, d, sizes, save_steps, _RESOLUTION)
    else:
        states = single_steps(problem, algorithm, begun, d, sizes, save_steps)
    if is_concrete(states) and not all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(states)):
        raise InvalidInput(
            f"The mean of SGD grows beyond all numbers by alpha = {alphas[-1]:.4g}; take a smaller learning rate."
        )
    return Trajectory(
        alpha=jnp.asarray(save_steps * algorithm.batch_size / d),
        state=states,
        outcome=jnp.asarray(Outcome.COMPLETED),
        stopped_at=jnp.asarray(jnp.nan),
        problem=problem,
        labels=algorithm.coordinates(problem).labels,
        provenance=provenance(simulation="exact mean of all runs", d=d, problem=problem, algorithm=algorithm),
    )


def why_no_mean(problem: Problem, algorithm: OnlineAlgorithm) -> str:
    """Why the mean of all runs does not follow from the mean before; empty where it does."""
    if not isinstance(problem, FieldProblem) or problem.inputs.components > 1 or problem.degree not in (0, 1, 2):
        return (
            f"{problem!r} has slopes that are not linear in Gaussian fields; the mean of its runs does not close. "
            "dimfree.simulate has their law, dimfree.ode the limit."
        )
    nonlinear = algorithm.transform is not None or algorithm.measured(1, 1)
    if algorithm.sphere or nonlinear or algorithm.readout_rate is not None:
        return (
            f"{algorithm!r} does not move overlaps linearly; leave out sphere and readout_rate, or use "
            "dimfree.simulate."
        )
    return ""


def _leaps(save_steps: Int[np.ndarray, " times"], resolution: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How to come from one of these steps to the next, by powers of two.

    None is longer than the part 1/resolution of the steps made before it, so that the first are single steps.

    **Returns** the step that each leap begins with, the power of two that is its length, and how many leaps have been
    made at each of the given steps.
    """
    begins, powers, done, now = [], [], [], 0
    for end in save_steps.tolist():
        while now < end:
            power = max(1, min(now // resolution, end - now)).bit_length() - 1
            begins.append(now)
            powers.append(power)
            now += 1 << power
        done.append(len(begins))
    return np.array(begins, float), np.array(powers, int), np.array(done)


_RESOLUTION = 1024  # of `exact_mean`: leaps change a mean by less than 1e-6 of it


def mean_states(
    problem: FieldProblem,
    algorithm: OnlineAlgorithm,
    start: State,
    d: float,
    sizes: Float[Array, " blocks"],
    save_steps: Int[np.ndarray, " times"],
    resolution: int,
) -> State:
    """Mean States after so many steps, with the algorithm's own vectors at the start.

    **Arguments:**

    - `sizes`: how many of the d dimensions each block has.
    - `resolution`: no leap is longer than this part of the steps before it.
    """
    begins, powers, done = map(jnp.asarray, _leaps(save_steps, resolution))
    most = int(jnp.max(powers, initial=0))
    return _means(problem, algorithm, start, jnp.asarray(d, float), sizes, begins, powers, done, most)


@eqx.filter_jit
def _means(
    problem: FieldProblem,
    algorithm: OnlineAlgorithm,
    start: State,
    d: Float[Array, ""],
    sizes: Float[Array, " blocks"],
    begins: Float[Array, " leaps"],
    powers: Int[Array, " leaps"],
    done: Int[Array, " times"],
    most: int,
) -> State:
    r"""Mean States after so many leaps.

    Given $B = \mathbb{E}[s s^\top]$, a step is an affine map of each block by itself. In a leap B is linear in time,
    and ends as the State that it leads to says, which is a linear equation for its slope. Then many steps are one
    power of a matrix that acts on the block, B, its slope and 1.
    """
    step = _LinearStep(problem, algorithm, start, d, sizes)
    count = step.products.shape[0]
    once = step.matrix(jnp.zeros(()))
    known = None if algorithm.changes else jax.lax.scan(lambda one, _: (one @ one, one), once, length=most + 1)[1]

    def matrix_of(begin, power):
        if known is not None:
            return known[power]
        middle = step.matrix(begin + (2.0**power - 1) / 2)
        return jax.lax.fori_loop(0, power, lambda _, found: found @ found, middle)

    def leap(number, blocks):
        matrix, length = matrix_of(begins[number], powers[number]), 2.0 ** powers[number]
        from_block, from_products, from_slope, rest = jnp.split(
            matrix[:, : step.size, :], np.cumsum([step.size, count, count]), axis=-1
        )
        products = step.products_of(blocks, begins[number])
        unbent = jnp.einsum("bij,bj->bi", from_block, blocks) + from_products @ products + rest[..., 0]
        reached, of_overlaps = jax.linearize(lambda end: step.products_of(end, begins[number] + length), unbent)
        bent = jax.vmap(of_overlaps, 2, 1)(from_slope)
        slope = jnp.linalg.solve(length * jnp.eye(count) - bent, reached - products)
        return unbent + from_slope @ slope

    def interval(carry, end):
        now, blocks = carry
        blocks = jax.lax.fori_loop(now, end, leap, blocks)
        return (end, blocks), blocks

    first = jnp.zeros_like(done[0]), step.pack(start)
    return jax.vmap(step.unpack)(jax.lax.scan(interval, first, done)[1])


def single_steps(
    problem: FieldProblem,
    algorithm: OnlineAlgorithm,
    start: State,
    d: float,
    sizes: Float[Array, " blocks"],
    save_steps: Int[np.ndarray, " times"],
) -> State:
    """The same, by single steps, which can be differentiated: as many States are kept as the square root of the steps.

    A derivative makes the steps of a chunk again from the State that it begins with.
    """
    step = _LinearStep(problem, algorithm, start, jnp.asarray(d, float), sizes)
    length = max(1, math.isqrt(int(save_steps[-1])))
    chunks = max(1, -(-int(save_steps[-1]) // length))
    # Where in its chunk each State to save is, after the step of this number; those at the start are in none.
    later = np.flatnonzero(save_steps > 0)
    chunk, place = np.divmod(save_steps[later] - 1, length)
    slot = np.arange(len(later)) - np.searchsorted(chunk, chunk)
    places = np.zeros((chunks, int(slot.max(initial=0)) + 1), int)
    places[chunk, slot] = place

    def one(blocks, number):
        blocks = step.once(blocks, number)
        return blocks, blocks

    @jax.checkpoint
    def many(blocks, part):
        number, kept = part
        blocks, passed = jax.lax.scan(one, blocks, number * length + jnp.arange(length, dtype=float))
        return blocks, passed[kept]

    first = step.pack(start)
    _, found = jax.lax.scan(many, first, (jnp.arange(chunks, dtype=float), jnp.asarray(places)))
    states = jnp.broadcast_to(first, (len(save_steps), *first.shape)).at[later].set(found[chunk, slot])
    return jax.vmap(step.unpack)(states)


class _LinearStep:
    """The mean step of least squares in dimension d, as a matrix that acts on the overlaps of each block.

    **Attributes:**

    - `size`: how many overlaps of a block move.
    - `products`: what the noise of the labels has in the mean of $s s^\\top$, as a vector.
    """

    def __init__(self, problem: FieldProblem, algorithm: OnlineAlgorithm, start: State, d: Array, sizes: Array):
        self.problem, self.algorithm, self.start, self.d, self.sizes = problem, algorithm, start, d, sizes
        p, k = problem.width, problem.teacher_width
        # Slopes are linear in the fields, so that any fields tell how.
        apart = State(Q=jnp.eye(p), M=jnp.zeros((p, k)), readout=start.readout)
        moments = problem.mean_moments(apart, averaging(None, TOLERANCE))
        self.sensitivity = problem.sensitivity(apart, moments)
        noise = moments.square - self.sensitivity @ self.sensitivity.T
        self.products = noise.reshape(-1)
        self.moving = [pair for pair in start.overlaps if pair != (TEACHERS, TEACHERS)]
        self.size = self.pack(start).shape[-1]

    def pack(self, state: State) -> Float[Array, "blocks size"]:
        return jnp.concatenate([state.overlaps[pair].reshape(state.blocks, -1) for pair in self.moving], axis=-1)

    def unpack(self, blocks: Float[Array, "blocks size"]) -> State:
        shapes = [self.start.overlaps[pair].shape for pair in self.moving]
        parts = jnp.split(blocks, np.cumsum([rows * columns for _, rows, columns in shapes])[:-1], axis=-1)
        moved = {pair: part.reshape(shape) for pair, part, shape in zip(self.moving, parts, shapes, strict=True)}
        overlaps = {pair: moved.get(pair, fixed) for pair, fixed in self.start.overlaps.items()}
        return State.of(overlaps, self.start.readout, self.start.numbers)

    def products_of(self, blocks: Float[Array, "blocks size"], number: Float[Array, ""]) -> Float[Array, " products"]:
        r"""The mean of $s s^\top$ before a step."""
        seen = self.algorithm.seen(self.unpack(blocks), number * self.algorithm.batch_size / self.d)[0]
        covariance = self.problem.inputs.fields(seen).covariance
        return self.products + (self.sensitivity @ covariance @ self.sensitivity.T).reshape(-1)

    def matrix(self, number: Float[Array, ""]) -> Float[Array, "blocks n n"]:
        """One step, as it acts on the overlaps of a block, the products, their slope, and 1."""
        count, blocks = self.products.shape[0], self.start.blocks
        nothing, no_products = jnp.zeros((blocks, self.size)), jnp.zeros(count)
        rest, along = jax.linearize(lambda y, B: self._step(y, B, number), nothing, no_products)
        # Blocks move by themselves, so that all of them are tried at once.
        by_block = jax.vmap(lambda one: along(jnp.broadcast_to(one, nothing.shape), no_products), 0, 2)
        by_products = jax.vmap(lambda one: along(nothing, one), 0, 2)
        moved = jnp.concatenate(
            [
                by_block(jnp.eye(self.size)),
                by_products(jnp.eye(count)),
                jnp.zeros((*nothing.shape, count)),
                rest[..., None],
            ],
            axis=-1,
        )
        kept = jnp.eye(2 * count + 1, self.size + 2 * count + 1, self.size) + jnp.zeros((blocks, 1, 1))
        kept = kept.at[:, :count, self.size + count : -1].add(jnp.eye(count))
        return jnp.concatenate([moved, kept], axis=-2)

    def once(self, blocks: Float[Array, "blocks size"], number: Float[Array, ""]) -> Float[Array, "blocks size"]:
        """The overlaps after the step of this number."""
        return self._step(blocks, self.products_of(blocks, number), number)

    def _step(self, blocks, products, number):
        batch, inputs, p = self.algorithm.batch_size, self.problem.inputs, self.problem.width
        alpha, state = number * batch / self.d, self.unpack(blocks)
        seen = self.algorithm.seen(state, alpha)[0]
        along = self.sensitivity @ inputs.fields(seen).covariance
        moments = Moments(student=along[:, :p], teacher=along[:, p:], square=products.reshape(p, p), readout=None)
        found = inputs.in_blocks(moments, lambda: self.sensitivity, seen)
        spread = self.sensitivity @ seen.grams(STUDENTS, TEACHERS) @ self.sensitivity.T
        # In a block that has fewer dimensions than its fraction of d says, lengths are those that it has.
        lengths = (self.sizes / (inputs.fractions * self.d))[:, None, None]
        square = lengths * jnp.broadcast_to(found.square, spread.shape) / batch
        square = square + (batch + 1) / (batch * self.d) * inputs.eigenvalues[:, None, None] ** 2 * spread
        found = dataclasses.replace(found, square=square if found.square.ndim == 3 else square[0])
        return self.pack(self.algorithm.step(state, found, 1 / self.d, alpha))
