"""The command line: solve, check, equations, study, reproduce, doctor.

Nothing heavy is imported before it is needed, so that `dimfree --help` answers at once.
"""

import contextlib
import importlib.metadata
import inspect
import json
import math
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import dimfree

from . import cli_study, examination

if TYPE_CHECKING:
    from .algorithms import OnlineSGD
    from .papers import Claim
    from .problems import Problem
    from .trajectory import Trajectory

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # Rich is for the tables: importing it would double the time of --help
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(cli_study.app, name="study")

_SHOWN = 9  # times in the table of `solve`

# The options that state a problem and an algorithm, the same for every command.
ProblemName = Annotated[
    Literal["phase-retrieval", "two-layer", "single-index"], typer.Option("--problem", help="Which problem.")
]
Width = Annotated[int, typer.Option(help="Student neurons, p.")]
TeacherWidth = Annotated[int | None, typer.Option(help="Teacher neurons, k, for two-layer [default: 1].")]
Activation = Annotated[
    str | None,
    typer.Option(help="Of student and teacher, for two-layer and single-index [default: erf]."),
]
Noise = Annotated[float, typer.Option(help="Variance of the label noise.")]
LearningRate = Annotated[float, typer.Option(help="Step size.")]
BatchSize = Annotated[int, typer.Option(help="Fresh samples in a step.")]
Sphere = Annotated[bool, typer.Option("--sphere/--free", help="Keep each student at norm sqrt(d), or not.")]
Ridge = Annotated[float, typer.Option(help="Strength of the penalty on the weights.")]
ReadoutRate = Annotated[float | None, typer.Option(help="Step size of the readout [default: the readout is fixed].")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    """Print what is wrong with the input as one message, with exit code 2."""
    try:
        yield
    except ValueError as error:
        # Importing it earlier would import JAX.
        from .errors import InvalidInput

        if not isinstance(error, InvalidInput):
            raise
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None


def _invalid(message: str) -> Exception:
    from .errors import InvalidInput

    return InvalidInput(message)


def _problem(name: str, width: int, teacher_width: int | None, activation: str | None, noise: float) -> "Problem":
    if name != "two-layer" and teacher_width not in (None, 1):
        raise _invalid(
            f"--teacher-width {teacher_width} was given, but {name} has one teacher direction; use --problem two-layer."
        )
    if name == "phase-retrieval":
        if activation not in (None, "square"):
            raise _invalid(
                f"--activation {activation} was given, but phase-retrieval has the square; "
                "use --problem single-index or two-layer."
            )
        return dimfree.PhaseRetrieval(width=width, noise=noise)
    if name == "single-index":
        return dimfree.SingleIndex(activation or "erf", width=width, noise=noise)
    return dimfree.TwoLayer(
        width=width,
        teacher_width=1 if teacher_width is None else teacher_width,
        activation=activation or "erf",
        noise=noise,
    )


def _print_version(asked: bool) -> bool:
    if asked:
        typer.echo(f"dimfree {importlib.metadata.version('dimfree')}")
        raise typer.Exit()
    return asked


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Exact, dimension-free descriptions of stochastic gradient descent in high dimension."""


@app.command()
def solve(
    problem: ProblemName = "phase-retrieval",
    width: Width = 1,
    teacher_width: TeacherWidth = None,
    activation: Activation = None,
    noise: Noise = 0.0,
    learning_rate: LearningRate = 0.1,
    batch_size: BatchSize = 1,
    sphere: Sphere = False,
    ridge: Ridge = 0.0,
    readout_rate: ReadoutRate = None,
    dimension: Annotated[
        int, typer.Option(help="Input dimension d, of the random start and of what is random.")
    ] = 3_000,
    seed: Annotated[int, typer.Option(help="Of the start, of paths and of simulations.")] = 0,
    alpha: Annotated[float, typer.Option(help="How far: samples per dimension.")] = 20.0,
    limit: Annotated[
        Literal["ode", "gradient-flow", "sde", "linear-noise"],
        typer.Option(help="Which limit."),
    ] = "ode",
    paths: Annotated[int, typer.Option(help="Paths of the SDE.")] = 64,
    simulate: Annotated[
        int, typer.Option(metavar="RUNS", help="Also simulate SGD in that dimension, so many times.")
    ] = 0,
    as_json: AsJson = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the risk into this file (.png, .pdf, .svg).")] = None,
    output: Annotated[Path | None, typer.Option(help="Write all of it to this NetCDF file (.nc).")] = None,
) -> None:
    """Integrate a limit of SGD, and simulate SGD beside it.

    The start is random, as weights in the given dimension are.
    """
    with _plainly():
        for option, path in (("--plot", plot), ("--output", output)):
            if path is not None and not path.absolute().parent.is_dir():
                raise _invalid(f"{option} {path} was given, but there is no directory {path.absolute().parent}.")
        if output is not None and (absent := examination.missing("netcdf")):
            raise _invalid(f"--output {output} needs {' and '.join(absent)}: pip install {' '.join(absent)}")
        import jax

        stated = _problem(problem, width, teacher_width, activation, noise)
        sgd = dimfree.OnlineSGD(
            learning_rate, batch_size=batch_size, sphere=sphere, ridge=ridge, readout_rate=readout_rate
        )
        start_key, path_key, run_key = jax.random.split(jax.random.key(seed), 3)
        start = dimfree.random_state(stated, dimension, key=start_key)
        if limit == "ode":
            theory = dimfree.solve(dimfree.ode(stated, sgd), start, alpha)
        elif limit == "gradient-flow":
            theory = dimfree.solve(dimfree.gradient_flow(stated, sgd), start, alpha)
        elif limit == "sde":
            theory = dimfree.solve(dimfree.sde(stated, sgd, d=dimension), start, alpha, runs=paths, key=path_key)
        else:
            theory = dimfree.solve(dimfree.linear_noise(stated, sgd, d=dimension), start, alpha)
        simulated = None
        if simulate:
            simulated = dimfree.simulate(stated, sgd, start, d=dimension, alpha=alpha, runs=simulate, key=run_key)
        if plot is not None:
            _save_picture(plot, [theory] if simulated is None else [theory, simulated])
        if output is not None:
            _save_netcdf(output, theory, simulated)
        if as_json:
            report = {
                "schema": "dimfree.solve/1",
                "dimfree": importlib.metadata.version("dimfree"),
                "problem": repr(stated),
                "algorithm": repr(sgd),
                "limit": limit,
                "dimension": dimension,
                "seed": seed,
                "theory": _record(theory),
                "simulation": None if simulated is None else _record(simulated),
            }
            _print_json(report)
        else:
            _print_table(stated, sgd, theory, simulated, limit=limit, dimension=dimension)


@app.command()
def check(
    problem: ProblemName = "phase-retrieval",
    width: Width = 1,
    teacher_width: TeacherWidth = None,
    activation: Activation = None,
    noise: Noise = 0.0,
    learning_rate: LearningRate = 0.1,
    batch_size: BatchSize = 1,
    sphere: Sphere = False,
    ridge: Ridge = 0.0,
    readout_rate: ReadoutRate = None,
    alpha: Annotated[float | None, typer.Option(help="How far [default: about one learning time].")] = None,
    dimensions: Annotated[str, typer.Option(help="The values of d, separated by commas.")] = "100,400,1600,6400",
    runs: Annotated[int, typer.Option(help="Simulations for each d.")] = 64,
    as_json: AsJson = False,
) -> None:
    """Do theory and simulation agree, at the right rate?

    The distance of simulated SGD from its ODE limit must fall as d^-1/2.
    Exit code 0 if it does, 1 if not, 2 for bad input.
    """
    with _plainly():
        try:
            sizes = tuple(int(size) for size in dimensions.split(","))
        except ValueError:
            sizes = ()
        if len(sizes) < 2 or min(sizes) < 1:
            raise _invalid(
                f"--dimensions {dimensions} was given; give at least two whole numbers, such as 100,400,1600."
            )
        stated = _problem(problem, width, teacher_width, activation, noise)
        sgd = dimfree.OnlineSGD(
            learning_rate, batch_size=batch_size, sphere=sphere, ridge=ridge, readout_rate=readout_rate
        )
        result = dimfree.check(stated, sgd, alpha=alpha, dimensions=sizes, runs=runs)
    if as_json:
        _print_json(
            {
                "schema": "dimfree.check/1",
                "dimfree": importlib.metadata.version("dimfree"),
                "problem": repr(stated),
                "algorithm": repr(sgd),
                "agrees": result.agrees,
                "slope": result.slope,
                "slopes": result.slopes,
                "alpha": result.alpha,
                "dimensions": list(result.dimensions),
                "distances": list(result.distances),
                "diverged": list(result.diverged),
                "drift": [
                    dict(zip(("coordinate", "limit", "simulated", "standard_error"), row, strict=True))
                    for row in result.drift
                ],
                "expectation": result.expectation,
                "expectation_error": result.expectation_error,
            }
        )
    else:
        typer.echo(f"{stated!r}\n{sgd!r}\n{result}")
    raise typer.Exit(0 if result.agrees else 1)


@app.command()
def equations(
    problem: ProblemName = "phase-retrieval",
    width: Width = 1,
    teacher_width: TeacherWidth = None,
    activation: Activation = None,
    noise: Noise = 0.0,
    learning_rate: LearningRate = 0.1,
    batch_size: BatchSize = 1,
    sphere: Sphere = False,
    ridge: Ridge = 0.0,
    readout_rate: ReadoutRate = None,
    limit: Annotated[Literal["ode", "sde", "linearised"], typer.Option(help="Which limit.")] = "ode",
    notation: Annotated[
        str, typer.Option(help="Ours (dimfree), or that of a source, such as arnaboldi2023.")
    ] = "dimfree",
    sizes: Annotated[
        Literal["symbolic", "given"] | None,
        typer.Option(help="Widths as symbols, or as given [default: symbolic for wide quadratic networks]."),
    ] = None,
    hermite_order: Annotated[
        int | None, typer.Option(help="Order of the series in Hermite coefficients, for other activations.")
    ] = None,
    latex: Annotated[bool, typer.Option("--latex", help="Print LaTeX.")] = False,
    python: Annotated[bool, typer.Option("--python", help="Print Python that needs NumPy only.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print a limit of SGD as equations.

    Every number that is neither zero nor one is a symbol; its value is printed below the equations.
    """
    with _plainly():
        if latex + python + as_json > 1:
            raise _invalid("--latex, --python and --json were given together; choose one.")
        stated = _problem(problem, width, teacher_width, activation, noise)
        sgd = dimfree.OnlineSGD(
            learning_rate, batch_size=batch_size, sphere=sphere, ridge=ridge, readout_rate=readout_rate
        )
        found = dimfree.equations(stated, sgd, limit, notation=notation, sizes=sizes, hermite_order=hermite_order)
        if as_json:
            version = importlib.metadata.version("dimfree")
            _print_json({"schema": "dimfree.equations/1", "dimfree": version, **found.to_dict()})
        elif latex:
            typer.echo(found.to_latex())
        else:
            typer.echo(found.to_python() if python else str(found))


@app.command()
def reproduce(
    paper: Annotated[str | None, typer.Argument(help="Which publication, such as arnaboldi2023.")] = None,
    figure: Annotated[
        str | None, typer.Argument(help="Which figure, such as fig1 [default: check the numbered statements].")
    ] = None,
    size: Annotated[
        Literal["quick", "full"], typer.Option(help="Seconds, or the publication's own dimensions and runs.")
    ] = "quick",
    output: Annotated[Path, typer.Option(help="Directory for the picture (.png) and the data (.nc).")] = Path(),
    list_figures: Annotated[bool, typer.Option("--list", help="List the figures and stop.")] = False,
    as_json: AsJson = False,
) -> None:
    """Draw a published figure, or check a publication's numbered statements.

    Each claim gets a verdict: agrees, misprint (what is printed does not hold, a correction does) or differs.
    """
    with _plainly():
        from . import papers

        if list_figures:
            names = papers.PAPERS if paper is None else (papers.find(paper).name,)
            rows = [row for name in names for row in papers.find(name).listing()]
            if as_json:
                typer.echo(json.dumps(rows, indent=2))
            else:
                for row in rows:
                    typer.echo(f"{row['paper']} {row['figure']:<6} {row['title']}")
            return
        if paper is None:
            raise _invalid(f"Name a publication: {', '.join(papers.PAPERS)}; --list shows their figures.")
        report = {
            "schema": "dimfree.reproduce/1",
            "dimfree": importlib.metadata.version("dimfree"),
            "paper": paper,
            "figure": figure,
        }
        if figure is None:
            claims = papers.claims(paper)
        else:
            if not output.is_dir():
                raise _invalid(f"--output {output} was given, but there is no such directory.")
            if size == "full" and (published := papers.find(paper).figure(figure)) is not None:
                typer.echo(f"{paper} {figure} at full size. {inspect.getdoc(published.make) or ''}\n", err=True)
            made = papers.reproduce(paper, figure, size)
            picture, data = (output / f"{paper}_{figure}.{ending}" for ending in ("png", "nc"))
            made.picture.savefig(picture, dpi=160)
            made.data.to_netcdf(data, engine="scipy")
            claims = made.claims
            report |= {"size": size, "picture": str(picture), "data": str(data)}
    if as_json:
        _print_json(report | {"claims": [claim.to_dict() for claim in claims]})
        return
    if figure is not None:
        typer.echo(f"{report['picture']}\n{report['data']}")
    _print_claims(claims)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """What is installed, and what to do if something is wrong.

    Exit code 1 if something is.
    """
    report = examination.examine()
    if as_json:
        _print_json(report)
    else:
        examination.print_examination(report)
    raise typer.Exit(0 if report["ok"] else 1)


def main() -> None:
    """The entry point of the command `dimfree`."""
    app()


# What solve prints and writes.


def _plain(value: Any) -> Any:
    """`value` as JSON has it: arrays as lists, what is not finite as null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _print_json(report: dict[str, Any]) -> None:
    typer.echo(json.dumps(_plain(report), indent=2, allow_nan=False))


def _outcomes(trajectory: "Trajectory") -> dict[str, int]:
    """How many runs ended in which way."""
    import numpy as np

    ends = np.atleast_1d(np.asarray(trajectory.outcome))
    return {outcome.name.lower(): int(np.sum(ends == outcome)) for outcome in dimfree.Outcome}


def _record(trajectory: "Trajectory") -> dict[str, Any]:
    """A trajectory for JSON: of many runs, the mean over those that completed and two quantiles of the risk."""
    import numpy as np

    many = trajectory.runs is not None
    kept = np.asarray(trajectory.outcome) == dimfree.Outcome.COMPLETED

    def mean(array: Any) -> Any:
        if array is None:
            return None
        array = np.asarray(array)
        if not many:
            return array
        return array[kept].mean(axis=0) if kept.any() else np.full(array.shape[1:], np.nan)

    risk = np.asarray(trajectory.risk)
    low, high = np.quantile(risk[kept], [0.1, 0.9], axis=0) if many and kept.any() else (None, None)
    deviation = None
    if trajectory.covariance is not None:
        deviation = dict(zip(trajectory.labels, np.asarray(trajectory.standard_deviation).T, strict=True))
    return {
        "runs": trajectory.runs,
        "outcomes": _outcomes(trajectory),
        "stopped_at": trajectory.stopped_at,
        "alpha": trajectory.alpha,
        "risk": mean(risk),
        "risk_quantile_10": low,
        "risk_quantile_90": high,
        "M": mean(trajectory.state.M),
        "Q": mean(trajectory.state.Q),
        "readout": mean(trajectory.state.readout),
        "standard_deviation": deviation,
        "provenance": dict(trajectory.provenance),
    }


def _print_table(
    problem: "Problem",
    sgd: "OnlineSGD",
    theory: "Trajectory",
    simulated: "Trajectory | None",
    *,
    limit: str,
    dimension: int,
) -> None:
    import numpy as np
    from rich.console import Console
    from rich.table import Table

    record = _record(theory)
    columns: dict[str, Any] = {"alpha": np.asarray(record["alpha"]), "risk": record["risk"]}
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
    if simulated is not None:
        runs = _record(simulated)
        columns["simulated risk"] = runs["risk"]
    table = Table(title=f"{limit}, from a random start in d = {dimension}", title_justify="left", title_style="bold")
    for name in columns:
        table.add_column(name, justify="right")
    for index in np.linspace(0, len(columns["alpha"]) - 1, _SHOWN).round().astype(int):
        table.add_row(*(f"{float(values[index]):.4g}" for values in columns.values()))
    console = Console()
    console.print(repr(problem), repr(sgd), sep="\n", markup=False, highlight=False)
    console.print(table)
    for what, trajectory in (("theory", theory), ("simulation", simulated)):
        if trajectory is None:
            continue
        for name, number in _outcomes(trajectory).items():
            if number and name != "completed":
                words = f"{what}: {number} of {trajectory.runs or 1} ended early ({name.replace('_', ' ')})."
                console.print(words, markup=False)


def _save_picture(path: Path, trajectories: list["Trajectory"]) -> None:
    try:
        dimfree.plot.compare(*trajectories).figure.savefig(path)  # pyright: ignore[reportAttributeAccessIssue]
    except (OSError, ValueError) as error:
        raise _invalid(f"--plot {path}: {error}") from error


def _save_netcdf(path: Path, theory: "Trajectory", simulated: "Trajectory | None") -> None:
    """One file, with a group for the theory and one for the simulation."""
    theory.to_xarray().to_netcdf(path, mode="w", group="theory", engine="h5netcdf")
    if simulated is not None:
        simulated.to_xarray().to_netcdf(path, mode="a", group="simulation", engine="h5netcdf")


# What reproduce prints.


def _print_claims(claims: "tuple[Claim, ...]") -> None:
    """A line for each claim; of arrays, the entry where print and library are farthest apart."""
    import numpy as np

    wide = shutil.get_terminal_size((100, 24)).columns
    column = max([len(claim.where) for claim in claims], default=5) + 2
    typer.echo(f"{'where':<{column}}{'verdict':<10}{'printed':>12}{'ours':>12}")
    for claim in claims:
        printed, ours = np.ravel(np.asarray(claim.printed, float)), np.ravel(np.asarray(claim.ours, float))
        worst = int(np.argmax(np.abs(printed - ours)))
        typer.echo(f"{claim.where:<{column}}{claim.verdict:<10}{printed[worst]:>12.5g}{ours[worst]:>12.5g}")
        notes = {"agrees": [], "misprint": [claim.correction], "differs": [claim.statement, claim.remark]}
        for note in notes[claim.verdict]:
            if note:
                typer.echo(textwrap.fill(note, wide - 2, initial_indent="    ", subsequent_indent="    "))
    counts = {
        verdict: sum(claim.verdict == verdict for claim in claims) for verdict in ("agrees", "misprint", "differs")
    }
    typer.echo(", ".join(f"{number} {verdict}" for verdict, number in counts.items() if number))
