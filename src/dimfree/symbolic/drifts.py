"""From the moments of a sample to the drift: the algorithm, in symbols."""

from collections.abc import Callable
from typing import Any

import sympy

from .moments import SymbolicMoments
from .notation import Alphabet

Label = tuple[Any, ...]  # ("Q", i, j), ("M", i, r), ("readout", i)


def labels(alphabet: Alphabet) -> list[Label]:
    """The coordinates of the State that move, in the order of `dimfree.state.Coordinates`."""
    p, k = alphabet.problem.width, alphabet.problem.teacher_width
    found: list[Label] = [("Q", i, j) for i in range(p) for j in range(i + alphabet.sphere, p)]
    found += [("M", i, r) for i in range(p) for r in range(k)]
    return found + ([("readout", i) for i in range(p)] if alphabet.trained else [])


def symbol_of(alphabet: Alphabet, label: Label) -> Any:
    """The symbol of a coordinate."""
    return getattr(alphabet, label[0])(*label[1:])


def on_sphere(
    alphabet: Alphabet, free: Callable[[Label], Any], label: Label, number: Callable[[Any], Any] = sympy.sympify
) -> Any:
    r"""What is left of a free increment when students are brought back to their norm.

    To first order in 1/d a student is divided by $1 + \delta Q_{jj} / 2$: so
    $\delta M_{jr} - \tfrac12 M_{jr} \delta Q_{jj}$ and
    $\delta Q_{jl} - \tfrac12 Q_{jl} (\delta Q_{jj} + \delta Q_{ll})$.

    **Arguments:**

    - `free`: the increment of a coordinate without the constraint.
    - `number`: how a factor is written in front of it.
    """
    if not alphabet.sphere or label[0] == "readout":
        return free(label)
    kind, i, j = label
    shrink = free(("Q", i, i))
    if kind == "Q":
        shrink = shrink + free(("Q", j, j))
    return free(label) - number(symbol_of(alphabet, label) / 2) * shrink


def first_order(alphabet: Alphabet, moments: SymbolicMoments) -> dict[Label, Any]:
    """The part of the drift, per alpha, that is linear in the learning rate: gradient flow."""
    rate, ridge, batch = alphabet.learning_rate, alphabet.ridge, alphabet.batch_size

    def free(label: Label) -> Any:
        kind, i, *j = label
        if kind == "readout":
            assert moments.readout is not None
            return -alphabet.readout_rate * (moments.readout[i] + ridge * alphabet.readout(i)) / batch
        if kind == "M":
            return -rate * (moments.teacher[i][j[0]] + ridge * alphabet.M(i, j[0])) / batch
        both = moments.student[i][j[0]] + moments.student[j[0]][i]
        return -rate * (both + 2 * ridge * alphabet.Q(i, j[0])) / batch

    return {label: moments.simplified(on_sphere(alphabet, free, label)) for label in labels(alphabet)}


def second_order(alphabet: Alphabet, moments: SymbolicMoments) -> dict[Label, Any]:
    """The part that is quadratic in it: the corrector, which survives because inputs have a length of order d^1/2."""
    factor = alphabet.learning_rate**2 / alphabet.batch_size**2

    def free(label: Label) -> Any:
        kind, i, *j = label
        return factor * moments.square[i][j[0]] if kind == "Q" else sympy.Integer(0)

    return {label: moments.simplified(on_sphere(alphabet, free, label)) for label in labels(alphabet)}
