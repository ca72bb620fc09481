"""Machines that choose their own alpha, gamma and kappa or epsilon, by folds.

What candidates have in common is computed once: the distances of a fold serve all
gammas, a sketch and its features all alphas.  Scores are those that `GridSearchCV`
gives the same candidates.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata
from sklearn.base import clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import ParameterGrid, check_cv
from sklearn.utils.metaestimators import _safe_split

from pskernels._points import in_metric, total_variance
from pskernels._progress import progress
from pskernels._types import AnyArray, Array, Indices, RandomState, SketchLike
from pskernels._validation import check_memory_limit, check_option
from pskernels.estimators.calibration import SplitsForIntervals
from pskernels.estimators.classifier import SketchedKernelClassifier
from pskernels.estimators.quantile import SketchedQuantileRegressor
from pskernels.estimators.regressor import SketchedKernelRegressor
from pskernels.estimators.state import all_or_nothing, make_machine, take_learnt
from pskernels.feature_map import DEFAULT_ROWS, FeatureMap
from pskernels.features import EXACT_ENOUGH, FactoredFeatures
from pskernels.kernels import GammaKernel, get_kernel
from pskernels.losses import Squared
from pskernels.point_metric import Metric, check_metric, get_metric
from pskernels.solvers.loo import leave_one_out

if TYPE_CHECKING:
    from pskernels.solvers.base import Solver, SolveResult

# Parameters by name.
Candidate: TypeAlias = dict[str, Any]
# Memory that folds share.
Room: TypeAlias = dict[tuple[int, int], Array]

DEFAULT_ALPHAS = np.logspace(-2, -7, 6)
# Of gamma="scale".
GAMMA_MULTIPLES = np.array([1 / 27, 1 / 9, 1 / 3, 1.0, 3.0])

# Parameters of maps that may be lists of candidates.
OF_MAPS = ("kernel", "metric", "n_components")

# gamma="cv"
GAMMA_FOLDS = 3
GAMMA_POINTS = 5000


class Search(SplitsForIntervals):
    """Fit the best of alphas × gammas × (kappas or epsilons).

    A mixin in front of a machine, whose class is `_machine_type`.
    """

    takes_batches = False

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: npt.ArrayLike | None = None,
        groups: Any = None,
    ) -> Self:
        """Score all candidates by folds, and fit the best one to all points.

        Parameters
        ----------
        X : array, sparse array or data frame of shape (n, d)
        y : array of shape (n,), or (n, n_outputs)
        sample_weight : array of shape (n,), optional
            For fits and for scores.
        groups : array of shape (n,), optional
            For splitters that need them, and for a calibration, of each group by
            itself.

        Returns
        -------
        The estimator itself.
        """
        with all_or_nothing(self):
            X, y, weight = self._check_data(X, y, sample_weight)
            self._fit_in_parts(X, y, weight, groups, self._search)
        return self

    def _search(self, X: Any, y: Any, weight: Array | None, groups: Any) -> None:
        if isinstance(self.n_components, str):
            raise ValueError(
                f"n_components must be a number here, got {self.n_components!r}: what "
                f"pays depends on alpha.  Fit {self._machine_type.__name__}("
                "n_components='auto', **best_params_) after the search"
            )
        machine = self._make_machine()
        machine.n_features_in_ = self.n_features_in_
        machine._warn_if_unscaled(X)
        candidates = list(ParameterGrid(self._make_grid(machine, X, y, weight)))
        folds = self._make_folds(machine, X, y, weight, groups)
        self._keep_scores(candidates, self._score(folds, candidates))
        machine.set_params(**self.best_params_)._fit_checked(X, y, weight)
        take_learnt(self, machine)

    def _make_machine(self) -> Any:
        """Make the machine of a candidate, with the parameters that all share."""
        machine = make_machine(self, self._machine_type)
        first = {name: values[0] for name, values in self._listed().items()}
        return machine.set_params(random_state=self._seed(), **first)

    def _listed(self) -> dict[str, list[Any]]:
        """Find the parameters of maps that are lists of candidates."""
        listed = {}
        for name in ("kernel", "n_components"):
            if isinstance(getattr(self, name), (list, tuple)):
                listed[name] = check_candidates(getattr(self, name), name)
        metrics = self.metric
        if isinstance(metrics, (list, tuple)) and any(
            one is None or isinstance(one, (str, Metric, np.ndarray)) for one in metrics
        ):  # else it is L
            listed["metric"] = [
                one if isinstance(one, str) else get_metric(one) for one in metrics
            ]
        return listed

    def _make_grid(
        self, machine: Any, X: Any, y: Any, weight: Array | None
    ) -> list[dict[str, list[Any]]]:
        """List grids, one for each kernel and metric: what is learnt has its gamma."""
        shared = {"alpha": self._get_alphas(machine, y, weight), **self._tubes()}
        listed, grids = self._listed(), []
        rows = {name: listed[name] for name in ("n_components",) if name in listed}
        maps = {name: listed[name] for name in ("kernel", "metric") if name in listed}
        for setting in ParameterGrid(maps):
            grid = shared | rows | {name: [value] for name, value in setting.items()}
            machine.set_params(**setting)
            gammas: list[Any] | None = [None]
            if not machine._learns_kernel():
                gammas = self._get_gammas(machine, X, weight)
            if gammas is not None:
                grid["gamma"] = gammas
            elif listed:
                grid["gamma"] = [None]
            grids.append(grid)
        return grids

    def _tubes(self) -> dict[str, list[Any]]:
        """List candidates of further parameters, by name."""
        return {}

    def _get_alphas(self, machine: Any, y: Any, weight: Array | None) -> list[Any]:
        if self.alphas is not None:
            return check_candidates(self.alphas, "alphas")
        unit = machine._alpha_unit(y, weight)
        return [float(alpha / unit) for alpha in DEFAULT_ALPHAS]

    def _get_gammas(
        self, machine: Any, X: Any, weight: Array | None
    ) -> list[Any] | None:
        if self.gammas is not None:
            return check_candidates(self.gammas, "gammas")
        return default_gammas(machine, X, weight)

    def _make_folds(
        self, machine: Any, X: Any, y: Any, weight: Array | None, groups: Any
    ) -> "list[Fold]":
        if isinstance(self.scoring, (list, tuple, set, dict)):
            raise ValueError(f"scoring must be one score, got {self.scoring!r}")
        scorer = check_scoring(machine, scoring=self.scoring)
        if self.scoring is None and getattr(machine, "probability", False):
            machine = clone(machine).set_params(probability=False)  # decisions suffice
        if isinstance(self.cv, str):
            check_option(self.cv, "cv", ("loo",))
            if getattr(machine, "loss", None) != "squared":
                raise ValueError(
                    "cv='loo' has a closed form for loss='squared' only; give a number "
                    "of folds"
                )
            every = np.arange(X.shape[0])
            return [LeaveOneOut(machine, X, y, weight, every, every, scorer)]
        splitter = check_cv(self.cv, y, classifier=is_classifier(machine))
        return [
            Fold(machine, X, y, weight, train, test, scorer)
            for train, test in splitter.split(X, y, groups)
        ]

    def _score(self, folds: "list[Fold]", candidates: list[Candidate]) -> Array:
        """Score all candidates: (candidates, folds)."""
        scores = np.empty((len(candidates), len(folds)))
        room: Room = {}
        with progress(len(folds), "folds", self.verbose) as report:
            for k, fold in enumerate(folds):
                scores[:, k] = fold.score(candidates, room)
                report(1)
        return scores

    def _keep_scores(self, candidates: list[Candidate], scores: Array) -> None:
        """Set cv_results_ as in `GridSearchCV`, and the best candidate."""
        mean = scores.mean(axis=1)
        results = {
            f"param_{name}": _as_array([candidate[name] for candidate in candidates])
            for name in candidates[0]
        }
        results["params"] = candidates
        for k, column in enumerate(scores.T):
            results[f"split{k}_test_score"] = column
        results["mean_test_score"] = mean
        results["std_test_score"] = scores.std(axis=1)
        # a score that is not a number is the worst
        order = np.where(np.isnan(mean), np.inf, -mean)
        results["rank_test_score"] = rankdata(order, method="min").astype(np.int32)
        self.cv_results_ = results
        self.n_splits_ = scores.shape[1]
        self.best_index_ = int(order.argmin())
        self.best_params_ = candidates[self.best_index_]
        self.best_score_ = float(mean[self.best_index_])


def _as_array(values: list[Any]) -> Any:
    """Make an array of numbers, of objects if some are words, as in `GridSearchCV`."""
    numbers = all(isinstance(value, Real) for value in values)
    if numbers:
        return np.ma.array(values, dtype=float)
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return np.ma.array(array)


def check_candidates(values: Any, name: str) -> list[Any]:
    """Make a list of at least one Python number or string."""
    values = [values] if np.ndim(values) == 0 else list(values)
    if not values:
        raise ValueError(f"{name} must have at least one value, got none")
    return [
        value.item() if isinstance(value, np.generic) else value for value in values
    ]


def default_gammas(machine: Any, X: Any, weight: Array | None) -> list[float] | None:
    """Find gammas around that of the rule "scale"; None if the kernel has its own."""
    named = get_kernel(machine.kernel)
    if not isinstance(named, GammaKernel) or named is machine.kernel:
        return None
    named = get_kernel(machine.kernel, None, machine.metric)
    assert isinstance(named, GammaKernel)
    check_metric(named.metric, X, "X")
    weight = np.ones(X.shape[0]) if weight is None else weight
    limit = check_memory_limit(machine.memory_limit)
    variance = total_variance(in_metric(X, named.metric), weight, limit)
    scale = named.with_gamma(X, variance, limit).known_gamma
    return [float(gamma) for gamma in scale * GAMMA_MULTIPLES]


def choose_gamma(
    machine: Any, X: Any, y: Any, weight: Array | None, seed: int
) -> float:
    """Choose the best of `default_gammas` by a few folds of some points; gamma="cv"."""
    gammas = default_gammas(machine, X, weight)
    if gammas is None:
        raise ValueError(
            "gamma='cv' needs a kernel that has a gamma, by name, got "
            f"{machine.kernel!r}"
        )
    n = X.shape[0]
    chosen = np.random.default_rng(seed).permutation(n)[:GAMMA_POINTS]
    X, y = _safe_split(machine, X, y, chosen)
    weight = None if weight is None else weight[chosen]
    machine = clone(machine).set_params(random_state=seed)
    if hasattr(machine, "probability"):
        machine.set_params(probability=False)
    if isinstance(machine.n_components, str):
        machine.set_params(n_components=DEFAULT_ROWS)
    scorer = check_scoring(machine)
    splitter = check_cv(GAMMA_FOLDS, y, classifier=is_classifier(machine))
    folds = [
        Fold(machine, X, y, weight, train, test, scorer)
        for train, test in splitter.split(X, y)
    ]
    alpha = machine.alpha
    candidates = [dict(alpha=alpha, gamma=gamma) for gamma in gammas]
    scores = np.mean([fold.score(candidates) for fold in folds], axis=0)
    return gammas[int(np.argmax(scores))]


class Fold:
    """Points to fit machines to, and points to score them on."""

    _needs_arrays = False  # of features

    def __init__(
        self,
        machine: Any,
        X: Any,
        y: Any,
        weight: Array | None,
        train: Indices,
        test: Indices,
        scorer: Callable[..., float],
    ) -> None:
        self._machine = machine
        self._X, self._y, self._weight = X, y, weight
        self._train, self._test = self._used(train), self._used(test)
        self._scorer = scorer

    def _used(self, indices: Indices) -> Indices:
        """Keep those of a positive weight."""
        indices = np.arange(self._X.shape[0])[indices]  # masks, too
        return indices if self._weight is None else indices[self._weight[indices] > 0]

    def _take(
        self, indices: Indices, others: Indices | None = None
    ) -> tuple[Any, Any, Array | None]:
        """Take (X, y, weight) of some points."""
        X, y = _safe_split(self._machine, self._X, self._y, indices, others)
        return X, y, None if self._weight is None else self._weight[indices]

    def _testing(self) -> tuple[Any, Any, Array | None]:
        return self._take(self._test, self._train)

    def score(self, candidates: list[Candidate], room: Room | None = None) -> Array:
        """Score candidates; `room` is memory that folds share."""
        machine = clone(self._machine).set_params(verbose=0)
        X, y, weight = self._take(self._train)
        testing = self._testing()
        machine.n_features_in_ = X.shape[1]
        balanced, targets = machine._balance(y, weight), machine._encode(y)
        scores = np.empty(len(candidates))
        for setting, numbers in _group(candidates, _setting).items():
            machine.set_params(**dict(setting))
            self._score_setting(
                machine, candidates, numbers, X, targets, weight, balanced, testing,
                room, scores,
            )  # fmt: skip
        return scores

    def _score_setting(
        self,
        machine: Any,
        candidates: list[Candidate],
        numbers: list[int],
        X: Any,
        targets: AnyArray,
        weight: Array | None,
        balanced: Array | None,
        testing: tuple[Any, Any, Array | None],
        room: Room | None,
        scores: Array,
    ) -> None:
        """Score the candidates of one kernel, metric and number of rows."""
        groups = _group(numbers, lambda k: candidates[k].get("gamma", machine.gamma))
        by_gamma = {
            gamma: [numbers[k] for k in places] for gamma, places in groups.items()
        }
        for gammas in self._portions(machine, list(by_gamma)):
            maps = machine._fit_maps(
                X,
                targets,
                weight,
                machine.random_state,
                gammas,
                testing[0],
                formed=self._needs_arrays or not machine._takes_factored_features(),
                room=room,
            )
            for gamma, (feature_map, Z, Z_test) in zip(gammas, maps, strict=True):
                models = self._fit(
                    machine, by_gamma[gamma], candidates, Z, targets, balanced, Z_test
                )
                for number, result, decisions in models:
                    scores[number] = self._score_model(
                        machine, feature_map, result, decisions, testing
                    )

    def _portions(self, machine: Any, gammas: list[Any]) -> list[list[Any]]:
        """Divide gammas into those whose features fit into memory side by side."""
        width = getattr(machine.sketch, "s", None) or machine._n_rows(len(self._train))
        limit = check_memory_limit(machine.memory_limit)
        size = max(1, int(limit // (8 * width * self._X.shape[0])))
        return [gammas[i : i + size] for i in range(0, len(gammas), size)]

    def _fit(
        self,
        machine: Any,
        numbers: list[int],
        candidates: list[Candidate],
        Z: Any,
        targets: AnyArray,
        weight: Array | None,
        Z_test: Any,
    ) -> "Iterator[tuple[int, SolveResult | None, Array]]":
        """Yield (number, model, decisions of test points) for candidates of a gamma."""
        for tube, chosen in _group(numbers, lambda k: _tube(candidates[k])).items():
            machine.set_params(**dict(tube))
            chosen = [numbers[k] for k in chosen]
            alphas = [candidates[k]["alpha"] for k in chosen]
            if isinstance(Z, FactoredFeatures):  # one Gram matrix for all of them
                least = min(machine._get_alpha(a, targets, weight) for a in alphas)
                Z = Z.form_for(least, EXACT_ENOUGH)
            models = self._models(machine, Z, targets, weight, alphas, Z_test)
            for number, (result, decisions) in zip(chosen, models, strict=True):
                yield number, result, decisions

    def _models(
        self,
        machine: Any,
        Z: Any,
        y: Any,
        weight: Array | None,
        alphas: list[Any],
        Z_test: Any,
    ) -> "Iterable[tuple[SolveResult | None, Array]]":
        """Yield (model, decisions of test points) for each alpha."""
        warm = machine.warm_start
        for result in machine._solve(Z, y, weight, alphas, warm=warm):
            yield result, result.predict(Z_test)

    def _score_model(
        self,
        machine: Any,
        feature_map: FeatureMap,
        result: "SolveResult | None",
        decisions: Array,
        testing: tuple[Any, Any, Array | None],
    ) -> float:
        X_test, y_test, weight = testing
        if result is not None:
            machine._keep(feature_map, result)
        if getattr(machine, "probability", False):
            machine.calibrate_when_asked(*self._take(self._train))

        def decide(X: Any) -> Array:
            # predictions and scores of all kinds follow from decisions
            if X is X_test:
                return decisions
            if result is None:
                raise ValueError("leave-one-out has predictions of its own points only")
            found: Array = type(machine)._decide(machine, X)
            return found

        machine._decide = decide
        options = {}
        if weight is not None and _takes_weights(self._scorer):
            options["sample_weight"] = weight
        return self._scorer(machine, X_test, y_test, **options)


def _takes_weights(scorer: Callable[..., float]) -> bool:
    """Tell whether a scorer has weights: those of scikit-learn do, functions may."""
    if not inspect.isfunction(scorer):
        return True
    return "sample_weight" in inspect.signature(scorer).parameters


class LeaveOneOut(Fold):
    """Every point by the machine without it, in closed form; the sketch has it."""

    _needs_arrays = True

    def _testing(self) -> tuple[Any, Any, Array | None]:
        return self._take(self._test)

    def _models(
        self,
        machine: Any,
        Z: Any,
        y: Any,
        weight: Array | None,
        alphas: list[Any],
        Z_test: Any,
    ) -> "Iterable[tuple[SolveResult | None, Array]]":
        machine.loss_ = Squared()  # which predictions follow
        predictions = leave_one_out(
            Z,
            y,
            alphas=[machine._get_alpha(alpha, y, weight) for alpha in alphas],
            output_matrix=machine.output_matrix,
            sample_weight=weight,
            fit_intercept=machine.fit_intercept,
            n_threads=machine.n_threads,
        )
        return [(None, predicted) for predicted in predictions]


def _group(items: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[int]]:
    """Group the numbers of items by what they have in common."""
    groups: dict[Any, list[int]] = {}
    for number, item in enumerate(items):
        groups.setdefault(key(item), []).append(number)
    return groups


def _tube(candidate: Candidate) -> tuple[tuple[str, Any], ...]:
    """Take what a candidate has beside alpha, gamma and its map."""
    others = ("alpha", "gamma", *OF_MAPS)
    return tuple(i for i in candidate.items() if i[0] not in others)


def _setting(candidate: Candidate) -> tuple[tuple[str, Any], ...]:
    """Take what the map of a candidate is made of, beside gamma."""
    return tuple(i for i in candidate.items() if i[0] in OF_MAPS)


class SketchedKernelRegressorCV(  # type: ignore[misc]  # fit: no checkpoint
    Search, SketchedKernelRegressor
):
    """`SketchedKernelRegressor` that chooses alpha, gamma, kappa and epsilon by folds.

    What they have in common is computed once: several times sooner than
    `GridSearchCV`, with the same scores.

    Parameters
    ----------
    alphas : sequence of float, optional
        Penalties to try; None means 1e-2, 1e-3, …, 1e-7, divided by a robust scale of y
        for losses that grow like |u - y|.
    gammas : sequence of float, "scale", "auto" or "median", optional
        Scales of the kernel to try.  None means 1/27, 1/9, 1/3, 1 and 3 times
        "scale" (of all points); nothing, if the kernel has none or is an object.
    kappas, epsilons : sequence of float or "auto"
        Of "huber" and "epsilon_insensitive".
    cv : int, splitter, iterable of splits, or "loo", optional
        None means 5 folds.  "loo" is leave-one-out in closed form, for the squared
        loss: the sketch is that of all points, and n·alpha that of all points.
    scoring : str or callable, optional
        None means the score of the estimator, R².
    calibration : {"split"}, optional
        For `predict_interval`: a quarter of the points (at most 2,500) is held out,
        which the search does not see.
    warm_start : bool
        Whether solutions follow each other along the path of alphas: up to a third
        fewer steps for "huber", but scores then depend, within tol, on the other
        candidates.
    kernel, metric, n_components
        As for `SketchedKernelRegressor`, by default 100 rows; or lists of candidates,
        such as ``kernel=["rbf", "laplacian"], metric=[None, "learn"],
        n_components=[100, 500]``.  Metrics and kernels that are learnt are learnt from
        the training points of each fold, and have their own gamma.
    feature_groups, sketch, p, loss, quantile, fit_intercept, output_matrix, solver, \
tol, max_iter, feature_storage, memory_limit, n_threads, random_state, verbose
        As for `SketchedKernelRegressor` (feature_storage: of the last fit).  The sketch
        of a fold is drawn from its training points only.

    Attributes
    ----------
    best_params_ : dict
    best_score_ : float
        The mean over folds.
    best_index_ : int
    cv_results_ : dict of arrays
        As in `GridSearchCV`: params, param_alpha, …, split0_test_score, …,
        mean_test_score, std_test_score, rank_test_score.
    n_splits_ : int

    And those of `SketchedKernelRegressor`, fitted to all points.

    Examples
    --------
    >>> import numpy as np
    >>> from pskernels.estimators import SketchedKernelRegressorCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(1000, 2))
    >>> y = np.sin(6 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=1000)
    >>> model = SketchedKernelRegressorCV(loss="squared", random_state=0).fit(X, y)
    >>> sorted(model.best_params_), len(model.cv_results_["params"])
    (['alpha', 'gamma'], 30)
    """

    _machine_type = SketchedKernelRegressor

    def __init__(
        self,
        *,
        alphas: Sequence[float] | None = None,
        gammas: Sequence[float | str] | None = None,
        kappas: Sequence[float | str] = ("auto",),
        epsilons: Sequence[float | str] = ("auto",),
        cv: Any = None,
        scoring: Any = None,
        kernel: Any = "rbf",
        metric: Any = None,
        feature_groups: npt.ArrayLike | None = None,
        sketch: str | SketchLike = "p-sr",
        n_components: Any = 100,
        p: float | str | None = "auto",
        loss: str = "huber",
        quantile: float = 0.5,
        fit_intercept: bool = True,
        output_matrix: npt.ArrayLike | str | None = None,
        calibration: str | None = None,
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
        self.alphas = alphas
        self.gammas = gammas
        self.kappas = kappas
        self.epsilons = epsilons
        self.cv = cv
        self.scoring = scoring
        self.kernel = kernel
        self.metric = metric
        self.feature_groups = feature_groups
        self.sketch = sketch
        self.n_components = n_components
        self.p = p
        self.loss = loss
        self.quantile = quantile
        self.fit_intercept = fit_intercept
        self.output_matrix = output_matrix
        self.calibration = calibration
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.feature_storage = feature_storage
        self.memory_limit = memory_limit
        self.n_threads = n_threads
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose

    def _tubes(self) -> dict[str, list[Any]]:
        if self.loss == "huber":
            return {"kappa": check_candidates(self.kappas, "kappas")}
        if self.loss == "epsilon_insensitive":
            return {"epsilon": check_candidates(self.epsilons, "epsilons")}
        return {}


class SketchedQuantileRegressorCV(  # type: ignore[misc]  # fit: no checkpoint
    Search, SketchedQuantileRegressor
):
    """`SketchedQuantileRegressor` that chooses alpha and gamma by folds.

    Parameters
    ----------
    alphas, gammas, cv, scoring, warm_start
        As for `SketchedKernelRegressorCV`, without "loo"; the score is the share of the
        pinball loss of constants that is explained.
    kernel, metric, n_components
        As for `SketchedKernelRegressorCV`, lists too.
    calibration : {"split"}, optional
        As for `SketchedKernelRegressorCV`.
    feature_groups, sketch, p, quantiles, fit_intercept, output_matrix, \
noncrossing, solver, tol, max_iter, feature_storage, memory_limit, n_threads, \
random_state, verbose
        As for `SketchedQuantileRegressor`.

    Attributes
    ----------
    best_params_, best_score_, best_index_, cv_results_, n_splits_
        As for `SketchedKernelRegressorCV`.

    And those of `SketchedQuantileRegressor`, fitted to all points.
    """

    _machine_type = SketchedQuantileRegressor

    def __init__(
        self,
        *,
        alphas: Sequence[float] | None = None,
        gammas: Sequence[float | str] | None = None,
        cv: Any = None,
        scoring: Any = None,
        kernel: Any = "rbf",
        metric: Any = None,
        feature_groups: npt.ArrayLike | None = None,
        sketch: str | SketchLike = "p-sr",
        n_components: Any = 100,
        p: float | str | None = "auto",
        quantiles: npt.ArrayLike = (0.1, 0.5, 0.9),
        fit_intercept: bool = True,
        output_matrix: npt.ArrayLike | str | None = None,
        noncrossing: str = "sort",
        calibration: str | None = None,
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
        self.alphas = alphas
        self.gammas = gammas
        self.cv = cv
        self.scoring = scoring
        self.kernel = kernel
        self.metric = metric
        self.feature_groups = feature_groups
        self.sketch = sketch
        self.n_components = n_components
        self.p = p
        self.quantiles = quantiles
        self.fit_intercept = fit_intercept
        self.output_matrix = output_matrix
        self.noncrossing = noncrossing
        self.calibration = calibration
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.feature_storage = feature_storage
        self.memory_limit = memory_limit
        self.n_threads = n_threads
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose


class SketchedKernelClassifierCV(  # type: ignore[misc]  # fit: no checkpoint
    Search, SketchedKernelClassifier
):
    """`SketchedKernelClassifier` that chooses alpha and gamma by folds.

    Parameters
    ----------
    alphas, gammas, cv, scoring, warm_start
        As for `SketchedKernelRegressorCV`, without "loo"; folds have classes in
        proportion, and the score is the share of right classes.  For scores of
        probabilities, probability=True calibrates each candidate in each fold, as
        `GridSearchCV` does.
    kernel, metric, n_components
        As for `SketchedKernelRegressorCV`, lists too.
    feature_groups, sketch, p, loss, class_weight, probability, fit_intercept, solver, \
tol, max_iter, feature_storage, memory_limit, n_threads, random_state, verbose
        As for `SketchedKernelClassifier`.

    Attributes
    ----------
    best_params_, best_score_, best_index_, cv_results_, n_splits_
        As for `SketchedKernelRegressorCV`.

    And those of `SketchedKernelClassifier`, fitted to all points.
    """

    _machine_type = SketchedKernelClassifier

    def __init__(
        self,
        *,
        alphas: Sequence[float] | None = None,
        gammas: Sequence[float | str] | None = None,
        cv: Any = None,
        scoring: Any = None,
        kernel: Any = "rbf",
        metric: Any = None,
        feature_groups: npt.ArrayLike | None = None,
        sketch: str | SketchLike = "p-sr",
        n_components: Any = 100,
        p: float | str | None = "auto",
        loss: str = "hinge",
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
        self.alphas = alphas
        self.gammas = gammas
        self.cv = cv
        self.scoring = scoring
        self.kernel = kernel
        self.metric = metric
        self.feature_groups = feature_groups
        self.sketch = sketch
        self.n_components = n_components
        self.p = p
        self.loss = loss
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
