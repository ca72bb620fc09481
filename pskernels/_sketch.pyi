from pskernels._types import Array, Indices

BLOCK: int

def count_entries(
    key: Indices,
    row_start: int,
    col_start: int,
    col_end: int,
    p: float,
    counts: Indices,
    n_threads: int,
) -> None: ...
def draw_csr(
    key: Indices,
    row_start: int,
    col_start: int,
    col_end: int,
    p: float,
    gaussian: bool,
    indptr: Indices,
    columns: Indices | None,
    values: Array,
    n_threads: int,
) -> None: ...
def philox(counter: Indices, key: Indices, words: Indices) -> None: ...
