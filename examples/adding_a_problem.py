r"""A new problem, as one is added to the library: least absolute deviations.

The label is the teacher's field plus noise, and the loss its distance from the student's field,

$$ | \lambda - \lambda^* - \sqrt{\text{noise}} \, z | . $$

`docs/contributing/adding_a_problem.md` explains it, and `tests/test_examples.py` tests it. As a part of the library it
would be `src/dimfree/problems/absolute_regression.py`.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

import dimfree
from dimfree.errors import nonnegative_number
from dimfree.problems import FieldProblem, Moments


class AbsoluteRegression(FieldProblem):
    r"""Linear regression with the absolute error, one student and one teacher.

    $$ | \lambda - \lambda^* - \sqrt{\text{noise}} \, z | $$

    Its averages are closed forms: the error $e$ is Gaussian with variance $v = Q - 2 M + P + \text{noise}$, and the
    gradient is its sign, so that $\mathbb{E}[\text{sign}(e) \, u] = \sqrt{2 / (\pi v)} \, \mathbb{E}[e u]$ for every
    field $u$.

    **Arguments:**

    - `noise`: variance of the label noise.
    """

    # Sizes and switches are static; numbers are arrays, so that one compilation serves all of them.
    width: int = eqx.field(static=True)
    teacher_width: int = eqx.field(static=True)
    smooth: bool = eqx.field(static=True)
    readout: None
    noise: Float[Array, ""]

    def __init__(self, noise: float | Array = 0.0):
        nonnegative_number(noise, "noise", meaning=" (it is the variance of the label noise)")
        self.width = self.teacher_width = 1
        self.smooth = False  # there is a kink: averages over points and their derivatives are taken accordingly
        self.readout = None
        self.noise = jnp.asarray(noise, float)

    # All that must be given.

    def loss(self, student, teacher, noise, readout, label=None):
        return jnp.abs(student[0] - teacher[0] - jnp.sqrt(self.noise) * noise)

    # What may be given, where it is known: everything works without, by quadrature.

    @property
    def knows_moments(self) -> bool:
        return True

    def known_moments(self, state: dimfree.State) -> Moments:
        variance = self._variance(state)
        factor = jnp.sqrt(2 / (jnp.pi * variance))
        return Moments(
            student=factor * (state.Q - state.M),
            teacher=factor * (state.M - state.P),
            square=jnp.ones((1, 1)),
            readout=None,
        )

    def known_risk(self, state: dimfree.State) -> Float[Array, ""]:
        return jnp.sqrt(2 * self._variance(state) / jnp.pi)

    @property
    def irreducible_risk(self) -> Float[Array, ""]:
        return jnp.sqrt(2 * self.noise / jnp.pi)

    def _variance(self, state: dimfree.State) -> Float[Array, ""]:
        return (state.Q - 2 * state.M + state.P)[0, 0] + self.noise


if __name__ == "__main__":
    print(dimfree.check(AbsoluteRegression(noise=0.5), dimfree.OnlineSGD(learning_rate=0.5)))
