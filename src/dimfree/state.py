"""The State: the order parameters that SGD in high dimension is seen through."""

import functools

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from .errors import InvalidInput, is_concrete, require


class State(eqx.Module):
    r"""The overlaps of student and teacher weights, and the readout where it is trained.

    $$ Q = W W^\top / d, \qquad M = W W_*^\top / d, \qquad P = W_* W_*^\top / d. $$

    **Arguments:**

    - `Q`: overlaps among the `p` students, shape `(p, p)`.
    - `M`: overlaps of students with the `k` teachers, shape `(p, k)`.
    - `P`: overlaps among the teachers, shape `(k, k)`; the identity if left out.
    - `readout`: second-layer parameters; if left out, those of the problem.

    Leading axes (runs, times) are allowed, the same for all entries.

    ??? example
        >>> import dimfree
        >>> dimfree.State(Q=[[1.0]], M=[[0.1]]).P.shape
        (1, 1)
    """

    Q: Float[Array, "*batch p p"]
    M: Float[Array, "*batch p k"]
    P: Float[Array, "*batch k k"]
    readout: Float[Array, "*batch n"] | None

    def __init__(
        self,
        Q: ArrayLike | Array,
        M: ArrayLike | Array,
        P: ArrayLike | Array | None = None,
        readout: ArrayLike | Array | None = None,
    ):
        Q, M = jnp.asarray(Q, float), jnp.asarray(M, float)
        if Q.ndim < 2 or Q.shape[-1] != Q.shape[-2]:
            raise InvalidInput(f"Q has shape {Q.shape}; it must be square, (p, p), one row for each student.")
        if M.ndim != Q.ndim or M.shape[:-1] != Q.shape[:-1]:
            raise InvalidInput(
                f"M has shape {M.shape} and Q {Q.shape}; M must be (p, k), one row for each of {Q.shape[-1]} students."
            )
        k = M.shape[-1]
        P = jnp.broadcast_to(jnp.eye(k), (*M.shape[:-2], k, k)) if P is None else jnp.asarray(P, float)
        if P.shape != (*M.shape[:-2], k, k):
            raise InvalidInput(f"P has shape {P.shape}; with M of shape {M.shape} it must be {(*M.shape[:-2], k, k)}.")
        self.Q, self.M, self.P = Q, M, P
        self.readout = None if readout is None else jnp.asarray(readout, float)
        if self.readout is not None and self.readout.shape[:-1] != Q.shape[:-2]:
            raise InvalidInput(
                f"readout has shape {self.readout.shape}; its leading axes must be those of Q, {Q.shape}."
            )

    @property
    def covariance(self) -> Float[Array, "*batch r r"]:
        """Covariance of the local fields (students first, then teachers), shape `(p + k, p + k)`."""
        return jnp.block([[self.Q, self.M], [jnp.swapaxes(self.M, -1, -2), self.P]])

    @property
    def width(self) -> int:
        return self.Q.shape[-1]

    @property
    def teacher_width(self) -> int:
        return self.P.shape[-1]


def check_state(state: State, *, sphere: bool) -> None:
    """Refuse overlaps that no weights can have (traced values pass)."""
    if not is_concrete(state):
        return
    # NumPy, because inside jit even operations on known numbers are traced.
    Q, M, P = (np.asarray(part) for part in (state.Q, state.M, state.P))
    covariance = np.block([[Q, M], [np.swapaxes(M, -1, -2), P]])
    require(np.isfinite(covariance), "The overlaps contain NaN or infinite entries; check Q, M and P.")
    require(
        np.abs(covariance - np.swapaxes(covariance, -1, -2)) <= 1e-10 * (1 + np.abs(covariance)),
        "Q and P must be symmetric: they are Gram matrices, Q = W W^T / d and P = W* W*^T / d.",
    )
    lowest = np.linalg.eigvalsh(covariance)[..., 0].min()
    require(
        lowest >= -1e-8 * max(1.0, np.abs(covariance).max()),
        f"No weights have these overlaps: the matrix [[Q, M], [M^T, P]] has the negative eigenvalue {lowest:.3g}. "
        "For one student and one teacher, M^2 may not exceed Q P.",
    )
    if sphere:
        norms = np.diagonal(Q, axis1=-2, axis2=-1)
        require(
            np.abs(norms - 1) < 1e-8,
            f"sphere=True keeps every student at norm sqrt(d), but the start has diag(Q) = {np.unique(norms)[:4]}. "
            "Start with ones on the diagonal of Q, or use sphere=False.",
        )


class Coordinates(eqx.Module):
    """The independent numbers of a State that an algorithm moves, as one vector.

    In this order: the upper triangle of Q (on the sphere without its diagonal), M by rows, the readout if trained.
    """

    width: int = eqx.field(static=True)
    teacher_width: int = eqx.field(static=True)
    readout_size: int = eqx.field(static=True)
    sphere: bool = eqx.field(static=True)

    @property
    def size(self) -> int:
        return len(_upper(self.width, self.sphere)[0]) + self.width * self.teacher_width + self.readout_size

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each coordinate, such as `Q[0,1]`."""
        rows, columns = _upper(self.width, self.sphere)
        return (
            *(f"Q[{i},{j}]" for i, j in zip(rows, columns, strict=True)),
            *(f"M[{i},{r}]" for i in range(self.width) for r in range(self.teacher_width)),
            *(f"readout[{i}]" for i in range(self.readout_size)),
        )

    def pack(self, state: State) -> Float[Array, "*batch n"]:
        """The coordinates of a State (or of an increment of it)."""
        rows, columns = _upper(self.width, self.sphere)
        parts = [state.Q[..., rows, columns], state.M.reshape(*state.M.shape[:-2], -1)]
        if self.readout_size:
            assert state.readout is not None
            parts.append(state.readout)
        return jnp.concatenate(parts, axis=-1)

    def unpack(self, vector: Float[Array, "*batch n"], like: State) -> State:
        """The State with these coordinates; what does not move is taken from `like`."""
        batch = vector.shape[:-1]
        triangle = len(_upper(self.width, self.sphere)[0])
        Q = vector[..., _triangle_index(self.width, self.sphere)]
        if self.sphere:
            # The index of the diagonal is arbitrary: the diagonal does not move and is that of the start.
            Q = jnp.where(np.eye(self.width, dtype=bool), like.Q, Q)
        M = vector[..., triangle : triangle + self.width * self.teacher_width]
        readout = like.readout
        if self.readout_size:
            readout = vector[..., triangle + self.width * self.teacher_width :]
        elif readout is not None:
            readout = jnp.broadcast_to(readout, (*batch, readout.shape[-1]))
        return State(
            Q=Q,
            M=M.reshape(*batch, self.width, self.teacher_width),
            P=jnp.broadcast_to(like.P, (*batch, self.teacher_width, self.teacher_width)),
            readout=readout,
        )


@functools.cache
def _upper(width: int, sphere: bool) -> tuple[np.ndarray, np.ndarray]:
    return np.triu_indices(width, k=1 if sphere else 0)


@functools.cache
def _triangle_index(width: int, sphere: bool) -> np.ndarray:
    index = np.zeros((width, width), dtype=int)
    rows, columns = _upper(width, sphere)
    index[rows, columns] = index[columns, rows] = np.arange(len(rows))
    return index
