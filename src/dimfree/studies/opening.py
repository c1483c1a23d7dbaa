"""The results of a study as a Dataset, from a store that anybody may have made: what is damaged is said, not shown."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import yaml

from ..errors import InvalidInput
from .cells import Layout
from .description import Description
from .quantities import quantities
from .store import Status, Store, shape_of

if TYPE_CHECKING:
    import xarray


def open_study(path: str | Path) -> "xarray.Dataset":
    """The results of a study as one Dataset, also while it runs: what is not there yet is NaN, and its `status` 0.

    Arrays are read from the store when they are used. Dimensions are the axes of the study; of a study that refines,
    cells in the order in which they were chosen, with the axes as coordinates. `status` is 1 where a cell was computed,
    2 where it failed, 3 where it took too long. No code of the study is imported or run.

    **Arguments:**

    - `path`: a local path or an fsspec URL, as given to `Study.run` or `dimfree study run`.
    """
    import xarray

    store = Store(path)
    manifest, description = store.manifest, store.description()
    with in_words(store.url):
        # Nothing is decoded: attributes of a stranger's arrays would say what their numbers mean.
        data = xarray.open_zarr(store.arrays(), consolidated=False, chunks=None, zarr_format=3, decode_cf=False)
    data = _as_described(data, description, store.url)
    done = len(store.done())
    store.refuse_if_chunks_are_lost(description, done)
    if description.refine is None:
        values = Layout(description).axes
        data = data.assign_coords({name: list(values[name]) for name in values if name not in data.coords})
    else:
        with in_words(store.url):
            data = data.isel(cell=data.status.values != Status.MISSING).set_coords(list(description.axes))
    return data.assign_attrs(
        {str(name): str(version) for name, version in manifest["made_by"].items()}
        | {"title": description.title, "study": yaml.safe_dump(manifest["study"], sort_keys=False)}
        | {"tasks_done": done, "tasks": manifest["tasks"]}
    )


def loaded(data: "xarray.Dataset", where: str | Path) -> "xarray.Dataset":
    """The Dataset with its numbers in memory, or an error in words if they cannot be read.

    **Arguments:**

    - `data`: from [`open_study`], or a selection of it.
    - `where`: the store, for errors.
    """
    free = psutil.virtual_memory().available
    if data.nbytes > free:
        raise InvalidInput(
            f"The results in {where} take {data.nbytes / 2**30:.3g} GiB, and {free / 2**30:.3g} GiB of memory are "
            "free. Open a part of them: dimfree.open_study(path).isel(...)."
        )
    with in_words(where):
        return data.load()


@contextlib.contextmanager
def in_words(where: str | Path) -> Iterator[None]:
    """Say that a store is damaged, whatever the libraries that read it make of that."""
    try:
        yield
    except Exception as error:
        raise InvalidInput(
            f"The results in {where} cannot be read ({type(error).__name__}: {error!s:.200}). Something has changed or "
            "removed files of this store; copy it again, or compute the study anew in another directory."
        ) from error


def _as_described(data: "xarray.Dataset", description: Description, where: str) -> "xarray.Dataset":
    """The arrays that the study has and no others, if they are what it says."""
    shape, chunks, names = shape_of(description)
    wanted = {quantity.name: np.dtype(quantity.dtype) for quantity in quantities(description)}
    for name, dtype in wanted.items():
        if name not in data.variables:
            raise InvalidInput(f"The store {where} is damaged: the array {name} is not there.")
        found: Any = data[name].variable
        given = found.dims, found.shape, found.dtype, found.encoding.get("chunks")
        if given != (names, shape, dtype, chunks):
            raise InvalidInput(
                f"The store {where} is damaged: the array {name} has dimensions {given[0]}, shape {given[1]}, type "
                f"{given[2]} and chunks {given[3]}; the study has {names}, {shape}, {dtype} and {chunks}."
            )
    if description.refine is not None:
        return data[list(wanted)]
    axes = {name: data[name].variable for name in names if name in data.variables}
    for name, length in zip(names, shape, strict=True):
        if name in axes and (axes[name].shape != (length,) or axes[name].dtype.kind not in "if"):
            raise InvalidInput(f"The store {where} is damaged: the axis {name} does not have {length} numbers.")
    return data[[*wanted, *axes]]
