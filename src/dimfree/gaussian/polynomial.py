"""Exact Gaussian integrals of polynomial activations."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .integrals import ActivationIntegrals, map_pairs


class Polynomial(ActivationIntegrals):
    r"""Exact integrals of $g(x) = \sum_n \text{coefficients}_n\, x^n$, by Wick's theorem.

    Each field is expanded in the Hermite polynomials of its own variance; only different fields are then contracted:
    $$\mathbb{E}\Big[\prod_a f_a(u_a)\Big] = \sum_{m} \prod_{a < b} \frac{C_{ab}^{m_{ab}}}{m_{ab}!}
    \prod_a \mathbb{E}\big[ f_a^{(\sum_b m_{ab})}(u_a) \big] ,$$
    a sum over all multigraphs $m$. It holds for every covariance, singular or with coincident fields: nothing is
    divided by a variance. The number of terms grows with the degree; up to six is practical.

    **Arguments:**

    - `coefficients`: the coefficients, from the constant upwards; the third Hermite polynomial is `[0, -3, 0, 1]`.

    Source: the diagram formula for Hermite polynomials, Janson, "Gaussian Hilbert Spaces" (1997), Theorem 3.12.
    """

    coefficients: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, coefficients: Sequence[float]):
        trimmed = [float(coefficient) for coefficient in coefficients]
        while len(trimmed) > 1 and trimmed[-1] == 0:
            trimmed.pop()
        self.coefficients = tuple(trimmed)

    @property
    def polynomial(self) -> tuple[float, ...]:
        return self.coefficients

    @property
    def degree(self) -> int:
        """The degree of the polynomial."""
        return len(self.coefficients) - 1

    def outputs(self, covariance: Float[Array, "fields fields"]) -> Float[Array, "fields fields"]:
        r"""$\mathbb{E}[g(u_s) g(u_t)] = \sum_m C_{st}^m\, \mathbb{E}[g^{(m)}(u_s)]\, \mathbb{E}[g^{(m)}(u_t)] / m!$."""
        means = self._mean_derivatives(jnp.diag(covariance))
        return _pair_average(covariance, means, means)

    def slopes(self, covariance: Float[Array, "fields fields"], width: int) -> Float[Array, "width width"]:
        r"""$\mathbb{E}[g'(u_i) g'(u_j)]$: the average of `outputs` for $g'$ in place of $g$."""
        students = covariance[:width, :width]
        means = self._mean_derivatives(jnp.diag(students))[1:]
        return _pair_average(students, means, means)

    def gradient(
        self, covariance: Float[Array, "fields fields"], weights: Float[Array, " fields"], width: int
    ) -> Float[Array, "width fields"]:
        r"""$\mathbb{E}[g'(u_i) u_b e_0] = C_{ib} \sum_s c_s \mathbb{E}[g''(u_i) g(u_s)]
        + \sum_s c_s \mathbb{E}[g'(u_i) g'(u_s)]\, C_{sb}$, by Stein's lemma.
        """
        rows = covariance[:width]
        means = self._mean_derivatives(jnp.diag(covariance))
        curvatures = _pair_average(rows, means[2:, :width], means) @ weights
        slopes = _pair_average(rows, means[1:, :width], means[1:])
        return curvatures[:, None] * rows + (slopes * weights) @ covariance

    def gradient_square(
        self, covariance: Float[Array, "fields fields"], weights: Float[Array, " fields"], width: int
    ) -> Float[Array, "width width"]:
        r"""$\mathbb{E}[g'(u_i) g'(u_j) e_0^2] = \sum_{st} c_s c_t\, \mathbb{E}[g'(u_i) g'(u_j) g(u_s) g(u_t)]$.

        The multigraphs on four fields are summed as bilinear forms: with $a, b$ edges from $s$ to $i$ and $j$, and $e$
        edges from $s$ to $t$, the vectors $c_s\, C_{is}^a C_{js}^b\, \mathbb{E}[g^{(a + b + e)}(u_s)] / (a!\, b!)$
        enter on either side of $C_{st}^e / e!$. One pair $i, j$ holds at most `degree`$^2 / 2 \times$ `fields` numbers.
        """
        degree = self.degree
        if degree == 0:
            return jnp.zeros((width, width), covariance.dtype)
        means = self._mean_derivatives(jnp.diag(covariance))
        # All (a, b) that leave the slopes at i and j, of degree one less, a derivative that does not vanish.
        edges = [(a, b) for a in range(degree) for b in range(degree) if a + b <= degree]
        to_one, to_two = np.array(edges).T
        count = len(edges)
        joins = [covariance**e / math.factorial(e) for e in range(degree + 1)]

        def powers(row):
            return jnp.stack([row**n / math.factorial(n) for n in range(degree)])

        def pair(i, j):
            legs = weights * powers(covariance[i])[to_one] * powers(covariance[j])[to_two]
            forms = jnp.zeros((count, count), covariance.dtype)
            for e in range(degree + 1):
                kept = [index for index, (a, b) in enumerate(edges) if a + b + e <= degree]
                sides = legs[np.array(kept)] * means[(to_one + to_two)[kept] + e]
                forms = forms.at[np.ix_(kept, kept)].add(sides @ joins[e] @ sides.T)
            # Edges between i and j, and the derivatives that all edges leave at the two slopes.
            between = powers(covariance[i, j])
            orders = to_one[:, None] + to_one
            slopes = jnp.zeros((count, count), covariance.dtype)
            for m in range(degree):
                one = means[np.minimum(orders + m + 1, degree + 1), i]
                two = means[np.minimum(to_two[:, None] + to_two + m + 1, degree + 1), j]
                slopes = slopes + between[m] * one * two
            return jnp.sum(forms * slopes)

        return map_pairs(pair, width, numbers=count * (covariance.shape[0] + 3 * count))

    def _mean_derivatives(self, variances: Float[Array, " fields"]) -> Float[Array, "orders fields"]:
        r"""$\mathbb{E}[g^{(m)}(u)] = \sum_k \text{coefficients}_{m + 2k} \frac{(m + 2k)!}{k!\, 2^k} q^k$, with two
        rows of zeros beyond the degree.
        """
        rows = []
        for m in range(self.degree + 3):
            mean = jnp.zeros_like(variances)
            for k in range((self.degree - m) // 2 + 1):
                factor = self.coefficients[m + 2 * k] * math.factorial(m + 2 * k) / (math.factorial(k) * 2**k)
                mean = mean + factor * variances**k
            rows.append(mean)
        return jnp.stack(rows)


def _pair_average(
    covariance: Float[Array, "rows columns"], one: Float[Array, "_ rows"], two: Float[Array, "_ columns"]
) -> Float[Array, "rows columns"]:
    r"""$\mathbb{E}[f(u_s) h(u_t)]$ from the average derivatives of $f$ and $h$."""
    return sum(
        (
            covariance**m / math.factorial(m) * left[:, None] * right
            for m, (left, right) in enumerate(zip(one, two, strict=False))
        ),
        jnp.zeros_like(covariance),
    )
