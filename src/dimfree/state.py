"""The State: the order parameters that SGD in high dimension is seen through."""

import functools
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from .errors import InvalidInput, check_finite, check_precision, flag, is_concrete, real_array, require, shown

STUDENTS, TEACHERS = "students", "teachers"
Pair = tuple[str, str]  # of families of vectors


class State(eqx.Module):
    r"""The overlaps of all vectors, the readout if it is trained, and the numbers that an algorithm measures.

    $$ Q = W W^\top / d, \qquad M = W W_*^\top / d, \qquad P = W_* W_*^\top / d. $$

    An algorithm with a memory has its own vectors beside the students and teachers, such as a momentum. The algorithm
    says where they start, so you do not have to give them; a result has them by name (`overlap`).

    **Arguments:**

    - `Q`: overlaps among the `p` students, shape `(p, p)`.
    - `M`: overlaps of students with the `k` teachers, shape `(p, k)`.
    - `P`: overlaps among the teachers, shape `(k, k)`; the identity if left out.
    - `readout`: second-layer parameters; if left out, those of the problem.

    Leading axes (runs, times) are allowed, the same for all entries.

    **Attributes:**

    - `overlaps`: for each pair of families of vectors, shape `(blocks, rows of the first, rows of the second)` after
      the leading axes, with an entry for each block of the inputs' spectrum (one block if inputs are isotropic).
    - `numbers`: by name, what the algorithm measures to choose its steps, such as a running norm of the gradient.

    ??? example
        >>> import dimfree
        >>> dimfree.State(Q=[[1.0]], M=[[0.1]]).P.shape
        (1, 1)
    """

    overlaps: dict[Pair, Float[Array, "*batch blocks _ _"]]
    readout: Float[Array, "*batch n"] | None
    numbers: dict[str, Float[Array, "..."]]

    def __init__(
        self,
        Q: ArrayLike | Array,
        M: ArrayLike | Array,
        P: ArrayLike | Array | None = None,
        readout: ArrayLike | Array | None = None,
    ):
        check_precision()
        # What is given in NumPy stays there for now: JAX compiles every operation for every shape.
        own, seen = real_array(Q, "Q"), real_array(M, "M")
        if own.ndim < 2 or own.shape[-1] != own.shape[-2]:
            raise InvalidInput(f"Q has shape {own.shape}; it must be square, (p, p), one row for each student.")
        if seen.ndim != own.ndim or seen.shape[:-1] != own.shape[:-1]:
            raise InvalidInput(
                f"M has shape {seen.shape} and Q {own.shape}; M must be (p, k), one row for each of {own.shape[-1]} "
                "students."
            )
        k = seen.shape[-1]
        shape = (*seen.shape[:-2], k, k)
        given = np.broadcast_to(np.eye(k), shape) if P is None else real_array(P, "P")
        if given.shape != shape:
            raise InvalidInput(f"P has shape {given.shape}; with M of shape {seen.shape} it must be {shape}.")
        pairs = {(STUDENTS, STUDENTS): own, (STUDENTS, TEACHERS): seen, (TEACHERS, TEACHERS): given}
        self.overlaps = {pair: jnp.asarray(array[..., None, :, :]) for pair, array in pairs.items()}
        self.readout = None if readout is None else jnp.atleast_1d(jnp.asarray(real_array(readout, "readout")))
        self.numbers = {}
        if self.readout is not None and self.readout.shape[:-1] != own.shape[:-2]:
            raise InvalidInput(
                f"readout has shape {self.readout.shape}; its leading axes must be the same as of Q, {own.shape}."
            )

    @classmethod
    def of(
        cls,
        overlaps: dict[Pair, Float[Array, "*batch blocks _ _"]],
        readout: Array | None,
        numbers: dict[str, Float[Array, "..."]] | None = None,
    ) -> "State":
        """A State with these overlaps, of vectors of any kind."""
        check_precision()
        state = object.__new__(cls)
        object.__setattr__(state, "overlaps", overlaps)
        object.__setattr__(state, "readout", readout)
        object.__setattr__(state, "numbers", {} if numbers is None else numbers)
        return state

    def with_readout(self, readout: Float[Array, "*batch n"] | None) -> "State":
        """The same with another readout."""
        return State.of(self.overlaps, readout, self.numbers)

    @property
    def families(self) -> tuple[str, ...]:
        """The kinds of vectors, students and teachers first."""
        own = {family for pair in self.overlaps for family in pair} - {STUDENTS, TEACHERS}
        return (STUDENTS, TEACHERS, *sorted(own))

    def blocks_of(self, one: str, other: str) -> Float[Array, "*batch blocks _ _"]:
        """The overlaps of two families in each block."""
        if (one, other) in self.overlaps:
            return self.overlaps[one, other]
        return jnp.swapaxes(self.overlaps[other, one], -1, -2)

    def overlap(self, one: str, other: str) -> Float[Array, "*batch _ _"]:
        """The overlaps of two families of vectors, such as `"momentum"` and `"students"`."""
        self._check_family(one, "one")
        self._check_family(other, "other")
        blocks = self.blocks_of(one, other)
        return jnp.squeeze(blocks, axis=-3) if blocks.shape[-3] == 1 else jnp.sum(blocks, axis=-3)

    def _check_family(self, name: Any, argument: str) -> None:
        if not (isinstance(name, str) and name in self.families):
            raise InvalidInput(
                f"{argument} = {shown(name)} was given; there are no such vectors in this State. It has "
                f"{', '.join(self.families)}."
            )

    def at(self, family: str) -> "State":
        """The State of a network whose weights are another family of vectors, such as `"average"`."""
        self._check_family(family, "family")
        overlaps = {
            (STUDENTS, STUDENTS): self.blocks_of(family, family),
            (STUDENTS, TEACHERS): self.blocks_of(family, TEACHERS),
            (TEACHERS, TEACHERS): self.blocks_of(TEACHERS, TEACHERS),
        }
        return State.of(overlaps, self.readout)

    @property
    def Q(self) -> Float[Array, "*batch p p"]:
        """Overlaps among students."""
        return self.overlap(STUDENTS, STUDENTS)

    @property
    def M(self) -> Float[Array, "*batch p k"]:
        """Overlaps of students with teachers."""
        return self.overlap(STUDENTS, TEACHERS)

    @property
    def P(self) -> Float[Array, "*batch k k"]:
        """Overlaps among teachers."""
        return self.overlap(TEACHERS, TEACHERS)

    @property
    def covariance(self) -> Float[Array, "*batch r r"]:
        """Covariance of the local fields that a loss sees (students, then teachers), shape `(p + k, p + k)`."""
        return self.gram(STUDENTS, TEACHERS)

    def with_seen(self, family: str) -> Float[Array, "*batch r n"]:
        """The overlaps of the vectors that a loss sees (students, then teachers) with another family."""
        return jnp.concatenate([self.overlap(STUDENTS, family), self.overlap(TEACHERS, family)], axis=-2)

    def blocks_with_seen(self, family: str) -> Float[Array, "*batch blocks r n"]:
        """The same in each block."""
        return jnp.concatenate([self.blocks_of(STUDENTS, family), self.blocks_of(TEACHERS, family)], axis=-2)

    def gram(self, *families: str) -> Float[Array, "*batch n n"]:
        """The overlaps of all vectors of these families with each other."""
        return jnp.block([[self.overlap(one, other) for other in families] for one in families])

    def grams(self, *families: str) -> Float[Array, "*batch blocks n n"]:
        """The same in each block."""
        return jnp.block([[self.blocks_of(one, other) for other in families] for one in families])

    @property
    def blocks(self) -> int:
        """How many blocks of the inputs' spectrum there are."""
        return self.overlaps[STUDENTS, STUDENTS].shape[-3]

    @property
    def width(self) -> int:
        return self.overlaps[STUDENTS, STUDENTS].shape[-1]

    @property
    def teacher_width(self) -> int:
        return self.overlaps[TEACHERS, TEACHERS].shape[-1]

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The leading axes."""
        return self.overlaps[STUDENTS, STUDENTS].shape[:-3]


class WideState(eqx.Module):
    r"""The overlaps of a wide student network, without the overlaps among its neurons.

    Outside the teacher's span each neuron points in its own direction,
    $$ Q = M P^{-1} M^\top + \text{diag}(q_\perp), $$
    so p neurons are p (k + 1) numbers instead of p^2. `Q` is formed only if you ask for it.

    **Arguments:**

    - `M`: overlaps of students with the `k` teachers, shape `(p, k)`.
    - `q_perp`: squared norm of each student outside the teacher's span, over d, shape `(p,)`.
    - `P`: overlaps among the teachers, shape `(k, k)`; the identity if left out.
    - `readout`: second-layer parameters; if left out, those of the problem.
    - `cosine_variance`: variance of the cosines between students outside the teacher's span, 1/(d - k) for random
      directions in dimension d; zero if left out, which is infinite d.
    - `density`: whether the neurons represent the density of infinitely many neurons.

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
        variance = jnp.asarray(real_array(cosine_variance, "cosine_variance"))
        if variance.shape not in ((), batch):
            raise InvalidInput(f"cosine_variance has shape {variance.shape}; give one number.")
        self.cosine_variance = jnp.broadcast_to(variance, batch)
        self.density = flag(density, "density")

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
    parts = {pair: np.asarray(blocks) for pair, blocks in state.overlaps.items()}
    parts |= {(other, one): np.swapaxes(blocks, -1, -2) for (one, other), blocks in parts.items() if one != other}
    Q = parts[STUDENTS, STUDENTS].sum(axis=-3)
    covariance = np.block([[parts[one, other] for other in state.families] for one in state.families])
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


class Entries(NamedTuple):
    """The overlaps of two families as coordinates: the upper triangle of a symmetric matrix, or all of it, by rows.

    **Attributes:**

    - `pair`: the two families; `rows`, `columns`: how many vectors they have.
    - `normalised`: whether the diagonal does not move.
    """

    pair: Pair
    rows: int
    columns: int
    normalised: bool

    @property
    def indices(self) -> tuple[np.ndarray, np.ndarray]:
        if self.pair[0] == self.pair[1]:
            return _upper(self.rows, self.normalised)
        rows, columns = np.divmod(np.arange(self.rows * self.columns), self.columns)
        return rows, columns

    @property
    def name(self) -> str:
        return LETTERS.get(self.pair, "-".join(dict.fromkeys(self.pair)))

    def pack(self, blocks: Float[Array, "*batch blocks rows columns"]) -> Float[Array, "*batch n"]:
        found = blocks[(..., *self.indices)]
        return found.reshape(*found.shape[:-2], found.shape[-2] * found.shape[-1])

    def unpack(self, numbers: Float[Array, "*batch n"], like: Float[Array, "*axes blocks rows columns"]) -> Array:
        numbers = numbers.reshape(*numbers.shape[:-1], like.shape[-3], len(self.indices[0]))
        if self.pair[0] != self.pair[1]:
            return numbers.reshape(*numbers.shape[:-1], self.rows, self.columns)
        if not numbers.shape[-1]:  # one student on the sphere
            return jnp.broadcast_to(like, (*numbers.shape[:-2], *like.shape[-3:]))
        matrix = numbers[..., _triangle_index(self.rows, self.normalised)]
        # The index of the diagonal is arbitrary: the diagonal does not move and is that of the start.
        return jnp.where(np.eye(self.rows, dtype=bool), like, matrix) if self.normalised else matrix


LETTERS = {(STUDENTS, STUDENTS): "Q", (STUDENTS, TEACHERS): "M", (TEACHERS, TEACHERS): "P"}


class Coordinates(eqx.Module):
    """The independent numbers of a State that an algorithm moves, as one vector.

    In this order: the upper triangle of Q (on the sphere without its diagonal), M by rows, overlaps with and among the
    algorithm's own vectors, the readout if trained, what the algorithm measures.
    """

    entries: tuple[Entries, ...] = eqx.field(static=True)
    blocks: int = eqx.field(static=True)
    readout_size: int = eqx.field(static=True)
    numbers: tuple[tuple[str, tuple[int, ...]], ...] = eqx.field(static=True, default=())

    @property
    def size(self) -> int:
        overlaps = self.blocks * sum(len(entry.indices[0]) for entry in self.entries)
        return overlaps + self.readout_size + sum(math.prod(shape) for _, shape in self.numbers)

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for each coordinate, such as `Q[0,1]`."""
        blocks = [""] if self.blocks == 1 else [f" of block {block}" for block in range(self.blocks)]
        found = [
            f"{entry.name}[{i},{j}]{block}"
            for entry in self.entries
            for block in blocks
            for i, j in zip(*entry.indices, strict=True)
        ]
        numbers = [
            name + (f"[{','.join(map(str, index))}]" if index else "")
            for name, shape in self.numbers
            for index in np.ndindex(shape)
        ]
        return (*found, *(f"readout[{i}]" for i in range(self.readout_size)), *numbers)

    @eqx.filter_jit
    def pack(self, state: State) -> Float[Array, "*batch n"]:
        """The coordinates of a State (or of an increment of it)."""
        parts = [entry.pack(state.blocks_of(*entry.pair)) for entry in self.entries]
        if self.readout_size:
            assert state.readout is not None
            parts.append(state.readout)
        for name, shape in self.numbers:
            measured = state.numbers[name]
            parts.append(measured.reshape(*measured.shape[: measured.ndim - len(shape)], -1))
        return jnp.concatenate(parts, axis=-1)

    @eqx.filter_jit
    def unpack(self, vector: Float[Array, "*batch n"], like: State) -> State:
        """The State with these coordinates; what does not move is taken from `like`."""
        batch = vector.shape[:-1]
        overlaps = {
            pair: jnp.broadcast_to(blocks, (*batch, *blocks.shape[-3:])) for pair, blocks in like.overlaps.items()
        }
        begin = 0
        for entry in self.entries:
            end = begin + self.blocks * len(entry.indices[0])
            overlaps[entry.pair] = entry.unpack(vector[..., begin:end], like.blocks_of(*entry.pair))
            begin = end
        readout = like.readout
        if self.readout_size:
            readout = vector[..., begin : begin + self.readout_size]
        elif readout is not None:
            readout = jnp.broadcast_to(readout, (*batch, readout.shape[-1]))
        begin += self.readout_size
        numbers = {}
        for name, shape in self.numbers:
            end = begin + math.prod(shape)
            numbers[name] = vector[..., begin:end].reshape(*batch, *shape)
            begin = end
        return State.of(overlaps, readout, numbers)


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

    @eqx.filter_jit
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
