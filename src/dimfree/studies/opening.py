"""The results of a study as a Dataset, from a store that anybody may have made: what is damaged is said, not shown."""

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import yaml

from ..errors import InvalidInput
from .arrays import Arrays, Chunks
from .store import Status, Store

if TYPE_CHECKING:
    import xarray


def open_study(path: str | Path) -> "xarray.Dataset":
    """The results of a study as one Dataset, also while it runs: what is not there yet is NaN, and its `status` 0.

    Arrays are read from the store when they are used, as far as tasks were done when it was opened. Dimensions are the
    axes of the study; of a study that refines, cells in the order in which they were chosen, with the axes as
    coordinates. `status` is 1 where a cell was computed, 2 where it failed, 3 where it took too long. No code of the
    study is imported or run.

    Every chunk of a task that is done must be there with the size it was written with; its digest is compared when it
    is read. A store that is not as it was written is an error that says what to do.

    **Arguments:**

    - `path`: a local path or an fsspec URL, as given to `Study.run` or `dimfree study run`.

    **Returns** an `xarray.Dataset` with an array for each quantity. Its attributes hold the study, the versions that
    made it, `tasks_done` of `tasks`, `failed_tasks` that could not be computed, with the reason, and, where a study was
    resumed in spite of a change, `accepted_changes`.
    """
    import xarray

    store = Store(path)
    manifest, description = store.manifest, store.description()
    arrays = Arrays(description)
    records = store.refuse_if_damaged(arrays)
    if not store.has_digests:
        warnings.warn(
            f"{store.url} was written by dimfree {manifest['made_by'].get('dimfree')!s:.40}, which kept no digests of "
            "chunks: lost and exchanged ones cannot be told from results. `study run --accept-changes` adds digests.",
            stacklevel=2,
        )
    with in_words(store.url):
        chunks = Chunks(arrays.metadata, store.fetcher(arrays, records))
        data = xarray.open_zarr(
            chunks, consolidated=False, chunks=None, zarr_format=3, decode_cf=False, drop_variables=list(arrays.axes)
        )
    data = data[list(arrays.quantities)]  # in their order
    if description.refine is None:
        data = data.assign_coords({name: list(values) for name, values in arrays.axes.items()})
    else:
        with in_words(store.url):
            data = data.isel(cell=data.status.values != Status.MISSING).set_coords(list(description.axes))
    with in_words(store.url):
        accepted = [f"{change['at']}: {'; '.join(change['changes'])}" for change in manifest.get("accepted", [])]
    failures = [f"task {task}: {words}" for task, words in sorted(store.failures().items()) if task not in records]
    return data.assign_attrs(
        {str(name): str(version) for name, version in manifest["made_by"].items()}
        | {"title": description.title, "study": yaml.safe_dump(manifest["study"], sort_keys=False)}
        | {"tasks_done": len(records), "tasks": arrays.tasks}
        | ({"accepted_changes": "\n".join(accepted)} if accepted else {})
        | ({"failed_tasks": "\n".join(failures)} if failures else {})
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
    except InvalidInput:
        raise
    except Exception as error:
        raise InvalidInput(
            f"The results in {where} cannot be read ({type(error).__name__}: {error!s:.200}). Something has changed or "
            "removed files of this store; copy it again, or compute the study anew in another directory."
        ) from error
