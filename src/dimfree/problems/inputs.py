"""The law of the inputs: what the fields are, given the overlaps, and a draw of them at finite d."""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.scipy.stats
from jaxtyping import Array, Float, Int, PyTree

from ..state import State


class Inputs(eqx.Module):
    """The law of an input, whatever is learned of it and however.

    Fields are Gaussian in each component of the law: `average` takes the mean over components of what a problem
    averages in one. A draw of a sample is its component, and the input made of standard normal numbers: of all d of
    them where there are vectors (`vectors`), of its coordinates in the frame that the weights span and the Gram matrix
    of the rest where there are none (`seen`, `unseen`).
    """

    @property
    @abc.abstractmethod
    def components(self) -> int:
        """How many components the law has."""

    @property
    def are_points(self) -> bool:
        """Whether inputs have no spread at all, given their component."""
        return False

    @property
    def is_standard(self) -> bool:
        """Whether inputs are standard normal."""
        return False

    @abc.abstractmethod
    def component(self, normals: Float[Array, "*samples"]) -> Int[Array, "*samples"]:
        """The component that a sample is from, made of a standard normal number."""

    @abc.abstractmethod
    def average(self, in_component: Callable[..., PyTree[Array]], state: State) -> PyTree[Array]:
        """The mean over components of `in_component(mean of the fields, variance, label)`."""

    @abc.abstractmethod
    def seen(
        self, normals: Float[Array, "B n"], component: Int[Array, " B"], teachers: Float[Array, "k n"]
    ) -> Float[Array, "B n"]:
        """The coordinates of inputs in a frame in which the teachers have coordinates `teachers`, over d^1/2."""

    @abc.abstractmethod
    def unseen(self, triangle: Float[Array, "B B"], component: Int[Array, " B"]) -> Float[Array, "B B"]:
        """A root of the Gram matrix of inputs outside of that frame."""

    def vectors(
        self, normals: Float[Array, "B d"], component: Int[Array, " B"], teachers: Float[Array, "k d"]
    ) -> Float[Array, "B d"]:
        """The inputs themselves."""
        return self.seen(normals, component, teachers / normals.shape[-1] ** 0.5)

    def label(self, component: Int[Array, "*samples"] | int) -> Any:
        """What the loss sees of a sample's component."""
        return None


class StandardInputs(Inputs):
    """Inputs whose coordinates are independent standard normal numbers."""

    @property
    def components(self) -> int:
        return 1

    @property
    def is_standard(self) -> bool:
        return True

    def component(self, normals):
        return jnp.zeros(normals.shape, int)

    def average(self, in_component, state: State):
        return in_component(None, jnp.ones(()), None)

    def seen(self, normals, component, teachers):
        return normals

    def unseen(self, triangle, component):
        return triangle


class Clusters(Inputs):
    r"""The law of inputs that come from Gaussian clusters with means in the span of the teachers.

    $$ x = \sum_r \text{means}_{cr} \frac{w^*_r}{\sqrt d} + \sqrt{\text{variances}_c} \, g, \qquad g \sim N(0, I_d), $$

    with probability $\text{probabilities}_c$. Given the cluster, the fields have mean
    $(M, P)^\top \text{means}_c$ and covariance $\text{variances}_c$ times that of standard inputs.

    **Attributes:**

    - `probabilities`, `variances`: shape `(c,)`; `variances` is None where the clusters are points, which is known
      before any number is (averages over them are then sums, and may be differentiated as such).
    - `means`: shape `(c, k)`.
    - `labels`: what the loss sees of the cluster, shape `(c, ...)`.
    """

    probabilities: Float[Array, " c"]
    means: Float[Array, "c k"]
    variances: Float[Array, " c"] | None
    labels: Float[Array, "c *label"]

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

    def field_means(self, state: State) -> Float[Array, "c r"]:
        """The mean of the fields in each cluster, students first."""
        return self.means @ jnp.concatenate([state.M, state.P]).T

    def component(self, normals):
        # Comparisons with the few boundaries, because searching a sorted array does not vectorise.
        boundaries = jax.scipy.stats.norm.ppf(jnp.cumsum(self.probabilities)[:-1])
        return jnp.sum(normals[..., None] > boundaries, axis=-1)

    def average(self, in_component, state: State):
        values = jax.vmap(in_component)(self.field_means(state), self.spread, self.labels)
        return jax.tree.map(lambda value: jnp.tensordot(self.probabilities, value, axes=1), values)

    def seen(self, normals, component, teachers):
        return jnp.sqrt(self.spread)[component][:, None] * normals + self.means[component] @ teachers

    def unseen(self, triangle, component):
        return jnp.sqrt(self.spread)[component][:, None] * triangle
