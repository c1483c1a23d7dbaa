"""Problems whose samples are several inputs: sequences, attention, pairs."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import (
    InvalidInput,
    check_finite,
    is_concrete,
    neurons,
    nonnegative_number,
    positive_integer,
    real_array,
    require,
    shown,
)
from ..functions import Function, as_function
from ..gaussian.probing import is_unordered, probe
from ..printing import as_call
from .field_problem import FieldProblem, features_of


def _softmax(fields: Float[Array, "L n"]) -> Float[Array, ""]:
    return jnp.mean(jnp.sum(jax.nn.softmax(fields, axis=0) * fields, axis=0))


def _largest(fields: Float[Array, "L n"]) -> Float[Array, ""]:
    return jnp.mean(jax.nn.logsumexp(fields, axis=0))


def _square(fields: Float[Array, "L n"]) -> Float[Array, ""]:
    return jnp.mean(fields**2)


_LINKS = {"softmax": _softmax, "logsumexp": _largest, "square": _square}


class SequenceIndex(FieldProblem):
    r"""Learning a function of a few directions that sees all inputs of a sequence (a sequence single-index model).

    $$ \tfrac12 \big( \text{link}(\lambda) - \text{link}(\lambda^*) - \sqrt{\text{noise}} \, z \big)^2, \qquad
       \lambda_{lj} = \frac{w_j \cdot x_l}{\sqrt d}, \quad \lambda^*_{lr} = \frac{w^*_r \cdot x_l}{\sqrt d} $$

    **Arguments:**

    - `link`: a name, or any JAX function of fields `(L, n)` to a number: it is given the student fields `(L, p)` and
      the teacher fields `(L, k)`. The names are averages over the n directions: `"softmax"`
      $\sum_l \text{softmax}(u)_l u_l$, `"logsumexp"` $\log \sum_l e^{u_l}$, `"square"` $\tfrac1L \sum_l u_l^2$.
    - `tokens`: how many inputs a sequence has, L, or their correlations, shape `(L, L)`.
    - `width`, `teacher_width`: number of directions of student and teacher, p and k.
    - `noise`: variance of the label noise.

    Arnaboldi et al. 2025 (one direction); Troiani et al. 2025 (several).

    ??? example
        >>> import dimfree
        >>> problem = dimfree.SequenceIndex("softmax", tokens=3)
        >>> found = dimfree.solve(
        ...     dimfree.ode(problem, dimfree.OnlineSGD(1.0)), dimfree.State(Q=[[1.0]], M=[[0.3]]), [0.0, 10.0]
        ... )
        >>> bool(found.risk[-1] < 0.1 * found.risk[0])
        True
    """

    link: Function
    width: int = eqx.field(static=True)
    teacher_width: int = eqx.field(static=True)
    noise: Float[Array, ""]
    smooth: bool = eqx.field(static=True)
    symmetric: bool = eqx.field(static=True)

    def __init__(
        self,
        link: Any,
        tokens: Any,
        width: int = 1,
        teacher_width: int = 1,
        noise: float | Array = 0.0,
    ):
        self.tokens, self.correlations = _several(tokens)
        self.width, self.teacher_width = neurons(width, "width"), neurons(teacher_width, "teacher_width")
        nonnegative_number(noise, "noise", meaning=" (it is the variance of the label noise)")
        self.noise = jnp.asarray(noise, float)
        if not callable(link) and not (isinstance(link, str) and link in _LINKS):
            raise InvalidInput(
                f"link = {shown(link)} was given; choose one of {', '.join(map(repr, _LINKS))}, or give a JAX function "
                "of fields of shape (L, n) to a number."
            )
        self.link = as_function(_LINKS[link] if isinstance(link, str) else link, np.zeros((self.tokens, self.width)))
        self.smooth = isinstance(link, str) or self._probed()
        self.symmetric = self.correlations is None and all(
            [
                is_unordered(_OfRows(self.link, self.inputs_per_sample, n), self.inputs_per_sample, n)
                for n in (self.width, self.teacher_width)
            ]
        )
        self.features = features_of(self, None) if self.link.numbers and self.smooth else None

    def _probed(self) -> bool:
        """Whether a link of the user's has no kinks, for either number of directions."""
        return all(
            [
                probe(
                    _OfRows(self.link, self.inputs_per_sample, directions),
                    self.inputs_per_sample * directions,
                    name="link",
                    arguments=f"fields of shape ({self.tokens}, {directions})",
                )
                for directions in dict.fromkeys((self.width, self.teacher_width))
            ]
        )

    def __repr__(self) -> str:
        names = {as_function(function).recipe: name for name, function in _LINKS.items()}
        own = {"link": names.get(self.link.recipe, self.link), "tokens": self.given_tokens}
        return as_call(self, **own, width=self.width, teacher_width=self.teacher_width, noise=self.noise)

    @property
    def readout(self) -> None:
        return None

    @property
    def exchangeable(self) -> bool:
        return self.symmetric

    @property
    def irreducible_risk(self) -> Float[Array, ""]:
        return self.noise / 2

    @property
    def noise_nodes(self) -> int:
        return 3  # slopes are linear in the noise and enter a covariance four times

    @property
    def sources(self) -> tuple[str, ...]:
        return ("troiani2025", "arnaboldi2025")

    def loss(self, student, teacher, noise, readout, label=None):
        return 0.5 * (self.link(student) - self.link(teacher) - jnp.sqrt(self.noise) * noise) ** 2


class Attention(FieldProblem):
    r"""A layer of attention that learns the attention matrix of a teacher.

    $$ \frac{1}{2L} \sum_{lm} (A_{lm} - A^*_{lm})^2, \qquad
       A_{lm} = \text{softmax}_m \Big( \frac{q_l \cdot k_m}{\sqrt{\text{rank}}} \Big) $$

    Queries q and keys k are fields of the L inputs of a sample. If they are tied, they are the same `rank` fields;
    otherwise there are 2 `rank` fields, queries first. The teacher has matrix $A^*$ from its own fields.

    **Arguments:**

    - `tokens`: how many inputs a sample is, L, or their correlations, shape `(L, L)`.
    - `rank`, `teacher_rank`: numbers in a query of student and teacher; the teacher's is the student's if left out. So
      the width p is `rank`, or 2 `rank` if not tied, and k likewise.
    - `tied`: whether queries and keys are the same, for student and teacher.

    Inputs have mean zero: there is no positional encoding. Cui et al. 2024; Troiani et al. 2025; Arnaboldi et al. 2025
    (rank one).

    ??? example
        >>> import dimfree
        >>> problem = dimfree.Attention(tokens=2, rank=1, tied=False)
        >>> problem.width, problem.teacher_width, problem.seen_fields
        (2, 2, 8)
    """

    rank: int = eqx.field(static=True)
    teacher_rank: int = eqx.field(static=True)
    tied: bool = eqx.field(static=True)

    def __init__(
        self,
        tokens: Any,
        rank: int = 1,
        teacher_rank: int | None = None,
        tied: Any = True,
    ):
        self.tokens, self.correlations = _several(tokens)
        self.rank = positive_integer(rank, "rank")
        self.teacher_rank = self.rank if teacher_rank is None else positive_integer(teacher_rank, "teacher_rank")
        if not isinstance(tied, bool):
            raise InvalidInput(f"tied = {shown(tied)} was given; write True or False.")
        self.tied = tied

    def __repr__(self) -> str:
        return as_call(self, tokens=self.given_tokens, rank=self.rank, teacher_rank=self.teacher_rank, tied=self.tied)

    @property
    def width(self) -> int:
        return self.rank if self.tied else 2 * self.rank

    @property
    def teacher_width(self) -> int:
        return self.teacher_rank if self.tied else 2 * self.teacher_rank

    @property
    def readout(self) -> None:
        return None

    @property
    def smooth(self) -> bool:
        return True

    @property
    def exchangeable(self) -> bool:
        return self.correlations is None

    @property
    def noise_nodes(self) -> int:
        return 1  # there is none

    @property
    def sources(self) -> tuple[str, ...]:
        return ("cui2024", "troiani2025", "arnaboldi2025")

    def loss(self, student, teacher, noise, readout, label=None):
        error = self._matrix(student, self.rank) - self._matrix(teacher, self.teacher_rank)
        return 0.5 * jnp.sum(error**2) / self.inputs_per_sample

    def _matrix(self, fields: Float[Array, "L n"], rank: int) -> Float[Array, "L L"]:
        queries, keys = fields[:, :rank], fields[:, -rank:]
        return jax.nn.softmax(queries @ keys.T / rank**0.5, axis=1)


def _cross_entropy(similarity: Float[Array, ""], agreement: Float[Array, ""]) -> Float[Array, ""]:
    return jax.nn.softplus(similarity) - jax.nn.sigmoid(agreement) * similarity


class ContrastivePair(FieldProblem):
    r"""Learning when two inputs are alike, from pairs: a siamese network with linear neurons.

    $$ \text{loss}(\text{similarity}, \text{agreement}), \qquad
       \text{similarity} = \frac{\lambda_1 \cdot \lambda_2}{\sqrt p}, \quad
       \text{agreement} = \frac{\lambda^*_1 \cdot \lambda^*_2}{\sqrt k} $$

    The teacher calls a pair the same with probability sigmoid(agreement).

    **Arguments:**

    - `correlation`: the correlation of the two inputs, from -1 to 1: $\text{Cov}(x_1, x_2) = \text{correlation} \;
      \Sigma$.
    - `width`, `teacher_width`: numbers in the representations, p and k.
    - `loss`: `"cross-entropy"`, softplus(similarity) - sigmoid(agreement) similarity, or any JAX function of the two
      numbers to a number.

    ??? example
        >>> import dimfree
        >>> problem = dimfree.ContrastivePair(correlation=0.5)
        >>> learned = problem.risk(dimfree.State(Q=[[1.0]], M=[[1.0]]))
        >>> bool(learned < problem.risk(dimfree.State(Q=[[1.0]], M=[[0.0]])))
        True
    """

    pair_loss: Function
    width: int = eqx.field(static=True)
    teacher_width: int = eqx.field(static=True)
    smooth: bool = eqx.field(static=True)

    def __init__(
        self,
        correlation: Any = 0.0,
        width: int = 1,
        teacher_width: int = 1,
        loss: str | Callable = "cross-entropy",
    ):
        self.width, self.teacher_width = neurons(width, "width"), neurons(teacher_width, "teacher_width")
        number = real_array(correlation, "correlation")
        if np.ndim(number) != 0:
            raise InvalidInput(f"correlation = {shown(correlation)} was given; give one number for the two inputs.")
        if is_concrete(number):
            require(
                np.abs(number) <= 1, f"correlation = {shown(correlation)} was given; a correlation is from -1 to 1."
            )
        self.tokens, self.correlations = 2, jnp.eye(2) + jnp.asarray(number, float) * (1 - jnp.eye(2))
        if not callable(loss) and not (isinstance(loss, str) and loss == "cross-entropy"):
            raise InvalidInput(
                f"loss = {shown(loss)} was given; choose 'cross-entropy', or give a JAX function of similarity and "
                "agreement."
            )
        self.pair_loss = as_function(loss if callable(loss) else _cross_entropy, np.zeros(()), np.zeros(()))
        self.smooth = not callable(loss) or probe(
            _OfPair(self.pair_loss), 2, name="loss", arguments="a similarity and an agreement, both numbers"
        )
        self.features = features_of(self, None) if self.pair_loss.numbers and self.smooth else None

    def __repr__(self) -> str:
        same = self.pair_loss.recipe == as_function(_cross_entropy).recipe
        return as_call(
            self,
            correlation=self.correlation,
            width=self.width,
            teacher_width=self.teacher_width,
            loss="cross-entropy" if same else self.pair_loss,
        )

    @property
    def correlation(self) -> Float[Array, ""]:
        """That of the two inputs."""
        assert self.correlations is not None
        return self.correlations[0, 1]

    @property
    def readout(self) -> None:
        return None

    @property
    def noise_nodes(self) -> int:
        return 1  # there is none

    def loss(self, student, teacher, noise, readout, label=None):
        similarity = student[0] @ student[1] / self.width**0.5
        return self.pair_loss(similarity, teacher[0] @ teacher[1] / self.teacher_width**0.5)


def as_tokens(tokens: Any) -> tuple[int | None, Float[Array, "L L"] | None]:
    """What a user says of the inputs of a sample: None for one, how many independent ones, or their correlations.

    **Returns** how many there are, and their correlations, each None where there is nothing to say.
    """
    if tokens is None:
        return None, None
    if not isinstance(tokens, list | tuple | np.ndarray | jax.Array) or getattr(tokens, "shape", None) == ():
        return positive_integer(tokens, "tokens"), None
    matrix = jnp.asarray(real_array(tokens, "tokens"))
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise InvalidInput(
            f"tokens has shape {matrix.shape}; give how many inputs a sample is, or their correlations, shape (L, L)."
        )
    check_finite(matrix, "tokens")
    if is_concrete(matrix):
        values = np.asarray(matrix)
        require(np.abs(values - values.T) < 1e-12, f"tokens = {shown(tokens)} was given; correlations are symmetric.")
        require(
            np.abs(np.diagonal(values) - 1) < 1e-12,
            f"tokens = {shown(tokens)} was given; the correlation of an input with itself is 1.",
        )
        least = np.linalg.eigvalsh(values)[0]
        require(
            least > -1e-12,
            f"tokens = {shown(tokens)} was given; no inputs have these correlations (eigenvalue {least:.3g}).",
        )
    return matrix.shape[0], matrix


def _several(tokens: Any) -> tuple[int, Float[Array, "L L"] | None]:
    """How many inputs a sample is, and their correlations, where it must be said."""
    number, correlations = as_tokens(tokens)
    if number is None:
        raise InvalidInput("tokens = None was given; say how many inputs a sample is, or give their correlations.")
    return number, correlations


class _OfRows(eqx.Module):
    """A link as a function of all its fields, in one array."""

    link: Function
    tokens: int = eqx.field(static=True)
    directions: int = eqx.field(static=True)

    def __call__(self, fields: Any) -> Any:
        return self.link(fields.reshape(self.tokens, self.directions))


class _OfPair(eqx.Module):
    """A loss as a function of similarity and agreement, in one array."""

    loss: Function

    def __call__(self, both: Any) -> Any:
        return self.loss(both[0], both[1])
