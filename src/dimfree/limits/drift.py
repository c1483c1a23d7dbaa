"""The mean of the increment: gradient flow, and the ODE limit with its correction at finite learning rate."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms import OnlineSGD
from ..algorithms.online import check_online_sgd
from ..errors import InvalidInput, shown
from ..gaussian.rules import TOLERANCE, Accuracy, Averaging, Rule, Trapezoid, averaging
from ..problems import FieldProblem, Moments, Problem
from ..problems.base import check_problem
from ..state import Coordinates, State


class MeanLimit(eqx.Module):
    r"""The deterministic limit $d \to \infty$: the State follows the mean of its increment.

    $$ \frac{d \, \text{State}}{d\alpha} = \frac{1}{B} \, \mathbb{E}[\text{increment}(\text{State})] $$

    Use [`ode`] or [`gradient_flow`] to make one.
    """

    problem: Problem
    algorithm: OnlineSGD
    averaging: Averaging
    second_order: bool = eqx.field(static=True)

    @property
    def coordinates(self) -> Coordinates:
        """The numbers that move."""
        return self.algorithm.coordinates(self.problem)

    @property
    def is_closed_form(self) -> bool:
        """Whether the drift is known without quadrature."""
        return self.rule is None

    @property
    def rule(self) -> Rule | Trapezoid | None:
        """The quadrature of the drift; None where it is a closed form."""
        return self.problem.mean_rule(self.averaging)

    @property
    def expectation(self) -> str:
        """How the averages of the drift are taken, in words."""
        return "closed form" if self.rule is None else self.rule.words(self.problem.seen_fields)

    @eqx.filter_jit
    def drift(self, alpha: Float[Array, ""] | float, state: State) -> State:
        """The derivative of the State with respect to alpha."""
        state = self.problem.completed(state)
        return self._drift(alpha, state, self.problem.mean_moments(state, self.averaging))

    def _drift(self, alpha, state: State, moments: Moments) -> State:
        moments = self.algorithm.limit_moments(moments)
        if not self.second_order:
            moments = eqx.tree_at(lambda m: m.square, moments, jnp.zeros_like(moments.square))
        tangent = self.algorithm.increment(state, moments, jnp.asarray(alpha, float))
        per_sample = 1 / self.algorithm.batch_size
        return State(
            Q=per_sample * tangent.Q,
            M=per_sample * tangent.M,
            P=tangent.P,
            readout=None if tangent.readout is None else per_sample * tangent.readout,
        )

    def vector_field(self, alpha, vector: Float[Array, " n"], like: State) -> Float[Array, " n"]:
        """The drift on the coordinates, for a solver."""
        return self.coordinates.pack(self.drift(alpha, self.coordinates.unpack(vector, like)))

    def expectation_error(self, state: State, alpha: float = 0.0) -> Float[Array, ""]:
        """Estimated error of the drift at this State from the quadrature: largest entry; zero for closed forms.

        It bounds the error in all but one of a hundred States, by averages taken otherwise: on a grid half a
        spacing away, over points scrambled anew.
        """
        return jnp.zeros(()) if self.is_closed_form else self.accuracy(state, alpha).error

    def accuracy(self, state: State, alpha: float = 0.0) -> Accuracy:
        """`expectation_error` and `drift_size` at once, where there is a quadrature."""

        def average(by: Averaging):
            return eqx.tree_at(lambda limit: limit.averaging, self, by)._drift_and_size(alpha, state)

        return self.averaging.accuracy(self.rule, average)

    def drift_size(self, state: State, alpha: float = 0.0) -> Float[Array, ""]:
        r"""The size of what is averaged in the drift, to which its tolerance is relative.

        It is the drift with $\sqrt{\mathbb{E}[s_i^2] \, \mathbb{E}[u_b^2]}$ in place of $\mathbb{E}[s_i u_b]$: near a
        fixed point averages cancel, and are known no better for it.
        """
        return self._drift_and_size(alpha, state)[1]

    @eqx.filter_jit
    def _drift_and_size(self, alpha, state: State) -> tuple[Float[Array, " n"], Float[Array, ""]]:
        state = self.problem.completed(state)
        moments = self.problem.mean_moments(state, self.averaging)
        slopes = jnp.sqrt(jnp.maximum(jnp.diagonal(moments.square), 0.0))[:, None]
        norms, teachers = (jnp.sqrt(jnp.maximum(jnp.diagonal(matrix), 0.0)) for matrix in (state.Q, state.P))
        nothing = jnp.zeros_like(moments.square)
        linear = Moments(slopes * norms, slopes * teachers, nothing, moments.readout)
        square = Moments(nothing, jnp.zeros_like(moments.teacher), moments.square, moments.readout)
        still = State(jnp.zeros_like(state.Q), jnp.zeros_like(state.M), state.P, state.readout)
        parts = [self.coordinates.pack(self._drift(alpha, still, part)) for part in (linear, square)]
        size = sum((jnp.max(jnp.abs(part)) for part in parts), jnp.zeros(()))
        return self.coordinates.pack(self._drift(alpha, state, moments)), size


def ode(
    problem: Problem, algorithm: OnlineSGD, expectation: Rule | None = None, *, tolerance: float = TOLERANCE
) -> MeanLimit:
    r"""The ODE limit: what SGD does as $d \to \infty$ at fixed alpha = samples / d and fixed learning rate.

    It contains the term of second order in the learning rate, which survives because $\|x\|^2$ is of order d. One run
    in dimension d stays within $O(d^{-1/2})$ of it. On a plateau of vanishing overlap it needs the overlap that a
    random start has in dimension d, $O(d^{-1/2})$: see [`random_state`].

    **Arguments:**

    - `problem`, `algorithm`: what is learned, and how.
    - `tolerance`: relative error of averages over the fields where they are not closed forms. The nodes follow the
      State, so that it holds along the whole trajectory; where it cannot be met (kinks without closed forms, many
      fields) [`solve`] says what was.
    - `expectation`: a rule (`GaussHermite`, `Sobol`) to average with instead.

    Saad & Solla 1995; Arnaboldi et al. 2023, eq. (11), where the factors learning_rate / (p d) belong to the clock;
    Ben Arous et al. 2022, Theorem 2.2.
    """
    return _mean_limit(problem, algorithm, averaging(expectation, tolerance), second_order=True)


def gradient_flow(
    problem: Problem, algorithm: OnlineSGD, expectation: Rule | None = None, *, tolerance: float = TOLERANCE
) -> MeanLimit:
    """The limit of vanishing learning rate, on the same clock: the ODE without its second-order term.

    It holds for learning_rate -> 0 at fixed learning_rate * alpha; at finite learning rate it differs from SGD at
    order one, whatever d is.
    """
    return _mean_limit(problem, algorithm, averaging(expectation, tolerance), second_order=False)


def check_mean_limit(limit: object) -> None:
    """An error if this is no ODE."""
    if not isinstance(limit, MeanLimit):
        raise InvalidInput(
            f"limit = {shown(limit)} was given; pass dimfree.ode(problem, algorithm) or dimfree.gradient_flow(...)."
        )


def _mean_limit(problem, algorithm, by: Averaging, *, second_order: bool) -> MeanLimit:
    check_problem(problem)
    check_online_sgd(algorithm)
    if by.rule is not None and not isinstance(problem, FieldProblem):
        raise InvalidInput(
            f"{problem!r} has no fields to average over: its limit is a closed form; leave out expectation."
        )
    if algorithm.readout_rate is not None and problem.readout is None:
        raise InvalidInput(
            "readout_rate was given, but the problem has no readout to train; give it one (readout=...)."
        )
    return MeanLimit(problem, algorithm, by, second_order)
