"""Integrating the blocks of a spectrum over many scales: their linear part exactly, with averages frozen in a step."""

import math
from typing import Any, ClassVar, NamedTuple

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class Frozen(NamedTuple):
    """The linear part of an equation with its averages frozen: diagonal in the basis `turn`, seen from where it rests.

    **Attributes:**

    - `turn`: basis vectors of the students as columns; `rest`: where they rest in it, in units of the teachers.
    - `rates`: of the coordinates there.
    """

    turn: Float[Array, "p p"]
    rest: Float[Array, "blocks p k"]
    rates: Float[Array, " n"]


_HISTORY = 4  # evaluations that a step is predicted from, its own beginning among them


class History(eqx.Module):
    """What a step is predicted from: earlier evaluations, the latest first, and how many of them there are."""

    times: Float[Array, " history"]
    values: Float[Array, "history n"]
    drifts: Float[Array, "history n"]
    number: Int[Array, ""]
    frozen: Frozen

    def with_next(self, time, value, drift, frozen: Frozen) -> "History":
        def pushed(new, old):
            return jnp.concatenate([jnp.asarray(new)[None], old[:-1]])

        number = jnp.minimum(self.number + 1, _HISTORY)
        return History(pushed(time, self.times), pushed(value, self.values), pushed(drift, self.drifts), number, frozen)


class Propagated(diffrax.AbstractLocalInterpolation):
    """The solution in a step: forces are a polynomial in time, and what is linear is exact."""

    t0: Any
    t1: Any
    limit: Any
    like: Any
    frozen: Frozen
    start: Float[Array, " n"]
    coefficients: Float[Array, "powers n"]

    def evaluate(self, t0, t1=None, left: bool = True):
        if t1 is not None:
            return self.evaluate(t1) - self.evaluate(t0)
        length = self.t1 - self.t0
        part = jnp.where(length > 0, (t0 - self.t0) / jnp.where(length > 0, length, 1.0), 0.0)
        scaled = self.coefficients * part ** jnp.arange(len(self.coefficients))[:, None]
        value = propagated(self.start, part * length * self.frozen.rates, part * length, scaled)
        return self.limit.back_from(self.frozen, value, self.like)


class FrozenAverages(diffrax.AbstractAdaptiveSolver):
    r"""An exponential Adams method, $y' = L y + N(\alpha, y)$ with L frozen at each step.

    With averages frozen, the blocks of a spectrum are linear and independent, each with the rates of its eigenvalue:
    L is what is stiff. Its exponential is exact, so that steps are as long as the averages change little, whatever the
    largest eigenvalue is. The forces N are a polynomial through four earlier values, and one more at the predicted end:
    two evaluations a step, and derivatives of one by the covariances of the fields. Values inside of a step, as methods
    of Runge-Kutta take them, would not do: in blocks that are at rest they are of first order only, and those blocks
    carry a part of the risk.

    Hochbruck & Ostermann, Acta Numerica 19 (2010) 209, Section 2.5.

    **Arguments:**

    - `limit`: with `evaluated` (the drift and a `Frozen` in one), `seen_from` and `back_from` (to the frame of a
      `Frozen`, and back), `fields` (what averages depend on) and `drift_seen` (the drift, averages over other fields).
    """

    limit: Any
    term_structure: ClassVar = diffrax.ODETerm
    interpolation_cls: ClassVar = Propagated

    def order(self, terms) -> int:
        return _HISTORY + 1

    def init(self, terms, t0, t1, y0, args) -> History:
        drift, frozen = self.limit.evaluated(t0, y0, args)
        nothing = jnp.zeros((_HISTORY, *y0.shape))
        empty = History(jnp.zeros(_HISTORY), nothing, nothing, jnp.zeros((), int), frozen)
        return empty.with_next(t0, y0, drift, frozen)

    def func(self, terms, t0, y0, args):
        return terms.vf(t0, y0, args)

    def step(self, terms, t0, t1, y0, args, solver_state: History, made_jump):
        history, frozen, h = solver_state, solver_state.frozen, t1 - t0
        nothing = jax.tree.map(jnp.zeros_like, args)  # what does not move has no derivative

        def force(value, drift):
            return self.limit.seen_from(frozen, drift, nothing) - frozen.rates * value

        def at(value):
            return self.limit.back_from(frozen, value, args)

        seen = jax.vmap(lambda values: self.limit.seen_from(frozen, values, args))(history.values)
        forces = jax.vmap(force)(seen, history.drifts)
        nodes, start, exponents = (history.times - t0) / h, seen[0], h * frozen.rates
        predicted = propagated(start, exponents, h, polynomial(nodes, forces, history.number))
        nodes = jnp.concatenate([jnp.ones(1), nodes])

        def with_last(force):
            every = jnp.concatenate([force[None], forces])
            return polynomial(nodes, every, history.number + 1), polynomial(nodes[:-1], every[:-1], history.number)

        values = at(predicted)

        def corrected(fields):
            last = force(predicted, self.limit.drift_seen(t1, values, args, fields))
            return last, self.limit.fields(t1, at(propagated(start, exponents, h, with_last(last)[0])), args)

        # Blocks at rest follow the fields at once, and the fields are made of them: one step of Newton's method, in as
        # many dimensions as there are fields, whatever the number of blocks.
        expected = self.limit.fields(t1, values, args)
        (last, found), pushforward = jax.linearize(corrected, expected)
        lasts, founds = jax.vmap(pushforward)(jnp.eye(len(expected)))
        change = jnp.linalg.solve(jnp.eye(len(expected)) - founds.T, found - expected)
        coefficients, fewer = with_last(last + change @ lasts)
        end = propagated(start, exponents, h, coefficients)
        error = end - propagated(start, exponents, h, fewer)
        y1 = at(end)
        info = {"limit": self.limit, "like": args, "frozen": frozen, "start": start, "coefficients": coefficients}
        after = history.with_next(t1, y1, *self.limit.evaluated(t1, y1, args))
        return y1, self.limit.back_from(frozen, error, nothing), info, after, diffrax.RESULTS.successful


def polynomial(
    nodes: Float[Array, " powers"], values: Float[Array, "powers n"], number: Int[Array, ""]
) -> Float[Array, "powers n"]:
    """The coefficients of the polynomial through the first `number` of these points; those of higher powers are 0."""
    powers = jnp.arange(len(nodes))
    known = (powers < number)[:, None]
    matrix = jnp.where(known, nodes[:, None] ** powers, jnp.eye(len(nodes)))
    return jnp.linalg.inv(matrix) @ jnp.where(known, values, 0.0)


def propagated(start, exponents, length, coefficients: Float[Array, "powers n"]) -> Float[Array, " n"]:
    """Where y' = L y + N leads in a step, with N a polynomial of the part of the step that has passed."""
    decay, *weights = phi(exponents, len(coefficients))
    factorials = jnp.array([float(math.factorial(power)) for power in range(len(weights))])
    return decay * start + length * jnp.sum(factorials[:, None] * jnp.stack(weights) * coefficients, axis=0)


_LARGEST = 100.0  # a step over which anything grows by more is refused anyway
_TERMS = 18


def phi(z: Float[Array, " n"], number: int) -> list[Float[Array, " n"]]:
    r"""$e^z$ and $\phi_k(z) = \int_0^1 e^{(1-t)z} t^{k-1} / (k-1)! \, dt$ for k = 1 to `number`."""
    z = jnp.minimum(z, _LARGEST)
    near = jnp.abs(z) < 1
    small, large = jnp.where(near, z, 0.0), jnp.where(near, 1.0, z)
    # Away from zero each follows from the one before; near zero that cancels, and each follows from the one after.
    up = [jnp.exp(large), jnp.expm1(large) / large]
    for k in range(1, number):
        up.append((up[-1] - 1 / math.factorial(k)) / large)
    down = [jnp.polyval(jnp.array([1 / math.factorial(j + number) for j in reversed(range(_TERMS))]), small)]
    for k in reversed(range(number)):
        down.append(small * down[-1] + 1 / math.factorial(k))
    return [jnp.where(near, a, b) for a, b in zip(reversed(down), up, strict=True)]
