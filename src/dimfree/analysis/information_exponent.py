"""How hard a target is for one-pass SGD: information exponent, leaps, and the samples that they ask for."""

import dataclasses
import functools
from collections.abc import Callable
from math import factorial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..errors import InvalidInput, positive_integer
from ..gaussian.activations import as_activation
from ..gaussian.hermite import expand
from ..problems import MultiIndex, Problem, TwoLayer
from ..problems.base import check_problem
from ..problems.two_layer import scale_of

_ORDER = 8
_ENTRIES = 2**21  # numbers in the largest tensor of coefficients
_ROUNDING = 1e-10  # coefficients below this fraction of the norm of the function count as zero, whatever their error
_ERRORS = 10.0  # and so do those below this many estimated errors


class Leap(NamedTuple):
    """One step of the staircase: the order at which new directions are seen, and those directions as rows `(n, k)`."""

    size: int
    directions: Float[np.ndarray, "n k"]


@dataclasses.dataclass(frozen=True, eq=False)
class InformationExponent:
    """How one-pass SGD sees a target from a random start, from [`information_exponent`]; it prints as a report.

    - `exponent`: the order of the first Hermite coefficient that SGD sees; None if there is none up to `order`.
    - `leaps`: the order at which SGD sees each further set of directions, once the earlier sets are learned, with the
      directions; `leap` is the largest.
    - `coefficients`: of each order from 0 to `order`; for several directions the norm of all coefficients of an order.
    - `student_coefficients`: the coefficients of the student's activation, if a problem was given; otherwise None.
    - `zero`: coefficients of at most this size count as zero.
    - `directions`: the number of directions of the target, k.
    """

    target: str
    directions: int
    order: int
    exponent: int | None
    leaps: tuple[Leap, ...]
    coefficients: Float[np.ndarray, " orders"]
    student_coefficients: Float[np.ndarray, " orders"] | None
    zero: float

    @property
    def leap(self) -> int | None:
        """The largest leap; for one direction the information exponent itself."""
        return max((leap.size for leap in self.leaps), default=None)

    @property
    def directions_seen(self) -> int:
        """How many directions of the target SGD sees in the end."""
        return sum(len(leap.directions) for leap in self.leaps)

    @property
    def sample_complexity(self) -> str:
        """The order of the number of samples until SGD has found the target, in words.

        Where it could be otherwise if orders above `order` were looked at, the words say so: directions that are not
        seen up to there, and later leaps, which a higher order may shorten.
        """
        if self.leap is None:
            return f"at least {samples_in_words(self.order + 1)}, as nothing is seen up to order {self.order}"
        words = samples_in_words(self.leap)
        if self.directions_seen < self.directions:
            seen = f"{self.directions_seen} of {self.directions} directions"
            return f"{words} for {seen}; the others are not seen up to order {self.order}"
        if any(leap.size > self.leaps[0].size for leap in self.leaps[1:]):
            return f"{words} by orders up to {self.order}; higher ones may need fewer"
        return words

    @property
    def sample_power(self) -> float:
        r"""The power of d in `sample_complexity`, $\max(1, \text{leap} - 1)$; a leap of 2 adds a logarithm.

        It is that of the directions that are seen up to `order`; infinite where none is.
        """
        return np.inf if self.leap is None else max(1.0, self.leap - 1.0)

    @property
    def rate_power(self) -> float:
        r"""The power of d of the largest learning rate that finds the target, $-\max(0, \text{leap} - 2) / 2$."""
        return 0.0 if self.leap is None else -max(0.0, self.leap - 2.0) / 2

    def __repr__(self) -> str:
        shown = range(len(self.coefficients))
        lines = [f"Information exponent of {self.target}: {self.exponent if self.exponent else f'above {self.order}'}"]
        lines.append(f"  {'order':<24}{''.join(f'{n:>10}' for n in shown)}")
        rows = [("coefficient" if self.directions == 1 else "norm of coefficients", self.coefficients)]
        if self.student_coefficients is not None:
            rows.append(("student's coefficient", self.student_coefficients))
        for name, values in rows:
            cells = "".join(f"{0.0 if abs(value) <= self.zero else value:>10.4g}" for value in values)
            lines.append(f"  {name:<24}{cells}")
        lines.append(f"  (zero means at most {self.zero:.1g})")
        if not self.leaps:
            lines.append(f"  SGD sees nothing of it up to order {self.order}; samples: {self.sample_complexity}")
            return "\n".join(lines)
        if self.directions > 1:
            steps = ", then ".join(
                f"{len(leap.directions)} direction{'s' * (len(leap.directions) > 1)} by a leap of {leap.size}"
                for leap in self.leaps
            )
            unseen = self.directions - self.directions_seen
            missing = f"; {unseen} of {self.directions} directions are not seen up to order {self.order}" * bool(unseen)
            lines.append(f"  staircase: {steps}{missing}")
        rate = "fixed" if self.rate_power == 0 else f"of the order d^{self.rate_power:g}"
        lines.append(f"  learning rate: {rate}; samples: of the order {self.sample_complexity}")
        return "\n".join(lines)


def samples_in_words(leap: int) -> str:
    """The order of the number of samples that a leap asks for."""
    return {1: "d", 2: "d log d"}.get(leap, f"d^{leap - 1}")


def information_exponent(
    target: str | Callable | Problem, order: int = _ORDER, *, directions: int = 1
) -> InformationExponent:
    r"""The information exponent of a target, its leaps, and the samples that one-pass SGD needs.

    From a random start a student has overlaps $m$ of order $d^{-1/2}$ with the target, and sees it through

    $$ \mathbb{E}[f_*(z)\, g(w \cdot z)] = \sum_n g_n \langle T_n, m^{\otimes n} \rangle, $$

    with $T_n$ the tensor of its Hermite coefficients of order n (for one direction $c_n$) and $g_n$ those of the
    student's activation. The first order n >= 1 for which $g_n T_n$ is not zero is the exponent $\kappa$: the overlap
    grows by $m^{\kappa - 1}$. The noise of SGD shrinks it by learning_rate x m, so the learning rate must be of order
    $d^{-(\kappa - 2)/2}$ for $\kappa > 2$. To leave the start takes order d samples for $\kappa = 1$, $d \log d$ for
    $\kappa = 2$, and $d^{\kappa - 1}$ for larger $\kappa$.

    SGD learns a target of several directions in steps. Once some directions are learned, the fields along them are of
    order one, and SGD sees the next directions at the lowest order of any $T_n$ in the new directions alone: a leap. If
    all leaps are one, the target is a staircase. Directions are found from the tensors and need not be along the axes,
    so a rotation of the target has the same leaps. The largest leap takes the place of $\kappa$ in the number of
    samples. If something is not seen up to `order`, it may be seen at a higher order, and `sample_complexity` says so.

    Holds for squared or correlation losses and orthonormal directions, on the sphere. For a problem the student counts
    too: an order that the activation lacks is not seen. Signs are ignored: at even orders a student whose readout has
    the wrong sign is pushed away from the target.

    **Arguments:**

    - `target`: the name of a link, such as `"relu"`, or a JAX function of a number (of an array `(k,)` if `directions`
      is k > 1); or a problem, [`TwoLayer`], [`SingleIndex`] or [`MultiIndex`].
    - `order`: the highest order to look at.
    - `directions`: the number of arguments of a function; a problem knows its own.

    **Returns:** an [`InformationExponent`]; it prints as a report.

    Ben Arous, Gheissari & Jagannath, JMLR 22 (2021) 106; Abbe, Boix-Adsera & Misiakiewicz, COLT 2023, whose leap is
    along given axes. Loureiro 2023 prints n = O(1) for an exponent of one; it is O(d).

    ??? example
        >>> import dimfree
        >>> dimfree.information_exponent("he3").sample_complexity
        'd^2'
    """
    order = positive_integer(order, "order")
    if isinstance(target, Problem):
        tensors, name, zero, coefficients, student = _of_problem(target, order)
    else:
        directions = positive_integer(directions, "directions")
        order = _affordable(order, directions)
        found = expand(target, order, directions, "target")
        tensors, zero, student = _tensors(found.coefficients), _zero(found), None
        name = as_activation(target, "target").name if directions == 1 else getattr(target, "__name__", "a function")
        coefficients = found.coefficients if directions == 1 else _norms(tensors)
    leaps = _leaps(tensors, zero)
    return InformationExponent(
        target=name,
        directions=tensors[1].shape[0],
        order=len(tensors) - 1,
        exponent=leaps[0].size if leaps else None,
        leaps=leaps,
        coefficients=coefficients,
        student_coefficients=student,
        zero=zero,
    )


def _of_problem(problem: Problem, order: int):
    """Tensors as the student sees them, a name, what counts as zero, and coefficients of target and student."""
    if not isinstance(problem, TwoLayer | MultiIndex):
        raise InvalidInput(
            f"information_exponent knows the target of TwoLayer, SingleIndex and MultiIndex, not of "
            f"{type(problem).__name__}; give it the link function instead."
        )
    check_problem(problem)
    k = problem.teacher_width
    order = _affordable(order, k)
    student = expand(problem.activation.function, order, 1)
    if isinstance(problem, TwoLayer):
        # A sum of functions of one direction each, for which no quadrature over all of them is needed.
        weights = scale_of(problem.normalisation, k) * np.asarray(problem.teacher_readout)
        target = student if problem.one_activation else expand(problem.teacher_activation.function, order, 1)
        tensors = [_diagonal(weights * value, n) for n, value in enumerate(target.coefficients)]
        zero = _zero(target) * max(1.0, float(np.abs(weights).max()))
        single, name = weights[0] * target.coefficients, problem.teacher_activation.name
        name = name if k == 1 else f"{name} ({k} teachers)"
    else:
        link = (lambda value: problem.link(value[None])) if k == 1 else problem.link
        target = expand(link, order, k)
        tensors, zero, single = _tensors(target.coefficients), _zero(target), target.coefficients
        name = "the link"
    seen = np.abs(student.coefficients) > _zero(student)
    visible = [np.asarray(tensor * sees) for tensor, sees in zip(tensors, seen, strict=True)]
    return visible, name, zero, single if k == 1 else _norms(tensors), student.coefficients


def _affordable(order: int, directions: int) -> int:
    """The highest order, lowered where the tensors would have too many entries."""
    while order > 2 and directions**order > _ENTRIES:
        order -= 1
    return order


def _zero(found) -> float:
    return max(_ROUNDING * found.norm, _ERRORS * found.error)


def _norms(tensors: list[np.ndarray]) -> np.ndarray:
    return np.asarray([np.linalg.norm(tensor) for tensor in tensors])


def _diagonal(weights: Float[np.ndarray, " k"], order: int) -> np.ndarray:
    tensor = np.zeros((len(weights),) * order)
    if order == 0:
        return np.asarray(weights.sum())
    tensor[(np.arange(len(weights)),) * order] = weights
    return tensor


def _tensors(coefficients: Float[np.ndarray, "..."]) -> list[np.ndarray]:
    r"""The symmetric tensors of each order, $T_{i_1 \dots i_n} = c_{n_1 \dots n_k} \sqrt{\prod_r n_r! / n!}$.

    With this factor a rotation of the variables rotates the tensors, and their norms are those of the coefficients.
    """
    k, tensors = coefficients.ndim, []
    for n in range(coefficients.shape[0]):
        index = np.indices((k,) * n).reshape(n, k**n)
        counts = np.stack([(index == r).sum(axis=0) for r in range(k)])
        products = np.prod(np.vectorize(factorial, otypes=[float])(counts), axis=0)
        values = coefficients[tuple(counts)] * np.sqrt(products / factorial(n))
        tensors.append(values.reshape((k,) * n))
    return tensors


def _leaps(tensors: list[np.ndarray], zero: float) -> tuple[Leap, ...]:
    """The steps in which the directions are found, until none is left or none is seen."""
    k = tensors[1].shape[0]
    known, unknown, leaps = np.zeros((0, k)), np.eye(k), []
    while len(unknown):
        leap = _next_leap(tensors, known, unknown, zero)
        if leap is None:
            break
        leaps.append(leap)
        known = np.concatenate([known, leap.directions])
        # The rest of the space, orthonormal, from the projector on it.
        values, vectors = np.linalg.eigh(np.eye(k) - known.T @ known)
        unknown = vectors.T[values > 0.5]
    return tuple(leaps)


def _next_leap(tensors, known, unknown, zero: float) -> Leap | None:
    """The lowest order in unknown directions of any tensor, and the span of the directions that it has there."""
    for size in range(1, len(tensors)):
        matrices = []
        for n in range(size, len(tensors) if len(known) else size + 1):
            parts = [unknown] * size + [known] * (n - size)
            # One index after the other: contracting the first brings the new one to the end.
            turned = functools.reduce(lambda left, rows: np.tensordot(left, rows, axes=(0, 1)), parts, tensors[n])
            matrices.append(turned.reshape(len(unknown), -1))
        rows, strengths, _ = np.linalg.svd(np.concatenate(matrices, axis=1), full_matrices=False)
        new = strengths > zero
        if new.any():
            return Leap(size, rows.T[new] @ unknown)
    return None
