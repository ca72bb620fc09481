from pskernels._types import Array, Indices

INVERSE_COLUMNS: int
PACKED_ROWS: int
PACKED_MORE: int

def cholesky(H: Array, packed: Array, n_threads: int) -> int: ...
def pivoted_cholesky(
    H: Array,
    cut: float,
    order: Indices,
    taken: Array,
    packed: Array,
    n_threads: int,
) -> int: ...
def invert_triangle(U: Array, W: Array, n_threads: int) -> None: ...
def inverse_squares(
    U: Array,
    sums: Array,
    columns: Array,
    n_threads: int,
) -> None: ...
def solve_rows(U: Array, B: Array, n_threads: int) -> None: ...
