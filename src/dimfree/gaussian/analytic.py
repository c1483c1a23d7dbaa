"""Whether a program can jump or have a kink, told from its operations and not from its values."""

import os
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

# Analytic wherever they are finite, and linear or structural operations; of a pole the values tell.
_ANALYTIC = frozenset(
    name
    for line in (
        "add add_any asinh atan broadcast_in_dim concatenate copy cos cosh cumprod cumsum div dot_general erf erf_inv",
        "erfc exp exp2 expand_dims expm1 integer_pow lgamma digamma log log1p logistic mul neg optimization_barrier",
        "pad reduce_prod reduce_sum reshape rev sin sinh slice split square squeeze stop_gradient sub tan tanh",
        "transpose",
    )
    for name in line.split()
)
# Analytic in so many of their first operands; the others are places in an array.
_IN_SOME = {"gather": 1, "dynamic_slice": 1, "dynamic_update_slice": 2}
# Functions of JAX that compare numbers on the way to an analytic result.
_NAMED, _JAX = frozenset(("log_softmax", "logaddexp", "sinc")), os.path.dirname(jax.__file__)
_INSIDE = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def is_analytic(program: Jaxpr, moves: Sequence[bool]) -> bool:
    """Whether a program is made of analytic operations only, so that its results have neither kinks nor jumps.

    The converse need not hold: a maximum or a comparison may cancel out. A kink or a jump far out, or for other values
    of a number in the program, is seen too, which trying it at points cannot promise.

    **Arguments:**

    - `program`: as `jax.make_jaxpr` gives it.
    - `moves`: which of its arguments move; the others are constants.

    **Returns:** True if no operation on what moves can have a kink or a jump.

    ??? example
        >>> import jax, jax.numpy as jnp
        >>> gate = jax.make_jaxpr(lambda x, y: jnp.where(x > 9, y, 0))(0.0, 0.0).jaxpr
        >>> is_analytic(gate, [True, False]), is_analytic(gate, [False, True])
        (False, True)
    """
    return _moving(program, moves) is not None


def _moving(program: Jaxpr, moves: Sequence[bool]) -> list[bool] | None:
    """Which results move with the arguments that do; None where one of them may jump or have a kink."""
    moving = {id(variable) for variable, each in zip(program.invars, moves, strict=True) if each}

    def is_moving(variable: Any) -> bool:
        return not isinstance(variable, Literal) and id(variable) in moving

    for step in program.eqns:
        given = [is_moving(variable) for variable in step.invars]
        if not any(given):
            continue
        inside = _inside(step.params)
        if inside is not None and len(inside.invars) == len(given):
            found = [True] * len(step.outvars) if _is_known(inside) else _moving(inside, given)
            if found is None:
                return None
        elif _is_analytic_in(step, given):
            found = [True] * len(step.outvars)
        else:
            return None
        moving.update(id(variable) for variable, each in zip(step.outvars, found, strict=True) if each)
    return [is_moving(variable) for variable in program.outvars]


def _is_known(program: Jaxpr) -> bool:
    """Whether it is that of a function of JAX which is analytic although it compares numbers on its way."""
    name, _, where = (getattr(program.debug_info, "func_src_info", None) or "").partition(" at ")
    return name in _NAMED and where.startswith(_JAX)


def _is_analytic_in(step: JaxprEqn, moves: Sequence[bool]) -> bool:
    """Whether a single operation is analytic in those of its operands that move."""
    name = step.primitive.name
    if name == "convert_element_type":
        return bool(np.issubdtype(step.params["new_dtype"], np.inexact))  # to whole numbers it rounds
    if name == "select_n":
        return not moves[0]
    if name in _IN_SOME:
        return not any(moves[_IN_SOME[name] :])
    return name in _ANALYTIC


def _inside(parameters: dict[str, Any]) -> Jaxpr | None:
    """The program that an operation calls once, with its own operands."""
    for name in _INSIDE:
        found = parameters.get(name)
        if isinstance(found, ClosedJaxpr):
            return found.jaxpr
        if isinstance(found, Jaxpr):
            return found
    return None
