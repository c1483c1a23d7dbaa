r"""Random numbers of many runs, as fast as a processor makes them: by run, step and number.

The words are those of Threefry (Salmon et al., SC 2011), the generator of JAX, at (step, number) under the key of the
run. So a number depends on nothing else: not on how many steps are drawn at once, nor with which other runs. Normals
are made in pairs by Box and Muller's method, chi-square variables by Marsaglia and Tsang's (ACM TOMS 26 (2000) 363).
Everything is arithmetic that fills vector registers. `jax.random.normal` is several times slower in double precision,
and `jax.random.chisquare` twenty times: it loops over entries.
"""

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt32, UInt64

from ..last_axis import kept

_HALF = 2.0**-54  # so that a uniform number is never zero or one


class Source(eqx.Module):
    """Where the random numbers of some runs at some steps come from; shapes broadcast.

    **Attributes:**

    - `key`: two words for each run.
    - `step`: of each run.
    """

    key: tuple[UInt32[Array, "*runs"], UInt32[Array, "*runs"]]
    step: Int[Array, "*steps_and_runs"]

    def words(self, number: Int[Array, "..."]) -> UInt64[Array, "..."]:
        """64 random bits for each number; shapes broadcast."""
        # Steps beyond 2^32 have the next keys.
        first, second = self.key[0], self.key[1] + (self.step >> 32).astype(jnp.uint32)
        return _threefry(first, second, self.step.astype(jnp.uint32), number.astype(jnp.uint32))

    def at(self, place: Int[Array, ""]) -> "Source":
        """The same runs at one of the steps."""
        return Source(self.key, lax.dynamic_index_in_dim(self.step, place, 0, keepdims=False))


def run_keys(keys: Shaped[Array, "runs ..."]) -> tuple[UInt32[Array, " runs"], UInt32[Array, " runs"]]:
    """The words of Threefry's key that stand for the random key of each run, of any kind."""
    words = jax.vmap(lambda key: jax.random.bits(key, (2,), "uint32"))(keys)
    return words[:, 0], words[:, 1]


def _threefry(first_key, second_key, first, second) -> UInt64[Array, "..."]:
    """Threefry-2x32 in 20 rounds, written out: the loops of JAX's own pass through memory in each round."""
    keys = (first_key, second_key, first_key ^ second_key ^ jnp.uint32(0x1BD11BDA))
    first, second = first + keys[0], second + keys[1]
    for block in range(5):
        for rotation in ((13, 15, 26, 6), (17, 29, 16, 24))[block % 2]:
            first = first + second
            second = (second << jnp.uint32(rotation)) | (second >> jnp.uint32(32 - rotation))
            second = second ^ first
        first, second = first + keys[(block + 1) % 3], second + keys[(block + 2) % 3] + jnp.uint32(block + 1)
    return (first.astype(jnp.uint64) << jnp.uint64(32)) | second.astype(jnp.uint64)


def uniform(words: UInt64[Array, "..."]) -> Float[Array, "..."]:
    """Uniform numbers in (0, 1), from the upper 53 bits."""
    return (words >> jnp.uint64(11)).astype(jnp.int64).astype(float) * 2.0**-53 + _HALF


def normals(words: UInt64[Array, "..."], always: Bool[Array, ""], axis: int = 0) -> Float[Array, "..."]:
    """As many independent standard normals as there are words along an axis, an even number; `words` are in memory."""
    first, second = jnp.split(words, 2, axis)
    length = kept(lambda: jnp.sqrt(-2 * log(uniform(first))), always)
    cosine, sine = _direction(second)
    return jnp.concatenate([length * cosine, length * sine], axis)


def log(x: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""The logarithm of positive normal numbers, to rounding; unlike the one of a library it fills vector registers.

    $\log m = 2 \, \text{artanh} \frac{m - 1}{m + 1}$ for the mantissa between $\sqrt{1/2}$ and $\sqrt 2$.
    """
    bits = lax.bitcast_convert_type(x, jnp.int64)
    exponent = (bits - _ROOT_OF_HALF) >> 52
    mantissa = lax.bitcast_convert_type(bits - (exponent << 52), jnp.float64)
    return exponent.astype(float) * math.log(2) + _log_of_ratio((mantissa - 1) / (mantissa + 1))


def _log1p(y: Float[Array, "..."]) -> Float[Array, "..."]:
    """The logarithm of 1 + y, to rounding also where y is tiny. It compiles in less time than XLA's."""
    return jnp.where(jnp.abs(y) < 0.3, _log_of_ratio(y / (2 + y)), log(1 + y))


def _log_of_ratio(ratio: Float[Array, "..."]) -> Float[Array, "..."]:
    r"""$2 \, \text{artanh}$ of numbers up to 0.18."""
    return 2 * ratio * _polynomial(ratio * ratio, [1 / (2 * power + 1) for power in range(11)])


_ROOT_OF_HALF = 0x3FE6A09E667F3BCD  # its bits


def _direction(words: UInt64[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Cosine and sine of an angle that is uniform on the circle: of one on the right half, and a sign."""
    angle = ((words << jnp.uint64(1) >> jnp.uint64(11)).astype(jnp.int64).astype(float) * 2.0**-53 - 0.5) * math.pi
    square = angle * angle
    sine = angle * _polynomial(square, [(-1) ** n / math.factorial(2 * n + 1) for n in range(12)])
    cosine = _polynomial(square, [(-1) ** n / math.factorial(2 * n) for n in range(13)])
    one = jnp.uint64(0x3FF << 52)
    sign = lax.bitcast_convert_type((words & jnp.uint64(1 << 63)) | one, jnp.float64)
    return sign * cosine, sine


def _polynomial(x: Float[Array, "..."], coefficients: list[float]) -> Float[Array, "..."]:
    value = jnp.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + coefficient
    return value


def normals_and_chi_squares(
    source: Source, number: int, degrees: Float[Array, " m"]
) -> tuple[Float[Array, "number steps runs"], Float[Array, "m steps runs"]]:
    r"""Independent standard normals, and chi-square variables with these degrees of freedom.

    A chi-square variable with 2a degrees is $2 b (1 + y)^3$, $y = x / \sqrt{9 b}$, $b = a - 1/3$, with x normal; it is
    accepted with probability $e^h$, $h = x^2/2 + b(1 - (1 + y)^3 + 3 \log(1 + y))$. By Taylor's formula
    $h \ge -y^4 b \tfrac34 / (1 - |y|)$ for $|y| < 1$, and $e^h \ge 1 + h$: that decides all but one of 36 a variables,
    and no logarithm is taken for them. The others, row by row, have the test in full, and are drawn again where it
    fails.

    **Arguments:**

    - `source`: of runs at steps, shape `(steps, runs)`.
    - `number`: of normals.
    - `degrees`: whole numbers; zero degrees give zero.
    """
    chi = degrees.shape[0]
    always = source.step[0, 0] >= 0
    pairs = -(-(number + chi) // 2)
    words = kept(lambda: source.words(jnp.arange(2 * pairs + chi)[:, None, None]), always)
    found = normals(words[: 2 * pairs], always)[: number + chi]
    if not chi:
        return found, jnp.zeros((0, *source.step.shape))
    shape = jnp.maximum(degrees, 2.0)[:, None, None] / 2 - 1 / 3
    few = degrees[:, None, None] < 2  # below the reach of the method, and simpler: one square, or none
    first, bound = found[number:], uniform(words[2 * pairs :])
    y = first / jnp.sqrt(9 * shape)
    value = jnp.where(few, jnp.where(degrees[:, None, None] > 0, first * first, 0.0), 2 * shape * (1 + y) ** 3)
    certain = few | (bound * (1 - jnp.abs(y)) > 0.75 * shape * y**4)
    open_rows = jnp.any(~certain, axis=(0, 2))

    def redraw(loop):
        open_rows, value = loop
        row = jnp.argmax(open_rows)
        at = source.at(row)
        start = lax.dynamic_index_in_dim(first, row, 1, keepdims=False)
        drawn = _by_rejection(at, start, 2 * pairs, shape[:, 0], always)
        old = lax.dynamic_index_in_dim(value, row, 1, keepdims=False)
        new = jnp.where(few[:, 0], old, drawn)
        return open_rows.at[row].set(False), lax.dynamic_update_index_in_dim(value, new, row, 1)

    return found[:number], lax.while_loop(lambda loop: jnp.any(loop[0]), redraw, (open_rows, value))[1]


def _by_rejection(source: Source, normal: Float[Array, "m runs"], begin: int, shape: Any, always: Bool[Array, ""]):
    """Chi-square variables of 2 (shape + 1/3) degrees, from the first proposal on; its uniforms begin at a number."""
    number = normal.shape[0]

    def test(normal, bound):
        y = normal / jnp.sqrt(9 * shape)
        cube, inside = (1 + y) ** 3, y > -1
        exponent = 0.5 * normal**2 + shape * (1 - cube + 3 * _log1p(jnp.where(inside, y, 0.0)))
        return 2 * shape * cube, inside & (log(1 - bound) < exponent)

    def again(loop):
        attempt, value, accepted = loop
        words = source.words(begin + number * (1 + 3 * attempt) + jnp.arange(3 * number)[:, None])
        new, good = test(normals(words[: 2 * number], always)[:number], uniform(words[2 * number :]))
        return attempt + 1, jnp.where(accepted, value, new), accepted | good

    first = test(normal, uniform(source.words(begin + jnp.arange(number)[:, None])))
    return lax.while_loop(lambda loop: ~jnp.all(loop[2]), again, (jnp.zeros((), int), *first))[1]
