"""What is learned, as every description of SGD sees it: the law of the moments of a sample."""

import abc
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.linalg
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PyTree

from ..batches import map_in_batches
from ..errors import InvalidInput, check_precision, real_array, shown
from ..gaussian.factor import psd_factor
from ..gaussian.rules import TOLERANCE, AnyRule, Averaging, Rule, averaging
from ..printing import as_call
from ..state import State, WideState
from .inputs import MEANS, Inputs, Moments, StandardInputs


class Draws(eqx.Module):
    r"""The random numbers of one step on a batch of `B` samples.

    **Attributes:**

    - `normals`: standard normals, for the coordinates of an input: those in the frame that all vectors span in each
      block where the State is simulated, shape `(blocks, inputs, n)`; all `d` where the vectors are, `(inputs, d)`.
      There are B inputs, or as many times B as a sample has.
    - `noise`: one more standard normal for each sample.
    - `choice`: another, by which its component of the law of the inputs is chosen.
    - `triangle`: where the State is simulated, the lower-triangular T of Bartlett for each block: the Gram matrix of
      what is left of the inputs outside the span is $T T^\top$.
    - `roomy`: whether it is known that each block has as many dimensions as there are vectors, or more.
    """

    normals: Float[Array, "*axes inputs n"]
    noise: Float[Array, "*steps B"]
    choice: Float[Array, "*steps B"]
    triangle: Float[Array, "*steps blocks inputs inputs"] | None = None
    roomy: bool = eqx.field(static=True, default=False)


class Problem(eqx.Module):
    """A data law, a model and a loss; every description of SGD is derived from it.

    All descriptions need only the law of the `Moments` of a problem: their mean (the ODE), their covariance
    (diffusions), and one draw of them at finite d (simulation). `LocalFields` states a problem by its loss.
    """

    width: eqx.AbstractVar[int]
    teacher_width: eqx.AbstractVar[int]
    readout: eqx.AbstractVar[Float[Array, " n"] | None]
    smooth: eqx.AbstractVar[bool]

    @property
    def irreducible_risk(self) -> Float[Array, ""]:
        """The part of the risk that no student can avoid, where the problem states it (label noise); else zero."""
        return jnp.zeros(())

    @property
    def classifies(self) -> bool:
        """Whether it says which answer to a sample is right, so that there is an accuracy."""
        return False

    @property
    def sources(self) -> tuple[str, ...]:
        """The publications that this problem comes from, for `dimfree.cite`."""
        return ()

    @property
    def inputs(self) -> Inputs:
        """The law of the inputs."""
        return StandardInputs()

    @property
    def inputs_per_sample(self) -> int:
        """How many inputs a sample is."""
        return 1

    def at(self, alpha: Float[Array, ""] | float) -> "Problem":
        """The problem at one moment of the clock: itself, unless what is learned changes."""
        return self

    @property
    def changes(self) -> bool:
        """Whether what is learned changes with the clock."""
        return False

    @property
    def jumps(self) -> Float[Array, " jumps"] | None:
        """Times at which it changes at once, if there are any."""
        return None

    def jumping_at(self, times: Float[Array, " jumps"]) -> "Problem":
        """The same problem with its `jumps` at other times."""
        return self

    def __repr__(self) -> str:
        return as_call(self)

    # Averages over a fresh sample.

    @property
    def knows_moments(self) -> bool:
        """Whether the mean of `Moments` is known without quadrature over all fields."""
        return False

    @abc.abstractmethod
    def mean_moments(self, state: State, averaging: Averaging, transform: Any = None) -> Moments:
        """The mean of `Moments` with students and teachers: $\\mathbb{E}[s u^\\top]$ and $\\mathbb{E}[s s^\\top]$.

        **Arguments:**

        - `transform`: what changes the slopes before they are used (an algorithm), if anything does.

        **Returns:** the mean, as `Moments`.
        """

    @abc.abstractmethod
    def increment_covariance(
        self,
        increment: Callable[[Moments, Any], Array],
        parameters: Any,
        state: State,
        averaging: Averaging,
        transform: Any = None,
    ) -> Float[Array, "n n"]:
        """The covariance of a vector that the `Moments` of a sample determine: `increment(moments, parameters)`."""

    def sensitivity(self, state: State, moments: Moments, transform: Any = None) -> Float[Array, "p r"]:
        r"""The mean derivative of the slopes by the fields, $A = \mathbb{E}[\partial s / \partial u]$.

        By Stein's lemma it is what relates the slopes to any other vector, $\mathbb{E}[s f] = A \, \text{Cov}(u, f)$.
        Here $A = \mathbb{E}[s u^\top] \, \Omega^+$, on the range of the covariance $\Omega$ of the fields.

        **Arguments:**

        - `moments`: the mean `Moments` there; `transform`: what changes the slopes, if anything does.

        **Returns:** A, shape `(p, r)`, by all r fields that the loss sees.
        """
        with_fields = jnp.concatenate([moments.student, moments.teacher], axis=1)
        if MEANS in moments.own:
            with_fields = with_fields - moments.own[MEANS] @ state.with_seen(MEANS).T
        return on_range(state.covariance, with_fields.T).T

    @abc.abstractmethod
    def single_risk(self, state: State, averaging: Averaging) -> Float[Array, ""]:
        """The mean loss at a State without leading axes."""

    def mean_rule(self, averaging: Averaging, transform: Any = None) -> AnyRule | None:
        """The rule that `mean_moments` goes by; None where it is a closed form."""
        return None

    def covariance_rule(self, averaging: Averaging, transform: Any = None) -> AnyRule | None:
        """The rule that `increment_covariance` goes by; None where it is a closed form."""
        return None

    @property
    def neurons(self) -> int:
        """How many students there are: the width, where each block of a State has all of them."""
        return self.width

    @property
    def seen_fields(self) -> int:
        """How many fields the loss sees."""
        return self.width + self.teacher_width

    # One step at finite d.

    @abc.abstractmethod
    def exact_moments(
        self, state: State, draws: Draws, d: Float[Array, ""], transform: Any = None
    ) -> tuple[Moments, Bool[Array, ""]]:
        """The `Moments` of a batch in dimension d, exactly in law, and whether the step can be taken."""

    @abc.abstractmethod
    def vector_gradient(
        self,
        weights: Float[Array, "p d"],
        teacher_weights: Float[Array, "k d"],
        readout: Float[Array, " n"] | None,
        draws: Draws,
        transform: Any = None,
    ) -> tuple[Float[Array, "p d"], Float[Array, " n"] | None, Bool[Array, ""]]:
        """The gradient of a batch with respect to weights and readout, and whether the step can be taken."""

    # Derived from these.

    def wide_risk(self, state: WideState, averaging: Averaging) -> Float[Array, ""]:
        """The mean loss of a wide network, at a cost proportional to its width."""
        raise InvalidInput(f"{self!r} is not a two-layer network with the squared error; a WideState has no risk here.")

    def risk(
        self, state: State | WideState, rule: Rule | None = None, *, tolerance: float = TOLERANCE
    ) -> Float[Array, "*batch"]:
        """The mean loss of a fresh sample, in closed form where there is one; leading axes of the State are kept.

        **Arguments:**

        - `state`: at which State.
        - `rule`, `tolerance`: how averages are taken, as for [`ode`].

        **Returns:** the risk at each State, an array of the shape of its leading axes.
        """
        return self.mean("risk", state, rule, tolerance=tolerance)

    def mean(
        self, what: Any, state: State | WideState, rule: Rule | None = None, *, tolerance: float = TOLERANCE
    ) -> PyTree[Array]:
        r"""Anything that you can observe: the mean over a fresh sample, or a function of the State.

        $$ \mathbb{E}[\text{what}(\lambda, \lambda^*, \text{noise}, \text{readout}, \text{label})] $$

        A function of analytic operations is averaged like the risk, to a tolerance. Any other may jump (comparisons,
        maxima, absolute values, roots), and is averaged over Sobol points, half of them far out so that rare events
        count: the error is typically 1e-4 to 1e-3, and `mean_error` states it. Derivatives with respect to the State
        are right across jumps too. For mixtures the accuracy by name is more exact: see `known_accuracy`. Many States
        are computed in batches of bounded memory.

        **Arguments:**

        - `what`: `"risk"`; `"accuracy"`, where the problem says which answer is right (`classifies`); a JAX function
          `(student, teacher, noise, readout)` or `(student, teacher, noise, readout, label)` of one sample to a number,
          with fields `(p,)` and `(k,)`; or a JAX function of one argument, a State without leading axes, to a number
          or an array.
        - `state`: at which State; leading axes are kept.
        - `rule`, `tolerance`: how averages are taken, as for [`ode`].

        **Returns:** the mean at each State.

        ??? example
            >>> import dimfree
            >>> problem = dimfree.Mixture([[1.0], [-1.0]], [1, 0], width=1, snr=4.0, activation="linear")
            >>> state = dimfree.State(Q=[[1.0]], M=[[0.5]])
            >>> round(float(problem.mean("accuracy", state)), 6)
            0.841345
            >>> margin = lambda student, teacher, noise, readout, label: (2 * label - 1) * readout[0] * student[0]
            >>> round(float(problem.mean(margin, state)), 6)
            0.5
        """
        return self._at_each(_value, what, state, averaging(rule, tolerance))

    def mean_error(
        self, what: Any, state: State | WideState, rule: Rule | None = None, *, tolerance: float = TOLERANCE
    ) -> PyTree[Array]:
        """A bound on the numerical error of `mean`, which holds in all but one of a hundred States.

        It compares the average with other ways to compute it: on shifted grids, or over points scrambled again; where
        the function may jump, the weight of the points next to a jump is added. It is never below 3% of the tolerance,
        relatively, nor below 1e-9 for a function that may jump: what is rarer may escape all points.

        **Arguments:** the same as for `mean`.

        **Returns:** the bound at each State.

        ??? example
            >>> import dimfree
            >>> problem = dimfree.Mixture([[1.0], [-1.0]], [1, 0], width=1, snr=4.0, activation="linear")
            >>> bool(problem.mean_error("accuracy", dimfree.State(Q=[[1.0]], M=[[0.5]])) < 1e-7)
            True
        """
        return self._at_each(_error, what, state, averaging(rule, tolerance))

    def _at_each(self, found: Callable, what: Any, state: Any, by: Averaging) -> Any:
        """The value of what is observed, or its error, at each State."""
        from .observed import as_observable  # which builds on problems

        check_precision()
        if not isinstance(state, State | WideState):
            raise InvalidInput(f"state = {shown(state)} was given; pass dimfree.State(Q=..., M=...).")
        if isinstance(state, State) and (state.width, state.teacher_width) != (self.width, self.teacher_width):
            raise InvalidInput(
                f"The State has p = {state.width} students and k = {state.teacher_width} teachers, the problem "
                f"p = {self.width} and k = {self.teacher_width}."
            )
        return _over_axes(found, as_observable(self, what), self, state, by)

    def reaches(self, what: Any, level: float | Array) -> Callable[[State], Float[Array, ""]]:
        """A function of the State that reaches zero from below when an observable reaches a level.

        Use it as `stop` in [`solve`] and [`simulate`].

        **Arguments:**

        - `what`: as for `mean`, a number.
        - `level`: a number. For an observable that falls to a level, write the function by hand: `stop=lambda state:
          0.1 - problem.risk(state)`.

        **Returns:** a function of a State.

        ??? example
            >>> import dimfree
            >>> problem = dimfree.Mixture([[1.0], [-1.0]], [1, 0], width=1, snr=9.0, activation="linear")
            >>> start = dimfree.State(Q=[[1.0]], M=[[0.1]])
            >>> limit = dimfree.ode(problem, dimfree.OnlineSGD(1.0))
            >>> stopped = dimfree.solve(limit, start, alpha=20.0, stop=problem.reaches("accuracy", 0.95))
            >>> round(float(problem.mean("accuracy", stopped.final)), 6)
            0.95
        """
        from .observed import Reaches, as_observable

        number = jnp.asarray(real_array(level, "level"))
        if number.shape != ():
            raise InvalidInput(f"level has shape {number.shape}; give one number.")
        return Reaches(self, as_observable(self, what), number)

    def risk_at(self, state: State | WideState, averaging: Averaging) -> Float[Array, ""]:
        """The risk at a State without leading axes."""
        if isinstance(state, WideState):
            return self.wide_risk(state, averaging)
        return self.single_risk(self.inputs.fields(self.inputs.over_blocks(state)), averaging)

    def readout_of(self, state: State | WideState) -> Float[Array, " n"] | None:
        """The readout of the State, or the problem's own where the State has none."""
        return self.readout if state.readout is None else state.readout

    def completed(self, state: State) -> State:
        """The State with its readout filled in."""
        if state.readout is not None:
            return state
        return state.with_readout(self.readout_of(state))


@eqx.filter_jit  # step by step, a first call compiles a hundred small programs
def _over_axes(found: Callable, observable: Any, problem: Problem, state: State | WideState, by: Averaging) -> Any:
    """What is found at a State, at each of those along the leading axes, in batches."""
    axes = state.M.shape[:-2]
    if not axes:
        return found(observable, problem, state, by)
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[len(axes) :]), state)
    at_each = map_in_batches(lambda one: found(observable, problem, one, by), flat)
    return jax.tree.map(lambda leaf: leaf.reshape(*axes, *leaf.shape[1:]), at_each)


def _value(observable: Any, problem: Problem, state: State | WideState, by: Averaging) -> Any:
    return observable.at(problem, state, by)


def _error(observable: Any, problem: Problem, state: State | WideState, by: Averaging) -> Any:
    return observable.error(problem, state, by)


def check_problem(problem: object, *known: Literal["spectrum", "tokens", "change"]) -> None:
    """An error if this is no problem, or one of a kind for which what is asked is not known.

    **Arguments:**

    - `known`: beyond isotropic inputs, one for each sample, of a law that stays: inputs with a spectrum, samples of
      several inputs (tokens), problems that change with the clock.
    """
    if not isinstance(problem, Problem):
        raise InvalidInput(
            f"problem = {shown(problem)} was given; pass a problem, such as dimfree.PhaseRetrieval(width=2)."
        )
    takers = "dimfree.ode, gradient_flow, sde, linear_noise, simulate, random_state and check"
    if not problem.inputs.isotropic and "spectrum" not in known:
        raise InvalidInput(
            f"The inputs of the problem have a spectrum, {problem.inputs!r}; this is known for isotropic inputs only. "
            f"{takers}, and exit_time, take any spectrum."
        )
    if getattr(problem, "tokens", None) is not None and "tokens" not in known:
        raise InvalidInput(
            f"A sample of {problem!r} is {problem.inputs_per_sample} inputs; this is known for samples of one input "
            f"only. {takers}, exit_time and fixed_points take several."
        )
    if problem.changes and "change" not in known:
        raise InvalidInput(
            f"{problem!r} changes with the clock; this is known for constant problems only. {takers} take problems "
            "that change."
        )


def check_classes(problem: Problem, given: str) -> None:
    """An error if a file or a command (`given`) asks for the accuracy of a problem without classes."""
    if not problem.classifies:
        raise InvalidInput(
            f"{given} was given, but {problem!r} has no classes. Take a mixture, or a multi-output with labels 'soft' "
            "or 'hard'."
        )


def is_bounded(fields: Float[Array, "..."], slopes: Float[Array, "..."]) -> Bool[Array, ""]:
    """Whether a step can be taken: fields and gradients of order one, not on their way to infinity.

    It looks at what exact and vector simulation share, so that both call the same runs diverged.
    """
    return jnp.all(jnp.abs(fields) < 1e4) & jnp.all(jnp.abs(slopes) < 1e8)


def frames(
    grams: Float[Array, "blocks n n"], draws: Draws, sizes: Float[Array, " blocks"]
) -> tuple[Float[Array, "blocks n n"], Float[Array, "blocks *B n"]]:
    """The `frame` of each block; one block is not a batch of one, which would be rounded otherwise."""
    if grams.shape[0] == 1:
        if draws.roomy:
            return psd_factor(grams[0])[0][None], draws.normals
        factor, coordinates = frame(grams[0], draws.normals[0], sizes[0])
        return factor[None], coordinates[None]
    if draws.roomy:
        return jax.vmap(lambda gram: psd_factor(gram)[0])(grams), draws.normals
    return jax.vmap(frame)(grams, draws.normals, sizes)


def frame(
    gram: Float[Array, "n n"], normals: Float[Array, "*B n"], d: Float[Array, ""]
) -> tuple[Float[Array, "n n"], Float[Array, "*B n"]]:
    """Coordinates of vectors with these overlaps in a frame that they span in dimension d, and those of an input in it.

    With more vectors than dimensions the overlaps have rank d at most, and only as many columns count as an input has
    coordinates: the others, and normals that there is no room for, are zero.
    """
    factor, in_use = psd_factor(gram)
    in_use = in_use & (jnp.cumsum(in_use) <= d)  # a pivot beyond the d-th is rounding, whatever its size
    # Every input has d coordinates: those that the vectors see, then unseen ones. Columns without a pivot are unseen
    # coordinates too, as many as there is room for.
    room = d - jnp.sum(in_use)
    normals = jnp.where(in_use | (jnp.cumsum(~in_use) <= room), normals, 0.0)
    return jnp.where(in_use, factor, 0.0), normals


def on_range(matrix: Float[Array, "n n"], columns: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """The solution of matrix x = columns for a covariance matrix that may be singular, with columns in its range.

    It is differentiable there too: a part 1e-14 of the variances is added, which moves what lies in a direction of
    variance v by 1e-14 / v.
    """
    variances = jnp.diagonal(matrix)
    scale = jnp.where(variances > 0, 1 / jnp.sqrt(jnp.where(variances > 0, variances, 1.0)), 1.0)
    scaled = scale[:, None] * scale * matrix + _RIDGE * jnp.eye(matrix.shape[-1])
    return scale[:, None] * jax.scipy.linalg.solve(scaled, scale[:, None] * columns, assume_a="pos")


_RIDGE = 1e-14


def covariance_of_linear(
    increment: Callable[[Moments, Any], Array], parameters: Any, mean: Moments, second: Float[Array, "m m"]
) -> Float[Array, "n n"]:
    """The covariance of a vector that is linear in the `Moments`, whose mean and mean outer product are given."""
    flat, unravel = ravel_pytree(mean)
    linear = jax.jacfwd(lambda vector: increment(unravel(vector), parameters))(flat)
    return linear @ (second - jnp.outer(flat, flat)) @ linear.T
