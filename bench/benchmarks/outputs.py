"""Several outputs on the features of the paper's toy data: time, memory, gap."""

import numpy as np

import pskernels as psk

from . import common

TAUS = (0.1, 0.3, 0.5, 0.7, 0.9)
LOSSES = {
    "squared": psk.Squared(),
    "huber": psk.Huber(1.0),
    "pinball": psk.Pinball(TAUS),
}
MATRICES = {"independent": None, "coupled": psk.quantile_matrix(TAUS, 1.0)}


class Outputs:
    """Five outputs."""

    params = [list(LOSSES), list(MATRICES), [1, None]]
    param_names = ["loss", "outputs", "n_threads"]
    unit = "relative gap"  # of track_gap

    def setup(self, loss, outputs, n_threads):
        (X, y), _ = common.toy(10_000)
        rng = np.random.default_rng(0)
        self.Z = common.toy_features(X)
        self.Y = y[:, None] + rng.normal(size=(len(y), 5))

    def run(self, loss, outputs, n_threads):
        return psk.solve(
            self.Z,
            self.Y,
            loss=LOSSES[loss],
            alpha=1e-5,
            output_matrix=MATRICES[outputs],
            n_threads=n_threads,
        )

    def time_solve(self, loss, outputs, n_threads):
        self.run(loss, outputs, n_threads)

    def peakmem_solve(self, loss, outputs, n_threads):
        self.run(loss, outputs, n_threads)

    def track_gap(self, loss, outputs, n_threads):
        return self.run(loss, outputs, n_threads).dual_gap


class HundredOutputs:
    params = [[1, 10, 100], [1, None]]
    param_names = ["d", "n_threads"]

    def setup(self, d, n_threads):
        (X, _), _ = common.toy(10_000)
        rng = np.random.default_rng(0)
        self.Z = common.toy_features(X)
        self.Y = self.Z @ rng.normal(size=(self.Z.shape[1], d))
        self.Y += rng.normal(size=self.Y.shape)

    def time_squared(self, d, n_threads):
        psk.solve(self.Z, self.Y, alpha=1e-4, n_threads=n_threads)
