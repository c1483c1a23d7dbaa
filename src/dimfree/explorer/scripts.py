"""From settings to a script that makes the same picture by itself, with the public names of the library only."""

import dataclasses
import importlib.metadata
import json

from .computations import EXIT_RUNS, KNOTS, PAIRS, REGIME_TIME, exit_methods
from .settings import RUNS, THRESHOLD, Settings


def _head(title: str, *imports: str) -> str:
    version = importlib.metadata.version("dimfree")
    lines = "\n".join(["import jax", *imports, "", "import dimfree"])
    return f'"""{title} Made by `dimfree explore`, dimfree {version}."""\n\n{lines}\n\n'


def _statement(settings: Settings) -> str:
    return f"problem = {settings.call}\n{settings.algorithm_statement}d, alpha = {settings.d}, {settings.alpha}\n"


_START = """
start_key, run_key = jax.random.split(jax.random.key({seed}))
start = dimfree.random_state(problem, d, key=start_key)
alphas = np.round(np.linspace(0.0, alpha, 201) * d) / d  # whole numbers of samples
"""


_TRAJECTORIES = f"""{_START}theory = dimfree.solve(dimfree.ode(problem, sgd), start, alphas)
runs = dimfree.simulate(problem, sgd, start, d, alphas, runs={RUNS}, key=run_key)
"""


_AVERAGES = """
# What is learned is the average of the weights.
theory, runs = (eqx.tree_at(lambda path: path.state, path, path.state.at("average")) for path in (theory, runs))
"""


_EXITS = f"""
# When the risk has lost {THRESHOLD:.0%} of its excess on the plateau: dashed the ODE, dotted the median run.
level = dimfree.exit_time(problem, sgd, d, {THRESHOLD}, key=run_key, methods=("closed_form",)).level
left.axhline(level, color="#444444", linewidth=0.9, alpha=0.5)
below = np.vstack([theory.risk, runs.risk]) <= level
exits = np.where(below.any(axis=1), alphas[below.argmax(axis=1)], np.inf)
for time, line in ((exits[0], "--"), (np.median(exits[1:]), ":")):
    if np.isfinite(time):
        left.axvline(time, color="#444444", linestyle=line, linewidth=1.3)
"""


_ACCURACY = """
accuracy = theory.observe("accuracy")[-1], runs.observe("accuracy")[:, -1].mean()
print(f"accuracy at the end: theory {accuracy[0]:.6g}, simulated {accuracy[1]:.6g}")
"""


def _imports(settings: Settings) -> list[str]:
    return [*(["import equinox as eqx"] if settings.averages else []), "import numpy as np"]


def _trajectories(settings: Settings) -> str:
    return _TRAJECTORIES.format(seed=settings.seed) + (_AVERAGES if settings.averages else "")


def curves_script(settings: Settings, *, plateau: bool = True) -> str:
    """Risk (or accuracy) and overlaps, theory and simulation; `plateau`: whether there is one to leave."""
    of_risk = settings.quantity == "risk"
    shown = (", log=True" if settings.log else "") if of_risk else f', quantity="{settings.quantity}"'
    observed = "" if of_risk else f'["{settings.quantity}"]'
    names = ["risk", "Q", "M"] if of_risk else ["risk", settings.quantity, "Q", "M"]
    told = "" if of_risk else _ACCURACY
    return (
        _head(f"{settings.choice.title}: theory and simulation.", *_imports(settings))
        + _statement(settings)
        + _trajectories(settings)
        + f"""
# As on the page, but for its legends, and for its students of runs that broke a symmetry otherwise than the ODE, which
# it names as those of the ODE; here every run keeps its own names.
left, right = dimfree.plot.panels(2, size=(9.6, 4.4))
dimfree.plot.compare(theory, runs{shown}, axes=left).set_title("{settings.quantity.capitalize()}")
dimfree.plot.compare(theory, runs, quantity="M", axes=right).set_title("Overlaps of students with teachers")
{_EXITS if plateau and of_risk else ""}left.figure.savefig("curves.png", dpi=200)

names = {json.dumps(names)}
simulated = runs.to_xarray({observed})[names].rename({{name: f"simulated_{{name}}" for name in names}})
data = theory.to_xarray({observed})[names].merge(simulated, combine_attrs="override")
data.to_netcdf("curves.nc", engine="scipy")
print(f"risk at the end: theory {{float(theory.risk[-1]):.6g}}, simulated {{float(runs.risk[:, -1].mean()):.6g}}")
{told.lstrip()}"""
    )


def exits_script(settings: Settings) -> str:
    """How long SGD stays on the plateau."""
    methods = ", ".join(f'"{name}"' for name in exit_methods(settings))
    return (
        _head(f"{settings.choice.title}: how long SGD stays on the plateau.")
        + _statement(settings)
        + f"""
methods = ({methods})
times = dimfree.exit_time(
    problem, sgd, d, {THRESHOLD}, runs={EXIT_RUNS}, key=jax.random.key({settings.seed}), methods=methods
)
print(times)
dimfree.plot.exit_times(times).figure.savefig("exit_times.png")
"""
    )


def flow_script(settings: Settings) -> str:
    """The plane of overlaps."""
    line = settings.sphere and settings.width == settings.network.teacher_width == 1
    drawn_over_it = "" if line else ', trajectories=[theory, runs], labels=["ODE", "SGD"]'
    return (
        _head(f"{settings.choice.title}: the plane of overlaps.", *_imports(settings))
        + _statement(settings)
        + _trajectories(settings)
        + f"""
limit = dimfree.ode(problem, sgd)
axes = dimfree.plot.flow(limit, alpha=alpha, at=start{drawn_over_it})
axes.figure.savefig("flow.png")
"""
    )


def regimes_script(settings: Settings) -> str:
    """Which limit applies."""
    return (
        _head(f"{settings.choice.title}: which limit applies.")
        + _statement(settings)
        + f"""
alpha = {REGIME_TIME} * problem.width / sgd.learning_rate  # up to time = learning_rate * alpha / p = {REGIME_TIME}
result = dimfree.regimes(problem, sgd, d, float(alpha), key=jax.random.key({settings.seed}), measure=False)
print(result)
dimfree.plot.regimes(result).figure.savefig("regimes.png")
"""
    )


def protocol_script(settings: Settings) -> str:
    """The best schedule of the learning rate."""
    low, high = settings.choice.searched_rates
    return (
        _head(f"{settings.choice.title}: the best schedule of the learning rate.", "import numpy as np")
        + _statement(dataclasses.replace(settings, schedule="constant"))
        + _START.format(seed=settings.seed)
        + f"""
# The schedule between {low} and {high}, linear between {KNOTS} knots, with the lowest risk at the end. For an average
# over random starts leave out start, and give d=d, key=start_key.
over = {{"algorithm.learning_rate": ({low}, {high}, {KNOTS})}}
best = dimfree.best_protocol(problem, sgd, alphas, over, start=start, searches=1)
print(best.verify(d, runs={PAIRS}, key=run_key))
dimfree.plot.protocol(best).figure.savefig("protocol.png")
"""
    )


def study_script(store: str, quantity: str | None, level: float | None, indices: dict[str, int]) -> str:
    """The phase diagram of a study."""
    version = importlib.metadata.version("dimfree")
    chosen = f".isel({indices!r})" if indices else ""
    return (
        f'"""The phase diagram of a study. Made by `dimfree explore`, dimfree {version}."""\n\n'
        "import dimfree\n\n"
        f"data = dimfree.open_study({store!r}){chosen}\n"
        f"axes = dimfree.plot.phase_diagram(data, {quantity!r}, level={level!r})\n"
        'axes.figure.savefig("phase_diagram.png")\n'
    )
