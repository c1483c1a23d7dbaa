r"""A new algorithm, as one is added to the library: SGD on a spring, whose other end follows it slowly.

$$ w \leftarrow w - \text{learning\_rate} \; g + \frac{\text{spring}}{d} (z - w), \qquad
   z \leftarrow z + \frac{\text{following}}{d} (w - z), \qquad z = w \text{ at the start} . $$

`docs/contributing/adding_an_algorithm.md` explains it, and `tests/test_examples.py` tests it. As a part of the library
it would be in `src/dimfree/algorithms/`.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

import dimfree
from dimfree.algorithms.moves import Move


class ElasticSGD(dimfree.OnlineSGD):
    spring: Float[Array, ""]
    following: Float[Array, ""]

    def __init__(self, learning_rate, spring, following, **others):
        super().__init__(learning_rate, **others)
        self.spring, self.following = jnp.asarray(spring), jnp.asarray(following)

    @property
    def own(self) -> dict[str, str | None]:
        return {"anchor": "students"}  # one for each student, and equal to it at the start

    def move(self, alpha):
        drag = {("students", "anchor"): self.spring, ("students", "students"): -self.spring}
        drag |= {("anchor", "students"): self.following, ("anchor", "anchor"): -self.following}
        return Move(drag, super().move(alpha).pull)


if __name__ == "__main__":
    print(dimfree.check(dimfree.TwoLayer(1, 1, "erf"), ElasticSGD(1.0, spring=2.0, following=0.5)))
