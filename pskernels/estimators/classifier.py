"""`SketchedKernelClassifier`: kernel classification, two classes or more."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import scipy.special
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from pskernels._types import (
    AnyArray,
    Array,
    KernelLike,
    MetricLike,
    RandomState,
    SketchLike,
)
from pskernels._validation import check_option
from pskernels.estimators.base import Begin, SketchedMachine
from pskernels.estimators.state import keep_weighted
from pskernels.losses import Logistic, Loss, get_loss
from pskernels.softmax import softmax_without_folds, solve_softmax

if TYPE_CHECKING:
    from pskernels.solvers.base import Solver, SolveResult, StartLike
    from pskernels.sources import Source
    from pskernels.streaming import Reweigh

# Folds of probability=True, the gap that multinomial machines without one may have, and
# n·alpha of the model of their decisions; `python bench/intervals.py classes` judges
# them.
FOLDS, FOLDS_TOL, SCALING_PENALTY = 5, 1e-3, 0.1
# Shares of held-out decisions at which that model bends, and the points for each of its
# coefficients which that takes.  Hinge's decisions on several classes are mostly near
# -1, where a straight line is far off: calibration errors of protein_casp, four
# classes, 0.042 became 0.017 (`python bench/intervals.py classes`); two classes stay
# with Platt's, which has the order of their decisions.
KNOTS, POINTS_OF_COEFFICIENT = (0.1, 0.3, 0.5, 0.7, 0.9), 50

LOSSES = ("hinge", "squared_hinge", "logistic")

PROBABILITIES = ("proba_coef_", "proba_intercept_", "proba_knots_")


def _count_labels(start: "StartLike | None", y: AnyArray) -> dict[Any, int]:
    """Count the labels of some rows."""
    labels, numbers = np.unique(y, return_counts=True)
    check_classification_targets(labels)
    return dict(zip(labels.tolist(), numbers.tolist(), strict=True))


def _has_probabilities(model: Any) -> bool:
    learnt = hasattr(model, "proba_coef_") or hasattr(model, "_calibrate_later")
    if learnt or not hasattr(model, "loss_"):
        if getattr(model, "probability", False):
            return True
    loss = getattr(model, "loss_", None) or model.loss
    if loss not in ("logistic", Logistic()):
        raise AttributeError(
            f"predict_proba needs loss='logistic', or probability=True before the fit: "
            f"the decisions of {loss} are no probabilities"
        )
    return True


def _choose_knots(decisions: Array) -> Array:
    """Find quantiles of decisions, (knots, k), where points suffice for so many."""
    k = decisions.shape[1] if decisions.ndim == 2 else 1
    n_coefficients = k * (1 + len(KNOTS)) * k
    if k == 1 or len(decisions) < POINTS_OF_COEFFICIENT * n_coefficients:
        return np.empty((0, k))
    found: Array = np.quantile(decisions, KNOTS, axis=0)
    return found


def _bend(decisions: Array, knots: Array) -> Array:
    """Put |decisions - knot| for each knot beside the decisions."""
    decisions = decisions.reshape(len(decisions), -1)
    return np.hstack([decisions, *(np.abs(decisions - knot) for knot in knots)])


class SketchedKernelClassifier(ClassifierMixin, SketchedMachine):
    """Kernel classification on a sketch.

    More than two classes are learnt one against the rest, on the same features; those
    of the logistic loss as one problem, the multinomial one.

    Parameters
    ----------
    kernel, gamma, metric, feature_groups, sketch, p, rtol, memory_limit, n_threads, \
random_state, verbose
        As for `KernelSketch`; gamma="cv" is the best of five by three folds (of at most
        5,000 points), with the given alpha.
    n_components : int or "auto", optional
        As for `KernelSketch`; None means 6·√n, from 100 to 1,000 (100 if points are not
        in memory).
    loss : {"hinge", "squared_hinge", "logistic"}
        "hinge" is the support vector machine; "logistic" has probabilities.
    alpha : float or "auto"
        Penalty, the paper's λ_n: 1/(C·n) in scikit-learn's terms.  "auto" is 0.1 / n.
    class_weight : dict or "balanced", optional
        As in scikit-learn.
    probability : bool
        Whether `predict_proba` is calibrated by five folds, for any loss: a multinomial
        model of held-out decisions (for two classes: Platt's), on the features of all
        points, for up to five times the time ("logistic" of three classes or more:
        twice).  As in scikit-learn's SVC, `predict` goes by decisions, and may differ
        from the most probable class, which is right as often or more; and
        `class_weight` moves decisions only: probabilities are those of the points.
    fit_intercept, solver, tol, max_iter, feature_storage, warm_start
        As for `SketchedKernelRegressor`.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    proba_coef_, proba_intercept_, proba_knots_ : ndarrays of shape \
(k·(1 + knots), n_classes), (n_classes,) and (knots, k)
        With probability=True: probabilities are the softmax of D @ proba_coef_ +
        proba_intercept_, where D is the k decisions and |decisions - knot| for each
        knot, five of them for three classes or more and enough points, else none.
    coef_, intercept_, dual_coef_, landmarks_, sketch_, kernel_, feature_map_, \
loss_, growth_, metric_, feature_importances_, rounds_, alpha_, n_iter_, dual_gap_, \
objective_, converged_, history_, n_features_in_, feature_names_in_
        As for `SketchedKernelRegressor`, with an output for each class if there are
        more than two.

    Notes
    -----
    With the logistic loss `predict_proba` is the model's probability, of the
    multinomial model for more than two classes: `pskernels.solve_softmax`, with
    solver="auto".  With another solver, after `partial_fit`, and for points that are
    not in memory, each class is learnt against the rest, and probabilities are divided
    by their sum, which may be too timid.

    Examples
    --------
    >>> import numpy as np
    >>> from pskernels.estimators import SketchedKernelClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 2))
    >>> y = np.where(np.hypot(*X.T) > 1.2, "outside", "inside")
    >>> model = SketchedKernelClassifier(random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.98), model.classes_.tolist()
    (True, ['inside', 'outside'])
    """

    def __init__(
        self,
        *,
        kernel: KernelLike = "rbf",
        gamma: float | str | None = None,
        metric: MetricLike | None = None,
        feature_groups: npt.ArrayLike | None = None,
        sketch: str | SketchLike = "p-sr",
        n_components: int | str | None = None,
        p: float | str | None = "auto",
        rtol: float = 0.01,
        loss: str = "hinge",
        alpha: float | str = "auto",
        class_weight: dict[Any, float] | str | None = None,
        probability: bool = False,
        fit_intercept: bool = True,
        solver: "str | Solver" = "auto",
        tol: float = 1e-6,
        max_iter: int | None = None,
        feature_storage: str = "auto",
        memory_limit: int | None = None,
        n_threads: int | None = None,
        random_state: RandomState = None,
        warm_start: bool = False,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.metric = metric
        self.feature_groups = feature_groups
        self.sketch = sketch
        self.n_components = n_components
        self.p = p
        self.rtol = rtol
        self.loss = loss
        self.alpha = alpha
        self.class_weight = class_weight
        self.probability = probability
        self.fit_intercept = fit_intercept
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.feature_storage = feature_storage
        self.memory_limit = memory_limit
        self.n_threads = n_threads
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose

    def decision_function(self, X: Any, *, out: AnyArray | None = None) -> Array:
        """Compute decisions: above 0 means the second class, or the largest one wins.

        Parameters
        ----------
        X : array, sparse array, data frame, path or source of shape (n, d)
            As for `fit`; a source is read block by block.
        out : ndarray of the shape and type of the result, optional
            Such as a memory map, which is filled block by block.

        Returns
        -------
        ndarray of shape (n,) for two classes, else (n, n_classes)
        """
        return self._in_blocks(self._decide, X, out)

    def predict(self, X: Any, *, out: AnyArray | None = None) -> AnyArray:
        """Predict classes.

        Parameters
        ----------
        X : array, sparse array, data frame, path or source of shape (n, d)
        out : ndarray, optional
            As for `decision_function`.

        Returns
        -------
        ndarray of shape (n,)
        """
        return self._in_blocks(self._predict, X, out)

    def _predict(self, X: Any) -> AnyArray:
        decisions = self._decide(X)
        if decisions.ndim == 1:
            codes = (decisions > 0).astype(np.intp)
        else:
            codes = decisions.argmax(axis=1)
        labels: AnyArray = self.classes_[codes]
        return labels

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any, *, out: AnyArray | None = None) -> Array:
        """Predict probabilities, for the logistic loss or with probability=True.

        Parameters
        ----------
        X : array, sparse array, data frame, path or source of shape (n, d)
        out : ndarray, optional
            As for `decision_function`.

        Returns
        -------
        ndarray of shape (n, n_classes)
        """
        return self._in_blocks(lambda X: np.exp(self._log_proba(X)), X, out)

    @available_if(_has_probabilities)
    def predict_log_proba(self, X: Any, *, out: AnyArray | None = None) -> Array:
        """Compute the logarithm of `predict_proba`.

        Parameters
        ----------
        X : array, sparse array, data frame, path or source of shape (n, d)
        out : ndarray, optional
            As for `decision_function`.

        Returns
        -------
        ndarray of shape (n, n_classes)
        """
        return self._in_blocks(self._log_proba, X, out)

    def _log_proba(self, X: Any) -> Array:
        if hasattr(self, "_calibrate_later"):
            self.__dict__.pop("_calibrate_later")()
        decisions = self._decide(X)
        if hasattr(self, "proba_coef_"):
            bent = _bend(decisions, self.proba_knots_)
            scaled = bent @ self.proba_coef_ + self.proba_intercept_
            found: Array = scipy.special.log_softmax(scaled, axis=1)
            return found
        if self._multinomial:
            return scipy.special.log_softmax(decisions, axis=1)
        if decisions.ndim == 1:
            return scipy.special.log_expit(np.column_stack([-decisions, decisions]))
        # of each class against the rest, divided by their sum
        return scipy.special.log_softmax(scipy.special.log_expit(decisions), axis=1)

    def _check_data(
        self, X: Any, y: Any, sample_weight: npt.ArrayLike | None, reset: bool = True
    ) -> tuple[Any, Any, Array | None]:
        X, y, weight = super()._check_data(X, y, sample_weight, reset)
        if y.dtype == object:
            kinds = sorted({type(label).__name__ for label in y})
            if len(kinds) > 1 and ("str" in kinds or "NoneType" in kinds):
                raise ValueError(
                    "y must hold labels of one kind, numbers or text, got "
                    f"{' and '.join(kinds)}"
                )
        return X, y, weight

    @available_if(lambda self: self.takes_batches)
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: npt.ArrayLike | None = None,
        *,
        landmarks: Any = None,
    ) -> Self:
        """Learn from a batch of rows, beside those of earlier calls.

        The first batch is fitted, and later ones are for Adam: see `partial_fit` of
        `SketchedKernelRegressor`.

        Parameters
        ----------
        X : array, sparse array or data frame of shape (n, d)
        y : array of shape (n,)
        classes : array, optional
            All labels; needed in the first call.
        sample_weight, landmarks
            As for `SketchedKernelRegressor.partial_fit`.

        Returns
        -------
        The estimator itself.
        """
        if classes is not None and hasattr(self, "feature_map_"):
            if not np.array_equal(np.unique(classes), self.classes_):
                raise ValueError(
                    f"classes must be those of before, {self.classes_.tolist()}, got "
                    f"{np.unique(classes).tolist()}"
                )
        return self._fit_batch(X, y, sample_weight, landmarks, classes=classes)

    def _learn_batch(  # type: ignore[override]  # classes, too
        self, y: Any, classes: Any
    ) -> None:
        if classes is None:
            raise ValueError("the first call of partial_fit needs classes, all labels")
        self._set_classes(np.unique(classes))

    def _encode_batch(self, y: Any, weight: Array) -> tuple[Array, Array]:
        self._check_labels(y)
        self._forget_probabilities()
        return self._encode_chunk(y), self._weigh_batch(y, weight)

    def _weigh_batch(self, y: Any, weight: Array) -> Array:
        if self.class_weight is None:
            return weight
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"class_weight={self.class_weight!r} needs all points; give weights of "
                "classes"
            )
        weights = [self.class_weight.get(label, 1.0) for label in y.tolist()]
        found: Array = weight * np.array(weights)
        return found

    def _check_labels(self, y: Any) -> None:
        """Check that labels are those of known classes."""
        check_classification_targets(y)
        known = np.isin(y, self.classes_)
        if not known.all():
            label = y[~known].tolist()[0]
            raise ValueError(
                f"y has the label {label!r}, which is none of the classes "
                f"{self.classes_.tolist()}"
            )

    def _balance(self, y: Any, weight: Array | None) -> Array | None:
        if self.class_weight is None:
            return weight
        balance = compute_sample_weight(self.class_weight, y)
        found: Array = balance if weight is None else balance * weight
        _check_classes(np.unique(np.asarray(y)[found > 0]))
        return found

    def _y_options(self) -> dict[str, Any]:
        return dict()

    def _encode(self, y: Any) -> Array:
        """Turn y into +1 and -1, a column for each class if they are more than two."""
        check_classification_targets(y)
        self._set_classes(np.unique(y))
        return self._encode_chunk(y)

    def _set_classes(self, classes: Any) -> None:
        _check_classes(classes)
        self.classes_ = classes
        self._forget_probabilities()

    def _forget_probabilities(self) -> None:
        """Begin with classes against the rest, and nothing calibrated."""
        self._multinomial = False
        for name in (*PROBABILITIES, "_calibrate_later"):
            self.__dict__.pop(name, None)

    def _learn_targets(self, y: "Source") -> "Reweigh":
        """Find the classes, and their weights, by a pass over all targets."""
        if self.probability:
            raise ValueError("probability=True needs points in memory")
        counts: Counter[Any] = Counter()
        for found in y.map_blocks(_count_labels):
            counts.update(found)
        self._set_classes(np.array(sorted(counts)))
        if self.class_weight is None:
            return super()._learn_targets(y)
        weights = self._class_weights([counts[c] for c in self.classes_.tolist()])

        def reweigh(labels: AnyArray, weight: Array | None) -> Array:
            of_classes = weights[np.searchsorted(self.classes_, labels)]
            return of_classes if weight is None else of_classes * weight

        return reweigh

    def _class_weights(self, counts: list[int]) -> Array:
        """Find the weight of each class, as scikit-learn has it."""
        if isinstance(self.class_weight, str):
            check_option(self.class_weight, "class_weight", ("balanced",))
            return sum(counts) / (len(counts) * np.array(counts))
        given = self.class_weight or {}
        return np.array([given.get(c, 1.0) for c in self.classes_.tolist()])

    def _encode_chunk(self, y: Any) -> Array:
        codes = np.searchsorted(self.classes_, y)
        if len(self.classes_) == 2:
            found: Array = 2.0 * codes - 1.0
            return found
        return np.where(codes[:, None] == np.arange(len(self.classes_)), 1.0, -1.0)

    def check_learnt(self) -> None:
        """Check the classes, too."""
        super().check_learnt()
        n_classes = len(self.classes_)
        n_decisions = n_classes if n_classes > 2 else 1
        if n_classes < 2:
            raise ValueError(f"two classes or more are needed, got {self.classes_}")
        self.__dict__.setdefault("_multinomial", False)  # files of before have none
        if not hasattr(self, "proba_coef_"):
            return
        knots = self.__dict__.setdefault("proba_knots_", np.empty((0, n_decisions)))
        shape = (n_decisions * (1 + len(knots)), n_classes)
        if (
            knots.shape[1:] != (n_decisions,)
            or self.proba_coef_.shape != shape
            or np.shape(self.proba_intercept_) != shape[1:]
        ):
            raise ValueError(f"proba_coef_ must have the shape {shape}")

    def _decision_shape(self) -> tuple[int, ...]:
        n_classes = len(self.classes_)
        return (n_classes,) if n_classes > 2 else ()

    def _fit_checked(
        self, X: Any, y: Any, weight: Array | None, begin: Begin | None = None
    ) -> Any:
        Z = super()._fit_checked(X, y, weight, begin)
        if self.probability:
            self._calibrate(X, y, weight)
        return Z

    def calibrate_when_asked(self, X: Any, y: Any, weight: Array | None) -> None:
        """Learn probabilities if any are asked for: scores of searches may not."""
        self._calibrate_later = partial(self._calibrate, X, y, weight)

    def _calibrate(self, X: Any, y: Any, weight: Array | None) -> None:
        """Learn probabilities of held-out decisions."""
        if not self._is_precomputed():
            X, y, weight, _ = keep_weighted(X, y, weight)
        labels, counts = np.unique(y, return_counts=True)
        if counts.min() < 2:
            raise ValueError(
                "probability=True needs two points of each class, got a single one of "
                f"class {labels[counts.argmin()]}"
            )
        balanced, codes = self._balance(y, weight), np.searchsorted(self.classes_, y)
        Z = self.feature_map_.transform(X)
        order = np.random.default_rng(self._seed()).permutation(len(y))
        # the members of a class in turns, so that each fold has its share of them
        fold = np.empty(len(y), np.intp)
        fold[order[np.argsort(codes[order], kind="stable")]] = np.arange(len(y)) % FOLDS
        start = self.coef_, self.intercept_
        if self._multinomial:
            decisions = softmax_without_folds(
                Z,
                codes,
                fold,
                alpha=self.alpha_,
                start=start,
                tol=max(FOLDS_TOL, self.tol),
                max_iter=self.max_iter,
                **self._solve_options(balanced),
            )
        else:
            targets = self._encode_chunk(y)
            decisions = np.empty((len(y), *self._decision_shape()))
            for k in np.unique(fold):  # few points have fewer
                rest, held = fold != k, fold == k
                some = None if balanced is None else balanced[rest]
                (result,) = self._solve(
                    Z[rest], targets[rest], some, [self.alpha_], start=start
                )
                decisions[held] = result.predict(Z[held])
        self.proba_knots_ = _choose_knots(decisions)
        (scaling,) = solve_softmax(
            _bend(decisions, self.proba_knots_),
            codes,
            alphas=[SCALING_PENALTY / len(y)],
            n_classes=len(self.classes_),
            sample_weight=weight,
            n_threads=self.n_threads,
        )
        self.proba_coef_, self.proba_intercept_ = scaling.coef, scaling.intercept

    def _solve(
        self,
        Z: Any,
        y: Any,
        weight: Array | None,
        alphas: Sequence[float | str],
        *,
        start: "StartLike | None" = None,
        warm: bool = False,
    ) -> "list[SolveResult]":
        self._multinomial = (
            self.loss == "logistic" and self.solver == "auto" and np.ndim(y) == 2
        )
        if not self._multinomial:
            return super()._solve(Z, y, weight, alphas, start=start, warm=warm)
        self.loss_ = Logistic()
        return solve_softmax(
            Z,
            y.argmax(axis=1),
            alphas=[self._get_alpha(alpha, y, weight) for alpha in alphas],
            n_classes=y.shape[1],
            tol=self.tol,
            max_iter=self.max_iter,
            start=start,
            warm=warm,
            **self._solve_options(weight),
        )

    def loss_of_decisions(
        self,
        decisions: AnyArray,
        targets: AnyArray,
        weight: Array | None,
        loss: Loss | None = None,
    ) -> float:
        if not self._multinomial:
            return super().loss_of_decisions(decisions, targets, weight, loss)
        logs = scipy.special.log_softmax(decisions, axis=1)
        return -float(np.average(logs[targets > 0], weights=weight))

    def _problem(
        self, Z: Any, y: Any, options: dict[str, Any]
    ) -> tuple[Loss, None, None]:
        return get_loss(check_option(self.loss, "loss", LOSSES)), None, None


def _check_classes(classes: Any) -> None:
    """Check that there are two of them."""
    if len(classes) < 2:
        raise ValueError(
            "y must have at least two classes (of positive weight), got one class: "
            f"{classes.tolist()[0]!r}"
            if len(classes)
            else "there must be at least two classes, got none"
        )
