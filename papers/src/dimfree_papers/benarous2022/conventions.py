r"""The source's conventions in terms of ours.

Its step size is learning_rate / d, its dimension n or N our d, its time $t = \text{learning\_rate} \cdot \alpha$. Its
statistics are the readout v, the overlaps m = M with the orthonormal signal directions, and the overlaps of what is
left of the students, $R = Q - M M^\top$ (the scalar $r_\perp^2$ for tensors). Its ridge is ours.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from dimfree import Mixture, OnlineSGD, SpikedTensor, State, ode
from dimfree.limits import MeanLimit, increment_covariance

CLOCK = r"$t$ = learning rate $\times\ \alpha$"


def tensor_limit(order: int, snr: float, rate: float = 1.0) -> MeanLimit:
    """Spiked tensors, section 3."""
    return ode(SpikedTensor(order, snr), OnlineSGD(rate))


def training(ridge: float | Array, rate: float = 1.0) -> OnlineSGD:
    """SGD on both layers, sections 4 and 5."""
    return OnlineSGD(rate, ridge=ridge, readout_rate=rate)


def binary_limit(snr: float, ridge: float, rate: float = 1.0) -> MeanLimit:
    """Two neurons on the binary mixture, section 4."""
    return ode(Mixture.binary(2, snr), training(ridge, rate))


def xor_limit(snr: float, ridge: float) -> MeanLimit:
    """Four neurons on the XOR mixture, section 5."""
    return ode(Mixture.xor(4, snr), training(ridge))


def ring_level(ridge: float, clusters: int) -> float:
    """The squared radius of the rings of fixed points: -logit(2 ridge) for two clusters, -logit(4 ridge) for four."""
    return float(np.log((1 - clusters * ridge) / (clusters * ridge)))


def printed_ring_drift(a: np.ndarray, ridge: float, clusters: int, sign: float = 1.0) -> np.ndarray:
    """Propositions 4.3 and 5.1: the matrix of the drift of (v, m) about a point of the rings, rescaled.

    Neurons 1 and 2 share a ring, and so do 3 and 4; -1 is the right sign of the second term.
    """
    same_ring = np.kron(np.eye(len(a) // 2), np.ones((2, 2)))
    outer = sign * (ridge - clusters * ridge**2) * np.outer(a, a) * same_ring
    relax = ridge * np.eye(len(a))
    return np.block([[outer - relax, outer + relax], [outer + relax, outer - relax]])


def state_of(v, m, R) -> State:
    """The State with these statistics; v is None for tensors."""
    m = jnp.asarray(m, float)
    return State(Q=jnp.asarray(R, float) + m @ jnp.swapaxes(m, -1, -2), M=m, readout=v)


def tensor_state(m: ArrayLike | Array, r2: ArrayLike | Array) -> State:
    """The State of one student with overlap m and squared length r2 of what is left."""
    return state_of(None, jnp.asarray(m, float)[..., None, None], jnp.asarray(r2, float)[..., None, None])


def statistics(state: State) -> Float[Array, " n"]:
    """The source's summary statistics: v, then m by rows, then the upper triangle of R."""
    R = state.Q - state.M @ state.M.T
    v = [] if state.readout is None else [state.readout]
    return jnp.concatenate([*v, state.M.ravel(), R[jnp.triu_indices(R.shape[0])]])


def unpacked(vector: Float[Array, " n"], limit: MeanLimit) -> State:
    """The State with these statistics, in the order of `statistics`."""
    p, k = limit.problem.width, limit.problem.teacher_width
    n = 0 if limit.problem.readout is None else p
    v, m, upper = jnp.split(jnp.asarray(vector, float), [n, n + p * k])
    rows, columns = np.triu_indices(p)
    R = jnp.zeros((p, p)).at[rows, columns].set(upper).at[columns, rows].set(upper)
    return state_of(v if n else None, m.reshape(p, k), R)


@eqx.filter_jit
def rates(limit: MeanLimit, state: State) -> Float[Array, " n"]:
    """The library's drift of the source's statistics, per unit of the source's time."""
    return jax.jvp(statistics, (state,), (limit.drift(0.0, state),))[1] / limit.algorithm.learning_rate


def rates_at(limit: MeanLimit, vector: Float[Array, " n"]) -> Float[Array, " n"]:
    """The same as a function of the statistics."""
    return rates(limit, unpacked(vector, limit))


def jacobian(limit: MeanLimit, vector: ArrayLike | Array) -> np.ndarray:
    """The derivative of the rates with respect to the statistics."""
    return np.asarray(_jacobian(limit, jnp.asarray(vector, float)))


@eqx.filter_jit
def _jacobian(limit: MeanLimit, vector):
    return jax.jacfwd(lambda u: rates_at(limit, u))(vector)


def top_eigenvalue(matrix: np.ndarray) -> float:
    """The largest real part of the eigenvalues."""
    return float(np.linalg.eigvals(matrix).real.max())


def covariance(limit: MeanLimit, state: State) -> np.ndarray:
    r"""The library's covariance of a sample's increment over $\delta$: that of statistics times $\delta^{-1/2}$."""
    return np.asarray(_covariance(limit, state))


@eqx.filter_jit
def _covariance(limit: MeanLimit, state: State):
    coordinates = limit.coordinates
    to_statistics = jax.jacfwd(lambda vector: statistics(coordinates.unpack(vector, state)))(coordinates.pack(state))
    increments = increment_covariance(limit, 0.0, state) / jnp.asarray(limit.algorithm.learning_rate) ** 2
    return to_statistics @ increments @ to_statistics.T


def gaussian_starts(runs: int, d: int, width: int, directions: int, variance: float, seed: int) -> State:
    r"""Runs that start from weights $N(0, \text{variance} \cdot I / d)$ and readouts $N(0, 1)$."""
    draws = np.random.default_rng(seed)
    weights = draws.normal(size=(runs, width, d)) * np.sqrt(variance / d)
    return State(
        Q=weights @ np.swapaxes(weights, -1, -2),
        M=weights[..., :directions],
        readout=draws.normal(size=(runs, width)),
    )


def cluster_margins(problem: Mixture, state: State) -> np.ndarray:
    """What the network says at the centre of each cluster, with the sign of its label: positive where it is right."""
    clusters = problem.inputs
    fields = np.asarray(state.M @ clusters.means.T)  # (..., p, c)
    output = np.einsum("...p,...pc->...c", np.asarray(state.readout), np.maximum(fields, 0.0))
    return output * np.where(np.asarray(clusters.labels) > 0, 1.0, -1.0)
