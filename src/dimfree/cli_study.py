"""The command line of studies: plan, run, show.

Nothing heavy is imported before it is needed, as in the rest of the command line.
"""

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

app = typer.Typer(no_args_is_help=True, help="A phase diagram, or any computation on a grid, on many cores.")

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="The study file, such as study.yaml.")]
AllowCode = Annotated[bool, typer.Option("--allow-code", help="Import and run the study's own function.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    """Print what is wrong as one message: exit code 2 for bad input, 3 for a study that stopped and can go on."""
    try:
        from . import studies  # noqa: F401 (says which package is missing)
        from .errors import InvalidInput
        from .studies.engine import Interrupted
    except ImportError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    try:
        yield
    except InvalidInput as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    except Interrupted as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(3) from None
    except OSError as error:
        import errno

        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        typer.echo("The disk is full. Make space and run the same command again to go on.", err=True)
        raise typer.Exit(3) from None


@app.command()
def plan(study: StudyFile, allow_code: AllowCode = False, as_json: AsJson = False) -> None:
    """What a study will cost: cells, tasks, bytes, and the time, from timing a few cells."""
    _use_one_core()
    with _plainly():
        from .studies import Study

        found = Study.load(study).plan(allow_code=allow_code)
        if as_json:
            import dataclasses

            typer.echo(json.dumps({"schema": "dimfree.study.plan/1", **dataclasses.asdict(found)}, indent=2))
        else:
            typer.echo(str(found))


@app.command()
def run(
    study: StudyFile,
    store: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Where results go: a directory or an fsspec URL [default: STUDY.store]."),
    ] = None,
    cluster: Annotated[
        Literal["local", "slurm", "address", "inline"],
        typer.Option(help="This machine, SLURM jobs, a Dask scheduler at --address, or this process."),
    ] = "local",
    workers: Annotated[int | None, typer.Option(help="Processes or jobs [default: the cores of this machine].")] = None,
    memory: Annotated[str | None, typer.Option(help="Of a worker, such as 4GB.")] = None,
    address: Annotated[str | None, typer.Option(help="Of a Dask scheduler, such as tcp://127.0.0.1:8786.")] = None,
    queue: Annotated[str | None, typer.Option(help="SLURM partition.")] = None,
    account: Annotated[str | None, typer.Option(help="SLURM account.")] = None,
    walltime: Annotated[str | None, typer.Option(help="Of a SLURM job, such as 04:00:00.")] = None,
    interface: Annotated[str | None, typer.Option(help="Network interface of a SLURM cluster, such as ib0.")] = None,
    allow_code: AllowCode = False,
    as_json: AsJson = False,
) -> None:
    """Compute every cell that is not in the store yet; stop it at any time and run it again to go on.

    Exit code 0 if the study is complete, 1 if tasks failed, 2 for bad input, 3 if it had to stop, 130 after Ctrl-C.
    """
    if cluster == "inline":
        _use_one_core()
    # A driver in a batch job is told to end by SIGTERM: it leaves in order, as after Ctrl-C.
    signal.signal(signal.SIGTERM, _interrupt)
    where = f"{study.with_suffix('')}.store" if store is None else store
    with _plainly():
        from .studies import Study

        try:
            report = Study.load(study).run(
                where,
                cluster=cluster,
                workers=workers,
                memory=memory,
                address=address,
                queue=queue,
                account=account,
                walltime=walltime,
                interface=interface,
                allow_code=allow_code,
            )
        except KeyboardInterrupt:
            typer.echo(f"Interrupted. What is done is in {where}; run the same command again to go on.", err=True)
            raise typer.Exit(130) from None
    if as_json:
        import dataclasses

        fields = dataclasses.asdict(report) | {"complete": report.complete}
        typer.echo(json.dumps({"schema": "dimfree.study.run/1", **fields}, indent=2))
    else:
        typer.echo(str(report))
    raise typer.Exit(0 if report.complete else 1)


@app.command()
def show(
    store: Annotated[str, typer.Argument(metavar="STORE", help="Where the results are.")],
    quantity: Annotated[str | None, typer.Option(help="Which quantity [default: the first].")] = None,
    level: Annotated[float | None, typer.Option(help="Draw the line where the quantity has this value.")] = None,
    output: Annotated[Path, typer.Option(help="The picture (.png, .pdf, .svg).")] = Path("study.png"),
    as_json: AsJson = False,
) -> None:
    """Draw the phase diagram with its uncertainty, of a study that is complete or under way."""
    with _plainly():
        from . import plot
        from .studies import open_study

        data = open_study(store)
        axes = plot.phase_diagram(data, quantity, level=level)
        axes.figure.savefig(output)  # pyright: ignore[reportAttributeAccessIssue]
        counts = _counts(data)
        if as_json:
            typer.echo(json.dumps({"schema": "dimfree.study.show/1", "picture": str(output), **counts}, indent=2))
        else:
            words = ", ".join(f"{number:,} {name}" for name, number in counts["cells"].items() if number)
            typer.echo(f"{output}\n{counts['tasks_done']} of {counts['tasks']} tasks; cells: {words}")


def _counts(data: Any) -> dict[str, Any]:
    import numpy as np

    from .studies.store import Status

    status = data.status.values
    cells = {state.name.lower().replace("_", " "): int(np.sum(status == state)) for state in Status}
    return {"tasks_done": data.attrs["tasks_done"], "tasks": data.attrs["tasks"], "cells": cells}


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _use_one_core() -> None:
    """Compute as a worker does, for times that hold for it; before JAX is imported."""
    os.environ.setdefault("NPROC", "1")
    if "xla_cpu_multi_thread_eigen" not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
