"""Limits as equations."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

import dimfree

from .output import AsJson, invalid, print_json
from .problem_options import states

if TYPE_CHECKING:
    from ..algorithms import OnlineAlgorithm
    from ..problems import Problem


@states
def equations(
    problem: "Problem",
    algorithm: "OnlineAlgorithm",
    limit: Annotated[Literal["ode", "sde", "linearised"], typer.Option(help="Which limit.")] = "ode",
    notation: Annotated[
        str,
        typer.Option(metavar="NAME", help="Our notation (dimfree), or the notation of a paper, such as arnaboldi2023."),
    ] = "dimfree",
    sizes: Annotated[
        Literal["symbolic", "given"] | None,
        typer.Option(help="Widths as symbols, or as given [default: symbolic for wide quadratic networks]."),
    ] = None,
    hermite_order: Annotated[
        int | None, typer.Option(help="Order of the series in Hermite coefficients, for other activations.")
    ] = None,
    latex: Annotated[bool, typer.Option("--latex", help="Print LaTeX.")] = False,
    python: Annotated[bool, typer.Option("--python", help="Print Python code that needs only NumPy.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print a limit of SGD as equations.

    Every number that is neither zero nor one is a symbol; its value is printed below the equations.

    Exit codes: 0 done, 2 bad input, 130 interrupted.

    Examples: dimfree equations --width 2 --sphere --latex; dimfree equations --algorithm momentum --momentum-rate 0.4
    --forgetting 2
    """
    if latex + python + as_json > 1:
        raise invalid("--latex, --python and --json were given together; choose one.")
    found = dimfree.equations(problem, algorithm, limit, notation=notation, sizes=sizes, hermite_order=hermite_order)
    if as_json:
        print_json("equations", **found.to_dict())
    elif latex:
        typer.echo(found.to_latex())
    else:
        typer.echo(found.to_python() if python else str(found))
