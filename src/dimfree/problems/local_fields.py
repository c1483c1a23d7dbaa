"""A user's own loss."""

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from ..errors import check_finite, neurons, real_array
from ..functions import Function, as_function
from ..gaussian.probing import is_unordered, probe, stand_in_readout
from ..printing import as_call
from .field_problem import FieldProblem, features_of
from .tokens import as_tokens

_MOMENTS = 0.0, 1.0, 10.0, 100.0, 1000.0  # at which a loss that changes is tried


class LocalFields(FieldProblem):
    r"""Any learning problem, stated as the loss of one sample.

    **Arguments:**

    - `loss`: JAX function `loss(student, teacher, noise, readout)` to a number: student fields `(p,)`, teacher fields
      `(k,)`, a standard normal number, and the readout (None if there is none). With a fifth argument it also gets the
      clock, alpha, so that the task may change.
    - `width`, `teacher_width`: p and k.
    - `readout`: start of the trained finite-dimensional parameters, or their fixed value; None if there are none.
    - `tokens`: if a sample is several inputs, their number L, or their correlations $R_{lm} = \text{Cov}(x_l, x_m)$,
      shape `(L, L)`; the loss then gets student fields `(L, p)` and teacher fields `(L, k)`.

    ??? example
        >>> import dimfree
        >>> logistic = dimfree.LocalFields(
        ...     loss=lambda student, teacher, noise, readout: jax.nn.softplus(-teacher[0] * student.sum()),
        ...     width=2, teacher_width=1,
        ... )
        >>> largest_of_three = dimfree.LocalFields(
        ...     loss=lambda student, teacher, noise, readout: (
        ...         0.5 * (jax.nn.logsumexp(student) - jax.nn.logsumexp(teacher)) ** 2
        ...     ),
        ...     width=1, teacher_width=1, tokens=3,
        ... )
    """

    width: int = eqx.field(static=True)
    teacher_width: int = eqx.field(static=True)
    sample_loss: Function
    smooth: bool = eqx.field(static=True)
    sees_noise: bool = eqx.field(static=True)
    readout: Float[Array, " n"] | None
    alpha: Float[Array, ""] | None
    symmetric: bool = eqx.field(static=True)

    def __init__(
        self,
        loss: Callable,
        width: int,
        teacher_width: int,
        readout: ArrayLike | Array | None = None,
        tokens: int | ArrayLike | Array | None = None,
    ):
        self.width = p = neurons(width, "width")
        self.teacher_width = k = neurons(teacher_width, "teacher_width")
        self.readout = None if readout is None else jnp.atleast_1d(jnp.asarray(real_array(readout, "readout")))
        self.tokens, self.correlations = as_tokens(tokens)
        check_finite(self.readout, "readout")
        size = 0 if self.readout is None else self.readout.shape[0]
        # Its values may be traced here. A readout of ones would not show where an argmax over outputs jumps.
        stand_in = None if self.readout is None else stand_in_readout(size)
        self.alpha = jnp.ones(()) if _takes_clock(loss) else None  # any moment: see `at`
        rows = () if self.tokens is None else (self.tokens,)
        clock = () if self.alpha is None else (np.ones(()),)
        given = np.zeros((*rows, p)), np.zeros((*rows, k)), np.zeros(()), stand_in, *clock
        self.sample_loss = as_function(loss, *given)
        readout_words = "no readout (None)" if stand_in is None else f"a readout of shape ({size},)"
        words = f"student fields {given[0].shape}, teacher fields {given[1].shape}, a noise number and {readout_words}"
        moments = [()] if self.alpha is None else [(np.array(alpha),) for alpha in _MOMENTS]
        self.smooth = all(
            [
                probe(
                    _OfFields(self.sample_loss, rows, p, stand_in, moment),
                    self.inputs_per_sample * (p + k) + 1,
                    name="loss",
                    arguments=words + "".join(f", at alpha = {alpha:g}" for alpha in moment),
                )
                for moment in moments
            ]
        )
        program = jax.make_jaxpr(lambda *arguments: self.sample_loss(*arguments))(*given).jaxpr
        # Where no operation takes the noise, nobody has to average over it.
        self.sees_noise = any(number is program.invars[2] for step in program.eqns for number in step.invars)
        of_fields = _OfFields(self.sample_loss, rows, p, stand_in, clock)
        independent = self.tokens is not None and self.correlations is None
        self.symmetric = independent and is_unordered(of_fields, self.inputs_per_sample, p + k, others=1)
        self.features = None
        if (self.sample_loss.numbers or clock) and self.smooth:
            self.features = features_of(self, stand_in if size else None)

    @property
    def noise_nodes(self) -> int | None:
        return None if self.sees_noise else 1

    @property
    def degree(self) -> int | None:
        return None if self.changes else super().degree  # it may be another at another time

    @property
    def exchangeable(self) -> bool:
        return self.symmetric

    @property
    def changes(self) -> bool:
        return self.alpha is not None

    def at(self, alpha: Float[Array, ""] | float) -> "LocalFields":
        if self.alpha is None:
            return self
        return eqx.tree_at(lambda problem: problem.alpha, self, jnp.asarray(alpha, float))

    def __repr__(self) -> str:
        tokens = {} if self.tokens is None else {"tokens": self.given_tokens}
        return as_call(
            self,
            loss=self.sample_loss,
            width=self.width,
            teacher_width=self.teacher_width,
            readout=self.readout,
            **tokens,
        )

    def loss(self, student, teacher, noise, readout, label=None):
        clock = () if self.alpha is None else (self.alpha,)
        return self.sample_loss(student, teacher, noise, readout, *clock)


def _takes_clock(loss: Any) -> bool:
    """Whether a loss has a fifth argument that must be given."""
    try:
        parameters = inspect.signature(loss).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in positional and each.default is inspect.Parameter.empty for each in parameters) == 5


class _OfFields(eqx.Module):
    """A loss as a function of all its fields and of the noise, in one array."""

    loss: Function
    rows: tuple[int, ...] = eqx.field(static=True)
    p: int = eqx.field(static=True)
    readout: Float[np.ndarray, " n"] | None
    clock: tuple[Float[np.ndarray, ""], ...]

    def __call__(self, fields: Any) -> Any:
        seen = fields[:-1].reshape(*self.rows, -1)
        return self.loss(seen[..., : self.p], seen[..., self.p :], fields[-1], self.readout, *self.clock)
