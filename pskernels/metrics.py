"""Scores of predictions, as the paper's experiments define them.

Targets come first, then predictions, as in scikit-learn.
"""

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pskernels._types import Array
from pskernels._validation import check_quantiles, check_real_array, raise_not_finite
from pskernels.losses import Pinball, check_weights

if TYPE_CHECKING:
    from pskernels.distribution import QuantileDistribution


def pinball_loss(
    y: npt.ArrayLike,
    predicted: npt.ArrayLike,
    quantiles: npt.ArrayLike,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Average max(τ·r, (τ - 1)·r), r = y - q, over points and levels.

    As the mean of scikit-learn's `mean_pinball_loss` over levels.

    Parameters
    ----------
    y : array of shape (n,)
    predicted : array of shape (n, levels)
    quantiles : sequence of float
        Levels in (0, 1), increasing.
    sample_weight : array of shape (n,), optional
        The mean is weighted.

    Returns
    -------
    float

    Examples
    --------
    >>> import pskernels as psk
    >>> psk.pinball_loss([1.0, 2.0], [[0.0, 1.0], [2.0, 4.0]], [0.5, 0.9])
    0.175
    """
    quantiles = check_quantiles(quantiles)
    y, predicted = _check_targets(y, "y"), _check_levels(predicted)
    if predicted.shape != (len(y), len(quantiles)):
        raise ValueError(
            f"predicted must have shape ({len(y)}, {len(quantiles)}), a row for each "
            f"target and a column for each level, got {predicted.shape}"
        )
    y = np.repeat(y[:, None], len(quantiles), axis=1)
    values = Pinball(quantiles).value(predicted, y, axis=1)
    if sample_weight is not None:
        sample_weight = check_weights(sample_weight, len(y))
    return float(np.average(values, weights=sample_weight)) / len(quantiles)


def crossing_loss(predicted: npt.ArrayLike) -> float:
    """Average over points Σ_j max(0, q_j - q_{j+1}): how much levels cross.

    Parameters
    ----------
    predicted : array of shape (n, levels)
        Quantiles, of increasing levels.

    Returns
    -------
    float
        0 if no two adjacent levels cross.

    Examples
    --------
    >>> import pskernels as psk
    >>> psk.crossing_loss([[1.0, 2.0, 3.0], [1.0, 0.5, 2.0]])
    0.25
    """
    predicted = _check_levels(predicted)
    crossing = np.maximum(predicted[:, :-1] - predicted[:, 1:], 0.0)
    return float(crossing.sum(axis=1).mean())


def coverage(y: npt.ArrayLike, lower: npt.ArrayLike, upper: npt.ArrayLike) -> float:
    """Compute the share of the targets in their interval [lower, upper].

    Parameters
    ----------
    y, lower, upper : arrays of shape (n,)

    Returns
    -------
    float

    Examples
    --------
    >>> import pskernels as psk
    >>> psk.coverage([1.0, 2.0], [0.0, 0.0], [1.0, 1.0])
    0.5
    """
    y = _check_targets(y, "y")
    lower, upper = _check_targets(lower, "lower"), _check_targets(upper, "upper")
    for name, bound in (("lower", lower), ("upper", upper)):
        _check_same_shape(y, bound, name)
    return float(np.mean((lower <= y) & (y <= upper)))


def crps(
    y: npt.ArrayLike,
    distribution: "QuantileDistribution",
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Average the continuous ranked probability score, ∫ (F(z) - 1{z ≥ y})² dz.

    Parameters
    ----------
    y : array of shape (n,)
    distribution : QuantileDistribution
        Of n targets, as `predict_distribution` returns it.
    sample_weight : array of shape (n,), optional

    Returns
    -------
    float
        In the unit of y; for a prediction without spread, the mean absolute error.

    Examples
    --------
    >>> import pskernels as psk
    >>> law = psk.QuantileDistribution([0.25, 0.75], [[0.0, 0.0], [1.0, 1.0]])
    >>> psk.crps([1.0, 3.0], law)
    1.5
    """
    values = distribution.crps(_check_targets(y, "y"))
    if sample_weight is not None:
        sample_weight = check_weights(sample_weight, len(values))
    return float(np.average(values, weights=sample_weight))


def rrmse(y: npt.ArrayLike, predicted: npt.ArrayLike, y_train: npt.ArrayLike) -> Array:
    """Compute the relative root mean squared error of each output.

    sqrt(Σ_i (y_ij - p_ij)² / Σ_i (y_ij - m_j)²), with m_j the mean of the *training*
    targets: 1 is as good as that constant.

    Parameters
    ----------
    y, predicted : arrays of shape (n,) or (n, d)
    y_train : array of shape (m,) or (m, d)
        The targets of the training set.

    Returns
    -------
    ndarray of shape (d,)

    Examples
    --------
    >>> import pskernels as psk
    >>> psk.rrmse([[1.0, 4.0], [3.0, 0.0]], [[2.0, 4.0], [2.0, 0.0]], [[2.0, 2.0]])
    array([1., 0.])
    """
    y, predicted = _check_outputs(y, "y"), _check_outputs(predicted, "predicted")
    _check_same_shape(y, predicted, "predicted")
    y_train = _check_outputs(y_train, "y_train")
    if y_train.shape[1] != y.shape[1]:
        raise ValueError(
            f"y_train must have {y.shape[1]} columns, as y, got {y_train.shape[1]}"
        )
    baseline = ((y - y_train.mean(axis=0)) ** 2).mean(axis=0)
    if not baseline.all():
        j = np.flatnonzero(baseline == 0)[0]
        raise ValueError(
            f"the targets of output {j} are all equal to their training mean: an error "
            "relative to it is not defined"
        )
    found: Array = np.sqrt(((y - predicted) ** 2).mean(axis=0) / baseline)
    return found


def arrmse(y: npt.ArrayLike, predicted: npt.ArrayLike, y_train: npt.ArrayLike) -> float:
    """Average `rrmse` over outputs.

    Parameters
    ----------
    y, predicted : arrays of shape (n,) or (n, d)
    y_train : array of shape (m,) or (m, d)

    Returns
    -------
    float
    """
    return float(rrmse(y, predicted, y_train).mean())


def relative_mse(y: npt.ArrayLike, predicted: npt.ArrayLike) -> float:
    """Compute the mean squared error, divided by max(y) - min(y): not by its square.

    The score of the paper's first figure.

    Parameters
    ----------
    y, predicted : arrays of shape (n,)

    Returns
    -------
    float

    Examples
    --------
    >>> import pskernels as psk
    >>> psk.relative_mse([0.0, 4.0], [2.0, 4.0])
    0.5
    """
    y, predicted = _check_targets(y, "y"), _check_targets(predicted, "predicted")
    _check_same_shape(y, predicted, "predicted")
    width = np.ptp(y)
    if width == 0:
        raise ValueError("y is constant: an error relative to its range is not defined")
    return float(np.mean((y - predicted) ** 2) / width)


def _check_finite(array: npt.ArrayLike, name: str) -> Array:
    array = check_real_array(array, name).astype(np.float64)
    if not np.isfinite(array).all():
        raise_not_finite(np.atleast_1d(array), name)
    return array


def _check_targets(array: npt.ArrayLike, name: str) -> Array:
    array = _check_finite(array, name)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or len(array) == 0:
        raise ValueError(f"{name} must be 1-d and not empty, got shape {array.shape}")
    return array


def _check_outputs(array: npt.ArrayLike, name: str) -> Array:
    array = _check_finite(array, name)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.size == 0:
        raise ValueError(
            f"{name} must be 1-d or 2-d and not empty, got shape {array.shape}"
        )
    return array


def _check_levels(predicted: npt.ArrayLike) -> Array:
    predicted = _check_finite(predicted, "predicted")
    if predicted.ndim != 2 or predicted.size == 0:
        raise ValueError(
            "predicted must be 2-d, a row for each point and a column for each level, "
            f"got shape {predicted.shape}"
        )
    return predicted


def _check_same_shape(y: Array, other: Array, name: str) -> None:
    if y.shape != other.shape:
        raise ValueError(
            f"{name} must have the shape of y, {y.shape}, got {other.shape}"
        )
