"""The name of what is kept on disk: a digest of all that it depends on, so that nothing else is taken for it."""

import builtins
import dataclasses
import dis
import enum
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import pathlib
import struct
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .errors import InvalidInput, is_concrete

# Where functions of one number are compared: from before any clock of a run to long after it.
_POINTS = np.concatenate([np.linspace(-4.0, 4.0, 33), np.geomspace(5.0, 1e6, 32)])
_DIGITS = (
    9  # after the point of those values: their code is exact, and another processor rounds the last digit otherwise
)
_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib")})
_GLOBALS, _IMPORT = ("LOAD_GLOBAL", "LOAD_NAME"), "IMPORT_NAME"
_GROWING = (dict, list, set)  # as globals they may be caches, which grow as a function is called
_HEAP_TYPE = 1 << 9  # of classes that a class statement has made


def identity(*values: Any) -> str:
    """A name for a calculation, from all that it depends on: these values and what computes them.

    Numbers and arrays count by their exact bytes, types and shapes; modules and dataclasses by their type and every
    field; functions by their code, constants, defaults, closures and the globals that they use (a module of the user's
    own by its source, and that of the modules it imports). Functions that are fields of an object and take one number,
    such as schedules and activations, count by their values at many points as well. What comes with a library counts by
    its name and the library's version. The versions of dimfree and JAX, the precision and JAX's generator of random
    numbers are part of every name. The same values in another process have the same name.

    It is an error to give something that cannot be told from something else, such as an open file.

    **Returns** 64 hexadecimal digits.

    ??? example
        >>> from dimfree.identity import identity
        >>> identity(lambda t: 0.5 * t) == identity(lambda t: 0.5 * t)
        True
        >>> identity(lambda t: 0.5 * t) == identity(lambda t: 0.6 * t)
        False
    """
    return digest((values, surroundings()))


def surroundings() -> dict[str, str]:
    """What computes here: the versions of dimfree and JAX, the precision, and how random numbers are made."""
    precision = "64 bits" if jax_setting("jax_enable_x64") else "32 bits"
    return {
        "dimfree": installed_version("dimfree"),
        "jax": jax.__version__,
        "precision": precision,
        "random numbers": random_numbers(),
    }


def random_numbers() -> str:
    """How JAX makes random numbers here: the same key gives others with another generator."""
    words = jax_setting("jax_default_prng_impl")
    if not jax_setting("jax_threefry_partitionable"):
        words += ", not partitionable"
    offset = jax_setting("jax_random_seed_offset")
    return f"{words}, seeds moved by {offset}" if offset else words


def jax_setting(name: str) -> Any:
    """A setting of JAX as it is here and now, also inside of `with jax.threefry_partitionable(...)`."""
    return getattr(jax.config, name)


def digest(value: Any) -> str:
    """The digest of a value by itself, whatever computes with it; see [`identity`]."""
    walk = _Walk({})
    walk.value(value)
    return walk.hash.hexdigest()


def code_digest(code: types.CodeType) -> str:
    """The digest of bytecode and constants; neither of the file nor of the lines where they stand."""
    walk = _Walk({})
    walk.code(code)
    return walk.hash.hexdigest()


@functools.cache
def installed_version(distribution: str) -> str:
    """Of what is installed, asked for once: it is looked up on disk."""
    return importlib.metadata.version(distribution)


class _Walk:
    """Goes through a value and everything in it; `seen` numbers the functions, classes and modules it has met."""

    def __init__(self, seen: dict[int, tuple[int, Any]]):
        self.hash = hashlib.sha256()
        self.seen = seen
        self.inside: list[int] = []  # containers and objects that are being gone through
        self.calls = True  # whether functions of one number are called: schedules and activations, not what code uses

    def put(self, kind: str, *contents: bytes | str | int) -> None:
        """Each piece with its length, so that no two sequences of pieces have the same bytes."""
        for content in (kind, *contents):
            data = content if isinstance(content, bytes) else str(content).encode()
            self.hash.update(struct.pack("<Q", len(data)) + data)

    def value(self, value: Any) -> None:
        """Anything that a user can give."""
        if value is None or value is Ellipsis or type(value) in (bool, int, str, bytes):
            self.put(type(value).__name__, value if isinstance(value, bytes) else repr(value))
        elif type(value) in (float, complex):
            self.put(type(value).__name__, np.asarray(value).tobytes())
        elif isinstance(value, enum.Enum):
            self.type(type(value))
            self.put("member", value.name)
        elif isinstance(value, np.dtype):
            self.put("dtype", repr(value))
        elif isinstance(value, jax.Array | np.ndarray | np.generic):
            self.array(value)
        elif isinstance(value, pathlib.PurePath):
            self.put("path", str(value))
        elif isinstance(value, type | types.GenericAlias):
            self.type(value)
        elif isinstance(value, types.ModuleType):
            self.module(value)
        elif isinstance(value, list | tuple | dict | set | frozenset | slice | range):
            self.container(value)
        elif callable(value) and not _has_fields(value):
            self.function(value)
        else:
            self.object(value)

    def array(self, array: Any) -> None:
        """Bytes, type and shape."""
        if not is_concrete(array):
            raise _unknown(array, "it is traced by JAX, and has no value")
        if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
            self.put("key", str(jax.random.key_impl(array)))
            array = jax.random.key_data(array)
        weak = isinstance(array, jax.Array) and array.weak_type
        numbers = np.asarray(array)
        self.put("array", repr(numbers.dtype), numbers.dtype.byteorder, str(numbers.shape), int(weak))
        if numbers.dtype.hasobject:
            self.container(numbers.ravel().tolist())
        else:
            self.put("bytes", np.ascontiguousarray(numbers).tobytes())

    def container(self, values: Any) -> None:
        """What is in a list, a dict or the like."""
        self.type(type(values))
        with_fields = vars(values) if hasattr(values, "__dict__") else {}
        with _Inside(self, values):
            if isinstance(values, dict):
                parts: Iterable[Any] = [part for item in values.items() for part in item]
            elif isinstance(values, set | frozenset):
                for part in sorted(self.apart(part) for part in values):
                    self.put("of a set", part)
                parts = []
            elif isinstance(values, slice | range):
                parts = (values.start, values.stop, values.step)
            else:
                parts = values
            parts = [*parts, *(part for item in with_fields.items() for part in item)]
            self.put("length", len(parts))
            for part in parts:
                self.value(part)

    def object(self, value: Any) -> None:
        """An instance: its type and its fields."""
        kind = type(value)
        if any(not base.__flags__ & _HEAP_TYPE for base in kind.__mro__[:-1]) or not _has_fields(value):
            raise _unknown(value, "its contents cannot be read")
        self.type(kind)
        slots = (name for base in kind.__mro__ for name in _slots(base) if hasattr(value, name))
        fields = {name: getattr(value, name) for name in slots} | getattr(value, "__dict__", {})
        with _Inside(self, value):
            for name, part in sorted(fields.items()):
                self.put("field", name)
                self.value(part)
                if callable(part):
                    self.values_of(part)

    # Code.

    def is_new(self, thing: Any) -> bool:
        """Whether this function, class or module is met for the first time; its number stands for it afterwards."""
        new = id(thing) not in self.seen
        number, _ = self.seen.setdefault(id(thing), (len(self.seen), thing))  # keeps it, and so its id
        self.put("number", number)
        return new

    def function(self, function: Any) -> None:
        """A function: by name where it comes with a library, else by its code and all that the code uses."""
        if name := _name_in_library(function):
            self.put("library", name)
        elif isinstance(function, types.FunctionType):
            if self.is_new(function):
                calls, self.calls = self.calls, False
                self.code_of(function)
                self.calls = calls
        elif isinstance(function, functools.partial):
            self.put("partial")
            for part in (function.func, function.args, function.keywords):
                self.value(part)
        elif isinstance(function, types.MethodType):
            self.put("method")
            self.function(function.__func__)
            self.value(function.__self__)
        elif isinstance(function, types.BuiltinMethodType) and not isinstance(function.__self__, types.ModuleType):
            self.put("method", function.__name__)
            self.value(function.__self__)
        elif callable(inside := getattr(function, "__wrapped__", None)):
            self.put("wrapped", f"{type(function).__module__}.{type(function).__qualname__}")
            self.function(inside)
            for name, part in sorted(getattr(function, "__dict__", {}).items()):
                if isinstance(part, types.FunctionType):  # such as the derivative of a jax.custom_jvp
                    self.put("part", name)
                    self.function(part)
        else:
            raise _unknown(function, "it has no Python code")

    def code_of(self, function: types.FunctionType) -> None:
        """Bytecode, defaults, closure and globals of a function."""
        self.code(function.__code__)
        self.value((function.__defaults__, function.__kwdefaults__))
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self.put("closure", name)
            try:
                self.value(cell.cell_contents)
            except ValueError:  # an empty cell
                self.put("unbound")
        if is_of_library(function.__module__ or ""):
            self.put("library", function.__module__, _version_of(function.__module__))
            return
        for kind, name in sorted(set(used_names(function.__code__))):
            self.put(kind, name)
            if kind == _IMPORT:
                self.imported(name, function)
            elif name in function.__globals__:
                self.global_value(function, name)
            elif not hasattr(builtins, name):
                self.put("unbound")

    def code(self, code: types.CodeType) -> None:
        """The bytecode; neither the file nor the lines where it stands."""
        self.put("code", code.co_code, code.co_flags, code.co_argcount, code.co_posonlyargcount)
        self.put("names", code.co_kwonlyargcount, *code.co_names, *code.co_varnames, *code.co_freevars)
        self.put("constants", len(code.co_consts))
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self.code(constant)
            else:
                self.value(constant)

    def global_value(self, function: types.FunctionType, name: str) -> None:
        """A global that a function uses; where its value does not tell, the source of the module that makes it does."""
        value, source = function.__globals__[name], _source(sys.modules.get(function.__module__ or ""))
        if source is not None and isinstance(value, _GROWING):
            self.put("source", source)
            return
        try:
            self.put("value", self.apart(value))
        except InvalidInput as error:
            if source is None:
                raise InvalidInput(f"The function {function.__qualname__} uses {name}. {error}") from error
            self.put("source", source)

    def imported(self, name: str, function: types.FunctionType) -> None:
        """A module that a function imports when it is called."""
        level = len(name) - len(name.lstrip("."))
        package = function.__globals__.get("__package__") or ""
        try:
            full = importlib.util.resolve_name(name, package) if level else name
            if is_of_library(full):
                self.put("library", full, _version_of(full))
            else:
                self.module(importlib.import_module(full))
        except ImportError:
            self.put("not there", name)

    def module(self, module: types.ModuleType) -> None:
        """A module: by name where it is a library's, else by its source, what is in it, and what it imports."""
        if is_of_library(module.__name__):
            self.put("library", module.__name__, _version_of(module.__name__))
            return
        if not self.is_new(module):
            return
        calls, self.calls = self.calls, False
        self.put("module", module.__name__, _source(module) or b"")
        for name, value in sorted(vars(module).items()):
            if name.startswith("__") or isinstance(value, _GROWING):
                continue
            self.put("name", name)
            home = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
            if isinstance(home, str) and home != module.__name__ and home in sys.modules:
                self.module(sys.modules[home])
                continue
            try:
                # As it was loaded: a process that runs for long may have an older module than the file.
                self.put("value", self.apart(value))
            except InvalidInput:
                continue  # the source says how it is made
        self.calls = calls

    def type(self, kind: Any) -> None:
        """A class: by name where it comes with a library, else by its functions and bases."""
        self.put("type", f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', repr(kind))}")
        if not isinstance(kind, type) or is_of_library(kind.__module__):
            self.put("library", _version_of(getattr(kind, "__module__", "builtins")))
        elif self.is_new(kind):
            for base in kind.__bases__:
                self.type(base)
            for name, member in sorted(vars(kind).items()):
                # What decorators and metaclasses have made of the functions of a class holds them.
                functions = [member, *(getattr(member, part, None) for part in ("__func__", "fget", "method"))]
                for function in functions:
                    function = inspect.unwrap(function) if callable(function) else function
                    if isinstance(function, types.FunctionType) and not function.__code__.co_filename.startswith("<s"):
                        self.put("member", name)
                        self.function(function)
                if isinstance(member, bool | int | float | str | tuple | np.ndarray) and not name.startswith("__"):
                    self.put("member", name)
                    self.value(member)

    def apart(self, value: Any) -> str:
        """The digest of a part, for what cannot be gone through in one line."""
        walk = _Walk(self.seen)
        walk.inside, walk.calls = self.inside, self.calls
        walk.value(value)
        return walk.hash.hexdigest()

    def values_of(self, function: Callable[..., Any]) -> None:
        """The values of a function of one number, where it is one: state that its code does not show changes them."""
        named = _name_in_library(function) or (_has_fields(function) and is_of_library(type(function).__module__))
        if not self.calls or named or not _takes_one(function):
            return
        try:
            found = np.asarray(jax.vmap(function)(jnp.asarray(_POINTS)))
        except Exception:  # it is no function of a number; its code has told what it is
            return
        if found.shape == _POINTS.shape and found.dtype.kind in "fiub":
            self.put("values", " ".join(f"{number:.{_DIGITS}e}" for number in found.astype(float)))


class _Inside:
    """While a container is gone through; one that contains itself has no end."""

    def __init__(self, walk: _Walk, thing: Any):
        self.walk, self.thing = walk, thing

    def __enter__(self) -> None:
        if id(self.thing) in self.walk.inside:
            raise _unknown(self.thing, "it contains itself")
        self.walk.inside.append(id(self.thing))

    def __exit__(self, *exception: object) -> None:
        self.walk.inside.pop()


def _unknown(value: Any, why: str) -> InvalidInput:
    return InvalidInput(
        f"{value!r:.100} was given (a {type(value).__qualname__}); results cannot be named by it, because {why}. Give "
        "numbers, arrays and functions written in Python, or use no store."
    )


def _has_fields(value: Any) -> bool:
    plain = isinstance(value, types.FunctionType | types.MethodType | functools.partial)
    if plain or _name_in_library(value) or callable(getattr(value, "__wrapped__", None)):
        return False
    return dataclasses.is_dataclass(value) or hasattr(value, "__dict__") or any(map(_slots, type(value).__mro__))


def _slots(kind: type) -> list[str]:
    slots = vars(kind).get("__slots__", ())
    names = [slots] if isinstance(slots, str) else list(slots)
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _takes_one(function: Callable[..., Any]) -> bool:
    """Whether a function can be called with one argument, and with none it cannot."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    needed = [each for each in parameters if each.default is each.empty and each.kind not in (2, 4)]
    return len(needed) == 1 and needed[0].kind != inspect.Parameter.KEYWORD_ONLY


def used_names(code: types.CodeType) -> Iterable[tuple[str, str]]:
    """Globals and imports of a function, and of the functions in it."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in _GLOBALS:
            yield "global", instruction.argval
        elif instruction.opname == _IMPORT:
            yield _IMPORT, instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from used_names(constant)


def _name_in_library(function: Any) -> str | None:
    """The full name and version of what can be imported by it from a library."""
    if not is_in_library(function):
        return None
    if isinstance(function, np.ufunc):
        return f"numpy.{function.__name__} {np.__version__}"
    return f"{function.__module__}.{function.__qualname__} {_version_of(function.__module__)}"


def is_in_library(function: Any) -> bool:
    """Whether something can be imported by its name from a library."""
    if isinstance(function, np.ufunc):
        return True
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not (isinstance(module, str) and isinstance(name, str) and is_of_library(module)):
        return False
    found = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is function


@functools.cache
def is_of_library(module: str) -> bool:
    """Whether a module is installed, or part of Python: its version tells what is in it."""
    root = module.partition(".")[0]
    if root == "dimfree" or root in sys.stdlib_module_names:
        return True
    try:
        found = importlib.util.find_spec(root)
    except (ImportError, ValueError):  # a name without a module, or a module without a file, such as __main__
        return False
    origin = getattr(found, "origin", None)
    return origin == "built-in" or (isinstance(origin, str) and origin.startswith(_LIBRARIES))


@functools.cache
def _version_of(module: str) -> str:
    """The version of a library, and the digest of its files as they were installed: versions are not always raised."""
    root = module.partition(".")[0]
    if root == "dimfree" or root in sys.stdlib_module_names:
        return ""  # a part of every identity; a part of Python, whose bytecode tells its version
    lines = []
    for name in sorted(set(_distributions().get(root, ()))):
        found = importlib.metadata.distribution(name)
        files = (found.read_text("RECORD") or "").splitlines()
        lines += [found.version, *(line for line in files if line.startswith(f"{root}") and "sha256=" in line)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@functools.cache
def _distributions() -> Any:
    return importlib.metadata.packages_distributions()


def _source(module: types.ModuleType | None) -> bytes | None:
    """The file of a module, as it is now."""
    file = getattr(module, "__file__", None)
    try:
        return None if file is None else pathlib.Path(file).read_bytes()
    except OSError:
        return None
