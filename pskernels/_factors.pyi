from pskernels._types import Array, Indices

PACKED_ROWS: int
PACKED_MORE: int
SYSTEM_ROWS: int
SYSTEM_SIDE: int
RIGHT_SIDES: int

def cholesky(H: Array, packed: Array, n_threads: int) -> int: ...
def pivoted_cholesky(
    H: Array,
    cut: float,
    order: Indices,
    taken: Array,
    packed: Array,
    n_threads: int,
) -> int: ...
def solve_rows(U: Array, B: Array, work: Array, n_threads: int) -> None: ...
def invert_triangle(U: Array, W: Array, work: Array, n_threads: int) -> None: ...
def inverse_squares(
    U: Array,
    first: int,
    last: int,
    sums: Array,
    rows: Array,
    work: Array,
    n_threads: int,
) -> None: ...
