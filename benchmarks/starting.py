"""What it takes to begin: imports, compilation, memory."""

import numpy as np

from .timing import Row, Times, compared, in_process

NAMES = "import dimfree; dimfree.solve, dimfree.simulate, dimfree.PhaseRetrieval"
FIRST = """
import dimfree, jax
problem, sgd = dimfree.PhaseRetrieval(2), dimfree.OnlineSGD(0.05, sphere=True)
start = dimfree.random_state(problem, d=1000, key=jax.random.key(0))
"""


def in_processes(codes: dict[str, str], what: str, turns: int) -> Times:
    """Fresh interpreters in turn."""
    times = Times()
    times.update({name: np.array([]) for name in codes})
    for _ in range(turns):
        for name, code in codes.items():
            times[name] = np.append(times[name], in_process(code)[what])
    times.first = {name: float(each[0]) for name, each in times.items()}
    return times


def importing() -> Row:
    """`import dimfree` and the first use of its names, over `import jax, diffrax, xarray`."""
    codes = {"with names": NAMES, "jax, diffrax, xarray": "import jax, diffrax, xarray", "alone": "import dimfree"}
    return compared(in_processes(codes, "seconds", 3), "with names", "jax, diffrax, xarray", goal=1.3)


def first_calls() -> Row:
    """A fresh process that imports, compiles and solves an ODE, over one that only imports."""
    solving = f"{FIRST}dimfree.solve(dimfree.ode(problem, sgd), start, 10.0).state.Q.block_until_ready()"
    simulating = f"{FIRST}dimfree.simulate(problem, sgd, start, 1000, 1.0, runs=4, key=jax.random.key(0)).state.Q"
    codes = {"with solve": solving, "with simulate": simulating, "imports": FIRST}
    return compared(in_processes(codes, "seconds", 2), "with solve", "imports")


def of_memory(codes: dict[str, str], goal: float | None = None) -> Row:
    """Peak memory of two processes: megabytes take the place of seconds."""
    times = in_processes(codes, "MB", 1)
    row = compared(times, *codes)
    more = {f"{name} [MB]": float(each[0]) for name, each in times.items()}
    return Row(row.ratio, row.low, row.high, row.least, goal, more=more)


def memory_of_exact_simulation() -> Row:
    """Peak memory of exact simulation of 256 runs at d = 10^9, over that at d = 10^3."""
    run = "dimfree.simulate(problem, sgd, start, {d}, 1000 / {d}, runs=256, key=jax.random.key(0)).state.Q"
    code = FIRST + run
    return of_memory({"d = 10^9": code.format(d=10**9), "d = 10^3": code.format(d=10**3)}, goal=1.5)


def memory_of_reused_data() -> Row:
    """Peak memory with 400 MB of data in memory, over that with none kept (they are made again in each step)."""
    code = FIRST + (
        "dimfree.simulate(dimfree.PhaseRetrieval(), dimfree.GradientDescent(0.01, 3.0, sphere=True), "
        "dimfree.State(Q=[[1.0]], M=[[0.2]]), 4000, [0.0, 0.01], runs=1, key=jax.random.key(0), "
        "store_data={store}).state.Q"
    )
    return of_memory({"stored": code.format(store=True), "made again": code.format(store=False)})


ALL = [importing, first_calls, memory_of_exact_simulation, memory_of_reused_data]
QUICK = []
