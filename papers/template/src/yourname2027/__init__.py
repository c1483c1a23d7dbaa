"""The title of your paper."""

import jax
import numpy as np
import xarray

import dimfree

PROBLEM = dimfree.PhaseRetrieval(width=1)


def fig1(size):
    """The risk of SGD on the sphere and of its ODE. Full size: d = 3000 and 64 runs; quick: d = 500 and 16 runs."""
    d, runs = (3_000, 64) if size == "full" else (500, 16)
    sgd, start = dimfree.OnlineSGD(learning_rate=0.05, sphere=True), dimfree.State(Q=[[1.0]], M=[[0.5]])
    theory = dimfree.solve(dimfree.ode(PROBLEM, sgd), start, alpha=10.0)
    paths = dimfree.simulate(PROBLEM, sgd, start, d, alpha=10.0, runs=runs, key=jax.random.key(0))
    (axes,) = dimfree.plot.panels()
    dimfree.plot.compare(theory, paths, axes=axes)
    ode, sgd_risk = np.asarray(theory.risk), np.asarray(paths.risk)
    half = np.argmin(np.abs(ode - ode[0] / 2))
    claim = dimfree.Claim(
        where="Fig. 1",
        statement="SGD follows the ODE: the same mean risk where the ODE has lost half of it.",
        printed=ode[half],
        ours=sgd_risk[:, half].mean(),
        tolerance=4 * sgd_risk[:, half].std(ddof=1) / runs**0.5 + 5 / d,
        remark="Tolerance: four standard errors of the mean over runs, and 5 / d for the finite dimension.",
    )
    data = xarray.Dataset({"ode": ("alpha", ode), "sgd": (("run", "alpha"), sgd_risk)}, {"alpha": theory.alpha})
    return dimfree.Reproduction(data, axes.figure, (claim,))


def statements():
    """Every numbered statement of the paper."""
    overlaps = np.array([0.0, 0.3, 1.0])
    risks = [float(PROBLEM.risk(dimfree.State(Q=[[1.0]], M=[[m]]))) for m in overlaps]
    return (dimfree.Claim("eq. (1)", "On the sphere the risk is $2 (1 - m^2)$.", 2 * (1 - overlaps**2), risks, 1e-10),)
