"""What is learned: a per-sample loss of finitely many local fields."""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import InvalidInput
from ..gaussian.expectation import FieldRule, expectation
from ..gaussian.rules import Rule, choose_rule
from ..printing import as_call
from ..state import State


class Moments(eqx.Module):
    r"""All that a step of SGD needs to know of a sample (or, averaged, of a batch or of the population).

    With $s_j = \partial \text{loss} / \partial \lambda_j$:

    - `student`: $s_i \lambda_j$, shape `(p, p)`;
    - `teacher`: $s_i \lambda^*_r$, shape `(p, k)`;
    - `square`: $s_i s_j \|x\|^2 / d$, shape `(p, p)`, for a batch of size B the sum over all pairs of samples
      $s_{bi} s_{cj} \, x_b \cdot x_c / (d B^2)$;
    - `readout`: $\partial \text{loss} / \partial \text{readout}$, shape `(n,)`, or None without a readout.
    """

    student: Float[Array, "p p"]
    teacher: Float[Array, "p k"]
    square: Float[Array, "p p"]
    readout: Float[Array, " n"] | None


class Problem(eqx.Module):
    """A data law, a model and a loss, seen through the local fields; every description of SGD is derived from it.

    A problem is its `loss` of one sample. Where the averages that a limit needs are known exactly, the problem may
    offer them (`known_moments`, `known_second_moments`, `known_risk`); everything works without.
    """

    width: eqx.AbstractVar[int]
    teacher_width: eqx.AbstractVar[int]
    readout: eqx.AbstractVar[Float[Array, " n"] | None]
    smooth: eqx.AbstractVar[bool]

    @abc.abstractmethod
    def loss(
        self,
        student: Float[Array, " p"],
        teacher: Float[Array, " k"],
        noise: Float[Array, ""],
        readout: Float[Array, " n"] | None,
    ) -> Float[Array, ""]:
        r"""The loss of one sample: student fields $\lambda$, teacher fields $\lambda^*$, noise $z \sim N(0,1)$."""

    @property
    def noise_nodes(self) -> int | None:
        """How many Gauss-Hermite nodes integrate the noise exactly; None if that is not known."""
        return None

    @property
    def irreducible_risk(self) -> Float[Array, ""]:
        """The part of the risk that no student can avoid, where the problem states it (label noise); else zero."""
        return jnp.zeros(())

    @property
    def sources(self) -> tuple[str, ...]:
        """The publications that this problem comes from, for `dimfree.cite`."""
        return ()

    def __repr__(self) -> str:
        return as_call(self)

    # Better than quadrature over all fields, where it is known; None where it is not.

    @property
    def knows_moments(self) -> bool:
        """Whether `known_moments` is not None."""
        return False

    def known_moments(self, state: State) -> Moments | None:
        """The mean of `Moments` in closed form."""
        return None

    def known_second_moments(self, state: State) -> Float[Array, "m m"] | None:
        """The mean of the outer product of the flattened `Moments` in closed form."""
        return None

    def known_risk(self, state: State) -> Float[Array, ""] | None:
        """The mean of the loss in closed form."""
        return None

    # Derived from the loss.

    def gradients(self, student, teacher, noise, readout) -> tuple[Float[Array, " p"], Float[Array, " n"] | None]:
        """Derivatives of the loss of one sample with respect to the student fields and to the readout."""
        if readout is None:
            return jax.grad(self.loss)(student, teacher, noise, None), None
        return jax.grad(self.loss, argnums=(0, 3))(student, teacher, noise, readout)

    def sample_moments(self, student, teacher, noise, readout) -> Moments:
        r"""`Moments` of one sample in the limit, where $\|x\|^2 / d = 1$."""
        slopes, readout_gradient = self.gradients(student, teacher, noise, readout)
        return Moments(
            student=jnp.outer(slopes, student),
            teacher=jnp.outer(slopes, teacher),
            square=jnp.outer(slopes, slopes),
            readout=readout_gradient,
        )

    def rule(self, rule: Rule | None = None) -> FieldRule:
        """The quadrature over fields and noise: the one given, or the library's choice."""
        dimension = self.width + self.teacher_width + (self.noise_nodes is None)
        chosen = choose_rule(dimension, smooth=self.smooth) if rule is None else rule
        return FieldRule(chosen, self.noise_nodes, self.smooth)

    def numerical_risk(self, state: State, rule: Rule | None = None) -> Float[Array, ""]:
        """The mean of the loss by quadrature."""
        return expectation(_loss, state.covariance, (self, self.readout_of(state)), self.rule(rule))

    def risk(self, state: State) -> Float[Array, "*batch"]:
        """The mean loss of a fresh sample, in closed form where there is one; leading axes of the State are kept."""
        single = self._single_risk
        for _ in range(state.Q.ndim - 2):
            single = jax.vmap(single)
        return single(state)

    def _single_risk(self, state: State) -> Float[Array, ""]:
        exact = self.known_risk(state)
        return self.numerical_risk(state) if exact is None else exact

    def readout_of(self, state: State) -> Float[Array, " n"] | None:
        """The readout of the State, or the problem's own where the State has none."""
        return self.readout if state.readout is None else state.readout

    def completed(self, state: State) -> State:
        """The State with its readout filled in."""
        if state.readout is not None:
            return state
        return State(Q=state.Q, M=state.M, P=state.P, readout=self.readout_of(state))


def check_problem(problem: object) -> None:
    """An error if this is no problem."""
    if not isinstance(problem, Problem):
        raise InvalidInput(f"problem = {problem!r} was given; pass a problem, such as dimfree.PhaseRetrieval(width=2).")


def split_fields(problem: Problem, fields: Float[Array, "... r"]):
    """Student and teacher fields."""
    return fields[..., : problem.width], fields[..., problem.width :]


def _loss(fields, noise, parameters):
    problem, readout = parameters
    return problem.loss(*split_fields(problem, fields), noise, readout)
