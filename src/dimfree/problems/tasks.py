"""Several tasks for one student: in turn, mixed, from teachers that move, or of inputs that grow harder."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from ..errors import (
    InvalidInput,
    check_finite,
    finite_number,
    flag,
    is_concrete,
    neurons,
    nonnegative_number,
    real_array,
    require,
    shown,
)
from ..functions import Function, as_function
from ..gaussian.activations import Activation
from ..gaussian.resolution import Resolution, finest, highest_degree
from ..gaussian.rules import AnyRule, Averaging
from ..printing import as_call
from ..state import STUDENTS, TEACHERS, State
from .base import Moments
from .field_problem import FieldProblem
from .inputs import Components, StandardInputs, as_probabilities
from .two_layer import TwoLayer


class Tasks(FieldProblem):
    r"""Several tasks for one student: each sample belongs to one of them, by probabilities that may change.

    $$ \text{loss} = \text{loss}_t\big(\lambda, \; C_t(\alpha) \, \lambda^*, z\big) \quad
       \text{with probability} \quad \text{probabilities}_t(\alpha), $$

    with one set of K teachers for all tasks: the rows of $C_t$ combine them into the teachers of task t. So a teacher
    jumps when the task is switched, and drifts if $C_t$ changes with the clock. Averages come from the tasks, in closed
    form if the tasks have closed forms; Stein's lemma gives what one task teaches about the teachers of another.

    **Arguments:**

    - `tasks`: problems of the same width p; a spectrum is given to the whole (`with_inputs`).
    - `teachers`: for each task the numbers of its teachers, or $C_t$ of shape `(k, K)`, or a JAX function of alpha that
      returns such a matrix; by default each task has its own teachers, and K is their total number.
    - `switches`: increasing times, one fewer than tasks: each task in its turn. A simulation switches after a whole
      number of steps, the nearest; the problem of its trajectory has these times.
    - `probabilities`: of the tasks instead: numbers, or a JAX function of alpha to as many; equal if left out.
    - `variances`: of a coordinate of an input in each task; 1 if left out.
    - `heads`: whether each task has its own readout, one after the other in the readout of the State; otherwise they
      share one.

    `risks` has the risk of every task along a trajectory; `only(t)` is the problem with task t alone.

    ??? example
        >>> import dimfree
        >>> erf = dimfree.TwoLayer(2, 1, "erf")
        >>> problem = dimfree.Tasks([erf, erf], teachers=[[[1.0, 0.0]], [[0.6, 0.8]]], switches=[40.0])
        >>> start = dimfree.State(Q=[[0.3, 0.0], [0.0, 0.2]], M=[[0.1, 0.0], [0.0, 0.05]])
        >>> run = dimfree.solve(dimfree.ode(problem, dimfree.OnlineSGD(0.5)), start, [0.0, 40.0, 80.0])
        >>> risks = problem.risks(run.state)
        >>> forgotten = risks[2, 0] - risks[1, 0]
    """

    tasks: tuple[FieldProblem, ...]
    views: tuple[Float[Array, "k K"] | Function, ...]
    chances: Float[Array, " T"] | Function
    switches: Float[Array, " jumps"] | None
    variances: Float[Array, " T"] | None
    heads: bool = eqx.field(static=True)
    alpha: Float[Array, ""]

    def __init__(
        self,
        tasks: Sequence[FieldProblem],
        teachers: Sequence[Any] | None = None,
        switches: ArrayLike | Array | None = None,
        probabilities: ArrayLike | Array | Callable | None = None,
        variances: Any = None,
        heads: bool = False,
    ):
        self.tasks = _as_tasks(tasks)
        self.views = _as_views(teachers, self.tasks)
        self.switches, self.chances = _as_chances(switches, probabilities, len(self.tasks))
        self.variances = None if variances is None else jnp.asarray(real_array(variances, "variances"))
        if self.variances is not None:
            if self.variances.shape != (len(self.tasks),):
                raise InvalidInput(
                    f"variances has shape {self.variances.shape}; give one for each of {len(self.tasks)} tasks."
                )
            if is_concrete(self.variances):
                require(np.asarray(self.variances) > 0, f"variances = {shown(variances)} was given; they are positive.")
        self.heads = flag(heads, "heads")
        sizes = {None if task.readout is None else task.readout.shape for task in self.tasks}
        if len(sizes) > 1 and not self.heads:
            raise InvalidInput("The readouts of the tasks differ in size; give each its own, heads=True.")
        if self.heads and None in sizes:
            raise InvalidInput("heads=True was given, but a task has no readout; give each one, or leave heads out.")
        self.alpha = jnp.zeros(())
        self.features = None

    @classmethod
    def switching(
        cls,
        width: int,
        similarity: float | Array,
        switch: float | Array,
        teacher_width: int = 1,
        activation: str | Callable | Activation = "erf",
        noise: float | Array = 0.0,
        heads: bool = False,
        teacher_readout: ArrayLike | Array | None = None,
    ) -> "Tasks":
        r"""Two tasks, one after the other, whose teachers are alike: continual learning.

        $$ w^*_{2,r} = \text{similarity} \, w^*_r + \sqrt{1 - \text{similarity}^2} \; w^*_{k+r} $$

        **Arguments:**

        - `similarity`: the cosine of the angle between a teacher of the first task and that of the second.
        - `switch`: alpha at which the second task begins.
        - `heads`: whether each task has a readout of its own.
        - the others: as for [`TwoLayer`], in both tasks.

        **Returns:** [`Tasks`], a problem.

        Lee, Goldt & Saxe, ICML 2021.
        """
        finite_number(similarity, "similarity")
        nonnegative_number(switch, "switch")
        if is_concrete(similarity):
            require(abs(float(similarity)) <= 1, f"similarity = {shown(similarity)} was given; it is from -1 to 1.")
        task = TwoLayer(width, teacher_width, activation, noise, teacher_readout=teacher_readout)
        cosine, identity = jnp.asarray(similarity, float), jnp.eye(teacher_width)
        sine = jnp.sqrt(1 - cosine**2)  # NaN where a traced similarity is out of range
        first = jnp.concatenate([identity, jnp.zeros_like(identity)], axis=1)
        second = jnp.concatenate([cosine * identity, sine * identity], axis=1)
        return cls([task, task], [first, second], jnp.reshape(jnp.asarray(switch, float), (1,)), heads=heads)

    @classmethod
    def drifting(
        cls,
        width: int,
        drift: float | Array,
        teacher_width: int = 1,
        activation: str | Callable | Activation = "erf",
        noise: float | Array = 0.0,
    ) -> "Tasks":
        r"""Teachers that turn all the time, each in a plane of its own: concept drift.

        $$ w^*_r(\alpha) = \cos(\text{drift} \, \alpha) \, w^*_r + \sin(\text{drift} \, \alpha) \, w^*_{k+r} $$

        **Arguments:**

        - `drift`: the angle by which they turn while d samples are seen.
        - the others: as for [`TwoLayer`].

        **Returns:** [`Tasks`], a problem.

        Biehl & Schwarze, J. Phys. A 26 (1993) 2651, for teachers whose drift is known.
        """
        nonnegative_number(drift, "drift")
        teacher_width = neurons(teacher_width, "teacher_width")
        rate, identity = jnp.asarray(drift, float), jnp.eye(teacher_width)

        def view(alpha):
            return jnp.concatenate([jnp.cos(rate * alpha) * identity, jnp.sin(rate * alpha) * identity], axis=1)

        return cls([TwoLayer(width, teacher_width, activation, noise)], [view])

    @classmethod
    def curriculum(
        cls,
        width: int,
        switch: float | Array,
        teacher_width: int = 1,
        activation: str | Callable | Activation = "erf",
        noise: Any = (0.0, 0.0),
        variances: Any = None,
    ) -> "Tasks":
        """One teacher, from easy samples first and hard ones later (or the other way round).

        **Arguments:**

        - `switch`: alpha at which the second kind of samples begins.
        - `noise`: the label noise of either; `variances`: of a coordinate of either's inputs, 1 if left out.
        - the others: as for [`TwoLayer`].

        **Returns:** [`Tasks`], a problem.

        Saglietti, Sarao Mannelli & Saxe, NeurIPS 2022.
        """
        nonnegative_number(switch, "switch")
        noises = jnp.asarray(real_array(noise, "noise"))
        if noises.shape != (2,):
            raise InvalidInput(f"noise has shape {noises.shape}; give two numbers, for the easy samples first.")
        tasks = [TwoLayer(width, teacher_width, activation, each) for each in noises]
        everyone = list(range(teacher_width))
        switches = jnp.reshape(jnp.asarray(switch, float), (1,))
        return cls(tasks, [everyone, everyone], switches, variances=variances)

    def __repr__(self) -> str:
        given: dict[str, Any] = {"tasks": list(self.tasks), "teachers": [_shown(view) for view in self.views]}
        if self.switches is not None:
            given["switches"] = self.switches
        else:
            given["probabilities"] = self.chances
        return as_call(self, **given, variances=self.variances, heads=self.heads)

    # The problem at a moment.

    @property
    def changes(self) -> bool:
        moving = (self.chances, *self.views)
        return self.switches is not None or any(isinstance(each, Function) for each in moving)

    def at(self, alpha: Float[Array, ""] | float) -> "Tasks":
        return eqx.tree_at(lambda problem: problem.alpha, self, jnp.asarray(alpha, float))

    @property
    def jumps(self) -> Float[Array, " jumps"] | None:
        return self.switches

    def jumping_at(self, times: Float[Array, " jumps"]) -> "Tasks":
        return eqx.tree_at(lambda problem: problem.switches, self, times)

    def only(self, task: int) -> "Tasks":
        """The problem with one task alone, the first of which is 0."""
        if not 0 <= task < len(self.tasks):
            raise InvalidInput(f"task = {task} was given; there are {len(self.tasks)}, from 0.")
        alone = jnp.eye(len(self.tasks))[task]
        found = eqx.tree_at(lambda problem: problem.chances, self, alone, is_leaf=lambda leaf: leaf is self.chances)
        return eqx.tree_at(lambda problem: problem.switches, found, None, is_leaf=lambda leaf: leaf is None)

    def risks(self, state: State) -> Float[Array, "*batch T"]:
        r"""The risk of every task, whichever is being learned: what is forgotten, and what is transferred.

        **Arguments:**

        - `state`: one State, or many, such as `trajectory.state`.

        **Returns:** their risks, with an axis of tasks behind the axes of the State. Teachers that move are where they
        are at `self.alpha`; [`at`] moves them.

        ??? example
            >>> import dimfree
            >>> problem = dimfree.Tasks.switching(1, similarity=0.6, switch=10.0)
            >>> limit = dimfree.ode(problem, dimfree.OnlineSGD(0.5))
            >>> run = dimfree.solve(limit, dimfree.State(Q=[[0.3]], M=[[0.1, 0.0]]), [0.0, 10.0, 20.0])
            >>> risks = problem.risks(run.state)
            >>> forgotten = risks[2, 0] - risks[1, 0]
            >>> bool(forgotten > 0)
            True
        """
        return jnp.stack([self.only(task).risk(state) for task in range(len(self.tasks))], axis=-1)

    @property
    def probabilities(self) -> Float[Array, " T"]:
        """Those of the tasks at this moment."""
        if self.switches is not None:
            return jax.nn.one_hot(jnp.sum(self.alpha >= self.switches), len(self.tasks))
        return jnp.asarray(self.chances(self.alpha) if isinstance(self.chances, Function) else self.chances, float)

    def view(self, task: int) -> Float[Array, "k K"]:
        """The teachers that a task sees at this moment, made of all."""
        view = self.views[task]
        return jnp.asarray(view(self.alpha), float) if isinstance(view, Function) else view

    @property
    def inputs(self) -> Components:
        number = len(self.tasks)
        variances = jnp.ones(number) if self.variances is None else self.variances
        return Components(self.probabilities, variances, jnp.eye(number), self.spectrum)

    # Of all tasks.

    @property
    def width(self) -> int:
        return self.tasks[0].width

    @property
    def teacher_width(self) -> int:
        return _columns(self.views[0])

    @property
    def readout(self) -> Float[Array, " n"] | None:
        readouts = [task.readout for task in self.tasks if task.readout is not None]
        return jnp.concatenate(readouts) if self.heads else (readouts[0] if readouts else None)

    @property
    def smooth(self) -> bool:
        return all(task.smooth for task in self.tasks)

    @property
    def sources(self) -> tuple[str, ...]:
        own = "saglietti2022"  # the same teachers, other samples
        if any(isinstance(view, Function) for view in self.views):
            own = "biehl1993"
        elif self.teacher_width > max(task.teacher_width for task in self.tasks):
            own = "lee2021"
        return tuple(dict.fromkeys([own, *(source for task in self.tasks for source in task.sources)]))

    @property
    def irreducible_risk(self) -> Float[Array, ""]:
        return self.probabilities @ jnp.stack([task.irreducible_risk for task in self.tasks])

    @property
    def noise_nodes(self) -> int | None:
        nodes = [task.noise_nodes for task in self.tasks]
        return None if None in nodes else max(node for node in nodes if node is not None)

    @property
    def degree(self) -> int | None:
        return highest_degree([task.degree for task in self.tasks])

    def resolution(self, tolerance: float, power: int) -> Resolution:
        return finest(*(task.resolution(tolerance, power) for task in self.tasks))

    def head(self, task: int, readout: Float[Array, " n"] | None) -> Float[Array, " m"] | None:
        """The readout of a task."""
        if not self.heads or readout is None:
            return readout
        sizes = [len(each.readout) for each in self.tasks if each.readout is not None]
        return readout[sum(sizes[:task]) : sum(sizes[: task + 1])]

    def loss(self, student, teacher, noise, readout, label=None):
        assert label is not None
        losses = [
            task.loss(student, teacher @ self.view(number).T, noise, self.head(number, readout))
            for number, task in enumerate(self.tasks)
        ]
        assert label is not None
        return label @ jnp.stack(losses)

    # Averages, task by task.

    def _of_task(self, number: int, state: State) -> State:
        """The State as a task sees it: its teachers and its readout, and fields with the variance of its inputs."""
        view = self.view(number)
        overlaps = {
            (STUDENTS, STUDENTS): state.Q,
            (STUDENTS, TEACHERS): state.M @ view.T,
            (TEACHERS, TEACHERS): view @ state.P @ view.T,
        }
        variance = 1.0 if self.variances is None else self.variances[number]
        readout = self.head(number, self.readout_of(state))
        return State.of({pair: (variance * overlap)[None] for pair, overlap in overlaps.items()}, readout)

    @property
    def knows_moments(self) -> bool:
        return all(task.knows_moments for task in self.tasks)

    def mean_rule(self, averaging: Averaging, transform: Any = None) -> AnyRule | None:
        if transform is not None:
            return super().mean_rule(averaging, transform)
        rules = (task.mean_rule(averaging) for task in self.tasks)
        return next((rule for rule in rules if rule is not None), None)

    def _mean_moments(self, state: State, averaging: Averaging, transform: Any) -> Moments:
        if transform is not None:
            return super()._mean_moments(state, averaging, transform)
        moments = [self._moments_of_task(number, state, averaging) for number in range(len(self.tasks))]
        return jax.tree.map(lambda *each: jnp.tensordot(self.probabilities, jnp.stack(each), 1), *moments)

    def _moments_of_task(self, number: int, state: State, averaging: Averaging) -> Moments:
        task, seen = self.tasks[number], self._of_task(number, state)
        variance = 1.0 if self.variances is None else self.variances[number]
        moments = task.mean_moments(seen, averaging)
        # Of teachers that the task does not see, its slopes know what its own fields do.
        with_all = jnp.concatenate([state.M, self.view(number) @ state.P])
        readout = moments.readout
        if self.heads and readout is not None:
            others = [jnp.zeros_like(each.readout) for each in self.tasks if each.readout is not None]
            readout = jnp.concatenate([*others[:number], readout, *others[number + 1 :]])
        return Moments(
            student=moments.student,
            teacher=variance * task.sensitivity(seen, moments) @ with_all,
            square=variance * moments.square,
            readout=readout,
        )

    def single_risk(self, state: State, averaging: Averaging) -> Float[Array, ""]:
        risks = [task.single_risk(self._of_task(n, state), averaging) for n, task in enumerate(self.tasks)]
        return self.probabilities @ jnp.stack(risks)


def _columns(view: Float[Array, "k K"] | Function) -> int:
    if isinstance(view, Function):
        return jax.eval_shape(view, jnp.zeros(())).shape[-1]
    return view.shape[-1]


def _shown(view: Float[Array, "k K"] | Function) -> Any:
    return view.__name__ if isinstance(view, Function) else np.asarray(view).tolist() if is_concrete(view) else "traced"


def _as_tasks(tasks: Any) -> tuple[FieldProblem, ...]:
    if not isinstance(tasks, Sequence) or not tasks or not all(isinstance(task, FieldProblem) for task in tasks):
        raise InvalidInput(
            f"tasks = {shown(tasks)} was given; give a list of problems, such as [dimfree.TwoLayer(2, 1), ...]."
        )
    for task in tasks:
        if not isinstance(task.inputs, StandardInputs):
            raise InvalidInput(
                f"{task!r} has inputs of its own; tasks share theirs: give a spectrum to the whole, "
                "dimfree.Tasks(...).with_inputs(spectrum)."
            )
        if task.changes or task.tokens is not None:
            raise InvalidInput(
                f"{task!r} changes with the clock, or has samples of several inputs; a task may not do this."
            )
    if len({task.width for task in tasks}) > 1:
        raise InvalidInput(f"The tasks have widths {[task.width for task in tasks]}; they share one student.")
    return tuple(tasks)


def _as_views(teachers: Any, tasks: tuple[FieldProblem, ...]) -> tuple[Any, ...]:
    widths = [task.teacher_width for task in tasks]
    if teachers is None:
        ends = np.cumsum(widths)
        return tuple(jnp.eye(ends[-1])[end - width : end] for end, width in zip(ends.tolist(), widths, strict=True))
    if not isinstance(teachers, Sequence) or len(teachers) != len(tasks):
        raise InvalidInput(f"teachers = {shown(teachers)} was given; give one entry for each of {len(tasks)} tasks.")
    numbers = [each for each in teachers if not callable(each) and np.ndim(each) == 1]
    total = 1 + max((int(np.max(each)) for each in numbers), default=0)
    views = []
    for each, width in zip(teachers, widths, strict=True):
        view: Any = as_function(each, np.zeros(())) if callable(each) else jnp.asarray(real_array(each, "teachers"))
        if not callable(each) and view.ndim == 1:
            require(
                (np.asarray(each) == np.round(each)) & (np.asarray(each) >= 0),
                f"teachers = {shown(teachers)} was given; in a list of numbers they count from 0.",
            )
            view = jnp.eye(total)[np.asarray(each, int)]
        shape = jax.eval_shape(view, jnp.zeros(())).shape if callable(each) else view.shape
        if len(shape) != 2 or shape[0] != width:
            raise InvalidInput(
                f"teachers has an entry of shape {shape} for a task with {width} teachers; it must be {width} numbers "
                f"of teachers, or a matrix ({width}, K)."
            )
        if not callable(each):
            check_finite(view, "teachers")
        views.append(view)
    if len({_columns(view) for view in views}) > 1:
        raise InvalidInput(
            f"The entries of teachers are made of {[_columns(view) for view in views]} teachers; all tasks share one "
            "set of K."
        )
    return tuple(views)


def _as_chances(switches: Any, probabilities: Any, number: int) -> tuple[Any, Any]:
    """When tasks are switched, if they are, and their probabilities where not."""
    if switches is not None and probabilities is not None:
        raise InvalidInput("Both switches and probabilities were given; both say when each task comes: leave out one.")
    if switches is not None:
        times = jnp.asarray(real_array(switches, "switches"))
        if times.shape != (number - 1,):
            raise InvalidInput(f"switches has shape {times.shape}; {number} tasks in turn need {number - 1} times.")
        if is_concrete(times):
            increasing = np.diff(np.asarray(times), prepend=0.0) > 0
            require(increasing, f"switches = {shown(switches)} was given; the times must be positive and increase.")
        return times, jnp.full(number, 1 / number)
    if callable(probabilities):
        function = as_function(probabilities, np.zeros(()))
        shape = jnp.shape(jax.eval_shape(function, jnp.zeros(())))
        if shape != (number,):
            raise InvalidInput(f"probabilities gives an array of shape {shape}; there are {number} tasks.")
        for alpha in (0.0, 1.0, 10.0, 100.0):
            as_probabilities(function(jnp.asarray(alpha)), number, "tasks", f"probabilities at alpha = {alpha:g}")
        return None, function
    return None, as_probabilities(probabilities, number, "tasks")
