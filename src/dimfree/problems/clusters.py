"""Inputs from Gaussian clusters."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..state import State


class Clusters(eqx.Module):
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
    def number(self) -> int:
        return self.probabilities.shape[0]

    @property
    def are_points(self) -> bool:
        """Whether the clusters have no spread at all."""
        return self.variances is None

    @property
    def spread(self) -> Float[Array, " c"]:
        """The variances, zero for points."""
        return jnp.zeros(self.number) if self.variances is None else self.variances

    def field_means(self, state: State) -> Float[Array, "c r"]:
        """The mean of the fields in each cluster, students first."""
        return self.means @ jnp.concatenate([state.M, state.P]).T
