"""Published figures and claims."""

import inspect
import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from .output import INTERRUPTED, AsJson, invalid, leave, plainly, print_json

if TYPE_CHECKING:
    from ..papers import Paper
    from ..papers.claims import Claim
    from ..papers.report import Part

_NONE = 'No paper is installed; pip install "dimfree[papers]" brings five.'


def reproduce(
    paper: Annotated[str | None, typer.Argument(help="Which publication, such as arnaboldi2023.")] = None,
    figure: Annotated[
        str | None, typer.Argument(help="Which figure, such as fig1 [default: check the numbered statements].")
    ] = None,
    size: Annotated[
        Literal["quick", "full"],
        typer.Option(help="Seconds to minutes for a figure, or the publication's own dimensions and runs."),
    ] = "quick",
    output: Annotated[
        Path, typer.Option(metavar="DIRECTORY", help="Where to write the picture (.png) and the data (.nc).")
    ] = Path(),
    list_figures: Annotated[bool, typer.Option("--list", help="List the figures and stop.")] = False,
    all_papers: Annotated[bool, typer.Option("--all", help="Every publication; with --report.")] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY", help="Write a page index.html in this directory, with every chosen figure and claim."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw published figures, and check their claims.

    One figure, the numbered statements of a publication, or a report of everything (--report).
    Each claim gets a verdict: agrees, misprint (the printed statement does not hold, a correction does) or differs.
    You can interrupt a report: run the same command again, and it continues without drawing finished figures again.

    Exit codes: 0 done, whatever the verdicts; 1 a part of the report failed (the others are made); 2 bad input;
    130 interrupted.

    Examples: dimfree reproduce arnaboldi2023 fig6; dimfree reproduce --all --report out/
    """
    with plainly():
        from ..papers import find

        if all_papers and (paper is not None or report is None):
            raise invalid("--all is for a report of every publication: dimfree reproduce --all --report out/")
        if list_figures:
            list_papers(paper, as_json)
            return
        chosen = _all_papers() if paper is None else [find(paper)]
        if paper is None and not all_papers:
            raise invalid(
                f"Name a publication: {', '.join(each.name for each in chosen)}. --list shows their figures; "
                "--all --report out/ makes a page of all of them."
                if chosen
                else _NONE
            )
        if figure is not None:
            chosen[0].check_figure(figure)
        if report is not None:
            _report(report, chosen, figure, size, as_json)
        elif figure is None:
            _print_result(chosen[0].statements(), as_json, paper=paper, figure=None)
        else:
            _draw(chosen[0], figure, size, output, as_json)


def _all_papers() -> "list[Paper]":
    """Those that are installed; what is wrong with others is said."""
    from ..papers import shelf

    papers, problems = shelf()
    for problem in problems.values():
        typer.echo(problem, err=True)
    return list(papers.values())


def list_papers(paper: str | None, as_json: bool) -> None:
    """The figures of one paper, or of all."""
    from ..papers import find

    rows = [
        {"paper": each.name, "figure": figure, "title": title}
        for each in (_all_papers() if paper is None else [find(paper)])
        for figure, title in each.figures.items()
    ]
    if as_json:
        print_json("reproduce.list", figures=rows)
        return
    for row in rows:
        typer.echo(f"{row['paper']} {row['figure']:<6} {row['title']}")
    if not rows:
        typer.echo(_NONE, err=True)


def _draw(paper: "Paper", figure: str, size: Literal["quick", "full"], output: Path, as_json: bool) -> None:
    _check_directory("--output", output)
    output.mkdir(parents=True, exist_ok=True)  # now: a figure may take an hour
    make = paper.figure(figure)
    if size == "full":
        typer.echo(f"{paper.name} {figure} at full size. {inspect.getdoc(make) or ''}\n", err=True)
    made = make(size)
    picture, data = (output / f"{paper.name}_{figure}.{ending}" for ending in ("png", "nc"))
    made.picture.savefig(picture, dpi=160)
    made.data.to_netcdf(data, engine="scipy")
    if not as_json:
        typer.echo(f"{picture}\n{data}")
    _print_result(
        made.claims, as_json, paper=paper.name, figure=figure, size=size, picture=str(picture), data=str(data)
    )


def _check_directory(option: str, path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise invalid(f"{option} {path} was given, but that is a file; give a directory.")


def _report(
    directory: Path, papers: "list[Paper]", figure: str | None, size: Literal["quick", "full"], as_json: bool
) -> None:
    from ..papers.report import parts, write_report

    _check_directory("--report", directory)
    wanted = parts(papers, figure)

    def tell(number: int, part: "Part", words: str) -> None:
        typer.echo(f"{number:>3} of {len(wanted)}  {part.paper} {part.name} {words}", err=True)

    try:
        result = write_report(directory, wanted, size=size, tell=tell)
    except KeyboardInterrupt:
        leave(f"Interrupted. What is done is in {directory}; run the same command again to go on.", INTERRUPTED)
    if as_json:
        print_json(
            "reproduce.report",
            page=str(result.page),
            size=size,
            made=result.made,
            kept=result.kept,
            failed=result.failed,
            verdicts=result.verdicts,
        )
    else:
        typer.echo(
            f"{result.page}\n{len(result.made)} made, {len(result.kept)} there already, {len(result.failed)} failed; "
            f"claims: {', '.join(f'{number} {verdict}' for verdict, number in result.verdicts.items())}"
        )
        for name in result.failed:
            typer.echo(f"{name} failed; the page says how.", err=True)
    raise typer.Exit(1 if result.failed else 0)


def _print_result(claims: "tuple[Claim, ...]", as_json: bool, **fields: object) -> None:
    """A line for each claim; of arrays, the entry where print and library are farthest apart."""
    from ..papers.claims import VERDICTS

    if as_json:
        print_json("reproduce", **fields, claims=[claim.to_dict() for claim in claims])
        return
    wide = shutil.get_terminal_size((100, 24)).columns
    column = max([len(claim.where) for claim in claims], default=5) + 2
    typer.echo(f"{'where':<{column}}{'verdict':<10}{'printed':>12}{'ours':>12}")
    for claim in claims:
        printed, ours = claim.farthest
        typer.echo(f"{claim.where:<{column}}{claim.verdict:<10}{printed:>12.5g}{ours:>12.5g}")
        notes = {"agrees": [], "misprint": [claim.correction], "differs": [claim.statement, claim.remark]}
        for note in notes[claim.verdict]:
            if note:
                typer.echo(textwrap.fill(note, wide - 2, initial_indent="    ", subsequent_indent="    "))
    counts = {verdict: sum(claim.verdict == verdict for claim in claims) for verdict in VERDICTS}
    typer.echo(", ".join(f"{number} {verdict}" for verdict, number in counts.items() if number))
