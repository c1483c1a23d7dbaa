"""A step of all vectors, stated once: what it does to their overlaps and to the vectors themselves follows."""

import dataclasses
from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..gaussian.factor import diagonal
from ..problems.base import Moments
from ..state import STUDENTS, Pair, State

Number = Float[Array, ""] | float


class Move(eqx.Module):
    r"""One step of all vectors that take part, students, teachers and an algorithm's own, as the rows of U.

    $$ U' = \Big(I + J + \frac{K}{d}\Big) U + C g, $$

    with g the gradient of the batch, one row for each student. Entries of the matrices are numbers between families of
    vectors. With J = 0 a step changes the overlaps by order 1/d, and they have a limit of their own; a memory of a few
    steps, J, has none in this form. The gradient is taken at the students, or at another point made of all vectors.

    **Attributes:**

    - `drag`: K, by (family that moves, family it is moved along).
    - `pull`: C, by the family that moves.
    - `jump`: J, likewise; empty where a step is the identity at 1/d = 0.
    - `point`: where the gradient is taken, as a sum of families times numbers, that of the students not zero; empty
      where it is at the students.
    """

    drag: Mapping[Pair, Number]
    pull: Mapping[str, Number]
    jump: Mapping[Pair, Number] = eqx.field(default_factory=dict)
    point: Mapping[str, Number] = eqx.field(default_factory=dict)

    def row(self, family: str, inverse_d: Number) -> dict[str, Number]:
        """The row of I + J + K/d that makes a family, without zeros."""
        row: dict[str, Number] = {family: 1.0}
        for matrix, scale in ((self.jump, 1.0), (self.drag, inverse_d)):
            for (moved, along), number in matrix.items():
                if moved == family:
                    row[along] = row.get(along, 0.0) + number * scale
        return row

    def rests(self, family: str) -> bool:
        """Whether a family stays where it is."""
        return family not in self.pull and all(family != moved for moved, _ in (*self.drag, *self.jump))

    def seen(self, state: State) -> State:
        """The State with the point where the gradient is taken in the place of the students."""
        if not self.point:
            return state

        def row(family: str) -> Mapping[str, Number]:
            return self.point if family == STUDENTS else {family: 1.0}

        overlaps = {
            (one, other): sum(
                (a * b * state.blocks_of(f, g) for f, a in row(one).items() for g, b in row(other).items()),
                jnp.zeros(()),
            )
            for one, other in state.overlaps
        }
        return State.of(overlaps, state.readout, state.numbers)

    def along_students(self, moments: Moments) -> Moments:
        """Moments with the students in the place of the point where the gradient is taken."""
        if not self.point:
            return moments
        others = (number * moments.along(family) for family, number in self.point.items() if family != STUDENTS)
        student = (moments.student - sum(others, jnp.zeros(()))) / self.point[STUDENTS]
        return dataclasses.replace(moments, student=student)

    def point_of(self, vectors: dict[str, Float[Array, "_ d"]]) -> Float[Array, "p d"]:
        """The point where the gradient is taken."""
        if not self.point:
            return vectors[STUDENTS]
        return sum((number * vectors[family] for family, number in self.point.items()), jnp.zeros(()))

    def overlaps(self, state: State, moments: Moments, inverse_d: Number) -> dict[Pair, Float[Array, "blocks _ _"]]:
        r"""The overlaps after the step, exactly.

        $$ G' = (I + \tfrac{K}{d}) G (I + \tfrac{K}{d})^\top
           + \tfrac1d \big( C E (I + \tfrac{K}{d})^\top + \text{transpose} \big) + \tfrac1d C B C^\top $$

        with $E = g U^\top / \sqrt d$ and $B = g g^\top$ those of the `moments`.
        """
        rows = {family: self.row(family, inverse_d) for family in state.families}

        def moved(one: str, other: str) -> Array:
            total = sum(
                (
                    a * b * state.blocks_of(first, second)
                    for first, a in rows[one].items()
                    for second, b in rows[other].items()
                ),
                jnp.zeros(()),
            )
            if one in self.pull:
                along = sum((b * moments.along(second) for second, b in rows[other].items()), jnp.zeros(()))
                total = total + inverse_d * self.pull[one] * along
            if other in self.pull:
                along = sum((a * moments.along(first) for first, a in rows[one].items()), jnp.zeros(()))
                total = total + inverse_d * self.pull[other] * jnp.swapaxes(along, -1, -2)
            if one in self.pull and other in self.pull:
                total = total + inverse_d * self.pull[one] * self.pull[other] * moments.square
            return total

        return {
            pair: blocks if all(self.rests(family) for family in pair) else moved(*pair)
            for pair, blocks in state.overlaps.items()
        }

    def vectors(
        self, vectors: dict[str, Float[Array, "_ d"]], gradient: Float[Array, "p d"], inverse_d: Number
    ) -> dict[str, Float[Array, "_ d"]]:
        """The vectors after the same step."""

        def moved(family: str) -> Array:
            total = sum((a * vectors[along] for along, a in self.row(family, inverse_d).items()), jnp.zeros(()))
            return total + self.pull[family] * gradient if family in self.pull else total

        return {family: rows if self.rests(family) else moved(family) for family, rows in vectors.items()}


def normalised_overlaps(overlaps: dict[Pair, Array], family: str) -> dict[Pair, Array]:
    r"""Overlaps where each vector of a family is brought back to norm $\sqrt d$."""
    norms = jnp.sqrt(diagonal(jnp.sum(overlaps[family, family], axis=-3)))

    def scaled(pair: Pair, blocks: Array) -> Array:
        blocks = blocks / norms[:, None] if pair[0] == family else blocks
        return blocks / norms if pair[1] == family else blocks

    return {pair: scaled(pair, blocks) for pair, blocks in overlaps.items()}


def normalised_vectors(vectors: Float[Array, "p d"]) -> Float[Array, "p d"]:
    r"""Vectors brought back to norm $\sqrt d$."""
    return vectors * jnp.sqrt(vectors.shape[-1] / jnp.sum(vectors**2, axis=-1, keepdims=True))


def with_vectors(state: State, own: Mapping[str, str | None]) -> State:
    """The State with an algorithm's own vectors: those it has already, or new ones, zero or copies of a family."""
    students, teachers, *present = state.families
    source = {students: students, teachers: teachers}
    source |= {family: family if family in present else own[family] for family in sorted(own)}
    like = state.overlaps[students, students]

    def blocks(one: str, other: str) -> Array:
        first, second = source[one], source[other]
        if first is None or second is None:
            rows, columns = (state.teacher_width if family == teachers else state.width for family in (one, other))
            return jnp.zeros((*like.shape[:-2], rows, columns))
        return state.blocks_of(first, second)

    return State.of({pair: blocks(*pair) for pair in pairs_of(list(source))}, state.readout, state.numbers)


def pairs_of(families: list[str]) -> list[Pair]:
    """Each pair of families once, in the order of coordinates: Q, M, P, then those with the later families."""
    students, teachers, *own = families
    found = [(students, students), (students, teachers), (teachers, teachers)]
    for number, family in enumerate(own):
        found += [(family, other) for other in (students, teachers, *own[:number], family)]
    return found
