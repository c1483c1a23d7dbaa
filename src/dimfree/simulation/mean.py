"""The exact mean of SGD in dimension d where the slopes are linear in the fields: least squares."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike

from ..algorithms.online import OnlineAlgorithm, check_online
from ..errors import InvalidInput, positive_integer
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
        0.237
    """
    check_problem(problem, "spectrum")
    check_online(algorithm)
    d = positive_integer(d, "d")
    if not isinstance(problem, FieldProblem) or problem.inputs.components > 1 or problem.degree not in (0, 1, 2):
        raise InvalidInput(
            f"{problem!r} has slopes that are not linear in Gaussian fields; the mean of its runs does not close. "
            "dimfree.simulate has their law, dimfree.ode the limit."
        )
    nonlinear = algorithm.transform is not None or algorithm.measured(1, 1)
    if algorithm.sphere or nonlinear or algorithm.readout_rate is not None:
        raise InvalidInput(
            f"{algorithm!r} does not move overlaps linearly; leave out sphere and readout_rate, or use "
            "dimfree.simulate."
        )
    alphas = save_alphas(alpha, bytes_of_state(problem))
    if not isinstance(alphas, np.ndarray):
        raise InvalidInput("alpha is traced; the number of steps must be known when it is called.")
    save_steps = steps_at(alphas, algorithm.batch_size / d, "batch_size / d")
    begin = check_start(problem, start, trained=False)
    check_state(begin, sphere=False)
    check_rank(begin, problem.inputs, d)
    states = _means(problem, algorithm, algorithm.begin(begin), jnp.asarray(d, float), jnp.asarray(save_steps))
    finite = all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(states))
    if not finite:
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


@eqx.filter_jit
def _means(
    problem: FieldProblem,
    algorithm: OnlineAlgorithm,
    start: State,
    d: Float[Array, ""],
    save_steps: Int[Array, " times"],
) -> State:
    batch = algorithm.batch_size

    def step(number, state: State) -> State:
        alpha = number * batch / d
        moments = _mean_moments(problem, algorithm.seen(state, alpha)[0], batch, d)
        return algorithm.step(state, moments, 1 / d, alpha)

    def interval(carry, end):
        now, state = carry
        state = jax.lax.fori_loop(now, end, step, state)
        return (end, state), state

    return jax.lax.scan(interval, (jnp.zeros_like(save_steps[0]), start), save_steps)[1]


def _mean_moments(problem: FieldProblem, state: State, batch: int, d: Float[Array, ""]) -> Moments:
    """The mean `Moments` of a batch in dimension d."""
    inputs = problem.inputs
    fields = inputs.fields(state)
    moments = problem.mean_moments(fields, averaging(None, TOLERANCE))
    sensitivity = problem.sensitivity(fields, moments)
    found = inputs.in_blocks(moments, lambda: sensitivity, state)
    spread = sensitivity @ state.grams(STUDENTS, TEACHERS) @ sensitivity.T
    # In a block that has fewer dimensions than its fraction of d says, lengths are those that it has.
    lengths = (inputs.sizes(d) / (inputs.fractions * d))[:, None, None]
    square = lengths * jnp.broadcast_to(found.square, spread.shape) / batch
    square = square + (batch + 1) / (batch * d) * inputs.eigenvalues[:, None, None] ** 2 * spread
    return dataclasses.replace(found, square=square if found.square.ndim == 3 else square[0])
