"""Wide networks: the mean of the increment over neurons, at a cost proportional to their number."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms import OnlineSGD
from ..algorithms.online import check_online_sgd
from ..errors import InvalidInput, flag, is_concrete, require
from ..gaussian.half_range import HalfRange
from ..gaussian.rules import TOLERANCE, Accuracy, Averaging, Rule, Trapezoid, averaging
from ..integration import Settings
from ..problems import Moments, MultiIndex, TwoLayer
from ..problems.base import check_problem
from ..problems.wide import NeuronMoments, neuron_moments, teacher_rule
from ..state import State, WideCoordinates, WideState, check_wide_state
from ..trajectory import Trajectory, bytes_of_state, check_fits
from .diffusion import as_dimension
from .limit import Averages, Limit


class MeanFieldLimit(Limit[Trajectory]):
    r"""The dimension-free limit of wide networks: p neurons that see each other through their mean output only.

    $$ \frac{dM_i}{d\alpha} = \frac{1}{B} \, \mathbb{E}[\text{increment}(M_i)], \qquad
       \frac{dq_{\perp,i}}{d\alpha} = \frac{dQ_{ii}}{d\alpha} - 2 \, \frac{dM_i}{d\alpha} P^{-1} M_i^\top $$

    with averages over $Q = M P^{-1} M^\top + \text{diag}(q_\perp)$. Use [`mean_field`] to make one.
    """

    problem: TwoLayer | MultiIndex
    algorithm: OnlineSGD
    averaging: Averaging
    cosine_variance: Float[Array, ""]
    infinite_width: bool = eqx.field(static=True)

    @property
    def name(self) -> str:
        return "mean field"

    @property
    def own_sources(self) -> tuple[str, ...]:
        return ("saad1995", "loureiro2023")

    @property
    def averages(self) -> dict[str, Averages]:
        return {"drift": Averages.by(self.averaging, self.expectation, self.rule, self.accuracy)}

    def prepare(self, start: State | WideState, settings: Settings) -> WideState:
        return self.start(start)

    def saved_bytes(self, settings: Settings) -> int:
        return bytes_of_state(self.problem, wide=True)

    @property
    def coordinates(self) -> WideCoordinates:
        """The numbers that move."""
        readout_size = self.problem.width if self.algorithm.readout_rate is not None else 0
        return WideCoordinates(self.problem.width, self.problem.teacher_width, readout_size, self.algorithm.sphere)

    @property
    def expectation(self) -> str:
        """How averages over the teacher's fields are taken, in words."""
        return self.rule.words(self.problem.teacher_width).replace(" fields", " teacher fields")

    @property
    def rule(self) -> Rule | HalfRange | Trapezoid:
        """The quadrature over the teacher's fields."""
        return teacher_rule(self.problem, self.averaging)

    def start(self, start: State | WideState) -> WideState:
        """A start as this limit sees it; of a [`State`] the overlaps between different students are left out."""
        if not isinstance(start, State | WideState):
            raise InvalidInput(
                f"start = {start!r} was given; pass dimfree.State(...), dimfree.WideState(M=..., q_perp=...) or "
                "dimfree.random_state(..., wide=True)."
            )
        check_fits(self.problem, start)
        wide = WideState.of(start) if isinstance(start, State) else start
        check_wide_state(wide, sphere=self.algorithm.sphere)
        readout = self.problem.readout_of(wide)
        return WideState(wide.M, wide.q_perp, wide.P, readout, self.cosine_variance, self.infinite_width)

    @eqx.filter_jit
    def drift(self, alpha: Float[Array, ""] | float, state: WideState) -> WideState:
        """The derivative of the WideState with respect to alpha."""
        return self._drift(alpha, state, neuron_moments(self.problem, state, self.averaging))

    def _drift(self, alpha, state: WideState, averages: NeuronMoments) -> WideState:
        algorithm, inverse_P = self.algorithm, jnp.linalg.inv(state.P)
        alpha = jnp.asarray(alpha, float)

        def of_neuron(norm, M, readout, own: NeuronMoments) -> State:
            # A step moves the norm, the overlaps and the readout of a neuron by its own moments only.
            alone = State(Q=norm[None, None], M=M[None], P=state.P, readout=readout[None])
            square = jnp.zeros(()) if state.density else own.square
            moments = Moments(
                student=(M @ inverse_P @ own.teacher + own.orthogonal)[None, None],
                teacher=own.teacher[None],
                square=square[None, None],
                readout=own.readout[None],
            )
            return algorithm.increment(alone, algorithm.limit_moments(moments), alpha)

        tangent = jax.vmap(of_neuron)(state.norms, state.M, self.problem.readout_of(state), averages)
        per_sample = 1 / algorithm.batch_size
        d_norm, d_M = per_sample * tangent.Q[:, 0, 0], per_sample * tangent.M[:, 0]
        d_readout = None if tangent.readout is None else per_sample * tangent.readout[:, 0]
        d_q_perp = d_norm - 2 * jnp.sum((d_M @ inverse_P) * state.M, axis=1)
        return WideState(d_M, d_q_perp, jnp.zeros_like(state.P), d_readout, 0.0, state.density)

    def vector_field(self, alpha, values: Float[Array, " n"], like: WideState) -> Float[Array, " n"]:
        """The drift on the coordinates, for a solver."""
        return self.coordinates.pack(self.drift(alpha, self.coordinates.unpack(values, like)))

    def expectation_error(self, state: WideState, alpha: float = 0.0) -> Float[Array, ""]:
        """Estimated error of the drift at this WideState from the quadrature: largest entry, as for [`ode`]."""
        return self.accuracy(state, alpha).error

    def accuracy(self, state: WideState, alpha: float = 0.0) -> Accuracy:
        """`expectation_error`, and the largest entry of the drift, to which its tolerance is relative."""

        def average(by: Averaging):
            drift = eqx.tree_at(lambda limit: limit.averaging, self, by).drift(alpha, state)
            values = self.coordinates.pack(drift)
            return values, jnp.max(jnp.abs(values))

        return self.averaging.accuracy(self.rule, average)


def mean_field(
    problem: TwoLayer | MultiIndex,
    algorithm: OnlineSGD,
    d: float | Array | None = None,
    *,
    infinite_width: bool = False,
    rule: Rule | None = None,
    tolerance: float = TOLERANCE,
) -> MeanFieldLimit:
    r"""The limit of wide networks: p neurons at a cost proportional to p, not p^2.

    In a wide network of random neurons the parts of the weights outside the teacher's span stay in directions of their
    own, $Q = M P^{-1} M^\top + \text{diag}(q_\perp)$, and given the teacher's fields the neurons are independent. Each
    then sees the others through their mean output, and the density of $(M_i, q_{\perp,i}, a_i)$ follows a transport
    equation, of which the neurons are the particles:
    $$ \partial_t \mu_t + \nabla \cdot \big( \mu_t \, \varphi(\cdot, \mu_t) \big) = 0 . $$

    The equations of motion are those of [`ode`] for M, for the diagonal of Q and for the readout, averaged over fields
    with these overlaps: with $q_i = q_{\perp,i}$, $c_i$ the weight of neuron i in the output,
    $s_i = \partial \text{loss} / \partial \lambda_i$ and $\eta$ the learning rate,
    $$ \frac{dM_i}{d\alpha} = -\eta \, \mathbb{E}[s_i \lambda^*], \qquad
       \frac{dq_i}{d\alpha} = -2 \eta \, \mathbb{E}[s_i \lambda^\perp_i] + \eta^2 \, \mathbb{E}[s_i^2] . $$

    Left out are the overlaps of different neurons outside the teacher's span. They start at order $d^{-1/2}$, and grow
    to order 1/p by interaction and to order learning_rate / p by the noise of SGD: so the limit holds for p and d both
    large and learning_rate of order one, up to learning_rate * alpha / p of order one; its risk is then off by order
    1/p + 1/d + learning_rate / p. The second-order term $\eta^2 \mathbb{E}[s_i^2]$ of the norms is only the diagonal of
    a matrix whose other entries matter p times as much together: where learning_rate / p is not small use [`ode`].

    **Arguments:**

    - `problem`, `algorithm`: a [`TwoLayer`] or [`MultiIndex`] network, and how it is trained (schedules, ridge, sphere
      and a trained readout included).
    - `d`: the dimension, for networks not much narrower than d: the angles between neurons are then random with
      variance 1/(d - k), which is kept to first order. Infinite if left out.
    - `infinite_width`: whether to leave out also what is of order 1/p, a neuron's action on itself and the
      second-order term. The neurons are then particles of the density of an infinitely wide network, which moves with
      learning_rate / p; how good they are is what [`particle_error`] says.
    - `tolerance`: relative error of averages, as for [`ode`]. Averages over what a neuron's field has of its own are
      closed forms for erf, polynomials and functions that are linear on either side of zero, else over a line.
    - `rule`: a rule to average over the k teacher fields with instead.

    **Returns:** a limit, whose State is a [`WideState`].

    Loureiro 2023, "Mean-field + high-d", where $M P M^\top$ must be $M P^{-1} M^\top$ and the theorem must subtract
    $\text{diag}(q_\perp)$; Arnaboldi, Stephan, Krzakala & Loureiro, COLT 2023.
    """
    check_problem(problem)
    if not isinstance(problem, TwoLayer | MultiIndex):
        raise InvalidInput(
            f"{problem!r} was given; the mean field of a wide network is that of a TwoLayer or MultiIndex problem, "
            "whose output is a sum over neurons and whose loss is the squared error. For others use dimfree.ode."
        )
    check_online_sgd(algorithm)
    by = averaging(rule, tolerance)
    cosine_variance = jnp.zeros(())
    if d is not None:
        left = as_dimension(d) - problem.teacher_width
        if is_concrete(left):
            require(
                left > 0,
                f"d = {d} was given; it must exceed the {problem.teacher_width} directions of the teacher, outside of "
                "which the students have angles.",
            )
        cosine_variance = 1 / left
    return MeanFieldLimit(problem, algorithm, by, cosine_variance, flag(infinite_width, "infinite_width"))
