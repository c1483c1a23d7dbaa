"""Averages of m / sqrt(v) for a gradient's coordinate z with moving averages m of z and v of z^2, without sampling."""

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

_STEP = 1 / 3  # of the logarithm of t; integrands are analytic within pi / 2 of the real line
_STENCIL = 10  # nodes of an interpolation
_BELOW = 12.0  # units below the scale of t, where everything is linear in it or constant
_BEYOND = 40.0  # units further below, where sums are continued so


class Tables(NamedTuple):
    r"""Averages over one sample, for each of p neurons, at the n nodes of `Lags`.

    - `decay`: $\mathbb{E}[e^{-t s^2}] - 1$, shape `(p, n)`.
    - `response`: $\mathbb{E}[s u \, e^{-t s^2}]$ with the fields u, shape `(p, n, r)`.
    - `energy`: $\mathbb{E}[s^2 e^{-t s^2}]$, shape `(p, n)`.
    """

    decay: Float[Array, "p n"]
    response: Float[Array, "p n r"]
    energy: Float[Array, "p n"]


class Lags:
    r"""Sums over the past of a coordinate, as matrices on an even grid of $\log t$.

    With $1/\sqrt v = \pi^{-1/2} \int t^{-1/2} e^{-tv} dt$ averages factorise over lags: with
    $\psi(t) = \mathbb{E}[e^{-t z^2}]$, $\Psi(t) = \prod_j \psi(t \tau_j)$, $\tau_j = (1 - \beta_2) \beta_2^j$ and
    $w_j = (1 - \beta_1) \beta_1^j$. A sum over lags of a function of $\log t$ is a sum over shifts of it, and so is the
    average over the coordinate $x$ of an input in $z = \sum_\mu s_\mu x_\mu$. Each is a Toeplitz matrix; below the grid
    functions continue as 1 or as t.

    **Arguments:**

    - `beta1`, `beta2`: how much of the averages is kept in a step; `batch_size`: samples in a step. Slopes are taken
      to have mean square one.
    """

    def __init__(self, beta1: float, beta2: float, batch_size: int):
        self.batch_size = batch_size
        spacing = -np.log(beta2) if beta2 else np.inf  # of lags, in log t
        low = np.log((1 - beta2) / batch_size) - _BELOW
        high = 12.0 + 10 * min(spacing, 4.0) ** 0.5
        self.used = int(np.ceil((high - low) / _STEP))
        n = self.used + int(np.ceil(9 / _STEP))  # nodes beyond those that are integrated over
        self.nodes = low + _STEP * np.arange(n)
        below = int(_BEYOND / _STEP)
        offsets = np.arange(-n + 1, n + below)
        # z = sum_mu s_mu x_mu: x^2 = e^v, with the density of v.
        v = -_STEP * offsets
        density = _STEP * np.exp(v / 2 - np.exp(np.minimum(v, 9.0)) / 2) / np.sqrt(2 * np.pi)
        self.input_average = _matrix(density, n)
        self.input_response = _matrix(density * np.exp(np.minimum(v, 9.0)), n, 1.0)
        lags = 1 if not beta2 else 1 + int((n + below) * _STEP / spacing)
        numbers = np.arange(lags)
        at = np.zeros(1) if not beta2 else numbers * spacing / _STEP

        def shifts(weights, total=None):
            return _matrix(_interpolated(at, weights, offsets), n, total)

        self.history = shifts(np.ones(lags))
        self.first = shifts((1 - beta1) * beta1**numbers, 1.0)
        self.second = shifts((1 - beta1) ** 2 * beta1 ** (2 * numbers), (1 - beta1) / (1 + beta1))
        self.apart = shifts(np.where(numbers > 0, 2.0, 1.0) * beta1**numbers, (1 + beta1) / (1 - beta1))
        self.weights = (
            _STEP * np.exp(self.nodes / 2) / np.sqrt(1 - beta2)
        )  # of t^-1/2, where nodes are of t (1 - beta2)
        self.weights[0] /= 1 - np.exp(-_STEP / 2)  # all below at once
        self.weights[self.used :] = 0.0
        # The nodes around log(e^y + e^y').
        position = np.arange(n)[:, None] + np.logaddexp(0, _STEP * (np.arange(n) - np.arange(n)[:, None])) / _STEP
        self.around = np.clip(np.floor(position).astype(int) - _STENCIL // 2 + 1, 0, n - _STENCIL)
        self.sum_weights = _lagrange(np.minimum(position - self.around, _STENCIL))

    def drift(self, tables: Tables) -> Float[Array, "p r"]:
        r"""How m / sqrt(v) responds to the fields.

        $$ \sum_l w_l \int \frac{dt}{\sqrt{\pi t}} F(t \tau_l) \prod_{m \ne l} \psi(t \tau_m) $$

        For a batch, $F(t) = \mathbb{E}[\sum_\mu s_\mu u_\mu (1 + 2 t |s|^2)^{-3/2}]$.
        """
        psi, log_product = self._products(tables)
        response = self._of_batch(tables, tables.response)
        past = jnp.einsum("ij,pjr->pir", self.first, response / psi[..., None])
        return jnp.einsum("i,pi,pir->pr", self.weights, jnp.exp(log_product), past) / np.sqrt(np.pi)

    def spread(self, tables: Tables) -> Float[Array, " p"]:
        r"""The long-run variance of m / sqrt(v) over steps, $\sum_n \text{Cov}(r_t, r_{t + n})$, without its mean."""
        psi, log_product = self._products(tables)
        energy = self._of_batch(tables, tables.energy[..., None])[..., 0]
        past = jnp.einsum("ij,pj->pi", self.second, energy / psi)
        columns = self.around[..., None] + np.arange(_STENCIL)

        def at_sums(values):
            return jnp.einsum("pijs,ijs->pij", values[:, columns], self.sum_weights)

        tilted = jnp.exp(jnp.minimum(at_sums(log_product) - log_product[..., None], 0.0)) * at_sums(past)
        tilted = jnp.einsum("pij,j->pi", tilted, self.weights)
        later = jnp.einsum("ij,pj->pi", self.apart, tilted)
        return jnp.einsum("i,pi,pi->p", self.weights, jnp.exp(log_product), later) / np.pi

    def _products(self, tables: Tables) -> tuple[Float[Array, "p n"], Float[Array, "p n"]]:
        """psi and log Psi at the nodes, the latter at those of t (1 - beta2)."""
        log_decay = jnp.log1p(jnp.maximum(tables.decay, -1 + 1e-300))
        below_one = jnp.einsum("ij,pj->pi", self.input_average, jnp.expm1(self.batch_size * log_decay))
        log_psi = jnp.log1p(jnp.maximum(below_one, -1 + 1e-15))
        return jnp.exp(log_psi), jnp.einsum("ij,pj->pi", self.history, log_psi)

    def _of_batch(self, tables: Tables, averages: Float[Array, "p n c"]) -> Float[Array, "p n c"]:
        others = (1 + tables.decay) ** (self.batch_size - 1)
        return self.batch_size * jnp.einsum("ij,pj,pjc->pic", self.input_response, others, averages)


@functools.lru_cache(maxsize=32)
def lags(beta1: float, beta2: float, batch_size: int) -> Lags:
    return Lags(beta1, beta2, batch_size)


def _matrix(kernel: np.ndarray, n: int, total: float | None = None) -> np.ndarray:
    """The Toeplitz matrix of a kernel of offsets 1 - n, 2 - n, ... (row minus column), and what lies below the grid.

    There functions are constant where the `total` of the kernel is given, else proportional to t.
    """
    matrix = kernel[np.arange(n)[:, None] - np.arange(n) + n - 1]
    if total is not None:
        matrix[:, 0] += total - matrix.sum(axis=1)
        return matrix
    further = np.arange(1, len(kernel) - 2 * n + 2)
    matrix[:, 0] += kernel[np.arange(n)[:, None] + further + n - 1] @ np.exp(-_STEP * further)
    return matrix


def _interpolated(at: np.ndarray, weights: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The kernel of a sum of values at these (real) offsets, by interpolation between nodes."""
    first = np.floor(at).astype(int) - _STENCIL // 2 + 1
    kernel = np.zeros(len(offsets))
    columns = first[:, None] + np.arange(_STENCIL) - offsets[0]
    values = weights[:, None] * _lagrange(at - first)
    inside = columns < len(kernel)
    np.add.at(kernel, columns[inside], values[inside])
    return kernel


def _lagrange(position: np.ndarray) -> np.ndarray:
    """The weights of values at 0, ..., _STENCIL - 1 in their interpolation at a position."""
    nodes = np.arange(_STENCIL)
    distance = position[..., None] - nodes
    weights = np.ones(distance.shape)
    for node in nodes:
        factor = distance[..., node, None] / np.where(nodes == node, 1, nodes - node)
        weights = weights * np.where(nodes == node, 1.0, factor)
    return weights
