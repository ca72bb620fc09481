"""Products with a matrix of features Z: all that solvers do with it.

`Features` wraps the passes of src/_linear.pyx.  Callers of `gram` keep
BLAS to one thread (`single_threaded_blas`): the threads here are ours.
"""

import numpy as np

from pskernels import _linear
from pskernels._threads import ThreadChoice, single_threaded_blas, threads_for

# Sums over rows are kept for each group of rows.  How many groups there are must
# not depend on the number of threads, or the last bits would.
MAX_GROUPS = 64
MIN_GROUP_ROWS = 256
GRAM_TASKS = 16

# Multiplications that make a thread worthwhile: some 50 µs of them.
PASS_GRAIN = 2**18
GRAM_GRAIN = 2**20

# Multiplications of one native call for a Gram matrix, well under half a second:
# Ctrl-C is heard between calls.
CALL_WORK = 2**32


class Features:
    """Z, of shape (n, r), with the products that solvers need.

    Parameters
    ----------
    Z : C-contiguous array of float32 or float64
    n_threads : int
    """

    def __init__(self, Z, n_threads):
        self.Z = Z
        self.n, self.r = Z.shape
        self._passes = ThreadChoice(threads_for(Z.size, PASS_GRAIN, n_threads))
        self._grams = ThreadChoice(n_threads)
        n_groups = min(MAX_GROUPS, -(-self.n // MIN_GROUP_ROWS))
        self._partial = np.empty((n_groups, self.r + 1))
        n_tiles = -(-self.r // _linear.GRAM_TILE)
        self._gram_tasks = n_tiles * (n_tiles + 1) // 2

    def dot(self, v, out=None):
        """Z @ v."""
        out = np.empty(self.n) if out is None else out
        if not v.any():
            out[:] = 0
            return out
        self._passes.run(lambda k: _linear.dot(self.Z, v, out, k), self.n)
        return out

    def t_dot(self, x):
        """Z.T @ x; rows whose x is 0 are not read."""
        return self._t_dot(x, None)[:-1]

    def bordered_t_dot(self, x):
        """[Z 1].T @ x."""
        return self._t_dot(x, None)

    def bordered_gram_dot(self, weight, v):
        """[Z 1].T @ (weight * ([Z 1] @ v)), in one pass over rows of some weight."""
        return self._t_dot(weight, v)

    def _t_dot(self, x, v):
        partial = self._partial
        partial[:] = 0
        n_rows = np.count_nonzero(x)
        self._passes.run(lambda k: _linear.t_dot(self.Z, x, v, partial, k), n_rows)
        return partial.sum(axis=0)

    def gram(self, weight, rows=None, size=None):
        """Z.T @ (weight[:, None] * Z), the upper triangle; the rest is 0.

        Costs (rows of positive weight)·r²/2 multiplications.  `rows` are those to
        be summed, all of positive weight by default.  A `size` above r leaves room
        for a border, of zeros.
        """
        if rows is None:
            rows = np.flatnonzero(weight)
        n_groups = min(GRAM_TASKS // self._gram_tasks, len(rows) // MIN_GROUP_ROWS)
        size = self.r if size is None else size
        sums = np.zeros((max(1, n_groups), size, size))
        step = max(_linear.GRAM_TILE, CALL_WORK // self.r**2)

        def add(n_threads, some):
            buffers = np.empty((n_threads, _linear.GRAM_BUFFER))
            _linear.add_weighted_gram(self.Z, weight, some, sums, buffers, n_threads)

        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            if len(some) * self.r**2 < 2 * GRAM_GRAIN:
                add(1, some)
            else:
                self._grams.run(lambda k, some=some: add(k, some), len(some))
        return sums.sum(axis=0) if len(sums) > 1 else sums[0]


class RunningSum:
    """A sum over points, linear in their weights, which change at few of them.

    What has changed is added, while that is less than half of the points; every so
    often all of them are summed anew, so that rounding does not add up.

    Parameters
    ----------
    compute : callable
        weights of points -> the sum, a new array; points of weight 0 cost nothing.
    """

    MAX_CHANGED = 0.5
    MAX_UPDATES = 16

    def __init__(self, compute):
        self._compute = compute
        self._weight = None
        self._n_updates = 0

    def __call__(self, weight):
        """The sum for these weights, which must not be changed afterwards."""
        change = self._small_change(weight)
        if change is None:
            self._sum = self._compute(weight)
            self._n_updates = 0
        else:
            self._sum += self._compute(change)
            self._n_updates += 1
        self._weight = weight
        return self._sum.copy()

    def n_to_add(self, weight):
        """How many points a call with these weights would sum."""
        change = self._small_change(weight)
        return np.count_nonzero(weight if change is None else change)

    def _small_change(self, weight):
        if self._weight is None or self._n_updates == self.MAX_UPDATES:
            return None
        change = weight - self._weight
        limit = self.MAX_CHANGED * np.count_nonzero(weight)
        return change if np.count_nonzero(change) <= limit else None


def matmul(A, B, out, n_threads):
    """out = A @ B, rows of A shared among threads; A and B are C-contiguous."""
    step = max(_linear.MATMUL_ROWS, CALL_WORK // B.size)
    with single_threaded_blas():
        for start in range(0, len(A), step):
            rows = slice(start, start + step)
            if out.strides[1] == out.itemsize:
                _linear.matmul(A[rows], B, out[rows], n_threads)
            else:
                part = np.empty(out[rows].shape, out.dtype)
                _linear.matmul(A[rows], B, part, n_threads)
                out[rows] = part
    return out
