r"""A new algorithm, as one is added to the library: SGD whose gradient is clipped at a norm, with an average beside it.

The gradient of a sample is $s x^\top / \sqrt d$, so that its norm is $|s| \sqrt{\|x\|^2 / d}$. Where that exceeds
`largest` the slopes s are scaled down, before anything is made of them:

$$ s \leftarrow s \, \min\Big(1, \frac{\text{largest}}{|s| \sqrt{\|x\|^2 / d}}\Big) . $$

`docs/contributing/adding_an_algorithm.md` explains it, and `tests/test_examples.py` tests it. As a part of the library
it would be in `src/dimfree/algorithms/`.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

import dimfree
from dimfree.algorithms.moves import Move
from dimfree.errors import positive_number

SLOW = "slow"


class ClippedSGD(dimfree.OnlineSGD):
    """One-pass SGD, each sample's gradient clipped at a norm, and beside the weights a slow copy that follows them."""

    largest: Float[Array, ""]
    following: Float[Array, ""]

    def __init__(self, learning_rate: float | Array, largest: float | Array, following: float | Array = 1.0):
        super().__init__(learning_rate)
        positive_number(largest, "largest")
        self.largest, self.following = jnp.asarray(largest, float), jnp.asarray(following, float)

    @property
    def own(self) -> dict[str, str | None]:
        return {SLOW: "students"}  # one for each student, and equal to it at the start

    def move(self, alpha: Float[Array, ""]) -> Move:
        plain = super().move(alpha)
        return Move({**plain.drag, (SLOW, "students"): self.following, (SLOW, SLOW): -self.following}, plain.pull)

    def used_slopes(self, slopes, fields: Float[Array, "B p"], gram: Float[Array, "B B"]) -> Float[Array, "B p"]:
        found = slopes(fields)
        norms = jnp.sqrt(jnp.sum(found**2, axis=1) * jnp.diagonal(gram))
        return found * jnp.minimum(1.0, self.largest / jnp.maximum(norms, 1e-300))[:, None]


if __name__ == "__main__":
    print(dimfree.check(dimfree.TwoLayer(1, 1, "erf"), ClippedSGD(1.0, largest=0.2)))
