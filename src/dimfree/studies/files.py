"""The files of a store, on a local path or at an fsspec URL: each is written whole or not at all."""

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from ..errors import InvalidInput

FULL = {errno.ENOSPC, errno.EDQUOT}
_PARTIAL = re.compile(r"\.[0-9a-f]{32}\.partial$")  # what is being written
_SEAL = "sha256"
_LARGEST = 2**28  # bytes of a JSON file
_NO_PLACE = {"http", "https", "zip", "tar", "libarchive", "data"}  # protocols that cannot be listed and written


class Files:
    """A directory of files. What goes wrong with them is said in words, but for a missing file and a full disk."""

    def __init__(self, url: str | Path):
        given = str(url)
        words = f"{given!r:.200} was given as a store; give a directory, or a URL of fsspec such as s3://bucket/name"
        if "::" in given or given.partition("://")[0] in _NO_PLACE or not given:
            raise InvalidInput(f"{words}, where files can be listed and written.")
        try:
            self.system, self.root = fsspec.core.url_to_fs(given)
        except Exception as error:  # whatever fsspec, or the package behind a protocol, makes of it
            raise InvalidInput(f"{words}. ({type(error).__name__}: {error!s:.200})") from error
        self.is_local = isinstance(self.system, LocalFileSystem)
        self.url = self.root if self.is_local else given  # absolute: workers have directories of their own
        self.is_of_this_process = "memory" in (self.system.protocol, *self.system.protocol)

    @contextlib.contextmanager
    def _plainly(self, name: str, done: str) -> Iterator[None]:
        """Errors in words: a disk, a file system or a network has many."""
        try:
            yield
        except InvalidInput:
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in FULL:
                raise
            if isinstance(error, FileNotFoundError) and done in ("read", "removed"):
                raise
            why = getattr(error, "strerror", None) or f"{type(error).__name__}: {error!s:.200}"
            raise InvalidInput(
                f"{self.path(name)} cannot be {done} ({why}). Is {self.url} a directory that is there for you to use?"
            ) from error

    def path(self, name: str) -> str:
        """The full path of a file."""
        return f"{self.root}/{name}"

    # Reading.

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        with self._plainly(name, "looked for"):
            return self.system.exists(self.path(name))

    def read_bytes(self, name: str, *, largest: int | None = None) -> bytes:
        """The bytes of a file; a pipe, which could keep the reader waiting, is none."""
        with self._plainly(name, "read"):
            if not self.is_local:
                return self.system.cat_file(self.path(name))
            with open(os.open(self.path(name), os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
                about = os.fstat(file.fileno())
                if not stat.S_ISREG(about.st_mode):
                    raise InvalidInput(f"{self.path(name)} is not a file.")
                if largest is not None and about.st_size > largest:
                    raise InvalidInput(f"{self.path(name)} has {about.st_size:,} bytes; it cannot be what it should.")
                return file.read()

    def read(self, name: str) -> Any:
        """The data of a JSON file."""
        content = self.read_bytes(name, largest=_LARGEST)
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"{self.path(name)} is damaged, it does not hold JSON: {error!s:.200}") from error

    def names(self, directory: str) -> list[str]:
        """The names of what is in a directory, without what is being written."""
        with self._plainly(directory, "listed"):
            if not self.system.exists(self.path(directory)):
                return []
            self.system.invalidate_cache(self.path(directory))
            found = (path.rsplit("/", 1)[-1] for path in self.system.ls(self.path(directory), detail=False))
            return sorted(name for name in found if not _PARTIAL.search(name))

    def sizes(self, directory: str) -> dict[str, int | None]:
        """The bytes of each file below a directory, by its path from there; None for what is not a file."""
        top, found = self.path(directory), {}
        with self._plainly(directory, "listed"):
            if not self.is_local:
                self.system.invalidate_cache(top)
                about = self.system.find(top, detail=True) if self.system.exists(top) else {}
                names = {path[path.index(directory) + len(directory) + 1 :]: info for path, info in about.items()}
                return {name: info["size"] for name, info in names.items()}
            for where, _, names in os.walk(top):
                for name in names:
                    with contextlib.suppress(FileNotFoundError):  # it was being written
                        about = os.stat(os.path.join(where, name))
                        size = about.st_size if stat.S_ISREG(about.st_mode) else None
                        found[os.path.relpath(os.path.join(where, name), top)] = size
        return found

    # Writing.

    def write_bytes(self, name: str, content: bytes) -> None:
        """Write a file so that it is there whole, also after a power cut, or not at all."""
        path = self.path(name)
        with self._plainly(name, "written"):
            if not self.is_local:
                self.system.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
                self.system.pipe_file(path, content)
                return
            os.makedirs(os.path.dirname(path), exist_ok=True)
            partial = f"{path}.{uuid.uuid4().hex}.partial"
            try:
                with open(partial, "xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(partial, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(partial)
                raise

    def write(self, name: str, data: Any) -> None:
        """Write data as JSON, in the order that it has: that of a study's axes is the order of the arrays."""
        self.write_bytes(name, json.dumps(data, indent=1).encode())

    def create(self, name: str, data: Any) -> bool:
        """Write a new file; False if there is one already. Elsewhere than on a local path two may both succeed."""
        if not self.is_local:
            if self.exists(name):
                return False
            self.write(name, data)
            return True
        partial = f"{name}.{uuid.uuid4().hex}.partial"
        self.write(partial, data)
        try:
            with self._plainly(name, "written"):
                os.link(self.path(partial), self.path(name))
        except InvalidInput as error:
            if isinstance(error.__cause__, FileExistsError):
                return False
            raise
        finally:
            self.remove(partial)
        return True

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with contextlib.suppress(FileNotFoundError), self._plainly(name, "removed"):
            self.system.rm_file(self.path(name))

    def tidy(self) -> None:
        """Remove what was being written when a process died."""
        if self.is_local:
            for path in Path(self.root).rglob("*.partial"):
                if _PARTIAL.search(path.name):
                    path.unlink(missing_ok=True)


def sealed(data: dict[str, Any]) -> dict[str, Any]:
    """The data with a digest of itself, so that any later change of it is noticed."""
    return data | {_SEAL: _seal(data)}


def is_sealed(data: Any) -> bool:
    """Whether data are as they were sealed."""
    return isinstance(data, dict) and data.get(_SEAL) == _seal(data)


def _seal(data: dict[str, Any]) -> str:
    content = {name: value for name, value in data.items() if name != _SEAL}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
