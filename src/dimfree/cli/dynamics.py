"""How SGD moves: solve its limits, simulate it, check the two against each other."""

import inspect
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import dimfree

from .. import registry
from .output import (
    AsJson,
    Output,
    Plot,
    Seed,
    check_targets,
    in_terminal,
    invalid,
    print_json,
    print_table,
    random_key,
    save_data,
    save_picture,
    working,
)
from .problem_options import states

if TYPE_CHECKING:
    from ..algorithms import OnlineAlgorithm
    from ..problems import Problem
    from ..state import State
    from ..trajectory import Trajectory

_SHOWN = 9  # times in a table
_QUANTILES = (0.1, 0.5, 0.9)

Dimension = Annotated[int, typer.Option("--dimension", "-d", help="Input dimension d.")]
Alpha = Annotated[float, typer.Option(help="How far: samples per dimension.")]
_LIMITS = {name.replace("_", "-"): name for name in registry.stated("limit")}  # as they are typed
Limit = Annotated[
    str, typer.Option(metavar="|".join(_LIMITS), autocompletion=lambda: list(_LIMITS), help="Which limit.")
]
Overlap = Annotated[
    float | None,
    typer.Option(help="Start from students with this overlap, each with its teacher [default: random students]."),
]
Quantity = Annotated[
    Literal["risk", "accuracy"],
    typer.Option(help="What --plot draws; if samples have labels, the accuracy is also printed and saved."),
]


@states
def solve(
    problem: "Problem",
    sgd: "OnlineAlgorithm",
    limit: Limit = "ode",
    alpha: Alpha = 20.0,
    dimension: Dimension = 3_000,
    overlap: Overlap = None,
    paths: Annotated[int, typer.Option(help="Paths of the SDE.")] = 64,
    tolerance: Annotated[float, typer.Option(help="Relative error of averages that have no closed form.")] = 1e-6,
    simulate: Annotated[
        int, typer.Option(metavar="RUNS", help="Also simulate SGD, this many times from the same start.")
    ] = 0,
    quantity: Quantity = "risk",
    seed: Seed = 0,
    plot: Plot = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Integrate a limit of SGD, and simulate SGD beside it.

    The start has random weights in the given dimension, unless --overlap is given.

    Exit codes: 0 done, 2 bad input, 130 interrupted.

    Example: dimfree solve --sphere --alpha 40 --simulate 16 --plot risk.png
    """
    check_targets(plot, output)
    observed = _observed(problem, quantity)
    import jax

    from ..errors import positive_integer

    paths = positive_integer(paths, "--paths")
    simulate = positive_integer(simulate, "--simulate", minimum=0)
    start_key, path_key, run_key = jax.random.split(random_key(seed), 3)
    start = given_start(problem, dimension, overlap, start_key)
    of_paths: dict[str, Any] = {"runs": paths, "key": path_key} if limit == "sde" else {}
    with working("Solving ..."):
        theory = dimfree.solve(make_limit(limit, problem, sgd, dimension, tolerance), start, alpha, **of_paths)
    simulated = None
    if simulate:
        simulated = dimfree.simulate(
            problem, sgd, start, dimension, alpha, runs=simulate, key=run_key, progress=in_terminal()
        )
    both = {"theory": theory} if simulated is None else {"theory": theory, "simulation": simulated}
    save_picture(plot, lambda: dimfree.plot.compare(*both.values(), quantity=quantity))
    if output is not None:
        save_data(output, {name: trajectory.to_xarray(observed) for name, trajectory in both.items()})
    if as_json:
        print_json(
            "solve",
            problem=repr(problem),
            algorithm=repr(sgd),
            limit=limit,
            dimension=dimension,
            seed=seed,
            theory=_record(theory, observed),
            simulation=None if simulated is None else _record(simulated, observed),
        )
        return
    columns = _overlaps(theory, sgd, observed)
    if simulated is not None:
        record = _record(simulated, observed)
        columns |= {f"simulated {name}": record[name] for name in ("risk", *observed)}
    begin = f"a random start in d = {dimension}" if overlap is None else f"overlap {overlap:g}"
    _print_times(f"{registry.PUBLIC[_LIMITS[limit]].title}, from {begin}", problem, sgd, columns, both)


@states
def simulate(
    problem: "Problem",
    sgd: "OnlineAlgorithm",
    dimension: Dimension = 3_000,
    alpha: Alpha = 20.0,
    runs: Annotated[int, typer.Option(help="Independent runs.")] = 64,
    overlap: Overlap = None,
    method: Annotated[
        Literal["exact", "vectors"],
        typer.Option(help="The State itself, exactly in law and at the same cost for any d; or the weight vectors."),
    ] = "exact",
    quantity: Quantity = "risk",
    seed: Seed = 0,
    plot: Plot = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Simulate SGD in dimension d, and print quantiles over runs.

    Each run has its own random start, unless --overlap is given. A step costs the same for d = 1000 and for
    d = 1000000000; the number of steps is alpha x d, so for large d take a small alpha.

    Exit codes: 0 done (runs that diverge are counted), 2 bad input, 130 interrupted.

    Example: dimfree simulate --sphere -d 10000 --alpha 15 --runs 100 --plot runs.png
    """
    check_targets(plot, output)
    observed = _observed(problem, quantity)
    import jax
    import numpy as np

    from ..analysis.exit_times import random_starts
    from ..errors import positive_integer

    runs = positive_integer(runs, "runs")
    start_key, run_key = jax.random.split(random_key(seed))
    if overlap is None:
        starts = random_starts(problem, dimension, runs, key=start_key)
    else:
        starts = given_start(problem, dimension, overlap, start_key)
    simulated = dimfree.simulate(
        problem, sgd, starts, dimension, alpha, runs=runs, key=run_key, method=method, progress=in_terminal()
    )
    save_picture(plot, lambda: dimfree.plot.compare(simulated, quantity=quantity))
    if output is not None:
        save_data(output, {None: simulated.to_xarray(observed)})
    if as_json:
        kept = _completed(simulated)
        M = np.asarray(simulated.state.M)[kept]
        print_json(
            "simulate",
            problem=repr(problem),
            algorithm=repr(sgd),
            dimension=dimension,
            method=method,
            seed=seed,
            simulation=_record(simulated, observed),
            M_quantiles={f"{q:g}": np.quantile(M, q, axis=0) if kept.any() else None for q in _QUANTILES},
        )
        return
    columns: dict[str, Any] = {"alpha": np.asarray(simulated.alpha)}
    # Quantiles of two quantities are as many columns as a terminal has room for.
    if observed:
        beside = {name: simulated.observe(name) for name in observed}
    else:
        beside = {"largest |M|": np.abs(np.asarray(simulated.state.M)).max(axis=(2, 3))}
    for name, values in {"risk": simulated.risk, **beside}.items():
        for q in _QUANTILES:
            columns[f"{name} {q:.0%}"] = np.quantile(_shown(simulated, values), q, axis=0)
    title = f"SGD in d = {dimension}, {runs} runs: quantiles over the runs"
    _print_times(title, problem, sgd, columns, {"simulation": simulated})


@states
def check(
    problem: "Problem",
    sgd: "OnlineAlgorithm",
    alpha: Annotated[float | None, typer.Option(help="How far [default: about one learning time].")] = None,
    dimensions: Annotated[
        str, typer.Option(metavar="NUMBERS", help="The values of d, separated by commas.")
    ] = "100,400,1600,6400",
    runs: Annotated[int, typer.Option(help="Simulations for each d, at least 16.")] = 64,
    plot: Plot = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Do theory and simulation agree, at the right rate?

    The distance of simulated SGD from its ODE limit must fall as d^-1/2 or faster. The random numbers are always
    the same.

    Exit codes: 0 they agree, 1 they do not, 2 bad input, 130 interrupted.

    Example: dimfree check --problem two-layer --width 3 --teacher-width 2 --learning-rate 0.5
    """
    check_targets(plot, output)
    try:
        sizes = tuple(int(size) for size in dimensions.split(","))
    except ValueError:
        sizes = ()
    if len(set(sizes)) < 2 or min(sizes) < 1:
        raise invalid(f"--dimensions {dimensions} was given; give two or more whole numbers, such as 100,400,1600.")
    with working(f"Simulating {runs} runs for each of {len(sizes)} dimensions ..."):
        result = dimfree.check(problem, sgd, alpha=alpha, dimensions=sizes, runs=runs)
    save_picture(plot, lambda: dimfree.plot.distances(result))
    if output is not None:
        import xarray

        columns = {
            "distance": ("d", list(result.distances)),
            "distance_error": ("d", list(result.distance_errors)),
            "diverged": ("d", list(result.diverged)),
        }
        attributes = {"slope": result.slope, "alpha": result.alpha, "problem": repr(problem), "algorithm": repr(sgd)}
        save_data(output, {None: xarray.Dataset(columns, coords={"d": list(sizes)}, attrs=attributes)})
    if as_json:
        drift = ("coordinate", "limit", "simulated", "standard_error")
        remainder = ("coordinate", "alpha", "difference", "standard_error")
        print_json(
            "check",
            problem=repr(problem),
            algorithm=repr(sgd),
            agrees=result.agrees,
            slope=result.slope,
            slope_error=result.slope_error,
            slopes=result.slopes,
            slope_errors=result.slope_errors,
            alpha=result.alpha,
            dimensions=result.dimensions,
            distances=result.distances,
            distance_errors=result.distance_errors,
            diverged=result.diverged,
            drift=[dict(zip(drift, row, strict=True)) for row in result.drift],
            remainders=[dict(zip(remainder, row, strict=True)) for row in result.remainders],
            expectation=result.expectation,
            expectation_error=result.expectation_error,
        )
    else:
        typer.echo(f"{problem!r}\n{sgd!r}\n{result}")
    raise typer.Exit(0 if result.agrees else 1)


def make_limit(name: str, problem: "Problem", sgd: "OnlineAlgorithm", d: int, tolerance: float = 1e-6) -> Any:
    """The limit of that name; d is for those that depend on it."""
    if name not in _LIMITS:
        raise invalid(f"--limit {name} was given; choose one of {', '.join(_LIMITS)}.")
    limit = registry.load(_LIMITS[name])
    of_dimension = {"d": d} if "d" in inspect.signature(limit).parameters else {}
    return limit(problem, sgd, tolerance=tolerance, **of_dimension)


def given_start(problem: "Problem", dimension: int, overlap: float | None, key: Any) -> "State":
    """Students that have this overlap, each with its teacher; random ones if it is None."""
    if overlap is None:
        return dimfree.random_state(problem, dimension, key=key)
    import numpy as np

    p, k = problem.width, problem.teacher_width
    if not -1 < overlap < 1:
        raise invalid(f"--overlap {overlap:g} was given; the overlap of two directions is between -1 and 1.")
    return dimfree.State(Q=np.eye(p), M=overlap * np.eye(p, k))


def _completed(trajectory: "Trajectory") -> Any:
    import numpy as np

    return np.atleast_1d(np.asarray(trajectory.outcome) == dimfree.Outcome.COMPLETED)


def _shown(trajectory: "Trajectory", values: Any) -> Any:
    """Those of the runs that completed; if none has, of all of them, NaN from where each has diverged."""
    import numpy as np

    values, kept = np.asarray(values), _completed(trajectory)
    if trajectory.runs is not None and kept.any():
        return values[kept]
    diverged = np.asarray(trajectory.outcome) == dimfree.Outcome.DIVERGED
    end = np.where(diverged, np.asarray(trajectory.stopped_at), np.inf)
    gone = np.asarray(trajectory.alpha) >= end[..., None]
    return np.where(gone.reshape(*gone.shape, *[1] * (values.ndim - gone.ndim)), np.nan, values)


def _outcomes(trajectory: "Trajectory") -> dict[str, int]:
    """How many runs ended in which way."""
    import numpy as np

    ends = np.atleast_1d(np.asarray(trajectory.outcome))
    return {outcome.name.lower(): int(np.sum(ends == outcome)) for outcome in dimfree.Outcome}


def _observed(problem: "Problem", quantity: str) -> tuple[str, ...]:
    """What is observed beside the risk, or an error."""
    if quantity == "risk":
        return ()
    from ..problems.base import check_classes

    check_classes(problem, "--quantity accuracy")
    return (quantity,)


def _record(trajectory: "Trajectory", observed: tuple[str, ...] = ()) -> dict[str, Any]:
    """A trajectory for JSON: of many runs, the mean over those that completed, and quantiles of the risk."""
    import numpy as np

    many = trajectory.runs is not None

    def mean(array: Any) -> Any:
        if array is None:
            return None
        shown = _shown(trajectory, array)
        return shown.mean(axis=0) if many else shown

    risk = np.asarray(trajectory.risk)
    low, middle, high = np.quantile(_shown(trajectory, risk), _QUANTILES, axis=0) if many else (None,) * 3
    return {
        "runs": trajectory.runs,
        "outcomes": _outcomes(trajectory),
        "stopped_at": trajectory.stopped_at,
        "alpha": trajectory.alpha,
        "risk": mean(risk),
        "risk_quantile_10": low,
        "risk_quantile_50": middle,
        "risk_quantile_90": high,
        **{name: mean(trajectory.observe(name)) for name in observed},
        "M": mean(trajectory.state.M),
        "Q": mean(trajectory.state.Q),
        "readout": mean(trajectory.state.readout),
        "standard_deviation": trajectory.deviations or None,
        "provenance": dict(trajectory.provenance),
    }


def _overlaps(trajectory: "Trajectory", sgd: "OnlineAlgorithm", observed: tuple[str, ...]) -> dict[str, Any]:
    """Columns of a table: risk and overlaps, the larger the network the fewer of them."""
    import numpy as np

    record = _record(trajectory, observed)
    columns: dict[str, Any] = {"alpha": np.asarray(record["alpha"]), "risk": record["risk"]}
    columns |= {name: record[name] for name in observed}
    M, Q = np.asarray(record["M"]), np.asarray(record["Q"])
    p, k = M.shape[-2:]
    if p * k <= 4:
        columns |= {f"M[{i},{j}]": M[:, i, j] for i in range(p) for j in range(k)}
    else:
        columns["largest |M|"] = np.abs(M).max(axis=(1, 2))
    if p <= 2:
        columns |= {f"Q[{i},{j}]": Q[:, i, j] for i in range(p) for j in range(i, p) if not (sgd.sphere and i == j)}
    else:
        columns["mean Q[i,i]"] = np.trace(Q, axis1=1, axis2=2) / p
    if record["standard_deviation"] is not None and p * k <= 4:
        columns |= {f"sd {name}": sd for name, sd in record["standard_deviation"].items() if name.startswith("M")}
    return columns


def _print_times(
    title: str, problem: "Problem", sgd: "OnlineAlgorithm", columns: dict[str, Any], made: "dict[str, Trajectory]"
) -> None:
    """A table over a few of the times, how averages were taken, and how runs ended that did not complete."""
    import numpy as np

    shown = np.linspace(0, len(columns["alpha"]) - 1, _SHOWN).round().astype(int)
    ended = []
    for what, trajectory in made.items():
        for name, number in _outcomes(trajectory).items():
            if number and name != "completed":
                those = np.asarray(trajectory.outcome) == dimfree.Outcome[name.upper()]
                first = float(np.min(np.asarray(trajectory.stopped_at), where=those, initial=np.inf))
                ended.append(
                    f"{what}: {number} of {trajectory.runs or 1} ended early ({name.replace('_', ' ')}), the first at "
                    f"alpha = {first:.3g}." + (" Take a smaller --learning-rate." if name == "diverged" else "")
                )
    few = {name: np.asarray(values)[shown].tolist() for name, values in columns.items()}
    taken = [
        f"Averages of the {name}: {how}."
        for trajectory in made.values()
        for name, how in trajectory.provenance
        if name in ("drift", "covariance") and how != "closed form"
    ]
    print_table(title, few, above=(problem, sgd), below=[*taken, *ended])
