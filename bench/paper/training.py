"""Training as the experiments do it: timed, from the drawing of the sketch on."""

import time
import warnings
from typing import NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning as SklearnWarning

import pskernels as psk

# Of the paper's scripts: one point a step, in the order of the rows, 25 epochs.
EPOCHS = 25


def make_adam(learning_rate):
    return psk.Adam(learning_rate, schedule="constant", shuffle=False)


def timed(function, *arguments, **options):
    """(seconds, result).

    Neither Adam, as the paper ran it, nor scikit-learn in its 100 iterations converge.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", psk.ConvergenceWarning)
        warnings.simplefilter("ignore", SklearnWarning)
        start = time.perf_counter()
        result = function(*arguments, **options)
        return time.perf_counter() - start, result


class Fitted(NamedTuple):
    """A feature map, the time it took, and the features of the training points."""

    map: object
    seconds: float
    Z: np.ndarray


def fit_map(feature_map, X):
    return Fitted(feature_map, *timed(feature_map.fit_transform, X))
