"""Is every wrong formula caught? Known-wrong variants of the library, each against the tests that should fail.

python tools/mutants.py            # every mutant that is not in docs/data/mutants.csv yet; half an hour on one core
python tools/mutants.py 3 17       # these only, by their number, again
python tools/mutants.py --number 20                                                  # of all formulas, at random
python tools/mutants.py --file src/dimfree/limits/lags.py --number 12 --seed 1       # of one file, the same again
python tools/mutants.py --file src/dimfree/limits/lags.py                            # all of one file

A mutant is a change of one line: a sign, a factor, a term dropped. It is made in a copy of the library, and the tests
named with it, none of them slow, run against the copy; it is killed if one of them fails. The first two commands run
the mutants that are written here, the others what syntax_mutants.py makes of the files in `NOTICED`.
"""

import argparse
import difflib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from fast_compilation import compile_fast
from syntax_mutants import drawn_changes
from table import Table

ROOT = Path(__file__).resolve().parent.parent
TABLE = Table("mutants", ("number", "what", "file", "verdict", "test", "seconds"), keys=("number",))


class Mutant(NamedTuple):
    """One line of a file of the library, what it becomes, and the tests that must notice."""

    what: str
    file: str
    line: str
    becomes: str
    tests: str


SQUARE = "tests/test_square.py"
LAW = "tests/test_exact_in_law.py"
REFERENCE = "tests/test_reference.py"
AVERAGES = "tests/gaussian/test_averages.py"
MEMORY = "tests/test_momentum.py"
SLOPES = "tests/test_slopes.py"
SPECTRUM = "tests/test_spectrum.py"
COORDINATES = "tests/test_coordinate_wise.py"
LINEAR = "tests/test_linear_drifts.py"
OUTPUTS = "tests/test_outputs.py"
TOKENS = "tests/test_tokens.py"
TASKS = "tests/test_tasks.py"
TEACHERS = "tests/analysis/test_many_teachers.py"
MUTANTS = (
    # A step on overlaps.
    Mutant(
        "the sign of the gradient",
        "algorithms/moves.py",
        "total = total + inverse_d * self.pull[one] * along",
        "total = total - inverse_d * self.pull[one] * along",
        LAW,
    ),
    Mutant(
        "no term of second order",
        "algorithms/moves.py",
        "total = total + inverse_d * self.pull[one] * self.pull[other] * moments.square",
        "total = total + 0 * inverse_d * self.pull[one] * self.pull[other] * moments.square",
        LAW,
    ),
    Mutant(
        "the term of second order halved",
        "algorithms/moves.py",
        "total = total + inverse_d * self.pull[one] * self.pull[other] * moments.square",
        "total = total + 0.5 * inverse_d * self.pull[one] * self.pull[other] * moments.square",
        LAW,
    ),
    Mutant(
        "the ridge acts on Q once instead of twice",
        "algorithms/moves.py",
        "a * b * state.blocks_of(first, second)",
        "(b if one == other else a * b) * state.blocks_of(first, second)",
        f"{LAW} tests/test_invariances.py {SQUARE}",
    ),
    Mutant(
        "the sphere leaves M as it is",
        "algorithms/moves.py",
        "blocks = blocks / norms[:, None] if pair[0] == family else blocks",
        "blocks = blocks / norms[:, None] if pair == (family, family) else blocks",
        LAW,
    ),
    Mutant(
        "the readout moves twice as fast",
        "algorithms/online.py",
        "return readout - inverse_d * rate * (gradient + ridge * readout)",
        "return readout - 2 * inverse_d * rate * (gradient + ridge * readout)",
        f"{REFERENCE} {SQUARE}",
    ),
    Mutant(
        "a batch counts as one sample in the term of second order",
        "algorithms/online.py",
        "moments.square / self.batch_size)",
        "moments.square)",
        SQUARE,
    ),
    # The law of the simulation in dimension d.
    Mutant(
        "the unseen part of an input has d degrees of freedom",
        "simulation/exact.py",
        "return jnp.maximum(problem.inputs.sizes(d)[:, None] - fields - jnp.arange(inputs), 0.0)",
        "return jnp.maximum(problem.inputs.sizes(d)[:, None] - jnp.arange(inputs), 0.0)",
        LAW,
    ),
    Mutant(
        "samples of a batch have no overlap outside the weights' span",
        "simulation/exact.py",
        "lower = jnp.where(left[:, columns] > 0, lower.reshape(blocks, len(rows)), 0.0)",
        "lower = jnp.where(left[:, columns] > 0, 0 * lower.reshape(blocks, len(rows)), 0.0)",
        LAW,
    ),
    Mutant(
        "the seen part of an input is left out of its length",
        "problems/field_problem.py",
        "gram = (seen @ jnp.swapaxes(seen, 1, 2) + unseen @ jnp.swapaxes(unseen, 1, 2)) / d",
        "gram = (unseen @ jnp.swapaxes(unseen, 1, 2)) / d",
        LAW,
    ),
    Mutant(
        "clusters have no mean in the simulation",
        "problems/inputs.py",
        "return super().seen(normals, component, teachers) + self.means[component] @ teachers",
        "return super().seen(normals, component, teachers) + 0 * self.means[component] @ teachers",
        f"{SQUARE} {LAW}",
    ),
    Mutant(
        "random students have the overlaps of d + k dimensions",
        "simulation/start.py",
        "left = jnp.maximum(d - k - jnp.arange(p), 0.0)",
        "left = jnp.maximum(d + k - jnp.arange(p), 0.0)",
        f"{LAW} tests/test_invariances.py",
    ),
    # Averages.
    Mutant(
        "Price's theorem without its half",
        "gaussian/means.py",
        "lambda term: 0.5 * jnp.sum(term * d_covariance, axis=(-2, -1))",
        "lambda term: jnp.sum(term * d_covariance, axis=(-2, -1))",
        "tests/test_means.py",
    ),
    Mutant(
        "the derivative of an average over a kink doubled",
        "gaussian/means.py",
        "score = 0.5 * (standardised @ d_covariance @ standardised - jnp.sum(inverse * d_covariance))",
        "score = standardised @ d_covariance @ standardised - jnp.sum(inverse * d_covariance)",
        "tests/test_means.py",
    ),
    Mutant(
        "I3 of erf: the tilt by the student's own slope",
        "gaussian/erf.py",
        "return weighted @ covariance - along * rows",
        "return weighted @ covariance + along * rows",
        "tests/gaussian/test_closed_forms.py",
    ),
    Mutant(
        "I4 of erf: one of two tilts",
        "gaussian/erf.py",
        "tilted = above - one[first] * dual_one[second] - two[first] * dual_two[second]",
        "tilted = above - one[first] * dual_one[second]",
        "tests/gaussian/test_closed_forms.py",
    ),
    Mutant(
        "the square's fourth moment: 8 C S C S C becomes 4",
        "gaussian/polynomial.py",
        "+ 8 * (once * weights) @ covariance[:, :width]",
        "+ 4 * (once * weights) @ covariance[:, :width]",
        "tests/gaussian/test_closed_forms.py",
    ),
    Mutant(
        "label noise is left out of the second-order term",
        "problems/two_layer.py",
        "+ self.noise * found.slopes",
        "+ 0 * found.slopes",
        REFERENCE,
    ),
    # Fluctuations.
    Mutant(
        "the mean of the increment is not taken off its square",
        "problems/field_problem.py",
        "return second - jnp.outer(first, first)",
        "return second",
        f"{REFERENCE} tests/test_fluctuations.py",
    ),
    Mutant(
        "fluctuations of a batch as large as those of a sample",
        "limits/diffusion.py",
        "increment_covariance(self.mean, alpha, state) / (self.algorithm.batch_size**2 * self.d)",
        "increment_covariance(self.mean, alpha, state) / self.d",
        "tests/equations/test_equations.py",
    ),
    Mutant(
        "the covariance grows on one side only",
        "limits/diffusion.py",
        "return drift, growth + growth.T + source",
        "return drift, 0.5 * (growth + growth.T) + source",
        "tests/test_fluctuations.py",
    ),
    Mutant(
        "steps of the diffusion without the root of their length",
        "integration/paths.py",
        "noise = directions @ (jnp.sqrt(jnp.maximum(values, 0.0) * dt) * normals)",
        "noise = directions @ (jnp.sqrt(jnp.maximum(values, 0.0)) * dt * normals)",
        "tests/test_fluctuations.py",
    ),
    Mutant(
        "the noise of a spiked tensor is isotropic",
        "problems/spiked_tensor.py",
        "seen = noise * jnp.array([[k * Q, k * M], [k * M, P + (k - 1) * cosine]])",
        "seen = noise * jnp.array([[Q, M], [M, P]])",
        "tests/test_spiked_tensor.py",
    ),
    # Wide networks.
    Mutant(
        "a wide network's neuron does not meet itself",
        "problems/wide.py",
        "teacher=weights[:, None] * (sums.teacher + (own * alone.growth)[:, None] * state.M),",
        "teacher=weights[:, None] * sums.teacher,",
        "tests/test_wide.py tests/test_mean_field.py",
    ),
    Mutant(
        "the norm outside the teacher's span keeps what moves inside it",
        "limits/mean_field.py",
        "d_q_perp = d_norm - 2 * jnp.sum((d_M @ inverse_P) * state.M, axis=1)",
        "d_q_perp = d_norm - jnp.sum((d_M @ inverse_P) * state.M, axis=1)",
        "tests/test_mean_field.py",
    ),
    # Reused data.
    Mutant(
        "the response with the sign of the memory flipped",
        "limits/dmft/process.py",
        "rest = row.factor @ paths.normals - response @ paths.impulse - response[k] * left_impulse",
        "rest = row.factor @ paths.normals + response @ paths.impulse - response[k] * left_impulse",
        "tests/test_dmft.py",
    ),
    Mutant(
        "forces divided by the batch fraction twice",
        "limits/dmft/process.py",
        "scale = duration / self.algorithm.batch_fraction\n",
        "scale = duration / self.algorithm.batch_fraction**2\n",
        "tests/test_dmft.py",
    ),
    Mutant(
        "thermal noise of half its temperature",
        "limits/dmft/process.py",
        "return 2 * self.algorithm.temperature_at(start) * duration",
        "return self.algorithm.temperature_at(start) * duration",
        "tests/test_dmft.py -k kernels_are_those",
    ),
    Mutant(
        "samples enter and leave the batch without the batch fraction in the rate",
        "algorithms/reused.py",
        "forgotten = -jnp.expm1(-step / (self.batch_fraction * self.persistence))",
        "forgotten = -jnp.expm1(-step / self.persistence)",
        "tests/test_reused_algorithms.py",
    ),
    # Escape.
    Mutant(
        "noise does not dress the start",
        "analysis/exit_formulas.py",
        "spread, collected = 1.0, diffusion / (2 * growth)",
        "spread, collected = 1.0, 0.0",
        "tests/analysis/test_exit_times.py",
    ),
    # Populations of sample paths.
    Mutant(
        "derivatives by fields of any time ago kept, whose noise adds up",
        "limits/dmft/process.py",
        "_RECENT = 50.0  #",
        "_RECENT = 1e6  #",
        "tests/test_dmft.py",
    ),
    Mutant(
        "another population decided on by the error of the finer grid alone",
        "limits/dmft/limit.py",
        'rows = [extrapolated(times, *grids)["M"] for grids in found]',
        'rows = [extrapolated(times, grids[0])["M"] for grids in found]',
        "tests/test_dmft.py -k error_that_is_asked",
    ),
    # Averages to a tolerance.
    Mutant(
        "the curvature dropped from Stein's lemma",
        "gaussian/products.py",
        "(curvatures @ weights)[:, None] * covariance[:width] + (slopes * weights) @ covariance",
        "0 * (curvatures @ weights)[:, None] * covariance[:width] + (slopes * weights) @ covariance",
        f"{AVERAGES}::test_the_drift_of_one_student_by_panels",
    ),
    Mutant(
        "the tabulated output squared after its average",
        "gaussian/products.py",
        "last**2 * mean_square",
        "last**2 * mean**2",
        f"{AVERAGES}::test_squares_over_tables_are_those_over_points",
    ),
    Mutant(
        "the grid that estimates an error is the grid itself",
        "gaussian/rules.py",
        "return jnp.asarray(rows)[replica]",
        "return jnp.asarray(rows)[0 * replica]",
        f"{AVERAGES}::test_stated_errors_bound_true_ones",
    ),
    Mutant(
        "the spacing of a grid does not follow the fields",
        "gaussian/grids.py",
        "frequency, reach = resolution.at(deviations)",
        "frequency, reach = resolution.at(jnp.ones_like(deviations))",
        f"{AVERAGES}::test_the_drift_of_one_student_by_panels",
    ),
    Mutant(
        "the left slope of a piecewise linear output with the wrong sign",
        "gaussian/piecewise_linear.py",
        "return self._slopes * np.array([1.0, -1.0])",
        "return self._slopes * np.array([1.0, 1.0])",
        f"{AVERAGES}::test_functions_that_are_linear_on_either_side_of_zero",
    ),
    Mutant(
        "students' activation in place of the teachers'",
        "gaussian/products.py",
        "return (self.student,) if self.teacher is None else (self.student, self.teacher)",
        "return (self.student,)",
        f"{AVERAGES}::test_students_and_teachers_with_different_activations",
    ),
    # What no test of the fast suite noticed once, and what no mutant had touched.
    Mutant(
        "a schedule one step late in exact simulation",
        "simulation/exact.py",
        "return algorithm.step(state, moments, 1 / d, alpha), bounded",
        "return algorithm.step(state, moments, 1 / d, alpha + algorithm.batch_size / d), bounded",
        f"{LAW}::test_a_steep_schedule_is_that_of_a_loop_by_hand",
    ),
    Mutant(
        "half the covariance of dressed starts",
        "analysis/exit_times.py",
        "values, directions = jnp.linalg.eigh(covariance[-1])",
        "values, directions = jnp.linalg.eigh(0.5 * covariance[-1])",
        "tests/analysis/test_exit_times.py::test_dressed_starts_have_the_spread_of_the_noise_that_was_collected",
    ),
    Mutant(
        "fields of a cluster without their covariances",
        "problems/field_problem.py",
        "return mean(of_fields, variance * covariance, numbers, field_rule, mean=center)",
        "return mean(of_fields, variance * jnp.diag(jnp.diag(covariance)), numbers, field_rule, mean=center)",
        "tests/test_mixture.py::test_xor_has_the_drift_of_its_22_statistics",
    ),
    Mutant(
        "the response of the DMFT without its diagonal",
        "limits/dmft/process.py",
        "memory = memory.at[at].add(_mean(slope * tangent.own, paths))",
        "memory = memory.at[at].add(0 * _mean(slope * tangent.own, paths))",
        "tests/test_dmft.py::test_linear_regression_is_solved_by_its_spectrum",
    ),
    Mutant(
        "noise across the one direction that there is",
        "problems/base.py",
        "normals = jnp.where(in_use | (jnp.cumsum(~in_use) <= room), normals, 0.0)",
        "pass",
        "tests/test_spiked_tensor.py::test_in_one_dimension_x_stays_along_v_and_has_the_law_of_numbers",
    ),
    Mutant(
        "the error of a ratio as if the starts were not common",
        "analysis/uncertainty.py",
        "return standard_error(above - ratio * below) / abs(float(below.mean()))",
        "return float(np.hypot(standard_error(above), ratio * standard_error(below)) / abs(below.mean()))",
        "tests/analysis/test_uncertainty.py",
    ),
    Mutant(
        "axes of a store are not compared with the study",
        "studies/store.py",
        "same = arrays.same_axis(name, self._file_of_axis)",
        "same = True",
        "tests/studies/test_damage.py::test_a_fault_is_said_or_changes_nothing",
    ),
    Mutant(
        "a chunk of the right size is believed",
        "studies/store.py",
        "if written is not None and _digest(content) != written:",
        'if written is not None and len(content) != written["bytes"]:',
        "tests/studies/test_damage.py::test_a_fault_is_said_or_changes_nothing",
    ),
    Mutant(
        "a task may take as long as one with the least runs",
        "studies/patience.py",
        "max(_FLOOR, _FACTOR * self.more * expected)",
        "max(_FLOOR, _FACTOR * expected)",
        "tests/studies/test_hangs.py -k patience",
    ),
    Mutant(
        "the first call of a plan is taken for computing",
        "studies/plan.py",
        "again = _seconds(description, cells) if computing < _LONG else computing",
        "again = first",
        "tests/studies/test_studies.py::test_plan_tells_compiling_from_computing",
    ),
    Mutant(
        "any name of the explorer's server is its own",
        "explorer/guard.py",
        "allowed = name is not None and (name in names or _is_address(name))",
        "allowed = name is not None",
        "tests/explorer/test_serve.py::test_requests_to_another_name_or_by_another_page_are_refused",
    ),
    # Algorithms with vectors of their own.
    Mutant(
        "no term of second order between weights and momentum",
        "algorithms/moves.py",
        "if one in self.pull and other in self.pull:",
        "if one == other and one in self.pull:",
        f"{MEMORY}::test_one_step_is_that_of_the_vectors {MEMORY}::test_momentum_against_a_loop_in_numpy",
    ),
    Mutant(
        "the momentum pushes the weights uphill",
        "algorithms/memory.py",
        "(STUDENTS, family): -rate_at(momentum_rate, alpha)",
        "(STUDENTS, family): rate_at(momentum_rate, alpha)",
        f"{MEMORY}::test_momentum_against_a_loop_in_numpy",
    ),
    Mutant(
        "the momentum does not see the ridge",
        "algorithms/memory.py",
        "                (family, STUDENTS): ridge,\n",
        "",
        f"{MEMORY}::test_momentum_against_a_loop_in_numpy",
    ),
    Mutant(
        "a fixed momentum is SGD at its own rate",
        "algorithms/memory.py",
        "return rate_at(self.rate, alpha) / (1 - rate_at(self.momentum, alpha))",
        "return rate_at(self.rate, alpha)",
        f"{MEMORY}::test_heavy_ball_becomes_sgd_at_a_larger_rate",
    ),
    Mutant(
        "no fluctuations of what the loss does not see",
        "limits/diffusion.py",
        "return covariance + unseen.covariance(",
        "return covariance + 0 * unseen.covariance(",
        "tests/test_fluctuations.py -k momentum",
    ),
    Mutant(
        "a step that jumps is differentiated",
        "algorithms/online.py",
        "if self.move(jnp.zeros(())).jump:",
        "if False:",
        f"{MEMORY}::test_a_step_that_is_not_the_identity_is_refused",
    ),
    Mutant(
        "another number in a function is another program",
        "functions.py",
        'return ("number",), lambda numbers: numbers[place]',
        'return ("number", str(value)), lambda numbers: numbers[place]',
        "tests/test_functions.py::test_another_number_or_lambda_compiles_nothing_new",
    ),
    Mutant(
        "no derivative by the numbers that a table is made of",
        "gaussian/products.py",
        "return found + _through_table(functions[-1].numbers",
        "return found + 0 * _through_table(functions[-1].numbers",
        "tests/test_functions.py::test_a_square_of_four_fields_is_differentiated_through_its_table",
    ),
    Mutant(
        "grids that do not follow the numbers of a function",
        "gaussian/resolution.py",
        "frequencies, reaches = self.table[:, row, column]",
        "frequencies, reaches = 0.5 * self.table[:, row, column]",
        "tests/test_functions.py::test_the_grid_follows_the_numbers_of_a_function",
    ),
    # Equations in symbols.
    Mutant(
        "of overlaps of weights and momentum, only one of the two moves",
        "symbolic/drifts.py",
        "for moved, row, still, column in ((one, i, other, j), (other, j, one, i)):",
        "for moved, row, still, column in ((one, i, other, j), (other, j, one, i))[: 1 + (one == other)]:",
        "tests/equations/test_memory_equations.py -k drift_and_corrector",
    ),
    # Inputs with a spectrum.
    Mutant(
        "blocks have equal parts of the term of second order",
        "problems/inputs.py",
        "square=self.fractions[:, None, None] * weight * moments.square,",
        "square=jnp.ones_like(weight) / self.blocks * moments.square,",
        f"{SPECTRUM} -k loop_in_numpy",
    ),
    Mutant(
        "the eigenvalue of a block counts in the fields, and not in its gradient",
        "problems/inputs.py",
        "return weight * (matrix @ state.blocks_with_seen(family))",
        "return matrix @ state.blocks_with_seen(family)",
        f"{SPECTRUM} -k loop_in_numpy",
    ),
    Mutant(
        "the teachers' part in a block is dropped",
        "problems/inputs.py",
        "return weight * (matrix @ state.blocks_with_seen(family))",
        "return weight * (matrix[:, : state.width] @ state.blocks_of(students, family))",
        f"{SPECTRUM} -k loop_in_numpy",
    ),
    Mutant(
        "what no vector sees has the eigenvalue one",
        "problems/inputs.py",
        "return jnp.sqrt(self.eigenvalues)[:, None, None] * triangle",
        "return triangle",
        f"{SPECTRUM} -k loop_in_numpy",
    ),
    Mutant(
        "no covariance of what different blocks do",
        "limits/diffusion.py",
        "residual[f, g] = own - explained",
        "residual[f, g] = own",
        f"{SPECTRUM} -k fluctuations",
    ),
    Mutant(
        "the means of clusters have the eigenvalues of their spread",
        "problems/inputs.py",
        "family: found.along(family) + moments.own[MEANS] @ state.blocks_of(TEACHERS, family)",
        "family: found.along(family) + moments.own[MEANS] @ state.blocks_of(TEACHERS, family) "
        "* self.eigenvalues[:, None, None]",
        f"{SPECTRUM} -k clusters",
    ),
    Mutant(
        "of an exact mean, samples of a batch share no input",
        "simulation/mean.py",
        "square = square + (batch + 1) / (batch * self.d)",
        "square = square + 2 / (batch * self.d)",
        f"{SPECTRUM} -k its_exact_mean",
    ),
    Mutant(
        "fields at the end of a frozen step are those that were predicted",
        "integration/frozen.py",
        "with_last(last + change @ lasts)",
        "with_last(last)",
        "tests/test_frozen_averages.py -k many_decades",
    ),
    Mutant(
        "the gradient is taken at the weights, whatever the point",
        "algorithms/moves.py",
        "return self.point if family == STUDENTS else {family: 1.0}",
        "return {family: 1.0}",
        f"{SLOPES} -k law_of_overlaps",
    ),
    Mutant(
        "what the gradient has along the average counts as along the weights",
        "algorithms/moves.py",
        "student = (moments.student - sum(others, jnp.zeros(()))) / self.point[STUDENTS]",
        "student = moments.student",
        f"{SLOPES} -k law_of_overlaps",
    ),
    Mutant(
        "of two steps on a batch only the second counts",
        "algorithms/slopes.py",
        "return rate / number(self.learning_rate) * first + slopes(self._moved(fields, gram, first, rate))",
        "return slopes(self._moved(fields, gram, first, rate))",
        f"{SLOPES}::test_steps_are_those_of_a_loop_in_numpy",
    ),
    Mutant(
        "the ridge acts once in two steps",
        "algorithms/slopes.py",
        "-(first + rate) * ridge}",
        "-rate * ridge}",
        f"{SLOPES}::test_steps_are_those_of_a_loop_in_numpy",
    ),
    Mutant(
        "a gradient is clipped by its slopes, whatever the length of the input",
        "algorithms/slopes.py",
        "return jnp.sum((slopes @ slopes.T) * gram) / self.batch_size**2",
        "return jnp.sum((slopes @ slopes.T) * jnp.eye(slopes.shape[0])) / self.batch_size**2",
        f"{SLOPES}::test_steps_are_those_of_a_loop_in_numpy",
    ),
    Mutant(
        "a batch is clipped in the limit as if inputs were isotropic",
        "problems/field_problem.py",
        "gram = problem.inputs.trace * products",
        "gram = products",
        f"{SLOPES} -k together",
    ),
    Mutant(
        "AdaGrad sums twice what it sees",
        "algorithms/norms.py",
        "numbers[GRADIENT_SQUARE] + inverse_d * _total(square)",
        "numbers[GRADIENT_SQUARE] + 2 * inverse_d * _total(square)",
        f"{SLOPES}::test_steps_are_those_of_a_loop_in_numpy",
    ),
    Mutant(
        "clipped gradients do not lower the norm that they are clipped by",
        "algorithms/norms.py",
        "numbers[GRADIENT_SQUARE] + lost * (_total(square) - numbers[GRADIENT_SQUARE])",
        "numbers[GRADIENT_SQUARE] + lost * _total(square)",
        f"{SLOPES}::test_steps_are_those_of_a_loop_in_numpy",
    ),
    Mutant(
        "an average has the overlaps of evenly spread vectors",
        "state.py",
        "(STUDENTS, STUDENTS): self.blocks_of(family, family),",
        "(STUDENTS, STUDENTS): jnp.broadcast_to(jnp.mean(self.blocks_of(family, family), -3, keepdims=True), "
        "self.blocks_of(family, family).shape),",
        f"{SLOPES} -k risk_of_an_average",
    ),
    # Coordinates of the gradient scaled by their own past.
    Mutant(
        "the eigenvalue in the place of its root, in a response to signs",
        "limits/coordinate_wise.py",
        "roots = jnp.sqrt(inputs.eigenvalues)[:, None, None]",
        "roots = inputs.eigenvalues[:, None, None]",
        f"{COORDINATES}::test_sign_descent_of_a_linear_student",
    ),
    Mutant(
        "an eigenvalue in the second-order term of signs",
        "limits/coordinate_wise.py",
        "present = inputs.fractions * (inputs.eigenvalues > 0)",
        "present = inputs.fractions * inputs.eigenvalues",
        f"{COORDINATES}::test_sign_descent_of_a_linear_student",
    ),
    Mutant(
        "the bias of the second moment is not corrected in the limit",
        "limits/coordinate_wise.py",
        "mean = jnp.where(begun, second / jnp.where(begun, weight, 1.0), self._mean_squares(square))",
        "mean = jnp.where(begun, second, self._mean_squares(square))",
        f"{COORDINATES}::test_adam_approaches_its_limit",
    ),
    Mutant(
        "the bias of the first moment is not corrected on vectors",
        "algorithms/coordinate_wise.py",
        "first / first_weight / (root + self.epsilon)",
        "first / (root + self.epsilon)",
        f"{COORDINATES}::test_steps_are_those_of_a_loop_in_numpy",
    ),
    Mutant(
        "the second moment of a batch is that of a sample",
        "limits/coordinate_wise.py",
        "square = jnp.broadcast_to(moments.square, shape) / self.coordinate_rule.batch_size",
        "square = jnp.broadcast_to(moments.square, shape)",
        f"{COORDINATES}::test_the_second_moment_of_a_start_at_rest",
    ),
    Mutant(
        "a response without the other samples of a batch",
        "limits/lags.py",
        "others = (1 + tables.decay) ** (self.batch_size - 1)",
        "others = jnp.ones_like(tables.decay)",
        f"{COORDINATES}::test_averages_with_fixed_betas_are_those_of_samples",
    ),
    Mutant(
        "steps of a coordinate are not correlated",
        "limits/lags.py",
        'later = jnp.einsum("ij,pj->pi", self.apart, tilted)',
        "later = tilted",
        f"{COORDINATES}::test_averages_with_fixed_betas_are_those_of_samples",
    ),
    # Several outputs.
    Mutant(
        "errors of different outputs are not correlated",
        "problems/two_layer.py",
        "mixed = (together - found.gradient_square[first] - found.gradient_square[second]) / 2",
        "mixed = 0 * (together - found.gradient_square[first] - found.gradient_square[second]) / 2",
        f"{OUTPUTS} -k turning",
    ),
    Mutant(
        "a pair of outputs in one order only",
        "problems/two_layer.py",
        "square = square + jnp.sum((pairs + jnp.swapaxes(pairs, 1, 2)) * mixed, axis=0)",
        "square = square + jnp.sum(2 * pairs * mixed, axis=0)",
        f"{OUTPUTS} -k turning",
    ),
    # Samples of several inputs.
    Mutant(
        "gradients of different inputs of a sample are orthogonal",
        "problems/field_problem.py",
        "slopes.T @ teacher, slopes.T @ self.over_batch(1) @ slopes",
        "slopes.T @ teacher, slopes.T @ slopes",
        f"{TOKENS}::test_the_gradient_of_correlated_inputs_is_as_long_as_on_vectors",
    ),
    Mutant(
        "Stein's lemma as if the inputs of a sample were independent",
        "problems/field_problem.py",
        'curvature = jnp.einsum("lm,limj->ij", problem.over_batch(1), curvature)',
        'curvature = jnp.einsum("lilj->ij", curvature)',
        f"{TOKENS}::test_teacher_moments_by_parts_are_plain_averages",
    ),
    Mutant(
        "only the first input of a sample counts",
        "problems/field_problem.py",
        "products = slopes.T @ student, slopes.T @ teacher, slopes.T @ self",
        "products = slopes[:1].T @ student[:1], slopes[:1].T @ teacher[:1], slopes.T @ self",
        f"{TOKENS}::test_the_gradient_of_correlated_inputs_is_as_long_as_on_vectors",
    ),
    # Several tasks.
    Mutant(
        "the variance of a task's inputs is lost in the second order",
        "problems/tasks.py",
        "square=variance * moments.square,",
        "square=moments.square,",
        f"{TASKS} -k averages",
    ),
    Mutant(
        "a task sees the first teachers, not its own, in the pull on all",
        "problems/tasks.py",
        "with_all = jnp.concatenate([state.M, self.view(number) @ state.P])",
        "with_all = jnp.concatenate([state.M, state.P[: task.teacher_width]])",
        f"{TASKS} -k averages",
    ),
    Mutant(
        "the end of a study is measured by the first task",
        "studies/computations.py",
        "return problem.at(alpha).risk(final), jnp.sum",
        "return problem.risk(final), jnp.sum",
        f"{TASKS} -k settings_are_axes",
    ),
    Mutant(
        "over many steps of an exact mean the noise of the slopes does not change",
        "simulation/mean.py",
        "return unbent + from_slope @ slope",
        "return unbent + 0 * (from_slope @ slope)",
        f"{SPECTRUM} -k leaps",
    ),
    Mutant(
        "each block of random features has of the target what it would have alone",
        "problems/random_features.py",
        "inside(of_target / (1 - share))",
        "inside(of_target)",
        "tests/analysis/test_scaling_laws.py -k nothing_is_lost",
    ),
    Mutant(
        "random features miss another part of the target than the map at zero says",
        "problems/random_features.py",
        "return float(y * (energies @ (1 / (variances + y))) + energy)",
        "return float(y * (energies @ (1 / (variances + 2 * y))) + energy)",
        "tests/analysis/test_scaling_laws.py -k nothing_is_lost",
    ),
    # Students that see one teacher each.
    Mutant(
        "pairs do not share their mean error",
        "problems/many_teachers.py",
        "student=_in_blocks(2 * (mean * Q + 2 * own)),",
        "student=_in_blocks(2 * (0 * mean * Q + 2 * own)),",
        f"{TEACHERS} -k all_overlaps",
    ),
    Mutant(
        "the second order of a pair has the error of all but not its own",
        "problems/many_teachers.py",
        "chain = 4 * mean * own + 8 * (Q * own - self.strengths * M * teacher)",
        "chain = 4 * mean * own",
        f"{TEACHERS} -k all_overlaps",
    ),
    Mutant(
        "students without a teacher count once",
        "problems/many_teachers.py",
        "mean = numbers @ Q - a @ P - self.rest_mean",
        "mean = numbers @ jnp.where(a > 0, Q, Q / numbers) - a @ P - self.rest_mean",
        f"{TEACHERS} -k all_overlaps",
    ),
    Mutant(
        "teachers without a student are no noise",
        "problems/many_teachers.py",
        "half = numbers @ (Q**2 - 2 * a * M**2 + a**2 * P**2) + self.rest_square",
        "half = numbers @ (Q**2 - 2 * a * M**2 + a**2 * P**2)",
        f"{TEACHERS} -k all_overlaps",
    ),
    Mutant(
        "the memory of a pair does not see its teacher",
        "problems/many_teachers.py",
        "-4 * self.strengths * M], axis=-1)[:, None, :]",
        "0 * self.strengths * M], axis=-1)[:, None, :]",
        f"{TEACHERS} -k vectors_of_its_own",
    ),
    # Protocols.
    Mutant(
        "the clock of an exact mean begins again in each chunk of steps",
        "simulation/mean.py",
        "number * length + jnp.arange(length, dtype=float)",
        "jnp.arange(length, dtype=float)",
        "tests/analysis/test_protocols.py -k exact_mean",
    ),
    Mutant(
        "every first proposal of a chi-square variable is accepted",
        "gaussian/random_numbers.py",
        "certain = few | (bound * (1 - jnp.abs(y)) > 0.75 * shape * y**4)",
        "certain = few | (bound > 0)",
        f"{LAW}::test_fast_chi_squares_have_their_law",
    ),
    Mutant(
        "every path is moved by the noise of the first",
        "integration/paths.py",
        "(fixed, vectors, normals))",
        "(fixed, vectors, 0 * normals + normals[:, :1]))",
        "tests/test_paths.py",
    ),
    Mutant(
        "the shortest step is one that a late end does not allow to begin",
        "integration/adaptive.py",
        "shortest = 1e-16 * alphas[-1]",
        "shortest = 1e-13 * alphas[-1]",
        "tests/test_frozen_averages.py -k many_decades",
    ),
    Mutant(
        "the size of averages is that of a step on the sphere, from students of length zero",
        "limits/drift.py",
        "rates = jax.tree.leaves(self._gained(alpha, still, part, unscaled=True))",
        "rates = jax.tree.leaves(self._gained(alpha, still, part))",
        "tests/gaussian/test_averages.py -k sphere",
    ),
    Mutant(
        "a run that is looked at seldom also ends where steps are interrupted",
        "simulation/loop.py",
        "seen = made % self.look_every == 0",
        "seen = made >= 0",
        "tests/test_loop.py -k by_hand",
    ),
    # Drifts of a linear network on a spectrum, written out for vectors.
    Mutant(
        "coordinates of a second student scaled by the first's size",
        "limits/coordinate_wise.py",
        "square=scale[..., None] * square * scale[:, None, :],",
        "square=scale[..., None] * square * scale[..., None],",
        f"{LINEAR} -k adam_with_a",
    ),
    Mutant(
        "products with an algorithm's own vectors are not scaled",
        "limits/coordinate_wise.py",
        "own={family: scale[..., None] * products for family, products in moments.own.items()},",
        "own=moments.own,",
        f"{LINEAR} -k adam_with_a",
    ),
    Mutant(
        "with fixed betas an algorithm's own vectors are pulled twice",
        "limits/coordinate_wise.py",
        "own={family: along(family) for family in own},",
        "own={family: 2 * along(family) for family in own},",
        f"{LINEAR} -k signs",
    ),
    Mutant(
        "before the first sample a coordinate is scaled by one",
        "limits/coordinate_wise.py",
        "jnp.where(begun, weight, 1.0), self._mean_squares(square))",
        "jnp.where(begun, weight, 1.0), 1.0)",
        f"{LINEAR} -k adam_with_a",
    ),
    Mutant(
        "a second moment in which fractions of dimensions count",
        "limits/coordinate_wise.py",
        "return jnp.diagonal(square, axis1=1, axis2=2) / self.problem.inputs.fractions[:, None]",
        "return jnp.diagonal(square, axis1=1, axis2=2)",
        f"{LINEAR} -k adam_with_a",
    ),
    Mutant(
        "the signs of two students are one",
        "limits/coordinate_wise.py",
        "return jnp.outer(signs, fields), jnp.outer(signs, signs)",
        "return jnp.outer(signs, fields), jnp.outer(signs, signs) ** 2",
        f"{LINEAR} -k signs",
    ),
    Mutant(
        "the squares of the weights of a mean decay as the weights do",
        "limits/lags.py",
        "(1 - beta1) ** 2 * beta1 ** (2 * numbers)",
        "(1 - beta1) ** 2 * beta1**numbers",
        f"{COORDINATES} -k pairs_of_steps",
    ),
    Mutant(
        "of two steps only the later sees the other",
        "limits/lags.py",
        "np.where(numbers > 0, 2.0, 1.0) * beta1**numbers",
        "beta1**numbers",
        f"{COORDINATES} -k pairs_of_steps",
    ),
    Mutant(
        "the energy of a lag counts its own decay twice",
        "limits/lags.py",
        "self.second, energy / psi)",
        "self.second, energy)",
        f"{COORDINATES} -k every_lag",
    ),
    Mutant(
        "the mean of the gradients begins a step late",
        "limits/lags.py",
        "self.first = shifts((1 - beta1) * beta1**numbers, 1.0)",
        "self.first = shifts((1 - beta1) * beta1 ** (numbers + 1), 1.0)",
        f"{COORDINATES} -k every_lag",
    ),
    Mutant(
        "a batch's norm in the place of its square",
        "algorithms/norms.py",
        "largest = rate_at(self.factor, alpha) * jnp.sqrt(numbers[GRADIENT_SQUARE])",
        "largest = rate_at(self.factor, alpha) * numbers[GRADIENT_SQUARE]",
        f"{LINEAR} -k scaled_by_their_norm",
    ),
    Mutant(
        "the norm is that of the students together in the first block",
        "algorithms/norms.py",
        "return jnp.sum(jnp.trace(square, axis1=-2, axis2=-1))",
        "return jnp.trace(square, axis1=-2, axis2=-1).ravel()[0]",
        f"{LINEAR} -k rates_over_a_norm",
    ),
    Mutant(
        "the rate falls with the square of the norm",
        "algorithms/norms.py",
        "rate = rate_at(self.learning_rate, alpha) / jnp.sqrt(numbers[GRADIENT_SQUARE])",
        "rate = rate_at(self.learning_rate, alpha) / numbers[GRADIENT_SQUARE]",
        f"{LINEAR} -k rates_over_a_norm",
    ),
    Mutant(
        "epsilon under the root, on vectors",
        "algorithms/coordinate_wise.py",
        "ratio = jnp.where(moves, first / first_weight / (root + self.epsilon), 0.0)",
        "ratio = jnp.where(moves, first / first_weight / jnp.sqrt(root**2 + self.epsilon), 0.0)",
        f"{COORDINATES} -k test_steps_are_those_of_a_loop_in_numpy",
    ),
    Mutant(
        "a block's second moment is a mean over all coordinates",
        "algorithms/coordinate_wise.py",
        "return {SECOND_MOMENT: sums / inputs.sizes(d)[:, None], WEIGHT: memory[WEIGHT]}",
        "return {SECOND_MOMENT: sums / d, WEIGHT: memory[WEIGHT]}",
        f"{COORDINATES} -k averages_of_coordinates",
    ),
    Mutant(
        "runs that go on forget the weight of their second moment",
        "algorithms/coordinate_wise.py",
        "WEIGHT: numbers.get(WEIGHT, weight)}",
        "WEIGHT: weight}",
        f"{COORDINATES} -k averages_of_coordinates",
    ),
    Mutant(
        "an average that does not follow the weights",
        "algorithms/memory.py",
        "(AVERAGE, AVERAGE): -forgetting, (AVERAGE, STUDENTS): forgetting}",
        "(AVERAGE, AVERAGE): -forgetting, (AVERAGE, STUDENTS): 0.5 * forgetting}",
        f"{LINEAR} -k momentum_and_an_average",
    ),
    Mutant(
        "a heavy ball makes Nesterov's step",
        "algorithms/memory.py",
        "if self.nesterov else (rate, momentum)",
        "if self.nesterov else (rate * (1 + momentum), momentum**2)",
        f"{SLOPES} -k heavy",
    ),
    Mutant(
        "a gradient at the average, not between",
        "algorithms/memory.py",
        "point={STUDENTS: 1 - share, AVERAGE: share}",
        "point={STUDENTS: share, AVERAGE: 1 - share}",
        f"{LINEAR} -k between_the_weights",
    ),
    Mutant(
        "a decay of weights that grow",
        "algorithms/memory.py",
        "move.drag.get(itself, 0.0) - rate_at(self.decay, alpha)",
        "move.drag.get(itself, 0.0) + rate_at(self.decay, alpha)",
        f"{LINEAR} -k momentum_and_an_average",
    ),
    Mutant(
        "own vectors do not see the eigenvalue of a single block",
        "problems/inputs.py",
        "own = {family: eigenvalue * products for family, products in one.own.items()}",
        "own = one.own",
        f"{LINEAR} -k one_block_is_two",
    ),
    Mutant(
        "an input is as long as its root",
        "problems/inputs.py",
        "return self.fractions @ self.eigenvalues\n",
        "return self.fractions @ jnp.sqrt(self.eigenvalues)\n",
        f"{LINEAR} -k scaled_by_their_norm",
    ),
    Mutant(
        "a single block counts its eigenvalue twice in the second order",
        "problems/inputs.py",
        "square=eigenvalue * one.square",
        "square=eigenvalue**2 * one.square",
        f"{LINEAR} -k one_block_is_two",
    ),
    Mutant(
        "the noise of unseen vectors is that of their overlap",
        "limits/diffusion.py",
        'own = jnp.einsum("bnm,bc->bncm", variances * state.blocks_of(f, g), jnp.eye(inputs.blocks))',
        'own = jnp.einsum("bnm,bc->bncm", state.blocks_of(f, g), jnp.eye(inputs.blocks))',
        f"{LINEAR} -k covariance_of_what",
    ),
    Mutant(
        "blocks have in the square of an input what they have in dimensions",
        "limits/diffusion.py",
        "return _Unseen(regression, residual, inputs.fractions * inputs.eigenvalues)",
        "return _Unseen(regression, residual, inputs.fractions)",
        f"{LINEAR} -k covariance_of_what",
    ),
    Mutant(
        "steps of a batch are as frequent as samples, in the spread",
        "limits/diffusion.py",
        "(self.algorithm.batch_size**2 * self.d)",
        "(self.algorithm.batch_size * self.d)",
        f"{LINEAR} -k covariance_of_what",
    ),
    Mutant(
        "students rest on the other side",
        "limits/drift.py",
        "rest = -(damped * pull)[:, :, None] * (turn.T @ toward)",
        "rest = (damped * pull)[:, :, None] * (turn.T @ toward)",
        f"{LINEAR} -k frozen",
    ),
    Mutant(
        "own vectors stay where averages are frozen",
        "limits/drift.py",
        "return drag + point[family] * move.pull[family] * inputs.eigenvalues[:, None] * curvatures",
        "return drag + move.pull[family] * inputs.eigenvalues[:, None] * curvatures",
        f"{LINEAR} -k frozen",
    ),
    Mutant(
        "the size of an average is that of isotropic inputs",
        "limits/drift.py",
        "jnp.sqrt(jnp.maximum(inputs.eigenvalues[:, None] * norms, 0.0))[:, None, :]",
        "jnp.sqrt(jnp.maximum(norms, 0.0))[:, None, :]",
        f"{LINEAR} -k size_of_what",
    ),
    Mutant(
        "a solver's units do not follow the eigenvalues",
        "limits/drift.py",
        "shares = (1 / jnp.maximum(1.0, self.problem.inputs.eigenvalues))[:, None, None]",
        "shares = jnp.ones((self.problem.inputs.blocks, 1, 1))",
        f"{LINEAR} -k units",
    ),
    Mutant(
        "a switch is seen after the next step, not the nearest",
        "simulation/online.py",
        "steps = jnp.round(problem.jumps * d / batch_size)",
        "steps = jnp.ceil(problem.jumps * d / batch_size)",
        f"{TASKS} -k number_of_steps",
    ),
    Mutant(
        "an entry is called faster that falls as it must",
        "checking.py",
        "if slope < _RATE - self._allowed(name))",
        "if slope < _RATE + self._allowed(name))",
        "tests/test_check.py -k falls_faster",
    ),
    Mutant(
        "a named link is a sum over inputs, not their mean",
        "problems/tokens.py",
        "return jnp.mean(fields**2)",
        "return jnp.sum(fields**2)",
        f"{TOKENS} -k named_link",
    ),
    Mutant(
        "the noise of a sequence is counted twice",
        "problems/tokens.py",
        "return self.noise / 2",
        "return self.noise",
        f"{TOKENS} -k named_link",
    ),
    Mutant(
        "the teacher of attention has the rank of the student",
        "problems/tokens.py",
        "self._matrix(teacher, self.teacher_rank)",
        "self._matrix(teacher, self.rank)",
        f"{TOKENS} -k another_rank",
    ),
    Mutant(
        "teachers of several outputs have the scale of the students",
        "problems/outputs.py",
        "teacher = scale_of(self.normalisation, self.teacher_width) * self.teacher_readout",
        "teacher = self.scale * self.teacher_readout",
        f"{OUTPUTS} -k all_neurons",
    ),
    Mutant(
        "teachers of several outputs have the students' activation",
        "problems/outputs.py",
        "self.teacher_readout @ self.teacher_activation.function(teacher)",
        "self.teacher_readout @ self.activation.function(teacher)",
        f"{OUTPUTS} -k all_neurons",
    ),
    Mutant(
        "one output has classes 1 and -1",
        "problems/outputs.py",
        "jnp.where(target > 0, 1.0, 0.0) if self.outputs == 1",
        "jnp.where(target > 0, 1.0, -1.0) if self.outputs == 1",
        f"{OUTPUTS} -k two_classes",
    ),
    Mutant(
        "the best width of many teachers of a heavy tail",
        "problems/many_teachers.py",
        "size = 1 / (1 + b) if b >= 1 else (2 * b - 1) / (3 * b - 1)",
        "size = 1 / (1 + b) if b >= 1 else (2 * b - 1) / (3 * b + 1)",
        f"{TEACHERS} -k best_width",
    ),
    Mutant(
        "students as long as the squares of the strengths",
        "problems/many_teachers.py",
        "norm = strengths.sum() / width if square else 1.0",
        "norm = (strengths**2).sum() / width if square else 1.0",
        f"{TEACHERS} -k mean_output",
    ),
    Mutant(
        "a pair has half of its own error in the second order",
        "problems/many_teachers.py",
        "chain = 4 * mean * own + 8 * (Q * own",
        "chain = 4 * mean * own + 4 * (Q * own",
        f"{TEACHERS} -k all_overlaps",
    ),
    Mutant(
        "tasks see the first teachers unless told otherwise",
        "problems/tasks.py",
        "jnp.eye(ends[-1])[end - width : end] for",
        "jnp.eye(ends[-1])[:width] for",
        f"{TASKS} -k own_teachers",
    ),
    Mutant(
        "the noise of tasks is that of the first",
        "problems/tasks.py",
        "return self.probabilities @ jnp.stack([task.irreducible_risk for task in self.tasks])",
        "return self.probabilities[0] * self.tasks[0].irreducible_risk",
        f"{TASKS} -k own_teachers",
    ),
    Mutant(
        "a curriculum forgets the variances of its inputs",
        "problems/tasks.py",
        "return cls(tasks, [everyone, everyone], switches, variances=variances)",
        "return cls(tasks, [everyone, everyone], switches)",
        f"{TASKS} -k curriculum_has",
    ),
    Mutant(
        "a group of coordinates has the variance of its first",
        "problems/random_features.py",
        "variances = np.add.reduceat(self.variances, starts) / numbers",
        "variances = self.variances[starts]",
        "tests/analysis/test_scaling_laws.py -k in_groups",
    ),
    Mutant(
        "infinitely many coordinates end with the last group",
        "problems/random_features.py",
        "last ** (1 - 2 * a - 2 * b) / (2 * a + 2 * b - 1),",
        "0 * last ** (1 - 2 * a - 2 * b) / (2 * a + 2 * b - 1),",
        "tests/analysis/test_scaling_laws.py -k tail_that",
    ),
    Mutant(
        "the compute of flat targets has the exponent of their energy alone",
        "problems/random_features.py",
        '"compute": -1 + 1 / (4 * a)}',
        '"compute": -1 + 1 / (2 * a)}',
        "tests/analysis/test_scaling_laws.py -k published",
    ),
    Mutant(
        "the least risk at a compute is beyond the vertex",
        "analysis/scaling_laws.py",
        "middle - 0.25 * (left - right) * shift",
        "middle + 0.25 * (left - right) * shift",
        "tests/analysis/test_scaling_laws.py -k vertex",
    ),
    Mutant(
        "the interval of an exponent is half as wide",
        "analysis/scaling_laws.py",
        "np.nanquantile(slopes, [0.025, 0.975])",
        "np.nanquantile(slopes, [0.25, 0.75])",
        "tests/analysis/test_scaling_laws.py -k interval",
    ),
    Mutant(
        "a batch counts as so many steps in a scaling law",
        "analysis/scaling_laws.py",
        "np.round(samples / algorithm.batch_size)",
        "np.round(samples)",
        "tests/analysis/test_scaling_laws.py -k less_what",
    ),
    Mutant(
        "the mean of a schedule is over all of the time before its last knot",
        "analysis/controls.py",
        "/ (self.times[-1] - self.times[0])",
        "/ self.times[-1]",
        "tests/analysis/test_controls.py -k mean_of_a_schedule",
    ),
    Mutant(
        "shares of tasks are taken in the other order",
        "analysis/controls.py",
        "jnp.concatenate([jnp.ones(1), 1 - shares[::-1]])",
        "jnp.concatenate([jnp.ones(1), 1 - shares])",
        "tests/analysis/test_controls.py -k probabilities",
    ),
    Mutant(
        "what is late counts the less the higher the risk is",
        "analysis/protocol_plans.py",
        "self.times[-1] * (1 + jnp.log(",
        "self.times[-1] * (1 - jnp.log(",
        "tests/analysis/test_controls.py -k come_down",
    ),
    Mutant(
        "an upper bound has the multiplier of a lower one",
        "analysis/protocol_search.py",
        "np.concatenate([of_bounded[low], -of_bounded[high]])",
        "np.concatenate([of_bounded[low], of_bounded[high]])",
        "tests/analysis/test_controls.py -k kept_from_both",
    ),
    Mutant(
        "being beyond an upper bound is a reward",
        "analysis/protocol_search.py",
        "np.maximum(self.lows - bounded, 0.0) + np.maximum(bounded - self.highs, 0.0)",
        "np.maximum(self.lows - bounded, 0.0) - np.maximum(bounded - self.highs, 0.0)",
        "tests/analysis/test_controls.py -k penalised",
    ),
    Mutant(
        "the error of a gain is that of one protocol alone",
        "analysis/protocols.py",
        "gains = simulated[0] - simulated[1]",
        "gains = simulated[0] - simulated[1].mean()",
        "tests/analysis/test_controls.py -k pairs",
    ),
    Mutant(
        "Gaussian sets differ by all that their runs differ by",
        "data/distances.py",
        "np.maximum(outside - inside, 0.0) / each",
        "np.maximum(outside, 0.0) / each",
        "tests/test_data.py -k nested",
    ),
    Mutant(
        "a distance within the tolerance counts if chance takes it beyond",
        "data/distances.py",
        "(size > TOLERANCE + MARGIN * self.errors)",
        "(size > TOLERANCE)",
        "tests/test_data.py -k start_is_not",
    ),
    Mutant(
        "the runs that are needed forget how much sets differ",
        "data/distances.py",
        "left = np.where(wanted > 0, wanted**2 - between, 0.0)",
        "left = np.where(wanted > 0, wanted**2, 0.0)",
        "tests/test_data.py -k runs_that_are_needed",
        # What a mean-field theory of reused data states.
    ),
    Mutant(
        "a flow with the temperature at the start of each step",
        "limits/dmft/process.py",
        "return duration * jnp.asarray(_PARTS) @ self._temperatures(k)",
        "return 2 * self.algorithm.temperature_at(start) * duration",
        "tests/test_dmft.py -k miss_variance",
    ),
    Mutant(
        "the readout of the problem in place of the start's",
        "limits/dmft/limit.py",
        "_with_readout(self.problem, start),",
        "self.problem,",
        "tests/test_dmft.py -k readout_is",
    ),
    Mutant(
        "a few populations as if they were many",
        "limits/dmft/solution.py",
        "scipy.special.stdtrit(number - 1, 0.975)",
        "scipy.special.ndtri(0.975)",
        "tests/test_dmft_errors.py -k students",
    ),
    Mutant(
        "the bias of a finite population is not in its error",
        "limits/dmft/solution.py",
        "np.mean(np.square(shifts), axis=0) if len(shifts) else 0.0",
        "0.0",
        "tests/test_dmft_errors.py -k bias_and",
    ),
    Mutant(
        "the spread at one time alone",
        "limits/dmft/solution.py",
        "np.maximum(variance, nearby)",
        "variance",
        "tests/test_dmft_errors.py -k meet",
    ),
    # What may jump, and what is found out about a function.
    Mutant(
        "points far out count as if there were none near zero",
        "gaussian/rules.py",
        "weights = jax.nn.sigmoid(-excess)",
        "weights = jnp.exp(-excess)",
        "tests/gaussian/test_honest_errors.py -k rare",
    ),
    Mutant(
        "the ratio of densities has that of one field",
        "gaussian/rules.py",
        "excess = 0.5 * (1 - spread**-2) * jnp.sum(nodes**2, axis=1) - dimension * np.log(spread)",
        "excess = 0.5 * (1 - spread**-2) * jnp.sum(nodes**2, axis=1) - np.log(spread)",
        "tests/gaussian/test_honest_errors.py -k few_samples",
    ),
    Mutant(
        "a function that was not seen to jump is smooth",
        "problems/observed.py",
        "self.smooth = is_analytic(program, [place < 3 for place in range(len(program.invars))])",
        "self.smooth = True",
        "tests/test_outputs.py -k accuracy_of_several",
    ),
    Mutant(
        "the nodes of a loss follow from its value",
        "gaussian/resolution.py",
        "return None if slopes is None else highest_degree([polynomial_degree(loss, dimension), slopes + 1])",
        "return polynomial_degree(loss, dimension)",
        "tests/gaussian/test_probing.py -k value_zero_without",
    ),
    Mutant(
        "all shifts of a grid are along its diagonal",
        "gaussian/rules.py",
        "np.array([0.0, 0.5, 0.25, 0.75, 0.125, 0.625, 0.375])[places % 7],",
        "np.zeros(directions),",
        "tests/gaussian/test_probing.py -k diagonals",
    ),
)


def library(mutant: Mutant) -> str:
    """The text of the mutant's file, changed; an error says when the line is not there once."""
    text = (ROOT / "src" / "dimfree" / mutant.file).read_text()
    if text.count(mutant.line) != 1:
        raise ValueError(f"{mutant.file} has {text.count(mutant.line)} lines {mutant.line!r}; a mutant needs one.")
    return text.replace(mutant.line, mutant.becomes)


# The tests that should notice a change of a formula in these files, the likeliest and cheapest first.
NOTICED = {
    "algorithms/coordinate_wise.py": COORDINATES,
    "algorithms/memory.py": f"{LINEAR} {MEMORY} {SLOPES}",
    "algorithms/norms.py": f"{LINEAR} {SLOPES}",
    "limits/coordinate_wise.py": f"{LINEAR} {COORDINATES}",
    "limits/diffusion.py": f"{LINEAR}::test_the_covariance_of_what_a_sample_adds tests/test_fluctuations.py {SPECTRUM}",
    "limits/drift.py": f"{LINEAR} {REFERENCE} {MEMORY} tests/test_frozen_averages.py {AVERAGES}",
    "limits/lags.py": COORDINATES,
    "problems/inputs.py": f"{LINEAR} {SPECTRUM} tests/test_mixture.py",
}
# Lines that compute the same, or as well, in other words: why no test can, or should, notice them.
EQUIVALENT = {
    ("limits/lags.py", "self.weights[self.used :] = (1.0)"): "what is integrated is zero there",
    (
        "limits/coordinate_wise.py",
        "scale = jnp.where(moves, 1 / (jnp.sqrt(jnp.where(moves, mean, (2.0))) + self.coordinate_rule.epsilon), 0.0)",
    ): "any number will do under a root that is not used",
    (
        "limits/diffusion.py",
        "own = (jnp.einsum('bnm,cb->bncm', variances * state.blocks_of(f, g), jnp.eye(inputs.blocks)))",
    ): "the identity is symmetric",
    (
        "algorithms/norms.py",
        "return jnp.where(square > 0, number(self.norm) / jnp.sqrt(jnp.where(square > 0, square, 1.0)), (1.0))",
    ): "slopes of zero stay zero, whatever multiplies them",
}


@contextmanager
def tree() -> Iterator[Path]:
    """A copy of the library and its tests, in which files may be changed."""
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "tree"
        for part in ("src", "tests", "docs/data", "tools"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        for file in ("pyproject.toml", "conftest.py"):
            shutil.copy(ROOT / file, copy)
        yield copy


def failing(copy: Path, file: str, text: str, tests: str) -> str | None:
    """The first test that fails where a file has this text, or None; an error where it cannot be asked."""
    changed = copy / "src" / "dimfree" / file
    before = changed.read_text()
    changed.write_text(text)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests.split()]
    environment = os.environ | {"PYTHONPATH": str(copy / "src")}
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    finally:
        changed.write_text(before)
    failed = [line.split(" ", 1)[1].split(" - ")[0] for line in done.stdout.splitlines() if line.startswith("FAILED")]
    if done.returncode == 0:
        return None
    if not failed:
        raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
    return failed[0]


def changed_lines(before: str, after: str) -> list[str]:
    """What a change takes from a file and adds to it, with - and +."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    return [line for line in lines if not line.startswith(("---", "+++", "@@"))]


def written(numbers: list[int]) -> None:
    """Run the mutants that are written here, and keep what became of them."""
    compile_fast()  # asked once, not in each process of tests
    with tree() as copy:
        for number, mutant in enumerate(MUTANTS, 1):
            if (number not in numbers) if numbers else ((number,) in TABLE):
                continue
            began = time.perf_counter()
            test = failing(copy, mutant.file, library(mutant), mutant.tests) or ""
            seconds, verdict = round(time.perf_counter() - began), "killed" if test else "survives"
            print(f"{number:2d} {verdict:9s} {mutant.what} ({seconds} s) {test}", flush=True)
            TABLE.add(
                {
                    "number": number,
                    "what": mutant.what,
                    "file": mutant.file,
                    "verdict": verdict,
                    "test": test.removeprefix("tests/"),
                    "seconds": seconds,
                }
            )
    verdicts = [row["verdict"] for row in TABLE.rows().values()]
    print(f"{verdicts.count('killed')} of {len(MUTANTS)} killed")


def made(files: list[str], number: int | None, seed: int) -> int:
    """Run mutants made of these files, and show those that no test notices: how many there are."""
    rng, drawn = random.Random(seed), []
    for file in files:
        source = (ROOT / "src" / "dimfree" / file).read_text()
        for change in drawn_changes(source, rng):
            lines = changed_lines(source, change.of(source))
            if not any((file, line[1:].strip()) in EQUIVALENT for line in lines if line.startswith("+")):
                drawn.append((file, change, source, lines))
    if len(files) > 1:
        rng.shuffle(drawn)
    drawn = drawn[:number]
    print(f"{len(drawn)} mutants with --seed {seed}", flush=True)
    surviving = []
    compile_fast()
    with tree() as copy:
        for file, change, source, lines in drawn:
            began = time.perf_counter()
            try:
                test = failing(copy, file, change.of(source), NOTICED[file])
            except RuntimeError as error:
                test = f"does not load: {str(error).strip().splitlines()[-1]}"
            shown = f"{file}:{change.line} {change.what}\n  " + "\n  ".join(line.strip() for line in lines)
            surviving += [] if test else [shown]
            seconds = round(time.perf_counter() - began)
            print(f"{'killed' if test else 'SURVIVES'} ({seconds} s) {shown}\n  {test or ''}", flush=True)
    print(f"{len(surviving)} of {len(drawn)} survive, --seed {seed}", *surviving, sep="\n")
    return len(surviving)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("numbers", nargs="*", type=int, help="of mutants that are written here")
    parser.add_argument("--file", action="append", help="make mutants of this file; may be given more than once")
    parser.add_argument("--number", type=int, help="how many, at random; all if left out")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of what is drawn")
    given = parser.parse_args()
    if given.file is None and given.number is None:
        written(given.numbers)
        return
    files = [file.removeprefix("src/dimfree/") for file in given.file or NOTICED]
    if unknown := set(files) - set(NOTICED):
        parser.error(f"no tests are named in NOTICED for {', '.join(sorted(unknown))}")
    sys.exit(made(files, given.number, given.seed) > 0)


if __name__ == "__main__":
    main()
