"""Limits: `solve` of an ODE, of a diffusion and of a wide network, and many cells of a diagram at once."""

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import scipy.integrate

import dimfree

from .committee import NOISE, RATE, K, P, committee, right_hand_side
from .timing import Row, against, growth


def by_diffrax(limit, start, times):
    """The right-hand side of a limit, handed to Diffrax directly."""
    vector = limit.coordinates.pack(start)

    @jax.jit
    def bare(vector):
        return diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, args: limit.vector_field(t, y, start)),
            diffrax.Tsit5(),
            0.0,
            times[-1],
            None,
            vector,
            saveat=diffrax.SaveAt(ts=times),
            stepsize_controller=diffrax.PIDController(rtol=1e-8, atol=1e-10),
            max_steps=100_000,
            throw=False,
        ).ys

    return lambda: bare(vector)


def ode_against_diffrax() -> Row:
    """`solve` of an ODE (erf, p = 8, k = 4) over the same right-hand side handed to Diffrax."""
    problem, algorithm, start = committee()
    limit, times = dimfree.ode(problem, algorithm), jnp.linspace(0.0, 500.0, 201)
    like = dimfree.State(start.Q, start.M, start.P, problem.readout)
    return against(lambda: dimfree.solve(limit, start, times).state.Q, by_diffrax(limit, like, times), goal=1.05)


def ode_against_scipy() -> Row:
    """`solve` of that ODE over `scipy.integrate.solve_ivp` of it in NumPy, at equal tolerances."""
    problem, algorithm, start = committee()
    limit, times = dimfree.ode(problem, algorithm), np.linspace(0.0, 500.0, 201)
    field = right_hand_side(P, K, RATE, NOISE)
    vector = np.concatenate([np.asarray(start.Q).ravel(), np.asarray(start.M).ravel()])
    np.testing.assert_allclose(field(0.0, vector)[: P * P], np.asarray(limit.drift(0.0, start).Q).ravel(), atol=1e-10)

    def by_scipy():
        return scipy.integrate.solve_ivp(field, (0, 500.0), vector, "RK45", times, rtol=1e-8, atol=1e-10).y

    final = np.asarray(dimfree.solve(limit, start, times).final.Q).ravel()
    np.testing.assert_allclose(by_scipy()[: P * P, -1], final, atol=1e-7)
    return against(lambda: dimfree.solve(limit, start, times).state.Q, by_scipy, goal=0.1, budget=2.0, fewest=3)


def sde_against_scan() -> Row:
    """`solve` of a diffusion, 64 paths of 500 steps, over a jitted scan with the same drift and covariance."""
    problem, algorithm = dimfree.PhaseRetrieval(2), dimfree.OnlineSGD(0.05)
    limit, start = dimfree.sde(problem, algorithm, d=1000), dimfree.State(Q=jnp.eye(2), M=[[0.2], [0.1]])
    paths, steps, dt = 64, 500, 10.0 / 500
    initial = limit.coordinates.pack(start)

    @jax.jit
    @jax.vmap
    def by_hand(key):
        def step(vector, numbers):
            number, normals = numbers
            state = limit.coordinates.unpack(vector, start)
            values, directions = jnp.linalg.eigh(limit.covariance(number * dt, state))
            noise = directions @ (jnp.sqrt(jnp.maximum(values, 0) * dt) * normals)
            vector = vector + dt * limit.coordinates.pack(limit.drift(number * dt, state)) + noise
            return vector, vector

        return jax.lax.scan(step, initial, (jnp.arange(steps), jax.random.normal(key, (steps, initial.size))))[1]

    key = jax.random.key(0)
    keys = jax.random.split(key, paths)
    return against(
        lambda: dimfree.solve(limit, start, 10.0, runs=paths, steps=steps, key=key).state.Q,
        lambda: by_hand(keys),
        goal=1.05,
    )


def wide(p: int):
    """The limit of a wide network, a start of p neurons, and times."""
    problem = dimfree.TwoLayer(p, 2, "erf")
    limit = dimfree.mean_field(problem, dimfree.OnlineSGD(p / 4))
    M = 0.3 * jax.random.normal(jax.random.key(0), (p, 2))
    return limit, limit.start(dimfree.State(Q=M @ M.T + jnp.eye(p), M=M)), jnp.linspace(0.0, 4.0, 21)


def wide_network_against_diffrax() -> Row:
    """`solve` of `mean_field`, 64 neurons, over the same right-hand side handed to Diffrax."""
    limit, start, times = wide(64)
    return against(lambda: dimfree.solve(limit, start, times).state.M, by_diffrax(limit, start, times), goal=1.05)


def wide_network_against_ode() -> Row:
    """`solve` of `mean_field` over `solve` of `ode`, both of 64 neurons."""
    limit, start, times = wide(64)
    M = 0.3 * jax.random.normal(jax.random.key(0), (64, 2))
    full, whole = dimfree.ode(limit.problem, limit.algorithm), dimfree.State(Q=M @ M.T + jnp.eye(64), M=M)
    return against(
        lambda: dimfree.solve(limit, start, times).state.M,
        lambda: dimfree.solve(full, whole, times).state.M,
        goal=0.1,
        budget=2.0,
        fewest=3,
    )


def cost_of_width() -> Row:
    """`mean_field` at 1,024 neurons over 64: in proportion to p it would be 16."""

    def call(p):
        limit, start, times = wide(p)
        return lambda: dimfree.solve(limit, start, times).state.M

    return growth(call, [64, 256, 1024], "p", goal=20)


def cost_of_student() -> Row:
    """The ODE of an erf committee with p = 16 neurons over p = 4, at k = 4; the terms are p^2 (p + k)^2, 25 times."""

    def call(p):
        limit = dimfree.ode(dimfree.TwoLayer(p, 4, "erf"), dimfree.OnlineSGD(p / 2))
        start = dimfree.random_state(limit.problem, d=1000, key=jax.random.key(0))
        return lambda: dimfree.solve(limit, start, 50.0).state.Q

    return growth(call, [4, 8, 16], "p", goal=50)


def cost_of_cells() -> Row:
    """10^4 cells (learning rate x noise) of an ODE in one vmapped call, over 100 of them."""
    start = dimfree.State(Q=jnp.eye(2), M=[[0.1], [0.05]])

    @jax.jit
    @jax.vmap
    def final_risk(rate, noise):
        limit = dimfree.ode(dimfree.PhaseRetrieval(2, noise), dimfree.OnlineSGD(rate, sphere=True))
        return dimfree.solve(limit, start, np.array([0.0, 20.0])).risk[-1]

    def call(cells):
        side = round(cells**0.5)
        rates, noises = jnp.meshgrid(jnp.linspace(0.01, 0.3, side), jnp.linspace(0.0, 2.0, side))
        return lambda: final_risk(rates.ravel(), noises.ravel())

    return growth(call, [100, 10_000], "cells", goal=100)


ALL = [
    ode_against_diffrax,
    ode_against_scipy,
    sde_against_scan,
    wide_network_against_diffrax,
    wide_network_against_ode,
    cost_of_student,
    cost_of_width,
    cost_of_cells,
]
QUICK = [ode_against_diffrax, ode_against_scipy]
