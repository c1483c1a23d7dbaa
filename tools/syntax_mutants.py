"""Wrong formulas made from those of a file: one sign, term, factor, power or index of its syntax tree changed."""

import ast
import random
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

_DROPPED_CALLS = {"sqrt", "swapaxes", "transpose"}
_MIRRORED = {ast.Lt: ast.Gt(), ast.Gt: ast.Lt(), ast.LtE: ast.GtE(), ast.GtE: ast.LtE()}
_MIRRORED |= {ast.Eq: ast.NotEq(), ast.NotEq: ast.Eq()}
_OTHER = {ast.Add: ast.Sub(), ast.Sub: ast.Add(), ast.Mult: ast.Div(), ast.Div: ast.Mult()}
# What says a thing or refuses one, instead of computing.
_WORDS = {"__repr__", "__str__", "sources", "own_sources", "name", "words", "refuses", "saved_bytes"}
_WORDS |= {"expectation", "covariance_expectation"}
_CHECKS = ("check_", "is_concrete", "isinstance", "require", "positive_", "nonnegative_", "shown", "InvalidInput")


class Change(NamedTuple):
    """What is between two bytes of a file becomes another expression."""

    what: str
    line: int
    start: int
    end: int
    becomes: str

    def of(self, source: str) -> str:
        """The changed file."""
        text = source.encode()
        return (text[: self.start] + self.becomes.encode() + text[self.end :]).decode()


def changes(source: str) -> list[Change]:
    """All changes of a file, each another expression, in the order of the file."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = {}
    for node in _formulas(ast.parse(source)):
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        for what, other in _variants(node):
            text = ast.unparse(other)
            if text != ast.unparse(node):
                text = f"({text})" if isinstance(other, ast.expr) else text
                found.setdefault((start, end, text), Change(what, node.lineno, start, end, text))
    return sorted(found.values(), key=lambda change: change.start)


def drawn_changes(source: str, rng: random.Random) -> list[Change]:
    """All changes at random: one of each line, then a second one of each, ..."""
    drawn, turns, seen = changes(source), [], Counter()
    rng.shuffle(drawn)
    for change in drawn:
        turns.append(seen[change.line])
        seen[change.line] += 1
    return [drawn[place] for place in sorted(range(len(drawn)), key=turns.__getitem__)]


def _formulas(node: ast.AST) -> Iterator[ast.expr | ast.AugAssign]:
    """The expressions that compute something: no annotations, checks, messages or docstrings."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.FunctionDef) and node.name in _WORDS:
        return
    if isinstance(node, ast.Call) and _name(node.func).startswith(_CHECKS):
        return
    if isinstance(node, ast.If) and all(_refuses(each) for each in node.body):
        return
    if isinstance(node, ast.expr | ast.AugAssign):
        yield node
    apart = {"annotation", "returns", "decorator_list", "bases", "keywords" if isinstance(node, ast.ClassDef) else ""}
    if isinstance(node, ast.FunctionDef):
        apart |= {"args"}
    for name, value in ast.iter_fields(node):
        if name not in apart:
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, ast.AST):
                    yield from _formulas(each)


def _refuses(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(node, ast.Raise) or (isinstance(call, ast.Call) and _name(call.func).startswith(_CHECKS))


def _variants(node: ast.expr | ast.AugAssign) -> Iterator[tuple[str, ast.expr | ast.AugAssign]]:
    """What a node becomes, in words and as a tree."""
    match node:
        case ast.BinOp(left, op, right) if type(op) in _OTHER:
            yield (
                "another sign" if isinstance(op, ast.Add | ast.Sub) else "another side",
                ast.BinOp(left, _OTHER[type(op)], right),
            )
            yield "left alone", left
            if not isinstance(op, ast.Div):
                yield "right alone", ast.UnaryOp(ast.USub(), right) if isinstance(op, ast.Sub) else right
        case ast.BinOp(left, ast.Pow(), right):
            yield "no power", left
            yield "another power", ast.BinOp(left, ast.Pow(), ast.BinOp(right, ast.Add(), ast.Constant(1)))
        case ast.AugAssign(target, op, value) if type(op) in _OTHER:
            yield "another sign", ast.AugAssign(target, _OTHER[type(op)], value)
        case ast.UnaryOp(ast.USub() | ast.Not() | ast.Invert(), operand):
            yield "no sign", operand
        case ast.Compare(left, [op], [right]) if type(op) in _MIRRORED:
            yield "the other way round", ast.Compare(left, [_MIRRORED[type(op)]], [right])
        case ast.BoolOp(op, values):
            yield "and for or", ast.BoolOp(ast.And() if isinstance(op, ast.Or) else ast.Or(), values)
        case ast.IfExp(_, body, orelse):
            yield "always", body
            yield "never", orelse
        case ast.Attribute(value, "T"):
            yield "not transposed", value
        case ast.Call(function, [first, *_]) if _name(function) in _DROPPED_CALLS:
            yield f"no {_name(function)}", first
        case ast.Call(function, [ast.Constant(str(indices)), *rest], named) if _name(function) == "einsum":
            for other in _transposed(indices):
                yield "indices in another order", ast.Call(function, [ast.Constant(other), *rest], named)
        case ast.Constant(float(value)):
            yield "another number", ast.Constant(2 * value or 1.0)
        case ast.DictComp(key, value, generators):
            yield "each doubled", ast.DictComp(key, ast.BinOp(ast.Constant(2), ast.Mult(), value), generators)
        case ast.Subscript(value, place, context) if _name(value) != "shape":
            for other in _other_places(place):
                yield "another place", ast.Subscript(value, other, context)


def _transposed(indices: str) -> Iterator[str]:
    """The indices of an einsum with the last two of one array exchanged."""
    inputs, _, output = indices.partition("->")
    arrays = [*inputs.split(","), output]
    for place, each in enumerate(arrays):
        if len(each) > 1:
            *others, last = [*arrays[:place], each[:-2] + each[:-3:-1], *arrays[place + 1 :]]
            yield f"{','.join(others)}->{last}"


def _other_places(place: ast.expr) -> Iterator[ast.expr]:
    match place:
        case ast.Constant(int(number)) if not isinstance(number, bool):
            yield ast.Constant(number - 1 if number else 1)
        case ast.UnaryOp(ast.USub(), ast.Constant(int())):
            yield ast.Constant(0)
        case ast.Tuple(elements, context):
            for at, element in enumerate(elements):
                for other in _other_places(element):
                    yield ast.Tuple([*elements[:at], other, *elements[at + 1 :]], context)
            for at in range(len(elements) - 1):  # a new axis before instead of after
                pair = elements[at : at + 2]
                if any(isinstance(each, ast.Constant) and each.value is None for each in pair):
                    yield ast.Tuple([*elements[:at], *pair[::-1], *elements[at + 2 :]], context)


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
