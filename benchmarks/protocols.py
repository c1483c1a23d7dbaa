"""The search for the best protocol, against an optimiser that has every state as a variable."""

import importlib
import importlib.util

import jax.numpy as jnp
import numpy as np

import dimfree
from dimfree.state import STUDENTS, TEACHERS, State

from .timing import Row, against

DIMENSIONS, STEPS, KNOTS, BATCH, NOISE = 100, 200, 100, 5, 0.25  # five times as many take CasADi more than 7 minutes
EASY, DECAY = 3.0, 2.0  # exponents of the target and of the eigenvalues
INDEX = np.arange(1.0, DIMENSIONS + 1)
EIGENVALUES, START = INDEX**-DECAY, INDEX ** (DECAY - EASY)


def protocol_against_transcription() -> Row:
    """`best_protocol` for 100 eigenvalues, 200 steps and 100 knots over direct transcription in CasADi with IPOPT."""
    casadi = importlib.import_module("casadi")
    problem = dimfree.TwoLayer(1, 1, "linear", noise=NOISE).with_inputs(dimfree.Spectrum(EIGENVALUES))
    nothing, teacher = jnp.zeros((DIMENSIONS, 1, 1)), jnp.asarray(START)[:, None, None]
    overlaps = {(STUDENTS, STUDENTS): nothing, (STUDENTS, TEACHERS): nothing, (TEACHERS, TEACHERS): teacher}
    start, sgd = State.of(overlaps, None), dimfree.OnlineSGD(0.08 * DIMENSIONS, batch_size=BATCH)
    over = {"algorithm.learning_rate": (0.0, 2.0 * DIMENSIONS, KNOTS)}
    alpha = STEPS * BATCH / DIMENSIONS

    def ours():
        return dimfree.best_protocol(problem, sgd, alpha, over, start=start, d=DIMENSIONS, searches=1).objective

    def by_hand():
        rates, errors, loss = (
            casadi.MX.sym(name, *shape)
            for name, shape in (("g", (KNOTS, 1)), ("e", (DIMENSIONS, STEPS + 1)), ("s", (1, STEPS)))
        )
        places = np.linspace(0, KNOTS - 1, STEPS)
        weights = np.stack([np.interp(places, np.arange(KNOTS), row) for row in np.eye(KNOTS)], axis=1)
        rate = casadi.repmat(casadi.mtimes(casadi.sparsify(casadi.DM(weights)), rates).T, DIMENSIONS, 1)
        eigenvalues = casadi.repmat(casadi.DM(EIGENVALUES), 1, STEPS)
        kept = 1 - 2 * rate * eigenvalues + (BATCH + 1) / BATCH * (rate * eigenvalues) ** 2
        noise = rate**2 * eigenvalues * casadi.repmat(loss + NOISE, DIMENSIONS, 1) / BATCH
        steps = errors[:, 1:] - kept * errors[:, :STEPS] - noise
        sums = loss - casadi.mtimes(casadi.DM(EIGENVALUES).T, errors[:, :STEPS])
        constraints = casadi.vertcat(casadi.vec(steps), casadi.vec(sums), errors[:, 0] - casadi.DM(START))
        variables = casadi.vertcat(rates, casadi.vec(errors), casadi.vec(loss))
        solver = casadi.nlpsol(
            "solver",
            "ipopt",
            {"x": variables, "f": casadi.mtimes(casadi.DM(EIGENVALUES).T, errors[:, STEPS]), "g": constraints},
            {"ipopt.print_level": 0, "print_time": False, "ipopt.tol": 1e-8},
        )
        path = [START]
        for _ in range(STEPS):
            kept = 1 - 2 * 0.1 * EIGENVALUES + (BATCH + 1) / BATCH * (0.1 * EIGENVALUES) ** 2
            path.append(kept * path[-1] + 0.1**2 * EIGENVALUES * (EIGENVALUES @ path[-1] + NOISE) / BATCH)
        begin = np.concatenate([np.full(KNOTS, 0.1), np.ravel(path), np.array(path[:-1]) @ EIGENVALUES])
        free = np.full(len(begin) - KNOTS, np.inf)
        low, high = np.concatenate([np.zeros(KNOTS), -free]), np.concatenate([np.full(KNOTS, 2.0), free])
        found = solver(x0=begin, lbx=low, ubx=high, lbg=0, ubg=0)
        assert solver.stats()["success"], solver.stats()["return_status"]
        return float(found["f"]) / 2

    assert abs(by_hand() / float(ours()) - 1) < 1e-3
    return against(ours, by_hand, budget=0.0, fewest=1)


ALL = [protocol_against_transcription] if importlib.util.find_spec("casadi") else []
QUICK = []
