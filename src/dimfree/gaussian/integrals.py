"""What an activation with exact Gaussian integrals offers."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..batches import map_in_batches


class NetworkAverages(eqx.Module):
    """All the averages of [`ActivationIntegrals`] at one covariance."""

    outputs: Float[Array, "fields fields"]
    slopes: Float[Array, "width width"]
    gradient: Float[Array, "width fields"]
    gradient_square: Float[Array, "width width"]


class Smoothed(eqx.Module):
    r"""Averages over a field $\lambda \sim N(\mu, q)$, with $A(\mu) = \mathbb{E}[g(\lambda)]$.

    - `output`: $A$, and `slope`: $A' = \mathbb{E}[g']$;
    - `curvature`: $q A'' = \mathbb{E}[g' (\lambda - \mu)]$, `slope_curvature`: $q A'''$, `second_curvature`:
      $q^2 A''''$. With these powers of $q$ they exist for activations with kinks, and for $q = 0$;
    - `output_square`: $\mathbb{E}[g^2]$, `slope_square`: $\mathbb{E}[g'^2]$, `slope_square_output`:
      $\mathbb{E}[g'^2 g]$.
    """

    output: Float[Array, "*shape"]
    slope: Float[Array, "*shape"]
    curvature: Float[Array, "*shape"]
    slope_curvature: Float[Array, "*shape"]
    second_curvature: Float[Array, "*shape"]
    output_square: Float[Array, "*shape"]
    slope_square: Float[Array, "*shape"]
    slope_square_output: Float[Array, "*shape"]


class OwnAverages(eqx.Module):
    r"""Averages over a neuron's whole field $\lambda \sim N(0, Q)$, for what it does to itself.

    - `output_square`: $v(Q) = \mathbb{E}[g^2]$, and `growth`: $v'(Q) = \mathbb{E}[(g g')']$;
    - `slope_square_output_square`: $\mathbb{E}[g'^2 g^2]$.
    """

    output_square: Float[Array, " p"]
    growth: Float[Array, " p"]
    slope_square_output_square: Float[Array, " p"]


class ActivationIntegrals(eqx.Module):
    r"""The Gaussian averages of an activation $g$ that the dynamics of a two-layer network needs.

    The fields $u \sim \mathcal{N}(0, C)$ are the `width` student fields followed by the teacher's;
    $e_0 = \sum_t c_t g(u_t)$ is the error without label noise. $C$ may be singular. Every method may be jitted,
    batched and differentiated with respect to the covariance and the weights.

    The arguments of the methods:

    - `covariance`: $C$, shape `(fields, fields)`.
    - `weights`: $c$, those of the fields in $e_0$, shape `(fields,)`.
    - `width`: the number of students.
    """

    @property
    def polynomial(self) -> tuple[float, ...] | None:
        """The coefficients of the activation, from the constant upwards, where it is a polynomial."""
        return None

    @property
    def is_relu(self) -> bool:
        """Whether the activation is the ReLU."""
        return False

    def smoothed(self, mean: Float[Array, "nodes p"], variance: Float[Array, " p"]) -> Smoothed | None:
        """The averages of one field about its mean, where they are closed forms."""
        return None

    def own_averages(self, variance: Float[Array, " p"]) -> OwnAverages | None:
        """The averages of one field by itself, where they are closed forms."""
        return None

    @abc.abstractmethod
    def outputs(self, covariance: Float[Array, "fields fields"]) -> Float[Array, "fields fields"]:
        r"""$\mathbb{E}[g(u_s) g(u_t)]$ for all pairs of fields."""

    @abc.abstractmethod
    def slopes(self, covariance: Float[Array, "fields fields"], width: int) -> Float[Array, "width width"]:
        r"""$\mathbb{E}[g'(u_i) g'(u_j)]$ for all pairs of students."""

    @abc.abstractmethod
    def gradient(
        self, covariance: Float[Array, "fields fields"], weights: Float[Array, " fields"], width: int
    ) -> Float[Array, "width fields"]:
        r"""$\mathbb{E}[g'(u_i)\, u_b\, e_0]$ for every student $i$ and every field $b$."""

    @abc.abstractmethod
    def gradient_square(
        self, covariance: Float[Array, "fields fields"], weights: Float[Array, " fields"], width: int
    ) -> Float[Array, "width width"]:
        r"""$\mathbb{E}[g'(u_i)\, g'(u_j)\, e_0^2]$ for all pairs of students."""

    def averages(
        self, covariance: Float[Array, "fields fields"], weights: Float[Array, " fields"], width: int
    ) -> NetworkAverages:
        """All four."""
        return NetworkAverages(
            outputs=self.outputs(covariance),
            slopes=self.slopes(covariance, width),
            gradient=self.gradient(covariance, weights, width),
            gradient_square=self.gradient_square(covariance, weights, width),
        )


def map_pairs(function: Callable[[Array, Array], Array], width: int, numbers: int) -> Float[Array, "width width"]:
    """The symmetric matrix of `function(i, j)`, evaluated at i <= j only.

    **Arguments:**

    - `function`: maps two indices to a scalar.
    - `width`: how many indices there are.
    - `numbers`: how many numbers one evaluation holds at once; decides how many pairs are evaluated together.
    """
    rows, columns = (jnp.asarray(index) for index in np.triu_indices(width))
    batch = max(1, 2**19 // numbers)
    # Of several batches, recomputing keeps the memory bounded in reverse mode too.
    evaluated = function if len(rows) <= batch else jax.checkpoint(function)
    values = map_in_batches(lambda pair: evaluated(*pair), (rows, columns), batch)
    position = np.zeros((width, width), dtype=np.int32)
    position[np.triu_indices(width)] = np.arange(len(rows))
    return values[np.maximum(position, position.T)]
