"""Plots of estimators, in scikit-learn's style: ``pip install pskernels[plot]``.

A display has data; `plot` draws them, and `from_estimator` does both.
"""

from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from pskernels._types import AnyArray, Array
from pskernels._validation import check_option
from pskernels.plots import draw_history, finish_convergence, get_axes

if TYPE_CHECKING:
    from pskernels.distribution import QuantileDistribution
    from pskernels.solvers.base import Iteration

GRID_POINTS = 200
# The share of points that may lie above, or below, what is shown.
OUTLIERS = 0.005


class QuantileDisplay:
    """Predicted quantiles along one feature.

    Parameters
    ----------
    values : array of shape (n,)
        Of the feature, increasing.
    predicted : array of shape (n, levels)
    quantiles : sequence of float
    name : str
        Of the feature.
    points : tuple (x, y) of arrays, optional
        Data to show beneath.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    lines_ : list of matplotlib Line2D, one for each level
    """

    def __init__(
        self,
        *,
        values: Array,
        predicted: Array,
        quantiles: Sequence[float],
        name: str = "x",
        points: tuple[Array, AnyArray] | None = None,
    ) -> None:
        self.values = values
        self.predicted = predicted
        self.quantiles = quantiles
        self.name = name
        self.points = points

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any = None,
        *,
        feature: int | str = 0,
        ax: Any = None,
    ) -> Self:
        """Plot the quantiles of a fitted `SketchedQuantileRegressor`.

        Parameters
        ----------
        estimator : SketchedQuantileRegressor, or a Pipeline that ends with one
        X : array or data frame of shape (n, d)
            The feature runs over its range in X; all others are at their medians.
        y : array of shape (n,), optional
            Shown as points.
        feature : int or str
            The number of the feature, or its name if X had names in `fit`.
        ax : matplotlib Axes, optional

        Returns
        -------
        QuantileDisplay
        """
        check_is_fitted(estimator)
        quantiles = _get_learnt(estimator, "quantiles_", "SketchedQuantileRegressor")
        names: Any = getattr(estimator, "feature_names_in_", None)
        number = _feature_number(feature, names, estimator.n_features_in_)
        if sp.issparse(X):
            raise TypeError("X must be dense, to have medians: pass X.toarray()")
        framed = names is not None and hasattr(X, "columns")
        if framed:
            X = X[list(names)]  # in the order of fit
        points = np.asarray(X, dtype=np.float64)
        grid = np.repeat(np.median(points, axis=0)[None], GRID_POINTS, axis=0)
        column = points[:, number]
        grid[:, number] = np.linspace(column.min(), column.max(), GRID_POINTS)
        rows = grid
        if framed:  # as in fit, or scikit-learn warns
            rows = type(X)(dict(zip(names, grid.T, strict=True)))
        predicted = np.reshape(estimator.predict(rows), (GRID_POINTS, -1))
        display = cls(
            values=grid[:, number],
            predicted=predicted,
            quantiles=quantiles,
            name=f"feature {number}" if names is None else str(names[number]),
            points=None if y is None else (column, np.ravel(y)),
        )
        return display.plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw a line for each level.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure by default.

        Returns
        -------
        QuantileDisplay
        """
        self.ax_ = get_axes(ax)
        self.figure_ = self.ax_.figure
        self.lines_ = [
            self.ax_.plot(self.values, column, label=f"{level:g}")[0]
            for level, column in zip(self.quantiles, self.predicted.T, strict=True)
        ]
        if self.points is not None:
            self.ax_.plot(*self.points, ".", color="0.8", markersize=3, zorder=0)
            self.ax_.set_ylim(self._choose_range())
        self.ax_.set_xlabel(self.name)
        self.ax_.set_ylabel("y")
        self.ax_.set_title("all other features at their medians", fontsize="small")
        self.ax_.legend(title="quantile")
        return self

    def _choose_range(self) -> tuple[float, float]:
        """Find a range of y that a few outliers do not stretch."""
        y = self.predicted if self.points is None else self.points[1]
        shares = np.quantile(y, [OUTLIERS, 1 - OUTLIERS])
        low = min(shares[0], self.predicted.min())
        high = max(shares[1], self.predicted.max())
        margin = 0.05 * (high - low) or 1.0
        return low - margin, high + margin


def _get_learnt(estimator: Any, name: str, expected: str) -> Any:
    """Take what the machine at the end of a pipeline has learnt, if it has."""
    machine = _last_step(estimator)
    if not hasattr(machine, name):
        raise TypeError(
            f"this plot is for a fitted {expected}, or a Pipeline that ends with one, "
            f"got {type(machine).__name__}"
        )
    return getattr(machine, name)


def _describe_loss(loss: object) -> str:
    """Name a loss, its numbers in three digits."""
    numbers = [f"{name}={_shorten(value)}" for name, value in vars(loss).items()]
    return f"{type(loss).__name__}({', '.join(numbers)})"


def _shorten(value: Any) -> str:
    if np.ndim(value):
        return "[" + ", ".join(map(_shorten, value)) + "]"
    return f"{value:.3g}" if isinstance(value, Real) else str(value)


def _last_step(estimator: Any) -> Any:
    """Find the machine at the end of a pipeline, or the estimator itself."""
    return estimator[-1] if hasattr(estimator, "steps") else estimator


def _feature_number(feature: int | str, names: Any, n_features: int) -> int:
    if isinstance(feature, str):
        if names is None or feature not in names:
            known = "no names" if names is None else ", ".join(map(str, names))
            raise ValueError(f"feature {feature!r} is not known; the fit had {known}")
        return list(names).index(feature)
    if not 0 <= feature < n_features:
        raise ValueError(f"feature must be from 0 to {n_features - 1}, got {feature}")
    return int(feature)


class CVResultsDisplay:
    """Mean scores of a search: lines over alpha, one for each gamma.

    Parameters
    ----------
    alphas : array of shape (candidates,)
    scores : array of shape (candidates,)
        Means over folds.
    errors : array of shape (candidates,)
        Standard deviations over folds.
    labels : list of str
        What each candidate has beside its alpha.
    best : int
        The number of the best candidate.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    lines_ : list of matplotlib Line2D, one for each label
    """

    def __init__(
        self,
        *,
        alphas: Array,
        scores: Array,
        errors: Array,
        labels: list[str],
        best: int,
    ) -> None:
        self.alphas = alphas
        self.scores = scores
        self.errors = errors
        self.labels = labels
        self.best = best

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Plot the scores of a fitted search.

        Parameters
        ----------
        estimator : SketchedKernelRegressorCV, or any search whose cv_results_ has alpha
            `GridSearchCV` over one of the estimators, too.
        ax : matplotlib Axes, optional

        Returns
        -------
        CVResultsDisplay
        """
        check_is_fitted(estimator)
        results = _get_learnt(estimator, "cv_results_", "search")
        # without the names of steps of a pipeline
        params = [
            {name.rpartition("__")[2]: value for name, value in candidate.items()}
            for candidate in results["params"]
        ]
        if not all(isinstance(each.get("alpha"), Real) for each in params):
            raise ValueError(
                "the search must have alphas that are numbers, got candidates such as "
                f"{params[0]}"
            )
        display = cls(
            alphas=np.array([float(candidate["alpha"]) for candidate in params]),
            scores=results["mean_test_score"],
            errors=results["std_test_score"],
            labels=[_label(candidate) for candidate in params],
            best=estimator.best_index_,
        )
        return display.plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw a line for each label, and mark the best candidate.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure by default.

        Returns
        -------
        CVResultsDisplay
        """
        self.ax_ = get_axes(ax)
        self.figure_ = self.ax_.figure
        self.lines_ = []
        for label in dict.fromkeys(self.labels):
            (numbers,) = np.nonzero(np.array(self.labels) == label)
            numbers = numbers[np.argsort(self.alphas[numbers])]
            at, scores = self.alphas[numbers], self.scores[numbers]
            (line,) = self.ax_.plot(at, scores, marker=".", label=label)
            errors = self.errors[numbers]
            self.ax_.fill_between(
                at, scores - errors, scores + errors, color=line.get_color(), alpha=0.1
            )
            self.lines_.append(line)
        at, score = self.alphas[self.best], self.scores[self.best]
        self.ax_.plot(at, score, "k*", markersize=12, label="best")
        self.ax_.set_xscale("log")
        self.ax_.set_xlabel("alpha")
        self.ax_.set_ylabel("mean score")
        self.ax_.legend()
        return self


def _label(candidate: dict[str, Any]) -> str:
    rest = [
        f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in candidate.items()
        if name != "alpha"
    ]
    return ", ".join(rest) or "all"


class ConvergenceDisplay:
    """The certified gap of fits, over time or iterations.

    Parameters
    ----------
    histories : dict of labels and histories
    tol : float
    x : {"seconds", "iterations"}

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    lines_ : list of matplotlib Line2D, one for each history
    """

    def __init__(
        self, *, histories: "dict[str, list[Iteration]]", tol: float, x: str = "seconds"
    ) -> None:
        self.histories = histories
        self.tol = tol
        self.x = x

    @classmethod
    def from_estimator(
        cls, *estimators: Any, x: str = "seconds", ax: Any = None
    ) -> Self:
        """Plot how fits of machines converged.

        Parameters
        ----------
        *estimators : SketchedKernelRegressor and the like, or Pipelines of them, fitted
        x : {"seconds", "iterations"}
        ax : matplotlib Axes, optional

        Returns
        -------
        ConvergenceDisplay
        """
        if not estimators:
            raise ValueError("from_estimator needs at least one estimator")
        histories = {}
        for number, estimator in enumerate(map(_last_step, estimators)):
            check_is_fitted(estimator)
            history = _get_learnt(estimator, "history_", "machine of pskernels")
            name = _describe_loss(estimator.loss_)
            histories[f"{number}: {name}, alpha={estimator.alpha_:.3g}"] = history
        display = cls(histories=histories, tol=estimator.tol, x=x)
        return display.plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw a line for each history.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure by default.

        Returns
        -------
        ConvergenceDisplay
        """
        check_option(self.x, "x", ("seconds", "iterations"))
        self.ax_ = get_axes(ax)
        self.figure_ = self.ax_.figure
        self.lines_ = [
            draw_history(self.ax_, history, self.x, label=label)
            for label, history in self.histories.items()
        ]
        finish_convergence(self.ax_, self.x, self.tol)
        return self


class MetricDisplay:
    """Importances of features, by the rounds in which a metric was learnt.

    Parameters
    ----------
    importances : array of shape (rounds, d)
    losses : array of shape (rounds,)
        Of held-out points, as shares of that of a constant.
    kernel : str
        Of the rounds.
    names : list of str
        Of the features.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    lines_ : list of matplotlib Line2D, one for each feature that is shown
    """

    def __init__(
        self, *, importances: Array, losses: Array, kernel: str, names: list[str]
    ) -> None:
        self.importances = importances
        self.losses = losses
        self.kernel = kernel
        self.names = names

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, max_features: int = 10, ax: Any = None
    ) -> Self:
        """Plot the rounds of an estimator that has learnt its metric.

        Parameters
        ----------
        estimator : SketchedKernelRegressor and the like, or a Pipeline of one
            Fitted with metric="learn" or "learn-full".  If several kernels have rounds,
            those of the kernel with the smallest loss are shown.
        max_features : int
            Features to show, those of the largest importance.
        ax : matplotlib Axes, optional

        Returns
        -------
        MetricDisplay
        """
        model = _last_step(estimator)
        check_is_fitted(model)
        if not hasattr(model, "rounds_"):
            raise ValueError(
                f"{type(model).__name__} has no rounds to show: fit it with "
                "metric='learn'"
            )
        rounds = [one for one in model.rounds_ if one.number is not None]
        if not rounds:
            raise ValueError("kernels were compared, but no metric was learnt")
        best = min(rounds, key=lambda one: one.loss)
        rounds = [one for one in rounds if one.kernel == best.kernel]
        shares = np.array([one.importances for one in rounds])
        names = getattr(model, "feature_names_in_", None)
        if names is None:
            names = [f"feature {k}" for k in range(shares.shape[1])]
        shown = np.argsort(-shares[-1], kind="stable")[:max_features]
        display = cls(
            importances=shares[:, shown],
            losses=np.array([one.loss for one in rounds]),
            kernel=best.kernel,
            names=[str(names[k]) for k in shown],
        )
        return display.plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw a line for each feature, and the loss of each round below.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure by default.

        Returns
        -------
        MetricDisplay
        """
        self.ax_ = get_axes(ax)
        self.figure_ = self.ax_.figure
        rounds = np.arange(len(self.losses))
        self.lines_ = [
            self.ax_.plot(rounds, column, "o-", markersize=3, label=name)[0]
            for name, column in zip(self.names, self.importances.T, strict=True)
        ]
        labels = [f"{k}\n{loss:.3g}" for k, loss in enumerate(self.losses)]
        self.ax_.set_xticks(rounds, labels)
        self.ax_.set_xlabel(f"round of {self.kernel}, and its held-out loss")
        self.ax_.set_ylabel("importance")
        self.ax_.set_ylim(bottom=0)
        self.ax_.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
        return self


class PITDisplay:
    """A histogram of P(target ≤ y): flat if predicted distributions are right.

    A hump in the middle means that they are too wide, more at both ends that they are
    too narrow, and a slope that they lie too high or too low.

    Parameters
    ----------
    values : array of shape (n,)
        The probability integral transform of targets, in [0, 1].

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    """

    def __init__(self, *, values: Array) -> None:
        self.values = values

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, bins: int = 10, ax: Any = None
    ) -> Self:
        """Plot the transform of targets, such as those of a test set.

        Parameters
        ----------
        estimator : SketchedQuantileRegressor, or a Pipeline that ends with one
        X : array or data frame of shape (n, d)
        y : array of shape (n,)
        bins : int
        ax : matplotlib Axes, optional

        Returns
        -------
        PITDisplay
        """
        law = _predict_distribution(estimator, X)
        return cls(values=law.cdf(np.ravel(y))).plot(bins=bins, ax=ax)

    def plot(self, *, bins: int = 10, ax: Any = None) -> Self:
        """Draw bars, and the line of a flat histogram with what is chance.

        Parameters
        ----------
        bins : int
        ax : matplotlib Axes, optional
            A new figure by default.

        Returns
        -------
        PITDisplay
        """
        self.ax_ = get_axes(ax)
        self.figure_ = self.ax_.figure
        n, share = len(self.values), 1 / bins
        weights = np.full(n, bins / n)
        self.ax_.hist(self.values, bins=bins, range=(0, 1), weights=weights, alpha=0.7)
        chance = 2 * bins * np.sqrt(share * (1 - share) / n)
        self.ax_.axhline(1, color="0.3", linewidth=1)
        self.ax_.axhspan(1 - chance, 1 + chance, color="0.3", alpha=0.15, linewidth=0)
        self.ax_.set_xlabel("P(target ≤ y)")
        self.ax_.set_ylabel("density")
        self.ax_.set_title("grey: two standard deviations of chance", fontsize="small")
        return self


class ReliabilityDisplay:
    """Shares of targets below predicted quantiles, against their levels.

    Parameters
    ----------
    levels : array of shape (m,)
    shares : array of shape (m,)
    n : int
        How many targets they are of.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    line_ : matplotlib Line2D
    """

    def __init__(self, *, levels: Array, shares: Array, n: int) -> None:
        self.levels = levels
        self.shares = shares
        self.n = n

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: Any, *, ax: Any = None) -> Self:
        """Plot the shares of targets, such as those of a test set.

        Parameters
        ----------
        estimator : SketchedQuantileRegressor, or a Pipeline that ends with one
        X : array or data frame of shape (n, d)
        y : array of shape (n,)
        ax : matplotlib Axes, optional

        Returns
        -------
        ReliabilityDisplay
        """
        law, y = _predict_distribution(estimator, X), np.ravel(y)
        shares = (y[:, None] <= law.values).mean(axis=0)
        return cls(levels=np.array(law.quantiles), shares=shares, n=len(y)).plot(ax=ax)

    def plot(self, *, ax: Any = None) -> Self:
        """Draw shares over levels, and the diagonal with what is chance.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            A new figure by default.

        Returns
        -------
        ReliabilityDisplay
        """
        self.ax_ = get_axes(ax)
        self.figure_ = self.ax_.figure
        grid = np.linspace(0, 1, GRID_POINTS)
        chance = 2 * np.sqrt(grid * (1 - grid) / self.n)
        self.ax_.plot([0, 1], [0, 1], color="0.3", linewidth=1)
        self.ax_.fill_between(
            grid, grid - chance, grid + chance, color="0.3", alpha=0.15, linewidth=0
        )
        (self.line_,) = self.ax_.plot(self.levels, self.shares, "o-")
        self.ax_.set_xlabel("level")
        self.ax_.set_ylabel("share of targets below")
        self.ax_.set_title("grey: two standard deviations of chance", fontsize="small")
        return self


def _predict_distribution(estimator: Any, X: Any) -> "QuantileDistribution":
    """Predict distributions, by the machine at the end of a pipeline, too."""
    check_is_fitted(estimator)
    machine = _last_step(estimator)
    if not hasattr(machine, "predict_distribution"):
        raise TypeError(
            "distributions are those of a SketchedQuantileRegressor, or of a Pipeline "
            f"that ends with one, got {type(machine).__name__}"
        )
    if machine is not estimator:
        X = estimator[:-1].transform(X)
    found: QuantileDistribution = machine.predict_distribution(X)
    return found
