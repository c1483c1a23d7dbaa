"""The command line of the explorer.

Nothing heavy is imported before it is needed, as in the rest of the command line.
"""

import signal
from pathlib import Path
from typing import Annotated, Any

import typer


def explore(
    problem: Annotated[
        str, typer.Option(help="phase-retrieval, two-quadratic-teachers, committee or one-direction.")
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
    """See theory and simulation in the browser, and move them with sliders."""
    try:
        if export is not None:
            from .explorer.page import export_page

            export_page(export, problem, say=lambda words: typer.echo(words, err=True))
            typer.echo(str(export))
            return
        from .explorer import explore as serve

        # Told to end, it ends its server too, as after Ctrl-C.
        signal.signal(signal.SIGTERM, _interrupt)
        code = serve(host=host, port=port, open_browser=browser, problem=problem, store=store, say=typer.echo)
    except ValueError as error:
        from .errors import InvalidInput  # which imports JAX

        if not isinstance(error, InvalidInput):
            raise
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    raise typer.Exit(code)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt
