"""From the moments of a sample to drift and covariance: the algorithm's `Move`, in symbols."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import sympy

from ..state import STUDENTS
from .moments import SymbolicMoments
from .notation import Alphabet

Label = tuple[Any, ...]  # (pair of families, i, j), ("readout", i)
Number = tuple[Any, ...]  # of a sample: (family, i, j) for s_i f_j, ("square", i, j) for s_i s_j, ("readout", i)


def labels(alphabet: Alphabet) -> dict[str, Label]:
    """The coordinates of the State that move, by the name that the library has for each, such as `Q[0,1]`."""
    coordinates = alphabet.coordinates
    found: list[Label] = [
        (entries.pair, int(i), int(j)) for entries in coordinates.entries for i, j in zip(*entries.indices, strict=True)
    ]
    found += [("readout", i) for i in range(coordinates.readout_size)]
    return dict(zip(coordinates.labels, found, strict=True))


def symbol_of(alphabet: Alphabet, label: Label) -> Any:
    """The symbol of a coordinate."""
    if label[0] == "readout":
        return alphabet.readout(label[1])
    (one, other), i, j = label
    return alphabet.overlap(one, i, other, j)


def _on_sphere(alphabet: Alphabet, free: Callable[[Label], Any], label: Label) -> Any:
    r"""What is left of a free increment when students are brought back to their norm.

    To first order in 1/d a student is divided by $1 + \delta Q_{jj} / 2$, so that
    $\delta M_{jr} - \tfrac12 M_{jr} \delta Q_{jj}$ and
    $\delta Q_{jl} - \tfrac12 Q_{jl} (\delta Q_{jj} + \delta Q_{ll})$ are left.
    """
    if not alphabet.sphere or label[0] == "readout":
        return free(label)
    pair, *indices = label
    shrink = sum(
        free(((STUDENTS, STUDENTS), i, i)) for family, i in zip(pair, indices, strict=True) if family == STUDENTS
    )
    return free(label) - symbol_of(alphabet, label) / 2 * shrink


def first_order(alphabet: Alphabet, moments: SymbolicMoments) -> dict[str, Any]:
    r"""The part of the drift, per alpha, that is linear in the slopes: gradient flow.

    $$ K G + G K^\top + C E + (C E)^\top, \qquad E = \mathbb{E}[s f^\top] $$
    """
    batch = alphabet.batch_size

    def free(label: Label) -> Any:
        if label[0] == "readout":
            assert moments.readout is not None
            i = label[1]
            return -alphabet.readout_rate * (moments.readout[i] + alphabet.ridge * alphabet.readout(i)) / batch
        (one, other), i, j = label
        by_pull: dict[Any, Any] = {}
        rest = sympy.Integer(0)
        for moved, row, still, column in ((one, i, other, j), (other, j, one, i)):
            pull = alphabet.move.pull.get(moved)
            if pull is not None:
                by_pull[pull] = by_pull.get(pull, 0) + moments.along[still][row][column]
            for (family, along), number in alphabet.move.drag.items():
                if family != moved:
                    continue
                overlap = alphabet.overlap(along, row, still, column)
                # A ridge is part of the gradient: a drag that the pull divides is written so.
                ratio = None if pull is None else sympy.cancel(number / pull)
                if ratio is None or sympy.denom(ratio) != 1:
                    rest = rest + number * overlap
                else:
                    by_pull[pull] = by_pull[pull] + ratio * overlap
        return sum((pull * gradient for pull, gradient in by_pull.items()), rest) / batch

    return {name: moments.simplified(_on_sphere(alphabet, free, label)) for name, label in labels(alphabet).items()}


def second_order(alphabet: Alphabet, moments: SymbolicMoments) -> dict[str, Any]:
    r"""The corrector, per alpha: $C \, \mathbb{E}[s s^\top] \, C^\top$.

    It is quadratic in the slopes and survives because inputs have a length of order d^1/2.
    """

    def free(label: Label) -> Any:
        if label[0] == "readout":
            return sympy.Integer(0)
        pair, i, j = label
        if not set(pair) <= set(alphabet.move.pull):
            return sympy.Integer(0)
        one, other = (alphabet.move.pull[family] for family in pair)
        return one * other / alphabet.batch_size**2 * moments.square[i][j]

    return {name: moments.simplified(_on_sphere(alphabet, free, label)) for name, label in labels(alphabet).items()}


def increment_covariance(alphabet: Alphabet, covariance: Callable[[Number, Number], Any]) -> sympy.Matrix:
    """The covariance of the increment that a step makes, times d, of all coordinates that move.

    **Arguments:**

    - `covariance`: that of two of the numbers of a sample in which the increment is linear.
    """
    p, numbers = alphabet.problem.width, {}

    def number(*name: Any) -> Any:
        symbol = sympy.Dummy()
        numbers[symbol] = name
        return symbol

    upper = {(i, j): number("square", i, j) for i in range(p) for j in range(i, p)}
    sample = SymbolicMoments(
        along={
            family: [[number(family, i, j) for j in range(alphabet.size(family))] for i in range(p)]
            for family in alphabet.families
        },
        square=[[upper[min(i, j), max(i, j)] for j in range(p)] for i in range(p)],
        readout=[number("readout", i) for i in range(p)],
        risk=None,
    )
    flow, corrector = first_order(alphabet, sample), second_order(alphabet, sample)
    increments = [sympy.expand(alphabet.batch_size * (flow[name] + corrector[name])) for name in flow]
    linear = [{symbol: side.diff(symbol) for symbol in numbers if side.has(symbol)} for side in increments]
    order = {symbol: n for n, symbol in enumerate(numbers)}

    @functools.cache
    def known(one: Any, other: Any) -> Any:
        return covariance(numbers[one], numbers[other])

    def entry(a: int, b: int) -> Any:
        pairs = itertools.product(linear[a].items(), linear[b].items())
        terms = (x * y * known(*sorted((one, other), key=order.__getitem__)) for (one, x), (other, y) in pairs)
        return sum(terms, sympy.Integer(0))

    size = len(linear)
    matrix = sympy.zeros(size, size)
    for a in range(size):
        for b in range(a, size):
            matrix[a, b] = matrix[b, a] = entry(a, b)
    return matrix
