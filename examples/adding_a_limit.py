r"""A new limit, as one is added to the library: the ODE with the mean of a step in finite dimension.

As d grows $\|x\|^2 / d$ tends to one. At finite d it is correlated with the fields: in the frame of the weights the
input has r = p + k coordinates $\xi$ with $|\xi|^2 = u^\top \Omega^{-1} u$, u the fields, and d - r others, so that

$$ \mathbb{E}\Big[ s s^\top \frac{\|x\|^2}{d} \Big]
   = \mathbb{E}[s s^\top] + \frac1d \, \mathbb{E}\big[ s s^\top (u^\top \Omega^{-1} u - r) \big] . $$

With this in place of $\mathbb{E}[s s^\top]$ the drift is exactly the mean change of the State in a step, times d.

`docs/contributing/adding_a_limit.md` explains it, and `tests/test_examples.py` tests it. As a part of the library it
would be `src/dimfree/limits/finite_dimension.py`.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import dimfree
from dimfree.algorithms.schedules import rate_at
from dimfree.errors import InvalidInput, positive_integer
from dimfree.limits import MeanLimit
from dimfree.problems import FieldProblem


class FiniteDimensionLimit(MeanLimit):
    """The ODE whose drift is the mean of a step in dimension d. Use `finite_dimension_ode` to make one."""

    d: Float[Array, ""]

    @eqx.filter_jit
    def drift(self, alpha: Float[Array, ""] | float, state: dimfree.State) -> dimfree.State:
        """The derivative of the State with respect to alpha."""
        assert isinstance(self.problem, FieldProblem)
        state = self.problem.completed(state)
        moments = self.problem.mean_moments(state, self.averaging)
        inverse = jnp.linalg.inv(state.covariance)
        excess = self.problem.average(_square_times_excess_norm, inverse, state, self.averaging)
        moments = eqx.tree_at(lambda m: m.square, moments, moments.square + excess / self.d)
        return self._drift(alpha, state, moments)


def _square_times_excess_norm(problem: FieldProblem, sample, inverse) -> Float[Array, "p p"]:
    """$s s^T (u^T Omega^-1 u - r)$ of one sample. The matrix is an argument: closing over traced values is an error."""
    slopes, _ = problem.gradients(sample.student, sample.teacher, sample.noise, sample.readout, sample.label)
    fields = jnp.concatenate([sample.student, sample.teacher])
    return jnp.outer(slopes, slopes) * (fields @ inverse @ fields - fields.size)


def finite_dimension_ode(problem: FieldProblem, algorithm: dimfree.OnlineSGD, d: int) -> FiniteDimensionLimit:
    """The ODE with the exact mean of a step in dimension d.

    Holds for Gaussian inputs, batches of one, no sphere and no ridge: then the step is linear in 1/d but for the norm
    of the input. The mean over runs still differs from its solution by order 1/d, because runs fluctuate and the drift
    is curved.

    **Arguments:**

    - `problem`, `algorithm`: what is learned, and how.
    - `d`: the dimension.
    """
    if not isinstance(problem, FieldProblem) or not problem.inputs.is_standard:
        raise InvalidInput(
            f"problem = {problem!r} was given; the norm of the input is known for standard Gaussian inputs only. "
            "Use dimfree.ode."
        )
    if algorithm.sphere or algorithm.batch_size > 1 or float(rate_at(algorithm.ridge, jnp.zeros(()))) > 0:
        raise InvalidInput(
            f"algorithm = {algorithm!r} was given; the mean of a step is linear in 1/d without sphere, ridge and "
            "batches only. Use dimfree.ode, or simulate."
        )
    d = positive_integer(d, "d")
    mean = dimfree.ode(problem, algorithm)
    return FiniteDimensionLimit(
        mean.problem, mean.algorithm, mean.averaging, second_order=True, d=jnp.asarray(d, float)
    )


if __name__ == "__main__":
    start = dimfree.State(Q=[[1.0]], M=[[0.3]])
    problem, sgd, d = dimfree.PhaseRetrieval(noise=0.5), dimfree.OnlineSGD(0.05), 20
    runs = dimfree.simulate(problem, sgd, start, d, [0.0, 1 / d], runs=50_000, key=jax.random.key(0))
    measured = d * (runs.state.Q[:, -1, 0, 0] - 1)
    print(f"drift of Q in d = {d}: {measured.mean():.4f} +- {measured.std() / len(measured) ** 0.5:.4f}, measured")
    print(f"  finite d: {finite_dimension_ode(problem, sgd, d).drift(0.0, start).Q[0, 0]:.4f}")
    print(f"  infinite: {dimfree.ode(problem, sgd).drift(0.0, start).Q[0, 0]:.4f}")
