"""Fits that were stopped go on where they were, to the last bit."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import only_long

from pskernels.checkpoint import Checkpoint
from pskernels.estimators import SketchedKernelClassifier, SketchedKernelRegressor
from pskernels.streaming import ChangedRowsError, Chunks

KEY = bytes(range(32))


@pytest.fixture
def data(tmp_path, rng):
    X = rng.normal(size=(4000, 3))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.standard_t(3, size=4000)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    return str(tmp_path / "X.npy"), str(tmp_path / "y.npy"), tmp_path / "passes"


def make_model(**options):
    options = dict(loss="absolute", tol=1e-3) | options
    return SketchedKernelRegressor(n_components=20, memory_limit=2**19, **options)


class StoppedError(Exception):
    pass


def stop_after(monkeypatch, n_passes):
    """Let the pass behind so many fail."""
    run_pass, left = Chunks.run_pass, n_passes

    def counted(*arguments):
        nonlocal left
        left -= 1
        if left < 0:
            raise StoppedError
        return run_pass(*arguments)

    monkeypatch.setattr(Chunks, "run_pass", counted)


def count_passes(monkeypatch):
    run_pass, passes = Chunks.run_pass, []

    def counted(*arguments):
        passes.append(1)
        return run_pass(*arguments)

    monkeypatch.setattr(Chunks, "run_pass", counted)
    return passes


@pytest.mark.parametrize("n_passes", [only_long(0), 1, only_long(4)])
def test_a_fit_goes_on(n_passes, data, monkeypatch):
    X, y, path = data
    whole = make_model(random_state=3).fit(X, y)
    with monkeypatch.context() as stopped:
        stop_after(stopped, n_passes)
        with pytest.raises(StoppedError):
            make_model(random_state=3).fit(X, y, checkpoint=path)
    with monkeypatch.context() as counted:
        passes = count_passes(counted)
        model = make_model(random_state=3).fit(X, y, checkpoint=path)
    assert len(passes) == whole.n_iter_ - n_passes > 0
    np.testing.assert_array_equal(model.coef_, whole.coef_)
    assert model.objective_ == whole.objective_ and model.dual_gap_ == whole.dual_gap_
    assert not path.exists()


def test_a_seed_that_was_not_given_is_kept(data, monkeypatch):
    X, y, path = data
    with monkeypatch.context() as stopped:
        stop_after(stopped, 2)
        with pytest.raises(StoppedError):
            make_model().fit(X, y, checkpoint=path)
    seed = int(Checkpoint(path, path.read_bytes()[19:51]).records[0]["seed"])
    model = make_model().fit(X, y, checkpoint=path)
    np.testing.assert_array_equal(
        model.coef_, make_model(random_state=seed).fit(X, y).coef_
    )


def test_several_outputs(data, monkeypatch):
    X, y, path = data
    labels = np.digitize(np.load(y), [-0.5, 0.5])

    def fit(**options):
        return SketchedKernelClassifier(
            n_components=20, memory_limit=2**19, random_state=0, tol=1e-3
        ).fit(X, labels, **options)

    whole = fit()
    with monkeypatch.context() as stopped:
        stop_after(stopped, 2)
        with pytest.raises(StoppedError):
            fit(checkpoint=path)
    np.testing.assert_array_equal(fit(checkpoint=path).coef_, whole.coef_)


def test_rows_that_change_while_a_fit_is_stopped(data, monkeypatch):
    X, y, path = data
    with monkeypatch.context() as stopped:
        stop_after(stopped, 2)
        with pytest.raises(StoppedError):
            make_model(random_state=0).fit(X, y, checkpoint=path)
    points = np.load(X)
    points[3900, 0] += 1e-9
    np.save(X, points)
    with pytest.raises(ChangedRowsError, match="X has changed .* rows"):
        make_model(random_state=0).fit(X, y, checkpoint=path)


def test_the_checkpoint_of_another_fit(data, monkeypatch):
    X, y, path = data
    stop_after(monkeypatch, 1)
    with pytest.raises(StoppedError):
        make_model(random_state=0).fit(X, y, checkpoint=path)
    with pytest.raises(ValueError, match="checkpoint of another fit"):
        make_model(random_state=0, tol=1e-4).fit(X, y, checkpoint=path)
    path.write_bytes(b"something else, and longer than a key and its magic are: no fit")
    with pytest.raises(ValueError, match="no checkpoint of this library"):
        make_model(random_state=0).fit(X, y, checkpoint=path)


@pytest.mark.parametrize("damage", ["cut", "flip", "tail", "head"])
def test_torn_records(damage, tmp_path):
    path = tmp_path / "log"
    log = Checkpoint(path, KEY)
    sizes = [path.stat().st_size]
    for k in range(3):
        log.add({"a": np.arange(5.0) + k})
        sizes.append(path.stat().st_size)
    content = bytearray(path.read_bytes())
    if damage == "cut":
        content = content[: sizes[2] + 40]
    elif damage == "flip":
        content[sizes[2] + 60] ^= 1
    elif damage == "tail":
        content += b"xyz"
    else:
        content = content[: sizes[2] + 5]
    path.write_bytes(content)
    log = Checkpoint(path, KEY)
    whole = 3 if damage == "tail" else 2
    assert [record["a"][0] for record in log.records] == list(range(whole))
    log.add({"a": np.full(5, 7.0)})  # what was torn is gone
    again = Checkpoint(path, KEY)
    assert [record["a"][0] for record in again.records] == [*range(whole), 7.0]


KILLED = """
import sys
from pskernels.estimators import SketchedKernelRegressor
from pskernels.streaming import Chunks
run_pass, n = Chunks.run_pass, 0
def slow(*arguments):
    global n
    print("pass", n, flush=True)
    n += 1
    import time
    time.sleep(0.3)
    return run_pass(*arguments)
Chunks.run_pass = slow
X, y, path = sys.argv[1:]
SketchedKernelRegressor(
    loss="absolute", tol=1e-3, n_components=20, memory_limit=2**19, random_state=5
).fit(X, y, checkpoint=path)
"""


@pytest.mark.skipif(os.name != "posix", reason="only POSIX has SIGKILL")
def test_a_fit_that_is_killed(data, rng):
    X, y, path = data
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", KILLED, X, y, str(path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    for _ in range(int(rng.integers(2, 5))):
        child.stdout.readline()
    time.sleep(0.2 * rng.random())
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert path.exists()
    model = make_model(random_state=5).fit(X, y, checkpoint=path)
    whole = make_model(random_state=5).fit(X, y)
    assert model.objective_ == pytest.approx(whole.objective_, rel=1e-12)
    np.testing.assert_array_equal(model.coef_, whole.coef_)


def test_what_is_said(data, capfd):
    X, y, _ = data
    make_model(random_state=0, verbose=1).fit(X, y)
    said = capfd.readouterr().err
    assert "4000 rows in" in said and "kernel values in a pass" in said
    assert "pass 1: objective" in said and "certified gap" in said
