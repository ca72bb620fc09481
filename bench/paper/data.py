"""Data sets of the tables, and what to say where one is missing."""

import numpy as np
from sklearn.model_selection import ShuffleSplit

from bench.benchmarks import datasets
from bench.paper.published import BOSTON_SPLITS, BOSTON_TRAIN

# Training rows, which come first, and outputs, the last columns.
OPENML = {"rf2": (4108, 8), "scm1d": (8145, 16)}

UNPUBLISHED = {"otoliths": "the features were never published"}


class MissingDataError(Exception):
    """What a cell of the report says."""


def multi_output(name, download=False):
    """(X_train, Y_train, X_test, Y_test) of Table 2, features standardised."""
    try:
        data = datasets.load(name)
    except FileNotFoundError:
        data = _from_openml(name, download)
    return datasets.standardised_split(data)


def _from_openml(name, download):
    if name not in OPENML:
        raise MissingDataError(f"{name}.npz is not in the folder of data")
    if not download:
        raise MissingDataError("no data here; --download takes it from OpenML")
    from sklearn.datasets import fetch_openml

    try:
        frame = fetch_openml(name=name, version=1, as_frame=True).frame
    except OSError as error:  # no network
        raise MissingDataError(f"OpenML could not be reached: {error}") from error
    return split_frame(frame, *OPENML[name])


def split_frame(frame, n_train, n_outputs):
    """Arrays of a data frame whose training rows come first, and outputs last."""
    values = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    X, Y = values[:, :-n_outputs], values[:, -n_outputs:]
    return {
        "X_train": X[:n_train],
        "y_train": Y[:n_train],
        "X_test": X[n_train:],
        "y_test": Y[n_train:],
    }


def quantile_splits(name):
    """List of (X_train, y_train, X_test, y_test) of Table 1.

    Boston: 10 random splits, features and targets standardised by the training part.
    Otoliths: the given split, as it is.
    """
    try:
        data = datasets.load(name)
    except FileNotFoundError as error:
        raise MissingDataError(
            UNPUBLISHED.get(name, f"{name}.npz is not in the folder of data")
        ) from error
    if name == "otoliths":
        return [
            tuple(data[part] for part in ("X_train", "y_train", "X_test", "y_test"))
        ]
    X, y = data["X"], data["y"]
    splitter = ShuffleSplit(BOSTON_SPLITS, train_size=BOSTON_TRAIN, random_state=42)
    return [_standardised(X, y, *split) for split in splitter.split(X)]


def _standardised(X, y, train, test):
    X_train, X_test = datasets.standardise(X[train], X[test])
    y_train, y_test = datasets.standardise(y[train, None], y[test, None])
    return X_train, y_train[:, 0], X_test, y_test[:, 0]
