"""Machines on a real cluster of processes, against those of one process."""

import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import only_long
from sklearn.base import clone

import pskernels as psk
from pskernels.estimators import KernelSketch, SketchedKernelRegressor, load
from pskernels.sources import Source
from pskernels.streaming import ChangedRowsError

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
psk_dask = pytest.importorskip("pskernels.dask")

# Dask and Tornado leave sockets to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

N = 6000


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def data(rng):
    X = rng.normal(size=(N, 3))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.standard_t(3, size=N)
    return X, y


def split(array, sizes=(1000, 2500, 1, 2499)):
    chunks = (sizes,) if array.ndim == 1 else (sizes, array.shape[1:])
    return da.from_array(array, chunks=chunks)


OPTIONS = dict(n_components=20, random_state=0, memory_limit=2**20, gamma=0.2)


@pytest.mark.parametrize(
    "sizes",
    [
        (1000, 2500, 1, 2499),
        only_long((N,)),
        only_long((500,) * 12),
    ],
)
def test_squares(sizes, client, data):
    X, y = data
    model = psk_dask.DaskSketchedKernelRegressor(
        client=client, loss="squared", **OPTIONS
    )
    model.fit(split(X, sizes), split(y, sizes))
    expected = SketchedKernelRegressor(loss="squared", **OPTIONS).fit(X, y)
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(model.landmarks_, expected.landmarks_)
    assert model.client_ is client and model.n_iter_ == 1


@pytest.mark.parametrize(
    "options",
    [
        dict(loss="pinball", quantile=0.9),
        only_long(dict(loss="huber", kappa=0.5)),
        only_long(dict(loss="epsilon_insensitive", epsilon=0.1)),
        only_long(dict(kernel="polynomial", kappa=1.0)),
    ],
    ids=str,
)
def test_other_losses(options, client, data):
    X, y = data
    options = OPTIONS | dict(tol=1e-4, alpha=1e-3) | options
    weight = np.arange(N) % 3
    model = psk_dask.DaskSketchedKernelRegressor(client=client, **options)
    model.fit(split(X), split(y, (3000, 3000)), split(weight, (N,)))
    expected = SketchedKernelRegressor(**options).fit(Source(X, "X"), y, weight)
    assert model.dual_gap_ <= 1e-4
    assert model.objective_ == pytest.approx(expected.objective_, rel=2e-4)
    best = psk.solve(
        expected.feature_map_.transform(X), y, loss=expected.loss_, alpha=1e-3,
        sample_weight=weight, tol=1e-8,
    )  # fmt: skip
    gap = model.objective_ - best.objective
    assert gap <= model.dual_gap_ * model.objective_ + 1e-9


def test_frames_and_lazy_predictions(client, data):
    pandas, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    X, y = data
    frame = pandas.DataFrame(X, columns=list("abc")).assign(y=y)
    ddf = dd.from_pandas(frame, npartitions=5)
    model = psk_dask.DaskSketchedKernelRegressor(client=client, **OPTIONS)
    predicted = model.fit(ddf[list("abc")], ddf["y"]).predict(ddf[list("abc")])
    assert isinstance(predicted, da.Array)
    local = model.to_local()
    assert type(local) is SketchedKernelRegressor
    assert local.feature_names_in_.tolist() == list("abc")
    some = ddf[ddf["a"] > 3][list("abc")]  # some partitions have no such row
    np.testing.assert_allclose(
        model.predict(some).compute(), predicted.compute()[X[:, 0] > 3]
    )
    with pytest.raises(ValueError, match="columns a, b, c"):
        model.predict(ddf[list("cab")])
    model = psk_dask.DaskSketchedKernelRegressor(client=client, **OPTIONS)
    model.fit(split(X), split(y))
    local = model.to_local()
    predicted = model.predict(split(X))
    np.testing.assert_array_equal(predicted.compute(), local.predict(X))
    lazy = model.predict(split(X))
    assert lazy.shape == (N,) and lazy.dtype == np.float64
    np.testing.assert_array_equal(lazy.compute(), local.predict(X))
    np.testing.assert_array_equal(model.predict(X), local.predict(X))


def test_classes_and_quantiles(client, data):
    X, y = data
    labels = np.where(y > 0.5, "high", "low")
    model = psk_dask.DaskSketchedKernelClassifier(
        client=client, loss="logistic", class_weight="balanced", **OPTIONS
    ).fit(split(X), split(labels))
    assert model.classes_.tolist() == ["high", "low"]
    assert (model.predict(split(X)).compute() == labels).mean() > 0.8
    assert model.predict_proba(split(X)).compute().shape == (N, 2)
    assert model.decision_function(split(X)).shape == (N,)
    model = psk_dask.DaskSketchedQuantileRegressor(
        client=client, quantiles=[0.1, 0.9], tol=1e-3, **OPTIONS
    ).fit(split(X), split(y))
    assert model.predict(split(X)).shape == (N, 2)
    share = (split(y)[:, None] <= model.predict(split(X))).mean(axis=0).compute()
    np.testing.assert_allclose(share, [0.1, 0.9], atol=0.02)


def test_features(client, data):
    X, _ = data
    model = psk_dask.DaskKernelSketch(client=client, n_components=20, random_state=0)
    Z = model.fit_transform(split(X))
    expected = KernelSketch(n_components=20, random_state=0).fit_transform(X)
    assert Z.shape == expected.shape
    # gamma is from moments that are merged in another order
    np.testing.assert_allclose(Z.compute(), expected, atol=1e-9)


class StoppedError(Exception):
    pass


@pytest.mark.long
def test_a_fit_that_is_stopped_goes_on(client, data, tmp_path, monkeypatch):
    X, y = data
    path = tmp_path / "passes"
    options = OPTIONS | dict(loss="absolute", tol=1e-4, client=client)
    weight = split(1 + np.arange(N) % 2)
    whole = psk_dask.DaskSketchedKernelRegressor(**options)
    whole.fit(split(X), split(y), weight)
    run_pass, passes = psk_dask.DaskChunks.run_pass, []

    def stopped(*arguments):
        passes.append(1)
        if len(passes) > 2:
            raise StoppedError
        return run_pass(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(psk_dask.DaskChunks, "run_pass", stopped)
        with pytest.raises(StoppedError):
            psk_dask.DaskSketchedKernelRegressor(**options).fit(
                split(X), split(y), weight, checkpoint=path
            )
    model = psk_dask.DaskSketchedKernelRegressor(**options)
    for name, moved in (("X", (1e-9, 0.0)), ("y", (0.0, 1e-9))):
        points, targets = split(X + moved[0]), split(y + moved[1])
        with pytest.raises(ChangedRowsError, match=f"{name} has changed.*rows 0 to"):
            model.fit(points, targets, weight, checkpoint=path)
    with pytest.raises(ValueError, match="another fit"):
        psk_dask.DaskSketchedKernelRegressor(**options).fit(
            split(X, (3000, 3000)), split(y), weight, checkpoint=path
        )
    model = psk_dask.DaskSketchedKernelRegressor(**options)
    model.fit(split(X), split(y), weight, checkpoint=path)
    np.testing.assert_array_equal(model.coef_, whole.coef_)
    assert model.dual_gap_ == whole.dual_gap_ and not path.exists()


@pytest.mark.long
def test_a_worker_that_is_lost(data):
    """One of two is killed in the midst of a fit: the result is the same."""
    X, y = data
    options = OPTIONS | dict(loss="absolute", tol=1e-6)
    expected = SketchedKernelRegressor(**options).fit(Source(X, "X"), y)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        n_passes, run_pass = 0, psk_dask.DaskChunks.run_pass

        def killing(self, *arguments):
            nonlocal n_passes
            n_passes += 1
            if n_passes == 3:
                pid = cluster.workers[0].pid
                threading.Timer(0.01, os.kill, (pid, signal.SIGKILL)).start()
            return run_pass(self, *arguments)

        psk_dask.DaskChunks.run_pass = killing
        began = time.monotonic()
        try:
            model = psk_dask.DaskSketchedKernelRegressor(client=client, **options)
            model.fit(split(X, (300,) * 20), split(y, (300,) * 20))
        finally:
            psk_dask.DaskChunks.run_pass = run_pass
        assert time.monotonic() - began < 60
    assert n_passes > 4
    assert model.objective_ == pytest.approx(expected.objective_, rel=2e-6)
    assert model.dual_gap_ <= 1e-6


def test_bad_partitions_are_named(client, data):
    X, y = data
    model = psk_dask.DaskSketchedKernelRegressor(client=client, **OPTIONS)
    before = model.fit(split(X), split(y)).coef_
    bad = X.copy()
    bad[4000, 1] = np.nan
    bad_y = y.copy()
    bad_y[17] = np.inf

    def other(block, block_info=None):
        is_third = block_info[0]["chunk-location"][0] == 1
        return block[:, :2] if is_third else block

    def texts(block, block_info=None):
        is_third = block_info[0]["chunk-location"][0] == 1
        return block.astype(str) if is_third else block

    narrow = split(X).map_blocks(other, dtype=float, chunks=split(X).chunks)
    text = split(X).map_blocks(texts, dtype=float, chunks=split(X).chunks)
    empty = split(X, (3000, 0, 3000))
    cases = [
        (split(bad), split(y), "partition 3 of X .* NaN or infinity in row 4000"),
        (split(X), split(bad_y), "partition 0 of y .* row 17"),
        (narrow, split(y), r"partition 1 of X .* shape \(2500, 3\), got \(2500, 2\)"),
        (text, split(y), "partition 1 of X .* must hold real numbers"),
        (empty, split(y), "partition 1 of . .* is empty"),
        (split(X), split(y[:-1], (5999,)), "X has 6000 rows, but y has 5999"),
        (X, split(y), "X must be a Dask array"),
    ]
    for points, targets, message in cases:
        with pytest.raises((TypeError, ValueError), match=message):
            model.fit(points, targets)
    np.testing.assert_array_equal(model.coef_, before)


def test_conventions_of_scikit_learn(client, data, tmp_path):
    X, y = data
    model = psk_dask.DaskSketchedKernelRegressor(client=client, **OPTIONS)
    assert model.get_params()["client"] is client
    assert clone(model.set_params(client=None)).get_params()["n_components"] == 20
    model.fit(split(X), split(y))  # the client that was made last
    again = pickle.loads(pickle.dumps(model))
    assert again.client is None and not hasattr(again, "client_")
    np.testing.assert_array_equal(again.coef_, model.coef_)
    model.save(tmp_path / "model.npz")
    loaded = SketchedKernelRegressor.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict(X), model.to_local().predict(X))


def run_example(name, *arguments):
    path = Path(__file__).parent.parent / "examples" / name
    command = [sys.executable, "-P", str(path), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


@pytest.mark.long
def test_example_of_a_local_cluster():
    found = run_example("local_cluster.py", "--rows", 20_000)
    assert found.returncode == 0, found.stderr
    shares = re.search(r"quantiles: \[(.*)\]", found.stdout).group(1)
    np.testing.assert_allclose(
        np.fromstring(shares, sep=" "), [0.1, 0.5, 0.9], atol=0.02
    )
    assert "landmarks" in found.stdout


@pytest.mark.long
def test_example_of_a_scheduler(client, data, tmp_path):
    pandas = pytest.importorskip("pandas")
    X, y = data
    for part in range(3):
        rows = slice(2000 * part, 2000 * (part + 1))
        frame = pandas.DataFrame(X[rows], columns=list("abc")).assign(price=y[rows])
        frame.to_parquet(tmp_path / f"{part}.parquet")
    path = tmp_path / "model.npz"
    found = run_example(
        "scheduler.py", client.scheduler.address, tmp_path / "*.parquet",
        "--target", "price", "--components", 20, "--model", path,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    model = load(path)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0, ddof=1)
    assert model.score(pandas.DataFrame(scaled, columns=list("abc")), y) > 0.5
