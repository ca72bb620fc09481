"""S·K and S·K·Sᵀ: time, peak memory and error, beside what one would do else."""

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel

import pskernels as psk

from . import common


class PSparsified:
    """p = 20/n, against scipy.sparse @ rbf_kernel(X[idx], X)."""

    params = [list(common.METHODS), common.SHAPES, common.DTYPES]
    param_names = ["method", "(n, d)", "dtype"]
    unit = "relative error"  # of track_error

    def setup(self, method, shape, dtype):
        n, d = shape
        self.run = common.METHODS[method]
        self.X = common.make_points(n, d, dtype)
        self.gamma = 1 / d
        self.sketch = psk.PSparsified(common.S).draw(n, random_state=0)

    def time_sk(self, method, shape, dtype):
        self.run(self.X, self.sketch, self.gamma, "SK")

    def peakmem_sk(self, method, shape, dtype):
        self.run(self.X, self.sketch, self.gamma, "SK")

    def time_skst(self, method, shape, dtype):
        self.run(self.X, self.sketch, self.gamma, "SKSt")

    def track_error(self, method, shape, dtype):
        """Relative error of S·K on 200 columns, against float64."""
        SK = self.run(self.X, self.sketch, self.gamma, "SK")
        SK = getattr(SK, "SK", SK)[:, :200]
        X = self.X.astype(np.float64)
        K = rbf_kernel(X[self.sketch.indices], X[:200], gamma=self.gamma)
        expected = self.sketch.scaled_weights() @ K
        return np.linalg.norm(SK - expected) / np.linalg.norm(expected)


class DenseSketch:
    """p = 0.7 and p = 1, against NumPy with K formed."""

    params = [["pskernels", "K formed"], [0.7, 1.0], common.DTYPES]
    param_names = ["method", "p", "dtype"]
    timeout = 300

    def setup(self, method, p, dtype):
        n, d = 10_000, 10
        self.run = common.gram_formed if method == "K formed" else common.ours
        self.X = common.make_points(n, d, dtype)
        self.gamma = 1 / d
        distribution = psk.PSparsified(common.S, p, "gaussian")
        self.sketch = distribution.draw(n, random_state=0)

    def time_sk(self, method, p, dtype):
        self.run(self.X, self.sketch, self.gamma, "SK")

    def time_skst(self, method, p, dtype):
        self.run(self.X, self.sketch, self.gamma, "SKSt")

    def peakmem_sk(self, method, p, dtype):
        self.run(self.X, self.sketch, self.gamma, "SK")


class FormOfWeights:
    """Sparse or dense S_SG at the same density: where DENSE_ABOVE comes from."""

    params = [["sparse", "dense"], [0.05, 0.1, 0.25, 0.5]]
    param_names = ["form", "density"]

    def setup(self, form, density):
        import scipy.sparse as sp

        n = 4000
        self.X = common.make_points(n, 10, "float64")
        S = psk.PSparsified(common.S, density).draw(n, random_state=0).to_dense()
        weights = S if form == "dense" else sp.csc_array(S)
        self.sketch = psk.Sketch(S.shape, np.arange(n), weights, 1.0)

    def time_sk(self, form, density):
        common.ours(self.X, self.sketch, 0.1, "SK")


class KernelMatmul:
    """K(X, Y) @ B with few columns, as in prediction."""

    params = [[1, 10, 100], common.DTYPES]
    param_names = ["columns", "dtype"]

    def setup(self, columns, dtype):
        self.X = common.make_points(10_000, 10, dtype)
        self.B = np.ones((10_000, columns), dtype)

    def time_kernel_matmul(self, columns, dtype):
        psk.kernel_matmul(self.X, self.X, self.B, gamma=0.1)
