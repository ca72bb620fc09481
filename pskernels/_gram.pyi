from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from pskernels._types import Array, Indices

KERNEL_CODES: dict[str, int]
CHUNK_ROWS: int

def block_shape(is_double: bool) -> tuple[int, int, str]: ...
def pack(
    Z: Array,
    center: Array,
    packed: Array,
    norms: Array,
    spec: Mapping[str, float],
    width: int,
    n_threads: int,
) -> None: ...
def workspace_size(
    is_double: bool,
    s: int,
    d: int,
    dense: bool,
    row_tile: int,
    col_tile: int,
    argument_rows: int,
) -> int: ...
def gram_block(
    points: Array,
    center: Array,
    A: Array,
    a_norm: Array,
    tile_norm_max: Array,
    tile_ptr: Indices | None,
    landmark: Indices | None,
    row: Indices | None,
    weight: Array | None,
    W: Array | None,
    out: Array,
    buffers: npt.NDArray[np.int8],
    ratios: Array,
    spec: Mapping[str, float],
    tiling: Mapping[str, float],
    window: Mapping[str, float],
    n_threads: int,
) -> None: ...
def kernel_values(
    A: Array,
    a_norm: Array,
    tile_norm_max: Array,
    a_weight: Array,
    B: Array,
    b_norm: Array,
    b_weight: Array,
    out: Array,
    panels: Array,
    ratios: Array,
    spec: Mapping[str, float],
    row_tile: int,
    n_threads: int,
) -> None: ...
def gradient_block(
    points: Array,
    center: Array,
    A: Array,
    a_norm: Array,
    tile_norm_max: Array,
    W: Array,
    out: Array,
    buffers: npt.NDArray[np.int8],
    spec: Mapping[str, float],
    row_tile: int,
    accumulate: bool,
    n_threads: int,
) -> None: ...
def gradient_workspace_size(
    is_double: bool,
    n_outputs: int,
    d: int,
    row_tile: int,
) -> int: ...
def column_moments(
    X: Array,
    mean: Array,
    m2: Array | None,
    n_threads: int,
) -> None: ...
def exp2_buffer(x: Array, out: Array, n_repeats: int) -> None: ...
