"""The law of the inputs: what the fields are, given the overlaps, and a draw of them at finite d."""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.special
import numpy as np
from jaxtyping import Array, Float, Int, PyTree
from numpy.typing import ArrayLike

from ..components import components_of
from ..errors import (
    InvalidInput,
    check_memory,
    check_not_traced,
    is_concrete,
    positive_integer,
    positive_number,
    real_array,
    require,
    shown,
)
from ..printing import as_call
from ..state import STUDENTS, TEACHERS, State

MEANS = "means"  # the directions of the clusters' means, where fields are told apart from overlaps


class Moments(eqx.Module):
    r"""All that a step of SGD needs to know of a sample (or, averaged, of a batch or of the population).

    With $G_i$ the gradient of the loss with respect to $w_i / \sqrt d$, for losses of local fields
    $G_i = s_i x$, $s_i = \partial \text{loss} / \partial \lambda_i$:

    - `student`: $G_i \cdot w_j / \sqrt d$, that is $s_i \lambda_j$, shape `(p, p)`;
    - `teacher`: $G_i \cdot w^*_r / \sqrt d$, that is $s_i \lambda^*_r$, shape `(p, k)`;
    - `square`: $G_i \cdot G_j / d$, that is $s_i s_j \|x\|^2 / d$, shape `(p, p)`, for a batch of size B the sum over
      all pairs of samples, over $B^2$;
    - `readout`: $\partial \text{loss} / \partial \text{readout}$, shape `(n,)`, or None without a readout;
    - `own`: $G_i \cdot v_j / \sqrt d$ with each family of vectors v that an algorithm has beside the weights.

    Products of vectors are over all dimensions, or those of each block of the inputs' spectrum along a leading axis.
    """

    student: Float[Array, "*blocks p p"]
    teacher: Float[Array, "*blocks p k"]
    square: Float[Array, "*blocks p p"]
    readout: Float[Array, " n"] | None
    own: dict[str, Float[Array, "*blocks p _"]] = eqx.field(default_factory=dict)

    def along(self, family: str) -> Float[Array, "*blocks p _"]:
        """The products with a family of vectors."""
        if family == STUDENTS:
            return self.student
        return self.teacher if family == TEACHERS else self.own[family]


class Inputs(eqx.Module):
    """The law of an input, whatever is learned of it and however.

    Fields are Gaussian in each component of the law: `average` takes the mean over components of what a problem
    averages in one. A draw of a sample is its component, and the input made of standard normal numbers: of all d of
    them where there are vectors (`vectors`), of its coordinates in the frames that the weights span in each block and
    the Gram matrix of the rest where there are none (`seen`, `unseen`).

    **Attributes:**

    - `eigenvalues`: of the inputs' covariance in each block, apart from what a component of the law makes of it.
    - `fractions`: of the dimensions, that each block has.
    """

    eigenvalues: eqx.AbstractVar[Float[Array, " blocks"]]
    fractions: eqx.AbstractVar[Float[Array, " blocks"]]

    @property
    def blocks(self) -> int:
        """How many blocks of equal eigenvalues the covariance of the inputs has: as many as a State has."""
        return self.eigenvalues.shape[0]

    def sizes(self, d: Float[Array, ""] | float) -> Float[Array, " blocks"]:
        """How many of d dimensions each block has: whole numbers that sum to d, each within one of its fraction."""
        if self.blocks == 1:  # in each step of a simulation, where the rest would be felt
            return jnp.reshape(jnp.asarray(d, float), (1,))
        return jnp.diff(jnp.round(jnp.cumsum(self.fractions) * d), prepend=0.0)

    def masses(self, gram: Float[Array, "*axes n m"]) -> Float[Array, "*axes blocks n m"]:
        """The overlaps in each block of vectors that lie evenly in all dimensions."""
        return self.fractions[:, None, None] * gram[..., None, :, :]

    def fields(self, state: State) -> State:
        """The State as the fields see it: their covariances in the place of overlaps, in one block."""
        return state

    def in_blocks(self, moments: Moments, sensitivity: Callable[[], Float[Array, "p r"]], state: State) -> Moments:
        """What the mean `Moments` of the fields make of each block, and of vectors that the loss does not see.

        **Arguments:**

        - `sensitivity`: gives the mean derivative of the slopes by the fields, where it is needed.
        """
        if not state.families[2:]:
            return moments
        matrix = sensitivity()
        return dataclasses.replace(moments, own={name: matrix @ state.with_seen(name) for name in state.families[2:]})

    def over_blocks(self, state: State) -> State:
        """A State in one block, of vectors that lie evenly in all dimensions, in the blocks of these inputs."""
        if state.blocks == self.blocks:
            return state
        overlaps = {pair: self.masses(blocks[..., 0, :, :]) for pair, blocks in state.overlaps.items()}
        return State.of(overlaps, state.readout, state.numbers)

    @property
    def trace(self) -> Float[Array, ""]:
        """The mean eigenvalue: the squared length of an input, over d."""
        return self.fractions @ self.eigenvalues

    def effective_dimension(self, d: int) -> Float[Array, ""]:
        r"""$(\text{tr}\,\Sigma)^2 / \text{tr}\,\Sigma^2$ in dimension d: over how many dimensions the trace is spread.

        Limits hold where it is large.
        """
        return d * (self.fractions @ self.eigenvalues) ** 2 / (self.fractions @ self.eigenvalues**2)

    @property
    def isotropic(self) -> bool:
        """Whether inputs spread alike in all dimensions, and by variances that a problem itself states."""
        return True

    @property
    def components(self) -> int:
        """How many components the law has: one, unless it says otherwise."""
        return 1

    @property
    def are_points(self) -> bool:
        """Whether inputs have no spread at all, given their component."""
        return False

    @property
    def is_standard(self) -> bool:
        """Whether inputs are standard normal."""
        return False

    def component(self, normals: Float[Array, "*samples"]) -> Int[Array, "*samples"]:
        """The component that a sample is from, made of a standard normal number."""
        return jnp.zeros(normals.shape, int)

    def average(self, in_component: Callable[..., PyTree[Array]], state: State) -> PyTree[Array]:
        """The mean over components of `in_component(mean of the fields, variance, label)`."""
        return in_component(None, jnp.ones(()), None)

    @abc.abstractmethod
    def seen(
        self, normals: Float[Array, "blocks B n"], component: Int[Array, " B"], teachers: Float[Array, "blocks k n"]
    ) -> Float[Array, "blocks B n"]:
        """The coordinates of inputs in frames in which the teachers have coordinates `teachers`, over d^1/2."""

    @abc.abstractmethod
    def unseen(self, triangle: Float[Array, "blocks B B"], component: Int[Array, " B"]) -> Float[Array, "blocks B B"]:
        """A root of the Gram matrix of inputs outside of those frames."""

    def vectors(
        self, normals: Float[Array, "B d"], component: Int[Array, " B"], teachers: Float[Array, "k d"]
    ) -> Float[Array, "B d"]:
        """The inputs themselves."""
        return self.seen(normals[None], component, teachers[None] / normals.shape[-1] ** 0.5)[0]

    def label(self, component: Int[Array, "*samples"] | int) -> Any:
        """What the loss sees of a sample's component."""
        return None


class StandardInputs(Inputs):
    """Inputs whose coordinates are independent standard normal numbers."""

    def __init__(self) -> None:
        pass

    @property
    def eigenvalues(self) -> Float[Array, " blocks"]:
        return jnp.ones(1)

    @property
    def fractions(self) -> Float[Array, " blocks"]:
        return jnp.ones(1)

    @property
    def blocks(self) -> int:
        return 1

    @property
    def is_standard(self) -> bool:
        return True

    def seen(self, normals, component, teachers):
        return normals

    def unseen(self, triangle, component):
        return triangle


class Spectrum(Inputs):
    r"""Gaussian inputs whose covariance has any spectrum, $x \sim N(0, \Sigma)$.

    $\Sigma$ has the eigenvalue $\kappa_b$ in a fraction $\pi_b$ of the dimensions, a block. The State has the overlaps
    of the vectors in each block, $G_b = U P_b U^\top / d$, and fields the covariance $\sum_b \kappa_b G_b$. By Stein's
    lemma a block moves with $\mathbb{E}[s f_b] = \kappa_b A\, G_b$ and $\pi_b \kappa_b \mathbb{E}[s s^\top]$, where A
    is the mean derivative of the slopes by the fields: the averages are the same as for isotropic inputs.

    **Arguments:**

    - `eigenvalues`: $\kappa$, positive or zero, shape `(blocks,)`.
    - `fractions`: $\pi$, of the dimensions, shape `(blocks,)`; equal if left out. They sum to one.

    ??? example
        >>> import dimfree
        >>> spectrum = dimfree.Spectrum([4.0, 1.0, 0.25], fractions=[0.1, 0.3, 0.6])
        >>> problem = dimfree.TwoLayer(width=2, activation="erf").with_inputs(spectrum)
    """

    eigenvalues: Float[Array, " blocks"]
    fractions: Float[Array, " blocks"]

    def __init__(self, eigenvalues: ArrayLike | Array, fractions: ArrayLike | Array | None = None):
        self.eigenvalues = jnp.atleast_1d(jnp.asarray(real_array(eigenvalues, "eigenvalues")))
        blocks = self.eigenvalues.shape[0]
        if not blocks:
            raise InvalidInput(f"eigenvalues = {shown(eigenvalues)} was given; give at least one.")
        given = np.full(blocks, 1 / blocks) if fractions is None else fractions
        self.fractions = jnp.atleast_1d(jnp.asarray(real_array(given, "fractions")))
        if self.eigenvalues.ndim != 1 or self.fractions.shape != self.eigenvalues.shape:
            raise InvalidInput(
                f"eigenvalues has shape {self.eigenvalues.shape} and fractions {self.fractions.shape}; give one "
                "fraction for each eigenvalue."
            )
        if is_concrete(self.eigenvalues):
            values = np.asarray(self.eigenvalues)
            require(
                np.isfinite(values) & (values >= 0),
                f"eigenvalues = {shown(eigenvalues)} was given; those of a covariance are finite, zero or positive.",
            )
        if is_concrete(self.fractions):
            values = np.asarray(self.fractions)
            require(values > 0, f"fractions = {shown(fractions)} was given; each must be positive.")
            require(
                abs(values.sum() - 1) < 1e-9,
                f"fractions = {shown(fractions)} was given; they must sum to 1, not {values.sum():g}.",
            )

    @classmethod
    def power_law(cls, exponent: float, dimensions: int, blocks: int = 64) -> "Spectrum":
        r"""The eigenvalues $j^{-\text{exponent}}$, $j = 1, \dots, \text{dimensions}$, in blocks of neighbours.

        **Arguments:**

        - `exponent`: positive.
        - `dimensions`: how many eigenvalues there are.
        - `blocks`: the largest number of different eigenvalues (see `merged`).

        **Returns:** a [`Spectrum`], the largest eigenvalues first.
        """
        check_not_traced("Spectrum.power_law", exponent=exponent)
        positive_number(exponent, "exponent")
        number = positive_integer(dimensions, "dimensions")
        check_memory(8 * 3 * number, f"{number:,} eigenvalues", "Take fewer dimensions.")
        return cls(np.arange(1.0, number + 1) ** -float(exponent)).merged(blocks)

    @classmethod
    def marchenko_pastur(cls, ratio: float, blocks: int = 64) -> "Spectrum":
        r"""The law of Marchenko and Pastur: eigenvalues of $Z^\top Z / n$ for n rows of ratio x n standard normals.

        **Arguments:**

        - `ratio`: of dimensions to samples; above one, a fraction 1 - 1/ratio of the eigenvalues is zero.
        - `blocks`: number of blocks of equal fractions, each with its mean eigenvalue, besides the block of the zeros.

        **Returns:** a [`Spectrum`], the zeros first where there are any, then the smallest eigenvalues.
        """
        check_not_traced("Spectrum.marchenko_pastur", ratio=ratio)
        positive_number(ratio, "ratio")
        ratio, number = float(ratio), positive_integer(blocks, "blocks")
        angles = np.linspace(0.0, np.pi, 200_001)
        values = 1 + ratio - 2 * np.sqrt(ratio) * np.cos(angles)
        # The density times dx, where x is read off the angle; its ends are no singularities then.
        weights = 2 * np.sin(angles) ** 2 / (np.pi * np.where(values > 0, values, np.inf))
        cumulated = np.concatenate([[0.0], np.cumsum((weights[1:] + weights[:-1]) / 2)])
        first = np.concatenate([[0.0], np.cumsum((weights[1:] * values[1:] + weights[:-1] * values[:-1]) / 2)])
        edges = np.interp(np.linspace(0, 1, number + 1) * cumulated[-1], cumulated, np.arange(len(angles)))
        means = np.diff(np.interp(edges, np.arange(len(angles)), first)) * number / cumulated[-1]
        if ratio <= 1:
            return cls(means)
        return cls([0.0, *means], [1 - 1 / ratio, *np.full(number, 1 / (ratio * number))])

    @classmethod
    def from_data(cls, X: Any, blocks: int = 64, *, progress: bool = False) -> "Spectrum":
        """The eigenvalues of the covariance of rows of data, without scaling.

        The rows are centred by their mean. In up to 4,096 dimensions all eigenvalues are found and then `merged`:
        fractions and trace are kept, and the largest eigenvalues. In more dimensions, scikit-learn's IncrementalPCA
        (the extra `data`) finds the `blocks - 1` largest, and the last block has exactly the rest of the trace. So
        fractions and trace are kept again, but the trace of the square is too small. The smallest eigenvalues found are
        somewhat too small as well: the first six of eigenvalues 1/j in 10,000 dimensions came out within 1%, the 63rd
        12% too small.

        The rows are read once, in batches: memory does not grow with their number. It takes four d x d matrices, or, in
        more than 4,096 dimensions, about 12 x blocks rows.

        **Arguments:**

        - `X`: rows are samples: an array of shape `(n, d)` in memory or in a file (NumPy's memory map, h5py, Zarr), or
          an iterable of batches of rows, such as a generator.
        - `blocks`: the largest number of different eigenvalues.
        - `progress`: whether to say what it will cost and show how far it is.

        **Returns:** a [`Spectrum`].

        ??? example
            >>> import dimfree, numpy as np
            >>> rows = np.random.default_rng(0).normal(size=(20_000, 3)) * [3.0, 1.0, 0.1]
            >>> dimfree.Spectrum.from_data(rows).eigenvalues.round(1).tolist()
            [9.0, 1.0, 0.0]
        """
        blocks = positive_integer(blocks, "blocks")
        found = components_of(X, "X", max(1, blocks - 1), progress=progress)
        return cls(*found.spectrum).merged(blocks)

    def merged(self, blocks: int) -> "Spectrum":
        """The same spectrum with at most `blocks` blocks: neighbours become one, with their mean eigenvalue.

        Fractions and trace are kept, the trace of the square is a little smaller. Large eigenvalues stay alone: blocks
        have equal width in the logarithm of the eigenvalues' rank.
        """
        blocks = positive_integer(blocks, "blocks")
        if self.blocks <= blocks:
            return self
        order = np.argsort(-np.asarray(self.eigenvalues), kind="stable")
        values, fractions = np.asarray(self.eigenvalues)[order], np.asarray(self.fractions)[order]
        # Ranks at which blocks end: whole numbers, all different, even in the logarithm as soon as they can be.
        ends = np.unique(np.round(np.geomspace(1, self.blocks, blocks)).astype(int))
        while len(ends) < blocks:
            gaps = np.diff(ends)
            widest = int(np.argmax(gaps / ends[:-1] * (gaps > 1)))
            ends = np.insert(ends, widest + 1, ends[widest] + gaps[widest] // 2)
        starts = np.concatenate([[0], ends[:-1]])
        weight = np.add.reduceat(fractions, starts)
        return Spectrum(np.add.reduceat(fractions * values, starts) / weight, weight / weight.sum())

    def normalised(self) -> "Spectrum":
        """The same spectrum scaled to mean eigenvalue one, so that an input is as long as an isotropic input."""
        return Spectrum(self.eigenvalues / self.trace, self.fractions)

    def __repr__(self) -> str:
        if self.blocks <= 8 or not is_concrete(self.eigenvalues):
            return as_call(self)
        values = np.asarray(self.eigenvalues)  # known numbers, also where a program is being traced
        low, high = float(values.min()), float(values.max())
        return f"Spectrum({self.blocks} blocks, eigenvalues {low:.3g} to {high:.3g})"

    @property
    def isotropic(self) -> bool:
        """Only if it is known to be one block with the eigenvalue 1."""
        return self.blocks == 1 and is_concrete(self.eigenvalues) and bool(np.all(np.asarray(self.eigenvalues) == 1))

    @property
    def is_standard(self) -> bool:
        return self.isotropic

    def fields(self, state: State) -> State:
        overlaps = {
            pair: jnp.tensordot(self.eigenvalues, blocks, axes=(0, -3))[..., None, :, :]
            for pair, blocks in state.overlaps.items()
        }
        return State.of(overlaps, state.readout)

    def in_blocks(self, moments: Moments, sensitivity: Callable[[], Float[Array, "p r"]], state: State) -> Moments:
        if self.blocks == 1 and not moments.own:
            one, eigenvalue = super().in_blocks(moments, sensitivity, state), self.eigenvalues[0]
            own = {family: eigenvalue * products for family, products in one.own.items()}
            return dataclasses.replace(one, square=eigenvalue * one.square, own=own)
        students, teachers, *own = state.families
        weight, matrix = self.eigenvalues[:, None, None], sensitivity()

        def along(family: str) -> Float[Array, "blocks p n"]:
            return weight * (matrix @ state.blocks_with_seen(family))

        return Moments(
            student=along(students),
            teacher=along(teachers),
            square=self.fractions[:, None, None] * weight * moments.square,
            readout=moments.readout,
            own={family: along(family) for family in own},
        )

    def seen(self, normals, component, teachers):
        return jnp.sqrt(self.eigenvalues)[:, None, None] * normals

    def unseen(self, triangle, component):
        return jnp.sqrt(self.eigenvalues)[:, None, None] * triangle

    def vectors(self, normals, component, teachers):
        return jnp.sqrt(self.eigenvalues)[block_of_coordinate(self, normals.shape[-1])] * normals


def block_of_coordinate(inputs: Inputs, d: int) -> Int[Array, " d"]:
    """The block that each coordinate belongs to: those of a block stand together, in the order of the blocks."""
    return jnp.searchsorted(jnp.cumsum(inputs.sizes(d)), jnp.arange(d), side="right")


class Components(Inputs):
    r"""The law of inputs from several components, which differ in their size and in what the loss sees of them.

    $$ x = \sqrt{\text{variances}_c} \, g, \qquad g \sim N(0, \Sigma), $$

    with probability $\text{probabilities}_c$.

    **Attributes:**

    - `probabilities`, `variances`: shape `(c,)`; `variances` is None where there is no spread at all, which is known
      before any number is (averages are then sums, and may be differentiated as such).
    - `labels`: what the loss sees of the component, shape `(c, ...)`.
    - `spectrum`: of $\Sigma$, which all components share; None where it is the identity.
    """

    probabilities: Float[Array, " c"]
    variances: Float[Array, " c"] | None
    labels: Float[Array, "c *label"]
    spectrum: Spectrum | None

    def __init__(
        self,
        probabilities: Float[Array, " c"],
        variances: Float[Array, " c"] | None,
        labels: Float[Array, "c *label"],
        spectrum: Spectrum | None = None,
    ):
        self.probabilities, self.variances, self.labels = probabilities, variances, labels
        self.spectrum = spectrum

    @property
    def shape(self) -> Inputs:
        """The law of g."""
        return StandardInputs() if self.spectrum is None else self.spectrum

    @property
    def eigenvalues(self) -> Float[Array, " blocks"]:
        return self.shape.eigenvalues

    @property
    def fractions(self) -> Float[Array, " blocks"]:
        return self.shape.fractions

    @property
    def isotropic(self) -> bool:
        return self.shape.isotropic

    def fields(self, state: State) -> State:
        return self.shape.fields(state)

    def in_blocks(self, moments: Moments, sensitivity: Callable[[], Float[Array, "p r"]], state: State) -> Moments:
        return self.shape.in_blocks(moments, sensitivity, state)

    @property
    def components(self) -> int:
        return self.probabilities.shape[0]

    @property
    def are_points(self) -> bool:
        return self.variances is None

    def label(self, component):
        return self.labels[component]

    @property
    def spread(self) -> Float[Array, " c"]:
        """The variances, zero for points."""
        return jnp.zeros(self.components) if self.variances is None else self.variances

    def component(self, normals):
        # Comparisons with the few boundaries, because searching a sorted array does not vectorise.
        boundaries = jax.scipy.special.ndtri(jnp.cumsum(self.probabilities)[:-1])
        return jnp.sum(normals[..., None] > boundaries, axis=-1)

    def average(self, in_component, state: State):
        return self._over(self.probabilities, None, in_component)

    def _over(self, weights: Float[Array, "c *_"], means: Float[Array, "c r"] | None, in_component):
        """The sum over components, with these weights, of what is averaged in one."""
        values = jax.vmap(in_component)(means, self.spread, self.labels)
        return jax.tree.map(lambda value: jnp.tensordot(weights, value, axes=(0, 0)), values)

    def seen(self, normals, component, teachers):
        return self._scaled(self.shape.seen(normals, component, teachers), component)

    def unseen(self, triangle, component):
        return self._scaled(self.shape.unseen(triangle, component), component)

    def vectors(self, normals, component, teachers):
        return self._scaled(self.shape.vectors(normals, component, teachers), component)

    def _scaled(self, drawn, component):
        return jnp.sqrt(self.spread)[component][:, None] * drawn


class Clusters(Components):
    r"""The law of inputs that come from Gaussian clusters with means in the span of the teachers.

    $$ x = \sum_r \text{means}_{cr} \frac{w^*_r}{\sqrt d} + \sqrt{\text{variances}_c} \, g,
       \qquad g \sim N(0, \Sigma). $$

    Given the cluster, the fields have mean $(M, P)^\top \text{means}_c$ and covariance $\text{variances}_c$ times that
    of one cluster of variance one.

    **Attributes:**

    - `means`: shape `(c, k)`; the others as of `Components`.
    """

    means: Float[Array, "c k"]

    def __init__(
        self,
        probabilities: Float[Array, " c"],
        means: Float[Array, "c k"],
        variances: Float[Array, " c"] | None,
        labels: Float[Array, "c *label"],
        spectrum: Spectrum | None = None,
    ):
        super().__init__(probabilities, variances, labels, spectrum)
        self.means = means

    def fields(self, state: State) -> State:
        """As of g, with the overlaps with the directions of the means, which no eigenvalue changes, beside."""
        if self.spectrum is None:
            return state
        beside = {(family, MEANS): state.overlap(family, TEACHERS)[..., None, :, :] for family in (STUDENTS, TEACHERS)}
        fields = self.spectrum.fields(state)
        return State.of(fields.overlaps | beside | {(MEANS, MEANS): beside[TEACHERS, MEANS]}, state.readout)

    def in_blocks(self, moments: Moments, sensitivity: Callable[[], Float[Array, "p r"]], state: State) -> Moments:
        found = super().in_blocks(moments, sensitivity, state)
        if self.spectrum is None:
            return found
        along = {
            family: found.along(family) + moments.own[MEANS] @ state.blocks_of(TEACHERS, family)
            for family in state.families
        }
        return dataclasses.replace(found, student=along.pop(STUDENTS), teacher=along.pop(TEACHERS), own=along)

    def field_means(self, state: State) -> Float[Array, "c r"]:
        """The mean of the fields in each cluster, students first."""
        directions = MEANS if MEANS in state.families else TEACHERS
        return self.means @ state.with_seen(directions).T

    def average(self, in_component, state: State):
        return self._over(self.probabilities, self.field_means(state), in_component)

    def with_means(self, in_component: Callable[..., Float[Array, " p"]], state: State) -> Float[Array, "p k"]:
        """The mean over clusters of the outer product of `in_component(...)` with the means."""
        weights = self.probabilities[:, None] * self.means
        return self._over(weights, self.field_means(state), in_component).T

    def seen(self, normals, component, teachers):
        return super().seen(normals, component, teachers) + self.means[component] @ teachers

    def vectors(self, normals, component, teachers):
        drawn = super().vectors(normals, component, teachers)
        return drawn + self.means[component] @ (teachers / normals.shape[-1] ** 0.5)


def as_probabilities(given: Any, number: int, of: str, name: str = "probabilities") -> Float[Array, " c"]:
    """Probabilities of so many clusters, tasks, ...: equal if left out, or an error that calls them by their name."""
    array = jnp.asarray(real_array(np.full(number, 1 / number) if given is None else given, name))
    if array.shape != (number,):
        raise InvalidInput(f"{name} has shape {array.shape}; give one for each of {number} {of}.")
    if is_concrete(array):
        require(np.asarray(array) >= 0, f"{name} = {given} was given; they may not be negative.")
        require(
            abs(float(array.sum()) - 1) < 1e-9,
            f"{name} = {given} was given; they must sum to 1, not {float(array.sum()):g}.",
        )
    return array
