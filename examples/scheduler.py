"""Fit Parquet files on a cluster that runs already, given its scheduler's address.

    pip install 'pskernels[sklearn,dask,parquet]'     (here, and where the workers are)
    dask scheduler                                    (on one machine)
    dask worker tcp://HOST:8786                       (on every machine)
    python examples/scheduler.py tcp://HOST:8786 'data/*.parquet' --target price

All columns but the target must be numbers; they are standardised.  A fit that is
stopped goes on if it is called again: its passes are kept in a file.
"""

import argparse

import dask.dataframe as dd
from distributed import Client

from pskernels.dask import DaskSketchedKernelRegressor


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", help="such as tcp://192.168.0.1:8786")
    parser.add_argument("files", help="Parquet files that all workers can read")
    parser.add_argument("--target", required=True, help="the column to predict")
    parser.add_argument("--components", type=int, default=200)
    parser.add_argument("--model", default="model.npz", help="where to write it")
    options = parser.parse_args()
    with Client(options.address) as client:
        frame = dd.read_parquet(options.files)
        X, y = frame.drop(columns=options.target), frame[options.target]
        X = (X - X.mean()) / X.std()
        X, y = client.persist([X, y])
        model = DaskSketchedKernelRegressor(
            n_components=options.components, tol=1e-3, random_state=0, client=client,
            verbose=1,
        )  # fmt: skip
        model.fit(X, y, checkpoint=options.model + ".passes")
        model.save(options.model)
        print(
            f"{options.model}: certified gap {model.dual_gap_:.1e} after "
            f"{model.n_iter_} passes, {len(model.landmarks_)} landmarks"
        )


if __name__ == "__main__":
    main()
