"""A user's own loss."""

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
from ..gaussian.probing import probe
from ..printing import as_call
from .field_problem import FieldProblem, features_of


class LocalFields(FieldProblem):
    """Any learning problem, stated as the loss of one sample.

    **Arguments:**

    - `loss`: JAX function `loss(student, teacher, noise, readout)` to a number: student fields `(p,)`, teacher fields
      `(k,)`, a standard normal number, and the readout (None if there is none).
    - `width`, `teacher_width`: p and k.
    - `readout`: start of the trained finite-dimensional parameters, or their fixed value; None if there are none.

    ??? example
        >>> import dimfree
        >>> logistic = dimfree.LocalFields(
        ...     loss=lambda student, teacher, noise, readout: jax.nn.softplus(-teacher[0] * student.sum()),
        ...     width=2, teacher_width=1,
        ... )
    """

    width: int = eqx.field(static=True)
    teacher_width: int = eqx.field(static=True)
    sample_loss: Function
    smooth: bool = eqx.field(static=True)
    sees_noise: bool = eqx.field(static=True)
    readout: Float[Array, " n"] | None

    def __init__(self, loss: Callable, width: int, teacher_width: int, readout: ArrayLike | Array | None = None):
        self.width = p = neurons(width, "width")
        self.teacher_width = k = neurons(teacher_width, "teacher_width")
        self.readout = None if readout is None else jnp.atleast_1d(jnp.asarray(real_array(readout, "readout")))
        check_finite(self.readout, "readout")
        size = 0 if self.readout is None else self.readout.shape[0]
        # A readout of ones stands for any: shapes and kinks do not depend on its values, which may be traced here.
        stand_in = None if self.readout is None else np.ones(size)
        self.sample_loss = as_function(loss, np.zeros(p), np.zeros(k), np.zeros(()), stand_in)
        readout_words = "no readout (None)" if stand_in is None else f"a readout of shape ({size},)"
        self.smooth = probe(
            _OfFields(self.sample_loss, p, k, stand_in),
            p + k + 1,
            name="loss",
            arguments=f"student fields ({p},), teacher fields ({k},), a noise number and {readout_words}",
        )
        arguments = jnp.zeros(p), jnp.zeros(k), jnp.zeros(()), stand_in
        program = jax.make_jaxpr(lambda *arguments: self.sample_loss(*arguments))(*arguments).jaxpr
        # Where no operation takes the noise, nobody has to average over it.
        self.sees_noise = any(number is program.invars[2] for step in program.eqns for number in step.invars)
        self.features = None
        if self.sample_loss.numbers and self.smooth:
            self.features = features_of(self, stand_in if size else None)

    @property
    def noise_nodes(self) -> int | None:
        return None if self.sees_noise else 1

    def __repr__(self) -> str:
        return as_call(
            self, loss=self.sample_loss, width=self.width, teacher_width=self.teacher_width, readout=self.readout
        )

    def loss(self, student, teacher, noise, readout, label=None):
        return self.sample_loss(student, teacher, noise, readout)


class _OfFields(eqx.Module):
    """A loss as a function of all its fields and of the noise, in one array."""

    loss: Function
    p: int = eqx.field(static=True)
    k: int = eqx.field(static=True)
    readout: Float[np.ndarray, " n"] | None

    def __call__(self, fields: Any) -> Any:
        p, k = self.p, self.k
        return self.loss(fields[:p], fields[p : p + k], fields[p + k], self.readout)
