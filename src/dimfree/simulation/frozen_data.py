"""Training sets that stay the same: stored, or made again from their keys whenever they are needed."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from ..problems.base import is_bounded
from ..problems.field_problem import FieldProblem

_BLOCK = 2**17  # numbers in a block of inputs: they stay in a core's cache between their two uses in a step
_WIDE = 8  # with this many vectors to multiply by, a step computes more than it reads, and one large product is faster


class FrozenData(eqx.Module):
    r"""Inputs $x_\mu \sim N(0, I_d)$, teacher fields and label noise of some datasets, all of the same size.

    The samples of a dataset come in blocks, and the inputs of a block are a function of the dataset's key and the
    block's number only. The last rows of the last block may be there only to fill it; sums leave them out.

    **Attributes:**

    - `keys`: of the inputs of each dataset.
    - `teacher`, `noise`: the teacher fields and the standard normal number of each sample.
    - `stored`: the inputs; None where they are made again in each step.
    - `samples`, `d`: samples in a dataset, and dimension.
    """

    keys: Shaped[Array, "datasets ..."]
    teacher: Float[Array, "datasets blocks rows k"]
    noise: Float[Array, "datasets blocks rows"]
    stored: Float[Array, "datasets blocks rows d"] | None
    samples: int = eqx.field(static=True)
    d: int = eqx.field(static=True)

    @classmethod
    def draw(
        cls, keys: Shaped[Array, "datasets ..."], teacher_weights: Float[Array, "k d"], samples: int, *, store: bool
    ) -> "FrozenData":
        """The datasets of these keys, with the precision of the teacher's weights."""
        d, dtype = teacher_weights.shape[-1], teacher_weights.dtype
        blocks, rows = shape_of_blocks(samples, d)
        pairs = jax.vmap(jax.random.split)(keys)
        noise = jax.vmap(lambda key: jax.random.normal(key, (blocks, rows), dtype))(pairs[:, 1])

        def block(key, number):
            inputs = _inputs(key, number, rows, d, dtype)
            return _product(inputs, teacher_weights) / d**0.5, inputs if store else None

        def dataset(key):
            return jax.lax.map(lambda number: block(key, number), jnp.arange(blocks))

        teacher, stored = jax.lax.map(dataset, pairs[:, 0])
        return cls(pairs[:, 0], teacher, noise, stored, samples, d)

    @property
    def group(self) -> int:
        """How many datasets to treat at once: small ones together, large ones one by one."""
        datasets, blocks, rows = self.noise.shape
        most = max(1, _BLOCK // (blocks * rows * self.d))
        return max(size for size in range(1, min(most, datasets) + 1) if datasets % size == 0)

    def in_one_block(self, vectors: int) -> "FrozenData":
        """The same with all samples of a dataset in one block, where that is faster for so many vectors."""
        if self.stored is None or vectors < _WIDE:
            return self
        teacher, noise, stored = (_merged(part) for part in (self.teacher, self.noise, self.stored))
        return FrozenData(self.keys, teacher, noise, stored, self.samples, self.d)

    # Sums over samples, for all datasets at once.

    @property
    def inside(self) -> Bool[Array, "blocks 1 rows 1"]:
        """Whether a row is a sample, and not there only to fill the last block."""
        _, blocks, rows = self.noise.shape
        return (jnp.arange(blocks * rows) < self.samples).reshape(blocks, 1, rows, 1)

    def _in_blocks(self, array: Shaped[Array, "datasets runs samples"]) -> Shaped[Array, "blocks datasets rows runs"]:
        _, blocks, rows = self.noise.shape
        return jnp.transpose(array.reshape(*array.shape[:2], blocks, rows), (2, 0, 3, 1))

    def sum(self, add: Callable, total: Any, vectors: Float[Array, "datasets n d"], *arrays: Array) -> Any:
        """`add(total, inputs, fields of the vectors, (teacher, noise), *arrays)` over the blocks, each read once."""
        datasets, blocks, rows = self.noise.shape

        def add_block(total, number, samples, arrays):
            inputs, teacher, noise = samples
            if inputs is None:
                inputs = jax.vmap(lambda key: _inputs(key, number, rows, self.d, noise.dtype))(self.keys)
            fields = _product(inputs, vectors) / self.d**0.5
            return add(total, inputs, fields, (teacher, noise), *arrays)

        samples = (self.stored, self.teacher, self.noise)
        if blocks == 1:
            samples, arrays = (jax.tree.map(lambda leaf: leaf[:, 0], samples), tuple(array[0] for array in arrays))
            return add_block(total, jnp.zeros((), int), samples, arrays)
        # One dataset is taken out of its axis, because exchanging two axes would copy all inputs in every step.
        alone = datasets == 1
        samples = jax.tree.map(lambda leaf: leaf[0] if alone else jnp.swapaxes(leaf, 0, 1), samples)

        def step(total, item):
            number, samples, arrays = item
            samples = jax.tree.map(lambda leaf: leaf[None], samples) if alone else samples
            return add_block(total, number, samples, arrays), None

        return jax.lax.scan(step, total, (jnp.arange(blocks), samples, arrays))[0]

    def gradient(
        self,
        problem: FieldProblem,
        weights: Float[Array, "datasets runs p d"],
        readout: Float[Array, "datasets runs n"] | None,
        importance: Float[Array, "datasets runs samples"],
    ) -> tuple[Float[Array, "datasets runs p d"], Bool[Array, "datasets runs"]]:
        """The gradient of each run's weighted sum of losses, and whether a step can be taken."""
        runs, p = weights.shape[1:3]
        importance = jnp.where(self.inside, self._in_blocks(importance), 0)  # (blocks, datasets, rows, runs)

        def add(total, inputs, fields, sample, importance):
            gradient, bounded = total
            fields = fields.reshape(*fields.shape[:2], runs, p)
            slopes = of_samples(_slopes, problem, fields, sample, readout).astype(fields.dtype)
            taken = (importance[..., None] * slopes).reshape(*fields.shape[:2], runs * p)
            possible = jax.vmap(jax.vmap(is_bounded, in_axes=1))(fields, slopes)
            return gradient + pull(inputs, taken), bounded & possible

        nothing = (jnp.zeros((weights.shape[0], runs * p, self.d), weights.dtype), jnp.ones(weights.shape[:2], bool))
        gradient, bounded = self.sum(add, nothing, _flat(weights), importance)
        return gradient.reshape(weights.shape) / self.d**0.5, bounded

    def loss(
        self,
        problem: FieldProblem,
        weights: Float[Array, "datasets runs p d"],
        readout: Float[Array, "datasets runs n"] | None,
    ) -> Float[Array, "datasets runs"]:
        """The mean loss of the training samples."""
        runs, p = weights.shape[1:3]

        def add(total, inputs, fields, sample, inside):
            fields = fields.reshape(*fields.shape[:2], runs, p)
            losses = of_samples(_loss, problem, fields, sample, readout)
            return total + jnp.sum(jnp.where(inside, losses, 0), axis=1, dtype=total.dtype)

        total = self.sum(add, jnp.zeros(weights.shape[:2]), _flat(weights), self.inside)
        return total / self.samples


def shape_of_blocks(samples: int, d: int) -> tuple[int, int]:
    """How many blocks, and rows in each; never a matter of the machine, because the inputs depend on it."""
    blocks = -(-samples // max(16, _BLOCK // d))
    return blocks, -(-samples // blocks)


def _inputs(key, number, rows: int, d: int, dtype) -> Float[Array, "rows d"]:
    return jax.random.normal(jax.random.fold_in(key, number), (rows, d), dtype)


def _product(inputs: Float[Array, "*datasets rows d"], vectors: Float[Array, "*datasets n d"]):
    return jnp.einsum("...bd,...nd->...bn", inputs, vectors, precision=jax.lax.Precision.HIGHEST)


def pull(inputs: Float[Array, "datasets rows d"], numbers: Float[Array, "datasets rows n"]):
    """The sum of the inputs times numbers."""
    if numbers.dtype == jnp.float64 and numbers.shape[-1] > 1:
        # In double precision the product on CPUs is twice as fast if its left factor is laid out by rows first.
        by_rows = jax.lax.optimization_barrier(jnp.swapaxes(numbers, 1, 2))
        return jnp.einsum("gnb,gbd->gnd", by_rows, inputs, precision=jax.lax.Precision.HIGHEST)
    return jnp.einsum("gbn,gbd->gnd", numbers, inputs, precision=jax.lax.Precision.HIGHEST)


def _merged(array: Float[Array, "datasets blocks rows *rest"]) -> Float[Array, "datasets 1 samples *rest"]:
    return array.reshape(array.shape[0], 1, -1, *array.shape[3:])


def _flat(weights: Float[Array, "datasets runs p d"]) -> Float[Array, "datasets n d"]:
    return weights.reshape(weights.shape[0], -1, weights.shape[-1])


def of_samples(function, problem, fields: Float[Array, "datasets rows runs p"], sample, readout):
    """A function of one sample and one run, for all of them."""
    of_run = jax.vmap(lambda *arguments: function(problem, *arguments), in_axes=(0, None, None, 0))
    of_sample = jax.vmap(of_run, in_axes=(0, 0, 0, None))
    return jax.vmap(of_sample)(fields, *sample, readout)


def _slopes(problem: FieldProblem, student, teacher, noise, readout):
    return problem.gradients(student, teacher, noise, readout)[0]


def _loss(problem: FieldProblem, student, teacher, noise, readout):
    return problem.loss(student, teacher, noise, readout)
