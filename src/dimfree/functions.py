"""A user's functions as pytrees: the numbers in them are arrays, and the same code is the same program."""

import contextlib
import copyreg
import functools
import importlib
import operator
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array

from .errors import InvalidInput, is_concrete
from .identity import code_digest, is_in_library, is_of_library, used_names

_LITERALS = (bool, int, str, bytes, type(None), type(Ellipsis))
_ORDER_ONE = (2.0, 1.3, 0.6)  # what stands for numbers that are traced, where a function is tried


class Function(eqx.Module):
    r"""A function that JAX can trace, whose numbers are leaves of a pytree.

    Numbers are floating-point numbers and arrays that the function closes over, has as defaults or arguments of a
    `functools.partial`, reads from its module or holds as fields, also through functions that it calls. So a problem
    can be mapped over them and differentiated by them, and a program that was compiled for one value serves all.

    Two functions are the same, apart from their numbers, if their code is and all else that it uses. Where that cannot
    be told (an object of the user's own, a module that may change) a function is like none but itself.

    **Attributes:**

    - `numbers`: in the order in which the code refers to them.
    """

    numbers: tuple[Array, ...]
    recipe: "Recipe" = eqx.field(static=True)

    def __call__(self, *arguments: Any) -> Any:
        return self.__wrapped__(*arguments)

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The function in Python, with these numbers."""
        return self.recipe.function if not self.numbers else self.recipe.make(self.numbers)

    @property
    def __name__(self) -> str:
        return getattr(self.recipe.function, "__name__", type(self.recipe.function).__name__)

    @property
    def name(self) -> str | None:
        """What it is called where it has a name among those of the library."""
        return getattr(self.recipe.function, "name", None)

    def __repr__(self) -> str:
        return self.__name__

    def frozen(self) -> "Function":
        """With numbers that are part of the code: for averages that cannot be differentiated by them."""
        if not self.numbers or not is_concrete(self.numbers):
            return self
        function, values = self.__wrapped__, tuple(np.asarray(number).tobytes() for number in self.numbers)
        key = (self.recipe.key, values)
        return Function((), Recipe(function, key, lambda numbers: function, lambda: (_frozen, (self,))))


class Recipe:
    """How a function is put together from numbers; compared by `key`. A pickle of it is where it came from.

    **Attributes:**

    - `function`: one that it was read off.
    - `again`: says by what function of which arguments it is made again, of what can be pickled.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        key: Any,
        make: Callable[[Sequence[Any]], Any],
        again: Callable[[], tuple[Callable[..., "Recipe"], tuple[Any, ...]]],
    ):
        self.function, self.key, self.make, self.again = function, key, make, again

    def __reduce__(self) -> tuple[Callable[..., "Recipe"], tuple[Any, ...]]:
        return self.again()

    def __deepcopy__(self, memo: dict[int, Any]) -> "Recipe":
        return self  # nothing in it changes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def trials(function: Any) -> list[Any]:
    """The pytrees that a fact about this one must hold for: itself, or with several values for traced numbers."""
    if is_concrete(function):
        return [function]

    def known(leaf: Any, value: float) -> Any:
        return leaf if is_concrete(leaf) else np.full(leaf.shape, value)

    return [jax.tree.map(lambda leaf, value=value: known(leaf, value), function) for value in _ORDER_ONE]


def as_function(function: Callable[..., Any], *arguments: Any) -> Function:
    """A user's function as a pytree.

    **Arguments:**

    - `arguments`: of the kind that it will be called with. Python's floats are numbers unless the function cannot be
      traced with them, for example because it branches on them; arrays always are.
    """
    if isinstance(function, Function):
        return function
    found = _taken_apart(function, floats=True)
    if found.numbers:
        try:
            with jax.ensure_compile_time_eval():
                jax.eval_shape(lambda numbers, *given: found.recipe.make(numbers)(*given), found.numbers, *arguments)
        except Exception:
            return _taken_apart(function, floats=False)
    return found


def _taken_apart(function: Callable[..., Any], *, floats: bool) -> Function:
    parts = _Parts(floats)
    key, make = parts.of(function)
    if parts.alone:
        key = ("alone", id(function))  # the recipe keeps the function, and so its id
    recipe = Recipe(function, key, make, lambda: (_read_off, (address(function), floats)))
    return Function(tuple(parts.numbers), recipe)


def _read_off(function: Callable[..., Any], floats: bool) -> Recipe:
    return _taken_apart(function, floats=floats).recipe


def _frozen(function: Function) -> Recipe:
    return function.frozen().recipe


# Where functions are, for a pickle.


def address(function: Any) -> Any:
    """What to pickle in the place of a function: where it is found by its name, or the function by itself."""
    if isinstance(function, functools.partial):
        return _Again(_partial, (type(function), address(function.func), function.args, function.keywords))
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if isinstance(function, np.ufunc):
        module, name = "numpy", function.__name__
    if isinstance(module, str) and isinstance(name, str):
        try:
            if _found(module, name) is function:
                return _Again(_found, (module, name))
        except (ImportError, AttributeError):
            pass
    # An object of a class is pickled by its fields. Code is not, but by picklers that take it along.
    if isinstance(function, types.FunctionType) and not _takes_code_along():
        raise InvalidInput(
            f"The function {name} cannot be pickled: a pickle holds the name of a function, not its code, and this one "
            "is not found by its name. Define it with def at the top of a module (functools.partial gives it numbers), "
            "or use cloudpickle, which takes its code along."
        )
    return function


class _Again:
    """Stands in a pickle for a function, and is that function when the pickle is read."""

    def __init__(self, make: Callable[..., Any], arguments: tuple[Any, ...]):
        self.make, self.arguments = make, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.make, self.arguments


def _partial(kind: type, function: Callable[..., Any], args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    return kind(function, *args, **keywords)


def _found(module: str, name: str) -> Any:
    return operator.attrgetter(name)(sys.modules.get(module) or importlib.import_module(module))


def _takes_code_along() -> bool:
    """Whether the pickler under way, which does not say who it is, stores functions by their code."""
    frame = sys._getframe()
    while frame is not None:
        if {"cloudpickle", "dill"}.intersection(str(frame.f_globals.get("__name__")).split(".")):
            return True
        frame = frame.f_back
    return False


with contextlib.suppress(ImportError):
    # A module of Equinox that has been through jax.tree.map, and had a cached property, holds this object, and is the
    # same program as another one only if that holds it too: a pickle must not make another.
    from equinox._module._flatten import MISSING

    copyreg.pickle(type(MISSING), lambda _: "MISSING")  # pyright: ignore[reportArgumentType]


_Part = tuple[Any, Callable[[Sequence[Any]], Any]]  # what it is compared by, and how it is made from the numbers


class _Parts:
    """Goes through a function and all that it uses, and collects the numbers.

    **Attributes:**

    - `alone`: whether it has met something that may differ in what cannot be seen.
    """

    def __init__(self, floats: bool):
        self.floats, self.numbers, self.alone = floats, [], False
        self.inside: list[int] = []  # functions that are being gone through

    def of(self, value: Any) -> _Part:
        if isinstance(value, float | np.floating) and not self.floats:
            return ("float", type(value), repr(value)), lambda numbers: value
        if isinstance(value, float | np.floating) or _is_array_of_numbers(value):
            return self.number(value)
        if isinstance(value, np.ndarray | jax.Array) and is_concrete(value):
            is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
            array = np.asarray(jax.random.key_data(value) if is_key else value)
            return ("array", str(value.dtype), array.shape, array.tobytes()), lambda numbers: value
        if type(value) in _LITERALS:
            return (type(value), value), lambda numbers: value
        if isinstance(value, types.FunctionType) and not is_in_library(value):
            return self.function(value)
        if isinstance(value, functools.partial):
            return self.together(
                (value.func, value.args, value.keywords), type(value), lambda f, args, kw: type(value)(f, *args, **kw)
            )
        if _is_of_library(value):
            return ("library", value), lambda numbers: value
        leaves, structure = jax.tree.flatten(value)
        if len(leaves) != 1 or leaves[0] is not value:
            return self.together(
                tuple(leaves), self.static(structure), lambda *leaves: jax.tree.unflatten(structure, leaves)
            )
        self.alone = True
        return ("object", id(value)), lambda numbers: value

    def number(self, value: Any) -> _Part:
        place = len(self.numbers)
        with jax.ensure_compile_time_eval():  # a number that is known stays one inside jit
            self.numbers.append(jnp.asarray(value, float) if isinstance(value, float) else jnp.asarray(value))
        return ("number",), lambda numbers: numbers[place]

    def static(self, structure: Any) -> Any:
        """What a pytree is apart from its leaves, if it can be compared."""
        try:
            hash(structure)
        except TypeError:
            self.alone = True
            return None
        return structure

    def together(self, values: tuple[Any, ...], kind: Any, make: Callable[..., Any]) -> _Part:
        """Something that is made of several parts."""
        parts = [self.of(value) for value in values]
        return (kind, *(key for key, _ in parts)), lambda numbers: make(*(part(numbers) for _, part in parts))

    def function(self, function: types.FunctionType) -> _Part:
        """A function of the user's: its code, defaults, closure and the globals that it uses."""
        if id(function) in self.inside:  # it calls itself
            self.alone = True
            return ("object", id(function)), lambda numbers: function
        self.inside.append(id(function))
        code, given = function.__code__, function.__globals__
        cells = [_contents(cell) for cell in function.__closure__ or ()]
        names = sorted({name for kind, name in used_names(code) if kind == "global" and name in given})
        imports = {name for kind, name in used_names(code) if kind != "global"}
        self.alone = self.alone or not all(map(is_of_library, imports))
        values = (function.__defaults__, function.__kwdefaults__, *cells, *(given[name] for name in names))

        def make(defaults, keyword_defaults, *values):
            closure = tuple(types.CellType(*content) for content in values[: len(cells)])
            used = dict(zip(names, values[len(cells) :], strict=True))
            made = types.FunctionType(code, {**given, **used}, function.__name__, defaults, closure or None)
            made.__kwdefaults__, made.__qualname__ = keyword_defaults, function.__qualname__
            return made

        part = self.together(values, (code_digest(code), tuple(names)), make)
        self.inside.pop()
        return part


def _is_array_of_numbers(value: Any) -> bool:
    if isinstance(value, Tracer):
        return True
    return isinstance(value, np.ndarray | jax.Array) and jnp.issubdtype(value.dtype, jnp.inexact)


def _contents(cell: types.CellType) -> tuple[Any, ...]:
    """What a cell holds, if anything."""
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


def _is_of_library(value: Any) -> bool:
    if isinstance(value, types.ModuleType):
        return is_of_library(value.__name__)
    if isinstance(value, type):
        return is_of_library(value.__module__)
    return is_in_library(value)
