"""Averages over a wide network at a cost proportional to its width."""

from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..batches import sum_over_blocks
from ..gaussian.grids import Grid, average_over_grid
from ..gaussian.half_range import HalfRange
from ..gaussian.means import FieldRule
from ..gaussian.one_field import own_averages, smoothed
from ..gaussian.rules import Averaging, GaussHermite, Rule, Sobol, Trapezoid, shifts_of
from ..state import WideState

if TYPE_CHECKING:
    from .two_layer import Network

_GRID_POINTS = {1: 2**11, 2: 2**16, 3: 2**18}  # of a grid over the teacher's fields, at most
_KINK_NODES = {1: 32, 2: 16, 3: 8}  # on each half-line, where the target has a kink
_SOBOL = 2**12  # points, where the teacher has more directions
_POINTS = 2**16  # what a rule that is exact for polynomials may take
_BLOCK_NUMBERS = 2**19  # numbers of nodes times neurons that are held at once


class NeuronMoments(eqx.Module):
    r"""The mean of what a step needs to know, neuron by neuron.

    With $s_i = \partial \text{loss} / \partial \lambda_i$ and $\lambda^\perp_i$ the part of the field that the teacher
    does not see: `teacher` $\mathbb{E}[s_i \lambda^*_r]$, shape `(p, k)`; `orthogonal`
    $\mathbb{E}[s_i \lambda^\perp_i]$, `square` $\mathbb{E}[s_i^2]$ and `readout`
    $\mathbb{E}[\partial \text{loss} / \partial a_i]$, shape `(p,)`.
    """

    teacher: Float[Array, "p k"]
    orthogonal: Float[Array, " p"]
    square: Float[Array, " p"]
    readout: Float[Array, " p"]


class _Sums(eqx.Module):
    """Averages over the teacher's fields, for each neuron and for all."""

    teacher: Float[Array, "p k"]
    orthogonal: Float[Array, " p"]
    square: Float[Array, " p"]
    readout: Float[Array, " p"]
    error_square: Float[Array, ""]


def teacher_rule(problem: "Network", averaging: Averaging) -> Rule | HalfRange | Trapezoid:
    """The quadrature over the teacher's fields: the one asked for, or the library's choice."""
    if averaging.rule is not None:
        return averaging.rule
    k, exact = problem.teacher_width, problem.exact_nodes
    if exact is not None and exact**k <= _POINTS:
        return GaussHermite(exact)
    if k not in _KINK_NODES:
        return Sobol(_SOBOL)
    if problem.smooth:
        return Trapezoid(problem.resolution(averaging.tolerance, 2), averaging.tolerance)
    return HalfRange(_KINK_NODES[k])


def neuron_moments(problem: "Network", state: WideState, averaging: Averaging) -> NeuronMoments:
    r"""The moments of every neuron, at a cost proportional to their number.

    Given the teacher's fields the neurons of a [`WideState`] are independent, so that a neuron sees of the others their
    mean output only. With $c_i$ the weight of neuron i in the output, $A_i$ its mean output given the teacher's fields
    $z$, and $F = \sum_j c_j A_j - y$,
    $$ \mathbb{E}[s_i \lambda^*] = c_i \, \mathbb{E}_z[\lambda^* A_i' F_{\setminus i}] + c_i^2 v'(Q_{ii}) M_i, \qquad
       \mathbb{E}[s_i \lambda^\perp_i] = c_i q_i \, \mathbb{E}_z[A_i'' F_{\setminus i}] + c_i^2 v'(Q_{ii}) q_i, $$
    where $F_{\setminus i}$ is without the neuron's own part, which is the term with $v(Q) = \mathbb{E}[g^2]$. At finite
    d the angles between neurons have variance $1/n$, $n = d - k$, and pairs get the second order of their expansion
    in them, $\tfrac{1}{2n} q_i q_j \mathbb{E}_z[A_i'' A_j'']$ for the outputs, again a product.
    """
    sums = _sums(problem, state, averaging)
    weights, own = _output_weights(problem, state)
    alone = own_averages(problem.activation, state.norms, averaging)
    return NeuronMoments(
        teacher=weights[:, None] * (sums.teacher + (own * alone.growth)[:, None] * state.M),
        orthogonal=weights * (sums.orthogonal + own * alone.growth * state.q_perp),
        square=weights**2 * (sums.square + own**2 * alone.slope_square_output_square),
        readout=problem.scale * (sums.readout + own * alone.output_square),
    )


def wide_risk(problem: "Network", state: WideState, averaging: Averaging) -> Float[Array, ""]:
    r"""The mean loss, $\tfrac12 \big( \mathbb{E}_z[F^2] + \sum_i c_i^2 \mathbb{E} \text{Var}(g_i | z) + \text{noise}
    \big)$, at a cost proportional to the width; the sum over neurons is that of the diagonal.
    """
    _, own = _output_weights(problem, state)
    alone = own_averages(problem.activation, state.norms, averaging)
    pairs = _sums(problem, state, averaging).error_square
    return 0.5 * (pairs + jnp.sum(own**2 * alone.output_square) + problem.noise)


def _output_weights(problem: "Network", state: WideState) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
    """The weight of each neuron in the output, and that with which it meets itself: none in a density."""
    weights = problem.scale * problem.readout_of(state)
    return weights, jnp.zeros_like(weights) if state.density else weights


def _sums(problem: "Network", state: WideState, averaging: Averaging) -> _Sums:
    rule = teacher_rule(problem, averaging)
    factor = jnp.linalg.cholesky(state.P)
    along = jax.scipy.linalg.solve_triangular(factor, state.M.T, lower=True).T  # fields of students in the nodes' frame
    weights, own = _output_weights(problem, state)

    def over(normals, chances):
        teacher = normals @ factor.T
        neuron = smoothed(problem.activation, normals @ along.T, state.q_perp, averaging)
        error = neuron.output @ weights - jax.vmap(problem.target)(teacher)
        bend = neuron.curvature @ weights
        # What each neuron sees of the others, with the weight of the node.
        others = error[:, None] - own * neuron.output
        by_mean = chances[:, None] * others
        by_angle = 0.5 * state.cosine_variance * chances[:, None] * (bend[:, None] - own * neuron.curvature)
        scatter = own**2 * (neuron.output_square - neuron.output**2)
        square = others**2 + jnp.sum(scatter, axis=1, keepdims=True) - scatter + problem.noise
        per_neuron = neuron.slope_square * square + 2 * own * neuron.slope_square_output * others
        own_pairs = own**2 * (neuron.output**2 + 0.5 * state.cosine_variance * neuron.curvature**2)
        pairs = error**2 + 0.5 * state.cosine_variance * bend**2 - jnp.sum(own_pairs, axis=1)
        return _Sums(
            teacher=(neuron.slope * by_mean + neuron.slope_curvature * by_angle).T @ teacher,
            orthogonal=jnp.sum(
                neuron.curvature * (by_mean + 2 * by_angle) + neuron.second_curvature * by_angle, axis=0
            ),
            square=chances @ per_neuron,
            readout=jnp.sum(neuron.output * by_mean + neuron.curvature * by_angle, axis=0),
            error_square=chances @ pairs,
        )

    if isinstance(rule, Trapezoid):
        deviations = jnp.maximum(jnp.linalg.norm(factor, axis=0), jnp.max(jnp.abs(along), axis=0))
        most = _GRID_POINTS[problem.teacher_width]
        grid = Grid(
            jax.lax.stop_gradient(deviations), rule.resolution, shifts_of(averaging.replica, deviations.shape[0]), most
        )
        block = int(np.clip(_BLOCK_NUMBERS // problem.width, 32, 512))
        return average_over_grid(over, grid, block, blocks=-(-most // block))
    if isinstance(rule, HalfRange):
        # Both rules are known here, and which of the two is taken is not.
        return jax.lax.cond(
            averaging.replica > 0,
            lambda: over(*map(jnp.asarray, rule.fewer().points(problem.teacher_width))),
            lambda: over(*map(jnp.asarray, rule.points(problem.teacher_width))),
        )
    nodes, node_weights = FieldRule(rule, 1, problem.smooth, averaging.replica).points(problem.teacher_width)
    blocks = -(-len(node_weights) * problem.width // _BLOCK_NUMBERS)
    return sum_over_blocks(over, (nodes, node_weights), blocks)
