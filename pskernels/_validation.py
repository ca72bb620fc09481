"""Checks of arguments: each error names the parameter, the value and the need."""

import numbers
import sys
import warnings
from collections.abc import Collection, Iterator
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp

from pskernels._types import (
    AnyArray,
    Array,
    CheckedPoints,
    Dtype,
    HasDtype,
    Shape,
    SparsePoints,
)

PACKAGE = "pskernels"

DEFAULT_MEMORY_LIMIT = 2**30

# Numbers that are looked at, at a time.
FINITE_BLOCK = 2**16


def check_int(value: Any, name: str, *, minimum: int) -> int:
    """Check an integer of at least `minimum`."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value}")
    return int(value)


def _check_real(value: object, name: str) -> None:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a real number, got {value!r}")


def check_positive(value: Any, name: str) -> float:
    """Check a finite real number above 0."""
    _check_real(value, name)
    if not 0 < value < np.inf:
        raise ValueError(f"{name} must be positive and finite, got {value!r}")
    return float(value)


def check_non_negative(value: Any, name: str) -> float:
    """Check a finite real number of at least 0."""
    _check_real(value, name)
    if not 0 <= value < np.inf:
        raise ValueError(f"{name} must be finite and not negative, got {value!r}")
    return float(value)


def check_open_probability(value: Any, name: str) -> float:
    """Check a real number in (0, 1), both excluded."""
    _check_real(value, name)
    if not 0 < value < 1:
        raise ValueError(f"{name} must be above 0 and below 1, got {value!r}")
    return float(value)


def check_share(value: Any, name: str) -> float:
    """Check a level in (0, 1), which may have been given in percent."""
    _check_real(value, name)
    if 1 < value <= 100:
        raise ValueError(
            f"{name} must be above 0 and below 1, got {value:g}: divide percentages by "
            "100"
        )
    return check_open_probability(value, name)


def check_probability(value: Any, name: str) -> float:
    """Check a real number in (0, 1]."""
    _check_real(value, name)
    if not 0 < value <= 1:
        hint = f"; for {value:g} non-zeros in a row, {value:g}/n" if value > 1 else ""
        raise ValueError(f"{name} must be in (0, 1], got {value!r}{hint}")
    return float(value)


def check_option(value: object, name: str, options: Collection[str]) -> str:
    """Check that a value is one of a few strings."""
    if not isinstance(value, str) or value not in options:
        listed = ", ".join(repr(option) for option in options)
        raise ValueError(f"{name} must be one of {listed}, got {value!r}")
    return value


def check_real_array(array: object, name: str) -> AnyArray:
    """Check real numbers, as a NumPy array; no copy is made of one.

    (Unless it is not aligned, as a view of bytes may be: compiled code relies on that.)
    """
    if hasattr(array, "toarray"):
        raise TypeError(
            f"{name} is a sparse {type(array).__name__}; a dense array is needed: "
            f"pass {name}.toarray()"
        )
    if np.ma.is_masked(array):
        raise TypeError(f"{name} is a masked array with masked values; fill them first")
    if array is None:
        raise TypeError(f"{name} must hold real numbers, got None")
    try:
        array = np.asarray(array)
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"{name} must be a rectangular array: {error}") from None
    if array.dtype.kind not in "biuf":
        hint = "; try .astype(float)" if array.dtype == object else ""
        raise TypeError(
            f"{name} must hold real numbers, got an array of dtype {array.dtype}{hint}"
        )
    return aligned(array)


def aligned(array: AnyArray) -> AnyArray:
    """Copy an array whose numbers are not where compiled code may read them."""
    return array if array.flags.aligned else array.copy()


def check_compressed(array: Any, name: str) -> None:
    """Check the parts of a CSR or CSC array, which compiled code goes by.

    SciPy takes what it is given, and its own full check misses offsets that rise and
    fall again.
    """
    n_major, n_minor = array.shape if array.format == "csr" else array.shape[::-1]
    data, indices, indptr = array.data, array.indices, array.indptr
    integers = indices.dtype.kind == indptr.dtype.kind == "i"
    flat = data.ndim == indices.ndim == indptr.ndim == 1
    if not (integers and flat and len(indptr) == n_major + 1):
        raise ValueError(
            f"{name} must have {n_major + 1} offsets (indptr), one-dimensional parts "
            "and integers for indices"
        )
    n_entries = len(indices)
    rising = indptr[0] == 0 and (indptr[1:] >= indptr[:-1]).all()
    if not (rising and indptr[-1] == n_entries == len(data)):
        raise ValueError(
            f"the offsets (indptr) of {name} must rise from 0 to the number of its "
            f"entries, {n_entries}"
        )
    if n_entries and not (indices.min() >= 0 and indices.max() < n_minor):
        raise ValueError(
            f"the indices of {name}, of shape {array.shape}, must be in [0, {n_minor}),"
            f" got values from {indices.min()} to {indices.max()}"
        )


def check_sparse(array: Any, name: str) -> Any:
    """Check a sparse array of any format; returns it, or the same in another format.

    Conversions of SciPy read what they have not checked, so that this comes first.
    """
    if array.format in ("csr", "csc"):
        if array.indptr.size and 0 <= array.indptr[-1] < len(array.data):
            array = array.copy()  # there is room behind the entries
            array.prune()
        check_compressed(array, name)
        return array
    if array.format == "bsr":
        _check_blocks(array, name)
        return array
    array = array.tocoo()
    sizes = {len(coordinates) for coordinates in array.coords}
    if sizes != {len(array.data)}:
        raise ValueError(f"{name} must have as many coordinates as entries")
    for coordinates, size in zip(array.coords, array.shape, strict=True):
        if len(coordinates) and not (
            coordinates.min() >= 0 and coordinates.max() < size
        ):
            raise ValueError(
                f"the coordinates of {name}, of shape {array.shape}, must be in "
                f"[0, {size}), got values from {coordinates.min()} to "
                f"{coordinates.max()}"
            )
    return array


def _check_blocks(array: Any, name: str) -> None:
    """Check a BSR array: the structure is that of a CSR array of blocks."""
    data, (rows, columns) = array.data, array.blocksize
    if data.ndim != 3 or array.shape[0] % rows or array.shape[1] % columns:
        raise ValueError(f"{name} must consist of whole blocks of {array.blocksize}")
    blocks = SimpleNamespace(
        format="csr",
        shape=(array.shape[0] // rows, array.shape[1] // columns),
        data=data.reshape(len(data), -1)[:, 0],
        indices=array.indices,
        indptr=array.indptr,
    )
    check_compressed(blocks, name)


def canonical_csr(X: Any, name: str) -> SparsePoints:
    """Convert a sparse X to `csr_array`, each place with one entry at most; X stays."""
    found: SparsePoints = sp.csr_array(check_sparse(X, name))
    parts = found.data, found.indices, found.indptr
    if not found.has_canonical_format or not all(part.flags.aligned for part in parts):
        found = found.copy()
        found.sum_duplicates()
    return found


def check_points(X: object, name: str, accept_sparse: bool = False) -> CheckedPoints:
    """Check a non-empty 2-d array of real numbers, one point in each row.

    A sparse one becomes a `csr_array`, if it is accepted.  That values are finite is
    checked later, in the pass that computes the means of the columns.
    """
    if accept_sparse and sp.issparse(X):
        X = canonical_csr(X, name)
        check_real_array(X.data, name)
    else:
        X = check_real_array(X, name)
    if X.ndim != 2:
        hint = ""
        if X.ndim == 1:
            hint = (
                f"; {name}.reshape(-1, 1) if it is one feature, "
                f"{name}.reshape(1, -1) if it is one point"
            )
        raise ValueError(
            f"{name} must be 2-d, one point in each row, got shape {X.shape}{hint}"
        )
    if 0 in X.shape:
        raise ValueError(
            f"{name} needs at least one point and one feature, got shape {X.shape}"
        )
    return X


def raise_not_finite(X: Any, name: str) -> NoReturn:
    """Say where the first NaN or infinity of X is (X is known to have one)."""
    if X.ndim == 1:
        first = np.flatnonzero(~np.isfinite(X))[0]
        _raise_at(X[first], name, f"at index {first}")
    for i, j, value in _not_finite_entries(X):
        _raise_at(value, name, f"in row {i}, column {j}")
    raise ValueError(f"{name} has values too large to be summed in float64")


def _raise_at(value: Any, name: str, place: str) -> NoReturn:
    value = "NaN" if np.isnan(value) else value
    raise ValueError(f"{name} contains {value} {place}; every value must be finite")


def _not_finite_entries(X: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield (row, column, value) of each NaN or infinity."""
    sparse = sp.issparse(X)
    if sparse:
        X = X.tocoo()
        bad = ~np.isfinite(X.data)
        yield from zip(X.row[bad], X.col[bad], X.data[bad], strict=True)
        return
    for i, row in enumerate(X):
        for j in np.flatnonzero(~np.isfinite(row)):
            yield i, j, row[j]


def common_dtype(*arrays: HasDtype) -> Dtype:
    """Choose float32 if every array is float32, else float64."""
    # by kind and size: either byte order is float32
    if all(array.dtype.str[1:] == "f4" for array in arrays):
        return np.dtype(np.float32)
    return np.dtype(np.float64)


def check_out(
    out: Array | None, shape: Shape, dtype: Dtype, **inputs: CheckedPoints
) -> Array:
    """Return the output array: a new one, or the caller's if it fits."""
    if out is None:
        return np.empty(shape, dtype)
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out must be a NumPy array, got {type(out).__name__}")
    if out.shape != shape or out.dtype != dtype:
        raise ValueError(
            f"out must have shape {shape} and dtype {dtype}, "
            f"got shape {out.shape} and dtype {out.dtype}"
        )
    if not out.flags.writeable:
        raise ValueError("out must be writeable, got a read-only array")
    if not out.flags.aligned:
        raise ValueError("out must be aligned, got a view of bytes that is not")
    strides = sorted(zip(map(abs, out.strides), out.shape, strict=True))
    reach = out.itemsize
    for stride, size in strides:
        if size > 1 and stride < reach:
            raise ValueError(
                f"out must have a place for each number, got strides {out.strides}"
            )
        reach = max(reach, stride * size)
    for name, array in inputs.items():
        if np.shares_memory(out, array.data if sp.issparse(array) else array):
            raise ValueError(f"out must not share memory with {name}")
    return out


def check_quantiles(quantiles: object) -> tuple[float, ...]:
    """Check levels in (0, 1), increasing; return them as a tuple of floats."""
    levels = None if quantiles is None else check_real_array(quantiles, "quantiles")
    if levels is None or levels.ndim != 1 or len(levels) == 0:
        raise ValueError(
            "quantiles must be a sequence of at least one level, such as [0.5], got "
            f"{quantiles!r}"
        )
    checked = tuple(check_share(level, "quantiles") for level in levels.tolist())
    for low, high in zip(checked, checked[1:], strict=False):
        if low == high:
            raise ValueError(f"quantiles must not repeat, got {low:g} twice: {checked}")
        if low > high:
            raise ValueError(f"quantiles must be increasing, got {checked}")
    return checked


def check_memory_limit(memory_limit: int | None) -> int:
    """Check the bytes that may be used; None means DEFAULT_MEMORY_LIMIT."""
    if memory_limit is None:
        return DEFAULT_MEMORY_LIMIT
    return check_int(memory_limit, "memory_limit (bytes)", minimum=1)


def levels_to_the_caller() -> int:
    """Count frames of this package above the one that calls this, and one more."""
    frame, level = sys._getframe(1), 1
    # __package__ is None in scripts
    while frame.f_back and str(frame.f_globals.get("__package__")).startswith(PACKAGE):
        frame, level = frame.f_back, level + 1
    return level


def count_not_finite(array: AnyArray) -> int:
    """Count NaN and infinities, in blocks that take little memory."""
    step = max(1, FINITE_BLOCK // max(1, array[0].size))
    return sum(
        block.size - int(np.count_nonzero(np.isfinite(block)))
        for block in (array[i : i + step] for i in range(0, len(array), step))
    )


def warn_if_not_finite(product: Array, name: str) -> None:
    """Warn if a product has overflowed, with a figure."""
    n_bad = count_not_finite(product)
    if n_bad:
        advice = "scale X" if product.dtype == np.float64 else "use float64"
        warnings.warn(
            f"{n_bad} of {product.size} values of {name} overflowed {product.dtype}; "
            f"{advice}",
            RuntimeWarning,
            stacklevel=levels_to_the_caller(),
        )
