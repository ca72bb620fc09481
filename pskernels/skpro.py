"""Quantile regression as a probabilistic regressor of skpro: ``pip install skpro``."""

from typing import Any, Self

import pandas as pd
from sklearn.base import clone
from skpro.regression.base import BaseProbaRegressor


class SkproQuantileRegressor(BaseProbaRegressor):
    """A `SketchedQuantileRegressor` for skpro's metrics, pipelines and searches.

    Parameters
    ----------
    estimator : SketchedQuantileRegressor
        With two levels or more; it is cloned.  With a calibration, intervals and
        quantiles are calibrated.

    Attributes
    ----------
    estimator_ : SketchedQuantileRegressor
        Fitted.

    Notes
    -----
    Quantiles of any level are those of `predict_distribution`, which says what is
    assumed beyond the levels of the fit, and intervals those of `predict_interval`.
    """

    _tags = {
        "capability:multioutput": False,
        "capability:missing": False,
        "X_inner_mtype": "pd_DataFrame_Table",
        "y_inner_mtype": "pd_DataFrame_Table",
    }

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: Any, y: Any) -> Self:
        self._name = y.columns[0]
        self.estimator_ = clone(self.estimator).fit(X, y.iloc[:, 0].to_numpy())
        return self

    def _predict(self, X: Any) -> pd.DataFrame:
        mean = self.estimator_.predict_distribution(X).mean()
        return pd.DataFrame({self._name: mean}, index=X.index)

    def _predict_quantiles(self, X: Any, alpha: list[float]) -> pd.DataFrame:
        values = self.estimator_.predict_distribution(X).quantile(alpha)
        columns = pd.MultiIndex.from_product([[self._name], alpha])
        return pd.DataFrame(values, index=X.index, columns=columns)

    def _predict_interval(self, X: Any, coverage: list[float]) -> pd.DataFrame:
        parts = {}
        for share in coverage:
            low, high = self.estimator_.predict_interval(X, share).T
            parts[self._name, share, "lower"] = low
            parts[self._name, share, "upper"] = high
        return pd.DataFrame(parts, index=X.index)
