"""Averages of a smooth loss of one or two rectified linear units whose fields are normal: integrals over a line."""

import functools
import itertools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .relu import DUPLICATE

_REACH = 9.0  # standard deviations beyond which a normal density is rounding
_STEPS = np.arange(-_REACH, _REACH + 1, 3)  # panels that resolve a normal density or its integral, in its own scale
_OUTPUTS = np.concatenate([-(2.5 ** np.arange(5)), [0], 2.5 ** np.arange(5)])  # the same for a loss, off the label
_NODES = 12
_TINY = 1e-150  # stands in for a scale of zero: what is divided by it lands beyond reach


class ReluAverages(eqx.Module):
    r"""Averages over the fields $h$ of p neurons, whose output is $o = \sum_i w_i \max(h_i, 0)$.

    **Attributes:**

    - `loss`: $\mathbb{E}[\ell(o)]$.
    - `slope`: $\mathbb{E}[1_i \, \ell'(o)]$ with $1_i = 1(h_i > 0)$, shape `(p,)`.
    - `response`: $\mathbb{E}[\partial_k (1_i \, \ell'(o))]$, shape `(p, p)`.
    - `square`: $\mathbb{E}[1_i 1_j \, \ell'(o)^2]$, shape `(p, p)`.
    """

    loss: Float[Array, ""]
    slope: Float[Array, " p"]
    response: Float[Array, "p p"]
    square: Float[Array, "p p"]

    def with_fields(self, mean: Float[Array, " r"], covariance: Float[Array, "p r"]) -> Float[Array, "p r"]:
        r"""$\mathbb{E}[1_i \, \ell'(o) \, u_b]$ for any fields $u$ that are jointly normal with $h$, by Stein's lemma.

        Nothing is inverted, so that it holds for singular covariances of $h$ too.

        **Arguments:**

        - `mean`: of $u$, shape `(r,)`.
        - `covariance`: of $h$ with $u$, shape `(p, r)`.
        """
        return jnp.outer(self.slope, mean) + self.response @ covariance


def relu_averages(
    loss: Callable[[Float[Array, ""], Float[Array, ""]], Float[Array, ""]],
    label: Float[Array, ""],
    weights: Float[Array, " p"],
    mean: Float[Array, " p"],
    covariance: Float[Array, "p p"],
) -> ReluAverages:
    r"""What a step of SGD needs of the fields $h \sim N(\text{mean}, \text{covariance})$ of one or two ReLU neurons.

    Where the signs of the fields are given, the output is linear in them: along it one integrates numerically, across
    it the normal law integrates to error functions. Right to 1e-12 for any weights, means and covariances, singular
    ones included, for losses that change on the scale of one, or of the distance between output and label where that
    is larger: the cross-entropy, the square, the logarithm of cosh.

    Derivatives are averages themselves (see `orthant_average`). First ones are right wherever they exist, singular
    covariances included; higher ones where the covariance is regular. Where two fields coincide, `square` has an
    infinite one; that part of it is replaced by zero. A field that is zero always counts as positive half of the time.

    **Arguments:**

    - `loss`: smooth JAX function of the output and the label; closing over traced values is an error.
    - `label`: a number.
    - `weights`: $w$, shape `(p,)`, p at most 2.
    - `mean`, `covariance`: of the fields.
    """
    p = weights.shape[0]
    place = weights, mean, covariance
    # Where no field is positive the output is zero: there the change of the loss from its value at zero vanishes.
    values, active = _active_orthants(functools.partial(_loss_and_slopes, loss), label, *place)
    losses, slopes, curvatures, squares = values.T
    both = np.einsum("oi,oj->oij", active, active)
    slope = functools.partial(_slope, loss)
    at_zero = []
    for a in range(p):
        density, others, _ = _face(*place, a)
        changes, _ = _active_orthants(functools.partial(_change, slope), label, *others)
        at_zero.append(density * (slope(jnp.zeros(()), label) + changes.sum()))
    return ReluAverages(
        loss=loss(jnp.zeros(()), label) + losses.sum(),
        slope=slopes @ active,
        response=jnp.tensordot(curvatures, both, 1) * weights + jnp.diag(jnp.stack(at_zero)),
        square=jnp.tensordot(squares, both, 1),
    )


def relu_exceeds(
    threshold: Float[Array, ""], weights: Float[Array, " p"], mean: Float[Array, " p"], covariance: Float[Array, "p p"]
) -> Float[Array, ""]:
    """The probability that the output of one or two ReLU neurons is above a threshold, right to 1e-12.

    Derivatives are right where the covariance is regular.

    **Arguments:**

    - `threshold`: a finite number.
    - `weights`, `mean`, `covariance`: as for `relu_averages`.
    """
    # The integrand jumps at the threshold alone, where panels end: they move with all that it depends on, and so its
    # derivative is that of the sum.
    changes, _ = _active_orthants(functools.partial(_change, _exceeds), threshold, weights, mean, covariance, _integral)
    return _exceeds(jnp.zeros(()), threshold) + changes.sum()


def _active_orthants(
    function, label, weights, mean, covariance, average_in_orthant=None
) -> tuple[Float[Array, "orthants *values"], Float[np.ndarray, "orthants n"]]:
    """The average of a function of the output over each choice of which fields are positive, and the choices.

    The choice of none is left out.
    """
    active = np.array([choice for choice in itertools.product([1.0, 0.0], repeat=weights.shape[0]) if any(choice)])
    if len(active) == 0:
        return jnp.zeros(0), np.zeros((0, 0))

    def average(choice, sign):
        turned = sign * mean, jnp.outer(sign, sign) * covariance
        return (average_in_orthant or orthant_average)(function, label, choice * weights, *turned)

    return jax.vmap(average)(jnp.asarray(active), jnp.asarray(2 * active - 1)), active


def orthant_average(
    function: Callable[[Float[Array, ""], Float[Array, ""]], Float[Array, "*values"]],
    label: Float[Array, ""],
    weights: Float[Array, " n"],
    mean: Float[Array, " n"],
    covariance: Float[Array, "n n"],
) -> Float[Array, "*values"]:
    r"""$G(f) = \mathbb{E}[f(w \cdot h) \prod_a 1(h_a > 0)]$ for n = 0, 1 or 2 fields $h \sim N(m, C)$.

    Its derivatives follow from $d\,\mathbb{E}[\Phi] = \sum_a dm_a\, \mathbb{E}[\partial_a \Phi]
    + \tfrac12 \sum_{ab} dC_{ab}\, \mathbb{E}[\partial_a \partial_b \Phi]$, which holds for singular C too.
    With $\rho_a$ the density of $h_a$ at 0 and $G_a$ the average over the other fields given $h_a = 0$,
    $$ \mathbb{E}[\partial_a \Phi] = g_a(f) = \rho_a G_a(f) + w_a G(f'), \qquad
       \mathbb{E}[\partial_a \partial_b \Phi] = w_a g_b(f') + \rho_a X_{ab}, $$
    $$ X_{ab} = g_{a, b}(f) \;(b \ne a), \qquad
       X_{aa} = -\frac{m_a}{C_{aa}} G_a(f) - \sum_{b \ne a} \frac{C_{ab}}{C_{aa}} g_{a, b}(f), $$
    where $g_{a,b}$ is to $G_a$ what $g_b$ is to $G$; and
    $\partial G / \partial w_a = m_a G(f') + \sum_b C_{ab}\, g_b(f')$ by Stein's lemma.

    **Arguments:**

    - `function`: smooth, of the output and the label; closing over traced values is an error.
    - `label`: a number.
    - `weights`, `mean`, `covariance`: $w$, $m$, $C$.
    """
    if weights.shape[0] == 0:
        return function(jnp.zeros(()), label)
    return _average(weights, mean, covariance, label, function=function)


@eqx.filter_custom_jvp
def _average(weights, mean, covariance, label, *, function):
    return _integral(function, label, weights, mean, covariance)


def _integral(function, label, weights, mean, covariance):
    """One integral along the output, in units of its standard deviation; panels end at the label."""
    along, across = _along_and_across(weights, covariance)
    center, spread = weights @ mean, weights @ along
    marks = jnp.concatenate([jnp.zeros(1), label + _OUTPUTS])  # the fields change sign together at zero
    edges = [jnp.asarray(_STEPS), (marks - center) / jnp.where(jnp.abs(spread) > _TINY, spread, _TINY)]
    for a in range(len(weights)):
        # The probability that this field is positive rises from zero to one here.
        rate = jnp.where(jnp.abs(along[a]) > _TINY, along[a], _TINY)
        width = jnp.minimum(jnp.abs(across[a] / rate), 1 / _TINY)
        edges.append(-mean[a] / rate + width * (_STEPS if len(weights) > 1 else np.zeros(1)))
    nodes, rule = _panels(jnp.concatenate(edges))
    probability = _all_positive(mean[:, None] + along[:, None] * nodes, across)
    outputs = jnp.where(probability > 0, center + spread * nodes, 0.0)
    return jnp.tensordot(rule * probability, jax.vmap(function, in_axes=(0, None))(outputs, label), 1)


@_average.def_jvp
def _average_jvp(primals, tangents, *, function):
    weights, mean, covariance, label = primals
    d_weights, d_mean, d_covariance, d_label = tangents
    place = (label, weights, mean, covariance)
    (value, slope), gradients = _value_and_gradient(functools.partial(_and_slope, function), *place)
    gradient, gradient_of_slope = gradients[:, 0], gradients[:, 1]
    total = jnp.zeros_like(value)
    if d_mean is not None:
        total = total + jnp.tensordot(d_mean, gradient, 1)
    if d_covariance is not None:
        total = total + 0.5 * jnp.tensordot(d_covariance, _second(function, *place, gradient_of_slope), 2)
    if d_weights is not None:
        moved = jnp.tensordot(mean, slope, 0) + jnp.tensordot(covariance, gradient_of_slope, 1)
        total = total + jnp.tensordot(d_weights, moved, 1)
    if d_label is not None:
        total = total + d_label * orthant_average(functools.partial(_label_slope, function), *place)
    return value, total


def _value_and_gradient(function, label, weights, mean, covariance):
    r"""$G(f)$ and $\mathbb{E}[\partial_a \Phi] = \rho_a G_a(f) + w_a G(f')$."""
    value, slope = orthant_average(functools.partial(_and_slope, function), label, weights, mean, covariance)
    gradient = []
    for a in range(len(weights)):
        density, rest, _ = _face(weights, mean, covariance, a)
        gradient.append(density * orthant_average(function, label, *rest) + weights[a] * slope)
    return value, jnp.stack(gradient) if gradient else jnp.zeros((0, *value.shape))


def _second(function, label, weights, mean, covariance, gradient_of_slope):
    r"""$\mathbb{E}[\partial_a \partial_b \Phi] = w_a g_b(f') + \rho_a X_{ab}$."""
    rows = []
    for a in range(len(weights)):
        density, rest, regression = _face(weights, mean, covariance, a)
        value, others = _value_and_gradient(function, label, *rest)
        own = -mean[a] / _safe(covariance[a, a])[0] * value - jnp.tensordot(regression, others, 1)
        row = jnp.concatenate([others[:a], own[None], others[a:]])
        rows.append(weights[a] * gradient_of_slope + density * row)
    return jnp.stack(rows)


def _face(weights, mean, covariance, a: int):
    """The density of one field at zero; weights, mean and covariance of the other given that; its regression on this.

    A field of variance zero has no density.
    """
    others = np.array([b for b in range(len(weights)) if b != a], dtype=int)
    variance, has_density = _safe(covariance[a, a])
    density = jnp.exp(-0.5 * mean[a] ** 2 / variance) / jnp.sqrt(2 * np.pi * variance)
    regression = jnp.where(has_density, covariance[others, a] / variance, 0.0)
    spread = _remainder(covariance[others, others], regression, covariance[others, a])
    rest = weights[others], mean[others] - regression * mean[a], jnp.diag(spread)
    return jnp.where(has_density, density, 0.0), rest, regression


def _safe(variance):
    """A variance that one can divide by, and whether it is the true one."""
    positive = variance > 0
    return jnp.where(positive, variance, 1.0), positive


def _remainder(variance, regression, shared):
    """The variance of a field that another leaves unexplained; zero, but with its own slope, at rounding level.

    In this order the remainder of a field that equals the other, or its opposite, is zero exactly.
    """
    left = variance - regression * shared
    return left - jax.lax.stop_gradient(jnp.where(left > DUPLICATE * variance, 0.0, left))


def _along_and_across(weights, covariance):
    r"""Vectors with $h = m + \text{along} \, \zeta + \text{across} \, \eta$ for standard normal $\zeta$ and $\eta$.

    The output does not depend on $\eta$.
    """
    variance, positive = _safe(covariance[0, 0])
    first = jnp.where(positive, jnp.sqrt(variance), 0.0)
    if len(weights) == 1:
        return first[None], jnp.zeros(1)
    regression = jnp.where(positive, covariance[0, 1] / variance, 0.0)
    factor = jnp.stack(
        [
            jnp.stack([first, jnp.zeros(())]),
            jnp.stack([regression * first, jnp.sqrt(_remainder(covariance[1, 1], regression, covariance[0, 1]))]),
        ]
    )
    x, y = weights @ factor
    length = jnp.hypot(x, y)
    x, y = jnp.where(length > 0, x / length, 1.0), jnp.where(length > 0, y / length, 0.0)
    return factor @ jnp.stack([x, y]), factor @ jnp.stack([-y, x])


def _panels(edges: Float[Array, " edges"]) -> tuple[Float[Array, " nodes"], Float[Array, " nodes"]]:
    """Gauss-Legendre nodes between all edges within reach, and their weights times the standard normal density."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    edges = jnp.sort(jnp.clip(edges, -_REACH, _REACH))
    width = jnp.diff(edges)[:, None]
    nodes = edges[:-1, None] + width * (nodes + 1) / 2
    weights = width * weights / 2 * jnp.exp(-0.5 * nodes**2) / np.sqrt(2 * np.pi)
    return nodes.reshape(-1), weights.reshape(-1)


def _all_positive(center: Float[Array, "n nodes"], across: Float[Array, " n"]) -> Float[Array, " nodes"]:
    r"""The probability that all center + across $\eta$ are positive, for standard normal $\eta$."""
    has_spread = (jnp.abs(across) > _TINY)[:, None]
    across = jnp.where(has_spread, across[:, None], _TINY)
    # Without spread it is a step, where a panel ends: the edge carries the derivative, 1 / _TINY does not.
    bound = -jnp.where(has_spread, center, jax.lax.stop_gradient(center)) / across
    # Row by row: the derivative of a maximum over an axis looks for entries that equal it, and may find none where a
    # compiler rounds them otherwise the second time.
    lower = functools.reduce(jnp.maximum, jnp.where(across > 0, bound, -jnp.inf))
    upper = functools.reduce(jnp.minimum, jnp.where(across < 0, bound, jnp.inf))
    erf = jax.scipy.special.erf
    return jnp.maximum(erf(upper / np.sqrt(2)) - erf(lower / np.sqrt(2)), 0.0) / 2


# Functions of an output and a label. At module level, so that they are equal when their arguments are.


def _slope(function, output, label):
    return jax.jvp(lambda x: function(x, label), (output,), (jnp.ones_like(output),))[1]


def _and_slope(function, output, label):
    return jnp.stack(jax.jvp(lambda x: function(x, label), (output,), (jnp.ones_like(output),)))


def _loss_and_slopes(loss, output, label):
    slope, curvature = _and_slope(functools.partial(_slope, loss), output, label)
    return jnp.stack([_change(loss, output, label), slope, curvature, slope**2])


def _change(function, output, label):
    return function(output, label) - function(jnp.zeros_like(output), label)


def _exceeds(output, threshold):
    return jnp.where(output > threshold, 1.0, 0.0)


def _label_slope(function, output, label):
    return jax.jvp(lambda y: function(output, y), (label,), (jnp.ones_like(label),))[1]
