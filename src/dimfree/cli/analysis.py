"""What it means: exit times, fixed points, the landscape of the risk."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import dimfree

from .dynamics import Dimension
from .output import (
    AsJson,
    Output,
    Plot,
    Seed,
    check_targets,
    in_terminal,
    invalid,
    plainly,
    print_json,
    print_table,
    random_key,
    save_data,
    save_picture,
    working,
)
from .problem_options import states

if TYPE_CHECKING:
    from ..algorithms import OnlineSGD
    from ..analysis import HessianSpectrum
    from ..problems import Problem

_FEW = 6  # numbers of a matrix that a cell of a table holds


@states
def exit_time(
    problem: "Problem",
    sgd: "OnlineSGD",
    dimension: Dimension = 3_000,
    threshold: Annotated[
        float, typer.Option(help="SGD has left when the risk has lost this fraction of its excess on the plateau.")
    ] = 0.1,
    runs: Annotated[int, typer.Option(help="Simulated runs, each from its own random start.")] = 256,
    methods: Annotated[
        str, typer.Option(metavar="NAMES", help="Methods to use, separated by commas.")
    ] = "closed_form,ode,dressed,sde,simulated",
    seed: Seed = 0,
    plot: Plot = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """How many samples SGD needs to leave its plateau.

    All descriptions side by side: closed form, ODE from random starts, the same ODE with the noise of the plateau added
    (dressed), SDE, and SGD itself simulated exactly in law. Times are in alpha, samples per dimension.

    Exit codes: 0 done, 2 bad input (also where there is no plateau), 130 interrupted.

    Example: dimfree exit-time --sphere --learning-rate 0.08 -d 3000 --plot exits.png
    """
    check_targets(plot, output)
    if in_terminal():
        typer.echo(f"By {methods}, for d = {dimension} ...", err=True)
    chosen = tuple(name.strip().replace("-", "_") for name in methods.split(","))
    result = dimfree.exit_time(
        problem,
        sgd,
        dimension,
        threshold,
        runs=runs,
        key=random_key(seed),
        methods=chosen,
        progress=in_terminal(),
    )
    rows = result.rows()
    if not rows:
        raise invalid(" ".join(result.notes))
    save_picture(plot, lambda: dimfree.plot.exit_times(result))
    if output is not None:
        save_data(output, {None: result.to_xarray().assign_attrs(seed=seed)})
    if as_json:
        print_json(
            "exit-time",
            problem=repr(problem),
            algorithm=repr(sgd),
            dimension=dimension,
            threshold=threshold,
            seed=seed,
            plateau_risk=result.plateau_risk,
            level=result.level,
            descriptions=rows,
            notes=result.notes,
        )
        return
    columns = {
        "": [row["description"] for row in rows],
        "alpha": [row["mean"] for row in rows],
        "+-": [row["error"] for row in rows],
        **{
            name: [row.get(key) for row in rows]
            for name, key in (("10%", "quantile_10"), ("50%", "median"), ("90%", "quantile_90"))
        },
        "stay": [None if row.get("stay") is None else f"{row['stay']:.1%}" for row in rows],
        "holds for": [row["validity"] for row in rows],
    }
    title = f"Exit from the plateau, d = {dimension}: the risk from {result.plateau_risk:.5g} to {result.level:.5g}"
    samples = f"alpha is samples / d: multiply by {dimension} for the number of samples."
    print_table(title, columns, above=(problem, sgd), below=[samples, *result.notes])


@states
def fixed_points(
    problem: "Problem",
    sgd: "OnlineSGD",
    limit: Annotated[Literal["ode", "gradient-flow"], typer.Option(help="Of which limit.")] = "ode",
    starts: Annotated[int, typer.Option(help="Random starts of the search; more may find more.")] = 256,
    seed: Seed = 0,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Where the ODE comes to rest, and which points attract.

    Fixed points are grouped into connected families. Points that renaming neurons or changing signs carries into each
    other are one row, and `components` counts them. A growth rate is per unit of alpha; where the largest is negative
    the point attracts.

    Exit codes: 0 done, 2 bad input, 130 interrupted.

    Example: dimfree fixed-points --problem spiked-tensor --order 2 --snr 2 --learning-rate 1
    """
    check_targets(output=output)
    import numpy as np

    of = dimfree.ode(problem, sgd) if limit == "ode" else dimfree.gradient_flow(problem, sgd)
    with working(f"Searching from {starts} random starts ..."):
        found = dimfree.fixed_points(of, key=random_key(seed), starts=starts)
    rows = [
        {
            "components": kind.components,
            "dimension": kind.dimension,
            "risk": kind.risk,
            "growth": float(np.max(kind.growth)),
            "stable": kind.stable,
            "stability": kind.stability,
            "M": np.asarray(kind.state.M),
            "Q": np.asarray(kind.state.Q),
            "readout": None if kind.state.readout is None else np.asarray(kind.state.readout),
        }
        for kind in found
    ]
    if output is not None:
        save_data(output, {None: _points_dataset(rows, {"problem": repr(problem), "algorithm": repr(sgd)})})
    if as_json:
        print_json(
            "fixed-points",
            problem=repr(problem),
            algorithm=repr(sgd),
            limit=limit,
            seed=seed,
            components=found.components,
            stable_components=found.stable_components,
            symmetries=found.symmetries,
            points=rows,
        )
        return
    columns = {name: [row[name] for row in rows] for name in ("components", "dimension", "risk", "growth", "stability")}
    columns |= {name: [_matrix(row[name]) for row in rows] for name in ("M", "Q")}
    title = f"Connected sets of fixed points: {found.components}, of which stable: {found.stable_components}"
    print_table(title, columns, above=(problem, sgd), below=["The search may miss some: more --starts may find more."])


@states
def landscape(
    problem: "Problem",
    sgd: "OnlineSGD",
    dimension: Dimension = 1_000,
    starts: Annotated[int, typer.Option(help="Random starts of the search; more may find more.")] = 64,
    seed: Seed = 0,
    plot: Plot = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Critical points of the risk, and the Hessian at each.

    All eigenvalues of each point, with their multiplicities. The Hessian is that in the weights divided by sqrt(d), a
    matrix of p x d rows that is never built, so that any d will do. Of the options of the algorithm only --sphere
    counts.

    Exit codes: 0 done, 2 bad input, 130 interrupted.

    Example: dimfree landscape --width 2 -d 1000 --plot spectra.png
    """
    check_targets(plot, output)
    import numpy as np

    with working(f"Searching from {starts} random starts ..."):
        found = dimfree.critical_points(problem, dimension, key=random_key(seed), starts=starts, sphere=sgd.sphere)
    save_picture(plot, lambda: dimfree.plot.spectra([spectrum for _, spectrum in found]))
    rows = [
        {
            "risk": spectrum.risk,
            "kind": spectrum.kind,
            "negative": spectrum.negative,
            "flat": spectrum.flat,
            "flat_of_symmetry": spectrum.symmetric,
            "positive": spectrum.positive,
            "eigenvalues": spectrum.eigenvalues,
            "multiplicities": spectrum.multiplicities,
            "M": np.asarray(state.M),
            "Q": np.asarray(state.Q),
        }
        for state, spectrum in found
    ]
    if output is not None:
        save_data(output, {None: _spectra_dataset(rows, {"problem": repr(problem), "d": dimension})})
    if as_json:
        print_json(
            "landscape", problem=repr(problem), dimension=dimension, sphere=sgd.sphere, seed=seed, critical_points=rows
        )
        return
    columns = {name: [row[name] for row in rows] for name in ("risk", "kind", "negative", "flat", "positive")}
    columns["eigenvalue x multiplicity"] = [_spectrum(spectrum) for _, spectrum in found]
    where = ", on the sphere" if sgd.sphere else ""
    title = f"Critical points of the risk: {len(rows)}, for d = {dimension}{where}"
    print_table(title, columns, above=(problem,), below=["The search may miss some: more --starts may find more."])


def scaling_law(
    input_exponent: Annotated[float, typer.Option(help="a: inputs have the variances j^-2a; above 1/2.")] = 1.0,
    target_exponent: Annotated[
        float, typer.Option(help="b: the target is the sum of j^-b times input j, or its square with --teachers.")
    ] = 0.75,
    teachers: Annotated[
        int | None,
        typer.Option(help="Learn this many teachers of strengths j^-b by a quadratic network, instead of features."),
    ] = None,
    dimension: Annotated[int, typer.Option(help="Dimension of the inputs, with --teachers.")] = 100_000,
    noise: Annotated[float, typer.Option(help="Variance of the label noise.")] = 0.0,
    learning_rate: Annotated[
        float | None,
        typer.Option(help="Step size of SGD [default: 0.5 over the sum of the variances; 0.001 with --teachers]."),
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Samples in a step.")] = 1,
    smallest: Annotated[
        float | None, typer.Option(help="Smallest number of features, or students [default: 100; 6].")
    ] = None,
    largest: Annotated[
        float | None, typer.Option(help="Largest number of features, or students [default: 100,000; 60].")
    ] = None,
    sizes: Annotated[int, typer.Option(help="How many sizes to compute.")] = 13,
    samples: Annotated[
        float | None,
        typer.Option(help="Largest number of samples [default: 1e8; as many as the largest network learns from]."),
    ] = None,
    plot: Plot = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """How the risk of SGD falls with samples, features and compute.

    For random features of inputs with power laws, by the exact mean of SGD, or for many teachers, by the ODE: the best
    size for a given compute, and exponents, measured and predicted.

    Exit codes: 0 done, 2 bad input, 130 interrupted.

    Example: dimfree scaling-law --input-exponent 1 --target-exponent 0.75 --plot law.png
    """
    check_targets(plot, output)
    import numpy as np
    import scipy.special

    with plainly():
        if teachers is None:
            family = dimfree.PowerLawFeatures(input_exponent, target_exponent, noise)
            # About half of the rate at which the noise of single samples has no bound.
            rate = 0.5 / scipy.special.zeta(2 * input_exponent) if learning_rate is None else learning_rate
            ends, seen, words = (smallest or 100, largest or 100_000), 1e8 if samples is None else samples, "features"
        else:
            family = dimfree.PowerLawTeachers(target_exponent, teachers, dimension, noise=noise)
            rate = 0.001 if learning_rate is None else learning_rate
            ends, words = (smallest or min(6, teachers), largest or min(60, teachers)), "students"
            learned = family.samples_to_learn(rate)
            last = learned[min(round(ends[1]), teachers) - 1] if samples is None else samples
            seen = np.geomspace(min(learned[0], last / 2), last, 60)
        sgd = dimfree.OnlineSGD(rate, batch_size=batch_size)
        with working(f"{sizes} sizes, a second or a few each ..."):
            law = dimfree.scaling_law(family, sgd, np.geomspace(*ends, sizes), seen)
    save_picture(plot, lambda: dimfree.plot.scaling_law(law))
    if output is not None:
        save_data(output, {None: law.to_xarray().assign_attrs(family=repr(family), algorithm=repr(sgd))})
    rows = law.rows()
    if as_json:
        print_json("scaling-law", family=repr(family), algorithm=repr(sgd), method=law.method, exponents=rows)
        return
    columns = {name: [row[name] for row in rows] for name in ("exponent", "measured", "low", "high", "predicted")}
    title = (
        f"Scaling law, {law.sizes[0]:g} to {law.sizes[-1]:g} {words}, up to {law.samples[-1]:.3g} samples: {law.method}"
    )
    print_table(title, columns, above=(family, sgd), below=law.notes)


def _matrix(matrix: Any) -> str:
    """A small matrix in a cell; of a large one its size."""
    if matrix.size > _FEW:
        return f"{matrix.shape[0]} x {matrix.shape[1]}"
    return "; ".join(" ".join(f"{value + 0.0:.3g}" for value in row) for row in matrix.round(6))


def _spectrum(spectrum: "HessianSpectrum") -> str:
    pairs = zip(spectrum.eigenvalues, spectrum.multiplicities, strict=True)
    shown = [f"{0.0 if abs(value) <= spectrum.tolerance else value:.4g} x {number:,}" for value, number in pairs]
    if len(shown) > 2 * _FEW:
        shown = [*shown[:_FEW], f"... {len(shown) - 2 * _FEW} more ...", *shown[-_FEW:]]
    return "\n".join(shown)


def _dataset(rows: list[dict[str, Any]], names: tuple[str, ...], attributes: dict[str, Any]) -> Any:
    """What points have by these names, and their overlaps."""
    import numpy as np
    import xarray

    numbers: dict[str, Any] = {name: ("point", np.asarray([row[name] for row in rows])) for name in names}
    if rows:
        numbers["M"] = (("point", "student", "teacher"), np.stack([row["M"] for row in rows]))
        numbers["Q"] = (("point", "student", "student_"), np.stack([row["Q"] for row in rows]))
    return xarray.Dataset(numbers, attrs=attributes)


def _points_dataset(rows: list[dict[str, Any]], attributes: dict[str, Any]) -> Any:
    import numpy as np

    points = _dataset(rows, ("components", "dimension", "risk", "growth", "stable", "stability"), attributes)
    points["stable"] = points.stable.astype(int)
    if rows and rows[0]["readout"] is not None:
        points["readout"] = (("point", "student"), np.stack([row["readout"] for row in rows]))
    return points


def _spectra_dataset(rows: list[dict[str, Any]], attributes: dict[str, Any]) -> Any:
    """Spectra have different lengths: they are one after the other, and `of_point` says whose an eigenvalue is."""
    import numpy as np

    names = ("risk", "kind", "negative", "flat", "flat_of_symmetry", "positive")
    spectra = _dataset(rows, names, attributes)
    if rows:
        spectra["eigenvalue"] = ("eigenvalue_index", np.concatenate([row["eigenvalues"] for row in rows]))
        spectra["multiplicity"] = ("eigenvalue_index", np.concatenate([row["multiplicities"] for row in rows]))
        lengths = [len(row["eigenvalues"]) for row in rows]
        spectra["of_point"] = ("eigenvalue_index", np.repeat(np.arange(len(rows)), lengths))
    return spectra
