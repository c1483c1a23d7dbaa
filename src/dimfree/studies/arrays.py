"""The arrays of a study as files: results become the bytes of chunks, and chunks become results. Zarr encodes them."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import numpy as np
import zarr
import zarr.abc.store
import zarr.codecs
import zarr.storage
from zarr.buffer import cpu

from .cells import Cells, Layout, cells_per_task
from .description import Description
from .quantities import quantities

METADATA = "zarr.json"
_CLOSE = 1e-12  # relative; a logarithmic axis has other last digits on another processor


class Arrays:
    """An array for each quantity of a study, one chunk for each task, and one for each axis of numbers.

    What is read is decoded as the study says, never as the metadata on the disk say: those are compared only.
    """

    def __init__(self, description: Description):
        self.quantities = {quantity.name: quantity for quantity in quantities(description)}
        if description.refine is not None:
            self.shape: tuple[int, ...] = (description.refine.most_cells,)
            self.chunks: tuple[int, ...] = (cells_per_task(description),)
            self.names: tuple[str, ...] = ("cell",)
            self.axes: dict[str, np.ndarray] = {}
        else:
            layout = Layout(description)
            self.shape, self.chunks, self.names, self.axes = layout.shape, layout.tile, layout.names, layout.axes
        self.tiles = tuple(math.ceil(n / side) for n, side in zip(self.shape, self.chunks, strict=True))
        self.tasks = math.prod(self.tiles)
        self.metadata = {name: content.to_bytes() for name, content in self._made().items()}

    @property
    def axes_of_numbers(self) -> dict[str, np.ndarray]:
        """The axes that have an array."""
        return {name: values for name, values in self.axes.items() if values.dtype.kind in "if"}

    def _made(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        group = zarr.open_group(zarr.storage.MemoryStore(found), mode="a", zarr_format=3)
        for quantity in self.quantities.values():
            group.create_array(
                quantity.name,
                shape=self.shape,
                chunks=self.chunks,
                dtype=quantity.dtype,
                fill_value=quantity.fill,
                dimension_names=self.names,
                attributes={"description": quantity.meaning},
                compressors=zarr.codecs.ZstdCodec(checksum=True),
            )
        for name, values in self.axes_of_numbers.items():
            group.create_array(name, shape=values.shape, dtype=values.dtype, dimension_names=(name,))
        return found

    # Tasks and chunks.

    def chunk(self, task: int) -> str:
        """Where the chunk of a task is in the directory of an array."""
        return "c/" + "/".join(str(int(index)) for index in np.unravel_index(task, self.tiles))

    def task(self, chunk: str) -> int:
        """The task of a chunk."""
        index = tuple(int(part) for part in chunk.removeprefix("c/").split("/"))
        return int(np.ravel_multi_index(index, self.tiles))

    # From results to bytes.

    def encoded(self, cells: Cells, results: dict[str, np.ndarray]) -> dict[str, bytes]:
        """The chunk of each quantity of a task, also where nothing in it differs from the fill value."""
        found = self._memory()
        for name, values in results.items():
            with zarr.config.set({"array.write_empty_chunks": True}):
                array = _array(zarr.storage.MemoryStore(found), name, "r+")
            array[cells.region] = values.reshape(cells.shape)
        return {name: found[f"{name}/{self.chunk(cells.task)}"].to_bytes() for name in results}

    def encoded_axes(self) -> dict[str, bytes]:
        """The chunks of the axes, by their path."""
        found = self._memory()
        for name, values in self.axes_of_numbers.items():
            with zarr.config.set({"array.write_empty_chunks": True}):
                array = _array(zarr.storage.MemoryStore(found), name, "r+")
            array[...] = values
        return {path: content.to_bytes() for path, content in found.items() if path not in self.metadata}

    def _memory(self) -> dict[str, Any]:
        return {path: cpu.Buffer.from_bytes(content) for path, content in self.metadata.items()}

    # From bytes to results.

    def read(self, name: str, fetch: "Fetch", region: Any = ...) -> np.ndarray:
        """A part of an array."""
        return np.asarray(_array(Chunks(self.metadata, fetch), name, "r")[region])

    def is_chunk(self, name: str, task: int, content: bytes) -> bool:
        """Whether these bytes are a whole chunk of an array."""
        path = f"{name}/{self.chunk(task)}"
        corner = np.unravel_index(task, self.tiles)
        region = tuple(slice(int(i) * side, (int(i) + 1) * side) for i, side in zip(corner, self.chunks, strict=True))
        try:
            self.read(name, {path: content}.get, region)
        except Exception:  # whatever Zarr makes of them
            return False
        return True

    def differs(self, name: str, content: bytes) -> str | None:
        """How the metadata of an array, as found on the disk, differ from those of the study; None if they do not."""
        own = self.metadata[f"{name}/{METADATA}"]
        if content == own:
            return None
        found, wanted = _parsed(content), _parsed(own)  # another version of Zarr may write the same otherwise
        if isinstance(found, str) or isinstance(wanted, str):
            return f"its metadata cannot be read: {found}"
        for part in wanted:
            if part != "attributes" and found.get(part) != wanted[part]:
                return f"its {part} is {found.get(part)!r:.200}, and the study has {wanted[part]!r:.200}"
        return None

    def same_axis(self, name: str, fetch: "Fetch") -> bool:
        """Whether the values of an axis on the disk are those of the study."""
        return np.allclose(self.read(name, fetch), self.axes[name], rtol=_CLOSE, atol=0.0)


def _parsed(content: bytes) -> Any:
    """Metadata with every default in place, or what is wrong with them."""
    try:
        store = zarr.storage.MemoryStore({METADATA: cpu.Buffer.from_bytes(content)})
        return zarr.open_array(store, mode="r", zarr_format=3).metadata.to_dict()
    except Exception as error:  # anything can be in a file
        return f"{type(error).__name__}: {error!s:.200}"


def _array(store: Any, name: str, mode: Any) -> zarr.Array:
    return zarr.open_array(store, path=name, mode=mode, zarr_format=3)


Fetch = Callable[[str], bytes | None]


class Chunks(zarr.abc.store.Store):
    """What Zarr reads: metadata from memory, chunks from a function that is given their path; nothing is written."""

    supports_writes: bool = False  # pyright: ignore[reportIncompatibleMethodOverride]
    supports_deletes: bool = False  # pyright: ignore[reportIncompatibleMethodOverride]
    supports_listing: bool = True  # pyright: ignore[reportIncompatibleMethodOverride]

    def __init__(self, metadata: dict[str, bytes], fetch: Fetch):
        super().__init__(read_only=True)
        self.metadata, self.fetch = metadata, fetch

    def __eq__(self, value: object) -> bool:
        return self is value

    def __hash__(self) -> int:
        return id(self)

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        assert byte_range is None  # chunks are read whole
        name = key.rsplit("/", 1)[-1]
        if name.startswith((".z", METADATA)):
            content = self.metadata.get(key)
        else:
            content = await asyncio.to_thread(self.fetch, key)
        return None if content is None else prototype.buffer.from_bytes(content)

    async def get_partial_values(self, prototype: Any, key_ranges: Iterable[Any]) -> list[Any]:
        return [await self.get(key, prototype, byte_range) for key, byte_range in key_ranges]

    async def exists(self, key: str) -> bool:
        return key in self.metadata

    async def list(self) -> AsyncIterator[str]:
        for key in self.metadata:
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        for key in self.metadata:
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        within = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        for name in {key.removeprefix(within).split("/")[0] for key in self.metadata if key.startswith(within)}:
            yield name

    async def set(self, key: str, value: Any) -> None:
        raise PermissionError(key)

    async def delete(self, key: str) -> None:
        raise PermissionError(key)
