"""Section 2: Theorem 2.2 on vectors, and the condition of Definition 2.1(3)."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from dimfree import Claim

from ..comparing import EXACT
from .conventions import binary_limit, covariance, rates, state_of, statistics, tensor_limit, tensor_state

_M, _R2, _RATE = 0.6, 0.8, 0.7
_V = np.array([0.8, -0.6])
_OVERLAPS = np.array([[0.5], [0.3]])
_REST = np.array([[0.6, 0.2], [0.2, 0.5]])


def claims() -> tuple[Claim, ...]:
    return (*_theorem(), *_localizability(), *_quadratic_statistics())


class Field(NamedTuple):
    """Tensor PCA on vectors of dimension n: what Theorem 2.2 needs of it, for u = (m, r^2).

    - `drift`: f, minus what gradient descent on the population loss does.
    - `corrector`: g at step size rate / n.
    - `diffusion`: the covariance of u over the square of the step size.
    - `V`: the covariance of the gradient.
    """

    drift: Array
    corrector: Array
    diffusion: Array
    V: Array

    @property
    def second_order_noise(self) -> float:
        """The mean square of <Hessian of r^2, grad H grad H - V>: twice the sum of squares, for a normal vector."""
        return float(8 * jnp.sum(self.V[1:, 1:] ** 2))


@functools.partial(jax.jit, static_argnames=("order", "n"))
def field(order: int, snr: float | Array, n: int) -> Field:
    """By automatic differentiation of the definitions."""
    x = jnp.zeros(n).at[0].set(_M).at[1:].set(jnp.sqrt(_R2 / (n - 1)))

    def u(x):
        return jnp.stack([x[0], jnp.sum(x[1:] ** 2)])

    def population(x):
        return -2 * snr * x[0] ** order + jnp.sum(x**2) ** order

    def kernel(x, y):  # of H(x) = -2 <W, x^k>; the gradient of H has its mixed derivative
        return 4 * jnp.dot(x, y) ** order

    V = jax.jacfwd(jax.grad(kernel, argnums=0), argnums=1)(x, x)
    jacobian, hessian = jax.jacfwd(u)(x), jax.jacfwd(jax.jacrev(u))(x)
    return Field(
        drift=jacobian @ jax.grad(population)(x),
        corrector=_RATE / n * 0.5 * jnp.einsum("ij,uij->u", V, hessian),
        diffusion=jacobian @ V @ jacobian.T,
        V=V,
    )


def _theorem() -> tuple[Claim, ...]:
    printed, sigma, ours, covariances, slow, flow = [], [], [], [], [], []
    for order, snr in ((2, 1.3), (3, 0.9)):
        coarse, fine = field(order, snr, 20), field(order, snr, 40)
        # The corrector is affine in 1/n, so that two dimensions give its limit.
        printed.append(-fine.drift + 2 * fine.corrector - coarse.corrector)
        sigma.append(fine.diffusion)
        flow.append(-fine.drift)
        limit, state = tensor_limit(order, snr, _RATE), tensor_state(_M, _R2)
        ours.append(np.asarray(rates(limit, state)))
        covariances.append(covariance(limit, state))
        slow.append(np.asarray(rates(tensor_limit(order, snr, 1e-9), state)))
    return (
        Claim(
            "Theorem 2.2, eqs. (2.1), (2.6)",
            r"The drift of the statistics is $h = \lim (-\langle \nabla\Phi, \nabla u\rangle + (\delta/2) \sum_{ij} "
            r"V_{ij} \partial_i \partial_j u)$.",
            np.stack(printed),
            np.stack(ours),
            EXACT,
            remark="On vectors by automatic differentiation, tensors of order 2 and 3, extrapolated to infinite n.",
        ),
        Claim(
            "Theorem 2.2, eqs. (2.2), (2.3), (2.7)",
            r"The diffusion of statistics rescaled by $\delta^{-1/2}$ is $J V J^\top$, for tensors.",
            np.stack(sigma),
            np.stack(covariances),
            EXACT,
        ),
        Claim(
            "section 2.1, eqs. (2.4), (2.5)",
            "For step sizes below the critical scale the corrector g vanishes: du/dt = -f(u).",
            np.stack(flow),
            np.stack(slow),
            1e-7,
            remark="The library's ODE at learning rate 1e-9, on the source's clock.",
        ),
    )


def mixture_samples(d: int, number: int, rate: float, snr: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """One step of SGD on vectors of the binary mixture, from one start: increments of statistics over the step size.

    Returns the whole increments, and the square lengths of the gradient of the first neuron outside the signal.
    """
    draws = np.random.default_rng(seed)
    weights = np.concatenate([_OVERLAPS, np.linalg.cholesky(_REST), np.zeros((2, d - 3))], axis=1)
    before = np.asarray(statistics(state_of(_V, _OVERLAPS, _REST)))
    increments, squares = [], []
    for _ in range(number // 1000):
        y = draws.integers(0, 2, size=1000)
        x = draws.normal(size=(1000, d)) / snr**0.5
        x[:, 0] += 2 * y - 1
        h = x @ weights.T
        error = 1 / (1 + np.exp(-np.maximum(h, 0) @ _V)) - y
        slopes = error[:, None] * _V * (h >= 0)
        step = rate / d
        v = _V - step * error[:, None] * np.maximum(h, 0)
        W = weights - step * slopes[:, :, None] * x[:, None, :]
        R = np.einsum("nid,njd->nij", W[..., 1:], W[..., 1:])
        after = np.concatenate([v, W[..., 0], R[:, [0, 0, 1], [0, 1, 1]]], axis=1)
        increments.append((after - before) / step)
        squares.append(slopes[:, 0] ** 2 * np.sum(x[:, 1:] ** 2, axis=1))
    return np.concatenate(increments), np.concatenate(squares)


def _localizability() -> tuple[Claim, ...]:
    sizes = (40, 160)
    matrix = np.array([field(2, 1.3, n).second_order_noise for n in sizes])
    # The mean gradient does not count here: it is of order one, the random one of length d^1/2.
    mixture = np.array([4 * np.var(mixture_samples(n, 20_000, 1.0, 1.0, seed=1)[1]) for n in sizes])
    growth = np.log([matrix[1] / matrix[0], mixture[1] / mixture[0]]) / np.log(sizes[1] / sizes[0])
    return (
        Claim(
            "Definition 2.1(3)",
            r"Whether $E\langle\nabla^2 u, \nabla H \otimes \nabla H - V\rangle^2 = o(\delta^{-1})$ admits the "
            "source's own examples, to which the theorem applies: matrix PCA with r^2, the binary mixture with R_11.",
            (growth < 0.9).astype(float),
            np.ones(2),
            0.0,
            correction=r"$o(\delta^{-3})$: the quadratic variation of that martingale is $\delta^3/4$ times it.",
            corrected=(growth < 2.9).astype(float),
            remark=f"It grows as n^{growth[0]:.2f} and n^{growth[1]:.2f}.",
        ),
    )


def _quadratic_statistics() -> tuple[Claim, ...]:
    rate, snr = 4.0, 1.0
    measured = np.var(mixture_samples(400, 40_000, rate, snr, seed=2)[0], axis=0)[4:]
    state = state_of(_V, _OVERLAPS, _REST)
    gradient_noise, whole = (np.diag(covariance(binary_limit(snr, 0.0, c), state))[4:] for c in (1e-9, rate))
    return (
        Claim(
            "Theorem 2.2, eq. (2.2), for overlaps R",
            r"The diffusion of $\sqrt N (R_{11}, R_{12}, R_{22})$ is $J V J^\top$, for mixtures: variances over those "
            "of SGD, at snr 1 and c = 4.",
            gradient_noise / measured,
            np.ones(3),
            0.1,
            correction=r"The covariance of the whole increment, with its random second-order term $c\, s_i s_j / "
            r"\lambda$. The theorem does not apply: Definition 2.1(3) fails for these statistics, corrected or not.",
            corrected=whole / measured,
            remark="Measured on 40,000 steps of SGD on vectors with N = 400.",
        ),
    )
