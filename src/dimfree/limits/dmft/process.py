r"""Dynamical mean-field theory: what survives $d \to \infty$ where the same samples are used again and again.

A step of time moves the weights by $w \leftarrow a (\rho w - \Phi + \text{thermal noise})$, where $\Phi$ collects the
impulses $\varphi_\mu x_\mu / \sqrt d$ of all samples and $a$ is the projection on the sphere. As $d \to \infty$ the
weights orthogonal to the teacher are a Gaussian process with a memory of its own past, and each sample sees

$$ h_j = g_j - \sum_{k<j} A_{jk} \varphi_k, \qquad g \sim N(0, C), $$

where $A$ is the response of the weights to an impulse and $C$ their correlation. Both follow from averages over
samples,

$$ \mu_k = r \langle h_0 \varphi_k \rangle, \qquad F_{kl} = r \langle \varphi_k \varphi_l \rangle, \qquad
   D_{kj} = r \Big\langle \frac{\partial \varphi_k}{\partial g_j} \Big\rangle, \qquad r = \frac{\text{samples}}{d}, $$

by $w_{j+1} = a_j (\rho_j w_j - \sum_{i \le j+1} D_{ji} w_i - \chi_j)$ with $\chi \sim N(0, F)$ plus thermal noise. All
of it at step j needs samples up to step j only, so a population of sample paths is carried forward once, and the
averages are over the population.

The derivatives by g at all earlier times would be a matrix for each sample. Each carries those along one direction
$\xi$ of random signs instead, $\xi$ drawn for itself, and

$$ \Big\langle \frac{\partial \varphi_k}{\partial g_j} \Big\rangle =
   \Big\langle \xi_j \sum_i \frac{\partial \varphi_k}{\partial g_i} \xi_i \Big\rangle, $$

so that memory and cost are those of the fields. What is known without the signs is taken out of that average: the
derivative of a field by g at its own time, and the mean of those by g at earlier ones. Of derivatives by g of long ago
nothing else is kept: there is a number for each earlier time, and the noise of ever more of them would drive a
population away from where it has come to rest. What is missing, Stein's lemma tells, for which g at a few times is
enough.

An impulse is `left` times the force at the start of the step plus `right` times that at its end. With everything at the
start it is the algorithm itself, at its learning rate; with both ends it is a trapezoidal rule for the flow, implicit
and of second order, whose steps may be long.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, PRNGKeyArray

from ...algorithms.reused import ReusedData
from ...problems import FieldProblem
from ...state import STUDENTS
from .factors import invertible, next_column, next_landmark

_IMPLICIT = 12  # Newton steps for the field at the end of a step
_DAMPING = 2.0  # of corrections of an implicit step: the fastest relaxation of weights in units of the mean one
_PER_PULL, _FEWEST, _MOST = 4.0, 3, 12  # corrections, in proportion to how much a step relaxes, within these bounds
_RECENT = 50.0  # how long ago derivatives along the direction are kept, in units of the time over which weights relax
_SPREAD = 1.7  # variance of the fields at the start that are sampled, in units of the true one
_SHARE = 8  # parts of a step at which it is looked whether a sample is in the batch
_WITHIN, _PARTS = np.polynomial.legendre.leggauss(8)  # times in a step, from -1 to 1, at which a temperature is taken


class Kernels(eqx.Module):
    """Averages over the samples, and what they make of the weights, at the n + 1 times of a grid.

    **Attributes:**

    - `overlap`: with the teacher of unit norm, shape `(n+1,)`.
    - `correlation`: of the weights orthogonal to it, C.
    - `factor`: an upper triangular factor U of C = U' U, whose column j makes g at time j of the normals.
    - `response`: A; `memory`: D; `forces`: F, with the thermal noise on its diagonal.
    - `start_response`: of the weights to those at the start, shape `(n+1,)`.
    - `landmarks`: the inverse of such a factor, for those times alone at which g is not nearly known from g at earlier
      ones of them.
    """

    overlap: Float[Array, " times"]
    correlation: Float[Array, "times times"]
    factor: Float[Array, "times times"]
    response: Float[Array, "times n"]
    start_response: Float[Array, " times"]
    landmarks: Float[Array, "times times"]
    memory: Float[Array, "n times"]
    forces: Float[Array, "n n"]


class Row(eqx.Module):
    """What a step adds to the kernels: the rows of `memory` and `forces` at its start, of the others at its end.

    Of the factor, it is the column.
    """

    overlap: Float[Array, ""]
    correlation: Float[Array, " times"]
    factor: Float[Array, " times"]
    response: Float[Array, " n"]
    start_response: Float[Array, ""]
    landmarks: Float[Array, " times"]
    memory: Float[Array, " times"]
    forces: Float[Array, " n"]

    def written(self, kernels: Kernels, k) -> Kernels:
        """The kernels with this row, of step k."""
        return Kernels(
            overlap=kernels.overlap.at[k + 1].set(self.overlap),
            correlation=kernels.correlation.at[k + 1].set(self.correlation).at[:, k + 1].set(self.correlation),
            factor=kernels.factor.at[:, k + 1].set(self.factor),
            response=kernels.response.at[k + 1].set(self.response),
            start_response=kernels.start_response.at[k + 1].set(self.start_response),
            landmarks=kernels.landmarks.at[k + 1].set(self.landmarks),
            memory=kernels.memory.at[k].set(self.memory),
            forces=kernels.forces.at[k].set(self.forces).at[:, k].set(self.forces),
        )


class Tangent(eqx.Module):
    """The derivatives of a field of each path by g.

    **Attributes:**

    - `own`: by g at the same time.
    - `past`: along the path's direction, by g at the times before.
    - `expected`: what the mean over the paths of that by g at each time is about, shape `(times,)`.
    """

    own: Float[Array, " paths"]
    past: Float[Array, " paths"]
    expected: Float[Array, " times"]


class Paths(eqx.Module):
    """A population of samples.

    **Attributes:**

    - `weight`: of each in averages, 1 on average.
    - `teacher`: the teacher field of each, in units of its norm; `noise`: that of its label.
    - `normals`: what the Gaussian part g of its field is made of, at each time.
    - `direction`: of g, with a sign for each time.
    - `field`: the part h of its student field, orthogonal to the teacher, at the present time.
    - `tangent`: the derivatives of that by g.
    - `impulse`: those of the steps so far; `impulse_tangent`: their derivatives along the direction.
    - `selected`: whether it is in the batch.
    """

    weight: Float[Array, " paths"]
    teacher: Float[Array, " paths"]
    noise: Float[Array, " paths"]
    normals: Float[Array, "times paths"]
    direction: Float32[Array, "times paths"]
    field: Float[Array, " paths"]
    tangent: Tangent
    impulse: Float[Array, "n paths"]
    impulse_tangent: Float32[Array, "n paths"]
    selected: Bool[Array, " paths"]


class Population(eqx.Module):
    """Kernels and paths of a DMFT, up to a step.

    **Attributes:**

    - `training_loss`: the mean over the paths at each time.
    - `bend`: how far the impulses of a step, whose forces are those at its ends, are from those with the force half
      way: the root of their mean square times the samples per dimension, shape `(n,)`.
    - `rate`: the mean size of the curvature at the end of a step times the samples per dimension: how fast weights
      relax, shape `(n,)`.
    """

    kernels: Kernels
    paths: Paths
    training_loss: Float[Array, " times"]
    bend: Float[Array, " n"]
    rate: Float[Array, " n"]


class Process(eqx.Module):
    """The DMFT of a problem under an algorithm on a grid of times.

    A variant of the theory is a subclass that overrides `with_flips` (the response) or `move_weights` (a step of the
    weights); both may use `force`. `start` makes a population and `advance` takes it along the grid.

    **Attributes:**

    - `times`: shape `(n+1,)`, from 0.
    - `flow`: whether the learning rate vanishes; otherwise steps of the grid are those of the algorithm.
    """

    problem: FieldProblem
    algorithm: ReusedData
    teacher_norm: Float[Array, ""]
    times: Float[Array, " times"]
    flow: bool = eqx.field(static=True)

    @property
    def samples(self) -> Float[Array, ""]:
        """Samples per dimension."""
        return self.algorithm.samples_per_dimension

    def start(
        self,
        Q: Float[Array, ""],
        M: Float[Array, ""],
        normals: Float[Array, "r paths"],
        key: PRNGKeyArray,
        counted: Bool[Array, " paths"] | None = None,
    ) -> Population:
        """A population at time 0, whose `normals` are those of the teacher field, the noise and g at each time.

        Averages are over the paths that are `counted`, by default over all.
        """
        steps, paths = self.times.shape[0] - 1, normals.shape[1]
        # Forces grow fast with the fields: more samples where these are large, each of less weight.
        spread = jnp.ones(normals.shape[0]).at[jnp.array([0, 2])].set(jnp.sqrt(_SPREAD))
        normals = spread[:, None] * normals
        weight = _SPREAD * jnp.exp(-0.5 * (1 - 1 / _SPREAD) * (normals[0] ** 2 + normals[2] ** 2))
        weight = weight if counted is None else jnp.where(counted, weight, 0.0)
        teacher, noise, normals = normals[0], normals[1], normals[2:]
        overlap = M / self.teacher_norm
        variance = jnp.maximum(Q - overlap**2, 0.0)
        first = jnp.zeros((steps + 1, steps + 1)).at[0, 0]
        kernels = Kernels(
            overlap=jnp.zeros(steps + 1).at[0].set(overlap),
            correlation=first.set(variance),
            factor=first.set(jnp.sqrt(variance)),
            response=jnp.zeros((steps + 1, steps)),
            start_response=jnp.zeros(steps + 1).at[0].set(1.0),
            landmarks=first.set(1 / jnp.sqrt(variance)),
            memory=jnp.zeros((steps, steps + 1)),
            forces=jnp.zeros((steps, steps)),
        )
        field = jnp.sqrt(variance) * normals[0]
        direction, selection = jax.random.split(key)
        population = Paths(
            weight=weight / jnp.mean(weight),
            teacher=teacher,
            noise=noise,
            normals=normals,
            direction=jax.random.rademacher(direction, (steps + 1, paths), jnp.float32),
            field=field,
            tangent=Tangent(own=jnp.ones(paths), past=jnp.zeros(paths), expected=jnp.zeros(steps + 1)),
            impulse=jnp.zeros((steps, paths)),
            impulse_tangent=jnp.zeros((steps, paths), jnp.float32),
            selected=self.algorithm.first_selection(selection, (paths,)),
        )
        loss = jnp.zeros(steps + 1).at[0].set(_mean(self._loss(field, population, overlap), population))
        return Population(kernels, population, loss, bend=jnp.zeros(steps), rate=jnp.zeros(steps))

    @eqx.filter_jit
    def rate(self, population: Population) -> Float[Array, ""]:
        """How fast weights relax at time 0."""
        paths = population.paths
        return self._rate(self.force(paths.field, paths, population.kernels.overlap[0])[1], paths)

    def _rate(self, curvature, paths: Paths) -> Float[Array, ""]:
        return self.samples * _mean(jnp.abs(curvature), paths)

    @eqx.filter_jit(donate="all-except-first")
    def advance(self, population: Population, first: Array, last: Array, key: PRNGKeyArray) -> Population:
        """The population after the steps from `first` to `last`."""
        return jax.lax.fori_loop(first, last, lambda k, carry: self._step(carry, k, key), population)

    def _step(self, population: Population, k: Array, key: PRNGKeyArray) -> Population:
        kernels, paths = population.kernels, population.paths
        duration = self.times[k + 1] - self.times[k]
        left, right, selected = self._shares(paths.selected, duration, jax.random.fold_in(key, k))
        force, curvature = self.force(paths.field, paths, kernels.overlap[k])
        left_impulse, left_slope = left * force, left * curvature
        recent = jnp.exp(-(((self.times[k] - self.times) * self._rate(curvature, paths) / _RECENT) ** 2))
        # To begin with, the force at the end of the step is that at its start, and so are the weights.
        now = paths.tangent
        ending = Tangent(own=jnp.ones(now.own.shape), past=now.past, expected=now.expected)
        pushed = self._pushed(paths, k, recent, left_slope, right * curvature, ending, left_impulse + right * force)
        # What weights do to samples in a step comes back to them with the opposite sign and this many times as large: a
        # correction is taken in part, or those of a long step would grow.
        pull = _mean(right * jnp.abs(curvature), paths) * self.samples
        share = 1 / (1 + _DAMPING * pull)
        triangle = invertible(kernels.factor, k + 1)

        def correct(_, carry):
            pushed, _, _, _, correlation = carry
            row = self.move_weights(kernels, triangle, paths, k, pushed[0], pushed[1], correlation)
            field, curvature, impulse = self._move_samples(row, paths, k, left_impulse, right)
            ending = self._tangent(row.response, kernels.memory, paths, k, left_slope, right * curvature)
            again = self._pushed(paths, k, recent, left_slope, right * curvature, ending, impulse)
            pushed = jax.tree.map(lambda old, new: old + share * (new - old), pushed, again)
            return pushed, field, curvature, ending, row.correlation

        # An explicit step is right at the first.
        corrections = jnp.clip(jnp.ceil(_PER_PULL * pull), _FEWEST, _MOST).astype(int) if self.flow else 1
        carry = (pushed, paths.field, curvature, ending, kernels.correlation[k])
        pushed, field, curvature, ending, correlation = jax.lax.fori_loop(0, corrections, correct, carry)
        impulse, memory, impulse_tangent = pushed
        row = self.move_weights(kernels, triangle, paths, k, impulse, memory, correlation)
        overlap = (kernels.overlap[k] + row.overlap) / 2
        # Thermal noise within a step averages out: what it does to the forces of a path is no error.
        calm = field - jnp.minimum(row.factor[k + 1], jnp.sqrt(self.thermal(k))) * paths.normals[k + 1]
        calm_impulse = left_impulse + right * self.force(calm, paths, row.overlap)[0]
        rate = self._rate(curvature, paths)
        bend = jnp.zeros(())
        if self.flow:
            bend = self._bend(paths, overlap, left, right, calm, calm_impulse) + self._thermal_lag(k, rate)
        paths = dataclasses.replace(
            paths,
            field=field,
            tangent=ending,
            impulse=paths.impulse.at[k].set(impulse),
            impulse_tangent=paths.impulse_tangent.at[k].set(impulse_tangent.astype(jnp.float32)),
            selected=selected,
        )
        loss = _mean(self._loss(field, paths, row.overlap), paths)
        return Population(
            row.written(kernels, k),
            paths,
            training_loss=population.training_loss.at[k + 1].set(loss),
            bend=population.bend.at[k].set(bend),
            rate=population.rate.at[k].set(rate),
        )

    def _pushed(self, paths: Paths, k, recent, left_slope, right_slope, ending: Tangent, impulse):
        """What the samples do in step k: their impulses, the averages of the derivatives, those along the direction."""
        start, end = (_along(tangent, paths, at) for tangent, at in ((paths.tangent, k), (ending, k + 1)))
        memory = self._memory(paths, k, recent, left_slope, right_slope, ending)
        return impulse, memory, left_slope * start + right_slope * end

    def _bend(self, paths: Paths, overlap, left, right, field, impulse) -> Float[Array, ""]:
        share = left + right
        late = jnp.where(share > 0, right / jnp.where(share > 0, share, 1.0), 0.5)
        halfway = self.force(paths.field + late * (field - paths.field), paths, overlap)[0]
        return jnp.sqrt(self.samples * _mean((impulse - share * halfway) ** 2, paths))

    def _shares(self, selected, duration, key):
        """How much of the forces at both ends of a step a sample gets, and whether it is in the batch after it."""
        scale = duration / self.algorithm.batch_fraction
        if not self.flow:
            return scale * selected, jnp.zeros(selected.shape), self.algorithm.next_selection(key, selected, duration)

        def part(carry, number):
            selected, left, right = carry
            place = (number + 0.5) / _SHARE
            left, right = left + selected * (1 - place) / _SHARE, right + selected * place / _SHARE
            following = self.algorithm.next_selection(jax.random.fold_in(key, number), selected, duration / _SHARE)
            return (following, left, right), None

        nothing = jnp.zeros(selected.shape)
        (selected, left, right), _ = jax.lax.scan(part, (selected, nothing, nothing), jnp.arange(_SHARE))
        return scale * left, scale * right, selected

    def move_weights(self, kernels: Kernels, triangle, paths: Paths, k, impulse, memory, correlation) -> Row:
        """The row of time k + 1, from the averages of step k and about what the correlation with that time is.

        The triangle is the factor so far, made invertible.
        """
        steps = paths.impulse.shape[0]
        duration = self.times[k + 1] - self.times[k]
        along = self.samples * _mean(paths.teacher * impulse, paths)
        forces = self.samples * (paths.impulse @ (paths.weight * impulse)) / impulse.size
        forces = forces.at[k].set(self.samples * _mean(impulse**2, paths) + self.thermal(k))
        memory = self.with_flips(memory, kernels, paths, k, impulse, correlation)
        own = memory[k + 1]
        past = memory.at[k + 1].set(0.0)
        before = (kernels.response[k], kernels.start_response[k], kernels.overlap[k])
        pushed = ((jnp.arange(steps) == k) - past @ kernels.response, -past @ kernels.start_response, -along)
        first_variance = kernels.correlation[0, 0]

        def pulled(response):  # by the forces, those of this step included
            return (kernels.forces @ response + forces * response[k]).at[k].set(forces @ response)

        pulls = jnp.stack([pulled(before[0]), pulled(pushed[0])])
        responses, starts, overlaps = (jnp.stack(pair) for pair in zip(before, pushed, strict=True))
        beside = responses @ pulls.T + first_variance * jnp.outer(starts, starts)

        def norm(kept, gained):
            parts, scale = jnp.stack([kept, jnp.ones(())]), gained / (1 + gained * own)
            return scale**2 * (parts @ beside @ parts) + gained**2 * (parts @ overlaps) ** 2

        # A flow is symmetric in both ends of a step, also in what keeps the norm.
        one = jnp.ones(())
        if self.algorithm.sphere and self.flow:
            half = _root(lambda half: norm(1 - half, 1 / (1 + half)) - 1, 0.0)
            kept, gained = 1 - half, 1 / (1 + half)
        elif self.algorithm.sphere:
            kept, gained = one, _root(lambda gained: norm(one, gained) - 1, 1.0)
        else:
            ridge = -self.algorithm.statement.drag[STUDENTS, STUDENTS] * duration
            kept, gained = (1 - ridge / 2, 1 / (1 + ridge / 2)) if self.flow else (1 - ridge, one)
        parts = jnp.stack([kept, one])
        scale = gained / (1 + gained * own)
        response, start_response, pull = scale * parts @ responses, scale * parts @ starts, scale * parts @ pulls
        correlation = kernels.response @ pull + first_variance * kernels.start_response * start_response
        correlation = correlation.at[k + 1].set(response @ pull + first_variance * start_response**2)
        return Row(
            overlap=gained * parts @ overlaps,
            correlation=correlation,
            factor=next_column(triangle, correlation, k + 1),
            response=response,
            start_response=start_response,
            landmarks=next_landmark(kernels.landmarks, correlation, k + 1),
            memory=memory,
            forces=forces,
        )

    def thermal(self, k) -> Float[Array, ""]:
        """The variance that thermal noise adds to a weight in step k.

        A step of the algorithm has the temperature at its start. A flow has that of every moment, and its mean over the
        step: with the temperature at one end the flow would be of first order in the step.
        """
        start, duration = self.times[k], self.times[k + 1] - self.times[k]
        if not self.flow:
            return 2 * self.algorithm.temperature_at(start) * duration
        return duration * jnp.asarray(_PARTS) @ self._temperatures(k)

    def _thermal_lag(self, k, rate) -> Float[Array, ""]:
        """What the variance of a weight that relaxes at this rate misses if the noise of step k comes evenly over it.

        Noise that comes later in the step has relaxed less at its end.
        """
        duration = self.times[k + 1] - self.times[k]
        later = jnp.asarray(_PARTS * _WITHIN) @ self._temperatures(k) * duration**2 / 4
        return 4 * rate * jnp.abs(later)

    def _temperatures(self, k) -> Float[Array, " moments"]:
        """The temperature at some moments of step k."""
        moments = self.times[k] + (1 + jnp.asarray(_WITHIN)) / 2 * (self.times[k + 1] - self.times[k])
        return jax.vmap(lambda time: jnp.broadcast_to(self.algorithm.temperature_at(time), ()))(moments)

    def with_flips(self, memory, kernels: Kernels, paths: Paths, k, impulse, correlation) -> Float[Array, " times"]:
        r"""The averages of the tangents, corrected such that Stein's lemma holds for g at the landmarks.

        $$ r \langle \varphi_k g_j \rangle = \sum_i D_{ki} C_{ij} $$

        A sample whose field is close to the top of a barrier falls to one side or the other by a small push. Such
        samples are rare, their tangents exponentially large, and an average over a population misses them or is one of
        them. The left side has what they contribute, with the error of any average over the population.
        """
        measured = self.samples * (paths.normals @ (paths.weight * impulse)) / impulse.size
        missing = measured @ kernels.factor - kernels.correlation @ memory - correlation * memory[k + 1]
        return memory + (kernels.landmarks @ missing) @ kernels.landmarks

    def _move_samples(self, row: Row, paths: Paths, k, left_impulse, right):
        """The field at time k + 1, the derivative of its force, and the impulse of the step."""
        response = row.response
        rest = row.factor @ paths.normals - response @ paths.impulse - response[k] * left_impulse
        if not self.flow:
            curvature = self.force(rest, paths, row.overlap)[1]
            return rest, curvature, left_impulse

        def newton(_, field):
            force, curvature = self.force(field, paths, row.overlap)
            slope = jnp.maximum(jnp.abs(1 + response[k] * right * curvature), 0.1)
            return field - (field + response[k] * right * force - rest) / slope

        field = jax.lax.fori_loop(0, _IMPLICIT, newton, paths.field)
        force, curvature = self.force(field, paths, row.overlap)
        return field, curvature, left_impulse + right * force

    def _tangent(self, response, memory, paths: Paths, k, left_slope, right_slope) -> Tangent:
        """The derivatives of the field at time k + 1, whose impulse has these slopes at both ends of the step."""
        own = 1 / (1 + response[k] * right_slope)
        fading = response.astype(jnp.float32) @ paths.impulse_tangent
        past = -own * (fading.astype(float) + response[k] * left_slope * _along(paths.tangent, paths, k))
        return Tangent(own, past, expected=-(response.at[k].set(0.0) @ memory) / self.samples)

    def _memory(self, paths: Paths, k, recent, left_slope, right_slope, ending: Tangent) -> Float[Array, " times"]:
        """Averages of the derivatives of the impulse of step k by g at each time, times the samples per dimension.

        What differs between samples is kept in part, `recent`, shape `(times,)`.
        """
        times = jnp.arange(paths.direction.shape[0])
        memory, scatters = jnp.zeros(times.size), []
        for slope, tangent, at in ((left_slope, paths.tangent, k), (right_slope, ending, k + 1)):
            memory = memory.at[at].add(_mean(slope * tangent.own, paths)) + _mean(slope, paths) * tangent.expected
            expected = tangent.expected.astype(jnp.float32) @ paths.direction
            scatters.append(paths.weight * slope * (tangent.past - expected.astype(float)))
        earlier = recent * (paths.direction @ (scatters[0] + scatters[1]).astype(jnp.float32)).astype(float)
        # What has happened at time k matters for the field at the end of the step alone.
        now = jnp.mean(paths.direction[k] * scatters[1])
        memory = memory.at[k].add(now) + jnp.where(times < k, earlier, 0.0) / paths.weight.size
        return self.samples * memory

    def _loss(self, field, paths: Paths, overlap) -> Float[Array, " paths"]:
        return jax.vmap(self._sample_loss, in_axes=(0, 0, 0, None))(field, paths.teacher, paths.noise, overlap)

    def force(self, field, paths: Paths, overlap) -> tuple[Float[Array, " paths"], Float[Array, " paths"]]:
        """The derivative of the loss by the student field, and its second derivative."""

        def force(field, teacher, noise):
            return jax.grad(self._sample_loss)(field, teacher, noise, overlap)

        def both(field, teacher, noise):
            return jax.jvp(lambda h: force(h, teacher, noise), (field,), (jnp.ones(()),))

        return jax.vmap(both)(field, paths.teacher, paths.noise)

    def _sample_loss(self, field, teacher, noise, overlap):
        problem = self.problem
        student, teacher_field = field + overlap * teacher, self.teacher_norm * teacher
        return problem.loss(student[None], teacher_field[None], noise, problem.readout)


def _mean(values: Float[Array, " paths"], paths: Paths) -> Float[Array, ""]:
    return jnp.mean(paths.weight * values)


def _root(function, guess: float) -> Float[Array, ""]:
    """The zero of a function of a number, by Newton's method."""

    def newton(_, at):
        value, slope = jax.jvp(function, (at,), (jnp.ones(()),))
        return at - value / slope

    return jax.lax.fori_loop(0, 20, newton, jnp.asarray(guess))


def _along(tangent: Tangent, paths: Paths, at) -> Float[Array, " paths"]:
    """The derivative of the field of that time along the direction of each path."""
    return tangent.own * paths.direction[at] + tangent.past
