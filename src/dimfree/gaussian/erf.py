"""Exact Gaussian integrals of the error function."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .arcsine import arcsine
from .integrals import ActivationIntegrals, map_pairs


class Erf(ActivationIntegrals):
    r"""Exact integrals of $g(x) = \operatorname{erf}(x/\sqrt{2})$, whose slope is $g'(x) = \sqrt{2/\pi}\, e^{-x^2/2}$.

    A factor $g'(u_i)$ is a Gaussian weight: under it the fields stay Gaussian, with covariance
    $C - C_{\cdot i} C_{i\cdot} / (1 + C_{ii})$. So all four averages follow from
    $\mathbb{E}[g(u_s) g(u_t)] = \tfrac{2}{\pi} \arcsin \big( C_{st} / \sqrt{(1 + C_{ss})(1 + C_{tt})} \big)$,
    and no case, singular or coincident, needs care: every variance enters with one added.

    Sources: Saad & Solla, Phys. Rev. E 52, 4225 (1995), Appendix A; Arnaboldi et al., COLT 2023, Appendix C.
    """

    def outputs(self, covariance: Float[Array, "fields fields"]) -> Float[Array, "fields fields"]:
        r"""$\mathbb{E}[g(u_s) g(u_t)] = \tfrac{2}{\pi} \arcsin \frac{C_{st}}{\sqrt{(1 + C_{ss})(1 + C_{tt})}}$."""
        scale = 1 / jnp.sqrt(1 + jnp.diag(covariance))
        return 2 / np.pi * arcsine(covariance * scale[:, None] * scale)

    def slopes(self, covariance: Float[Array, "fields fields"], width: int) -> Float[Array, "width width"]:
        r"""$\mathbb{E}[g'(u_i) g'(u_j)] = \tfrac{2}{\pi} \big( (1 + C_{ii})(1 + C_{jj}) - C_{ij}^2 \big)^{-1/2}$."""
        students = covariance[:width, :width]
        widened = 1 + jnp.diag(students)
        return 2 / np.pi / jnp.sqrt(widened[:, None] * widened - students**2)

    def gradient(
        self, covariance: Float[Array, "fields fields"], weights: Float[Array, " fields"], width: int
    ) -> Float[Array, "width fields"]:
        r"""$\mathbb{E}[g'(u_i) u_b e_0] = \tfrac{2}{\pi} \sum_s c_s
        \frac{C_{bs} (1 + C_{ii}) - C_{ib} C_{is}}{(1 + C_{ii}) \sqrt{(1 + C_{ii})(1 + C_{ss}) - C_{is}^2}}$.
        """
        variances = jnp.diag(covariance)
        rows = covariance[:width]
        widened = 1 + variances[:width, None]
        weighted = 2 / np.pi * weights / jnp.sqrt(widened * (1 + variances) - rows**2)
        along = jnp.sum(weighted * rows, axis=1, keepdims=True) / widened
        return weighted @ covariance - along * rows

    def gradient_square(
        self, covariance: Float[Array, "fields fields"], weights: Float[Array, " fields"], width: int
    ) -> Float[Array, "width width"]:
        r"""$\mathbb{E}[g'(u_i) g'(u_j) e_0^2] = \mathbb{E}[g'(u_i) g'(u_j)]\, \sum_{st} c_s c_t \tfrac{2}{\pi} \arcsin
        \frac{C'_{st}}{\sqrt{(1 + C'_{ss})(1 + C'_{tt})}}$ with
        $C' = C - C_{\cdot(ij)} (1 + C_{(ij)(ij)})^{-1} C_{(ij)\cdot}$, the covariance under the weight of both slopes.
        """
        fields = covariance.shape[0]
        # The arcsine is what costs: once per pair of fields, the diagonal apart.
        first, second = np.triu_indices(fields, 1)
        variances = jnp.diag(covariance)
        above = covariance[first, second]
        products = 2 * weights[first] * weights[second]

        def pair(i, j):
            one, two = covariance[i], covariance[j]
            determinant = (1 + one[i]) * (1 + two[j]) - one[j] ** 2
            dual_one = ((1 + two[j]) * one - one[j] * two) / determinant
            dual_two = ((1 + one[i]) * two - one[j] * one) / determinant
            widened = 1 + variances - one * dual_one - two * dual_two
            scale = 1 / jnp.sqrt(widened)
            tilted = above - one[first] * dual_one[second] - two[first] * dual_two[second]
            total = products @ arcsine(tilted * scale[first] * scale[second])
            # On the diagonal the correlation is 1 - 1 / widened.
            total += weights**2 @ arcsine(1 - 1 / widened)
            return (2 / np.pi) ** 2 * total / jnp.sqrt(determinant)

        return map_pairs(pair, width, numbers=len(first))
