"""What may be observed of a network at a State: a named quantity, a function of the State, the mean over a sample."""

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import InvalidInput, shown
from ..functions import Function, as_function
from ..gaussian.analytic import is_analytic
from ..gaussian.means import largest_term
from ..gaussian.probing import check_values, stand_in_readout
from ..gaussian.rules import MOST_FIELDS, AnyRule, Averaging, Sobol, WideSobol, bound_on_error
from ..printing import as_call
from ..state import State, WideState
from .base import Problem
from .field_problem import FieldProblem, features_of, sample_loss
from .inputs import Inputs

_NAMES = ("risk", "accuracy")
_POINTS = 2**15  # of a function that may jump
_RAREST = 1e-9  # what happens more rarely may escape all points


class Observable(eqx.Module):
    """What a user asks to observe, as a pytree: the same code is the same program, and its numbers are arrays.

    **Attributes:**

    - `name`: of a quantity that the problem knows, or None.
    - `function`: else, a user's own; `of_state` says whether of a State or of a sample.
    """

    name: str | None = eqx.field(static=True, default=None)
    function: Function | None = None
    of_state: bool = eqx.field(static=True, default=False)

    def at(self, problem: Problem, state: State | WideState, by: Averaging) -> Any:
        """What it is at a State without leading axes."""
        if self.name == "risk":
            return problem.risk_at(state, by)
        if self.of_state:
            assert self.function is not None
            return jax.tree.map(jnp.asarray, self.function(state))
        if not isinstance(problem, FieldProblem) or isinstance(state, WideState):
            raise InvalidInput(
                f"{'A WideState' if isinstance(state, WideState) else repr(problem)} has no local fields to take a "
                "mean over; pass a function of the State."
            )
        if self.name == "accuracy":
            known = _known_accuracy(problem, state, by)
            if known is not None:
                return known
        return self._of_sample(problem).risk_at(state, by)

    def error(self, problem: Problem, state: State | WideState, by: Averaging) -> Any:
        """A bound on the numerical error of `at`."""
        found = by.in_all_ways(Sobol(2), lambda way: self.at(problem, state, way))
        bound = jax.tree.map(lambda values: _bound(by, values), found)
        if self.name == "risk" or self.of_state:
            return bound
        if self.name == "accuracy" and _known_accuracy(problem, state, by) is not None:
            return bound
        assert isinstance(state, State)  # `at` has refused a WideState
        return bound + self._of_sample(problem).unseen_error(state, by)

    def _of_sample(self, problem: Problem) -> "Observed":
        """The problem whose risk is the mean over samples."""
        assert isinstance(problem, FieldProblem)
        return Observed(problem, _Right(problem) if self.function is None else self.function)


def _known_accuracy(problem: Problem, state: State | WideState, by: Averaging) -> Float[Array, ""] | None:
    """The accuracy where the problem has a better way to it than points."""
    assert isinstance(problem, FieldProblem)
    assert isinstance(state, State)
    return problem.known_accuracy(problem.inputs.fields(problem.inputs.over_blocks(state)), by)


def _bound(by: Averaging, values: Float[Array, "ways *shape"]) -> Float[Array, "*shape"]:
    """A bound on the error of each entry of an average, from the same taken in other ways."""
    value, others = values[0], values[1:]
    distance = jnp.max(jnp.abs(others - value), axis=0)
    return bound_on_error([distance], Sobol(2), jnp.abs(value)) + 0.03 * by.tolerance * jnp.abs(value)


def as_observable(problem: Problem, what: Any) -> Observable:
    """What a user asks to observe of a problem, or an error in words."""
    if isinstance(what, Observable):
        return what
    if isinstance(what, str) and what in _NAMES:
        if what == "accuracy" and not problem.classifies:
            raise InvalidInput(
                f"'accuracy' was given, but {problem!r} does not say which answer to a sample is right. Pass a "
                "function (student, teacher, noise, readout[, label]) of one sample: 1 where it is right, else 0."
            )
        return Observable(name=what)
    if not callable(what):
        raise InvalidInput(
            f"what = {shown(what)} was given to observe; give {' or '.join(map(repr, _NAMES))}, a function of a State, "
            "or a function (student, teacher, noise, readout[, label]) of one sample."
        )
    if _takes(what, 1):
        p, k = problem.width, problem.teacher_width
        state = State(Q=np.eye(p), M=np.zeros((p, k)), readout=problem.readout)
        return Observable(function=as_function(what, state), of_state=True)
    if not isinstance(problem, FieldProblem):
        raise InvalidInput(f"{problem!r} has no local fields to take a mean over; pass a function of the State.")
    return Observable(function=Observed(problem, what).function)


class Observed(FieldProblem):
    r"""A problem with another function in the place of its loss, for the mean of that function over fresh samples.

    $$ \text{risk} = \mathbb{E}[\text{function}(\lambda, \lambda^*, \text{noise}, \text{readout}, \text{label})] $$

    Inputs, students, teachers and readout are those of the problem. A function that is made of analytic operations is
    averaged as a loss is. Any other may jump, perhaps where it is rare: it is averaged over points of which half lie
    far out ([`WideSobol`]).

    **Arguments:**

    - `problem`: what is observed.
    - `function`: JAX function of student fields `(p,)`, teacher fields `(k,)` (a row of them for each input, where a
      sample is several), a standard normal number, the readout and, if it takes it and inputs have one, the label of
      the sample, to a number or a truth value.
    """

    of: FieldProblem
    function: Function
    readout: Float[Array, " n"] | None
    smooth: bool = eqx.field(static=True)
    sees_noise: bool = eqx.field(static=True)
    _sees_teacher: bool = eqx.field(static=True)
    sees_label: bool = eqx.field(static=True)

    def __init__(self, problem: FieldProblem, function: Callable):
        p, k, self.of, self.readout = problem.width, problem.teacher_width, problem, problem.readout
        self.tokens, self.correlations = problem.tokens, problem.correlations
        rows = () if self.tokens is None else (self.tokens,)
        readout = None if self.readout is None else stand_in_readout(self.readout.size)  # its values may be traced here
        label = problem.inputs.label(0)
        called = getattr(function, "__wrapped__", function)
        labels = () if label is None or not _takes(called, 5) else (np.ones(label.shape),)
        self.sees_label = bool(labels)
        given = (np.zeros((*rows, p)), np.zeros((*rows, k)), np.zeros(()), readout, *labels)
        self.function = as_function(function, *given)
        words = f"student fields {given[0].shape}, teacher fields {given[1].shape}, a noise number"
        words += ", no readout (None)" if readout is None else f", a readout of shape {readout.shape}"
        words += f" and a label of shape {labels[0].shape}" if labels else ""
        of_fields = _OfFields(self.function, rows, p, readout, *labels)
        fields = self.inputs_per_sample * (p + k)
        check_values(of_fields, fields + 1, name="The function to observe (what)", arguments=words)
        program = jax.make_jaxpr(lambda *arguments: self.function(*arguments))(*given).jaxpr
        # A jump that trying does not meet may be where it matters: only operations tell that there is none.
        self.smooth = is_analytic(program, [place < 3 for place in range(len(program.invars))])
        used = {id(number) for step in program.eqns for number in step.invars} | set(map(id, program.outvars))
        self._sees_teacher, self.sees_noise = (id(program.invars[number]) in used for number in (1, 2))
        self.features = None
        if self.function.numbers and self.smooth:
            self.features = features_of(self, None if readout is None else jnp.asarray(readout))

    @property
    def width(self) -> int:
        return self.of.width

    @property
    def teacher_width(self) -> int:
        return self.of.teacher_width

    @property
    def inputs(self) -> Inputs:
        return self.of.inputs

    @property
    def sees_teacher(self) -> bool:
        return self._sees_teacher

    @property
    def noise_nodes(self) -> int | None:
        return None if self.sees_noise else 1

    def _chosen_rule(self, tolerance: float, dimension: int, power: int, smooth: bool) -> AnyRule:
        if smooth and dimension <= MOST_FIELDS:
            return super()._chosen_rule(tolerance, dimension, power, smooth)
        return WideSobol(_POINTS)

    def unseen_error(self, state: State, averaging: Averaging) -> Float[Array, ""]:
        """What a jump adds to the error of the mean, and replicas of the points do not show.

        Points that are even put the same number of them on each side of a jump, however they are scrambled: the sum is
        off by about the point that is next to the jump, and by its mirror image. What no point sees may still happen.
        """
        if self.smooth:
            return jnp.zeros(())
        fields = self.inputs.fields(self.inputs.over_blocks(state))
        return 2 * self.average(sample_loss, None, fields, averaging, mean=largest_term) + _RAREST

    def __repr__(self) -> str:
        return as_call(self, problem=self.of, function=self.function)

    def loss(self, student, teacher, noise, readout, label=None):
        labels = (label,) if self.sees_label else ()
        return jnp.asarray(self.function(student, teacher, noise, readout, *labels), float)


class Reaches(eqx.Module):
    """A function of a State that is zero where what is observed reaches a level from below."""

    problem: Problem
    what: Observable
    level: Float[Array, ""]

    def __call__(self, state: State | WideState) -> Float[Array, ""]:
        return self.problem.mean(self.what, state) - self.level


class _Right(eqx.Module):
    """Whether the answer to a sample is right, as a function of the sample."""

    problem: FieldProblem

    def __call__(self, student, teacher, noise, readout, label=None):
        readout = None if readout is None else jnp.asarray(readout)
        return self.problem.correct(student, teacher, noise, readout, label)


class _OfFields(eqx.Module):
    """A function of a sample as one of all its fields and of the noise, in one array."""

    function: Function
    rows: tuple[int, ...] = eqx.field(static=True)
    p: int = eqx.field(static=True)
    readout: Float[np.ndarray, " n"] | None
    label: Float[np.ndarray, "*label"] | None = None

    def __call__(self, fields: Any) -> Any:
        labels = () if self.label is None else (self.label,)
        seen = fields[:-1].reshape(*self.rows, -1)
        found = self.function(seen[..., : self.p], seen[..., self.p :], fields[-1], self.readout, *labels)
        return jnp.asarray(found, float) if jnp.ndim(found) == 0 else found


def _takes(function: Callable, number: int) -> bool:
    """Whether a function can be called with so many arguments."""
    try:
        inspect.signature(function).bind(*range(number))
    except (TypeError, ValueError):  # ValueError where it has no signature
        return False
    return True
