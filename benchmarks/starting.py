"""What it takes to begin: imports, compilation, memory."""

import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from .timing import Row, Times, compared, in_process

NAMES = "import dimfree; dimfree.solve, dimfree.simulate, dimfree.PhaseRetrieval"
FIRST = """
import dimfree, jax
problem, sgd = dimfree.PhaseRetrieval(2), dimfree.OnlineSGD(0.05, sphere=True)
start = dimfree.random_state(problem, d=1000, key=jax.random.key(0))
"""

IMPORTS = "import jax, diffrax, xarray, matplotlib.pyplot"
BARE = """
import diffrax, jax, jax.numpy as jnp, matplotlib.pyplot as plt, numpy as np, xarray
jax.config.update("jax_enable_x64", True)
rate, d, end, steps, start = 0.05, 3000, 45.0, 2000, 0.02
drift = lambda t, m, args: (4 * rate - 24 * rate**2) * m * (1 - m**2)
times = jnp.linspace(0.0, end, 201)
ode = diffrax.diffeqsolve(
    diffrax.ODETerm(drift), diffrax.Tsit5(), 0.0, end, None, jnp.asarray(start), saveat=diffrax.SaveAt(ts=times),
    stepsize_controller=diffrax.PIDController(rtol=1e-8, atol=1e-10), max_steps=100_000,
).ys
nodes, weights = map(jnp.asarray, np.polynomial.hermite_e.hermegauss(8))
weights = jnp.outer(weights, weights) / (2 * np.pi)

def variance(m):
    teacher, student = nodes[:, None], m * nodes[:, None] + jnp.sqrt(jnp.maximum(1 - m**2, 0)) * nodes
    slope = 2 * (student**2 - teacher**2) * student
    gained = -rate * slope * teacher + m * rate * slope * student - m * rate**2 * slope**2 / 2
    return jnp.sum(weights * gained**2) - jnp.sum(weights * gained) ** 2

@jax.jit
@jax.vmap
def sde(key):
    def step(m, normal):
        new = m + drift(0, m, None) * end / steps + jnp.sqrt(variance(m) * end / steps / d) * normal
        return new, new
    return jax.lax.scan(step, start, jax.random.normal(key, (steps,)))[1][:: steps // 200]

@jax.jit
@jax.vmap
def exact(key):
    def step(m, key):
        normals, rest = jax.random.split(key)
        teacher, other = jax.random.normal(normals, (2,))
        student = m * teacher + jnp.sqrt(jnp.maximum(1 - m**2, 0)) * other
        slope = 2 * (student**2 - teacher**2) * student
        length = (teacher**2 + other**2 + jax.random.chisquare(rest, d - 2.0)) / d
        q = 1 - 2 * rate / d * slope * student + rate**2 / d * slope**2 * length
        new = (m - rate / d * slope * teacher) / jnp.sqrt(q)
        return new, new
    return jax.lax.scan(step, start, jax.random.split(key, int(end * d)))[1][:: int(end * d) // 200]

risk = lambda m: 2 * (1 - m**2)
for values in (sde(jax.random.split(jax.random.key(1), RUNS)), exact(jax.random.split(jax.random.key(2), 32))):
    plt.plot(np.linspace(0, end, values.shape[1]), risk(values).mean(0))
plt.plot(times, risk(ode))
plt.savefig("bare.png")
"""


def readme() -> str:
    """The README's picture, as it stands."""
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert found
    return found.group(1)


def bare() -> str:
    """The same curves from the bare engine, with as many paths."""
    runs = re.search(r"sde.*runs=(\d+)", readme())
    assert runs
    return BARE.replace("RUNS", runs.group(1))


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


def readme_against_bare() -> Row:
    """README's picture in a fresh process, nothing compiled before, over the same curves from the bare engine."""
    codes: dict[str, str] = {"README": readme(), "bare": bare(), "imports": IMPORTS}
    return compared(in_processes(codes, "seconds", 3), "README", "bare", goal=1.8)


def second_process_against_imports() -> Row:
    """README's picture in a second process that finds its programs compiled, over the imports alone."""
    with tempfile.TemporaryDirectory() as folder:
        kept: Any = {"DIMFREE_KEEP_COMPILED": "1", "XDG_CACHE_HOME": folder}
        switched = f"import os; os.environ.update({kept!r})\n{readme()}"
        in_process(switched)
        return compared(
            in_processes({"second process": switched, "imports": IMPORTS}, "seconds", 3),
            "second process",
            "imports",
            goal=1.2,
        )


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


ALL = [
    importing,
    first_calls,
    readme_against_bare,
    second_process_against_imports,
    memory_of_exact_simulation,
    memory_of_reused_data,
]
QUICK = []
