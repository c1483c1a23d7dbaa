"""Rows of data, read in batches: their mean and the directions of their covariance, in bounded memory."""

import dataclasses
import numbers
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
from jaxtyping import Float

from . import extras
from .errors import InvalidInput, check_memory, flag, in_bytes, real_array, shown
from .printing import Progress

LARGEST_MATRIX = 4096  # dimensions up to which the whole covariance is diagonalised: half a minute on two cores
_NUMBERS = 2**22  # in a batch: 32 MiB in double precision


@dataclasses.dataclass(frozen=True, eq=False)
class Components:
    """The mean of rows, and their covariance in its own directions.

    - `rows`: how many there are; the covariance is that of the rows themselves, with 1/rows.
    - `mean`: shape `(d,)`.
    - `directions`: eigenvectors as columns, shape `(d, q)`: all of them, or the leading ones.
    - `eigenvalues`: shape `(q,)`, decreasing.
    - `rest`: the mean eigenvalue in the other d - q dimensions; zero where there are none.
    """

    rows: int
    mean: Float[np.ndarray, " d"]
    directions: Float[np.ndarray, "d q"]
    eigenvalues: Float[np.ndarray, " q"]
    rest: float

    @property
    def complete(self) -> bool:
        """Whether all directions are known."""
        return self.directions.shape[0] == self.directions.shape[1]

    @property
    def spectrum(self) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """The eigenvalues and the fraction of the dimensions that each has."""
        d, q = self.directions.shape
        if q == d:
            return self.eigenvalues, np.full(d, 1 / d)
        return np.append(self.eigenvalues, self.rest), np.append(np.full(q, 1 / d), (d - q) / d)

    @property
    def mean_variance(self) -> float:
        """The mean eigenvalue: the mean variance of a coordinate."""
        eigenvalues, fractions = self.spectrum
        return float(eigenvalues @ fractions)


def is_array(given: Any) -> bool:
    """Whether rows can be taken from it at any place: an array in memory or a file that is one."""
    return hasattr(given, "shape") and hasattr(given, "__getitem__")


def without_frame(given: Any, name: str) -> Any:
    """The numbers in a data frame, or in a column of one, as an array; anything else as it is.

    Frames of pandas, polars and others have `columns` and `to_numpy`, but take columns where arrays take rows.
    """
    if not hasattr(given, "to_numpy") or hasattr(given, "dims"):  # arrays of xarray take rows, and may be in a file
        return given
    found = np.ascontiguousarray(given.to_numpy())  # frames keep columns together, and rows are taken
    if found.dtype.kind in "biuf":
        return found
    # Columns of different types come as objects.
    names = [f"column {each!r} of {name}" for each in map(str, getattr(given, "columns", []))]
    for words, column in zip(names or [name], np.atleast_2d(found.T), strict=True):
        for entry in column:
            if not isinstance(entry, numbers.Real | np.bool_):
                raise InvalidInput(
                    f"{words} holds {shown(entry)}, which is not a number; leave the column out or turn it into "
                    "numbers, and leave out rows with missing entries."
                )
    return found.astype(float)


def check_rows(given: Any, name: str) -> tuple[int, int]:
    """The shape of an array of rows, or an error in words."""
    if hasattr(given, "toarray"):
        raise InvalidInput(f"{name} is a sparse matrix; give {name}.toarray(), or fewer rows of it.")
    shape = tuple(given.shape)
    if len(shape) != 2 or min(shape) < 1:
        raise InvalidInput(f"{name} has shape {shape}; give (n, d), one row for each sample.")
    return shape


def check_taking(given: Any, name: str) -> None:
    """Refuse what has a shape, but whose rows cannot be taken at several places at once."""
    n, d = check_rows(given, name)
    places = np.unique([0, n - 1])
    try:
        shape = np.asarray(given[places]).shape
    except Exception as error:  # whatever an object does that is not an array
        raise InvalidInput(
            f"Rows cannot be taken from {name}, of type {type(given).__name__}, by their numbers ({error}); give "
            f"np.asarray({name})."
        ) from error
    if shape != (len(places), d):
        raise InvalidInput(
            f"{len(places)} rows taken from {name}, of type {type(given).__name__}, have shape {shape}, not "
            f"{(len(places), d)}; give np.asarray({name})."
        )


def batches(given: Any, name: str, rows: int | None = None) -> Iterator[Float[np.ndarray, "m d"]]:
    """The rows in batches, as finite numbers in double precision.

    **Arguments:**

    - `given`: an array, in memory or in a file, a data frame, or an iterable of batches, which come as they are.
    - `rows`: in a batch of an array; chosen by their size if left out.
    """
    given = without_frame(given, name)
    if is_array(given):
        n, d = check_rows(given, name)
        size = rows or max(1, _NUMBERS // d)
        found: Any = _slices(given, name, n, size)
    else:
        try:
            found = iter(given)
        except TypeError:
            raise InvalidInput(
                f"{name} = {shown(given)} was given; give an array of shape (n, d), a memory-mapped file, or an "
                "iterable of batches of rows."
            ) from None
    for batch in found:
        if np.ma.is_masked(batch):
            raise InvalidInput(f"{name} has masked entries; fill them, or leave these rows out.")
        array = np.asarray(real_array(without_frame(batch, name), name))
        if array.ndim != 2:
            raise InvalidInput(
                f"A batch of {name} has shape {array.shape}; each must be (rows, d). Make one array of nested lists "
                "with np.asarray."
            )
        if not np.isfinite(array).all():
            raise InvalidInput(f"{name} contains NaN or infinite numbers; replace them or leave these rows out.")
        yield array


def components_of(given: Any, name: str, leading: int, *, progress: bool) -> Components:
    """The mean and the covariance of rows, read once.

    In up to `LARGEST_MATRIX` dimensions these are all eigenvectors, of a covariance that is summed in batches. In more
    they are the `leading` ones, by scikit-learn's IncrementalPCA, and the trace that is left is that of the rows.

    **Arguments:**

    - `given`, `name`: rows, as `batches` takes them, and what an error calls them.
    - `leading`: how many eigenvectors, where not all.
    - `progress`: whether to say what it will cost and show how far it is.
    """
    progress = flag(progress, "progress")
    given = without_frame(given, name)
    total = check_rows(given, name)[0] if is_array(given) else 0
    first, source = None, batches(given, name)
    for first in source:
        if len(first):
            break
    if first is None or not len(first):
        raise InvalidInput(f"{name} has no rows; an iterator that was read before has none left: make a new one.")
    d = first.shape[1]
    full = d <= LARGEST_MATRIX
    size = max(2 * leading, 128)  # rows at a time for IncrementalPCA, whose cost grows with it
    memory = 8 * (4 * d * d + 2 * _NUMBERS) if full else 8 * d * (4 * (leading + size) + 2 * max(1, _NUMBERS // d))
    what = "the covariance" if full else f"its {leading} leading directions"
    cost = f"{f'{total:,} rows' if total else 'Rows'} of {d:,} numbers, read once for {what}, {in_bytes(memory)}"
    check_memory(memory, cost, "Take fewer dimensions.")
    summed = _Covariance(d) if full else _Leading(d, leading, size)
    with Progress(cost, total or 1, shown=progress, doing="reading") as bar:
        summed.add(first)
        for batch in source:
            if batch.shape[1] != d:
                raise InvalidInput(f"The batches of {name} have {d} and {batch.shape[1]} columns; all need the same.")
            summed.add(batch)
            bar.show(min(summed.rows, total))
        if not np.isfinite(summed.squares):
            raise InvalidInput(
                f"The squares of {name} are larger than the largest number; divide all rows by one number."
            )
        found = summed.components()
    if found.rows == 1:
        raise InvalidInput(f"{name} has one row only, which has no variance. Take more rows.")
    if not found.mean_variance > 0:
        raise InvalidInput(f"All rows of {name} are the same; there is no variance to learn from.")
    return found


def least_squares(
    X: Any, labels: Float[np.ndarray, " n"], components: Components
) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " n"]]:
    """The weights of the best linear function of centred rows, and the residuals. The rows are read in batches."""
    target = labels - labels.mean()
    mean = components.mean

    def product(weights: Float[np.ndarray, " d"]) -> Float[np.ndarray, " n"]:
        return np.concatenate([(batch - mean) @ weights for batch in batches(X, "X")])

    def transposed(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " d"]:
        total, begin = np.zeros(len(mean)), 0
        for batch in batches(X, "X"):
            total += (batch - mean).T @ values[begin : begin + len(batch)]
            begin += len(batch)
        return total

    if components.complete:
        values, directions = components.eigenvalues, components.directions
        inverse = np.where(values > 1e-12 * values[0], 1 / np.maximum(values, 1e-300), 0.0)
        weights = directions @ (inverse * (directions.T @ transposed(target))) / len(target)
    else:
        linear: Any = scipy.sparse.linalg.LinearOperator  # its type takes no arguments
        operator = linear((len(target), len(mean)), matvec=product, rmatvec=transposed, dtype=float)
        weights = scipy.sparse.linalg.lsqr(operator, target, atol=1e-8, btol=1e-8)[0]
    return weights, target - product(weights)


def _slices(given: Any, name: str, n: int, size: int) -> Iterator[Any]:
    """The rows of an array, `size` at a time; an error if there are fewer than its shape says."""
    for begin in range(0, n, size):
        rows = given[begin : begin + size]
        if len(rows) != min(size, n - begin):
            raise InvalidInput(
                f"{name} says that it has {n:,} rows, but it ends after {begin + len(rows):,}. If it is in a file, the "
                "file was cut off: copy or write it again."
            )
        yield rows


class _Covariance:
    """All of the covariance."""

    def __init__(self, d: int):
        self.rows, self.shift = 0, np.zeros(d)
        self.first, self.second = np.zeros(d), np.zeros((d, d))

    @property
    def squares(self) -> float:
        return float(np.trace(self.second))

    def add(self, batch: Float[np.ndarray, "m d"]) -> None:
        if not self.rows:
            self.shift = batch.mean(axis=0)  # near the mean, so that the squares do not cancel
        centred = batch - self.shift
        self.rows += len(batch)
        self.first += centred.sum(axis=0)
        self.second += centred.T @ centred

    def components(self) -> Components:
        offset = self.first / self.rows
        covariance = self.second / self.rows - np.outer(offset, offset)
        values, directions = scipy.linalg.eigh(covariance, overwrite_a=True, check_finite=False)
        # Decreasing; what rounding has made of zero is zero.
        values = np.where(values > 1e-13 * values[-1], values, 0.0)[::-1].copy()
        return Components(self.rows, self.shift + offset, directions[:, ::-1].copy(), values, 0.0)


class _Leading:
    """The leading directions, and the trace."""

    def __init__(self, d: int, leading: int, size: int):
        try:
            from sklearn.decomposition import IncrementalPCA
        except ImportError:
            raise InvalidInput(
                f"Rows of more than {LARGEST_MATRIX:,} numbers need scikit-learn: {extras.install('data')}"
            ) from None
        self.rows, self.size, self.leading = 0, size, leading
        self.analysis: Any = IncrementalPCA(n_components=leading)
        self.waiting: list[Any] = []
        self.shift, self.squares = np.zeros(d), 0.0

    def add(self, batch: Float[np.ndarray, "m d"]) -> None:
        if not self.rows:
            self.shift = batch.mean(axis=0)
        self.rows += len(batch)
        self.squares += float(np.sum((batch - self.shift) ** 2))
        self.waiting.append(batch)
        while sum(map(len, self.waiting)) >= 2 * self.size:
            self._fit(self.size)

    def _fit(self, size: int) -> None:
        rows = self.waiting[0] if len(self.waiting) == 1 else np.concatenate(self.waiting)
        self.waiting = [rows[size:]]
        self.analysis.partial_fit(rows[:size], check_input=False)

    def components(self) -> Components:
        if self.rows <= self.leading:
            raise InvalidInput(
                f"{self.rows} rows were given, of more than {LARGEST_MATRIX:,} numbers; {self.leading} leading "
                f"directions need more than {self.leading} rows. Take more rows or fewer blocks."
            )
        self._fit(sum(map(len, self.waiting)))
        found = self.analysis
        d, offset = len(found.mean_), found.mean_ - self.shift
        values = found.singular_values_**2 / self.rows
        trace = self.squares / self.rows - float(offset @ offset)
        rest = max(trace - float(values.sum()), 0.0) / (d - self.leading)
        return Components(self.rows, found.mean_, found.components_.T.copy(), values, rest)
