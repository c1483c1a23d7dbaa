"""Gaussian integrals of the rectified linear unit: closed forms, and one integral over a line for four fields."""

import functools
import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtr
from jaxtyping import Array, Float, Int

from .integrals import ActivationIntegrals, OwnAverages, Smoothed

DUPLICATE = 1e-15  # 1 - correlation^2 below this is rounding: the two fields are taken as one (or as opposite)


class Relu(ActivationIntegrals):
    r"""Integrals of $g(x) = \max(x, 0)$, whose slope is $g'(x) = 1(x > 0)$.

    `outputs`, `slopes` and `gradient` are closed forms (the arc-cosine kernels). `gradient_square` is closed up to the
    probability that four fields are all positive, an integral over a line. For fields of variance one, against 40-digit
    arithmetic, each average is right to 1e-12 where correlations stay within $\pm 0.999$, to 4e-10 within
    $1 - 10^{-6}$, and to 3e-9 up to and at perfect correlation and for singular covariances.

    First derivatives with respect to the covariance are right wherever they exist, duplicated fields included. Where
    two *students* coincide `slopes` and `gradient_square` have an infinite one; it is replaced by zero.
    A field of variance zero counts as the limit of a small independent one: it is positive half of the time.

    Sources: Cho & Saul, NeurIPS 2009, Section 2; Tallis, J. R. Stat. Soc. B 23, 223 (1961); Plackett, Biometrika 41,
    351 (1954).
    """

    @property
    def is_relu(self) -> bool:
        return True

    def smoothed(self, mean: Float[Array, "nodes p"], variance: Float[Array, " p"]) -> Smoothed:
        return smoothed_sides(1.0, 0.0, mean, variance)

    def own_averages(self, variance: Float[Array, " p"]) -> OwnAverages:
        return own_averages_of_sides(1.0, 0.0, variance)

    def outputs(self, covariance: Float[Array, "fields fields"]) -> Float[Array, "fields fields"]:
        r"""$\mathbb{E}[g(u_s) g(u_t)] = \tfrac{1}{2\pi} \Big( \sqrt{C_{ss} C_{tt} - C_{st}^2}
        + C_{st} \big( \tfrac{\pi}{2} + \arcsin \rho_{st} \big) \Big)$, where $\rho$ is the correlation.
        """
        root, angle = _root_and_angle(covariance, covariance.shape[0])
        return (root + covariance * (np.pi / 2 + angle)) / (2 * np.pi)

    def slopes(self, covariance: Float[Array, "fields fields"], width: int) -> Float[Array, "width width"]:
        r"""$\mathbb{E}[g'(u_i) g'(u_j)] = \tfrac{1}{4} + \tfrac{1}{2\pi} \arcsin \rho_{ij}$."""
        return 1 / 4 + _root_and_angle(covariance, width)[1][:, :width] / (2 * np.pi)

    def gradient(
        self, covariance: Float[Array, "fields fields"], weights: Float[Array, " fields"], width: int
    ) -> Float[Array, "width fields"]:
        r"""$\mathbb{E}[g'(u_i) u_b e_0] = \sum_s c_s \Big( \big( \tfrac{1}{4} + \tfrac{1}{2\pi} \arcsin \rho_{is} \big)
        C_{sb} + \tfrac{1}{2\pi} \sqrt{C_{ii} C_{ss} - C_{is}^2}\, C_{ib} / C_{ii} \Big)$, by Stein's lemma.
        """
        rows = covariance[:width]
        root, angle = _root_and_angle(covariance, width)
        variances = jnp.diag(covariance)[:width]
        positive = variances > 0
        at_zero = jnp.where(positive, root @ weights / jnp.where(positive, variances, 1), 0) / (2 * np.pi)
        return (1 / 4 + angle / (2 * np.pi)) * weights @ covariance + at_zero[:, None] * rows

    def gradient_square(
        self, covariance: Float[Array, "fields fields"], weights: Float[Array, " fields"], width: int
    ) -> Float[Array, "width width"]:
        r"""$\mathbb{E}[g'(u_i) g'(u_j) e_0^2] = \sum_{st} c_s c_t\,
        \mathbb{E}[u_s u_t\, 1(u_i, u_j, u_s, u_t > 0)]$.

        The sum runs over sets of up to four different fields, for each of which all $\mathbb{E}[u_x u_y 1(u > 0)]$ are
        found together (see `truncated_moments`), a batch of sets at a time.
        """
        variances = jnp.diag(covariance)
        deviations = _safe_sqrt(variances)
        products = deviations[:, None] * deviations
        correlations = jnp.where(products > 0, covariance / jnp.where(products > 0, products, 1), 0)
        weighted = weights * deviations
        total = jnp.diag(weights[:width] ** 2 * variances[:width] / 2)

        def contribution(members):
            rows, columns = members[:, :, None], members[:, None, :]
            moments = jax.vmap(truncated_moments)(correlations[rows, columns])
            moments = weighted[rows] * weighted[columns] * moments
            pairs = jnp.einsum("ijst,mst->mij", _covering(members.shape[1]), moments)
            # Teachers land outside the result and are dropped.
            return jnp.zeros_like(total).at[rows, columns].add(pairs, mode="drop")

        for size in range(2, min(len(weights), 4) + 1):
            total = total + _sum_in_batches(contribution, _sets(len(weights), width, size))
        return total


def _safe_sqrt(x: Float[Array, "..."], floor: Float[Array, "..."] | float = 0.0) -> Float[Array, "..."]:
    """The square root above `floor`; zero, with zero slope, below."""
    above = x > floor
    return jnp.where(above, jnp.sqrt(jnp.where(above, x, 1)), 0)


def _root_and_angle(
    covariance: Float[Array, "fields fields"], width: int
) -> tuple[Float[Array, "width fields"], Float[Array, "width fields"]]:
    r"""$\sqrt{C_{ii} C_{ss} - C_{is}^2}$ and $\arcsin \rho_{is}$, of the first `width` fields with all.

    At $\rho = \pm 1$ both slopes are infinite. They are set to zero: in `outputs` and `gradient` they cancel there.
    """
    variances = jnp.diag(covariance)
    rows = covariance[:width]
    products = variances[:width, None] * variances
    root = _safe_sqrt(products - rows**2, DUPLICATE * products)
    same = jnp.eye(width, covariance.shape[0], dtype=bool)
    regular = (root > 0) & ~same
    angle = jnp.arctan2(jnp.where(regular, rows, 1), jnp.where(regular, root, 1))
    # A field of variance zero correlates with nothing but itself.
    edge = jnp.where(same, np.pi / 2, jnp.sign(rows) * np.pi / 2 * (products > 0))
    return jnp.where(same, 0, root), jnp.where(regular, angle, edge)


@jax.custom_jvp
def truncated_moments(correlation: Float[Array, "size size"]) -> Float[Array, "size size"]:
    r"""$\mathbb{E}[u_x u_y\, 1(u > 0)]$ for two, three or four fields of variance one.

    Integrating by parts twice (Tallis 1961), with $P$ the probability that all fields are positive,
    $$\mathbb{E}[u_x u_y 1(u > 0)] = \rho_{xy} P + \sum_a \rho_{xa} V_{ay}, \qquad
    V_{ay} = \mathbb{E}[\delta(u_a)\, u_y 1] = \sum_{b \ne a} (\rho_{yb} - \rho_{ya} \rho_{ab}) H_{ab},$$
    where $H_{ab}$ is the density of $u_a = u_b = 0$ times the probability that the others are then positive.
    The derivative is not that of the formula but an average itself, so that it stays accurate near duplicated fields:
    $$d\, \mathbb{E}[u_x u_y 1] = P\, d\rho_{xy} + \sum_a (d\rho_{xa} V_{ay} + d\rho_{ya} V_{ax})
    + \sum_{a < b} d\rho_{ab}\, \mathbb{E}[\delta(u_a) \delta(u_b)\, u_x u_y 1] ,$$
    whose diagonal elements are left out for four fields, where no average needs them.

    **Arguments:**

    - `correlation`: the correlations of the fields, shape (size, size), size 2, 3 or 4. The diagonal is taken as one.
    """
    probability, rates, _ = _orthant(correlation)
    return correlation * probability + correlation @ rates


@truncated_moments.defjvp
def _truncated_moments_jvp(primals, tangents):
    (correlation,), (change,) = primals, tangents
    probability, rates, at_two_zeros = _orthant(correlation)
    change = jnp.where(np.eye(correlation.shape[0], dtype=bool), 0, change)
    forward = change @ rates
    derivative = change * probability + forward + forward.T + jnp.einsum("ab,abxy->xy", change, at_two_zeros)
    return correlation * probability + correlation @ rates, derivative


def _orthant(
    correlation: Float[Array, "size size"],
) -> tuple[Float[Array, ""], Float[Array, "size size"], Float[Array, "size size size size"]]:
    r"""What `truncated_moments` and its derivative are made of: $P$, $V$ and, for $a < b$ and all other $x, y$,
    $\mathbb{E}[\delta(u_a) \delta(u_b)\, u_x u_y 1]$ (for four fields, $x \ne y$ only).
    """
    size = correlation.shape[0]
    vectors = _embed(correlation)
    angles = jnp.zeros_like(correlation[0, 0])
    density = jnp.zeros_like(correlation)
    at_two_zeros = jnp.zeros(4 * (size,), correlation.dtype)
    for a, b in itertools.combinations(range(size), 2):
        others = [c for c in range(size) if c not in (a, b)]
        rho = correlation[a, b]
        root = _safe_sqrt((1 - rho) * (1 + rho), DUPLICATE)
        distinct = root > 0
        inverse = jnp.where(distinct, 1 / jnp.where(distinct, root, 1), 0) / (2 * np.pi)
        angles = angles + jnp.where(distinct, jnp.arctan2(rho, jnp.where(distinct, root, 1)), jnp.sign(rho) * np.pi / 2)
        positive = 1.0
        if size == 3:
            (c,) = others
            rest = _residual(vectors, a, b, c)
            positive = 1 / 2
            at_two_zeros = at_two_zeros.at[a, b, c, c].set(inverse * (rest @ rest) / 2)
        elif size == 4:
            c, d = others
            angle, spread, shared = _angle(_residual(vectors, a, b, c), _residual(vectors, a, b, d))
            positive = 1 / 4 + angle / (2 * np.pi)
            average = inverse * (spread / (2 * np.pi) + shared * positive)
            at_two_zeros = at_two_zeros.at[a, b, c, d].set(average).at[a, b, d, c].set(average)
        density = density.at[a, b].set(inverse * positive).at[b, a].set(inverse * positive)
    probability = 1 / 2**size + angles / (2 ** (size - 1) * np.pi)
    if size == 4:
        probability = probability + _connected_orthant(correlation) / (4 * np.pi**2)
    conditional = correlation[None, :, :] - correlation[:, :, None] * correlation[:, None, :]
    return probability, jnp.sum(conditional * density[:, None, :], axis=2), at_two_zeros


def _embed(correlation: Float[Array, "size size"]) -> Float[Array, "size size"]:
    """Unit vectors whose inner products are the correlations, linearly independent whatever the rank (Cholesky).

    A residual between almost dependent fields keeps half the digits here, where a difference of covariances keeps none;
    and as the sum over pairs needs residuals that agree with each other, dependent fields get a tiny part of their own.
    """
    size, zero = correlation.shape[0], jnp.zeros_like(correlation[0, 0])
    rows: list[list[Array]] = []
    for k in range(size):
        row: list[Array] = []
        for j in range(k):
            shared = sum((x * y for x, y in zip(row, rows[j], strict=False)), zero)
            row.append((correlation[k, j] - shared) / rows[j][j])
        own = 1 - sum((x * x for x in row), zero)
        row.append(jnp.sqrt(jnp.maximum(own, DUPLICATE)))
        rows.append(row + [zero] * (size - k - 1))
    return jnp.stack([jnp.stack(row) for row in rows])


def _residual(vectors: Float[Array, "size size"], a: int, b: int, c: int) -> Float[Array, " size"]:
    """The part of one vector that is orthogonal to two others."""
    one = vectors[a]
    two = vectors[b] - (vectors[b] @ one) * one
    two = two / jnp.sqrt(two @ two)
    return vectors[c] - (vectors[c] @ one) * one - (vectors[c] @ two) * two


def _angle(
    one: Float[Array, " size"], two: Float[Array, " size"]
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """Between two vectors: the arcsine of their correlation, the area that they span, and their inner product."""
    lengths = jnp.sqrt(one @ one), jnp.sqrt(two @ two)
    unit_one, unit_two = one / lengths[0], two / lengths[1]
    apart, along = (_safe_sqrt(x @ x) for x in (unit_one - unit_two, unit_one + unit_two))
    return np.pi / 2 - 2 * jnp.arctan2(apart, along), lengths[0] * lengths[1] * apart * along / 2, one @ two


@functools.cache
def _line_rule() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nodes (cosine, sine) and weights for the integral of `_connected_orthant`."""
    # Gathers the nodes where almost perfect correlations make the integrand change fast.
    power = 4
    nodes, weights = np.polynomial.legendre.leggauss(40)
    nodes, weights = (nodes + 1) / 2, weights / 2
    angles = np.pi / 2 * nodes**power
    return np.cos(angles), np.sin(angles), weights * np.pi / 2 * power * nodes ** (power - 1)


def _connected_orthant(correlation: Float[Array, "4 4"]) -> Float[Array, ""]:
    r"""The part of the probability that four fields are positive that arcsines of correlations do not give.

    Plackett's identity on the path $\tau \rho$, $0 \le \tau \le 1$:
    $\sum_{a < b} \int_0^1 \frac{\rho_{ab}\, d\tau}{\sqrt{1 - \tau^2 \rho_{ab}^2}} \arcsin r_{cd \mid ab}(\tau)$, where
    $r$ is the correlation of the other two fields given these. The path meets singular matrices at its end only, and
    $\tau = \cos$ of an angle leaves the integrand bounded there.
    """
    cosine, sine, weights = _line_rule()
    total = jnp.zeros_like(cosine)
    for a, b in itertools.combinations(range(4), 2):
        c, d = (other for other in range(4) if other not in (a, b))
        ab, ac, ad, bc, bd, cd = (cosine * correlation[pair] for pair in itertools.combinations((a, b, c, d), 2))
        # 1 - tau^2 rho^2, without cancellation.
        ends = (correlation[a, x] for x in (b, c, d))
        left_b, left_c, left_d = (jnp.maximum(1 - rho**2, 0) + (rho * sine) ** 2 for rho in ends)
        shared_c, shared_d = bc - ab * ac, bd - ab * ad
        variance_c = jnp.maximum(left_c - shared_c**2 / left_b, 0)
        variance_d = jnp.maximum(left_d - shared_d**2 / left_b, 0)
        shared = cd - ac * ad - shared_c * shared_d / left_b
        spread = _safe_sqrt(variance_c * variance_d - shared**2)
        total = total + correlation[a, b] * sine / jnp.sqrt(left_b) * jnp.arctan2(shared, spread)
    return total @ weights


def _sets(fields: int, width: int, size: int) -> Int[np.ndarray, "sets size"]:
    """All sets of `size` fields that can hold two students, or one and its coincidence."""
    sets = np.array(list(itertools.combinations(range(fields), size)), dtype=np.int32)
    # Members are in order, students first.
    return sets[sets[:, 1 if size == 4 else 0] < width]


def _covering(size: int) -> Float[np.ndarray, "size size size size"]:
    """One where i, j, s and t together are all members of the set, zero elsewhere."""
    covers = [float(len(set(place)) == size) for place in itertools.product(range(size), repeat=4)]
    return np.array(covers).reshape(4 * (size,))


def _sum_in_batches(
    function: Callable[[Int[Array, "batch size"]], Float[Array, "width width"]], sets: Int[np.ndarray, "sets size"]
) -> Float[Array, "width width"]:
    """The sum of `function` over batches of sets, so that many sets never are in memory together."""
    batch = 4096
    whole = len(sets) // batch
    total = function(jnp.asarray(sets[whole * batch :]))
    if whole == 0:
        return total
    # Recomputing in reverse mode keeps the memory bounded there too.
    step = jax.checkpoint(lambda carry, members: (carry + function(members), None))
    return jax.lax.scan(step, total, jnp.asarray(sets[: whole * batch].reshape(whole, batch, -1)))[0]


def smoothed_sides(right: float, left: float, mean, variance) -> Smoothed:
    """`ActivationIntegrals.smoothed` of a function with these slopes right and left of zero."""
    root = jnp.sqrt(variance)
    # Beyond 38 standard deviations the density is zero in double precision, also where there is no spread at all.
    at = jnp.clip(mean / jnp.maximum(root, 1e-150), -38.0, 38.0)
    above, below = ndtr(at), ndtr(-at)
    density = jnp.exp(-0.5 * at**2) / np.sqrt(2 * np.pi)
    # The ReLU of the field and of its negative, of which all is a sum.
    positive, negative = mean * above + root * density, -mean * below + root * density
    second = mean**2 + variance
    kink = right - left
    return Smoothed(
        output=right * positive - left * negative,
        slope=right * above + left * below,
        curvature=kink * root * density,
        slope_curvature=-kink * at * density,
        second_curvature=kink * root * (at**2 - 1) * density,
        output_square=right**2 * (second * above + mean * root * density)
        + left**2 * (second * below - mean * root * density),
        slope_square=right**2 * above + left**2 * below,
        slope_square_output=right**3 * positive - left**3 * negative,
    )


def own_averages_of_sides(right: float, left: float, variance) -> OwnAverages:
    """`ActivationIntegrals.own_averages` of a function with these slopes right and left of zero."""
    squares, fourths = (right**n + left**n for n in (2, 4))
    return OwnAverages(squares * variance / 2, jnp.full_like(variance, squares / 2), fourths * variance / 2)
