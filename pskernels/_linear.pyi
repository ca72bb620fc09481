from pskernels._types import Array, Indices

OUTPUT_BLOCK: int
FORM_ROWS: int
MATMUL_ROWS: int

def column_range(Z: Array, partial: Array, n_threads: int) -> None: ...
def dot(
    Z: Array,
    v: Array,
    out: Array,
    n_threads: int,
) -> None: ...
def exact_residuals(
    Z: Array,
    v: Array,
    b: float,
    b_low: float,
    y: Array,
    out: Array,
    n_threads: int,
) -> None: ...
def exact_t_dot(
    Z: Array,
    x: Array,
    partial: Array,
    n_threads: int,
) -> None: ...
def t_dot(
    Z: Array,
    x: Array,
    v: Array | None,
    partial: Array,
    n_threads: int,
) -> None: ...
def sum_rows(
    Z: Array,
    x: Array,
    rows: Indices,
    first: int,
    stride: int,
    out: Array,
    n_threads: int,
) -> None: ...
def dot_outputs(
    Z: Array,
    V: Array,
    out: Array,
    first: int,
    last: int,
    buffers: Array,
    n_threads: int,
) -> None: ...
def t_dot_outputs(
    Z: Array,
    X: Array,
    rows: Indices | None,
    first: int,
    last: int,
    partial: Array,
    buffers: Array,
    n_threads: int,
) -> None: ...
def plan_gram(r: int) -> tuple[int, int]: ...
def add_weighted_gram(
    Z: Array,
    weight: Array,
    rows: Indices,
    out: Array,
    buffers: Array,
    n_threads: int,
) -> None: ...
def matmul(
    A: Array,
    B: Array,
    out: Array,
    n_threads: int,
) -> None: ...
def packed_width(W: Array, first: int) -> int: ...
def pack_triangle(W: Array, first: int, packed: Array, n_threads: int) -> None: ...
def form_columns(
    A: Array,
    packed: Array,
    first: int,
    buffers: Array,
    n_threads: int,
) -> None: ...
