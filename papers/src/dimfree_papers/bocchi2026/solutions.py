"""The source's statements on solutions, eqs. (16)-(22), sections 4.1 and 7.5, against solves, minima and ranks."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize

from dimfree import Claim, State, solve
from dimfree.quadratic import closest_solution, conserved_frame, plateau

from ..comparing import flat
from .conventions import flow, gaussian_start, limit, network, random_start, source_risk


def claims() -> tuple[Claim, ...]:
    """Which solutions there are, which one is found, and how fast."""
    return (*_closest(), *_ends(), *_late(), *_counts(), _best_rate())


def _closest() -> tuple[Claim, ...]:
    p, k, d = 4, 2, 9
    generator = np.random.default_rng(0)
    students, teachers = 0.5 * generator.normal(size=(p, d)), np.eye(k, d)
    rho = students @ teachers.T
    any_frame = np.linalg.qr(generator.normal(size=(p, k)))[0]
    values, vectors = np.linalg.eigh(rho.T @ rho)
    printed = rho @ (vectors / np.sqrt(values)) @ vectors.T

    def solution(frame):
        return jnp.sqrt(p / k) * frame @ teachers

    def distance(frame):
        return jnp.sum((solution(frame) - students) ** 2)

    def frame_of(free):
        # With the diagonal of R positive the frame is a smooth function, and every frame is reached.
        orthonormal, triangle = jnp.linalg.qr(free.reshape(p, k))
        return orthonormal * jnp.sign(jnp.diagonal(triangle))

    least = scipy.optimize.minimize(
        jax.jit(jax.value_and_grad(lambda free: distance(frame_of(free)))),
        generator.normal(size=p * k),
        jac=True,
        method="BFGS",
        options={"gtol": 1e-9},
    )
    # Conditions for a minimum of eq. (18): the slope is S times a symmetric matrix of multipliers.
    slope = np.asarray(jax.grad(distance)(jnp.asarray(printed)))
    multipliers = printed.T @ slope
    unbalanced = flat(slope - printed @ multipliers, multipliers - multipliers.T)
    reached = closest_solution(network(p, k), State(Q=students @ students.T, M=rho))
    weights = np.asarray(solution(printed))
    overlap = np.sqrt(p / k) * any_frame
    return (
        Claim(
            where="eq. (16)",
            statement="(p/k)^1/2 S W* has zero risk for every S with orthonormal columns.",
            printed=0.0,
            ours=float(source_risk(network(p, k), State(Q=overlap @ overlap.T, M=overlap))),
            tolerance=1e-12,
        ),
        Claim(
            where="eq. (17)",
            statement="The squared distance of a solution to the start, which sees of the start only its overlaps.",
            printed=float(distance(any_frame)),
            ours=float(p + np.sum(students**2) - 2 * np.sqrt(p / k) * np.sum(any_frame * rho)),
            tolerance=1e-12,
        ),
        Claim(
            where="eq. (18)",
            statement="The frame of eq. (19) makes the distance stationary under the constraint.",
            printed=np.zeros(unbalanced.size),
            ours=unbalanced,
            tolerance=1e-12,
        ),
        Claim(
            where="eq. (19)",
            statement="The frame of the closest solution is M (M^T M)^(-1/2).",
            printed=printed,
            ours=np.asarray(frame_of(jnp.asarray(least.x))),
            tolerance=1e-5,
            remark="Ours is found by numerical minimisation. M must have full column rank.",
        ),
        Claim(
            where="eqs. (20), (21)",
            statement="The overlaps of the closest solution, (p/k)^1/2 S and (p/k) S S^T.",
            printed=flat(np.sqrt(p / k) * printed, p / k * printed @ printed.T),
            ours=flat(weights @ teachers.T, weights @ weights.T),
            tolerance=1e-12,
            remark=f"dimfree's closest_solution has them to {np.max(np.abs(reached.M - weights @ teachers.T)):.0e}.",
        ),
    )


def _ends() -> tuple[Claim, ...]:
    """The way from orthogonal and from random students, p = k = 3, at two learning rates."""
    p, starts, d = 3, 6, 1_000
    problem = network(p, p)
    orthogonal = [gaussian_start(p, p, 0.01, key) for key in jax.random.split(jax.random.key(1), starts)]
    random = [random_start(p, p, d, seed) for seed in range(starts)]
    every = [*orthogonal, *orthogonal, *random]
    Q, M = jnp.stack([start.Q for start in every]), jnp.stack([start.M for start in every])
    rates = jnp.asarray([0.01] * starts + [0.2] * starts + [0.01] * starts)

    @jax.jit
    @jax.vmap
    def path(eta, Q, M):
        times = jnp.linspace(0.0, 90.0, 19) / eta
        return solve(limit(p, p, eta), State(Q=Q, M=M), times, relative_tolerance=1e-10).state

    states = path(rates, Q, M)
    frames = np.asarray(conserved_frame(states))
    moved = np.abs(frames - frames[:, :1]).max(axis=(1, 2, 3))
    expected = closest_solution(problem, State(Q=Q, M=M)).M
    away = np.abs(np.asarray(states.M[:, -1] - expected)).max(axis=(1, 2))
    risk = np.asarray(source_risk(problem, states))[:, -1]
    exact = slice(None, 2 * starts)
    return (
        Claim(
            where="section 4.1, closest solution",
            statement="Orthogonal students end at the solution closest to their start: entries of M, eta = 0.01, 0.2.",
            printed=np.asarray(expected[exact]),
            ours=np.asarray(states.M[exact, -1]),
            tolerance=1e-6,
        ),
        Claim(
            where="section 4.1, closest solution from any start",
            statement="So do arbitrary ones: largest distance of an entry of M, typical of random students, d = 1000.",
            printed=0.0,
            ours=float(np.median(away[2 * starts :])),
            tolerance=1e-3,
            remark="The solution reached is near the closest, not the closest; the difference falls as d^-1/2.",
        ),
        Claim(
            where="eqs. (22), (37)",
            statement="S = M (M^T M)^(-1/2) is conserved from orthogonal students, at any learning rate: change.",
            printed=np.zeros(2 * starts),
            ours=moved[exact],
            tolerance=1e-8,
            remark="For P = I and Q(0) a function of M(0) M(0)^T it is a theorem: no closure has to be assumed.",
        ),
        Claim(
            where="eq. (22), any start",
            statement="S is conserved from arbitrary weights: change, typical of random students, d = 1000.",
            printed=0.0,
            ours=float(np.median(moved[2 * starts :])),
            tolerance=1e-3,
            remark="It falls as d^-1/2, with the overlaps among students.",
        ),
        Claim(
            where="section 4.1, rapid decay for p = k",
            statement="After the escape the risk decays fast.",
            printed=0.0,
            ours=float(np.max(risk)),
            tolerance=1e-12,
            remark="Exponentially.",
        ),
    )


def _late() -> tuple[Claim, ...]:
    p, k = 3, 1
    start = State(Q=np.eye(p), M=0.3 * np.ones((p, k)))
    times = np.asarray([0.0, 1_000.0, 2_000.0])
    path = solve(flow(p, k), start, times, absolute_tolerance=1e-12)
    risk = np.asarray(source_risk(network(p, k), path.state))[1:]
    law = (p - k) * p**2 * (k + 2) / (128 * (p + 2))
    return (
        Claim(
            where="section 4.1, rapid decay for p > k",
            statement="After the escape the risk decays fast, so that t^2 times it vanishes.",
            printed=0.0,
            ours=float(2 * times[2] ** 2 * risk[1] - times[1] ** 2 * risk[0]),
            tolerance=2e-4,
            correction="For p > k it falls as (p - k) p^2 (k + 2) / (128 (p + 2) t^2).",
            corrected=law,
            remark="Extrapolated from t = 1000 and 2000, p = 3 and k = 1.",
        ),
    )


def _counts() -> tuple[Claim, ...]:
    d = 6
    widths = np.arange(1, 10)
    cases = [(p, k) for k in (1, 2, 4) for p in range(k, 9)]
    return (
        Claim(
            where="section 7.5.1",
            statement="N p - p(p - 1)/2 degrees of freedom for p <= N, and N(N + 1)/2 beyond.",
            printed=[printed_degrees(int(p), d) for p in widths],
            ours=[rank_of_functions(int(p), d) for p in widths],
            tolerance=0.0,
            remark="Ours is the rank of the derivative of W^T W, N = 6.",
        ),
        Claim(
            where="section 7.5.2",
            statement="The solutions have dimension p(p - 1)/2 - (p - k)(p - k - 1)/2 = p k - k(k + 1)/2.",
            printed=[[printed_dimension(p, k), p * k - k * (k + 1) / 2] for p, k in cases],
            ours=[[rank_of_rotations(p, k, d)] * 2 for p, k in cases],
            tolerance=0.0,
            remark="Ours is the dimension of the tangent space of all rotations of a solution.",
        ),
    )


def printed_degrees(p: int, d: int) -> float:
    """Section 7.5.1: degrees of freedom of p students."""
    return d * p - p * (p - 1) / 2 if p <= d else d * (d + 1) / 2


def printed_dimension(p: int, k: int) -> float:
    """Section 7.5.2: dimension of the set of solutions, k teachers, no more than inputs."""
    return p * (p - 1) / 2 - (p - k) * (p - k - 1) / 2


def rank_of_functions(p: int, d: int) -> int:
    """Rank of the derivative of W^T W with respect to W, at random W."""
    W = np.random.default_rng(p).normal(size=(p, d))
    changes = np.eye(p * d).reshape(-1, p, d)
    products = np.einsum("npi,pj->nij", changes, W)
    return int(np.linalg.matrix_rank((products + products.swapaxes(1, 2)).reshape(p * d, -1)))


def rank_of_rotations(p: int, k: int, d: int) -> int:
    """Dimension of the tangent space of the rotations of a random solution."""
    frame = np.linalg.qr(np.random.default_rng(p).normal(size=(p, k)))[0]
    rows, columns = np.triu_indices(p, k=1)
    turns = np.zeros((len(rows), p, p))
    turns[np.arange(len(rows)), rows, columns] = 1.0
    turns[np.arange(len(rows)), columns, rows] = -1.0
    return int(np.linalg.matrix_rank((turns @ frame @ np.eye(k, d)).reshape(len(rows), -1))) if len(rows) else 0


def fastest_growth(p: int, k: int) -> float:
    """The source's rate at which overlaps with the teacher grow fastest on the plateau, per sample."""
    rates = jnp.linspace(0.2, 1.5, 1301) * p * k / (4 * (k + 2))
    growth = jax.jit(jax.vmap(lambda eta: plateau(limit(p, k, eta)).growth_rate))(rates)
    growth = np.where(np.isfinite(growth), growth, -np.inf)  # beyond some rate there is no plateau
    return minimum(np.asarray(rates), -growth)


def minimum(x: np.ndarray, y: np.ndarray) -> float:
    """Where a curve is least, by a parabola through the lowest of its points and the two beside it."""
    i = int(np.clip(np.argmin(y), 1, len(x) - 2))
    a, b, _ = np.polyfit(x[i - 1 : i + 2] - x[i], y[i - 1 : i + 2], 2)
    return float(x[i] - b / (2 * a))


def _best_rate() -> Claim:
    widths, k = np.asarray([3, 6, 10]), 3
    ratios = np.asarray([fastest_growth(int(p), k) / p for p in widths])
    return Claim(
        where="section 4.1, best learning rate",
        statement="The learning rate that escapes the plateau fastest is proportional to p: eta / p over its value at "
        "p = 3, for p = 3, 6, 10 and k = 3.",
        printed=np.ones(3),
        ours=ratios / ratios[0],
        tolerance=0.1,
        remark=f"eta / p is {ratios[0]:.3f}, {ratios[1]:.3f}, {ratios[2]:.3f}, from the growth rate in closed form; "
        f"solutions are stable up to k / (4 (k + 2)) = {k / (4 * (k + 2)):.3f}. See Fig. 2 for the samples to half the "
        "error.",
    )
