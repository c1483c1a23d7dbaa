"""Optimisers of optax: the same steps as those of optax itself, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import dimfree
from dimfree.problems import Draws
from dimfree.simulation.vectors import advance

D, STEPS = 40, 12
COSINE = optax.cosine_decay_schedule(0.3, 10)
JUMPS = optax.piecewise_constant_schedule(0.3, {3: 0.5, 7: 0.1})

CHAINS = {
    "sgd": optax.sgd(0.3),
    "sgd, cosine": optax.sgd(COSINE),
    "sgd, a schedule with jumps": optax.sgd(JUMPS),
    "heavy ball": optax.sgd(0.1, momentum=0.8),
    "heavy ball, cosine": optax.sgd(COSINE, momentum=0.8),
    "nesterov": optax.sgd(0.1, momentum=0.8, nesterov=True),
    "nesterov, ridge": optax.chain(optax.add_decayed_weights(0.02), optax.sgd(0.1, momentum=0.8, nesterov=True)),
    "ridge": optax.chain(optax.add_decayed_weights(0.02), optax.sgd(0.3)),
    "ridge, cosine": optax.chain(optax.add_decayed_weights(0.02), optax.sgd(COSINE)),
    "ridge in the momentum": optax.chain(optax.add_decayed_weights(0.02), optax.sgd(COSINE, momentum=0.8)),
    "decay apart": optax.chain(optax.trace(0.8), optax.add_decayed_weights(0.02), optax.scale_by_learning_rate(COSINE)),
    "decay without a rate": optax.chain(optax.sgd(COSINE), optax.add_decayed_weights(-0.02)),
    "decay with a schedule": optax.chain(optax.add_decayed_weights(JUMPS), optax.sgd(0.1)),
    "rate before the momentum": optax.chain(
        optax.scale(0.5), optax.add_decayed_weights(0.02), optax.scale(-0.2), optax.trace(0.8)
    ),
    "clipped": optax.chain(optax.clip_by_global_norm(0.1), optax.sgd(0.3)),
    "clipped, all at once": optax.chain(
        optax.clip_by_global_norm(0.1),
        optax.add_decayed_weights(0.02),
        optax.trace(0.8, nesterov=True),
        optax.add_decayed_weights(0.01),
        optax.scale_by_learning_rate(COSINE),
    ),
    "adam": optax.adam(0.05, eps=0.01),
    "adam, cosine": optax.adam(COSINE),
    "adamw, clipped": optax.chain(optax.clip_by_global_norm(0.1), optax.adamw(0.05, weight_decay=0.02)),
    "sign": optax.sign_sgd(0.05),
    "by name": optax.named_chain(("first", optax.add_decayed_weights(0.02)), ("second", optax.sgd(0.3))),
}


PROBLEM = dimfree.TwoLayer(2, 1, "erf")


def loss(weights, teacher, x):
    """That of the problem, by hand: a function of W x / d^1/2, averaged over the batch."""

    def output(rows):
        return jnp.mean(jax.lax.erf(x @ rows.T / (2 * D) ** 0.5), axis=1)

    return jnp.mean((output(weights) - output(teacher)) ** 2) / 2


@pytest.mark.parametrize("name", CHAINS)
def test_steps_are_those_of_optax(name):
    """Explicit inputs; optax has the gradient of the loss by hand, dimfree that of the problem."""
    transformation, batch_size = CHAINS[name], 3
    algorithm = dimfree.from_optax(transformation, d=D, batch_size=batch_size)
    rng = np.random.default_rng(0)
    first, teacher = jnp.asarray(rng.normal(size=(2, D))), jnp.asarray(2 * rng.normal(size=(1, D)))
    inputs, gradient = jnp.asarray(rng.normal(size=(STEPS, batch_size, D))), jax.jit(jax.grad(loss))
    weights, state = first, transformation.init(first)
    vectors = {"students": first, "teachers": teacher} | {family: 0 * first for family in algorithm.own}
    readout, numbers, scaling = PROBLEM.readout, algorithm.measured(1, 2), algorithm.by_coordinate
    numbers = numbers if scaling is None else scaling.loaded(numbers, 2, PROBLEM.inputs, D)
    for step, x in enumerate(inputs):
        updates, state = transformation.update(gradient(weights, teacher, x), state, weights)
        weights = optax.apply_updates(weights, updates)
        draws = Draws(normals=x, noise=jnp.zeros(batch_size), choice=jnp.zeros(batch_size))
        alpha = jnp.asarray(step * batch_size / D)
        (vectors, _, numbers), _ = advance(PROBLEM, algorithm, vectors, readout, numbers, draws, alpha)
        np.testing.assert_allclose(vectors["students"], weights, atol=1e-12)
    assert float(jnp.max(jnp.abs(vectors["students"] - first))) > 0.01


def test_what_they_are_called():
    plain = dimfree.from_optax(optax.chain(optax.add_decayed_weights(1e-3), optax.sgd(0.1)), d=500)
    assert type(plain) is dimfree.OnlineSGD  # what all limits and analyses take
    np.testing.assert_allclose(plain.ridge, 0.5)
    ball = dimfree.from_optax(optax.sgd(0.1, momentum=0.9), d=500, batch_size=4)
    assert type(ball) is dimfree.HeavyBall
    assert ball.batch_size == 4


def test_a_schedule_is_read_at_alpha():
    """The limit of a schedule stated in steps is that of the same in alpha, and Nesterov's that of a heavy ball."""
    problem, start, d = dimfree.TwoLayer(1, 1, "erf"), dimfree.State(Q=[[1.0]], M=[[0.1]]), 1000
    stated = dimfree.from_optax(optax.sgd(optax.cosine_decay_schedule(0.3, 2 * d), momentum=0.7, nesterov=True), d=d)
    by_hand = dimfree.OnlineSGD(lambda alpha: 0.5 * (1 + jnp.cos(jnp.pi * jnp.minimum(alpha, 2.0) / 2)))
    ends = [dimfree.solve(dimfree.ode(problem, each), start, 3.0).final for each in (stated, by_hand)]
    np.testing.assert_allclose(ends[0].M, ends[1].M, atol=1e-7)


def masked(factor):
    return optax.masked(optax.scale(factor), True)


REFUSED = {
    "optax.scale_by_lion is not one that dimfree knows; it knows add_decayed_weights": optax.lion(0.1),
    "optax.scale_by_rss is not one": optax.adagrad(0.1),
    "optax.masked is not one": optax.chain(masked(1.0), optax.sgd(0.1)),
    "optax.MultiSteps is not one": optax.MultiSteps(optax.sgd(0.1), 2),
    "optax.inject_hyperparams is not one": optax.inject_hyperparams(optax.sgd)(learning_rate=0.1),
    "optax.clip_by_global_norm after what is not the gradient": optax.chain(
        optax.add_decayed_weights(0.1), optax.clip_by_global_norm(1.0), optax.sgd(0.1)
    ),
    "optax.scale_by_rms is not one": optax.rmsprop(0.1),
    "optax.scale_by_adam was given nesterov = True": optax.nadam(0.1),
    "optax.scale_by_adam after what is not the gradient": optax.chain(optax.add_decayed_weights(0.1), optax.adam(0.1)),
    "optax.trace after scaling": optax.chain(optax.scale_by_sign(), optax.sgd(0.1, momentum=0.9)),
    "optax.trace twice": optax.chain(optax.trace(0.9), optax.sgd(0.1, momentum=0.9)),
    "a schedule before optax.trace": optax.chain(optax.sgd(COSINE), optax.trace(0.9)),
    "an accumulator_dtype": optax.sgd(0.1, momentum=0.9, accumulator_dtype=jnp.bfloat16),
    "by 1 times the gradient: it climbs": optax.identity(),
    "by 0.1 times the gradient: it climbs": optax.scale(0.1),
    "multiplies by zero": optax.sgd(0.0),
    "test_optax.<lambda> is not a transformation of optax": optax.GradientTransformation(
        lambda params: (), lambda updates, state, params=None: (updates, state)
    ),
    "pass an optimiser of optax": 0.1,
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(message):
    with pytest.raises(dimfree.InvalidInput, match=message.replace(".", r"\.")):
        dimfree.from_optax(REFUSED[message], d=100)


def test_a_transformation_that_holds_something_else_is_refused():
    """As a later version of optax may: nothing is guessed."""

    def trace(decay, damping):
        def update_fn(updates, state, params=None):
            return updates * decay * damping, state

        update_fn.__module__, update_fn.__qualname__ = "optax.transforms", "trace.<locals>.update_fn"
        return optax.GradientTransformation(lambda params: (), update_fn)

    with pytest.raises(dimfree.InvalidInput, match=r"optax\.trace of this version of optax holds damping, decay"):
        dimfree.from_optax(trace(0.9, 0.1), d=100)
    with pytest.raises(dimfree.InvalidInput, match="d = 0"):
        dimfree.from_optax(optax.sgd(0.1), d=0)
