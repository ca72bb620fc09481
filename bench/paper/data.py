"""Data sets of the tables, and what to say where one is missing."""

import numpy as np
from sklearn.model_selection import ShuffleSplit

from bench.benchmarks import datasets
from bench.paper.published import BOSTON_SPLITS, BOSTON_TRAIN

# Rows, training rows, which come first, features, and outputs, the last columns.
OPENML = {
    "rf1": (9125, 4108, 64, 8),
    "rf2": (9125, 4108, 576, 8),
    "scm1d": (9803, 8145, 280, 16),
    "scm20d": (8966, 7463, 61, 16),
}

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
    if not download:
        raise MissingDataError(
            f"{name}.npz is not in {datasets.folder()} (PSKERNELS_DATA); --download "
            "takes it from OpenML"
        )
    from sklearn.datasets import fetch_openml

    n, n_train, n_features, n_outputs = OPENML[name]
    try:
        frame = fetch_openml(name=name, version=1, as_frame=True).frame
    except (OSError, ValueError) as error:  # no network, or no such data
        raise MissingDataError(f"OpenML did not give it: {error}") from error
    if frame.shape != (n, n_features + n_outputs):
        raise MissingDataError(
            f"OpenML gave a table of {frame.shape}, not {(n, n_features + n_outputs)}"
        )
    return split_frame(frame, n_train, n_outputs)


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
            UNPUBLISHED.get(
                name, f"{name}.npz is not in {datasets.folder()} (PSKERNELS_DATA)"
            )
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
