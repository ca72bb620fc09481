"""Data sets of the experiments: compressed .npz files, not part of the package."""

import os
from pathlib import Path

import numpy as np

BESIDE_THE_CHECKOUT = Path(__file__).parents[3] / "shared" / "data"


def folder():
    return Path(os.environ.get("PSKERNELS_DATA", BESIDE_THE_CHECKOUT))


def find(file):
    """The path of a file in the folder of data."""
    path = folder() / file
    if not path.exists():
        raise FileNotFoundError(
            f"{file} is not in {folder()}: set PSKERNELS_DATA to the folder that has "
            "it, or fetch the data by sklearn.datasets.fetch_openml and save arrays of "
            "the names that bench/README.md lists there"
        )
    return path


def load(name):
    """The arrays of a data set, by name."""
    with np.load(find(f"{name}.npz")) as arrays:
        return dict(arrays)


def standardise(X_train, X_test):
    """Features of mean 0 and variance 1 on the training set."""
    mean, scale = X_train.mean(axis=0), X_train.std(axis=0)
    scale[scale == 0] = 1
    return (X_train - mean) / scale, (X_test - mean) / scale


def standardised(name):
    """(X_train, Y_train, X_test, Y_test) of a data set with an official split.

    Features have mean 0 and variance 1 on the training set; missing ones are 0 before
    that, as in the paper's experiments.
    """
    return standardised_split(load(name))


def standardised_split(data):
    """`standardised`, of arrays."""
    X_train, X_test = standardise(
        np.nan_to_num(data["X_train"]), np.nan_to_num(data["X_test"])
    )
    return (
        X_train,
        data["y_train"].astype(np.float64),
        X_test,
        data["y_test"].astype(np.float64),
    )
