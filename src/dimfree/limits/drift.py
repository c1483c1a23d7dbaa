"""The mean of the increment: gradient flow, and the ODE limit with its correction at finite learning rate."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms.online import OnlineAlgorithm, check_online
from ..errors import InvalidInput, is_concrete, shown
from ..gaussian.rules import TOLERANCE, Accuracy, AnyRule, Averaging, Rule, averaging
from ..integration import Found, Frozen, Settings, solve_sliding
from ..problems import FieldProblem, Moments, Problem
from ..problems.base import check_problem
from ..state import STUDENTS, TEACHERS, Coordinates, Entries, State
from ..trajectory import Trajectory
from .limit import Averages, Limit

_HARDLY = 1e-3  # of the fastest rate of a block
_STIFF = 1000.0  # times that the fastest overlap relaxes, beyond which an explicit solver takes longer


class MeanLimit(Limit[Trajectory]):
    r"""The deterministic limit $d \to \infty$: the State follows the mean of its increment.

    $$ \frac{d \, \text{State}}{d\alpha} = \frac{1}{B} \, \mathbb{E}[\text{increment}(\text{State})] $$

    Use [`ode`] or [`gradient_flow`] to make one.
    """

    problem: Problem
    algorithm: OnlineAlgorithm
    averaging: Averaging
    second_order: bool = eqx.field(static=True)

    @property
    def name(self) -> str:
        return "ODE" if self.second_order else "gradient flow"

    @property
    def own_sources(self) -> tuple[str, ...]:
        return ("saad1995", "benarous2022") if self.second_order else ("saad1995",)

    @property
    def averages(self) -> dict[str, Averages]:
        return {"drift": Averages.by(self.averaging, self.expectation, self.rule, self.accuracy)}

    @property
    def rough(self) -> bool:
        smooth = self.problem.smooth and self.algorithm.transform is None
        return not (smooth or self.is_closed_form)

    def integrate(self, start: State, times: Float[Array, " times"], settings: Settings) -> Found:
        if not self.problem.inputs.are_points or self.problem.smooth:
            return super().integrate(start, times, settings)
        # Points seen through a kink: the drift jumps where a neuron is orthogonal to one.
        if self.algorithm.sphere:
            raise InvalidInput("A drift that jumps is integrated without the sphere only: use sphere=False.")
        if self.algorithm.own:
            raise InvalidInput("A drift that jumps is integrated for plain SGD only: use dimfree.OnlineSGD.")
        arrays = solve_sliding(self, start, times, settings.steps, settings.stop)
        return Found(arrays, {"solver": f"Heun with projection on sliding surfaces, {settings.steps} steps"})

    def freezes(self, start: State, times: Float[Array, " times"]) -> bool:
        if self.problem.inputs.blocks == 1 or not isinstance(self.problem, FieldProblem):
            return False
        if not is_concrete((self, start, times)):
            return True
        _, frozen = _evaluated(self, start)
        return float(jnp.max(jnp.abs(frozen.rates)) * times[-1]) > _STIFF

    def units(self, start: State) -> Any:
        if self.problem.inputs.isotropic:
            return 1.0
        # A loss sees an overlap times its eigenvalue, and what it sees must be right where that is large. Sums of
        # gradients, which begin at zero, have that eigenvalue already.
        shares = (1 / jnp.maximum(1.0, self.problem.inputs.eigenvalues))[:, None, None]
        sums = {family for family, like in self.algorithm.own.items() if like is None}
        overlaps = {
            pair: jnp.broadcast_to(1.0 if sums.intersection(pair) else shares, blocks.shape)
            for pair, blocks in start.overlaps.items()
        }
        readout = None if start.readout is None else jnp.ones_like(start.readout)
        return self.coordinates.pack(State.of(overlaps, readout, jax.tree.map(jnp.ones_like, start.numbers)))

    @property
    def coordinates(self) -> Coordinates:
        """The numbers that move."""
        return self.algorithm.coordinates(self.problem)

    @property
    def is_closed_form(self) -> bool:
        """Whether the drift is known without quadrature."""
        return self.rule is None

    @property
    def rule(self) -> AnyRule | None:
        """The quadrature of the drift; None where it is a closed form."""
        return self.problem.mean_rule(self.averaging, self.algorithm.transform)

    @property
    def expectation(self) -> str:
        """How the averages of the drift are taken, in words."""
        return "closed form" if self.rule is None else self.rule.words(self.problem.seen_fields)

    @eqx.filter_jit
    def drift(self, alpha: Float[Array, ""] | float, state: State) -> State:
        """The derivative of the State with respect to alpha."""
        state = self.begun(state)
        return self._drift(alpha, state, mean_moments(self.problem, self.algorithm, alpha, state, self.averaging))

    def begun(self, state: State) -> State:
        """A user's State with all that moves."""
        return self.algorithm.begin(self.problem.inputs.over_blocks(self.problem.completed(state)))

    def _drift(self, alpha, state: State, moments: Moments) -> State:
        return self._gained(alpha, state, moments)

    def _gained(self, alpha, state: State, moments: Moments, *, unscaled: bool = False) -> State:
        """What a step adds for each sample, on the sphere also before students are brought back to it."""
        moments = self.algorithm.limit_moments(moments)
        if not self.second_order:
            moments = eqx.tree_at(lambda m: m.square, moments, jnp.zeros_like(moments.square))
        tangent = self.algorithm.increment(state, moments, jnp.asarray(alpha, float), unscaled=unscaled)
        per_sample = 1 / self.algorithm.batch_size
        return jax.tree.map(lambda rate: per_sample * rate, tangent)

    def vector_field(self, alpha, values: Float[Array, " n"], like: State) -> Float[Array, " n"]:
        """The drift on the coordinates, for a solver."""
        return self.coordinates.pack(self.drift(alpha, self.coordinates.unpack(values, like)))

    # For a solver that freezes the averages over a step.

    def evaluated(self, alpha, values: Float[Array, " n"], like: State) -> tuple[Float[Array, " n"], Frozen]:
        r"""The drift on the coordinates, and its linear part where the averages stay as they are.

        Students then move along $F_b W + E_b W_*$ in block b, with $F_b = K + \kappa_b C \, \mathbb{E}[\partial s /
        \partial \lambda]$ and $E_b = \kappa_b C \, \mathbb{E}[\partial s / \partial \lambda^*]$. In the basis of
        eigenvectors of $F_b$, which is that of all blocks, and taken from $-F_b^{-1} E_b W_*$, where they come to rest,
        each grows or decays at a rate of its own.
        """
        state, inputs, p = self.coordinates.unpack(values, like), self.problem.inputs, self.problem.width
        drift, sensitivity = self._seen_drift(alpha, state, self._fields(alpha, state))
        curvature, toward = sensitivity[:, :p], sensitivity[:, p:]
        curvatures, turn = jnp.linalg.eigh((curvature + curvature.T) / 2)
        move = self.algorithm.at(jnp.asarray(alpha, float), state.numbers).move(jnp.asarray(alpha, float))
        pull, point = move.pull[STUDENTS] * inputs.eigenvalues[:, None], move.point or {STUDENTS: 1.0}

        def own_rate(family: str) -> Float[Array, "blocks _"]:
            drag = jnp.full(state.blocks_of(family, family).shape[:-1], move.drag.get((family, family), 0.0))
            if family not in point or family not in move.pull:
                return drag
            return drag + point[family] * move.pull[family] * inputs.eigenvalues[:, None] * curvatures

        rates = {family: own_rate(family) for family in state.families}
        # Where a student hardly moves it comes to rest too far away to be seen from there.
        floor = _HARDLY * jnp.max(jnp.abs(rates[STUDENTS]), axis=1, keepdims=True) + 1e-300
        damped = rates[STUDENTS] / (rates[STUDENTS] ** 2 + floor**2)
        rest = -(damped * pull)[:, :, None] * (turn.T @ toward)
        overlaps = {(a, b): rates[a][:, :, None] + rates[b][:, None, :] for a, b in state.overlaps}
        readout = None if state.readout is None else jnp.zeros_like(state.readout)
        still = jax.tree.map(jnp.zeros_like, state.numbers)
        diagonal = self.coordinates.pack(State.of(overlaps, readout, still)) / self.algorithm.batch_size
        # The solution does not depend on how it is taken apart, and eigenvectors have no derivatives where two agree.
        return self.coordinates.pack(drift), jax.lax.stop_gradient(Frozen(turn, rest, diagonal))

    def fields(self, alpha, values: Float[Array, " n"], like: State) -> Float[Array, " m"]:
        """The covariances of the fields that move: all that averages depend on."""
        return self._field_coordinates.pack(self._fields(alpha, self.coordinates.unpack(values, like)))

    def _fields(self, alpha, state: State) -> State:
        return self.problem.inputs.fields(self.algorithm.seen(state, alpha)[0])

    def drift_seen(self, alpha, values: Float[Array, " n"], like: State, fields: Float[Array, " m"]):
        """The drift on the coordinates with averages over fields of other covariances."""
        state = self.coordinates.unpack(values, like)
        seen = self._field_coordinates.unpack(fields, self._fields(alpha, state))
        return self.coordinates.pack(self._seen_drift(alpha, state, seen)[0])

    @property
    def _field_coordinates(self) -> Coordinates:
        p, k = self.problem.width, self.problem.teacher_width
        return Coordinates(
            (Entries((STUDENTS, STUDENTS), p, p, False), Entries((STUDENTS, TEACHERS), p, k, False)), 1, 0
        )

    def _seen_drift(self, alpha, state: State, fields: State) -> tuple[State, Float[Array, "p r"]]:
        """The drift with averages over these fields, and the mean derivative of the slopes by them."""
        seen, transform = self.algorithm.seen(state, alpha)
        problem = self.problem.at(alpha)
        moments = problem.mean_moments(fields, self.averaging, transform)
        sensitivity = problem.sensitivity(fields, moments, transform)
        return self._drift(alpha, state, self.problem.inputs.in_blocks(moments, lambda: sensitivity, seen)), sensitivity

    def seen_from(self, frozen: Frozen, values: Float[Array, " n"], like: State) -> Float[Array, " n"]:
        """Coordinates in the basis, and from the point of rest, of a `Frozen`."""
        return self._in_frame(values, like, frozen.turn.T, -frozen.rest)

    def back_from(self, frozen: Frozen, values: Float[Array, " n"], like: State) -> Float[Array, " n"]:
        """The coordinates that are seen so."""
        return self._in_frame(values, like, frozen.turn, frozen.turn @ frozen.rest)

    def _in_frame(self, values, like: State, turn, shift) -> Float[Array, " n"]:
        """The coordinates after W becomes turn W + shift W*, and what belongs to students is turned with them."""
        state = self.coordinates.unpack(values, like)
        rows = {family: {family: turn} for family in state.families}
        rows[TEACHERS] = {TEACHERS: jnp.eye(state.teacher_width)}
        rows[STUDENTS] |= {TEACHERS: shift}
        overlaps = {}
        for one, other in state.overlaps:
            parts = [
                a @ state.blocks_of(first, second) @ jnp.swapaxes(b, -1, -2)
                for first, a in rows[one].items()
                for second, b in rows[other].items()
            ]
            overlaps[one, other] = sum(parts, jnp.zeros(()))
        return self.coordinates.pack(State.of(overlaps, state.readout, state.numbers))

    def expectation_error(self, state: State, alpha: float = 0.0) -> Float[Array, ""]:
        """Estimated error of the drift at this State from the quadrature: largest entry; zero for closed forms.

        It bounds the error in all but one of a hundred States, by averages taken otherwise: on a grid half a
        spacing away, over points scrambled anew.
        """
        return jnp.zeros(()) if self.is_closed_form else self.accuracy(state, alpha).error

    def accuracy(self, state: State, alpha: float = 0.0) -> Accuracy:
        """`expectation_error` and `drift_size` at once, where there is a quadrature."""

        def average(by: Averaging):
            return eqx.tree_at(lambda limit: limit.averaging, self, by).drift_and_size(alpha, state)

        return self.averaging.accuracy(self.rule, average)

    def drift_size(self, state: State, alpha: float = 0.0) -> Float[Array, ""]:
        r"""The size of what is averaged in the drift, to which its tolerance is relative.

        It is the drift with $\sqrt{\mathbb{E}[s_i^2] \, \mathbb{E}[u_b^2]}$ in place of $\mathbb{E}[s_i u_b]$: near a
        fixed point averages cancel, and are known no better for it. On the sphere it is of what comes before students
        are brought back to it, which cancels too.
        """
        return self.drift_and_size(alpha, state)[1]

    @eqx.filter_jit
    def drift_and_size(self, alpha, state: State) -> tuple[Float[Array, " n"], Float[Array, ""]]:
        """The drift on the coordinates, and `drift_size`."""
        state, inputs = self.begun(state), self.problem.inputs
        moments = mean_moments(self.problem, self.algorithm, alpha, state, self.averaging)
        # Of the slopes, what is averaged is what a block with all of the trace would have.
        square = moments.square if moments.square.ndim == 3 else moments.square[None]
        slopes = jnp.sqrt(jnp.maximum(jnp.diagonal(jnp.sum(square, axis=0)), 0.0) / inputs.trace)[:, None]

        def sizes(family: str) -> Float[Array, "blocks p _"]:
            norms = jnp.diagonal(state.blocks_of(family, family), axis1=-2, axis2=-1)
            return slopes * jnp.sqrt(jnp.maximum(inputs.eigenvalues[:, None] * norms, 0.0))[:, None, :]

        students, teachers, *own = state.families
        products = {family: sizes(family) for family in state.families}
        linear = Moments(
            products[students],
            products[teachers],
            jnp.zeros_like(square),
            moments.readout,
            {family: products[family] for family in own},
        )
        none = jax.tree.map(jnp.zeros_like, linear)
        square = Moments(none.student, none.teacher, square, moments.readout, none.own)
        still = State.of(jax.tree.map(jnp.zeros_like, state.overlaps), state.readout, state.numbers)
        size = jnp.zeros(())
        for part in (linear, square):
            rates = jax.tree.leaves(self._gained(alpha, still, part, unscaled=True))
            size += jnp.max(jnp.stack([jnp.max(jnp.abs(rate)) for rate in rates if rate.size]))
        return self.coordinates.pack(self._drift(alpha, state, moments)), size


@eqx.filter_jit
def _evaluated(limit: MeanLimit, start: State):
    return limit.evaluated(jnp.zeros(()), limit.coordinates.pack(start), start)


def mean_moments(problem: Problem, algorithm: OnlineAlgorithm, alpha, state: State, averaging: Averaging) -> Moments:
    r"""The mean of `Moments` with all vectors of the State.

    With those that the loss does not see, by Stein's lemma: $\mathbb{E}[s f] = A \, \text{Cov}(u, f)$.
    """
    problem = problem.at(alpha)
    seen, transform = algorithm.seen(state, alpha)
    fields = problem.inputs.fields(seen)
    moments = problem.mean_moments(fields, averaging, transform)
    return problem.inputs.in_blocks(moments, lambda: problem.sensitivity(fields, moments, transform), seen)


def ode(
    problem: Problem, algorithm: OnlineAlgorithm, rule: Rule | None = None, *, tolerance: float = TOLERANCE
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
    - `rule`: a rule (`GaussHermite`, `Sobol`) to average with instead.

    **Returns:** a limit; [`solve`] gives its [`Trajectory`], and `drift(alpha, state)` its right-hand side.

    Saad & Solla 1995; Arnaboldi et al. 2023, eq. (11), where the factors learning_rate / (p d) belong to the clock;
    Ben Arous et al. 2022, Theorem 2.2.
    """
    return _mean_limit(problem, algorithm, averaging(rule, tolerance), second_order=True)


def gradient_flow(
    problem: Problem, algorithm: OnlineAlgorithm, rule: Rule | None = None, *, tolerance: float = TOLERANCE
) -> MeanLimit:
    """The limit of vanishing learning rate, on the same clock: the ODE without its second-order term.

    It holds for learning_rate -> 0 at fixed learning_rate * alpha; at finite learning rate it differs from SGD at
    order one, whatever d is.

    **Arguments:** as for [`ode`].

    **Returns:** a limit, as [`ode`] does.
    """
    return _mean_limit(problem, algorithm, averaging(rule, tolerance), second_order=False)


def check_mean_limit(limit: object) -> None:
    """An error if this is no ODE of the overlaps of students and teachers alone."""
    if not isinstance(limit, MeanLimit):
        raise InvalidInput(
            f"limit = {shown(limit)} was given; pass dimfree.ode(problem, algorithm) or dimfree.gradient_flow(...)."
        )
    check_problem(limit.problem, "tokens")
    if limit.algorithm.by_coordinate is not None:
        raise InvalidInput(
            f"{limit.algorithm!r} scales each coordinate of the gradient by itself; this is known for plain one-pass "
            'SGD only. dimfree.solve takes its limit, dimfree.simulate(..., method="vectors") its runs.'
        )
    if limit.algorithm.own:
        raise InvalidInput(
            f"{limit.algorithm!r} has vectors of its own ({', '.join(limit.algorithm.own)}); this is known for plain "
            "one-pass SGD only. dimfree.solve takes its limit, dimfree.simulate its runs."
        )


def _mean_limit(problem, algorithm, by: Averaging, *, second_order: bool) -> MeanLimit:
    check_problem(problem, "spectrum", "tokens", "change")
    check_online(algorithm)
    if algorithm.joins_batch and algorithm.batch_size > 1 and problem.inputs.components > 1:
        raise InvalidInput(
            f"{algorithm!r} changes the gradient by all samples of a batch together; for inputs in clusters "
            "its limit is known for batch_size=1 only. dimfree.simulate takes any batch."
        )
    if by.rule is not None and not isinstance(problem, FieldProblem):
        raise InvalidInput(f"{problem!r} has no fields to average over: its limit is a closed form; leave out rule.")
    if algorithm.readout_rate is not None and problem.readout is None:
        raise InvalidInput(
            "readout_rate was given, but the problem has no readout to train; give it one (readout=...)."
        )
    if algorithm.by_coordinate is not None:
        from .coordinate_wise import coordinate_wise_limit  # a MeanLimit, defined with what is here

        return coordinate_wise_limit(problem, algorithm, by, second_order=second_order)
    return MeanLimit(problem, algorithm.slow, by, second_order)
