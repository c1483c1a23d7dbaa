"""What the checks of the statements share: States to check at, and the library's rates on the source's clock."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from dimfree import OnlineSGD, PhaseRetrieval, State, gradient_flow, ode
from dimfree.limits import MeanLimit, increment_covariance


def random_overlaps(p: int, seed: int, rho: float = 1.0, sphere: bool = False) -> State:
    """Overlaps that some weights have, far from any symmetric point."""
    draws = np.random.default_rng(seed)
    weights = draws.normal(size=(p + 1, p + 3))
    weights /= np.linalg.norm(weights, axis=1, keepdims=True)
    if not sphere:
        weights[:p] *= draws.uniform(0.7, 1.3, size=(p, 1))
    weights[p] *= rho**0.5
    gram = weights @ weights.T
    return State(Q=gram[:p, :p], M=gram[:p, p:], P=gram[p:, p:], readout=np.ones(p))


def free_limit(p: int, rate: float, noise: float, *, trained: bool = False) -> MeanLimit:
    """The library's ODE without constraint on the norms; with the readout fixed or trained."""
    return ode(PhaseRetrieval(width=p, noise=noise), OnlineSGD(rate, readout_rate=rate if trained else None))


def sphere_limit(p: int, rate: float, noise: float) -> MeanLimit:
    """The library's ODE on the sphere."""
    return ode(PhaseRetrieval(width=p, noise=noise), OnlineSGD(rate, sphere=True))


def rates(limit: MeanLimit, state: State) -> State:
    """The derivative of the State with respect to the source's time."""
    per_time = 1 / source_rate(limit)
    return jax.tree.map(lambda leaf: per_time * leaf, limit.drift(0.0, state))


def first_order_rates(limit: MeanLimit, state: State) -> State:
    """The same without the term of second order in the learning rate."""
    return rates(gradient_flow(limit.problem, limit.algorithm), state)


def covariances(limit: MeanLimit, state: State) -> np.ndarray:
    r"""The library's covariance of increment / $\delta t$, in the order of `limit.coordinates`."""
    return np.asarray(increment_covariance(limit, 0.0, state)) / source_rate(limit) ** 2


def plateau_rates(p: int, rate: float, noise: float) -> tuple[float, float]:
    """Growth rates of M and of the off-diagonal of Q on the plateau of the sphere, from the library's drift."""
    of_m, of_Q = _plateau_rates(p, rate, noise)
    return float(of_m) * p / rate, float(of_Q) * p / rate


@functools.partial(jax.jit, static_argnames="p")
def _plateau_rates(p: int, rate, noise):
    limit = ode(PhaseRetrieval(width=p, noise=noise), OnlineSGD(rate, sphere=True))

    def drift(m, q):
        Q = jnp.eye(p) if p == 1 else jnp.eye(p).at[0, 1].set(q).at[1, 0].set(q)
        tangent = limit.drift(0.0, State(Q=Q, M=jnp.zeros((p, 1)).at[0, 0].set(m)))
        # With one student there is no off-diagonal; its norm, which the sphere keeps, has a rate of zero too.
        return tangent.M[0, 0], tangent.Q[0, min(1, p - 1)]

    (of_m, _), (_, of_Q) = jax.jacfwd(drift, argnums=(0, 1))(0.0, 0.0)
    return of_m, of_Q


def source_rate(limit: MeanLimit) -> float:
    """learning_rate / p: the source's time that passes in a unit of alpha."""
    rate = limit.algorithm.learning_rate
    assert isinstance(rate, jax.Array)
    return float(rate) / limit.problem.width
