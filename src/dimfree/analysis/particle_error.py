"""How well particles stand for the density of an infinitely wide network."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray
from numpy.typing import ArrayLike

from ..errors import InvalidInput, check_key, check_not_traced, positive_integer, shown
from ..limits import MeanFieldLimit
from ..solving import solve
from ..state import State, WideState
from ..trajectory import save_alphas


def particle_error(
    limit: MeanFieldLimit,
    start: State | WideState,
    alpha: float | ArrayLike | Array,
    *,
    resamples: int = 16,
    key: PRNGKeyArray,
) -> Float[np.ndarray, " times"]:
    r"""The standard error of the risk if p random particles represent a density, at each saved time.

    It is the bootstrap: the particles of the start are drawn again from themselves, with replacement, and the limit is
    solved from each such start; the standard deviation of the risk estimates how much another sample of particles would
    differ. It holds for particles drawn at random, and falls as $p^{-1/2}$.

    **Arguments:**

    - `limit`: from [`mean_field`].
    - `start`: the particles, drawn at random from the density at alpha = 0, such as those of [`random_state`].
    - `alpha`: as for [`solve`].
    - `resamples`, `key`: number of starts drawn again, and the random key.

    **Returns:** the standard error at each saved time.
    """
    check_not_traced("particle_error", limit=limit, start=start, alpha=alpha, key=key)
    if not isinstance(limit, MeanFieldLimit):
        raise InvalidInput(f"limit = {shown(limit)} was given; pass dimfree.mean_field(problem, algorithm, ...).")
    number = positive_integer(resamples, "resamples", minimum=2)
    particles = limit.start(start)
    check_key(key)
    drawn = jax.random.randint(key, (number, particles.width), 0, particles.width)
    return np.asarray(_risks(limit, particles, jnp.asarray(save_alphas(alpha)), drawn)).std(axis=0, ddof=1)


@eqx.filter_jit
def _risks(limit: MeanFieldLimit, particles: WideState, alphas, drawn):
    def risk(index):
        readout = None if particles.readout is None else particles.readout[index]
        again = WideState(particles.M[index], particles.q_perp[index], particles.P, readout)
        return solve(limit, again, alphas, relative_tolerance=1e-6, absolute_tolerance=1e-8).risk

    return jax.lax.map(risk, drawn)
