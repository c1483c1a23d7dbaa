r"""The source's conventions in terms of ours, and what its checks share.

The source writes the risk with a half and the step of SGD without; here the step has it too, so that its $\gamma$ is
our learning rate and its clock $t = \gamma \alpha / p$. Its activation erf is read as $\mathrm{erf}(x / \sqrt 2)$.
"""

import numpy as np
from scipy.special import erf

from dimfree import State, TwoLayer

CLOCK = r"$t$ = learning rate $\times$ samples / $(p\,d)$"
QUADRATURE, NODES = 1e-6, 20  # one side by Gauss-Hermite with this many nodes for each field, of erf
NOISE = 1e-3


def committee(p: int, k: int, noise: float = NOISE) -> TwoLayer:
    """The source's network: erf, readouts of one."""
    return TwoLayer(p, k, "erf", noise=noise)


def g(x):
    """The activation, in NumPy."""
    return erf(x / np.sqrt(2.0))


def slope(x):
    """Its derivative."""
    return np.sqrt(2 / np.pi) * np.exp(-(x**2) / 2)


def random_weights(p: int, k: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Student and teacher weights as rows, of norm of the order sqrt(d), in no special position."""
    draws = np.random.default_rng(seed)
    return 0.8 * draws.normal(size=(p, d)), 0.8 * draws.normal(size=(k, d))


def state_of(W: np.ndarray, teachers: np.ndarray) -> State:
    """The overlaps of weights."""
    d = W.shape[1]
    return State(Q=W @ W.T / d, M=W @ teachers.T / d, P=teachers @ teachers.T / d, readout=np.ones(len(W)))
