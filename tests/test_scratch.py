"""Features in a temporary file: when that is chosen, and that it changes nothing."""

import contextlib
import errno
import os

import numpy as np
import pytest

import pskernels as psk
import pskernels.scratch
from pskernels.estimators import SketchedKernelRegressor
from pskernels.scratch import Scratch, choose_storage
from pskernels.sources import Source

LIMIT = 2**20


@pytest.fixture
def slow_kernel(monkeypatch):
    """Let files cost less than the kernel."""
    monkeypatch.setattr(pskernels.scratch, "VALUE_COST", 1e-6)


@pytest.fixture
def made(monkeypatch):
    """List the files that fits have made."""
    found = []

    class Listed(Scratch):
        def __init__(self, *args):
            super().__init__(*args)
            found.append(self)

    monkeypatch.setattr(pskernels.scratch, "Scratch", Listed)
    return found


def make_data(n=20_000, dtype=np.float64):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4)).astype(dtype)
    return X, np.sin(X[:, 0]) + X[:, 1] + 0.3 * rng.standard_t(3, size=n)


def fit(X, y, **options):
    options = dict(n_components=20, gamma=0.2, random_state=0, tol=1e-3) | options
    model = SketchedKernelRegressor(memory_limit=LIMIT, **options)
    return model.fit(Source(X, "X"), y)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_are_read_as_they_were_written(dtype):
    rng = np.random.default_rng(0)
    scratch = Scratch(7, dtype)
    parts = {start: rng.normal(size=(10, 7)).astype(dtype) for start in (20, 0, 10)}
    for start, numbers in parts.items():
        rows = slice(start, start + 10)
        assert rows not in scratch
        assert scratch.write(rows, numbers)
    for start, numbers in parts.items():
        rows = slice(start, start + 10)
        assert rows in scratch
        np.testing.assert_array_equal(scratch.read(rows), numbers)
    assert slice(0, 20) not in scratch
    scratch.file.truncate(100)
    with pytest.raises(OSError, match="cut short"):
        scratch.read(slice(20, 30))
    scratch.close()


@pytest.mark.parametrize("loss", ["huber", "pinball"])
def test_features_that_are_kept_are_the_same(loss, slow_kernel, made):
    X, y = make_data()
    options = dict(loss=loss, tol=1e-6, max_iter=4 if loss == "pinball" else None)
    with pytest.warns() if loss == "pinball" else contextlib.nullcontext():
        kept = fit(X, y, **options)
    with pytest.warns() if loss == "pinball" else contextlib.nullcontext():
        computed = fit(X, y, feature_storage="recomputed", **options)
    (scratch,) = made
    assert scratch.dtype == np.float64 and scratch.file.closed
    np.testing.assert_array_equal(kept.coef_, computed.coef_)
    assert kept.dual_gap_ == computed.dual_gap_


@pytest.mark.parametrize(
    "options", [dict(loss="huber", kappa=0.3), dict(loss="pinball", quantile=0.9)]
)
@pytest.mark.parametrize("storage", ["auto", "float32"])
def test_rounded_features_have_certificates(options, storage, slow_kernel, made):
    X, y = make_data()
    model = fit(X, y, feature_storage=storage, tol=1e-2, **options)
    (scratch,) = made
    assert scratch.dtype == np.float32
    # of the features before they were rounded
    Z = model.feature_map_.transform(X)
    best = psk.solve(Z, y, loss=model.loss_, alpha=model.alpha_, tol=1e-8)
    predicted = Z @ model.coef_ + model.intercept_
    objective = model.loss_.value(predicted, y).mean()
    objective += model.alpha_ / 2 * (model.coef_**2).sum()
    assert objective - best.objective <= model.dual_gap_ * objective
    assert model.dual_gap_ <= 1e-2
    assert objective == pytest.approx(model.objective_, rel=1e-5)


def test_small_gaps_are_not_left_to_rounded_features(slow_kernel, made):
    X, y = make_data()
    fit(X, y, tol=1e-8)
    assert [scratch.dtype for scratch in made] == [np.float64]


def test_neither_room_nor_a_checkpoint_changes_a_bit(
    slow_kernel, made, tmp_path, monkeypatch
):
    X, y = make_data()
    kept = fit(X, y, tol=1e-2)
    assert [scratch.dtype for scratch in made] == [np.float32]
    again = SketchedKernelRegressor(
        n_components=20, gamma=0.2, random_state=0, tol=1e-2, memory_limit=LIMIT
    )
    again.fit(Source(X, "X"), y, checkpoint=tmp_path / "passes")
    np.testing.assert_array_equal(again.coef_, kept.coef_)

    def refuse(*args, **kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    for name, value in (
        ("_has_space", lambda n_bytes: False),
        ("_has_space", refuse),
        ("Scratch", refuse),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(pskernels.scratch, name, value)
            np.testing.assert_array_equal(fit(X, y, tol=1e-2).coef_, kept.coef_)


def test_a_full_disk(slow_kernel, made, monkeypatch):
    X, y = make_data()
    expected = fit(X, y, tol=1e-6)
    pwrite, n_calls = os.pwrite, 0

    def fill(*args):
        nonlocal n_calls
        n_calls += 1
        if n_calls > 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        return pwrite(*args)

    monkeypatch.setattr(os, "pwrite", fill)
    found = fit(X, y, tol=1e-6)
    assert n_calls == 4  # not again
    assert all(scratch.file.closed for scratch in made)
    np.testing.assert_array_equal(found.coef_, expected.coef_)


def test_writes_in_parts(monkeypatch):
    pwrite, preadv = os.pwrite, os.preadv
    monkeypatch.setattr(os, "pwrite", lambda f, data, at: pwrite(f, data[:13], at))
    monkeypatch.setattr(
        os, "preadv", lambda f, parts, at: preadv(f, [parts[0][:7]], at)
    )
    scratch, numbers = Scratch(5, np.float64), np.arange(50.0).reshape(10, 5)
    assert scratch.write(slice(0, 10), numbers)
    np.testing.assert_array_equal(scratch.read(slice(0, 10)), numbers)
    scratch.close()


def test_an_error_leaves_no_file(slow_kernel, made):
    X, y = make_data()

    class Fails:
        shape, dtype, n_reads = X.shape, X.dtype, 0

        def __getitem__(self, rows):
            self.n_reads += 1
            if self.n_reads > 30:
                raise OSError("the network is gone")
            return X[rows]

    with pytest.raises(OSError, match="network"):
        fit(Fails(), y)
    assert all(scratch.file.closed for scratch in made)


class TestChoice:
    def features(self, s=20, m_each=1, dtype=np.float64):
        X, _ = make_data(2000, dtype)
        sketch = psk.PSparsified(s, m_each / 2000)
        feature_map = psk.FeatureMap(gamma=0.2, sketch=sketch, random_state=0)
        return feature_map.fit_chunks(X, 1e-4)

    def test_is_by_costs(self):
        # many landmarks for each feature, and few
        of_many, of_few = self.features(20, 50), self.features(20, 1)
        chosen, scratch = choose_storage(of_many, 1000, False, False)
        assert chosen is of_many and scratch.dtype == np.float64
        scratch.close()
        chosen, scratch = choose_storage(of_many, 1000, False, True)
        assert chosen.is_rounded and scratch.dtype == np.float32
        scratch.close()
        assert choose_storage(of_few, 1000, False, True) == (of_few, None)
        in_float32 = self.features(20, 50, np.float32)
        chosen, scratch = choose_storage(in_float32, 1000, False, True)
        assert not chosen.is_rounded and scratch.dtype == np.float32
        scratch.close()

    def test_needs_room_on_a_disk(self, monkeypatch):
        features_of = self.features(20, 50)
        assert choose_storage(features_of, 10**15, False, False) == (features_of, None)
        monkeypatch.setattr(pskernels.scratch, "_file_system", lambda _: "tmpfs")
        assert choose_storage(features_of, 1000, False, False) == (features_of, None)

    def test_file_systems(self):
        assert pskernels.scratch._file_system("/proc/self") == "proc"
