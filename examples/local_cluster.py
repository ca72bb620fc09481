"""Fit a quantile to points that are split over processes of this machine.

    pip install 'pskernels[sklearn,dask]'
    python examples/local_cluster.py --rows 1000000 --workers 2

The points are made where they are used; no process ever has all of them.
"""

import argparse

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

from pskernels.dask import DaskSketchedQuantileRegressor


def make_points(rows, partitions):
    """Make lazy points, and targets whose noise grows with the first feature."""
    size = -(-rows // partitions)
    X = da.random.default_rng(0).uniform(size=(rows, 5), chunks=(size, 5))
    noise = da.random.default_rng(1).normal(size=rows, chunks=size)
    y = da.sin(6 * X[:, 0]) + X[:, 1] * X[:, 2] + (0.1 + X[:, 0]) * noise
    return X.astype(np.float32), y


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with (
        LocalCluster(n_workers=options.workers, threads_per_worker=1) as cluster,
        Client(cluster) as client,
    ):
        # a few partitions for each worker, so that all have work until the end
        X, y = client.persist(make_points(options.rows, 8 * options.workers))
        model = DaskSketchedQuantileRegressor(
            quantiles=[0.1, 0.5, 0.9], n_components=100, tol=1e-3, random_state=0,
            client=client, verbose=1,
        )  # fmt: skip
        model.fit(X, y)
        below = (y[:, None] <= model.predict(X)).mean(axis=0).compute()
        print(f"certified gap {model.dual_gap_:.1e} after {model.n_iter_} passes")
        print(f"shares of targets below the quantiles: {np.round(below, 3)}")
        local = model.to_local()  # which needs no cluster, and can be saved
        print(f"{len(local.landmarks_)} landmarks; at 0: {local.predict([[0.0] * 5])}")


if __name__ == "__main__":
    main()
