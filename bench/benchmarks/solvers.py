"""Solvers on the features of the paper's toy data: time, memory, certified gap."""

import numpy as np

import pskernels as psk

from . import common

LOSSES = {
    "squared": psk.Squared(),
    "huber": psk.Huber(1.0),
    "pinball 0.9": psk.Pinball(0.9),
    "epsilon_insensitive": psk.EpsilonInsensitive(0.1),
    "hinge": psk.Hinge(),
    "logistic": psk.Logistic(),
}


class Solve:
    params = [list(LOSSES), [1e-4, 1e-6], [1, None]]
    param_names = ["loss", "alpha", "n_threads"]
    unit = "relative gap"  # of track_gap

    def setup(self, loss, alpha, n_threads):
        (X, y), _ = common.toy(10_000)
        self.Z = common.toy_features(X)
        self.loss = LOSSES[loss]
        self.y = (
            np.where(y > np.median(y), 1.0, -1.0) if self.loss.classification else y
        )

    def run(self, alpha, n_threads):
        return psk.solve(
            self.Z, self.y, loss=self.loss, alpha=alpha, n_threads=n_threads
        )

    def time_solve(self, loss, alpha, n_threads):
        self.run(alpha, n_threads)

    def peakmem_solve(self, loss, alpha, n_threads):
        self.run(alpha, n_threads)

    def track_gap(self, loss, alpha, n_threads):
        return self.run(alpha, n_threads).dual_gap


class Features:
    """z_S against S·K alone."""

    params = [[100, 400], common.DTYPES]
    param_names = ["s", "dtype"]

    def setup(self, s, dtype):
        (X, _), _ = common.toy(10_000)
        self.X = X.astype(dtype)

    def time_fit_transform(self, s, dtype):
        common.toy_features(self.X, s)

    def time_sketch_gram(self, s, dtype):
        psk.sketch_gram(self.X, s, gamma=common.TOY_GAMMA, random_state=0)
