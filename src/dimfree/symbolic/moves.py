"""The step of an algorithm in symbols: its `move`, read off what JAX traces of it."""

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import sympy
from jax.extend import core

from ..algorithms.online import OnlineAlgorithm
from ..algorithms.schedules import Schedule
from ..errors import InvalidInput
from ..state import Pair


class SymbolicMove(NamedTuple):
    """`dimfree.algorithms.moves.Move` with sympy entries, none of them zero."""

    drag: dict[Pair, Any]
    pull: dict[str, Any]


class Traced(NamedTuple):
    """What an algorithm does with its numbers, each a symbol.

    - `numbers`: of each symbol, the path of attributes to the number, and the number (None for a schedule).
    - `alpha`: the symbol of the clock, where the step asks for it.
    - `move`, `learning_rate`, `ridge`: expressions of them.
    """

    numbers: dict[Any, tuple[tuple[str, ...], Any]]
    alpha: Any
    move: SymbolicMove
    learning_rate: Any
    ridge: Any


def traced(algorithm: OnlineAlgorithm) -> Traced:
    """The step, as an expression of the algorithm's numbers and schedules."""
    paths, structure = jax.tree_util.tree_flatten_with_path(algorithm, is_leaf=_is_schedule)
    scalars = [n for n, (_, leaf) in enumerate(paths) if _is_schedule(leaf) or jnp.shape(leaf) == ()]
    leaves = [leaf for _, leaf in paths]

    def step(values: list[Any], alpha: Any) -> Any:
        given = dict(zip(scalars, values, strict=True))
        whole = jax.tree_util.tree_unflatten(structure, [given.get(n, leaf) for n, leaf in enumerate(leaves)])
        move = whole.move(alpha)
        return {"drag": dict(move.drag), "pull": dict(move.pull), "rate": whole.learning_rate, "ridge": whole.ridge}

    ones = [jnp.ones(()) for _ in scalars]
    jaxpr, shape = jax.make_jaxpr(step, return_shape=True)(ones, jnp.ones(()))
    symbols, alpha = [sympy.Dummy() for _ in scalars], sympy.Symbol(r"\alpha")
    try:
        found = _evaluated(jaxpr.jaxpr, jaxpr.consts, [*symbols, alpha])
    except KeyError as error:
        raise InvalidInput(
            f"The move of {algorithm!r} cannot be written in symbols: it uses {error.args[0]}. Make its entries of the "
            "algorithm's numbers by +, -, * and /; dimfree.ode has the limit in numbers."
        ) from None
    entries = jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(shape), found)
    move = SymbolicMove(entries["drag"], entries["pull"])
    numbers = {
        symbol: (tuple(key.name for key in paths[n][0]), None if _is_schedule(leaves[n]) else leaves[n])
        for symbol, n in zip(symbols, scalars, strict=True)
    }
    return Traced(numbers, alpha, move, entries["rate"], entries["ridge"])


def _is_schedule(leaf: Any) -> bool:
    return isinstance(leaf, Schedule)


_OPERATIONS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": operator.neg,
    "pow": operator.pow,
    "integer_pow": operator.pow,
    "square": lambda x: x**2,
    "sqrt": sympy.sqrt,
    "exp": sympy.exp,
    "log": sympy.log,
    "convert_element_type": lambda x: x,
}


def _evaluated(jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    """The values of a traced function at expressions; `KeyError` with the name of an operation that has none."""
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*map(_exact, constants), *arguments], strict=True))

    def value(atom: Any) -> Any:
        return _exact(atom.val) if isinstance(atom, core.Literal) else values[atom]

    for step in jaxpr.eqns:
        given, name = [value(atom) for atom in step.invars], step.primitive.name
        if inner := step.params.get("jaxpr"):
            found = _evaluated(inner.jaxpr, inner.consts, given)
        else:
            power = [step.params["y"]] if name == "integer_pow" else []
            found = [_OPERATIONS[name](*given, *power)]
        values |= dict(zip(step.outvars, found, strict=True))
    return [value(atom) for atom in jaxpr.outvars]


def _exact(number: Any) -> Any:
    """A number as a fraction."""
    return sympy.Rational(str(float(number)))
