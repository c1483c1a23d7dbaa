"""Functions that studies in these tests call by import path, in processes of their own."""

import time

import jax
import numpy as np


def draw(problem, algorithm, *, key, pause=0.0):
    """Numbers that depend on the cell's key and values only, after a pause."""
    time.sleep(pause)
    numbers = np.asarray(jax.random.normal(key, (1_000,)))
    return {"mean": numbers.mean() + float(problem.noise), "largest": numbers.max() * float(algorithm.learning_rate)}


def trouble(problem, algorithm, *, key):
    """Fails in one cell, does not end in another, and is not a number in a third."""
    cell = round(float(problem.noise))
    if cell == 2:
        raise ArithmeticError("no such number")
    while cell == 5:
        time.sleep(0.1)
    return {"value": np.nan if cell == 7 else float(cell)}


def step(problem, algorithm, *, key):
    """One below a curve, zero above it."""
    import jax.numpy as jnp

    return {"phase": jnp.where(algorithm.learning_rate < 2 / (12 + problem.noise), 1.0, 0.0)}


def scattered(problem, algorithm, *, key):
    """A number that scatters by one, and one that scatters by a thousandth; JAX sorts the second to the front."""
    number = jax.random.normal(key)
    return {"wide": number, "narrow": number / 1_000}


def slow_step(problem, algorithm, *, key, pause):
    """The same, after a pause."""
    time.sleep(pause)
    return step(problem, algorithm, key=key)


def hungry(problem, algorithm, *, key):
    """Takes memory without end in one cell."""
    cell, taken = round(float(problem.noise)), []
    while cell == 5:
        taken.append(np.ones(4_000_000))
        time.sleep(0.01)
    return {"value": float(cell)}
