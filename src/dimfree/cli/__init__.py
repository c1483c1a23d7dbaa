"""The command line. Each module holds a group of commands; here they are put in the order of the story.

Nothing heavy is imported before it is needed, so that `dimfree --help` answers at once.
"""

import os
import sys
from typing import Annotated

import typer

from .. import _unsaid, compiled
from . import analysis, dynamics, equations, explore, machine, protocols, reproduce, study
from .output import INTERRUPTED

__all__ = ["app", "main"]

_unsaid.clear()  # the process is the command's own: no other code in it could mind

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # Rich is for the tables: importing it would double the time of --help
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done; 1 the answer is no, or something failed; 2 bad input, explained in one message; "
    "3 it had to stop, and the same command continues; 130 interrupted.",
)

app.command()(dynamics.solve)
app.command()(dynamics.simulate)
app.command("exit-time")(analysis.exit_time)
app.command("fixed-points")(analysis.fixed_points)
app.command()(analysis.landscape)
app.command("scaling-law")(analysis.scaling_law)
app.command("best-protocol")(protocols.best_protocol)
app.command()(dynamics.check)
app.command()(equations.equations)
app.add_typer(study.app, name="study")
app.command()(reproduce.reproduce)
app.command()(explore.explore)
app.command()(machine.doctor)
app.command()(machine.cite)


def _print_version(asked: bool) -> bool:
    if asked:
        import importlib.metadata

        typer.echo(f"dimfree {importlib.metadata.version('dimfree')}")
        raise typer.Exit()
    return asked


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Exact, dimension-free descriptions of stochastic gradient descent in high dimension.

    A first look: dimfree solve --sphere --alpha 40 --simulate 16 --plot risk.png
    """


def main() -> None:
    """The entry point of the command `dimfree`."""
    # To convert arguments Typer imports pydantic, which takes as long as all of --help; a list of papers has none.
    if sys.argv[1:2] == ["reproduce"] and sys.argv[2:] in (["--list"], ["--list", "--json"]):
        reproduce.list_papers(None, "--json" in sys.argv)
        return
    compiled.keep()
    compiled.Announcement().start()
    try:
        app(prog_name="dimfree")
    except SystemExit as end:
        # What XLA is still compiling crashes an interpreter that shuts down. A cluster must be shut down, and is.
        if end.code == INTERRUPTED and "distributed" not in sys.modules:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(INTERRUPTED)
        raise
