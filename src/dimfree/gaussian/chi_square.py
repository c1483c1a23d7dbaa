"""Chi-square variables, many at a time."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


def chi_square(key: PRNGKeyArray, degrees: Float[Array, " n"]) -> Float[Array, " n"]:
    """Independent chi-square variables with the given degrees of freedom (whole numbers; zero degrees give zero).

    Marsaglia & Tsang's rejection method (ACM TOMS 26 (2000) 363) on the whole array: the few rejected entries are
    drawn again together. `jax.random.chisquare` loops over entries one by one on CPU and is about five times slower,
    and in an exact simulation this is the largest cost.
    """
    size = degrees.shape[0]
    capacity = max(1, size // 8)
    shape = jnp.maximum(degrees, 2.0) / 2

    def propose(round_key, shape):
        normal_key, uniform_key = jax.random.split(round_key)
        normal = jax.random.normal(normal_key, shape.shape)
        uniform = jax.random.uniform(uniform_key, shape.shape)
        b = shape - 1 / 3
        cube = (1 + normal / jnp.sqrt(9 * b)) ** 3
        positive = cube > 0
        log_ratio = 0.5 * normal**2 + b * (1 - cube + jnp.log(jnp.where(positive, cube, 1.0)))
        return normal, 2 * b * cube, positive & (jnp.log(uniform) < log_ratio)

    def again(carry):
        value, accepted, round_key = carry
        round_key, this_round = jax.random.split(round_key)
        index = jnp.nonzero(~accepted, size=capacity, fill_value=size)[0]
        _, new, ok = propose(this_round, shape.at[index].get(mode="fill", fill_value=1.0))
        return value.at[index].set(new, mode="drop"), accepted.at[index].set(ok, mode="drop"), round_key

    first_key, later_key = jax.random.split(key)
    normal, value, accepted = propose(first_key, shape)
    few = degrees < 2  # below the reach of the method, and simpler: one square, or none
    value, _, _ = jax.lax.while_loop(lambda carry: ~jnp.all(carry[1]), again, (value, accepted | few, later_key))
    return jnp.where(few, jnp.where(degrees > 0, normal**2, 0.0), value)
