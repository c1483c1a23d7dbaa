"""Measure the error of the limit of wide networks, for the tutorial: docs/data/wide_networks.csv.

python tools/wide_table.py            # every cell that is not in the file yet; some minutes on one core
python tools/wide_table.py erf        # this activation only

Rows `width`: 16 groups of equal neurons with overlaps of order one with two teachers, infinite d, against gradient flow
on all p^2 overlaps, which by symmetry are some hundred numbers at any p. Rows `dimension`: 64 neurons in random
directions of dimension d. Time is learning_rate * alpha / p, up to 2. A cell that is in the file is not measured again.
"""

import sys

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from table import Table

import dimfree

ACTIVATIONS = ("erf", "relu", "square")
WIDTHS = (32, 128, 512, 4096)
DIMENSIONS = (50, 200, 800, 3200)
GROUPS, NEURONS, RATE, TIMES = 16, 64, 1e-6, np.linspace(0.0, 2.0, 5)
COLUMNS = (
    *("kind", "activation", "p", "d", "risk_start", "risk_end"),
    *("risk_error", "risk_error_d", "risk_error_density", "norm_error", "off_diagonal_rms"),
)
TABLE = Table("wide_networks", COLUMNS, keys=("kind", "activation", "p", "d"))
OVERLAPS = 0.4 * np.random.default_rng(0).normal(size=(GROUPS, 2))


class Groups:
    """Gradient flow of groups of n equal neurons; three of each are enough, with weights 1, 1 and n - 2.

    The average of a neuron's slope, another's field and the error has in it the neuron, the other, and the rest.
    """

    def __init__(self, activation: str, n):
        self.problem = dimfree.TwoLayer(3 * GROUPS, 2, activation)
        self.n, self.p = n, GROUPS * n
        share = jnp.concatenate([jnp.ones(2 * GROUPS), jnp.full(GROUPS, n - 2.0)])
        self.weights = jnp.concatenate([share / self.p, -jnp.full(2, 0.5)])

    def covariance(self, y):
        M, norms, within, between = y
        same = jnp.eye(GROUPS)
        block = jnp.where(same > 0, within[:, None], between)
        students = jnp.tile(block, (3, 3)) + jnp.kron(jnp.eye(3), jnp.diag(norms - within))
        overlaps = jnp.tile(M, (3, 1))
        return jnp.block([[students, overlaps], [overlaps.T, jnp.eye(2)]])

    def drift(self, t, y, args):
        integrals = self.problem.activation.integrals
        gradient = integrals.gradient(self.covariance(y), self.weights, 3 * GROUPS)[:GROUPS]
        own, other = gradient[:, :GROUPS], gradient[:, GROUPS : 2 * GROUPS]
        return -gradient[:, -2:], -2 * jnp.diagonal(own), -2 * jnp.diagonal(other), -(other + other.T)

    def risk(self, y):
        outputs = self.problem.activation.integrals.outputs(self.covariance(y))
        one, n = 1 / self.p, self.n
        pairs = n * n * outputs[:GROUPS, GROUPS : 2 * GROUPS]
        diagonal = n * jnp.diagonal(outputs[:GROUPS, :GROUPS]) - n * jnp.diagonal(pairs) / n**2
        cross = n * one * 0.5 * jnp.sum(outputs[:GROUPS, -2:])
        return 0.5 * (one**2 * (jnp.sum(pairs) + jnp.sum(diagonal)) - 2 * cross + 0.25 * jnp.sum(outputs[-2:, -2:]))


@eqx.filter_jit
def grouped(activation: str, n):
    groups = Groups(activation, n)
    M = jnp.asarray(OVERLAPS)
    seen = M @ M.T
    start = (M, jnp.diagonal(seen) + 1.0, jnp.diagonal(seen), seen)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(groups.drift),
        diffrax.Tsit5(),
        0.0,
        TIMES[-1],
        None,
        start,
        saveat=diffrax.SaveAt(ts=jnp.asarray(TIMES)),
        stepsize_controller=diffrax.PIDController(rtol=1e-7, atol=1e-9),
    )
    return solution.ys, jax.vmap(groups.risk)(solution.ys)


@eqx.filter_jit
def solved(limit, start):
    path = dimfree.solve(limit, start, TIMES / RATE, relative_tolerance=1e-6, absolute_tolerance=1e-8)
    return path.state, path.problem.risk(path.state)


def worst(a, b) -> float:
    return float(jnp.max(jnp.abs(a - b)))


def measure_width(activation: str, p: int) -> dict:
    n = p // GROUPS
    (M, norms, within, between), full_risk = grouped(activation, jnp.asarray(float(n)))
    problem, sgd = dimfree.TwoLayer(p, 2, activation), dimfree.OnlineSGD(RATE * p)
    start = dimfree.WideState(np.repeat(OVERLAPS, n, axis=0), np.ones(p))
    rule = dimfree.GaussHermite(16) if activation == "erf" else None  # it is smooth: fewer nodes are as good
    wide, risk = solved(dimfree.mean_field(problem, sgd, rule=rule), start)
    _, risk_density = solved(dimfree.mean_field(problem, sgd, infinite_width=True, rule=rule), start)
    last = M[-1] @ M[-1].T
    left_out = jnp.where(np.eye(GROUPS) > 0, within[-1][:, None], between[-1]) - last
    return {
        "risk": full_risk,
        "risk_error": worst(risk, full_risk),
        "risk_error_density": worst(risk_density, full_risk),
        "norm_error": worst(wide.norms[-1, ::n], norms[-1]),
        "off_diagonal_rms": float(jnp.sqrt(jnp.mean(left_out**2))),
    }


def measure_dimension(activation: str, d: int) -> dict:
    problem, sgd = dimfree.TwoLayer(NEURONS, 2, activation), dimfree.OnlineSGD(RATE * NEURONS)
    random = dimfree.random_state(problem, d, key=jax.random.key(0))
    M = jnp.asarray(np.repeat(OVERLAPS, NEURONS // GROUPS, axis=0))
    start = dimfree.State(random.Q - random.M @ random.M.T + M @ M.T, M)
    full, full_risk = solved(dimfree.gradient_flow(problem, sgd), start)
    wide, risk = solved(dimfree.mean_field(problem, sgd), start)
    _, risk_d = solved(dimfree.mean_field(problem, sgd, d), start)
    left_out = np.asarray(full.Q[-1] - wide.Q[-1])[~np.eye(NEURONS, dtype=bool)]
    return {
        "risk": full_risk,
        "risk_error": worst(risk, full_risk),
        "risk_error_d": worst(risk_d, full_risk),
        "norm_error": worst(wide.norms[-1], jnp.diagonal(full.Q[-1])),
        "off_diagonal_rms": float(np.sqrt(np.mean(left_out**2))),
    }


def main() -> None:
    activations = sys.argv[1:] or ACTIVATIONS
    cells = [("dimension", activation, NEURONS, d) for activation in activations for d in DIMENSIONS]
    cells += [("width", activation, p, "inf") for p in WIDTHS for activation in activations]
    for kind, activation, p, d in cells:
        if (kind, activation, p, d) in TABLE:
            continue
        found = measure_width(activation, p) if kind == "width" else measure_dimension(activation, int(d))
        risk = found.pop("risk")
        found |= {"risk_start": float(risk[0]), "risk_end": float(risk[-1])}
        TABLE.add({"kind": kind, "activation": activation, "p": p, "d": d, **found}, digits=5)
        print(kind, activation, p, d, found, flush=True)


if __name__ == "__main__":
    main()
