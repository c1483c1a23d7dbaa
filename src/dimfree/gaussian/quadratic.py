"""Exact Gaussian integrals of quadratic forms: the square activation, and the moments behind its fluctuations."""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from .integrals import ActivationIntegrals


class Square(ActivationIntegrals):
    r"""Exact integrals of $g(x) = x^2$, for which $e_0 = u^\top S u$ with $S = \operatorname{diag}(c)$.

    All follow from Isserlis' theorem in matrix products of the fields' size; $C$ may be singular.

    Source: Arnaboldi et al., "Escaping mediocrity", 2023, Appendix A.2, in matrix form.
    """

    @property
    def polynomial(self) -> tuple[float, ...]:
        return (0.0, 0.0, 1.0)

    def outputs(self, covariance: Float[Array, "fields fields"]) -> Float[Array, "fields fields"]:
        r"""$\mathbb{E}[u_s^2 u_t^2] = C_{ss} C_{tt} + 2 C_{st}^2$."""
        variances = jnp.diag(covariance)
        return variances[:, None] * variances + 2 * covariance**2

    def slopes(self, covariance: Float[Array, "fields fields"], width: int) -> Float[Array, "width width"]:
        r"""$\mathbb{E}[2 u_i \cdot 2 u_j] = 4 C_{ij}$."""
        return 4 * covariance[:width, :width]

    def gradient(
        self, covariance: Float[Array, "fields fields"], weights: Float[Array, " fields"], width: int
    ) -> Float[Array, "width fields"]:
        r"""$\mathbb{E}[2 u_i u_b e_0] = 2 (s_1 C + 2 C S C)_{ib}$ with $s_1 = \operatorname{tr} S C$."""
        rows = covariance[:width]
        return 2 * (weights @ jnp.diag(covariance) * rows + 2 * (rows * weights) @ covariance)

    def gradient_square(
        self, covariance: Float[Array, "fields fields"], weights: Float[Array, " fields"], width: int
    ) -> Float[Array, "width width"]:
        r"""$\mathbb{E}[2 u_i \cdot 2 u_j\, e_0^2] = 4 \big( (s_1^2 + 2 s_2) C + 4 s_1 C S C + 8 C S C S C \big)_{ij}$
        with $s_1 = \operatorname{tr} S C$ and $s_2 = \operatorname{tr} (S C)^2$.
        """
        rows = covariance[:width] * weights
        once = rows @ covariance
        first = weights @ jnp.diag(covariance)
        second = weights @ covariance**2 @ weights
        chain = 4 * first * once[:, :width] + 8 * (once * weights) @ covariance[:, :width]
        return 4 * ((first**2 + 2 * second) * covariance[:width, :width] + chain)


def quartic_moments(
    form: Float[Array, "fields fields"], covariance: Float[Array, "fields fields"], noise: Float[Array, ""] | float
) -> tuple[
    Float[Array, "fields fields fields fields"],
    Float[Array, "fields fields fields fields"],
    Float[Array, "fields fields fields fields"],
]:
    r"""$\mathbb{E}[e^n u_a u_b u_c u_d]$ for $n = 2, 3, 4$, where $e = u^\top S u + \sqrt{\Delta}\, z$.

    From the tilted Gaussian $e^{\theta u^\top S u}$, without noise,
    $$\mathbb{E}[(u^\top S u)^n u_a u_b u_c u_d] = n!\, [\theta^n] Z_\theta \big( \Omega_\theta^{ab} \Omega_\theta^{cd}
    + \Omega_\theta^{ac} \Omega_\theta^{bd} + \Omega_\theta^{ad} \Omega_\theta^{bc} \big), \quad
    \Omega_\theta = \sum_j (2\theta)^j C (S C)^j, \quad
    Z_\theta = \exp \sum_{j \ge 1} \frac{(2\theta)^j}{2j} \operatorname{tr} (S C)^j .$$
    The identity is one between polynomials in $C$: it holds for every covariance, singular ones included.

    **Arguments:**

    - `form`: the symmetric matrix $S$, shape (fields, fields).
    - `covariance`: the covariance $C$ of the fields, shape (fields, fields).
    - `noise`: the variance $\Delta$ of the label noise; $z$ is standard normal and independent of the fields.

    **Returns:** three arrays of shape (fields, fields, fields, fields), for $n = 2, 3, 4$.
    """
    order = 4
    step = form @ covariance
    tilted = [covariance]
    traces = []
    power = step
    for _ in range(order):
        tilted.append(2 * tilted[-1] @ step)
        traces.append(jnp.trace(power))
        power = 2 * power @ step
    # The exponential of a power series: n Z_n = sum_j j a_j Z_{n-j}, with j a_j = 2^(j-1) tr (S C)^j.
    partition = [jnp.ones_like(traces[0])]
    zero = jnp.zeros_like(traces[0])
    for n in range(1, order + 1):
        partition.append(sum((traces[j - 1] * partition[n - j] for j in range(1, n + 1)), zero) / n)

    series = jnp.stack(tilted)
    moments = []
    for n in range(order + 1):
        terms = range(order + 1)
        weight = jnp.stack([jnp.stack([partition[n - j - k] if j + k <= n else zero for k in terms]) for j in terms])
        pairing = jnp.tensordot(jnp.tensordot(weight, series, axes=(0, 0)), series, axes=(0, 0))
        pairings = pairing + pairing.transpose(0, 2, 1, 3) + pairing.transpose(0, 2, 3, 1)
        moments.append(math.factorial(n) * pairings)

    return (
        moments[2] + noise * moments[0],
        moments[3] + 3 * noise * moments[1],
        moments[4] + 6 * noise * moments[2] + 3 * noise**2 * moments[0],
    )
