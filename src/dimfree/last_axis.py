"""A function of one run applied to many that lie along the last axis, so that they fill the registers of a processor.

`jax.vmap` moves the axis that it maps over to where each operation likes it, the first axis of products of matrices for
example. Runs of a simulation are many and their arrays small: along the last axis, an operation on a small array is a
few operations on long vectors, which XLA joins into one loop.
"""

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core
from jaxtyping import Array, Bool, PyTree

from .batches import NUMBERS, largest_array, map_in_batches, size

_WRITTEN_OUT = 32  # terms of a sum up to which each is an operation of its own
_SINGLE = 40  # numbers in the largest array of a program up to which each is a vector of its own
_MANY = 16  # entries from which on a branch for what must be in memory costs less than it saves
_SEVERAL = 4  # results from which on it does so: what few results need is made again for each, and joined with it
_INLINED = ("jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "remat2", "checkpoint")


def kept(function: Callable[[], PyTree[Array]], always: Bool[Array, ""]) -> PyTree[Array]:
    """What a function makes, in memory: XLA joins operations, and would make it again wherever it is used.

    It does so for what it thinks is cheap, and does not look into a branch.

    **Arguments:**

    - `always`: a number that is true, but not known to be when the program is compiled.
    """
    shapes = jax.eval_shape(function)
    return lax.cond(always, function, lambda: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes))


def map_last_axis(function: Callable[[Any], Any], inputs: Any, always: Bool[Array, ""] | None = None) -> Any:
    """The results of a function for each entry along the last axis of its inputs, along the last axis.

    Where all entries at once would make large arrays (an average over many points), in batches along a leading axis.
    Of many entries, what the function passes through `jax.lax.optimization_barrier` is kept in memory.

    **Arguments:**

    - `function`: of one entry.
    - `inputs`: pytree of arrays with the same last axis; leaves that are not arrays are passed on as they are.
    - `always`: of `kept`; nothing is kept if left out.
    """
    arrays, rest = eqx.partition(inputs, eqx.is_array)
    number = jax.tree.leaves(arrays)[0].shape[-1]
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[:-1], leaf.dtype), arrays)
    program, made = jax.make_jaxpr(lambda entry: function(eqx.combine(entry, rest)), return_shape=True)(one)
    if number * largest_array(program.jaxpr) > NUMBERS:
        first = map_in_batches(function, jax.tree.map(lambda leaf: _moved(leaf, -1, 0), inputs))
        return jax.tree.map(lambda leaf: _moved(leaf, 0, -1), first)
    leaves = jax.tree.leaves(arrays)
    as_given = dict(zip(program.jaxpr.invars, leaves, strict=True))
    outputs = [atom if isinstance(atom, core.Var) else None for atom in program.jaxpr.outvars]
    pays = number >= _MANY and sum(size(atom) for atom in outputs if atom and atom not in as_given) >= _SEVERAL
    if largest_array(program.jaxpr) <= _SINGLE:
        leaves = [_apart(leaf) for leaf in leaves]
    always = always if pays else None
    found = _evaluated(program.jaxpr, program.consts, leaves, [True] * len(leaves), number, always)
    whole = [
        as_given[atom] if atom in as_given else _together(leaf, number, out.aval) if has else _along(leaf, number)
        for out, atom, leaf, has in zip(program.jaxpr.outvars, outputs, *found, strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(made), whole)


def _moved(leaf: Any, source: int, target: int) -> Any:
    return jnp.moveaxis(leaf, source, target) if eqx.is_array(leaf) else leaf


def _apart(leaf: Array) -> np.ndarray:
    """A small array as an array of vectors, one for each number."""
    shape = leaf.shape[:-1]
    flat = leaf.reshape(math.prod(shape), leaf.shape[-1])
    return _filled([flat[place] for place in range(math.prod(shape))], shape)


def _filled(entries: list, shape: Sequence[int]) -> np.ndarray:
    found = np.empty(len(entries), dtype=object)
    for place, entry in enumerate(entries):
        found[place] = entry
    return found.reshape(shape)


def _together(value: Any, number: int, aval: Any) -> Any:
    """The vectors of an array as one array."""
    if not _is_apart(value):
        return value
    entries = [_spread(entry, number) for entry in value.ravel()]
    shape = (*value.shape, number)
    return jnp.stack(entries).reshape(shape) if entries else jnp.zeros(shape, aval.dtype)


def _is_apart(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == object


def _spread(entry: Any, number: int) -> Any:
    """A number, the same for all or one for each."""
    return entry if jnp.ndim(entry) else lax.broadcast_in_dim(jnp.asarray(entry), (number,), ())


def _along(value: Any, number: int) -> Any:
    """A value that is the same for all."""
    return jnp.broadcast_to(jnp.asarray(value)[..., None], (*jnp.shape(value), number))


def _evaluated(
    program: core.Jaxpr, consts: Sequence, inputs: Sequence, mapped: Sequence[bool], number: int, always: Array | None
) -> tuple[list, list]:
    """The outputs of a program, and which have the axis; an input without it is the same for all."""
    values: dict[core.Var, tuple[Any, bool]] = {}
    values.update(zip(program.constvars, ((const, False) for const in consts), strict=True))
    values.update(zip(program.invars, zip(inputs, mapped, strict=True), strict=True))

    def read(atom: Any) -> tuple[Any, bool]:
        return (
            (np.asarray(atom.val, getattr(atom.aval, "dtype", None)), False)
            if isinstance(atom, core.Literal)
            else values[atom]
        )

    needed = _needed(program)
    for step in program.eqns:
        if needed.isdisjoint(step.outvars):
            continue
        given, have = zip(*map(read, step.invars), strict=True) if step.invars else ((), ())
        inner = _inlined(step)
        if inner is not None:
            outputs, has = _evaluated(inner.jaxpr, inner.consts, given, have, number, always)
        elif step.primitive.name == "optimization_barrier":
            outputs, has = _in_memory(given, always), have
        elif not any(have):
            found = step.primitive.bind(*given, **step.params)
            outputs = found if step.primitive.multiple_results else [found]
            has = [False] * len(outputs)
        else:
            outputs = _mapped(step, given, have, number)
            has = [True] * len(outputs)
        values.update(zip(step.outvars, zip(outputs, has, strict=True), strict=True))
    outputs = [read(atom) for atom in program.outvars]
    return [value for value, _ in outputs], [has for _, has in outputs]


def _in_memory(given: Sequence, always: Array | None) -> list:
    """The same values, which nothing makes again; as they are where it does not pay."""
    if always is None:
        return list(given)
    values = [list(map(jnp.asarray, value.ravel())) if _is_apart(value) else jnp.asarray(value) for value in given]
    return [
        _filled(value, old.shape) if _is_apart(old) else value
        for value, old in zip(kept(lambda: values, always), given, strict=True)
    ]


def _needed(program: core.Jaxpr) -> set:
    """The variables that the outputs depend on."""
    needed = {atom for atom in program.outvars if isinstance(atom, core.Var)}
    for step in reversed(program.eqns):
        if not needed.isdisjoint(step.outvars):
            needed.update(atom for atom in step.invars if isinstance(atom, core.Var))
    return needed


def _inlined(step: core.JaxprEqn) -> core.ClosedJaxpr | None:
    """The program of a step that only calls it."""
    if step.primitive.name not in _INLINED:
        return None
    found = step.params["call_jaxpr" if "call_jaxpr" in step.params else "jaxpr"]
    return found if isinstance(found, core.ClosedJaxpr) else core.ClosedJaxpr(found, ())


def _mapped(step: core.JaxprEqn, given: Sequence, have: Sequence[bool], number: int) -> list:
    """The outputs of an operation of which some inputs have the axis."""
    name, params = step.primitive.name, step.params
    shapes = [getattr(atom.aval, "shape", ()) for atom in step.invars]
    out = [getattr(variable.aval, "shape", ()) for variable in step.outvars]
    if any(map(_is_apart, given)):
        found = _of_single(step, given, have, out)
        if found is not None:
            return found
        whole = [_together(value, number, atom.aval) for value, atom in zip(given, step.invars, strict=True)]
        found = _mapped(step, whole, have, number)
        return [_apart(value) for value in found]
    if name in _ELEMENTWISE:
        return [step.primitive.bind(*_alike(given, have, shapes, out[0], number), **params)]
    if name in ("concatenate", "stack"):
        full = [value if has else _along(value, number) for value, has in zip(given, have, strict=True)]
        return [step.primitive.bind(*full, **params)]
    if name in _FOLDS and name != "reduce_sum":
        return [step.primitive.bind(*given, **params)]
    rule = _RULES.get(name)
    if rule is not None and (all(have) or name == "dot_general"):
        found = rule(given, have, params, out[0])
        return found if isinstance(found, list) else [found]
    axes = [-1 if has else None for has in have]
    found = jax.vmap(lambda *each: step.primitive.bind(*each, **params), in_axes=axes, out_axes=-1)(*given)
    return found if step.primitive.multiple_results else [found]


def _of_single(step: core.JaxprEqn, given: Sequence, have: Sequence[bool], out: list) -> list | None:
    """The outputs of an operation on arrays of vectors; None for those that are not known in this form."""
    name, params, bind = step.primitive.name, step.params, step.primitive.bind
    if 0 in (math.prod(shape) for shape in (*map(np.shape, given), *out)):
        return None  # there are no vectors to work on
    if name in _SHAPING:
        if not all(have) and name not in ("concatenate", "stack"):
            return None
        found = _SHAPING[name](*map(_entries, given), params)
        return found if isinstance(found, list) else [found]
    if name in _ELEMENTWISE:
        full = [np.broadcast_to(_entries(value), out[0]) for value in given]
        return [
            _filled(
                [_bound(bind, each, params) for each in zip(*(value.ravel() for value in full), strict=True)], out[0]
            )
        ]
    if name in _FOLDS:
        (value,), axes = given, tuple(params["axes"])
        rest = [axis for axis in range(value.ndim) if axis not in axes]
        rows = value.transpose(*rest, *axes).reshape(math.prod(out[0]), -1)
        return [_filled([functools.reduce(_FOLDS[name], row) for row in rows], out[0])]
    if name == "cumsum" and not params["reverse"]:
        rows = np.moveaxis(given[0], params["axis"], -1)
        sums = [entry for row in rows.reshape(-1, rows.shape[-1]) for entry in itertools.accumulate(row)]
        return [np.moveaxis(_filled(sums, rows.shape), -1, params["axis"])]
    if name == "dot_general":
        return [_single_dot(_entries(given[0]), _entries(given[1]), params["dimension_numbers"], out[0])]
    return None


def _bound(bind: Callable, entries: Sequence, params: dict) -> Any:
    """An elementwise operation on vectors and numbers."""
    vectors = [entry for entry in entries if jnp.ndim(entry)]
    if not vectors:
        return bind(*map(jnp.asarray, entries), **params)
    return bind(*(_spread(entry, vectors[0].shape[0]) for entry in entries), **params)


def _entries(value: Any) -> np.ndarray:
    """An array of numbers, each by itself."""
    if _is_apart(value):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return _filled(list(np.ravel(value)), np.shape(value))
    flat = jnp.ravel(value)
    return _filled([flat[place] for place in range(flat.shape[0])], jnp.shape(value))


def _single_dot(first: np.ndarray, second: np.ndarray, dimension_numbers: tuple, out: tuple) -> np.ndarray:
    contracted, batched = dimension_numbers

    def rows(value, summed, shared):
        kept = [axis for axis in range(value.ndim) if axis not in (*summed, *shared)]
        sizes = [math.prod(value.shape[axis] for axis in axes) for axes in (shared, kept, summed)]
        return value.transpose(*shared, *kept, *summed).reshape(sizes)

    left, right = (rows(*each) for each in zip((first, second), contracted, batched, strict=True))
    found = [
        functools.reduce(operator.add, (a * b for a, b in zip(one, other, strict=True)))
        for ones, others in zip(left, right, strict=True)
        for one in ones
        for other in others
    ]
    return _filled(found, out)


def _broadcast_single(value: np.ndarray, params: dict) -> np.ndarray:
    shape, places = params["shape"], params["broadcast_dimensions"]
    sizes = [1] * len(shape)
    for axis, place in enumerate(places):
        sizes[place] = value.shape[axis]
    return np.broadcast_to(value.reshape(sizes), shape)


def _slice_single(value: np.ndarray, params: dict) -> np.ndarray:
    strides = params["strides"] or (None,) * value.ndim
    parts = zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    return value[tuple(slice(*part) for part in parts)]


_SHAPING: dict[str, Callable] = {
    "broadcast_in_dim": _broadcast_single,
    "slice": _slice_single,
    "reshape": lambda value, params: value.reshape(params["new_sizes"]),
    "squeeze": lambda value, params: np.squeeze(value, tuple(params["dimensions"])),
    "transpose": lambda value, params: value.transpose(params["permutation"]),
    "rev": lambda value, params: np.flip(value, tuple(params["dimensions"])),
    "split": lambda value, params: np.split(value, np.cumsum(params["sizes"])[:-1], params["axis"]),
    "concatenate": lambda *values: np.concatenate(values[:-1], values[-1]["dimension"]),
    "stack": lambda *values: np.stack(values[:-1], values[-1]["axis"]),
}
_FOLDS: dict[str, Callable] = {
    "reduce_sum": operator.add,
    "reduce_prod": operator.mul,
    "reduce_max": jnp.maximum,
    "reduce_min": jnp.minimum,
    "reduce_and": operator.and_,
    "reduce_or": operator.or_,
}


def _alike(given: Sequence, have: Sequence[bool], shapes: Sequence, out: tuple, number: int) -> list:
    """Inputs of an elementwise operation in one shape; numbers that belong to all entries are spread over them."""
    full = (*out, number)

    def alike(value: Any, has: bool, shape: tuple) -> Any:
        if has and shape == out:
            return value
        # Axes of length one count for all; one number for each entry goes along the last axis.
        axes = (*range(len(shape)), len(out)) if has else range(len(shape))
        return lax.broadcast_in_dim(value, full, axes)

    return [alike(*each) for each in zip(given, have, shapes, strict=True)]


def _dot(given, have, params, out):
    """A sum of products, written out where it is short."""
    (contracted, batched) = params["dimension_numbers"]
    kept = [
        [axis for axis in range(value.ndim - has) if axis not in (*summed, *shared)]
        for value, has, summed, shared in zip(given, have, contracted, batched, strict=True)
    ]
    first, second = (
        lax.transpose(value, (*summed, *shared, *rest, *([value.ndim - 1] if has else [])))
        for value, has, summed, shared, rest in zip(given, have, contracted, batched, kept, strict=True)
    )
    summed, shared = len(contracted[0]), len(batched[0])
    first = first if have[0] else first[..., None]
    second = second if have[1] else second[..., None]
    # Summed and shared axes first; those that only one has stand for ones in the other.
    first = first.reshape(*first.shape[:-1], *[1] * len(kept[1]), first.shape[-1])
    second = second.reshape(*second.shape[: summed + shared], *[1] * len(kept[0]), *second.shape[summed + shared :])
    terms = first.shape[:summed]
    size = 1
    for each in terms:
        size *= each
    first, second = (value.reshape(size, *value.shape[summed:]) for value in (first, second))
    if not 0 < size <= _WRITTEN_OUT:
        return jnp.sum(first * second, axis=0).astype(params["preferred_element_type"] or first.dtype)
    return sum((first[term] * second[term] for term in range(1, size)), first[0] * second[0])


def _total(given, have, params, out):
    """A sum over axes, written out where it is short."""
    (value,), axes = given, sorted(params["axes"])
    for axis in reversed(axes):
        if not 0 < value.shape[axis] <= _WRITTEN_OUT:
            value = lax.reduce_sum_p.bind(value, axes=(axis,), **{k: v for k, v in params.items() if k != "axes"})
        else:
            value = sum(
                (lax.index_in_dim(value, at, axis, keepdims=False) for at in range(1, value.shape[axis])),
                lax.index_in_dim(value, 0, axis, keepdims=False),
            )
    return value


def _running(given, have, params, out):
    """A cumulated sum along a short axis."""
    (value,), axis = given, params["axis"]
    length = value.shape[axis]
    if params["reverse"] or not 0 < length <= _WRITTEN_OUT:
        return lax.cumsum(value, axis=axis, reverse=params["reverse"])
    parts = [lax.slice_in_dim(value, 0, 1, axis=axis)]
    for at in range(1, length):
        parts.append(parts[-1] + lax.slice_in_dim(value, at, at + 1, axis=axis))
    return lax.concatenate(parts, axis)


def _sliced(given, have, params, out):
    (value,), strides = given, params["strides"]
    limits, starts = (*params["limit_indices"], value.shape[-1]), (*params["start_indices"], 0)
    return lax.slice(value, starts, limits, None if strides is None else (*strides, 1))


def _broadcast(given, have, params, out):
    (value,) = given
    shape = (*params["shape"], value.shape[-1])
    return lax.broadcast_in_dim(value, shape, (*params["broadcast_dimensions"], len(shape) - 1))


_RULES: dict[str, Callable] = {
    "dot_general": _dot,
    "reduce_sum": _total,
    "cumsum": _running,
    "slice": _sliced,
    "broadcast_in_dim": _broadcast,
    "reshape": lambda given, have, params, out: lax.reshape(given[0], (*params["new_sizes"], given[0].shape[-1])),
    "squeeze": lambda given, have, params, out: lax.squeeze(given[0], params["dimensions"]),
    "transpose": lambda given, have, params, out: lax.transpose(
        given[0], (*params["permutation"], len(params["permutation"]))
    ),
    "rev": lambda given, have, params, out: lax.rev(given[0], params["dimensions"]),
    "split": lambda given, have, params, out: list(lax.split(given[0], params["sizes"], params["axis"])),
}

# Operations on each number by itself. Others, and those that JAX may yet add, are left to `jax.vmap`.
_ELEMENTWISE = frozenset(
    """
    abs acos acosh add add_any and asin asinh atan atan2 atanh cbrt ceil clamp convert_element_type copy cos cosh
    digamma div eq erf erf_inv erfc exp exp2 expm1 floor ge gt integer_pow is_finite le lgamma log log1p logistic lt max
    min mul ne neg nextafter not or pow rem round rsqrt select_n shift_left shift_right_arithmetic shift_right_logical
    sign sin sinh sqrt square stop_gradient sub tan tanh xor
    """.split()  # noqa: SIM905 - a list of ninety lines
)
