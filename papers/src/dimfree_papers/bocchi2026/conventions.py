r"""The source's conventions in terms of ours.

The loss is $e^2$, not half of it, so the source's rate is half of ours, $\eta = \text{learning\_rate} / 2$, and its
risk twice ours; its clock is $t = \eta \alpha$. The overlaps are called $\rho$ (our M) and Q.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from dimfree import OnlineSGD, State, TwoLayer, gradient_flow, ode
from dimfree.limits import MeanLimit

CLOCK = r"$t = \eta\,\alpha$,  $\eta$ = learning rate / 2"


def network(p: int, k: int) -> TwoLayer:
    """The source's problem: quadratic, without noise, readouts of ones."""
    return TwoLayer(p, k, "square")


def limit(p: int, k: int, eta: float | Array) -> MeanLimit:
    """The ODE at the source's learning rate."""
    return ode(network(p, k), OnlineSGD(2 * eta))


def flow(p: int, k: int) -> MeanLimit:
    """Gradient flow whose alpha is the source's clock t."""
    return gradient_flow(network(p, k), OnlineSGD(2.0))


def source_risk(problem: TwoLayer, state: State) -> Float[Array, "*batch"]:
    """The source's population risk."""
    return 2 * problem.risk(state)


def gaussian_start(p: int, k: int, size: float, key: PRNGKeyArray) -> State:
    """Orthogonal students of norm one, with overlaps of that standard deviation: eq. (8)."""
    return State(Q=jnp.eye(p), M=size * jax.random.normal(key, (p, k)))


def orthonormal_start(p: int, k: int, d: int, seed: int) -> State:
    """Random orthogonal students of norm one in dimension d, the teachers being coordinates."""
    frame = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, p)))[0]
    return State(Q=np.eye(p), M=frame[:k].T)


def random_start(p: int, k: int, d: int, seed: int) -> State:
    """Random students of norm one in dimension d, not orthogonal; the teachers are coordinates."""
    students = np.random.default_rng(seed).normal(size=(p, d))
    students /= np.linalg.norm(students, axis=1, keepdims=True)
    return State(Q=students @ students.T, M=students[:, :k])
