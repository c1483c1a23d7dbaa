"""Linear maps with a transpose of their own, so that derivatives go forwards one way and backwards another."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.core
import jax.extend.core
import jax.numpy as jnp
from jax.interpreters import ad, batching, mlir

from .errors import InvalidInput

Map = Callable[..., list[Any]]


def linear_map(
    forward: Map, backward: Map | None, fixed: list[Any], moving: list[Any], out: list[Any], words: str
) -> list[Any]:
    """What `forward(*fixed, *moving)` is, linear in `moving`, with `backward(*fixed, *cotangents)` as its transpose.

    As `jax.custom_derivatives.linear_call`, which can neither be mapped nor differentiated by what is fixed.

    **Arguments:**

    - `backward`: None where there is none; then, and where `backward` itself would be differentiated, `words` say so.
    - `out`: arrays, or shapes and types, like the result.
    """
    avals = tuple(jax.core.ShapedArray(each.shape, each.dtype) for each in out)
    return _linear_map.bind(
        *fixed, *moving, map=forward, transpose=backward, number=len(fixed), avals=avals, words=words, is_given=True
    )


def only_backwards(*trees: Any) -> bool:
    """Whether what is differentiated here is so backwards and once, as far as can be seen from inside of a `jit`.

    Then nothing has to be ready for derivatives forwards, which costs another solution.
    """
    kinds = [_kinds(leaf) for leaf in jax.tree.leaves(trees)]
    return any(kinds) and all(each in ([], ["LinearizeTracer"]) for each in kinds)


def _kinds(leaf: Any) -> list[str]:
    """The ways in which a number is differentiated, the innermost first."""
    found = []
    while isinstance(leaf, jax.core.Tracer):
        name = type(leaf).__name__
        found += [name] if name in ("JVPTracer", "LinearizeTracer") else []
        leaf = getattr(leaf, "primal", getattr(leaf, "val", None))
    return found


@eqx.filter_custom_jvp
def only_forwards(tree: Any, *, words: str) -> Any:
    """The same arrays, whose derivatives backwards are refused in these words."""
    return tree


@only_forwards.def_jvp
def _only_forwards_jvp(primals, tangents, *, words: str):
    (tree,), (tangent,) = primals, tangents
    moving, structure = jax.tree.flatten(tangent)
    changes = linear_map(lambda *moving: list(moving), None, [], moving, moving, words)
    return tree, jax.tree.unflatten(structure, changes)


_linear_map = jax.extend.core.Primitive("linear_map")
_linear_map.multiple_results = True


def _computed(*args, map: Map, **_):
    return map(*args)


_linear_map.def_impl(_computed)
_linear_map.def_abstract_eval(lambda *_, avals, **__: list(avals))
mlir.register_lowering(_linear_map, mlir.lower_fun(_computed, multiple_results=True))


def _jvp(primals, tangents, *, map, number, words, is_given, avals, **how):
    how |= {"map": map, "number": number, "words": words, "is_given": is_given, "avals": avals}
    values = _linear_map.bind(*primals, **how)
    fixed, moving = primals[:number], primals[number:]
    changes = [None] * len(values)
    if any(type(each) is not ad.Zero for each in tangents[number:]):
        changes = _linear_map.bind(*fixed, *_instantiated(moving, tangents[number:]), **how)
    moved = [place for place, each in enumerate(tangents[:number]) if type(each) is not ad.Zero]
    if moved:
        if not is_given:
            raise InvalidInput(words)

        def derivative(*given):
            values = list(given[: len(primals)])

            def at(*chosen):
                for place, value in zip(moved, chosen, strict=True):
                    values[place] = value
                return map(*values)

            return jax.jvp(at, tuple(given[place] for place in moved), tuple(given[len(primals) :]))[1]

        others = linear_map(derivative, None, list(primals), [tangents[place] for place in moved], list(avals), words)
        changes = [b if a is None else a + b for a, b in zip(changes, others, strict=True)]
    return values, [ad.Zero(aval) if a is None else a for a, aval in zip(changes, avals, strict=True)]


def _instantiated(values, tangents) -> list[Any]:
    return [
        jnp.zeros_like(value) if type(tangent) is ad.Zero else tangent
        for value, tangent in zip(values, tangents, strict=True)
    ]


def _transposed(cotangents, *args, map, transpose, number, avals, words, is_given):
    if transpose is None:
        raise InvalidInput(words)
    fixed, moving = args[:number], args[number:]
    given = [ad.instantiate_zeros(each) for each in cotangents]
    found = _linear_map.bind(
        *fixed,
        *given,
        map=transpose,
        transpose=map,
        number=number,
        avals=tuple(each.aval for each in moving),
        words=words,
        is_given=not is_given,
    )
    return [None] * number + found


def _batched(args, axes, *, map, transpose, number, avals, **how):
    size = next(each.shape[axis] for each, axis in zip(args, axes, strict=True) if axis is not None)
    fixed, moving = list(args[:number]), list(args[number:])
    moving = [
        jnp.broadcast_to(each, (size, *jnp.shape(each))) if axis is None else jnp.moveaxis(each, axis, 0)
        for each, axis in zip(moving, axes[number:], strict=True)
    ]

    def over(function, others: int):
        return jax.vmap(function, in_axes=(*axes[:number], *[0] * others))

    found = _linear_map.bind(
        *fixed,
        *moving,
        map=over(map, len(moving)),
        transpose=None if transpose is None else over(transpose, len(avals)),
        number=number,
        avals=tuple(aval.update(shape=(size, *aval.shape)) for aval in avals),
        **how,
    )
    return found, [0] * len(found)


ad.primitive_jvps[_linear_map] = _jvp
ad.primitive_transposes[_linear_map] = _transposed
batching.primitive_batchers[_linear_map] = _batched
