"""Where results are kept: arrays that are chunked by task, and a record of what was written for each task.

The format, `dimfree.study/2`, is a directory or a prefix of an object store:

    manifest.json       the study, its tasks, what computes (made_with), changes that were accepted; sealed
    study.yaml          the study for people to read; it is not read back
    results.zarr/       an array for each quantity, one chunk for each task; an array for each axis of numbers
    done/<task>.json    written when all chunks of a task are: size and digest of each, how the task went; sealed
    timeouts/           cells that took too long
    begun/<task>.json   the cell that is being computed, where cells have a timeout and a task has many
    failed/<task>.json  why a task could not be computed; the next run tries again
    lock.json           the driver that writes

Its guarantees, and what gives them:

- Every file is written under another name, brought to the disk and renamed: it is there whole or not at all.
- The manifest is the first file. A directory that holds anything else and no manifest is left alone.
- A *sealed* file holds the SHA-256 digest of its own content: any change of it is noticed.
- A chunk counts if the record of its task says so. Its size is compared whenever the store is opened or a study
  resumed, its digest whenever it is read, and those of all chunks before a study is called complete. A chunk without a
  record is not read.
- Metadata of arrays and the values of axes follow from the study; what is on the disk is compared with that.
- Damage is an error that names the task and the file. Nothing is computed again unless `repair` is given.
- The study, the versions of dimfree and JAX, the precision, JAX's generator of random numbers and the code of the
  study's own function are compared when a study is resumed. Where a store does not say which generator made it, it is
  taken for JAX's default. With `accept_changes` it goes on with others, and the manifest keeps what changed and when.

Stores of the earlier format `dimfree.study/1` have no digests, and lack chunks in which every number is the fill value.
They can be opened, with a warning that says so; resumed with `accept_changes`, they get digests.
"""

import contextlib
import datetime
import enum
import functools
import hashlib
import importlib.metadata
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ..errors import InvalidInput
from ..identity import digest, surroundings
from .arrays import METADATA, Arrays
from .cells import Cells
from .description import Description, Function, checked
from .files import Files, is_sealed, sealed

_SCHEMA, _WITHOUT_DIGESTS = "dimfree.study/2", "dimfree.study/1"
_ARRAYS = "results.zarr"
_RANDOM, _DEFAULT_RANDOM = "random numbers", "threefry2x32"  # JAX's default, where a store does not say
_SHOWN = 8  # lines of what is damaged
Record = dict[str, Any]


class Status(enum.IntEnum):
    """What became of a cell; written in the array `status`."""

    MISSING = 0
    COMPUTED = 1
    FAILED = 2
    TIMED_OUT = 3


class Store:
    """The results of a study on a local path or at an fsspec URL; this module says how they are kept."""

    def __init__(self, url: str | Path):
        self.files = Files(url)
        self.url = self.files.url

    # What it belongs to.

    @property
    def exists(self) -> bool:
        """Whether there is a study here."""
        return self.files.exists("manifest.json")

    def begin(self, description: Description) -> None:
        """Make it the store of a study; nothing if it is, an error if it belongs to another study or is no store."""
        if self.exists:
            self._refuse_if_another(description)
            return
        if self.files.exists("") and not self.files.system.isdir(self.files.root):
            raise InvalidInput(f"{self.url} is not a directory; give a new directory for the results.")
        if others := self.files.names(""):
            raise InvalidInput(
                f"{self.url} holds other files ({', '.join(others[:3])}{', ...' * (len(others) > 3)}); give a new "
                "directory for the results."
            )
        arrays = Arrays(description)
        manifest = {
            "schema": _SCHEMA,
            "study": description.to_dict(),
            "shape": arrays.shape,
            "chunks": arrays.chunks,
            "tasks": arrays.tasks,
            "made_with": made_with(description),
            "made_by": versions(),
            "made_at": _now(),
            "accepted": [],
        }
        if not self.files.create("manifest.json", sealed(manifest)):
            self._refuse_if_another(description)

    @functools.cached_property
    def manifest(self) -> dict[str, Any]:
        """What is known about the results."""
        if not self.exists:
            raise InvalidInput(f"There is no study at {self.url}; `dimfree study run` makes one.")
        manifest = self.files.read("manifest.json")
        schema = manifest.get("schema") if isinstance(manifest, dict) else None
        if schema not in (_SCHEMA, _WITHOUT_DIGESTS):
            raise InvalidInput(f"{self.url} is not a store that this version reads: manifest.json is not {_SCHEMA}.")
        if (schema == _SCHEMA or "sha256" in manifest) and not is_sealed(manifest):
            raise InvalidInput(
                f"The store {self.url} is damaged: manifest.json is not as it was written, and nobody can tell what "
                "the results are. Copy it again, or compute the study in another directory."
            )
        kinds = {"made_by": dict, "made_with": dict, "accepted": list}
        if "made_by" not in manifest or any(
            type(manifest.get(name, kind())) is not kind for name, kind in kinds.items()
        ):
            raise InvalidInput(f"The store {self.url} is damaged: manifest.json does not say what made it.")
        return manifest

    @property
    def has_digests(self) -> bool:
        """Whether every record has the digests of its chunks."""
        return self.manifest["schema"] == _SCHEMA

    def description(self) -> Description:
        """The study that the store belongs to."""
        return checked(self.manifest.get("study"))

    def _refuse_if_another(self, description: Description) -> None:
        if changes := list(_differences(self.manifest.get("study"), description.to_dict())):
            raise InvalidInput(
                f"{self.url} holds the results of another study; it was left as it is.\n  "
                + "\n  ".join(changes)
                + "\nGive another directory for the changed study, or change it back."
            )

    # Taking it up.

    def take_up(
        self, description: Description, arrays: Arrays, *, accept_changes: bool, repair: bool
    ) -> tuple[dict[int, Record], list[int]]:
        """Make the store ready to be written; the records of what is done, and the tasks that were damaged."""
        lost = self._refuse_if_changed(description, arrays, accept_changes)
        records, damage = self.records(arrays)
        damage |= self.damage(records, arrays, digests=repair)
        if not records and not damage:  # nothing can be lost: make, or finish making, the arrays
            self._lay_out(description, arrays)
            return {}, lost
        if wrong := self._wrong_arrays(arrays):
            if not repair:
                raise self.damaged(wrong)
            self._lay_out(description, arrays)
        if damage:
            if not repair:
                raise self.damaged(_by_task(damage))
            for task in damage:
                self.files.remove(f"done/{task}.json")
                records.pop(task, None)
        return records, sorted({*damage, *lost})

    def _refuse_if_changed(self, description: Description, arrays: Arrays, accept: bool) -> list[int]:
        """An error if what computes has changed; if accepted, the tasks that an earlier format kept in part."""
        now, before = made_with(description), self.manifest.get("made_with")
        if before is not None:
            before = {_RANDOM: _DEFAULT_RANDOM} | before
        if before is None:
            changes = [f"the store was begun by dimfree {self.manifest['made_by'].get('dimfree')}, without digests"]
        else:
            changes = [words for words in _differences(before, now) if not words.startswith("code")]
            if before.get("code") != now.get("code"):
                changes.append("the study's own function, or a module that it uses, has changed")
        if not changes:
            return []
        if not accept:
            raise InvalidInput(
                f"What computes has changed since {self.url} was begun: old and new cells would not fit together.\n  "
                + "\n  ".join(changes)
                + "\nGive another directory. Or, if the change makes no difference, go on: --accept-changes on the "
                "command line, accept_changes=True in Python. The store then says what changed."
            )
        lost = [] if self.has_digests else self._add_digests(arrays)
        accepted = [*self.manifest.get("accepted", []), {"at": _now(), "changes": changes}]
        manifest = self.manifest | {"schema": _SCHEMA, "made_with": now, "accepted": accepted}
        self.files.write("manifest.json", sealed(manifest))
        del self.manifest
        return lost

    def _add_digests(self, arrays: Arrays) -> list[int]:
        """Records with digests in place of those without; the tasks that lack a chunk, and are not done any more."""
        records, damage = self.records(arrays)
        if damage:
            raise self.damaged(_by_task(damage))
        lost = []
        for task, record in records.items():
            try:
                chunks = {name: self.files.read_bytes(self._path(arrays, name, task)) for name in arrays.quantities}
            except FileNotFoundError:
                self.files.remove(f"done/{task}.json")
                lost.append(task)
            else:
                self.mark_done(task, record | {"chunks": _digests(chunks)})
        return lost

    def _lay_out(self, description: Description, arrays: Arrays) -> None:
        text = yaml.safe_dump(description.to_dict(), sort_keys=False, allow_unicode=True)
        self.files.write_bytes("study.yaml", text.encode())
        for path, content in (arrays.metadata | arrays.encoded_axes()).items():
            self.files.write_bytes(f"{_ARRAYS}/{path}", content)

    # Writing.

    def write(self, arrays: Arrays, cells: Cells, results: dict[str, np.ndarray]) -> dict[str, Any]:
        """Write the chunks of a task; size and digest of each, for its record."""
        chunks = arrays.encoded(cells, results)
        for name, content in chunks.items():
            self.files.write_bytes(self._path(arrays, name, cells.task), content)
        return _digests(chunks)

    def mark_done(self, task: int, record: Record) -> None:
        """Say that all chunks of a task are written."""
        self.files.write(f"done/{task}.json", sealed(record | {"task": task}))

    def mark_failed(self, task: int, cells: Iterable[int], reason: str) -> None:
        """Say why a task could not be computed."""
        self.files.write(f"failed/{task}.json", {"cells": list(cells), "reason": reason, "at": _now()})

    def failures(self) -> dict[int, str]:
        """The tasks that could not be computed, with the reason."""
        found = {}
        for name in self.files.names("failed"):
            with contextlib.suppress(InvalidInput, FileNotFoundError, ValueError, KeyError, TypeError):
                found[int(name.removesuffix(".json"))] = str(self.files.read(f"failed/{name}")["reason"])
        return found

    def forget_failures(self) -> None:
        """What could not be computed is tried again."""
        for name in self.files.names("failed"):
            self.files.remove(f"failed/{name}")

    def mark_begun(self, task: int, cell: int) -> None:
        """Say which cell of a task is being computed."""
        self.files.write(f"begun/{task}.json", {"cell": cell})

    def forget_begun(self, task: int) -> None:
        """No cell of a task is being computed."""
        self.files.remove(f"begun/{task}.json")

    def begun(self, task: int) -> int | None:
        """The cell of a task that was being computed last, if it is known."""
        with contextlib.suppress(InvalidInput, FileNotFoundError, KeyError, TypeError):
            return int(self.files.read(f"begun/{task}.json")["cell"])
        return None

    def mark_timeout(self, task: int, cell: int, seconds: float) -> None:
        """Say that a cell took too long."""
        self.files.write(f"timeouts/{task}-{cell}.json", {"cell": cell, "seconds": seconds})

    def timeouts(self, task: int) -> set[int]:
        """The cells of a task that took too long."""
        names = (name.removesuffix(".json").partition("-") for name in self.files.names("timeouts"))
        return {int(cell) for number, _, cell in names if number == str(task) and cell.isdecimal()}

    # Reading.

    def record(self, task: int, arrays: Arrays) -> Record | None:
        """How a task went; None if it is not done."""
        name = f"done/{task}.json"
        try:
            record = self.files.read(name)
        except FileNotFoundError:
            return None
        if not isinstance(record, dict) or record.get("task") != task or not 0 <= task < arrays.tasks:
            raise InvalidInput(f"{name} is not the record of this task")
        if (self.has_digests or "sha256" in record) and not is_sealed(record):
            raise InvalidInput(f"{name} is not as it was written")
        if (self.has_digests or "chunks" in record) and not _is_of_chunks(record.get("chunks"), arrays):
            raise InvalidInput(f"{name} does not have a size and a digest for each quantity of the study")
        return record

    def records(self, arrays: Arrays) -> tuple[dict[int, Record], dict[int, str]]:
        """The records of all tasks that are done, and what is wrong with those that cannot be read, by task."""
        found, wrong = {}, {}
        for name in self.files.names("done"):
            number = name.removesuffix(".json")
            if not (name.endswith(".json") and number.isascii() and number.isdecimal()):
                continue
            try:
                if (record := self.record(int(number), arrays)) is not None:
                    found[int(number)] = record
            except InvalidInput as error:
                wrong[int(number)] = str(error)
        return found, wrong

    def damage(self, records: dict[int, Record], arrays: Arrays, *, digests: bool = False) -> dict[int, str]:
        """What is wrong with the chunks of tasks that are done, by task: existence and size, and digests on request."""
        sizes = {name: self.files.sizes(f"{_ARRAYS}/{name}") for name in arrays.quantities} if records else {}
        found = {}
        for task, record in records.items():
            for name in arrays.quantities:
                chunk, there = arrays.chunk(task), sizes[name]
                written = record["chunks"][name]["bytes"] if "chunks" in record else None
                path = f"{_ARRAYS}/{name}/{chunk}"
                if chunk not in there:
                    if written is not None or name == "status":
                        found[task] = f"{path} is missing"
                elif there[chunk] is None:
                    found[task] = f"{path} is not a file"
                elif written is not None and there[chunk] != written:
                    found[task] = f"{path} has {there[chunk]:,} bytes, and {written:,} were written"
                elif digests:
                    try:
                        self._chunk(arrays, name, task, record)
                    except InvalidInput as error:
                        found[task] = str(error)
                if task in found:
                    break
        return found

    def refuse_if_damaged(self, arrays: Arrays, *, digests: bool = False) -> dict[int, Record]:
        """The records of all tasks that are done; an error if anything is not as it was written."""
        records, wrong = self.records(arrays)
        lines = self._wrong_arrays(arrays)
        lines += _by_task(wrong | self.damage(records, arrays, digests=digests))
        if lines:
            raise self.damaged(lines)
        return records

    def _wrong_arrays(self, arrays: Arrays) -> list[str]:
        """What is wrong with the metadata of the arrays, and with the axes."""
        lines = []
        names = [path.removesuffix(f"/{METADATA}") for path in arrays.metadata if path != METADATA]
        if not self.files.exists(f"{_ARRAYS}/{METADATA}"):
            lines.append(f"{_ARRAYS}/{METADATA} is missing")
        for name in names:
            try:
                wrong = arrays.differs(name, self.files.read_bytes(f"{_ARRAYS}/{name}/{METADATA}", largest=2**20))
            except FileNotFoundError:
                wrong = f"{_ARRAYS}/{name}/{METADATA} is missing"
            except InvalidInput as error:
                wrong = str(error)
            if wrong is None and name in arrays.axes:
                try:
                    same = arrays.same_axis(name, self._file_of_axis)
                except Exception as error:  # whatever Zarr makes of a damaged chunk
                    wrong = f"its values cannot be read ({type(error).__name__}: {error!s:.100})"
                else:
                    wrong = None if same else "its values are not those of the study"
            if wrong is not None:
                lines.append(f"the {'axis' if name in arrays.axes else 'array'} {name}: {wrong}")
        return lines

    def _file_of_axis(self, path: str) -> bytes | None:
        try:
            return self.files.read_bytes(f"{_ARRAYS}/{path}")
        except FileNotFoundError:
            return None

    def fetcher(self, arrays: Arrays, records: dict[int, Record]) -> Any:
        """A function from the path of a chunk to its bytes, as they were written, or to None if it is not done."""

        def fetch(path: str) -> bytes | None:
            name, _, chunk = path.partition("/")
            task = arrays.task(chunk)
            record = records.get(task)
            try:
                return None if record is None else self._chunk(arrays, name, task, record)
            except InvalidInput as error:
                raise self.damaged(_by_task({task: str(error)})) from error

        return fetch

    def _path(self, arrays: Arrays, name: str, task: int) -> str:
        return f"{_ARRAYS}/{name}/{arrays.chunk(task)}"

    def _chunk(self, arrays: Arrays, name: str, task: int, record: Record) -> bytes | None:
        """The bytes of a chunk; None if it is not there in a store that has no digests."""
        path, written = self._path(arrays, name, task), record.get("chunks", {}).get(name)
        try:
            content = self.files.read_bytes(path, largest=None if written is None else written["bytes"])
        except FileNotFoundError as error:
            if written is None:
                return None
            raise InvalidInput(f"{path} is missing") from error
        if written is not None and _digest(content) != written:
            raise InvalidInput(f"{path} has other bytes than were written")
        if written is None and not arrays.is_chunk(name, task, content):
            raise InvalidInput(f"{path} is not a whole chunk: it was cut off or changed")
        return content

    def damaged(self, lines: list[str]) -> InvalidInput:
        """The error of a store that is not as it was written."""
        more = [f"... and {len(lines) - _SHOWN} more"] if len(lines) > _SHOWN else []
        return InvalidInput(
            f"The store {self.url} is damaged.\n  "
            + "\n  ".join(lines[:_SHOWN] + more)
            + "\nCopy it again from where it is whole. Or run the study with --repair (repair=True in Python): what is "
            "named here is computed again, and the rest stays."
        )


def made_with(description: Description) -> dict[str, str]:
    """What results depend on beside the study: what computes, and the code of the study's own function."""
    from .functions import imported

    compute = description.compute
    code = {"code": digest(imported(compute.function))} if isinstance(compute, Function) else {}
    return surroundings() | code


@functools.cache
def versions() -> dict[str, str]:
    """What is installed here."""
    packages = {name: importlib.metadata.version(name) for name in ("dimfree", "jax", "numpy", "zarr", "distributed")}
    return {**packages, "python": platform.python_version(), "platform": platform.platform()}


def _digest(content: bytes) -> dict[str, Any]:
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _digests(chunks: dict[str, bytes]) -> dict[str, Any]:
    return {name: _digest(content) for name, content in chunks.items()}


def _is_of_chunks(found: Any, arrays: Arrays) -> bool:
    return (
        isinstance(found, dict)
        and set(found) == set(arrays.quantities)
        and all(isinstance(each, dict) and type(each.get("bytes")) is int for each in found.values())
    )


def _by_task(damage: dict[int, str]) -> list[str]:
    return [f"task {task}: {words}" for task, words in sorted(damage.items())]


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _differences(old: Any, new: Any, where: str = "") -> Iterable[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        if where == "axes" and set(old) == set(new) and list(old) != list(new):
            yield f"axes: in the order {', '.join(old)} in the store, {', '.join(new)} now"
        for name in [*old, *(name for name in new if name not in old)]:
            yield from _differences(old.get(name), new.get(name), f"{where}.{name}" if where else str(name))
    elif old != new and where not in ("title", "timeout"):
        yield f"{where}: {old!r:.80} in the store, {new!r:.80} now"
