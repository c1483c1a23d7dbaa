"""Chi-square variables, many at a time."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


def chi_square(key: PRNGKeyArray, degrees: Float[Array, " n"]) -> Float[Array, " n"]:
    """Independent chi-square variables with the given degrees of freedom (any reals; zero degrees give zero).

    Marsaglia & Tsang's rejection method (ACM TOMS 26 (2000) 363) on the whole array: the few rejected entries are
    drawn again together. `jax.random.chisquare` loops over entries one by one on CPU and is about five times slower,
    and in an exact simulation this is the largest cost.
    """
    shape = degrees / 2
    boosted = jnp.where(shape < 1, shape + 1, shape)
    first_key, boost_key = jax.random.split(key)
    size = degrees.shape[0]
    capacity = max(1, size // 8)

    def propose(round_key, a):
        normal_key, uniform_key = jax.random.split(round_key)
        normal = jax.random.normal(normal_key, a.shape)
        uniform = jax.random.uniform(uniform_key, a.shape)
        b = a - 1 / 3
        cube = (1 + normal / jnp.sqrt(9 * b)) ** 3
        positive = cube > 0
        log_ratio = 0.5 * normal**2 + b * (1 - cube + jnp.log(jnp.where(positive, cube, 1.0)))
        return b * cube, positive & (jnp.log(uniform) < log_ratio)

    def again(carry):
        value, accepted, round_key = carry
        round_key, this_round = jax.random.split(round_key)
        index = jnp.nonzero(~accepted, size=capacity, fill_value=size)[0]
        new, ok = propose(this_round, boosted.at[index].get(mode="fill", fill_value=1.0))
        return value.at[index].set(new, mode="drop"), accepted.at[index].set(ok, mode="drop"), round_key

    value, accepted = propose(first_key, boosted)
    value, _, _ = jax.lax.while_loop(
        lambda c: ~jnp.all(c[1]), again, (value, accepted, jax.random.fold_in(first_key, 1))
    )

    def boost(gamma):
        uniform = jax.random.uniform(boost_key, (size,))
        power = 1 / jnp.where(shape > 0, shape, 1.0)
        return jnp.where(shape < 1, jnp.where(shape > 0, gamma * uniform**power, 0.0), gamma)

    return 2 * jax.lax.cond(jnp.any(shape < 1), boost, lambda gamma: gamma, value)
