"""The State: the order parameters that SGD in high dimension is seen through."""

import functools

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from .errors import InvalidInput, check_finite, check_precision, is_concrete, real_array, require


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
        check_precision()
        Q, M = jnp.asarray(real_array(Q, "Q")), jnp.asarray(real_array(M, "M"))
        if Q.ndim < 2 or Q.shape[-1] != Q.shape[-2]:
            raise InvalidInput(f"Q has shape {Q.shape}; it must be square, (p, p), one row for each student.")
        if M.ndim != Q.ndim or M.shape[:-1] != Q.shape[:-1]:
            raise InvalidInput(
                f"M has shape {M.shape} and Q {Q.shape}; M must be (p, k), one row for each of {Q.shape[-1]} students."
            )
        k = M.shape[-1]
        P = jnp.broadcast_to(jnp.eye(k), (*M.shape[:-2], k, k)) if P is None else jnp.asarray(real_array(P, "P"))
        if P.shape != (*M.shape[:-2], k, k):
            raise InvalidInput(f"P has shape {P.shape}; with M of shape {M.shape} it must be {(*M.shape[:-2], k, k)}.")
        self.Q, self.M, self.P = Q, M, P
        self.readout = None if readout is None else jnp.atleast_1d(jnp.asarray(real_array(readout, "readout")))
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


class WideState(eqx.Module):
    r"""The overlaps of a wide student network, without those among its neurons.

    What neurons have outside the teacher's span points in directions of its own for each,
    $$ Q = M P^{-1} M^\top + \text{diag}(q_\perp), $$
    so that p neurons are p (k + 1) numbers in place of p^2. `Q` is formed where it is asked for.

    **Arguments:**

    - `M`: overlaps of students with the `k` teachers, shape `(p, k)`.
    - `q_perp`: squared norm of each student outside the teacher's span, over d, shape `(p,)`.
    - `P`: overlaps among the teachers, shape `(k, k)`; the identity if left out.
    - `readout`: second-layer parameters; if left out, those of the problem.
    - `cosine_variance`: of the angles between students outside the teacher's span, 1/(d - k) for random directions in
      dimension d; zero if left out, that of infinite d.
    - `density`: whether the neurons stand for a density, that of infinitely many.

    Leading axes (runs, times) are allowed, the same for all entries.

    ??? example
        >>> import dimfree
        >>> dimfree.WideState(M=[[0.1], [-0.2]], q_perp=[1.0, 1.0]).Q.shape
        (2, 2)
    """

    M: Float[Array, "*batch p k"]
    q_perp: Float[Array, "*batch p"]
    P: Float[Array, "*batch k k"]
    readout: Float[Array, "*batch n"] | None
    cosine_variance: Float[Array, "*batch"]
    density: bool = eqx.field(static=True)

    def __init__(
        self,
        M: ArrayLike | Array,
        q_perp: ArrayLike | Array,
        P: ArrayLike | Array | None = None,
        readout: ArrayLike | Array | None = None,
        cosine_variance: ArrayLike | Array = 0.0,
        density: bool = False,
    ):
        check_precision()
        M, q_perp = jnp.asarray(real_array(M, "M")), jnp.asarray(real_array(q_perp, "q_perp"))
        if M.ndim < 2 or q_perp.shape != M.shape[:-1]:
            raise InvalidInput(
                f"M has shape {M.shape} and q_perp {q_perp.shape}; M must be (p, k) and q_perp (p,), one number for "
                "each student."
            )
        batch, k = M.shape[:-2], M.shape[-1]
        P = jnp.broadcast_to(jnp.eye(k), (*batch, k, k)) if P is None else jnp.asarray(real_array(P, "P"))
        if P.shape != (*batch, k, k):
            raise InvalidInput(f"P has shape {P.shape}; with M of shape {M.shape} it must be {(*batch, k, k)}.")
        self.M, self.q_perp, self.P = M, q_perp, P
        self.readout = None if readout is None else jnp.asarray(real_array(readout, "readout"))
        self.cosine_variance = jnp.broadcast_to(jnp.asarray(real_array(cosine_variance, "cosine_variance")), batch)
        self.density = density

    @staticmethod
    def of(state: State) -> "WideState":
        """What is kept of a State: M, the readout, and of Q the diagonal."""
        diagonal = jnp.diagonal(state.Q, axis1=-2, axis2=-1)
        q_perp = jnp.maximum(diagonal - _seen(state.M, state.P), 0.0)
        return WideState(state.M, q_perp, state.P, state.readout)

    @property
    def norms(self) -> Float[Array, "*batch p"]:
        """The diagonal of Q."""
        return self.q_perp + _seen(self.M, self.P)

    @property
    def Q(self) -> Float[Array, "*batch p p"]:
        """All overlaps among students: p^2 numbers."""
        seen = self.M @ jnp.linalg.solve(self.P, jnp.swapaxes(self.M, -1, -2))
        return seen + self.q_perp[..., None] * jnp.eye(self.width)

    @property
    def width(self) -> int:
        return self.M.shape[-2]

    @property
    def teacher_width(self) -> int:
        return self.P.shape[-1]


def _seen(M: Float[Array, "*batch p k"], P: Float[Array, "*batch k k"]) -> Float[Array, "*batch p"]:
    """The squared norms of the students inside the teacher's span."""
    return jnp.sum(M * (M @ jnp.linalg.inv(P)), axis=-1)


def check_wide_state(state: WideState, *, sphere: bool) -> None:
    """Refuse overlaps that no wide network can have (traced values pass)."""
    if not is_concrete(state):
        return
    M, q_perp, P = (np.asarray(part) for part in (state.M, state.q_perp, state.P))
    not_finite = "The overlaps contain NaN or infinite entries; check M, q_perp and P."
    require(np.isfinite(M).all() and np.isfinite(P).all(), not_finite)
    # Before q_perp, which is not finite where it was made with the inverse of such a P.
    require(
        np.linalg.cond(P) < 1e12,
        "P is singular: teachers that depend linearly on each other have no M P^-1 M^T. Use dimfree.ode there.",
    )
    require(np.isfinite(q_perp), not_finite)
    check_finite(state.readout, "readout")
    require(q_perp >= 0, f"q_perp has the entry {q_perp.min():.3g}; squared norms cannot be negative.")
    norms = q_perp + np.sum(M * np.linalg.solve(P, M.T).T, axis=-1)
    if sphere:
        require(
            np.abs(norms - 1) < 1e-8,
            f"sphere=True keeps every student at norm sqrt(d), but the start has diag(Q) = {np.unique(norms)[:4]}. "
            "Start with q_perp = 1 - M P^-1 M^T on the diagonal, or use sphere=False.",
        )


def check_state(state: State, *, sphere: bool) -> None:
    """Refuse overlaps that no weights can have (traced values pass)."""
    check_precision()
    if not is_concrete(state):
        return
    # NumPy, because inside jit even operations on known numbers are traced.
    Q, M, P = (np.asarray(part) for part in (state.Q, state.M, state.P))
    covariance = np.block([[Q, M], [np.swapaxes(M, -1, -2), P]])
    require(np.isfinite(covariance), "The overlaps contain NaN or infinite entries; check Q, M and P.")
    check_finite(state.readout, "readout")
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


class WideCoordinates(eqx.Module):
    """The numbers of a WideState that an algorithm moves, as one vector.

    In this order: M by rows, q_perp (not on the sphere, where it follows from M), the readout if trained.
    """

    width: int = eqx.field(static=True)
    teacher_width: int = eqx.field(static=True)
    readout_size: int = eqx.field(static=True)
    sphere: bool = eqx.field(static=True)

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each coordinate, such as `M[0,1]`."""
        return (
            *(f"M[{i},{r}]" for i in range(self.width) for r in range(self.teacher_width)),
            *(() if self.sphere else (f"q_perp[{i}]" for i in range(self.width))),
            *(f"readout[{i}]" for i in range(self.readout_size)),
        )

    def pack(self, state: WideState) -> Float[Array, "*batch n"]:
        """The coordinates of a WideState (or of an increment of it)."""
        parts = [state.M.reshape(*state.M.shape[:-2], -1)]
        if not self.sphere:
            parts.append(state.q_perp)
        if self.readout_size:
            assert state.readout is not None
            parts.append(state.readout)
        return jnp.concatenate(parts, axis=-1)

    def unpack(self, vector: Float[Array, "*batch n"], like: WideState) -> WideState:
        """The WideState with these coordinates; what does not move is taken from `like`."""
        batch, p, k = vector.shape[:-1], self.width, self.teacher_width
        M = vector[..., : p * k].reshape(*batch, p, k)
        P = jnp.broadcast_to(like.P, (*batch, k, k))
        if self.sphere:
            q_perp = jnp.maximum(like.norms - _seen(M, P), 0.0)
        else:
            # It decays to zero; a solver may end a little below.
            q_perp = jnp.maximum(vector[..., p * k : p * k + p], 0.0)
        readout = like.readout
        if self.readout_size:
            readout = vector[..., -self.readout_size :]
        elif readout is not None:
            readout = jnp.broadcast_to(readout, (*batch, readout.shape[-1]))
        return WideState(M, q_perp, P, readout, like.cosine_variance, like.density)


@functools.cache
def _upper(width: int, sphere: bool) -> tuple[np.ndarray, np.ndarray]:
    return np.triu_indices(width, k=1 if sphere else 0)


@functools.cache
def _triangle_index(width: int, sphere: bool) -> np.ndarray:
    index = np.zeros((width, width), dtype=int)
    rows, columns = _upper(width, sphere)
    index[rows, columns] = index[columns, rows] = np.arange(len(rows))
    return index
