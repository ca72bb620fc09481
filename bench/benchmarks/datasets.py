"""Data sets of the experiments: compressed .npz files, not part of the package."""

import os
from pathlib import Path

import numpy as np

BESIDE_THE_CHECKOUT = Path(__file__).parents[3] / "shared" / "data"


def load(name):
    """The arrays of a data set, by name."""
    folder = Path(os.environ.get("PSKERNELS_DATA", BESIDE_THE_CHECKOUT))
    path = folder / f"{name}.npz"
    if not path.exists():
        raise FileNotFoundError(
            f"{name}.npz is not in {folder}: set PSKERNELS_DATA to the folder that has "
            "it, or fetch the data by sklearn.datasets.fetch_openml and save arrays of "
            "the names that bench/README.md lists there"
        )
    with np.load(path) as arrays:
        return dict(arrays)


def standardised(name):
    """(X_train, Y_train, X_test, Y_test) of a data set with an official split.

    Features have mean 0 and variance 1 on the training set; missing ones are 0 before
    that, as in the paper's experiments.
    """
    data = load(name)
    X_train, X_test = np.nan_to_num(data["X_train"]), np.nan_to_num(data["X_test"])
    mean, scale = X_train.mean(axis=0), X_train.std(axis=0)
    scale[scale == 0] = 1
    return (
        (X_train - mean) / scale,
        data["y_train"].astype(np.float64),
        (X_test - mean) / scale,
        data["y_test"].astype(np.float64),
    )
