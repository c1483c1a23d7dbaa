"""Exact Gaussian integrals of polynomial activations: of any degree, and of the square by itself."""

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
