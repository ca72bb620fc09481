"""Features of chunks in a temporary file, where that costs less than computing them.

    first pass     computed, and written
    later passes   read

What of the file is in memory belongs to the operating system, which takes it back when
it is needed; `memory_limit` counts none of it.  The file has no name, so that nothing
is left of it, however the process ends.
"""

import os
import shutil
import tempfile
from typing import TYPE_CHECKING

import numpy as np

from pskernels._types import Array, Dtype
from pskernels.kernels import CallableKernel

if TYPE_CHECKING:
    from pskernels.feature_map import ChunkFeatures

# Passes over all points that a fit takes, about, of smooth losses and of others: gaps
# of 1e-3 take 2 to 6, smaller ones more (`python bench/scaling.py passes`).
SMOOTH_PASSES, EXPECTED_PASSES = 3, 4

# Seconds, with two threads (`python bench/scaling.py scratch` measures them): a value
# of the kernel in float64, and for each feature of a point; of a function in Python; to
# form Z, for r² of a row; a byte written (twice what it takes, since disks go on with
# it behind), and read.  They are constants, and not measured by every fit, so that a
# fit has the same result to the last bit.
VALUE_COST, FEATURE_COST, CALL_COST = 8e-10, 2e-11, 2e-8
FORM_COST = 1.6e-11
WRITE_COST, READ_COST = 2e-9, 7e-10

# A share of the free space that is left to others.
SPARE = 0.5

# File systems that are memory themselves.
IN_MEMORY = ("tmpfs", "ramfs")


class Scratch:
    """Rows of numbers in a temporary file.

    Parameters
    ----------
    width : int
        Numbers in a row.
    dtype : float32 or float64

    Attributes
    ----------
    file : file object
    """

    def __init__(self, width: int, dtype: Dtype) -> None:
        self.file = tempfile.TemporaryFile(buffering=0)
        self.width, self.dtype = width, np.dtype(dtype)
        self._written: set[tuple[int, int]] = set()

    def __contains__(self, rows: slice) -> bool:
        return (rows.start, rows.stop) in self._written

    def _place(self, rows: slice) -> int:
        found: int = rows.start * self.width * self.dtype.itemsize
        return found

    def write(self, rows: slice, numbers: Array) -> bool:
        """Write the numbers of some rows; return whether the disk took them."""
        data, place = memoryview(numbers.data).cast("B"), self._place(rows)
        try:
            while data:
                count = os.pwrite(self.file.fileno(), data, place)
                data, place = data[count:], place + count
        except OSError:  # no space
            return False
        self._written.add((rows.start, rows.stop))
        return True

    def read(self, rows: slice) -> Array:
        """Read the numbers of some rows, which were written together."""
        out = np.empty((rows.stop - rows.start, self.width), self.dtype)
        data, place = memoryview(out.data).cast("B"), self._place(rows)
        while data:
            count = os.preadv(self.file.fileno(), [data], place)
            if count == 0:
                raise OSError("the temporary file of features was cut short")
            data, place = data[count:], place + count
        return out

    def close(self) -> None:
        """Remove the file."""
        self.file.close()


def choose_storage(
    features_of: "ChunkFeatures", n: int, is_smooth: bool, may_round: bool
) -> "tuple[ChunkFeatures, Scratch | None]":
    """Choose what costs the least: features computed in every pass, kept, or rounded.

    Parameters
    ----------
    features_of : ChunkFeatures
    n : int
        Rows.
    is_smooth : bool
        Whether the loss is smooth.
    may_round : bool
        Whether float32 has digits enough.

    Returns
    -------
    (ChunkFeatures, Scratch or None)
    """
    n_passes = SMOOTH_PASSES if is_smooth else EXPECTED_PASSES
    least = n_passes * _seconds(features_of)
    best: tuple[float, ChunkFeatures, int | None] = least, features_of, None
    candidates = [features_of]
    if may_round and features_of.can_be_rounded:
        candidates.append(features_of.rounded())
    for one in candidates:
        n_bytes = one.r * one.dtype.itemsize
        cost = _seconds(one) + n_bytes * (WRITE_COST + (n_passes - 1) * READ_COST)
        if cost < best[0]:
            best = cost, one, n_bytes
    # the room for a file must not decide on rounding, or on any bit of the result
    _, chosen, kept = best
    return chosen, None if kept is None else _open(chosen, n * kept)


def _open(features_of: "ChunkFeatures", n_bytes: int) -> Scratch | None:
    """Open a file for so many bytes; None if there is no room, or no folder for it."""
    try:
        if _has_space(n_bytes):
            return Scratch(features_of.r, features_of.dtype)
    except OSError:
        pass
    return None


def _seconds(features_of: "ChunkFeatures") -> float:
    """Estimate what it takes to compute the features of a row."""
    feature_map = features_of.feature_map
    m, d = len(feature_map.sketch_.indices), feature_map.n_features_in_
    value = VALUE_COST + d * FEATURE_COST
    if isinstance(feature_map.kernel_, CallableKernel):
        value = CALL_COST
    seconds = m * value
    if features_of.is_formed:
        seconds += features_of.r**2 * FORM_COST
    return seconds / 2 if feature_map.feature_dtype == np.float32 else seconds


def _has_space(n_bytes: int) -> bool:
    """Tell whether the disk of temporary files has room, and is a disk."""
    folder = tempfile.gettempdir()
    if not hasattr(os, "preadv") or _file_system(folder) in IN_MEMORY:
        return False
    return n_bytes <= SPARE * shutil.disk_usage(folder).free


def _file_system(folder: str) -> str | None:
    """Find the type of the file system of a folder; None where that is not known."""
    folder = os.path.realpath(folder)
    found: tuple[str, str | None] = ("", None)
    try:
        with open("/proc/mounts") as mounts:
            for line in mounts:
                _, place, kind, *_ = line.split(" ")
                inside = folder == place or folder.startswith(place.rstrip("/") + "/")
                if inside and len(place) >= len(found[0]):
                    found = place, kind
    except OSError:
        return None
    return found[1]
