"""Functions that studies in these tests call by import path, in processes of their own."""

import ctypes
import os
import signal
import time

import jax
import jax.numpy as jnp
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


@jax.jit
def _long_to_compile(x):
    for _ in range(150):
        x = jnp.sin(jax.lax.fori_loop(0, 2, lambda _, y: jnp.cos(y) @ y, x)) + 1.0
    return x


def compiled(problem, algorithm, *, key, pause):
    """A number that takes seconds to compile, and the pause to compute."""
    time.sleep(pause)
    return {"value": float(_long_to_compile(jnp.eye(2) * problem.noise)[0, 0])}


def exits(problem, algorithm, *, key):
    """Ends the process, or tries to, in one cell."""
    if round(float(problem.noise)) == 2:
        raise SystemExit(3)
    return {"value": float(problem.noise)}


def waits(problem, algorithm, *, key, pipe, waiting=(), pause=0.0):
    """Waits in some cells for a pipe that nobody writes to, as for a disk that does not answer."""
    time.sleep(pause)
    if round(float(problem.noise)) in waiting:
        with open(pipe):
            pass
    return {"value": float(problem.noise)}


def keeps_the_interpreter(problem, algorithm, *, key):
    """Sleeps in one cell without letting any other thread of the process run."""
    if round(float(problem.noise)) == 2:
        ctypes.PyDLL(None).sleep(100_000)
    return {"value": float(problem.noise)}


def crashes(problem, algorithm, *, key):
    """Kills its process in one cell."""
    if round(float(problem.noise)) == 2:
        os.kill(os.getpid(), signal.SIGSEGV)
    return {"value": float(problem.noise)}
