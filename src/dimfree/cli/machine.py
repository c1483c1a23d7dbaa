"""The installation: what is here, and what to cite of it."""

from typing import TYPE_CHECKING

import typer

import dimfree

from .. import doctor as findings
from .dynamics import Limit, make_limit
from .output import AsJson, plainly, print_json
from .problem_options import states

if TYPE_CHECKING:
    from ..algorithms import OnlineAlgorithm
    from ..problems import Problem


def doctor(as_json: AsJson = False) -> None:
    """What is installed, and what to do if something does not work.

    Exit codes: 0 everything works, 1 something does not.

    Example: dimfree doctor
    """
    with plainly():
        report = findings.examine()
        if as_json:
            print_json("doctor", **report)
        else:
            findings.print_findings(report)
        raise typer.Exit(0 if report["ok"] else 1)


@states
def cite(
    problem: "Problem",
    sgd: "OnlineAlgorithm",
    limit: Limit = "ode",
    as_json: AsJson = False,
) -> None:
    """BibTeX of dimfree, and of the papers that a problem uses.

    Exit codes: 0 done, 2 bad input.

    Example: dimfree cite --problem spiked-tensor --order 3 --snr 2 >> references.bib
    """
    entries = dimfree.cite(problem, sgd, make_limit(limit, problem, sgd, d=2))  # sources do not depend on d
    if as_json:
        print_json("cite", problem=repr(problem), limit=limit, bibtex=entries)
        return
    typer.echo(f"For {problem!r} and its {limit}:\n", err=True)
    typer.echo(entries)
