"""Studies: plan, run, show."""

import dataclasses
import os
import signal
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from .output import INTERRUPTED, AsJson, Output, check_targets, leave, plainly, print_json, save_data, save_picture

app = typer.Typer(no_args_is_help=True, help="Phase diagrams: a computation on a grid, on many cores.")

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="The study file, such as study.yaml.")]
AllowCode = Annotated[bool, typer.Option("--allow-code", help="Import and run the study's own function.")]


@app.command()
def plan(study: StudyFile, allow_code: AllowCode = False, as_json: AsJson = False) -> None:
    """What a study will cost: cells, tasks, bytes and time.

    Exit codes: 0 done, 2 bad input.

    Example: dimfree study plan study.yaml
    """
    _use_one_core()
    with plainly():
        from ..studies import Study

        found = Study.load(study).plan(allow_code=allow_code)
        if as_json:
            print_json("study.plan", **dataclasses.asdict(found))
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
    memory: Annotated[str | None, typer.Option(help="Memory of a worker, such as 4GB.")] = None,
    address: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler, such as tcp://127.0.0.1:8786.")
    ] = None,
    queue: Annotated[str | None, typer.Option(help="SLURM partition.")] = None,
    account: Annotated[str | None, typer.Option(help="SLURM account.")] = None,
    walltime: Annotated[str | None, typer.Option(help="Time limit of a SLURM job, such as 04:00:00.")] = None,
    interface: Annotated[str | None, typer.Option(help="Network interface of a SLURM cluster, such as ib0.")] = None,
    allow_code: AllowCode = False,
    accept_changes: Annotated[
        bool,
        typer.Option(
            "--accept-changes", help="Continue although versions or code have changed since the store was begun."
        ),
    ] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Compute tasks with damaged results again.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compute every cell that is not in the store yet.

    Stop it at any time; run the same command again to continue.

    Exit codes: 0 the study is complete, 1 tasks failed, 2 bad input, 3 it had to stop, 130 interrupted.

    Example: dimfree study run study.yaml --workers 4
    """
    if cluster == "inline":
        _use_one_core()
    # A driver in a batch job is told to end by SIGTERM: it leaves in order, as after Ctrl-C.
    signal.signal(signal.SIGTERM, _interrupt)
    where = f"{study.with_suffix('')}.store" if store is None else store
    with plainly():
        from ..studies import Study
        from ..studies.engine import Interrupted

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
                accept_changes=accept_changes,
                repair=repair,
            )
        except KeyboardInterrupt:
            leave(f"Interrupted. The finished tasks are in {where}; run the same command again to go on.", INTERRUPTED)
        except Interrupted as error:
            leave(str(error), 3)
        if as_json:
            print_json("study.run", **dataclasses.asdict(report), complete=report.complete)
        else:
            typer.echo(str(report))
    raise typer.Exit(0 if report.complete else 1)


@app.command()
def show(
    store: Annotated[str, typer.Argument(metavar="STORE", help="Where the results are.")],
    quantity: Annotated[str | None, typer.Option(help="Which quantity [default: the first].")] = None,
    level: Annotated[float | None, typer.Option(help="Draw the line where the quantity has this value.")] = None,
    plot: Annotated[Path, typer.Option(metavar="FILE", help="The picture (.png, .pdf, .svg).")] = Path("study.png"),
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Draw the phase diagram of a study, complete or still running.

    Exit codes: 0 done, 2 bad input.

    Example: dimfree study show study.store --level 0.5 --plot diagram.png
    """
    with plainly():
        check_targets(plot, output)
        import dimfree

        from ..studies.opening import loaded

        data = loaded(dimfree.open_study(store), store)
        save_picture(plot, lambda: dimfree.plot.phase_diagram(data, quantity, level=level))
        save_data(output, {None: data})
        counts = _counts(data)
        if as_json:
            print_json("study.show", picture=str(plot), **counts)
        else:
            words = ", ".join(f"{number:,} {name}" for name, number in counts["cells"].items() if number)
            typer.echo(f"{plot}\n{counts['tasks_done']} of {counts['tasks']} tasks; cells: {words}")
            for line in counts["failed_tasks"]:
                typer.echo(f"could not be computed: {line}")


def _counts(data: Any) -> dict[str, Any]:
    import numpy as np

    from ..studies.store import Status

    status = data.status.values
    cells = {state.name.lower().replace("_", " "): int(np.sum(status == state)) for state in Status}
    failed = data.attrs.get("failed_tasks", "").splitlines()
    return {
        "tasks_done": data.attrs["tasks_done"],
        "tasks": data.attrs["tasks"],
        "cells": cells,
        "failed_tasks": failed,
    }


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _use_one_core() -> None:
    """Compute as a worker does, for times that hold for it; before JAX is imported."""
    os.environ.setdefault("NPROC", "1")
    if "xla_cpu_multi_thread_eigen" not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
