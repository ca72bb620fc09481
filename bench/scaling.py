"""Fits to points that are not in memory: time, passes and memory by their number.

    python bench/scaling.py              all parts, half an hour and 5 GB of disk
    python bench/scaling.py growth       n = 10⁵, 10⁶, 10⁷ from a memory map

Points are float32, d = 10, s = 100, some 1,000 landmarks (p = 10/n), gaps of 1e-3.
"""

import contextlib
import os
import tempfile
import threading
import time
from dataclasses import replace

import numpy as np
from benchmarks.common import least, run_parts

import pskernels.estimators.streamed as streamed
import pskernels.streaming as streaming
from pskernels import FeatureMap, PSparsified
from pskernels.estimators import SketchedKernelRegressor
from pskernels.scratch import Scratch
from pskernels.sources import Source

D, S, TOL = 10, 100, 1e-3
LIMIT = 2**29
LOSSES = {
    "squared": dict(loss="squared"),
    "huber": dict(loss="huber"),
    "pinball 0.9": dict(loss="pinball", quantile=0.9),
    "epsilon_insensitive": dict(loss="epsilon_insensitive"),
}


def write_points(folder, n):
    """Write X and y as memory maps, a part at a time; return their paths."""
    paths = [os.path.join(folder, f"{name}{n}.npy") for name in "Xy"]
    X = np.lib.format.open_memmap(paths[0], "w+", np.float32, (n, D))
    y = np.lib.format.open_memmap(paths[1], "w+", np.float32, (n,))
    for start in range(0, n, 10**6):
        rng = np.random.default_rng(start)
        x = rng.normal(size=(min(10**6, n - start), D))
        noise = 0.3 * rng.standard_t(3, size=len(x))
        X[start : start + len(x)] = x
        y[start : start + len(x)] = np.sin(x[:, 0]) + x[:, 1] * x[:, 2] + noise
    X.flush()
    y.flush()
    return paths


def make_model(n, options, **others):
    return SketchedKernelRegressor(
        n_components=S, p=10 / n, random_state=0, tol=TOL, memory_limit=LIMIT,
        gamma=0.05, **options, **others,
    )  # fmt: skip


@contextlib.contextmanager
def watched_memory():
    """Yield a list that gets the peak of anonymous memory, in MB: no page of a map."""
    found, done = [0.0], threading.Event()

    def watch():
        while not done.wait(0.01):
            with open("/proc/self/status") as status:
                for line in status:
                    if line.startswith("RssAnon"):
                        found[0] = max(found[0], int(line.split()[1]) / 1024)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


def growth(rounds, sizes=(10**5, 10**6, 10**7)):
    """Time, passes and peak memory by n, from a memory map, and the exponent."""
    seconds = {name: [] for name in LOSSES}
    with tempfile.TemporaryDirectory() as folder:
        for n in sizes:
            paths = write_points(folder, n)
            for name, options in LOSSES.items():
                model = make_model(n, options)
                # less than the features take, whatever n is
                model.memory_limit = min(LIMIT, n * S * 2)
                with watched_memory() as peak:
                    least_time, _ = least(rounds if n < 10**7 else 1, model.fit, *paths)
                seconds[name].append(least_time)
                print(
                    f"n = {n:.0e}, {name}: {least_time:.2f} s, {model.n_iter_} passes, "
                    f"gap {model.dual_gap_:.1e}, {len(model.landmarks_)} landmarks, "
                    f"peak {peak[0]:.0f} MB beside the map",
                    flush=True,
                )
    for name, times in seconds.items():
        exponents = np.diff(np.log(times)) / np.diff(np.log(sizes))
        print(f"{name}: exponents {', '.join(f'{e:.2f}' for e in exponents)}")


def rate(rounds, n=10**6):
    """A pass over a memory map as a share of the rate of the same points in memory."""
    with tempfile.TemporaryDirectory() as folder:
        X, y = write_points(folder, n)
        forms = {"map": (X, y), "memory": (Source(np.load(X), "X"), np.load(y))}
        for name, options in LOSSES.items():
            times = {form: [] for form in forms}
            for _ in range(rounds):
                for form, data in forms.items():
                    model = make_model(n, options)
                    model.memory_limit = 2**27
                    times[form].append(least(1, model.fit, *data)[0])
            a, b = min(times["memory"]), min(times["map"])
            print(f"{name}: {b:.2f} s from a map, {a:.2f} in memory: rate {a / b:.2f}")


def passes(rounds, n=10**6):
    """Passes by the width of the first envelope, for gaps of 1e-3 and 1e-6."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, D)).astype(np.float32)
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.standard_t(3, size=n)
    for name, options in list(LOSSES.items())[2:]:
        for width in (0.1, 0.3, 1.0):
            streamed.FIRST_WIDTH = width
            found = []
            for tol in (1e-3, 1e-6):
                model = make_model(n, options)
                model.set_params(tol=tol, memory_limit=2**27, p=1 / n)
                found.append(model.fit(Source(X, "X"), y).n_iter_)
            print(f"{name}, FIRST_WIDTH = {width}: {found[0]} and {found[1]} passes")


def chunks(rounds, n=10**6):
    """Seconds of a fit by the bytes of a chunk."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, D)).astype(np.float32)
    y = np.sin(X[:, 0]) + 0.3 * rng.normal(size=n)
    for size in (2**20, 2**22, 2**24, 2**25, 2**26):
        streaming.CHUNK_BYTES = size
        model = make_model(n, LOSSES["huber"])
        model.memory_limit = 2**28
        seconds, _ = least(rounds, model.fit, Source(X, "X"), y)
        print(f"CHUNK_BYTES = 2**{size.bit_length() - 1}: {seconds:.2f} s")


def measure_disk(n_bytes=2**28, n_blocks=16):
    """Return the seconds of a byte to be written and to be read, not from memory."""
    block = np.ones((n_bytes // n_blocks // 8, 1))
    blocks = [slice(k * len(block), (k + 1) * len(block)) for k in range(n_blocks)]
    scratch = Scratch(1, np.float64)
    handle = scratch.file.fileno()

    def write():
        for rows in blocks:
            scratch.write(rows, block)
        os.fsync(handle)

    def read():
        for rows in blocks:
            scratch.read(rows)

    seconds = least(1, write)[0]
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)  # out of memory
    seconds = seconds, least(1, read)[0]
    scratch.close()
    return np.array(seconds) / n_bytes


def scratch(rounds, n=10**6):
    """Features computed in every pass, or kept in a temporary file; their costs."""
    for _ in range(rounds):
        write, read = measure_disk()
        print(f"a byte is written in {write:.1e} s and read in {read:.1e} s")
    rng = np.random.default_rng(0)
    for d, s in ((10, 100), (50, 100), (10, 400)):
        X = rng.normal(size=(n, d))
        y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.standard_t(3, size=n)
        feature_map = FeatureMap(
            "rbf", gamma=0.5 / d, sketch=PSparsified(s, 20 / n), random_state=0
        )
        features_of = feature_map.fit_chunks(X, 1e-6)
        times = [
            least(rounds, replace(features_of, is_formed=formed).numbers, X[: 2**14])[0]
            for formed in (False, True)
        ]
        m = len(feature_map.landmarks_)
        print(
            f"d = {d}, s = {s}: a kernel value takes {times[0] / 2**14 / m:.1e} s, to "
            f"form Z {(times[1] - times[0]) / 2**14 / s**2:.1e} s for r² of a row"
        )
        for name, options in list(LOSSES.items())[1:]:
            found = []
            for storage in ("recomputed", "auto"):
                model = make_model(n, options, feature_storage=storage)
                model.set_params(n_components=s, p=20 / n, gamma=0.5 / d)
                model.memory_limit = 2**28
                found.append((least(1, model.fit, Source(X, "X"), y)[0], model))
            (before, _), (after, model) = found
            print(
                f"  {name}: {before:.1f} s recomputed, {after:.1f} s by default, "
                f"{model.n_iter_} passes, gap {model.dual_gap_:.1e}",
                flush=True,
            )


def cluster(rounds, n=2 * 10**6):
    """Dask on workers of one thread each against one process with two threads."""
    import dask.array as da
    from distributed import Client, LocalCluster

    from pskernels.dask import DaskSketchedKernelRegressor

    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, D)).astype(np.float32)
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.standard_t(3, size=n)
    options = dict(n_components=S, p=10 / n, random_state=0, tol=TOL, gamma=0.05)
    for name, loss in LOSSES.items():
        model = SketchedKernelRegressor(**options, **loss, memory_limit=2**33)
        seconds, _ = least(rounds, model.fit, X, y)
        print(f"{name}, in memory, two threads: {seconds:.2f} s", flush=True)
        for n_workers in (1, 2, 4):
            with (
                LocalCluster(
                    n_workers=n_workers, threads_per_worker=1, dashboard_address=":0"
                ) as workers,
                Client(workers) as client,
            ):
                points, targets = client.persist(
                    [
                        da.from_array(X, chunks=(n // 16, D)),
                        da.from_array(y, chunks=n // 16),
                    ]
                )
                other = DaskSketchedKernelRegressor(client=client, **options, **loss)
                other.fit(points, targets)  # workers have imported all they need
                its, _ = least(rounds, other.fit, points, targets)
                task = _time_tasks(client)
            print(
                f"{name}, {n_workers} workers: {its:.2f} s ({its / seconds:.2f}), "
                f"{other.n_iter_} passes, gap {other.dual_gap_:.1e}, coefficients "
                f"differ by {np.abs(other.coef_ - model.coef_).max():.1e}; a task "
                f"takes {task * 1e3:.1f} ms",
                flush=True,
            )


def _time_tasks(client, count=200):
    """Measure the seconds of a task that does nothing."""
    start = time.perf_counter()
    client.gather([client.submit(float, k, pure=False) for k in range(count)])
    return (time.perf_counter() - start) / count


# Rows of a partition, and what a network does: as assumed for other clusters.
PARTITION_ROWS = 10**6
NETWORK_BYTES, NETWORK_DELAY = 1e8, 1e-3


class CostModel:
    """Seconds of a fit: a start, a look at all points, and passes over them.

    Parameters
    ----------
    folder : path
        For files of points.
    n : int
        Points that it is measured with.
    """

    def __init__(self, folder, n=10**6):
        paths = write_points(folder, n)
        self.passes, self.start, self.row = {}, {}, {}
        looks = []
        for name, options in LOSSES.items():
            for threads in (1, 2):
                model = make_model(n, options, n_threads=threads)
                found = [_phases(model, paths) for _ in range(3)]
                start, look, passes = np.min(found, axis=0)
                self.row[name, threads] = passes / model.n_iter_ / n
                looks.append(look / n)
            self.start[name], self.passes[name] = start, model.n_iter_
        self.look = min(looks)

    def predict(self, name, n, workers=1, threads=2, task=0.0, step=0.0):
        """Predict seconds; `task` for each partition, `step` for each pass."""
        partitions = max(n / PARTITION_ROWS, workers)
        passes = self.passes[name] * (
            n / workers * self.row[name, threads] + partitions / workers * task + step
        )
        return self.start[name] + n / workers * self.look + passes

    def predict_cluster(self, name, n, machines):
        """Predict seconds on machines of two cores each, on an ordinary network."""
        sent = 8 * (S**2 + 5 * S)  # of an answer, which are added up eight at a time
        hops = np.ceil(np.log(max(n / PARTITION_ROWS, 8)) / np.log(8))
        step = hops * (8 * sent / NETWORK_BYTES + NETWORK_DELAY)
        return self.predict(name, n, machines, task=TASK_SECONDS, step=step)


# What a task costs beside its work: `cluster` measures it.
TASK_SECONDS = 5e-3


def _phases(model, paths):
    """Fit; return the seconds of the start, of a look at all points, and of passes."""
    seconds = dict.fromkeys(("_starts", "_find_loss", "run_pass"), 0.0)
    patched = {}

    def timed(cls, name):
        method = patched[cls, name] = getattr(cls, name)

        def call(*arguments, **options):
            begin = time.perf_counter()
            try:
                return method(*arguments, **options)
            finally:
                seconds[name] += time.perf_counter() - begin

        setattr(cls, name, call)

    for cls, name in (
        (streamed.FitsSources, "_starts"),
        (streamed.FitsSources, "_find_loss"),
        (streaming.Chunks, "run_pass"),
    ):
        timed(cls, name)
    try:
        total, _ = least(1, model.fit, *paths)
    finally:
        for (cls, name), method in patched.items():
            setattr(cls, name, method)
    start = seconds["_starts"] + seconds["_find_loss"]
    return start, total - start - seconds["run_pass"], seconds["run_pass"]


def model(rounds, sizes=(10**5, 10**6, 10**7)):
    """The cost model against fits of 10⁵ to 10⁷ points; 10⁸ and 10⁹ by it; a plot."""
    measured = {}
    with tempfile.TemporaryDirectory() as folder:
        costs = CostModel(folder)
        for n in sizes:
            paths = write_points(folder, n)
            for name, options in LOSSES.items():
                fit = make_model(n, options)
                fit.memory_limit = min(LIMIT, n * S * 2)
                seconds, _ = least(2 if n < 10**7 else 1, fit.fit, *paths)
                measured[name, n] = seconds
    print(f"a look at a row takes {costs.look * 1e6:.2f} µs")
    for name in LOSSES:
        rows = [f"{costs.row[name, threads] * 1e6:.2f}" for threads in (1, 2)]
        print(
            f"{name}: start {costs.start[name]:.2f} s, {costs.passes[name]} passes, a "
            f"row {rows[0]} µs with one thread and {rows[1]} with two"
        )
        for n in sizes:
            expected, seconds = costs.predict(name, n), measured[name, n]
            print(
                f"  n = {n:.0e}: {expected:.2f} s by the model, {seconds:.2f} measured "
                f"({seconds / expected:.2f})"
            )
        for n, machines in ((10**8, 10), (10**8, 100), (10**9, 10), (10**9, 100)):
            seconds = costs.predict_cluster(name, n, machines)
            print(f"  n = {n:.0e} on {machines} machines: {seconds:.0f} s by the model")
    _plot(costs, measured, sizes)


def _plot(costs, measured, sizes):
    """Draw measured fits, and the model beyond them."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    beyond = np.logspace(5, 9, 50)
    for k, name in enumerate(LOSSES):
        seconds = [costs.predict(name, n) for n in beyond]
        axes.loglog(beyond, seconds, color=f"C{k}", linewidth=1)
        seconds = [costs.predict_cluster(name, n, 100) for n in beyond]
        axes.loglog(beyond, seconds, color=f"C{k}", linewidth=1, linestyle=":")
        found = [measured[name, n] for n in sizes]
        axes.loglog(sizes, found, "o", color=f"C{k}", label=name)
    axes.set(
        xlabel="points", ylabel="seconds",
        title="s = 100, 1,000 landmarks, gap 1e-3: measured (dots),\n"
        "model of one machine (lines) and of 100 (dotted)",
    )  # fmt: skip
    axes.legend()
    path = os.path.join(os.path.dirname(__file__), "..", "docs", "scaling.png")
    figure.savefig(path, dpi=110)
    print(f"written: {os.path.normpath(path)}")


if __name__ == "__main__":
    parts = dict(growth=growth, rate=rate, passes=passes, chunks=chunks)
    run_parts(parts | dict(scratch=scratch, cluster=cluster, model=model), __doc__)
