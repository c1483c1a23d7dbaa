"""Where results are kept: arrays that are chunked by task, and what is known about them."""

import datetime
import enum
import functools
import hashlib
import importlib.metadata
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import yaml
import zarr
import zarr.codecs
import zarr.storage

from ..errors import InvalidInput
from .cells import Cells, Layout, cells_per_task
from .description import Description, checked
from .files import Files
from .quantities import quantities

_SCHEMA = "dimfree.study/1"
_ARRAYS = "results.zarr"


class Status(enum.IntEnum):
    """What became of a cell; written in the array `status`."""

    MISSING = 0
    COMPUTED = 1
    FAILED = 2
    TIMED_OUT = 3


class Store:
    """The results of a study on a local path or at an fsspec URL.

        study.yaml        what was asked for
        manifest.json     shapes, chunks, versions
        results.zarr/     an array for each quantity, one chunk for each task
        done/<task>.json  written when all chunks of a task are
        timeouts/         cells that took too long
        lock.json         the driver that writes

    Chunks are written under another name and renamed, and are the same whoever computes them, so that a task can be
    computed again at any time and whatever is there can be read.
    """

    def __init__(self, url: str | Path):
        self.files = Files(url)
        self.url = (
            self.files.root if self.files.is_local else str(url)
        )  # absolute: workers have directories of their own

    # Making it.

    @property
    def exists(self) -> bool:
        """Whether there is a study here."""
        return self.files.exists("manifest.json")

    def create(self, description: Description) -> None:
        """Make the arrays for a study; nothing if they are there, an error if they are those of another study."""
        if self.exists:
            self._refuse_if_changed(description)
            return
        others = [name for name in self.files.names("") if not name.startswith("lock.")]
        if others and "study.yaml" not in others:
            raise InvalidInput(f"{self.url} holds other files; give a new directory for the results.")
        self.files.write("study.yaml", yaml.safe_dump(description.to_dict(), sort_keys=False, allow_unicode=True))
        shape, chunks, names = shape_of(description)
        group = zarr.open_group(self.arrays(), mode="a", zarr_format=3)
        for quantity in quantities(description):
            group.create_array(
                quantity.name,
                shape=shape,
                chunks=chunks,
                dtype=quantity.dtype,
                fill_value=quantity.fill,
                dimension_names=names,
                attributes={"description": quantity.meaning},
                overwrite=True,
                # Without the sum a byte that the disk has changed would be another number, in silence.
                compressors=zarr.codecs.ZstdCodec(checksum=True),
                config={"write_empty_chunks": True},
            )
        if description.refine is None:
            for name, values in Layout(description).axes.items():
                if values.dtype.kind in "if":
                    axis = group.create_array(
                        name, shape=values.shape, dtype=values.dtype, dimension_names=(name,), overwrite=True
                    )
                    axis[...] = values
        self.files.write(
            "manifest.json",
            {
                "schema": _SCHEMA,
                "study": description.to_dict(),
                "code": code_of(description),
                "shape": shape,
                "chunks": chunks,
                "tasks": int(np.prod([-(-n // side) for n, side in zip(shape, chunks, strict=True)])),
                "made_by": versions(),
                "made_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            },
        )

    @property
    def manifest(self) -> dict[str, Any]:
        """What is known about the arrays."""
        if not self.exists:
            raise InvalidInput(f"There is no study at {self.url}; `dimfree study run` makes one.")
        manifest = self.files.read("manifest.json")
        if not isinstance(manifest, dict) or manifest.get("schema") != _SCHEMA:
            raise InvalidInput(f"{self.url} is no store that this version reads: manifest.json is not {_SCHEMA}.")
        if not (isinstance(manifest.get("made_by"), dict) and isinstance(manifest.get("tasks"), int)):
            raise InvalidInput(f"The store {self.url} is damaged: manifest.json lacks tasks and made_by.")
        return manifest

    def description(self) -> Description:
        """The study that the store belongs to."""
        return checked(self.manifest.get("study"))

    def _refuse_if_changed(self, description: Description) -> None:
        manifest = self.manifest
        if changes := list(_differences(manifest.get("study"), description.to_dict())):
            raise InvalidInput(
                f"{self.url} holds the results of another study; it was left as it is.\n  "
                + "\n  ".join(changes)
                + "\nGive another directory for the changed study, or change it back."
            )
        if manifest.get("code") != code_of(description):
            raise InvalidInput(
                f"The function of this study has changed since {self.url} was begun: old and new cells would not fit "
                "together. Give another directory."
            )

    # Writing.

    def write(self, cells: Cells, results: dict[str, np.ndarray]) -> None:
        """The chunks of one task; `status` last."""
        group = zarr.open_group(self.arrays(), mode="r+", zarr_format=3)
        for name in sorted(results, key=lambda name: name == "status"):
            array = group[name]
            assert isinstance(array, zarr.Array)
            array[cells.region] = results[name].reshape(cells.shape)
        chunk = "/".join(
            str(part.start // side)
            for part, side in zip(cells.region, group["status"].chunks, strict=True)  # pyright: ignore[reportAttributeAccessIssue]
        )
        self.files.sync([f"{_ARRAYS}/{name}/c/{chunk}" for name in results])

    def mark_done(self, task: int, record: dict[str, Any]) -> None:
        """Say that all chunks of a task are written."""
        self.files.write(f"done/{task}.json", record)

    def mark_timeout(self, task: int, cell: int, seconds: float) -> None:
        """Say that a cell took too long."""
        self.files.write(f"timeouts/{task}-{cell}.json", {"cell": cell, "seconds": seconds})

    # Reading.

    def done(self) -> set[int]:
        """The tasks that need not be computed again."""
        return {int(number) for name in self.files.names("done") if (number := name.removesuffix(".json")).isdecimal()}

    def record(self, task: int) -> dict[str, Any] | None:
        """How a task went; None if it is not done."""
        try:
            return self.files.read(f"done/{task}.json")
        except FileNotFoundError:
            return None

    def timeouts(self, task: int) -> set[int]:
        """The cells of a task that took too long."""
        names = (name.removesuffix(".json").partition("-") for name in self.files.names("timeouts"))
        return {int(cell) for number, _, cell in names if number == str(task) and cell.isdecimal()}

    def read(self, name: str, region: Any = ...) -> np.ndarray:
        """Part of an array."""
        array = zarr.open_group(self.arrays(), mode="r", zarr_format=3)[name]
        assert isinstance(array, zarr.Array)
        return np.asarray(array[region])

    def refuse_if_chunks_are_lost(self, description: Description, done: int) -> None:
        """An error if tasks are done whose results are not there: they would be NaN, and never be computed again."""
        if not self.files.is_local:  # where a listing is slow
            return
        for quantity in quantities(description):
            found = sum(len(files) for _, _, files in os.walk(self.files.path(f"{_ARRAYS}/{quantity.name}/c")))
            if found < done:
                raise InvalidInput(
                    f"The store {self.url} is damaged: {done} tasks are done, but the array {quantity.name} has "
                    f"{found} chunks. Copy it again, or remove its directory `done` and run the study again."
                )

    def arrays(self) -> Any:
        """The Zarr store of the arrays."""
        path = self.files.path(_ARRAYS)
        if self.files.is_local:
            return zarr.storage.LocalStore(path)
        return zarr.storage.FsspecStore.from_url(f"{self.url.rstrip('/')}/{_ARRAYS}")


def shape_of(description: Description) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...]]:
    """Shape, chunks and dimension names of the arrays of a study."""
    if description.refine is not None:
        return (description.refine.most_cells,), (cells_per_task(description),), ("cell",)
    layout = Layout(description)
    return layout.shape, layout.tile, layout.names


@functools.cache
def versions() -> dict[str, str]:
    """What computes here."""
    packages = {name: importlib.metadata.version(name) for name in ("dimfree", "jax", "numpy", "zarr", "distributed")}
    return {**packages, "python": platform.python_version(), "platform": platform.platform()}


def code_of(description: Description) -> str | None:
    """A fingerprint of the module that the study's own function is from."""
    from .functions import source_of

    source = source_of(description)
    return None if source is None else hashlib.sha256(source.encode()).hexdigest()


def _differences(old: Any, new: Any, where: str = "") -> Iterable[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(name for name in new if name not in old)]:
            yield from _differences(old.get(name), new.get(name), f"{where}.{name}" if where else str(name))
    elif old != new and where != "title":
        yield f"{where}: {old!r:.80} in the store, {new!r:.80} now"
