"""Small files beside the arrays of a store, on a local path or at an fsspec URL, written whole or not at all."""

import contextlib
import json
import os
import uuid
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from ..errors import InvalidInput

PARTIAL = ".partial"


class Files:
    """A directory of small JSON and text files."""

    def __init__(self, url: str | Path):
        self.system, self.root = fsspec.core.url_to_fs(str(url))
        self.is_local = isinstance(self.system, LocalFileSystem)

    def path(self, name: str) -> str:
        """The full path of a file."""
        return f"{self.root}/{name}"

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        return self.system.exists(self.path(name))

    def read(self, name: str) -> Any:
        """The data of a JSON file."""
        content = self.system.cat_file(self.path(name))
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"{self.path(name)} is damaged, it holds no JSON: {error}") from error

    def names(self, directory: str) -> list[str]:
        """The names of the files in a directory, finished ones only."""
        if not self.system.exists(self.path(directory)):
            return []
        self.system.invalidate_cache(self.path(directory))
        found = (path.rsplit("/", 1)[-1] for path in self.system.ls(self.path(directory), detail=False))
        return sorted(name for name in found if not name.endswith(PARTIAL))

    def write(self, name: str, data: Any) -> None:
        """Write a file so that it is there whole, also after a power cut, or not at all; words as they are."""
        content = (data if isinstance(data, str) else json.dumps(data, indent=1, sort_keys=True)).encode()
        path = self.path(name)
        if not self.is_local:
            self.system.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
            self.system.pipe_file(path, content)
            return
        os.makedirs(os.path.dirname(path), exist_ok=True)
        partial = f"{path}.{uuid.uuid4().hex}{PARTIAL}"
        try:
            with open(partial, "xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        except BaseException:
            self.remove(partial.removeprefix(f"{self.root}/"))
            raise

    def create(self, name: str, data: Any) -> bool:
        """Write a new file; False if there is one already. Elsewhere than on a local path two may both succeed."""
        if not self.is_local:
            if self.exists(name):
                return False
            self.write(name, data)
            return True
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        partial = f"{name}.{uuid.uuid4().hex}{PARTIAL}"
        self.write(partial, data)
        try:
            os.link(self.path(partial), self.path(name))
        except FileExistsError:
            return False
        finally:
            self.remove(partial)
        return True

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self.system.rm_file(self.path(name))

    def sync(self, names: list[str]) -> None:
        """Wait until these files, where they exist, are on the disk."""
        if not self.is_local:
            return
        for name in names:
            with contextlib.suppress(FileNotFoundError), open(self.path(name), "rb") as file:
                os.fsync(file.fileno())

    def tidy(self) -> None:
        """Remove what was being written when a process died."""
        if self.is_local:
            for path in Path(self.root).rglob(f"*{PARTIAL}"):
                path.unlink(missing_ok=True)
