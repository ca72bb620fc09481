"""The scikit-learn estimators over time: fits, predictions and searches."""

import numpy as np
from sklearn.preprocessing import StandardScaler

from pskernels.estimators import (
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedKernelRegressorCV,
    SketchedQuantileRegressor,
)

from .common import toy

MACHINES = {
    "huber": SketchedKernelRegressor(random_state=0),
    "squared": SketchedKernelRegressor(loss="squared", random_state=0),
    "auto": SketchedKernelRegressor(n_components="auto", p="auto", random_state=0),
    "quantiles": SketchedQuantileRegressor(random_state=0),
    "classes": SketchedKernelClassifier(random_state=0),
}


class Fit:
    """Training and prediction, n = 10,000."""

    params = list(MACHINES)
    param_names = ["machine"]

    def setup(self, name):
        (X, y), (X_test, _) = toy(10_000)
        scaler = StandardScaler().fit(X)
        self.X, self.X_test = scaler.transform(X), scaler.transform(X_test)
        self.y = np.digitize(y, np.quantile(y, [0.3, 0.7])) if name == "classes" else y
        self.model = MACHINES[name].fit(self.X, self.y)

    def time_fit(self, name):
        self.model.fit(self.X, self.y)

    def time_predict(self, name):
        self.model.predict(self.X_test)

    def peakmem_fit(self, name):
        self.model.fit(self.X, self.y)

    def track_train_score(self, name):
        return self.model.score(self.X, self.y)


class Search:
    """Five folds of ten alphas and five gammas, n = 5,000."""

    params = ["huber", "squared"]
    param_names = ["loss"]

    def setup(self, loss):
        (X, y), _ = toy(5000)
        self.X, self.y = StandardScaler().fit_transform(X), y
        self.model = SketchedKernelRegressorCV(loss=loss, random_state=0)

    def time_fit(self, loss):
        self.model.fit(self.X, self.y)
