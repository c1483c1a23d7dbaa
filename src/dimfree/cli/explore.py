"""The explorer in the browser."""

from pathlib import Path
from typing import Annotated

import typer

from .output import check_target, plainly


def explore(
    problem: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Which to begin with: phase-retrieval, two-quadratic-teachers, committee (two-layer, with erf), "
            "one-direction (single-index, with erf), power-law (inputs with a spectrum) or two-clusters (mixture). "
            "Sliders set the rest.",
        ),
    ] = "phase-retrieval",
    store: Annotated[
        str | None, typer.Option(metavar="PATH", help="The store of a study, to see its phase diagram.")
    ] = None,
    host: Annotated[str, typer.Option(help="Where to serve; any but this machine itself gets a token.")] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(help="Which port [default: a free one].")] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open it in the browser.")] = True,
    export: Annotated[
        Path | None,
        typer.Option(metavar="PAGE.html", help="Write a page whose sliders move without Python, and stop."),
    ] = None,
) -> None:
    """See theory and simulation in the browser, and move them with sliders.

    It serves this machine only, until Ctrl-C.

    Exit codes: 0 done, 2 bad input.

    Example: dimfree explore --export lecture.html --problem committee
    """
    with plainly():
        if export is not None:
            check_target("--export", export, (".html",), ".html")
            from ..explorer.page import export_page

            export_page(export, problem, say=lambda words: typer.echo(words, err=True))
            typer.echo(str(export))
            return
        from ..explorer import explore as serve

        code = serve(host=host, port=port, open_browser=browser, problem=problem, store=store, say=typer.echo)
    raise typer.Exit(code)
