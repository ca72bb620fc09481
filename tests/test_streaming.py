"""Fits to points that are not in memory, against those to the same points in memory."""

import tracemalloc

import numpy as np
import pytest
from conftest import only_long

import pskernels as psk
from pskernels.estimators import (
    SketchedKernelClassifier,
    SketchedKernelRegressor,
    SketchedQuantileRegressor,
)
from pskernels.passes import Model, PassProblem, answer, minimise, solve_squares
from pskernels.sources import ParquetRows, Source, is_source, open_points, open_targets
from pskernels.streaming import (
    ChangedRowsError,
    Chunks,
    run_passes,
    strata,
    total_weight,
)

LOSSES = [
    psk.Squared(),
    psk.Huber(0.5),
    psk.Pinball(0.9),
    psk.EpsilonInsensitive(0.2),
    psk.Absolute(),
    psk.Hinge(),
    psk.SquaredHinge(),
    psk.Logistic(),
]
# no room for the features of the points below
SMALL = 2**19


def make_data(rng, n=3000, dtype=np.float64):
    X = rng.normal(size=(n, 3)).astype(dtype)
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.standard_t(3, size=n)
    return X, y


def make_chunks(X, y, alpha, formed=False, memory_limit=2**20, weight=None, s=20):
    feature_map = psk.FeatureMap(
        gamma=0.2, sketch=psk.SubSampling(s), random_state=0, n_threads=2
    )
    X, y = Source(X, "X"), Source(y, "y")
    weight = None if weight is None else Source(weight, "sample_weight")
    features_of = feature_map.fit_chunks(X, alpha, formed)
    return Chunks(
        X, y, weight, features_of,
        lambda y: np.ascontiguousarray(y, np.float64)[None],
        lambda y, weight: weight,
        total_weight(y, weight, lambda y, weight: weight),
        memory_limit,
    )  # fmt: skip


def make_problem(chunks, loss, alpha, fit_intercept):
    return PassProblem(
        frame=chunks.features_of(chunks.X[:1]),
        largest=chunks.features_of.largest(),
        sum_error=chunks.sum_error,
        loss=loss,
        alpha=alpha,
        fit_intercept=fit_intercept,
    )


def objective_of(Z, y, loss, alpha, theta, intercept, weight=None):
    """The objective, by NumPy."""
    values = loss.value(Z @ theta + intercept, y)
    return np.average(values, weights=weight) + alpha / 2 * theta @ theta


SMOOTH = [loss for loss in LOSSES if loss.smooth]
CORNERS = [loss for loss in LOSSES if not loss.smooth]


@pytest.mark.parametrize(
    "loss, fit_intercept, least",
    [(loss, b, 1e-6) for loss in SMOOTH for b in (True, False)]
    # corners take many passes for more digits
    + [(loss, k % 2 == 0, 1e-3) for k, loss in enumerate(CORNERS)]
    + [only_long(loss, b, 1e-6) for loss in CORNERS for b in (True, False)],
    ids=str,
)
def test_certified_gaps_hold(loss, fit_intercept, least, rng):
    """Against the optimum of a solver that has all points, to ten digits."""
    alpha, formed = 1e-3, LOSSES.index(loss) % 2 == int(fit_intercept)
    X, y = make_data(rng)
    if loss.classification:
        y = np.where(y > 0, 1.0, -1.0)
    weight = rng.integers(0, 4, size=len(y)).astype(float)
    chunks = make_chunks(X, y, alpha, formed, 2**18, weight)
    assert len(chunks.slices()) > 5
    problem = make_problem(chunks, loss, alpha, fit_intercept)
    mu = 0.0 if loss.smooth else 0.3
    start = Model(np.zeros(problem.frame.r), 0.0, mu)
    Z = chunks.features_of.feature_map.transform(X)
    best = psk.solve(
        Z, y, loss=loss, alpha=alpha, tol=1e-10, sample_weight=weight,
        fit_intercept=fit_intercept,
    )  # fmt: skip
    for tol in (1e-2, least):
        (found,) = run_passes(
            chunks, [loss], [minimise(problem, start, tol, 300)], fit_intercept
        )
        model = found.theta, found.intercept, weight
        expected = objective_of(Z, y, loss, alpha, *model)
        assert found.dual_gap <= tol
        assert found.objective == pytest.approx(expected, rel=1e-9)
        true_gap = found.objective - best.objective * (1 - best.dual_gap)
        assert true_gap <= found.dual_gap * found.objective + 1e-12
        # so it was at every pass, of the best model so far
        lowest = np.inf
        for line in found.history:
            lowest = min(lowest, line.objective)
            assert lowest - best.objective <= line.dual_gap * lowest + 1e-9


def test_a_gap_that_is_not_reached_is_not_claimed(rng):
    X, y = make_data(rng)
    chunks = make_chunks(X, y, 1e-4)
    problem = make_problem(chunks, psk.Absolute(), 1e-4, True)
    start = Model(np.zeros(problem.frame.r), 0.0, 0.5)
    (found,) = run_passes(
        chunks, [problem.loss], [minimise(problem, start, 1e-9, 2)], True
    )
    assert len(found.history) == 2
    assert found.dual_gap > 1e-3


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_answers_do_not_depend_on_chunks(loss, rng):
    X, y = make_data(rng, 700)
    if loss.classification:
        y = np.where(y > 0, 1.0, -1.0)
    chunks = make_chunks(X, y, 1e-3, memory_limit=2**30)
    (whole,) = list(chunks)
    problem = make_problem(chunks, loss, 1e-3, True)
    stages = tuple(
        Model(rng.normal(size=problem.frame.r), 0.1 * k, 0.4 / k) for k in (1, 2)
    )
    request = problem.request(stages, Model(rng.normal(size=problem.frame.r), 0.3, 0.1))
    features, targets, weight = whole
    expected = answer(features, loss, targets[0], weight, request, True)
    total = None
    for rows in (slice(0, 1), slice(1, 256), slice(256, 700)):
        features, targets, weight = chunks.chunk(rows)
        found = answer(features, loss, targets[0], weight, request, True)
        total = found if total is None else total + found
    for name in ("value", "excess", "flow", "pull", "gram", "hidden"):
        a, b = getattr(total, name), getattr(expected, name)
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13, err_msg=name)
    assert total.n_active == expected.n_active


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_squares_take_one_pass(offset, fit_intercept, rng):
    alpha = 1e-4
    X, y = make_data(rng)
    y += offset
    chunks = make_chunks(X, y, alpha, formed=True, memory_limit=2**19)
    problem = make_problem(chunks, psk.Squared(), alpha, fit_intercept)
    n_passes, run_pass = 0, chunks.run_pass

    def counted(*arguments):
        nonlocal n_passes
        n_passes += 1
        return run_pass(*arguments)

    chunks.run_pass = counted
    (found,) = run_passes(
        chunks, [problem.loss], [solve_squares(problem, 1e-5, 9)], fit_intercept
    )
    Z = chunks.features_of.feature_map.transform(X)
    best = psk.solve(Z, y, alpha=alpha, tol=1e-12, fit_intercept=fit_intercept)
    if offset == 0:
        assert n_passes == 1
        np.testing.assert_allclose(found.theta, best.coef, rtol=1e-8, atol=1e-9)
    assert found.dual_gap <= 1e-5
    assert found.objective - best.objective <= found.dual_gap * found.objective + 1e-12


def test_chunks_keep_to_the_limit_and_are_the_same_for_all_threads(rng):
    X, y = make_data(rng, 60_000, np.float32)
    np_files = X, y
    models = []
    for n_threads in (1, 2, 3):
        model = SketchedKernelRegressor(
            n_components=50, random_state=0, memory_limit=2**23, n_threads=n_threads
        )
        tracemalloc.start()
        try:
            model.fit(Source(np_files[0], "X"), np_files[1])
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 2**23
        models.append(model)
    for other in models[1:]:
        np.testing.assert_array_equal(models[0].coef_, other.coef_)
        assert models[0].dual_gap_ == other.dual_gap_


class Slices:
    """What has a shape, a dtype and slices, and nothing else."""

    def __init__(self, array):
        self._array = array
        self.shape, self.dtype = array.shape, array.dtype

    def __getitem__(self, rows):
        assert isinstance(rows, slice)
        return self._array[rows]


@pytest.fixture
def files(tmp_path, rng):
    """The same points in every form, with targets and a name for each."""
    pandas = pytest.importorskip("pandas")
    X, y = make_data(rng, 4000, np.float32)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    frame["target"] = y
    path = tmp_path / "data.parquet"
    frame.to_parquet(path, row_group_size=700)
    forms = {
        "array": (Source(X, "X"), y),
        "memmap": (np.load(tmp_path / "X.npy", mmap_mode="r"), y),
        "view of a memmap": (np.load(tmp_path / "X.npy", mmap_mode="r")[:], y),
        "path": (str(tmp_path / "X.npy"), tmp_path / "y.npy"),
        "slices": (Slices(X), Slices(y)),
        "parquet": (path, "target"),
    }
    return X, y, forms, path


def test_all_forms_give_the_same_model(files):
    X, y, forms, _ = files
    options = dict(n_components=30, random_state=0, memory_limit=SMALL)
    models = {
        name: SketchedKernelRegressor(**options).fit(*form)
        for name, form in forms.items()
    }
    first = models["array"]
    assert first.history_[-1].n_iter + 1 == first.n_iter_  # passes, not steps
    for name, model in models.items():
        np.testing.assert_array_equal(model.coef_, first.coef_, err_msg=name)
        np.testing.assert_array_equal(model.predict(forms[name][0]), first.predict(X))
    in_memory = SketchedKernelRegressor(**options).fit(X, y)
    assert np.abs(first.predict(X) - in_memory.predict(X)).max() < 0.05
    assert first.dual_gap_ <= 1e-6


def test_rows_of_a_source(files, rng):
    X, y, forms, path = files
    numbers = rng.integers(0, len(X), size=300)
    for name, (points, targets) in forms.items():
        source = open_points(points, targets)
        assert is_source(points) and source.shape == X.shape, name
        np.testing.assert_array_equal(source[numbers], X[numbers])
        np.testing.assert_array_equal(source[numbers, 1:], X[numbers, 1:])
        np.testing.assert_array_equal(source[650:1500], X[650:1500])
        np.testing.assert_array_equal(np.array(list(source)), X)
        assert source.min() == X.min()
        opened = open_targets(targets, points)
        np.testing.assert_array_equal(opened[numbers], y[numbers])
    np.testing.assert_array_equal(ParquetRows(path, ["b"])[5:9], X[5:9, 1:2])


def test_what_is_no_source(rng):
    pandas, sparse = pytest.importorskip("pandas"), pytest.importorskip("scipy.sparse")
    X = rng.normal(size=(5, 2))
    for other in (X, X.tolist(), pandas.DataFrame(X), sparse.csr_array(X), None, 3):
        assert not is_source(other)


def test_points_that_have_room_are_fitted_in_memory(files):
    X, y, forms, _ = files
    model = SketchedKernelRegressor(n_components=30, random_state=0).fit(X, y)
    for form in forms.values():
        other = SketchedKernelRegressor(n_components=30, random_state=0).fit(*form)
        np.testing.assert_array_equal(other.coef_, model.coef_)


LABELS = {
    "two": lambda y: (y > 0).astype(int),
    "three": lambda y: np.digitize(y, [-0.5, 0.5]),
    "text": lambda y: np.where(y > 0, "yes", "no"),
}


@pytest.mark.parametrize(
    "labels, loss, class_weight",
    [
        ("two", "hinge", "balanced"),
        ("two", "logistic", None),
        ("three", "squared_hinge", "balanced"),
        ("three", "hinge", "dict"),
        ("text", "logistic", "dict"),
        ("text", "squared_hinge", None),
    ],
)
def test_classes(labels, loss, class_weight, rng):
    X, y = make_data(rng)
    y = LABELS[labels](y + 0.8)
    if class_weight == "dict":
        class_weight = {label: k + 1.0 for k, label in enumerate(np.unique(y).tolist())}
    options = dict(
        n_components=20, random_state=0, loss=loss, class_weight=class_weight,
        alpha=1e-3, gamma=0.2, tol=1e-4,
    )  # fmt: skip
    found = SketchedKernelClassifier(memory_limit=SMALL, **options)
    found.fit(Source(X, "X"), y)
    expected = SketchedKernelClassifier(**options).fit(X, y)
    np.testing.assert_array_equal(found.classes_, expected.classes_)
    assert found.objective_ == pytest.approx(expected.objective_, rel=2e-4)
    np.testing.assert_allclose(
        found.decision_function(X), expected.decision_function(X), atol=0.15
    )


def test_quantiles(rng):
    X, y = make_data(rng)
    options = dict(
        quantiles=[0.1, 0.5, 0.9], noncrossing="sort", n_components=20, gamma=0.2,
        alpha=1e-3, random_state=0, tol=1e-5,
    )  # fmt: skip
    found = SketchedQuantileRegressor(memory_limit=SMALL, **options)
    found.fit(Source(X, "X"), y)
    expected = SketchedQuantileRegressor(**options).fit(X, y)
    np.testing.assert_allclose(found.predict(X), expected.predict(X), atol=0.05)
    assert found.coef_.shape == (20, 3)
    assert (np.diff(found.predict(X), axis=1) >= 0).all()


def test_several_targets(rng):
    X, y = make_data(rng)
    Y = np.column_stack([y, -2 * y, X[:, 0]])
    options = dict(loss="squared", n_components=20, random_state=0, gamma=0.2)
    found = SketchedKernelRegressor(memory_limit=SMALL, **options)
    found.fit(Source(X, "X"), Y)
    expected = SketchedKernelRegressor(**options).fit(X, Y)
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-7, atol=1e-7)
    assert found.n_iter_ == 1


def test_weights_count_points(rng):
    X, y = make_data(rng)
    weight = rng.integers(0, 3, size=len(y))
    options = dict(
        loss="squared", n_components=20, gamma=0.2, memory_limit=SMALL, alpha=1e-3,
        sketch=psk.SubSampling(indices=np.arange(20)), p="auto",
    )  # fmt: skip
    weighted = SketchedKernelRegressor(**options)
    weighted.fit(Source(X, "X"), y, Source(weight, "weight"))
    keep = np.r_[:20, np.repeat(np.arange(len(y)), weight)]  # with the landmarks
    repeated = psk.solve(
        weighted.feature_map_.transform(X[keep[20:]]), y[keep[20:]], alpha=1e-3
    )
    np.testing.assert_allclose(weighted.coef_, repeated.coef, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("kernel", ["laplacian", "polynomial", "linear", "cosine"])
def test_kernels_with_and_without_a_bound(kernel, rng):
    X, y = make_data(rng)
    options = dict(kernel=kernel, n_components=20, random_state=0, tol=1e-4)
    found = SketchedKernelRegressor(memory_limit=SMALL, kappa=1.0, **options)
    found.fit(Source(X, "X"), y)
    expected = SketchedKernelRegressor(kappa=1.0, **options).fit(X, y)
    assert found.converged_
    assert found.objective_ == pytest.approx(expected.objective_, rel=2e-4)


def test_sparse_sketches_have_as_many_entries_in_a_row(rng):
    """A far cluster matters: p is chosen, by the subsample, for all points."""
    X = np.concatenate([rng.normal(size=(30_000, 2)), rng.normal(8, 0.1, (300, 2))])
    y = np.where(np.arange(len(X)) < 30_000, 0.1, 50.0) * np.cos(5 * X[:, 0])
    model = SketchedKernelRegressor(
        n_components=20, random_state=0, loss="squared", memory_limit=2**21, gamma=0.5
    ).fit(Source(X, "X"), y)
    entries = model.sketch_.weights.nnz / 20
    assert 30 < entries < 80


# ---- what is refused ----


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(n_components="auto"), "n_components='auto' needs all points in memory"),
        (dict(solver="lbfgs"), "solver='lbfgs' needs all points in memory"),
        (dict(warm_start=True), "warm_start=True needs all points in memory"),
        (dict(alpha=-1.0), "alpha must be positive"),
        (dict(tol=0.0), "tol must be positive"),
        (dict(max_iter=0), "max_iter must be at least 1"),
        (dict(kappa=-1.0), "kappa must be positive"),
    ],
)
def test_options_that_need_memory(options, message, rng):
    X, y = make_data(rng)
    options = dict(n_components=20, memory_limit=2**17) | options
    with pytest.raises(ValueError, match=message):
        SketchedKernelRegressor(**options).fit(Source(X, "X"), y)


def test_outputs_that_are_learnt_together_need_memory(rng):
    X, y = make_data(rng)
    model = SketchedQuantileRegressor(
        n_components=20, memory_limit=SMALL, noncrossing="penalty"
    )
    with pytest.raises(
        ValueError, match="learnt together .* need all points in memory"
    ):
        model.fit(Source(X, "X"), y)
    model = SketchedKernelRegressor(n_components=20, memory_limit=SMALL)
    with pytest.raises(
        ValueError, match="learnt together .* need all points in memory"
    ):
        model.fit(Source(X, "X"), np.column_stack([y, y]))


class Changing(Slices):
    """Points of which one changes after some reads."""

    def __init__(self, array, row, after):
        super().__init__(array.copy())
        self._row, self._left = row, after

    def __getitem__(self, rows):
        self._left -= 1
        if self._left == 0:
            self._array[self._row] += 1e-3
        return super().__getitem__(rows)


def test_bad_rows_are_named_and_leave_the_model(rng):
    X, y = make_data(rng)
    model = SketchedKernelRegressor(n_components=20, memory_limit=SMALL, random_state=0)
    before = model.fit(Source(X, "X"), y).predict(X)

    bad_X, bad_y = X.copy(), y.copy()
    bad_X[2711, 1], bad_y[1234] = np.nan, np.inf
    cases = [
        (bad_X, y, ValueError, "X contains NaN in row 2711, column 1"),
        (X, bad_y, ValueError, "y has NaN or infinity in row 1234"),
        (X, y[:-1], ValueError, "X has 3000 rows, but y has 2999"),
        (Changing(X, 2300, 22), y, ChangedRowsError, "X has changed .* rows 2"),
        (X, Changing(y, 100, 25), ChangedRowsError, "y has changed .* rows 0 to"),
        (np.zeros((0, 2)), np.zeros(0), ValueError, "at least one point"),
        (X[:, 0], y, ValueError, "X must be 2-d"),
        (np.full((9, 2), "a"), y[:9], TypeError, "X must hold real numbers"),
    ]  # fmt: skip
    for points, targets, error, message in cases:
        points = points if isinstance(points, Slices) else Slices(points)
        with pytest.raises(error, match=message):
            model.fit(Source(points, "X") if points.shape else points, targets)
    with pytest.raises(ValueError, match="sample_weight must be finite and not neg"):
        model.fit(Source(X, "X"), y, -np.ones(len(y)))
    with pytest.raises(ValueError, match="add up to more than 0"):
        model.fit(Source(X, "X"), y, np.zeros(len(y)))
    np.testing.assert_array_equal(model.predict(X), before)


class Short(Slices):
    def __getitem__(self, rows):
        return super().__getitem__(rows)[:, :-1]


def test_slices_that_do_not_fit_the_shape(rng):
    X, y = make_data(rng)
    with pytest.raises(ValueError, match=r"must have shape \(.*, 3\), got \(.*, 2\)"):
        SketchedKernelRegressor(n_components=20, memory_limit=SMALL).fit(Short(X), y)


def test_files_that_cannot_be_read(tmp_path, files):
    pandas = pytest.importorskip("pandas")
    *_, path = files
    model = SketchedKernelRegressor()
    with pytest.raises(ValueError, match=r"\.npy or \.parquet file, got 'a\.csv'"):
        model.fit("a.csv", "b.csv")
    with pytest.raises(FileNotFoundError):
        model.fit(str(tmp_path / "none.npy"), np.ones(3))
    with pytest.raises(
        ValueError, match="has no column 'size'; it has a, b, c, target"
    ):
        model.fit(path, "size")
    text = tmp_path / "text.parquet"
    pandas.DataFrame({"a": [1.0, 2.0], "town": ["Ulm", "Bonn"]}).to_parquet(text)
    with pytest.raises(TypeError, match="column 'town' must hold real numbers"):
        model.fit(text, np.ones(2))
    np.save(tmp_path / "pickled.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(ValueError, match="Python objects"):
        model.fit(tmp_path / "pickled.npy", np.ones(1))


@pytest.mark.parametrize("n, k", [(10, 3), (10, 10), (7, 100), (1, 1)])
def test_strata(n, k):
    rows = strata(n, k, 0)
    assert len(rows) == min(n, k)
    assert (np.diff(rows) > 0).all() and rows[0] >= 0 and rows[-1] < n


# ---- what a review found ----


@pytest.mark.parametrize("share", [0.01, 0.5, 1.0])
def test_targets_that_are_zero(share, rng):
    """Residuals of 0 have a curvature, too: squares are expanded around them."""
    X, y = make_data(rng)
    y[rng.random(len(y)) < share] = 0.0
    options = dict(loss="squared", n_components=20, random_state=0, gamma=0.2)
    options |= dict(fit_intercept=False)
    found = SketchedKernelRegressor(memory_limit=SMALL, **options)
    found.fit(Source(X, "X"), y)
    expected = SketchedKernelRegressor(**options).fit(X, y)
    assert found.objective_ == pytest.approx(expected.objective_, rel=1e-9, abs=1e-15)
    np.testing.assert_allclose(found.coef_, expected.coef_, atol=1e-8)


@pytest.mark.parametrize("b", [-1.0, 0.0, 5.0, 10.1, 11.2])
@pytest.mark.parametrize("mu", [0.01, 0.15, 1.5])
@pytest.mark.parametrize("loss", [psk.Absolute(), psk.Pinball(0.5), psk.Pinball(0.9)])
def test_certificates_far_from_the_solution(loss, mu, b, rng):
    """Flows are far from adding up to 0: moves of all ζ, and more, are needed."""
    alpha, n = 1e3, 1000
    X, _ = make_data(rng, n)
    y = np.where(np.arange(n) < 600, 0.0, 10.0) + 0.01 * rng.normal(size=n)
    chunks = make_chunks(X, y, alpha)
    problem = make_problem(chunks, loss, alpha, True)
    start = Model(np.zeros(problem.frame.r), b, mu)
    (found,) = run_passes(chunks, [loss], [minimise(problem, start, 1e-9, 3)], True)
    best = psk.solve(
        chunks.features_of.feature_map.transform(X), y, loss=loss, alpha=alpha, tol=1e-9
    )
    lowest = np.inf
    for line in found.history:
        lowest = min(lowest, line.objective)
        assert lowest - best.objective <= line.dual_gap * lowest + 1e-9


@pytest.mark.parametrize("loss", ["huber", "squared", "epsilon_insensitive", "pinball"])
@pytest.mark.parametrize("offset", [3.0, 1e8])
def test_constant_targets(loss, offset, rng):
    X, _ = make_data(rng)
    model = SketchedKernelRegressor(loss=loss, n_components=20, memory_limit=SMALL)
    model.fit(Source(X, "X"), np.full(len(X), offset))
    assert model.converged_ and model.n_iter_ < 5
    np.testing.assert_allclose(model.predict(X), offset)


def test_targets_far_from_zero(rng):
    X, y = make_data(rng)
    options = dict(n_components=20, random_state=0, gamma=0.2, loss="pinball", tol=1e-4)
    options |= dict(alpha=1e-3, memory_limit=SMALL)
    near = SketchedKernelRegressor(**options).fit(Source(X, "X"), y)
    far = SketchedKernelRegressor(**options).fit(Source(X, "X"), y + 1e6)
    assert far.converged_
    np.testing.assert_allclose(far.predict(X) - 1e6, near.predict(X), atol=0.05)


def test_a_rare_class(rng):
    X, y = make_data(rng)
    labels = (np.arange(len(y)) % 1500 == 7).astype(int)
    model = SketchedKernelClassifier(
        loss="logistic", n_components=20, memory_limit=SMALL, random_state=0, tol=1e-3
    ).fit(Source(X, "X"), labels)
    assert model.converged_ and model.classes_.tolist() == [0, 1]


def test_weights_that_are_no_numbers_of_points(rng):
    X, y = make_data(rng)
    weight = np.where(rng.random(len(y)) < 0.3, 0.0, 0.5)
    options = dict(loss="squared", n_components=20, random_state=0, gamma=0.2)
    found = SketchedKernelRegressor(memory_limit=SMALL, **options)
    found.fit(Source(X, "X"), y, weight)
    expected = SketchedKernelRegressor(**options).fit(X, y, weight)
    assert found.alpha_ == pytest.approx(expected.alpha_)
    for bad in (np.ones((len(y), 1)), 2.0):
        with pytest.raises(ValueError, match="sample_weight must"):
            found.fit(Source(X, "X"), y, bad)


@pytest.mark.parametrize("sketch", ["gaussian", "ros", psk.Gaussian(20)])
def test_dense_sketches_need_memory(sketch, rng):
    X, y = make_data(rng)
    model = SketchedKernelRegressor(sketch=sketch, n_components=20, memory_limit=SMALL)
    with pytest.raises(ValueError, match="sketch=.* needs all points in memory"):
        model.fit(Source(X, "X"), y)


def test_columns_of_parquet_files(tmp_path, rng):
    pandas = pytest.importorskip("pandas")
    X, y = make_data(rng)
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    frame["label"] = np.where(y > 0, "yes", "no")
    path, other = tmp_path / "a.parquet", tmp_path / "b.parquet"
    frame.to_parquet(path)
    frame[["label", "c", "a", "b"]].to_parquet(other)
    for limit in (SMALL, None):
        model = SketchedKernelClassifier(
            loss="logistic", n_components=20, memory_limit=limit, random_state=0
        ).fit(path, "label")
        assert model.feature_names_in_.tolist() == ["a", "b", "c"]
        expected = model.decision_function(frame[["a", "b", "c"]])
        np.testing.assert_array_equal(model.decision_function(path), expected)
        np.testing.assert_array_equal(model.decision_function(other), expected)
    counts = pandas.DataFrame(
        {"a": [1, 2, 3], "y": pandas.array([1, None, 3], "Int64")}
    )
    counts.to_parquet(path)
    with pytest.raises(ValueError, match="column 'y' of .* has no value in row 1"):
        SketchedKernelRegressor().fit(path, "y")
    with pytest.raises(ValueError, match="a step of 2"):
        Source(X, "X")[::2]


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_a_subsample_without_weight(loss, rng):
    X, y = make_data(rng)
    model = SketchedKernelRegressor(
        loss=loss, n_components=5, memory_limit=SMALL, random_state=0
    )
    with pytest.raises(ValueError, match="leave out points of weight 0"):
        model.fit(Source(X, "X"), y, (np.arange(len(y)) == 0).astype(float))
