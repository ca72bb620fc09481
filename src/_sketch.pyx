"""Draw the non-zero entries of p-sparsified sketches.

Stage: (key, rows, columns, p) -> positions and values of the non-zeros of S.

Every row and every block of BLOCK columns is a stream of its own: entry number
t of the stream comes from the Philox counter (t, block, row, 0).  Zeros are
skipped with geometric gaps, so that a stream costs its non-zeros and not its
length; the gaps restart at block starts, which is exact because the geometric
law has no memory.  Hence S is a function of the key alone: not of threads
(parallel axis: rows), nor of the part of S that is drawn.
"""

from cython.parallel cimport prange
from libc.math cimport INFINITY, cos, log, log1p, sqrt
from libc.stdint cimport int64_t, uint64_t

cdef extern from "philox.h" nogil:
    void psk_philox(const uint64_t *counter, const uint64_t *key, uint64_t *words)

cdef enum:
    BLOCK_ = 65536

cdef double TWO_PI = 6.283185307179586476925286766559

BLOCK = BLOCK_


cdef struct Stream:
    uint64_t key[2]
    uint64_t counter[4]
    uint64_t words[4]
    int64_t position    # of the current entry, inside the block
    double log_zero     # log(1 - p)


cdef inline double uniform(uint64_t word) noexcept nogil:
    """Turn a random word into a uniform number on (0, 1], of 53 bits."""
    return <double>((word >> 11) + 1) * (1.0 / 9007199254740992.0)


cdef inline Stream open_stream(
    const uint64_t *key, int64_t row, int64_t block, double p
) noexcept nogil:
    cdef Stream stream
    stream.key[0] = key[0]
    stream.key[1] = key[1]
    stream.counter[0] = 0
    stream.counter[1] = <uint64_t>block
    stream.counter[2] = <uint64_t>row
    stream.counter[3] = 0
    stream.position = -1
    stream.log_zero = log1p(-p) if p < 1 else -INFINITY
    return stream


cdef inline bint next_entry(Stream *stream, int64_t width) noexcept nogil:
    """Go to the next non-zero; False when it lies at or behind `width`."""
    cdef double gap = 0
    psk_philox(stream.counter, stream.key, stream.words)
    stream.counter[0] += 1
    # P(gap >= g) = (1 - p)^g; compared as a double, for a tiny p overflows int64
    if stream.log_zero > -INFINITY:
        gap = log(uniform(stream.words[0])) / stream.log_zero
    if gap >= <double>(width - 1 - stream.position):
        return False
    stream.position += 1 + <int64_t>gap
    return True


cdef inline double entry_value(const Stream *stream, bint gaussian) noexcept nogil:
    """Compute the value of the current entry, before scaling."""
    if gaussian:  # Box and Muller
        return (sqrt(-2.0 * log(uniform(stream.words[1])))
                * cos(TWO_PI * uniform(stream.words[2])))
    return 1.0 if stream.words[1] >> 63 else -1.0


cdef int64_t draw_row(
    const uint64_t *key,    # IN  (2,)
    int64_t row,
    int64_t col_start,
    int64_t col_end,
    double p,
    bint gaussian,
    int64_t *columns,       # OUT relative to col_start; NULL: not wanted
    double *values,         # OUT; NULL: only count
) noexcept nogil:
    """Draw entries of one row in [col_start, col_end); return their number."""
    cdef:
        int64_t block, column, width
        int64_t n_entries = 0
        Stream stream
    for block in range(col_start // BLOCK_, (col_end + BLOCK_ - 1) // BLOCK_):
        stream = open_stream(key, row, block, p)
        width = min(<int64_t>BLOCK_, col_end - block * BLOCK_)
        while next_entry(&stream, width):
            column = block * BLOCK_ + stream.position - col_start
            if column < 0:
                continue
            if columns != NULL:
                columns[n_entries] = column
            if values != NULL:
                values[n_entries] = entry_value(&stream, gaussian)
            n_entries += 1
    return n_entries


def count_entries(
    const uint64_t[::1] key,    # IN  (2,)
    int64_t row_start,
    int64_t col_start,
    int64_t col_end,
    double p,
    int64_t[::1] counts,        # OUT (n_rows,)
    int n_threads,
):
    """Count the non-zeros in each row of a part of S."""
    cdef int64_t i
    for i in prange(counts.shape[0], nogil=True, num_threads=n_threads,
                    use_threads_if=n_threads > 1, schedule="static"):
        counts[i] = draw_row(&key[0], row_start + i, col_start, col_end, p,
                             False, NULL, NULL)


def draw_csr(
    const uint64_t[::1] key,    # IN  (2,)
    int64_t row_start,
    int64_t col_start,
    int64_t col_end,
    double p,
    bint gaussian,
    const int64_t[::1] indptr,  # IN  (n_rows + 1,), from count_entries
    int64_t[::1] columns,       # OUT (nnz,) relative to col_start, or None
    double[::1] values,         # OUT (nnz,) not scaled
    int n_threads,
):
    """Fill the rows of a part of S, in CSR form."""
    cdef:
        int64_t i
        int64_t n_rows = indptr.shape[0] - 1
        bint with_columns = columns is not None
        int64_t *row_columns
    if values.shape[0] == 0:
        return
    for i in prange(n_rows, nogil=True, num_threads=n_threads,
                    use_threads_if=n_threads > 1, schedule="static"):
        if indptr[i + 1] > indptr[i]:
            row_columns = &columns[indptr[i]] if with_columns else NULL
            draw_row(&key[0], row_start + i, col_start, col_end, p, gaussian,
                     row_columns, &values[indptr[i]])


def philox(const uint64_t[::1] counter, const uint64_t[::1] key, uint64_t[::1] words):
    """words := Philox-4x64-10(counter, key), for the known-answer test."""
    psk_philox(&counter[0], &key[0], &words[0])
