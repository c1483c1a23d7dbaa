"""The covariance of the increment: the diffusion around the ODE, and its linearisation."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..algorithms.online import OnlineAlgorithm
from ..errors import InvalidInput, check_memory, is_concrete, real_array, require, shown
from ..gaussian.rules import TOLERANCE, Accuracy, AnyRule, Averaging, Rule
from ..integration import Found, Settings, paths_at_once, solve_paths
from ..problems import Moments, Problem
from ..problems.base import on_range
from ..problems.inputs import Inputs
from ..state import STUDENTS, TEACHERS, Coordinates, Pair, State, check_state
from ..trajectory import Trajectory, check_starts
from .drift import MeanLimit, ode
from .limit import Averages, Limit


@eqx.filter_jit
def increment_covariance(mean: MeanLimit, alpha: Float[Array, ""] | float, state: State) -> Float[Array, "n n"]:
    r"""Covariance, over samples, of the increment that a sample makes of the coordinates of the State.

    It is that of the whole increment, second-order term included: with the gradient noise alone the variance of Q
    comes out wrong by a factor up to 2.5. In closed form for quadratic networks, else to a hundred times the tolerance
    of the drift.

    Arnaboldi et al. 2023, eq. (62), holds after doubling the learning rate in the terms with the variance of Q.
    """
    problem, algorithm = mean.problem.at(alpha), mean.algorithm
    state = mean.begun(state)
    averaging = mean.averaging.loosened()
    seen, transform = algorithm.seen(state, alpha)
    fields, unseen = problem.inputs.fields(seen), _Unseen.of(problem.inputs, seen)
    parameters = (problem, algorithm, state, unseen, jnp.asarray(alpha, float))
    covariance = problem.increment_covariance(_increment, parameters, fields, averaging, transform)
    if not unseen.regression:
        return covariance
    return covariance + unseen.covariance(problem.mean_moments(fields, averaging, transform), parameters)


def _increment(moments: Moments, parameters) -> Float[Array, " n"]:
    problem, algorithm, state, unseen, alpha = parameters
    increment = algorithm.increment(state, algorithm.limit_moments(unseen.completed(moments)), alpha)
    return algorithm.coordinates(problem).pack(increment)


_LARGEST = 2.0**53  # dimension: up to here whole numbers are numbers in double precision


class _Unseen(eqx.Module):
    r"""The fields f of vectors that a loss does not see: what those that it sees say of them, and what is left.

    $$ f = R u + r, \qquad R = \text{Cov}(f, u) \Omega^+, \qquad \text{Cov}(r) = \text{Cov}(f) - R \Omega R^\top, $$

    with r independent of everything that the loss sees. Where inputs have a spectrum, what each block of them gives to
    the field of any vector is such an f: $\text{Cov}(f_b, u) = \kappa_b G_b$, and different blocks are independent.

    **Attributes:**

    - `regression`: R, of each family of vectors that has such fields; `residual`: Cov(r), of each pair.
    - `weights`: of each block, in the squared length of an input, over d: $\pi_b \kappa_b$.
    """

    regression: dict[str, Float[Array, "blocks _ r"]]
    residual: dict[Pair, Float[Array, "blocks _ blocks _"]]
    weights: Float[Array, " blocks"]

    @staticmethod
    def of(inputs: Inputs, state: State) -> "_Unseen":
        families = state.families[2:] if inputs.isotropic else state.families
        variances, covariance = inputs.eigenvalues[:, None, None], inputs.fields(state).covariance

        def with_seen(family: str) -> Float[Array, "blocks r n"]:
            return variances * state.blocks_with_seen(family)

        solved = jax.vmap(lambda columns: on_range(covariance, columns).T)
        regression = {family: solved(with_seen(family)) for family in families}
        residual = {}
        for f, g in itertools.product(families, families):
            explained = jnp.einsum("bnr,crm->bncm", regression[f], with_seen(g))
            own = jnp.einsum("bnm,bc->bncm", variances * state.blocks_of(f, g), jnp.eye(inputs.blocks))
            residual[f, g] = own - explained
        return _Unseen(regression, residual, inputs.fractions * inputs.eigenvalues)

    def products(self, moments: Moments) -> dict[str, Float[Array, "blocks p _"]]:
        """What is expected of the products of the slopes with unseen fields, given the fields that are seen."""
        with_fields = jnp.concatenate([moments.student, moments.teacher], axis=1)
        return {family: with_fields @ jnp.swapaxes(matrix, 1, 2) for family, matrix in self.regression.items()}

    def completed(self, moments: Moments, products: dict[str, Any] | None = None) -> Moments:
        """Moments in each block, with these products of the slopes with unseen fields, or with what is expected."""
        products = dict(self.products(moments) if products is None else products)
        return Moments(
            student=products.pop(STUDENTS, moments.student[None]),
            teacher=products.pop(TEACHERS, moments.teacher[None]),
            square=self.weights[:, None, None] * moments.square,
            readout=moments.readout,
            own=products,
        )

    def covariance(self, mean: Moments, parameters) -> Float[Array, "n n"]:
        r"""What the rest r adds: the covariance of $s_i r_j$ and $s_k r_l$ is $\mathbb{E}[s_i s_k]$ times that of r."""
        problem, algorithm, state, _, alpha = parameters

        def increment(products):
            moments = algorithm.limit_moments(self.completed(mean, products))
            return algorithm.coordinates(problem).pack(algorithm.increment(state, moments, alpha))

        linear = jax.jacfwd(increment)(self.products(mean))
        return sum(
            (
                jnp.einsum("nbij,ik,bjcl,mckl->nm", linear[f], mean.square, matrix, linear[g])
                for (f, g), matrix in self.residual.items()
            ),
            jnp.zeros(()),
        )


class _Fluctuating(Limit[Trajectory]):
    """What the descriptions of fluctuations share: the ODE that they fluctuate around, and the dimension."""

    mean: MeanLimit
    d: Float[Array, ""]

    @property
    def problem(self) -> Problem:
        return self.mean.problem

    @property
    def algorithm(self) -> OnlineAlgorithm:
        return self.mean.algorithm

    @property
    def own_sources(self) -> tuple[str, ...]:
        return (*self.mean.own_sources, "arnaboldi2023")

    @property
    def averages(self) -> dict[str, Averages]:
        covariance = Averages.by(
            self.mean.averaging.loosened(), self.covariance_expectation, self.covariance_rule, self.covariance_accuracy
        )
        return {**self.mean.averages, "covariance": covariance}

    @property
    def rough(self) -> bool:
        return self.mean.rough

    @property
    def coordinates(self) -> Coordinates:
        """The numbers that move."""
        return self.mean.coordinates

    @property
    def expectation(self) -> str:
        """How the averages of the drift are taken, in words."""
        return self.mean.expectation

    @property
    def covariance_rule(self) -> AnyRule | None:
        """The quadrature of the covariance; None where it is a closed form."""
        return self.problem.covariance_rule(self.mean.averaging.loosened(), self.algorithm.transform)

    @property
    def covariance_expectation(self) -> str:
        """How the averages of the covariance are taken, in words."""
        problem, rule = self.problem, self.covariance_rule
        fields = problem.inputs_per_sample * (problem.width + problem.teacher_width)
        return "closed form" if rule is None else rule.words(fields)

    def covariance_error(self, state: State, alpha: float = 0.0) -> Float[Array, ""]:
        """Estimated error of the covariance at this State from the quadrature: largest entry; zero for closed forms."""
        return jnp.zeros(()) if self.covariance_rule is None else self.covariance_accuracy(state, alpha).error

    def covariance_accuracy(self, state: State, alpha: float = 0.0) -> Accuracy:
        """`covariance_error`, and the largest entry of the covariance, to which its tolerance is relative."""

        def average(by: Averaging):
            values = eqx.tree_at(lambda limit: limit.mean.averaging, self, by).covariance(alpha, state)
            return values, jnp.max(jnp.abs(values))

        return self.mean.averaging.accuracy(self.covariance_rule, average)

    def covariance(self, alpha: Float[Array, ""] | float, state: State) -> Float[Array, "n n"]:
        """Covariance of the coordinates gained per unit of alpha."""
        return increment_covariance(self.mean, alpha, state) / (self.algorithm.batch_size**2 * self.d)


class DiffusionLimit(_Fluctuating):
    r"""The leading fluctuations at large but finite d: a diffusion around the ODE.

    $$ dX = \frac{\mathbb{E}[D]}{B} \, d\alpha + \frac{1}{B \sqrt d} \, \text{Cov}(D)^{1/2} \, dB_\alpha $$

    with D the increment that one sample makes (Ito). Use [`sde`] to make one.
    """

    def __init__(self, mean: MeanLimit, d: Float[Array, ""]):
        self.mean, self.d = mean, d

    @property
    def name(self) -> str:
        return "SDE"

    def drift(self, alpha: Float[Array, ""] | float, state: State) -> State:
        """The drift of the State, that of the ODE."""
        return self.mean.drift(alpha, state)

    @property
    def refuses(self) -> dict[str, str]:
        instead = "its steps are even, so give their number, steps=..."
        return {"relative_tolerance": instead, "absolute_tolerance": instead}

    def prepare(self, start: State, settings: Settings) -> State:
        runs, _ = settings.random
        begin = check_starts(self.problem, start, runs, trained=self.algorithm.readout_rate is not None)
        check_state(begin, sphere=self.algorithm.sphere)
        return self.algorithm.begin(begin)

    def saved_bytes(self, settings: Settings) -> int:
        # A path holds its coordinates at every step, and the noise that moved them.
        size, steps = self.coordinates.size, settings.steps
        paths = min(settings.random[0], paths_at_once(size, steps))
        what = f"{paths:,} paths of {steps:,} steps" if paths > 1 else f"A path of {steps:,} steps"
        check_memory(2 * 8 * steps * size * paths, what, "Take fewer steps, or a smaller network.")
        return super().saved_bytes(settings)

    def integrate(self, start: State, times: Float[Array, " times"], settings: Settings) -> Found:
        runs, key = settings.random
        arrays = solve_paths(self, start, times, jax.random.split(key, runs), settings.steps, settings.stop)
        return Found(arrays, {"d": self.d, "solver": f"Euler-Maruyama, {settings.steps} steps", "key": key})


class LinearNoiseLimit(_Fluctuating):
    r"""The Gaussian fluctuations around the ODE: their covariance along the trajectory.

    $$ \frac{dC}{d\alpha} = J C + C J^\top + \frac{\text{Cov}(D)}{B^2 d}, \qquad C(0) = 0, $$

    with J the Jacobian of the drift. It holds while fluctuations are small, so not through the escape from a plateau.
    Use [`linear_noise`] to make one.
    """

    def __init__(self, mean: MeanLimit, d: Float[Array, ""]):
        self.mean, self.d = mean, d

    @property
    def name(self) -> str:
        return "linear noise"

    def saved_bytes(self, settings: Settings) -> int:
        return super().saved_bytes(settings) + 8 * self.coordinates.size**2

    def initial(self, start: State):
        vector = self.coordinates.pack(start)
        return vector, jnp.zeros((vector.size, vector.size))

    def coordinates_of(self, values):
        return values[0]

    def observed(self, values, like: State) -> dict[str, Any]:
        return {"state": self.coordinates.unpack(values[0], like), "covariance": values[1]}

    def vector_field(self, alpha, values, like: State):
        """Derivatives of the coordinates and of their covariance."""
        coordinates, covariance = values
        drift, jacobian = value_and_jacobian(lambda v: self.mean.vector_field(alpha, v, like), coordinates)
        growth = jacobian @ covariance
        source = self.covariance(alpha, self.coordinates.unpack(coordinates, like))
        return drift, growth + growth.T + source


def value_and_jacobian(function, vector):
    """A function of a vector and its derivative, evaluated once."""
    value, pushforward = jax.linearize(function, vector)
    return value, jax.vmap(pushforward, out_axes=1)(jnp.eye(vector.size))


def sde(
    problem: Problem,
    algorithm: OnlineAlgorithm,
    d: float | Array,
    rule: Rule | None = None,
    *,
    tolerance: float = TOLERANCE,
) -> DiffusionLimit:
    """The diffusion limit: the ODE with the fluctuations that one run has in dimension d.

    **Arguments:**

    - `problem`, `algorithm`, `rule`, `tolerance`: as for [`ode`]; the covariance is taken to a hundred times
      the tolerance.
    - `d`: the dimension; it sets the size of the noise and nothing else.

    **Returns:** a limit, whose runs [`solve`] draws.

    Arnaboldi et al. 2023, eqs. (25), (60), (61); Ben Arous et al. 2022, Theorem 2.2 (for overlaps Q rescaled by
    d^1/2 the covariance there lacks the second-order term of the increment).
    """
    return DiffusionLimit(mean=_checked(ode(problem, algorithm, rule, tolerance=tolerance)), d=as_dimension(d))


def linear_noise(
    problem: Problem,
    algorithm: OnlineAlgorithm,
    d: float | Array,
    rule: Rule | None = None,
    *,
    tolerance: float = TOLERANCE,
) -> LinearNoiseLimit:
    """Gaussian fluctuations around the ODE in dimension d: `solve` gives their covariance along the trajectory.

    **Arguments:** as for [`sde`].

    **Returns:** a limit; the [`Trajectory`] of [`solve`] has the covariance of its coordinates.
    """
    return LinearNoiseLimit(mean=_checked(ode(problem, algorithm, rule, tolerance=tolerance)), d=as_dimension(d))


def _checked(mean: MeanLimit) -> MeanLimit:
    """The limit, or an error where its fluctuations are not known."""
    if mean.algorithm.by_coordinate is not None:
        raise InvalidInput(
            f"{mean.algorithm!r} scales each coordinate of the gradient by itself; its fluctuations are not known. "
            'dimfree.ode has the mean, and dimfree.simulate(..., method="vectors") all of it.'
        )
    if mean.problem.inputs.components > 1 and not mean.problem.inputs.isotropic:
        raise InvalidInput(
            "The inputs are clusters with a spectrum; their fluctuations are known for isotropic clusters only. "
            "dimfree.ode has the mean, and dimfree.simulate all of it."
        )
    if mean.algorithm.joins_batch and mean.algorithm.batch_size > 1:
        raise InvalidInput(
            f"{mean.algorithm!r} changes the gradient by all samples of a batch together; its fluctuations are known "
            "for batch_size=1 only. dimfree.ode has the mean, and dimfree.simulate all of it."
        )
    return mean


def as_dimension(d: float | Array) -> Float[Array, ""]:
    """The dimension as an array, or an error."""
    array = real_array(d, "d", "the dimension, one number of at least 1")
    wrong = f"d = {shown(d)} was given; the dimension must be one number, at least 1 and at most {_LARGEST:g}."
    require(array.ndim == 0, wrong)
    if is_concrete(array):
        require(1 <= float(array) <= _LARGEST, wrong)
    return jnp.asarray(array)
