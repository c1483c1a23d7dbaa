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

An impulse is `left` times the force at the start of the step plus `right` times that at its end. With everything at the
start it is the algorithm itself, at its learning rate; with both ends it is a trapezoidal rule for the flow, implicit
and of second order, whose steps may be long.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, PRNGKeyArray

from ..algorithms.reused import ReusedData
from ..problems import FieldProblem

_PIVOT = 1e-10  # of the variance: what of a field is not determined by its past, below which all of it is
_IMPLICIT = 12  # Newton steps for the field at the end of a step
_LANDMARK = 0.1  # of the variance: what of a field is not known from the landmarks before, where there is a new one
_SPREAD = 1.7  # variance of the fields at the start that are sampled, in units of the true one
_SHARE = 8  # parts of a step at which it is looked whether a sample is in the batch


class Kernels(eqx.Module):
    """Averages over the samples, and what they make of the weights, at the n + 1 times of a grid.

    **Attributes:**

    - `overlap`: with the teacher of unit norm, shape `(n+1,)`.
    - `correlation`: of the weights orthogonal to it, C.
    - `factor`: a triangular factor of C.
    - `response`: A; `memory`: D; `forces`: F, with the thermal noise on its diagonal.
    - `start_response`: of the weights to those at the start, shape `(n+1,)`.
    - `landmark`: whether a time is one of those at which g is not nearly known from g at earlier ones of them.
    """

    overlap: Float[Array, " times"]
    correlation: Float[Array, "times times"]
    factor: Float[Array, "times times"]
    response: Float[Array, "times n"]
    start_response: Float[Array, " times"]
    landmark: Bool[Array, " times"]
    memory: Float[Array, "n times"]
    forces: Float[Array, "n n"]


class Paths(eqx.Module):
    """A population of samples.

    **Attributes:**

    - `weight`: of each in averages, 1 on average.
    - `teacher`: the teacher field of each, in units of its norm; `noise`: that of its label.
    - `normals`: what the Gaussian part g of its field is made of, at each time.
    - `field`: the part h of its student field, orthogonal to the teacher, at the present time.
    - `tangent`: the derivative of that by g at each time.
    - `impulse`: those of the steps so far; `impulse_tangent`: their derivatives by g at each time.
    - `selected`: whether it is in the batch.
    """

    weight: Float[Array, " paths"]
    teacher: Float[Array, " paths"]
    noise: Float[Array, " paths"]
    normals: Float[Array, "times paths"]
    field: Float[Array, " paths"]
    tangent: Float32[Array, "times paths"]
    impulse: Float[Array, "n paths"]
    impulse_tangent: Float32[Array, "n times paths"]
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
        self, Q: Float[Array, ""], M: Float[Array, ""], normals: Float[Array, "r paths"], key: PRNGKeyArray
    ) -> Population:
        """A population at time 0, whose `normals` are those of the teacher field, the noise and g at each time."""
        steps, paths = self.times.shape[0] - 1, normals.shape[1]
        # Forces grow fast with the fields: more samples where these are large, each of less weight.
        spread = jnp.ones(normals.shape[0]).at[jnp.array([0, 2])].set(jnp.sqrt(_SPREAD))
        normals = spread[:, None] * normals
        weight = _SPREAD * jnp.exp(-0.5 * (1 - 1 / _SPREAD) * (normals[0] ** 2 + normals[2] ** 2))
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
            landmark=jnp.arange(steps + 1) == 0,
            memory=jnp.zeros((steps, steps + 1)),
            forces=jnp.zeros((steps, steps)),
        )
        field = jnp.sqrt(variance) * normals[0]
        population = Paths(
            weight=weight / jnp.mean(weight),
            teacher=teacher,
            noise=noise,
            normals=normals,
            field=field,
            tangent=jnp.zeros((steps + 1, paths), jnp.float32).at[0].set(1.0),
            impulse=jnp.zeros((steps, paths)),
            impulse_tangent=jnp.zeros((steps, steps + 1, paths), jnp.float32),
            selected=self.algorithm.first_selection(key, (paths,)),
        )
        loss = jnp.zeros(steps + 1).at[0].set(_mean(self._loss(field, population, overlap), population))
        return Population(kernels, population, loss, bend=jnp.zeros(steps), rate=jnp.zeros(steps))

    @eqx.filter_jit(donate="all-except-first")
    def advance(self, population: Population, first: Array, last: Array, key: PRNGKeyArray) -> Population:
        """The population after the steps from `first` to `last`."""
        return jax.lax.fori_loop(first, last, lambda k, carry: self._step(carry, k, key), population)

    def _step(self, population: Population, k: Array, key: PRNGKeyArray) -> Population:
        kernels, paths = population.kernels, population.paths
        duration = self.times[k + 1] - self.times[k]
        left, right, selected = self._shares(paths.selected, duration, jax.random.fold_in(key, k))
        force, curvature = self._force(paths.field, paths, kernels.overlap[k])
        left_impulse = left * force
        left_tangent = (left * curvature).astype(jnp.float32) * paths.tangent
        # To begin with, the force at the end of the step is that at its start.
        right_tangent = (right * curvature).astype(jnp.float32) * paths.tangent
        right_tangent = right_tangent.at[k].set(0.0).at[k + 1].set((right * curvature).astype(jnp.float32))
        memory = self._response(left_tangent + right_tangent, paths)
        kernels = self._move_weights(kernels, paths, k, left_impulse + right * force, memory)
        field, force, curvature, impulse = self._move_samples(kernels, paths, k, left_impulse, right)
        own = kernels.response[k + 1, k]
        fading = jnp.tensordot(kernels.response[k + 1].astype(jnp.float32), paths.impulse_tangent, axes=1)
        fading = (fading + own.astype(jnp.float32) * left_tangent).at[k + 1].add(-1.0)

        def tangents(curvature):
            tangent = -fading / (1 + own * right * curvature).astype(jnp.float32)
            return tangent, left_tangent + (right * curvature).astype(jnp.float32) * tangent

        if self.flow:
            memory = self._response(tangents(curvature)[1], paths)
            kernels = self._move_weights(kernels, paths, k, impulse, memory)
            field, force, curvature, impulse = self._move_samples(kernels, paths, k, left_impulse, right)
        tangent, impulse_tangent = tangents(curvature)
        kernels = self._move_weights(kernels, paths, k, impulse, self._response(impulse_tangent, paths))
        bend = self._bend(kernels, paths, k, left, right, field, impulse) if self.flow else jnp.zeros(())
        paths = dataclasses.replace(
            paths,
            field=field,
            tangent=tangent,
            impulse=paths.impulse.at[k].set(impulse),
            impulse_tangent=paths.impulse_tangent.at[k].set(impulse_tangent),
            selected=selected,
        )
        loss = _mean(self._loss(field, paths, kernels.overlap[k + 1]), paths)
        return Population(
            kernels,
            paths,
            training_loss=population.training_loss.at[k + 1].set(loss),
            bend=population.bend.at[k].set(bend),
            rate=population.rate.at[k].set(self.samples * _mean(jnp.abs(curvature), paths)),
        )

    def _bend(self, kernels: Kernels, paths: Paths, k, left, right, field, impulse) -> Float[Array, ""]:
        share = left + right
        late = jnp.where(share > 0, right / jnp.where(share > 0, share, 1.0), 0.5)
        overlap = (kernels.overlap[k] + kernels.overlap[k + 1]) / 2
        halfway = self._force(paths.field + late * (field - paths.field), paths, overlap)[0]
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

    def _move_weights(self, kernels: Kernels, paths: Paths, k, impulse, memory) -> Kernels:
        """The row of time k + 1, from the averages of step k."""
        steps = paths.impulse.shape[0]
        duration = self.times[k + 1] - self.times[k]
        along = self.samples * _mean(paths.teacher * impulse, paths)
        force_row = self.samples * (paths.impulse @ (paths.weight * impulse)) / impulse.size
        thermal = 2 * self.algorithm.temperature_at(self.times[k]) * duration
        force_row = force_row.at[k].set(self.samples * _mean(impulse**2, paths) + thermal)
        forces = kernels.forces.at[k].set(force_row).at[:, k].set(force_row)
        memory = self._with_flips(memory, kernels, paths, k, impulse)
        own = memory[k + 1]
        past = memory.at[k + 1].set(0.0)
        before = (kernels.response[k], kernels.start_response[k], kernels.overlap[k])
        pushed = ((jnp.arange(steps) == k) - past @ kernels.response, -past @ kernels.start_response, -along)
        first_variance = kernels.correlation[0, 0]

        def moved(kept, gained):
            response, start_response, overlap = (kept * old + new for old, new in zip(before, pushed, strict=True))
            scale = gained / (1 + gained * own)
            return scale * response, scale * start_response, gained * overlap

        def norm(kept, gained):
            response, start_response, overlap = moved(kept, gained)
            return start_response**2 * first_variance + response @ forces @ response + overlap**2

        # A flow is symmetric in both ends of a step, also in what keeps the norm.
        if self.algorithm.sphere and self.flow:
            half = _root(lambda half: norm(1 - half, 1 / (1 + half)) - 1, 0.0)
            row = moved(1 - half, 1 / (1 + half))
        elif self.algorithm.sphere:
            row = moved(1.0, _root(lambda gained: norm(1.0, gained) - 1, 1.0))
        else:
            ridge = self.algorithm.ridge * duration
            row = moved(1 - ridge / 2, 1 / (1 + ridge / 2)) if self.flow else moved(1 - ridge, 1.0)
        response = kernels.response.at[k + 1].set(row[0])
        start_response = kernels.start_response.at[k + 1].set(row[1])
        correlation = response @ (forces @ response[k + 1]) + first_variance * start_response * start_response[k + 1]
        correlation = kernels.correlation.at[k + 1].set(correlation).at[:, k + 1].set(correlation)
        return Kernels(
            overlap=kernels.overlap.at[k + 1].set(row[2]),
            correlation=correlation,
            factor=_next_row(kernels.factor, correlation[k + 1], k + 1),
            response=response,
            start_response=start_response,
            landmark=kernels.landmark.at[k + 1].set(_is_landmark(correlation, kernels.landmark, k + 1)),
            memory=kernels.memory.at[k].set(memory),
            forces=forces,
        )

    def _with_flips(self, memory, kernels: Kernels, paths: Paths, k, impulse) -> Float[Array, " times"]:
        r"""The averages of the tangents, corrected such that Stein's lemma holds for g at the landmarks.

        $$ r \langle \varphi_k g_j \rangle = \sum_i D_{ki} C_{ij} $$

        A sample whose field is close to the top of a barrier falls to one side or the other by a small push. Such
        samples are rare, their tangents exponentially large, and an average over a population misses them or is one of
        them. The left side has what they contribute, with the error of any average over the population.
        """
        measured = self.samples * (paths.normals @ (paths.weight * impulse)) / impulse.size
        landmark = kernels.landmark & (jnp.arange(memory.size) <= k)
        missing = kernels.factor @ measured - kernels.correlation @ memory
        system = _among(kernels.correlation, landmark)
        return memory + jnp.linalg.solve(system, jnp.where(landmark, missing, 0.0))

    def _move_samples(self, kernels: Kernels, paths: Paths, k, left_impulse, right):
        """Field, force and its derivative at time k + 1, and the impulse of the step."""
        response = kernels.response[k + 1]
        rest = kernels.factor[k + 1] @ paths.normals - response @ paths.impulse - response[k] * left_impulse
        if not self.flow:
            force, curvature = self._force(rest, paths, kernels.overlap[k + 1])
            return rest, force, curvature, left_impulse

        def newton(_, field):
            force, curvature = self._force(field, paths, kernels.overlap[k + 1])
            slope = jnp.maximum(jnp.abs(1 + response[k] * right * curvature), 0.1)
            return field - (field + response[k] * right * force - rest) / slope

        field = jax.lax.fori_loop(0, _IMPLICIT, newton, paths.field)
        force, curvature = self._force(field, paths, kernels.overlap[k + 1])
        return field, force, curvature, left_impulse + right * force

    def _response(self, tangents: Float32[Array, "times paths"], paths: Paths) -> Float[Array, " times"]:
        return (self.samples * (tangents @ paths.weight.astype(jnp.float32)) / paths.weight.size).astype(float)

    def _loss(self, field, paths: Paths, overlap) -> Float[Array, " paths"]:
        return jax.vmap(self._sample_loss, in_axes=(0, 0, 0, None))(field, paths.teacher, paths.noise, overlap)

    def _force(self, field, paths: Paths, overlap) -> tuple[Float[Array, " paths"], Float[Array, " paths"]]:
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


def _among(correlation: Float[Array, "r r"], chosen: Bool[Array, " r"]) -> Float[Array, "r r"]:
    """The correlation of the chosen times; the others are on their own."""
    return jnp.where(chosen[:, None] & chosen, correlation, jnp.eye(correlation.shape[0]))


def _is_landmark(correlation: Float[Array, "r r"], landmark: Bool[Array, " r"], row) -> Bool[Array, ""]:
    earlier = landmark & (jnp.arange(landmark.size) < row)
    covariances = jnp.where(earlier, correlation[row], 0.0)
    known = covariances @ jnp.linalg.solve(_among(correlation, earlier), covariances)
    return correlation[row, row] - known > _LANDMARK * correlation[row, row]


def _next_row(factor: Float[Array, "r r"], covariances: Float[Array, " r"], row) -> Float[Array, "r r"]:
    """A row more of a triangular factor; a variable that the earlier ones determine gets no column of its own."""
    index = jnp.arange(factor.shape[0])
    pivots = jnp.diagonal(factor)
    # A division by infinity leaves out what has no column of its own.
    triangle = factor + jnp.diag(jnp.where((pivots > 0) & (index < row), 0.0, jnp.inf))
    known = jax.scipy.linalg.solve_triangular(triangle, jnp.where(index < row, covariances, 0.0), lower=True)
    known = jnp.where((index < row) & (pivots > 0), known, 0.0)
    left = covariances[row] - known @ known
    pivot = jnp.sqrt(jnp.where(left > _PIVOT * covariances[row], left, 0.0))
    return factor.at[row].set(known.at[row].set(pivot))
