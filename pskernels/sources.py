"""Rows that need not be in memory: memory maps, files, whatever has a shape and slices.

`open_points` and `open_targets` take what a user has; what they return is read in
slices.  Nothing here reads all rows at once.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pskernels._engine import column_moments
from pskernels._types import AnyArray, Array, Indices, Path
from pskernels._validation import check_real_array

if TYPE_CHECKING:
    from pskernels.point_metric import Metric

# Rows that are read at a time where some of them are wanted, in bytes.
READ_BYTES = 2**24


def is_source(X: Any) -> bool:
    """Tell whether X is points that need not be in memory, and no array or frame."""
    if isinstance(X, (str, os.PathLike, Source, np.memmap)):
        return True
    if isinstance(X, np.ndarray):
        return isinstance(_owner(X), np.memmap)
    if any(hasattr(X, name) for name in ("toarray", "iloc", "__array_interface__")):
        return False
    try:
        np.dtype(X.dtype)
        return len(X.shape) == 2 and hasattr(X, "__getitem__")
    except (AttributeError, TypeError):
        return False


def _least_of(start: int, rows: AnyArray) -> Any:
    return rows.min()


def _owner(array: Any) -> Any:
    """Find what an array is a view of."""
    while isinstance(array, np.ndarray) and not isinstance(array, np.memmap):
        if array.base is None:
            break
        array = array.base
    return array


class Source:
    """Rows of numbers that are read in slices.

    Parameters
    ----------
    rows : object
        Has a shape (n, d), or (n,) for targets, a dtype, and slices of rows.
    name : str
        For messages.
    real : bool
        Whether they must be real numbers; labels may be text.

    Attributes
    ----------
    shape : tuple
    dtype : float32 or float64
        float32 if the rows are.
    """

    # what passes over the rows go by, if not `streaming.Chunks`
    chunks_type: Any = None
    lengths: Any = None  # of partitions, if there are any

    def __init__(self, rows: Any, name: str, real: bool = True) -> None:
        try:
            self.shape = tuple(int(size) for size in rows.shape)
            dtype = np.dtype(rows.dtype)
        except (AttributeError, TypeError) as error:
            raise TypeError(
                f"{name} must be an array, a path to a .npy or .parquet file, or an "
                f"object with a shape, a dtype and slices of rows, got "
                f"{type(rows).__name__} ({error})"
            ) from None
        if not self.shape:
            raise ValueError(f"{name} must have rows, got a single value")
        if real and dtype.kind not in "biuf":
            raise TypeError(f"{name} must hold real numbers, got dtype {dtype}")
        self.dtype = dtype
        if real:
            self.dtype = np.dtype(np.float32 if dtype.str[1:] == "f4" else np.float64)
        self.name, self._real = name, real
        self._rows = rows

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def names(self) -> list[str] | None:
        """Names of the columns, of a Parquet file; else None."""
        return getattr(self._rows, "columns", None)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, numbers: Any) -> AnyArray:
        """Read rows: a slice, an array of numbers, or a pair of rows and columns."""
        if isinstance(numbers, tuple):
            rows, columns = numbers
            return self[rows][:, columns]
        if isinstance(numbers, slice):
            start, end, step = numbers.indices(len(self))
            if step != 1:
                raise ValueError(f"rows are read one by one, got a step of {step}")
            return self._read(start, end)
        return self._gather(np.asarray(numbers))

    def _read(self, start: int, end: int) -> AnyArray:
        """Read rows that lie together, and check that they are what was promised."""
        rows = self._check(self._rows[start:end])
        expected = (max(0, end - start), *self.shape[1:])
        if rows.shape != expected:
            raise ValueError(
                f"rows {start} to {end} of {self.name} must have shape {expected}, got "
                f"{rows.shape}: it has changed, or its slices are not those of its "
                f"shape {self.shape}"
            )
        return rows

    def _check(self, rows: object) -> AnyArray:
        return check_real_array(rows, self.name) if self._real else np.asarray(rows)

    def _gather(self, numbers: Indices) -> AnyArray:
        """Read rows here and there, as few slices as there are blocks of them."""
        if isinstance(self._rows, np.ndarray):
            return self._check(self._rows[numbers])
        out = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        order = np.argsort(numbers, kind="stable")
        ordered = numbers[order]
        for start, end in self.blocks(READ_BYTES):
            first, last = np.searchsorted(ordered, (start, end))
            if first == last:
                continue
            low, high = ordered[first], ordered[last - 1] + 1
            out[order[first:last]] = self._read(low, high)[ordered[first:last] - low]
        return out

    def blocks(self, n_bytes: int) -> list[tuple[int, int]]:
        """List (start, end) of blocks of rows of so many bytes at most."""
        width = int(np.prod(self.shape[1:], initial=1)) * self.dtype.itemsize
        step = max(1, n_bytes // max(1, width))
        return [(k, min(len(self), k + step)) for k in range(0, len(self), step)]

    def __iter__(self) -> Iterator[Any]:
        for start, end in self.blocks(READ_BYTES):
            yield from self._read(start, end)

    def map_blocks(
        self, function: Callable[..., Any], *others: "Source | None"
    ) -> list[Any]:
        """List function(start, rows, *rows of others) of all blocks of rows.

        `others` are sources of as many rows, or None.
        """
        found = []
        for start, end in self.blocks(READ_BYTES):
            rows = [None if one is None else one[start:end] for one in others]
            found.append(function(start, self._read(start, end), *rows))
        return found

    def min(self) -> Any:
        """Find the least number."""
        return min(self.map_blocks(_least_of))

    def column_moments(
        self,
        with_variance: bool,
        n_threads: int,
        memory_limit: int,
        metric: "Metric | None" = None,
    ) -> tuple[Array, float | None]:
        """Do `_engine.column_moments` for all rows."""
        return column_moments(self, with_variance, n_threads, memory_limit, metric)


class ParquetRows:
    """Columns of a Parquet file, read by row groups.

    Parameters
    ----------
    path : str or path
    columns : list of str, optional
        None means all.
    real : bool
        Whether they must hold real numbers.
    """

    def __init__(
        self, path: Path, columns: Sequence[str] | None = None, real: bool = True
    ) -> None:
        try:
            import pyarrow.parquet
        except ImportError:
            raise ImportError("to read Parquet files: pip install pyarrow") from None
        self.path = os.fspath(path)
        self._file = pyarrow.parquet.ParquetFile(self.path)
        schema = self._file.schema_arrow
        self.columns = list(schema.names if columns is None else columns)
        missing = [name for name in self.columns if name not in schema.names]
        if missing:
            raise ValueError(
                f"{self.path} has no column {missing[0]!r}; it has "
                f"{', '.join(schema.names)}"
            )
        dtypes = [_numpy_dtype(schema.field(name), real) for name in self.columns]
        self.dtype = np.result_type(*dtypes) if dtypes else np.dtype(float)
        metadata = self._file.metadata
        sizes = [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)]
        self._starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.intp)])
        self.shape = int(self._starts[-1]), len(self.columns)
        # the number of a row group, and its rows
        self._kept: tuple[int, AnyArray] | None = None

    def __getitem__(self, rows: slice) -> AnyArray:
        start, end, _ = rows.indices(self.shape[0])
        out = np.empty((max(0, end - start), self.shape[1]), self.dtype)
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        while start < end:
            begin, stop = self._starts[first], min(end, self._starts[first + 1])
            part = self._group(first)[start - begin : stop - begin]
            out[len(out) - (end - start) :][: len(part)] = part
            start, first = stop, first + 1
        return out

    def _group(self, number: int) -> AnyArray:
        """Read a row group; the last one is kept, since slices may be smaller."""
        if self._kept is None or self._kept[0] != number:
            table = self._file.read_row_group(number, columns=self.columns)
            rows = np.empty((table.num_rows, len(self.columns)), self.dtype)
            for k, name in enumerate(self.columns):
                column = table[name]
                if column.null_count:  # integers have no NaN to become
                    place = int(np.argmax(column.is_null().to_numpy()))
                    raise ValueError(
                        f"column {name!r} of {self.path} has no value in row "
                        f"{self._starts[number] + place}"
                    )
                rows[:, k] = column.to_numpy()
            self._kept = number, rows
        return self._kept[1]


def parquet_columns(path: object) -> list[str] | None:
    """List the columns of a Parquet file; None if it is none."""
    if not isinstance(path, (str, os.PathLike)) or not _is_parquet(os.fspath(path)):
        return None
    return ParquetRows(path, real=False).columns


def _numpy_dtype(field: Any, real: bool) -> np.dtype[Any]:
    """Find the type of a column; text and the like have none that is of use."""
    try:
        dtype: np.dtype[Any] = np.dtype(field.type.to_pandas_dtype())
    except (NotImplementedError, TypeError):
        # pyarrow has no type for nested values, NumPy none for pandas' own: no numbers
        dtype = np.dtype(object)
    if real and dtype.kind not in "biuf":
        raise TypeError(
            f"column {field.name!r} must hold real numbers, got {field.type}; encode "
            "it first, or name the columns by ParquetRows(path, columns)"
        )
    return dtype


def open_points(
    X: Any, y: object = None, columns: Sequence[str] | None = None
) -> Source:
    """Open X as a `Source` of shape (n, d); y may be the name of a column of its file.

    Parameters
    ----------
    X : array, path or object
        A path is that of a .npy or a Parquet file.
    y : optional
        If it is text, and X a Parquet file, a column of it, which X has not.
    columns : sequence of str, optional
        Those of a Parquet file that are the features, in their order.

    Returns
    -------
    Source
    """
    if isinstance(X, (str, os.PathLike)):
        path = os.fspath(X)
        if _is_parquet(path):
            names = (parquet_columns(path) or []) if columns is None else list(columns)
            target = y if isinstance(y, str) else None
            rows: Any = ParquetRows(path, [name for name in names if name != target])
        else:
            rows = _open_npy(path, "X")
    else:
        rows = X
    source = rows if isinstance(rows, Source) else Source(rows, "X")
    if source.ndim != 2 or 0 in source.shape:
        raise ValueError(
            "X must be 2-d, one point in each row, with at least one point and one "
            f"feature, got shape {source.shape}"
        )
    return source


def open_targets(y: Any, X: Any, name: str = "y", real: bool = True) -> Source:
    """Open y as a `Source` of shape (n,) or (n, d).

    Parameters
    ----------
    y : array, path, object, or the name of a column of the Parquet file X
    X : what the user gave for points
    name : str
    real : bool
        As for `Source`.
    """
    if isinstance(y, Source):
        return y
    if isinstance(y, (str, os.PathLike)):
        path = os.fspath(y)
        if isinstance(X, (str, os.PathLike)) and _is_parquet(os.fspath(X)):
            if not path.endswith(".npy"):
                return Source(_Column(ParquetRows(X, [path], real)), name, real)
        y = _open_npy(path, name)
    elif not hasattr(y, "shape") or hasattr(y, "iloc"):
        y = np.asarray(y)
    return Source(y, name, real)


class _Column:
    """The only column of others, as targets are."""

    def __init__(self, rows: ParquetRows) -> None:
        self._rows = rows
        self.shape, self.dtype = rows.shape[:1], rows.dtype

    def __getitem__(self, numbers: Any) -> AnyArray:
        return self._rows[numbers][:, 0]


def _is_parquet(path: str) -> bool:
    return path.endswith((".parquet", ".pq"))


def _open_npy(path: str, name: str) -> AnyArray:
    if not path.endswith(".npy"):
        raise ValueError(
            f"{name} must be a path to a .npy or .parquet file, got {path!r}"
        )
    found: AnyArray = np.load(path, mmap_mode="r", allow_pickle=False)
    return found
