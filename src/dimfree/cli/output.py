"""What commands have in common: plain errors, tables, JSON, pictures and files.

Nothing heavy is imported before it is needed, so that `dimfree --help` answers at once.
"""

import contextlib
import errno
import json
import math
import sys
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from .. import extras

if TYPE_CHECKING:
    import xarray

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the result into this file (.png, .pdf, .svg).")]
Output = Annotated[Path | None, typer.Option(metavar="FILE", help="Write all numbers to this file (.nc, .zarr).")]
Seed = Annotated[int, typer.Option(help="Seed of all random numbers; the same seed gives the same numbers.")]

INTERRUPTED = 130  # the exit code after Ctrl-C
_ROUNDING = 1e-14  # what tables show as zero; JSON and files have every digit
_EXTRAS = {".nc": ("netcdf", ("h5netcdf", "h5py")), ".zarr": ("cluster", ("zarr",))}


def invalid(message: str) -> Exception:
    """The error of bad input, in the user's words."""
    from ..errors import InvalidInput

    return InvalidInput(message)


@contextlib.contextmanager
def plainly() -> Iterator[None]:
    """Say what went wrong in one message: exit code 2 for bad input, 3 for a full disk, 130 after Ctrl-C."""
    try:
        yield
    except ValueError as error:
        # Importing it earlier would import JAX.
        from ..errors import InvalidInput

        if not isinstance(error, InvalidInput):
            raise
        leave(str(error), 2)
    except ModuleNotFoundError:
        raise
    except ImportError as error:  # of an extra that is not installed, in words
        leave(str(error), 2)
    except KeyboardInterrupt:
        leave("Interrupted.", INTERRUPTED)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        leave("The disk is full. Make space and run the same command again.", 3)


def leave(message: str, code: int) -> NoReturn:
    """End the command with a message on the error stream."""
    typer.echo(message, err=True)
    raise typer.Exit(code) from None


def random_key(seed: int) -> Any:
    """The random key of a seed."""
    import jax

    if not 0 <= seed < 2**63:
        raise invalid(f"--seed {seed} was given; give a whole number from 0 to 2^63 - 1.")
    return jax.random.key(seed)


# Long work.


def in_terminal() -> bool:
    """Whether somebody is watching, so that bars make sense."""
    return sys.stderr.isatty()


@contextlib.contextmanager
def working(words: str) -> Iterator[None]:
    """A sign of life in a terminal, while there is nothing to count."""
    if not in_terminal():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(words):
        yield


# Text and JSON.


def print_json(command: str, **fields: Any) -> None:
    """The report of a command: its schema, the version, and the fields, which stay as they are named."""
    import importlib.metadata

    report = {"schema": f"dimfree.{command}/1", "dimfree": importlib.metadata.version("dimfree"), **fields}
    typer.echo(json.dumps(plain(report), indent=2, allow_nan=False))


def plain(value: Any) -> Any:
    """`value` as JSON has it: arrays as lists, what is not finite as null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_table(
    title: str, columns: Mapping[str, Sequence[Any]], *, above: Sequence[Any] = (), below: Sequence[str] = ()
) -> None:
    """A table with numbers at the right and words at the left, between lines of text."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    for line in above:
        console.print(line if isinstance(line, str) else repr(line), markup=False, highlight=False)
    table = Table()
    for name, values in columns.items():
        words = any(isinstance(value, str) for value in values)
        table.add_column(Text(name), justify="left" if words else "right", overflow="fold")
    for row in zip(*columns.values(), strict=True):
        table.add_row(*(Text(_cell(value)) for value in row))
    console.print(Text(title, style="bold"))
    console.print(table)
    for line in below:
        console.print(line, markup=False, highlight=False)


def _cell(value: Any) -> str:
    if value is None or value != value:  # what is not a number is not there
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    return f"{0.0 if abs(value) < _ROUNDING else float(value):.4g}"


# Files.


def check_targets(plot: Path | None = None, output: Path | None = None) -> None:
    """An error, before anything is computed, if what is asked for cannot be written."""
    if plot is not None:
        check_target("--plot", plot, (".png", ".pdf", ".svg"), ".png, .pdf or .svg")
    if output is not None:
        check_target("--output", output, _EXTRAS, ".nc (NetCDF) or .zarr")
        extra, packages = _EXTRAS[output.suffix]
        if absent := extras.absent(packages):
            raise invalid(f"--output {output} needs {' and '.join(absent)}: {extras.install(extra)}")


def check_target(option: str, path: Path, endings: Container[str], words: str) -> None:
    """An error if there is no directory for a file, or its name has another ending."""
    if not path.absolute().parent.is_dir():
        raise invalid(f"{option} {path} was given, but there is no directory {path.absolute().parent}.")
    if path.suffix not in endings:
        raise invalid(f"{option} {path} was given; its name must end in {words}.")


def save_picture(path: Path | None, draw: Callable[[], Any]) -> None:
    """Write the figure of the axes that `draw` returns, if a path was given."""
    if path is None:
        return
    try:
        draw().figure.savefig(path)
    except OSError as error:
        raise invalid(f"--plot {path} cannot be written: {error.strerror or error}.") from error


def save_data(path: Path | None, groups: "Mapping[str | None, xarray.Dataset]") -> None:
    """Write Datasets as groups of one NetCDF file or Zarr store, if a path was given."""
    if path is None:
        return
    import warnings

    try:
        for number, (group, data) in enumerate(groups.items()):
            mode = "a" if number else "w"
            if path.suffix == ".nc":
                data.to_netcdf(path, mode=mode, group=group, engine="h5netcdf")
                continue
            with warnings.catch_warnings():
                # Zarr warns that words, such as the names of coordinates, are not in its specification yet.
                warnings.simplefilter("ignore")
                data.to_zarr(path, mode=mode, group=group, consolidated=False)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise invalid(f"--output {path} cannot be written: {error.strerror or error}.") from error
